/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every allocation made to fail in turn. A life (build, commit, create, bind, run, write, read,
 * destroy) is lived with its first allocation failing, then its second, until none is left to fail.
 * A call that fails must say WEFT_ERR_MEMORY, leave its objects as they were, and succeed when it
 * is repeated; the life then goes on to its end with the right results. Leaks are the address
 * sanitizer's business.
 *
 * The lives are lived by one thread, which drives both ranks, so that the n-th call is the same one
 * in each.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

enum { RANKS = 2, COUNT = 9, MOST_STEPS = 2000000, MOST_CALLS = 100000 };

static long failing; /* the call that fails, for messages */

static int lucky(void)
{
    return atomic_load(&weft__alloc_countdown) <= 0;
}

/* Expects a call to succeed, or to fail for want of memory once. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != WEFT_OK) {                                                                  \
            cr_assert_eq(status_, WEFT_ERR_MEMORY, "call %ld: " #call ": %s: %s", failing,         \
                         weft_status_name(status_), weft_error_text());                            \
            cr_assert(lucky(), "call %ld: " #call " failed without cause", failing);               \
            cr_assert(strlen(weft_error_text()) > 0);                                              \
            status_ = (call);                                                                      \
        }                                                                                          \
        cr_assert_eq(status_, WEFT_OK, "call %ld: " #call ": %s: %s", failing,                     \
                     weft_status_name(status_), weft_error_text());                                \
    } while (0)

/* Lives once for each allocation in the life. */
static void live(void (*life)(void))
{
    for (failing = 1; failing < MOST_CALLS; failing++) {
        atomic_store(&weft__alloc_countdown, failing);
        life();
        if (!lucky())
            break;
    }
    atomic_store(&weft__alloc_countdown, -1);
    cr_assert_lt(failing, MOST_CALLS);
    cr_assert_gt(failing, 1, "nothing was allocated");
}

/* ---- schedules ---- */

static const struct weft_op *user_op; /* made once, with no allocation failing */

static int add_up(struct weft_call *call)
{
    uint64_t sum = 0;
    for (size_t p = 0; p < call->arguments[0].piece_count; p++)
        for (size_t i = 0; i < call->arguments[0].pieces[p].count; i++)
            sum += (uint64_t)((const int32_t *)call->arguments[0].pieces[p].data)[i];
    *call->value = sum > COUNT ? COUNT : sum;
    return WEFT_OK;
}

static struct weft_op *new_op(void)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "add-up";
    config.compute = add_up;
    TRY(weft_op_create(&op, &config));
    return op;
}

/* out = own in + the other's; then as many elements as the compute says travel back, up to COUNT;
 * an event, a choice and a signal hold the end. Nothing is checked before the end, as builders do.
 */
