/* SPDX-License-Identifier: BSD-3-Clause */
/* Arithmetic on vectors that functions of devices put on their streams, beside plain loops. */
#include <criterion/criterion.h>
#include <math.h>
#include <weft/device.h>

#include "tests/gpu/support/device_memory.h"
#include "tests/support/draw.h"
#include "tests/support/ranks.h"

enum { MOST = 6000, PIECES = 90, VECTORS = WEFT_DEVICE_TERMS + 2 };

/* A vector on the device, in pieces or in one, and what it is to have. */
struct vector {
    struct weft_argument of;
    struct weft_piece pieces[PIECES];
    char *memory, *expected;
};

struct work {
    struct vector vectors[VECTORS];
    struct weft_device_term terms[WEFT_DEVICE_TERMS];
    struct weft_device_sum sum;
    struct weft_device_found *found, counted;
    struct weft_sparse pairs;
    double *squares;
    int status; /* of what is called in the place of the sum, if that is not NULL */
    int (*instead)(struct work *work, void *stream);
    const char *text;
};

/* ---- a run of one node, which does whatever the work is ---- */

struct stage {
    struct alone alone;
    struct weft_op *op;
    struct weft_run *run;
    struct work *work;
    void *memory;
};

static int call(struct weft_call *call, void *stream)
{
    struct work *work = ((struct stage *)call->user)->work;
    int status;

    if (!work->instead)
        return weft_device_combine(&work->sum, stream);
    status = work->instead(work, stream);
    if (!work->text)
        return status;
    CHECK_STATUS(status, work->status);
    CHECK_TEXT(weft_error_text(), work->text);
    return WEFT_OK;
}

static void begin(struct stage *stage)
{
    struct weft_schedule *s = new_schedule(0, 1);
    struct weft_op_config config;

    device_use(0);
    stage->alone = alone_create(WEFT_PROGRESS_CALLER);
    stage->memory = device_alloc(1);
    weft_op_config_init(&config);
    config.name = "work";
    config.device = call;
    config.user = stage;
    OK(weft_op_create(&stage->op, &config));
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_U8, 1, WEFT_SLOT_INOUT);
    OK(weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE));
    struct weft_compute_argument argument = {weft_region_at(slot, 0, 1), WEFT_UPDATE};
    weft_schedule_add_compute(s, stage->op, &argument, 1, 0);
    stage->run = make_run(stage->alone.context, commit(s), NULL);
    OK(weft_run_bind(stage->run, slot, stage->memory, 1, WEFT_U8));
}

static int execute(struct stage *stage, struct work *work)
{
    stage->work = work;
    return weft_run_execute(stage->run);
}

static void end(struct stage *stage)
{
    weft_run_destroy(stage->run);
    weft_op_destroy(stage->op);
    alone_destroy(&stage->alone);
    device_free(stage->memory);
    device_check();
}

/* ---- vectors ---- */

static void draw_pieces(struct vector *vector, struct draw *draw)
{
    size_t size = weft_dtype_size(vector->of.dtype), left = vector->of.count;
    size_t pieces = draw_below(draw, 4) ? draw_below(draw, 5) : draw_below(draw, PIECES);

    vector->of.data = vector->memory;
    for (size_t i = 0; i <= pieces && pieces > 0; i++) {
        size_t count = i == pieces ? left : draw_below(draw, (unsigned)(2 * left / pieces + 1));

        count = count < left ? count : left;
        /* An empty piece may be anywhere. */
        vector->pieces[i] = (struct weft_piece){
            count ? vector->memory + (vector->of.count - left) * size : NULL, count};
        left -= count;
        vector->of.pieces = vector->pieces;
        vector->of.piece_count = i + 1;
        vector->of.data = NULL;
    }
}

static void make_vector(struct vector *vector, weft_dtype_t dtype, size_t count, struct draw *draw)
{
    *vector = (struct vector){.of = {.count = count, .dtype = dtype}};
    vector->memory = device_alloc(count * weft_dtype_size(dtype));
    vector->expected = calloc(count + 1, weft_dtype_size(dtype));
    for (size_t i = 0; i < count; i++) {
        double value = ((double)draw_below(draw, 2001) - 1000) / 64;

        if (draw_below(draw, 300) == 0)
            value = draw_below(draw, 2) ? (double)NAN : (double)INFINITY;
        OK(weft_convert(dtype, vector->expected + i * weft_dtype_size(dtype), WEFT_F64, &value, 1));
    }
    device_put(vector->memory, vector->expected, count * weft_dtype_size(dtype));
    draw_pieces(vector, draw);
}

