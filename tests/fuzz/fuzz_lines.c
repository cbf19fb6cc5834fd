/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes what a process takes of the memory that it shares with another: lines of a ring, their
 * payload, credits and states. Rank 0 is real, with runs that send to rank 1 and receive from it;
 * rank 1 is the input:
 *
 *   's' a line that rank 0 takes next       (64 bytes; its sequence is filled in)
 *   'p' payload, from the ring's beginning  (a length, bytes)
 *   'c' what rank 1 says to have taken      (an offset, 8 bytes)
 *   't' the state of a send of rank 1       (an offset, 8 bytes)
 *   'h' the header of rank 1's region       (an offset, 8 bytes)
 *
 * Whatever it says, rank 0 reads and writes only what it may, and ends when rank 1 has.
 */
#include "tests/support/mapped_ranks.h"

#include "tests/support/bind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SMALL = 3, LARGE = 5000, RUNS = 2 };

struct peer {
    struct mapped mapped;
    struct weft_context *context;
    const uint8_t *data;
    size_t size;
};

/* The next bytes of the input; 0: there are no more. */
static int take(struct peer *peer, void *to, size_t bytes)
{
    if (peer->size < bytes)
        return 0;
    memcpy(to, peer->data, bytes);
    peer->data += bytes;
    peer->size -= bytes;
    return 1;
}

static void put_line(struct peer *peer, const struct weft__line *given)
{
    struct weft__layout *layout = &peer->mapped.layout;
    void *region = peer->mapped.regions[0];
    uint32_t position = atomic_load(&weft__region_credits(layout, region, 1)->lines);
    struct weft__line *line = &weft__region_ring(layout, region, 1)[position & (layout->lines - 1)];
    memcpy((char *)line + sizeof line->sequence, (const char *)given + sizeof line->sequence,
           sizeof *line - sizeof line->sequence);
    atomic_store(&line->sequence, weft__line_sequence(position));
    (void)weft_context_progress(peer->context);
}

/* Eight bytes of the input at an offset of some memory, which the input says, too. */
static int put_word(struct peer *peer, void *memory, size_t bytes)
{
    uint16_t offset;
    uint64_t word;
    if (!take(peer, &offset, sizeof offset) || !take(peer, &word, sizeof word))
        return 0;
    memcpy((char *)memory + offset % (bytes / sizeof word) * sizeof word, &word, sizeof word);
    return 1;
}

static int one_deed(struct peer *peer)
{
    struct weft__layout *layout = &peer->mapped.layout;
    void **regions = peer->mapped.regions;
    struct weft__line line;
    uint8_t deed, length;
    if (!take(peer, &deed, 1))
        return 0;
    switch (deed) {
    case 's':
        if (!take(peer, &line, sizeof line))
            return 0;
        put_line(peer, &line);
        return 1;
    case 'p':
        return take(peer, &length, 1) &&
               take(peer, weft__region_ring(layout, regions[0], 1) + layout->lines, length);
    case 'c':
        return put_word(peer, weft__region_credits(layout, regions[1], 0),
                        sizeof(struct weft__credits));
    case 't':
        return put_word(peer, weft__region_slot(layout, regions[1], 0),
                        4 * sizeof(struct weft__shared_slot));
    case 'h':
        return put_word(peer, regions[1], offsetof(struct weft__shared_region, bell));
    default:
        (void)weft_context_progress(peer->context);
        return 1;
    }
}

/* `count` bytes to rank 1 and as many from it. */
static struct weft_run *exchange(struct weft_context *context, size_t count, uint8_t *memory)
{
    struct weft_schedule *schedule = new_schedule(0, 2);
    weft_slot_t out = weft_schedule_add_slot(schedule, "out", WEFT_U8, count, WEFT_SLOT_INPUT);
    weft_slot_t in = weft_schedule_add_slot(schedule, "in", WEFT_U8, count, WEFT_SLOT_OUTPUT);
    weft_schedule_add_send(schedule, weft_region_at(out, 0, count), 1, 1);
    weft_schedule_add_recv(schedule, weft_region_at(in, 0, count), 1, 1);
    struct weft_run *run = make_run(context, commit(schedule), NULL);
    OK(bind_slot(run, out, memory));
    OK(bind_slot(run, in, memory + count));
    OK(weft_run_start(run));
    return run;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct peer peer = {.data = data, .size = size};
    struct weft_context_config config;
    struct weft_run *runs[RUNS];
    uint8_t *memory[RUNS];
    weft_context_config_init(&config);
    config.log_level = WEFT_LOG_ERROR;
    config.progress = WEFT_PROGRESS_CALLER;
    mapped_create(&peer.mapped, 2, 0, 0);
    peer.context = mapped_context(&peer.mapped, 0, &config);
    for (int i = 0; i < RUNS; i++) {
        size_t count = i == 0 ? SMALL : LARGE * 10;
        memory[i] = calloc(2 * count, 1); /* of its exact size, for the address sanitizer */
        CHECK(memory[i]);
        runs[i] = exchange(peer.context, count, memory[i]);
    }
    while (one_deed(&peer))
        continue;
    /* Rank 1 ends properly, if it has not been found out. */
    put_line(&peer, &(struct weft__line){.kind = WEFT__LINE_LEAVE});
    put_line(&peer, &(struct weft__line){.kind = WEFT__LINE_CLOSED});
    for (int i = 0; i < RUNS; i++) {
        (void)weft_run_cancel(runs[i]);
        (void)weft_run_wait(runs[i], WEFT_NEVER);
        while (weft_run_reclaim(runs[i]) == WEFT_IN_PROGRESS)
            (void)weft_context_progress(peer.context);
        weft_run_destroy(runs[i]);
        free(memory[i]);
    }
    weft_context_destroy(peer.context);
    mapped_destroy(&peer.mapped);
    return 0;
}
