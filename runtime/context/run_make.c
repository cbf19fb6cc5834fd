/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs are made and freed: with all the memory that they will need.
 *
 * One allocation holds a run: the header, its transfers right behind it (so that a transfer finds
 * its run), then the arrays by falling alignment. Scratch is an allocation of its own.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/topology.h"
#include "runtime/context/accord.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/gate.h"
#include "runtime/engine/record.h"
#include <string.h>

struct layout {
    size_t bytes;
    size_t xfers, calls, arguments, argument_piece, argument_pieces, bindings, values, events,
        choices, ready, waits, fired_next, peers;
};

static size_t place(struct layout *layout, size_t count, size_t size)
{
    size_t at = layout->bytes;
    layout->bytes += (count * size + 7) & ~(size_t)7;
    return at;
}

static struct layout lay_out(const struct weft_plan *plan)
{
    struct layout layout = {.bytes = WEFT__RUN_HEADER};
    layout.xfers = place(&layout, plan->xfer_count, sizeof(struct weft__xfer));
    layout.calls = place(&layout, plan->call_count, sizeof(struct weft__call));
    layout.arguments = place(&layout, plan->argument_count, sizeof(struct weft_argument));
    layout.argument_piece = place(&layout, plan->argument_count, sizeof(struct weft_piece));
    layout.argument_pieces = place(&layout, plan->argument_count, sizeof(struct weft_piece *));
    layout.bindings = place(&layout, plan->slot_count, sizeof(struct weft__binding));
    layout.values = place(&layout, plan->value_count, sizeof(uint64_t));
    layout.events = place(&layout, plan->event_count, sizeof(uint64_t));
    layout.choices = place(&layout, plan->choice_count, sizeof(uint64_t));
    layout.ready = place(&layout, plan->words, sizeof(uint64_t));
    layout.waits = place(&layout, plan->node_count, sizeof(uint32_t));
    layout.fired_next = place(&layout, plan->event_count, sizeof(uint32_t));
    layout.peers = place(&layout, plan->peer_count, sizeof(int32_t));
    return layout;
}

size_t weft_plan_run_bytes(const struct weft_plan *plan)
{
    if (!plan)
        return 0;
    size_t scratch = plan->scratch_bytes;
    return lay_out(plan).bytes + weft__object_bytes(plan) +
           (scratch > 0 ? sizeof(struct weft__scratch) + scratch : 0);
}

static void set_up(struct weft_run *run, const struct layout *layout)
{
    struct weft_plan *plan = run->plan;
    char *base = (char *)run;
    run->xfers = (void *)(base + layout->xfers);
    run->calls = (void *)(base + layout->calls);
    run->arguments = (void *)(base + layout->arguments);
    run->argument_piece = (void *)(base + layout->argument_piece);
    run->argument_pieces = (void *)(base + layout->argument_pieces);
    run->bindings = (void *)(base + layout->bindings);
    run->values = (void *)(base + layout->values);
    run->events = (void *)(base + layout->events);
    run->choices = (void *)(base + layout->choices);
    run->ready = (void *)(base + layout->ready);
    run->waits = (void *)(base + layout->waits);
    run->fired_next = (void *)(base + layout->fired_next);
    for (uint32_t n = 0; n < plan->node_count; n++)
        if (weft__node_transfers(&plan->nodes[n])) {
            struct weft__xfer *xfer = &run->xfers[plan->nodes[n].index];
            xfer->node = n;
            xfer->index = plan->nodes[n].index;
        }
    const struct weft__scratch *scratch = run->scratch;
    for (uint32_t s = 0; s < plan->slot_count; s++)
        if (plan->slots[s].kind == WEFT_SLOT_SCRATCH) {
            char *data = !scratch                                      ? NULL
                         : plan->slots[s].memory == WEFT_MEMORY_DEVICE ? scratch->device_data
                                                                       : scratch->data;
            run->bindings[s].data = !data ? NULL : data + plan->slots[s].scratch;
            run->bindings[s].bound = 1;
        }
    run->bound_peers = (void *)(base + layout->peers);
    run->peers = plan->peers;
    run->version = UINT64_MAX;
    atomic_init(&run->told_version, UINT64_MAX);
}