static int fill_schedule(struct weft_schedule *s, int rank)
{
    weft_slot_t in = weft_schedule_add_slot(s, "in", WEFT_I32, COUNT, WEFT_SLOT_INPUT);
    weft_slot_t out = weft_schedule_add_slot(s, "out", WEFT_I32, COUNT, WEFT_SLOT_OUTPUT);
    weft_slot_t back = weft_schedule_add_slot(s, "back", WEFT_I32, COUNT, WEFT_SLOT_INOUT);
    weft_slot_t tmp = weft_schedule_add_slot(s, "tmp", WEFT_I32, COUNT, WEFT_SLOT_SCRATCH);
    weft_value_t many = weft_schedule_add_value(s, "many", COUNT);
    weft_value_t came = weft_schedule_add_value(s, "came", COUNT);
    int peer = 1 - rank;
    struct weft_region all = weft_region_at(in, 0, COUNT), part = weft_region_at(out, 0, COUNT);
    part.value = many;
    weft_node_t send = weft_schedule_add_send(s, all, peer, 0);
    weft_node_t recv = weft_schedule_add_recv(s, weft_region_at(tmp, 0, COUNT), peer, 0);
    weft_node_t reduce =
        weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), weft_region_at(out, 0, COUNT), all,
                                 weft_region_at(tmp, 0, COUNT));
    weft_node_t count = add_compute(s, user_op, &all, 1, 0, many);
    weft_node_t send_part = weft_schedule_add_send(s, part, peer, 1);
    weft_node_t recv_part =
        weft_schedule_add_recv_up_to(s, weft_region_at(back, 0, COUNT), peer, 1, came);
    weft_node_t signal = weft_schedule_add_signal(s, peer, 4);
    weft_node_t signalled = weft_schedule_add_event(s, 4);
    weft_node_t choice[2] = {weft_schedule_add_event(s, WEFT_CHANNEL_NONE),
                             weft_schedule_add_event(s, WEFT_CHANNEL_NONE)};
    weft_node_t join = weft_schedule_add_join(s);
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(out, 0, COUNT),
                                 .from = "in",
                                 .ranks = RANKS,
                                 .op = weft_op_builtin(WEFT_SUM),
                                 .among = (const int[]){1, 0}};
    weft_schedule_add_order(s, recv, reduce);
    weft_schedule_add_order(s, reduce, send_part);
    weft_schedule_add_order(s, count, send_part);
    weft_schedule_add_order(s, send, signal);
    weft_schedule_add_order(s, choice[0], join);
    weft_schedule_add_order(s, choice[1], join);
    weft_schedule_add_order(s, signalled, join);
    weft_schedule_set_any(s, join);
    weft_schedule_add_choice(s, choice, 2);
    weft_schedule_set_label(s, recv_part, "the part");
    weft_schedule_set_name(s, "life");
    weft_schedule_add_result(s, &result);
    return weft_schedule_status(s);
}

enum { CHOICE = 8 }; /* the first event of the choice */

static int build(struct weft_schedule **schedule, int rank)
{
    int status = weft_schedule_create(schedule, rank, RANKS);
    if (status)
        return status;
    status = fill_schedule(*schedule, rank);
    if (status) {
        weft_schedule_destroy(*schedule);
        *schedule = NULL;
    }
    return status;
}

static struct weft_plan *new_plan(int rank)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    TRY(build(&schedule, rank));
    TRY(weft_schedule_commit(schedule, &plan));
    weft_schedule_destroy(schedule);
    return plan;
}

static void life_of_plan(void)
{
    struct weft_op *op = new_op();
    struct weft_plan *plan = new_plan(1);
    cr_assert_eq(weft_plan_node_count(plan), 11u);
    weft_plan_destroy(plan);
    weft_op_destroy(op);
}

/* Twice the schedule above in one of four ranks, one after the other, with the same scratch. */
static int build_of_parts(struct weft_schedule **schedule, const struct weft_schedule *part)
{
    const int ranks[] = {3, 1};
    weft_node_t end = WEFT_NODE_NONE;
    int status = weft_schedule_create(schedule, 1, 4);

    if (status)
        return status;
    weft_schedule_add_slot(*schedule, "all", WEFT_I32, 6 * (size_t)COUNT, WEFT_SLOT_INOUT);
    for (size_t i = 0; i < 2; i++) {
        const struct weft_part_slot slots[] = {
            {"in", weft_region_at(0, (3 * i) * COUNT, COUNT)},
            {"out", weft_region_at(0, (3 * i + 1) * COUNT, COUNT)},
            {"back", weft_region_at(0, (3 * i + 2) * COUNT, COUNT)}};
        const struct weft_part_config config = {.struct_size = sizeof config,
                                                .slots = slots,
                                                .slot_count = 3,
                                                .scratch = i ? "shared" : NULL,
                                                .tag = 2 * (uint32_t)i,
                                                .channel = 5 * (uint32_t)i,
                                                .ranks = ranks};
        end = weft_schedule_add_part(*schedule, part, end, &config);
    }
    status = weft_schedule_status(*schedule);
    if (status) {
        weft_schedule_destroy(*schedule);
        *schedule = NULL;
    }
    return status;
}

static void life_of_parts(void)
{
    struct weft_schedule *part = NULL, *schedule = NULL;
    struct weft_plan *plan = NULL;

    TRY(build(&part, 1));
    TRY(build_of_parts(&schedule, part));
    weft_schedule_destroy(part);
    TRY(weft_schedule_commit(schedule, &plan));
    cr_assert_eq(weft_plan_node_count(plan), 24u);
    weft_schedule_destroy(schedule);
    weft_plan_destroy(plan);
}

