/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse collectives on local ranks, against plain merges in the order that is promised. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "support/plain_topk.h"
#include "support/virtual_ranks.h"
#include "tests/support/bind.h"

enum { MOST_RANKS = PLAIN_RANKS, ELEMENTS = PLAIN_ELEMENTS, MOST_PAIRS = PLAIN_PAIRS, ROUNDS = 4 };

/* ---- a trial: one template on P ranks, several rounds with different data and k ---- */

struct trial {
    const char *name;
    struct weft_template_params params;
    int exact; /* sums are not rounded */
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
    int status = weft_template_create_run(&run, context, trial->name, &trial->params);

    for (int round = 0; status == WEFT_OK && round < ROUNDS; round++) {
        const struct weft_plan *plan = weft_run_plan(run);
        struct plain_list list;
        size_t pairs;

        plain_draw(&list, rank, (uint64_t)round, own_pairs(trial, rank, round), trial->exact);
        plain_draw_residual(trial->residual[round][rank], rank, (uint64_t)round, trial->exact);
        pairs = plain_pack(&list, send);
        bind_name(run, "send", send);
        bind_name(run, "recv", trial->recv[round][rank]);
        weft_run_bind_value(run, weft_plan_find_value(plan, "pairs"), pairs);
        if (limited) {
            bind_name(run, "residual", trial->residual[round][rank]);
            weft_run_bind_value(run, weft_plan_find_value(plan, "k"), trial->k[round]);
        }
        status = weft_run_execute(run);
        trial->kept[round][rank] = weft_run_get_value(run, weft_plan_find_value(plan, "kept"));
    }
    weft_run_destroy(run);
    return status;
}

static int is_limited(const struct trial *trial)
{
    return strcmp(trial->name, "gtopk") == 0;
}

static void expect_round(const struct trial *trial, int size, int round)
{
    static struct plain_sum sum;
    uint64_t expected[MOST_PAIRS * MOST_RANKS];
    int limited = is_limited(trial);
    int root = limited
                   ? (int)(((uint64_t)trial->params.root + trial->params.version) % (uint64_t)size)
                   : 0;
    int is_tree = trial->params.algo && strcmp(trial->params.algo, "tree") == 0;

    for (int r = 0; r < size; r++) {
        plain_draw(&sum.lists[r], r, (uint64_t)round, own_pairs(trial, r, round), trial->exact);
        plain_draw_residual(sum.residual[r], r, (uint64_t)round, trial->exact);
    }
    (is_tree ? plain_tree : plain_butterfly)(&sum, size, root,
                                             limited ? trial->k[round] : SIZE_MAX);
    size_t count = plain_pack(&sum.lists[root], expected);
    for (int r = 0; r < size; r++) {
        cr_assert_eq(trial->kept[round][r], count, "%s P=%d rank %d round %d: %zu pairs, not %zu",
                     trial->params.algo, size, r, round, trial->kept[round][r], count);
        cr_assert_eq(memcmp(trial->recv[round][r], expected, 8 * count), 0,
                     "%s P=%d rank %d round %d", trial->params.algo, size, r, round);
        for (int i = 0; limited && i < ELEMENTS; i++)
            cr_assert_eq(trial->residual[round][r][i], sum.residual[r][i],
                         "%s P=%d rank %d round %d: residual %d is %g, expected %g",
                         trial->params.algo, size, r, round, i,
                         (double)trial->residual[round][r][i], (double)sum.residual[r][i]);
    }
}

/* result + residuals = lists + residuals before, for every index, up to the rounding of the sums.
 */
static void expect_nothing_lost(const struct trial *trial, int size, int round)
{
    double lost[ELEMENTS] = {0}, magnitudes[ELEMENTS] = {0};
    const uint32_t *index = (const uint32_t *)trial->recv[round][0];
    const float *value = (const float *)trial->recv[round][0] + trial->kept[round][0];
    double bound = trial->exact ? 0 : plain_bound(size);

    for (int r = 0; r < size; r++) {
        struct plain_list list;
        float before[ELEMENTS];

        plain_draw(&list, r, (uint64_t)round, own_pairs(trial, r, round), trial->exact);
        plain_draw_residual(before, r, (uint64_t)round, trial->exact);
        for (int i = 0; i < ELEMENTS; i++) {
            double listed = isnan(list.value[i]) ? 0 : (double)list.value[i];

            lost[i] += listed;
            magnitudes[i] += fabs(listed);
            if (is_limited(trial)) {
                lost[i] += (double)before[i] - (double)trial->residual[round][r][i];
                magnitudes[i] += fabs((double)before[i]);
            }
        }
    }
    for (size_t i = 0; i < trial->kept[round][0]; i++)
        lost[index[i]] -= (double)value[i];
    for (int i = 0; i < ELEMENTS; i++)
        cr_assert(fabs(lost[i]) <= bound * magnitudes[i],
                  "%s %s P=%d round %d: %g of %g is lost at %d", trial->name, trial->params.algo,
                  size, round, lost[i], magnitudes[i], i);
}

