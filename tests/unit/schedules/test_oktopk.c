/* SPDX-License-Identifier: BSD-3-Clause */
/* Ok-Topk on local ranks, against a plain computation region by region, and how much it sends. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "support/virtual_ranks.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

enum { MOST_RANKS = 33, MOST_ELEMENTS = 300, MOST_PAIRS = 64, ROUNDS = 6 };

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- lists, plainly: dense, where NAN is no entry; values are multiples of 1/8, so sums are exact
 * ---- */

struct dense {
    float value[MOST_ELEMENTS];
};

static void clear(struct dense *list)
{
    for (int i = 0; i < MOST_ELEMENTS; i++)
        list->value[i] = NAN;
}

static size_t entries(const struct dense *list)
{
    size_t count = 0;

    for (int i = 0; i < MOST_ELEMENTS; i++)
        count += !isnan(list->value[i]);
    return count;
}

static void drop(struct dense *list, int i, float *residual)
{
    residual[i] += list->value[i];
    list->value[i] = NAN;
}

/* Keeps the largest; of equal ones the last goes. */
static void keep(struct dense *list, size_t limit, float *residual)
{
    for (size_t count = entries(list); count > limit; count--) {
        int least = -1;

        for (int i = 0; i < MOST_ELEMENTS; i++)
            if (!isnan(list->value[i]) &&
                (least < 0 || fabsf(list->value[i]) <= fabsf(list->value[least])))
                least = i;
        drop(list, least, residual);
    }
}

static void pack(const struct dense *list, void *memory, size_t *count)
{
    uint32_t *index = memory;
    size_t n = 0, all = entries(list);
    float *value = (float *)memory + all;

    for (uint32_t i = 0; i < MOST_ELEMENTS; i++) {
        if (!isnan(list->value[i])) {
            index[n] = i;
            value[n++] = list->value[i];
        }
    }
    *count = n;
}

/* ---- what the ranks contribute ---- */

enum data { MIXED, SAME_INDICES, DISJOINT, ONE_REGION };

/* All ranks' round: sizes and limits that change, below what was planned. */
struct round {
    enum data data;
    size_t pairs; /* a third of the ranks has a third less */
    size_t share, quota;
    float threshold;
    int bounds; /* 0: equally long; 1: as the lists would; 2: at random; 3: all in the last */
};

struct trial {
    int size;
    struct weft_template_params params;
    struct round round[ROUNDS];
    int rounds;
    /* What came out. */
    struct outcome {
        uint64_t recv[4 * MOST_PAIRS + MOST_RANKS];
        size_t kept;
        float residual[MOST_ELEMENTS];
        uint64_t sent, received; /* bytes */
    } at[ROUNDS][MOST_RANKS];
};

static float draw_value(uint64_t bits)
{
    return (float)((int64_t)(bits % 128) - 64) / 8;
}

static void make_list(const struct trial *trial, int rank, int round, struct dense *list)
{
    const struct round *now = &trial->round[round];
    uint64_t elements = trial->params.count, seed = 1000000 * (uint64_t)(round + 1);
    size_t pairs = (rank + round) % 3 == 0 ? now->pairs - now->pairs / 3 : now->pairs;

    clear(list);
    for (uint64_t i = 0; entries(list) < pairs; i++) {
        uint64_t bits = mix(seed + 1000 * (uint64_t)rank + i), common = mix(seed + i), at;

        switch (now->data) {
        case MIXED: /* half of the draws are for few indices, which many ranks have */
            list->value[(bits >> 8) % (bits & 1 ? (elements + 3) / 4 : elements)] =
                draw_value(bits >> 32);
            break;
        case SAME_INDICES:
            list->value[common % elements] = draw_value(bits);
            break;
        case DISJOINT: /* as long as there are enough elements */
            at = i * (uint64_t)trial->size;
            list->value[(at + (uint64_t)rank + at / elements) % elements] = draw_value(bits);
            break;
        case ONE_REGION:
            list->value[i % elements] = draw_value(bits);
            break;
        }
    }
}

