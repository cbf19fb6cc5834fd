/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ that goes on, on virtual ranks: from checkpoints in every step of every phase, bit for
 * bit; on fewer ranks; after deaths; after deadlines; and with every allocation failing in turn.
 */
#include <criterion/criterion.h>

#include "gradiveq_job.h"
#include "runtime/base/alloc.h"

enum { MOST = 8, STEPS = JOB_STEPS, MOST_CALLS = 20000 };

/* ---- checkpoints ---- */

Test(gradiveq_again, checkpoints_in_every_step)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 5; i++) {
        struct weft_virtual_config config = with_seed(3);
        OK(weft_virtual_run(sizes[i], &config, job_check_restarts, NULL));
    }
}

/* ---- other ranks, other settings ---- */

struct move {
    uint64_t steps;
    int from, to;
    size_t left, slice; /* K before and after */
    weft_gradiveq_order_t order;
    struct kept *kept[MOST];
};

static int leave_state(struct weft_context *context, void *user)
{
    struct move *move = user;
    struct job job;
    job_init(&job, context);
    job.gradiveq.slice = move->left;
    OK(job_create(&job));
    for (uint64_t step = 0; step < move->steps; step++)
        job_step(&job, step, 0);
    move->kept[job.rank] = job_keep(&job);
    return weft_compressed_average_destroy(job.average);
}

static int take_state(struct weft_context *context, void *user)
{
    const struct move *move = user;
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    struct job job;
    job_init(&job, context);
    job.config.state = &move->kept[job.rank]->state;
    job.gradiveq.slice = move->slice;
    job.gradiveq.order = move->order;
    OK(job_create(&job));
    job.config.state = NULL;
    for (uint64_t step = move->steps; step < move->steps + 10; step++) {
        uint64_t sampled = move->steps < 2 ? 2 : move->steps;
        result = job_step(&job, step, 0);
        CHECK(result.phase == (step < 2             ? WEFT_COMPRESSED_WARMUP
                               : step < sampled + 4 ? WEFT_COMPRESSED_SAMPLING
                               : step < sampled + 9 ? WEFT_COMPRESSED_COMPRESSED
                                                    : WEFT_COMPRESSED_SAMPLING));
        CHECK(move->slice || job_error(&job, step, 0) < 1e-4);
    }
    return weft_compressed_average_destroy(job.average);
}

static void move_state(const struct move *how)
{
    for (uint64_t steps = 0; steps < 14; steps++) {
        struct weft_virtual_config config = with_seed(5);
        struct move move = *how;
        move.steps = steps;
        OK(weft_virtual_run(move.from, &config, leave_state, &move));
        OK(weft_virtual_run(move.to, &config, take_state, &move));
        for (int r = 0; r < MOST; r++)
            job_forget(move.kept[r]);
    }
}

Test(gradiveq_again, fewer_ranks_sample_anew)
{
    move_state(&(struct move){.from = 3, .to = 2});
    move_state(&(struct move){.from = 5, .to = 1});
}

Test(gradiveq_again, other_slices_sample_anew)
{
    move_state(&(struct move){.from = 2, .to = 2, .slice = 30});
}

/* Slices are as long as they were, of other elements. */
Test(gradiveq_again, another_order_samples_anew)
{
    move_state(&(struct move){
        .from = 2, .to = 2, .left = 36, .slice = 36, .order = WEFT_SLICES_OF_FILTERS});
}

/* ---- failures of which nobody dies ---- */

struct failure {
    uint64_t step;
    int posts; /* 1: who fails it has begun the step */
};

