/* SPDX-License-Identifier: BSD-3-Clause */
/* Drawing random programs; see dag.h. */
#include "support/dag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRIES = 12, MOST_PREDS = 4096 };

/* Who accessed one cell of a slot: the last writer, and readers since. Node numbers. */
struct cell {
    int writer; /* -1: nobody */
    int *readers;
    size_t reader_count, reader_capacity;
    int defined; /* holds something at this point */
};

struct builder {
    struct dag *dag;
    uint64_t random;
    struct cell *cells; /* [rank][slot][DAG_CELLS] */
    int preds[MOST_PREDS];
    int pred_count;
    uint32_t tags, channels;
    uint32_t scramble;
    int avoid;      /* the send of a message to itself, whose receive must not wait for it; or -1 */
    int *producers; /* of values; -1 */
    size_t producer_capacity;
};

uint64_t dag_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t dag_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t state = a;
    state = dag_random(&state) ^ b;
    state = dag_random(&state) ^ c;
    state = dag_random(&state) ^ d;
    return dag_random(&state);
}

static int draw(struct builder *b, int below)
{
    return (int)(dag_random(&b->random) % (uint64_t)below);
}

static int chance(struct builder *b, int percent)
{
    return draw(b, 100) < percent;
}

static void *grow(void *array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return array;
    *capacity = need * 2 + 8;
    array = realloc(array, *capacity * size);
    if (!array) {
        fprintf(stderr, "dag: out of memory\n");
        abort();
    }
    return array;
}

size_t dag_slot_count(const struct dag *dag)
{
    return DAG_CELLS * dag->cell;
}

size_t dag_slot_bytes(const struct dag *dag)
{
    return dag_slot_count(dag) * weft_dtype_size(dag->dtype);
}

static struct cell *cell_at(struct builder *b, int rank, int slot, size_t cell)
{
    return &b->cells[((size_t)rank * DAG_SLOTS + (size_t)slot) * DAG_CELLS + cell];
}

static void cells_of(const struct dag *dag, const struct dag_region *region, size_t *first,
                     size_t *last)
{
    *first = region->offset / dag->cell;
    *last = region->count ? (region->offset + region->count - 1) / dag->cell + 1 : *first;
}

/* ---- nodes and orders ---- */

static void add_edge(struct builder *b, int before, int after)
{
    struct dag *dag = b->dag;
    dag->edges = grow(dag->edges, &dag->edge_capacity, dag->edge_count + 1, sizeof *dag->edges);
    dag->edges[dag->edge_count++] = (struct dag_edge){before, after};
}

static void need(struct builder *b, int node)
{
    if (node < 0)
        return;
    if (b->pred_count == MOST_PREDS)
        abort();
    b->preds[b->pred_count++] = node;
}

/* The next node will access a region: it comes after whoever conflicts. */
static void need_region(struct builder *b, int rank, const struct dag_region *region, int write)
{
    size_t first, last;
    cells_of(b->dag, region, &first, &last);
    for (size_t c = first; c < last; c++) {
        struct cell *cell = cell_at(b, rank, region->slot, c);
        need(b, cell->writer);
        for (size_t i = 0; write && i < cell->reader_count; i++)
            need(b, cell->readers[i]);
    }
    for (size_t v = 0; region->value && v < b->dag->value_count; v++)
        if (b->dag->values[v].rank == rank && b->dag->values[v].number == region->value)
            need(b, b->producers[v]);
}

/* A node has accessed a region. */
static void note_region(struct builder *b, int rank, const struct dag_region *region, int write,
                        int node)
{
    size_t first, last;
    cells_of(b->dag, region, &first, &last);
    for (size_t c = first; c < last; c++) {
        struct cell *cell = cell_at(b, rank, region->slot, c);
        if (!write) {
            cell->readers = grow(cell->readers, &cell->reader_capacity, cell->reader_count + 1,
                                 sizeof *cell->readers);
            cell->readers[cell->reader_count++] = node;
            continue;
        }
        cell->writer = node;
        cell->reader_count = 0;
    }
}

