/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers that a seed says, for suites. */
#ifndef WEFT_TESTS_SUPPORT_DRAW_H
#define WEFT_TESTS_SUPPORT_DRAW_H

#include <stdint.h>

struct draw {
    uint64_t state;
};

/* SplitMix64. */
static inline uint64_t draw_word(struct draw *draw)
{
    uint64_t z = draw->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline unsigned draw_below(struct draw *draw, unsigned most)
{
    return (unsigned)(draw_word(draw) >> 32) % most;
}

static inline double draw_real(struct draw *draw)
{
    return (double)(draw_word(draw) >> 11) * 0x1p-53;
}

#endif
