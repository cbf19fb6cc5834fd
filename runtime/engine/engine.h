/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress engine and what it works on: runs, objects, the table of messages.
 *
 * All of it belongs to the thread that drives the engine (runtime/context/progress.c says who that
 * is), except what is atomic.
 */
#ifndef WEFT_RUNTIME_ENGINE_ENGINE_H
#define WEFT_RUNTIME_ENGINE_ENGINE_H

#include "runtime/base/clock.h"
#include "runtime/engine/transport.h"
#include "runtime/graph/op.h"
#include "runtime/plan/plan.h"
#include <weft/context.h>
#include <weft/run.h>

/* ---- matching: match.c ---- */

/* Posted receives and messages that came early, in one hash table by (object, version, tag, from):
 * for one key it holds either receives or messages, never both. */
struct weft__match {
    struct weft__message **buckets;
    uint32_t mask;
    uint32_t shift;
    size_t reserved; /* receives that exist in runs */
};

int weft__match_reserve(struct weft__match *match, size_t receives);
void weft__match_unreserve(struct weft__match *match, size_t receives);
void weft__match_close(struct weft__match *match);
/* The posted receive for an arriving message, taken out; NULL: the message was put in. */
struct weft__message *weft__match_arrived(struct weft__match *match, struct weft__message *message);
/* The message for a receive to be posted, taken out; NULL: the receive was put in. */
struct weft__message *weft__match_post(struct weft__match *match, struct weft__message *receive);
/* Whether there is a posted receive for a message. */
int weft__match_posted(const struct weft__match *match, const struct weft__message *message);
void weft__match_remove(struct weft__match *match, struct weft__message *entry);
/* Takes out, as a list, every early message of an object with a version below `below`. */
struct weft__message *weft__match_purge(struct weft__match *match, uint64_t object, uint64_t below);
/* The same of all members of a whole, those that were never created here included. */
struct weft__message *weft__match_purge_whole(struct weft__match *match, uint64_t number);

/* message.xflags */
enum {
    WEFT__X_IDLE,
    WEFT__X_POSTED,    /* receive in the match table */
    WEFT__X_FETCHING,  /* receive handed to the transport */
    WEFT__X_SENDING,   /* send handed to the transport */
    WEFT__X_COPYING,   /* receive being copied: a job */
    WEFT__X_REDUCING,  /* receive being reduced as it arrives: a job */
    WEFT__X_COMPUTING, /* compute node in slices: a job */
    WEFT__X_CARRYING,  /* to or from a device, in chunks: a job */
    /* No job meanwhile: more of the payload is awaited, or the news why it was withdrawn. */
    WEFT__X_WAITS,
    WEFT__X_COPYING_WAITS = WEFT__X_COPYING + WEFT__X_WAITS,
    WEFT__X_REDUCING_WAITS = WEFT__X_REDUCING + WEFT__X_WAITS,
    WEFT__X_CARRYING_WAITS = WEFT__X_CARRYING + WEFT__X_WAITS,
    WEFT__X_CARRYING_QUEUED, /* all chunks are in the air */
    WEFT__X_LANDING,         /* on the stream of a device */
    /* Of a message over a communicator: its ranks agree on when to issue it, or it waits for its
     * turn; it has been handed over. */
    WEFT__X_AGREEING,
    WEFT__X_ISSUED
};

/* ---- objects ---- */

/* Ranks create their objects in the same order, so the number in it names an object on all of
 * them. Numbers are never used again: what comes late for an object that has been destroyed here
 * is known by its number, and dropped. Runs and series that belong to a whole are numbered within
 * it, so a rank that fails while it creates some has used as many numbers as the others:
 *
 *     id = number of the object or the whole | number of the member, from 1 << WEFT__NUMBER_BITS
 *
 * What people read says 3 for an object and 3.1 for its first member. Files have the id itself,
 * which 2^19 members keep below 2^63: JSON's integers end there (runtime/context/state.c).
 * The table has those that live, in chains by their low bits. */
#define WEFT__NUMBER_BITS  44
#define WEFT__NUMBER(id)   ((id) & ((UINT64_C(1) << WEFT__NUMBER_BITS) - 1))
#define WEFT__EVERY_OBJECT UINT64_MAX /* news of this are of the rank itself */
/* The number of the sequence, which every context has from its creation: no other gets so far. In a
 * trace, which has 32 bits of a number, it is the last one. */
