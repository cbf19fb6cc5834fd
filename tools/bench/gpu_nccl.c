/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's allreduce among ranks of one process, each on a device of its own, as a peer. */
#include "tools/bench/gpu.h"

#include <dlfcn.h>
#include <string.h>

enum { FLOAT32 = 7, SUM = 0 }; /* ncclFloat32, ncclSum */

struct unique_id {
    char internal[128];
};

struct calls {
    int (*get_unique_id)(struct unique_id *id);
    int (*init_rank)(void **comm, int size, struct unique_id id, int rank);
    int (*all_reduce)(const void *from, void *to, size_t count, int dtype, int op, void *comm,
                      void *stream);
    int (*destroy)(void *comm);
    const char *(*error_string)(int code);
};

static const char *const names[] = {"ncclGetUniqueId", "ncclCommInitRank", "ncclAllReduce",
                                    "ncclCommDestroy", "ncclGetErrorString"};
enum { CALLS = sizeof names / sizeof *names };

_Static_assert(sizeof(struct calls) == CALLS * sizeof(void *), "a name for each call");

struct gpu_nccl {
    union {
        struct calls calls;
        void *found[CALLS];
    };
    struct unique_id id;
    int ranks;
    void **comms;
};

static int told(const struct gpu_nccl *nccl, int code, const char *call)
{
    return code == 0
               ? WEFT_OK
               : weft_error_set(WEFT_ERR_SYSTEM, "%s: %s", call, nccl->calls.error_string(code));
}

static int load(struct gpu_nccl *nccl)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return weft_error_set(WEFT_ERR_UNSUPPORTED, "%s", dlerror());
    for (int i = 0; i < CALLS; i++) {
        nccl->found[i] = dlsym(library, names[i]);
        if (!nccl->found[i])
            return weft_error_set(WEFT_ERR_UNSUPPORTED, "libnccl.so.2 has no %s", names[i]);
    }
    return told(nccl, nccl->calls.get_unique_id(&nccl->id), "ncclGetUniqueId");
}

struct gpu_nccl *gpu_nccl_open(int ranks)
{
    struct gpu_nccl *nccl = weft_memory_alloc(1, sizeof *nccl);

    if (!nccl) {
        weft_error_set(WEFT_ERR_MEMORY, "out of memory");
        return NULL;
    }
    nccl->ranks = ranks;
    nccl->comms = weft_memory_alloc((size_t)ranks, sizeof *nccl->comms);
    if (nccl->comms && load(nccl) == WEFT_OK)
        return nccl;
    if (!nccl->comms)
        weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d communicators", ranks);
    gpu_nccl_close(nccl);
    return NULL;
}

int gpu_nccl_join(struct gpu_nccl *nccl, int rank)
{
    int status = told(nccl, nccl->calls.init_rank(&nccl->comms[rank], nccl->ranks, nccl->id, rank),
                      "ncclCommInitRank");

    if (status != WEFT_OK)
        nccl->comms[rank] = NULL;
    return status;
}

int gpu_nccl_allreduce(struct gpu_nccl *nccl, int rank, const void *from, void *to, size_t count,
                       void *stream)
{
    return told(nccl,
                nccl->calls.all_reduce(from, to, count, FLOAT32, SUM, nccl->comms[rank], stream),
                "ncclAllReduce");
}

void gpu_nccl_leave(struct gpu_nccl *nccl, int rank)
{
    if (nccl->comms[rank])
        nccl->calls.destroy(nccl->comms[rank]);
    nccl->comms[rank] = NULL;
}

void gpu_nccl_close(struct gpu_nccl *nccl)
{
    if (!nccl)
        return;
    weft_memory_free(nccl->comms);
    weft_memory_free(nccl);
}
