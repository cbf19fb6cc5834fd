/* SPDX-License-Identifier: BSD-3-Clause */
/* The context: an engine, who drives it, and the settings. */
#ifndef WEFT_RUNTIME_CONTEXT_CONTEXT_H
#define WEFT_RUNTIME_CONTEXT_CONTEXT_H

#include "runtime/base/clock.h"
#include "runtime/context/seat.h"
#include "runtime/engine/device.h"
#include "runtime/engine/engine.h"
#include <pthread.h>

struct weft__part;
struct weft__family;
struct weft__gathering;
struct weft__serials;
struct weft__mover; /* device_memory.c */

enum { WEFT__INVITATION_LISTS = 64 };

/* Memory that has been given out: addresses, ascending. */
struct weft__memories {
    pthread_mutex_t lock;
    void **at;
    size_t count, capacity;
};

struct weft_context {
    struct weft__engine engine;
    struct weft_context_config config;
    /* What who drives looks at; of a family (part.h) the root's, but for the first two. */
    struct weft_context *root;  /* itself, if it is one */
    struct weft__part *part;    /* NULL: it is the root */
    struct weft_context *awake; /* those that take part in the steps */
    struct weft__seating seating;
    struct weft_run *doomed; /* each its own: destroyed in a callback, to be freed after the step */
    /* Odd while a thread drives the engine; one more each time it is taken or given back. */
    _Atomic uint32_t driven;
    /* Who has taken it last, and what `driven` was then; written in this order. */
    _Atomic uintptr_t driver;
    _Atomic uint32_t driver_turn;
    /* Sleepers on the bell while somebody drives: they need not be woken for each message. */
    _Atomic uint32_t parked;
    _Atomic uint32_t wanted;                    /* callers that wait for the engine */
    _Atomic uint32_t locking;                   /* of these, the ones in weft__drive_lock() */
    _Atomic uint32_t baton;                     /* futex of waiters that do not drive */
    _Atomic uint32_t waiters;                   /* on the baton */
    _Atomic(struct weft__commanded *) commands; /* what has been given some, latest first */
    _Atomic uint32_t reapable;   /* objects of the family are left to it and over, or contexts */
    _Atomic uint32_t heard;      /* invitations, and what else those may wait for who split */
    _Atomic uint32_t looking;    /* threads that look for who is present */
    struct weft__family *family; /* NULL until something has been split */
    /* From here on each its own. */
    struct weft_context *awake_next;
    int is_awake;
    int unserialled; /* there was no memory for `serials` once */
    /* That nobody has taken yet, by their ranks. */
    struct weft__message *invitations[WEFT__INVITATION_LISTS];
    struct weft__gathering *gatherings; /* calls that wait for some */
    struct weft__serials *serials;      /* NULL until there are any */
    uint64_t splits;                    /* calls so far */
    int has_withdrawn;                  /* one of them has ended before it had heard all */
    uint64_t *withdrawn; /* of subsets, those that have failed since a rank of them has died */
    size_t withdrawn_count, withdrawn_capacity;
    struct weft__message *shrink_messages; /* that weft_context_shrink() has not looked at yet */
    uint64_t shrinks;                      /* calls so far */
    int shrinking;                         /* the latest of them has not ended */
    struct weft__commanded commanded;
    struct weft_object *all_objects;
    /* Of the sequence: the run that was started last, or NULL, and its next version. Who starts one
     * writes them, without driving; who drives reads them and takes a run out that is freed. */
    _Atomic(struct weft_run *) sequence_run;
    _Atomic uint64_t sequence_next;
    _Atomic(struct weft__attachment *) attachments; /* latest first */
    _Atomic uint32_t objects_open; /* so many are not over; of the root: of the family */
    _Atomic uint32_t releasing;    /* threads in a `release` callback */
    /* What weft_context_abort() has been given: 1 while it is written, then 2. */
    _Atomic uint32_t aborting;
    int abort_status;
    char *abort_text;
    _Atomic uint32_t stopping;
    _Atomic uint32_t handed;                  /* a caller has left work to the helper */
    struct weft_run *runs;                    /* all of them */
    struct weft__memories memories;           /* the machine's; of the root, as what follows */
    struct weft__memories device_memories[2]; /* by weft_memory_t; the host's is pinned */
    int closed;                               /* its transport is no more */
    /* Of the list of all contexts of the process, and guarded by its lock. */
    struct weft_context *process_next, *process_previous;
    unsigned visitors; /* threads in weft_process_progress() that drive it */
    int leaving;       /* it is being destroyed */
    int process;       /* that has made it: forked ones have but a copy */
    struct weft_run *zombies;
    struct weft_series *all_series;
    pthread_t helper;
    _Atomic uintptr_t helper_self; /* that thread, set by itself */
    int has_helper;
    char *state_directory; /* where failures and stalls leave the state; NULL: nowhere */
    unsigned state_number; /* of the next one */
    int helper_thread;     /* hardware thread it is bound to, -1: any */
    struct weft_context *watched_next; /* list of those whose traces signals write */
    _Atomic unsigned traces_written;   /* virtual ranks: the last time they were asked to */
    struct weft_cost_model *cost;      /* of the file that WEFT_COST names, or NULL */
    /* Of the root; set once, when one is asked for. Release, and acquire: it is whole. */
    _Atomic(struct weft__device *) device;
    _Atomic(struct weft__mover *) mover; /* of the root: that nobody uses, or NULL */
    char *device_name;                   /* what config.device was */
    struct weft__issuer *issuer;         /* of the root: of its communicators; NULL: none so far */
};

