/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gTop-k and top-k by allgather between processes: every rank knows what all of them contribute, so
 * each compares its result and its residual with plain merges in the order that is promised, bit by
 * bit. Lists are ragged, and k changes from start to start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plain_topk.h"
#include "tests/support/bind.h"
#include "world.h"

enum { ROUNDS = 4 };

static const size_t limits[ROUNDS] = {PLAIN_PAIRS, 5, 0, PLAIN_PAIRS - 1};

struct cell {
    struct weft_context *context;
    const char *name;
    const char *algo;
    int limited; /* gTop-k: k pairs stay, and there is a residual */
    int exact;
};

static size_t own_pairs(int rank, int round)
{
    size_t k = limits[round];

    return (rank + round) % 3 == 0 ? k - k / 3 : k;
}

static void expect(const struct cell *cell, int root, int round, struct plain_sum *sum)
{
    for (int r = 0; r < world_size; r++) {
        plain_draw(&sum->lists[r], r, (uint64_t)round, own_pairs(r, round), cell->exact);
        plain_draw_residual(sum->residual[r], r, (uint64_t)round, cell->exact);
    }
    (strcmp(cell->algo, "tree") == 0 ? plain_tree : plain_butterfly)(
        sum, world_size, root, cell->limited ? limits[round] : SIZE_MAX);
}

static void one_round(const struct cell *cell, struct weft_run *run, int root, int round)
{
    static struct plain_sum sum;
    static uint64_t send[PLAIN_PAIRS], recv[PLAIN_PAIRS * PLAIN_RANKS],
        expected[PLAIN_PAIRS * PLAIN_RANKS];
    static float residual[PLAIN_ELEMENTS];
    const struct weft_plan *plan = weft_run_plan(run);
    struct plain_list list;

    plain_draw(&list, world_rank, (uint64_t)round, own_pairs(world_rank, round), cell->exact);
    plain_draw_residual(residual, world_rank, (uint64_t)round, cell->exact);
    size_t pairs = plain_pack(&list, send);
    memset(recv, 0xa5, sizeof recv);
    OK(bind_name(run, "send", send));
    OK(bind_name(run, "recv", recv));
    OK(weft_run_bind_value(run, weft_plan_find_value(plan, "pairs"), pairs));
    if (cell->limited) {
        OK(bind_name(run, "residual", residual));
        OK(weft_run_bind_value(run, weft_plan_find_value(plan, "k"), limits[round]));
    }
    OK(weft_run_execute(run));
    expect(cell, root, round, &sum);
    size_t count = plain_pack(&sum.lists[root], expected);
    CHECK(weft_run_get_value(run, weft_plan_find_value(plan, "kept")) == count);
    CHECK(memcmp(recv, expected, count * sizeof recv[0]) == 0);
    for (int i = 0; cell->limited && i < PLAIN_ELEMENTS; i++)
        CHECK(residual[i] == sum.residual[world_rank][i]);
}

static void check(const struct cell *cell)
{
    for (int root = 0; root < (cell->limited ? world_size : 1); root += 3) {
        struct weft_template_params params;
        struct weft_run *run = NULL;

        weft_template_params_init(&params);
        params.count = PLAIN_ELEMENTS;
        params.k = PLAIN_PAIRS;
        params.algo = cell->algo;
        params.version = (uint64_t)root;
        OK(weft_template_create_run(&run, cell->context, cell->name, &params));
        for (int round = 0; round < ROUNDS; round++)
            one_round(cell, run, root, round);
        weft_run_destroy(run);
    }
    world_ok("%s %s, %s values", cell->name, cell->algo, cell->exact ? "exact" : "rounded");
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_ONE_THREAD);
    CHECK(world_size <= PLAIN_RANKS);
    struct weft_context *context = world_context(NULL);
    for (int exact = 0; exact < 2; exact++) {
        check(&(struct cell){context, "gtopk", "tree", 1, exact});
        check(&(struct cell){context, "gtopk", "butterfly", 1, exact});
        check(&(struct cell){context, "topk-allgather", "recursive-doubling", 0, exact});
    }
    weft_context_destroy(context);
    return world_end();
}
