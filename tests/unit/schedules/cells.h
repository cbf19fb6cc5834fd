/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A cell is a template with one choice of algorithm, ranks, parameters and data. Here is what it
 * gives by plain loops, and how a team of ranks, threads or virtual ones, runs it several times and
 * compares. Built for devices, all slots are memory of them, and ranks are 1 to 8.
 */
#ifndef WEFT_TESTS_SCHEDULES_CELLS_H
#define WEFT_TESTS_SCHEDULES_CELLS_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#include "support/interpreter.h"
#include "support/sweep.h"
#include "tests/support/bind.h"
#include "tests/support/opaque.h"
#include "tests/support/placed.h"
#include "tests/support/virtual_ranks.h"

enum { STARTS = 3, MOST_SLOTS = 3, BIG = 12000 };
#define PATIENCE UINT64_C(60000000000)

#ifdef WEFT_TEST_DEVICE
static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8};
#else
static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};
#endif
enum { SIZES = WEFT_SANITIZED ? 6 : sizeof sizes / sizeof sizes[0] };

/* ---- teams: ranks in threads, with one context for all that they do ---- */

struct team {
    int size;
    const struct weft_template *template;
    struct weft_local *local;
    struct weft_context_config config;
    int (*work)(struct team *team, struct weft_context *context);
    const struct weft_op *affine, *opaque[2]; /* [1]: the one that commutes */
    unsigned stride;                          /* every so manieth cell */
    pthread_barrier_t barrier;
    atomic_int entered; /* barrier template */
    uint64_t sums[16];  /* of results, to be the same on all ranks */
    atomic_int failed;
    pthread_mutex_t mutex;
    char text[768];
};

struct member {
    struct team *team;
    pthread_t thread;
    int rank;
};

static inline void fail(struct team *team, const char *text)
{
    pthread_mutex_lock(&team->mutex);
    if (!atomic_exchange(&team->failed, 1))
        snprintf(team->text, sizeof team->text, "%s", text);
    pthread_mutex_unlock(&team->mutex);
}

static inline void *run_member(void *argument)
{
    struct member *member = argument;
    struct team *team = member->team;
    struct weft_context *context = NULL;
    placed_rank(member->rank);
    if (weft_context_create_local(&context, team->local, member->rank, &team->config))
        fail(team, weft_error_text());
    else
        team->work(team, context);
    pthread_barrier_wait(&team->barrier);
    weft_context_destroy(context);
    return NULL;
}

/* Default settings, no eager messages, or a helper thread: one of them for each number of ranks. */
static inline void run_team(struct team *team, int variant)
{
    struct member members[16];
    struct weft_local_config local;
    weft_local_config_init(&local);
    if (variant == 1)
        local.eager_bytes = WEFT_EAGER_NONE;
    weft_context_config_init(&team->config);
    team->config.progress = variant == 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
    cr_assert_eq(weft_local_create(&team->local, team->size, &local), WEFT_OK);
    pthread_mutex_init(&team->mutex, NULL);
    pthread_barrier_init(&team->barrier, NULL, (unsigned)team->size);
    for (int r = 0; r < team->size; r++) {
        members[r] = (struct member){.team = team, .rank = r};
        cr_assert_eq(pthread_create(&members[r].thread, NULL, run_member, &members[r]), 0);
    }
    for (int r = 0; r < team->size; r++)
        pthread_join(members[r].thread, NULL);
    weft_local_destroy(team->local);
    pthread_barrier_destroy(&team->barrier);
    pthread_mutex_destroy(&team->mutex);
    cr_assert(!atomic_load(&team->failed), "%s", team->text);
    placed_check();
}

static inline int work_virtually(struct weft_context *context, void *user)
{
    struct team *team = user;
    return team->work(team, context);
}

