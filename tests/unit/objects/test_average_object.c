/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging as an object: checkpoints, deadlines, reports, statistics, numbers, misuse,
 * failures. */
#include <criterion/criterion.h>
#include <math.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "support/ranks.h"

enum { MOST = 8, COUNT = 11 };

struct job {
    int (*program)(struct weft_context *context, struct job *job, int rank);
    struct weft_group_average_config config;
    int number;
    int kind;
    _Atomic int stage;
    float model[MOST][COUNT];
    struct weft_group_average *kept[MOST];
    int status[MOST];
};

static int enter(struct weft_context *context, void *user)
{
    struct job *job = user;
    return job->program(context, job, weft_context_rank(context));
}

static struct job new_job(int (*program)(struct weft_context *, struct job *, int))
{
    struct job job = {.program = program};
    weft_group_average_config_init(&job.config);
    return job;
}

static int run_job(struct job *job, int ranks)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    return weft_local_run(ranks, &config, enter, job);
}

static void await_stage(struct job *job, int stage)
{
    while (atomic_load(&job->stage) < stage)
        sched_yield();
}

static struct weft_group_average *create(struct weft_context *context,
                                         const struct weft_group_average_config *settings,
                                         void *model, size_t count)
{
    struct weft_piece tensor = {model, count};
    struct weft_group_average *average = NULL;
    struct weft_group_average_config config = *settings;
    config.tensors = &tensor;
    config.tensor_count = 1;
    OK(weft_group_average_create(&average, context, &config));
    return average;
}

/* ---- checkpoints ---- */

static void train(struct weft_group_average *average, float *model, int from, int upto, int rank)
{
    for (int step = from; step < upto; step++) {
        struct weft_group_average_result result = {.struct_size = sizeof result};
        for (int i = 0; i < COUNT; i++)
            model[i] = model[i] * 0.75f + (float)((rank + 2) * (step + i));
        OK(weft_group_average_step(average, &result));
        CHECK(!result.stale && result.version == (uint64_t)step);
    }
}

