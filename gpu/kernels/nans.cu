/* SPDX-License-Identifier: BSD-3-Clause */
/* NaNs are counted, or become +0. *total grows by their number; it is not set to 0 before. Any grid
 * of one dimension, of blocks of whole warps. */
#include "gpu/kernels/count.cuh"

/* A number is NaN if its bits without the sign are above those of infinity. */
template <class key, bool clears>
WEFT_DEVICE void nans(key *x, key infinity, uint64_t count, unsigned long long *total)
{
    enum { LANES = WEFT_VECTOR / sizeof(key) };
    typedef weft_pack<key, LANES> pack;
    const key magnitude = (key)((key) ~(key)0 >> 1);
    const weft_split split = weft_split_of(count, weft_offset(x, WEFT_VECTOR), sizeof(key), LANES);
    pack *vectors = (pack *)(x + split.head);
    uint64_t found = 0;

    for (uint64_t i = weft_first(); i < split.vectors; i += weft_step()) {
        pack vector = vectors[i];
        uint32_t here = 0;

#pragma unroll
        for (int lane = 0; lane < LANES; lane++)
            if ((key)(vector.at[lane] & magnitude) > infinity) {
                vector.at[lane] = 0;
                here++;
            }
        if (clears && here > 0)
            vectors[i] = vector;
        found += here;
    }
    for (uint64_t i = weft_first(); i < count - split.vectors * LANES; i += weft_step()) {
        const uint64_t at = weft_single(split, LANES, i);

        if ((key)(x[at] & magnitude) <= infinity)
            continue;
        if (clears)
            x[at] = 0;
        found++;
    }
    weft_add_count(total, found);
}

#define NANS(format, bits, infinity)                                                               \
    WEFT_KERNEL weft_nan_count_##format(const void *x, uint64_t count, unsigned long long *total)  \
    {                                                                                              \
        nans<uint##bits##_t, false>((uint##bits##_t *)x, infinity, count, total);                  \
    }                                                                                              \
    WEFT_KERNEL weft_nan_clear_##format(void *x, uint64_t count, unsigned long long *total)        \
    {                                                                                              \
        nans<uint##bits##_t, true>((uint##bits##_t *)x, infinity, count, total);                   \
    }

NANS(f16, 16, WEFT_INFINITY_F16)
NANS(bf16, 16, WEFT_INFINITY_BF16)
NANS(f32, 32, WEFT_INFINITY_F32)
NANS(f64, 64, WEFT_INFINITY_F64)
