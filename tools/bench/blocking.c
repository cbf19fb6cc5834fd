/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench blocking: calls in one line, beside a plan of one's own that is started again, and
 * MPI's blocking form. Time is that of two ranks; what a call does beside executing its plan is
 * counted on one rank, in instructions and allocations, where nothing waits.
 */
#include "tools/bench/bench.h"

#include <math.h>
#include <string.h>

static int count(struct bench *bench, enum bench_count what)
{
    enum { FEW = 100, MANY = 1100 };
    struct bench_samples samples[2] = {{0}, {0}};
    static const char *const who[] = {"call:plan", "call:weft"};
    int instructions = what == BENCH_INSTRUCTIONS;

    for (int weft = 0; weft < 2; weft++) {
        double few = bench_valgrind(bench, what, who[weft], FEW);
        double many = isfinite(few) ? bench_valgrind(bench, what, who[weft], MANY) : NAN;
        if (!isfinite(many))
            return 0;
        bench_sample(&samples[weft], (many - few) / (MANY - FEW));
    }
    struct bench_row row = {.what = "P=1 4 B, the same call again",
                            .unit = instructions ? "instructions/call" : "allocations/call",
                            .transport = "local",
                            .peer = "plan",
                            .weft = &samples[1],
                            .peers = &samples[0],
                            .limit = instructions ? NAN : 0,
                            .bytes = sizeof(float)};
    bench_print(bench, &row);
    return 1;
}

int bench_blocking(struct bench *bench)
{
    static const size_t sizes[] = {4, 1u << 10, 1u << 16, 1u << 20};
    int status = bench_contest_sizes(bench, sizes, sizeof sizes / sizeof sizes[0],
                                     1u << BENCH_ALLREDUCE | BENCH_CALLS);

    if (status || bench->rank > 0 || (bench->world == 1 && bench->respawned))
        return status;
    if (!count(bench, BENCH_INSTRUCTIONS) || !count(bench, BENCH_ALLOCATIONS))
        bench_note(bench, "instructions and allocations were not counted: valgrind did not run");
    return 0;
}

static int work(struct weft_context *context, int weft, size_t turns)
{
    struct bench_side side = {0};
    int status = bench_side_open(&side, context, 1);

    for (size_t t = 0; t < turns && status == WEFT_OK; t++)
        status = weft ? weft_allreduce(context, side.send, side.recv, 1, WEFT_F32,
                                       weft_op_builtin(WEFT_SUM))
                      : weft_run_execute(side.run);
    bench_side_close(&side);
    return status;
}

int bench_blocking_inside(const char *what)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    size_t turns = 0;
    int weft = strncmp(what, "call:weft:", 10) == 0;

    if (!weft && strncmp(what, "call:plan:", 10) != 0)
        return cli_usage("bench", "--inside: '%s'; expected call:WHO:TURNS", what);
    if (cli_size("bench", "--inside", strrchr(what, ':') + 1, &turns))
        return CLI_WRONG;
    int status = weft_local_create(&local, 1, NULL);
    if (status == WEFT_OK)
        status = weft_context_create_local(&context, local, 0, NULL);
    if (status == WEFT_OK)
        status = work(context, weft, turns);
    weft_context_destroy(context);
    weft_local_destroy(local);
    return status == WEFT_OK ? 0 : cli_fail("bench", "%s: %s", what, weft_error_text());
}
