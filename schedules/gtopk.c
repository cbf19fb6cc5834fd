/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of sparse vectors over all ranks: gTop-k, which keeps the k largest of every merge, and
 * top-k by allgather, which keeps everything.
 *
 * A message is a list of c (index, value) pairs, c elements of 8 bytes: first c indices of 4 bytes,
 * ascending, then c values of 4 bytes. How many there are, up to k, is a value of the run: `pairs`
 * of the rank's own list, `k` of what a merge keeps, and in the end `kept` of the result.
 *
 * Each merge has one owner, the lowest rank that makes it: it adds what the merge drops to its
 * residual. In a tree that is whoever merges; in a butterfly all ranks of a group make the same
 * merge. So result and residuals are together what lists and residuals were, but for the rounding
 * of at most ceil(log2 P) + 1 additions that a value goes through (docs/sparse.md has the bound).
 */
#include <stdio.h>

#include <weft/sparse.h>

#include "schedules/common/template.h"

/* A list that a rank holds: a region whose value says how many pairs there are. */
struct list {
    struct weft_region region;
    size_t most;
};

struct maker {
    struct weft__build *build;
    struct weft_op *op;
    weft_value_t limit; /* "k"; 0: everything is kept */
    weft_slot_t residual;
    struct list mine;
    int merges;
};

enum { WORK_WORDS = 32 };

/* ---- nodes ---- */

static struct weft_region scratch(struct maker *m, const char *kind, size_t count)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, m->merges);
    return weft_region_at(
        weft_schedule_add_slot(m->build->schedule, name, WEFT_U64, count, WEFT_SLOT_SCRATCH), 0,
        count);
}

static weft_value_t value_of(struct maker *m, const char *kind, size_t most)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, m->merges);
    return weft_schedule_add_value(m->build->schedule, name, most);
}

static void send_list(struct maker *m, struct list list, int peer, uint32_t tag)
{
    struct weft__build *build = m->build;
    weft_tracker_add(build->tracker,
                     weft_schedule_add_send(build->schedule, list.region, peer, tag));
}

static struct list recv_list(struct maker *m, struct weft_region into, weft_value_t value, int peer,
                             uint32_t tag)
{
    struct weft__build *build = m->build;
    struct list list = {into, into.count};
    weft_tracker_add(build->tracker,
                     weft_schedule_add_recv_up_to(build->schedule, into, peer, tag, value));
    list.region.value = value;
    return list;
}

/* The most that merging two lists can give. */
static size_t most_of(const struct maker *m, size_t a, size_t b)
{
    size_t k = m->build->k;
    return m->limit && a + b > k ? k : a + b;
}

/* mine becomes mine T other, in `recv` if it is the last of all merges. */
static void merge_list(struct maker *m, struct list other, int owns, int last)
{
    struct weft__build *build = m->build;
    size_t most = most_of(m, m->mine.most, other.most), both = m->mine.most + other.most;
    size_t work = both + weft_sparse_merge_workspace(WEFT_U32, WEFT_F32, both) / 8 + WORK_WORDS;
    struct weft_region out = last ? weft_region_at(build->recv, 0, most) : scratch(m, "sum", most);
    weft_value_t kept = last ? weft_schedule_add_value(build->schedule, "kept", most)
                             : value_of(m, "sum_pairs", most);
    struct weft_region memory = scratch(m, "work", work + most);
    struct weft_compute_argument arguments[6] = {
        {out, WEFT_WRITE},
        {m->mine.region, WEFT_READ},
        {other.region, WEFT_READ},
        {weft__part(memory, 0, work), WEFT_WRITE},
        {weft__part(memory, work, most), WEFT_WRITE},
    };
    size_t count = 5;

    arguments[4].region.value = m->limit; /* 0: as much as there is room for */
    if (owns && m->residual >= 0)
        arguments[count++] = (struct weft_compute_argument){
            weft_region_at(m->residual, 0, build->count), WEFT_WRITE};
    weft_node_t node = weft_schedule_add_compute(build->schedule, m->op, arguments, count, kept);
    weft_tracker_add(build->tracker, node);
    m->mine = (struct list){out, most};
    m->mine.region.value = kept;
    m->merges++;
}

static void receive_and_merge(struct maker *m, size_t most, int peer, uint32_t tag, int owns,
                              int last)
{
    struct list other =
        recv_list(m, scratch(m, "in", most), value_of(m, "in_pairs", most), peer, tag);
    merge_list(m, other, owns, last);
}

