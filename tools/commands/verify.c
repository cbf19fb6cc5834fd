/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/commands/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes that are computed and compared at a time; of larger elements, one. */
enum { BLOCK = 32768 };

union number {
    int64_t i;
    uint64_t u;
    double f;
};

static int is_float(weft_dtype_t dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64;
}

static int is_signed(weft_dtype_t dtype)
{
    return dtype == WEFT_I8 || dtype == WEFT_I16 || dtype == WEFT_I32 || dtype == WEFT_I64;
}

static uint64_t seed_of(int rank, const char *slot, uint64_t iteration)
{
    uint64_t seed = 0x9e3779b97f4a7c15u * (iteration + 1);

    for (; *slot; slot++)
        seed = (seed ^ (unsigned char)*slot) * 0x100000001b3u;
    return verify_mix(seed ^ ((uint64_t)rank << 32));
}

/* Bits of a number that the narrow formats hold exactly, and back. */
static uint16_t narrow(weft_dtype_t dtype, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if (dtype == WEFT_BF16)
        return (uint16_t)(bits >> 16);
    uint32_t sign = bits >> 16 & 0x8000u;
    if ((bits & 0x7fffffffu) == 0)
        return (uint16_t)sign;
    return (uint16_t)(sign | (((bits >> 23 & 0xffu) - 112) << 10) | (bits >> 13 & 0x3ffu));
}

