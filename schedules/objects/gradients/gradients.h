/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of weft/gradients.h.
 *
 * Layers have their numbers in the model; a *position* is a place in the order of the backward
 * pass. A plan says which layers are summed together, a *way* how that is done.
 *
 *     trainer's threads      announce -> way->ready          wait -> way->wait
 *                                 |                             ^
 *     engine                      +--> the sums of the plan ----+
 *
 * Everything of a step that several threads may change is under `lock`, which is held for a few
 * instructions: nobody waits, allocates or computes with it. A plan changes while no step is open
 * and nobody is in a wait.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_GRADIENTS_GRADIENTS_H
#define WEFT_SCHEDULES_OBJECTS_GRADIENTS_GRADIENTS_H

#include <pthread.h>
#include <weft/gradients.h>
#include <weft/merge.h>
#include <weft/object.h>
#include <weft/run.h>
#include <weft/template.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/model.h"

/* A layer of the model. */
struct weft__gradients_layer {
    size_t first, tensor_count; /* tensors */
    size_t offset, count;       /* elements of the model */
};

/* Layers that are summed together: in ascending order of the model, which is the order of their
 * elements in the sum on every rank. */
struct weft__gradients_group {
    const size_t *layers; /* of the plan */
    size_t layer_count;
    size_t count; /* elements */
};

/* Nanoseconds of a group in a step on the context's clock; 0: not measured. */
struct weft__gradients_span {
    uint64_t start, end;
};

/* What this rank has sent and copied in all steps of a plan. */
struct weft__gradients_traffic {
    uint64_t messages, bytes, copied_bytes;
};

/* What compression came to in a step. */
struct weft__gradients_compression {
    size_t groups;   /* that were compressed */
    double elements; /* of all groups */
    double bits;     /* that they have taken */
    double squares;  /* of what was to be sent, where it is known what was dropped */
    double dropped;  /* likewise: of that */
};

struct weft__gradients_plan {
    uint64_t since;                       /* its first step */
    struct weft_merge_plan *merge;        /* what was predicted; owned */
    size_t *order;                        /* position -> layer; owned */
    size_t *layers;                       /* of all groups; owned */
    struct weft__gradients_group *groups; /* in the order in which they are sent; owned */
    size_t group_count;
    size_t *group_of; /* by layer; owned */
    void *sums;       /* of the way */

    /* The step under way or the last; the way fills them in at its end. */
    struct weft__gradients_span *spans; /* by group; owned */
    struct weft__gradients_traffic sent;
    struct weft__gradients_compression compression;

    /* Of the last step, for weft_gradients_get_plan(). */
    int measured;
    double *ready_us;          /* by position; owned, and the next two of the same memory */
    double *start_us, *end_us; /* by group */
};

/* How the groups of a plan are summed. */
struct weft__gradients_way {
    const char *name;
    /* Makes plan->sums. Local, does not block, allocates all it needs: runs of g->object, the same
     * number on all ranks. before: the plan in force so far, between steps; NULL at the creation,
     * with the checkpoint's state, or NULL. */
    int (*create)(struct weft_gradients *g, struct weft__gradients_plan *plan,
                  struct weft__gradients_plan *before, const struct weft_gradients_state *state);
    /* A step begins: once, before any announcement. Does not block. With g->lock. */
    int (*begin)(struct weft_gradients *g, struct weft__gradients_plan *plan);
    /* A layer's gradient is there, or its tensors are 0. Any thread, each layer once. Does not
     * block. Without g->lock. */
    int (*ready)(struct weft_gradients *g, struct weft__gradients_plan *plan, size_t layer);
    /* Waits until the layer's tensors hold the result. until: a time on the context's clock, or
     * WEFT_NEVER. Any thread, several at once. WEFT_IN_PROGRESS: not by then. */
    int (*wait)(struct weft_gradients *g, struct weft__gradients_plan *plan, size_t layer,
                uint64_t until);
    /* All layers have been waited for: what is left of the step ends, spans and counts are filled
     * in. One thread. After WEFT_IN_PROGRESS it is called again. */
    int (*end)(struct weft_gradients *g, struct weft__gradients_plan *plan, uint64_t until);
    /* What the step waits for, as a text for weft_memory_free(), or NULL. Any thread. */
    char *(*report)(struct weft_gradients *g, struct weft__gradients_plan *plan);
    /* This rank begins no step any more: tells the others. */
    void (*quit)(struct weft_gradients *g, struct weft__gradients_plan *plan);
    /* Also of what is half made. */
    void (*destroy)(struct weft_gradients *g, struct weft__gradients_plan *plan);
    /* NULL: warm-up. Between steps: of the next one. */
    weft_compressed_phase_t (*phase)(const struct weft__gradients_plan *plan);
    /* NULL: nothing is compressed. Between steps. */
    int (*tensor)(const struct weft_gradients *g, const struct weft__gradients_plan *plan,
                  size_t tensor, struct weft_gradiveq_tensor *info);
    /* NULL: nothing. Between steps; with state->failed, whenever nobody else is in a call. */
    int (*save)(struct weft_gradients *g, struct weft__gradients_plan *plan,
                struct weft_gradients_state *state);
};

