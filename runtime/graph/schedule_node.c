/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adding nodes. Each function checks its arguments against the slots and values there are, and then
 * appends one node and its regions; nothing here looks at other nodes, so a node costs O(regions).
 */
#include "runtime/graph/schedule.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/joint.h"
#include "runtime/graph/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- nodes: checks ---- */

/* What a call hands down to the checks: where errors belong. */
struct call {
    struct weft_schedule *schedule;
    const char *who;
};

const char *weft__argument_text(char text[48], const char *name, long index)
{
    if (index < 0)
        snprintf(text, 48, "%s", name);
    else
        snprintf(text, 48, "%s[%ld]", name, index);
    return text;
}

/* What is wrong with a region; its argument is named only now, since naming it costs more than all
 * checks of a region that is right. */
static int bad_region(struct weft_schedule *s, const char *who, const char *name, long index,
                      const struct weft_region *region)
{
    const struct weft__buffer *buffer;
    char argument[48];

    weft__argument_text(argument, name, index);
    if (region->slot < 0 || (size_t)region->slot >= s->buffer_count)
        return weft__schedule_fail(
            s, WEFT_ERR_INVALID,
            "%s: argument `%s` has slot %d, expected one of the %zu slots (from 0)", who, argument,
            (int)region->slot, s->buffer_count);
    buffer = &s->buffers[region->slot];
    if (region->offset > buffer->count || region->count > buffer->count - region->offset)
        return weft__schedule_fail(
            s, WEFT_ERR_INVALID,
            "%s: argument `%s` is offset %zu, count %zu of slot \"%.64s\", expected it "
            "within its %zu elements",
            who, argument, region->offset, region->count, buffer->name, buffer->count);
    if (region->value < 0 || (size_t)region->value > s->value_count)
        return weft__schedule_fail(
            s, WEFT_ERR_INVALID,
            "%s: argument `%s` has value %d, expected 0 (none) or one of the %zu values "
            "(from 1)",
            who, argument, (int)region->value, s->value_count);
    return weft__schedule_fail(
        s, WEFT_ERR_INVALID,
        "%s: argument `%s` is in input slot \"%.64s\", expected a slot that may be "
        "written",
        who, argument, buffer->name);
}

int weft__schedule_check_region(struct weft_schedule *s, const char *who, const char *name,
                                long index, const struct weft_region *region, int written)
{
    const struct weft__buffer *buffer;

    if (region->slot < 0 || (size_t)region->slot >= s->buffer_count)
        return bad_region(s, who, name, index, region);
    buffer = &s->buffers[region->slot];
    if (region->offset > buffer->count || region->count > buffer->count - region->offset ||
        region->value < 0 || (size_t)region->value > s->value_count ||
        (written && buffer->kind == WEFT_SLOT_INPUT))
        return bad_region(s, who, name, index, region);
    return WEFT_OK;
}

/* A node that no schedule can have. */
#define REFUSE(schedule, ...)                                                                      \
    ((schedule)->refusal = WEFT__REFUSAL_REGION,                                                   \
     weft__schedule_fail(schedule, WEFT_ERR_INVALID, __VA_ARGS__))

static int check_region(const struct call *call, const char *name, long index,
                        const struct weft_region *region, int written)
{
    int status =
        weft__schedule_check_region(call->schedule, call->who, name, index, region, written);
    if (status)
        call->schedule->refusal = WEFT__REFUSAL_REGION;
    return status;
}

static int check_peer(const struct call *call, int peer)
{
    if (peer >= 0 && peer < call->schedule->size)
        return WEFT_OK;
    call->schedule->refusal = WEFT__REFUSAL_PEER;
    return weft__schedule_fail(call->schedule, WEFT_ERR_INVALID,
                               "%s: argument `peer` is %d, expected 0..%d", call->who, peer,
                               call->schedule->size - 1);
}

/* A value that the new node sets. */
static int check_produces(const struct call *call, weft_value_t value,
                          const struct weft_region *regions, size_t count)
{
    struct weft_schedule *s = call->schedule;

    if (value == 0)
        return WEFT_OK;
    if (value < 0 || (size_t)value > s->value_count)
        return REFUSE(s,
                      "%s: argument `produces` is %d, expected 0 (none) or one of the %zu values "
                      "(from 1)",
                      call->who, (int)value, s->value_count);
    if (s->values[value - 1].producer >= 0)
        return REFUSE(
            s,
            "%s: argument `produces` is value \"%.64s\", which node %d produces, expected "
            "one that no node does",
            call->who, s->values[value - 1].name, (int)s->values[value - 1].producer);
    for (size_t i = 0; i < count; i++)
        if (regions[i].value == value)
            return REFUSE(s,
                          "%s: argument `produces` is value \"%.64s\", which a region of the same "
                          "node reads, expected another",
                          call->who, s->values[value - 1].name);
    return WEFT_OK;
}

