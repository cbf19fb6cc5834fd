/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce of what is projected onto a few components: what ranks have projected by one basis is
 * added as it is, and reconstructed once.
 *
 *     send     | slice | slice | slice | .. | raw |     blocks, each with a basis of its own
 *                  |       |       |           |
 *               project project project      copy
 *                  |       |       |           |
 *     compressed  |d|     |d|     |d|       | raw |     what travels
 *
 * Source: Yu, Lin, Narra et al., "GradiVeQ: Vector Quantization for Bandwidth-Efficient Gradient
 * Aggregation in Distributed CNN Training" (NeurIPS 2018). Its Algorithm 1 is `ring`.
 *
 * Of the nodes of a rank that could start, the engine takes the one that was added first. So what
 * compresses stands behind the messages that it is not needed for, and what decompresses behind all
 * messages: both fill the time in which segments travel, and hold none up.
 */
#include <math.h>
#include <stdio.h>

#include <weft/compress.h>

#include "schedules/common/template.h"

enum { HALVING = 1 }; /* among the algorithms of allreduce */
enum { SQUARES = 3 }; /* of a block */

/* A block, where its elements begin in the vector and in what is sent, and what serves it. */
struct block {
    struct weft_compressed_block shape;
    size_t offset, sent;
    weft_slot_t basis, mean;
    struct weft_op *project, *reconstruct; /* the block's before it, if it has the same slices */
    int owns;
};

struct maker {
    struct weft__build *build;
    struct block *blocks;
    size_t count;
    weft_slot_t compressed, squares;
    size_t sent; /* elements of what is sent */
};

/* Slices first .. end - 1 of a block, in the vector and in what is sent. */
struct range {
    size_t begin, count;
    size_t sent_begin, sent_count;
};

/* ---- segments ---- */

/* The first slice of a block that begins at or behind an element of what is sent. An element of a
 * block that is sent as it is counts as a slice. */
static size_t slice_at(const struct block *block, size_t element)
{
    size_t each = block->shape.slice ? block->shape.components : 1;
    size_t sent = weft__block_sent(&block->shape);
    if (element <= block->sent || !each)
        return 0;
    element -= block->sent;
    return element >= sent ? sent / each : element / each + (element % each != 0);
}

/* What of a block is in segment `index` of `segments`: whole slices. */
static struct range range_of(const struct maker *m, const struct block *block, int index,
                             int segments)
{
    size_t slice = block->shape.slice ? block->shape.slice : 1;
    size_t each = block->shape.slice ? block->shape.components : 1;
    size_t first = slice_at(block, weft__block_offset(m->sent, segments, index));
    size_t end = slice_at(block, weft__block_offset(m->sent, segments, index + 1));
    struct range range = {.begin = first * slice,
                          .sent_begin = block->sent + first * each,
                          .sent_count = (end - first) * each};
    size_t behind = end * slice;
    range.count = (behind < block->shape.count ? behind : block->shape.count) - range.begin;
    range.begin += block->offset;
    return range;
}

/* Segments are in the order of blocks: the first block that is in one, by bisection. */
static size_t first_block(const struct maker *m, size_t element)
{
    size_t low = 0, high = m->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (m->blocks[middle].sent <= element)
            low = middle;
        else
            high = middle;
    }
    /* Of those that begin there the first: blocks may send nothing. */
    while (low > 0 && m->blocks[low].sent == element && m->blocks[low - 1].sent == element)
        low--;
    return low;
}

/* Of a segment what is sent. */
static struct weft_region sent_of(const struct maker *m, int index, int segments)
{
    size_t begin = weft__block_offset(m->sent, segments, index);
    size_t last = weft__block_offset(m->sent, segments, index + 1);
    size_t from = m->sent, end = 0;
    for (size_t b = first_block(m, begin); b < m->count && m->blocks[b].sent < last; b++) {
        struct range range = range_of(m, &m->blocks[b], index, segments);
        if (!range.sent_count)
            continue;
        from = range.sent_begin < from ? range.sent_begin : from;
        end = range.sent_begin + range.sent_count;
    }
    return weft_region_at(m->compressed, from < end ? from : 0, from < end ? end - from : 0);
}

/* ---- nodes ---- */

static struct weft_region contribution(const struct maker *m, size_t offset, size_t count)
{
    const struct weft__build *build = m->build;
    return weft_region_at(build->in_place ? build->recv : build->send, offset, count);
}

