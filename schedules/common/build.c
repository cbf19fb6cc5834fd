/* SPDX-License-Identifier: BSD-3-Clause */
/* The tools of the algorithms: slots, messages in segments, reductions, with their orders. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "schedules/common/template.h"

enum { CACHE_LINE = 64 };

/* Messages between two ranks that a rank may tell apart: up to twice the ranks, and a few. */
static uint64_t message_limit(const struct weft__build *build)
{
    return 2 * (uint64_t)build->size + 4;
}

/* The same of all turns. */
static uint64_t all_messages(const struct weft__build *build)
{
    return message_limit(build) * (build->turns > 1 ? (uint64_t)build->turns : 1);
}

int weft__build_init(struct weft__build *build, int rank, int ranks,
                     const struct weft__shape *shape, const struct weft_template_params *params)
{
    *build = (struct weft__build){.rank = rank,
                                  .size = ranks,
                                  .root = shape->root,
                                  .count = params->count,
                                  .k = params->k,
                                  .dtype = params->dtype,
                                  .op = params->op,
                                  .in_place = params->in_place != 0,
                                  .segment = SIZE_MAX,
                                  .hosts = params->hosts,
                                  .group_size = params->group_size,
                                  .version = params->version,
                                  .cost = shape->cost,
                                  .layers = shape->layers,
                                  .blocks = shape->blocks,
                                  .quantiser = shape->quantiser,
                                  .servers = shape->servers,
                                  .aggregate = shape->aggregate,
                                  .radix = shape->radix,
                                  .sent = params->sent,
                                  .send_counts = params->send_counts,
                                  .recv_counts = params->recv_counts,
                                  .send = -1,
                                  .recv = -1};
    size_t element = weft_dtype_size(params->dtype);
    if (shape->segment && element)
        build->segment = shape->segment < element ? 1 : shape->segment / element;
    int status = weft_schedule_create(&build->schedule, rank, ranks);
    if (status)
        return status;
    status = weft_tracker_create(&build->tracker, build->schedule);
    if (status) {
        weft_schedule_destroy(build->schedule);
        build->schedule = NULL;
    }
    return status;
}

void weft__build_set_counts(struct weft__build *build, const size_t *counts)
{
    build->offsets = weft_memory_alloc((size_t)build->size + 1, sizeof *build->offsets);
    if (!build->offsets) {
        build->status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for the counts of %d ranks",
                                       build->size);
        return;
    }
    build->offsets[0] = 0;
    for (int r = 0; r < build->size; r++)
        build->offsets[r + 1] = build->offsets[r] + counts[r];
}

int weft__build_finish(struct weft__build *build, struct weft_schedule **schedule)
{
    weft_tracker_destroy(build->tracker);
    weft_memory_free(build->members);
    weft_memory_free(build->offsets);
    build->tracker = NULL;
    build->members = NULL;
    build->offsets = NULL;
    int status = build->status;
    if (!status)
        status = weft_schedule_status(build->schedule);
    if (status) {
        weft_schedule_destroy(build->schedule);
        build->schedule = NULL;
        return status;
    }
    *schedule = build->schedule;
    return WEFT_OK;
}

weft_slot_t weft__build_slot(struct weft__build *build, const char *name, size_t count,
                             weft_slot_kind_t kind)
{
    return weft_schedule_add_slot(build->schedule, name, build->dtype, count, kind);
}

weft_slot_t weft__build_block_slots(struct weft__build *build, const char *stem,
                                    const size_t *counts, weft_slot_kind_t kind)
{
    weft_slot_t first = -1;
    char name[32];
    for (int r = 0; r < build->size; r++) {
        snprintf(name, sizeof name, "%s.%d", stem, r);
        weft_slot_t slot = weft__build_slot(
            build, name, counts ? counts[r] : weft__build_range(build, r, r + 1), kind);
        first = r ? first : slot;
    }
    return first;
}

void weft__build_pair(struct weft__build *build, size_t send_count, size_t recv_count)
{
    if (build->in_place) {
        size_t count = send_count > recv_count ? send_count : recv_count;
        build->recv = weft__build_slot(build, "recv", count, WEFT_SLOT_INOUT);
        return;
    }
    build->send = weft__build_slot(build, "send", send_count, WEFT_SLOT_INPUT);
    build->recv = weft__build_slot(build, "recv", recv_count, WEFT_SLOT_OUTPUT);
}

void weft__build_result(struct weft__build *build, struct weft_region dst, const char *from,
                        size_t offset, int first, int ranks)
{
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = dst,
                                 .from = from,
                                 .offset = offset,
                                 .first = first,
                                 .ranks = ranks};
    if (ranks > 1)
        result.op = build->op;
    weft_schedule_add_result(build->schedule, &result);
}

/* Elements that are a cache line or more. */
static size_t line_elements(const struct weft__build *build)
{
    size_t element = weft_dtype_size(build->dtype);
    return (CACHE_LINE + element - 1) / element;
}

void weft__build_reserve(struct weft__build *build, size_t count, size_t parts)
{
    char name[32];
    if (!count)
        return;
    size_t padded = count + parts * (line_elements(build) - 1);
    snprintf(name, sizeof name, build->scratch_count ? "tmp%d" : "tmp", build->scratch_count);
    build->scratch_count++;
    build->spare =
        weft_region_at(weft__build_slot(build, name, padded, WEFT_SLOT_SCRATCH), 0, padded);
}

