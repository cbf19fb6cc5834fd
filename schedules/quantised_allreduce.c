/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce of vectors in few bits an element. What is quantised cannot be added, so somebody
 * dequantises it, adds, and quantises the sum.
 *
 *     all-to-all    rank j adds up shard j of all ranks: every element is quantised twice, however
 *                   many ranks there are
 *
 *         send of rank i --quantise--> shard j --> rank j: + + + --quantise--> all ranks
 *
 *     ring          a shard goes from rank to rank, each of which adds its part: every element is
 *                   quantised P times
 *
 * Shards are whole buckets, and every rank dequantises the bytes of every shard, its own, too: so
 * all have the same bits. "sent" is a rank's share of that: of its shard that it has added up, also
 * what quantising the sum has changed. Over all ranks that is the result.
 */
#include <math.h>

#include <weft/compress.h>

#include "schedules/common/template.h"

/* Of one core, about: elements a microsecond. By `weft bench compress` on AVX-512: 14 to 22 GB/s of
 * values are quantised, 46 to 76 added up. */
#define QUANTISED_PER_US   4e3
#define DEQUANTISED_PER_US 1.3e4

enum { SHARD_TAG, SUM_TAG };

struct maker {
    struct weft__build *build;
    struct weft_op *quantise, *dequantise, *add, *difference;
    weft_slot_t coded; /* bytes of all shards */
    weft_slot_t sent;  /* -1: not wanted */
    size_t bucket, bucket_bytes;
};

/* ---- shards ---- */

static size_t buckets_of(size_t count, size_t bucket)
{
    return count / bucket + (count % bucket != 0);
}

/* Where shard `index` begins; index = size: the end. */
static size_t begin_of(const struct maker *m, int index)
{
    const struct weft__build *build = m->build;
    size_t bucket = weft__block_offset(buckets_of(build->count, m->bucket), build->size, index);
    size_t begin = bucket * m->bucket;
    return begin < build->count ? begin : build->count;
}

/* A shard of a vector. */
static struct weft_region shard(const struct maker *m, weft_slot_t slot, int index)
{
    size_t begin = begin_of(m, index);
    return weft_region_at(slot, begin, begin_of(m, index + 1) - begin);
}

static size_t bytes_of(const struct maker *m, int index)
{
    return weft_quantised_bytes(&m->build->quantiser, shard(m, 0, index).count);
}

/* Its bytes among those of all shards. */
static struct weft_region code(const struct maker *m, weft_slot_t slot, int index)
{
    size_t bucket =
        weft__block_offset(buckets_of(m->build->count, m->bucket), m->build->size, index);
    return weft_region_at(slot, bucket * m->bucket_bytes, bytes_of(m, index));
}

static struct weft_region own(const struct maker *m, int index)
{
    const struct weft__build *build = m->build;
    return shard(m, build->in_place ? build->recv : build->send, index);
}

/* ---- nodes; of no elements there are none ---- */

static void compute(const struct maker *m, const struct weft_op *op, struct weft_region to,
                    weft_access_t access, struct weft_region from)
{
    const struct weft_compute_argument arguments[] = {{to, access}, {from, WEFT_READ}};
    if (to.count)
        weft_tracker_add(m->build->tracker,
                         weft_schedule_add_compute(m->build->schedule, op, arguments, 2, 0));
}

static void quantise(const struct maker *m, struct weft_region to, struct weft_region from)
{
    compute(m, m->quantise, to, WEFT_WRITE, from);
}

static void dequantise(const struct maker *m, struct weft_region to, struct weft_region from)
{
    compute(m, m->dequantise, to, WEFT_WRITE, from);
}

static void add(const struct maker *m, struct weft_region to, struct weft_region from)
{
    compute(m, m->add, to, WEFT_UPDATE, from);
}

static void subtract(const struct maker *m, struct weft_region to, struct weft_region a,
                     struct weft_region b)
{
    if (to.count)
        weft_tracker_add(m->build->tracker,
                         weft_schedule_add_reduce(m->build->schedule, m->difference, to, a, b));
}

