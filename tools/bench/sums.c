/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums over all ranks, dense and sparse: their data, and whether they are right. */
#include "tools/bench/sums.h"
#include "tools/bench/bench.h"
#include "tools/bench/data.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *template;
    const char *algo;
    const char *name;
} sums[SUMS] = {
    [SUMS_ALLREDUCE] = {"allreduce", NULL, "allreduce"},
    [SUMS_RING] = {"allreduce", "ring", "allreduce ring"},
    [SUMS_MPI] = {NULL, NULL, "MPI_Allreduce"},
    [SUMS_ALLGATHER] = {"topk-allgather", NULL, "topk-allgather"},
    [SUMS_TREE] = {"gtopk", "tree", "tree"},
    [SUMS_BUTTERFLY] = {"gtopk", "butterfly", "butterfly"},
    [SUMS_OKTOPK] = {"oktopk", NULL, "oktopk"},
};

const char *sums_name(int sum)
{
    return sums[sum].name;
}

int sums_build(const struct sums_shape *shape, int sum, int rank, struct weft_schedule **schedule)
{
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.count = shape->n;
    params.k = shape->k;
    params.algo = sums[sum].algo;
    params.cost = &shape->cost;
    return weft_template_build(sums[sum].template, rank, shape->ranks, &params, schedule);
}

/* One index in each of k stretches of the vector, so that they ascend; the first and the last
 * element are in every list. */
static void fill_pairs(const struct sums_shape *shape, struct sums_side *side, int rank)
{
    uint64_t state = UINT64_C(88172645463325252) + (uint64_t)rank * UINT64_C(0x9e3779b97f4a7c15);
    float *values = (float *)(side->pairs + shape->k);

    for (size_t i = 0; i < shape->k; i++) {
        size_t from = (size_t)((double)shape->n / (double)shape->k * (double)i);
        size_t to = (size_t)((double)shape->n / (double)shape->k * (double)(i + 1));
        size_t at = from + (size_t)(bench_uniform(&state) * (double)(to - from));
        side->pairs[i] = (uint32_t)(at < to ? at : to - 1);
        values[i] = (float)bench_normal_quantile(bench_uniform(&state));
    }
    side->pairs[shape->k - 1] = (uint32_t)(shape->n - 1);
    side->pairs[0] = 0;
}

/* How long lists are: those of the values that the sum has. */
static int bind_values(const struct sums_shape *shape, struct weft_run *run)
{
    static const char *const names[] = {"pairs", "k", "share", "quota"};
    size_t share = 0, quota = 0;
    int status = WEFT_OK;

    weft_sparse_region_limits(shape->k, shape->ranks, &share, &quota);
    const size_t values[] = {shape->k, shape->k, share, quota};
    for (size_t i = 0; status == WEFT_OK && i < sizeof names / sizeof names[0]; i++) {
        weft_value_t value = weft_plan_find_value(weft_run_plan(run), names[i]);
        status = value > 0 ? weft_run_bind_value(run, value, values[i]) : WEFT_OK;
    }
    return status;
}

/* All of a slot: how much that is is the template's affair. */
static int bind_slot(struct weft_run *run, const char *name, void *data)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    int status = weft_plan_get_slot(weft_run_plan(run),
                                    weft_plan_find_slot(weft_run_plan(run), name), &slot);

    return status == WEFT_OK ? weft_run_bind_name(run, name, data, slot.count, slot.dtype) : status;
}

static int bind(const struct sums_shape *shape, struct sums_side *side, int sum)
{
    struct weft_run *run = side->runs[sum];
    const struct weft_plan *plan = weft_run_plan(run);
    int sparse = sum >= SUMS_FIRST_SPARSE;
    int status = bind_slot(run, "send", sparse ? (void *)side->pairs : side->dense);

    if (status == WEFT_OK)
        status = bind_slot(run, "recv", sparse ? (void *)side->result : side->sum);
    if (status == WEFT_OK && weft_plan_find_slot(plan, "residual") >= 0)
        status = bind_slot(run, "residual", side->sum);
    if (status == WEFT_OK && sum == SUMS_OKTOPK)
        status = bind_slot(run, "bounds", side->bounds);
    if (status == WEFT_OK && sum == SUMS_OKTOPK)
        status = bind_slot(run, "threshold", &side->threshold);
    return status == WEFT_OK && sparse ? bind_values(shape, run) : status;
}

static int open_run(const struct sums_shape *shape, struct sums_side *side, int sum,
                    struct weft_context *context)
{
    struct weft_plan *plan = NULL;
    int status = sums_build(shape, sum, weft_context_rank(context), &side->schedules[sum]);

    if (status == WEFT_OK)
        status = weft_schedule_commit(side->schedules[sum], &plan);
    if (status == WEFT_OK)
        status = weft_run_create(&side->runs[sum], context, plan, NULL);
    weft_plan_destroy(plan);
    return status == WEFT_OK ? bind(shape, side, sum) : status;
}

