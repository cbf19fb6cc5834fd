/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Runs and streams of CUDA: what a stream has computed starts a run or fires an event of one, and a
 * stream waits for a run, while no thread waits for anything. Streams are CUstream or cudaStream_t,
 * which are the same; the header of CUDA is not needed. NULL is the legacy default stream.
 *
 * A thread that drives a context looks for streams of the user after a tenth of the time for which
 * none has got anywhere, at most after 1 ms (WEFT_PROGRESS_HELPER: the helper does).
 */
#ifndef WEFT_CUDA_H
#define WEFT_CUDA_H

#include <weft/group_average.h>
#include <weft/run.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/**
 * Starts a run when a stream gets here: as weft_run_start(), once what was put on @p stream before
 * has been done. Until then the run is active to those who wait for it, its events may be fired,
 * and what it is bound to is its own; its deadline counts from when it starts. Cancelled or
 * destroyed before, it ends with WEFT_ERR_CANCELLED at once (WEFT_OK, if its plan has no nodes),
 * and the stream is let be. From any
 * thread; not while the stream is captured into a graph.
 * @param stream of the context's device, or of another one; it must still exist.
 * @return WEFT_OK; as weft_run_start(); WEFT_ERR_UNSUPPORTED (no device), WEFT_ERR_SYSTEM (the
 *         driver has refused), WEFT_ERR_MEMORY: the run is as before.
 */
WEFT_EXPORT int weft_run_start_on(struct weft_run *run, struct CUstream_st *stream);

/**
 * Fires an event of the version under way (active, or to be started on a stream) when a stream gets
 * here, as weft_run_fire() then would. If the version has ended by then, or the event has been
 * fired or retired, nothing happens.
 * @return WEFT_OK; WEFT_ERR_INVALID (no event node); WEFT_ERR_STATE (no version is under way); as
 *         weft_run_start_on().
 */
WEFT_EXPORT int weft_run_fire_on(struct weft_run *run, weft_node_t event,
                                 struct CUstream_st *stream);

/**
 * Makes a stream wait here until the version under way has ended, well or not: what is put on it
 * later finds the results, if weft_run_test() then returns WEFT_OK. With no version under way the
 * stream waits for nothing. The thread does not wait. A stream that waits for a run that waits for
 * the stream waits until the run is cancelled.
 * @return WEFT_OK; as weft_run_start_on().
 */
WEFT_EXPORT int weft_run_wait_on(struct weft_run *run, struct CUstream_st *stream);

/* ---- group averaging (weft/group_average.h) of models on devices ---- */

/*
 * A step on a stream: when the stream gets there the tensors are published and the step's version
 * is activated, and what is put on the stream behind the wait finds the result. The thread goes on
 * at once:
 *
 *     compute (stream);
 *     weft_group_average_post_on(average, stream);
 *     compute (stream);                                may change the tensors
 *     weft_group_average_wait_on(average, stream);
 *     compute (stream);
 *
 * One step is under way at a time: what begins the next one waits until this one has ended on its
 * stream, so a thread is ahead of its stream by a step at most. What the step has got is told by
 * weft_group_average_wait() or weft_group_average_test(), if they are called before that; so is how
 * it has ended. A step that nobody has asked for and that has ended with an error gives that to
 * whatever begins the next one, which then is not begun.
 *
 * An object that fails lets its streams go. So does one that is destroyed, which gives up a step
 * that is still under way (WEFT_ERR_CANCELLED).
 */

/**
 * Puts the first half of a step on a stream: as weft_group_average_post(), when the stream gets
 * here. The stream goes on when the tensors have been copied, the thread at once.
 * @param stream of the context's device, or of another one; it must still exist.
 * @return WEFT_OK; WEFT_ERR_STATE (the tensors are memory of the host; a posted step has not been
 *         waited for); WEFT_ERR_TIMEOUT (config.deadline_ns: the step before has not ended on its
 *         stream); what the step before, or the object, has failed with; as weft_run_start_on().
 *         After an error nothing has been posted.
 */
WEFT_EXPORT int weft_group_average_post_on(struct weft_group_average *average,
                                           struct CUstream_st *stream);

/**
 * Makes a stream wait here for the second half of a step that has been posted, on a stream or by a
 * thread: as weft_group_average_wait() does, W += average - posted. The thread does not wait. A
 * model that was refused (config.nan) is left as it is, and the step has not been taken. Several
 * streams may wait: the tensors are mixed when the first of them gets there.
 * @return WEFT_OK; WEFT_ERR_STATE (the tensors are memory of the host; nothing was posted); what
 *         the object has failed with; as weft_run_start_on(): then the stream does not wait, and
 *         weft_group_average_wait() ends the step, as a further call may.
 */
WEFT_EXPORT int weft_group_average_wait_on(struct weft_group_average *average,
                                           struct CUstream_st *stream);

/**
 * Puts a whole step on a stream, in place on the tensors, as weft_group_average_step().
 * @return as weft_group_average_post_on(), and then as weft_group_average_wait_on().
 */
WEFT_EXPORT int weft_group_average_step_on(struct weft_group_average *average,
                                           struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
