/* SPDX-License-Identifier: BSD-3-Clause */
/* What operations of schedules on compressed vectors are made of: ops.c makes and names them,
 * compute.c computes them. */
#ifndef WEFT_RUNTIME_COMPRESS_OPERATIONS_H
#define WEFT_RUNTIME_COMPRESS_OPERATIONS_H

#include "runtime/base/companion.h"
#include "runtime/graph/op.h"

#include <weft/compress.h>

enum { WEFT__COMPRESS_NAME = 64 };

/* The `user` of an operation. */
struct weft__compress_settings {
    weft_compress_op_kind_t kind;
    struct weft_quantiser quantiser; /* all members set */
    size_t slice;
    struct weft__form form;
    char name[WEFT__COMPRESS_NAME];
};

/* What is to be computed, and in which parts (compute.c has a picture). */
struct weft__compress_task {
    const struct weft__compress_settings *settings;
    const struct weft_call *call;
    const struct weft_argument *mean, *squares; /* NULL: there is none */
    size_t count;                               /* elements; rows of a matrix */
    size_t slices, components;                  /* M, d */
    size_t tall, wide;                          /* slices and columns of a part */
    size_t down, parts;                         /* parts of a column, and in all */
    size_t work;
};

/* Checks arguments, and says what they are. WEFT_IN_PROGRESS: virtual ranks without payload, where
 * there is nothing to compute on. */
WEFT__PRIVATE int weft__compress_plan(const struct weft_call *call,
                                      struct weft__compress_task *task);

/* The words of a device's report: of those who look for what is not finite. */
enum { WEFT__COMPRESS_BAD };

/* Whether weft_compress_op_parse() knows a name; leaves no error. If not, `reason` says "bits are
 * `3`, expected 2, 4, 8 or sign" or the like of one that begins as they do, of others "". */
int weft__compress_name_is(const char *name, char *reason, size_t bytes);

/* Checks arguments, and computes what takes next to no time; WEFT_IN_PROGRESS: what is left is done
 * by calls of the second one, a part each. */
int weft__compress_begin(struct weft_call *call);
int weft__compress_go_on(struct weft_call *call);
/* Checks arguments. */
int weft__compress_fits(const struct weft_call *call);
/* struct weft__form.end of all of them. */
int weft__compress_end(const struct weft_call *call, const uint64_t *report, uint64_t *value);

#endif
