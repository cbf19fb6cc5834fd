/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts split from contexts, at random, on any transport: include what defines CHECK and OK
 * before. What all ranks of a context do with it follows from a number that they share; when each
 * destroys it, from its own.
 */
#ifndef WEFT_TESTS_SPLITTING_H
#define WEFT_TESTS_SPLITTING_H

#include "tests/support/bind.h"
#include <stdlib.h>
#include <weft/weft.h>

/* A message from each rank to each. */
struct exchange {
    struct weft_context *context;
    struct weft_run *run;
    int64_t *out, *in;
    int *roots;
    int size, rank;
    size_t count;
    int64_t turn;
};

static inline void exchange_create(struct exchange *exchange, struct weft_context *context,
                                   size_t count)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    int size = weft_context_size(context), rank = weft_context_rank(context);
    *exchange = (struct exchange){.context = context, .size = size, .rank = rank, .count = count};
    size_t all = (size_t)size * count;
    exchange->out = calloc(all, sizeof *exchange->out);
    exchange->in = calloc(all, sizeof *exchange->in);
    exchange->roots = calloc((size_t)size, sizeof *exchange->roots);
    CHECK(exchange->out && exchange->in && exchange->roots);
    OK(weft_context_root_ranks(context, exchange->roots));
    OK(weft_schedule_create(&schedule, rank, size));
    weft_slot_t out = weft_schedule_add_slot(schedule, "out", WEFT_I64, all, WEFT_SLOT_INPUT);
    weft_slot_t in = weft_schedule_add_slot(schedule, "in", WEFT_I64, all, WEFT_SLOT_OUTPUT);
    for (int r = 0; r < size; r++) {
        weft_schedule_add_recv(schedule, weft_region_at(in, (size_t)r * count, count), r, 3);
        weft_schedule_add_send(schedule, weft_region_at(out, (size_t)r * count, count), r, 3);
    }
    OK(weft_schedule_commit(schedule, &plan));
    weft_schedule_destroy(schedule);
    OK(weft_run_create(&exchange->run, context, plan, NULL));
    weft_plan_destroy(plan);
    OK(bind_name(exchange->run, "out", exchange->out));
    OK(bind_name(exchange->run, "in", exchange->in));
}

static inline int64_t exchanged(const struct exchange *exchange, int from, int to)
{
    return ((int64_t)exchange->roots[from] << 32 | exchange->roots[to] << 16) + exchange->turn;
}

static inline void exchange_start(struct exchange *exchange)
{
    exchange->turn++;
    for (int r = 0; r < exchange->size; r++)
        for (size_t i = 0; i < exchange->count; i++)
            exchange->out[(size_t)r * exchange->count + i] = exchanged(exchange, exchange->rank, r);
    OK(weft_run_start(exchange->run));
}

static inline void exchange_wait(const struct exchange *exchange)
{
    OK(weft_run_wait(exchange->run, WEFT_NEVER));
    for (int r = 0; r < exchange->size; r++)
        for (size_t i = 0; i < exchange->count; i++)
            CHECK(exchange->in[(size_t)r * exchange->count + i] ==
                  exchanged(exchange, r, exchange->rank));
}

static inline void exchange_free(struct exchange *exchange)
{
    weft_run_destroy(exchange->run);
    free(exchange->out);
    free(exchange->in);
    free(exchange->roots);
}

static inline void exchange_once(struct weft_context *context, size_t count)
{
    struct exchange exchange;
    exchange_create(&exchange, context, count);
    exchange_start(&exchange);
    exchange_wait(&exchange);
    exchange_free(&exchange);
}

/* ---- at random ---- */

static inline uint64_t mixed(uint64_t a, uint64_t b)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b + 1;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* What a rank keeps of contexts that it destroys later. */
enum { KEPT = 8 };
struct splitting {
    uint64_t own; /* its own random numbers */
    struct weft_context *kept[KEPT];
    uint64_t longest_ns; /* of a pause; 0: none */
    size_t count;        /* elements of a message, at most */
};

static inline uint64_t own_random(struct splitting *splitting)
{
    return splitting->own = mixed(splitting->own, 77);
}

static inline void pause_at_random(struct splitting *splitting, struct weft_context *context)
{
    if (splitting->longest_ns && own_random(splitting) % 4 == 0)
        OK(weft_context_sleep(context, own_random(splitting) % splitting->longest_ns + 1));
}

/* At once, or when its place is wanted for another. */
static inline void destroy_some_time(struct splitting *splitting, struct weft_context *context)
{
    size_t place = own_random(splitting) % (KEPT + 2);
    if (place >= KEPT) {
        OK(weft_context_destroy(context));
        return;
    }
    OK(weft_context_destroy(splitting->kept[place]));
    splitting->kept[place] = context;
}

static inline void destroy_kept(struct splitting *splitting)
{
    size_t first = own_random(splitting) % KEPT;
    for (size_t i = 0; i < KEPT; i++) {
        struct weft_context **kept = &splitting->kept[(first + i) % KEPT];
        OK(weft_context_destroy(*kept));
        *kept = NULL;
    }
}

/* The colour and key of a rank in split `seed`. */
static inline int colour_of(uint64_t seed, int rank, int colours)
{
    return (int)(mixed(seed, (uint64_t)rank) % (uint64_t)(colours + 1)) - 1;
}

