/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of text documents: declared, given, listed, and what is wrong with them. */
#include <stdio.h>
#include <weft/weft.h>

#include "support/documents.h"

static int read_given(struct document *document, const char *text,
                      const struct weft_parameter *parameters, size_t count)
{
    struct weft_read_options options;

    weft_read_options_init(&options);
    options.size = 4;
    options.parameters = parameters;
    options.parameter_count = count;
    return read_document(document, text, &options);
}

static char *expand(const char *text, const struct weft_parameter *parameters, size_t count)
{
    struct document document;
    char *written;

    cr_assert_eq(read_given(&document, text, parameters, count), WEFT_OK, "%s\nfor:\n%s",
                 weft_error_text(), text);
    written = write_document(&document, WEFT_FORMAT_TEXT);
    free_document(&document);
    return written;
}

/* A text with parameters is, with these values, the same as another without. */
static void expect_same(const char *text, const struct weft_parameter *parameters, size_t count,
                        const char *other)
{
    expect_same_texts(expand(text, parameters, count), expand(other, NULL, 0));
}

#define GIVEN(...)                                                                                 \
    (const struct weft_parameter[]){__VA_ARGS__},                                                  \
        sizeof((const struct weft_parameter[]){__VA_ARGS__}) / sizeof(struct weft_parameter)

static const char grid[] = "weft 1\n"
                           "schedule \"grid\" size any\n"
                           "param rows = 2       # of the grid\n"
                           "param columns = size / rows\n"
                           "let cells = rows * columns\n"
                           "param dtype = f32\n"
                           "param op = sum\n"
                           "ranks all {\n"
                           "  inout x dtype cells\n"
                           "  for i in 1..rows-1 { a[i]: send x[i:] to rank tag i }\n"
                           "  if columns > 2 { reduce op x = x, x }\n"
                           "  result x = op of x from ranks 0..size-1\n"
                           "}\n";

Test(parameters, defaults_stand_where_nothing_is_given)
{
    expect_same(grid, NULL, 0,
                "weft 1\nschedule \"grid\" size any\nranks all {\ninout x f32 4\n"
                "n0 \"a[1]\": send x[1:] to rank tag 1\n"
                "result x = sum of x from ranks 0..3\n}\n");
}

Test(parameters, what_is_given_stands_everywhere)
{
    expect_same(grid, GIVEN({"rows", "1"}, {"op", "max"}, {"dtype", "i64"}),
                "weft 1\nschedule \"grid\" size any\nranks all {\ninout x i64 4\n"
                "reduce max x = x, x\nresult x = max of x from ranks 0..3\n}\n");
    /* Values are expressions; the last of a name counts. */
    expect_same(grid, GIVEN({"columns", "7"}, {"columns", "min(2, size) * rows - 2"}),
                "weft 1\nschedule \"grid\" size any\nranks all {\ninout x f32 4\n"
                "n0 \"a[1]\": send x[1:] to rank tag 1\n"
                "result x = sum of x from ranks 0..3\n}\n");
}

Test(parameters, a_datatype_may_be_opaque)
{
    expect_same("weft 1\nschedule \"s\" size 2\nparam one = bytes3\nparam other = f32\n"
                "param third = one\n"
                "rank 0 {\ninput a one 4\ninput b other 4\ninput c third 4\n}\n",
                GIVEN({"other", "bytes1000"}),
                "weft 1\nschedule \"s\" size 2\n"
                "rank 0 {\ninput a bytes3 4\ninput b bytes1000 4\ninput c bytes3 4\n}\n");
}

