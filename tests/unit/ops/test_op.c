/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes and operations as objects: names, what supports what, the user's operations, misuse. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/graph/op.h"

static void expect_error(int status, int expected, const char *word)
{
    cr_expect_eq(status, expected, "%s, expected %s: %s", weft_status_name(status),
                 weft_status_name(expected), weft_error_text());
    cr_expect_not_null(strstr(weft_error_text(), word), "\"%s\" does not name %s",
                       weft_error_text(), word);
}

/* ---- datatypes ---- */

Test(op, every_datatype_is_found_by_its_name)
{
    static const size_t sizes[] = {4, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 8};

    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        weft_dtype_t found = WEFT_DTYPE_COUNT;

        cr_expect_eq(weft_dtype_size((weft_dtype_t)i), sizes[i]);
        cr_expect_eq(weft_dtype_parse(weft_dtype_name((weft_dtype_t)i), &found), WEFT_OK);
        cr_expect_eq((int)found, i);
    }
    cr_expect_str_eq(weft_dtype_name(WEFT_BF16), "bf16");
}

Test(op, a_datatype_that_does_not_exist_has_no_size_and_no_name)
{
    cr_expect_eq(weft_dtype_size(WEFT_DTYPE_COUNT), 0);
    cr_expect_eq(weft_dtype_size((weft_dtype_t)-1), 0);
    cr_expect_null(weft_dtype_name(WEFT_DTYPE_COUNT));
    cr_expect_null(weft_dtype_name((weft_dtype_t)-1));
}

Test(op, an_unknown_datatype_is_answered_with_the_list)
{
    weft_dtype_t dtype = WEFT_U16;

    expect_error(weft_dtype_parse("f23", &dtype), WEFT_ERR_NOT_FOUND, "f23");
    expect_error(weft_dtype_parse("F32", &dtype), WEFT_ERR_NOT_FOUND, " i8 i16 ");
    expect_error(weft_dtype_parse("", &dtype), WEFT_ERR_NOT_FOUND, " f64");
    expect_error(weft_dtype_parse(NULL, &dtype), WEFT_ERR_INVALID, "`name`");
    cr_expect_eq(dtype, WEFT_U16);
    expect_error(weft_dtype_parse("f32", NULL), WEFT_ERR_INVALID, "`dtype`");
}

/* ---- opaque datatypes ---- */

static const size_t opaque_sizes[] = {1, 3, 12, 24, 1000, 100000, WEFT_DTYPE_OPAQUE_MAX};

Test(op, an_opaque_datatype_has_its_size_and_a_name_that_is_parsed)
{
    for (size_t i = 0; i < sizeof opaque_sizes / sizeof *opaque_sizes; i++) {
        weft_dtype_t dtype = weft_dtype_opaque(opaque_sizes[i]), found = WEFT_F32;
        char name[32];

        snprintf(name, sizeof name, "bytes%zu", opaque_sizes[i]);
        cr_expect_eq(weft_dtype_size(dtype), opaque_sizes[i]);
        cr_expect(weft_dtype_is_opaque(dtype));
        cr_expect_str_eq(weft_dtype_name(dtype), name);
        cr_expect_eq(weft_dtype_parse(name, &found), WEFT_OK, "%s", weft_error_text());
        cr_expect_eq(found, dtype);
    }
    cr_expect_not(weft_dtype_is_opaque(WEFT_U8));
    cr_expect_not(weft_dtype_is_opaque(WEFT_DTYPE_COUNT));
    cr_expect_neq(weft_dtype_opaque(1), WEFT_U8);
}

Test(op, eight_names_of_opaque_datatypes_stand_side_by_side)
{
    const char *names[8];

    for (size_t i = 0; i < 8; i++)
        names[i] = weft_dtype_name(weft_dtype_opaque(i + 1));
    for (size_t i = 0; i < 8; i++)
        cr_expect_eq(names[i][5], '1' + (char)i, "%s", names[i]);
}

