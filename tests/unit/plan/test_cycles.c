/* SPDX-License-Identifier: BSD-3-Clause */
/* What is said of a cycle: all of its nodes, and no others, by commit, checker and simulator. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "support/ranks.h"

/* Edges as pairs; ends with a negative number. */
static struct weft_schedule *graph(int nodes, const int *edges)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_set_name(s, "cyclic");
    for (int n = 0; n < nodes; n++)
        weft_schedule_add_join(s);
    for (; *edges >= 0; edges += 2)
        OK(weft_schedule_add_order(s, edges[0], edges[1]));
    return s;
}

static const char *refused(const struct weft_schedule *s)
{
    struct weft_plan *plan = NULL;
    cr_expect_eq(weft_schedule_commit(s, &plan), WEFT_ERR_CYCLE);
    cr_expect_null(plan);
    return weft_error_text();
}

static void expect_text(const char *text, const char *words)
{
    cr_expect_not_null(strstr(text, words), "\"%s\" does not say \"%s\"", text, words);
}

/* Nodes 1 and 2 wait for each other, and node 0 for them: it is on no cycle. */
static const int downstream[] = {1, 2, 2, 1, 1, 0, -1};

Test(cycles, a_node_behind_a_cycle_is_not_named)
{
    struct weft_schedule *s = graph(3, downstream);
    expect_text(refused(s),
                "schedule `cyclic` has a cycle: node 1 (join) before node 2 (join) before node 1 "
                "again; 3 of 3 nodes can never start");
    weft_schedule_destroy(s);
}

Test(cycles, the_checker_and_the_simulator_name_the_same_nodes)
{
    const struct weft_schedule *s = graph(3, downstream);
    struct weft_check_report *report = NULL;
    struct weft_fault fault = {.struct_size = sizeof fault};
    OK(weft_check(&s, 1, NULL, &report));
    cr_assert_eq(weft_check_report_fault_count(report), 1);
    OK(weft_check_report_get_fault(report, 0, &fault));
    cr_expect_eq(fault.kind, WEFT_FAULT_CYCLE);
    expect_text(fault.text, "node 1 (join) before node 2 (join) before node 1 again");
    weft_check_report_destroy(report);
    weft_schedule_destroy((struct weft_schedule *)(uintptr_t)s);
}

Test(cycles, labels_are_told)
{
    struct weft_schedule *s = graph(3, downstream);
    OK(weft_schedule_set_label(s, 2, "back"));
    expect_text(refused(s), "before node 2 `back` (join) before");
    weft_schedule_destroy(s);
}

Test(cycles, a_long_cycle_is_cut)
{
    enum { LENGTH = 40 };
    int edges[2 * LENGTH + 1];
    for (int i = 0; i < LENGTH; i++) {
        edges[2 * i] = i;
        edges[2 * i + 1] = (i + 1) % LENGTH;
    }
    edges[2 * LENGTH] = -1;
    struct weft_schedule *s = graph(LENGTH, edges);
    const char *text = refused(s);
    expect_text(text, "node 0 (join) before node 1 (join) before node 2 (join) before ");
    expect_text(text, " more before node 0 again; 40 of 40 nodes");
    weft_schedule_destroy(s);
}

/* The edge from one node that is named to the next is there. */
static void check_named(const char *text, int nodes, const int *edges)
{
    int names[64];
    int count = 0;
    for (const char *at = strstr(text, "a cycle: "); (at = strstr(at, "node "));) {
        at += strlen("node ");
        cr_assert_lt(count, 64);
        names[count++] = atoi(at);
    }
    cr_assert_geq(count, 2, "%s", text);
    int cut = strstr(text, " more before ") != NULL;
    for (int i = 0; i + 1 < count - cut; i++) {
        int there = 0;
        cr_assert_lt(names[i], nodes);
        for (const int *edge = edges; *edge >= 0; edge += 2)
            there |= edge[0] == names[i] && edge[1] == names[i + 1];
        cr_expect(there, "%d is not before %d: %s", names[i], names[i + 1], text);
    }
    cr_expect_eq(names[count - 1], names[0], "%s", text);
}

Test(cycles, what_is_named_is_a_cycle)
{
    enum { NODES = 12, EDGES = 16 };
    uint64_t state = 1;
    for (int trial = 0; trial < 2000; trial++) {
        int edges[2 * EDGES + 1];
        for (int i = 0; i < 2 * EDGES; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            edges[i] = (int)(state >> 33) % NODES;
            if (i % 2 == 1 && edges[i] == edges[i - 1])
                edges[i] = (edges[i] + 1) % NODES;
        }
        edges[2 * EDGES] = -1;
        struct weft_schedule *s = graph(NODES, edges);
        struct weft_plan *plan = NULL;
        if (weft_schedule_commit(s, &plan) == WEFT_ERR_CYCLE)
            check_named(weft_error_text(), NODES, edges);
        weft_plan_destroy(plan);
        weft_schedule_destroy(s);
    }
}
