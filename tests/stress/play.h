/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A play: ranks in virtual time, the collective objects that they make, and the deeds of some of
 * them that disturb the others. Everything is drawn from a seed.
 *
 * A play is given twice. The rehearsal has no deeds and tells how many events there are, and when.
 * The performance is the same up to the event that a deed is bound to. Nothing else decides, so a
 * seed that fails fails again.
 */
#ifndef WEFT_TESTS_PLAY_H
#define WEFT_TESTS_PLAY_H

#include <weft/weft.h>

enum { PLAY_RANKS = 24, PLAY_STEPS = 9, PLAY_OBJECTS = 2, PLAY_DEEDS = 2, PLAY_TEXT = 768 };

/* A rank that has left may be waited for so long, or drawn shorter. */
#define PLAY_LEAVE_NS UINT64_C(2000000000)

/* ---- objects ---- */

struct play;
struct play_object;

/* What is done to one kind of object. Statuses are those of its calls. */
struct play_kind {
    const char *name;
    int leaves;    /* 1: ranks may take different numbers of steps */
    int needs_all; /* 1: there are calls that fail when a rank has left before */
    int gives_up;  /* 1: others fail when a rank leaves in the middle of a step */
    int waits;     /* for how many deadlines a step may wait */
    /* Draws settings; `steps` and `deadline_ns` of the object are there. */
    void (*draw)(struct play_object *object, uint64_t *random);
    int (*begin)(struct play_object *object, struct weft_context *context, int rank);
    int (*step)(struct play_object *object, int rank, int step);
    int (*fail)(struct play_object *object, int rank, int status, const char *text);
    /* Destroys the object of a rank, and frees its actor. */
    int (*end)(struct play_object *object, int rank);
    /* Compares every step that has succeeded with what it should have given. 0 and a text, if one
     * is wrong. */
    int (*judge)(struct play_object *object, char text[PLAY_TEXT]);
    /* Frees what the settings point to; NULL: they point to nothing. */
    void (*free)(struct play_object *object);
};

extern const struct play_kind play_group, play_pair, play_gossip, play_sparse, play_merged,
    play_compressed, play_server;

/* How a rank fared with an object. */
struct play_report {
    int status;   /* the first that was not WEFT_OK */
    int step;     /* in which; -1: creation, PLAY_STEPS: the end */
    int overdue;  /* 1: a call took longer than it may */
    int returned; /* 1: its life has ended, well or not */
    uint64_t at_ns, took_ns, may_take_ns;
    char text[PLAY_TEXT];
};

struct play_object {
    const struct play_kind *kind;
    struct play *play;
    int number; /* of the object, from 0 */
    int ranks;
    int unequal;           /* 1: ranks take different numbers of steps */
    int steps[PLAY_RANKS]; /* that each rank is to take, fewer once it has left */
    int taken[PLAY_RANKS]; /* and has taken */
    uint64_t seed;
    uint64_t deadline_ns; /* of its calls; 0: none */
    uint64_t meet_ns;     /* of its creation; 0: none */
    uint64_t leave_ns;
    int patience;      /* a step is given up after so many deadlines; 0: it is not */
    uint64_t sleep_ns; /* the longest between two calls */
    void *settings;    /* of the kind, from play_take() */
    void *actors[PLAY_RANKS];
    struct play_report reports[PLAY_RANKS];
};

/* ---- deeds ---- */

enum play_deed {
    PLAY_NOTHING,
    PLAY_ABORT,   /* weft_context_abort(), at the very event */
    PLAY_FAIL,    /* weft_..._fail(), when the rank's function comes by */
    PLAY_ERROR,   /* it destroys its objects and returns an error */
    PLAY_RUN,     /* it returns an error and leaves its objects behind */
    PLAY_LEAVE,   /* it destroys an object before its last step */
    PLAY_ABANDON, /* it returns as if all were well, and leaves its objects behind */
    PLAY_STOP,    /* nothing is heard of it any more */
    PLAY_PAUSE,   /* for a while */
    PLAY_MEMORY,  /* the next allocation fails */
    PLAY_DEED_KINDS
};

struct play_event {
    enum play_deed deed;
    int rank;
    int object;     /* PLAY_FAIL, PLAY_LEAVE: which */
    double share;   /* of the events that come before it */
    uint64_t event; /* number */
    uint64_t for_ns;
    long skipped; /* PLAY_MEMORY: allocations that succeed first */
    int due, done;
    int victim; /* PLAY_MEMORY: whose allocation failed; -1: none */
};

/* ---- the play ---- */

struct play {
    uint64_t seed;
    int ranks, object_count, event_count;
    struct play_object objects[PLAY_OBJECTS];
    struct play_event events[PLAY_DEEDS];
    struct weft_virtual_config network;
    struct weft_virtual_fault faults[PLAY_DEEDS];
    struct weft_net net;
    int tells;      /* 1: who fails returns its error */
    int crossed;    /* 1: ranks destroy objects in different orders */
    int rehearsing; /* 1: without deeds */
    int verbose;
    /* Of the performance. */
    struct weft_context *contexts[PLAY_RANKS];
    uint64_t random[PLAY_RANKS];
    uint64_t happened;        /* events so far */
    int latest;               /* whose the latest was */
    uint64_t now_ns, back_ns; /* when that was, and how far time has gone back, at most */
    uint64_t *times;          /* of the events of the rehearsal */
    size_t time_count, time_capacity;
    int status; /* of the run */
    char text[PLAY_TEXT];
};

/* What is asked for instead of being drawn; -1, NULL: nothing. */
struct play_wish {
    const struct play_kind *kind;
    int deed;
};

void play_draw(struct play *play, uint64_t seed, const struct play_wish *wish);
/* Its settings in a line. */
void play_describe(const struct play *play, char text[PLAY_TEXT]);
/* Gives it once. */
void play_perform(struct play *play);
/* 0 and a text if something was wrong. */
int play_judge(struct play *play, char text[PLAY_TEXT]);
/* Frees what the objects stood in. */
void play_end(struct play *play);

const char *play_deed_name(enum play_deed deed);
/* What a rank says when it fails by design. */
void play_words(const struct play *play, int rank, char *text, size_t size);

/* ---- for kinds ---- */

uint64_t play_random(uint64_t *state);
int play_below(uint64_t *state, int bound);
/* Memory that the library does not count; never NULL. */
void *play_take(size_t count, size_t size);

/* An actor of a kind that averages arrays begins so. */
struct play_actor {
    const struct play_object *object;
    struct weft_context *context;
    uint64_t random;
};

/* The actor of a rank, of so many bytes, in its place among those of the object. */
void *play_actor_make(struct play_object *object, struct weft_context *context, int rank,
                      size_t bytes);
/* Frees it; returns the status of the end of what it had. */
int play_actor_end(struct play_object *object, int rank, int status);
/* Repeats `wait` while it says WEFT_ERR_TIMEOUT, as often as the object's patience allows. */
int play_actor_wait(const struct play_actor *actor, int status, int (*wait)(void *), void *of);
/* Sleeps for a while, drawn. */
void play_actor_sleep(struct play_actor *actor);
/* How long the calls of a configuration may take. */
#define PLAY_TIMES(object, config)                                                                 \
    ((config)->deadline_ns = (object)->deadline_ns, (config)->meet_ns = (object)->meet_ns,         \
     (config)->leave_ns = (object)->leave_ns)

#endif
