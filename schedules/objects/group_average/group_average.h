/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of weft/group_average.h.
 *
 * Two series of the same versions. `activation` runs the fragment of weft/activation.h and nothing
 * else, so an activation is passed on at once, whatever the rank is busy with. `versions` runs the
 * averages one at a time: it holds a version until that has been activated, the application has
 * come or patience is over, and takes the contribution that is published then.
 *
 *     application                         engine
 *       copy to a free buffer               activation: version t ends, its signals are sent
 *       publish it         (lock)           versions: t may start?
 *       fire t  ------------------------->    contribution <- published      (lock)
 *       wait for t                            allreduce in the group: contribution -> a free buffer
 *       newest -> model    <--------------    newest <- that buffer          (lock)
 *
 * Buffers are never waited for. At any time at most five are in use: one published, one that a
 * version reads and one that it writes, the newest sum, and one that the application copies to or
 * reads from.
 *
 * A state points to what is pending. It is asked for between steps, when the application holds
 * nothing, and ends with the next: so that buffer is not one more.
 *
 * Where a stale step takes this rank's contribution out of a sum, that buffer stays with the sum,
 * and at most six are in use. While the application copies, these five and the contribution to the
 * newest sum. While it reads a sum, nothing new is published (but by a synchronisation, whose sum
 * is published, newest and read at once), so only the version that was under way when it began has
 * another contribution than the published one:
 *
 *     that version        in use
 *     is under way        published, its contribution, its sum, the sum that is read and its own
 *     was the last to     published (contributed to the version under way), that version's sum,
 *     end                     the newest sum and its own, the sum that is read and its own: six
 *     has been followed   published (contributed to all since), the sum under way, the newest,
 *                             the sum that is read and its own
 */
#ifndef WEFT_SCHEDULES_OBJECTS_GROUP_AVERAGE_GROUP_AVERAGE_H
#define WEFT_SCHEDULES_OBJECTS_GROUP_AVERAGE_GROUP_AVERAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <weft/group_average.h>
#include <weft/groups.h>
#include <weft/object.h>
#include <weft/run.h>
#include <weft/template.h>

#include "schedules/objects/device.h"
#include "schedules/objects/model.h"

enum {
    WEFT__AVERAGE_BUFFERS = 5,
    WEFT__AVERAGE_MOST_BUFFERS = 6, /* with those that stay with their sums */
    WEFT__AVERAGE_MOST_EDGES = 32,
    WEFT__AVERAGE_OPS = 4 /* of models on devices */
};

/* What a buffer is used for; several at once are possible. */
enum {
    WEFT__PUBLISHED = 1,   /* the contribution that the next version takes */
    WEFT__POSTED = 2,      /* this step's contribution, until the step has ended */
    WEFT__CONTRIBUTED = 4, /* read by the version under way */
    WEFT__SUMMED = 8,      /* written by it */
    WEFT__NEWEST = 16,     /* the newest sum */
    WEFT__SYNCED = 32,     /* the average of a synchronisation that its step has not taken yet */
    WEFT__HELD = 64,       /* the application copies to it, or reads it */
    WEFT__OWN = 128,       /* this rank's contribution to the newest sum */
    WEFT__SAVED = 256,     /* a state points to it, until the next step */
    WEFT__FAILED = 512     /* had been consumed by the version with which the object failed */
};

struct weft__average_buffer {
    void *data;
    unsigned uses;
    uint64_t freed; /* when its last use ended: a number */
};

/* A sum, and what went into it from here. */
struct weft__average_sum {
    int buffer; /* -1: none */
    int own;    /* with that contribution; -1: not kept */
    int members;
    int divided; /* by them, already */
    uint64_t version;
    uint64_t sequence; /* of this rank's contribution: its step + 1, 0 if it is of no step */
};

