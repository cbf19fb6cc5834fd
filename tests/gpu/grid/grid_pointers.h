/* SPDX-License-Identifier: BSD-3-Clause */
/* The pointers among a kernel's arguments, also those within structs: each is made one of the
 * grid's, or of a device's. */
#ifndef WEFT_TESTS_GPU_GRID_POINTERS_H
#define WEFT_TESTS_GPU_GRID_POINTERS_H

#include <type_traits>

#include "gpu/kernels/arguments.h"
#include "tests/gpu/grid/grid_run.h"

/* From a pointer of whoever launches to one of the grid; notes that one was refused. */
class grid_translator
{
  public:
    grid_translator(void *(*translate)(void *), bool *refused)
        : translate(translate), refused(refused)
    {
    }

    void *operator()(void *pointer) const
    {
        void *translated = translate && pointer ? translate(pointer) : pointer;

        *refused |= pointer && !translated;
        return translated;
    }

  private:
    void *(*translate)(void *);
    bool *refused;
};

template <class type> void grid_translate(type &value, grid_translator translate)
{
    static_assert(std::is_arithmetic<type>::value || std::is_pointer<type>::value,
                  "a struct among a kernel's arguments needs its grid_translate()");
    if constexpr (std::is_pointer<type>::value)
        value = (type)translate((void *)value);
}

inline void grid_translate(weft_gpu_inputs &inputs, grid_translator translate)
{
    for (uint32_t i = 0; i < inputs.count; i++)
        inputs.from[i] = translate(const_cast<void *>(inputs.from[i]));
}

inline void grid_translate(weft_gpu_pieces &pieces, grid_translator translate)
{
    for (uint32_t i = 0; i < pieces.count; i++) {
        pieces.piece[i].to = translate(pieces.piece[i].to);
        pieces.piece[i].from = translate(const_cast<void *>(pieces.piece[i].from));
    }
}

inline void grid_translate(weft_gpu_combination &of, grid_translator translate)
{
    of.found = static_cast<unsigned long long *>(translate(of.found));
    for (uint32_t s = 0; s < of.segments; s++) {
        of.segment[s].to = translate(of.segment[s].to);
        of.segment[s].less = translate(const_cast<void *>(of.segment[s].less));
        for (const void *&term : of.segment[s].terms)
            term = translate(const_cast<void *>(term));
    }
}

inline void grid_translate(weft_gpu_scatter &of, grid_translator translate)
{
    of.indices = translate(const_cast<void *>(of.indices));
    of.values = translate(const_cast<void *>(of.values));
    of.dense = translate(of.dense);
}

inline void grid_translate(weft_gpu_list &list, grid_translator translate)
{
    list.indices = translate(const_cast<void *>(list.indices));
    list.values = translate(const_cast<void *>(list.values));
    list.range = static_cast<uint64_t *>(translate(const_cast<uint64_t *>(list.range)));
}

inline void grid_translate(weft_gpu_lists &lists, grid_translator translate)
{
    for (uint32_t i = 0; i < lists.count; i++)
        grid_translate(lists.list[i], translate);
}

inline void grid_translate(weft_gpu_quantiser &, grid_translator)
{
}

inline void grid_translate(weft_gpu_product &product, grid_translator translate)
{
    grid_translate(product.a, translate);
    grid_translate(product.b, translate);
    grid_translate(product.start, translate);
    grid_translate(product.c, translate);
    grid_translate(product.mean, translate);
}

inline void grid_translate(weft_gpu_squares &squares, grid_translator translate)
{
    grid_translate(squares.values, translate);
    grid_translate(squares.mean, translate);
    grid_translate(squares.out, translate);
}

#endif
