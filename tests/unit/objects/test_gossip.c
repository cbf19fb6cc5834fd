/* SPDX-License-Identifier: BSD-3-Clause */
/* Gossip: averages with neighbours against a plain computation, and what ranks' weights do. */
#include <criterion/criterion.h>

#include <math.h>

#include "runtime/base/alloc.h"
#include "support/ranks.h"

static const int sizes[] = {1, 2, 3, 5, 8, 16, 17};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST_RANKS = 33, ELEMENTS = 2500 };

static uint64_t scramble(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A number in -1 .. 1 that depends on rank and element. */
static double value_of(int rank, size_t element)
{
    return (double)(int64_t)scramble(scramble((uint64_t)rank) + element) * 0x1p-63;
}

/* A model of f32 or f64 in three tensors, one of them empty. */
struct model {
    weft_dtype_t dtype;
    char *data;
    struct weft_piece tensors[4];
};

static void model_init(struct model *model, weft_dtype_t dtype)
{
    static const size_t counts[] = {1000, 0, 1, ELEMENTS - 1001};
    model->dtype = dtype;
    model->data = calloc(ELEMENTS, weft_dtype_size(dtype));
    CHECK(model->data);
    char *at = model->data;
    for (int t = 0; t < 4; t++) {
        model->tensors[t] = (struct weft_piece){at, counts[t]};
        at += counts[t] * weft_dtype_size(dtype);
    }
}

static double get(const struct model *model, size_t i)
{
    return model->dtype == WEFT_F64 ? ((double *)model->data)[i] : ((float *)model->data)[i];
}

static void set(struct model *model, size_t i, double value)
{
    if (model->dtype == WEFT_F64)
        ((double *)model->data)[i] = value;
    else
        ((float *)model->data)[i] = (float)value;
}

static void set_all(struct model *model, int rank)
{
    for (size_t i = 0; i < ELEMENTS; i++)
        set(model, i, value_of(rank, i));
}

/* ---- graphs ---- */

static void check_hops(weft_gossip_graph_t graph, int ranks, int neighbours, uint64_t version)
{
    int hops[64], count = weft_gossip_hops(graph, ranks, neighbours, version, hops);
    cr_assert(count >= (ranks > 1) && count <= neighbours && count < ranks);
    for (int i = 0; i < count; i++) {
        cr_assert(hops[i] >= 1 && hops[i] < ranks, "%d of %d", hops[i], ranks);
        for (int j = 0; j < i; j++)
            cr_assert_neq(hops[i], hops[j]);
    }
}

Test(gossip, hops_are_distinct_and_never_oneself)
{
    for (int ranks = 1; ranks <= 65; ranks++)
        for (int n = 1; n <= 64; n++)
            for (uint64_t version = 0; version < 9; version++) {
                check_hops(WEFT_GOSSIP_RING, ranks, n, version);
                check_hops(WEFT_GOSSIP_EXPONENTIAL, ranks, n, version);
            }
    int hops[8];
    cr_assert_eq(weft_gossip_hops(WEFT_GOSSIP_RING, 5, 4, 7, hops), 4);
    cr_assert(hops[0] == 1 && hops[1] == 4 && hops[2] == 2 && hops[3] == 3);
    cr_assert_eq(weft_gossip_hops(WEFT_GOSSIP_EXPONENTIAL, 17, 1, 4, hops), 1);
    cr_assert_eq(hops[0], 16);
    cr_assert_eq(weft_gossip_hops(WEFT_GOSSIP_EXPONENTIAL, 17, 1, 5, hops), 1);
    cr_assert_eq(hops[0], 1);
    cr_assert_eq(weft_gossip_hops(WEFT_GOSSIP_EXPONENTIAL, 17, 2, UINT64_MAX, hops), 2);
    cr_assert(hops[0] == 1 && hops[1] == 2);
    cr_assert_eq(weft_gossip_hops(WEFT_GOSSIP_EXPONENTIAL, 9, 2, 1, hops), 2);
    cr_assert(hops[0] == 3 && hops[1] == 6);
    cr_assert_eq(weft_gossip_hops(WEFT_GOSSIP_EXPONENTIAL, 9, 0, 1, hops), 0);
    cr_assert_eq(weft_gossip_hops(WEFT_GOSSIP_EXPONENTIAL, INT32_MAX, INT32_MAX, 0, NULL),
                 WEFT_ERR_INVALID);
}

/* ---- against a plain computation ---- */

struct plain {
    weft_gossip_graph_t graph;
    int neighbours; /* as configured */
    weft_dtype_t dtype;
    int steps;
    int split; /* post, change the model, wait */
    enum weft_progress progress;
    double weights[MOST_RANKS];
    struct model found[MOST_RANKS];
};

static void plain_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct plain *plain = ranks->user;
    struct model *model = &plain->found[rank];
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    model_init(model, plain->dtype);
    set_all(model, rank);
    weft_gossip_config_init(&config);
    config.initial = WEFT_INITIAL_ANY;
    config.dtype = plain->dtype;
    config.tensors = model->tensors;
    config.tensor_count = 4;
    config.graph = plain->graph;
    config.neighbours = plain->neighbours;
    config.weight = plain->weights[rank];
    OK(weft_gossip_create(&gossip, context, &config));
    for (int step = 0; step < plain->steps; step++) {
        CHECK(weft_gossip_next(gossip) == (uint64_t)step);
        if (plain->split) {
            OK(weft_gossip_post(gossip));
            CHECK_STATUS(weft_gossip_step(gossip), WEFT_ERR_STATE);
            CHECK_STATUS(weft_gossip_post(gossip), WEFT_ERR_STATE);
            for (size_t i = 0; i < ELEMENTS; i++)
                set(model, i, get(model, i) + 0.25);
            OK(weft_gossip_wait(gossip));
            CHECK_STATUS(weft_gossip_wait(gossip), WEFT_ERR_STATE);
        } else {
            OK(weft_gossip_step(gossip));
        }
    }
    struct weft_gossip_stats stats = {.struct_size = sizeof stats};
    OK(weft_gossip_get_stats(gossip, &stats));
    CHECK(stats.steps == (uint64_t)plain->steps);
    CHECK((stats.messages > 0) == (ranks->size > 1 && plain->steps > 0));
    CHECK(stats.bytes ==
          stats.messages * (ELEMENTS * weft_dtype_size(plain->dtype) + sizeof(double)));
    weft_gossip_destroy(gossip);
}

