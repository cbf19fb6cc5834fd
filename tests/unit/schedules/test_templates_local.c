/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every template and algorithm on local ranks: numbers of ranks, datatypes, operations, counts,
 * roots, segments, in place and not, each started several times with changed data and compared with
 * what plain loops give. On virtual ranks too, under delays and faults.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "support/interpreter.h"
#include "tests/support/bind.h"
#include "tests/support/opaque.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 5 };
#else
enum { STRIDE = 1 };
#endif
enum { STARTS = 3, MOST_SLOTS = 3, BIG = 12000 };
#define PATIENCE UINT64_C(60000000000)

static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

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

static void fail(struct team *team, const char *text)
{
    pthread_mutex_lock(&team->mutex);
    if (!atomic_exchange(&team->failed, 1))
        snprintf(team->text, sizeof team->text, "%s", text);
    pthread_mutex_unlock(&team->mutex);
}

static void *run_member(void *argument)
{
    struct member *member = argument;
    struct team *team = member->team;
    struct weft_context *context = NULL;
    if (weft_context_create_local(&context, team->local, member->rank, &team->config))
        fail(team, weft_error_text());
    else
        team->work(team, context);
    pthread_barrier_wait(&team->barrier);
    weft_context_destroy(context);
    return NULL;
}

/* Default settings, no eager messages, or a helper thread: one of them for each number of ranks. */
static void run_team(struct team *team, int variant)
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
}

static int work_virtually(struct weft_context *context, void *user)
{
    struct team *team = user;
    return team->work(team, context);
}

/* The same on virtual ranks, on a network and with faults that the seed draws. */
static void run_virtual_team(struct team *team, uint64_t seed)
{
    struct weft_virtual_config config;
    struct weft_net net;
    weft_virtual_config_init(&config);
    weft_net_init(&net);
    net.L = 1;
    config.net = &net;
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

static void fail_cell(struct team *team, const struct cell *c, int rank, const char *what)
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

static int is(const struct cell *c, const char *name)
{
    return strcmp(c->template->name, name) == 0;
}

static int reads(const struct cell *c, const char *parameter)
{
    return strstr(c->template->parameters, parameter) != NULL;
}

static size_t bytes_of(const struct cell *c, size_t count)
{
    return count * weft_dtype_size(c->params.dtype);
}

/* Elements that a rank contributes. */
static size_t contributed(const struct cell *c)
{
    int blocks = is(c, "reduce-scatter") || is(c, "scatter") || is(c, "alltoall");
    return c->params.count * (size_t)(blocks ? c->size : 1);
}

/* The contribution of a rank: any bits where the operation is exact on them, else small numbers. */
static void contribute(const struct cell *c, int rank, void *data)
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

static unsigned char *new_memory(size_t bytes)
{
    unsigned char *memory = malloc(bytes + 1);
    if (!memory)
        abort();
    memset(memory, 0x6d, bytes + 1);
    return memory;
}

/* Contributions of all ranks combined in their order. */
static void combine(const struct cell *c, unsigned char *result, unsigned char *scratch)
{
    contribute(c, 0, result);
    for (int r = 1; r < c->size; r++) {
        contribute(c, r, scratch);
        weft_op_reduce(c->params.op, c->params.dtype, result, result, scratch, contributed(c));
    }
}

/* What rank `rank` receives, at most size * count elements. Returns bytes; 0: nothing. */
static size_t expect(const struct cell *c, int rank, unsigned char *result)
{
    size_t block = bytes_of(c, c->params.count), all = bytes_of(c, contributed(c));
    unsigned char *data = new_memory(all), *scratch = new_memory(all);
    size_t bytes = block, offset = (size_t)rank * block;
    if (is(c, "allreduce") || (is(c, "reduce") && rank == c->params.root)) {
        combine(c, result, scratch);
    } else if (is(c, "reduce-scatter")) {
        combine(c, data, scratch);
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
    unsigned char *expected[MOST_SLOTS];
    size_t bytes[MOST_SLOTS];
};

static void open_slots(struct slots *slots, const struct weft_schedule *schedule)
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
        slots->expected[i] = new_memory(slots->bytes[i]);
    }
}

