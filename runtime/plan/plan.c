/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commit: from the growing arrays of a schedule to the flat ones of a plan. Kahn's algorithm finds
 * cycles; sorting the (peer, tag) pairs finds messages that could not be told apart.
 */
#include "runtime/plan/plan.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/joint.h"
#include "runtime/graph/lists.h"
#include "runtime/graph/op.h"
#include "runtime/graph/schedule.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int array(void **out, size_t count, size_t size, struct weft_plan *plan)
{
    *out = weft__calloc(count ? count : 1, size);
    if (!*out)
        return weft__error_memory("a plan");
    plan->bytes += count * size;
    return WEFT_OK;
}

#define ARRAY(field, count) array((void **)&(field), (count), sizeof(*(field)), plan)

/* A copy of a text, counted. */
static int keep_text(char **out, const char *text, struct weft_plan *plan)
{
    *out = weft__strdup(text);
    if (!*out)
        return weft__error_memory("a plan");
    plan->bytes += strlen(text) + 1;
    return WEFT_OK;
}

/* ---- edges ---- */

static int compile_edges(const char *who, const struct weft_schedule *schedule,
                         struct weft_plan *plan)
{
    size_t nodes = schedule->node_count;
    struct weft__lists successors;
    int status;
    if (weft__lists_of(&successors, schedule, WEFT__SUCCESSORS))
        return weft__error_memory("a plan");
    plan->first = successors.first;
    plan->after = successors.items;
    plan->edge_count = plan->first[nodes];
    plan->bytes += (nodes + 1) * sizeof *plan->first + plan->edge_count * sizeof *plan->after;
    if ((status = ARRAY(plan->waits, nodes)) != WEFT_OK)
        return status;
    for (uint32_t e = 0; e < plan->edge_count; e++)
        plan->waits[plan->after[e]]++;
    plan->plain = plan->event_count == 0;
    for (size_t n = 0; n < nodes; n++) {
        if (plan->waits[n] > WEFT__COUNT)
            return weft__error(WEFT_ERR_UNSUPPORTED,
                               "%s: node %zu of schedule `%s` has %u predecessors, at most %u fit",
                               who, n, plan->name, plan->waits[n], WEFT__COUNT);
        if (schedule->nodes[n].any && plan->waits[n] > 0) {
            plan->waits[n] |= WEFT__ANY;
            plan->plain = 0;
        }
    }
    return WEFT_OK;
}

/* Names the nodes of a cycle, in their order. Every node that still waits (waits[n] > 0) has one
 * before it that waits too, so going back along these comes to a cycle, and around it. `before` is
 * room for that: which one it is. */
static int cycle_error(const char *who, const struct weft_plan *plan, const uint32_t *waits,
                       uint32_t *before, uint32_t stuck)
{
    char text[320];
    char name[96];
    size_t used = 0;
    uint32_t on = 0;
    uint32_t named = 0;
    uint32_t length = 1;
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t e = plan->first[n]; waits[n] != 0 && e < plan->first[n + 1]; e++)
            before[plan->after[e]] = n;
    while (waits[on] == 0)
        on++;
    for (uint32_t step = 0; step < plan->node_count; step++)
        on = before[on];
    uint32_t first = on;
    for (uint32_t n = before[on]; n != on; n = before[n], length++)
        first = n < first ? n : first;
    /* Forwards, from its least node on: `after` is found by going all the way round again. */
    uint32_t n = first;
    for (; named < length && used + 130 < sizeof text; named++) {
        weft__plan_node_text(plan, n, name, sizeof name);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s (%s) before ", name,
                                 weft_node_kind_name(plan->nodes[n].kind));
        uint32_t next = n;
        while (before[next] != n)
            next = before[next];
        n = next;
    }
    if (named < length)
        snprintf(text + used, sizeof text - used, "%u more before ", length - named);
    return weft__error(WEFT_ERR_CYCLE,
                       "%s: schedule `%s` has a cycle: %snode %u again; %u of %u nodes can "
                       "never start",
                       who, plan->name, text, first, stuck, plan->node_count);
}

/* Kahn's algorithm over all edges: an ANY node on a cycle is an error too, since one of its
 * predecessors could never come before it. */
