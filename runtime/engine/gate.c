/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/engine/gate.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"

/* A cache line each: devices write them one by one. */
enum { WORD_BYTES = 64, PAGE_GATES = 64 };

struct weft__gate_page {
    struct weft__gate_page *next;
    char *words; /* pinned */
    struct weft__gate gates[PAGE_GATES];
};

static int is_reached(const struct weft__gate *gate)
{
    /* Acquire: what the stream has done before is seen. */
    uint32_t reached = atomic_load_explicit(gate->word, memory_order_acquire);

    return (int32_t)(reached - gate->ticket) >= 0;
}

static struct weft__gates *gates_of(struct weft__engine *engine, struct weft__device *device)
{
    if (engine->gates)
        return engine->gates;
    engine->gates = weft__calloc(1, sizeof *engine->gates);
    if (!engine->gates) {
        weft__error_memory("a gate");
        return NULL;
    }
    engine->gates->device = device;
    device->ops->retain(device);
    return engine->gates;
}

static int add_page(struct weft__gates *gates)
{
    struct weft__gate_page *page = weft__calloc(1, sizeof *page);

    if (!page)
        return weft__error_memory("gates");
    page->words = gates->device->ops->pin_words(gates->device, (size_t)PAGE_GATES * WORD_BYTES);
    if (!page->words) {
        weft__free(page);
        return WEFT_ERR_MEMORY;
    }
    for (int i = 0; i < PAGE_GATES; i++) {
        page->gates[i].word = (_Atomic uint32_t *)(void *)(page->words + (size_t)i * WORD_BYTES);
        /* They count on: a stream may still be about to see what they have. */
        page->gates[i].ticket = atomic_load_explicit(page->gates[i].word, memory_order_relaxed);
        page->gates[i].next = gates->spare;
        gates->spare = &page->gates[i];
    }
    page->next = gates->pages;
    gates->pages = page;
    return WEFT_OK;
}

struct weft__gate *weft__gate_take(struct weft__engine *engine, struct weft__device *device)
{
    struct weft__gates *gates = gates_of(engine, device);
    struct weft__gate **link, *gate;

    if (!gates)
        return NULL;
    link = &gates->spare;
    while (*link && !is_reached(*link))
        link = &(*link)->next;
    if (!*link) {
        if (add_page(gates) != WEFT_OK)
            return NULL;
        link = &gates->spare;
    }
    gate = *link;
    *link = gate->next;
    return gate;
}

void weft__gate_give_back(struct weft__engine *engine, struct weft__gate *gate)
{
    gate->next = engine->gates->spare;
    engine->gates->spare = gate;
}

void weft__gate_shut(struct weft__engine *engine, struct weft__gate *gate)
{
    struct weft__gates *gates = engine->gates;

    if (!gates->shut)
        engine->pending++;
    engine->landed_ns = engine->now;
    gate->next = gates->shut;
    gates->shut = gate;
}

static void take_out(struct weft__engine *engine, struct weft__gate **link)
{
    struct weft__gate *gate = *link;

    *link = gate->next;
    if (!engine->gates->shut)
        engine->pending--;
    weft__gate_give_back(engine, gate);
}

/* What the stream was to do is done; an event only in the version that it was meant for. */
static void open_gate(struct weft__engine *engine, const struct weft__gate *gate)
{
    struct weft_run *run = gate->run;

    engine->did++;
    engine->landed_ns = engine->now;
    if (gate->node == WEFT__NONE)
        engine->host->gate_open(run);
    else
        engine->host->gate_fire(run, gate->node, gate->version);
}

/* A device that has failed gets to no gate any more: the version fails. 1: the list has changed. */
static int look_after(struct weft__engine *engine, struct weft__gate **link)
{
    const struct weft__gate gate = **link;
    struct weft_run *run = gate.run;
    struct weft__stream *stream = run->flights->stream;
    struct weft__error_saved saved;
    int status = stream->device->ops->failed(stream);

    if (status >= 0)
        return 0;
    weft__error_save(&saved);
    take_out(engine, link);
    if (gate.node == WEFT__NONE)
        open_gate(engine, &gate);
    weft__error_restore(&saved);
    if (weft__run_active(run) && run->version == gate.version)
        weft__engine_fail(engine, run, status, gate.node, engine->transport->rank,
                          weft_error_text());
    return 1;
}

