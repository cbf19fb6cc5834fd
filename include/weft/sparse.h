/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sparse vectors on local memory: selecting the entries of largest magnitude, merging, adding,
 * taking apart; and the operations with which schedules do so.
 *
 * A sparse vector is a list of (index, value) pairs, indices distinct and ascending. Its elements
 * are f16, bf16, f32 or f64, its indices u32 (vectors of up to 2^32 elements) or u64. All results
 * are exact and depend on the data alone: not on the SIMD level, the threads, or a hint. Any thread
 * may call; nothing here communicates.
 */
#ifndef WEFT_SPARSE_H
#define WEFT_SPARSE_H

#include <weft/model.h>
#include <weft/sized.h>
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

/** How the functions below work. Members that are 0 mean their defaults. */
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

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_sparse_options_init_sized(struct weft_sparse_options *options, size_t size);
#define weft_sparse_options_init(options)                                                          \
    weft_sparse_options_init_sized((options), sizeof *(options))

/** What a call found. */
struct weft_sparse_report {
    /** Set by the caller. */
    size_t struct_size;
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
    /** Selection: entries that a scan collected to choose from, and scans that it took: 1, or more
     *  if the threshold to begin with (of a hint or a sample) was too high. */
    size_t candidates;
    int scans;
};

/**
 * The @p k entries of largest magnitude of values[0 .. count), in the order of their indices. Of
 * entries of equal magnitude the lower indices win; infinities are largest; zeros (of either sign)
 * are taken if there is nothing else. With k > count, all.
 *
 * One pass over the data: a threshold from a sample (or a hint) that more than k entries reach, a
 * scan that collects those, and the exact selection among them; scanned again if they are fewer
 * than k. The threshold is chosen as Floyd and Rivest do (Expected time bounds for selection, CACM
 * 18, 1975).
 *
 * @param values @p count elements of out->dtype, any alignment; borrowed.
 * @param out room for min(k, count) pairs; it overlaps neither values nor workspace. A vector of
 *        more than 2^32 elements needs WEFT_U64 indices.
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
 * @return as weft_sparse_top(). With WEFT_ERR_COMPUTE the residual holds the sums, NaNs included,
 *         and nothing was selected. With WEFT_NAN_ZERO, NaNs become 0 in the residual: what made
 *         them is lost, and counted.
 */
WEFT_EXPORT int weft_sparse_accumulate_top(const struct weft_sparse_options *options,
                                           void *residual, const void *values, size_t count,
                                           size_t k, struct weft_sparse *out,
                                           struct weft_sparse_report *report);

/**
 * The entries with magnitude >= @p threshold, in the order of their indices, as many as
 * out->capacity takes; report->found says how many there are.
 * @param threshold not negative, no NaN.
 * @return as weft_sparse_top().
 */
WEFT_EXPORT int weft_sparse_above(const struct weft_sparse_options *options, const void *values,
                                  size_t count, double threshold, struct weft_sparse *out,
                                  struct weft_sparse_report *report);

/** weft_sparse_above() of residual + values, as weft_sparse_accumulate_top(): only what is written
 *  to @p out becomes 0. */
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
 * together (rounded once), and keeps the @p k of largest magnitude in @p out; of equal magnitudes
 * the lower index wins. Commutes: a T b and b T a are the same bits.
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

/** Bytes of workspace with which merging up to @p pairs (of all lists together) allocates nothing;
 *  0 if a datatype is wrong (with an error text), SIZE_MAX if it is more than can be. */
WEFT_EXPORT size_t weft_sparse_merge_workspace(weft_dtype_t index_dtype, weft_dtype_t dtype,
                                               size_t pairs);

/**
 * dense[index] += scale * value for every pair, in order. With scale 1 each is one rounding; f16
 * and bf16 are computed in f32 and rounded once, f32 and f64 round the product and the sum.
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

/* ---- parts of lists, and sums of many ---- */

/**
 * The pairs of @p list whose indices are in [@p lower, @p upper): @p part becomes a view of them,
 * of capacity 0; nothing is copied. O(log list->count).
 * @return WEFT_OK; WEFT_ERR_INVALID (lower > upper too). Whether indices ascend is not looked at.
 */
WEFT_EXPORT int weft_sparse_range(const struct weft_sparse *list, uint64_t lower, uint64_t upper,
                                  struct weft_sparse *part);

/**
 * The pairs of @p list with magnitude >= @p threshold, of those the @p k of largest magnitude; of
 * equal magnitudes the lower index wins.
 *
 * @param threshold not negative, no NaN; 0 takes all.
 * @param out room for min(k, list->count) pairs; may be the list itself, or overlap it.
 * @param dropped as in weft_sparse_merge(): what was not kept, room for list->count pairs; or NULL.
 * @return as weft_sparse_merge(). O(list->count); options->workspace as for merging as many pairs.
 */
