/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory of other processes. A handle says which process, which of its files, and where in it.
 * The first pages of that file are a table of what is exported, by which each side learns what
 * the other has done: what was freed is not opened, what is open is not freed without a word. */
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 4096, OPENERS = 16, MAGIC = 0x57455654 };

struct standin_ipc_table {
    struct {
        _Atomic unsigned long id; /* 0: not exported */
        _Atomic int openers[OPENERS];
    } slots[SLOTS];
};

_Static_assert(sizeof(struct standin_ipc_table) <= 1 << 20, "it lies before all memory");

struct token {
    uint32_t magic, slot;
    int32_t process, file, device;
    uint64_t start, bytes, size, id;
};

_Static_assert(sizeof(struct token) <= sizeof(CUipcMemHandle), "it is what a handle carries");

static struct standin_ipc_table *own;
static unsigned next_slot;

static struct standin_ipc_table *map_table(int file)
{
    void *place =
        mmap(NULL, sizeof(struct standin_ipc_table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return place == MAP_FAILED ? NULL : place;
}

CUresult standin__ipc_init(void)
{
    own = map_table(standin__device_arena.file);
    return own ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- the owner ---- */

static int slot_for(struct standin_allocation *allocation)
{
    for (unsigned i = 0; allocation->slot < 0 && i < SLOTS; i++) {
        unsigned slot = (next_slot + i) % SLOTS;
        unsigned long none = 0;
        if (!atomic_compare_exchange_strong(&own->slots[slot].id, &none, allocation->id))
            continue;
        allocation->slot = (int)slot;
        next_slot = slot + 1;
    }
    return allocation->slot;
}

STANDIN_EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, NULL);
    if (!result && !handle)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    struct standin_allocation *found = result ? NULL : standin__allocation_find(address);
    if (!result &&
        (!found || !found->live || found->kind != MEMORY_DEVICE || found->base != address))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE,
                                 "%#llx is not the begin of device memory", address);
    if (!result && standin__options.pools)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%#llx is of a pool", address);
    if (!result && slot_for(found) < 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        return standin__leave(result);
    struct token token = {MAGIC,
                          (uint32_t)found->slot,
                          getpid(),
                          standin__device_arena.file,
                          standin__options.visible[found->device],
                          found->start - standin__device_arena.base,
                          found->end - found->start,
                          found->size,
                          found->id};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &token, sizeof token);
    return standin__leave(CUDA_SUCCESS);
}

/* Of a freed allocation: whoever has it open is still there. */
static void withdraw_own(struct standin_allocation *allocation)
{
    atomic_store(&own->slots[allocation->slot].id, ~0ul);
    for (unsigned i = 0; i < OPENERS; i++) {
        int opener = atomic_exchange(&own->slots[allocation->slot].openers[i], 0);
        if (opener && !standin__options.ipc_free && (!kill(opener, 0) || errno == EPERM))
            standin__misuse(CUDA_ERROR_INVALID_VALUE, "%#lx is open in process %d",
                            (unsigned long)allocation->base, opener);
    }
    atomic_store(&own->slots[allocation->slot].id, 0);
}

void standin__ipc_withdraw(struct standin_allocation *allocation)
{
    if (allocation->slot < 0)
        return;
    if (allocation->kind == MEMORY_DEVICE) {
        withdraw_own(allocation);
    } else {
        bool closed = false;
        for (unsigned i = 0; i < OPENERS && !closed; i++) {
            int self = getpid();
            closed = atomic_compare_exchange_strong(
                &allocation->table->slots[allocation->slot].openers[i], &self, 0);
        }
        munmap(allocation->table, sizeof *allocation->table);
    }
    allocation->slot = -1;
}

/* ---- the others ---- */

bool standin__ipc_lives(const struct standin_allocation *allocation)
{
    return atomic_load(&allocation->table->slots[allocation->slot].id) == allocation->theirs;
}

