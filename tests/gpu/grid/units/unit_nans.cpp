// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/nans.cu"

extern const grid_kernel grid_unit_nans[] = {WEFT_GPU_NAN_KERNELS(GRID_ROW){}};
