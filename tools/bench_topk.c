/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench topk, weft bench merge: selecting the k entries of largest magnitude, and sums of sparse
 * vectors, on one core.
 *
 * A selection cannot be faster than reading the data once, so that is the limit of its row; with a
 * residual, the limit is the addition alone (residual[i] += values[i]). The peer is what one writes in
 * an hour: quickselect on a copy, then a pass that collects. All take turns; rates are of the values,
 * 4 bytes each, whatever else is touched.
 */
#include "bench.h"
#include "ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Quickselect takes long: its turns are few. */
enum { PEER_ROUNDS = 3 };

enum data { NORMAL, LAYERS, SORTED, DATA };

static const char *const data_names[] = {"normal", "layers", "sorted"};

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

static double uniform(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

/* The value below which a share `p` of a normal distribution lies, to a few digits (Abramowitz and
 * Stegun, Handbook of mathematical functions, 26.2.23). */
static double normal_quantile(double p)
{
    double t = sqrt(-2 * log(p < 0.5 ? p : 1 - p));
    double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));

    return p < 0.5 ? -x : x;
}

/* Layers: runs of very different lengths and scales, as gradients of a network have. */
static void fill(float *values, size_t n, enum data data)
{
    uint64_t state = 88172645463325252u;
    size_t left = 0;
    double scale = 1;

    for (size_t i = 0; i < n; i++) {
        if (data == LAYERS && left-- == 0) {
            left = (size_t)((double)n * 0.1 * pow(uniform(&state), 3));
            scale = exp2(6 * uniform(&state) - 8);
        }
        values[i] = (float)(data == SORTED ? normal_quantile(((double)i + 0.5) / (double)n)
                                           : scale * normal_quantile(uniform(&state)));
    }
}

/* ---- the limits, as wide as the processor allows ---- */

#if defined(__x86_64__) && defined(__GNUC__)
#    define WIDE(features) __attribute__((noinline, target(features)))
#else
#    define WIDE(features)
#endif

#define PLAIN_LOOPS(name, features)                                                                \
    WIDE(features) static uint64_t read_##name(const float *values, size_t n)                      \
    {                                                                                              \
        uint64_t seen = 0;                                                                         \
        uint64_t word;                                                                             \
                                                                                                   \
        for (size_t i = 0; i < n / 2; i++) {                                                       \
            memcpy(&word, values + 2 * i, sizeof(word));                                           \
            seen |= word;                                                                          \
        }                                                                                          \
        return seen;                                                                               \
    }                                                                                              \
                                                                                                   \
    WIDE(features)                                                                                 \
    static void add_##name(float *restrict sums, const float *restrict values, size_t n)           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            sums[i] += values[i];                                                                  \
        }                                                                                          \
    }

#if defined(__x86_64__) && defined(__GNUC__)
PLAIN_LOOPS(512, "avx512f,avx512vl,avx512bw,avx512dq")
PLAIN_LOOPS(256, "avx2")
PLAIN_LOOPS(128, "sse2")

static uint64_t plain_read(const float *values, size_t n)
{
    weft_simd_t level = weft_simd_level();

    return level == WEFT_SIMD_AVX512 ? read_512(values, n)
           : level == WEFT_SIMD_AVX2 ? read_256(values, n)
                                     : read_128(values, n);
}

static void plain_add(float *sums, const float *values, size_t n)
{
    weft_simd_t level = weft_simd_level();

    if (level == WEFT_SIMD_AVX512) {
        add_512(sums, values, n);
    } else if (level == WEFT_SIMD_AVX2) {
        add_256(sums, values, n);
    } else {
        add_128(sums, values, n);
    }
}
#else
PLAIN_LOOPS(plain, "")
#    define plain_read read_plain
#    define plain_add  add_plain
#endif

/* ---- the peer ---- */

static void swap(float *x, float *y)
{
    float z = *x;

    *x = *y;
    *y = z;
}

