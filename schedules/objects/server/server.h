/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers (weft/server.h says what they do).
 *
 * Member w of the object is the exchange of worker w: one run on it, and one on every server. Its
 * version is the worker's step.
 *
 *     worker     ask, report ->   ready(l) -> push parts of l ->    <- pull parts of l, landed(l)
 *                                                                   <- reply
 *     server     started by ask   turn      recv into its room, came(p) ... merge ... send p
 *                                                                   answer -> reply
 *
 * Parts are ranges of layers, each on one server; a server has a room a worker for its parts.
 * `came` and the nodes behind it pend: they are completed by what follows, all of it on the thread
 * that drives the server's engine, so none of it needs a lock.
 *
 *     merge.c    BSP, OSP: a part that has come from all workers is merged by a local run, and sent
 *                to all of them
 *     order.c    ASP and its relatives: pushes are applied one after the other, in one order on all
 *                servers, which server 0 decides and tells the others within the exchange
 *     rank.c     OSP: importance of layers, added up over servers by member `tally`, and the layers
 *                that are late in the next step
 *
 * The last member, `door`, is where a worker says that it has left.
 *
 *     host, guest       a server, and what it knows of a worker
 *     share             what a server has of the model; a room is as large
 *     part              a piece of a layer on a server, which is pushed, merged and pulled
 *     unit              a segment of a part (WEFT_SERVER_PACED; else the part)
 *     slice             what a compute node does of a part, so that nothing waits long for it
 *     cell              a part of this server and a worker
 *     place             a number in the order of all updates and reads (order.c)
 *     holders, takers   servers that have parts; those that take part in exchanges
 */
#ifndef WEFT_SCHEDULES_OBJECTS_SERVER_SERVER_H
#define WEFT_SCHEDULES_OBJECTS_SERVER_SERVER_H

#include <stdatomic.h>

#include <weft/object.h>
#include <weft/run.h>
#include <weft/server.h>

#include "schedules/objects/model.h"
#include "schedules/objects/server/kernels.h"
#include "schedules/objects/server/threshold.h"
#include "schedules/objects/server/tune.h"

/* ---- what ranks tell each other: words of 8 bytes ---- */

/* A worker, to each server, with its push. Then a bitmap of its late layers. */
enum { REPORT_RATE, REPORT_HAS_LOSS, REPORT_LOSS, REPORT_COMPUTE, REPORT_WORDS };
/* Server 0, to a worker. Then a bitmap of the layers that are late in the next step. */
enum {
    REPLY_VERSION,
    REPLY_STALENESS,
    REPLY_GOODPUT,
    REPLY_COMPUTE,
    REPLY_MOST,
    REPLY_LATE,
    REPLY_HAS_LOSS,
    REPLY_FIRST_LOSS,
    REPLY_LOSS,
    REPLY_WORDS
};
/* Server 0, to the others: a place in the order of all that is done to the parameters. */
enum { PLACE_NUMBER, PLACE_KIND, PLACE_WORDS };

/* What is done at a place. */
enum { DO_NOTHING, DO_APPLY, DO_READ, DO_BOTH };

/* Compute operations. */
enum {
    OP_HOLD,
    OP_SIZE,
    OP_PACE,
    OP_ACKNOWLEDGED,
    OP_LANDED,
    OP_TURN,
    OP_REPORTED,
    OP_CAME,
    OP_PLACE,
    OP_GATE,
    OP_DUE,
    OP_ANSWER,
    OP_GATHER,
    OP_MERGE,
    OP_MERGED,
    OP_WEIGH,
    OP_NEXT,
    OP_APPLY,
    OPS
};

/* ---- where things lie ---- */

/* A range of a layer on a server. */
struct part {
    struct weft_server_part is;
    size_t at;         /* in its server's share of the model, in elements */
    size_t first_unit; /* its segments (WEFT_SERVER_PACED; else it is one) */
    size_t units;
};

struct layer {
    size_t first_tensor, tensor_count;
    size_t count;
    size_t at; /* in the model, in elements */
    size_t first_part, part_count;
};

/* ---- a worker ---- */

enum { COMPUTED = 8 }; /* steps whose computing times are kept */

/* A layer in a step. */
struct worker_layer {
    int announced, waited;
    int absent;
    int late;         /* in the step under way, or to come */
    int pulled;       /* 1: `fresh` has what the servers have of it, the tensors a prediction */
    int bound;        /* as what its slots are bound: 1 + late; 0: not yet */
    uint64_t version; /* updates in the tensors, but for what is predicted */
    uint64_t pulled_version;   /* those in `fresh` */
    weft_node_t ready, landed; /* nodes of the exchange */
    weft_slot_t push, pull;
};

