/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Parameter servers: ranks that hold the parameters of a model, to which workers push gradients and
 * from which they pull parameters, under one of six synchronisation models.
 *
 *     worker 0   compute | push 0 ........ pull 0 | compute
 *     worker 1   compute      | push 1 ... pull 1 | compute
 *     server             merges what has come, updates, answers: asleep in between
 *
 * A worker's step is one graph, from its push to its pull; what a server makes of the pushes is
 * another. The synchronisation models differ in when a server answers:
 *
 *     BSP     when all workers have pushed: synchronous SGD. Layers are merged one by one, as they
 *             come. (Valiant 1990; Gerbessiotis, Valiant 1994)
 *     ASP     at once. (Dean et al., NIPS 2012: "Downpour SGD")
 *     SSP     when the slowest worker is at most s steps behind: Ho et al., "More Effective
 *             Distributed ML via a Stale Synchronous Parallel Parameter Server" (NIPS 2013),
 *             section 3
 *     DSSP    as SSP, with an s that is chosen in a range, for each worker and each time that it
 *             gets ahead: Zhao, An, Liu, Chen, "Dynamic Stale Synchronous Parallel Distributed
 *             Training for Deep Learning" (ICDCS 2019), Algorithms 1 and 2
 *     R2SP    at once, but workers take turns: one pushes while the one before it pulls, so both
 *             directions of the server's link are busy. Chen, Wang, Li, "Round-Robin
 *             Synchronization: Mitigating Communication Bottlenecks in Parameter Servers" (INFOCOM
 *             2019)
 *     OSP     in two stages: important layers as in BSP, the others behind the computation of the
 *             next step. Chen, Shi, Liu, Li, Liu, Xu, "OSP: Boosting Distributed Model Training
 *             with 2-stage Synchronization" (ICPP 2023)
 *
 * docs/servers.md says what each of them guarantees, and what it costs. What a worker pulls is
 * never half of an update, also of a layer that is split over servers, and has a version: how many
 * updates are in it.
 *
 * Ranks are workers, servers, or both (weft_server_place_t). Who is a server needs nothing of its
 * application while workers train: with helper progress a server goes on by itself, with caller
 * progress in weft_server_serve(). An object is used by one thread at a time, but for
 * weft_server_fail().
 */
#ifndef WEFT_SERVER_H
#define WEFT_SERVER_H

#include <weft/context.h>
#include <weft/model.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_server;

/** When a server answers. */
typedef enum weft_server_sync {
    WEFT_SERVER_BSP,
    WEFT_SERVER_ASP,
    WEFT_SERVER_SSP,
    WEFT_SERVER_DSSP,
    WEFT_SERVER_R2SP,
    WEFT_SERVER_OSP
} weft_server_sync_t;

/** Which ranks are servers. */
typedef enum weft_server_place {
    /** The last `servers` ranks; all others are workers. Where there is one rank, that is both. */
    WEFT_SERVER_APART,
    /** The first `servers` ranks, and all ranks are workers. Needs helper progress on these. */
    WEFT_SERVER_COLOCATED
} weft_server_place_t;

/** What workers push. */
typedef enum weft_server_push {
    /** Gradients. */
    WEFT_SERVER_GRADIENTS,
    /** Their models, after updates of their own. BSP: the parameters become the weighted mean; ASP
     *  and its relatives: the parameters move towards a model by the share of its worker's
     *  weight. Not with OSP. */
    WEFT_SERVER_MODELS
} weft_server_push_t;

/** Who has the optimiser, where gradients are pushed. */
typedef enum weft_server_optimiser {
    /** The servers: v <- momentum v + g, x <- x - rate v, with one v for all. g is the weighted
     *  mean of the workers' gradients (BSP, OSP), or one gradient, times the share of its worker's
     *  weight. */
    WEFT_SERVER_UPDATES,
    /** Each worker, with a v of its own: it pushes - rate v, and servers add that up, weighted. */
    WEFT_WORKER_UPDATES
} weft_server_optimiser_t;

