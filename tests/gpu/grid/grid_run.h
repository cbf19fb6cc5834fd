/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels by name, run over the grid of fibers: what tests and the stand-in of the driver call. */
#ifndef WEFT_TESTS_GPU_GRID_RUN_H
#define WEFT_TESTS_GPU_GRID_RUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct grid_kernel {
    const char *name;

    /* `arguments` as cuLaunchKernel takes them: a pointer to each. Every pointer among them, also
     * one within a struct, goes through `translate` first (NULL: none is translated); where that
     * makes NULL of what was not, the kernel is not run. Returns 0, or not 0 with grid_error(). Any
     * number of OS threads may run grids at once. */
    int (*run)(const unsigned grid[3], const unsigned block[3], size_t shared_bytes,
               void **arguments, void *(*translate)(void *));

    /* The size of each argument. A launch copies them, as the driver does; where `sizes` is NULL
     * it waits for the kernel instead, for the arguments are its caller's. */
    unsigned count;
    const size_t *sizes;
};

/* NULL if there is no such kernel. */
const struct grid_kernel *grid_find(const char *name);

/* What was wrong with the last grid of the calling thread; "" if nothing. */
const char *grid_error(void);

/* The order of blocks and threads in grids that this thread runs from now on. */
void grid_seed(uint64_t seed);

/* For a handler of SIGSEGV, with what it was given: if the calling thread runs a kernel, the
 * handler may return, and the kernel ends there with this text as its error. Returns 0 if no kernel
 * runs, or where this is not known for the processor. */
int grid_end_by_signal(void *context, const char *what);

#ifdef __cplusplus
}
#endif

#endif
