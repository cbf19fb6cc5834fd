/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local transport: ranks are threads of one process.
 *
 * Each rank has an inbox, a stack that anybody pushes on and its driver takes whole. What is pushed
 * is
 *   - a cell with a copied payload (eager): the send ends at once; the receiver hands the empty
 *     cell back to its owner's stack of returns;
 *   - a send's own record (direct): the receiver copies or reduces from the sender's memory, then
 *     pushes the record back into the sender's inbox, which ends the send.
 * So nothing is allocated on the way and any number of messages can be under way: when a rank is
 * out of cells its sends become direct. Where ranks are few, small messages go by lanes (lane.h),
 * which are quicker; whatever is told of cells they do not change.
 *
 *   inbox: NULL <- m3 <- m2 <- m1     taken whole, turned round, handed to the engine
 *          WEFT__CLOSED: the rank has left
 *
 * Ranks that have left stand in a list of the group, in their order, which every rank reads on from
 * where it was when it polls; so a rank that leaves writes one word, and a group that ends does not
 * send a message from each to each. So do those whose functions have returned while their helpers
 * go on, as -2 - rank.
 *
 * A direct record has a state: the receiver takes it (POSTED -> TAKEN) and reads the payload in
 * slices (TAKEN <-> READING); the sender may withdraw it whenever it is not being read (->
 * WITHDRAWN). A withdrawn payload is never read again, though its record comes back only when the
 * receiver next looks.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/topology.h"
#include "runtime/context/context.h"
#include "runtime/transport/local/inside.h"
#include <string.h>
#include <unistd.h>

extern const struct weft_transport weft__transport_local; /* about.c */

#define EAGER_BYTES   ((size_t)8 << 10)
#define SMALL_BYTES   ((size_t)192)
#define SMALL_CELLS   ((size_t)256)
#define LARGE_CELLS   ((size_t)32)
#define FAILURE_TRIES 100
#define EAGER_MOST    ((size_t)1 << 40) /* so that the size of a cell does not wrap */
#define MESSAGES_MOST ((size_t)1 << 31)

struct weft__message weft__closed_mark;

/* ---- the group ---- */

void weft_local_config_init_sized(struct weft_local_config *config, size_t size)
{
    weft_sized_init(config, size);
}

static int check_config(const char *who, const struct weft_local_config *config)
{
    if (config->eager_bytes > EAGER_MOST && config->eager_bytes != WEFT_EAGER_NONE)
        return WEFT__INVALID("%s: config->eager_bytes is %zu, expected at most %zu, or "
                             "WEFT_EAGER_NONE",
                             who, config->eager_bytes, EAGER_MOST);
    if (config->eager_messages > MESSAGES_MOST)
        return WEFT__INVALID("%s: config->eager_messages is %zu, expected at most %zu", who,
                             config->eager_messages, MESSAGES_MOST);
    return WEFT_OK;
}

