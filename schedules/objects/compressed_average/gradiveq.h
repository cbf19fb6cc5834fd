/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ: the inside of the method WEFT_COMPRESSED_GRADIVEQ.
 *
 * A tensor is cut into slices of K elements, and successive slices into groups, `reuse` each, that
 * share a projection: the one of the samples of the group's first slice.
 *
 *     tensor      |slice|slice|slice|slice|slice|slice|sli|
 *     groups      |........0........|........1........|.2.|      reuse = 3
 *     samples of   ^^^^^             ^^^^^             ^^^       zeros follow
 *
 * All that decides what comes next (sums, samples, means, votes that were counted) is the same on
 * all ranks, bit for bit; so all come to the same decisions, and nobody is asked. Components are
 * not: LAPACK may give ranks other last bits, or signs. So each projection is found by one rank,
 * and comes to the others as it is.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_COMPRESSED_AVERAGE_GRADIVEQ_H
#define WEFT_SCHEDULES_OBJECTS_COMPRESSED_AVERAGE_GRADIVEQ_H

#include "schedules/objects/compressed_average/compressed_average.h"

/* ---- gradiveq_slices.c ---- */

/* Of a tensor. */
struct weft__gradiveq_slices {
    size_t slice;  /* K; 0: it is sent as it is, and the others are 0 */
    size_t slices; /* the last one may be shorter */
    size_t reuse;  /* slices of a group; the last one may have fewer */
    size_t groups;
};

/* Cuts all tensors: slices[t] of shapes[t], whose elements are counts[t]. Defaults have been filled
 * in. */
void weft__gradiveq_slice(const struct weft_gradiveq_config *config,
                          const struct weft_tensor_shape *shapes, const struct weft_piece *tensors,
                          size_t tensor_count, struct weft__gradiveq_slices *slices);
/* What the samples and projections of a tensor may take; SIZE_MAX: more than can be. */
size_t weft__gradiveq_bytes(const struct weft_gradiveq_config *config,
                            const struct weft__gradiveq_slices *slices);

/* To the order in which tensors are cut, in place, and back: that of figure 3 (height, width,
 * inputs, outputs: the last varies fastest), or filter after filter, each as it lies in the tensor.
 * scratch: as many elements. */
void weft__gradiveq_permute(weft_gradiveq_order_t order, const struct weft_tensor_shape *shape,
                            float *values, float *scratch);
void weft__gradiveq_permute_back(weft_gradiveq_order_t order, const struct weft_tensor_shape *shape,
                                 float *values, float *scratch);

/* ---- gradiveq_phases.c ---- */

/* Where steps are. */
struct weft__gradiveq_phase {
    weft_compressed_phase_t phase;
    uint64_t left;    /* steps, the one to come included; WEFT_NEVER: for ever */
    uint64_t samples; /* that have been taken */
};

/* What a step's sum was, the same on all ranks. */
struct weft__gradiveq_sum {
    int finite; /* it can be a sample */
    int votes, ranks;
};

/* Of a step, if nothing but its number is known. */
struct weft__gradiveq_phase weft__gradiveq_begin(const struct weft_gradiveq_config *config,
                                                 uint64_t step);
/* After a step. early: receives 1 if votes have ended the phase. */
struct weft__gradiveq_phase weft__gradiveq_after(const struct weft_gradiveq_config *config,
                                                 const struct weft__gradiveq_phase *phase,
                                                 const struct weft__gradiveq_sum *sum, int *early);
/* Whether there can be such a phase. */
int weft__gradiveq_possible(const struct weft_gradiveq_config *config,
                            const struct weft__gradiveq_phase *phase);

/* ---- the method ---- */

/* Slices that share a projection. */
struct weft__gradiveq_group {
    size_t tensor;
    size_t offset, count; /* elements of flat memory */
    size_t slice;
    size_t first;      /* elements of its first slice: K, or all that there are */
    size_t samples;    /* floats before its samples, of K each */
    int owner;         /* the rank that finds the projection */
    size_t components; /* d, of the last samples; 0: there were none, or no variance */
    double loss;       /* and the share of the variance that is lost */
    size_t basis;      /* floats before its basis, K x d, if it is compressed */
};

/* How far the projections of a new phase are. */
enum weft__gradiveq_stage {
    WEFT__GRADIVEQ_NONE,
    WEFT__GRADIVEQ_FINDING,  /* this rank's part of the components */
    WEFT__GRADIVEQ_COUNTING, /* d of all groups is under way */
    WEFT__GRADIVEQ_SHARING,  /* the bases are */
};

