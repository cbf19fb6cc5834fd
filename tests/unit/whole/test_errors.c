/* SPDX-License-Identifier: BSD-3-Clause */
/* Errors name what began them; what succeeds leaves no text. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "support/ranks.h"

/* ---- the root of a failure ---- */

/* Rank 1 gives a config of no size; the others hear that it has failed there. */
static int one_is_wrong(struct weft_context *context, void *user)
{
    float memory[4] = {0};
    struct weft_piece tensor = {.data = memory, .count = 4};
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;
    (void)user;
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    if (weft_context_rank(context) == 1)
        config.struct_size = 0;
    int status = weft_group_average_create(&average, context, &config);
    weft_group_average_destroy(average);
    return status;
}

/* Rank 3 fails, and its peers wait for it in a barrier. */
static int one_fails(struct weft_context *context, void *user)
{
    struct weft_run *run = NULL;
    (void)user;
    int status = weft_template_create_run(&run, context, "barrier", NULL);
    for (int i = 0; i < 3 && status == WEFT_OK; i++)
        status = weft_run_execute(run);
    if (status == WEFT_OK && weft_context_rank(context) == 3)
        status = weft_error_set_text(WEFT_ERR_IO, "the 100% culprit");
    else if (status == WEFT_OK)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    return status;
}

static void expect_culprits(int (*run)(weft_rank_fn fn))
{
    for (int i = 0; i < 10; i++) {
        CHECK_STATUS(run(one_is_wrong), WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), "rank 1: ");
        CHECK_TEXT(weft_error_text(), "struct_size");
        CHECK_STATUS(run(one_fails), WEFT_ERR_IO);
        CHECK_TEXT(weft_error_text(), "rank 3: the 100% culprit");
    }
}

static int run_local(weft_rank_fn fn)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    return weft_local_run(5, &config, fn, NULL);
}

static int run_virtual(weft_rank_fn fn)
{
    return weft_virtual_run(5, NULL, fn, NULL);
}

Test(errors, local_ranks_name_the_culprit)
{
    expect_culprits(run_local);
}

Test(errors, virtual_ranks_name_the_culprit)
{
    expect_culprits(run_virtual);
}

/* ---- success ---- */

/* Calls that succeed; `text` is the text before and after each. */
#define QUIET(call)                                                                                \
    do {                                                                                           \
        OK(call);                                                                                  \
        CHECK(strcmp(weft_error_text(), text) == 0);                                               \
    } while (0)

static void build(const char *text)
{
    for (size_t t = 0; t < weft_template_count(); t++) {
        const char *name = weft_template_at(t)->name;
        struct weft_schedule *schedule = NULL;
        struct weft_plan *plan = NULL;
        const char *algo = NULL;
        double cost;
        CHECK(weft_template_find(name));
        QUIET(weft_template_choose(name, 4, NULL, &algo, &cost));
        QUIET(weft_template_build(name, 1, 4, NULL, &schedule));
        QUIET(weft_schedule_commit(schedule, &plan));
        weft_plan_destroy(plan);
        weft_schedule_destroy(schedule);
    }
}

static void use(const char *text)
{
    struct weft_context *context = NULL;
    struct weft_context_config config;
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    struct weft_cost_model model = {.struct_size = sizeof model};
    struct weft_local *local = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    char *report = NULL;
    int host;
    weft_context_config_init(&config);
    weft_cost_model_init(&model, "local");
    QUIET(weft_local_create(&local, 1, NULL));
    QUIET(weft_context_create_local(&context, local, 0, &config));
    QUIET(weft_context_get_config(context, &config));
    QUIET(weft_context_get_cost(context, &model));
    QUIET(weft_context_hosts(context, &host));
    QUIET(weft_context_get_stats(context, &stats));
    QUIET(weft_context_progress(context));
    QUIET(weft_process_progress());
    QUIET(weft_context_sleep(context, 1));
    QUIET(weft_template_create_plan(&plan, context, "barrier", NULL));
    QUIET(weft_run_create(&run, context, plan, NULL));
    QUIET(weft_run_start(run));
    QUIET(weft_run_wait(run, WEFT_NEVER));
    QUIET(weft_run_execute(run));
    QUIET(weft_run_test(run));
    QUIET(weft_run_cancel(run));
    QUIET(weft_run_reclaim(run));
    QUIET(weft_run_set_deadline(run, 1000000000));
    QUIET(weft_run_set_ended(run, NULL, NULL));
    QUIET(weft_run_report(run, &report));
    weft_memory_free(report);
    weft_run_destroy(run);
    QUIET(weft_template_create_run(&run, context, "barrier", NULL));
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_context_destroy(context);
    weft_local_destroy(local);
    CHECK(strcmp(weft_error_text(), text) == 0);
}

