/* SPDX-License-Identifier: BSD-3-Clause */
/* Traces of programs that do not come to the end of their contexts: WEFT_TRACE, stalls and signals.
 * Programs that end by a signal are children of the test. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"
#include "tests/support/compute.h"

static char folder[32];

static void setup(void)
{
    strcpy(folder, "/tmp/weft-signals-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_TRACE", folder, 1);
}

static void teardown(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(signals, .init = setup, .fini = teardown);

/* ---- what is in the folder ---- */

/* The first trace in it, NULL if there is none that is whole. */
static struct weft_trace *first_trace(void)
{
    struct weft_trace *trace = NULL;
    char path[300];
    DIR *listing = opendir(folder);
    cr_assert_not_null(listing);
    for (struct dirent *entry; !trace && (entry = readdir(listing));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        OK(weft_trace_create(&trace));
        if (weft_trace_read(trace, path) == WEFT_OK && weft_trace_span_count(trace) > 0)
            continue;
        weft_trace_destroy(trace);
        trace = NULL;
    }
    closedir(listing);
    return trace;
}

/* The trace is one of a run of `gate` that had started and not ended, with the event in it. */
static void check_trace(struct weft_trace *trace)
{
    int runs = 0, events = 0;
    cr_assert_not_null(trace, "no trace has been written");
    for (size_t i = 0; i < weft_trace_span_count(trace); i++) {
        struct weft_trace_span span = {.struct_size = sizeof span};
        weft_trace_span_init(&span);
        OK(weft_trace_get_span(trace, i, &span));
        cr_expect_str_eq(span.plan, "gate");
        cr_expect_eq(span.end, WEFT_TRACE_UNFINISHED);
        runs += span.kind == WEFT_TRACE_RUN;
        events += span.kind == WEFT_NODE_EVENT;
    }
    cr_expect_eq(runs, 1);
    cr_expect_eq(events, 1);
    weft_trace_destroy(trace);
}

/* ---- programs ---- */

/* A run that has started, and waits for an event that nobody fires. */
static struct weft_run *start_gate(struct weft_context *context)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_set_name(s, "gate");
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(weft_run_start(run));
    return run;
}

/* Ends by a signal, in a child of the test; which signal it was. */
static int ended_by(void (*program)(int number), int number)
{
    int status = 0;
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        signal(number, SIG_DFL); /* who runs the test may ignore it, as nohup does */
        alarm(60);
        program(number);
        _exit(1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void be_terminated(int number)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    start_gate(alone.context);
    raise(number);
    for (;;)
        pause();
}

static void be_terminated_while_waiting(int number)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run *run = start_gate(alone.context);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), number); /* comes in the wait, or before */
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    weft_run_wait(run, WEFT_NEVER);
}

Test(signals, a_program_that_is_terminated_leaves_its_trace)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        cr_expect_eq(ended_by(be_terminated, numbers[i]), numbers[i]);
        check_trace(first_trace());
        teardown();
        cr_assert_eq(mkdir(folder, 0777), 0);
        cr_expect_eq(ended_by(be_terminated_while_waiting, numbers[i]), numbers[i]);
        check_trace(first_trace());
        teardown();
        cr_assert_eq(mkdir(folder, 0777), 0);
    }
}

/* ---- an operation that does not return ---- */

static int stay(struct weft_call *call)
{
    (void)call;
    raise(SIGTERM);
    for (;;)
        pause();
    return WEFT_OK;
}

static void be_terminated_in_an_operation(int number)
{
    (void)number;
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "stay";
    config.compute = stay;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    add_compute(s, op, NULL, 0, 0, 0);
    weft_run_execute(make_run(alone.context, commit(s), NULL));
}

Test(signals, an_operation_that_does_not_return_is_in_the_trace)
{
    cr_expect_eq(ended_by(be_terminated_in_an_operation, SIGTERM), SIGTERM);
    struct weft_trace *trace = first_trace();
    cr_assert_not_null(trace);
    cr_expect_geq(weft_trace_span_count(trace), 1);
    weft_trace_destroy(trace);
}

/* ---- virtual ranks ---- */