/* Whether who is heard is also spoken to. */
static int goes_both_ways(const int *hops, int count, int size)
{
    int both = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            both += (hops[i] + hops[j]) % size == 0;
    return both == count;
}

/* Row r of the mixing matrix as weft/gossip.h defines it, applied to an element of all models. */
static double mix_row(const struct plain *plain, int size, const int *hops, int count, int r,
                      const double *model)
{
    double least = plain->weights[0], moved = 0;
    for (int i = 1; i < size; i++)
        least = fmin(least, plain->weights[i]);
    for (int h = 0; h < count; h++) {
        int from = (r + size - hops[h]) % size;
        double flow = goes_both_ways(hops, count, size)
                          ? fmin(plain->weights[r], plain->weights[from])
                          : least;
        moved += flow / plain->weights[r] / (count + 1) * (model[from] - model[r]);
    }
    return model[r] + moved;
}

/* In f64. */
static void expect(const struct plain *plain, int size, size_t element, double *model)
{
    int n = plain->neighbours ? plain->neighbours : plain->graph == WEFT_GOSSIP_RING ? 2 : 1;
    n = n < size - 1 ? n : size - 1;
    for (int r = 0; r < size; r++) {
        model[r] = value_of(r, element);
        if (plain->dtype == WEFT_F32)
            model[r] = (float)model[r];
    }
    for (int step = 0; step < plain->steps; step++) {
        int hops[MOST_RANKS];
        int count = weft_gossip_hops(plain->graph, size, n, (uint64_t)step, hops);
        double before[MOST_RANKS];
        for (int r = 0; r < size; r++)
            before[r] = model[r];
        for (int r = 0; r < size; r++)
            model[r] = mix_row(plain, size, hops, count, r, before) + (plain->split ? 0.25 : 0);
    }
}

static void compare(const struct plain *plain, int size)
{
    double bound = plain->dtype == WEFT_F64 ? 1e-13 : 3e-6;
    for (size_t i = 0; i < ELEMENTS; i += i < 8 ? 1 : 97) {
        double model[MOST_RANKS];
        expect(plain, size, i, model);
        for (int r = 0; r < size; r++) {
            cr_assert_float_eq(get(&plain->found[r], i), model[r], bound * plain->steps,
                               "P = %d, rank %d [%zu]: %.17g, expected %.17g", size, r, i,
                               get(&plain->found[r], i), model[r]);
        }
    }
}

static void run_plain(struct plain *plain, int size)
{
    struct ranks ranks;
    ranks_init(&ranks, size, plain_rank, plain);
    ranks.config.progress = plain->progress;
    ranks_run(&ranks);
    compare(plain, size);
    for (int r = 0; r < size; r++)
        free(plain->found[r].data);
}

