/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the stand-in of cuBLAS share. */
#ifndef WEFT_CUBLAS_INSIDE_H
#define WEFT_CUBLAS_INSIDE_H

#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../standin/standin.h"
#include "cublas_standin.h"

#define CUBLAS_EXPORT __attribute__((visibility("default")))

enum cublas_status {
    CUBLAS_OK = 0,
    CUBLAS_NOT_INITIALIZED = 1,
    CUBLAS_ALLOC_FAILED = 3,
    CUBLAS_INVALID_VALUE = 7,
    CUBLAS_EXECUTION_FAILED = 13,
    CUBLAS_INTERNAL_ERROR = 14,
};

/* Never freed, so that one that was destroyed is known. */
struct cublas_handle {
    struct cublas_handle *next;
    bool live;
    _Atomic int busy; /* calls that are in it */
    CUcontext context;
    CUdevice device;
    CUstream stream; /* NULL: the legacy one */
    CUdeviceptr workspace;
};

/* Enters a call: counts it, looks for what is wrong; `pointer` NULL: one of no handle. */
int cublas__enter(const char *name, void *pointer, bool releases, struct cublas_handle **found);
int cublas__leave(struct cublas_handle *handle, int result);
int cublas__misuse(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cublas__count_product(void);

#endif
