/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench nodes: what a node of a local graph costs, in time, instructions and allocations.
 *
 * The peer is the least that executing a graph can mean: a loop over the same graph, held in flat
 * arrays, that counts dependencies down and keeps a queue of what is ready (Kahn's algorithm). It
 * knows no threads, events, messages, versions or failures.
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum shape { CHAIN, FAN_OUT, RANDOM, RANDOM_REDUCES };

struct graph_case {
    const char *what;
    enum shape shape;
    int32_t nodes;
};

static const struct graph_case cases[] = {
    {"chain of joins", CHAIN, 1000},
    {"fan-out of joins and back", FAN_OUT, 1000},
    {"random DAG of joins", RANDOM, 1000},
    {"random DAG of joins and reduces", RANDOM_REDUCES, 1000},
    {"chain of joins, 100000", CHAIN, 100000},
    {"random DAG of joins, 100000", RANDOM, 100000},
};

enum { CASES = sizeof cases / sizeof cases[0], COUNTED = 4 };

/* A graph in both forms. */
struct graph {
    int32_t nodes;
    struct weft_schedule *schedule;
    struct weft_plan *plan;
    struct weft_run *run;
    float *numbers; /* in 0, in 1, then one a node */
    /* the peer's */
    int32_t *first; /* successors of n: next[first[n]] up to next[first[n + 1]] */
    int32_t *next;
    int32_t *pending;
    int32_t *left;
    int32_t *ready;
    char *reduces;
};

static uint32_t draw(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* ---- building ---- */

static void order_random(struct weft_schedule *s, int32_t nodes)
{
    uint32_t state = 2463534242u;

    for (int32_t n = 1; n < nodes; n++) {
        int edges = 1 + (int)(draw(&state) % 3);
        int32_t window = n < 50 ? n : 50;
        for (int e = 0; e < edges; e++)
            weft_schedule_add_order(s, n - 1 - (int32_t)(draw(&state) % (uint32_t)window), n);
    }
}

static int build_schedule(struct graph *g, enum shape shape)
{
    int32_t nodes = g->nodes;
    int status = weft_schedule_create(&g->schedule, 0, 1);
    struct weft_schedule *s = g->schedule;

    if (status != WEFT_OK)
        return status;
    weft_schedule_set_name(s, "nodes");
    weft_slot_t numbers =
        weft_schedule_add_slot(s, "numbers", WEFT_F32, (size_t)nodes + 2, WEFT_SLOT_INOUT);
    for (int32_t n = 0; n < nodes; n++) {
        g->reduces[n] = shape == RANDOM_REDUCES && n % 2;
        if (g->reduces[n]) {
            weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM),
                                     weft_region_at(numbers, (size_t)n + 2, 1),
                                     weft_region_at(numbers, 0, 1), weft_region_at(numbers, 1, 1));
        } else {
            weft_schedule_add_join(s);
        }
    }
    if (shape == RANDOM || shape == RANDOM_REDUCES)
        order_random(s, nodes);
    for (int32_t n = 1; shape == CHAIN && n < nodes; n++)
        weft_schedule_add_order(s, n - 1, n);
    for (int32_t n = 1; shape == FAN_OUT && n < nodes - 1; n++) {
        weft_schedule_add_order(s, 0, n);
        weft_schedule_add_order(s, n, nodes - 1);
    }
    return weft_schedule_status(s);
}

/* The same edges as arrays. */
static int build_arrays(struct graph *g)
{
    size_t edges = weft_schedule_edge_count(g->schedule);
    weft_node_t before, after;

    g->next = weft_memory_alloc(edges + 1, sizeof(int32_t));
    if (!g->next)
        return WEFT_ERR_MEMORY;
    for (size_t e = 0; e < edges; e++) {
        weft_schedule_get_edge(g->schedule, e, &before, &after);
        g->first[before + 1]++;
        g->pending[after]++;
    }
    for (int32_t n = 0; n < g->nodes; n++)
        g->first[n + 1] += g->first[n];
    memcpy(g->left, g->first, (size_t)g->nodes * sizeof(int32_t));
    for (size_t e = 0; e < edges; e++) {
        weft_schedule_get_edge(g->schedule, e, &before, &after);
        g->next[g->left[before]++] = after;
    }
    return WEFT_OK;
}

