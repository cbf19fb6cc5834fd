/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Dense vectors in fewer bits, on local memory.
 *
 *     quantise     Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via
 *                  Gradient Quantization and Encoding" (NIPS 2017), section 3
 *
 * What is quantised is added when it has been dequantised.
 *
 * Vectors are f32, of any alignment of a float. All results are the same bits on every machine and
 * at every SIMD level. Any thread may call; nothing here communicates or blocks.
 */
#ifndef WEFT_COMPRESS_H
#define WEFT_COMPRESS_H

#include <weft/model.h>
#include <weft/sized.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- quantisation ---- */

/** What the elements of a bucket are measured by. */
typedef enum weft_quantise_norm {
    /** The largest magnitude: nothing is ever larger than the largest level, and the variance is
     *  least. What implementations of QSGD use. */
    WEFT_QUANTISE_MAX,
    /** The Euclidean norm, as in the paper (section 3.1). */
    WEFT_QUANTISE_L2
} weft_quantise_norm_t;

/** weft_quantiser.bits: signs alone, times the mean magnitude of the bucket (1-bit SGD, EF-signSGD:
 *  Karimireddy et al., ICML 2019). Deterministic, and biased: its error does not average out, so
 *  who uses it keeps a residual. */
#define WEFT_QUANTISE_SIGN 1

/** How elements are quantised. Members that are 0 mean their defaults. */
struct weft_quantiser {
    size_t struct_size;
    /** Bits of an element, its sign included: 2, 4 (default) or 8; or WEFT_QUANTISE_SIGN. With b
     *  bits an element x of a bucket of norm n becomes n l / s, where s = 2^(b - 1) - 1, and l, the
     *  level, is one of the two whole numbers around s x / n, drawn so that its expectation is
     *  that. */
    int bits;
    /** Elements of a bucket, a multiple of 8 up to 2^30; the last one may have fewer. 0: 512. */
    size_t bucket;
    /** Not looked at for WEFT_QUANTISE_SIGN. */
    weft_quantise_norm_t norm;
    /** Of what is drawn: the same seed, stream and values give the same bits. */
    uint64_t seed;
    /** WEFT_NAN_ERROR (default): NaNs and infinities are an error; WEFT_NAN_ZERO: they count as +0.
     */
    weft_nan_policy_t nan;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_quantiser_init_sized(struct weft_quantiser *quantiser, size_t size);
#define weft_quantiser_init(quantiser) weft_quantiser_init_sized((quantiser), sizeof *(quantiser))

/**
 * Bytes of @p count elements that have been quantised. They lie bucket by bucket: the norm (f32,
 * where the machine's floats are little-endian so are these), then the codes. Element i of a bucket
 * has the bits b i .. b i + b - 1, the lowest of which are in the first byte: its level in two's
 * complement, or its sign bit. The last bucket is rounded up to whole bytes with zeros.
 *
 * So parts of a vector that begin at a bucket are quantised, and dequantised, one by one.
 * @param quantiser NULL: all defaults.
 * @return 0 if the quantiser is wrong (with an error text), or for no elements; SIZE_MAX if it is
 *         more than can be.
 */
WEFT_EXPORT size_t weft_quantised_bytes(const struct weft_quantiser *quantiser, size_t count);

/**
 * Quantises values[0 .. count).
 *
 * What is drawn depends on the seed, the stream, the number of the bucket and the place of the
 * element in it. s x / n is rounded to the nearest multiple of 2^-16 (8 bits: 2^-13) before a level
 * is drawn, with as many random bits. So the expectation is off by at most 2^-17 of the distance
 * between levels, n / s (8 bits: 2^-14), and n 2^-22 besides for the roundings of floats. What has
 * been dequantised is quantised to the same bits again, whatever is drawn, with WEFT_QUANTISE_MAX
 * and a norm of at least 2^-118.
 *
 * The variance of an element is at most (n / s)^2 / 4. Over a bucket of m elements the sum of the
 * variances is, with WEFT_QUANTISE_L2, at most min(m / s^2, sqrt(m) / s) |x|^2 (QSGD, Lemma 3.1).
 *
 * A Euclidean norm that is more than a float can be is the largest float, which no element exceeds.
 * A bucket of zeros has the norm 0, and comes back as zeros.
 *
 * @param quantiser NULL: all defaults.
 * @param stream chooses the numbers that are drawn, beside the seed: another one for every vector
 *        that is to be drawn independently.
 * @param out weft_quantised_bytes() bytes, any alignment; does not overlap values.
 * @param bad receives the number of NaNs and infinities, also with WEFT_ERR_COMPUTE; may be NULL.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (NaNs or infinities, with WEFT_NAN_ERROR: what is in `out` is
 *         not defined then); WEFT_ERR_INVALID. O(count), one pass over memory.
 */
WEFT_EXPORT int weft_quantise(const struct weft_quantiser *quantiser, uint64_t stream,
                              const float *values, size_t count, void *out, uint64_t *bad);

/**
 * values[i] = what has been quantised, by a quantiser of the same bits and bucket: norm * (level *
 * (1 / s)), each rounded to f32. Any bytes are read: codes that are never written are levels of
 * -(s + 1), and a norm may be any float.
 * @param in weft_quantised_bytes() bytes, any alignment; does not overlap values.
 * @return WEFT_OK; WEFT_ERR_INVALID. O(count).
 */
WEFT_EXPORT int weft_dequantise(const struct weft_quantiser *quantiser, const void *in,
                                size_t count, float *values);

/** values[i] += what weft_dequantise() gives. @return as that. */
WEFT_EXPORT int weft_dequantise_add(const struct weft_quantiser *quantiser, const void *in,
                                    size_t count, float *values);

#ifdef __cplusplus
}
#endif

#endif
