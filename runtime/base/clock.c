/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's clock. */
#include "runtime/base/clock.h"
#include <time.h>

uint64_t weft__now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
