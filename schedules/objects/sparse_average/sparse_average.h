/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of weft/sparse_average.h.
 *
 * A unit is what entries are selected from: the whole model, or a tensor. Each has a run of its
 * own, and one list, in which everything happens:
 *
 *     post     the selected pairs are put into it                        application
 *     run      other lists are merged into it, or it is overwritten      engine
 *     wait     the sum is read from it                                   application
 *
 * While a unit is posted, its list and its part of the residual belong to the engine.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_SPARSE_AVERAGE_SPARSE_AVERAGE_H
#define WEFT_SCHEDULES_OBJECTS_SPARSE_AVERAGE_SPARSE_AVERAGE_H

#include <stdatomic.h>
#include <weft/object.h>
#include <weft/run.h>
#include <weft/sparse_average.h>

#include "schedules/objects/model.h"
#include "schedules/objects/sparse_average/device.h"

/* An operation of a unit's plan, and what it does in this step. */
struct weft__sparse_merge {
    struct weft__sparse_unit *unit;
    struct weft_op *op;
    /* 1: what it drops is this rank's. */
    int owns;
};

/* What has been sent, from values of a run that has ended. */
struct weft__sparse_send {
    int peer; /* of the plan */
    weft_value_t pairs;
};

struct weft__sparse_unit {
    struct weft_sparse_average *average;
    size_t first, tensor_count; /* tensors */
    size_t offset, count;       /* elements, of the model */
    size_t there;               /* likewise, in vectors of a device */
    int contiguous;             /* its tensors lie one behind the other */
    size_t most;                /* pairs that are selected in any step */
    size_t capacity;            /* pairs that a sum can have */
    uint64_t *list;             /* c indices, then c values; owned */
    uint64_t *own;              /* what was selected; owned */
    struct weft_run *run;       /* NULL: no elements */

    /* The plan's operations: the merges in their order, then `choose`. */
    struct weft__sparse_merge *merges; /* owned */
    int merge_count;
    struct weft_op *choose;
    struct weft__sparse_send *sends; /* owned */
    int send_count;
    weft_value_t pairs, sum; /* values: selected, and in the result */
    int *peers;              /* owned */
    int peer_count;
    struct weft__sparse_pending pending; /* of a device */
    int takes;                           /* the result comes from another rank */
    int omitted;                         /* messages have no contents, so nobody knows the sum */

    /* WEFT_SPARSE_OKTOPK. */
    uint64_t *regions; /* the bits of the threshold, and ranks + 1 bounds; of the object */
    float threshold;   /* of this step */
    int estimating;    /* the threshold is to be found in this step's sum */
    int balancing;     /* bounds are being added up */
    uint64_t *balance; /* owned */
    struct weft_run *balance_run;
    uint64_t balance_messages, balance_bytes; /* that it sends */
    weft_slot_t send_slot;
    weft_value_t share, quota, summed, region; /* before and after what an owner keeps */
    weft_value_t *parts;                       /* of the list, that are sent or kept; owned */
    int part_count;

    /* The step under way, or the last. */
    uint64_t next;
    int posted;
    int failed;                /* the step has: what was selected for it has come to nothing here */
    struct weft_run *late;     /* that was waited for in vain, or NULL */
    _Atomic uint64_t ended_ns; /* of a member: when the run had ended, on the context's clock */
    size_t k, selected, kept;
    double hint; /* for selections of hint_k */
    size_t hint_k;
    size_t bad_tensor; /* the first with `bad` NaNs and infinities, of all tensors of the unit */
    uint64_t bad;
    int told; /* who waits has been told of them */

    /* Counted by merges, read when the run has ended. */
    uint64_t dropped, nans;
    double dropped_mass;
};