struct weft_region weft__build_scratch(struct weft__build *build, size_t count)
{
    if (count > build->spare.count)
        weft__build_reserve(build, count, 1);
    size_t line = line_elements(build), left = build->spare.count;
    size_t used = (count + line - 1) / line * line;
    struct weft_region region = weft_region_at(build->spare.slot, build->spare.offset, count);
    used = used < left ? used : left;
    build->spare.offset += used;
    build->spare.count -= used;
    return region;
}

/* How many segments a message may have: a node each, and tags that tell them apart. */
static size_t most_segments(const struct weft__build *build)
{
    size_t nodes = INT32_MAX - weft_schedule_node_count(build->schedule);
    size_t tags = UINT32_MAX / all_messages(build);

    size_t most = nodes < tags ? nodes : tags;
    return most > 2 ? most - 1 : 1;
}

size_t weft__segment_count(struct weft__build *build, size_t count)
{
    size_t segments = count / build->segment + (count % build->segment != 0);
    size_t most = most_segments(build);

    if (segments <= most || build->status)
        return segments;
    size_t element = weft_dtype_size(build->dtype);
    build->status = weft_error_set(
        WEFT_ERR_UNSUPPORTED,
        "segment is %zu bytes: a message of %zu elements has %zu segments, a node each; expected "
        "segments of at least %zu bytes on %d ranks, for at most %zu of them",
        build->segment * element, count, segments, (count / most + 1) * element, build->size, most);
    return 0;
}

struct weft_region weft__segment_at(const struct weft__build *build, struct weft_region region,
                                    size_t index)
{
    size_t begin = index * build->segment, left = region.count - begin;
    return weft_region_at(region.slot, region.offset + begin,
                          left < build->segment ? left : build->segment);
}

/* Tags count messages first and segments within them, so that they stay small. */
static uint32_t tag_of(struct weft__build *build, uint64_t message, size_t index)
{
    uint64_t tag =
        message + (uint64_t)build->turn * message_limit(build) + index * all_messages(build);
    if (tag >= UINT32_MAX && !build->status)
        build->status = weft_error_set(
            WEFT_ERR_UNSUPPORTED, "segments of %zu elements are too many: more than 2^32 messages",
            build->segment);
    return (uint32_t)tag;
}

/* The rank of the schedule that a rank of the algorithm is. */
static int peer_of(const struct weft__build *build, int peer)
{
    return build->ranks ? build->ranks[peer] : peer;
}

weft_node_t weft__build_send_part(struct weft__build *build, struct weft_region part, size_t index,
                                  int peer, uint64_t message)
{
    uint32_t tag = tag_of(build, message, index);
    return weft_tracker_add(
        build->tracker, weft_schedule_add_send(build->schedule, part, peer_of(build, peer), tag));
}

weft_node_t weft__build_recv_part(struct weft__build *build, struct weft_region part, size_t index,
                                  int peer, uint64_t message)
{
    uint32_t tag = tag_of(build, message, index);
    return weft_tracker_add(
        build->tracker, weft_schedule_add_recv(build->schedule, part, peer_of(build, peer), tag));
}

void weft__build_send_segment(struct weft__build *build, struct weft_region region, size_t index,
                              int peer, uint64_t message)
{
    weft__build_send_part(build, weft__segment_at(build, region, index), index, peer, message);
}

void weft__build_recv_segment(struct weft__build *build, struct weft_region region, size_t index,
                              int peer, uint64_t message)
{
    weft__build_recv_part(build, weft__segment_at(build, region, index), index, peer, message);
}

void weft__build_send(struct weft__build *build, struct weft_region region, int peer,
                      uint64_t message)
{
    size_t segments = weft__segment_count(build, region.count);
    for (size_t i = 0; i < segments && !build->status; i++)
        weft__build_send_segment(build, region, i, peer, message);
}

void weft__build_recv(struct weft__build *build, struct weft_region region, int peer,
                      uint64_t message)
{
    size_t segments = weft__segment_count(build, region.count);
    for (size_t i = 0; i < segments && !build->status; i++)
        weft__build_recv_segment(build, region, i, peer, message);
}

void weft__build_reduce(struct weft__build *build, struct weft_region dst, struct weft_region a,
                        struct weft_region b)
{
    if (!dst.count)
        return;
    weft_tracker_add(build->tracker,
                     weft_schedule_add_reduce(build->schedule, build->op, dst, a, b));
}

void weft__build_reduce_segments(struct weft__build *build, struct weft_region dst,
                                 struct weft_region a, struct weft_region b)
{
    size_t segments = weft__segment_count(build, dst.count);
    for (size_t i = 0; i < segments && !build->status; i++)
        weft__build_reduce(build, weft__segment_at(build, dst, i), weft__segment_at(build, a, i),
                           weft__segment_at(build, b, i));
}

void weft__build_recv_reduce(struct weft__build *build, struct weft_region dst,
                             struct weft_region own, int peer, uint64_t message, int other_first)
{
    if (!own.count)
        return;
    struct weft_region other = weft__build_scratch(build, own.count);
    weft__build_recv(build, other, peer, message);
    weft__build_reduce_segments(build, weft__part(dst, 0, own.count), other_first ? other : own,
                                other_first ? own : other);
}

void weft__build_copy_segments(struct weft__build *build, struct weft_region dst,
                               struct weft_region src)
{
    size_t segments = weft__segment_count(build, dst.count);
    for (size_t i = 0; i < segments && !build->status; i++)
        weft__build_copy(build, weft__segment_at(build, dst, i), weft__segment_at(build, src, i));
}

void weft__build_copy(struct weft__build *build, struct weft_region dst, struct weft_region src)
{
    if (!dst.count || (dst.slot == src.slot && dst.offset == src.offset))
        return;
    weft_tracker_add(build->tracker, weft_schedule_add_copy(build->schedule, dst, src));
}
