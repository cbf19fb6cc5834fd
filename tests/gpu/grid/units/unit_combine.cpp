// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/combine.cu"

extern const grid_kernel grid_unit_combine[] = {WEFT_GPU_COMBINE_KERNELS(GRID_ROW){}};