#define WEFT__SEQUENCE ((UINT64_C(1) << WEFT__NUMBER_BITS) - 4097)

struct weft__object {
    uint64_t id;
    struct weft__object *next;   /* in its chain */
    struct weft__whole *whole;   /* that it belongs to, or that it is the number of; or NULL */
    struct weft__object *fellow; /* in the list of the members of a whole */
    uint64_t floor;              /* versions below have ended here */
    uint64_t skipped;            /* the floor before the active version: from there on, none was */
    uint64_t failing; /* the first that failed since one has succeeded; UINT64_MAX: none */
    int unordered;    /* versions start in any order: the floor stays */
    struct weft_run *active;
    struct weft_series *series; /* or NULL */
    struct weft_run *listener;  /* a run that is told of signals, or NULL */
    uint32_t channel_count;
    uint32_t *channels;           /* ascending */
    uint64_t *reached;            /* version + 1 signalled on each; 0: none */
    struct weft__message *failed; /* failures of versions that have not started here */
    struct weft__message *notes;  /* WEFT__TURN of such, in the order in which they came */
    struct weft__team *team;      /* of the communicator that its runs share; or NULL */
};

/* Runs and series that fail as one: the engine's part of a weft_object. It fails once. */
enum { WEFT__NEWS_BYTES = 400 }; /* of the text that news carry, with its end */
struct weft__whole {
    struct weft__object number;
    struct weft__object *members;
    uint64_t member_count; /* so far; those that were destroyed count */
    uint64_t touched_ns;   /* when a member last ended a version or something came for it, ... */
    int timed;             /* ... if anybody wants to know */
    int over;              /* it is being destroyed: nothing is a failure any more */
    /* 0 until it fails. Release, after the text: pairs with the acquire of those who read that. */
    _Atomic int status;
    char text[WEFT__NEWS_BYTES];
};

/* ---- runs ---- */

enum { WEFT__RUN_IDLE, WEFT__RUN_QUEUED, WEFT__RUN_ACTIVE, WEFT__RUN_ENDED };

/* Commands to whoever drives, bits of weft__commanded.commands. */
enum {
    WEFT__DO_START = 1,
    WEFT__DO_FIRE = 2,
    WEFT__DO_CANCEL = 4,
    WEFT__DO_COMPLETE = 8,
    WEFT__DO_POKE = 16,
    WEFT__DO_FAIL = 32 /* of an object, a context */
};

/* The word of an event: version * 4 + state (a member of a choice is IDLE or RETIRED); of a
 * choice: low half of the version << 32 | event that won + 1. Firing is one compare-and-swap of it
 * by whoever fires, application or engine; the version in it keeps a late fire from hitting a
 * later version. */
enum { WEFT__EVENT_IDLE, WEFT__EVENT_FIRED, WEFT__EVENT_RETIRED };
#define WEFT__EVENT_WORD(version, state)  (((version) << 2) | (state))
#define WEFT__CHOICE_WORD(version, event) (((version) << 32) | (event))

struct weft__list {
    struct weft_piece *pieces;
    size_t *start; /* byte offset of each piece in the slot; one more: the end */
    size_t count;
};

struct weft__binding {
    char *data; /* NULL if a list or not bound */
    struct weft__list *list;
    int bound;
    int pinned; /* memory of the host that the device reads and writes itself */
};

/* Scratch memory; the runs of a series, of which one at a time is active, share theirs. */
struct weft__scratch {
    _Atomic uint32_t references;
    int placed;                         /* data is from topology.c */
    const struct weft_context *context; /* whose transport data is from; or NULL */
    size_t bytes;
    char *data;
    struct weft__device *device; /* NULL: there is none on a device */
    char *device_data;
};

/* A compute call of a run: what the user's function sees, and how it ends. */
struct weft__call {
    struct weft_call call;
    struct weft_run *run;
    struct weft__call *before, *next;  /* in the engine's list of those that are asked */
    struct weft__call *completed_next; /* in its stack of those that have been completed */
    uint32_t node;
    int pending;
    atomic_int status; /* WEFT_IN_PROGRESS until one thread has said how it ends */
};

/* A thread that waits for a join of the version under way, or about to be: on its stack, in the
 * run's list until the join has ended or been retired, or the run has failed. */
enum { WEFT__WATCH_BYTES = 512 };
struct weft__watch {
    struct weft__watch *next;
    uint32_t node;
    /* WEFT_IN_PROGRESS until told. Release, after the text: pairs with the acquire of who waits. */
    atomic_int status;
    char text[WEFT__WATCH_BYTES]; /* of a failure */
    struct weft__hold *hold;      /* of streams of the user that wait for the run's end: it stays */
};

