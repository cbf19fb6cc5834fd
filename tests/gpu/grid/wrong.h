/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels for the grid's own tests: most of them are wrong, each in its way. */
#ifndef WEFT_TESTS_GPU_GRID_WRONG_H
#define WEFT_TESTS_GPU_GRID_WRONG_H

#define GRID_WRONG_KERNELS(X)                                                                      \
    X(grid_reverse)                                                                                \
    X(grid_reverse_no_barrier)                                                                     \
    X(grid_divergent_barrier)                                                                      \
    X(grid_barrier_missed)                                                                         \
    X(grid_left_early)                                                                             \
    X(grid_warp_sum)                                                                               \
    X(grid_warp_implicit)                                                                          \
    X(grid_lane_inactive)                                                                          \
    X(grid_lane_not_in_mask)                                                                       \
    X(grid_masks_differ)                                                                           \
    X(grid_divergent_warp)                                                                         \
    X(grid_segments)                                                                               \
    X(grid_match)                                                                                  \
    X(grid_count)                                                                                  \
    X(grid_count_no_atomic)                                                                        \
    X(grid_shared_behind)                                                                          \
    X(grid_shared_before)                                                                          \
    X(grid_shared_too_much)                                                                        \
    X(grid_lane_elsewhere)

#endif
