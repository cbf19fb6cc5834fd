/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sparse vectors on local memory: selecting the entries of largest magnitude, merging, adding.
 *
 * A sparse vector is a list of (index, value) pairs, indices distinct and ascending. Its elements are
 * f16, bf16, f32 or f64, its indices u32 (vectors of up to 2^32 elements) or u64. All results are
 * exact and depend on the data alone: not on the SIMD level, the threads, or a hint. Any thread may
 * call; nothing here communicates.
 */
#ifndef WEFT_SPARSE_H
#define WEFT_SPARSE_H

#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A sparse vector in the caller's memory: two arrays, of any alignment. */
struct weft_sparse {
    /** Ascending, no two alike; `capacity` of them have room. */
    void *indices;
    /** values[i] belongs to indices[i]. */
    void *values;
    /** Pairs that there are; set by functions that write one. */
    size_t count;
    /** Pairs that there is room for; not looked at in what is only read. */
    size_t capacity;
    /** WEFT_U32 or WEFT_U64. */
    weft_dtype_t index_dtype;
    /** WEFT_F16, WEFT_BF16, WEFT_F32 or WEFT_F64. */
    weft_dtype_t dtype;
};

/** What becomes of a NaN. */
typedef enum weft_nan_policy {
    /** The call fails with WEFT_ERR_COMPUTE, and its report says how many there are. */
    WEFT_NAN_ERROR,
    /** It counts as +0 and the report says how many there were. */
    WEFT_NAN_ZERO
} weft_nan_policy_t;

/** How the functions below work; all zeros (but struct_size) are the defaults. */
struct weft_sparse_options {
    size_t struct_size;
    weft_nan_policy_t nan;
    /** Threads that a large selection may use, the caller's among them; 0 counts as 1. Each but the
     *  caller's lives as long as the call. */
    int threads;
    /** Selection: a magnitude that somewhat more than k entries are expected to reach, as
     *  weft_sparse_report.hint of the step before; 0: none. It decides only how long it takes. */
    double hint;
    /** Memory to work in, or NULL: allocated for the call. */
    void *workspace;
    size_t workspace_bytes;
};

WEFT_EXPORT void weft_sparse_options_init(struct weft_sparse_options *options);

/** What a call found. */
struct weft_sparse_report {
    /** Pairs written. */
    size_t count;
    /** weft_sparse_above(): entries that reach the threshold, written or not; else as `count`. */
    size_t found;
    /** NaNs among what was read. */
    uint64_t nans;
    /** The least magnitude written; 0 if nothing was. */
    double threshold;
    /** Selection by k: what to give as a hint for the next step, 0 if there is none. */
    double hint;
    /** Selection: entries that a scan collected to choose from, and scans that it took: 1, or more if
     *  the threshold to begin with (of a hint or a sample) was too high. */
    size_t candidates;
    int scans;
};

/**
 * The @p k entries of largest magnitude of values[0 .. count), in the order of their indices. Of
 * entries of equal magnitude the lower indices win; infinities are largest; zeros (of either sign) are
 * taken if there is nothing else. With k > count, all.
 *
 * One pass over the data: a threshold from a sample (or a hint) that more than k entries reach, a scan
 * that collects those, and the exact selection among them; scanned again if they are fewer than k.
 * The threshold is chosen as Floyd and Rivest do (Expected time bounds for selection, CACM 18, 1975).
 *
 * @param values @p count elements of out->dtype, any alignment; borrowed.
 * @param out room for min(k, count) pairs; it overlaps neither values nor workspace. A vector of more
 *        than 2^32 elements needs WEFT_U64 indices.
 * @param report may be NULL; also filled when the status is WEFT_ERR_COMPUTE.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (NaNs, and the policy is WEFT_NAN_ERROR: nothing was written);
 *         WEFT_ERR_INVALID; WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_sparse_top(const struct weft_sparse_options *options, const void *values,
                                size_t count, size_t k, struct weft_sparse *out,
                                struct weft_sparse_report *report);

/**
 * The same of residual + values, which replaces the residual; what is selected becomes 0 there: so
 * that afterwards residual and pairs together are what residual and values were (added as WEFT_SUM
 * does, rounded once). Reads and writes each array once.
 *
 * @param residual @p count elements, read and written; does not overlap values.
 * @return as weft_sparse_top(). With WEFT_ERR_COMPUTE the residual holds the sums, NaNs included, and
 *         nothing was selected. With WEFT_NAN_ZERO, NaNs become 0 in the residual: what made them is
 *         lost, and counted.
 */
WEFT_EXPORT int weft_sparse_accumulate_top(const struct weft_sparse_options *options,
                                           void *residual, const void *values, size_t count,
                                           size_t k, struct weft_sparse *out,
                                           struct weft_sparse_report *report);

