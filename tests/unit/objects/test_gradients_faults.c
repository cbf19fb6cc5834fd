/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: layers that are announced twice, never, too late or by several threads at once,
 * ranks that are late, and what failures say. */
#include <criterion/criterion.h>

#include "layers_job.h"

enum { THREADS = 4, STEPS = 6 };

#define SECOND UINT64_C(1000000000)

/* ---- announcements that are refused ---- */

static void refused(const struct job *job, int status, const char *layer, const char *step)
{
    (void)job;
    CHECK_STATUS(status, WEFT_ERR_STATE);
    CHECK_TEXT(weft_error_text(), layer);
    CHECK_TEXT(weft_error_text(), step);
}

static int announce_twice(struct weft_context *context, void *user)
{
    struct job job;
    (void)user;
    job_init(&job, context);
    OK(job_create(&job));
    job_take(&job, 0);
    for (size_t l = JOB_LAYERS; l > 0; l--) {
        char layer[16];
        snprintf(layer, sizeof layer, "layer %zu", l - 1);
        OK(job_announce(&job, 1, l - 1));
        refused(&job, weft_gradients_ready(job.gradients, l - 1), layer, "step 1");
        if (l > 1)
            refused(&job, weft_gradients_absent(job.gradients, l - 1), layer, "step 1");
    }
    OK(weft_gradients_wait_all(job.gradients, NULL));
    job_check_all(&job, 1);
    job_take(&job, 2);
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

Test(gradients_faults, a_layer_announced_twice_is_refused)
{
    for (uint64_t seed = 1; seed <= SWEPT(20, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 2000, 0.1, 100000);
        OK(weft_virtual_run(1 + (int)(seed % 5), &config, announce_twice, NULL));
    }
}

static int announce_never(struct weft_context *context, void *user)
{
    struct job job;
    (void)user;
    job_init(&job, context);
    OK(job_create(&job));
    CHECK_STATUS(weft_gradients_wait_all(job.gradients, NULL), WEFT_ERR_STATE);
    job_take(&job, 0);
    for (size_t l = 0; l < JOB_LAYERS; l++)
        if (l != 1)
            OK(job_announce(&job, 1, l));
    refused(&job, weft_gradients_wait_all(job.gradients, NULL), "1", "step 1");
    refused(&job, weft_gradients_wait(job.gradients, 1), "layer 1", "step 1");
    OK(job_announce(&job, 1, 1)); /* nothing has changed */
    OK(weft_gradients_wait_all(job.gradients, NULL));
    job_check_all(&job, 1);
    CHECK_STATUS(weft_gradients_ready(job.gradients, JOB_LAYERS), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_gradients_wait(job.gradients, JOB_LAYERS), WEFT_ERR_INVALID);
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

Test(gradients_faults, a_layer_never_announced_is_named)
{
    struct weft_virtual_config config = with_seed(1);
    for (int size = 1; size <= 4; size++)
        OK(weft_virtual_run(size, &config, announce_never, NULL));
}

/* Rank 0 says nothing of layer 1, and of all of them in step 2 that one is absent. */
static int leave_out(struct weft_context *context, void *user)
{
    struct job job;
    struct weft_gradients_result result = {.struct_size = sizeof result};
    (void)user;
    job_init(&job, context);
    job.config.missing = WEFT_GRADIENTS_MISSING_ZERO;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 3; step++) {
        for (size_t l = JOB_LAYERS; l > 0; l--)
            if (job.rank || l - 1 != step)
                OK(job_announce(&job, step, l - 1));
        OK(weft_gradients_wait_all(job.gradients, &result));
        CHECK(result.absent == (job.rank == 0));
        for (size_t l = 0; l < JOB_LAYERS; l++)
            job_check(&job, step, l, l == step ? 0 : -1);
    }
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

Test(gradients_faults, what_is_missing_may_count_as_zero)
{
    struct weft_virtual_config config = with_seed(2);
    for (int size = 1; size <= 4; size++)
        OK(weft_virtual_run(size, &config, leave_out, NULL));
}

static int announce_after_the_end(struct weft_context *context, void *user)
{
    struct job job;
    (void)user;
    job_init(&job, context);
    OK(job_create(&job));
    for (size_t l = JOB_LAYERS; l > 0; l--)
        OK(job_announce(&job, 0, l - 1));
    for (size_t l = 0; l < JOB_LAYERS; l++) { /* until all have been waited for */
        refused(&job, weft_gradients_ready(job.gradients, 3), "layer", "step 0");
        OK(weft_gradients_wait(job.gradients, l));
        job_check(&job, 0, l, -1);
    }
    CHECK(weft_gradients_next(job.gradients) == 1);
    job_take(&job, 1);
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

Test(gradients_faults, a_step_that_has_not_ended_takes_no_more)
{
    struct weft_virtual_config config = with_seed(3);
    for (int size = 1; size <= 4; size++)
        OK(weft_virtual_run(size, &config, announce_after_the_end, NULL));
}

/* ---- threads ---- */

struct thread {
    struct job *job;
    uint64_t step;
    int number;
    atomic_int *taken; /* by layer: by how many threads */
    pthread_t thread;
};

/* Every thread announces every layer; each is taken once. */
static void *announce_all(void *argument)
{
    struct thread *thread = argument;
    for (size_t i = 0; i < JOB_LAYERS; i++) {
        size_t layer = (i + (size_t)thread->number) % JOB_LAYERS;
        int status = weft_gradients_ready(thread->job->gradients, layer);
        CHECK(status == WEFT_OK || status == WEFT_ERR_STATE);
        atomic_fetch_add(&thread->taken[layer], status == WEFT_OK);
    }
    return NULL;
}

/* Every thread announces some layers and waits for all of them. */
static void *announce_some(void *argument)
{
    struct thread *thread = argument;
    for (size_t l = (size_t)thread->number; l < JOB_LAYERS; l += THREADS)
        OK(job_announce(thread->job, thread->step, l));
    for (size_t l = (size_t)thread->number; l < JOB_LAYERS; l += THREADS) {
        OK(weft_gradients_wait(thread->job->gradients, l));
        job_check(thread->job, thread->step, l, -1);
    }
    return NULL;
}

static void start_threads(struct job *job, uint64_t step, void *(*fn)(void *), atomic_int *taken)
{
    struct thread threads[THREADS];
    for (int t = 0; t < THREADS; t++) {
        threads[t] = (struct thread){.job = job, .step = step, .number = t, .taken = taken};
        CHECK(pthread_create(&threads[t].thread, NULL, fn, &threads[t]) == 0);
    }
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_join(threads[t].thread, NULL) == 0);
}

static void by_threads(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    const struct weft_sparse_average_config *sparse = ranks->user;
    (void)rank;
    job_init(&job, context);
    job.config.measure_steps = 1;
    job.config.check_steps = 1;
    if (sparse) {
        job.config.method = WEFT_GRADIENTS_SPARSE;
        job.config.sparse = sparse;
    }
    OK(job_create(&job));
    for (uint64_t step = 0; step < 60; step += 2) {
        atomic_int taken[JOB_LAYERS] = {0};
        for (size_t l = 0; l < JOB_LAYERS; l++)
            job_fill(&job, step, l);
        start_threads(&job, step, announce_all, taken);
        for (size_t l = 0; l < JOB_LAYERS; l++)
            CHECK(taken[l] == 1);
        OK(weft_gradients_wait_all(job.gradients, NULL));
        job_check_all(&job, step);
        start_threads(&job, step + 1, announce_some, NULL);
        job_check_all(&job, step + 1);
        CHECK(weft_gradients_next(job.gradients) == step + 2);
    }
    OK(weft_gradients_destroy(job.gradients));
}

Test(gradients_faults, threads_announce_each_layer_once)
{
    for (int size = 1; size <= 3; size++)
        ranks_run_each_progress(by_threads, size, NULL);
}

/* With everything selected sparse sums are dense ones. */
Test(gradients_faults, threads_announce_sparse_groups)
{
    struct weft_sparse_average_config sparse;
    weft_sparse_average_config_init(&sparse);
    sparse.method = WEFT_SPARSE_ALLGATHER;
    sparse.density = 1;
    for (int size = 1; size <= 3; size++)
        ranks_run_each_progress(by_threads, size, &sparse);
}

/* ---- the end of a step beside other threads ---- */

static void *announce_layers(void *argument)
{
    struct thread *thread = argument;
    for (size_t l = JOB_LAYERS; l > 0; l--) {
        int status = weft_gradients_ready(thread->job->gradients, l - 1);
        CHECK(status == WEFT_OK || status == WEFT_ERR_STATE); /* found missing before */
    }
    return NULL;
}

static void *wait_for_layers(void *argument)
{
    struct thread *thread = argument;
    for (size_t l = (size_t)thread->number; l < JOB_LAYERS; l += 2)
        OK(weft_gradients_wait(thread->job->gradients, l));
    return NULL;
}

/* Two threads wait for all layers, wait_all ends the step beside them: before, after or while they
 * do. It is told of this step, and makes no other one. */
static void end_beside_waits(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    struct weft_gradients_result result = {.struct_size = sizeof result};
    (void)rank;
    job_init(&job, context);
    job.config.missing = *(const weft_gradients_missing_t *)ranks->user;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 200; step++) {
        struct thread threads[2];
        for (size_t l = JOB_LAYERS; l > 0; l--)
            OK(job_announce(&job, step, l - 1));
        for (int t = 0; t < 2; t++) {
            threads[t] = (struct thread){.job = &job, .number = t};
            CHECK(pthread_create(&threads[t].thread, NULL, wait_for_layers, &threads[t]) == 0);
        }
        OK(weft_gradients_wait_all(job.gradients, &result));
        CHECK(result.step == step && result.absent == 0);
        for (int t = 0; t < 2; t++)
            CHECK(pthread_join(threads[t].thread, NULL) == 0);
        CHECK(weft_gradients_next(job.gradients) == step + 1);
        job_check_all(&job, step);
    }
    OK(weft_gradients_destroy(job.gradients));
}

Test(gradients_faults, wait_all_beside_waits_is_of_one_step)
{
    weft_gradients_missing_t missing[] = {WEFT_GRADIENTS_MISSING_ERROR,
                                          WEFT_GRADIENTS_MISSING_ZERO};
    for (int i = 0; i < 2; i++)
        for (int size = 1; size <= 2; size++)
            ranks_run_each_progress(end_beside_waits, size, &missing[i]);
}

/* A thread announces layers while wait_all finds some missing: each is announced once, and that is
 * no error of wait_all. What comes after the end of the step begins the next one. */
static void end_beside_announcements(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    (void)ranks;
    (void)rank;
    job_init(&job, context);
    job.config.missing = WEFT_GRADIENTS_MISSING_ZERO;
    OK(job_create(&job));
    for (int round = 0; round < 400; round++) {
        uint64_t before = weft_gradients_next(job.gradients);
        struct thread thread = {.job = &job};
        CHECK(pthread_create(&thread.thread, NULL, announce_layers, &thread) == 0);
        OK(weft_gradients_wait_all(job.gradients, NULL));
        CHECK(pthread_join(thread.thread, NULL) == 0);
        CHECK(weft_gradients_next(job.gradients) == before + 1);
        OK(weft_gradients_wait_all(job.gradients, NULL));
        CHECK(weft_gradients_next(job.gradients) == before + 2);
    }
    OK(weft_gradients_destroy(job.gradients));
}

Test(gradients_faults, wait_all_beside_announcements_takes_each_once)
{
    ranks_run_each_progress(end_beside_announcements, 1, NULL);
}

/* ---- ranks that are late ---- */

static int be_late(struct weft_context *context, void *user)
{
    struct job job;
    const struct weft_sparse_average_config *sparse = user;
    job_init(&job, context);
    job.config.deadline_ns = SECOND / 2;
    if (sparse) {
        job.config.method = WEFT_GRADIENTS_SPARSE;
        job.config.sparse = sparse;
    }
    OK(job_create(&job));
    for (uint64_t step = 0; step < STEPS; step++) {
        int late = (int)step % job.size, waits = 0, status;
        for (size_t l = JOB_LAYERS; l > 0; l--) {
            if (job.rank == late && l == 3)
                OK(weft_context_sleep(context, 3 * SECOND + 1));
            OK(job_announce(&job, step, l - 1));
        }
        while ((status = weft_gradients_wait_all(job.gradients, NULL)) == WEFT_ERR_TIMEOUT) {
            char text[32];
            snprintf(text, sizeof text, "rank %d", late);
            CHECK(job.rank != late);
            waits++;
            if (job.size == 2) /* with more, those who wait for it are waited for */
                CHECK_TEXT(weft_error_text(), text);
        }
        CHECK_STATUS(status, WEFT_OK);
        CHECK(job.rank == late || waits >= 5);
        job_check_all(&job, step);
    }
    OK(weft_gradients_destroy(job.gradients));
    return WEFT_OK;
}

Test(gradients_faults, who_is_late_by_seconds_is_waited_for_again)
{
    struct weft_virtual_config config = with_seed(4);
    struct weft_sparse_average_config sparse;
    weft_sparse_average_config_init(&sparse);
    sparse.method = WEFT_SPARSE_ALLGATHER;
    sparse.density = 1;
    for (int size = 2; size <= 5; size++) {
        OK(weft_virtual_run(size, &config, be_late, NULL));
        OK(weft_virtual_run(size, &config, be_late, &sparse));
    }
}

/* ---- failures ---- */

static int fail_in_step(struct weft_context *context, void *user)
{
    struct job job;
    const int *at = user;
    int status = WEFT_OK;
    job_init(&job, context);
    OK(job_create(&job));
    uint64_t step = job.rank == 1; /* the news may find others in the step before */
    if (job.rank == 1)
        job_take(&job, 0);
    else if (job_step(&job, 0) == WEFT_OK)
        step = 1;
    for (size_t l = JOB_LAYERS; l > 0 && status == WEFT_OK; l--) {
        if (job.rank == 1 && (int)l - 1 == *at)
            OK(weft_gradients_fail(job.gradients, WEFT_ERR_COMPUTE, "the loss is not finite"));
        status = job_announce(&job, step, l - 1);
    }
    if (status == WEFT_OK)
        status = weft_gradients_wait_all(job.gradients, NULL);
    for (int again = 0; again < 2; again++) {
        CHECK_STATUS(status, job.rank == 1 ? WEFT_ERR_COMPUTE : WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "the loss is not finite");
        if (job.rank != 1)
            CHECK_TEXT(weft_error_text(), "rank 1");
        status = weft_gradients_wait_all(job.gradients, NULL);
    }
    CHECK(weft_gradients_ready(job.gradients, 0) < 0);
    CHECK(weft_gradients_destroy(job.gradients) < 0);
    return WEFT_OK;
}

Test(gradients_faults, a_failure_is_everybodys)
{
    for (int at = 0; at < JOB_LAYERS; at++)
        for (int size = 2; size <= 5; size++) {
            struct weft_virtual_config config = with_seed(5 + (uint64_t)at);
            OK(weft_virtual_run(size, &config, fail_in_step, &at));
        }
}

/* Rank 1 takes a step less than the others. */
static int end_early(struct weft_context *context, void *user)
{
    struct job job;
    (void)user;
    job_init(&job, context);
    OK(job_create(&job));
    job_take(&job, 0);
    if (job.rank == 1) {
        OK(weft_gradients_destroy(job.gradients));
        return WEFT_OK;
    }
    int status = job_step(&job, 1);
    CHECK_STATUS(status, WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank ");
    CHECK(weft_gradients_destroy(job.gradients) < 0);
    return WEFT_OK;
}

Test(gradients_faults, who_has_ended_is_named)
{
    struct weft_virtual_config config = with_seed(6);
    for (int size = 2; size <= 5; size++)
        OK(weft_virtual_run(size, &config, end_early, NULL));
}

/* ---- steps that are complete when the object fails ---- */

struct completion {
    const struct weft_sparse_average_config *sparse;
    int fails;  /* rank 2 says so; else rank 0 leaves and rank 2 goes on */
    int layers; /* are waited for one by one */
};

static int wait_for_step(struct job *job, int layers)
{
    int status = WEFT_OK;
    for (size_t l = 0; l < JOB_LAYERS && status == WEFT_OK && layers; l++)
        status = weft_gradients_wait(job->gradients, l);
    return layers ? status : weft_gradients_wait_all(job->gradients, NULL);
}

/* Rank 1 waits for step 0 when the others have ended it and failed step 1: its sums are there. */
static int wait_late(struct weft_context *context, void *user)
{
    struct job job;
    const struct completion *how = user;
    job_init(&job, context);
    job.config.measure_steps = how->fails ? 1 : 10;
    if (how->sparse) {
        job.config.method = WEFT_GRADIENTS_SPARSE;
        job.config.sparse = how->sparse;
    }
    OK(job_create(&job));
    for (size_t l = JOB_LAYERS; l > 0; l--)
        OK(job_announce(&job, 0, l - 1));
    if (job.rank == 1)
        OK(weft_context_sleep(context, SECOND));
    OK(wait_for_step(&job, how->layers));
    job_check_all(&job, 0);
    CHECK(weft_gradients_next(job.gradients) == 1);
    if (job.rank != 1) /* until all others have it, too */
        OK(weft_context_sleep(context, SECOND / 2));
    if (job.rank == 0 && !how->fails) {
        OK(weft_gradients_destroy(job.gradients));
        return WEFT_OK;
    }
    if (job.rank == 2 && how->fails)
        OK(weft_gradients_fail(job.gradients, WEFT_ERR_COMPUTE, "the loss is not finite"));
    int status = job_step(&job, 1);
    CHECK_STATUS(status, job.rank == 2 && how->fails ? WEFT_ERR_COMPUTE : WEFT_ERR_PEER);
    CHECK(weft_gradients_wait(job.gradients, 0) == status);
    CHECK(weft_gradients_wait_all(job.gradients, NULL) == status);
    CHECK(weft_gradients_destroy(job.gradients) < 0);
    return WEFT_OK;
}

Test(gradients_faults, a_step_that_is_complete_does_not_fail)
{
    struct weft_virtual_config config = with_seed(8);
    struct weft_sparse_average_config sparse;
    weft_sparse_average_config_init(&sparse);
    sparse.method = WEFT_SPARSE_ALLGATHER;
    sparse.density = 1;
    for (int i = 0; i < 8; i++)
        for (int size = 3; size <= 5; size++) {
            struct completion how = {i & 4 ? &sparse : NULL, i & 1, i & 2};
            OK(weft_virtual_run(size, &config, wait_late, &how));
        }
}

/* Rank 0 destroys it in the middle of a step. */
static int end_in_step(struct weft_context *context, void *user)
{
    struct job job;
    (void)user;
    job_init(&job, context);
    int status = job_create(&job);
    if (job.rank == 0) {
        OK(status);
        OK(job_announce(&job, 0, 4));
        CHECK_STATUS(weft_gradients_destroy(job.gradients), WEFT_ERR_STATE);
        CHECK_TEXT(weft_error_text(), "layer ");
        return WEFT_OK;
    }
    if (status == WEFT_OK) /* the news may be sooner */
        status = job_step(&job, 0);
    CHECK_STATUS(status, WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 0");
    CHECK(weft_gradients_destroy(job.gradients) == (job.gradients ? WEFT_ERR_PEER : WEFT_OK));
    return WEFT_OK;
}

Test(gradients_faults, a_step_that_is_left_fails)
{
    struct weft_virtual_config config = with_seed(7);
    for (int size = 1; size <= 5; size++)
        OK(weft_virtual_run(size, &config, end_in_step, NULL));
}