static int check_cycles(const char *who, const struct weft_plan *plan)
{
    uint32_t nodes = plan->node_count;
    uint32_t *waits = weft__malloc(nodes ? nodes : 1, sizeof *waits);
    uint32_t *queue = weft__malloc(nodes ? nodes : 1, sizeof *queue);
    int status = WEFT_OK;
    if (!waits || !queue) {
        status = weft__error_memory("a plan");
        goto done;
    }
    uint32_t head = 0;
    uint32_t tail = 0;
    for (uint32_t n = 0; n < nodes; n++) {
        waits[n] = plan->waits[n] & WEFT__COUNT;
        if (waits[n] == 0)
            queue[tail++] = n;
    }
    while (head < tail) {
        uint32_t n = queue[head++];
        for (uint32_t e = plan->first[n]; e < plan->first[n + 1]; e++)
            if (--waits[plan->after[e]] == 0)
                queue[tail++] = plan->after[e];
    }
    if (tail < nodes)
        status = cycle_error(who, plan, waits, queue, nodes - tail);
done:
    weft__free(queue);
    weft__free(waits);
    return status;
}

/* ---- nodes ---- */

static int find_op(struct weft_plan *plan, const struct weft_op *op, uint32_t *index)
{
    for (uint32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i] == op) {
            *index = i;
            return WEFT_OK;
        }
    size_t capacity = plan->op_count;
    plan->bytes += sizeof *plan->ops;
    if (weft__grow((void **)&plan->ops, &capacity, plan->op_count + 1u, sizeof *plan->ops) != 0)
        return weft__error_memory("a plan");
    *index = plan->op_count;
    plan->ops[plan->op_count++] = weft_op_retain(op);
    return WEFT_OK;
}

static int compile_node(const struct weft_schedule *schedule, struct weft_plan *plan, uint32_t n)
{
    const struct weft__snode *from = &schedule->nodes[n];
    struct weft__node *to = &plan->nodes[n];
    to->kind = from->kind;
    to->flags = from->up_to ? WEFT__UP_TO : 0;
    to->peer = from->kind == WEFT_NODE_EVENT ? from->choice : from->peer;
    to->tag = from->tag;
    to->regions = from->regions;
    to->region_count = from->region_count;
    to->index = WEFT__NONE;
    to->op = WEFT__NONE;
    to->produces = (uint32_t)from->produces;
    size_t bytes = 0;
    uint32_t there = 0; /* regions on the device */
    for (uint32_t i = 0; i < from->region_count; i++)
        there += plan->slots[plan->regions[from->regions + i].slot].memory == WEFT_MEMORY_DEVICE;
    if (there > 0)
        to->flags |= WEFT__DEVICE_NODE;
    if (from->region_count > 0) {
        const struct weft_region *region = &schedule->regions[from->regions];
        weft_dtype_t dtype = schedule->buffers[region->slot].dtype;
        size_t size = weft_dtype_size(dtype);
        to->dtype = (uint8_t)dtype;
        to->shift = (uint8_t)(size == 8 ? 3 : size == 4 ? 2 : size == 2 ? 1 : 0);
        bytes = region->count * size;
    }
    switch (from->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        to->index = plan->xfer_count++;
        plan->recv_count += from->kind == WEFT_NODE_RECV;
        plan->communicates = 1;
        break;
    case WEFT_NODE_REDUCE:
    case WEFT_NODE_COPY:
        if (bytes > WEFT__SLICE_MIN || (there == 1 && from->kind == WEFT_NODE_COPY))
            to->index = plan->xfer_count++;
        break;
    case WEFT_NODE_COMPUTE:
        if (from->op->joint) {
            to->flags |= WEFT__JOINT;
            to->index = plan->xfer_count++;
            to->peer = weft__joint_next(from->op->joint, plan->rank);
            to->tag = from->op->joint->tag;
            plan->joint_count++;
            plan->communicates = 1;
            break;
        }
        to->index = plan->call_count++;
        plan->argument_count += from->region_count;
        break;
    case WEFT_NODE_EVENT:
        to->index = plan->event_count++;
        plan->communicates |= from->tag != WEFT_CHANNEL_NONE;
        break;
    case WEFT_NODE_SIGNAL:
        plan->communicates = 1;
        break;
    default:
        break;
    }
    if (from->op) {
        int status = find_op(plan, from->op, &to->op);
        if (status != WEFT_OK)
            return status;
        if (from->kind == WEFT_NODE_COMPUTE && (from->op->flags & WEFT_OP_MAY_PEND))
            to->flags |= WEFT__PENDS;
    }
    return WEFT_OK;
}

