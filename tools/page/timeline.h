/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timelines of merged gradients as SVG, drawn by cairo: for each method two lanes, the layers that
 * are computed and below them the allreduces that send them, all on one scale.
 */
#ifndef WEFT_TOOLS_PAGE_TIMELINE_H
#define WEFT_TOOLS_PAGE_TIMELINE_H

#include <stddef.h>

/** An allreduce, and the layers that it sums. */
struct timeline_group {
    /** Indices. */
    const size_t *layers;
    size_t layer_count;
    double start_us;
    double end_us;
    /** What stands on it, where there is room. */
    char name[64];
};

struct timeline_method {
    const char *name;
    /** Stands beside the name. */
    const char *remark;
    const struct timeline_group *groups;
    size_t group_count;
    double end_us;
    /** 1: no other ends earlier. */
    int is_best;
};

struct timeline {
    const char *title;
    const char *subtitle;
    const char *const *layer_names;
    /** When each layer has been computed, one after the other in the order of these times. */
    const double *ready_us;
    size_t layer_count;
    /** What an allreduce of no bytes takes: drawn as a part of each. */
    double latency_us;
    const struct timeline_method *methods;
    size_t method_count;
};

/** Draws @p timeline to @p path. @return WEFT_OK; WEFT_ERR_IO; WEFT_ERR_MEMORY. */
int timeline_write_svg(const struct timeline *timeline, const char *path);

#endif