/* The same on virtual ranks, on a network and with faults that the seed draws. */
static inline void run_virtual_team(struct team *team, uint64_t seed)
{
    struct weft_virtual_config config;
    struct weft_net net;
    weft_virtual_config_init(&config);
    give_net(&config, &net);
    config.seed = seed;
    config.shuffle = seed % 5 != 0;
    config.delay_ns = seed % 2 ? 20000 : 0;
    config.heavy_share = seed % 3 ? 0.05 : 0;
    config.heavy_ns = 300000;
    config.pauses_per_second = seed % 7 ? 0 : 3000;
    config.pause_ns = 200000;
    if (seed % 4 == 1)
        net.S = seed % 8 == 1 ? WEFT_NET_NO_EAGER : 100;
    if (seed % 3 == 1) {
        net.o = 0.3;
        net.g = 0.7;
        net.G = 0.001;
        config.reduce_ns_per_byte = 0.2;
        config.copy_ns_per_byte = 0.1;
    }
    pthread_mutex_init(&team->mutex, NULL);
    int status = weft_virtual_run(team->size, &config, work_virtually, team);
    pthread_mutex_destroy(&team->mutex);
    cr_assert(!atomic_load(&team->failed), "seed %d: %s", (int)seed, team->text);
    cr_assert_eq(status, WEFT_OK, "%s", weft_error_text());
}

/* ---- cells ---- */

struct cell {
    const struct weft_template *template;
    int size;
    uint64_t number;
    struct weft_template_params params;
    int apart; /* in place is on the root what the parameters say, and the other on other ranks */
    int start;
};

static inline void fail_cell(struct team *team, const struct cell *c, int rank, const char *what)
{
    char text[768];
    snprintf(text, sizeof text,
             "%s %s P=%d count=%zu %s %s root=%d in_place=%d%s segment=%zd: rank %d start %d: "
             "%.400s",
             c->template->name, c->params.algo, c->size, c->params.count,
             weft_dtype_name(c->params.dtype), weft_op_name(c->params.op), c->params.root,
             c->params.in_place, c->apart ? " there" : "", (ssize_t)c->params.segment, rank,
             c->start, what);
    fail(team, text);
}

static inline int is(const struct cell *c, const char *name)
{
    return strcmp(c->template->name, name) == 0;
}

static inline int reads(const struct cell *c, const char *parameter)
{
    return strstr(c->template->parameters, parameter) != NULL;
}

static inline size_t bytes_of(const struct cell *c, size_t count)
{
    return count * weft_dtype_size(c->params.dtype);
}

/* Elements that a rank contributes. */
static inline size_t contributed(const struct cell *c)
{
    int blocks = is(c, "reduce-scatter") || is(c, "scatter") || is(c, "alltoall");
    return c->params.count * (size_t)(blocks ? c->size : 1);
}

/* The contribution of a rank: any bits where the operation is exact on them, else small numbers. */
static inline void contribute(const struct cell *c, int rank, void *data)
{
    uint64_t seed = c->number * 1000003 + (uint64_t)rank * 7919 + (uint64_t)c->start * 104729;
    const char *op = weft_op_name(c->params.op);
    int opaque = weft_dtype_is_opaque(c->params.dtype),
        real = !opaque && (c->params.dtype == WEFT_F32 || c->params.dtype >= WEFT_F16),
        small = op[0] == 'l' || strcmp(op, "prod") == 0;
    size_t bytes = bytes_of(c, contributed(c));
    if ((real || small) && reads(c, "op")) {
        interp_fill(data, contributed(c), c->params.dtype, seed, op[0] == 'p');
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)data)[i] = (unsigned char)(seed >> 56);
    }
}

static inline unsigned char *new_memory(size_t bytes)
{
    unsigned char *memory = malloc(bytes + 1);
    if (!memory)
        abort();
    memset(memory, 0x6d, bytes + 1);
    return memory;
}

/* Contributions of ranks 0 .. ranks - 1 combined in their order. */
static inline void combine(const struct cell *c, int ranks, unsigned char *result,
                           unsigned char *scratch)
{
    contribute(c, 0, result);
    for (int r = 1; r < ranks; r++) {
        contribute(c, r, scratch);
        weft_op_reduce(c->params.op, c->params.dtype, result, result, scratch, contributed(c));
    }
}

/* Ranks that contribute. */
static inline int contributors(const struct cell *c)
{
    int apart = is(c, "server-step") && c->size > 1 && !c->params.colocated;
    return c->size - (apart ? c->params.servers : 0);
}