static void send_code(const struct maker *m, struct weft_region from, int peer, uint32_t tag)
{
    if (from.count)
        weft_tracker_add(m->build->tracker,
                         weft_schedule_add_send(m->build->schedule, from, peer, tag));
}

static void recv_code(const struct maker *m, struct weft_region to, int peer, uint32_t tag)
{
    if (to.count)
        weft_tracker_add(m->build->tracker,
                         weft_schedule_add_recv(m->build->schedule, to, peer, tag));
}

/* ---- the beginning and the end ---- */

/* a - b, which nothing else needs. */
static int difference(void *user, void *dst, const void *a, const void *b, size_t count,
                      weft_dtype_t dtype)
{
    const float *left = a, *right = b;
    float *to = dst;
    (void)user;
    if (dtype != WEFT_F32)
        return weft_error_set(WEFT_ERR_INVALID, "difference of %s, expected f32",
                              weft_dtype_name(dtype));
    for (size_t i = 0; i < count; i++)
        to[i] = left[i] - right[i];
    return WEFT_OK;
}

static int make_ops(struct maker *m)
{
    struct weft_compress_op_config config = {.struct_size = sizeof config,
                                             .quantiser = &m->build->quantiser};
    const struct weft_op_config minus = {
        .struct_size = sizeof minus, .name = "difference", .reduce = difference};
    config.kind = WEFT_COMPRESS_QUANTISE;
    int status = weft_compress_op(&config, &m->quantise);
    config.kind = WEFT_COMPRESS_DEQUANTISE;
    if (!status)
        status = weft_compress_op(&config, &m->dequantise);
    config.kind = WEFT_COMPRESS_DEQUANTISE_ADD;
    if (!status)
        status = weft_compress_op(&config, &m->add);
    if (!status && m->build->sent)
        status = weft_op_create(&m->difference, &minus);
    return status;
}

static weft_slot_t bytes_slot(const struct maker *m, const char *name, size_t bytes)
{
    return weft_schedule_add_slot(m->build->schedule, name, WEFT_U8, bytes, WEFT_SLOT_SCRATCH);
}

static size_t all_bytes(const struct maker *m)
{
    return weft_quantised_bytes(&m->build->quantiser, m->build->count);
}

static int begin(struct maker *m, struct weft__build *build)
{
    *m = (struct maker){.build = build, .sent = -1, .bucket = build->quantiser.bucket};
    m->bucket_bytes = weft_quantised_bytes(&build->quantiser, m->bucket);
    build->status = make_ops(m);
    if (build->status)
        return 0;
    if (build->sent)
        m->sent = weft__build_slot(build, "sent", build->count, WEFT_SLOT_OUTPUT);
    m->coded = bytes_slot(m, "coded", all_bytes(m));
    return 1;
}

static void end(struct maker *m)
{
    weft_op_destroy(m->quantise);
    weft_op_destroy(m->dequantise);
    weft_op_destroy(m->add);
    weft_op_destroy(m->difference);
}

static int modulo(int number, int size)
{
    return number < 0 ? number + size : number % size;
}

/* ---- all-to-all ---- */

/* The shares of the others in the own shard come in, one behind the other. */
static struct weft_region arrived(const struct maker *m, weft_slot_t slot, int from)
{
    size_t bytes = bytes_of(m, m->build->rank);
    int before = from < m->build->rank ? from : from - 1;
    return weft_region_at(slot, (size_t)before * bytes, bytes);
}

/* Of the own shard, all ranks' shares, in their order. */
static void add_up(const struct maker *m, struct weft_region sum, weft_slot_t others)
{
    int rank = m->build->rank;
    for (int from = 0; from < m->build->size; from++) {
        struct weft_region share =
            from == rank ? code(m, m->coded, rank) : arrived(m, others, from);
        if (from == 0)
            dequantise(m, sum, share);
        else
            add(m, sum, share);
    }
}

