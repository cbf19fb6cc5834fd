/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What goes wrong on virtual ranks: delays, pauses, stops; all from the seed.
 *
 * Pauses are not events: whether a rank pauses is looked up when something is about to happen to
 * it, so ranks that pause now and then do not keep the world from ending.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/transport/virtual/virtual.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double weft__virtual_share(uint64_t *state)
{
    return (double)(weft__random(state) >> 11) * 0x1p-53;
}

weft__ticks_t weft__virtual_uniform(uint64_t *state, weft__ticks_t most)
{
    double ticks = weft__virtual_share(state) * ((double)most + 1);
    return most == 0 || ticks < (double)most ? (weft__ticks_t)ticks : most;
}

static weft__ticks_t ticks_of_ns(uint64_t ns)
{
    return ns < WEFT__TICKS_MAX / WEFT__TICKS_PER_NS ? ns * WEFT__TICKS_PER_NS : WEFT__TICKS_MAX;
}

weft__ticks_t weft__virtual_delay(struct weft__virtual *world)
{
    const struct weft_virtual_config *config = &world->config;
    weft__ticks_t delay = 0;
    if (config->delay_ns != 0)
        delay = weft__virtual_uniform(&world->fault_random, ticks_of_ns(config->delay_ns));
    if (config->heavy_share > 0 && weft__virtual_share(&world->fault_random) < config->heavy_share)
        delay += weft__virtual_uniform(&world->fault_random, ticks_of_ns(config->heavy_ns));
    return delay;
}

static int compare_faults(const void *left, const void *right)
{
    const struct weft_virtual_fault *a = left;
    const struct weft_virtual_fault *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Draws the next random pause of a rank, after `from`. */
static void draw_pause(struct weft__virtual_rank *rank, weft__ticks_t from)
{
    const struct weft_virtual_config *config = &rank->world->config;
    rank->pause_from = WEFT__VIRTUAL_NEVER;
    rank->pause_to = WEFT__VIRTUAL_NEVER;
    if (config->pauses_per_second <= 0)
        return;
    double seconds = -log1p(-weft__virtual_share(&rank->pause_random)) / config->pauses_per_second;
    double ticks = seconds * 1e9 * WEFT__TICKS_PER_NS;
    weft__ticks_t length =
        weft__virtual_uniform(&rank->pause_random, ticks_of_ns(config->pause_ns));
    if (ticks >= (double)WEFT__TICKS_MAX || from > WEFT__TICKS_MAX)
        return;
    rank->pause_from = from + (weft__ticks_t)ticks;
    rank->pause_to = rank->pause_from + length;
}

weft__ticks_t weft__virtual_death_delay(struct weft__virtual *world)
{
    return weft__virtual_uniform(&world->fault_random, ticks_of_ns(world->config.death_ns));
}

int weft__virtual_faults_set(struct weft__virtual *world)
{
    const struct weft_virtual_config *config = &world->config;
    size_t count = config->fault_count;
    world->faults = weft__malloc(count, sizeof *world->faults);
    if (!world->faults)
        return weft__error_memory("virtual ranks");
    if (count > 0)
        memcpy(world->faults, config->faults, count * sizeof *world->faults);
    qsort(world->faults, count, sizeof *world->faults, compare_faults);
    size_t next = 0;
    for (int r = 0; r < world->size; r++) {
        struct weft__virtual_rank *rank = &world->ranks[r];
        while (next < count && world->faults[next].rank < r)
            next++;
        rank->fault = next;
        rank->pause_random = config->seed ^ (UINT64_C(0xD1B54A32D192ED03) * (uint64_t)(r + 1));
        draw_pause(rank, 0);
    }
    for (size_t f = 0; config->deaths && f < count; f++)
        if (world->faults[f].for_ns >= WEFT_NEVER)
            weft__virtual_push(world, ticks_of_ns(world->faults[f].at_ns),
                               weft__virtual_turn(world), WEFT__V_STOP,
                               &world->ranks[world->faults[f].rank]);
    return WEFT_OK;
}

weft__ticks_t weft__virtual_available(struct weft__virtual_rank *rank, weft__ticks_t now)
{
    struct weft__virtual *world = rank->world;
    size_t count = world->config.fault_count;
    if (rank->stopped)
        return WEFT__VIRTUAL_NEVER;
    while (rank->fault < count && world->faults[rank->fault].rank == (int)rank->base.rank) {
        const struct weft_virtual_fault *fault = &world->faults[rank->fault];
        weft__ticks_t from = ticks_of_ns(fault->at_ns);
        if (now < from)
            break;
        if (fault->for_ns >= WEFT_NEVER)
            return WEFT__VIRTUAL_NEVER;
        weft__ticks_t end = from + ticks_of_ns(fault->for_ns);
        if (now < end)
            return end;
        rank->fault++;
    }
    while (now >= rank->pause_from) {
        if (now < rank->pause_to)
            return rank->pause_to;
        draw_pause(rank, rank->pause_to);
    }
    return now;
}
