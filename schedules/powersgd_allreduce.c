/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce of matrices as products of two thin ones, M = P Q^T, of which only the factors travel;
 * what is no matrix travels with the first of them.
 *
 *     P = M Q                  | P of block 0 | P of block 1 | .. | what is sent as it is |
 *     allreduce                of all of that together
 *     P = orthonormal P
 *     Q = M^T P                | Q of block 0 | Q of block 1 | ..
 *     allreduce                of all of that together
 *     the sum is P Q^T
 *
 * Source: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
 * Distributed Optimization" (NeurIPS 2019), Algorithm 1. P Q^T is P P^T times the sum of all M, so
 * it is linear in what ranks have, once P is known, and a rank's share of it is P (M^T P)^T.
 */
#include <stdio.h>

#include <weft/compress.h>

#include "schedules/common/template.h"

/* Multiply-adds a microsecond of one core, about, in f64. */
#define PRODUCTS_PER_US 2e3

/* A block, where its elements begin in the vector and in what is sent, and what serves it. */
struct block {
    size_t count, slice, rank; /* rank 0: sent as it is */
    size_t offset, left, right, work;
    weft_slot_t factor;
    struct weft_op *project, *orthonormalise, *correlate,
        *reconstruct; /* or the block's before it */
    int owns;
};

struct maker {
    struct weft__build *build;
    struct block *blocks;
    size_t count;
    weft_slot_t left, right; /* P, and what is sent as it is; Q */
    weft_slot_t share;       /* the own Q; -1: nobody wants to know */
    weft_slot_t sent, work;
    size_t left_count, right_count, work_count;
};

/* ---- regions ---- */

static struct weft_region contribution(const struct maker *m, const struct block *block)
{
    const struct weft__build *build = m->build;
    return weft_region_at(build->in_place ? build->recv : build->send, block->offset, block->count);
}

static struct weft_region result_of(const struct maker *m, const struct block *block)
{
    return weft_region_at(m->build->recv, block->offset, block->count);
}

static size_t left_of(const struct block *block)
{
    return block->rank ? block->count / block->slice * block->rank : block->count;
}

static size_t right_of(const struct block *block)
{
    return block->slice * block->rank;
}

static struct weft_region left(const struct maker *m, const struct block *block)
{
    return weft_region_at(m->left, block->left, left_of(block));
}

/* In "right" or in "share". */
static struct weft_region right(const struct block *block, weft_slot_t slot)
{
    return weft_region_at(slot, block->right, right_of(block));
}

static struct weft_region factor_of(const struct block *block)
{
    return weft_region_at(block->factor, 0, right_of(block));
}

/* ---- nodes ---- */

static void compute(const struct maker *m, const struct weft_op *op, struct weft_region to,
                    struct weft_region a, struct weft_region b)
{
    const struct weft_compute_argument arguments[] = {
        {to, WEFT_WRITE}, {a, WEFT_READ}, {b, WEFT_READ}};
    weft_tracker_add(m->build->tracker,
                     weft_schedule_add_compute(m->build->schedule, op, arguments, 3, 0));
}

static void orthonormalise(const struct maker *m, const struct block *block)
{
    const struct weft_compute_argument arguments[] = {
        {left(m, block), WEFT_UPDATE},
        {weft_region_at(m->work, block->work, WEFT_ORTHONORMALISE_WORK(block->rank)), WEFT_WRITE}};
    weft_tracker_add(
        m->build->tracker,
        weft_schedule_add_compute(m->build->schedule, block->orthonormalise, arguments, 2, 0));
}

static void first_half(const struct maker *m)
{
    for (size_t b = 0; b < m->count; b++) {
        const struct block *block = &m->blocks[b];
        if (block->count && block->rank)
            compute(m, block->project, left(m, block), contribution(m, block), factor_of(block));
        else
            weft__build_copy(m->build, left(m, block), contribution(m, block));
    }
}

static void second_half(const struct maker *m)
{
    for (size_t b = 0; b < m->count; b++) {
        const struct block *block = &m->blocks[b];
        if (!block->count || !block->rank)
            continue;
        orthonormalise(m, block);
        compute(m, block->correlate, right(block, m->right), contribution(m, block),
                left(m, block));
        if (m->sent >= 0)
            weft__build_copy(m->build, right(block, m->share), right(block, m->right));
    }
}

/* This rank's share: behind the second allreduce, so that it holds up no message. */
static void tell_share(const struct maker *m)
{
    for (size_t b = 0; b < m->count && m->sent >= 0; b++) {
        const struct block *block = &m->blocks[b];
        struct weft_region to = weft_region_at(m->sent, block->offset, block->count);
        if (block->count && block->rank)
            compute(m, block->reconstruct, to, left(m, block), right(block, m->share));
        else
            weft__build_copy(m->build, to, contribution(m, block));
    }
}

