/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payloads that are memory of devices, and that the receiver's device reads where they are.
 *
 *   sender                                        receiver
 *
 *   a list in its arena: of each part the
 *   allocation, as others can open it
 *   ANNOUNCE ----------------------------------> opens them, and reads them on its own stream; the
 *                                                state of the send is READING meanwhile
 *   weft__engine_sent() <----------------------- BACK
 *
 *                         <--------------------- PULL: it cannot open one of them, or wants the
 *   brings it to the host, in segments           payload on the host
 *   CHUNK 0 ... -------------------------------> as any other
 *
 * Ranks of one process have each other's addresses. What the list says is looked at like all that
 * peers write: the driver says how long an allocation is.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/flight.h"
#include "runtime/transport/shared/bulk.h"
#include <string.h>

/* Lists of so many parts are kept for the next send. */
#define KEPT_PARTS 4

/* Where a part of a payload is. */
struct part {
    struct weft__exported exported; /* owner 0: by its address, in this process */
    uint64_t address;
    uint64_t offset; /* in what is exported */
    uint64_t bytes;
};

/* In the arena, to which nobody else writes. */
struct weft__lent {
    struct weft__lent *next; /* of those that are kept */
    uint64_t count;
    struct part parts[];
};

struct reached_part {
    const char *address;
    size_t end; /* in the payload */
    struct weft__imported *imported;
};

/* What a device reads of a message. */
struct weft__reached {
    struct weft__device *device;
    size_t count;
    struct reached_part parts[];
};

/* Its regions are mapped once, by this process. */
static int is_here(const struct weft__peer *peer)
{
    return peer->mapped_bytes == 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- the sender ---- */

static struct weft__lent *take(struct weft__bulk *bulk, size_t count)
{
    size_t room = count < KEPT_PARTS ? KEPT_PARTS : count;
    struct weft__lent *lent = bulk->free_lent;
    if (room > KEPT_PARTS || !lent)
        lent = weft__channel_alloc(bulk->channel, sizeof *lent + room * sizeof *lent->parts);
    else
        bulk->free_lent = lent->next;
    if (lent)
        lent->count = count;
    return lent;
}

static void give(struct weft__bulk *bulk, struct weft__lent *lent)
{
    if (!lent)
        return;
    if (lent->count > KEPT_PARTS) {
        weft__channel_free(bulk->channel, lent);
        return;
    }
    lent->next = bulk->free_lent;
    bulk->free_lent = lent;
}

/* The contiguous memory at byte `offset` of a send. */
static const char *chunk_of(const struct weft__xfer *xfer, size_t offset, size_t *bytes)
{
    size_t rest = xfer->message.bytes - offset;
    *bytes = rest;
    const char *data = weft__xfer_chunk(xfer, offset, bytes);
    *bytes = least(*bytes, rest);
    return data;
}

static size_t count_parts(const struct weft__xfer *xfer)
{
    size_t count = 0;
    for (size_t at = 0, bytes; at < xfer->message.bytes; at += bytes, count++)
        chunk_of(xfer, at, &bytes);
    return count;
}

static int describe(const struct weft__xfer *xfer, struct weft__lent *lent, int here)
{
    struct weft__device *device = weft__xfer_run(xfer)->flights->stream->device;
    struct part *part = lent->parts;
    for (size_t at = 0, bytes; at < xfer->message.bytes; at += bytes, part++) {
        const char *data = chunk_of(xfer, at, &bytes);
        *part = (struct part){.address = (uintptr_t)data, .bytes = bytes};
        if (!here &&
            !device->ops->export_memory(device, data, bytes, &part->exported, &part->offset))
            return 0;
    }
    return 1;
}

int weft__bulk_lend(struct weft__channel *channel, const struct weft__peer *peer,
                    struct weft__xfer *xfer)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    size_t count = count_parts(xfer);
    struct weft__lent *lent = count <= UINT32_MAX ? take(bulk, count) : NULL;
    if (!lent || !describe(xfer, lent, is_here(peer))) {
        give(bulk, lent);
        return 0;
    }
    xfer->handle = (uintptr_t)lent;
    return 1;
}

void weft__bulk_unlend(struct weft__channel *channel, struct weft__xfer *xfer)
{
    if (xfer->message.list == WEFT__DEVICE)
        give(weft__bulk_of(channel), (struct weft__lent *)(uintptr_t)xfer->handle);
    xfer->handle = 0;
}

void weft__bulk_announce_lent(const struct weft__bulk *bulk, struct weft__outgoing *outgoing,
                              struct weft__announcement *announced)
{
    const struct weft__channel *channel = bulk->channel;
    struct weft__xfer *xfer = outgoing->xfer;
    outgoing->lent = (struct weft__lent *)(uintptr_t)xfer->handle;
    xfer->handle = 0;
    announced->how = WEFT__BULK_ON_DEVICE;
    announced->filled = (uint32_t)outgoing->lent->count;
    announced->where = (uint64_t)((const char *)outgoing->lent->parts -
                                  weft__region_arena(&channel->layout, channel->region));
}

