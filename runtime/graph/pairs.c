/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both ends of all messages, each list sorted by what they match on, then merged: linear but for
 * the sorting, and for signals that reach several events.
 */
#include "runtime/graph/pairs.h"

#include "runtime/base/alloc.h"

#include <stdlib.h>

/* One end of a message or signal, to be matched with the other. */
struct end {
    int32_t from, to; /* ranks; a signal reaches a channel, whoever sends it: from is -1 */
    uint32_t tag;     /* or channel */
    uint8_t signal;
    uint32_t at; /* whose node */
    weft_node_t node;
};

struct ends {
    struct end *sources, *sinks;
    size_t source_count, sink_count;
};

static int compare_messages(const struct end *a, const struct end *b)
{
    if (a->signal != b->signal)
        return a->signal < b->signal ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    return (a->from > b->from) - (a->from < b->from);
}

static int compare_ends(const void *left, const void *right)
{
    const struct end *a = left, *b = right;
    int order = compare_messages(a, b);

    if (order)
        return order;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static void note_end(struct ends *ends, const struct weft_schedule *schedule, uint32_t at,
                     weft_node_t index)
{
    const struct weft__snode *node = &schedule->nodes[index];
    int source = node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_SIGNAL;
    int signal = node->kind == WEFT_NODE_SIGNAL || node->kind == WEFT_NODE_EVENT;
    struct end end = {.from = signal   ? -1
                              : source ? schedule->rank
                                       : node->peer,
                      .to = source ? node->peer : schedule->rank,
                      .tag = node->tag,
                      .signal = (uint8_t)signal,
                      .at = at,
                      .node = index};

    if (source)
        ends->sources[ends->source_count++] = end;
    else if (node->kind == WEFT_NODE_RECV || (signal && node->tag != WEFT_CHANNEL_NONE))
        ends->sinks[ends->sink_count++] = end;
}

/* Both lists are sorted. */
static int merge(struct weft__pairs *pairs, const struct ends *ends)
{
    size_t sink = 0;

    for (size_t i = 0; i < ends->source_count; i++) {
        const struct end *source = &ends->sources[i];

        while (sink < ends->sink_count && compare_messages(&ends->sinks[sink], source) < 0)
            sink++;
        for (size_t j = sink;
             j < ends->sink_count && compare_messages(&ends->sinks[j], source) == 0; j++) {
            if (weft__grow((void **)&pairs->at, &pairs->capacity, pairs->count + 1,
                           sizeof *pairs->at))
                return WEFT_ERR_MEMORY;
            pairs->at[pairs->count++] = (struct weft__pair){.from_at = source->at,
                                                            .to_at = ends->sinks[j].at,
                                                            .from = source->node,
                                                            .to = ends->sinks[j].node,
                                                            .signal = source->signal};
        }
    }
    return WEFT_OK;
}

int weft__pairs_build(struct weft__pairs *pairs, const struct weft_schedule *const *schedules,
                      size_t count)
{
    struct ends ends = {0};
    size_t total = 0;
    int status = WEFT_ERR_MEMORY;

    *pairs = (struct weft__pairs){0};
    for (size_t i = 0; i < count; i++)
        total += schedules[i]->node_count;
    ends.sources = weft__malloc(total, sizeof *ends.sources);
    ends.sinks = weft__malloc(total, sizeof *ends.sinks);
    if (ends.sources && ends.sinks) {
        for (size_t i = 0; i < count; i++)
            for (size_t n = 0; n < schedules[i]->node_count; n++)
                note_end(&ends, schedules[i], (uint32_t)i, (weft_node_t)n);
        qsort(ends.sources, ends.source_count, sizeof *ends.sources, compare_ends);
        qsort(ends.sinks, ends.sink_count, sizeof *ends.sinks, compare_ends);
        status = merge(pairs, &ends);
    }
    weft__free(ends.sources);
    weft__free(ends.sinks);
    if (status)
        weft__pairs_free(pairs);
    return status;
}

void weft__pairs_free(struct weft__pairs *pairs)
{
    weft__free(pairs->at);
    *pairs = (struct weft__pairs){0};
}
