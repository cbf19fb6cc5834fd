/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traces read back. The document is walked through with a few lines of our own, and each event is
 * parsed by jansson and let go, so that memory is needed for the spans alone.
 *
 * What is not ours is skipped: other keys of the document, events of other programs.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/trace/trace.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A process of the document. */
struct process {
    int64_t pid;
    uint32_t source;
    uint64_t base;
};

struct reading {
    struct weft_trace *trace;
    FILE *file;
    const char *name;
    size_t events;
    struct process *processes;
    size_t count, capacity;
    size_t last; /* process looked up last */
};

static int malformed(const struct reading *r, const char *what)
{
    return weft__error(WEFT_ERR_FORMAT, "%s, after event %zu: %s", r->name, r->events, what);
}

static int refuse(const struct reading *r, const char *key, const char *expected)
{
    return weft__error(WEFT_ERR_FORMAT, "%s, event %zu: `%s` is not %s", r->name, r->events, key,
                       expected);
}

/* ---- values ---- */

/* An integer from `least` to `most`; `standard` if there is none. 0, or -1 if it is something else.
 */
static int get_integer(const json_t *object, const char *key, int64_t least, int64_t most,
                       int64_t standard, int64_t *value)
{
    const json_t *found = json_object_get(object, key);
    *value = standard;
    if (!found)
        return 0;
    if (!json_is_integer(found) || json_integer_value(found) < least ||
        json_integer_value(found) > most)
        return -1;
    *value = json_integer_value(found);
    return 0;
}

/* Microseconds as whole nanoseconds, of at most 2^53. 0, or -1. */
static int get_time(const json_t *object, const char *key, double least, double *ns)
{
    const json_t *found = json_object_get(object, key);
    if (!json_is_number(found))
        return -1;
    *ns = nearbyint(json_number_value(found) * 1000.0);
    return *ns >= least && *ns <= 9007199254740992.0 ? 0 : -1;
}

static int64_t get_text(struct weft_trace *trace, const json_t *object, const char *key)
{
    const json_t *found = json_object_get(object, key);
    return json_is_string(found)
               ? weft__trace_text(trace, json_string_value(found), strlen(json_string_value(found)))
               : 0;
}

static struct process *find_process(struct reading *r, int64_t pid)
{
    for (size_t i = 0; i < r->count; i++) {
        size_t p = (r->last + i) % r->count;
        if (r->processes[p].pid == pid) {
            r->last = p;
            return &r->processes[p];
        }
    }
    return NULL;
}

/* ---- events ---- */

/* Event "weft_rank": the rank that a process is. */
static int read_rank(struct reading *r, const json_t *event, const json_t *arguments)
{
    int64_t pid, rank, size, base, dropped, offset, uncertainty;
    if (get_integer(event, "pid", 0, INT32_MAX, -1, &pid) != 0 || pid < 0)
        return refuse(r, "pid", "a process number");
    if (get_integer(arguments, "rank", 0, INT32_MAX - 1, -1, &rank) != 0 || rank < 0)
        return refuse(r, "args.rank", "a rank");
    if (get_integer(arguments, "size", 0, INT32_MAX, 0, &size) != 0)
        return refuse(r, "args.size", "a number of ranks");
    if (get_integer(arguments, "base_ns", 0, INT64_MAX / 2, 0, &base) != 0)
        return refuse(r, "args.base_ns", "a time");
    if (get_integer(arguments, "dropped", 0, INT64_MAX, 0, &dropped) != 0)
        return refuse(r, "args.dropped", "a count");
    if (get_integer(arguments, "offset_ns", INT64_MIN, INT64_MAX, 0, &offset) != 0)
        return refuse(r, "args.offset_ns", "a time");
    if (json_is_null(json_object_get(arguments, "uncertainty_ns")))
        uncertainty = -1;
    else if (get_integer(arguments, "uncertainty_ns", 0, INT64_MAX, 0, &uncertainty) != 0)
        return refuse(r, "args.uncertainty_ns", "a time");
    int64_t group = get_text(r->trace, arguments, "group");
    int64_t clock = get_text(r->trace, arguments, "clock");
    int64_t number = group < 0 ? -1 : weft__trace_source(r->trace, (uint32_t)group, (int)rank);
    if (clock < 0 || number < 0 ||
        weft__grow((void **)&r->processes, &r->capacity, r->count + 1, sizeof *r->processes) != 0)
        return weft__error_memory("a trace");
    if (find_process(r, pid))
        return refuse(r, "pid", "the number of a process that is new");
    struct weft__source *source = &r->trace->sources[number];
    if (source->spans > 0 && source->clock != (uint32_t)clock)
        return weft__error(WEFT_ERR_FORMAT,
                           "%s, event %zu: rank %d has been read before, with another clock",
                           r->name, r->events, (int)rank);
    source->clock = (uint32_t)clock;
    source->size = (int)size;
    source->dropped += (uint64_t)dropped;
    source->offset = offset;
    source->uncertainty = uncertainty < 0 ? WEFT_NEVER : (uint64_t)uncertainty;
    r->processes[r->count++] = (struct process){pid, (uint32_t)number, (uint64_t)base};
    return WEFT_OK;
}

