/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of schedules on compressed vectors: what they compute and refuse. */
#include <criterion/criterion.h>
#include <math.h>

#include "operations_job.h"
#include "support/sweep.h"

/* ---- quantised ---- */

static void quantise_as_the_function_does(const struct weft_quantiser *quantiser, size_t count)
{
    struct weft_op *encode = make_op(WEFT_COMPRESS_QUANTISE, quantiser, 0);
    struct weft_op *decode = make_op(WEFT_COMPRESS_DEQUANTISE, quantiser, 0);
    struct weft_op *add = make_op(WEFT_COMPRESS_DEQUANTISE_ADD, quantiser, 0);
    size_t length = weft_quantised_bytes(quantiser, count);
    float *values = numbers(count, count), *back = numbers(count, 7), *sums = numbers(count, 8);
    float *expected = numbers(count, 8);
    unsigned char *bytes = malloc(length + 1), *alike = malloc(length + 1);

    CHECK(bytes && alike);
    OK(execute(encode,
               (struct part[]){BYTES(bytes, length, WEFT_WRITE), F32(values, count, WEFT_READ)},
               2));
    OK(weft_quantise(quantiser, weft__hash_three(0, 0, 0), values, count, alike, NULL));
    cr_assert(same(bytes, alike, length), "%zu values", count);
    OK(execute(decode,
               (struct part[]){F32(back, count, WEFT_WRITE), BYTES(bytes, length, WEFT_READ)}, 2));
    OK(weft_dequantise(quantiser, bytes, count, values));
    cr_assert(same(back, values, count * sizeof *back), "%zu values", count);
    OK(execute(add, (struct part[]){F32(sums, count, WEFT_UPDATE), BYTES(bytes, length, WEFT_READ)},
               2));
    OK(weft_dequantise_add(quantiser, bytes, count, expected));
    cr_assert(same(sums, expected, count * sizeof *sums), "%zu values", count);
    free(alike);
    free(bytes);
    free(expected);
    free(sums);
    free(back);
    free(values);
    weft_op_destroy(add);
    weft_op_destroy(decode);
    weft_op_destroy(encode);
}

Test(operations, quantising_in_parts_gives_what_the_function_gives)
{
    static const size_t counts[] = {0, 1, 7, 512, 4096, 4097, 32768, 100000, 300001};
    static const int bits[] = {2, 4, 8, WEFT_QUANTISE_SIGN};
    static const size_t buckets[] = {512, 8, 1000, 65536};

    for (size_t b = 0; b < 4; b++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct weft_quantiser quantiser;

            weft_quantiser_init(&quantiser);
            quantiser.bits = bits[b];
            quantiser.bucket = buckets[(b + i) % 4];
            quantiser.norm = i % 2 ? WEFT_QUANTISE_L2 : WEFT_QUANTISE_MAX;
            quantiser.seed = 5 + i;
            quantise_as_the_function_does(&quantiser, counts[i]);
        }
}

/* Executes the quantising of the same values several times; bytes of each. */
struct drawing {
    float *values;
    unsigned char *bytes[3]; /* a version each */
    size_t count, length;
    int joins, rank;
};

static int quantise_versions(struct weft_context *context, void *user)
{
    struct drawing *drawing = (struct drawing *)user + weft_context_rank(context);
    struct weft_op *op = make_op(WEFT_COMPRESS_QUANTISE, NULL, 0);
    struct weft_schedule *s = new_schedule(weft_context_rank(context), weft_context_size(context));
    weft_slot_t to = weft_schedule_add_slot(s, "to", WEFT_U8, drawing->length, WEFT_SLOT_OUTPUT);
    weft_slot_t from = weft_schedule_add_slot(s, "from", WEFT_F32, drawing->count, WEFT_SLOT_INPUT);
    const struct weft_compute_argument arguments[] = {
        {.region = weft_region_at(to, 0, drawing->length), .access = WEFT_WRITE},
        {.region = weft_region_at(from, 0, drawing->count), .access = WEFT_READ}};

    for (int i = 0; i < drawing->joins; i++)
        weft_schedule_add_join(s);
    CHECK(weft_schedule_add_compute(s, op, arguments, 2, 0) >= 0);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(bind_slot(run, from, drawing->values));
    for (int i = 0; i < 3; i++) {
        OK(bind_slot(run, to, drawing->bytes[i]));
        OK(weft_run_execute(run));
    }
    weft_run_destroy(run);
    weft_op_destroy(op);
    return WEFT_OK;
}

