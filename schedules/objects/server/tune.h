/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of a model, and which layers, OSP synchronises in its second stage: Chen et al., "OSP:
 * Boosting Distributed Model Training with 2-stage Synchronization" (ICPP 2023), section 4.1. */
#ifndef WEFT_SCHEDULES_OBJECTS_SERVER_TUNE_H
#define WEFT_SCHEDULES_OBJECTS_SERVER_TUNE_H

#include <stddef.h>
#include <stdint.h>

/* ---- how much: section 4.1.2, Algorithm 1 ---- */

struct weft__tune {
    double first_loss;   /* 0 or NaN: not known yet */
    double loss;         /* the last one; NaN: not known */
    double goodput;      /* b, bytes a second; 0: not known. Losses are in it */
    uint64_t compute_ns; /* T_c; 0: not known */
    size_t workers;      /* N */
    size_t model_bytes;
    double most;  /* of the model's bytes, 0 .. 1 */
    double share; /* 0: by Algorithm 1. Else this share of the bytes, up to 1; below 0: none */
};

struct weft__tuned {
    size_t most_bytes; /* U_max = min(b T_c / N, most * model_bytes) */
    size_t late_bytes; /* S(G^u) = (1 - loss / first loss) U_max, 0 .. U_max */
};

/* Never fails: what is not known, or no number, makes it 0. Pure. */
struct weft__tuned weft__tune(const struct weft__tune *tune);

/* ---- which ---- */

/*
 * Chooses the least important layers: in the order of rising importance (of equal ones the first),
 * each that still fits into budget_bytes is late. A layer of no bytes never is, and what has NaN as
 * its importance is as important as can be. Pure; O(layers log layers).
 * late: set to 1 or 0, a layer each. order: scratch, a layer each; fewer than 2^32.
 * Returns the bytes of those that are late.
 */
size_t weft__tune_choose(const double *importance, const size_t *layer_bytes, size_t layers,
                         size_t budget_bytes, unsigned char *late, uint32_t *order);

/* ---- goodput ---- */

enum {
    WEFT__GOODPUT_SAMPLES = 16,
    WEFT__GOODPUT_LEAST = 16384 /* bytes: what is smaller measures the latency */
};

/* The largest of the last samples: a link is not slower for standing idle, or being waited for.
 * Empty when zeroed. */
struct weft__goodput {
    double samples[WEFT__GOODPUT_SAMPLES]; /* bytes a second, a ring */
    unsigned next;
};

/* Samples of fewer than WEFT__GOODPUT_LEAST bytes, or of no time, are left out. */
void weft__goodput_add(struct weft__goodput *goodput, uint64_t bytes, uint64_t ns);
/* In bytes a second. 0: not known yet. */
double weft__goodput_get(const struct weft__goodput *goodput);

#endif
