/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host and device: every node on one side, and copies for what is on the other.
 *
 *     p ----> n ----> s          p ----> copy in ----> n ----> copy out ----> s
 *
 * A node works on the side of what it writes first (weft__snode_memory). Of a region on the other
 * side it gets a part of scratch of its own, with a copy before it if it reads the region, or may
 * leave a part of it as it was, and one after it if it writes it. Whatever came before the node
 * comes before its copies, and what came after it after them, so nothing races that did not. Copies
 * cross by themselves: they need none.
 */
#include "runtime/graph/schedule.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/op.h"

#include <stdio.h>
#include <string.h>

/* Copies of a node: chained, by their index in `copies`, which is one less than the number here. */
struct around {
    uint32_t in;
    uint32_t out;
};

struct copy {
    weft_node_t node;
    uint32_t next;
};

struct placing {
    struct weft_schedule *schedule;
    const char *who;
    size_t nodes; /* that there were */
    struct around *around;
    struct copy *copies;
    size_t copy_count, copy_capacity;
    struct weft__edge *edges;
    size_t edge_count, edge_capacity;
};

static weft_memory_t memory_of(const struct weft_schedule *schedule, uint32_t region)
{
    return schedule->buffers[schedule->regions[region].slot].memory;
}

weft_memory_t weft__snode_memory(const struct weft_schedule *schedule,
                                 const struct weft__snode *node)
{
    if (node->kind == WEFT_NODE_REDUCE)
        return memory_of(schedule, node->regions);
    for (uint32_t i = 0; i < node->region_count; i++)
        if (memory_of(schedule, node->regions + i) == WEFT_MEMORY_DEVICE)
            return WEFT_MEMORY_DEVICE;
    return WEFT_MEMORY_HOST;
}

/* The name of the first slot of a node whose memory is there. */
static const char *first_there(const struct weft_schedule *schedule, const struct weft__snode *node,
                               weft_memory_t memory)
{
    for (uint32_t i = 0; i < node->region_count; i++)
        if (memory_of(schedule, node->regions + i) == memory)
            return schedule->buffers[schedule->regions[node->regions + i].slot].name;
    return "";
}

int weft__snode_misplaced(const struct weft_schedule *schedule, const struct weft__snode *node,
                          char *text, size_t size)
{
    const struct weft_op *op = node->op;
    int on_device = weft__snode_memory(schedule, node) == WEFT_MEMORY_DEVICE;

    if ((node->kind != WEFT_NODE_REDUCE && node->kind != WEFT_NODE_COMPUTE) || op->builtin >= 0)
        return 0;
    if (op->joint && on_device)
        return 0;
    if (op->joint)
        snprintf(text, size,
                 "operation `%s` is one of devices, and none of its regions is memory of one: "
                 "weft_schedule_write_out() makes messages of it",
                 op->name);
    else if (on_device && !op->device && !op->form)
        snprintf(text, size,
                 "operation `%s` is a function of the host, and slot `%s` is memory of the device",
                 op->name, first_there(schedule, node, WEFT_MEMORY_DEVICE));
    else if (!on_device && !op->reduce && !op->compute)
        snprintf(text, size,
                 "operation `%s` is one of devices alone, and none of its regions is memory of one",
                 op->name);
    else
        return 0;
    return 1;
}

int weft__schedule_check_sides(const char *who, const struct weft_schedule *schedule)
{
    char why[200];

    for (size_t n = 0; n < schedule->node_count; n++) {
        const char *label = weft__schedule_label(schedule, (weft_node_t)n);

        if (weft__snode_misplaced(schedule, &schedule->nodes[n], why, sizeof why))
            return weft__error(WEFT_ERR_UNSUPPORTED, "%s: node %zu%s%s%s of schedule `%s`: %s", who,
                               n, label ? " `" : "", label ? label : "", label ? "`" : "",
                               schedule->name, why);
    }
    return WEFT_OK;
}

static int has_bit(unsigned mask, uint32_t index)
{
    return index < 8 * sizeof mask && mask >> index & 1;
}

/* Whether a region of a node has to be brought to its side. One that nobody touches there does not.
 */
static int is_across(const struct weft_schedule *schedule, const struct weft__snode *node,
                     uint32_t index)
{
    uint32_t region = node->regions + index;

    return (node->kind == WEFT_NODE_REDUCE || node->kind == WEFT_NODE_COMPUTE) &&
           schedule->regions[region].count > 0 && !has_bit(node->op->spares, index) &&
           memory_of(schedule, region) != weft__snode_memory(schedule, node);
}

static int fail_memory(struct placing *p)
{
    return weft__schedule_fail_memory(p->schedule, p->who);
}

weft_slot_t weft__schedule_add_scratch(struct weft_schedule *schedule, const char *stem,
                                       weft_dtype_t dtype, size_t count, weft_memory_t memory)
{
    char name[40];
    weft_slot_t slot;

    /* Not a slot's own name with more behind it: that may be in use, or long. */
    for (size_t i = schedule->buffer_count;; i++) {
        snprintf(name, sizeof name, "%s-%zu", stem, i);
        if (weft__schedule_find_slot(schedule, name, strlen(name)) < 0)
            break;
    }
    slot = weft_schedule_add_slot(schedule, name, dtype, count, WEFT_SLOT_SCRATCH);
    if (slot >= 0)
        schedule->buffers[slot].memory = memory;
    return slot;
}

/* Scratch for a region, on the other side. */
static weft_slot_t add_scratch(struct placing *p, const struct weft_region *region,
                               weft_memory_t memory)
{
    char stem[16];

    snprintf(stem, sizeof stem, "on-%s", weft__memory_word(memory));
    return weft__schedule_add_scratch(p->schedule, stem, p->schedule->buffers[region->slot].dtype,
                                      region->count, memory);
}

