/* SPDX-License-Identifier: BSD-3-Clause */
/* Where things are in a region, and whether memory is one. */
#include "runtime/base/error.h"
#include "runtime/transport/shared/channel.h"
#include "runtime/transport/shared/region.h"
#include <unistd.h>
#include <weft/context.h>

#define PAGE        ((size_t)4096)
#define EAGER_BYTES ((size_t)8 << 10)
#define EAGER_MOST  ((size_t)1 << 20)
#define AHEAD_BYTES ((size_t)512 << 10)
#define AHEAD_MOST  ((size_t)1 << 40)
#define ARENA_LEAST ((size_t)64 << 20)
#define ARENA_FLOOR ((size_t)1 << 20) /* of what is asked for: chunks of large messages fit */
#define ARENA_MOST  ((size_t)1 << 42) /* so that sums do not wrap */
/* Sends under way at a time. Address space: those that are used first have pages. */
#define SLOTS 1048576
/* All rings of a region together, where there are many. */
#define LINES_TOGETHER   ((size_t)32 << 10)
#define LINES_LEAST      ((size_t)64)
#define LINES_MOST       ((size_t)512)
#define PAYLOAD_TOGETHER ((size_t)4 << 20)
#define PAYLOAD_MOST     ((size_t)256 << 10)
/* So many of the largest messages have room, so that taking some and writing some overlap. */
#define PAYLOAD_MESSAGES 4
/* News have their text in the payload, whatever is eager. */
#define PAYLOAD_LEAST ((size_t)4 << 10)

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* The least power of two that is not below. */
static size_t power_of_two(size_t least)
{
    size_t power = 1;
    while (power < least)
        power *= 2;
    return power;
}