/* How a sum is mixed into the tensors: W = sum / divisor, of a stale step W = (sum - own + W) /
 * divisor, where there is no `own` (sum + W) / divisor. Of what was posted in the place of W:
 * W += the same - posted. */
struct weft__average_mix {
    const void *sum;
    const void *own;    /* or NULL */
    const void *posted; /* or NULL */
    int stale;
    int divisor;
};

/* A step's contribution while it is loaded. */
struct weft__average_loading {
    int to, base; /* buffers; base -1: it is added to nothing */
};

/* What a step takes. */
struct weft__average_taking {
    struct weft__average_sum sum;
    int synchronised, late;
    int idle;       /* no sum was to be expected */
    double carries; /* not 0: this much of what is carried is added to the sum first */
    int mixes;      /* the tensors are mixed, */
    int clears;     /* or become 0; else they stay */
    struct weft__average_mix mix;
};

/* Plans of `activation`. */
enum {
    WEFT__ACTIVATE,      /* the choice and its signals */
    WEFT__ACTIVATE_SELF, /* a synchronisation: only the application starts it */
    WEFT__ACTIVATE_NOW,  /* this rank starts it at once: the signals alone */
    WEFT__ACTIVATE_NONE, /* a synchronisation that this rank has arrived at by leaving */
    WEFT__ACTIVATIONS
};

/* A plan of `versions`. */
struct weft__average_plan {
    struct weft_plan *plan;
    weft_slot_t send, recv;
    uint64_t messages, bytes; /* that it sends */
};

/* Where the loading of a contribution is, on a device, and the mixing of a result. */
enum {
    WEFT__LOADS_NONE,
    WEFT__LOADS, /* under way, or to begin when a stream gets there */
    WEFT__LOADS_PUBLISHED /* and the step has arrived */,
    WEFT__LOADS_REFUSED /* the model is not finite */
};
enum {
    WEFT__MIXES_NONE,
    WEFT__MIXES,       /* its run waits until it is known what the step takes */
    WEFT__MIXES_KNOWN, /* the run has been told */
    WEFT__MIXES_ENDED  /* the step is over but for the thread */
};

/* What there is beside that where the model is memory of a device (device.c). */
struct weft__average_device {
    struct weft__device_work work;
    struct weft_op *ops[WEFT__AVERAGE_OPS];
    struct weft_run *load, *mix;
    weft_node_t known; /* the event of `mix` */
    _Atomic int loads, mixes;
    _Atomic int folds; /* no version may take what is pending: a gradient is being added to it */
    uint64_t step;     /* that is under way */
    int difference;    /* how it takes its result */
    int on_stream;     /* a stream waits for its end */
    int mixed;         /* some of the mixing has been put on the device */
    struct weft_group_average_result got;
};

struct weft_group_average {
    struct weft_context *context;
    int rank, ranks;
    struct weft_group_average_config config;
    struct weft_piece *tensors; /* copies of the descriptions */
    size_t count;               /* elements of all */
    weft_dtype_t work;          /* of sums: f32 or f64 */
    size_t bytes;               /* of a buffer */
    int buffer_count;           /* WEFT__AVERAGE_BUFFERS, or _MOST_BUFFERS */
    struct weft_groups *groups; /* NULL with WEFT_AVERAGE_NONE */
    int *members;               /* of the group of the version that starts */
    /* Plans of `versions`: by size and place in the group, then the synchronisation, then nothing.
     * plan_at[place] of a group of `largest`, plan_at[largest + place] of one of one less; -1: this
     * rank never has that place. */
    struct weft__average_plan *plans;
    int *plan_at;
    size_t plan_count;
    int largest;
    struct weft_plan *activations[WEFT__ACTIVATIONS];
    weft_node_t application; /* the event of the first two */
    const struct weft_op *divide;
    struct weft__average_device *device; /* NULL: the model is memory of the host */
    _Atomic int device_made;
    struct weft_series *activation; /* NULL in other modes */
    struct weft_series *versions;
    struct weft_object *object; /* of both series: they fail, and are left, together */