struct worker {
    struct weft_run *run; /* the own exchange */
    struct worker_layer *layers;
    size_t announced, waited;
    int in_step, under_way; /* a step; a version of the run */
    uint64_t next;
    int has_optimiser;
    char *memory;   /* of those that follow */
    char *kept;     /* OSP: gradients of late layers; who has the optimiser: its updates */
    char *fresh;    /* OSP: what was pulled for late layers (keeps_base: for all) */
    char *base;     /* keeps_base: the servers' parameters before the step */
    char *last;     /* keeps_base: their last change */
    char *average;  /* keeps_base, osp_average: the average of changes */
    char *velocity; /* who has the optimiser */
    uint64_t *report, *reply;
    double rate, loss;
    int has_loss;
    uint64_t last_ready, waited_between, compute_ns;
    uint64_t computed[COMPUTED]; /* a ring */
    size_t computed_count;
    uint64_t pulled_version, restored_version; /* updates in what was last pulled */
    int begins; /* the last step is still to end before this one begins */
    struct weft_server_result result, last_result;
    struct weft_osp_tuning tuning;
    unsigned char *saved_late; /* of a state: late, and 2 if pulled */
    /* On the thread that drives the engine. */
    atomic_size_t to_land;           /* important layers that have not */
    atomic_uint_least64_t landed_ns; /* when the last of them has */
    struct weft_call **held;
    struct weft_call **waiting; /* a ring of calls that wait for room on the way, a server each */
    size_t *waiting_first, *waiting_count, *on_the_way;
};

/* ---- a server ---- */

struct server_part {
    struct weft_server *server;
    size_t part;              /* of all */
    struct weft_run *merge;   /* BSP, OSP */
    struct weft_call *gather; /* its first node, which pends until all have come */
    size_t came;              /* workers that wait for it */
    size_t mean;              /* OSP: in whose room the mean gradient is */
};

/* A worker, on a server. */
struct guest {
    struct weft_server *server;
    int present, left, running; /* `left` is known before the server is open */
    struct weft_run *run;       /* its exchange here */
    uint64_t asked;             /* 1 + the step that it has last asked for */
    uint64_t begun;             /* 1 + the step that its exchange here has begun with */
    uint64_t clock;             /* steps whose push has come; with BSP and OSP, begun */
    uint64_t pulled;            /* updates in what it has last pulled */
    uint64_t staleness;         /* of its last push */
    uint64_t asked_at;          /* when, by a count: who has waited longest */
    size_t to_come;             /* parts that its turn lasts for */
    /* Nodes that pend. */
    struct weft_call *turn, *gate, *due, *answer;
    int turning;
    int read; /* what it is to be sent is in its room */
    int goes; /* it need not wait for others in this step */
    /* What is to be done at places of the order: DO_NOTHING: none. */
    struct {
        uint64_t number;
        int kind;
    } places[2];
    uint64_t *report, *reply, *order, *release;
};

struct host {
    int index;
    size_t count;     /* elements of its share */
    char *parameters; /* its share; the velocity and the rooms behind it, in one allocation */
    char *velocity;
    char *rooms;
    struct server_part *parts;
    size_t part_count;
    struct guest *guests;     /* a worker each */
    uint64_t *words;          /* of theirs */
    uint64_t *saved_clocks;   /* of a state */
    struct weft_call **calls; /* of `came`: a part of this server and a worker each; or NULL */
    unsigned char *empty;     /* likewise: nothing was pushed */
    const void **lists;       /* rooms of a merge */
    double *weights;          /* of a merge */
    size_t present;
    size_t turns_taken;
    uint64_t asks;
    size_t turn_of; /* R2SP */
    /* The order. */
    uint64_t next_place, done_places;
    struct weft_run *work;
    size_t open_runs;       /* of merges and of work that have been started */
    struct weft_call *next; /* its first node, which pends until there is something to do */
    size_t working;         /* the worker that it is done for */
    int work_kind;
    int touched; /* it has changed something */
    uint64_t updates;
    struct weft__threshold threshold;
    /* OSP. */
    struct weft_run *tally;
    /* A layer each, of this server; behind it on server 0 those of the others, on the others what
     * is being sent. */
    double *importance;
    int tallying, tally_wanted;
    size_t weighed;
    uint64_t ranked; /* steps for which late layers are known */
    struct weft__tune tune;
    struct weft__goodput goodput;
    struct weft__tuned tuned;
    size_t reported; /* workers, in the step under way */
    struct stage {
        uint64_t began_ns, bytes;
        size_t came, expected; /* parts */
    } stages[2];               /* important, late */
    unsigned char *late;
    uint32_t *order;
    size_t *layer_bytes;
    /* Workers are served from the end of the creation on, which this run tells the engine. */
    struct weft_run *opening;
    int open;
    /* For serve(). */
    struct weft_run *over;
    weft_node_t over_event;
    int served;
    atomic_int all_left;
    atomic_uint_least64_t pushes, received, sent, applied, ahead;
};