Test(operations, draws_depend_on_version_rank_and_node_and_on_nothing_else)
{
    enum { COUNT = 3000, RANKS = 2, TRIALS = 3 };
    struct drawing drawings[TRIALS][RANKS];
    float *values = numbers(COUNT, 3);
    size_t length = weft_quantised_bytes(NULL, COUNT);

    for (int t = 0; t < TRIALS; t++) {
        for (int r = 0; r < RANKS; r++) {
            drawings[t][r] = (struct drawing){
                .values = values, .count = COUNT, .length = length, .joins = t == 2, .rank = r};
            for (int v = 0; v < 3; v++)
                drawings[t][r].bytes[v] = calloc(1, length);
        }
        OK(weft_virtual_run(RANKS, NULL, quantise_versions, drawings[t]));
    }
    for (int i = 0; i < TRIALS * RANKS * 3; i++)
        for (int j = 0; j < i; j++) {
            int t = i / 6, r = i / 3 % 2, v = i % 3, u = j / 6, q = j / 3 % 2, w = j % 3;
            int alike = r == q && v == w && t != 2 && u != 2;

            cr_assert_eq(same(drawings[t][r].bytes[v], drawings[u][q].bytes[w], length), alike,
                         "trial %d rank %d version %d, and %d %d %d", t, r, v, u, q, w);
        }
    for (int t = 0; t < TRIALS; t++)
        for (int r = 0; r < RANKS; r++)
            for (int v = 0; v < 3; v++)
                free(drawings[t][r].bytes[v]);
    free(values);
}

Test(operations, what_is_not_finite_fails_the_run_or_counts_as_zero)
{
    enum { COUNT = 100000 };
    struct weft_quantiser quantiser;
    size_t length = weft_quantised_bytes(NULL, COUNT);
    float *values = numbers(COUNT, 9), *back = numbers(COUNT, 1);
    unsigned char *bytes = malloc(length);
    const struct part parts[] = {BYTES(bytes, length, WEFT_WRITE), F32(values, COUNT, WEFT_READ)};
    struct weft_op *op = make_op(WEFT_COMPRESS_QUANTISE, NULL, 0);

    values[70000] = NAN;
    values[70001] = -INFINITY;
    CHECK_STATUS(execute(op, parts, 2), WEFT_ERR_COMPUTE);
    CHECK_TEXT(weft_error_text(), "quantise-4-512-max: 2 of the values 65536 .. 98303 are NaN");
    weft_op_destroy(op);
    weft_quantiser_init(&quantiser);
    quantiser.nan = WEFT_NAN_ZERO;
    op = make_op(WEFT_COMPRESS_QUANTISE, &quantiser, 0);
    OK(execute(op, parts, 2));
    OK(weft_dequantise(&quantiser, bytes, COUNT, back));
    cr_assert_eq(back[70000], 0);
    cr_assert_eq(back[70001], 0);
    weft_op_destroy(op);
    free(bytes);
    free(back);
    free(values);
}

/* ---- projected ---- */

struct sizes {
    size_t slice, components, count;
};

static const struct sizes all_sizes[] = {
    {1, 0, 5},        {1, 1, 5},        {8, 3, 0},           {8, 3, 1},          {768, 20, 76801},
    {768, 7, 300000}, {768, 0, 300000}, {4608, 99, 60001},   {3000, 2000, 3000}, {3000, 2000, 9001},
    {300, 300, 400},  {70000, 40, 100}, {70000, 40, 150000},
};