static void close_slots(struct slots *slots)
{
    for (int i = 0; i < slots->count; i++) {
        free(slots->data[i]);
        free(slots->expected[i]);
    }
}

/* Fills the slots, and what they should hold in the end. */
static void fill_slots(const struct cell *c, int rank, struct slots *slots)
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

static int one_start(struct team *team, const struct cell *c, int rank, struct weft_run *run,
                     struct slots *slots)
{
    char text[160];
    fill_slots(c, rank, slots);
    int status = weft_run_start(run);
    if (!status)
        status = weft_run_wait(run, PATIENCE);
    if (status) {
        fail_cell(team, c, rank, status < 0 ? weft_error_text() : "no end");
        return -1;
    }
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
static struct weft_template_params params_of(const struct cell *c, int rank)
{
    struct weft_template_params params = c->params;

    if (c->apart && rank != params.root)
        params.in_place = !params.in_place;
    return params;
}

static int create_run(const struct cell *c, struct weft_context *context, struct weft_run **run,
                      struct slots *slots)
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

static int run_cell(struct team *team, struct weft_context *context, struct cell *c)
{
    struct weft_run *run = NULL;
    struct slots slots = {0};
    int rank = weft_context_rank(context);
    int status = create_run(c, context, &run, &slots);
    for (int i = 0; i < slots.count && !status; i++)
        status = bind_name(run, slots.names[i], slots.data[i]);
    if (status)
        fail_cell(team, c, rank, weft_error_text());
    for (c->start = 0; c->start < STARTS && !status; c->start++)
        status = one_start(team, c, rank, run, &slots);
    weft_run_destroy(run);
    close_slots(&slots);
    return status;
}

/* ---- the cells of one template on one number of ranks ---- */

/* Composes affine maps of bytes, x -> m x + n with m and n in an u16: associative, and a before b
 * is not b before a. */
static int compose(void *user, void *dst, const void *a, const void *b, size_t count,
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

static void pick_op(struct cell *c, const struct team *team, int ordered)
{
    unsigned pick = (unsigned)((c->number >> 16) % (WEFT_OP_COUNT + 2));
    c->params.dtype = (weft_dtype_t)(c->number % WEFT_DTYPE_COUNT);
    if ((c->number >> 24) % 4 == 0) {
        size_t which = (c->number >> 40) % OPAQUE_BYTES;
        /* Huge elements only where there are few of them. */
        which = opaque_bytes[which] > 1000 && c->params.count > 1 ? 0 : which;
        c->params.dtype = weft_dtype_opaque(opaque_bytes[which]);
        c->params.op = reads(c, "op") ? team->opaque[!ordered] : weft_op_builtin(WEFT_SUM);
        return;
    }
    if (pick >= WEFT_OP_COUNT) {
        c->params.dtype = ordered ? WEFT_U16 : c->params.dtype;
        c->params.op = ordered ? team->affine : weft_op_builtin(WEFT_SUM);
        return;
    }
    c->params.op = weft_op_builtin((weft_op_kind_t)pick);
    if (!weft_op_supports(c->params.op, c->params.dtype))
        c->params.op = weft_op_builtin(c->number % 2 ? WEFT_MAX : WEFT_SUM);
}

/* Any bits for a number, so that datatype, operation and root do not go together. */
static uint64_t spread(uint64_t number)
{
    number = (number + 1) * 0x9e3779b97f4a7c15u;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    return (number ^ (number >> 31)) >> 8;
}

static int sweep_algorithm(struct team *team, struct weft_context *context, size_t algorithm)
{
    static const size_t counts[] = {0, 1, 37, BIG}, segments[] = {0, WEFT_SEGMENT_NONE, 24, 4096};
    struct cell c = {.template = team->template, .size = team->size};
    for (unsigned i = 0; i < 4 * 4 * 2; i++) {
        size_t count = counts[i / 8], segment = segments[i / 2 % 4];
        c.number = spread(i + 32 * (algorithm * 17 + (uint64_t)team->size));
        if ((count == BIG && segment == 24) || (count <= 1 && segment == 4096) ||
            (i + (unsigned)team->size + (unsigned)algorithm) % team->stride != 0)
            continue;
        /* P blocks on each of many ranks, all computed by each of them, would take most of the
         * time. */
        if (count == BIG && c.size > 8 && i % 3 != 0)
            continue;
        weft_template_params_init(&c.params);
        c.params.algo = c.template->algorithms[algorithm].name;
        c.params.count = count;
        pick_op(&c, team, c.template->algorithms[algorithm].ordered);
        if (count == BIG)
            c.params.count = BIG / weft_dtype_size(c.params.dtype) + c.number % 5;
        c.params.segment = segment;
        c.params.in_place = (int)(i % 2);
        c.params.root = (int)((c.number >> 32) % (uint64_t)c.size);
        if (run_cell(team, context, &c) || atomic_load(&team->failed))
            return -1;
    }
    return 0;
}

static int sweep(struct team *team, struct weft_context *context)
{
    for (size_t a = 0; a < team->template->algorithm_count; a++)
        if (sweep_algorithm(team, context, a))
            return -1;
    return 0;
}

static void make_ops(struct team *team)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "affine";
    config.reduce = compose;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    team->affine = op;
    for (int commutes = 0; commutes < 2; commutes++)
        cr_assert_not_null(team->opaque[commutes] = opaque_op(commutes));
}

static void destroy_ops(struct team *team)
{
    weft_op_destroy(team->affine);
    weft_op_destroy(team->opaque[0]);
    weft_op_destroy(team->opaque[1]);
}

static void sweep_template(const char *name)
{
    struct team team = {.template = weft_template_find(name), .work = sweep, .stride = STRIDE};
    cr_assert_not_null(team.template);
    for (int i = 0; i < SIZES; i++) {
        team.size = sizes[i];
        make_ops(&team);
        run_team(&team, i % 3);
        destroy_ops(&team);
    }
}

/* All of them, a share of the cells for each seed. */
static void sweep_virtually(const char *name)
{
    static const int virtual_sizes[] = {1, 2, 3, 5, 8, 13, 17};
    struct team team = {
        .template = weft_template_find(name), .work = sweep, .stride = 3 * STRIDE + 2};
    cr_assert_not_null(team.template);
    uint64_t seed = name[0] + 256u * (unsigned char)name[strlen(name) - 1];
    for (int i = 0; i < 7; i++, seed++) {
        team.size = virtual_sizes[i];
        make_ops(&team);
        run_virtual_team(&team, seed);
        destroy_ops(&team);
    }
}

Test(templates_local, every_template_on_virtual_ranks)
{
    static const char *const names[] = {"allgather", "allreduce", "alltoall",       "broadcast",
                                        "gather",    "reduce",    "reduce-scatter", "scatter"};
    for (size_t t = 0; t < sizeof names / sizeof names[0]; t++)
        sweep_virtually(names[t]);
}

Test(templates_local, allgather)
{
    sweep_template("allgather");
}

Test(templates_local, allreduce)
{
    sweep_template("allreduce");
}

Test(templates_local, alltoall)
{
    sweep_template("alltoall");
}

Test(templates_local, broadcast)
{
    sweep_template("broadcast");
}

Test(templates_local, gather)
{
    sweep_template("gather");
}

Test(templates_local, reduce)
{
    sweep_template("reduce");
}

Test(templates_local, reduce_scatter)
{
    sweep_template("reduce-scatter");
}

Test(templates_local, scatter)
{
    sweep_template("scatter");
}

/* ---- in place on the root alone, or everywhere else ---- */

static int check_apart(const struct cell *c)
{
    struct weft_schedule *at[16] = {NULL};
    struct weft_check_report *report = NULL;
    struct weft_fault fault = {.struct_size = sizeof fault, .text = "no report"};
    int status = WEFT_OK, ok = 0;

    for (int r = 0; r < c->size && !status; r++) {
        struct weft_template_params params = params_of(c, r);
        status = weft_template_build(c->template->name, r, c->size, &params, &at[r]);
    }
    if (!status)
        status =
            weft_check((const struct weft_schedule *const *)at, (size_t)c->size, NULL, &report);
    if (!status) {
        ok = weft_check_ok(report);
        weft_check_fault(report, 0, &fault);
    }
    if (!ok)
        weft_error_set(WEFT_ERR_STATE, "%.300s", status ? weft_error_text() : fault.text);
    weft_check_report_destroy(report);
    for (int r = 0; r < c->size; r++)
        weft_schedule_destroy(at[r]);
    return ok ? WEFT_OK : WEFT_ERR_STATE;
}

static int run_apart(struct team *team, struct weft_context *context)
{
    int rank = weft_context_rank(context);

    for (unsigned i = 0; i < team->template->algorithm_count * (unsigned)team->size * 2; i++) {
        struct cell c = {.template = team->template, .size = team->size, .number = i, .apart = 1};
        unsigned algorithm = i / 2 / (unsigned)team->size;
        weft_template_params_init(&c.params);
        c.params.algo = c.template->algorithms[algorithm].name;
        c.params.op = weft_op_builtin(WEFT_SUM);
        c.params.dtype = WEFT_U16;
        if (c.template->algorithms[algorithm].ordered)
            c.params.op = team->affine;
        c.params.count = 37;
        c.params.segment = i % 3 ? 0 : 24;
        c.params.root = (int)(i / 2 % (unsigned)team->size);
        c.params.in_place = !(i % 2);
        if (rank == c.params.root && check_apart(&c))
            fail_cell(team, &c, rank, weft_error_text());
        c.params.op = i % 4 < 2 ? weft_op_builtin(WEFT_SUM) : c.params.op;
        if (rank == c.params.root && check_apart(&c))
            fail_cell(team, &c, rank, weft_error_text());
        if (run_cell(team, context, &c) || atomic_load(&team->failed))
            return -1;
    }
    return 0;
}

Test(templates_local, the_root_may_be_in_place_where_others_are_not)
{
    static const char *const names[] = {"gather", "reduce", "scatter"};
    for (size_t t = 0; t < sizeof names / sizeof names[0]; t++) {
        struct team team = {.template = weft_template_find(names[t]), .work = run_apart};
        for (int i = 0; i < SIZES; i++) {
            team.size = sizes[i];
            make_ops(&team);
            run_team(&team, i % 3);
            destroy_ops(&team);
        }
    }
}

/* ---- no rank leaves a barrier before all have entered ---- */

static int enter_barriers(struct team *team, struct weft_context *context)
{
    struct weft_run *run = NULL;
    int status = weft_template_create_run(&run, context, "barrier", NULL);
    for (int start = 1; start <= 50 && !status; start++) {
        atomic_fetch_add(&team->entered, 1);
        status = weft_run_start(run);
        if (!status)
            status = weft_run_wait(run, PATIENCE);
        if (!status && atomic_load(&team->entered) < start * team->size)
            fail(team, "a rank left the barrier before all had entered");
    }
    if (status)
        fail(team, weft_error_text());
    weft_run_destroy(run);
    return status;
}

Test(templates_local, barrier)
{
    struct team team = {.template = weft_template_find("barrier"), .work = enter_barriers};
    for (int i = 0; i < SIZES; i++) {
        team.size = sizes[i];
        atomic_store(&team.entered, 0);
        run_team(&team, i % 3);
    }
    for (uint64_t seed = 1; seed < 40; seed++) {
        team.size = (int)(seed % 18) + 1;
        atomic_store(&team.entered, 0);
        run_virtual_team(&team, seed);
    }
}

/* ---- sums of real numbers are the same on all ranks and at every start ---- */

static void fill_real(unsigned char *data, size_t count, weft_dtype_t dtype, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double number = 0.5 + (double)(seed >> 40) / (1 << 24);
        uint16_t half = (uint16_t)((seed >> 54) & 0x3ff); /* the bits below the exponent */
        switch (dtype) {
        case WEFT_F16:
            ((uint16_t *)(void *)data)[i] = 0x3800 | half;
            break;
        case WEFT_BF16:
            ((uint16_t *)(void *)data)[i] = 0x3f00 | (half & 0x7f);
            break;
        case WEFT_F32:
            ((float *)(void *)data)[i] = (float)number;
            break;
        default:
            ((double *)(void *)data)[i] = number;
            break;
        }
    }
}