struct weft_server {
    struct weft_context *context;
    struct weft_object *object;
    struct weft__model model;
    struct weft_piece *gradients; /* owned; NULL where there are none */
    struct weft_server_config config;
    int rank, size;
    size_t workers, servers;
    int is_worker;
    size_t element;
    struct layer *layers;
    size_t layer_count;
    struct part *parts;
    size_t part_count;
    size_t unit_count, unit_elements;
    size_t words;  /* of a bitmap of layers */
    uint64_t *ids; /* 0, 1, 2 ...: what graphs tell their functions */
    size_t id_count;
    double *weights;  /* a worker each: its weight by the mean */
    uint64_t *pulled; /* a worker each: updates in what it had pulled when it began; 0: all */
    uint64_t *steps;  /* likewise: the step that it began with */
    struct weft__server_update update;
    double push_share; /* of a push that is applied by itself, beside its weight */
    struct weft_op *ops[OPS];
    struct worker worker;
    struct host host;
    struct weft_run *door;
    struct weft_server_state state; /* of the creation */
    struct weft_server_stats stats; /* of the thread of the application */
    /* What the thread that drives the engine looks at has been made: before that nothing pends. */
    atomic_int made;
    /* On that thread: it has failed; all ranks have left. */
    int broken, settled;
};

/* Rates and losses are no larger. */
#define WEFT__SERVER_MOST_REAL 1e300

/* ---- roles ---- */

static inline int weft__server_hosts(const struct weft_server *server)
{
    return server->host.index >= 0;
}

/* The rank of a server. */
static inline int weft__server_rank(const struct weft_server *server, size_t index)
{
    return (int)(server->config.place == WEFT_SERVER_COLOCATED ? index : server->workers + index);
}

/* Whether all workers' pushes are merged: BSP and OSP. */
static inline int weft__server_merges(const struct weft_server *server)
{
    return server->config.sync == WEFT_SERVER_BSP || server->config.sync == WEFT_SERVER_OSP;
}

static inline int weft__server_is_osp(const struct weft_server *server)
{
    return server->config.sync == WEFT_SERVER_OSP;
}

static inline int weft__server_has_turns(const struct weft_server *server)
{
    return server->config.sync == WEFT_SERVER_R2SP || server->config.flow == WEFT_SERVER_TURNS;
}

static inline int weft__server_has_gates(const struct weft_server *server)
{
    return server->config.sync == WEFT_SERVER_SSP || server->config.sync == WEFT_SERVER_DSSP;
}

/* OSP: whether predictions need to know how the servers' parameters have changed. */
static inline int weft__server_keeps_base(const struct weft_server *server)
{
    return weft__server_is_osp(server) &&
           (server->config.osp_average > 0 ||
            (server->config.momentum > 0 && server->config.optimiser == WEFT_SERVER_UPDATES));
}

static inline char *weft__server_flat(const struct weft_server *server, char *flat, size_t at)
{
    return flat + at * server->element;
}

static inline char *weft__server_room(const struct weft_server *server, size_t worker, size_t at)
{
    return server->host.rooms + (worker * server->host.count + at) * server->element;
}

static inline uint64_t weft__real_word(double number)
{
    union {
        double real;
        uint64_t word;
    } both = {.real = number};
    return both.word;
}

static inline double weft__word_real(uint64_t word)
{
    union {
        uint64_t word;
        double real;
    } both = {.word = word};
    return both.real;
}

/* ---- graph.c ---- */

enum { WEFT__SERVER_ASK, WEFT__SERVER_LEFT }; /* channels */

/* What the exchange of a worker is on this rank: `worker` and `host` may both be so. */
int weft__server_build_exchange(struct weft_schedule **schedule, struct weft_server *server,
                                int worker, int host);