static void project_as_the_function_does(const struct sizes *sizes, int mean, int squares)
{
    const size_t K = sizes->slice, d = sizes->components, slices = (sizes->count + K - 1) / K;
    struct weft_op *op = make_op(WEFT_COMPRESS_PROJECT, NULL, K);
    float *values = numbers(sizes->count, 1), *basis = numbers(K * d, 2);
    float *means = numbers(sizes->count, 3), *out = numbers(slices * d, 4);
    float *expected = numbers(slices * d, 4);
    double sums[3] = {1, 2, 3};
    struct weft_projection_squares found = {1, 2, 3};
    struct weft_projection projection = {sizeof projection, K, d, basis};
    struct part parts[MOST_REGIONS] = {F32(out, slices * d, WEFT_WRITE),
                                       F32(values, sizes->count, WEFT_READ),
                                       F32(basis, K * d, WEFT_READ)};
    size_t count = 3;

    if (mean)
        parts[count++] = F32(means, sizes->count, WEFT_READ);
    if (squares)
        parts[count++] = F64(sums, 3, WEFT_UPDATE);
    OK(execute(op, parts, count));
    OK(weft_project(&projection, values, sizes->count, mean ? means : NULL, 1, expected,
                    squares ? &found : NULL));
    cr_assert(same(out, expected, slices * d * sizeof *out), "K %zu d %zu count %zu", K, d,
              sizes->count);
    const double close = 1e-12;
    cr_assert_float_eq(sums[0], found.values, close * found.values);
    cr_assert_float_eq(sums[1], found.centred, close * found.centred);
    cr_assert_float_eq(sums[2], found.kept, close * found.kept);
    free(expected);
    free(out);
    free(means);
    free(basis);
    free(values);
    weft_op_destroy(op);
}

Test(operations, projecting_in_parts_gives_what_the_function_gives)
{
    for (size_t i = 0; i < sizeof all_sizes / sizeof all_sizes[0]; i++)
        for (int how = 0; how < 4; how++)
            project_as_the_function_does(&all_sizes[i], how & 1, how >> 1);
}

static void reconstruct_as_the_function_does(const struct sizes *sizes, int mean)
{
    const size_t K = sizes->slice, d = sizes->components, slices = (sizes->count + K - 1) / K;
    struct weft_op *op = make_op(WEFT_COMPRESS_RECONSTRUCT, NULL, K);
    float *values = numbers(sizes->count, 1), *basis = numbers(K * d, 2);
    float *means = numbers(sizes->count, 3), *components = numbers(slices * d, 4);
    float *expected = numbers(sizes->count, 5);
    struct weft_projection projection = {sizeof projection, K, d, basis};
    const struct part parts[] = {F32(values, sizes->count, WEFT_WRITE),
                                 F32(components, slices * d, WEFT_READ),
                                 F32(basis, K * d, WEFT_READ), F32(means, sizes->count, WEFT_READ)};

    OK(execute(op, parts, mean ? 4 : 3));
    OK(weft_reconstruct(&projection, components, sizes->count, mean ? means : NULL, expected));
    cr_assert(same(values, expected, sizes->count * sizeof *values), "K %zu d %zu count %zu", K, d,
              sizes->count);
    free(expected);
    free(components);
    free(means);
    free(basis);
    free(values);
    weft_op_destroy(op);
}

Test(operations, reconstructing_in_parts_gives_what_the_function_gives)
{
    for (size_t i = 0; i < sizeof all_sizes / sizeof all_sizes[0]; i++)
        for (int mean = 0; mean < 2; mean++)
            reconstruct_as_the_function_does(&all_sizes[i], mean);
}

Test(operations, correlating_in_parts_gives_what_the_function_gives)
{
    static const struct {
        size_t rows, slice, components;
    } sizes[] = {{0, 5, 3},      {5, 3, 0},        {1, 1, 1},      {64, 576, 2},
                 {512, 4608, 4}, {100000, 100, 3}, {3, 70000, 30}, {20, 300, 300}};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t rows = sizes[i].rows, K = sizes[i].slice, d = sizes[i].components;
        struct weft_op *op = make_op(WEFT_COMPRESS_CORRELATE, NULL, K);
        float *values = numbers(rows * K, 1), *components = numbers(rows * d, 2);
        float *out = numbers(K * d, 3), *expected = numbers(K * d, 4);

        OK(execute(op,
                   (struct part[]){F32(out, K * d, WEFT_WRITE), F32(values, rows * K, WEFT_READ),
                                   F32(components, rows * d, WEFT_READ)},
                   3));
        OK(weft_correlate(values, rows, K, components, d, expected));
        cr_assert(same(out, expected, K * d * sizeof *out), "%zu rows of %zu and %zu", rows, K, d);
        free(expected);
        free(out);
        free(components);
        free(values);
        weft_op_destroy(op);
    }
}

