/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Built-in operations on sparse and compressed vectors, where their regions are memory of a device.
 *
 *     check ---> operate ------------> the stream gets there ---> end
 *     (host)     (kernels, one         report, in pinned           (host: status, text, value)
 *                behind the other)     memory
 *
 * What they work in is one piece of the device's memory, as large as the one that takes most needs
 * it: the stream does one after the other. Reports are a call's own, for several may be on the
 * stream at once. Both are there from the run's creation on.
 */
#include "runtime/engine/flight.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/op.h"

static const struct weft_op *op_of(const struct weft_plan *plan, const struct weft__node *node)
{
    const struct weft_op *op = node->kind == WEFT_NODE_COMPUTE ? plan->ops[node->op] : NULL;

    return op && op->form && (node->flags & WEFT__DEVICE_NODE) ? op : NULL;
}

/* What a node needs if all its regions are as large as they can be. */
static size_t room_of(const struct weft_plan *plan, const struct weft__device *device,
                      const struct weft__node *node, struct weft_argument *arguments)
{
    const struct weft_op *op = op_of(plan, node);
    struct weft_call most = {.user = op->user,
                             .arguments = arguments,
                             .argument_count = node->region_count,
                             .rank = plan->rank,
                             .size = plan->size};

    for (uint32_t i = 0; i < node->region_count; i++) {
        const struct weft__region *region = &plan->regions[node->regions + i];
        const struct weft__slot *slot = &plan->slots[region->slot];

        arguments[i] =
            (struct weft_argument){.count = region->bytes / slot->element, .dtype = slot->dtype};
    }
    return device->ops->room(op, &most);
}

static int find_room(const struct weft_plan *plan, const struct weft__device *device, size_t *most)
{
    struct weft_argument *arguments =
        weft__malloc(plan->argument_count + (size_t)1, sizeof *arguments);

    *most = 0;
    if (!arguments)
        return weft__error_memory("a run on a device");
    for (uint32_t n = 0; n < plan->node_count; n++) {
        size_t room =
            op_of(plan, &plan->nodes[n]) ? room_of(plan, device, &plan->nodes[n], arguments) : 0;

        *most = room > *most ? room : *most;
    }
    weft__free(arguments);
    return *most == SIZE_MAX ? weft__error_memory("what a device works in") : WEFT_OK;
}

int weft__operations_open(struct weft_run *run, struct weft__flights *flights)
{
    struct weft__device *device = flights->stream->device;
    const struct weft_plan *plan = run->plan;
    size_t room;
    int any = 0, status;

    for (uint32_t n = 0; n < plan->node_count; n++)
        any |= op_of(plan, &plan->nodes[n]) != NULL;
    if (!any)
        return WEFT_OK;
    status = find_room(plan, device, &room);
    if (status != WEFT_OK)
        return status;
    flights->reports =
        device->ops->pin(device, plan->call_count * WEFT__REPORT_WORDS * sizeof *flights->reports);
    if (flights->reports)
        flights->room = device->ops->alloc(device, room);
    return flights->room ? WEFT_OK : WEFT_ERR_MEMORY;
}

void weft__operations_close(struct weft__flights *flights, struct weft__device *device)
{
    if (flights->room)
        device->ops->free(device, flights->room);
    if (flights->reports)
        device->ops->unpin(device, flights->reports);
}

static uint64_t *report_of(const struct weft_run *run, const struct weft__node *node)
{
    return run->flights->reports + (size_t)node->index * WEFT__REPORT_WORDS;
}

int weft__operation_issue(struct weft_run *run, uint32_t n, const struct weft_call *call)
{
    const struct weft__node *node = &run->plan->nodes[n];
    const struct weft_op *op = run->plan->ops[node->op];
    struct weft__stream *stream = run->flights->stream;
    int status = op->form->check(call);

    return status != WEFT_OK ? status
                             : stream->device->ops->operate(stream, op, call, run->flights->room,
                                                            report_of(run, node));
}

int weft__operation_land(struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];
    uint64_t value = 0;
    int status = run->plan->ops[node->op]->form->end(&run->calls[node->index].call,
                                                     report_of(run, node), &value);

    if (status == WEFT_OK && node->produces != 0)
        run->values[node->produces - 1] = value;
    return status;
}