static void make_bounds(const struct trial *trial, int round, uint64_t *bounds)
{
    int size = trial->size;
    uint64_t elements = trial->params.count, own[MOST_RANKS + 1];
    struct dense list;
    uint64_t packed[MOST_ELEMENTS];
    struct weft_sparse view = {.index_dtype = WEFT_U32, .dtype = WEFT_F32, .indices = packed};

    memset(bounds, 0, ((size_t)size + 1) * sizeof *bounds);
    bounds[size] = elements;
    if (trial->round[round].bounds == 0)
        OK(weft_sparse_bounds(&view, elements, size, bounds));
    for (int r = 0; r < size && trial->round[round].bounds == 1; r++) {
        make_list(trial, r, round, &list);
        pack(&list, packed, &view.count);
        view.values = (float *)packed + view.count;
        OK(weft_sparse_bounds(&view, elements, size, own));
        for (int j = 0; j <= size; j++)
            bounds[j] = (r ? bounds[j] : 0) + own[j];
    }
    for (int j = 0; j <= size && trial->round[round].bounds == 1; j++)
        bounds[j] /= (uint64_t)size;
    for (int j = 1; j < size && trial->round[round].bounds == 2; j++) {
        uint64_t bound = mix((uint64_t)(round * 100 + j)) % (elements + 1);
        int i = j;

        for (; i > 1 && bounds[i - 1] > bound; i--)
            bounds[i] = bounds[i - 1];
        bounds[i] = bound;
    }
}

static float residual_before(int rank, int i)
{
    return (float)((rank * 7 + i) % 5) / 8;
}

static int one_rank(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    int rank = weft_context_rank(context);
    uint64_t send[MOST_ELEMENTS], bounds[MOST_RANKS + 1];
    struct weft_run *run = NULL;
    int status = weft_template_create_run(&run, context, "oktopk", &trial->params);

    for (int round = 0; status == WEFT_OK && round < trial->rounds; round++) {
        const struct weft_plan *plan = weft_run_plan(run);
        const struct round *now = &trial->round[round];
        struct outcome *out = &trial->at[round][rank];
        struct weft_context_stats before = {.struct_size = sizeof before},
                                  after = {.struct_size = sizeof after};
        float threshold = now->threshold;
        struct dense list;
        size_t pairs;

        make_list(trial, rank, round, &list);
        make_bounds(trial, round, bounds);
        pack(&list, send, &pairs);
        for (int i = 0; i < MOST_ELEMENTS; i++)
            out->residual[i] = residual_before(rank, i);
        memset(out->recv, 0x5a, sizeof out->recv);
        bind_name(run, "send", send);
        bind_name(run, "recv", out->recv);
        bind_name(run, "residual", out->residual);
        bind_name(run, "bounds", bounds);
        bind_name(run, "threshold", &threshold);
        OK(weft_run_bind_value(run, weft_plan_find_value(plan, "pairs"), pairs));
        OK(weft_run_bind_value(run, weft_plan_find_value(plan, "share"), now->share));
        OK(weft_run_bind_value(run, weft_plan_find_value(plan, "quota"), now->quota));
        OK(weft_context_get_stats(context, &before));
        status = weft_run_execute(run);
        OK(weft_context_get_stats(context, &after));
        out->kept = weft_run_get_value(run, weft_plan_find_value(plan, "kept"));
        out->sent = after.bytes_sent - before.bytes_sent;
        out->received = after.bytes_received - before.bytes_received;
    }
    weft_run_destroy(run);
    return status;
}

/* ---- what must come out ---- */

static void expect_round(const struct trial *trial, int round)
{
    static float residual[MOST_RANKS][MOST_ELEMENTS];
    static struct dense lists[MOST_RANKS];
    const struct round *now = &trial->round[round];
    struct dense result, region, part;
    uint64_t bounds[MOST_RANKS + 1], expected[4 * MOST_PAIRS + MOST_RANKS];
    size_t count;
    int size = trial->size, elements = (int)trial->params.count;

    for (int r = 0; r < size; r++) {
        make_list(trial, r, round, &lists[r]);
        for (int i = 0; i < elements; i++)
            residual[r][i] = residual_before(r, i);
    }
    make_bounds(trial, round, bounds);
    clear(&result);
    for (int j = 0; j < size; j++) {
        clear(&region);
        for (int r = 0; r < size; r++) {
            clear(&part);
            for (uint64_t i = bounds[j]; i < bounds[j + 1]; i++)
                part.value[i] = lists[r].value[i];
            if (r != j)
                keep(&part, now->share, residual[r]);
            for (int i = 0; i < elements; i++)
                if (!isnan(part.value[i]))
                    region.value[i] =
                        isnan(region.value[i]) ? part.value[i] : region.value[i] + part.value[i];
        }
        for (int i = 0; i < elements; i++)
            if (fabsf(region.value[i]) < now->threshold)
                drop(&region, i, residual[j]);
        keep(&region, now->quota, residual[j]);
        for (int i = 0; i < elements; i++)
            result.value[i] = isnan(region.value[i]) ? result.value[i] : region.value[i];
    }
    pack(&result, expected, &count);
    for (int r = 0; r < size; r++) {
        const struct outcome *out = &trial->at[round][r];

        cr_assert_eq(out->kept, count, "P=%d k=%zu rank %d round %d: %zu pairs, not %zu", size,
                     trial->params.k, r, round, out->kept, count);
        cr_assert_eq(memcmp(out->recv, expected, 8 * count), 0, "P=%d k=%zu rank %d round %d", size,
                     trial->params.k, r, round);
        for (int i = 0; i < elements; i++)
            cr_assert_eq(out->residual[i], residual[r][i],
                         "P=%d k=%zu rank %d round %d: residual %d is %g, expected %g", size,
                         trial->params.k, r, round, i, (double)out->residual[i],
                         (double)residual[r][i]);
    }
}

