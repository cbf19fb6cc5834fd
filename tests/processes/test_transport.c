/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a transport between processes promises: every size of message, payloads in pieces, oneself
 * as peer, thousands in flight, several contexts, signals that come early, contexts that end at
 * different times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange.h"
#include "tests/support/bind.h"

static void sizes(struct weft_context *context)
{
    static const size_t bytes[] = {0,      1,      127,    128,     129,    4096,
                                   8191,   8192,   8193,   16384,   65535,  65537,
                                   100000, 131071, 131072, 1000003, 4194304};

    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        struct exchange x = exchange_make(context, bytes[i], 1);

        for (int start = 0; start < 3; start++) {
            /* Ranks arrive at different times: receives before and after their messages. */
            if ((x.rank + start) % 3 == 0)
                pause_ms(2);
            exchange_start(&x);
            exchange_finish(&x);
        }
        exchange_free(&x);
    }
    world_ok("messages of every size, restarted with changed data");
}

static void several_runs(struct weft_context *context)
{
    struct exchange x[4];

    for (int i = 0; i < 4; i++)
        x[i] = exchange_make(context, i % 2 == 0 ? 100 : 20000, 1);
    for (int turn = 0; turn < 5; turn++) {
        /* Started and finished in an order that differs from rank to rank. */
        for (int i = 0; i < 4; i++)
            exchange_start(&x[(i + x[0].rank) % 4]);
        for (int i = 0; i < 4; i++)
            exchange_finish(&x[3 - i]);
    }
    for (int i = 0; i < 4; i++)
        exchange_free(&x[i]);
    world_ok("several runs in flight, started in different orders");
}

/* ---- lists ---- */

/* `large`: the message goes whole, else in chunks. */
static void lists(struct weft_context *context, int large)
{
    enum { PIECES = 7 };
    const size_t counts[PIECES] = {1, 0, 4000, 13, large ? 90000 : 20000, 2, 50001};
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_piece out[PIECES], in[PIECES];
    size_t total = 0;
    struct weft_schedule *schedule = NULL;
    struct weft_run *run;
    weft_slot_t send, receive;
    unsigned char *flat;

    for (int i = 0; i < PIECES; i++) {
        out[i] = (struct weft_piece){calloc(counts[i] + 1, 1), counts[i]};
        in[PIECES - 1 - i] = (struct weft_piece){calloc(counts[i] + 1, 1), counts[i]};
        total += counts[i];
    }
    flat = malloc(total);
    CHECK(flat);
    OK(weft_schedule_create(&schedule, rank, size));
    send = weft_schedule_add_slot(schedule, "out", WEFT_U8, total, WEFT_SLOT_INPUT);
    receive = weft_schedule_add_slot(schedule, "in", WEFT_U8, total, WEFT_SLOT_OUTPUT);
    weft_schedule_add_send(schedule, weft_region_at(send, 0, total), (rank + 1) % size, 1);
    weft_schedule_add_recv(schedule, weft_region_at(receive, 0, total), (rank + size - 1) % size,
                           1);
    run = world_run(context, schedule, NULL);
    OK(bind_list(run, send, out, PIECES));
    OK(bind_list(run, receive, in, PIECES));
    for (int start = 0; start < 3; start++) {
        size_t place = 0;

        world_fill(flat, total, rank, (rank + 1) % size, (uint64_t)start);
        for (int i = 0; i < PIECES; place += out[i++].count)
            memcpy(out[i].data, flat + place, out[i].count);
        OK(weft_run_execute(run));
        place = 0;
        for (int i = 0; i < PIECES; place += in[i++].count)
            memcpy(flat + place, in[i].data, in[i].count);
        world_same(flat, total, (rank + size - 1) % size, rank, (uint64_t)start);
    }
    weft_run_destroy(run);
    for (int i = 0; i < PIECES; i++) {
        free(out[i].data);
        free(in[i].data);
    }
    free(flat);
    world_ok("lists of %zu bytes in pieces are sent and received", total);
}

/* ---- receives of up to so much ---- */

static void up_to(struct weft_context *context)
{
    enum { MOST = 50000 };
    int rank = weft_context_rank(context), size = weft_context_size(context);
    int from = (rank + size - 1) % size;
    struct weft_schedule *schedule = NULL;
    weft_value_t sent, got;
    weft_slot_t out, in;
    struct weft_region region;
    struct weft_run *run;
    unsigned char *a = calloc(MOST, 1), *b = calloc(MOST, 1);

    CHECK(a && b);
    OK(weft_schedule_create(&schedule, rank, size));
    out = weft_schedule_add_slot(schedule, "out", WEFT_U8, MOST, WEFT_SLOT_INPUT);
    in = weft_schedule_add_slot(schedule, "in", WEFT_U8, MOST, WEFT_SLOT_OUTPUT);
    sent = weft_schedule_add_value(schedule, "sent", MOST);
    got = weft_schedule_add_value(schedule, "got", MOST);
    region = weft_region_at(out, 0, MOST);
    region.value = sent;
    weft_schedule_add_send(schedule, region, (rank + 1) % size, 5);
    weft_schedule_add_recv_up_to(schedule, weft_region_at(in, 0, MOST), from, 5, got);
    run = world_run(context, schedule, NULL);
    OK(bind_slot(run, out, a));
    OK(bind_slot(run, in, b));
    for (int start = 0; start < 6; start++) {
        static const uint64_t counts[] = {0, 100, 8192, 8193, 30000, MOST};
        uint64_t own = counts[(start + rank) % 6], other = counts[(start + from) % 6];

        world_fill(a, MOST, rank, (rank + 1) % size, (uint64_t)start);
        OK(weft_run_bind_value(run, sent, own));
        OK(weft_run_execute(run));
        CHECK(weft_run_get_value(run, got) == other);
        world_same(b, other, from, rank, (uint64_t)start);
    }
    weft_run_destroy(run);
    free(a);
    free(b);
    world_ok("a receive of up to a capacity tells what came");
}

