/* SPDX-License-Identifier: BSD-3-Clause */
/* Who hears that an object has failed hears it before it hears that others have left since: on
 * virtual ranks whose messages take as long as they like, each of which leaves as soon as it has
 * heard. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "support/virtual_ranks.h"

enum { MOST_RANKS = 13, SEEDS = 40 };

struct story {
    int culprit, aborts;
    uint64_t seed;
    char told[MOST_RANKS][400]; /* what each has heard */
};

static struct weft_run *exchange_run(struct weft_context *context, struct weft_object *object)
{
    struct weft_template_params params;
    struct weft_run_config config;
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    weft_template_params_init(&params);
    params.algo = "linear"; /* with everybody */
    params.count = 1;
    OK(weft_template_build("alltoall", weft_context_rank(context), weft_context_size(context),
                           &params, &schedule));
    OK(weft_schedule_commit(schedule, &plan));
    weft_run_config_init(&config);
    config.object = object;
    OK(weft_run_create(&run, context, plan, &config));
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return run;
}

/* All ranks wait for all, until one of them fails. */
static int live(struct weft_context *root, void *user)
{
    struct story *story = user;
    const int rank = weft_context_rank(root);
    struct weft_context *context = NULL; /* which can be left */
    float send[MOST_RANKS] = {0}, recv[MOST_RANKS];
    struct weft_object *object = NULL;
    int status = WEFT_OK;
    OK(weft_context_split(root, 0, rank, &context));
    OK(weft_object_create(&object, context, NULL));
    struct weft_run *run = exchange_run(context, object);
    OK(weft_run_bind_name(run, "send", send, (size_t)weft_context_size(context), WEFT_F32));
    OK(weft_run_bind_name(run, "recv", recv, (size_t)weft_context_size(context), WEFT_F32));
    for (int step = 0; !status; step++) {
        if (rank == story->culprit && step == 3) {
            OK(story->aborts ? weft_context_abort(context, WEFT_ERR_IO, "no disk")
                             : weft_object_fail(object, WEFT_ERR_IO, "no disk"));
        }
        status = weft_run_execute(run);
    }
    snprintf(story->told[rank], sizeof story->told[rank], "%s", weft_error_text());
    CHECK(status == (rank == story->culprit ? WEFT_ERR_IO : WEFT_ERR_PEER));
    weft_run_destroy(run);
    weft_object_destroy(object);
    OK(weft_context_destroy(context));
    return WEFT_OK;
}

Test(object_news, who_has_failed_is_named_though_others_have_left)
{
    for (int size = 2; size <= MOST_RANKS; size++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct weft_virtual_config config = with_delays(seed, 20000, 0.1, 300000);
            struct story story = {.culprit = (int)(seed % (uint64_t)size),
                                  .aborts = (int)(seed / 2 % 2),
                                  .seed = seed};
            char name[16];
            snprintf(name, sizeof name, "rank %d", story.culprit);
            weft_virtual_run(size, &config, live, &story);
            for (int r = 0; r < size; r++) {
                cr_assert(strstr(story.told[r], "no disk"), "P=%d seed %d: rank %d: %s", size,
                          (int)seed, r, story.told[r]);
                cr_assert(r == story.culprit || strstr(story.told[r], name),
                          "P=%d seed %d: rank %d: %s", size, (int)seed, r, story.told[r]);
            }
        }
}