/* Twenty steps, in one piece or with a checkpoint after job->number. */
static int in_two_pieces(struct weft_context *context, struct job *job, int rank)
{
    float *model = job->model[rank];
    memset(model, 0, sizeof job->model[rank]);
    struct weft_group_average *average = create(context, &job->config, model, COUNT);
    struct weft_group_average_state state = {.struct_size = sizeof state};
    train(average, model, 0, job->number, rank);
    OK(weft_group_average_get_state(average, &state));
    CHECK(state.next == (uint64_t)job->number && state.stats.steps == state.next);
    OK(weft_group_average_destroy(average));

    struct weft_group_average_config config = job->config;
    config.state = &state;
    average = create(context, &config, model, COUNT);
    CHECK(weft_group_average_next(average) == (uint64_t)job->number);
    train(average, model, job->number, 20, rank);
    struct weft_group_average_stats all = {.struct_size = sizeof all};
    OK(weft_group_average_get_stats(average, &all));
    CHECK(all.steps == 20 && all.syncs == 4 && all.behind[0] == 20);
    CHECK(all.active_versions == 20 && all.passive_versions == 0);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(average_object, a_checkpoint_changes_nothing, .timeout = 60)
{
    struct job whole = new_job(in_two_pieces);
    whole.config.mode = WEFT_AVERAGE_WAITING;
    whole.config.sync_period = 5;
    whole.number = 0;
    OK(run_job(&whole, 7));
    for (int at = 3; at <= 20; at += at == 10 ? 1 : 7) { /* 3, 10 (a synchronisation), 11, 18 */
        struct job job = whole;
        job.number = at;
        OK(run_job(&job, 7));
        cr_assert(memcmp(job.model, whole.model, sizeof job.model) == 0, "checkpoint at %d", at);
    }
}

/* Ranks that were saved at different steps: those behind pass the synchronisation at 3 without one.
 */
static int at_different_steps(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT] = {0};
    struct weft_group_average_config config = job->config;
    struct weft_group_average_state state = {.struct_size = sizeof state,
                                             .next = rank == 0 ? 6 : 2 + (uint64_t)rank % 2};
    struct weft_group_average_result result = {.struct_size = sizeof result};
    config.state = &state;
    struct weft_group_average *average = create(context, &config, model, COUNT);
    for (uint64_t step = state.next; step < 8; step++) {
        model[0] = 1;
        OK(weft_group_average_step(average, &result));
        CHECK(result.synchronised == (step == 7));
        CHECK(result.members == 0 || result.version >= 6);
    }
    CHECK(model[0] == 1);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(average_object, ranks_restored_at_different_steps, .timeout = 60)
{
    for (int mode = WEFT_AVERAGE_WAIT_AVOIDING; mode <= WEFT_AVERAGE_NONE; mode++)
        for (int ranks = 2; ranks <= MOST; ranks += 3) {
            struct job job = new_job(at_different_steps);
            job.config.mode = (weft_average_mode_t)mode;
            job.config.sync_period = 4;
            job.config.patience_ns = WEFT_NS_NONE;
            OK(run_job(&job, ranks));
        }
}

/* ---- deadlines and reports ---- */

static int late_at_a_sync(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT] = {(float)rank};
    struct weft_group_average *average = create(context, &job->config, model, COUNT);
    struct weft_group_average_result result = {.struct_size = sizeof result};
    struct weft_group_average_state state = {.struct_size = sizeof state};
    char *text = NULL;
    for (int i = 0; i < COUNT; i++)
        model[i] = (float)rank;
    if (rank == 1) {
        await_stage(job, weft_context_size(context) - 1);
        OK(weft_group_average_report(average, WEFT_NEVER, &text));
        CHECK_TEXT(text, "rank 1 of");
        CHECK_TEXT(text, "rank 0: step 1");
        int status = weft_group_average_step(average, &result); /* others may be slow as well */
        while (status == WEFT_ERR_TIMEOUT)
            status = weft_group_average_wait(average, &result);
        OK(status);
    } else {
        CHECK_STATUS(weft_group_average_step(average, &result), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), "version 0, a synchronisation");
        CHECK_TEXT(weft_error_text(), "have not arrived: ");
        CHECK_TEXT(weft_error_text(), "1 ("); /* "at step 0", if it has answered in time */
        CHECK_STATUS(weft_group_average_step(average, &result), WEFT_ERR_STATE);
        CHECK_STATUS(weft_group_average_post(average), WEFT_ERR_STATE);
        CHECK_STATUS(weft_group_average_get_state(average, &state), WEFT_ERR_STATE);
        OK(weft_group_average_report(average, WEFT_NEVER, &text));
        CHECK_TEXT(text, "version 0 is a synchronisation");
        CHECK_TEXT(text, "rank 1: step 0");
        atomic_fetch_add(&job->stage, 1);
        int status;
        while ((status = weft_group_average_wait(average, &result)) == WEFT_ERR_TIMEOUT)
            continue;
        OK(status);
    }
    weft_memory_free(text);
    CHECK(result.synchronised && !result.stale && result.version == 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(model[i] == (float)(weft_context_size(context) - 1) / 2);
    CHECK_STATUS(weft_group_average_wait(average, &result), WEFT_ERR_STATE);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(average_object, a_deadline_names_who_is_missing, .timeout = 60)
{
    for (int mode = WEFT_AVERAGE_WAIT_AVOIDING; mode <= WEFT_AVERAGE_NONE; mode++)
        for (int ranks = 2; ranks <= 5; ranks++) {
            struct job job = new_job(late_at_a_sync);
            job.config.mode = (weft_average_mode_t)mode;
            job.config.sync_period = 1;
            job.config.deadline_ns = 3000000;
            OK(run_job(&job, ranks));
        }
}

/* A report from another thread while the application waits. */
static void *report_main(void *user)
{
    char *text = NULL;
    for (int i = 0; i < 20; i++) {
        OK(weft_group_average_report(user, 100000000, &text));
        CHECK_TEXT(text, "rank 1");
        weft_memory_free(text);
    }
    return NULL;
}

static int report_beside(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT] = {0};
    pthread_t thread;
    struct weft_group_average *average = create(context, &job->config, model, COUNT);
    if (rank == 0)
        CHECK(pthread_create(&thread, NULL, report_main, average) == 0);
    for (int step = 0; step < 200; step++)
        OK(weft_group_average_step(average, NULL));
    if (rank == 0)
        CHECK(pthread_join(thread, NULL) == 0);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(average_object, reports_come_from_any_thread, .timeout = 60)
{
    struct job job = new_job(report_beside);
    OK(run_job(&job, 3));
}

/* ---- statistics ---- */

/* What a plan of an allreduce sends. By the costs that WEFT_COST gives the context, if it does. */
static void count_sends(struct weft_context *context, int place, int members, const int *hosts,
                        uint64_t *messages, uint64_t *bytes)
{
    struct weft_template_params params;
    struct weft_cost_model cost = {.struct_size = sizeof cost};
    struct weft_schedule *schedule = NULL;
    weft_template_params_init(&params);
    if (weft_context_cost(context, &cost) != WEFT_OK)
        weft_cost_model_init(&cost, weft_context_transport(context));
    params.count = COUNT;
    params.cost = &cost;
    params.hosts = hosts;
    OK(weft_template_build("allreduce", place, members, &params, &schedule));
    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++) {
        struct weft_node_info node = {.struct_size = sizeof node};
        OK(weft_schedule_get_node(schedule, (weft_node_t)n, &node));
        if (node.kind == WEFT_NODE_SEND) {
            *messages += 1;
            *bytes += node.regions[0].count * sizeof(float);
        }
    }
    weft_schedule_destroy(schedule);
}

