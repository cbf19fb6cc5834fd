/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging on devices that fails, is left in the middle, or is used wrongly; and states. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/gpu/averages_job.h"
#include "tests/gpu/support/standin_calls.h"
#include "tests/support/draw.h"

enum { MOST = 4 };

static void pass(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

/* ---- failures ---- */

/* The stream of rank 0 never gets to its step. Rank 1 fails the object: who waits hears of it, and
 * the streams that wait for the step go on, with tensors as they were. */
static int fail_while_held(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    atomic_int passed = 0;
    int gate = -1;
    model_set(&model, 5);
    model_put(&model);
    if (rank == 0) {
        void *other = device_stream();
        gate = model_hold(&model);
        OK(weft_group_average_post_on(average, model.stream));
        OK(weft_group_average_wait_on(average, model.stream));
        OK(weft_group_average_wait_on(average, other));
        device_stream_call(other, pass, &passed);
        meet(job);
        CHECK_STATUS(weft_group_average_wait(average, NULL), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "weft_group_average_wait: rank 1 has failed: enough");
        device_stream_wait(other);
        CHECK(atomic_load(&passed) == 1);
        device_stream_close(other);
    } else {
        if (job->how == ON_STREAM)
            OK(weft_group_average_step_on(average, model.stream));
        meet(job);
        if (rank == 1)
            OK(weft_group_average_fail(average, WEFT_ERR_COMPUTE, "enough"));
        int status = job->how == ON_STREAM ? weft_group_average_wait(average, NULL)
                                           : weft_group_average_step(average, NULL);
        CHECK_STATUS(status, rank == 1 ? WEFT_ERR_COMPUTE : WEFT_ERR_PEER);
    }
    CHECK(weft_group_average_step_on(average, model.stream) < 0);
    CHECK(weft_group_average_test(average, NULL) == WEFT_ERR_STATE);
    struct weft_group_average_state state = {.struct_size = sizeof state};
    OK(weft_group_average_get_state(average, &state));
    CHECK(rank > 0 || state.next == 0); /* it had not been published */
    CHECK(weft_group_average_destroy(average) < 0);
    if (gate >= 0)
        model_let_go(&model, gate);
    device_stream_wait(model.stream);
    CHECK(model_is(&model, 5));
    model_free(&model);
    return WEFT_OK;
}

Test(average_ends, who_fails_lets_streams_go, .timeout = 300)
{
    for (int how = BY_THREAD; how <= ON_STREAM; how += ON_STREAM)
        for (int ranks = 2; ranks <= MOST; ranks++) {
            struct job job = new_job(fail_while_held);
            job.how = (enum how)how;
            job.config.sync_period = 1; /* so that all wait */
            run_job(&job, ranks);
        }
}

/* ---- leaving ---- */

enum { POSTED, POSTED_HELD, WAITED, WAITED_HELD, ENDED, LEAVINGS };

/* Rank 0 leaves with work on its streams; the others go on, and it stands in for itself. */
static int leave(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    struct weft_group_average_result got = {.struct_size = sizeof got};
    int held = job->kind == POSTED_HELD || job->kind == WAITED_HELD, gate = -1;
    model_set(&model, 5);
    model_put(&model);
    if (rank == 0) {
        if (held)
            gate = model_hold(&model);
        if (job->kind == POSTED)
            OK(weft_group_average_post(average));
        else
            OK(weft_group_average_post_on(average, model.stream));
        if (job->kind >= WAITED)
            OK(weft_group_average_wait_on(average, model.stream));
        if (job->kind == ENDED) {
            meet(job);
            device_stream_wait(model.stream);
            while (atomic_load(&average->device->mixes) != WEFT__MIXES_ENDED)
                sched_yield();
        }
        int status = weft_group_average_destroy(average);
        CHECK(status == WEFT_ERR_CANCELLED || (!held && status == WEFT_OK));
        CHECK(status == WEFT_OK || (job->kind != POSTED && job->kind != ENDED));
        if (status)
            CHECK_TEXT(weft_error_text(), "weft_group_average_destroy: step 0 was under way");
        if (job->kind != ENDED)
            meet(job);
    } else {
        meet(job);
        for (int step = 0; step < 3; step++) {
            model_set(&model, 5 + step);
            OK(model_step(&model, average, job->how, &got));
            CHECK(got.synchronised == (step == 2));
        }
        OK(weft_group_average_destroy(average));
    }
    if (gate >= 0)
        model_let_go(&model, gate);
    device_stream_wait(model.stream);
    if (rank == 0)
        CHECK(model_is(&model, 5)); /* it was mixed with what is the same, or not at all */
    model_free(&model);
    return WEFT_OK;
}

Test(average_ends, a_rank_leaves_with_work_on_its_stream, .timeout = 300)
{
    for (int kind = 0; kind < LEAVINGS; kind++)
        for (int ranks = 1; ranks <= MOST; ranks += EVERY > 1 ? 2 : 1) {
            struct job job = new_job(leave);
            job.kind = kind;
            job.how = (enum how)(kind % HOWS);
            job.config.sync_period = 3;
            job.config.mode = kind % 2 ? WEFT_AVERAGE_WAIT_AVOIDING : WEFT_AVERAGE_NONE;
            run_job(&job, ranks);
        }
}

/* ---- models and gradients that are not finite ---- */

static int refuse(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    struct weft_group_average_result got = {.struct_size = sizeof got};
    struct weft_group_average_stats stats = {.struct_size = sizeof stats};
    double nan = NAN;
    for (int tries = 0; tries < 3; tries++) {
        model_set(&model, 3);
        OK(weft_convert(job->config.dtype, model.host + 1003 * weft_dtype_size(job->config.dtype),
                        WEFT_F64, &nan, 1));
        device_stream_put(model.stream, model.memory, model.host, model.bytes);
        OK(weft_group_average_post_on(average, model.stream));
        if (tries != 1)
            OK(weft_group_average_wait_on(average, model.stream));
        const char *who = "weft_group_average_wait";
        int status;
        if (tries == 2) { /* nobody asks for it: the next step does */
            who = "weft_group_average_step_on";
            status = weft_group_average_step_on(average, model.stream);
        } else {
            status = weft_group_average_wait(average, &got);
        }
        CHECK_STATUS(status, WEFT_ERR_COMPUTE);
        CHECK(strncmp(weft_error_text(), who, strlen(who)) == 0);
        CHECK_TEXT(weft_error_text(), ": step 0: 1 NaNs or infinities in the model of this rank, "
                                      "the first in tensor 3; nothing has been published");
        device_stream_wait(model.stream);
        model_get(&model);
        CHECK(model_at(&model, 1002) == 3 && isnan(model_at(&model, 1003)));
        CHECK(weft_group_average_next(average) == 0);
    }
    model_set(&model, 3);
    OK(model_step(&model, average, job->how, &got));
    CHECK(got.version == 0 && model_is(&model, 3));
    OK(weft_group_average_get_stats(average, &stats));
    CHECK(stats.nans == 3 && stats.steps == 1);
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

Test(average_ends, a_model_that_is_not_finite_is_refused_on_its_stream, .timeout = 300)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};
    for (int d = 0; d < 4; d++) {
        struct job job = new_job(refuse);
        job.config.dtype = dtypes[d];
        job.how = (enum how)(d % HOWS);
        job.config.mode = WEFT_AVERAGE_WAITING;
        run_job(&job, 1 + d);
    }
}

