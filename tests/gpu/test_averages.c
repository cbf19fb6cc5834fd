/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging of models on devices: the bits of the host, and steps on streams. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/gpu/averages_job.h"

enum { MOST = 5, STEPS = 6 };

/* What ranks have had: models after steps, and results. */
struct seen {
    char *models[MOST][STEPS + 1];
    struct weft_group_average_result got[MOST][STEPS + 1];
};

static struct seen *seen_of(const struct job *job)
{
    return job->user;
}

static void note(struct job *job, const struct model *model, int rank, int step)
{
    seen_of(job)->models[rank][step] = malloc(model->bytes);
    CHECK(seen_of(job)->models[rank][step]);
    memcpy(seen_of(job)->models[rank][step], model->host, model->bytes);
}

/* Both have got the same, to the bit. */
static void compare(const struct job *first, const struct job *second)
{
    struct seen *x = seen_of(first), *y = seen_of(second);
    size_t bytes = ELEMENTS * weft_dtype_size(first->config.dtype);
    for (int rank = 0; rank < MOST; rank++)
        for (int step = 0; step <= STEPS; step++) {
            char *a = x->models[rank][step], *b = y->models[rank][step];
            CHECK(!a == !b);
            for (size_t i = 0; a && i < bytes; i++)
                if (a[i] != b[i]) {
                    size_t size = weft_dtype_size(first->config.dtype), e = i / size;
                    fprintf(stderr, "%s, %d ranks, how %d: rank %d, step %d, element %zu: ",
                            weft_dtype_name(first->config.dtype), first->ranks, (int)second->how,
                            rank, step, e);
                    for (size_t k = 0; k < size; k++)
                        fprintf(stderr, "%02x/%02x ", (unsigned char)a[e * size + k],
                                (unsigned char)b[e * size + k]);
                    abort();
                }
            CHECK(memcmp(&x->got[rank][step], &y->got[rank][step], sizeof x->got[0][0]) == 0);
            free(a);
            free(b);
        }
    memset(x, 0, sizeof *x);
    memset(y, 0, sizeof *y);
}

/* The same by a thread: in one piece, or in two. */
static enum how by_thread(enum how how)
{
    return how == BY_THREAD || how == ON_STREAM ? BY_THREAD : SPLIT_BY_THREAD;
}

/* ---- the bits of the host: where all wait for all it is known what is in a sum ---- */

static int train(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    for (int step = 0; step < STEPS; step++) {
        struct weft_group_average_result *got = &seen_of(job)->got[rank][step];
        got->struct_size = sizeof *got;
        model_fill(&model, rank, step);
        if (step == 3 && job->config.nan == WEFT_NAN_ZERO && rank == job->ranks / 2)
            memset(model.host + 10 * weft_dtype_size(job->config.dtype), 0xff,
                   3 * weft_dtype_size(job->config.dtype));
        OK(model_step(&model, average, is_there(&model) ? job->how : by_thread(job->how), got));
        CHECK(weft_group_average_next(average) == (uint64_t)step + 1);
        note(job, &model, rank, step);
    }
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

static void train_both(const struct weft_group_average_config *config, int ranks, enum how how)
{
    static struct seen seen[2];
    struct job host = new_job(train), device = host;
    host.user = &seen[0];
    device.user = &seen[1];
    host.config = device.config = *config;
    host.config.memory = WEFT_MEMORY_HOST;
    host.config.initial = device.config.initial = WEFT_INITIAL_ANY;
    device.config.memory = WEFT_MEMORY_DEVICE;
    host.how = by_thread(how);
    device.how = how;
    device.mixed = ranks > 2 && how % 2;
    run_job(&host, ranks);
    run_job(&device, ranks);
    compare(&host, &device);
}

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};

Test(averages, have_the_bits_of_the_host, .timeout = 300)
{
    for (int how = 0; how < HOWS; how++)
        for (int d = how % EVERY % 4; d < 4; d += EVERY) {
            struct weft_group_average_config config;
            int ranks = 1 + (how * 3 + d) % MOST;
            weft_group_average_config_init(&config);
            config.dtype = dtypes[d];
            config.mode = WEFT_AVERAGE_WAITING;
            config.sync_period = 3;
            config.group_size = (ranks + 1) / 2;
            train_both(&config, ranks, (enum how)how);
        }
}