void weft__bulk_give_lent(struct weft__bulk *bulk, struct weft__outgoing *outgoing)
{
    give(bulk, outgoing->lent);
    outgoing->lent = NULL;
}

/* ---- the receiver ---- */

const char *weft__bulk_check_lent(const struct weft__layout *layout,
                                  const struct weft__announcement *announced)
{
    if (announced->filled == 0 || announced->where > layout->arena_bytes ||
        announced->where % _Alignof(struct part) != 0 ||
        announced->filled > (layout->arena_bytes - announced->where) / sizeof(struct part))
        return "it has announced memory of a device by a list that it does not have";
    return NULL;
}

static void put_back(struct weft__reached *reached)
{
    if (!reached)
        return;
    for (size_t i = 0; i < reached->count; i++)
        if (reached->parts[i].imported)
            reached->device->ops->return_memory(reached->device, reached->parts[i].imported);
    weft__free(reached);
}

void weft__bulk_put_back(struct weft__arrival *arrival)
{
    put_back(arrival->reached);
    arrival->reached = NULL;
}

/* Finds one part: where it is for the device; WEFT__ON_HOST: it is out of reach. */
static int find_part(struct weft__device *device, const struct weft__peer *peer,
                     const struct part *part, struct reached_part *found)
{
    const struct weft__device_ops *ops = device->ops;
    int where;
    if (is_here(peer))
        found->address = (const char *)(uintptr_t)part->address;
    else if (part->exported.owner != 0)
        found->address = ops->import_memory(device, &part->exported, &found->imported);
    if (!found->address || part->offset > part->exported.bytes)
        return WEFT__ON_HOST;
    found->address += is_here(peer) ? 0 : part->offset;
    where = ops->where(device, found->address, (size_t)part->bytes);
    return where >= WEFT__ON_DEVICE ? where : WEFT__ON_HOST;
}

/* All of the list: where the worst of its parts is. */
static int find_parts(struct weft__bulk *bulk, struct weft__peer *peer,
                      const struct weft__arrival *arrival, struct weft__reached *reached)
{
    const struct weft__announcement *announced = &arrival->announcement;
    const char *list = weft__region_arena(&bulk->channel->layout, peer->region) + announced->where;
    uint64_t rest = announced->bytes;
    int worst = WEFT__ON_DEVICE;
    for (size_t i = 0; i < announced->filled && worst != WEFT__ON_HOST; i++) {
        struct part part;
        memcpy(&part, list + i * sizeof part, sizeof part);
        atomic_signal_fence(memory_order_seq_cst); /* it is copied, then checked, then used */
        if (part.bytes > rest || (i + 1 == announced->filled && part.bytes != rest)) {
            weft__channel_lost(bulk->channel, peer,
                               "it has announced memory of a device of another length");
            return WEFT__ON_HOST;
        }
        rest -= part.bytes;
        reached->parts[i].end = (size_t)(announced->bytes - rest);
        reached->count = i + 1;
        int where = find_part(reached->device, peer, &part, &reached->parts[i]);
        if (part.exported.owner != 0 && !is_here(peer)) {
            peer->owner = part.exported.owner;
            peer->reader = reached->device;
        }
        worst = where == WEFT__ON_HOST || where > worst ? where : worst;
    }
    return worst;
}

int weft__bulk_reach(struct weft__channel *channel, struct weft__arrival *arrival,
                     struct weft__device *device)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    struct weft__peer *peer = &channel->peers[arrival->message.own];
    struct weft__reached *reached = NULL;
    int where = WEFT__ON_HOST;
    if (device && channel->transport->device_way != WEFT_DEVICE_WAY_STAGED)
        reached = weft__calloc(1, sizeof *reached +
                                      arrival->announcement.filled * sizeof *reached->parts);
    if (reached) {
        reached->device = device;
        where = find_parts(bulk, peer, arrival, reached);
    }
    if (where == WEFT__ON_HOST) {
        put_back(reached);
        return weft__bulk_pull(bulk, peer, arrival);
    }
    arrival->reached = reached;
    return where;
}

const char *weft__bulk_reached(const struct weft__arrival *arrival, size_t offset, size_t *bytes)
{
    const struct weft__reached *reached = arrival->reached;
    size_t low = 0, high = reached->count;
    while (low + 1 < high) { /* the last part that does not begin behind it */
        size_t middle = low + (high - low) / 2;
        if (reached->parts[middle - 1].end <= offset)
            low = middle;
        else
            high = middle;
    }
    size_t begin = low == 0 ? 0 : reached->parts[low - 1].end;
    *bytes = reached->parts[low].end - offset;
    return reached->parts[low].address + (offset - begin);
}

void weft__bulk_device_gone(struct weft__peer *peer)
{
    if (peer->owner != 0)
        peer->reader->ops->forget_owner(peer->reader, peer->owner);
    peer->owner = 0;
}