/* A copy to be done before or after a node: `chain` is the node's. */
static int add_copy(struct placing *p, uint32_t *chain, struct weft_region to,
                    struct weft_region from)
{
    const char *word = weft__memory_word(p->schedule->buffers[to.slot].memory);
    char label[24];
    weft_node_t node = weft_schedule_add_copy(p->schedule, to, from);

    if (node < 0)
        return node;
    snprintf(label, sizeof label, "to the %s", word);
    int status = weft_schedule_set_label(p->schedule, node, label);
    if (status)
        return status;
    if (weft__grow((void **)&p->copies, &p->copy_capacity, p->copy_count + 1, sizeof *p->copies))
        return fail_memory(p);
    p->copies[p->copy_count++] = (struct copy){node, *chain};
    *chain = (uint32_t)p->copy_count;
    return WEFT_OK;
}

static int place_region(struct placing *p, uint32_t n, uint32_t index)
{
    struct weft_schedule *schedule = p->schedule;
    const struct weft__snode node = schedule->nodes[n];
    const struct weft_region there = schedule->regions[node.regions + index];
    weft_access_t access = weft__snode_access(schedule, &node, index);
    weft_slot_t slot = add_scratch(p, &there, weft__snode_memory(schedule, &node));
    struct weft_region here = weft_region_at(slot, 0, there.count);
    int status = slot < 0 ? slot : WEFT_OK;

    here.value = there.value;
    if (!status && (access & WEFT_READ || has_bit(node.op->keeps, index)))
        status = add_copy(p, &p->around[n].in, here, there);
    if (!status && (access & WEFT_WRITE))
        status = add_copy(p, &p->around[n].out, there, here);
    if (!status)
        schedule->regions[node.regions + index] = here;
    return status;
}

/* A node's regions on the other side. The same one twice is the same one here, too. */
static int place_node(struct placing *p, uint32_t n)
{
    const struct weft__snode node = p->schedule->nodes[n];
    int status = WEFT_OK;

    for (uint32_t i = 0; i < node.region_count && !status; i++)
        if (is_across(p->schedule, &node, i))
            status = place_region(p, n, i);
    if (!status && p->around[n].in && node.any) {
        for (uint32_t c = p->around[n].in; c; c = p->copies[c - 1].next)
            p->schedule->nodes[p->copies[c - 1].node].any = 1;
        p->schedule->nodes[n].any = 0;
    }
    return status;
}

/* ---- orders ---- */

static int add_edge(struct placing *p, uint32_t before, uint32_t after)
{
    if (weft__grow((void **)&p->edges, &p->edge_capacity, p->edge_count + 1, sizeof *p->edges))
        return fail_memory(p);
    p->edges[p->edge_count++] = (struct weft__edge){before, after};
    return WEFT_OK;
}

/* From what ends a node to all that begins another. */
static int add_edges_to(struct placing *p, uint32_t before, uint32_t after)
{
    uint32_t c = p->around[after].in;
    int status = c ? WEFT_OK : add_edge(p, before, after);

    for (; c && !status; c = p->copies[c - 1].next)
        status = add_edge(p, before, (uint32_t)p->copies[c - 1].node);
    return status;
}

static int carry_edge(struct placing *p, const struct weft__edge *edge)
{
    uint32_t c = p->around[edge->before].out;
    int status = c ? WEFT_OK : add_edges_to(p, edge->before, edge->after);

    for (; c && !status; c = p->copies[c - 1].next)
        status = add_edges_to(p, (uint32_t)p->copies[c - 1].node, edge->after);
    return status;
}

static int carry_edges(struct placing *p)
{
    struct weft_schedule *schedule = p->schedule;
    int status = WEFT_OK;

    for (size_t e = 0; e < schedule->edge_count && !status; e++)
        status = carry_edge(p, &schedule->edges[e]);
    for (uint32_t n = 0; n < p->nodes && !status; n++) {
        for (uint32_t c = p->around[n].in; c && !status; c = p->copies[c - 1].next)
            status = add_edge(p, (uint32_t)p->copies[c - 1].node, n);
        for (uint32_t c = p->around[n].out; c && !status; c = p->copies[c - 1].next)
            status = add_edge(p, n, (uint32_t)p->copies[c - 1].node);
    }
    if (status)
        return status;
    weft__free(schedule->edges);
    schedule->edges = p->edges;
    schedule->edge_count = p->edge_count;
    schedule->edge_capacity = p->edge_capacity;
    p->edges = NULL;
    return WEFT_OK;
}

int weft__schedule_is_placed(const struct weft_schedule *schedule)
{
    for (size_t n = 0; n < schedule->node_count; n++)
        for (uint32_t i = 0; i < schedule->nodes[n].region_count; i++)
            if (is_across(schedule, &schedule->nodes[n], i))
                return 0;
    return 1;
}

int weft_schedule_place(struct weft_schedule *schedule)
{
    struct placing p = {.schedule = schedule, .who = __func__};
    int status = WEFT_OK;

    WEFT__ENTER(schedule);
    if (weft__schedule_is_placed(schedule))
        return WEFT_OK;
    p.nodes = schedule->node_count;
    p.around = weft__calloc(p.nodes, sizeof *p.around);
    if (!p.around)
        return fail_memory(&p);
    for (uint32_t n = 0; n < p.nodes && !status; n++)
        status = place_node(&p, n);
    if (!status)
        status = carry_edges(&p);
    weft__free(p.around);
    weft__free(p.copies);
    weft__free(p.edges);
    return status;
}
