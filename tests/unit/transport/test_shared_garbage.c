/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer that writes what it likes into the memory that processes share. Four ranks are processes;
 * the last one goes mad: it keeps its mappings and scribbles over them, at random, while the others
 * work, and ends at some time. Run under the address sanitizer: nothing of it may reach memory
 * beyond the region.
 *
 * What is its own to write (the rings that it fills, its own region) may harm runs with it alone:
 * the others go on among themselves, get the right results, and can end their contexts. Where it
 * writes over rings of others, these may lose messages and wait for ever, so runs are cancelled
 * then; only memory must stay sane.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <weft/shared.h>
#include <weft/weft.h>

#include "runtime/engine/transport.h"
#include "runtime/transport/shared/channel.h"
#include "runtime/transport/shared/region.h"
#include "support/forked.h"
#include "support/sweep.h"
#include "tests/support/bind.h"

enum { SIZE = 4, MAD = SIZE - 1, EXCHANGES = 30, WRITES = 4000, BURST = 40 };

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            forked_fail(self, "line %d: %s: %s", __LINE__, #condition, weft_error_text());         \
    } while (0)

struct madness {
    uint64_t seed;
    int everywhere; /* not only over what is its own to write */
    int leaves;     /* it says of no part that it has left it, and nothing else */
};

static uint64_t mixed(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state += 1;
    return mixed(*state) % below;
}

/* ---- who is mad ---- */

struct rogue {
    struct forked_rank *self;
    uint64_t state;
    struct weft__layout layout;
    char *regions[SIZE]; /* by member */
    int everywhere, leaves;
};

/* The regions that are mapped here, all of each writable or not: the kernel lists them. */
static void find_regions(struct rogue *rogue)
{
    struct forked_rank *self = rogue->self;
    char line[4096];
    FILE *file = fopen("/proc/self/maps", "r");
    NEED(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long from, to, offset;
        char rights[8];
        NEED(sscanf(line, "%lx-%lx %7s %lx", &from, &to, rights, &offset) == 4);
        if (!strstr(line, "memfd:weft") || offset != 0 || rights[1] != 'w')
            continue;
        const struct weft__shared_region *region = (void *)from; /* NOLINT: as the kernel says */
        NEED(region->magic == WEFT__REGION_MAGIC && region->member < SIZE);
        rogue->regions[region->member] = (char *)from;
    }
    fclose(file);
    for (int r = 0; r < SIZE; r++)
        NEED(rogue->regions[r]);
}

/* Numbers at which something may go wrong. */
static uint64_t extreme(struct rogue *rogue)
{
    const struct weft__layout *layout = &rogue->layout;
    const uint64_t numbers[] = {0,
                                1,
                                WEFT__LINE_PAYLOAD,
                                WEFT__LINE_PAYLOAD + 1,
                                layout->eager_bytes,
                                layout->eager_bytes + 1,
                                layout->payload_bytes,
                                layout->payload_bytes + 1,
                                layout->ahead_bytes + 1,
                                layout->slots,
                                layout->arena_bytes,
                                layout->arena_bytes - 1,
                                layout->arena_at,
                                layout->total_bytes,
                                layout->lines,
                                INT32_MAX,
                                UINT32_MAX,
                                (uint64_t)INT64_MAX,
                                UINT64_MAX,
                                UINT64_MAX - 4095,
                                (uint64_t)(uintptr_t)rogue->regions[0],
                                (uint64_t)(uintptr_t)rogue};
    uint64_t drawn = draw(&rogue->state, sizeof numbers / sizeof numbers[0] + 2);
    if (drawn < sizeof numbers / sizeof numbers[0])
        return numbers[drawn] + draw(&rogue->state, 3) - 1;
    return mixed(rogue->state);
}

/* By some kinds a rank may say that all has failed, which it may well say: not by one that is to
 * harm itself alone. */