/**
 * The entries with magnitude >= @p threshold, in the order of their indices, as many as out->capacity
 * takes; report->found says how many there are.
 * @param threshold not negative, no NaN.
 * @return as weft_sparse_top().
 */
WEFT_EXPORT int weft_sparse_above(const struct weft_sparse_options *options, const void *values,
                                  size_t count, double threshold, struct weft_sparse *out,
                                  struct weft_sparse_report *report);

/** weft_sparse_above() of residual + values, as weft_sparse_accumulate_top(): only what is written to
 *  @p out becomes 0. */
WEFT_EXPORT int weft_sparse_accumulate_above(const struct weft_sparse_options *options,
                                             void *residual, const void *values, size_t count,
                                             double threshold, struct weft_sparse *out,
                                             struct weft_sparse_report *report);

/**
 * Bytes of workspace with which no selection of up to @p k (or, above a threshold, of a capacity of
 * up to @p k) from up to @p count elements allocates, with options->threads threads.
 * @return 0 if the arguments are wrong (with an error text), SIZE_MAX if it is more than can be.
 */
WEFT_EXPORT size_t weft_sparse_select_workspace(const struct weft_sparse_options *options,
                                                weft_dtype_t dtype, size_t count, size_t k);

/**
 * a T b of gTop-k (Shi et al., ICDCS 2019, definition 1): adds a and b, values of equal indices
 * together (rounded once), and keeps the @p k of largest magnitude in @p out; of equal magnitudes the
 * lower index wins. Commutes: a T b and b T a are the same bits.
 *
 * @param a,b pairs with ascending indices; both of one index_dtype and dtype, as out and dropped.
 * @param out room for min(k, a->count + b->count) pairs; may be a or b itself, or overlap them.
 * @param dropped receives the pairs that were not kept, ascending, so that out and dropped together
 *        are the sum; room for a->count + b->count - k of them if that is positive. NULL: they are
 *        lost. May overlap a and b, but not out.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (a NaN, also from infinities of both signs, and the policy is
 *         WEFT_NAN_ERROR: nothing was written); WEFT_ERR_INVALID (indices not ascending: the text
 *         says where); WEFT_ERR_MEMORY. O(a->count + b->count).
 */
WEFT_EXPORT int weft_sparse_merge(const struct weft_sparse_options *options,
                                  const struct weft_sparse *a, const struct weft_sparse *b,
                                  size_t k, struct weft_sparse *out, struct weft_sparse *dropped,
                                  struct weft_sparse_report *report);

/**
 * The operation "topk-merge", a T b as a node of a schedule, for weft_schedule_compute() and for reading
 * schedules that use it (gTop-k's templates do). Its regions, lists of elements of 8 bytes (WEFT_U64),
 * c of them holding c pairs: first c indices (u32, ascending), then c values (f32):
 *
 * 0 (written) the merged list; 1, 2 the lists to merge; 3 (written) workspace: as many elements as the
 * two lists have together, and weft_sparse_merge_workspace() bytes; 4 (written) anything, whose count is
 * the limit k; 5 (written, optional) a residual, a dense vector (WEFT_F32) to which dropped pairs are
 * added. It produces the number of pairs in the merged list, and has WEFT_OP_MERGES. On virtual ranks
 * without payload it touches nothing, and the list is as long as if no index were in both.
 *
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY. The caller owns the reference.
 */
WEFT_EXPORT int weft_sparse_merge_op(struct weft_op **op);

/** Bytes of workspace with which merging up to @p pairs (of a and b together) allocates nothing; 0 if
 *  a datatype is wrong (with an error text), SIZE_MAX if it is more than can be. */
WEFT_EXPORT size_t weft_sparse_merge_workspace(weft_dtype_t index_dtype, weft_dtype_t dtype,
                                               size_t pairs);

/**
 * dense[index] += scale * value for every pair, in order. With scale 1 each is one rounding; f16 and
 * bf16 are computed in f32 and rounded once, f32 and f64 round the product and the sum.
 * @param dense @p count elements of pairs->dtype.
 * @return WEFT_OK; WEFT_ERR_INVALID (an index >= count: nothing was added).
 */
WEFT_EXPORT int weft_sparse_scatter_add(const struct weft_sparse *pairs, double scale, void *dense,
                                        size_t count);

/**
 * residual[index] += value for the pairs of @p own whose index is not in @p kept: the put-back of
 * gTop-k (Algorithm 4, line 10), and what `residual = paper` means.
 * @return as weft_sparse_scatter_add(); WEFT_ERR_INVALID also if indices are not ascending.
 */
WEFT_EXPORT int weft_sparse_put_back(const struct weft_sparse *own, const struct weft_sparse *kept,
                                     void *residual, size_t count);

#ifdef __cplusplus
}
#endif

#endif
