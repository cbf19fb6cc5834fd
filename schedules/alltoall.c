/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Alltoall and alltoallv: rank r gets block r of every rank. In alltoallv a block is known to the
 * two ranks of its pair alone. None can tell where another has it: each block is a slot of its own,
 * and the statement of the result calls it by its name.
 */
#include "schedules/common/template.h"

#include <stdio.h>

static struct weft_region block(const struct weft__build *build, struct weft_region blocks,
                                int index)
{
    return weft__part(blocks, (size_t)index * build->count, build->count);
}

static struct weft_region all(const struct weft__build *build, weft_slot_t slot)
{
    return weft_region_at(slot, 0, (size_t)build->size * build->count);
}

static size_t count_of(const struct weft__build *build, const size_t *counts, int peer)
{
    return counts ? counts[peer] : build->count;
}

/* The block that comes from a peer, and the one that goes to it where it is at the start. */
static struct weft_region received(const struct weft__build *build, int peer)
{
    if (build->slot_per_block)
        return weft_region_at(build->recv + peer, 0, count_of(build, build->recv_counts, peer));
    return block(build, all(build, build->recv), peer);
}

static struct weft_region given(const struct weft__build *build, int peer)
{
    if (build->in_place)
        return received(build, peer);
    if (build->slot_per_block)
        return weft_region_at(build->send + peer, 0, count_of(build, build->send_counts, peer));
    return block(build, all(build, build->send), peer);
}

/* In place, what is sent is copied first: nobody could receive before. The copies lie behind each
 * other in the order in which they are sent. */
static struct weft_region copy_given(struct weft__build *build)
{
    size_t count = 0;
    if (!build->in_place)
        return weft_region_at(0, 0, 0);
    for (int i = 1; i < build->size; i++)
        count += given(build, (build->rank + i) % build->size).count;
    struct weft_region copies = weft__build_scratch(build, count);
    count = 0;
    for (int i = 1; i < build->size; i++) {
        struct weft_region from = given(build, (build->rank + i) % build->size);
        weft__build_copy(build, weft__part(copies, count, from.count), from);
        count += from.count;
    }
    return copies;
}

/* The block for a peer, from where it can be sent: the first of the copies, which it is taken from.
 */
static struct weft_region outgoing(const struct weft__build *build, struct weft_region *copies,
                                   int peer)
{
    struct weft_region block = given(build, peer);
    if (!build->in_place)
        return block;
    block = weft__part(*copies, 0, block.count);
    copies->offset += block.count;
    return block;
}

static void keep_own(struct weft__build *build)
{
    if (!build->in_place)
        weft__build_copy(build, received(build, build->rank), given(build, build->rank));
}

/* Every block straight to its rank, all at once; rank r begins with r + 1, so that no rank is
 * everybody's first. */
static void linear(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    struct weft_region copies = copy_given(build);
    for (int i = 1; i < size; i++) {
        int to = (rank + i) % size, from = (rank + size - i) % size;
        weft__build_send(build, outgoing(build, &copies, to), to, 0);
        weft__build_recv(build, received(build, from), from, 0);
    }
    keep_own(build);
}

/*
 * The block for rank + i travels 2^k ranks for every bit k of i. What travels in a step is packed;
 * what arrives is left where it arrived (`where`) until it is packed again or has come home: there
 * is no rotation before and no unpacking between.
 */
static void bruck(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    struct weft_region *where = weft_memory_alloc((size_t)size, sizeof *where);
    if (!where) {
        build->status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d blocks", size);
        return;
    }
    struct weft_region recv = all(build, build->recv);
    struct weft_region given = build->in_place ? recv : all(build, build->send);
    for (int i = 0; i < size; i++)
        where[i] = block(build, given, (int)(((int64_t)rank + i) % size));
    for (int64_t step = 1; step < size; step *= 2) {
        int moved = 0, to = (int)((rank + step) % size), from = (int)((rank - step + size) % size);
        for (int i = 0; i < size; i++)
            moved += (i & step) != 0;
        struct weft_region out = weft__build_scratch(build, (size_t)moved * build->count);
        struct weft_region in = weft__build_scratch(build, (size_t)moved * build->count);
        moved = 0;
        for (int i = 0; i < size; i++) {
            if (!(i & step))
                continue;
            weft__build_copy(build, block(build, out, moved), where[i]);
            where[i] = block(build, in, moved++);
        }
        weft__build_send(build, out, to, 0);
        weft__build_recv(build, in, from, 0);
    }
    for (int i = 0; i < size; i++)
        weft__build_copy(build, block(build, recv, (rank - i + size) % size), where[i]);
    weft_memory_free(where);
}

/* Ends what is under way in a step, from node @first on: a join, or the only node. -1: nothing. */
static weft_node_t end_of_step(struct weft__build *build, weft_node_t first)
{
    weft_node_t end = (weft_node_t)weft_schedule_node_count(build->schedule);
    if (end - first < 2)
        return end > first ? first : -1;
    weft_node_t join = weft_schedule_add_join(build->schedule);
    for (weft_node_t node = first; node < end; node++)
        weft_schedule_add_order(build->schedule, node, join);
    return join;
}

