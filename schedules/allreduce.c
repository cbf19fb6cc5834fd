/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce: every rank gets the combination of all contributions.
 *
 * `current` is where a rank's part is: in "send" until the first reduction writes to "recv", so
 * that nothing is copied first (a rank alone copies, because nothing else does it).
 */
#include <math.h>
#include <stdlib.h>

#include "schedules/common/butterfly.h"
#include "schedules/common/multiplying.h"

/* Each step's sum goes to a place of its own, the last one's to recv: so no reduction waits for the
 * send of what it would write over, and all can take their operand from the sender's memory. */
static void doubling(struct weft__build *build, const struct weft__group *group,
                     struct weft_region *current, struct weft_region recv)
{
    struct weft__butterfly all;
    weft__butterfly_make(&all, group, WEFT__NEAREST, -1);
    int receives = all.partner >= 0 && all.me >= 0;
    size_t parts = all.me < 0 ? 0 : 2 * (size_t)(all.log + receives);
    weft__build_reserve(build, parts ? (parts - 1) * recv.count : 0, parts);
    struct weft_region acc = receives ? weft__build_scratch(build, recv.count) : recv;
    int takes_part = weft__butterfly_fold_in(build, &all, current, acc, 0);
    for (int k = 0; takes_part && k < all.log; k++) {
        int other = weft__butterfly_peer(&all, k);
        int peer = weft__butterfly_rank(&all, other);
        struct weft_region to = k < all.log - 1 ? weft__build_scratch(build, recv.count) : recv;
        weft__build_send(build, *current, peer, 0);
        weft__build_recv_reduce(build, to, *current, peer, 0, other < all.me);
        *current = to;
    }
    weft__butterfly_fold_out(build, &all, recv, 0);
    *current = takes_part ? *current : recv;
}

/* The way back runs the steps in reverse. */
static void halving_doubling(struct weft__build *build, const struct weft__group *group,
                             enum weft__numbering numbering, struct weft_region *current,
                             struct weft_region recv)
{
    struct weft__butterfly all;
    weft__butterfly_make(&all, group, numbering, -1);
    weft__butterfly_reserve(build, &all, recv.count, all.partner >= 0);
    if (weft__butterfly_fold_in(build, &all, current, recv, 0)) {
        weft__butterfly_reduce_scatter(build, &all, 0, current, recv, 0);
        weft__butterfly_allgather(build, &all, 0, recv, -1, 1);
    } else {
        *current = recv;
    }
    weft__butterfly_fold_out(build, &all, recv, 0);
}

static struct weft_region contribution(const struct weft__build *build)
{
    return weft_region_at(build->in_place ? build->recv : build->send, 0, build->count);
}

static struct weft_region result(const struct weft__build *build)
{
    return weft_region_at(build->recv, 0, build->count);
}

static void recursive_doubling(struct weft__build *build)
{
    struct weft__group all = {.size = build->size, .me = build->rank};
    struct weft_region current = contribution(build), recv = result(build);
    doubling(build, &all, &current, recv);
    weft__build_copy(build, recv, current);
}

static void reduce_scatter_allgather(struct weft__build *build)
{
    struct weft__group all = {.size = build->size, .me = build->rank};
    struct weft_region current = contribution(build), recv = result(build);
    halving_doubling(build, &all, WEFT__NEAREST, &current, recv);
    weft__build_copy(build, recv, current);
}

/* Recursive doubling along these peers would give ranks different bits (common/bine.c). */
static void bine(struct weft__build *build)
{
    struct weft__group all = {.size = build->size, .me = build->rank};
    struct weft_region current = contribution(build), recv = result(build);
    halving_doubling(build, &all, WEFT__BINE, &current, recv);
    weft__build_copy(build, recv, current);
}

static void recursive_multiplying(struct weft__build *build)
{
    struct weft_region current = contribution(build), recv = result(build);
    weft__build_multiplying(build, &current, recv);
    weft__build_copy(build, recv, current);
}