/* What commands are given to: a part of a run, an object or a context. */
enum { WEFT__OF_RUN, WEFT__OF_OBJECT, WEFT__OF_CONTEXT };
struct weft__commanded {
    struct weft__commanded *next; /* in the context's command list */
    _Atomic uint32_t commands;
    uint32_t kind;
};

struct weft_run {
    struct weft_context *context;
    struct weft__engine *engine;
    struct weft_plan *plan;
    struct weft__object *object; /* NULL: local only */
    struct weft_series *series;
    uint64_t version; /* active or latest; of an idle one, of who starts it */
    /* The same for reports and dumps, which look while somebody may be starting it. */
    _Atomic uint64_t told_version;
    uint64_t next_version;
    int status;      /* valid once ended */
    int cause;       /* of a failure that began elsewhere; 0: here */
    int told;        /* of that failure everybody has been told */
    const char *how; /* while it fails since a rank has died: how that ended */
    int local_only;
    atomic_int state;
    struct weft__commanded commanded;
    _Atomic uint32_t waiters;
    _Atomic uint32_t telling;    /* its callback is being called: it has ended for that alone */
    struct weft_run *ready_next; /* in the engine's list of runs with ready nodes */
    struct weft_run *active_next, *active_previous;
    struct weft_run *all_next, *all_previous; /* of the context */
    int in_ready;
    int plain;                    /* as the plan's, but nobody has waited for a node */
    int zombie;                   /* destroyed, or about to be */
    struct weft_run *doomed_next; /* of those that callbacks have destroyed */
    uint32_t lowest;              /* no word of the ready set before this one has bits */
    uint32_t left;                /* nodes that have not ended */
    _Atomic uint32_t borrowed;    /* transfers and calls still out after a failure */
    uint32_t trace_plan;          /* its plan and its number, as the recorder knows them */
    uint32_t trace_run;
    uint64_t started_ns;
    uint64_t deadline_ns; /* relative; 0: none */
    uint64_t expires_ns;  /* absolute; UINT64_MAX: never */
    void (*ended)(void *user, struct weft_run *run, int status);
    void (*signalled)(void *user, struct weft_run *run, int from, uint32_t channel,
                      uint64_t version);
    void *user;
    int unordered; /* as weft_run_config has it */
    int of_object; /* local only, and still some object's, with which it goes */
    struct weft__watch *watches;
    char *error;
    struct weft__scratch *scratch; /* NULL: needs none */
    struct weft__flights *flights; /* its part on a device, or NULL */
    struct weft_run *beside; /* never active at the same time: they have one stream; or NULL */
    struct weft__hold *hold; /* NULL: no stream has waited for its end */
    uint32_t starts;         /* so many versions have been prepared */
    uint32_t *waits;
    uint64_t *ready;
    struct weft__xfer *xfers;
    struct weft__binding *bindings;
    uint64_t *values;
    int32_t *bound_peers; /* room for bound ranks */
    const int32_t *peers; /* rank of the context for each of plan->peers */
    _Atomic uint64_t *events;
    _Atomic uint64_t *choices;
    uint32_t *fired_next;        /* links events fired by the application, not looked at yet */
    _Atomic uint32_t fired_head; /* event + 1; 0: none */
    _Atomic uint32_t firing;     /* threads that fire an event of this version */
    _Atomic uint32_t inside;     /* threads inside weft_run_fire() */
    uint32_t held;               /* commands that came before the one to start */
    struct weft__call *calls;
    struct weft_argument *arguments;
    struct weft_piece *argument_piece;   /* one for each argument */
    struct weft_piece **argument_pieces; /* for list slots: room for a list each, or NULL */
};

/* ---- the host ---- */

/*
 * What the engine tells and asks whoever has made it. A context fills in the table and sets it
 * before the first step, so the engine calls nothing above itself. Called by the thread that
 * drives; none may step the engine.
 */
