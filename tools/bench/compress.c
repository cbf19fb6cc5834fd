/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench compress: quantising and projecting dense vectors, on one core.
 *
 * Rates are of the f32 values, 4 bytes each, whatever else is touched. The limit is one plain pass
 * over the values that moves as they do: a read where they are only read, a write where they are
 * only written, both where something is added to them. The peer of a product is BLAS's on one
 * thread, that of a quantisation the loop that one writes in an hour. All take turns. Time is the
 * thread's own on the processor: what else runs there is not counted.
 */
#include "tools/bench/bench.h"
#include "tools/bench/data.h"
#include "tools/bench/plain.h"

#include <cblas.h>
#include <math.h>
#include <string.h>
#include <time.h>

enum { BUCKET = 512, LEAST_NS = 2000000 };

enum kind { QUANTISE, DEQUANTISE_ADD, PROJECT, PROJECT_CENTRED, RECONSTRUCT, CORRELATE, KINDS };

enum contender { WEFT, PEER, LIMIT, CONTENDERS };

static const char *const kind_names[] = {"quantise",         "dequantise-add", "project",
                                         "project, centred", "reconstruct",    "correlate"};

struct contest {
    enum kind kind;
    struct weft_quantiser quantiser;
    struct weft_projection projection;
    /* values: of slices, rows; or just many */
    size_t count;
    size_t slices;
    float *values;
    float *mean;
    float *centred; /* the peer's */
    float *basis;
    float *components;
    float *product; /* K x d */
    unsigned char *bytes;
    uint64_t state; /* of the peer's random numbers */
    uint64_t seen;
    double square;
    size_t turns[CONTENDERS];
    struct bench_samples samples[CONTENDERS];
};

/* ---- quantisation, written in an hour ---- */

static float bucket_norm(const float *values, size_t count, int bits)
{
    float most = 0, sum = 0;

    for (size_t i = 0; i < count; i++) {
        float size = fabsf(values[i]);
        most = size > most ? size : most;
        sum += size;
    }
    return bits == WEFT_QUANTISE_SIGN ? sum / (float)count : most;
}

static void plain_quantise(struct contest *c)
{
    unsigned char *out = c->bytes;
    int bits = c->quantiser.bits;
    int levels = (1 << (bits - 1)) - 1;

    for (size_t at = 0; at < c->count; at += BUCKET) {
        size_t count = c->count - at < BUCKET ? c->count - at : BUCKET;
        const float *values = c->values + at;
        float norm = bucket_norm(values, count, bits);
        float scale = norm > 0 ? (float)levels / norm : 0;

        memcpy(out, &norm, sizeof norm);
        out += sizeof norm;
        memset(out, 0, (count * (size_t)bits + 7) / 8);
        for (size_t i = 0; i < count; i++) {
            unsigned code = values[i] < 0;
            if (bits != WEFT_QUANTISE_SIGN) {
                float drawn = fabsf(values[i]) * scale + (float)bench_uniform(&c->state);
                unsigned level = (unsigned)drawn;
                code = code << (bits - 1) | (level > (unsigned)levels ? (unsigned)levels : level);
            }
            out[i * (size_t)bits / 8] |= (unsigned char)(code << i * (size_t)bits % 8);
        }
        out += (count * (size_t)bits + 7) / 8;
    }
}

static void plain_dequantise_add(struct contest *c)
{
    const unsigned char *in = c->bytes;
    int bits = c->quantiser.bits;
    int levels = (1 << (bits - 1)) - 1;
    unsigned mask = (1u << bits) - 1;

    for (size_t at = 0; at < c->count; at += BUCKET) {
        size_t count = c->count - at < BUCKET ? c->count - at : BUCKET;
        float *values = c->values + at;
        float norm;

        memcpy(&norm, in, sizeof norm);
        in += sizeof norm;
        float scale = bits == WEFT_QUANTISE_SIGN ? norm : norm / (float)levels;
        for (size_t i = 0; i < count; i++) {
            unsigned code = (unsigned)in[i * (size_t)bits / 8] >> i * (size_t)bits % 8 & mask;
            unsigned level = bits == WEFT_QUANTISE_SIGN ? 1 : code & (unsigned)levels;
            float size = scale * (float)level;
            values[i] += code >> (bits - 1) ? -size : size;
        }
        in += (count * (size_t)bits + 7) / 8;
    }
}

/* ---- turns ---- */

static uint64_t processor_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int weft_turn(struct contest *c)
{
    struct weft_projection_squares squares = {0};

    switch (c->kind) {
    case QUANTISE:
        return weft_quantise(&c->quantiser, c->seen++, c->values, c->count, c->bytes, NULL);
    case DEQUANTISE_ADD:
        return weft_dequantise_add(&c->quantiser, c->bytes, c->count, c->values);
    case PROJECT:
        return weft_project(&c->projection, c->values, c->count, NULL, 1, c->components, NULL);
    case PROJECT_CENTRED:
        return weft_project(&c->projection, c->values, c->count, c->mean, 0.25, c->components,
                            &squares);
    case RECONSTRUCT:
        return weft_reconstruct(&c->projection, c->components, c->count, NULL, c->values);
    default:
        return weft_correlate(c->values, c->slices, c->projection.slice, c->components,
                              c->projection.components, c->product);
    }
}

