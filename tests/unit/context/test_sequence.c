/* SPDX-License-Identifier: BSD-3-Clause */
/* The sequence of a context: runs of any plans, step by step, whatever a rank makes and keeps. */
#include <criterion/criterion.h>

#include "parts.h"

static struct weft_plan *plan_of(struct weft_context *context, const char *name, size_t count)
{
    struct weft_template_params params;
    struct weft_plan *plan = NULL;
    weft_template_params_init(&params);
    params.count = count;
    params.dtype = WEFT_I64;
    OK(weft_template_create_plan(&plan, context, name, &params));
    return plan;
}

static struct weft_run *step_run(struct weft_context *context, struct weft_plan *plan)
{
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.sequence = 1;
    return make_run(context, plan, &config);
}

static void bind_allreduce(struct weft_run *run, int64_t *in, int64_t *out)
{
    OK(bind_name(run, "send", in));
    OK(bind_name(run, "recv", out));
}

/* ---- steps ---- */

/* Rank 0 makes a run for every step, rank 1 keeps them, rank 2 makes all at once, backwards. */
static int mix(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_run *kept[3] = {NULL, NULL, NULL};
    int64_t in[3] = {rank, rank + 1, rank + 2}, out[3];
    (void)user;
    for (int k = 2; rank == 2 && k >= 0; k--) {
        kept[k] = step_run(context, plan_of(context, "allreduce", (size_t)k + 1));
        bind_allreduce(kept[k], in, out);
    }
    for (uint64_t step = 0; step < 30; step++) {
        size_t k = step * step % 3;
        CHECK(weft_sequence_next(context) == step);
        if (!kept[k]) {
            kept[k] = step_run(context, plan_of(context, "allreduce", k + 1));
            bind_allreduce(kept[k], in, out);
        }
        OK(weft_run_execute(kept[k]));
        CHECK(weft_run_version(kept[k]) == step);
        for (int64_t i = 0; i <= (int64_t)k; i++)
            CHECK(out[i] == i * size + (int64_t)size * (size - 1) / 2);
        if (rank == 0) {
            weft_run_destroy(kept[k]);
            kept[k] = NULL;
        }
    }
    still_works(context); /* no step was an object */
    for (int k = 0; k < 3; k++)
        weft_run_destroy(kept[k]);
    still_works(context);
    return WEFT_OK;
}

Test(sequence, a_step_may_be_any_run_on_any_rank)
{
    for (int size = 1; size <= 8; size++) {
        OK(local_run(size, WEFT_PROGRESS_CALLER, mix, NULL));
        OK(local_run(size, WEFT_PROGRESS_HELPER, mix, NULL));
    }
}

Test(sequence, on_virtual_ranks_with_delays)
{
    for (uint64_t seed = 0; seed < SWEPT(40, 8); seed++) {
        struct weft_virtual_config config = with_delays(seed, 30000, 0.2, 400000);
        OK(weft_virtual_run(1 + (int)(seed % 9), &config, mix, NULL));
    }
}

static void start_two(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t in = 1, out = 0;
    struct weft_run *held = step_run(context, chain_from(0, rank, ranks->size, "held", NULL));
    struct weft_run *other = step_run(context, plan_of(context, "allreduce", 1));
    OK(bind_slot(held, 0, &in));
    bind_allreduce(other, &in, &out);
    OK(weft_run_start(held));
    CHECK(weft_sequence_next(context) == 1);
    if (rank == 0) { /* it is held until its event fires */
        CHECK_STATUS(weft_run_start(other), WEFT_ERR_STATE);
        CHECK_TEXT(weft_error_text(), " of the same sequence is active");
        if (!ranks->config.progress) /* a helper may be driving: then its name is not told */
            CHECK_TEXT(weft_error_text(), "the run of `held`,");
        CHECK_STATUS(weft_sequence_fail(context, WEFT_ERR_IO, "no"), WEFT_ERR_STATE);
        CHECK_TEXT(weft_error_text(), "weft_sequence_fail: the run");
        OK(weft_run_fire(held, 0));
    }
    OK(weft_run_wait(held, WEFT_NEVER));
    CHECK_STATUS(weft_run_start_version(other, 0), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "argument `version` is 0, expected 1");
    CHECK_STATUS(weft_run_quit(other), WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), "is one of the sequence");
    OK(weft_run_execute(other));
    CHECK(out == ranks->size && weft_run_version(other) == 1);
    OK(weft_run_start_version(other, 9)); /* all skip the same */
    OK(weft_run_wait(other, WEFT_NEVER));
    CHECK(weft_sequence_next(context) == 10);
    weft_run_destroy(held);
    weft_run_destroy(other);
}