/* Number i of so many parts, whose sizes differ by at most one. */
static struct weft_region slice(struct weft_region whole, int parts, int i)
{
    size_t begin = weft__block_offset(whole.count, parts, i);
    return weft__part(whole, begin, weft__block_offset(whole.count, parts, i + 1) - begin);
}

static struct weft_region block(const struct weft__build *build, struct weft_region whole, int i)
{
    return slice(whole, build->size, i < 0 ? i + build->size : i);
}

/* Block b starts on rank b and goes around: all combine it (first lap), then all get it. */
static void ring(struct weft__build *build)
{
    struct weft_region own = contribution(build), recv = result(build);
    int size = build->size, rank = build->rank;
    int right = rank + 1 < size ? rank + 1 : 0, left = rank > 0 ? rank - 1 : size - 1;
    if (size == 1) {
        weft__build_copy(build, recv, own);
        return;
    }
    weft__build_reserve(build, recv.count - recv.count / (size_t)size, (size_t)size);
    for (int s = 0; s < size - 1; s++) {
        int out = (rank + size - s) % size, in = (rank + size - s - 1) % size;
        weft__build_send(build, block(build, s ? recv : own, out), right, (uint64_t)s);
        weft__build_recv_reduce(build, block(build, recv, in), block(build, own, in), left,
                                (uint64_t)s, 1);
    }
    for (int s = 0; s < size - 1; s++) {
        int out = (rank + 1 + size - s) % size, in = (rank + size - s) % size;
        uint64_t message = (uint64_t)size + (uint64_t)s;
        weft__build_send(build, block(build, recv, out), right, message);
        weft__build_recv(build, block(build, recv, in), left, message);
    }
}

/* The ranks of build's host in ascending order; and, of each host that has one, the rank with the
 * place of build's there: its lane. */
struct hosts {
    int *ranks; /* one allocation: members, then the lane */
    struct weft__group members, lane;
    int least; /* ranks of the host that has fewest */
};

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* host << 32 | rank, ascending; NULL: no memory. */
static uint64_t *by_host(const struct weft__build *build)
{
    uint64_t *keys = weft_memory_alloc((size_t)build->size, sizeof *keys);
    for (int r = 0; keys && r < build->size; r++)
        keys[r] = (uint64_t)(build->hosts ? build->hosts[r] : 0) << 32 | (uint64_t)r;
    if (keys && build->hosts)
        qsort(keys, (size_t)build->size, sizeof *keys, by_number);
    return keys;
}

static void group_add(struct weft__group *group, int *ranks, int rank, int own)
{
    if (rank == own)
        group->me = group->size;
    ranks[group->size++] = rank;
}

/* place: of the lane that is wanted on each host; -1: build's own. */
static void take_hosts(const struct weft__build *build, uint64_t *keys, struct hosts *hosts,
                       int place)
{
    int size = build->size, rank = build->rank, *lane = hosts->ranks + size;
    uint64_t own = build->hosts ? (uint64_t)build->hosts[rank] : 0;
    hosts->members = (struct weft__group){.ranks = hosts->ranks, .me = -1};
    hosts->lane = (struct weft__group){.ranks = lane, .me = -1};
    hosts->least = size;
    for (int r = 0; r < size; r++)
        if (keys[r] >> 32 == own)
            group_add(&hosts->members, hosts->ranks, (int)(uint32_t)keys[r], rank);
    uint64_t *taken = keys; /* the lane by rank, in the place of what has been read */
    int lanes = 0, wanted = place < 0 ? hosts->members.me : place;
    for (int first = 0, end; first < size; first = end) {
        for (end = first + 1; end < size && keys[end] >> 32 == keys[first] >> 32; end++)
            continue;
        hosts->least = end - first < hosts->least ? end - first : hosts->least;
        if (wanted < end - first)
            taken[lanes++] = (uint32_t)keys[first + wanted];
    }
    qsort(taken, (size_t)lanes, sizeof *taken, by_number);
    for (int i = 0; i < lanes; i++)
        group_add(&hosts->lane, lane, (int)taken[i], rank);
}

