/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices that stay open, which else each context of a suite would open anew. */
#ifndef WEFT_TESTS_GPU_OPEN_DEVICES_H
#define WEFT_TESTS_GPU_OPEN_DEVICES_H

#include "runtime/base/alloc.h"
#include "runtime/device/library.h"
#include "tests/gpu/support/device_memory.h"
#include "tests/support/ranks.h"

/* For pthread_once(); also where a test lets memory run out. */
static inline void open_devices(void)
{
    long left = atomic_exchange(&weft__alloc_countdown, -1);
    for (int i = 0; i < device_count(); i++) {
        char name[16];
        struct weft__device *device;
        snprintf(name, sizeof name, "cuda:%d", i);
        OK(weft__device_open(name, 0, &device));
    }
    atomic_store(&weft__alloc_countdown, left);
}

#endif