static int fail_and_go_on(struct weft_context *context, void *user)
{
    const struct failure *failure = user;
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    struct job job;
    job_init(&job, context);
    OK(job_create(&job));
    int status = WEFT_OK;
    while (!status) { /* the step may end here, and the next one begin */
        uint64_t step = weft_compressed_average_next(job.average);
        int fails = step == failure->step && job.rank == job.size - 1;
        job_fill(&job, step, 0);
        if (fails && failure->posts)
            status = weft_compressed_average_post(job.average);
        if (fails) {
            weft_context_sleep(context, 1000);
            OK(weft_compressed_average_fail(job.average, WEFT_ERR_COMPUTE, "enough"));
        }
        if (!status)
            status = fails && failure->posts ? weft_compressed_average_wait(job.average, &result)
                                             : weft_compressed_average_step(job.average, &result);
    }
    struct kept *kept = job_keep(&job);
    struct weft_compressed_average *before = job.average;
    CHECK(kept->state.failed);
    job.average = NULL;
    job.config.state = &kept->state;
    OK(job_create(&job));
    job.config.state = NULL;
    weft_compressed_average_destroy(before);
    job_forget(kept);
    CHECK(weft_compressed_average_next(job.average) <= failure->step + 1);
    int compressed = 0;
    for (uint64_t n = 0; n < 14; n++) {
        uint64_t step = weft_compressed_average_next(job.average);
        result = job_step(&job, step, 0);
        compressed += result.phase == WEFT_COMPRESSED_COMPRESSED;
        CHECK(job_error(&job, step, 0) < 1e-4);
        job_check_same(&job, job.data, sizeof job.data);
    }
    CHECK(compressed >= 4);
    return weft_compressed_average_destroy(job.average);
}

Test(gradiveq_again, steps_that_have_failed_are_no_samples)
{
    for (uint64_t step = 0; step < 16; step++)
        for (int posts = 0; posts < 2; posts++)
            for (int ranks = 1; ranks <= 4; ranks++) {
                struct weft_virtual_config config = with_seed(step);
                struct failure failure = {.step = step, .posts = posts};
                OK(weft_virtual_run(ranks, &config, fail_and_go_on, &failure));
            }
}

/* ---- states that are none ---- */

static void refuse(struct job *job, struct weft_compressed_average_state *state)
{
    job->config.state = state;
    CHECK_STATUS(job_create(job), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->state");
    CHECK(!job->average);
}

Test(gradiveq_again, states_that_are_none)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct job job;
    job_init(&job, alone.context);
    OK(job_create(&job));
    for (uint64_t step = 0; step < 8; step++)
        job_step(&job, step, 0);
    struct kept *kept = job_keep(&job);
    struct weft_compressed_average_state *state = &kept->state;
    size_t words = state->word_count, numbers = state->number_count;
    OK(weft_compressed_average_destroy(job.average));
    job.average = NULL;
    for (size_t count = 1; count < words; count++) {
        state->word_count = count;
        refuse(&job, state);
    }
    state->word_count = words;
    for (size_t i = 0; i < 2; i++) {
        state->number_count = i ? numbers - 1 : 0;
        refuse(&job, state);
    }
    state->number_count = numbers;
    float number = kept->numbers[3];
    kept->numbers[3] = NAN;
    refuse(&job, state);
    kept->numbers[3] = number;
    for (size_t i = 0; i < 4; i++) {
        static const float wrong[] = {1000, 1.5F, -1, 1}; /* d of the first group */
        kept->numbers[0] = wrong[i];
        refuse(&job, state);
    }
    kept->numbers[0] = JOB_RANK;
    kept->numbers[1] = 1.5F; /* its loss */
    refuse(&job, state);
    kept->numbers[1] = 0;
    OK(job_create(&job));
    OK(weft_compressed_average_destroy(job.average));
    job_forget(kept);
    alone_destroy(&alone);
}

/* ---- deadlines ---- */

static int be_late(struct weft_context *context, void *user)
{
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    uint64_t late = 0;
    struct job job;
    (void)user;
    job_init(&job, context);
    job.config.deadline_ns = 20000;
    OK(job_create(&job));
    for (uint64_t step = 0; step < STEPS; step++) {
        if (job.rank == 1)
            weft_context_sleep(context, 30000);
        job_fill(&job, step, 0);
        int status = weft_compressed_average_step(job.average, &result);
        for (; status == WEFT_ERR_TIMEOUT; late++) {
            CHECK(weft_compressed_average_next(job.average) == step);
            CHECK_STATUS(weft_compressed_average_post(job.average), WEFT_ERR_STATE);
            status = weft_compressed_average_wait(job.average, &result);
        }
        OK(status);
        CHECK(result.step == step && job_error(&job, step, 0) < 1e-4);
        job_check_same(&job, job.data, sizeof job.data);
    }
    *(uint64_t *)user += late;
    return weft_compressed_average_destroy(job.average);
}

