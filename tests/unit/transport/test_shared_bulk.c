/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large messages of the channel, with ranks as threads over one mapping: out of the arena, read by
 * the system, in chunks; copied and reduced; into and out of lists; and all the ways in which they
 * end early.
 */
#include <criterion/criterion.h>
#include <stdint.h>

#include "tests/support/bind.h"
#include "tests/support/blocking.h"
#include "tests/support/mapped_ranks.h"
#include "tests/support/transfer.h"

enum { EAGER = 8192, CHUNK = (int)WEFT__BULK_CHUNK };
enum { IN_ARENA, ON_HEAP, IN_LIST, MEMORIES };

static const int ways[] = {WEFT_SHARED_LARGE_READ, WEFT_SHARED_LARGE_COPY};

static void run_large(ranks_fn fn, int size, void *user, size_t eager, int large, int helped)
{
    struct ranks ranks;
    ranks_init(&ranks, size, fn, user);
    ranks.config.progress = helped ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
    mapped_run_large(&ranks, eager, 0, large);
}

static void run_each_way(ranks_fn fn, int size, void *user)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        /* Under a sanitizer one with a helper and one without, by the number of ranks. */
        if (SWEPT(1, (i + (size_t)size) % 2))
            run_large(fn, size, user, 0, ways[i], 0);
        if (SWEPT(1, (i + (size_t)size) % 2 == 0))
            run_large(fn, size, user, WEFT_EAGER_NONE, ways[i], 1);
    }
}

/* ---- one message ---- */

struct moved {
    size_t count; /* of 32 bits */
    int from, to; /* memories */
    int reduces;
    int up_to;
    int receiver; /* 1, or 0: the sender itself */
};

/* A buffer in some memory; in a list it is cut at odd places. */
struct buffer {
    int memory;
    int32_t *at;
    struct weft_piece pieces[3];
};

static struct buffer make_buffer(struct weft_context *context, int memory, size_t count)
{
    struct buffer buffer = {.memory = memory};
    buffer.at = memory == IN_ARENA ? weft_context_memory_alloc(context, count, sizeof *buffer.at)
                                   : calloc(count + 2, sizeof *buffer.at);
    CHECK(buffer.at);
    size_t first = count / 3, second = count / 2;
    buffer.pieces[0] = (struct weft_piece){buffer.at, first};
    buffer.pieces[1] = (struct weft_piece){buffer.at + first + 1, second - first};
    buffer.pieces[2] = (struct weft_piece){buffer.at + second + 2, count - second};
    return buffer;
}

static void free_buffer(struct weft_context *context, struct buffer *buffer)
{
    if (buffer->memory == IN_ARENA)
        weft_context_memory_free(context, buffer->at);
    else
        free(buffer->at);
}

static int32_t *element(const struct buffer *buffer, size_t i)
{
    int p = 0;
    if (buffer->memory != IN_LIST)
        return &buffer->at[i];
    while (i >= buffer->pieces[p].count)
        i -= buffer->pieces[p++].count;
    return (int32_t *)buffer->pieces[p].data + i;
}

static void bind(struct weft_run *run, weft_slot_t slot, const struct buffer *buffer)
{
    if (buffer->memory == IN_LIST)
        OK(bind_list(run, slot, buffer->pieces, 3));
    else
        OK(bind_slot(run, slot, buffer->at));
}