struct weft__host {
    /* A run has ended: who waits looks again. */
    void (*wake_waiters)(struct weft_context *context);
    void (*log)(const struct weft_context *context, weft_log_level_t level, const char *format, ...)
        WEFT_PRINTF(3, 4);
    /* Logs what a run waits for. */
    void (*report_log)(const struct weft_context *context, const struct weft_run *run,
                       weft_log_level_t level);
    /* "missing: ..." in one line: which messages, receives, events have not come. */
    void (*report_missing)(const struct weft_run *run, char *text, size_t size);
    /* "a message ... has come and matches nothing", if a receive waits that was most likely meant
     * to take it, else "". node: WEFT__NONE is none. */
    void (*report_unmatched)(const struct weft_run *run, uint32_t node, char *text, size_t size);
    /* Leaves the state for a post-mortem, if somebody wants it. */
    void (*state_dump)(struct weft_context *context, const char *why);
    /* Asks series again whose time has come; returns when the next wants to be asked. */
    uint64_t (*series_due)(struct weft_context *context, uint64_t now);
    /* A version of a series has ended. */
    void (*series_ended)(struct weft_series *series, struct weft_run *run, int status);
    /* A signal for a series, before it is looked at. */
    void (*series_signalled)(struct weft_series *series, const struct weft__message *message);
    /* The series ends with a status: its object has failed. */
    void (*series_failed)(struct weft_series *series, int status, const char *text);
    /* A run of a whole has failed, and has something back that the transport had of it. */
    void (*reclaimed)(struct weft_context *context);
    /* A whole has failed: its status and text are set, its members have been failed. */
    void (*whole_failed)(struct weft__whole *whole);
    /* A signal for a whole. */
    void (*whole_signalled)(struct weft__whole *whole, int from, uint32_t channel, uint64_t value);
    /* Everything has failed: ends the series that belong to no whole. */
    void (*all_failed)(struct weft_context *context, int status, const char *text);
    /* A message that goes to another context of the family (message->part). */
    void (*delivered)(struct weft_context *context, struct weft__message *message);
    /* An invitation. */
    void (*invited)(struct weft_context *context, struct weft__message *message);
    /* A rank has left: its context, or the whole transport. */
    void (*left)(struct weft_context *context, int rank);
    /* A rank has died; what of this engine needs it has failed. */
    void (*died)(struct weft_context *context, int rank, const char *how, const char *text);
    /* A run has failed since a rank has died, as another rank reports. */
    void (*reported)(struct weft_context *context, int rank, const char *how);
    /* The function of some rank has returned. */
    void (*returned)(struct weft_context *context);
    /* A run is to have a part on the context's device: weft__flights_open(). */
    int (*device_needed)(struct weft_context *context, struct weft_run *run);
    /* A stream of the user has got to where it starts a run, or fires an event of a version. */
    void (*gate_open)(struct weft_run *run);
    void (*gate_fire)(struct weft_run *run, uint32_t node, uint64_t version);
    /* Whether the calling thread is the context's helper: the recorder notes it. */
    int (*helps)(struct weft_context *context);
};

/* ---- the engine ---- */

enum { WEFT__GIVEN_UP_KEPT = 16 };

struct weft__engine {
    struct weft__transport *transport;
    const struct weft__host *host;
    struct weft_context *context; /* the host's, not looked into */
    const struct weft__engine
        *family;                     /* that of the context whose transport it shares, or itself */
    struct weft__recorder *recorder; /* NULL: no tracing */
    uint64_t now;
    struct weft_run *ready_head, *ready_tail;
    struct weft__message *job_head, *job_tail; /* transfers (and computes) worked on in slices */
    struct weft__call *asked, *asked_last; /* pending calls with a poll: first come, first asked */
    int polling;                           /* there is one */
    size_t pending; /* calls that pend, these too, and runs with something on a device */
    struct weft__flights *flying;  /* those */
    struct weft__bounce *bounce;   /* NULL: there has been no device */
    struct weft__staging *staging; /* NULL: nor one whose memory goes by way of the host */
    struct weft__gates *gates;     /* NULL: no stream of the user has started or fired anything */
    struct weft__ordered *ordered; /* runs with messages over a communicator under way */
    uint64_t ordered_looked_ns;    /* as looked_ns and looks, of these */
    uint32_t ordered_looks;
    uint64_t landed_ns;      /* when something on a device has last ended */
    uint64_t looked_ns;      /* when the device was last asked whether it has failed, ... */
    uint32_t looks;          /* ... and how often it was looked at in vain since */
    struct weft_run *active; /* list */
    struct weft__match match;
    struct weft__object **objects; /* chains; NULL before the first object */
    uint64_t object_mask;          /* of the low bits of a number that choose its chain */
    uint64_t object_next;          /* the number of the next: so many have been created */
    size_t object_count;           /* that live */
    struct weft__message *early;   /* signals and failures for objects that do not exist yet */
    unsigned char *gone;           /* a bit a rank: it has left or died; NULL until one has */
    struct weft__death *deaths;    /* of those that have died; latest first */
    struct weft__death *reports;   /* what others have said of deaths before the transport did */
    struct weft__told *told;       /* news that only ranks nearby have been told */
    uint64_t *failed_numbers;      /* of wholes that have failed and been destroyed */
    size_t failed_count, failed_capacity;
    size_t slice_bytes;
    size_t segment_bytes; /* a multiple of WEFT__STAGE_UNIT */
    /* At or before the earliest deadline of an active run, and the time a series wants to be
     * asked.
     */
    uint64_t expires_ns;
    uint32_t active_count;
    uint32_t did;                           /* things done in this step */
    _Atomic uint32_t completing;            /* threads inside weft_call_complete() */
    _Atomic(struct weft__call *) completed; /* pending calls that have been, the last one first */
    int failed; /* the status with which every run ends, once the transport or a rank has failed */
    char *reason; /* for it; NULL: the transport */
    struct weft_context_stats stats;
    struct weft__object sequence;   /* of the runs with weft_run_config.sequence; in no chain */
    _Atomic uint32_t sequence_busy; /* one of them has been started, and has not ended */
    /* Its latest versions of which everybody has been, or is being, told that they have failed. */
    uint64_t given_up[WEFT__GIVEN_UP_KEPT];
    uint64_t given_up_count;
};