int weft_local_create(struct weft_local **out, int size, const struct weft_local_config *given)
{
    if (!out)
        return WEFT__INVALID("%s: argument `local` is NULL", __func__);
    if (size < 1)
        return WEFT__INVALID("%s: argument `size` is %d, expected at least 1", __func__, size);
    struct weft_local_config config;
    int status = weft_sized_read(__func__, "config", given, &config, sizeof config);
    if (status == WEFT_OK)
        status = check_config(__func__, &config);
    if (status != WEFT_OK)
        return status;
    struct weft_local *local = weft__calloc(1, sizeof *local);
    if (!local)
        return weft__error_memory(__func__);
    local->size = size;
    local->group = (weft__now() ^ (uint64_t)(uintptr_t)local << 20 ^ (uint64_t)getpid()) | 1;
    local->eager_bytes = config.eager_bytes == 0                 ? EAGER_BYTES
                         : config.eager_bytes == WEFT_EAGER_NONE ? 0
                                                                 : config.eager_bytes;
    if (config.eager_bytes == WEFT_EAGER_NONE) {
        local->small_cells = local->large_cells = 0;
    } else if (config.eager_messages != 0) {
        local->small_cells = local->large_cells = config.eager_messages;
    } else {
        local->small_cells = SMALL_CELLS;
        local->large_cells = LARGE_CELLS;
    }
    local->endpoints = (size_t)size > SIZE_MAX / sizeof(struct weft__endpoint)
                           ? NULL
                           : weft__aligned(128, (size_t)size * sizeof(struct weft__endpoint));
    local->left = weft__malloc(2 * (size_t)size + 1, sizeof *local->left);
    int lanes = size <= WEFT__LANE_RANKS && config.eager_messages == 0 &&
                local->eager_bytes >= WEFT__LINE_PAYLOAD;
    if (weft__lanes_make(local, lanes) != WEFT_OK || !local->endpoints || !local->left) {
        weft__lanes_free(local);
        weft__free((void *)local->left);
        weft__free(local->endpoints);
        weft__free(local);
        return weft__error_memory("the ranks of weft_local_create");
    }
    for (size_t i = 0; i <= 2 * (size_t)size; i++)
        atomic_init(&local->left[i], NOBODY);
    *out = local;
    return WEFT_OK;
}

/* Frees cells that came from the heap and nobody will take any more. */
static void free_heap_cells(struct weft__message *message)
{
    while (message && message != WEFT__CLOSED) {
        struct weft__message *next = message->next;
        if (message->flags == CELL_HEAP)
            weft__free(message);
        message = next;
    }
}

void weft_local_destroy(struct weft_local *local)
{
    if (!local)
        return;
    /* Cells first: inboxes of ranks that never came may hold some, and records of kept memory. */
    for (int r = 0; r < local->size; r++)
        free_heap_cells(atomic_load_explicit(&local->endpoints[r].inbox, memory_order_acquire));
    struct kept *kept = atomic_load_explicit(&local->kept, memory_order_acquire);
    while (kept) {
        struct kept *next = kept->next;
        kept->release(kept->memory);
        weft__free(kept);
        kept = next;
    }
    for (int r = 0; r < local->size; r++) {
        weft__free(local->endpoints[r].cells[CELL_SMALL]);
        weft__free(local->endpoints[r].cells[CELL_LARGE]);
        weft__lane_records_free(&local->endpoints[r]);
    }
    weft__lanes_free(local);
    weft__free((void *)local->left);
    weft__free(local->endpoints);
    weft__free(local);
}

/* ---- cells ---- */

static size_t cell_bytes(const struct weft_local *local, int kind)
{
    size_t payload = kind == CELL_SMALL ? SMALL_BYTES : local->eager_bytes;
    return CELL_HEADER + ((payload + CELL_ALIGNMENT - 1) & ~(CELL_ALIGNMENT - 1));
}

/* Memory for cells, which is not touched before one is used: most ranks of many use few. */
static int make_cells(struct weft_local *local, struct weft__endpoint *own, int kind, size_t count)
{
    size_t bytes = cell_bytes(local, kind);
    if (count == 0 || (kind == CELL_SMALL ? SMALL_BYTES : 0) > local->eager_bytes)
        return WEFT_OK;
    /* One more for the alignment: the product is checked there. */
    own->cells[kind] = weft__malloc(count + 1, bytes);
    if (!own->cells[kind])
        return weft__error_memory("the eager messages of a local rank");
    own->uncut[kind] = count;
    return WEFT_OK;
}

/* A cell that has never been used; NULL: there is none. */
static struct weft__message *cut_cell(const struct weft_local *local, struct weft__endpoint *own,
                                      int kind)
{
    if (own->uncut[kind] == 0)
        return NULL;
    uintptr_t begin = (uintptr_t)own->cells[kind] + CELL_ALIGNMENT - 1;
    begin -= begin % CELL_ALIGNMENT;
    struct weft__message *cell = (void *)(begin + --own->uncut[kind] * cell_bytes(local, kind));
    cell->own = (int32_t)(own - local->endpoints);
    cell->flags = (uint8_t)kind;
    return cell;
}