static int hosts_find(struct weft__build *build, struct hosts *hosts, int place)
{
    uint64_t *keys = by_host(build);
    hosts->ranks = weft_memory_alloc(2 * (size_t)build->size, sizeof *hosts->ranks);
    int status = keys && hosts->ranks
                     ? WEFT_OK
                     : weft_error_set(WEFT_ERR_MEMORY, "out of memory for the hosts of %d ranks",
                                      build->size);
    if (!status)
        take_hosts(build, keys, hosts, place);
    weft_memory_free(keys);
    return status;
}

static void hierarchical(struct weft__build *build)
{
    struct hosts hosts = {0};
    struct weft_region current = contribution(build), recv = result(build);
    int status = hosts_find(build, &hosts, 0);
    if (status) {
        build->status = status;
    } else {
        weft__tree_reduce(build, &hosts.members, 0, &current, recv, 0);
        if (hosts.lane.me >= 0) {
            halving_doubling(build, &hosts.lane, WEFT__NEAREST, &current, recv);
            weft__build_copy(build, recv, current);
        }
        weft__tree_broadcast(build, &hosts.members, 0, recv, 1);
    }
    weft_memory_free(hosts.ranks);
}

/* ---- as many lanes as the smallest host has ranks ---- */

enum { SLICE_IN = 2, SLICE_OUT }; /* messages; halving_doubling() has those before */

/* Each of the first ranks of a host combines a slice of it straight from the others' memory, and
 * does the rest of it with those of its place on other hosts: all of a host's ranks use the network
 * at the same time. Then all get all slices. */
static void over_lanes(struct weft__build *build, const struct hosts *hosts, struct weft_region own,
                       struct weft_region recv)
{
    const struct weft__group *members = &hosts->members;
    int lanes = hosts->least, me = members->me, size = members->size;
    for (int away = 1; away < size; away++) {
        int to = (me + away) % size, from = (me + size - away) % size;
        if (to < lanes)
            weft__build_send(build, slice(own, lanes, to), members->ranks[to], SLICE_IN);
        if (me < lanes) {
            struct weft_region sum = slice(recv, lanes, me);
            weft__build_recv_reduce(build, sum, away == 1 ? slice(own, lanes, me) : sum,
                                    members->ranks[from], SLICE_IN, 0);
        }
    }
    if (me < lanes) {
        struct weft_region sum = slice(recv, lanes, me);
        struct weft_region current = size > 1 ? sum : slice(own, lanes, me);
        halving_doubling(build, &hosts->lane, WEFT__NEAREST, &current, sum);
        weft__build_copy(build, sum, current);
    }
    for (int away = 1; away < size; away++) {
        int to = (me + away) % size, from = (me + size - away) % size;
        if (me < lanes)
            weft__build_send(build, slice(recv, lanes, me), members->ranks[to], SLICE_OUT);
        if (from < lanes)
            weft__build_recv(build, slice(recv, lanes, from), members->ranks[from], SLICE_OUT);
    }
}

static void multi_lane(struct weft__build *build)
{
    struct hosts hosts = {0};
    int status = hosts_find(build, &hosts, -1);
    if (status)
        build->status = status;
    else
        over_lanes(build, &hosts, contribution(build), result(build));
    weft_memory_free(hosts.ranks);
}

/* ---- costs ---- */

static double fold_cost(const struct weft__shape *shape)
{
    return weft__cost_fold(shape, (double)shape->bytes, (double)shape->bytes);
}

static double alone_cost(const struct weft__shape *shape)
{
    return shape->cost->node_us + (double)shape->bytes * shape->cost->copy_us_per_byte;
}

static double recursive_doubling_cost(const struct weft__shape *shape)
{
    int log;
    weft__power_below(shape->size, &log);
    if (shape->size == 1)
        return alone_cost(shape);
    return fold_cost(shape) + log * weft__cost_combine(shape, (double)shape->bytes);
}

static double recursive_multiplying_cost(const struct weft__shape *shape)
{
    return shape->size == 1 ? alone_cost(shape) : weft__cost_multiplying(shape);
}

