/* SPDX-License-Identifier: BSD-3-Clause */
/* Drawing random programs; see dag.h. */
#include "support/dag_builder.h"

#include <stdlib.h>
#include <string.h>

/* ---- what programs are made of ---- */

static void set_reduction(struct dag_builder *b, struct dag_node *node)
{
    static const weft_op_kind_t kinds[] = {WEFT_SUM, WEFT_MIN, WEFT_MAX, WEFT_BXOR};
    int real = b->dag->dtype == WEFT_F32 || b->dag->dtype == WEFT_F64;
    node->user_op = dag_chance(b, 25) || weft_dtype_is_opaque(b->dag->dtype);
    node->kind_op = kinds[dag_draw(b, real ? 3 : 4)];
}

static void add_local(struct dag_builder *b, int rank)
{
    struct dag_node node = dag_node_of(WEFT_NODE_COPY, rank);
    struct dag_region *r = node.regions;
    size_t count = dag_pick_count(b);
    int integers = b->dag->dtype != WEFT_F32 && b->dag->dtype != WEFT_F64;
    int what = dag_draw(b, integers ? 3 : 2);
    if (!dag_pick(b, rank, count, what == 1 || what == 0, &r[0]) ||
        !dag_pick(b, rank, count, 0, &r[1]))
        return;
    if (what == 0) { /* copy */
        node.region_count = 2;
        if (dag_overlap(&r[0], &r[1], b->dag->cell))
            return;
        dag_add_access(b, &node, 1);
        return;
    }
    if (what == 1) { /* reduce */
        node.kind = WEFT_NODE_REDUCE;
        node.region_count = 3;
        if (!dag_pick(b, rank, count, 0, &r[2]))
            return;
        if (dag_chance(b, 40) && r[1].slot != DAG_IN)
            r[0] = r[1];
        else if (dag_chance(b, 40) && r[2].slot != DAG_IN)
            r[0] = r[2];
        for (int i = 1; i < 3; i++)
            if (memcmp(&r[0], &r[i], sizeof r[0]) != 0 && dag_overlap(&r[0], &r[i], b->dag->cell))
                return;
        set_reduction(b, &node);
        dag_add_access(b, &node, 1);
        return;
    }
    node.kind = WEFT_NODE_COMPUTE;
    node.region_count = 2;
    node.pend = (enum dag_pend)dag_draw(b, DAG_PENDS);
    if (r[0].slot == DAG_IN || dag_overlap(&r[0], &r[1], b->dag->cell))
        return;
    if (dag_chance(b, 30))
        node.produces = dag_new_value(b, rank, count, 1);
    size_t value = b->dag->value_count - 1;
    int number = dag_add_access(b, &node, 1);
    if (node.produces)
        b->producers[value] = number;
}

/* Adds both ends of a message whose regions are known. */
static int add_message(struct dag_builder *b, int from, int to, const struct dag_region *source,
                       const struct dag_region *target, int up_to, int produces)
{
    uint32_t tag = b->tags++ * b->scramble;
    struct dag_node send = dag_node_of(WEFT_NODE_SEND, from),
                    recv = dag_node_of(WEFT_NODE_RECV, to);
    send.regions[0] = *source;
    recv.regions[0] = *target;
    send.region_count = recv.region_count = 1;
    send.peer = to;
    recv.peer = from;
    send.tag = recv.tag = tag;
    recv.up_to = up_to;
    recv.produces = produces;
    recv.mate = dag_add_access(b, &send, 0);
    b->avoid = from == to ? recv.mate : -1;
    int number = dag_add_access(b, &recv, 1);
    b->avoid = -1;
    return number;
}

static void add_exact(struct dag_builder *b, int from, int to)
{
    struct dag_region source, target;
    size_t count = dag_pick_count(b);
    if (dag_pick(b, from, count, 0, &source) && dag_pick(b, to, count, 1, &target) &&
        !(from == to && dag_overlap(&source, &target, b->dag->cell)))
        add_message(b, from, to, &source, &target, 0, 0);
}

