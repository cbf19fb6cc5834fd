/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/structs.h"

#include <complex.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/bind.h"

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__);                                  \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int tried = (call);                                                                        \
        if (tried != WEFT_OK)                                                                      \
            return tried;                                                                          \
    } while (0)

/* ---- elements ---- */

struct place {
    double value;
    int32_t index;
};

/* What a kind of element is: numbers are so small that sums are exact in any order. */
struct element {
    const char *name;
    size_t bytes;
    size_t alignment;
    weft_reduce_fn reduce;
    void (*make)(void *to, int rank, size_t index);
    int (*same)(const void *a, const void *b);
};

static size_t misaligned(const void *dst, const void *a, const void *b, size_t alignment)
{
    return ((uintptr_t)dst | (uintptr_t)a | (uintptr_t)b) % alignment;
}

static int number_of(int rank, size_t index)
{
    return (int)((index * 7 + (size_t)rank * 31) % 101) - 50;
}

static int add_complex(void *user, void *dst, const void *a, const void *b, size_t count,
                       weft_dtype_t dtype)
{
    const double complex *x = a, *y = b;
    double complex *to = dst;

    (void)user;
    EXPECT(dtype == weft_dtype_opaque(sizeof *to), "a sum of %s", weft_dtype_name(dtype));
    EXPECT(!misaligned(dst, a, b, alignof(double complex)), "complex numbers are not aligned");
    for (size_t i = 0; i < count; i++)
        to[i] = x[i] + y[i];
    return WEFT_OK;
}

static void make_complex(void *to, int rank, size_t index)
{
    const double parts[] = {number_of(rank, index), number_of(rank + 1, index + 3)};

    memcpy(to, parts, sizeof parts);
}

static int same_complex(const void *a, const void *b)
{
    return *(const double complex *)a == *(const double complex *)b;
}

static int add_long(void *user, void *dst, const void *a, const void *b, size_t count,
                    weft_dtype_t dtype)
{
    const long double *x = a, *y = b;
    long double *to = dst;

    (void)user;
    EXPECT(dtype == weft_dtype_opaque(sizeof *to), "a sum of %s", weft_dtype_name(dtype));
    EXPECT(!misaligned(dst, a, b, alignof(long double)), "long doubles are not aligned");
    for (size_t i = 0; i < count; i++)
        to[i] = x[i] + y[i];
    return WEFT_OK;
}

static void make_long(void *to, int rank, size_t index)
{
    const long double number = number_of(rank, index);

    memset(to, 0, sizeof number);
    memcpy(to, &number, sizeof number);
}

static int same_long(const void *a, const void *b)
{
    return *(const long double *)a == *(const long double *)b;
}

/* The greatest value, of those that are equal the lowest place. */
static int greatest(void *user, void *dst, const void *a, const void *b, size_t count,
                    weft_dtype_t dtype)
{
    const struct place *x = a, *y = b;
    struct place *to = dst;

    (void)user;
    EXPECT(dtype == weft_dtype_opaque(sizeof *to), "a maximum of %s", weft_dtype_name(dtype));
    EXPECT(!misaligned(dst, a, b, alignof(struct place)), "structs are not aligned");
    for (size_t i = 0; i < count; i++) {
        const int second =
            y[i].value > x[i].value || (y[i].value == x[i].value && y[i].index < x[i].index);

        to[i] = second ? y[i] : x[i];
    }
    return WEFT_OK;
}

static void make_place(void *to, int rank, size_t index)
{
    struct place *place = to;

    memset(place, 0, sizeof *place);
    place->value = number_of(rank, index) / 7; /* some are equal */
    place->index = rank;
}

static int same_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return x->value == y->value && x->index == y->index;
}

static const struct element elements[] = {
    {"sum-complex", sizeof(double complex), alignof(double complex), add_complex, make_complex,
     same_complex},
    {"sum-long", sizeof(long double), alignof(long double), add_long, make_long, same_long},
    {"greatest", sizeof(struct place), alignof(struct place), greatest, make_place, same_place},
};

/* ---- reductions ---- */

struct cell {
    const struct element *element;
    const struct weft_template *template;
    struct weft_template_params params;
    int rank, size;
};

static size_t contributed(const struct cell *c)
{
    return c->params.count *
           (size_t)(strcmp(c->template->name, "reduce-scatter") == 0 ? c->size : 1);
}

static void fill(const struct cell *c, char *to, int rank)
{
    for (size_t i = 0; i < contributed(c); i++)
        c->element->make(to + i * c->element->bytes, rank, i);
}