/* ---- all contexts of the process: process.c ---- */

void weft__process_add(struct weft_context *context);
/* Waits until weft_process_progress() does not drive it, and never will. */
void weft__process_remove(struct weft_context *context);

/* What things cost on a context: by its file, its transport, or else as between local ranks. */
const struct weft_cost_model *weft__context_cost(const struct weft_context *context);

/* ---- memory: memory.c ---- */

/* Memory that the transport moves best; NULL: it has none, or none is left. Any thread. */
void *weft__context_alloc(const struct weft_context *context, size_t bytes);
/* Gives it back; 0: it is not the transport's. */
int weft__context_give_back(const struct weft_context *context, void *memory);
void weft__memories_open(struct weft__memories *memories);
/* Frees what is left; if there is a device, by its function. */
void weft__memories_close(struct weft__memories *memories, struct weft__device *device,
                          void (*give_back)(struct weft__device *device, void *memory));
/* 0, or -1: there is no room for one more in the list. Any thread. */
int weft__memories_add(struct weft__memories *memories, void *memory);
/* 1: it was in the list, and is not any more. Any thread. */
int weft__memories_remove(struct weft__memories *memories, const void *memory);

/* ---- its device: device.c ---- */

/* The device of a context and its family: opened when it is first asked for. Any thread. */
int weft__context_device(struct weft_context *context, struct weft__device **device);
/* Gives back what a root has of it. */
void weft__context_device_close(struct weft_context *root);
/* Makes a run's part on it. While driving. */
int weft__device_needed(struct weft_context *context, struct weft_run *run);
/* Where memory lies that is bound to a slot: *pinned is for weft__binding. */
int weft__device_check(const char *who, const struct weft_run *run, weft_slot_t slot,
                       const void *data, size_t bytes, int *pinned);

/* ---- driving: progress.c ---- */

/* Takes the engine if nobody drives it: 1, else 0. */
int weft__drive_try(struct weft_context *context);
/* Whether the calling thread drives it, which calls into weft only from a callback. */
int weft__drives(struct weft_context *context);
/* An error if a run of the sequence is under way. From any thread. */
int weft__sequence_check(const char *who, struct weft_context *context);
/* Takes the engine, waiting for whoever drives it to finish a step. */
WEFT__PRIVATE void weft__drive_lock(struct weft_context *context);
/* As weft__drive_lock(), until a time of the machine's clock. 1; 0: somebody drives on and on. */
int weft__drive_lock_until(struct weft_context *context, uint64_t until);
/* Gives it back. Commands that came meanwhile are carried out. */
WEFT__PRIVATE void weft__drive_unlock(struct weft_context *context);
/* Carries out what was commanded. While driving. */
void weft__drive_commands(struct weft_context *context);
/* One step for a driver: commands, then the engine. */
uint64_t weft__drive_step(struct weft_context *context, uint64_t now);
/* Hands a command for a run to whoever drives; carries it out at once if nobody does. */
void weft__command(struct weft_context *context, struct weft_run *run, uint32_t command);
/* The same for anything that takes commands. */
void weft__command_give(struct weft_context *context, struct weft__commanded *commanded,
                        uint32_t command, uint64_t now);
