/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What nodes do to the memory: messages and copies move values, reductions combine them, compute
 * functions make new ones of what they read. A function that folds (WEFT_OP_FOLDS) makes a set of
 * contributions (fold.c).
 *
 * Reading what nothing has written is a fault where it is read; what comes of it is unknown, and no
 * fault is reported on account of something unknown.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/search.h"
#include "runtime/check/check.h"
#include "runtime/graph/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct weft__span weft__execution_span(const struct weft__execution *execution, int rank,
                                       const struct weft_region *region)
{
    const struct weft__check *check = execution->check;
    const struct weft_schedule *s = check->schedules[rank];
    uint64_t element = weft_dtype_size(s->buffers[region->slot].dtype), count = region->count;
    struct weft__span span = {.line = check->slot_base[rank] + (size_t)region->slot};

    if (region->value) {
        const struct weft__number *n =
            &execution->numbers[check->value_base[rank] + (size_t)region->value - 1];

        span.limit = n->symbol;
        if (!n->symbol && n->number < count)
            count = n->number;
    }
    span.begin = region->offset * element;
    span.end = span.begin + count * element;
    return span;
}

static struct weft__span span_of(const struct weft__execution *execution, uint32_t node,
                                 uint32_t index)
{
    return weft__execution_span(execution, execution->check->rank_of[node],
                                weft__check_region(execution->check, node, index));
}

static const struct weft__buffer *buffer_of(const struct weft__check *check, uint32_t node,
                                            uint32_t index)
{
    return &weft__check_schedule(check, node)
                ->buffers[weft__check_region(check, node, index)->slot];
}

static struct weft__number *number_of(struct weft__execution *execution, uint32_t node,
                                      weft_value_t value)
{
    const struct weft__check *check = execution->check;

    return &execution->numbers[check->value_base[check->rank_of[node]] + (size_t)value - 1];
}

/* The value of a schedule that a symbol stands for. */
static const struct weft__value *value_of(const struct weft__check *check, uint32_t symbol)
{
    size_t number = symbol - 1;
    size_t next = 1; /* rank */

    WEFT__SEARCH(next, (size_t)check->size, middle, check->value_base[middle] <= number)
    return &check->schedules[next - 1]->values[number - check->value_base[next - 1]];
}

/* ---- reading ---- */

/* Whether a race has been found at a node: then what it reads is a matter of that. */
static int is_racing(const struct weft__check *check, uint32_t node)
{
    int rank = check->rank_of[node];

    for (size_t i = 0; i < check->report->count; i++) {
        const struct weft__fault *fault = &check->report->faults[i];

        for (size_t n = 0; fault->kind == WEFT_FAULT_RACE && n < fault->node_count; n++)
            if (fault->nodes[n].rank == rank &&
                (uint32_t)fault->nodes[n].node == node - check->base[rank])
                return 1;
    }
    return 0;
}

static int undefined_fault(struct weft__execution *execution, uint32_t node, uint32_t index,
                           uint64_t begin, uint64_t end, uint32_t limit)
{
    struct weft__check *check = execution->check;
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_RESULT);
    fault.bytes = end - begin;
    weft__out_format(&fault.text, "rank %d: ", check->rank_of[node]);
    weft__fault_node(check, &fault, node);
    weft__out_text(&fault.text, " reads ");
    weft__fault_bytes(&fault.text, buffer_of(check, node, index), begin, end);
    if (limit)
        weft__out_format(&fault.text, ", of which only as many elements are there as `%.64s` says",
                         value_of(check, limit)->name);
    else
        weft__out_text(&fault.text, ", which nothing has written");
    return weft__fault_end(check, &fault);
}

int weft__execution_read(struct weft__execution *execution, uint32_t node, uint32_t index,
                         struct weft__pieces *pieces)
{
    struct weft__span span = span_of(execution, node, index);
    uint64_t at = span.begin;
    int reported = 0;

    if (weft__line_read(&execution->lines[span.line], span.begin, span.end, pieces))
        return -1;
    for (size_t i = 0; i < pieces->count; at += pieces->at[i++].bytes) {
        struct weft__piece *piece = &pieces->at[i];
        int limited = piece->limit && piece->limit != span.limit;

        if (piece->value != WEFT__VALUE_UNDEFINED && (!limited || !piece->value))
            continue;
        if (!reported && piece->limit != WEFT__CHECK_NONE && !is_racing(execution->check, node) &&
            undefined_fault(execution, node, index, at, at + piece->bytes,
                            piece->value == WEFT__VALUE_UNDEFINED ? 0 : piece->limit))
            return -1;
        reported = 1;
        piece->value = WEFT__VALUE_UNKNOWN;
    }
    return 0;
}