WEFT_EXPORT int weft_sparse_keep(const struct weft_sparse_options *options,
                                 const struct weft_sparse *list, double threshold, size_t k,
                                 struct weft_sparse *out, struct weft_sparse *dropped,
                                 struct weft_sparse_report *report);

/**
 * The sum of @p count lists: values of equal indices are added, nothing is dropped. Lists are added
 * along a balanced binary tree over their order, lower ones on the left, and every sum is rounded:
 * lists [0, n) are the sum of [0, ceil(n / 2)) and of [ceil(n / 2), n).
 *
 * @param lists of one index_dtype and dtype, as out; may be NULL if there are none.
 * @param out room for as many pairs as all lists have together; overlaps none of them.
 * @return as weft_sparse_merge(). O(pairs log2 count); options->workspace as for merging as many
 *         pairs, and 24 bytes a list if there are more than 64.
 */
WEFT_EXPORT int weft_sparse_sum(const struct weft_sparse_options *options,
                                const struct weft_sparse *lists, size_t count,
                                struct weft_sparse *out, struct weft_sparse_report *report);

/**
 * The pairs of @p a and @p b, which have no index in common, as one list. Where one of them fits
 * between two indices of the other, as regions that lie side by side do, it is copied as a whole.
 *
 * @param out room for a->count + b->count pairs; overlaps neither.
 * @return WEFT_OK; WEFT_ERR_INVALID (a common index too, then @p out is undefined).
 */
WEFT_EXPORT int weft_sparse_join(const struct weft_sparse *a, const struct weft_sparse *b,
                                 struct weft_sparse *out);

/**
 * The magnitude of the @p k -th largest of the values of @p list, 0 if there are fewer or k is 0: a
 * threshold that k of them reach.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (NaNs, and the policy is WEFT_NAN_ERROR); WEFT_ERR_INVALID;
 *         WEFT_ERR_MEMORY. O(list->count).
 */
WEFT_EXPORT int weft_sparse_kth(const struct weft_sparse_options *options,
                                const struct weft_sparse *list, size_t k, double *magnitude);

/* ---- regions: Ok-Topk ---- */

/**
 * Bounds of @p regions regions of a vector of @p elements elements that have equally many pairs of
 * @p list: region j is [bounds[j], bounds[j + 1]), and pair number floor(j * list->count / regions)
 * is its first. bounds[0] = 0, bounds[regions] = elements; without pairs, regions are equally long.
 *
 * Ok-Topk (Li and Hoefler, PPoPP 2022, section 3.1.1) balances over all ranks by the mean of what
 * each finds: sum the bounds over the ranks (an allreduce of WEFT_U64) and divide by their number.
 * Sums and their quotients ascend as the bounds do, from 0 to `elements`.
 *
 * @param bounds regions + 1 elements.
 * @return WEFT_OK; WEFT_ERR_INVALID (regions < 1, an index >= elements). O(regions).
 */
WEFT_EXPORT int weft_sparse_bounds(const struct weft_sparse *list, uint64_t elements, int regions,
                                   uint64_t *bounds);

/**
 * How many pairs the template "oktopk" lets a rank send to the owner of a region (@p share), and an
 * owner pass on (@p quota), if @p k pairs a rank are wanted on @p ranks ranks: about 1.5 k / P
 * each, together at most max(3 k / P, 2). So no rank sends or receives more than 6 k (P - 1) / P
 * elements (an index and a value each), whatever the data, if k >= P; with fewer pairs than ranks 4
 * (P - 1).
 * @return WEFT_OK; WEFT_ERR_INVALID (ranks < 1, k > SIZE_MAX / 16, NULL).
 */
WEFT_EXPORT int weft_sparse_region_limits(size_t k, int ranks, size_t *share, size_t *quota);

/* ---- operations of schedules ---- */