    uint64_t first; /* version: the largest next step of all ranks at creation */
    int restored;   /* from a checkpoint */
    int decided;    /* what of a failed version counts: the object is made, even if it has failed */
    struct weft_group_average_past past[2]; /* of that */

    /* The application's side. */
    uint64_t next;
    uint64_t taken;       /* version of the newest sum taken + 1 */
    enum weft__step step; /* posted: it changes the model by the difference */
    uint64_t last_step_ns, step_ns;
    uint64_t stall_ns;
    struct weft__bad bad; /* in what this step was to publish */
    struct weft__average_loading loading;
    struct weft__average_taking taking;

    /* Between the two. */
    _Atomic uint64_t arrived; /* steps below have been posted */
    _Atomic uint64_t patience_ns;
    _Atomic int leaving;
    _Atomic int somebody_left;
    _Atomic uint64_t reached; /* steps of the ranks that have not left, once somebody has */
    _Atomic int stopping;     /* all have left: only versions below `goal` run */
    _Atomic uint64_t goal;
    _Atomic uint64_t started; /* versions below have started here */
    _Atomic int asked;        /* a report wants to know where everybody is */
    _Atomic int chasing;      /* a wait wants to know who is missing in its step: enum below */
    _Atomic uint64_t chase_step;
    _Atomic uint64_t *answers; /* by rank: 1 + its steps, 0: none; NULL until a report asks */
    pthread_mutex_t asking;    /* one report at a time */
    pthread_mutex_t lock;
    /* Under it. */
    struct weft__average_buffer buffers[WEFT__AVERAGE_MOST_BUFFERS];
    uint64_t freed;
    void *zero;    /* for WEFT_AVERAGE_ACCUMULATE */
    void *carried; /* a sum that no step of the object before has taken; the first step's */
    int carried_members;
    int published; /* -1: nothing */
    uint64_t published_sequence;
    struct weft__average_sum running, newest, synced;
    uint64_t failed_version; /* of what is marked as failed */
    struct weft_group_average_stats stats;
    uint64_t started_ns; /* when the last version of `started` did */

    /* The engine's side. */
    size_t running_plan;
    unsigned char
        *owes; /* by rank: has been asked how far it is, and has not answered; as `answers` */
    /* The chase: whom this rank has asked last, after how many, and what it has said. */
    _Atomic int chased;
    _Atomic uint64_t chased_at;
    int hops;
    int announced; /* that this rank leaves */
    int has_goal;
    uint64_t held_version; /* that a patient rank holds, and since when */
    uint64_t held_since;
};

/* ---- plans.c ---- */

int weft__average_make_plans(struct weft_group_average *average);
/* The index of the plan of a version, with its peers in average->members (*members of them,
 * *identity if they are all ranks). */
size_t weft__average_plan_of(struct weft_group_average *average, uint64_t version, int *members);
void weft__average_free_plans(struct weft_group_average *average);

static inline int weft__average_syncs(const struct weft_group_average *average, uint64_t version)
{
    uint64_t period = average->config.sync_period;
    return period != WEFT_NEVER && version % period == period - 1;
}

/* Whether this rank may activate a version by arriving. */
int weft__average_activates(const struct weft_group_average *average, uint64_t version);

/* ---- again.c ---- */

/* After the meeting, where some rank has what a version had consumed that failed. Collective:
 * finds out whether that version has ended elsewhere. If not, this rank's is pending again. Once
 * that is decided it returns WEFT_OK: the object may have failed. */
int weft__average_count_failed(struct weft_group_average *average, const char *who,
                               const struct weft_group_average_state *state);

/* ---- buffers.c ---- */

/* state: zeroed, or of a checkpoint: what is pending, and a sum that nobody has taken. */
int weft__average_make_buffers(struct weft_group_average *average,
                               const struct weft_group_average_state *state);
