// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "gpu/kernels/sparse.cu"

extern const grid_kernel grid_unit_sparse[] = {WEFT_GPU_SPARSE_KERNELS(GRID_ROW){}};
