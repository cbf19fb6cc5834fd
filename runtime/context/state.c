/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of a context as JSON, for a post-mortem: what each of its objects is at, which nodes
 * have not ended and why, and which messages have come that nobody receives.
 *
 * The state of a node is not kept anywhere as such; it follows from its word, the ready set, its
 * transfer and its call (node_state()). Sends, receives and signals are written even if they have
 * ended, so that a peer which waits for one can be told whether it has happened or does not exist.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/out.h"
#include "runtime/context/context.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/trace.h>

enum node_state { NODE_ENDED, NODE_RETIRED, NODE_BLOCKED, NODE_READY, NODE_RUNNING, NODE_WAITING };

static const char *const state_words[] = {"ended", "retired", "blocked",
                                          "ready", "running", "waiting"};

static enum node_state transfer_state(const struct weft_run *run, const struct weft__node *node)
{
    switch (run->xfers[node->index].message.xflags) {
    case WEFT__X_IDLE:
        return NODE_ENDED; /* or it has not begun */
    case WEFT__X_POSTED:
    case WEFT__X_SENDING:
    case WEFT__X_COPYING_WAITS:
    case WEFT__X_REDUCING_WAITS:
        return NODE_WAITING;
    default:
        return NODE_RUNNING;
    }
}

static enum node_state node_state(const struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    uint32_t word = run->waits[n];
    enum node_state state = NODE_ENDED;
    if (word & WEFT__RETIRE)
        return NODE_RETIRED;
    if (run->ready[n / 64] >> (n % 64) & 1)
        return NODE_READY;
    switch (node->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        state = transfer_state(run, node);
        break;
    case WEFT_NODE_REDUCE:
    case WEFT_NODE_COPY:
        if (node->index != WEFT__NONE)
            state = transfer_state(run, node);
        /* Fused: it began before its receive, which it works for, has been counted. */
        if (word & WEFT__STARTED && !(word & WEFT__ANY) && (word & WEFT__COUNT) != 0)
            state = NODE_RUNNING;
        break;
    case WEFT_NODE_COMPUTE:
        if (node->flags & WEFT__JOINT)
            state = transfer_state(run, node);
        else
            state = run->calls[node->index].pending ? NODE_WAITING : NODE_ENDED;
        break;
    case WEFT_NODE_EVENT:
        state = word & WEFT__OPEN ? NODE_WAITING : NODE_ENDED;
        break;
    default:
        break;
    }
    if (state != NODE_ENDED || (word & WEFT__STARTED))
        return state;
    return word & WEFT__COUNT ? NODE_BLOCKED : NODE_ENDED;
}

static int unfinished(enum node_state state)
{
    return state != NODE_ENDED && state != NODE_RETIRED;
}

/* ---- which unfinished nodes a node waits for ---- */

struct before {
    uint8_t *states; /* of each node */
    size_t *first;   /* predecessors of n that have not ended: nodes[first[n]] .. */
    uint32_t *nodes;
};

static void free_before(struct before *before)
{
    weft__free(before->states);
    weft__free(before->first);
    weft__free(before->nodes);
}

/* Counts or (with `fill`) writes the predecessors. */
static void walk_edges(const struct weft_plan *plan, struct before *before, int fill)
{
    for (uint32_t n = 0; n < plan->node_count; n++) {
        if (!unfinished(before->states[n]))
            continue;
        for (uint32_t e = plan->first[n]; e < plan->first[n + 1]; e++) {
            uint32_t next = plan->after[e];
            if (before->states[next] != NODE_BLOCKED)
                continue;
            if (fill)
                before->nodes[before->first[next]] = n;
            before->first[next + !fill]++;
        }
    }
}

