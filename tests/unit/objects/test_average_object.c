/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging as an object: checkpoints, deadlines, reports, statistics, numbers. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "average_job.h"

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

Test(average_object, a_checkpoint_changes_nothing, .timeout = 140)
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

Test(average_object, ranks_restored_at_different_steps, .timeout = 140)
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
    float model[COUNT] = {0};
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

Test(average_object, a_deadline_names_who_is_missing, .timeout = 140)
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

/* Rank 2 has stopped, and rank 0 does not run when its deadline passes: it is late when it does,
 * and must not wait for an answer then. */
static int late_itself(struct weft_context *context, struct job *job, int rank)
{
    float model[COUNT] = {0};
    struct weft_group_average *average = create(context, &job->config, model, COUNT);
    if (weft_context_sleep(context, 100000) == WEFT_OK) {
        uint64_t end = rank == 0 ? 20000000 : weft_context_now(context) + job->config.deadline_ns;
        CHECK_STATUS(weft_group_average_step(average, NULL), WEFT_ERR_TIMEOUT);
        CHECK(weft_context_now(context) == end);
        CHECK_TEXT(weft_error_text(), "2 (no answer)");
    }
    weft_group_average_destroy(average);
    return WEFT_OK;
}

Test(average_object, a_deadline_that_has_passed_is_over)
{
    const struct weft_virtual_fault faults[] = {
        {.rank = 2, .at_ns = 50000, .for_ns = WEFT_NEVER},
        {.rank = 0, .at_ns = 1000000, .for_ns = 19000000},
    };
    struct weft_virtual_config config;
    struct job job = new_job(late_itself);
    job.config.sync_period = 1;
    job.config.deadline_ns = 5000000;
    weft_virtual_config_init(&config);
    config.faults = faults;
    config.fault_count = 2;
    config.limit_ns = 1000000000;
    OK(weft_virtual_run(3, &config, enter, &job));
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

Test(average_object, reports_come_from_any_thread, .timeout = 140)
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
    if (weft_context_get_cost(context, &cost) != WEFT_OK)
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

Test(average_object, bytes_are_those_of_the_plans, .timeout = 140)
{
    count_with_groups();
}

/* Costs at which messages are all, and at which bytes are: they choose different algorithms. */
Test(average_object, algorithms_are_chosen_by_the_costs_of_the_context, .timeout = 140)
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
Test(average_object, algorithms_are_chosen_by_the_hosts_of_the_context, .timeout = 140)
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

Test(average_object, averages_are_rounded_once, .timeout = 140)
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

Test(average_object, models_of_any_size, .timeout = 140)
{
    static const int counts[] = {0, 0, 1, 2, SWEPT(1000000, 100000)};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int ranks = 1; ranks <= 5; ranks += 2) {
            struct job job = new_job(sizes);
            job.number = counts[i];
            job.kind = i == 1;
            job.config.sync_period = 1;
            OK(run_job(&job, ranks));
        }
}
