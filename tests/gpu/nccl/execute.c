/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a stream does with a launch: it waits for the communicator's launches before this one, then
 * for the other ranks, and moves data through shared memory, a piece at a time.
 *
 * Where a rank cannot go on, it waits for those whose end of a message, or part in a collective, is
 * not there. If each of them is in a launch itself, and waits for others in the same way, in a
 * circle, none will ever go on, since streams execute in order: that is reported. */
#include "nccl_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const nccl__kind_names[KIND_COUNT] = {
    "send", "receive", "all-reduce", "reduce", "broadcast", "reduce-scatter", "all-gather"};

/* ---- nothing can go on ---- */

static bool is_stuck(const struct nccl_world *world, int rank)
{
    return world->ranks[rank].executing && world->ranks[rank].idle == world->version;
}

static bool waits_for(const struct nccl_world *world, int rank, int other)
{
    const struct nccl_channel *out = &world->channels[rank][other];
    const struct nccl_channel *in = &world->channels[other][rank];
    return (out->send_posted && !out->recv_posted) || (in->recv_posted && !in->send_posted) ||
           world->ranks[other].put < world->ranks[rank].put;
}

/* Follows the waiting from a rank; `way` is how it got there. */
static bool find_circle(const struct nccl_world *world, int rank, int *way, int length,
                        unsigned *seen)
{
    way[length++] = rank;
    *seen |= 1u << rank;
    for (int other = 0; other < world->size; other++) {
        if (!is_stuck(world, other) || !waits_for(world, rank, other))
            continue;
        if (other == way[0]) {
            way[length] = -1;
            return true;
        }
        if (!(*seen >> other & 1) && find_circle(world, other, way, length, seen))
            return true;
    }
    return false;
}

static void look_for_circle(ncclComm_t comm)
{
    struct nccl_world *world = comm->world;
    int way[RANKS_MAX + 1];
    unsigned seen = 0;
    char text[400] = "";
    size_t used = 0;
    if (world->told || !find_circle(world, comm->rank, way, 0, &seen))
        return;
    world->told = 1;
    for (int i = 0; way[i] >= 0 && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "rank %d (%s) waits for ", way[i],
                                 world->ranks[way[i]].what);
    nccl__misuse(comm, ncclInvalidUsage, "nothing can go on: %srank %d", text, way[0]);
}

/* With the lock of the world: waits for a change; 1 if the launch is to be given up. */
static int rest(const struct nccl_launch *launch, void *stream)
{
    ncclComm_t comm = launch->comm;
    struct nccl_world *world = comm->world;
    world->ranks[comm->rank].idle = world->version;
    look_for_circle(comm);
    nccl__world_wait(world);
    return atomic_load(&comm->aborted) || atomic_load(&comm->error) || standin_failed(stream);
}

static void fail(ncclComm_t comm, ncclResult_t result)
{
    atomic_store(&comm->error, (int)result);
}

/* ---- messages ---- */

static void post(struct nccl_channel *channel, struct nccl_op *op, bool send)
{
    uint64_t bytes = op->count * nccl__type_size(op->type);
    *(send ? &channel->send_posted : &channel->recv_posted) = 1;
    *(send ? &channel->bytes : &channel->recv_bytes) = bytes;
    *(send ? &channel->type : &channel->recv_type) = op->type;
    op->posted = 1;
}

static void compare(ncclComm_t comm, struct nccl_channel *channel, const struct nccl_op *op)
{
    bool send = op->kind == KIND_SEND;
    if (channel->broken ||
        (channel->bytes == channel->recv_bytes && channel->type == channel->recv_type))
        return;
    channel->broken = 1;
    nccl__misuse(comm, ncclInvalidUsage,
                 "rank %d sends %llu bytes of type %d, rank %d receives %llu of type %d",
                 send ? comm->rank : op->peer, (unsigned long long)channel->bytes, channel->type,
                 send ? op->peer : comm->rank, (unsigned long long)channel->recv_bytes,
                 channel->recv_type);
}

static bool move(struct nccl_channel *channel, struct nccl_op *op)
{
    size_t bytes;
    if (op->kind == KIND_SEND) {
        if (channel->filled || channel->moved_in == channel->bytes)
            return false;
        bytes = channel->bytes - channel->moved_in;
        bytes = bytes < CHUNK ? bytes : CHUNK;
        memcpy(channel->chunk, op->from + channel->moved_in, bytes);
        channel->moved_in += bytes;
        channel->filled = bytes;
        return true;
    }
    if (!channel->filled)
        return false;
    memcpy(op->to + channel->moved_out, channel->chunk, channel->filled);
    channel->moved_out += channel->filled;
    channel->filled = 0;
    return true;
}