extern const struct weft__gradients_way weft__gradients_dense;
extern const struct weft__gradients_way weft__gradients_sparse;
extern const struct weft__gradients_way weft__gradients_compressed;

/* What has become of a layer in the step under way. */
enum {
    WEFT__LAYER_ANNOUNCED = 1,
    WEFT__LAYER_ABSENT = 2,
    WEFT__LAYER_WAITED = 4, /* for, or by who ends the step */
    WEFT__LAYER_GIVEN = 8,  /* who has waited was told that its sum is there */
};

/* How far the ranks are on the way to their next plan. Exchanges are posted at the end of a step
 * and waited for at the end of the next one, so that they delay none. */
enum weft__gradients_phase {
    WEFT__PLAN_SETTLED,   /* times are not measured, until `check` */
    WEFT__PLAN_MEASURING, /* they are: `sample_count` steps so far */
    WEFT__PLAN_AGREEING,  /* the largest times of all ranks are being found */
    WEFT__PLAN_DECIDING,  /* rank 0 tells its groups */
};

/* How the ranks come to their plans (plans.c). */
struct weft__gradients_planning {
    enum weft__gradients_phase phase;
    uint64_t check;      /* the step after which times are measured again */
    uint64_t *samples;   /* measure_steps times of each layer; owned */
    size_t sample_count; /* steps */
    uint64_t *times;     /* by layer, nanoseconds: agreed on; owned */
    int timed;           /* they are known */
    uint64_t *agreeing;  /* by layer: of the exchange; owned */
    uint64_t *decision;  /* 1 + layer_count words: number of groups, their sizes; owned */
    size_t *restored; /* the order of a checkpoint's groups, whose sizes are in `decision`; owned,
                         or NULL */
    struct weft_run *agree, *decide; /* NULL: one rank, or no layers */
    struct weft__gradients_traffic per_agree, per_decide;
    struct weft__gradients_traffic sent; /* of them, and of plans that are no more */
    uint64_t checks, plans;
};

struct weft_gradients {
    struct weft_context *context;
    struct weft_object *object;
    int rank, ranks;
    struct weft_gradients_config config; /* without borrowed pointers */
    struct weft_merge_config merge;
    size_t *group_layers; /* of WEFT_MERGE_GIVEN; owned */
    struct weft_sparse_average_config sparse;
    double *warmup;                                       /* of sparse; owned */
    struct weft__gradients_compressed_config *compressed; /* owned; NULL: another method */
    struct weft__model model;
    struct weft__gradients_layer *layers; /* owned */
    size_t layer_count;
    const struct weft__gradients_way *way;
    struct weft__surroundings surroundings;

