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
    QUIET(weft_context_cost(context, &model));
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

static void all_quiet(const char *text)
{
    OK(weft_error_set_text(WEFT_OK, text));
    build(text);
    use(text);
    QUIET(weft_local_run(3, NULL, nothing, NULL));
    QUIET(weft_virtual_run(3, NULL, nothing, NULL));
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
