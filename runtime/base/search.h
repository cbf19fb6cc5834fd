/* SPDX-License-Identifier: BSD-3-Clause */
/* Binary search. */
#ifndef WEFT_RUNTIME_BASE_SEARCH_H
#define WEFT_RUNTIME_BASE_SEARCH_H

#include <stddef.h>

/*
 * Moves the variable `low` to the first of low .. high - 1 for which `is_before`, an expression in
 * `middle`, is 0, or to `high` if there is none; it must not be 0 for any before one for which it
 * is.
 *
 *     size_t at = 0;
 *     WEFT__SEARCH(at, count, middle, labels[middle].node < node);
 */
#define WEFT__SEARCH(low, high, middle, is_before)                                                 \
    for (size_t middle, search_high_ = (high); (low) < search_high_;) {                            \
        middle = (low) + (search_high_ - (low)) / 2;                                               \
        if (is_before)                                                                             \
            (low) = middle + 1;                                                                    \
        else                                                                                       \
            search_high_ = middle;                                                                 \
    }

#endif
