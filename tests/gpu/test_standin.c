/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The stand-in of the driver: that it does what the driver does, and that it finds what it is to
 * find. Every case is a process of its own, with its own environment; a case that is to crash
 * says by which signal. */
#include "standin_test.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct standin_counts *standin_counts;

/* ---- kernels ---- */

static int run_add(const unsigned grid[3], const unsigned block[3], size_t shared, void **arguments,
                   void *(*translate)(void *))
{
    uint32_t *data = translate(*(void **)arguments[0]);
    size_t count = *(size_t *)arguments[1];
    uint32_t value = *(uint32_t *)arguments[2];
    (void)grid, (void)block, (void)shared;
    if (!data)
        return 1;
    for (size_t i = 0; i < count; i++)
        data[i] += value;
    return 0;
}

/* Appends a digit: what runs out of order shows. */
static int run_append(const unsigned grid[3], const unsigned block[3], size_t shared,
                      void **arguments, void *(*translate)(void *))
{
    uint32_t *data = translate(*(void **)arguments[0]);
    uint32_t value = *(uint32_t *)arguments[1];
    (void)grid, (void)block, (void)shared;
    if (!data)
        return 1;
    *data = *data * 10 + value;
    return 0;
}

/* Writes one byte, wherever. */
static int run_poke(const unsigned grid[3], const unsigned block[3], size_t shared,
                    void **arguments, void *(*translate)(void *))
{
    char *data = translate(*(void **)arguments[0]);
    (void)grid, (void)block, (void)shared;
    if (!data)
        return 1;
    data[*(ptrdiff_t *)arguments[1]] = 1;
    return 0;
}

static int run_fail(const unsigned grid[3], const unsigned block[3], size_t shared,
                    void **arguments, void *(*translate)(void *))
{
    (void)grid, (void)block, (void)shared, (void)arguments, (void)translate;
    return 7;
}

const struct grid_kernel *standin_own_kernel(const char *name)
{
    static const size_t add_sizes[] = {8, 8, 4}, append_sizes[] = {8, 4}, poke_sizes[] = {8, 8},
                        no_sizes[1];
    static const struct grid_kernel kernels[] = {{"add", run_add, 3, add_sizes},
                                                 {"append", run_append, 2, append_sizes},
                                                 {"append_plain", run_append, 0, NULL},
                                                 {"poke", run_poke, 2, poke_sizes},
                                                 {"fail", run_fail, 0, no_sizes}};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, name))
            return &kernels[i];
    return NULL;
}

CUcontext standin_begin(int device)
{
    CUcontext context = NULL;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    return context;
}

void standin_end(int device)
{
    char text[4096];
    OK(cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(device));
    unsigned leaks = standin_leaks(text, sizeof text);
    EXPECT(leaks, 0);
    if (leaks)
        fputs(text, stderr);
}

CUfunction standin_kernel(CUmodule *module, const char *name)
{
    static const char image[] = "// Kernels of the test.\n.version 8.0\n.visible .entry add(\n"
                                ".visible .entry append(\n.visible .entry append_plain(\n"
                                ".visible .entry poke(\n.visible .entry fail(\n"
                                ".visible .entry weft_fill_32(\n";
    CUfunction function = NULL;
    if (!*module)
        OK(cuModuleLoadData(module, image));
    OK(cuModuleGetFunction(&function, *module, name));
    return function;
}

CUresult standin_append(CUfunction function, CUdeviceptr where, uint32_t digit, CUstream stream)
{
    void *arguments[] = {&where, &digit};
    CUresult result = cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
    where = 0;
    digit = 0; /* the driver has its own by now */
    return result;
}

void standin_count_one(void *data)
{
    (*(int *)data)++;
}

void standin_until_waits(const char *what)
{
    char text[8192];
    do {
        sched_yield();
        standin_report(text, sizeof text);
    } while (!strstr(text, what));
}

/* ---- running them ---- */

