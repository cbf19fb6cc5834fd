/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench gpu: selecting the k entries of largest magnitude on a device. Rates are of the
 * values, 4 bytes each, whatever else is touched, so that the device's bandwidth by the rate is how
 * often the values could have been read: the goals are of that. A turn is a run of several nodes
 * one after the other, so that starting it does not count. Peers are the same selection on the
 * host, and programs of --beside (gpu_beside.c) that select on the device with libraries of others.
 */
#include "tools/bench/data.h"
#include "tools/bench/gpu.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <string.h>
#include <weft/sparse.h>

enum { COUNT = 25000000, SHARE = 1000, NODES = 16 };

enum kind { EXACT, HINTED, ABOVE, FUSED };

static const struct selection {
    const char *what;
    enum kind kind;
    double vectors; /* that cannot but be read or written */
    double passes;  /* of such, the goal */
} selections[] = {
    {"top-k", EXACT, 1, 3},
    {"top-k, hint", HINTED, 1, 1.3},
    {"above threshold", ABOVE, 1, 1.3},
    {"top-k, hint, residual", FUSED, 3, 1.3},
};

enum slot { LIST, WORK, LIMIT, RESIDUAL, VALUES, WORD, SLOTS };

struct contest {
    struct gpu *gpu;
    const struct selection *selection;
    size_t count, k;
    float threshold;      /* that k entries reach */
    float *values, *sums; /* of the host */
    struct weft_sparse found;
    void *memory[SLOTS];
    struct weft_run *run;
    struct weft_op *op;
    struct gpu_beside **beside;
    size_t beside_count;
    struct bench_samples weft, host, others[GPU_BESIDES];
};

static size_t size_of(const struct contest *c, enum slot slot)
{
    switch (slot) {
    case LIST:
        return c->k * 8;
    case RESIDUAL:
        return c->selection->kind == FUSED ? c->count * 4 : 4;
    case VALUES:
        return c->count * 4;
    default:
        return slot == WORD ? 4 : 0; /* the run has the rest */
    }
}

/* ---- the host ---- */

static int select_on_host(struct contest *c, double hint, double *next)
{
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
    int status;

    weft_sparse_options_init(&options);
    options.hint = hint;
    if (c->selection->kind == ABOVE)
        status = weft_sparse_above(&options, c->values, c->count, c->threshold, &c->found, &report);
    else if (c->selection->kind == FUSED)
        status = weft_sparse_accumulate_top(&options, c->sums, c->values, c->count, c->k, &c->found,
                                            &report);
    else
        status = weft_sparse_top(&options, c->values, c->count, c->k, &c->found, &report);
    *next = report.hint;
    return status;
}

static int open_host(struct contest *c)
{
    uint64_t state = 88172645463325252u;
    struct weft_sparse_report report = {.struct_size = sizeof report};

    c->values = weft_memory_alloc(c->count, sizeof *c->values);
    c->sums = weft_memory_alloc(c->count, sizeof *c->sums);
    c->found = (struct weft_sparse){.indices = weft_memory_alloc(c->k, sizeof(uint32_t)),
                                    .values = weft_memory_alloc(c->k, sizeof(float)),
                                    .capacity = c->k,
                                    .index_dtype = WEFT_U32,
                                    .dtype = WEFT_F32};
    if (!c->values || !c->sums || !c->found.indices || !c->found.values)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu elements", c->count);
    for (size_t i = 0; i < c->count; i++)
        c->values[i] = (float)bench_normal_quantile(bench_uniform(&state));
    int status = weft_sparse_top(NULL, c->values, c->count, c->k, &c->found, &report);
    c->threshold = (float)report.threshold;
    return status;
}

static void close_host(struct contest *c)
{
    weft_memory_free(c->values);
    weft_memory_free(c->sums);
    weft_memory_free(c->found.indices);
    weft_memory_free(c->found.values);
}

/* ---- the device ---- */

static int put(const struct contest *c, enum slot slot, const void *from)
{
    return weft_context_device_copy(c->gpu->context, c->memory[slot], from, size_of(c, slot));
}

static int open_memory(struct contest *c)
{
    const float word = c->selection->kind == ABOVE ? c->threshold : 0;
    int status = WEFT_OK;

    for (int slot = 0; slot < SLOTS && status == WEFT_OK; slot++)
        if (size_of(c, (enum slot)slot))
            status = weft_context_device_alloc(c->gpu->context, WEFT_MEMORY_DEVICE,
                                               size_of(c, (enum slot)slot), &c->memory[slot]);
    if (status == WEFT_OK)
        status = put(c, VALUES, c->values);
    if (status == WEFT_OK)
        status = put(c, WORD, &word);
    memset(c->sums, 0, c->count * sizeof *c->sums);
    return status == WEFT_OK ? put(c, RESIDUAL, c->sums) : status;
}