static int find_before(const struct weft_run *run, struct before *before)
{
    const struct weft_plan *plan = run->plan;
    *before = (struct before){weft__malloc(plan->node_count, 1),
                              weft__calloc((size_t)plan->node_count + 1, sizeof(size_t)),
                              weft__malloc(plan->edge_count, sizeof(uint32_t))};
    if (!before->states || !before->first || !before->nodes)
        return -1;
    for (uint32_t n = 0; n < plan->node_count; n++)
        before->states[n] = (uint8_t)node_state(run, n);
    walk_edges(plan, before, 0);
    for (uint32_t n = 0; n < plan->node_count; n++)
        before->first[n + 1] += before->first[n];
    walk_edges(plan, before, 1);
    /* Filling has moved each start to the next one's. */
    memmove(before->first + 1, before->first, plan->node_count * sizeof *before->first);
    before->first[0] = 0;
    return 0;
}

/* ---- writing ---- */

static void put_message(struct weft__out *out, const struct weft__message *message)
{
    weft__out_format(out, "{\"object\":%llu,\"version\":%llu,\"from\":%d,\"tag\":%u,\"bytes\":%zu}",
                     (unsigned long long)message->object, (unsigned long long)message->version,
                     message->from, message->tag, message->bytes);
}

static void put_node(struct weft__out *out, const struct weft_run *run, uint32_t n,
                     enum node_state state, uint64_t now)
{
    const struct weft__node *node = &run->plan->nodes[n];
    const char *label = weft__plan_label(run->plan, n);
    uint32_t line = weft__plan_line(run->plan, n);
    int transfers = node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV;
    weft__out_format(out, "{\"node\":%u,\"kind\":\"%s\",\"state\":\"%s\"", n,
                     weft_node_kind_name((weft_node_kind_t)node->kind), state_words[state]);
    if (label) {
        weft__out_text(out, ",\"label\":");
        weft__out_json(out, label);
    }
    if (line)
        weft__out_format(out, ",\"line\":%u", line);
    if (transfers || node->kind == WEFT_NODE_SIGNAL)
        weft__out_format(out, ",\"peer\":%d", weft__peer(run, node->peer));
    if (transfers)
        weft__out_format(out, ",\"tag\":%u,\"bytes\":%zu", node->tag,
                         weft__region_bytes(run, &run->plan->regions[node->regions]));
    else if ((node->kind == WEFT_NODE_SIGNAL || node->kind == WEFT_NODE_EVENT) &&
             node->tag != WEFT_CHANNEL_NONE)
        weft__out_format(out, ",\"channel\":%u", node->tag);
    int timed = run->deadline_ns != 0 || run->context->config.stall_ns != 0;
    if (transfers && timed && state == NODE_WAITING && run->xfers[node->index].done <= now)
        weft__out_format(out, ",\"since_s\":%.6f",
                         (double)(now - run->xfers[node->index].done) * 1e-9);
    const struct weft__message *instead =
        state == NODE_WAITING ? weft__unmatched_for(run, n) : NULL;
    if (instead) {
        weft__out_text(out, ",\"instead\":");
        put_message(out, instead);
    }
}

static int put_nodes(struct weft__out *out, const struct weft_run *run, int active, uint64_t now)
{
    const struct weft_plan *plan = run->plan;
    struct before before = {NULL, NULL, NULL};
    const char *comma = "";
    if (active && find_before(run, &before) != 0) {
        free_before(&before);
        return -1;
    }
    weft__out_text(out, ",\"nodes\":[");
    for (uint32_t n = 0; n < plan->node_count; n++) {
        enum node_state state = active ? (enum node_state)before.states[n] : NODE_ENDED;
        uint8_t kind = plan->nodes[n].kind;
        if (!unfinished(state) && kind != WEFT_NODE_SEND && kind != WEFT_NODE_RECV &&
            kind != WEFT_NODE_SIGNAL)
            continue;
        weft__out_text(out, comma);
        weft__out_text(out, "\n  ");
        put_node(out, run, n, state, now);
        for (size_t i = active ? before.first[n] : 0; active && i < before.first[n + 1]; i++)
            weft__out_format(out, "%s%u", i == before.first[n] ? ",\"after\":[" : ",",
                             before.nodes[i]);
        if (active && before.first[n] < before.first[n + 1])
            weft__out_text(out, "]");
        weft__out_text(out, "}");
        comma = ",";
    }
    weft__out_text(out, "]");
    free_before(&before);
    return 0;
}