Test(gradiveq_again, late_ranks)
{
    uint64_t late = 0;
    for (uint64_t seed = 1; seed <= SWEPT(20, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 10000, 0.2, 100000);
        OK(weft_virtual_run(3, &config, be_late, &late));
    }
    cr_assert_gt(late, SWEPT(1000, 200));
}

/* ---- without payloads ---- */

/* Nobody knows the sums, so nothing is projected; but ranks agree on phases. */
static int go_without(struct weft_context *context, void *user)
{
    struct job job;
    (void)user;
    job_init(&job, context);
    job.gradiveq.loss_bound = 0.1;
    OK(job_create(&job));
    for (uint64_t step = 0; step < STEPS; step++) {
        struct weft_compressed_average_result result = job_step(&job, step, 1);
        uint64_t at = (step + 7) % 9;
        CHECK(result.phase == (step < 2 ? WEFT_COMPRESSED_WARMUP
                               : at < 4 ? WEFT_COMPRESSED_SAMPLING
                                        : WEFT_COMPRESSED_COMPRESSED));
    }
    return weft_compressed_average_destroy(job.average);
}

Test(gradiveq_again, without_payloads)
{
    for (int ranks = 1; ranks <= 5; ranks++) {
        struct weft_virtual_config config = with_seed(1);
        config.no_payload = 1;
        OK(weft_virtual_run(ranks, &config, go_without, NULL));
    }
}

/* ---- deaths ---- */

