// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/convert.cu"

extern const grid_kernel grid_unit_convert[] = {WEFT_GPU_CONVERT_KERNELS(GRID_ROW){}};