static int compare(const struct cell *c, const char *got)
{
    size_t bytes = c->element->bytes;
    size_t first = strcmp(c->template->name, "reduce-scatter") == 0 ? c->params.count : 0;
    _Alignas(16) char expected[32], next[32];

    for (size_t i = 0; i < c->params.count; i++) {
        size_t at = first * (size_t)c->rank + i;

        c->element->make(expected, 0, at);
        for (int r = 1; r < c->size; r++) {
            c->element->make(next, r, at);
            TRY(c->element->reduce(NULL, expected, expected, next, 1, c->params.dtype));
        }
        EXPECT(c->element->same(got + i * bytes, expected),
               "%s %s of %s, %d ranks, count %zu, root %d, segment %zd: element %zu differs",
               c->template->name, c->params.algo, c->element->name, c->size, c->params.count,
               c->params.root, (ssize_t)c->params.segment, i);
    }
    return WEFT_OK;
}

static int start(struct weft_run *run, const struct cell *c, char *send, char *recv)
{
    int receives = strcmp(c->template->name, "reduce") != 0 || c->rank == c->params.root;

    for (int again = 0; again < 2; again++) {
        fill(c, c->params.in_place && receives ? recv : send, c->rank);
        TRY(weft_run_execute(run));
        if (receives)
            TRY(compare(c, recv));
    }
    return WEFT_OK;
}

static int reduce_cell(struct weft_context *context, const struct cell *c)
{
    struct weft_run *run = NULL;
    size_t bytes = c->element->bytes * (contributed(c) + 1);
    char *send = calloc(1, bytes), *recv = calloc(1, bytes);
    int status = weft_template_create_run(&run, context, c->template->name, &c->params);

    if (status == WEFT_OK && weft_plan_find_slot(weft_run_plan(run), "send") >= 0)
        status = bind_name(run, "send", send);
    if (status == WEFT_OK && weft_plan_find_slot(weft_run_plan(run), "recv") >= 0)
        status = bind_name(run, "recv", recv);
    if (status == WEFT_OK)
        status = start(run, c, send, recv);
    weft_run_destroy(run);
    free(send);
    free(recv);
    return status;
}

static int reduce_algorithm(struct weft_context *context, struct cell *c, int few)
{
    static const size_t counts[] = {37, 0, 1, 6000}, segments[] = {100, WEFT_SEGMENT_NONE, 0};

    for (size_t n = 0; n < (few ? 1 : 4); n++)
        for (size_t s = 0; s < (counts[n] == 6000 || few ? 2 : 3); s++) {
            c->params.count = counts[n];
            c->params.segment = counts[n] == 6000 && s == 0 ? 5000 : segments[s];
            c->params.in_place = (int)(n + s) % 2;
            c->params.root = c->size - 1;
            TRY(reduce_cell(context, c));
        }
    return WEFT_OK;
}

static int reduce_all(struct weft_context *context, int few)
{
    static const char *const names[] = {"allreduce", "reduce", "reduce-scatter"};
    struct cell c = {.rank = weft_context_rank(context), .size = weft_context_size(context)};

    for (size_t e = 0; e < sizeof elements / sizeof elements[0]; e++) {
        struct weft_op_config config;
        struct weft_op *op = NULL;
        int status;

        weft_op_config_init(&config);
        config.name = elements[e].name;
        config.flags = WEFT_OP_COMMUTES;
        config.reduce = elements[e].reduce;
        TRY(weft_op_create(&op, &config));
        weft_template_params_init(&c.params);
        c.element = &elements[e];
        c.params.op = op;
        c.params.dtype = weft_dtype_opaque(elements[e].bytes);
        status = WEFT_OK;
        for (size_t t = 0; t < 3; t++) {
            c.template = weft_template_find(names[t]);
            for (size_t a = 0; status == WEFT_OK && a < c.template->algorithm_count; a++) {
                c.params.algo = c.template->algorithms[a].name;
                status = reduce_algorithm(context, &c, few);
            }
        }
        weft_op_destroy(op);
        TRY(status);
    }
    return WEFT_OK;
}

/* ---- messages by hand ---- */

/*
 * Each rank sends as many elements as value `k` says to the next one, which learns how many they
 * are, copies as many, and is called with them:
 *
 *   send own[0:n count k] -> recv up to in[0:n] gives got -> copy out[0:n count got]
 *                                                         -> look in in[0:n count got]
 *   send own[0:n] -> recv all[0:n]
 */
struct ring {
    size_t bytes, n, k;
    int rank, size;
    weft_dtype_t dtype;
    char *own, *all, *in, *out;
    size_t seen;
};