static void life_of_memory(void)
{
    void *memory = weft_memory_alloc(3, 100);
    if (!memory)
        memory = weft_memory_alloc(3, 100);
    cr_assert_not_null(memory);
    weft_memory_free(memory);
}

/* ---- formats ---- */

static void round_trip(struct weft_schedule *const *schedules, weft_format_t format)
{
    char *text = NULL, *again = NULL;
    size_t length = 0, length_again = 0, count = 0;
    struct weft_schedule **read = NULL;
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)schedules;
    TRY(weft_schedule_write(view, RANKS, format, &text, &length));
    if (format == WEFT_FORMAT_TEXT || format == WEFT_FORMAT_JSON) {
        TRY(weft_schedule_read(text, length, &user_op, 1, &read, &count));
        cr_assert_eq(count, (size_t)RANKS);
        view = (const struct weft_schedule *const *)read;
        TRY(weft_schedule_write(view, RANKS, format, &again, &length_again));
        cr_assert_str_eq(again, text);
    }
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(read[i]);
    weft_memory_free(read);
    weft_memory_free(again);
    weft_memory_free(text);
}

static void life_of_documents(void)
{
    struct weft_schedule *schedules[RANKS];
    for (int r = 0; r < RANKS; r++)
        TRY(build(&schedules[r], r));
    round_trip(schedules, WEFT_FORMAT_TEXT);
    round_trip(schedules, WEFT_FORMAT_JSON);
    round_trip(schedules, WEFT_FORMAT_DOT);
    round_trip(schedules, WEFT_FORMAT_GOAL);
    for (int r = 0; r < RANKS; r++)
        weft_schedule_destroy(schedules[r]);
}

/* ---- runs ---- */

struct pair {
    struct weft_local *local;
    struct weft_context *contexts[RANKS];
};

static int open_pair_once(struct pair *pair, size_t eager_bytes)
{
    struct weft_local_config config;
    struct weft_context_config settings;
    *pair = (struct pair){0};
    weft_local_config_init(&config);
    config.eager_bytes = eager_bytes;
    weft_context_config_init(&settings);
    settings.progress = WEFT_PROGRESS_CALLER;
    int status = weft_local_create(&pair->local, RANKS, &config);
    for (int r = 0; r < RANKS && !status; r++)
        status = weft_context_create_local(&pair->contexts[r], pair->local, r, &settings);
    return status;
}

static void close_pair(struct pair *pair)
{
    for (int r = 0; r < RANKS; r++)
        weft_context_destroy(pair->contexts[r]);
    weft_local_destroy(pair->local);
}

static int open_pair(struct pair *pair, size_t eager_bytes)
{
    int status = open_pair_once(pair, eager_bytes);
    if (status)
        close_pair(pair);
    return status;
}

/* Drives both runs until both have ended. */
static void drive(struct weft_run *const *runs, int *statuses)
{
    int ended = 0;
    for (long step = 0; ended < RANKS; step++) {
        cr_assert_lt(step, MOST_STEPS, "call %ld: the runs do not end", failing);
        ended = 0;
        for (int r = 0; r < RANKS; r++) {
            statuses[r] = weft_run_test(runs[r]);
            ended += statuses[r] != WEFT_IN_PROGRESS;
        }
    }
}

struct data {
    int32_t in[COUNT], out[COUNT], back[COUNT];
    struct weft_piece pieces[3];
};

static void bind(struct weft_run *run, struct data *data, int rank)
{
    memset(data->out, -1, sizeof data->out);
    memset(data->back, -1, sizeof data->back);
    for (int i = 0; i < COUNT; i++)
        data->in[i] =
            rank * 10 + (i < 3); /* adds up to 3 on rank 0, to more than COUNT on rank 1 */
    data->pieces[0] = (struct weft_piece){data->in, 4};
    data->pieces[1] = (struct weft_piece){data->in + 4, 0};
    data->pieces[2] = (struct weft_piece){data->in + 4, COUNT - 4};
    TRY(bind_list(run, 0, data->pieces, 3));
    TRY(bind_name(run, "out", data->out));
    TRY(bind_slot(run, 2, data->back));
}

