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

/* Open addressing over what waits for its other half: starts of nodes and runs, by run, version and
 * node; messages, by object, version, peer and tag. An entry holds a number + 1; 0 is free. */
struct waiting {
    uint32_t *entries;
    size_t mask;
};

struct collecting {
    const struct weft__recorder *recorder;
    struct weft_trace *trace;
    size_t first; /* span of this rank in the trace */
    uint32_t source;
    uint32_t *plans;  /* text of each plan's name */
    uint32_t *run_of; /* of each span from `first`: number of its run */
    size_t run_of_capacity;
    struct waiting spans;    /* numbers of spans, from `first` */
    struct waiting messages; /* places in the ring */
};

static size_t hash_key(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t key = a * UINT64_C(0x9E3779B97F4A7C15);
    key ^= b * UINT64_C(0xC2B2AE3D27D4EB4F);
    key ^= c * UINT64_C(0x165667B19E3779F9);
    key *= UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(key ^ key >> 32);
}

static const struct weft__record *record_at(const struct collecting *c, uint64_t number)
{
    return &c->recorder->records[number & c->recorder->mask];
}

static size_t hash_span(const struct collecting *c, uint32_t entry)
{
    const struct weft__span *span = &c->trace->spans[c->first + entry - 1];
    return hash_key(c->run_of[entry - 1], span->version, (uint32_t)span->node);
}

/* Where the latest span of a run's node waits; NULL: nowhere. */
static uint32_t *find_span(const struct collecting *c, const struct weft__record *record)
{
    size_t at = hash_key(record->run, record->version, record->node) & c->spans.mask;
    for (; c->spans.entries[at] != 0; at = (at + 1) & c->spans.mask) {
        uint32_t entry = c->spans.entries[at];
        const struct weft__span *span = &c->trace->spans[c->first + entry - 1];
        if (c->run_of[entry - 1] == record->run && span->version == record->version &&
            (uint32_t)span->node == record->node)
            return &c->spans.entries[at];
    }
    return NULL;
}

static void put_entry(struct waiting *waiting, size_t hash, uint32_t entry)
{
    size_t at = hash & waiting->mask;
    while (waiting->entries[at] != 0)
        at = (at + 1) & waiting->mask;
    waiting->entries[at] = entry;
}

/* Signals are found by channel and version, messages by their sender as well. */
static size_t hash_message(uint32_t object, uint64_t version, int64_t peer, uint32_t tag)
{
    return hash_key((uint64_t)object << 32 | tag, version, (uint64_t)peer);
}

/* The first message of a key that came, NULL if none did. peer -1: a signal. */
static const struct weft__record *arrival(const struct collecting *c, const struct weft__span *span,
                                          int64_t peer)
{
    size_t at = hash_message(span->object, span->version, peer, span->tag) & c->messages.mask;
    for (; c->messages.entries[at] != 0; at = (at + 1) & c->messages.mask) {
        const struct weft__record *record = &c->recorder->records[c->messages.entries[at] - 1];
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
        put_entry(&c->spans, hash_span(c, (uint32_t)number + 1), (uint32_t)number + 1);
    return 0;
}

static void end_span(struct collecting *c, const struct weft__record *record)
{
    const uint32_t *entry = find_span(c, record);
    if (!entry)
        return; /* its start has been dropped, or was before tracing began */
    struct weft__span *span = &c->trace->spans[c->first + *entry - 1];
    if (span->finish != WEFT_TRACE_UNFINISHED)
        return;
    span->end = record->time;
    span->helper = record->helper;
    span->status = record->status;
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
        const uint32_t *entry = find_span(c, &run);
        const struct weft__span *whole = entry ? &c->trace->spans[c->first + *entry - 1] : NULL;
        span->end = whole && whole->finish == WEFT_TRACE_ENDED ? whole->end : now;
        if (span->end < span->start)
            span->end = span->start;
    }
}

static int make_tables(struct collecting *c, uint64_t oldest)
{
    size_t held = (size_t)(c->recorder->count - oldest);
    size_t size = 16;
    while (size < 2 * held)
        size *= 2;
    c->spans = (struct waiting){weft__calloc(size, sizeof(uint32_t)), size - 1};
    c->messages = (struct waiting){weft__calloc(size, sizeof(uint32_t)), size - 1};
    c->plans = weft__calloc(c->recorder->plan_count + 1, sizeof *c->plans);
    if (!c->spans.entries || !c->messages.entries || !c->plans)
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
            put_entry(&c->messages,
                      hash_message(record->object, record->version,
                                   record->kind == WEFT__SIGNAL ? -1 : record->peer, record->tag),
                      (uint32_t)(i & c->recorder->mask) + 1);
    }
    for (uint64_t i = oldest; i < c->recorder->count; i++) {
        const struct weft__record *record = record_at(c, i);
        int failed = 0;
        if (record->what == WEFT__NOTE_START || record->what == WEFT__NOTE_RUN_START)
            failed = begin_span(c, record);
        else if (record->what == WEFT__NOTE_RETIRED && !find_span(c, record))
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
    weft__free(c.spans.entries);
    weft__free(c.messages.entries);
    weft__free(c.plans);
    weft__free(c.run_of);
    return failed ? weft__error_memory("a trace") : WEFT_OK;
}