/* What rank `rank` receives, at most size * count elements. Returns bytes; 0: nothing. */
static inline size_t expect(const struct cell *c, int rank, unsigned char *result)
{
    size_t block = bytes_of(c, c->params.count), all = bytes_of(c, contributed(c));
    unsigned char *data = new_memory(all), *scratch = new_memory(all);
    size_t bytes = block, offset = (size_t)rank * block;
    if (is(c, "allreduce") || (is(c, "reduce") && rank == c->params.root)) {
        combine(c, c->size, result, scratch);
    } else if (is(c, "server-step") && rank < contributors(c)) {
        combine(c, contributors(c), result, scratch);
    } else if (is(c, "scan") || (is(c, "exscan") && rank > 0)) {
        combine(c, is(c, "scan") ? rank + 1 : rank, result, scratch);
    } else if (is(c, "reduce-scatter")) {
        combine(c, c->size, data, scratch);
        memcpy(result, data + offset, block);
    } else if (is(c, "allgather") || (is(c, "gather") && rank == c->params.root)) {
        bytes = block * (size_t)c->size;
        for (int r = 0; r < c->size; r++)
            contribute(c, r, result + (size_t)r * block);
    } else if (is(c, "broadcast")) {
        contribute(c, c->params.root, result);
    } else if (is(c, "scatter")) {
        contribute(c, c->params.root, data);
        memcpy(result, data + offset, block);
    } else if (is(c, "alltoall")) {
        bytes = block * (size_t)c->size;
        for (int r = 0; r < c->size; r++) {
            contribute(c, r, data);
            memcpy(result + (size_t)r * block, data + offset, block);
        }
    } else {
        bytes = 0;
    }
    free(scratch);
    free(data);
    return bytes;
}

/* ---- one rank of a cell ---- */

struct slots {
    int count;
    struct weft_slot_info info[MOST_SLOTS];
    char names[MOST_SLOTS][16];
    unsigned char *data[MOST_SLOTS];
    void *bound[MOST_SLOTS]; /* the same memory, or a copy of it on the device */
    unsigned char *expected[MOST_SLOTS];
    size_t bytes[MOST_SLOTS];
};

static inline void open_slots(struct slots *slots, const struct weft_schedule *schedule)
{
    slots->count = 0;
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        struct weft_slot_info info = {.struct_size = sizeof info};
        weft_schedule_get_slot(schedule, (weft_slot_t)s, &info);
        if (info.kind == WEFT_SLOT_SCRATCH)
            continue;
        int i = slots->count++;
        slots->info[i] = info;
        snprintf(slots->names[i], sizeof slots->names[i], "%s", info.name);
        slots->bytes[i] = info.count * weft_dtype_size(info.dtype);
        slots->data[i] = new_memory(slots->bytes[i]);
        slots->bound[i] = PLACED ? placed_alloc(ON_DEVICE, slots->bytes[i]) : slots->data[i];
        slots->expected[i] = new_memory(slots->bytes[i]);
    }
}

static inline void close_slots(struct slots *slots)
{
    for (int i = 0; i < slots->count; i++) {
        if (PLACED)
            placed_free(ON_DEVICE, slots->bound[i]);
        free(slots->data[i]);
        free(slots->expected[i]);
    }
}

/* Fills the slots, and what they should hold in the end. */
static inline void fill_slots(const struct cell *c, int rank, struct slots *slots)
{
    size_t most = bytes_of(c, c->params.count) * (size_t)c->size;
    unsigned char *result = new_memory(most);
    size_t received = expect(c, rank, result);
    for (int i = 0; i < slots->count; i++) {
        int holds = slots->info[i].kind != WEFT_SLOT_OUTPUT, gathers = 0;
        memset(slots->data[i], 0x35 + c->start, slots->bytes[i]);
        if (is(c, "broadcast"))
            holds = rank == c->params.root;
        if (is(c, "allgather") || is(c, "gather"))
            gathers = slots->info[i].kind == WEFT_SLOT_INOUT;
        if (holds)
            contribute(c, rank,
                       slots->data[i] +
                           (gathers ? (size_t)rank * bytes_of(c, c->params.count) : 0));
        memcpy(slots->expected[i], slots->data[i], slots->bytes[i]);
        if (slots->info[i].kind != WEFT_SLOT_INPUT && received)
            memcpy(slots->expected[i], result, received);
    }
    free(result);
}