static void keep_cell(struct weft__endpoint *own, struct weft__message *message)
{
    message->next = own->free_cells[message->flags];
    own->free_cells[message->flags] = message;
}

static struct weft__message *take_cell(const struct weft_local *local, struct weft__endpoint *own,
                                       int kind)
{
    struct weft__message *message = own->free_cells[kind];
    if (!message) {
        /* Acquire pairs with the release of give_back(). */
        struct weft__message *back =
            !atomic_load_explicit(&own->returns, memory_order_relaxed)
                ? NULL
                : atomic_exchange_explicit(&own->returns, NULL, memory_order_acquire);
        while (back) {
            struct weft__message *next = back->next;
            keep_cell(own, back);
            back = next;
        }
        message = own->free_cells[kind];
    }
    if (!message)
        return cut_cell(local, own, kind);
    own->free_cells[kind] = message->next;
    return message;
}

static void give_back(struct weft_local *local, struct weft__endpoint *own,
                      struct weft__message *message)
{
    struct weft__endpoint *owner = &local->endpoints[message->own];
    if (owner == own) {
        keep_cell(own, message);
        return;
    }
    struct weft__message *head = atomic_load_explicit(&owner->returns, memory_order_relaxed);
    do
        message->next = head;
    while (!atomic_compare_exchange_weak_explicit(&owner->returns, &head, message,
                                                  memory_order_release, memory_order_relaxed));
}

/* ---- the inbox ---- */

/* 0 if that rank has left. */
static int push(struct weft_local *local, int to, struct weft__message *message)
{
    struct weft__endpoint *endpoint = &local->endpoints[to];
    struct weft__message *head = atomic_load_explicit(&endpoint->inbox, memory_order_relaxed);
    do {
        if (head == WEFT__CLOSED)
            return 0;
        message->next = head;
        /* Release: pairs with the exchange in take(). Sequentially consistent, for the bell. */
    } while (!atomic_compare_exchange_weak_explicit(&endpoint->inbox, &head, message,
                                                    memory_order_seq_cst, memory_order_relaxed));
    weft__bell_ring(&endpoint->bell);
    return 1;
}

/* What this rank sends, as against what it gives back. */
static int push_sent(const struct weft__local_transport *self, struct weft__message *message)
{
    if (self->local->lanes) /* before the receiver can count it */
        weft__lane_of(self->local, self->base.rank, message->to)->in_inbox++;
    return push(self->local, message->to, message);
}

static struct weft__message *take(struct weft__endpoint *own, struct weft__message *leave)
{
    if (!leave && !atomic_load_explicit(&own->inbox, memory_order_relaxed))
        return NULL;
    struct weft__message *stack =
        atomic_exchange_explicit(&own->inbox, leave, memory_order_acquire);
    struct weft__message *in_order = NULL;
    while (stack) {
        struct weft__message *next = stack->next;
        stack->next = in_order;
        in_order = stack;
        stack = next;
    }
    return in_order;
}

/* ---- the table ---- */

static int left(const struct weft__xfer *xfer)
{
    return weft__error(WEFT_ERR_PEER, "rank %d has destroyed its context", xfer->message.to);
}

/* What a message says of itself; its payload and the cell's owner stay. */
static inline void copy_head(struct weft__message *copy, const struct weft__message *message)
{
    copy->bytes = message->bytes;
    copy->version = message->version;
    copy->object = message->object;
    copy->tag = message->tag;
    copy->from = message->from;
    copy->to = message->to;
    copy->part = message->part;
    copy->turn = message->turn;
    copy->kind = message->kind;
    copy->list = 0;
}