/* ---- signals ---- */

static void signals(struct weft_context *context)
{
    enum { VERSIONS = 200 };
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_schedule *schedule = NULL;
    weft_node_t signal, event;
    struct weft_run *run;

    /* A token goes round: rank 0 begins, the others pass it on. */
    OK(weft_schedule_create(&schedule, rank, size));
    signal = weft_schedule_add_signal(schedule, (rank + 1) % size, 3);
    event = weft_schedule_add_event(schedule, 3);
    if (rank != 0)
        OK(weft_schedule_add_order(schedule, event, signal));
    if (rank == size - 1)
        pause_ms(20); /* signals for a run that does not exist yet */
    run = world_run(context, schedule, NULL);
    for (int version = 0; version < VERSIONS; version++)
        OK(weft_run_execute(run));
    weft_run_destroy(run);
    world_ok("%d signals round the ranks, the first before its object exists", VERSIONS);
}

/* ---- contexts ---- */

static void several_contexts(void)
{
    struct weft_context *first = world_context(NULL), *second = world_context(NULL);
    struct exchange x = exchange_make(first, 30000, 2), y = exchange_make(second, 300, 2);

    for (int start = 0; start < 3; start++) {
        exchange_start(&x);
        exchange_start(&y);
        exchange_finish(&y);
        exchange_finish(&x);
    }
    exchange_free(&x);
    weft_context_destroy(first);
    exchange_start(&y);
    exchange_finish(&y);
    exchange_free(&y);
    weft_context_destroy(second);
    world_ok("several contexts at once");
}

static void nodes(struct weft_context *context)
{
    int *numbers = calloc((size_t)world_size, sizeof *numbers);

    CHECK(numbers);
    OK(weft_context_hosts(context, numbers));
    for (int rank = 0; rank < world_size; rank++)
        CHECK(numbers[rank] >= 0 && numbers[rank] < weft_context_host_count(context));
    CHECK(weft_context_host_count(context) <= world_size);
    CHECK(numbers[0] == 0);
    free(numbers);
    world_ok("every rank knows which node the others are on");
}

/* A message around, then an event that holds the run. */
static void wait_for_a_node(weft_progress_t progress)
{
    struct weft_context_config config;
    struct weft_context *context;
    struct weft_schedule *s = NULL;
    struct weft_run *run;
    weft_node_t send, recv, arrived, event;
    int64_t data[2] = {world_rank, -1};
    int size = world_size, left = (world_rank + size - 1) % size;

    weft_context_config_init(&config);
    config.progress = progress;
    context = world_context(&config);
    OK(weft_schedule_create(&s, world_rank, size));
    weft_schedule_add_slot(s, "data", WEFT_I64, 2, WEFT_SLOT_INOUT);
    send = weft_schedule_add_send(s, weft_region_at(0, 0, 1), (world_rank + 1) % size, 0);
    recv = weft_schedule_add_recv(s, weft_region_at(0, 1, 1), left, 0);
    arrived = weft_schedule_add_join(s);
    event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_schedule_add_order(s, send, arrived);
    weft_schedule_add_order(s, recv, arrived);
    run = world_run(context, s, NULL);
    OK(weft_run_bind(run, 0, data, 2, WEFT_I64));
    for (int64_t version = 0; version < 5; version++) {
        data[0] = world_rank + 100 * version;
        OK(weft_run_start(run));
        OK(weft_run_wait_node(run, arrived, WEFT_NEVER));
        CHECK(data[1] == left + 100 * version);
        STATUS(WEFT_IN_PROGRESS, weft_run_wait(run, 0));
        OK(weft_run_fire(run, event));
        OK(weft_run_wait(run, WEFT_NEVER));
    }
    weft_run_destroy(run);
    weft_context_destroy(context);
    world_ok("a join is waited for while the run is held, %s",
             progress == WEFT_PROGRESS_HELPER ? "with a helper" : "by the caller");
}

/* Ranks leave one after the other; the last messages of those who stay are still taken. */
static void leaving(void)
{
    struct weft_context *context = world_context(NULL);
    struct exchange x = exchange_make(context, 50000, 1);

    exchange_start(&x);
    exchange_finish(&x);
    exchange_free(&x);
    pause_ms(30 * (world_rank % 3));
    weft_context_destroy(context);
    world_ok("contexts end at different times");
}

static void helper(void)
{
    struct weft_context_config config;
    struct weft_context *context;
    struct exchange x;

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    context = world_context(&config);
    x = exchange_make(context, 100000, 1);
    for (int start = 0; start < 5; start++) {
        exchange_start(&x);
        pause_ms(3);
        exchange_finish(&x);
    }
    exchange_free(&x);
    weft_context_destroy(context);
    world_ok("a helper thread drives while the caller sleeps");
}

int main(int argc, char **argv)
{
    struct weft_context *context;

    world_init(&argc, &argv, WORLD_THREADS);
    context = world_context(NULL);
    sizes(context);
    several_runs(context);
    exchange_many(context, 64, 10000, "");
    exchange_many(context, 10000, 10000, "");
    lists(context, 0);
    lists(context, 1);
    up_to(context);
    signals(context);
    nodes(context);
    weft_context_destroy(context);
    several_contexts();
    leaving();
    helper();
    wait_for_a_node(WEFT_PROGRESS_CALLER);
    wait_for_a_node(WEFT_PROGRESS_HELPER);
    return world_end();
}
