/* SPDX-License-Identifier: BSD-3-Clause */
/* Allgather and allgatherv: every rank gets the blocks of all ranks, which all know the sizes of.
 */
#include "schedules/common/butterfly.h"
#include "schedules/common/pat.h"

/* Blocks lo .. hi-1 of "recv". */
static struct weft_region blocks(const struct weft__build *build, int lo, int hi)
{
    return weft__build_blocks(build, build->recv, lo, hi);
}

/* This rank's block where it is at the start: the first send needs no copy of it. */
static struct weft_region own_block(const struct weft__build *build)
{
    if (build->in_place)
        return blocks(build, build->rank, build->rank + 1);
    return weft_region_at(build->send, 0, weft__build_own(build));
}

/* A block goes on segment by segment: where blocks differ, nobody waits for the whole of a large
 * one. */
static void ring(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int s = 0; s < size - 1; s++) {
        int out = (rank + size - s) % size, in = (rank + size - s - 1) % size;
        weft__build_send(build, s ? blocks(build, out, out + 1) : own_block(build), right,
                         (uint64_t)s);
        weft__build_recv(build, blocks(build, in, in + 1), left, (uint64_t)s);
    }
    weft__build_copy(build, blocks(build, rank, rank + 1), own_block(build));
}

/* A range of blocks from `first` on, modulo P, in two messages where it wraps. */
static void send_range(struct weft__build *build, int first, int n, int to)
{
    int out = first + n <= build->size ? n : build->size - first; /* before the wrap */
    weft__build_send(build, blocks(build, first, first + out), to, 0);
    weft__build_send(build, blocks(build, 0, n - out), to, 1);
}

static void recv_range(struct weft__build *build, int first, int n)
{
    int in = first + n <= build->size ? n : build->size - first;
    weft__build_recv(build, blocks(build, first, first + in), first, 0);
    weft__build_recv(build, blocks(build, 0, n - in), first, 1);
}

/*
 * After j steps a rank has the blocks rank .. rank + k^j - 1 (mod P), each at its final place: so
 * there is no rotation at the end, but a range that wraps is two messages. With a radix of k a step
 * is k - 1 exchanges of such ranges.
 */
static void concatenate(struct weft__build *build, int radix)
{
    int size = build->size, rank = build->rank, alone = size <= radix && size > 1;
    if (!alone)
        weft__build_copy(build, blocks(build, rank, rank + 1), own_block(build));
    for (int64_t have = 1; have < size; have *= radix)
        for (int64_t i = 1; i < radix && i * have < size; i++) {
            int64_t rest = size - i * have;
            int n = (int)(rest < have ? rest : have);
            int to = (int)((rank - i * have + size) % size);
            if (have == 1)
                weft__build_send(build, own_block(build), to, 0);
            else
                send_range(build, rank, n, to);
            recv_range(build, (int)((rank + i * have) % size), n);
        }
    if (alone)
        weft__build_copy(build, blocks(build, rank, rank + 1), own_block(build));
}

static void bruck(struct weft__build *build)
{
    concatenate(build, 2);
}

static void k_bruck(struct weft__build *build)
{
    concatenate(build, weft__radix(build->radix, WEFT__RADIX));
}

/* The block of a rank goes to whoever has its position in the butterfly, which may be itself. */
static void leave_home(struct weft__build *build, const struct weft__butterfly *all)
{
    int rank = build->rank, home = weft__butterfly_participant(all, rank);
    int to = weft__butterfly_rank(all, weft__butterfly_at(all, home));
    if (to == rank)
        weft__build_copy(build, blocks(build, rank, rank + 1), own_block(build));
    else
        weft__build_send(build, own_block(build), to, 1);
    if (all->me < 0)
        return;
    int end = weft__butterfly_first(all, all->position + 1);
    for (int r = weft__butterfly_first(all, all->position); r < end; r++)
        if (r != rank)
            weft__build_recv(build, blocks(build, r, r + 1), r, 1);
}

/* Positions are the blocks, as they lie in "recv": every message is contiguous. */
static void butterfly(struct weft__build *build, enum weft__numbering numbering)
{
    struct weft__group group = {.size = build->size, .me = build->rank};
    struct weft__butterfly all;
    weft__butterfly_make(&all, &group, numbering, -1);
    leave_home(build, &all);
    if (all.me >= 0)
        weft__butterfly_allgather(build, &all, 1, blocks(build, 0, build->size), -1, 0);
    weft__butterfly_fold_out(build, &all, blocks(build, 0, build->size), 0);
}

static void recursive_doubling(struct weft__build *build)
{
    butterfly(build, WEFT__FARTHEST);
}

static void bine(struct weft__build *build)
{
    butterfly(build, WEFT__BINE);
}

static double copy_cost(const struct weft__shape *shape)
{
    return shape->cost->node_us + shape->largest * shape->cost->copy_us_per_byte;
}

static double ring_cost(const struct weft__shape *shape)
{
    return copy_cost(shape) +
           (shape->size - 1) * weft__cost_message(shape, weft__cost_mean(shape)) +
           weft__cost_ring_wait(shape, 0);
}

static size_t ring_segment(const struct weft__shape *shape)
{
    return weft__segment_ring(shape, 0);
}

