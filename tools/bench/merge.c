/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench merge: sums of sparse vectors that keep the k largest magnitudes, on one core. The
 * limit is moving the pairs once; the peer is two pointers, quickselect, and a pass that takes
 * apart.
 */
#include "tools/bench/bench.h"
#include "tools/bench/data.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct merge_case {
    const char *what;
    size_t k;
    size_t range; /* indices below it: the smaller, the more of them are in both lists */
};

/* Few pairs would be merged in the same order again and again, which a processor learns: so there
 * are as many sets of lists as it takes for that to stop. */
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
        if (bench_uniform(&state) * (double)(range - i) < (double)(count - n)) {
            indices[n] = (uint32_t)i;
            values[n++] = (float)bench_normal_quantile(bench_uniform(&state));
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
    for (i = 0; i < n; i++)
        m->scratch[i] = fabsf(value[i]);
    float cut = bench_quickselect(m->scratch, n, m->k);
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
    struct weft_sparse_report report = {.struct_size = sizeof report};
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

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
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
    if (!all || !m->scratch || !m->workspace)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu pairs", c->k);
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
            for (size_t t = 0; status == WEFT_OK && t < turns; t++)
                status = merge_turn(&m, who);
            double ns = (double)(ranks_now() - start) / (double)turns;
            if (round >= 0)
                bench_sample(&samples[who], 2e3 * (double)c->k / ns);
        }
    }
    if (status == WEFT_OK && m.cut[0] != m.cut[1]) {
        status = weft_error_set(WEFT_ERR_COMPUTE, "the k-th is %g, and %g to the plain merge",
                                (double)m.cut[0], (double)m.cut[1]);
    }
    close_merge(&m);
    if (status != WEFT_OK)
        return bench_fail(bench, c->what);
    snprintf(what, sizeof what, "k=%zu %s", c->k, c->what);
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
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status = merge_case(bench, &cases[i]);
        if (status)
            return status;
    }
    return 0;
}