/* Not before the receiver has read it. */
static int send_direct(const struct weft__local_transport *self, struct weft__xfer *xfer)
{
    xfer->message.flags = DIRECT;
    atomic_store_explicit(&xfer->message.state, POSTED, memory_order_relaxed);
    return push_sent(self, &xfer->message) ? WEFT_IN_PROGRESS : left(xfer);
}

static int local_send(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__local_transport *self = (struct weft__local_transport *)transport;
    struct weft_local *local = self->local;
    struct weft__message *message = &xfer->message;
    size_t bytes = message->bytes;
    if (local->lanes) {
        int status = weft__lane_send(self, message, bytes, message->list ? xfer : NULL);
        if (status == WEFT__LANE_SENT)
            return WEFT_OK;
        if (status == WEFT__LANE_FULL)
            return send_direct(self, xfer);
    }
    if (bytes <= local->eager_bytes) {
        struct weft__message *copy = NULL;
        if (bytes <= SMALL_BYTES)
            copy = take_cell(local, self->own, CELL_SMALL);
        if (!copy)
            copy = take_cell(local, self->own, CELL_LARGE);
        if (copy) {
            char *payload = (char *)copy + CELL_HEADER;
            copy_head(copy, message);
            copy->data = bytes == 0 ? NULL : payload;
            for (size_t at = 0, chunk; at < bytes; at += chunk) {
                chunk = bytes - at;
                const char *from = message->list ? weft__xfer_chunk(xfer, at, &chunk)
                                                 : (const char *)message->data + at;
                if (chunk > bytes - at)
                    chunk = bytes - at;
                memcpy(payload + at, from, chunk);
            }
            if (push_sent(self, copy))
                return WEFT_OK;
            keep_cell(self->own, copy);
            return left(xfer);
        }
    }
    return send_direct(self, xfer);
}

static int local_send_device(struct weft__transport *transport, struct weft__xfer *xfer)
{
    return send_direct((const struct weft__local_transport *)transport, xfer);
}

static int has_left(const struct weft_local *local, uint32_t place)
{
    /* Sequentially consistent: as the look at the inbox. Pairs with the store in local_leave(). */
    return atomic_load_explicit(&local->left[place], memory_order_seq_cst) != NOBODY;
}

static void enlist(const struct weft__transport *transport, int32_t what)
{
    struct weft_local *local = ((const struct weft__local_transport *)transport)->local;
    uint32_t place = atomic_fetch_add_explicit(&local->left_count, 1, memory_order_relaxed);
    atomic_store_explicit(&local->left[place], what, memory_order_seq_cst);
    for (int r = 0; r < local->size; r++)
        if (r != transport->rank)
            weft__bell_ring(&local->endpoints[r].bell);
}

/* After everything else that this rank has sent: whoever waits for more waits in vain. */
static void local_leave(struct weft__transport *transport)
{
    struct weft__endpoint *own = ((struct weft__local_transport *)transport)->own;
    if (own->left)
        return;
    own->left = 1;
    enlist(transport, transport->rank);
}

static void local_retire(struct weft__transport *transport)
{
    struct weft__endpoint *own = ((struct weft__local_transport *)transport)->own;
    if (!atomic_exchange_explicit(&own->returned, 1, memory_order_release))
        enlist(transport, -2 - transport->rank);
}

static int local_returned(const struct weft__transport *transport, int rank)
{
    struct weft_local *local = ((const struct weft__local_transport *)transport)->local;
    return atomic_load_explicit(&local->endpoints[rank].returned, memory_order_acquire);
}