struct story {
    uint64_t seed;
    int ranks;
    uint64_t moment_ns[MOST]; /* when a rank dies; 0: never */
    int done, died;
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

static int go_to_the_end(struct job *job, uint64_t *random)
{
    int status = WEFT_OK;
    while (!status && weft_compressed_average_next(job->average) < STEPS) {
        uint64_t step = weft_compressed_average_next(job->average);
        weft_context_sleep(job->context, 1 + draw(random, 100000));
        job_fill(job, step, 0);
        status = weft_compressed_average_step(job->average, NULL);
        CHECK(status || job_error(job, step, 0) < 1e-4);
    }
    return status;
}

/* On those that are left, from their states. Ranks whose last step has ended elsewhere take its sum
 * as done. */
static int go_on(struct job *job, struct weft_context **context)
{
    int status = WEFT_ERR_PEER;
    struct weft_compressed_average *const before = job->average;
    struct kept *kept = NULL;
    job->average = NULL;
    while (status == WEFT_ERR_PEER) {
        status = weft_context_shrink(*context, context);
        if (!status && before && !kept) {
            job->average = before;
            kept = job_keep(job);
            job->average = NULL;
            CHECK(kept->state.failed);
        }
        if (!status) {
            struct weft_compressed_average_state *state = kept ? &kept->state : NULL;
            job_init(job, *context);
            job->config.state = state;
            status = job_create(job);
        }
    }
    job->config.state = NULL;
    weft_compressed_average_destroy(before);
    job_forget(kept);
    return status;
}

static int enter(struct weft_context *context, void *user)
{
    struct story *story = user;
    const int rank = weft_context_rank(context);
    uint64_t random = story->seed * 100 + (uint64_t)rank;
    struct job job;
    job_init(&job, context);
    int status = job_create(&job);
    for (;;) {
        if (!status)
            status = go_to_the_end(&job, &random);
        if (status != WEFT_ERR_PEER)
            break;
        story->died++;
        status = go_on(&job, &context);
    }
    CHECK(!status || story->moment_ns[rank]);
    story->done += !status;
    weft_compressed_average_destroy(job.average);
    return WEFT_OK;
}

static void tell(uint64_t seed, int *died)
{
    uint64_t random = seed;
    struct story story = {.seed = seed, .ranks = 2 + (int)draw(&random, 4)};
    struct weft_virtual_config config = with_delays(seed, 30000, 0.1, 300000);
    struct weft_virtual_fault faults[MOST];
    for (int r = 1; r < story.ranks; r++) /* rank 0 is left */
        if (draw(&random, 2)) {
            story.moment_ns[r] = 1 + draw(&random, 8000000);
            faults[config.fault_count++] = (struct weft_virtual_fault){
                .rank = r, .at_ns = story.moment_ns[r], .for_ns = WEFT_NEVER};
        }
    config.faults = faults;
    config.deaths = 1;
    config.death_ns = 50000;
    OK(weft_virtual_run(story.ranks, &config, enter, &story));
    cr_assert_geq(story.done, 1, "seed %llu", (unsigned long long)seed);
    *died += story.died > 0;
}

Test(gradiveq_again, deaths, .timeout = 140)
{
    int died = 0;
    for (uint64_t seed = 1; seed <= SWEPT(200, 40); seed++)
        tell(seed, &died);
    cr_assert_gt(died, SWEPT(60, 12));
}

/* ---- memory ---- */

struct life {
    long failing; /* the call that fails */
    int creations, ended, failed;
};

static int live_without_memory(struct weft_context *context, void *user)
{
    struct life *life = user;
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    struct job job;
    job_init(&job, context);
    job.gradiveq.warmup_steps = 1;
    job.gradiveq.sample_steps = 2;
    job.gradiveq.compressed_steps = 2;
    job.gradiveq.uncompressed = WEFT_UNCOMPRESSED_QSGD;
    job.config.residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
    int status = job_create(&job);
    life->creations += !status;
    for (uint64_t step = 0; step < 7 && !status; step++) {
        job_fill(&job, step, 0);
        status = weft_compressed_average_step(job.average, NULL);
        if (!status && step == 3) {
            int got = weft_compressed_average_get_state(job.average, &state);
            if (got == WEFT_ERR_MEMORY) /* that leaves it as it was */
                got = weft_compressed_average_get_state(job.average, &state);
            CHECK(got == WEFT_OK);
        }
    }
    if (status) {
        CHECK(status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER);
        CHECK(strlen(weft_error_text()) > 0);
        life->failed++;
        status = job.average ? weft_compressed_average_get_state(job.average, &state) : WEFT_OK;
        if (status == WEFT_ERR_MEMORY)
            status = weft_compressed_average_get_state(job.average, &state);
        CHECK(status == WEFT_OK);
    }
    weft_compressed_average_destroy(job.average);
    life->ended++;
    return WEFT_OK;
}

Test(gradiveq_again, every_allocation_failing, .timeout = 140)
{
    enum { RANKS = 3 };
    int broken = 0, created = 0;
    long call = 1;
    for (; call < MOST_CALLS; call += SWEPT(1, 4)) {
        struct weft_virtual_config config = with_seed(1);
        struct life life = {.failing = call};
        config.limit_ns = UINT64_C(60000000000);
        atomic_store(&weft__alloc_countdown, call);
        int status = weft_virtual_run(RANKS, &config, live_without_memory, &life);
        long left = atomic_load(&weft__alloc_countdown);
        atomic_store(&weft__alloc_countdown, -1);
        if (left > 0)
            break;
        if (status) { /* there were no ranks, or a rank had no context */
            CHECK(status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER);
            continue;
        }
        CHECK(life.ended == RANKS);
        broken += life.failed > 0;
        created += life.creations == RANKS && life.failed > 0;
    }
    cr_assert_lt(call, MOST_CALLS);
    cr_assert_gt(broken, SWEPT(50, 12));
    cr_assert_gt(created, SWEPT(10, 2), "%d of %ld", created, call);
}
