/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks that go with the interpreter: races, declared results. */
#include "support/interpreter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- races ---- */

/* A node touches a region. */
struct touch {
    weft_slot_t slot;
    size_t begin, end;
    weft_node_t node;
    int write;
};

static int compare_touches(const void *a, const void *b)
{
    const struct touch *x = a, *y = b;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int writes(const struct weft_node_info *info, size_t region)
{
    switch (info->kind) {
    case WEFT_NODE_SEND:
        return 0;
    case WEFT_NODE_RECV:
        return 1;
    case WEFT_NODE_REDUCE:
    case WEFT_NODE_COPY:
        return region == 0;
    default:
        return (info->accesses[region] & WEFT_WRITE) != 0;
    }
}

static size_t collect(const struct weft_schedule *schedule, struct touch *touches)
{
    size_t found = 0;
    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++) {
        struct weft_node_info info = {.struct_size = sizeof info};
        weft_schedule_get_node(schedule, (weft_node_t)n, &info);
        for (size_t i = 0; i < info.region_count; i++) {
            const struct weft_region *region = &info.regions[i];
            if (touches && region->count)
                touches[found] =
                    (struct touch){region->slot, region->offset, region->offset + region->count,
                                   (weft_node_t)n, writes(&info, i)};
            found += region->count > 0;
        }
    }
    return found;
}

/* A bit set a node: the nodes that surely end before it starts. */
struct order {
    size_t count, words;
    uint64_t *before;
};

static int is_before(const struct order *order, weft_node_t a, weft_node_t b)
{
    return order->before[(size_t)b * order->words + (size_t)a / 64] >> (a % 64) & 1;
}

/* An edge into an ANY node orders nothing unless it is the only one. */
static int close_order(const struct weft_schedule *schedule, struct order *order)
{
    size_t edges = weft_schedule_edge_count(schedule);
    size_t *preds = calloc(order->count + 1, sizeof *preds);
    if (!preds)
        return -1;
    weft_node_t a, b;
    for (size_t i = 0; i < edges; i++) {
        weft_schedule_get_edge(schedule, i, &a, &b);
        preds[b]++;
    }
    for (int changed = 1; changed;) { /* edges mostly lead forward: few rounds */
        changed = 0;
        for (size_t i = 0; i < edges; i++) {
            struct weft_node_info info = {.struct_size = sizeof info};
            weft_schedule_get_edge(schedule, i, &a, &b);
            weft_schedule_get_node(schedule, b, &info);
            if (info.any && preds[b] > 1)
                continue;
            uint64_t *to = order->before + (size_t)b * order->words;
            const uint64_t *from = order->before + (size_t)a * order->words;
            for (size_t w = 0; w < order->words; w++) {
                uint64_t bits = from[w] | ((size_t)a / 64 == w ? (uint64_t)1 << (a % 64) : 0);
                changed |= (bits & ~to[w]) != 0;
                to[w] |= bits;
            }
        }
    }
    free(preds);
    return 0;
}

int interp_find_race(const struct weft_schedule *schedule, char *text, size_t text_size)
{
    struct order order = {.count = weft_schedule_node_count(schedule)};
    order.words = order.count / 64 + 1;
    order.before = calloc(order.count + 1, order.words * sizeof *order.before);
    size_t found = collect(schedule, NULL);
    struct touch *touches = calloc(found + 1, sizeof *touches);
    int status = -1;
    snprintf(text, text_size, "out of memory");
    if (!order.before || !touches || close_order(schedule, &order))
        goto done;
    collect(schedule, touches);
    qsort(touches, found, sizeof *touches, compare_touches);
    status = 0;
    for (size_t i = 0; i < found && !status; i++)
        for (size_t j = i + 1;
             j < found && touches[j].slot == touches[i].slot && touches[j].begin < touches[i].end;
             j++) {
            const struct touch *x = &touches[i], *y = &touches[j];
            if (x->node == y->node || !(x->write || y->write) ||
                is_before(&order, x->node, y->node) || is_before(&order, y->node, x->node))
                continue;
            snprintf(text, text_size,
                     "rank %d: nodes %d and %d both touch element %zu of slot %d, one writes, and "
                     "no order is between them",
                     weft_schedule_rank(schedule), (int)x->node, (int)y->node, y->begin,
                     (int)x->slot);
            status = 1;
            break;
        }
done:
    free(touches);
    free(order.before);
    return status;
}

