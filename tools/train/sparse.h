/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse averaging as the options of `weft train` have it.
 */
#ifndef WEFT_TOOLS_TRAIN_SPARSE_H
#define WEFT_TOOLS_TRAIN_SPARSE_H

#include "tools/train/algorithm.h"

/** Fills in a configuration. @p grouped 1: of groups of a merged gradient, without what that
 *  settles itself; 0: of the gradients. */
void train_sparse_config(struct weft_sparse_average_config *config, const struct train_setup *setup,
                         weft_sparse_method_t method, int grouped);

/** How --merge-sparse makes groups sparse, if it does. */
weft_sparse_method_t train_sparse_of_groups(const struct train_options *options);

#endif
