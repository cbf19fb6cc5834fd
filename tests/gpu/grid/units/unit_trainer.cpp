// SPDX-License-Identifier: BSD-3-Clause
#include "tests/gpu/grid/units/unit.h"

#include "tools/train/cuda/norm.cu"
#include "tools/train/cuda/pointwise.cu"
#include "tools/train/cuda/scores.cu"
#include "tools/train/cuda/vectors.cu"
#include "tools/train/cuda/windows.cu"

// They hold no pointers.
inline void grid_translate(train_image &, grid_translator)
{
}

inline void grid_translate(train_windows &, grid_translator)
{
}

extern const grid_kernel grid_unit_trainer[] = {TRAIN_CUDA_KERNELS(GRID_ROW){}};