/** How pushes come to a server: many at once collapse on links whose queues are short (incast). */
typedef enum weft_server_flow {
    /** Each when it is there. */
    WEFT_SERVER_AT_ONCE,
    /** `turns` workers at a time, in the order in which they ask, which they do when all their
     *  layers have been announced: so announce all before waiting for one. With OSP a turn lasts
     *  until the important layers have come. R2SP: always one, in the order of their ranks. Of a
     *  model without elements nothing is pushed, and nobody waits for a turn. */
    WEFT_SERVER_TURNS,
    /** In segments of `segment_bytes`, of which each worker has `window` on the way to a server:
     *  the next one is sent when one has arrived. */
    WEFT_SERVER_PACED
} weft_server_flow_t;

/** When the layers that are late are corrected (OSP). */
typedef enum weft_osp_correction {
    /** When a step ends: what has come of the step before counts. The same on every run. */
    WEFT_OSP_AT_END,
    /** When the layer is waited for, too: for who waits before each layer's forward pass. What has
     *  come by then counts, so a run is not repeatable. */
    WEFT_OSP_BEFORE_LAYER
} weft_osp_correction_t;

/** weft_server_config.osp_share: no layer is ever late. */
#define WEFT_OSP_NOTHING (-1.0)

/** Which model there is, who holds it, and how it is synchronised. Members that are 0 mean their
 *  defaults. All ranks give the same, but for memory, weight, nan, deadlines and state. */