/* result + residuals = inputs + residuals before, for every index. */
static void expect_nothing_lost(const struct trial *trial, int round)
{
    const struct outcome *out = trial->at[round];
    const uint32_t *index = (const uint32_t *)out->recv;
    const float *value = (const float *)out->recv + out->kept;
    double sum[MOST_ELEMENTS] = {0};
    struct dense list;

    for (int r = 0; r < trial->size; r++) {
        make_list(trial, r, round, &list);
        for (int i = 0; i < (int)trial->params.count; i++)
            sum[i] += (isnan(list.value[i]) ? 0 : (double)list.value[i]) +
                      (double)residual_before(r, i) - (double)out[r].residual[i];
    }
    for (size_t i = 0; i < out->kept; i++)
        sum[index[i]] -= (double)value[i];
    for (int i = 0; i < (int)trial->params.count; i++)
        cr_assert_eq(sum[i], 0, "P=%d k=%zu round %d: %g is lost at %d", trial->size,
                     trial->params.k, round, sum[i], i);
}

/* 6 k (P - 1) / P elements of 4 bytes, each way, on every rank. */
static void expect_volume(const struct trial *trial, int round)
{
    uint64_t P = (uint64_t)trial->size, k = trial->params.k > P ? trial->params.k : P;

    for (int r = 0; r < trial->size; r++) {
        const struct outcome *out = &trial->at[round][r];

        cr_assert_leq(out->sent * P, 4 * 6 * k * (P - 1), "P=%d k=%zu rank %d round %d: %llu bytes",
                      trial->size, trial->params.k, r, round, (unsigned long long)out->sent);
        cr_assert_leq(out->received * P, 4 * 6 * k * (P - 1),
                      "P=%d k=%zu rank %d round %d: %llu bytes", trial->size, trial->params.k, r,
                      round, (unsigned long long)out->received);
    }
}

static struct trial *new_trial(int size, size_t elements, size_t k)
{
    struct trial *trial = calloc(1, sizeof *trial);

    cr_assert_not_null(trial);
    trial->size = size;
    weft_template_params_init(&trial->params);
    trial->params.count = elements;
    trial->params.k = k;
    return trial;
}

static void execute(struct trial *trial)
{
    cr_assert_eq(weft_local_run(trial->size, NULL, one_rank, trial), WEFT_OK, "P=%d k=%zu: %s",
                 trial->size, trial->params.k, weft_error_text());
    for (int round = 0; round < trial->rounds; round++) {
        expect_round(trial, round);
        expect_nothing_lost(trial, round);
        expect_volume(trial, round);
    }
    free(trial);
}

/* Data, counts, limits, bounds and threshold change from start to start. */
static void try_rounds(int size, size_t elements, size_t k)
{
    struct trial *trial = new_trial(size, elements, k);
    size_t share, quota;

    cr_assert_eq(weft_sparse_region_limits(k, size, &share, &quota), WEFT_OK);
    struct round rounds[ROUNDS] = {
        {MIXED, k, share, quota, 0, 0},
        {MIXED, k - k / 4, share, quota, 2, 1},
        {DISJOINT, k / 2, share, quota - quota / 2, 0.5f, 2},
        {SAME_INDICES, 0, share, quota, 0, 0},
        {SAME_INDICES, k, share - share / 2, quota, 0, 3},
        {ONE_REGION, k, 0, quota, 1000, 0},
    };
    memcpy(trial->round, rounds, sizeof rounds);
    trial->rounds = ROUNDS;
    execute(trial);
}