static void free_vector(struct vector *vector)
{
    device_free(vector->memory);
    free(vector->expected);
}

static int has_expected(const struct vector *vector)
{
    size_t size = weft_dtype_size(vector->of.dtype);
    char *found = calloc(vector->of.count + 1, size);
    int same = 1;

    device_get(found, vector->memory, vector->of.count * size);
    for (size_t i = 0; i < vector->of.count && same; i++) {
        double x, y;

        same = memcmp(found + i * size, vector->expected + i * size, size) == 0;
        if (same)
            continue;
        OK(weft_convert(WEFT_F64, &x, vector->of.dtype, found + i * size, 1));
        OK(weft_convert(WEFT_F64, &y, vector->of.dtype, vector->expected + i * size, 1));
        same = isnan(x) && isnan(y);
    }
    free(found);
    return same;
}

/* ---- sums, by plain loops ---- */

/* Numbers of f32 are added as such, and kept in doubles in between. */
static double rounded(const struct work *work, double x)
{
    for (size_t k = 0; k < VECTORS; k++)
        if (work->vectors[k].of.dtype == WEFT_F64)
            return x;
    return (double)(float)x;
}

static double get(const struct vector *vector, size_t i)
{
    double x;

    OK(weft_convert(WEFT_F64, &x, vector->of.dtype,
                    vector->expected + i * weft_dtype_size(vector->of.dtype), 1));
    return x;
}

static double add_terms(struct work *work, size_t i)
{
    double sum = 0;

    for (size_t k = 0; k < work->sum.term_count; k++) {
        const struct weft_device_term *term = &work->terms[k];
        double x = get(&work->vectors[k], i);
        double factor = rounded(work, term->factor == 0 ? 1 : term->factor);

        if (!isfinite(x) && (term->flags & WEFT_DEVICE_COUNT)) {
            work->counted.count++;
            if (i < work->counted.first)
                work->counted.first = i;
        }
        if (!isfinite(x) && (term->flags & WEFT_DEVICE_CLEAR))
            x = 0;
        x = rounded(work, x * factor);
        sum = k == 0 ? x : rounded(work, sum + x);
    }
    return sum;
}

/* What `to` is to have; doubles hold products and quotients of floats so that rounding them again
 * is rounding once (as do sums). */
static void expect(struct work *work)
{
    struct vector *to = &work->vectors[VECTORS - 1], *less = &work->vectors[VECTORS - 2];

    for (size_t i = 0; i < to->of.count; i++) {
        double x = add_terms(work, i);

        if (!work->sum.to)
            continue;
        x = rounded(work, x * rounded(work, work->sum.factor == 0 ? 1 : work->sum.factor));
        x = rounded(work, x / rounded(work, work->sum.divisor == 0 ? 1 : work->sum.divisor));
        if (work->sum.less)
            x = rounded(work, x - get(less, i));
        if (work->sum.adds)
            x = rounded(work, get(to, i) + x);
        OK(weft_convert(to->of.dtype, to->expected + i * weft_dtype_size(to->of.dtype), WEFT_F64,
                        &x, 1));
    }
}

static void draw_sum(struct work *work, struct draw *draw)
{
    static const double factors[] = {0, 1, -1, 0.25, 3, -1.0 / 3};
    struct weft_device_sum *sum = &work->sum;

    weft_device_sum_init(sum);
    sum->terms = work->terms;
    sum->term_count = 1 + draw_below(draw, draw_below(draw, 3) ? 3 : WEFT_DEVICE_TERMS);
    for (size_t k = 0; k < sum->term_count; k++)
        work->terms[k] =
            (struct weft_device_term){&work->vectors[k].of, factors[draw_below(draw, 6)],
                                      draw_below(draw, 2) ? draw_below(draw, 4) : 0};
    sum->to = draw_below(draw, 6) ? &work->vectors[VECTORS - 1].of : NULL;
    sum->less = draw_below(draw, 3) ? NULL : &work->vectors[VECTORS - 2].of;
    sum->factor = factors[draw_below(draw, 6)];
    sum->divisor = draw_below(draw, 2) ? 0 : 1 + draw_below(draw, 7);
    sum->adds = (int)draw_below(draw, 2);
    sum->found = work->found;
}

