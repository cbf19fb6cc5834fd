/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order of issue (runtime/graph/issue.h) and weft_check() with `in_order`: all templates and
 * random graphs under an executor of groups, random interleavings, and the search through all
 * orders; circles; events, choices and what they leave to the ranks to agree on.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "runtime/graph/issue.h"
#include "runtime/graph/lists.h"
#include "runtime/plan/plan.h"
#include "support/draw.h"
#include "support/in_order.h"

enum { MOST_RANKS = 9 };

/* ---- teams ---- */

struct team {
    struct weft_schedule *at[MOST_RANKS];
    struct weft_plan *plans[MOST_RANKS];
    struct weft__issue_node *nodes[MOST_RANKS];
    struct weft__issue_list lists[MOST_RANKS];
    struct weft__issue_joined joined;
    struct weft__issue_order order;
    int size;
};

/* All messages are to run in order, or those of device memory. */
static void order_team(struct team *team, int all, uint64_t pair_bytes)
{
    for (int r = 0; r < team->size; r++) {
        cr_assert_eq(weft_schedule_commit(team->at[r], &team->plans[r]), WEFT_OK, "%s",
                     weft_error_text());
        cr_assert_eq(weft__plan_issue(team->plans[r], &team->nodes[r], &team->lists[r]), WEFT_OK);
        for (uint32_t n = 0; all && n < team->lists[r].count; n++)
            team->nodes[r][n].flags |= WEFT__ISSUE_IN_ORDER;
    }
    cr_assert_eq(weft__issue_join(&team->joined, team->lists, team->size), 0);
    team->joined.issue.pair_bytes = pair_bytes;
    cr_assert_eq(weft__issue_order(&team->joined.issue, &team->order), 0);
}

static void free_team(struct team *team)
{
    weft__issue_order_free(&team->order);
    weft__issue_joined_free(&team->joined);
    for (int r = 0; r < team->size; r++) {
        weft__free(team->nodes[r]);
        weft_plan_destroy(team->plans[r]);
        weft_schedule_destroy(team->at[r]);
    }
}

static struct team read_team(const char *text, int all)
{
    struct team team = {.size = 0};
    struct weft_schedule **schedules;
    size_t count;

    cr_assert_eq(weft_schedule_read(text, strlen(text), NULL, 0, &schedules, &count), WEFT_OK, "%s",
                 weft_error_text());
    cr_assert_leq(count, MOST_RANKS);
    for (; (size_t)team.size < count; team.size++)
        team.at[team.size] = schedules[team.size];
    weft_memory_free(schedules);
    order_team(&team, all, 0);
    return team;
}

/* ---- execution ---- */

static struct in_order_groups groups_of(const struct weft__issue *issue,
                                        const struct weft__issue_order *order, uint32_t *group)
{
    for (uint32_t i = 0; i < order->start[issue->size]; i++)
        group[i] = order->round[order->sequence[i]];
    return (struct in_order_groups){order->sequence, order->start, group};
}

/* Under the order everything ends that ends without one, whichever events are fired, however the
 * ranks are interleaved. */
static void expect_same_ends(const struct weft__issue *issue, const struct weft__issue_order *order,
                             const uint8_t *fires, uint64_t random, const char *what)
{
    uint32_t nodes = issue->base[issue->size];
    uint32_t *group = calloc(nodes + 1, sizeof *group);
    struct in_order_groups groups = groups_of(issue, order, group);
    struct in_order_outcome free_run = {.ended = calloc(nodes + 1, 1)};
    struct in_order_outcome ordered = {.ended = calloc(nodes + 1, 1)};

    in_order_execute(issue, NULL, fires, 0, &free_run);
    in_order_execute(issue, &groups, fires, random, &ordered);
    cr_expect_not(ordered.mismatch, "%s: two ranks issue in different orders", what);
    cr_expect_eq(ordered.ended_count, free_run.ended_count, "%s: %u nodes end, %u without an order",
                 what, ordered.ended_count, free_run.ended_count);
    free(ordered.ended);
    free(free_run.ended);
    free(group);
}

/* ---- templates ---- */

