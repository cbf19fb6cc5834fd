/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients that are summed, with costs that are given, so that nothing is measured. */
#ifndef WEFT_TESTS_UNIT_OBJECTS_GIVEN_COSTS_H
#define WEFT_TESTS_UNIT_OBJECTS_GIVEN_COSTS_H

#include <weft/gradients.h>

static inline void given_costs_init(struct weft_gradients_config *config,
                                    struct weft_merge_config *merge, struct weft_merge_cost *cost)
{
    weft_merge_config_init(merge);
    weft_merge_cost_init(cost);
    cost->a_us = 5;
    cost->b_us_per_byte = 0.01;
    weft_gradients_config_init(config);
    config->reduction = WEFT_GRADIENTS_SUM;
    config->merge = merge;
    config->cost = cost;
}

#endif