static void close_graph(struct graph *g)
{
    weft_run_destroy(g->run);
    weft_plan_destroy(g->plan);
    weft_schedule_destroy(g->schedule);
    void *memory[] = {g->numbers, g->first, g->next, g->pending, g->left, g->ready, g->reduces};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        weft_memory_free(memory[i]);
}

static int open_graph(struct graph *g, const struct graph_case *c, struct weft_context *context)
{
    size_t nodes = (size_t)c->nodes;
    struct weft_run_config config;

    *g = (struct graph){.nodes = c->nodes};
    g->numbers = weft_memory_alloc(nodes + 2, sizeof(float));
    g->first = weft_memory_alloc(nodes + 1, sizeof(int32_t));
    g->pending = weft_memory_alloc(nodes, sizeof(int32_t));
    g->left = weft_memory_alloc(nodes, sizeof(int32_t));
    g->ready = weft_memory_alloc(nodes, sizeof(int32_t));
    g->reduces = weft_memory_alloc(nodes, 1);
    if (!g->numbers || !g->first || !g->pending || !g->left || !g->ready || !g->reduces)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu nodes", nodes);
    g->numbers[0] = g->numbers[1] = 1;
    int status = build_schedule(g, c->shape);
    if (status == WEFT_OK)
        status = build_arrays(g);
    if (status == WEFT_OK)
        status = weft_schedule_commit(g->schedule, &g->plan);
    weft_run_config_init(&config);
    config.local_only = 1;
    if (status == WEFT_OK)
        status = weft_run_create(&g->run, context, g->plan, &config);
    return status == WEFT_OK
               ? weft_run_bind_name(g->run, "numbers", g->numbers, nodes + 2, WEFT_F32)
               : status;
}

/* ---- the peer ---- */

/* Kept out of line so that it is executed as often as it is called. */
__attribute__((noinline)) static int32_t plain_loop(struct graph *g)
{
    int32_t head = 0, tail = 0;

    memcpy(g->left, g->pending, (size_t)g->nodes * sizeof(int32_t));
    for (int32_t n = 0; n < g->nodes; n++)
        if (g->left[n] == 0)
            g->ready[tail++] = n;
    while (head < tail) {
        int32_t n = g->ready[head++];
        if (g->reduces[n]) {
            weft_op_reduce(weft_op_builtin(WEFT_SUM), WEFT_F32, g->numbers + 2 + n, g->numbers,
                           g->numbers + 1, 1);
        }
        for (int32_t e = g->first[n]; e < g->first[n + 1]; e++)
            if (--g->left[g->next[e]] == 0)
                g->ready[tail++] = g->next[e];
    }
    return tail;
}

/* ---- measuring ---- */

/* Nanoseconds a node of @turns executions; @weft or the peer. NAN after a failure. */
static double time_turns(struct graph *g, int weft, size_t turns)
{
    uint64_t start = ranks_now();

    for (size_t t = 0; t < turns; t++)
        if (weft ? weft_run_execute(g->run) != WEFT_OK : plain_loop(g) != g->nodes)
            return NAN;
    return (double)(ranks_now() - start) / (double)turns / (double)g->nodes;
}

static int check(const struct graph *g)
{
    for (int32_t n = 0; n < g->nodes; n++)
        if (g->reduces[n] && g->numbers[n + 2] != 2)
            return weft_error_set(WEFT_ERR_COMPUTE, "node %d was not executed", (int)n);
    return WEFT_OK;
}

