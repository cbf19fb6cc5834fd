/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How far tests go that try one thing after the other for long: SWEPT(whole, part). A sanitizer
 * takes many times as long, and what it looks for is in what code is executed, not in how many
 * ranks or elements there are. A suite that is built again for devices has gone through the whole
 * on the host: what differs is where its memory is. */
#ifndef WEFT_SWEEP_H
#define WEFT_SWEEP_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define WEFT_SANITIZED 1
#else
#    define WEFT_SANITIZED 0
#endif

#if WEFT_SANITIZED || defined(WEFT_TEST_DEVICE)
#    define SWEPT(whole, part) (part)
#else
#    define SWEPT(whole, part) (whole)
#endif

/* How many times as far apart things are that are tried in turn: a suite runs once more with its
 * local ranks over shared memory (support/shared_ranks.c), and goes through less of it then. */
static inline unsigned swept_again(void)
{
    return getenv("WEFT_TEST_RANKS") ? 3 : 1;
}

#endif