Test(sequence, one_run_at_a_time)
{
    ranks_run_each_progress(start_two, 3, NULL);
}

/* ---- other threads ---- */

enum { STEPS = 200 };

struct beside {
    struct weft_context *context;
    struct weft_run *steps[2];
    atomic_int over;
};

/* Runs that are no steps come and go: who frees one looks for it in the sequence. */
static void *make_others(void *user)
{
    struct beside *beside = user;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.local_only = 1;
    do {
        struct weft_schedule *s = new_schedule(0, 1);
        weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
        weft_run_destroy(make_run(beside->context, commit(s), &config));
        sched_yield();
    } while (!atomic_load(&beside->over));
    return NULL;
}

static void *look(void *user)
{
    struct beside *beside = user;
    do {
        OK(weft_context_dump_state(beside->context, "/dev/null", "looked at"));
        for (int i = 0; i < 2; i++) {
            char *text = NULL;
            OK(weft_run_report(beside->steps[i], &text));
            CHECK_TEXT(text, ", version ");
            weft_memory_free(text);
        }
        CHECK(weft_sequence_next(beside->context) <= STEPS);
        sched_yield();
    } while (!atomic_load(&beside->over));
    return NULL;
}

Test(sequence, beside_threads_that_make_other_runs_and_look)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct beside beside = {.context = alone.context};
    int64_t in = 3, out = 0;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        beside.steps[i] = step_run(alone.context, plan_of(alone.context, "allreduce", 1));
        bind_allreduce(beside.steps[i], &in, &out);
        OK(weft_run_execute(beside.steps[i]));
    }
    CHECK(pthread_create(&threads[0], NULL, make_others, &beside) == 0);
    CHECK(pthread_create(&threads[1], NULL, look, &beside) == 0);
    for (int step = 2; step < STEPS; step++)
        OK(weft_run_execute(beside.steps[step % 3 == 0]));
    atomic_store(&beside.over, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(out == 3 && weft_sequence_next(alone.context) == STEPS);
    for (int i = 0; i < 2; i++)
        weft_run_destroy(beside.steps[i]);
    alone_destroy(&alone);
}

/* ---- failing ---- */

static struct weft_run *sum_run(struct weft_context *context, int64_t *in, int64_t *out)
{
    struct weft_run *run = step_run(context, plan_of(context, "allreduce", 1));
    bind_allreduce(run, in, out);
    return run;
}

/* One rank after the other has nothing for a step. */
static int give_up_in_turn(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    int64_t in = 1, out = 0;
    struct weft_run *run = sum_run(context, &in, &out);
    (void)user;
    for (int culprit = 0; culprit < size; culprit++) {
        char text[64];
        snprintf(text, sizeof text, "rank %d failed: the dog ate it", culprit);
        if (rank == culprit) {
            OK(weft_sequence_fail(context, WEFT_ERR_IO, "the dog ate it"));
        } else {
            CHECK_STATUS(weft_run_execute(run), WEFT_ERR_PEER);
            CHECK_TEXT(weft_error_text(), text);
            while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
                ;
        }
        out = 0;
        if (culprit % 2)
            OK(weft_run_execute(run));
        CHECK(out == (culprit % 2 ? size : 0));
    }
    OK(weft_run_execute(run));
    CHECK(out == size);
    weft_run_destroy(run);
    still_works(context);
    return WEFT_OK;
}

Test(sequence, a_rank_may_fail_a_step_and_the_next_is_as_good_as_ever)
{
    for (int size = 1; size <= 9; size++) {
        OK(local_run(size, WEFT_PROGRESS_CALLER, give_up_in_turn, NULL));
        OK(local_run(size, WEFT_PROGRESS_HELPER, give_up_in_turn, NULL));
    }
}

Test(sequence, the_same_on_virtual_ranks)
{
    for (uint64_t seed = 0; seed < SWEPT(60, 12); seed++) {
        struct weft_virtual_config config = with_delays(seed, 30000, 0.2, 400000);
        OK(weft_virtual_run(1 + (int)(seed % 12), &config, give_up_in_turn, NULL));
    }
}

