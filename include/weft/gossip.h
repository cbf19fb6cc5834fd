/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Gossip: ranks average their models with a few neighbours instead of with everybody. Two objects:
 * weft_gossip, in which a rank waits for its neighbours of the step, and weft_pair_average, in
 * which nobody waits for a rank that computes.
 *
 *     weft_gossip, ring           D-PSGD: Lian, Zhang, Zhang, Hsieh, Zhang, Liu, "Can Decentralized
 *                                 Algorithms Outperform Centralized Algorithms?" (NeurIPS 2017),
 *                                 Algorithm 1
 *     weft_gossip, exponential    SGP: Assran, Loizou, Ballas, Rabbat, "Stochastic Gradient Push
 *                                 for Distributed Deep Learning" (ICML 2019), Algorithm 1, Appendix
 *                                 A
 *     weft_pair_average           AD-PSGD: Lian, Zhang, Zhang, Liu, "Asynchronous Decentralized
 *                                 Parallel Stochastic Gradient Descent" (ICML 2018), Algorithm 1
 *
 * Algorithm 1 of D-PSGD and that of AD-PSGD exchange the models as they were before the step, while
 * the gradient is computed: post, gradient, wait, update gives x <- W x - rate g(x). That of SGP
 * exchanges what the gradient has updated: gradient, update, step gives x <- W (x - rate g(x)).
 * Either order is open to each object.
 *
 * An object is used by one thread at a time. A model is a list of tensors, averaged in place.
 */
#ifndef WEFT_GOSSIP_H
#define WEFT_GOSSIP_H

#include <weft/context.h>
#include <weft/model.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- graphs ---- */

/** To whom a rank sends. Rank r sends to (r + hop) mod P for every hop, and receives from
 *  (r - hop) mod P: every rank sends as often as it receives. */
typedef enum weft_gossip_graph {
    /** Hops 1, -1, 2, -2 ...: the first `neighbours` of them, in every version. */
    WEFT_GOSSIP_RING,
    /** Hops j (n + 1)^i for j = 1 .. n, n = `neighbours`, with i = version modulo the number of
     *  powers of n + 1 below P. If P is a power of n + 1, one round of all i averages exactly. */
    WEFT_GOSSIP_EXPONENTIAL
} weft_gossip_graph_t;

/**
 * The hops of a version, 1 .. ranks - 1 each, no two alike. Pure; any thread.
 * @param hops has room for @p neighbours.
 * @return how many (fewer than neighbours where the ranks do not suffice; 0 for one rank), or
 *         WEFT_ERR_INVALID (negative).
 */
WEFT_EXPORT int weft_gossip_hops(weft_gossip_graph_t graph, int ranks, int neighbours,
                                 uint64_t version, int *hops);

/* ---- with neighbours, together ---- */

struct weft_gossip;

