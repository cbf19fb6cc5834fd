/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Device memory: addresses that nobody can use, and the same pages a second time at a constant
 * distance, where the stand-in's copies and the kernels use them.
 *
 *      what programs have            the alias
 *   ..|guard|slack|memory|slack|guard|..       the memory ends at the guard page, up to 256 bytes
 *
 * Addresses are not given out again until there are none left, so that what was freed stays
 * known. */
#include "inside.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct standin_arena standin__device_arena = {.size = (size_t)1 << 38};
struct standin_arena standin__host_arena = {.size = (size_t)1 << 36};

static struct standin_allocation **table; /* by `start` */
static size_t table_count, table_space;
static unsigned long ids;
static size_t used[STANDIN_DEVICES_MAX];
static struct sigaction before;

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ---- who touched what ---- */

static const char *whose(uintptr_t *address)
{
    const struct standin_arena *device = &standin__device_arena;
    uintptr_t shown = *address - (uintptr_t)device->alias;
    if (*address - device->base < device->size)
        return "the host touched device memory";
    if (*address - standin__host_arena.base < standin__host_arena.size)
        return "pinned memory was left, or had been freed";
    if (shown - device->base >= device->size)
        return NULL;
    *address = shown;
    return "a kernel or a copy left its device memory";
}

/* Says whose memory a program has touched, and hands the signal to whoever had it before; a kernel
 * ends its context instead. Takes no lock: what is freed stays in the table. */
static void touched(int number, siginfo_t *info, void *frame)
{
    uintptr_t address = (uintptr_t)info->si_addr;
    char line[256];
    const char *what = whose(&address);
    const struct standin_allocation *near = what ? standin__allocation_find(address) : NULL;
    int length = snprintf(line, sizeof line, "stand-in: %s at %#lx",
                          what ? what : "memory that no device has", (unsigned long)address);
    if (near)
        length += snprintf(line + length, sizeof line - (size_t)length,
                           ": %zu bytes at %#lx of device %d%s", near->size,
                           (unsigned long)near->base, near->device, near->live ? "" : ", freed");
    if (standin__kernel_ends(frame, line + strlen("stand-in: ")))
        return;
    line[length++] = '\n';
    if (what && write(STDERR_FILENO, line, (size_t)length) < 0)
        _exit(1);
    sigaction(number, &before, NULL);
}