static void run_graph(weft_gossip_graph_t graph, int neighbours, int size, int variant)
{
    struct plain plain = {.graph = graph,
                          .neighbours = neighbours,
                          .dtype = variant & 1 ? WEFT_F64 : WEFT_F32,
                          .steps = 7,
                          .split = (variant >> 1) & 1,
                          .progress = variant & 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER};
    for (int r = 0; r < size; r++)
        plain.weights[r] = variant & 4 ? 1 + 0.5 * (double)(r % 3) : 1;
    run_plain(&plain, size);
}

Test(gossip, ring_is_the_plain_computation)
{
    for (int s = 0; s < SIZES; s++)
        for (int variant = 0; variant < 8; variant++)
            run_graph(WEFT_GOSSIP_RING, variant == 3 ? 5 : 0, sizes[s], variant);
}

Test(gossip, exponential_is_the_plain_computation)
{
    for (int s = 0; s < SIZES; s++)
        for (int variant = 0; variant < 8; variant++)
            run_graph(WEFT_GOSSIP_EXPONENTIAL, variant % 4, sizes[s], variant);
}

/* ---- what gossip is for ---- */

/* The models tend to the weighted mean, and the weighted sum is kept on the way. */
static void run_to_the_limit(weft_gossip_graph_t graph, int size, int neighbours, int even,
                             int steps)
{
    struct plain plain = {.graph = graph,
                          .neighbours = neighbours,
                          .dtype = WEFT_F64,
                          .steps = steps,
                          .progress = WEFT_PROGRESS_CALLER};
    double total = 0;
    for (int r = 0; r < size; r++)
        total += plain.weights[r] = even ? 3 : 0.5 + r % 4;
    struct ranks ranks;
    ranks_init(&ranks, size, plain_rank, &plain);
    ranks_run(&ranks);
    for (size_t i = 0; i < 10; i++) {
        double mean = 0, kept = 0;
        for (int r = 0; r < size; r++) {
            mean += plain.weights[r] * value_of(r, i) / total;
            kept += plain.weights[r] * get(&plain.found[r], i) / total;
        }
        cr_assert_float_eq(kept, mean, 1e-12);
        for (int r = 0; r < size; r++)
            cr_assert_float_eq(get(&plain.found[r], i), mean, 1e-9, "P = %d, n = %d: rank %d", size,
                               neighbours, r);
    }
    for (int r = 0; r < size; r++)
        free(plain.found[r].data);
}

Test(gossip, models_tend_to_the_weighted_mean)
{
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 1, 1, 0, 1);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 2, 1, 0, 60);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 3, 1, 0, 200);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 5, 1, 0, 400);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 7, 3, 0, 400);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 16, 3, 0, 400);
    run_to_the_limit(WEFT_GOSSIP_RING, 2, 0, 0, 60);
    run_to_the_limit(WEFT_GOSSIP_RING, 5, 0, 0, 400);
    run_to_the_limit(WEFT_GOSSIP_RING, 7, 3, 0, 400); /* one way */
    run_to_the_limit(WEFT_GOSSIP_RING, 8, 4, 0, 400);
    /* Equal weights, powers of n + 1: exact after one round. */
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 3, 2, 1, 1);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 8, 1, 1, 3);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 9, 2, 1, 2);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 16, 3, 1, 2);
    run_to_the_limit(WEFT_GOSSIP_EXPONENTIAL, 17, 2, 1, 80);
}

/* ---- training with weights ---- */

static const double samples[] = {1, 1, 1, 97}, optima[] = {0, 1, 2, 40};

struct descent {
    weft_gossip_graph_t graph;
    int neighbours;
    int split; /* the update is made between post and wait */
    double weight[4];
    double found[4];
};

/* Each rank descends (x - its optimum)^2 / 2, with rates that fall. */
static void descend(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct descent *descent = ranks->user;
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    double x = 10.7;
    struct weft_piece tensor = {&x, 1};
    weft_gossip_config_init(&config);
    config.dtype = WEFT_F64;
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.graph = descent->graph;
    config.neighbours = descent->neighbours;
    config.weight = descent->weight[rank];
    OK(weft_gossip_create(&gossip, context, &config));
    for (int step = 0; step < 6000; step++) {
        double update = (x - optima[rank]) * 2 / (20 + step);
        if (descent->split)
            OK(weft_gossip_post(gossip));
        x -= update;
        OK(descent->split ? weft_gossip_wait(gossip) : weft_gossip_step(gossip));
    }
    descent->found[rank] = x;
    weft_gossip_destroy(gossip);
}