/* Adds to what is pending what the version of another object had consumed that failed. */
int weft__average_add_failed(struct weft_group_average *average, const void *failed);
/* Publishes the first model. */
int weft__average_fill_buffers(struct weft_group_average *average);
void weft__average_free_buffers(struct weft_group_average *average);
/* Publishes the tensors as the contribution of a step. 0: a model is not finite, and was not. */
int weft__average_publish(struct weft_group_average *average, uint64_t step);
/* The same in parts, where a device loads: average->loading has the buffers; what is not finite is
 * in average->bad at the end. dropped: nothing has been loaded. */
void weft__average_begin_loading(struct weft_group_average *average);
int weft__average_end_loading(struct weft_group_average *average, uint64_t step);
void weft__average_drop_loading(struct weft_group_average *average);
/* The buffers of a version that starts; -1 in *send: contributes zero. */
void weft__average_begin(struct weft_group_average *average, uint64_t version, int members,
                         const void **send, void **recv);
void weft__average_end(struct weft_group_average *average, int synchronised, int status);
/* The state between two steps, at one moment; takes: what is pending is nobody's any more. failed:
 * so has the object, and its series are over. */
int weft__average_save(struct weft_group_average *average, int takes, int failed,
                       struct weft_group_average_state *state);
/* Writes the result of a step to the tensors. */
void weft__average_take(struct weft_group_average *average, uint64_t step, int difference,
                        struct weft_group_average_result *result);
/* The same in parts, where a device mixes: what becomes of the tensors in a step goes to
 * average->taking; difference: it is to be applied to what they are now. They have been written. */
void weft__average_choose(struct weft_group_average *average, uint64_t step, int difference);
void weft__average_taken(struct weft_group_average *average,
                         struct weft_group_average_result *result);

/* ---- group_average.c ---- */

/* How a step is begun, by a thread or on a stream; `step`: how it is to be ended. */
struct weft__average_begin {
    const char *who;
    enum weft__step step;
    int on_stream;
    struct CUstream_st *stream;
};
int weft__average_begin_step(struct weft_group_average *average,
                             const struct weft__average_begin *begins);
/* The contribution of a step has been published: tells the engine that the application has arrived.
 */
void weft__average_arrive(struct weft_group_average *average, uint64_t step);
/* WEFT_ERR_TIMEOUT: the stream has not got to a point of the step. */
int weft__average_late_stream(const struct weft_group_average *average, const char *who,
                              const char *where, uint64_t began);
/* What is left of the deadline of a wait that began then; WEFT_NEVER: it has none. */
uint64_t weft__average_left(const struct weft_group_average *average, uint64_t began);

/* ---- device.c: of models on devices ---- */

int weft__average_make_device(struct weft_group_average *average);
void weft__average_free_device(struct weft_group_average *average);
/* Loads what the tensors have; by a thread it has been done, on a stream it will be, and then
 * published. WEFT_ERR_COMPUTE: a model was refused. */
int weft__average_device_post(struct weft_group_average *average,
                              const struct weft__average_begin *begins);
/* Waits until the loading has ended; and until the tensors have been mixed, of a step whose version
 * has ended. WEFT_ERR_TIMEOUT: the stream has not got there in time since `began`. */
int weft__average_device_await(struct weft_group_average *average, uint64_t began, const char *who);
/* After that: WEFT_ERR_COMPUTE, if the model was refused on a stream; the step is over. */
int weft__average_device_refused(struct weft_group_average *average, uint64_t began,
                                 const char *who);