static void check(struct weft_run *run, const struct data *data, int rank)
{
    int came = rank == 0 ? COUNT : 3;
    cr_assert_eq(weft_run_get_value(run, 2), (uint64_t)came);
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(data->out[i], 10 + 2 * (i < 3));
        cr_assert_eq(data->back[i], i < came ? 10 + 2 * (i < 3) : -1);
    }
}

/* A version on both ranks. A failure under way is one of memory on a rank or two, of which the rest
 * has been told; the next version is as if nothing had been. */
static int one_version(struct weft_run *const *runs, struct data *data)
{
    int statuses[RANKS], failed = 0;
    for (int r = 0; r < RANKS; r++) {
        bind(runs[r], &data[r], r);
        TRY(weft_run_start(runs[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        char *report = NULL;
        int status = weft_run_fire(runs[r], CHOICE + r);
        cr_assert(status == WEFT_OK || (lucky() && status == WEFT_ERR_STATE));
        TRY(weft_run_report(runs[r], &report));
        weft_memory_free(report);
    }
    drive(runs, statuses);
    for (int r = 0; r < RANKS; r++)
        failed |= statuses[r] != WEFT_OK;
    for (int r = 0; r < RANKS; r++) {
        if (!failed) {
            check(runs[r], &data[r], r);
            continue;
        }
        cr_assert(lucky());
        cr_assert(statuses[r] == WEFT_ERR_MEMORY || statuses[r] == WEFT_ERR_PEER ||
                      statuses[r] == WEFT_OK,
                  "call %ld: rank %d: %s", failing, r, weft_run_error(runs[r]));
    }
    for (long step = 0, left = 1; left; step++) {
        cr_assert_lt(step, MOST_STEPS, "call %ld: a run is not given back", failing);
        left = 0;
        for (int r = 0; r < RANKS; r++)
            left |= weft_run_reclaim(runs[r]) == WEFT_IN_PROGRESS;
    }
    return failed;
}

static void live_with_runs(size_t eager_bytes)
{
    struct pair pair;
    struct weft_run *runs[RANKS] = {0};
    struct weft_plan *plans[RANKS];
    struct data data[RANKS];
    TRY(open_pair(&pair, eager_bytes));
    for (int r = 0; r < RANKS; r++) {
        plans[r] = new_plan(r);
        TRY(weft_run_create(&runs[r], pair.contexts[r], plans[r], NULL));
    }
    for (int version = 0; version < 3; version++)
        if (one_version(runs, data))
            cr_assert_eq(one_version(runs, data), 0, "call %ld: failed twice", failing);
    for (int r = 0; r < RANKS; r++) {
        weft_run_destroy(runs[r]);
        weft_plan_destroy(plans[r]);
    }
    close_pair(&pair);
}

static void life_of_runs(void)
{
    live_with_runs(0);
}

/* Without cells for eager messages each signal takes memory of its own. */
static void life_of_runs_by_rendezvous(void)
{
    live_with_runs(SIZE_MAX);
}

/* A context that could not be made can be made later, and then has the messages that came before.
 */
static void life_of_late_context(void)
{
    struct pair pair = {0};
    struct weft_run *runs[RANKS] = {0};
    struct data data[RANKS];
    int statuses[RANKS];
    TRY(weft_local_create(&pair.local, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        struct weft_plan *plan = new_plan(r);
        TRY(weft_context_create_local(&pair.contexts[r], pair.local, r, NULL));
        TRY(weft_run_create(&runs[r], pair.contexts[r], plan, NULL));
        bind(runs[r], &data[r], r);
        TRY(weft_run_start(runs[r]));
        cr_assert_eq(weft_run_fire(runs[r], CHOICE), WEFT_OK);
        weft_run_test(runs[r]);
        weft_plan_destroy(plan);
    }
    drive(runs, statuses);
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(statuses[r], WEFT_OK, "call %ld: %s", failing, weft_run_error(runs[r]));
        check(runs[r], &data[r], r);
        weft_run_destroy(runs[r]);
    }
    close_pair(&pair);
}

/* ---- templates ---- */

static void build_template(const struct weft_template *template, const char *algo)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.algo = algo;
    params.count = COUNT;
    params.segment = 8;
    for (int rank = 0; rank < 6; rank += 5) {
        struct weft_schedule *schedule = NULL;
        TRY(weft_template_build(template->name, rank, 6, &params, &schedule));
        weft_schedule_destroy(schedule);
    }
}

static const struct weft_template *template_of_life;
static const char *algo_of_life;

static void life_of_template(void)
{
    build_template(template_of_life, algo_of_life);
}

static void life_of_template_run(void)
{
    struct pair pair;
    struct weft_run *runs[RANKS] = {0};
    struct weft_template_params params;
    int32_t in[RANKS][COUNT] = {{1, 2, 3}, {4, 5, 6}}, out[RANKS][COUNT];
    int statuses[RANKS];
    weft_template_params_init(&params);
    params.count = COUNT;
    params.dtype = WEFT_I32;
    TRY(open_pair(&pair, 0));
    for (int r = 0; r < RANKS; r++) {
        TRY(weft_template_create_run(&runs[r], pair.contexts[r], "allreduce", &params));
        TRY(bind_name(runs[r], "send", in[r]));
        TRY(bind_name(runs[r], "recv", out[r]));
        TRY(weft_run_start(runs[r]));
    }
    drive(runs, statuses);
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(statuses[r], WEFT_OK);
        cr_assert_eq(out[r][0] + out[r][1] + out[r][2], 21);
        weft_run_destroy(runs[r]);
    }
    close_pair(&pair);
}

/* ---- series, helpers, teams ---- */

static struct weft_plan *event_plan(void)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    TRY(weft_schedule_create(&schedule, 0, 1));
    weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    if (weft_schedule_status(schedule)) {
        weft_schedule_destroy(schedule);
        TRY(weft_schedule_create(&schedule, 0, 1));
        weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    }
    TRY(weft_schedule_commit(schedule, &plan));
    weft_schedule_destroy(schedule);
    return plan;
}

