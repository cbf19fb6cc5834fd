/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two halves of writing a trace share: lanes, and the JSON itself. */
#ifndef WEFT_RUNTIME_TRACE_WRITE_H
#define WEFT_RUNTIME_TRACE_WRITE_H

#include "runtime/trace/trace.h"

enum { WEFT__LANE_CLASSES = 5 };

struct weft__writing {
    struct weft_trace *trace;
    uint64_t base;     /* time that is written as 0 */
    uint64_t *lengths; /* of spans: those with an arrow have at least 1 ns, to hold it */
    uint32_t *lanes;   /* of each source: first tid of each class, and one past the last */
    struct weft__arrow *arrows;
    size_t arrow_count;
};

/* Sets the tid of every span (sorted), and w->lanes. WEFT_OK or WEFT_ERR_MEMORY. */
int weft__lanes_assign(struct weft__writing *w);
int weft__lane_class(const struct weft__span *span);
const char *weft__lane_name(int class);

#endif
