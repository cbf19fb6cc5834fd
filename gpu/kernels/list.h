/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of all kernels, and what they are called by. */
#ifndef WEFT_GPU_KERNELS_LIST_H
#define WEFT_GPU_KERNELS_LIST_H

/* Operations of reductions with their types. Integers of both signs share what is the same for
 * both, under the name of the unsigned one. */
#define WEFT_GPU_INTEGER_OPERATIONS(X, bits)                                                       \
    X(sum_u##bits)                                                                                 \
    X(prod_u##bits)                                                                                \
    X(min_i##bits)                                                                                 \
    X(min_u##bits)                                                                                 \
    X(max_i##bits)                                                                                 \
    X(max_u##bits)                                                                                 \
    X(land_u##bits)                                                                                \
    X(lor_u##bits)                                                                                 \
    X(lxor_u##bits)                                                                                \
    X(band_u##bits)                                                                                \
    X(bor_u##bits)                                                                                 \
    X(bxor_u##bits)

#define WEFT_GPU_FLOAT_OPERATIONS(X, format)                                                       \
    X(sum_##format)                                                                                \
    X(prod_##format)                                                                               \
    X(min_##format)                                                                                \
    X(max_##format)                                                                                \
    X(land_##format)                                                                               \
    X(lor_##format)                                                                                \
    X(lxor_##format)

#define WEFT_GPU_OPERATIONS(X)                                                                     \
    WEFT_GPU_INTEGER_OPERATIONS(X, 8)                                                              \
    WEFT_GPU_INTEGER_OPERATIONS(X, 16)                                                             \
    WEFT_GPU_INTEGER_OPERATIONS(X, 32)                                                             \
    WEFT_GPU_INTEGER_OPERATIONS(X, 64)                                                             \
    WEFT_GPU_FLOAT_OPERATIONS(X, f16)                                                              \
    WEFT_GPU_FLOAT_OPERATIONS(X, bf16)                                                             \
    WEFT_GPU_FLOAT_OPERATIONS(X, f32)                                                              \
    WEFT_GPU_FLOAT_OPERATIONS(X, f64)

/* Each has two kernels, weft_reduce_sum_f32(to, a, b, count) and
 * weft_reduce_n_sum_f32(to, inputs, count), say. */

/* The same for every floating point datatype, and every one with indices of 32 and 64 bits. */
#define WEFT_GPU_FORMATS(X, prefix) X(prefix##_f16) X(prefix##_bf16) X(prefix##_f32) X(prefix##_f64)
#define WEFT_GPU_LISTS(X, prefix)                                                                  \
    X(prefix##_f16_u32)                                                                            \
    X(prefix##_bf16_u32)                                                                           \
    X(prefix##_f32_u32)                                                                            \
    X(prefix##_f64_u32)                                                                            \
    X(prefix##_f16_u64)                                                                            \
    X(prefix##_bf16_u64)                                                                           \
    X(prefix##_f32_u64)                                                                            \
    X(prefix##_f64_u64)

#define WEFT_GPU_COPY_KERNELS(X)                                                                   \
    X(weft_copy_strided)                                                                           \
    X(weft_copy_pieces)                                                                            \
    X(weft_fill_8)                                                                                 \
    X(weft_fill_16)                                                                                \
    X(weft_fill_32)                                                                                \
    X(weft_fill_64)

#define WEFT_GPU_NAN_KERNELS(X)                                                                    \
    WEFT_GPU_FORMATS(X, weft_nan_count)                                                            \
    WEFT_GPU_FORMATS(X, weft_nan_clear)

#define WEFT_GPU_CONVERT_KERNELS(X)                                                                \
    X(weft_convert_f16_bf16)                                                                       \
    X(weft_convert_f16_f32)                                                                        \
    X(weft_convert_f16_f64)                                                                        \
    X(weft_convert_bf16_f16)                                                                       \
    X(weft_convert_bf16_f32)                                                                       \
    X(weft_convert_bf16_f64)                                                                       \
    X(weft_convert_f32_f16)                                                                        \
    X(weft_convert_f32_bf16)                                                                       \
    X(weft_convert_f32_f64)                                                                        \
    X(weft_convert_f64_f16)                                                                        \
    X(weft_convert_f64_bf16)                                                                       \
    X(weft_convert_f64_f32)

#define WEFT_GPU_COMBINE_KERNELS(X)                                                                \
    X(weft_combine_f32)                                                                            \
    X(weft_combine_f64)                                                                            \
    X(weft_squares)

/* Blocks of weft_squares, at most, and threads of one. */
#define WEFT_SQUARES_BLOCKS  1024
#define WEFT_SQUARES_THREADS 256

/* Steps of a tile of the sum of two lists (sparse.cu). */
#define WEFT_MERGE_TILE 1024

#define WEFT_GPU_SPARSE_KERNELS(X)                                                                 \
    X(weft_merge_split_u32)                                                                        \
    X(weft_merge_split_u64)                                                                        \
    X(weft_merge_count_u32)                                                                        \
    X(weft_merge_count_u64)                                                                        \
    WEFT_GPU_LISTS(X, weft_merge_write)                                                            \
    X(weft_scatter)

/* What is looked for in lists, and what is refused (lists.cu): order; NaNs, which become +0; a
 * threshold that is none. */
#define WEFT_LIST_ORDER  1
#define WEFT_LIST_NANS   2
#define WEFT_LIST_CLEAR  4
#define WEFT_LIST_RAISED 8

/* What is wrong with bounds. */
#define WEFT_BOUNDS_RIGHT 0
#define WEFT_BOUNDS_ENDS  1
#define WEFT_BOUNDS_STEP  2
#define WEFT_BOUNDS_ORDER 3
#define WEFT_BOUNDS_LAST  4

#define WEFT_GPU_LIST_KERNELS(X)                                                                   \
    X(weft_list_begin)                                                                             \
    X(weft_list_check)                                                                             \
    X(weft_list_cut)                                                                               \
    X(weft_list_select)                                                                            \
    X(weft_list_raise)                                                                             \
    X(weft_list_count)                                                                             \
    X(weft_list_write)                                                                             \
    X(weft_list_bounds)                                                                            \
    X(weft_list_end)

/* Entries that a thread of a selection takes at once; bits of a vector of f32 that are left behind
 * its first digit; and what the least magnitude is multiplied by to become a guess (topk.cu). */
#define WEFT_SELECT_ITEMS 4
#define WEFT_TOPK_WIDE    20
#define WEFT_SELECT_HINT  0.875f

#define WEFT_GPU_TOPK_KERNELS(X)                                                                   \
    WEFT_GPU_FORMATS(X, weft_topk_count)                                                           \
    X(weft_topk_wide_f32)                                                                          \
    X(weft_select_begin)

#define WEFT_GPU_SELECT_KERNELS(X)                                                                 \
    WEFT_GPU_LISTS(X, weft_select_gather)                                                          \
    WEFT_GPU_LISTS(X, weft_select_write)                                                           \
    X(weft_select_end)

#define WEFT_GPU_OF_BITS(X, prefix) X(prefix##_1) X(prefix##_2) X(prefix##_4) X(prefix##_8)

#define WEFT_GPU_QUANTISE_KERNELS(X)                                                               \
    WEFT_GPU_OF_BITS(X, weft_quantise)                                                             \
    X(weft_quantise_norms)                                                                         \
    WEFT_GPU_OF_BITS(X, weft_quantise_codes)                                                       \
    WEFT_GPU_OF_BITS(X, weft_dequantise)                                                           \
    WEFT_GPU_OF_BITS(X, weft_dequantise_add)

#define WEFT_GPU_PROJECT_KERNELS(X)                                                                \
    X(weft_project_16)                                                                             \
    X(weft_project_64)                                                                             \
    X(weft_reconstruct_16)                                                                         \
    X(weft_reconstruct_64)                                                                         \
    X(weft_correlate_16)                                                                           \
    X(weft_correlate_64)                                                                           \
    X(weft_project_narrow)                                                                         \
    X(weft_project_squares)                                                                        \
    X(weft_project_add_squares)

/* Columns that one block makes orthonormal (orthonormal.cu). */
#define WEFT_ORTHONORMAL_MOST 1024

#define WEFT_GPU_ORTHONORMAL_KERNELS(X) X(weft_orthonormalise)

#endif