static CUresult reserve_arena(struct standin_arena *arena, int file, uintptr_t skip)
{
    void *place =
        mmap(NULL, arena->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    arena->base = (uintptr_t)place;
    arena->cursor = arena->base + skip;
    arena->file = file;
    return CUDA_SUCCESS;
}

CUresult standin__memory_init(void)
{
    struct standin_arena *device = &standin__device_arena;
    int file = memfd_create("standin", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)device->size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = reserve_arena(device, file, 1 << 20);
    if (!result)
        result = reserve_arena(&standin__host_arena, -1, STANDIN_PAGE);
    if (result)
        return result;
    void *alias = mmap(NULL, device->size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (alias == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    device->alias = (intptr_t)((uintptr_t)alias - device->base);
    struct sigaction action = {.sa_sigaction = touched,
                               .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigaction(SIGSEGV, &action, &before);
    return standin__ipc_init();
}

/* ---- the table ---- */

/* How many start at or before the address. */
static size_t place_of(uintptr_t address)
{
    size_t low = 0, high = table_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table[middle]->start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void standin__allocation_add(struct standin_allocation *allocation)
{
    if (table_count == table_space) {
        table_space = table_space ? 2 * table_space : 1024;
        table = realloc(table, table_space * sizeof(struct standin_allocation *));
        if (!table)
            abort();
    }
    size_t place = place_of(allocation->start);
    memmove(table + place + 1, table + place, (table_count - place) * sizeof *table);
    table[place] = allocation;
    table_count++;
    allocation->live = true;
    allocation->id = ++ids;
}

static uintptr_t end_of(const struct standin_allocation *allocation)
{
    return allocation->end + (allocation->kind == MEMORY_REGISTERED ? 0 : STANDIN_PAGE);
}

struct standin_allocation *standin__allocation_find(uintptr_t address)
{
    size_t place = place_of(address);
    return place && address < end_of(table[place - 1]) ? table[place - 1] : NULL;
}

void standin__allocations(void (*visit)(struct standin_allocation *, void *), void *data)
{
    for (size_t i = 0; i < table_count; i++)
        visit(table[i], data);
}

/* Forgets what was freed, so that its addresses can be used again. */
static void forget_dead(const struct standin_arena *arena)
{
    size_t kept = 0;
    for (size_t i = 0; i < table_count; i++)
        if (table[i]->live || table[i]->start - arena->base >= arena->size)
            table[kept++] = table[i];
        else
            free(table[i]);
    table_count = kept;
}

/* What was freed last among as many pages. */
static uintptr_t reserve_again(const struct standin_arena *arena, size_t bytes)
{
    size_t latest = table_count;
    for (size_t i = 0; i < table_count; i++)
        if (!table[i]->live && !table[i]->queued && table[i]->start - arena->base < arena->size &&
            table[i]->end - table[i]->start == bytes &&
            (latest == table_count || table[i]->ended > table[latest]->ended))
            latest = i;
    if (latest == table_count)
        return 0;
    uintptr_t found = table[latest]->start;
    free(table[latest]);
    memmove(table + latest, table + latest + 1, (--table_count - latest) * sizeof *table);
    return found;
}

uintptr_t standin__reserve(struct standin_arena *arena, size_t bytes)
{
    size_t need = bytes + STANDIN_PAGE;
    uintptr_t end = arena->base + arena->size, found = arena->cursor;
    uintptr_t again = standin__options.reuse ? reserve_again(arena, bytes) : 0;
    if (again)
        return again;
    if (need <= end - arena->cursor) {
        arena->cursor += need;
        return found;
    }
    forget_dead(arena);
    found = arena->base + (1 << 20);
    for (size_t i = 0; i < table_count; i++) {
        if (table[i]->start < found || table[i]->start >= end)
            continue;
        if (table[i]->start - found >= need)
            return found;
        found = end_of(table[i]);
    }
    return found < end && end - found >= need ? found : 0;
}

/* ---- memory that the stand-in gives ---- */

void *standin__memory_alias(const struct standin_allocation *allocation, uintptr_t address)
{
    bool device = allocation && allocation->kind <= MEMORY_IPC;
    return (void *)(address + (device ? (uintptr_t)standin__device_arena.alias : 0));
}

static bool fill(struct standin_allocation *allocation)
{
    size_t bytes = allocation->end - allocation->start;
    char *pages = standin__memory_alias(allocation, allocation->start);
    if (mprotect(pages, bytes, PROT_READ | PROT_WRITE))
        return false;
    memset(pages, STANDIN_SLACK, bytes);
    memset(standin__memory_alias(allocation, allocation->base), STANDIN_FRESH, allocation->size);
    return true;
}

static CUresult allocate(struct standin_arena *arena, enum standin_memory kind, CUcontext context,
                         size_t size, unsigned flags, uintptr_t *address)
{
    if (size > arena->size / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t rounded = round_up(size, STANDIN_ALIGNMENT), bytes = round_up(rounded, STANDIN_PAGE);
    struct standin_allocation *made = calloc(1, sizeof *made);
    uintptr_t start = made ? standin__reserve(arena, bytes) : 0;
    if (!start) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (struct standin_allocation){.start = start,
                                        .end = start + bytes,
                                        .base = start + bytes - rounded,
                                        .size = size,
                                        .kind = kind,
                                        .device = context->device,
                                        .context = context,
                                        .flags = flags,
                                        .slot = -1};
    if (!fill(made)) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    standin__allocation_add(made);
    *address = made->base;
    return CUDA_SUCCESS;
}

/* Of `bytes` that nobody may write, the first that somebody wrote; `bytes` if none. */
static size_t first_written(const unsigned char *slack, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && slack[i] == STANDIN_SLACK)
        i++;
    return i;
}

/* Writes before and after the memory, where there is no guard page; each is told once. */
bool standin__memory_intact(const struct standin_allocation *allocation, const char *who)
{
    uintptr_t behind = allocation->base + allocation->size;
    size_t before_bytes = allocation->base - allocation->start,
           after_bytes = allocation->end - behind;
    if (allocation->kind != MEMORY_DEVICE && allocation->kind != MEMORY_HOST)
        return true;
    unsigned char *first = standin__memory_alias(allocation, allocation->start),
                  *last = standin__memory_alias(allocation, behind);
    size_t i = first_written(first, before_bytes), k = first_written(last, after_bytes);
    if (i < before_bytes) {
        standin__misuse(CUDA_ERROR_ILLEGAL_ADDRESS,
                        "%zu bytes at %#lx: %s wrote before them, at byte -%zu", allocation->size,
                        (unsigned long)allocation->base, who, before_bytes - i);
        memset(first, STANDIN_SLACK, before_bytes);
    }
    if (k < after_bytes) {
        standin__misuse(CUDA_ERROR_ILLEGAL_ADDRESS,
                        "%zu bytes at %#lx: %s wrote behind them, at byte %zu", allocation->size,
                        (unsigned long)allocation->base, who, allocation->size + k);
        memset(last, STANDIN_SLACK, after_bytes);
    }
    return i == before_bytes && k == after_bytes;
}

void standin__allocation_end(struct standin_allocation *allocation)
{
    struct standin_arena *device = &standin__device_arena;
    size_t bytes = allocation->end - allocation->start;
    void *pages = standin__memory_alias(allocation, allocation->start);
    off_t offset = (off_t)(allocation->start - device->base);
    standin__memory_intact(allocation, "somebody");
    allocation->live = false;
    allocation->ended = ++ids;
    switch (allocation->kind) {
    case MEMORY_DEVICE:
        standin__ipc_withdraw(allocation);
        used[allocation->device] -= allocation->size;
        mprotect(pages, bytes, PROT_NONE);
        fallocate(device->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, (off_t)bytes);
        break;
    case MEMORY_IPC:
        standin__ipc_withdraw(allocation);
        mmap(pages, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, device->file, offset);
        break;
    case MEMORY_HOST:
        mmap(pages, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0);
        break;
    case MEMORY_REGISTERED: {
        size_t place = place_of(allocation->start) - 1;
        memmove(table + place, table + place + 1, (table_count - place - 1) * sizeof *table);
        table_count--;
        free(allocation);
        break;
    }
    }
}

void standin__memory_abandon(CUcontext context)
{
    for (size_t i = table_count; i-- > 0;)
        if (table[i]->live && table[i]->context == context) {
            context->abandoned++;
            if (table[i]->kind == MEMORY_HOST) {
                context->abandoned_pins++;
                if (table[i]->size > context->abandoned_pin)
                    context->abandoned_pin = table[i]->size;
            }
            standin__allocation_end(table[i]);
        }
}

/* ---- who may use it ---- */

bool standin__memory_reaches(CUcontext context, const struct standin_allocation *allocation)
{
    return allocation->kind >= MEMORY_HOST || context->peers & 1u << allocation->device ||
           (allocation->kind == MEMORY_IPC && allocation->context == context);
}

CUresult standin__memory_check(CUcontext context, uintptr_t address, size_t bytes, const char *what,
                               struct standin_allocation **allocation)
{
    struct standin_allocation *found = standin__allocation_find(address);
    unsigned long shown = address;
    if (!found) {
        if (address - standin__device_arena.base < standin__device_arena.size ||
            address - standin__host_arena.base < standin__host_arena.size)
            return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s %#lx is in no memory", what,
                                   shown);
        if (bytes && address < STANDIN_PAGE)
            return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s is %#lx", what, shown);
        *allocation = NULL;
        return CUDA_SUCCESS;
    }
    if (!found->live)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s %#lx was freed", what, shown);
    if (bytes && (address < found->base || address - found->base > found->size ||
                  bytes > found->size - (address - found->base)))
        return standin__misuse(CUDA_ERROR_INVALID_VALUE,
                               "%s: %zu bytes at %#lx are not in the %zu bytes at %#lx", what,
                               bytes, shown, found->size, (unsigned long)found->base);
    if (found->kind == MEMORY_IPC && !standin__ipc_lives(found))
        return standin__misuse(CUDA_ERROR_INVALID_VALUE,
                               "%s %#lx is of process %d, which has freed it", what, shown,
                               found->owner);
    if (!standin__memory_reaches(context, found))
        return standin__misuse(CUDA_ERROR_INVALID_VALUE,
                               "%s %#lx is of device %d, which device %d has no access to", what,
                               shown, found->device, context->device);
    *allocation = found;
    return CUDA_SUCCESS;
}

/* ---- device memory ---- */

STANDIN_EXPORT CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    CUcontext context;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && (!address || !bytes))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s",
                                 address ? "0 bytes" : "the address is NULL");
    if (!result && standin__options.implicit_sync)
        result = standin__context_wait(context);
    if (result)
        return standin__leave(result);
    size_t *in_use = &used[context->device];
    if (bytes > standin__options.memory - *in_use)
        return standin__leave(CUDA_ERROR_OUT_OF_MEMORY);
    uintptr_t made;
    result = allocate(&standin__device_arena, MEMORY_DEVICE, context, bytes, 0, &made);
    if (!result) {
        *in_use += bytes;
        *address = made;
    }
    return standin__leave(result);
}

static bool a_context_failed(void)
{
    bool failed = false;
    for (unsigned i = 0; i < standin__options.devices; i++)
        failed |= standin__contexts[i].retained && standin__context_failed(&standin__contexts[i]);
    return failed;
}

/* What begins at an address and may be freed by the function that is running. */
static CUresult find_to_free(uintptr_t address, enum standin_memory kind,
                             struct standin_allocation **allocation)
{
    static const char *const givers[] = {"cuMemAlloc", "cuIpcOpenMemHandle", "cuMemHostAlloc",
                                         "cuMemHostRegister"};
    struct standin_allocation *found = standin__allocation_find(address);
    unsigned long shown = address;
    if (!found || found->base != address)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%#lx is not the begin of any memory",
                               shown);
    if (!found->live || found->freeing)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%#lx was freed before", shown);
    if (found->kind != kind)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "%#lx is of %s()", shown,
                               givers[found->kind]);
    /* What is on the streams of a context that has failed is never done, and nobody can wait. */
    if (found->queued && !a_context_failed())
        standin__misuse(CUDA_ERROR_INVALID_VALUE, "%#lx: %u operations that use it are not done",
                        shown, found->queued);
    *allocation = found;
    return CUDA_SUCCESS;
}