static void give_up_before_they_come(struct ranks *ranks, struct weft_context *context, int rank)
{
    char text[1200];
    int64_t in = 1, out = 0;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    if (rank == 1)
        for (int i = 0; i < 3; i++)
            OK(weft_sequence_fail(context, WEFT_ERR_MEMORY, i == 2 ? text : NULL));
    ranks_meet(ranks);
    struct weft_run *run = sum_run(context, &in, &out);
    for (int i = 0; rank == 0 && i < 3; i++) {
        CHECK_STATUS(weft_run_execute(run), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), i == 2 ? "xxxxxx" : weft_status_text(WEFT_ERR_MEMORY));
    }
    OK(weft_run_execute(run));
    CHECK(out == 2);
    weft_run_destroy(run);
}

Test(sequence, a_step_that_has_failed_before_a_rank_comes_to_it)
{
    ranks_run_each_progress(give_up_before_they_come, 2, NULL);
}

/* All fail at once, each hears of the others: nothing of that is left for later steps. */
static void all_give_up(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t in = 1, out = 0;
    struct weft_run *run = sum_run(context, &in, &out);
    for (int i = 0; i < 20; i++) {
        OK(weft_sequence_fail(context, WEFT_ERR_IO, "all"));
        if (i % 3 == rank % 3)
            sched_yield();
        OK(weft_run_execute(run));
        CHECK(out == ranks->size);
    }
    weft_run_destroy(run);
}

Test(sequence, all_may_fail_the_same_step)
{
    ranks_run_each_progress(all_give_up, 5, NULL);
}

/* ---- in the callback of the step before ---- */

struct follow {
    struct weft_context *context;
    struct weft_run *next;
};

static void give_up_and_go_on(void *user, struct weft_run *run, int status)
{
    struct follow *follow = user;
    (void)run;
    OK(status);
    OK(weft_sequence_fail(follow->context, WEFT_ERR_IO, "by a callback"));
    OK(weft_sequence_fail(follow->context, WEFT_ERR_IO, "by a callback"));
    OK(weft_run_start(follow->next));
}

/* The others take part in all four steps, rank 1 in the first and the last. */
static int give_up_in_a_callback(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    int64_t in = 1, out = 0, last = 0;
    struct follow follow = {context, sum_run(context, &in, &last)};
    struct weft_run_config config;
    (void)user;
    weft_run_config_init(&config);
    config.sequence = 1;
    config.ended = rank == 1 ? give_up_and_go_on : NULL;
    config.user = &follow;
    for (int round = 0; round < 10; round++) {
        struct weft_run *first = make_run(context, plan_of(context, "allreduce", 1), &config);
        bind_allreduce(first, &in, &out);
        OK(weft_run_execute(first));
        for (int i = 0; rank != 1 && i < 2; i++) {
            struct weft_run *run = sum_run(context, &in, &out);
            CHECK_STATUS(weft_run_execute(run), size == 1 ? WEFT_OK : WEFT_ERR_PEER);
            CHECK(size == 1 || strstr(weft_error_text(), "rank 1 failed: by a callback"));
            weft_run_destroy(run);
        }
        OK(rank == 1 ? weft_run_wait(follow.next, WEFT_NEVER) : weft_run_execute(follow.next));
        CHECK(last == size && weft_sequence_next(context) == 4 * (uint64_t)round + 4);
        weft_run_destroy(first);
    }
    weft_run_destroy(follow.next);
    still_works(context);
    return WEFT_OK;
}

Test(sequence, a_callback_may_fail_the_step_to_come)
{
    for (int size = 1; size <= 5; size++) {
        OK(local_run(size, WEFT_PROGRESS_CALLER, give_up_in_a_callback, NULL));
        OK(local_run(size, WEFT_PROGRESS_HELPER, give_up_in_a_callback, NULL));
    }
    for (uint64_t seed = 0; seed < SWEPT(20, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 30000, 0.2, 400000);
        OK(weft_virtual_run(1 + (int)(seed % 6), &config, give_up_in_a_callback, NULL));
    }
}

