/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a program: mismatches are said and counted, and all ranks agree in the end. A rank
 * that hangs says where.
 */
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "compare.h"

enum { WATCH_SECONDS = 100, MISMATCHES_SAID = 20, TEXT_BYTES = 600 };

int test_rank;
int test_size;

static atomic_int mismatches;
static bool preloaded, all;
static unsigned number;
static unsigned stride = 4, stride_alone = 23;
static char program[64];
static char doing[TEXT_BYTES];
static struct sigaction before;

static void say(const char *text)
{
    char line[TEXT_BYTES + 128];
    int length = snprintf(line, sizeof line, "%s: rank %d: %s\n", program, test_rank, text);

    if (length >= (int)sizeof line)
        length = sizeof line - 1;
    if (write(STDERR_FILENO, line, (size_t)length) < 0)
        _exit(1);
}

static void hang(int signal_number)
{
    (void)signal_number;
    say("hangs in");
    say(doing);
    _exit(1);
}

/* MPI's handler, which was there before, then shows where that was. */
static void die(int signal_number)
{
    signal(signal_number, SIG_DFL);
    say("dies in");
    say(doing);
    sigaction(signal_number, &before, NULL);
    raise(signal_number);
}

int test_begin(int *argc, char ***argv, int level)
{
    int (*volatile ours)(MPI_Comm) = MPI_Barrier;
    int (*volatile theirs)(MPI_Comm) = PMPI_Barrier;
    const char *name = strrchr((*argv)[0], '/');
    int provided = MPI_THREAD_SINGLE;

    snprintf(program, sizeof program, "%s", name ? name + 1 : (*argv)[0]);
    preloaded = ours != theirs;
    all = test_option(*argc, *argv, "--all");
    signal(SIGALRM, hang);
    test_doing("MPI_Init");
    if (level < 0)
        MUST(MPI_Init(argc, argv));
    else
        MUST(MPI_Init_thread(argc, argv, level, &provided));
    /* MUST() then says which call that was. */
    MUST(PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = die}, &before);
    MUST(PMPI_Comm_rank(MPI_COMM_WORLD, &test_rank));
    MUST(PMPI_Comm_size(MPI_COMM_WORLD, &test_size));
    return provided;
}

int test_end(void)
{
    bool failed;

    test_doing("the end");
    failed = test_any(MPI_COMM_WORLD, atomic_load(&mismatches) > 0);
    test_doing("MPI_Finalize");
    MUST(MPI_Finalize());
    /* Callbacks that ran meanwhile may have seen more. */
    return failed || atomic_load(&mismatches) > 0;
}

void test_doing(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(doing, sizeof doing, format, list);
    va_end(list);
    alarm(WATCH_SECONDS);
}

void test_mismatch(const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list list;
    int said = atomic_fetch_add(&mismatches, 1);

    if (said > MISMATCHES_SAID)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    say(said < MISMATCHES_SAID ? text : "more mismatches are not said");
}

void test_must(const char *file, int line, const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    if (code == MPI_SUCCESS)
        return;
    PMPI_Error_string(code, text, &length);
    test_mismatch("%s:%d: %s, in %s: %s", file, line, call, doing, text);
    PMPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

bool test_crowded(void)
{
    return test_size >= sysconf(_SC_NPROCESSORS_ONLN);
}

bool test_preloaded(void)
{
    return preloaded;
}

void test_part(unsigned crowded, unsigned alone)
{
    stride = crowded;
    stride_alone = alone;
}

unsigned test_next(void)
{
    bool few_cores = test_size > sysconf(_SC_NPROCESSORS_ONLN);
    unsigned every = all || !few_cores ? 1 : preloaded ? stride : stride_alone;

    number++;
    return test_random(number, (uint64_t)test_size, 0) % every == 0 ? number : 0;
}

void test_wait(MPI_Request *request)
{
    int flag = 0;

    for (;;) {
        MUST(PMPI_Test(request, &flag, MPI_STATUS_IGNORE));
        if (flag)
            return;
        if (test_crowded())
            sched_yield();
    }
}

void test_waitall(int count, MPI_Request *requests)
{
    for (int i = 0; i < count; i++)
        test_wait(&requests[i]);
}

void test_wait_mpi(MPI_Request *request)
{
    int flag = 0;

    while (!flag) {
        MUST(MPI_Test(request, &flag, MPI_STATUS_IGNORE));
        sched_yield();
    }
}

MPI_Comm test_idup(void)
{
    MPI_Comm comm;
    MPI_Request request;

    MUST(MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request));
    test_wait_mpi(&request);
    return comm;
}

bool test_any(MPI_Comm comm, bool mine)
{
    int in = mine, out = 0;
    MPI_Request request;

    MUST(PMPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_MAX, comm, &request));
    test_wait(&request);
    return out != 0;
}

bool test_option(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

double test_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void *test_alloc(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);

    if (memory)
        return memory;
    test_mismatch("no memory for %zu bytes", bytes);
    PMPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

/* splitmix64 */
uint64_t test_random(uint64_t seed, uint64_t rank, uint64_t index)
{
    uint64_t x = (seed * 4099 + rank) * UINT64_C(0xD1342543DE82EF95) + index;

    x *= UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}
