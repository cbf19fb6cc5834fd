/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which layers make a group, method by method. What the groups' times are, plan.c says, by the same
 * additions as here: start = the latest of what a group waits for, end = start + its cost.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <weft/memory.h>

#include "schedules/merge/merge.h"

/* ---- exact ---- */

/*
 * end[i]: the earliest at which groups of the first i layers can have ended. The last of them is of
 * the layers j .. i-1 for some j, and starts no earlier than they are ready and than end[j]. An end
 * that is later there makes none here earlier, so only the earliest of each j matters:
 *
 *     end[i] = min over j < i of max(end[j], ready of j .. i-1) + cost of j .. i-1
 *
 * Rounding does not decrease where its argument does not: that holds for the doubles themselves.
 */
struct table {
    double *end;
    size_t *groups; /* the fewest with that end */
    size_t *first;  /* of the last group's layers */
    size_t *bytes;  /* of the first i layers together */
};

/* A group alone ends no earlier if it is longer, where costs do not fall: none of more layers can
 * be better then, once one alone is worse than the best. */
static void end_with(struct weft__merge_work *work, struct table *table, size_t i)
{
    double best = INFINITY, ready = 0;
    size_t groups = SIZE_MAX, first = i - 1;
    for (size_t j = i; j-- > 0;) {
        ready = weft__merge_later(ready, work->layers[j].ready_us);
        double cost = weft__merge_price(&work->price, (double)(table->bytes[i] - table->bytes[j]));
        if (work->price.linear && ready + cost > best)
            break;
        double end = weft__merge_later(table->end[j], ready) + cost;
        if (end < best || (end == best && table->groups[j] < groups)) {
            best = end;
            groups = table->groups[j] + 1;
            first = j;
        }
    }
    table->end[i] = best;
    table->groups[i] = groups;
    table->first[i] = first;
}

static int exact(struct weft__merge_work *work)
{
    size_t layers = work->layer_count, room = layers + 1;
    struct table table = {.end = weft_memory_alloc(room, sizeof *table.end),
                          .groups = weft_memory_alloc(room, sizeof *table.groups),
                          .first = weft_memory_alloc(room, sizeof *table.first),
                          .bytes = weft_memory_alloc(room, sizeof *table.bytes)};
    int status = table.end && table.groups && table.first && table.bytes
                     ? WEFT_OK
                     : weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu layers",
                                      work->who, layers);
    for (size_t i = 1; i <= layers && !status; i++) {
        table.bytes[i] = table.bytes[i - 1] + work->layers[i - 1].bytes;
        end_with(work, &table, i);
        status = weft__merge_price_status(work->who, &work->price);
    }
    if (!status) {
        work->group_count = table.groups[layers];
        for (size_t i = layers, g = work->group_count; g-- > 0; i = table.first[i])
            work->sizes[g] = i - table.first[i];
    }
    weft_memory_free(table.bytes);
    weft_memory_free(table.first);
    weft_memory_free(table.groups);
    weft_memory_free(table.end);
    return status;
}

/* ---- the paper's ---- */

/*
 * Algorithm 1, which counts layers from L, the first of the backward pass, down to 1. What it calls
 * tau_b[l-2], when the gradient of layer l-2 is begun, is when that of l-1 is ready, the next one
 * here; for l = 2 it is the end of the backward pass. tau_c[l] is when l, with what has been merged
 * into it, could be sent. A merge changes no tau_c of an earlier layer, so one pass will do.
 *
 * Equation 27 follows from inequality 26 for a + b M; other costs are asked that one.
 */
static int is_merged(struct weft__merge_work *work, size_t layer, size_t bytes, double start)
{
    const struct weft_merge_layer *next = &work->layers[layer + 1];
    if (work->price.linear)
        return next->ready_us - start < work->price.cost.a_us;
    double alone = weft__merge_price(&work->price, (double)bytes);
    double after = weft__merge_price(&work->price, (double)next->bytes);
    double both = weft__merge_price(&work->price, (double)(bytes + next->bytes));
    return weft__merge_later(start, next->ready_us) + both <
           weft__merge_later(start + alone, next->ready_us) + after;
}

static int greedy(struct weft__merge_work *work)
{
    double free = 0, start = 0;
    size_t bytes = 0, size = 0;
    for (size_t i = 0; i < work->layer_count; i++) {
        start = weft__merge_later(size ? start : free, work->layers[i].ready_us);
        bytes += work->layers[i].bytes;
        size++;
        if (i + 1 < work->layer_count && is_merged(work, i, bytes, start))
            continue;
        work->sizes[work->group_count++] = size;
        free = start + weft__merge_price(&work->price, (double)bytes);
        bytes = size = 0;
    }
    return WEFT_OK;
}

/* ---- comparisons ---- */

static int wfbp(struct weft__merge_work *work)
{
    for (size_t i = 0; i < work->layer_count; i++)
        work->sizes[i] = 1;
    work->group_count = work->layer_count;
    return WEFT_OK;
}