static struct team build_template(const struct weft_template *template,
                                  const struct weft_template_params *params, int size)
{
    struct team team = {.size = 0};

    for (; team.size < size; team.size++) {
        int status =
            weft_template_build(template->name, team.size, size, params, &team.at[team.size]);

        if (status == WEFT_ERR_UNSUPPORTED || status == WEFT_ERR_INVALID) {
            while (team.size)
                weft_schedule_destroy(team.at[--team.size]);
            return team;
        }
        cr_assert_eq(status, WEFT_OK, "%s: %s", template->name, weft_error_text());
    }
    return team;
}

static int has_choices(const struct team *team)
{
    int found = 0;

    for (uint32_t n = 0; n < team->joined.base[team->size]; n++)
        found |= team->joined.nodes[n].flags & WEFT__ISSUE_CHOICE;
    return found;
}

static int order_template(const struct weft_template *template, const char *algo, int size,
                          struct draw *draw)
{
    struct weft_template_params params;
    struct team team;
    char what[160];
    int segments = (int)draw_below(draw, 3);

    weft_template_params_init(&params);
    params.algo = algo;
    params.count = draw_below(draw, 2) ? 37 : 3;
    params.segment = segments == 0 ? WEFT_SEGMENT_NONE : segments == 1 ? 0 : 24;
    params.root = strstr(template->parameters, "root") ? (int)draw_below(draw, (unsigned)size) : 0;
    team = build_template(template, &params, size);
    if (!team.size)
        return 0;
    order_team(&team, 1, segments == 2 ? 48 : 0);
    snprintf(what, sizeof what, "%s %s P=%d", template->name, algo ? algo : "", size);
    cr_expect_eq(team.order.cycle_count, 0, "%s", what);
    if (has_choices(&team))
        cr_expect(team.order.unknown || !team.order.messages, "%s", what);
    else
        cr_expect_eq(2 * team.order.messages, team.order.start[size], "%s", what);
    for (int i = 0; i < 3; i++)
        expect_same_ends(&team.joined.issue, &team.order, NULL, draw_word(draw) | 1, what);
    free_team(&team);
    return 1;
}

Test(order, every_template_has_one_that_cannot_block)
{
    struct draw draw = {1};
    int found = 0;

    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);

        for (size_t a = 0; a < template->algorithm_count; a++)
            for (int size = 1; size <= MOST_RANKS; size++)
                for (int i = 0; i < 3; i++)
                    found += order_template(template, template->algorithms[a].name, size, &draw);
    }
    cr_expect_gt(found, 1000);
}

/* ---- random graphs ---- */

enum { MOST_NODES = 16, MOST_ENDS = 3 };

/* Lists of 2 or 3 ranks. */
struct graph {
    struct weft__issue_node nodes[3][MOST_NODES];
    uint32_t count[3], first[3][MOST_NODES + 1], after[3][MOST_NODES * MOST_NODES];
    struct weft__issue_list lists[3];
    int size;
};

static void add(struct graph *g, int rank, struct weft__issue_node node)
{
    g->nodes[rank][g->count[rank]++] = node;
}

/* Nodes of a rank change places, so that the order in which they are listed says nothing. */
static void shuffle(struct graph *g, int rank, struct draw *draw)
{
    for (uint32_t i = g->count[rank]; i > 1; i--) {
        uint32_t k = draw_below(draw, i);
        struct weft__issue_node moved = g->nodes[rank][i - 1];

        g->nodes[rank][i - 1] = g->nodes[rank][k];
        g->nodes[rank][k] = moved;
    }
}

static void draw_edges(struct graph *g, int rank, struct draw *draw, unsigned one_of)
{
    uint32_t edges = 0;

    for (uint32_t n = 0; n < g->count[rank]; n++) {
        g->first[rank][n] = edges;
        for (uint32_t m = n + 1; m < g->count[rank]; m++)
            if (draw_below(draw, one_of) == 0)
                g->after[rank][edges++] = m;
        if (n && draw_below(draw, 4) == 0)
            g->nodes[rank][n].flags |= WEFT__ISSUE_ANY;
    }
    g->first[rank][g->count[rank]] = edges;
    g->lists[rank] =
        (struct weft__issue_list){g->nodes[rank], g->first[rank], g->after[rank], g->count[rank]};
}