/* The k-th largest of x, which it rearranges (Hoare, Algorithm 65: Find, CACM 4, 1961). */
static float quickselect(float *x, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        size_t i = low, j = high;
        float pivot;

        if (x[middle] > x[low]) {
            swap(&x[middle], &x[low]);
        }
        if (x[high] > x[low]) {
            swap(&x[high], &x[low]);
        }
        if (x[high] > x[middle]) {
            swap(&x[high], &x[middle]);
        }
        pivot = x[middle];
        for (;;) {
            while (x[i] > pivot) {
                i++;
            }
            while (x[j] < pivot) {
                j--;
            }
            if (i >= j) {
                break;
            }
            swap(&x[i++], &x[j--]);
        }
        if (k - 1 <= j) {
            high = j;
        } else {
            low = j + 1;
        }
    }
    return x[k - 1];
}

/* With a residual the values are added first, and what is selected is cleared. */
static float plain_select(struct contest *c, float *residual)
{
    const float *from = residual ? residual : c->values;
    size_t found = 0;
    float cut;

    for (size_t i = 0; i < c->n; i++) {
        if (residual) {
            residual[i] += c->values[i];
        }
        c->scratch[i] = fabsf(from[i]);
    }
    cut = quickselect(c->scratch, c->n, c->k);
    for (size_t i = 0; i < c->n && found < c->k; i++) {
        if (fabsf(from[i]) >= cut) {
            c->indices[found] = (uint32_t)i;
            c->kept[found++] = from[i];
            if (residual) {
                residual[i] = 0;
            }
        }
    }
    return cut;
}

/* ---- taking turns ---- */

static int select_once(struct contest *c, enum contender who)
{
    struct weft_sparse out = {c->indices, c->kept, 0, c->k, WEFT_U32, WEFT_F32};
    struct weft_sparse_options options;
    struct weft_sparse_report report;
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
        c->seen |= plain_read(c->values, c->n);
        return WEFT_OK;
    case ADD:
        plain_add(c->sums, c->values, c->n);
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

            if (who >= PLAIN && round >= PEER_ROUNDS) {
                continue;
            }
            start = ranks_now();
            for (size_t t = 0; t < turns; t++) {
                int status = one_turn(c, (enum contender)who);
                if (status != WEFT_OK) {
                    return status;
                }
            }
            double ns = (double)(ranks_now() - start) / (double)turns;
            if (round >= 0) {
                bench_sample(&c->samples[who], (double)(c->n * sizeof(float)) / ns);
            }
        }
    }
    if (c->cut[SELECT] != c->cut[PLAIN] || c->cut[HINTED] != c->cut[PLAIN]) {
        return weft_error_set(WEFT_ERR_COMPUTE, "the k-th is %g, and %g to quickselect",
                              (double)c->cut[SELECT], (double)c->cut[PLAIN]);
    }
    return WEFT_OK;
}

/* ---- rows ---- */

/* 25e6 as "25e6". */
static const char *count_text(size_t n, char text[24])
{
    if (n >= 1000000 && n % 1000000 == 0) {
        snprintf(text, 24, "%zue6", n / 1000000);
    } else {
        snprintf(text, 24, "%zu", n);
    }
    return text;
}

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

    snprintf(what, sizeof(what), "n=%s k=%s %s%s", count_text(c->n, n), count_text(c->k, k),
             data_names[data], how);
    bench_print(bench, &row);
}

static void close_contest(struct contest *c)
{
    void *memory[] = {c->values,  c->residual, c->sums,     c->scratch,
                      c->indices, c->kept,     c->workspace};

    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        weft_memory_free(memory[i]);
    }
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
        !c->workspace) {
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu values", n);
    }
    return WEFT_OK;
}

static int measure(struct bench *bench, size_t n, enum data data)
{
    struct contest c;
    int status = open_contest(&c, n);

    if (status == WEFT_OK) {
        fill(c.values, n, data);
        status = take_turns(bench, &c);
    }
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
    size_t count = bench->size_count ? bench->size_count : sizeof(sizes) / sizeof(sizes[0]);

    bench_machine(bench);
    bench_note(bench,
               "the k largest magnitudes of n f32, one core (%s); limit: one plain read, or with a "
               "residual\none plain addition to it; hand-over between cores %.0f ns",
               weft_simd_name(weft_simd_level()), bench->handover_ns);
    for (size_t i = 0; i < count; i++) {
        for (int data = 0; data < DATA; data++) {
            int status = measure(bench, bytes[i] / sizeof(float), (enum data)data);
            if (status) {
                return status;
            }
        }
    }
    return 0;
}

