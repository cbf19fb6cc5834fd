/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations on compressed vectors, by host and device. */
#include <criterion/criterion.h>
#include <weft/compress.h>

#include "tests/gpu/operations.h"

#if defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 20 };
#else
enum { ROUNDS = 60 };
#endif

static void fill(struct draw *draw, float *at, size_t count, int odd)
{
    const int scaled = draw_below(draw, 4) == 0;

    for (size_t i = 0; i < count; i++) {
        at[i] = draw_number(draw, odd && draw_below(draw, 40) == 0);
        if (isfinite(at[i]) && scaled)
            at[i] *= 0x1p-70F;
    }
}

/* Values, in a slot that may be longer than what is meant. */
static void add_values(struct operation *operation, struct draw *draw, weft_access_t access,
                       size_t count, int odd)
{
    const size_t region = operation->count;
    const size_t more = draw_below(draw, 3) ? 0 : draw_below(draw, 20);

    fill(draw,
         operand_add(operation, WEFT_F32, access, access == WEFT_READ ? AS_BYTES : AS_SUMS,
                     count + more),
         count + more, odd);
    operand_shorten(operation, region, count);
}

static int wrong(struct draw *draw)
{
    return draw_below(draw, 12) == 0;
}

/* ---- quantised ---- */

static void make_quantised(struct operation *operation, struct draw *draw,
                           weft_compress_op_kind_t kind)
{
    static const int bits[] = {WEFT_QUANTISE_SIGN, 2, 4, 8};
    const struct weft_quantiser quantiser = {
        .struct_size = sizeof quantiser,
        .bits = bits[draw_below(draw, 4)],
        .bucket = draw_below(draw, 6) ? 8 * (1 + draw_below(draw, 70)) : 4104,
        .norm = draw_below(draw, 2) ? WEFT_QUANTISE_MAX : WEFT_QUANTISE_L2,
        .seed = draw_word(draw),
        .nan = draw_below(draw, 2) ? WEFT_NAN_ERROR : WEFT_NAN_ZERO};
    const struct weft_compress_op_config config = {
        .struct_size = sizeof config, .kind = kind, .quantiser = &quantiser};
    const size_t count = draw_below(draw, 8) ? draw_below(draw, 3000) : 9000 + draw_below(draw, 99);
    const size_t bytes = weft_quantised_bytes(&quantiser, count) + (size_t)wrong(draw);

    OK(weft_compress_op(&config, &operation->op));
    if (kind == WEFT_COMPRESS_QUANTISE) {
        operand_add(operation, WEFT_U8, WEFT_WRITE, AS_BYTES, bytes);
        add_values(operation, draw, WEFT_READ, count, draw_below(draw, 3) == 0);
        return;
    }
    add_values(operation, draw, kind == WEFT_COMPRESS_DEQUANTISE ? WEFT_WRITE : WEFT_UPDATE, count,
               0);
    uint8_t *at = operand_add(operation, WEFT_U8, WEFT_READ, AS_BYTES, bytes);
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)draw_word(draw);
    operation->operands[0].compared = AS_SUMS;
}

/* ---- products ---- */

static void make_op(struct operation *operation, weft_compress_op_kind_t kind, size_t slice)
{
    const struct weft_compress_op_config config = {
        .struct_size = sizeof config, .kind = kind, .slice = slice};

    OK(weft_compress_op(&config, &operation->op));
}

/* Now and then so many that the host computes them in parts. */
static size_t draw_slice(struct draw *draw, int many)
{
    return many ? 64 : draw_below(draw, 5) ? 1 + draw_below(draw, 80) : 300 + draw_below(draw, 900);
}

static size_t draw_components(struct draw *draw, size_t slice)
{
    size_t most = slice < 40 ? slice : 40;

    return draw_below(draw, 2) ? draw_below(draw, (unsigned)most + 1)
                               : draw_below(draw, most < 8 ? (unsigned)most + 1 : 8);
}

struct sizes {
    size_t slice, components, count, slices;
};

static struct sizes draw_sizes(struct draw *draw)
{
    const int many = draw_below(draw, 20) == 0;
    struct sizes sizes = {.slice = draw_slice(draw, many)};
    size_t slice = sizes.slice;

    sizes.components = many ? 8 * (1 + draw_below(draw, 6)) : draw_components(draw, slice);
    sizes.count =
        many ? 70000 : draw_below(draw, (unsigned)(slice > 80 ? 4 : 60) * (unsigned)slice);
    sizes.slices = sizes.count / slice + (sizes.count % slice != 0);
    return sizes;
}