static uint64_t sum_of(const unsigned char *data, size_t bytes)
{
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ data[i]) * 1099511628211u;
    return sum;
}

static void compare_sums(struct team *team, const struct cell *c, int rank, uint64_t sum,
                         uint64_t *first)
{
    team->sums[rank] = sum;
    pthread_barrier_wait(&team->barrier);
    if (team->sums[0] != sum)
        fail_cell(team, c, rank, "the bits differ from those of rank 0");
    if (c->start == 0)
        *first = sum;
    else if (*first != sum)
        fail_cell(team, c, rank, "the bits differ from those of the first start");
    pthread_barrier_wait(&team->barrier);
}

static int sum_reals(struct team *team, struct weft_context *context)
{
    int rank = weft_context_rank(context), status = 0;
    for (unsigned i = 0; i < team->template->algorithm_count * 8 && !status; i++) {
        struct cell c = {.template = team->template, .size = team->size};
        struct weft_run *run = NULL;
        struct slots slots = {0};
        uint64_t first = 0;
        weft_template_params_init(&c.params);
        c.params.algo = c.template->algorithms[i / 8].name;
        static const weft_dtype_t real[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
        c.params.dtype = real[i % 4];
        c.params.count = i % 8 < 4 ? 61 : BIG;
        status = create_run(&c, context, &run, &slots);
        for (int s = 0; s < slots.count && !status; s++)
            status = bind_name(run, slots.names[s], slots.data[s]);
        for (c.start = 0; c.start < STARTS && !status; c.start++) {
            fill_real(slots.data[0], c.params.count, c.params.dtype, (uint64_t)rank + i);
            status = weft_run_execute(run);
            compare_sums(team, &c, rank, sum_of(slots.data[1], slots.bytes[1]), &first);
        }
        if (status)
            fail_cell(team, &c, rank, weft_error_text());
        weft_run_destroy(run);
        close_slots(&slots);
    }
    return status;
}

Test(templates_local, allreduce_gives_all_ranks_the_same_bits)
{
    struct team team = {.template = weft_template_find("allreduce"), .work = sum_reals};
    for (int i = 0; i < SIZES; i++) {
        team.size = sizes[i];
        run_team(&team, i % 3);
    }
}

/* ---- a plan in one call ---- */

static int two_runs_of_a_plan(struct weft_context *context, void *user)
{
    struct weft_template_params params;
    struct weft_plan *plan = NULL;
    struct weft_run *runs[2] = {NULL, NULL};
    int64_t x[2];
    int size = weft_context_size(context);
    (void)user;
    weft_template_params_init(&params);
    params.count = 1;
    params.dtype = WEFT_I64;
    params.op = weft_op_builtin(WEFT_SUM);
    params.in_place = 1;
    int status = weft_template_create_plan(&plan, context, "allreduce", &params);
    for (int i = 0; i < 2 && !status; i++) {
        x[i] = i + 1;
        status = weft_run_create(&runs[i], context, plan, NULL);
        if (!status)
            status = weft_run_bind_name(runs[i], "recv", &x[i], 1, WEFT_I64);
        if (!status)
            status = weft_run_execute(runs[i]);
    }
    weft_plan_destroy(plan);
    weft_run_destroy(runs[0]);
    weft_run_destroy(runs[1]);
    return status                             ? status
           : x[0] == size && x[1] == 2 * size ? WEFT_OK
                                              : weft_error_set(WEFT_ERR_STATE, "a wrong sum");
}

Test(templates_local, a_plan_is_made_for_a_context_in_one_call)
{
    struct weft_plan *plan = NULL;
    cr_expect_eq(weft_local_run(1, NULL, two_runs_of_a_plan, NULL), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(weft_local_run(5, NULL, two_runs_of_a_plan, NULL), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(weft_template_create_plan(&plan, NULL, "barrier", NULL), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "weft_template_create_plan: argument `context` is NULL"));
}