/* One of the two has seen the end; the second one makes the channel free. */
static void finish(struct nccl_channel *channel, struct nccl_op *op)
{
    op->done = 1;
    *(op->kind == KIND_SEND ? &channel->send_left : &channel->recv_left) = 1;
    if (!channel->send_left || !channel->recv_left)
        return;
    channel->send_posted = channel->recv_posted = channel->send_left = channel->recv_left = 0;
    channel->broken = 0;
    channel->moved_in = channel->moved_out = 0;
    channel->filled = 0;
}

/* True if something has changed. */
static bool step(ncclComm_t comm, struct nccl_op *op)
{
    bool send = op->kind == KIND_SEND, changed = false;
    struct nccl_channel *channel = send ? &comm->world->channels[comm->rank][op->peer]
                                        : &comm->world->channels[op->peer][comm->rank];
    if (!op->posted) {
        if (send ? channel->send_posted : channel->recv_posted)
            return false; /* the message before is not over there */
        post(channel, op, send);
        changed = true;
    }
    if (!channel->send_posted || !channel->recv_posted)
        return changed;
    compare(comm, channel, op);
    if (channel->broken) {
        finish(channel, op);
        fail(comm, ncclInvalidUsage);
        return true;
    }
    changed |= move(channel, op);
    if (channel->moved_out == channel->bytes) {
        finish(channel, op);
        changed = true;
    }
    return changed;
}

/* The first operation of each peer and direction that is not done. */
static bool pass(struct nccl_launch *launch, size_t *left)
{
    unsigned sends = 0, recvs = 0;
    bool changed = false;
    *left = 0;
    for (size_t i = 0; i < launch->count; i++) {
        struct nccl_op *op = &launch->ops[i];
        unsigned *busy = op->kind == KIND_SEND ? &sends : &recvs;
        if (op->kind > KIND_RECV || op->done)
            continue;
        if (!(*busy >> op->peer & 1))
            changed |= step(launch->comm, op);
        if (op->done)
            continue;
        *busy |= 1u << op->peer;
        ++*left;
    }
    return changed;
}

static void messages(struct nccl_launch *launch, void *stream)
{
    size_t left;
    do {
        bool changed = pass(launch, &left);
        if (changed)
            nccl__world_changed(launch->comm->world);
        else if (left && rest(launch, stream))
            return;
    } while (left);
}

/* ---- collectives ---- */

static bool all_at(const struct nccl_world *world, bool put, uint64_t at)
{
    for (int r = 0; r < world->size; r++)
        if ((put ? world->ranks[r].put : world->ranks[r].took) < at)
            return false;
    return true;
}

static bool same_heads(ncclComm_t comm, const struct nccl_head *head)
{
    for (int r = 0; r < comm->size; r++) {
        const struct nccl_head *other = &comm->world->ranks[r].head;
        if (!memcmp(other, head, sizeof *head))
            continue;
        nccl__misuse(comm, ncclInvalidUsage,
                     "rank %d is in %s of %llu (type %d, operation %d, root %d), rank %d in %s of "
                     "%llu (type %d, operation %d, root %d)",
                     comm->rank, nccl__kind_names[head->kind], (unsigned long long)head->count,
                     head->type, head->op, head->root, r, nccl__kind_names[other->kind],
                     (unsigned long long)other->count, other->type, other->op, other->root);
        fail(comm, ncclInvalidUsage);
        return false;
    }
    return true;
}

/* Elements first .. last - 1 of the inputs are there: what becomes of them here. */
static void take(ncclComm_t comm, const struct nccl_op *op, uint64_t first, uint64_t last)
{
    size_t size = nccl__type_size(op->type);
    const char *from[RANKS_MAX];
    uint64_t begin = first, end = last, own = (uint64_t)comm->rank * op->count;
    for (int r = 0; r < comm->size; r++)
        from[r] = comm->world->ranks[r].chunk;
    switch (op->kind) {
    case KIND_BROADCAST:
        if (last > first)
            memcpy(op->to + first * size, from[op->peer], (last - first) * size);
        break;
    case KIND_ALL_GATHER:
        for (int r = 0; r < comm->size && last > first; r++)
            memcpy(op->to + ((uint64_t)r * op->count + first) * size, from[r],
                   (last - first) * size);
        break;
    case KIND_REDUCE_SCATTER:
        begin = begin < own ? own : begin;
        end = end > own + op->count ? own + op->count : end;
        for (int r = 0; r < comm->size && begin < end; r++)
            from[r] += (begin - first) * size;
        if (begin < end)
            nccl__reduce(op->to + (begin - own) * size, from, comm->size, end - begin, op->type,
                         op->op);
        break;
    default:
        if ((op->kind == KIND_ALL_REDUCE || comm->rank == op->peer) && last > first)
            nccl__reduce(op->to + first * size, from, comm->size, last - first, op->type, op->op);
    }
}

