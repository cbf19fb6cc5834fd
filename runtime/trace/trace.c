/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A trace: spans of any number of ranks, in memory, 88 bytes each; texts are kept once.
 *
 * A source is a rank of a group of contexts. Messages match within a group only, so a program may
 * hold several contexts a process, and all their traces go into one.
 */
#include "runtime/trace/trace.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include <stdlib.h>
#include <string.h>

void weft_trace_span_init_sized(struct weft_trace_span *span, size_t size)
{
    struct weft_trace_span start = {.kind = WEFT_NODE_JOIN, .peer = -1, .arrived_ns = WEFT_NEVER};

    weft_sized_init(span, size);
    if (span && size > sizeof span->struct_size)
        weft_sized_fill(__func__, "span", span, &start, sizeof start);
}

int weft_trace_create(struct weft_trace **out)
{
    if (!out)
        return WEFT__INVALID("%s: argument `trace` is NULL", __func__);
    struct weft_trace *trace = weft__calloc(1, sizeof *trace);
    if (!trace)
        return weft__error_memory("a trace");
    *out = trace;
    return WEFT_OK;
}

void weft_trace_destroy(struct weft_trace *trace)
{
    if (!trace)
        return;
    for (size_t t = 0; t < trace->text_count; t++)
        weft__free(trace->texts[t]);
    weft__free((void *)trace->texts);
    weft__table_free(&trace->text_table);
    weft__table_free(&trace->source_table);
    weft__free(trace->sources);
    weft__free(trace->spans);
    weft__free(trace);
}

/* ---- texts ---- */