static void move(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct moved *moved = ranks->user;
    size_t count = moved->count;
    struct weft_schedule *s = new_schedule(rank, ranks->size);
    weft_slot_t in = -1, out = -1;
    struct buffer from = {0}, to = {0};
    if (rank == 0) {
        in = weft_schedule_add_slot(s, "in", WEFT_I32, count, WEFT_SLOT_INPUT);
        weft_schedule_add_send(s, weft_region_at(in, 0, count), moved->receiver, 3);
        from = make_buffer(context, moved->from, count);
    }
    if (rank == moved->receiver) {
        size_t room = count + (moved->up_to ? 100 : 0);
        out = weft_schedule_add_slot(s, "out", WEFT_I32, room, WEFT_SLOT_INOUT);
        struct weft_region whole = weft_region_at(out, 0, room);
        if (moved->reduces) {
            weft_slot_t tmp = weft_schedule_add_slot(s, "tmp", WEFT_I32, count, WEFT_SLOT_SCRATCH);
            struct weft_region received = weft_region_at(tmp, 0, count);
            weft_node_t receive = weft_schedule_add_recv(s, received, 0, 3);
            weft_schedule_add_order(
                s, receive,
                weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), whole, whole, received));
        } else if (moved->up_to) {
            weft_schedule_add_recv_up_to(s, whole, 0, 3, 0);
        } else {
            weft_schedule_add_recv(s, whole, 0, 3);
        }
        to = make_buffer(context, moved->to, room);
    }
    struct weft_run *run = make_run(context, commit(s), NULL);
    for (int round = 0; round < 3; round++) {
        if (rank == 0) {
            for (size_t i = 0; i < count; i++)
                *element(&from, i) = (int32_t)i * 5 + round;
            bind(run, in, &from);
        }
        if (rank == moved->receiver) {
            for (size_t i = 0; i < count; i++)
                *element(&to, i) = -(int32_t)i;
            bind(run, out, &to);
        }
        OK(weft_run_start(run));
        OK(weft_run_wait(run, WEFT_NEVER));
        for (size_t i = 0; rank == moved->receiver && i < count; i++)
            CHECK(*element(&to, i) == (int32_t)i * 5 + round - (moved->reduces ? (int32_t)i : 0));
    }
    weft_run_destroy(run);
    if (rank == 0)
        free_buffer(context, &from);
    if (rank == moved->receiver)
        free_buffer(context, &to);
}

static void move_each(size_t count, int receiver)
{
    for (int from = 0; from < MEMORIES; from++)
        for (int to = 0; to < MEMORIES; to++)
            for (int how = SWEPT(0, (from + to) % 3); how < 3; how += SWEPT(1, 3)) {
                struct moved moved = {.count = count,
                                      .from = from,
                                      .to = to,
                                      .reduces = how == 1,
                                      .up_to = how == 2,
                                      .receiver = receiver};
                run_each_way(move, 2, &moved);
            }
}

Test(shared_bulk, of_no_element)
{
    move_each(0, 1);
}

Test(shared_bulk, of_one_element)
{
    move_each(1, 1);
}

Test(shared_bulk, just_not_eager)
{
    move_each(EAGER / 4 + 1, 1);
}

Test(shared_bulk, around_a_chunk)
{
    move_each(CHUNK / 4 - 1, 1);
    move_each(CHUNK / 4, 1);
    move_each(CHUNK / 4 + 1, 1);
}

Test(shared_bulk, of_more_than_a_window)
{
    move_each(CHUNK / 4 * 4 + 3, 1);
    move_each(CHUNK / 4 * 9 - 7, 1);
}

Test(shared_bulk, to_oneself)
{
    move_each(1, 0);
    move_each(CHUNK / 4 * 5 + 3, 0);
}

/* ---- many ---- */

/* Blocks from each to each, in both directions at once; every rank of several reads one. */
static void exchange(struct ranks *ranks, struct weft_context *context, int rank)
{
    enum { COUNT = 60001 };
    size_t size = (size_t)ranks->size;
    int32_t *in = rank % 2 ? weft_context_memory_alloc(context, COUNT * size, sizeof *in)
                           : calloc(COUNT * size, sizeof *in);
    int32_t *out = calloc(COUNT * size, sizeof *out);
    CHECK(in && out);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT * size; i++)
            in[i] = (int32_t)i + rank + round;
        OK(weft_alltoall(context, in, out, COUNT, WEFT_I32));
        for (size_t p = 0; p < size; p++)
            for (size_t i = 0; i < COUNT; i++)
                CHECK(out[p * COUNT + i] ==
                      (int32_t)((size_t)rank * COUNT + i + p + (size_t)round));
        OK(weft_allreduce(context, in, out, COUNT, WEFT_I32, weft_op_builtin(WEFT_SUM)));
        for (size_t i = 0; i < COUNT; i++)
            CHECK(out[i] == (int32_t)(size * i + size * (size - 1) / 2 + size * (size_t)round));
    }
    if (rank % 2)
        weft_context_memory_free(context, in);
    else
        free(in);
    free(out);
}

Test(shared_bulk, between_many)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < SWEPT(sizeof sizes / sizeof *sizes, 4); i++)
        run_each_way(exchange, sizes[i], NULL);
}