/* After a write of all of it outside of branches, the cells that it covers hold something. */
static void define(struct builder *b, int rank, const struct dag_region *region)
{
    for (size_t c = 0; c < DAG_CELLS; c++)
        if (!region->value && region->offset <= c * b->dag->cell &&
            region->offset + region->count >= (c + 1) * b->dag->cell)
            cell_at(b, rank, region->slot, c)->defined = 1;
}

/* What a receive up to a capacity leaves in scratch is not known to be all there. */
static void undefine(struct builder *b, int rank, const struct dag_region *region)
{
    size_t first, last;
    cells_of(b->dag, region, &first, &last);
    for (; region->slot >= DAG_SCRATCH_A && first < last; first++)
        cell_at(b, rank, region->slot, first)->defined = 0;
}

static struct dag_node node_of(weft_node_kind_t kind, int rank)
{
    return (struct dag_node){.kind = kind,
                             .rank = rank,
                             .mate = -1,
                             .peer = -1,
                             .channel = WEFT_CHANNEL_NONE,
                             .choice = -1,
                             .branch = -1,
                             .of = -1};
}

static int push(struct builder *b, const struct dag_node *node)
{
    struct dag *dag = b->dag;
    dag->nodes = grow(dag->nodes, &dag->node_capacity, dag->node_count + 1, sizeof *dag->nodes);
    dag->nodes[dag->node_count] = *node;
    return (int)dag->node_count++;
}

/* Some earlier node of the rank that will end in any case; -1: none found. */
static int some_node(struct builder *b, int rank)
{
    for (int i = 0; b->dag->node_count && i < MOST_TRIES; i++) {
        int n = draw(b, (int)b->dag->node_count);
        if (b->dag->nodes[n].rank == rank && b->dag->nodes[n].of < 0 && n != b->avoid)
            return n;
    }
    return -1;
}

/* Adds a node after all that it needs, sometimes by way of joins that it takes ANY of. */
static int add(struct builder *b, struct dag_node node)
{
    int needed = b->pred_count, joins[3], join_count = 0;
    if (node.of < 0 && chance(b, 12)) {
        node.any = 1;
        join_count = 2 + draw(b, 2);
        for (int j = 0; j < join_count; j++) {
            struct dag_node join = node_of(WEFT_NODE_JOIN, node.rank);
            int extra = chance(b, 60) ? some_node(b, node.rank) : -1;
            joins[j] = push(b, &join);
            for (int i = 0; i < needed; i++)
                add_edge(b, b->preds[i], joins[j]);
            if (extra >= 0)
                add_edge(b, extra, joins[j]);
        }
    } else if (chance(b, 25)) {
        need(b, some_node(b, node.rank));
    }
    int number = push(b, &node);
    for (int j = 0; j < join_count; j++)
        add_edge(b, joins[j], number);
    for (int i = 0; !join_count && i < b->pred_count; i++)
        add_edge(b, b->preds[i], number);
    b->pred_count = 0;
    return number;
}

/* As add(), for a node with regions of which the first `written` are written. */
static int add_access(struct builder *b, const struct dag_node *node, int written)
{
    for (int i = 0; i < node->region_count; i++)
        need_region(b, node->rank, &node->regions[i], i < written);
    int number = add(b, *node);
    for (int i = node->region_count - 1; i >= 0; i--)
        note_region(b, node->rank, &node->regions[i], i < written, number);
    for (int i = 0; i < written; i++)
        define(b, node->rank, &node->regions[i]);
    return number;
}

/* ---- regions ---- */

static int overlap(const struct dag_region *a, const struct dag_region *b, size_t cell)
{
    /* By cells, since that is how accesses are followed. */
    return a->slot == b->slot && a->count && b->count &&
           a->offset / cell <= (b->offset + b->count - 1) / cell &&
           b->offset / cell <= (a->offset + a->count - 1) / cell;
}

