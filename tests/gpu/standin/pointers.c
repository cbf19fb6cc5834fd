/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the driver says of pointers. Programs ask this of any pointer: one that is not the
 * driver's is an answer, and no misuse. */
#include "inside.h"

#include <string.h>

enum { ATTRIBUTES_MAX = CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE };

static bool is_host(const struct standin_allocation *allocation)
{
    return allocation->kind >= MEMORY_HOST;
}

/* What is live, and holds the address itself. */
static const struct standin_allocation *find(CUdeviceptr address)
{
    const struct standin_allocation *found = standin__allocation_find(address);
    bool inside =
        found && found->live && address >= found->base && address - found->base < found->size;
    return inside ? found : NULL;
}

static size_t size_of(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return 16;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 1;
    default:
        return 4;
    }
}

static uint64_t value_of(CUpointer_attribute attribute, const struct standin_allocation *allocation,
                         CUdeviceptr address)
{
    CUcontext current;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return standin__options.pools && allocation->kind == MEMORY_DEVICE
                   ? 0
                   : (uintptr_t)allocation->context;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return standin__context_current(&current) || !standin__memory_reaches(current, allocation)
                   ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE
                   : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return is_host(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return address;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return is_host(allocation) ? address : 0;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return allocation->id;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return (unsigned)allocation->device;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return allocation->base;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return allocation->size;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return 1;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return allocation->kind == MEMORY_DEVICE && !standin__options.pools;
    default:
        return 0;
    }
}

static void put(CUpointer_attribute attribute, const struct standin_allocation *allocation,
                CUdeviceptr address, void *data)
{
    uint64_t value[2] = {allocation ? value_of(attribute, allocation, address) : 0, 0};
    if (!allocation && attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        value[0] = (uint64_t)-2; /* CU_DEVICE_INVALID */
    memcpy(data, value, size_of(attribute));
}

static CUresult check(CUpointer_attribute attribute, const void *data)
{
    if ((int)attribute <= 0 || (int)attribute > ATTRIBUTES_MAX || !data)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "attribute %d", (int)attribute);
    return CUDA_SUCCESS;
}

STANDIN_EXPORT CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                                      CUdeviceptr address)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT, NULL);
    if (!result)
        result = check(attribute, data);
    const struct standin_allocation *found = result ? NULL : find(address);
    if (!result && (!found || (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && !is_host(found))))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        put(attribute, found, address, data);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuPointerGetAttributes(unsigned count,
                                                       CUpointer_attribute *attributes, void **data,
                                                       CUdeviceptr address)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT, NULL);
    if (!result && (!count || !attributes || !data))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "%u attributes", count);
    for (unsigned i = 0; !result && i < count; i++)
        result = check(attributes[i], data[i]);
    for (unsigned i = 0; !result && i < count; i++)
        if (attributes[i] == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS)
            result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "attribute %d is asked for alone",
                                     (int)attributes[i]);
    for (unsigned i = 0; !result && i < count; i++)
        put(attributes[i], find(address), address, data[i]);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *base, size_t *size,
                                                     CUdeviceptr address)
{
    CUresult result = standin__enter(__func__, NEEDS_CONTEXT, NULL);
    const struct standin_allocation *found = result ? NULL : find(address);
    if (!result && !found)
        result = CUDA_ERROR_NOT_FOUND;
    if (!result && base)
        *base = found->base;
    if (!result && size)
        *size = found->size;
    return standin__leave(result);
}
