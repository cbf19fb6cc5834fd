/* SPDX-License-Identifier: BSD-3-Clause */
/* The orders that a tracker adds: those that memory and values ask for, and no others. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <weft/tracker.h>
#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"
#include "support/interpreter.h"
#include "tests/support/compute.h"

struct made {
    struct weft_schedule *schedule;
    struct weft_tracker *tracker;
    weft_slot_t in, a, b;
};

static struct made make(void)
{
    struct made made;

    cr_assert_eq(weft_schedule_create(&made.schedule, 0, 2), WEFT_OK);
    made.in = weft_schedule_add_slot(made.schedule, "in", WEFT_F32, 100, WEFT_SLOT_INPUT);
    made.a = weft_schedule_add_slot(made.schedule, "a", WEFT_F32, 100, WEFT_SLOT_INOUT);
    made.b = weft_schedule_add_slot(made.schedule, "b", WEFT_F32, 100, WEFT_SLOT_SCRATCH);
    cr_assert_eq(weft_tracker_create(&made.tracker, made.schedule), WEFT_OK);
    return made;
}

/* Adds a copy of `count` elements; returns its node. */
static weft_node_t copy(struct made *made, weft_slot_t to, size_t to_at, weft_slot_t from,
                        size_t from_at, size_t count)
{
    return weft_tracker_add(made->tracker,
                            weft_schedule_add_copy(made->schedule, weft_region_at(to, to_at, count),
                                                   weft_region_at(from, from_at, count)));
}

/* Compares all orders with "0>1 1>2", frees everything. */
static void finish(struct made *made, const char *expected)
{
    char text[512] = "";

    cr_assert_eq(weft_schedule_status(made->schedule), WEFT_OK, "%s", weft_error_text());
    for (size_t e = 0; e < weft_schedule_edge_count(made->schedule); e++) {
        weft_node_t before, after;
        size_t used = strlen(text);

        cr_assert_eq(weft_schedule_get_edge(made->schedule, e, &before, &after), WEFT_OK);
        snprintf(text + used, sizeof text - used, "%s%d>%d", e ? " " : "", (int)before, (int)after);
    }
    cr_assert_str_eq(text, expected);
    weft_tracker_destroy(made->tracker);
    weft_schedule_destroy(made->schedule);
}

Test(tracker, readers_follow_the_writer_and_a_writer_follows_the_readers)
{
    struct made m = make();

    copy(&m, m.a, 0, m.in, 0, 10); /* writes a */
    copy(&m, m.b, 0, m.a, 0, 10);  /* two readers */
    copy(&m, m.b, 50, m.a, 0, 10);
    copy(&m, m.a, 0, m.in, 10, 10); /* writes it again: after both, the first is behind them */
    finish(&m, "0>1 0>2 2>3 1>3");
}

Test(tracker, a_writer_follows_a_writer_that_nobody_has_read)
{
    struct made m = make();

    copy(&m, m.a, 0, m.in, 0, 10);
    copy(&m, m.a, 5, m.in, 0, 10); /* half of it */
    copy(&m, m.b, 0, m.a, 0, 15);  /* of both */
    copy(&m, m.b, 20, m.a, 15, 5); /* of neither */
    finish(&m, "0>1 0>2 1>2");
}

Test(tracker, readers_of_the_same_and_of_inputs_are_not_ordered)
{
    struct made m = make();

    copy(&m, m.a, 0, m.in, 0, 10);
    copy(&m, m.a, 10, m.in, 0, 10);
    copy(&m, m.b, 0, m.a, 90, 5);
    copy(&m, m.b, 5, m.a, 90, 5);
    finish(&m, "");
}

Test(tracker, each_order_is_added_once_however_many_pieces_ask_for_it)
{
    struct made m = make();

    copy(&m, m.a, 0, m.in, 0, 40);
    for (size_t i = 0; i < 4; i++)
        copy(&m, m.b, 10 * i, m.a, 10 * i, 10); /* cuts a into four */
    copy(&m, m.b, 60, m.a, 0, 40);
    finish(&m, "0>1 0>2 0>3 0>4 0>5");
}

