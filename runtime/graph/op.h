/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations as objects: the built-in table and the user's. The arithmetic itself is in ops/. */
#ifndef WEFT_RUNTIME_GRAPH_OP_H
#define WEFT_RUNTIME_GRAPH_OP_H

#include <stdatomic.h>
#include <weft/types.h>

/*
 * What checking knows of a built-in operation that folds, beside that it does.
 *
 * FILTERS: only the first region that it reads is folded in; what else it reads tells what to keep.
 * CUTS: it takes a part of a list. The list is the first region that it reads. The second one is
 *   the bounds: the part is what lies between its first and its last element.
 *
 *     list of rank 0      [ 2  5 | 9 11 | 14 17 ]      bounds: 0 8 12 20, the same on ranks 0, 1, 2
 *     part for rank 0     [ 2  5 ]                     between bounds 0 and 1
 *     part for rank 1            [ 9 11 ]              between bounds 1 and 2
 *     part for rank 2                   [ 14 17 ]      between bounds 2 and 3
 *
 *   Checking does not see values, so it assumes three things. The elements of a slot of bounds
 *   ascend. No element of a list is below the first bound or above the last. Slots of bounds with
 *   one name hold the same on all ranks. Then the parts between bounds 0 and 1 and between 1 and 2
 *   are the part between 0 and 2, and the part between the first and the last bound is the list.
 *
 * JOINS: it puts lists together that have nothing in common. Checking demands that: each list is
 *   made of parts between other bounds than the others.
 *
 * What it knows of operations that compress (weft/compress.h), by the order of their regions there:
 *
 * ENCODES: region 0 stands for all of region 1, up to a loss. DECODES: and back.
 * ADDS_DECODED: the sum of what region 0 held and of what region 1 stands for.
 * PROJECTS: region 0 is a linear map of region 1, the same wherever regions 2 and 3 are: so sums of
 *   such are that map of a sum. Slots of one name are taken to hold the same on all ranks there.
 * RECONSTRUCTS: of such a map, by the same regions, back. Of what CORRELATES, if the region 1 of
 *   the one is the region 2 of the other, and orthonormal, too.
 * CORRELATES: region 0 is a linear map of region 1, the same wherever region 2 is.
 * ORTHONORMALISES: region 0.
 */
enum weft__op_sense {
    WEFT__OP_PLAIN,
    WEFT__OP_FILTERS,
    WEFT__OP_CUTS,
    WEFT__OP_JOINS,
    WEFT__OP_ENCODES,
    WEFT__OP_DECODES,
    WEFT__OP_ADDS_DECODED,
    WEFT__OP_PROJECTS,
    WEFT__OP_RECONSTRUCTS,
    WEFT__OP_CORRELATES,
    WEFT__OP_ORTHONORMALISES
};

struct weft__joint;

/* Of a built-in operation that devices have, too: their library goes by the family and the kind
 * (room and operate, runtime/engine/device.h). */
enum weft__form_family { WEFT__FORM_SPARSE, WEFT__FORM_COMPRESS };

enum { WEFT__REPORT_WORDS = 8 };

struct weft__form {
    enum weft__form_family family;
    int kind; /* weft_sparse_op_kind_t, weft_compress_op_kind_t */
    /* Checks a call as far as counts and datatypes tell, as the compute function does first: its
     * statuses and texts. Touches no memory. */
    int (*check)(const struct weft_call *call);
    /* What the compute function would return and produce: by what the device has found. */
    int (*end)(const struct weft_call *call, const uint64_t report[WEFT__REPORT_WORDS],
               uint64_t *value);
};

struct weft_op {
    const char *name;
    const char *family; /* who folds the same kind of thing; static; NULL: the name */
    enum weft__op_sense sense;
    unsigned flags;
    /* Its poll does a part of the work, some 100 us at most: it is called again without pause, one
     * part of one call a step, and not at all once the run has failed. */
    int in_parts;
    unsigned writes;     /* bit i: it writes region i, so nodes must say so */
    unsigned writes_f64; /* the same of regions that are f64 */
    /* Bit i: what it does not write of region i stays as it was, though nodes may say that they
     * write all of it. */
    unsigned keeps;
    /* Bit i: a device does not touch region i, which is memory for the host to work in, or of which
     * the count alone is meant. */
    unsigned spares;
    int builtin; /* weft_op_kind_t, or -1 */
    weft_reduce_fn reduce;
    weft_compute_fn compute;
    weft_compute_fn poll;
    weft_device_fn device;
    const struct weft__form *form; /* static, or part of `owned`; NULL: none */
    /* Whether regions of such counts, datatypes and places are what the function takes: as a call
     * of it that reads and writes nothing, with its status and text. NULL: any. */
    int (*fits)(const struct weft_call *call);
    void *user;
    void *owned; /* `user`, or what else is freed with the operation; else NULL */
    /* One of several ranks at once (joint.h), which has no function here; else NULL. */
    const struct weft__joint *joint;
    atomic_int references; /* of user operations */
};

/* weft_dtype_parse() of the first @length characters of a text: 1 if they name a datatype. */
int weft__dtype_find(const char *text, size_t length, weft_dtype_t *dtype);

/* What names of opaque datatypes look like, for lists of names. */
#define WEFT__OPAQUE_NAMES "bytesN (opaque, N of 1 to 1073741823)"

/* What an error text that refuses an operation on a datatype says beside that, or "". */
const char *weft__op_hint(const struct weft_op *op, weft_dtype_t dtype);

static inline const char *weft__op_family(const struct weft_op *op)
{
    return op->family ? op->family : op->name;
}

#endif
