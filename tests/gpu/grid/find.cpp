// SPDX-License-Identifier: BSD-3-Clause
// All kernels by name: one row a unit, each of which is a source of gpu/kernels/, or those of the
// trainer.
#include <string.h>

#include "tests/gpu/grid/grid_run.h"

#define UNITS(X)                                                                                   \
    X(reduce)                                                                                      \
    X(copy)                                                                                        \
    X(nans)                                                                                        \
    X(combine)                                                                                     \
    X(convert)                                                                                     \
    X(lists)                                                                                       \
    X(orthonormal)                                                                                 \
    X(project)                                                                                     \
    X(quantise)                                                                                    \
    X(select)                                                                                      \
    X(sparse)                                                                                      \
    X(topk)                                                                                        \
    X(trainer)

#define DECLARE(name) extern const grid_kernel grid_unit_##name[];
UNITS(DECLARE)

const grid_kernel *grid_find(const char *name)
{
#define TABLE(unit) grid_unit_##unit,
    static const grid_kernel *const units[] = {UNITS(TABLE)};

    for (const grid_kernel *kernel : units)
        for (; kernel->name; kernel++)
            if (strcmp(kernel->name, name) == 0)
                return kernel;
    return nullptr;
}
