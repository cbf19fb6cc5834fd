/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A runner for Criterion suites under sanitizers and valgrind: it walks the table of tests that the
 * linker has collected, forks a plain child for each, and prints TAP on standard error as Criterion
 * does with --tap. Criterion's own runner moves the child's memory around in a way that the thread
 * sanitizer cannot start under and that hides leaks from the address sanitizer.
 *
 * It works by defining the functions that Criterion's macros call; those of the program win over
 * those of the library, which still formats the messages.
 */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <criterion/parameterized.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* For what hangs: below the limits of programs, which .ci/run makes eight times as long. */
#define SLOWER          8
#define DEFAULT_TIMEOUT 1000
enum { EXIT_FAILED = 101, EXIT_SKIPPED = 102 };

/* The linker's names for the ends of Criterion's tables. */
extern struct criterion_test *__start_cr_tst[];
extern struct criterion_test *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak));
extern struct criterion_suite *__stop_cr_sts[] __attribute__((weak));

static const struct criterion_test *current;
static const struct criterion_test_extra_data *current_suite;
static void *current_param;
static int failures;

void criterion_send_assert(struct criterion_assert_stats *stats)
{
    if (!stats->passed)
        fprintf(stderr, "# %s:%u: %s\n", stats->file, (unsigned)stats->line, stats->message);
}

void cri_asserts_passed_incr(void)
{
}

void criterion_continue_test(void)
{
    failures++;
}

void criterion_abort_test(void)
{
    _exit(EXIT_FAILED);
}

static void print_comment(const char *format, va_list arguments)
{
    fputs("# ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
}

void criterion_skip_test(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_comment(format, arguments);
    va_end(arguments);
    _exit(EXIT_SKIPPED);
}

void criterion_test_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_comment(format, arguments);
    va_end(arguments);
    _exit(EXIT_FAILED);
}

void cr_log(enum criterion_severity severity, const char *format, ...)
{
    (void)severity;
    va_list arguments;
    va_start(arguments, format);
    print_comment(format, arguments);
    va_end(arguments);
}

void criterion_internal_test_setup(void)
{
    if (current_suite && current_suite->init)
        current_suite->init();
    if (current->data->init)
        current->data->init();
}

void criterion_internal_test_main(void (*fn)(void))
{
    if (current->data->param_)
        ((void (*)(void *))fn)(current_param);
    else
        fn();
}

void criterion_internal_test_teardown(void)
{
    if (current->data->fini)
        current->data->fini();
    if (current_suite && current_suite->fini)
        current_suite->fini();
}

static const struct criterion_test_extra_data *find_suite(const char *category)
{
    if (!__start_cr_sts)
        return NULL;
    for (struct criterion_suite **s = __start_cr_sts; s < __stop_cr_sts; s++)
        if (*s && strcmp((*s)->name, category) == 0)
            return (*s)->data;
    return NULL;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Runs the current test in a child; 0: passed, 1: failed, 2: skipped. */
static int run_child(void)
{
    const struct criterion_test_extra_data *data = current->data;
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("# fork");
        return 1;
    }
    if (child == 0) {
        alarm(data->timeout > 0 ? (unsigned)(SLOWER * data->timeout) + 1 : DEFAULT_TIMEOUT);
        current->test();
        exit(failures ? EXIT_FAILED : 0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return 1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED)
        return 2;
    if (data->signal)
        return !(WIFSIGNALED(status) && WTERMSIG(status) == data->signal);
    if (WIFSIGNALED(status))
        fprintf(stderr, "# ended by signal %d\n", WTERMSIG(status));
    return !(WIFEXITED(status) && WEXITSTATUS(status) == data->exit_code);
}

static int run_and_print(void)
{
    static const char *const words[] = {"ok", "not ok", "ok"};
    double start = now();
    int result = current->data->disabled ? 2 : run_child();
    fprintf(stderr, "%s - %s::%s %s (%.2fs)\n", words[result], current->category, current->name,
            result == 2 ? "# SKIP" : "", now() - start);
    return result == 1;
}

static int run_test(void)
{
    if (!current->data->param_)
        return run_and_print();
    struct criterion_test_params params = current->data->param_();
    int failed = 0;
    for (size_t i = 0; i < params.length; i++) {
        current_param = (char *)params.params + i * params.size;
        failed += run_and_print();
    }
    if (params.cleanup)
        params.cleanup(&params);
    return failed;
}

/* Arguments other than options are names of tests (or suite::name); none: all of them. */
static int is_wanted(int argc, char **argv)
{
    int names = 0;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            continue;
        names++;
        const char *colons = strstr(argv[i], "::");
        if (strcmp(colons ? colons + 2 : argv[i], current->name) == 0)
            return 1;
    }
    return names == 0;
}

/* Virtual ranks are of one thread, in which the thread sanitizer has nothing to find, and have been
 * seen without WEFT_TEST_RANKS, which is for local ones. */
static int is_seen_elsewhere(void)
{
#ifdef __SANITIZE_THREAD__
    const int elsewhere = 1;
#else
    const int elsewhere = getenv("WEFT_TEST_RANKS") != NULL;
#endif
    return elsewhere && strstr(current->name, "virtual_ranks");
}

int main(int argc, char **argv)
{
    int failed = 0;
    fputs("TAP version 13\n", stderr);
    for (struct criterion_test **t = __start_cr_tst; t < __stop_cr_tst; t++) {
        if (!*t)
            continue;
        current = *t;
        current_suite = find_suite(current->category);
        if (is_wanted(argc, argv) && !is_seen_elsewhere())
            failed += run_test();
    }
    return failed ? 1 : 0;
}
