/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter, and reduce-scatterv with blocks of any sizes: rank r gets block r of the
 * combination of all contributions.
 *
 * In place the result goes to the beginning of "recv" (as with MPI_IN_PLACE), over block 0 of the
 * contribution: the last reduction waits until that has been sent.
 */
#include "schedules/common/butterfly.h"
#include "schedules/common/pat.h"

/* Blocks lo .. hi-1 of some that begin with region. */
static struct weft_region blocks(const struct weft__build *build, struct weft_region region, int lo,
                                 int hi)
{
    return weft__build_within(build, region, 0, lo, hi);
}

/* Blocks lo .. hi-1 of this rank's contribution. */
static struct weft_region given(const struct weft__build *build, int lo, int hi)
{
    return weft__build_blocks(build, build->in_place ? build->recv : build->send, lo, hi);
}

static struct weft_region result(const struct weft__build *build)
{
    return weft_region_at(build->recv, 0, weft__build_own(build));
}

/* This rank's contribution to its own block. In place, where blocks differ, the result may lie
 * across it: it is moved out of the way. Where it lies just there, it may stay if what reads it is
 * the first to write the result. */
static struct weft_region own_given(struct weft__build *build, int read_first)
{
    struct weft_region own = given(build, build->rank, build->rank + 1);
    int across = own.offset ? own.offset < own.count : !read_first;
    if (!build->in_place || !across)
        return own;
    struct weft_region moved = weft__build_scratch(build, own.count);
    weft__build_copy(build, moved, own);
    return moved;
}

/* Block b starts on rank b + 1 and ends, combined, on rank b. */
static void ring(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    struct weft_region out = given(build, left, left + 1);
    if (size == 1) {
        weft__build_copy(build, result(build), given(build, 0, 1));
        return;
    }
    /* What arrives and what goes on of every block but the first and the own one. */
    size_t parts = 2 * (size_t)size - 3, all = weft__build_offset(build, size);
    size_t first = weft__build_range(build, left, left + 1), own = weft__build_own(build);
    struct weft_region mine = own_given(build, 1);
    weft__build_reserve(build, 2 * (all - first - own) + own, parts);
    for (int s = 0; s < size - 1; s++) {
        int in = (rank + 2 * (size - 1) - s) % size;
        struct weft_region to =
            s < size - 2 ? weft__build_scratch(build, weft__build_range(build, in, in + 1))
                         : result(build);
        weft__build_send(build, out, right, (uint64_t)s);
        weft__build_recv_reduce(build, to, in == rank ? mine : given(build, in, in + 1), left,
                                (uint64_t)s, 1);
        out = to;
    }
}

/* A block of every other rank must fit, too: where blocks differ, that may be more than all of
 * them. */
static int refuse_copies(struct weft__build *build, size_t own)
{
    size_t most = PTRDIFF_MAX / weft_dtype_size(build->dtype) / (size_t)build->size;
    if (own > most)
        build->status = weft_error_set(WEFT_ERR_INVALID,
                                       "counts[%d] is %zu: one of each of %d ranks is too much, "
                                       "expected at most %zu",
                                       build->rank, own, build->size, most);
    return build->status;
}

/* Everybody sends each block to its rank, which combines them in the order of ranks. */
static void pairwise(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    size_t own = weft__build_own(build);
    if (refuse_copies(build, own))
        return;
    struct weft_region others = weft__build_scratch(build, (size_t)(size - 1) * own);
    struct weft_region mine = own_given(build, rank < 2), acc = mine;
    for (int i = 1; i < size; i++) {
        int to = (rank + i) % size, from = (rank + size - i) % size;
        weft__build_send(build, given(build, to, to + 1), to, 0);
        weft__build_recv(build, weft__part(others, (size_t)(from - (from > rank)) * own, own), from,
                         0);
    }
    for (int r = 0; r < size; r++) {
        struct weft_region part =
            r == rank ? mine : weft__part(others, (size_t)(r - (r > rank)) * own, own);
        if (r == 0)
            acc = part;
        else
            weft__build_reduce(build, result(build), acc, part);
        if (r > 0)
            acc = result(build);
    }
    weft__build_copy(build, result(build), acc);
}

/* Halves the ranks, far partners first: what is kept is a contiguous range of blocks. Of the first
 * 2 * extra ranks the even one stands for both, and gives the odd one its block in the end. */
struct halving {
    int power, log, extra;
};

/* The first block of participant v; v = power: the end. */
static int first_block(const struct halving *h, int v)
{
    return v < h->extra ? 2 * v : v + h->extra;
}

