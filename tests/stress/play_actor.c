/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank does in the same way whatever kind of average it takes part in. */
#include <stdlib.h>

#include "play.h"

void *play_actor_make(struct play_object *object, struct weft_context *context, int rank,
                      size_t bytes)
{
    struct play_actor *actor = play_take(1, bytes);
    *actor = (struct play_actor){object, context, object->seed + (uint64_t)rank};
    object->actors[rank] = actor;
    return actor;
}

int play_actor_end(struct play_object *object, int rank, int status)
{
    free(object->actors[rank]);
    return status;
}

int play_actor_wait(const struct play_actor *actor, int status, int (*wait)(void *), void *of)
{
    int patience = actor->object->patience;
    while (status == WEFT_ERR_TIMEOUT && actor->object->deadline_ns &&
           !(patience && --patience == 0)) {
        uint64_t began = weft_context_now(actor->context);
        status = wait(of);
        if (weft_context_now(actor->context) == began)
            break; /* time has ended */
    }
    return status;
}

void play_actor_sleep(struct play_actor *actor)
{
    if (play_below(&actor->random, 2))
        weft_context_sleep(actor->context, play_random(&actor->random) % actor->object->sleep_ns);
}
