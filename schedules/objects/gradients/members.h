/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups that are each summed by an object of its own, a member of the gradients' object, over its
 * layers' tensors.
 *
 *     ready    who announces the last layer of a group posts it, in that thread; then the group's
 *              event fires
 *     runs     go on side by side, each by itself: unlike a dense group none waits for another
 *     wait     first for the event, as other threads may still announce layers of the group; then
 *              the first who waits for a layer of it takes the sum, and writes its gradients
 *     end      what members do between steps, group after group
 *
 * The events are those of a run without messages. A group's lock is held by who posts it or takes
 * its sum.
 *
 * Residuals are elements' own: where other groups take the place of these they move, by way of the
 * order of the model.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_GRADIENTS_MEMBERS_H
#define WEFT_SCHEDULES_OBJECTS_GRADIENTS_MEMBERS_H

#include <stdatomic.h>

#include "schedules/objects/gradients/gradients.h"

/* What is done to a member, as member.h of its object has it. */
struct weft__gradients_member {
    int (*post)(void *member, const char *who);
    /* until: 0: for ever. */
    int (*wait)(void *member, const char *who, uint64_t until);
    void (*write)(void *member, int divisor);
    /* NULL: nothing. */
    int (*finish)(void *member, const char *who, uint64_t until);
    uint64_t (*ended)(const void *member);
    char *(*report)(const void *member);
    int (*abandon)(void *member, uint64_t step);
    int (*leave)(void *member, const char *who);
    void (*free)(void *member);
    /* So far. */
    int (*count)(const void *member, struct weft__gradients_traffic *traffic);
    /* After its write: adds what compression came to in the step. NULL: nothing. */
    void (*compression)(const void *member, struct weft__gradients_compression *compression);
    /* Of its state: what was not sent in a step that was abandoned; NULL: nothing. */
    int (*unsent)(void *member, const float **unsent);
};

struct weft__gradients_sum {
    const struct weft__gradients_group *of;
    void *member;
    weft_node_t event, join;
    pthread_mutex_t lock;
    int locks;             /* it has been made */
    atomic_size_t missing; /* layers that have not been announced in this step */
    int posted;            /* and its sum not taken; under the lock */
    int taken;             /* and not finished; under the lock */
    uint64_t start;        /* of the step; under the lock */
    struct weft__gradients_traffic before;
};

struct weft__gradients_sums {
    const struct weft__gradients_member *does;
    struct weft__gradients_sum *groups; /* owned */
    size_t group_count;
    struct weft_run *run;
    /* The state that was asked for last, in the order of the model. Owned. */
    float *residual, *unsent;
    void *own; /* of the way */
};

/* Makes plan->sums, but for the members: the way's, with runs of the object. */
int weft__gradients_sums_make(struct weft_gradients *g, struct weft__gradients_plan *plan,
                              const struct weft__gradients_member *does);
/* NULL is accepted; `own` has to be freed before. */
void weft__gradients_sums_free(struct weft__gradients_sums *sums);
/* The tensors of a group; owned by the caller. NULL: no memory, with a text. */
struct weft_piece *weft__gradients_sum_tensors(const struct weft_gradients *g,
                                               const struct weft__gradients_sum *group,
                                               size_t *count);

/* The elements of a group, which lie one behind the other, are those of the model; and back. */
void weft__gradients_sum_gather(const struct weft_gradients *g,
                                const struct weft__gradients_sum *group, float *packed,
                                const float *model);
void weft__gradients_sum_scatter(const struct weft_gradients *g,
                                 const struct weft__gradients_sum *group, const float *packed,
                                 float *model);
/* The step under way has failed: g->kept, and what members had posted of it to sums->unsent, but
 * for layers whose sum was given. */
int weft__gradients_sums_abandon(struct weft_gradients *g, struct weft__gradients_sums *sums);

/* Members of struct weft__gradients_way. */
int weft__gradients_sums_begin(struct weft_gradients *g, struct weft__gradients_plan *plan);
int weft__gradients_sums_ready(struct weft_gradients *g, struct weft__gradients_plan *plan,
                               size_t layer);
int weft__gradients_sums_wait(struct weft_gradients *g, struct weft__gradients_plan *plan,
                              size_t layer, uint64_t until);
int weft__gradients_sums_end(struct weft_gradients *g, struct weft__gradients_plan *plan,
                             uint64_t until);
char *weft__gradients_sums_report(struct weft_gradients *g, struct weft__gradients_plan *plan);
void weft__gradients_sums_quit(struct weft_gradients *g, struct weft__gradients_plan *plan);

#endif
