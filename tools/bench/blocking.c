/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench blocking: calls in one line, beside a plan of one's own that is started again, and
 * MPI's blocking form. Time is that of allreduce on two ranks; what a call does beside executing
 * its plan is counted on one rank, in instructions (of each function) and allocations, where
 * nothing waits.
 */
#include "tools/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the functions, with one element a rank ---- */

static const size_t one[] = {1};

#define SUM weft_op_builtin(WEFT_SUM)
#define FUNCTION(name, ...)                                                                        \
    static int call_##name(struct weft_context *context, const float *send, float *recv)           \
    {                                                                                              \
        (void)send, (void)recv;                                                                    \
        return weft_##name(__VA_ARGS__);                                                           \
    }
FUNCTION(allreduce, context, send, recv, 1, WEFT_F32, SUM)
FUNCTION(barrier, context)
FUNCTION(broadcast, context, recv, 1, WEFT_F32, 0)
FUNCTION(reduce, context, send, recv, 1, WEFT_F32, SUM, 0)
FUNCTION(reduce_scatter, context, send, recv, 1, WEFT_F32, SUM)
FUNCTION(scan, context, send, recv, 1, WEFT_F32, SUM)
FUNCTION(allgather, context, send, recv, 1, WEFT_F32)
FUNCTION(gather, context, send, recv, 1, WEFT_F32, 0)
FUNCTION(scatter, context, send, recv, 1, WEFT_F32, 0)
FUNCTION(alltoall, context, send, recv, 1, WEFT_F32)
FUNCTION(allgatherv, context, send, recv, one, NULL, WEFT_F32)
#undef FUNCTION

static const struct function {
    const char *name; /* of the template, too */
    int (*call)(struct weft_context *context, const float *send, float *recv);
    const char *in, *out; /* slots, or NULL */
} functions[] = {{"allreduce", call_allreduce, "send", "recv"},
                 {"barrier", call_barrier, NULL, NULL},
                 {"broadcast", call_broadcast, NULL, "buffer"},
                 {"reduce", call_reduce, "send", "recv"},
                 {"reduce-scatter", call_reduce_scatter, "send", "recv"},
                 {"scan", call_scan, "send", "recv"},
                 {"allgather", call_allgather, "send", "recv"},
                 {"gather", call_gather, "send", "recv"},
                 {"scatter", call_scatter, "send", "recv"},
                 {"alltoall", call_alltoall, "send", "recv"},
                 {"allgatherv", call_allgatherv, "send", "recv"}};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static int count(struct bench *bench, enum bench_count what, const struct function *function)
{
    enum { FEW = 100, MANY = 1100 };
    struct bench_samples samples[2] = {{0}, {0}};
    int instructions = what == BENCH_INSTRUCTIONS;
    char name[64];

    for (int weft = 0; weft < 2; weft++) {
        snprintf(name, sizeof name, "call:%s:%s", weft ? "weft" : "plan", function->name);
        double few = bench_valgrind(bench, what, name, FEW);
        double many = isfinite(few) ? bench_valgrind(bench, what, name, MANY) : NAN;
        if (!isfinite(many))
            return 0;
        bench_sample(&samples[weft], (many - few) / (MANY - FEW));
    }
    snprintf(name, sizeof name, "P=1 4 B, %s again", function->name);
    struct bench_row row = {.what = name,
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
    int counted = count(bench, BENCH_ALLOCATIONS, &functions[0]);
    for (int f = 0; counted && f < FUNCTIONS; f++)
        counted = count(bench, BENCH_INSTRUCTIONS, &functions[f]);
    if (!counted)
        bench_note(bench, "instructions and allocations were not counted: valgrind did not run");
    return 0;
}

static int plan_of(struct weft_run **run, struct weft_context *context,
                   const struct function *function, const float *send, float *recv)
{
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.count = 1;
    params.counts = one;
    int status = weft_template_create_run(run, context, function->name, &params);
    if (status == WEFT_OK && function->in)
        status = weft_run_bind_input_name(*run, function->in, send, 1, WEFT_F32);
    if (status == WEFT_OK && function->out)
        status = weft_run_bind_name(*run, function->out, recv, 1, WEFT_F32);
    return status;
}

static int work(struct weft_context *context, const struct function *function, int weft,
                size_t turns)
{
    struct weft_run *run = NULL;
    float send = 1, recv = 0;
    int status = plan_of(&run, context, function, &send, &recv);

    for (size_t t = 0; t < turns && status == WEFT_OK; t++)
        status = weft ? function->call(context, &send, &recv) : weft_run_execute(run);
    weft_run_destroy(run);
    return status;
}

/* "call:WHO:FUNCTION:TURNS". */
int bench_blocking_inside(const char *what)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    const struct function *function = NULL;
    size_t turns = 0;
    int weft = strncmp(what, "call:weft:", 10) == 0;

    if (weft || strncmp(what, "call:plan:", 10) == 0)
        for (int f = 0; f < FUNCTIONS; f++) {
            size_t length = strlen(functions[f].name);
            if (strncmp(what + 10, functions[f].name, length) == 0 && what[10 + length] == ':')
                function = &functions[f];
        }
    if (!function)
        return cli_usage("bench", "--inside: '%s'; expected call:WHO:FUNCTION:TURNS", what);
    if (cli_size("bench", "--inside", strrchr(what, ':') + 1, &turns))
        return CLI_WRONG;
    int status = weft_local_create(&local, 1, NULL);
    if (status == WEFT_OK)
        status = weft_context_create_local(&context, local, 0, NULL);
    if (status == WEFT_OK)
        status = work(context, function, weft, turns);
    weft_context_destroy(context);
    weft_local_destroy(local);
    return status == WEFT_OK ? 0 : cli_fail("bench", "%s: %s", what, weft_error_text());
}