static void close_memory(struct contest *c)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        weft_context_device_free(c->gpu->context, c->memory[slot]);
        c->memory[slot] = NULL;
    }
}

/* Without a residual its region is of no elements. */
static weft_node_t add_node(const struct contest *c, struct weft_schedule *s, size_t work, int n)
{
    const enum kind kind = c->selection->kind;
    char name[16];

    snprintf(name, sizeof name, "found%d", n);
    weft_value_t found = weft_schedule_add_value(s, name, c->k);
    struct weft_compute_argument arguments[] = {
        {weft_region_at(LIST, 0, c->k), WEFT_WRITE},
        {weft_region_at(RESIDUAL, 0, kind == FUSED ? c->count : 0), WEFT_UPDATE},
        {weft_region_at(VALUES, 0, c->count), WEFT_READ},
        {weft_region_at(WORK, 0, work), WEFT_WRITE},
        {weft_region_at(LIMIT, 0, c->k), WEFT_WRITE},
        {weft_region_at(WORD, 0, 1), WEFT_UPDATE},
    };

    if (kind == ABOVE)
        arguments[4] = (struct weft_compute_argument){weft_region_at(WORD, 0, 1), WEFT_READ};
    return weft_schedule_add_compute(s, c->op, arguments, kind == EXACT || kind == ABOVE ? 5 : 6,
                                     found);
}

static int build(const struct contest *c, struct weft_schedule *s)
{
    const size_t work = weft_sparse_select_workspace(NULL, WEFT_F32, c->count, c->k) / 8 + 1;
    weft_node_t before = WEFT_NODE_NONE;

    weft_schedule_add_slot(s, "list", WEFT_U64, c->k, WEFT_SLOT_OUTPUT);
    weft_schedule_add_slot(s, "work", WEFT_U64, work, WEFT_SLOT_SCRATCH);
    weft_schedule_add_slot(s, "limit", WEFT_U8, c->k, WEFT_SLOT_SCRATCH);
    weft_schedule_add_slot(s, "residual", WEFT_F32, size_of(c, RESIDUAL) / 4, WEFT_SLOT_INOUT);
    weft_schedule_add_slot(s, "values", WEFT_F32, c->count, WEFT_SLOT_INPUT);
    weft_schedule_add_slot(s, "word", WEFT_F32, 1, WEFT_SLOT_INOUT);
    for (int slot = 0; slot < SLOTS; slot++)
        weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE);
    for (int n = 0; n < NODES; n++) {
        weft_node_t node = add_node(c, s, work, n);

        if (n > 0)
            weft_schedule_add_order(s, before, node);
        before = node;
    }
    return weft_schedule_status(s);
}