Test(vectors, sums_are_those_of_plain_loops, .timeout = 300)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    struct stage stage;
    struct draw draw = {7};

    begin(&stage);
    for (int round = 0; round < 60; round++) {
        struct work work = {.found = device_pin(sizeof *work.found)};
        size_t count = draw_below(&draw, 5) ? draw_below(&draw, 200) : draw_below(&draw, MOST);
        unsigned widest = 3 + draw_below(&draw, 2);

        for (int k = 0; k < VECTORS; k++)
            make_vector(&work.vectors[k], dtypes[draw_below(&draw, widest)], count, &draw);
        *work.found = (struct weft_device_found){.first = UINT64_MAX};
        work.counted = *work.found;
        draw_sum(&work, &draw);
        /* Those that take no part have a datatype that does not matter. */
        for (int k = 0; k < VECTORS; k++)
            if ((size_t)k >= work.sum.term_count && k < VECTORS - (work.sum.to ? 2 : 0))
                work.vectors[k].of.dtype = WEFT_F16;
        if (!work.sum.less || !work.sum.to)
            work.vectors[VECTORS - 2].of.dtype = WEFT_F16;
        if (!work.sum.to)
            work.vectors[VECTORS - 1].of.dtype = WEFT_F16;
        work.sum.less = work.sum.to ? work.sum.less : NULL;
        expect(&work);
        OK(execute(&stage, &work));
        CHECK(has_expected(&work.vectors[VECTORS - 1]));
        CHECK(work.found->count == work.counted.count && work.found->first == work.counted.first);
        for (int k = 0; k < VECTORS; k++)
            free_vector(&work.vectors[k]);
        device_unpin(work.found);
    }
    end(&stage);
}

/* ---- fills and copies ---- */

static int fill(struct work *work, void *stream)
{
    static const uint64_t bits = UINT64_C(0x8182838485868788);

    return weft_device_fill(&work->vectors[0].of, &bits, stream);
}

static int copy(struct work *work, void *stream)
{
    return weft_device_copy(&work->vectors[0].of, &work->vectors[1].of, stream);
}

Test(vectors, fills_and_copies, .timeout = 300)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_F32, WEFT_F64};
    static const uint64_t bits = UINT64_C(0x8182838485868788);
    struct stage stage;
    struct draw draw = {8};

    begin(&stage);
    for (int round = 0; round < 40; round++) {
        struct work work = {.instead = round % 2 ? fill : copy};
        weft_dtype_t dtype = dtypes[draw_below(&draw, 3)];
        size_t size = weft_dtype_size(dtype), count = draw_below(&draw, MOST);

        for (int k = 0; k < 2; k++)
            make_vector(&work.vectors[k], dtype, count, &draw);
        for (size_t i = 0; i < count && round % 2; i++)
            memcpy(work.vectors[0].expected + i * size, &bits, size);
        if (round % 2 == 0)
            memcpy(work.vectors[0].expected, work.vectors[1].expected, count * size);
        OK(execute(&stage, &work));
        CHECK(has_expected(&work.vectors[0]) && has_expected(&work.vectors[1]));
        for (int k = 0; k < 2; k++)
            free_vector(&work.vectors[k]);
    }
    end(&stage);
}

/* ---- squares ---- */

static int square(struct work *work, void *stream)
{
    return weft_device_squares(&work->vectors[0].of, work->terms[0].flags, work->squares, stream);
}

Test(vectors, squares_are_added_up, .timeout = 300)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    const size_t bytes = WEFT_DEVICE_SQUARES * sizeof(double);
    struct stage stage;
    struct draw draw = {11};

    begin(&stage);
    for (int round = 0; round < 30; round++) {
        struct work work = {.instead = square, .squares = device_pin(bytes)};
        double expected = 0, sums[2] = {0};

        make_vector(&work.vectors[0], dtypes[round % 4], draw_below(&draw, MOST), &draw);
        work.terms[0].flags = round % 3 ? WEFT_DEVICE_CLEAR : 0;
        for (size_t i = 0; i < work.vectors[0].of.count; i++) {
            double x = get(&work.vectors[0], i);

            expected += round % 3 && !isfinite(x) ? 0 : x * x;
        }
        for (int again = 0; again < 2; again++) {
            memset(work.squares, 0, bytes);
            OK(execute(&stage, &work));
            for (size_t i = 0; i < WEFT_DEVICE_SQUARES; i++)
                sums[again] += work.squares[i];
        }
        CHECK(isfinite(expected) ? fabs(sums[0] - expected) <= 1e-12 * expected
                                 : !isfinite(sums[0]));
        CHECK(memcmp(&sums[0], &sums[1], sizeof sums[0]) == 0); /* the same bits every time */
        free_vector(&work.vectors[0]);
        device_unpin(work.squares);
    }
    end(&stage);
}

/* ---- pairs ---- */

static int scatter_add(struct work *work, void *stream)
{
    return weft_device_scatter_add(&work->pairs, work->sum.factor, &work->vectors[0].of, stream);
}

