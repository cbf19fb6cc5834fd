/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transport of a context that was split: the root's, with ranks and places translated.
 *
 * What is sent has ranks of the root. What arrives has them too, until it is handed over: then
 * `from` is the rank in the context, and `to`, which nobody needs any more, keeps the sender's rank
 * in the root, which the transport wants back.
 *
 * A rank that leaves says how many messages it has sent, for transports on which one overtakes
 * another: only when all are here it is gone.
 */
#include "runtime/context/part.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include <stdlib.h>
#include <string.h>

/* Places, to begin with: a place is used again after all others, and a message that is late knows
 * it by its turn for 256 times as long. */
#define FIRST_SEATS 128
#define MOST_SEATS  65536

/* Instead of how many messages a rank has sent: it has never had the context. */
#define NEVER_THERE UINT64_MAX

static struct weft__part *part_of(const struct weft__transport *transport)
{
    return (struct weft__part *)(uintptr_t)transport; /* its first member */
}

static struct weft__transport *under(const struct weft__transport *transport)
{
    return part_of(transport)->root->engine.transport;
}

int weft__part_rank(const struct weft__part *part, int rank)
{
    int low = 0, high = part->base.size;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (part->members[part->order[middle]].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < part->base.size && part->members[part->order[low]].rank == rank ? part->order[low]
                                                                                 : -1;
}

int weft__root_rank(const struct weft_context *context, int rank)
{
    return context->part ? context->part->members[rank].rank : rank;
}

/* ---- the table ---- */

/* Whether a message is one of those that a rank says to have sent. Signals may come twice. */
static uint32_t counts(int kind)
{
    return kind != WEFT__SIGNAL;
}

static int part_send(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__part *part = part_of(transport);
    struct weft__transport *root = under(transport);
    int to = xfer->message.to;
    struct weft__member *member = &part->members[to];
    if (!member->deaf) {
        xfer->message.from = root->rank;
        xfer->message.to = member->rank;
        xfer->message.part = member->place.part;
        xfer->message.turn = member->place.turn;
        member->sent++;
        int status = xfer->message.list == WEFT__DEVICE ? root->ops->send_device(root, xfer)
                                                        : root->ops->send(root, xfer);
        if (status == WEFT_OK || status == WEFT_IN_PROGRESS)
            return status;
        member->sent--;
        if (status != WEFT_ERR_PEER)
            return status;
    }
    return weft__error(WEFT_ERR_PEER, "rank %d has destroyed its context", to);
}

static int part_control(struct weft__transport *transport, const struct weft__message *given)
{
    struct weft__part *part = part_of(transport);
    struct weft__transport *root = under(transport);
    struct weft__member *member = &part->members[given->to];
    struct weft__message message = {.data = given->data,
                                    .bytes = given->bytes,
                                    .version = given->version,
                                    .object = given->object,
                                    .tag = given->tag,
                                    .from = root->rank,
                                    .to = member->rank,
                                    .kind = given->kind,
                                    .turn = member->place.turn,
                                    .part = member->place.part};
    /* It needs no signals; but what it says to an invitation is awaited. */
    if (member->absent || (member->deaf && given->kind != WEFT__INVITE))
        return WEFT_OK;
    int status = root->ops->control(root, &message);
    if (status >= 0)
        member->sent += counts(given->kind);
    return status;
}

static int part_poll(struct weft__transport *transport)
{
    (void)transport;
    return 0; /* the root's is polled */
}

static int part_pending(struct weft__transport *transport)
{
    struct weft__transport *root = under(transport);
    return root->ops->pending(root);
}

static int part_fetch_device(struct weft__transport *transport, struct weft__message *message,
                             struct weft__xfer *xfer)
{
    struct weft__transport *root = under(transport);
    int from = message->from;
    message->from = message->to;
    int status = root->ops->fetch_device(root, message, xfer);
    if (status == WEFT__OUT_OF_REACH)
        message->from = from;
    return status;
}

static int part_pull(struct weft__transport *transport, struct weft__message *message,
                     size_t offset, void *memory, size_t *bytes)
{
    struct weft__transport *root = under(transport);
    message->from = message->to;
    return root->ops->pull(root, message, offset, memory, bytes);
}

static int part_fetch(struct weft__transport *transport, struct weft__message *message,
                      struct weft__xfer *xfer)
{
    struct weft__transport *root = under(transport);
    message->from = message->to;
    return root->ops->fetch(root, message, xfer);
}

static int part_reach(struct weft__transport *transport, struct weft__message *message,
                      struct weft__device *device)
{
    struct weft__transport *root = under(transport);
    return root->ops->reach(root, message, device);
}

static const char *part_reached(struct weft__transport *transport,
                                const struct weft__message *message, size_t offset, size_t *bytes)
{
    struct weft__transport *root = under(transport);
    return root->ops->reached(root, message, offset, bytes);
}

static void part_staged(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__transport *root = under(transport);
    root->ops->staged(root, xfer);
}

static const void *part_piece(struct weft__transport *transport, struct weft__message *message,
                              size_t offset, size_t *bytes)
{
    struct weft__transport *root = under(transport);
    return root->ops->piece(root, message, offset, bytes);
}

static void part_release(struct weft__transport *transport, struct weft__message *message,
                         int consumed)
{
    struct weft__transport *root = under(transport);
    message->from = message->to;
    root->ops->release(root, message, consumed);
}

static int part_read(struct weft__transport *transport, struct weft__message *message, int reading)
{
    struct weft__transport *root = under(transport);
    return root->ops->read(root, message, reading);
}

static int part_withdrawn(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__transport *root = under(transport);
    return root->ops->withdrawn(root, xfer);
}

static int part_cancel(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct weft__transport *root = under(transport);
    int sends = xfer->message.xflags == WEFT__X_SENDING;
    int status = root->ops->cancel(root, xfer);
    if (status == WEFT_OK && sends && root->takes_back) {
        const struct weft_run *run = weft__xfer_run(xfer);
        part_of(transport)->members[weft__peer(run, run->plan->nodes[xfer->node].peer)].sent--;
    }
    return status;
}

static void part_keep(struct weft__transport *transport, void *memory, void (*release)(void *))
{
    struct weft__transport *root = under(transport);
    root->ops->keep(root, memory, release);
}

/* Hosts are numbered from 0 in the order of the ranks. */
static int number_hosts(const struct weft__part *part, int *hosts)
{
    const struct weft_context *root = part->root;
    const struct weft__family *family = root->family;
    int count = 0;
    for (int host = 0; host < root->engine.transport->host_count; host++)
        family->numbers[host] = -1;
    for (int r = 0; r < part->base.size; r++) {
        int *number = &family->numbers[family->hosts[part->members[r].rank]];
        if (*number < 0)
            *number = count++;
        if (hosts)
            hosts[r] = *number;
    }
    return count;
}

static int part_hosts(struct weft__transport *transport, int *hosts)
{
    struct weft__part *part = part_of(transport);
    if (!part->root->family->hosts) {
        memset(hosts, 0, (size_t)transport->size * sizeof *hosts);
        return WEFT_OK;
    }
    weft__drive_lock(part->root); /* for the room that all of the family share */
    number_hosts(part, hosts);
    weft__drive_unlock(part->root);
    return WEFT_OK;
}

static uint64_t part_now(const struct weft__transport *transport)
{
    const struct weft__transport *root = under(transport);
    return root->ops->now(root);
}

static int part_block(struct weft__transport *transport, int (*done)(void *), void *argument,
                      uint64_t until)
{
    struct weft__transport *root = under(transport);
    return root->ops->block(root, done, argument, until);
}

static void part_wake(struct weft__transport *transport)
{
    struct weft__transport *root = under(transport);
    root->ops->wake(root);
}

static int part_spend(struct weft__transport *transport, struct weft_run *run, uint32_t node)
{
    struct weft__transport *root = under(transport);
    return root->ops->spend(root, run, node);
}

static void part_unspend(struct weft__transport *transport, const struct weft_run *run)
{
    struct weft__transport *root = under(transport);
    root->ops->unspend(root, run);
}

static void part_close(struct weft__transport *transport)
{
    (void)transport; /* weft__part_end() */
}

void weft__part_ops(struct weft__transport_ops *ops, const struct weft__transport *root)
{
    const struct weft__transport_ops *can = root->ops;
    *ops = (struct weft__transport_ops){
        .send = part_send,
        .send_device = can->send_device ? part_send : NULL,
        .reach = can->reach ? part_reach : NULL,
        .reached = can->reached ? part_reached : NULL,
        .staged = can->staged ? part_staged : NULL,
        .control = part_control,
        .poll = part_poll,
        .pending = can->pending ? part_pending : NULL,
        .fetch = can->fetch ? part_fetch : NULL,
        .fetch_device = can->fetch_device ? part_fetch_device : NULL,
        .pull = can->pull ? part_pull : NULL,
        .piece = can->piece ? part_piece : NULL,
        .release = part_release,
        .read = can->read ? part_read : NULL,
        .withdrawn = can->withdrawn ? part_withdrawn : NULL,
        .cancel = part_cancel,
        .keep = can->keep ? part_keep : NULL,
        .hosts = part_hosts,
        .now = can->now ? part_now : NULL,
        .block = can->block ? part_block : NULL,
        .wake = can->wake ? part_wake : NULL,
        .spend = can->spend ? part_spend : NULL,
        .unspend = can->unspend ? part_unspend : NULL,
        .close = part_close,
    };
}

/* ---- places ---- */

static void free_seat(struct weft__family *family, uint32_t seat)
{
    family->seats[seat].part = NULL;
    family->seats[seat].next = 0;
    if (family->free_last != 0)
        family->seats[family->free_last].next = (uint16_t)seat;
    else
        family->free_first = (uint16_t)seat;
    family->free_last = (uint16_t)seat;
}

static int more_seats(struct weft__family *family)
{
    uint32_t count = family->seat_count == 0 ? FIRST_SEATS : 2 * family->seat_count;
    if (family->seat_count >= MOST_SEATS)
        return weft__error(WEFT_ERR_UNSUPPORTED,
                           "this rank has %d contexts split from one, some of which others have "
                           "not destroyed yet; more are not possible",
                           MOST_SEATS - 1);
    struct weft__seat *seats = weft__calloc(count, sizeof *seats);
    if (!seats)
        return weft__error_memory("a context");
    if (family->seats)
        memcpy(seats, family->seats, family->seat_count * sizeof *seats);
    weft__free(family->seats);
    family->seats = seats;
    uint32_t first = family->seat_count == 0 ? 1 : family->seat_count;
    family->seat_count = count;
    for (uint32_t seat = first; seat < count; seat++)
        free_seat(family, seat);
    return WEFT_OK;
}

int weft__part_open(struct weft__part **out, struct weft_context *root, int most)
{
    struct weft__family *family = root->family;
    struct weft__part *part = weft__calloc(1, sizeof *part);
    if (!part)
        return weft__error_memory("a context");
    part->members = weft__calloc((size_t)most, sizeof *part->members);
    part->order = weft__malloc((size_t)most, sizeof *part->order);
    int status = part->members && part->order ? WEFT_OK : weft__error_memory("a context");
    if (status == WEFT_OK && family->free_first == 0)
        status = more_seats(family);
    if (status != WEFT_OK) {
        weft__free(part->members);
        weft__free(part->order);
        weft__free(part);
        return status;
    }
    uint16_t seat = family->free_first;
    family->free_first = family->seats[seat].next;
    if (family->free_first == 0)
        family->free_last = 0;
    family->seats[seat].part = part;
    part->place = (struct weft__place){seat, family->seats[seat].turn};
    part->early_end = &part->early;
    part->root = root;
    part->next = family->parts;
    if (family->parts)
        family->parts->previous = part;
    family->parts = part;
    *out = part;
    return WEFT_OK;
}

void weft__part_free(struct weft__part *part)
{
    struct weft__family *family = part->root->family;
    struct weft__transport *root = part->root->engine.transport;
    while (part->early) {
        struct weft__message *message = part->early;
        part->early = message->next;
        root->ops->release(root, message, 0);
    }
    if (part->previous)
        part->previous->next = part->next;
    else
        family->parts = part->next;
    if (part->next)
        part->next->previous = part->previous;
    family->seats[part->place.part].turn++;
    free_seat(family, part->place.part);
    weft__free(part->members);
    weft__free(part->order);
    weft__free(part);
}

void weft__part_end(struct weft__part *part)
{
    if (!part->context && part->others == 0)
        weft__part_free(part);
}

/* ---- what arrives ---- */

static void drop(struct weft__part *part, struct weft__message *message)
{
    struct weft__transport *root = part->root->engine.transport;
    root->ops->release(root, message, 0);
}

static int arrives_in_order(const struct weft__part *part, const struct weft__member *member)
{
    const struct weft__transport *root = part->root->engine.transport;
    return root->in_order || (root->ordered && root->ordered[member->rank]);
}

/* If all that a member has sent is here, it is gone. It may be the last that this part waits for.
 */
static void look_gone(struct weft__part *part, int rank)
{
    struct weft__member *member = &part->members[rank];
    if (!member->leaving || member->gone ||
        (!arrives_in_order(part, member) && member->received != member->expected))
        return;
    member->gone = 1;
    member->deaf = member->told;
    part->others--;
    if (part->context)
        weft__engine_left(&part->context->engine, rank);
    if (part->context)
        weft__family_wake(part->context);
    weft__part_end(part);
}

/* A message for a part that has its members. The part may be gone afterwards. */
static void deliver(struct weft__part *part, struct weft__message *message)
{
    int rank = weft__part_rank(part, message->from);
    if (rank < 0) {
        drop(part, message); /* so late that others have the place */
        return;
    }
    struct weft__member *member = &part->members[rank];
    int kind = message->kind;
    if (kind == WEFT__LEFT) {
        member->leaving = member->told = 1;
        member->absent = message->version == NEVER_THERE;
        member->expected = member->absent ? 0 : (uint32_t)message->version;
        drop(part, message);
        look_gone(part, rank);
        return;
    }
    member->received += counts(kind);
    if (part->context) {
        message->to = message->from;
        message->from = rank;
        message->part = 0;
        part->context->engine.now = part->root->engine.now;
        weft__family_wake(part->context);
        weft__engine_message(&part->context->engine, message);
    } else {
        if (kind == WEFT__INVITE)
            weft__invitation_decline(part->root, message->from, message);
        drop(part, message);
    }
    look_gone(part, rank);
}

void weft__family_delivered(struct weft_context *root, struct weft__message *message)
{
    struct weft__family *family = root->family;
    const struct weft__seat *seat =
        family && message->part < family->seat_count ? &family->seats[message->part] : NULL;
    if (!seat || !seat->part || seat->turn != message->turn) {
        root->engine.transport->ops->release(root->engine.transport, message, 0);
        return;
    }
    struct weft__part *part = seat->part;
    if (part->base.size > 0) {
        deliver(part, message);
        return;
    }
    message->next = NULL;
    *part->early_end = message;
    part->early_end = &message->next;
}

int weft__family_posted(const struct weft_context *root, const struct weft__message *message)
{
    const struct weft__family *family = root->family;
    if (!message->part)
        return weft__match_posted(&root->engine.match, message);
    const struct weft__seat *seat =
        family && message->part < family->seat_count ? &family->seats[message->part] : NULL;
    if (!seat || !seat->part || seat->turn != message->turn || !seat->part->context)
        return 0;
    struct weft__message theirs = {.version = message->version,
                                   .object = message->object,
                                   .tag = message->tag,
                                   .from = weft__part_rank(seat->part, message->from),
                                   .kind = message->kind};
    return weft__match_posted(&seat->part->context->engine.match, &theirs);
}

/* A member has left the root: all that it has sent is here. The part may be gone afterwards. */
static void leave_with_root(struct weft__part *part, int member)
{
    part->members[member].leaving = 1;
    part->members[member].expected = part->members[member].received;
    look_gone(part, member);
}

void weft__family_left(struct weft_context *root, int rank)
{
    if (root->family)
        for (struct weft__part *part = root->family->parts, *next; part; part = next) {
            next = part->next;
            int member = part->base.size > 0 ? weft__part_rank(part, rank) : -1;
            if (member >= 0)
                leave_with_root(part, member);
        }
    weft__invitations_look(root);
}

/* A member has died, and all that it has sent is here. The part may be gone afterwards. */
static void lose_member(struct weft__part *part, int rank, const char *how)
{
    struct weft__member *member = &part->members[rank];
    int gone = member->gone;
    member->leaving = member->gone = member->deaf = 1;
    part->others -= !gone;
    if (part->context && !gone) {
        part->context->engine.now = part->root->engine.now;
        weft__family_wake(part->context);
        weft__engine_died(&part->context->engine, rank, how);
    }
    weft__part_end(part);
}

void weft__family_died(struct weft_context *context, int rank, const char *how, const char *text)
{
    weft__series_all_failed(context, WEFT_ERR_PEER, text);
    if (context->family)
        for (struct weft__part *part = context->family->parts, *next; part; part = next) {
            next = part->next;
            int member = part->base.size > 0 ? weft__part_rank(part, rank) : -1;
            if (member >= 0)
                lose_member(part, member, how);
        }
    weft__invitations_look(context);
}

void weft__family_reported(struct weft_context *context, int rank, const char *how)
{
    weft__engine_reported(&context->root->engine, weft__root_rank(context, rank), how);
}

/* ---- beginning and leaving ---- */

/* Without memory for less, it keeps what it has. */
void weft__part_shrink(struct weft__part *part, int count)
{
    void *members = weft__realloc(part->members, (size_t)count, sizeof *part->members);
    void *order = weft__realloc(part->order, (size_t)count, sizeof *part->order);
    if (members)
        part->members = members;
    if (order)
        part->order = order;
}

static int compare_members(const void *left, const void *right, void *members)
{
    int a = ((const struct weft__member *)members)[*(const int32_t *)left].rank;
    int b = ((const struct weft__member *)members)[*(const int32_t *)right].rank;
    return a < b ? -1 : a > b;
}

/* How many members share this rank's host. */
static int count_here(const struct weft__part *part, int own)
{
    const int *hosts = part->root->family->hosts;
    int count = 0;
    for (int r = 0; r < part->base.size; r++)
        count += !hosts || hosts[part->members[r].rank] == hosts[part->members[own].rank];
    return count;
}

void weft__part_begin(struct weft__part *part, struct weft_context *context, int count, int own,
                      uint64_t group)
{
    struct weft__transport *root = part->root->engine.transport;
    part->base = *root;
    part->base.ops = &part->root->family->ops;
    part->base.engine = &context->engine;
    part->base.rank = own;
    part->base.size = count;
    part->base.group = group;
    for (int r = 0; r < count; r++)
        part->order[r] = r;
    qsort_r(part->order, (size_t)count, sizeof *part->order, compare_members, part->members);
    if (root->host_count > 1)
        part->base.host_count = number_hosts(part, NULL);
    if (root->local_ranks > 1)
        part->base.local_ranks = count_here(part, own);
    part->context = context;
    part->others = count - 1;
    while (part->early) {
        struct weft__message *message = part->early;
        part->early = message->next;
        deliver(part, message);
    }
    part->early_end = &part->early;
    for (int r = 0; r < count; r++) { /* while this one was being made */
        int rank = part->members[r].rank;
        const struct weft__death *death = weft__engine_death(&part->root->engine, rank);
        if (death)
            lose_member(part, r, death->how);
        else if (weft__engine_has_gone(&part->root->engine, rank))
            leave_with_root(part, r);
    }
}

void weft__part_leave(struct weft__part *part)
{
    struct weft__transport *root = part->root->engine.transport;
    for (int step = 1; step < part->base.size; step++) {
        struct weft__member *member = &part->members[(part->base.rank + step) % part->base.size];
        struct weft__message message = {.version = member->sent,
                                        .from = root->rank,
                                        .to = member->rank,
                                        .kind = WEFT__LEFT,
                                        .turn = member->place.turn,
                                        .part = member->place.part};
        if (!member->absent)
            weft__engine_control(&part->root->engine, &message);
    }
}

void weft__part_decline(struct weft_context *root, int rank, struct weft__place place)
{
    struct weft__message message = {.version = NEVER_THERE,
                                    .from = root->engine.transport->rank,
                                    .to = rank,
                                    .kind = WEFT__LEFT,
                                    .turn = place.turn,
                                    .part = place.part};
    weft__engine_control(&root->engine, &message);
}
