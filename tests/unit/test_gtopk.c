/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse collectives on local ranks, against plain merges in the order that is promised. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "ranks.h"

enum { MOST_RANKS = 17, ELEMENTS = 300, MOST_PAIRS = 24, ROUNDS = 4 };

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- lists, plainly: dense, where NAN is no entry ---- */

struct dense {
    float value[ELEMENTS];
};

static void clear(struct dense *list)
{
    for (int i = 0; i < ELEMENTS; i++)
        list->value[i] = NAN;
}

static size_t entries(const struct dense *list)
{
    size_t count = 0;

    for (int i = 0; i < ELEMENTS; i++)
        count += !isnan(list->value[i]);
    return count;
}

/* a becomes a T b; what is dropped is added to `residual` if there is one. */
static void plain_merge(struct dense *a, const struct dense *b, size_t k, float *residual)
{
    for (int i = 0; i < ELEMENTS; i++) {
        if (isnan(a->value[i]))
            a->value[i] = b->value[i];
        else if (!isnan(b->value[i]))
            a->value[i] += b->value[i];
    }
    for (size_t count = entries(a); count > k; count--) {
        int least = -1;

        for (int i = 0; i < ELEMENTS; i++) /* of equal ones the last goes */
            if (!isnan(a->value[i]) && (least < 0 || fabsf(a->value[i]) <= fabsf(a->value[least])))
                least = i;
        if (residual)
            residual[least] += a->value[least];
        a->value[least] = NAN;
    }
}

static void pack(const struct dense *list, void *memory, size_t *count)
{
    uint32_t *index = memory;
    size_t n = 0, all = entries(list);
    float *value = (float *)memory + all;

    for (uint32_t i = 0; i < ELEMENTS; i++) {
        if (!isnan(list->value[i])) {
            index[n] = i;
            value[n++] = list->value[i];
        }
    }
    *count = n;
}

/* The list of a rank in a round: `count` entries, ties among them. */
static void make_list(struct dense *list, int rank, uint64_t round, size_t count)
{
    clear(list);
    for (uint64_t draw = 0; entries(list) < count; draw++) {
        uint64_t bits = mix(draw + 1000 * (uint64_t)rank + 1000000 * round);
        /* half of the draws are for few indices, which many ranks have */
        uint64_t range = bits & 1 ? 2 * MOST_PAIRS : ELEMENTS;

        list->value[(bits >> 8) % range] = (float)((int64_t)(bits >> 32) % 64 - 32) / 8;
    }
}

/* ---- a trial: one template on P ranks, several rounds with different data and k ---- */

struct trial {
    const char *name;
    struct weft_template_params params;
    size_t k[ROUNDS];
    /* what came out: of all ranks, of a round */
    uint64_t recv[ROUNDS][MOST_RANKS][MOST_PAIRS * MOST_RANKS];
    size_t kept[ROUNDS][MOST_RANKS];
    float residual[ROUNDS][MOST_RANKS][ELEMENTS];
};

/* Ragged: a rank has fewer than k pairs now and then. */
static size_t own_pairs(const struct trial *trial, int rank, int round)
{
    size_t k = trial->k[round];

    return (rank + round) % 3 == 0 ? k - k / 3 : k;
}

static int one_rank(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    int rank = weft_context_rank(context);
    uint64_t send[MOST_PAIRS];
    struct weft_run *run = NULL;
    int limited = strcmp(trial->name, "gtopk") == 0;
    int status = weft_template_run(&run, context, trial->name, &trial->params);

    for (int round = 0; status == WEFT_OK && round < ROUNDS; round++) {
        const struct weft_plan *plan = weft_run_plan(run);
        struct dense list;
        size_t pairs;

        make_list(&list, rank, (uint64_t)round, own_pairs(trial, rank, round));
        pack(&list, send, &pairs);
        weft_run_bind_name(run, "send", send);
        weft_run_bind_name(run, "recv", trial->recv[round][rank]);
        weft_run_bind_value(run, weft_plan_value(plan, "pairs"), pairs);
        if (limited) {
            weft_run_bind_name(run, "residual", trial->residual[round][rank]);
            weft_run_bind_value(run, weft_plan_value(plan, "k"), trial->k[round]);
        }
        status = weft_run_execute(run);
        trial->kept[round][rank] = weft_run_value(run, weft_plan_value(plan, "kept"));
    }
    weft_run_destroy(run);
    return status;
}

