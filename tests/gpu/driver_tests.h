/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels through the functions of a driver: the stand-in's, or a device's. */
#ifndef WEFT_TESTS_GPU_DRIVER_TESTS_H
#define WEFT_TESTS_GPU_DRIVER_TESTS_H

#include <cuda.h>

#include "tests/gpu/kernel_tests.h"

/* A call that must succeed: a case that has failed if not. */
bool must(CUresult result, const char *what);
#define MUST(call) must(call, #call)

/* Makes the context of a device with all kernels in it, and makes it current. */
bool device_begin(int device);
/* Gives it back, whatever state it is in. */
void device_end(int device);

/* NULL if the device's modules have none of that name. */
CUfunction device_kernel(const std::string &name);

template <class... types>
CUresult device_launch(const std::string &name, unsigned blocks, unsigned threads, CUstream stream,
                       types... values)
{
    void *arguments[] = {static_cast<void *>(&values)...};

    return cuLaunchKernel(device_kernel(name), blocks, 1, 1, threads, 1, 1, 0, stream, arguments,
                          nullptr);
}

/* What the stand-in has counted since the last call; 0 from another driver. `text` (if not NULL)
 * gets what it has said. */
bool is_standin();
unsigned misuses(std::string *text);

/* Many streams at a time; and what must not be done. */
void test_streams();
void test_misuse();

#endif
