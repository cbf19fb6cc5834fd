/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of the user that start runs, fire events and wait for runs. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <weft/cuda.h>
#include <weft/device.h>

#include "tests/gpu/support/device_memory.h"
#include "tests/support/bind.h"
#include "tests/support/draw.h"
#include "tests/support/ranks.h"

enum { COUNT = 3000, MOST = 6, ROUNDS = 12 };

static void note(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

/* An allreduce of all ranks, of device memory. */
static struct weft_plan *sum_plan(int rank, int size)
{
    struct weft_template_params params;
    struct weft_schedule *s;
    struct weft_plan *plan;

    weft_template_params_init(&params);
    params.count = COUNT;
    params.dtype = WEFT_I32;
    params.op = weft_op_builtin(WEFT_SUM);
    params.in_place = 1;
    OK(weft_template_build("allreduce", rank, size, &params, &s));
    OK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE));
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    return plan;
}

struct user {
    void *stream;
    void *memory;
    int32_t *pinned;
    uint32_t *gates; /* by which the stream is held up, one after the other */
};

/* The stream goes no further until its gate is opened. */
static void shut(struct user *user, int gate)
{
    device_stream_hold(user->stream, &user->gates[gate], 1);
}

static void let_go(struct user *user, int gate)
{
    atomic_store((_Atomic uint32_t *)&user->gates[gate], 1);
}

static void begin(struct user *user, int rank)
{
    device_use(rank % device_count());
    user->stream = device_stream();
    user->memory = device_alloc(COUNT * sizeof(int32_t));
    user->pinned = device_pin(COUNT * sizeof(int32_t));
    user->gates = device_pin(ROUNDS * sizeof *user->gates);
    memset(user->gates, 0, ROUNDS * sizeof *user->gates);
}

static void end(struct user *user)
{
    device_stream_wait(user->stream);
    device_stream_close(user->stream);
    device_free(user->memory);
    device_unpin(user->pinned);
    device_unpin(user->gates);
    device_check();
}

static struct weft_run *make(struct weft_context *context, struct weft_plan *plan,
                             struct user *user)
{
    struct weft_run *run;

    OK(weft_run_create(&run, context, plan, NULL));
    OK(bind_slot(run, 0, user->memory));
    weft_plan_destroy(plan);
    return run;
}

static int32_t expected(int size, int round, int i)
{
    return size * (size - 1) / 2 + size * (round + i % 100);
}

/* A step: the stream makes the numbers, the run sums them, the stream takes the sums; the thread
 * waits for nothing but its stream, at the end. */
static void step(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct user user;

    begin(&user, rank);
    struct weft_run *run = make(context, sum_plan(rank, ranks->size), &user);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            user.pinned[i] = rank + round + i % 100;
        device_stream_put(user.stream, user.memory, user.pinned, COUNT * sizeof(int32_t));
        OK(weft_run_start_on(run, user.stream));
        OK(weft_run_wait_on(run, user.stream));
        device_stream_get(user.stream, user.pinned, user.memory, COUNT * sizeof(int32_t));
        if (ranks->config.progress == WEFT_PROGRESS_HELPER && round % 2)
            device_stream_wait(user.stream);
        OK(weft_run_wait(run, WEFT_NEVER));
        device_stream_wait(user.stream);
        for (int i = 0; i < COUNT; i++)
            CHECK(user.pinned[i] == expected(ranks->size, round, i));
    }
    ranks_meet(ranks);
    weft_run_destroy(run);
    end(&user);
}

static void steps(weft_progress_t progress)
{
    for (int size = 1; size <= MOST; size++) {
        struct ranks ranks;

        ranks_init(&ranks, size, step, NULL);
        ranks.config.progress = progress;
        ranks_run(&ranks);
    }
}

Test(streams, start_a_run_and_wait_for_it)
{
    steps(WEFT_PROGRESS_CALLER);
}

Test(streams, need_no_thread_where_there_is_a_helper)
{
    steps(WEFT_PROGRESS_HELPER);
}

/* ---- not before the stream has got there, and not later than the end ---- */