/* What the sum became when it was quantised again is the share of who has done so. */
static void tell_shards(const struct maker *m, struct weft_region sum, weft_slot_t sums)
{
    int rank = m->build->rank;
    struct weft_region mine = shard(m, m->sent, rank);
    for (int j = 0; j < m->build->size; j++)
        dequantise(m, shard(m, m->sent, j), code(m, m->coded, j));
    subtract(m, mine, mine, sum);
    add(m, mine, code(m, sums, rank));
}

static void all_to_all(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    struct maker m;
    if (begin(&m, build)) {
        weft_slot_t others = bytes_slot(&m, "others", (size_t)(size - 1) * bytes_of(&m, rank));
        weft_slot_t sums = bytes_slot(&m, "sums", all_bytes(&m));
        struct weft_region sum = shard(&m, 0, rank);
        sum = weft_region_at(weft__build_slot(build, "sum", sum.count, WEFT_SLOT_SCRATCH), 0,
                             sum.count);
        for (int i = 1; i < size; i++) {
            int from = modulo(rank - i, size);
            recv_code(&m, arrived(&m, others, from), from, SHARD_TAG);
            recv_code(&m, code(&m, sums, from), from, SUM_TAG);
        }
        for (int i = 1; i <= size; i++) { /* the own one last: nobody waits for it */
            int to = modulo(rank + i, size);
            quantise(&m, code(&m, m.coded, to), own(&m, to));
            if (to != rank)
                send_code(&m, code(&m, m.coded, to), to, SHARD_TAG);
        }
        add_up(&m, sum, others);
        quantise(&m, code(&m, sums, rank), sum);
        for (int i = 1; i < size; i++)
            send_code(&m, code(&m, sums, rank), modulo(rank + i, size), SUM_TAG);
        for (int i = 0; i < size; i++)
            dequantise(&m, shard(&m, build->recv, modulo(rank - i, size)),
                       code(&m, sums, modulo(rank - i, size)));
        if (m.sent >= 0)
            tell_shards(&m, sum, sums);
    }
    end(&m);
}

/* ---- ring ---- */

/* What came in, dequantised and added to the own part, which is in "recv" then. With `sent` what
 * came in stays there. */
static void take_in(const struct maker *m, int index, struct weft_region from)
{
    struct weft_region sum = shard(m, m->build->recv, index);
    weft__build_copy(m->build, sum, own(m, index));
    if (m->sent < 0) {
        add(m, sum, from);
        return;
    }
    dequantise(m, shard(m, m->sent, index), from);
    weft__build_reduce(m->build, sum, sum, shard(m, m->sent, index));
}

/* A rank's share of a shard: what it has passed on, less what had come in. */
static void tell_step(const struct maker *m, int index, weft_slot_t passed, int first)
{
    struct weft_region share = shard(m, m->sent, index);
    if (m->sent < 0)
        return;
    if (first) {
        dequantise(m, share, code(m, m->coded, index));
        return;
    }
    struct weft_region on = weft_region_at(passed, 0, share.count);
    dequantise(m, on, code(m, m->coded, index));
    subtract(m, share, on, share);
}

static void ring(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    int right = modulo(rank + 1, size), left = modulo(rank - 1, size);
    struct maker m;
    if (begin(&m, build)) {
        weft_slot_t in = bytes_slot(&m, "in", all_bytes(&m)), passed = -1;
        if (m.sent >= 0)
            passed = weft__build_slot(build, "passed", begin_of(&m, 1), WEFT_SLOT_SCRATCH);
        for (int s = 0; s < size - 1; s++)
            recv_code(&m, code(&m, in, modulo(rank - s - 1, size)), left, (uint32_t)s);
        for (int s = 0; s < size; s++) {
            int at = modulo(rank - s, size);
            if (s > 0)
                take_in(&m, at, code(&m, in, at));
            quantise(&m, code(&m, m.coded, at), s > 0 ? shard(&m, build->recv, at) : own(&m, at));
            if (s < size - 1)
                send_code(&m, code(&m, m.coded, at), right, (uint32_t)s);
            tell_step(&m, at, passed, s == 0);
        }
        for (int s = 0; s < size - 1; s++) {
            uint32_t tag = (uint32_t)size + (uint32_t)s;
            send_code(&m, code(&m, m.coded, modulo(rank - s + 1, size)), right, tag);
            recv_code(&m, code(&m, m.coded, modulo(rank - s, size)), left, tag);
        }
        for (int s = 0; s < size; s++) {
            int at = modulo(rank - s + 1, size);
            dequantise(&m, shard(&m, build->recv, at), code(&m, m.coded, at));
        }
    }
    end(&m);
}