/* Local ranks, or with a seed virtual ones whose messages are delayed and overtake each other. */
static int run_trial(struct trial *trial, int size, uint64_t seed)
{
    struct weft_virtual_config config;
    struct weft_net net;

    if (seed == 0)
        return weft_local_run(size, NULL, one_rank, trial);
    config = with_seed(seed);
    give_net(&config, &net);
    config.delay_ns = 20000;
    config.heavy_share = 0.1;
    config.heavy_ns = 300000;
    if (seed % 2)
        net.S = 64; /* larger messages by rendezvous */
    return weft_virtual_run(size, &config, one_rank, trial);
}

static void try_values(const char *name, const char *algo, int size, int root, uint64_t version,
                       int exact, uint64_t seed)
{
    struct trial *trial = calloc(1, sizeof *trial);

    cr_assert_not_null(trial);
    trial->name = name;
    trial->exact = exact;
    weft_template_params_init(&trial->params);
    trial->params.count = ELEMENTS;
    trial->params.k = MOST_PAIRS;
    trial->params.algo = algo;
    trial->params.root = root;
    trial->params.version = version;
    memcpy(trial->k, (size_t[ROUNDS]){MOST_PAIRS, 5, 0, MOST_PAIRS - 1}, sizeof trial->k);
    cr_assert_eq(run_trial(trial, size, seed), WEFT_OK, "%s %s P=%d seed %d: %s", name, algo, size,
                 (int)seed, weft_error_text());
    for (int round = 0; round < ROUNDS; round++) {
        expect_round(trial, size, round);
        expect_nothing_lost(trial, size, round);
    }
    free(trial);
}

static void try_template(const char *name, const char *algo, int size, int root, uint64_t version)
{
    for (int exact = 0; exact < 2; exact++)
        try_values(name, algo, size, root, version, exact, 0);
}

Test(gtopk, the_tree_gives_the_same_on_all_ranks)
{
    for (int size = 1; size <= MOST_RANKS; size += SWEPT(1, size < 5 ? 1 : 4))
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
    for (int size = 1; size <= MOST_RANKS; size += SWEPT(1, size < 5 ? 1 : 4))
        try_template("gtopk", "butterfly", size, 0, 0);
}

Test(gtopk, an_allgather_keeps_everything)
{
    for (int size = 1; size <= MOST_RANKS; size += SWEPT(1, size < 5 ? 1 : 4))
        try_template("topk-allgather", "recursive-doubling", size, 0, 0);
}

Test(gtopk, virtual_ranks_under_delays)
{
    for (uint64_t seed = 1; seed <= SWEPT(60, 17); seed++) {
        int size = 1 + (int)(seed % MOST_RANKS);

        try_values("gtopk", "tree", size, 0, seed, 0, seed);
        try_values("gtopk", "butterfly", size, 0, seed, 0, seed);
        try_values("topk-allgather", "recursive-doubling", size, 0, 0, 0, seed);
    }
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
    int status = weft_template_create_run(&run, context, "gtopk", &params);
    bind_name(run, "send", send);
    bind_name(run, "recv", recv);
    bind_name(run, "residual", residual);
    weft_run_bind_value(run, weft_plan_find_value(weft_run_plan(run), "pairs"), 2);
    weft_run_bind_value(run, weft_plan_find_value(weft_run_plan(run), "k"), 2);
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
    struct weft_slot_info slot = {.struct_size = sizeof slot};

    weft_template_params_init(&params);
    params.count = 10;
    params.k = 500; /* n is at least k */
    cr_assert_eq(weft_template_build("gtopk", 0, 4, &params, &schedule), WEFT_OK);
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        weft_schedule_get_slot(schedule, (weft_slot_t)s, &slot);
        if (strcmp(slot.name, "residual") == 0)
            cr_expect_eq(slot.count, 500);
        if (strcmp(slot.name, "send") == 0)
            cr_expect_eq(slot.count, 500);
    }
    weft_schedule_destroy(schedule);
    params.k = SIZE_MAX / 2;
    cr_expect_eq(weft_template_build("gtopk", 0, 4, &params, &schedule), WEFT_ERR_INVALID);
    params.k = ((size_t)1 << 32) + 1;
    cr_expect_eq(weft_template_build("gtopk", 0, 4, &params, &schedule), WEFT_ERR_UNSUPPORTED);
    cr_expect(strstr(weft_error_text(), "k is 4294967297"), "%s", weft_error_text());
    params.k = 3;
    params.count = ((size_t)1 << 32) + 1;
    cr_expect_eq(weft_template_build("gtopk", 0, 4, &params, &schedule), WEFT_ERR_UNSUPPORTED);
}
