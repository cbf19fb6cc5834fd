/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's clock. */
#ifndef WEFT_RUNTIME_BASE_CLOCK_H
#define WEFT_RUNTIME_BASE_CLOCK_H

#include "runtime/base/companion.h"
#include <stdint.h>

/* Nanoseconds of the monotonic clock. Any thread may call. */
WEFT__PRIVATE uint64_t weft__now(void);

#endif