Test(op, an_opaque_datatype_of_no_or_too_many_bytes_is_refused)
{
    static const char *const names[] = {
        "bytes",    "bytes0",  "bytes08",  "bytes-1", "bytes1073741824",
        "bytes12x", "Bytes12", "bytes 12", "bytes+1", "bytes99999999999999999999",
        "byte12"};
    weft_dtype_t dtype = WEFT_U16;

    cr_expect_eq(weft_dtype_opaque(0), WEFT_DTYPE_COUNT);
    cr_expect_not_null(strstr(weft_error_text(), "`bytes` is 0, expected 1..1073741823"), "%s",
                       weft_error_text());
    cr_expect_eq(weft_dtype_opaque(WEFT_DTYPE_OPAQUE_MAX + 1), WEFT_DTYPE_COUNT);
    cr_expect_eq(weft_dtype_opaque(SIZE_MAX), WEFT_DTYPE_COUNT);
    cr_expect_eq(weft_dtype_size(WEFT_DTYPE_OPAQUE), 0);
    cr_expect_null(weft_dtype_name(WEFT_DTYPE_OPAQUE));
    cr_expect_eq(weft_dtype_size((weft_dtype_t)(0x80000000u | 8)), 0);
    cr_expect_eq(weft_dtype_size((weft_dtype_t)(0xc0000000u | 8)), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_error(weft_dtype_parse(names[i], &dtype), WEFT_ERR_NOT_FOUND, "bytesN");
    cr_expect_eq(dtype, WEFT_U16);
}

Test(op, a_built_in_operation_on_opaque_elements_is_refused)
{
    const weft_dtype_t dtype = weft_dtype_opaque(24);
    char a[48], b[48], dst[48];

    for (int i = 0; i < WEFT_OP_COUNT; i++) {
        const struct weft_op *op = weft_op_builtin((weft_op_kind_t)i);

        cr_expect_not(weft_op_supports(op, dtype));
        expect_error(weft_op_reduce(op, dtype, dst, a, b, 2), WEFT_ERR_INVALID, "bytes24");
        expect_error(weft_op_reduce(op, dtype, dst, a, b, 2), WEFT_ERR_INVALID, weft_op_name(op));
        expect_error(weft_op_reduce(op, dtype, dst, a, b, 2), WEFT_ERR_INVALID, "weft_op_create()");
    }
    expect_error(weft_convert(WEFT_F32, dst, weft_dtype_opaque(4), a, 1), WEFT_ERR_UNSUPPORTED,
                 "bytes4");
}

/* The greater of two numbers with its place, and the lower place of two that are equal. */
struct place {
    double value;
    int32_t index;
};

static int greatest(void *user, void *dst, const void *a, const void *b, size_t count,
                    weft_dtype_t dtype)
{
    const struct place *x = a, *y = b;
    struct place *to = dst;

    if (dtype != weft_dtype_opaque(sizeof *to))
        return WEFT_ERR_INVALID;
    for (size_t i = 0; i < count; i++) {
        const int second =
            y[i].value > x[i].value || (y[i].value == x[i].value && y[i].index < x[i].index);

        to[i] = second ? y[i] : x[i];
    }
    *(size_t *)user += count;
    return WEFT_OK;
}

Test(op, a_users_reduction_combines_opaque_elements)
{
    const weft_dtype_t dtype = weft_dtype_opaque(sizeof(struct place));
    struct place a[] = {{1, 7}, {5, 3}}, b[] = {{2, 9}, {5, 2}}, dst[2];
    struct weft_op_config config;
    struct weft_op *op;
    size_t called = 0;

    weft_op_config_init(&config);
    config.name = "greatest";
    config.reduce = greatest;
    config.user = &called;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    cr_expect(weft_op_supports(op, dtype));
    cr_expect_not(weft_op_supports(op, weft_dtype_opaque(0)));
    cr_expect_eq(weft_op_reduce(op, dtype, dst, a, b, 2), WEFT_OK, "%s", weft_error_text());
    cr_expect_eq(called, 2);
    cr_expect_eq(dst[0].index, 9);
    cr_expect_eq(dst[1].index, 2);
    expect_error(weft_op_reduce(op, dtype, a, (char *)a + 8, b, 1), WEFT_ERR_INVALID, "overlaps");
    expect_error(weft_op_reduce(op, dtype, dst, a, b, SIZE_MAX / 15), WEFT_ERR_INVALID, "bytes16");
    weft_op_destroy(op);
}

/* ---- built-in operations ---- */

Test(op, every_built_in_operation_is_found_by_its_name)
{
    for (int i = 0; i < WEFT_OP_COUNT; i++) {
        const struct weft_op *op = weft_op_builtin((weft_op_kind_t)i);
        const struct weft_op *found = NULL;

        cr_assert_not_null(op);
        cr_expect_eq(weft_op_parse(weft_op_name(op), &found), WEFT_OK);
        cr_expect_eq(found, op);
        cr_expect_eq(weft_op_commutes(op), 1);
        cr_expect_eq(weft_op_retain(op), op);
        weft_op_destroy(op);
    }
    cr_expect_str_eq(weft_op_name(weft_op_builtin(WEFT_LXOR)), "lxor");
    cr_expect_null(weft_op_builtin(WEFT_OP_COUNT));
    cr_expect_null(weft_op_builtin((weft_op_kind_t)-1));
}

Test(op, an_unknown_operation_is_answered_with_the_list)
{
    const struct weft_op *op = NULL;

    expect_error(weft_op_parse("mean", &op), WEFT_ERR_NOT_FOUND, "mean");
    expect_error(weft_op_parse("mean", &op), WEFT_ERR_NOT_FOUND, " sum prod ");
    expect_error(weft_op_parse(NULL, &op), WEFT_ERR_INVALID, "`name`");
    cr_expect_null(op);
    expect_error(weft_op_parse("sum", NULL), WEFT_ERR_INVALID, "`op`");
}

Test(op, only_bitwise_operations_leave_datatypes_out)
{
    for (int kind = 0; kind < WEFT_OP_COUNT; kind++) {
        const struct weft_op *op = weft_op_builtin((weft_op_kind_t)kind);

        for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
            cr_expect_eq(weft_op_supports(op, (weft_dtype_t)dtype),
                         kind < WEFT_BAND || (dtype >= WEFT_I8 && dtype <= WEFT_U64));
        cr_expect_eq(weft_op_supports(op, WEFT_DTYPE_COUNT), 0);
    }
    cr_expect_eq(weft_op_supports(NULL, WEFT_F32), 0);
}

Test(op, reduce_adds_in_place_and_out_of_place)
{
    const float a[] = {1, 2, 3};
    float b[] = {10, 20, 30};
    float c[3];
    const float sum[] = {11, 22, 33};
    const struct weft_op *op = weft_op_builtin(WEFT_SUM);

    cr_assert_eq(weft_op_reduce(op, WEFT_F32, c, a, b, 3), WEFT_OK);
    cr_expect_arr_eq(c, sum, sizeof sum);
    cr_assert_eq(weft_op_reduce(op, WEFT_F32, b, a, b, 3), WEFT_OK);
    cr_expect_arr_eq(b, sum, sizeof sum);
    cr_expect_eq(weft_op_reduce(op, WEFT_F32, NULL, NULL, NULL, 0), WEFT_OK);
}

/* ---- the user's operations ---- */

/* a minus b on i32, which does not commute; counts its calls; fails on what it does not know. */
static int subtract(void *user, void *dst, const void *a, const void *b, size_t count,
                    weft_dtype_t dtype)
{
    int *calls = user;

    ++*calls;
    if (dtype != WEFT_I32)
        return WEFT_ERR_UNSUPPORTED;
    for (size_t i = 0; i < count; i++)
        ((int32_t *)dst)[i] = ((const int32_t *)a)[i] - ((const int32_t *)b)[i];
    return WEFT_OK;
}

static int compute_nothing(struct weft_call *call)
{
    (void)call;
    return WEFT_OK;
}

static struct weft_op_config subtraction(int *calls)
{
    struct weft_op_config config;

    weft_op_config_init(&config);
    config.name = "subtract";
    config.reduce = subtract;
    config.user = calls;
    return config;
}

Test(op, a_users_reduction_is_called_with_its_operands_in_order)
{
    const int32_t a[] = {5, 6};
    const int32_t b[] = {1, 9};
    int32_t c[2] = {0, 0};
    int calls = 0;
    char name[] = "subtract";
    struct weft_op_config config = subtraction(&calls);
    struct weft_op *op = NULL;

    config.name = name;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    name[0] = 'X'; /* the name was copied */
    cr_expect_str_eq(weft_op_name(op), "subtract");
    cr_expect_eq(weft_op_commutes(op), 0);
    cr_expect_eq(weft_op_supports(op, WEFT_F64), 1);
    cr_expect_eq(weft_op_supports(op, WEFT_DTYPE_COUNT), 0);
    cr_expect_eq(weft_op_reduce(op, WEFT_I32, c, a, b, 2), WEFT_OK);
    cr_expect(c[0] == 4 && c[1] == -3);
    cr_expect_eq(weft_op_reduce(op, WEFT_F32, c, a, b, 2), WEFT_ERR_UNSUPPORTED);
    cr_expect_eq(calls, 2);
    weft_op_destroy(op);
}

Test(op, an_operation_lives_until_its_last_reference_is_released)
{
    int calls = 0;
    struct weft_op_config config = subtraction(&calls);
    struct weft_op *op = NULL;

    config.flags = WEFT_OP_COMMUTES;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    cr_expect_eq(weft_op_retain(op), op);
    weft_op_destroy(op);
    cr_expect_str_eq(weft_op_name(op), "subtract");
    cr_expect_eq(weft_op_commutes(op), 1);
    weft_op_destroy(op);
    weft_op_destroy(NULL);
    cr_expect_null(weft_op_retain(NULL));
}

Test(op, a_compute_operation_is_no_reduction)
{
    int32_t data[1] = {0};
    struct weft_op_config config;
    struct weft_op *op = NULL;

    weft_op_config_init(&config);
    config.name = "later_2-x";
    config.flags = WEFT_OP_MAY_PEND;
    config.compute = compute_nothing;
    config.poll = compute_nothing;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK);
    cr_expect_eq(weft_op_supports(op, WEFT_I32), 0);
    expect_error(weft_op_reduce(op, WEFT_I32, data, data, data, 1), WEFT_ERR_INVALID,
                 "not a reduction");
    weft_op_destroy(op);
}

