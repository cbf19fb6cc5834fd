/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank dies in virtual time: what fails with it, what goes on, and what the texts say. */
#include <criterion/criterion.h>

#include "support/virtual_ranks.h"

enum { RANKS = 5, DEAD = 2 };
#define DIES_AT UINT64_C(100000)
#define LATER   UINT64_C(1000000) /* all have heard of it by then */

static void play(weft_rank_fn fn)
{
    struct weft_virtual_fault fault = {.rank = DEAD, .at_ns = DIES_AT, .for_ns = WEFT_NEVER};
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct weft_virtual_config config = with_seed(seed);
        config.faults = &fault;
        config.fault_count = 1;
        config.deaths = 1;
        config.death_ns = seed * 1000;
        config.delay_ns = 500;
        cr_assert(weft_virtual_run(RANKS, &config, fn, NULL) == WEFT_OK, "%s", weft_error_text());
    }
}

/* A message from each of `from` to the next of the chain; -1: the end. */
static struct weft_run *chain(struct weft_context *context, const int *ranks, int64_t *x)
{
    struct weft_schedule *s = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    int rank = weft_context_rank(context);
    OK(weft_schedule_create(&s, rank, RANKS));
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    weft_node_t before = -1;
    for (int i = 0; ranks[i] >= 0; i++) {
        if (ranks[i] != rank)
            continue;
        if (i > 0)
            before = weft_schedule_add_recv(s, weft_region_at(slot, 0, 1), ranks[i - 1], 0);
        if (ranks[i + 1] < 0)
            continue;
        weft_node_t send = weft_schedule_add_send(s, weft_region_at(slot, 0, 1), ranks[i + 1], 0);
        if (before >= 0)
            OK(weft_schedule_add_order(s, before, send));
    }
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    OK(weft_run_create(&run, context, plan, NULL));
    weft_plan_destroy(plan);
    OK(bind_name(run, "x", x));
    return run;
}

/* 2 would send to 3, that to 4: these fail, though 4 has nothing to do with 2. 0 to 1 goes on. */
static int runs(struct weft_context *context, void *user)
{
    static const int through[] = {DEAD, 3, 4, -1}, beside[] = {0, 1, -1}, to[] = {0, DEAD, -1};
    int rank = weft_context_rank(context);
    int64_t x = rank, y = rank, z = rank;
    struct weft_run *needs = chain(context, through, &x);
    struct weft_run *free_of_it = chain(context, beside, &y);
    struct weft_run *late = chain(context, to, &z);
    (void)user;
    if (rank == DEAD)
        return weft_context_sleep(context, 2 * LATER);
    OK(weft_run_start(needs));
    if (rank >= 3) {
        CHECK_STATUS(weft_run_wait(needs, WEFT_NEVER), WEFT_ERR_PEER);
        weft_rank_state_t state;
        const char *how;
        OK(weft_context_rank_state(context, DEAD, &state, &how));
        CHECK(state == WEFT_RANK_DEAD && strstr(how, "stopped at 0.000100000 s"));
        CHECK_TEXT(weft_run_error(needs), "rank 2 has died: stopped at 0.000100000 s");
        if (rank == 4)
            CHECK_TEXT(weft_run_error(needs), "as rank 3 reports");
    } else {
        OK(weft_run_wait(needs, WEFT_NEVER));
    }
    OK(weft_context_sleep(context, LATER));
    OK(weft_run_execute(free_of_it));
    CHECK(y == (rank == 1 ? 0 : rank));
    int status = weft_run_execute(late);
    CHECK(status == (rank == 0 ? WEFT_ERR_PEER : WEFT_OK));
    if (rank == 0)
        CHECK_TEXT(weft_run_error(late), "rank 2 has died");
    weft_run_destroy(needs);
    weft_run_destroy(free_of_it);
    weft_run_destroy(late);
    return WEFT_OK;
}

Test(virtual_deaths, runs_that_need_it_fail_and_others_go_on)
{
    play(runs);
}

