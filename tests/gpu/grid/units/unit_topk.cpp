// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/topk.cu"

extern const grid_kernel grid_unit_topk[] = {WEFT_GPU_TOPK_KERNELS(GRID_ROW){}};
