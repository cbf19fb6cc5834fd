/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the stand-in share. One lock guards all of it: calls hold it from
 * standin__enter() to standin__leave(), streams let go of it while they run an operation. */
#ifndef WEFT_STANDIN_INSIDE_H
#define WEFT_STANDIN_INSIDE_H

#include <cuda.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../grid/grid_run.h"
#include "standin.h"

#define STANDIN_EXPORT __attribute__((visibility("default")))

enum {
    STANDIN_DEVICES_MAX = 16,
    STANDIN_PAGE = 4096,
    STANDIN_ALIGNMENT = 256,
    STANDIN_FRESH = 0xe5, /* memory that nobody has written */
    STANDIN_SLACK = 0xd7, /* what nobody may write */
};

/* ---- calls ---- */

enum standin_needs {
    NEEDS_NOTHING = 0,
    NEEDS_INIT = 1,
    NEEDS_CONTEXT = 2, /* a current one, in order */
    RELEASES = 4,      /* is done also where the call fails */
};

struct standin_options {
    unsigned devices, delay_us, connections;
    size_t memory;
    uint64_t seed;
    bool stream_mem_ops, peers, pools, implicit_sync, quiet, abort, reuse, ipc, ipc_free;
    int visible[STANDIN_DEVICES_MAX]; /* of the machine's devices, those of this process */
};
extern struct standin_options standin__options;
extern bool standin__initialised;

extern pthread_mutex_t standin__lock;
extern pthread_cond_t standin__progress; /* a stream has finished something, or a context failed */

/* Takes the lock, also where it returns an error. `context` may be NULL. */
CUresult standin__enter(const char *name, unsigned needs, CUcontext *context);
CUresult standin__leave(CUresult result);

