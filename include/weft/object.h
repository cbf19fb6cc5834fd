/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Objects: runs and series that are created, fail and are left as one.
 *
 * What a library offers on top of weft mostly needs several runs and series. An object holds them
 * together. Its life:
 *
 *     create    takes the object's number, whatever fails later; then its runs and series are made
 *               (weft_run_config.object, weft_series_config.object), and the ranks meet, by a run
 *               of their own: after that nothing is left that could fail
 *     fail      once, by whatever comes first: a run or series of it fails, a rank calls
 *               weft_object_fail() or gives up (weft_context_abort(), weft_context_destroy()).
 *               All its runs and series end, here and, the news being passed on over the ranks
 *               at distances of 1, 2, 4 ... on both sides, on all other ranks, also on
 *               those that have still to create it
 *     leave     this rank needs it no more, others may: the object goes on, served by the helper
 *               of its context, until all ranks have left it, agreed on where to stop and got
 *               there, or nothing has happened for too long. Nobody waits, so the order in which
 *               ranks leave several objects does not matter
 *     release   everything of it is destroyed
 *
 * The counting of those who have left goes up and down a binomial tree, in which the parent of a
 * rank is the rank without its lowest bit: each rank keeps O(1) and sends O(log P).
 */
#ifndef WEFT_OBJECT_H
#define WEFT_OBJECT_H

#include <weft/context.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weft_object;

/** How an object lives, and who is told. Members that are 0 mean their defaults. */
struct weft_object_config {
    size_t struct_size;
    /** For how long, in nanoseconds, an object that has been left is served while nothing happens
     *  to it: no run of it ends and no signal for it comes. Then it fails with WEFT_ERR_TIMEOUT.
     *  WEFT_NEVER: for as long as it takes. Default: 60 s. */
    uint64_t leave_ns;
    /** 1: the others do not need this rank once it has left: after leave_ns it does not fail, and
     *  its context does not wait for it any more. */
    int silent;
    /**
     * The callbacks are called by the thread that drives the engine and must not block. Each may
     * be NULL.
     *
     * The object has failed: its runs and series have ended. Once.
     */
    void (*failed)(void *user, struct weft_object *object, int status);
    /** All ranks have left. To be answered by weft_object_settle(), at once or later. NULL: it is,
     *  with 0. */
    void (*left)(void *user, struct weft_object *object);
    /** All ranks have settled; @p largest is the largest of their numbers. To be answered by
     *  weft_object_done() when everything up to there has been done. NULL: it is, at once. */
    void (*settled)(void *user, struct weft_object *object, uint64_t largest);
    /**
     * What has been left is over, or its context is being destroyed: to destroy the runs and
     * series, then the object itself, by weft_object_destroy(). By any thread, not in a callback;
     * once.
     */
    void (*release)(void *user);
    void *user;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_object_config_init_sized(struct weft_object_config *config, size_t size);
#define weft_object_config_init(config) weft_object_config_init_sized((config), sizeof *(config))

/**
 * Creates an object. Collective in the sense of weft/run.h: all ranks create their objects, and
 * the runs and series of one, in the same order. Does not communicate or block. If it fails with
 * WEFT_ERR_MEMORY the other ranks are told: their object fails.
 * @param config NULL for defaults.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_object_create(struct weft_object **object, struct weft_context *context,
                                   const struct weft_object_config *config);

/**
 * The next @p count runs and series of the object are not made on this rank, which has nothing to
 * do with them: those of other ranks keep their order. So an object may have a run for each pair of
 * ranks, say, and a rank makes its own alone. Local, does not block.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, or more than 2^20 members).
 */
WEFT_EXPORT int weft_object_skip(struct weft_object *object, size_t count);

/**
 * Fails the object on all ranks, if nothing has failed it before. From any thread, callbacks
 * included; does not block.
 * @param status an error (below 0): what runs of it end with here; on the others WEFT_ERR_PEER.
 * @param text why, copied; it reaches the others with this rank's number, cut at some 400 bytes.
 *        NULL: the status' text.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_object_fail(struct weft_object *object, int status, const char *text);

/**
 * Whether the object has failed. Any thread.
 * @param who begins the error's text: the caller's function.
 * @return WEFT_OK; what it has failed with, and the error text says why.
 */
WEFT_EXPORT int weft_object_check(const struct weft_object *object, const char *who);

/**
 * Leaves an object to its context, which calls `release` when it is over. The object may be
 * released before this returns: it is not to be touched afterwards but in its callbacks. Needs
 * helper progress on this rank where others still need something of it: with caller progress it
 * goes on when the context is driven, weft_context_destroy() included, and is released by
 * weft_context_progress(), weft_context_destroy() or the creation of another. Does not block, but
 * for `release`, which it may call. Not in a callback.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, no `release`), WEFT_ERR_STATE (it has been left).
 */
WEFT_EXPORT int weft_object_leave(struct weft_object *object);

/** Gives this rank's number to the largest of all. In `left`, or in a later callback of a series
 *  or run of the context. */
WEFT_EXPORT int weft_object_settle(struct weft_object *object, uint64_t number);

/** This rank has nothing more to do for an object that it has left. In a callback, as
 *  weft_object_settle(). */
WEFT_EXPORT int weft_object_done(struct weft_object *object);

/** Frees an object whose runs and series have been destroyed. Nobody is told anything. NULL is
 *  accepted. Not in a callback. */
WEFT_EXPORT void weft_object_destroy(struct weft_object *object);

#ifdef __cplusplus
}
#endif

#endif