/* `events`: with events of the application and signals. At most 3 ends in order on a rank. */
static void draw_graph(struct graph *g, struct draw *draw, int events, unsigned most)
{
    unsigned messages = 1 + draw_below(draw, most);
    int ends[3] = {0};

    *g = (struct graph){.size = 2 + (int)draw_below(draw, 2)};
    for (unsigned m = 0; m < messages; m++) {
        int from = (int)draw_below(draw, (unsigned)g->size);
        int to = (int)draw_below(draw, (unsigned)g->size);
        struct weft__issue_node node = {.peer = to, .tag = m / 2, .kind = WEFT_NODE_SEND};

        if (draw_below(draw, 5) && ends[from] < MOST_ENDS && ends[to] < MOST_ENDS - (from == to)) {
            node.flags = WEFT__ISSUE_IN_ORDER;
            ends[from]++;
            ends[to]++;
        }
        add(g, from, node);
        node.peer = from;
        node.kind = WEFT_NODE_RECV;
        add(g, to, node);
    }
    for (int r = 0; r < g->size; r++) {
        unsigned others = draw_below(draw, 3);

        for (unsigned i = 0; i < others; i++) {
            struct weft__issue_node node = {.peer = -1, .kind = WEFT_NODE_JOIN};

            if (events && draw_below(draw, 3)) {
                node.kind = WEFT_NODE_EVENT;
                node.tag = draw_below(draw, 2) ? 7 : WEFT_CHANNEL_NONE;
            } else if (events && draw_below(draw, 2)) {
                node.kind = WEFT_NODE_SIGNAL;
                node.peer = (int)draw_below(draw, (unsigned)g->size);
                node.tag = 7;
            }
            add(g, r, node);
        }
        shuffle(g, r, draw);
        draw_edges(g, r, draw, 2 + draw_below(draw, 4));
    }
}

/* Tags are two by two here, so which ends belong together depends on where they stand; and only if
 * both are of that memory do they run in order. */
static int can_end(const struct weft__issue *issue)
{
    struct in_order_outcome outcome = {.ended = calloc(issue->base[issue->size] + 1, 1)};

    in_order_execute(issue, NULL, NULL, 0, &outcome);
    free(outcome.ended);
    return outcome.ended_count == issue->base[issue->size];
}

/* The next of all ways to put a rank's ends into groups: each end has a group, 1 .. 3; ends of one
 * group stand in the order of `send`, as their numbers say. 0: there are no more. */
static int next_way(uint32_t *group, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (++group[i] <= MOST_ENDS)
            return 1;
        group[i] = 1;
    }
    return 0;
}

/* Whether any groups at all let everything end: all ways of all ranks. */
static int search(const struct weft__issue *issue)
{
    uint32_t nodes = issue->base[issue->size];
    uint32_t first[4] = {0}, node[9], group[9], sorted[9], key[9], count = 0;
    uint8_t *ended = calloc(nodes + 1, 1);
    int found = 0;

    for (int r = 0; r < issue->size; r++) {
        for (uint32_t n = issue->base[r]; n < issue->base[r + 1]; n++)
            if (weft__issue_in_order(issue, n) && count < 9) {
                group[count] = 1;
                node[count++] = n;
            }
        first[r + 1] = count;
    }
    do {
        uint32_t at = 0;
        struct in_order_groups groups = {sorted, first, key};
        struct in_order_outcome outcome = {.ended = ended};

        for (int r = 0; r < issue->size; r++)
            for (uint32_t g = 1; g <= MOST_ENDS; g++)
                for (uint32_t i = first[r]; i < first[r + 1]; i++)
                    if (group[i] == g) {
                        sorted[at] = node[i];
                        key[at++] = g;
                    }
        in_order_execute(issue, &groups, NULL, 0, &outcome);
        found = outcome.ended_count == nodes;
    } while (!found && next_way(group, count));
    free(ended);
    return found;
}

static void order_graph(struct graph *g, struct weft__issue_joined *joined,
                        struct weft__issue_order *order)
{
    cr_assert_eq(weft__issue_join(joined, g->lists, g->size), 0);
    cr_assert_eq(weft__issue_order(&joined->issue, order), 0);
}

/* The circle is one: each node waits for the next. */
static void expect_circle(const struct weft__issue *issue, const struct weft__issue_order *order,
                          const char *what)
{
    for (uint32_t i = 0; i < order->cycle_count; i++) {
        uint32_t waits = order->cycle[i], on = order->cycle[(i + 1) % order->cycle_count];
        int good = issue->partner[waits] == on;

        for (uint32_t e = issue->first[on]; e < issue->first[on + 1]; e++)
            good |= issue->after[e] == waits;
        good |= issue->nodes[on].kind == WEFT_NODE_SIGNAL &&
                issue->nodes[waits].kind == WEFT_NODE_EVENT &&
                issue->nodes[on].tag == issue->nodes[waits].tag;
        cr_expect(good, "%s: node %u does not wait for %u", what, waits, on);
    }
}