static int compare_events(const void *left, const void *right)
{
    const struct weft__event *a = left;
    const struct weft__event *b = right;
    if (a->channel != b->channel)
        return a->channel < b->channel ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

static int compile_choices(struct weft_plan *plan)
{
    uint32_t members = 0;
    int status = ARRAY(plan->choice_first, plan->choice_count + (size_t)1);
    if (status != WEFT_OK)
        return status;
    for (uint32_t e = 0; e < plan->event_count; e++) {
        int32_t choice = plan->nodes[plan->events[e].node].peer;
        if (choice >= 0) {
            plan->choice_first[choice + 1]++;
            members++;
        }
    }
    if ((status = ARRAY(plan->choice_events, members)) != WEFT_OK)
        return status;
    for (uint32_t c = 0; c < plan->choice_count; c++)
        plan->choice_first[c + 1] += plan->choice_first[c];
    for (uint32_t e = plan->event_count; e-- > 0;) {
        /* Filled from the back: the ends move down to the beginnings of the next choice. */
        int32_t choice = plan->nodes[plan->events[e].node].peer;
        if (choice >= 0)
            plan->choice_events[--plan->choice_first[choice + 1]] = e;
    }
    for (uint32_t c = 0; c < plan->choice_count; c++)
        plan->choice_first[c] = plan->choice_first[c + 1];
    plan->choice_first[plan->choice_count] = members;
    return WEFT_OK;
}

static int compile_nodes(const struct weft_schedule *schedule, struct weft_plan *plan)
{
    int status = ARRAY(plan->nodes, schedule->node_count);
    for (uint32_t n = 0; status == WEFT_OK && n < plan->node_count; n++)
        status = compile_node(schedule, plan, n);
    if (status != WEFT_OK || (status = ARRAY(plan->events, plan->event_count)) != WEFT_OK ||
        (status = ARRAY(plan->calls, plan->call_count)) != WEFT_OK)
        return status;
    uint32_t events = 0;
    uint32_t arguments = 0;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        struct weft__node *node = &plan->nodes[n];
        if (node->kind == WEFT_NODE_EVENT) {
            plan->events[events++] = (struct weft__event){n, node->tag};
        } else if (node->kind == WEFT_NODE_COMPUTE && !(node->flags & WEFT__JOINT)) {
            plan->calls[node->index] = (struct weft__call_info){n, arguments};
            arguments += node->region_count;
        }
    }
    qsort(plan->events, plan->event_count, sizeof *plan->events, compare_events);
    for (uint32_t e = 0; e < plan->event_count; e++)
        plan->nodes[plan->events[e].node].index = e;
    plan->choice_count = (uint32_t)schedule->choice_count;
    return compile_choices(plan);
}

/* Same (kind, peer, tag) twice? Sorted by all three. */
struct message_key {
    uint32_t node;
    uint32_t kind;
    uint32_t peer;
    uint32_t tag;
};

