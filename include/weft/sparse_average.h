/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sparse averaging of gradients: every rank sends the few entries of largest magnitude, and keeps
 * the others for the steps to come.
 *
 *     WEFT_SPARSE_GTOPK              gTop-k: Shi, Wang, Zhao, Tang, Wang, Tan, Chu, "A Distributed
 *     WEFT_SPARSE_GTOPK_BUTTERFLY    Synchronous SGD Algorithm with Global Top-k Sparsification for
 *                                    Low Bandwidth Networks" (ICDCS 2019), Algorithm 4
 *     WEFT_SPARSE_ALLGATHER          top-k by allgather: the same, Algorithm 1, equation 6
 *     WEFT_SPARSE_OKTOPK             Ok-Topk: Li, Hoefler, "Near-Optimal Sparse Allreduce for
 *                                    Distributed Deep Learning" (PPoPP 2022), section 3
 *     momentum, clip_norm, warm-up   Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression" (ICLR
 *                                    2018), Algorithms 2 and 4, section 3.3
 *
 * A step, for gradient g, residual v and the velocity u of momentum correction:
 *
 *     accumulate    u = m u + g, v = v + u          (m = 0: v = v + g)
 *     select        s = the k entries of v of largest magnitude; v = 0 and u = 0 there
 *     aggregate     S = the sparse sum of s over all ranks, the same bits on all of them
 *     keep          what S does not have goes back to residuals
 *     apply         W = W + scale S / ranks
 *
 * An object is used by one thread at a time. A model is a list of tensors. On virtual ranks without
 * payload sums are empty. docs/sparse.md has examples.
 */
#ifndef WEFT_SPARSE_AVERAGE_H
#define WEFT_SPARSE_AVERAGE_H

#include <weft/context.h>
#include <weft/schedule.h>
#include <weft/sparse.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_sparse_average;

/** How lists become a sum. For lists of k pairs of 8 bytes, as docs/sparse.md has it. */
typedef enum weft_sparse_method {
    /** Lists are merged along a tree and k pairs are kept at every merge; the root, which rotates
     *  from step to step, broadcasts the result. 2 log2 P (alpha + 8 k beta). */
    WEFT_SPARSE_GTOPK,
    /** The same merges on every rank, in half the time. At powers of two the bits are those of the
     *  tree; for other numbers of ranks it is another result, as valid. */
    WEFT_SPARSE_GTOPK_BUTTERFLY,
    /** Everything is kept: up to P k pairs. log2 P alpha + (P - 1) 8 k beta. */
    WEFT_SPARSE_ALLGATHER,
    /** Each rank adds up the pairs of one region of the indices, and keeps what reaches a
     *  threshold: up to 1.5 k pairs in all. (P - 1 + log2 P) alpha + (P - 1) / P 24 k beta. The
     *  selection is exact in every step; the threshold of the sums, by which about k are kept, is
     *  estimated every threshold_steps steps, the regions are balanced every balance_steps. With
     *  WEFT_SPARSE_CONSERVING only: what is dropped goes to the residual of who would have sent it.
     */
    WEFT_SPARSE_OKTOPK
} weft_sparse_method_t;

/** Among what the entries of largest magnitude are looked for. */
typedef enum weft_sparse_scope {
    /** The whole model, as if its tensors lay one behind the other. */
    WEFT_SPARSE_MODEL,
    /** Each tensor for itself: an aggregation a tensor, which may begin as soon as the tensor's
     *  gradient is there. */
    WEFT_SPARSE_TENSOR
} weft_sparse_scope_t;

