/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench topk: selecting the k entries of largest magnitude, on one core.
 *
 * A selection cannot be faster than reading the data once, so that is the limit of its row; with a
 * residual, the limit is the addition alone (residual[i] += values[i]). The peer is what one writes
 * in an hour: quickselect on a copy, then a pass that collects. All take turns; rates are of the
 * values, 4 bytes each, whatever else is touched.
 */
#include "tools/bench/bench.h"
#include "tools/bench/data.h"
#include "tools/bench/plain.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Quickselect takes long: its turns are few. */
enum { PEER_ROUNDS = 3 };

enum data { NORMAL, LAYERS, SORTED, GRADIENTS, DATA };

static const char *const data_names[] = {"normal", "layers", "sorted", "gradients"};

enum contender { READ, ADD, SELECT, HINTED, FUSED, PLAIN, PLAIN_FUSED, CONTENDERS };

struct contest {
    size_t n;
    size_t k;
    size_t turns; /* in one round */
    float *values;
    float *residual;
    float *sums;    /* of the plain addition */
    float *scratch; /* quickselect's */
    uint32_t *indices;
    float *kept;
    void *workspace;
    size_t workspace_bytes;
    double hint;
    uint64_t seen; /* so that reading is not left out */
    /* what came out last, to be compared */
    float cut[CONTENDERS];
    struct bench_samples samples[CONTENDERS];
};

/* ---- data ---- */

/* Layers: runs of very different lengths and scales, as gradients of a network have; gradients:
 * those of one. */
static int fill(float *values, size_t n, enum data data)
{
    uint64_t state = 88172645463325252u;
    size_t left = 0;
    double scale = 1;

    if (data == GRADIENTS)
        return bench_gradients(values, n);
    for (size_t i = 0; i < n; i++) {
        if (data == LAYERS && left-- == 0) {
            left = (size_t)((double)n * 0.1 * pow(bench_uniform(&state), 3));
            scale = exp2(6 * bench_uniform(&state) - 8);
        }
        values[i] = (float)(data == SORTED ? bench_normal_quantile(((double)i + 0.5) / (double)n)
                                           : scale * bench_normal_quantile(bench_uniform(&state)));
    }
    return WEFT_OK;
}

/* ---- the peer ---- */

/* With a residual the values are added first, and what is selected is cleared. */
static float plain_select(struct contest *c, float *residual)
{
    const float *from = residual ? residual : c->values;
    size_t found = 0;
    float cut;

    for (size_t i = 0; i < c->n; i++) {
        if (residual)
            residual[i] += c->values[i];
        c->scratch[i] = fabsf(from[i]);
    }
    cut = bench_quickselect(c->scratch, c->n, c->k);
    for (size_t i = 0; i < c->n && found < c->k; i++) {
        if (fabsf(from[i]) >= cut) {
            c->indices[found] = (uint32_t)i;
            c->kept[found++] = from[i];
            if (residual)
                residual[i] = 0;
        }
    }
    return cut;
}

/* ---- taking turns ---- */

static int select_once(struct contest *c, enum contender who)
{
    struct weft_sparse out = {c->indices, c->kept, 0, c->k, WEFT_U32, WEFT_F32};
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
    int status;

    weft_sparse_options_init(&options);
    options.workspace = c->workspace;
    options.workspace_bytes = c->workspace_bytes;
    options.hint = who == HINTED ? c->hint : 0;
    if (who == FUSED) {
        status =
            weft_sparse_accumulate_top(&options, c->residual, c->values, c->n, c->k, &out, &report);
    } else {
        status = weft_sparse_top(&options, c->values, c->n, c->k, &out, &report);
    }
    c->hint = who == FUSED ? c->hint : report.hint;
    c->cut[who] = (float)report.threshold;
    return status;
}

static int one_turn(struct contest *c, enum contender who)
{
    switch (who) {
    case READ:
        c->seen |= bench_plain_read(c->values, c->n);
        return WEFT_OK;
    case ADD:
        bench_plain_add(c->sums, c->values, c->n);
        return WEFT_OK;
    case PLAIN:
        c->cut[who] = plain_select(c, NULL);
        return WEFT_OK;
    case PLAIN_FUSED:
        c->cut[who] = plain_select(c, c->sums);
        return WEFT_OK;
    default:
        return select_once(c, who);
    }
}

