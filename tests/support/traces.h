/* SPDX-License-Identifier: BSD-3-Clause */
/* Shorthands for tests of traces. */
#ifndef WEFT_TESTS_TRACES_H
#define WEFT_TESTS_TRACES_H

#include "support/ranks.h"

static inline struct weft_trace_span get(const struct weft_trace *trace, size_t index)
{
    struct weft_trace_span span = {.struct_size = sizeof span};
    OK(weft_trace_get_span(trace, index, &span));
    return span;
}

static inline struct weft_trace *new_trace(void)
{
    struct weft_trace *trace = NULL;
    OK(weft_trace_create(&trace));
    return trace;
}

#endif