int weft__average_device_mix(struct weft_group_average *average, uint64_t began, const char *who);
/* Nothing of the step is on the device any more; whether its contribution had been published. */
int weft__average_device_stop(struct weft_group_average *average);
/* Whether a stream has still to begin the step, or to end it. */
int weft__average_device_waits(const struct weft_group_average *average);
/* Whether a wait for the step would not wait. */
int weft__average_device_ended(struct weft_group_average *average);
/* Callbacks: the object has failed; versions below have ended, or the step has arrived. */
void weft__average_failed(void *user, struct weft_object *object, int status);
void weft__average_device_look(struct weft_group_average *average, uint64_t ended);
/* Between buffers and tensors, when nothing else goes on; waits. As those of convert.c. */
int weft__average_device_load(struct weft_group_average *average, void *buffer);
int weft__average_device_combine(struct weft_group_average *average, void *to, double scale,
                                 const void *from, double by);
int weft__average_device_clear(struct weft_group_average *average, void *buffer);
/* The device's part of weft__average_divide(). */
int weft__average_divide_there(struct weft_call *call, void *stream);

/* ---- convert.c: between tensors and buffers of the host ---- */

/* buffer = tensors, or buffer = base + tensors. bad: NULL, or what is not finite is counted. */
void weft__average_load(const struct weft_group_average *average, void *buffer, const void *base,
                        struct weft__bad *bad);
/* The same, of tensors whose elements that are not finite are zero. */
void weft__average_load_finite(const struct weft_group_average *average, void *buffer,
                               const void *base);
void weft__average_mix(const struct weft_group_average *average,
                       const struct weft__average_mix *mix);
/* to = to * scale + from * by */
void weft__average_combine(const struct weft_group_average *average, void *to, double scale,
                           const void *from, double by);
/* tensors = 0 */
void weft__average_clear(const struct weft_group_average *average);
/* The operation that divides by the ranks of the schedule. */
int weft__average_divide(struct weft_call *call);

/* ---- series.c: what the engine calls ---- */

int weft__average_make_series(struct weft_group_average *average);
/* Callbacks of the object: all ranks have left; and they have agreed on the last version. */
void weft__average_all_left(void *user, struct weft_object *object);
void weft__average_settled(void *user, struct weft_object *object, uint64_t largest);

/* ---- report.c ---- */

/* Channels of `versions`. */
enum {
    WEFT__AVERAGE_ASK,
    WEFT__AVERAGE_ANSWER,
    WEFT__AVERAGE_CHASE,  /* have you arrived at this step, and for whom do you wait? */
    WEFT__AVERAGE_CHASED, /* 2 * steps: not arrived; 2 * rank + 3: arrived, and waits for it */
    /* Over the edges of activations, passed on once: */
    WEFT__AVERAGE_LEAVES, /* somebody leaves: from now on, tell how far you are */
    WEFT__AVERAGE_REACHED /* somebody who has not left has reached so many steps */
};
/* The answer of a rank that is leaving: arrived everywhere. */
#define WEFT__AVERAGE_LEFT (UINT64_MAX - 2)
/* Asks all ranks and waits for their answers, or until a version has ended. What it returned, or
 * WEFT_IN_PROGRESS. Without memory nobody is asked. */
int weft__average_ask(struct weft_group_average *average, uint64_t version, uint64_t timeout_ns);
/* Up to so many ranks are all asked who has not arrived; among more, who waits is asked for whom,
 * and so on: few questions, however many ask them at the same time. */
enum { WEFT__AVERAGE_ASKS = 64 };
enum { WEFT__CHASE_NONE, WEFT__CHASE_WANTED, WEFT__CHASE_ON, WEFT__CHASE_OVER };
/* Follows those who wait from this rank on, until a version has ended. As weft__average_ask(). */
int weft__average_chase(struct weft_group_average *average, uint64_t step, uint64_t timeout_ns);
/* "rank 70 has not arrived (at step 7)", by the latest chase. */
void weft__average_chased(const struct weft_group_average *average, char *text, size_t size);
/* "2 of 8 ranks have not arrived: 3 (at step 7), 5 (no answer)", cut at size. */
void weft__average_missing(struct weft_group_average *average, uint64_t step, char *text,
                           size_t size);

#endif
