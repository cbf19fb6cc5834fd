/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stall report: what the unfinished nodes of a run wait for.
 *
 * A line for the run, one that says which ranks are missing (all of them, as ranges), and a line
 * for each of the first nodes that wait. Nodes that wait for these are counted only.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/out.h"
#include "runtime/context/context.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/trace.h>

/* Nodes listed of a run; more are counted. */
#define REPORT_NODES 16

static int compare_ranks(const void *left, const void *right)
{
    int a = *(const int *)left;
    int b = *(const int *)right;
    return a < b ? -1 : a > b;
}

void weft__rank_list(int *ranks, size_t count, char *text, size_t size)
{
    size_t used = 0;
    qsort(ranks, count, sizeof *ranks, compare_ranks);
    text[0] = '\0';
    for (size_t i = 0; i < count;) {
        size_t last = i;
        while (last + 1 < count && ranks[last + 1] <= ranks[last] + 1)
            last++;
        if (used + 48 > size) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        int length = ranks[last] > ranks[i]
                         ? snprintf(text + used, size - used, "%s%d-%d", used ? ", " : "", ranks[i],
                                    ranks[last])
                         : snprintf(text + used, size - used, "%s%d", used ? ", " : "", ranks[i]);
        used += (size_t)length;
        i = last + 1;
    }
}

static const char *waits_of_transfer(const struct weft__xfer *xfer, uint64_t *since)
{
    if (xfer->message.xflags == WEFT__X_IDLE)
        return NULL;
    if (xfer->message.xflags == WEFT__X_SENDING) {
        *since = xfer->done;
        return "its receive at the peer";
    }
    if (xfer->message.xflags == WEFT__X_POSTED) {
        *since = xfer->done;
        return "the message";
    }
    if (xfer->message.xflags == WEFT__X_AGREEING) {
        *since = xfer->done;
        return "its turn, on which the ranks agree";
    }
    if (xfer->message.xflags == WEFT__X_ISSUED) {
        *since = xfer->done;
        return "its communicator, which has it";
    }
    return "the rest of the message";
}

/* What node n waits for, if it has started and not ended. NULL: it is not waiting. */
static const char *waits_for(const struct weft_run *run, uint32_t n, uint64_t *since)
{
    const struct weft__node *node = &run->plan->nodes[n];
    *since = 0;
    switch (node->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        return waits_of_transfer(&run->xfers[node->index], since);
    case WEFT_NODE_EVENT:
        if (!(run->waits[n] & WEFT__OPEN))
            return NULL;
        return node->tag == WEFT_CHANNEL_NONE ? "the application to fire it"
                                              : "a signal, or the application to fire it";
    case WEFT_NODE_COMPUTE:
        if (node->flags & WEFT__JOINT)
            return waits_of_transfer(&run->xfers[node->index], since);
        return run->calls[node->index].pending ? "its completion" : NULL;
    default:
        return NULL;
    }
}

/* How long ago that was, between two texts; nothing if the time was not taken. */
static void add_age(struct weft__out *out, const struct weft_run *run, const char *text,
                    uint64_t since, uint64_t now, const char *behind)
{
    int timed = run->deadline_ns != 0 || run->context->config.stall_ns != 0;
    if (timed && since != 0 && since <= now)
        weft__out_format(out, "%s%.3f s%s", text, (double)(now - since) * 1e-9, behind);
}

static void add_head(struct weft__out *out, const struct weft_run *run, uint64_t now)
{
    const struct weft__transport *transport = run->engine->transport;
    weft__out_format(out, "`%s`, version %llu", run->plan->name, (unsigned long long)run->version);
    if (run->object)
        weft__out_format(out, " of %s %s", run->series ? "series" : "object",
                         WEFT__OBJECT_NAME(run->object->id));
    weft__out_format(out, ", rank %d of %d", transport->rank, transport->size);
    add_age(out, run, ", started ", run->started_ns, now, " ago");
    weft__out_format(out, ": %u of %u nodes have not ended\n", run->left, run->plan->node_count);
}

/* "2 messages from ranks 3, 5"; how many there are of each kind is in the run. */
static void add_ranks(struct weft__out *out, const struct weft_run *run, int sends, int *ranks)
{
    char list[160];
    size_t count = 0;
    for (uint32_t i = 0; i < run->plan->xfer_count; i++) {
        const struct weft__xfer *xfer = &run->xfers[i];
        if (xfer->message.xflags == (sends ? WEFT__X_SENDING : WEFT__X_POSTED))
            ranks[count++] = weft__peer(run, run->plan->nodes[xfer->node].peer);
    }
    if (count == 0)
        return;
    weft__rank_list(ranks, count, list, sizeof list);
    weft__out_format(out, "%s%zu %s%s %s rank%s %s", out->length > 0 ? ", " : "missing: ", count,
                     sends ? "receive" : "message", count == 1 ? "" : "s", sends ? "at" : "from",
                     strpbrk(list, ",-") ? "s" : "", list);
}