Test(parameters, the_size_may_be_one)
{
    const char *text = "weft 1\nparam rows = 2\nparam all = rows * 3\n"
                       "schedule \"s\" size all\nranks all { join }\n";
    struct document document;

    cr_assert_eq(read_given(&document, text, NULL, 0), WEFT_OK, "%s", weft_error_text());
    cr_expect_eq(document.count, 6);
    free_document(&document);
    cr_assert_eq(read_given(&document, text, GIVEN({"rows", "3"})), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(document.count, 9);
    free_document(&document);
}

static void expect_error(const char *text, const struct weft_parameter *parameters, size_t count,
                         const char *const pieces[3])
{
    struct document document;

    cr_assert_eq(read_given(&document, text, parameters, count), WEFT_ERR_FORMAT, "read:\n%s",
                 text);
    for (int i = 0; i < 3; i++)
        cr_expect(strstr(weft_error_text(), pieces[i]), "\"%s\" does not say \"%s\" for:\n%s",
                  weft_error_text(), pieces[i], text);
}

#define SAYS(...)                                                                                  \
    (const char *const[3])                                                                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

Test(parameters, what_is_not_declared_is_told_with_what_is)
{
    expect_error(grid, GIVEN({"rws", "4"}), SAYS("`rws`", "rows, columns, dtype, op", "one of"));
    expect_error("weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n", GIVEN({"rows", "4"}),
                 SAYS("`rows`", "declares none", "line 3"));
    expect_error("{\"weft\": 1, \"schedule\": \"s\", \"size\": 1, \"ranks\": [{\"rank\": 0}]}",
                 GIVEN({"rows", "4"}), SAYS("`rows`", "JSON", "line 1"));
}

Test(parameters, values_that_cannot_be_read)
{
    expect_error(grid, GIVEN({"rows", "four"}),
                 SAYS("line 3", "`rows` is given as `four`", "a number"));
    expect_error(grid, GIVEN({"rows", "4 4"}), SAYS("line 3", "`4 4`", "a number"));
    expect_error(grid, GIVEN({"rows", ""}), SAYS("line 3", "``", "a number"));
    expect_error(grid, GIVEN({"rows", "columns"}), SAYS("line 3", "`columns`", "parameters above"));
    expect_error(grid, GIVEN({"rows", "1 / 0"}),
                 SAYS("line 3", "`1 / 0`", "column 3: division by zero"));
    expect_error("weft 1\nparam a = 2\nschedule \"s\" size a\nrank 0 {\n}\n", GIVEN({"a", "size"}),
                 SAYS("line 2", "`size`", "of numbers and the parameters above"));
    expect_error(grid, GIVEN({"dtype", "f33"}), SAYS("line 6", "`f33`", "i8, i16"));
    expect_error(grid, GIVEN({"op", "plus"}), SAYS("line 7", "`plus`", "sum, prod"));
    expect_error(grid, GIVEN({"op", "f32"}), SAYS("line 7", "`f32`", "sum, prod"));
}

Test(parameters, values_out_of_range_where_they_are_used)
{
    expect_error(grid, GIVEN({"rows", "0"}),
                 SAYS("line 4", "division by zero", "parameter rows = 0"));
    expect_error(grid, GIVEN({"rows", "-2"}, {"columns", "1"}),
                 SAYS("line 9", "`cells` is -2", "rank 0, parameter rows = -2"));
    expect_error(grid, GIVEN({"op", "band"}, {"columns", "3"}),
                 SAYS("line 11", "`op` is band", "rank 0, parameter op = band"));
    expect_error("weft 1\nschedule \"s\" size 4\nparam far = 9\nparam other = 1\nrank 2 {\n"
                 "scratch x u8 other\nsend x to far\n}\n",
                 GIVEN({"far", "3 * 4"}), SAYS("line 7", "12", "(rank 2, parameter far = 12)"));
}

Test(parameters, declarations_that_are_wrong)
{
    static const struct {
        const char *line, *one, *two;
    } bad[] = {
        {"param = 3", "`=`", "a name"},
        {"param size = 3", "`size`", "not in use"},
        {"param rank = 3", "`rank`", "not in use"},
        {"param min = 3", "`min`", "no operation has"},
        {"param f32 = 3", "`f32`", "no datatype"},
        {"param bytes24 = 3", "`bytes24`", "no datatype"},
        {"param a-b = 3", "`a-b`", "without `-`"},
        {"param a 3", "`3`", "`=`"},
        {"param a = nobody", "`nobody`", "the name of a variable"},
        {"param a = 3\nparam a = 3", "`a`", "not in use"},
        {"param a = f32\nlet b = a", "`a`", "a number"},
        {"param a = f32\nrank 0 { scratch x u8 a }", "`a`", "a number"},
        {"param a = sum\nrank 0 { scratch x a 4 }", "`a`", "one of f32, i8"},
        {"param a = 3\nrank 0 { scratch x a 4 }", "`a`", "one of f32, i8"},
        {"rank 0 { }\nparam a = 3", "`param`", "above the ranks"},
        {"rank 0 {\nparam a = 3\n}", "`param`", "above the ranks"},
    };
    char text[256];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, "weft 1\nschedule \"s\" size 2\n%s\nrank 1 {\n}\n",
                 bad[i].line);
        expect_error(text, NULL, 0, SAYS(bad[i].one, bad[i].two, "line "));
    }
}