static int byte_of(int rank, size_t at)
{
    return (int)((at * 13 + at / 251 + (size_t)rank * 17) % 251);
}

/* Elements that rank sends: not the same number on all. */
static size_t sent_by(const struct ring *ring, int rank)
{
    return ring->n == 0 ? 0 : (ring->k + (size_t)rank) % (ring->n + 1);
}

static int look(struct weft_call *call)
{
    struct ring *ring = call->user;
    const struct weft_argument *argument = &call->arguments[0];
    const char *from = ring->in;

    EXPECT(argument->dtype == ring->dtype, "a call is given %s", weft_dtype_name(argument->dtype));
    ring->seen = 0;
    for (size_t p = 0; p < argument->piece_count; p++) {
        const struct weft_piece *piece = &argument->pieces[p];

        EXPECT(piece->count == 0 || piece->data == from + ring->seen * ring->bytes,
               "piece %zu of a call is not where %zu elements have been", p, ring->seen);
        ring->seen += piece->count;
    }
    EXPECT(ring->seen == argument->count, "pieces of a call have %zu elements, expected %zu",
           ring->seen, argument->count);
    return WEFT_OK;
}

static int build_ring(struct ring *ring, const struct weft_op *op, struct weft_schedule **schedule)
{
    int next = (ring->rank + 1) % ring->size;
    int last = (ring->rank + ring->size - 1) % ring->size;
    struct weft_schedule *s;

    TRY(weft_schedule_create(schedule, ring->rank, ring->size));
    s = *schedule;
    weft_value_t k = weft_schedule_add_value(s, "k", ring->n);
    weft_value_t got = weft_schedule_add_value(s, "got", ring->n);
    weft_slot_t own = weft_schedule_add_slot(s, "own", ring->dtype, ring->n, WEFT_SLOT_INPUT);
    weft_slot_t in = weft_schedule_add_slot(s, "in", ring->dtype, ring->n, WEFT_SLOT_INOUT);
    weft_slot_t out = weft_schedule_add_slot(s, "out", ring->dtype, ring->n, WEFT_SLOT_OUTPUT);
    weft_slot_t all = weft_schedule_add_slot(s, "all", ring->dtype, ring->n, WEFT_SLOT_OUTPUT);
    struct weft_region some = weft_region_at(own, 0, ring->n);
    some.value = k;
    weft_schedule_add_send(s, some, next, 0);
    weft_node_t recv =
        weft_schedule_add_recv_up_to(s, weft_region_at(in, 0, ring->n), last, 0, got);
    struct weft_region here = weft_region_at(in, 0, ring->n),
                       there = weft_region_at(out, 0, ring->n);
    here.value = there.value = got;
    weft_node_t copy = weft_schedule_add_copy(s, there, here);
    const struct weft_compute_argument argument = {here, WEFT_READ};
    weft_node_t call = weft_schedule_add_compute(s, op, &argument, 1, 0);
    weft_schedule_add_order(s, recv, copy);
    weft_schedule_add_order(s, recv, call);
    weft_schedule_add_send(s, weft_region_at(own, 0, ring->n), next, 1);
    weft_schedule_add_recv(s, weft_region_at(all, 0, ring->n), last, 1);
    return weft_schedule_status(s);
}

/* A slot as one piece, or cut at a third and once more. */
static int bind_cut(struct weft_run *run, const char *name, char *data, const struct ring *ring,
                    int cut)
{
    size_t first = ring->n / 3, second = ring->n / 2;
    const struct weft_piece pieces[] = {{data, first},
                                        {data + first * ring->bytes, second - first},
                                        {data + second * ring->bytes, ring->n - second}};

    return cut ? bind_list(run, weft_plan_find_slot(weft_run_plan(run), name), pieces, 3)
               : bind_name(run, name, data);
}

static int check_ring(struct weft_run *run, const struct ring *ring)
{
    int last = (ring->rank + ring->size - 1) % ring->size;
    size_t sent = sent_by(ring, last), bytes = ring->n * ring->bytes;
    uint64_t got;

    got = weft_run_get_value(run, weft_plan_find_value(weft_run_plan(run), "got"));
    EXPECT(got == sent && ring->seen == sent, "%zu elements of %zu bytes: got %zu, seen %zu", sent,
           ring->bytes, (size_t)got, ring->seen);
    for (size_t i = 0; i < bytes; i++) {
        int expected = byte_of(last, i), some = i < sent * ring->bytes ? expected : 255;

        EXPECT((unsigned char)ring->all[i] == expected && (unsigned char)ring->in[i] == some &&
                   (unsigned char)ring->out[i] == some,
               "byte %zu of %zu elements of %zu bytes differs, of which %zu were sent", i, ring->n,
               ring->bytes, sent);
    }
    return WEFT_OK;
}

