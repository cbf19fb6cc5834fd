/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse averaging plainly: all ranks in one thread, dense vectors, sorting, merges in the order
 * that is promised. Every operation on f32 is the object's, so results must be the same bits.
 */
#ifndef WEFT_TESTS_SPARSE_REFERENCE_H
#define WEFT_TESTS_SPARSE_REFERENCE_H

#include <weft/weft.h>

enum { REFERENCE_RANKS = 33 };

/* A sparse vector as a dense one. */
struct reference_list {
    float *value;
    char *present;
};

struct sparse_reference {
    int ranks;
    /* method, scope, residual, momentum, clip_norm and nan; tensors are those of rank 0, of f32,
     * whose memory is not looked at. */
    struct weft_sparse_average_config config;
    size_t count;
    float *residual[REFERENCE_RANKS], *velocity[REFERENCE_RANKS];
    struct reference_list list[REFERENCE_RANKS], own[REFERENCE_RANKS];
    /* WEFT_SPARSE_OKTOPK, of each unit: the threshold, the k of the last step, ranks + 1 bounds. */
    struct reference_regions {
        float threshold;
        size_t k;
        uint64_t bounds[REFERENCE_RANKS + 1];
    } * regions;
    /* Of the last step: the sum, what each rank has selected. */
    struct reference_list sum;
    size_t selected[REFERENCE_RANKS];
    /* Of all steps. */
    size_t dropped[REFERENCE_RANKS], returned[REFERENCE_RANKS];
    double dropped_mass[REFERENCE_RANKS], returned_mass[REFERENCE_RANKS];
};

void sparse_reference_init(struct sparse_reference *reference, int ranks,
                           const struct weft_sparse_average_config *config);
void sparse_reference_free(struct sparse_reference *reference);
/* One step on the ranks' gradients, f32, tensor after tensor. k: of a unit of so many elements. */
void sparse_reference_step(struct sparse_reference *reference, uint64_t step,
                           size_t (*k)(void *user, uint64_t step, size_t count), void *user,
                           float *const *gradients);

#endif