static int write_region(struct weft__execution *execution, uint32_t node, uint32_t index,
                        const struct weft__pieces *pieces)
{
    struct weft__span span = span_of(execution, node, index);

    return weft__line_write(&execution->lines[span.line], span.begin, span.end, pieces, node,
                            span.limit);
}

/* ---- messages ---- */

int weft__execution_forget(struct weft__execution *execution, uint32_t recv)
{
    const struct weft__snode *node = weft__check_node(execution->check, recv);
    struct weft__span span = span_of(execution, recv, 0);
    struct weft__pieces *pieces = &execution->pieces[0];
    uint32_t send = execution->check->partner[recv];

    /* What the sender thinks that it has sent would have been more. */
    if (send != WEFT__CHECK_NONE) {
        struct weft__span sent = span_of(execution, send, 0);
        uint64_t bytes = sent.end - sent.begin, room = execution->lines[span.line].bytes;

        if (bytes > span.end - span.begin)
            span.end = bytes < room - span.begin ? span.begin + bytes : room;
    }
    if (node->produces)
        *number_of(execution, recv, node->produces) = (struct weft__number){0, WEFT__CHECK_NONE};
    pieces->count = 0;
    if (weft__pieces_add(pieces, (struct weft__piece){.bytes = span.end - span.begin}))
        return -1;
    return weft__line_write(&execution->lines[span.line], span.begin, span.end, pieces, recv, 0);
}

/* Whether an exact receive gets what it expects, as far as values can tell. */
static int same_count(const struct weft__check *check, const struct weft__span *from,
                      const struct weft__span *to)
{
    const struct weft__value *sent, *expected;

    if (from->limit == to->limit)
        return from->limit || from->end - from->begin == to->end - to->begin;
    if (from->limit == WEFT__CHECK_NONE || to->limit == WEFT__CHECK_NONE)
        return 1; /* reported elsewhere */
    if (!from->limit || !to->limit)
        return 0;
    sent = value_of(check, from->limit);
    expected = value_of(check, to->limit);
    return sent->producer < 0 && expected->producer < 0 && !strcmp(sent->name, expected->name);
}

static int count_fault(struct weft__execution *execution, uint32_t send, uint32_t recv,
                       const struct weft__span *from, const struct weft__span *to)
{
    struct weft__check *check = execution->check;
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_SIZE);
    weft__out_format(&fault.text, "rank %d: ", check->rank_of[send]);
    weft__fault_node(check, &fault, send);
    weft__out_format(&fault.text, " and rank %d: ", check->rank_of[recv]);
    weft__fault_node(check, &fault, recv);
    if (from->limit)
        weft__out_format(&fault.text, ": as many elements are sent as `%.64s` says",
                         value_of(check, from->limit)->name);
    else
        weft__out_format(&fault.text, ": %" PRIu64 " bytes are sent", from->end - from->begin);
    if (to->limit)
        weft__out_format(&fault.text, ", exactly as many are expected as `%.64s` says",
                         value_of(check, to->limit)->name);
    else
        weft__out_format(&fault.text, ", exactly %" PRIu64 " bytes are expected",
                         to->end - to->begin);
    return weft__fault_end(check, &fault);
}

int weft__execution_transfer(struct weft__execution *execution, uint32_t send, uint32_t recv)
{
    const struct weft__check *check = execution->check;
    const struct weft__snode *node = weft__check_node(check, recv);
    struct weft__span from = span_of(execution, send, 0), to = span_of(execution, recv, 0);
    struct weft__pieces *pieces = &execution->pieces[0];
    uint64_t bytes = from.end - from.begin, element;

    if (!check->mismatched[recv] && !node->up_to && !same_count(check, &from, &to)) {
        if (count_fault(execution, send, recv, &from, &to))
            return -1;
        return weft__execution_forget(execution, recv);
    }
    if (check->mismatched[recv])
        return weft__execution_forget(execution, recv);
    if (weft__execution_read(execution, send, 0, pieces))
        return -1;
    if (bytes > to.end - to.begin) { /* as much as the value can be is less: that fits */
        uint64_t left = bytes = to.end - to.begin;

        for (size_t i = 0; i < pieces->count; i++) {
            if (pieces->at[i].bytes > left)
                pieces->at[i].bytes = left;
            left -= pieces->at[i].bytes;
            if (!left)
                pieces->count = i + 1;
        }
        if (!bytes)
            pieces->count = 0;
    }
    if (node->produces) {
        element = weft_dtype_size(buffer_of(check, recv, 0)->dtype);
        *number_of(execution, recv, node->produces) =
            (struct weft__number){bytes / element, from.limit};
    }
    return weft__line_write(&execution->lines[to.line], to.begin, to.begin + bytes, pieces, recv,
                            from.limit);
}

