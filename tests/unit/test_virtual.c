/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual ranks: time, waits, networks, faults and the end of everything, deterministic from a seed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/ranks.h"
#include "runtime/alloc.h"

static struct weft_virtual_config with_seed(uint64_t seed)
{
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    config.seed = seed;
    config.shuffle = 1;
    return config;
}

static struct weft_run *allreduce(struct weft_context *context, size_t count)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    weft_template_params_init(&params);
    params.count = count;
    params.dtype = WEFT_I64;
    OK(weft_template_run(&run, context, "allreduce", &params));
    return run;
}

/* ---- a collective ---- */

static int add_ranks(struct weft_context *context, void *user)
{
    (void)user;
    int64_t in[5], out[5];
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_run *run = allreduce(context, 5);
    OK(weft_run_bind_name(run, "send", in));
    OK(weft_run_bind_name(run, "recv", out));
    for (int64_t start = 0; start < 4; start++) {
        for (int64_t i = 0; i < 5; i++)
            in[i] = (rank + 1) * (i + 1) + start;
        OK(weft_run_execute(run));
        for (int64_t i = 0; i < 5; i++)
            CHECK(out[i] == (i + 1) * size * (size + 1) / 2 + start * size);
    }
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual, ranks_add_their_numbers)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 13, 17, 100};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            struct weft_virtual_config config = with_seed(seed);
            config.delay_ns = 3000;
            OK(weft_virtual_run(sizes[i], seed == 0 ? NULL : &config, add_ranks, NULL));
        }
}

/* ---- time ---- */

static int sleep_by_rank(struct weft_context *context, void *user)
{
    (void)user;
    uint64_t rank = (uint64_t)weft_context_rank(context);
    CHECK(weft_context_now(context) == 0);
    OK(weft_sleep(context, 0));
    CHECK(weft_context_now(context) == 0);
    OK(weft_sleep(context, rank * 1000000000));
    CHECK(weft_context_now(context) == rank * 1000000000);
    return WEFT_OK;
}

Test(virtual, sleeping_takes_virtual_time_alone)
{
    struct weft_virtual_result result;
    struct weft_virtual_config config = with_seed(1);
    config.result = &result;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    int size = 300;
#else
    int size = 3000;
#endif
    OK(weft_virtual_run(size, &config, sleep_by_rank, NULL));
    cr_assert_eq(result.end_ns, (uint64_t)(size - 1) * 1000000000);
}

/* A receive of one number from a rank. */
static struct weft_run *receive(struct weft_context *context, int from, uint32_t tag, int64_t *x,
                                const struct weft_run_config *config)
{
    struct weft_schedule *s = new_schedule(weft_context_rank(context), weft_context_size(context));
    weft_slot_t slot = weft_schedule_buffer(s, "x", WEFT_I64, 1, WEFT_BUFFER_INOUT);
    OK(weft_schedule_set_name(s, "lonely"));
    weft_schedule_recv(s, weft_at(slot, 0, 1), from, tag);
    struct weft_run *run = make_run(context, commit(s), config);
    OK(weft_run_bind(run, 0, x));
    return run;
}

static struct weft_run *transmit(struct weft_context *context, int to, uint32_t tag, int64_t *x)
{
    struct weft_schedule *s = new_schedule(weft_context_rank(context), weft_context_size(context));
    weft_slot_t slot = weft_schedule_buffer(s, "x", WEFT_I64, 1, WEFT_BUFFER_INPUT);
    weft_schedule_send(s, weft_at(slot, 0, 1), to, tag);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(weft_run_bind(run, 0, x));
    return run;
}

static void note_time(void *user, struct weft_run *run, int status)
{
    (void)run;
    (void)status;
    uint64_t **note = user;
    **note = weft_context_now((struct weft_context *)(void *)note[1]);
}

