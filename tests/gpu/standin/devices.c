/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices: how many, and what they say of themselves. */
#include "inside.h"

#include <stdio.h>
#include <string.h>

STANDIN_EXPORT CUresult CUDAAPI cuInit(unsigned flags)
{
    CUresult result = standin__enter(__func__, NEEDS_NOTHING, NULL);
    if (result)
        return standin__leave(result);
    if (flags)
        return standin__leave(standin__misuse(CUDA_ERROR_INVALID_VALUE, "flags %u", flags));
    if (standin__initialised)
        return standin__leave(CUDA_SUCCESS);
    standin__read_options();
    if (!standin__options.devices)
        return standin__leave(CUDA_ERROR_NO_DEVICE);
    result = standin__memory_init();
    standin__initialised = !result;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    CUresult result = standin__enter(__func__, NEEDS_NOTHING, NULL);
    if (!result && !version)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        *version = CUDA_VERSION;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT, NULL);
    if (!result && !count)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result)
        *count = (int)standin__options.devices;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = standin__enter(__func__, NEEDS_INIT, NULL);
    if (!result && !device)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    if (!result && (ordinal < 0 || ordinal >= (int)standin__options.devices))
        result = standin__misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", ordinal);
    if (!result)
        *device = ordinal;
    return standin__leave(result);
}

/* Enters a call about a device that fills `out`. */
static CUresult enter_device(const char *name, CUdevice device, const void *out)
{
    CUresult result = standin__enter(name, NEEDS_INIT, NULL);
    if (result)
        return result;
    if (device < 0 || device >= (int)standin__options.devices)
        return standin__misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", device);
    if (!out)
        return standin__misuse(CUDA_ERROR_INVALID_VALUE, "NULL");
    return CUDA_SUCCESS;
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = enter_device(__func__, device, name);
    if (!result && length <= 0)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "length %d", length);
    if (!result)
        snprintf(name, (size_t)length, "stand-in %d", device);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    CUresult result = enter_device(__func__, device, bytes);
    if (!result)
        *bytes = standin__options.memory;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult result = enter_device(__func__, device, uuid);
    if (!result) {
        memcpy(uuid->bytes, "weft stand-in ", 14);
        uuid->bytes[14] = 0;
        uuid->bytes[15] = (char)standin__options.visible[device];
    }
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    CUresult result = enter_device(__func__, device, id);
    if (!result && length < 13)
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "length %d, an id has 13", length);
    if (!result)
        snprintf(id, (size_t)length, "0000:%02X:00.0",
                 (unsigned)standin__options.visible[device] + 1);
    return standin__leave(result);
}

static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 101376},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 102400},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1536},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 16},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 128},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 6},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
};

static int attribute_of(CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return standin__options.visible[device] + 1;
    case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID:
        return device;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
        return standin__options.stream_mem_ops;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute)
            return attributes[i].value;
    return 0;
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                                     CUdevice device)
{
    CUresult result = enter_device(__func__, device, value);
    if (!result && ((int)attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "attribute %d", (int)attribute);
    if (!result)
        *value = attribute_of(attribute, device);
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult result = enter_device(__func__, device, can);
    if (!result && (peer < 0 || peer >= (int)standin__options.devices))
        result = standin__misuse(CUDA_ERROR_INVALID_DEVICE, "there is no device %d", peer);
    if (!result)
        *can = standin__options.peers && device != peer;
    return standin__leave(result);
}

STANDIN_EXPORT CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute,
                                                        CUdevice device, CUdevice peer)
{
    CUresult result = enter_device(__func__, device, value);
    if (!result && (peer < 0 || peer >= (int)standin__options.devices || peer == device))
        result =
            standin__misuse(CUDA_ERROR_INVALID_DEVICE, "device %d and its peer %d", device, peer);
    if (!result && ((int)attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
                    attribute > CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED))
        result = standin__misuse(CUDA_ERROR_INVALID_VALUE, "attribute %d", (int)attribute);
    if (!result)
        *value = standin__options.peers && attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    return standin__leave(result);
}
