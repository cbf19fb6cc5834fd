/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The graph that sums the groups of a plan, one after the other, as their layers are announced.
 *
 *     ready 3 ----------------------> allreduce of group 0 --------> done 3
 *     ready 2 --> load --+               |
 *     ready 1 --> load --+--> start --> allreduce of group 1 --+--> store --> done 2
 *                                                              +--> store --> done 1
 *
 * Elements of a group that lie one behind the other are summed where they lie; others are loaded
 * into scratch, each layer as soon as it is there, and stored back.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_GRADIENTS_GRAPH_H
#define WEFT_SCHEDULES_OBJECTS_GRADIENTS_GRAPH_H

#include "schedules/objects/gradients/gradients.h"

struct weft__gradients_shape {
    weft_dtype_t dtype, wire;
    weft_gradients_reduction_t reduction;
    const struct weft__gradients_layer *layers;
    size_t layer_count;
    const struct weft__gradients_group *groups;
    size_t group_count;
    /* By group: 1: summed where its elements lie. NULL: all are, where datatypes allow it. */
    const unsigned char *in_place;
    const struct weft_cost_model *cost; /* as in weft_template_params */
    const int *hosts;
    const struct weft_op *clock; /* produces the time; NULL: none is taken */
};

/* The nodes and values that a run of it is used by: arrays of the caller. Layers of a group may
 * share an event, which is to be fired when all of them are there; and a join. */
struct weft__gradients_nodes {
    weft_node_t *ready, *done;     /* by layer: an event, a join */
    weft_value_t *started, *ended; /* by group: times; not written without a clock */
};

/* A pure function, as templates are: the graph of a rank. The slot group.K has the elements of
 * group K, the slot layer.L those of a layer that is copied. */
int weft__gradients_schedule(const struct weft__gradients_shape *shape, int rank, int size,
                             const struct weft__gradients_nodes *nodes,
                             struct weft_schedule **schedule);

#endif