/* A region of `count` elements to be read or written; 0 if there is none. */
static int pick(struct builder *b, int rank, size_t count, int write, struct dag_region *region)
{
    size_t most = dag_slot_count(b->dag) - count;
    for (int try = 0; try < MOST_TRIES; try++) {
        size_t first, last;
        *region = (struct dag_region){.slot = draw(b, DAG_SLOTS), .count = count};
        region->offset = dag_random(&b->random) % (most / b->dag->cell + 1) * b->dag->cell;
        if (chance(b, 15))
            region->offset = dag_random(&b->random) % (most + 1);
        if (write && region->slot == DAG_IN)
            continue;
        cells_of(b->dag, region, &first, &last);
        for (; !write && first < last; first++)
            if (!cell_at(b, rank, region->slot, first)->defined)
                break;
        if (write || first == last)
            return 1;
    }
    return 0;
}

static size_t pick_count(struct builder *b)
{
    size_t cells = 1 + (size_t)draw(b, chance(b, 20) ? DAG_CELLS : 2);
    if (chance(b, 6))
        return 0;
    if (chance(b, 20))
        return 1 + dag_random(&b->random) % (cells * b->dag->cell);
    return cells * b->dag->cell;
}

static int new_value(struct builder *b, int rank, size_t max, int produced)
{
    struct dag *dag = b->dag;
    int number = 1;
    for (size_t v = 0; v < dag->value_count; v++)
        number += dag->values[v].rank == rank;
    dag->values =
        grow(dag->values, &dag->value_capacity, dag->value_count + 1, sizeof *dag->values);
    b->producers =
        grow(b->producers, &b->producer_capacity, dag->value_count + 1, sizeof *b->producers);
    b->producers[dag->value_count] = -1;
    dag->values[dag->value_count++] = (struct dag_value){rank, number, max, produced};
    return number;
}

/* ---- what programs are made of ---- */

static void set_reduction(struct builder *b, struct dag_node *node)
{
    static const weft_op_kind_t kinds[] = {WEFT_SUM, WEFT_MIN, WEFT_MAX, WEFT_BXOR};
    int real = b->dag->dtype == WEFT_F32 || b->dag->dtype == WEFT_F64;
    node->user_op = chance(b, 25) || weft_dtype_is_opaque(b->dag->dtype);
    node->kind_op = kinds[draw(b, real ? 3 : 4)];
}

static void add_local(struct builder *b, int rank)
{
    struct dag_node node = node_of(WEFT_NODE_COPY, rank);
    struct dag_region *r = node.regions;
    size_t count = pick_count(b);
    int integers = b->dag->dtype != WEFT_F32 && b->dag->dtype != WEFT_F64;
    int what = draw(b, integers ? 3 : 2);
    if (!pick(b, rank, count, what == 1 || what == 0, &r[0]) || !pick(b, rank, count, 0, &r[1]))
        return;
    if (what == 0) { /* copy */
        node.region_count = 2;
        if (overlap(&r[0], &r[1], b->dag->cell))
            return;
        add_access(b, &node, 1);
        return;
    }
    if (what == 1) { /* reduce */
        node.kind = WEFT_NODE_REDUCE;
        node.region_count = 3;
        if (!pick(b, rank, count, 0, &r[2]))
            return;
        if (chance(b, 40) && r[1].slot != DAG_IN)
            r[0] = r[1];
        else if (chance(b, 40) && r[2].slot != DAG_IN)
            r[0] = r[2];
        for (int i = 1; i < 3; i++)
            if (memcmp(&r[0], &r[i], sizeof r[0]) != 0 && overlap(&r[0], &r[i], b->dag->cell))
                return;
        set_reduction(b, &node);
        add_access(b, &node, 1);
        return;
    }
    node.kind = WEFT_NODE_COMPUTE;
    node.region_count = 2;
    node.pend = (enum dag_pend)draw(b, DAG_PENDS);
    if (r[0].slot == DAG_IN || overlap(&r[0], &r[1], b->dag->cell))
        return;
    if (chance(b, 30))
        node.produces = new_value(b, rank, count, 1);
    size_t value = b->dag->value_count - 1;
    int number = add_access(b, &node, 1);
    if (node.produces)
        b->producers[value] = number;
}