/* Its part on the host: whether there was memory. */
static int make_scratch(const struct weft_context *context, struct weft__scratch *scratch,
                        size_t bytes)
{
    const struct weft__transport *transport = context->engine.transport;
    scratch->bytes = bytes;
    scratch->data = weft__context_alloc(context, bytes);
    if (scratch->data)
        scratch->context = context->root;
    /* Virtual ranks are many, and have no place. */
    else if (!transport->ops->block)
        scratch->data = weft__topology_alloc(bytes);
    scratch->placed = scratch->data && !scratch->context;
    if (!scratch->data)
        scratch->data = weft__aligned(64, bytes);
    return scratch->data != NULL;
}

/* Its part on the device. */
static int make_device_scratch(struct weft_context *context, struct weft__scratch *scratch,
                               size_t bytes)
{
    struct weft__device *device;
    int status = weft__context_device(context, &device);
    if (status != WEFT_OK)
        return status;
    scratch->device_data = device->ops->alloc(device, bytes);
    if (!scratch->device_data)
        return WEFT_ERR_MEMORY;
    scratch->device = device;
    device->ops->retain(device);
    return WEFT_OK;
}

int weft__scratch_create(struct weft__scratch **out, struct weft_context *context, size_t bytes,
                         size_t device_bytes)
{
    struct weft__scratch *scratch = weft__calloc(1, sizeof *scratch);
    int status = WEFT_OK;
    *out = NULL;
    if (!scratch)
        return weft__error_memory("the scratch of a run");
    atomic_init(&scratch->references, 1);
    if (!context->engine.transport->no_payload) {
        if (bytes > 0 && !make_scratch(context, scratch, bytes))
            status = weft__error_memory("the scratch of a run");
        if (status == WEFT_OK && device_bytes > 0)
            status = make_device_scratch(context, scratch, device_bytes);
    }
    if (status != WEFT_OK)
        weft__scratch_release(scratch);
    else
        *out = scratch;
    return status;
}

void weft__scratch_release(struct weft__scratch *scratch)
{
    if (!scratch || atomic_fetch_sub_explicit(&scratch->references, 1, memory_order_acq_rel) != 1)
        return;
    if (scratch->context)
        weft__context_give_back(scratch->context, scratch->data);
    else if (scratch->placed)
        weft__topology_free(scratch->data, scratch->bytes);
    else
        weft__free(scratch->data);
    if (scratch->device) {
        scratch->device->ops->free(scratch->device, scratch->device_data);
        scratch->device->ops->end(scratch->device);
    }
    weft__free(scratch);
}

static void make_freed(struct weft_run *run)
{
    weft__flights_close(run);
    weft__scratch_release(run->scratch);
    weft__free(run);
}

int weft__run_make(struct weft_run **out, struct weft_context *context, struct weft_plan *plan,
                   struct weft__scratch *scratch, struct weft_run *beside)
{
    struct layout layout = lay_out(plan);
    struct weft_run *run = weft__aligned(64, layout.bytes);
    int status = WEFT_OK;
    if (!run)
        return weft__error_memory("a run");
    run->plan = plan;
    run->context = context;
    run->engine = &context->engine;
    run->beside = beside;
    if (scratch)
        atomic_fetch_add_explicit(&scratch->references, 1, memory_order_relaxed);
    else if (plan->scratch_bytes > 0 || plan->device_bytes > 0)
        status = weft__scratch_create(&scratch, context, plan->scratch_bytes, plan->device_bytes);
    run->scratch = scratch;
    /* Where messages have no contents nothing is read or written: any memory will do. */
    if (status == WEFT_OK && plan->on_device && !context->engine.transport->no_payload)
        status = weft__device_needed(context, run);
    if (status == WEFT_OK)
        status = weft__recorder_register(run);
    if (status == WEFT_OK)
        status = weft__match_reserve(&context->engine.match, plan->recv_count);
    if (status != WEFT_OK) {
        make_freed(run);
        return status;
    }
    set_up(run, &layout);
    weft__plan_retain(plan);
    run->all_next = context->runs;
    if (context->runs)
        context->runs->all_previous = run;
    context->runs = run;
    *out = run;
    return WEFT_OK;
}

static void release_memory(void *memory)
{
    struct weft_run *run = memory;
    for (uint32_t s = 0; s < run->plan->slot_count; s++)
        weft__list_free(run->bindings[s].list);
    for (uint32_t a = 0; a < run->plan->argument_count; a++)
        weft__free(run->argument_pieces[a]);
    weft__flights_close(run);
    weft__scratch_release(run->scratch);
    weft_plan_destroy(run->plan);
    weft__free(run->hold);
    weft__free(run->error);
    weft__free(run);
}

