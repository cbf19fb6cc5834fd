/* SPDX-License-Identifier: BSD-3-Clause */
/* Of groups that are summed in fewer bits (compressed.c): their configuration, and what they go on
 * from. */
#ifndef WEFT_SCHEDULES_OBJECTS_GRADIENTS_COMPRESSED_H
#define WEFT_SCHEDULES_OBJECTS_GRADIENTS_COMPRESSED_H

#include "schedules/objects/compressed_average/member.h"
#include "schedules/objects/gradients/members.h"

/* The configuration, with all that it points to. */
struct weft__gradients_compressed_config {
    struct weft_compressed_average_config config;
    struct weft__compressed_choices choices;
    struct weft_tensor_shape *shapes; /* of the model's tensors; owned, or NULL */
    char *algo;                       /* owned, or NULL */
};

/* ---- compressed_source.c ---- */

/* What there was of some layers. */
struct weft__gradients_before {
    const size_t *layers; /* of a plan; NULL: `words` has them */
    const uint64_t *words;
    size_t layer_count;
    struct weft__compressed_part part; /* of which tensor: none yet */
};

/* Where each layer was. */
struct weft__gradients_source {
    const float *residual;
    const unsigned char *votes;            /* by layer; NULL: none */
    struct weft__gradients_before *before; /* owned */
    size_t before_count;
    size_t *of; /* by layer: of `before`; owned */
};

/* Layer i of these. */
size_t weft__gradients_before_layer(const struct weft__gradients_before *before, size_t i);
/* Of the words of a state, which are looked at. */
int weft__gradients_source_read(const struct weft_gradients *g,
                                struct weft__gradients_source *source,
                                const struct weft_gradients_state *state);
/* Of the groups of a plan. */
int weft__gradients_source_groups(const struct weft_gradients *g,
                                  struct weft__gradients_source *source,
                                  const struct weft__gradients_sums *sums);
void weft__gradients_source_free(struct weft__gradients_source *source);
/* A part for each tensor of a group. Layers that were nowhere have none. */
void weft__gradients_source_parts(const struct weft_gradients *g,
                                  const struct weft__gradients_sum *group,
                                  const struct weft__gradients_source *source,
                                  struct weft__compressed_part *parts);

#endif
