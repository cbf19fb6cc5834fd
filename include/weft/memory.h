/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory that changes hands: what functions of weft give to their caller is given back here, and
 * builders and objects on top of weft take theirs from the same place.
 */
#ifndef WEFT_MEMORY_H
#define WEFT_MEMORY_H

#include <weft/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Memory from weft's allocator, for builders and objects on top of it: count * size bytes, zeroed,
 * aligned to 64 bytes. NULL on failure (and on overflow). Freed with weft_memory_free().
 */
WEFT_EXPORT void *weft_memory_alloc(size_t count, size_t size);
/** Frees memory and texts that functions of weft have handed to the caller. NULL is accepted. */
WEFT_EXPORT void weft_memory_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
