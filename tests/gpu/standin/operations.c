/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What streams do: copies, fills, values in memory that are written and waited for, host
 * functions and kernels. These run without the lock. */
#include "inside.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t host_functions = PTHREAD_MUTEX_INITIALIZER;

enum { USES_MAX = 256 };

/* Of the kernel that this thread runs. */
static _Thread_local struct launch {
    CUcontext context;
    CUresult error;
    bool told; /* is counted as a misuse already */
    struct standin_allocation *uses[USES_MAX];
    unsigned use_count;
} launch;

static void copy(const struct standin_operation *operation)
{
    for (size_t i = 0; i < operation->height; i++)
        memcpy(operation->to + i * operation->to_pitch, operation->from + i * operation->from_pitch,
               operation->width);
}

static void set(const struct standin_operation *operation)
{
    if (operation->bytes == 1)
        memset(operation->to, (int)(operation->value & 0xff), operation->width);
    else
        for (size_t i = 0; i < operation->width; i++)
            memcpy(operation->to + i * 4, &operation->value, 4);
}

static bool holds(const struct standin_operation *operation)
{
    uint32_t seen = __atomic_load_n((const uint32_t *)operation->to, __ATOMIC_ACQUIRE);
    switch (operation->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return (int32_t)(seen - operation->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return seen == operation->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return seen & operation->value;
    default:
        return ~(seen | operation->value);
    }
}

/* What is waited for is written by whoever likes, so that it is looked at from time to time. */
static void wait_for_value(CUstream stream, const struct standin_operation *operation)
{
    struct timespec time = {0, 5000};
    bool told = false;
    while (!holds(operation) &&
           !atomic_load_explicit(&stream->handle.context->error, memory_order_relaxed)) {
        if (!told) {
            pthread_mutex_lock(&standin__lock);
            snprintf(stream->waits, sizeof stream->waits, "%s %#x at %p",
                     (operation->flags & 3) == CU_STREAM_WAIT_VALUE_GEQ ? "a value of at least"
                                                                        : "the value",
                     operation->value, (void *)operation->to);
            pthread_mutex_unlock(&standin__lock);
            told = true;
        }
        nanosleep(&time, NULL);
        if (time.tv_nsec < 200000)
            time.tv_nsec *= 2;
    }
}

/* The driver may run them one at a time, also of several streams: so does this. */
static void call_host(const struct standin_operation *operation)
{
    pthread_mutex_lock(&host_functions);
    standin__in_host_function = true;
    operation->function(operation->data);
    standin__in_host_function = false;
    pthread_mutex_unlock(&host_functions);
}

/* One past the end of registered memory, which no guard page follows. */
static struct standin_allocation *registered_before(uintptr_t address)
{
    struct standin_allocation *found = standin__allocation_find(address - 1);
    return found && found->kind == MEMORY_REGISTERED && found->end == address ? found : NULL;
}

static CUresult find_pointer(uintptr_t address, struct standin_allocation **found)
{
    CUresult result =
        standin__memory_check(launch.context, address, 0, "a kernel's pointer", found);
    if (!result && !*found)
        *found = registered_before(address);
    if (!result && !*found)
        return standin__misuse(CUDA_ERROR_ILLEGAL_ADDRESS,
                               "a kernel's pointer %#lx is of memory that is not pinned",
                               (unsigned long)address);
    if (!result && address - (*found)->base > (*found)->size)
        return standin__misuse(
            CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel's pointer %#lx is beside the %zu bytes at %#lx",
            (unsigned long)address, (*found)->size, (unsigned long)(*found)->base);
    return result;
}

/* What is to be looked at when the kernel has run. */
static void note_use(struct standin_allocation *allocation)
{
    if (allocation->kind != MEMORY_DEVICE && allocation->kind != MEMORY_HOST)
        return;
    for (unsigned i = 0; i < launch.use_count; i++)
        if (launch.uses[i] == allocation)
            return;
    if (launch.use_count < USES_MAX)
        launch.uses[launch.use_count++] = allocation;
}

/* A pointer of a kernel's argument: where the memory is, for the kernel alone. */
void *standin__translate(void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    struct standin_allocation *found = NULL;
    if (!pointer)
        return NULL;
    pthread_mutex_lock(&standin__lock);
    CUresult result = find_pointer(address, &found);
    if (!result)
        note_use(found);
    pthread_mutex_unlock(&standin__lock);
    if (!result)
        return standin__memory_alias(found, address);
    launch.error = CUDA_ERROR_ILLEGAL_ADDRESS;
    launch.told = true;
    return NULL;
}

bool standin__kernel_ends(void *frame, const char *what)
{
    if (!grid_end_by_signal(frame, what))
        return false;
    launch.error = CUDA_ERROR_ILLEGAL_ADDRESS;
    return true;
}

static void check_kernel(const struct grid_kernel *kernel, bool failed)
{
    if (failed && !launch.error)
        launch.error = CUDA_ERROR_LAUNCH_FAILED;
    if (failed && !launch.told)
        standin__misuse(launch.error, "kernel %s failed: %s", kernel->name, grid_error());
    for (unsigned i = 0; i < launch.use_count; i++)
        if (launch.uses[i]->live && !standin__memory_intact(launch.uses[i], kernel->name))
            launch.error = CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult standin__run_kernel(CUstream stream, struct standin_operation *operation)
{
    const struct grid_kernel *kernel = operation->kernel->kernel;
    launch = (struct launch){.context = stream->handle.context};
    grid_seed(operation->seed);
    bool failed = kernel->run(operation->grid, operation->block, operation->shared,
                              operation->arguments, standin__translate);
    pthread_mutex_lock(&standin__lock);
    check_kernel(kernel, failed);
    pthread_mutex_unlock(&standin__lock);
    return launch.error;
}

CUresult standin__run(CUstream stream, struct standin_operation *operation)
{
    switch (operation->work) {
    case WORK_COPY:
        copy(operation);
        break;
    case WORK_SET:
        set(operation);
        break;
    case WORK_WRITE:
        __atomic_store_n((uint32_t *)operation->to, operation->value, __ATOMIC_RELEASE);
        break;
    case WORK_WAIT_VALUE:
        wait_for_value(stream, operation);
        break;
    case WORK_HOST:
        call_host(operation);
        break;
    case WORK_KERNEL:
        return standin__run_kernel(stream, operation);
    case WORK_FOREIGN:
        return (CUresult)operation->foreign(operation->data, stream);
    case WORK_WAIT:
    case WORK_RECORD:
        break;
    }
    return CUDA_SUCCESS;
}

/* ---- values and host functions ---- */

static CUresult issue_value(const char *name, enum standin_work work, CUstream stream,
                            CUdeviceptr address, uint32_t value, unsigned flags)
{
    CUcontext context;
    CUstream found = NULL;
    struct standin_allocation *allocation;
    CUresult result = standin__enter(name, NEEDS_CONTEXT, &context);
    if (!result)
        result = standin__stream_find(context, stream, &found);
    if (!result && !standin__options.stream_mem_ops)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (!result && (address % 4 || flags & ~(work == WORK_WRITE ? 1u : 3u)))
        result =
            standin__misuse(CUDA_ERROR_INVALID_VALUE, "address %#llx, flags %#x", address, flags);
    if (!result)
        result =
            standin__memory_check(found->handle.context, address, 4, "the address", &allocation);
    if (!result && !allocation)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%#llx is not pinned", address);
    if (result)
        return standin__leave(result);
    struct standin_operation *operation = standin__operation(work);
    operation->to = standin__memory_alias(allocation, address);
    operation->value = value;
    operation->flags = flags;
    operation->uses[0] = allocation;
    standin__issue(found, operation);
    return standin__leave(CUDA_SUCCESS);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address,
                                                     cuuint32_t value, unsigned flags)
{
    return issue_value(__func__, WORK_WRITE, stream, address, value, flags);
}

STANDIN_EXPORT CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address,
                                                    cuuint32_t value, unsigned flags)
{
    return issue_value(__func__, WORK_WAIT_VALUE, stream, address, value, flags);
}

STANDIN_EXPORT CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    CUcontext context;
    CUstream found = NULL;
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, &context);
    if (!result)
        result = standin__stream_find(context, stream, &found);
    if (!result && !function)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (result)
        return standin__leave(result);
    struct standin_operation *operation = standin__operation(WORK_HOST);
    operation->function = function;
    operation->data = data;
    standin__issue(found, operation);
    return standin__leave(CUDA_SUCCESS);
}