static void cancel_one(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t in = 1, out = 0;
    struct weft_run *held = step_run(context, chain_from(0, rank, ranks->size, "held", NULL));
    OK(bind_slot(held, 0, &in));
    OK(weft_run_start(held));
    if (rank == 1)
        OK(weft_run_cancel(held));
    int status = weft_run_wait(held, WEFT_NEVER);
    CHECK(status == (rank == 1 ? WEFT_ERR_CANCELLED : WEFT_ERR_PEER));
    if (rank == 2)
        weft_run_destroy(held); /* what is left of the step goes with it */
    struct weft_run *run = sum_run(context, &in, &out);
    OK(weft_run_execute(run));
    CHECK(out == ranks->size);
    if (rank != 2)
        weft_run_destroy(held);
    weft_run_destroy(run);
}

Test(sequence, a_run_that_fails_fails_its_step_alone)
{
    ranks_run_each_progress(cancel_one, 3, NULL);
}

static void destroy_while_active(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t in = 1, out = 0;
    struct weft_run *held = step_run(context, chain_from(0, rank, ranks->size, "held", NULL));
    OK(bind_slot(held, 0, &in));
    OK(weft_run_start(held));
    if (rank != 0)
        CHECK_STATUS(weft_run_wait(held, WEFT_NEVER), WEFT_ERR_PEER);
    weft_run_destroy(held);
    CHECK(weft_sequence_next(context) == 1);
    struct weft_run *run = sum_run(context, &in, &out);
    OK(weft_run_execute(run));
    CHECK(out == ranks->size);
    if (rank == 0) /* others go with the context */
        weft_run_destroy(run);
}

Test(sequence, runs_may_go_at_any_time)
{
    ranks_run_each_progress(destroy_while_active, 3, NULL);
}

/* ---- misuse ---- */

static void refuse(struct weft_context *context, struct weft_plan *plan,
                   const struct weft_run_config *config, const char *text)
{
    struct weft_run *run = NULL;
    cr_expect_eq(weft_run_create(&run, context, plan, config), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), text), "%s", weft_error_text());
    cr_expect_null(run);
}

static void listen(void *user, struct weft_run *run, int from, uint32_t channel, uint64_t version)
{
    (void)user, (void)run, (void)from, (void)channel, (void)version;
}

Test(sequence, what_is_no_step_is_refused)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_object *object = NULL;
    struct weft_run_config config, only;
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, 4);
    struct weft_plan *hears = commit(s);
    struct weft_plan *plan = plan_of(alone.context, "allreduce", 1);
    OK(weft_object_create(&object, alone.context, NULL));
    weft_run_config_init(&only);
    only.sequence = 1;
    config = only;
    config.object = object;
    refuse(alone.context, plan, &config, "expected config->object not to be");
    config = only;
    config.local_only = 1;
    refuse(alone.context, plan, &config, "expected config->local_only not to be");
    config = only;
    config.unordered = 1;
    refuse(alone.context, plan, &config, "expected config->unordered not to be");
    config = only;
    config.signalled = listen;
    refuse(alone.context, plan, &config, "expected config->signalled not to be");
    refuse(alone.context, hears, &only, "has channel 4");
    cr_expect_eq(weft_sequence_fail(NULL, WEFT_ERR_IO, ""), WEFT_ERR_INVALID);
    cr_expect_eq(weft_sequence_fail(alone.context, WEFT_OK, ""), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "argument `status` is 0"));
    cr_expect_eq(weft_sequence_next(NULL), 0);
    cr_expect_eq(weft_sequence_next(alone.context), 0);
    weft_object_destroy(object);
    weft_plan_destroy(plan);
    weft_plan_destroy(hears);
    alone_destroy(&alone);
}

/* ---- reports ---- */

static void report(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t in = 1;
    char *text = NULL;
    struct weft_run *held = step_run(context, chain_from(0, rank, ranks->size, "held", NULL));
    OK(bind_slot(held, 0, &in));
    OK(weft_run_start(held));
    OK(weft_run_report(held, &text));
    CHECK_TEXT(text, "sequence");
    weft_memory_free(text);
    ranks_meet(ranks);
    if (rank == 0)
        OK(weft_run_fire(held, 0));
    OK(weft_run_wait(held, WEFT_NEVER));
    weft_run_destroy(held);
}

Test(sequence, reports_call_it_so)
{
    ranks_run_once(report, 2, NULL);
}
