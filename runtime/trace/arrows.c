/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which receive belongs to which send: within a group, those of one object, version, pair of ranks
 * and tag. A signal belongs to the event of its version that it fired.
 *
 * Both are sorted by that key and merged. Should a key occur more than once (traces of several runs
 * put together), the first send belongs to the first receive.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/trace/trace.h"
#include <stdlib.h>

struct end {
    uint64_t version;
    uint64_t start;
    uint32_t group;
    uint32_t object;
    uint32_t tag;
    int32_t from;
    int32_t to;
    uint32_t span;
    int32_t signal;
};

static int compare_keys(const struct end *a, const struct end *b)
{
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->object != b->object)
        return a->object < b->object ? -1 : 1;
    if (a->version != b->version)
        return a->version < b->version ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    return a->signal - b->signal;
}

static int compare_ends(const void *left, const void *right)
{
    const struct end *a = left;
    const struct end *b = right;
    int keys = compare_keys(a, b);
    if (keys != 0)
        return keys;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->span < b->span ? -1 : a->span > b->span;
}

static int compare_arrows(const void *left, const void *right)
{
    const struct weft__arrow *a = left;
    const struct weft__arrow *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->to < b->to ? -1 : a->to > b->to;
}

/* Whether a span is one end of a message, and which: 1 sends, -1 receives, 0 neither. */
static int side(const struct weft__span *span)
{
    if (span->finish == WEFT_TRACE_RETIRED || span->peer < 0)
        return 0;
    if (span->kind == WEFT_NODE_SEND || span->kind == WEFT_NODE_SIGNAL)
        return 1;
    if (span->finish != WEFT_TRACE_ENDED)
        return 0;
    return span->kind == WEFT_NODE_RECV || span->kind == WEFT_NODE_EVENT ? -1 : 0;
}

static struct end make_end(const struct weft_trace *trace, size_t index, int way)
{
    const struct weft__span *span = &trace->spans[index];
    const struct weft__source *source = &trace->sources[span->source];
    return (struct end){
        .version = span->version,
        .start = span->start,
        .group = source->group,
        .object = span->object,
        .tag = span->tag,
        .from = way > 0 ? source->rank : span->peer,
        .to = way > 0 ? span->peer : source->rank,
        .span = (uint32_t)index,
        .signal = span->kind == WEFT_NODE_SIGNAL || span->kind == WEFT_NODE_EVENT,
    };
}

static size_t merge(const struct end *sends, size_t send_count, const struct end *receives,
                    size_t receive_count, struct weft__arrow *arrows)
{
    size_t count = 0;
    size_t r = 0;
    for (size_t s = 0; s < send_count && r < receive_count;) {
        int order = compare_keys(&sends[s], &receives[r]);
        if (order == 0)
            arrows[count++] = (struct weft__arrow){sends[s].span, receives[r].span};
        s += order <= 0;
        r += order >= 0;
    }
    return count;
}

int weft__trace_arrows(const struct weft_trace *trace, struct weft__arrow **out, size_t *count)
{
    size_t counts[2] = {0, 0};
    for (size_t i = 0; i < trace->count; i++) {
        int way = side(&trace->spans[i]);
        counts[0] += way > 0;
        counts[1] += way < 0;
    }
    size_t least = counts[0] < counts[1] ? counts[0] : counts[1];
    struct end *ends = weft__malloc(counts[0] + counts[1], sizeof *ends);
    struct weft__arrow *arrows = weft__malloc(least, sizeof *arrows);
    if (!ends || !arrows) {
        weft__free(ends);
        weft__free(arrows);
        return weft__error_memory("the messages of a trace");
    }
    struct end *sends = ends;
    struct end *receives = ends + counts[0];
    size_t s = 0;
    size_t r = 0;
    for (size_t i = 0; i < trace->count; i++) {
        int way = side(&trace->spans[i]);
        if (way > 0)
            sends[s++] = make_end(trace, i, way);
        else if (way < 0)
            receives[r++] = make_end(trace, i, way);
    }
    qsort(sends, s, sizeof *sends, compare_ends);
    qsort(receives, r, sizeof *receives, compare_ends);
    *count = merge(sends, s, receives, r, arrows);
    qsort(arrows, *count, sizeof *arrows, compare_arrows);
    weft__free(ends);
    *out = arrows;
    return WEFT_OK;
}