Test(oktopk, sums_of_regions_on_any_number_of_ranks)
{
    for (int size = 1; size <= 17; size++)
        try_rounds(size, MOST_ELEMENTS, 24);
}

Test(oktopk, more_ranks_than_one_sum_takes)
{
    try_rounds(33, MOST_ELEMENTS, 40);
}

Test(oktopk, few_pairs_and_all)
{
    for (int size = 1; size <= 9; size++) {
        try_rounds(size, MOST_ELEMENTS, 1);
        try_rounds(size, 1, 1);
        try_rounds(size, 37, 37);
        try_rounds(size, 50, 7);
    }
}

Test(oktopk, volume_whatever_the_data)
{
    for (int size = 2; size <= MOST_RANKS; size += SWEPT(1, size < 9 ? 2 : 8))
        for (size_t k = (size_t)size; k <= MOST_PAIRS; k += SWEPT(7, 21) + (size_t)size % 5) {
            struct trial *trial = new_trial(size, MOST_ELEMENTS, k);
            size_t share, quota;

            cr_assert_eq(weft_sparse_region_limits(k, size, &share, &quota), WEFT_OK);
            struct round rounds[] = {
                {ONE_REGION, k, share, quota, 0, 3},   {ONE_REGION, k, share, quota, 0, 0},
                {SAME_INDICES, k, share, quota, 0, 1}, {DISJOINT, k, share, quota, 0, 0},
                {MIXED, k, share, quota, 0, 2},
            };
            memcpy(trial->round, rounds, sizeof rounds);
            trial->rounds = 5;
            execute(trial);
        }
}

/* ---- limits ---- */

Test(oktopk, limits_keep_the_volume)
{
    for (size_t P = 1; P <= 300; P++)
        for (size_t k = 0; k <= 2000; k += 1 + k / 7) {
            size_t share, quota;

            cr_assert_eq(weft_sparse_region_limits(k, (int)P, &share, &quota), WEFT_OK);
            cr_assert((share > 0) == (k > 0) && (quota > 0) == (k > 0));
            cr_assert_leq(share, k);
            cr_assert_geq(P * quota, k, "P=%zu k=%zu: the result has no room for k pairs", P, k);
            if (P > 1)
                cr_assert_leq(2 * (share + quota) * P, 6 * (k > P ? k : P), "P=%zu k=%zu", P, k);
        }
}

/* ---- schedules ---- */

Test(oktopk, parameters)
{
    struct weft_template_params params;
    struct weft_schedule *schedule = NULL;
    struct weft_slot_info slot = {.struct_size = sizeof slot};

    weft_template_params_init(&params);
    params.count = 0;
    cr_assert_eq(weft_template_build("oktopk", 1, 4, &params, &schedule), WEFT_OK);
    cr_expect_eq(weft_schedule_node_count(schedule), 0);
    weft_schedule_destroy(schedule);
    params.count = 10;
    params.k = 500; /* n is at least k */
    cr_assert_eq(weft_template_build("oktopk", 1, 4, &params, &schedule), WEFT_OK);
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        weft_schedule_get_slot(schedule, (weft_slot_t)s, &slot);
        if (strcmp(slot.name, "residual") == 0 || strcmp(slot.name, "send") == 0)
            cr_expect_eq(slot.count, 500);
        if (strcmp(slot.name, "bounds") == 0)
            cr_expect(slot.count == 5 && slot.dtype == WEFT_U64);
        if (strcmp(slot.name, "recv") == 0)
            cr_expect_eq(slot.count, 4 * 188); /* 375 pairs a region, of which 187 are the share */
    }
    weft_schedule_destroy(schedule);
    params.k = SIZE_MAX / 2;
    cr_expect_eq(weft_template_build("oktopk", 0, 4, &params, &schedule), WEFT_ERR_INVALID);
    params.k = 3;
    params.count = ((size_t)1 << 32) + 1;
    cr_expect_eq(weft_template_build("oktopk", 0, 4, &params, &schedule), WEFT_ERR_UNSUPPORTED);
}

/* ---- without payload, lists are as long as they can be ---- */