#define WEFT__NEVER UINT64_MAX

/* The transport's clock, or the machine's. */
static inline uint64_t weft__engine_clock(const struct weft__engine *engine)
{
    const struct weft__transport *transport = engine->transport;
    return transport->ops->now ? transport->ops->now(transport) : weft__now();
}

static inline struct weft_run *weft__run_of(struct weft__commanded *commanded)
{
    return (struct weft_run *)(void *)((char *)commanded - offsetof(struct weft_run, commanded));
}

/* How often pending compute calls are asked whether they have finished. */
#define WEFT__CALL_POLL_NS UINT64_C(5000)

/* One step at time `now`. Returns when it next wants to be called if nothing arrives: `now` or
 * before: at once; WEFT__NEVER: only when something arrives. */
uint64_t weft__engine_step(struct weft__engine *engine, uint64_t now);

/* A run becomes active with run->version. Its roots are ready. */
void weft__engine_start(struct weft__engine *engine, struct weft_run *run);
/* Looks at fired events of a run. */
void weft__engine_fired(struct weft__engine *engine, struct weft_run *run);
/* Fails the active version of a run. node: the culprit or WEFT__NONE; origin: the rank where it
 * began. */
void weft__engine_fail(struct weft__engine *engine, struct weft_run *run, int status, uint32_t node,
                       int origin, const char *text);

/* Fails everything, now and later: the transport has failed, or some rank gives up. */
void weft__engine_abort(struct weft__engine *engine, int status, const char *text);
/* Fails a whole, if nothing has before. What is told to the others is what `tell` is: the rank
 * where it began, why, and the text there. */
struct weft__news {
    int origin;
    int status;
    const char *text;
};
void weft__whole_fail(struct weft__engine *engine, struct weft__whole *whole, int status,
                      const char *text, const struct weft__news *tell);
/* Tells that an object (its number), or WEFT__EVERY_OBJECT, has failed, to the ranks at a distance
 * of 2^i on both sides. They pass it on, so it reaches all that are alive over many ways. */
void weft__engine_tell(struct weft__engine *engine, uint64_t object, const struct weft__news *news);
/* Tells the others, too, before this rank leaves: who waits for it would hear that it has left
 * before it hears why. Once. */
void weft__engine_tell_rest(struct weft__engine *engine);
void weft__told_free(struct weft__engine *engine);
/* Whether the calling thread is in an `ended` callback of a run of the engine. */
int weft__engine_calls(const struct weft__engine *engine);

/* Adds a watch for a join of a run that is active or about to be; or says at once what has become
 * of it. Takes it back. Driving. */
void weft__watch_add(struct weft_run *run, struct weft__watch *watch);
void weft__watch_remove(struct weft_run *run, const struct weft__watch *watch);
/* What has become of a join of a version that has ended without an error. Driving. */
int weft__join_outcome(const struct weft_run *run, uint32_t node);

