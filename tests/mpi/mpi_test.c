/* SPDX-License-Identifier: BSD-3-Clause */
#include "mpi_test.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int mpi_test_rank;
int mpi_test_size;
static int cases;

void mpi_test_init(int *argc, char ***argv, int level)
{
    int provided;

    MPI_Init_thread(argc, argv, level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_test_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi_test_size);
    CHECK(provided >= level);
}

int mpi_test_end(void)
{
    mpi_test_barrier(MPI_COMM_WORLD);
    if (mpi_test_rank == 0)
        printf("1..%d\n", cases);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}

void mpi_test_barrier(MPI_Comm comm)
{
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(comm, &request);
    for (;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        sched_yield();
    }
}

void mpi_test_ok(const char *format, ...)
{
    va_list arguments;

    mpi_test_barrier(MPI_COMM_WORLD);
    cases++;
    if (mpi_test_rank != 0)
        return;
    printf("ok %d - P=%d ", cases, mpi_test_size);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

void mpi_test_skip(const char *name, const char *why)
{
    mpi_test_barrier(MPI_COMM_WORLD);
    cases++;
    if (mpi_test_rank == 0)
        printf("ok %d - P=%d %s # SKIP %s\n", cases, mpi_test_size, name, why);
    fflush(stdout);
}

void mpi_test_fail(const char *file, int line, const char *text)
{
    printf("not ok %d - P=%d rank %d, %s:%d: %s: %s\n", cases + 1, mpi_test_size, mpi_test_rank,
           file, line, text, weft_error_text());
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

void mpi_test_status(const char *file, int line, const char *call, int expected, int status)
{
    printf("%s is %s, expected %s\n", call, weft_status_name(status), weft_status_name(expected));
    mpi_test_fail(file, line, call);
}

struct weft_context *mpi_test_context(MPI_Comm comm, const struct weft_context_config *config)
{
    struct weft_context *context = NULL;

    OK(weft_context_create_mpi(&context, comm, config, NULL));
    return context;
}

struct weft_run *mpi_test_run(struct weft_context *context, struct weft_schedule *schedule,
                              const struct weft_run_config *config)
{
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;

    OK(weft_schedule_commit(schedule, &plan));
    OK(weft_run_create(&run, context, plan, config));
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return run;
}

static unsigned char byte_at(size_t i, int from, int to, uint64_t version)
{
    uint64_t word = (i >> 3) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)from * 131 +
                    (uint64_t)to * 17 + version * 7 + 1;

    return (unsigned char)(word >> (8 * (i & 7)));
}

void mpi_test_fill(void *data, size_t bytes, int from, int to, uint64_t version)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)data)[i] = byte_at(i, from, to, version);
}

void mpi_test_same(const void *data, size_t bytes, int from, int to, uint64_t version)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)data)[i] != byte_at(i, from, to, version)) {
            printf("byte %zu of %zu from rank %d to rank %d in version %llu differs\n", i, bytes,
                   from, to, (unsigned long long)version);
            CHECK(!"the payload that was sent");
        }
}