static int compare_keys(const void *left, const void *right)
{
    const uint32_t *a = (const uint32_t *)left + 1;
    const uint32_t *b = (const uint32_t *)right + 1;
    for (int i = 0; i < 3; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_i32(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left;
    int32_t b = *(const int32_t *)right;
    return a < b ? -1 : a > b;
}

static int has_peer(const struct weft__node *node)
{
    return node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV ||
           node->kind == WEFT_NODE_SIGNAL || (node->flags & WEFT__JOINT);
}

static int check_duplicates(const char *who, const struct weft_plan *plan, struct message_key *keys,
                            size_t count)
{
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++) {
        if (compare_keys(&keys[i - 1], &keys[i]) != 0)
            continue;
        uint32_t a = keys[i - 1].node;
        uint32_t b = keys[i].node;
        char one[96];
        char two[96];
        weft__plan_node_text(plan, a < b ? a : b, one, sizeof one);
        weft__plan_node_text(plan, a < b ? b : a, two, sizeof two);
        return weft__error(WEFT_ERR_DUPLICATE,
                           "%s: %s and %s of schedule `%s` are both a %s with peer %u and tag %u; "
                           "they could not be told apart",
                           who, one, two, plan->name, weft_node_kind_name(keys[i].kind),
                           keys[i].peer, keys[i].tag);
    }
    return WEFT_OK;
}

/* Nodes name their peer by its place in a table of the plan's own peers, so that binding ranks to a
 * run costs memory by the peers it has, not by the ranks there are. */
static int compile_peers(const char *who, struct weft_plan *plan)
{
    size_t keys_count = 0;
    size_t count = 0;
    struct message_key *keys = weft__malloc(plan->node_count + (size_t)1, sizeof *keys);
    int32_t *peers = weft__malloc(plan->node_count + (size_t)1, sizeof *peers);
    int status = !keys || !peers ? weft__error_memory("a plan") : WEFT_OK;
    for (uint32_t n = 0; status == WEFT_OK && n < plan->node_count; n++) {
        const struct weft__node *node = &plan->nodes[n];
        if (!has_peer(node))
            continue;
        peers[count++] = node->peer;
        if (node->kind != WEFT_NODE_SIGNAL)
            keys[keys_count++] =
                (struct message_key){n, node->kind, (uint32_t)node->peer, node->tag};
    }
    if (status != WEFT_OK || (status = check_duplicates(who, plan, keys, keys_count)) != WEFT_OK)
        goto done;
    qsort(peers, count, sizeof *peers, compare_i32);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || peers[i] != peers[i - 1])
            peers[plan->peer_count++] = peers[i];
    if ((status = ARRAY(plan->peers, plan->peer_count)) != WEFT_OK)
        goto done;
    memcpy(plan->peers, peers, plan->peer_count * sizeof *peers);
    for (uint32_t n = 0; n < plan->node_count; n++) {
        struct weft__node *node = &plan->nodes[n];
        if (has_peer(node)) {
            const int32_t *found = bsearch(&node->peer, plan->peers, plan->peer_count,
                                           sizeof *plan->peers, compare_i32);
            node->peer = (int32_t)(found - plan->peers);
        }
    }
done:
    weft__free(peers);
    weft__free(keys);
    return status;
}

/* ---- slots, values, regions ---- */

static int compile_slots(const char *who, const struct weft_schedule *schedule,
                         struct weft_plan *plan)
{
    int status;
    if ((status = ARRAY(plan->slots, schedule->buffer_count)) != WEFT_OK ||
        (status = ARRAY(plan->values, schedule->value_count)) != WEFT_OK ||
        (status = ARRAY(plan->regions, schedule->region_count)) != WEFT_OK)
        return status;
    plan->region_count = (uint32_t)schedule->region_count;
    for (size_t s = 0; s < schedule->buffer_count; s++) {
        const struct weft__buffer *from = &schedule->buffers[s];
        struct weft__slot *to = &plan->slots[s];
        plan->slot_count = (uint32_t)s + 1;
        if ((status = keep_text(&to->name, from->name, plan)) != WEFT_OK)
            return status;
        to->count = from->count;
        to->dtype = from->dtype;
        to->element = (uint32_t)weft_dtype_size(from->dtype);
        to->kind = (uint8_t)from->kind;
        to->memory = (uint8_t)from->memory;
        plan->on_device |= from->memory == WEFT_MEMORY_DEVICE;
        if (from->kind != WEFT_SLOT_SCRATCH)
            continue;
        size_t bytes = from->count * weft_dtype_size(from->dtype);
        size_t line = from->memory == WEFT_MEMORY_DEVICE ? 255 : 63;
        size_t rounded = (bytes + line) & ~line;
        size_t *room =
            from->memory == WEFT_MEMORY_DEVICE ? &plan->device_bytes : &plan->scratch_bytes;
        if (rounded < bytes || *room + rounded < rounded)
            return weft__error(WEFT_ERR_MEMORY, "%s: scratch of schedule `%s` exceeds size_t", who,
                               plan->name);
        to->scratch = *room;
        *room += rounded;
    }
    for (size_t v = 0; v < schedule->value_count; v++) {
        plan->value_count = (uint32_t)v + 1;
        status = keep_text(&plan->values[v].name, schedule->values[v].name, plan);
        if (status != WEFT_OK)
            return status;
        plan->values[v].max = schedule->values[v].max;
        plan->values[v].produced = schedule->values[v].producer >= 0;
    }
    for (size_t r = 0; r < schedule->region_count; r++) {
        const struct weft_region *from = &schedule->regions[r];
        size_t element = weft_dtype_size(schedule->buffers[from->slot].dtype);
        plan->regions[r] = (struct weft__region){(uint32_t)from->slot, (uint32_t)from->value,
                                                 from->offset * element, from->count * element};
    }
    return WEFT_OK;
}