static int same_region(const struct weft_region *a, const struct weft_region *b)
{
    return a->slot == b->slot && a->offset == b->offset && a->count == b->count &&
           a->value == b->value;
}

/* Neither the same nor apart. */
static int partly_overlap(const struct weft_region *a, const struct weft_region *b)
{
    return a->slot == b->slot && a->offset < b->offset + b->count &&
           b->offset < a->offset + a->count && !same_region(a, b);
}

/* ---- nodes ---- */

/* `regions` NULL: they are in their place already. */
static weft_node_t add_node(const struct call *call, const struct weft__snode *node,
                            const struct weft_region *regions, size_t count)
{
    struct weft_schedule *s = call->schedule;
    struct weft__snode *added;

    if (s->node_count == INT32_MAX)
        return weft__schedule_fail(s, WEFT_ERR_UNSUPPORTED, "%s: more than %d nodes", call->who,
                                   INT32_MAX);
    if (count > UINT32_MAX - s->region_count)
        return weft__schedule_fail(s, WEFT_ERR_UNSUPPORTED, "%s: more than %" PRIu32 " regions",
                                   call->who, UINT32_MAX);
    if (weft__grow((void **)&s->nodes, &s->node_capacity, s->node_count + 1, sizeof *s->nodes) ||
        weft__grow((void **)&s->regions, &s->region_capacity, s->region_count + count,
                   sizeof *s->regions))
        return weft__schedule_fail_memory(s, call->who);
    added = &s->nodes[s->node_count];
    *added = *node;
    added->choice = -1;
    added->regions = (uint32_t)s->region_count;
    added->region_count = (uint32_t)count;
    if (regions)
        memcpy(&s->regions[s->region_count], regions, count * sizeof *regions);
    s->region_count += count;
    if (node->op)
        weft_op_retain(node->op);
    if (node->produces)
        s->values[node->produces - 1].producer = (weft_node_t)s->node_count;
    return (weft_node_t)s->node_count++;
}

weft_node_t weft_schedule_add_send(struct weft_schedule *schedule, struct weft_region region,
                                   int peer, uint32_t tag)
{
    const struct call call = {schedule, __func__};
    const struct weft__snode node = {.kind = WEFT_NODE_SEND, .peer = peer, .tag = tag};
    int status;

    WEFT__ENTER(schedule);
    if ((status = check_region(&call, "region", -1, &region, 0)) ||
        (status = check_peer(&call, peer)))
        return status;
    return add_node(&call, &node, &region, 1);
}

weft_node_t weft_schedule_add_recv(struct weft_schedule *schedule, struct weft_region region,
                                   int peer, uint32_t tag)
{
    const struct call call = {schedule, __func__};
    const struct weft__snode node = {.kind = WEFT_NODE_RECV, .peer = peer, .tag = tag};
    int status;

    WEFT__ENTER(schedule);
    if ((status = check_region(&call, "region", -1, &region, 1)) ||
        (status = check_peer(&call, peer)))
        return status;
    return add_node(&call, &node, &region, 1);
}

weft_node_t weft_schedule_add_recv_up_to(struct weft_schedule *schedule, struct weft_region region,
                                         int peer, uint32_t tag, weft_value_t produces)
{
    const struct call call = {schedule, __func__};
    const struct weft__snode node = {
        .kind = WEFT_NODE_RECV, .up_to = 1, .peer = peer, .tag = tag, .produces = produces};
    int status;

    WEFT__ENTER(schedule);
    if ((status = check_region(&call, "region", -1, &region, 1)) ||
        (status = check_peer(&call, peer)) ||
        (status = check_produces(&call, produces, &region, 1)))
        return status;
    return add_node(&call, &node, &region, 1);
}

