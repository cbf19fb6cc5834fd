/* SPDX-License-Identifier: BSD-3-Clause */
/* What operations of schedules on compressed vectors are made of: ops.c makes and names them,
 * compute.c computes them. */
#ifndef WEFT_RUNTIME_COMPRESS_OPERATIONS_H
#define WEFT_RUNTIME_COMPRESS_OPERATIONS_H

#include <weft/compress.h>

enum { WEFT__COMPRESS_NAME = 64 };

/* The `user` of an operation. */
struct weft__compress_settings {
    weft_compress_op_kind_t kind;
    struct weft_quantiser quantiser; /* all members set */
    size_t slice;
    char name[WEFT__COMPRESS_NAME];
};

/* Whether weft_compress_op_parse() knows a name; leaves no error. If not, `reason` says "bits are
 * `3`, expected 2, 4, 8 or sign" or the like of one that begins as they do, of others "". */
int weft__compress_name_is(const char *name, char *reason, size_t bytes);

/* Checks arguments, and computes what takes next to no time; WEFT_IN_PROGRESS: what is left is done
 * by calls of the second one, a part each. */
int weft__compress_begin(struct weft_call *call);
int weft__compress_go_on(struct weft_call *call);
/* Checks arguments. */
int weft__compress_fits(struct weft_call *call);

#endif
