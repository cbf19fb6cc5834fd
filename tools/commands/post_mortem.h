/* SPDX-License-Identifier: BSD-3-Clause */
/* What `weft post-mortem` knows of a program that hung: the states of its ranks, and why they wait.
 */
#ifndef WEFT_TOOLS_COMMANDS_POST_MORTEM_H
#define WEFT_TOOLS_COMMANDS_POST_MORTEM_H

#include "tools/cli/cli.h"

enum pm_state { PM_ENDED, PM_RETIRED, PM_BLOCKED, PM_READY, PM_RUNNING, PM_WAITING };
enum pm_stage { PM_IDLE, PM_QUEUED, PM_ACTIVE, PM_OVER };

/* No version has been started. */
#define PM_NO_VERSION (-1)

/* Member m of object N is N + m * 2^44 in the states; people read "N.m". */
#define PM_NUMBER_BITS 44
#define PM_NUMBER(id)  ((id) & ((1LL << PM_NUMBER_BITS) - 1))
/* The number of the sequence, which every rank has. */
#define PM_SEQUENCE ((1LL << PM_NUMBER_BITS) - 4097)

struct pm_message {
    long long object, version, from, tag, bytes;
};

struct pm_node {
    int number;
    weft_node_kind_t kind;
    enum pm_state state;
    int peer;      /* -1: none */
    long long tag; /* channel of an event or signal; -1: none */
    long long bytes;
    double since_s;    /* -1: not known */
    const char *label; /* of the JSON, or NULL */
    int line;          /* of the text that the schedule was read from; 0: not known */
    /* Of a receive that waits: a message that has come, matches nothing, and may be meant. */
    int has_instead;
    struct pm_message instead;
    int *after; /* numbers of unfinished predecessors */
    size_t after_count;
    /* while causes are looked for */
    int cause; /* its cause + 1; 0: not looked at; -1: being looked at */
};

enum { PM_NAME_BYTES = 44 };
enum pm_kind { PM_RUN, PM_SERIES, PM_OBJECT };

struct pm_object {
    long long number;
    char name[PM_NAME_BYTES];
    enum pm_kind kind;
    long long members; /* of an object, created so far */
    const char *plan;
    enum pm_stage stage;
    long long version;     /* active, or latest; PM_NO_VERSION */
    long long floor;       /* versions below have ended */
    long long failing;     /* the first that failed since one has succeeded; PM_NO_VERSION */
    int status;            /* PM_OVER, or negative: it was failing when the state was taken */
    const char *error;     /* its text, or NULL */
    struct pm_node *nodes; /* ascending in number */
    size_t node_count;
};

/* A dump; after pm_merge() all that is known of a rank. */
struct pm_rank {
    json_t *json;
    const char *path;
    const char *group;
    const char *why;
    int rank;
    int size;
    long long sequence;
    long long object_count; /* created so far */
    struct pm_object *objects;
    size_t count;
    struct pm_message *unmatched;
    size_t unmatched_count;
    int *left; /* ranks that have destroyed their contexts */
    size_t left_count;
};

/* Why something waits in the end. */
struct pm_cause {
    const char *kind;
    int rank; /* the culprit, as far as one can tell */
    int peer; /* who waits for it; -1 */
    long long object;
    long long version;
    int node;
    long long tag;
    char text[400];
    char chain[4000]; /* lines, from a node that waits to the cause */
    size_t waits;     /* nodes whose waiting ends here */
};

struct pm_program {
    struct pm_rank *ranks; /* ascending; of one group */
    size_t count;
    int size;
    struct pm_cause *causes;
    size_t cause_count, cause_capacity;
};

/** Reads a dump. 0, or the exit status after a line. */
int pm_load(struct pm_rank *rank, const char *path);
/** Puts the dumps of one rank together; those of a rank follow each other. *merged is the number of
 *  ranks. 0, or -1 without memory. */
int pm_merge(struct pm_rank *ranks, size_t count, size_t *merged);
void pm_free(struct pm_rank *rank);

/** Looks for the causes of every wait. 0, or -1 without memory. */
int pm_find_causes(struct pm_program *program);

/** NULL: no dump of that rank. */
struct pm_rank *pm_rank_of(const struct pm_program *program, int rank);
/** NULL: it has none of that number. */
struct pm_object *pm_object_of(const struct pm_rank *rank, long long number);
struct pm_node *pm_node_of(const struct pm_object *object, int number);
/** Whether a rank has created an object, or member of one, that it has no more. */
int pm_destroyed(const struct pm_rank *rank, long long number);
/** "3", or "3.1" for a member. Returns text. */
const char *pm_name(long long number, char text[PM_NAME_BYTES]);
/** The same, until the block ends. */
#define PM_NAME(number) pm_name((number), (char[PM_NAME_BYTES]){0})
/** Whether an object has failed by itself: not by a deadline, a peer or a cancellation. */
int pm_failed(const struct pm_object *object);
/** "node 3 `label`, line 12 (recv from rank 2, tag 7, 40 bytes)". */
void pm_describe(const struct pm_node *node, char *text, size_t size);

#endif
