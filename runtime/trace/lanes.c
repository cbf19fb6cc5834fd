/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes: the threads of a rank in the picture, so many that the spans on each do not overlap.
 *
 * A rank has lanes for runs, for computation, for sends, for receives and for events. A span goes
 * to the lowest lane of its class that is free when it starts, which a tree of minima over the
 * lanes' ends finds in logarithmic time.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/trace/write.h"
#include <string.h>

static const char *const class_names[WEFT__LANE_CLASSES] = {"runs", "compute", "send", "recv",
                                                            "events"};

const char *weft__lane_name(int class)
{
    return class_names[class];
}

int weft__lane_class(const struct weft__span *span)
{
    switch (span->kind) {
    case WEFT_TRACE_RUN:
        return 0;
    case WEFT_NODE_SEND:
    case WEFT_NODE_SIGNAL:
        return 2;
    case WEFT_NODE_RECV:
        return 3;
    case WEFT_NODE_EVENT:
        return 4;
    default:
        return 1;
    }
}

/* A leaf a lane: when it is free again. ends[size + lane]; a node holds the least below it. */
struct tree {
    uint64_t *ends;
    size_t size; /* leaves: a power of two, or 0 */
    uint32_t used;
};

static int grow_tree(struct tree *tree)
{
    size_t size = tree->size == 0 ? 4 : 2 * tree->size;
    uint64_t *ends = weft__malloc(2 * size, sizeof *ends);
    if (!ends)
        return -1;
    for (size_t i = 0; i < size; i++)
        ends[size + i] = i < tree->size ? tree->ends[tree->size + i] : 0;
    for (size_t i = size - 1; i > 0; i--)
        ends[i] = ends[2 * i] < ends[2 * i + 1] ? ends[2 * i] : ends[2 * i + 1];
    weft__free(tree->ends);
    tree->ends = ends;
    tree->size = size;
    return 0;
}

/* The lowest lane that is free at `start`, now taken until `end`; or -1. */
static int64_t take_lane(struct tree *tree, uint64_t start, uint64_t end)
{
    while (tree->size == 0 || tree->ends[1] > start)
        if (grow_tree(tree) != 0)
            return -1;
    size_t at = 1;
    while (at < tree->size)
        at = 2 * at + (tree->ends[2 * at] > start);
    uint32_t lane = (uint32_t)(at - tree->size);
    for (tree->ends[at] = end; at > 1; at /= 2) {
        uint64_t left = tree->ends[at & ~(size_t)1];
        uint64_t right = tree->ends[at | 1];
        tree->ends[at / 2] = left < right ? left : right;
    }
    if (lane >= tree->used)
        tree->used = lane + 1;
    return lane;
}

/* Lanes of one source's spans; their numbers within the class. */
static int assign(struct weft__writing *w, uint32_t source, size_t begin, size_t end,
                  struct tree *trees)
{
    for (int c = 0; c < WEFT__LANE_CLASSES; c++) {
        trees[c].used = 0;
        if (trees[c].size > 0)
            memset(trees[c].ends, 0, 2 * trees[c].size * sizeof *trees[c].ends);
    }
    for (size_t i = begin; i < end; i++) {
        struct weft__span *span = &w->trace->spans[i];
        int64_t lane =
            take_lane(&trees[weft__lane_class(span)], span->start, span->start + w->lengths[i]);
        if (lane < 0)
            return -1;
        span->lane = (uint32_t)lane;
    }
    uint32_t *first = &w->lanes[(size_t)source * (WEFT__LANE_CLASSES + 1)];
    first[0] = 1; /* tids begin at 1 */
    for (int c = 0; c < WEFT__LANE_CLASSES; c++)
        first[c + 1] = first[c] + trees[c].used;
    for (size_t i = begin; i < end; i++)
        w->trace->spans[i].lane += first[weft__lane_class(&w->trace->spans[i])];
    return 0;
}

int weft__lanes_assign(struct weft__writing *w)
{
    struct tree trees[WEFT__LANE_CLASSES] = {{NULL, 0, 0}};
    const struct weft_trace *trace = w->trace;
    int failed = 0;
    size_t i = 0;
    for (uint32_t s = 0; s < trace->source_count && !failed; s++) {
        size_t begin = i;
        while (i < trace->count && trace->spans[i].source == s)
            i++;
        failed = assign(w, s, begin, i, trees) != 0;
    }
    for (int c = 0; c < WEFT__LANE_CLASSES; c++)
        weft__free(trees[c].ends);
    return failed ? weft__error_memory("the lanes of a trace") : WEFT_OK;
}
