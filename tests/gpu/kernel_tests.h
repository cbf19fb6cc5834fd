/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of kernels share: drawn numbers, memory that begins where it likes, launches of drawn
 * shapes, and counts of cases. */
#ifndef WEFT_TESTS_GPU_KERNEL_TESTS_H
#define WEFT_TESTS_GPU_KERNEL_TESTS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include "gpu/kernels/arguments.h"
#include "gpu/kernels/list.h"
#include "tests/gpu/grid/grid_pointers.h"

extern "C" {
#include "ops/half.h"
#include "ops/kernels.h"
#include "ops/sparse.h"
#include "ops/topk.h"
}

/* Bytes of an element: weft_dtype_size() is the runtime's. */
inline size_t dtype_bytes(weft_dtype_t dtype)
{
#define BYTES(name, text, bytes) bytes,
    static const size_t sizes[] = {WEFT_DTYPE_MAP(BYTES)};
#undef BYTES
    return sizes[dtype];
}

extern int tests_passed;
extern int tests_failed;

/* One case; its name is made only when it has failed. */
void check(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What is drawn from now on. */
void draw_from(uint64_t seed);

/* Uniform, of 64 bits; and below a bound. */
uint64_t draw();
uint64_t draw_below(uint64_t bound);

/* The bits of a number of a datatype: any, or one at which something changes. */
uint64_t draw_number(weft_dtype_t dtype);

/* Bytes, the first of which lies `offset` behind a multiple of 16; both ends are watched. */
class area
{
  public:
    area(size_t bytes, size_t offset = 0);
    ~area();
    area(const area &) = delete;
    area &operator=(const area &) = delete;

    char *at(size_t byte = 0) const
    {
        return memory + offset + byte;
    }
    /* The same bytes at another place. */
    void copy(const area &from);
    /* Whether nothing before the first byte has changed. (AddressSanitizer watches the end, or the
     * stand-in of the driver.) */
    bool intact() const;

    const size_t bytes;
    const size_t offset; /* behind the begin of what was allocated */
    char *const memory;
};

/* One of a type. */
template <class type> class variable : public area
{
  public:
    explicit variable(const type &value) : area(sizeof(type))
    {
        **this = value;
    }

    type &operator*() const
    {
        return *reinterpret_cast<type *>(at());
    }
};

void fill_numbers(const area &to, weft_dtype_t dtype);

/* The area in which an address is, or at whose end; NULL if in none. */
const area *area_of(const void *address);

/* ---- how kernels are run: by the grid (run_grid.cpp), or by a driver (run_driver.cpp) ---- */

/* Whether only areas are memory for kernels. */
extern const bool kernels_are_apart;

/* Before all tests, and after them. */
bool run_begin(uint64_t seed);
void run_end();

/* What a kernel has in the place of this memory, in the launch that comes next. NULL: nothing. */
void *run_pointer(void *memory);

/* Runs a kernel; a failure is a case that has failed. */
bool launch_shape(const char *name, const unsigned grid[3], const unsigned block[3],
                  void **arguments);

template <class... types>
bool launch_on(const std::string &name, const unsigned grid[3], const unsigned block[3],
               types... values)
{
    bool refused = false;
    void *arguments[] = {static_cast<void *>(&values)...};

    (grid_translate(values, grid_translator(run_pointer, &refused)), ...);
    if (refused)
        check(false, "%s: memory that is in no area", name.c_str());
    return launch_shape(name.c_str(), grid, block, arguments);
}

/* A grid of one dimension with blocks of whole warps, both drawn. */
template <class... types> bool launch(const std::string &name, types... values)
{
    const unsigned grid[3] = {1 + (unsigned)draw_below(3), 1, 1};
    const unsigned block[3] = {32 * (1 + (unsigned)draw_below(4)), 1, 1};

    return launch_on(name, grid, block, values...);
}

/* Bits that are equal, or (where `nans`) a NaN each. Returns the first place that differs, `count`
 * if none does. */
size_t first_difference(const char *x, const char *y, size_t count, weft_dtype_t dtype, bool nans);

void test_reduce();
void test_copy();
void test_nans();
void test_convert();
void test_combine();
void test_scatter();
void test_merge();
void test_lists();
void test_compress();
void test_topk();

#endif
