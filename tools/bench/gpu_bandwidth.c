/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench gpu: how fast nodes move memory. A turn is a run of several such nodes one after the
 * other, as many as move some gigabytes, so that starting it does not count; the driver's copy
 * takes as many turns on a stream.
 */
#include "tools/bench/gpu.h"
#include "tools/cli/ranks.h"

#include <math.h>

/* What a turn moves, at least, and its nodes, at most. */
#define TURN_BYTES ((size_t)4 << 30)
enum { MOST_NODES = 64 };
#define GOAL 0.9

enum kind { REDUCE, COPY, TO_DEVICE, FROM_DEVICE };
enum place { ON_DEVICE, PINNED, HOST };

static const struct motion {
    const char *what;
    enum kind kind;
    enum place other; /* where the host's end is */
    weft_dtype_t dtype;
    int largest; /* 1: of the largest size alone */
} motions[] = {
    {"reduce sum f32", REDUCE, ON_DEVICE, WEFT_F32, 0},
    {"reduce sum f64", REDUCE, ON_DEVICE, WEFT_F64, 1},
    {"reduce sum f16", REDUCE, ON_DEVICE, WEFT_F16, 1},
    {"reduce sum bf16", REDUCE, ON_DEVICE, WEFT_BF16, 1},
    {"reduce max i32", REDUCE, ON_DEVICE, WEFT_I32, 1},
    {"copy", COPY, ON_DEVICE, WEFT_F32, 0},
    {"host to device, pinned", TO_DEVICE, PINNED, WEFT_F32, 0},
    {"device to host, pinned", FROM_DEVICE, PINNED, WEFT_F32, 0},
    {"host to device", TO_DEVICE, HOST, WEFT_F32, 0},
    {"device to host", FROM_DEVICE, HOST, WEFT_F32, 0},
};

struct contest {
    struct gpu *gpu;
    const struct motion *motion;
    size_t bytes, count;
    size_t nodes;
    void *memory[3]; /* to, from, and the other operand */
    struct weft_run *run;
    struct bench_samples weft, peer;
};

/* Bytes that a node reads and writes, of one side where there are two. */
static double traffic(const struct contest *c)
{
    static const int times[] = {[REDUCE] = 3, [COPY] = 2, [TO_DEVICE] = 1, [FROM_DEVICE] = 1};

    return (double)c->bytes * times[c->motion->kind];
}

/* ---- memory ---- */

static enum place place_of(const struct contest *c, int which)
{
    if (c->motion->kind == TO_DEVICE)
        return which == 0 ? ON_DEVICE : c->motion->other;
    if (c->motion->kind == FROM_DEVICE)
        return which == 0 ? c->motion->other : ON_DEVICE;
    return ON_DEVICE;
}

static int slots(const struct contest *c)
{
    return c->motion->kind == REDUCE ? 3 : 2;
}

/* Filled, so that pages are there and what comes out can be told. */
static int open_memory(struct contest *c)
{
    struct weft_context *context = c->gpu->context;
    unsigned char *ones = weft_memory_alloc(c->bytes, 1);
    int status = ones ? WEFT_OK : weft_error_set(WEFT_ERR_MEMORY, "out of memory");

    for (size_t i = 0; ones && i < c->bytes; i++)
        ones[i] = 0x3f; /* of any type a number: 0.7, 1.6, ... */
    for (int i = 0; i < slots(c) && status == WEFT_OK; i++) {
        enum place place = place_of(c, i);

        if (place == HOST)
            c->memory[i] = weft_memory_alloc(c->bytes, 1);
        else
            status = weft_context_device_alloc(
                context, place == ON_DEVICE ? WEFT_MEMORY_DEVICE : WEFT_MEMORY_HOST, c->bytes,
                &c->memory[i]);
        if (status == WEFT_OK && !c->memory[i])
            status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu bytes", c->bytes);
        if (status == WEFT_OK && i > 0)
            status = weft_context_device_copy(context, c->memory[i], ones, c->bytes);
    }
    weft_memory_free(ones);
    return status;
}

static void close_memory(struct contest *c)
{
    for (int i = 0; i < slots(c); i++)
        if (place_of(c, i) == HOST)
            weft_memory_free(c->memory[i]);
        else
            weft_context_device_free(c->gpu->context, c->memory[i]);
}

/* ---- the run ---- */

static weft_node_t add_node(const struct contest *c, struct weft_schedule *s)
{
    struct weft_region to = weft_region_at(0, 0, c->count), from = weft_region_at(1, 0, c->count);
    weft_op_kind_t kind = c->motion->dtype == WEFT_I32 ? WEFT_MAX : WEFT_SUM;

    if (c->motion->kind == REDUCE)
        return weft_schedule_add_reduce(s, weft_op_builtin(kind), to, from,
                                        weft_region_at(2, 0, c->count));
    return weft_schedule_add_copy(s, to, from);
}

static int build(const struct contest *c, struct weft_schedule *s)
{
    static const char *const names[] = {"to", "from", "other"};
    weft_node_t before = WEFT_NODE_NONE;

    for (int i = 0; i < slots(c); i++) {
        weft_slot_t slot = weft_schedule_add_slot(s, names[i], c->motion->dtype, c->count,
                                                  i == 0 ? WEFT_SLOT_OUTPUT : WEFT_SLOT_INPUT);
        if (place_of(c, i) == ON_DEVICE)
            weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE);
    }
    for (size_t n = 0; n < c->nodes; n++) {
        weft_node_t node = add_node(c, s);
        if (n > 0)
            weft_schedule_add_order(s, before, node);
        before = node;
    }
    return weft_schedule_status(s);
}

