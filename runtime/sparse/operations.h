/* SPDX-License-Identifier: BSD-3-Clause */
/* What operations of schedules on lists of pairs are made of: ops.c checks and computes them,
 * report.c says what a device has found that has computed one. */
#ifndef WEFT_RUNTIME_SPARSE_OPERATIONS_H
#define WEFT_RUNTIME_SPARSE_OPERATIONS_H

#include <weft/sparse.h>

/* The `user` of an operation. */
struct weft__sparse_settings {
    weft_sparse_op_kind_t kind;
    weft_nan_policy_t nan;
    uint64_t *nans; /* of selections: NaNs that count as zeros; or NULL */
};

/* What errors of a function begin with, in errors of others. */
#define WEFT__SPARSE_NAME(function) #function

/* The words of a device's report. */
enum {
    WEFT__SPARSE_DISORDER, /* list << 48 | the first index that is not above the one before it;
                              UINT64_MAX: there is none */
    WEFT__SPARSE_NANS,
    WEFT__SPARSE_OUTSIDE, /* 1 + the largest index that the residual did not have; or 0 */
    WEFT__SPARSE_COUNT,   /* pairs written */
    WEFT__SPARSE_TOTAL,   /* pairs that there were before some were dropped */
    WEFT__SPARSE_DETAIL   /* and the two behind it: of parts the ends of the region, of thresholds
                             the bits, of bounds what is below */
};

/* What is wrong with bounds, in TOTAL, and what is in DETAIL then. */
enum {
    WEFT__BOUNDS_RIGHT,
    WEFT__BOUNDS_ENDS,  /* the first bound, the last */
    WEFT__BOUNDS_STEP,  /* the number of a bound, it, the one before */
    WEFT__BOUNDS_ORDER, /* the number of an index, it, the one before */
    WEFT__BOUNDS_LAST   /* an index */
};

/* struct weft__form.end of all of them. */
int weft__sparse_end(const struct weft_call *call, const uint64_t *report, uint64_t *value);

/* sparse-bounds: a text for what is wrong, by details as above; WEFT_OK if nothing is. */
int weft__sparse_bounds_wrong(int what, const uint64_t detail[3], size_t elements);

#endif
