/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether messages can be issued to what executes them in the order of issue: the rule is that of
 * runtime/graph/issue.h, which runs follow, too. Here its circle becomes a fault, and what it does
 * not know beforehand a line of the summary.
 */
#include "runtime/base/alloc.h"
#include "runtime/check/check.h"
#include "runtime/graph/issue.h"
#include "runtime/graph/lists.h"

#include <inttypes.h>

enum { MOST_NAMED = 12 };

static int cycle_fault(struct weft__check *check, const struct weft__issue_order *order)
{
    struct weft__fault fault;
    uint32_t first = order->cycle[0];
    int rank = -1;

    weft__fault_begin(&fault, WEFT_FAULT_ORDER);
    for (uint32_t at = 0; at < order->cycle_count; at++) {
        uint32_t node = order->cycle[at];

        if (at >= MOST_NAMED) {
            weft__fault_note(check, &fault, node);
            continue;
        }
        if (check->rank_of[node] != rank)
            weft__out_format(&fault.text, "rank %d: ", rank = check->rank_of[node]);
        weft__fault_node(check, &fault, node);
        weft__out_text(&fault.text, " waits for ");
    }
    if (order->cycle_count > MOST_NAMED)
        weft__out_format(&fault.text, "%u more, the last of them for ",
                         order->cycle_count - MOST_NAMED);
    weft__out_format(
        &fault.text,
        "the first, node %d of rank %d: whatever is issued first, it blocks the others",
        (int)(first - check->base[check->rank_of[first]]), check->rank_of[first]);
    return weft__fault_end(check, &fault);
}

/* The text on the first message of which nothing is known beforehand. */
static int tell_unknown(struct weft__check *check, const struct weft__issue_order *order)
{
    struct weft__fault text;
    uint32_t node = order->unknown_node, event = order->unknown_event;
    int failed;

    weft__fault_begin(&text, WEFT_FAULT_ORDER); /* of which only the text is wanted */
    weft__out_format(&text.text, "rank %d: ", check->rank_of[node]);
    weft__fault_node(check, &text, node);
    if (event == WEFT__ISSUE_NONE && order->round[node]) {
        weft__out_text(&text.text, " is of a size that is known only when it is sent");
    } else if (event == WEFT__ISSUE_NONE) {
        weft__out_text(&text.text, " comes after a choice");
    } else {
        weft__out_format(&text.text, " would wait in order for rank %d: ", check->rank_of[event]);
        weft__fault_node(check, &text, event);
        weft__out_text(&text.text, ", which its graph does not make it wait for");
    }
    failed = text.text.failed;
    weft__free(text.ranks);
    weft__free(text.nodes);
    if (failed) {
        weft__free(text.text.text);
        return -1;
    }
    check->report->unordered = text.text.text;
    return 0;
}

/* ---- lists ---- */

/* Whether a slot is memory of a device; if none is, all messages run in order. */
static int has_devices(const struct weft__check *check)
{
    for (int r = 0; r < check->size; r++)
        for (size_t s = 0; check->schedules[r] && s < check->schedules[r]->buffer_count; s++)
            if (check->schedules[r]->buffers[s].memory == WEFT_MEMORY_DEVICE)
                return 1;
    return 0;
}

static void list_nodes(const struct weft_schedule *schedule, int devices,
                       struct weft__issue_node *nodes)
{
    for (size_t n = 0; n < schedule->node_count; n++) {
        nodes[n] = weft__issue_node_of(schedule, &schedule->nodes[n]);
        if (!devices)
            nodes[n].flags |= WEFT__ISSUE_IN_ORDER;
    }
}

static int order_plain(struct weft__check *check, struct weft__issue_order *order)
{
    struct weft__issue_node *nodes = weft__malloc(check->nodes, sizeof *nodes);
    const struct weft__issue issue = {.nodes = nodes,
                                      .base = check->base,
                                      .first = check->first,
                                      .after = check->after,
                                      .waits = check->waits,
                                      .partner = check->partner,
                                      .size = check->size,
                                      .pair_bytes = WEFT__ISSUE_PAIR_BYTES};
    int devices = has_devices(check), failed = !nodes;

    for (int r = 0; r < check->size && nodes; r++)
        if (check->schedules[r])
            list_nodes(check->schedules[r], devices, nodes + check->base[r]);
    failed = failed || weft__issue_order(&issue, order);
    weft__free(nodes);
    return failed ? -1 : 0;
}

/* A node of an original is the same here. */
static uint32_t here(const struct weft__check *check, const struct weft__issue *issue,
                     uint32_t node)
{
    int rank = 0;

    while (issue->base[rank + 1] <= node)
        rank++;
    return check->base[rank] + (node - issue->base[rank]);
}

