/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging as an object: what is refused, ranks that disagree, and ranks that fail. */
#include <criterion/criterion.h>

#include "average_job.h"
#include "runtime/base/alloc.h"

/* ---- misuse ---- */

static void refused(struct weft_context *context, const struct weft_group_average_config *config,
                    int status, const char *words[])
{
    struct weft_group_average *average = NULL;
    CHECK_STATUS(weft_group_average_create(&average, context, config), status);
    CHECK(!average);
    for (; *words; words++)
        CHECK_TEXT(weft_error_text(), *words);
}

#define WORDS(...) ((const char *[]){__VA_ARGS__, NULL})

Test(average_misuse, wrong_settings_are_named)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;
    float model[4] = {0};
    struct weft_piece tensors[2] = {{model, 4}, {NULL, 0}};
#define WRONG(field, value, status, ...)                                                           \
    do {                                                                                           \
        weft_group_average_config_init(&config);                                                   \
        config.tensors = tensors;                                                                  \
        config.tensor_count = 2;                                                                   \
        config.field = value;                                                                      \
        refused(alone.context, &config, status, WORDS(__VA_ARGS__));                               \
    } while (0)
    WRONG(struct_size, 5, WEFT_ERR_INVALID, "struct_size", "5");
    WRONG(dtype, WEFT_I32, WEFT_ERR_UNSUPPORTED, "dtype", "i32", "f16");
    WRONG(dtype, (weft_dtype_t)99, WEFT_ERR_INVALID, "dtype");
    WRONG(group_size, 2, WEFT_ERR_INVALID, "group_size is 2", "0 .. 1");
    WRONG(group_size, -1, WEFT_ERR_INVALID, "group_size is -1");
    WRONG(mode, (weft_average_mode_t)7, WEFT_ERR_INVALID, "mode is 7");
    WRONG(activation, (weft_average_activation_t)7, WEFT_ERR_INVALID, "activation is 7");
    WRONG(contribution, (weft_average_contribution_t)7, WEFT_ERR_INVALID, "contribution is 7");
    WRONG(stale_mix, (weft_stale_mix_t)7, WEFT_ERR_INVALID, "stale_mix is 7");
    WRONG(tensors, NULL, WEFT_ERR_INVALID, "tensors", "NULL");
    WRONG(algo, "no-such", WEFT_ERR_NOT_FOUND, "no-such");
    tensors[1].count = 3;
    WRONG(dtype, WEFT_F32, WEFT_ERR_INVALID, "tensors[1].data is NULL", "3");
    tensors[1].data = model;
    tensors[1].count = SIZE_MAX - 2;
    WRONG(dtype, WEFT_F32, WEFT_ERR_INVALID, "tensors");
    struct weft_group_average_state state = {.struct_size = 3};
    tensors[1].count = 0;
    WRONG(state, &state, WEFT_ERR_INVALID, "struct_size is 3");
    state = (struct weft_group_average_state){.struct_size = sizeof state};
    state.next = (UINT64_C(1) << 53) + 1;
    WRONG(state, &state, WEFT_ERR_INVALID, "config->state->next is 9007199254740993",
          "at most 9007199254740992");
    WRONG(nan, WEFT_NAN_ZERO, WEFT_ERR_INVALID, "config->nan is 1", "WEFT_NAN_SPREAD");
    WRONG(nan, (weft_nan_policy_t)3, WEFT_ERR_INVALID, "config->nan is 3");
    refused(alone.context, NULL, WEFT_ERR_INVALID, WORDS("config", "NULL"));
    refused(NULL, &config, WEFT_ERR_INVALID, WORDS("context", "NULL"));
    CHECK_STATUS(weft_group_average_create(NULL, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`average`");
    weft_group_average_config_init(NULL);
    /* and after all that an object can be had */
    weft_group_average_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = 1;
    OK(weft_group_average_create(&average, alone.context, &config));
    OK(weft_group_average_step(average, NULL));
    OK(weft_group_average_destroy(average));
    alone_destroy(&alone);
}

/* Gradients are not mixed with a model. */
Test(average_misuse, gradients_have_the_default_mix)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_group_average_config config;
    weft_group_average_config_init(&config);
    config.contribution = WEFT_AVERAGE_ACCUMULATE;
    config.stale_mix = WEFT_STALE_PAPER;
    refused(alone.context, &config, WEFT_ERR_INVALID,
            WORDS("config->stale_mix is paper", "WEFT_AVERAGE_ACCUMULATE"));
    config.stale_mix = 0;
    float model[4] = {0};
    OK(weft_group_average_destroy(create(alone.context, &config, model, 4)));
    alone_destroy(&alone);
}

