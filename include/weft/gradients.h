/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Merged gradients: layers' gradients are averaged while the backward pass goes on, neighbours
 * together where that ends sooner.
 *
 * Source: Shi, Chu, Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
 * Algorithms" (INFOCOM 2019). Plans are made as weft/merge.h has it, from what an allreduce costs
 * and from when layers' gradients are there, both measured if nothing else is said.
 *
 *     trainer    backward: ready(3)  ready(2)  ready(1)  ready(0)   forward: wait(0)  wait(1) ...
 *     engine               |= 3 ====|          |== 2 and 1 ===|== 0 =|
 *
 * A step begins with the first layer that is announced (ready or absent) and ends when all layers
 * have been waited for; the next one may begin then. In between memory belongs to the object: a
 * layer's tensors from its announcement until it has been waited for. All ranks take the same
 * steps. The order in which layers are announced may differ from step to step and from rank to
 * rank: groups are sent in the order of the plan, so what comes in another order is sent later,
 * and never wrong.
 *
 * What a step gives is the same on all ranks, bit for bit, whatever the order and the times of
 * announcements; another plan may give other roundings.
 *
 * weft_gradients_ready(), _absent(), _wait() and _fail() may be called by any number of threads at
 * once; nobody calls anything of an object that is being destroyed. docs/merging.md has examples.
 */
#ifndef WEFT_GRADIENTS_H
#define WEFT_GRADIENTS_H

#include <weft/compressed_average.h>
#include <weft/context.h>
#include <weft/merge.h>
#include <weft/sparse_average.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_gradients;

/** What becomes of the gradients of all ranks. */
typedef enum weft_gradients_reduction {
    /** Their sum, divided by the number of ranks; with a power of two of them mostly on the way: at
     *  every addition, by two. The bits are the same, but where a sum would be too large, or a part
     *  of it subnormal. */
    WEFT_GRADIENTS_AVERAGE,
    /** Their sum. */
    WEFT_GRADIENTS_SUM
} weft_gradients_reduction_t;

/** How a group of layers is summed. */
typedef enum weft_gradients_method {
    /** By an allreduce. */
    WEFT_GRADIENTS_DENSE,
    /** The entries of largest magnitude of the group, by a sparse average of its own (model order,
     *  WEFT_SPARSE_MODEL). Groups are summed side by side, each from the announcement of its last
     *  layer on. Who announces that one accumulates and selects: that reads and writes 4 bytes an
     *  element of the group, 8 with momentum, some two passes over memory. Where groups change,
     *  residuals and velocities stay with their elements. */
    WEFT_GRADIENTS_SPARSE,
    /** All entries in fewer bits, by a compressed average a group (weft/compressed_average.h).
     *  Groups are summed side by side, as with WEFT_GRADIENTS_SPARSE; who announces the last layer
     *  of one copies its gradients. Where groups change, residuals, factors and projections stay
     *  with their tensors; a group of tensors that are in different phases begins sampling anew.
     *  What GradiVeQ does between its phases is done by who ends the step, group after group. */
    WEFT_GRADIENTS_COMPRESSED
} weft_gradients_method_t;

/** What weft_gradients_wait_all() does about layers that have not been announced. */
typedef enum weft_gradients_missing {
    /** Returns WEFT_ERR_STATE, with a text that names them. Nothing has changed. */
    WEFT_GRADIENTS_MISSING_ERROR,
    /** Announces them as absent: they count as zero. */
    WEFT_GRADIENTS_MISSING_ZERO
} weft_gradients_missing_t;

/** Which gradients there are, and how they are merged and summed. Members that are 0 mean their
 *  defaults. But for memory, the times in ready_ns, deadlines and statistics, all ranks
 *  give the same. */