/* A stream of the user has got to where it starts a run, or fires an event. Driving. */
void weft__gate_open(struct weft_run *run);
void weft__gate_fire(struct weft_run *run, uint32_t node, uint64_t version);
/* Tells waiters that a run has ended. */
void weft__wake_waiters(struct weft_context *context);
/* Lets others go on, in a loop that waits for them, not driving. 0; negative: none ever will. */
int weft__yield(struct weft_context *context);
/* Drives or waits until done(argument) is not 0 or `until` has come. Returns done(argument), or
 * negative, with weft__error set, if neither will ever be. */
int weft__drive_until(struct weft_context *context, int (*done)(void *), void *argument,
                      uint64_t until, struct weft_run *stalled);
/* weft_context_progress(); whether runs of it, or of its family, are unfinished. */
int weft__progress(struct weft_context *context, int whole_family);
int weft__helper_start(struct weft_context *context);
void weft__helper_stop(struct weft_context *context);

/* The clock of a context: the transport's, or the machine's. */
uint64_t weft__clock(const struct weft_context *context);
/* When a timeout that begins now has passed, on that clock. */
uint64_t weft__time_after(const struct weft_context *context, uint64_t timeout_ns);
/* Whether the calling thread is the context's helper. */
int weft__helps(struct weft_context *context);

/* ---- for transports: context.c ---- */

/* Makes a context of a transport, which it takes over: closed with it, also when this fails. */
WEFT__PRIVATE int weft__context_create(struct weft_context **context,
                                       struct weft__transport *transport,
                                       const struct weft_context_config *config);

/* The context of a part that is still to begin, with its parent's settings; freed by
 * weft__context_free() as all are. While driving. */
int weft__context_child(struct weft_context **context, const struct weft_context *parent,
                        struct weft__part *part);
/* It has begun: from now on its trace is watched. Not while driving. */
void weft__context_begun(struct weft_context *context);
/* Gives back every message that nobody will receive any more. While driving. */
void weft__context_drop_messages(struct weft_context *context);
void weft__context_free(struct weft_context *context);

/* ---- families, for transports: family.c, part.c ---- */

/* A run of the family that is active, or NULL. */
struct weft_run *weft__family_active(const struct weft_context *root);
/* Writes the traces of a family, asked for by a signal. While driving. */
void weft__family_flush(struct weft_context *root, unsigned asked);
/* Whether a receive is posted for a message that the transport has not handed over yet. */
int weft__family_posted(const struct weft_context *root, const struct weft__message *message);

/* Reads what the caller of @who has given as @name, NULL or not, for the above. */
WEFT__PRIVATE int weft__context_config_read(const char *who, const char *name,
                                            const struct weft_context_config *given,
                                            struct weft_context_config *config);

/* Changes with the structures that companions (runtime/base/companion.h) reach into. */
#define WEFT__LAYOUT                                                                               \
    (((sizeof(struct weft_context) * 8191 + sizeof(struct weft__xfer)) * 8191 +                    \
      sizeof(struct weft__transport_ops)) *                                                        \
         8191 +                                                                                    \
     sizeof(struct weft__transport))
/* The first call of a companion: WEFT_OK if it is of this version and was compiled with these
 * structures. */
WEFT__PRIVATE int weft__companion_check(const char *companion, const char *version,
                                        uint64_t layout);

/* ---- runs without the user's side: run.c, run_bind.c ---- */

/* scratch: of at least the plan's need, to be shared; the run takes a reference. NULL: its own.
 * beside: a run that is never active at the same time, whose stream it has, too; or NULL. */
int weft__run_make(struct weft_run **run, struct weft_context *context, struct weft_plan *plan,
                   struct weft__scratch *scratch, struct weft_run *beside);
/* Scratch with one reference, of the host and of the device. */
int weft__scratch_create(struct weft__scratch **scratch, struct weft_context *context, size_t bytes,
                         size_t device_bytes);
void weft__scratch_release(struct weft__scratch *scratch);
void weft__run_free(struct weft_run *run);
int weft__run_computes(const struct weft_run *run);
/* Whether the transport still reads or writes buffers of a failed run, and will give them back: a
 * receive when MPI has ended it, a send when its receiver has taken or refused it. What a dead rank
 * has, or a transport that has failed, never comes back. While driving. */
int weft__run_is_lent(const struct weft_run *run);
/* Waits until they are the caller's again; drives for that, and others may meanwhile. While
 * driving, not in a step. */