static int take_turns(struct bench *bench, struct contest *c)
{
    for (int round = -1; round < bench->rounds; round++) {
        for (int who = 0; who < CONTENDERS; who++) {
            size_t turns = who >= PLAIN ? 1 : c->turns;
            uint64_t start;

            if (who >= PLAIN && round >= PEER_ROUNDS)
                continue;
            start = ranks_now();
            for (size_t t = 0; t < turns; t++) {
                int status = one_turn(c, (enum contender)who);
                if (status != WEFT_OK)
                    return status;
            }
            double ns = (double)(ranks_now() - start) / (double)turns;
            if (round >= 0)
                bench_sample(&c->samples[who], (double)(c->n * sizeof(float)) / ns);
        }
    }
    if (c->cut[SELECT] != c->cut[PLAIN] || c->cut[HINTED] != c->cut[PLAIN]) {
        return weft_error_set(WEFT_ERR_COMPUTE, "the k-th is %g, and %g to quickselect",
                              (double)c->cut[SELECT], (double)c->cut[PLAIN]);
    }
    return WEFT_OK;
}

/* ---- rows ---- */

static void print_row(struct bench *bench, struct contest *c, enum data data, const char *how,
                      const enum contender who[3])
{
    char what[96], n[24], k[24];
    struct bench_row row = {.what = what,
                            .unit = "GB/s",
                            .peer = "quickselect",
                            .weft = &c->samples[who[0]],
                            .peers = &c->samples[who[1]],
                            .limit = bench_median(&c->samples[who[2]]),
                            .bytes = c->n * sizeof(float)};

    snprintf(what, sizeof what, "n=%s k=%s %s%s", bench_count_text(c->n, n),
             bench_count_text(c->k, k), data_names[data], how);
    bench_print(bench, &row);
}

static void close_contest(struct contest *c)
{
    void *memory[] = {c->values,  c->residual, c->sums,     c->scratch,
                      c->indices, c->kept,     c->workspace};

    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        weft_memory_free(memory[i]);
}

static int open_contest(struct contest *c, size_t n)
{
    *c = (struct contest){.n = n, .k = n >= 1000 ? n / 1000 : 1};
    c->turns = n < 10000000 ? 10000000 / n : 1;
    c->values = weft_memory_alloc(n, sizeof(float));
    c->residual = weft_memory_alloc(n, sizeof(float));
    c->sums = weft_memory_alloc(n, sizeof(float));
    c->scratch = weft_memory_alloc(n, sizeof(float));
    c->indices = weft_memory_alloc(c->k, sizeof(uint32_t));
    c->kept = weft_memory_alloc(c->k, sizeof(float));
    c->workspace_bytes = weft_sparse_select_workspace(NULL, WEFT_F32, n, c->k);
    c->workspace = weft_memory_alloc(c->workspace_bytes, 1);
    if (!c->values || !c->residual || !c->sums || !c->scratch || !c->indices || !c->kept ||
        !c->workspace)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu values", n);
    return WEFT_OK;
}

static int measure(struct bench *bench, size_t n, enum data data)
{
    struct contest c;
    int status = open_contest(&c, n);

    if (status == WEFT_OK)
        status = fill(c.values, n, data);
    if (status == WEFT_OK)
        status = take_turns(bench, &c);
    if (status == WEFT_OK) {
        print_row(bench, &c, data, "", (enum contender[]){SELECT, PLAIN, READ});
        print_row(bench, &c, data, " with a hint", (enum contender[]){HINTED, PLAIN, READ});
        print_row(bench, &c, data, " with residual", (enum contender[]){FUSED, PLAIN_FUSED, ADD});
    }
    close_contest(&c);
    return status == WEFT_OK ? 0 : bench_fail(bench, data_names[data]);
}

int bench_topk(struct bench *bench)
{
    static const size_t sizes[] = {4000000, 100000000};
    const size_t *bytes = bench->size_count ? bench->sizes : sizes;
    size_t count = bench->size_count ? bench->size_count : sizeof sizes / sizeof sizes[0];

    bench_machine(bench);
    bench_note(bench,
               "the k largest magnitudes of n f32, one core (%s); limit: one plain read, or with a "
               "residual\none plain addition to it; hand-over between cores %.0f ns",
               weft_simd_name(weft_simd_level()), bench->handover_ns);
    for (size_t i = 0; i < count; i++) {
        for (int data = 0; data < DATA; data++) {
            int status = measure(bench, bytes[i] / sizeof(float), (enum data)data);
            if (status)
                return status;
        }
    }
    return 0;
}
