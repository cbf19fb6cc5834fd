/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Dense vectors in fewer bits, on local memory: quantisation, projection onto a few components, the
 * principal components of samples; and the operations with which schedules do so.
 *
 *     quantise     Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via
 *                  Gradient Quantization and Encoding" (NIPS 2017), section 3
 *     project      Yu, Lin, Narra et al., "GradiVeQ: Vector Quantization for Bandwidth-Efficient
 *                  Gradient Aggregation in Distributed CNN Training" (NeurIPS 2018), equations 3-7
 *     correlate    Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression
 *                  for Distributed Optimization" (NeurIPS 2019), Algorithm 1
 *
 * Projections are linear: they commute with sums, so what several ranks have projected is added as
 * it is, and reconstructed once. What is quantised is not: it is added once it is dequantised.
 *
 * Vectors are f32, of any alignment of a float. All results are the same bits on every machine and
 * at every SIMD level, but for weft_pca(). Any thread may call; nothing communicates or blocks.
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

/* ---- projection ---- */

/** A projection of slices of K elements onto d components each. */
struct weft_projection {
    size_t struct_size;
    /** K, at least 1. */
    size_t slice;
    /** d, 0 .. K. */
    size_t components;
    /** K x d, row after row: basis[k * d + j]. Its columns are orthonormal where weft_reconstruct()
     *  is to undo what weft_project() has done. Borrowed for the call. */
    const float *basis;
};

/** All defaults, as weft_context_config_init(). The slice has none. */
WEFT_EXPORT void weft_projection_init_sized(struct weft_projection *projection, size_t size);
#define weft_projection_init(projection)                                                           \
    weft_projection_init_sized((projection), sizeof *(projection))

/** Sums of squares over all slices, of what weft_project() has read: added to what is there. */
struct weft_projection_squares {
    /** Of the values. */
    double values;
    /** Of the values less share times the mean. */
    double centred;
    /** Of the components. With orthonormal columns centred - kept is the loss of equation 7. */
    double kept;
};

/**
 * out[m d + j] = sum over k of basis[k d + j] x[k], where x[k] is values[m K + k] less share times
 * mean[m K + k]: equation 3, with share = 1 / N. A last slice of less than K elements is as if
 * zeros followed.
 *
 * Every product is added with one rounding (fmaf). With 8 components or more this begins with 0 and
 * goes from k = 0 upwards. With less there are 16 sums, number l of the products with k = l modulo
 * 16, k upwards, and then sums l and l + 8, l + 4, l + 2, l + 1 are added. The share is rounded to
 * f32, and taken off with one rounding.
 *
 * What comes out differs from the exact sum of products of x by at most n u / (1 - n u) times the
 * sum of their magnitudes, with u = 2^-24 and n = K (with less than 8 components n = K / 16 + 5).
 *
 * @param count elements; ceil(count / K) slices.
 * @param mean @p count elements; NULL: zeros, and the share is not looked at.
 * @param share finite.
 * @param out ceil(count / K) d elements; overlaps nothing that is read.
 * @param squares may be NULL. f64, in an order that depends on sizes alone.
 * @return WEFT_OK; WEFT_ERR_INVALID. O(count d).
 */
WEFT_EXPORT int weft_project(const struct weft_projection *projection, const float *values,
                             size_t count, const float *mean, double share, float *out,
                             struct weft_projection_squares *squares);

/**
 * values[m K + k] = mean[m K + k] + sum over j of basis[k d + j] components[m d + j]: equation 5.
 * It begins with the mean, and adds products from j = 0 upwards, each with one rounding. So it
 * differs from the exact sum by at most n u / (1 - n u) times the sum of magnitudes, with n = d.
 * @param components ceil(count / K) d elements.
 * @param mean @p count elements, may be values itself; NULL: zeros.
 * @param values @p count elements; overlaps nothing else that is read.
 * @return WEFT_OK; WEFT_ERR_INVALID. O(count d).
 */
WEFT_EXPORT int weft_reconstruct(const struct weft_projection *projection, const float *components,
                                 size_t count, const float *mean, float *values);

/**
 * out[k d + j] = sum over m of values[m K + k] components[m d + j], from 0 on, m upwards, each
 * product added with one rounding: of a matrix of rows of K elements its transpose times another of
 * rows of d elements. (PowerSGD: with weft_project() M Q, with this M^T P, with weft_reconstruct()
 * P Q^T, where `basis` is Q.)
 * @param rows of both; with none the result is 0.
 * @param slice K, at least 1.
 * @param count d.
 * @param out K d elements; overlaps nothing that is read.
 * @return WEFT_OK; WEFT_ERR_INVALID. O(rows K d).
 */
