/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines, and the report of what an unfinished run waits for. */
#include "runtime/alloc.h"
#include "runtime/context.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Nodes listed in a report; more are counted. */
#define REPORT_NODES 64

void weft__log(const struct weft_context *context, weft_log_level_t level, const char *format, ...)
{
    if (level > context->config.log_level)
        return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    int rank = context->engine.transport->rank;
    if (context->config.log != NULL)
        context->config.log(context->config.log_user, level, rank, line);
    else
        fprintf(stderr, "weft[%d]: %s\n", rank, line);
}

struct text {
    char *data;
    size_t length;
    size_t capacity;
    int failed;
};

static void add(struct text *text, const char *format, ...) WEFT_PRINTF(2, 3);
static void add(struct text *text, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (length < 0 || text->failed)
        return;
    size_t bytes = (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1;
    if (weft__grow((void **)&text->data, &text->capacity, text->length + bytes + 1, 1) != 0) {
        text->failed = 1;
        return;
    }
    memcpy(text->data + text->length, line, bytes + 1);
    text->length += bytes;
}

/* What node n waits for, if it has started and not ended. NULL: it is not waiting. */
static const char *waits_for(const struct weft_run *run, uint32_t n, uint64_t *since)
{
    const struct weft__node *node = &run->plan->nodes[n];
    const struct weft__xfer *xfer;
    *since = run->started_ns;
    switch (node->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        xfer = &run->xfers[node->index];
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
        return "the rest of the message";
    case WEFT_NODE_EVENT:
        return run->waits[n] & WEFT__OPEN ? "being fired" : NULL;
    case WEFT_NODE_COMPUTE:
        return run->calls[node->index].pending ? "its completion" : NULL;
    default:
        return NULL;
    }
}

char *weft__report(struct weft_run *run)
{
    struct text text = {0};
    const struct weft__engine *engine = run->engine;
    int state = atomic_load_explicit(&run->state, memory_order_relaxed);
    if (state != WEFT__RUN_ACTIVE) {
        add(&text, "`%s`, version %llu: %s\n", run->plan->name, (unsigned long long)run->version,
            state == WEFT__RUN_ENDED ? "ended" : "not started");
        return text.data;
    }
    add(&text, "`%s`, version %llu, rank %d of %d: %u of %u nodes have not ended\n",
        run->plan->name, (unsigned long long)run->version, engine->transport->rank,
        engine->transport->size, run->left, run->plan->node_count);
    uint32_t listed = 0;
    uint32_t waiting = 0;
    uint64_t now = weft__now();
    for (uint32_t n = 0; n < run->plan->node_count; n++) {
        uint64_t since;
        const char *what = waits_for(run, n, &since);
        if (what == NULL)
            continue;
        waiting++;
        if (listed == REPORT_NODES)
            continue;
        listed++;
        char name[160];
        weft__describe_node(run, n, name, sizeof(name));
        if (since != 0 && since <= now)
            add(&text, "  %s waits for %s, since %.3f s\n", name, what,
                (double)(now - since) * 1e-9);
        else
            add(&text, "  %s waits for %s\n", name, what);
    }
    if (waiting > listed)
        add(&text, "  and %u more\n", waiting - listed);
    if (run->left > waiting)
        add(&text, "  %u nodes wait for these\n", run->left - waiting);
    if (text.failed) {
        weft__free(text.data);
        return NULL;
    }
    return text.data;
}