static inline int one_start(struct team *team, const struct cell *c, int rank, struct weft_run *run,
                            struct slots *slots)
{
    char text[160];
    fill_slots(c, rank, slots);
    for (int i = 0; PLACED && i < slots->count; i++)
        placed_put(ON_DEVICE, slots->bound[i], slots->data[i], slots->bytes[i]);
    int status = weft_run_start(run);
    if (!status)
        status = weft_run_wait(run, PATIENCE);
    if (status) {
        fail_cell(team, c, rank, status < 0 ? weft_error_text() : "no end");
        return -1;
    }
    for (int i = 0; PLACED && i < slots->count; i++)
        placed_get(ON_DEVICE, slots->data[i], slots->bound[i], slots->bytes[i]);
    for (int i = 0; i < slots->count; i++)
        for (size_t b = 0; b < slots->bytes[i]; b++)
            if (slots->data[i][b] != slots->expected[i][b]) {
                snprintf(text, sizeof text, "byte %zu of %zu of `%s` is %u, expected %u", b,
                         slots->bytes[i], slots->names[i], slots->data[i][b],
                         slots->expected[i][b]);
                fail_cell(team, c, rank, text);
                return -1;
            }
    return 0;
}

/* The parameters of one rank. */
static inline struct weft_template_params params_of(const struct cell *c, int rank)
{
    struct weft_template_params params = c->params;

    if (c->apart && rank != params.root)
        params.in_place = !params.in_place;
    params.memory = PLACED ? WEFT_MEMORY_DEVICE : WEFT_MEMORY_HOST;
    return params;
}

static inline int create_run(const struct cell *c, struct weft_context *context,
                             struct weft_run **run, struct slots *slots)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    int rank = weft_context_rank(context);
    struct weft_template_params params = params_of(c, rank);
    int status = weft_template_build(c->template->name, rank, c->size, &params, &schedule);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(run, context, plan, NULL);
    if (!status)
        open_slots(slots, schedule);
    weft_schedule_destroy(schedule);
    weft_plan_destroy(plan);
    return status;
}

static inline int run_cell(struct team *team, struct weft_context *context, struct cell *c)
{
    struct weft_run *run = NULL;
    struct slots slots = {0};
    int rank = weft_context_rank(context);
    int status = create_run(c, context, &run, &slots);
    for (int i = 0; i < slots.count && !status; i++)
        status = bind_name(run, slots.names[i], slots.bound[i]);
    if (status)
        fail_cell(team, c, rank, weft_error_text());
    for (c->start = 0; c->start < STARTS && !status; c->start++)
        status = one_start(team, c, rank, run, &slots);
    weft_run_destroy(run);
    close_slots(&slots);
    return status;
}

/* ---- operations of users ---- */

/* Composes affine maps of bytes, x -> m x + n with m and n in an u16: associative, and a before b
 * is not b before a. */
static inline int compose(void *user, void *dst, const void *a, const void *b, size_t count,
                          weft_dtype_t dtype)
{
    (void)user;
    if (dtype != WEFT_U16)
        return WEFT_ERR_INVALID;
    for (size_t i = 0; i < count; i++) {
        unsigned x = ((const uint16_t *)a)[i], y = ((const uint16_t *)b)[i];
        unsigned m = (x >> 8) * (y >> 8), n = (x >> 8) * (y & 255) + (x & 255);
        ((uint16_t *)dst)[i] = (uint16_t)((m & 255) << 8 | (n & 255));
    }
    return WEFT_OK;
}

PLACED_REDUCE(compose_on_device, compose)

static inline void make_ops(struct team *team)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "affine";
    config.reduce = compose;
    config.device = compose_on_device;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    team->affine = op;
    for (int commutes = 0; commutes < 2; commutes++)
        cr_assert_not_null(team->opaque[commutes] = opaque_op(commutes));
}

static inline void destroy_ops(struct team *team)
{
    weft_op_destroy(team->affine);
    weft_op_destroy(team->opaque[0]);
    weft_op_destroy(team->opaque[1]);
}

/* With operations, on every number of ranks. */
static inline void run_team_sizes(struct team *team)
{
    placed_hold();
    for (int i = 0; i < SIZES; i++) {
        team->size = sizes[i];
        make_ops(team);
        run_team(team, i % 3);
        destroy_ops(team);
    }
}

#endif