static int compile_roots(struct weft_plan *plan)
{
    uint32_t bits = plan->node_count;
    do {
        uint32_t words = (bits + 63) / 64;
        plan->level_word[plan->levels++] = plan->words;
        plan->words += words ? words : 1;
        bits = words;
    } while (bits > 1);
    int status = ARRAY(plan->roots, plan->words);
    if (status != WEFT_OK)
        return status;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        if (plan->waits[n] != 0)
            continue;
        if (plan->nodes[n].kind == WEFT_NODE_EVENT) {
            plan->waits[n] = WEFT__OPEN;
            continue;
        }
        uint32_t bit = n;
        for (uint32_t level = 0; level < plan->levels; level++) {
            plan->roots[plan->level_word[level] + bit / 64] |= (uint64_t)1 << (bit % 64);
            bit /= 64;
        }
    }
    return WEFT_OK;
}

/* Every reader of a produced value must come after the node that produces it. Producers are few: a
 * schedule has one for each message of varying size. So the readers of a value are counted, and a
 * walk along the edges from its producer, which visits a node once, counts those that it meets: it
 * ends when it has met all of them. */
static int check_values(const char *who, const struct weft_plan *plan)
{
    int any = 0;
    for (uint32_t n = 0; n < plan->node_count; n++)
        any |= plan->nodes[n].produces != 0;
    if (!any)
        return WEFT_OK;
    uint32_t *seen = weft__calloc(plan->node_count, sizeof *seen);
    uint32_t *stack = weft__malloc(plan->node_count, sizeof *stack);
    uint64_t *readers = weft__calloc(plan->value_count + (size_t)1, sizeof *readers);
    int status = WEFT_OK;
    if (!seen || !stack || !readers) {
        status = weft__error_memory("a plan");
        goto done;
    }
    for (uint32_t n = 0; n < plan->node_count; n++)
        for (uint32_t r = 0; r < plan->nodes[n].region_count; r++)
            readers[plan->regions[plan->nodes[n].regions + r].value]++;
    for (uint32_t n = 0; n < plan->node_count; n++) {
        uint32_t value = plan->nodes[n].produces;
        if (value == 0)
            continue;
        uint64_t left = readers[value];
        uint32_t depth = 0;
        stack[depth++] = n;
        seen[n] = n + 1;
        while (depth > 0 && left > 0) {
            uint32_t at = stack[--depth];
            if (at != n)
                for (uint32_t r = 0; r < plan->nodes[at].region_count; r++)
                    left -= plan->regions[plan->nodes[at].regions + r].value == value;
            for (uint32_t e = plan->first[at]; e < plan->first[at + 1]; e++)
                if (seen[plan->after[e]] != n + 1) {
                    seen[plan->after[e]] = n + 1;
                    stack[depth++] = plan->after[e];
                }
        }
        if (left > 0) {
            status = WEFT__INVALID("%s: value `%s` of schedule `%s` is read by a node that is "
                                   "not ordered after node %u, which produces it",
                                   who, plan->values[value - 1].name, plan->name, n);
            goto done;
        }
    }
done:
    weft__free(readers);
    weft__free(stack);
    weft__free(seen);
    return status;
}

/* ---- the plan ---- */