static int arm(void *user, struct weft_series *series, struct weft_series_arm *version)
{
    (void)user, (void)series;
    return version->version < 2 ? WEFT_OK : WEFT_RETIRED;
}

static int open_helper(struct weft_local **local, struct weft_context **context)
{
    struct weft_context_config settings;
    weft_context_config_init(&settings);
    settings.progress = WEFT_PROGRESS_HELPER;
    int status = weft_local_create(local, 1, NULL);
    if (status)
        return status;
    status = weft_context_create_local(context, *local, 0, &settings);
    if (status)
        weft_local_destroy(*local);
    return status;
}

static void life_of_series(void)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    struct weft_series *series = NULL;
    struct weft_series_config config;
    struct weft_plan *plan = event_plan();
    TRY(open_helper(&local, &context));
    weft_series_config_init(&config);
    config.plans = &plan;
    config.plan_count = 1;
    config.arm = arm;
    TRY(weft_series_create(&series, context, &config));
    TRY(weft_series_start(series));
    for (uint64_t version = 0; version < 2; version++) {
        int status;
        while ((status = weft_series_fire(series, version, 0)) == WEFT_IN_PROGRESS)
            ;
        cr_assert_eq(status, WEFT_OK);
        cr_assert_eq(weft_series_wait(series, version, WEFT_NEVER), WEFT_OK);
    }
    weft_series_destroy(series);
    weft_context_destroy(context);
    weft_local_destroy(local);
    weft_plan_destroy(plan);
}

static int enter_barrier(struct weft_context *context, void *user)
{
    struct weft_run *run = NULL;
    (void)user;
    int status = weft_template_create_run(&run, context, "barrier", NULL);
    if (status == WEFT_ERR_MEMORY)
        status = weft_template_create_run(&run, context, "barrier", NULL);
    if (!status)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    return status;
}

static void life_of_team(void)
{
    TRY(weft_local_run(3, NULL, enter_barrier, NULL));
}

/* ---- failures told for want of memory ---- */

static int refuse(struct weft_call *call)
{
    return call->rank == 0 ? WEFT_ERR_COMPUTE : WEFT_OK;
}