/* Adds both ends of a message whose regions are known. */
static int add_message(struct builder *b, int from, int to, const struct dag_region *source,
                       const struct dag_region *target, int up_to, int produces)
{
    uint32_t tag = b->tags++ * b->scramble;
    struct dag_node send = node_of(WEFT_NODE_SEND, from), recv = node_of(WEFT_NODE_RECV, to);
    send.regions[0] = *source;
    recv.regions[0] = *target;
    send.region_count = recv.region_count = 1;
    send.peer = to;
    recv.peer = from;
    send.tag = recv.tag = tag;
    recv.up_to = up_to;
    recv.produces = produces;
    recv.mate = add_access(b, &send, 0);
    b->avoid = from == to ? recv.mate : -1;
    int number = add_access(b, &recv, 1);
    b->avoid = -1;
    return number;
}

static void add_exact(struct builder *b, int from, int to)
{
    struct dag_region source, target;
    size_t count = pick_count(b);
    if (pick(b, from, count, 0, &source) && pick(b, to, count, 1, &target) &&
        !(from == to && overlap(&source, &target, b->dag->cell)))
        add_message(b, from, to, &source, &target, 0, 0);
}

/* A receive and the reduction of what came: one that the engine may fuse, several in a chain over
 * one place of scratch. */
static void add_fusable(struct builder *b, int to)
{
    int links = 1 + draw(b, 3), slot = chance(b, 50) ? DAG_SCRATCH_A : DAG_SCRATCH_B;
    size_t count = pick_count(b);
    struct dag_region place = {.slot = slot, .count = count}, source;
    place.offset = dag_random(&b->random) % (dag_slot_count(b->dag) - count + 1);
    for (int i = 0; i < links; i++) {
        int from = draw(b, b->dag->ranks);
        struct dag_node reduce = node_of(WEFT_NODE_REDUCE, to);
        struct dag_region *r = reduce.regions;
        if (!pick(b, from, count, 0, &source) || !pick(b, to, count, 1, &r[0]) ||
            !pick(b, to, count, 0, &r[1]))
            return;
        if (chance(b, 60) && r[1].slot != DAG_IN)
            r[0] = r[1];
        r[2] = place;
        if (overlap(&r[0], &place, b->dag->cell) || overlap(&r[1], &place, b->dag->cell) ||
            (from == to && overlap(&source, &place, b->dag->cell)) ||
            (memcmp(&r[0], &r[1], sizeof r[0]) != 0 && overlap(&r[0], &r[1], b->dag->cell)))
            continue;
        if (chance(b, 30)) {
            struct dag_region other = r[1];
            r[1] = r[2];
            r[2] = other;
        }
        reduce.region_count = 3;
        set_reduction(b, &reduce);
        add_message(b, from, to, &source, &place, 0, 0);
        add_access(b, &reduce, 1);
    }
}