Test(order, there_is_one_if_the_search_through_all_finds_one)
{
    int with = 0, without = 0;

    for (uint64_t seed = 1; seed <= 4000; seed++) {
        struct draw draw = {seed};
        struct weft__issue_joined joined;
        struct weft__issue_order order;
        struct graph g;
        char what[40];

        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        draw_graph(&g, &draw, 0, 4);
        order_graph(&g, &joined, &order);
        int ends = can_end(&joined.issue);

        if (!order.messages && ends)
            goto next;
        cr_expect_eq(order.unknown, 0, "%s", what);
        if (ends) {
            cr_expect_eq(order.cycle_count, 0, "%s", what);
            for (int i = 0; i < 3; i++)
                expect_same_ends(&joined.issue, &order, NULL, draw_word(&draw) | 1, what);
            with++;
        } else if (order.cycle_count) {
            expect_circle(&joined.issue, &order, what);
            cr_expect_not(search(&joined.issue), "%s: there is an order", what);
            without++;
        }
    next:
        weft__issue_order_free(&order);
        weft__issue_joined_free(&joined);
    }
    cr_expect_gt(with, 1000);
    cr_expect_gt(without, 300);
}

/* Where the order is said to be known, it makes nothing wait for an event that is not its own:
 * whatever set of events is fired, as much ends as without it. */
Test(order, a_known_one_waits_for_no_event_of_others)
{
    int known = 0, unknown = 0;

    for (uint64_t seed = 1; seed <= 6000; seed++) {
        struct draw draw = {seed};
        struct weft__issue_joined joined;
        struct weft__issue_order order;
        struct graph g;
        uint8_t fires[3 * MOST_NODES];
        char what[40];

        snprintf(what, sizeof what, "seed %llu", (unsigned long long)seed);
        draw_graph(&g, &draw, 1, 6);
        order_graph(&g, &joined, &order);
        if (order.cycle_count || !order.messages)
            goto next;
        known += !order.unknown;
        unknown += order.unknown != 0;
        for (int i = 0; i < 8; i++) {
            for (size_t n = 0; n < sizeof fires; n++)
                fires[n] = (uint8_t)draw_below(&draw, 2);
            if (!order.unknown)
                expect_same_ends(&joined.issue, &order, fires, draw_word(&draw) | 1, what);
        }
    next:
        weft__issue_order_free(&order);
        weft__issue_joined_free(&joined);
    }
    cr_expect_gt(known, 1000);
    cr_expect_gt(unknown, 300);
}

/* ---- by hand ---- */

#define HEAD(size) "weft 1\nschedule \"s\" size " #size "\n"

Test(order, independent_messages_are_one_round)
{
    struct team team = read_team(HEAD(2) "ranks all {\ninput a f32 4 on device\noutput b f32 4 on "
                                         "device\nsend a to 1 - rank\nrecv b from 1 - rank\n}\n",
                                 0);

    cr_expect_eq(team.order.rounds, 1);
    cr_expect_eq(team.order.messages, 2);
    cr_expect_eq(team.order.cycle_count, 0);
    free_team(&team);
}

Test(order, a_message_of_the_host_stands_between)
{
    /* B must be a round behind A on rank 1, though nothing on rank 1 says so: h does, on rank 0. */
    struct team team =
        read_team(HEAD(2) "rank 0 {\noutput x f32 4 on device\noutput y f32 4 on device\ninput h "
                          "i32 1\nn0: recv x from 1 tag 1\nn1: send h to 1 after n0\nn2: recv y "
                          "from 1 tag 2\n}\nrank 1 {\ninput x f32 4 on device\noutput h i32 1\nn0: "
                          "recv h from 0\nn1: send x to 0 tag 2 after n0\nn2: send x to 0 tag 1\n"
                          "}\n",
                  0);

    cr_expect_eq(team.order.messages, 2);
    cr_expect_eq(team.order.rounds, 2);
    cr_expect_eq(team.order.round[0], 1);
    cr_expect_eq(team.order.round[1], 0);
    cr_expect_eq(team.order.round[2], 2);
    free_team(&team);
}