/* As the driver does it: what was issued is waited for. Pinned memory is every context's. What a
 * context that has failed still does with another one's may be in the middle of it. */
static void end_when_done(struct standin_allocation *allocation)
{
    allocation->freeing = true;
    for (unsigned i = 0; i < standin__options.devices; i++) {
        CUcontext context = &standin__contexts[i];
        if (context->retained &&
            (allocation->kind >= MEMORY_HOST || context == allocation->context ||
             standin__context_failed(context)))
            standin__context_wait(context);
    }
    standin__allocation_end(allocation);
}

static CUresult release(const char *name, uintptr_t address, enum standin_memory kind)
{
    struct standin_allocation *allocation;
    CUresult result = standin__enter(name, NEEDS_CONTEXT | RELEASES, NULL);
    if (!result)
        result = find_to_free(address, kind, &allocation);
    if (!result)
        end_when_done(allocation);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
    if (!address) {
        CUresult result = standin__enter(__func__, NEEDS_CONTEXT | RELEASES, NULL);
        if (!result)
            result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
        return standin__leave(result);
    }
    return release(__func__, address, MEMORY_DEVICE);
}

STANDIN_EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address)
{
    struct standin_allocation *allocation;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT | RELEASES, NULL);
    if (!result)
        result = find_to_free(address, MEMORY_IPC, &allocation);
    if (!result && !--allocation->opens)
        end_when_done(allocation);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemGetInfo(size_t *unused, size_t *total)
{
    CUcontext context;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && (!unused || !total))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result) {
        *unused = standin__options.memory - used[context->device];
        *total = standin__options.memory;
    }
    return standin__leave(result);
}