/* ---- misuse ---- */

static void expect_refused(const struct weft_op_config *config, const char *word)
{
    struct weft_op *op = NULL;

    expect_error(weft_op_create(&op, config), WEFT_ERR_INVALID, word);
    cr_expect_null(op);
}

Test(op, create_refuses_a_bad_name)
{
    static const char *const bad[] = {"", "2nd", "-x", "a b", "a.b", "sum\n", "\xc3\xa9"};
    int calls = 0;
    char long_name[1000];
    struct weft_op_config config = subtraction(&calls);

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        config.name = bad[i];
        expect_refused(&config, "`name`");
    }
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    config.name = long_name;
    expect_refused(&config, "999");
    config.name = NULL;
    expect_refused(&config, "`name`");
}

Test(op, create_refuses_functions_that_do_not_fit)
{
    int calls = 0;
    struct weft_op_config config = subtraction(&calls);

    config.compute = compute_nothing;
    expect_refused(&config, "both set");
    config.reduce = NULL;
    config.poll = compute_nothing;
    expect_refused(&config, "`poll`");
    config.compute = NULL;
    expect_refused(&config, "both NULL");
    config = subtraction(&calls);
    config.flags = WEFT_OP_MAY_PEND;
    expect_refused(&config, "WEFT_OP_MAY_PEND");
    config.flags = WEFT_OP_COMMUTES | WEFT_OP_FOLDS;
    expect_refused(&config, "WEFT_OP_FOLDS");
    config.flags = 0x8;
    expect_refused(&config, "0x8");
}

