/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verification of sums that are compressed, with contributions of which compression loses nothing,
 * so that what must come out is known:
 *
 *     quantised    a bucket has something on one rank alone, and only what a level is: the norm, of
 *                  either sign, or (L2) one element that is not 0
 *     projected    bases are columns of the identity: what they keep is the sum, the rest the mean
 *     factored     matrices of all ranks are multiples of one of rank 1
 *
 * What is where is read from the nodes of the schedule.
 */
#include "tools/commands/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Part of the vector, as the node says that compresses it. */
struct area {
    enum { PLAIN, QUANTISED, PROJECTED, FACTORED } kind;
    size_t begin, count;
    size_t slice;      /* or a bucket */
    size_t components; /* of a slice */
    int sparse;        /* a bucket has one element that is not 0 */
    const char *mean;  /* and where it begins in that */
    size_t mean_begin;
};

static const char *slot_name(const struct weft_schedule *schedule, weft_slot_t number,
                             size_t *count)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};

    weft_schedule_get_slot(schedule, number, &slot);
    if (count)
        *count = slot.count;
    return slot.name;
}

static int is_vector(const char *name)
{
    return strcmp(name, "send") == 0 || strcmp(name, "recv") == 0;
}

/* What a node says of an element. */
static int area_of_node(const struct weft_schedule *schedule, const struct weft_node_info *node,
                        struct area *area)
{
    const char *op = node->op ? weft_op_name(node->op) : "";
    const char *digits = op + strcspn(op, "0123456789");
    const struct weft_region *regions = node->regions;
    size_t all;

    if (strncmp(op, "quantise-", 9) == 0) {
        const char *bucket = strncmp(op, "quantise-sign-", 14) == 0 ? digits : strchr(digits, '-');

        if (!is_vector(slot_name(schedule, regions[1].slot, &all)) || !bucket)
            return 0;
        *area = (struct area){.kind = QUANTISED, .count = all, .sparse = strstr(op, "-l2") != NULL};
        area->slice = strtoull(bucket + (*bucket == '-'), NULL, 10);
        return 1;
    }
    size_t slice = strtoull(digits, NULL, 10);
    if (strncmp(op, "reconstruct-", 12) == 0 && node->region_count == 4) {
        *area = (struct area){.kind = PROJECTED,
                              .begin = regions[0].offset,
                              .count = regions[0].count,
                              .slice = slice,
                              .components = regions[2].count / slice,
                              .mean = slot_name(schedule, regions[3].slot, NULL),
                              .mean_begin = regions[3].offset};
        return 1;
    }
    if (strncmp(op, "correlate-", 10) == 0) {
        *area = (struct area){.kind = FACTORED,
                              .begin = regions[1].offset,
                              .count = regions[1].count,
                              .slice = slice};
        return 1;
    }
    return 0;
}

/* All that nodes say; ascending. The caller frees it. NULL without memory. */
static struct area *find_areas(const struct weft_schedule *schedule, size_t *count)
{
    size_t nodes = weft_schedule_node_count(schedule);
    struct area *areas = weft_memory_alloc(nodes + 1, sizeof *areas);
    struct weft_node_info node = {.struct_size = sizeof node};

    *count = 0;
    for (size_t n = 0; areas && n < nodes; n++)
        if (weft_schedule_get_node(schedule, (weft_node_t)n, &node) == WEFT_OK &&
            area_of_node(schedule, &node, &areas[*count])) {
            ++*count;
            if (areas[*count - 1].kind == QUANTISED)
                break; /* of all of the vector */
        }
    return areas;
}

static const struct area *area_at(const struct area *areas, size_t count, size_t element)
{
    static const struct area plain = {.kind = PLAIN};

    for (size_t i = 0; i < count; i++)
        if (element - areas[i].begin < areas[i].count)
            return &areas[i];
    return &plain;
}

/* ---- contributions, a pure function of what they are of ---- */

static uint64_t bits_of(uint64_t a, uint64_t b, uint64_t iteration)
{
    return verify_mix(verify_mix(a + 1000003 * (iteration + 1)) + 0x9e3779b97f4a7c15u * (b + 1)) >>
           8;
}

static double quantised(const struct area *area, size_t i, int rank, int ranks, uint64_t iteration)
{
    size_t bucket = i / area->slice, left = area->count - bucket * area->slice;
    uint64_t bits = bits_of(1, bucket, iteration), own = bits_of(2, i, iteration);

    left = left < area->slice ? left : area->slice;
    if ((int)(bits % (uint64_t)ranks) != rank ||
        (area->sparse && bits / 1000 % left != i % area->slice))
        return 0;
    return ldexp(own & 1 ? 1 : -1, (int)(bits >> 40 & 7));
}

static double factored(const struct area *area, size_t i, int rank, uint64_t iteration)
{
    uint64_t row = bits_of(3, area->begin + (i - area->begin) / area->slice, iteration);
    uint64_t column = bits_of(4, area->begin + (i - area->begin) % area->slice, iteration);

    return (1 + rank % 7) * (1.0 + (double)(row % 3)) * (row & 8 ? 1 : -1) *
           (1.0 + (double)(column % 3)) * (column & 8 ? 1 : -1);
}

