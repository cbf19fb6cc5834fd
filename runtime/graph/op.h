/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations as objects: the built-in table and the user's. The arithmetic itself is in ops/. */
#ifndef WEFT_RUNTIME_GRAPH_OP_H
#define WEFT_RUNTIME_GRAPH_OP_H

#include <stdatomic.h>
#include <weft/types.h>

struct weft_op {
    const char *name;
    const char *family; /* NULL: the name */
    unsigned flags;
    int builtin; /* weft_op_kind_t, or -1 */
    weft_reduce_fn reduce;
    weft_compute_fn compute;
    weft_compute_fn poll;
    void *user;
    atomic_int references; /* of user operations */
};

const struct weft_op *weft__op_retain(const struct weft_op *op);

static inline const char *weft__op_family(const struct weft_op *op)
{
    return op->family ? op->family : op->name;
}

#endif
