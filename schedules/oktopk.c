/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ok-Topk: the sparse sum of all ranks by regions (Li and Hoefler, PPoPP 2022, section 3).
 *
 * Split and reduce: bounds, the same on all ranks, cut the vector into P regions; rank j owns
 * region j. Every rank sends the part of its list that lies in a region to the owner, first to the
 * next rank, then to the one after it, so that no owner hears from all at once. The owner adds what
 * arrives, in the order of ranks, and keeps what reaches a threshold.
 *
 * Allgather: the lists of the regions go round in ceil(log2 P) steps (Bruck): rank r holds the
 * regions [r, r + 2^i) modulo P, and takes as many from r + 2^i. Regions do not overlap, so lists
 * are put together without a merge, and are ascending in the end.
 *
 * A message is a list of c (index, value) pairs, as in gTop-k. The volume is bounded whatever the
 * data: a rank sends at most `share` pairs to an owner, those of largest magnitude, and an owner
 * passes on at most `quota`. What exceeds that stays in the residual of whoever would have sent it,
 * with the sums below the threshold: nothing is lost.
 */
#include <stdio.h>

#include <weft/memory.h>
#include <weft/sparse.h>

#include "schedules/common/template.h"

/* A list that a rank holds: a region whose value says how many pairs there are, at most its count.
 */
typedef struct weft_region list;

struct maker {
    struct weft__build *build;
    struct weft_op *op[WEFT_SPARSE_OP_COUNT];
    weft_slot_t bounds, threshold, residual, work;
    weft_value_t share_now, quota_now; /* of a run, below those that are planned */
    size_t share, quota, work_count;
    list own; /* the contribution */
};

enum { WORK_WORDS = 32, REGION_TAG = 1, PART_TAG = 0 };

/* ---- nodes ---- */

/* At most 2 + WEFT_SPARSE_FAN regions; bit i of `writes`: region i is written. */
static weft_node_t compute(struct maker *m, weft_sparse_op_kind_t kind,
                           const struct weft_region *regions, size_t count, uint64_t writes,
                           weft_value_t produces)
{
    struct weft__build *build = m->build;
    struct weft_compute_argument arguments[2 + WEFT_SPARSE_FAN];
    weft_node_t node;

    for (size_t i = 0; i < count; i++)
        arguments[i] =
            (struct weft_compute_argument){regions[i], writes >> i & 1 ? WEFT_WRITE : WEFT_READ};
    node = weft_schedule_add_compute(build->schedule, m->op[kind], arguments, count, produces);
    return weft_tracker_add(build->tracker, node);
}

/* A slot of scratch for lists of so many pairs in all. */
static struct weft_region scratch(struct maker *m, const char *name, size_t pairs)
{
    return weft_region_at(
        weft_schedule_add_slot(m->build->schedule, name, WEFT_U64, pairs, WEFT_SLOT_SCRATCH), 0,
        pairs);
}

static weft_value_t value_of(struct maker *m, const char *kind, int number, size_t most)
{
    char name[48];
    snprintf(name, sizeof name, "%s%d", kind, number);
    return weft_schedule_add_value(m->build->schedule, name, most);
}

static list with(struct weft_region region, weft_value_t value)
{
    region.value = value;
    return region;
}

static void send_list(struct maker *m, list what, int peer, uint32_t tag)
{
    weft_tracker_add(m->build->tracker,
                     weft_schedule_add_send(m->build->schedule, what, peer, tag));
}

static list recv_list(struct maker *m, struct weft_region into, weft_value_t value, int peer,
                      uint32_t tag)
{
    weft_tracker_add(m->build->tracker,
                     weft_schedule_add_recv_up_to(m->build->schedule, into, peer, tag, value));
    return with(into, value);
}

/* ---- memory to work in ---- */

static size_t work_of(size_t pairs)
{
    return pairs + weft_sparse_merge_workspace(WEFT_U32, WEFT_F32, pairs) / 8 + WORK_WORDS;
}