Test(operations, orthonormalising_in_parts_gives_what_the_function_gives)
{
    static const struct {
        size_t rows, columns;
    } sizes[] = {{0, 3},     {1, 1},      {3, 5},      {64, 2},     {4608, 4},
                 {30000, 8}, {200000, 3}, {25088, 32}, {1024, 1024}};

    for (size_t i = 0; i < SWEPT(sizeof sizes / sizeof sizes[0], 6); i++) {
        const size_t rows = sizes[i].rows, columns = sizes[i].columns;
        struct weft_op *op = make_op(WEFT_COMPRESS_ORTHONORMALISE, NULL, columns);
        float *matrix = numbers(rows * columns, 1), *expected = numbers(rows * columns, 1);
        double *work = calloc(WEFT_ORTHONORMALISE_WORK(columns), sizeof *work);

        OK(execute(op,
                   (struct part[]){F32(matrix, rows * columns, WEFT_UPDATE),
                                   F64(work, WEFT_ORTHONORMALISE_WORK(columns), WEFT_WRITE)},
                   2));
        OK(weft_orthonormalise(expected, rows, columns, NULL));
        cr_assert(same(matrix, expected, rows * columns * sizeof *matrix), "%zu x %zu", rows,
                  columns);
        if (rows > 0) {
            matrix[rows * columns - 1] = INFINITY;
            CHECK_STATUS(
                execute(op,
                        (struct part[]){F32(matrix, rows * columns, WEFT_UPDATE),
                                        F64(work, WEFT_ORTHONORMALISE_WORK(columns), WEFT_WRITE)},
                        2),
                WEFT_ERR_COMPUTE);
            CHECK_TEXT(weft_error_text(), ": the matrix has NaNs or infinities, expected finite");
        }
        free(work);
        free(expected);
        free(matrix);
        weft_op_destroy(op);
    }
}

/* ---- in parts ---- */

Test(operations, a_long_product_lets_the_engine_look_after_other_things)
{
    enum { K = 2048, D = 256, SLICES = 64 };
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_op *op = make_op(WEFT_COMPRESS_PROJECT, NULL, K);
    float *values = numbers((size_t)K * SLICES, 1), *basis = numbers((size_t)K * D, 2);
    float *out = numbers((size_t)D * SLICES, 3);
    const struct part parts[] = {F32(out, D * SLICES, WEFT_WRITE),
                                 F32(values, K * SLICES, WEFT_READ), F32(basis, K * D, WEFT_READ)};
    struct weft_schedule *s = make_schedule(op, parts, 3, 0);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_node_t join = weft_schedule_add_join(s);

    OK(weft_schedule_add_order(s, event, join));
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    for (size_t i = 0; i < 3; i++)
        OK(bind_slot(run, (weft_slot_t)i, parts[i].data));
    out[D * SLICES - 1] = 1234;
    OK(weft_run_start(run));
    OK(weft_run_fire(run, event));
    OK(weft_run_wait_node(run, join, WEFT_NEVER));
    cr_assert_eq(out[D * SLICES - 1], 1234, "all was computed at once");
    OK(weft_run_wait(run, WEFT_NEVER));
    cr_assert_neq(out[D * SLICES - 1], 1234);
    weft_run_destroy(run);
    weft_op_destroy(op);
    free(out);
    free(basis);
    free(values);
    alone_destroy(&alone);
}

/* ---- what is refused ---- */

static void refused(const char *name, const struct part *parts, size_t count, int status,
                    const char *text)
{
    struct weft_op *op = NULL;

    OK(weft_compress_op_parse(name, &op));
    CHECK_STATUS(execute(op, parts, count), status);
    CHECK_TEXT(weft_error_text(), text);
    weft_op_destroy(op);
}