static void order(struct ranks *ranks, struct weft_context *context, int rank)
{
    atomic_int after = 0;
    struct user user;

    begin(&user, rank);
    struct weft_run *run = make(context, sum_plan(rank, ranks->size), &user);
    OK(weft_run_wait_on(run, user.stream)); /* for nothing */
    device_stream_wait(user.stream);
    if (rank == 0)
        shut(&user, 0);
    OK(weft_run_start_on(run, user.stream));
    OK(weft_run_wait_on(run, user.stream));
    if (rank == 0)
        CHECK_STATUS(weft_run_start(run), WEFT_ERR_STATE);
    device_stream_call(user.stream, note, &after);
    CHECK_STATUS(weft_run_wait(run, 20000000), WEFT_IN_PROGRESS);
    ranks_meet(ranks);
    CHECK(!atomic_load(&after));
    let_go(&user, 0);
    OK(weft_run_wait(run, WEFT_NEVER));
    device_stream_wait(user.stream);
    CHECK(atomic_load(&after) == 1);
    ranks_meet(ranks);
    weft_run_destroy(run);
    end(&user);
}

Test(streams, are_waited_for)
{
    ranks_run_once(order, 3, NULL);
    ranks_run_helped(order, 3, NULL);
}

/* ---- events ---- */

static void events(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct user user;
    (void)ranks;

    begin(&user, rank);
    struct weft_schedule *s = new_schedule(0, 1);
    struct weft_plan *plan;
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I32, COUNT, WEFT_SLOT_INOUT);
    OK(weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE));
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_node_t copy = weft_schedule_add_copy(s, weft_region_at(slot, 0, COUNT / 2),
                                              weft_region_at(slot, COUNT / 2, COUNT / 2));
    weft_schedule_add_order(s, event, copy);
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    struct weft_run *run = make(context, plan, &user);
    CHECK_STATUS(weft_run_fire_on(run, event, user.stream), WEFT_ERR_STATE);
    CHECK_STATUS(weft_run_fire_on(run, copy, user.stream), WEFT_ERR_INVALID);
    for (int round = 0; round < ROUNDS; round++) {
        OK(weft_run_start(run));
        shut(&user, round);
        for (int i = 0; i < COUNT; i++)
            user.pinned[i] = round + i;
        device_stream_put(user.stream, user.memory, user.pinned, COUNT * sizeof(int32_t));
        OK(weft_run_fire_on(run, event, user.stream));
        if (round % 3 == 1)
            OK(weft_run_fire_on(run, event, user.stream)); /* for nothing */
        CHECK_STATUS(weft_run_wait(run, 1000000), WEFT_IN_PROGRESS);
        let_go(&user, round);
        OK(weft_run_wait(run, WEFT_NEVER));
        device_stream_wait(user.stream);
        device_get(user.pinned, user.memory, COUNT * sizeof(int32_t));
        for (int i = 0; i < COUNT / 2; i++)
            CHECK(user.pinned[i] == round + COUNT / 2 + i);
    }
    weft_run_destroy(run);
    end(&user);
}

Test(streams, fire_events)
{
    ranks_run_once(events, 1, NULL);
    ranks_run_helped(events, 1, NULL);
}

/* ---- runs that never begin ---- */

static void give_up(struct ranks *ranks, struct weft_context *context, int rank)
{
    atomic_int after[ROUNDS] = {0};
    struct user user;

    begin(&user, rank);
    for (int round = 0; round < ROUNDS; round++) {
        void *other = device_stream();
        struct weft_run *run = make(context, sum_plan(rank, ranks->size), &user);

        shut(&user, round);
        OK(weft_run_start_on(run, user.stream));
        OK(weft_run_wait_on(run, other));
        device_stream_call(other, note, &after[round]);
        if (round % 3 == 0)
            CHECK(!atomic_load(&after[round]));
        if (round % 3 == 1)
            OK(weft_run_cancel(run));
        if (round % 3 == 2) {
            OK(weft_run_cancel(run));
            /* Another rank may have been first. Of one rank it has nothing to do. */
            int status = weft_run_wait(run, WEFT_NEVER);
            CHECK(ranks->size == 1 ? status == WEFT_OK
                                   : status == WEFT_ERR_CANCELLED || status == WEFT_ERR_PEER);
            /* What the first stream still writes starts nothing, and hides nothing. */
            while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
                sched_yield();
        }
        weft_run_destroy(run);
        device_stream_wait(other);
        CHECK(atomic_load(&after[round]) == 1);
        device_stream_close(other);
        let_go(&user, round);
        if (round % 4 == 3)
            device_stream_wait(user.stream);
        ranks_meet(ranks);
    }
    end(&user);
}

