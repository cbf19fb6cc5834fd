/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clocks of different machines brought together, from the messages between them.
 *
 * A message that leaves clock A at time a and comes at time b of clock B gives d = b - a, which is
 * its way's time plus the offset of B against A. The fastest message each way has the way's time
 * nearly pure, so with equal ways the offset is (least d of A to B - least d of B to A) / 2, and it
 * is wrong by no more than half their sum.
 *
 * Clocks and offsets form a graph; its minimum spanning forest (Kruskal) brings all to the first
 * one. Members of a tree know their offset to its root; where two trees meet, one is moved as a
 * whole.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/trace/trace.h"
#include <stdlib.h>
#include <string.h>

struct delay {
    uint32_t from;
    uint32_t to;
    int64_t ns;
};

/* What is known between two clocks. */
struct link {
    uint32_t a;
    uint32_t b;
    int64_t offset; /* of b against a */
    uint64_t uncertainty;
};

struct clocks {
    uint32_t count;
    uint32_t *of; /* of each source: its clock */
    uint32_t *tree;
    int64_t *offset;
    uint64_t *uncertainty;
};

/* Ranks without the name of a clock share one. */
static int number_clocks(const struct weft_trace *trace, struct clocks *clocks)
{
    size_t sources = trace->source_count;
    uint32_t *numbers = weft__calloc(trace->text_count + 1, sizeof *numbers);
    clocks->of = weft__malloc(sources, sizeof *clocks->of);
    clocks->tree = weft__malloc(sources, sizeof *clocks->tree);
    clocks->offset = weft__calloc(sources, sizeof *clocks->offset);
    clocks->uncertainty = weft__calloc(sources, sizeof *clocks->uncertainty);
    if (!numbers || !clocks->of || !clocks->tree || !clocks->offset || !clocks->uncertainty) {
        weft__free(numbers);
        return weft__error_memory("the clocks of a trace");
    }
    for (size_t s = 0; s < sources; s++) {
        uint32_t *number = &numbers[trace->sources[s].clock];
        if (*number == 0)
            *number = ++clocks->count;
        clocks->of[s] = *number - 1;
    }
    for (uint32_t c = 0; c < clocks->count; c++)
        clocks->tree[c] = c;
    weft__free(numbers);
    return WEFT_OK;
}

static int compare_delays(const void *left, const void *right)
{
    const struct delay *a = left;
    const struct delay *b = right;
    uint32_t low[2] = {a->from < a->to ? a->from : a->to, b->from < b->to ? b->from : b->to};
    uint32_t high[2] = {a->from < a->to ? a->to : a->from, b->from < b->to ? b->to : b->from};
    if (low[0] != low[1])
        return low[0] < low[1] ? -1 : 1;
    if (high[0] != high[1])
        return high[0] < high[1] ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return a->ns < b->ns ? -1 : a->ns > b->ns;
}

static int compare_links(const void *left, const void *right)
{
    const struct link *a = left;
    const struct link *b = right;
    if (a->uncertainty != b->uncertainty)
        return a->uncertainty < b->uncertainty ? -1 : 1;
    if (a->a != b->a)
        return a->a < b->a ? -1 : 1;
    return a->b < b->b ? -1 : a->b > b->b;
}

/* Times of the messages between different clocks. */
static int find_delays(const struct weft_trace *trace, const struct clocks *clocks,
                       struct delay **out, size_t *count)
{
    struct weft__arrow *arrows;
    size_t arrow_count;
    int status = weft__trace_arrows(trace, &arrows, &arrow_count);
    if (status != WEFT_OK)
        return status;
    struct delay *delays = weft__malloc(arrow_count, sizeof *delays);
    size_t n = 0;
    for (size_t p = 0; delays && p < arrow_count; p++) {
        const struct weft__span *send = &trace->spans[arrows[p].from];
        const struct weft__span *receive = &trace->spans[arrows[p].to];
        uint32_t from = clocks->of[send->source];
        uint32_t to = clocks->of[receive->source];
        uint64_t arrived = receive->arrived != WEFT_NEVER ? receive->arrived : receive->end;
        if (from != to)
            delays[n++] = (struct delay){from, to, (int64_t)(arrived - send->start)};
    }
    weft__free(arrows);
    if (!delays)
        return weft__error_memory("the messages of a trace");
    qsort(delays, n, sizeof *delays, compare_delays);
    *out = delays;
    *count = n;
    return WEFT_OK;
}

/* One link for each pair of clocks, in the memory that is no shorter than the delays. */
static size_t make_links(const struct delay *delays, size_t count, struct link *links)
{
    size_t n = 0;
    for (size_t i = 0; i < count;) {
        const struct delay *there = &delays[i]; /* the least of its way */
        const struct delay *back = NULL;
        uint32_t a = there->from;
        uint32_t b = there->to;
        while (i < count && delays[i].from == a && delays[i].to == b)
            i++;
        if (a < b && i < count && delays[i].from == b && delays[i].to == a) {
            back = &delays[i];
            while (i < count && delays[i].from == b && delays[i].to == a)
                i++;
        }
        struct link *link = &links[n++];
        /* One way only: as if the fastest message had taken no time. */
        *link = (struct link){a, b, there->ns, WEFT_NEVER};
        if (back) {
            /* Halves of each, since their sum may not fit. */
            int64_t sum = there->ns / 2 + back->ns / 2 + (there->ns % 2 + back->ns % 2) / 2;
            link->offset = there->ns / 2 - back->ns / 2 + (there->ns % 2 - back->ns % 2) / 2;
            link->uncertainty = sum > 0 ? (uint64_t)sum : 0;
        }
    }
    return n;
}

