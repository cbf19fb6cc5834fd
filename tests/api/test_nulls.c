/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NULL for every pointer of every public function, and for every enum a value that it does not
 * have: refused, accepted or answered with nothing, and never a crash. The calls are generated from
 * the headers, each made in a process of its own.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"

struct null_call {
    const char *name;
    const char *what; /* it is called with */
    int status;       /* a positive number is a wrong answer */
    int64_t (*make)(void);
};

/* ---- what the other arguments are: made in the process of the call, never freed ---- */

static void *fixture_zeros(void)
{
    return calloc(1, 1 << 16);
}

static int fixture_weft_rank_fn(struct weft_context *context, void *user)
{
    (void)context;
    (void)user;
    return WEFT_OK;
}

static int fixture_weft_done_fn(void *user)
{
    (void)user;
    return 1;
}

static void fixture_weft_end_fn(void *value)
{
    (void)value;
}

static void fixture_weft_ended_fn(void *user, struct weft_run *run, int status)
{
    (void)user;
    (void)run;
    (void)status;
}

static struct weft_context *fixture_weft_context(void)
{
    return alone_create(WEFT_PROGRESS_HELPER).context;
}

static struct weft_local *fixture_weft_local(void)
{
    return alone_create(WEFT_PROGRESS_CALLER).local;
}

static struct weft_schedule *fixture_weft_schedule(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_join(s);
    return s;
}

static struct weft_plan *fixture_weft_plan(void)
{
    return commit(fixture_weft_schedule());
}

static struct weft_run *fixture_weft_run(void)
{
    return make_run(fixture_weft_context(), fixture_weft_plan(), NULL);
}

static struct weft_op *fixture_weft_op(void)
{
    struct weft_op *op = NULL;
    OK(weft_sparse_merge_op(&op));
    return op;
}

static struct weft_groups *fixture_weft_groups(void)
{
    struct weft_groups *groups = NULL;
    OK(weft_groups_create(&groups, 4, 2));
    return groups;
}

static struct weft_merge_plan *fixture_weft_merge_plan(void)
{
    struct weft_merge_plan *plan = NULL;
    struct weft_merge_cost cost;
    weft_merge_cost_init(&cost);
    OK(weft_merge_plan_create(&plan, NULL, 0, &cost, NULL));
    return plan;
}

static struct weft_trace *fixture_weft_trace(void)
{
    struct weft_trace *trace = NULL;
    OK(weft_trace_create(&trace));
    return trace;
}

static struct weft_check_report *fixture_weft_check_report(void)
{
    struct weft_check_report *report = NULL;
    const struct weft_schedule *schedule = fixture_weft_schedule();
    OK(weft_check(&schedule, 1, NULL, &report));
    return report;
}

#define OBJECT(name)                                                                               \
    static struct weft_##name *fixture_weft_##name(void)                                           \
    {                                                                                              \
        struct weft_##name##_config config;                                                        \
        struct weft_##name *object = NULL;                                                         \
        weft_##name##_config_init(&config);                                                        \
        OK(weft_##name##_create(&object, fixture_weft_context(), &config));                        \
        return object;                                                                             \
    }

OBJECT(object)
OBJECT(group_average)
OBJECT(pair_average)
OBJECT(gossip)
OBJECT(gradients)
OBJECT(server)
OBJECT(sparse_average)

/* Of a method that needs nothing that may not be there. */
static struct weft_compressed_average *fixture_weft_compressed_average(void)
{
    struct weft_compressed_average_config config;
    struct weft_compressed_average *object = NULL;
    weft_compressed_average_config_init(&config);
    config.method = WEFT_COMPRESSED_QSGD;
    OK(weft_compressed_average_create(&object, fixture_weft_context(), &config));
    return object;
}

static void use(const void *pointer)
{
    const void *volatile kept = pointer;
    (void)kept;
}

#include "null_calls.h"

/* ---- the calls ---- */

/* Functions that are told which function an error text is to name. */
static int speaks_for_others(const char *function)
{
    return !strncmp(function, "weft_error_set", 14) || !strncmp(function, "weft_sized_", 11);
}

/* Whether an error text, if there is one, begins with the function that refuses. */
static int names(const char *text, const char *function)
{
    const size_t length = strlen(function);
    return !text[0] || (!strncmp(text, function, length) && text[length] == ':');
}

/* In a process of its own. Exits with 0 if the result is one for what it was called with. */
static void call(const struct null_call *c)
{
    alarm(60);
    weft_error_set_text(WEFT_OK, "");
    int64_t result = c->make();
    if (c->status && result > 0)
        _exit(1);
    if (result == WEFT_ERR_INVALID && !speaks_for_others(c->name) &&
        !names(weft_error_text(), c->name)) {
        fprintf(stderr, "%s(), %s: \"%s\"\n", c->name, c->what, weft_error_text());
        _exit(2);
    }
    _exit(0);
}

Test(nulls, every_function_takes_null_or_refuses_it)
{
    char folder[] = "/tmp/weft-nulls-XXXXXX"; /* some write a file */
    char command[64];
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
    for (size_t i = 0; i < sizeof null_calls / sizeof null_calls[0]; i++) {
        const struct null_call *c = &null_calls[i];
        int ended = 0;
        pid_t child = fork();
        cr_assert_geq(child, 0);
        if (child == 0)
            call(c);
        cr_assert_eq(waitpid(child, &ended, 0), child);
        cr_expect(WIFEXITED(ended), "%s(), %s: signal %d", c->name, c->what, WTERMSIG(ended));
        cr_expect(!WIFEXITED(ended) || WEXITSTATUS(ended) != 1,
                  "%s(), %s: returns a positive number", c->name, c->what);
        cr_expect(!WIFEXITED(ended) || WEXITSTATUS(ended) != 2,
                  "%s(), %s: its error text names something else", c->name, c->what);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}