Test(op, create_tells_of_no_memory)
{
    int calls = 0;
    struct weft_op_config config = subtraction(&calls);
    struct weft_op *op = NULL;

    for (long failing = 1; failing <= 2; failing++) {
        atomic_store(&weft__alloc_countdown, failing);
        int status = weft_op_create(&op, &config);
        atomic_store(&weft__alloc_countdown, -1);
        cr_expect_eq(status, WEFT_ERR_MEMORY, "call %ld: %d", failing, status);
    }
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK, "%s", weft_error_text());
    weft_op_destroy(op);
}

Test(op, create_refuses_what_was_not_initialised)
{
    int calls = 0;
    struct weft_op_config config = subtraction(&calls);
    struct weft_op *op = NULL;

    expect_error(weft_op_create(NULL, &config), WEFT_ERR_INVALID, "`op`");
    expect_error(weft_op_create(&op, NULL), WEFT_ERR_INVALID, "`config`");
    config.struct_size = 0;
    expect_refused(&config, "config->struct_size is 0");
    config.struct_size = sizeof config.struct_size;
    expect_refused(&config, "config->struct_size is 8");
    weft_op_config_init(NULL);
}

Test(op, create_survives_every_failing_allocation)
{
    int calls = 0;
    struct weft_op_config config = subtraction(&calls);
    struct weft_op *op = NULL;
    long failed = 0;

    for (;;) {
        atomic_store(&weft__alloc_countdown, failed + 1);
        const int status = weft_op_create(&op, &config);

        atomic_store(&weft__alloc_countdown, -1);
        if (status == WEFT_OK)
            break;
        cr_assert_eq(status, WEFT_ERR_MEMORY);
        cr_assert_null(op);
        failed++;
    }
    cr_expect_gt(failed, 0);
    weft_op_destroy(op);
}