/* Work for so many pairs, and a limit behind it. */
static struct weft_region work_for(const struct maker *m, size_t pairs)
{
    return weft_region_at(m->work, 0, work_of(pairs));
}

static struct weft_region limit_of(const struct maker *m, size_t most, weft_value_t value)
{
    return with(weft_region_at(m->work, m->work_count, most), value);
}

/* ---- split and reduce ---- */

/* The part of a list in regions [first, last), to `out`; with a limit, the surplus to the residual.
 */
static list cut(struct maker *m, list from, int first, int last, struct weft_region out,
                weft_value_t value, weft_value_t limit)
{
    struct weft_region regions[6] = {
        out, from, weft_region_at(m->bounds, (size_t)first, (size_t)(last - first) + 1)};

    if (limit) {
        regions[3] = work_for(m, from.count);
        regions[4] = limit_of(m, out.count, limit);
        regions[5] = weft_region_at(m->residual, 0, m->build->count);
    }
    compute(m, WEFT_SPARSE_PART, regions, limit ? 6 : 3, limit ? 1u | 7u << 3 : 1u, value);
    return with(out, value);
}

/* The sum of lists, up to WEFT_SPARSE_FAN at a time; `level` tells sums apart. */
static list sum(struct maker *m, list *lists, size_t count, int level)
{
    size_t groups = 0, pairs = 0;
    char name[32];

    for (size_t i = 0; i < count; i++)
        pairs += lists[i].count;
    snprintf(name, sizeof name, "sums%d", level);
    struct weft_region sums = scratch(m, name, pairs), out = weft_region_at(sums.slot, 0, 0);

    for (size_t i = 0; i < count; groups++) {
        struct weft_region regions[2 + WEFT_SPARSE_FAN];
        size_t n = 0;

        out.offset += out.count;
        for (out.count = 0; n < WEFT_SPARSE_FAN && i < count; i++) {
            regions[2 + n++] = lists[i];
            out.count += lists[i].count;
        }
        regions[0] = out;
        regions[1] = work_for(m, out.count);
        snprintf(name, sizeof name, "sum%d_", level);
        lists[groups] = with(out, value_of(m, name, (int)groups, out.count));
        compute(m, WEFT_SPARSE_SUM, regions, 2 + n, 3u, lists[groups].value);
    }
    return groups > 1 ? sum(m, lists, groups, level + 1) : lists[0];
}

static int rank_after(const struct weft__build *build, int distance)
{
    return (int)(((int64_t)build->rank + distance) % build->size);
}

/* What the pairs of all ranks in the own region add up to. */
static list split_and_reduce(struct maker *m, list *lists)
{
    struct weft__build *build = m->build;
    size_t others = (size_t)build->size - 1, share = m->share;
    struct weft_region in = scratch(m, "in", others * share);
    struct weft_region parts = scratch(m, "parts", others * share);
    int rank = build->rank;

    for (int i = 1; i < build->size; i++) {
        int from = rank_after(build, build->size - i);
        lists[from] = recv_list(m, weft__part(in, (size_t)(i - 1) * share, share),
                                value_of(m, "in", i, share), from, PART_TAG);
    }
    for (int i = 1; i < build->size; i++) {
        int to = rank_after(build, i);
        list part = cut(m, m->own, to, to + 1, weft__part(parts, (size_t)(i - 1) * share, share),
                        value_of(m, "part", i, share), m->share_now);
        send_list(m, part, to, PART_TAG);
    }
    lists[rank] = cut(m, m->own, rank, rank + 1, scratch(m, "own", build->k),
                      value_of(m, "own", 0, build->k), 0);
    return sum(m, lists, (size_t)build->size, 0);
}