static struct weft_region basis_of(const struct block *block)
{
    return weft_region_at(block->basis, 0, block->shape.slice * block->shape.components);
}

/* The part of a block's mean for elements of the vector. */
static struct weft_region mean_of(const struct block *block, size_t begin, size_t count)
{
    return weft_region_at(block->mean, begin - block->offset, count);
}

static void add(const struct maker *m, weft_node_t node)
{
    weft_tracker_add(m->build->tracker, node);
}

/* The own contribution to a range of a block, to what is sent. */
static void compress_range(const struct maker *m, const struct block *block,
                           const struct range *range)
{
    struct weft__build *build = m->build;
    struct weft_region from = contribution(m, range->begin, range->count);
    struct weft_region to = weft_region_at(m->compressed, range->sent_begin, range->sent_count);
    size_t number = (size_t)(block - m->blocks);

    if (!range->count)
        return;
    if (!block->shape.slice) {
        add(m, weft_schedule_add_copy(build->schedule, to, from));
        return;
    }
    const struct weft_compute_argument arguments[] = {
        {to, WEFT_WRITE},
        {from, WEFT_READ},
        {basis_of(block), WEFT_READ},
        {mean_of(block, range->begin, range->count), WEFT_READ},
        {weft_region_at(m->squares, SQUARES * number, SQUARES), WEFT_UPDATE}};
    add(m, weft_schedule_add_compute(build->schedule, block->project, arguments, 5, 0));
}

/* The sum of a range, from what was sent. */
static void decompress_range(const struct maker *m, const struct block *block,
                             const struct range *range)
{
    struct weft__build *build = m->build;
    struct weft_region from = weft_region_at(m->compressed, range->sent_begin, range->sent_count);
    struct weft_region to = weft_region_at(build->recv, range->begin, range->count);

    if (!range->count)
        return;
    if (!block->shape.slice) {
        add(m, weft_schedule_add_copy(build->schedule, to, from));
        return;
    }
    const struct weft_compute_argument arguments[] = {
        {to, WEFT_WRITE},
        {from, WEFT_READ},
        {basis_of(block), WEFT_READ},
        {mean_of(block, range->begin, range->count), WEFT_READ}};
    add(m, weft_schedule_add_compute(build->schedule, block->reconstruct, arguments, 4, 0));
}

static void each_range(const struct maker *m, int index, int segments,
                       void (*function)(const struct maker *, const struct block *,
                                        const struct range *))
{
    size_t begin = weft__block_offset(m->sent, segments, index);
    size_t last = weft__block_offset(m->sent, segments, index + 1);
    for (size_t b = first_block(m, begin); b < m->count && m->blocks[b].sent < last; b++) {
        struct range range = range_of(m, &m->blocks[b], index, segments);
        if (range.sent_count)
            function(m, &m->blocks[b], &range);
    }
}

/* Blocks of which nothing is sent: the sum is taken to be the mean. */
static void take_means(const struct maker *m)
{
    struct weft__build *build = m->build;
    for (size_t b = 0; b < m->count; b++) {
        const struct block *block = &m->blocks[b];
        size_t begin = block->offset, count = block->shape.count;
        if (!block->shape.slice || block->shape.components || !count)
            continue;
        const struct weft_compute_argument arguments[] = {
            {weft_region_at(m->compressed, 0, 0), WEFT_WRITE},
            {contribution(m, begin, count), WEFT_READ},
            {weft_region_at(block->mean, 0, 0), WEFT_READ}, /* a basis of no columns */
            {mean_of(block, begin, count), WEFT_READ},
            {weft_region_at(m->squares, SQUARES * b, SQUARES), WEFT_UPDATE}};
        add(m, weft_schedule_add_compute(build->schedule, block->project, arguments, 5, 0));
        weft__build_copy(build, weft_region_at(build->recv, begin, count),
                         mean_of(block, begin, count));
    }
}

/* ---- the beginning and the end ---- */

static int make_ops(struct maker *m, struct block *block)
{
    struct weft_compress_op_config config = {.struct_size = sizeof config,
                                             .slice = block->shape.slice};
    const struct block *before = block > m->blocks ? block - 1 : NULL;
    if (before && before->shape.slice == block->shape.slice) {
        block->project = before->project;
        block->reconstruct = before->reconstruct;
        return WEFT_OK;
    }
    block->owns = 1;
    config.kind = WEFT_COMPRESS_PROJECT;
    int status = weft_compress_op(&config, &block->project);
    config.kind = WEFT_COMPRESS_RECONSTRUCT;
    return status ? status : weft_compress_op(&config, &block->reconstruct);
}