/* An object, and the run that it is at: the active one, else that which it is; NULL for an idle
 * series. */
struct placed {
    const struct weft__object *object;
    const struct weft_run *run;
};

/* The number of a whole: it has no versions, but says how many members there have been, so that
 * one which is not there has been destroyed, or was never created. */
static void put_whole(struct weft__out *out, struct weft__whole *whole)
{
    /* Acquire pairs with the release in weft__whole_mark(): the text is there. */
    int status = atomic_load_explicit(&whole->status, memory_order_acquire);
    weft__out_format(out, "\n {\"object\":%llu,\"kind\":\"object\",\"members\":%llu",
                     (unsigned long long)whole->number.id, (unsigned long long)whole->member_count);
    weft__out_format(out, ",\"state\":\"%s\"", status < 0 ? "ended" : "idle");
    if (status < 0) {
        weft__out_format(out, ",\"status\":%d,\"error\":", status);
        weft__out_json(out, whole->text);
    }
    weft__out_text(out, ",\"nodes\":[]}");
}

static void put_object(struct weft__out *out, const struct weft_context *context,
                       const struct weft__object *object, const struct weft_run *run)
{
    uint64_t now = weft__clock(context);
    int active = run && object->active == run;
    weft__out_format(out, "\n {\"object\":%llu,\"kind\":\"%s\",\"floor\":%llu",
                     (unsigned long long)object->id, object->series ? "series" : "run",
                     (unsigned long long)object->floor);
    if (object->failing != UINT64_MAX)
        weft__out_format(out, ",\"failing\":%llu", (unsigned long long)object->failing);
    if (!run) {
        weft__out_text(out, ",\"state\":\"idle\",\"nodes\":[]}");
        return;
    }
    int state = atomic_load_explicit(&run->state, memory_order_relaxed);
    uint64_t version = atomic_load_explicit(&run->told_version, memory_order_relaxed);
    weft__out_text(out, ",\"plan\":");
    weft__out_json(out, run->plan->name);
    weft__out_format(out, ",\"state\":\"%s\"",
                     active                      ? "active"
                     : state == WEFT__RUN_ENDED  ? "ended"
                     : state == WEFT__RUN_QUEUED ? "queued"
                                                 : "idle");
    if (version != UINT64_MAX)
        weft__out_format(out, ",\"version\":%llu", (unsigned long long)version);
    /* An active one is failing: the state is taken before anything of it is taken back. */
    if (state == WEFT__RUN_ENDED || (active && run->status < 0)) {
        weft__out_format(out, ",\"status\":%d", run->status);
        if (!active && run->status < 0) {
            weft__out_text(out, ",\"error\":");
            weft__out_json(out, run->error ? run->error : weft_status_text(run->status));
        }
    }
    weft__out_format(out, ",\"unfinished\":%u,\"count\":%u", active ? run->left : 0,
                     run->plan->node_count);
    if (put_nodes(out, run, active, now) != 0)
        out->failed = 1;
    weft__out_text(out, "}");
}

static int compare_ids(const void *left, const void *right)
{
    uint64_t a = ((const struct placed *)left)->object->id;
    uint64_t b = ((const struct placed *)right)->object->id;
    return a < b ? -1 : a > b;
}

/* Those that live, by their numbers. Runs know their objects, but not the other way round. */
static void put_objects(struct weft__out *out, const struct weft_context *context)
{
    const struct weft__engine *engine = &context->engine;
    struct placed *objects = weft__malloc(engine->object_count + 1, sizeof *objects);
    size_t count = 0;
    if (!objects) {
        out->failed = 1;
        return;
    }
    for (size_t c = 0; engine->objects && c <= engine->object_mask; c++)
        for (const struct weft__object *o = engine->objects[c]; o; o = o->next)
            objects[count++] = (struct placed){o, o->active};
    if (weft_sequence_next(context) > 0)
        objects[count++] =
            (struct placed){&engine->sequence, engine->sequence.active
                                                   ? engine->sequence.active
                                                   : atomic_load_explicit(&context->sequence_run,
                                                                          memory_order_relaxed)};
    qsort(objects, count, sizeof *objects, compare_ids);
    for (const struct weft_run *run = context->runs; run; run = run->all_next) {
        const struct placed key = {run->object, NULL};
        struct placed *found =
            run->object ? bsearch(&key, objects, count, sizeof key, compare_ids) : NULL;
        if (found && !found->run && !run->object->series)
            found->run = run;
    }
    for (size_t o = 0; o < count; o++) {
        weft__out_text(out, o == 0 ? "" : ",");
        if (weft__object_is_whole(objects[o].object))
            put_whole(out, objects[o].object->whole);
        else
            put_object(out, context, objects[o].object, objects[o].run);
    }
    weft__free(objects);
}