/*
 * In step i with the ranks i to the right and to the left, and a few steps at a time: what begins
 * waits for the step so many before it, so a rank never has more than that many messages of others
 * to hold or to serve. Both sides of a message are in the same step, so nobody waits for ever.
 */
static void pairwise(struct weft__build *build)
{
    enum { STEPS = 4 };
    int size = build->size, rank = build->rank;
    weft_node_t ends[STEPS];
    struct weft_region copies = copy_given(build);
    for (int i = 0; i < STEPS; i++)
        ends[i] = -1;
    for (int i = 1; i < size && !build->status; i++) {
        int to = (rank + i) % size, from = (rank + size - i) % size;
        weft_node_t first = (weft_node_t)weft_schedule_node_count(build->schedule);
        weft__build_send(build, outgoing(build, &copies, to), to, 0);
        weft__build_recv(build, received(build, from), from, 0);
        weft_node_t end = (weft_node_t)weft_schedule_node_count(build->schedule);
        for (weft_node_t node = first; node < end && ends[i % STEPS] >= 0; node++)
            weft_schedule_add_order(build->schedule, ends[i % STEPS], node);
        weft_node_t ended = end_of_step(build, first);
        ends[i % STEPS] = ended >= 0 ? ended : ends[i % STEPS];
    }
    keep_own(build);
}

static double linear_cost(const struct weft__shape *shape)
{
    return (shape->size - 1) * weft__cost_message(shape, (double)shape->bytes);
}

static double bruck_cost(const struct weft__shape *shape)
{
    const struct weft_cost_model *model = shape->cost;
    double bytes = (double)shape->bytes, half = (double)shape->size / 2;
    double copy = model->node_us + bytes * model->copy_us_per_byte;
    return weft__log2_ceil(shape->size) * (weft__cost_message(shape, half * bytes) + half * copy) +
           shape->size * copy;
}

static void slots(struct weft__build *build)
{
    size_t count = (size_t)build->size * build->count;
    weft__build_pair(build, count, count);
    for (int r = 0; r < build->size; r++)
        weft__build_result(build, block(build, all(build, build->recv), r),
                           build->in_place ? "recv" : "send", (size_t)build->rank * build->count, r,
                           1);
}

/* A pair's block is "send.r" of the one and "recv.s" of the other. */
static void slots_apart(struct weft__build *build)
{
    char name[32];
    build->slot_per_block = 1;
    if (!build->in_place)
        build->send = weft__build_block_slots(build, "send", build->send_counts, WEFT_SLOT_INPUT);
    build->recv = weft__build_block_slots(build, "recv", build->recv_counts,
                                          build->in_place ? WEFT_SLOT_INOUT : WEFT_SLOT_OUTPUT);
    snprintf(name, sizeof name, build->in_place ? "recv.%d" : "send.%d", build->rank);
    for (int r = 0; r < build->size; r++)
        if (received(build, r).count)
            weft__build_result(build, received(build, r), name, 0, r, 1);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "linear",
     .cost = "(P - 1)(alpha + m/P beta)",
     .notes = "all messages at once, rank r begins with r + 1",
     .ordered = 1},
    {.name = "bruck",
     .cost = "ceil(log2 P)(alpha + m/2 (beta + copy)) + m copy",
     .notes = "few messages for small blocks. Bruck et al., TPDS 1997",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = linear, .cost = linear_cost, .goes = WEFT__EXCHANGES, .rounds = weft__star_rounds},
    {.build = bruck, .cost = bruck_cost},
};

const struct weft__template weft__alltoall_template = {
    .public = {.name = "alltoall",
               .summary = "rank r gets block r of every rank",
               .parameters = "count dtype algo segment",
               .result = "recv[s count + i] on rank r: send[r count + i] of rank s",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};

static const struct weft_algorithm algorithms_apart[] = {
    {.name = "linear",
     .cost = "(P - 1) alpha + m beta, m: bytes that a rank sends or receives",
     .notes = "all messages at once, rank r begins with r + 1",
     .ordered = 1},
    {.name = "pairwise",
     .cost = "(P - 1) alpha + m beta; a step waits for the slowest of its pairs",
     .notes = "with the ranks i to the right and left in step i, four steps under way at most: for "
              "many ranks, or blocks that are large together",
     .ordered = 1},
};

static const struct weft__algorithm impl_apart[] = {
    {.build = linear, .cost = linear_cost, .goes = WEFT__EXCHANGES, .rounds = weft__star_rounds},
    {.build = pairwise, .cost = linear_cost, .goes = WEFT__EXCHANGES},
};

const struct weft__template weft__alltoallv_template = {
    .public = {.name = "alltoallv",
               .summary = "rank r gets its block of every rank, each pair's of a size of its own",
               .parameters = "count send-counts recv-counts dtype algo segment",
               .result = "recv.s[i] on rank r: send.r[i] of rank s, a slot a block",
               .algorithms = algorithms_apart,
               .algorithm_count = sizeof algorithms_apart / sizeof algorithms_apart[0]},
    .impl = impl_apart,
    .flags = WEFT__USES_DATA | WEFT__BLOCKS | WEFT__USES_PAIR_COUNTS | WEFT__FIXED,
    .slots = slots_apart,
};