/** How models are averaged with neighbours. Members that are 0 mean their defaults. */
struct weft_gossip_config {
    size_t struct_size;
    /** WEFT_F32 (default) or WEFT_F64. */
    weft_dtype_t dtype;
    /** The model: tensors of elements of dtype, borrowed until the object is destroyed; the list is
     *  copied. Counts must be the same on all ranks. May be empty. */
    const struct weft_piece *tensors;
    size_t tensor_count;
    /** What the contents are at creation: the same on all ranks (default), as in the papers; those
     *  of rank 0, written to the tensors; or any, as where a training goes on from models that
     *  differ. */
    weft_initial_t initial;
    /** What becomes of a model with NaNs or infinities: WEFT_NAN_ERROR (default) refuses it, also
     *  at creation, so that it does not spread; WEFT_NAN_SPREAD: it is not looked for. The same on
     *  all ranks. */
    weft_nan_policy_t nan;
    weft_gossip_graph_t graph;
    /** 1 .. ranks - 1 or more (more than there are ranks means all). 0: 2 on the ring, 1 else. */
    int neighbours;
    /** What this rank counts, > 0: for example its number of samples. Default 1; ranks may differ.
     *  Only what weights are to each other matters. Each step keeps sum(weight * model) over all
     *  ranks, and without updates all models tend to its mean, sum(weight * model) / sum(weight).
     *  An update of a rank enters the mean with the rank's weight, so training descends
     *  sum(weight * loss) / sum(weight): rates need not be scaled. A heavy rank moves little
     *  towards light ones, so very uneven weights mix slowly, most of all where hops go one way
     *  (weft_gossip_step() has the shares). */
    double weight;
    /** How long step and wait wait before they return WEFT_ERR_TIMEOUT, in nanoseconds. Default:
     *  WEFT_NEVER. The object stays usable: weft_gossip_wait() goes on waiting. */
    uint64_t deadline_ns;
    /** How long, in nanoseconds, the creation waits for the other ranks; then it fails on all with
     *  WEFT_ERR_TIMEOUT (WEFT_ERR_PEER). Default: WEFT_NEVER. */
    uint64_t meet_ns;
    /** How long, in nanoseconds, weft_gossip_destroy() waits for the end of a step that has been
     *  posted, which the others need. WEFT_NEVER: for as long as it takes. Default: 60 s. */
    uint64_t leave_ns;
    /** The state of a checkpoint, or of an object that has failed, perhaps of more ranks; or NULL.
     *  Borrowed for the creation. Steps go on with the largest `next` of all ranks. The models of
     *  ranks that have one are not compared. */
    const struct weft_gossip_state *state;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_gossip_config_init_sized(struct weft_gossip_config *config, size_t size);
#define weft_gossip_config_init(config) weft_gossip_config_init_sized((config), sizeof *(config))

/** Counted on this rank since the creation. */
struct weft_gossip_stats {
    /** Set by the caller. */
    size_t struct_size;
    uint64_t steps;
    /** Sent. */
    uint64_t messages;
    uint64_t bytes;
    /** Time that step and wait have waited. */
    uint64_t waited_ns;
    /** NaNs and infinities in models that were refused. */
    uint64_t nans;
};

/** What goes into a checkpoint, beside the model. Plain data. */
struct weft_gossip_state {
    size_t struct_size;
    /** The next step: less than 2^62. */
    uint64_t next;
    /** The last member, so that both can grow. */
    struct weft_gossip_stats stats;
};

/**
 * Creates the object. Collective over the context and blocking: the ranks compare their settings.
 * Takes, beside the model, (1 + neighbours) times its size.
 * @return WEFT_OK; WEFT_ERR_INVALID (names the argument; also where ranks disagree);
 *         WEFT_ERR_UNSUPPORTED (datatype); WEFT_ERR_MEMORY; WEFT_ERR_PEER (it has failed on another
 *         rank).
 */
WEFT_EXPORT int weft_gossip_create(struct weft_gossip **gossip, struct weft_context *context,
                                   const struct weft_gossip_config *config);

/**
 * One step, in place on the tensors. With model z and weight w of this rank, and z_j, w_j of the n
 * ranks from whom it receives in this version:
 *
 *     z <- z + sum_j s_j (z_j - z)        s_j = min(w, w_j) / w / (n + 1)   where it sends to the
 *                                                                           same ranks
 *                                         s_j = min(w of all) / w / (n + 1) else
 *
 * added hop by hop. With equal weights all shares are 1 / (n + 1): the plain mean of n + 1 models.
 * With others they are the Metropolis-Hastings weights of the ring, and those push-sum shares of a
 * directed graph under which the weights of push-sum stay what they are, so that nothing needs to
 * be de-biased: in both the sum of w z over all ranks stays, up to rounding, and equal models stay
 * equal to the bit. The ring goes both ways if `neighbours` is even.
 *
 * Blocks until the neighbours have got as far; all ranks take the same number of steps.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (the model has NaNs or infinities, the text says which tensor
 *         and how many; nothing has been sent and no step taken: whoever waits for this rank goes
 *         on once the model has been mended and the step repeated, or hears weft_gossip_fail());
 *         WEFT_ERR_TIMEOUT (the text says who is missing; then weft_gossip_wait() ends the
 *         step); WEFT_ERR_STATE (a posted step has not been waited for); what the exchange has
 *         failed with, and from then on always.
 */
WEFT_EXPORT int weft_gossip_step(struct weft_gossip *gossip);

/** The first half of a step: copies the model and sends it; does not block. Until
 *  weft_gossip_wait() the tensors may be changed. With helper progress the exchange goes on
 *  meanwhile.
 *  @return WEFT_OK; WEFT_ERR_STATE (a posted step has not been waited for). */
WEFT_EXPORT int weft_gossip_post(struct weft_gossip *gossip);

/** The second half: waits and applies z += average - posted, so that what was done to the tensors
 *  in between is kept. After a weft_gossip_step() that has timed out it ends that step.
 *  @return as weft_gossip_step(); WEFT_ERR_STATE if nothing was posted. */
WEFT_EXPORT int weft_gossip_wait(struct weft_gossip *gossip);

/** The step to come: how many there have been. */
WEFT_EXPORT uint64_t weft_gossip_next(const struct weft_gossip *gossip);

/**
 * The state for a checkpoint, or from which those that are left go on when a rank has died, on a
 * context of theirs: between steps, also of an object that has failed. The model is in the tensors:
 * a step that fails leaves them as they are. Of an exchange that a death has cut off one rank may
 * have moved towards another and not the other way round: then the mean of those that are left
 * moves, too, by less than that step.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_STATE (a posted step has not been waited for).
 */
WEFT_EXPORT int weft_gossip_get_state(const struct weft_gossip *gossip,
                                      struct weft_gossip_state *state);

/** What this rank has counted so far.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_gossip_get_stats(const struct weft_gossip *gossip,
                                      struct weft_gossip_stats *stats);

/**
 * Fails it on all ranks, if nothing has before: this rank cannot go on. Whoever is in a step, or
 * begins one, gets an error: @p status here, WEFT_ERR_PEER on the others, with this rank's number
 * and the text. From any thread, does not block.
 * @param status an error (below 0).
 * @param text copied; NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_gossip_fail(struct weft_gossip *gossip, int status, const char *text);

/**
 * Frees it, after a step that has been posted (leave_ns). Ranks may end after different numbers of
 * steps: who begins a step for which it needs one that has ended before gets WEFT_ERR_PEER, naming
 * it. One that has failed blocks as weft_run_destroy() does. NULL is accepted.
 * @return WEFT_OK, or what it has failed with; it is freed in any case.
 */
WEFT_EXPORT int weft_gossip_destroy(struct weft_gossip *gossip);

/* ---- in pairs, nobody waits for who computes ---- */

struct weft_pair_average;

/** How models are averaged in pairs. Members that are 0 mean their defaults. */
struct weft_pair_average_config {
    size_t struct_size;
    /** WEFT_F32 (default) or WEFT_F64. */
    weft_dtype_t dtype;
    /** The model, as for weft_gossip_config. */
    const struct weft_piece *tensors;
    size_t tensor_count;
    /** As for weft_gossip_config. */
    weft_initial_t initial;
    weft_nan_policy_t nan;
    /** Of the draw of partners: a plain number. The same on all ranks. */
    uint64_t seed;
    /** How long step and wait wait for the partner's helper before they return WEFT_ERR_TIMEOUT, in
     *  nanoseconds. Default: WEFT_NEVER. weft_pair_average_wait() goes on waiting. */
    uint64_t deadline_ns;
    /** How long, in nanoseconds, the creation waits for the other ranks; then it fails on all with
     *  WEFT_ERR_TIMEOUT (WEFT_ERR_PEER). Default: WEFT_NEVER. */
    uint64_t meet_ns;
    /** How long, in nanoseconds, a rank that has destroyed its object answers the others while none
     *  of them asks; then the object fails on them, naming it, if it is an odd rank (an even one is
     *  not needed). WEFT_NEVER: for as long as it takes. Default: 60 s. */
    uint64_t leave_ns;
    /** As in weft_gossip_config, but that each rank goes on with its own next step. */
    const struct weft_pair_average_state *state;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_pair_average_config_init_sized(struct weft_pair_average_config *config,
                                                     size_t size);
#define weft_pair_average_config_init(config)                                                      \
    weft_pair_average_config_init_sized((config), sizeof *(config))

/** Counted on this rank since the creation. */
struct weft_pair_average_stats {
    /** Set by the caller. */
    size_t struct_size;
    uint64_t steps;
    /** Exchanges that this rank began, and that its helper answered. */
    uint64_t begun;
    uint64_t answered;
    /** Sent. */
    uint64_t messages;
    uint64_t bytes;
    /** Time that step and wait have waited. */
    uint64_t waited_ns;
    /** NaNs and infinities in models that were refused. */
    uint64_t nans;
};

/** What goes into a checkpoint, beside the model. Plain data. */
struct weft_pair_average_state {
    size_t struct_size;
    /** The next step of this rank: less than 2^62. */
    uint64_t next;
    /** The last member, so that both can grow. */
    struct weft_pair_average_stats stats;
};

/**
 * Creates the object. Collective over the context and blocking. Even ranks begin exchanges, odd
 * ranks answer them (the bipartite graph of the paper, without which a circle of ranks could wait
 * for one another). Takes, beside the model, 3 times its size on odd ranks, twice on even ones, and
 * up to 64 bytes for each rank that has ever asked an odd one.
 * @return WEFT_OK; WEFT_ERR_INVALID (names the argument; also where ranks disagree);
 *         WEFT_ERR_STATE (the context has no helper progress, without which a computing rank would
 *         not answer); WEFT_ERR_UNSUPPORTED (datatype); WEFT_ERR_MEMORY; WEFT_ERR_PEER (it has
 *         failed on another rank).
 */
WEFT_EXPORT int weft_pair_average_create(struct weft_pair_average **average,
                                         struct weft_context *context,
                                         const struct weft_pair_average_config *config);

/**
 * With whom an even rank exchanges in its step @p step: an odd rank, drawn from the seed. Pure; any
 * thread. @return WEFT_PEER_NONE (-1) for odd ranks, and where there is one rank alone.
 */
WEFT_EXPORT int weft_pair_average_partner(uint64_t seed, int ranks, int rank, uint64_t step);

/**
 * One step, in place on the tensors. An even rank i exchanges with an odd rank j drawn for this
 * step, whose helper answers while its application computes:
 *
 *     d = (W_i - W_j) / 2        W_i <- W_i - d        W_j <- W_j + d
 *
 * element by element, of whole models: exchanges with one rank come one after the other. An odd
 * rank takes over what exchanges have added since its last step. What a rank's application has
 * changed meanwhile is kept, so the sum of all models is kept too, up to rounding. Blocks for
 * communication only. Ranks may take different numbers of steps.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (as weft_gossip_step(); others keep exchanging with the model
 *         that was published last); WEFT_ERR_TIMEOUT; WEFT_ERR_STATE (a posted step has not been
 *         waited for); what an exchange has failed with, and from then on always.
 */
WEFT_EXPORT int weft_pair_average_step(struct weft_pair_average *average);

/** The first half of a step: copies the model and begins the exchange; does not block on even
 *  ranks, and on odd ones for no longer than a model is read. Until weft_pair_average_wait() the
 *  tensors may be changed. */
WEFT_EXPORT int weft_pair_average_post(struct weft_pair_average *average);

/** The second half: waits, and adds what the exchange has brought. */
WEFT_EXPORT int weft_pair_average_wait(struct weft_pair_average *average);

/**
 * The mean over all ranks, in place, the same on all bit by bit: at the end of a training, or now
 * and then. Collective and blocking; helpers answer meanwhile. The sum of all models is kept, up to
 * rounding.
 * @return WEFT_OK; WEFT_ERR_COMPUTE (as weft_pair_average_step(): this rank has not come to it);
 *         WEFT_ERR_TIMEOUT (deadline_ns; the text has the ranks that are missing; the next call
 *         goes on waiting, and until it has ended no step can be begun); WEFT_ERR_STATE (a posted
 *         step has not been waited for); what the object has failed with.
 */
WEFT_EXPORT int weft_pair_average_synchronise(struct weft_pair_average *average);

/** The step to come: how many there have been. */
WEFT_EXPORT uint64_t weft_pair_average_next(const struct weft_pair_average *average);

/**
 * The state for a checkpoint, or from which those that are left go on when a rank has died: between
 * steps, also of an object that has failed. Takes over, as a step does, what exchanges have added
 * since the last one: afterwards the model of this rank is in the tensors, also where it had been
 * in a synchronisation that a death has cut off. What comes later to an
 * object that goes on is in none of them. Of exchanges that a death has cut off one side may have
 * moved and not the other.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_STATE (a posted step has not been waited for, or a
 *         synchronisation has been begun and not been ended).
 */
WEFT_EXPORT int weft_pair_average_get_state(struct weft_pair_average *average,
                                            struct weft_pair_average_state *state);

/** What this rank has counted so far.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_pair_average_get_stats(const struct weft_pair_average *average,
                                            struct weft_pair_average_stats *stats);

/**
 * Fails it on all ranks, if nothing has before: this rank cannot go on. Whoever is in a step, or
 * begins one, gets an error: @p status here, WEFT_ERR_PEER on the others, with this rank's number
 * and the text. From any thread, does not block.
 * @param status an error (below 0).
 * @param text copied; NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_pair_average_fail(struct weft_pair_average *average, int status,
                                       const char *text);

/**
 * Ends this rank's part in it. Does not block: the tensors are left as they are and are the
 * caller's again at once, and the helper of the context goes on answering until all ranks have left
 * or leave_ns has passed without a question (weft_context_destroy() waits for that).
 * weft_pair_average_synchronise() fails on the others from now on. NULL is accepted.
 * @return WEFT_OK, or what it has failed with; it is gone in any case.
 */
WEFT_EXPORT int weft_pair_average_destroy(struct weft_pair_average *average);

#ifdef __cplusplus
}
#endif

#endif