static int wait_virtually(struct weft_context *context, void *user)
{
    (void)user;
    if (weft_context_rank(context) == 0)
        start_gate(context);
    for (int i = 0;; i++) {
        OK(weft_context_sleep(context, 1000));
        if (i == 10 && weft_context_rank(context) == 0)
            raise(SIGTERM);
    }
}

static void be_terminated_virtually(int number)
{
    (void)number;
    weft_virtual_run(3, NULL, wait_virtually, NULL);
}

Test(signals, virtual_ranks_that_are_terminated_leave_their_traces)
{
    cr_expect_eq(ended_by(be_terminated_virtually, SIGTERM), SIGTERM);
    check_trace(first_trace());
}

/* ---- the application's own handlers ---- */

static volatile sig_atomic_t handled;

static void handle(int number)
{
    handled = number;
}

static void handle_with_more(int number, siginfo_t *info, void *machine)
{
    (void)machine;
    handled = info->si_signo == number ? number : 0;
}

Test(signals, a_handler_of_the_application_is_called_and_put_back)
{
    struct sigaction mine = {.sa_handler = handle};
    struct sigaction more = {.sa_sigaction = handle_with_more, .sa_flags = SA_SIGINFO};
    struct sigaction now;
    sigaction(SIGTERM, &mine, NULL);
    sigaction(SIGINT, &more, NULL);
    signal(SIGHUP, SIG_IGN);
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run *run = start_gate(alone.context);
    raise(SIGTERM);
    cr_expect_eq(handled, SIGTERM);
    raise(SIGINT);
    cr_expect_eq(handled, SIGINT);
    raise(SIGHUP);
    cr_expect_eq(handled, SIGINT);
    /* The program goes on, and what there was is written meanwhile. */
    struct weft_trace *trace;
    for (int i = 0; !(trace = first_trace()) && i < 10000; i++)
        weft_context_sleep(alone.context, 1000000);
    check_trace(trace);
    OK(weft_run_cancel(run));
    weft_run_destroy(run);
    alone_destroy(&alone);
    sigaction(SIGTERM, NULL, &now);
    cr_expect_eq(now.sa_handler, handle);
    sigaction(SIGINT, NULL, &now);
    cr_expect_eq(now.sa_sigaction, handle_with_more);
    sigaction(SIGHUP, NULL, &now);
    cr_expect_eq(now.sa_handler, SIG_IGN);
}

Test(signals, a_handler_that_came_later_stays)
{
    struct sigaction now;
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    signal(SIGTERM, handle);
    alone_destroy(&alone);
    sigaction(SIGTERM, NULL, &now);
    cr_expect_eq(now.sa_handler, handle);
}

Test(signals, nothing_is_caught_without_a_folder)
{
    struct sigaction now;
    unsetenv("WEFT_TRACE");
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    sigaction(SIGTERM, NULL, &now);
    cr_expect_eq(now.sa_handler, SIG_DFL);
    OK(weft_context_trace_start(alone.context, NULL));
    sigaction(SIGTERM, NULL, &now);
    cr_expect_eq(now.sa_handler, SIG_DFL);
    alone_destroy(&alone);
}

Test(signals, contexts_may_come_and_go)
{
    struct sigaction now;
    for (int i = 0; i < 20; i++) {
        struct alone one = alone_create(WEFT_PROGRESS_CALLER);
        struct alone two = alone_create(WEFT_PROGRESS_HELPER);
        alone_destroy(i % 2 ? &one : &two);
        sigaction(SIGTERM, NULL, &now);
        cr_expect(now.sa_flags & SA_SIGINFO);
        alone_destroy(i % 2 ? &two : &one);
        sigaction(SIGTERM, NULL, &now);
        cr_expect_eq(now.sa_handler, SIG_DFL);
    }
}

/* ---- stalls ---- */

Test(signals, a_stall_writes_the_trace)
{
    setenv("WEFT_STALL", "0.01", 1);
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run *run = start_gate(alone.context);
    struct weft_trace *trace = NULL;
    /* Who waits may be late, and not look for a stall in that time. */
    for (int i = 0; i < 100 && !trace; i++) {
        cr_expect_eq(weft_run_wait(run, 100000000), WEFT_IN_PROGRESS);
        trace = first_trace();
    }
    check_trace(trace);
    OK(weft_run_cancel(run));
    weft_run_destroy(run);
    alone_destroy(&alone);
}