/* Fires an event for a version: the compare-and-swap alone. WEFT_OK or WEFT_RETIRED. Any thread. */
int weft__event_try(struct weft_run *run, uint32_t event, uint64_t version);

/* ---- among the files of engine/ ---- */

/* If a peer has told that this version failed, fails the run: 1. */
int weft__object_failed(struct weft__engine *engine, struct weft_run *run);
void weft__engine_end(struct weft__engine *engine, struct weft_run *run, int status);
/* Fails a run because the user's reduction of a node has failed; the thread's text says why. */
void weft__engine_broken(struct weft__engine *engine, struct weft_run *run, uint32_t node);
void weft__engine_deadlines(struct weft__engine *engine);
/* A version begins that is waited for. */
void weft__watches_start(struct weft_run *run);
/* Tells those who wait for a join, or, as it fails, for any of the run. */
void weft__watches_tell(struct weft__engine *engine, struct weft_run *run, uint32_t node,
                        int status);
void weft__watches_fail(struct weft_run *run, int status);
void weft__engine_signal(struct weft__engine *engine, struct weft__message *message);
void weft__engine_failure(struct weft__engine *engine, struct weft__message *message);
/* Whether it says that a rank starts no version from one on which this run, under way, has skipped
 * or is. */
int weft__has_left(const struct weft__message *message, const struct weft_run *run);
void weft__engine_news(struct weft__engine *engine, struct weft__message *message);
/* The parts of weft__whole_fail(), for a run that is about to end with it: 1 if this was the first
 * failure, which is told; then, once the run has ended, its members and its owner hear of it. */
int weft__whole_mark(struct weft__engine *engine, struct weft__whole *whole, int status,
                     const char *text, const struct weft__news *tell);
void weft__whole_spread(struct weft__engine *engine, struct weft__whole *whole);

/* ---- ranks that have left or died: gone.c ---- */

struct weft__death {
    struct weft__death *next;
    int rank;
    char how[];
};
/* How a rank has died; NULL: it has not. While driving. */
const struct weft__death *weft__engine_death(const struct weft__engine *engine, int rank);
/* What has become of a rank that is gone: "rank 3 has died: killed by signal 9 (Killed)". */
enum { WEFT__FATE_BYTES = WEFT__NEWS_BYTES };
void weft__engine_fate(const struct weft__engine *engine, int rank, char text[WEFT__FATE_BYTES]);
/* Fails a run that needs a rank that is gone: to wait for its message, say. */
void weft__engine_forsaken(struct weft__engine *engine, struct weft_run *run, uint32_t node,
                           int rank);
/* If some rank has died that a version which begins spans, or may wait for, fails it: 1. */
int weft__engine_bereft(struct weft__engine *engine, struct weft_run *run);
void weft__deaths_free(struct weft__engine *engine);
/* That a rank has died, as others have reported, which the transport has not told yet; kept as long
 * as the engine. NULL: nobody has. While driving; of the root's engine. */
const struct weft__death *weft__engine_report(const struct weft__engine *engine, int rank);
void weft__engine_reported(struct weft__engine *engine, int rank, const char *how);
int weft__engine_reduce(struct weft_run *run, uint32_t node, const struct weft__xfer *receive,
                        size_t begin, size_t end);
int weft__engine_copy(struct weft_run *run, uint32_t node, size_t begin, size_t end);
/* The first node that has started and not ended: what an unfinished run waits for; or WEFT__NONE.
 */
uint32_t weft__oldest_wait(const struct weft_run *run);
/* Which text a node gets in errors and reports: "node 7 `label`, line 12 (recv from rank 2, tag 4,
 * 40 bytes)". */
void weft__describe_node(const struct weft_run *run, uint32_t node, char *text, size_t size);
void weft__engine_finish(struct weft__engine *engine, struct weft_run *run, uint32_t node);
void weft__engine_make_ready(struct weft__engine *engine, struct weft_run *run, uint32_t node);
void weft__engine_deliver(struct weft__engine *engine, struct weft__xfer *xfer,
                          struct weft__message *message);
void weft__engine_job(struct weft__engine *engine, struct weft__xfer *xfer, int state);
/* The same for one that has begun; the first job waits for something, or has ended. */
void weft__engine_again(struct weft__engine *engine, struct weft__xfer *xfer, int state);
void weft__engine_rest(struct weft__engine *engine);
/* Before and after a slice of the first job reads its message. 0: it is not here yet, and the job
 * has been set aside; else *most bytes of it are, if that is less. */