int sums_open(struct sums_side *side, const struct sums_shape *shape, struct weft_context *context)
{
    int status = WEFT_OK;

    side->dense = weft_memory_alloc(shape->n, sizeof(float));
    side->sum = weft_memory_alloc(shape->n, sizeof(float));
    side->pairs = weft_memory_alloc(shape->k, 2 * sizeof(uint32_t));
    side->result = weft_memory_alloc(shape->k * (size_t)shape->ranks, 2 * sizeof(uint32_t));
    side->bounds = weft_memory_alloc((size_t)shape->ranks + 1, sizeof(uint64_t));
    if (!side->dense || !side->sum || !side->pairs || !side->result || !side->bounds)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu elements", shape->n);
    for (size_t i = 0; i < shape->n; i++) {
        side->dense[i] = 1;
        side->sum[i] = 0;
    }
    for (int r = 0; r <= shape->ranks; r++)
        side->bounds[r] = shape->n * (uint64_t)r / (uint64_t)shape->ranks;
    side->threshold = 0;
    fill_pairs(shape, side, weft_context_rank(context));
    for (int sum = 0; status == WEFT_OK && sum < SUMS; sum++)
        status = sum == SUMS_MPI ? WEFT_OK : open_run(shape, side, sum, context);
    if (status == WEFT_OK && shape->mpi)
        bench_peer_open(BENCH_ALLREDUCE, side->dense, side->sum, shape->n);
    return status;
}

void sums_close(struct sums_side *side)
{
    void *memory[] = {side->dense, side->sum, side->pairs, side->result, side->bounds};

    for (int sum = 0; sum < SUMS; sum++) {
        weft_run_destroy(side->runs[sum]);
        weft_schedule_destroy(side->schedules[sum]);
    }
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        weft_memory_free(memory[i]);
    memset(side, 0, sizeof *side);
}

/* ---- the data of a turn ---- */

static float end_value(int rank, int turn)
{
    return (float)(1000 * (rank + 1 + turn % 100));
}

static float end_sum(const struct sums_shape *shape, int turn)
{
    const int pairs = shape->ranks * (shape->ranks - 1) / 2;

    return (float)(1000 * (pairs + shape->ranks * (1 + turn % 100)));
}

void sums_set(struct sums_side *side, const struct sums_shape *shape, int rank, int turn)
{
    float *values = (float *)(side->pairs + shape->k);
    float value = end_value(rank, turn);

    side->dense[0] = side->dense[shape->n - 1] = values[0] = values[shape->k - 1] = value;
    side->sum[0] = side->sum[shape->n - 1] = 0;
    memset(side->result, 0, 2 * sizeof(uint32_t));
}

int sums_run(struct sums_side *side, int sum)
{
    if (sum == SUMS_MPI) {
        bench_peer_run(BENCH_ALLREDUCE);
        return WEFT_OK;
    }
    return weft_run_execute(side->runs[sum]);
}

/* What the sends of the last execution were. */
static uint64_t bytes_sent(const struct sums_side *side, int sum)
{
    const struct weft_schedule *schedule = side->schedules[sum];
    struct weft_node_info node = {.struct_size = sizeof node};
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    uint64_t bytes = 0;

    for (size_t i = 0; i < weft_schedule_node_count(schedule); i++) {
        weft_schedule_get_node(schedule, (weft_node_t)i, &node);
        if (node.kind == WEFT_NODE_SEND) {
            const struct weft_region *region = &node.regions[0];
            uint64_t count =
                region->value ? weft_run_get_value(side->runs[sum], region->value) : region->count;
            weft_schedule_get_slot(schedule, region->slot, &slot);
            bytes += count * weft_dtype_size(slot.dtype);
        }
    }
    return bytes;
}

/* Indices ascend, and both ends are there with their sums. */
static int check_pairs(struct sums_side *side, const struct sums_shape *shape, int sum, int turn)
{
    const struct weft_run *run = side->runs[sum];
    size_t count = weft_run_get_value(run, weft_plan_find_value(weft_run_plan(run), "kept"));
    const uint32_t *index = side->result;
    const float *value = (const float *)(index + count);
    float expected = end_sum(shape, turn);
    size_t last = shape->k > 1 ? shape->n - 1 : 0;
    int ordered = count > 0;

    side->hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < 2 * count; i++) { /* FNV-1a, by words */
        side->hash = (side->hash ^ index[i]) * UINT64_C(1099511628211);
        ordered &= i == 0 || i >= count || index[i] > index[i - 1];
    }
    side->hash >>= 12; /* a double holds it */
    if (ordered && index[0] == 0 && index[count - 1] == last && value[0] == expected &&
        value[count - 1] == expected)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_COMPUTE,
                          "wrong sum of %s: %zu pairs %s, (%u, %g) to (%u, %g); expected (0, %g) "
                          "to (%zu, %g)",
                          sums[sum].name, count, ordered ? "in order" : "out of order",
                          count ? index[0] : 0, count ? (double)value[0] : 0,
                          count ? index[count - 1] : 0, count ? (double)value[count - 1] : 0,
                          (double)expected, last, (double)expected);
}

int sums_check(struct sums_side *side, const struct sums_shape *shape, int sum, int turn)
{
    side->hash = 0;
    side->bytes = 0;
    if (sum != SUMS_MPI)
        side->bytes = bytes_sent(side, sum);
    if (sum >= SUMS_FIRST_SPARSE)
        return check_pairs(side, shape, sum, turn);
    if (side->sum[0] == end_sum(shape, turn) && side->sum[shape->n - 1] == end_sum(shape, turn))
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_COMPUTE, "wrong sum of %zu elements: %g and %g, expected %g",
                          shape->n, (double)side->sum[0], (double)side->sum[shape->n - 1],
                          (double)end_sum(shape, turn));
}