Test(averages, of_gradients_have_the_bits_of_the_host, .timeout = 300)
{
    for (int how = 0; how < HOWS; how++)
        for (int d = how % EVERY % 4; d < 4; d += EVERY) {
            struct weft_group_average_config config;
            weft_group_average_config_init(&config);
            config.dtype = dtypes[d];
            config.contribution = WEFT_AVERAGE_ACCUMULATE;
            config.nan = (how + d) % 2 ? WEFT_NAN_ZERO : WEFT_NAN_ERROR;
            config.mode = how % 2 ? WEFT_AVERAGE_NONE : WEFT_AVERAGE_WAITING;
            config.sync_period = how % 2 ? 2 : WEFT_NEVER; /* what adds up until then */
            train_both(&config, 1 + (how + d) % 4, (enum how)how);
        }
}

/* ---- a rank that is late ---- */

/* Rank 1 has not taken a step when rank 0 has taken all: its first model is in all sums. Then it
 * takes the newest; between the halves of its step, if it has some, its model is changed. */
static int be_late(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    for (int step = 0; step < STEPS && rank == 0; step++) {
        struct weft_group_average_result *got = &seen_of(job)->got[rank][step];
        got->struct_size = sizeof *got;
        model_fill(&model, rank, step);
        OK(model_step(&model, average, job->how, got));
        CHECK(!got->stale && got->version == (uint64_t)step && got->members == 2);
        note(job, &model, rank, step);
    }
    if (rank == 1)
        await_version(average, STEPS);
    for (int step = 0; step < 2 && rank == 1; step++) { /* the second finds nothing newer */
        struct weft_group_average_result *got = &seen_of(job)->got[rank][step];
        got->struct_size = sizeof *got;
        model_fill(&model, rank, step);
        if (job->how == SPLIT_BY_THREAD) {
            model_put(&model);
            OK(weft_group_average_post(average));
            model_fill(&model, rank, step + 20);
            model_put(&model);
            OK(weft_group_average_wait(average, got));
            model_get(&model);
        } else if (job->how == SPLIT_ON_STREAM) {
            char *later = device_pin(model.bytes);
            device_stream_put(model.stream, model.memory, model.host, model.bytes);
            OK(weft_group_average_post_on(average, model.stream));
            device_stream_wait(model.stream);
            model_fill(&model, rank, step + 20);
            memcpy(later, model.host, model.bytes);
            device_stream_put(model.stream, model.memory, later, model.bytes);
            OK(weft_group_average_wait_on(average, model.stream));
            device_stream_get(model.stream, model.host, model.memory, model.bytes);
            device_stream_wait(model.stream);
            OK(weft_group_average_wait(average, got));
            device_unpin(later);
        } else {
            OK(model_step(&model, average, job->how, got));
        }
        CHECK(got->stale && got->members == (step == 0 ? 2 : 0));
        note(job, &model, rank, step);
    }
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

Test(averages, of_late_ranks_have_the_bits_of_the_host, .timeout = 300)
{
    static struct seen seen[2];
    for (int d = 0; d < 4; d += EVERY)
        for (int mix = WEFT_STALE_SUBSTITUTE; mix <= WEFT_STALE_PAPER; mix++)
            for (int split = 0; split < 2; split++) {
                struct job host = new_job(be_late);
                host.config.dtype = dtypes[d];
                host.config.stale_mix = (weft_stale_mix_t)mix;
                host.config.sync_period = WEFT_NEVER;
                host.config.group_size = 2;
                host.user = &seen[0];
                struct job threads = host, streams = host, again = host;
                threads.user = streams.user = &seen[1];
                host.config.memory = WEFT_MEMORY_HOST;
                host.how = again.how = threads.how = split ? SPLIT_BY_THREAD : BY_THREAD;
                again.config.memory = WEFT_MEMORY_HOST;
                streams.how = split ? SPLIT_ON_STREAM : ON_STREAM;
                run_job(&host, 2);
                run_job(&threads, 2);
                compare(&host, &threads);
                run_job(&again, 2);
                run_job(&streams, 2);
                compare(&again, &streams);
            }
}

/* ---- the thread has long gone on ---- */

/* The streams of odd ranks do not get to their first step before the others have taken all, while
 * their threads have put it there: they are late, and take part all the same. */
static int late_stream(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    struct weft_group_average_result got = {.struct_size = sizeof got};
    int late = rank % 2, gate = late ? model_hold(&model) : 0;
    model_set(&model, rank);
    for (int step = 0; step < (late ? 1 : STEPS); step++) {
        device_stream_put(model.stream, model.memory, model.host, model.bytes);
        if (job->how == ON_STREAM) {
            OK(weft_group_average_step_on(average, model.stream));
        } else {
            OK(weft_group_average_post_on(average, model.stream));
            OK(weft_group_average_wait_on(average, model.stream));
        }
        if (late) {
            CHECK_STATUS(weft_group_average_test(average, &got), WEFT_IN_PROGRESS);
            CHECK_STATUS(weft_group_average_post(average), WEFT_ERR_TIMEOUT);
            CHECK_TEXT(weft_error_text(), "the stream has not got to the beginning of step 0 in ");
            await_version(average, STEPS);
            CHECK(atomic_load(&average->arrived) == 0);
            model_let_go(&model, gate);
        }
        int status;
        while ((status = weft_group_average_test(average, &got)) == WEFT_IN_PROGRESS)
            sched_yield();
        OK(status);
        device_stream_wait(model.stream); /* whose work is over */
        CHECK(!late || (got.stale && got.members == job->ranks && got.version == STEPS - 1));
    }
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

Test(averages, go_on_without_streams_that_are_late, .timeout = 300)
{
    for (int how = ON_STREAM; how <= SPLIT_ON_STREAM; how++)
        for (int ranks = 2; ranks <= MOST; ranks += EVERY) {
            struct job job = new_job(late_stream);
            job.how = (enum how)how;
            job.config.group_size = ranks;
            job.config.sync_period = WEFT_NEVER;
            job.config.deadline_ns = 2000000;
            run_job(&job, ranks);
        }
}

/* Steps are put on the stream one after the other, and nobody asks for them but at the end: each is
 * what the host's is. */
static int put_all(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    char *host[STEPS + 1];
    for (int step = 0; step < STEPS; step++) {
        host[step] = device_pin(model.bytes);
        model_fill(&model, rank, step);
        memcpy(host[step], model.host, model.bytes);
        device_stream_put(model.stream, model.memory, host[step], model.bytes);
        OK(weft_group_average_post_on(average, model.stream));
        OK(weft_group_average_wait_on(average, model.stream));
        device_stream_get(model.stream, host[step], model.memory, model.bytes);
        CHECK(weft_group_average_next(average) == (uint64_t)step);
    }
    device_stream_wait(model.stream);
    OK(weft_group_average_wait(average, NULL));
    CHECK(weft_group_average_next(average) == STEPS);
    CHECK_STATUS(weft_group_average_wait(average, NULL), WEFT_ERR_STATE);
    for (int step = 0; step < STEPS; step++) {
        memcpy(model.host, host[step], model.bytes);
        note(job, &model, rank, step);
        device_unpin(host[step]);
    }
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

Test(averages, need_no_thread_that_waits, .timeout = 300)
{
    for (int ranks = EVERY / 2 + 1; ranks <= MOST; ranks += EVERY) {
        static struct seen seen[2];
        struct job host = new_job(train), device = host;
        host.user = &seen[0];
        device.user = &seen[1];
        host.config.mode = device.config.mode = WEFT_AVERAGE_WAITING;
        host.config.sync_period = device.config.sync_period = 2;
        host.config.memory = WEFT_MEMORY_HOST;
        host.how = SPLIT_BY_THREAD;
        device.program = put_all;
        run_job(&host, ranks);
        run_job(&device, ranks);
        memset(seen[0].got, 0, sizeof seen[0].got);
        compare(&host, &device);
    }
}

static void note_time(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

/* The stream is held by nothing but the step: what it is to compute behind the first half it does,
 * while the second half waits for a rank that is late. */
static int between(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    struct weft_group_average_result got = {.struct_size = sizeof got};
    atomic_int there = 0;
    model_set(&model, rank + 1);
    model_put(&model);
    if (rank == 0)
        meet(job);
    OK(weft_group_average_post_on(average, model.stream));
    model_set(&model, 10);
    device_stream_put(model.stream, model.memory, model.host, model.bytes);
    device_stream_call(model.stream, note_time, &there);
    OK(weft_group_average_wait_on(average, model.stream));
    if (rank > 0) {
        while (!atomic_load(&there))
            sched_yield();
        CHECK_STATUS(weft_group_average_test(average, &got), WEFT_IN_PROGRESS);
        meet(job);
    }
    OK(weft_group_average_wait(average, &got));
    CHECK(got.synchronised && got.members == job->ranks);
    device_stream_wait(model.stream);
    CHECK(model_is(&model, 10 + (job->ranks + 1) / 2.0 - (rank + 1)));
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

Test(averages, compute_between_the_halves_of_a_step, .timeout = 300)
{
    for (int ranks = 2; ranks <= MOST; ranks += EVERY) {
        struct job job = new_job(between);
        job.config.sync_period = 1;
        run_job(&job, ranks);
    }
}