/* Takes the run out of everything; its memory goes when the transport no longer holds any of it. */
void weft__run_free(struct weft_run *run)
{
    struct weft_context *context = run->context;
    struct weft__engine *engine = &context->engine;
    if (run->all_previous)
        run->all_previous->all_next = run->all_next;
    else
        context->runs = run->all_next;
    if (run->all_next)
        run->all_next->all_previous = run->all_previous;
    struct weft_run **link = &engine->ready_head;
    struct weft_run *previous = NULL;
    while (*link && *link != run) {
        previous = *link;
        link = &(*link)->ready_next;
    }
    if (*link == run) {
        *link = run->ready_next;
        if (engine->ready_tail == run)
            engine->ready_tail = previous;
    }
    weft__match_unreserve(&engine->match, run->plan->recv_count);
    weft__hold_leave(run);
    struct weft_run *latest = run; /* another one may be started at this moment */
    atomic_compare_exchange_strong_explicit(&context->sequence_run, &latest, NULL,
                                            memory_order_relaxed, memory_order_relaxed);
    if (run->borrowed == 0) {
        release_memory(run);
        return;
    }
    run->zombie = 1;
    run->all_next = context->zombies;
    context->zombies = run;
}

/* Frees runs whose last borrowed transfer has come back; with `all`, hands the rest on. */
void weft__run_bury(struct weft_context *context, int all)
{
    struct weft_run **link = &context->zombies;
    while (*link) {
        struct weft_run *run = *link;
        if (run->borrowed > 0 && !all) {
            link = &run->all_next;
            continue;
        }
        *link = run->all_next;
        struct weft__transport *transport = context->engine.transport;
        if (run->borrowed > 0 && transport->ops->keep)
            transport->ops->keep(transport, run, release_memory);
        else
            release_memory(run);
    }
}

/* The same once the transport is closed: nothing is under way any more. */
void weft__run_bury_closed(struct weft_context *context)
{
    while (context->zombies) {
        struct weft_run *run = context->zombies;
        context->zombies = run->all_next;
        release_memory(run);
    }
}

void weft_run_config_init_sized(struct weft_run_config *config, size_t size)
{
    weft_sized_init(config, size);
}

/* The sequence is one object for all plans: it is no part of another, and hears no signals. */
static int check_sequence(const char *who, const struct weft_plan *plan,
                          const struct weft_run_config *config)
{
    int status = weft_sized_number(who, "config->sequence", config->sequence, 0, 1);
    if (status || !config->sequence)
        return status;
    WEFT__REQUIRE(!config->object && !config->local_only && !config->unordered &&
                      !config->signalled,
                  "%s: config->sequence is set, expected config->%s not to be", who,
                  config->object       ? "object"
                  : config->local_only ? "local_only"
                  : config->unordered  ? "unordered"
                                       : "signalled");
    for (uint32_t e = 0; e < plan->event_count; e++)
        WEFT__REQUIRE(plan->events[e].channel == WEFT_CHANNEL_NONE,
                      "%s: config->sequence is set, but an event of plan `%s` has channel %u", who,
                      plan->name, plan->events[e].channel);
    return WEFT_OK;
}

static int check_create(const char *who, const struct weft_context *context,
                        const struct weft_plan *plan, const struct weft_run_config *given,
                        struct weft_run_config *config)
{
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    WEFT__REQUIRE(context, "%s: argument `context` is NULL", who);
    WEFT__REQUIRE(plan, "%s: argument `plan` is NULL", who);
    if (!status)
        status = weft_sized_number(who, "config->local_only", config->local_only, 0, 1);
    if (!status)
        status = weft_sized_time(who, "config->deadline_ns", config->deadline_ns, WEFT_NEVER);
    if (status)
        return status;
    status = weft__object_check(who, "config->object", config->object, context);
    if (status)
        return status;
    status = weft_sized_number(who, "config->unordered", config->unordered, 0, 1);
    if (status)
        return status;
    for (uint32_t e = 0; config->unordered && e < plan->event_count; e++)
        WEFT__REQUIRE(plan->events[e].channel == WEFT_CHANNEL_NONE,
                      "%s: config->unordered is set, but an event of plan `%s` has channel %u", who,
                      plan->name, plan->events[e].channel);
    WEFT__REQUIRE(!config->local_only || !plan->communicates,
                  "%s: config->local_only is set, but plan `%s` communicates", who, plan->name);
    WEFT__REQUIRE(config->nccl >= WEFT_NCCL_NONE && config->nccl <= WEFT_NCCL_IN_ORDER,
                  "%s: config->nccl is %d, expected WEFT_NCCL_NONE, _KNOWN, _AGREED or _IN_ORDER",
                  who, (int)config->nccl);
    WEFT__REQUIRE(config->nccl == WEFT_NCCL_NONE || (!config->local_only && !config->sequence),
                  "%s: config->nccl is set, expected config->%s not to be", who,
                  config->local_only ? "local_only" : "sequence");
    WEFT__REQUIRE(
        config->nccl == WEFT_NCCL_KNOWN || config->nccl == WEFT_NCCL_IN_ORDER ||
            plan->joint_count == 0,
        "%s: config->nccl is %d, but plan `%s` has joint nodes, expected WEFT_NCCL_KNOWN or "
        "_IN_ORDER, or a schedule of weft_schedule_write_out()",
        who, (int)config->nccl, plan->name);
    return check_sequence(who, plan, config);
}