/* ---- merging ---- */

struct merge_case {
    const char *what;
    size_t k;
    size_t range; /* indices below it: the smaller, the more of them are in both lists */
};

/* Few pairs would be merged in the same order again and again, which a processor learns: so there are
 * as many sets of lists as it takes for that to stop. */
enum { LISTED_PAIRS = 400000 };

struct merge_contest {
    size_t k;
    size_t sets;
    size_t set;                  /* whose turn it is */
    struct weft_sparse lists[2]; /* of that set */
    struct weft_sparse all[2];
    struct weft_sparse out, dropped, sum;
    float *scratch;
    void *workspace;
    size_t workspace_bytes;
    float cut[2];
};

static void fill_list(struct weft_sparse *list, size_t count, size_t range, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t *indices = list->indices;
    float *values = list->values;
    size_t n = 0;

    for (size_t i = 0; i < range && n < count; i++) {
        if (uniform(&state) * (double)(range - i) < (double)(count - n)) {
            indices[n] = (uint32_t)i;
            values[n++] = (float)normal_quantile(uniform(&state));
        }
    }
    list->count = n;
}

/* Two pointers, quickselect, one pass: returns the k-th largest magnitude. */
static float plain_merge(struct merge_contest *m)
{
    const struct weft_sparse *a = &m->lists[0], *b = &m->lists[1];
    const uint32_t *p = a->indices, *q = b->indices;
    const float *x = a->values, *y = b->values;
    uint32_t *index = m->sum.indices, *kept = m->out.indices, *lost = m->dropped.indices;
    float *value = m->sum.values, *kept_value = m->out.values, *lost_value = m->dropped.values;
    size_t i = 0, j = 0, n = 0, keep = 0, lose = 0;

    while (i < a->count || j < b->count) {
        if (j == b->count || (i < a->count && p[i] < q[j])) {
            index[n] = p[i];
            value[n++] = x[i++];
        } else if (i == a->count || q[j] < p[i]) {
            index[n] = q[j];
            value[n++] = y[j++];
        } else {
            index[n] = p[i];
            value[n++] = x[i++] + y[j++];
        }
    }
    for (i = 0; i < n; i++) {
        m->scratch[i] = fabsf(value[i]);
    }
    float cut = quickselect(m->scratch, n, m->k);
    for (i = 0; i < n; i++) {
        if (fabsf(value[i]) >= cut && keep < m->k) {
            kept[keep] = index[i];
            kept_value[keep++] = value[i];
        } else {
            lost[lose] = index[i];
            lost_value[lose++] = value[i];
        }
    }
    return cut;
}

static void next_set(struct merge_contest *m)
{
    m->set = (m->set + 1) % m->sets;
    for (int i = 0; i < 2; i++) {
        m->lists[i] = m->all[i];
        m->lists[i].indices = (uint32_t *)m->all[i].indices + m->set * m->k;
        m->lists[i].values = (float *)m->all[i].values + m->set * m->k;
        m->lists[i].count = m->lists[i].capacity = m->k;
    }
}

static int merge_turn(struct merge_contest *m, int who)
{
    struct weft_sparse_options options;
    struct weft_sparse_report report;
    int status;

    next_set(m);

    if (who == 2) { /* the limit: the pairs are moved once */
        for (int i = 0; i < 2; i++) {
            const struct weft_sparse *list = &m->lists[i];
            size_t at = i * m->k * sizeof(float);

            memcpy((char *)m->sum.indices + at, list->indices, list->count * sizeof(uint32_t));
            memcpy((char *)m->sum.values + at, list->values, list->count * sizeof(float));
        }
        return WEFT_OK;
    }
    if (who == 1) {
        m->cut[1] = plain_merge(m);
        return WEFT_OK;
    }
    weft_sparse_options_init(&options);
    options.workspace = m->workspace;
    options.workspace_bytes = m->workspace_bytes;
    status = weft_sparse_merge(&options, &m->lists[0], &m->lists[1], m->k, &m->out, &m->dropped,
                               &report);
    m->cut[0] = (float)report.threshold;
    return status;
}

