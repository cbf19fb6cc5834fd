/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verification of a run against a plain computation. Contributions are a pure function of (rank,
 * slot, element, iteration), so any rank can compute what any result must be, from the statements
 * that the schedule itself makes, without asking another rank.
 */
#ifndef WEFT_TOOLS_COMMANDS_VERIFY_H
#define WEFT_TOOLS_COMMANDS_VERIFY_H

#include <weft/weft.h>

/** What contributions look like. */
enum verify_fill {
    /** Integers of any value; floating point: small integers whose sums are exact. */
    VERIFY_PLAIN,
    /** A third of them zero: for logical operations. */
    VERIFY_LOGICAL,
    /** Floating point: plus and minus 1, 2 and 1/2, whose products are exact. */
    VERIFY_PRODUCT,
    /** Lists of pairs, for merges of sparse vectors: by verify_fill_pairs(). */
    VERIFY_PAIRS,
    /** What compression keeps: by verify_fill_compressed(). */
    VERIFY_COMPRESSED
};

/** Mixes bits so that neighbours share nothing (the finisher of splitmix64). */
static inline uint64_t verify_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/** A result that is not what it should be. */
struct verify_fault {
    int rank;
    const char *slot;
    size_t element;
    char got[32];
    char expected[32];
};

/** The contributions that suit an operation (NULL: any), and the operations of the results that
 *  @p count schedules state. */
enum verify_fill verify_fill_for_op(const struct weft_op *op);
enum verify_fill verify_fill_for(struct weft_schedule *const *schedules, size_t count);

/** Writes @p count elements, from element @p first, of slot @p slot of rank @p rank. */
void verify_fill(enum verify_fill fill, void *data, weft_dtype_t dtype, int rank, const char *slot,
                 size_t first, size_t count, uint64_t iteration);

/** 1 if @p op merges lists of (index, value) pairs, as schedules of gTop-k do. */
int verify_is_merge(const struct weft_op *op);

/** Fills a slot of @p schedule's rank: the list of pairs that is its contribution ("send"), what
 *  goes with it (bounds of regions, a threshold), and 0 in any other. */
void verify_fill_pairs(const struct weft_schedule *schedule, const struct weft_slot_info *slot,
                       void *data, uint64_t iteration);

/** Compares the list in @p data with the plain sum of the contributions; as verify_results(). */
int verify_pairs(const struct weft_schedule *schedule, const struct weft_result *result,
                 const void *data, uint64_t iteration, struct verify_fault *fault);

/** Fills a slot of a schedule that compresses: contributions of which nothing is lost, and bases,
 *  means and factors that go with them. @return WEFT_OK, WEFT_ERR_MEMORY. */
int verify_fill_compressed(const struct weft_schedule *schedule, const struct weft_slot_info *slot,
                           void *data, uint64_t iteration);

/** Compares a result in @p data with the plain sum of those, within some roundings; as
 *  verify_results(). */
int verify_compressed(const struct weft_schedule *schedule, const struct weft_result *result,
                      const void *data, uint64_t iteration, struct verify_fault *fault);

/**
 * Compares every result that @p schedule states with a fold of the contributions in the order of
 * ranks. Exact, unless a floating-point fold may round. @p slots[s] is the memory of slot s.
 * @return WEFT_OK; WEFT_IN_PROGRESS: they differ, @p fault says where first; an error.
 */
int verify_results(const struct weft_schedule *schedule, enum verify_fill fill, void *const *slots,
                   uint64_t iteration, struct verify_fault *fault);

#endif