Test(streams, of_runs_that_are_given_up_go_on)
{
    for (int size = 1; size <= 3; size++) {
        ranks_run_once(give_up, size, NULL);
        ranks_run_helped(give_up, size, NULL);
    }
}

/* ---- streams that wait late ---- */

/* A run that a stream starts, of a context of its own. */
struct started {
    struct alone alone;
    struct weft_run *run;
};

static void start_late(struct started *started, struct user *by, int gate)
{
    started->alone = alone_create(WEFT_PROGRESS_HELPER);
    started->run = make(started->alone.context, sum_plan(0, 1), by);
    shut(by, gate);
    OK(weft_run_start_on(started->run, by->stream));
}

static void end_started(struct started *started, struct user *by, int gate)
{
    let_go(by, gate);
    OK(weft_run_wait(started->run, WEFT_NEVER));
    weft_run_destroy(started->run);
    alone_destroy(&started->alone);
}

/* A stream gets to its wait when the run has long ended, its context is gone, and another one has
 * what that had for such waits. */
static void outlive(void)
{
    struct alone keeps =
        alone_create(WEFT_PROGRESS_HELPER); /* the device, so that it is the same */
    struct user user, waits;
    struct started started;

    OK(weft_context_device(keeps.context, NULL));
    begin(&user, 0);
    begin(&waits, 0);
    start_late(&started, &user, 0);
    shut(&waits, 0);
    OK(weft_run_wait_on(started.run, waits.stream));
    end_started(&started, &user, 0);
    start_late(&started, &user, 1);
    let_go(&waits, 0);
    device_stream_wait(waits.stream);
    end_started(&started, &user, 1);
    alone_destroy(&keeps);
    end(&waits);
    end(&user);
}

Test(streams, may_wait_late, .timeout = 60)
{
    outlive();
}

/* ---- runs that are destroyed while their memory is read ---- */

static int hold(struct weft_call *call, void *stream)
{
    const struct user *user = call->user;

    device_stream_hold(stream, &user->gates[0], 1);
    return WEFT_OK;
}

static void *open_late(void *argument)
{
    for (int i = 0; i < 2000; i++)
        sched_yield();
    let_go(argument, 0);
    return NULL;
}

static struct weft_op *hold_op(struct user *user)
{
    struct weft_op_config config;
    struct weft_op *op;

    weft_op_config_init(&config);
    config.name = "hold";
    config.device = hold;
    config.user = user;
    OK(weft_op_create(&op, &config));
    return op;
}

/* Sends to the next rank and receives from the one before; what it receives waits behind a call
 * that holds the stream. */
static struct weft_run *make_held(struct weft_context *context, struct user *user, int rank,
                                  int size)
{
    struct weft_op *op = hold_op(user);
    struct weft_schedule *s = new_schedule(rank, size);
    struct weft_plan *plan;
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I32, COUNT, WEFT_SLOT_INOUT);

    OK(weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE));
    struct weft_region parts[] = {weft_region_at(slot, 0, 1), weft_region_at(slot, 1, 1000),
                                  weft_region_at(slot, 1001, 1000)};
    weft_schedule_add_compute(s, op, &(struct weft_compute_argument){parts[0], WEFT_WRITE}, 1, 0);
    weft_schedule_add_send(s, parts[1], (rank + 1) % size, 0);
    weft_schedule_add_recv(s, parts[2], (rank + size - 1) % size, 0);
    weft_op_destroy(op);
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    return make(context, plan, user);
}

static void destroy(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct user user;
    pthread_t thread;

    begin(&user, rank);
    struct weft_run *run = make_held(context, &user, rank, ranks->size);
    OK(weft_run_start(run));
    CHECK_STATUS(weft_run_wait(run, 1000000), WEFT_IN_PROGRESS);
    ranks_meet(ranks);
    CHECK(pthread_create(&thread, NULL, open_late, &user) == 0);
    weft_run_destroy(run);
    CHECK(pthread_join(thread, NULL) == 0);
    ranks_meet(ranks);
    end(&user);
}