static double contribution(const struct area *area, size_t i, int rank, int ranks,
                           uint64_t iteration)
{
    if (area->kind == QUANTISED)
        return quantised(area, i, rank, ranks, iteration);
    if (area->kind == FACTORED)
        return factored(area, i, rank, iteration);
    return (double)(bits_of(100 + (uint64_t)rank, i, iteration) % 2001) - 1000;
}

static double mean_of(const char *slot, size_t i, uint64_t iteration)
{
    return (double)(bits_of(5 + strtoull(slot + 5, NULL, 10), i, iteration) % 201) - 100;
}

/* Column number j of a basis is that of the identity for this element of a slice. */
static size_t kept_element(size_t j, size_t slice, size_t components)
{
    return (size_t)((double)j * (double)slice / (double)components);
}

static int is_kept(const struct area *area, size_t i)
{
    size_t k = (i - area->begin) % area->slice;
    size_t j = (size_t)ceil((double)k * (double)area->components / (double)area->slice);

    for (size_t near = j > 0 ? j - 1 : 0; near <= j + 1 && near < area->components; near++)
        if (kept_element(near, area->slice, area->components) == k)
            return 1;
    return 0;
}

/* ---- slots ---- */

static void fill_basis(const struct weft_schedule *schedule, const struct weft_slot_info *slot,
                       float *to)
{
    struct weft_node_info node = {.struct_size = sizeof node};

    for (size_t n = 0; weft_schedule_get_node(schedule, (weft_node_t)n, &node) == WEFT_OK; n++) {
        const char *op = node.op ? weft_op_name(node.op) : "";

        if (strncmp(op, "project-", 8) != 0 ||
            strcmp(slot_name(schedule, node.regions[2].slot, NULL), slot->name) != 0)
            continue;
        size_t slice = strtoull(op + 8, NULL, 10), components = slot->count / slice;

        for (size_t j = 0; j < components; j++)
            to[kept_element(j, slice, components) * components + j] = 1;
        return;
    }
}

int verify_fill_compressed(const struct weft_schedule *schedule, const struct weft_slot_info *slot,
                           void *data, uint64_t iteration)
{
    int rank = weft_schedule_rank(schedule), ranks = weft_schedule_size(schedule);
    float *to = data;
    size_t count;

    memset(data, 0, slot->count * weft_dtype_size(slot->dtype));
    if (slot->dtype != WEFT_F32)
        return WEFT_OK;
    if (strncmp(slot->name, "basis.", 6) == 0)
        fill_basis(schedule, slot, to);
    for (size_t i = 0; strncmp(slot->name, "mean.", 5) == 0 && i < slot->count; i++)
        to[i] = (float)mean_of(slot->name, i, iteration);
    for (size_t i = 0; strncmp(slot->name, "factor.", 7) == 0 && i < slot->count; i++)
        to[i] = (float)(1 + bits_of(6, i, iteration) % 1000 / 1000.0);
    if (!is_vector(slot->name))
        return WEFT_OK;
    struct area *areas = find_areas(schedule, &count);
    if (!areas)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory to fill slot %s", slot->name);
    for (size_t i = 0; i < slot->count; i++)
        to[i] = (float)contribution(area_at(areas, count, i), i, rank, ranks, iteration);
    weft_memory_free(areas);
    return WEFT_OK;
}

/* What must be there, and how far off it may be by rounding. */
static double expect(const struct area *area, const struct weft_result *result, size_t i, int ranks,
                     uint64_t iteration, double *allowed)
{
    double sum = 0, size = 0;

    if (strncmp(result->from, "mean.", 5) == 0) {
        *allowed = 0;
        return mean_of(result->from, i, iteration);
    }
    for (int r = 0; r < ranks; r++) {
        double value = contribution(area, i, r, ranks, iteration);

        sum += value;
        size += fabs(value);
    }
    *allowed = 1e-5 * (size + 100);
    if (area->kind == FACTORED) /* sums of as many products, in f32 */
        *allowed = size * (1e-4 + 0x1p-23 * (double)(area->count / area->slice + area->slice));
    if (area->kind != PROJECTED || is_kept(area, i))
        return sum;
    return mean_of(area->mean, i - area->begin + area->mean_begin, iteration);
}

int verify_compressed(const struct weft_schedule *schedule, const struct weft_result *result,
                      const void *data, uint64_t iteration, struct verify_fault *fault)
{
    const float *got = (const float *)data + result->dst.offset;
    size_t count;
    struct area *areas = find_areas(schedule, &count);
    int status = WEFT_OK;

    if (!areas)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory to verify %zu elements",
                              result->dst.count);
    for (size_t i = 0; i < result->dst.count && !status; i++) {
        size_t element = result->offset + i;
        double allowed, expected = expect(area_at(areas, count, element), result, element,
                                          weft_schedule_size(schedule), iteration, &allowed);

        if (fabs((double)got[i] - expected) <= allowed)
            continue;
        fault->rank = weft_schedule_rank(schedule);
        fault->slot = slot_name(schedule, result->dst.slot, NULL);
        fault->element = result->dst.offset + i;
        snprintf(fault->got, sizeof fault->got, "%.9g", (double)got[i]);
        snprintf(fault->expected, sizeof fault->expected, "%.9g", expected);
        status = WEFT_IN_PROGRESS;
    }
    weft_memory_free(areas);
    return status;
}
