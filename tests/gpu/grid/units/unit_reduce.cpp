// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/reduce.cu"

#define BOTH(operation) GRID_ROW(weft_reduce_##operation) GRID_ROW(weft_reduce_n_##operation)

extern const grid_kernel grid_unit_reduce[] = {WEFT_GPU_OPERATIONS(BOTH){}};