int weft__engine_read_begin(struct weft__engine *engine, struct weft__xfer *xfer, size_t *most);
void weft__engine_read_end(struct weft__engine *engine, const struct weft__xfer *xfer);
/* The same of one that is read as a whole. */
int weft__engine_may_read(struct weft__engine *engine, const struct weft__xfer *xfer);
void weft__engine_have_read(struct weft__engine *engine, const struct weft__xfer *xfer);
/* Byte `offset` of a payload that is here, and in *bytes how far it is contiguous. */
const char *weft__source_chunk(const struct weft__message *source, size_t offset, size_t *bytes);
/* A receive has ended, its message has been released; reduced: so has the node that reduces it. */
void weft__engine_received(struct weft__engine *engine, struct weft__xfer *xfer, size_t bytes,
                           int reduced);
/* Sends a node's message, whose payload is at `data`, or as `list` says. What the transport has
 * returned; an end or a failure has been told. */
int weft__engine_post(struct weft__engine *engine, struct weft_run *run, uint32_t node,
                      const void *data, int list);
/* A node has been put on the stream of a device: what may follow it there is released. Then it has
 * ended: the rest is. */
void weft__engine_issued(struct weft__engine *engine, struct weft_run *run, uint32_t node);
void weft__engine_landed(struct weft__engine *engine, struct weft_run *run, uint32_t node);
/* The call of a node, its arguments where the run's memory is. */
struct weft__call *weft__engine_prepare_call(struct weft_run *run, uint32_t node);
/* Says so if the value that a node has produced is too large. */
void weft__engine_check_value(const struct weft_run *run, uint32_t node, char *text, size_t size);
void weft__engine_work(struct weft__engine *engine); /* one slice of the first job */
void weft__engine_compute(struct weft__engine *engine, struct weft_run *run, uint32_t node);
int weft__engine_poll_calls(struct weft__engine *engine);
/* A run ends early: its computations in parts do nothing more, so nothing of theirs is borrowed. */
void weft__engine_drop_calls(struct weft__engine *engine, const struct weft_run *run);
void weft__engine_fire(struct weft__engine *engine, struct weft_run *run, uint32_t event);
/* The signal of a channel has come for the version under way: fires the events that wait for it. */
void weft__engine_fire_channel(struct weft__engine *engine, struct weft_run *run, uint32_t channel);
/* The largest version + 1 signalled on a channel; NULL: no event of the object hears it. */
uint64_t *weft__object_reached(struct weft__object *object, uint32_t channel);
/* Sends a control message that the others would wait for in vain: tries again for memory. */
int weft__engine_control(struct weft__engine *engine, const struct weft__message *message);
/* Gives back a list of messages that nobody wants. */
void weft__engine_drop(struct weft__engine *engine, struct weft__message *list);
/* Gives back a message that is not wanted; who has sent it hears whether its object has failed. */
void weft__engine_refuse(struct weft__engine *engine, struct weft__message *message);
void weft__object_early(struct weft__engine *engine, struct weft__object *object);
/* "3", or "3.1" for a member. Returns text. */
enum { WEFT__NAME_BYTES = 44 };
const char *weft__object_name(uint64_t id, char text[WEFT__NAME_BYTES]);
/* The same, until the block ends. */
#define WEFT__OBJECT_NAME(id) weft__object_name((id), (char[WEFT__NAME_BYTES]){0})
/* A version of the sequence that is not under way fails here: nothing of it is wanted any more, and
 * all others are told. */
void weft__sequence_give_up(struct weft__engine *engine, uint64_t version, int status,
                            const char *text);
/* Ends an object: what arrives for it from now on is dropped. */
void weft__object_drop(struct weft__engine *engine, struct weft__object *object);
/* A new object, of a series or of a run, the other being NULL, in a whole or NULL. *object is set
 * before they hear of early signals. */
int weft__engine_object(struct weft__engine *engine, struct weft_plan *const *plans, size_t count,
                        struct weft_series *series, struct weft_run *run, struct weft__whole *whole,
                        struct weft__object **object);
/* Enters a whole under the next number, or ends it; its members have been destroyed. */
int weft__whole_add(struct weft__engine *engine, struct weft__whole *whole);
void weft__whole_drop(struct weft__engine *engine, struct weft__whole *whole);
/* That an object has failed and is no more: who sends to it is told so. */
void weft__whole_remember(struct weft__engine *engine, uint64_t number);
/* Gives back what has come for the members of a whole that is not here. */
void weft__whole_forget(struct weft__engine *engine, uint64_t number);