Test(average_misuse, late_ranks_need_a_helper)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_group_average_config config;
    weft_group_average_config_init(&config);
    refused(alone.context, &config, WEFT_ERR_STATE, WORDS("helper progress"));
    alone_destroy(&alone);
}

Test(average_misuse, wrong_calls_are_named)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct weft_group_average_config config;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    struct weft_group_average_state state = {.struct_size = sizeof state};
    struct weft_group_average_stats stats = {.struct_size = sizeof stats};
    struct weft_group_average *none = NULL, *average;
    char *text = NULL;
    float model[4] = {0};
    weft_group_average_config_init(&config);
    average = create(alone.context, &config, model, 4);
#define NAMED(call, status, function, word)                                                        \
    do {                                                                                           \
        CHECK_STATUS(call, status);                                                                \
        CHECK_TEXT(weft_error_text(), "weft_group_average_" function);                             \
        CHECK_TEXT(weft_error_text(), word);                                                       \
    } while (0)
    NAMED(weft_group_average_step(none, &result), WEFT_ERR_INVALID, "step", "`average`");
    NAMED(weft_group_average_post(none), WEFT_ERR_INVALID, "post", "`average`");
    NAMED(weft_group_average_wait(none, &result), WEFT_ERR_INVALID, "wait", "`average`");
    NAMED(weft_group_average_get_state(none, &state), WEFT_ERR_INVALID, "get_state", "`average`");
    NAMED(weft_group_average_get_state(average, NULL), WEFT_ERR_INVALID, "get_state", "`state`");
    NAMED(weft_group_average_take_state(none, &state), WEFT_ERR_INVALID, "take_state", "`average`");
    NAMED(weft_group_average_take_state(average, NULL), WEFT_ERR_INVALID, "take_state", "`state`");
    NAMED(weft_group_average_get_stats(none, &stats), WEFT_ERR_INVALID, "get_stats", "`average`");
    NAMED(weft_group_average_get_stats(average, NULL), WEFT_ERR_INVALID, "get_stats", "`stats`");
    NAMED(weft_group_average_report(none, 0, &text), WEFT_ERR_INVALID, "report", "`average`");
    NAMED(weft_group_average_report(average, 0, NULL), WEFT_ERR_INVALID, "report", "`text`");
    NAMED(weft_group_average_wait(average, &result), WEFT_ERR_STATE, "wait", "no step");
    OK(weft_group_average_post(average));
    NAMED(weft_group_average_post(average), WEFT_ERR_STATE, "post", "step 0");
    NAMED(weft_group_average_step(average, &result), WEFT_ERR_STATE, "step", "step 0");
    NAMED(weft_group_average_get_state(average, &state), WEFT_ERR_STATE, "get_state", "step 0");
    NAMED(weft_group_average_take_state(average, &state), WEFT_ERR_STATE, "take_state", "step 0");
    CHECK(weft_group_average_next(average) == 0 && weft_group_average_next(NULL) == 0);
    OK(weft_group_average_wait(average, NULL));
    CHECK(weft_group_average_next(average) == 1);
    OK(weft_group_average_destroy(average));
    OK(weft_group_average_destroy(NULL));
    alone_destroy(&alone);
}

/* ---- ranks that disagree ---- */

