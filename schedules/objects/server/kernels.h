/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arithmetic of servers and of their workers, on WEFT_F32 and WEFT_F64. Products and sums are
 * rounded each, in the datatype, and in a fixed order: so a result has the same bits whatever the
 * SIMD level. Scalars (rate, momentum, weights) are rounded to the datatype first.
 *
 * Pure; no allocation. Arrays may be the same where that is said, and overlap in no other way.
 */
#ifndef WEFT_SCHEDULES_OBJECTS_SERVER_KERNELS_H
#define WEFT_SCHEDULES_OBJECTS_SERVER_KERNELS_H

#include <stddef.h>

#include <weft/types.h>

enum weft__update_kind {
    /* v <- momentum v + g, x <- x - rate v. A rate of -1 without velocity adds what workers with an
     * optimiser of their own push. */
    WEFT__UPDATE_SGD,
    /* x <- the mean. Merges alone. */
    WEFT__UPDATE_SET,
    /* x <- x + share (model - x). Single pushes alone. */
    WEFT__UPDATE_MIX
};

struct weft__server_update {
    enum weft__update_kind kind;
    double rate;
    double momentum;
    double share; /* of a single push: its worker's part of all weights */
};

/* Elements in one piece, of f32 and of f64: what a merge works on stays in the L1 cache. */
enum { WEFT__MERGE_BYTES = 8192 };

/*
 * Merges what workers have pushed, and updates: g = (weights[0] rooms[0] + weights[1] rooms[1]
 * + ...) / divisor, summed up in that order. Then SGD or SET. Without workers nothing happens.
 * velocity: NULL: v = g. mean: gets g; may be NULL, or rooms[0].
 * weights: NULL: all are 1.
 */
void weft__server_merge(weft_dtype_t dtype, const struct weft__server_update *update,
                        void *parameters, void *velocity, const void *const *rooms,
                        const double *weights, size_t workers, size_t divisor, size_t count,
                        void *mean);

/* Applies a single push, in one pass: SGD with g = share room, or MIX with room as the model.
 * velocity: as above; not for MIX. answers: room gets the new parameters. */
void weft__server_apply(weft_dtype_t dtype, const struct weft__server_update *update,
                        void *parameters, void *velocity, void *room, size_t count, int answers);

/* The sum of |gradient[k] parameters[k]| in double: eight sums side by side, then those. (OSP,
 * equation 4.) */
double weft__server_weigh(weft_dtype_t dtype, const void *gradient, const void *parameters,
                          size_t count);

/* A worker's own optimiser: v <- momentum v + g, update = - rate v. velocity: NULL: v = g. update
 * may be gradient. */
void weft__server_own_update(weft_dtype_t dtype, double rate, double momentum, void *velocity,
                             const void *gradient, void *update, size_t count);

/* How parameters have changed, for predictions: last = fresh - base, average = beta average + (1 -
 * beta) last (NULL: none), base = fresh. */
void weft__server_change(weft_dtype_t dtype, void *base, const void *fresh, void *last,
                         void *average, double beta, size_t count);

/*
 * What a late layer is predicted to become (OSP, section 4.2, equation 6): to = base + p, where
 * p = momentum last - rate gradient; and with beta > 0 p = beta average + (1 - beta) (that).
 * last: the last update; NULL: p = - rate gradient. average: NULL only with a beta of 0. `to` may
 * be base, or any other one.
 */
void weft__server_predict(weft_dtype_t dtype, void *to, const void *base, const void *gradient,
                          const void *last, const void *average, double rate, double momentum,
                          double beta, size_t count);

#endif