Test(order, rounds_of_few_bytes_keep_a_pipeline)
{
    enum { SEGMENTS = 6, RANKS = 4 };
    struct team team = {.size = RANKS};

    for (int r = 0; r < RANKS; r++) {
        struct weft_schedule *s;

        cr_assert_eq(weft_schedule_create(&s, r, RANKS), WEFT_OK);
        weft_slot_t slot = weft_schedule_add_slot(s, "a", WEFT_F32, 64 * SEGMENTS, WEFT_SLOT_INOUT);

        for (size_t i = 0; i < SEGMENTS; i++) {
            struct weft_region region = weft_region_at(slot, 64 * i, 64);
            weft_node_t recv = WEFT_NODE_NONE, send;

            if (r)
                recv = weft_schedule_add_recv(s, region, r - 1, (uint32_t)i);
            if (r == RANKS - 1)
                continue;
            send = weft_schedule_add_send(s, region, r + 1, (uint32_t)i);
            if (recv != WEFT_NODE_NONE)
                weft_schedule_add_order(s, recv, send);
        }
        team.at[r] = s;
    }
    order_team(&team, 1, 256);
    cr_expect_eq(team.order.rounds, SEGMENTS + RANKS - 2);
    expect_same_ends(&team.joined.issue, &team.order, NULL, 5, "pipeline");
    weft__issue_order_free(&team.order);
    team.joined.issue.pair_bytes = 512;
    cr_assert_eq(weft__issue_order(&team.joined.issue, &team.order), 0);
    cr_expect_eq(team.order.rounds, SEGMENTS / 2 + RANKS - 2);
    weft__issue_order_free(&team.order);
    team.joined.issue.pair_bytes = 0;
    cr_assert_eq(weft__issue_order(&team.joined.issue, &team.order), 0);
    cr_expect_eq(team.order.rounds, RANKS - 1);
    free_team(&team);
}

/* ---- weft_check() ---- */

/* Checks a text; the first fault, if there is one, must be of a kind and name a node. */
static struct weft_check_report *check(const char *text, struct weft_check_summary *summary)
{
    struct weft_schedule **schedules = NULL;
    struct weft_check_report *report = NULL;
    struct weft_check_config config;
    size_t count = 0;

    cr_assert_eq(weft_schedule_read(text, strlen(text), NULL, 0, &schedules, &count), WEFT_OK, "%s",
                 weft_error_text());
    weft_check_config_init(&config);
    config.in_order = 1;
    cr_assert_eq(
        weft_check((const struct weft_schedule *const *)schedules, count, &config, &report),
        WEFT_OK, "%s", weft_error_text());
    *summary = (struct weft_check_summary){.struct_size = sizeof *summary};
    weft_check_report_get_summary(report, summary);
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
    return report;
}

#define CIRCLE                                                                                     \
    HEAD(2)                                                                                        \
    "ranks all {\ninput a f32 4 on device\noutput b f32 4 on device\nn0: send a to 1 - rank\n"     \
    "n1: recv b from 1 - rank after n0\n}\n"

Test(order, a_circle_is_a_fault_with_its_nodes)
{
    struct weft_check_summary summary;
    struct weft_check_report *report = check(CIRCLE, &summary);
    struct weft_fault fault = {.struct_size = sizeof fault};
    int found = 0;

    for (size_t i = 0; weft_check_report_get_fault(report, i, &fault) == WEFT_OK; i++) {
        if (fault.kind != WEFT_FAULT_ORDER)
            continue;
        found++;
        cr_expect_eq(fault.rank_count, 2);
        cr_expect_eq(fault.node_count, 4);
        cr_expect_not_null(strstr(fault.text, "waits for the first"), "%s", fault.text);
    }
    cr_expect_eq(found, 1);
    cr_expect_str_eq(weft_fault_kind_name(WEFT_FAULT_ORDER), "order");
    weft_check_report_destroy(report);
}

