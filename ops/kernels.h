/* SPDX-License-Identifier: BSD-3-Clause */
/* Arithmetic on local memory: the table of reduction kernels that runtime/ dispatches to. */
#ifndef WEFT_OPS_KERNELS_H
#define WEFT_OPS_KERNELS_H

#include <weft/types.h>

/* dst[i] = a[i] op b[i], i < count. dst is exactly a, exactly b, or overlaps neither. Any alignment
 * of the element type. */
typedef void (*weft__reduce_kernel)(void *dst, const void *a, const void *b, size_t count);

/* The kernel for the SIMD level in use; NULL where the operation is not defined on the datatype. */
weft__reduce_kernel weft__reduce_kernel_find(weft_op_kind_t kind, weft_dtype_t dtype);

/* Rounding conversions, nearest even; NaN stays NaN. */
float weft__f16_to_f32(uint16_t bits);
uint16_t weft__f32_to_f16(float value);
float weft__bf16_to_f32(uint16_t bits);
uint16_t weft__f32_to_bf16(float value);
/* count elements of one floating point datatype as another; 0 if one is none. No overlap. */
int weft__convert(weft_dtype_t to_dtype, void *to, weft_dtype_t from_dtype, const void *from,
                  size_t count);

#endif
