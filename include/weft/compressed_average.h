/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Averaging of dense gradients in fewer bits: all entries are sent, with less than 32 bits.
 *
 *     WEFT_COMPRESSED_GRADIVEQ    Yu, Lin, Narra et al., "GradiVeQ: Vector Quantization for
 *                                 Bandwidth-Efficient Gradient Aggregation in Distributed CNN
 *                                 Training" (NeurIPS 2018)
 *     WEFT_COMPRESSED_QSGD        Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD:
 *                                 Communication-Efficient SGD via Gradient Quantization and
 *                                 Encoding" (NIPS 2017)
 *     WEFT_COMPRESSED_POWERSGD    Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank
 *                                 Gradient Compression for Distributed Optimization" (NeurIPS 2019)
 *
 * A step, for gradients g of this rank, tensor after tensor, and a residual e (where one is kept):
 *
 *     in            x = g + e
 *     aggregate     S = what the others can make of the sum of x over all ranks: the same bits on
 *                   all of them
 *     keep          e = what of x is not in S
 *     out           g = S / ranks
 *
 * GradiVeQ goes through phases, which are the same on all ranks:
 *
 *     | warm-up |  sampling  | compressed ............ |  sampling  | compressed .....
 *       sums as `uncompressed` says; the last     ^ ends early where most ranks see too much loss
 *       ones are samples, of which the
 *       projections are made
 *
 * An object is used by one thread at a time. docs/compression.md has examples, and what each method
 * is worth.
 */
#ifndef WEFT_COMPRESSED_AVERAGE_H
#define WEFT_COMPRESSED_AVERAGE_H

#include <weft/compress.h>
#include <weft/context.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_compressed_average;

/** How gradients are compressed. */
typedef enum weft_compressed_method {
    /** Projections onto principal components that all ranks share: what is compressed is added. */
    WEFT_COMPRESSED_GRADIVEQ,
    /** Few bits an element, a norm a bucket. */
    WEFT_COMPRESSED_QSGD,
    /** Matrices as products of two thin ones, in two allreduces. */
    WEFT_COMPRESSED_POWERSGD
} weft_compressed_method_t;

/** What a tensor is, and how its elements lie in memory, the last named varying fastest. */
typedef enum weft_tensor_layout {
    /** A vector: biases, gains. Not projected nor factored: it is sent as it is, or quantised. */
    WEFT_TENSOR_VECTOR,
    /** The weights of a dense layer: outputs, inputs. Factored; not projected unless that is asked
     *  for. */
    WEFT_TENSOR_DENSE,
    /** The filters of a convolution: outputs, inputs, height, width (as PyTorch has them). */
    WEFT_TENSOR_OIHW,
    /** outputs, height, width, inputs. */
    WEFT_TENSOR_OHWI,
    /** height, width, inputs, outputs (as TensorFlow has them): the layout of GradiVeQ's figure 3,
     *  into which the others are brought on the way. */
    WEFT_TENSOR_HWIO
} weft_tensor_layout_t;

/** The shape of a tensor. */
struct weft_tensor_shape {
    weft_tensor_layout_t layout;
    /** F of the paper: filters, or outputs. Of a vector: 0, or its elements; the others 0. */
    size_t outputs;
    /** D of the paper: the depth of a filter, or inputs. */
    size_t inputs;
    /** Of a convolution. */
    size_t height;
    size_t width;
};

/** What sums that are not compressed by GradiVeQ are made by. */
typedef enum weft_uncompressed {
    /** QSGD, as in the paper (section 3), and as weft_compressed_average_config.quantiser says. */
    WEFT_UNCOMPRESSED_QSGD,
    /** An allreduce. */
    WEFT_UNCOMPRESSED_DENSE
} weft_uncompressed_t;

/** Which elements of a tensor are a slice of GradiVeQ. The object brings them together on the way,
 *  whatever the layout is. */