/* dst, a and b of a reduction, each in its slot. */
static int check_operands(const struct call *call, const struct weft_op *op,
                          const struct weft_region regions[3])
{
    static const char *const names[] = {"dst", "a", "b"};
    struct weft_schedule *s = call->schedule;
    weft_dtype_t dtype = s->buffers[regions[0].slot].dtype;

    for (int i = 1; i < 3; i++) {
        weft_dtype_t other = s->buffers[regions[i].slot].dtype;

        if (other != dtype)
            return REFUSE(s, "%s: argument `%s` is of %s, expected %s as `dst`", call->who,
                          names[i], weft_dtype_name(other), weft_dtype_name(dtype));
        if (regions[i].count != regions[0].count || regions[i].value != regions[0].value)
            return REFUSE(s,
                          "%s: argument `%s` has count %zu, value %d, expected count %zu, value %d "
                          "as `dst`",
                          call->who, names[i], regions[i].count, (int)regions[i].value,
                          regions[0].count, (int)regions[0].value);
        if (partly_overlap(&regions[0], &regions[i]))
            return REFUSE(s,
                          "%s: argument `%s` overlaps `dst` in part (offsets %zu and %zu, count "
                          "%zu), expected the same region or none of it",
                          call->who, names[i], regions[i].offset, regions[0].offset,
                          regions[0].count);
    }
    if (!weft_op_supports(op, dtype))
        return REFUSE(s, "%s: argument `op` is %s, expected a reduction of %s%s", call->who,
                      weft_op_name(op), weft_dtype_name(dtype), weft__op_hint(op, dtype));
    return WEFT_OK;
}

weft_node_t weft_schedule_add_reduce(struct weft_schedule *schedule, const struct weft_op *op,
                                     struct weft_region dst, struct weft_region a,
                                     struct weft_region b)
{
    const struct call call = {schedule, __func__};
    const struct weft__snode node = {.kind = WEFT_NODE_REDUCE, .peer = -1, .op = op};
    const struct weft_region regions[] = {dst, a, b};
    int status;

    WEFT__ENTER(schedule);
    if (!op)
        return REFUSE(schedule, "%s: argument `op` is NULL, expected an operation", __func__);
    if ((status = check_region(&call, "dst", -1, &dst, 1)) ||
        (status = check_region(&call, "a", -1, &a, 0)) ||
        (status = check_region(&call, "b", -1, &b, 0)) ||
        (status = check_operands(&call, op, regions)))
        return status;
    return add_node(&call, &node, regions, 3);
}

static int check_copy(const struct call *call, const struct weft_region *dst,
                      const struct weft_region *src)
{
    struct weft_schedule *s = call->schedule;
    size_t dst_element = weft_dtype_size(s->buffers[dst->slot].dtype);
    size_t src_element = weft_dtype_size(s->buffers[src->slot].dtype);

    if (dst->count * dst_element != src->count * src_element)
        return REFUSE(s, "%s: argument `src` has %zu bytes, expected %zu as `dst`", call->who,
                      src->count * src_element, dst->count * dst_element);
    if (dst->value != src->value || (dst->value && dst_element != src_element))
        return REFUSE(s,
                      "%s: argument `src` has value %d of %zu-byte elements, expected value %d of "
                      "%zu-byte elements as `dst`",
                      call->who, (int)src->value, src_element, (int)dst->value, dst_element);
    if (partly_overlap(dst, src))
        return REFUSE(s,
                      "%s: argument `src` overlaps `dst` in part (offsets %zu and %zu, count %zu), "
                      "expected the same region or none of it",
                      call->who, src->offset, dst->offset, dst->count);
    return WEFT_OK;
}

weft_node_t weft_schedule_add_copy(struct weft_schedule *schedule, struct weft_region dst,
                                   struct weft_region src)
{
    const struct call call = {schedule, __func__};
    const struct weft__snode node = {.kind = WEFT_NODE_COPY, .peer = -1};
    const struct weft_region regions[] = {dst, src};
    int status;

    WEFT__ENTER(schedule);
    if ((status = check_region(&call, "dst", -1, &dst, 1)) ||
        (status = check_region(&call, "src", -1, &src, 0)) ||
        (status = check_copy(&call, &dst, &src)))
        return status;
    return add_node(&call, &node, regions, 2);
}

/* Whether the operation itself says that it writes region `i`, as one of this datatype. */
static int must_write(const struct weft_op *op, size_t i, weft_dtype_t dtype)
{
    const unsigned writes = op->writes | (dtype == WEFT_F64 ? op->writes_f64 : 0);

    return i < 8 * sizeof writes && writes >> i & 1;
}

