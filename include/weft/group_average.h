/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Wait-avoiding group averaging: ranks average their models in groups that change from step to
 * step, and a rank that is late takes part without having arrived.
 *
 * Source: Li, Ben-Nun, Dryden, Di Girolamo, Hoefler, "Breaking (Global) Barriers in Parallel
 * Stochastic Optimization with Wait-Avoiding Group Averaging" (TPDS 2021), sections 3 and 4,
 * Algorithm 2; eager-SGD: Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler, "Taming Unbalanced Training
 * Workloads in Deep Learning with Partial Collective Operations" (PPoPP 2020). docs/averaging.md
 * tells how it works.
 *
 * Version t of the object is the application's step t. The rank that reaches step t first activates
 * version t on all ranks. Every rank then executes version t, with the contribution that it has
 * published last, whatever its application is doing. Here rank 2 is late; all are in one group:
 *
 *     rank 0   step t: publishes W0, activates t .... sum = W0 + W1 + old W2      W = sum / 3
 *     rank 1      step t: publishes W1 .............. the same sum                W = sum / 3
 *     rank 2      (computing) its helper sends old W2 ....... step t: publishes W2, which is not in
 *                                                     the sum: stale,   (sum - old W2 + W2) / 3
 *
 * So the ranks need not agree on who is late: each executes the same versions in the same order,
 * and knows from its own step which contribution of it a version took. At step t the caller gets,
 * for its model W':
 *
 *     W' was in the sum          W = sum / members
 *     it was not (stale)         W = (sum - own + W') / members, with the newest sum that has
 *                                completed; `own` is what it has of this rank; W' is published for
 *                                the versions to come. Or, as in the paper, if asked for,
 *                                W = (sum + W') / (members + 1) (weft_stale_mix_t)
 *     no newer sum than taken    W = W', members = 0
 *     (t + 1) mod sync_period = 0    W = sum over all ranks / ranks: everybody waits for everybody
 *
 * A rank takes each sum at most once. Members of a group get bitwise identical sums.
 *
 * An object is used by one thread at a time; weft_group_average_report() by any.
 */
#ifndef WEFT_GROUP_AVERAGE_H
#define WEFT_GROUP_AVERAGE_H

#include <weft/context.h>
#include <weft/model.h>
#include <weft/schedule.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_group_average;

/** Whom a version waits for. */
typedef enum weft_average_mode {
    /** Nobody: the first to arrive activates it on all ranks. */
    WEFT_AVERAGE_WAIT_AVOIDING,
    /** Each rank starts when its application has arrived, so a group waits for its members. */
    WEFT_AVERAGE_WAITING,
    /** No groups: only the synchronisation every sync_period steps (local SGD). */
    WEFT_AVERAGE_NONE
} weft_average_mode_t;

/** Who may activate a version, in the wait-avoiding mode. */
typedef enum weft_average_activation {
    /** Whoever arrives first ("solo" in eager-SGD). */
    WEFT_AVERAGE_ANYONE,
    /** One rank for each version, drawn from the seed that all share ("majority" in eager-SGD: half
     *  of the ranks have arrived before it, on average). It is waited for. */
    WEFT_AVERAGE_DRAWN
} weft_average_activation_t;

/** What a contribution is. */
typedef enum weft_average_contribution {
    /** A model: what is published replaces what was there, and may be used by several versions. */
    WEFT_AVERAGE_REPLACE,
    /** A gradient: what is published adds up until a version consumes it; a rank with nothing new
     *  contributes zero. W becomes sum / members, with no local mixing; a stale rank that finds no
     *  newer sum gets zero. Each gradient enters one version, or is pending: then a checkpoint has
     *  it (weft_group_average_state). */
    WEFT_AVERAGE_ACCUMULATE
} weft_average_contribution_t;

/** What a stale step makes of the sum that it takes and of its own model W'. In the sum is what
 *  this rank had published before: an older model of its own. */
typedef enum weft_stale_mix {
    /** W = (sum - own + W') / members: W' stands in for `own`, the very bits of this rank that
     *  entered the sum. A rank that is alone in its group keeps W' bit for bit. */
    WEFT_STALE_SUBSTITUTE,
    /** W = (sum + W') / (members + 1), Algorithm 2 of the paper. The old model stays in: a rank
     *  that is alone in its group keeps half of its step, or two thirds where it is late again and
     *  again. */
    WEFT_STALE_PAPER
} weft_stale_mix_t;

/** The settings of an object. Members that are 0 mean their defaults. */
struct weft_group_average_config {
    size_t struct_size;
    /** WEFT_F32 (default), WEFT_F64, WEFT_BF16 or WEFT_F16. The last two are summed, and travel, in
     *  f32, and are rounded to nearest even at the end. */
    weft_dtype_t dtype;
    /** The model: tensors of elements of dtype, borrowed until the object is destroyed. Counts must
     *  be the same on all ranks. With WEFT_AVERAGE_REPLACE the contents are the first contribution.
     *  May be empty. */
    const struct weft_piece *tensors;
    size_t tensor_count;
    /** With WEFT_AVERAGE_REPLACE: what the contents are at creation. WEFT_INITIAL_SAME (default):
     *  the same on all ranks but those that go on from a `state`, whose models differ from one
     *  another between synchronisations; they are not compared. WEFT_INITIAL_BROADCAST: those of
     *  rank 0, written to the tensors, whoever has a state. Gradients are not looked at, and with
     *  WEFT_AVERAGE_ACCUMULATE nothing is broadcast: then it is refused. */
    weft_initial_t initial;
    /** What becomes of NaNs and infinities in what is to be published. The same on all ranks.
     *  WEFT_NAN_ERROR (default): a model is refused, also at creation: the step returns
     *  WEFT_ERR_COMPUTE and has not been taken, and the contribution before it stays. A gradient
     *  counts as zero in this step, and who waits is told. WEFT_NAN_ZERO, of gradients alone: those
     *  elements count as zero. WEFT_NAN_SPREAD: they are not looked for. Looking takes,
     *  with SSE2, 2.3 instructions an element of f32, 4.5 of f64 and 1.3 of f16 and bf16. */
    weft_nan_policy_t nan;
    /** Members of a group, 1 .. ranks. Default: weft_groups_default_size(). */
    int group_size;
    /** Every so many steps all ranks are averaged; or WEFT_NEVER. Default 10. */
    uint64_t sync_period;
    weft_average_mode_t mode;
    weft_average_activation_t activation;
    weft_average_contribution_t contribution;
    /** With WEFT_AVERAGE_ACCUMULATE, where nothing is mixed, only the default. The same on all
     *  ranks. */
    weft_stale_mix_t stale_mix;
    /** How long a passive rank holds the start of an activated version so that its application may
     *  arrive, in nanoseconds. WEFT_NS_NONE: not at all, as in the paper. Default: adaptive,
     *  between 1 and 10 % of the time between the last steps of this rank. It begins with 1 ms,
     *  grows where waiting longer would have made the last stale step a fresh one, and wears off
     *  where it would not. */
    uint64_t patience_ns;
    /** For WEFT_AVERAGE_DRAWN: a plain number. The same on all ranks. */
    uint64_t seed;
    /** Algorithm of the allreduce within groups and at synchronisations (as weft_template_params
     *  .algo); NULL: chosen by cost. */
    const char *algo;
    /** How long step and wait wait before they return WEFT_ERR_TIMEOUT, in nanoseconds. Default:
     *  WEFT_NEVER. The object stays usable: weft_group_average_wait() goes on waiting. */
    uint64_t deadline_ns;
    /** How long, in nanoseconds, the creation waits for the other ranks; then it fails on all with
     *  WEFT_ERR_TIMEOUT (WEFT_ERR_PEER). Default: WEFT_NEVER. */
    uint64_t meet_ns;
    /** How long, in nanoseconds, a rank that has destroyed its object serves the others while no
     *  version ends and nothing comes for it; then the object fails on them, naming it. WEFT_NEVER:
     *  for as long as it takes. Default: 60 s. */
    uint64_t leave_ns;
    /** The state of a checkpoint, or of an object that has failed, perhaps of more ranks; or NULL.
     *  Borrowed for the creation. Steps go on where it was taken; the largest of all ranks is the
     *  first version, ranks that are behind it are stale until they have reached it. */
    const struct weft_group_average_state *state;
    /** Where the tensors of this rank are; other ranks may have theirs elsewhere. WEFT_MEMORY_HOST
     *  (default), or WEFT_MEMORY_DEVICE: on the device of the context, or another one that its
     *  kernels reach. Then sums are made there, with the bits of the host's, what the object takes
     *  and what its states point to is the device's, and steps may be put on streams (weft/cuda.h).
     *  Tensors must be computed when what is not handed a stream is called, and are at return. */
    weft_memory_t memory;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_group_average_config_init_sized(struct weft_group_average_config *config,
                                                      size_t size);
#define weft_group_average_config_init(config)                                                     \
    weft_group_average_config_init_sized((config), sizeof *(config))

/** What a step has got. */
struct weft_group_average_result {
    /** Set by the caller. */
    size_t struct_size;
    /** The version whose sum was taken; the step's own if members is 0. */
    uint64_t version;
    /** Contributions in that sum; 0: none was taken. */
    int members;
    /** 1: the caller's contribution of this step was not in it. */
    int stale;
    /** 1: it was a synchronisation of all ranks. */
    int synchronised;
};

/** Bounds of weft_group_average_stats.behind: 0, 1, 2, 3, 4-7, 8-15, 16-31, 32 and more. */
enum { WEFT_AVERAGE_BEHIND = 8 };

/** Counted on this rank since its creation (or since the checkpoint that it goes on from). */
struct weft_group_average_stats {
    /** Set by the caller. */
    size_t struct_size;
    uint64_t steps;
    /** Versions executed with this step's contribution, and without. */
    uint64_t active_versions;
    uint64_t passive_versions;
    uint64_t syncs;
    /** Steps whose contribution came too late; of these, the ones that found no newer sum. */
    uint64_t stale_steps;
    uint64_t empty_steps;
    /** Steps by how many versions the newest one that had started here was ahead on arrival. */
    uint64_t behind[WEFT_AVERAGE_BEHIND];
    /** Time that step and wait have waited, all in all and at synchronisations. */
    uint64_t waited_ns;
    uint64_t waited_sync_ns;
    /** Sent by this rank's versions. */
    uint64_t bytes;
    uint64_t messages;
    /** NaNs and infinities that were found in models and gradients. */
    uint64_t nans;
};

/** Where a rank was in an object. */
struct weft_group_average_past {
    int rank;
    int ranks;
    int group_size;
    /** Versions below have ended there. */
    uint64_t ended;
};

/** What goes into a checkpoint, beside the model. Plain data, but for the pointers. */
struct weft_group_average_state {
    size_t struct_size;
    /** The next step: at most 2^53, and of all ranks at most 2^20 apart. */
    uint64_t next;
    /** WEFT_AVERAGE_ACCUMULATE: the sum of what this rank has published and no version has
     *  consumed, tensor after tensor, in the datatype of sums: f64 for WEFT_F64, else f32. NULL:
     *  nothing. */
    const void *pending;
    /** Elements there: of all tensors; 0 if it is NULL. */
    size_t pending_count;
    /** WEFT_AVERAGE_ACCUMULATE, of an object that has failed; NULL and 0 otherwise. As `pending`:
     *  what the version had consumed that failed here, number `failed_version`. It counts if that
     *  version has ended on no rank that goes on: then the next object adds it to what is pending.
     */
    const void *failed;
    size_t failed_count;
    uint64_t failed_version;
    /** Likewise: the newest sum, if no step has taken it, of so many contributions and not yet
     *  divided. The next object's first step gets sum / sum_members on top of its own. */
    const void *sum;
    size_t sum_count;
    int sum_members;
    /** What `failed` is looked up by: of the object, and of the one before from whose state it was
     *  created, in case that was done on some of the ranks alone. */
    struct weft_group_average_past past[2];
    /** The last member, so that both can grow. */
    struct weft_group_average_stats stats;
};

/**
 * Creates the object. Collective over the context and blocking: the ranks compare their settings,
 * and their models (config->initial). Takes, beside the model, 5 times its size (in f32 for bf16
 * and f16) and the scratch of one allreduce: one contribution is published, one runs, one is being
 * written, and the newest sum stays while the next is made. One size more with
 * WEFT_AVERAGE_ACCUMULATE, and in the wait-avoiding mode with WEFT_STALE_SUBSTITUTE (the default),
 * where the rank's contribution to the newest sum stays with it.
 * @return WEFT_OK; WEFT_ERR_INVALID (names the argument; also where ranks disagree);
 *         WEFT_ERR_STATE (the context has no helper progress, without which late ranks would not
 *         take part); WEFT_ERR_UNSUPPORTED (datatype); WEFT_ERR_MEMORY; WEFT_ERR_PEER (another rank
 *         has failed, or died: then it may have been created on others, where it fails; whoever is
 *         left creates it again, from the state that it has by then). Where a state has what had
 *         `failed`, that is settled once this returns WEFT_OK, which it then does also if the
 *         object has failed meanwhile: the first step tells.
 */
WEFT_EXPORT int weft_group_average_create(struct weft_group_average **average,
                                          struct weft_context *context,
                                          const struct weft_group_average_config *config);

/**
 * One step, in place on the tensors: publishes them, activates the step's version, waits for what
 * the table above says, and writes the average. Blocks for communication only, and at
 * synchronisations (with WEFT_AVERAGE_DRAWN also for the drawn rank, with WEFT_AVERAGE_WAITING for
 * the group).
 * @param result may be NULL.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (config->nan; the text says which tensor and how many: a model
 *         was refused, and the step has not been taken, so that it can be mended and the step
 *         repeated; or a gradient counted as zero, and the step has been taken);
 *         WEFT_ERR_TIMEOUT (the text names who is missing at a synchronisation; then
 *         weft_group_average_wait() ends the step); WEFT_ERR_STATE (a posted step has not been
 *         waited for); what a version has failed with: WEFT_ERR_PEER and a text that names the rank
 *         and how it ended, where one has died. From then on always: the ranks that are left create
 *         it again from its state (weft_group_average_get_state()).
 */
WEFT_EXPORT int weft_group_average_step(struct weft_group_average *average,
                                        struct weft_group_average_result *result);

/**
 * The first half of a step: copies the tensors, publishes them and activates, and does not block.
 * Until weft_group_average_wait() the tensors may be changed.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (a model was refused, and nothing is posted); WEFT_ERR_STATE (a
 *         posted step has not been waited for).
 */
WEFT_EXPORT int weft_group_average_post(struct weft_group_average *average);

/**
 * The second half: waits, and applies W += average - posted, so that what was done to the tensors
 * in between is kept; in a stale step the posted model is the W' of the average (for
 * WEFT_AVERAGE_ACCUMULATE: writes the sum / members). After a
 * weft_group_average_step() that has timed out it ends that step as it would have.
 * @return as weft_group_average_step(); WEFT_ERR_STATE if nothing was posted.
 */
WEFT_EXPORT int weft_group_average_wait(struct weft_group_average *average,
                                        struct weft_group_average_result *result);

/**
 * Whether weft_group_average_wait() would wait, for other ranks or for a stream: WEFT_IN_PROGRESS.
 * If not, it is called: what it returns is returned, and the step is over. Of a step that has been
 * posted, or put on a stream.
 * @return WEFT_IN_PROGRESS; as weft_group_average_wait().
 */
WEFT_EXPORT int weft_group_average_test(struct weft_group_average *average,
                                        struct weft_group_average_result *result);

/** The rank that WEFT_AVERAGE_DRAWN draws for a version: it is waited for. Pure; any thread.
 *  -1 for ranks < 1. */
WEFT_EXPORT int weft_group_average_activator(uint64_t seed, int ranks, uint64_t version);

/** The step to come: how many there have been. One that has been put on a stream is to come until
 *  it has been waited for, or the next one is begun. */
WEFT_EXPORT uint64_t weft_group_average_next(const struct weft_group_average *average);

/** What this rank has counted so far.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_group_average_get_stats(struct weft_group_average *average,
                                             struct weft_group_average_stats *stats);

/**
 * The state for a checkpoint from which this run would go on if it were cut off: between steps. All
 * of it is of one moment, but nothing stops: a version may consume what is pending right
 * afterwards, and each rank's moment is its own. Where gradients must count exactly once over all
 * ranks, take such checkpoints after a synchronisation, when nothing is pending anywhere.
 *
 * Of an object that has failed, because a rank has died, say, it is the state from which those that
 * are left create it again, on a context of theirs (weft_context_shrink()). A step that was under
 * way then counts as taken, without a sum. Models are in the tensors of their ranks. Of gradients
 * nothing is lost that a rank has published which goes on: each is in the sum of a version that
 * has ended on one of them, or in a state, and enters one version of the new object.
 * @param state its pointers are borrowed from the object until its next step or its end.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_STATE (a posted step has not been waited for).
 */
WEFT_EXPORT int weft_group_average_get_state(struct weft_group_average *average,
                                             struct weft_group_average_state *state);

/**
 * The state of the last checkpoint, before the object is destroyed: as
 * weft_group_average_get_state(), and takes what is pending out of the object. No version consumes
 * it any more, so whenever the ranks call it, each gradient that has been published is in the sum
 * of one version or in the state of its rank. The object can be used on, without it.
 * @return as weft_group_average_get_state().
 */
WEFT_EXPORT int weft_group_average_take_state(struct weft_group_average *average,
                                              struct weft_group_average_state *state);

/**
 * Where everybody is: asks all ranks, whose helpers answer whatever their applications do, waits
 * at most @p timeout_ns for the answers, and writes a text of lines: this rank's step and version,
 * and at a synchronisation the ranks that are missing. From any thread. Free it with
 * weft_memory_free().
 */
WEFT_EXPORT int weft_group_average_report(struct weft_group_average *average, uint64_t timeout_ns,
                                          char **text);

/**
 * Fails it on all ranks, if nothing has before: this rank cannot go on. Whoever is in a step, or
 * begins one, gets an error: @p status here, WEFT_ERR_PEER on the others, with this rank's number
 * and the text. From any thread, does not block.
 * @param status an error (below 0).
 * @param text copied; NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_group_average_fail(struct weft_group_average *average, int status,
                                        const char *text);

/**
 * Ends this rank's part in it. Does not block: the tensors are the caller's again at once, and the
 * helper of the context goes on with the last model, which counts as arrived wherever others
 * arrive, until all ranks have left or leave_ns has passed in silence (weft_context_destroy() waits
 * for that). So ranks may end after different numbers of steps, and several objects in any order.
 * What is pending (WEFT_AVERAGE_ACCUMULATE) is consumed by a version that still runs, or dropped if
 * there is none: weft_group_average_take_state() has it. NULL is accepted.
 * @return WEFT_OK, or what it has failed with; it is gone in any case.
 */
WEFT_EXPORT int weft_group_average_destroy(struct weft_group_average *average);

#ifdef __cplusplus
}
#endif

#endif