static int nothing(struct weft_context *context, void *user)
{
    (void)context, (void)user;
    return WEFT_OK;
}

/* What reads, writes and looks at schedules, whatever it finds wrong with them. */
static void look(const char *text)
{
    static const char source[] = "weft 1\nparam rows = 2\nschedule \"broken\" size any\n"
                                 "ranks all {\n  input x f32 rows\n  output y f32 rows\n"
                                 "  recv y from (rank + 1) % size tag 0\n"
                                 "  send x to (rank + 1) % size tag 0 after n0\n}\n";
    const struct weft_parameter given = {"rows", "3"};
    struct weft_read_options options;
    struct weft_parameter *parameters = NULL;
    struct weft_schedule **schedules = NULL;
    struct weft_check_report *report = NULL;
    struct weft_sim_config sim;
    struct weft_sim_result *result = NULL;
    char *written = NULL;
    size_t count = 0, length = 0;
    weft_read_options_init(&options);
    options.size = 3;
    options.parameters = &given;
    options.parameter_count = 1;
    QUIET(weft_schedule_read_parameters(source, sizeof source - 1, &parameters, &count));
    weft_memory_free(parameters);
    QUIET(weft_schedule_read_with(source, sizeof source - 1, &options, &schedules, &count));
    const struct weft_schedule *const *all = (const struct weft_schedule *const *)schedules;
    for (int format = WEFT_FORMAT_TEXT; format <= WEFT_FORMAT_DOT; format++) {
        QUIET(weft_schedule_write(all, count, (weft_format_t)format, &written, &length));
        weft_memory_free(written);
    }
    QUIET(weft_schedule_write_goal(all, count, NULL, &written, &length));
    weft_memory_free(written);
    QUIET(weft_check(all, count, NULL, &report));
    CHECK(!weft_check_report_ok(report));
    weft_check_report_destroy(report);
    weft_sim_config_init(&sim);
    sim.ranks = (int)count;
    sim.schedules = all;
    QUIET(weft_simulate(&sim, &result));
    CHECK(!result->complete);
    weft_sim_result_destroy(result);
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free((void *)schedules);
}

/* What asks the machine, and files that are not there yet. */
static void probe(const char *text)
{
    char path[] = "/tmp/weft_errors_XXXXXX";
    struct weft_topology topology = {.struct_size = sizeof topology};
    struct weft_cost_model model = {.struct_size = sizeof model};
    struct weft_net net = {.struct_size = sizeof net};
    struct weft_trace *trace = NULL;
    weft_dtype_t dtype;
    const struct weft_op *op;
    int file = mkstemp(path);
    CHECK(file >= 0 && close(file) == 0 && unlink(path) == 0);
    QUIET(weft_topology_get(&topology));
    CHECK(weft_transport_find("virtual"));
    weft_cost_model_init(&model, "virtual");
    weft_net_init(&net);
    QUIET(weft_net_parse("L=1", &net));
    QUIET(weft_dtype_parse("f16", &dtype));
    QUIET(weft_op_parse("max", &op));
    QUIET(weft_cost_model_write(path, "local", &model, &net, 0));
    QUIET(weft_cost_model_write(path, "mpi", &model, &net, 0));
    QUIET(weft_cost_model_read(path, "mpi", &model, &net));
    QUIET(weft_trace_create(&trace));
    QUIET(weft_trace_align(trace));
    QUIET(weft_trace_write(trace, path));
    QUIET(weft_trace_read(trace, path));
    weft_trace_destroy(trace);
    CHECK(unlink(path) == 0);
}

