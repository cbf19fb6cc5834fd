/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/interpreter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- memory ---- */

int interp_memory_create(struct interp_memory *memory, const struct weft_schedule *const *schedules,
                         int ranks)
{
    memory->ranks = ranks;
    memory->slots = calloc((size_t)ranks, sizeof *memory->slots);
    memory->slot_counts = calloc((size_t)ranks, sizeof *memory->slot_counts);
    for (int r = 0; memory->slots && memory->slot_counts && r < ranks; r++) {
        size_t count = weft_schedule_slot_count(schedules[r]);
        memory->slots[r] = calloc(count + 1, sizeof **memory->slots);
        if (!memory->slots[r])
            break;
        memory->slot_counts[r] = count;
        for (size_t s = 0; s < count; s++) {
            struct weft_slot_info info = {.struct_size = sizeof info};
            weft_schedule_get_slot(schedules[r], (weft_slot_t)s, &info);
            size_t bytes = info.count * weft_dtype_size(info.dtype);
            memory->slots[r][s] = malloc(bytes + 1);
            if (!memory->slots[r][s])
                goto failed;
            memset(memory->slots[r][s], 0x5b, bytes + 1);
        }
        if (r == ranks - 1)
            return 0;
    }
failed:
    interp_memory_destroy(memory);
    return -1;
}

void interp_memory_destroy(struct interp_memory *memory)
{
    for (int r = 0; memory->slots && memory->slot_counts && r < memory->ranks; r++) {
        for (size_t s = 0; memory->slots[r] && s < memory->slot_counts[r]; s++)
            free(memory->slots[r][s]);
        free(memory->slots[r]);
    }
    free(memory->slots);
    free(memory->slot_counts);
    *memory = (struct interp_memory){0};
}

void interp_fill(void *data, size_t count, weft_dtype_t dtype, uint64_t seed, int low)
{
    static const uint16_t f16[] = {0, 0x3c00, 0x4000}, bf16[] = {0, 0x3f80, 0x4000};
    if (weft_dtype_is_opaque(dtype)) {
        for (size_t i = 0; i < count * weft_dtype_size(dtype); i++)
            ((uint8_t *)data)[i] = (uint8_t)(next_random(&seed) >> 33);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        unsigned n = (unsigned)low + (unsigned)(next_random(&seed) >> 33) % (3 - (unsigned)low);
        switch (dtype) {
        case WEFT_I8:
        case WEFT_U8:
            ((uint8_t *)data)[i] = (uint8_t)n;
            break;
        case WEFT_I16:
        case WEFT_U16:
            ((uint16_t *)data)[i] = (uint16_t)n;
            break;
        case WEFT_I32:
        case WEFT_U32:
            ((uint32_t *)data)[i] = n;
            break;
        case WEFT_I64:
        case WEFT_U64:
            ((uint64_t *)data)[i] = n;
            break;
        case WEFT_F16:
            ((uint16_t *)data)[i] = f16[n];
            break;
        case WEFT_BF16:
            ((uint16_t *)data)[i] = bf16[n];
            break;
        case WEFT_F32:
            ((float *)data)[i] = (float)n;
            break;
        default:
            ((double *)data)[i] = n;
            break;
        }
    }
}

/* ---- execution ---- */

enum state { WAITING, READY, STARTED, ENDED, RETIRED };

/* One node of one rank. */
struct node {
    struct weft_node_info info;
    int rank;
    size_t waits; /* predecessors that have not ended (ALL) or are not retired (ANY) */
    size_t preds;
    size_t first; /* successors: edges[first .. first + successors) */
    size_t successors;
    size_t match; /* the other end of a message, SIZE_MAX: none */
    enum state state;
    int fired;     /* an event whose signal has come */
    void *payload; /* an eager send's copy */
    size_t bytes;  /* of a send that has started */
    uint64_t heard;
};

struct machine {
    const struct weft_schedule *const *schedules;
    const struct interp_memory *memory;
    const struct interp_options *options;
    int ranks;
    struct node *nodes;
    size_t *base; /* first node of a rank; ranks + 1 */
    size_t *edges;
    size_t *queue; /* things that can happen: a node that is ready, or a receive to be filled */
    size_t queued, ended;
    uint64_t random;
    char *text;
    size_t text_size;
};