/* What the owner passes on. */
static list keep(struct maker *m, list from, struct weft_region out, weft_value_t value)
{
    struct weft_region regions[6] = {out,
                                     from,
                                     weft_region_at(m->threshold, 0, 1),
                                     work_for(m, from.count),
                                     limit_of(m, out.count, m->quota_now),
                                     weft_region_at(m->residual, 0, m->build->count)};

    compute(m, WEFT_SPARSE_KEEP, regions, 6, 1u | 7u << 3, value);
    return with(out, value);
}

/* ---- allgather ---- */

static list join(struct maker *m, list a, list b, struct weft_region out, weft_value_t value)
{
    struct weft_region regions[3] = {out, a, b};

    compute(m, WEFT_SPARSE_JOIN, regions, 3, 1u, value);
    return with(out, value);
}

/* The first `span` of the regions that are held, which begin with the own one and may begin again
 * at 0. */
static list front(struct maker *m, list held, int span)
{
    struct weft__build *build = m->build;
    int rank = build->rank, high = rank + span <= build->size ? span : build->size - rank;
    size_t most = (size_t)span * m->quota, split = (size_t)high * m->quota;
    struct weft_region out = scratch(m, "front", most);

    if (high == span)
        return cut(m, held, rank, rank + span, out, value_of(m, "front", 0, most), 0);
    struct weft_region ends = scratch(m, "ends", most);
    list upper = cut(m, held, rank, build->size, weft__part(ends, 0, split),
                     value_of(m, "ends", 0, split), 0);
    list lower = cut(m, held, 0, span - high, weft__part(ends, split, most - split),
                     value_of(m, "ends", 1, most - split), 0);
    return join(m, upper, lower, out, value_of(m, "front", 0, most));
}

static list allgather(struct maker *m, list held)
{
    struct weft__build *build = m->build;
    int size = build->size, step = 0;

    for (int span = 1; span < size; step++) {
        int more = span < size - span ? span : size - span; /* regions that come */
        int from = rank_after(build, span), to = rank_after(build, size - span);
        size_t most = (size_t)more * m->quota, both = (size_t)(span + more) * m->quota;
        uint32_t tag = REGION_TAG + (uint32_t)step;
        char name[32];

        snprintf(name, sizeof name, "got%d", step);
        struct weft_region into = scratch(m, name, most);
        list give = more < span ? front(m, held, more) : held;

        send_list(m, give, to, tag);
        list got = recv_list(m, into, value_of(m, "got", step, most), from, tag);
        snprintf(name, sizeof name, "held%d", step);
        int last = span + more == size;
        held =
            join(m, held, got, last ? weft_region_at(build->recv, 0, both) : scratch(m, name, both),
                 last ? weft_schedule_add_value(build->schedule, "kept", both)
                      : value_of(m, "held", step, both));
        span += more;
    }
    return held;
}

/* ---- the slots, the beginning and the end ---- */

static int begin(struct maker *m, struct weft__build *build)
{
    struct weft_schedule *schedule = build->schedule;
    size_t others = (size_t)build->size - 1;

    *m = (struct maker){.build = build};
    if (!build->status)
        build->status = weft_sparse_region_limits(build->k, build->size, &m->share, &m->quota);
    for (int i = 0; !build->status && i < WEFT_SPARSE_OP_COUNT; i++)
        build->status = weft_sparse_op((weft_sparse_op_kind_t)i, &m->op[i]);
    if (build->status)
        return 0;
    build->send = weft_schedule_add_slot(schedule, "send", WEFT_U64, build->k, WEFT_SLOT_INPUT);
    build->recv = weft_schedule_add_slot(schedule, "recv", WEFT_U64, m->quota * (others + 1),
                                         WEFT_SLOT_OUTPUT);
    m->residual =
        weft_schedule_add_slot(schedule, "residual", WEFT_F32, build->count, WEFT_SLOT_INOUT);
    m->bounds = weft_schedule_add_slot(schedule, "bounds", WEFT_U64, others + 2, WEFT_SLOT_INPUT);
    m->threshold = weft_schedule_add_slot(schedule, "threshold", WEFT_F32, 1, WEFT_SLOT_INPUT);
    if (!build->k)
        return 0;
    m->own = with(weft_region_at(build->send, 0, build->k),
                  weft_schedule_add_value(schedule, "pairs", build->k));
    m->share_now = weft_schedule_add_value(schedule, "share", m->share);
    m->quota_now = weft_schedule_add_value(schedule, "quota", m->quota);
    /* To work in: at most the list of this rank and the shares of the others, and a limit behind
     * it. */
    m->work_count = work_of(build->k + others * m->share);
    m->work = scratch(m, "work", m->work_count + (m->share > m->quota ? m->share : m->quota)).slot;
    struct weft_region regions[3] = {weft_region_at(m->bounds, 0, others + 2), m->own,
                                     weft_region_at(m->residual, 0, build->count)};
    compute(m, WEFT_SPARSE_BOUNDS, regions, 3, 0, 0);
    return 1;
}