Test(tracker, knows_every_kind_of_node)
{
    struct made m = make();
    struct weft_region a = weft_region_at(m.a, 0, 10), b = weft_region_at(m.b, 0, 10);
    struct weft_op_config config;
    struct weft_op *op;
    weft_node_t node;

    weft_tracker_add(m.tracker, weft_schedule_add_recv(m.schedule, b, 1, 0));
    weft_tracker_add(m.tracker,
                     weft_schedule_add_reduce(m.schedule, weft_op_builtin(WEFT_SUM), a, a, b));
    weft_tracker_add(m.tracker, weft_schedule_add_send(m.schedule, a, 1, 0));
    weft_tracker_add(m.tracker, weft_schedule_add_join(m.schedule));
    weft_op_config_init(&config);
    config.name = "any";
    config.compute = (weft_compute_fn)abort;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    node = add_compute(m.schedule, op, (struct weft_region[]){b, a}, 2, 2, 0);
    cr_assert_eq(weft_tracker_add(m.tracker, node), node); /* reads b, writes a */
    weft_op_destroy(op);
    finish(&m, "0>1 1>2 0>4 2>4");
}

Test(tracker, readers_of_a_value_follow_the_node_that_produces_it)
{
    struct made m = make();
    weft_value_t value = weft_schedule_add_value(m.schedule, "n", 10);
    struct weft_region a = weft_region_at(m.a, 0, 10), some = weft_region_at(m.in, 0, 10);

    some.value = value;
    weft_tracker_add(m.tracker, weft_schedule_add_recv_up_to(m.schedule, a, 1, 0, value));
    weft_tracker_add(m.tracker, weft_schedule_add_send(m.schedule, some, 1, 0));
    finish(&m, "0>1");
}

Test(tracker, mistakes_are_refused)
{
    struct made m = make();
    struct weft_tracker *none = NULL;

    cr_assert_eq(weft_tracker_create(NULL, m.schedule), WEFT_ERR_INVALID);
    cr_assert_eq(weft_tracker_create(&none, NULL), WEFT_ERR_INVALID);
    cr_assert(!none);
    cr_assert_eq(weft_tracker_add(NULL, 0), WEFT_ERR_INVALID);
    weft_tracker_destroy(NULL);
    cr_assert_eq(weft_tracker_add(m.tracker, WEFT_ERR_MEMORY), WEFT_ERR_MEMORY);
    cr_assert_eq(weft_schedule_status(m.schedule), WEFT_OK);
    cr_assert_eq(weft_tracker_add(m.tracker, 3), WEFT_ERR_INVALID);
    cr_assert(strstr(weft_error_text(), "`node` is 3"), "%s", weft_error_text());
    cr_assert_eq(weft_schedule_status(m.schedule), WEFT_ERR_INVALID);
    weft_tracker_destroy(m.tracker);
    weft_schedule_destroy(m.schedule);
}

/* Random copies in a few cells of memory; 1 if everything went well, 0 without memory. */
static int random_copies(uint64_t seed, int count)
{
    struct made m = make();
    uint64_t random = seed;
    char text[512] = "";

    for (int i = 0; i < count; i++) {
        size_t length = 1 + weft__random(&random) % 20;
        weft_slot_t from = weft__random(&random) % 2 ? m.a : m.in;
        size_t from_at = weft__random(&random) % 40, to_at = 60 + weft__random(&random) % 20;

        if (weft__random(&random) % 2)
            copy(&m, m.a, to_at, from, from_at, length);
        else
            copy(&m, from == m.in ? m.a : m.b, from_at, from, to_at, length);
    }
    int status = weft_schedule_status(m.schedule);

    if (!status) {
        int found = interp_find_race(m.schedule, text, sizeof text);

        cr_assert_eq(found, 0, "seed %lu: %s", seed, text);
    }
    weft_tracker_destroy(m.tracker);
    weft_schedule_destroy(m.schedule);
    cr_assert(!status || status == WEFT_ERR_MEMORY);
    return !status;
}

Test(tracker, no_two_of_its_nodes_race)
{
    for (uint64_t seed = 1; seed <= 300; seed++)
        cr_assert(random_copies(seed, 30));
}

Test(tracker, without_memory_the_schedule_keeps_the_error)
{
    long calls = atomic_load(&weft__alloc_calls);
    struct made m = make();
    long begin = atomic_load(&weft__alloc_calls) - calls;

    weft_tracker_destroy(m.tracker);
    weft_schedule_destroy(m.schedule);
    for (long call = begin + 1, done = 0; !done; call++) {
        atomic_store(&weft__alloc_countdown, call);
        done = random_copies(7, 200);
        atomic_store(&weft__alloc_countdown, -1);
    }
}