static const struct test {
    const char *name;
    void (*run)(void);
    int signal;
    const char *environment[2];
} tests[] = {
    {"devices", case_devices, 0, {"STANDIN_DEVICES=3", "STANDIN_MEMORY=1048576"}},
    {"errors", case_errors, 0, {NULL}},
    {"contexts", case_contexts, 0, {NULL}},
    {"abandoned", case_abandoned, 0, {NULL}},
    {"memory", case_memory, 0, {"STANDIN_MEMORY=1048576"}},
    {"slack", case_slack, 0, {NULL}},
    {"copies", case_copies, 0, {NULL}},
    {"pinned", case_pinned, 0, {NULL}},
    {"pointers", case_pointers, 0, {NULL}},
    {"streams", case_streams, 0, {NULL}},
    {"streams_one_queue", case_streams, 0, {"STANDIN_CONNECTIONS=1"}},
    {"streams_implicit", case_streams, 0, {"STANDIN_IMPLICIT_SYNC=1", "STANDIN_CONNECTIONS=2"}},
    {"values", case_values, 0, {NULL}},
    {"no_mem_ops", case_no_mem_ops, 0, {"STANDIN_STREAM_MEM_OPS=0"}},
    {"connections", case_connections, 0, {"STANDIN_CONNECTIONS=1"}},
    {"events", case_events, 0, {NULL}},
    {"host_functions", case_host_functions, 0, {NULL}},
    {"kernels", case_kernels, 0, {NULL}},
    {"fault_kernel", case_fault_kernel, 0, {NULL}},
    {"fault_freed", case_fault_freed, 0, {NULL}},
    {"fault_host_pointer", case_fault_host_pointer, 0, {NULL}},
    {"fault_injected", case_fault_injected, 0, {NULL}},
    {"peers", case_peers, 0, {NULL}},
    {"no_peers", case_no_peers, 0, {"STANDIN_PEERS=0"}},
    {"free_in_use", case_free_in_use, 0, {NULL}},
    {"every_call_fails", case_every_call_fails, 0, {NULL}},
    {"failing_from_outside", case_failing_from_outside, 0, {"STANDIN_FAIL=2:2"}},
    {"fork", case_fork, 0, {NULL}},
    {"ipc", case_ipc, 0, {NULL}},
    {"ipc_in_use", case_ipc_in_use, 0, {NULL}},
    {"ipc_freed", case_ipc_freed, 0, {"STANDIN_IPC_FREE=1", "STANDIN_REUSE=1"}},
    {"ipc_refused", case_ipc_refused, 0, {NULL}},
    {"ipc_device", case_ipc_device, 0, {NULL}},
    {"ipc_peer", case_ipc_peer, 0, {NULL}},
    {"ipc_number", case_ipc_number, 0, {NULL}},
    {"ipc_pool", case_ipc_pool, 0, {"STANDIN_POOLS=1", NULL}},
    {"touch_device", case_touch_device, SIGSEGV, {NULL}},
    {"touch_freed_pinned", case_touch_freed_pinned, SIGSEGV, {NULL}},
    {"touch_behind_pinned", case_touch_behind_pinned, SIGSEGV, {NULL}},
    {"kernel_leaves", case_kernel_leaves, SIGSEGV, {NULL}},
    {"abort", case_abort, SIGABRT, {"STANDIN_ABORT=1"}},
};

static void in_child(const struct test *test, unsigned seed)
{
    char text[32];
    snprintf(text, sizeof text, "%u", seed);
    setenv("STANDIN_SEED", text, 1);
    if (!test->signal && !getenv("STANDIN_LOUD"))
        setenv("STANDIN_QUIET", "1", 1);
    for (int i = 0; i < 2 && test->environment[i]; i++)
        putenv((char *)(uintptr_t)test->environment[i]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(800);
    execl("/proc/self/exe", "test_standin", "--case", test->name, (char *)NULL);
    _exit(127);
}

/* Sanitizers end a process that crashes by themselves. */
static bool as_expected(const struct test *test, int status)
{
    if (!test->signal)
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return (WIFSIGNALED(status) && WTERMSIG(status) == test->signal) ||
           (WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 127);
}

static void run_test(const struct test *test, unsigned seed, int shared)
{
    int status = 0;
    unsigned failures = standin_counts->failures;
    pid_t child = fork();
    if (!child) {
        if (dup2(shared, 100) < 0)
            _exit(127);
        in_child(test, seed);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (!as_expected(test, status)) {
        standin_counts->failures++;
        fprintf(stderr, "%s: status %#x\n", test->name, (unsigned)status);
    }
    if (standin_counts->failures != failures)
        fprintf(stderr, "%s: FAILED, seed %u\n", test->name, seed);
}

static const struct test *find(const char *name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(tests[i].name, name))
            return &tests[i];
    return NULL;
}

/* test_standin [SEED [NAME]] */
int main(int argc, char **argv)
{
    bool child = argc == 3 && !strcmp(argv[1], "--case");
    int shared = child ? 100 : memfd_create("counts", 0);
    if (shared < 0 || (!child && ftruncate(shared, sizeof *standin_counts)))
        return 1;
    standin_counts =
        mmap(NULL, sizeof *standin_counts, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    if (standin_counts == MAP_FAILED)
        return 1;
    if (child) {
        find(argv[2])->run();
        return 0;
    }
    unsigned seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 1;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (argc < 3 || !strcmp(tests[i].name, argv[2]))
            run_test(&tests[i], seed, shared);
    printf("stand-in: seed %u, %u checks, %u failures\n", seed, standin_counts->checks,
           standin_counts->failures);
    return standin_counts->failures != 0;
}