/* The kind that a word says; INT_MIN: none. */
static int read_kind(const json_t *word)
{
    const char *text = json_string_value(word);
    if (!text)
        return INT32_MIN;
    if (strcmp(text, "run") == 0)
        return WEFT_TRACE_RUN;
    for (int kind = 0; weft_node_kind_name((weft_node_kind_t)kind); kind++)
        if (strcmp(text, weft_node_kind_name((weft_node_kind_t)kind)) == 0)
            return kind;
    return INT32_MIN;
}

static int read_numbers(const struct reading *r, const json_t *arguments, struct weft__span *span)
{
    static const char *const ends[] = {"ended", "retired", "unfinished"};
    int64_t object, version, node, peer, tag, bytes, status;
    if (get_integer(arguments, "object", 0, UINT32_MAX - 1, UINT32_MAX, &object) != 0)
        return refuse(r, "args.object", "the number of an object");
    if (get_integer(arguments, "version", 0, INT64_MAX, 0, &version) != 0)
        return refuse(r, "args.version", "a version");
    if (get_integer(arguments, "node", -1, INT32_MAX, -1, &node) != 0)
        return refuse(r, "args.node", "the number of a node");
    if (get_integer(arguments, "peer", INT32_MIN, INT32_MAX, -1, &peer) != 0)
        return refuse(r, "args.peer", "a rank");
    int channelled = span->kind == WEFT_NODE_EVENT || span->kind == WEFT_NODE_SIGNAL;
    if (get_integer(arguments, channelled ? "channel" : "tag", 0, UINT32_MAX,
                    channelled ? WEFT_CHANNEL_NONE : 0, &tag) != 0)
        return refuse(r, channelled ? "args.channel" : "args.tag", "a number of 32 bits");
    if (get_integer(arguments, "bytes", 0, INT64_MAX, 0, &bytes) != 0)
        return refuse(r, "args.bytes", "a number of bytes");
    if (get_integer(arguments, "status", INT32_MIN, INT32_MAX, 0, &status) != 0)
        return refuse(r, "args.status", "a status");
    const char *end = json_string_value(json_object_get(arguments, "end"));
    for (uint8_t e = 0; end && e <= WEFT_TRACE_UNFINISHED; e++)
        if (strcmp(end, ends[e]) == 0)
            span->finish = e;
    span->object = (uint32_t)object;
    span->version = (uint64_t)version;
    span->node = (int32_t)node;
    span->peer = (int32_t)peer;
    span->tag = (uint32_t)tag;
    span->bytes = (uint64_t)bytes;
    span->status = (int32_t)status;
    span->helper = json_is_true(json_object_get(arguments, "helper"));
    return WEFT_OK;
}

static int read_span(struct reading *r, const json_t *event, const json_t *arguments)
{
    struct weft__span span = {.arrived = WEFT_NEVER};
    int64_t pid;
    double start, length, arrived;
    int kind = read_kind(json_object_get(arguments, "kind"));
    if (kind == INT32_MIN)
        return WEFT_OK; /* not one of ours */
    if (get_integer(event, "pid", 0, INT32_MAX, -1, &pid) != 0 || pid < 0)
        return refuse(r, "pid", "a process number");
    const struct process *process = find_process(r, pid);
    if (!process)
        return refuse(r, "pid", "a process that a `weft_rank` event has named");
    if (get_time(event, "ts", 0, &start) != 0)
        return refuse(r, "ts", "a time from 0 in microseconds");
    if (get_time(event, "dur", 0, &length) != 0)
        return refuse(r, "dur", "a duration in microseconds");
    span.kind = (int8_t)kind;
    int status = read_numbers(r, arguments, &span);
    if (status != WEFT_OK)
        return status;
    span.start = process->base + (uint64_t)start;
    span.end = span.start + (uint64_t)length;
    if (json_object_get(arguments, "arrived")) {
        if (get_time(arguments, "arrived", -9007199254740992.0, &arrived) != 0)
            return refuse(r, "args.arrived", "a time in microseconds");
        span.arrived = process->base + (uint64_t)(int64_t)arrived;
        if (arrived < 0 && (uint64_t)-arrived > process->base)
            span.arrived = 0;
    }
    span.source = process->source;
    int64_t plan = get_text(r->trace, arguments, "plan");
    int64_t label = get_text(r->trace, arguments, "label");
    struct weft__span *kept = plan < 0 || label < 0 ? NULL : weft__trace_push(r->trace);
    if (!kept)
        return weft__error_memory("a trace");
    span.plan = (uint32_t)plan;
    span.label = (uint32_t)label;
    *kept = span;
    r->trace->sources[span.source].spans++;
    return WEFT_OK;
}