static int fail(struct machine *m, const struct node *node, const char *what)
{
    snprintf(m->text, m->text_size, "rank %d node %zu (%s, peer %d, tag %u): %s", node->rank,
             (size_t)(node - m->nodes) - m->base[node->rank], weft_node_kind_name(node->info.kind),
             node->info.peer, (unsigned)node->info.tag, what);
    return -1;
}

static size_t region_count(const struct machine *m, int rank, const struct weft_region *region)
{
    if (!region->value)
        return region->count;
    return (size_t)m->options->values[rank][region->value - 1];
}

static size_t element_size(const struct machine *m, int rank, weft_slot_t slot)
{
    struct weft_slot_info info = {.struct_size = sizeof info, .dtype = WEFT_U8};
    weft_schedule_get_slot(m->schedules[rank], slot, &info);
    return weft_dtype_size(info.dtype);
}

static void *region_data(const struct machine *m, int rank, const struct weft_region *region)
{
    return (char *)m->memory->slots[rank][region->slot] +
           region->offset * element_size(m, rank, region->slot);
}

static size_t region_bytes(const struct machine *m, int rank, const struct weft_region *region)
{
    return region_count(m, rank, region) * element_size(m, rank, region->slot);
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    for (int i = 0; i < 3; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Pairs sends with receives: sorts (from, to, tag). */
static int match(struct machine *m)
{
    size_t count = m->base[m->ranks], found = 0;
    uint64_t(*keys)[4] = calloc(count + 1, sizeof *keys);
    if (!keys)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct node *node = &m->nodes[i];
        int sends = node->info.kind == WEFT_NODE_SEND, receives = node->info.kind == WEFT_NODE_RECV;
        node->match = SIZE_MAX;
        if (!sends && !receives)
            continue;
        keys[found][0] = (uint64_t)(sends ? node->rank : node->info.peer);
        keys[found][1] = (uint64_t)(sends ? node->info.peer : node->rank);
        keys[found][2] = node->info.tag;
        keys[found++][3] = i;
    }
    qsort(keys, found, sizeof *keys, compare_keys);
    int status = 0;
    for (size_t i = 0; i < found && !status; i += 2) {
        struct node *a = &m->nodes[keys[i][3]];
        if (i + 1 == found || compare_keys(keys[i], keys[i + 1])) {
            status = fail(m, a, "no counterpart");
            break;
        }
        struct node *b = &m->nodes[keys[i + 1][3]];
        if (a->info.kind == b->info.kind || (i + 2 < found && !compare_keys(keys[i], keys[i + 2])))
            status = fail(m, a, "two of them with the same peer and tag");
        a->match = keys[i + 1][3];
        b->match = keys[i][3];
    }
    free(keys);
    return status;
}

static void enqueue(struct machine *m, size_t id)
{
    m->queue[m->queued++] = id;
}

static void try_ready(struct machine *m, size_t id)
{
    struct node *node = &m->nodes[id];
    if (node->state != WAITING || (!node->info.any && node->waits))
        return;
    if (node->info.kind == WEFT_NODE_EVENT && node->info.channel != WEFT_CHANNEL_NONE &&
        !node->fired)
        return;
    node->state = READY;
    enqueue(m, id);
}

static void retire(struct machine *m, size_t id);

static void end(struct machine *m, size_t id)
{
    struct node *node = &m->nodes[id];
    node->state = ENDED;
    m->ended++;
    for (size_t i = 0; i < node->successors; i++) {
        size_t next = m->edges[node->first + i];
        struct node *after = &m->nodes[next];
        if (after->state != WAITING)
            continue;
        after->heard |= node->heard;
        after->waits--;
        try_ready(m, next);
    }
}

static void retire(struct machine *m, size_t id)
{
    struct node *node = &m->nodes[id];
    if (node->state == ENDED || node->state == RETIRED || node->state == STARTED)
        return;
    node->state = RETIRED;
    m->ended++;
    for (size_t i = 0; i < node->successors; i++) {
        size_t next = m->edges[node->first + i];
        struct node *after = &m->nodes[next];
        if (after->state != WAITING)
            continue;
        if (!after->info.any || --after->waits == 0)
            retire(m, next);
    }
}

/* The payload of a message goes to its receive; ends it, and the send if that has not. */
static int deliver(struct machine *m, size_t id)
{
    struct node *recv = &m->nodes[id], *send = &m->nodes[recv->match];
    const struct weft_region *to = recv->info.regions, *from = send->info.regions;
    size_t element = element_size(m, recv->rank, to->slot);
    size_t capacity = region_bytes(m, recv->rank, to);
    if (send->bytes > capacity || (!recv->info.up_to && send->bytes != capacity) ||
        send->bytes % element)
        return fail(m, recv, "the message has another size");
    memcpy(region_data(m, recv->rank, to),
           send->payload ? send->payload : region_data(m, send->rank, from), send->bytes);
    if (recv->info.produces)
        m->options->values[recv->rank][recv->info.produces - 1] = send->bytes / element;
    free(send->payload);
    send->payload = NULL;
    recv->heard |= send->heard;
    end(m, id);
    if (send->state == STARTED)
        end(m, recv->match);
    return 0;
}

static int start_send(struct machine *m, struct node *node, size_t id)
{
    struct node *recv = &m->nodes[node->match];
    node->bytes = region_bytes(m, node->rank, node->info.regions);
    if (m->options->rendezvous) {
        node->state = STARTED;
    } else {
        node->payload = malloc(node->bytes + 1);
        if (!node->payload)
            return fail(m, node, "out of memory");
        memcpy(node->payload, region_data(m, node->rank, node->info.regions), node->bytes);
        end(m, id);
    }
    if (recv->state == STARTED)
        enqueue(m, node->match);
    return 0;
}

static void start_recv(struct machine *m, struct node *node, size_t id)
{
    enum state other = m->nodes[node->match].state;
    node->state = STARTED;
    if (other == STARTED || other == ENDED)
        enqueue(m, id);
}

static int start_compute(struct machine *m, struct node *node, size_t id)
{
    const struct weft_region *regions = node->info.regions;
    int rank = node->rank, status = 0;
    if (node->info.kind == WEFT_NODE_COPY) {
        size_t bytes = region_bytes(m, rank, &regions[1]);
        if (bytes != region_bytes(m, rank, &regions[0]))
            return fail(m, node, "the regions differ in size");
        memmove(region_data(m, rank, &regions[0]), region_data(m, rank, &regions[1]), bytes);
    } else if (node->info.kind == WEFT_NODE_REDUCE) {
        struct weft_slot_info info = {.struct_size = sizeof info, .dtype = WEFT_U8};
        weft_schedule_get_slot(m->schedules[rank], regions[0].slot, &info);
        status =
            weft_op_reduce(node->info.op, info.dtype, region_data(m, rank, &regions[0]),
                           region_data(m, rank, &regions[1]), region_data(m, rank, &regions[2]),
                           region_count(m, rank, &regions[0]));
    } else if (m->options->compute) {
        uint64_t value = 0;
        status = m->options->compute(m->options->user, rank, &node->info, m->memory->slots[rank],
                                     &value);
        if (node->info.produces)
            m->options->values[rank][node->info.produces - 1] = value;
    } else {
        return fail(m, node, "a compute node, and no function for it");
    }
    if (status)
        return fail(m, node, "the operation failed");
    end(m, id);
    return 0;
}

static void start_event(struct machine *m, struct node *node, size_t id)
{
    size_t begin = m->base[node->rank], last = m->base[node->rank + 1];
    end(m, id);
    for (size_t i = begin; node->info.choice >= 0 && i < last; i++)
        if (i != id && m->nodes[i].info.kind == WEFT_NODE_EVENT &&
            m->nodes[i].info.choice == node->info.choice)
            retire(m, i);
}

static void start_signal(struct machine *m, struct node *node, size_t id)
{
    int to = node->info.peer;
    for (size_t i = m->base[to]; i < m->base[to + 1]; i++) {
        struct node *event = &m->nodes[i];
        if (event->info.kind != WEFT_NODE_EVENT || event->info.channel != node->info.channel)
            continue;
        event->fired = 1;
        event->heard |= node->heard;
        try_ready(m, i);
    }
    end(m, id);
}

static int step(struct machine *m, size_t id)
{
    struct node *node = &m->nodes[id];
    if (node->state == STARTED)
        return deliver(m, id);
    if (node->state != READY) /* retired meanwhile */
        return 0;
    switch (node->info.kind) {
    case WEFT_NODE_SEND:
        return start_send(m, node, id);
    case WEFT_NODE_RECV:
        start_recv(m, node, id);
        return 0;
    case WEFT_NODE_EVENT:
        start_event(m, node, id);
        return 0;
    case WEFT_NODE_SIGNAL:
        start_signal(m, node, id);
        return 0;
    case WEFT_NODE_JOIN:
        end(m, id);
        return 0;
    default:
        return start_compute(m, node, id);
    }
}

/* Nodes, their successors, and how many predecessors each has. */
static int load(struct machine *m)
{
    size_t edges = 0;
    m->base = calloc((size_t)m->ranks + 1, sizeof *m->base);
    if (!m->base)
        return -1;
    for (int r = 0; r < m->ranks; r++) {
        m->base[r + 1] = m->base[r] + weft_schedule_node_count(m->schedules[r]);
        edges += weft_schedule_edge_count(m->schedules[r]);
    }
    size_t count = m->base[m->ranks];
    m->nodes = calloc(count + 1, sizeof *m->nodes);
    m->edges = calloc(edges + 1, sizeof *m->edges);
    m->queue = calloc(2 * count + 1, sizeof *m->queue);
    if (!m->nodes || !m->edges || !m->queue)
        return -1;
    size_t first = 0;
    for (int r = 0; r < m->ranks; r++) {
        size_t own = weft_schedule_edge_count(m->schedules[r]);
        struct node *nodes = m->nodes + m->base[r];
        weft_node_t before, after;
        for (size_t i = 0; i < m->base[r + 1] - m->base[r]; i++) {
            nodes[i].info.struct_size = sizeof nodes[i].info;
            weft_schedule_get_node(m->schedules[r], (weft_node_t)i, &nodes[i].info);
            nodes[i].rank = r;
            nodes[i].heard = r < 64 ? (uint64_t)1 << r : 0;
        }
        for (size_t i = 0; i < own; i++) {
            weft_schedule_get_edge(m->schedules[r], i, &before, &after);
            nodes[before].successors++;
            nodes[after].waits++;
            nodes[after].preds++;
        }
        for (size_t i = 0; i < m->base[r + 1] - m->base[r]; i++) {
            nodes[i].first = first;
            first += nodes[i].successors;
            nodes[i].successors = 0;
        }
        for (size_t i = 0; i < own; i++) {
            weft_schedule_get_edge(m->schedules[r], i, &before, &after);
            m->edges[nodes[before].first + nodes[before].successors++] = m->base[r] + (size_t)after;
        }
    }
    return 0;
}

static int execute(struct machine *m)
{
    size_t count = m->base[m->ranks];
    for (size_t i = 0; i < count; i++)
        if (!m->nodes[i].preds)
            try_ready(m, i);
    while (m->queued) {
        size_t pick = (size_t)(next_random(&m->random) % m->queued);
        size_t id = m->queue[pick];
        m->queue[pick] = m->queue[--m->queued];
        int status = step(m, id);
        if (status)
            return status;
    }
    for (size_t i = 0; m->ended < count && i < count; i++)
        if (m->nodes[i].state == STARTED || (m->nodes[i].state == WAITING && !m->nodes[i].waits))
            return fail(m, &m->nodes[i], "deadlock, this one waits");
    return m->ended < count ? fail(m, &m->nodes[0], "deadlock") : 0;
}

int interp_run(const struct weft_schedule *const *schedules, int ranks,
               const struct interp_memory *memory, const struct interp_options *options, char *text,
               size_t text_size)
{
    struct machine m = {.schedules = schedules,
                        .memory = memory,
                        .options = options,
                        .ranks = ranks,
                        .random = options->seed,
                        .text = text,
                        .text_size = text_size};
    snprintf(text, text_size, "out of memory");
    int status = load(&m);
    if (!status)
        status = match(&m);
    if (!status)
        status = execute(&m);
    for (int r = 0; !status && options->heard && r < ranks; r++) {
        options->heard[r] = r < 64 ? (uint64_t)1 << r : 0;
        for (size_t i = m.base[r]; i < m.base[r + 1]; i++)
            options->heard[r] |= m.nodes[i].heard;
    }
    for (size_t i = 0; m.nodes && m.base && i < m.base[ranks]; i++)
        free(m.nodes[i].payload);
    free(m.queue);
    free(m.edges);
    free(m.nodes);
    free(m.base);
    return status;
}