/* The slots of a block with slices, and what is stated of any. */
static int begin_block(struct maker *m, size_t number)
{
    struct weft__build *build = m->build;
    struct block *block = &m->blocks[number];
    const struct weft_compressed_block *shape = &block->shape;
    const char *own = build->in_place ? "recv" : "send";
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(build->recv, block->offset, shape->count),
                                 .from = own,
                                 .offset = block->offset,
                                 .ranks = build->size,
                                 .op = build->size > 1 ? build->op : NULL,
                                 .lossy = shape->slice > 0};
    char name[48];
    int status = WEFT_OK;
    if (shape->slice && shape->components) {
        snprintf(name, sizeof name, "basis.%zu", number);
        block->basis =
            weft__build_slot(build, name, shape->slice * shape->components, WEFT_SLOT_INPUT);
    }
    snprintf(name, sizeof name, "mean.%zu", number);
    if (shape->slice) {
        block->mean = weft__build_slot(build, name, shape->count, WEFT_SLOT_INPUT);
        status = make_ops(m, block);
    }
    if (shape->slice && !shape->components) {
        result.from = name;
        result.offset = 0;
        result.first = build->rank;
        result.ranks = 1;
        result.op = NULL;
    }
    if (shape->count)
        weft_schedule_add_result(build->schedule, &result);
    return status;
}

static int begin(struct maker *m, struct weft__build *build)
{
    const struct weft__blocks *blocks = &build->blocks;
    size_t offset = 0, sliced = 0;
    *m = (struct maker){.build = build, .count = blocks->count, .squares = -1};
    m->sent = weft__blocks_sent(blocks);
    weft__build_pair(build, build->count, build->count);
    m->blocks = weft_memory_alloc(m->count ? m->count : 1, sizeof *m->blocks);
    if (!m->blocks)
        build->status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu blocks", m->count);
    for (size_t b = 0, sent = 0; b < m->count && !build->status; b++) {
        const struct weft_compressed_block *shape = weft__blocks_at(blocks, b);
        m->blocks[b] = (struct block){
            .shape = *shape, .offset = offset, .sent = sent, .basis = -1, .mean = -1};
        offset += shape->count;
        sent += weft__block_sent(shape);
        sliced += shape->slice > 0;
        build->status = begin_block(m, b);
    }
    if (build->status)
        return 0;
    if (sliced)
        m->squares = weft_schedule_add_slot(build->schedule, "squares", WEFT_F64,
                                            SQUARES * m->count, WEFT_SLOT_INOUT);
    m->compressed = weft__build_slot(build, "compressed", m->sent, WEFT_SLOT_SCRATCH);
    return 1;
}

static void end(struct maker *m)
{
    for (size_t b = 0; m->blocks && b < m->count; b++)
        if (m->blocks[b].owns) {
            weft_op_destroy(m->blocks[b].project);
            weft_op_destroy(m->blocks[b].reconstruct);
        }
    weft_memory_free(m->blocks);
}

/* ---- ring ---- */

static int modulo(int number, int size)
{
    return number < 0 ? number + size : number;
}

/* Algorithm 1, lines 3-8: what arrives is added to what has been compressed meanwhile. */
static void first_lap(const struct maker *m, struct weft_region *in, int right, int left)
{
    struct weft__build *build = m->build;
    int size = build->size, rank = build->rank;
    weft__build_reserve(build, m->sent, (size_t)size);
    for (int s = 0; s < size - 1; s++) {
        in[s] = weft__build_scratch(build, sent_of(m, modulo(rank - s - 1, size), size).count);
        weft__build_recv(build, in[s], left, (uint64_t)s);
    }
    each_range(m, rank, size, compress_range);
    for (int s = 0; s < size - 1; s++) {
        int next = modulo(rank - s - 1, size);
        struct weft_region sum = sent_of(m, next, size);
        weft__build_send(build, sent_of(m, modulo(rank - s, size), size), right, (uint64_t)s);
        each_range(m, next, size, compress_range);
        weft__build_reduce_segments(build, sum, in[s], sum);
    }
}

