/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver of CUDA, loaded when a device is asked for: nothing of weft is linked with it. Calls
 * go through one table, by the names of cuda.h, which stand for the versions that it declares
 * (cuMemAlloc is cuMemAlloc_v2).
 */
#ifndef WEFT_GPU_DRIVER_H
#define WEFT_GPU_DRIVER_H

#include <cuda.h>

#include <weft/status.h>

/* What is called; without one of them a driver is too old. */
#define WEFT__CUDA_FUNCTIONS(X)                                                                    \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)                                                                            \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceGetPCIBusId)                                                                         \
    X(cuDeviceTotalMem)                                                                            \
    X(cuDeviceCanAccessPeer)                                                                       \
    X(cuDeviceGetP2PAttribute)                                                                     \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxPushCurrent)                                                                            \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxEnablePeerAccess)                                                                       \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuFuncSetAttribute)                                                                          \
    X(cuLaunchKernel)                                                                              \
    X(cuPointerGetAttribute)                                                                       \
    X(cuPointerGetAttributes)                                                                      \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemcpyAsync)                                                                               \
    X(cuMemcpyPeerAsync)                                                                           \
    X(cuIpcGetMemHandle)                                                                           \
    X(cuIpcOpenMemHandle)                                                                          \
    X(cuIpcCloseMemHandle)                                                                         \
    X(cuMemsetD8Async)                                                                             \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy)                                                                              \
    X(cuEventRecord)                                                                               \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy)                                                                             \
    X(cuStreamQuery)                                                                               \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamGetCtx)                                                                              \
    X(cuStreamWaitEvent)                                                                           \
    X(cuStreamWaitValue32)                                                                         \
    X(cuStreamWriteValue32)

/* NULL in drivers that have none of them. */
#if CUDA_VERSION >= 12040
#    define WEFT__CUDA_LATER_FUNCTIONS(X) X(cuFuncLoad)
#else
#    define WEFT__CUDA_LATER_FUNCTIONS(X)
#endif

struct weft__cuda_driver {
#define WEFT__CUDA_MEMBER(name) __typeof__(name) *name;
    WEFT__CUDA_FUNCTIONS(WEFT__CUDA_MEMBER)
    WEFT__CUDA_LATER_FUNCTIONS(WEFT__CUDA_MEMBER)
#undef WEFT__CUDA_MEMBER
};

/* The driver, initialised; stays for ever. WEFT_ERR_UNSUPPORTED with a text: there is none, or no
 * device. Any thread. */
int weft__cuda_driver(const struct weft__cuda_driver **driver);

/* The error of a call: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory) of 123 bytes on
 * cuda:0"; what is behind the names is the caller's. Sets the text of the thread, returns the
 * status that the code stands for. */
int weft__cuda_error(const struct weft__cuda_driver *driver, CUresult code, const char *call,
                     const char *format, ...) WEFT_PRINTF(4, 5);

#endif
