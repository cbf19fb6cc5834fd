/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/ragged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define PATIENCE UINT64_C(60000000000)

const char *const ragged_names[] = {"allgatherv", "gatherv",         "scatterv",
                                    "alltoallv",  "reduce-scatterv", NULL};

static int is(const struct ragged *c, const char *name)
{
    return strcmp(c->name, name) == 0;
}

size_t ragged_count(const struct ragged *c, int rank)
{
    static const size_t uneven[] = {0, 1, 41};
    size_t r = (size_t)rank;

    switch (c->pattern) {
    case 0:
        return 0;
    case 1:
        return r * 7 % 5;
    case 2:
        return rank == c->size / 2 ? 997 : 0;
    case 3:
        return 3 * r + 1;
    case 4:
        return uneven[r % 3];
    case 5:
        return 6;
    default:
        return rank == c->size - 1 ? 20011 : 1;
    }
}

size_t ragged_pair(const struct ragged *c, int from, int to)
{
    /* In place as much comes from a rank as goes to it. */
    size_t a = (size_t)(c->in_place && from > to ? to : from);
    size_t b = (size_t)(c->in_place && from > to ? from : to);

    switch (c->pattern) {
    case 0:
        return 0;
    case 1:
        return (a * 5 + b * 3) % 4;
    case 2:
        return a == 0 && b == (size_t)c->size / 2 ? 997 : 0;
    case 3:
        return a + 2 * b + 1;
    case 4:
        return (a ^ b) % 3 ? 0 : 33;
    case 5:
        return 6;
    default:
        return a == 0 && b == (size_t)c->size - 1 ? 20011 : 1;
    }
}

int ragged_serves(const struct ragged *c)
{
    int rooted = is(c, "gatherv") || is(c, "scatterv");

    return !rooted || c->agreed || !c->algo || strcmp(c->algo, "linear") == 0;
}

struct weft_template_params ragged_params(const struct ragged *c, int rank,
                                          struct ragged_room *room)
{
    struct weft_template_params params;
    int alone = (is(c, "gatherv") || is(c, "scatterv")) && !c->agreed && rank != c->root;

    weft_template_params_init(&params);
    params.algo = c->algo;
    params.root = c->root;
    params.in_place = c->in_place;
    params.dtype = c->dtype;
    params.op = c->op;
    params.segment = c->segment;
    params.counts_agreed = c->agreed;
    params.aggregate = c->aggregate;
    for (int r = 0; r < c->size; r++) {
        room->counts[r] = alone && r != rank ? SIZE_MAX : ragged_count(c, r);
        room->send[r] = ragged_pair(c, rank, r);
        room->recv[r] = ragged_pair(c, r, rank);
    }
    if (is(c, "alltoallv")) {
        params.send_counts = c->in_place ? NULL : room->send;
        params.recv_counts = room->recv;
    } else if (alone && rank % 2) {
        params.count = ragged_count(c, rank);
    } else {
        params.counts = room->counts;
    }
    return params;
}

const char *ragged_text(const struct ragged *c, char *text, size_t size)
{
    snprintf(text, size, "%s %s P=%d pattern %d %s root=%d in_place=%d apart=%d agreed=%d seg=%zd",
             c->name, c->algo ? c->algo : "by cost", c->size, c->pattern, weft_dtype_name(c->dtype),
             c->root, c->in_place, c->apart, c->agreed, (ssize_t)c->segment);
    return text;
}

/* ---- memory ---- */

/* Blocks in memory of the user. */
struct area {
    int blocks; /* 0: there is none */
    size_t count[RAGGED_MOST], at[RAGGED_MOST];
    size_t bytes;
    unsigned char *data, *expected;
};

static void open_area(struct area *area, const struct ragged *c)
{
    size_t end = 0;

    for (int i = 0; i < area->blocks; i++) {
        int b = c->apart ? area->blocks - 1 - i : i;

        area->at[b] = end;
        end += area->count[b] + (c->apart ? (size_t)(b % 3) : 0);
    }
    area->bytes = end * weft_dtype_size(c->dtype);
    area->data = malloc(area->bytes + 1);
    area->expected = malloc(area->bytes + 1);
    if (!area->data || !area->expected)
        abort();
}

static void close_area(struct area *area)
{
    free(area->data);
    free(area->expected);
}

static unsigned char *block(const struct area *area, unsigned char *memory, const struct ragged *c,
                            int index)
{
    return memory + area->at[index] * weft_dtype_size(c->dtype);
}

/* What rank `from` has for rank `to` (-1: for all) at a start: any bits. */
static void fill(const struct ragged *c, void *data, size_t count, int from, int to, int start)
{
    uint64_t state = (uint64_t)from * 7919 + (uint64_t)(to + 1) * 104729 +
                     (uint64_t)start * 1299709 + (uint64_t)c->pattern + 1;
    unsigned char *at = data;

    for (size_t i = 0; i < count * weft_dtype_size(c->dtype); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        at[i] = (unsigned char)(state >> 56);
    }
}

struct ends {
    struct area send, recv;
};

/* A block a rank of what all have, or what goes to or comes from each. */
static void add_blocks(struct area *area, const struct ragged *c, int rank, int receives)
{
    area->blocks = c->size;
    for (int r = 0; r < c->size; r++)
        area->count[r] = !is(c, "alltoallv") ? ragged_count(c, r)
                         : receives          ? ragged_pair(c, r, rank)
                                             : ragged_pair(c, rank, r);
}

static void add_own(struct area *area, const struct ragged *c, int rank)
{
    area->blocks = 1;
    area->count[0] = ragged_count(c, rank);
}