/* A gradient counts as zero, on top of what is pending, and who asks is told. */
static int tell(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    struct weft_group_average_result got = {.struct_size = sizeof got};
    for (int step = 0; step < 4; step++) {
        int ill = rank == 0 && (step == 0 || step == 3);
        model_set(&model, 1 << step);
        if (ill)
            memset(model.host, 0xff, 2 * weft_dtype_size(job->config.dtype));
        device_stream_put(model.stream, model.memory, model.host, model.bytes);
        OK(weft_group_average_step_on(average, model.stream));
        int status = weft_group_average_wait(average, &got);
        CHECK_STATUS(status, ill ? WEFT_ERR_COMPUTE : WEFT_OK);
        if (ill)
            CHECK_TEXT(weft_error_text(), "2 NaNs or infinities in the gradient of this rank, the "
                                          "first in tensor 0; it counts as zero");
        CHECK(got.synchronised == step % 2);
    }
    CHECK(got.members == job->ranks);
    device_stream_wait(model.stream);
    /* Of steps 2 and 3: rank 0 has given 4, the others 12. */
    CHECK(model_is(&model, (4 + 12 * (job->ranks - 1)) / (double)job->ranks));
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

Test(average_ends, a_gradient_that_is_not_finite_counts_as_zero, .timeout = 300)
{
    for (int ranks = 1; ranks <= MOST; ranks *= 2) {
        struct job job = new_job(tell);
        job.config.contribution = WEFT_AVERAGE_ACCUMULATE;
        job.config.mode = WEFT_AVERAGE_NONE;
        job.config.sync_period = 2;
        run_job(&job, ranks);
    }
}

/* ---- deadlines ---- */

static int miss(struct job *job, struct weft_context *context, int rank)
{
    struct model model;
    struct weft_group_average *average = create(job, &model, context, rank);
    model_set(&model, rank);
    device_stream_put(model.stream, model.memory, model.host, model.bytes);
    if (rank == 1)
        meet(job);
    OK(weft_group_average_step_on(average, model.stream));
    if (rank == 0) {
        do
            CHECK_STATUS(weft_group_average_wait(average, NULL), WEFT_ERR_TIMEOUT);
        while (strstr(weft_error_text(), "the stream has not got to the beginning of step 0"));
        CHECK_TEXT(weft_error_text(), "version 0, a synchronisation, has not ended after ");
        CHECK_TEXT(weft_error_text(), " of 2 ranks have not arrived: ");
        CHECK(strstr(weft_error_text(), "arrived: 1") || strstr(weft_error_text(), ", 1"));
        CHECK_STATUS(weft_group_average_post_on(average, model.stream), WEFT_ERR_TIMEOUT);
        meet(job);
    }
    int status;
    while ((status = weft_group_average_wait(average, NULL)) == WEFT_ERR_TIMEOUT)
        continue;
    OK(status);
    device_stream_wait(model.stream);
    CHECK(model_is(&model, 0.5));
    OK(weft_group_average_destroy(average));
    model_free(&model);
    return WEFT_OK;
}

Test(average_ends, a_deadline_is_of_those_who_ask, .timeout = 300)
{
    struct job job = new_job(miss);
    job.config.sync_period = 1;
    job.config.deadline_ns = 3000000;
    run_job(&job, 2);
}

/* ---- states ---- */

enum { LIVES = 3, EACH = 6, STEPS = LIVES * EACH };

/* Gradients of all ranks and steps, an element each, that were published, and that have been seen
 * in a sum or at the end. */
struct history {
    int published[MOST][STEPS];
    _Atomic int seen[MOST][STEPS];
    _Atomic int ahead; /* rank 0 has taken so many steps */
    int fails;         /* lives end by a failure */
    int upto[MOST][LIVES];
    uint64_t ended; /* versions that have, on rank 0 in its latest life */
};

/* What rank 0 gets of all, with what the object before had left. */
static void count(struct history *history, const struct model *model, int members)
{
    for (int e = 0; e < MOST * STEPS; e++)
        history->seen[e / STEPS][e % STEPS] += (int)lround(model_at(model, (size_t)e) * members);
}

static void step(struct job *job, struct model *model, struct weft_group_average *average, int rank,
                 int number, struct draw *draw)
{
    struct history *history = job->user;
    struct weft_group_average_result got = {.struct_size = sizeof got};
    double one = 1;
    model_set(model, 0);
    OK(weft_convert(job->config.dtype,
                    model->host +
                        (size_t)(rank * STEPS + number) * weft_dtype_size(job->config.dtype),
                    WEFT_F64, &one, 1));
    history->published[rank][number]++;
    OK(model_step(model, average, (enum how)draw_below(draw, HOWS), &got));
    if (rank > 0)
        return;
    CHECK(got.version == (uint64_t)number && got.members == job->ranks);
    count(history, model, job->ranks);
    atomic_fetch_add(&history->ahead, 1);
}

static void keep(struct model *model, struct weft_context *context, void **kept, const void **state,
                 size_t elements)
{
    size_t bytes = elements * (model->config.dtype == WEFT_F64 ? sizeof(double) : sizeof(float));
    if (!*state)
        return;
    CHECK(elements == ELEMENTS);
    *kept = malloc(bytes);
    CHECK(*kept);
    OK(weft_context_device_copy(context, *kept, *state, bytes)); /* it is the device's */
    *state = *kept;
}

/* One life of the object, from a state to the next. */
static void live(struct job *job, struct model *model, struct weft_context *context, int rank,
                 int life, struct weft_group_average_state *state, struct draw *draw)
{
    struct history *history = job->user;
    struct weft_group_average_config config = model->config;
    struct weft_group_average *average = NULL;
    void *kept[3] = {0};
    config.state = life ? state : NULL;
    OK(weft_group_average_create(&average, context, &config));
    free((void *)(uintptr_t)state->pending);
    free((void *)(uintptr_t)state->failed);
    free((void *)(uintptr_t)state->sum);
    for (int number = (int)weft_group_average_next(average); number < history->upto[rank][life];
         number++) {
        while (rank > 0 && atomic_load(&history->ahead) <= number)
            sched_yield(); /* rank 0 is the first everywhere: it gets all sums */
        step(job, model, average, rank, number, draw);
    }
    *state = (struct weft_group_average_state){.struct_size = sizeof *state};
    if (history->fails) {
        meet(job); /* steps are not cut off: what they get is counted */
        if (rank == job->ranks - 1)
            OK(weft_group_average_fail(average, WEFT_ERR_COMPUTE, "again"));
        while (weft_object_check(average->object, "test") == WEFT_OK)
            sched_yield();
        OK(weft_group_average_get_state(average, state));
    } else {
        OK(weft_group_average_take_state(average, state));
    }
    keep(model, context, &kept[0], &state->pending, state->pending_count);
    keep(model, context, &kept[1], &state->failed, state->failed_count);
    keep(model, context, &kept[2], &state->sum, state->sum_count);
    if (rank == 0)
        history->ended = state->past[0].ended;
    meet(job);
    int status = weft_group_average_destroy(average);
    CHECK(history->fails ? status < 0 : status == WEFT_OK);
}

static int live_on(struct job *job, struct weft_context *context, int rank)
{
    struct history *history = job->user;
    struct draw draw = {(uint64_t)(job->kind * 10 + rank)};
    struct weft_group_average_state state = {.struct_size = sizeof state};
    struct model model;
    model_make(&model, &job->config, rank);
    for (int life = 0; life < LIVES; life++)
        live(job, &model, context, rank, life, &state, &draw);
    /* What is left at the end: pending here, consumed by a version that has not ended on rank 0,
     * or a sum that rank 0 has not taken. */
    int lost = state.failed_version >= history->ended;
    const void *left[] = {state.pending, lost ? state.failed : NULL, rank == 0 ? state.sum : NULL};
    size_t size = job->config.dtype == WEFT_F64 ? sizeof(double) : sizeof(float);
    for (int e = 0; e < MOST * STEPS; e++)
        for (int i = 0; i < 3; i++) {
            double value = 0;
            if (left[i])
                OK(weft_convert(WEFT_F64, &value, size == 8 ? WEFT_F64 : WEFT_F32,
                                (const char *)left[i] + (size_t)e * size, 1));
            history->seen[e / STEPS][e % STEPS] += (int)lround(value);
        }
    free((void *)(uintptr_t)state.pending);
    free((void *)(uintptr_t)state.failed);
    free((void *)(uintptr_t)state.sum);
    model_free(&model);
    return WEFT_OK;
}

static void keep_history(int kind, int fails)
{
    static struct history history;
    struct draw draw = {(uint64_t)kind};
    struct job job = new_job(live_on);
    int ranks = 1 + (int)draw_below(&draw, MOST);
    memset(&history, 0, sizeof history);
    history.fails = fails;
    for (int life = 0; life < LIVES; life++)
        for (int r = 0; r < MOST; r++) {
            int from = life ? history.upto[r][life - 1] : 0, most = EACH * (life + 1);
            history.upto[r][life] =
                r ? from + (int)draw_below(&draw, (unsigned)(most - from + 1)) : most;
        }
    job.kind = kind;
    job.user = &history;
    job.config.dtype = draw_below(&draw, 2) ? WEFT_F32 : WEFT_F64;
    job.config.contribution = WEFT_AVERAGE_ACCUMULATE;
    job.config.group_size = ranks;
    job.config.sync_period = WEFT_NEVER;
    run_job(&job, ranks);
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < STEPS; s++)
            cr_assert_eq(history.seen[r][s], history.published[r][s],
                         "kind %d, fails %d: gradient %d of rank %d of %d: published %d, seen %d",
                         kind, fails, s, r, ranks, history.published[r][s], history.seen[r][s]);
}

Test(average_ends, no_gradient_is_lost_or_counts_twice, .timeout = 300)
{
    for (int kind = 0; kind < 24; kind += EVERY)
        keep_history(kind, kind % 2);
}