static void recursive_halving(struct weft__build *build)
{
    struct halving h;
    int rank = build->rank, size = build->size;
    h.power = weft__power_below(size, &h.log);
    h.extra = size - h.power;
    int folds = rank < 2 * h.extra, me = folds ? rank / 2 : rank - h.extra;
    if (folds && rank & 1) {
        weft__build_send(build, given(build, 0, size), rank - 1, 0);
        weft__build_recv(build, result(build), rank - 1, 0);
        return;
    }
    if (size == 1)
        weft__build_copy(build, result(build), given(build, 0, 1));
    if (size == 1)
        return;
    struct weft_region current = given(build, 0, size), mine = current;
    if (h.log == 1 && !folds) /* the first reduction is the last */
        mine = own_given(build, 1);
    struct weft_region work = weft__build_scratch(build, weft__build_offset(build, size));
    if (folds) {
        weft__build_recv_reduce(build, work, current, rank + 1, 0, 0);
        current = work;
    }
    int lo = 0, hi = h.power; /* participants whose blocks are kept */
    for (int k = h.log - 1; k >= 0; k--) {
        int upper = me >> k & 1, other = me ^ (1 << k), middle = lo + (1 << k);
        int give_lo = first_block(&h, upper ? lo : middle);
        int give_hi = first_block(&h, upper ? middle : hi);
        lo = upper ? middle : lo;
        hi = upper ? hi : middle;
        int keep_lo = first_block(&h, lo), keep_hi = first_block(&h, hi);
        struct weft_region to = k || folds ? blocks(build, work, keep_lo, keep_hi) : result(build);
        int peer = first_block(&h, other);
        weft__build_send(build, blocks(build, current, give_lo, give_hi), peer, 0);
        int own = current.slot != work.slot && keep_lo == rank && keep_hi == rank + 1;
        weft__build_recv_reduce(build, to, own ? mine : blocks(build, current, keep_lo, keep_hi),
                                peer, 0, upper);
        current = work;
    }
    if (folds) {
        weft__build_send(build, blocks(build, work, rank + 1, rank + 2), rank + 1, 0);
        weft__build_copy(build, result(build), blocks(build, work, rank, rank + 1));
    }
}

/* From what `work` holds of the position of this rank to the ranks whose blocks these are. */
static void bring_home(struct weft__build *build, const struct weft__butterfly *all,
                       struct weft_region work)
{
    int rank = build->rank, home = weft__butterfly_participant(all, rank);
    int from = weft__butterfly_rank(all, weft__butterfly_at(all, home));
    int first = 0, end = 0;
    if (all->me >= 0) {
        first = weft__butterfly_first(all, all->position);
        end = weft__butterfly_first(all, all->position + 1);
    }
    for (int r = first; r < end; r++)
        if (r != rank)
            weft__build_send(build, blocks(build, work, r, r + 1), r, 1);
    if (from == rank)
        weft__build_copy(build, result(build), blocks(build, work, rank, rank + 1));
    else
        weft__build_recv(build, result(build), from, 1);
}

/*
 * Positions are the ranks' blocks, as they lie: so every message is contiguous, and a rank ends
 * with the block of the rank that has the number of its position. That goes there as one more
 * message, instead of permuting all blocks before.
 */
static void butterfly(struct weft__build *build, enum weft__numbering numbering)
{
    struct weft__group group = {.size = build->size, .me = build->rank};
    struct weft__butterfly all;
    struct weft_region current = given(build, 0, build->size), work = current;
    if (build->size == 1) {
        weft__build_copy(build, result(build), current);
        return;
    }
    weft__butterfly_make(&all, &group, numbering, -1);
    if (all.me >= 0)
        work = weft__build_scratch(build, current.count);
    weft__butterfly_reserve(build, &all, current.count, all.partner >= 0);
    if (weft__butterfly_fold_in(build, &all, &current, work, 0))
        weft__butterfly_reduce_scatter(build, &all, 1, &current, work, 0);
    bring_home(build, &all, work);
}

static void ordered_halving(struct weft__build *build)
{
    butterfly(build, WEFT__NEAREST);
}

static void bine(struct weft__build *build)
{
    butterfly(build, WEFT__BINE);
}

static double ring_cost(const struct weft__shape *shape)
{
    return (shape->size - 1) * weft__cost_combine(shape, weft__cost_mean(shape)) +
           weft__cost_ring_wait(shape, 1);
}

static size_t ring_segment(const struct weft__shape *shape)
{
    return weft__segment_ring(shape, 1);
}

/* The rank with the largest block has the most to combine. */
static double pairwise_cost(const struct weft__shape *shape)
{
    return (shape->size - 1) * weft__cost_combine(shape, shape->largest);
}

