/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers for the measurements of sparse vectors, and quickselect, their peer. */
#ifndef WEFT_TOOLS_BENCH_DATA_H
#define WEFT_TOOLS_BENCH_DATA_H

#include <stddef.h>
#include <stdint.h>

/** A number above 0 and below 1; @p state is not 0 and changes (xorshift, Marsaglia 2003). */
double bench_uniform(uint64_t *state);

/** The value below which a share @p p of a normal distribution lies, to a few digits. */
double bench_normal_quantile(double p);

/** The k-th largest of n floats, which it rearranges. */
float bench_quickselect(float *x, size_t n, size_t k);

/**
 * n elements of a gradient: of a perceptron with at least n parameters, in training on optdigits.
 * WEFT_OK; an error if that cannot be read, or memory ends.
 */
int bench_gradients(float *values, size_t n);

/** 25000000 as "25e6". */
const char *bench_count_text(size_t n, char text[24]);

#endif