static void look_after_all(struct weft__engine *engine)
{
    struct weft__gates *gates = engine->gates;

    gates->looks = 0;
    gates->looked_ns = engine->now;
    for (struct weft__gate **link = &gates->shut; *link;)
        link = look_after(engine, link) ? &gates->shut : &(*link)->next;
}

void weft__gates_poll(struct weft__engine *engine)
{
    struct weft__gates *gates = engine->gates;
    struct weft__gate **link = &gates->shut;
    uint32_t did = engine->did;

    while (*link) {
        const struct weft__gate gate = **link;

        /* Everything has failed: what begins now hears why. */
        if (!is_reached(&gate) && engine->failed == 0) {
            link = &(*link)->next;
            continue;
        }
        take_out(engine, link);
        open_gate(engine, &gate);
        link = &gates->shut; /* others may have been shut, or dropped */
    }
    if (engine->did == did && gates->shut &&
        (++gates->looks >= WEFT__LOOKS || engine->now - gates->looked_ns >= WEFT__LOOK_NS))
        look_after_all(engine);
}

int weft__gates_drop(struct weft__engine *engine, const struct weft_run *run)
{
    struct weft__gate **link = engine->gates ? &engine->gates->shut : NULL;
    int starts = 0;

    while (link && *link)
        if ((*link)->run == run) {
            starts |= (*link)->node == WEFT__NONE;
            take_out(engine, link);
        } else {
            link = &(*link)->next;
        }
    return starts;
}

/* Whether no stream writes any of it any more. */
static int is_over(const struct weft__gate_page *page)
{
    int over = 1;

    for (int i = 0; i < PAGE_GATES; i++)
        over &= is_reached(&page->gates[i]);
    return over;
}

void weft__gates_close(struct weft__engine *engine)
{
    struct weft__gates *gates = engine->gates;

    if (!gates)
        return;
    while (gates->pages) {
        struct weft__gate_page *page = gates->pages;

        gates->pages = page->next;
        /* What a stream is still to write is never freed: nobody can tell when it will. */
        if (is_over(page))
            gates->device->ops->unpin_words(gates->device, page->words);
        weft__free(page);
    }
    gates->device->ops->end(gates->device);
    weft__free(gates);
    engine->gates = NULL;
}

void weft__hold_end(const struct weft__hold *hold, const struct weft_run *run)
{
    /* Release: who waits sees the results. */
    atomic_store_explicit(hold->gate->word, run->starts, memory_order_release);
}

int weft__hold_make(struct weft_run *run, struct weft__device *device)
{
    struct weft__hold *hold;
    int idle = weft__run_idle(run);

    if (run->hold)
        return WEFT_OK;
    hold = weft__calloc(1, sizeof *hold);
    if (!hold)
        return weft__error_memory("a run that streams wait for");
    hold->gate = weft__gate_take(run->engine, device);
    if (!hold->gate) {
        weft__free(hold);
        return WEFT_ERR_MEMORY;
    }
    /* Tickets go on from what the word has; that of the version under way is the next. */
    run->starts = atomic_load_explicit(hold->gate->word, memory_order_relaxed) + !idle;
    hold->watch.node = WEFT__NONE;
    hold->watch.hold = hold;
    hold->watch.next = run->watches;
    run->watches = &hold->watch;
    run->hold = hold;
    return WEFT_OK;
}

void weft__hold_leave(struct weft_run *run)
{
    if (!run->hold)
        return;
    weft__watch_remove(run, &run->hold->watch);
    run->hold->gate->ticket = run->starts;
    weft__gate_give_back(run->engine, run->hold->gate);
}
