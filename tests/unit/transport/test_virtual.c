/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual ranks: time, waits, and the end of everything. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support/virtual_ranks.h"
#include "tests/support/bind.h"

/* ---- a collective ---- */

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
    OK(weft_context_sleep(context, 0));
    CHECK(weft_context_now(context) == 0);
    OK(weft_context_sleep(context, rank * 1000000000));
    CHECK(weft_context_now(context) == rank * 1000000000);
    return WEFT_OK;
}

Test(virtual, sleeping_takes_virtual_time_alone)
{
    struct weft_virtual_result result = {.struct_size = sizeof result};
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
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    OK(weft_schedule_set_name(s, "lonely"));
    weft_schedule_add_recv(s, weft_region_at(slot, 0, 1), from, tag);
    struct weft_run *run = make_run(context, commit(s), config);
    OK(bind_slot(run, 0, x));
    return run;
}

static struct weft_run *transmit(struct weft_context *context, int to, uint32_t tag, int64_t *x)
{
    struct weft_schedule *s = new_schedule(weft_context_rank(context), weft_context_size(context));
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INPUT);
    weft_schedule_add_send(s, weft_region_at(slot, 0, 1), to, tag);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(bind_slot(run, 0, x));
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
        OK(weft_context_sleep(context, 1000000000));
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
    CHECK_STATUS(weft_run_wait(run, 400000000), WEFT_IN_PROGRESS);
    CHECK(weft_context_now(context) == 400000000);
    OK(weft_context_sleep(context, 5000000000));
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
        OK(weft_context_sleep(context, 3000000));
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
    while ((status = weft_run_wait(run, 0)) == WEFT_IN_PROGRESS)
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
    OK(weft_context_sleep(context, (uint64_t)weft_context_rank(context) * 1000));
    int status = weft_run_execute(run);
    CHECK_STATUS(status, WEFT_ERR_DEADLOCK);
    CHECK_TEXT(weft_error_text(), "lonely");
    CHECK_TEXT(weft_error_text(), "tag 44");
    CHECK_STATUS(weft_context_sleep(context, 1), WEFT_ERR_DEADLOCK);
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

Test(virtual, waiting_for_a_rank_that_has_stopped_is_a_deadlock)
{
    struct weft_virtual_fault stop = {.rank = 1, .at_ns = 0, .for_ns = WEFT_NEVER};
    struct weft_virtual_config config = with_seed(2);
    config.faults = &stop;
    config.fault_count = 1;
    cr_assert_eq(weft_virtual_run(3, &config, receive_in_vain, NULL), WEFT_ERR_DEADLOCK);
}

static int sleep_for_ever(struct weft_context *context, void *user)
{
    (void)user;
    int status = WEFT_OK;
    while (status == WEFT_OK)
        status = weft_context_sleep(context, 1000000);
    return status;
}

Test(virtual, time_is_limited)
{
    struct weft_virtual_config config = with_seed(1);
    config.limit_ns = 50000000;
    cr_assert_eq(weft_virtual_run(5, &config, sleep_for_ever, NULL), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_error_text(), "limit");
}

/* Its function returns, though its pause would have lasted longer than the time that there is. */
Test(virtual, time_ends_in_a_pause)
{
    const struct weft_virtual_fault fault = {.rank = 1, .at_ns = 1500000, .for_ns = 1000000000};
    struct weft_virtual_config config = with_seed(1);
    config.limit_ns = 50000000;
    config.faults = &fault;
    config.fault_count = 1;
    cr_assert_eq(weft_virtual_run(3, &config, sleep_for_ever, NULL), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_error_text(), "limit");
}

static int fail_on_two(struct weft_context *context, void *user)
{
    (void)user;
    OK(weft_context_sleep(context, 1000));
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
        OK(weft_context_sleep(context, (uint64_t)(1 + (rank * 7 + i) % 5)));
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
    OK(weft_context_sleep(context, 10));
    CHECK(much[0] + much[sizeof much - 1] == 3);
    return WEFT_OK;
}

static int count_nodes(struct weft_context *context, void *user)
{
    (void)user;
    int nodes[10];
    OK(weft_context_hosts(context, nodes));
    for (int r = 0; r < 10; r++)
        CHECK(nodes[r] == r / 4);
    CHECK(weft_context_host_count(context) == 3);
    CHECK(strcmp(weft_context_transport(context), "virtual") == 0);
    return WEFT_OK;
}

Test(virtual, functions_are_as_on_other_ranks)
{
    struct weft_virtual_config config = with_seed(1);
    cr_assert_eq(weft_virtual_run(5, NULL, return_three, NULL), WEFT_RETIRED);
    OK(weft_virtual_run(17, &config, keep_texts_apart, NULL));
    OK(weft_virtual_run(3, &config, use_stack, NULL));
    config.ranks_per_host = 4;
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
