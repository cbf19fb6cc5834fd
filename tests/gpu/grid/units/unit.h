/* SPDX-License-Identifier: BSD-3-Clause */
/* A source of kernels as a part of the table: included before the source. */
#ifndef WEFT_TESTS_GPU_GRID_UNIT_H
#define WEFT_TESTS_GPU_GRID_UNIT_H

/* The grid's words come first. */
#include "tests/gpu/grid/grid.h"

#include "gpu/kernels/list.h"
#include "tests/gpu/grid/grid_launch.h"

#endif