/* A message of a size known at run time, received up to a capacity, and used by its value. */
static void add_up_to(struct builder *b, int from, int to)
{
    size_t count = pick_count(b);
    size_t capacity = count + dag_random(&b->random) % (dag_slot_count(b->dag) - count + 1);
    struct dag_region source, target, other;
    if (!pick(b, from, count, 0, &source) || !pick(b, to, capacity, 1, &target) ||
        (from == to && overlap(&source, &target, b->dag->cell)))
        return;
    if (chance(b, 70)) { /* a value of at most this: bound by the user, or one that there is */
        for (size_t v = 0; v < b->dag->value_count; v++)
            if (b->dag->values[v].rank == from && b->dag->values[v].max <= count && chance(b, 60))
                source.value = b->dag->values[v].number;
        if (!source.value)
            source.value = new_value(b, from, count, 0);
    }
    int value = chance(b, 75) ? new_value(b, to, capacity, 1) : 0;
    size_t index = b->dag->value_count - 1;
    struct dag_region received = target;
    int number = add_message(b, from, to, &source, &target, 1, value);
    undefine(b, to, &target);
    if (!value)
        return;
    b->producers[index] = number;
    if (!pick(b, to, capacity, 1, &other) || overlap(&other, &received, b->dag->cell))
        return;
    struct dag_node node = node_of(WEFT_NODE_COPY, to);
    received.value = other.value = value;
    node.regions[0] = other;
    node.regions[1] = received;
    node.region_count = 2;
    if (other.slot < DAG_SCRATCH_A && chance(b, 50)) {
        node.kind = WEFT_NODE_REDUCE;
        node.regions[2] = other;
        node.region_count = 3;
        set_reduction(b, &node);
    }
    add_access(b, &node, 1);
}

/* An event of the application, or of signals from one to three ranks. */
static void add_event(struct builder *b, int rank)
{
    uint32_t channel = b->channels++ * 7;
    int signals = draw(b, 4);
    for (int i = 0; i < signals; i++) {
        int from = draw(b, b->dag->ranks);
        struct dag_node node = node_of(WEFT_NODE_SIGNAL, from);
        node.peer = rank;
        node.channel = channel;
        if (chance(b, 70))
            need(b, some_node(b, from));
        add(b, node);
    }
    struct dag_node event = node_of(WEFT_NODE_EVENT, rank);
    event.channel = signals ? channel : WEFT_CHANNEL_NONE;
    if (chance(b, 50))
        need(b, some_node(b, rank));
    add(b, event);
}

static void add_join(struct builder *b, int rank)
{
    struct dag_node node = node_of(WEFT_NODE_JOIN, rank);
    for (int i = draw(b, 4); i > 0; i--)
        need(b, some_node(b, rank));
    node.any = b->pred_count > 0 && chance(b, 50);
    int preds = b->pred_count, number = push(b, &node);
    for (int i = 0; i < preds; i++)
        add_edge(b, b->preds[i], number);
    b->pred_count = 0;
}

/* ---- choices ---- */

/* One access of a branch, remembered until the branches have been joined. */
struct touch {
    int rank, write;
    struct dag_region region;
};

struct branches {
    struct touch touches[64];
    int touch_count;
    int last[2][4]; /* node that ends branch b on side s */
    int from, to;
};

static int add_in_branch(struct builder *b, struct branches *all, struct dag_node node, int side,
                         int choice, int branch, int written)
{
    node.of = choice;
    node.branch = branch;
    for (int i = 0; i < node.region_count; i++) {
        need_region(b, node.rank, &node.regions[i], i < written);
        all->touches[all->touch_count++] = (struct touch){node.rank, i < written, node.regions[i]};
    }
    need(b, all->last[side][branch]);
    int number = push(b, &node);
    for (int i = 0; i < b->pred_count; i++)
        add_edge(b, b->preds[i], number);
    b->pred_count = 0;
    all->last[side][branch] = number;
    return number;
}

/* What a branch does: a message between the two ranks of the choice, or a copy on one. Only places
 * that hold something are written, so that they do whichever branch wins. */
struct branch_work {
    int message;
    struct dag_region source, target, copy_source, copy_target;
};

static int pick_written(struct builder *b, int rank, size_t count, struct dag_region *region)
{
    return pick(b, rank, count, 0, region) && region->slot != DAG_IN;
}

static int pick_work(struct builder *b, int from, int to, struct branch_work *work)
{
    size_t count = pick_count(b), copied = pick_count(b);
    work->message = chance(b, 60);
    return pick(b, from, count, 0, &work->source) && pick_written(b, to, count, &work->target) &&
           !(from == to && overlap(&work->source, &work->target, b->dag->cell)) &&
           pick(b, to, copied, 0, &work->copy_source) &&
           pick_written(b, to, copied, &work->copy_target) &&
           !overlap(&work->copy_source, &work->copy_target, b->dag->cell);
}