/* ---- costs ---- */

static double elements_of(const struct weft__shape *shape)
{
    return (double)shape->bytes / sizeof(float);
}

/* The bytes of a shard. */
static double shard_bytes(const struct weft__shape *shape)
{
    return ceil((double)weft_quantised_bytes(&shape->quantiser, (size_t)elements_of(shape)) /
                shape->size);
}

static double all_to_all_cost(const struct weft__shape *shape)
{
    double elements = elements_of(shape), mine = elements / shape->size;
    return 2 * (shape->size - 1) * weft__cost_message(shape, shard_bytes(shape)) +
           (elements + mine) / QUANTISED_PER_US + 2 * elements / DEQUANTISED_PER_US;
}

/* Nothing overlaps: a rank waits for a shard, quantises it, and passes it on. */
static double ring_cost(const struct weft__shape *shape)
{
    double elements = elements_of(shape);
    return 2 * (shape->size - 1) * weft__cost_message(shape, shard_bytes(shape)) +
           elements / QUANTISED_PER_US + 2 * elements / DEQUANTISED_PER_US;
}

/* ---- the template ---- */

static void slots(struct weft__build *build)
{
    const struct weft_result result = {.struct_size = sizeof result,
                                       .dst = weft_region_at(0, 0, build->count),
                                       .from = build->in_place ? "recv" : "send",
                                       .ranks = build->size,
                                       .op = build->size > 1 ? build->op : NULL,
                                       .lossy = 1};
    struct weft_result stated = result;
    weft__build_pair(build, build->count, build->count);
    stated.dst.slot = build->recv;
    weft_schedule_add_result(build->schedule, &stated);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "all-to-all",
     .cost = "2 (P - 1) (alpha + w/P beta) + (1 + 1/P) c + 2 r; w: bytes of a vector that is "
             "quantised; c, r: quantising one, and adding it up",
     .notes =
         "every element is quantised twice; shares are added in the order of ranks, the same on "
         "all ranks; draws differ from run to run. ZeRO++, Wang et al., 2023, 3.3",
     .ordered = 1},
    {.name = "ring",
     .cost = "2 (P - 1) (alpha + w/P beta) + c + 2 r",
     .notes = "quantised at every hop, P times, so the error grows with P; shard b is added around "
              "the ring from rank b. What GradiVeQ, NeurIPS 2018, section 4 was compared with",
     .ordered = 0},
};

static const struct weft__algorithm impl[] = {
    {.build = all_to_all, .cost = all_to_all_cost, .goes = WEFT__EXCHANGES},
    {.build = ring, .cost = ring_cost},
};

const struct weft__template weft__quantised_allreduce_template = {
    .public = {.name = "quantised-allreduce",
               .summary = "sums of vectors in 1, 2, 4 or 8 bits an element (QSGD)",
               .parameters = "count bits bucket norm algo",
               .result = "recv[i] on every rank: send[i] of ranks 0 .. P-1 added up, but for what "
                         "quantising changes",
               .algorithms = algorithms,
               .algorithm_count = 2},
    .impl = impl,
    .flags = WEFT__USES_DATA | WEFT__SUMS_F32 | WEFT__FIXED,
    .slots = slots,
};