/* Rank 0 sends after a second; rank 1 waits for less, then sleeps for longer. */
static int wait_for_the_late(struct weft_context *context, void *user)
{
    (void)user;
    int64_t x = 42;
    if (weft_context_rank(context) == 0) {
        struct weft_run *run = transmit(context, 1, 7, &x);
        OK(weft_sleep(context, 1000000000));
        OK(weft_run_execute(run));
        weft_run_destroy(run);
        return WEFT_OK;
    }
    uint64_t ended = 0;
    uint64_t *note[2] = {&ended, (uint64_t *)(void *)context};
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.ended = note_time;
    config.user = (void *)note;
    struct weft_run *run = receive(context, 0, 7, &x, &config);
    x = 0;
    OK(weft_run_start(run));
    CHECK_STATUS(weft_wait(run, 400000000), WEFT_IN_PROGRESS);
    CHECK(weft_context_now(context) == 400000000);
    OK(weft_sleep(context, 5000000000));
    CHECK(weft_context_now(context) == 5400000000);
    CHECK(ended == 1000001000); /* the engine went on meanwhile */
    OK(weft_run_test(run));
    CHECK(x == 42);
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual, engines_go_on_while_functions_sleep)
{
    struct weft_virtual_config config = with_seed(3);
    OK(weft_virtual_run(2, &config, wait_for_the_late, NULL));
}

static int miss_a_deadline(struct weft_context *context, void *user)
{
    (void)user;
    int64_t x = 0;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.deadline_ns = 2000000;
    struct weft_run *run = receive(context, 1 - weft_context_rank(context), 1, &x, &config);
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK_STATUS(weft_run_execute(run), WEFT_ERR_TIMEOUT);
        CHECK(weft_context_now(context) == i * 2000000);
    }
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual, deadlines_are_in_virtual_time)
{
    OK(weft_virtual_run(2, NULL, miss_a_deadline, NULL));
}

static int poll_for_the_late(struct weft_context *context, void *user)
{
    (void)user;
    int64_t x = 42;
    int status;
    if (weft_context_rank(context) == 0) {
        struct weft_run *run = transmit(context, 1, 7, &x);
        OK(weft_sleep(context, 3000000));
        OK(weft_run_execute(run));
        weft_run_destroy(run);
        return WEFT_OK;
    }
    struct weft_run *run = receive(context, 0, 7, &x, NULL);
    OK(weft_run_start(run));
    while ((status = weft_run_test(run)) == WEFT_IN_PROGRESS)
        ;
    OK(status);
    OK(weft_run_start(run));
    while ((status = weft_wait(run, 0)) == WEFT_IN_PROGRESS)
        ;
    weft_run_destroy(run);
    return status; /* nobody sends a second time */
}

Test(virtual, polling_lets_time_pass_but_not_for_ever)
{
    cr_assert_eq(weft_virtual_run(2, NULL, poll_for_the_late, NULL), WEFT_ERR_DEADLOCK);
    CHECK_TEXT(weft_error_text(), "rank 1");
}

/* ---- the end ---- */

static int receive_in_vain(struct weft_context *context, void *user)
{
    (void)user;
    int64_t x = 0;
    int size = weft_context_size(context);
    struct weft_run *run = receive(context, (weft_context_rank(context) + 1) % size, 44, &x, NULL);
    OK(weft_sleep(context, (uint64_t)weft_context_rank(context) * 1000));
    int status = weft_run_execute(run);
    CHECK_STATUS(status, WEFT_ERR_DEADLOCK);
    CHECK_TEXT(weft_error_text(), "lonely");
    CHECK_TEXT(weft_error_text(), "tag 44");
    CHECK_STATUS(weft_sleep(context, 1), WEFT_ERR_DEADLOCK);
    weft_run_destroy(run);
    return status;
}

static int forgive(struct weft_context *context, void *user)
{
    receive_in_vain(context, user);
    return WEFT_OK;
}