/* Objects of all contexts that it is in, those that are made afterwards, and the sequence. */
static int objects(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context);
    struct weft_context *with = NULL, *without = NULL, *none = NULL;
    struct weft_object *before = NULL, *after = NULL, *elsewhere = NULL, *apart = NULL;
    weft_rank_state_t state;
    const char *how;
    (void)user;
    OK(weft_context_split(context, 0, 0, &with));
    OK(weft_context_split(context, rank == DEAD, 0, &without));
    OK(weft_object_create(&before, context, NULL));
    OK(weft_object_create(&elsewhere, with, NULL));
    OK(weft_object_create(&apart, without, NULL));
    if (rank == DEAD)
        return weft_context_sleep(context, 2 * LATER);
    OK(weft_context_sleep(context, LATER));
    CHECK_STATUS(weft_object_check(before, __func__), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 2 has died: stopped at");
    CHECK_STATUS(weft_object_check(elsewhere, __func__), WEFT_ERR_PEER);
    OK(weft_object_check(apart, __func__));
    OK(weft_object_create(&after, context, NULL));
    CHECK_STATUS(weft_object_check(after, __func__), WEFT_ERR_PEER);
    CHECK_STATUS(weft_barrier(context), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 2 has died: stopped at");
    CHECK_STATUS(weft_barrier(with), WEFT_ERR_PEER);
    OK(weft_barrier(without));
    CHECK_STATUS(weft_context_split(context, 0, 0, &none), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 2 has died: stopped at");
    OK(weft_context_rank_state(with, DEAD, &state, &how));
    CHECK(state == WEFT_RANK_DEAD && strstr(how, "stopped at"));
    OK(weft_context_rank_state(context, 3, &state, &how));
    CHECK(state == WEFT_RANK_PRESENT && how[0] == '\0');
    OK(weft_context_destroy(with));
    OK(weft_barrier(without));
    return WEFT_OK;
}

Test(virtual_deaths, whatever_spans_it_fails_everywhere)
{
    play(objects);
}

/* It has told all that it has called, as the others have: its end does not matter any more. */
static int splits(struct weft_context *context, void *user)
{
    struct weft_context *part = NULL, *with = NULL;
    weft_rank_state_t state;
    (void)user;
    if (weft_context_rank(context) > 0) {
        OK(weft_context_split(context, WEFT_COLOUR_NONE, 0, &part));
        return weft_context_sleep(context, 2 * LATER);
    }
    OK(weft_context_sleep(context, LATER));
    OK(weft_context_rank_state(context, DEAD, &state, NULL));
    CHECK(state == WEFT_RANK_DEAD);
    OK(weft_context_split(context, 0, 0, &part));
    CHECK(weft_context_size(part) == 1);
    CHECK_STATUS(weft_context_split(context, 0, 0, &with), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 2 has died: stopped at");
    return weft_context_destroy(part);
}

Test(virtual_deaths, a_split_that_it_has_taken_its_part_in_is_made)
{
    play(splits);
}

/* Who waits for a signal, and has to do with it, may wait for its signal. */
static int signals(struct weft_context *context, void *user)
{
    struct weft_schedule *s = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    int rank = weft_context_rank(context);
    (void)user;
    OK(weft_schedule_create(&s, rank, RANKS));
    if (rank == 0) {
        weft_schedule_add_event(s, 5);
        weft_schedule_add_signal(s, DEAD, 6);
    } else if (rank == DEAD) {
        weft_schedule_add_event(s, 6);
    }
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    OK(weft_run_create(&run, context, plan, NULL));
    weft_plan_destroy(plan);
    if (rank == DEAD)
        return weft_context_sleep(context, 2 * LATER);
    int status = weft_run_execute(run);
    CHECK(status == (rank == 0 ? WEFT_ERR_PEER : WEFT_OK));
    if (rank == 0)
        CHECK_TEXT(weft_run_error(run), "rank 2 has died");
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual_deaths, who_may_wait_for_its_signal_fails)
{
    play(signals);
}

/* Where nobody would tell of a death nobody shrinks. */
static int refused(struct weft_context *context, void *user)
{
    struct weft_context *left = NULL;
    (void)user;
    CHECK_STATUS(weft_context_shrink(context, &left), WEFT_ERR_UNSUPPORTED);
    CHECK(!left);
    return WEFT_OK;
}

Test(virtual_deaths, it_is_unsupported_where_deaths_are_not_told)
{
    struct weft_virtual_config config = with_seed(1);
    struct weft_virtual_fault fault = {.rank = 0, .at_ns = LATER, .for_ns = WEFT_NEVER};
    config.faults = &fault;
    config.fault_count = 1;
    cr_assert_eq(weft_virtual_run(3, &config, refused, NULL), WEFT_OK);
}