static int scatter(struct work *work, void *stream)
{
    return weft_device_scatter(&work->pairs, &work->vectors[0].of, stream);
}

/* Every few elements one; on pinned memory of the host. */
static void draw_pairs(struct work *work, weft_dtype_t dtype, struct draw *draw)
{
    struct weft_sparse *pairs = &work->pairs;
    size_t count = work->vectors[0].of.count, size = weft_dtype_size(dtype);
    int wide = (int)draw_below(draw, 2);

    *pairs = (struct weft_sparse){.indices = device_pin(count * sizeof(uint64_t)),
                                  .values = device_pin(count * size),
                                  .index_dtype = wide ? WEFT_U64 : WEFT_U32,
                                  .dtype = dtype};
    for (size_t i = draw_below(draw, 5); i < count; i += 1 + draw_below(draw, 5)) {
        double value = ((double)draw_below(draw, 2001) - 1000) / 64;
        size_t at = pairs->count++;

        if (wide)
            ((uint64_t *)pairs->indices)[at] = i;
        else
            ((uint32_t *)pairs->indices)[at] = (uint32_t)i;
        OK(weft_convert(dtype, (char *)pairs->values + at * size, WEFT_F64, &value, 1));
    }
}

/* What is to come of a pair, by the element that its value is of. */
static void expect_pair(struct work *work, size_t i)
{
    const struct weft_sparse *pairs = &work->pairs;
    struct vector *to = &work->vectors[0];
    const size_t index = pairs->index_dtype == WEFT_U64 ? ((uint64_t *)pairs->indices)[i]
                                                        : ((uint32_t *)pairs->indices)[i];
    double x = get(to, index), y = 0;

    if (pairs->values)
        OK(weft_convert(WEFT_F64, &y, pairs->dtype,
                        (char *)pairs->values + i * weft_dtype_size(pairs->dtype), 1));
    if (work->instead == scatter_add)
        y = rounded(work, x + rounded(work, y * rounded(work, work->sum.factor)));
    OK(weft_convert(to->of.dtype, to->expected + index * weft_dtype_size(to->of.dtype), WEFT_F64,
                    &y, 1));
}

Test(vectors, pairs_are_added_and_set, .timeout = 300)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    static const double scales[] = {1, -1, 0.25, -1.0 / 3};
    struct stage stage;
    struct draw draw = {10};

    begin(&stage);
    for (int round = 0; round < 48; round++) {
        struct work work = {.instead = round % 2 ? scatter_add : scatter};
        weft_dtype_t dtype = dtypes[round / 2 % 4];

        make_vector(&work.vectors[0], dtype, draw_below(&draw, MOST), &draw);
        work.vectors[0].of.pieces = NULL;
        work.vectors[0].of.data = work.vectors[0].memory;
        draw_pairs(&work, draw_below(&draw, 2) ? dtype : WEFT_F32, &draw);
        struct weft_sparse pairs = work.pairs;
        if (round % 6 == 0)
            work.pairs.values = NULL;
        work.sum.factor = scales[draw_below(&draw, 4)];
        for (size_t i = 0; i < pairs.count; i++)
            expect_pair(&work, i);
        OK(execute(&stage, &work));
        CHECK(has_expected(&work.vectors[0]));
        free_vector(&work.vectors[0]);
        device_unpin(pairs.indices);
        device_unpin(pairs.values);
    }
    end(&stage);
}

/* ---- what is refused ---- */

static int combine(struct work *work, void *stream)
{
    return weft_device_combine(&work->sum, stream);
}

static void refused(struct stage *stage, struct work *work, int (*instead)(struct work *, void *),
                    int status, const char *text)
{
    work->instead = instead;
    work->status = status;
    work->text = text;
    OK(execute(stage, work));
}