/* ---- the slots and the beginning ---- */

/* gTop-k has a residual and a limit. The result of one rank alone is its list, of which k stay. */
static int begin(struct maker *m, struct weft__build *build, int limited)
{
    size_t most = limited ? build->k : build->k * (size_t)build->size;

    *m = (struct maker){.build = build, .residual = -1};
    build->status = build->status ? build->status : weft_sparse_merge_op(&m->op);
    if (build->status)
        return 0;
    build->send =
        weft_schedule_add_slot(build->schedule, "send", WEFT_U64, build->k, WEFT_SLOT_INPUT);
    build->recv = weft_schedule_add_slot(build->schedule, "recv", WEFT_U64, most, WEFT_SLOT_OUTPUT);
    if (limited)
        m->residual = weft_schedule_add_slot(build->schedule, "residual", WEFT_F32, build->count,
                                             WEFT_SLOT_INOUT);
    if (!build->k)
        return 0;
    m->mine = (struct list){weft_region_at(build->send, 0, build->k), build->k};
    m->mine.region.value = weft_schedule_add_value(build->schedule, "pairs", build->k);
    if (limited)
        m->limit = weft_schedule_add_value(build->schedule, "k", build->k);
    if (build->size == 1)
        merge_list(m, (struct list){weft_region_at(build->send, 0, 0), 0}, 1, 1);
    return build->size > 1;
}

static void end(struct maker *m)
{
    struct weft__build *build = m->build;
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(build->recv, 0, build->k),
                                 .from = "send",
                                 .ranks = build->size,
                                 .op = m->op};
    result.dst.value = m->mine.region.value;
    if (m->op && build->k)
        weft_schedule_add_result(build->schedule, &result);
    weft_op_destroy(m->op);
}

/* Ranks count from the root on. */
static int place_of(const struct weft__build *build)
{
    return (build->rank - build->root + build->size) % build->size;
}

static int rank_at(const struct weft__build *build, int place)
{
    return (int)(((int64_t)place + build->root) % build->size);
}

enum { RESULT_TAG = 64, EXTRA_TAG = 65 };

/* ---- tree and broadcast ---- */

static void build_tree(struct weft__build *build)
{
    struct maker m;
    int64_t size = build->size, place, span;

    build->root = (int)(((uint64_t)build->root + build->version) % (uint64_t)build->size);
    place = place_of(build);
    int more = begin(&m, build, 1);
    for (span = 1; more && span < size && !(place & span); span *= 2)
        if (place + span < size)
            receive_and_merge(&m, build->k, rank_at(build, (int)(place + span)), (uint32_t)span, 1,
                              place == 0 && 2 * span >= size);
    if (more && place > 0) { /* span: its lowest bit */
        int parent = rank_at(build, (int)(place - span));
        send_list(&m, m.mine, parent, (uint32_t)span);
        m.mine = recv_list(&m, weft_region_at(build->recv, 0, build->k),
                           weft_schedule_add_value(build->schedule, "kept", build->k), parent,
                           RESULT_TAG + 1);
    }
    for (span /= 2; more && span > 0; span /= 2) /* the largest subtree first */
        if (place + span < size)
            send_list(&m, m.mine, rank_at(build, (int)(place + span)), RESULT_TAG + 1);
    end(&m);
}

/* ---- butterflies ---- */

static void build_butterfly(struct weft__build *build, int limited)
{
    struct maker m;
    int exponent, size = build->size, power = weft__power_below(size, &exponent);

    if (limited)
        build->root = (int)(((uint64_t)build->root + build->version) % (uint64_t)build->size);
    else
        build->root = 0;
    int place = place_of(build), extras = size - power;
    int more = begin(&m, build, limited);
    size_t k = build->k;
    if (more && place >= power) { /* one of those beyond the power of two: another does it for it */
        int other = rank_at(build, place - power);
        send_list(&m, m.mine, other, EXTRA_TAG);
        size_t most = limited ? k : k * (size_t)size;
        m.mine =
            recv_list(&m, weft_region_at(build->recv, 0, most),
                      weft_schedule_add_value(build->schedule, "kept", most), other, RESULT_TAG);
    } else if (more) {
        /* Places that this rank's list stands for, and its partner's: all extras are of low places.
         */
        if (place < extras)
            receive_and_merge(&m, k, rank_at(build, place + power), EXTRA_TAG, 1, 0);
        for (int j = 0; j < exponent; j++) {
            int span = 1 << j, other = place ^ span, low = other & ~(span - 1);
            int doubled = extras - low < 0 ? 0 : extras - low < span ? extras - low : span;
            size_t most = limited ? k : k * (size_t)(span + doubled);
            send_list(&m, m.mine, rank_at(build, other), (uint32_t)j);
            receive_and_merge(&m, most, rank_at(build, other), (uint32_t)j,
                              (place & (2 * span - 1)) == 0, j == exponent - 1);
        }
        if (place < extras)
            send_list(&m, m.mine, rank_at(build, place + power), RESULT_TAG);
    }
    end(&m);
}