static void check_descent(weft_gossip_graph_t graph, int neighbours, int variant)
{
    struct descent descent = {.graph = graph, .neighbours = neighbours, .split = variant & 1};
    double total = 0, best = 0, mean = 0;
    for (int r = 0; r < 4; r++) {
        descent.weight[r] = variant & 2 ? samples[r] : 7;
        total += descent.weight[r];
    }
    ranks_run_once(descend, 4, &descent);
    for (int r = 0; r < 4; r++) {
        best += descent.weight[r] * optima[r] / total;
        mean += descent.weight[r] * descent.found[r] / total;
    }
    cr_assert_float_eq(best, variant & 2 ? 38.83 : 10.75, 1e-9);
    cr_assert_float_eq(mean, best, 1e-3, "graph %d, n = %d: the weighted mean is %g, not %g",
                       (int)graph, neighbours, mean, best);
    for (int r = 0; r < 4; r++)
        cr_assert_float_eq(descent.found[r], best, 0.1,
                           "graph %d, n = %d, rank %d is at %g, not %g", (int)graph, neighbours, r,
                           descent.found[r], best);
}

Test(gossip, a_rank_counts_in_training_as_its_weight_says)
{
    for (int variant = 0; variant < 4; variant += SWEPT(1, 2)) {
        check_descent(WEFT_GOSSIP_RING, 0, variant);
        check_descent(WEFT_GOSSIP_RING, 1, variant);
        check_descent(WEFT_GOSSIP_EXPONENTIAL, 1, variant);
        check_descent(WEFT_GOSSIP_EXPONENTIAL, 3, variant);
    }
}

static void mean_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct model *models = ranks->user;
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    model_init(&models[rank], WEFT_F64);
    set_all(&models[rank], rank);
    weft_gossip_config_init(&config);
    config.initial = WEFT_INITIAL_ANY;
    config.dtype = WEFT_F64;
    config.tensors = models[rank].tensors;
    config.tensor_count = 4;
    OK(weft_gossip_create(&gossip, context, &config));
    for (int step = 0; step < 40; step++)
        OK(weft_gossip_step(gossip));
    weft_gossip_destroy(gossip);
}

Test(gossip, ring_keeps_the_mean_and_contracts)
{
    for (int s = 0; s < SIZES; s++) {
        struct model models[MOST_RANKS];
        struct ranks ranks;
        int size = sizes[s];
        ranks_init(&ranks, size, mean_rank, models);
        ranks_run(&ranks);
        for (size_t i = 0; i < 5; i++) {
            double mean = 0, was = 0, spread = 0, spread_was = 0;
            for (int r = 0; r < size; r++) {
                mean += get(&models[r], i) / size;
                was += value_of(r, i) / size;
            }
            for (int r = 0; r < size; r++) {
                spread += fabs(get(&models[r], i) - mean);
                spread_was += fabs(value_of(r, i) - was);
            }
            cr_assert_float_eq(mean, was, 1e-13);
            cr_assert(spread <= 0.4 * spread_was + 1e-13);
        }
        for (int r = 0; r < size; r++)
            free(models[r].data);
    }
}

/* ---- misuse, deadlines ---- */