Test(virtual, a_deadlock_is_found_and_named)
{
    struct weft_virtual_config config = with_seed(4711);
    cr_assert_eq(weft_virtual_run(7, &config, receive_in_vain, NULL), WEFT_ERR_DEADLOCK);
    CHECK_TEXT(weft_error_text(), "lonely");
    CHECK_TEXT(weft_error_text(), "seed 4711");
    cr_assert_eq(weft_virtual_run(3, &config, forgive, NULL), WEFT_ERR_DEADLOCK);
    CHECK_TEXT(weft_error_text(), "3 of 3 ranks wait");
    CHECK_TEXT(weft_error_text(), "tag 44");
    cr_assert_eq(weft_virtual_run(1, &config, forgive, NULL), WEFT_ERR_DEADLOCK);
}

static int sleep_for_ever(struct weft_context *context, void *user)
{
    (void)user;
    int status = WEFT_OK;
    while (status == WEFT_OK)
        status = weft_sleep(context, 1000000);
    return status;
}

Test(virtual, time_is_limited)
{
    struct weft_virtual_config config = with_seed(1);
    config.limit_ns = 50000000;
    cr_assert_eq(weft_virtual_run(5, &config, sleep_for_ever, NULL), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_error_text(), "limit");
}

static int fail_on_two(struct weft_context *context, void *user)
{
    (void)user;
    OK(weft_sleep(context, 1000));
    if (weft_context_rank(context) == 2)
        return weft_error_set(WEFT_ERR_IO, "no such file");
    int64_t x = 0;
    struct weft_run *run = receive(context, 2, 1, &x, NULL);
    CHECK_STATUS(weft_run_execute(run), WEFT_ERR_CANCELLED);
    weft_run_destroy(run);
    return WEFT_ERR_CANCELLED;
}

Test(virtual, a_rank_that_fails_ends_the_runs_of_all)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct weft_virtual_config config = with_seed(seed);
        cr_assert_eq(weft_virtual_run(6, &config, fail_on_two, NULL), WEFT_ERR_IO);
        CHECK_TEXT(weft_error_text(), "rank 2: no such file");
    }
}

static int return_three(struct weft_context *context, void *user)
{
    (void)user;
    return weft_context_rank(context) == 3 ? WEFT_RETIRED : WEFT_OK;
}

static int keep_texts_apart(struct weft_context *context, void *user)
{
    (void)user;
    char text[32];
    int rank = weft_context_rank(context);
    if (rank % 3 == 0)
        return WEFT_OK;
    snprintf(text, sizeof text, "this is rank %d", rank);
    for (int i = 0; i < 5; i++) {
        weft_error_set(WEFT_ERR_IO, "%s", text);
        OK(weft_sleep(context, (uint64_t)(1 + (rank * 7 + i) % 5)));
        CHECK(strcmp(weft_error_text(), text) == 0);
    }
    return WEFT_OK;
}

static int use_stack(struct weft_context *context, void *user)
{
    (void)user;
    volatile char much[200000];
    much[0] = 1;
    much[sizeof much - 1] = 2;
    OK(weft_sleep(context, 10));
    CHECK(much[0] + much[sizeof much - 1] == 3);
    return WEFT_OK;
}

static int count_nodes(struct weft_context *context, void *user)
{
    (void)user;
    int nodes[10];
    OK(weft_context_nodes(context, nodes));
    for (int r = 0; r < 10; r++)
        CHECK(nodes[r] == r / 4);
    CHECK(strcmp(weft_context_transport(context), "virtual") == 0);
    return WEFT_OK;
}

Test(virtual, functions_are_as_on_other_ranks)
{
    struct weft_virtual_config config = with_seed(1);
    cr_assert_eq(weft_virtual_run(5, NULL, return_three, NULL), WEFT_RETIRED);
    OK(weft_virtual_run(17, &config, keep_texts_apart, NULL));
    OK(weft_virtual_run(3, &config, use_stack, NULL));
    config.ranks_per_node = 4;
    OK(weft_virtual_run(10, &config, count_nodes, NULL));
}