/* The mean is taken off, and squares are summed up: what weft_project() does on its way. (Those of
 * the components are little beside it.) */
static void peer_centre(struct contest *c)
{
    int count = (int)c->count;

    cblas_scopy(count, c->values, 1, c->centred, 1);
    cblas_saxpy(count, -0.25F, c->mean, 1, c->centred, 1);
    c->square += cblas_dsdot(count, c->values, 1, c->values, 1);
    c->square += cblas_dsdot(count, c->centred, 1, c->centred, 1);
}

static void peer_turn(struct contest *c)
{
    const float *from = c->values;
    int slices = (int)c->slices;
    int slice = (int)c->projection.slice;
    int components = (int)c->projection.components;

    switch (c->kind) {
    case QUANTISE:
        plain_quantise(c);
        break;
    case DEQUANTISE_ADD:
        plain_dequantise_add(c);
        break;
    case PROJECT_CENTRED:
        peer_centre(c);
        from = c->centred;
        /* falls through */
    case PROJECT:
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, slices, components, slice, 1, from,
                    slice, c->basis, components, 0, c->components, components);
        break;
    case RECONSTRUCT:
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, slices, slice, components, 1,
                    c->components, components, c->basis, components, 0, c->values, slice);
        break;
    default:
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, slice, components, slices, 1,
                    c->values, slice, c->components, components, 0, c->product, components);
        break;
    }
}

static void limit_turn(struct contest *c)
{
    if (c->kind == RECONSTRUCT)
        bench_plain_fill(c->values, 1, c->count);
    else if (c->kind == DEQUANTISE_ADD)
        bench_plain_shift(c->values, 1e-9F, c->count);
    else
        c->seen |= bench_plain_read(c->values, c->count);
}

static int one_turn(struct contest *c, int who)
{
    if (who == WEFT)
        return weft_turn(c);
    if (who == PEER)
        peer_turn(c);
    else
        limit_turn(c);
    return WEFT_OK;
}

/* The first round, which is not counted, says how many runs are long enough to be timed. */
static int take_turns(struct bench *bench, struct contest *c)
{
    for (int round = -1; round < bench->rounds; round++) {
        for (int who = 0; who < CONTENDERS; who++) {
            size_t turns = round < 0 ? 1 : c->turns[who];
            uint64_t start = processor_ns();
            for (size_t t = 0; t < turns; t++) {
                int status = one_turn(c, who);
                if (status != WEFT_OK)
                    return status;
            }
            double ns = (double)(processor_ns() - start) / (double)turns;
            if (round < 0)
                c->turns[who] = 1 + (size_t)(LEAST_NS / (ns + 1));
            else
                bench_sample(&c->samples[who], (double)(c->count * sizeof(float)) / ns);
        }
    }
    return WEFT_OK;
}

/* ---- cases ---- */

static int allocate(struct contest *c)
{
    size_t slice = c->projection.slice, components = c->projection.components;
    uint64_t state = 88172645463325252u;

    c->values = weft_memory_alloc(c->count, sizeof(float));
    c->mean = weft_memory_alloc(c->count, sizeof(float));
    c->centred = weft_memory_alloc(c->count, sizeof(float));
    c->basis = weft_memory_alloc(slice * components + 1, sizeof(float));
    c->product = weft_memory_alloc(slice * components + 1, sizeof(float));
    c->components = weft_memory_alloc(c->slices * components + 1, sizeof(float));
    c->bytes = weft_memory_alloc(weft_quantised_bytes(&c->quantiser, c->count), 1);
    if (!c->values || !c->mean || !c->centred || !c->basis || !c->product || !c->components ||
        !c->bytes)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu values", c->count);
    for (size_t i = 0; i < c->count; i++) {
        c->values[i] = (float)bench_normal_quantile(bench_uniform(&state));
        c->mean[i] = 0;
    }
    for (size_t i = 0; i < slice * components; i++)
        c->basis[i] = (float)(bench_uniform(&state) - 0.5);
    for (size_t i = 0; i < c->slices * components; i++)
        c->components[i] = (float)(bench_uniform(&state) - 0.5);
    c->projection.basis = c->basis;
    return weft_quantise(&c->quantiser, 1, c->values, c->count, c->bytes, NULL);
}

static void free_contest(struct contest *c)
{
    weft_memory_free(c->values);
    weft_memory_free(c->mean);
    weft_memory_free(c->centred);
    weft_memory_free(c->basis);
    weft_memory_free(c->product);
    weft_memory_free(c->components);
    weft_memory_free(c->bytes);
}

