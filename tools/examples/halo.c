/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A halo exchange with the computation in the graph: heat spreads along a ring that is cut into a
 * piece for each rank. The inner cells need no neighbour, so they are computed while the outermost
 * cells are on their way; the two cells at the ends wait for them. The result is compared with a
 * plain computation, bit by bit.
 *
 *   halo [RANKS [CELLS [STEPS]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

struct problem {
    size_t cells; /* of one rank, at least 2 */
    int steps;
    double *heat; /* of all ranks: where it begins, and where each rank puts its part at the end */
};

enum { FROM_LEFT, FROM_RIGHT }; /* tags: which halo cell a message fills */

/* [op] */
/* One step of the heat equation for the cells between the first and the last of `old`. */
static void spread(double *new, const double *old, size_t count)
{
    for (size_t i = 0; i < count; i++)
        new[i] = 0.25 * old[i] + 0.5 * old[i + 1] + 0.25 * old[i + 2];
}

/* The compute node: arguments are the new cells, and the old ones with a neighbour on each side. */
static int spread_node(struct weft_call *call)
{
    spread(call->arguments[0].data, call->arguments[1].data, call->arguments[0].count);
    return WEFT_OK;
}
/* [op] */

/* [step] */
/* Adds a node that computes `count` cells of `new` from cell `first` on. Cell 0 is the left halo.
 */
static weft_node_t add_spread(struct weft_schedule *s, const struct weft_op *op, weft_slot_t new,
                              weft_slot_t old, size_t first, size_t count)
{
    struct weft_compute_argument arguments[] = {
        {weft_region_at(new, first, count), WEFT_WRITE},
        {weft_region_at(old, first - 1, count + 2), WEFT_READ},
    };
    return weft_schedule_add_compute(s, op, arguments, 2, 0);
}

/* One step: cells 1 .. cells of "old" and their halos become cells 1 .. cells of "new". */
static int build_step(struct weft_schedule *s, const struct weft_op *op, size_t cells)
{
    int rank = weft_schedule_rank(s);
    int size = weft_schedule_size(s);
    int left = (rank + size - 1) % size;
    int right = (rank + 1) % size;
    weft_slot_t old = weft_schedule_add_slot(s, "old", WEFT_F64, cells + 2, WEFT_SLOT_INOUT);
    weft_slot_t new = weft_schedule_add_slot(s, "new", WEFT_F64, cells + 2, WEFT_SLOT_INOUT);

    /* Created first, so started first: the messages are on their way before anything is computed.
     */
    weft_node_t from_left = weft_schedule_add_recv(s, weft_region_at(old, 0, 1), left, FROM_LEFT);
    weft_node_t from_right =
        weft_schedule_add_recv(s, weft_region_at(old, cells + 1, 1), right, FROM_RIGHT);
    weft_schedule_add_send(s, weft_region_at(old, cells, 1), right, FROM_LEFT);
    weft_schedule_add_send(s, weft_region_at(old, 1, 1), left, FROM_RIGHT);

    if (cells > 2)
        add_spread(s, op, new, old, 2, cells - 2);
    weft_schedule_add_order(s, from_left, add_spread(s, op, new, old, 1, 1));
    weft_schedule_add_order(s, from_right, add_spread(s, op, new, old, cells, 1));
    return weft_schedule_status(s);
}
/* [step] */

static int make_plan(struct weft_plan **plan, int rank, int size, size_t cells)
{
    struct weft_op_config config;
    weft_op_config_init(&config);
    config.name = "spread";
    config.compute = spread_node;
    struct weft_op *op = NULL;
    struct weft_schedule *schedule = NULL;
    int status = weft_op_create(&op, &config);
    if (!status)
        status = weft_schedule_create(&schedule, rank, size);
    if (!status)
        status = build_step(schedule, op, cells);
    if (!status)
        status = weft_schedule_commit(schedule, plan);
    weft_schedule_destroy(schedule);
    weft_op_destroy(op); /* the plan keeps its own reference */
    return status;
}

static int rank_main(struct weft_context *context, void *user)
{
    const struct problem *problem = user;
    int rank = weft_context_rank(context);
    size_t cells = problem->cells;
    double *mine = problem->heat + (size_t)rank * cells;
    double *heat[2] = {weft_memory_alloc(cells + 2, sizeof(double)),
                       weft_memory_alloc(cells + 2, sizeof(double))};
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    int status = heat[0] && heat[1] ? WEFT_OK : weft_error_set(WEFT_ERR_MEMORY, "no memory");
    if (!status)
        status = make_plan(&plan, rank, weft_context_size(context), cells);
    if (!status)
        status = weft_run_create(&run, context, plan, NULL);
    if (!status)
        memcpy(heat[0] + 1, mine, cells * sizeof(double));
    for (int step = 0; !status && step < problem->steps; step++) {
        weft_run_bind_name(run, "old", heat[step % 2], cells + 2, WEFT_F64);
        weft_run_bind_name(run, "new", heat[(step + 1) % 2], cells + 2, WEFT_F64);
        status = weft_run_execute(run);
    }
    if (!status)
        memcpy(mine, heat[problem->steps % 2] + 1, cells * sizeof(double));
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_memory_free(heat[0]);
    weft_memory_free(heat[1]);
    return status;
}

/* The same, on one array. */
static int compute_plainly(double *heat, size_t cells, int steps)
{
    double *old = calloc(cells + 2, sizeof *old);
    if (!old)
        return -1;
    for (int step = 0; step < steps; step++) {
        memcpy(old + 1, heat, cells * sizeof *old);
        old[0] = old[cells];
        old[cells + 1] = old[1];
        spread(heat, old, cells);
    }
    free(old);
    return 0;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;
    struct problem problem = {.cells = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000,
                              .steps = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 100};
    if (ranks < 1 || problem.cells < 2) {
        fputs("usage: halo [RANKS [CELLS [STEPS]]], at least 1 rank of 2 cells\n", stderr);
        return 2;
    }
    size_t total = (size_t)ranks * problem.cells;
    problem.heat = calloc(total, sizeof(double));
    double *expected = calloc(total, sizeof(double));
    int status = problem.heat && expected ? 0 : 1;
    if (status == 0) {
        for (size_t i = 0; i < total; i++)
            problem.heat[i] = expected[i] = (double)(i * 7919 % 1000);
        status = compute_plainly(expected, total, problem.steps);
    }
    if (status == 0) {
        status = weft_local_run(ranks, NULL, rank_main, &problem);
        if (status)
            fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    }
    if (status == 0 && memcmp(problem.heat, expected, total * sizeof(double)) != 0) {
        fputs("the heat is not where it should be\n", stderr);
        status = 1;
    }
    if (status == 0)
        printf("%d steps on %d ranks: as computed plainly\n", problem.steps, ranks);
    free(problem.heat);
    free(expected);
    return status != 0;
}