Test(vectors, that_do_not_fit_are_refused, .timeout = 300)
{
    struct work work = {0};
    struct weft_piece short_list[] = {{&work, 3}};
    struct stage stage;
    struct draw draw = {9};

    begin(&stage);
    make_vector(&work.vectors[0], WEFT_F32, 4, &draw);
    make_vector(&work.vectors[1], WEFT_F32, 4, &draw);
    struct weft_argument *x = &work.vectors[0].of, *y = &work.vectors[1].of;
    *x = (struct weft_argument){.data = work.vectors[0].memory, .count = 4, .dtype = WEFT_F32};
    *y = (struct weft_argument){.data = work.vectors[1].memory, .count = 4, .dtype = WEFT_F32};
    weft_device_sum_init(&work.sum);
    work.sum.terms = work.terms;
    work.sum.term_count = 1;
    work.terms[0].vector = x;
    work.sum.to = y;
    y->count = 5;
    refused(&stage, &work, combine, WEFT_ERR_INVALID, "sum->to->count is 5, expected 4");
    refused(&stage, &work, copy, WEFT_ERR_INVALID, "from->count is 5, expected 4");
    y->count = 4;
    y->dtype = WEFT_I32;
    refused(&stage, &work, combine, WEFT_ERR_INVALID,
            "sum->to->dtype is i32, expected f16, bf16, f32 or");
    refused(&stage, &work, copy, WEFT_ERR_INVALID, "from->dtype is i32, expected f32");
    y->dtype = WEFT_F32;
    y->data = NULL;
    refused(&stage, &work, combine, WEFT_ERR_INVALID, "sum->to->data is NULL, expected 4 elements");
    y->pieces = short_list;
    y->piece_count = 1;
    refused(&stage, &work, combine, WEFT_ERR_INVALID,
            "sum->to->pieces have 3 elements, expected 4");
    short_list[0].data = NULL;
    refused(&stage, &work, combine, WEFT_ERR_INVALID, "sum->to->pieces[0].data is NULL");
    work.terms[0].flags = WEFT_DEVICE_COUNT;
    refused(&stage, &work, combine, WEFT_ERR_INVALID,
            "sum->found is NULL, expected where term 0 is");
    x->dtype = weft_dtype_opaque(24);
    refused(&stage, &work, fill, WEFT_ERR_UNSUPPORTED,
            "to->dtype is bytes24, expected elements of 1, 2,");
    /* Not in a function of a device; and what such a function returns fails its run. */
    CHECK_STATUS(weft_device_copy(x, x, NULL), WEFT_ERR_STATE);
    work.text = NULL;
    CHECK_STATUS(execute(&stage, &work), WEFT_ERR_COMPUTE);
    CHECK_TEXT(weft_error_text(), "weft_device_fill: to->dtype is bytes24");
    for (int k = 0; k < 2; k++)
        free_vector(&work.vectors[k]);
    end(&stage);
}

Test(vectors, pairs_that_do_not_fit_are_refused, .timeout = 300)
{
    uint32_t index = 0;
    float value = 1;
    struct weft_piece piece = {&value, 1};
    struct work work = {.sum.factor = 1};
    struct stage stage;
    struct draw draw = {12};

    begin(&stage);
    make_vector(&work.vectors[0], WEFT_F32, 4, &draw);
    struct weft_argument *x = &work.vectors[0].of;
    *x = (struct weft_argument){.data = work.vectors[0].memory, .count = 4, .dtype = WEFT_F32};
    work.pairs = (struct weft_sparse){.indices = &index,
                                      .values = &value,
                                      .count = 1,
                                      .index_dtype = WEFT_U32,
                                      .dtype = WEFT_F32};
    work.pairs.dtype = WEFT_F64;
    refused(&stage, &work, scatter_add, WEFT_ERR_INVALID, "pairs->dtype is 11, expected that of");
    work.pairs.dtype = WEFT_F32;
    work.pairs.index_dtype = WEFT_I32;
    refused(&stage, &work, scatter, WEFT_ERR_INVALID, "expected WEFT_U32 or WEFT_U64");
    work.pairs.index_dtype = WEFT_U32;
    work.pairs.values = NULL;
    refused(&stage, &work, scatter_add, WEFT_ERR_INVALID, "pairs->values is NULL, expected 1 pair");
    work.pairs.indices = NULL;
    refused(&stage, &work, scatter, WEFT_ERR_INVALID, "pairs->indices is NULL, expected 1 pairs");
    refused(&stage, &work, square, WEFT_ERR_INVALID, "argument `sums` is NULL");
    x->pieces = &piece;
    x->piece_count = x->count = 1;
    refused(&stage, &work, scatter, WEFT_ERR_UNSUPPORTED, "to->pieces is a list of 1, expected a");
    x->dtype = WEFT_I32;
    refused(&stage, &work, scatter, WEFT_ERR_INVALID, "to->dtype is i32, expected f16, bf16, f32");
    refused(&stage, &work, square, WEFT_ERR_INVALID, "vector->dtype is i32, expected f16, bf16");
    *x = (struct weft_argument){.data = work.vectors[0].memory, .count = 4, .dtype = WEFT_F32};
    work.pairs.indices = &index;
    CHECK_STATUS(weft_device_scatter(&work.pairs, x, NULL), WEFT_ERR_STATE);
    CHECK_STATUS(weft_device_scatter_add(NULL, 1, x, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_device_squares(x, 0, (double *)&work, NULL), WEFT_ERR_STATE);
    free_vector(&work.vectors[0]);
    end(&stage);
}