/** What becomes of pairs that merges drop. (An allgather drops none.) */
typedef enum weft_sparse_residual {
    /** The rank that drops a pair adds it to its own residual: for every index, the sum and the
     *  residuals of all ranks together are what residuals and gradients (or velocities) were, but
     *  for rounding, by at most n u / (1 - n u) of the sum of their magnitudes, with u = 2^-24 and
     *  n = ceil(log2 P) + 2 additions that a value goes through (Ok-Topk for P > 32: one more). */
    WEFT_SPARSE_CONSERVING,
    /** As the paper has it (Algorithm 4, line 10): a rank puts its own pairs back whose index is
     *  not in the sum. A pair that was dropped at a merge, and whose index came into the sum by
     *  another way, is lost. */
    WEFT_SPARSE_PAPER
} weft_sparse_residual_t;

/** How gradients are made sparse and averaged. Members that are 0 mean their defaults. */
struct weft_sparse_average_config {
    size_t struct_size;
    /** Of the gradients: WEFT_F32 (default), WEFT_BF16 or WEFT_F16. Residual, velocity and sums are
     *  f32. */
    weft_dtype_t dtype;
    /** The gradients: tensors of elements of dtype, aligned as its elements are, borrowed until the
     *  object is destroyed; the list is copied. Counts must be the same on all ranks. May be empty.
     *  Up to 2^32 elements, with WEFT_SPARSE_TENSOR each. */
    const struct weft_piece *tensors;
    size_t tensor_count;
    weft_sparse_method_t method;
    weft_sparse_scope_t scope;
    weft_sparse_residual_t residual;
    /** The share of elements that a rank selects, 0 .. 1; of n > 0 elements n * density, rounded to
     *  the nearest and at least 1. Default 0.001. */
    double density;
    /** If not 0, so many pairs instead (of each tensor with WEFT_SPARSE_TENSOR, or all if it has
     *  fewer). */
    size_t k;
    /** Warm-up: each density of the list holds for warmup_steps steps, from step 0 on, before the
     *  above. 0 steps (default): none. A list of NULL: 0.25, 0.0725, 0.015, 0.004, those of the
     *  gTop-k paper (section IV-B), which held an epoch each, as far as they are above the density
     *  that follows. Borrowed for the creation. */
    uint64_t warmup_steps;
    const double *warmup;
    size_t warmup_count;
    /** WEFT_SPARSE_OKTOPK: every so many steps the k-th largest of the sums is found, in a step
     *  that keeps 1.5 k of them, and ranks agree on regions of equal weight, beside the aggregation
     *  and for the next step on. Default 32, 64. */
    uint64_t threshold_steps;
    uint64_t balance_steps;
    /** m of momentum correction, 0 .. 1; 0 (default): none. The optimizer has no momentum of its
     *  own then. Velocities become 0 where pairs are selected (momentum factor masking). */
    double momentum;
    /** If not 0, gradients are scaled down to an L2 norm of clip_norm / sqrt(ranks) before they are
     *  accumulated: the norm of the whole model's, or with WEFT_SPARSE_TENSOR of each tensor's. */
    double clip_norm;
    /** What becomes of NaNs and infinities in gradients. WEFT_NAN_ERROR (default): the gradient of
     *  that model (or tensor) counts as zero on this rank in this step, and who waits is told;
     *  WEFT_NAN_ZERO: those elements count as zero. Both are counted. */
    weft_nan_policy_t nan;
    /** Threads that a large selection may use, as weft_sparse_options.threads. */
    int threads;
    /** How long step and wait wait before they return WEFT_ERR_TIMEOUT, in nanoseconds. Default:
     *  WEFT_NEVER. The object stays usable: weft_sparse_average_wait() goes on waiting. */
    uint64_t deadline_ns;
    /** How long, in nanoseconds, the creation waits for the other ranks; then it fails on all with
     *  WEFT_ERR_TIMEOUT (WEFT_ERR_PEER). Default: WEFT_NEVER. */
    uint64_t meet_ns;
    /** How long, in nanoseconds, weft_sparse_average_destroy() waits for the end of a step that has
     *  been posted, which the others need. WEFT_NEVER: for as long as it takes. Default: 60 s. */
    uint64_t leave_ns;
    /** The state of a checkpoint, or NULL. Borrowed for the creation. */
    const struct weft_sparse_average_state *state;
    /** Where the gradients of this rank are; other ranks may have theirs elsewhere.
     *  WEFT_MEMORY_HOST (default), or WEFT_MEMORY_DEVICE: on the device of the context, or another
     *  one that its kernels reach. Then residual and velocity are there, too, gradients are
     *  accumulated and selected from there, and sums are applied there; lists are the host's. The
     *  bits are those of the host, but for clip_norm: the norm may differ in its last places. What
     *  is called blocks until the device has done what is this rank's part; gradients, and what
     *  sums are applied to, must be computed when it is called. */
    weft_memory_t memory;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_sparse_average_config_init_sized(struct weft_sparse_average_config *config,
                                                       size_t size);
#define weft_sparse_average_config_init(config)                                                    \
    weft_sparse_average_config_init_sized((config), sizeof *(config))

/** What a step was. With WEFT_SPARSE_TENSOR, of all tensors together, or of the one waited for. */
struct weft_sparse_average_result {
    /** Set by the caller. */
    size_t struct_size;
    /** The step. */
    uint64_t version;
    /** Its density; with config->k and after the warm-up, k / elements. */
    double density;
    /** The most pairs that a rank could select. */
    size_t k;
    /** Pairs that this rank has selected: k but for zeros, which are not sent. */
    size_t selected;
    /** Pairs in the sum. */
    size_t pairs;
};

/** Counted on this rank since its creation (or since the checkpoint that it goes on from), of steps
 *  that have been waited for. */
struct weft_sparse_average_stats {
    /** Set by the caller. */
    size_t struct_size;
    /** With WEFT_SPARSE_TENSOR: of the tensor that has had the fewest. */
    uint64_t steps;
    /** Elements that were selected from, pairs that were selected, pairs in sums: selected /
     *  elements is the density. */
    uint64_t elements;
    uint64_t selected;
    uint64_t pairs;
    /** Pairs that merges of this rank have dropped, and the sum of their magnitudes (which Ok-Topk
     *  does not take). Each merge is one rank's. */
    uint64_t dropped;
    double dropped_mass;
    /** WEFT_SPARSE_PAPER: own pairs that were put back, and the sum of their magnitudes. */
    uint64_t returned;
    double returned_mass;
    /** NaNs and infinities in gradients, and sums of infinities of both signs, which count as zero
     *  (Ok-Topk fails then). */
    uint64_t nans;
    /** Sent, with what ranks tell each other to balance Ok-Topk's regions. */
    uint64_t messages;
    uint64_t bytes;
    /** Time that step and wait have waited, and that step and post have taken to accumulate and
     *  select. */
    uint64_t waited_ns;
    uint64_t selection_ns;
};

/** What goes into a checkpoint, beside the model. */
struct weft_sparse_average_state {
    size_t struct_size;
    /** The next step: the same on all ranks, or of an object that has failed one less on those on
     *  which the last has failed. */
    uint64_t next;
    /** One f32 an element of the model, tensor after tensor, of this rank. NULL: zeros. */
    const float *residual;
    /** The same; NULL without momentum correction, or: zeros. */
    const float *velocity;
    /** WEFT_SPARSE_OKTOPK: thresholds and bounds, the same on all ranks, of a number of ranks.
     *  NULL: anew. */
    const uint64_t *regions;
    size_t region_count;
    /** 1: of an object that has failed. */
    int failed;
    /** Likewise, as `residual`: what this rank had selected for the step that has failed. It goes
     *  back to the residual if that step has ended on no rank that goes on. NULL: nothing. */
    const float *unsent;
    /** The last member, so that both can grow. */
    struct weft_sparse_average_stats stats;
};

/**
 * Creates the object. Collective over the context and blocking: the ranks compare their settings.
 * Takes 4 bytes an element, 8 with momentum correction, and for the largest k of any step 64 bytes
 * a pair (WEFT_SPARSE_ALLGATHER: 56 a pair of the sum and 8 a pair; WEFT_SPARSE_OKTOPK: about 180)
 * beside what a selection works in (weft_sparse_select_workspace()). All of it is allocated here.
 * @return WEFT_OK; WEFT_ERR_INVALID (names the argument; also where ranks disagree);
 *         WEFT_ERR_UNSUPPORTED (datatype; more than 2^32 elements to select from); WEFT_ERR_MEMORY;
 *         WEFT_ERR_PEER (it has failed on another rank); of gradients on a device, as
 *         weft_context_device().
 */
WEFT_EXPORT int weft_sparse_average_create(struct weft_sparse_average **average,
                                           struct weft_context *context,
                                           const struct weft_sparse_average_config *config);

/**
 * One step, in place on the gradients: the tensors become S / ranks, zero where S has no pair.
 * Blocks until all ranks have got as far; all ranks take the same number of steps.
 * @param result may be NULL.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (this rank's gradient had NaNs or infinities, the text says
 *         which tensor and how many; the step has been taken, with a gradient of zero, and all
 *         ranks have the same sum); WEFT_ERR_TIMEOUT (the text says who is missing; then
 *         weft_sparse_average_wait() ends the step); WEFT_ERR_STATE (a posted step has not been
 *         waited for); what an aggregation has failed with, and from then on always: go on from its
 *         state (weft_sparse_average_get_state()).
 */
WEFT_EXPORT int weft_sparse_average_step(struct weft_sparse_average *average,
                                         struct weft_sparse_average_result *result);

/**
 * The first half of a step: accumulates and selects, and starts the aggregation; does not wait for
 * other ranks. From its return on the gradients may be overwritten. With helper progress the
 * aggregation goes on meanwhile. What weft_sparse_average_get_pairs() has given is gone.
 * @return WEFT_OK; WEFT_ERR_STATE (a posted step, or tensor, has not been waited for); what an
 *         aggregation has failed with.
 */
WEFT_EXPORT int weft_sparse_average_post(struct weft_sparse_average *average);

/**
 * The second half: waits for what has been posted. The sum is there to be applied; the gradients
 * are not touched. (After a weft_sparse_average_step() that has timed out it ends that step.)
 * @param result may be NULL.
 * @return as weft_sparse_average_step(); WEFT_ERR_STATE if nothing was posted.
 */
WEFT_EXPORT int weft_sparse_average_wait(struct weft_sparse_average *average,
                                         struct weft_sparse_average_result *result);

/**
 * With WEFT_SPARSE_TENSOR, weft_sparse_average_post() of one tensor, as soon as its gradient is
 * there. In any order, also another one on each rank; each tensor counts its own steps. So a
 * layer's aggregation may go on through the rest of the backward pass and the next forward pass,
 * until the layer's turn comes: the model is never stale.
 * @param tensor its position in config->tensors.
 * @return as weft_sparse_average_post(); WEFT_ERR_INVALID (no such tensor; the object's scope is
 *         the model).
 */
WEFT_EXPORT int weft_sparse_average_post_tensor(struct weft_sparse_average *average, size_t tensor);

/** weft_sparse_average_wait() for one tensor. */
WEFT_EXPORT int weft_sparse_average_wait_tensor(struct weft_sparse_average *average, size_t tensor,
                                                struct weft_sparse_average_result *result);

/**
 * The sum S of the last step: f32 values, not yet divided by the number of ranks, and u32 indices,
 * which count from the first element of the tensor, or of the model (then @p tensor is 0). Borrowed
 * until the next post or step.
 * @return WEFT_OK; WEFT_ERR_INVALID (no such tensor); WEFT_ERR_STATE (there has been no step, or it
 *         has not been waited for).
 */
WEFT_EXPORT int weft_sparse_average_get_pairs(const struct weft_sparse_average *average,
                                              size_t tensor, struct weft_sparse *pairs);

/**
 * tensors[...] += scale * S / ranks, of the last step: the sparse update of a model, O(pairs). f16
 * and bf16 are computed in f32 and rounded once, f32 and f64 round the product and the sum.
 * @param dtype of the tensors: WEFT_F16, WEFT_BF16, WEFT_F32 or WEFT_F64.
 * @param tensors of the same counts as config->tensors, aligned as elements of dtype are; memory of
 *        the side that config->memory says, of a device one that the context's kernels reach.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_UNSUPPORTED (datatype); WEFT_ERR_STATE (as above); of
 *         a device that fails, WEFT_ERR_SYSTEM or WEFT_ERR_COMPUTE, which fails the object.
 */
WEFT_EXPORT int weft_sparse_average_apply(const struct weft_sparse_average *average, double scale,
                                          weft_dtype_t dtype, const struct weft_piece *tensors,
                                          size_t tensor_count);

/** The same for one tensor, with WEFT_SPARSE_TENSOR. @param data as many elements as the tensor. */
WEFT_EXPORT int weft_sparse_average_apply_tensor(const struct weft_sparse_average *average,
                                                 size_t tensor, double scale, weft_dtype_t dtype,
                                                 void *data);

/** The density of a step, from the configuration. 0 if @p average is NULL. */
WEFT_EXPORT double weft_sparse_average_density(const struct weft_sparse_average *average,
                                               uint64_t step);

/** The step to come: how many there have been. With WEFT_SPARSE_TENSOR, of the tensor that has had
 *  the fewest. */
WEFT_EXPORT uint64_t weft_sparse_average_next(const struct weft_sparse_average *average);

/** What this rank has counted so far.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_sparse_average_get_stats(const struct weft_sparse_average *average,
                                              struct weft_sparse_average_stats *stats);

/** The L2 norm of this rank's residual; reads it, or a copy of a device's.
 *  @return WEFT_OK; WEFT_ERR_STATE while something is posted; of a device as
 *          weft_sparse_average_get_state(). */
WEFT_EXPORT int weft_sparse_average_residual_norm(const struct weft_sparse_average *average,
                                                  double *norm);

/**
 * The state for a checkpoint: between steps. Its pointers are borrowed from the object, until the
 * next step or its end.
 *
 * Of an object that has failed, because a rank has died, say, it is the state from which those
 * that are left create it again, on a context of theirs (weft_context_shrink()). Where the step
 * under way has ended on one of them, its sum has what all have sent: the others need that sum from
 * it, or its model. Else nobody has it, and what ranks had selected goes back to their residuals:
 * nothing is lost, but what merges had dropped until then counts twice, and velocities stay 0 where
 * pairs had been selected. What the merges of a dead rank had dropped is lost with its residual.
 * (WEFT_SPARSE_ALLGATHER drops nothing.)
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_STATE while something is posted, or where tensors
 *         have had different numbers of steps; WEFT_ERR_MEMORY. Of a device, from which it is
 *         copied: WEFT_ERR_SYSTEM, WEFT_ERR_COMPUTE (it has failed, and nothing can be had).
 */
WEFT_EXPORT int weft_sparse_average_get_state(const struct weft_sparse_average *average,
                                              struct weft_sparse_average_state *state);

/**
 * Fails it on all ranks, if nothing has before: this rank cannot go on. Whoever is in a step, or
 * begins one, gets an error: @p status here, WEFT_ERR_PEER on the others, with this rank's number
 * and the text. From any thread, does not block.
 * @param status an error (below 0).
 * @param text copied; NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_sparse_average_fail(struct weft_sparse_average *average, int status,
                                         const char *text);

/**
 * Frees it, after a step that has been posted (leave_ns). Ranks may end after different numbers of
 * steps: the next step of one that goes on fails with WEFT_ERR_PEER, naming who has ended. One
 * that has failed blocks as weft_run_destroy() does. NULL is accepted.
 * @return WEFT_OK, or what it has failed with; it is freed in any case.
 */
WEFT_EXPORT int weft_sparse_average_destroy(struct weft_sparse_average *average);

#ifdef __cplusplus
}
#endif

#endif
