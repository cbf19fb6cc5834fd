/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes by lanes: lane.h draws them. */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/transport/local/inside.h"
#include <string.h>

int weft__lanes_make(struct weft_local *local, int wanted)
{
    size_t pairs = (size_t)local->size * (size_t)local->size;
    if (!wanted)
        return WEFT_OK;
    local->lane_bytes =
        local->eager_bytes < WEFT__LANE_BYTES ? local->eager_bytes : (size_t)WEFT__LANE_BYTES;
    local->lanes = weft__aligned(128, pairs * sizeof *local->lanes);
    /* Not touched before it is used. One more for the alignment. */
    local->behind = weft__malloc(pairs * WEFT__LANE_BEHIND + CELL_ALIGNMENT, 1);
    for (size_t i = 0; local->lanes && i < pairs; i++) {
        local->lanes[i].limit = WEFT__LANE_LINES;
        local->lanes[i].behind_limit = WEFT__LANE_BEHIND;
    }
    return local->lanes && local->behind ? WEFT_OK : WEFT_ERR_MEMORY;
}

void weft__lanes_free(struct weft_local *local)
{
    weft__free(local->behind);
    weft__free(local->lanes);
}

static char *behind_of(const struct weft_local *local, const struct weft__lane *lane)
{
    uintptr_t begin = (uintptr_t)local->behind + CELL_ALIGNMENT - 1;
    begin -= begin % CELL_ALIGNMENT;
    return (char *)begin + (size_t)(lane - local->lanes) * WEFT__LANE_BEHIND;
}

/* Where `bytes` bytes begin that come after a position: contiguous. */
static uint32_t begin_of(uint32_t position, size_t bytes)
{
    uint32_t in_turn = position % WEFT__LANE_BEHIND;
    return in_turn + bytes > WEFT__LANE_BEHIND ? position - in_turn + WEFT__LANE_BEHIND : position;
}

static uint32_t in_lines(size_t bytes)
{
    return (uint32_t)((bytes + WEFT__LINE_BYTES - 1) & ~(size_t)(WEFT__LINE_BYTES - 1));
}

/* ---- the sender's side ---- */

/* What the receiver has got on with. 0: nothing may go by the lane now. */
static WEFT__NOINLINE int look(struct weft__lane *lane, uint32_t *released)
{
    /* Acquire: pairs with the receiver's stores; what it has taken has been read. */
    lane->limit = atomic_load_explicit(&lane->taken, memory_order_acquire) + WEFT__LANE_LINES;
    lane->behind_limit =
        atomic_load_explicit(&lane->behind_taken, memory_order_acquire) + WEFT__LANE_BEHIND;
    *released = atomic_load_explicit(&lane->released, memory_order_acquire) + WEFT__LANE_RECORDS;
    lane->seen = atomic_load_explicit(&lane->from_inbox, memory_order_acquire);
    return lane->seen == lane->in_inbox;
}

/* Whether there is room for a line and `bytes` bytes behind it. */
static inline int has_room(const struct weft__lane *lane, size_t bytes)
{
    return lane->limit != lane->position &&
           (bytes <= WEFT__LINE_PAYLOAD ||
            (int32_t)(lane->behind_limit - begin_of(lane->behind, bytes) - in_lines(bytes)) >= 0);
}

/* SENT: there is room. */
static WEFT__NOINLINE int look_for_room(struct weft__lane *lane, size_t bytes)
{
    uint32_t released;
    if (!look(lane, &released))
        return WEFT__LANE_NOT;
    if (!has_room(lane, bytes))
        return WEFT__LANE_FULL;
    if ((int32_t)(released - lane->limit) < 0)
        lane->limit = released;
    return lane->limit != lane->position ? WEFT__LANE_SENT : WEFT__LANE_NOT;
}

static void copy_in(char *to, const struct weft__message *message, size_t bytes,
                    const struct weft__xfer *xfer)
{
    for (size_t at = 0, chunk; at < bytes; at += chunk) {
        chunk = bytes - at;
        const char *from =
            xfer ? weft__xfer_chunk(xfer, at, &chunk) : (const char *)message->data + at;
        if (chunk > bytes - at)
            chunk = bytes - at;
        memcpy(to + at, from, chunk);
    }
}

