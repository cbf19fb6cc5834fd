/* SPDX-License-Identifier: BSD-3-Clause */
/* A device as this library has it: what its files share. */
#ifndef WEFT_GPU_CUDA_DEVICE_H
#define WEFT_GPU_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "gpu/driver.h"
#include "gpu/launch.h"
#include "runtime/engine/device.h"

/* Another device of this machine, from the first time that its memory is met. */
struct weft__cuda_peer {
    CUcontext context; /* its primary one, retained; NULL: not met yet */
    int reached;       /* by kernels of this device */
};

struct weft__cuda_comm;  /* comm.c */
struct weft__cuda_words; /* stream.c */
struct weft__cuda_block; /* pool.c */

/* What memory is of; words are pinned, too. */
enum { WEFT__CUDA_THERE, WEFT__CUDA_PINNED, WEFT__CUDA_WORDS, WEFT__CUDA_POOLS };

/* Memory of one kind: what is in use, and what nobody has at the moment. */
struct weft__cuda_pool {
    struct weft__cuda_block *used, *spare;
};

/* What is open of other processes: ipc.c. */
struct weft__cuda_imports {
    pthread_mutex_t lock;
    struct weft__imported *first; /* the latest one used */
    unsigned count;
};

/* One for each device of the machine, however many contexts of weft have it. */
struct weft__cuda {
    struct weft__device device; /* first */
    const struct weft__cuda_driver *driver;
    char name[16];
    int ordinal;
    int devices;       /* of the machine */
    CUcontext context; /* the device's primary one, which the CUDA runtime uses as well */
    CUmodule *modules; /* an image each */
    CUfunction functions[WEFT__GPU_KERNEL_COUNT];
    pthread_mutex_t lock; /* guards what follows */
    struct weft__cuda_words *words;
    struct weft__cuda_peer *peers; /* a device each */
    _Atomic int apart;             /* there is a peer that kernels do not reach */
    pthread_mutex_t pool_lock;     /* pool.c */
    struct weft__cuda_pool pools[WEFT__CUDA_POOLS];
    uint64_t owner; /* of what is exported; the same for ever */
    struct weft__cuda_imports imports;
    /* comm.c: communicators that end, and the thread that does it, guarded by comm_lock. */
    pthread_mutex_t comm_lock;
    pthread_cond_t comm_more;
    pthread_t comm_thread;
    struct weft__cuda_comm *ending;
    int comm_thread_runs, comm_stop;
    /* device.c, guarded by its lock */
    unsigned users;
    struct weft__cuda *next;
};

static inline struct weft__cuda *weft__cuda_of(struct weft__device *device)
{
    return (struct weft__cuda *)device;
}

/* Makes the device's context the thread's, which may have another one, or none; 1: to be left by
 * weft__cuda_leave(), 0: it was the thread's already. Negative, with weft__error set. */
int weft__cuda_enter(const struct weft__cuda *cuda);
/* As that of any context. */
int weft__cuda_enter_context(const struct weft__cuda *cuda, CUcontext context);
void weft__cuda_leave(const struct weft__cuda *cuda, int entered);
/* For what gives back, and could not do it later: tries again, and sets no text. Negative: the
 * driver cannot be used any more. */
int weft__cuda_enter_last(const struct weft__cuda *cuda);

/* WEFT_OK, or the error of a call, with the device's name. */
int weft__cuda_result(const struct weft__cuda *cuda, CUresult code, const char *call);

/* The device is about to end: gives the driver back what is kept, if the device is current. What is
 * in use is left to it: words that a stream may still write. */
void weft__cuda_pools_end(struct weft__cuda *cuda, int current);

/* ---- operations of struct weft__device_ops ---- */

/* memory.c */
int weft__cuda_where(struct weft__device *device, const void *address, size_t bytes);
void *weft__cuda_alloc(struct weft__device *device, size_t bytes);
void weft__cuda_free(struct weft__device *device, void *memory);
void *weft__cuda_pin(struct weft__device *device, size_t bytes);
void weft__cuda_unpin(struct weft__device *device, void *memory);
void *weft__cuda_pin_words(struct weft__device *device, size_t bytes);
void weft__cuda_unpin_words(struct weft__device *device, void *memory);
/* 1: memory of a device; 2: managed memory; 0: neither. */
int weft__cuda_kind(const struct weft__cuda *cuda, const void *address);
/* A copy where an end may be of a device that this one does not reach. The device is current. */
int weft__cuda_copy_apart(struct weft__cuda *cuda, CUstream stream, void *dst, const void *src,
                          size_t bytes);
void weft__cuda_peers_release(struct weft__cuda *cuda);

/* ipc.c */
int weft__cuda_export(struct weft__device *device, const void *address, size_t bytes,
                      struct weft__exported *exported, uint64_t *offset);