static const struct weft_op *refusing_op;

static struct weft_plan *refusing_plan(int rank)
{
    struct weft_schedule *schedule;
    struct weft_plan *plan;
    cr_assert_eq(weft_schedule_create(&schedule, rank, RANKS), WEFT_OK);
    weft_slot_t slot = weft_schedule_add_slot(schedule, "x", WEFT_I32, 1, WEFT_SLOT_SCRATCH);
    struct weft_region region = weft_region_at(slot, 0, 1);
    weft_node_t compute = add_compute(schedule, refusing_op, &region, 1, 1, 0);
    weft_node_t message = rank == 0 ? weft_schedule_add_send(schedule, region, 1, 0)
                                    : weft_schedule_add_recv(schedule, region, 0, 0);
    weft_schedule_add_order(schedule, compute, message);
    cr_assert_eq(weft_schedule_commit(schedule, &plan), WEFT_OK);
    weft_schedule_destroy(schedule);
    return plan;
}

/* One rank fails; the other is told, whatever allocation fails on the way. */
static void life_of_failure(size_t eager_bytes)
{
    struct pair pair;
    struct weft_run *runs[RANKS];
    int statuses[RANKS];
    long countdown = atomic_exchange(&weft__alloc_countdown, -1);
    TRY(open_pair(&pair, eager_bytes));
    for (int r = 0; r < RANKS; r++) {
        struct weft_plan *plan = refusing_plan(r);
        TRY(weft_run_create(&runs[r], pair.contexts[r], plan, NULL));
        weft_plan_destroy(plan);
    }
    atomic_store(&weft__alloc_countdown, countdown);
    for (int r = RANKS - 1; r >= 0; r--)
        TRY(weft_run_start(runs[r]));
    drive(runs, statuses);
    cr_assert_eq(statuses[0], WEFT_ERR_COMPUTE);
    cr_assert_eq(statuses[1], WEFT_ERR_PEER);
    cr_assert(strlen(weft_run_error(runs[0])) > 0);
    for (int r = 0; r < RANKS; r++)
        weft_run_destroy(runs[r]);
    close_pair(&pair);
}

static void life_of_eager_failure(void)
{
    life_of_failure(0);
}

static void life_of_rendezvous_failure(void)
{
    life_of_failure(SIZE_MAX);
}

static void make_ops(void)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    user_op = new_op();
    weft_op_config_init(&config);
    config.name = "refuse";
    config.compute = refuse;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    refusing_op = op;
}

static void release_ops(void)
{
    weft_op_destroy(user_op);
    weft_op_destroy(refusing_op);
}

TestSuite(alloc_failure, .init = make_ops, .fini = release_ops);

Test(alloc_failure, memory_for_builders)
{
    live(life_of_memory);
}

Test(alloc_failure, schedules_and_plans)
{
    live(life_of_plan);
}

Test(alloc_failure, schedules_made_of_parts)
{
    live(life_of_parts);
}

Test(alloc_failure, dumps_and_readers)
{
    live(life_of_documents);
}

Test(alloc_failure, contexts_and_runs)
{
    live(life_of_runs);
}

Test(alloc_failure, contexts_and_runs_without_eager_messages)
{
    live(life_of_runs_by_rendezvous);
}

Test(alloc_failure, contexts_made_at_the_second_attempt)
{
    live(life_of_late_context);
}

Test(alloc_failure, templates)
{
    for (size_t t = 0; t < weft_template_count(); t++) {
        template_of_life = weft_template_at(t);
        for (size_t a = 0; a < template_of_life->algorithm_count; a++) {
            algo_of_life = template_of_life->algorithms[a].name;
            live(life_of_template);
        }
    }
}

Test(alloc_failure, runs_of_templates)
{
    live(life_of_template_run);
}

Test(alloc_failure, series_with_a_helper)
{
    live(life_of_series);
}

Test(alloc_failure, teams_of_ranks)
{
    live(life_of_team);
}

Test(alloc_failure, a_failure_is_told)
{
    live(life_of_eager_failure);
}

Test(alloc_failure, a_failure_is_told_without_eager_messages)
{
    live(life_of_rendezvous_failure);
}
