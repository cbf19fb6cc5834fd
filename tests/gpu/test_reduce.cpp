// SPDX-License-Identifier: BSD-3-Clause
// Reductions: every operation of every datatype, of two and of more inputs, at all alignments.
#include "tests/gpu/kernel_tests.h"

namespace
{

const char *const types[] = {
#define TYPE(name, text, bytes) text,
    WEFT_DTYPE_MAP(TYPE)};
const char *const operations[] = {
#define OPERATION(name, text) text,
    WEFT_OP_MAP(OPERATION)};

bool is_float(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64;
}

// Which of two NaNs a sum keeps is nobody's.
bool may_differ(weft_op_kind_t op, weft_dtype_t dtype)
{
    return is_float(dtype) && (op == WEFT_SUM || op == WEFT_PROD);
}

std::string kernel_of(const char *prefix, weft_op_kind_t op, weft_dtype_t dtype)
{
    std::string type = types[dtype];

    if (type[0] == 'i' && op != WEFT_MIN && op != WEFT_MAX)
        type[0] = 'u';
    return std::string(prefix) + operations[op] + "_" + type;
}

// Multiples of the element's size up to a vector's; mostly the same for all arrays.
size_t draw_offset(size_t size, size_t common)
{
    return draw_below(4) > 0 ? common : size * draw_below(16 / size);
}

size_t draw_count()
{
    static const size_t counts[] = {0,  1,  2,   7,   15,  16,  17,  31,
                                    32, 33, 127, 128, 129, 255, 256, 257};
    const size_t which = draw_below(20);

    return which < 16 ? counts[which] : draw_below(3000);
}

void test_two(weft_op_kind_t op, weft_dtype_t dtype)
{
    const std::string name = kernel_of("weft_reduce_", op, dtype);
    const size_t size = dtype_bytes(dtype);
    const size_t count = draw_count();
    const size_t common = size * draw_below(16 / size);
    const unsigned alias = (unsigned)draw_below(3);
    area a(count * size, draw_offset(size, common));
    area b(count * size, draw_offset(size, common));
    area to(count * size, draw_offset(size, common));
    area expected(count * size);

    fill_numbers(a, dtype);
    fill_numbers(b, dtype);
    weft__reduce_kernel_find(op, dtype)(expected.at(), a.at(), b.at(), count);
    const area &target = alias == 0 ? to : alias == 1 ? a : b;

    if (!launch(name, (void *)target.at(), (const void *)a.at(), (const void *)b.at(),
                (uint64_t)count))
        return;
    const size_t at =
        first_difference(target.at(), expected.at(), count, dtype, may_differ(op, dtype));

    check(at == count && target.intact(), "%s of %zu: element %zu differs", name.c_str(), count,
          at);
}

float widened(const char *from, weft_dtype_t dtype)
{
    uint16_t bits;

    memcpy(&bits, from, sizeof bits);
    return dtype == WEFT_F16 ? weft__f16_widen(bits) : weft__bf16_widen(bits);
}

// What n inputs give: halves are summed in f32, all else as two and two.
void fold(weft_op_kind_t op, weft_dtype_t dtype, const std::vector<area *> &inputs,
          const area &expected, size_t count)
{
    if (dtype_bytes(dtype) != 2 || !may_differ(op, dtype)) {
        expected.bytes > 0 ? (void)memcpy(expected.at(), inputs[0]->at(), expected.bytes) : (void)0;
        for (size_t k = 1; k < inputs.size(); k++)
            weft__reduce_kernel_find(op, dtype)(expected.at(), expected.at(), inputs[k]->at(),
                                                count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        float sum = widened(inputs[0]->at(2 * i), dtype);

        for (size_t k = 1; k < inputs.size(); k++) {
            const float x = widened(inputs[k]->at(2 * i), dtype);

            sum = op == WEFT_SUM ? sum + x : sum * x;
        }
        const uint16_t bits = dtype == WEFT_F16 ? weft__f16_narrow(sum) : weft__bf16_narrow(sum);

        memcpy(expected.at(2 * i), &bits, sizeof bits);
    }
}

void test_many(weft_op_kind_t op, weft_dtype_t dtype)
{
    const std::string name = kernel_of("weft_reduce_n_", op, dtype);
    const size_t size = dtype_bytes(dtype);
    const size_t count = draw_count();
    const size_t common = size * draw_below(16 / size);
    const size_t n = 2 + draw_below(WEFT_GPU_MOST_INPUTS - 1);
    const size_t alias = draw_below(2 * n);
    std::vector<area *> inputs(n);
    weft_gpu_inputs list = {};
    area to(count * size, draw_offset(size, common));
    area expected(count * size);

    for (size_t k = 0; k < n; k++) {
        inputs[k] = new area(count * size, draw_below(8) > 0 ? common : draw_offset(size, common));
        fill_numbers(*inputs[k], dtype);
        list.from[k] = inputs[k]->at();
    }
    list.count = (uint32_t)n;
    fold(op, dtype, inputs, expected, count);
    const area &target = alias < n ? *inputs[alias] : to;

    if (launch(name, (void *)target.at(), list, (uint64_t)count)) {
        const size_t at =
            first_difference(target.at(), expected.at(), count, dtype, may_differ(op, dtype));

        check(at == count && target.intact(), "%s of %zu x %zu: element %zu differs", name.c_str(),
              n, count, at);
    }
    for (area *input : inputs)
        delete input;
}

// Two inputs give the same by both kernels, halves too.
void test_same(weft_op_kind_t op, weft_dtype_t dtype)
{
    const size_t size = dtype_bytes(dtype);
    const size_t count = 2000;
    area a(count * size);
    area b(count * size);
    area two(count * size);
    area many(count * size);

    fill_numbers(a, dtype);
    fill_numbers(b, dtype);
    const weft_gpu_inputs list = {{a.at(), b.at()}, 2};

    if (launch(kernel_of("weft_reduce_", op, dtype), (void *)two.at(), (const void *)a.at(),
               (const void *)b.at(), (uint64_t)count) &&
        launch(kernel_of("weft_reduce_n_", op, dtype), (void *)many.at(), list, (uint64_t)count))
        check(first_difference(two.at(), many.at(), count, dtype, may_differ(op, dtype)) == count,
              "%s: two inputs differ", kernel_of("weft_reduce_n_", op, dtype).c_str());
}

} // namespace

void test_reduce()
{
    for (int op = 0; op < WEFT_OP_COUNT; op++)
        for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
            if (!weft__reduce_kernel_find((weft_op_kind_t)op, (weft_dtype_t)dtype))
                continue;
            for (int round = 0; round < 12; round++) {
                test_two((weft_op_kind_t)op, (weft_dtype_t)dtype);
                test_many((weft_op_kind_t)op, (weft_dtype_t)dtype);
            }
            test_same((weft_op_kind_t)op, (weft_dtype_t)dtype);
        }
}