void *weft__cuda_import(struct weft__device *device, const struct weft__exported *exported,
                        struct weft__imported **imported);
void weft__cuda_return(struct weft__device *device, struct weft__imported *imported);
void weft__cuda_forget(struct weft__device *device, uint64_t owner);
void weft__cuda_ipc_begin(struct weft__cuda *cuda);
/* Closes what nobody uses and is not likely to. The device is current; it may be waited for. */
void weft__cuda_ipc_trim(struct weft__cuda *cuda);
/* `current`: the device is. */
void weft__cuda_ipc_end(struct weft__cuda *cuda, int current);

/* stream.c */
struct weft__cuda_stream {
    struct weft__stream stream; /* first */
    struct weft__cuda *cuda;
    CUstream handle;
    CUevent event;          /* for those that follow it */
    _Atomic uint32_t *word; /* `reached`, to be given back */
};

int weft__cuda_open_stream(struct weft__device *device, struct weft__stream **stream);
void weft__cuda_close(struct weft__stream *stream);
int weft__cuda_copy(struct weft__stream *stream, void *dst, const void *src, size_t bytes);
int weft__cuda_call(struct weft__stream *stream, weft_device_fn function, struct weft_call *call);
int weft__cuda_mark(struct weft__stream *stream);
int weft__cuda_failed(struct weft__stream *stream);
int weft__cuda_write(struct weft__device *device, void *stream, _Atomic uint32_t *word,
                     uint32_t value);
int weft__cuda_hold(struct weft__device *device, void *stream, _Atomic uint32_t *word,
                    uint32_t value);
/* Whether streams of the device can write and wait for words: negative, with weft__error set. */
int weft__cuda_can_mark(struct weft__cuda *cuda);
/* The device is current. */
void weft__cuda_words_free(struct weft__cuda *cuda);

int weft__cuda_follow(struct weft__stream *stream, const struct weft__stream *first);

/* comm.c */
int weft__cuda_comm_id(struct weft__device *device, unsigned char id[WEFT__COMM_ID_BYTES]);
int weft__cuda_comm_open(struct weft__device *device, const unsigned char id[WEFT__COMM_ID_BYTES],
                         int rank, int size, struct weft__comm **comm);
int weft__cuda_comm_poll(struct weft__comm *comm);
int weft__cuda_comm_joint(struct weft__comm *comm, struct weft__stream *stream,
                          const struct weft__comm_joint *joint);
int weft__cuda_comm_exchange(struct weft__comm *comm, struct weft__stream *stream,
                             const struct weft__comm_item *items, size_t count);
void weft__cuda_comm_abort(struct weft__comm *comm);
void weft__cuda_comm_close(struct weft__comm *comm);
#ifdef WEFT_HAVE_NCCL
void weft__cuda_comms_init(struct weft__cuda *cuda);
/* Whether there is a thread that ends some; waits until it has ended all, and itself. */
int weft__cuda_comms_end_now(struct weft__cuda *cuda);
void weft__cuda_comms_settle(struct weft__cuda *cuda);
void weft__cuda_comms_free(struct weft__cuda *cuda);
#else
#    define weft__cuda_comms_init(cuda)    ((void)(cuda))
#    define weft__cuda_comms_end_now(cuda) ((void)(cuda), 0)
#    define weft__cuda_comms_settle(cuda)  ((void)(cuda))
#    define weft__cuda_comms_free(cuda)    ((void)(cuda))
#endif

/* reduce.c */
int weft__cuda_reduce(struct weft__stream *stream, weft_op_kind_t kind, weft_dtype_t dtype,
                      void *dst, const void *a, const void *b, size_t count);
int weft__cuda_reduce_n(struct weft__stream *stream, weft_op_kind_t kind, weft_dtype_t dtype,
                        void *dst, const void *const *inputs, unsigned n, size_t count);

/* combine.c: the device is current. */
int weft__cuda_combine(struct weft__device *device, void *stream,
                       const struct weft_device_sum *sum);
int weft__cuda_fill(struct weft__device *device, void *stream, const struct weft_argument *to,
                    uint64_t bits);
int weft__cuda_copy_vector(struct weft__device *device, void *stream,
                           const struct weft_argument *to, const struct weft_argument *from);
int weft__cuda_squares(struct weft__device *device, void *stream,
                       const struct weft_argument *vector, int clears, double *sums);
int weft__cuda_scatter(struct weft__device *device, void *stream,
                       const struct weft__device_scatter *scatter);

/* launch.c: the device is current. */
int weft__cuda_load_kernels(struct weft__cuda *cuda);
void weft__cuda_unload_kernels(struct weft__cuda *cuda, int current);

#endif
