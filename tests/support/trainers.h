/* SPDX-License-Identifier: BSD-3-Clause */
/* The objects of trainers, called alike. */
#ifndef WEFT_TESTS_TRAINERS_H
#define WEFT_TESTS_TRAINERS_H

#include <weft/weft.h>

struct trainer {
    const char *name;
    /* On a model of one tensor, which is borrowed. */
    int (*create)(void **object, struct weft_context *context, float *data, size_t count,
                  weft_dtype_t dtype);
    int (*step)(void *object);
    int (*fail)(void *object, int status, const char *text);
    int (*destroy)(void *object);
    int stands_in; /* for who has left */
};

enum { TRAINERS = 10 };
extern const struct trainer trainers[TRAINERS];

#endif