static int open_list(struct weft_sparse *list, size_t capacity)
{
    *list = (struct weft_sparse){.indices = weft_memory_alloc(capacity, sizeof(uint32_t)),
                                 .values = weft_memory_alloc(capacity, sizeof(float)),
                                 .capacity = capacity,
                                 .index_dtype = WEFT_U32,
                                 .dtype = WEFT_F32};
    return list->indices && list->values;
}

static void close_merge(struct merge_contest *m)
{
    struct weft_sparse *lists[] = {&m->all[0], &m->all[1], &m->out, &m->dropped, &m->sum};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        weft_memory_free(lists[i]->indices);
        weft_memory_free(lists[i]->values);
    }
    weft_memory_free(m->scratch);
    weft_memory_free(m->workspace);
}

static int open_merge(struct merge_contest *m, const struct merge_case *c)
{
    int all = 1;

    *m = (struct merge_contest){.k = c->k, .sets = 1 + LISTED_PAIRS / c->k};
    all &= open_list(&m->all[0], m->sets * c->k) && open_list(&m->all[1], m->sets * c->k);
    all &= open_list(&m->out, c->k) && open_list(&m->dropped, c->k) && open_list(&m->sum, 2 * c->k);
    m->scratch = weft_memory_alloc(2 * c->k, sizeof(float));
    m->workspace_bytes = weft_sparse_merge_workspace(WEFT_U32, WEFT_F32, 2 * c->k);
    m->workspace = weft_memory_alloc(m->workspace_bytes, 1);
    if (!all || !m->scratch || !m->workspace) {
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu pairs", c->k);
    }
    for (size_t i = 0; i < m->sets; i++) {
        next_set(m);
        fill_list(&m->lists[0], c->k, c->range, 1234567 + 2 * i);
        fill_list(&m->lists[1], c->k, c->range, 1234568 + 2 * i);
    }
    return WEFT_OK;
}

static int merge_case(struct bench *bench, const struct merge_case *c)
{
    struct bench_samples samples[3] = {{0}, {0}, {0}};
    struct merge_contest m;
    int status = open_merge(&m, c);
    size_t turns = 2000000 / c->k;
    char what[64];

    for (int round = -1; status == WEFT_OK && round < bench->rounds; round++) {
        for (int who = 0; status == WEFT_OK && who < 3; who++) {
            uint64_t start = ranks_now();

            m.set = 0; /* the same for all */
            for (size_t t = 0; status == WEFT_OK && t < turns; t++) {
                status = merge_turn(&m, who);
            }
            double ns = (double)(ranks_now() - start) / (double)turns;
            if (round >= 0) {
                bench_sample(&samples[who], 2e3 * (double)c->k / ns);
            }
        }
    }
    if (status == WEFT_OK && m.cut[0] != m.cut[1]) {
        status = weft_error_set(WEFT_ERR_COMPUTE, "the k-th is %g, and %g to the plain merge",
                                (double)m.cut[0], (double)m.cut[1]);
    }
    close_merge(&m);
    if (status != WEFT_OK) {
        return bench_fail(bench, c->what);
    }
    snprintf(what, sizeof(what), "k=%zu %s", c->k, c->what);
    struct bench_row row = {.what = what,
                            .unit = "Mpairs/s",
                            .peer = "plain merge",
                            .weft = &samples[0],
                            .peers = &samples[1],
                            .limit = bench_median(&samples[2]),
                            .bytes = SIZE_MAX};
    bench_print(bench, &row);
    return 0;
}

int bench_merge(struct bench *bench)
{
    static const struct merge_case cases[] = {
        {"few indices in both", 1000, 100000},     {"half of the indices in both", 1000, 2000},
        {"few indices in both", 25000, 2500000},   {"half of the indices in both", 25000, 50000},
        {"few indices in both", 500000, 50000000},
    };

    bench_machine(bench);
    bench_note(bench,
               "two sorted lists of k (index, value) pairs to the k largest of the sum and what is "
               "dropped;\nlimit: moving the pairs once; hand-over between cores %.0f ns",
               bench->handover_ns);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int status = merge_case(bench, &cases[i]);
        if (status) {
            return status;
        }
    }
    return 0;
}