static int local_control(struct weft__transport *transport, const struct weft__message *message)
{
    struct weft__local_transport *self = (struct weft__local_transport *)transport;
    size_t bytes = message->data ? message->bytes : 0; /* of news */
    if (self->local->lanes && weft__lane_send(self, message, bytes, NULL) == WEFT__LANE_SENT)
        return WEFT_OK;
    struct weft__message *copy =
        bytes > SMALL_BYTES ? NULL : take_cell(self->local, self->own, CELL_SMALL);
    if (!copy) {
        /* A failure that is not told leaves its peers waiting: it is worth another try. */
        int tries = message->kind == WEFT__FAIL ? FAILURE_TRIES : 1;
        for (; !copy && tries > 0; tries--)
            copy = weft__malloc(1, CELL_HEADER + bytes);
        if (!copy)
            return weft__error_memory("a signal");
        copy->own = transport->rank;
        copy->flags = CELL_HEAP;
    }
    copy_head(copy, message);
    copy->data = bytes ? (char *)copy + CELL_HEADER : NULL;
    if (bytes)
        memcpy((char *)copy + CELL_HEADER, message->data, bytes);
    if (push_sent(self, copy))
        return WEFT_OK;
    /* A rank that has left needs no signals. */
    if (copy->flags == CELL_HEAP)
        weft__free(copy);
    else
        keep_cell(self->own, copy);
    return WEFT_OK;
}

static void receive(struct weft__transport *transport, struct weft__message *message)
{
    const struct weft_local *local = ((struct weft__local_transport *)transport)->local;
    if (message->flags == BACK) {
        weft__engine_sent(transport->engine, (struct weft__xfer *)message, (int)message->tag);
        return;
    }
    if (local->lanes) {
        _Atomic uint32_t *count = &weft__lane_of(local, message->from, transport->rank)->from_inbox;
        /* Release: what comes by the lane from now on is handed over later. */
        atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                              memory_order_release);
    }
    if (message->flags == DIRECT) {
        uint8_t posted = POSTED;
        /* Acquire/release: pairs with the withdrawal. */
        if (!atomic_compare_exchange_strong_explicit(&message->state, &posted, TAKEN,
                                                     memory_order_acq_rel, memory_order_acquire)) {
            transport->ops->release(transport, message, 0);
            return;
        }
    }
    weft__engine_message(transport->engine, message);
}

/* What is in the inbox, behind what has been postponed. */
static struct weft__message *take_all(struct weft__endpoint *own)
{
    struct weft__message *first = own->postponed, **end = &first;
    while (*end)
        end = &(*end)->next;
    *end = take(own, NULL);
    own->postponed = NULL;
    return first;
}

/* What is in the inbox, and who has left: those first, since what they have sent is in it. */
static WEFT__NOINLINE int take_in(struct weft__local_transport *self)
{
    struct weft__transport *transport = &self->base;
    const uint32_t seen = atomic_load_explicit(&self->left_seen, memory_order_relaxed);
    uint32_t upto = seen;
    while (has_left(self->local, upto))
        upto++;
    /* Acquire: pairs with weft__lane_send(). A failure is heard at once, whatever is before it. */
    uint32_t urgent = atomic_load_explicit(&self->own->urgent, memory_order_acquire);
    /* The inbox before the lanes, whose messages are handed over first: lane.h says why. */
    struct weft__message *message = take_all(self->own);
    int rest = 0, count = 0, all = message || upto != seen || urgent != self->own->urgent_seen;
    for (int from = 0; self->local->lanes && from < self->local->size; from++)
        count += weft__lane_take(self, from, all, &rest);
    if (rest) {
        self->own->postponed = message;
        return count;
    }
    self->own->urgent_seen = urgent;
    while (message) {
        struct weft__message *next = message->next;
        receive(transport, message);
        message = next;
        count++;
    }
    for (uint32_t i = seen; i < upto; i++) {
        int rank = self->local->left[i];
        if (rank < NOBODY)
            weft__engine_returned(transport->engine);
        else if (rank != transport->rank)
            weft__engine_left(transport->engine, rank);
    }
    /* Written by who drives; local_pending() may read it when somebody else does already. */
    atomic_store_explicit(&self->left_seen, upto, memory_order_relaxed);
    return count;
}

