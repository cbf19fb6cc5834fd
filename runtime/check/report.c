/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults and reports. A fault is built up by whoever has found it; the report then takes it, unless
 * it has one of the same kind and nodes already: executions that differ in a choice find the same
 * ones.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/check/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *weft_fault_kind_name(weft_fault_kind_t kind)
{
    static const char *const names[] = {
#define FAULT_TEXT(name, text) [name] = (text),
        WEFT_FAULT_MAP(FAULT_TEXT)
#undef FAULT_TEXT
    };

    return (unsigned)kind < WEFT_FAULT_COUNT ? names[kind] : NULL;
}

/* ---- making one ---- */

void weft__fault_begin(struct weft__fault *fault, weft_fault_kind_t kind)
{
    *fault = (struct weft__fault){.kind = kind};
}

void weft__fault_rank(struct weft__fault *fault, int rank)
{
    size_t at = fault->rank_count;

    while (at && fault->ranks[at - 1] >= rank)
        if (fault->ranks[--at] == rank)
            return;
    if (weft__grow((void **)&fault->ranks, &fault->rank_capacity, fault->rank_count + 1,
                   sizeof *fault->ranks)) {
        fault->text.failed = 1;
        return;
    }
    memmove(fault->ranks + at + 1, fault->ranks + at,
            (fault->rank_count - at) * sizeof *fault->ranks);
    fault->ranks[at] = rank;
    fault->rank_count++;
}

void weft__fault_note(const struct weft__check *check, struct weft__fault *fault, uint32_t node)
{
    int rank = check->rank_of[node];
    weft_node_t own = (weft_node_t)(node - check->base[rank]);
    struct weft_check_node named = {rank, own, weft__schedule_line(check->schedules[rank], own)};

    weft__fault_rank(fault, rank);
    for (size_t i = 0; i < fault->node_count; i++)
        if (fault->nodes[i].rank == rank && fault->nodes[i].node == named.node)
            return;
    if (weft__grow((void **)&fault->nodes, &fault->node_capacity, fault->node_count + 1,
                   sizeof *fault->nodes)) {
        fault->text.failed = 1;
        return;
    }
    fault->nodes[fault->node_count++] = named;
}

void weft__fault_bytes(struct weft__out *out, const struct weft__buffer *buffer, uint64_t begin,
                       uint64_t end)
{
    uint64_t element = weft_dtype_size(buffer->dtype);

    weft__out_format(out, "%.64s[%" PRIu64 ":%" PRIu64 "]", buffer->name, begin / element,
                     (end + element - 1) / element);
}

static void region_text(const struct weft__check *check, struct weft__out *out, uint32_t node,
                        uint32_t index)
{
    const struct weft_region *region = weft__check_region(check, node, index);
    const struct weft__buffer *buffer = &weft__check_schedule(check, node)->buffers[region->slot];
    uint64_t element = weft_dtype_size(buffer->dtype);

    weft__fault_bytes(out, buffer, region->offset * element,
                      (region->offset + region->count) * element);
}

void weft__fault_node(const struct weft__check *check, struct weft__fault *fault, uint32_t id)
{
    const struct weft__snode *node = weft__check_node(check, id);
    weft_node_t index = (weft_node_t)(id - check->base[check->rank_of[id]]);
    const char *label = weft__schedule_label(weft__check_schedule(check, id), index);
    struct weft__out *out = &fault->text;

    weft__fault_note(check, fault, id);
    weft__out_format(out, "node %d ", (int)index);
    if (label)
        weft__out_format(out, "`%.64s` ", label);
    weft__out_format(out, "(%s%s", weft_node_kind_name((weft_node_kind_t)node->kind),
                     node->up_to ? " up to" : "");
    if (node->op)
        weft__out_format(out, " %.64s", weft_op_name(node->op));
    if (node->region_count) {
        weft__out_text(out, " ");
        region_text(check, out, id, 0);
    }
    if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV)
        weft__out_format(out, " %s %d tag %" PRIu32, node->kind == WEFT_NODE_SEND ? "to" : "from",
                         (int)node->peer, node->tag);
    else if (node->kind == WEFT_NODE_SIGNAL)
        weft__out_format(out, " to %d channel %" PRIu32, (int)node->peer, node->tag);
    else if (node->kind == WEFT_NODE_EVENT && node->tag != WEFT_CHANNEL_NONE)
        weft__out_format(out, " channel %" PRIu32, node->tag);
    weft__out_text(out, ")");
}