struct weft_gradients_config {
    size_t struct_size;
    /** Of the gradients: WEFT_F32 (default), WEFT_F16 or WEFT_BF16. */
    weft_dtype_t dtype;
    /** The gradients, in the order of the model: tensors of elements of dtype, aligned as its
     *  elements are, borrowed until the object is destroyed; the list is copied. Tensors of a group
     *  that lie one behind the other in memory are sent as they are; others are copied. May be
     *  empty. */
    const struct weft_piece *tensors;
    size_t tensor_count;
    /** How many successive tensors each layer has; they add up to tensor_count. NULL: one each, and
     *  layer_count is 0 or tensor_count. Borrowed for the creation. A layer may have no tensors, or
     *  tensors of no elements; it is announced and waited for as the others. */
    const size_t *layer_tensors;
    size_t layer_count;
    /** Default: WEFT_GRADIENTS_AVERAGE. */
    weft_gradients_reduction_t reduction;
    /**
     * Of what is sent: WEFT_F32 (default), WEFT_F16 or WEFT_BF16. In 32
     * bits, gradients of 16 bits are widened first, added up in f32, and rounded once in the end.
     * In 16 bits every contribution and every partial sum is rounded to nearest even.
     *
     * With P ranks, n = P + 1, u = 2^-24, 2^-11 or 2^-8 for wire_dtype f32, f16 or bf16, and g =
     * n u / (1 - n u), a result differs from the sum (or the average) of the gradients x by at most
     * g + v + g v times the sum (or the average) of their magnitudes |x|. v is the rounding into
     * the gradients' own datatype: 2^-11 or 2^-8 if dtype is f16 or bf16 and wire_dtype another; 0
     * if dtype is f32 or both are the same. That holds where no gradient, partial sum or result is
     * subnormal in wire_dtype or dtype, or too large for it (f16: 65504, beyond which it is
     * infinite).
     *
     * With WEFT_GRADIENTS_SPARSE and WEFT_GRADIENTS_COMPRESSED: WEFT_F32. What is sent of an entry
     * has 32 bits, or as many as its compression says, whatever dtype is.
     */
    weft_dtype_t wire_dtype;
    /** Default: WEFT_GRADIENTS_DENSE. */
    weft_gradients_method_t method;
    /** WEFT_GRADIENTS_SPARSE: how a group is made sparse and summed; NULL: by all defaults. The
     *  density, or k, is each group's. dtype, tensors, tensor_count, scope, deadline_ns, meet_ns,
     *  leave_ns and state are 0: this struct says them. With WEFT_NAN_ERROR a wait returns
     *  WEFT_ERR_COMPUTE for a group whose gradients were not finite on this rank, once, when its
     *  layers have their results: it may go on. Without a meaning for WEFT_GRADIENTS_DENSE.
     *  Borrowed for the creation. */
    const struct weft_sparse_average_config *sparse;
    /** WEFT_GRADIENTS_COMPRESSED: how a group is compressed; NULL: by all defaults. `shapes` are a
     *  shape a tensor of this struct. Of GradiVeQ memory_bytes is each group's. dtype, tensors,
     *  tensor_count, sum, deadline_ns, meet_ns, leave_ns and state are 0: this struct says them.
     *  With WEFT_NAN_ERROR as with `sparse`. Borrowed for the creation. */
    const struct weft_compressed_average_config *compressed;
    /** How layers are merged, in the order of the backward pass: the last layer first, or as
     *  ready_ns or the measured times have it. NULL: WEFT_MERGE_EXACT. Borrowed for the creation.
     */
    const struct weft_merge_config *merge;
    /** What an allreduce costs. NULL: it is measured by the creation, at up to seven sizes, for at
     *  most about a second, and agreed on. Borrowed for the creation; of a function only
     *  values at powers of two are taken, up to the size of the model. With
     *  WEFT_GRADIENTS_SPARSE it is what a group of so many bytes of gradients costs; measured, as
     *  an allreduce of as many bytes as its pairs have; with WEFT_GRADIENTS_COMPRESSED, as it takes
     *  in its fewer bits (of GradiVeQ those of QSGD, as projections are not known before). */
    const struct weft_merge_cost *cost;
    /** When each layer's gradient is there, in nanoseconds from any origin, below 2^62: a time a
     *  layer, in the order of the model; of all ranks the latest count. NULL: measured. Borrowed
     *  for the creation. */
    const uint64_t *ready_ns;
    /** Over how many steps times are measured, of which the median counts. Default: 5. Until there
     *  are times, methods that need some send in buckets of 25 MiB, the first of 1 MiB, as DDP
     *  does. */
    uint64_t measure_steps;
    /** Every so many steps times are measured again, and the plan is made anew if that gains
     *  enough. WEFT_NEVER: once is enough. Default: 200. */
    uint64_t check_steps;
    /** How much sooner, as a share of the communication that is not hidden, a new plan has to end
     *  than the one in force to take its place, 0 .. 1. Default: 0.05. */
    double gain;
    weft_gradients_missing_t missing;
    /** How long a wait waits before it returns WEFT_ERR_TIMEOUT, in nanoseconds. The step goes on,
     *  and may be waited for again. Default: WEFT_NEVER. */
    uint64_t deadline_ns;
    /** How long, in nanoseconds, the creation waits for the other ranks; then it fails on all with
     *  WEFT_ERR_TIMEOUT (WEFT_ERR_PEER). Default: WEFT_NEVER. */
    uint64_t meet_ns;
    /** How long, in nanoseconds, weft_gradients_destroy() waits for the end of a step of which all
     *  layers have been announced. WEFT_NEVER: for as long as it takes. Default: 60 s. */
    uint64_t leave_ns;
    /** The state of a checkpoint, or of an object that has failed, perhaps of more ranks; or NULL.
     *  Of a checkpoint groups are taken on as many ranks, if `merge` is what made them, and cost
     *  and ready_ns are NULL; else a plan is made of its times and costs, on another number of
     *  ranks of its times. Of an object that has failed, of its times on any number of ranks. Costs
     *  that are not taken are measured. Borrowed for the creation. */
    const struct weft_gradients_state *state;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_gradients_config_init_sized(struct weft_gradients_config *config,
                                                  size_t size);
#define weft_gradients_config_init(config)                                                         \
    weft_gradients_config_init_sized((config), sizeof *(config))

/** What a step was on this rank. */
struct weft_gradients_result {
    /** Set by the caller. */
    size_t struct_size;
    /** The step. */
    uint64_t step;
    /** Layers that this rank has announced as absent. */
    size_t absent;
    /** Time that waits have waited; with several threads, of all together. */
    uint64_t waited_ns;
    /** Time in which groups were summed, and how much of it was over before this rank's last
     *  announcement: hidden behind its computation. With WEFT_GRADIENTS_SPARSE and
     *  WEFT_GRADIENTS_COMPRESSED groups are summed side by side, and the times of all of them
     *  count. */
    uint64_t communication_ns;
    uint64_t hidden_ns;
    /** WEFT_GRADIENTS_COMPRESSED: groups that were compressed in this step: of GradiVeQ those that
     *  were in that phase. */
    size_t compressed_groups;
    /** Likewise: what an element has taken on the wire, on average over the model; else 0. */
    double bits;
    /** Likewise: as in weft_compressed_average_result, of all groups together of which it is known;
     *  -1: of none, or nothing was compressed. */
    double loss;
};

/** Counted on this rank since its creation (or since the checkpoint that it goes on from), of steps
 *  that have ended. */
struct weft_gradients_stats {
    /** Set by the caller. */
    size_t struct_size;
    uint64_t steps;
    /** As in weft_gradients_result. */
    uint64_t absent;
    uint64_t waited_ns;
    uint64_t communication_ns;
    uint64_t hidden_ns;
    /** Sent, with what the ranks tell each other to make plans. */
    uint64_t messages;
    uint64_t bytes;
    /** Bytes of gradients that were copied, to be sent and back. */
    uint64_t copied_bytes;
    /** Times at which ranks have agreed on when gradients are there, and plans that were put in
     *  force, with the first. */
    uint64_t checks;
    uint64_t plans;
};

/** The plan in force. Pointers are borrowed from the object until the end of a step. */
struct weft_gradients_plan {
    /** Set by the caller. */
    size_t struct_size;
    /** The first step that it was used in. */
    uint64_t since;
    /** Groups, and what was predicted of them: its layers are positions in `order`. Its times have
     *  the first layer's as their origin, and are 0 while none are known. */
    const struct weft_merge_plan *merge;
    /** The layer (of the model) at each position, in the order of the backward pass. */
    const size_t *order;
    size_t layer_count;
    size_t group_count;
    /** Of the last step that has ended, in microseconds from its first announcement on this rank:
     *  when the layer at each position was announced, when each group began to be summed (all its
     *  layers were there and the group before it was over) and when it was over. NULL: there has
     *  been none since the plan is in force. */
    const double *ready_us;
    const double *start_us;
    const double *end_us;
};

/** What goes into a checkpoint, beside the model. */
struct weft_gradients_state {
    size_t struct_size;
    /** The next step, below 2^62: the same on all ranks. Of an object that has failed the step that
     *  was under way or to come, perhaps one less on some; those that go on from it agree on the
     *  largest. */
    uint64_t next;
    /** The number of ranks, the layers' sizes, how they are merged, the times, costs and groups
     *  that ranks have agreed on: the same on all ranks. Of an object that has failed only the
     *  times are taken, the latest of those that go on. */
    const uint64_t *agreed;
    size_t agreed_count;
    /** WEFT_GRADIENTS_SPARSE and WEFT_GRADIENTS_COMPRESSED: of this rank, an f32 an element of the
     *  model, tensor after tensor; else NULL, as is what there is none of. NULL: zeros. */
    const float *residual;
    const float *velocity;
    /** With WEFT_SPARSE_OKTOPK: thresholds and bounds of the groups, the same on all ranks. Groups
     *  of the same layers on as many ranks go on from them; others, and with NULL all, anew. */
    const uint64_t *regions;
    size_t region_count;
    /** WEFT_GRADIENTS_COMPRESSED: what all ranks have alike of the groups: factors, projections,
     *  phases, as words and numbers whose meaning is the library's. NULL: from the beginning. */
    const uint64_t *words;
    size_t word_count;
    const float *numbers;
    size_t number_count;
    /** Likewise, by GradiVeQ, but of this rank: a number a layer, in the order of the model. 1: it
     *  votes, with its next step, for the end of the compressed phase of the group that has the
     *  layer. Where groups change, one votes if a layer of it does: else projections would stay in
     *  use of which too much was seen to be lost. NULL: zeros. */
    const unsigned char *votes;
    /** 1: of an object that has failed. */
    int failed;
    /** Failed: a number a layer, in the order of the model: in how many steps this rank has been
     *  given its sum, also by objects that had failed and from whose states this one came. In the
     *  step that has failed: by a weft_gradients_wait() that has returned WEFT_OK (or
     *  WEFT_ERR_COMPUTE). Else NULL. NULL: zeros. */
    const uint64_t *taken;
    /** Where residuals are kept, and failed: likewise, 1: in step `next` the gradient of this rank
     *  (or its absence) is in the state; 0: it is not. For who takes that step again, and announces
     *  as absent what is there already. Else NULL. Not read by the creation. */
    const unsigned char *kept;
    /** Likewise, as `residual`: what this rank has sent in that step and been given no sum of.
     *  It goes back to the residual where none that goes on has taken the layer's sum (`taken`).
     *  NULL: nothing. */
    const float *unsent;
    /** The last member, so that both can grow. */
    struct weft_gradients_stats stats;
};

/**
 * Creates the object. Collective over the context and blocking: the ranks compare their settings,
 * measure what an allreduce costs, and agree on both. Takes memory for the elements that are copied
 * (4 bytes each, 2 if they are sent in 16 bits), for what an allreduce takes, and some 100 bytes a
 * layer; all of it is allocated here and, for a new plan, by weft_gradients_wait().
 * @return WEFT_OK; WEFT_ERR_INVALID (names the argument; also where ranks disagree, and where the
 *         state of a checkpoint is of other layers); WEFT_ERR_UNSUPPORTED (datatype);
 *         WEFT_ERR_MEMORY; WEFT_ERR_TIMEOUT; WEFT_ERR_PEER (it has failed on another rank).
 *         After an error config->state may be given to another creation.
 */
WEFT_EXPORT int weft_gradients_create(struct weft_gradients **gradients,
                                      struct weft_context *context,
                                      const struct weft_gradients_config *config);

/**
 * Announces that a layer's gradient is in its tensors, which are not to be touched until the layer
 * has been waited for. The first announcement after the end of a step begins the next one. Any
 * thread; does not block, whatever the progress of the context.
 * @param layer of the model, from 0.
 * @return WEFT_OK; WEFT_ERR_INVALID (no such layer); WEFT_ERR_STATE (the layer has been announced
 *         in this step: named with the step; or all have been, and the step has not ended: the text
 *         names a layer that has still to be waited for). Then nothing has changed. What the object
 *         has failed with, from then on always.
 */
WEFT_EXPORT int weft_gradients_ready(struct weft_gradients *gradients, size_t layer);

/** Announces that a layer has no gradient in this step on this rank: it counts as zero. Its tensors
 *  are set to 0 at once, and receive the result as those of others. Else as
 *  weft_gradients_ready(). */
WEFT_EXPORT int weft_gradients_absent(struct weft_gradients *gradients, size_t layer);

/**
 * Waits until a layer's tensors hold the result: for the next forward pass, which takes layers one
 * after the other. Between steps, and for a layer that has been waited for, it returns at once. In
 * a step the layer must have been announced; those that are sent with it or before it may be
 * announced meanwhile, by other threads. Who waits for the last layer ends the step. Any thread,
 * several at once; a call belongs to the step that is under way when it is made, so a thread that
 * begins the next step lets others call first. With caller progress the engine is driven by who
 * waits.
 * @param layer of the model, from 0.
 * @return WEFT_OK; WEFT_ERR_INVALID (no such layer); WEFT_ERR_STATE (it has not been announced);
 *         WEFT_ERR_TIMEOUT (deadline_ns: the text says for whom it waits; it may be waited for
 *         again); WEFT_ERR_PEER and others: what the object has failed with, from then on always. A
 *         layer or a step whose sums were there before is WEFT_OK once more; the next call tells.
 *         Those that are left go on from its state (weft_gradients_get_state()).
 */
WEFT_EXPORT int weft_gradients_wait(struct weft_gradients *gradients, size_t layer);

/**
 * Waits for all layers and ends the step: the one under way at the call, or else the next one.
 * Layers that have not been announced: missing. One thread at a time; beside it others may announce
 * layers of that step and wait for them. If they end it, this is told of its end and touches
 * nothing of the step after it. So is a call between steps, if waits for layers have ended the last
 * step and no wait_all has been told of that: who ends steps so, and has then no gradient at all,
 * says so by weft_gradients_absent(). What is announced while this looks for layers that are
 * missing is of the step or, with WEFT_GRADIENTS_MISSING_ZERO, too late and refused; announcements
 * that come after the step has ended begin the next one.
 * @param result may be NULL.
 * @return as weft_gradients_wait(); WEFT_ERR_STATE (layers have not been announced). A model
 *         without layers: WEFT_OK, a step has been taken.
 */
WEFT_EXPORT int weft_gradients_wait_all(struct weft_gradients *gradients,
                                        struct weft_gradients_result *result);

/** What the last step that has ended was, for who has waited for layers one by one. All is 0 if
 *  there has been none. @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_gradients_get_result(struct weft_gradients *gradients,
                                          struct weft_gradients_result *result);

/** The step under way, or the next one. 0 if @p gradients is NULL. */
WEFT_EXPORT uint64_t weft_gradients_next(const struct weft_gradients *gradients);

/** The phase of the step under way, or of the next one: compressed if a group is, else sampling if
 *  one is. Without WEFT_GRADIENTS_COMPRESSED, and if @p gradients is NULL, WEFT_COMPRESSED_WARMUP.
 */
WEFT_EXPORT weft_compressed_phase_t weft_gradients_phase(const struct weft_gradients *gradients);

/** How GradiVeQ or PowerSGD compresses a tensor of the model, between steps, as
 *  weft_compressed_average_get_tensor(). Without WEFT_GRADIENTS_COMPRESSED all is 0.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, the struct_size, no such tensor); WEFT_ERR_STATE (in a
 *          step). */
WEFT_EXPORT int weft_gradients_get_tensor(struct weft_gradients *gradients, size_t tensor,
                                          struct weft_gradiveq_tensor *info);

/** What this rank has counted so far.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_gradients_get_stats(struct weft_gradients *gradients,
                                         struct weft_gradients_stats *stats);

/** The plan in force, between steps.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size); WEFT_ERR_STATE (in a step). */
WEFT_EXPORT int weft_gradients_get_plan(struct weft_gradients *gradients,
                                        struct weft_gradients_plan *plan);

/**
 * The state for a checkpoint, between steps. Its pointers are borrowed from the object, until the
 * next step or its end.
 *
 * Of an object that has failed, because a rank has died, say, it is the state from which those that
 * are left create it again, on a context of theirs (weft_context_shrink()), in a step as well as
 * between steps; nobody calls anything else of the object meanwhile. Times are taken over; costs,
 * which are those of so many ranks, are measured anew, the plan is made anew of both, and Ok-Topk's
 * thresholds and regions begin anew.
 *
 * In the step under way a layer's sum may have been given to some of those that are left: the
 * others need it from them, or their model (`taken` tells whose). With WEFT_GRADIENTS_SPARSE such a
 * sum has what all have sent. Of other layers nobody has it, and what ranks had selected goes back
 * to their residuals: no gradient that is in the state (`kept`) is lost or counts twice, but what
 * merges had dropped until then counts twice, and velocities stay 0 where pairs had been selected.
 * What the merges of a dead rank had dropped is lost with its residual. (WEFT_SPARSE_ALLGATHER
 * drops nothing.) With WEFT_GRADIENTS_COMPRESSED likewise, but for what compression had dropped of
 * such a layer on a rank that has no sum of it, which is lost. With WEFT_GRADIENTS_DENSE there is
 * nothing to keep: what the failed step was to sum is in no state, and the tensors of its layers
 * hold no particular values.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size); WEFT_ERR_STATE (in a step of an
 *         object that has not failed); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_gradients_get_state(struct weft_gradients *gradients,
                                         struct weft_gradients_state *state);

/**
 * Fails it on all ranks, if nothing has before: this rank cannot go on. Whoever is in a step, or
 * begins one, gets an error: @p status here, WEFT_ERR_PEER on the others, with this rank's number
 * and the text. From any thread, does not block.
 * @param status an error (below 0).
 * @param text copied; NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_gradients_fail(struct weft_gradients *gradients, int status, const char *text);

/**
 * Frees it, after a step of which all layers have been announced (leave_ns). A step of which only
 * some have been fails: the others cannot end it, and are told. Ranks may end after different
 * numbers of steps: the next step of one that goes on fails with WEFT_ERR_PEER, naming who has
 * ended. That fails the object on all ranks, at once: one whose sums of the last common step are
 * there is told so first, and of the failure by the next call; one that still waits for them, or
 * with caller progress has not driven the engine since, may be told of the failure in that step.
 * One that has failed blocks as weft_run_destroy() does. NULL is accepted.
 * @return WEFT_OK, or what it has failed with; WEFT_ERR_STATE (layers of the step under way had not
 *         been announced: the text names one). It is freed in any case.
 */
WEFT_EXPORT int weft_gradients_destroy(struct weft_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif
