/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes are forked here, and reach each other through shared memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/shared.h>

#include "support/forked.h"
#include "world.h"

const int world_hears_all = 0;
static struct forked_rank self;
static int contexts; /* created so far */

void world_begin(int *argc, char ***argv, int threads)
{
    struct forked *forked = NULL;
    char text[FORKED_TEXT + 100];

    (void)threads;
    world_size = *argc > 2 && strcmp((*argv)[1], "-n") == 0 ? atoi((*argv)[2]) : 0;
    if (world_size < 1) {
        fprintf(stderr, "usage: %s -n RANKS ...\n", (*argv)[0]);
        exit(2);
    }
    if (!forked_fork(world_size, &forked, &self)) {
        int failed = forked_end(forked, text, sizeof text);

        if (failed)
            printf("not ok - %s\n", text);
        exit(failed);
    }
    world_rank = self.rank;
    (*argv)[2] = (*argv)[0];
    *argc -= 2;
    *argv += 2;
}

void world_finish(void)
{
}

void world_abort(void)
{
    forked_fail(&self, "see above");
}

void world_come(void)
{
    forked_come(&self);
}

int world_all_came(void)
{
    return forked_all_came(&self);
}

void world_gather(const void *mine, size_t bytes, void *all)
{
    forked_gather(&self, mine, bytes, all);
}

/* By a name and by a callback in turn. */
int world_create(struct weft_context **context, const struct weft_context_config *config)
{
    struct weft_shared_config shared;
    char name[sizeof self.forked->name + 16];

    weft_shared_config_init(&shared);
    snprintf(name, sizeof name, "%s-%d", self.forked->name, contexts);
    if (contexts++ % 2 == 0) {
        shared.name = name;
    } else {
        shared.gather = forked_gather;
        shared.user = &self;
    }
    return weft_context_create_shared(context, world_rank, world_size, config, &shared);
}