/* Which device of this process one of the machine is; -1: none. */
static int own_device(int of_machine)
{
    for (int i = 0; i < (int)standin__options.devices; i++)
        if (standin__options.visible[i] == of_machine)
            return i;
    return -1;
}

/* First the name, then the look: the owner does it the other way round. */
static bool enrol(struct standin_ipc_table *table, const struct token *token)
{
    for (unsigned i = 0; i < OPENERS; i++) {
        int none = 0;
        if (!atomic_compare_exchange_strong(&table->slots[token->slot].openers[i], &none, getpid()))
            continue;
        if (atomic_load(&table->slots[token->slot].id) == token->id)
            return true;
        atomic_store(&table->slots[token->slot].openers[i], 0);
        return false;
    }
    return false;
}

static CUresult map_token(const struct token *token, struct standin_allocation *made)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", token->process, token->file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return CUDA_ERROR_MAP_FAILED;
    CUresult result = CUDA_ERROR_MAP_FAILED;
    made->table = map_table(file);
    made->start = standin__reserve(&standin__device_arena, token->bytes);
    if (!made->table || !made->start)
        goto close_file;
    void *alias = (void *)(made->start + (uintptr_t)standin__device_arena.alias);
    result = CUDA_ERROR_INVALID_HANDLE;
    if (!enrol(made->table, token))
        standin__misuse(result, "what the handle is of was freed by process %d", token->process);
    else if (mmap(alias, token->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                  (off_t)token->start) != MAP_FAILED)
        result = CUDA_SUCCESS;
close_file:
    if (result && made->table)
        munmap(made->table, sizeof *made->table);
    close(file);
    return result;
}

struct opened {
    const struct token *token;
    CUcontext context;
    struct standin_allocation *found;
};

static void match(struct standin_allocation *allocation, void *data)
{
    struct opened *opened = data;
    if (allocation->live && !allocation->freeing && allocation->kind == MEMORY_IPC &&
        allocation->owner == opened->token->process && allocation->theirs == opened->token->id &&
        allocation->context == opened->context && standin__ipc_lives(allocation))
        opened->found = allocation;
}

static CUresult open_token(const struct token *token, CUcontext context, uintptr_t *address)
{
    struct opened opened = {token, context, NULL};
    standin__allocations(match, &opened);
    if (opened.found) {
        opened.found->opens++;
        *address = opened.found->base;
        return CUDA_SUCCESS;
    }
    struct standin_allocation *made = calloc(1, sizeof *made);
    CUresult result = made ? map_token(token, made) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free(made);
        return result;
    }
    size_t rounded = (token->size + STANDIN_ALIGNMENT - 1) / STANDIN_ALIGNMENT * STANDIN_ALIGNMENT;
    made->end = made->start + token->bytes;
    made->base = made->end - rounded;
    made->size = token->size;
    made->kind = MEMORY_IPC;
    made->device = own_device(token->device);
    made->context = context;
    made->theirs = token->id;
    made->slot = (int)token->slot;
    made->owner = token->process;
    made->opens = 1;
    standin__allocation_add(made);
    *address = made->base;
    return CUDA_SUCCESS;
}

STANDIN_EXPORT CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle,
                                                   unsigned flags)
{
    CUcontext context;
    struct token token;
    uintptr_t made;
    memcpy(&token, &handle, sizeof token);
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
    if (!result && (token.magic != MAGIC || token.slot >= SLOTS))
        result = standin__misuse(CUDA_ERROR_INVALID_HANDLE, "this is no handle");
    if (!result && token.process == getpid())
        result = standin__misuse(CUDA_ERROR_INVALID_CONTEXT, "the handle is of this process");
    if (!result && (!standin__options.ipc || own_device(token.device) < 0))
        result = standin__options.ipc ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_MAP_FAILED;
    if (!result && own_device(token.device) != context->device && !standin__options.peers)
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!result)
        result = open_token(&token, context, &made);
    if (!result)
        *address = made;
    return standin__leave(result);
}
