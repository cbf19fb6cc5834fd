/* SPDX-License-Identifier: BSD-3-Clause */
/* Events that the application fires at times of their own: cases worked out by hand. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include <weft/weft.h>

/* A layer of computation ends at "first", another at "second"; each is then sent. What comes in
 * takes the processor of rank 1; its own event holds a copy. */
static const char text[] = "weft 1\n"
                           "schedule \"layers\" size 2\n"
                           "rank 0 {\n"
                           "  scratch t u8 200\n"
                           "  first: event\n"
                           "  n1: send t[0:100] to 1 tag 0 after first\n"
                           "  second: event after n1\n"
                           "  n3: send t[100:200] to 1 tag 1 after second\n"
                           "}\n"
                           "rank 1 {\n"
                           "  scratch t u8 200\n"
                           "  n0: recv t[0:100] from 0 tag 0\n"
                           "  n1: recv t[100:200] from 0 tag 1\n"
                           "  first: event\n"
                           "  n3: copy t[0:1] = t[1:2] after first, n0\n"
                           "}\n";

struct hand {
    struct weft_schedule **at;
    size_t count;
    struct weft_net net;
    struct weft_sim_config config;
};

static void hand_open(struct hand *hand, const char *document)
{
    cr_assert_eq(weft_schedule_read(document, strlen(document), NULL, 0, &hand->at, &hand->count),
                 WEFT_OK, "%s", weft_error_text());
    weft_net_init(&hand->net);
    hand->net.L = 5;
    hand->net.o = 1;
    hand->net.G = 0.1;
    weft_sim_config_init(&hand->config);
    hand->config.ranks = (int)hand->count;
    hand->config.schedules = (const struct weft_schedule *const *)hand->at;
    hand->config.net = &hand->net;
    hand->config.copy_us_per_byte = 2;
    hand->config.flags = WEFT_SIM_KEEP_NODES;
}

static void hand_close(struct hand *hand)
{
    for (size_t i = 0; i < hand->count; i++)
        weft_schedule_destroy(hand->at[i]);
    weft_memory_free((void *)hand->at);
}

static struct weft_sim_result *simulated(struct hand *hand, const struct weft_sim_firing *firings,
                                         size_t count)
{
    struct weft_sim_result *result = NULL;

    hand->config.firings = firings;
    hand->config.firing_count = count;
    cr_assert_eq(weft_simulate(&hand->config, &result), WEFT_OK, "%s", weft_error_text());
    return result;
}

static const struct weft_sim_node *node_of(const struct weft_sim_result *result, int rank, int n)
{
    return &result->nodes_at[result->first_node[rank] + (uint64_t)n];
}

static void is_at(double us, double expected, const char *what)
{
    cr_expect_float_eq(us, expected, 1e-9, "%s: %.9g, expected %.9g", what, us, expected);
}

Test(firing, a_node_waits_for_the_time_of_its_event)
{
    const struct weft_sim_firing firings[] = {{.label = "first", .rank = 0, .us = 100},
                                              {.label = "second", .rank = 0, .us = 300}};
    struct hand hand;
    hand_open(&hand, text);
    struct weft_sim_result *result = simulated(&hand, firings, 2);

    cr_expect(result->complete);
    is_at(node_of(result, 0, 0)->ready_us, 0, "an open event");
    is_at(node_of(result, 0, 0)->start_us, 100, "it fires");
    is_at(node_of(result, 0, 0)->end_us, 100, "it ends");
    is_at(node_of(result, 0, 1)->end_us, 101, "its send");
    is_at(node_of(result, 0, 2)->ready_us, 101, "the second is open");
    is_at(node_of(result, 0, 2)->end_us, 300, "and fires");
    is_at(result->time_us, 300 + 1 + 5 + 1 + 10, "the end");
    cr_assert_eq(result->path_length, 3);
    cr_expect(result->path[0].rank == 0 && result->path[0].node == 2);
    cr_expect_eq(result->path[0].reason, WEFT_SIM_TIME);
    cr_expect_eq(result->path[0].kind, WEFT_NODE_EVENT);
    is_at(result->path[0].start_us, 300, "the path begins");
    cr_expect_str_eq(weft_sim_reason_name(WEFT_SIM_TIME), "time");
    weft_sim_result_destroy(result);
    hand_close(&hand);
}

Test(firing, an_event_that_fires_early_waits_for_its_predecessors)
{
    const struct weft_sim_firing firings[] = {{.label = "first", .rank = 0, .us = 50},
                                              {.label = "second", .rank = 0, .us = 7}};
    struct hand hand;
    hand_open(&hand, text);
    struct weft_sim_result *result = simulated(&hand, firings, 2);

    is_at(node_of(result, 0, 2)->end_us, 51, "the second event");
    cr_expect_eq(result->path[0].reason, WEFT_SIM_TIME);
    cr_expect_eq(result->path[0].node, 0);
    weft_sim_result_destroy(result);
    hand_close(&hand);
}

/* The first message comes in from 6 to 17, the processor is busy until then. */
Test(firing, an_event_waits_for_the_processor)
{
    const struct weft_sim_firing firings[] = {{.label = "first", .rank = 1, .us = 8},
                                              {.label = "second", .rank = 0, .us = 300}};
    struct hand hand;
    hand_open(&hand, text);
    struct weft_sim_result *result = simulated(&hand, firings, 2);

    is_at(node_of(result, 1, 2)->end_us, 17, "the event");
    is_at(node_of(result, 1, 3)->end_us, 19, "the copy");
    weft_sim_result_destroy(result);
    hand_close(&hand);
}