typedef enum weft_gradiveq_order {
    /** Of all filters, place after place of their windows, as in the paper: height, width, inputs,
     *  outputs, the last varying fastest (figure 3). */
    WEFT_SLICES_ACROSS_FILTERS,
    /** Filters, one after the other, which the paper does not have. A filter's gradient combines
     *  patches of images that all filters have seen, so the projection of the first serves the
     *  others better: slices of one filter lose a fifth to three fifths of what those of F D
     *  across filters do at the same K / d, with smaller projections (docs/compression.md). */
    WEFT_SLICES_OF_FILTERS
} weft_gradiveq_order_t;

/** Whether what compression drops is kept for later steps. */
typedef enum weft_compressed_residual {
    /** As the method has it: WEFT_COMPRESSED_POWERSGD, and WEFT_COMPRESSED_QSGD by signs
     *  (WEFT_QUANTISE_SIGN), keep it, the others do not: not GradiVeQ, whose other steps are biased
     *  then if they are sums of signs. */
    WEFT_COMPRESSED_RESIDUAL_DEFAULT,
    /** Dropped. */
    WEFT_COMPRESSED_RESIDUAL_NONE,
    /** Kept: for every element the sum and the residuals of all ranks together are what gradients
     *  and residuals were, up to rounding. The papers of GradiVeQ and QSGD do not have it. QSGD's
     *  grow far beyond gradients, and sums with them, with 2 bits, or 4 and WEFT_QUANTISE_L2. */
    WEFT_COMPRESSED_RESIDUAL_KEPT
} weft_compressed_residual_t;

/** How QSGD's sums are made. */
typedef enum weft_qsgd_way {
    /** Each rank adds up one shard of all, and quantises the sum: every value is quantised twice,
     *  however many ranks there are (ZeRO++: Wang et al., 2023, section 3.3). */
    WEFT_QSGD_SHARDS,
    /** Around a ring, quantised at every hop, P times in all: what GradiVeQ was compared with. */
    WEFT_QSGD_RING
} weft_qsgd_way_t;

/** weft_gradiveq_config.warmup_steps: none. */
#define WEFT_WARMUP_NONE UINT64_MAX

