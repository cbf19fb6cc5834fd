/* SPDX-License-Identifier: BSD-3-Clause */
/* Compute nodes as tests mostly add them: regions, and a mask of those that are written. */
#ifndef WEFT_TESTS_COMPUTE_H
#define WEFT_TESTS_COMPUTE_H

#include <stdlib.h>
#include <weft/schedule.h>

static inline weft_node_t add_compute(struct weft_schedule *schedule, const struct weft_op *op,
                                      const struct weft_region *regions, size_t count,
                                      uint64_t writes, weft_value_t produces)
{
    struct weft_compute_argument arguments[64];

    if (count > sizeof arguments / sizeof arguments[0])
        abort();
    for (size_t i = 0; i < count; i++)
        arguments[i] = (struct weft_compute_argument){
            .region = regions[i], .access = writes >> i & 1 ? WEFT_WRITE : WEFT_READ};
    return weft_schedule_add_compute(schedule, op, count ? arguments : NULL, count, produces);
}

#endif