/* Some range wraps in nearly every step but the first. */
static double concatenate_cost(const struct weft__shape *shape, int radix)
{
    double cost = copy_cost(shape);
    for (int64_t have = 1; have < shape->size; have *= radix)
        for (int64_t i = 1; i < radix && i * have < shape->size; i++) {
            int64_t rest = shape->size - i * have, n = rest < have ? rest : have;
            cost += weft__cost_message(shape, weft__cost_blocks(shape, (double)n));
            cost += have > 1 ? weft__cost_message(shape, 0) : 0;
        }
    return cost;
}

static double bruck_cost(const struct weft__shape *shape)
{
    return concatenate_cost(shape, 2);
}

static double k_bruck_cost(const struct weft__shape *shape)
{
    return concatenate_cost(shape, weft__radix(shape->radix, WEFT__RADIX));
}

static double doubling_cost(const struct weft__shape *shape)
{
    int log, power = weft__power_below(shape->size, &log);
    double blocks = shape->size, cost = copy_cost(shape);
    for (int k = 0; k < log; k++) {
        blocks /= 2;
        cost += weft__cost_message(shape, weft__cost_blocks(shape, blocks));
    }
    if (power != shape->size)
        cost += weft__cost_message(shape, shape->largest);
    return cost + weft__cost_fold(shape, 0, shape->total);
}

static double bine_cost(const struct weft__shape *shape)
{
    return doubling_cost(shape) + (shape->size > 1 ? weft__cost_message(shape, shape->largest) : 0);
}

static double pat_cost(const struct weft__shape *shape)
{
    return weft__cost_pat(shape, 0);
}

static void slots(struct weft__build *build)
{
    weft__build_pair(build, weft__build_own(build), weft__build_offset(build, build->size));
    for (int r = 0; r < build->size; r++)
        weft__build_result(build, blocks(build, r, r + 1), build->in_place ? "recv" : "send",
                           build->in_place ? weft__build_offset(build, r) : 0, r, 1);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "bruck",
     .cost =
         "ceil(log2 P) alpha + (P - 1)/P m beta; + up to ceil(log2 P) - 1 alpha where ranges wrap",
     .notes = "blocks go straight to their places: no rotation. Bruck et al., TPDS 1997",
     .ordered = 1},
    {.name = "ring",
     .cost = "(P - 1) alpha + (P - 1)/P m beta",
     .notes = "one block a step, to the right; blocks of very different sizes in segments, by cost",
     .ordered = 1},
    {.name = "recursive-doubling",
     .cost = "log2 P alpha + (P - 1)/P m beta; P no power of two: + 2 alpha + (1 + 1/P) m beta",
     .notes = "the nearest first; of two ranks that fold one collects for both, and gives the "
              "other all blocks. Thakur, Rabenseifner, Gropp, IJHPCA 2005, 4.1",
     .ordered = 1},
    {.name = "bine",
     .cost = "(log2 P + 1) alpha + m beta; P no power of two: + 2 alpha + (1 + 1/P) m beta",
     .notes = "a block goes first to the rank where it makes every message contiguous; then along "
              "a Bine butterfly, whose peers are a third nearer. De Sensi et al., Bine Trees, SC "
              "2025",
     .ordered = 1},
    {.name = "pat",
     .cost = "(L - 1 + log2(P/L)) alpha + (P - 1)/P m beta + m copy, L: P/L blocks a message",
     .notes = "parallel aggregated trees, any P: few blocks go far, many near; log2 L lists of "
              "blocks are kept. Jeaugey, 2025, arXiv 2506.20252",
     .ordered = 1},
    {.name = "k-bruck",
     .cost =
         "(k - 1) ceil(logk P) alpha + (P - 1)/P m beta; + up to as many alpha less k - 1 where "
         "ranges wrap; k: the radix",
     .notes =
         "bruck with k - 1 exchanges a step (3): ceil(logk P) messages in a row. Bruck et al., "
         "TPDS 1997: k - 1 ports",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = bruck, .cost = bruck_cost},
    {.build = ring, .cost = ring_cost, .segment = ring_segment},
    {.build = recursive_doubling, .cost = doubling_cost, .goes = WEFT__EXCHANGES},
    {.build = bine, .cost = bine_cost, .goes = WEFT__EXCHANGES},
    {.build = weft__build_pat_allgather, .cost = pat_cost},
    {.build = k_bruck, .cost = k_bruck_cost, .rounds = weft__radix_rounds},
};

const struct weft__template weft__allgather_template = {
    .public = {.name = "allgather",
               .summary = "every rank gets the blocks of all ranks",
               .parameters = "count dtype algo segment aggregate radix",
               .result = "recv[r count + i] on every rank: send[i] of rank r",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};

const struct weft__template weft__allgatherv_template = {
    .public = {.name = "allgatherv",
               .summary = "every rank gets the blocks of all ranks, each of a size of its own",
               .parameters = "count counts dtype algo segment aggregate radix",
               .result = "recv[counts[0] + ... + counts[r-1] + i] on every rank: send[i] of rank r",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_DATA | WEFT__BLOCKS | WEFT__USES_COUNTS,
    .slots = slots,
};