static double halving_cost(const struct weft__shape *shape, int size)
{
    return weft__cost_halving(shape, size, (double)shape->bytes, 1) +
           weft__cost_halving(shape, size, (double)shape->bytes, 0);
}

static double reduce_scatter_allgather_cost(const struct weft__shape *shape)
{
    if (shape->size == 1)
        return alone_cost(shape);
    return fold_cost(shape) + halving_cost(shape, shape->size);
}

static double ring_cost(const struct weft__shape *shape)
{
    double bytes = ceil((double)shape->bytes / shape->size);
    if (shape->size == 1)
        return alone_cost(shape);
    return (shape->size - 1) *
           (weft__cost_combine(shape, bytes) + weft__cost_message(shape, bytes));
}

/* At most: numbers may be left out. */
static int host_count(const struct weft__shape *shape)
{
    int lowest = shape->hosts ? shape->hosts[0] : 0, highest = lowest;
    for (int r = 1; shape->hosts && r < shape->size; r++) {
        lowest = shape->hosts[r] < lowest ? shape->hosts[r] : lowest;
        highest = shape->hosts[r] > highest ? shape->hosts[r] : highest;
    }
    int64_t count = (int64_t)highest - lowest + 1;
    return count < shape->size ? (int)count : shape->size;
}

/* The problem within a host, at local costs if there are several; so what works in hosts first can
 * win only where ranks share some. */
static struct weft__shape inside_host(const struct weft__shape *shape, int hosts,
                                      struct weft_cost_model *local)
{
    struct weft__shape inside = *shape;
    weft_cost_model_init(local, "local");
    inside.size = (shape->size + hosts - 1) / hosts;
    if (hosts > 1)
        inside.cost = local;
    return inside;
}

static double hierarchical_cost(const struct weft__shape *shape)
{
    int hosts = host_count(shape);
    struct weft_cost_model local;
    struct weft__shape inside = inside_host(shape, hosts, &local), outside = *shape;
    double bytes = (double)shape->bytes;
    int steps = weft__log2_ceil(inside.size);
    outside.size = hosts;
    if (shape->size == 1)
        return alone_cost(shape);
    return steps * (weft__cost_combine(&inside, bytes) + weft__cost_message(&inside, bytes)) +
           fold_cost(&outside) + halving_cost(&outside, hosts);
}

static double multi_lane_cost(const struct weft__shape *shape)
{
    int hosts = host_count(shape);
    struct weft_cost_model local;
    struct weft__shape inside = inside_host(shape, hosts, &local), outside = *shape;
    double bytes = ceil((double)shape->bytes / inside.size);
    outside.size = hosts;
    outside.bytes = (size_t)bytes;
    if (shape->size == 1)
        return alone_cost(shape);
    return (inside.size - 1) *
               (weft__cost_combine(&inside, bytes) + weft__cost_message(&inside, bytes)) +
           fold_cost(&outside) + halving_cost(&outside, hosts);
}

static int multi_lane_rounds(const struct weft__shape *shape)
{
    int hosts = host_count(shape);
    return (shape->size > hosts ? 2 : 0) + 2 * weft__log2_ceil(hosts);
}

/* ---- the template ---- */

