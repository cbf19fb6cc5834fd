// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/orthonormal.cu"

extern const grid_kernel grid_unit_orthonormal[] = {WEFT_GPU_ORTHONORMAL_KERNELS(GRID_ROW){}};