static double widen(weft_dtype_t dtype, uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;

    if (dtype == WEFT_BF16) {
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    int exponent = half >> 10 & 0x1f;
    int mantissa = half & 0x3ff;
    double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(mantissa + 1024, exponent - 25);
    return half & 0x8000 ? -size : size;
}

static union number load(const void *data, weft_dtype_t dtype, size_t index)
{
    const char *at = (const char *)data + index * weft_dtype_size(dtype);
    union number n = {.u = 0};
    float single;
    uint16_t half;

    switch (dtype) {
    case WEFT_F64:
        memcpy(&n.f, at, sizeof n.f);
        break;
    case WEFT_F32:
        memcpy(&single, at, sizeof single);
        n.f = (double)single;
        break;
    case WEFT_F16:
    case WEFT_BF16:
        memcpy(&half, at, sizeof half);
        n.f = widen(dtype, half);
        break;
    default: {
        size_t bytes = weft_dtype_size(dtype);
        for (size_t i = bytes; i-- > 0;)
            n.u = n.u << 8 | ((const unsigned char *)at)[i];
        if (is_signed(dtype) && bytes < 8 && n.u >> (8 * bytes - 1))
            n.u |= UINT64_MAX << (8 * bytes);
    }
    }
    return n;
}

/* Largest magnitude of a contribution of plain floating point: sums of some hundred are exact. */
static int64_t span(weft_dtype_t dtype)
{
    return dtype == WEFT_BF16 ? 2 : dtype == WEFT_F16 ? 4 : 1000;
}

static double real_value(enum verify_fill fill, weft_dtype_t dtype, int rank, uint64_t bits)
{
    if (fill == VERIFY_LOGICAL)
        return (double)(bits % 3);
    if (fill == VERIFY_PRODUCT) {
        double size = rank % 8 == 0 ? 2.0 : rank % 8 == 4 ? 0.5 : 1.0;
        return bits & 1 ? size : -size;
    }
    return (double)((int64_t)(bits % (uint64_t)(2 * span(dtype) + 1)) - span(dtype));
}

/* An opaque element has any bits, of which no two words repeat. */
static void fill_opaque(char *at, size_t bytes, uint64_t bits)
{
    uint64_t word = 0;

    for (size_t b = 0; b < bytes; b++) {
        if (b % 8 == 0)
            word = verify_mix(bits + b);
        at[b] = (char)(word >> (b % 8 * 8));
    }
}

void verify_fill(enum verify_fill fill, void *data, weft_dtype_t dtype, int rank, const char *slot,
                 size_t first, size_t count, uint64_t iteration)
{
    uint64_t seed = seed_of(rank, slot, iteration);
    size_t bytes = weft_dtype_size(dtype);
    char *at = data;

    for (size_t i = 0; i < count; i++, at += bytes) {
        uint64_t bits = verify_mix(seed + 0x9e3779b97f4a7c15u * (first + i)) >> 8;
        double real = is_float(dtype) ? real_value(fill, dtype, rank, bits) : 0;
        float single = (float)real;
        uint16_t half;
        switch (dtype) {
        case WEFT_F64:
            memcpy(at, &real, sizeof real);
            break;
        case WEFT_F32:
            memcpy(at, &single, sizeof single);
            break;
        case WEFT_F16:
        case WEFT_BF16:
            half = narrow(dtype, single);
            memcpy(at, &half, sizeof half);
            break;
        default:
            if (weft_dtype_is_opaque(dtype)) {
                fill_opaque(at, bytes, bits);
                break;
            }
            bits = fill == VERIFY_LOGICAL ? bits % 3 : bits;
            for (size_t b = 0; b < bytes; b++)
                at[b] = (char)(bits >> (8 * b));
        }
    }
}

enum verify_fill verify_fill_for_op(const struct weft_op *op)
{
    if (op == weft_op_builtin(WEFT_PROD))
        return VERIFY_PRODUCT;
    if (verify_is_merge(op))
        return VERIFY_PAIRS;
    return op == weft_op_builtin(WEFT_LAND) || op == weft_op_builtin(WEFT_LOR) ||
                   op == weft_op_builtin(WEFT_LXOR)
               ? VERIFY_LOGICAL
               : VERIFY_PLAIN;
}

enum verify_fill verify_fill_for(struct weft_schedule *const *schedules, size_t count)
{
    enum verify_fill fill = VERIFY_PLAIN;
    struct weft_result result = {.struct_size = sizeof result};

    for (size_t s = 0; s < count; s++) {
        for (size_t i = 0; weft_schedule_get_result(schedules[s], i, &result) == WEFT_OK; i++) {
            enum verify_fill one = result.op ? verify_fill_for_op(result.op) : VERIFY_PLAIN;
            one = result.lossy ? VERIFY_COMPRESSED : one;
            fill = one > fill ? one : fill;
        }
    }
    return fill;
}

/* How far a sum of `ranks` contributions may be from the fold in order: 0 while it is exact. */
static double tolerance(enum verify_fill fill, weft_dtype_t dtype, const struct weft_result *result)
{
    double bits = dtype == WEFT_BF16 ? 8 : dtype == WEFT_F16 ? 11 : dtype == WEFT_F32 ? 24 : 53;
    double largest = (double)result->ranks * (double)span(dtype);

    if (!is_float(dtype) || fill != VERIFY_PLAIN || result->op != weft_op_builtin(WEFT_SUM) ||
        largest <= exp2(bits))
        return 0;
    return largest * result->ranks * exp2(-bits);
}

static void print_number(char text[32], union number n, weft_dtype_t dtype)
{
    if (is_float(dtype))
        snprintf(text, 32, "%.9g", n.f);
    else if (is_signed(dtype))
        snprintf(text, 32, "%lld", (long long)n.i);
    else
        snprintf(text, 32, "%llu", (unsigned long long)n.u);
}

/* How two elements differ, each in words: opaque ones by the first byte that does. */
static void print_elements(struct verify_fault *fault, const char *got, const char *expected,
                           weft_dtype_t dtype)
{
    size_t byte = 0;

    if (!weft_dtype_is_opaque(dtype)) {
        print_number(fault->got, load(got, dtype, 0), dtype);
        print_number(fault->expected, load(expected, dtype, 0), dtype);
        return;
    }
    while (byte + 1 < weft_dtype_size(dtype) && got[byte] == expected[byte])
        byte++;
    snprintf(fault->got, sizeof fault->got, "0x%02x in byte %u", (unsigned char)got[byte],
             (unsigned)byte);
    snprintf(fault->expected, sizeof fault->expected, "0x%02x", (unsigned char)expected[byte]);
}

/* Compares a block of the memory with what it must be: the first element that differs, or count. */
static size_t compare(const void *got, const void *expected, weft_dtype_t dtype, size_t count,
                      double allowed)
{
    size_t bytes = weft_dtype_size(dtype);

    if (memcmp(got, expected, count * bytes) == 0)
        return count;
    for (size_t i = 0; i < count; i++) {
        if (weft_dtype_is_opaque(dtype)) {
            if (memcmp((const char *)got + i * bytes, (const char *)expected + i * bytes, bytes) !=
                0)
                return i;
            continue;
        }
        union number a = load(got, dtype, i);
        union number b = load(expected, dtype, i);
        if (is_float(dtype) ? !(fabs(a.f - b.f) <= allowed) && !(a.f == b.f) : a.u != b.u)
            return i;
    }
    return count;
}

struct blocks {
    char *expected;
    char *next;
    size_t bytes;
};

static void free_blocks(struct blocks *blocks)
{
    weft_memory_free(blocks->expected);
    weft_memory_free(blocks->next);
}

static int reserve_blocks(struct blocks *blocks, size_t bytes)
{
    if (blocks->expected && blocks->next && bytes <= blocks->bytes)
        return WEFT_OK;
    free_blocks(blocks);
    blocks->expected = weft_memory_alloc(bytes, 1);
    blocks->next = weft_memory_alloc(bytes, 1);
    blocks->bytes = bytes;
    if (!blocks->expected || !blocks->next)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory to verify elements of %zu bytes",
                              bytes);
    return WEFT_OK;
}