struct weft_server_config {
    size_t struct_size;
    /** Of parameters and gradients: WEFT_F32 (default) or WEFT_F64. */
    weft_dtype_t dtype;
    /** The parameters: tensors of elements of dtype, borrowed until the object is destroyed (where
     *  a rank is a server alone, for the creation); the list is copied. May be empty. */
    const struct weft_piece *tensors;
    size_t tensor_count;
    /** Of workers: the gradients, a tensor for each of `tensors` with the same count; borrowed
     *  likewise. NULL where a rank is a server alone, and with WEFT_SERVER_MODELS. */
    const struct weft_piece *gradients;
    /** How many successive tensors each layer has; they add up to tensor_count. NULL: one each, and
     *  layer_count is 0 or tensor_count. Borrowed for the creation. A layer may have no tensors, or
     *  tensors of no elements. */
    const size_t *layer_tensors;
    size_t layer_count;
    /** What the parameters are at creation, as in other objects on models. Servers are among the
     *  ranks that are compared; with WEFT_INITIAL_ANY what their tensors have is what counts. */
    weft_initial_t initial;
    /** What becomes of NaNs and infinities: WEFT_NAN_ERROR (default) refuses a gradient (model)
     *  that has some, and the creation such tensors; WEFT_NAN_SPREAD: they are not looked for. */
    weft_nan_policy_t nan;
    /** How many servers, 1 (default) to the number of ranks, or one less if they are apart. */
    int servers;
    /** Default: WEFT_SERVER_APART. */
    weft_server_place_t place;
    /** A layer of at least so many bytes is split evenly over all servers; a smaller one is whole
     *  on one server. Default: 256 KiB. SIZE_MAX: none is split. */
    size_t split_bytes;
    /** BSP and OSP: what a server has of a layer is merged, and sent back, in pieces of at most so
     *  many bytes, so that both directions of its link are busy; at least an element. Default: a
     *  quarter of a server's share of the model, 64 KiB to 1 MiB: layers are pieces enough where
     *  there are several. SIZE_MAX: as a whole. */
    size_t merge_bytes;
    /** Default: WEFT_SERVER_BSP. */
    weft_server_sync_t sync;
    /** SSP: s. DSSP: its least. A worker that has taken c steps begins the next one only if all
     *  others have taken c - s at least: 0 is BSP's lockstep, with updates one by one. */
    uint64_t staleness;
    /** DSSP: the most that s may be; at least `staleness`. */
    uint64_t staleness_most;
    /** What this worker counts, > 0: for example its number of samples. Default 1. Only what
     *  weights are to each other matters. */
    double weight;
    /** Default: WEFT_SERVER_GRADIENTS. */
    weft_server_push_t push;
    /** Default: WEFT_SERVER_UPDATES. */
    weft_server_optimiser_t optimiser;
    /** Of the optimiser, where gradients are pushed; at most 1e300. Default: 0.1 (OSP, section
     *  5.1.3).
     *  weft_server_set_rate() changes it. */
    double rate;
    /** 0 (default: none) to less than 1. With ASP and its relatives it counts by the step of all
     *  workers: after a push m^(1/workers) of v is left, and what is pushed enters it by (1 -
     *  m^(1/workers)) / (1 - m), so that it moves the parameters as far in the end. A velocity of
     *  all workers bears little staleness: with much momentum WEFT_WORKER_UPDATES does better. */
    double momentum;
    /** Default: WEFT_SERVER_AT_ONCE. */
    weft_server_flow_t flow;
    /** WEFT_SERVER_TURNS: how many at a time. Default: 1. */
    int turns;
    /** WEFT_SERVER_PACED. Defaults: 64 KiB, and 1. */
    size_t segment_bytes;
    int window;
    /** OSP: the share of the model's bytes that may be late, at most, 0 .. 1. Default: 0.8
     *  (Algorithm 1). */
    double osp_most;
    /** OSP: the share of the model's bytes that are late, as far as whole layers fit: 0 (default):
     *  by Algorithm 1; WEFT_OSP_NOTHING; up to 1, whatever osp_most says. */
    double osp_share;
    /** OSP: the goodput of a server's link in bytes a second, and the time that a worker computes
     *  in a step, in nanoseconds, for U_max (section 4.1.2). 0 (default): measured. */
    double osp_goodput;
    uint64_t osp_compute_ns;
    /** OSP: how late layers are predicted. 0 (default): by the worker's own gradient (equation 6).
     *  b > 0, less than 1: by b times an exponential average of updates, in which the latest counts
     *  1 - b, and 1 - b times what the own gradient would make (section 4.2: EMA-LGP). */
    double osp_average;
    /** Default: WEFT_OSP_AT_END. */
    weft_osp_correction_t osp_correction;
    /** How long waits wait before they return WEFT_ERR_TIMEOUT, in nanoseconds. The step goes on,
     *  and may be waited for again. Default: WEFT_NEVER. */
    uint64_t deadline_ns;
    /** How long, in nanoseconds, the creation waits for the other ranks; then it fails on all with
     *  WEFT_ERR_TIMEOUT (WEFT_ERR_PEER). Default: WEFT_NEVER. */
    uint64_t meet_ns;
    /** How long, in nanoseconds, weft_server_destroy() of a worker waits for the end of its last
     *  step, and how long a server that has been destroyed serves while nobody asks. WEFT_NEVER:
     *  for as long as it takes. Default: 60 s. */
    uint64_t leave_ns;
    /** The state of a checkpoint; or NULL. Borrowed for the creation. On all ranks or on none. */
    const struct weft_server_state *state;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_server_config_init_sized(struct weft_server_config *config, size_t size);
#define weft_server_config_init(config) weft_server_config_init_sized((config), sizeof *(config))

/* ---- placement ---- */

/** A range of elements of a layer on a server. */
struct weft_server_part {
    size_t layer;
    /** In elements of the layer. */
    size_t offset;
    size_t count;
    /** 0 .. servers - 1. */
    int server;
};

/**
 * Where layers lie: what a configuration makes of them. A layer of at least @p split_elements is
 * cut into one range a server, which differ by one element at most; others go whole, the largest
 * first, to the server that has least so far. So no server has more than the mean and one layer
 * that is not split. Pure; any thread; O(layers log layers + parts).
 * @param counts of elements, a layer each.
 * @param parts  has room for layers * servers; in the order of the layers, and of the servers in a
 *               layer. Layers of no elements have none.
 * @param part_count set to how many there are.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, servers < 1); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_server_place_layers(const size_t *counts, size_t layers, int servers,
                                         size_t split_elements, struct weft_server_part *parts,
                                         size_t *part_count);

/* ---- results ---- */

/** What a step was on this worker. */
struct weft_server_result {
    size_t struct_size;
    /** The step, from 0. */
    uint64_t step;
    /** How many updates are in what it has pulled: with BSP and OSP one a step, else one a step of
     *  each worker, also where that has pushed nothing. OSP: of layers that are not late. */
    uint64_t version;
    /** ASP and its relatives: how many updates of others have been applied between the pull that
     *  the gradient was computed on and the gradient. Else 0; OSP: 1 if a layer was late. */
    uint64_t staleness;
    /** From the last layer's announcement until the pull was there: the batch synchronisation time
     *  of OSP's section 5.1.4. With OSP of the first stage. */
    uint64_t synchronised_ns;
    /** Time that this step's calls have waited. */
    uint64_t waited_ns;
    /** OSP: bytes of this step's gradients, and of those that went in its second stage. */
    uint64_t bytes;
    uint64_t late_bytes;
    size_t late_layers;
};

/** Counted on this rank since its creation. Who goes on from a checkpoint goes on counting. */
struct weft_server_stats {
    size_t struct_size;
    /** As a worker: steps, and sums over them of what weft_server_result has, or the most. Waits of
     *  calls between steps count as well. Pushed bytes are those of layers that are not absent. */
    uint64_t steps;
    uint64_t staleness;
    uint64_t staleness_most;
    uint64_t synchronised_ns;
    uint64_t waited_ns;
    uint64_t pushed_bytes;
    uint64_t late_bytes;
    /** OSP: steps whose second stage was not over when the next push could have begun, and how long
     *  those waited (beyond 0.1 ms). */
    uint64_t overrun_steps;
    uint64_t overrun_ns;
    /** NaNs and infinities in gradients that were refused. */
    uint64_t nans;
    /** As a server: updates that were applied, pushes that came (a worker's step each), bytes of
     *  the model in and out. */
    uint64_t updates;
    uint64_t pushes;
    uint64_t received_bytes;
    uint64_t sent_bytes;
    /** As a server: how many steps one worker has been ahead of another, at most. */
    uint64_t ahead_most;
};

/** What OSP's Algorithm 1 has decided for the step under way, or to come: the same on all workers.
 */
struct weft_osp_tuning {
    size_t struct_size;
    /** b, in bytes a second; T_c, in nanoseconds; U_max and S(G^u), in bytes. 0: not known yet. */
    double goodput;
    uint64_t compute_ns;
    uint64_t most_bytes;
    uint64_t late_bytes;
    /** The first loss that was told, and the last one. */
    double first_loss;
    double loss;
};

/** What goes into a checkpoint, beside the tensors. Pointers are borrowed from the object until its
 *  next step, or its end. What the object that goes on from it has use for must be there; where all
 *  is 0 it begins anew. */
struct weft_server_state {
    size_t struct_size;
    /** Whose it is: restored on the rank of this number. */
    uint64_t rank;
    /** Of a worker: the next step, below 2^62. */
    uint64_t next;
    /** How many ranks, servers and layers there were. Restored on as many. */
    uint64_t agreed[3];
    /** Of a server: its parts of the model and, with momentum, v, part after part in the order of
     *  the layers; how many steps each worker has taken, and updates applied (with BSP and OSP
     *  steps). Else NULL and 0. */
    const void *parameters;
    const void *velocity;
    size_t element_count;
    const uint64_t *clocks;
    size_t clock_count;
    uint64_t version;
    /** Of a worker: how many updates are in what it has last pulled; 0: as many as servers had, but
     *  where it has taken no step and others have. */
    uint64_t pulled_version;
    /** Of a worker that has the optimiser: v, tensor after tensor. Else NULL. */
    const void *worker_velocity;
    /** OSP, of a worker: a number a layer, 1: it is late in the next step, 2: it was in the last
     *  one and is still to be corrected, 3: both; what it is to be corrected to, the last changes
     *  and their average, tensor after tensor. Else NULL, as what there is none of. */
    const unsigned char *late;
    const void *pulled;
    const void *changes;
    const void *average;
    /** OSP, as in weft_osp_tuning. */
    double first_loss;
    double loss;
    /** The last member, so that it can grow. */
    struct weft_server_stats stats;
};

/* ---- life ---- */

/**
 * Creates the object. Collective over the context and blocking: the ranks compare their settings. A
 * server takes memory for its share of the model, as much again for each worker, and once more with
 * momentum; a worker, in models, 2 with OSP (4 with the servers' momentum, 5 with osp_average), and
 * where it has the optimiser 1, with momentum 2.
 * @return WEFT_OK; WEFT_ERR_INVALID (names the argument; also where ranks disagree); WEFT_ERR_STATE
 *         (a rank of several that needs helper progress has none: servers that are workers too, and
 *         workers with OSP, whose second stage goes on while they compute); WEFT_ERR_UNSUPPORTED
 *         (datatype); WEFT_ERR_COMPUTE (NaNs or infinities in the tensors: config->nan);
 *         WEFT_ERR_MEMORY; WEFT_ERR_TIMEOUT; WEFT_ERR_PEER (it has failed on another rank).
 */
WEFT_EXPORT int weft_server_create(struct weft_server **server, struct weft_context *context,
                                   const struct weft_server_config *config);

/** Whether a rank is a worker, and the number of workers: workers are ranks 0 .. workers - 1. 0 if
 *  @p server is NULL. */
WEFT_EXPORT int weft_server_is_worker(const struct weft_server *server);
WEFT_EXPORT int weft_server_workers(const struct weft_server *server);
/** The number of the server that this rank is, -1: none. */
WEFT_EXPORT int weft_server_index(const struct weft_server *server);

/* ---- workers ---- */

/**
 * Announces that a layer's gradient (model) is there, which is pushed as soon as the rest of the
 * step allows it. Until the layer has been waited for, its tensors and its gradients belong to the
 * object. The first announcement after a step begins the next one; of OSP it waits for the second
 * stage of the step before, where that is not over.
 * @param layer of the model, from 0; every layer once a step, in any order (late to early is what
 *        servers expect: they merge in that order).
 * @return WEFT_OK; WEFT_ERR_INVALID (no such layer); WEFT_ERR_STATE (it has been announced in this
 *         step; or all have been, and one has not been waited for; or this rank is no worker);
 *         WEFT_ERR_COMPUTE (the gradient has NaNs or infinities: the text says how many and in
 *         which tensor; nothing has been announced, and it may be mended and announced again);
 *         WEFT_ERR_TIMEOUT (OSP: as a wait); what the object has failed with, from then on always.
 */
WEFT_EXPORT int weft_server_ready(struct weft_server *server, size_t layer);

/** Announces that a layer has no gradient (model) in this step: nothing is pushed for it, and it is
 *  pulled as ever. With BSP and OSP its gradient counts as zero; else, and of models, as none. Else
 *  as weft_server_ready(). */
WEFT_EXPORT int weft_server_absent(struct weft_server *server, size_t layer);

/**
 * Waits until a layer's tensors hold what the next step needs: what was pulled, or with OSP, of a
 * layer that is late, what is predicted (which does not wait). Who waits for the last one ends the
 * step. Between steps it returns at once.
 * @return WEFT_OK; WEFT_ERR_INVALID (no such layer); WEFT_ERR_STATE (it has not been announced);
 *         WEFT_ERR_TIMEOUT (deadline_ns: the text says for whom it waits); WEFT_ERR_PEER and
 *         others: what the object has failed with, from then on always.
 */
WEFT_EXPORT int weft_server_wait(struct weft_server *server, size_t layer);

/**
 * A whole step: announces all layers that have not been, the last one first, and waits for all.
 * @param result may be NULL.
 * @return as weft_server_ready() and weft_server_wait(). A model without layers: WEFT_OK, a step
 *         has been taken.
 */
WEFT_EXPORT int weft_server_step(struct weft_server *server, struct weft_server_result *result);

/** A step in which nothing is pushed but for layers that have been announced: the others are
 *  absent. With ASP, R2SP it brings the parameters as they are; a step it is all the same, for
 *  which others may wait by their synchronisation model. */
WEFT_EXPORT int weft_server_pull(struct weft_server *server, struct weft_server_result *result);

/**
 * OSP: waits for the second stage of the last step, and writes what it has brought to the tensors:
 * all workers then have the same model, that of the servers. Between steps; before an evaluation,
 * a checkpoint, at the end of a training. Else it returns at once. It is not a step.
 * @return as weft_server_wait().
 */
WEFT_EXPORT int weft_server_correct(struct weft_server *server);

/** The loss of an epoch, or of some steps, for Algorithm 1 of OSP: counts from the next step on, as
 *  the weighted mean of what the workers have told last. Until all have told one, nothing is late.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, not finite, below 0, above 1e300). */
WEFT_EXPORT int weft_server_tell_loss(struct weft_server *server, double loss);

/** The rate from the next step on. Of BSP and OSP the servers take that of the lowest worker which
 *  takes part. @return WEFT_OK; WEFT_ERR_INVALID (NULL, not above 0, above 1e300);
 *  WEFT_ERR_STATE (in a step). */
WEFT_EXPORT int weft_server_set_rate(struct weft_server *server, double rate);

/** The step under way, or the next one: how many have ended. 0 if @p server is NULL. */
WEFT_EXPORT uint64_t weft_server_next(const struct weft_server *server);

/** How many updates are in the parameters of a layer, between steps: of a late layer (OSP), those
 *  that are not predicted. 0 if there is no such layer. */
WEFT_EXPORT uint64_t weft_server_layer_version(const struct weft_server *server, size_t layer);

/** Whether a layer is late in the step under way, or in the next one, as far as that is known: 1 or
 *  0. */
WEFT_EXPORT int weft_server_layer_late(struct weft_server *server, size_t layer);

/** What the last step that has ended was. All is 0 if there has been none.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_server_get_result(const struct weft_server *server,
                                       struct weft_server_result *result);

/** What Algorithm 1 has decided. Between steps, after the second stage of the last one: else what
 *  is known of the step before. @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_server_get_tuning(const struct weft_server *server,
                                       struct weft_osp_tuning *tuning);

/* ---- servers ---- */

/**
 * Waits until all workers have destroyed theirs, or the object has failed. Of a rank that is a
 * server alone; drives the engine if nobody else does. Sleeps while nobody pushes.
 * @param timeout_ns WEFT_NEVER, or when to return WEFT_IN_PROGRESS.
 * @return WEFT_OK; WEFT_IN_PROGRESS; WEFT_ERR_STATE (this rank is a worker); what the object has
 *         failed with.
 */
WEFT_EXPORT int weft_server_serve(struct weft_server *server, uint64_t timeout_ns);

/* ---- both ---- */

/** What this rank has counted so far.
 *  @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size). */
WEFT_EXPORT int weft_server_get_stats(const struct weft_server *server,
                                      struct weft_server_stats *stats);

/**
 * The state for a checkpoint. Of a worker between steps, with OSP after waiting for the second
 * stage of its last step; of a server when no worker is in a step: the application sees to that (a
 * barrier before, and one behind). With OSP workers call it before that barrier as well, so that
 * their second stages are over. What is measured starts anew with who goes on from it: goodput and
 * times (OSP), intervals between pushes (DSSP); a rate that was set is to be set again.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, or the struct_size); WEFT_ERR_STATE (in a step; on a
 *         server: a worker is in one, and has not ended it in deadline_ns); WEFT_ERR_MEMORY; of a
 *         worker with OSP as weft_server_wait().
 */
WEFT_EXPORT int weft_server_get_state(struct weft_server *server, struct weft_server_state *state);

/**
 * Fails it on all ranks, if nothing has before: this rank cannot go on. Whoever is in a step, or
 * begins one, gets an error: @p status here, WEFT_ERR_PEER on the others, with this rank's number
 * and the text. From any thread, does not block.
 * @param status an error (below 0).
 * @param text copied; NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_server_fail(struct weft_server *server, int status, const char *text);

/**
 * Frees it. A worker waits for the end of its last step, second stage included (leave_ns), and
 * takes part in no further one: the others go on without it. With BSP and OSP the weights of those
 * that are left count alone from then on; SSP and DSSP do not wait for it; R2SP leaves its turn
 * out; with ASP and its relatives the share of each, and momentum, stay as for all workers. A step
 * of which only some layers have been announced fails. A server serves on, by its helper or when
 * its context is driven, until all workers have left. One that has failed blocks as
 * weft_run_destroy() does. NULL is accepted.
 * @return WEFT_OK, or what it has failed with; WEFT_ERR_STATE (layers of the step under way had not
 *         been announced: the text names one). It is freed in any case.
 */
WEFT_EXPORT int weft_server_destroy(struct weft_server *server);

#ifdef __cplusplus
}
#endif

#endif
