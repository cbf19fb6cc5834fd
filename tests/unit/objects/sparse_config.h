/* SPDX-License-Identifier: BSD-3-Clause */
/* A configuration of sparse averaging with its tensors, and defaults for the rest. */
#ifndef WEFT_TESTS_SPARSE_CONFIG_H
#define WEFT_TESTS_SPARSE_CONFIG_H

#include <weft/weft.h>

static inline struct weft_sparse_average_config config_of(const struct weft_piece *tensors,
                                                          size_t count)
{
    struct weft_sparse_average_config config;
    weft_sparse_average_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = count;
    return config;
}

#endif