static uint64_t add_uncertainty(uint64_t a, uint64_t b)
{
    return a > WEFT_NEVER - 1 - b || a == WEFT_NEVER || b == WEFT_NEVER ? WEFT_NEVER : a + b;
}

/* Puts the two trees of a link together. The one with the lower root stays, so that the first clock
 * keeps its time. */
static void join_trees(struct clocks *clocks, const struct link *link)
{
    uint32_t stays = link->a;
    uint32_t moves = link->b;
    int64_t offset = link->offset;
    if (clocks->tree[moves] < clocks->tree[stays]) {
        stays = link->b;
        moves = link->a;
        offset = -offset;
    }
    uint32_t into = clocks->tree[stays];
    uint32_t from = clocks->tree[moves];
    int64_t by = clocks->offset[stays] + offset - clocks->offset[moves];
    uint64_t wrong = add_uncertainty(clocks->uncertainty[stays], link->uncertainty);
    /* Uncertainties add along the path; those within the moved tree are counted from its root, so
     * the way from `moves` to that root is counted too: an upper bound. */
    wrong = add_uncertainty(wrong, clocks->uncertainty[moves]);
    for (uint32_t c = 0; c < clocks->count; c++) {
        if (clocks->tree[c] != from)
            continue;
        clocks->tree[c] = into;
        clocks->offset[c] += by;
        clocks->uncertainty[c] =
            c == moves ? add_uncertainty(clocks->uncertainty[stays], link->uncertainty)
                       : add_uncertainty(clocks->uncertainty[c], wrong);
    }
}

/* Clocks that no message joins with the first: their first spans are put at one time. */
static void guess_rest(const struct weft_trace *trace, struct clocks *clocks)
{
    for (uint32_t c = 1; c < clocks->count; c++) {
        uint32_t tree = clocks->tree[c];
        if (tree == clocks->tree[0])
            continue;
        int64_t first[2] = {INT64_MAX, INT64_MAX};
        for (size_t i = 0; i < trace->count; i++) {
            uint32_t clock = clocks->of[trace->spans[i].source];
            int64_t start = (int64_t)trace->spans[i].start - clocks->offset[clock];
            int which = clocks->tree[clock] == tree;
            if ((which || clocks->tree[clock] == clocks->tree[0]) && start < first[which])
                first[which] = start;
        }
        struct link link = {0, c, clocks->offset[c], WEFT_NEVER};
        if (first[0] != INT64_MAX && first[1] != INT64_MAX)
            link.offset += first[1] - first[0];
        join_trees(clocks, &link);
    }
}

/* Moves every source; if a time would become negative, all of them by as much again. */
static void apply(struct weft_trace *trace, const struct clocks *clocks)
{
    int64_t least = 0;
    for (size_t i = 0; i < trace->count; i++) {
        int64_t start =
            (int64_t)trace->spans[i].start - clocks->offset[clocks->of[trace->spans[i].source]];
        least = start < least ? start : least;
    }
    for (size_t i = 0; i < trace->count; i++) {
        struct weft__span *span = &trace->spans[i];
        uint64_t by = (uint64_t)(-clocks->offset[clocks->of[span->source]] - least);
        span->start += by;
        span->end += by;
        if (span->arrived != WEFT_NEVER)
            span->arrived += by;
    }
    for (size_t s = 0; s < trace->source_count; s++) {
        trace->sources[s].offset -= clocks->offset[clocks->of[s]] + least;
        trace->sources[s].uncertainty = clocks->uncertainty[clocks->of[s]];
    }
}

int weft_trace_align(struct weft_trace *trace)
{
    if (!trace)
        return WEFT__INVALID("%s: argument `trace` is NULL", __func__);
    int status = weft__trace_sort(trace);
    if (status != WEFT_OK || trace->source_count == 0)
        return status;
    struct clocks clocks = {0};
    struct delay *delays = NULL;
    struct link *links = NULL;
    size_t count = 0;
    status = number_clocks(trace, &clocks);
    if (status == WEFT_OK && clocks.count > 1)
        status = find_delays(trace, &clocks, &delays, &count);
    if (status == WEFT_OK && clocks.count > 1) {
        links = weft__malloc(count, sizeof *links);
        if (!links)
            status = weft__error_memory("the clocks of a trace");
    }
    if (status == WEFT_OK && clocks.count > 1) {
        count = make_links(delays, count, links);
        qsort(links, count, sizeof *links, compare_links);
        for (size_t i = 0; i < count; i++)
            if (clocks.tree[links[i].a] != clocks.tree[links[i].b])
                join_trees(&clocks, &links[i]);
        guess_rest(trace, &clocks);
        apply(trace, &clocks);
    }
    weft__free(links);
    weft__free(delays);
    weft__free(clocks.of);
    weft__free(clocks.tree);
    weft__free(clocks.offset);
    weft__free(clocks.uncertainty);
    return status;
}