Test(operations, regions_that_do_not_fit_fail_the_run_with_a_text)
{
    float a[64] = {0}, b[64] = {0}, c[64] = {0}, d[64] = {0};
    double e[64] = {0};
    unsigned char bytes[64] = {0};
    const int bad = WEFT_ERR_COMPUTE;

#define REFUSED(name, text, ...)                                                                   \
    refused(name, (const struct part[]){__VA_ARGS__},                                              \
            sizeof((const struct part[]){__VA_ARGS__}) / sizeof(struct part), bad, text)
    REFUSED("quantise-4-64-max", "quantise-4-64-max: 1 regions, expected 2",
            BYTES(bytes, 1, WEFT_WRITE));
    REFUSED("quantise-4-64-max", "region 0 (the bytes) is 8 elements of f32, expected u8",
            F32(a, 8, WEFT_WRITE), F32(b, 8, WEFT_READ));
    REFUSED("quantise-4-64-max", "region 0 (the bytes) is 9 elements, expected 8 for 8 values",
            BYTES(bytes, 9, WEFT_WRITE), F32(b, 8, WEFT_READ));
    REFUSED("dequantise-sign-8", "region 1 (the bytes) is 4 elements, expected 5 for 8 values",
            F32(a, 8, WEFT_WRITE), BYTES(bytes, 4, WEFT_READ));
    REFUSED("dequantise-add-2-8-l2", "region 0 (the values) is 8 elements of u8, expected f32",
            BYTES(bytes, 8, WEFT_UPDATE), BYTES(bytes, 4, WEFT_READ));
    REFUSED("project-4", "project-4: 2 regions, expected 3 to 5", F32(a, 8, WEFT_WRITE),
            F32(b, 8, WEFT_READ));
    REFUSED("project-4", "region 2 (the basis) is 9 elements, expected a multiple of 4",
            F32(a, 4, WEFT_WRITE), F32(b, 8, WEFT_READ), F32(c, 9, WEFT_READ));
    REFUSED("project-4", "region 2 (the basis) is 20 elements, expected a multiple of 4, at most",
            F32(a, 10, WEFT_WRITE), F32(b, 8, WEFT_READ), F32(c, 20, WEFT_READ));
    REFUSED("project-4",
            "region 0 (the components) is 5 elements, expected 6: 2 for each of 3 slices",
            F32(a, 5, WEFT_WRITE), F32(b, 9, WEFT_READ), F32(c, 8, WEFT_READ));
    REFUSED("project-4", "region 3 (the mean) is 8 elements, expected 9, as the values",
            F32(a, 6, WEFT_WRITE), F32(b, 9, WEFT_READ), F32(c, 8, WEFT_READ),
            F32(d, 8, WEFT_READ));
    REFUSED("project-4", "region 3 (the squares) is 4 elements, expected 3", F32(a, 6, WEFT_WRITE),
            F32(b, 9, WEFT_READ), F32(c, 8, WEFT_READ), F64(e, 4, WEFT_UPDATE));
    REFUSED("project-4", "region 4 (the squares) is 9 elements of f32, expected f64",
            F32(a, 6, WEFT_WRITE), F32(b, 9, WEFT_READ), F32(c, 8, WEFT_READ), F32(d, 9, WEFT_READ),
            F32(d, 9, WEFT_READ));
    REFUSED("project-4", "region 4 is the squares again", F32(a, 6, WEFT_WRITE),
            F32(b, 9, WEFT_READ), F32(c, 8, WEFT_READ), F64(e, 3, WEFT_UPDATE),
            F64(e, 3, WEFT_UPDATE));
    REFUSED("reconstruct-4", "region 3 (the mean) is 3 elements of f64, expected f32",
            F32(a, 9, WEFT_WRITE), F32(b, 6, WEFT_READ), F32(c, 8, WEFT_READ),
            F64(e, 3, WEFT_READ));
    REFUSED("reconstruct-4", "region 1 (the components) is 7 elements, expected 6",
            F32(a, 9, WEFT_WRITE), F32(b, 7, WEFT_READ), F32(c, 8, WEFT_READ));
    REFUSED("correlate-4", "region 1 (the values) is 9 elements, expected rows of 4",
            F32(a, 8, WEFT_WRITE), F32(b, 9, WEFT_READ), F32(c, 4, WEFT_READ));
    REFUSED("correlate-4", "region 0 (the products) is 9 elements, expected 4 rows",
            F32(a, 9, WEFT_WRITE), F32(b, 8, WEFT_READ), F32(c, 4, WEFT_READ));
    REFUSED("correlate-4", "region 2 (the components) is 5 elements, expected 4: 2 rows of 2",
            F32(a, 8, WEFT_WRITE), F32(b, 8, WEFT_READ), F32(c, 5, WEFT_READ));
    REFUSED("orthonormalise-2", "region 1 (memory to work in) is 7 elements, expected 8",
            F32(a, 8, WEFT_UPDATE), F64(e, 7, WEFT_WRITE));
    REFUSED("orthonormalise-2", "region 0 (the matrix) is 9 elements, expected rows of 2",
            F32(a, 9, WEFT_UPDATE), F64(e, 8, WEFT_WRITE));
}