static void fault_free(struct weft__fault *fault)
{
    weft__free(fault->text.text);
    weft__free(fault->ranks);
    weft__free(fault->nodes);
}

static int same(const struct weft__fault *a, const struct weft__fault *b)
{
    if (a->kind != b->kind || a->node_count != b->node_count || a->rank_count != b->rank_count ||
        a->bytes != b->bytes)
        return 0;
    for (size_t i = 0; i < a->node_count; i++)
        if (a->nodes[i].rank != b->nodes[i].rank || a->nodes[i].node != b->nodes[i].node)
            return 0;
    return !memcmp(a->ranks, b->ranks, a->rank_count * sizeof *a->ranks) &&
           (a->node_count || !strcmp(a->text.text, b->text.text));
}

int weft__fault_end(struct weft__check *check, struct weft__fault *fault)
{
    struct weft_check_report *report = check->report;

    if (fault->text.failed)
        goto failed;
    for (size_t i = report->count; i-- > 0;)
        if (same(&report->faults[i], fault)) {
            fault_free(fault);
            return 0;
        }
    if (check->scenario[0] && fault->kind != WEFT_FAULT_RACE)
        weft__out_text(&fault->text, check->scenario);
    if (fault->text.failed)
        goto failed;
    report->summary.faults++;
    if (report->count >= report->most) {
        fault_free(fault);
        return 0;
    }
    if (weft__grow((void **)&report->faults, &report->capacity, report->count + 1,
                   sizeof *report->faults))
        goto failed;
    report->faults[report->count++] = *fault;
    return 0;
failed:
    fault_free(fault);
    return -1;
}

/* By kind; within a kind they stay in the order in which they were found. */
void weft__report_sort(struct weft_check_report *report)
{
    for (size_t i = 1; i < report->count; i++) {
        struct weft__fault moved = report->faults[i];
        size_t at = i;

        for (; at && report->faults[at - 1].kind > moved.kind; at--)
            report->faults[at] = report->faults[at - 1];
        report->faults[at] = moved;
    }
}

/* ---- reading a report ---- */

int weft_check_report_ok(const struct weft_check_report *report)
{
    return report && report->summary.faults == 0;
}

size_t weft_check_report_fault_count(const struct weft_check_report *report)
{
    return report ? report->count : 0;
}

int weft_check_report_get_fault(const struct weft_check_report *report, size_t index,
                                struct weft_fault *fault)
{
    const struct weft__fault *from;

    if (!report || !fault)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, report ? "fault" : "report");
    if (index >= report->count)
        return WEFT__INVALID("%s: argument `index` is %zu, expected one of the %zu faults (from 0)",
                             __func__, index, report->count);
    from = &report->faults[index];
    struct weft_fault found = {.kind = from->kind,
                               .ranks = from->ranks,
                               .rank_count = from->rank_count,
                               .nodes = from->nodes,
                               .node_count = from->node_count,
                               .bytes = from->bytes,
                               .text = from->text.text};
    return weft_sized_fill(__func__, "fault", fault, &found, sizeof found);
}

int weft_check_report_get_summary(const struct weft_check_report *report,
                                  struct weft_check_summary *summary)
{
    if (!report || !summary)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, report ? "summary" : "report");
    return weft_sized_fill(__func__, "summary", summary, &report->summary, sizeof report->summary);
}

void weft_check_report_destroy(struct weft_check_report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->count; i++)
        fault_free(&report->faults[i]);
    weft__free(report->unordered);
    weft__free(report->faults);
    weft__free(report);
}