/* Something has happened to a whole. By the clock: the engine's time may be that of a step long
 * ago. */
static inline void weft__whole_touch(const struct weft__engine *engine, struct weft__whole *whole)
{
    if (whole->timed)
        whole->touched_ns = weft__engine_clock(engine);
}

/* What the object of a run takes. */
size_t weft__object_bytes(const struct weft_plan *plan);

/* A word of an object and a tag. Rotated, so that the number of a member stays in it. */
static inline uint64_t weft__object_key(uint64_t id, uint32_t tag)
{
    return (id << 32 | id >> 32) ^ tag;
}

/* Whether it is the number of a whole, not a run or a series. */
static inline int weft__object_is_whole(const struct weft__object *object)
{
    return object->whole && object == &object->whole->number;
}

/* Members of a whole are in chains one after the other, as objects are. */
static inline uint64_t weft__object_chain(uint64_t id)
{
    return id + (id >> WEFT__NUMBER_BITS);
}

/* The object with a number below engine->object_next; NULL: it has been destroyed. */
static inline struct weft__object *weft__object_find(const struct weft__engine *engine, uint64_t id)
{
    if (!engine->objects)
        return NULL;
    struct weft__object *object = engine->objects[weft__object_chain(id) & engine->object_mask];
    while (object && object->id != id)
        object = object->next;
    return object;
}

/* Whether something for a number is early: its object is still to be created here. Else *object is
 * that; NULL: it has been destroyed. */
static inline int weft__object_awaited(const struct weft__engine *engine, uint64_t id,
                                       struct weft__object **object)
{
    uint64_t number = WEFT__NUMBER(id);
    *object = NULL;
    if (number >= engine->object_next) {
        *object = id == WEFT__SEQUENCE ? (struct weft__object *)(uintptr_t)&engine->sequence : NULL;
        return !*object;
    }
    *object = weft__object_find(engine, id);
    if (*object || id == number)
        return 0;
    const struct weft__object *whole = weft__object_find(engine, number);
    return whole && whole->whole && id >> WEFT__NUMBER_BITS > whole->whole->member_count;
}

/* The rank of the context that a node's peer is bound to; WEFT_PEER_NONE possible. */
static inline int weft__peer(const struct weft_run *run, int32_t peer)
{
    return run->peers[peer];
}

static inline int weft__engine_has_gone(const struct weft__engine *engine, int rank)
{
    return engine->gone && engine->gone[rank / 8] >> (rank % 8) & 1;
}

static inline int weft__run_active(const struct weft_run *run)
{
    return atomic_load_explicit(&run->state, memory_order_relaxed) == WEFT__RUN_ACTIVE;
}

/* Whether a run is neither active nor about to be: it may be bound and started. */
static inline int weft__run_idle(const struct weft_run *run)
{
    int state = atomic_load_explicit(&run->state, memory_order_acquire);
    return state == WEFT__RUN_IDLE || state == WEFT__RUN_ENDED;
}

static inline struct weft__xfer *weft__xfer_of(struct weft__message *message)
{
    return (struct weft__xfer *)message; /* its first member */
}

/* Runs keep their transfers right behind themselves. */
#define WEFT__RUN_HEADER ((sizeof(struct weft_run) + 63) & ~(size_t)63)
static inline struct weft_run *weft__xfer_run(const struct weft__xfer *xfer)
{
    return (struct weft_run *)(void *)((char *)(uintptr_t)(xfer - xfer->index) - WEFT__RUN_HEADER);
}

/* Bytes of a region in this run; of its value only as many elements count as it has. */
static inline size_t weft__region_bytes(const struct weft_run *run,
                                        const struct weft__region *region)
{
    if (region->value == 0)
        return region->bytes;
    uint64_t value = run->values[region->value - 1];
    size_t element = run->plan->slots[region->slot].element;
    return value < region->bytes / element ? (size_t)value * element : region->bytes;
}

/* Byte `offset` of the payload of a message. By integers, since of one in pieces `data` is where it
 * would begin. */
static inline void *weft__source_at(const struct weft__message *source, size_t offset)
{
    return (void *)((uintptr_t)source->data + offset);
}

/* The memory at byte `offset` of a region, and in *bytes how far it is contiguous. */
char *weft__region_chunk(const struct weft_run *run, const struct weft__region *region,
                         size_t offset, size_t *bytes);

#endif
