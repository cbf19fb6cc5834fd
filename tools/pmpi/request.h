/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that do not block: what is under way, and how it goes on.
 *
 *     MPI_Iallreduce       weft_iallreduce, and a generalised request of MPI, which is completed
 *                          when weft's has ended: every function of MPI knows what to do with it
 *     MPI_Allreduce_init   a run; and a persistent request of MPI that sends nothing to nobody, a
 *                          token
 *     MPI_Start            the run is started; the token is when that has ended, and not before
 */
#ifndef WEFT_TOOLS_PMPI_REQUEST_H
#define WEFT_TOOLS_PMPI_REQUEST_H

#include "tools/pmpi/pmpi.h"

/** Calls under way, tokens that there are, and calls that have failed, which MPI does not know. 0:
 *  nothing has to be looked at. */
extern _Atomic int pmpi_under_way;
extern _Atomic int pmpi_tokens;
extern _Atomic int pmpi_failed;

/** Starts a call of weft's. @return as pmpi_serve(). */
int pmpi_request_start(struct pmpi_call *call, MPI_Request *request, int *code);
/** Makes a token for a call. @return as pmpi_serve(). */
int pmpi_request_init(struct pmpi_call *call, MPI_Request *request, int *code);

/** Drives weft a little, unless a thread does, and completes what has ended. */
void pmpi_request_progress(void);
/** Completes what has ended, where the thread drives weft anyway. */
void pmpi_request_settle(void);

/** Of a token: 1, it is one that is under way; 0, no token, or it rests or has ended, in which case
 *  MPI's is started, so that MPI completes it. */
int pmpi_token_is_busy(MPI_Request request);
/** Whether it is a token, and starts it then. */
int pmpi_token_start(MPI_Request request, int *code);
/** MPI has completed a request, which was `request`: a token rests. @return what it has failed
 *  with, or MPI_SUCCESS. */
int pmpi_request_completed(MPI_Request request);
/** Whether a request is a token, which is freed then: what is under way goes on. */
int pmpi_token_free(MPI_Request request);

/** Datatypes of the program that a call that has not ended needs. */
struct pmpi_kept_types {
    MPI_Datatype one;
    MPI_Datatype *list;
    size_t count;
};

/** Keeps those of one side of a call (0: send) from being freed; and lets them go.
 *  @return WEFT_OK; WEFT_ERR_MEMORY: only some are kept. */
int pmpi_keep_types(struct pmpi_call *call, int side, struct pmpi_kept_types *kept);
void pmpi_drop_types(struct pmpi_kept_types *kept);
/** The operation of a call, if it is a user's, must not be freed; and may be. */
int pmpi_is_by_user(const struct pmpi_call *call);
int pmpi_op_hold(const struct pmpi_call *call);
void pmpi_op_leave(const struct pmpi_call *call);

/** Makes the run of a call whose sides are open, and binds them; starts it with those of one.
 *  @return as weft_template_create_run(), weft_run_start(). */
int pmpi_persistent_make(const struct pmpi_call *call, struct weft_run **run);
int pmpi_persistent_start(const struct pmpi_call *call, struct weft_run *run);

/** Waits, driving weft, until `done` says so. */
void pmpi_wait_until(weft_done_fn done, void *user);

/** Waits for a request of any kind; as MPI_Wait(). */
int pmpi_wait(MPI_Request *request, MPI_Status *status);

/** At the end. */
void pmpi_request_close(void);

/** Whether a thread may drive what is under way while the program is in a function of MPI that
 *  knows nothing of it; the same on all ranks of the world. */
int pmpi_rescue_may_run(void);
/** Something is about to be under way; `by_others` other than 0: what drives it may call functions
 *  of the program, or of MPI. */
void pmpi_rescue_allow(int by_others);
/** It is: that thread drives weft now and then. */
void pmpi_rescue_arm(void);
/** It is over, or has not begun. */
void pmpi_rescue_disarm(int by_others);
void pmpi_rescue_close(void);
/** The thread is in a blocking function of MPI; it is again in the program's. */
void pmpi_rescue_enter(void);
void pmpi_rescue_leave(void);

#endif
