/* SPDX-License-Identifier: BSD-3-Clause */
/* From a kernel, a function of C++, to a row of the table: the arguments' types come from the
 * kernel's declaration. A struct that holds pointers needs a grid_translate() of its own
 * (grid_pointers.h); one without is not taken. */
#ifndef WEFT_TESTS_GPU_GRID_LAUNCH_H
#define WEFT_TESTS_GPU_GRID_LAUNCH_H

#include <stddef.h>
#include <tuple>
#include <utility>

#include "tests/gpu/grid/grid_pointers.h"

/* Runs call(closure) once in every thread of the grid. */
int grid_launch(const unsigned grid[3], const unsigned block[3], size_t shared_bytes,
                void (*call)(void *closure), void *closure);
/* Instead of that, where a pointer was refused: returns an error. */
int grid_refuse();

template <class... types> struct grid_closure {
    void (*kernel)(types...);
    std::tuple<std::remove_const_t<types>...> values;

    static void call(void *closure)
    {
        grid_closure *self = static_cast<grid_closure *>(closure);

        std::apply(self->kernel, self->values);
    }
};

template <class... types, size_t... places>
int grid_run(void (*kernel)(types...), std::index_sequence<places...>, const unsigned grid[3],
             const unsigned block[3], size_t shared_bytes, void **arguments,
             void *(*translate)(void *))
{
    bool refused = false;
    grid_closure<types...> closure = {
        kernel, {*static_cast<std::remove_const_t<types> *>(arguments[places])...}};

    (grid_translate(std::get<places>(closure.values), grid_translator(translate, &refused)), ...);
    if (refused)
        return grid_refuse();
    return grid_launch(grid, block, shared_bytes, grid_closure<types...>::call, &closure);
}

template <class... types>
int grid_run_kernel(void (*kernel)(types...), const unsigned grid[3], const unsigned block[3],
                    size_t shared_bytes, void **arguments, void *(*translate)(void *))
{
    return grid_run(kernel, std::index_sequence_for<types...>(), grid, block, shared_bytes,
                    arguments, translate);
}

template <class... types> struct grid_arguments {
    static constexpr unsigned count = sizeof...(types);
    static constexpr size_t sizes[count + 1] = {sizeof(types)...};
};

template <class... types> constexpr grid_arguments<types...> grid_arguments_of(void (*)(types...))
{
    return {};
}

/* A row for `name`. */
#define GRID_ROW(name)                                                                             \
    {#name,                                                                                        \
     [](const unsigned grid[3], const unsigned block[3], size_t bytes, void **arguments,           \
        void *(*translate)(void *)) {                                                              \
         return grid_run_kernel(name, grid, block, bytes, arguments, translate);                   \
     },                                                                                            \
     decltype(grid_arguments_of(name))::count, decltype(grid_arguments_of(name))::sizes},

#endif