static int disagree(struct weft_context *context, struct job *job, int rank)
{
    static const char *const names[] = {"elements", "dtype",      "group_size",   "sync_period",
                                        "mode",     "activation", "contribution", "seed",
                                        "algo",     "stale_mix"};
    static const char *const odd_dtypes[] = {"config->dtype: rank 0 has f16, rank 1 has f32",
                                             "config->dtype: rank 0 has f32, rank 1 has f16",
                                             "config->dtype: rank 0 has f32, rank 2 has f16"};
    static const char *const odd_algos[] = {"config->algo: rank 0 has \"ring\", rank 1 has none",
                                            "config->algo: rank 0 has none, rank 1 has \"ring\"",
                                            "config->algo: rank 0 has none, rank 2 has \"ring\""};
    float model[8] = {0};
    struct weft_piece tensor = {model, 4};
    struct weft_group_average_config config = job->config;
    struct weft_group_average *average = NULL;
    int odd = rank == job->number;
    config.tensors = &tensor;
    config.tensor_count = 1;
    tensor.count += odd && job->kind == 0;
    config.dtype = odd && job->kind == 1 ? WEFT_F16 : WEFT_F32;
    config.group_size = odd && job->kind == 2 ? 1 : 2;
    config.sync_period = odd && job->kind == 3 ? 7 : 8;
    if (odd && job->kind == 4)
        config.mode = WEFT_AVERAGE_WAITING;
    if (odd && job->kind == 5)
        config.activation = WEFT_AVERAGE_DRAWN;
    if (odd && job->kind == 6)
        config.contribution = WEFT_AVERAGE_ACCUMULATE;
    config.seed = odd && job->kind == 7;
    if (odd && job->kind == 8)
        config.algo = "ring";
    if (odd && job->kind == 9)
        config.stale_mix = WEFT_STALE_PAPER;
    CHECK_STATUS(weft_group_average_create(&average, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "do not agree");
    CHECK_TEXT(weft_error_text(), names[job->kind]);
    if (job->kind == 1)
        CHECK_TEXT(weft_error_text(), odd_dtypes[job->number]);
    if (job->kind == 8)
        CHECK_TEXT(weft_error_text(), odd_algos[job->number]);
    if (job->kind == 9)
        CHECK_TEXT(weft_error_text(), "has paper");
    CHECK(!average);
    /* one that fails alone: the others hear of it */
    config = job->config;
    config.tensors = NULL;
    config.tensor_count = odd;
    CHECK_STATUS(weft_group_average_create(&average, context, &config),
                 odd ? WEFT_ERR_INVALID : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "tensors is NULL"); /* the others hear why */
    if (!odd)
        CHECK_TEXT(weft_error_text(), "has failed: weft_group_average_create");
    return WEFT_OK;
}

Test(average_misuse, ranks_must_agree, .timeout = 140)
{
    for (int kind = 0; kind < 10; kind++)
        for (int odd = 0; odd < 3; odd++) {
            struct job job = new_job(disagree);
            job.kind = kind;
            job.number = odd;
            OK(run_job(&job, 3));
        }
}

/* Of rank 0 and of another one, from checkpoints. */
static int go_on(struct weft_context *context, struct job *job, int rank)
{
    const uint64_t far = UINT64_C(1) << 53, apart = UINT64_C(1) << 20;
    float model[4] = {0};
    struct weft_piece tensor = {model, 4};
    struct weft_group_average_config config = job->config;
    struct weft_group_average_state state = {.struct_size = sizeof state};
    struct weft_group_average *average = NULL;
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.state = &state;
    state.next = rank == job->number ? far : far - apart - (uint64_t)job->kind;
    if (job->kind == 0) {
        OK(weft_group_average_create(&average, context, &config));
        OK(weft_group_average_step(average, NULL));
        OK(weft_group_average_destroy(average));
        return WEFT_OK;
    }
    CHECK_STATUS(weft_group_average_create(&average, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->state->next, of which ranks may be 1048576 apart: ");
    CHECK_TEXT(weft_error_text(), job->number ? "rank 0 has 9007199253692415, rank 2 has "
                                              : "rank 0 has 9007199254740992, rank 1 has ");
    return WEFT_OK;
}

Test(average_misuse, ranks_that_are_far_apart_are_of_different_trainings, .timeout = 140)
{
    for (int kind = 0; kind < 2; kind++)
        for (int ahead = 0; ahead < 3; ahead += 2) {
            struct job job = new_job(go_on);
            job.kind = kind;
            job.number = ahead;
            job.config.sync_period = WEFT_NEVER;
            OK(run_job(&job, 3));
        }
}

/* ---- failures ---- */

/* Rank 1 gives up in the middle: nobody waits for it, and what is left can be freed. */
static int one_gives_up(struct weft_context *context, struct job *job, int rank)
{
    float *model = job->model[rank];
    struct weft_group_average *average = create(context, &job->config, model, COUNT);
    int status = WEFT_OK;
    job->kept[rank] = average;
    for (int step = 0; status == WEFT_OK; step++) {
        if (rank == 1 && step == 5)
            return WEFT_ERR_COMPUTE;
        status = weft_group_average_step(average, NULL);
    }
    CHECK(status < 0 && weft_error_text()[0]);
    job->kept[rank] = NULL;
    job->status[rank] = status;
    CHECK(weft_group_average_destroy(average) < 0);
    CHECK(!strncmp(weft_error_text(), "weft_group_average_destroy: ", 28));
    return WEFT_OK;
}

static struct weft_group_average *lost[8]; /* nobody can free them any more */

Test(average_misuse, a_rank_that_gives_up_ends_the_steps_of_all, .timeout = 140)
{
    for (int mode = WEFT_AVERAGE_WAIT_AVOIDING; mode <= WEFT_AVERAGE_NONE; mode++)
        for (int period = 0; period <= 3; period += 3) {
            if (mode == WEFT_AVERAGE_NONE && period == 0)
                continue;
            struct job job = new_job(one_gives_up);
            job.config.mode = (weft_average_mode_t)mode;
            job.config.sync_period = period ? (uint64_t)period : WEFT_NEVER;
            cr_assert_eq(run_job(&job, 4), WEFT_ERR_COMPUTE);
            lost[2 * mode + (period > 0)] = job.kept[1];
            for (int r = 0; r < 4; r++)
                cr_assert(r == 1 || job.status[r] < 0);
        }
}

/* Rank 1 gives up while the others look again and again whether a synchronisation has failed, which
 * the engine's thread tells them: the thread sanitizer sees whether both take the lock. */
static int look_again(struct weft_context *context, struct job *job, int rank)
{
    struct weft_group_average *average = create(context, &job->config, job->model[rank], COUNT);
    if (rank == 1) {
        job->kept[rank] = average;
        await_stage(job, weft_context_size(context) - 1);
        return WEFT_ERR_COMPUTE;
    }
    int status = weft_group_average_step(average, NULL);
    atomic_fetch_add(&job->stage, 1);
    while (status == WEFT_ERR_TIMEOUT)
        status = weft_group_average_wait(average, NULL);
    CHECK(status < 0 && weft_error_text()[0]);
    CHECK(weft_group_average_destroy(average) < 0);
    return WEFT_OK;
}

static struct weft_group_average *given_up[20]; /* nobody can free them any more */

Test(average_misuse, a_failure_is_looked_for_under_the_lock, .timeout = 140)
{
    for (size_t i = 0; i < sizeof given_up / sizeof given_up[0]; i++) {
        struct job job = new_job(look_again);
        job.config.mode = WEFT_AVERAGE_WAITING;
        job.config.sync_period = 1;
        job.config.deadline_ns = 1000;
        cr_assert_eq(run_job(&job, 3), WEFT_ERR_COMPUTE);
        given_up[i] = job.kept[1];
    }
}

/* Rank 1 stops for ever: deadlines end the waits of the others at the synchronisation and name it.
 */
static int one_stops(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT] = {0};
    struct weft_group_average *average = create(context, &job->config, model, COUNT);
    struct weft_group_average_result result = {.struct_size = sizeof result};
    int status = WEFT_OK;
    for (int step = 0; step < 8 && status == WEFT_OK; step++) {
        status = weft_context_sleep(context, 1000000);
        if (status == WEFT_OK)
            status = weft_group_average_step(average, &result);
    }
    CHECK(status < 0);
    if (rank != 1) {
        CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), "1 (no answer)");
    }
    /* A deadline is no failure: this rank leaves, and that takes no time. */
    CHECK_STATUS(weft_group_average_destroy(average), rank == 1 ? WEFT_ERR_CANCELLED : WEFT_OK);
    return WEFT_OK;
}

