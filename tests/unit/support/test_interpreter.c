/* SPDX-License-Identifier: BSD-3-Clause */
/* The plain interpreter finds what it is there to find: deadlocks, races, wrong results, messages
 * without counterpart; and it knows joins, events and choices. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/interpreter.h"

struct pair {
    struct weft_schedule *schedules[2];
    weft_slot_t in, out; /* the same on both */
};

static struct pair pair_create(void)
{
    struct pair pair;
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(weft_schedule_create(&pair.schedules[r], r, 2), WEFT_OK);
        pair.in = weft_schedule_add_slot(pair.schedules[r], "in", WEFT_I32, 4, WEFT_SLOT_INPUT);
        pair.out = weft_schedule_add_slot(pair.schedules[r], "out", WEFT_I32, 4, WEFT_SLOT_OUTPUT);
    }
    return pair;
}

/* Runs both and compares; `in` of rank r is r + 1 everywhere. Returns the first status not 0. */
static int pair_run(struct pair *pair, uint64_t seed, int rendezvous, char *text, size_t size)
{
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)pair->schedules;
    struct interp_memory initial, memory;
    struct interp_options options = {.seed = seed, .rendezvous = rendezvous};
    cr_assert_eq(interp_memory_create(&initial, view, 2), 0);
    cr_assert_eq(interp_memory_create(&memory, view, 2), 0);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 4; i++)
            ((int32_t *)initial.slots[r][pair->in])[i] = ((int32_t *)memory.slots[r][pair->in])[i] =
                r + 1;
    int status = interp_run(view, 2, &memory, &options, text, size);
    if (!status)
        status = interp_check_results(view, 2, &initial, &memory, text, size);
    interp_memory_destroy(&initial);
    interp_memory_destroy(&memory);
    return status;
}

static void pair_destroy(struct pair *pair)
{
    weft_schedule_destroy(pair->schedules[0]);
    weft_schedule_destroy(pair->schedules[1]);
}

Test(interpreter, a_deadlock_under_rendezvous_is_none_when_eager)
{
    struct pair pair = pair_create();
    char text[256];
    for (int r = 0; r < 2; r++) {
        struct weft_schedule *s = pair.schedules[r];
        weft_node_t send = weft_schedule_add_send(s, weft_region_at(pair.in, 0, 4), 1 - r, 0);
        weft_node_t recv = weft_schedule_add_recv(s, weft_region_at(pair.out, 0, 4), 1 - r, 0);
        weft_schedule_add_order(s, send, recv);
    }
    cr_assert_eq(pair_run(&pair, 1, 0, text, sizeof text), 0, "%s", text);
    cr_assert_eq(pair_run(&pair, 1, 1, text, sizeof text), -1);
    cr_assert_not_null(strstr(text, "deadlock"));
    pair_destroy(&pair);
}

Test(interpreter, a_message_needs_a_counterpart_of_its_size)
{
    struct pair pair = pair_create();
    char text[256];
    weft_schedule_add_send(pair.schedules[0], weft_region_at(pair.in, 0, 4), 1, 7);
    cr_assert_eq(pair_run(&pair, 1, 0, text, sizeof text), -1);
    cr_assert_not_null(strstr(text, "counterpart"));
    weft_schedule_add_recv(pair.schedules[1], weft_region_at(pair.out, 0, 3), 0, 7);
    cr_assert_eq(pair_run(&pair, 1, 0, text, sizeof text), -1);
    cr_assert_not_null(strstr(text, "size"));
    pair_destroy(&pair);
}

Test(interpreter, a_result_that_is_not_there_is_found)
{
    struct pair pair = pair_create();
    char text[256];
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(pair.out, 0, 4),
                                 .from = "in",
                                 .first = 1,
                                 .ranks = 1};
    weft_schedule_add_copy(pair.schedules[0], weft_region_at(pair.out, 0, 4),
                           weft_region_at(pair.in, 0, 4));
    cr_assert_eq(weft_schedule_add_result(pair.schedules[0], &result), WEFT_OK);
    cr_assert_eq(pair_run(&pair, 1, 0, text, sizeof text), 1);
    cr_assert_not_null(strstr(text, "element 0"));
    pair_destroy(&pair);
}

Test(interpreter, a_race_is_found_and_an_order_ends_it)
{
    struct pair pair = pair_create();
    struct weft_schedule *s = pair.schedules[0];
    char text[256];
    weft_node_t recv = weft_schedule_add_recv(s, weft_region_at(pair.out, 0, 3), 1, 0);
    weft_node_t copy =
        weft_schedule_add_copy(s, weft_region_at(pair.out, 2, 2), weft_region_at(pair.in, 0, 2));
    cr_assert_eq(interp_find_race(s, text, sizeof text), 1);
    cr_assert_not_null(strstr(text, "element 2"));
    weft_node_t join = weft_schedule_add_join(s);
    weft_schedule_add_order(s, recv, join);
    weft_schedule_add_order(s, join, copy);
    cr_assert_eq(interp_find_race(s, text, sizeof text), 0);
    /* A second way into the join, of which one is enough: recv and copy are not ordered any more.
     */
    weft_schedule_add_order(s, weft_schedule_add_join(s), join);
    weft_schedule_set_any(s, join);
    cr_assert_eq(interp_find_race(s, text, sizeof text), 1);
    pair_destroy(&pair);
}

/* Of two events in a choice one fires; an ANY node starts after it, what hangs on the other is
 * retired, and the run ends. */
Test(interpreter, choices_retire_and_any_goes_on)
{
    struct pair pair = pair_create();
    struct weft_schedule *s = pair.schedules[0];
    char text[256];
    weft_node_t events[2] = {weft_schedule_add_event(s, WEFT_CHANNEL_NONE),
                             weft_schedule_add_event(s, 3)};
    weft_schedule_add_choice(s, events, 2);
    weft_node_t any =
        weft_schedule_add_copy(s, weft_region_at(pair.out, 0, 4), weft_region_at(pair.in, 0, 4));
    weft_node_t both = weft_schedule_add_join(s);
    weft_schedule_set_any(s, any);
    for (int i = 0; i < 2; i++) {
        weft_schedule_add_order(s, events[i], any);
        weft_schedule_add_order(s, events[i], both);
    }
    weft_schedule_add_signal(pair.schedules[1], 0, 3);
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(pair.out, 0, 4),
                                 .from = "in",
                                 .first = 0,
                                 .ranks = 1};
    weft_schedule_add_result(s, &result);
    for (uint64_t seed = 0; seed < 20; seed++)
        cr_assert_eq(pair_run(&pair, seed, seed & 1, text, sizeof text), 0, "%s", text);
    pair_destroy(&pair);
}