Test(gossip, misuse_is_named)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    float data[4] = {1, 2, 3, 4};
    struct weft_piece tensors[] = {{data, 4}, {NULL, 1}};
    weft_gossip_config_init(&config);
    CHECK_STATUS(weft_gossip_create(NULL, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_gossip_create(&gossip, NULL, &config), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, NULL), WEFT_ERR_INVALID);
    config.dtype = WEFT_BF16;
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, &config), WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_error_text(), "bf16");
    config.dtype = WEFT_F32;
    config.neighbours = -1;
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "neighbours");
    config.neighbours = 0;
    config.weight = -1;
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weight");
    config.weight = NAN;
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, &config), WEFT_ERR_INVALID);
    config.weight = 1;
    config.graph = (weft_gossip_graph_t)9;
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "graph");
    config.graph = WEFT_GOSSIP_RING;
    config.tensors = tensors;
    config.tensor_count = 2;
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "tensors[1]");
    tensors[1].data = data;
    tensors[1].count = SIZE_MAX - 2;
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "tensors[1].count");
    config.tensor_count = 1;
    config.struct_size--;
    CHECK_STATUS(weft_gossip_create(&gossip, alone.context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "struct_size");
    config.struct_size++;
    CHECK(!gossip);
    OK(weft_gossip_create(&gossip, alone.context, &config));
    OK(weft_gossip_step(gossip));
    CHECK(data[0] == 1 && data[3] == 4);
    CHECK_STATUS(weft_gossip_wait(gossip), WEFT_ERR_STATE);
    CHECK_STATUS(weft_gossip_step(NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_gossip_get_stats(gossip, NULL), WEFT_ERR_INVALID);
    weft_gossip_destroy(gossip);
    weft_gossip_destroy(NULL);
    config.tensors = NULL;
    config.tensor_count = 0;
    OK(weft_gossip_create(&gossip, alone.context, &config)); /* an empty model */
    OK(weft_gossip_step(gossip));
    OK(weft_gossip_post(gossip));
    weft_gossip_destroy(gossip);
    alone_destroy(&alone);
}

static void disagree(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    float data[4] = {0};
    struct weft_piece tensor = {data, rank == 1 ? 3 : 4};
    (void)ranks;
    weft_gossip_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    CHECK_STATUS(weft_gossip_create(&gossip, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "the number of elements: rank 0 has 4, rank 1 has 3");
    tensor.count = 4;
    config.graph = rank == 2 ? WEFT_GOSSIP_RING : WEFT_GOSSIP_EXPONENTIAL;
    CHECK_STATUS(weft_gossip_create(&gossip, context, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->graph: rank 0 has exponential, rank 2 has ring");
    config.graph = WEFT_GOSSIP_EXPONENTIAL;
    OK(weft_gossip_create(&gossip, context, &config));
    OK(weft_gossip_step(gossip));
    weft_gossip_destroy(gossip);
}

Test(gossip, ranks_that_disagree_are_told)
{
    ranks_run_once(disagree, 3, NULL);
}

static void late(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    double data[] = {rank};
    struct weft_piece tensor = {data, 1};
    weft_gossip_config_init(&config);
    config.initial = WEFT_INITIAL_ANY;
    config.dtype = WEFT_F64;
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.deadline_ns = rank == 0 ? 1000000 : 0;
    OK(weft_gossip_create(&gossip, context, &config));
    if (rank == 1)
        ranks_meet(ranks); /* until rank 0 has given up twice */
    if (rank == 0) {
        CHECK_STATUS(weft_gossip_step(gossip), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), "step 0");
        CHECK_STATUS(weft_gossip_wait(gossip), WEFT_ERR_TIMEOUT);
        CHECK_STATUS(weft_gossip_step(gossip), WEFT_ERR_STATE);
        ranks_meet(ranks);
        int status;
        while ((status = weft_gossip_wait(gossip)) == WEFT_ERR_TIMEOUT) {
        }
        OK(status);
    } else {
        OK(weft_gossip_step(gossip));
    }
    CHECK(data[0] == 0.5);
    weft_gossip_destroy(gossip);
}

Test(gossip, a_deadline_leaves_the_step_to_be_waited_for)
{
    ranks_run_once(late, 2, NULL);
}

/* ---- memory ---- */

/* Creates with the n-th allocation failing, until none is left to fail. Alone, one thread. */
Test(gossip, every_allocation_may_fail)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_gossip_config config;
    struct weft_gossip *gossip = NULL;
    float data[100] = {1};
    struct weft_piece tensor = {data, 100};
    int status = WEFT_ERR_MEMORY;
    long n = 0;
    weft_gossip_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    while (status == WEFT_ERR_MEMORY) {
        atomic_store(&weft__alloc_countdown, ++n);
        status = weft_gossip_create(&gossip, alone.context, &config);
        atomic_store(&weft__alloc_countdown, -1);
        CHECK((status == WEFT_OK) == (gossip != NULL));
    }
    OK(status);
    cr_assert_gt(n, 10);
    OK(weft_gossip_step(gossip));
    CHECK(data[0] == 1);
    weft_gossip_destroy(gossip);
    alone_destroy(&alone);
}

/* ---- who is refused alone ---- */

static void refused_alone(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gossip_config config;
    struct weft_gossip *object = NULL;
    int here = rank == ranks->size - 1;
    weft_gossip_config_init(&config);
    if (here)
        config.weight = -1;
    CHECK_STATUS(weft_gossip_create(&object, context, &config),
                 here ? WEFT_ERR_INVALID : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), here ? "weight" : "has failed: ");
    CHECK(!object);
    weft_gossip_config_init(&config);
    OK(weft_gossip_create(&object, context, &config));
    OK(weft_gossip_step(object));
    ranks_meet(ranks);
    weft_gossip_destroy(object);
}

Test(gossip, who_is_refused_alone_is_not_waited_for)
{
    for (int size = 2; size <= 5; size++)
        ranks_run_helped(refused_alone, size, NULL);
}