static int run_ring(struct weft_context *context, struct ring *ring, const struct weft_op *op,
                    int cut)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    int status = build_ring(ring, op, &schedule);

    if (status == WEFT_OK)
        status = weft_schedule_commit(schedule, &plan);
    if (status == WEFT_OK)
        status = weft_run_create(&run, context, plan, NULL);
    weft_schedule_destroy(schedule);
    weft_plan_destroy(plan);
    if (status == WEFT_OK)
        status = bind_name(run, "own", ring->own);
    if (status == WEFT_OK)
        status = bind_cut(run, "all", ring->all, ring, cut);
    if (status == WEFT_OK)
        status = bind_cut(run, "in", ring->in, ring, cut);
    if (status == WEFT_OK)
        status = bind_cut(run, "out", ring->out, ring, 0);
    for (ring->k = 0; status == WEFT_OK && ring->k <= ring->n; ring->k += 1 + ring->n / 3) {
        memset(ring->all, 255, ring->n * ring->bytes);
        memset(ring->in, 255, ring->n * ring->bytes);
        memset(ring->out, 255, ring->n * ring->bytes);
        status = weft_run_bind_value(run, weft_plan_find_value(weft_run_plan(run), "k"),
                                     sent_by(ring, ring->rank));
        if (status == WEFT_OK)
            status = weft_run_execute(run);
        if (status == WEFT_OK)
            status = check_ring(run, ring);
    }
    weft_run_destroy(run);
    return status;
}

static int try_ring(struct weft_context *context, size_t bytes, size_t n)
{
    struct ring ring = {.bytes = bytes, .n = n};
    struct weft_op_config config;
    struct weft_op *op = NULL;
    int status;

    ring.rank = weft_context_rank(context);
    ring.size = weft_context_size(context);
    ring.dtype = weft_dtype_opaque(bytes);
    weft_op_config_init(&config);
    config.name = "look";
    config.compute = look;
    config.user = &ring;
    TRY(weft_op_create(&op, &config));
    ring.own = malloc(n * bytes + 1);
    ring.all = malloc(n * bytes + 1);
    ring.in = malloc(n * bytes + 1);
    ring.out = malloc(n * bytes + 1);
    for (size_t i = 0; i < n * bytes; i++)
        ring.own[i] = (char)byte_of(ring.rank, i);
    status = run_ring(context, &ring, op, 0);
    if (status == WEFT_OK)
        status = run_ring(context, &ring, op, 1);
    free(ring.own);
    free(ring.all);
    free(ring.in);
    free(ring.out);
    weft_op_destroy(op);
    return status;
}

int structs_rank(struct weft_context *context, void *user)
{
    static const size_t sizes[] = {1, 3, 12, 24, 1000, 100000};
    const int few = user && *(const int *)user;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t n = 0; n <= 7; n += n < 1 ? 1 : 6)
            TRY(try_ring(context, sizes[i], n));
    if (!few)
        TRY(try_ring(context, 24, 40000)); /* of many slices */
    return reduce_all(context, few);
}

/* ---- what must fail ---- */

int structs_broken(struct weft_context *context, void *user)
{
    struct weft_schedule *s = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    char send[40] = "", recv[40];
    int status;

    (void)user;
    TRY(weft_schedule_create(&s, weft_context_rank(context), weft_context_size(context)));
    weft_slot_t from = weft_schedule_add_slot(s, "send", WEFT_U8, 13, WEFT_SLOT_INPUT);
    weft_slot_t to = weft_schedule_add_slot(s, "recv", weft_dtype_opaque(12), 3, WEFT_SLOT_OUTPUT);
    weft_schedule_add_send(s, weft_region_at(from, 0, 13), weft_context_rank(context), 0);
    weft_schedule_add_recv_up_to(s, weft_region_at(to, 0, 3), weft_context_rank(context), 0, 0);
    status = weft_schedule_commit(s, &plan);
    weft_schedule_destroy(s);
    TRY(status);
    status = weft_run_create(&run, context, plan, NULL);
    weft_plan_destroy(plan);
    TRY(status);
    status = bind_name(run, "send", send);
    if (status == WEFT_OK)
        status = bind_name(run, "recv", recv);
    if (status == WEFT_OK)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    EXPECT(status == WEFT_ERR_TRUNCATED, "13 bytes for elements of 12: %s, expected %s",
           weft_status_name(status), weft_status_name(WEFT_ERR_TRUNCATED));
    return WEFT_OK;
}