/**
 * Every operation on lists of pairs, as a node of a schedule: name, text.
 *
 * A list is elements of 8 bytes (WEFT_U64), c of them for c pairs: first c indices (u32,
 * ascending), then c values (f32). How many pairs there are is a value that the list's region
 * names; a region that is written has room for as many as it has elements. "Work" is as many
 * elements as the lists that are read have together, and weft_sparse_merge_workspace() bytes. A
 * limit is a region of anything, written, whose count is the number that is meant. A residual is a
 * dense vector (WEFT_F32) to which pairs that are dropped are added; if it is of no elements (it
 * may have a value, too), they are lost. All but sparse-bounds produce the number of pairs in the
 * list that they write. Those that read lists, and produce one, have WEFT_OP_FOLDS, and what one of
 * them has folded the others take in. NaNs fail the run, or count as zeros (struct
 * weft_sparse_op_config). On virtual ranks without payload they touch nothing, and a list is as
 * long as it can be: as if no index were in two. A region of another datatype fails the run.
 *
 * Where a region is memory of a device (weft_schedule_set_memory()) the device computes them, to
 * the same bits but for the payloads of NaNs, and touches neither work nor limits.
 *
 * topk-merge: 0 (written) the merged list, a T b; 1, 2 the lists to merge; 3 (written) work; 4 a
 * limit: of pairs that are kept; 5 (written, optional) a residual. WEFT_OP_COMMUTES.
 *
 * sparse-part: 0 (written) the pairs of 1 that lie in a region; 1 a list; 2 bounds (WEFT_U64), of
 * which the first is the region's begin and the last its end. The rest is optional: 3 (written)
 * work; 4 a limit: of those only so many of largest magnitude; 5 (written) a residual.
 *
 * sparse-sum: 0 (written) the sum of all lists, as weft_sparse_sum(); 1 (written) work; 2 and more
 * (up to WEFT_SPARSE_FAN lists). WEFT_OP_COMMUTES.
 *
 * sparse-keep: 0 (written) what weft_sparse_keep() keeps of 1; 1 a list; 2 a threshold (WEFT_F32,
 * one element); 3 (written) work; 4 a limit: of pairs that are kept; 5 (written) a residual.
 *
 * sparse-join: 0 (written) the lists together; 1, 2 lists without a common index.
 *
 * sparse-bounds writes and produces nothing, and fails the run if something is wrong: 0 bounds
 * (WEFT_U64), which ascend from 0 to the length of 2; 1 a list, with ascending indices that lie in
 * 2; 2 a dense vector (WEFT_F32). With that, parts between successive bounds are the whole list.
 *
 * topk-select: 0 (written) a list of the entries of largest magnitude of 1 + 2; 1 (updated) a
 * residual, which becomes 1 + 2 with zeros in the place of what is in the list, as by
 * weft_sparse_accumulate_top(); 2 values (WEFT_F32), as many elements, or none, if nothing is to be
 * added. Without a residual (of no elements) it is weft_sparse_top() of the values. 3 (written)
 * memory to work in, weft_sparse_select_workspace() bytes; 4 a limit: of pairs; 5 (updated,
 * optional) a hint (WEFT_F32, one element, 0 at first), which the operation leaves for the next
 * time, and which decides only how long it takes. It takes that long in one go.
 *
 * sparse-above: the entries of 1 + 2 that reach a threshold, as many as 0 has room for, the lowest
 * indices first, as by weft_sparse_accumulate_above(): 0 to 3 as of topk-select; 4 a threshold
 * (WEFT_F32, one element).
 *
 * What these two write is not followed by checking.
 */
#define WEFT_SPARSE_OP_MAP(X)                                                                      \
    X(WEFT_SPARSE_MERGE, "topk-merge")                                                             \
    X(WEFT_SPARSE_PART, "sparse-part")                                                             \
    X(WEFT_SPARSE_SUM, "sparse-sum")                                                               \
    X(WEFT_SPARSE_KEEP, "sparse-keep")                                                             \
    X(WEFT_SPARSE_JOIN, "sparse-join")                                                             \
    X(WEFT_SPARSE_BOUNDS, "sparse-bounds")                                                         \
    X(WEFT_SPARSE_SELECT, "topk-select")                                                           \
    X(WEFT_SPARSE_ABOVE, "sparse-above")

typedef enum weft_sparse_op_kind {
#define WEFT_SPARSE_OP_ENUM(name, text) name,
    WEFT_SPARSE_OP_MAP(WEFT_SPARSE_OP_ENUM)
#undef WEFT_SPARSE_OP_ENUM
        WEFT_SPARSE_OP_COUNT
} weft_sparse_op_kind_t;

/** Lists that one node "sparse-sum" may add. */
#define WEFT_SPARSE_FAN 32

/**
 * Makes one of them, for weft_schedule_add_compute() and for reading schedules that use it.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY. The caller owns the reference.
 */
WEFT_EXPORT int weft_sparse_op(weft_sparse_op_kind_t kind, struct weft_op **op);

/** Which operation, and how. Members that are 0 mean their defaults. */
struct weft_sparse_op_config {
    size_t struct_size;
    weft_sparse_op_kind_t kind;
    /** Of what is selected from or added, as of the functions above. A name does not say it:
     *  schedules that are read back have WEFT_NAN_ERROR. */
    weft_nan_policy_t nan;
    /** Of topk-select and sparse-above: where NaNs are counted that the policy takes for zeros;
     *  each node adds its own before it ends. Borrowed until the operation is destroyed. NULL
     *  (default): nowhere. */
    uint64_t *nans;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_sparse_op_config_init_sized(struct weft_sparse_op_config *config,
                                                  size_t size);
#define weft_sparse_op_config_init(config)                                                         \
    weft_sparse_op_config_init_sized((config), sizeof *(config))

/** As weft_sparse_op(), which has the defaults.
 *  @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY. The caller owns the reference. */
WEFT_EXPORT int weft_sparse_op_create(struct weft_op **op,
                                      const struct weft_sparse_op_config *config);

/** weft_sparse_op() of topk-merge. */
WEFT_EXPORT int weft_sparse_merge_op(struct weft_op **op);

#ifdef __cplusplus
}
#endif

#endif
