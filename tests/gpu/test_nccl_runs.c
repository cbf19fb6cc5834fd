/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs whose messages between devices go over NCCL: local ranks, each with a device, under the
 * stand-ins of the driver and of NCCL, which refuses what is in the wrong order, and says so when
 * nothing can go on.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>

#include "tests/gpu/support/device_memory.h"
#include "tests/gpu/support/nccl_library.h"
#include "tests/support/bind.h"
#include "tests/support/draw.h"
#include "tests/support/ranks.h"

enum { COUNT = 3000, ROUNDS = 3 };

static void play_both(ranks_fn fn, int size, void *user)
{
    nccl_play(fn, size, WEFT_PROGRESS_CALLER, user);
    nccl_play(fn, size, WEFT_PROGRESS_HELPER, user);
}

/* ---- sums ---- */

struct sum {
    const char *algo;
    weft_nccl_t nccl;
};

static struct weft_plan *sum_plan(int rank, int size, const char *algo)
{
    struct weft_template_params params;
    struct weft_schedule *s;
    struct weft_plan *plan;

    weft_template_params_init(&params);
    params.count = COUNT;
    params.dtype = WEFT_I32;
    params.op = weft_op_builtin(WEFT_SUM);
    params.algo = algo;
    params.in_place = 1;
    params.segment = 2048;
    OK(weft_template_build("allreduce", rank, size, &params, &s));
    OK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE));
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    return plan;
}

static struct weft_run *nccl_run(struct weft_context *context, struct weft_plan *plan,
                                 weft_nccl_t how)
{
    struct weft_run_config config;
    struct weft_run *run;

    weft_run_config_init(&config);
    config.nccl = how;
    OK(weft_run_create(&run, context, plan, &config));
    weft_plan_destroy(plan);
    return run;
}

static int32_t number(int rank, int round, int i)
{
    return rank + round + i % 100;
}

static void fill(void *memory, int rank, int round)
{
    int32_t numbers[COUNT];

    for (int i = 0; i < COUNT; i++)
        numbers[i] = number(rank, round, i);
    device_put(memory, numbers, sizeof numbers);
}

static void check_sum(const void *memory, int size, int round)
{
    int32_t numbers[COUNT];

    device_get(numbers, memory, sizeof numbers);
    for (int i = 0; i < COUNT; i++)
        CHECK(numbers[i] == size * (size - 1) / 2 + size * (round + i % 100));
}

static void sum(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct sum *what = ranks->user;

    device_use(rank);
    void *memory = device_alloc(COUNT * sizeof(int32_t));
    struct weft_run *run = nccl_run(context, sum_plan(rank, ranks->size, what->algo), what->nccl);
    OK(bind_slot(run, 0, memory));
    for (int round = 0; round < ROUNDS; round++) {
        fill(memory, rank, round);
        OK(weft_run_execute(run));
        check_sum(memory, ranks->size, round);
    }
    weft_run_destroy(run);
    device_free(memory);
}

