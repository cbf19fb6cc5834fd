/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the stand-in of NCCL share. */
#ifndef WEFT_NCCL_INSIDE_H
#define WEFT_NCCL_INSIDE_H

#include <cuda.h>
#include <nccl.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../standin/standin.h"
#include "nccl_standin.h"

#define NCCL_EXPORT __attribute__((visibility("default")))

enum { RANKS_MAX = 16, CHUNK = 16384, NAME_MAX_BYTES = 128, SPLITS_MAX = 64 };

/* Of which nccl.h has no prototypes. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

/* ---- a world: what the ranks of a communicator share, in shared memory ---- */

/* Messages from one rank to another one: one at a time. */
struct nccl_channel {
    int send_posted, recv_posted; /* until both have seen the end */
    int send_left, recv_left;
    int broken; /* the two do not fit */
    uint64_t bytes, recv_bytes;
    int type, recv_type;
    uint64_t moved_in, moved_out;
    size_t filled;
    char chunk[CHUNK];
};

/* What a rank says a collective is. */
struct nccl_head {
    int kind, type, op, root;
    uint64_t count;
};

struct nccl_rank {
    int joined, executing;
    int device;
    uint64_t host;      /* of NCCL_HOSTID: two ranks of a host have two devices */
    uint64_t idle;      /* version of the world in which it could not go on */
    uint64_t put, took; /* chunks of collectives */
    struct nccl_head head;
    char what[64]; /* that it executes */
    struct {
        int said, color, key;
    } splits[SPLITS_MAX];
    char chunk[CHUNK];
};

struct nccl_world {
    _Atomic int ready;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int size, joined;
    uint64_t version; /* of all that follows */
    int told;         /* that nothing can go on */
    struct nccl_rank ranks[RANKS_MAX];
    struct nccl_channel channels[RANKS_MAX][RANKS_MAX]; /* from, to */
};

struct nccl_world *nccl__world_open(const char *name, int size);
void nccl__world_close(struct nccl_world *world);
void nccl__world_unlink(const char *name);
void nccl__world_lock(struct nccl_world *world);
void nccl__world_unlock(struct nccl_world *world);
/* With the lock: something has changed. */
void nccl__world_changed(struct nccl_world *world);
/* With the lock: waits for a change, not long. */
void nccl__world_wait(struct nccl_world *world);

/* ---- communicators ---- */

enum nccl_kind {
    KIND_SEND,
    KIND_RECV,
    KIND_ALL_REDUCE,
    KIND_REDUCE,
    KIND_BROADCAST,
    KIND_REDUCE_SCATTER,
    KIND_ALL_GATHER,
    KIND_COUNT
};
extern const char *const nccl__kind_names[KIND_COUNT];

struct nccl_op {
    enum nccl_kind kind;
    int peer; /* or root */
    uint64_t count;
    int type, op;
    const char *from; /* where the stand-in reaches them */
    char *to;
    int posted, done;
};

/* Operations that are put on a stream together. */
struct nccl_launch {
    struct nccl_launch *next;
    struct ncclComm *comm;
    CUstream stream;
    uint64_t ticket;
    size_t count, space;
    struct nccl_op *ops;
};

struct nccl_buffer {
    struct nccl_buffer *next;
    bool live;
};

/* Any thread may ask what is there: what it reads, the threads of the communicator write with the
 * lock only, and read without. A lock is taken before its world's, and that before nccl__lock. */
struct ncclComm {
    struct ncclComm *next;
    bool live;        /* with the lock */
    _Atomic int busy; /* calls that are in it */
    char name[NAME_MAX_BYTES];
    struct nccl_world *world; /* with the lock, and rank and size */
    int rank, size, device;
    CUcontext context;
    bool blocking, finalized;
    _Atomic int aborted, error;
    pthread_t group_thread; /* whose group has it */
    bool grouped;
    int polls;                   /* that still say ncclInProgress */
    bool (*advance)(ncclComm_t); /* what has begun and is not done */
    struct nccl_launch *held;    /* issued when polled */
    int split;                   /* splits so far */
    ncclComm_t child;            /* of the latest one, until it is there */
    struct nccl_buffer *buffers; /* with the lock */
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    uint64_t issued, done; /* with the lock, also to read */
    char last_error[256];
};

/* Enters a call: counts it, looks for what is wrong. With `comm` NULL, one of no communicator. */
enum nccl_needs {
    CALL_ANY = 0,
    CALL_READY = 1,    /* not while it is in progress */
    CALL_DEVICE = 2,   /* its device must be current */
    CALL_RELEASES = 4, /* is done also where the call fails */
    CALL_COMM = 8,
};
ncclResult_t nccl__enter(const char *name, ncclComm_t comm, unsigned needs);
ncclResult_t nccl__leave(ncclComm_t comm, ncclResult_t result);
ncclResult_t nccl__misuse(ncclComm_t comm, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void nccl__set_running(const char *name);
int nccl__fault(void);
unsigned nccl__draw(unsigned below);
extern int nccl__progress;
extern struct ncclComm *nccl__comms; /* with nccl__lock */
extern pthread_mutex_t nccl__lock;

/* In a group of this thread? Then it waits for its end. */
bool nccl__in_group(void);
void nccl__group_add(ncclComm_t comm);
void nccl__group_error(ncclResult_t result);
/* Something of a communicator has begun: blocks, or lets it be polled. */
ncclResult_t nccl__begin(ncclComm_t comm, bool (*advance)(ncclComm_t));
/* Goes on with it, if it has been polled often enough: true if it is done. */
bool nccl__poll(ncclComm_t comm);
/* Puts a launch on its stream; takes it. */
ncclResult_t nccl__issue(struct nccl_launch *launch);
void nccl__launch_free(struct nccl_launch *launch);
size_t nccl__type_size(int type);
/* to = the reduction of `count` elements of n inputs, `stride` bytes apart. */
void nccl__reduce(char *to, const char *const *from, int n, size_t count, int type, int op);

/* execute.c: what a stream does. */
int nccl__execute(void *launch, void *stream);

#endif