static uint8_t draw_kind(struct rogue *rogue)
{
    static const uint8_t own[] = {WEFT__DATA,   WEFT__DATA, WEFT__DATA,
                                  WEFT__SIGNAL, WEFT__LEFT, WEFT__RECEIVE};
    switch (draw(&rogue->state, 5)) {
    case 0:
    case 1:
        return rogue->everywhere ? (uint8_t)draw(&rogue->state, 16)
                                 : own[draw(&rogue->state, sizeof own)];
    case 2:
    case 3:
        return (uint8_t)(WEFT__LINE_OWN + draw(&rogue->state, 8));
    default:
        return (uint8_t)(16 + draw(&rogue->state, 240));
    }
}

/* A line as a peer reads it next, or soon, in the ring that `from` writes to `to`. */
static void plausible_line(struct rogue *rogue, int from, int to)
{
    char *region = rogue->regions[to];
    struct weft__credits *credits = weft__region_credits(&rogue->layout, region, from);
    uint32_t position = atomic_load(&credits->lines) + (uint32_t)draw(&rogue->state, 3);
    struct weft__line *ring = weft__region_ring(&rogue->layout, region, from);
    struct weft__line *line = &ring[position & (rogue->layout.lines - 1)];
    for (size_t i = 0; i < sizeof line->payload / 8; i++) {
        uint64_t number = extreme(rogue);
        memcpy(line->payload + 8 * i, &number, 8);
    }
    line->tag = (uint32_t)extreme(rogue);
    line->object = draw(&rogue->state, 2) ? draw(&rogue->state, 4) : extreme(rogue);
    line->version = draw(&rogue->state, 2) ? draw(&rogue->state, 4) : extreme(rogue);
    line->bytes = (uint32_t)extreme(rogue);
    line->part = (uint16_t)extreme(rogue);
    line->turn = (uint8_t)extreme(rogue);
    line->kind = draw_kind(rogue);
    if (rogue->leaves) { /* of a run that the reader may have */
        line->kind = WEFT__LEFT;
        line->part = 0;
        line->tag = 1;
        line->object = draw(&rogue->state, 4);
        line->version = draw(&rogue->state, EXCHANGES);
    }
    atomic_store(&line->sequence, weft__line_sequence(position));
    struct weft__shared_region *head = (void *)region;
    atomic_fetch_or(&head->summary[0], UINT64_C(1) << from);
    weft__bell_ring(&head->bell);
}

/* Where the rogue may write: the rings that it fills, in the regions of others; all of its own. */
static char *place(struct rogue *rogue, size_t *bytes)
{
    const struct weft__layout *layout = &rogue->layout;
    int member = (int)draw(&rogue->state, SIZE);
    char *region = rogue->regions[member];
    size_t ring_bytes = layout->ring_bytes;
    if (rogue->everywhere || member == MAD)
        switch (draw(&rogue->state, 5)) {
        case 0:
            *bytes = sizeof(struct weft__shared_region);
            return region;
        case 1:
            *bytes = SIZE * sizeof(struct weft__credits);
            return (char *)weft__region_credits(layout, region, 0);
        case 2:
            *bytes = 16 * sizeof(struct weft__shared_slot);
            return (char *)weft__region_slot(layout, region, 0);
        case 3:
            *bytes = member == MAD ? 1 << 16 : layout->slots * sizeof(struct weft__shared_slot);
            return member == MAD ? weft__region_arena(layout, region)
                                 : (char *)weft__region_slot(layout, region, 0);
        default:
            *bytes = SIZE * ring_bytes;
            return (char *)weft__region_ring(layout, region, 0);
        }
    *bytes = ring_bytes;
    return (char *)weft__region_ring(layout, region, MAD);
}

static void write_number(struct rogue *rogue)
{
    static const size_t sizes[] = {1, 2, 4, 8, 8};
    size_t bytes, size = sizes[draw(&rogue->state, 5)];
    char *at = place(rogue, &bytes);
    uint64_t number = extreme(rogue);
    memcpy(at + draw(&rogue->state, bytes / size) * size, &number, size);
}