static void make_project(struct operation *operation, struct draw *draw)
{
    const struct sizes sizes = draw_sizes(draw);

    make_op(operation, WEFT_COMPRESS_PROJECT, sizes.slice);
    operand_add(operation, WEFT_F32, WEFT_WRITE, AS_SUMS,
                sizes.slices * sizes.components + (size_t)wrong(draw));
    add_values(operation, draw, WEFT_READ, sizes.count, draw_below(draw, 6) == 0);
    add_values(operation, draw, WEFT_READ, sizes.slice * sizes.components, 0);
    if (draw_below(draw, 2))
        add_values(operation, draw, WEFT_READ, sizes.count + (size_t)wrong(draw), 0);
    if (draw_below(draw, 2)) {
        double *squares =
            operand_add(operation, WEFT_F64, WEFT_UPDATE, AS_DOUBLES, wrong(draw) ? 2 : 3);
        squares[0] = 1.5;
    }
}

static void make_reconstruct(struct operation *operation, struct draw *draw)
{
    const struct sizes sizes = draw_sizes(draw);

    make_op(operation, WEFT_COMPRESS_RECONSTRUCT, sizes.slice);
    add_values(operation, draw, WEFT_WRITE, sizes.count, 0);
    add_values(operation, draw, WEFT_READ, sizes.slices * sizes.components + (size_t)wrong(draw),
               draw_below(draw, 6) == 0);
    add_values(operation, draw, WEFT_READ, sizes.slice * sizes.components, 0);
    if (draw_below(draw, 2))
        add_values(operation, draw, WEFT_READ, sizes.count, 0);
}

static void make_correlate(struct operation *operation, struct draw *draw)
{
    const size_t slice = draw_slice(draw, 0), rows = draw_below(draw, 40), d = draw_below(draw, 30);

    make_op(operation, WEFT_COMPRESS_CORRELATE, slice);
    operand_add(operation, WEFT_F32, WEFT_WRITE, AS_SUMS, slice * d + (size_t)wrong(draw));
    add_values(operation, draw, WEFT_READ, rows * slice, draw_below(draw, 6) == 0);
    add_values(operation, draw, WEFT_READ, rows * d, 0);
}

static void make_orthonormalise(struct operation *operation, struct draw *draw)
{
    const size_t columns = 1 + draw_below(draw, draw_below(draw, 4) ? 5 : 20);
    const size_t rows = draw_below(draw, 3) ? draw_below(draw, 40) : 200 + draw_below(draw, 400);

    make_op(operation, WEFT_COMPRESS_ORTHONORMALISE, columns);
    add_values(operation, draw, WEFT_UPDATE, rows * columns + (size_t)wrong(draw),
               draw_below(draw, 4) == 0);
    operand_add(operation, WEFT_F64, WEFT_WRITE, AS_WORK,
                WEFT_ORTHONORMALISE_WORK(columns) - (size_t)wrong(draw));
}

static void make(struct operation *operation, struct draw *draw, weft_compress_op_kind_t kind)
{
    *operation =
        (struct operation){.produces = draw_below(draw, 2) != 0, .again = draw_below(draw, 3) == 0};
    switch (kind) {
    case WEFT_COMPRESS_PROJECT:
        make_project(operation, draw);
        break;
    case WEFT_COMPRESS_RECONSTRUCT:
        make_reconstruct(operation, draw);
        break;
    case WEFT_COMPRESS_CORRELATE:
        make_correlate(operation, draw);
        break;
    case WEFT_COMPRESS_ORTHONORMALISE:
        make_orthonormalise(operation, draw);
        break;
    default:
        make_quantised(operation, draw, kind);
    }
    draw_places(operation, draw);
}

static void compressed(struct ranks *ranks, struct weft_context *context, int rank)
{
    int failed = 0;

    (void)ranks, (void)rank;
    device_use(0);
    for (int kind = 0; kind < WEFT_COMPRESS_OP_COUNT; kind++) {
        int succeeded = 0;

        for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
            struct draw draw = {seed * 100 + (uint64_t)kind};
            struct operation operation;
            char what[64];

            make(&operation, &draw, (weft_compress_op_kind_t)kind);
            snprintf(what, sizeof what, "%s, seed %llu", weft_op_name(operation.op),
                     (unsigned long long)seed);
            *(compare_sides(context, &operation, what) == WEFT_OK ? &succeeded : &failed) += 1;
            operation_free(&operation);
        }
        CHECK(succeeded > ROUNDS / 4);
    }
    CHECK(failed > 0);
}

Test(operations, compressed_vectors)
{
    ranks_run_once(compressed, 1, NULL);
    device_check();
}