static void put_unmatched(struct weft__out *out, const struct weft__engine *engine)
{
    const char *comma = "";
    weft__out_text(out, "],\n\"unmatched\":[");
    for (size_t b = 0; b <= engine->match.mask; b++)
        for (const struct weft__message *message = engine->match.buckets[b]; message;
             message = message->next) {
            if (message->kind != WEFT__DATA)
                continue;
            weft__out_text(out, comma);
            weft__out_text(out, "\n ");
            put_message(out, message);
            comma = ",";
        }
    weft__out_text(out, "],\n\"left\":[");
    comma = "";
    for (int r = 0; r < engine->transport->size; r++)
        if (weft__engine_has_gone(engine, r)) {
            weft__out_format(out, "%s%d", comma, r);
            comma = ",";
        }
    weft__out_text(out, "]}\n");
}

/* While driving. */
static int write_state(struct weft_context *context, unsigned number, const char *path,
                       const char *why)
{
    const struct weft__engine *engine = &context->engine;
    const struct weft__transport *transport = engine->transport;
    struct weft__out out = {0};
    char group[WEFT__ORIGIN_BYTES];
    char clock[WEFT__ORIGIN_BYTES];
    weft__origin(transport, group, clock);
    weft__out_format(&out, "{\"weft_state\":1,\"rank\":%d,\"size\":%d,\"transport\":\"%s\"",
                     transport->rank, transport->size, transport->about->name);
    weft__out_text(&out, ",\"group\":");
    weft__out_json(&out, group);
    weft__out_format(&out, ",\"sequence\":%u,\n\"why\":", number);
    weft__out_json(&out, why ? why : "");
    weft__out_format(&out, ",\n\"object_count\":%llu,\"objects\":[",
                     (unsigned long long)engine->object_next);
    put_objects(&out, context);
    put_unmatched(&out, engine);
    FILE *file = out.failed ? NULL : fopen(path, "w");
    int failed = !file || fwrite(out.text, 1, out.length, file) != out.length;
    int reason = errno;
    if (file && fclose(file) != 0 && !failed) {
        failed = 1;
        reason = errno;
    }
    int memory = out.failed;
    weft__free(out.text);
    if (memory)
        return weft__error_memory("the state of a context");
    return failed ? weft__error(WEFT_ERR_IO, "%s: %s", path, strerror(reason)) : WEFT_OK;
}

int weft_context_dump_state(struct weft_context *context, const char *path, const char *why)
{
    if (!context || !path)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "path");
    weft__drive_lock(context);
    int status = write_state(context, context->state_number++, path, why);
    weft__drive_unlock(context);
    return status;
}

struct dump {
    struct weft_context *context;
    const char *why;
    unsigned number;
};

static int write_dump(void *user, const char *part)
{
    const struct dump *dump = user;
    return write_state(dump->context, dump->number, part, dump->why);
}

void weft__state_dump(struct weft_context *context, const char *why)
{
    char *path = NULL;
    if (!context->state_directory)
        return;
    int status =
        weft__rank_file(context, context->state_directory, "state", &context->state_number, &path);
    struct dump dump = {context, why, context->state_number - 1};
    if (status == WEFT_OK)
        status = weft__rank_file_write(path, write_dump, &dump);
    weft__free(path);
    if (status != WEFT_OK)
        weft__log(context, WEFT_LOG_WARNING, "WEFT_STATE: %s", weft_error_text());
}