/* Everything of a run that is this rank's. While driving. */
static int make_run(struct weft_run **out, struct weft_context *context, struct weft_plan *plan,
                    const struct weft_run_config *config)
{
    int status = weft__run_make(out, context, plan, NULL, NULL);
    struct weft_run *run = *out;
    if (status != WEFT_OK)
        return status;
    run->unordered = config->unordered;
    run->signalled = config->signalled;
    run->ended = config->ended;
    run->user = config->user;
    run->local_only = config->local_only;
    run->of_object = config->local_only && config->object;
    run->deadline_ns = config->deadline_ns == WEFT_NEVER ? 0 : config->deadline_ns;
    if (config->sequence)
        run->object = &context->engine.sequence;
    else if (!config->local_only)
        status = weft__engine_object(&context->engine, &plan, 1, NULL, run,
                                     weft__object_whole(config->object), &run->object);
    if (status != WEFT_OK)
        weft__run_free(run);
    return status;
}

/* One that all ranks make together: who fails has had a number, too, and tells the others. */
static int make_run_with_all(const char *who, struct weft_run **out, struct weft_context *context,
                             struct weft_plan *plan, const struct weft_run_config *config,
                             int failed)
{
    struct weft__roll roll;
    struct weft_object *object = config->object;
    struct weft_run *run = NULL;
    int status = weft__roll_open(&roll, context, object, who);
    if (status != WEFT_OK)
        return status;
    weft__drive_lock(context);
    if (failed == WEFT_OK)
        failed = make_run(&run, context, plan, config);
    if (failed != WEFT_OK && !object)
        context->engine.object_next++;
    weft__drive_unlock(context);
    if (failed != WEFT_OK)
        run = NULL;
    const struct weft__candidate candidate = {
        .runs = &run, .count = 1, .object = run ? run->object : NULL, .nccl = (int)config->nccl};
    status = weft__accord(&roll, &candidate, failed);
    weft__roll_close(&roll);
    if (status != WEFT_OK && run) {
        struct weft__error_saved saved;
        weft__error_save(&saved);
        weft_run_destroy(run);
        weft__error_restore(&saved);
    }
    *out = run;
    return status;
}

int weft_run_create(struct weft_run **out, struct weft_context *context, struct weft_plan *plan,
                    const struct weft_run_config *given)
{
    WEFT__REQUIRE(out, "%s: argument `run` is NULL", __func__);
    struct weft_run_config config;
    int status = check_create(__func__, context, plan, given, &config);
    struct weft_run *run = NULL;
    if (context && config.nccl != WEFT_NCCL_NONE &&
        weft__object_check(__func__, "config->object", config.object, context) == WEFT_OK) {
        status = make_run_with_all(__func__, &run, context, plan, &config, status);
    } else if (status == WEFT_OK) {
        weft__drive_lock(context);
        status = make_run(&run, context, plan, &config);
        weft__drive_unlock(context);
    }
    if (status != WEFT_OK)
        return status;
    weft__log(context, WEFT_LOG_DEBUG, "object %s: a run of `%s`, %u nodes, %zu bytes",
              run->object ? WEFT__OBJECT_NAME(run->object->id) : "-1", plan->name, plan->node_count,
              weft_plan_run_bytes(plan));
    *out = run;
    return WEFT_OK;
}
