/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversions between floating point datatypes. `to` and `from` do not overlap. Any grid of one
 * dimension. */
#include "gpu/kernels/conversions.cuh"

#define CONVERSION(from, to, from_type, to_type, expression)                                       \
    struct from##_##to {                                                                           \
        typedef from_type source;                                                                  \
        typedef to_type target;                                                                    \
        static __device__ __forceinline__ target of(source x)                                      \
        {                                                                                          \
            return expression;                                                                     \
        }                                                                                          \
    };

CONVERSION(f16, bf16, uint16_t, uint16_t, weft_narrow_bf16(weft_f32_of_f16(x)))
CONVERSION(f16, f32, uint16_t, float, weft_f32_of_f16(x))
CONVERSION(f16, f64, uint16_t, double, weft_f64_of_f32(weft_f32_of_f16(x)))
CONVERSION(bf16, f16, uint16_t, uint16_t, weft_f16_of_f32(weft_widen_bf16(x)))
CONVERSION(bf16, f32, uint16_t, float, weft_widen_bf16(x))
CONVERSION(bf16, f64, uint16_t, double, weft_f64_of_f32(weft_widen_bf16(x)))
CONVERSION(f32, f16, float, uint16_t, weft_f16_of_f32(x))
CONVERSION(f32, bf16, float, uint16_t, weft_narrow_bf16(x))
CONVERSION(f32, f64, float, double, weft_f64_of_f32(x))
CONVERSION(f64, f16, double, uint16_t, weft_f16_of_f32(weft_odd_of_f64(x)))
CONVERSION(f64, bf16, double, uint16_t, weft_narrow_bf16(weft_odd_of_f64(x)))
CONVERSION(f64, f32, double, float, weft_f32_of_f64(x))

/* The wider side in vectors of 16 bytes, the other in as many elements, if both begin so. */
template <class conversion> WEFT_DEVICE void convert(void *to_, const void *from_, uint64_t count)
{
    typedef typename conversion::source source;
    typedef typename conversion::target target;
    enum { WIDER = sizeof(source) > sizeof(target) ? sizeof(source) : sizeof(target) };
    enum { LANES = WEFT_VECTOR / WIDER };
    typedef weft_pack<source, LANES> source_pack;
    typedef weft_pack<target, LANES> target_pack;
    target *to = (target *)to_;
    const source *from = (const source *)from_;
    const unsigned offset = weft_offset(to, sizeof(target_pack));
    const bool alike =
        weft_offset(from, sizeof(source_pack)) / sizeof(source) == offset / sizeof(target);
    const weft_split split =
        alike ? weft_split_of(count, offset, sizeof(target), LANES) : weft_split{count, 0};

    for (uint64_t i = weft_first(); i < split.vectors; i += weft_step()) {
        const source_pack x = ((const source_pack *)(from + split.head))[i];
        target_pack y;

#pragma unroll
        for (int lane = 0; lane < LANES; lane++)
            y.at[lane] = conversion::of(x.at[lane]);
        ((target_pack *)(to + split.head))[i] = y;
    }
    for (uint64_t i = weft_first(); i < count - split.vectors * LANES; i += weft_step()) {
        const uint64_t at = weft_single(split, LANES, i);

        to[at] = conversion::of(from[at]);
    }
}

#define CONVERT(from, to)                                                                          \
    WEFT_KERNEL weft_convert_##from##_##to(void *target, const void *source, uint64_t count)       \
    {                                                                                              \
        convert<from##_##to>(target, source, count);                                               \
    }

CONVERT(f16, bf16)
CONVERT(f16, f32)
CONVERT(f16, f64)
CONVERT(bf16, f16)
CONVERT(bf16, f32)
CONVERT(bf16, f64)
CONVERT(f32, f16)
CONVERT(f32, bf16)
CONVERT(f32, f64)
CONVERT(f64, f16)
CONVERT(f64, bf16)
CONVERT(f64, f32)