WEFT_EXPORT int weft_correlate(const float *values, size_t rows, size_t slice,
                               const float *components, size_t count, float *out);

/**
 * Makes the columns of a matrix orthonormal, from the first to the last, by Gram-Schmidt, twice. A
 * column of which at most 2^-20 is left of its norm depends on those before it, up to rounding, and
 * becomes 0. Work is done in f64, so nothing that f32 holds is too large or too small; columns come
 * out orthonormal up to a few roundings of f32.
 * @param matrix rows x columns, row after row; finite.
 * @param rank receives how many columns are not 0; may be NULL.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (a NaN or an infinity: nothing was written); WEFT_ERR_INVALID;
 *         WEFT_ERR_MEMORY (16 bytes a column, where there are many). O(rows columns^2).
 */
WEFT_EXPORT int weft_orthonormalise(float *matrix, size_t rows, size_t columns, size_t *rank);

/** to[c * rows + r] = from[r * columns + c]. No overlap.
 *  @return WEFT_OK; WEFT_ERR_INVALID. */
WEFT_EXPORT int weft_transpose(const float *from, size_t rows, size_t columns, float *to);

/* ---- principal components ---- */

/** Which components are looked for. Members that are 0 mean their defaults. */
struct weft_pca_config {
    size_t struct_size;
    /** K: elements of a sample, at least 1. */
    size_t slice;
    /** L: samples, at least 1. */
    size_t samples;
    /** Lambda, 0 .. 1: as few components as leave at most this share of the variance (equation 6).
     *  Default 0.01. WEFT_PCA_EXACT: all that are not 0. */
    double loss;
    /** At most so many. Default: as many as there are, min(K, L - 1). */
    size_t most;
};

/** weft_pca_config.loss: no component that the samples have is left out. */
#define WEFT_PCA_EXACT (-1.0)

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_pca_config_init_sized(struct weft_pca_config *config, size_t size);
#define weft_pca_config_init(config) weft_pca_config_init_sized((config), sizeof *(config))

/**
 * The mean of samples, and the first principal components of what is left: by a singular value
 * decomposition, in f64, of the K x L matrix of centred samples (LAPACK, dgesdd), never of a K x K
 * one. The sign of a column is such that its entry of largest magnitude (of equals the first) is
 * positive. Columns are orthonormal up to their rounding to f32: products of two of them differ
 * from 0 or 1 by at most 2^-22. Components below 2^-52 max(K, L) times the norm of all samples are
 * rounding, and none of them is kept.
 *
 * What LAPACK gives differs between machines, and numbers of its threads, in the last bits: who
 * needs the same bits everywhere computes once and broadcasts. LAPACK is in a library of its own,
 * libweft-lapack, which the first call loads; with it come the threads of OpenBLAS, if it is that,
 * as many as there are cores. They cannot be limited for one call; OPENBLAS_NUM_THREADS=1 in the
 * environment does it for the process.
 *
 * @param samples L x K, sample after sample.
 * @param mean K elements.
 * @param basis receives K x d, row after row: as weft_projection.basis. Room for K min(K, L - 1,
 *        most) elements; may be NULL if that is 0.
 * @param components receives d: at most the rank of the samples, 0 if all samples are alike.
 * @param variances receives the variances (sums of squares / L) along the min(K, L) components,
 *        descending; may be NULL.
 * @return WEFT_OK; WEFT_ERR_UNSUPPORTED (LAPACK is not there: the text says what is missing; or the
 *         matrix is larger than it takes); WEFT_ERR_COMPUTE (a NaN or an infinity, or no
 *         convergence); WEFT_ERR_INVALID; WEFT_ERR_MEMORY. Nothing is written then. Takes 8 K L
 *         bytes, and what LAPACK works in: at most about as much again and 64 min(K, L)^2 bytes.
 *         O(K L min(K, L)). Blocks for as long as that takes. Any thread.
 */
WEFT_EXPORT int weft_pca(const struct weft_pca_config *config, const float *samples, float *mean,
                         float *basis, size_t *components, double *variances);

/** 1 if weft_pca() finds LAPACK, which is loaded then; else 0, with an error text that says what is
 *  missing. Any thread. */
WEFT_EXPORT int weft_pca_available(void);

/* ---- operations of schedules ---- */