/** GradiVeQ: members that are 0 mean their defaults, which are the paper's. */
struct weft_gradiveq_config {
    size_t struct_size;
    /** Lambda: the share of the samples' variance that a projection may lose (equation 6), below 1.
     *  Default 0.01. WEFT_PCA_EXACT: none. */
    double loss;
    /** Default: WEFT_SLICES_ACROSS_FILTERS. */
    weft_gradiveq_order_t order;
    /** Slices have K = slice_factor F D elements (dense weights: slice_factor times outputs), at
     *  most the tensor; the last one of a tensor may be shorter. Default: the largest number up to
     *  3 that divides H W (of 3 x 3 filters 3: the paper's choice; dense weights: that divides
     *  their inputs), so that none is. Of whole filters K = slice_factor D H W (dense weights:
     *  slice_factor times inputs), and the default is 1, which loses least. */
    size_t slice_factor;
    /** If not 0, K, at least 2, of all tensors that have as many elements, while the others are
     *  sent as they are; slice_factor is 0 then. */
    size_t slice;
    /** The most bytes that a rank's samples and projections may take for good, 4 K (L_t + min(K,
     *  L_t - 1)) a projection. While components are found weft_pca() takes what it says for one of
     *  them besides, and its result as much as the samples. Of the tensor that takes most slices
     *  become half as long, or less, until it is enough: multiples of F D, then of F, then parts
     *  of F; of whole filters multiples of D H W, then of H W where the layout is WEFT_TENSOR_OIHW
     *  and else of D, then parts of that. Tensors for which that is no help are sent as they are.
     *  Default: no limit. */
    size_t memory_bytes;
    /** s: slices that share a projection, which is the first one's. Default: all of a tensor. */
    size_t reuse;
    /** Steps before the first sampling. Default 2500; WEFT_WARMUP_NONE. */
    uint64_t warmup_steps;
    /** L_t: steps that are samples, at least 2. Default 100. Sums that are not finite are none, and
     *  sampling goes on for longer; after 2 L_t steps projections are made of the samples that
     *  there are, or if that is one, or none, sampling begins anew. */
    uint64_t sample_steps;
    /** Bits of an element in steps that are samples, 2, 4 or 8, where uncompressed sums are QSGD's.
     *  0: as config->quantiser has them, the paper's 4 by default, whose noise is more than 0.01
     *  of the variance, so that d grows by 1.1 to 1.6; with 8 bits d is that of exact sums
     *  (docs/compression.md), and a sample takes twice the bytes. */
    int sample_bits;
    /** L_c: compressed steps, before sampling begins again. WEFT_NEVER: for ever. Default 400. */
    uint64_t compressed_steps;
    /** weft_compressed_average_result.loss beyond which this rank votes for the end of the
     *  compressed phase: it ends a step after more than half of the ranks have. Default: never. */
    double loss_bound;
    /** Default: WEFT_UNCOMPRESSED_QSGD. */
    weft_uncompressed_t uncompressed;
    /** 1: the weights of dense layers (WEFT_TENSOR_DENSE) are projected, too. */
    int dense_layers;
    /** How the projected sum travels: "ring" (Algorithm 1) or "reduce-scatter-allgather". NULL: by
     *  cost. Borrowed for the creation. */
    const char *algo;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_gradiveq_config_init_sized(struct weft_gradiveq_config *config, size_t size);
#define weft_gradiveq_config_init(config)                                                          \
    weft_gradiveq_config_init_sized((config), sizeof *(config))

/** PowerSGD: members that are 0 mean their defaults. */
struct weft_powersgd_config {
    size_t struct_size;
    /** r. Default 2. Of a matrix of fewer rows, or columns, as many: at most
     *  WEFT_ORTHONORMALISE_COLUMNS. */
    size_t rank;
    /** Steps at the beginning whose gradients are sent as they are. */
    uint64_t warmup_steps;
    /** 1: every step begins from random factors; 0: from the last step's, as the paper advises
     *  (section 4.2). */
    int cold_start;
    /** Of the first factors, the same on all ranks. */
    uint64_t seed;
    /** Matrices are factored if their elements are at least so many times those of their factors,
     *  r (rows + columns); others are sent as they are. Default 1. Below 1, all are. */
    double least_ratio;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_powersgd_config_init_sized(struct weft_powersgd_config *config, size_t size);
#define weft_powersgd_config_init(config)                                                          \
    weft_powersgd_config_init_sized((config), sizeof *(config))

/** Which gradients there are, and how they are compressed. Members that are 0 mean their defaults.
 *  But for memory and deadlines, all ranks give the same. */
struct weft_compressed_average_config {
    size_t struct_size;
    /** Of the gradients: WEFT_F32 (default), WEFT_F16 or WEFT_BF16. Sums and residuals are f32. */
    weft_dtype_t dtype;
    /** The gradients: tensors of elements of dtype, aligned as its elements are, borrowed until the
     *  object is destroyed; the list is copied. May be empty. */
    const struct weft_piece *tensors;
    size_t tensor_count;
    /** A shape a tensor. NULL: all are vectors, which GradiVeQ and PowerSGD send as they are.
     *  Borrowed for the creation. */
    const struct weft_tensor_shape *shapes;
    /** Default: WEFT_COMPRESSED_GRADIVEQ. */
    weft_compressed_method_t method;
    /** 1: tensors become the sum; 0: the average. */
    int sum;
    /** QSGD: how, and GradiVeQ's uncompressed sums by it. NULL: by all defaults. `nan` is 0: the
     *  object's holds. Borrowed for the creation. */
    const struct weft_quantiser *quantiser;
    /** QSGD, and GradiVeQ's uncompressed sums by it. */
    weft_qsgd_way_t qsgd_way;
    /** NULL: all defaults. Borrowed for the creation. */
    const struct weft_gradiveq_config *gradiveq;
    const struct weft_powersgd_config *powersgd;
    weft_compressed_residual_t residual;
    /** What becomes of NaNs and infinities in gradients. WEFT_NAN_ERROR (default): the gradient
     *  counts as zero on this rank in this step, and who waits is told; WEFT_NAN_ZERO: those
     *  elements count as zero. Both are counted. Sums of finite gradients that are more than a
     *  float can be are infinite where they are sent as they are, and infinite or NaN where they
     *  are projected. Where they are quantised again they count as zero with WEFT_NAN_ZERO,
     *  uncounted; else, and where PowerSGD makes columns of them orthonormal, they fail the object
     *  for good: WEFT_ERR_COMPUTE, and weft_compressed_average_next() stays as it was. */
    weft_nan_policy_t nan;
    /** How long step and wait wait before they return WEFT_ERR_TIMEOUT, in nanoseconds. Default:
     *  WEFT_NEVER. The object stays usable: weft_compressed_average_wait() goes on waiting. */
    uint64_t deadline_ns;
    /** How long, in nanoseconds, the creation waits for the other ranks; then it fails on all with
     *  WEFT_ERR_TIMEOUT (WEFT_ERR_PEER). Default: WEFT_NEVER. */
    uint64_t meet_ns;
    /** How long, in nanoseconds, weft_compressed_average_destroy() waits for the end of a step that
     *  has been posted. WEFT_NEVER: for as long as it takes. Default: 60 s. */
    uint64_t leave_ns;
    /** The state of a checkpoint, or of an object that has failed; or NULL. Borrowed for the
     *  creation. */
    const struct weft_compressed_average_state *state;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_compressed_average_config_init_sized(
    struct weft_compressed_average_config *config, size_t size);
#define weft_compressed_average_config_init(config)                                                \
    weft_compressed_average_config_init_sized((config), sizeof *(config))

/** What a step's sums are. */
typedef enum weft_compressed_phase {
    /** Uncompressed, and no samples are taken. */
    WEFT_COMPRESSED_WARMUP,
    /** Uncompressed; GradiVeQ takes a sample. */
    WEFT_COMPRESSED_SAMPLING,
    WEFT_COMPRESSED_COMPRESSED
} weft_compressed_phase_t;

/** "warm-up", "sampling", "compressed"; NULL if there is no such phase. */
WEFT_EXPORT const char *weft_compressed_phase_name(weft_compressed_phase_t phase);

/** What a step was on this rank. */
struct weft_compressed_average_result {
    /** Set by the caller. */
    size_t struct_size;
    uint64_t step;
    weft_compressed_phase_t phase;
    /** Sent by this rank in this step, with what ranks tell each other. */
    uint64_t bytes;
    /** What an element takes on the wire, on average over the model: 32 bits by this is the step's
     *  compression ratio. */
    double bits;
    /** Of this rank's gradient (with its residual), the square of the norm of what its compression
     *  has dropped, divided by that of its norm: of GradiVeQ's compressed steps the loss of
     *  equation 7, of the tensors that are projected. -1: it is not known (or the norm is 0, or
     *  components are more than a float can be). 0: nothing was dropped. */
    double loss;
    /** GradiVeQ: ranks that have voted for the end of the compressed phase in the step before. */
    int votes;
};

/** Counted on this rank since its creation (or since the checkpoint that it goes on from), of steps
 *  that have been waited for. */
struct weft_compressed_average_stats {
    /** Set by the caller. */
    size_t struct_size;
    uint64_t steps;
    /** Of them compressed, and GradiVeQ's compressed phases, and those of them that votes have
     *  ended. */
    uint64_t compressed_steps;
    uint64_t phases;
    uint64_t ended_early;
    /** Elements that were summed. */
    uint64_t elements;
    /** NaNs and infinities in gradients (with their residuals). */
    uint64_t nans;
    /** GradiVeQ: samples that were not taken because the sum was not finite. */
    uint64_t bad_samples;
    /** Sent, with what ranks tell each other. elements of a step * 4 bytes by bytes of a step is
     *  not the compression ratio, as an allreduce sends elements about twice: see `bits`. */
    uint64_t messages;
    uint64_t bytes;
    /** The sum over steps of the bits that all elements took on the wire. */
    double wire_bits;
    /** Time that step and wait have waited; taken to bring gradients in and out; and to find
     *  principal components. */
    uint64_t waited_ns;
    uint64_t copy_ns;
    uint64_t pca_ns;
};

/** How GradiVeQ compresses a tensor in the phase under way, or has in the last one; and PowerSGD,
 *  which has a row for a slice, and the rank of its factors for components. */
struct weft_gradiveq_tensor {
    /** Set by the caller. */
    size_t struct_size;
    /** K; 0: it is sent as it is, or quantised. */
    size_t slice;
    /** How many there are, and how many share a projection. */
    size_t slices;
    size_t reuse;
    /** d of the first projection. 0: none has been made yet, or its samples had no variance. Slices
     *  are sent as they are then, and where d is no less than their elements. */
    size_t components;
    /** Of the samples of the first projection: the share of their variance that is lost. -1: not
     *  known, as of PowerSGD, or components is 0. Of what is sent as it is: 0. */
    double loss;
};

/** What goes into a checkpoint, beside the model. */
struct weft_compressed_average_state {
    size_t struct_size;
    /** The next step: the same on all ranks. Of an object that has failed the step that was under
     *  way or to come, perhaps one less on some; those that go on from it agree on the largest. */
    uint64_t next;
    /** What all ranks have alike: phases, samples, projections, factors. As words and numbers whose
     *  meaning is the library's. NULL: from the beginning. */
    const uint64_t *words;
    size_t word_count;
    const float *numbers;
    size_t number_count;
    /** Of this rank: one f32 an element of the model, tensor after tensor. NULL: zeros, or none is
     *  kept. */
    const float *residual;
    /** 1: of an object that has failed. */
    int failed;
    /** Failed: likewise, as `residual`: the gradient (with the residual) of the step that has
     *  failed, if it was posted. It goes back to the residual, where one is kept, if that step has
     *  ended on no rank that goes on. NULL: nothing. */
    const float *unsent;
    /** 1: this rank votes, with its next step, for the end of GradiVeQ's compressed phase. */
    int vote;
    /** The last member, so that both can grow. */
    struct weft_compressed_average_stats stats;
};

/**
 * Creates the object. Collective over the context and blocking: the ranks compare their settings.
 * Takes 8 bytes an element, 8 for a residual, and what schedules take; GradiVeQ besides 4 bytes an
 * element for means, 4 K L_t for the samples of each projection and 4 K d for the projection;
 * PowerSGD 4 r (rows + 4 columns) bytes a matrix. It is allocated here, but for projections and
 * the schedules of new phases, which weft_compressed_average_wait() allocates.
 * @return WEFT_OK; WEFT_ERR_INVALID (names the argument; also where ranks disagree, and where the
 *         state of a checkpoint is of other tensors); WEFT_ERR_UNSUPPORTED (datatype; GradiVeQ and
 *         there is no LAPACK); WEFT_ERR_MEMORY; WEFT_ERR_TIMEOUT; WEFT_ERR_PEER (it has failed on
 *         another rank). After an error config->state may be given to another creation.
 */
WEFT_EXPORT int weft_compressed_average_create(struct weft_compressed_average **average,
                                               struct weft_context *context,
                                               const struct weft_compressed_average_config *config);

/**
 * One step, in place on the gradients: the tensors become S / ranks. Blocks until all ranks have
 * got as far; all ranks take the same number of steps.
 * @param result may be NULL.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (this rank's gradient had NaNs or infinities, the text says
 *         which tensor and how many; the step has been taken, with a gradient of zero, and all
 *         ranks have the same sum); WEFT_ERR_TIMEOUT (the text says who is missing; then
 *         weft_compressed_average_wait() ends the step); WEFT_ERR_STATE (a posted step has not been
 *         waited for); what an aggregation has failed with, and from then on always: go on from its
 *         state (weft_compressed_average_get_state()).
 */
WEFT_EXPORT int weft_compressed_average_step(struct weft_compressed_average *average,
                                             struct weft_compressed_average_result *result);

/**
 * The first half of a step: brings the gradients in and starts the aggregation; does not wait for
 * other ranks. From its return on the gradients may be overwritten. With helper progress the
 * aggregation goes on meanwhile.
 * @return WEFT_OK; WEFT_ERR_STATE (a posted step has not been waited for); what an aggregation has
 *         failed with.
 */
WEFT_EXPORT int weft_compressed_average_post(struct weft_compressed_average *average);

/**
 * The second half: waits for what has been posted and writes the tensors. Between GradiVeQ's
 * phases it finds principal components, of which each rank has a part, and waits for the others'.
 * @param result may be NULL.
 * @return as weft_compressed_average_step(); WEFT_ERR_STATE if nothing was posted.
 */
WEFT_EXPORT int weft_compressed_average_wait(struct weft_compressed_average *average,
                                             struct weft_compressed_average_result *result);

/** The step to come: how many there have been. 0 if @p average is NULL. */
WEFT_EXPORT uint64_t weft_compressed_average_next(const struct weft_compressed_average *average);

/** The phase of the step to come. WEFT_COMPRESSED_WARMUP if @p average is NULL. */
WEFT_EXPORT weft_compressed_phase_t
weft_compressed_average_phase(const struct weft_compressed_average *average);

/** What this rank has counted so far.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_compressed_average_get_stats(const struct weft_compressed_average *average,
                                                  struct weft_compressed_average_stats *stats);

/** How a tensor is compressed. @return WEFT_OK; WEFT_ERR_INVALID (NULL, the struct_size, no such
 *  tensor). */
WEFT_EXPORT int weft_compressed_average_get_tensor(const struct weft_compressed_average *average,
                                                   size_t tensor,
                                                   struct weft_gradiveq_tensor *info);

/** The L2 norm of this rank's residual, 0 if none is kept; reads it.
 *  @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_STATE while something is posted. */
WEFT_EXPORT int weft_compressed_average_residual_norm(const struct weft_compressed_average *average,
                                                      double *norm);

/**
 * The state for a checkpoint, between steps, in the middle of a phase, too. Its pointers are
 * borrowed from the object, until the next step or its end.
 *
 * Of an object that has failed, because a rank has died, say, it is the state from which those that
 * are left create it again, on a context of theirs (weft_context_shrink()). Where the step under
 * way has ended on one of them the others need its sum, or its model, and what their compression
 * has dropped in it is lost; else what was posted goes back to the residual, where one is kept.
 * GradiVeQ begins sampling anew if ranks are fewer than
 * they were; PowerSGD goes on from its factors, or, where ranks have not all the same, anew.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_STATE while something is posted; WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_compressed_average_get_state(struct weft_compressed_average *average,
                                                  struct weft_compressed_average_state *state);

/**
 * Fails it on all ranks, if nothing has before: this rank cannot go on. Whoever is in a step, or
 * begins one, gets an error: @p status here, WEFT_ERR_PEER on the others, with this rank's number
 * and the text. From any thread, does not block.
 * @param status an error (below 0).
 * @param text copied; NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_compressed_average_fail(struct weft_compressed_average *average, int status,
                                             const char *text);

/**
 * Frees it, after a step that has been posted (leave_ns). Ranks may end after different numbers of
 * steps: the next step of one that goes on fails with WEFT_ERR_PEER, naming who has ended. One
 * that has failed blocks as weft_run_destroy() does. NULL is accepted.
 * @return WEFT_OK, or what it has failed with; it is freed in any case.
 */
WEFT_EXPORT int weft_compressed_average_destroy(struct weft_compressed_average *average);

#ifdef __cplusplus
}
#endif

#endif
