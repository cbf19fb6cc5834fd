/* SPDX-License-Identifier: BSD-3-Clause */
/* Compute nodes as tests mostly add them: regions, and a mask of those that are written; and an
 * operation that computes nothing. */
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

static inline int compute_nothing(struct weft_call *call)
{
    (void)call;
    return WEFT_OK;
}

static inline struct weft_op *idle_op(const char *name)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;

    weft_op_config_init(&config);
    config.name = name;
    config.compute = compute_nothing;
    if (weft_op_create(&op, &config))
        abort();
    return op;
}

#endif