Test(virtual, misuse_is_refused)
{
    struct weft_virtual_fault fault = {.rank = 4};
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    cr_assert_eq(weft_virtual_run(1, NULL, NULL, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`fn`");
    cr_assert_eq(weft_virtual_run(0, NULL, return_three, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`size` is 0");
    config.heavy_share = 1.5;
    cr_assert_eq(weft_virtual_run(1, &config, return_three, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "heavy_share is 1.5");
    config.heavy_share = 0;
    config.duplicate_share = -1;
    cr_assert_eq(weft_virtual_run(1, &config, return_three, NULL), WEFT_ERR_INVALID);
    config.duplicate_share = 0;
    config.fault_count = 1;
    cr_assert_eq(weft_virtual_run(4, &config, return_three, NULL), WEFT_ERR_INVALID);
    config.faults = &fault;
    cr_assert_eq(weft_virtual_run(4, &config, return_three, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "rank is 4");
    config.fault_count = 0;
    config.byte_scale = -1;
    cr_assert_eq(weft_virtual_run(4, &config, return_three, NULL), WEFT_ERR_INVALID);
    weft_virtual_config_init(NULL);
}

/* ---- faults ---- */

/* A ring of messages over and over, until it fails or has gone round. */
static int go_round(struct weft_context *context, void *user)
{
    int *unwound = user, rank = weft_context_rank(context);
    int64_t *numbers = calloc(2, sizeof *numbers);
    CHECK(numbers != NULL);
    struct weft_run *run = allreduce(context, 1);
    OK(weft_run_bind_name(run, "send", &numbers[0]));
    OK(weft_run_bind_name(run, "recv", &numbers[1]));
    OK(weft_run_set_deadline(run, 500000000));
    int status = WEFT_OK;
    for (int i = 0; i < 100 && status == WEFT_OK; i++) {
        numbers[0] = rank + i;
        status = weft_sleep(context, 1000000);
        if (status == WEFT_OK)
            status = weft_run_execute(run);
    }
    if (status != WEFT_OK)
        unwound[rank] = status;
    weft_run_destroy(run);
    free(numbers);
    return WEFT_OK;
}

Test(virtual, others_time_out_on_a_rank_that_has_stopped)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        int unwound[5] = {0};
        struct weft_virtual_fault stop = {
            .rank = (int)seed % 5, .at_ns = seed * 7000000, .for_ns = WEFT_NS_FOREVER};
        struct weft_virtual_result result;
        struct weft_virtual_config config = with_seed(seed);
        config.faults = &stop;
        config.fault_count = 1;
        config.result = &result;
        OK(weft_virtual_run(5, &config, go_round, unwound));
        int timeouts = 0;
        for (int r = 0; r < 5; r++) {
            timeouts += unwound[r] == WEFT_ERR_TIMEOUT;
            cr_assert(unwound[r] == WEFT_ERR_TIMEOUT || unwound[r] == WEFT_ERR_PEER ||
                      r == stop.rank);
        }
        cr_assert(timeouts > 0);
        /* A function that had not begun does not; one that had returns in the end. */
        cr_assert_eq(unwound[stop.rank], seed == 0 ? 0 : WEFT_ERR_CANCELLED);
        cr_assert(result.end_ns >= stop.at_ns + 500000000);
    }
}

Test(virtual, waiting_for_a_rank_that_has_stopped_is_a_deadlock)
{
    struct weft_virtual_fault stop = {.rank = 1, .at_ns = 0, .for_ns = WEFT_NS_FOREVER};
    struct weft_virtual_config config = with_seed(2);
    config.faults = &stop;
    config.fault_count = 1;
    cr_assert_eq(weft_virtual_run(3, &config, receive_in_vain, NULL), WEFT_ERR_DEADLOCK);
}

static int meet_and_look(struct weft_context *context, void *user)
{
    struct weft_run *run = NULL;
    OK(weft_template_run(&run, context, "barrier", NULL));
    OK(weft_run_execute(run));
    *(uint64_t *)user = weft_context_now(context);
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual, a_rank_that_pauses_is_waited_for)
{
    uint64_t met = 0;
    struct weft_virtual_fault pauses[2] = {{.rank = 3, .at_ns = 0, .for_ns = 40000},
                                           {.rank = 3, .at_ns = 40500, .for_ns = 70000}};
    struct weft_virtual_config config = with_seed(2);
    config.faults = pauses;
    config.fault_count = 2;
    OK(weft_virtual_run(5, &config, meet_and_look, &met));
    cr_assert(met >= 110500 && met < 120000, "%llu", (unsigned long long)met);
}

/* Rank 0 fires its event; every other waits for a signal of the rank below it. */
static int pass_signals(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_schedule *s = new_schedule(rank, size);
    weft_node_t event = weft_schedule_event(s, rank == 0 ? WEFT_CHANNEL_NONE : 3);
    if (rank + 1 < size)
        weft_schedule_order(s, event, weft_schedule_signal(s, rank + 1, 3));
    struct weft_run *run = make_run(context, commit(s), NULL);
    for (int i = 0; i < 20; i++) {
        OK(weft_run_start(run));
        if (rank == 0)
            OK(weft_fire(run, event));
        OK(weft_wait(run, WEFT_NS_FOREVER));
        ((int *)user)[rank]++;
    }
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual, signals_may_come_twice_and_out_of_order)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        int passed[6] = {0};
        struct weft_virtual_result result;
        struct weft_virtual_config config = with_seed(seed);
        config.duplicate_share = 1;
        config.delay_ns = 20000;
        config.result = &result;
        OK(weft_virtual_run(6, &config, pass_signals, passed));
        for (int r = 0; r < 6; r++)
            cr_assert_eq(passed[r], 20);
        cr_assert_eq(result.signals, 2 * 20 * 5);
    }
}

/* ---- the same seed, the same events ---- */

struct story {
    char *text;
    size_t length, capacity, overtaken;
    uint64_t latest;
};

static void tell(void *user, const struct weft_virtual_event *event)
{
    struct story *story = user;
    if (story->capacity - story->length < 200) {
        story->capacity = 2 * story->capacity + 1000;
        story->text = realloc(story->text, story->capacity);
        CHECK(story->text != NULL);
    }
    story->length += (size_t)snprintf(
        story->text + story->length, 200, "%llu %d %d %d %u %llu %u %zu %d\n",
        (unsigned long long)event->time_ns, (int)event->kind, event->rank, event->from,
        event->object, (unsigned long long)event->version, event->tag, event->bytes, event->signal);
    if (event->kind == WEFT_VIRTUAL_ARRIVE && event->signal && event->rank == 1) {
        story->overtaken += event->version < story->latest;
        story->latest = event->version;
    }
}

static int do_much(struct weft_context *context, void *user)
{
    OK(pass_signals(context, user));
    return add_ranks(context, NULL);
}

Test(virtual, a_seed_determines_every_event)
{
    struct story stories[3] = {{0}};
    struct weft_virtual_result results[3];
    size_t overtaken = 0;
    for (uint64_t seed = 0; seed < 5; seed++) {
        for (int i = 0; i < 3; i++) {
            int passed[6] = {0};
            struct weft_virtual_config config = with_seed(seed + (i == 2 ? 100 : 0));
            config.delay_ns = 30000;
            config.heavy_share = 0.1;
            config.heavy_ns = 1000000;
            config.duplicate_share = 0.2;
            config.pauses_per_second = 10000;
            config.pause_ns = 50000;
            config.net.o = 0.3;
            config.net.G = 0.001;
            config.reduce_ns_per_byte = 1;
            config.trace = tell;
            config.trace_user = &stories[i];
            config.result = &results[i];
            stories[i].length = 0;
            OK(weft_virtual_run(6, &config, do_much, passed));
            overtaken += stories[i].overtaken;
        }
        cr_assert(memcmp(&results[0], &results[1], sizeof results[0]) == 0);
        cr_assert(stories[0].length == stories[1].length &&
                  memcmp(stories[0].text, stories[1].text, stories[0].length) == 0);
        cr_assert(results[0].hash != results[2].hash);
    }
    cr_assert(overtaken > 0);
    for (int i = 0; i < 3; i++)
        free(stories[i].text);
}

/* ---- without payloads, and operations that take time ---- */

static int many_allreduces(struct weft_context *context, void *user)
{
    struct weft_run *run = allreduce(context, 1 << 24);
    OK(weft_run_bind_name(run, "send", NULL));
    OK(weft_run_bind_name(run, "recv", NULL));
    for (int i = 0; i < 2; i++)
        OK(weft_run_execute(run));
    weft_run_destroy(run);
    return meet_and_look(context, user);
}

Test(virtual, thousands_of_ranks_without_payloads)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    int size = 200;
#else
    int size = 4096;
#endif
    uint64_t met;
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    OK(weft_virtual_run(size, &config, meet_and_look, &met));
    config.no_payload = 1;
    config.net.G = 0.0001;
    OK(weft_virtual_run(size / 4, &config, many_allreduces, &met));
}

static int count_call(struct weft_call *call)
{
    ++*(int *)call->user;
    return WEFT_OK;
}

static uint64_t price(void *user, int rank, const char *op, size_t bytes)
{
    (void)rank;
    CHECK(strcmp(op, "count") == 0);
    return *(uint64_t *)user + bytes;
}

static int compute(struct weft_context *context, void *user)
{
    struct weft_schedule *s = new_schedule(weft_context_rank(context), weft_context_size(context));
    weft_slot_t slot = weft_schedule_buffer(s, "x", WEFT_I64, 10, WEFT_BUFFER_INOUT);
    struct weft_region region = weft_at(slot, 0, 10);
    weft_node_t first = weft_schedule_compute(s, user, &region, 1, 1, 0);
    weft_schedule_order(s, first, weft_schedule_compute(s, user, &region, 1, 1, 0));
    struct weft_run *run = make_run(context, commit(s), NULL);
    int64_t x[10] = {0};
    OK(weft_run_bind(run, 0, x));
    OK(weft_run_execute(run));
    CHECK(weft_context_now(context) == 2 * (5000 + 80 + 3));
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual, operations_take_the_time_they_are_given)
{
    int calls = 0;
    uint64_t ns = 5000;
    struct weft_op *op = NULL;
    struct weft_op_config settings;
    weft_op_config_init(&settings);
    settings.name = "count";
    settings.compute = count_call;
    settings.user = &calls;
    OK(weft_op_create(&op, &settings));
    struct weft_virtual_config config = with_seed(5);
    config.compute_ns = price;
    config.compute_user = &ns;
    config.node_ns = 3;
    OK(weft_virtual_run(4, &config, compute, op));
    cr_assert_eq(calls, 8);
    weft_op_release(op);
}

/* ---- the wait-avoiding object ---- */

enum { ELEMENTS = 40, STEPS = 23, SYNC = 4 };

static int average_models(struct weft_context *context, void *user)
{
    float(*synchronised)[ELEMENTS] =
        user; /* after each synchronisation, as its first rank had it */
    float model[ELEMENTS] = {0};
    struct weft_piece tensor = {model, ELEMENTS};
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;
    uint64_t rank = (uint64_t)weft_context_rank(context), random = rank + 1;
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.sync_period = SYNC;
    OK(weft_group_average_create(&average, context, &config));
    for (int step = 0; step < STEPS; step++) {
        struct weft_group_average_result result;
        for (int i = 0; i < ELEMENTS; i++)
            model[i] += (float)(rank + 1) / (float)(i + step + 1);
        random = random * 6364136223846793005u + 1442695040888963407u;
        OK(weft_sleep(context, (random >> 40) % (rank % 8 == 0 ? 3000000 : 300000)));
        OK(weft_group_average_step(average, &result));
        CHECK(result.synchronised == ((step + 1) % SYNC == 0));
        if (!result.synchronised)
            continue;
        float *shared = synchronised[step / SYNC];
        if (shared[0] == 0)
            memcpy(shared, model, sizeof model);
        CHECK(memcmp(shared, model, sizeof model) == 0);
    }
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

static void average_on(int size, uint64_t seed)
{
    float synchronised[STEPS / SYNC + 1][ELEMENTS] = {{0}};
    struct weft_virtual_config config = with_seed(seed);
    config.delay_ns = 50000 * (seed % 2);
    config.heavy_share = 0.02 * (double)(seed % 3);
    config.heavy_ns = 2000000;
    config.duplicate_share = 0.3 * (double)(seed % 2);
    config.pauses_per_second = seed % 4 ? 0 : 200;
    config.pause_ns = 1000000;
    int status = weft_virtual_run(size, &config, average_models, synchronised);
    cr_assert_eq(status, WEFT_OK, "P=%d: %s", size, weft_error_text());
}

Test(virtual, wait_avoiding_averages)
{
    static const int sizes[] = {1, 2, 3, 5, 6, 8, 13, 17, 33, 64};
    const char *count = getenv("WEFT_TEST_SEEDS");
    uint64_t seeds = count != NULL ? strtoull(count, NULL, 10) : 60;
    for (uint64_t seed = 0; seed < seeds; seed++)
        average_on(sizes[seed % 10], seed);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    average_on(1024, 1000);
#endif
}

/* ---- traces ---- */

static size_t read_trace(const char *directory, int rank, int size, int number, char *text,
                         size_t room)
{
    char path[300];
    snprintf(path, sizeof path, "%s/weft-trace.%d-of-%d.%d.%d.json", directory, rank, size,
             (int)getpid(), number);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    size_t length = fread(text, 1, room, file);
    cr_assert(length > 1000 && length < room);
    fclose(file);
    remove(path);
    return length;
}

Test(virtual, a_seed_determines_the_trace_files)
{
    enum { SIZE = 5, ROOM = 1 << 20 };
    static char texts[2][ROOM];
    char directory[] = "/tmp/weft-virtual-XXXXXX";
    cr_assert_not_null(mkdtemp(directory));
    setenv("WEFT_TRACE", directory, 1);
    for (int i = 0; i < 2; i++) {
        int passed[6] = {0};
        struct weft_virtual_config config = with_seed(77);
        config.delay_ns = 30000;
        config.net.o = 0.3;
        OK(weft_virtual_run(SIZE, &config, do_much, passed));
    }
    unsetenv("WEFT_TRACE");
    for (int r = 0; r < SIZE; r++) {
        size_t first = read_trace(directory, r, SIZE, 0, texts[0], ROOM);
        size_t second = read_trace(directory, r, SIZE, 1, texts[1], ROOM);
        cr_assert(first == second && memcmp(texts[0], texts[1], first) == 0, "rank %d", r);
    }
    cr_assert_eq(rmdir(directory), 0);
}

/* ---- memory runs out ---- */

static int try_much(struct weft_context *context, void *user)
{
    (void)user;
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int64_t in[5] = {0}, out[5];
    weft_template_params_init(&params);
    params.count = 5;
    params.dtype = WEFT_I64;
    int status = weft_template_run(&run, context, "allreduce", &params);
    if (status == WEFT_OK)
        status = weft_run_bind_name(run, "send", in);
    if (status == WEFT_OK)
        status = weft_run_bind_name(run, "recv", out);
    if (status == WEFT_OK)
        status = weft_sleep(context, 1000);
    for (int i = 0; i < 2 && status == WEFT_OK; i++)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    return status;
}

Test(virtual, memory_may_run_out_anywhere)
{
    struct weft_virtual_config config = with_seed(1);
    config.reduce_ns_per_byte = 1;
    config.delay_ns = 100;
    int failures = 0;
    long n = 1, left;
    do {
        atomic_store(&weft__alloc_countdown, n);
        int status = weft_virtual_run(3, &config, try_much, NULL);
        left = atomic_load(&weft__alloc_countdown);
        atomic_store(&weft__alloc_countdown, -1);
        cr_assert(status == WEFT_OK || (left <= 0 && weft_error_text()[0] != '\0'),
                  "allocation %ld: %s", n, weft_status_name(status));
        failures += status != WEFT_OK;
        n++;
    } while (left <= 0 && n < 20000);
    cr_assert(n < 20000 && failures > n / 2, "%d of %ld", failures, n);
}