    /* What an allreduce costs: the same on all ranks. */
    struct weft_merge_point *points; /* owned; or NULL */
    struct weft_merge_cost cost;
    int given_cost, measured_cost;
    int given_times;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a wait has been left, or a step has ended */
    /* Under it. */
    uint64_t next;                 /* the step under way, or to come */
    weft_compressed_phase_t phase; /* of it */
    int open;                      /* it has begun */
    int ending;                    /* a thread ends it */
    size_t announced, absent, waited, waiters;
    unsigned char *states;  /* by layer; owned */
    uint64_t *announced_ns; /* by layer, in the step under way; owned */
    uint64_t began_ns, waited_ns;
    struct weft_gradients_result result; /* of the last step */
    struct weft_gradients_result *asked; /* a wait_all's, for the step under way; or NULL */
    int untold;                          /* no wait_all was told of the end of the last step */
    struct weft_gradients_stats stats;   /* of all */
    int bad; /* gradients of this step were not finite: what who ends it is told */
    char bad_text[320];

    /* Of who ends steps: while nobody else does. */
    struct weft__gradients_plan *plan; /* in force; owned */
    int ended;                         /* the way has ended the step */
    struct weft_gradients_result ending_result;
    struct weft_gradients_stats before; /* of the checkpoint */
    struct weft__gradients_planning planning;
    uint64_t first; /* the step of the creation */
    /* Of weft_gradients_get_state(); all owned. */
    uint64_t *agreed;
    uint64_t *taken;     /* by layer */
    unsigned char *kept; /* by layer */

    uint64_t *taken_before; /* by layer: at the creation; owned */
    /* Of an object before that has failed: its residual, to which there comes what was not sent;
     * owned. NULL: nothing was. */
    float *residual;
};

/* ---- create.c ---- */

/* WEFT_ERR_MEMORY: for what there is none. */
int weft__gradients_no_memory(const char *what, size_t count);
void weft__gradients_add_traffic(struct weft__gradients_traffic *to,
                                 const struct weft__gradients_traffic *what);
/* Adds what a schedule sends. */
void weft__gradients_count_sends(struct weft__gradients_traffic *traffic,
                                 const struct weft_schedule *schedule);

/* ---- gradients.c ---- */

/* Finds out what phase the next step is of. Under the lock, or before anybody has the object. */
void weft__gradients_look_at_phase(struct weft_gradients *g);

/* Until a time on the context's clock. */
uint64_t weft__gradients_left(const struct weft_gradients *g, uint64_t until);
/* weft_gradients_wait() until a time on the context's clock. */
int weft__gradients_wait_layer(struct weft_gradients *g, const char *who, size_t layer,
                               uint64_t until);
/* Who ends the step under way is told of gradients that were not finite: as the error text says. */
void weft__gradients_keep_bad(struct weft_gradients *g, int status);
/* WEFT_ERR_STATE in a step. */
int weft__gradients_check_idle(struct weft_gradients *g, const char *who);
/* What has failed the object tells more than `status`, which a call for it has returned. */
int weft__gradients_failure(const struct weft_gradients *g, const char *who, int status);

/* ---- plans.c ---- */

/* What is predicted of layers in an order; NULL: the last of the model first. times: by layer, or
 * NULL: all are there at once. */
int weft__gradients_predict(const struct weft_gradients *g, const size_t *order,
                            const uint64_t *times, const struct weft_merge_config *config,
                            struct weft_merge_plan **merge);
/* Memory and runs of exchanges. Before the ranks meet. */
int weft__gradients_planning_make(struct weft_gradients *g);
void weft__gradients_planning_free(struct weft_gradients *g);
/* The first plan: from times that are known, or without. Local. */
int weft__gradients_plan_first(struct weft_gradients *g, const struct weft_gradients_state *state);
/* After the end of a step: measures, agrees, changes the plan. WEFT_IN_PROGRESS: not by `until`; to
 * be called again. */
int weft__gradients_plan_next(struct weft_gradients *g, uint64_t until);
void weft__gradients_plan_free(struct weft_gradients *g, struct weft__gradients_plan *plan);
/* What an exchange waits for, for weft_memory_free(); or NULL. */
char *weft__gradients_plan_report(const struct weft_gradients *g);