static void add_work(struct builder *b, struct branches *all, const struct branch_work *work,
                     int choice, int branch)
{
    struct dag_node copy = node_of(WEFT_NODE_COPY, all->to);
    copy.regions[0] = work->copy_target;
    copy.regions[1] = work->copy_source;
    copy.region_count = 2;
    if (work->message) {
        struct dag_node send = node_of(WEFT_NODE_SEND, all->from);
        struct dag_node recv = node_of(WEFT_NODE_RECV, all->to);
        send.regions[0] = work->source;
        recv.regions[0] = work->target;
        send.region_count = recv.region_count = 1;
        send.peer = all->to;
        recv.peer = all->from;
        send.tag = recv.tag = b->tags++ * b->scramble;
        recv.mate = add_in_branch(b, all, send, 0, choice, branch, 0);
        add_in_branch(b, all, recv, 1, choice, branch, 1);
    }
    add_in_branch(b, all, copy, 1, choice, branch, 1);
}

/* The events of one side of a choice; with a signal to that of branch 0 if it is to be so. */
static void add_choice_events(struct builder *b, struct branches *all, int choice, int side)
{
    struct dag_choice *info = &b->dag->choices[choice];
    int rank = side ? all->to : all->from;
    uint32_t channel = WEFT_CHANNEL_NONE;
    if (info->firing != DAG_BY_APPLICATION) {
        int from = draw(b, b->dag->ranks);
        struct dag_node node = node_of(WEFT_NODE_SIGNAL, from);
        channel = b->channels++ * 7;
        node.peer = rank;
        node.channel = channel;
        need(b, some_node(b, from));
        add(b, node);
    }
    int after = chance(b, 50) ? some_node(b, rank) : -1;
    for (int branch = 0; branch < info->branches; branch++) {
        struct dag_node event = node_of(WEFT_NODE_EVENT, rank);
        event.choice = event.of = choice;
        event.branch = branch;
        event.channel = branch == 0 ? channel : WEFT_CHANNEL_NONE;
        all->last[side][branch] = push(b, &event);
        if (after >= 0)
            add_edge(b, after, all->last[side][branch]);
    }
}

/* The branches of one side end in an ANY node. A node after it and after all that the branches had
 * to wait for (a branch that is retired waits for nothing) stands for what they did from now on. */
static void join_branches(struct builder *b, struct branches *all, int choice, int side)
{
    int rank = side ? all->to : all->from;
    struct dag_node join = node_of(WEFT_NODE_JOIN, rank);
    join.any = 1;
    int any = push(b, &join);
    for (int branch = 0; branch < b->dag->choices[choice].branches; branch++)
        add_edge(b, all->last[side][branch], any);
    for (int i = 0; i < all->touch_count; i++)
        if (all->touches[i].rank == rank)
            need_region(b, rank, &all->touches[i].region, all->touches[i].write);
    join.any = 0;
    int number = push(b, &join);
    need(b, any);
    for (int i = 0; i < b->pred_count; i++)
        add_edge(b, b->preds[i], number);
    b->pred_count = 0;
    for (int write = 0; write < 2; write++)
        for (int i = 0; i < all->touch_count; i++)
            if (all->touches[i].rank == rank && all->touches[i].write == write)
                note_region(b, rank, &all->touches[i].region, write, number);
}

/* A choice on one rank, or the same on two that exchange messages in its branches. On two ranks
 * only the application can fire it, since both have to take the same branch. */