struct weft__gradiveq {
    char algo[32];                        /* "": by cost */
    struct weft__gradiveq_slices *slices; /* a tensor; owned */
    struct weft__gradiveq_group *groups;  /* owned */
    size_t group_count;
    size_t *order;  /* groups by their owners; owned */
    float *samples; /* sample after sample of each group; of the owner's the basis, when it has been
                       found; owned */
    float *mean;    /* of flat memory: sums so far, or of the phase; owned */

    struct weft__gradiveq_phase phase, next; /* next: after a wait, of the step to come */
    int early, finite;                       /* of the step that was waited for */
    int vote;                                /* this rank's, of that step */
    int lost; /* the step has been dropped, and with it what the phase was made of */

    struct weft__sum sum;     /* of uncompressed steps */
    struct weft__sum sampled; /* of samples, if these have bits of their own; or no run */

    /* Between phases. */
    enum weft__gradiveq_stage stage;
    size_t found;   /* of `order`: groups that have been looked at */
    double *agreed; /* d and loss of each group, and the ranks; owned */
    struct weft__compressed_run counting, sharing;

    /* Of a compressed phase; owned. */
    struct weft__compressed_run run;
    float *basis; /* of all groups, by their owners */
    size_t basis_count;
    double *squares; /* 3 a block */
    size_t square_count;
    float *scratch; /* components of a block; NULL: no residuals */
    double bits;
};

static inline struct weft__gradiveq *weft__gradiveq_of(
    const struct weft_compressed_average *average)
{
    return average->own;
}

/* Whether a group's projection makes it smaller: else it is sent as it is. */
static inline int weft__gradiveq_compresses(const struct weft__gradiveq_group *group)
{
    size_t slices = group->count / group->slice + (group->count % group->slice != 0);
    return group->components && group->components < group->slice &&
           slices <= (group->count - 1) / group->components;
}

/* ---- gradiveq_samples.c ---- */

/* A list of groups, their owners, and memory for samples and means. */
int weft__gradiveq_groups(struct weft_compressed_average *average);
/* Gives groups to ranks so that all have about as much to do; fills in `order`. */
int weft__gradiveq_give_out(struct weft_compressed_average *average, int ranks);
/* 1: all that is projected of a sum is finite. */
int weft__gradiveq_is_finite(const struct weft_compressed_average *average);
/* `sum` becomes a sample. */
void weft__gradiveq_take(struct weft_compressed_average *average);
/* The means of all that were taken. */
void weft__gradiveq_settle_means(struct weft_compressed_average *average, uint64_t samples);
/* The components of this rank's groups, from own->found on, until a time: into `agreed`, and the
 * bases to where the samples were. WEFT_IN_PROGRESS. */
int weft__gradiveq_find(struct weft_compressed_average *average, uint64_t samples, uint64_t until);

/* ---- gradiveq_projections.c ---- */

/* Memory and runs that are there from the beginning. */
int weft__gradiveq_prepare(struct weft_compressed_average *average);
/* From samples to the run of a compressed phase, in stages. */
int weft__gradiveq_make(struct weft_compressed_average *average, uint64_t until);
/* Where each basis lies; returns how many floats there are. */
size_t weft__gradiveq_lay_out(struct weft__gradiveq *own);
/* The run of a phase whose bases and means are there. */
int weft__gradiveq_make_run(struct weft_compressed_average *average);
void weft__gradiveq_free_run(struct weft_compressed_average *average);
/* Of a compressed step that has been summed: this rank's vote, average->step, and `sent`. */
void weft__gradiveq_end(struct weft_compressed_average *average);

/* ---- gradiveq_state.c: as in struct weft__compression ---- */

enum { WEFT__GRADIVEQ_COMMON_WORDS = 5, WEFT__GRADIVEQ_TENSOR_WORDS = 3 };

size_t weft__gradiveq_state_size(const struct weft_compressed_average *average);
void weft__gradiveq_save(const struct weft_compressed_average *average, uint64_t *words,
                         float *numbers);
int weft__gradiveq_load(struct weft_compressed_average *average, int ranks, const uint64_t *words,
                        size_t word_count, const float *numbers, size_t number_count);
void weft__gradiveq_renew(struct weft_compressed_average *average);

#endif