/* Among many ranks who is missing is found by following those who wait for each other. */
static int one_of_many_is_late(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT] = {0};
    struct weft_group_average *average = create(context, &job->config, model, COUNT);
    int ranks = weft_context_size(context), late = 2 * ranks / 3, status = WEFT_OK;
    for (int step = 0; step < 4 && status == WEFT_OK; step++) {
        if (rank == late && step == 2)
            OK(weft_context_sleep(context, 1000000000));
        status = weft_group_average_step(average, NULL);
        if (rank == late || step != 3 || status == WEFT_OK)
            continue;
        char named[64];
        snprintf(named, sizeof named, "rank %d has not arrived (at step 2)", late);
        CHECK_STATUS(status, WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), named);
        while (status == WEFT_ERR_TIMEOUT)
            status = weft_group_average_wait(average, NULL);
        OK(status);
    }
    OK(status);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(average_misuse, one_of_many_that_is_late_is_named, .timeout = 140)
{
    static const int sizes[] = {65, 96, 128, 200};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i += SWEPT(1, 3)) {
        struct weft_virtual_config virtual;
        struct job job = new_job(one_of_many_is_late);
        job.config.sync_period = 4;
        job.config.deadline_ns = 50000000;
        weft_virtual_config_init(&virtual);
        cr_assert_eq(weft_virtual_run(sizes[i], &virtual, enter, &job), WEFT_OK, "%s",
                     weft_error_text());
    }
}

