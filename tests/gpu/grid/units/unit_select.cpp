// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/select.cu"

extern const grid_kernel grid_unit_select[] = {WEFT_GPU_SELECT_KERNELS(GRID_ROW){}};