static int local_pending(struct weft__transport *transport)
{
    struct weft__local_transport *self = (struct weft__local_transport *)transport;
    const struct weft_local *local = self->local;
    if (local->lanes)
        for (int from = 0; from < local->size; from++)
            if (weft__lane_has(weft__lane_of(local, from, transport->rank)))
                return 1;
    /* Sequentially consistent: it is the last look of a thread that has registered on the bell. */
    return atomic_load_explicit(&self->own->inbox, memory_order_seq_cst) ||
           has_left(self->local, atomic_load_explicit(&self->left_seen, memory_order_relaxed));
}

/* Most looks find nothing. In which order they look does not matter: take_in() looks again. */
static int local_poll(struct weft__transport *transport)
{
    return local_pending(transport) ? take_in((struct weft__local_transport *)transport) : 0;
}

static void local_release(struct weft__transport *transport, struct weft__message *message,
                          int consumed)
{
    struct weft__local_transport *self = (struct weft__local_transport *)transport;
    if (message->flags == DIRECT) {
        /* The record belongs to the sender again once it is pushed. */
        message->flags = BACK;
        message->tag = (uint32_t)(consumed == 1   ? WEFT_OK
                                  : consumed == 0 ? WEFT_ERR_PEER
                                                  : WEFT_ERR_CANCELLED);
        push(self->local, message->from, message);
    } else if (message->flags == OF_LANE || message->flags == BEHIND_LANE) {
        weft__lane_release(self, message);
    } else if (message->flags == CELL_HEAP) {
        weft__free(message);
    } else {
        give_back(self->local, self->own, message);
    }
}

static int local_read(struct weft__transport *transport, struct weft__message *message, int reading)
{
    (void)transport;
    uint8_t expected = reading ? TAKEN : READING;
    /* Release: what was read is no longer; pairs with the withdrawal. */
    return message->flags != DIRECT || atomic_compare_exchange_strong_explicit(
                                           &message->state, &expected, reading ? READING : TAKEN,
                                           memory_order_acq_rel, memory_order_acquire);
}

static int local_withdrawn(struct weft__transport *transport, struct weft__xfer *xfer)
{
    (void)transport;
    uint8_t state = atomic_load_explicit(&xfer->message.state, memory_order_acquire);
    while (state == POSTED || state == TAKEN)
        if (atomic_compare_exchange_weak_explicit(&xfer->message.state, &state, WITHDRAWN,
                                                  memory_order_acq_rel, memory_order_acquire))
            return 1;
    return state == WITHDRAWN;
}

static int local_cancel(struct weft__transport *transport, struct weft__xfer *xfer)
{
    local_withdrawn(transport, xfer);
    return WEFT_IN_PROGRESS; /* the record is still in somebody's queue */
}

static void local_keep(struct weft__transport *transport, void *memory, void (*release)(void *))
{
    struct weft__local_transport *self = (struct weft__local_transport *)transport;
    struct kept *kept = weft__malloc(1, sizeof *kept);
    if (!kept)
        return; /* lost, which is better than freed while another rank may look at it */
    kept->memory = memory;
    kept->release = release;
    struct kept *head = atomic_load_explicit(&self->local->kept, memory_order_relaxed);
    do
        kept->next = head;
    while (!atomic_compare_exchange_weak_explicit(&self->local->kept, &head, kept,
                                                  memory_order_release, memory_order_relaxed));
}

/* As if the rank had never been opened; what has come for it stays. */
static void forget(struct weft__endpoint *own, struct weft__local_transport *self)
{
    for (int kind = CELL_SMALL; kind <= CELL_LARGE; kind++) {
        weft__free(own->cells[kind]);
        own->cells[kind] = NULL;
        own->free_cells[kind] = NULL;
        own->uncut[kind] = 0;
    }
    weft__lane_records_free(own);
    weft__free(self);
    atomic_store_explicit(&own->exists, 0, memory_order_release);
}