/* Merges of all ranks' lists, in the order of the tree, by place from the root on. */
static void tree(struct dense *lists, int size, int root, size_t k,
                 float residual[MOST_RANKS][ELEMENTS])
{
    for (int span = 1; span < size; span *= 2)
        for (int place = 0; place + span < size; place += 2 * span)
            plain_merge(&lists[(place + root) % size], &lists[(place + span + root) % size], k,
                        residual ? residual[(place + root) % size] : NULL);
}

/* The butterfly: those beyond the power of two first, then as a tree of the others. */
static void butterfly(struct dense *lists, int size, int root, size_t k,
                      float residual[MOST_RANKS][ELEMENTS])
{
    int power = 1;

    while (2 * power <= size)
        power *= 2;
    for (int place = 0; place + power < size; place++)
        plain_merge(&lists[(place + root) % size], &lists[(place + power + root) % size], k,
                    residual ? residual[(place + root) % size] : NULL);
    for (int span = 1; span < power; span *= 2)
        for (int place = 0; place + span < power; place += 2 * span)
            plain_merge(&lists[(place + root) % size], &lists[(place + span + root) % size], k,
                        residual ? residual[(place + root) % size] : NULL);
}

static void expect_round(const struct trial *trial, int size, int round)
{
    static float residual[MOST_RANKS][ELEMENTS];
    struct dense lists[MOST_RANKS];
    uint64_t expected[MOST_PAIRS * MOST_RANKS];
    int limited = strcmp(trial->name, "gtopk") == 0;
    int root = limited
                   ? (int)(((uint64_t)trial->params.root + trial->params.version) % (uint64_t)size)
                   : 0;
    int is_tree = trial->params.algo && strcmp(trial->params.algo, "tree") == 0;
    size_t count;

    memset(residual, 0, sizeof(residual));
    for (int r = 0; r < size; r++)
        make_list(&lists[r], r, (uint64_t)round, own_pairs(trial, r, round));
    (is_tree ? tree : butterfly)(lists, size, root, limited ? trial->k[round] : SIZE_MAX,
                                 limited ? residual : NULL);
    pack(&lists[root], expected, &count);
    for (int r = 0; r < size; r++) {
        cr_assert_eq(trial->kept[round][r], count, "%s P=%d rank %d round %d: %zu pairs, not %zu",
                     trial->params.algo, size, r, round, trial->kept[round][r], count);
        cr_assert_eq(memcmp(trial->recv[round][r], expected, 8 * count), 0,
                     "%s P=%d rank %d round %d", trial->params.algo, size, r, round);
        for (int i = 0; limited && i < ELEMENTS; i++)
            cr_assert_eq(trial->residual[round][r][i], residual[r][i],
                         "%s P=%d rank %d round %d: residual %d is %g, expected %g",
                         trial->params.algo, size, r, round, i,
                         (double)trial->residual[round][r][i], (double)residual[r][i]);
    }
}

/* result + residuals = inputs, for every index: values are multiples of 1/8, so sums are exact. */
static void expect_nothing_lost(const struct trial *trial, int size, int round)
{
    double sum[ELEMENTS] = {0};
    const uint32_t *index = (const uint32_t *)trial->recv[round][0];
    const float *value = (const float *)trial->recv[round][0] + trial->kept[round][0];

    for (int r = 0; r < size; r++) {
        struct dense list;

        make_list(&list, r, (uint64_t)round, own_pairs(trial, r, round));
        for (int i = 0; i < ELEMENTS; i++)
            sum[i] += (isnan(list.value[i]) ? 0 : (double)list.value[i]) -
                      (double)trial->residual[round][r][i];
    }
    for (size_t i = 0; i < trial->kept[round][0]; i++)
        sum[index[i]] -= (double)value[i];
    for (int i = 0; i < ELEMENTS; i++)
        cr_assert_eq(sum[i], 0, "P=%d round %d: %g is lost at %d", size, round, sum[i], i);
}