int weft__lane_send(const struct weft__local_transport *self, const struct weft__message *message,
                    size_t bytes, const struct weft__xfer *xfer)
{
    const struct weft_local *local = self->local;
    struct weft__endpoint *endpoint = &local->endpoints[message->to];
    struct weft__lane *lane = weft__lane_of(local, self->base.rank, message->to);
    if (bytes > local->lane_bytes ||
        atomic_load_explicit(&endpoint->inbox, memory_order_relaxed) == WEFT__CLOSED)
        return WEFT__LANE_NOT;
    if (lane->seen != lane->in_inbox || !has_room(lane, bytes)) {
        int status = look_for_room(lane, bytes);
        if (status != WEFT__LANE_SENT)
            return status;
    }
    struct weft__line *line = &lane->lines[lane->position % WEFT__LANE_LINES];
    char *to = (char *)line->payload;
    if (bytes > WEFT__LINE_PAYLOAD) {
        uint32_t begin = begin_of(lane->behind, bytes);
        to = behind_of(local, lane) + begin % WEFT__LANE_BEHIND;
        lane->behind = begin + in_lines(bytes);
    }
    copy_in(to, message, bytes, xfer);
    line->tag = message->tag;
    line->object = message->object;
    line->version = message->version;
    line->bytes = (uint32_t)message->bytes;
    line->part = message->part;
    line->turn = message->turn;
    line->kind = message->kind;
    weft__lane_publish(lane, line);
    /* Release: the line is there; pairs with the look of the receiver. */
    if (weft__is_urgent(message->kind))
        atomic_fetch_add_explicit(&endpoint->urgent, 1, memory_order_release);
    weft__bell_ring(&endpoint->bell);
    return WEFT__LANE_SENT;
}

/* ---- the receiver's side ---- */

int weft__lane_records_make(const struct weft_local *local, struct weft__endpoint *own)
{
    if (!local->lanes)
        return WEFT_OK;
    own->uncut_records = (size_t)local->size * WEFT__LANE_RECORDS;
    /* One more for the alignment. */
    own->records = weft__malloc(own->uncut_records + 1, sizeof(struct weft__lane_record));
    return own->records ? WEFT_OK : weft__error_memory("the small messages of a local rank");
}

void weft__lane_records_free(struct weft__endpoint *own)
{
    for (int large = 0; large < 2; large++)
        while (own->free_behind[large]) {
            struct weft__message *next = own->free_behind[large]->next;
            weft__free(own->free_behind[large]);
            own->free_behind[large] = next;
        }
    weft__free(own->records);
    own->records = NULL;
    own->free_records = NULL;
    own->uncut_records = 0;
}

/* For what is in a line: there are as many as all senders' lanes allow. */
static struct weft__lane_record *take_record(struct weft__endpoint *own)
{
    struct weft__message *message = own->free_records;
    if (message) {
        own->free_records = message->next;
        return (struct weft__lane_record *)message; /* its first member */
    }
    uintptr_t begin = (uintptr_t)own->records + CELL_ALIGNMENT - 1;
    begin -= begin % CELL_ALIGNMENT;
    struct weft__lane_record *record =
        (void *)(begin + --own->uncut_records * sizeof(struct weft__lane_record));
    record->message.flags = OF_LANE;
    return record;
}

/* For what is behind a line, with room for it, should it have to be kept; NULL: no memory. */
static struct weft__lane_record *take_record_behind(const struct weft_local *local,
                                                    struct weft__endpoint *own, size_t bytes)
{
    int large = bytes > WEFT__LANE_SMALL;
    struct weft__message *message = own->free_behind[large];
    if (message) {
        own->free_behind[large] = message->next;
        return (struct weft__lane_record *)message; /* its first member */
    }
    size_t capacity = large ? local->lane_bytes : (size_t)WEFT__LANE_SMALL;
    struct weft__lane_record *record = weft__aligned(CELL_ALIGNMENT, sizeof *record + capacity);
    if (record) {
        record->capacity = capacity;
        record->message.flags = BEHIND_LANE;
    }
    return record;
}

