/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The stand-in of NCCL: that it does what NCCL does, and that it finds what it is to find. Every
 * case is a process of its own, with its own environment. */
#include "nccl_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct standin_counts *standin_counts;
static pthread_barrier_t meeting;
static unsigned seed = 1;

const struct grid_kernel *grid_find(const char *name)
{
    (void)name;
    return NULL;
}

/* ---- ranks ---- */

void nccl_meet(void)
{
    pthread_barrier_wait(&meeting);
}

void nccl_until_reported(const char *what)
{
    char text[8192];
    do {
        sched_yield();
        standin_nccl_report(text, sizeof text);
    } while (!strstr(text, what));
}

ncclResult_t nccl_settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL_OK(ncclCommGetAsyncError(comm, &state));
        sched_yield();
    }
    return state;
}

CUdeviceptr nccl_put(const void *from, size_t bytes)
{
    CUdeviceptr to;
    OK(cuMemAlloc(&to, bytes ? bytes : 1));
    if (bytes)
        OK(cuMemcpyHtoD(to, from, bytes));
    return to;
}

void nccl_get(void *to, CUdeviceptr from, size_t bytes)
{
    if (bytes)
        OK(cuMemcpyDtoH(to, from, bytes));
    OK(cuMemFree(from));
}

void nccl_rank(struct nccl_rank_of_test *rank, bool comms, void (*body)(struct nccl_rank_of_test *))
{
    OK(cuDevicePrimaryCtxRetain(&rank->context, rank->rank));
    OK(cuCtxSetCurrent(rank->context));
    OK(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
    if (comms)
        NCCL_OK(ncclCommInitRank(&rank->comm, rank->size, rank->id, rank->rank));
    body(rank);
    if (rank->comm)
        NCCL_OK(ncclCommDestroy(rank->comm));
    if (rank->stream)
        OK(cuStreamDestroy(rank->stream));
    OK(cuCtxSetCurrent(NULL));
    OK(cuDevicePrimaryCtxRelease(rank->rank));
}

struct start {
    struct nccl_rank_of_test rank;
    bool comms;
    void (*body)(struct nccl_rank_of_test *);
};

static void *thread_main(void *data)
{
    struct start *start = data;
    nccl_rank(&start->rank, start->comms, start->body);
    return NULL;
}

void nccl_ranks(int size, bool comms, void (*body)(struct nccl_rank_of_test *), void *shared)
{
    struct start starts[16];
    pthread_t threads[16];
    char text[4096];
    ncclUniqueId id;
    OK(cuInit(0));
    NCCL_OK(ncclGetUniqueId(&id));
    pthread_barrier_init(&meeting, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        starts[r] =
            (struct start){{.rank = r, .size = size, .id = id, .shared = shared}, comms, body};
        CHECK(!pthread_create(&threads[r], NULL, thread_main, &starts[r]));
    }
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    EXPECT(standin_nccl_leaks(text, sizeof text), 0);
    EXPECT(standin_leaks(NULL, 0), 0);
}

void nccl_clean(void)
{
    char text[4096];
    unsigned found = standin_nccl_report(text, sizeof text) + standin_report(NULL, 0);
    EXPECT(found, 0);
    if (found)
        fputs(text, stderr);
}

/* ---- running them ---- */

static const struct test {
    const char *name;
    void (*run)(void);
    const char *environment[2];
} tests[] = {
    {"messages", case_messages, {NULL}},
    {"messages_one_queue", case_messages, {"STANDIN_CONNECTIONS=1"}},
    {"chain", case_chain, {NULL}},
    {"two_streams", case_two_streams, {NULL}},
    {"collectives", case_collectives, {NULL}},
    {"types", case_types, {NULL}},
    {"circle", case_circle, {NULL}},
    {"mixed", case_mixed, {NULL}},
    {"unlike", case_unlike, {NULL}},
    {"abort", case_let_go, {NULL}},
    {"misuse", case_misuse, {NULL}},
    {"one_device", case_one_device, {NULL}},
    {"not_blocking", case_not_blocking, {NULL}},
    {"one_thread", case_one_thread, {NULL}},
    {"split", case_split, {NULL}},
    {"asked", case_asked, {NULL}},
    {"fault", case_fault, {NULL}},
    {"context_ends", case_context_ends, {NULL}},
    {"every_call_fails", case_every_nccl_call_fails, {NULL}},
    {"failing_from_outside",
     case_nccl_from_outside,
     {"STANDIN_NCCL_FAIL=1:6", "STANDIN_NCCL_VERSION=21903"}},
    {"processes", case_processes, {NULL}},
    {"order", case_order, {"STANDIN_DELAY_US=5"}},
};

static void in_child(const struct test *test)
{
    char text[32];
    snprintf(text, sizeof text, "%u", seed);
    setenv("STANDIN_SEED", text, 1);
    setenv("STANDIN_DEVICES", "4", 1);
    if (!getenv("STANDIN_LOUD"))
        setenv("STANDIN_QUIET", "1", 1);
    for (int i = 0; i < 2 && test->environment[i]; i++)
        putenv((char *)(uintptr_t)test->environment[i]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(800);
    execl("/proc/self/exe", "test_nccl", "--case", test->name, (char *)NULL);
    _exit(127);
}

static void run_test(const struct test *test, int shared)
{
    int status = 0;
    unsigned failures = standin_counts->failures;
    pid_t child = fork();
    if (!child) {
        if (dup2(shared, 100) < 0)
            _exit(127);
        in_child(test);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (status) {
        standin_counts->failures++;
        fprintf(stderr, "%s: status %#x\n", test->name, (unsigned)status);
    }
    if (standin_counts->failures != failures)
        fprintf(stderr, "%s: FAILED, seed %u\n", test->name, seed);
}

/* test_nccl [SEED [NAME]] */
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
    seed = argc > 1 && !child ? (unsigned)strtoul(argv[1], NULL, 0) : seed;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (argc > 2 && strcmp(tests[i].name, argv[2]))
            continue;
        if (child) {
            tests[i].run();
            return 0;
        }
        run_test(&tests[i], shared);
    }
    printf("stand-in of NCCL: seed %u, %u checks, %u failures\n", seed, standin_counts->checks,
           standin_counts->failures);
    return standin_counts->failures != 0;
}