static void try_template(const char *name, const char *algo, int size, int root, uint64_t version)
{
    struct trial *trial = calloc(1, sizeof(*trial));

    cr_assert_not_null(trial);
    trial->name = name;
    weft_template_params_init(&trial->params);
    trial->params.count = ELEMENTS;
    trial->params.k = MOST_PAIRS;
    trial->params.algo = algo;
    trial->params.root = root;
    trial->params.version = version;
    memcpy(trial->k, (size_t[ROUNDS]){MOST_PAIRS, 5, 0, MOST_PAIRS - 1}, sizeof(trial->k));
    cr_assert_eq(weft_local_run(size, NULL, one_rank, trial), WEFT_OK, "%s %s P=%d: %s", name, algo,
                 size, weft_error_text());
    for (int round = 0; round < ROUNDS; round++) {
        expect_round(trial, size, round);
        expect_nothing_lost(trial, size, round);
    }
    free(trial);
}

Test(gtopk, the_tree_gives_the_same_on_all_ranks)
{
    for (int size = 1; size <= MOST_RANKS; size++)
        try_template("gtopk", "tree", size, 0, 0);
}

Test(gtopk, the_root_rotates)
{
    try_template("gtopk", "tree", 5, 3, 0);
    try_template("gtopk", "tree", 6, 1, 1000000);
    try_template("gtopk", "butterfly", 7, 2, 3);
    try_template("gtopk", "butterfly", 8, 5, 0);
}

Test(gtopk, the_butterfly_gives_the_same_on_all_ranks)
{
    for (int size = 1; size <= MOST_RANKS; size++)
        try_template("gtopk", "butterfly", size, 0, 0);
}

Test(gtopk, an_allgather_keeps_everything)
{
    for (int size = 1; size <= MOST_RANKS; size++)
        try_template("topk-allgather", "recursive-doubling", size, 0, 0);
}

/* ---- wrong input ---- */

static int unsorted(struct weft_context *context, void *user)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    uint32_t send[4] = {7, 3, 0, 0};
    uint64_t recv[2];
    float residual[8] = {0};

    (void)user;
    weft_template_params_init(&params);
    params.count = 8;
    params.k = 2;
    if (weft_context_rank(context) == 0)
        send[1] = 9;
    int status = weft_template_run(&run, context, "gtopk", &params);
    weft_run_bind_name(run, "send", send);
    weft_run_bind_name(run, "recv", recv);
    weft_run_bind_name(run, "residual", residual);
    weft_run_bind_value(run, weft_plan_value(weft_run_plan(run), "pairs"), 2);
    weft_run_bind_value(run, weft_plan_value(weft_run_plan(run), "k"), 2);
    status = status == WEFT_OK ? weft_run_execute(run) : status;
    CHECK(status < 0);
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(gtopk, indices_that_do_not_ascend_fail_the_run)
{
    cr_assert_eq(weft_local_run(2, NULL, unsorted, NULL), WEFT_OK);
}

Test(gtopk, parameters)
{
    struct weft_template_params params;
    struct weft_schedule *schedule = NULL;
    struct weft_buffer_info slot;

    weft_template_params_init(&params);
    params.count = 10;
    params.k = 500; /* n is at least k */
    cr_assert_eq(weft_template_build("gtopk", 0, 4, &params, &schedule), WEFT_OK);
    for (size_t s = 0; s < weft_schedule_buffer_count(schedule); s++) {
        weft_schedule_buffer_info(schedule, (weft_slot_t)s, &slot);
        if (strcmp(slot.name, "residual") == 0)
            cr_expect_eq(slot.count, 500);
        if (strcmp(slot.name, "send") == 0)
            cr_expect_eq(slot.count, 500);
    }
    weft_schedule_destroy(schedule);
    params.k = SIZE_MAX / 2;
    cr_expect_eq(weft_template_build("gtopk", 0, 4, &params, &schedule), WEFT_ERR_INVALID);
    params.k = 3;
    params.count = ((size_t)1 << 32) + 1;
    cr_expect_eq(weft_template_build("gtopk", 0, 4, &params, &schedule), WEFT_ERR_UNSUPPORTED);
}
