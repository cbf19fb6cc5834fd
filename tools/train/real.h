/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What models compute with: single precision. A test builds them in double precision, where
 * finite differences tell more.
 */
#ifndef WEFT_TOOLS_TRAIN_REAL_H
#define WEFT_TOOLS_TRAIN_REAL_H

#include <math.h>

#ifdef WEFT_TRAIN_DOUBLE
typedef double train_real_t;
#    define train_exp(x)  exp(x)
#    define train_root(x) sqrt(x)
#else
typedef float train_real_t;
#    define train_exp(x)  expf(x)
#    define train_root(x) sqrtf(x)
#endif

#endif