static int open_run(struct contest *c)
{
    static const weft_dtype_t dtypes[] = {
        [LIST] = WEFT_U64, [RESIDUAL] = WEFT_F32, [VALUES] = WEFT_F32, [WORD] = WEFT_F32};
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    int status = weft_sparse_op(
        c->selection->kind == ABOVE ? WEFT_SPARSE_ABOVE : WEFT_SPARSE_SELECT, &c->op);

    if (status == WEFT_OK)
        status = weft_schedule_create(&schedule, 0, 1);
    if (status == WEFT_OK)
        status = build(c, schedule);
    if (status == WEFT_OK)
        status = weft_schedule_commit(schedule, &plan);
    if (status == WEFT_OK)
        status = weft_run_create(&c->run, c->gpu->context, plan, NULL);
    for (int slot = 0; slot < SLOTS && status == WEFT_OK; slot++)
        if (c->memory[slot])
            status = weft_run_bind(c->run, slot, c->memory[slot],
                                   size_of(c, (enum slot)slot) / weft_dtype_size(dtypes[slot]),
                                   dtypes[slot]);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

/* ---- turns ---- */

/* What the nodes of the first turn have found is what the host finds. */
static int check(struct contest *c)
{
    const int times = c->selection->kind == FUSED ? NODES : 1;
    char *list = weft_memory_alloc(c->k, 8);
    double hint = 0;
    int status = list ? WEFT_OK : weft_error_set(WEFT_ERR_MEMORY, "out of memory");

    for (int i = 0; i < times && status == WEFT_OK; i++)
        status = select_on_host(c, hint, &hint);
    if (status == WEFT_OK)
        status = weft_context_device_copy(c->gpu->context, list, c->memory[LIST], c->k * 8);
    if (status == WEFT_OK && (c->found.count != c->k || memcmp(list, c->found.indices, c->k * 4) ||
                              memcmp(list + c->k * 4, c->found.values, c->k * 4)))
        status = weft_error_set(WEFT_ERR_COMPUTE, "%s of %zu is not what the host selects",
                                c->selection->what, c->count);
    weft_memory_free(list);
    return status;
}

static double rate(const struct contest *c, uint64_t ns)
{
    return (double)c->count * 4 / (double)ns;
}

static int take_turns(struct contest *c)
{
    int status = weft_run_execute(c->run);
    double hint = 0, seconds;

    if (status == WEFT_OK)
        status = check(c);
    for (int round = 0; round < c->gpu->bench->rounds && status == WEFT_OK; round++) {
        uint64_t start = ranks_now(), middle;

        status = weft_run_execute(c->run);
        middle = ranks_now();
        bench_sample(&c->weft, rate(c, middle - start) * NODES);
        if (status == WEFT_OK)
            status = select_on_host(c, c->selection->kind == EXACT ? 0 : hint, &hint);
        bench_sample(&c->host, rate(c, ranks_now() - middle));
        for (size_t i = 0; i < c->beside_count && status == WEFT_OK; i++) {
            status = gpu_beside_turn(c->beside[i], NODES, &seconds);
            bench_sample(&c->others[i], (double)c->count * 4e-9 / seconds);
        }
    }
    return status;
}

/* ---- rows ---- */

static void print(struct contest *c)
{
    const struct selection *selection = c->selection;
    char what[96], n[24];
    struct bench_row row = {.what = what,
                            .unit = "GB/s",
                            .peer = "weft on the host",
                            .weft = &c->weft,
                            .peers = &c->host,
                            .limit = c->gpu->bandwidth * 1e-9 / selection->vectors,
                            .bytes = c->count * 4};
    double share = bench_median(&c->weft) / row.limit;

    snprintf(what, sizeof what, "%s n=%s", selection->what, bench_count_text(c->count, n));
    gpu_print(c->gpu, &row, share, 1 / selection->passes);
    for (size_t i = 0; i < c->beside_count; i++) {
        row.peer = gpu_beside_name(c->beside[i]);
        row.peers = &c->others[i];
        gpu_print(c->gpu, &row, share, 1 / selection->passes);
    }
}

/* Others select exactly, and without a residual. */
static int open_beside(struct contest *c, struct gpu_beside *beside[GPU_BESIDES])
{
    const struct bench *bench = c->gpu->bench;
    int status = WEFT_OK;

    c->beside = beside;
    c->beside_count = 0;
    for (size_t i = 0; c->selection->kind == EXACT && i < bench->beside_count; i++) {
        status = gpu_beside_open(&beside[i], bench->beside[i], c->count, c->k);
        if (status != WEFT_OK)
            break;
        c->beside_count++;
    }
    return status;
}

static int measure(struct contest *c, const struct selection *selection)
{
    struct gpu_beside *beside[GPU_BESIDES];

    c->selection = selection;
    c->run = NULL;
    c->op = NULL;
    c->weft.count = c->host.count = 0;
    int status = open_memory(c);
    if (status == WEFT_OK)
        status = open_run(c);
    if (status == WEFT_OK)
        status = open_beside(c, beside);
    if (status == WEFT_OK)
        status = take_turns(c);
    if (status == WEFT_OK)
        print(c);
    for (size_t i = 0; i < c->beside_count; i++)
        gpu_beside_close(beside[i]);
    weft_run_destroy(c->run);
    weft_op_destroy(c->op);
    close_memory(c);
    return status == WEFT_OK ? 0 : bench_fail(c->gpu->bench, selection->what);
}

int gpu_topk(struct gpu *gpu)
{
    static const size_t standard[] = {(size_t)COUNT * 4};
    const struct bench *bench = gpu->bench;
    const size_t *sizes = bench->size_count ? bench->sizes : standard;
    size_t count = bench->size_count ? bench->size_count : 1;
    int status = 0;

    bench_note(bench, "top-k: one of %d elements, of a normal distribution; GB/s are of them alone",
               SHARE);
    for (size_t i = 0; i < count && !status; i++) {
        struct contest c = {.gpu = gpu, .count = sizes[i] / 4};

        c.k = c.count < SHARE ? 1 : c.count / SHARE;
        status = open_host(&c) == WEFT_OK ? 0 : bench_fail(bench, "top-k");
        for (size_t s = 0; s < sizeof selections / sizeof *selections && !status; s++)
            status = measure(&c, &selections[s]);
        close_host(&c);
    }
    return status;
}