static void end(struct maker *m, list kept)
{
    struct weft__build *build = m->build;
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = with(weft_region_at(build->recv, 0, build->k), kept.value),
                                 .from = "send",
                                 .ranks = build->size,
                                 .op = m->op[WEFT_SPARSE_MERGE]};

    if (kept.value)
        weft_schedule_add_result(build->schedule, &result);
    for (int i = 0; i < WEFT_SPARSE_OP_COUNT; i++)
        weft_op_destroy(m->op[i]);
}

static void build_regions(struct weft__build *build)
{
    struct maker m;
    list kept = {0}, *lists = weft_memory_alloc((size_t)build->size, sizeof *lists);

    if (!lists && !build->status)
        build->status = weft_error_set(
            WEFT_ERR_MEMORY, "oktopk: out of memory for the lists of %d ranks", build->size);
    if (begin(&m, build)) {
        int alone = build->size == 1;
        list region = alone ? m.own : split_and_reduce(&m, lists);

        kept =
            keep(&m, region,
                 alone ? weft_region_at(build->recv, 0, m.quota) : scratch(&m, "region", m.quota),
                 alone ? weft_schedule_add_value(build->schedule, "kept", m.quota)
                       : value_of(&m, "region", 0, m.quota));
        if (!alone)
            kept = allgather(&m, kept);
    }
    end(&m, kept);
    weft_memory_free(lists);
}

/* ---- cost: shape->bytes is that of k pairs ---- */

static double cost(const struct weft__shape *shape)
{
    size_t share = 0, quota = 0;
    double time = 0;

    if (weft_sparse_region_limits(shape->bytes / 8, shape->size, &share, &quota))
        return 0;
    time += (shape->size - 1) * weft__cost_message(shape, 8.0 * (double)share);
    for (int span = 1; span < shape->size; span *= 2) {
        int more = span < shape->size - span ? span : shape->size - span;
        time += weft__cost_message(shape, 8.0 * (double)quota * more);
    }
    return time;
}

static void no_slots(struct weft__build *build)
{
    (void)build; /* they go with the algorithm */
}

static const struct weft_algorithm algorithms[] = {
    {.name = "regions",
     .cost = "(P - 1 + ceil(log2 P)) alpha + (P - 1)/P 24 k beta",
     .notes =
         "balanced split and reduce, then an allgather of irregular sizes: at most 6k(P - 1)/P "
         "elements a rank if k >= P. Li and Hoefler, PPoPP 2022, section 3",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = build_regions, .cost = cost},
};

const struct weft__template weft__oktopk_template = {
    .public = {.name = "oktopk",
               .summary = "sparse sum of all ranks, each adding up one region, in a bounded volume",
               .parameters = "count k algo",
               .result =
                   "recv on every rank: of the sum of send of all ranks what reaches the "
                   "threshold, at most quota pairs a region (about 1.5 k in all); the rest is "
                   "added to residuals",
               .algorithms = algorithms,
               .algorithm_count = 1},
    .impl = impl,
    .flags = WEFT__USES_PAIRS,
    .slots = no_slots,
};
