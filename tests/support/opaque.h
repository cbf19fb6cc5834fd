/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of opaque elements of any size. Both look at an element as a whole, so that what is
 * not called on whole elements, each of them once, gives something else.
 */
#ifndef WEFT_TESTS_OPAQUE_H
#define WEFT_TESTS_OPAQUE_H

#include <stdlib.h>
#include <string.h>
#include <weft/types.h>

#include "tests/support/placed.h"

/* Bytes of elements that tests try. */
static const size_t opaque_bytes[] = {1, 3, 12, 24, 1000, 100000};
enum { OPAQUE_BYTES = sizeof opaque_bytes / sizeof opaque_bytes[0] };

/* Maps of bytes, x -> m x + n, one for each byte n of an element behind its first, which is m. They
 * are composed: that associates, and does not commute. */
static inline int opaque_compose(void *user, void *dst, const void *a, const void *b, size_t count,
                                 weft_dtype_t dtype)
{
    const size_t bytes = weft_dtype_size(dtype);
    const unsigned char *f = a, *g = b;
    unsigned char *to = dst;

    (void)user;
    for (size_t i = 0; i < count; i++, f += bytes, g += bytes, to += bytes) {
        const unsigned m = f[0];

        /* The first byte is read before it is written: dst may be a or b. */
        to[0] = (unsigned char)(m * g[0]);
        for (size_t n = 1; n < bytes; n++)
            to[n] = (unsigned char)(m * g[n] + f[n]);
    }
    return weft_dtype_is_opaque(dtype) ? WEFT_OK : WEFT_ERR_INVALID;
}

/* The greater element, compared byte by byte from its first. */
static inline int opaque_greatest(void *user, void *dst, const void *a, const void *b, size_t count,
                                  weft_dtype_t dtype)
{
    const size_t bytes = weft_dtype_size(dtype);

    (void)user;
    for (size_t i = 0; i < count; i++) {
        const char *x = (const char *)a + i * bytes, *y = (const char *)b + i * bytes;

        memmove((char *)dst + i * bytes, memcmp(x, y, bytes) < 0 ? y : x, bytes);
    }
    return weft_dtype_is_opaque(dtype) ? WEFT_OK : WEFT_ERR_INVALID;
}

PLACED_REDUCE(opaque_compose_on_device, opaque_compose)
PLACED_REDUCE(opaque_greatest_on_device, opaque_greatest)

/* An operation on opaque elements; NULL if there is no memory. */
static inline const struct weft_op *opaque_op(int commutes)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;

    weft_op_config_init(&config);
    config.name = commutes ? "greatest" : "compose-bytes";
    config.flags = commutes ? WEFT_OP_COMMUTES : 0;
    config.reduce = commutes ? opaque_greatest : opaque_compose;
    config.device = commutes ? opaque_greatest_on_device : opaque_compose_on_device;
    return weft_op_create(&op, &config) == WEFT_OK ? op : NULL;
}

#endif
