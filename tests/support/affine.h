/* SPDX-License-Identifier: BSD-3-Clause */
/* An operation that associates and does not commute: it shows a rank that is missing, there twice,
 * or in the wrong place. */
#ifndef WEFT_TESTS_AFFINE_H
#define WEFT_TESTS_AFFINE_H

#include <stdint.h>
#include <weft/types.h>

/* x -> a x + b modulo 2^32. */
struct affine {
    uint32_t a, b;
};

/* Composes them; of any datatype of eight bytes. */
static inline int affine_compose(void *user, void *dst, const void *a, const void *b, size_t count,
                                 weft_dtype_t dtype)
{
    const struct affine *x = a, *y = b;
    struct affine *to = dst;
    (void)user;
    if (weft_dtype_size(dtype) != sizeof *to)
        return WEFT_ERR_INVALID;
    for (size_t i = 0; i < count; i++)
        to[i] = (struct affine){x[i].a * y[i].a, x[i].a * y[i].b + x[i].b};
    return WEFT_OK;
}

/* NULL if there is no memory. */
static inline struct weft_op *affine_op(void)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "affine";
    config.reduce = affine_compose;
    return weft_op_create(&op, &config) == WEFT_OK ? op : NULL;
}

#endif