static int compile_labels(const struct weft_schedule *schedule, struct weft_plan *plan)
{
    if (schedule->label_count == 0)
        return WEFT_OK;
    int status = ARRAY(plan->labels, schedule->label_count);
    for (size_t i = 0; status == WEFT_OK && i < schedule->label_count; i++) {
        plan->labels[i].node = (uint32_t)schedule->labels[i].node;
        plan->label_count = (uint32_t)i + 1;
        status = keep_text(&plan->labels[i].text, schedule->labels[i].text, plan);
    }
    return status;
}

/* A plan that was read from a text knows the lines of its nodes, for reports. */
static int compile_lines(const struct weft_schedule *schedule, struct weft_plan *plan)
{
    if (schedule->line_count == 0)
        return WEFT_OK;
    int status = ARRAY(plan->lines, plan->node_count);
    if (status == WEFT_OK)
        memcpy(plan->lines, schedule->lines, schedule->line_count * sizeof *plan->lines);
    return status;
}

int weft__plan_compile(const char *who, const struct weft_schedule *schedule,
                       struct weft_plan **out)
{
    if (!schedule || !out)
        return WEFT__INVALID("%s: argument `%s` is NULL", who, !schedule ? "schedule" : "plan");
    if (schedule->status != WEFT_OK)
        return weft__error(schedule->status, "%s", schedule->error);
    if (schedule->edge_count >= UINT32_MAX)
        return weft__error(WEFT_ERR_UNSUPPORTED, "%s: schedule `%s` has %zu edges, at most %u fit",
                           who, schedule->name, schedule->edge_count, UINT32_MAX - 1);
    struct weft_plan *plan = weft__calloc(1, sizeof *plan);
    if (!plan)
        return weft__error_memory("a plan");
    atomic_init(&plan->references, 1);
    plan->rank = schedule->rank;
    plan->size = schedule->size;
    plan->node_count = (uint32_t)schedule->node_count;
    plan->bytes = sizeof *plan;
    int status = keep_text(&plan->name, schedule->name, plan);
    if (status != WEFT_OK || (status = compile_labels(schedule, plan)) != WEFT_OK ||
        (status = compile_lines(schedule, plan)) != WEFT_OK ||
        (status = compile_slots(who, schedule, plan)) != WEFT_OK ||
        (status = compile_nodes(schedule, plan)) != WEFT_OK ||
        (status = compile_edges(who, schedule, plan)) != WEFT_OK ||
        (status = check_cycles(who, plan)) != WEFT_OK ||
        (status = compile_peers(who, plan)) != WEFT_OK ||
        (status = check_values(who, plan)) != WEFT_OK ||
        (status = compile_roots(plan)) != WEFT_OK || (status = weft__plan_fuse(plan)) != WEFT_OK ||
        (status = weft__plan_stream(plan)) != WEFT_OK) {
        weft_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return WEFT_OK;
}

struct weft_plan *weft__plan_retain(struct weft_plan *plan)
{
    atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
    return plan;
}

void weft_plan_destroy(struct weft_plan *plan)
{
    /* acq_rel: the last release sees everything that the others did with the plan. */
    if (!plan || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < plan->op_count; i++)
        weft_op_destroy(plan->ops[i]);
    for (uint32_t i = 0; i < plan->slot_count; i++)
        weft__free(plan->slots[i].name);
    for (uint32_t i = 0; i < plan->value_count; i++)
        weft__free(plan->values[i].name);
    for (uint32_t i = 0; i < plan->label_count; i++)
        weft__free(plan->labels[i].text);
    weft__free(plan->labels);
    weft__free(plan->lines);
    weft__free(plan->name);
    weft__free(plan->nodes);
    weft__free(plan->first);
    weft__free(plan->after);
    weft__free(plan->waits);
    weft__free(plan->streamed);
    weft__free(plan->roots);
    weft__free(plan->regions);
    weft__free(plan->slots);
    weft__free(plan->values);
    weft__free((void *)plan->ops);
    weft__free(plan->events);
    weft__free(plan->choice_first);
    weft__free(plan->choice_events);
    weft__free(plan->peers);
    weft__free(plan->calls);
    weft__free(plan);
}