/* The collective objects, alone. */
static int average(struct weft_context *context, void *user)
{
    const char *text = user;
    float data[8] = {0};
    struct weft_piece tensor = {data, 8};
    struct weft_group_average_config group;
    struct weft_pair_average_config pair;
    struct weft_sparse_average_config sparse;
    struct weft_gossip_config gossip;
    struct weft_group_average *groups = NULL;
    struct weft_pair_average *pairs = NULL;
    struct weft_sparse_average *largest = NULL;
    struct weft_gossip *neighbours = NULL;
    weft_error_set_text(WEFT_OK, text);
    weft_group_average_config_init(&group);
    weft_pair_average_config_init(&pair);
    weft_sparse_average_config_init(&sparse);
    weft_gossip_config_init(&gossip);
    group.tensors = pair.tensors = sparse.tensors = gossip.tensors = &tensor;
    group.tensor_count = pair.tensor_count = sparse.tensor_count = gossip.tensor_count = 1;
    QUIET(weft_group_average_create(&groups, context, &group));
    QUIET(weft_pair_average_create(&pairs, context, &pair));
    for (int method = WEFT_SPARSE_OKTOPK; method >= WEFT_SPARSE_GTOPK; method--) {
        OK(weft_sparse_average_destroy(largest));
        sparse.method = (weft_sparse_method_t)method;
        QUIET(weft_sparse_average_create(&largest, context, &sparse));
        QUIET(weft_sparse_average_step(largest, NULL));
    }
    QUIET(weft_gossip_create(&neighbours, context, &gossip));
    for (int step = 0; step < 12; step++) {
        QUIET(weft_group_average_step(groups, NULL));
        QUIET(weft_pair_average_step(pairs));
        QUIET(weft_sparse_average_step(largest, NULL));
        QUIET(weft_gossip_step(neighbours));
    }
    QUIET(weft_pair_average_synchronise(pairs));
    QUIET(weft_gossip_destroy(neighbours));
    QUIET(weft_sparse_average_destroy(largest));
    QUIET(weft_pair_average_destroy(pairs));
    QUIET(weft_group_average_destroy(groups));
    return WEFT_OK;
}

static void all_quiet(const char *text)
{
    char of_ranks[64];
    struct weft_context_config helped;
    weft_context_config_init(&helped);
    helped.progress = WEFT_PROGRESS_HELPER;
    snprintf(of_ranks, sizeof of_ranks, "%s", text);
    OK(weft_error_set_text(WEFT_OK, text));
    build(text);
    use(text);
    look(text);
    probe(text);
    QUIET(weft_local_run(3, NULL, nothing, NULL));
    QUIET(weft_virtual_run(3, NULL, nothing, NULL));
    QUIET(weft_local_run(3, &helped, average, of_ranks));
    QUIET(weft_virtual_run(3, NULL, average, of_ranks));
}

Test(errors, what_succeeds_leaves_no_text)
{
    all_quiet("");
}

Test(errors, what_succeeds_leaves_the_text_of_an_error_before)
{
    all_quiet("an error of before");
}

/* Costs of a file that says nothing of the transport are no error of the context's creation. */
Test(errors, what_the_environment_got_wrong_leaves_no_text)
{
    char path[] = "/tmp/weft_errors_XXXXXX";
    int file = mkstemp(path);
    const char costs[] = "nonsense";
    CHECK(file >= 0 && write(file, costs, sizeof costs - 1) == (ssize_t)sizeof costs - 1);
    close(file);
    CHECK(setenv("WEFT_COST", path, 1) == 0 && setenv("WEFT_LOG", "error", 1) == 0);
    use("");
    CHECK(unlink(path) == 0);
}

Test(errors, a_text_is_set_as_it_is)
{
    CHECK_STATUS(weft_error_set_text(WEFT_ERR_STATE, "100%s"), WEFT_ERR_STATE);
    CHECK(strcmp(weft_error_text(), "100%s") == 0);
    CHECK_STATUS(weft_error_set_text(WEFT_ERR_STATE, NULL), WEFT_ERR_STATE);
    CHECK(strcmp(weft_error_text(), "") == 0);
}