/* Nothing is left of the arena but what was set aside at the beginning. */
static void exchange_in_little_room(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft__shared *shared = (struct weft__shared *)context->engine.transport;
    for (size_t bytes = (size_t)1 << 23; bytes >= 64; bytes /= 2)
        while (weft__channel_alloc(shared->channel, bytes))
            ;
    ranks_meet(ranks);
    exchange(ranks, context, rank);
}

Test(shared_bulk, between_many_in_little_room)
{
    for (int size = 1; size < SWEPT(6, 4); size++)
        run_each_way(exchange_in_little_room, size, NULL);
}

/* More sends than a ring has lines, and than slots were made for, received from the last to the
 * first. */
static void backwards(struct ranks *ranks, struct weft_context *context, int rank)
{
    enum { MESSAGES = 1500, COUNT = 3000 };
    struct weft_schedule *s = new_schedule(rank, ranks->size);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I32, (size_t)MESSAGES * COUNT,
                                           rank == 0 ? WEFT_SLOT_INPUT : WEFT_SLOT_OUTPUT);
    weft_node_t before = WEFT_NODE_NONE;
    for (size_t i = 0; i < MESSAGES; i++) {
        size_t which = rank == 0 ? i : MESSAGES - 1 - i;
        struct weft_region region = weft_region_at(x, which * COUNT, COUNT);
        if (rank == 0) {
            weft_schedule_add_send(s, region, 1, (uint32_t)which);
            continue;
        }
        weft_node_t receive = weft_schedule_add_recv(s, region, 0, (uint32_t)which);
        if (before != WEFT_NODE_NONE)
            weft_schedule_add_order(s, before, receive);
        before = receive;
    }
    struct weft_run *run = make_run(context, commit(s), NULL);
    int32_t *data = calloc((size_t)MESSAGES * COUNT, sizeof *data);
    CHECK(data);
    for (size_t i = 0; rank == 0 && i < (size_t)MESSAGES * COUNT; i++)
        data[i] = (int32_t)i;
    OK(bind_slot(run, x, data));
    OK(weft_run_start(run));
    OK(weft_run_wait(run, WEFT_NEVER));
    /* Who has received all drives no more: nothing that the sender needs may wait for that. */
    ranks_meet(ranks);
    for (size_t i = 0; i < (size_t)MESSAGES * COUNT; i++)
        CHECK(data[i] == (int32_t)i);
    weft_run_destroy(run);
    free(data);
}

Test(shared_bulk, backwards)
{
    run_each_way(backwards, 2, NULL);
}

/* ---- ends before the end ---- */

#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 8 };
#else
enum { ROUNDS = 40 };
#endif
enum { KINDS = 3, FAILING = 60000 };

/* Each rank sends a payload of each memory to the next, which adds it to what it has. */
static struct weft_run *ring_of_all(struct weft_context *context, struct buffer *in,
                                    struct buffer *out)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_schedule *s = new_schedule(rank, size);
    static const char *const in_names[] = {"in0", "in1", "in2"};
    static const char *const out_names[] = {"out0", "out1", "out2"};
    static const char *const tmp_names[] = {"tmp0", "tmp1", "tmp2"};
    weft_slot_t from[KINDS], to[KINDS];
    for (int k = 0; k < KINDS; k++) {
        from[k] = weft_schedule_add_slot(s, in_names[k], WEFT_I32, FAILING, WEFT_SLOT_INPUT);
        to[k] = weft_schedule_add_slot(s, out_names[k], WEFT_I32, FAILING, WEFT_SLOT_INOUT);
        weft_slot_t tmp =
            weft_schedule_add_slot(s, tmp_names[k], WEFT_I32, FAILING, WEFT_SLOT_SCRATCH);
        struct weft_region whole = weft_region_at(to[k], 0, FAILING);
        struct weft_region received = weft_region_at(tmp, 0, FAILING);
        weft_schedule_add_send(s, weft_region_at(from[k], 0, FAILING), (rank + 1) % size,
                               (uint32_t)k);
        weft_node_t receive =
            weft_schedule_add_recv(s, received, (rank + size - 1) % size, (uint32_t)k);
        weft_schedule_add_order(
            s, receive,
            weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), whole, whole, received));
    }
    struct weft_run *run = make_run(context, commit(s), NULL);
    for (int k = 0; k < KINDS; k++) {
        in[k] = make_buffer(context, k, FAILING);
        out[k] = make_buffer(context, (k + 1) % MEMORIES, FAILING);
        for (size_t i = 0; i < FAILING; i++)
            *element(&in[k], i) = (int32_t)i + rank + k;
        bind(run, from[k], &in[k]);
        bind(run, to[k], &out[k]);
    }
    return run;
}