static void open_ends(struct ends *ends, const struct ragged *c, int rank)
{
    int root = rank == c->root, rooted = is(c, "gatherv") || is(c, "scatterv");
    int in_place = c->in_place && (!rooted || root);

    memset(ends, 0, sizeof *ends);
    if (is(c, "allgatherv") || is(c, "gatherv")) {
        if (!in_place)
            add_own(&ends->send, c, rank);
        if (root || !rooted)
            add_blocks(&ends->recv, c, rank, 1);
    } else if (is(c, "scatterv")) {
        if (root)
            add_blocks(&ends->send, c, rank, 0);
        if (!in_place)
            add_own(&ends->recv, c, rank);
    } else {
        if (!in_place)
            add_blocks(&ends->send, c, rank, 0);
        if (is(c, "alltoallv") || in_place)
            add_blocks(&ends->recv, c, rank, 1);
        else
            add_own(&ends->recv, c, rank);
    }
    open_area(&ends->send, c);
    open_area(&ends->recv, c);
}

/* What the memory holds before. */
static void fill_ends(struct ends *ends, const struct ragged *c, int rank, int start)
{
    struct area *send = &ends->send, *recv = &ends->recv;
    int all = is(c, "allgatherv") || is(c, "gatherv");

    memset(send->data, 0x6d, send->bytes);
    memset(recv->data, 0x6d + start, recv->bytes);
    for (int b = 0; b < send->blocks; b++)
        fill(c, block(send, send->data, c, b), send->count[b], rank, all ? -1 : b, start);
    if (send->blocks || (is(c, "gatherv") && rank != c->root))
        return;
    for (int b = 0; b < recv->blocks; b++)
        if (!all || b == rank)
            fill(c, block(recv, recv->data, c, b), recv->count[b], rank, all ? -1 : b, start);
}

static void combine(const struct ragged *c, unsigned char *result, int rank, int start)
{
    size_t count = ragged_count(c, rank);
    unsigned char *next = malloc(count * weft_dtype_size(c->dtype) + 1);

    if (!next)
        abort();
    fill(c, result, count, 0, rank, start);
    for (int r = 1; r < c->size; r++) {
        fill(c, next, count, r, rank, start);
        weft_op_reduce(c->op, c->dtype, result, result, next, count);
    }
    free(next);
}

/* ... and after. */
static void expect_ends(struct ends *ends, const struct ragged *c, int rank, int start)
{
    struct area *recv = &ends->recv;

    memcpy(ends->send.expected, ends->send.data, ends->send.bytes);
    memcpy(recv->expected, recv->data, recv->bytes);
    if (is(c, "reduce-scatterv")) {
        combine(c, recv->expected, rank, start);
        return;
    }
    for (int b = 0; b < recv->blocks; b++) {
        int from = is(c, "scatterv") ? c->root : b;
        int to = is(c, "allgatherv") || is(c, "gatherv") ? -1 : rank;

        fill(c, block(recv, recv->expected, c, b), recv->count[b], from, to, start);
    }
}

static int compare(const struct area *area, const char *slot, char *text, size_t size)
{
    for (size_t i = 0; i < area->bytes; i++)
        if (area->data[i] != area->expected[i]) {
            snprintf(text, size, "byte %zu of %zu of `%s` is %u, expected %u", i, area->bytes, slot,
                     area->data[i], area->expected[i]);
            return -1;
        }
    return 0;
}

static int bind_area(struct weft_run *run, const char *slot, const struct area *area,
                     const struct ragged *c, int input)
{
    if (!area->blocks)
        return WEFT_OK;
    if (area->blocks == 1 && c->size > 1) {
        unsigned char *data = block(area, area->data, c, 0);

        return input ? weft_run_bind_input_name(run, slot, data, area->count[0], c->dtype)
                     : weft_run_bind_name(run, slot, data, area->count[0], c->dtype);
    }
    size_t blocks = (size_t)area->blocks;
    const size_t *at = c->apart ? area->at : NULL;

    return input ? weft_run_bind_input_blocks(run, slot, area->data, area->count, at, blocks,
                                              c->dtype)
                 : weft_run_bind_blocks(run, slot, area->data, area->count, at, blocks, c->dtype);
}

static int one_start(struct weft_run *run, struct ends *ends, const struct ragged *c, int rank,
                     int start, char *text, size_t size)
{
    fill_ends(ends, c, rank, start);
    expect_ends(ends, c, rank, start);
    int status = weft_run_start(run);

    if (!status)
        status = weft_run_wait(run, PATIENCE);
    if (status) {
        snprintf(text, size, "%s", status < 0 ? weft_error_text() : "no end");
        return -1;
    }
    return compare(&ends->send, "send", text, size) || compare(&ends->recv, "recv", text, size) ? -1
                                                                                                : 0;
}

int ragged_run(struct weft_context *context, const struct ragged *c, int starts, char *text,
               size_t size)
{
    char what[384] = "", name[256];
    struct ragged_room room;
    struct weft_run *run = NULL;
    struct ends ends;
    int rank = weft_context_rank(context), start = 0;
    struct weft_template_params params = ragged_params(c, rank, &room);
    int status = weft_template_create_run(&run, context, c->name, &params);

    open_ends(&ends, c, rank);
    if (!status)
        status = bind_area(run, "send", &ends.send, c, 1);
    if (!status)
        status = bind_area(run, "recv", &ends.recv, c, 0);
    if (status)
        snprintf(what, sizeof what, "%s", weft_error_text());
    for (; start < starts && !status; start++)
        status = one_start(run, &ends, c, rank, start, what, sizeof what);
    if (status)
        snprintf(text, size, "%s: rank %d start %d: %s", ragged_text(c, name, sizeof name), rank,
                 start, what);
    weft_run_destroy(run);
    close_area(&ends.send);
    close_area(&ends.recv);
    return status ? -1 : 0;
}
