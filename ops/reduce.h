/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of reduction kernels, one for each SIMD level: each comes from reduce_template.h,
 * compiled once a level with the flags of that level, so nothing but dispatch.c may name them. */
#ifndef WEFT_OPS_REDUCE_H
#define WEFT_OPS_REDUCE_H

#include "ops/kernels.h"

typedef weft__reduce_kernel weft__reduce_table[WEFT_OP_COUNT][WEFT_DTYPE_COUNT];

extern const weft__reduce_table weft__reduce_scalar;
extern const weft__reduce_table weft__reduce_avx2;
extern const weft__reduce_table weft__reduce_avx512;

#endif