Test(average_misuse, a_rank_that_has_stopped_is_named)
{
    struct weft_virtual_fault fault = {1, 2500000, WEFT_NEVER};
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    config.faults = &fault;
    config.fault_count = 1;
    for (int mode = WEFT_AVERAGE_WAIT_AVOIDING; mode <= WEFT_AVERAGE_NONE; mode++) {
        struct job job = new_job(one_stops);
        job.config.mode = (weft_average_mode_t)mode;
        job.config.sync_period = 8;
        job.config.deadline_ns = 50000000;
        if (mode != WEFT_AVERAGE_NONE)
            job.config.group_size = 1;
        weft_virtual_run(4, &config, enter, &job);
    }
}

/* Every allocation fails in turn, on whichever rank it happens: all say so, and the next try works.
 */
static int try_twice(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT] = {0};
    struct weft_piece tensor = {model, COUNT};
    struct weft_group_average_config config = job->config;
    struct weft_group_average *average = NULL;
    config.tensors = &tensor;
    config.tensor_count = 1;
    int status = weft_group_average_create(&average, context, &config);
    if (status != WEFT_OK) {
        CHECK(status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER);
        CHECK(weft_error_text()[0] && !average);
        job->status[rank] = status;
        OK(weft_group_average_create(&average, context, &config));
    }
    OK(weft_group_average_step(average, NULL));
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

static int any_allocation(struct weft_context *context, struct job *job, int rank)
{
    if (rank == 0)
        atomic_store(&weft__alloc_countdown, job->number);
    return try_twice(context, job, rank);
}

Test(average_misuse, creation_without_memory, .timeout = 140)
{
    struct job job = new_job(any_allocation);
    int spared = 0;
    for (job.number = 1; !spared && job.number < 10000; job.number++) {
        OK(run_job(&job, 1));
        spared = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
    }
    cr_assert_gt(job.number, 20);
    cr_assert_lt(job.number, 10000);
}