/* ---- pinned memory ---- */

STANDIN_EXPORT CUresult CUDAAPI cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    CUcontext context;
    uintptr_t made;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && (!pointer || !bytes))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%s",
                                 pointer ? "0 bytes" : "the pointer is NULL");
    if (!result && flags & ~7u)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "flags %#x", flags);
    if (!result && standin__options.implicit_sync)
        result = standin__context_wait(context);
    if (!result)
        result = allocate(&standin__host_arena, MEMORY_HOST, context, bytes, flags, &made);
    if (!result)
        *pointer = (void *)made;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemFreeHost(void *pointer)
{
    return release(__func__, (uintptr_t)pointer, MEMORY_HOST);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *address, void *pointer,
                                                          unsigned flags)
{
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, NULL);
    if (!result && (!address || flags))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "flags %u", flags);
    const struct standin_allocation *found =
        result ? NULL : standin__allocation_find((uintptr_t)pointer);
    if (!result && (!found || !found->live || found->kind < MEMORY_HOST))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%p is no pinned memory", pointer);
    if (!result)
        *address = (CUdeviceptr)pointer;
    return standin__leave(result);
}

static bool overlaps(uintptr_t start, size_t bytes)
{
    size_t place = place_of(start + bytes - 1);
    for (; place && end_of(table[place - 1]) > start; place--)
        if (table[place - 1]->live)
            return true;
    return false;
}