/* ---- reductions ---- */

static int is_odd(const struct weft__values *values, uint32_t value)
{
    const struct weft__term *term = weft__term(values, value);

    for (uint32_t i = 0; term && term->kind == WEFT__COMBINED && i < term->parts; i++)
        if (values->parts[term->part + i].times > 1 || values->parts[term->part + i].at)
            return 1;
    return 0;
}

/* Notes where something was first combined that no result is made of. */
static int note_odd(struct weft__execution *execution, uint32_t node, uint32_t a, uint32_t b,
                    uint32_t value)
{
    const struct weft__values *values = &execution->values;

    if (!is_odd(values, value) || is_odd(values, a) || is_odd(values, b))
        return 0;
    if (weft__grow((void **)&execution->odd, &execution->odd_capacity, execution->odd_count + 1,
                   sizeof *execution->odd))
        return -1;
    execution->odd[execution->odd_count++] = (struct weft__odd){value, node};
    return 0;
}

/* Pieces of both operands side by side, cut where either is cut. */
static int reduce(struct weft__execution *execution, uint32_t id)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    struct weft__pieces *a = &execution->pieces[0], *b = &execution->pieces[1];
    struct weft__pieces *to = &execution->pieces[2];
    weft_dtype_t dtype = buffer_of(execution->check, id, 0)->dtype;
    uint64_t at = span_of(execution, id, 0).begin, a_used = 0, b_used = 0;
    size_t i = 0, j = 0;

    if (weft__execution_read(execution, id, 1, a) || weft__execution_read(execution, id, 2, b))
        return -1;
    to->count = 0;
    while (i < a->count && j < b->count) {
        const struct weft__piece *p = &a->at[i], *q = &b->at[j];
        uint64_t bytes =
            p->bytes - a_used < q->bytes - b_used ? p->bytes - a_used : q->bytes - b_used;
        struct weft__piece made = {.bytes = bytes};
        size_t known = execution->values.count;
        int64_t shift;

        if (weft__value_combine(&execution->values, node->op, dtype, p->value,
                                p->from + (int64_t)a_used - (int64_t)at, q->value,
                                q->from + (int64_t)b_used - (int64_t)at, &made.value, &shift) ||
            (execution->values.count > known &&
             note_odd(execution, id, p->value, q->value, made.value)))
            return -1;
        made.from = (int64_t)at + shift;
        if (weft__pieces_add(to, made))
            return -1;
        at += bytes;
        if ((a_used += bytes) == p->bytes) {
            a_used = 0;
            i++;
        }
        if ((b_used += bytes) == q->bytes) {
            b_used = 0;
            j++;
        }
    }
    return write_region(execution, id, 0, to);
}

/* ---- compute functions ---- */

int weft__execution_add_part(struct weft__execution *execution, struct weft__part part)
{
    if (weft__grow((void **)&execution->parts, &execution->part_capacity, execution->part_count + 1,
                   sizeof *execution->parts))
        return -1;
    execution->parts[execution->part_count++] = part;
    return 0;
}

static weft_access_t access_of(const struct weft__execution *execution, uint32_t node,
                               uint32_t index)
{
    return weft__snode_access(weft__check_schedule(execution->check, node),
                              weft__check_node(execution->check, node), index);
}

int weft__execution_reads(const struct weft__execution *execution, uint32_t node, uint32_t index)
{
    return (access_of(execution, node, index) & WEFT_READ) != 0;
}

/* Everything that the function may depend on, in the order of the regions. 1: something is unknown.
 */
