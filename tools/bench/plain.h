/* SPDX-License-Identifier: BSD-3-Clause */
/* The least that a pass over memory takes, as wide as the processor allows: limits of what is
 * measured. */
#ifndef WEFT_TOOLS_BENCH_PLAIN_H
#define WEFT_TOOLS_BENCH_PLAIN_H

#include <stddef.h>
#include <stdint.h>

/** Reads n floats. What it returns depends on all of them, so that reading is not left out. */
uint64_t bench_plain_read(const float *values, size_t n);

/** sums[i] += values[i]. No overlap. */
void bench_plain_add(float *sums, const float *values, size_t n);

/** values[i] += by: each is read and written. */
void bench_plain_shift(float *values, float by, size_t n);

/** values[i] = to. */
void bench_plain_fill(float *values, float to, size_t n);

#endif
