/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What programs over several processes share, whatever these processes reach each other by: each
 * program is linked with one of world_mpi.c (its processes are mpiexec's) and world_shared.c (it
 * forks them: PROGRAM -n RANKS ...).
 *
 * Rank 0 prints a line of TAP for each case, when all ranks have passed it; a rank that fails says
 * where and ends the job. No blocking call of MPI: they spin, and with more ranks than cores that
 * takes milliseconds each.
 */
#ifndef WEFT_TESTS_WORLD_H
#define WEFT_TESTS_WORLD_H

#include <weft/weft.h>

/* Fails with the condition and weft's error text. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            world_fail(__FILE__, __LINE__, #condition);                                            \
    } while (0)
/* The call returns this status. */
#define STATUS(expected, call)                                                                     \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != (expected))                                                                 \
            world_status(__FILE__, __LINE__, #call, (expected), status_);                          \
    } while (0)
#define OK(call) STATUS(WEFT_OK, call)

/* Which threads call weft: of MPI its level. */
enum { WORLD_ONE_THREAD, WORLD_MAIN_THREAD, WORLD_THREADS };

/* Comes back in each rank. */
void world_init(int *argc, char ***argv, int threads);
/* Prints the plan and ends what was begun. The exit status of main(). */
int world_end(void);
/* All ranks have passed a case. Collective. */
void world_ok(const char *format, ...) WEFT_PRINTF(1, 2);
/* The rank says that a case was left out. Collective. */
void world_skip(const char *name, const char *why);
void world_fail(const char *file, int line, const char *text);
void world_status(const char *file, int line, const char *call, int expected, int status);

extern int world_rank;
extern int world_size;

/* A barrier that yields; and one that drives the engine meanwhile: a rank that is through may still
 * have to take a payload that nobody wants, for its sender to have its memory back. */
void world_meet(void);
void world_meet_driving(struct weft_context *context);
/* all[r]: the `bytes` bytes of rank r. Collective. */
void world_gather(const void *mine, size_t bytes, void *all);
/* Rank 0's bytes on all ranks. Collective. */
void world_share(void *data, size_t bytes);

/* A context over all processes; NULL: defaults. Collective. */
int world_create(struct weft_context **context, const struct weft_context_config *config);
struct weft_context *world_context(const struct weft_context_config *config);
/* A run of a schedule, which is freed. */
struct weft_run *world_run(struct weft_context *context, struct weft_schedule *schedule,
                           const struct weft_run_config *config);

/* Bytes that depend on all of these, and their check. */
void world_fill(void *data, size_t bytes, int from, int to, uint64_t version);
void world_same(const void *data, size_t bytes, int from, int to, uint64_t version);

/* ---- what each kind of world gives ---- */

/* Who cannot create a context tells all others even if it has no memory at all. */
extern const int world_hears_all;

void world_begin(int *argc, char ***argv, int threads);
void world_finish(void);
void world_abort(void);
void world_come(void);
int world_all_came(void);

#endif
