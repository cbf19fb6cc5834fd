/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the MPI transport promises: every size of message, payloads in pieces, oneself as peer,
 * thousands in flight, tags that are few, several contexts, communicators in another order, signals
 * that come early, contexts that end at different times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mpi_test.h"
#include "tests/support/bind.h"

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* ---- an exchange among all ranks, oneself included ---- */

struct exchange {
    struct weft_run *run;
    unsigned char *out;
    unsigned char *in;
    size_t bytes;
    int rank;
    int size;
    uint64_t version;
};

/* Every rank sends `bytes` to each rank, `per_peer` times. */
static struct exchange exchange_make(struct weft_context *context, size_t bytes, int per_peer)
{
    struct exchange x = {.bytes = bytes * (size_t)per_peer,
                         .rank = weft_context_rank(context),
                         .size = weft_context_size(context)};
    size_t total = x.bytes * (size_t)x.size;
    struct weft_schedule *schedule = NULL;
    weft_slot_t out, in;

    OK(weft_schedule_create(&schedule, x.rank, x.size));
    out = weft_schedule_add_slot(schedule, "out", WEFT_U8, total, WEFT_SLOT_INPUT);
    in = weft_schedule_add_slot(schedule, "in", WEFT_U8, total, WEFT_SLOT_OUTPUT);
    for (int i = 0; i < per_peer; i++)
        for (int peer = 0; peer < x.size; peer++) {
            size_t place = (size_t)peer * x.bytes + (size_t)i * bytes;

            weft_schedule_add_send(schedule, weft_region_at(out, place, bytes), peer, (uint32_t)i);
            weft_schedule_add_recv(schedule, weft_region_at(in, place, bytes), peer, (uint32_t)i);
        }
    x.run = mpi_test_run(context, schedule, NULL);
    x.out = calloc(total + 1, 1);
    x.in = calloc(total + 1, 1);
    CHECK(x.out && x.in);
    OK(bind_slot(x.run, out, x.out));
    OK(bind_slot(x.run, in, x.in));
    return x;
}

static void exchange_start(struct exchange *x)
{
    for (int peer = 0; peer < x->size; peer++)
        mpi_test_fill(x->out + (size_t)peer * x->bytes, x->bytes, x->rank, peer, x->version);
    memset(x->in, 0xee, x->bytes * (size_t)x->size);
    OK(weft_run_start(x->run));
}

static void exchange_finish(struct exchange *x)
{
    OK(weft_run_wait(x->run, WEFT_NEVER));
    for (int peer = 0; peer < x->size; peer++)
        mpi_test_same(x->in + (size_t)peer * x->bytes, x->bytes, peer, x->rank, x->version);
    x->version++;
}

static void exchange_free(struct exchange *x)
{
    weft_run_destroy(x->run);
    free(x->out);
    free(x->in);
}

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
    mpi_test_ok("messages of every size, restarted with changed data");
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
    mpi_test_ok("several runs in flight, started in different orders");
}

static void in_flight(struct weft_context *context, size_t bytes, int messages, const char *name)
{
    int per_peer = messages / weft_context_size(context);
    struct exchange x = exchange_make(context, bytes, per_peer);

    for (int start = 0; start < 2; start++) {
        if (x.rank % 2 == 1)
            pause_ms(20);
        exchange_start(&x);
        exchange_finish(&x);
    }
    exchange_free(&x);
    mpi_test_ok("%d messages of %zu bytes in flight%s", messages, bytes, name);
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
    run = mpi_test_run(context, schedule, NULL);
    OK(bind_list(run, send, out, PIECES));
    OK(bind_list(run, receive, in, PIECES));
    for (int start = 0; start < 3; start++) {
        size_t place = 0;

        mpi_test_fill(flat, total, rank, (rank + 1) % size, (uint64_t)start);
        for (int i = 0; i < PIECES; place += out[i++].count)
            memcpy(out[i].data, flat + place, out[i].count);
        OK(weft_run_execute(run));
        place = 0;
        for (int i = 0; i < PIECES; place += in[i++].count)
            memcpy(flat + place, in[i].data, in[i].count);
        mpi_test_same(flat, total, (rank + size - 1) % size, rank, (uint64_t)start);
    }
    weft_run_destroy(run);
    for (int i = 0; i < PIECES; i++) {
        free(out[i].data);
        free(in[i].data);
    }
    free(flat);
    mpi_test_ok("lists of %zu bytes in pieces are sent and received", total);
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
    run = mpi_test_run(context, schedule, NULL);
    OK(bind_slot(run, out, a));
    OK(bind_slot(run, in, b));
    for (int start = 0; start < 6; start++) {
        static const uint64_t counts[] = {0, 100, 8192, 8193, 30000, MOST};
        uint64_t own = counts[(start + rank) % 6], other = counts[(start + from) % 6];

        mpi_test_fill(a, MOST, rank, (rank + 1) % size, (uint64_t)start);
        OK(weft_run_bind_value(run, sent, own));
        OK(weft_run_execute(run));
        CHECK(weft_run_get_value(run, got) == other);
        mpi_test_same(b, other, from, rank, (uint64_t)start);
    }
    weft_run_destroy(run);
    free(a);
    free(b);
    mpi_test_ok("a receive of up to a capacity tells what came");
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
    run = mpi_test_run(context, schedule, NULL);
    for (int version = 0; version < VERSIONS; version++)
        OK(weft_run_execute(run));
    weft_run_destroy(run);
    mpi_test_ok("%d signals round the ranks, the first before its object exists", VERSIONS);
}

