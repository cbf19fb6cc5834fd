// SPDX-License-Identifier: BSD-3-Clause
// Kernels are called: their own sources, over the grid of fibers.
#include "tests/gpu/kernel_tests.h"

const bool kernels_are_apart = false;

bool run_begin(uint64_t)
{
    return true;
}

void run_end()
{
}

void *run_pointer(void *memory)
{
    return memory;
}

bool launch_shape(const char *name, const unsigned grid[3], const unsigned block[3],
                  void **arguments)
{
    const grid_kernel *kernel = grid_find(name);

    grid_seed(draw());
    if (kernel && kernel->run(grid, block, 0, arguments, nullptr) == 0)
        return true;
    check(false, "%s: %s", name, kernel ? grid_error() : "no such kernel");
    return false;
}