void weft__run_regain(const struct weft_run *run);
void weft__run_leave(const struct weft_run *run);
void weft__run_bury(struct weft_context *context, int all);
/* Cancels and frees a run. While driving, but others may drive while it waits for computations. */
void weft__run_end(struct weft_run *run);
/* Frees what callbacks have destroyed and nobody is in any more. While driving, outside a step. */
void weft__run_reap(struct weft_context *context);
void weft__run_bury_closed(struct weft_context *context);
void weft__list_free(struct weft__list *list);
/* Whether the ranks of the plan are ranks of the context, and its own rank is the context's. */
int weft__run_has_peers(const struct weft_run *run);
void weft__run_prepare(struct weft_run *run, uint64_t version);
int weft__run_fire(struct weft_run *run, weft_node_t event, const uint64_t *version);
/* Whether a run may be started, with a version that is given or the next one, which *version
 * becomes. */
int weft__run_check_start(const char *who, const struct weft_run *run, uint64_t *version,
                          int explicit_version);
int weft__check_event(const struct weft_plan *plan, weft_node_t event, const char *who);

/* ---- series, as the engine tells and asks them (struct weft__host): series.c ---- */

void weft__series_ended(struct weft_series *series, struct weft_run *run, int status);
/* Of the engine's host, too. */
void weft__object_reclaimed(struct weft_context *context);
void weft__series_signalled(struct weft_series *series, const struct weft__message *message);
void weft__series_poked(struct weft_series *series);
/* A series of a context that belongs to no object, or NULL. */
struct weft_series *weft__series_loose(const struct weft_context *context);
uint64_t weft__series_due(struct weft_context *context, uint64_t now);
void weft__series_failed(struct weft_series *series, int status, const char *text);
void weft__series_all_failed(struct weft_context *context, int status, const char *text);

/* ---- objects, as the engine tells and asks them: object.c ---- */

void weft__object_failed_whole(struct weft__whole *whole);
void weft__object_signalled(struct weft__whole *whole, int from, uint32_t channel, uint64_t value);
/* Carries out weft_object_fail(). While driving. */
void weft__object_commanded(struct weft__commanded *commanded);
/* Ends those that have been left for too long; returns when the next may be. */
uint64_t weft__object_due(struct weft_context *context, uint64_t now);
/* Releases those that have been left and are over. Not while driving, and not in a callback. */
void weft__object_reap(struct weft_context *context);
/* Fails those of a context, and of a root's whole family, that have not been left: their rank has
 * returned. */
void weft__object_abandon(struct weft_context *context);
/* Releases what a context still has. Not while driving. */
void weft__object_release_all(struct weft_context *context);
/* Whether all are over. Any thread. */
int weft__object_all_over(const struct weft_context *context);
/* Waits for those that have been left, fails the others, and releases all. */
void weft__object_end_all(struct weft_context *context);
/* The whole of an object that is given in a configuration, or NULL. */
struct weft__whole *weft__object_whole(struct weft_object *object);
/* Whether members may be made of an object; @member is "config->object". */
int weft__object_check(const char *who, const char *member, const struct weft_object *object,
                       const struct weft_context *context);

/* ---- what libraries on top have attached: attach.c ---- */

/* Ends and frees them, the latest first. Not while driving. */
void weft__attachments_end(struct weft_context *context);

/* ---- the end: context.c ---- */

/* Fails every run and object of a context, now and later, telling nobody: nobody waits for it any
 * more. */
void weft__context_abort(struct weft_context *context, const char *text);
/* Carries out weft_context_abort(). While driving. */
void weft__context_aborted(struct weft_context *context);
/* The function of a local rank has returned. Tells the peers of a context that nobody will drive
 * any more: what they wait for fails. If it has a helper, which does drive it, they hear only that
 * it will not call anything that is collective. */
void weft__context_leave(struct weft_context *context);

/* ---- environment, read when a context is made: env.c ---- */
WEFT__PRIVATE void weft__env_apply(struct weft_context_config *config);
/* What the file that WEFT_COST names says of the context's transport; NULL: nothing (if the file
 * cannot be read, that is logged). */
struct weft_cost_model *weft__env_cost(const struct weft_context *context);
/* The host that WEFT_HOSTS gives process `rank` of `size`; -1: it is unset. WEFT_ERR_INVALID: it is
 * no such list. */
