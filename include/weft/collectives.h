/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Collectives in one line, blocking and not: for those who want no graph.
 *
 *     weft_allreduce(context, send, recv, count, WEFT_F32, weft_op_builtin(WEFT_SUM));
 *
 *     struct weft_request *request;
 *     weft_iallreduce(context, send, recv, count, WEFT_F32, weft_op_builtin(WEFT_SUM), &request);
 *     ... compute ...
 *     weft_request_wait(request, WEFT_NEVER);
 *     weft_request_destroy(request);
 *
 * They are a convenience. Each call is the template of its name (docs/templates.md) with the
 * algorithm that the cost model chooses, executed. A plan of one's own (weft/template.h,
 * weft/schedule.h) may run beside others, has events, takes lists of tensors, can be checked and
 * simulated, and is there before the first step.
 *
 * What a call needs is built at the first call with its arguments (all but the addresses of the
 * buffers), and kept for the calls to come: a plan and a run of it, with its scratch. What is kept
 * is bounded (weft_collectives_config), and what has not been used for longest goes first. It is a
 * rank's own affair: ranks may have other bounds, and one may find what another has to build.
 *
 * Rules for all of them:
 *
 * - All ranks of the context call the same functions in the same order, with the same `count`,
 *   `dtype`, `op` and `root`. The calls are steps of the context's sequence (weft/run.h), so they
 *   share that order with runs of it; other runs, series and objects of the context are free of it.
 *   In particular no call creates an object.
 * - Blocking or not is a rank's own affair, too: weft_allreduce() on one rank and weft_iallreduce()
 *   on another are the same call, which MPI does not have.
 * - A blocking call returns when this rank's part is done: `recv` has its result, and `send` may
 *   be written again. Others may be in it still; only weft_barrier() says that all have come.
 * - A call that does not block (weft_i...) returns a request, which ends when that is so. Until it
 *   has ended the buffers are borrowed: `recv` is not touched, `send` not written. Lists of counts
 *   and of displacements are copied, and an operation is held, so both may go at once.
 * - The calls of a context are executed in their order, one after the other: one that was made
 *   before goes on beside what the program computes, not beside the next one. A blocking call waits
 *   for all before it. So requests of one context end in the order of their calls.
 * - A request goes on while a thread drives the context: its helper (weft_context_config.progress),
 *   or whoever is in a call that waits, tests or calls weft_context_progress().
 * - Threads: calls on one context from several threads are made one after the other, so that one
 *   that does not block waits for another thread's that does; the order, which has to be that of
 *   all ranks, is the program's affair. Not from functions that weft calls (of operations,
 *   callbacks).
 * - `count` is in elements of `dtype`, which may be opaque. NULL is a buffer where there are no
 *   elements. Buffers do not overlap. A buffer that only the root has is not looked at elsewhere.
 * - WEFT_IN_PLACE stands for `send` (in weft_scatter() for `recv`), as MPI_IN_PLACE does in MPI.
 * - `op` is a built-in operation or the user's (weft_op_create()). What is kept holds a reference
 *   to it, so it may be destroyed at once; its functions are not called by later calls with
 *   another.
 *   Operations that do not commute are applied in the order of ranks.
 *
 * They return
 *
 *     WEFT_OK
 *     WEFT_ERR_INVALID      an argument: the text names it, its value, and what was expected
 *     WEFT_ERR_MEMORY       no memory for what is to be kept
 *     WEFT_ERR_STATE        a run of the sequence that is none of theirs is active; the thread is
 *                           in a call or a callback of the context
 *     WEFT_ERR_PEER ...     as weft_run_wait()
 *
 * the last of which is, of calls that do not block, what weft_request_wait() returns. If they
 * return an error themselves there is no request, and *request is as it was.
 *
 * A call that fails fails alone: a rank that returns an error before it has sent anything, by an
 * argument or for want of memory, has told the others, whose calls of that number fail with
 * WEFT_ERR_PEER and its rank and text, unless they have needed nothing of it. The next call is the
 * next one on all ranks, also behind requests that have not ended. Exceptions: `context` is NULL,
 * and WEFT_ERR_STATE, which is no call.
 * Ranks that call different functions, or with different `count` or `root`, may wait for each other
 * for ever, as in MPI: a deadline (weft_collectives_config) ends that, WEFT_STALL tells of it.
 * After an error the contents of `recv` are undefined; over MPI, a message of more than 8 KiB that
 * was under way may use the buffers until weft_context_destroy().
 */