/* A receive and the reduction of what came: one that the engine may fuse, several in a chain over
 * one place of scratch. */
static void add_fusable(struct dag_builder *b, int to)
{
    int links = 1 + dag_draw(b, 3), slot = dag_chance(b, 50) ? DAG_SCRATCH_A : DAG_SCRATCH_B;
    size_t count = dag_pick_count(b);
    struct dag_region place = {.slot = slot, .count = count}, source;
    place.offset = dag_random(&b->random) % (dag_slot_count(b->dag) - count + 1);
    for (int i = 0; i < links; i++) {
        int from = dag_draw(b, b->dag->ranks);
        struct dag_node reduce = dag_node_of(WEFT_NODE_REDUCE, to);
        struct dag_region *r = reduce.regions;
        if (!dag_pick(b, from, count, 0, &source) || !dag_pick(b, to, count, 1, &r[0]) ||
            !dag_pick(b, to, count, 0, &r[1]))
            return;
        if (dag_chance(b, 60) && r[1].slot != DAG_IN)
            r[0] = r[1];
        r[2] = place;
        if (dag_overlap(&r[0], &place, b->dag->cell) || dag_overlap(&r[1], &place, b->dag->cell) ||
            (from == to && dag_overlap(&source, &place, b->dag->cell)) ||
            (memcmp(&r[0], &r[1], sizeof r[0]) != 0 && dag_overlap(&r[0], &r[1], b->dag->cell)))
            continue;
        if (dag_chance(b, 30)) {
            struct dag_region other = r[1];
            r[1] = r[2];
            r[2] = other;
        }
        reduce.region_count = 3;
        set_reduction(b, &reduce);
        add_message(b, from, to, &source, &place, 0, 0);
        dag_add_access(b, &reduce, 1);
    }
}

/* A message of a size known at run time, received up to a capacity, and used by its value. */
static void add_up_to(struct dag_builder *b, int from, int to)
{
    size_t count = dag_pick_count(b);
    size_t capacity = count + dag_random(&b->random) % (dag_slot_count(b->dag) - count + 1);
    struct dag_region source, target, other;
    if (!dag_pick(b, from, count, 0, &source) || !dag_pick(b, to, capacity, 1, &target) ||
        (from == to && dag_overlap(&source, &target, b->dag->cell)))
        return;
    if (dag_chance(b, 70)) { /* a value of at most this: bound by the user, or one that there is */
        for (size_t v = 0; v < b->dag->value_count; v++)
            if (b->dag->values[v].rank == from && b->dag->values[v].max <= count &&
                dag_chance(b, 60))
                source.value = b->dag->values[v].number;
        if (!source.value)
            source.value = dag_new_value(b, from, count, 0);
    }
    int value = dag_chance(b, 75) ? dag_new_value(b, to, capacity, 1) : 0;
    size_t index = b->dag->value_count - 1;
    struct dag_region received = target;
    int number = add_message(b, from, to, &source, &target, 1, value);
    dag_undefine(b, to, &target);
    if (!value)
        return;
    b->producers[index] = number;
    if (!dag_pick(b, to, capacity, 1, &other) || dag_overlap(&other, &received, b->dag->cell))
        return;
    struct dag_node node = dag_node_of(WEFT_NODE_COPY, to);
    received.value = other.value = value;
    node.regions[0] = other;
    node.regions[1] = received;
    node.region_count = 2;
    if (other.slot < DAG_SCRATCH_A && dag_chance(b, 50)) {
        node.kind = WEFT_NODE_REDUCE;
        node.regions[2] = other;
        node.region_count = 3;
        set_reduction(b, &node);
    }
    dag_add_access(b, &node, 1);
}