/* ---- results ---- */

static weft_slot_t slot_of(const struct weft_schedule *schedule, const char *name,
                           struct weft_slot_info *info)
{
    info->struct_size = sizeof *info;
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++)
        if (!weft_schedule_get_slot(schedule, (weft_slot_t)s, info) && !strcmp(info->name, name))
            return (weft_slot_t)s;
    return -1;
}

/* Rank r's contribution to a result, or NULL if it has no such elements. */
static const char *contribution(const struct weft_schedule *const *schedules, int ranks, int r,
                                const char *from, const struct interp_memory *initial,
                                const struct weft_result *result)
{
    struct weft_slot_info info = {.struct_size = sizeof info};
    if (r < 0 || r >= ranks)
        return NULL;
    weft_slot_t slot = slot_of(schedules[r], from, &info);
    if (slot < 0 || result->offset + result->dst.count > info.count)
        return NULL;
    return (const char *)initial->slots[r][slot] + result->offset * weft_dtype_size(info.dtype);
}

static int check_result(const struct weft_schedule *const *schedules, int ranks, int rank,
                        const struct weft_result *result, const struct interp_memory *initial,
                        const struct interp_memory *final, char *text, size_t text_size)
{
    struct weft_slot_info info = {.struct_size = sizeof info, .dtype = WEFT_U8};
    weft_schedule_get_slot(schedules[rank], result->dst.slot, &info);
    size_t element = weft_dtype_size(info.dtype), count = result->dst.count;
    char *expected = calloc(count + 1, element);
    int status = expected ? 0 : -1;
    for (int i = 0; i < result->ranks && !status; i++) {
        int r = weft_result_rank(result, i);
        const char *from = weft_result_slot(result, rank, r);
        const char *part = contribution(schedules, ranks, r, from, initial, result);
        if (!part) {
            snprintf(text, text_size, "rank %d: result from '%s' of rank %d: no such elements",
                     rank, from, r);
            status = -1;
        } else if (i == 0) {
            memcpy(expected, part, count * element);
        } else if (weft_op_reduce(result->op, info.dtype, expected, expected, part, count)) {
            snprintf(text, text_size, "rank %d: the result's operation failed", rank);
            status = -1;
        }
    }
    const char *got =
        (const char *) final->slots[rank][result->dst.slot] + result->dst.offset * element;
    for (size_t i = 0; i < count && !status; i++)
        if (memcmp(got + i * element, expected + i * element, element)) {
            snprintf(text, text_size,
                     "rank %d: element %zu of '%s' is not the combination of '%s'[%zu] of ranks "
                     "%d .. %d",
                     rank, result->dst.offset + i, info.name, result->from, result->offset + i,
                     weft_result_rank(result, 0), weft_result_rank(result, result->ranks - 1));
            status = 1;
        }
    free(expected);
    return status;
}

int interp_check_results(const struct weft_schedule *const *schedules, int ranks,
                         const struct interp_memory *initial, const struct interp_memory *final,
                         char *text, size_t text_size)
{
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < weft_schedule_result_count(schedules[r]); i++) {
            struct weft_result result = {.struct_size = sizeof result};
            weft_schedule_get_result(schedules[r], i, &result);
            if (result.kind == WEFT_RESULT_AFTER_START)
                continue; /* told by interp_options.heard */
            int status =
                check_result(schedules, ranks, r, &result, initial, final, text, text_size);
            if (status)
                return status;
        }
    return 0;
}