/* ---- calibrate.c ---- */

/* Sizes at which an allreduce is measured. */
enum { WEFT__CALIBRATION_SIZES = 7 };

struct weft__gradients_calibration;

/* Before the ranks meet: what measuring needs. NULL: costs are given, or there is nothing to send.
 */
int weft__gradients_calibration_make(struct weft_gradients *g,
                                     struct weft__gradients_calibration **calibration);
/* After: g->cost, the same on all ranks. Collective, blocking. */
int weft__gradients_calibrate(struct weft_gradients *g,
                              struct weft__gradients_calibration *calibration);
void weft__gradients_calibration_free(struct weft__gradients_calibration *calibration);
/* Of g->cost, from what was given. */
int weft__gradients_copy_cost(struct weft_gradients *g, const struct weft_merge_cost *cost);

/* ---- state.c ---- */

/* WEFT_OK if a state is of these layers; else the text says what has changed. */
int weft__gradients_state_check(const struct weft_gradients *g, const char *who,
                                const struct weft_gradients_state *state);
/* Takes the times of one that is, and what layers have had; where it is not of an object that has
 * failed, costs as well if they are of as many ranks; groups if, besides, they were made in the
 * same way. */
int weft__gradients_state_read(struct weft_gradients *g, const struct weft_gradients_state *state);
/* Words of a state of so many layers, at most. */
size_t weft__gradients_state_words(size_t layer_count);

/* ---- create.c ---- */

/* A run of a template that belongs to the object, and what it sends. */
int weft__gradients_exchange(struct weft_gradients *g, const char *template_name,
                             struct weft_template_params *params, const char *slot, void *data,
                             struct weft__gradients_traffic *traffic, struct weft_run **run);

/* ---- config.c ---- */

/* Another function has refused its argument `from`: tells it as the member that it is here. */
int weft__gradients_retell(int status, const char *who, const char *from, const char *member);

/* What the configuration of an average of groups must leave to weft_gradients_config. */
struct weft__gradients_repeated {
    const char *member; /* of that: "sparse" */
    weft_dtype_t dtype;
    const struct weft_piece *tensors;
    size_t tensor_count;
    const char *given; /* another member that is given; or NULL */
};

int weft__gradients_check_repeated(const char *who,
                                   const struct weft__gradients_repeated *repeated);

/* ---- sparse.c ---- */

/* WEFT_OK if it says how groups are made sparse, and nothing that weft_gradients_config says. */
int weft__gradients_sparse_check(const char *who, const struct weft_sparse_average_config *config);
/* What all ranks must give alike: up to 3 settings. Returns how many. */
size_t weft__gradients_sparse_settings(const struct weft_sparse_average_config *config,
                                       struct weft__setting settings[]);
/* Of what allreduces were measured to cost makes what groups of so many bytes do. There are at
 * least two points. */
int weft__gradients_sparse_cost(const struct weft_gradients *g, struct weft_merge_point *points,
                                size_t *count);

/* ---- compressed_config.c: likewise ---- */

/* Also that shapes are those of the tensors. */
int weft__gradients_compressed_check(const char *who, const struct weft_gradients_config *config,
                                     const struct weft_compressed_average_config *compressed);
/* Copies it, with all that it points to, to g->compressed. */
int weft__gradients_compressed_copy(struct weft_gradients *g,
                                    const struct weft_compressed_average_config *compressed);
void weft__gradients_compressed_free(struct weft_gradients *g);
/* What all ranks must give alike: 9 settings. */
size_t weft__gradients_compressed_settings(const struct weft_gradients *g,
                                           const struct weft_gradients_state *state,
                                           struct weft__setting settings[]);
/* The same where words and numbers are. */
uint64_t weft__gradients_compressed_number(const struct weft_gradients_state *state);
void weft__gradients_compressed_cost(const struct weft_gradients *g,
                                     struct weft_merge_point *points, size_t count);

#endif