static int count_all(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT] = {0};
    struct weft_group_average *average = create(context, &job->config, model, COUNT);
    struct weft_group_average_stats s = {.struct_size = sizeof s};
    struct weft_groups *groups = NULL;
    uint64_t messages = 0, bytes = 0;
    int list[MOST], hosts[MOST], members, place, ranks = weft_context_size(context);
    OK(weft_context_hosts(context, hosts));
    OK(weft_groups_create(&groups, ranks, job->config.group_size));
    for (uint64_t step = 0; step < 12; step++) {
        OK(weft_group_average_step(average, NULL));
        OK(weft_groups_at(groups, step, rank, list, &members, &place));
        if (step % 4 == 3)
            count_sends(context, rank, ranks, hosts, &messages, &bytes);
        else
            count_sends(context, place, members, NULL, &messages, &bytes);
    }
    weft_groups_destroy(groups);
    OK(weft_group_average_get_stats(average, &s));
    CHECK(s.messages == messages && s.bytes == bytes);
    CHECK(s.syncs == 3 && s.steps == 12 && s.active_versions == 12);
    CHECK(s.waited_sync_ns <= s.waited_ns);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

static void count_with_groups(void)
{
    for (int ranks = 1; ranks <= 7; ranks += 2)
        for (int size = 1; size <= ranks; size++) {
            struct job job = new_job(count_all);
            job.config.mode = WEFT_AVERAGE_WAITING;
            job.config.sync_period = 4;
            job.config.group_size = size;
            OK(run_job(&job, ranks));
        }
}

Test(average_object, bytes_are_those_of_the_plans, .timeout = 60)
{
    count_with_groups();
}

/* Costs at which messages are all, and at which bytes are: they choose different algorithms. */
Test(average_object, algorithms_are_chosen_by_the_costs_of_the_context, .timeout = 60)
{
    for (int i = 0; i < 2; i++) {
        char path[] = "/tmp/weft-cost-XXXXXX";
        struct weft_cost_model cost;
        struct weft_net net;
        int file = mkstemp(path);
        CHECK(file >= 0 && close(file) == 0 && unlink(path) == 0);
        weft_cost_model_init(&cost, "local");
        weft_net_init(&net);
        cost.alpha_us = i == 0 ? 1e6 : 1e-6;
        cost.beta_us_per_byte = i == 0 ? 1e-9 : 1e3;
        OK(weft_cost_model_write(path, "local", &cost, &net, 0));
        setenv("WEFT_COST", path, 1);
        count_with_groups();
        unsetenv("WEFT_COST");
        unlink(path);
    }
}