/* Lines 10-13: every segment is kept for the next rank, as it came. */
static void second_lap(const struct maker *m, int right, int left)
{
    struct weft__build *build = m->build;
    int size = build->size, rank = build->rank;
    for (int s = 0; s < size - 1; s++) {
        int out = modulo(rank - s + 1, size) % size, next = modulo(rank - s, size);
        uint64_t message = (uint64_t)size + (uint64_t)s;
        weft__build_send(build, sent_of(m, out, size), right, message);
        weft__build_recv(build, sent_of(m, next, size), left, message);
    }
    for (int s = 0; s < size; s++)
        each_range(m, modulo(rank - s + 1, size) % size, size, decompress_range);
}

static void ring(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    struct maker m;
    if (begin(&m, build)) {
        struct weft_region *in = weft_memory_alloc((size_t)size, sizeof *in);
        int right = rank + 1 < size ? rank + 1 : 0, left = rank > 0 ? rank - 1 : size - 1;
        if (in) {
            first_lap(&m, in, right, left);
            second_lap(&m, right, left);
            take_means(&m);
        } else {
            build->status =
                weft_error_set(WEFT_ERR_MEMORY, "out of memory for the segments of %d ranks", size);
        }
        weft_memory_free(in);
    }
    end(&m);
}

/* ---- halving and doubling ---- */

static void halving(struct weft__build *build)
{
    struct maker m;
    if (begin(&m, build)) {
        for (int i = 0; i < build->size; i++)
            each_range(&m, i, build->size, compress_range);
        weft__build_allreduce(build, HALVING, m.compressed, m.sent);
        for (int i = 0; i < build->size; i++)
            each_range(&m, i, build->size, decompress_range);
        take_means(&m);
    }
    end(&m);
}

/* ---- costs ---- */

/* A segment is compressed while one travels, and decompressed while one travels: the slower counts,
 * but for the first of the one and the last of the other. */
static double ring_cost(const struct weft__shape *shape)
{
    double bytes = ceil((double)weft__blocks_sent(&shape->blocks) * sizeof(float) / shape->size);
    double work = weft__blocks_cost(shape) / shape->size;
    return 2 * work + (shape->size - 1) * (fmax(weft__cost_combine(shape, bytes), work) +
                                           fmax(weft__cost_message(shape, bytes), work));
}

/* All is compressed before the last half is sent, and decompressed when it is there. */
static double halving_cost(const struct weft__shape *shape)
{
    struct weft__shape inner = *shape;
    inner.bytes = weft__blocks_sent(&shape->blocks) * sizeof(float);
    inner.largest = (double)inner.bytes;
    inner.total = (double)inner.bytes * shape->size;
    return 2 * weft__blocks_cost(shape) +
           (shape->size > 1 ? weft__allreduce_template.impl[HALVING].cost(&inner) : 0);
}

/* ---- the template ---- */

static void no_slots(struct weft__build *build)
{
    (void)build; /* they go with the algorithm */
}

static const struct weft_algorithm algorithms[] = {
    {.name = "ring",
     .cost = "2 c/P + (P - 1) (max(alpha + w/P (beta + gamma), c/P) + max(alpha + w/P beta, c/P)); "
             "w: bytes of all components, c: projecting all",
     .notes =
         "a segment of whole slices is compressed while the one before it travels, added as it "
         "is, and decompressed while others arrive; the same on all ranks and in every run. "
         "GradiVeQ, NeurIPS 2018, Algorithm 1",
     .ordered = 0},
    {.name = "reduce-scatter-allgather",
     .cost =
         "2 c + 2 log2 P alpha + (P - 1)/P (2 w beta + w gamma); P no power of two: + 2 alpha + "
         "2 w beta + w gamma",
     .notes = "components by recursive halving, then doubling: few messages, but little is "
              "compressed while they travel; the same on all ranks and in every run",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = ring, .cost = ring_cost},
    {.build = halving, .cost = halving_cost, .goes = WEFT__EXCHANGES},
};

const struct weft__template weft__projected_allreduce_template = {
    .public = {.name = "projected-allreduce",
               .summary = "sums of vectors that are projected onto a few components (GradiVeQ)",
               .parameters = "count slice components algo segment",
               .result = "recv[i] on every rank: send[i] of ranks 0 .. P-1 added up, but for what "
                         "the projection drops",
               .algorithms = algorithms,
               .algorithm_count = 2},
    .impl = impl,
    .flags = WEFT__USES_DATA | WEFT__SUMS_F32 | WEFT__USES_BLOCKS,
    .slots = no_slots,
};
