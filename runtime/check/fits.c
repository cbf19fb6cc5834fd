/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of operations that know what they take: regions of other counts or datatypes, or that
 * overlap, would fail every run. Regions whose counts are values of the run are left to it. And
 * functions of the host on memory of a device, which commit refuses.
 */
#include "runtime/base/error.h"
#include "runtime/check/check.h"
#include "runtime/graph/op.h"

enum { MOST_REGIONS = 8 }; /* whoever has more than an operation takes is told so by their number */

/* Where a region is, as if slots lay one behind the other; NULL if they are more than addresses. */
static void *address_of(const struct weft_schedule *schedule, const struct weft_region *region)
{
    uintptr_t at = 16;

    for (weft_slot_t s = 0; s <= region->slot; s++) {
        const struct weft__buffer *buffer = &schedule->buffers[s];
        size_t size = weft_dtype_size(buffer->dtype);

        if (s == region->slot)
            return (void *)(at + region->offset * size);
        if (buffer->count > (UINTPTR_MAX / 2 - at) / size)
            return NULL;
        at += buffer->count * size;
    }
    return NULL;
}

/* 1: the call is as it will be; 0: a count is not known. */
static int make_call(const struct weft__check *check, uint32_t id, struct weft_argument *arguments,
                     struct weft_call *call)
{
    const struct weft_schedule *schedule = weft__check_schedule(check, id);
    const struct weft__snode *node = weft__check_node(check, id);

    for (uint32_t i = 0; i < node->region_count; i++) {
        const struct weft_region *region = weft__check_region(check, id, i);

        if (region->value)
            return 0;
        if (i < MOST_REGIONS)
            arguments[i] = (struct weft_argument){.data = address_of(schedule, region),
                                                  .count = region->count,
                                                  .dtype = schedule->buffers[region->slot].dtype};
    }
    *call = (struct weft_call){.user = node->op->user,
                               .arguments = arguments,
                               .argument_count = node->region_count,
                               .rank = check->rank_of[id],
                               .size = check->size};
    return 1;
}

/* Why an operation would refuse a call of it, or NULL. */
static const char *refusal(const struct weft__check *check, uint32_t id)
{
    const struct weft__snode *node = weft__check_node(check, id);
    struct weft_argument arguments[MOST_REGIONS];
    struct weft_call call;

    if (node->kind != WEFT_NODE_COMPUTE || !node->op->fits ||
        !make_call(check, id, arguments, &call) || node->op->fits(&call) == WEFT_OK)
        return NULL;
    return weft_error_text();
}

static int say(struct weft__check *check, uint32_t id, const char *why)
{
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_SIZE);
    weft__out_format(&fault.text, "rank %d: ", check->rank_of[id]);
    weft__fault_node(check, &fault, id);
    weft__out_format(&fault.text, ": %s", why);
    return weft__fault_end(check, &fault);
}

int weft__check_fits(struct weft__check *check)
{
    for (uint32_t id = 0; id < check->nodes; id++) {
        char text[200];
        int misplaced = weft__snode_misplaced(weft__check_schedule(check, id),
                                              weft__check_node(check, id), text, sizeof text);
        const char *why = misplaced ? text : refusal(check, id);

        if (why && say(check, id, why))
            return -1;
    }
    return 0;
}