static void sum_all(weft_nccl_t how)
{
    static const char *const algos[] = {"recursive-doubling", "ring", "reduce-scatter-allgather"};
    static const int sizes[] = {1, 2, 3, 5, 8};
    unsigned long before;

    before = nccl_calls("ncclSend");
    for (size_t a = 0; a < sizeof algos / sizeof *algos; a++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            nccl_play(sum, sizes[s], (a + s) % 2 ? WEFT_PROGRESS_CALLER : WEFT_PROGRESS_HELPER,
                      &(struct sum){algos[a], how});
    cr_expect(!nccl_stands_in() || nccl_calls("ncclSend") > before, "nothing went over NCCL");
}

Test(nccl_runs, sums_in_a_known_order)
{
    sum_all(WEFT_NCCL_KNOWN);
}

Test(nccl_runs, sums_in_the_order_of_starts)
{
    sum_all(WEFT_NCCL_IN_ORDER);
}

Test(nccl_runs, sums_that_are_agreed_on)
{
    sum_all(WEFT_NCCL_AGREED);
}

/* ---- several runs, started in another order on each rank ---- */

enum { RUNS = 5 };

static void mix(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const char *const algos[RUNS] = {"ring", "recursive-doubling", "ring",
                                            "reduce-scatter-allgather", "recursive-doubling"};
    struct weft_run *runs[RUNS];
    void *memory[RUNS];
    uint64_t random = 7 + (uint64_t)rank;

    device_use(rank);
    for (int i = 0; i < RUNS; i++) {
        runs[i] = nccl_run(context, sum_plan(rank, ranks->size, algos[i]),
                           i % 2 ? WEFT_NCCL_AGREED : WEFT_NCCL_KNOWN);
        memory[i] = device_alloc(COUNT * sizeof(int32_t));
        OK(bind_slot(runs[i], 0, memory[i]));
    }
    for (int round = 0; round < 3 * ROUNDS; round++) {
        int order[RUNS];

        for (int i = 0; i < RUNS; i++)
            order[i] = i;
        for (int i = RUNS - 1; i > 0; i--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            int other = (int)((random >> 33) % (uint64_t)(i + 1));
            int swapped = order[i];
            order[i] = order[other];
            order[other] = swapped;
        }
        for (int i = 0; i < RUNS; i++) {
            fill(memory[order[i]], rank, round + order[i]);
            OK(weft_run_start(runs[order[i]]));
        }
        for (int i = 0; i < RUNS; i++)
            OK(weft_run_wait(runs[i], WEFT_NEVER));
        for (int i = 0; i < RUNS; i++)
            check_sum(memory[i], ranks->size, round + i);
    }
    for (int i = 0; i < RUNS; i++) {
        weft_run_destroy(runs[i]);
        device_free(memory[i]);
    }
}

Test(nccl_runs, several_at_once_in_any_order)
{
    for (int size = 2; size <= 5; size++)
        nccl_play(mix, size, WEFT_PROGRESS_HELPER, NULL);
}

/* ---- lists of tensors ---- */

static void listed(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct sum *what = ranks->user;
    size_t cut = 100 + 371 * (size_t)rank;

    device_use(rank);
    int32_t *memory = device_alloc((COUNT + 64) * sizeof(int32_t));
    struct weft_piece pieces[] = {{memory, cut}, {memory, 0}, {memory + cut + 64, COUNT - cut}};
    struct weft_run *run = nccl_run(context, sum_plan(rank, ranks->size, what->algo), what->nccl);
    OK(bind_list(run, 0, pieces, 3));
    for (int round = 0; round < ROUNDS; round++) {
        int32_t numbers[COUNT];

        for (int i = 0; i < COUNT; i++)
            numbers[i] = number(rank, round, i);
        device_put(memory, numbers, cut * sizeof(int32_t));
        device_put(memory + cut + 64, numbers + cut, (COUNT - cut) * sizeof(int32_t));
        OK(weft_run_execute(run));
        device_get(numbers, memory, cut * sizeof(int32_t));
        device_get(numbers + cut, memory + cut + 64, (COUNT - cut) * sizeof(int32_t));
        for (int i = 0; i < COUNT; i++)
            CHECK(numbers[i] ==
                  ranks->size * (ranks->size - 1) / 2 + ranks->size * (round + i % 100));
    }
    weft_run_destroy(run);
    device_free(memory);
}

Test(nccl_runs, lists_of_tensors)
{
    for (int size = 1; size <= 5; size += 2) {
        play_both(listed, size, &(struct sum){"ring", WEFT_NCCL_KNOWN});
        play_both(listed, size, &(struct sum){"recursive-doubling", WEFT_NCCL_AGREED});
    }
}

/* ---- graphs by hand ---- */

/* The plan of a rank of a text; the run is to be made with `how`. */
static struct weft_plan *plan_of(const char *text, int rank)
{
    struct weft_schedule **schedules;
    struct weft_plan *plan;
    size_t count;

    OK(weft_schedule_read(text, strlen(text), NULL, 0, &schedules, &count));
    OK(weft_schedule_commit(schedules[rank], &plan));
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
    return plan;
}

static void refused(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const char text[] = "weft 1\nschedule \"circle\" size 2\n"
                               "rank 0 {\ninout a f32 4 on device\noutput b f32 4 on device\n"
                               "r: recv b from 1\nsend a to 1 after r\n}\n"
                               "rank 1 {\ninout a f32 4 on device\noutput b f32 4 on device\n"
                               "r: recv b from 0\nsend a to 0 after r\n}\n";
    struct weft_run_config config;
    struct weft_run *run = NULL;
    struct weft_plan *plan = plan_of(text, rank);
    (void)ranks;

    device_use(rank);
    weft_run_config_init(&config);
    config.nccl = WEFT_NCCL_KNOWN;
    CHECK_STATUS(weft_run_create(&run, context, plan, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "wait for each other in a circle: rank ");
    CHECK(!run);
    config.nccl = rank == 0 ? WEFT_NCCL_KNOWN : WEFT_NCCL_AGREED;
    CHECK_STATUS(weft_run_create(&run, context, plan, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "the ranks do not agree about nccl");
    config.nccl = rank == 1 ? 99 : WEFT_NCCL_AGREED;
    CHECK_STATUS(weft_run_create(&run, context, plan, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "config->nccl is 99");
    config.nccl = WEFT_NCCL_KNOWN;
    CHECK_STATUS(weft_run_create(&run, context, rank == 0 ? plan : NULL, &config),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "argument `plan` is NULL");
    weft_plan_destroy(plan);
    /* What comes after all that has the number that others expect. */
    sum(ranks, context, rank);
}

Test(nccl_runs, circles_and_disagreements_are_refused)
{
    play_both(refused, 2, &(struct sum){"ring", WEFT_NCCL_KNOWN});
}

/* Ends on the host, no bytes, counts that show in the run, to oneself, an event of the application.
 */
static const char odd_text[] =
    "weft 1\nschedule \"odd\" size 3\n"
    "rank 0 {\ninput a i32 100 on device\ninput h i32 10\ninput z i32 0 on device\n"
    "output s i32 10 on device\nvalue n max 100\n"
    "e: event\nsend a[0:100 count n] to 1 tag 1\nsend h to 2 tag 2\nsend z to 1 tag 3\n"
    "send a[0:10] to 2 tag 4 after e\nsend a[10:20] to 0 tag 5\nrecv s from 0 tag 5\n}\n"
    "rank 1 {\noutput a i32 100 on device\noutput z i32 0 on device\nvalue m max 100\n"
    "recv up to a from 0 tag 1 gives m\nrecv z from 0 tag 3\n}\n"
    "rank 2 {\noutput a i32 10 on device\noutput b i32 10\n"
    "recv b from 0 tag 2\nrecv a from 0 tag 4\n}\n";

static void check_numbers(const int32_t *numbers, int first, int count)
{
    for (int i = 0; i < count; i++)
        CHECK(numbers[i] == first + i);
}

static void odd(struct ranks *ranks, struct weft_context *context, int rank)
{
    int32_t host[100], numbers[100];
    (void)ranks;

    device_use(rank);
    int32_t *a = device_alloc(sizeof host), *s = device_alloc(sizeof host);
    struct weft_run *run = nccl_run(context, plan_of(odd_text, rank), WEFT_NCCL_KNOWN);
    OK(bind_name(run, "a", a));
    if (rank == 0) {
        OK(bind_name(run, "h", host));
        OK(bind_name(run, "s", s));
    } else if (rank == 2) {
        OK(bind_name(run, "b", host));
    }
    if (rank < 2)
        OK(bind_name(run, "z", NULL));
    for (int round = 0; round < 6; round++) {
        int n = round == 0 ? 0 : round == 1 ? 100 : 7 * round;

        for (int i = 0; i < 100; i++)
            numbers[i] = host[i] = rank == 0 ? 1000 * round + i : -1;
        device_put(a, numbers, sizeof numbers);
        if (rank == 0)
            OK(weft_run_bind_value(run, weft_plan_find_value(weft_run_plan(run), "n"),
                                   (uint64_t)n));
        OK(weft_run_start(run));
        if (rank == 0)
            OK(weft_run_fire(run, 0));
        OK(weft_run_wait(run, WEFT_NEVER));
        device_get(numbers, rank == 0 ? s : a, sizeof numbers);
        if (rank == 0) {
            check_numbers(numbers, 1000 * round + 10, 10);
        } else if (rank == 1) {
            CHECK(weft_run_get_value(run, weft_plan_find_value(weft_run_plan(run), "m")) ==
                  (uint64_t)n);
            check_numbers(numbers, 1000 * round, n);
            CHECK(n == 100 || numbers[n] == -1);
        } else {
            check_numbers(numbers, 1000 * round, 10);
            check_numbers(host, 1000 * round, 10);
        }
    }
    weft_run_destroy(run);
    device_free(a);
    device_free(s);
}

Test(nccl_runs, odd_messages)
{
    play_both(odd, 3, NULL);
}

/* ---- failures ---- */

static atomic_int given_up; /* ranks whose run has failed */

/* Rank 1 cancels what it has started, again if it has ended before that. The failure may come to
 * others when theirs has ended, too: then with the next one. */
static int start_and_fail(struct ranks *ranks, struct weft_run *run, int rank)
{
    int status, failed;

    do {
        ranks_meet(ranks); /* else what a rank has not ended might fail, too */
        OK(weft_run_start(run));
        if (rank == 1)
            OK(weft_run_cancel(run));
        status = weft_run_wait(run, WEFT_NEVER);
        atomic_fetch_add(&given_up, status != WEFT_OK);
        ranks_meet(ranks);
        failed = atomic_load(&given_up);
        ranks_meet(ranks);
    } while (!failed);
    while (status == WEFT_OK && weft_run_start(run) == WEFT_OK)
        status = weft_run_wait(run, WEFT_NEVER);
    ranks_meet(ranks);
    atomic_store(&given_up, 0);
    return status;
}

static void give_up(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct sum *what = ranks->user;

    device_use(rank);
    void *memory = device_alloc(COUNT * sizeof(int32_t));
    for (int round = 0; round < 2; round++) {
        struct weft_run *run =
            nccl_run(context, sum_plan(rank, ranks->size, what->algo), what->nccl);

        OK(bind_slot(run, 0, memory));
        fill(memory, rank, 0);
        OK(weft_run_execute(run));
        int status = start_and_fail(ranks, run, rank);
        CHECK(status == WEFT_ERR_PEER || (status == WEFT_ERR_CANCELLED && rank == 1) ||
              (status == WEFT_OK && rank != 1)); /* it has heard of it between two */
        while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
            sched_yield();
        CHECK_STATUS(weft_run_start(run), WEFT_ERR_STATE);
        CHECK_TEXT(weft_error_text(), "its communicator has been ended by a failure");
        weft_run_destroy(run);
    }
    device_free(memory);
    sum(ranks, context, rank);
}

Test(nccl_runs, a_failure_ends_the_run_everywhere_and_nothing_else)
{
    for (int size = 2; size <= 4; size++) {
        play_both(give_up, size, &(struct sum){"ring", WEFT_NCCL_KNOWN});
        play_both(give_up, size, &(struct sum){"recursive-doubling", WEFT_NCCL_AGREED});
        play_both(give_up, size, &(struct sum){"ring", WEFT_NCCL_IN_ORDER});
    }
}

/* ---- calls of NCCL that fail ---- */

struct faults {
    struct sum sum;
    atomic_ulong next; /* the call that fails; 0: none */
    atomic_int failed; /* ranks that have had an error */
};

/* A run is created and executed twice; where something fails all ranks hear of it, in the creation
 * or in the version, and what comes afterwards is good. */
static void with_faults(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct faults *faults = ranks->user;
    struct weft_run_config config;
    struct weft_run *run = NULL;
    struct weft_plan *plan = sum_plan(rank, ranks->size, faults->sum.algo);
    int status;

    device_use(rank);
    void *memory = device_alloc(COUNT * sizeof(int32_t));
    weft_run_config_init(&config);
    config.nccl = faults->sum.nccl;
    ranks_meet(ranks);
    if (rank == 0)
        nccl_fail_at(atomic_load(&faults->next));
    ranks_meet(ranks);
    status = weft_run_create(&run, context, plan, &config);
    weft_plan_destroy(plan);
    if (status == WEFT_OK)
        OK(bind_slot(run, 0, memory));
    fill(memory, rank, 0);
    if (status == WEFT_OK)
        status = weft_run_execute(run);
    CHECK(status == WEFT_OK || weft_error_text()[0] != '\0');
    if (status == WEFT_OK)
        check_sum(memory, ranks->size, 0);
    else
        atomic_fetch_add(&faults->failed, 1);
    ranks_meet(ranks);
    if (rank == 0)
        nccl_fail_at(0);
    ranks_meet(ranks);
    weft_run_destroy(run);
    device_free(memory);
    sum(ranks, context, rank);
}

static void fail_each(struct sum what)
{
    struct faults faults = {.sum = what};
    int quiet = 0;

    if (!nccl_stands_in())
        return;
    /* Until there are no more calls to fail. */
    for (unsigned long n = 1; quiet < 3; n++) {
        atomic_store(&faults.next, n);
        atomic_store(&faults.failed, 0);
        nccl_play(with_faults, 2, n % 2 ? WEFT_PROGRESS_CALLER : WEFT_PROGRESS_HELPER, &faults);
        quiet = atomic_load(&faults.failed) ? 0 : quiet + 1;
        cr_assert_lt(n, 1000);
    }
}

Test(nccl_runs, any_call_of_nccl_may_fail)
{
    fail_each((struct sum){"recursive-doubling", WEFT_NCCL_KNOWN});
    fail_each((struct sum){"recursive-doubling", WEFT_NCCL_AGREED});
}