static void free_all(struct weft_context *context, struct buffer *buffers)
{
    for (int k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < FAILING; i++)
            *element(&buffers[k], i) = -1;
        free_buffer(context, &buffers[k]);
    }
}

/* In each round one rank gives its run up at some moment, and everybody takes his memory back at
 * once; the next round is as if nothing had been. */
static void give_up(struct ranks *ranks, struct weft_context *context, int rank)
{
    unsigned seed = (unsigned)rank * 77 + (unsigned)ranks->size;
    for (int round = 0; round < ROUNDS; round++) {
        struct buffer in[KINDS], out[KINDS];
        struct weft_run *run = ring_of_all(context, in, out);
        int fails = round % 4 != 3, culprit = round % ranks->size;
        OK(weft_run_start(run));
        if (fails && rank == culprit) {
            for (unsigned i = round < 2 ? 0 : rand_r(&seed) % 60; i > 0; i--)
                weft_context_progress(context);
            OK(weft_run_cancel(run));
        }
        int status = weft_run_wait(run, WEFT_NEVER);
        CHECK(status == WEFT_OK ||
              (fails && (status == WEFT_ERR_PEER || status == WEFT_ERR_CANCELLED)));
        for (int k = 0; status == WEFT_OK && k < KINDS; k++)
            for (size_t i = 0; i < FAILING; i++)
                CHECK(*element(&out[k], i) ==
                      (int32_t)i + (rank + ranks->size - 1) % ranks->size + k);
        weft_run_destroy(run);
        free_all(context, in);
        free_all(context, out);
    }
}

Test(shared_bulk, given_up_at_any_moment)
{
    static const int sizes[] = {1, 2, 3, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_each_way(give_up, sizes[i], NULL);
}

/* Contexts are destroyed with everything under way. */
static void walk_off(struct ranks *ranks, struct weft_context *context, int rank)
{
    unsigned seed = (unsigned)rank * 31 + (unsigned)ranks->size;
    struct buffer in[KINDS], out[KINDS];
    struct weft_run *run = ring_of_all(context, in, out);
    OK(weft_run_start(run));
    for (unsigned i = rand_r(&seed) % 20; i > 0; i--)
        weft_context_progress(context);
    weft_run_destroy(run);
    free_all(context, in);
    free_all(context, out);
}

Test(shared_bulk, left_in_the_middle)
{
    for (int round = 0; round < SWEPT(10, 3); round++)
        for (int size = 2; size < 5; size++)
            run_each_way(walk_off, size, NULL);
}

/* The n-th allocation fails: a run may fail, nobody hangs, and nothing is lost. */
static void run_short(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct buffer in[KINDS], out[KINDS];
    struct weft_run *run = ring_of_all(context, in, out);
    ranks_meet(ranks);
    if (rank == 0)
        atomic_store(&weft__alloc_countdown, *(const int *)ranks->user);
    OK(weft_run_start(run));
    int status = weft_run_wait(run, WEFT_NEVER);
    CHECK(status == WEFT_OK || status == WEFT_ERR_PEER || status == WEFT_ERR_MEMORY);
    ranks_meet(ranks);
    if (rank == 0)
        atomic_store(&weft__alloc_countdown, -1);
    weft_run_destroy(run);
    free_all(context, in);
    free_all(context, out);
}

Test(shared_bulk, without_memory)
{
    for (int nth = 1; nth < 40; nth += SWEPT(1, 3))
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            run_large(run_short, 2, &nth, 0, ways[i], 0);
}

Test(shared_bulk, has_room_in_the_least_arena)
{
    for (size_t bytes = 1; bytes <= 8192; bytes *= 8192) {
        const struct weft__channel_config config = {
            .size = 2, .arena_bytes = bytes, .who = "least"};
        struct weft__layout layout;
        OK(weft__layout_make(&layout, &config));
        CHECK(layout.arena_bytes >= 4 * WEFT__BULK_CHUNK);
    }
}
