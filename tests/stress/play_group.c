/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging in a play: a case of support/averaging.h, which reads out of every average whose
 * contributions are in it. */
#include <stdlib.h>
#include <string.h>

#include "play.h"
#include "support/averaging.h"

struct group {
    struct averaging_case drawn;
    struct averaging_log *logs[PLAY_RANKS];
};

static void draw(struct play_object *object, uint64_t *random)
{
    struct group *group = play_take(1, sizeof *group);
    struct averaging_case *drawn = &group->drawn;
    averaging_draw_among(drawn, object->seed, object->ranks);
    PLAY_TIMES(object, &drawn->config);
    drawn->patience = object->patience;
    drawn->fails = 1;
    drawn->block = play_below(random, 16) ? 2 : 2 * (1 + play_below(random, 100));
    drawn->pause_ns = object->sleep_ns / 20 + 1;
    for (int r = 0; r < object->ranks; r++) {
        drawn->first[r] = 0;
        group->logs[r] = play_take(1, sizeof *group->logs[r]);
    }
    object->settings = group;
}

static int begin(struct play_object *object, struct weft_context *context, int rank)
{
    struct group *group = object->settings;
    memcpy(group->drawn.steps, object->steps, sizeof object->steps);
    return averaging_begin((struct averaging_actor **)&object->actors[rank], &group->drawn, context,
                           group->logs[rank]);
}

static int step(struct play_object *object, int rank, int step)
{
    return averaging_step(object->actors[rank], step);
}

static int fail(struct play_object *object, int rank, int status, const char *text)
{
    return weft_group_average_fail(averaging_object(object->actors[rank]), status, text);
}

static int end(struct play_object *object, int rank)
{
    struct group *group = object->settings;
    group->drawn.steps[rank] = object->steps[rank];
    group->drawn.gave_up[rank] = object->reports[rank].status != WEFT_OK;
    return averaging_end(object->actors[rank]);
}

static int judge(struct play_object *object, char text[PLAY_TEXT])
{
    struct group *group = object->settings;
    return averaging_judge(&group->drawn, group->logs, text);
}

static void group_free(struct play_object *object)
{
    struct group *group = object->settings;
    for (int r = 0; r < object->ranks; r++)
        free(group->logs[r]);
}

const struct play_kind play_group = {
    .name = "group",
    .waits = 1,
    .leaves = 1,
    .draw = draw,
    .begin = begin,
    .step = step,
    .fail = fail,
    .end = end,
    .judge = judge,
    .free = group_free,
};
