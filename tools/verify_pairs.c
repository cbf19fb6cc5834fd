/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verification of merges of sparse vectors. Which pairs survive depends on the order of merges in
 * general, so contributions are such that it does not: half of the indices are common to all ranks,
 * with magnitudes that nothing else reaches and signs that agree; the others are of one rank each. So
 * every valid order keeps the k largest of the sum, which is computed plainly here.
 */
#include "verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
    uint32_t index;
    float value;
};

/* What the contributions are made of: `common` indices from 0 on, then those of the ranks by turns. */
struct shape {
    size_t k;
    size_t common;
    int ranks;
    size_t limit; /* pairs that are kept */
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

int verify_is_merge(const struct weft_op *op)
{
    return op && strcmp(weft_op_name(op), "topk-merge") == 0;
}

/* From the slots and values of the schedule: elements of the vector, k, whether k pairs are kept. */
static int shape_of(const struct weft_schedule *schedule, struct shape *shape)
{
    struct weft_buffer_info slot;
    struct weft_value_info value;
    size_t elements = SIZE_MAX;

    *shape = (struct shape){.ranks = weft_schedule_size(schedule)};
    for (size_t s = 0; s < weft_schedule_buffer_count(schedule); s++) {
        weft_schedule_buffer_info(schedule, (weft_slot_t)s, &slot);
        if (strcmp(slot.name, "send") == 0 && slot.dtype == WEFT_U64) {
            shape->k = slot.count;
        } else if (strcmp(slot.name, "residual") == 0 && slot.dtype == WEFT_F32) {
            elements = slot.count;
        }
    }
    shape->limit = shape->k * (size_t)shape->ranks;
    for (size_t v = 1; v <= weft_schedule_value_count(schedule); v++) {
        weft_schedule_value_info(schedule, (weft_value_t)v, &value);
        if (strcmp(value.name, "k") == 0) {
            shape->limit = shape->k;
        }
    }
    shape->common = (shape->k + 1) / 2;
    if (elements - shape->common < (size_t)shape->ranks * (shape->k - shape->common)) {
        shape->common = shape->k; /* too few elements for indices of one's own */
    }
    return shape->k > 0;
}

static struct pair contribution(const struct shape *shape, int rank, size_t i, uint64_t iteration)
{
    size_t own = i - shape->common;
    uint64_t at = i < shape->common ? i : shape->common + own * (size_t)shape->ranks + (size_t)rank;
    uint64_t bits = mix(mix(iteration * 1000003 + (uint64_t)rank) + 0x9e3779b97f4a7c15u * (i + 1));
    float size = i < shape->common ? 1000 + (float)(bits % 100) : 1 + (float)(bits % 900);

    return (struct pair){(uint32_t)at, mix(at + iteration) & 1 ? size : -size};
}

void verify_fill_pairs(const struct weft_schedule *schedule, void *data, uint64_t iteration)
{
    struct shape shape;

    if (!shape_of(schedule, &shape)) {
        return;
    }
    for (size_t i = 0; i < shape.k; i++) {
        struct pair pair = contribution(&shape, weft_schedule_rank(schedule), i, iteration);

        ((uint32_t *)data)[i] = pair.index;
        ((float *)data)[shape.k + i] = pair.value;
    }
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

/* The pairs of all ranks together, of which the best are put first and in order; how many those are. */
static size_t expect(const struct shape *shape, uint64_t iteration, struct pair *pairs)
{
    size_t n = shape->common;

    for (size_t i = 0; i < shape->common; i++) {
        pairs[i] = contribution(shape, 0, i, iteration);
        for (int r = 1; r < shape->ranks; r++) {
            pairs[i].value += contribution(shape, r, i, iteration).value;
        }
    }
    for (int r = 0; r < shape->ranks; r++) {
        for (size_t i = shape->common; i < shape->k; i++) {
            pairs[n++] = contribution(shape, r, i, iteration);
        }
    }
    qsort(pairs, n, sizeof(*pairs), best_first);
    n = n < shape->limit ? n : shape->limit;
    qsort(pairs, n, sizeof(*pairs), by_index);
    return n;
}

int verify_pairs(const struct weft_schedule *schedule, const struct weft_result *result,
                 const void *data, uint64_t iteration, struct verify_fault *fault)
{
    struct weft_buffer_info slot;
    struct shape shape;

    weft_schedule_buffer_info(schedule, result->dst.slot, &slot);
    if (!shape_of(schedule, &shape)) {
        return WEFT_OK;
    }
    struct pair *pairs = calloc(shape.k, (size_t)shape.ranks * sizeof(*pairs));
    if (!pairs) {
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory to verify %zu pairs of %d ranks",
                              shape.k, shape.ranks);
    }
    size_t n = expect(&shape, iteration, pairs), i = 0;
    const uint32_t *index = data;
    const float *value = (const float *)data + n;

    while (i < n && index[i] == pairs[i].index && value[i] == pairs[i].value) {
        i++;
    }
    if (i < n) {
        fault->rank = weft_schedule_rank(schedule);
        fault->slot = slot.name;
        fault->element = i;
        snprintf(fault->got, sizeof(fault->got), "(%u, %g)", index[i], (double)value[i]);
        snprintf(fault->expected, sizeof(fault->expected), "(%u, %g)", pairs[i].index,
                 (double)pairs[i].value);
    }
    free(pairs);
    return i < n ? WEFT_IN_PROGRESS : WEFT_OK;
}