Test(op, reduce_refuses_what_it_cannot_do)
{
    float data[8] = {0};
    const struct weft_op *sum = weft_op_builtin(WEFT_SUM);
    const struct weft_op *bor = weft_op_builtin(WEFT_BOR);

    expect_error(weft_op_reduce(NULL, WEFT_F32, data, data, data, 1), WEFT_ERR_INVALID, "`op`");
    expect_error(weft_op_reduce(sum, (weft_dtype_t)44, data, data, data, 1), WEFT_ERR_INVALID,
                 "44");
    expect_error(weft_op_reduce(bor, WEFT_F32, data, data, data, 1), WEFT_ERR_INVALID, "f32");
    expect_error(weft_op_reduce(sum, WEFT_F32, NULL, data, data, 1), WEFT_ERR_INVALID, "`dst`");
    expect_error(weft_op_reduce(sum, WEFT_F32, data, NULL, data, 1), WEFT_ERR_INVALID, "`a`");
    expect_error(weft_op_reduce(sum, WEFT_F32, data, data, NULL, 1), WEFT_ERR_INVALID, "`b`");
    expect_error(weft_op_reduce(sum, WEFT_F32, data, data, data, SIZE_MAX / 2), WEFT_ERR_INVALID,
                 "`count`");
    expect_error(weft_op_reduce(sum, WEFT_F32, data + 1, data, data + 4, 4), WEFT_ERR_INVALID,
                 "overlaps");
    expect_error(weft_op_reduce(sum, WEFT_F32, data + 1, data + 4, data, 4), WEFT_ERR_INVALID,
                 "overlaps");
    cr_expect_eq(weft_op_reduce(sum, WEFT_F32, data, data, data + 4, 4), WEFT_OK);
}

Test(op, names_of_nothing_are_null)
{
    cr_expect_null(weft_op_name(NULL));
    cr_expect_eq(weft_op_commutes(NULL), 0);
}
