// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/project.cu"

extern const grid_kernel grid_unit_project[] = {WEFT_GPU_PROJECT_KERNELS(GRID_ROW){}};
