/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compute nodes: reductions and copies over regions (in pieces where a slot is bound to a list),
 * and calls of the user's functions, which may finish later.
 */
#include "ops/kernels.h"
#include "runtime/base/error.h"
#include "runtime/base/search.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/gate.h"
#include "runtime/engine/ordered.h"
#include <stdio.h>
#include <string.h>

/* ---- regions ---- */

char *weft__region_chunk(const struct weft_run *run, const struct weft__region *region,
                         size_t offset, size_t *bytes)
{
    const struct weft__binding *binding = &run->bindings[region->slot];
    size_t left = region->bytes - offset;
    if (!binding->list) {
        *bytes = left;
        return !binding->data ? NULL : binding->data + region->offset + offset;
    }
    const struct weft__list *list = binding->list;
    size_t at = region->offset + offset;
    size_t low = 1;
    WEFT__SEARCH(low, list->count, middle, list->start[middle] <= at)
    low--;
    size_t rest = list->count == 0 ? 0 : list->start[low + 1] - at;
    *bytes = rest < left ? rest : left;
    return list->count == 0 ? NULL : (char *)list->pieces[low].data + (at - list->start[low]);
}

void *weft__xfer_chunk(const struct weft__xfer *xfer, size_t offset, size_t *bytes)
{
    const struct weft_run *run = weft__xfer_run(xfer);
    return weft__region_chunk(run, &run->plan->regions[run->plan->nodes[xfer->node].regions],
                              offset, bytes);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The address of a region on a slot that is bound to contiguous memory, else NULL. */
static inline char *contiguous(const struct weft_run *run, const struct weft__region *region)
{
    const struct weft__binding *binding = &run->bindings[region->slot];
    return !binding->data ? NULL : binding->data + region->offset;
}

/* ---- reductions and copies ---- */

static int apply(const struct weft_plan *plan, const struct weft__node *node, void *dst,
                 const void *a, const void *b, size_t bytes)
{
    const struct weft_op *op = plan->ops[node->op];
    if (op->builtin < 0) {
        const struct weft__slot *slot = &plan->slots[plan->regions[node->regions].slot];
        unsigned texts = weft__error_count();
        int status = op->reduce(op->user, dst, a, b, bytes / slot->element, slot->dtype);
        if (status != WEFT_OK && (weft__error_count() == texts || weft_error_text()[0] == '\0'))
            weft__error(status, "operation `%s` returned %d", weft_op_name(op), status);
        return status;
    }
    weft__reduce_kernel_find((weft_op_kind_t)op->builtin, node->dtype)(dst, a, b,
                                                                       bytes >> node->shift);
    return WEFT_OK;
}

/* Bytes [begin, end) of reduce node `n`. With a receive, the message that it matched stands for
 * the operand that it would have been received into. If the operation fails, the thread's text says
 * why. */
int weft__engine_reduce(struct weft_run *run, uint32_t n, const struct weft__xfer *receive,
                        size_t begin, size_t end)
{
    const struct weft_plan *plan = run->plan;
    const struct weft__node *node = &plan->nodes[n];
    const struct weft__region *regions = &plan->regions[node->regions];
    if (!receive && begin < end) {
        /* Mostly all three are contiguous. */
        char *dst = contiguous(run, &regions[0]);
        const char *a = contiguous(run, &regions[1]);
        const char *b = contiguous(run, &regions[2]);
        if (dst && a && b)
            return apply(plan, node, dst + begin, a + begin, b + begin, end - begin);
    }
    int replaced = 0; /* which operand the message stands for */
    if (receive) {
        const struct weft__region *received = &plan->regions[plan->nodes[receive->node].regions];
        replaced =
            regions[1].slot == received->slot && regions[1].offset == received->offset ? 1 : 2;
    }
    while (begin < end) {
        char *at[3];
        size_t bytes = end - begin;
        for (int i = 0; i < 3; i++) {
            size_t chunk = end - begin;
            if (i > 0 && i == replaced)
                at[i] = weft__source_at(receive->source, begin);
            else
                at[i] = weft__region_chunk(run, &regions[i], begin, &chunk);
            bytes = least(bytes, chunk);
        }
        if (bytes == 0 || !at[0])
            return WEFT_OK; /* payload omitted */
        int status = apply(plan, node, at[0], at[1], at[2], bytes);
        if (status != WEFT_OK)
            return status;
        begin += bytes;
    }
    return WEFT_OK;
}

/* Bytes [begin, end) of copy node `n`. */
int weft__engine_copy(struct weft_run *run, uint32_t n, size_t begin, size_t end)
{
    const struct weft__region *regions = &run->plan->regions[run->plan->nodes[n].regions];
    while (begin < end) {
        size_t out = end - begin;
        size_t in = end - begin;
        char *to = weft__region_chunk(run, &regions[0], begin, &out);
        const char *from = weft__region_chunk(run, &regions[1], begin, &in);
        size_t bytes = least(least(in, out), end - begin);
        if (bytes == 0 || !to)
            return WEFT_OK;
        if (to != from)
            memcpy(to, from, bytes);
        begin += bytes;
    }
    return WEFT_OK;
}

/* ---- calls ---- */

/* Points the arguments of a call at the memory of this run. */
static void prepare(struct weft_run *run, const struct weft__node *node, struct weft__call *call)
{
    const struct weft_plan *plan = run->plan;
    uint32_t first = plan->calls[node->index].argument;
    for (uint32_t i = 0; i < node->region_count; i++) {
        const struct weft__region *region = &plan->regions[node->regions + i];
        struct weft_argument *argument = &run->arguments[first + i];
        weft_dtype_t dtype = plan->slots[region->slot].dtype;
        size_t size = plan->slots[region->slot].element;
        size_t total = weft__region_bytes(run, region);
        struct weft_piece *pieces = run->argument_pieces[first + i];
        if (!pieces)
            pieces = &run->argument_piece[first + i];
        size_t count = 0;
        size_t offset = 0;
        do {
            size_t bytes = total - offset;
            char *data = weft__region_chunk(run, region, offset, &bytes);
            bytes = least(bytes, total - offset);
            pieces[count++] = (struct weft_piece){data, bytes / size};
            offset += bytes;
            if (bytes == 0)
                break;
        } while (offset < total);
        argument->data = count == 1 ? pieces[0].data : NULL;
        argument->count = total / size;
        argument->dtype = dtype;
        argument->pieces = pieces;
        argument->piece_count = count;
    }
    call->call = (struct weft_call){
        .user = plan->ops[node->op]->user,
        .arguments = &run->arguments[first],
        .argument_count = node->region_count,
        .value = node->produces != 0 ? &run->values[node->produces - 1] : NULL,
        .version = run->version,
        .rank = plan->rank,
        .size = plan->size,
        .node = (int32_t)call->node,
    };
}

void weft__engine_broken(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    weft__engine_fail(engine, run, WEFT_ERR_COMPUTE, n, engine->transport->rank, weft_error_text());
}

void weft__engine_check_value(const struct weft_run *run, uint32_t n, char *text, size_t size)
{
    const struct weft__node *node = &run->plan->nodes[n];
    uint32_t value = node->produces - 1;
    if (node->produces != 0 && run->values[value] > run->plan->values[value].max)
        snprintf(text, size, "value `%s` became %llu, at most %llu is allowed",
                 run->plan->values[value].name, (unsigned long long)run->values[value],
                 (unsigned long long)run->plan->values[value].max);
}

/* said: the function has said what is wrong. */
static void end_call(struct weft__engine *engine, struct weft_run *run, uint32_t n, int status,
                     int said)
{
    const struct weft__node *node = &run->plan->nodes[n];
    char text[256] = "";
    if (status == WEFT_OK)
        weft__engine_check_value(run, n, text, sizeof text);
    if (text[0] != '\0')
        status = WEFT_ERR_COMPUTE;
    if (status == WEFT_OK) {
        weft__engine_finish(engine, run, n);
        return;
    }
    if (text[0] == '\0' && said)
        snprintf(text, sizeof text, "%s", weft_error_text());
    if (text[0] == '\0')
        snprintf(text, sizeof text, "operation `%s` returned %d",
                 weft_op_name(run->plan->ops[node->op]), status);
    weft__engine_fail(engine, run, WEFT_ERR_COMPUTE, n, engine->transport->rank, text);
}

static const struct weft_op *op_of(const struct weft__call *call)
{
    const struct weft_plan *plan = call->run->plan;
    return plan->ops[plan->nodes[call->node].op];
}

/* Behind those that were there: chains of computations in parts go on in their order. */
static void append(struct weft__engine *engine, struct weft__call *call)
{
    call->pending = 1;
    engine->pending++;
    if (!op_of(call)->poll)
        return;
    call->next = NULL;
    call->before = engine->asked_last;
    *(call->before ? &call->before->next : &engine->asked) = call;
    engine->asked_last = call;
}

/* It pends no longer. */
static void take_out(struct weft__engine *engine, struct weft__call *call)
{
    call->pending = 0;
    engine->pending--;
    if (!op_of(call)->poll)
        return;
    *(call->before ? &call->before->next : &engine->asked) = call->next;
    *(call->next ? &call->next->before : &engine->asked_last) = call->before;
}

/* Whether a call is ended here, and not by a thread that completes it. */
static int claim(struct weft__call *call, int status)
{
    int open = WEFT_IN_PROGRESS;
    return atomic_compare_exchange_strong_explicit(&call->status, &open, status,
                                                   memory_order_relaxed, memory_order_relaxed);
}

struct weft__call *weft__engine_prepare_call(struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    struct weft__call *call = &run->calls[node->index];
    call->run = run;
    call->node = n;
    prepare(run, node, call);
    return call;
}

void weft__engine_compute(struct weft__engine *engine, struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    struct weft__call *call = weft__engine_prepare_call(run, n);
    int pends = node->flags & WEFT__PENDS;
    atomic_store_explicit(&call->status, pends ? WEFT_IN_PROGRESS : WEFT_OK, memory_order_relaxed);
    unsigned texts = weft__error_count();
    int status = run->plan->ops[node->op]->compute(&call->call);
    if (pends && (status == WEFT_IN_PROGRESS || !claim(call, status))) {
        append(engine, call);
        return;
    }
    end_call(engine, run, n, status, weft__error_count() != texts);
}

static void taken(struct weft__engine *engine, struct weft__call *call, int status, int said)
{
    struct weft_run *run = call->run;
    take_out(engine, call);
    engine->did++;
    if (atomic_load_explicit(&run->state, memory_order_relaxed) == WEFT__RUN_ACTIVE)
        end_call(engine, run, call->node, status, said);
    else
        run->borrowed--;
}

/* Calls that have been completed, in their order. Those that pend are not looked at one by one:
 * they may be many, and pend for long. */
static void take_completed(struct weft__engine *engine)
{
    struct weft__call *first = NULL;
    struct weft__call *last =
        atomic_exchange_explicit(&engine->completed, NULL, memory_order_acquire);
    while (last) {
        struct weft__call *call = last;
        last = call->completed_next;
        call->completed_next = first;
        first = call;
    }
    while (first) {
        struct weft__call *call = first;
        first = call->completed_next; /* the run may be gone behind this call */
        taken(engine, call, atomic_load_explicit(&call->status, memory_order_relaxed), 0);
    }
}

/* Of all computations in parts one does a part. */
static int ask(struct weft__engine *engine, struct weft__call *call, int *parts)
{
    const struct weft_op *op = op_of(call);
    if (atomic_load_explicit(&call->status, memory_order_relaxed) != WEFT_IN_PROGRESS)
        return WEFT_IN_PROGRESS; /* it is about to be among those that are completed */
    if (op->in_parts && (*parts)++ > 0)
        return WEFT_IN_PROGRESS;
    engine->did += (uint32_t)op->in_parts;
    int status = op->poll(&call->call);
    return status == WEFT_IN_PROGRESS || claim(call, status) ? status : WEFT_IN_PROGRESS;
}

int weft__engine_poll_calls(struct weft__engine *engine)
{
    int parts = 0;
    int left = 0;
    /* Pairs with weft_call_complete(). Ending one may complete others. */
    while (atomic_load_explicit(&engine->completed, memory_order_seq_cst))
        take_completed(engine);
    for (struct weft__call *call = engine->asked; call;) {
        int in_parts = op_of(call)->in_parts;
        unsigned texts = weft__error_count();
        int status = ask(engine, call, &parts);
        if (status == WEFT_IN_PROGRESS) {
            left |= in_parts;
            call = call->next;
            continue;
        }
        taken(engine, call, status, weft__error_count() != texts);
        /* Ending a run may fail others and change the list: begin again. */
        call = engine->asked;
        left = 0;
    }
    if (engine->staging)
        weft__staging_work(engine);
    if (engine->flying)
        weft__flights_poll(engine);
    if (engine->ordered)
        weft__ordered_poll(engine);
    if (engine->gates && engine->gates->shut)
        weft__gates_poll(engine);
    engine->polling = engine->asked || engine->flying || engine->ordered ||
                      (engine->gates && engine->gates->shut);
    return left;
}

void weft__engine_drop_calls(struct weft__engine *engine, const struct weft_run *run)
{
    for (struct weft__call *call = engine->asked, *next; call; call = next) {
        next = call->next;
        if (call->run == run && op_of(call)->in_parts)
            take_out(engine, call);
    }
}

void weft_call_complete(struct weft_call *call, int status)
{
    if (!call)
        return;
    struct weft__call *record = (struct weft__call *)call;
    struct weft_run *run = record->run;
    struct weft__engine *engine = run->engine;
    int open = WEFT_IN_PROGRESS;
    atomic_fetch_add_explicit(&engine->completing, 1, memory_order_relaxed);
    if (atomic_compare_exchange_strong_explicit(
            &record->status, &open, status == WEFT_IN_PROGRESS ? WEFT_ERR_COMPUTE : status,
            memory_order_relaxed, memory_order_relaxed)) {
        struct weft__call *last = atomic_load_explicit(&engine->completed, memory_order_relaxed);
        /* Sequentially consistent, for the bell: a sleeper registers, then looks for calls. */
        do
            record->completed_next = last;
        while (!atomic_compare_exchange_weak_explicit(&engine->completed, &last, record,
                                                      memory_order_seq_cst, memory_order_relaxed));
    }
    /* The run may be gone from here on; the context waits for us before it goes. */
    struct weft__transport *transport = engine->transport;
    if (transport->ops->wake)
        transport->ops->wake(transport);
    else
        weft__bell_ring(transport->bell);
    atomic_fetch_sub_explicit(&engine->completing, 1, memory_order_release);
}