Test(parameters, a_node_may_be_called_param)
{
    expect_same("weft 1\nschedule \"s\" size 1\nrank 0 {\nparam: join\njoin after param\n}", NULL,
                0, "weft 1\nschedule \"s\" size 1\nrank 0 {\nn0 \"param\": join\njoin after n0\n}");
}

/* ---- listing ---- */

Test(parameters, are_listed_without_a_size)
{
    static const char *const wanted[][2] = {
        {"rows", "2"}, {"columns", "size / rows"}, {"dtype", "f32"}, {"op", "sum"}};
    struct weft_parameter *parameters;
    size_t count;

    cr_assert_eq(weft_schedule_read_parameters(grid, strlen(grid), &parameters, &count), WEFT_OK,
                 "%s", weft_error_text());
    cr_assert_eq(count, 4);
    for (size_t i = 0; i < count; i++) {
        cr_expect_str_eq(parameters[i].name, wanted[i][0]);
        cr_expect_str_eq(parameters[i].value, wanted[i][1]);
    }
    weft_memory_free(parameters);
}

Test(parameters, nothing_behind_them_is_read_for_the_list)
{
    const char *text =
        "weft 1\nparam a = 1 / 0\nschedule \"s\" size a\nlet b = a + 1\nranks 0..9 {\n@";
    const char *json = "{\"weft\": 1}";
    struct weft_parameter *parameters;
    size_t count;

    cr_assert_eq(weft_schedule_read_parameters(text, strlen(text), &parameters, &count), WEFT_OK,
                 "%s", weft_error_text());
    cr_assert_eq(count, 1);
    cr_expect_str_eq(parameters[0].value, "1 / 0");
    weft_memory_free(parameters);
    cr_assert_eq(weft_schedule_read_parameters(json, strlen(json), &parameters, &count), WEFT_OK);
    cr_expect_eq(count, 0);
    weft_memory_free(parameters);
    cr_expect_eq(weft_schedule_read_parameters("weaver", 6, &parameters, &count), WEFT_ERR_FORMAT);
}

Test(parameters, misuse)
{
    struct weft_parameter *parameters;
    struct document document;
    size_t count;

    cr_expect_eq(weft_schedule_read_parameters(NULL, 0, &parameters, &count), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_read_parameters("", 0, NULL, &count), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_read_parameters("", 0, &parameters, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(read_given(&document, grid, NULL, 1), WEFT_ERR_INVALID);
    cr_expect_eq(read_given(&document, grid, GIVEN({NULL, "1"})), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "parameters[0]"));
    cr_expect_eq(read_given(&document, grid, GIVEN({"rows", NULL})), WEFT_ERR_INVALID);
}