Test(operations, regions_that_overlap_fail_the_run)
{
    static float a[64], c[64];
    static double e[64];
    const int bad = WEFT_ERR_COMPUTE;

    REFUSED("project-4", "project-4: regions 0 and 1 overlap, expected memory of their own",
            F32(a, 6, WEFT_WRITE), F32(a + 5, 9, WEFT_READ), F32(c, 8, WEFT_READ));
    REFUSED("reconstruct-4", "regions 0 and 3 overlap", F32(a, 9, WEFT_WRITE), F32(c, 6, WEFT_READ),
            F32(c + 8, 8, WEFT_READ), F32(a + 1, 9, WEFT_READ));
    REFUSED("quantise-4-64-max", "regions 0 and 1 overlap",
            BYTES((unsigned char *)a, 8, WEFT_WRITE), F32(a, 8, WEFT_READ));
    REFUSED("orthonormalise-2", "regions 0 and 1 overlap", F32((float *)e, 8, WEFT_UPDATE),
            F64(e, 8, WEFT_WRITE));

    struct weft_op *op = make_op(WEFT_COMPRESS_RECONSTRUCT, NULL, 4);

    OK(execute(op,
               (struct part[]){F32(a, 9, WEFT_WRITE), F32(c, 6, WEFT_READ),
                               F32(c + 8, 8, WEFT_READ), F32(a, 9, WEFT_READ)},
               4));
    weft_op_destroy(op);
}

/* As it is it is taken; with this region said to be read it is not. */
static void read_only(const char *name, size_t region,
                      const struct weft_compute_argument *arguments, size_t count)
{
    struct weft_compute_argument others[MOST_REGIONS];
    struct weft_schedule *s = new_schedule(0, 1);
    struct weft_op *op = NULL;
    char text[64];

    weft_schedule_add_slot(s, "f", WEFT_F32, 64, WEFT_SLOT_INPUT);
    weft_schedule_add_slot(s, "b", WEFT_U8, 64, WEFT_SLOT_INOUT);
    weft_schedule_add_slot(s, "d", WEFT_F64, 64, WEFT_SLOT_INOUT);
    weft_schedule_add_slot(s, "x", WEFT_F32, 64, WEFT_SLOT_INOUT);
    OK(weft_compress_op_parse(name, &op));
    CHECK(weft_schedule_add_compute(s, op, arguments, count, 0) >= 0);
    memcpy(others, arguments, count * sizeof *others);
    others[region].access = WEFT_READ;
    CHECK(weft_schedule_add_compute(s, op, others, count, 0) == WEFT_ERR_INVALID);
    snprintf(text, sizeof text, "`arguments[%zu]` has access WEFT_READ", region);
    CHECK_TEXT(weft_error_text(), text);
    CHECK_TEXT(weft_error_text(), name);
    weft_op_destroy(op);
    weft_schedule_destroy(s);
}

Test(operations, what_they_write_is_not_only_read)
{
    enum { F, B, D, X };
    const struct {
        const char *name;
        size_t count;
        struct weft_compute_argument arguments[5];
    } nodes[] = {
#define IN(slot, offset, elements) {weft_region_at(slot, offset, elements), WEFT_READ}
#define OUT(slot, offset, elements)                                                                \
    {                                                                                              \
        weft_region_at(slot, offset, elements), WEFT_WRITE                                         \
    }
#define BOTH(slot, offset, elements)                                                               \
    {                                                                                              \
        weft_region_at(slot, offset, elements), WEFT_UPDATE                                        \
    }
        {"quantise-4-64-max", 2, {OUT(B, 0, 8), IN(F, 0, 8)}},
        {"quantise-sign-8", 2, {OUT(B, 0, 5), IN(F, 0, 8)}},
        {"dequantise-4-64-max", 2, {OUT(X, 0, 8), IN(B, 0, 8)}},
        {"dequantise-add-4-64-max", 2, {BOTH(X, 0, 8), IN(B, 0, 8)}},
        {"project-4", 3, {OUT(X, 0, 4), IN(F, 8, 8), IN(F, 16, 8)}},
        {"project-4", 4, {OUT(X, 0, 4), IN(F, 8, 8), IN(F, 16, 8), IN(F, 0, 8)}},
        {"project-4", 4, {OUT(X, 0, 4), IN(F, 8, 8), IN(F, 16, 8), BOTH(D, 0, 3)}},
        {"project-4", 5, {OUT(X, 0, 4), IN(F, 8, 8), IN(F, 16, 8), IN(F, 0, 8), BOTH(D, 0, 3)}},
        {"reconstruct-4", 4, {OUT(X, 0, 8), IN(F, 8, 4), IN(F, 16, 8), IN(F, 0, 8)}},
        {"correlate-4", 3, {OUT(X, 0, 8), IN(F, 8, 8), IN(F, 16, 4)}},
        {"orthonormalise-2", 2, {BOTH(X, 0, 4), OUT(D, 0, 8)}},
#undef IN
#undef OUT
#undef BOTH
    };

    for (size_t n = 0; n < sizeof nodes / sizeof nodes[0]; n++)
        for (size_t i = 0; i < nodes[n].count; i++)
            if (nodes[n].arguments[i].access & WEFT_WRITE)
                read_only(nodes[n].name, i, nodes[n].arguments, nodes[n].count);
}

