/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Runs and series: executions of plans on a context.
 *
 * A run is created once and started many times. Every run and every series is an *object*: objects
 * are created in the same order on all ranks of a context, and their number in that order is how
 * messages find them. Functions on one run are called by one thread at a time, weft_run_fire(),
 * weft_run_wait_node(), weft_run_cancel() and weft_run_report() by any.
 */
#ifndef WEFT_RUN_H
#define WEFT_RUN_H

#include <weft/context.h>
#include <weft/memory.h>
#include <weft/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_run;
struct weft_series;
struct weft_object;

/** How messages between slots of devices go. */
typedef enum weft_nccl {
    /** As the transport carries them. */
    WEFT_NCCL_NONE,
    /** Over a communicator of NCCL. It executes messages in the order of issue, so all ranks issue
     *  them in one order, which they compute when the run is created; a plan whose messages wait
     *  for each other in a circle is refused. Each version is agreed on before it issues anything
     *  (four control messages a rank, over the context's transport), so runs may be started in
     *  different orders on different ranks. Messages of which it shows only in the run whether, how
     *  large or when they are sent (after choices, events of the application, with counts that are
     *  values) are agreed on one by one, between their two ranks. */
    WEFT_NCCL_KNOWN,
    /** Over NCCL; all messages are agreed on between their two ranks: three control messages for
     *  those that both have reached. For plans whose peers are bound to other ranks from run to
     *  run (weft_run_bind_peers()). Series are always so. */
    WEFT_NCCL_AGREED,
    /** As WEFT_NCCL_KNOWN, and the caller knows that nothing has to be agreed on: all ranks start
     *  the versions of all such runs in one order, none needs a later one to end, and nothing else
     *  of their contexts goes over NCCL meanwhile. */
    WEFT_NCCL_IN_ORDER
} weft_nccl_t;