/* In the numbers of this check: what is told of an order. */
static int translate(const struct weft__check *check, const struct weft__issue *issue,
                     struct weft__issue_order *order)
{
    uint32_t *round = weft__calloc(check->nodes, sizeof *round);

    if (!round)
        return -1;
    for (uint32_t i = 0; i < order->cycle_count; i++)
        order->cycle[i] = here(check, issue, order->cycle[i]);
    if (order->unknown) {
        uint32_t node = here(check, issue, order->unknown_node);

        round[node] = order->round[order->unknown_node];
        order->unknown_node = node;
        if (order->unknown_event != WEFT__ISSUE_NONE)
            order->unknown_event = here(check, issue, order->unknown_event);
    }
    weft__free(order->round);
    order->round = round;
    return 0;
}

/* Whether the next of a joint node's ranks has the same operation, count and order of ranks. */
static int has_equal(const struct weft__issue *issue, uint32_t node)
{
    const struct weft__issue_node *of = &issue->nodes[node];
    uint32_t n = issue->base[of->peer];

    while (n < issue->base[of->peer + 1] &&
           !(weft__issue_is_joint(issue, n) && issue->nodes[n].tag == of->tag &&
             issue->nodes[n].bytes == of->bytes))
        n++;
    return n < issue->base[of->peer + 1];
}

/* A joint node that the next of its ranks has no equal of: as messages they might fit. */
static int unequal_fault(struct weft__check *check, const struct weft__issue *issue)
{
    uint32_t n = 0, nodes = issue->base[issue->size];
    struct weft__fault fault;

    while (n < nodes && !(weft__issue_is_joint(issue, n) && !has_equal(issue, n)))
        n++;
    if (n == nodes)
        return 0;
    uint32_t node = here(check, issue, n);
    weft__fault_begin(&fault, WEFT_FAULT_ORDER);
    weft__fault_note(check, &fault, node);
    weft__out_format(&fault.text,
                     "rank %d: node %d is a joint node with tag %" PRIu32
                     " that rank %d has no equal of (the same operation, count and order of ranks)",
                     check->rank_of[node], (int)(node - check->base[check->rank_of[node]]),
                     issue->nodes[n].tag, (int)issue->nodes[n].peer);
    return weft__fault_end(check, &fault);
}

/* Joint nodes have their places in it as they are. */
static int order_originals(struct weft__check *check, struct weft__issue_order *order)
{
    size_t ranks = (size_t)check->size;
    struct weft__issue_list *lists = weft__calloc(ranks, sizeof *lists);
    struct weft__lists *after = weft__calloc(ranks, sizeof *after);
    struct weft__issue_node **nodes = weft__calloc(ranks, sizeof(struct weft__issue_node *));
    struct weft__issue_joined joined = {0};
    int failed = !lists || !after || !nodes, devices = has_devices(check);

    for (size_t r = 0; r < ranks && !failed; r++) {
        const struct weft_schedule *schedule = check->originals[r];

        if (!schedule)
            continue;
        nodes[r] = weft__malloc(schedule->node_count, sizeof *nodes[r]);
        failed = !nodes[r] || weft__lists_of(&after[r], schedule, WEFT__SUCCESSORS);
        if (failed)
            break;
        list_nodes(schedule, devices, nodes[r]);
        lists[r] = (struct weft__issue_list){nodes[r], after[r].first, after[r].items,
                                             (uint32_t)schedule->node_count};
    }
    failed = failed || weft__issue_join(&joined, lists, check->size);
    failed = failed || unequal_fault(check, &joined.issue);
    joined.issue.pair_bytes = WEFT__ISSUE_PAIR_BYTES;
    failed = failed || weft__issue_order(&joined.issue, order);
    if (!failed && translate(check, &joined.issue, order)) {
        weft__issue_order_free(order);
        failed = 1;
    }
    weft__issue_joined_free(&joined);
    for (size_t r = 0; r < ranks; r++) {
        if (after)
            weft__lists_free(&after[r]);
        if (nodes)
            weft__free(nodes[r]);
    }
    weft__free((void *)nodes);
    weft__free(after);
    weft__free(lists);
    return failed ? -1 : 0;
}

int weft__check_order(struct weft__check *check)
{
    struct weft_check_summary *summary = &check->report->summary;
    struct weft__issue_order order;
    int status;

    if (check->originals ? order_originals(check, &order) : order_plain(check, &order))
        return -1;
    summary->ordered = order.messages;
    summary->rounds = order.rounds;
    summary->unordered = order.unknown;
    status = (order.cycle_count && cycle_fault(check, &order)) ||
                     (order.unknown && tell_unknown(check, &order))
                 ? -1
                 : 0;
    summary->unordered_text = check->report->unordered;
    weft__issue_order_free(&order);
    return status;
}
