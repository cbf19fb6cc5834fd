/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: the parts of a creation. */
#ifndef WEFT_SCHEDULES_OBJECTS_GRADIENTS_CREATE_H
#define WEFT_SCHEDULES_OBJECTS_GRADIENTS_CREATE_H

#include "schedules/objects/gradients/gradients.h"

/* A configuration with all that it points to, with defaults. */
struct weft__gradients_given {
    struct weft_gradients_config config;
    struct weft_merge_config merge;
    struct weft_merge_cost cost;
    struct weft_gradients_state state;
    struct weft_sparse_average_config sparse;
    struct weft_compressed_average_config compressed;
};

/* ---- config.c ---- */

/* Reads and checks one, as far as no tensors are needed. */
int weft__gradients_given_read(const char *who, const struct weft_gradients_config *config,
                               struct weft__gradients_given *given);

/* ---- meet.c ---- */

/* The ranks meet, if this one has got as far: `status`. */
int weft__gradients_meet(struct weft__creation *creation, struct weft_gradients *g,
                         const struct weft__gradients_given *given, int status);

#endif
