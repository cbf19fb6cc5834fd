/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and fills. What is written overlaps nothing that is read. */
#include "gpu/kernels/arguments.h"
#include "gpu/kernels/common.cuh"

/* `bytes` of one row by threads number `first`, `first + step`...: units of a type as long as there
 * are whole ones, then bytes. */
template <class unit>
WEFT_DEVICE void copy_row(void *to, const void *from, uint64_t bytes, uint64_t first, uint64_t step)
{
    const uint64_t units = bytes / sizeof(unit);

    for (uint64_t i = first; i < units; i += step)
        ((unit *)to)[i] = ((const unit *)from)[i];
    for (uint64_t i = units * sizeof(unit) + first; i < bytes; i += step)
        ((char *)to)[i] = ((const char *)from)[i];
}

/* By the widest unit that addresses allow: `bits` has those of all of them. */
WEFT_DEVICE void copy_any(void *to, const void *from, uint64_t bytes, uint64_t bits, uint64_t first,
                          uint64_t step)
{
    if (bits % 16 == 0)
        copy_row<uint4>(to, from, bytes, first, step);
    else if (bits % 8 == 0)
        copy_row<uint64_t>(to, from, bytes, first, step);
    else if (bits % 4 == 0)
        copy_row<uint32_t>(to, from, bytes, first, step);
    else if (bits % 2 == 0)
        copy_row<uint16_t>(to, from, bytes, first, step);
    else
        copy_row<char>(to, from, bytes, first, step);
}

/* Rows of bytes, each a stride behind the one before. Columns go along x, rows along y; a grid and
 * blocks of any two sizes. */
WEFT_KERNEL weft_copy_strided(void *to, uint64_t to_stride, const void *from, uint64_t from_stride,
                              uint64_t row_bytes, uint64_t rows)
{
    const uint64_t step = (uint64_t)gridDim.y * blockDim.y;
    const uint64_t bits =
        (uint64_t)(uintptr_t)to | (uint64_t)(uintptr_t)from | to_stride | from_stride;

    for (uint64_t row = (uint64_t)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += step)
        copy_any((char *)to + row * to_stride, (const char *)from + row * from_stride, row_bytes,
                 bits, weft_first(), weft_step());
}

/* Each piece by the blocks with its place along y; any grid of two dimensions, blocks of one. */
WEFT_KERNEL weft_copy_pieces(const __grid_constant__ weft_gpu_pieces pieces)
{
    for (uint32_t p = blockIdx.y; p < pieces.count; p += gridDim.y) {
        void *to = pieces.piece[p].to;
        const void *from = pieces.piece[p].from;

        copy_any(to, from, pieces.piece[p].bytes, (uint64_t)((uintptr_t)to | (uintptr_t)from),
                 weft_first(), weft_step());
    }
}

template <class element> WEFT_DEVICE void fill(void *to_, uint64_t bits, uint64_t count)
{
    enum { LANES = WEFT_VECTOR / sizeof(element) };
    typedef weft_pack<element, LANES> pack;
    element *to = (element *)to_;
    const weft_split split =
        weft_split_of(count, weft_offset(to, WEFT_VECTOR), sizeof(element), LANES);
    pack all;

#pragma unroll
    for (int lane = 0; lane < LANES; lane++)
        all.at[lane] = (element)bits;
    for (uint64_t i = weft_first(); i < split.vectors; i += weft_step())
        ((pack *)(to + split.head))[i] = all;
    for (uint64_t i = weft_first(); i < count - split.vectors * LANES; i += weft_step())
        to[weft_single(split, LANES, i)] = (element)bits;
}

/* Elements of 8 to 64 bits, all with the lower ones of `bits`. Any grid of one dimension. */
#define FILL(width)                                                                                \
    WEFT_KERNEL weft_fill_##width(void *to, uint64_t bits, uint64_t count)                         \
    {                                                                                              \
        fill<uint##width##_t>(to, bits, count);                                                    \
    }

FILL(8)
FILL(16)
FILL(32)
FILL(64)