static int without_payload(struct weft_context *context, void *user)
{
    struct weft_template_params params;
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    struct weft_run *run = NULL;
    uint64_t P = (uint64_t)weft_context_size(context);

    (void)user;
    weft_template_params_init(&params);
    params.count = 1000;
    params.k = 6 * P;
    OK(weft_template_create_run(&run, context, "oktopk", &params));
    const struct weft_plan *plan = weft_run_plan(run);
    static const char *const slots[] = {"send", "recv", "residual", "bounds", "threshold"};
    for (size_t s = 0; s < sizeof slots / sizeof slots[0]; s++)
        OK(bind_name(run, slots[s], NULL));
    weft_run_bind_value(run, weft_plan_find_value(plan, "pairs"), params.k);
    weft_run_bind_value(run, weft_plan_find_value(plan, "share"), 9);
    weft_run_bind_value(run, weft_plan_find_value(plan, "quota"), 9);
    OK(weft_run_execute(run));
    OK(weft_context_get_stats(context, &stats));
    CHECK(weft_run_get_value(run, weft_plan_find_value(plan, "kept")) == 9 * P);
    CHECK(stats.bytes_sent == 2 * 9 * 8 * (P - 1)); /* 6 k (P - 1) / P elements */
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(oktopk, virtual_ranks_without_payload)
{
    struct weft_virtual_config config;
    struct weft_net net;

    weft_virtual_config_init(&config);
    give_net(&config, &net);
    config.no_payload = 1;
    net.G = 0.001;
    for (int size = 2; size <= 40; size += 1 + size / 4)
        OK(weft_virtual_run(size, &config, without_payload, NULL));
}

/* ---- wrong input ---- */

struct wrong {
    uint32_t send[4]; /* of rank 0: two pairs */
    uint64_t bounds[3];
    float threshold;
    const char *text;
};

static int refused(struct weft_context *context, void *user)
{
    const struct wrong *wrong = user;
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int rank = weft_context_rank(context);
    uint32_t send[4] = {3, 7, 0, 0};
    uint64_t recv[8], bounds[3] = {0, 4, 8};
    float residual[8] = {0}, threshold = 0;

    weft_template_params_init(&params);
    params.count = 8;
    params.k = 2;
    if (rank == 0) {
        memcpy(send, wrong->send, sizeof send);
        memcpy(bounds, wrong->bounds, sizeof bounds);
        threshold = wrong->threshold;
    }
    OK(weft_template_create_run(&run, context, "oktopk", &params));
    const struct weft_plan *plan = weft_run_plan(run);
    bind_name(run, "send", send);
    bind_name(run, "recv", recv);
    bind_name(run, "residual", residual);
    bind_name(run, "bounds", bounds);
    bind_name(run, "threshold", &threshold);
    weft_run_bind_value(run, weft_plan_find_value(plan, "pairs"), 2);
    weft_run_bind_value(run, weft_plan_find_value(plan, "share"), 1);
    weft_run_bind_value(run, weft_plan_find_value(plan, "quota"), 1);
    CHECK(weft_run_execute(run) < 0);
    if (rank == 0)
        CHECK_TEXT(weft_error_text(), wrong->text);
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(oktopk, wrong_input_fails_the_run_and_is_named)
{
    static struct wrong cases[] = {
        {{7, 3}, {0, 4, 8}, 0, "index 1 of the list is 3"},
        {{3, 3}, {0, 4, 8}, 0, "index 1 of the list is 3"},
        {{3, 8}, {0, 4, 8}, 0, "the last index of the list is 8"},
        {{3, 7}, {1, 4, 8}, 0, "bounds lead from 1 to 8"},
        {{3, 7}, {0, 4, 7}, 0, "bounds lead from 0 to 7"},
        {{3, 7}, {0, 9, 8}, 0, "bound 2 is 8"},
        {{3, 7}, {0, 4, 8}, -1, "`threshold` is -1"},
        {{3, 7}, {0, 4, 8}, NAN, "`threshold` is nan"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert_eq(weft_local_run(2, NULL, refused, &cases[i]), WEFT_OK, "case %zu", i);
}

/* A node of one operation, whose region number `wrong` is of another datatype. */
static int execute_typed(struct weft_context *context, int kind, const char *letters, size_t wrong)
{
    uint64_t memory[6][64] = {{0}};
    struct weft_region regions[6];
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    struct weft_op *op = NULL;
    size_t count = strlen(letters);
    uint64_t writes = 0;

    OK(weft_sparse_op((weft_sparse_op_kind_t)kind, &op));
    OK(weft_schedule_create(&schedule, 0, 1));
    for (size_t i = 0; i < count; i++) {
        int f32 = letters[i] == 't' || letters[i] == 'r';
        size_t elements = letters[i] == 't' ? 1 : letters[i] == 'b' ? 2 : 64;
        char name[] = {(char)('a' + i), 0};
        weft_dtype_t dtype = i == wrong ? WEFT_U16 : f32 ? WEFT_F32 : WEFT_U64;
        weft_slot_t slot = weft_schedule_add_slot(schedule, name, dtype, elements, WEFT_SLOT_INOUT);

        regions[i] = weft_region_at(slot, 0, elements);
        if (letters[i] == 'l' && i > 0)
            regions[i].value = weft_schedule_add_value(schedule, name, elements);
        writes |= (uint64_t)(letters[i] == 'w' || letters[i] == 'k' || letters[i] == 'r' ||
                             (letters[i] == 't' && kind == WEFT_SPARSE_SELECT))
                  << i;
    }
    if (kind == WEFT_SPARSE_BOUNDS)
        writes = 0;
    weft_value_t made =
        kind == WEFT_SPARSE_BOUNDS ? 0 : weft_schedule_add_value(schedule, "made", 64);
    add_compute(schedule, op, regions, count, writes | (kind != WEFT_SPARSE_BOUNDS), made);
    OK(weft_schedule_commit(schedule, &plan));
    OK(weft_run_create(&run, context, plan, NULL));
    if (kind == WEFT_SPARSE_BOUNDS)
        memory[0][1] = 64;
    for (size_t i = 0; i < count; i++) {
        OK(bind_slot(run, regions[i].slot, memory[i]));
        if (regions[i].value)
            OK(weft_run_bind_value(run, regions[i].value, 0));
    }
    int status = weft_run_execute(run);
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    weft_op_destroy(op);
    return status;
}

static int types(struct weft_context *context, void *user)
{
    /* As weft/sparse.h has them: lists, work, limits, residuals, bounds, a threshold. */
    static const char *const letters[] = {
        [WEFT_SPARSE_MERGE] = "lllwkr",  [WEFT_SPARSE_PART] = "llbwkr",
        [WEFT_SPARSE_SUM] = "lwlll",     [WEFT_SPARSE_KEEP] = "lltwkr",
        [WEFT_SPARSE_JOIN] = "lll",      [WEFT_SPARSE_BOUNDS] = "blr",
        [WEFT_SPARSE_SELECT] = "lrrwkt", [WEFT_SPARSE_ABOVE] = "lrrwt",
    };

    (void)user;
    for (int kind = 0; kind < WEFT_SPARSE_OP_COUNT; kind++) {
        OK(execute_typed(context, kind, letters[kind], SIZE_MAX));
        for (size_t i = 0; letters[kind][i]; i++) {
            char text[32];

            snprintf(text, sizeof text, "region %zu is", i);
            if (letters[kind][i] == 'k') {
                OK(execute_typed(context, kind, letters[kind], i));
                continue;
            }
            CHECK_STATUS(execute_typed(context, kind, letters[kind], i), WEFT_ERR_COMPUTE);
            CHECK_TEXT(weft_error_text(), text);
            CHECK_TEXT(weft_error_text(), "elements of u16");
        }
    }
    return WEFT_OK;
}

Test(oktopk, operations_refuse_regions_of_other_datatypes)
{
    cr_assert_eq(weft_local_run(1, NULL, types, NULL), WEFT_OK);
}

/* ---- what it costs ---- */

/* As its description says, by P and k alone: of how many elements the pairs are does not matter. */
Test(oktopk, its_cost_is_that_of_its_pairs)
{
    for (int size = 2; size <= 64; size++)
        for (size_t count = 10000; count <= 1000000; count *= 100) {
            struct weft_template_params params;
            struct weft_cost_model model = {.struct_size = sizeof model};
            double P = size, cost = 0;
            size_t k = 10 * (size_t)size;
            const char *algo = NULL;
            model.alpha_us = 3;
            model.beta_us_per_byte = 0.25;
            weft_template_params_init(&params);
            params.count = count;
            params.k = k;
            params.segment = WEFT_SEGMENT_NONE;
            params.cost = &model;
            OK(weft_template_choose("oktopk", size, &params, &algo, &cost));
            double expected = (P - 1 + ceil(log2(P))) * model.alpha_us +
                              (P - 1) / P * 24 * (double)k * model.beta_us_per_byte;
            cr_assert_str_eq(algo, "regions");
            cr_assert_float_eq(cost, expected, 1e-9 * expected, "P = %d, count = %zu: %g, not %g",
                               size, count, cost, expected);
        }
}