static inline int key_of(uint64_t seed, int rank)
{
    return (int)(mixed(seed + 1, (uint64_t)rank) % 3) - 1;
}

/* Splits; checks that the ranks of the context are those they should be. NULL: no colour. */
static inline struct weft_context *split_checked(struct weft_context *parent, uint64_t seed)
{
    struct weft_context *child = NULL;
    int size = weft_context_size(parent), rank = weft_context_rank(parent);
    int colours = (int)(seed % 3) + 1;
    int colour = colour_of(seed, rank, colours);
    OK(weft_context_split(parent, colour, key_of(seed, rank), &child));
    CHECK(!child == (colour == WEFT_COLOUR_NONE));
    if (!child)
        return NULL;
    int *above = calloc((size_t)size, sizeof *above), *here = calloc((size_t)size, sizeof *here);
    int count = 0;
    CHECK(above && here);
    OK(weft_context_root_ranks(parent, above));
    CHECK(weft_context_size(child) <= size);
    OK(weft_context_root_ranks(child, here));
    for (int key = -1; key <= 1; key++)
        for (int r = 0; r < size; r++)
            if (colour_of(seed, r, colours) == colour && key_of(seed, r) == key) {
                CHECK(here[count] == above[r]);
                if (r == rank)
                    CHECK(weft_context_rank(child) == count);
                count++;
            }
    CHECK(count == weft_context_size(child));
    free(above);
    free(here);
    return child;
}

/* Some of the ranks in some order, if this rank is one of them. */
static inline struct weft_context *subset_checked(struct weft_context *parent, uint64_t seed)
{
    struct weft_context *child = NULL;
    int size = weft_context_size(parent), rank = weft_context_rank(parent), count = 0, own = -1;
    int *ranks = calloc((size_t)size, sizeof *ranks), *here = calloc((size_t)size, sizeof *here);
    CHECK(ranks && here);
    for (int i = 0; i < size; i++) {
        int r = (int)((mixed(seed, 5) + (uint64_t)i) % (uint64_t)size);
        if (mixed(seed, (uint64_t)r) % 3 == 0)
            continue;
        if (r == rank)
            own = count;
        ranks[count++] = r;
    }
    if (own >= 0) {
        OK(weft_context_subset(parent, ranks, count, (int)(seed % 7), &child));
        CHECK(weft_context_rank(child) == own);
        CHECK(weft_context_size(child) == count);
    }
    free(ranks);
    free(here);
    return child;
}

static inline void split_at_random(struct splitting *splitting, struct weft_context *context,
                                   uint64_t seed, int depth)
{
    size_t most = splitting->count;
    exchange_once(context, 1 + (size_t)(mixed(seed, 3) % most));
    for (int turn = 0; depth > 0 && turn < 2; turn++) {
        uint64_t number = mixed(seed, 100 + (uint64_t)turn);
        pause_at_random(splitting, context);
        struct weft_context *child =
            number % 3 ? split_checked(context, number) : subset_checked(context, number);
        if (!child)
            continue;
        int *here = calloc((size_t)weft_context_size(child), sizeof *here);
        CHECK(here);
        OK(weft_context_root_ranks(child, here));
        uint64_t theirs = mixed(number, (uint64_t)here[0]); /* of this colour */
        free(here);
        split_at_random(splitting, child, theirs, depth - 1);
        pause_at_random(splitting, context);
        destroy_some_time(splitting, child);
    }
}

enum { HUNDREDS = 300 };

/* Three hundred alive at once, and freed in another order on each rank. Some exchange messages of
 * up to `most` numbers. */
static inline void split_hundreds(struct weft_context *context, size_t most)
{
    struct exchange *exchanges = calloc(HUNDREDS, sizeof *exchanges);
    int rank = weft_context_rank(context);
    CHECK(exchanges);
    for (int i = 0; i < HUNDREDS; i++) {
        struct weft_context *child = NULL;
        OK(weft_context_split(context, (rank + i) % 2, i % 3 == 0 ? -rank : rank, &child));
        exchange_create(&exchanges[i], child, i % 50 == 0 ? most : 2);
    }
    for (int i = 0; i < HUNDREDS; i++)
        exchange_start(&exchanges[(i * 7 + rank) % HUNDREDS]);
    for (int i = 0; i < HUNDREDS; i++) {
        int which = (i * (rank % 2 ? 7 : 11) + 13 * rank) % HUNDREDS;
        exchange_wait(&exchanges[which]);
        exchange_free(&exchanges[which]);
        OK(weft_context_destroy(exchanges[which].context));
    }
    free(exchanges);
}

/* So many one after the other, up to four at a time. Ends when all ranks have got there: what they
 * have told is here then, too. */
static inline void split_and_free(struct weft_context *context, int times)
{
    struct weft_context *last[4] = {NULL};
    int rank = weft_context_rank(context);
    for (int i = 0; i < times; i++) {
        struct weft_context **place = &last[(i + rank) % 4];
        OK(weft_context_destroy(*place));
        OK(weft_context_split(context, (rank + i) / 2 % 2, 0, place));
        if (i % 100 == 0)
            exchange_once(*place, 4);
    }
    for (int i = 0; i < 4; i++)
        OK(weft_context_destroy(last[i]));
    exchange_once(context, 1);
}

#endif
