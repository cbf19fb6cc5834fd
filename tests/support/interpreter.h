/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plain interpreter of the schedules of all ranks together, independent of the engine: it reads
 * them through the public functions only, and executes node after node in an order drawn from a
 * seed. So a missing order shows as a wrong result under some seed, and a wait without end as a
 * deadlock. A race detector and a check of the declared results go with it. No test framework.
 */
#ifndef WEFT_TESTS_INTERPRETER_H
#define WEFT_TESTS_INTERPRETER_H

#include <weft/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The memory of all ranks' slots, scratch included; slots[rank][slot]. */
struct interp_memory {
    int ranks;
    void ***slots;
    size_t *slot_counts; /* a rank */
};

/* Allocates all slots and fills them with a pattern of rubbish. 0, or -1 out of memory. */
int interp_memory_create(struct interp_memory *memory, const struct weft_schedule *const *schedules,
                         int ranks);
void interp_memory_destroy(struct interp_memory *memory);

/* Small whole numbers from `low` (0 or 1) to 2 as elements of a datatype: sums of them are exact in
 * every datatype up to 100 ranks, and so are products if low is 1. */
void interp_fill(void *data, size_t count, weft_dtype_t dtype, uint64_t seed, int low);

struct interp_options {
    uint64_t seed;
    /* 1: a send ends when its message has been received; 0: it ends at once, its payload copied. */
    int rendezvous;
    /* Compute nodes that are no reductions; NULL: they are an error. Returns a status. */
    int (*compute)(void *user, int rank, const struct weft_node_info *info, void *const *slots,
                   uint64_t *value);
    void *user;
    /* If not NULL: heard[r] becomes the set of ranks (bit i: rank i, up to 64 ranks) whose start
     * every end of rank r comes after. */
    uint64_t *heard;
    /* values[r][v - 1], bound and produced; NULL if no schedule has values. */
    uint64_t *const *values;
};

/*
 * Executes the schedules (schedules[r] is rank r's) on the memory. Events without a channel fire in
 * an order drawn from the seed; those with one when their signal has been sent.
 * Returns 0, or -1 with a line in text: a message without its counterpart, sizes that differ, a
 * deadlock (naming nodes that wait), a failing operation.
 */
int interp_run(const struct weft_schedule *const *schedules, int ranks,
               const struct interp_memory *memory, const struct interp_options *options, char *text,
               size_t text_size);

/* Looks for two nodes of one rank that are not ordered, touch a common element, and one writes.
 * 0: none; 1: found, with a line in text; -1: out of memory. */
int interp_find_race(const struct weft_schedule *schedule, char *text, size_t text_size);

/*
 * Compares `final` with what the schedules declare, computed from `initial` in the order of ranks.
 * Every element must be equal bit for bit. 0: as declared; 1: not, with a line in text; -1: cannot
 * be computed (text).
 */
int interp_check_results(const struct weft_schedule *const *schedules, int ranks,
                         const struct interp_memory *initial, const struct interp_memory *final,
                         char *text, size_t text_size);

#ifdef __cplusplus
}
#endif

#endif