#ifndef WEFT_COLLECTIVES_H
#define WEFT_COLLECTIVES_H

#include <weft/context.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** In place of a buffer: what this rank contributes is in the other one, where its result, or its
 *  part of the result, will be. */
#define WEFT_IN_PLACE ((void *)~(uintptr_t)0)

/**
 * This rank fails its next call instead of making it: the program has no memory for a buffer of it,
 * say. In its turn, behind calls that do not block and have not ended, it is as a call that has
 * failed here: the others fail in theirs with WEFT_ERR_PEER and a text that names this rank and has
 * @p text, or have not needed this rank; and all are in step for the calls after it. Does not
 * block. As weft_sequence_fail(), which knows nothing of requests. Threads as all calls.
 * @param status an error (below 0).
 * @param text copied. NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, no error); WEFT_ERR_STATE (a run of the sequence that is
 *         none of theirs is active; the thread is in a call or a callback of the context).
 */
WEFT_EXPORT int weft_collectives_fail(struct weft_context *context, int status, const char *text);

/* ---- what is kept ---- */

/** weft_collectives_config.plans: nothing is kept, every call builds what it needs. */
#define WEFT_PLANS_NONE SIZE_MAX

/** Settings of the calls of one rank. Members that are 0 mean their defaults. */
struct weft_collectives_config {
    size_t struct_size;
    /** So many plans are kept at most, those of requests that have not ended not counted, or
     *  WEFT_PLANS_NONE. Default: 64. */
    size_t plans;
    /** So many bytes, of plans with their runs and scratch, are kept at most; the one that was used
     *  last is kept whatever it takes. Default: 64 MiB. */
    size_t bytes;
    /** A call that takes longer, in nanoseconds, fails with WEFT_ERR_TIMEOUT, and on the ranks that
     *  are in it with WEFT_ERR_PEER. It counts from when the calls before it are over, not from
     *  when it was made. Default: WEFT_NEVER. */
    uint64_t deadline_ns;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_collectives_config_init_sized(struct weft_collectives_config *config,
                                                    size_t size);
#define weft_collectives_config_init(config)                                                       \
    weft_collectives_config_init_sized((config), sizeof *(config))

/**
 * Sets what the calls on a context keep, from now on; what is above the new bounds goes at once.
 * Requests that have not ended keep their deadline.
 * Local: no call of the sequence, and ranks may differ. Waits for a call of another thread.
 * @param config NULL for defaults.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY; WEFT_ERR_STATE (from within a call).
 */
WEFT_EXPORT int weft_collectives_configure(struct weft_context *context,
                                           const struct weft_collectives_config *config);

/** What the calls on a context have done and keep. */
struct weft_collectives_stats {
    /** Set by the caller. */
    size_t struct_size;
    /** Calls, those that failed included. */
    uint64_t calls;
    /** Plans that were built, and of these the ones that had to go again. Calls of the same
     *  arguments that are made before the first of them has ended need one each. */
    uint64_t built;
    uint64_t dropped;
    /** What is kept now: plans, and the bytes of them. What requests use that have not ended is not
     *  among it. */
    size_t plans;
    size_t bytes;
};

/** Local; waits for a call of another thread. @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_STATE
 *  (from within a call). */
WEFT_EXPORT int weft_collectives_get_stats(struct weft_context *context,
                                           struct weft_collectives_stats *stats);

/* ---- the calls ---- */

/** No rank returns before all have called. */
WEFT_EXPORT int weft_barrier(struct weft_context *context);

/**
 * The root's elements reach all ranks.
 * @param buffer `count` elements: the root's reach all other ranks.
 */
WEFT_EXPORT int weft_broadcast(struct weft_context *context, void *buffer, size_t count,
                               weft_dtype_t dtype, int root);

/**
 * The contributions of all ranks combined, on the root.
 * @param send `count` elements; WEFT_IN_PLACE on the root: the root's are in its `recv`.
 * @param recv on the root: `count` elements, `send` of all ranks combined.
 */
WEFT_EXPORT int weft_reduce(struct weft_context *context, const void *send, void *recv,
                            size_t count, weft_dtype_t dtype, const struct weft_op *op, int root);

/**
 * The contributions of all ranks combined, on every rank.
 * @param send `count` elements, or WEFT_IN_PLACE on all ranks: they are in `recv`.
 * @param recv `count` elements: `send` of all ranks combined.
 */
WEFT_EXPORT int weft_allreduce(struct weft_context *context, const void *send, void *recv,
                               size_t count, weft_dtype_t dtype, const struct weft_op *op);

/**
 * The contributions of all ranks combined, a block of the result on each rank.
 * @param send P blocks of `count` elements, for P ranks; or WEFT_IN_PLACE on all ranks: they are in
 *        `recv`, which has room for them then.
 * @param recv `count` elements: on rank r block r of `send` of all ranks combined.
 */
WEFT_EXPORT int weft_reduce_scatter(struct weft_context *context, const void *send, void *recv,
                                    size_t count, weft_dtype_t dtype, const struct weft_op *op);

/**
 * The blocks of all ranks, on every rank.
 * @param send `count` elements; or WEFT_IN_PLACE on all ranks: they are block r of `recv` on
 *        rank r.
 * @param recv P blocks of `count` elements: block r is `send` of rank r.
 */
WEFT_EXPORT int weft_allgather(struct weft_context *context, const void *send, void *recv,
                               size_t count, weft_dtype_t dtype);

/**
 * The blocks of all ranks, on the root.
 * @param send `count` elements; WEFT_IN_PLACE on the root: they are its block of `recv`.
 * @param recv on the root: P blocks of `count` elements, of which block r is `send` of rank r.
 */
WEFT_EXPORT int weft_gather(struct weft_context *context, const void *send, void *recv,
                            size_t count, weft_dtype_t dtype, int root);

/**
 * The blocks of the root, one for each rank.
 * @param send on the root: P blocks of `count` elements.
 * @param recv `count` elements: on rank r block r of the root's `send`. WEFT_IN_PLACE on the root:
 *        its block stays where it is.
 */
WEFT_EXPORT int weft_scatter(struct weft_context *context, const void *send, void *recv,
                             size_t count, weft_dtype_t dtype, int root);

/**
 * A block from every rank to every rank.
 * @param send P blocks of `count` elements; or WEFT_IN_PLACE on all ranks: they are in `recv`.
 * @param recv P blocks of `count` elements: block s on rank r is block r of `send` of rank s.
 */
WEFT_EXPORT int weft_alltoall(struct weft_context *context, const void *send, void *recv,
                              size_t count, weft_dtype_t dtype);

/**
 * The elements of both neighbours on a ring.
 * @param send `count` elements.
 * @param recv 2 `count` elements: `send` of the rank before, then of the rank behind, on a ring.
 */
WEFT_EXPORT int weft_neighbour_exchange(struct weft_context *context, const void *send, void *recv,
                                        size_t count, weft_dtype_t dtype);

/**
 * The contributions of this rank and all before it, combined.
 * @param send `count` elements, or WEFT_IN_PLACE on all ranks: they are in `recv`.
 * @param recv `count` elements: on rank r `send` of ranks 0 .. r combined, in their order.
 */
WEFT_EXPORT int weft_scan(struct weft_context *context, const void *send, void *recv, size_t count,
                          weft_dtype_t dtype, const struct weft_op *op);

/**
 * The contributions of all ranks before this one, combined.
 * @param send `count` elements, or WEFT_IN_PLACE on all ranks: they are in `recv`.
 * @param recv `count` elements: on rank r > 0 `send` of ranks 0 .. r - 1 combined, in their order.
 *        On rank 0 it is not looked at, unless `send` is WEFT_IN_PLACE, and never written.
 */
WEFT_EXPORT int weft_exscan(struct weft_context *context, const void *send, void *recv,
                            size_t count, weft_dtype_t dtype, const struct weft_op *op);

/* ---- blocks with counts of their own ---- */

/*
 * `counts` has a number for each rank: the elements of its block, 0 allowed. Where the blocks lie
 * say `displacements`, one for each rank: the element of the buffer that the block begins with.
 * NULL: they lie behind each other. Blocks that are written do not overlap. The lists are read
 * during the call; another list is another plan to be kept, other displacements are not.
 */

/**
 * The blocks of all ranks, on every rank, each with a count of its own.
 * @param send counts[r] elements on rank r; or WEFT_IN_PLACE on all ranks: they are its block of
 *        `recv`.
 * @param recv all blocks: block r is `send` of rank r.
 * @param counts the same on all ranks.
 */
WEFT_EXPORT int weft_allgatherv(struct weft_context *context, const void *send, void *recv,
                                const size_t *counts, const size_t *displacements,
                                weft_dtype_t dtype);

/**
 * The blocks of all ranks, on the root, each with a count of its own.
 * @param send `send_count` elements; WEFT_IN_PLACE on the root: they are its block of `recv`, and
 *        `send_count` is not looked at.
 * @param recv on the root: all blocks, of which block r is `send` of rank r.
 * @param counts on the root: counts[r] is `send_count` of rank r.
 */
WEFT_EXPORT int weft_gatherv(struct weft_context *context, const void *send, size_t send_count,
                             void *recv, const size_t *counts, const size_t *displacements,
                             weft_dtype_t dtype, int root);

/**
 * The blocks of the root, one for each rank, each with a count of its own.
 * @param send on the root: all blocks, which may overlap.
 * @param counts on the root: counts[r] is `recv_count` of rank r.
 * @param recv `recv_count` elements: on rank r block r of the root's `send`. WEFT_IN_PLACE on the
 *        root: its block stays where it is, and `recv_count` is not looked at.
 */
WEFT_EXPORT int weft_scatterv(struct weft_context *context, const void *send, const size_t *counts,
                              const size_t *displacements, void *recv, size_t recv_count,
                              weft_dtype_t dtype, int root);

/**
 * A block from every rank to every rank, with a count for each pair.
 * @param send a block for each rank; or WEFT_IN_PLACE on all ranks: they are in `recv`, as
 *        `recv_counts` and `recv_displacements` say, and what is said of `send` is not looked at.
 * @param send_counts send_counts[r] elements go to rank r, whose `recv_counts` has the same
 *        number for this rank.
 * @param recv a block of each rank: block s on rank r is block r of `send` of rank s.
 */
WEFT_EXPORT int weft_alltoallv(struct weft_context *context, const void *send,
                               const size_t *send_counts, const size_t *send_displacements,
                               void *recv, const size_t *recv_counts,
                               const size_t *recv_displacements, weft_dtype_t dtype);

/**
 * The contributions of all ranks combined, on each rank a block with a count of its own.
 * @param send a block for each rank, behind each other; or WEFT_IN_PLACE on all ranks: they are in
 *        `recv`, which has room for them then.
 * @param recv counts[r] elements on rank r: block r of `send` of all ranks combined.
 * @param counts the same on all ranks.
 */
WEFT_EXPORT int weft_reduce_scatterv(struct weft_context *context, const void *send, void *recv,
                                     const size_t *counts, weft_dtype_t dtype,
                                     const struct weft_op *op);

/* ---- calls that do not block ---- */

/** A call that may not have ended. */
struct weft_request;

/**
 * As the functions of their names without the `i`, with the same arguments, but does not wait.
 * If calls before it are under way it begins when they are over, whoever drives then. Allocates
 * where a blocking call would, and where more are under way than there were before.
 * @param request set to a request, which is to be destroyed with weft_request_destroy(); not on
 *        errors.
 * @return WEFT_OK: what becomes of it the request will say; WEFT_ERR_INVALID, WEFT_ERR_MEMORY,
 *         WEFT_ERR_STATE as above.
 */
WEFT_EXPORT int weft_ibarrier(struct weft_context *context, struct weft_request **request);
WEFT_EXPORT int weft_ibroadcast(struct weft_context *context, void *buffer, size_t count,
                                weft_dtype_t dtype, int root, struct weft_request **request);
WEFT_EXPORT int weft_ireduce(struct weft_context *context, const void *send, void *recv,
                             size_t count, weft_dtype_t dtype, const struct weft_op *op, int root,
                             struct weft_request **request);
WEFT_EXPORT int weft_iallreduce(struct weft_context *context, const void *send, void *recv,
                                size_t count, weft_dtype_t dtype, const struct weft_op *op,
                                struct weft_request **request);
WEFT_EXPORT int weft_ireduce_scatter(struct weft_context *context, const void *send, void *recv,
                                     size_t count, weft_dtype_t dtype, const struct weft_op *op,
                                     struct weft_request **request);
WEFT_EXPORT int weft_iallgather(struct weft_context *context, const void *send, void *recv,
                                size_t count, weft_dtype_t dtype, struct weft_request **request);
WEFT_EXPORT int weft_igather(struct weft_context *context, const void *send, void *recv,
                             size_t count, weft_dtype_t dtype, int root,
                             struct weft_request **request);
WEFT_EXPORT int weft_iscatter(struct weft_context *context, const void *send, void *recv,
                              size_t count, weft_dtype_t dtype, int root,
                              struct weft_request **request);
WEFT_EXPORT int weft_ialltoall(struct weft_context *context, const void *send, void *recv,
                               size_t count, weft_dtype_t dtype, struct weft_request **request);
WEFT_EXPORT int weft_ineighbour_exchange(struct weft_context *context, const void *send, void *recv,
                                         size_t count, weft_dtype_t dtype,
                                         struct weft_request **request);
WEFT_EXPORT int weft_iscan(struct weft_context *context, const void *send, void *recv, size_t count,
                           weft_dtype_t dtype, const struct weft_op *op,
                           struct weft_request **request);
WEFT_EXPORT int weft_iexscan(struct weft_context *context, const void *send, void *recv,
                             size_t count, weft_dtype_t dtype, const struct weft_op *op,
                             struct weft_request **request);
WEFT_EXPORT int weft_iallgatherv(struct weft_context *context, const void *send, void *recv,
                                 const size_t *counts, const size_t *displacements,
                                 weft_dtype_t dtype, struct weft_request **request);
WEFT_EXPORT int weft_igatherv(struct weft_context *context, const void *send, size_t send_count,
                              void *recv, const size_t *counts, const size_t *displacements,
                              weft_dtype_t dtype, int root, struct weft_request **request);
WEFT_EXPORT int weft_iscatterv(struct weft_context *context, const void *send, const size_t *counts,
                               const size_t *displacements, void *recv, size_t recv_count,
                               weft_dtype_t dtype, int root, struct weft_request **request);
WEFT_EXPORT int weft_ialltoallv(struct weft_context *context, const void *send,
                                const size_t *send_counts, const size_t *send_displacements,
                                void *recv, const size_t *recv_counts,
                                const size_t *recv_displacements, weft_dtype_t dtype,
                                struct weft_request **request);
WEFT_EXPORT int weft_ireduce_scatterv(struct weft_context *context, const void *send, void *recv,
                                      const size_t *counts, weft_dtype_t dtype,
                                      const struct weft_op *op, struct weft_request **request);

/**
 * Drives the engine a little. From any thread, several at once, also again after the end.
 * @return WEFT_IN_PROGRESS, or the status the call has ended with, as weft_request_wait().
 */
WEFT_EXPORT int weft_request_test(struct weft_request *request);

/**
 * Waits until the call has ended, driving the engine if nobody else is: so those before it go on,
 * too. Blocking. From any thread, several at once, but not from callbacks (WEFT_ERR_STATE); also
 * again after the end.
 * @param timeout_ns as weft_run_wait().
 * @return WEFT_IN_PROGRESS after @p timeout_ns; the status the call has ended with: WEFT_OK, or an
 *         error as of weft_run_wait() with its text; WEFT_ERR_CANCELLED if the context was
 *         destroyed before. WEFT_ERR_INVALID: NULL, WEFT_NS_NONE.
 */
WEFT_EXPORT int weft_request_wait(struct weft_request *request, uint64_t timeout_ns);

/** The text of the failure the call has ended with, "" if none, or it has not ended. Owned by the
 *  request. Any thread. */
WEFT_EXPORT const char *weft_request_error(const struct weft_request *request);

/**
 * Destroys a request that nobody waits for any more. NULL is accepted. If the call has not ended it
 * goes on, in its order, and its buffers are borrowed until it has: which a call after it that has
 * ended tells. Does not block. From any thread. A request outlives its context: when that is
 * destroyed, calls that have not ended do so with WEFT_ERR_CANCELLED, and on other ranks with
 * WEFT_ERR_PEER.
 */
WEFT_EXPORT void weft_request_destroy(struct weft_request *request);

#ifdef __cplusplus
}
#endif

#endif
