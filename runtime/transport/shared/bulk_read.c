/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of another process, read by a system call.
 *
 * Whether it is allowed shows when it is first tried, on memory that the other one has announced:
 * what is not allowed comes in chunks from then on.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/topology.h"
#include "runtime/transport/shared/bulk.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECES      16 /* of a receive, in one call */
#define MEASURED    ((size_t)64 << 10)
#define REPETITIONS 8
/* A chunk is copied twice, and its lines go from one core to another once more: where reading takes
 * longer than so many copies, it is never worth it. */
#define WORTH 8
/* The system call takes its time for each page, so chunks are ahead below. What is reduced is read
 * into a buffer first, while a chunk is filled by its sender, beside the reduction: it is read from
 * more bytes on. And both from one chunk on where cores have several ranks, since chunks need their
 * sender to run. */
#define READ_FROM    WEFT__BULK_CHUNK
#define REDUCE_FROM  ((size_t)1 << 20)
#define READ_CROWDED (WEFT__BULK_CHUNK + 1)

int weft__bulk_has_ended(const struct weft__peer *peer)
{
    struct pollfd ended = {.fd = peer->pidfd, .events = POLLIN};
    return peer->state == WEFT__PEER_DEAD || (peer->pidfd >= 0 && poll(&ended, 1, 0) > 0);
}

/* As weft__bulk_read_memory(); what was read of `count` pieces in *done. */
static int read_once(struct weft__bulk *bulk, struct weft__peer *peer, uint64_t address,
                     struct iovec *pieces, size_t count, size_t *done)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    struct iovec remote = {(void *)(uintptr_t)address, bytes};
    if (peer->pid <= 0)
        return -1;
    ssize_t had = process_vm_readv(peer->pid, pieces, count, &remote, 1, 0);
    if (had > 0) {
        *done = (size_t)had;
        return 1;
    }
    if (had < 0 && errno == ESRCH)
        return 0; /* its death will be told */
    if (had < 0 && errno == EFAULT) {
        weft__channel_lost(bulk->channel, peer, "it has announced memory that it does not have");
        return 0;
    }
    return -1;
}

int weft__bulk_read_memory(struct weft__bulk *bulk, struct weft__peer *peer, uint64_t address,
                           void *memory, size_t bytes)
{
    for (size_t at = 0, had = 0; at < bytes; at += had) {
        struct iovec piece = {(char *)memory + at, bytes - at};
        int status = read_once(bulk, peer, address + at, &piece, 1, &had);
        if (status != 1)
            return status;
    }
    return 1;
}

int weft__bulk_read_xfer(struct weft__bulk *bulk, struct weft__peer *peer, uint64_t address,
                         const struct weft__xfer *xfer, size_t offset, size_t bytes)
{
    for (size_t at = 0, had = 0; at < bytes; at += had) {
        struct iovec pieces[PIECES];
        size_t count = 0;
        for (size_t end = at, piece; end < bytes && count < PIECES; end += piece) {
            piece = bytes - end;
            void *to = weft__xfer_chunk(xfer, offset + end, &piece);
            if (piece > bytes - end)
                piece = bytes - end;
            pieces[count++] = (struct iovec){to, piece};
        }
        int status = read_once(bulk, peer, address + at, pieces, count, &had);
        if (status != 1)
            return status;
    }
    return 1;
}

/* The shortest of some times that `bytes` bytes take; UINT64_MAX: it is not possible. */
static uint64_t time_of(int reads, char *to, char *from, size_t bytes)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < REPETITIONS; i++) {
        uint64_t begin = weft__now();
        if (reads) {
            struct iovec local = {to, bytes}, remote = {from, bytes};
            if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)bytes)
                return UINT64_MAX;
        } else {
            memcpy(to, from, bytes);
            atomic_signal_fence(memory_order_seq_cst);
        }
        uint64_t time = weft__now() - begin;
        if (time < least)
            least = time;
    }
    return least;
}

size_t weft__bulk_read_threshold(const struct weft__bulk *bulk, size_t *reduce_from)
{
    char *memory = weft__aligned(64, 2 * MEASURED);
    int crowded = !weft__topology_holds(bulk->channel->size);
    if (!memory)
        return SIZE_MAX;
    uint64_t reading = time_of(1, memory, memory + MEASURED, MEASURED);
    uint64_t copying = time_of(0, memory, memory + MEASURED, MEASURED);
    weft__free(memory);
    *reduce_from = crowded ? READ_CROWDED : REDUCE_FROM;
    return reading == UINT64_MAX || reading / WORTH > copying ? SIZE_MAX
           : crowded                                          ? READ_CROWDED
                                                              : READ_FROM;
}