/* Counts a misuse of the function that is running; returns `code`. */
CUresult standin__misuse(CUresult code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void standin__count_operation(void);
CUresult standin__injected_fault(void);
bool standin__is_sticky(CUresult code);
uint64_t standin__random(uint64_t *state);
void standin__read_options(void);
void standin__append(char *text, size_t size, size_t *used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

extern _Thread_local bool standin__in_host_function;

/* ---- handles: never freed, so that one that was destroyed is known ---- */

enum standin_kind { KIND_STREAM = 1, KIND_EVENT, KIND_MODULE, KIND_FUNCTION };

struct standin_handle {
    enum standin_kind kind;
    bool live;
    CUcontext context;
    struct standin_handle *next;
    /* Of those that live. One that dies still leads on to those behind it. */
    struct standin_handle *after, *before;
};

void standin__handle_die(struct standin_handle *handle);
void standin__handle_add(struct standin_handle *handle, enum standin_kind kind, CUcontext context);
/* NULL, and a misuse, where there is none. */
void *standin__handle_find(const void *pointer, enum standin_kind kind);
/* Calls `visit` for every live one of a context (or of all, NULL). */
void standin__handles(CUcontext context, void (*visit)(struct standin_handle *, void *),
                      void *data);

/* ---- contexts ---- */

struct CUctx_st {
    int device;
    unsigned retained;
    unsigned long generation; /* a release to 0 makes another context of it */
    _Atomic int error;        /* CUresult: from a fault until the release */
    unsigned peers;           /* devices that it may access */
    CUstream legacy;
    unsigned abandoned;
    unsigned abandoned_pins; /* of these; and the largest */
    size_t abandoned_pin;
};
extern struct CUctx_st standin__contexts[STANDIN_DEVICES_MAX];

bool standin__context_known(CUcontext context);
CUresult standin__context_current(CUcontext *context);
/* Waits for all streams of a context, also those that were destroyed; with the lock. */
CUresult standin__context_wait(CUcontext context);
void standin__context_fail(CUcontext context, CUresult code);
bool standin__context_failed(CUcontext context);

/* ---- memory ---- */

enum standin_memory { MEMORY_DEVICE, MEMORY_IPC, MEMORY_HOST, MEMORY_REGISTERED };

struct standin_allocation {
    uintptr_t start, end; /* pages; one guard page follows */
    uintptr_t base;       /* what the program has */
    size_t size;
    enum standin_memory kind;
    bool live, freeing;
    int device;
    CUcontext context; /* that allocated, or opened it */
    unsigned flags;
    unsigned long id, ended; /* when it was freed, by the same count */
    unsigned queued;         /* operations that name it and are not done */
    int slot;                /* of the table for other processes, or -1 */
    unsigned opens;
    struct standin_ipc_table *table; /* the owner's */
    int owner;
    unsigned long theirs; /* its id there */
};

struct standin_arena {
    uintptr_t base, cursor;
    size_t size;
    intptr_t alias; /* + this: where the stand-in itself reaches it */
    int file;
};
extern struct standin_arena standin__device_arena, standin__host_arena;

CUresult standin__memory_init(void);
uintptr_t standin__reserve(struct standin_arena *arena, size_t bytes);
void standin__allocation_add(struct standin_allocation *allocation);
/* The one whose pages hold the address, live or not; live ones are preferred. */
struct standin_allocation *standin__allocation_find(uintptr_t address);
void standin__allocations(void (*visit)(struct standin_allocation *, void *), void *data);
void standin__allocation_end(struct standin_allocation *allocation);
/* A context goes away: so does its memory, which is counted as abandoned. */
void standin__memory_abandon(CUcontext context);

/* Whether a stream of `context` may use [address, address + bytes): sets `allocation`, NULL for
 * pageable host memory. */
CUresult standin__memory_check(CUcontext context, uintptr_t address, size_t bytes, const char *what,
                               struct standin_allocation **allocation);
bool standin__memory_reaches(CUcontext context, const struct standin_allocation *allocation);
/* Whether nobody has written beside what a program has of it; counts a misuse of `who` if not. */
bool standin__memory_intact(const struct standin_allocation *allocation, const char *who);
void *standin__memory_alias(const struct standin_allocation *allocation, uintptr_t address);

/* ---- memory of other processes ---- */

struct standin_ipc_table;
CUresult standin__ipc_init(void);
void standin__ipc_withdraw(struct standin_allocation *allocation);
/* Whether its owner still has what was opened. */
bool standin__ipc_lives(const struct standin_allocation *allocation);

/* ---- streams ---- */

enum standin_work {
    WORK_COPY,
    WORK_SET,
    WORK_WRITE,
    WORK_WAIT_VALUE,
    WORK_WAIT,
    WORK_RECORD,
    WORK_HOST,
    WORK_KERNEL,
    WORK_FOREIGN,
};

struct standin_mark {
    CUstream stream;
    uint64_t ticket;
};

struct standin_operation {
    enum standin_work work;
    struct standin_operation *next;
    uint64_t ticket;
    struct standin_mark *marks; /* what must be done before */
    size_t mark_count, mark_space;
    struct standin_allocation *uses[2];
    void *staged; /* freed after it */

    char *to;
    const char *from;
    size_t width, height, to_pitch, from_pitch;
    uint32_t value;
    unsigned bytes, flags;
    CUhostFn function;
    int (*foreign)(void *data, void *stream);
    void *data;
    CUevent event;
    CUfunction kernel;
    unsigned grid[3], block[3];
    size_t shared;
    void **arguments;
    uint64_t seed;
};

struct CUstream_st {
    struct standin_handle handle; /* first */
    unsigned flags, index;
    int priority;
    bool closing;
    uint64_t issued, done, random;
    struct standin_operation *head, **tail;
    pthread_cond_t work;
    pthread_t thread;
    char waits[96]; /* for what, or empty */
    CUstream next;  /* of all whose threads are there */
};

struct standin_operation *standin__operation(enum standin_work work);
void standin__operation_free(struct standin_operation *operation);
void standin__operation_after(struct standin_operation *operation, CUstream stream,
                              uint64_t ticket);
/* Takes the operation. */
void standin__issue(CUstream stream, struct standin_operation *operation);
/* With the lock: waits, returns the error of the stream's context. */
CUresult standin__wait(CUstream stream, uint64_t ticket);
/* NULL and the like are the legacy stream; an error is counted. */
CUresult standin__stream_find(CUcontext current, CUstream stream, CUstream *found);
CUstream standin__stream_open(CUcontext context, unsigned flags, int priority);
void standin__stream_close(CUstream stream);
CUresult standin__run(CUstream stream, struct standin_operation *operation);
void *standin__translate(void *pointer);
void standin__streams_waiting(char *text, size_t size, size_t *used);

/* ---- events ---- */

struct CUevent_st {
    struct standin_handle handle; /* first */
    unsigned flags;
    struct standin_mark mark; /* of the last record; no stream: never recorded */
    uint64_t time;            /* ns, once it is done */
};

void standin__event_reached(CUstream stream, struct standin_operation *operation);

/* ---- modules ---- */

struct standin_image {
    char *data; /* a copy, for the caller may free its own */
    size_t bytes;
    bool text;
    bool named;   /* its names can be looked for */
    size_t found; /* where the latest was */
};

/* False where it is no image; no `data` without memory. */
bool standin__image_copy(struct standin_image *image, const void *data);
bool standin__image_has(struct standin_image *image, const char *name);
/* The most of a block, by the first cubin in the image. */
unsigned standin__image_threads(const struct standin_image *image, const char *name);

struct CUmod_st {
    struct standin_handle handle; /* first */
    struct standin_image image;
    struct CUfunc_st *functions;
};

struct CUfunc_st {
    struct standin_handle handle; /* first */
    struct CUfunc_st *next;
    const struct grid_kernel *kernel;
    unsigned threads_max;
    int shared_max;
    bool launched;
};

CUresult standin__run_kernel(CUstream stream, struct standin_operation *operation);
/* For the handler of SIGSEGV: whether a kernel of this thread ends by it, which is its fault. */
bool standin__kernel_ends(void *frame, const char *what);

#endif