/* Two ranks a host: the synchronisation takes that into account, a group does not. */
Test(average_object, algorithms_are_chosen_by_the_hosts_of_the_context, .timeout = 60)
{
    struct job job = new_job(count_all);
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    config.ranks_per_host = 2;
    job.config.mode = WEFT_AVERAGE_WAITING;
    job.config.sync_period = 4;
    job.config.group_size = 2;
    OK(weft_virtual_run(6, &config, enter, &job));
}

/* ---- numbers ---- */

static double value_of(int rank, size_t i, int step)
{
    return (double)((int)(i * 37 + (size_t)rank * 11 + (size_t)step * 5) % 255 - 127) / 16;
}

/* Sums in f32, rounded once at the end: of small numbers, whose sums are exact in any order. */
static int halves(struct weft_context *context, struct job *job, int rank)
{
    enum { MANY = 4099 }; /* more than a block that is converted at a time */
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F64, WEFT_F32};
    weft_dtype_t dtype = dtypes[job->kind];
    int ranks = weft_context_size(context);
    double *wide = calloc(MANY, sizeof *wide), *model = calloc(MANY, sizeof *model);
    double *expected = calloc(MANY, sizeof *expected);
    float *narrow = calloc(MANY, sizeof *narrow);
    CHECK(wide && model && narrow && expected);
    struct weft_group_average_config config = job->config;
    config.dtype = dtype;
    struct weft_group_average *average = create(context, &config, model, MANY);
    for (int step = 0; step < 4; step++) {
        for (size_t i = 0; i < MANY; i++) {
            wide[i] = value_of(rank, i, step);
            double sum = 0;
            for (int r = 0; r < ranks; r++)
                sum += value_of(r, i, step);
            wide[i] = dtype == WEFT_BF16 ? (double)(int)wide[i] : wide[i];
            narrow[i] = (float)sum;
            if (dtype == WEFT_BF16) {
                narrow[i] = 0;
                for (int r = 0; r < ranks; r++)
                    narrow[i] += (float)(int)value_of(r, i, step);
            }
            narrow[i] /= (float)ranks;
            expected[i] = sum / ranks;
        }
        OK(weft_convert(dtype, model, WEFT_F64, wide, MANY));
        if (dtype == WEFT_F64)
            memcpy(wide, expected, MANY * sizeof *wide);
        else
            OK(weft_convert(dtype, wide, WEFT_F32, narrow, MANY));
        OK(weft_group_average_step(average, NULL));
        CHECK(memcmp(model, wide, MANY * weft_dtype_size(dtype)) == 0);
    }
    OK(weft_group_average_destroy(average));
    free(wide);
    free(model);
    free(narrow);
    free(expected);
    return WEFT_OK;
}

Test(average_object, averages_are_rounded_once, .timeout = 60)
{
    for (int kind = 0; kind < 4; kind++)
        for (int ranks = 1; ranks <= 6; ranks += ranks < 3 ? 1 : 3)
            for (int period = 0; period <= 1; period++) {
                struct job job = new_job(halves);
                job.kind = kind;
                job.config.mode = WEFT_AVERAGE_WAITING;
                job.config.group_size = ranks;
                job.config.sync_period = period ? (uint64_t)period : WEFT_NEVER;
                OK(run_job(&job, ranks));
            }
}