struct weft_sparse_average {
    struct weft_context *context;
    struct weft_sparse_average_config config; /* without borrowed pointers */
    struct weft__model model;
    size_t *offsets;   /* elements before each tensor of the model; owned */
    double *densities; /* of the warm-up; owned */
    size_t density_count;
    float *residual; /* owned, as the next; NULL on a device */
    float *velocity; /* NULL without momentum */
    float *resumed;  /* until the creation has ended: a residual with what was not sent; or NULL */
    struct weft__sparse_device *device; /* NULL: gradients are the host's */
    float *unsent;                      /* of a state after a failure; owned, or NULL */
    void *workspace;                    /* of selections; owned */
    size_t workspace_bytes;
    uint64_t *regions; /* of all units; owned */
    size_t region_count;
    void *merge_workspace; /* the engine makes one merge at a time; owned */
    size_t merge_workspace_bytes;
    struct weft__sparse_unit *units; /* owned */
    size_t unit_count;
    int stepping;               /* a step() has not ended */
    struct weft_object *object; /* of the runs of all units */
    int member;                 /* 1: the object is another's, which destroys it */
    uint64_t first;             /* the step of the creation */
    uint64_t step_base;         /* statistics.steps then */
    struct weft_sparse_average_stats stats;
};

/* A list of `count` pairs in one piece of memory. */
static inline struct weft_sparse weft__sparse_list(uint64_t *memory, size_t count)
{
    return (struct weft_sparse){.indices = memory,
                                .values = (uint32_t *)memory + count,
                                .count = count,
                                .capacity = count,
                                .index_dtype = WEFT_U32,
                                .dtype = WEFT_F32};
}

/* ---- sparse_average.c ---- */

/* Pairs that are selected from `count` elements: at a density, and after the warm-up. */
size_t weft__sparse_pairs(double density, size_t count);
size_t weft__sparse_k(const struct weft_sparse_average *average, size_t count);
/* Of a unit in a step. */
size_t weft__sparse_step_k(const struct weft__sparse_unit *unit, uint64_t step);

/* ---- state.c ---- */

/* Residual, velocity, statistics and regions of a checkpoint, or from nothing (NULL). */
/* On a device residual and velocity are made later. */
int weft__sparse_copy_state(const char *who, struct weft_sparse_average *average,
                            const struct weft_sparse_average_state *state);

/* ---- plans.c ---- */

/* A run of the object. */
int weft__sparse_run(struct weft__sparse_unit *unit, struct weft_plan *plan, struct weft_run **run);
/* Makes the run of a unit, and frees what it is made of. */
int weft__sparse_plan(struct weft__sparse_unit *unit);
void weft__sparse_plan_free(struct weft__sparse_unit *unit);
/* Binds it to a step and starts it. */
int weft__sparse_start(struct weft__sparse_unit *unit);
/* Binds the peers of the next step. */
int weft__sparse_bind(struct weft__sparse_unit *unit);
/* Reads what it has counted. */
void weft__sparse_count(struct weft__sparse_unit *unit);

/* ---- regions.c: the same for WEFT_SPARSE_OKTOPK ---- */

int weft__sparse_regions_plan(struct weft__sparse_unit *unit);
int weft__sparse_regions_start(struct weft__sparse_unit *unit);
/* Also: what the next steps go by. */
int weft__sparse_regions_end(struct weft__sparse_unit *unit);

/* ---- select.c ---- */

/* Refuses memory that elements cannot lie in: tensor number `tensor` of a list of that name, or one
 * by itself (NULL). */
int weft__sparse_check_aligned(const char *who, const char *list, size_t tensor, weft_dtype_t dtype,
                               const void *data);

/* Accumulates the gradient of a unit, and puts the selected pairs into its list. */
int weft__sparse_select(struct weft__sparse_unit *unit);
/* What a selection works in, for a unit; SIZE_MAX: more than can be. */
size_t weft__sparse_select_bytes(const struct weft__sparse_unit *unit);
/* The gradient becomes the sum by `divisor`: the mean, or with 1 the sum. Fails on a device alone,
 * as the next. */
int weft__sparse_write(const struct weft__sparse_unit *unit, int divisor);
/* tensors += scale * sum / ranks, for all tensors of a unit. */
int weft__sparse_apply(const struct weft__sparse_unit *unit, double scale, weft_dtype_t dtype,
                       const struct weft_piece *tensors);

/* Pairs [from, to) of the sum are those of a tensor, whose first element is number `base`. */
struct weft__sparse_range {
    size_t from, to, base;
};

struct weft__sparse_range weft__sparse_range_of(const struct weft__sparse_unit *unit,
                                                size_t tensor);

#endif
