/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A trace as Chrome trace JSON, as Perfetto reads it.
 *
 *   M  names of processes (ranks) and threads (lanes); "weft_rank": what weft_trace_read() needs
 *   X  a span; never overlaps another one of its thread
 *   s, f  an arrow from inside the span of a send into the end of that of its receive
 *
 * Everything but the M events ascends in time, and is put out as it is made: no tree of it is held.
 * An arrow must be inside of its spans, so the spans of a message that took no time last 1 ns.
 */
#include "runtime/trace/write.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/out.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLUSH_BYTES ((size_t)64 << 10)

/* Where the JSON goes: a file, a piece at a time, or all of it to memory. */
struct sink {
    struct weft__out out;
    FILE *file;
    int error; /* errno of the file */
};

/* Every event ends with this; the last one's is taken away. */
#define SEPARATOR ",\n"

static void put_out(struct sink *sink, size_t bytes)
{
    if (!sink->file || sink->out.failed)
        return;
    if (fwrite(sink->out.text, 1, bytes, sink->file) != bytes && sink->error == 0)
        sink->error = errno != 0 ? errno : EIO;
    memmove(sink->out.text, sink->out.text + bytes, sink->out.length - bytes);
    sink->out.length -= bytes;
}

static void flush(struct sink *sink)
{
    if (sink->out.length > FLUSH_BYTES)
        put_out(sink, sink->out.length - strlen(SEPARATOR));
}

/* ---- pieces ---- */

static void put_number(struct weft__out *out, const char *key, uint64_t number)
{
    weft__out_text(out, key);
    weft__out_number(out, number);
}