Test(streams, of_runs_that_are_destroyed_are_waited_for)
{
    for (int size = 1; size <= 3; size++) {
        ranks_run_once(destroy, size, NULL);
        ranks_run_helped(destroy, size, NULL);
    }
}

/* ---- runs that fail while a part of a message is on the stream ---- */

enum { PIECES = 250000 };

/* Rank 0 sends memory of the host, which goes in pieces between processes; rank 1 has it behind a
 * call that holds the stream. */
static struct weft_run *make_pieces(struct weft_context *context, const struct weft_op *op,
                                    void *memory)
{
    int rank = weft_context_rank(context);
    struct weft_schedule *s = new_schedule(rank, 2);
    struct weft_plan *plan;
    struct weft_run *run;
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_U8, PIECES, WEFT_SLOT_INOUT);
    struct weft_region first = weft_region_at(slot, 0, 1),
                       rest = weft_region_at(slot, 1, PIECES - 1);

    if (rank == 1) {
        OK(weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE));
        weft_schedule_add_compute(s, op, &(struct weft_compute_argument){first, WEFT_WRITE}, 1, 0);
        weft_schedule_add_recv(s, rest, 0, 0);
    } else {
        weft_schedule_add_send(s, rest, 1, 0);
    }
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    OK(weft_run_create(&run, context, plan, NULL));
    OK(bind_slot(run, slot, memory));
    weft_plan_destroy(plan);
    return run;
}

static void fail_in_pieces(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct user user;
    struct weft_op *op;
    void *memory;

    begin(&user, rank);
    memory = rank == 1 ? device_alloc(PIECES) : calloc(PIECES, 1);
    op = hold_op(&user);
    struct weft_run *run = make_pieces(context, op, memory);
    weft_op_destroy(op);
    OK(weft_run_start(run));
    if (rank == 0)
        CHECK(weft_context_progress(context) >= 0);
    ranks_meet(ranks);
    if (rank == 1) /* what has come is on the stream, and the rest is asked for */
        CHECK_STATUS(weft_run_wait(run, 20000000), WEFT_IN_PROGRESS);
    ranks_meet(ranks);
    for (int i = 0; i < 20 && rank == 0; i++)
        CHECK(weft_context_progress(context) >= 0);
    ranks_meet(ranks);
    if (rank == 1)
        OK(weft_run_cancel(run));
    int status = weft_run_wait(run, WEFT_NEVER);
    CHECK(rank == 1 ? status == WEFT_ERR_CANCELLED : status == WEFT_ERR_PEER || status == WEFT_OK);
    for (int i = 0; i < 20; i++)
        CHECK(weft_context_progress(context) >= 0);
    let_go(&user, 0);
    weft_run_destroy(run);
    ranks_meet(ranks);
    if (rank == 1)
        device_free(memory);
    else
        free(memory);
    end(&user);
}

Test(streams, of_runs_that_fail_take_no_more)
{
    ranks_run_once(fail_in_pieces, 2, NULL);
}

/* ---- functions that fail ---- */

/* Puts something on the stream, and gives up. */
static int half_done(struct weft_call *call, void *stream)
{
    device_stream_hold(stream, call->user, 1);
    return weft_error_set(WEFT_ERR_COMPUTE, "half of it will do");
}

static struct weft_plan *half_plan(uint32_t *gate)
{
    struct weft_op_config config;
    struct weft_compute_argument argument = {weft_region_at(0, 0, COUNT), WEFT_UPDATE};
    struct weft_schedule *s = new_schedule(0, 1);
    struct weft_plan *plan;
    struct weft_op *op;

    weft_op_config_init(&config);
    config.name = "half";
    config.device = half_done;
    config.user = gate;
    OK(weft_op_create(&op, &config));
    weft_schedule_add_slot(s, "x", WEFT_I32, COUNT, WEFT_SLOT_INOUT);
    OK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE));
    CHECK(weft_schedule_add_compute(s, op, &argument, 1, 0) >= 0);
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    weft_op_destroy(op);
    return plan;
}