static void slots(struct weft__build *build)
{
    weft__build_pair(build, build->count, build->count);
    weft__build_result(build, result(build), build->in_place ? "recv" : "send", 0, 0, build->size);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "recursive-doubling",
     .cost = "log2 P (alpha + m beta + m gamma); P no power of two: + 2 alpha + 2 m beta + m gamma",
     .notes = "every element: a balanced binary tree over contiguous ranks, lower ranks left; the "
              "same on all ranks and in every run. Thakur, Rabenseifner, Gropp, IJHPCA 2005, 4.5",
     .ordered = 1},
    {.name = "reduce-scatter-allgather",
     .cost = "2 log2 P alpha + (P - 1)/P (2 m beta + m gamma); P no power of two: + 2 alpha + 2 m "
             "beta + m gamma",
     .notes = "every element: the tree of recursive-doubling, so bitwise the same result. "
              "Rabenseifner, ICCS 2004; halves the nearest first to keep the order of ranks",
     .ordered = 1},
    {.name = "ring",
     .cost = "2 (P - 1) alpha + (P - 1)/P (2 m beta + m gamma)",
     .notes =
         "block b of P: ((b + (b+1)) + (b+2)) ... around the ring from rank b; the same on all "
         "ranks and in every run. Patarasuk, Yuan, JPDC 2009",
     .ordered = 0},
    {.name = "hierarchical",
     .cost = "2 log2 s (local) + reduce-scatter-allgather over N hosts of s ranks",
     .notes = "a tree in each host (parameter hosts of the API), then reduce-scatter-allgather "
              "over the hosts' lowest ranks, then back; the same on all ranks and in every run",
     .ordered = 0},
    {.name = "bine",
     .cost = "2 log2 P alpha + (P - 1)/P (2 m beta + m gamma); P no power of two: + 2 alpha + 2 m "
             "beta + m gamma",
     .notes = "reduce-scatter-allgather with peers a third nearer, for networks that are thin "
              "between distant ranks; the same on all ranks and in every run. De Sensi et al., "
              "Bine Trees, SC 2025; on a ring it is Swing, De Sensi et al., NSDI 2024",
     .ordered = 0},
    {.name = "recursive-multiplying",
     .cost =
         "the sum of f - 1 over factors f of P (alpha + m beta + m gamma); P with a prime factor "
         "above the radix: + 2 alpha + 2 m beta + m gamma",
     .notes =
         "every element: a tree over contiguous participants, lower ranks left, f parts a step; "
         "the same on all ranks and in every run. Factors up to the radix (3). Ruefenacht, "
         "Bull, Booth, Parallel Computing 2017",
     .ordered = 1},
    {.name = "multi-lane",
     .cost = "2 (s - 1)(alpha + m/s beta) + (s - 1) m/s gamma (local) + reduce-scatter-allgather "
             "of m/s over N hosts of s ranks",
     .notes = "each rank of a host (parameter hosts of the API; as many as the smallest host has) "
              "combines a slice straight from the others' memory, and goes on with it beside the "
              "others over the hosts; the same on all ranks and in every run. Traeff, Hunold, "
              "CLUSTER 2020",
     .ordered = 0},
};

static const struct weft__algorithm impl[] = {
    {.build = recursive_doubling, .cost = recursive_doubling_cost, .goes = WEFT__EXCHANGES},
    {.build = reduce_scatter_allgather,
     .cost = reduce_scatter_allgather_cost,
     .goes = WEFT__EXCHANGES},
    {.build = ring, .cost = ring_cost}, /* no .segment: it moves blocks of m / P already */
    {.build = hierarchical, .cost = hierarchical_cost, .goes = WEFT__EXCHANGES},
    {.build = bine, .cost = reduce_scatter_allgather_cost, .goes = WEFT__EXCHANGES},
    {.build = recursive_multiplying,
     .cost = recursive_multiplying_cost,
     .goes = WEFT__EXCHANGES,
     .rounds = weft__multiplying_rounds},
    {.build = multi_lane,
     .cost = multi_lane_cost,
     .goes = WEFT__EXCHANGES,
     .rounds = multi_lane_rounds},
};

const struct weft__template weft__allreduce_template = {
    .public = {.name = "allreduce",
               .summary = "every rank gets the combination of all contributions",
               .parameters = "count dtype op algo segment radix",
               .result = "recv[i] on every rank: send[i] of ranks 0 .. P-1 combined",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA | WEFT__USES_HOSTS,
    .slots = slots,
};

/* ---- as a step of other templates ---- */

void weft__build_allreduce(struct weft__build *build, size_t index, weft_slot_t slot, size_t count)
{
    struct weft__build inner = *build;
    if (!count || build->status)
        return;
    inner.send = -1;
    inner.recv = slot;
    inner.count = count;
    inner.in_place = 1;
    impl[index].build(&inner);
    build->status = inner.status;
    build->scratch_count = inner.scratch_count;
    build->spare = inner.spare;
}