static int time_case(struct bench *bench, const struct graph_case *c, struct weft_context *context)
{
    struct bench_samples samples[2] = {{0}, {0}};
    struct graph g;
    int status = open_graph(&g, c, context);
    size_t turns = (size_t)(400000 / c->nodes) + 1;

    for (int round = -1; status == WEFT_OK && round < bench->rounds; round++) {
        for (int weft = 0; weft < 2; weft++) {
            double ns = time_turns(&g, weft, turns);
            if (!isfinite(ns))
                status = WEFT_ERR_STATE;
            else if (round >= 0)
                bench_sample(&samples[weft], ns);
        }
    }
    status = status == WEFT_OK ? check(&g) : status;
    close_graph(&g);
    if (status != WEFT_OK)
        return bench_fail(bench, c->what);
    struct bench_row row = {.what = c->what,
                            .unit = "ns/node",
                            .transport = "local",
                            .peer = "plain Kahn loop",
                            .weft = &samples[1],
                            .peers = &samples[0],
                            .limit = 25,
                            .bytes = SIZE_MAX};
    bench_print(bench, &row);
    return 0;
}

/* Instructions a node, or allocations an execution; 0 if there is no valgrind. */
static int count_case(struct bench *bench, int which, enum bench_count what)
{
    enum { FEW = 10, MANY = 110 };
    struct bench_samples samples[2] = {{0}, {0}};
    int instructions = what == BENCH_INSTRUCTIONS;

    for (int weft = 0; weft < 2; weft++) {
        char inside[32];
        snprintf(inside, sizeof inside, "%d:%s", which, weft ? "weft" : "plain");
        if (!weft && !instructions)
            continue;
        double few = bench_valgrind(bench, what, inside, FEW);
        double many = isfinite(few) ? bench_valgrind(bench, what, inside, MANY) : NAN;
        if (!isfinite(many))
            return 0;
        bench_sample(&samples[weft],
                     (many - few) / (MANY - FEW) / (instructions ? cases[which].nodes : 1));
    }
    struct bench_row row = {.what = cases[which].what,
                            .unit = instructions ? "instructions/node" : "allocations/run",
                            .transport = "local",
                            .peer = instructions ? "plain Kahn loop" : NULL,
                            .weft = &samples[1],
                            .peers = instructions ? &samples[0] : NULL,
                            .limit = instructions ? 100 : 0,
                            .bytes = SIZE_MAX};
    bench_print(bench, &row);
    return 1;
}

static int open_rank(struct weft_local **local, struct weft_context **context)
{
    int status = weft_local_create(local, 1, NULL);

    return status == WEFT_OK ? weft_context_create_local(context, *local, 0, NULL) : status;
}

int bench_nodes(struct bench *bench)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    int counted = 1;

    if (bench->rank > 0)
        return 0;
    bench_machine(bench);
    if (open_rank(&local, &context) != WEFT_OK)
        return bench_fail(bench, "local rank");
    int status = 0;
    for (int i = 0; i < CASES && !status; i++)
        status = time_case(bench, &cases[i], context);
    weft_context_destroy(context);
    weft_local_destroy(local);
    for (int what = BENCH_INSTRUCTIONS; what <= BENCH_ALLOCATIONS && !status; what++)
        for (int i = 0; i < COUNTED && counted; i++)
            counted = count_case(bench, i, (enum bench_count)what);
    if (!counted)
        bench_note(bench, "instructions and allocations were not counted: valgrind did not run");
    return status;
}

int bench_nodes_inside(const char *what)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    struct graph g;
    size_t turns = 0;
    int which = what[0] - '0';
    int weft = strncmp(what + 1, ":weft:", 6) == 0;
    int plain = strncmp(what + 1, ":plain:", 7) == 0;

    if (which < 0 || which >= CASES || !(weft || plain))
        return cli_usage("bench", "--inside: '%s'; expected CASE:WHO:TURNS", what);
    if (cli_size("bench", "--inside", strrchr(what, ':') + 1, &turns))
        return CLI_WRONG;
    int status = open_rank(&local, &context);
    if (status == WEFT_OK) {
        status = open_graph(&g, &cases[which], context);
        if (status == WEFT_OK && !isfinite(time_turns(&g, weft, turns)))
            status = WEFT_ERR_STATE;
        close_graph(&g);
    }
    weft_context_destroy(context);
    weft_local_destroy(local);
    return status == WEFT_OK ? 0 : cli_fail("bench", "%s: %s", what, weft_error_text());
}