static int check_arguments(const struct call *call, const struct weft_op *op,
                           const struct weft_compute_argument *arguments, size_t count)
{
    struct weft_schedule *s = call->schedule;

    for (size_t i = 0; i < count; i++) {
        int access = (int)arguments[i].access, status;

        if (access < WEFT_READ || access > WEFT_UPDATE)
            return REFUSE(s,
                          "%s: argument `arguments[%zu]` has access %d, expected WEFT_READ, "
                          "WEFT_WRITE or WEFT_UPDATE",
                          call->who, i, access);
        status = check_region(call, "arguments", (long)i, &arguments[i].region,
                              (access & WEFT_WRITE) != 0);
        if (status)
            return status;
        if (!(access & WEFT_WRITE) && must_write(op, i, s->buffers[arguments[i].region.slot].dtype))
            return REFUSE(s,
                          "%s: argument `arguments[%zu]` has access WEFT_READ, expected WEFT_WRITE "
                          "or WEFT_UPDATE: `%s` writes it",
                          call->who, i, weft_op_name(op));
    }
    return WEFT_OK;
}

/* The regions of a compute node and what it does to them, behind those of the nodes before. */
static int put_arguments(const struct call *call, const struct weft_compute_argument *arguments,
                         size_t count)
{
    struct weft_schedule *s = call->schedule;

    if (count > UINT32_MAX - s->region_count)
        return weft__schedule_fail(s, WEFT_ERR_UNSUPPORTED, "%s: more than %" PRIu32 " regions",
                                   call->who, UINT32_MAX);
    if (weft__grow((void **)&s->regions, &s->region_capacity, s->region_count + count,
                   sizeof *s->regions) ||
        weft__grow((void **)&s->accesses, &s->access_capacity, s->access_count + count,
                   sizeof *s->accesses))
        return weft__schedule_fail_memory(s, call->who);
    for (size_t i = 0; i < count; i++) {
        s->regions[s->region_count + i] = arguments[i].region;
        s->accesses[s->access_count + i] = arguments[i].access;
    }
    return WEFT_OK;
}

weft_node_t weft__schedule_add_call(struct weft_schedule *schedule, const char *who,
                                    const struct weft_op *op,
                                    const struct weft_compute_argument *arguments, size_t count,
                                    weft_value_t produces)
{
    const struct call call = {schedule, who};
    struct weft__snode node = {
        .kind = WEFT_NODE_COMPUTE, .peer = -1, .op = op, .produces = produces};
    weft_node_t added;
    int status;

    if ((status = check_arguments(&call, op, arguments, count)) ||
        (op->joint && (status = weft__joint_check(schedule, who, op->joint, arguments, count))) ||
        (status = put_arguments(&call, arguments, count)) ||
        (status = check_produces(&call, produces,
                                 count ? &schedule->regions[schedule->region_count] : NULL, count)))
        return status;
    node.accesses = (uint32_t)schedule->access_count;
    added = add_node(&call, &node, NULL, count);
    if (added >= 0)
        schedule->access_count += count;
    return added;
}

weft_node_t weft_schedule_add_compute(struct weft_schedule *schedule, const struct weft_op *op,
                                      const struct weft_compute_argument *arguments, size_t count,
                                      weft_value_t produces)
{
    WEFT__ENTER(schedule);
    if (!op || (!op->compute && !op->joint && (op->reduce || !op->device)))
        return REFUSE(schedule,
                      "%s: argument `op` is %s, expected an operation with a compute function",
                      __func__, op ? weft_op_name(op) : "NULL");
    if (count && !arguments)
        return REFUSE(schedule, "%s: argument `arguments` is NULL, expected %zu arguments",
                      __func__, count);
    return weft__schedule_add_call(schedule, __func__, op, arguments, count, produces);
}

weft_node_t weft_schedule_add_join(struct weft_schedule *schedule)
{
    const struct call call = {schedule, __func__};
    const struct weft__snode node = {.kind = WEFT_NODE_JOIN, .peer = -1};

    WEFT__ENTER(schedule);
    return add_node(&call, &node, NULL, 0);
}

weft_node_t weft_schedule_add_event(struct weft_schedule *schedule, uint32_t channel)
{
    const struct call call = {schedule, __func__};
    const struct weft__snode node = {.kind = WEFT_NODE_EVENT, .peer = -1, .tag = channel};

    WEFT__ENTER(schedule);
    return add_node(&call, &node, NULL, 0);
}

weft_node_t weft_schedule_add_signal(struct weft_schedule *schedule, int peer, uint32_t channel)
{
    const struct call call = {schedule, __func__};
    const struct weft__snode node = {.kind = WEFT_NODE_SIGNAL, .peer = peer, .tag = channel};
    int status;

    WEFT__ENTER(schedule);
    if ((status = check_peer(&call, peer)))
        return status;
    if (channel == WEFT_CHANNEL_NONE)
        return REFUSE(schedule, "%s: argument `channel` is WEFT_CHANNEL_NONE, expected a channel",
                      __func__);
    return add_node(&call, &node, NULL, 0);
}