static void write_noise(struct rogue *rogue)
{
    size_t bytes;
    char *at = place(rogue, &bytes);
    size_t first = draw(&rogue->state, bytes), length = 1 + draw(&rogue->state, 256);
    for (size_t i = first; i < bytes && i < first + length; i++)
        at[i] = (char)draw(&rogue->state, 256);
}

static void scribble(struct rogue *rogue)
{
    switch (rogue->leaves ? 3 : draw(&rogue->state, 4)) {
    case 0:
        write_number(rogue);
        break;
    case 1:
        write_noise(rogue);
        break;
    default:
        if (rogue->everywhere)
            plausible_line(rogue, (int)draw(&rogue->state, SIZE), (int)draw(&rogue->state, SIZE));
        else
            plausible_line(rogue, MAD, (int)draw(&rogue->state, MAD));
    }
}

/* It ends without a word; what it has broken of its own does not matter. */
static void be_mad(struct forked_rank *self, const struct madness *madness)
{
    struct rogue rogue = {.self = self,
                          .state = mixed(madness->seed),
                          .everywhere = madness->everywhere,
                          .leaves = madness->leaves};
    find_regions(&rogue);
    forked_meet(self); /* after that others may end, whose regions are mapped no more */
    const struct weft__shared_region *own = (void *)rogue.regions[MAD];
    struct weft__channel_config config = {.size = SIZE,
                                          .eager_bytes = own->eager_bytes,
                                          .ahead_bytes = own->ahead_bytes,
                                          .arena_bytes = own->arena_bytes,
                                          .who = "test"};
    NEED(weft__layout_make(&rogue.layout, &config) == WEFT_OK);
    NEED(rogue.layout.total_bytes == own->total_bytes);
    int writes = (int)draw(&rogue.state, WRITES);
    for (int i = 0; i < writes; i++) {
        scribble(&rogue);
        if (i % BURST == 0)
            sched_yield();
    }
    _exit(0);
}

/* ---- the others ---- */

/* A ring of messages among ranks: from each to the next. */
static struct weft_run *ring(struct forked_rank *self, struct weft_context *context, int members,
                             size_t count, int64_t *out, int64_t *in)
{
    int rank = weft_context_rank(context);
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    NEED(weft_schedule_create(&schedule, rank, SIZE) == WEFT_OK);
    weft_slot_t a = weft_schedule_add_slot(schedule, "a", WEFT_I64, count, WEFT_SLOT_INPUT);
    weft_slot_t b = weft_schedule_add_slot(schedule, "b", WEFT_I64, count, WEFT_SLOT_OUTPUT);
    weft_schedule_add_send(schedule, weft_region_at(a, 0, count), (rank + 1) % members, 1);
    weft_schedule_add_recv(schedule, weft_region_at(b, 0, count), (rank + members - 1) % members,
                           1);
    NEED(weft_schedule_commit(schedule, &plan) == WEFT_OK);
    weft_schedule_destroy(schedule);
    NEED(weft_run_create(&run, context, plan, NULL) == WEFT_OK);
    weft_plan_destroy(plan);
    NEED(bind_slot(run, a, out) == WEFT_OK);
    NEED(bind_slot(run, b, in) == WEFT_OK);
    return run;
}

static void fill(int64_t *data, size_t count, int64_t value)
{
    for (size_t i = 0; i < count; i++)
        data[i] = value + (int64_t)i;
}

/* With all of the memory in play nothing can be said of runs but that they can be given up. */
static void give_up(struct weft_run *run)
{
    for (int tries = 0; tries < 20; tries++)
        if (weft_run_wait(run, 1000000) != WEFT_IN_PROGRESS)
            return;
    (void)weft_run_cancel(run);
    (void)weft_run_wait(run, 20000000);
}

