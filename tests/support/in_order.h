/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks whose messages run in the order of issue: an executor that shares nothing with
 * runtime/graph/issue.c but the lists. A rank issues its groups one after the other, each when the
 * graph allows all of its nodes; a message happens when both ends are issued; a group ends when
 * all of its messages have. Which of the things that can happen comes next is drawn.
 */
#ifndef WEFT_TESTS_IN_ORDER_H
#define WEFT_TESTS_IN_ORDER_H

#include "runtime/graph/issue.h"

/* Groups, rank by rank: nodes[first[r]] .. nodes[first[r + 1] - 1], with the number of the group.
 * Those of a rank ascend. */
struct in_order_groups {
    const uint32_t *nodes, *first, *group;
};

struct in_order_outcome {
    uint8_t *ended; /* by node; the caller's */
    uint32_t ended_count;
    int mismatch; /* the k-th that a rank issues to another one is not the k-th there */
};

/* Executes; `groups` NULL: without an order, whatever can happen does. `fires`: the events of the
 * application that it fires, by node; NULL: all. `random` 0: first things first. */
void in_order_execute(const struct weft__issue *issue, const struct in_order_groups *groups,
                      const uint8_t *fires, uint64_t random, struct in_order_outcome *outcome);

#endif
