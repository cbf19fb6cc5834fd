/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices over the stand-in of the driver, which the library loads as it would load the driver:
 * LD_LIBRARY_PATH says where it is. Every case is a process of its own, with its own environment.
 * On a device those cases are skipped that need another driver, or one that fails. */
#include "device_test.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct device_counts *counts;
struct standin standin;
const struct weft__cuda_driver *driver;
static uint64_t random_state;

/* ---- what cases share ---- */

uint64_t random_bits(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t x = random_state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void *driver_function(const char *name)
{
    static void *library;

    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

static int device_count(void)
{
    int count = 0;

    OK(weft__cuda_driver(&driver));
    OK(driver ? (int)driver->cuDeviceGetCount(&count) : 0);
    return count;
}

const char *second_device(void)
{
    return device_count() > 1 ? "cuda:1" : "cuda:0";
}

struct weft__device *open_device(const char *name)
{
    struct weft__device *device = NULL;

    OK(weft__device_open(name, 0, &device));
    OK(weft__cuda_driver(&driver));
    if (!device)
        exit(1);
    return device;
}

void check_clean(void)
{
    char text[8192];
    unsigned found = standin.leaks(text, sizeof text);

    CHECK(found == 0);
    if (found)
        fputs(text, stderr);
    found = standin.report(text, sizeof text);
    CHECK(found == 0);
    if (found)
        fputs(text, stderr);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Calls of the driver are counted: where a stream is late there are not to be thousands. */
static int wait_until(struct weft__stream *stream, int (*is_over)(struct weft__stream *, void *),
                      void *user)
{
    int status = WEFT_OK;
    uint64_t look = 0;

    while (status == WEFT_OK && !is_over(stream, user)) {
        if (now_ns() >= look) {
            status = stream->device->ops->failed(stream);
            look = now_ns() + 1000000;
        }
        sched_yield();
    }
    return status;
}

static int has_passed(struct weft__stream *stream, void *user)
{
    (void)user;
    return weft__stream_passed(stream, stream->issued);
}

int wait_for(struct weft__stream *stream)
{
    int status = stream->device->ops->mark(stream);

    return status == WEFT_OK ? wait_until(stream, has_passed, NULL) : status;
}

struct word {
    _Atomic uint32_t *at;
    uint32_t value;
};

static int has_value(struct weft__stream *stream, void *user)
{
    struct word *word = user;

    (void)stream;
    return atomic_load(word->at) == word->value;
}

int wait_for_word(struct weft__stream *stream, _Atomic uint32_t *at, uint32_t value)
{
    return wait_until(stream, has_value, &(struct word){at, value});
}

void copy_now(struct weft__device *device, void *dst, const void *src, size_t bytes)
{
    struct weft__stream *stream = NULL;

    OK(device->ops->open(device, &stream));
    OK(device->ops->copy(stream, dst, src, bytes));
    OK(wait_for(stream));
    device->ops->close(stream);
}

/* ---- running them ---- */

/* What a case needs: the stand-in, or two devices that reach each other. */
enum need { NOTHING, STANDIN, PEERS };

static const struct test {
    const char *name;
    void (*run)(void);
    enum need need;
    const char *environment[2];
} tests[] = {
    {"names", case_names, STANDIN, {NULL}},
    {"no_driver", case_no_driver, NOTHING, {"LD_LIBRARY_PATH=", NULL}},
    {"no_device", case_no_device, STANDIN, {"STANDIN_DEVICES=0", NULL}},
    {"no_mem_ops", case_no_mem_ops, STANDIN, {"STANDIN_STREAM_MEM_OPS=0", NULL}},
    {"where", case_where, NOTHING, {NULL}},
    {"where_peer", case_where_peer, PEERS, {NULL}},
    {"where_apart", case_where_apart, STANDIN, {"STANDIN_PEERS=0", NULL}},
    {"where_pool", case_where, STANDIN, {"STANDIN_POOLS=1", NULL}},
    {"where_pool_peer", case_where_peer, STANDIN, {"STANDIN_POOLS=1", NULL}},
    {"where_pool_apart", case_where_apart, STANDIN, {"STANDIN_POOLS=1", "STANDIN_PEERS=0"}},
    {"streams", case_streams, NOTHING, {NULL}},
    {"streams_one_queue", case_streams, STANDIN, {"STANDIN_CONNECTIONS=1", NULL}},
    {"many_streams", case_many_streams, NOTHING, {"STANDIN_DELAY_US=1", NULL}},
    {"reduce", case_reduce, NOTHING, {"STANDIN_DELAY_US=1", NULL}},
    {"reduce_n", case_reduce_n, NOTHING, {"STANDIN_DELAY_US=1", NULL}},
    {"call", case_call, NOTHING, {NULL}},
    {"write_hold", case_write_hold, NOTHING, {NULL}},
    {"contexts_kept", case_contexts_kept, PEERS, {NULL}},
    {"kernels_loaded", case_kernels_loaded, NOTHING, {"STANDIN_IMPLICIT_SYNC=1", NULL}},
    {"every_call_fails", case_every_call_fails, STANDIN, {"STANDIN_DELAY_US=1", NULL}},
    {"no_memory", case_no_memory, PEERS, {NULL}},
    {"describe", case_describe, STANDIN, {NULL}},
    {"faults", case_faults, STANDIN, {NULL}},
    {"threads", case_threads, PEERS, {NULL}},
    {"ipc", case_ipc, STANDIN, {NULL}},
    {"ipc_freed", case_ipc_freed, STANDIN, {"STANDIN_IPC_FREE=1", "STANDIN_REUSE=1"}},
    {"ipc_many", case_ipc_many, STANDIN, {"STANDIN_DELAY_US=1", NULL}},
    {"ipc_pool", case_ipc_pool, STANDIN, {"STANDIN_POOLS=1", NULL}},
    {"ipc_refused", case_ipc_refused, STANDIN, {NULL}},
    {"ipc_fails", case_ipc_fails, STANDIN, {NULL}},
};

/* Why a case cannot be played here, or NULL. Other programs need the same: by its exit status. */
enum { SKIPPED = 77 };

static const char *missing(enum need need)
{
    int reaches = 0;

    if (need == STANDIN && !standin.there)
        return "the driver is a real one";
    if (need != PEERS || standin.there)
        return NULL;
    if (device_count() > 1)
        OK((int)driver->cuDeviceCanAccessPeer(&reaches, 0, 1));
    return reaches ? NULL : "there are no two devices that reach each other";
}

static void in_child(const struct test *test, unsigned seed)
{
    char text[32];

    snprintf(text, sizeof text, "%u", seed);
    setenv("STANDIN_SEED", text, 1);
    for (int i = 0; i < 2 && test->environment[i]; i++)
        putenv((char *)(uintptr_t)test->environment[i]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(800);
    execl("/proc/self/exe", "test_device", "--case", test->name, text, (char *)NULL);
    _exit(127);
}

static void run_test(const struct test *test, unsigned seed, int shared)
{
    int status = 0;
    unsigned failures = counts->failures;
    pid_t child = fork();

    if (!child) {
        if (dup2(shared, 100) < 0)
            _exit(127);
        in_child(test, seed);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        printf("ok - %s # SKIP\n", test->name);
        return;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        counts->failures++;
        fprintf(stderr, "%s: status %#x\n", test->name, (unsigned)status);
    }
    if (counts->failures != failures)
        fprintf(stderr, "%s: FAILED, seed %u\n", test->name, seed);
    printf("%s - %s\n", counts->failures != failures ? "not ok" : "ok", test->name);
    fflush(stdout);
}

static int run_case(const char *name, unsigned seed)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0) {
            const char *why;

            random_state = seed;
            if (tests[i].run != case_no_driver)
                standin = *standin_find();
            why = missing(tests[i].need);
            if (why) {
                fprintf(stderr, "%s: skipped, %s\n", name, why);
                return SKIPPED;
            }
            tests[i].run();
        }
    return 0;
}

/* test_device [SEED [NAME]] */
int main(int argc, char **argv)
{
    int child = argc == 4 && strcmp(argv[1], "--case") == 0;
    int shared = child ? 100 : memfd_create("counts", 0);

    if (shared < 0 || (!child && ftruncate(shared, sizeof *counts)))
        return 1;
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    if (counts == MAP_FAILED)
        return 1;
    if (child)
        return run_case(argv[2], (unsigned)strtoul(argv[3], NULL, 0));
    unsigned seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 1;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (argc < 3 || strcmp(tests[i].name, argv[2]) == 0)
            run_test(&tests[i], seed, shared);
    printf("devices: seed %u, %u checks, %u failures\n", seed, counts->checks, counts->failures);
    return counts->failures != 0;
}
