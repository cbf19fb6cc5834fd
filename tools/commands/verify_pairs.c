/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verification of merges of sparse vectors. Which pairs survive depends on the order of merges in
 * general, so contributions are such that it does not: half of the indices are common to all ranks,
 * with magnitudes that nothing else reaches and signs that agree; the others are of one rank each.
 * So every valid order keeps the k largest of the sum, which is computed plainly here.
 *
 * Where a schedule has bounds of regions (Ok-Topk), what is kept does not depend on an order, but
 * on the bounds, on how many pairs of a region a rank sends and its owner passes on, and on a
 * threshold. Bounds and threshold change from one iteration to the next.
 */
#include "tools/commands/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
    uint32_t index;
    float value;
};

/* What the contributions are made of: `common` indices from 0 on, then those of the ranks by turns.
 */
struct shape {
    size_t k;
    size_t common;
    int ranks;
    size_t limit; /* pairs that are kept */
    int regions;  /* 0, or as many as ranks: then share and quota are limits, too */
    size_t share;
    size_t quota;
    size_t elements;
};

int verify_is_merge(const struct weft_op *op)
{
    return op && strcmp(weft_op_name(op), "topk-merge") == 0;
}

/* From the slots and values of the schedule: elements of the vector, k, whether k pairs are kept.
 */
static int shape_of(const struct weft_schedule *schedule, struct shape *shape)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    struct weft_value_info value = {.struct_size = sizeof value};
    size_t elements = SIZE_MAX;

    *shape = (struct shape){.ranks = weft_schedule_size(schedule)};
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        weft_schedule_get_slot(schedule, (weft_slot_t)s, &slot);
        if (strcmp(slot.name, "send") == 0 && slot.dtype == WEFT_U64)
            shape->k = slot.count;
        else if (strcmp(slot.name, "residual") == 0 && slot.dtype == WEFT_F32)
            elements = slot.count;
        else if (strcmp(slot.name, "bounds") == 0 && slot.dtype == WEFT_U64)
            shape->regions = shape->ranks;
    }
    shape->elements = elements;
    shape->limit = shape->k * (size_t)shape->ranks;
    for (size_t v = 1; v <= weft_schedule_value_count(schedule); v++) {
        weft_schedule_get_value(schedule, (weft_value_t)v, &value);
        if (strcmp(value.name, "k") == 0)
            shape->limit = shape->k;
        else if (strcmp(value.name, "share") == 0)
            shape->share = value.max;
        else if (strcmp(value.name, "quota") == 0)
            shape->quota = value.max;
    }
    shape->common = (shape->k + 1) / 2;
    if (elements - shape->common < (size_t)shape->ranks * (shape->k - shape->common))
        shape->common = shape->k; /* too few elements for indices of one's own */
    return shape->k > 0;
}

static struct pair contribution(const struct shape *shape, int rank, size_t i, uint64_t iteration)
{
    size_t own = i - shape->common;
    uint64_t at = i < shape->common ? i : shape->common + own * (size_t)shape->ranks + (size_t)rank;
    uint64_t bits = verify_mix(verify_mix(iteration * 1000003 + (uint64_t)rank) +
                               0x9e3779b97f4a7c15u * (i + 1));
    float size = i < shape->common ? 1000 + (float)(bits % 100) : 1 + (float)(bits % 900);

    return (struct pair){(uint32_t)at, verify_mix(at + iteration) & 1 ? size : -size};
}

/* The begin of a region: they are equally long, or ever longer. */
static uint64_t bound(const struct shape *shape, uint64_t iteration, int j)
{
    double part = (double)j / shape->regions;

    return (uint64_t)((iteration % 2 ? part * part : part) * (double)shape->elements);
}

static float threshold(uint64_t iteration)
{
    return iteration % 3 ? 100.0f * (float)(iteration % 8) : 0;
}

void verify_fill_pairs(const struct weft_schedule *schedule, const struct weft_slot_info *slot,
                       void *data, uint64_t iteration)
{
    struct shape shape;

    memset(data, 0, slot->count * weft_dtype_size(slot->dtype));
    if (!shape_of(schedule, &shape) || slot->kind != WEFT_SLOT_INPUT)
        return;
    for (size_t i = 0; i < shape.k && strcmp(slot->name, "send") == 0; i++) {
        struct pair pair = contribution(&shape, weft_schedule_rank(schedule), i, iteration);

        ((uint32_t *)data)[i] = pair.index;
        ((float *)data)[shape.k + i] = pair.value;
    }
    for (int j = 0; j <= shape.regions && strcmp(slot->name, "bounds") == 0; j++)
        ((uint64_t *)data)[j] = bound(&shape, iteration, j);
    if (shape.regions > 0 && strcmp(slot->name, "threshold") == 0)
        *(float *)data = threshold(iteration);
}