WEFT__PRIVATE int weft__env_host(int rank, int size, int *host);
/* WEFT_DUMP, for commits; the same. */
/* A variable that is set, and not to nothing; else NULL. */
const char *weft__env_text(const char *name);
/* A rank and a number of ranks, at most `most`, as launchers say them. WEFT_ERR_INVALID: one is
 * missing, or makes no sense; the text names it. */
int weft__env_rank(const char *who, const char *rank_name, const char *size_name, int most,
                   int *rank, int *size);
const char *weft__env_dump(void);
/* Writes one dumped plan into the directory; a failure is logged, not returned. */
void weft__env_dump_file(const char *directory, const char *name, int rank, int size,
                         unsigned number, const char *text, size_t length);

/* WEFT_TRACE and WEFT_STATE, directories; NULL if unset, or if nothing can be written there. */
const char *weft__env_trace(void);
const char *weft__env_state(void);
/* WEFT_TRACE_RECORDS, else `standard`. */
size_t weft__env_trace_records(const struct weft_context *context, size_t standard);

/* ---- recording: recorder.c, trace_collect.c ---- */

/* Starts recording if WEFT_TRACE says so; writes the file, and ends. While driving. */
int weft__recorder_open(struct weft_context *context);
/* Writes the file that WEFT_TRACE asks for, with what there is so far. While driving. */
void weft__recorder_flush(struct weft_context *context);
void weft__recorder_close(struct weft_context *context, int write);
/* Adds spans of what was recorded. While driving. */
struct weft_trace;
int weft__recorder_collect(struct weft_context *context, struct weft_trace *trace);

/* ---- files of a rank: rank_file.c ---- */

/* In *path the name of a new file, DIR/weft-WHAT.RANK-of-SIZE.PID.N.json, to be freed, with the
 * first N from *number that is free; *number becomes the next one. It is kept by an empty file
 * beside it, and comes to be by weft__rank_file_write(). WEFT_OK, WEFT_ERR_IO, WEFT_ERR_MEMORY. */
int weft__rank_file(const struct weft_context *context, const char *directory, const char *what,
                    unsigned *number, char **path);
/* Has the file beside it written, which gets the name then, or goes: whoever ends the process in
 * the middle leaves no half of a file under a name that is read. */
int weft__rank_file_write(const char *path, int (*write)(void *user, const char *part), void *user);
/* Whose messages and whose clock a transport has, as texts. */
enum { WEFT__ORIGIN_BYTES = 64 };
void weft__origin(const struct weft__transport *transport, char group[WEFT__ORIGIN_BYTES],
                  char clock[WEFT__ORIGIN_BYTES]);

/* ---- log.c, stall.c, state.c ---- */
void weft__log(const struct weft_context *context, weft_log_level_t level, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* The report's text (weft_run_report) while driving. NULL: no memory. */
char *weft__report(const struct weft_run *run);
/* The same of every unfinished run of a context. */
char *weft__report_all(const struct weft_context *context);
/* Logs the report, of a run or (NULL) of all, line by line. */
void weft__report_log(const struct weft_context *context, const struct weft_run *run,
                      weft_log_level_t level);
/* "missing: ..." in one line: which messages, receives, events have not come. */
void weft__report_missing(const struct weft_run *run, char *text, size_t size);
/* What has come in place of what a node waits for: as below, or "". */
void weft__report_unmatched(const struct weft_run *run, uint32_t node, char *text, size_t size);
/* The message in the table that a waiting receive was most likely meant to take, or NULL; and "a
 * message of rank 0 with tag 8, 16 bytes, version 0 has come and matches nothing". While driving;
 * unmatched.c. */
const struct weft__message *weft__unmatched_for(const struct weft_run *run, uint32_t node);
void weft__unmatched_text(const struct weft_run *run, const struct weft__message *message,
                          char *text, size_t size);
/* Leaves the state in the directory that WEFT_STATE says, if any. While driving; state.c. */
void weft__state_dump(struct weft_context *context, const char *why);
/* Ranks as "2, 5-7": sorts them. */
void weft__rank_list(int *ranks, size_t count, char *text, size_t size);

/* ---- traces of programs that signals end: trace_signal.c ---- */

/* While a context is watched, its trace is written if SIGTERM, SIGINT or SIGHUP comes. Not while
 * driving. */
void weft__trace_watch(struct weft_context *context);
void weft__trace_unwatch(struct weft_context *context);
/* How often traces have been asked for: for a transport that drives by itself. */
extern _Atomic unsigned weft__traces_asked;

#endif