static void fill_record(const struct weft__local_transport *self, int from,
                        struct weft__message *message, const struct weft__line *line)
{
    message->bytes = line->bytes;
    message->version = line->version;
    message->object = line->object;
    message->tag = line->tag;
    message->from = message->own = from;
    message->to = self->base.rank;
    message->kind = line->kind;
    message->list = 0;
    message->turn = line->turn;
    message->part = line->part;
}

static void take_in_line(const struct weft__local_transport *self, struct weft__lane *lane,
                         int from, const struct weft__line *line, uint32_t taken)
{
    struct weft__lane_record *record = take_record(self->own);
    struct weft__message *message = &record->message;
    fill_record(self, from, message, line);
    memcpy(record->payload, line->payload, WEFT__LINE_PAYLOAD);
    message->data = weft__has_payload(message->kind) && message->bytes > 0 ? record->payload : NULL;
    /* Release: it has been read; pairs with look(). */
    atomic_store_explicit(&lane->taken, taken + 1, memory_order_release);
    weft__engine_message(self->base.engine, message);
}

/* 0: there is no memory for it now. */
static int take_behind(const struct weft__local_transport *self, struct weft__lane *lane, int from,
                       const struct weft__line *line, uint32_t taken)
{
    struct weft__endpoint *own = self->own;
    struct weft__lane_record *record = take_record_behind(self->local, own, line->bytes);
    if (!record)
        return 0;
    struct weft__message *message = &record->message;
    uint32_t position = atomic_load_explicit(&lane->behind_taken, memory_order_relaxed);
    uint32_t begin = begin_of(position, line->bytes);
    fill_record(self, from, message, line);
    message->data = behind_of(self->local, lane) + begin % WEFT__LANE_BEHIND;
    own->delivering = message;
    weft__engine_message(self->base.engine, message);
    if (own->delivering) {
        memcpy(record->payload, message->data, message->bytes);
        message->data = record->payload;
    }
    own->delivering = NULL;
    /* Release: as above. */
    atomic_store_explicit(&lane->behind_taken, begin + in_lines(line->bytes), memory_order_release);
    atomic_store_explicit(&lane->taken, taken + 1, memory_order_release);
    return 1;
}

int weft__lane_take(const struct weft__local_transport *self, int from, int all, int *rest)
{
    struct weft__lane *lane = weft__lane_of(self->local, from, self->base.rank);
    struct weft__engine *engine = self->base.engine;
    uint32_t active = engine->active_count;
    int count = 0;
    while (count < WEFT__LANE_LINES && weft__lane_has(lane)) {
        uint32_t taken = atomic_load_explicit(&lane->taken, memory_order_relaxed);
        uint32_t released = atomic_load_explicit(&lane->released, memory_order_relaxed);
        const struct weft__line *line = &lane->lines[taken % WEFT__LANE_LINES];
        int is_data = line->kind == WEFT__DATA;
        if (!weft__has_payload(line->kind) || line->bytes <= WEFT__LINE_PAYLOAD) {
            take_in_line(self, lane, from, line, taken);
        } else if (!take_behind(self, lane, from, line, taken)) {
            engine->did++;
            *rest = 1;
            break;
        }
        count++;
        if (!all &&
            (engine->active_count < active ||
             (is_data && released == atomic_load_explicit(&lane->released, memory_order_relaxed))))
            break;
    }
    return count;
}

void weft__lane_release(const struct weft__local_transport *self, struct weft__message *message)
{
    struct weft__endpoint *own = self->own;
    _Atomic uint32_t *released =
        &weft__lane_of(self->local, message->own, self->base.rank)->released;
    struct weft__message **list = &own->free_records;
    if (own->delivering == message)
        own->delivering = NULL;
    if (message->flags == BEHIND_LANE) {
        struct weft__lane_record *record = (struct weft__lane_record *)message; /* first member */
        list = &own->free_behind[record->capacity > WEFT__LANE_SMALL];
    }
    message->next = *list;
    *list = message;
    atomic_store_explicit(released, atomic_load_explicit(released, memory_order_relaxed) + 1,
                          memory_order_release);
}