static int gather_call(struct weft__execution *execution, uint32_t id)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    struct weft__pieces *pieces = &execution->pieces[0];
    int unknown = 0;

    execution->part_count = 0;
    for (uint32_t r = 0; r < node->region_count; r++) {
        struct weft__span span = span_of(execution, id, r);
        struct weft__part mark = {r, r, 0, span.end - span.begin, 0};

        if (weft__execution_reads(execution, id, r)
                ? weft__execution_read(execution, id, r, pieces)
                : weft__line_read(&execution->lines[span.line], span.begin, span.end, pieces))
            return -1;
        if (weft__execution_add_part(execution, mark))
            return -1;
        for (size_t i = 0; i < pieces->count; i++) {
            const struct weft__piece *p = &pieces->at[i];

            unknown |= p->value == WEFT__VALUE_UNKNOWN;
            if (weft__execution_add_part(
                    execution, (struct weft__part){p->value, p->value, p->from, p->bytes, 1}))
                return -1;
        }
    }
    return unknown;
}

static int call_any(struct weft__execution *execution, uint32_t id)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    struct weft__values *values = &execution->values;
    struct weft__pieces *to = &execution->pieces[2];
    int merging = (node->op->flags & WEFT_OP_FOLDS) != 0, unknown;
    uint32_t merge = WEFT__VALUE_UNKNOWN, op = merging ? weft__values_family(values, node->op)
                                                       : weft__values_op(values, node->op);

    if (op == WEFT__CHECK_NONE)
        return -1;
    unknown = merging ? weft__execution_fold(execution, id) : 2;
    if (unknown == 2) {
        merging = 0;
        op = weft__values_op(values, node->op);
        unknown = gather_call(execution, id);
    }
    if (unknown < 0)
        return -1;
    if (node->produces)
        *number_of(execution, id, node->produces) = (struct weft__number){
            0, 1 + (uint32_t)(number_of(execution, id, node->produces) - execution->numbers)};
    if (merging && !unknown) {
        merge =
            weft__value_intern(values, WEFT__FOLD, op, 0, execution->parts, execution->part_count);
        if (merge == WEFT__CHECK_NONE)
            return -1;
    }
    for (uint32_t r = 0; r < node->region_count; r++) {
        struct weft__span span = span_of(execution, id, r);
        struct weft__piece made = {.bytes = span.end - span.begin};
        struct weft__part part = {merge, merge, 0, made.bytes, 1};

        if (!(access_of(execution, id, r) & WEFT_WRITE) || !made.bytes)
            continue;
        if (!unknown)
            made.value = merging ? weft__value_intern(values, WEFT__FOLDED, op, r, &part, 1)
                                 : weft__value_intern(values, WEFT__CALL, op, r, execution->parts,
                                                      execution->part_count);
        if (made.value == WEFT__CHECK_NONE)
            return -1;
        to->count = 0;
        if (weft__pieces_add(to, made) || write_region(execution, id, r, to))
            return -1;
    }
    return 0;
}

/* Of one that compresses, what it makes of region 0 may be known. */
static int call(struct weft__execution *execution, uint32_t id)
{
    struct weft__pieces *known = &execution->pieces[1];
    int status = weft__execution_compress(execution, id, known);

    if (status < 0 || call_any(execution, id))
        return -1;
    return status ? write_region(execution, id, 0, known) : 0;
}

/* ---- any ---- */

/* A value that is known may be more than its region holds. */
static int check_counts(struct weft__execution *execution, uint32_t id)
{
    struct weft__check *check = execution->check;
    const struct weft__snode *node = weft__check_node(check, id);

    for (uint32_t r = 0; r < node->region_count; r++) {
        const struct weft_region *region = weft__check_region(check, id, r);
        const struct weft__number *n =
            region->value ? number_of(execution, id, region->value) : NULL;
        struct weft__fault fault;

        if (!n || n->symbol || n->number <= region->count)
            continue;
        weft__fault_begin(&fault, WEFT_FAULT_SIZE);
        weft__out_format(&fault.text, "rank %d: ", check->rank_of[id]);
        weft__fault_node(check, &fault, id);
        weft__out_format(&fault.text, ": value `%.64s` is %" PRIu64 ", its region has %zu elements",
                         weft__check_schedule(check, id)->values[region->value - 1].name, n->number,
                         region->count);
        if (weft__fault_end(check, &fault))
            return -1;
    }
    return 0;
}

int weft__execution_compute(struct weft__execution *execution, uint32_t node)
{
    struct weft__pieces *pieces = &execution->pieces[0];

    if (check_counts(execution, node))
        return -1;
    switch (weft__check_node(execution->check, node)->kind) {
    case WEFT_NODE_REDUCE:
        return reduce(execution, node);
    case WEFT_NODE_COPY:
        return weft__execution_read(execution, node, 1, pieces) ||
                       write_region(execution, node, 0, pieces)
                   ? -1
                   : 0;
    default:
        return call(execution, node);
    }
}