static size_t clamp(size_t value, size_t least, size_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Address space for each: memory is taken as it is used. */
static size_t default_arena(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t memory = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
    return clamp(memory / 2, ARENA_LEAST, ARENA_MOST);
}

static int check_config(const struct weft__channel_config *config)
{
    const char *who = config->who;
    if (config->size < 1 || config->size > WEFT__CHANNEL_MOST)
        return WEFT__INVALID("%s: argument `size` is %d, expected 1..%d", who, config->size,
                             WEFT__CHANNEL_MOST);
    if (config->rank < 0 || config->rank >= config->size)
        return WEFT__INVALID("%s: argument `rank` is %d, expected 0..%d", who, config->rank,
                             config->size - 1);
    if (config->eager_bytes > EAGER_MOST && config->eager_bytes != WEFT_EAGER_NONE)
        return WEFT__INVALID("%s: eager_bytes is %zu, expected at most %zu, or WEFT_EAGER_NONE",
                             who, config->eager_bytes, EAGER_MOST);
    if (config->ahead_bytes > AHEAD_MOST)
        return WEFT__INVALID("%s: ahead_bytes is %zu, expected at most %zu", who,
                             config->ahead_bytes, AHEAD_MOST);
    if (config->arena_bytes > ARENA_MOST)
        return WEFT__INVALID("%s: arena_bytes is %zu, expected at most %zu", who,
                             config->arena_bytes, ARENA_MOST);
    return WEFT_OK;
}

int weft__layout_make(struct weft__layout *layout, const struct weft__channel_config *config)
{
    int status = check_config(config);
    if (status != WEFT_OK)
        return status;
    size_t size = (size_t)config->size;
    int none = config->eager_bytes == WEFT_EAGER_NONE;
    size_t eager = none ? 0 : config->eager_bytes == 0 ? EAGER_BYTES : config->eager_bytes;
    size_t largest = power_of_two(round_up(eager, WEFT__LINE_BYTES) * PAYLOAD_MESSAGES);
    size_t least = largest < PAYLOAD_LEAST ? PAYLOAD_LEAST : largest;
    size_t most = least > PAYLOAD_MOST ? least : PAYLOAD_MOST;
    struct weft__layout made = {
        .size = config->size,
        .lines = (uint32_t)clamp(power_of_two(LINES_TOGETHER / size), LINES_LEAST, LINES_MOST),
        .payload_bytes = clamp(power_of_two(PAYLOAD_TOGETHER / size), least, most),
        .eager_bytes = eager,
        /* Nothing ahead: no message is copied. */
        .ahead_bytes = none                       ? 0
                       : config->ahead_bytes == 0 ? AHEAD_BYTES
                                                  : config->ahead_bytes,
        .arena_bytes =
            round_up(config->arena_bytes == 0 ? default_arena()
                                              : clamp(config->arena_bytes, ARENA_FLOOR, ARENA_MOST),
                     PAGE),
        .slots = SLOTS};
    made.credits_at = round_up(sizeof(struct weft__shared_region), PAGE);
    made.slots_at = made.credits_at + round_up(size * sizeof(struct weft__credits), PAGE);
    made.rings_at = made.slots_at + round_up(made.slots * sizeof(struct weft__shared_slot), PAGE);
    made.ring_bytes = round_up(made.lines * sizeof(struct weft__line) + made.payload_bytes, PAGE);
    made.arena_at = made.rings_at + size * made.ring_bytes;
    made.total_bytes = made.arena_at + made.arena_bytes;
    *layout = made;
    return WEFT_OK;
}

void weft__region_init(void *memory, const struct weft__layout *layout, int member)
{
    struct weft__shared_region *region = memory;
    region->version = WEFT__REGION_VERSION;
    region->member = (uint32_t)member;
    region->size = (uint32_t)layout->size;
    region->lines = layout->lines;
    region->payload_bytes = layout->payload_bytes;
    region->eager_bytes = layout->eager_bytes;
    region->ahead_bytes = layout->ahead_bytes;
    region->arena_bytes = layout->arena_bytes;
    region->total_bytes = layout->total_bytes;
    region->slots = layout->slots;
    region->bell.shared = 1;
    for (int peer = 0; peer < layout->size; peer++)
        atomic_init(&weft__region_credits(layout, memory, peer)->lines, WEFT__RING_START);
    region->magic = WEFT__REGION_MAGIC;
}

/* 0: as expected. */
static int differs(const char *who, int member, const char *what, uint64_t is, uint64_t expected)
{
    if (is == expected)
        return WEFT_OK;
    return WEFT__INVALID("%s: rank %d has %s %llu, expected %llu, as here", who, member, what,
                         (unsigned long long)is, (unsigned long long)expected);
}

int weft__region_check(const void *memory, size_t bytes, const struct weft__layout *layout,
                       int member, const char *who)
{
    const struct weft__shared_region *region = memory;
    if (bytes < sizeof *region || region->magic != WEFT__REGION_MAGIC)
        return weft__error(WEFT_ERR_PEER, "%s: what rank %d has handed over is no region of weft",
                           who, member);
    int status = differs(who, member, "a version of the shared transport of", region->version,
                         WEFT__REGION_VERSION);
    if (status == WEFT_OK)
        status = differs(who, member, "`rank`", region->member, (uint64_t)member);
    if (status == WEFT_OK)
        status = differs(who, member, "`size`", region->size, (uint64_t)layout->size);
    if (status == WEFT_OK)
        status = differs(who, member, "eager_bytes", region->eager_bytes, layout->eager_bytes);
    if (status == WEFT_OK)
        status = differs(who, member, "ahead_bytes", region->ahead_bytes, layout->ahead_bytes);
    if (status == WEFT_OK)
        status = differs(who, member, "arena_bytes", region->arena_bytes, layout->arena_bytes);
    if (status == WEFT_OK)
        status = differs(who, member, "rings of", region->lines, layout->lines);
    if (status == WEFT_OK)
        status = differs(who, member, "rings of", region->payload_bytes, layout->payload_bytes);
    if (status == WEFT_OK)
        status = differs(who, member, "slots:", region->slots, layout->slots);
    if (status == WEFT_OK)
        status = differs(who, member, "a region of", bytes, layout->total_bytes);
    return status;
}