static void gtopk_butterfly(struct weft__build *build)
{
    build_butterfly(build, 1);
}

static void allgather_doubling(struct weft__build *build)
{
    build_butterfly(build, 0);
}

/* ---- costs: shape->bytes is that of k pairs ---- */

static double tree_cost(const struct weft__shape *shape)
{
    return 2 * weft__log2_ceil(shape->size) * weft__cost_message(shape, (double)shape->bytes);
}

static double butterfly_cost(const struct weft__shape *shape)
{
    int exponent, extra = weft__power_below(shape->size, &exponent) != shape->size;
    return (exponent + 2 * extra) * weft__cost_message(shape, (double)shape->bytes);
}

static double doubling_cost(const struct weft__shape *shape)
{
    int exponent, power = weft__power_below(shape->size, &exponent);
    double cost = 0, bytes = (double)shape->bytes;
    for (int span = 1; span < power; span *= 2)
        cost += weft__cost_message(shape, bytes * span * shape->size / power);
    if (power != shape->size)
        cost += weft__cost_message(shape, bytes) + weft__cost_message(shape, bytes * shape->size);
    return cost;
}

static void no_slots(struct weft__build *build)
{
    (void)build; /* they go with the algorithm */
}

static const struct weft_algorithm gtopk_algorithms[] = {
    {.name = "tree",
     .cost = "2 ceil(log2 P) (alpha + 8 k beta)",
     .notes = "merges to the root, then a binomial broadcast. Shi et al., ICDCS 2019, Algorithm 3",
     .ordered = 1},
    {.name = "butterfly",
     .cost = "log2 P (alpha + 8 k beta); P no power of two: + 2 (alpha + 8 k beta)",
     .notes = "every rank merges in every round; at powers of two bitwise the result of tree, else "
              "another one as valid",
     .ordered = 1},
};

static const struct weft__algorithm gtopk_impl[] = {
    {.build = build_tree, .cost = tree_cost, .goes = WEFT__FEW_BUSY},
    {.build = gtopk_butterfly, .cost = butterfly_cost, .goes = WEFT__EXCHANGES},
};

const struct weft__template weft__gtopk_template = {
    .public = {.name = "gtopk",
               .summary = "sparse sum of all ranks that keeps k pairs at every merge",
               .parameters = "count k root version algo",
               .result = "recv on every rank: the merge of send of all ranks; what merges drop is "
                         "added to their owners' residual, so that for every index recv + the "
                         "residuals of all ranks is what send + residuals were, but for a relative "
                         "(ceil(log2 P) + 1) 2^-24 of the sum of magnitudes",
               .algorithms = gtopk_algorithms,
               .algorithm_count = 2},
    .impl = gtopk_impl,
    .flags = WEFT__USES_ROOT | WEFT__USES_PAIRS | WEFT__FIXED,
    .slots = no_slots,
};

static const struct weft_algorithm allgather_algorithms[] = {
    {.name = "recursive-doubling",
     .cost = "log2 P alpha + (P - 1) 8 k beta; P no power of two: + 2 alpha + (P + 1) 8 k beta",
     .notes = "lists are added as they meet, so equal indices travel once. Shi et al., ICDCS 2019, "
              "equation 6",
     .ordered = 1},
};

static const struct weft__algorithm allgather_impl[] = {
    {.build = allgather_doubling, .cost = doubling_cost, .goes = WEFT__EXCHANGES},
};

const struct weft__template weft__topk_allgather_template = {
    .public = {.name = "topk-allgather",
               .summary = "sparse sum of all ranks that keeps everything",
               .parameters = "count k algo",
               .result = "recv on every rank: the sum of send of all ranks, up to P k pairs",
               .algorithms = allgather_algorithms,
               .algorithm_count = 1},
    .impl = allgather_impl,
    .flags = WEFT__USES_PAIRS,
    .slots = no_slots,
};