/* ---- communicators and contexts ---- */

static void communicators(void)
{
    struct weft_context *reversed, *half;
    struct exchange x, y;
    MPI_Comm back, part;

    MPI_Comm_split(MPI_COMM_WORLD, 0, -mpi_test_rank, &back);
    MPI_Comm_split(MPI_COMM_WORLD, mpi_test_rank % 2, mpi_test_rank, &part);
    reversed = mpi_test_context(back, NULL);
    half = mpi_test_context(part, NULL);
    MPI_Comm_free(&back); /* it was duplicated */
    CHECK(weft_context_rank(reversed) == mpi_test_size - 1 - mpi_test_rank);
    CHECK(weft_context_size(half) == (mpi_test_size + (mpi_test_rank % 2 == 0)) / 2);
    CHECK(strcmp(weft_context_transport(half), "mpi") == 0);
    x = exchange_make(reversed, 30000, 2);
    y = exchange_make(half, 300, 2);
    for (int start = 0; start < 3; start++) {
        exchange_start(&x);
        exchange_start(&y);
        exchange_finish(&y);
        exchange_finish(&x);
    }
    exchange_free(&x);
    exchange_free(&y);
    weft_context_destroy(half);
    weft_context_destroy(reversed);
    MPI_Comm_free(&part);
    mpi_test_ok("several contexts, communicators of some ranks in another order");
}

static void nodes(struct weft_context *context)
{
    int *numbers = calloc((size_t)mpi_test_size, sizeof *numbers);

    CHECK(numbers);
    OK(weft_context_hosts(context, numbers));
    for (int rank = 0; rank < mpi_test_size; rank++)
        CHECK(numbers[rank] >= 0 && numbers[rank] < weft_context_host_count(context));
    CHECK(weft_context_host_count(context) <= mpi_test_size);
    CHECK(numbers[0] == 0);
    free(numbers);
    mpi_test_ok("every rank knows which node the others are on");
}

static void few_tags(unsigned bits)
{
    struct weft_mpi_config config;
    struct weft_context *context;
    char name[64];

    weft_mpi_config_init(&config);
    config.tag_bits = bits;
    OK(weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, &config));
    snprintf(name, sizeof name, " with %u bits of tag", bits);
    in_flight(context, 9000, 400, name);
    weft_context_destroy(context);
}

static void too_many_tags(void)
{
    struct weft_mpi_config config;
    struct weft_context *context = NULL;

    weft_mpi_config_init(&config);
    config.tag_bits = 40;
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, &config));
    CHECK(strstr(weft_error_text(), "tag_bits"));
    CHECK(!context);
    mpi_test_ok("more bits of tag than MPI has are refused");
    int last = mpi_test_size - 1;
    char expected[80];
    config.tag_bits = mpi_test_rank == last ? 6 : 5;
    snprintf(expected, sizeof expected, "tag_bits is 5 on rank 0 and 6 on rank %d", last);
    STATUS(last ? WEFT_ERR_INVALID : WEFT_OK,
           weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, &config));
    CHECK(!last || strstr(weft_error_text(), expected));
    CHECK(!last == !!context);
    weft_context_destroy(context);
    mpi_test_ok("bits of tag that are not the same on all ranks are refused, and both are named");
}

