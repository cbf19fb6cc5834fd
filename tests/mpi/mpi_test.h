/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the MPI programs share. Rank 0 prints a line of TAP for each case, when all ranks have
 * passed it; a rank that fails says where and ends the job. No blocking MPI call: they spin, and
 * with more ranks than cores that takes milliseconds each.
 */
#ifndef WEFT_TESTS_MPI_TEST_H
#define WEFT_TESTS_MPI_TEST_H

#include <weft/mpi.h>
#include <weft/weft.h>

/* Fails with the condition and weft's error text. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            mpi_test_fail(__FILE__, __LINE__, #condition);                                         \
    } while (0)
/* The call returns this status. */
#define STATUS(expected, call)                                                                     \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != (expected))                                                                 \
            mpi_test_status(__FILE__, __LINE__, #call, (expected), status_);                       \
    } while (0)
#define OK(call) STATUS(WEFT_OK, call)

/* MPI_Init_thread; fails if the level is not had. */
void mpi_test_init(int *argc, char ***argv, int level);
/* Prints the plan and ends MPI. The exit status of main(). */
int mpi_test_end(void);
/* All ranks have passed a case. Collective. */
void mpi_test_ok(const char *format, ...) WEFT_PRINTF(1, 2);
/* The rank says that a case was left out. Collective. */
void mpi_test_skip(const char *name, const char *why);
void mpi_test_fail(const char *file, int line, const char *text);
void mpi_test_status(const char *file, int line, const char *call, int expected, int status);

/* In MPI_COMM_WORLD. */
extern int mpi_test_rank;
extern int mpi_test_size;

/* A barrier that yields. */
void mpi_test_barrier(MPI_Comm comm);

/* A context; NULL: defaults. */
struct weft_context *mpi_test_context(MPI_Comm comm, const struct weft_context_config *config);
/* A run of a schedule, which is freed. */
struct weft_run *mpi_test_run(struct weft_context *context, struct weft_schedule *schedule,
                              const struct weft_run_config *config);

/* Bytes that depend on all of these, and their check. */
void mpi_test_fill(void *data, size_t bytes, int from, int to, uint64_t version);
void mpi_test_same(const void *data, size_t bytes, int from, int to, uint64_t version);

#endif
