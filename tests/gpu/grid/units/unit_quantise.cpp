// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/quantise.cu"

extern const grid_kernel grid_unit_quantise[] = {WEFT_GPU_QUANTISE_KERNELS(GRID_ROW){}};