/* The policy of weft/sized.h, for the two structs that are read here; all ranks are refused. */
static void struct_sizes(void)
{
    struct weft_context_config config[2];
    struct weft_mpi_config mpi[2];
    struct weft_context *context = NULL;

    memset(config, 0, sizeof config);
    memset(mpi, 0, sizeof mpi);
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, config, NULL));
    CHECK(strstr(weft_error_text(), "weft_context_create_mpi: config->struct_size is 0, expected"));
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, mpi));
    CHECK(strstr(weft_error_text(), "weft_context_create_mpi: mpi->struct_size is 0, expected"));
    config[0].struct_size = sizeof config;
    mpi[0].struct_size = sizeof mpi;
    OK(weft_context_create_mpi(&context, MPI_COMM_WORLD, config, mpi));
    weft_context_destroy(context);
    mpi[1].tag_bits = 1;
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, config, mpi));
    CHECK(strstr(weft_error_text(), "mpi->struct_size is"));
    config[0].struct_size = offsetof(struct weft_context_config, spin_ns);
    OK(weft_context_create_mpi(&context, MPI_COMM_WORLD, config, NULL));
    weft_context_destroy(context);
    memset(mpi, 0xA5, sizeof mpi);
    weft_mpi_config_init(&mpi[0]);
    CHECK(mpi[0].struct_size == sizeof mpi[0] && !mpi[0].tag_bits);
    CHECK(mpi[1].struct_size == (size_t)UINT64_C(0xA5A5A5A5A5A5A5A5));
    mpi_test_ok("structs of no size, of other versions and of later ones");
}

/* A message around, then an event that holds the run. */
static void wait_for_a_node(weft_progress_t progress)
{
    struct weft_context_config config;
    struct weft_context *context;
    struct weft_schedule *s = NULL;
    struct weft_run *run;
    weft_node_t send, recv, arrived, event;
    int64_t data[2] = {mpi_test_rank, -1};
    int size = mpi_test_size, left = (mpi_test_rank + size - 1) % size;

    weft_context_config_init(&config);
    config.progress = progress;
    context = mpi_test_context(MPI_COMM_WORLD, &config);
    OK(weft_schedule_create(&s, mpi_test_rank, size));
    weft_schedule_add_slot(s, "data", WEFT_I64, 2, WEFT_SLOT_INOUT);
    send = weft_schedule_add_send(s, weft_region_at(0, 0, 1), (mpi_test_rank + 1) % size, 0);
    recv = weft_schedule_add_recv(s, weft_region_at(0, 1, 1), left, 0);
    arrived = weft_schedule_add_join(s);
    event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_schedule_add_order(s, send, arrived);
    weft_schedule_add_order(s, recv, arrived);
    run = mpi_test_run(context, s, NULL);
    OK(weft_run_bind(run, 0, data, 2, WEFT_I64));
    for (int64_t version = 0; version < 5; version++) {
        data[0] = mpi_test_rank + 100 * version;
        OK(weft_run_start(run));
        OK(weft_run_wait_node(run, arrived, WEFT_NEVER));
        CHECK(data[1] == left + 100 * version);
        STATUS(WEFT_IN_PROGRESS, weft_run_wait(run, 0));
        OK(weft_run_fire(run, event));
        OK(weft_run_wait(run, WEFT_NEVER));
    }
    weft_run_destroy(run);
    weft_context_destroy(context);
    mpi_test_ok("a join is waited for while the run is held, %s",
                progress == WEFT_PROGRESS_HELPER ? "with a helper" : "by the caller");
}

/* Ranks leave one after the other; the last messages of those who stay are still taken. */
static void leaving(void)
{
    struct weft_context *context = mpi_test_context(MPI_COMM_WORLD, NULL);
    struct exchange x = exchange_make(context, 50000, 1);

    exchange_start(&x);
    exchange_finish(&x);
    exchange_free(&x);
    pause_ms(30 * (mpi_test_rank % 3));
    weft_context_destroy(context);
    mpi_test_ok("contexts end at different times");
}

static void helper(void)
{
    struct weft_context_config config;
    struct weft_context *context;
    struct exchange x;

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    context = mpi_test_context(MPI_COMM_WORLD, &config);
    x = exchange_make(context, 100000, 1);
    for (int start = 0; start < 5; start++) {
        exchange_start(&x);
        pause_ms(3);
        exchange_finish(&x);
    }
    exchange_free(&x);
    weft_context_destroy(context);
    mpi_test_ok("a helper thread drives while the caller sleeps");
}

int main(int argc, char **argv)
{
    struct weft_context *context;

    mpi_test_init(&argc, &argv, MPI_THREAD_MULTIPLE);
    context = mpi_test_context(MPI_COMM_WORLD, NULL);
    sizes(context);
    several_runs(context);
    in_flight(context, 64, 10000, "");
    in_flight(context, 10000, 10000, "");
    lists(context, 0);
    lists(context, 1);
    up_to(context);
    signals(context);
    nodes(context);
    weft_context_destroy(context);
    communicators();
    few_tags(4);
    few_tags(1);
    too_many_tags();
    struct_sizes();
    leaving();
    helper();
    wait_for_a_node(WEFT_PROGRESS_CALLER);
    wait_for_a_node(WEFT_PROGRESS_HELPER);
    return mpi_test_end();
}