STANDIN_EXPORT CUresult CUDAAPI cuMemHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    CUcontext context;
    uintptr_t start = (uintptr_t)pointer;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result && (!pointer || !bytes || bytes > UINTPTR_MAX - start || flags & ~3u))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes at %p, flags %#x", bytes,
                                 pointer, flags);
    if (!result && start - standin__device_arena.base < standin__device_arena.size)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%p is device memory", pointer);
    if (!result && overlaps(start, bytes))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct standin_allocation *made = result ? NULL : calloc(1, sizeof *made);
    if (!result && !made)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        return standin__leave(result);
    *made = (struct standin_allocation){.start = start,
                                        .end = start + bytes,
                                        .base = start,
                                        .size = bytes,
                                        .kind = MEMORY_REGISTERED,
                                        .device = context->device,
                                        .context = context,
                                        .flags = flags,
                                        .slot = -1};
    standin__allocation_add(made);
    return standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemHostUnregister(void *pointer)
{
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT | RELEASES, NULL);
    struct standin_allocation *found = standin__allocation_find((uintptr_t)pointer);
    if (!result &&
        (!found || found->kind != MEMORY_REGISTERED || found->base != (uintptr_t)pointer))
        result =
            standin__misuse(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "%p is not registered", pointer);
    if (!result)
        result = find_to_free((uintptr_t)pointer, MEMORY_REGISTERED, &found);
    if (!result)
        end_when_done(found);
    return standin__leave(result);
}