static int best_first(const void *a, const void *b)
{
    const struct pair *p = a, *q = b;
    float x = fabsf(p->value), y = fabsf(q->value);

    return x != y ? (x < y) - (x > y) : (p->index > q->index) - (p->index < q->index);
}

static int by_index(const void *a, const void *b)
{
    const struct pair *p = a, *q = b;

    return (p->index > q->index) - (p->index < q->index);
}

/* The pairs of all ranks together, of which the best are put first and in order; how many those
 * are. */
static size_t expect(const struct shape *shape, uint64_t iteration, struct pair *pairs)
{
    size_t n = shape->common;

    for (size_t i = 0; i < shape->common; i++) {
        pairs[i] = contribution(shape, 0, i, iteration);
        for (int r = 1; r < shape->ranks; r++)
            pairs[i].value += contribution(shape, r, i, iteration).value;
    }
    for (int r = 0; r < shape->ranks; r++)
        for (size_t i = shape->common; i < shape->k; i++)
            pairs[n++] = contribution(shape, r, i, iteration);
    qsort(pairs, n, sizeof *pairs, best_first);
    n = n < shape->limit ? n : shape->limit;
    qsort(pairs, n, sizeof *pairs, by_index);
    return n;
}

/* Pairs of one index become one, the first of them; pairs are by index. */
static size_t add_up(struct pair *pairs, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        if (n > 0 && pairs[n - 1].index == pairs[i].index)
            pairs[n - 1].value += pairs[i].value;
        else
            pairs[n++] = pairs[i];
    return n;
}

/* The most of `limit` pairs by magnitude to the front. */
static size_t keep_best(struct pair *pairs, size_t count, size_t limit)
{
    qsort(pairs, count, sizeof *pairs, best_first);
    return count < limit ? count : limit;
}

/* What is left of region j, to `pairs`, which has room for the lists of all ranks. */
static size_t expect_region(const struct shape *shape, int j, uint64_t iteration,
                            struct pair *pairs)
{
    uint64_t begin = bound(shape, iteration, j), end = bound(shape, iteration, j + 1);
    size_t count = 0, n = 0;

    for (int r = 0; r < shape->ranks; r++) {
        size_t first = count;

        for (size_t i = 0; i < shape->k; i++) {
            struct pair pair = contribution(shape, r, i, iteration);

            if (begin <= pair.index && pair.index < end)
                pairs[count++] = pair;
        }
        if (r != j)
            count = first + keep_best(pairs + first, count - first, shape->share);
    }
    qsort(pairs, count, sizeof *pairs, by_index);
    count = add_up(pairs, count);
    for (size_t i = 0; i < count; i++)
        if (fabsf(pairs[i].value) >= threshold(iteration))
            pairs[n++] = pairs[i];
    n = keep_best(pairs, n, shape->quota);
    qsort(pairs, n, sizeof *pairs, by_index);
    return n;
}

static size_t expect_regions(const struct shape *shape, uint64_t iteration, struct pair *pairs)
{
    size_t n = 0;

    for (int j = 0; j < shape->regions; j++)
        n += expect_region(shape, j, iteration, pairs + n);
    return n;
}

int verify_pairs(const struct weft_schedule *schedule, const struct weft_result *result,
                 const void *data, uint64_t iteration, struct verify_fault *fault)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    struct shape shape;

    weft_schedule_get_slot(schedule, result->dst.slot, &slot);
    if (!shape_of(schedule, &shape))
        return WEFT_OK;
    /* Regions that are done, and one into which all lists may fall. */
    size_t room = shape.k * (size_t)shape.ranks + shape.quota * (size_t)shape.regions;
    struct pair *pairs = calloc(room, sizeof *pairs);
    if (!pairs) {
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory to verify %zu pairs of %d ranks",
                              shape.k, shape.ranks);
    }
    size_t n = shape.regions > 0 ? expect_regions(&shape, iteration, pairs)
                                 : expect(&shape, iteration, pairs),
           i = 0;
    const uint32_t *index = data;
    const float *value = (const float *)data + n;

    while (i < n && index[i] == pairs[i].index && value[i] == pairs[i].value)
        i++;
    if (i < n) {
        fault->rank = weft_schedule_rank(schedule);
        fault->slot = slot.name;
        fault->element = i;
        snprintf(fault->got, sizeof fault->got, "(%u, %g)", index[i], (double)value[i]);
        snprintf(fault->expected, sizeof fault->expected, "(%u, %g)", pairs[i].index,
                 (double)pairs[i].value);
    }
    free(pairs);
    return i < n ? WEFT_IN_PROGRESS : WEFT_OK;
}