/* An event of the application, or of signals from one to three ranks. */
static void add_event(struct dag_builder *b, int rank)
{
    uint32_t channel = b->channels++ * 7;
    int signals = dag_draw(b, 4);
    for (int i = 0; i < signals; i++) {
        int from = dag_draw(b, b->dag->ranks);
        struct dag_node node = dag_node_of(WEFT_NODE_SIGNAL, from);
        node.peer = rank;
        node.channel = channel;
        if (dag_chance(b, 70))
            dag_need(b, dag_some_node(b, from));
        dag_add(b, node);
    }
    struct dag_node event = dag_node_of(WEFT_NODE_EVENT, rank);
    event.channel = signals ? channel : WEFT_CHANNEL_NONE;
    if (dag_chance(b, 50))
        dag_need(b, dag_some_node(b, rank));
    dag_add(b, event);
}

static void add_join(struct dag_builder *b, int rank)
{
    struct dag_node node = dag_node_of(WEFT_NODE_JOIN, rank);
    for (int i = dag_draw(b, 4); i > 0; i--)
        dag_need(b, dag_some_node(b, rank));
    node.any = b->pred_count > 0 && dag_chance(b, 50);
    int preds = b->pred_count, number = dag_push(b, &node);
    for (int i = 0; i < preds; i++)
        dag_add_edge(b, b->preds[i], number);
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

static int add_in_branch(struct dag_builder *b, struct branches *all, struct dag_node node,
                         int side, int choice, int branch, int written)
{
    node.of = choice;
    node.branch = branch;
    for (int i = 0; i < node.region_count; i++) {
        dag_need_region(b, node.rank, &node.regions[i], i < written);
        all->touches[all->touch_count++] = (struct touch){node.rank, i < written, node.regions[i]};
    }
    dag_need(b, all->last[side][branch]);
    int number = dag_push(b, &node);
    for (int i = 0; i < b->pred_count; i++)
        dag_add_edge(b, b->preds[i], number);
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

static int pick_written(struct dag_builder *b, int rank, size_t count, struct dag_region *region)
{
    return dag_pick(b, rank, count, 0, region) && region->slot != DAG_IN;
}

static int pick_work(struct dag_builder *b, int from, int to, struct branch_work *work)
{
    size_t count = dag_pick_count(b), copied = dag_pick_count(b);
    work->message = dag_chance(b, 60);
    return dag_pick(b, from, count, 0, &work->source) &&
           pick_written(b, to, count, &work->target) &&
           !(from == to && dag_overlap(&work->source, &work->target, b->dag->cell)) &&
           dag_pick(b, to, copied, 0, &work->copy_source) &&
           pick_written(b, to, copied, &work->copy_target) &&
           !dag_overlap(&work->copy_source, &work->copy_target, b->dag->cell);
}

static void add_work(struct dag_builder *b, struct branches *all, const struct branch_work *work,
                     int choice, int branch)
{
    struct dag_node copy = dag_node_of(WEFT_NODE_COPY, all->to);
    copy.regions[0] = work->copy_target;
    copy.regions[1] = work->copy_source;
    copy.region_count = 2;
    if (work->message) {
        struct dag_node send = dag_node_of(WEFT_NODE_SEND, all->from);
        struct dag_node recv = dag_node_of(WEFT_NODE_RECV, all->to);
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
static void add_choice_events(struct dag_builder *b, struct branches *all, int choice, int side)
{
    struct dag_choice *info = &b->dag->choices[choice];
    int rank = side ? all->to : all->from;
    uint32_t channel = WEFT_CHANNEL_NONE;
    if (info->firing != DAG_BY_APPLICATION) {
        int from = dag_draw(b, b->dag->ranks);
        struct dag_node node = dag_node_of(WEFT_NODE_SIGNAL, from);
        channel = b->channels++ * 7;
        node.peer = rank;
        node.channel = channel;
        dag_need(b, dag_some_node(b, from));
        dag_add(b, node);
    }
    int after = dag_chance(b, 50) ? dag_some_node(b, rank) : -1;
    for (int branch = 0; branch < info->branches; branch++) {
        struct dag_node event = dag_node_of(WEFT_NODE_EVENT, rank);
        event.choice = event.of = choice;
        event.branch = branch;
        event.channel = branch == 0 ? channel : WEFT_CHANNEL_NONE;
        all->last[side][branch] = dag_push(b, &event);
        if (after >= 0)
            dag_add_edge(b, after, all->last[side][branch]);
    }
}

/* The branches of one side end in an ANY node. A node after it and after all that the branches had
 * to wait for (a branch that is retired waits for nothing) stands for what they did from now on. */
static void join_branches(struct dag_builder *b, struct branches *all, int choice, int side)
{
    int rank = side ? all->to : all->from;
    struct dag_node join = dag_node_of(WEFT_NODE_JOIN, rank);
    join.any = 1;
    int any = dag_push(b, &join);
    for (int branch = 0; branch < b->dag->choices[choice].branches; branch++)
        dag_add_edge(b, all->last[side][branch], any);
    for (int i = 0; i < all->touch_count; i++)
        if (all->touches[i].rank == rank)
            dag_need_region(b, rank, &all->touches[i].region, all->touches[i].write);
    join.any = 0;
    int number = dag_push(b, &join);
    dag_need(b, any);
    for (int i = 0; i < b->pred_count; i++)
        dag_add_edge(b, b->preds[i], number);
    b->pred_count = 0;
    for (int write = 0; write < 2; write++)
        for (int i = 0; i < all->touch_count; i++)
            if (all->touches[i].rank == rank && all->touches[i].write == write)
                dag_note_region(b, rank, &all->touches[i].region, write, number);
}

/* A choice on one rank, or the same on two that exchange messages in its branches. On two ranks
 * only the application can fire it, since both have to take the same branch. */
static void add_choice(struct dag_builder *b, int from, int to)
{
    struct dag *dag = b->dag;
    struct branches all = {.from = from, .to = to};
    struct branch_work work[4];
    int branches = 2 + dag_draw(b, 3), choice = (int)dag->choice_count;
    enum dag_firing firing = (enum dag_firing)dag_draw(b, 3);
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
        dag_grow(dag->choices, &dag->choice_capacity, dag->choice_count + 1, sizeof *dag->choices);
    dag->choices[dag->choice_count++] = (struct dag_choice){branches, firing};
    for (int side = from == to; side < 2; side++)
        add_choice_events(b, &all, choice, side);
    for (int i = 0; i < branches; i++)
        add_work(b, &all, &work[i], choice, i);
    for (int side = from == to; side < 2; side++)
        join_branches(b, &all, choice, side);
}

/* ---- programs ---- */

static void add_something(struct dag_builder *b)
{
    int rank = dag_draw(b, b->dag->ranks), other = dag_draw(b, b->dag->ranks);
    int what = dag_draw(b, 100);
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

static void pick_shape(struct dag_builder *b, size_t most_bytes)
{
    static const weft_dtype_t dtypes[] = {WEFT_U8,  WEFT_I8,  WEFT_I16, WEFT_I32,
                                          WEFT_U32, WEFT_I64, WEFT_F32, WEFT_F64};
    static const size_t opaque[] = {1, 3, 12, 24, 100, 1000, 100000};
    static const size_t cells[] = {1, 1, 2, 7, 30, 64, 64, 513, 2048, 3001, 9000, 40000};
    struct dag *dag = b->dag;
    dag->ranks = 1 + dag_draw(b, 9);
    dag->dtype =
        dag_chance(b, 25) ? weft_dtype_opaque(opaque[dag_draw(b, 7)]) : dtypes[dag_draw(b, 8)];
    dag->cell = cells[dag_draw(b, sizeof cells / sizeof cells[0])];
    dag->shuffled = dag_chance(b, 30);
    b->scramble = dag_chance(b, 50) ? 1 : 2654435761u;
    while (dag->cell > 1 && dag_slot_bytes(dag) * DAG_SLOTS * (size_t)dag->ranks > most_bytes)
        dag->cell = (dag->cell + 1) / 2;
}

struct dag *dag_create(uint64_t seed, size_t most_bytes)
{
    struct dag_builder *b = calloc(1, sizeof *b);
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
    for (int steps = 3 + dag_draw(b, dag_chance(b, 20) ? 200 : 40); steps > 0; steps--)
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
