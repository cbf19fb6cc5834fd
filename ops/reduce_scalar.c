/* SPDX-License-Identifier: BSD-3-Clause */
/* The level that every processor has: the loops alone, with the flags of the rest of the library.
 */
#define WEFT__REDUCE_TABLE weft__reduce_scalar
#include "ops/reduce_template.h"