Test(firing, the_last_entry_of_an_event_counts_and_nodes_do_for_labels)
{
    const struct weft_sim_firing firings[] = {
        {.label = "first", .rank = WEFT_SIM_EVERY_RANK, .us = 40},
        {.event = 2, .rank = 0, .us = 60},
        {.label = "first", .rank = 0, .us = 30},
        {.label = "second", .rank = WEFT_SIM_EVERY_RANK, .us = 90},
        {.event = 2, .rank = 0, .us = 70},
    };
    struct hand hand;
    hand_open(&hand, text);
    struct weft_sim_result *result = simulated(&hand, firings, 5);

    is_at(node_of(result, 0, 0)->end_us, 30, "first of rank 0");
    is_at(node_of(result, 1, 2)->end_us, 47, "first of rank 1, after a message");
    is_at(node_of(result, 0, 2)->end_us, 70, "second of rank 0");
    weft_sim_result_destroy(result);
    hand_close(&hand);
}

Test(firing, without_times_all_is_fired_at_the_start)
{
    const struct weft_sim_firing zero[] = {{.label = "first", .rank = WEFT_SIM_EVERY_RANK},
                                           {.label = "second", .rank = 0}};
    struct hand hand;
    hand_open(&hand, text);
    struct weft_sim_result *plain = simulated(&hand, NULL, 0);
    struct weft_sim_result *timed = simulated(&hand, zero, 2);

    is_at(timed->time_us, plain->time_us, "the end");
    cr_expect_eq(timed->path_length, plain->path_length);
    cr_expect_eq(timed->path[0].reason, WEFT_SIM_FIRST);
    for (int n = 0; n < 4; n++)
        for (int rank = 0; rank < 2; rank++) {
            is_at(node_of(timed, rank, n)->ready_us, node_of(plain, rank, n)->ready_us, "ready");
            is_at(node_of(timed, rank, n)->end_us, node_of(plain, rank, n)->end_us, "end");
        }
    weft_sim_result_destroy(plain);
    weft_sim_result_destroy(timed);
    hand_close(&hand);
}

/* Whoever comes first wakes the others: here rank 1, at 20. */
Test(firing, the_first_of_a_choice_wins)
{
    static const char choice[] = "weft 1\n"
                                 "schedule \"choice\" size 2\n"
                                 "rank 0 {\n"
                                 "  mine: event choice 0\n"
                                 "  n1: event channel 1 choice 0\n"
                                 "  n2: signal to 1 channel 1 after mine\n"
                                 "}\n"
                                 "rank 1 {\n"
                                 "  mine: event choice 0\n"
                                 "  n1: event channel 1 choice 0\n"
                                 "  n2: signal to 0 channel 1 after mine\n"
                                 "}\n";
    const struct weft_sim_firing firings[] = {{.label = "mine", .rank = 0, .us = 500},
                                              {.label = "mine", .rank = 1, .us = 20}};
    struct hand hand;
    hand_open(&hand, choice);
    struct weft_sim_result *result = simulated(&hand, firings, 2);

    cr_expect(result->complete && result->signals == 1);
    cr_expect(node_of(result, 0, 0)->retired && !node_of(result, 1, 0)->retired);
    is_at(node_of(result, 0, 1)->end_us, 20 + 1 + 5 + 1 + 0.8, "rank 0 hears of it");
    weft_sim_result_destroy(result);
    hand_close(&hand);
}

static void refused(struct hand *hand, const struct weft_sim_firing *firings, size_t count,
                    const char *word)
{
    struct weft_sim_result *result = NULL;

    hand->config.firings = firings;
    hand->config.firing_count = count;
    cr_expect_eq(weft_simulate(&hand->config, &result), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), word), "\"%s\" does not say \"%s\"",
                       weft_error_text(), word);
    cr_expect_null(result);
}

Test(firing, what_cannot_be_fired_is_named)
{
    struct weft_sim_firing good = {.label = "first", .rank = 0, .us = 1}, bad;
    struct hand hand;

    hand_open(&hand, text);
    refused(&hand, NULL, 1, "config->firings is NULL, expected 1");
    bad = good, bad.rank = 2;
    refused(&hand, &bad, 1, "config->firings[0].rank is 2, expected WEFT_SIM_EVERY_RANK or 0..1");
    bad = good, bad.rank = -2;
    refused(&hand, &bad, 1, "config->firings[0].rank is -2");
    bad = good, bad.us = -1;
    refused(&hand, &bad, 1, "config->firings[0].us is -1, expected 0 to");
    bad = good, bad.us = 1e30;
    refused(&hand, &bad, 1, "config->firings[0].us is 1e+30");
    bad = good, bad.label = "third";
    refused(&hand, &bad, 1, "config->firings[0].label is \"third\"");
    bad = good, bad.label = "second", bad.rank = 1;
    refused(&hand, &bad, 1, "config->firings[0].label is \"second\"");
    bad = good, bad.label = NULL, bad.event = 1, bad.rank = 0;
    refused(&hand, &bad, 1, "config->firings[0].event is 1, expected the node of an event");
    hand_close(&hand);
}

Test(firing, no_memory_is_an_error)
{
    const struct weft_sim_firing firing = {.label = "first", .rank = 0, .us = 1};
    struct hand hand;
    int status = WEFT_ERR_MEMORY, failures = 0;

    hand_open(&hand, text);
    hand.config.firings = &firing;
    hand.config.firing_count = 1;
    for (long n = 1; status; n++) {
        struct weft_sim_result *result = NULL;

        weft__alloc_countdown = n;
        status = weft_simulate(&hand.config, &result);
        weft__alloc_countdown = -1;
        cr_assert(status == WEFT_OK || status == WEFT_ERR_MEMORY, "%s", weft_error_text());
        failures += status != WEFT_OK;
        weft_sim_result_destroy(result);
    }
    cr_expect(failures > 5);
    hand_close(&hand);
}