static void local_close(struct weft__transport *transport)
{
    struct weft__local_transport *self = (struct weft__local_transport *)transport;
    if (!self->used) {
        forget(self->own, self);
        return;
    }
    struct weft__message *postponed = self->own->postponed;
    struct weft__message *message = take(self->own, WEFT__CLOSED);
    while (postponed) {
        struct weft__message *last = postponed;
        postponed = last->next;
        last->next = message;
        message = last;
    }
    while (message) {
        struct weft__message *next = message->next;
        if (message->flags != BACK)
            local_release(transport, message, 0);
        message = next;
    }
    local_leave(transport);
    atomic_store_explicit(&self->own->exists, 2, memory_order_release);
    weft__free(self);
}

static _Atomic uint64_t *local_seat(struct weft__transport *transport, int place)
{
    const struct weft_local *local = ((struct weft__local_transport *)transport)->local;
    return place < local->size ? &local->endpoints[place].seat : NULL;
}

static const struct weft__transport_ops local_ops = {
    .send = local_send,
    .send_device = local_send_device,
    .control = local_control,
    .poll = local_poll,
    .pending = local_pending,
    .fetch = NULL,
    .release = local_release,
    .read = local_read,
    .withdrawn = local_withdrawn,
    .cancel = local_cancel,
    .keep = local_keep,
    .leave = local_leave,
    .retire = local_retire,
    .returned = local_returned,
    .seat = local_seat,
    .close = local_close,
};

/* ---- contexts ---- */

static int open_rank(const char *who, struct weft_local *local, int rank,
                     struct weft__local_transport **out)
{
    struct weft__endpoint *own = &local->endpoints[rank];
    int never = 0;
    if (!atomic_compare_exchange_strong_explicit(&own->exists, &never, 1, memory_order_acq_rel,
                                                 memory_order_acquire))
        return weft__error(WEFT_ERR_STATE, "%s: rank %d %s a context", who, rank,
                           never == 1 ? "has" : "has had");
    struct weft__local_transport *self = weft__calloc(1, sizeof *self);
    int status = !self ? weft__error_memory(who) : WEFT_OK;
    if (status != WEFT_OK ||
        (status = make_cells(local, own, CELL_SMALL, local->small_cells)) != WEFT_OK ||
        (status = make_cells(local, own, CELL_LARGE, local->large_cells)) != WEFT_OK ||
        (status = weft__lane_records_make(local, own)) != WEFT_OK) {
        forget(own, self);
        return status;
    }
    self->local = local;
    self->own = own;
    self->base = (struct weft__transport){.ops = &local_ops,
                                          .about = &weft__transport_local,
                                          .bell = &own->bell,
                                          .rank = rank,
                                          .size = local->size,
                                          .group = local->group,
                                          .local_ranks = local->size,
                                          .seat = rank,
                                          .wakes = 1,
                                          .in_order = 1,
                                          .reports_deaths = 1,
                                          .largest_message = SIZE_MAX};
    *out = self;
    return WEFT_OK;
}

int weft_context_create_local(struct weft_context **context, struct weft_local *local, int rank,
                              const struct weft_context_config *config)
{
    if (!context || !local)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, !context ? "context" : "local");
    if (rank < 0 || rank >= local->size)
        return WEFT__INVALID("%s: argument `rank` is %d, expected 0..%d", __func__, rank,
                             local->size - 1);
    struct weft_context_config settings;
    struct weft__local_transport *self = NULL;
    int status = weft__context_config_read(__func__, "config", config, &settings);
    if (status == WEFT_OK)
        status = open_rank(__func__, local, rank, &self);
    if (status != WEFT_OK)
        return status;
    status = weft__context_create(context, &self->base, &settings);
    if (status == WEFT_OK)
        self->used = 1;
    return status;
}