/** The settings of a run. Members that are 0 mean their defaults. */
struct weft_run_config {
    size_t struct_size;
    /** 1: the plan has no sends, receives and signals on any rank, and the run is no object: it may
     *  be created on some ranks only. */
    int local_only;
    /** Fails a run with WEFT_ERR_TIMEOUT so many nanoseconds after its start. Default:
     *  WEFT_NEVER. */
    uint64_t deadline_ns;
    /** Called by the thread that drives the engine when a run has ended, before weft_run_wait() and
     *  weft_run_test() say so to others; must not block, may start other runs, and may destroy runs
     *  of the context, this one included. NULL: none. */
    void (*ended)(void *user, struct weft_run *run, int status);
    void *user;
    /** The object (weft/object.h) of the same context that the run is part of: it fails with it,
     *  and its number is one of the object's. NULL: none. */
    struct weft_object *object;
    /** 1: versions may be started in any order, each once, by weft_run_start_version(): one run
     *  serves whoever asks, the version being one of theirs. What comes for versions that have not
     *  been started is kept until the run is destroyed. The plan has no events of channels. */
    int unordered;
    /** Told of every signal that arrives for the run, on any channel, before its events are fired
     *  by it, by the thread that drives the engine; also of what came before the run was created,
     *  while it is. Must not block; may start runs. A signal may come more than once. NULL:
     *  none. */
    void (*signalled)(void *user, struct weft_run *run, int from, uint32_t channel,
                      uint64_t version);
    /** 1: the run is one of the context's sequence (below): it is no object of its own, so that it
     *  may be created and destroyed on some ranks only. The plan has no events of channels; with
     *  `object`, `local_only`, `unordered` and `signalled` it is WEFT_ERR_INVALID. */
    int sequence;
    /** The same on all ranks. If it is not WEFT_NCCL_NONE, creating the run is collective and
     *  blocks: all ranks create it, the plan of each having messages or not, or none has it. Not
     *  with `local_only` and `sequence`. Before a failure of a version ends the communicator, on
     *  all ranks: such a run cannot be started again (WEFT_ERR_STATE). */
    weft_nccl_t nccl;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_run_config_init_sized(struct weft_run_config *config, size_t size);
#define weft_run_config_init(config) weft_run_config_init_sized((config), sizeof *(config))

/**
 * Creates a run of @p plan. Collective in the sense above, but does not communicate or block. The
 * run holds a reference to the plan. All memory that the run will need is allocated here.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_run_create(struct weft_run **run, struct weft_context *context,
                                struct weft_plan *plan, const struct weft_run_config *config);

/**
 * Destroys a run. An unfinished run is cancelled first; blocks until the transport has given its
 * buffers back: a send over MPI comes back once its receiver has driven its context. NULL is
 * accepted.
 *
 * From a callback `ended` of a run of the same context it does not block: the run is invalid when
 * the callback returns, and its memory goes when nobody is in it any more. So a run may be given
 * back by its own callback, in which case no thread may wait for it, test it or ask it anything
 * after its start. The callback of a run that is destroyed unfinished is called, with
 * WEFT_ERR_CANCELLED, and may destroy it as ever. Buffers of a run that a callback destroys
 * unfinished, or with computations pending, are borrowed until they have ended.
 */
WEFT_EXPORT void weft_run_destroy(struct weft_run *run);

/**
 * Binds a slot of the user to contiguous memory. Borrowed until the run has ended; stays bound for
 * the starts to come. An INPUT slot may be bound so, too: it is not written.
 * @param data NULL is allowed for slots of no elements.
 * @param count what the slot has; in elements of @p dtype, which is the slot's.
 * @return WEFT_OK; WEFT_ERR_INVALID (no such slot, scratch, another count or datatype than the
 *         slot's, NULL: the text names the slot and what was expected); WEFT_ERR_STATE (the run is
 *         active).
 */
WEFT_EXPORT int weft_run_bind(struct weft_run *run, weft_slot_t slot, void *data, size_t count,
                              weft_dtype_t dtype);

/** As weft_run_bind(), of an INPUT slot: the memory is only read. Other slots: WEFT_ERR_INVALID. */
WEFT_EXPORT int weft_run_bind_input(struct weft_run *run, weft_slot_t slot, const void *data,
                                    size_t count, weft_dtype_t dtype);

/** As weft_run_bind() and weft_run_bind_input(), by the slot's name; WEFT_ERR_NOT_FOUND if there is
 *  no such slot. */
WEFT_EXPORT int weft_run_bind_name(struct weft_run *run, const char *slot, void *data, size_t count,
                                   weft_dtype_t dtype);
WEFT_EXPORT int weft_run_bind_input_name(struct weft_run *run, const char *slot, const void *data,
                                         size_t count, weft_dtype_t dtype);

/**
 * Binds a slot to a list of pieces (the tensors of a model) of its datatype, whose counts add up to
 * the slot's. The list is copied, the memory of the pieces is borrowed as by weft_run_bind(). May
 * allocate.
 * @return as weft_run_bind(); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_run_bind_list(struct weft_run *run, weft_slot_t slot,
                                   const struct weft_piece *pieces, size_t piece_count,
                                   weft_dtype_t dtype);

/** A contiguous piece of memory that is only read. */
struct weft_input_piece {
    const void *data;
    /** Elements (of the slot's datatype). */
    size_t count;
};

/** As weft_run_bind_list(), of an INPUT slot: the pieces are only read. */
WEFT_EXPORT int weft_run_bind_input_list(struct weft_run *run, weft_slot_t slot,
                                         const struct weft_input_piece *pieces, size_t piece_count,
                                         weft_dtype_t dtype);

/**
 * Binds blocks that lie anywhere in one memory, as the collectives with counts have them: block i
 * is counts[i] elements from element displacements[i] of @p data. A plan does not know where they
 * lie, so it serves any displacements. Borrows and allocates as weft_run_bind_list().
 * @param slot a slot that has all blocks behind each other ("recv" of allgatherv); or what its
 *        slots are called before the number, if each block is one ("send" of alltoallv, whose
 *        blocks are the slots send.0, send.1 ...).
 * @param displacements NULL: behind each other. Blocks of no elements are not looked at.
 * @return as weft_run_bind_list(); WEFT_ERR_NOT_FOUND (there are no such slots); WEFT_ERR_INVALID
 *         (a count is not that of its slot, or blocks that are written overlap: the text names
 *         them).
 */
WEFT_EXPORT int weft_run_bind_blocks(struct weft_run *run, const char *slot, void *data,
                                     const size_t *counts, const size_t *displacements,
                                     size_t block_count, weft_dtype_t dtype);

/** As weft_run_bind_blocks(), of INPUT slots: the memory is only read, and blocks may overlap. */
WEFT_EXPORT int weft_run_bind_input_blocks(struct weft_run *run, const char *slot, const void *data,
                                           const size_t *counts, const size_t *displacements,
                                           size_t block_count, weft_dtype_t dtype);

/** Sets a value that no node produces, for the starts to come. At most its max. */
WEFT_EXPORT int weft_run_bind_value(struct weft_run *run, weft_value_t value, uint64_t number);

/**
 * Binds the ranks of the schedule to ranks of the context: ranks[i], i < plan size, or
 * WEFT_PEER_NONE. Copied. NULL: the identity (the default). The own entry must be the own rank:
 * a start looks at that of the identity, if the plan has sends, receives or signals. Two may be the
 * same rank if no two messages of the plan get the same peer and tag that way (WEFT_ERR_INVALID).
 * Allocates nothing.
 */
WEFT_EXPORT int weft_run_bind_peers(struct weft_run *run, const int *ranks);

/** Sets the deadline for the starts to come: nanoseconds from the start, as weft_run_config; 0 or
 *  WEFT_NEVER: none. WEFT_ERR_INVALID (WEFT_NS_NONE), WEFT_ERR_STATE (active). */
WEFT_EXPORT int weft_run_set_deadline(struct weft_run *run, uint64_t deadline_ns);

/** What is called when a version of a run has ended, as weft_run_config.ended. */
typedef void (*weft_ended_fn)(void *user, struct weft_run *run, int status);

/**
 * Sets what is called when a version has ended, for the starts to come, as weft_run_config.ended
 * and its `user`: a run that is kept serves one who waits and one who is to be told.
 * @param ended NULL: nothing is called.
 * @return WEFT_OK; WEFT_ERR_INVALID (@p run is NULL); WEFT_ERR_STATE (it is active, or of a
 *         series).
 */
WEFT_EXPORT int weft_run_set_ended(struct weft_run *run, weft_ended_fn ended, void *user);

/**
 * Starts the run with the next version (0, 1, 2 ...). Does not block and allocates nothing (local
 * signals beyond weft_local_config.eager_messages in flight excepted).
 * @return WEFT_OK; WEFT_ERR_STATE (active, or its memory not reclaimed yet); WEFT_ERR_INVALID (a
 *         user slot is not bound, or the ranks are not and the plan has more of them than the
 *         context or is of another rank).
 */
WEFT_EXPORT int weft_run_start(struct weft_run *run);

/** As weft_run_start() with a version of the caller's, larger than any before (but see
 *  weft_run_config.unordered). */
WEFT_EXPORT int weft_run_start_version(struct weft_run *run, uint64_t version);

/** Drives the engine a little. @return WEFT_IN_PROGRESS, or the status the run has ended with. */
WEFT_EXPORT int weft_run_test(struct weft_run *run);

/**
 * Waits until the run has ended, driving the engine if nobody else is. Blocking.
 * @param timeout_ns WEFT_NEVER, or when to return WEFT_IN_PROGRESS; the run goes on then. 0: at
 *        once. WEFT_NS_NONE: WEFT_ERR_INVALID.
 * @return the status the run has ended with: WEFT_OK; WEFT_ERR_TIMEOUT, WEFT_ERR_TRANSPORT,
 *         WEFT_ERR_TRUNCATED, WEFT_ERR_COMPUTE, WEFT_ERR_PEER, WEFT_ERR_CANCELLED, with
 *         weft_error_text() naming node, peer and plan. WEFT_ERR_STATE if it was never started.
 */
WEFT_EXPORT int weft_run_wait(struct weft_run *run, uint64_t timeout_ns);

/**
 * Waits until a join of the version under way has ended, while the rest of the graph goes on.
 * Drives the engine as weft_run_wait() does. From any thread, several at once, but not from
 * callbacks. If no version is under way, the one that ended last is meant. What precedes the join
 * in the graph has happened, and its memory is seen. The run must not be destroyed while a thread
 * waits.
 * @param node a join: one that follows what is to be waited for.
 * @param timeout_ns as weft_run_wait().
 * @return WEFT_OK: it has ended; WEFT_RETIRED: it never will; WEFT_IN_PROGRESS after @p timeout_ns;
 *         if the version fails, or has failed, its status and text, whatever has become of the
 *         join. WEFT_ERR_STATE if the run was never started, or in a callback; WEFT_ERR_INVALID:
 *         no join.
 */
WEFT_EXPORT int weft_run_wait_node(struct weft_run *run, weft_node_t node, uint64_t timeout_ns);

/** Start and wait. */
WEFT_EXPORT int weft_run_execute(struct weft_run *run);

/**
 * Fires an event of the active version. From any thread; does not block.
 * @return WEFT_OK: it fired; WEFT_RETIRED: another of its choice had, or it had been fired or
 *         retired; WEFT_ERR_STATE: the run is not active; WEFT_ERR_INVALID: no such event.
 */
WEFT_EXPORT int weft_run_fire(struct weft_run *run, weft_node_t event);

/** Cancels the active version: it ends with WEFT_ERR_CANCELLED, and so do its peers', with
 *  WEFT_ERR_PEER. WEFT_OK also if it had ended. */
WEFT_EXPORT int weft_run_cancel(struct weft_run *run);

/**
 * Tells the ranks to which the run sends, as it is bound now, that this rank starts no further
 * version: who starts the next one fails with WEFT_ERR_PEER, naming this rank, instead of waiting.
 * To be called before a run is destroyed that others may still start. Local, does not block.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL); WEFT_ERR_STATE (active, or of a series).
 */
WEFT_EXPORT int weft_run_quit(struct weft_run *run);

/**
 * After a failure: whether the transport has given back every buffer of the run. Drives the engine.
 * What a rank has been sent it gives back as it drives, which its own run need not be active for.
 * @return WEFT_OK: the run may be started again; WEFT_IN_PROGRESS: a send is still borrowed.
 */
WEFT_EXPORT int weft_run_reclaim(struct weft_run *run);

/**
 * The rank of the context whose message, or receive, the active version has waited for longest;
 * WEFT_PEER_NONE if it is not active or waits for none. Only from the callbacks of a run or series
 * of the context: others call weft_run_report().
 */
WEFT_EXPORT int weft_run_awaited(const struct weft_run *run);

/** The plan of a run, for its slots, values and name. Owned by the run. */
WEFT_EXPORT const struct weft_plan *weft_run_plan(const struct weft_run *run);

/** The version that is active or ended last; UINT64_MAX before the first start. */
WEFT_EXPORT uint64_t weft_run_version(const struct weft_run *run);

/** A value after the run has ended (or as bound). 0 if there is no such value. */
WEFT_EXPORT uint64_t weft_run_get_value(const struct weft_run *run, weft_value_t value);

/** The text of the failure the run ended with, "" if none. Owned by the run. */
WEFT_EXPORT const char *weft_run_error(const struct weft_run *run);

/**
 * What each unfinished node waits for, on which peer, since when: a text of lines that the caller
 * frees with weft_memory_free(). From any thread.
 */
WEFT_EXPORT int weft_run_report(struct weft_run *run, char **text);

/* ---- the sequence ---- */

/*
 * Every context has one object from its creation on, its *sequence*, for what the ranks do step by
 * step, each step with whatever plan it takes:
 *
 *     step                        0            1          2            3
 *     rank 0 starts a run of   allreduce    allreduce   broadcast   allreduce
 *     rank 1 starts a run of   allreduce    allreduce   broadcast   allreduce
 *     versions                    0            1          2            3
 *
 * The runs are created with weft_run_config.sequence 1. The version of a start is the number of the
 * step, whichever run it is: one larger than that of the start before, of any run of the sequence.
 * So the ranks have to start plans that belong together in the same order, and nothing else: which
 * runs a rank has made, when, and which it keeps for a later step, is its own affair. One run of
 * the sequence is active at a time on a rank (weft_run_start() is WEFT_ERR_STATE otherwise), and
 * one thread at a time starts them. A run that fails fails that step alone, on the ranks that are
 * in it: the others are as good as ever. What comes for a step to come is kept.
 *
 * Whoever uses the sequence of a context shares it with the collectives of weft/collectives.h,
 * whose calls are steps of it. Steps of the program's own are started when all requests of those
 * have ended: until then the next steps are theirs.
 */

/**
 * This rank fails the next step instead of starting a run: it has none, say, having found no memory
 * for it. All ranks of the context are told, so those that are in that step, or begin it later,
 * fail with WEFT_ERR_PEER and a text that names this rank and has @p text; a rank that
 * needed nothing of this one may have ended it. The step is over here: the next start is the step
 * after it. Local, does not block; also in the callback `ended` of the step before.
 * @param status an error (below 0).
 * @param text copied, some 400 bytes of it. NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, no error); WEFT_ERR_STATE (a run of the sequence is
 *         active).
 */
WEFT_EXPORT int weft_sequence_fail(struct weft_context *context, int status, const char *text);

/** The number of the next step; 0 if @p context is NULL. For the thread that starts its runs. */
WEFT_EXPORT uint64_t weft_sequence_next(const struct weft_context *context);

/* ---- series ---- */

/** The bindings of one version, as the series' callback chooses them. */
struct weft_series_arm {
    /** Which of the series' plans runs (0 at the call). */
    size_t plan;
    /** In: the run of that plan may be bound with weft_run_bind*() on weft_series_get_run(). */
    uint64_t version;
    /** With WEFT_IN_PROGRESS: ask again after so many nanoseconds. WEFT_NEVER at the call:
     *  only when poked. WEFT_NS_NONE fails the series with WEFT_ERR_INVALID. */
    uint64_t retry_ns;
};

/** The settings of a series. Members that are 0 mean their defaults. */
struct weft_series_config {
    size_t struct_size;
    /** The plans that versions may use; references are taken. At least one. */
    struct weft_plan *const *plans;
    size_t plan_count;
    /** The first version: a plain number. */
    uint64_t first;
    /**
     * Asked for the bindings of a version before it starts, by the thread that drives the engine;
     * must not block or allocate. Binds with weft_run_bind*() on weft_series_get_run(series, plan).
     * @return WEFT_OK: start; WEFT_IN_PROGRESS: not yet, ask again after weft_series_poke() or
     *         arm->retry_ns; WEFT_RETIRED: the series ends before this version; an error fails it,
     *         and weft_series_start() and weft_series_wait() tell the text of weft_error_set().
     */
    int (*arm)(void *user, struct weft_series *series, struct weft_series_arm *arm);
    /** Told that a version has ended, by the same thread, before weft_series_wait() returns for it.
     *  NULL: none. */
    void (*ended)(void *user, struct weft_series *series, uint64_t version, int status);
    /** Told of every signal that arrives for the series, on any channel, before the events of the
     *  version under way are fired by it; by the same thread. Also before the series is started,
     *  and, as soon as it is created, of what came earlier (the latest of each rank and channel).
     *  NULL: none. */
    void (*signalled)(void *user, struct weft_series *series, int from, uint32_t channel,
                      uint64_t version);
    /** Called by the same thread after weft_series_poke(), before `arm`. NULL: none. */
    void (*poked)(void *user, struct weft_series *series);
    void *user;
    /** As weft_run_config.object. */
    struct weft_object *object;
    /** As weft_run_config.nccl; what is not WEFT_NCCL_NONE is WEFT_NCCL_AGREED. Ends of messages
     *  meet by their tags: those of one tag are all in memory of devices, on all ranks and in all
     *  plans, or all in the host's. */
    weft_nccl_t nccl;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_series_config_init_sized(struct weft_series_config *config, size_t size);
#define weft_series_config_init(config) weft_series_config_init_sized((config), sizeof *(config))

/**
 * Creates a series: an object whose versions the engine starts one after the other, each as soon as
 * the one before has ended, and each with the bindings that `arm` chooses. A version is held by its
 * events: they are fired by weft_series_fire() or by signals. Needs helper progress (WEFT_ERR_STATE
 * otherwise), so that versions run while the application computes.
 */
WEFT_EXPORT int weft_series_create(struct weft_series **series, struct weft_context *context,
                                   const struct weft_series_config *config);

/** Ends it (a version under way is cancelled) and frees it; blocks as weft_run_destroy() does. NULL
 *  is accepted. */
WEFT_EXPORT void weft_series_destroy(struct weft_series *series);

/** The run that executes versions with plan @p plan, 0 to plan_count - 1; owned by the series.
 *  @return NULL, with an error text, where there is none. */
WEFT_EXPORT struct weft_run *weft_series_get_run(struct weft_series *series, size_t plan);

/**
 * Starts the first version: calls `arm`, which is called from now on. Does not block.
 * @return WEFT_ERR_STATE if it has been started before; what it has failed with if it has, by its
 *         object also before its start; an error if the first version cannot begin: what `arm` has
 *         returned, WEFT_ERR_INVALID or WEFT_ERR_STATE for a plan that cannot be started (as
 *         weft_run_start()). The text says why.
 */
WEFT_EXPORT int weft_series_start(struct weft_series *series);

/** As weft_series_start(), with another first version than that of the configuration: what the
 *  ranks have agreed on once all of them had made theirs. */
WEFT_EXPORT int weft_series_start_version(struct weft_series *series, uint64_t first);

/** As weft_run_fire(), if @p version is under way: WEFT_RETIRED if it has gone by, WEFT_IN_PROGRESS
 *  if it is still to come. */
WEFT_EXPORT int weft_series_fire(struct weft_series *series, uint64_t version, weft_node_t event);

/**
 * Asks for a call of `poked`, and of `arm` if it has said WEFT_IN_PROGRESS. From any thread, the
 * callbacks included; does not block. The calls may come later, once for several pokes.
 */
WEFT_EXPORT int weft_series_poke(struct weft_series *series);

/**
 * Signals @p version to @p channel of the same series on @p rank of the context, beside what its
 * schedules signal. Only from the callbacks of a series of the context. Does not block.
 */
WEFT_EXPORT int weft_series_signal(struct weft_series *series, int rank, uint32_t channel,
                                   uint64_t version);

/** The version under way, or the next one. */
WEFT_EXPORT uint64_t weft_series_version(const struct weft_series *series);

/**
 * Waits until @p version has ended. From any thread, several at once.
 * @return its status; WEFT_IN_PROGRESS after @p timeout_ns; if the series ended before that
 *         version, the status it ended with, or WEFT_ERR_STATE if `arm` had said WEFT_RETIRED. The
 *         text of an error says what failed.
 */
WEFT_EXPORT int weft_series_wait(struct weft_series *series, uint64_t version, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