static int open_run(struct contest *c)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    int status = weft_schedule_create(&schedule, 0, 1);

    if (status == WEFT_OK)
        status = build(c, schedule);
    if (status == WEFT_OK)
        status = weft_schedule_commit(schedule, &plan);
    if (status == WEFT_OK)
        status = weft_run_create(&c->run, c->gpu->context, plan, NULL);
    for (int i = 0; i < slots(c) && status == WEFT_OK; i++)
        status = weft_run_bind(c->run, i, c->memory[i], c->count, c->motion->dtype);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

/* ---- turns ---- */

static int peer_turn(struct contest *c)
{
    int status = WEFT_OK;

    for (size_t n = 0; n < c->nodes && status == WEFT_OK; n++)
        status = gpu_driver_copy(c->gpu->driver, c->memory[0], c->memory[1], c->bytes);
    return status == WEFT_OK ? gpu_driver_wait(c->gpu->driver) : status;
}

/* The first and the last byte that was written. */
static int check(const struct contest *c)
{
    unsigned char sum[16], expected[16], byte = 0;
    size_t size = weft_dtype_size(c->motion->dtype);
    weft_op_kind_t kind = c->motion->dtype == WEFT_I32 ? WEFT_MAX : WEFT_SUM;
    int status = WEFT_OK;

    for (size_t i = 0; i < sizeof expected; i++)
        expected[i] = 0x3f;
    if (c->motion->kind == REDUCE)
        status = weft_op_reduce(weft_op_builtin(kind), c->motion->dtype, expected, expected,
                                expected, 1);
    for (size_t at = 0; at < 2 && status == WEFT_OK; at++) {
        status = weft_context_device_copy(c->gpu->context, sum,
                                          (char *)c->memory[0] + at * (c->bytes - size), size);
        for (size_t i = 0; i < size; i++)
            byte |= (unsigned char)(sum[i] ^ expected[i]);
    }
    return status == WEFT_OK && byte ? weft_error_set(WEFT_ERR_COMPUTE, "%s of %zu bytes is wrong",
                                                      c->motion->what, c->bytes)
                                     : status;
}

static int take_turns(struct contest *c)
{
    int status = WEFT_OK;

    for (int round = -1; round < c->gpu->bench->rounds && status == WEFT_OK; round++) {
        uint64_t start = ranks_now(), middle;

        status = weft_run_execute(c->run);
        middle = ranks_now();
        if (status == WEFT_OK && round < 0)
            status = check(c);
        uint64_t begin = ranks_now();
        if (status == WEFT_OK)
            status = peer_turn(c);
        uint64_t end = ranks_now();
        if (round < 0)
            continue;
        double copied = (double)c->bytes * (c->motion->kind <= COPY ? 2 : 1);
        bench_sample(&c->weft, traffic(c) * (double)c->nodes / (double)(middle - start));
        bench_sample(&c->peer, copied * (double)c->nodes / (double)(end - begin));
    }
    return status;
}

/* ---- rows ---- */

static void print(struct contest *c)
{
    struct gpu *gpu = c->gpu;
    int inside = c->motion->kind <= COPY;
    struct bench_row row = {.what = c->motion->what,
                            .unit = "GB/s",
                            .peer = "cuMemcpyAsync",
                            .weft = &c->weft,
                            .peers = &c->peer,
                            .limit = NAN,
                            .bytes = c->bytes};

    if (inside && !gpu->told)
        gpu->bandwidth = fmax(gpu->bandwidth, bench_most(&c->peer) * 1e9);
    if (inside)
        row.limit = gpu->bandwidth * 1e-9;
    gpu_print(gpu, &row, bench_median(&c->weft) / row.limit, GOAL);
}

static int measure(struct gpu *gpu, const struct motion *motion, size_t bytes)
{
    struct contest c = {
        .gpu = gpu, .motion = motion, .count = bytes / weft_dtype_size(motion->dtype)};

    c.count = c.count ? c.count : 1;
    c.bytes = c.count * weft_dtype_size(motion->dtype);
    c.nodes = (size_t)((double)TURN_BYTES / traffic(&c));
    c.nodes = c.nodes < 1 ? 1 : c.nodes > MOST_NODES ? MOST_NODES : c.nodes;
    int status = open_memory(&c);
    if (status == WEFT_OK)
        status = open_run(&c);
    if (status == WEFT_OK)
        status = take_turns(&c);
    if (status == WEFT_OK)
        print(&c);
    weft_run_destroy(c.run);
    close_memory(&c);
    return status == WEFT_OK ? 0 : bench_fail(gpu->bench, motion->what);
}

int gpu_bandwidth(struct gpu *gpu)
{
    static const size_t standard[] = {1 << 20, 64 << 20, 256 << 20};
    const struct bench *bench = gpu->bench;
    const size_t *sizes = bench->size_count ? bench->sizes : standard;
    size_t count = bench->size_count ? bench->size_count : sizeof standard / sizeof *standard;
    int status = 0;

    for (size_t m = 0; m < sizeof motions / sizeof *motions; m++)
        for (size_t i = motions[m].largest ? count - 1 : 0; i < count && !status; i++)
            status = measure(gpu, &motions[m], sizes[i]);
    return status;
}