static int measure(struct bench *bench, struct contest *c, const char *what)
{
    int quantised = c->kind == QUANTISE || c->kind == DEQUANTISE_ADD;
    int status = allocate(c);

    c->state = 88172645463325252u;
    if (status == WEFT_OK)
        status = take_turns(bench, c);
    if (status == WEFT_OK) {
        struct bench_row row = {.what = what,
                                .unit = "GB/s",
                                .peer = quantised                    ? "plain loop"
                                        : c->kind == PROJECT_CENTRED ? "cblas, 5 calls"
                                                                     : "cblas_sgemm",
                                .weft = &c->samples[WEFT],
                                .peers = &c->samples[PEER],
                                .limit = bench_median(&c->samples[LIMIT]),
                                .bytes = c->count * sizeof(float)};
        bench_print(bench, &row);
    }
    free_contest(c);
    return status == WEFT_OK ? 0 : bench_fail(bench, what);
}

static int quantisations(struct bench *bench, size_t count)
{
    static const int bits[] = {2, 4, 8, WEFT_QUANTISE_SIGN};
    char what[64], n[24];

    for (int kind = QUANTISE; kind <= DEQUANTISE_ADD; kind++) {
        for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
            struct contest c = {.kind = (enum kind)kind, .count = count};
            char wide[16];
            weft_quantiser_init(&c.quantiser);
            c.quantiser.bits = bits[i];
            c.quantiser.bucket = BUCKET;
            snprintf(wide, sizeof wide, "%d bits", bits[i]);
            snprintf(what, sizeof what, "%s %s n=%s", kind_names[kind],
                     bits[i] == WEFT_QUANTISE_SIGN ? "signs" : wide, bench_count_text(count, n));
            int status = measure(bench, &c, what);
            if (status)
                return status;
        }
    }
    return 0;
}

static int products(struct bench *bench, size_t slice, size_t components, size_t slices)
{
    char what[96];

    for (int kind = PROJECT; kind <= CORRELATE; kind++) {
        struct contest c = {.kind = (enum kind)kind, .count = slice * slices, .slices = slices};
        weft_quantiser_init(&c.quantiser);
        c.projection = (struct weft_projection){
            .struct_size = sizeof c.projection, .slice = slice, .components = components};
        snprintf(what, sizeof what, "%s K=%zu d=%zu S=%zu", kind_names[kind], slice, components,
                 slices);
        int status = measure(bench, &c, what);
        if (status)
            return status;
    }
    return 0;
}

/* Principal components: no peer, as there is no other way to them here. */
static int components_of(struct bench *bench, size_t slice, size_t samples)
{
    float *values = weft_memory_alloc(slice * samples, sizeof(float));
    float *mean = weft_memory_alloc(slice, sizeof(float));
    float *basis = weft_memory_alloc(slice * samples, sizeof(float));
    struct weft_pca_config config;
    struct bench_samples ms = {0};
    uint64_t state = 88172645463325252u;
    size_t found;
    char what[64];
    int status = values && mean && basis
                     ? WEFT_OK
                     : weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu samples", samples);

    for (size_t i = 0; status == WEFT_OK && i < slice * samples; i++)
        values[i] = (float)bench_normal_quantile(bench_uniform(&state));
    weft_pca_config_init(&config);
    config.slice = slice;
    config.samples = samples;
    for (int round = -1; round < bench->rounds && status == WEFT_OK; round++) {
        uint64_t start = processor_ns();
        status = weft_pca(&config, values, mean, basis, &found, NULL);
        if (round >= 0)
            bench_sample(&ms, (double)(processor_ns() - start) / 1e6);
    }
    snprintf(what, sizeof what, "components K=%zu L=%zu", slice, samples);
    if (status == WEFT_OK)
        bench_print(bench, &(struct bench_row){.what = what,
                                               .unit = "ms",
                                               .weft = &ms,
                                               .limit = NAN,
                                               .bytes = slice * samples * sizeof(float)});
    weft_memory_free(values);
    weft_memory_free(mean);
    weft_memory_free(basis);
    return status == WEFT_OK ? 0 : bench_fail(bench, what);
}

int bench_compress(struct bench *bench)
{
    static const size_t sizes[] = {4000000, 100000000};
    static const size_t shapes[][3] = {{768, 96, 3},    {768, 96, 30},  {768, 96, 300},
                                       {2304, 99, 100}, {4608, 4, 512}, {512, 64, 50},
                                       {64, 8, 100},    {16, 2, 9}};
    const size_t *bytes = bench->size_count ? bench->sizes : sizes;
    size_t count = bench->size_count ? bench->size_count : sizeof sizes / sizeof sizes[0];
    int status = 0;

    openblas_set_num_threads(1);
    bench_machine(bench);
    bench_note(bench,
               "dense vectors in fewer bits, one core (%s); limit: one plain pass over the values; "
               "hand-over between cores %.0f ns",
               weft_simd_name(weft_simd_level()), bench->handover_ns);
    for (size_t i = 0; i < count && !status; i++)
        status = quantisations(bench, bytes[i] / sizeof(float));
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && !status; i++)
        status = products(bench, shapes[i][0], shapes[i][1], shapes[i][2]);
    if (!weft_pca_available())
        bench_note(bench, "no principal components: %s", weft_error_text());
    for (size_t slice = 768; slice <= 12288 && !status && weft_pca_available(); slice *= 4)
        status = components_of(bench, slice, 100);
    return status;
}