static void add_count(struct weft__out *out, uint32_t count, const char *one, const char *many)
{
    if (count > 0)
        weft__out_format(out, "%s%u %s", out->length > 0 ? ", " : "missing: ", count,
                         count == 1 ? one : many);
}

/* What has not happened that should have: messages of which ranks, receives at which, and so on. */
static void add_missing(struct weft__out *out, const struct weft_run *run)
{
    const struct weft_plan *plan = run->plan;
    int *ranks = weft__malloc(plan->xfer_count, sizeof *ranks);
    uint32_t events = 0;
    uint32_t calls = 0;
    if (!ranks) {
        out->failed = 1;
        return;
    }
    add_ranks(out, run, 0, ranks);
    add_ranks(out, run, 1, ranks);
    weft__free(ranks);
    for (uint32_t e = 0; e < plan->event_count; e++)
        events += (run->waits[plan->events[e].node] & WEFT__OPEN) != 0;
    for (uint32_t c = 0; c < plan->call_count; c++)
        calls += run->calls[c].pending != 0;
    add_count(out, events, "event", "events");
    add_count(out, calls, "operation", "operations");
}

void weft__report_unmatched(const struct weft_run *run, uint32_t n, char *text, size_t size)
{
    const struct weft__message *message = n == WEFT__NONE ? NULL : weft__unmatched_for(run, n);
    text[0] = '\0';
    if (message)
        weft__unmatched_text(run, message, text, size);
}

static void add_unmatched(struct weft__out *out, const struct weft_run *run, uint32_t n)
{
    char text[160];
    weft__report_unmatched(run, n, text, sizeof text);
    if (text[0] != '\0')
        weft__out_format(out, "; %s", text);
}

void weft__report_missing(const struct weft_run *run, char *text, size_t size)
{
    struct weft__out out = {0};
    add_missing(&out, run);
    snprintf(text, size, "%s", out.failed || !out.text ? "nothing is missing" : out.text);
    weft__free(out.text);
}

static void add_run(struct weft__out *out, const struct weft_run *run, uint64_t now)
{
    uint32_t listed = 0;
    uint32_t waiting = 0;
    struct weft__out missing = {0};
    add_head(out, run, now);
    add_missing(&missing, run);
    weft__out_format(out, "  %s\n", missing.text ? missing.text : "nothing is missing");
    out->failed |= missing.failed;
    weft__free(missing.text);
    for (uint32_t n = 0; n < run->plan->node_count; n++) {
        uint64_t since;
        const char *what = waits_for(run, n, &since);
        if (!what)
            continue;
        waiting++;
        if (listed == REPORT_NODES)
            continue;
        listed++;
        char name[160];
        weft__describe_node(run, n, name, sizeof name);
        weft__out_format(out, "  %s waits for %s", name, what);
        add_age(out, run, ", since ", since, now, "");
        add_unmatched(out, run, n);
        weft__out_text(out, "\n");
    }
    if (waiting > listed)
        weft__out_format(out, "  and %u more\n", waiting - listed);
    if (run->left > waiting)
        weft__out_format(out, "  %u node%s for these\n", run->left - waiting,
                         run->left - waiting == 1 ? " waits" : "s wait");
}

static char *finish(struct weft__out *out)
{
    if (!out->failed)
        return out->text;
    weft__free(out->text);
    return NULL;
}

char *weft__report(const struct weft_run *run)
{
    struct weft__out out = {0};
    int state = atomic_load_explicit(&run->state, memory_order_relaxed);
    if (state == WEFT__RUN_ACTIVE)
        add_run(&out, run, weft__clock(run->context));
    else
        weft__out_format(
            &out, "`%s`, version %llu: %s\n", run->plan->name,
            (unsigned long long)atomic_load_explicit(&run->told_version, memory_order_relaxed),
            state == WEFT__RUN_ENDED ? "ended" : "not started");
    return finish(&out);
}

char *weft__report_all(const struct weft_context *context)
{
    struct weft__out out = {0};
    const struct weft__transport *transport = context->engine.transport;
    uint64_t now = weft__clock(context);
    weft__out_format(&out, "rank %d of %d: %u unfinished run%s\n", transport->rank, transport->size,
                     context->engine.active_count, context->engine.active_count == 1 ? "" : "s");
    for (const struct weft_run *run = context->engine.active; run; run = run->active_next)
        add_run(&out, run, now);
    return finish(&out);
}

void weft__report_log(const struct weft_context *context, const struct weft_run *run,
                      weft_log_level_t level)
{
    if (level > context->config.log_level)
        return;
    char *text = run ? weft__report(run) : weft__report_all(context);
    for (char *line = text, *end; line && *line != '\0'; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        weft__log(context, level, "%s", line);
    }
    weft__free(text);
}

int weft_context_report(struct weft_context *context, char **text)
{
    if (!context || !text)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "text");
    weft__drive_lock(context);
    char *report = weft__report_all(context);
    weft__drive_unlock(context);
    if (!report)
        return weft__error_memory(__func__);
    *text = report;
    return WEFT_OK;
}