static double recursive_halving_cost(const struct weft__shape *shape)
{
    int log, power = weft__power_below(shape->size, &log);
    double blocks = shape->size, cost = 0;
    for (int k = 0; k < log; k++) {
        blocks /= 2;
        cost += weft__cost_combine(shape, weft__cost_blocks(shape, blocks));
    }
    if (power != shape->size)
        cost += weft__cost_combine(shape, shape->total) +
                weft__cost_message(shape, shape->largest) + shape->cost->node_us +
                shape->largest * shape->cost->copy_us_per_byte;
    return cost;
}

static double butterfly_cost(const struct weft__shape *shape)
{
    int log;
    double blocks = shape->size, cost = weft__cost_fold(shape, shape->total, 0);
    if (shape->size == 1)
        return 0;
    weft__power_below(shape->size, &log);
    for (int k = 0; k < log; k++) {
        blocks /= 2;
        cost += weft__cost_combine(shape, weft__cost_blocks(shape, blocks));
    }
    int apart = weft__power_below(shape->size, NULL) == shape->size ? 1 : 2;
    return cost + apart * weft__cost_message(shape, shape->largest);
}

static double pat_cost(const struct weft__shape *shape)
{
    return weft__cost_pat(shape, 1);
}

static void slots(struct weft__build *build)
{
    weft__build_pair(build, weft__build_offset(build, build->size), weft__build_own(build));
    weft__build_result(build, result(build), build->in_place ? "recv" : "send",
                       weft__build_offset(build, build->rank), 0, build->size);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "recursive-halving",
     .cost = "log2 P alpha + (P - 1)/P m (beta + gamma); P no power of two: + 2 alpha + m (beta + "
             "gamma)",
     .notes = "every element: a balanced binary tree in which ranks P/2 apart meet first; the same "
              "in every run. Thakur, Rabenseifner, Gropp, IJHPCA 2005, 4.4",
     .ordered = 0},
    {.name = "pairwise",
     .cost = "(P - 1)(alpha + m/P (beta + gamma))",
     .notes = "every element: ((0 + 1) + 2) + ...; the same in every run",
     .ordered = 1},
    {.name = "ring",
     .cost = "(P - 1)(alpha + m/P (beta + gamma))",
     .notes = "block b: ((b+1 + b+2) + ...) + b around the ring; the same in every run",
     .ordered = 0},
    {.name = "ordered-halving",
     .cost = "(log2 P + 1) alpha + m (beta + gamma); P no power of two: + 2 alpha + m (beta + "
             "gamma)",
     .notes = "every element: a balanced binary tree over contiguous ranks, lower ranks left; the "
              "same in every run. Halves the nearest first; a block goes to its rank in the end",
     .ordered = 1},
    {.name = "bine",
     .cost = "(log2 P + 1) alpha + m (beta + gamma); P no power of two: + 2 alpha + m (beta + "
             "gamma)",
     .notes = "ordered-halving with the peers of a Bine butterfly, a third nearer; the same in "
              "every run. De Sensi et al., Bine Trees, SC 2025",
     .ordered = 0},
    {.name = "pat",
     .cost = "(L - 1 + log2(P/L)) alpha + (P - 1)/P m (beta + gamma) + m/2 copy, L: P/L blocks a "
             "message",
     .notes = "parallel aggregated trees, any P: block b is combined along a binomial tree over b, "
              "b+1, ... modulo P; log2 L lists of blocks are kept; the same in every run. Jeaugey, "
              "2025, arXiv 2506.20252",
     .ordered = 0},
};

static const struct weft__algorithm impl[] = {
    {.build = recursive_halving, .cost = recursive_halving_cost, .goes = WEFT__EXCHANGES},
    {.build = pairwise,
     .cost = pairwise_cost,
     .goes = WEFT__EXCHANGES,
     .rounds = weft__star_rounds},
    {.build = ring, .cost = ring_cost, .segment = ring_segment},
    {.build = ordered_halving, .cost = butterfly_cost, .goes = WEFT__EXCHANGES},
    {.build = bine, .cost = butterfly_cost, .goes = WEFT__EXCHANGES},
    {.build = weft__build_pat_reduce_scatter, .cost = pat_cost},
};

const struct weft__template weft__reduce_scatter_template = {
    .public = {.name = "reduce-scatter",
               .summary = "rank r gets block r of the combination of all contributions",
               .parameters = "count dtype op algo segment aggregate",
               .result = "recv[i] on rank r: send[r count + i] of ranks 0 .. P-1 combined",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};

const struct weft__template weft__reduce_scatterv_template = {
    .public = {.name = "reduce-scatterv",
               .summary = "rank r gets block r, of a size of its own, of the combination of all",
               .parameters = "count counts dtype op algo segment aggregate",
               .result = "recv[i] on rank r: send[counts[0] + ... + counts[r-1] + i] of ranks 0 .. "
                         "P-1 combined",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA | WEFT__BLOCKS | WEFT__USES_COUNTS,
    .slots = slots,
};