static void give_up_half(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct user user;
    (void)ranks;

    begin(&user, rank);
    struct weft_run *run = make(context, half_plan(user.gates), &user);
    OK(weft_run_start(run));
    CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_COMPUTE);
    CHECK_TEXT(weft_error_text(), "half of it will do; buffers are borrowed");
    for (int i = 0; i < 100; i++)
        CHECK_STATUS(weft_run_reclaim(run), WEFT_IN_PROGRESS);
    let_go(&user, 0);
    while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
        sched_yield();
    weft_run_destroy(run);
    end(&user);
}

Test(streams, what_a_failed_function_has_put_there_is_waited_for)
{
    ranks_run_each_progress(give_up_half, 1, NULL);
}

/* ---- runs that read each other ---- */

enum { LARGE = 1 << 18 }; /* so that reading takes a while */

/* Each of the first ranks sends all of its memory to the others. */
static struct weft_plan *sending_plan(int rank, int size, int senders)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t from = weft_schedule_add_slot(s, "from", WEFT_I32, LARGE, WEFT_SLOT_INPUT);

    for (int r = 0; r < size; r++)
        if (r != rank) {
            char name[16];

            snprintf(name, sizeof name, "to.%d", r);
            weft_slot_t to = weft_schedule_add_slot(s, name, WEFT_I32, LARGE, WEFT_SLOT_SCRATCH);
            if (r < senders)
                weft_schedule_add_recv(s, weft_region_at(to, 0, LARGE), r, 0);
            if (rank < senders)
                weft_schedule_add_send(s, weft_region_at(from, 0, LARGE), r, 0);
        }
    OK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE));
    return commit(s);
}

static void *large(int rank)
{
    device_use(rank % device_count());
    return device_alloc(LARGE * sizeof(int32_t));
}

static void go_on(struct weft_context *context, struct draw *draw)
{
    for (unsigned i = draw_below(draw, 1000); i > 0; i--)
        if (weft_context_progress(context) != WEFT_OK)
            sched_yield();
}

/* Runs are destroyed while others read from them. */
static void read_each_other(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct draw draw = {(uint64_t)rank};
    void *memory = large(rank);

    for (int round = 0; round < 20; round++) {
        struct weft_plan *plan = sending_plan(rank, ranks->size, ranks->size);
        struct weft_run *run = make_run(context, plan, NULL);

        OK(bind_slot(run, 0, memory));
        ranks_meet(ranks);
        OK(weft_run_start(run));
        go_on(context, &draw);
        weft_run_destroy(run);
        ranks_meet(ranks);
    }
    device_free(memory);
    device_check();
}

Test(streams, of_runs_that_read_each_other_end)
{
    for (int size = 2; size <= 4; size++)
        ranks_run_each_progress(read_each_other, size, NULL);
}

static int arm(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    return bind_slot(weft_series_get_run(series, arm->plan), 0, user);
}

/* The same with series, whose contexts go, too: a rank that only reads waits for nobody. */
static void read_in_series(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct draw draw = {(uint64_t)rank};
    void *memory = large(rank);

    for (int round = 0; round < 16; round++) {
        struct weft_plan *plan = sending_plan(rank, ranks->size, 1 + round % 2);
        struct weft_series_config config;
        struct weft_context *child;
        struct weft_series *series;

        OK(weft_context_split(context, 0, rank, &child));
        weft_series_config_init(&config);
        config.plans = &plan;
        config.plan_count = 1;
        config.arm = arm;
        config.user = memory;
        OK(weft_series_create(&series, child, &config));
        weft_plan_destroy(plan);
        ranks_meet(ranks);
        int status = weft_series_start(series);
        CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
        go_on(context, &draw);
        if (rank <= round % 2) /* who is read goes last */
            ranks_meet(ranks);
        weft_series_destroy(series);
        weft_context_destroy(child);
        if (rank > round % 2)
            ranks_meet(ranks);
    }
    device_free(memory);
    device_check();
}

Test(streams, of_series_that_read_each_other_end)
{
    setenv("STANDIN_DELAY_US", "2000", 1); /* so that much is under way */
    for (int size = 2; size <= 4; size++)
        ranks_run_helped(read_in_series, size, NULL);
}

/* ---- without a device ---- */

Test(streams, without_a_run)
{
    cr_expect_eq(weft_run_start_on(NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_run_fire_on(NULL, 0, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_run_wait_on(NULL, NULL), WEFT_ERR_INVALID);
}