Test(order, events_and_choices_are_agreed_on)
{
    /* Rank 1 issues what it has from ranks 0 and 2 together, and only rank 0 waits for an event. */
#define THREE(event)                                                                               \
    HEAD(3)                                                                                        \
    "rank 0 {\ninput a f32 1 on device\n" event "send a to 1 after e\n}\nrank 1 {\noutput b f32 "  \
    "1 on device\noutput c f32 1 on device\nrecv b from 0\nrecv c from 2\n}\nrank 2 {\ninput a "   \
    "f32 1 on device\nsend a to 1\n}\n"
    struct weft_check_summary summary;
    struct weft_check_report *report = check(THREE("e: event\n"), &summary);

    cr_expect_eq(summary.faults, 0);
    cr_expect_eq(summary.unordered, 1); /* what rank 1 has from rank 2 */
    cr_expect_eq(summary.ordered, 2);
    cr_expect_eq(summary.rounds, 1);
    cr_assert_not_null(summary.unordered_text);
    cr_expect_not_null(strstr(summary.unordered_text, "would wait in order for rank 0: node 0"),
                       "%s", summary.unordered_text);
    weft_check_report_destroy(report);
    report = check(THREE("e: join\n"), &summary);
    cr_expect_eq(summary.unordered, 0);
    cr_expect_null(summary.unordered_text);
    weft_check_report_destroy(report);
    report =
        check(THREE("x: event choice 0\ny: event choice 0\ne: join after any x, y\n"), &summary);
    cr_expect_eq(summary.unordered, 2);
    cr_expect_eq(summary.ordered, 1);
    cr_assert_not_null(summary.unordered_text);
    cr_expect_not_null(strstr(summary.unordered_text, "after a choice"), "%s",
                       summary.unordered_text);
    weft_check_report_destroy(report);
}

Test(order, nothing_is_looked_for_unasked)
{
    struct weft_schedule **schedules = NULL;
    struct weft_check_report *report = NULL;
    struct weft_check_summary summary = {.struct_size = sizeof summary};
    struct weft_fault fault = {.struct_size = sizeof fault};
    size_t count = 0;

    cr_assert_eq(weft_schedule_read(CIRCLE, strlen(CIRCLE), NULL, 0, &schedules, &count), WEFT_OK);
    cr_assert_eq(weft_check((const struct weft_schedule *const *)schedules, count, NULL, &report),
                 WEFT_OK);
    weft_check_report_get_summary(report, &summary);
    cr_expect_eq(summary.faults, 1);
    cr_expect_eq(weft_check_report_get_fault(report, 0, &fault), WEFT_OK);
    cr_expect_eq(fault.kind, WEFT_FAULT_DEADLOCK);
    cr_expect_eq(summary.ordered, 0);
    weft_check_report_destroy(report);
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
}

/* ---- memory ---- */

static void fail_in_turn(const char *text)
{
    struct weft_schedule **schedules = NULL;
    struct weft_check_report *report = NULL;
    struct weft_check_config config;
    size_t count = 0;

    cr_assert_eq(weft_schedule_read(text, strlen(text), NULL, 0, &schedules, &count), WEFT_OK);
    weft_check_config_init(&config);
    config.in_order = config.local_only = 1;
    for (long failing = 1;; failing++) {
        atomic_store(&weft__alloc_countdown, failing);
        int status =
            weft_check((const struct weft_schedule *const *)schedules, count, &config, &report);
        int failed = atomic_load(&weft__alloc_countdown) <= 0;

        atomic_store(&weft__alloc_countdown, -1);
        cr_assert_eq(status, failed ? WEFT_ERR_MEMORY : WEFT_OK, "call %ld: %s", failing,
                     weft_status_name(status));
        if (!failed)
            break;
    }
    weft_check_report_destroy(report);
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
}

Test(order, memory_may_run_out)
{
    fail_in_turn(CIRCLE);
    fail_in_turn(THREE("e: event\n"));
    fail_in_turn(THREE("x: event choice 0\ny: event choice 0\ne: join after any x, y\n"));
}

Test(order, lists_are_joined_without_memory)
{
    struct team team = read_team(CIRCLE, 0);

    for (long failing = 1;; failing++) {
        struct weft__issue_joined joined;

        atomic_store(&weft__alloc_countdown, failing);
        int status = weft__issue_join(&joined, team.lists, team.size);
        int failed = atomic_load(&weft__alloc_countdown) <= 0;

        atomic_store(&weft__alloc_countdown, -1);
        cr_assert_eq(status, failed ? -1 : 0);
        weft__issue_joined_free(&joined);
        if (!failed)
            break;
    }
    free_team(&team);
}