Test(operations, memory_in_pieces_is_refused)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    float values[16] = {0};
    unsigned char bytes[16];
    struct weft_piece pieces[] = {{values, 8}, {values + 8, 8}};
    struct weft_op *op = make_op(WEFT_COMPRESS_QUANTISE, NULL, 0);
    const struct part parts[] = {BYTES(bytes, 12, WEFT_WRITE), F32(values, 16, WEFT_READ)};
    struct weft_run *run = make_run(alone.context, commit(make_schedule(op, parts, 2, 0)), NULL);

    OK(bind_slot(run, 0, bytes));
    OK(bind_list(run, 1, pieces, 2));
    CHECK_STATUS(weft_run_execute(run), WEFT_ERR_COMPUTE);
    CHECK_TEXT(weft_error_text(), "region 1 (the values) is bound in 2 pieces, expected memory in");
    weft_run_destroy(run);
    weft_op_destroy(op);
    alone_destroy(&alone);
}

static int without_payload(struct weft_context *context, void *user)
{
    static const char *const names[] = {"quantise-4-512-max", "project-100", "orthonormalise-4"};
    (void)user;
    for (int i = 0; i < 3; i++) {
        struct weft_op *op = NULL;
        struct weft_schedule *s =
            new_schedule(weft_context_rank(context), weft_context_size(context));
        weft_slot_t f = weft_schedule_add_slot(s, "f", WEFT_F32, 1000000, WEFT_SLOT_SCRATCH);
        weft_slot_t g = weft_schedule_add_slot(s, "g", WEFT_F32, 1000000, WEFT_SLOT_SCRATCH);
        weft_slot_t u = weft_schedule_add_slot(s, "u", WEFT_U8, 1000000, WEFT_SLOT_SCRATCH);
        weft_slot_t w = weft_schedule_add_slot(s, "w", WEFT_F64, 100, WEFT_SLOT_SCRATCH);
        struct weft_compute_argument arguments[][3] = {
            {{.region = weft_region_at(u, 0, 508), .access = WEFT_WRITE},
             {.region = weft_region_at(f, 0, 1000), .access = WEFT_READ}},
            {{.region = weft_region_at(f, 0, 50000), .access = WEFT_WRITE},
             {.region = weft_region_at(g, 0, 100000), .access = WEFT_READ},
             {.region = weft_region_at(g, 100000, 5000), .access = WEFT_READ}},
            {{.region = weft_region_at(f, 0, 4000), .access = WEFT_UPDATE},
             {.region = weft_region_at(w, 0, 12), .access = WEFT_WRITE}}};

        OK(weft_compress_op_parse(names[i], &op));
        CHECK(weft_schedule_add_compute(s, op, arguments[i], i == 1 ? 3 : 2, 0) >= 0);
        struct weft_run *run = make_run(context, commit(s), NULL);
        OK(weft_run_execute(run));
        weft_run_destroy(run);
        weft_op_destroy(op);
    }
    return WEFT_OK;
}

Test(operations, virtual_ranks_without_payload_touch_nothing)
{
    struct weft_virtual_config config;

    weft_virtual_config_init(&config);
    config.no_payload = 1;
    OK(weft_virtual_run(3, &config, without_payload, NULL));
}
