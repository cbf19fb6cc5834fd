// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/copy.cu"

extern const grid_kernel grid_unit_copy[] = {WEFT_GPU_COPY_KERNELS(GRID_ROW){}};