static int read_event(struct reading *r, const json_t *event)
{
    const char *phase = json_string_value(json_object_get(event, "ph"));
    const char *name = json_string_value(json_object_get(event, "name"));
    const json_t *arguments = json_object_get(event, "args");
    if (!phase || !json_is_object(arguments))
        return WEFT_OK;
    if (strcmp(phase, "M") == 0 && name && strcmp(name, "weft_rank") == 0)
        return read_rank(r, event, arguments);
    return strcmp(phase, "X") == 0 ? read_span(r, event, arguments) : WEFT_OK;
}

/* ---- the document ---- */

static int next_character(const struct reading *r)
{
    int c;
    do
        c = getc(r->file);
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r');
    return c;
}

/* The rest of a string, whose first 31 bytes are kept. 0, or -1 at the end of the file. */
static int read_string(const struct reading *r, char text[32])
{
    size_t length = 0;
    for (int c = getc(r->file); c != '"'; c = getc(r->file)) {
        if (c == '\\')
            c = getc(r->file);
        if (c == EOF)
            return -1;
        if (length < 31)
            text[length++] = (char)c;
    }
    text[length] = '\0';
    return 0;
}

/* A value that means nothing to us; stops before the comma or bracket behind it. */
static int skip_value(const struct reading *r)
{
    char text[32];
    size_t depth = 0;
    for (;;) {
        int c = getc(r->file);
        if (c == EOF)
            return -1;
        if (depth == 0 && (c == ',' || c == '}' || c == ']')) {
            ungetc(c, r->file);
            return 0;
        }
        if (c == '"' && read_string(r, text) != 0)
            return -1;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
    }
}

/* The events of an array, behind its bracket. */
static int read_events(struct reading *r)
{
    int c = next_character(r);
    if (c == ']')
        return WEFT_OK;
    for (;; c = next_character(r)) {
        if (c != '{')
            return malformed(r, "expected an event, which begins with `{`");
        ungetc(c, r->file);
        json_error_t error;
        json_t *event =
            json_loadf(r->file, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error);
        r->events++;
        if (!event)
            return malformed(r, error.text);
        int status = read_event(r, event);
        json_decref(event);
        if (status != WEFT_OK)
            return status;
        c = next_character(r);
        if (c == ']')
            return WEFT_OK;
        if (c != ',')
            return malformed(r, "expected `,` or `]`");
    }
}

static int read_document(struct reading *r)
{
    int c = next_character(r);
    if (c == '[')
        return read_events(r);
    if (c != '{')
        return malformed(r, "expected `{`: a Chrome trace");
    int found = 0;
    for (c = next_character(r); c == '"' || c == ','; c = next_character(r)) {
        char key[32];
        if (c == ',')
            c = next_character(r);
        if (c != '"' || read_string(r, key) != 0 || next_character(r) != ':')
            return malformed(r, "expected a key and `:`");
        if (strcmp(key, "traceEvents") == 0) {
            if (next_character(r) != '[')
                return malformed(r, "expected `[` behind `traceEvents`");
            int status = read_events(r);
            if (status != WEFT_OK)
                return status;
            found = 1;
        } else if (skip_value(r) != 0) {
            return malformed(r, "the file ends within a value");
        }
    }
    if (c != '}')
        return malformed(r, "expected `}`");
    return found ? WEFT_OK : malformed(r, "there is no `traceEvents`");
}

static int read_from(struct weft_trace *trace, FILE *file, const char *name)
{
    struct reading r = {.trace = trace, .file = file, .name = name};
    int status = read_document(&r);
    if (ferror(file))
        status = weft__error(WEFT_ERR_IO, "%s: %s", name, strerror(errno));
    weft__free(r.processes);
    return status;
}

int weft_trace_read(struct weft_trace *trace, const char *path)
{
    if (!trace || !path)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !trace ? "trace" : "path");
    FILE *file = fopen(path, "r");
    if (!file)
        return weft__error(WEFT_ERR_IO, "%s: %s", path, strerror(errno));
    int status = read_from(trace, file, path);
    fclose(file);
    return status;
}

int weft_trace_read_text(struct weft_trace *trace, const char *text, size_t length)
{
    if (!trace || !text)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !trace ? "trace" : "text");
    if (length == 0)
        return weft__error(WEFT_ERR_FORMAT, "the text is empty, expected a Chrome trace");
    FILE *file = fmemopen((void *)(uintptr_t)text, length, "r");
    if (!file)
        return weft__error_memory(__func__);
    int status = read_from(trace, file, "the text");
    fclose(file);
    return status;
}