static int verify_one(const struct weft_schedule *schedule, enum verify_fill fill,
                      const struct weft_result *result, void *const *slots, uint64_t iteration,
                      struct blocks *blocks, struct verify_fault *fault)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    int own = weft_schedule_rank(schedule);
    int status = weft_schedule_get_slot(schedule, result->dst.slot, &slot);
    size_t bytes, most;

    if (status != WEFT_OK)
        return status;
    if (!slots[result->dst.slot])
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "slot %s is scratch: a result there cannot be verified", slot.name);
    if (fill == VERIFY_COMPRESSED)
        return verify_compressed(schedule, result, slots[result->dst.slot], iteration, fault);
    if (verify_is_merge(result->op))
        return verify_pairs(schedule, result, slots[result->dst.slot], iteration, fault);
    bytes = weft_dtype_size(slot.dtype);
    most = bytes < BLOCK ? BLOCK / bytes : 1;
    status = reserve_blocks(blocks, most * bytes);
    for (size_t done = 0; status == WEFT_OK && done < result->dst.count; done += most) {
        size_t left = result->dst.count - done;
        size_t count = left < most ? left : most;
        size_t from = result->offset + done;

        int rank = weft_result_rank(result, 0);

        verify_fill(fill, blocks->expected, slot.dtype, rank, weft_result_slot(result, own, rank),
                    from, count, iteration);
        for (int r = 1; r < result->ranks && status == WEFT_OK; r++) {
            rank = weft_result_rank(result, r);
            verify_fill(fill, blocks->next, slot.dtype, rank, weft_result_slot(result, own, rank),
                        from, count, iteration);
            status = weft_op_reduce(result->op, slot.dtype, blocks->expected, blocks->expected,
                                    blocks->next, count);
        }
        size_t element = result->dst.offset + done;
        const char *got = (const char *)slots[result->dst.slot] + element * bytes;
        size_t wrong =
            compare(got, blocks->expected, slot.dtype, count, tolerance(fill, slot.dtype, result));
        if (status == WEFT_OK && wrong < count) {
            fault->rank = own;
            fault->slot = slot.name;
            fault->element = element + wrong;
            print_elements(fault, got + wrong * bytes, blocks->expected + wrong * bytes,
                           slot.dtype);
            return WEFT_IN_PROGRESS;
        }
    }
    return status;
}

int verify_results(const struct weft_schedule *schedule, enum verify_fill fill, void *const *slots,
                   uint64_t iteration, struct verify_fault *fault)
{
    struct blocks blocks = {.bytes = 0};
    struct weft_result result = {.struct_size = sizeof result};
    int status = WEFT_OK;

    for (size_t i = 0; status == WEFT_OK && i < weft_schedule_result_count(schedule); i++) {
        status = weft_schedule_get_result(schedule, i, &result);
        if (status == WEFT_OK && result.kind == WEFT_RESULT_REGION)
            status = verify_one(schedule, fill, &result, slots, iteration, &blocks, fault);
    }
    free_blocks(&blocks);
    return status;
}