static void give_result(const struct maker *m)
{
    for (size_t b = 0; b < m->count; b++) {
        const struct block *block = &m->blocks[b];
        if (!block->count || !block->rank) {
            weft__build_copy(m->build, result_of(m, block), left(m, block));
            continue;
        }
        compute(m, block->reconstruct, result_of(m, block), left(m, block), right(block, m->right));
        weft__build_copy(m->build, factor_of(block), right(block, m->right));
    }
}

/* ---- the beginning and the end ---- */

static int make_ops(const struct maker *m, struct block *block)
{
    const struct block *before = block > m->blocks ? block - 1 : NULL;
    const struct {
        weft_compress_op_kind_t kind;
        size_t slice;
        struct weft_op **op;
    } ops[] = {{WEFT_COMPRESS_PROJECT, block->slice, &block->project},
               {WEFT_COMPRESS_ORTHONORMALISE, block->rank, &block->orthonormalise},
               {WEFT_COMPRESS_CORRELATE, block->slice, &block->correlate},
               {WEFT_COMPRESS_RECONSTRUCT, block->slice, &block->reconstruct}};
    int status = WEFT_OK;
    if (before && before->rank == block->rank && before->slice == block->slice) {
        block->project = before->project;
        block->orthonormalise = before->orthonormalise;
        block->correlate = before->correlate;
        block->reconstruct = before->reconstruct;
        return WEFT_OK;
    }
    block->owns = 1;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0] && !status; i++) {
        const struct weft_compress_op_config config = {
            .struct_size = sizeof config, .kind = ops[i].kind, .slice = ops[i].slice};
        status = weft_compress_op(&config, ops[i].op);
    }
    return status;
}

/* Its place, its slot, and what is stated of it. */
static int begin_block(struct maker *m, struct block *block)
{
    struct weft__build *build = m->build;
    const struct weft_result result = {.struct_size = sizeof result,
                                       .dst = result_of(m, block),
                                       .from = build->in_place ? "recv" : "send",
                                       .offset = block->offset,
                                       .ranks = build->size,
                                       .op = build->size > 1 ? build->op : NULL,
                                       .lossy = block->rank > 0};
    char name[48];
    block->left = m->left_count;
    block->right = m->right_count;
    block->work = m->work_count;
    m->left_count += left_of(block);
    if (block->count)
        weft_schedule_add_result(build->schedule, &result);
    if (!block->rank)
        return WEFT_OK;
    m->right_count += block->count ? right_of(block) : 0;
    m->work_count += WEFT_ORTHONORMALISE_WORK(block->rank);
    snprintf(name, sizeof name, "factor.%zu", (size_t)(block - m->blocks));
    block->factor = weft__build_slot(build, name, right_of(block), WEFT_SLOT_INOUT);
    return make_ops(m, block);
}

static int begin(struct maker *m, struct weft__build *build)
{
    const struct weft__blocks *blocks = &build->blocks;
    size_t offset = 0;
    *m = (struct maker){.build = build, .count = blocks->count, .sent = -1, .share = -1};
    weft__build_pair(build, build->count, build->count);
    m->blocks = weft_memory_alloc(m->count ? m->count : 1, sizeof *m->blocks);
    if (!m->blocks)
        build->status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu blocks", m->count);
    for (size_t b = 0; b < m->count && !build->status; b++) {
        const struct weft_compressed_block *shape = weft__blocks_at(blocks, b);
        m->blocks[b] = (struct block){.count = shape->count,
                                      .slice = shape->slice,
                                      .rank = shape->slice ? shape->components : 0,
                                      .offset = offset,
                                      .factor = -1};
        offset += shape->count;
        build->status = begin_block(m, &m->blocks[b]);
    }
    if (build->status)
        return 0;
    m->left = weft__build_slot(build, "left", m->left_count, WEFT_SLOT_SCRATCH);
    m->right = weft__build_slot(build, "right", m->right_count, WEFT_SLOT_SCRATCH);
    m->work =
        weft_schedule_add_slot(build->schedule, "work", WEFT_F64, m->work_count, WEFT_SLOT_SCRATCH);
    if (build->sent) {
        m->sent = weft__build_slot(build, "sent", build->count, WEFT_SLOT_OUTPUT);
        m->share = weft__build_slot(build, "share", m->right_count, WEFT_SLOT_SCRATCH);
    }
    return 1;
}