/* No tensors, tensors of nothing, one element, a million. */
static int sizes(struct weft_context *context, struct job *job, int rank)
{
    size_t count = (size_t)job->number;
    float *model = calloc(count + 1, sizeof *model);
    struct weft_piece tensors[] = {
        {NULL, 0}, {model, count / 3}, {model, 0}, {model + count / 3, count - count / 3}};
    struct weft_group_average_config config = job->config;
    struct weft_group_average *average = NULL;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    CHECK(model);
    config.tensors = count || job->kind ? tensors : NULL;
    config.tensor_count = count || job->kind ? 4 : 0;
    OK(weft_group_average_create(&average, context, &config));
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < count; i++)
            model[i] = (float)(rank + step);
        if (step == 1) {
            OK(weft_group_average_post(average));
            for (size_t i = 0; i < count; i++)
                model[i] += 1;
            OK(weft_group_average_wait(average, &result));
        } else {
            OK(weft_group_average_step(average, &result));
        }
        CHECK(result.synchronised);
        for (size_t i = 0; i < count; i++)
            CHECK(model[i] == (float)(weft_context_size(context) - 1) / 2 + (float)step +
                                  (step == 1 ? 1.f : 0.f));
    }
    OK(weft_group_average_destroy(average));
    free(model);
    return WEFT_OK;
}

Test(average_object, models_of_any_size, .timeout = 60)
{
    static const int counts[] = {0, 0, 1, 2, 1000000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int ranks = 1; ranks <= 5; ranks += 2) {
            struct job job = new_job(sizes);
            job.number = counts[i];
            job.kind = i == 1;
            job.config.sync_period = 1;
            OK(run_job(&job, ranks));
        }
}

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

Test(average_object, wrong_settings_are_named)
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

Test(average_object, late_ranks_need_a_helper)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_group_average_config config;
    weft_group_average_config_init(&config);
    refused(alone.context, &config, WEFT_ERR_STATE, WORDS("helper progress"));
    alone_destroy(&alone);
}

Test(average_object, wrong_calls_are_named)
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
    NAMED(weft_group_average_get_stats(none, &stats), WEFT_ERR_INVALID, "get_stats", "`average`");
    NAMED(weft_group_average_get_stats(average, NULL), WEFT_ERR_INVALID, "get_stats", "`stats`");
    NAMED(weft_group_average_report(none, 0, &text), WEFT_ERR_INVALID, "report", "`average`");
    NAMED(weft_group_average_report(average, 0, NULL), WEFT_ERR_INVALID, "report", "`text`");
    NAMED(weft_group_average_wait(average, &result), WEFT_ERR_STATE, "wait", "no step");
    OK(weft_group_average_post(average));
    NAMED(weft_group_average_post(average), WEFT_ERR_STATE, "post", "step 0");
    NAMED(weft_group_average_step(average, &result), WEFT_ERR_STATE, "step", "step 0");
    NAMED(weft_group_average_get_state(average, &state), WEFT_ERR_STATE, "get_state", "step 0");
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
    static const char *const names[] = {"elements",     "dtype", "group_size",
                                        "sync_period",  "mode",  "activation",
                                        "contribution", "seed",  "algo"};
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
    CHECK_STATUS(weft_group_average_create(&average, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "do not agree");
    CHECK_TEXT(weft_error_text(), names[job->kind]);
    if (job->kind == 1)
        CHECK_TEXT(weft_error_text(), odd_dtypes[job->number]);
    if (job->kind == 8)
        CHECK_TEXT(weft_error_text(), odd_algos[job->number]);
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

Test(average_object, ranks_must_agree, .timeout = 60)
{
    for (int kind = 0; kind < 9; kind++)
        for (int odd = 0; odd < 3; odd++) {
            struct job job = new_job(disagree);
            job.kind = kind;
            job.number = odd;
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
    return WEFT_OK;
}

static struct weft_group_average *lost[8]; /* nobody can free them any more */

Test(average_object, a_rank_that_gives_up_ends_the_steps_of_all, .timeout = 60)
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
    CHECK(weft_group_average_destroy(average) < 0);
    return WEFT_OK;
}

Test(average_object, a_rank_that_has_stopped_is_named)
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

Test(average_object, creation_without_memory, .timeout = 60)
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