static int single(struct weft__merge_work *work)
{
    work->group_count = work->layer_count > 0;
    work->sizes[0] = work->layer_count;
    return WEFT_OK;
}

static int buckets(struct weft__merge_work *work)
{
    size_t bytes = 0, size = 0, full = work->config->first_bucket_bytes;
    for (size_t i = 0; i < work->layer_count; i++) {
        bytes += work->layers[i].bytes;
        size++;
        if (bytes < full && i + 1 < work->layer_count)
            continue;
        work->sizes[work->group_count++] = size;
        bytes = size = 0;
        full = work->config->bucket_bytes;
    }
    return WEFT_OK;
}

static int given(struct weft__merge_work *work)
{
    const struct weft_merge_config *config = work->config;
    size_t left = work->layer_count;
    for (size_t g = 0; g < config->group_count; g++) {
        if (!config->group_layers[g] || config->group_layers[g] > left)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: config->group_layers[%zu] is %zu, expected 1 .. the %zu "
                                  "layers that are left",
                                  work->who, g, config->group_layers[g], left);
        work->sizes[g] = config->group_layers[g];
        left -= config->group_layers[g];
    }
    work->group_count = config->group_count;
    if (left)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->group_layers add up to %zu, expected %zu layers",
                              work->who, work->layer_count - left, work->layer_count);
    return WEFT_OK;
}

/* ---- Horovod ---- */

struct arrival {
    double ready_us;
    size_t layer;
};

static int compare_arrivals(const void *first, const void *second)
{
    const struct arrival *a = first, *b = second;
    if (a->ready_us != b->ready_us)
        return a->ready_us < b->ready_us ? -1 : 1;
    return a->layer < b->layer ? -1 : 1;
}

static int arrive(struct weft__merge_work *work)
{
    struct arrival *arrivals = weft_memory_alloc(work->layer_count, sizeof *arrivals);
    if (!arrivals)
        return WEFT_ERR_MEMORY;
    for (size_t i = 0; i < work->layer_count; i++)
        arrivals[i] = (struct arrival){work->layers[i].ready_us, i};
    qsort(arrivals, work->layer_count, sizeof *arrivals, compare_arrivals);
    for (size_t i = 0; i < work->layer_count; i++)
        work->order[i] = arrivals[i].layer;
    weft_memory_free(arrivals);
    return WEFT_OK;
}

/* The first look at or after `us` of a thread that looks every cycle and has looked at `look`. */
static double look_at(double look, double cycle, double us)
{
    double cycles = ceil((us - look) / cycle), passed = cycles * cycle;
    if (look >= us)
        return look;
    return cycles < 1 / DBL_EPSILON ? weft__merge_later(look + passed, us) : us;
}

/* One look: fuses what is ready, and returns when its allreduces have ended. */
static double fuse(struct weft__merge_work *work, double look, size_t *next)
{
    size_t most = work->config->bucket_bytes, place = *next;
    double end = look;
    while (place < work->layer_count && weft__merge_layer(work, place)->ready_us <= look) {
        size_t bytes = weft__merge_layer(work, place++)->bytes, size = 1;
        for (; place < work->layer_count; place++, size++) {
            const struct weft_merge_layer *layer = weft__merge_layer(work, place);
            if (layer->ready_us > look || bytes > most || layer->bytes > most - bytes)
                break;
            bytes += layer->bytes;
        }
        work->earliest[work->group_count] = look;
        work->sizes[work->group_count++] = size;
        end += weft__merge_price(&work->price, (double)bytes);
    }
    *next = place;
    return end;
}

static int cycles(struct weft__merge_work *work)
{
    double cycle = work->config->cycle_us, look = 0;
    work->order = weft_memory_alloc(work->layer_count, sizeof *work->order);
    work->earliest = weft_memory_alloc(work->layer_count, sizeof *work->earliest);
    if (work->layer_count && (!work->order || !work->earliest || arrive(work)))
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu layers", work->who,
                              work->layer_count);
    for (size_t next = 0; next < work->layer_count;) {
        look = look_at(look, cycle, weft__merge_layer(work, next)->ready_us);
        double end = fuse(work, look, &next);
        look = weft__merge_later(look + cycle, end);
    }
    return WEFT_OK;
}

int weft__merge_group(struct weft__merge_work *work)
{
    static int (*const methods[])(struct weft__merge_work *) = {
        [WEFT_MERGE_EXACT] = exact,   [WEFT_MERGE_GREEDY] = greedy,   [WEFT_MERGE_WFBP] = wfbp,
        [WEFT_MERGE_SINGLE] = single, [WEFT_MERGE_BUCKETS] = buckets, [WEFT_MERGE_CYCLES] = cycles,
        [WEFT_MERGE_GIVEN] = given,
    };
    return methods[work->config->method](work);
}