/* Part `mine` of this server: from gathering to weighing. */
int weft__server_build_merge(struct weft_schedule **schedule, const struct weft_server *server,
                             size_t mine);
/* What is done at a place of the order. */
int weft__server_build_work(struct weft_schedule **schedule, const struct weft_server *server);
int weft__server_build_tally(struct weft_schedule **schedule, const struct weft_server *server);
int weft__server_build_door(struct weft_schedule **schedule, const struct weft_server *server);
/* Servers that have parts are 0 .. this - 1. */
size_t weft__server_holders(const struct weft_server *server);
/* For so many segments there are tags. */
size_t weft__server_most_units(void);
/* Servers that take part in exchanges, likewise. The others have nothing to say to a worker, which
 * would not wait for them: they could miss a step. */
size_t weft__server_takers(const struct weft_server *server);
int weft__server_takes(const struct weft_server *server);

/* ---- runs.c ---- */

int weft__server_make_ops(struct weft_server *server);
/* Makes all runs: the same members on all ranks. */
int weft__server_make_runs(struct weft_server *server);
/* Starts those that wait for what comes. */
int weft__server_start_runs(struct weft_server *server);
void weft__server_destroy_runs(struct weft_server *server);

/* ---- server.c ---- */

void weft__server_count(const struct weft_server *server, struct weft_server_stats *stats);

/* ---- worker.c ---- */

/* The end of the last version of the exchange. */
int weft__server_end_version(const char *who, struct weft_server *server);

/* ---- stages.c: compute functions ---- */

int weft__server_hold(struct weft_call *call);
int weft__server_size(struct weft_call *call);
int weft__server_pace(struct weft_call *call);
int weft__server_acknowledged(struct weft_call *call);
int weft__server_landed(struct weft_call *call);

/* ---- host.c: who comes and leaves ---- */

void weft__server_asked(void *user, struct weft_run *run, int from, uint32_t channel,
                        uint64_t version);
void weft__server_left(void *user, struct weft_run *run, int from, uint32_t channel,
                       uint64_t version);
void weft__server_opened(void *user, struct weft_run *run, int status);
void weft__server_exchanged(void *user, struct weft_run *run, int status);
void weft__server_settled(void *user, struct weft_object *object, uint64_t largest);
/* Runs that wait for what comes have ended: nothing is left to do if all have left. */
void weft__server_look_done(struct weft_server *server);
void weft__server_failed(void *user, struct weft_object *object, int status);
int weft__server_turn(struct weft_call *call);
int weft__server_reported(struct weft_call *call);
int weft__server_came(struct weft_call *call);
int weft__server_answer(struct weft_call *call);
/* Which worker, part or layer an argument says. */
size_t weft__server_id(const struct weft_call *call, size_t argument);
/* Ends a node that pends, if it does. */
void weft__server_complete(struct weft_call **call, int status);
/* The slot of a part of this server and a worker in `calls` and `empty`. */
size_t weft__server_cell(const struct weft_server *server, size_t mine, size_t worker);

/* ---- merge.c ---- */

/* Something has come for a part, or a worker has left. */
void weft__server_look(struct weft_server *server, size_t mine);
int weft__server_gather(struct weft_call *call);
int weft__server_merge_slice(struct weft_call *call);
int weft__server_merged(struct weft_call *call);
int weft__server_weigh_slice(struct weft_call *call);
void weft__server_merge_ended(void *user, struct weft_run *run, int status);

/* ---- order.c ---- */

int weft__server_take_place(struct weft_call *call);
int weft__server_gate(struct weft_call *call);
int weft__server_due(struct weft_call *call);
int weft__server_next_work(struct weft_call *call);
int weft__server_apply_slice(struct weft_call *call);
void weft__server_work_ended(void *user, struct weft_run *run, int status);
/* Clocks have changed, or a worker has left: others may go on. */
void weft__server_open_gates(struct weft_server *server);

/* ---- rank.c ---- */

/* All parts of this server have been weighed in a step. */
void weft__server_tally(struct weft_server *server);
void weft__server_tallied(void *user, struct weft_run *run, int status);
/* A part of a push has come; all workers have begun to push. */
void weft__server_measure(struct weft_server *server, int late, uint64_t bytes);
void weft__server_all_asked(struct weft_server *server);
/* Fills what a worker is told. */
void weft__server_fill_reply(struct weft_server *server, size_t worker, uint64_t version);

#endif
