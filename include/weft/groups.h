/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Dynamic grouping: which ranks average together in a version, for any number of ranks and any
 * group size. Every rank computes the same answer alone, from the two numbers and the version.
 *
 * Version 0 writes the ranks 0 .. P-1 row by row, G = ceil(P / S) rows, one row a group; the first
 * P mod G rows are one longer. The order of the next version reads the rows column by column (a
 * perfect shuffle) and is cut into the same rows again:
 *
 *     P = 7, S = 3      version 0      version 1      version 2
 *     group 0           0 1 2          0 3 5          0 1 6
 *     group 1           3 4            1 4            3 4
 *     group 2           5 6            6 2            2 5
 *
 * On powers of two these are the groups of Algorithm 1 of Li, Ben-Nun, Dryden, Di Girolamo,
 * Hoefler, "Breaking (Global) Barriers in Parallel Stochastic Optimization with Wait-Avoiding Group
 * Averaging" (TPDS 2021, section 3.2), with mask = 1 << shift afresh in each of its phases, and
 * recursive doubling over the places of a group is its butterfly. An update reaches all ranks
 * within ceil(log_S P) + 2 versions (S >= 2; seen for every P up to 129).
 *
 * Version t is the t-th power of the shuffle, of any 64-bit t. Where all groups have the same size
 * that is a multiplication; elsewhere the object keeps marks on the shuffle's cycles and moves
 * along each by t modulo its length. A query allocates nothing, so that a callback of the engine
 * may ask.
 */
#ifndef WEFT_GROUPS_H
#define WEFT_GROUPS_H

#include <weft/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The groups of all versions. Immutable: any threads may ask it at once, ranks may share it. */
struct weft_groups;

/**
 * The group size to take when nothing is known: the power of two nearest to the square root of
 * @p ranks, the larger of two that are equally near; but 2 for two ranks, as a group of one
 * averages nothing. 0 for ranks < 1. Any thread.
 */
WEFT_EXPORT int weft_groups_default_size(int ranks);

/**
 * The groups of @p ranks ranks, of at most @p group_size members each (0: the default size).
 * If ranks is a multiple of the number of groups it takes some 100 bytes; else at most 160 bytes
 * for each unit of the square root of ranks, and O(ranks) time. Local, does not block; destroy it
 * with weft_groups_destroy().
 * @return WEFT_OK; WEFT_ERR_INVALID (ranks < 1, group_size outside 0 .. ranks); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_groups_create(struct weft_groups **groups, int ranks, int group_size);

/** How many groups a version has: ceil(ranks / group_size). WEFT_ERR_INVALID (negative) on NULL. */
WEFT_EXPORT int weft_groups_count(const struct weft_groups *groups);

/** The most members that a group has: ceil(ranks / groups), never more than the group size. */
WEFT_EXPORT int weft_groups_largest(const struct weft_groups *groups);

/** The members of group @p group, 0 .. count - 1: the same number in every version. Negative: a
 *  status. */
WEFT_EXPORT int weft_groups_size(const struct weft_groups *groups, int group);

/**
 * Where @p rank is in version @p version. With groups of one size O(log version), else at most
 * sqrt(ranks) steps of the shuffle, or 64, of a few nanoseconds each.
 * @param group receives its group, 0 .. count - 1; may be NULL.
 * @param place receives its place there, 0 .. size - 1; may be NULL.
 * @return WEFT_OK; WEFT_ERR_INVALID (groups NULL, rank outside 0 .. ranks - 1).
 */
WEFT_EXPORT int weft_groups_find(const struct weft_groups *groups, uint64_t version, int rank,
                                 int *group, int *place);

/**
 * The members of a group in version @p version. O(members) with groups of one size, else each takes
 * what weft_groups_find() does.
 * @param members receives their ranks by place (not sorted); room for weft_groups_largest() is
 *        enough for every group.
 * @param count receives their number; may be NULL.
 * @return WEFT_OK; WEFT_ERR_INVALID (groups or members NULL, group outside 0 .. count - 1).
 */
WEFT_EXPORT int weft_groups_members(const struct weft_groups *groups, uint64_t version, int group,
                                    int *members, int *count);

/**
 * The group of @p rank in version @p version: weft_groups_find() and weft_groups_members() in one.
 * members[*place] is @p rank. All members get the same list, so a place can serve as the rank of a
 * schedule of *count ranks.
 * @param count, place may be NULL.
 * @return WEFT_OK; WEFT_ERR_INVALID (groups or members NULL, rank outside 0 .. ranks - 1).
 */
WEFT_EXPORT int weft_groups_at(const struct weft_groups *groups, uint64_t version, int rank,
                               int *members, int *count, int *place);

/**
 * The places that @p rank has in any version, since plans are made for them: few (the logarithm of
 * ranks at most) if ranks and group size are powers of two, else up to all. Takes a step of the
 * shuffle for each version until it repeats, or until all places have been seen.
 * @param places has room for 2 * weft_groups_largest(): places[i] becomes 1 if the rank ever has
 *        place i of a group of the largest size, places[largest + i] of one that is smaller by one;
 *        0 else.
 * @return how many, or WEFT_ERR_INVALID (negative).
 */
WEFT_EXPORT int weft_groups_places(const struct weft_groups *groups, int rank,
                                   unsigned char *places);

/** Frees it. NULL is accepted. */
WEFT_EXPORT void weft_groups_destroy(struct weft_groups *groups);

#ifdef __cplusplus
}
#endif

#endif