int64_t weft__trace_text(struct weft_trace *trace, const char *text, size_t length)
{
    if (!text || length == 0)
        return 0;
    uint64_t hash = weft__hash_bytes(WEFT__HASH_EMPTY, text, length);
    size_t at;
    for (uint32_t n = weft__table_first(&trace->text_table, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(&trace->text_table, hash, &at))
        if (strncmp(trace->texts[n], text, length) == 0 && trace->texts[n][length] == '\0')
            return (int64_t)n + 1;
    if (trace->text_count >= INT32_MAX ||
        weft__grow((void **)&trace->texts, &trace->text_capacity, trace->text_count + 1,
                   sizeof *trace->texts) != 0)
        return -1;
    char *copy = weft__malloc(length + 1, 1);
    if (!copy || weft__table_add(&trace->text_table, hash, (uint32_t)trace->text_count) != 0) {
        weft__free(copy);
        return -1;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    trace->texts[trace->text_count++] = copy;
    return (int64_t)trace->text_count;
}

/* ---- sources and spans ---- */

static uint64_t hash_source(uint32_t group, int rank)
{
    return weft__hash_word(0, (uint64_t)group << 32 | (uint32_t)rank);
}

void weft__trace_index(struct weft_trace *trace)
{
    weft__table_clear(&trace->source_table);
    for (size_t s = 0; s < trace->source_count; s++) /* there is room: they were in it */
        (void)weft__table_add(&trace->source_table,
                              hash_source(trace->sources[s].group, trace->sources[s].rank),
                              (uint32_t)s);
}

int64_t weft__trace_source(struct weft_trace *trace, uint32_t group, int rank)
{
    uint64_t hash = hash_source(group, rank);
    size_t at;
    for (uint32_t n = weft__table_first(&trace->source_table, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(&trace->source_table, hash, &at))
        if (trace->sources[n].rank == rank && trace->sources[n].group == group)
            return n;
    if (trace->source_count >= INT32_MAX ||
        weft__grow((void **)&trace->sources, &trace->source_capacity, trace->source_count + 1,
                   sizeof *trace->sources) != 0 ||
        weft__table_add(&trace->source_table, hash, (uint32_t)trace->source_count) != 0)
        return -1;
    trace->sources[trace->source_count] = (struct weft__source){.group = group, .rank = rank};
    return (int64_t)trace->source_count++;
}

struct weft__span *weft__trace_push(struct weft_trace *trace)
{
    if (trace->count >= UINT32_MAX - 1 || weft__grow((void **)&trace->spans, &trace->capacity,
                                                     trace->count + 1, sizeof *trace->spans) != 0)
        return NULL;
    struct weft__span *span = &trace->spans[trace->count++];
    memset(span, 0, sizeof *span);
    return span;
}

static int check_span(const char *who, const struct weft_trace *trace,
                      const struct weft_trace_span *span)
{
    if (!trace || !span)
        return WEFT__INVALID("%s: argument `%s` is NULL", who, !trace ? "trace" : "span");
    if (span->rank < 0 || span->rank == INT32_MAX)
        return WEFT__INVALID("%s: span->rank is %d, expected at least 0", who, span->rank);
    if (span->kind != WEFT_TRACE_RUN &&
        (span->kind < 0 || !weft_node_kind_name((weft_node_kind_t)span->kind)))
        return WEFT__INVALID("%s: span->kind is %d, expected WEFT_TRACE_RUN or a kind "
                             "of node",
                             who, span->kind);
    if (span->end < WEFT_TRACE_ENDED || span->end > WEFT_TRACE_UNFINISHED)
        return WEFT__INVALID("%s: span->end is %d, expected 0..%d", who, (int)span->end,
                             (int)WEFT_TRACE_UNFINISHED);
    if (span->helper < 0 || span->helper > 1)
        return weft_sized_number(who, "span->helper", span->helper, 0, 1);
    if (span->node < -1)
        return weft_sized_number(who, "span->node", span->node, -1, INT32_MAX);
    if (span->peer < WEFT_PEER_NONE)
        return weft_sized_number(who, "span->peer", span->peer, WEFT_PEER_NONE, INT32_MAX);
    if (span->end_ns < span->start_ns)
        return WEFT__INVALID("%s: span->end_ns is %llu, expected at least start_ns, "
                             "which is %llu",
                             who, (unsigned long long)span->end_ns,
                             (unsigned long long)span->start_ns);
    return WEFT_OK;
}

int weft_trace_add(struct weft_trace *trace, const struct weft_trace_span *span)
{
    struct weft_trace_span full, *given = &full;
    int status = weft_sized_read(__func__, "span", span, given, sizeof *given);
    if (status == WEFT_OK)
        status = check_span(__func__, trace, span ? given : NULL);
    if (status != WEFT_OK)
        return status;
    int64_t plan = given->plan ? weft__trace_text(trace, given->plan, strlen(given->plan)) : 0;
    int64_t label = given->label ? weft__trace_text(trace, given->label, strlen(given->label)) : 0;
    int64_t source = weft__trace_source(trace, 0, given->rank);
    struct weft__span *made = plan < 0 || label < 0 || source < 0 ? NULL : weft__trace_push(trace);
    if (!made)
        return weft__error_memory(__func__);
    *made = (struct weft__span){
        .version = given->version,
        .bytes = given->bytes,
        .start = given->start_ns,
        .end = given->end_ns,
        .arrived = given->arrived_ns,
        .source = (uint32_t)source,
        .object = given->object,
        .tag = given->tag,
        .plan = (uint32_t)plan,
        .label = (uint32_t)label,
        .node = given->kind == WEFT_TRACE_RUN ? -1 : given->node,
        .peer = given->peer,
        .status = given->status,
        .kind = (int8_t)given->kind,
        .finish = (uint8_t)given->end,
        .helper = given->helper != 0,
    };
    trace->sources[source].spans++;
    return WEFT_OK;
}

size_t weft_trace_span_count(const struct weft_trace *trace)
{
    return !trace ? 0 : trace->count;
}

int weft_trace_get_span(const struct weft_trace *trace, size_t index, struct weft_trace_span *out)
{
    if (!trace || !out)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !trace ? "trace" : "span");
    if (index >= trace->count)
        return WEFT__INVALID("%s: argument `index` is %zu, expected less than %zu", __func__, index,
                             trace->count);
    const struct weft__span *span = &trace->spans[index];
    struct weft_trace_span seen = {
        .rank = trace->sources[span->source].rank,
        .kind = span->kind,
        .end = (weft_trace_end_t)span->finish,
        .helper = span->helper,
        .node = span->node,
        .object = span->object,
        .version = span->version,
        .peer = span->peer,
        .tag = span->tag,
        .bytes = span->bytes,
        .start_ns = span->start,
        .end_ns = span->end,
        .arrived_ns = span->arrived,
        .status = span->status,
        .plan = span->plan != 0 ? trace->texts[span->plan - 1] : "",
        .label = span->label != 0 ? trace->texts[span->label - 1] : NULL,
    };
    return weft_sized_fill(__func__, "span", out, &seen, sizeof seen);
}

/* ---- ranks, and order ---- */

size_t weft_trace_rank_count(const struct weft_trace *trace)
{
    return !trace ? 0 : trace->source_count;
}

int weft_trace_get_rank(const struct weft_trace *trace, size_t index, struct weft_trace_rank *rank)
{
    if (!trace || !rank)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !trace ? "trace" : "rank");
    if (index >= trace->source_count)
        return WEFT__INVALID("%s: argument `index` is %zu, expected less than %zu", __func__, index,
                             trace->source_count);
    const struct weft__source *source = &trace->sources[index];
    struct weft_trace_rank seen = {
        .rank = source->rank,
        .size = source->size,
        .spans = source->spans,
        .dropped = source->dropped,
        .offset_ns = source->offset,
        .uncertainty_ns = source->uncertainty,
    };
    return weft_sized_fill(__func__, "rank", rank, &seen, sizeof seen);
}

struct sorting {
    struct weft__source source;
    uint32_t before; /* its number */
    const char *group;
};

static int compare_sources(const void *left, const void *right)
{
    const struct sorting *a = left;
    const struct sorting *b = right;
    int groups = strcmp(a->group, b->group);
    if (groups != 0)
        return groups;
    return a->source.rank < b->source.rank ? -1 : a->source.rank > b->source.rank;
}

static int compare_spans(const void *left, const void *right)
{
    const struct weft__span *a = left;
    const struct weft__span *b = right;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->end != b->end)
        return a->end > b->end ? -1 : 1;
    if (a->object != b->object)
        return a->object < b->object ? -1 : 1;
    if (a->version != b->version)
        return a->version < b->version ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

int weft__trace_sort(struct weft_trace *trace)
{
    size_t count = trace->source_count;
    struct sorting *sources = weft__malloc(count, sizeof *sources);
    uint32_t *after = weft__malloc(count, sizeof *after);
    if (sources && after) {
        for (size_t s = 0; s < count; s++) {
            uint32_t group = trace->sources[s].group;
            sources[s] = (struct sorting){trace->sources[s], (uint32_t)s,
                                          group != 0 ? trace->texts[group - 1] : ""};
        }
        qsort(sources, count, sizeof *sources, compare_sources);
        for (size_t s = 0; s < count; s++) {
            trace->sources[s] = sources[s].source;
            after[sources[s].before] = (uint32_t)s;
        }
        weft__trace_index(trace);
        for (size_t i = 0; i < trace->count; i++)
            trace->spans[i].source = after[trace->spans[i].source];
        if (trace->count != 0)
            qsort(trace->spans, trace->count, sizeof *trace->spans, compare_spans);
    }
    int status = sources && after ? WEFT_OK : weft__error_memory("sorting a trace");
    weft__free(sources);
    weft__free(after);
    return status;
}