static void add_choice(struct builder *b, int from, int to)
{
    struct dag *dag = b->dag;
    struct branches all = {.from = from, .to = to};
    struct branch_work work[4];
    int branches = 2 + draw(b, 3), choice = (int)dag->choice_count;
    enum dag_firing firing = (enum dag_firing)draw(b, 3);
    if (from != to && firing == DAG_BY_BOTH)
        firing = DAG_BY_APPLICATION;
    for (int i = 0; i < branches; i++) {
        if (!pick_work(b, from, to, &work[i]))
            return;
        if (firing == DAG_BY_BOTH)
            work[i] = work[0];
        /* A self message in a branch of one chain could never end. */
        if (from == to)
            work[i].message = 0;
    }
    dag->choices =
        grow(dag->choices, &dag->choice_capacity, dag->choice_count + 1, sizeof *dag->choices);
    dag->choices[dag->choice_count++] = (struct dag_choice){branches, firing};
    for (int side = from == to; side < 2; side++)
        add_choice_events(b, &all, choice, side);
    for (int i = 0; i < branches; i++)
        add_work(b, &all, &work[i], choice, i);
    for (int side = from == to; side < 2; side++)
        join_branches(b, &all, choice, side);
}

/* ---- programs ---- */

static void add_something(struct builder *b)
{
    int rank = draw(b, b->dag->ranks), other = draw(b, b->dag->ranks);
    int what = draw(b, 100);
    if (what < 25)
        add_local(b, rank);
    else if (what < 50)
        add_exact(b, rank, other);
    else if (what < 65)
        add_fusable(b, rank);
    else if (what < 75)
        add_up_to(b, rank, other);
    else if (what < 83)
        add_event(b, rank);
    else if (what < 92)
        add_join(b, rank);
    else
        add_choice(b, rank, other);
}

static void pick_shape(struct builder *b, size_t most_bytes)
{
    static const weft_dtype_t dtypes[] = {WEFT_U8,  WEFT_I8,  WEFT_I16, WEFT_I32,
                                          WEFT_U32, WEFT_I64, WEFT_F32, WEFT_F64};
    static const size_t opaque[] = {1, 3, 12, 24, 100, 1000, 100000};
    static const size_t cells[] = {1, 1, 2, 7, 30, 64, 64, 513, 2048, 3001, 9000, 40000};
    struct dag *dag = b->dag;
    dag->ranks = 1 + draw(b, 9);
    dag->dtype = chance(b, 25) ? weft_dtype_opaque(opaque[draw(b, 7)]) : dtypes[draw(b, 8)];
    dag->cell = cells[draw(b, sizeof cells / sizeof cells[0])];
    dag->shuffled = chance(b, 30);
    b->scramble = chance(b, 50) ? 1 : 2654435761u;
    while (dag->cell > 1 && dag_slot_bytes(dag) * DAG_SLOTS * (size_t)dag->ranks > most_bytes)
        dag->cell = (dag->cell + 1) / 2;
}

struct dag *dag_create(uint64_t seed, size_t most_bytes)
{
    struct builder *b = calloc(1, sizeof *b);
    struct dag *dag = calloc(1, sizeof *dag);
    if (!b || !dag)
        abort();
    b->dag = dag;
    b->avoid = -1;
    b->random = dag->seed = seed;
    pick_shape(b, most_bytes);
    size_t cells = (size_t)dag->ranks * DAG_SLOTS * DAG_CELLS;
    b->cells = calloc(cells, sizeof *b->cells);
    if (!b->cells)
        abort();
    for (size_t c = 0; c < cells; c++) {
        b->cells[c].writer = -1;
        b->cells[c].defined = c / DAG_CELLS % DAG_SLOTS < DAG_SCRATCH_A;
    }
    for (int steps = 3 + draw(b, chance(b, 20) ? 200 : 40); steps > 0; steps--)
        add_something(b);
    for (size_t c = 0; c < cells; c++)
        free(b->cells[c].readers);
    free(b->cells);
    free(b->producers);
    free(b);
    return dag;
}

void dag_destroy(struct dag *dag)
{
    if (!dag)
        return;
    free(dag->nodes);
    free(dag->edges);
    free(dag->choices);
    free(dag->values);
    free(dag);
}