/* 0, or -1: given up. */
static int collective(struct nccl_launch *launch, void *stream, struct nccl_op *op)
{
    ncclComm_t comm = launch->comm;
    struct nccl_world *world = comm->world;
    struct nccl_rank *rank = &world->ranks[comm->rank];
    size_t size = nccl__type_size(op->type), piece = CHUNK / size;
    uint64_t inputs =
        op->kind == KIND_REDUCE_SCATTER ? op->count * (uint64_t)comm->size : op->count;
    struct nccl_head head;
    memset(&head, 0, sizeof head);
    head = (struct nccl_head){(int)op->kind, op->type, op->op, op->peer, op->count};
    for (uint64_t first = 0; first < inputs || !first; first += piece) {
        uint64_t last = first + piece < inputs ? first + piece : inputs;
        while (!all_at(world, false, rank->put))
            if (rest(launch, stream))
                return -1;
        if (op->from && last > first)
            memcpy(rank->chunk, op->from + first * size, (last - first) * size);
        memcpy(&rank->head, &head, sizeof head);
        rank->put++;
        nccl__world_changed(world);
        while (!all_at(world, true, rank->put))
            if (rest(launch, stream))
                return -1;
        if (!same_heads(comm, &head))
            return -1;
        take(comm, op, first, last);
        rank->took++;
        nccl__world_changed(world);
    }
    return 0;
}

/* ---- a launch ---- */

static void describe(const struct nccl_launch *launch, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < launch->count && used < size; i++) {
        const struct nccl_op *op = &launch->ops[i];
        const char *way = op->kind == KIND_SEND ? " to " : op->kind == KIND_RECV ? " from " : NULL;
        if (way)
            used += (size_t)snprintf(text + used, size - used, "%s%s%s%d", i ? ", " : "",
                                     nccl__kind_names[op->kind], way, op->peer);
        else
            used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "",
                                     nccl__kind_names[op->kind]);
    }
}

static bool its_turn(struct nccl_launch *launch, void *stream)
{
    ncclComm_t comm = launch->comm;
    bool gives_up = false;
    pthread_mutex_lock(&comm->lock);
    while (comm->done + 1 != launch->ticket && !gives_up) {
        struct timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        time.tv_nsec = (time.tv_nsec + 2000000) % 1000000000;
        time.tv_sec += time.tv_nsec < 2000000;
        pthread_cond_timedwait(&comm->done_cond, &comm->lock, &time);
        gives_up = standin_failed(stream);
    }
    pthread_mutex_unlock(&comm->lock);
    return !gives_up;
}

static void run(struct nccl_launch *launch, void *stream)
{
    ncclComm_t comm = launch->comm;
    struct nccl_rank *rank = &comm->world->ranks[comm->rank];
    nccl__world_lock(comm->world);
    describe(launch, rank->what, sizeof rank->what);
    rank->executing = 1;
    int failed = 0;
    for (size_t i = 0; i < launch->count && !failed; i++)
        if (launch->ops[i].kind > KIND_RECV)
            failed = collective(launch, stream, &launch->ops[i]);
    if (!failed)
        messages(launch, stream);
    rank->executing = 0;
    nccl__world_changed(comm->world);
    nccl__world_unlock(comm->world);
}

int nccl__execute(void *data, void *stream)
{
    struct nccl_launch *launch = data;
    ncclComm_t comm = launch->comm;
    nccl__set_running(NULL);
    if (its_turn(launch, stream)) {
        int fault = nccl__fault();
        if (fault)
            fail(comm, (ncclResult_t)fault);
        if (!fault && !atomic_load(&comm->aborted) && !atomic_load(&comm->error))
            run(launch, stream);
    }
    pthread_mutex_lock(&comm->lock);
    comm->done++;
    pthread_cond_broadcast(&comm->done_cond);
    pthread_mutex_unlock(&comm->lock);
    free(launch->ops);
    free(launch);
    return 0;
}