/**
 * Every operation: the beginning of its name, its text. A name says all that programs need to make
 * an operation again, but the seed and what becomes of NaNs:
 *
 *     quantise-4-512-max     bits, bucket, norm ("max", "l2")
 *     quantise-sign-512      bucket
 *     project-768            K
 *
 * so schedules that use them are read back by name (weft_schedule_read()), with seed 0 and
 * WEFT_NAN_ERROR.
 *
 * Regions are f32 and in one piece of memory, but for what is quantised (u8), squares and memory to
 * work in (f64). How large they are has to fit together exactly, and what is written overlaps no
 * other region (but reconstruct-K may have its mean where its values are): else the run fails, with
 * a text. On virtual ranks without payload they touch nothing. A long one is computed in parts,
 * between which the engine looks after everything else; how it is cut depends on sizes alone. A
 * value that the node produces becomes the number of elements of region 0. Where a region is memory
 * of a device (weft_schedule_set_memory()) the device computes it, to the same bits but for the
 * payloads of NaNs, and touches no memory to work in.
 *
 * quantise-B-N-M: 0 (written) the bytes, weft_quantised_bytes() of the values; 1 the values. What
 * is drawn depends on the seed, the run's version, the rank and the node: no two are alike.
 *
 * dequantise-B-N-M: 0 (written) the values; 1 the bytes.
 *
 * dequantise-add-B-N-M: 0 (updated) the values; 1 the bytes.
 *
 * project-K: 0 (written) the components, d a slice; 1 the values, any number of elements; 2 the
 * basis, K d elements; then optional: the mean, as many elements as the values, of which the
 * schedule's size-th part is taken off; and (updated) three squares, as weft_projection_squares. So
 * weft_project() with share 1 / P.
 *
 * reconstruct-K: 0 (written) the values; 1 the components; 2 the basis; optional, 3 the mean. As
 * weft_reconstruct().
 *
 * correlate-K: 0 (written) K d elements; 1 the values, rows of K; 2 the components, rows of d. As
 * weft_correlate().
 *
 * orthonormalise-K: 0 (updated) a matrix, rows of K, at most WEFT_ORTHONORMALISE_COLUMNS; 1
 * (written) memory to work in, WEFT_ORTHONORMALISE_WORK(K) elements. As weft_orthonormalise().
 */
#define WEFT_COMPRESS_OP_MAP(X)                                                                    \
    X(WEFT_COMPRESS_QUANTISE, "quantise")                                                          \
    X(WEFT_COMPRESS_DEQUANTISE, "dequantise")                                                      \
    X(WEFT_COMPRESS_DEQUANTISE_ADD, "dequantise-add")                                              \
    X(WEFT_COMPRESS_PROJECT, "project")                                                            \
    X(WEFT_COMPRESS_RECONSTRUCT, "reconstruct")                                                    \
    X(WEFT_COMPRESS_CORRELATE, "correlate")                                                        \
    X(WEFT_COMPRESS_ORTHONORMALISE, "orthonormalise")

typedef enum weft_compress_op_kind {
#define WEFT_COMPRESS_OP_ENUM(name, text) name,
    WEFT_COMPRESS_OP_MAP(WEFT_COMPRESS_OP_ENUM)
#undef WEFT_COMPRESS_OP_ENUM
        WEFT_COMPRESS_OP_COUNT
} weft_compress_op_kind_t;

/** Columns that orthonormalise-K takes at most. */
#define WEFT_ORTHONORMALISE_COLUMNS 1024

/** Elements (f64) that it works in. */
#define WEFT_ORTHONORMALISE_WORK(columns) (2 * (size_t)(columns) + 4)

/** Which operation. */
struct weft_compress_op_config {
    size_t struct_size;
    weft_compress_op_kind_t kind;
    /** Of quantise, dequantise and dequantise-add; NULL: all defaults. Copied. */
    const struct weft_quantiser *quantiser;
    /** K of the others, at least 1. */
    size_t slice;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_compress_op_config_init_sized(struct weft_compress_op_config *config,
                                                    size_t size);
#define weft_compress_op_config_init(config)                                                       \
    weft_compress_op_config_init_sized((config), sizeof *(config))

/**
 * Makes one of them, for weft_schedule_add_compute(). Any thread.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY. The caller owns the reference.
 */
WEFT_EXPORT int weft_compress_op(const struct weft_compress_op_config *config, struct weft_op **op);

/**
 * The operation of a name as above, with seed 0. Any thread.
 * @return WEFT_OK; WEFT_ERR_NOT_FOUND (no such name); WEFT_ERR_INVALID; WEFT_ERR_MEMORY. The caller
 *         owns the reference.
 */
WEFT_EXPORT int weft_compress_op_parse(const char *name, struct weft_op **op);

#ifdef __cplusplus
}
#endif

#endif
