/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Spans, made of what a recorder holds: when somebody asks for them, by going once through the
 * ring. A start waits in a hash table for its end, a message for the receive that took it.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include "runtime/engine/record.h"
#include "runtime/trace/trace.h"
#include <string.h>

struct collecting {
    const struct weft__recorder *recorder;
    struct weft_trace *trace;
    size_t first; /* span of this rank in the trace */
    uint32_t source;
    uint32_t *plans;  /* text of each plan's name */
    uint32_t *run_of; /* of each span from `first`: number of its run */
    size_t run_of_capacity;
    /* What waits for its other half. They never grow, so the first of a key is found first. */
    struct weft__table spans;    /* from `first`, by run, version and node */
    struct weft__table messages; /* places in the ring, by object, version, peer and tag */
};

static const struct weft__record *record_at(const struct collecting *c, uint64_t number)
{
    return &c->recorder->records[number & c->recorder->mask];
}

static uint64_t hash_span(uint32_t run, uint64_t version, uint32_t node)
{
    return weft__hash_three(run, version, node);
}

/* The span of a run's node that waits: a number from `first`, or WEFT__TABLE_END. */
static uint32_t find_span(const struct collecting *c, const struct weft__record *record)
{
    uint64_t hash = hash_span(record->run, record->version, record->node);
    size_t at;
    for (uint32_t n = weft__table_first(&c->spans, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(&c->spans, hash, &at)) {
        const struct weft__span *span = &c->trace->spans[c->first + n];
        if (c->run_of[n] == record->run && span->version == record->version &&
            (uint32_t)span->node == record->node)
            return n;
    }
    return WEFT__TABLE_END;
}

/* Signals are found by channel and version, messages by their sender as well. */
static uint64_t hash_message(uint32_t object, uint64_t version, int64_t peer, uint32_t tag)
{
    return weft__hash_three((uint64_t)object << 32 | tag, version, (uint64_t)peer);
}

/* The first message of a key that came, NULL if none did. peer -1: a signal. */
static const struct weft__record *arrival(const struct collecting *c, const struct weft__span *span,
                                          int64_t peer)
{
    uint64_t hash = hash_message(span->object, span->version, peer, span->tag);
    size_t at;
    for (uint32_t n = weft__table_first(&c->messages, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(&c->messages, hash, &at)) {
        const struct weft__record *record = &c->recorder->records[n];
        if (record->object == span->object && record->version == span->version &&
            record->tag == span->tag && (peer < 0) == (record->kind == WEFT__SIGNAL) &&
            (peer < 0 || record->peer == peer))
            return record;
    }
    return NULL;
}

static int begin_span(struct collecting *c, const struct weft__record *record)
{
    size_t number = c->trace->count - c->first;
    const struct weft__kept_plan *plan = &c->recorder->plans[record->plan];
    const char *label = record->node == WEFT__NONE
                            ? NULL
                            : weft__label_of(plan->labels, plan->label_count, record->node);
    int64_t text = label ? weft__trace_text(c->trace, label, strlen(label)) : 0;
    if (text < 0 ||
        weft__grow((void **)&c->run_of, &c->run_of_capacity, number + 1, sizeof *c->run_of) != 0)
        return -1;
    struct weft__span *span = weft__trace_push(c->trace);
    if (!span)
        return -1;
    *span = (struct weft__span){
        .version = record->version,
        .bytes = record->bytes,
        .start = record->time,
        .end = record->time,
        .arrived = WEFT_NEVER,
        .source = c->source,
        .object = record->object,
        .tag = record->tag,
        .plan = c->plans[record->plan],
        .label = (uint32_t)text,
        .node = (int32_t)record->node,
        .peer = record->peer,
        .status = record->status,
        .kind = record->node == WEFT__NONE ? WEFT_TRACE_RUN : (int8_t)record->kind,
        .finish = record->what == WEFT__NOTE_RETIRED ? WEFT_TRACE_RETIRED : WEFT_TRACE_UNFINISHED,
        .helper = record->helper,
    };
    c->run_of[number] = record->run;
    if (record->what != WEFT__NOTE_RETIRED)
        return weft__table_add(&c->spans, hash_span(record->run, record->version, record->node),
                               (uint32_t)number);
    return 0;
}

static void end_span(struct collecting *c, const struct weft__record *record)
{
    uint32_t number = find_span(c, record);
    if (number == WEFT__TABLE_END)
        return; /* its start has been dropped, or was before tracing began */
    struct weft__span *span = &c->trace->spans[c->first + number];
    if (span->finish != WEFT_TRACE_UNFINISHED)
        return;
    span->end = record->time;
    span->helper = record->helper;
    span->status = (int32_t)record->status;
    span->finish = record->what == WEFT__NOTE_RETIRED ? WEFT_TRACE_RETIRED : WEFT_TRACE_ENDED;
    if (span->kind == WEFT_NODE_RECV)
        span->bytes = record->bytes;
    int hears = span->kind == WEFT_NODE_EVENT && span->tag != WEFT_CHANNEL_NONE;
    if (!hears && (span->kind != WEFT_NODE_RECV || span->peer < 0))
        return;
    const struct weft__record *message = arrival(c, span, hears ? -1 : span->peer);
    if (!message || message->time > record->time)
        return; /* of an event: the application has fired it, or the signal of a later version */
    span->arrived = message->time;
    span->peer = message->peer;
}

/* A span that has no end lasts until its run ended, or until now. */
static void end_rest(const struct collecting *c, uint64_t now)
{
    for (size_t i = c->first; i < c->trace->count; i++) {
        struct weft__span *span = &c->trace->spans[i];
        if (span->finish != WEFT_TRACE_UNFINISHED)
            continue;
        struct weft__record run = {
            .version = span->version, .run = c->run_of[i - c->first], .node = WEFT__NONE};
        uint32_t number = find_span(c, &run);
        const struct weft__span *whole =
            number == WEFT__TABLE_END ? NULL : &c->trace->spans[c->first + number];
        span->end = whole && whole->finish == WEFT_TRACE_ENDED ? whole->end : now;
        if (span->end < span->start)
            span->end = span->start;
    }
}

static int make_tables(struct collecting *c, uint64_t oldest)
{
    size_t held = (size_t)(c->recorder->count - oldest);
    c->plans = weft__calloc(c->recorder->plan_count + 1, sizeof *c->plans);
    if (!c->plans || weft__table_reserve(&c->spans, held) ||
        weft__table_reserve(&c->messages, held))
        return -1;
    for (size_t p = 0; p < c->recorder->plan_count; p++) {
        const char *name = c->recorder->plans[p].name;
        int64_t text = weft__trace_text(c->trace, name, strlen(name));
        if (text < 0)
            return -1;
        c->plans[p] = (uint32_t)text;
    }
    return 0;
}

static int go_through(struct collecting *c, uint64_t oldest)
{
    for (uint64_t i = oldest; i < c->recorder->count; i++) {
        const struct weft__record *record = record_at(c, i);
        if (record->what == WEFT__NOTE_ARRIVED)
            (void)weft__table_add(&c->messages,
                                  hash_message(record->object, record->version,
                                               record->kind == WEFT__SIGNAL ? -1 : record->peer,
                                               record->tag),
                                  (uint32_t)(i & c->recorder->mask));
    }
    for (uint64_t i = oldest; i < c->recorder->count; i++) {
        const struct weft__record *record = record_at(c, i);
        int failed = 0;
        if (record->what == WEFT__NOTE_START || record->what == WEFT__NOTE_RUN_START ||
            (record->what == WEFT__NOTE_RETIRED && find_span(c, record) == WEFT__TABLE_END))
            failed = begin_span(c, record);
        else if (record->what != WEFT__NOTE_ARRIVED)
            end_span(c, record);
        if (failed)
            return -1;
    }
    return 0;
}

/* While driving. */
int weft__recorder_collect(struct weft_context *context, struct weft_trace *trace)
{
    const struct weft__engine *engine = &context->engine;
    const struct weft__recorder *recorder = engine->recorder;
    uint64_t held = recorder->mask + 1;
    uint64_t oldest = recorder->count > held ? recorder->count - held : 0;
    struct collecting c = {.recorder = recorder, .trace = trace, .first = trace->count};
    char group[WEFT__ORIGIN_BYTES];
    char clock[WEFT__ORIGIN_BYTES];
    weft__origin(engine->transport, group, clock);
    int64_t group_text = weft__trace_text(trace, group, strlen(group));
    int64_t clock_text = weft__trace_text(trace, clock, strlen(clock));
    int64_t source = group_text < 0 || clock_text < 0
                         ? -1
                         : weft__trace_source(trace, (uint32_t)group_text, engine->transport->rank);
    int failed = source < 0;
    c.source = (uint32_t)source;
    failed = failed || make_tables(&c, oldest) != 0 || go_through(&c, oldest) != 0;
    if (!failed) {
        struct weft__source *own = &trace->sources[source];
        end_rest(&c, weft__clock(context));
        own->size = engine->transport->size;
        own->clock = (uint32_t)clock_text;
        own->dropped += oldest;
        own->spans += trace->count - c.first;
    } else {
        trace->count = c.first;
    }
    weft__table_free(&c.spans);
    weft__table_free(&c.messages);
    weft__free(c.plans);
    weft__free(c.run_of);
    return failed ? weft__error_memory("a trace") : WEFT_OK;
}