static void end(struct maker *m)
{
    for (size_t b = 0; m->blocks && b < m->count; b++)
        if (m->blocks[b].owns) {
            weft_op_destroy(m->blocks[b].project);
            weft_op_destroy(m->blocks[b].orthonormalise);
            weft_op_destroy(m->blocks[b].correlate);
            weft_op_destroy(m->blocks[b].reconstruct);
        }
    weft_memory_free(m->blocks);
}

/* `algorithm`: of allreduce. */
static void build_by(struct weft__build *build, size_t algorithm)
{
    struct maker m;
    if (begin(&m, build)) {
        build->turns = 2;
        first_half(&m);
        weft__build_allreduce(build, algorithm, m.left, m.left_count);
        second_half(&m);
        build->turn = 1;
        weft__build_allreduce(build, algorithm, m.right, m.right_count);
        tell_share(&m);
        give_result(&m);
    }
    end(&m);
}

/* ---- costs ---- */

static double allreduce_cost(const struct weft__shape *shape, size_t algorithm, size_t count)
{
    struct weft__shape inner = *shape;
    inner.bytes = count * sizeof(float);
    inner.largest = (double)inner.bytes;
    inner.total = (double)inner.bytes * shape->size;
    return shape->size > 1 && count ? weft__allreduce_template.impl[algorithm].cost(&inner) : 0;
}

static double cost_of(const struct weft__shape *shape, size_t algorithm)
{
    size_t left_count = 0, right_count = 0;
    double products = 0;
    for (size_t b = 0; b < shape->blocks.count; b++) {
        const struct weft_compressed_block *shaped = weft__blocks_at(&shape->blocks, b);
        struct block block = {.count = shaped->count,
                              .slice = shaped->slice,
                              .rank = shaped->slice ? shaped->components : 0};
        left_count += left_of(&block);
        right_count += right_of(&block);
        products += 4.0 * (double)left_of(&block) * (double)block.rank;
    }
    return allreduce_cost(shape, algorithm, left_count) +
           allreduce_cost(shape, algorithm, right_count) + 3 * weft__blocks_cost(shape) +
           products / PRODUCTS_PER_US;
}

/* ---- the template ---- */

static void no_slots(struct weft__build *build)
{
    (void)build; /* they go with the blocks */
}

/* A function an algorithm of allreduce: NAME_build, NAME_cost. */
#define ALGORITHM(name, index)                                                                     \
    static void name##_build(struct weft__build *build)                                            \
    {                                                                                              \
        build_by(build, index);                                                                    \
    }                                                                                              \
                                                                                                   \
    static double name##_cost(const struct weft__shape *shape)                                     \
    {                                                                                              \
        return cost_of(shape, index);                                                              \
    }

ALGORITHM(doubling, 0)
ALGORITHM(halving, 1)
ALGORITHM(ring, 2)

static const struct weft_algorithm algorithms[] = {
    {.name = "recursive-doubling",
     .cost = "3 c + o + an allreduce of all P and one of all Q; c: multiplying by a thin matrix; "
             "o: making P orthonormal",
     .notes = "both as allreduce has it; the same on all ranks and in every run. PowerSGD, NeurIPS "
              "2019, Algorithm 1",
     .ordered = 1},
    {.name = "reduce-scatter-allgather",
     .cost = "3 c + o + an allreduce of all P and one of all Q",
     .notes = "bitwise the result of recursive-doubling",
     .ordered = 1},
    {.name = "ring",
     .cost = "3 c + o + an allreduce of all P and one of all Q",
     .notes = "both as allreduce has it; the same on all ranks and in every run",
     .ordered = 0},
};

static const struct weft__algorithm impl[] = {
    {.build = doubling_build, .cost = doubling_cost, .goes = WEFT__EXCHANGES},
    {.build = halving_build, .cost = halving_cost, .goes = WEFT__EXCHANGES},
    {.build = ring_build, .cost = ring_cost},
};

const struct weft__template weft__powersgd_allreduce_template = {
    .public = {.name = "powersgd-allreduce",
               .summary = "sums of matrices by thin factors, in two allreduces (PowerSGD)",
               .parameters = "count slice components algo segment",
               .result = "recv[i] on every rank: send[i] of ranks 0 .. P-1 added up, but for what "
                         "the rank of the factors leaves out",
               .algorithms = algorithms,
               .algorithm_count = 3},
    .impl = impl,
    .flags = WEFT__USES_DATA | WEFT__SUMS_F32 | WEFT__USES_BLOCKS | WEFT__WHOLE_ROWS,
    .slots = no_slots,
};