static void work(struct forked_rank *self, const struct madness *madness,
                 struct weft_context *context)
{
    static const size_t counts[] = {1, 4, 5, 1000, 1024, 1025, 40000};
    uint64_t state = mixed(madness->seed + (uint64_t)self->rank);
    size_t count = counts[madness->seed % 7];
    int64_t *data[4];
    int arena[4];
    for (int i = 0; i < 4; i++) {
        arena[i] = (int)draw(&state, 2);
        data[i] = arena[i] ? weft_context_memory_alloc(context, count, sizeof(int64_t))
                           : weft_memory_alloc(count, sizeof(int64_t));
        NEED(data[i]);
    }
    struct weft_run *sane = ring(self, context, MAD, count, data[0], data[1]);
    struct weft_run *with_it = ring(self, context, SIZE, count, data[2], data[3]);
    int status = weft_run_start(with_it), previous = (self->rank + MAD - 1) % MAD;
    for (int64_t turn = 0; turn < EXCHANGES; turn++) {
        fill(data[0], count, 1000 * turn + self->rank);
        if (madness->everywhere) {
            if (weft_run_start(sane) == WEFT_OK)
                give_up(sane);
            continue;
        }
        NEED(weft_run_execute(sane) == WEFT_OK);
        for (size_t i = 0; i < count; i++)
            NEED(data[1][i] == 1000 * turn + previous + (int64_t)i);
    }
    if (madness->everywhere) /* whose memory may wait for messages that are lost */
        _exit(0);
    if (status == WEFT_OK)
        status = weft_run_wait(with_it, WEFT_NEVER); /* the mad one ends */
    NEED(status == WEFT_OK || status == WEFT_ERR_PEER);
    weft_run_destroy(sane);
    weft_run_destroy(with_it);
    for (int i = 0; i < 4; i++)
        if (arena[i])
            weft_context_memory_free(context, data[i]);
        else
            weft_memory_free(data[i]);
    NEED(weft_context_destroy(context) == WEFT_OK);
    NEED(forked_count_maps("memfd:") == 0);
}

static int one_rank(struct forked_rank *self, void *user)
{
    const struct madness *madness = user;
    struct weft_context_config config;
    struct weft_shared_config shared;
    struct weft_context *context = NULL;
    weft_context_config_init(&config);
    config.progress = madness->seed % 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
    config.log_level = WEFT_LOG_ERROR;
    weft_shared_config_init(&shared);
    shared.gather = forked_gather;
    shared.user = self;
    shared.arena_bytes = 1 << 24;
    if (madness->seed % 3 == 0)
        shared.large = WEFT_SHARED_LARGE_COPY;
    NEED(weft_context_create_shared(&context, self->rank, SIZE, &config, &shared) == WEFT_OK);
    if (self->rank == MAD)
        be_mad(self, madness);
    forked_meet(self);
    work(self, madness, context);
    return 0;
}

static void play(uint64_t seeds, int everywhere, int leaves)
{
    char text[FORKED_TEXT + 100];
    for (uint64_t seed = 0; seed < seeds; seed++) {
        struct madness madness = {.seed = seed, .everywhere = everywhere, .leaves = leaves};
        struct forked *forked = forked_start(SIZE, one_rank, &madness);
        forked->killed[MAD] = 1; /* its own library may crash */
        cr_expect(!forked_end(forked, text, sizeof text), "seed %d: %s", (int)seed, text);
    }
}

Test(shared_garbage, who_does_not_need_the_broken_one_goes_on)
{
    play(SWEPT(100, 25), 0, 0);
}

Test(shared_garbage, memory_stays_sane_whatever_is_written)
{
    play(SWEPT(60, 15), 1, 0);
}

Test(shared_garbage, who_leaves_what_is_no_part_fails_no_run)
{
    play(20, 0, 1);
}