/* Nanoseconds as microseconds with three decimals. */
static void put_time(struct weft__out *out, const char *key, uint64_t ns)
{
    put_number(out, key, ns / 1000);
    char decimals[5] = {'.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                        (char)('0' + ns % 10), '\0'};
    weft__out_text(out, decimals);
}

static const char *text_of(const struct weft_trace *trace, uint32_t text)
{
    return text != 0 ? trace->texts[text - 1] : "";
}

/* ---- names ---- */

static void put_rank(struct weft__out *out, const struct weft__writing *w,
                     const struct weft__source *source)
{
    const struct weft_trace *trace = w->trace;
    put_number(out, "{\"ph\":\"M\",\"name\":\"weft_rank\",\"pid\":", (uint64_t)source->pid);
    put_number(out, ",\"tid\":1,\"args\":{\"rank\":", (uint64_t)source->rank);
    put_number(out, ",\"size\":", (uint64_t)source->size);
    weft__out_text(out, ",\"group\":");
    weft__out_json(out, text_of(trace, source->group));
    weft__out_text(out, ",\"clock\":");
    weft__out_json(out, text_of(trace, source->clock));
    put_number(out, ",\"base_ns\":", w->base);
    put_number(out, ",\"dropped\":", source->dropped);
    weft__out_format(out, ",\"offset_ns\":%" PRId64, source->offset);
    if (source->uncertainty == WEFT_NEVER)
        weft__out_text(out, ",\"uncertainty_ns\":null}},\n");
    else
        put_number(out, ",\"uncertainty_ns\":", source->uncertainty), weft__out_text(out, "}},\n");
    put_number(out, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", (uint64_t)source->pid);
    put_number(out, ",\"tid\":1,\"args\":{\"name\":\"rank ", (uint64_t)source->rank);
    if (source->size > 0)
        put_number(out, " of ", (uint64_t)source->size);
    put_number(out, "\"}},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":",
               (uint64_t)source->pid);
    put_number(out, ",\"tid\":1,\"args\":{\"sort_index\":", (uint64_t)source->pid);
    weft__out_text(out, "}},\n");
}

static void put_lanes(struct weft__out *out, const struct weft__source *source,
                      const uint32_t *first)
{
    for (int c = 0; c < WEFT__LANE_CLASSES; c++)
        for (uint32_t tid = first[c]; tid < first[c + 1]; tid++) {
            put_number(out,
                       "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":", (uint64_t)source->pid);
            put_number(out, ",\"tid\":", tid);
            weft__out_format(out, ",\"args\":{\"name\":\"%s", weft__lane_name(c));
            if (first[c + 1] - first[c] > 1)
                put_number(out, " ", tid - first[c] + 1);
            put_number(out, "\"}},\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":",
                       (uint64_t)source->pid);
            put_number(out, ",\"tid\":", tid);
            put_number(out, ",\"args\":{\"sort_index\":", tid);
            weft__out_text(out, "}},\n");
        }
}

/* ---- spans and arrows ---- */

static void put_name(struct weft__out *out, const struct weft_trace *trace,
                     const struct weft__span *span)
{
    const char *kind = weft_node_kind_name((weft_node_kind_t)span->kind);
    if (span->label != 0) {
        weft__out_json(out, text_of(trace, span->label));
        return;
    }
    if ((span->kind == WEFT_NODE_SEND || span->kind == WEFT_NODE_RECV ||
         span->kind == WEFT_NODE_SIGNAL) &&
        span->peer >= 0)
        weft__out_format(out, "\"%s %s %d\"", kind, span->kind == WEFT_NODE_RECV ? "from" : "to",
                         span->peer);
    else
        weft__out_format(out, "\"%s\"", kind);
}

static const char *kind_word(const struct weft__span *span)
{
    return span->kind == WEFT_TRACE_RUN ? "run" : weft_node_kind_name((weft_node_kind_t)span->kind);
}

static void put_arguments(struct weft__out *out, const struct weft__writing *w,
                          const struct weft__span *span)
{
    const struct weft_trace *trace = w->trace;
    put_number(out, ",\"args\":{\"rank\":", (uint64_t)trace->sources[span->source].rank);
    weft__out_format(out, ",\"kind\":\"%s\",\"plan\":", kind_word(span));
    weft__out_json(out, text_of(trace, span->plan));
    if (span->object != UINT32_MAX)
        put_number(out, ",\"object\":", span->object);
    put_number(out, ",\"version\":", span->version);
    if (span->kind == WEFT_TRACE_RUN) {
        weft__out_format(out, ",\"status\":%d", (int)span->status);
    } else {
        weft__out_format(out, ",\"node\":%" PRId32, span->node);
        if (span->label != 0) {
            weft__out_text(out, ",\"label\":");
            weft__out_json(out, text_of(trace, span->label));
        }
    }
    if (span->peer != -1)
        weft__out_format(out, ",\"peer\":%" PRId32, span->peer);
    if (span->kind == WEFT_NODE_SEND || span->kind == WEFT_NODE_RECV)
        put_number(out, ",\"tag\":", span->tag);
    else if ((span->kind == WEFT_NODE_EVENT || span->kind == WEFT_NODE_SIGNAL) &&
             span->tag != WEFT_CHANNEL_NONE)
        put_number(out, ",\"channel\":", span->tag);
    put_number(out, ",\"bytes\":", span->bytes);
    if (span->arrived != WEFT_NEVER) {
        /* Relative, as ts is; what came before the first span is before 0. */
        int before = span->arrived < w->base;
        weft__out_text(out, before ? ",\"arrived\":-" : ",\"arrived\":");
        put_time(out, "", before ? w->base - span->arrived : span->arrived - w->base);
    }
    if (span->helper)
        weft__out_text(out, ",\"helper\":true");
    if (span->finish != WEFT_TRACE_ENDED)
        weft__out_format(out, ",\"end\":\"%s\"",
                         span->finish == WEFT_TRACE_RETIRED ? "retired" : "unfinished");
    weft__out_text(out, "}}");
}

static void put_span(struct weft__out *out, const struct weft__writing *w, size_t index)
{
    const struct weft__span *span = &w->trace->spans[index];
    weft__out_text(out, "{\"ph\":\"X\",\"name\":");
    if (span->kind == WEFT_TRACE_RUN) {
        char name[96];
        snprintf(name, sizeof name, "%.64s v%" PRIu64, text_of(w->trace, span->plan),
                 span->version);
        weft__out_json(out, name);
    } else {
        put_name(out, w->trace, span);
    }
    weft__out_format(out, ",\"cat\":\"%s\"", kind_word(span));
    put_number(out, ",\"pid\":", (uint64_t)w->trace->sources[span->source].pid);
    put_number(out, ",\"tid\":", span->lane);
    put_time(out, ",\"ts\":", span->start - w->base);
    put_time(out, ",\"dur\":", w->lengths[index]);
    put_arguments(out, w, span);
}

/* When an arrow leaves (the start of the send) and comes (the end of the receive). */
static uint64_t arrow_time(const struct weft__writing *w, const struct weft__arrow *arrow,
                           int comes)
{
    size_t index = comes ? arrow->to : arrow->from;
    const struct weft__span *span = &w->trace->spans[index];
    return comes ? span->start + w->lengths[index] - 1 : span->start;
}

static void put_arrow(struct weft__out *out, const struct weft__writing *w, size_t number,
                      int comes)
{
    const struct weft__arrow *arrow = &w->arrows[number];
    const struct weft__span *span = &w->trace->spans[comes ? arrow->to : arrow->from];
    const char *what = w->trace->spans[arrow->from].kind == WEFT_NODE_SEND ? "message" : "signal";
    weft__out_format(out, "{\"ph\":\"%s\",\"name\":\"%s\",\"cat\":\"%s\"", comes ? "f" : "s", what,
                     what);
    put_number(out, ",\"id\":", number + 1);
    put_number(out, ",\"pid\":", (uint64_t)w->trace->sources[span->source].pid);
    put_number(out, ",\"tid\":", span->lane);
    put_time(out, ",\"ts\":", arrow_time(w, arrow, comes) - w->base);
    weft__out_text(out, comes ? ",\"bp\":\"e\"}" : "}");
}

/* ---- order ---- */

enum { EVENT_SPAN, EVENT_LEAVES, EVENT_COMES };

struct event {
    uint64_t time;
    uint32_t number;
    uint32_t what;
};

static int compare_events(const void *left, const void *right)
{
    const struct event *a = left;
    const struct event *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->what != b->what)
        return a->what < b->what ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static struct event *order(const struct weft__writing *w, size_t *count)
{
    size_t n = 0;
    *count = w->trace->count + 2 * w->arrow_count;
    struct event *events = weft__malloc(*count, sizeof *events);
    if (!events)
        return NULL;
    for (uint32_t i = 0; i < w->trace->count; i++)
        events[n++] = (struct event){w->trace->spans[i].start, i, EVENT_SPAN};
    for (uint32_t p = 0; p < w->arrow_count; p++) {
        events[n++] = (struct event){arrow_time(w, &w->arrows[p], 0), p, EVENT_LEAVES};
        events[n++] = (struct event){arrow_time(w, &w->arrows[p], 1), p, EVENT_COMES};
    }
    qsort(events, n, sizeof *events, compare_events);
    return events;
}

/* ---- the whole ---- */

/* Ranks of the first group keep their numbers; those of others come after them. */
static void number_processes(struct weft_trace *trace)
{
    int first = 1; /* pid of rank 0 of the group */
    for (size_t s = 0; s < trace->source_count; s++) {
        struct weft__source *source = &trace->sources[s];
        if (s > 0 && source->group != source[-1].group)
            first = source[-1].pid + 1;
        source->pid = (int)((unsigned)first + (unsigned)source->rank);
    }
}

static int prepare(struct weft__writing *w)
{
    struct weft_trace *trace = w->trace;
    int status = weft__trace_sort(trace);
    if (status != WEFT_OK)
        return status;
    number_processes(trace);
    w->lengths = weft__malloc(trace->count, sizeof *w->lengths);
    w->lanes = weft__calloc(trace->source_count, (WEFT__LANE_CLASSES + 1) * sizeof *w->lanes);
    if (!w->lengths || !w->lanes)
        return weft__error_memory("writing a trace");
    w->base = trace->count > 0 ? UINT64_MAX : 0;
    for (size_t i = 0; i < trace->count; i++) {
        const struct weft__span *span = &trace->spans[i];
        w->lengths[i] = span->end - span->start;
        w->base = span->start < w->base ? span->start : w->base;
    }
    status = weft__trace_arrows(trace, &w->arrows, &w->arrow_count);
    for (size_t p = 0; p < w->arrow_count; p++) {
        w->lengths[w->arrows[p].from] += w->lengths[w->arrows[p].from] == 0;
        w->lengths[w->arrows[p].to] += w->lengths[w->arrows[p].to] == 0;
    }
    return status == WEFT_OK ? weft__lanes_assign(w) : status;
}

static int put_all(struct sink *sink, const struct weft__writing *w)
{
    const struct weft_trace *trace = w->trace;
    size_t count;
    struct event *events = order(w, &count);
    if (!events)
        return weft__error_memory("writing a trace");
    weft__out_text(&sink->out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    for (size_t s = 0; s < trace->source_count; s++) {
        put_rank(&sink->out, w, &trace->sources[s]);
        put_lanes(&sink->out, &trace->sources[s], &w->lanes[s * (WEFT__LANE_CLASSES + 1)]);
        flush(sink);
    }
    for (size_t i = 0; i < count; i++) {
        if (events[i].what == EVENT_SPAN)
            put_span(&sink->out, w, events[i].number);
        else
            put_arrow(&sink->out, w, events[i].number, events[i].what == EVENT_COMES);
        weft__out_text(&sink->out, SEPARATOR);
        flush(sink);
    }
    weft__free(events);
    if (trace->source_count > 0 && !sink->out.failed)
        sink->out.length -= strlen(SEPARATOR);
    weft__out_text(&sink->out, "\n]}\n");
    put_out(sink, sink->out.length);
    return sink->out.failed ? weft__error_memory("writing a trace") : WEFT_OK;
}

static int write_to(struct sink *sink, struct weft_trace *trace)
{
    struct weft__writing w = {.trace = trace};
    int status = prepare(&w);
    if (status == WEFT_OK)
        status = put_all(sink, &w);
    weft__free(w.lengths);
    weft__free(w.lanes);
    weft__free(w.arrows);
    return status;
}

int weft_trace_write(struct weft_trace *trace, const char *path)
{
    if (!trace)
        return WEFT__INVALID("%s: argument `trace` is NULL", __func__);
    const char *name = path ? path : "standard output";
    struct sink sink = {.file = path ? fopen(path, "w") : stdout};
    if (!sink.file)
        return weft__error(WEFT_ERR_IO, "%s: %s", name, strerror(errno));
    errno = 0;
    int status = write_to(&sink, trace);
    weft__free(sink.out.text);
    if ((path ? fclose(sink.file) : fflush(sink.file)) != 0 && sink.error == 0)
        sink.error = errno != 0 ? errno : EIO;
    if (status == WEFT_OK && sink.error != 0)
        status = weft__error(WEFT_ERR_IO, "%s: %s", name, strerror(sink.error));
    return status;
}

int weft_trace_write_text(struct weft_trace *trace, char **text, size_t *length)
{
    if (!trace || !text || !length)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             !trace  ? "trace"
                             : !text ? "text"
                                     : "length");
    struct sink sink = {.file = NULL};
    int status = write_to(&sink, trace);
    if (status != WEFT_OK) {
        weft__free(sink.out.text);
        return status;
    }
    *text = sink.out.text;
    *length = sink.out.length;
    return WEFT_OK;
}
