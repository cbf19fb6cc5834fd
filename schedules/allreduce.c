/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce: every rank gets the combination of all contributions.
 *
 * `current` is where a rank's part is: in "send" until the first reduction writes to "recv", so
 * that nothing is copied first (a rank alone copies, because nothing else does it).
 */
#include <math.h>

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

static struct weft_region block(const struct weft__build *build, struct weft_region whole, int i)
{
    int number = i < 0 ? i + build->size : i;
    size_t begin = weft__block_offset(whole.count, build->size, number);
    size_t end = weft__block_offset(whole.count, build->size, number + 1);
    return weft__part(whole, begin, end - begin);
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

/* The ranks of build's host in ascending order, and the lowest rank of each host. */
struct hosts {
    int *ranks; /* one allocation: members, then leaders */
    struct weft__group members, leaders;
};

static int hosts_find(struct weft__build *build, struct hosts *hosts)
{
    int size = build->size, rank = build->rank, most = 0;
    for (int r = 0; build->hosts && r < size; r++)
        most = build->hosts[r] > most ? build->hosts[r] : most;
    hosts->ranks = weft_memory_alloc(2 * (size_t)size + (size_t)most + 1, sizeof *hosts->ranks);
    if (!hosts->ranks)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for the hosts of %d ranks", size);
    int *leaders = hosts->ranks + size, *seen = leaders + size;
    hosts->members = (struct weft__group){.ranks = hosts->ranks};
    hosts->leaders = (struct weft__group){.ranks = leaders, .me = -1};
    for (int r = 0; r < size; r++) {
        int host = build->hosts ? build->hosts[r] : 0;
        if (host < 0)
            return weft_error_set(WEFT_ERR_INVALID, "hosts[%d] is %d, expected at least 0", r,
                                  host);
        if (host == (build->hosts ? build->hosts[rank] : 0)) {
            if (r == rank)
                hosts->members.me = hosts->members.size;
            hosts->ranks[hosts->members.size++] = r;
        }
        if (!seen[host]) {
            seen[host] = 1;
            if (r == rank)
                hosts->leaders.me = hosts->leaders.size;
            leaders[hosts->leaders.size++] = r;
        }
    }
    return WEFT_OK;
}

static void hierarchical(struct weft__build *build)
{
    struct hosts hosts = {0};
    struct weft_region current = contribution(build), recv = result(build);
    int status = hosts_find(build, &hosts);
    if (status) {
        build->status = status;
    } else {
        weft__tree_reduce(build, &hosts.members, 0, &current, recv, 0);
        if (hosts.leaders.me >= 0) {
            halving_doubling(build, &hosts.leaders, WEFT__NEAREST, &current, recv);
            weft__build_copy(build, recv, current);
        }
        weft__tree_broadcast(build, &hosts.members, 0, recv, 1);
    }
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

/* Within a host at local costs if there are several: so it can win only where ranks share hosts. */
static double hierarchical_cost(const struct weft__shape *shape)
{
    int lowest = shape->hosts ? shape->hosts[0] : 0, highest = lowest;
    for (int r = 1; shape->hosts && r < shape->size; r++) {
        lowest = shape->hosts[r] < lowest ? shape->hosts[r] : lowest;
        highest = shape->hosts[r] > highest ? shape->hosts[r] : highest;
    }
    int hosts = highest - lowest + 1;
    if (shape->size == 1)
        return alone_cost(shape);
    struct weft_cost_model local;
    weft_cost_model_init(&local, "local");
    struct weft__shape inside = *shape;
    if (hosts > 1)
        inside.cost = &local;
    double bytes = (double)shape->bytes;
    int steps = weft__log2_ceil((shape->size + hosts - 1) / hosts);
    struct weft__shape outside = *shape;
    outside.size = hosts;
    return steps * (weft__cost_combine(&inside, bytes) + weft__cost_message(&inside, bytes)) +
           fold_cost(&outside) + halving_cost(&outside, hosts);
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
};

static const struct weft__algorithm impl[] = {
    {.build = recursive_doubling, .cost = recursive_doubling_cost, .goes = WEFT__EXCHANGES},
    {.build = reduce_scatter_allgather,
     .cost = reduce_scatter_allgather_cost,
     .goes = WEFT__EXCHANGES},
    {.build = ring, .cost = ring_cost}, /* no .segment: it moves blocks of m / P already */
    {.build = hierarchical, .cost = hierarchical_cost},
    {.build = bine, .cost = reduce_scatter_allgather_cost, .goes = WEFT__EXCHANGES},
    {.build = recursive_multiplying,
     .cost = recursive_multiplying_cost,
     .goes = WEFT__EXCHANGES,
     .rounds = weft__multiplying_rounds},
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
