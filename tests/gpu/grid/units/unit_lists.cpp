// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/lists.cu"

extern const grid_kernel grid_unit_lists[] = {WEFT_GPU_LIST_KERNELS(GRID_ROW){}};
