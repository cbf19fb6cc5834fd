/* SPDX-License-Identifier: BSD-3-Clause */
/* What the text format has for those who write it: expressions, blocks, one text for many ranks. */
#include <stdio.h>
#include <weft/weft.h>

#include "support/documents.h"

static int read_sized(struct document *document, const char *text, int size, size_t most)
{
    struct weft_read_options options;

    weft_read_options_init(&options);
    options.size = size;
    options.most_repeated = most;
    return read_document(document, text, &options);
}

static char *text_of(const char *text, int size)
{
    struct document document;
    char *written;

    cr_assert_eq(read_sized(&document, text, size, 0), WEFT_OK, "%s\nfor:\n%s", weft_error_text(),
                 text);
    written = write_document(&document, WEFT_FORMAT_TEXT);
    free_document(&document);
    return written;
}

/* Both texts are documents of the same schedules. */
static void expect_same(const char *one, const char *two, int size)
{
    expect_same_texts(text_of(one, size), text_of(two, size));
}

/* The statements, in rank 2 of 5. */
static int read_statements(struct document *document, const char *statements)
{
    char text[2048];

    snprintf(text, sizeof text, "weft 1\nschedule \"s\" size 5\nlet six = 6\nrank 2 {\n%s\n}",
             statements);
    return read_sized(document, text, 0, 0);
}

static void expect_value(const char *expression, size_t value)
{
    struct document document;
    struct weft_slot_info info = {.struct_size = sizeof info};
    char text[256];

    snprintf(text, sizeof text, "scratch x u8 %s", expression);
    cr_assert_eq(read_statements(&document, text), WEFT_OK, "%s: %s", expression,
                 weft_error_text());
    weft_schedule_get_slot(document.schedules[0], 0, &info);
    cr_expect_eq(info.count, value, "%s is %zu, expected %zu", expression, info.count, value);
    free_document(&document);
}

Test(text_blocks, values_of_expressions)
{
    expect_value("7", 7);
    expect_value("rank", 2);
    expect_value("size", 5);
    expect_value("six", 6);
    expect_value("size-1", 4);
    expect_value("size-rank-1", 2);
    expect_value("(rank - 3) % size", 4);
    expect_value("0 - (rank - 3) / 2", 1);
    expect_value("(0 - 4) / 2 + 2", 0);
    expect_value("-(-3)", 3);
    expect_value("2 + 3 * 4", 14);
    expect_value("(2 + 3) * 4", 20);
    expect_value("20 - 3 - 4", 13);
    expect_value("100 / 7 / 2", 7);
    expect_value("1 << 2 + 1", 8);
    expect_value("rank ^ 1 << 1", 0);
    expect_value("rank ^ 7 & 5", 7);
    expect_value("8 | 1 ^ 3", 10);
    expect_value("rank & 1 == 0", 1);
    expect_value("1 < 2 == 1", 1);
    expect_value("3 >= 3 && 2 > 3 || !0", 1);
    expect_value("!(1 != 1) + !5", 1);
    expect_value("4 <= 3", 0);
    expect_value("6 >> 1", 3);
    expect_value("6 >> 64", 0);
    expect_value("1 + (-1 >> 70)", 0);
    expect_value("3 + (-5 >> 1)", 0);
    expect_value("0 << 90", 0);
    expect_value("size > 5 && 1 / 0", 0);
    expect_value("size == 5 || 1 % 0 + 9223372036854775807 + 1", 1);
    expect_value("log2(1)", 0);
    expect_value("log2(size)", 2);
    expect_value("log2 (1 << 62)", 62);
    expect_value("min(3, rank, 4) * 10 + max(size, rank)", 25);
    expect_value("max(3)", 3);
}

static void expect_error(const char *statements, const char *one, const char *two)
{
    struct document document;

    cr_assert_eq(read_statements(&document, statements), WEFT_ERR_FORMAT, "read:\n%s", statements);
    cr_expect(strstr(weft_error_text(), one) && strstr(weft_error_text(), two),
              "\"%s\" does not say \"%s\" and \"%s\" for:\n%s", weft_error_text(), one, two,
              statements);
}

Test(text_blocks, expressions_that_are_wrong)
{
    expect_error("scratch x u8 rank-3", "column 14: the expression `rank-3` is -1", "from 0");
    expect_error("scratch x u8 1 / (rank - 2)", "column 16: division by zero", "positive");
    expect_error("scratch x u8 1 % -2", "division by zero or less", "positive");
    expect_error("scratch x u8 9223372036854775807 + 1", "column 34", "beyond 64 bits");
    expect_error("scratch x u8 0 - 9223372036854775807 - 2", "beyond 64 bits", "smaller");
    expect_error("scratch x u8 3 * 4611686018427387904", "beyond 64 bits", "smaller");
    expect_error("scratch x u8 2 << 62", "beyond 64 bits", "smaller");
    expect_error("scratch x u8 1 << 63", "beyond 64 bits", "smaller");
    expect_error("scratch x u8 1 << -1", "less than 0", "0 or more");
    expect_error("scratch x u8 18446744073709551615 + 1", "`18446744073709551615`", "at most");
    expect_error("scratch x u8 1 + 9223372036854775808", "`9223372036854775808`", "below 2^63");
    expect_error("scratch x u8 nobody", "`nobody`", "a number");
    expect_error("scratch x u8 rank + nobody", "`nobody`", "the name of a variable");
    expect_error("scratch x u8 (rank", "end of the line", "`)`");
    expect_error("scratch x u8 rank)", "`)`", "the end of the line");
    expect_error("scratch x u8 1 + *", "`*`", "a number below");
    expect_error("scratch x u8 log2(0)", "log2 of less than 1", "1 or more");
    expect_error("scratch x u8 log2 2", "`2`", "`(`");
    expect_error("scratch x u8 min()", "`)`", "a number");
    expect_error("let rank = 1", "`rank`", "not in use");
    expect_error("let six = 1", "`six`", "not in use");
    expect_error("let min = 1", "`min`", "not in use");
    expect_error("let a-b = 1", "`a-b`", "without `-`");
    expect_error("let 5 = 1", "`5`", "a name");
    expect_error("let a 1", "`1`", "`=`");
    expect_error("let a =", "end of the line", "a number");
}

Test(text_blocks, blocks_that_are_wrong)
{
    expect_error("for i in 0..3", "end of the line", "`{`");
    expect_error("for i in 0 3 {\n}", "`3`", "`..`");
    expect_error("for i 0..3 {\n}", "`0`", "`in`");
    expect_error("for i in 0..3 {\nfor i in 0..3 {\n}\n}", "`i`", "not in use");
    expect_error("for i in 0..3 {\njoin", "end of the text", "a statement or `}`");
    expect_error("for i in 3..0 {\njoin", "end of the text", "a statement or `}`");
    expect_error("for i in 0..3 {\n}\nscratch x u8 i", "`i`", "a number");
    expect_error("if 1 {\nlet a = 3\n}\nscratch x u8 a", "`a`", "a number");
    expect_error("if 1 join", "`join`", "`{`");
    expect_error("if 1 { join } else join", "`join`", "`{`");
    expect_error("if 1 { join } join", "`join`", "the end of the line");
    expect_error("else { join }", "`else`", "send, recv");
    expect_error("for i in 0..1 {\na: join\n}", "line 6", "no other node");
    expect_error("a[0]: join\na[0]: join", "`a[0]`", "no other node");
    expect_error("a[0]: join\njoin after a", "`a`", "the name of a node");
    expect_error("a[0]: join\njoin after a[1]", "`a[1]`", "the name of a node");
    expect_error("a[0,1,2,3]: join", "`3`", "at most 3");
    expect_error("a[0: join", "`:`", "`]`");
    expect_error("a[0] join", "`join`", "`:`");
    expect_error("n0[1]: join", "`n0`", "`n0` or a name");
    expect_error("order b after n0", "`b`", "a node above");
    expect_error("a: join\norder a n0", "`n0`", "`after`");
}

Test(text_blocks, errors_say_which_repetition_is_wrong)
{
    const char *loops = "scratch x u8 8\nfor i in 0..3 {\nlet twice = 2 * i\n"
                        "for j in 0..1 {\n%s\n}\n}";
    static const struct {
        const char *statement, *one, *two;
    } wrong[] = {
        /* expressions */
        {"send x[twice+j:twice + 3 * j] to 0", "line 9, column 16: the expression `twice + 3 * j`",
         "(rank 2, i = 3, j = 1)"},
        {"send x to 5 / (i - 2) + 4", "column 13: division by zero", "(rank 2, i = 0, j = 0)"},
        {"send x to log2(i)", "log2 of less than 1", "(rank 2, i = 0, j = 0)"},
        {"send x to (i << 62) * 0", "beyond 64 bits", "(rank 2, i = 2, j = 0)"},
        /* what the schedule refuses, names, words */
        {"send x to i * 2 - j + 1", "argument `peer` is 5, expected 0..4",
         "(rank 2, i = 2, j = 0)"},
        {"a[i]: join", "found `a[0]`, expected a name that no other", "(rank 2, i = 0, j = 1)"},
        {"order b[i-1] after n0", "found `b[-1]`, expected the name of", "(rank 2, i = 0, j = 0)"},
        {"join after b[i]", "line 9, column 12: found `b[0]`, expected the name of", "(rank 2)"},
        {"if i == 2 { sned }", "found `sned`", "(rank 2, i = 2, j = 0)"},
        {"let twice = 1", "`twice`, expected a name that is not in use", "(rank 2, i = 0, j = 0)"},
    };
    char text[512];

    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        snprintf(text, sizeof text, loops, wrong[k].statement);
        expect_error(text, wrong[k].one, wrong[k].two);
    }
    expect_error("scratch x u8 9\nfor i in 0..9 {\nsend x[3*i:] to 0\n}",
                 "line 7, column 8: the expression `3*i` is 12, expected a number from 0 to 9",
                 "(rank 2, i = 4)");
    expect_error("for i in 0..rank - 4 {\n}\nscratch x u8 -1", "`-1` is -1", "(rank 2)");
}

/* The document as it stands. */
static void expect_unclosed(const char *text, const char *one, const char *two)
{
    struct document document;

    cr_assert_eq(read_sized(&document, text, 0, 0), WEFT_ERR_FORMAT, "read:\n%s", text);
    cr_expect(strstr(weft_error_text(), one) && strstr(weft_error_text(), two),
              "\"%s\" does not say \"%s\" and \"%s\" for:\n%s", weft_error_text(), one, two, text);
}

Test(text_blocks, a_block_that_is_not_closed_is_named)
{
    const char *inner = "weft 1\nschedule \"s\" size 2\nranks all {\n  for i in 0..1 {\n"
                        "    if i > %d {\n      join\n  }\n  join\n}\n";
    char text[256];

    expect_unclosed("weft 1\nschedule \"s\" size 2\nrank 0 {\n  join\n\n",
                    "found the end of the text", "the `{` of line 3 is not closed");
    expect_unclosed("weft 1\nschedule \"s\" size 2\nrank 0 {\n  join\n\nrank 1 {\n  join\n}\n",
                    "line 6, column 1: found `rank`", "the `{` of line 3 is not closed");
    expect_unclosed(
        "weft 1\nschedule \"s\" size 2\nrank 0 { for i in 0..1 { join }\nranks all {\n}",
        "line 4, column 1: found `ranks`", "the `{` of line 3 is not closed");
    /* One further in takes the `}` of the next. */
    for (int skipped = 0; skipped < 2; skipped++) {
        snprintf(text, sizeof text, inner, skipped ? 5 : -1);
        expect_unclosed(text, "the `{` of line 3 is not closed",
                        "or that of line 5, which the `}` of line 7 closes in another column");
    }
    /* What is not read, too; beyond what is kept of blocks within each other, the last that is. */
    expect_unclosed("weft 1\nschedule \"s\" size 2\nrank 0 {\n  if 0 {\n    if 1 {\n    }\n",
                    "line 7", "the `{` of line 4 is not closed");
    strcpy(text, "weft 1\nschedule \"s\" size 2\nrank 0 {\nif 0 {\n");
    for (int i = 0; i < 120; i++)
        strcat(text, "{");
    expect_unclosed(text, "line 5", "the `{` of line 5 is not closed");
}

Test(text_blocks, nodes_know_their_lines)
{
    const char *text = "weft 1\nschedule \"s\" size 1\nrank 0 {\njoin\n\n"
                       "for i in 0..1 {\na[i]: join after\n  n0\njoin }\n}\n";
    static const size_t lines[] = {4, 7, 9, 7, 9};
    struct document document;
    struct weft_schedule *built;
    struct weft_node_info info = {.struct_size = sizeof info};

    cr_assert_eq(read_sized(&document, text, 0, 0), WEFT_OK, "%s", weft_error_text());
    cr_assert_eq(weft_schedule_node_count(document.schedules[0]), 5);
    for (weft_node_t n = 0; n < 5; n++) {
        cr_assert_eq(weft_schedule_get_node(document.schedules[0], n, &info), WEFT_OK);
        cr_expect_eq(info.line, lines[n], "node %d: line %zu", (int)n, info.line);
    }
    /* What is added afterwards, or was never a text, has none. */
    weft_schedule_add_join(document.schedules[0]);
    cr_assert_eq(weft_schedule_get_node(document.schedules[0], 5, &info), WEFT_OK);
    cr_expect_eq(info.line, 0);
    free_document(&document);
    cr_assert_eq(weft_schedule_create(&built, 0, 1), WEFT_OK);
    weft_schedule_add_join(built);
    cr_assert_eq(weft_schedule_get_node(built, 0, &info), WEFT_OK);
    cr_expect_eq(info.line, 0);
    weft_schedule_destroy(built);
}

Test(text_blocks, nesting_has_an_end)
{
    char text[2000] = "scratch x u8 ";
    struct document document;

    for (int i = 0; i < 90; i++)
        strcat(text, "(");
    strcat(text, "1");
    for (int i = 0; i < 90; i++)
        strcat(text, ")");
    cr_assert_eq(read_statements(&document, text), WEFT_OK, "%s", weft_error_text());
    free_document(&document);
    strcpy(text, "scratch x u8 ");
    for (int i = 0; i < 1000; i++)
        strcat(text, "-");
    expect_error(text, "within each other", "fewer");
    strcpy(text, "");
    for (int i = 0; i < 150; i++)
        strcat(text, "if 1 {\n");
    expect_error(text, "within each other", "fewer");
}

Test(text_blocks, repetitions_and_conditions)
{
    expect_same("weft 1\nschedule \"s\" size 2\nrank 0 {\n"
                "scratch b u8 8\n"
                "for i in 0..2 {\n"
                "  let at = 2 * i\n"
                "  in[i]: recv b[at:at+2] from 1 tag i\n"
                "  if i > 0 { order in[i] after in[i-1] }\n"
                "  if i == 0 {\n    join\n  } else if i == 1 { join after in[0] } else {\n"
                "    join after any\n  }\n"
                "}\n"
                "for j in 1..0 { nonsense { } }\n"
                "for j in 0..1 { for k in 0..j { x[j, k]: join after in[j], y } }\n"
                "y: join\n"
                "}\n",
                "weft 1\nschedule \"s\" size 2\nrank 0 {\n"
                "scratch b u8 8\n"
                "n0 \"in[0]\": recv b[0:2] from 1\njoin\n"
                "n2 \"in[1]\": recv b[2:4] from 1 tag 1 after n0\njoin after n0\n"
                "n4 \"in[2]\": recv b[4:6] from 1 tag 2 after n2\njoin after any\n"
                "n6 \"x[0,0]\": join after n0, n9\n"
                "n7 \"x[1,0]\": join after n2, n9\n"
                "n8 \"x[1,1]\": join after n2, n9\n"
                "n9 \"y\": join\n"
                "}\n",
                0);
}

/* It can be read, so that it can be explained; it cannot be committed. */
Test(text_blocks, a_node_after_itself_is_a_cycle)
{
    struct document document;
    struct weft_plan *plan = NULL;

    cr_assert_eq(read_statements(&document, "a[0]: join after a[0]"), WEFT_OK);
    cr_expect_eq(weft_schedule_commit(document.schedules[0], &plan), WEFT_ERR_CYCLE);
    free_document(&document);
}

Test(text_blocks, one_text_for_ranks)
{
    expect_same("weft 1\nschedule \"s\" size any\nlet half = size / 2\n"
                "ranks 0..half-1 {\n scratch b u8 half\n signal to rank + half channel rank\n}\n"
                "ranks half..size-2 { join }\n"
                "rank size - 1 { n0: join }\n",
                "weft 1\nschedule \"s\" size 5\n"
                "rank 0 {\n scratch b u8 2\n signal to 2 channel 0\n}\n"
                "rank 1 {\n scratch b u8 2\n signal to 3 channel 1\n}\n"
                "rank 2 {\n join\n}\nrank 3 {\n join\n}\nrank 4 {\n join\n}\n",
                5);
    /* Ranks that there are none of. */
    expect_same("weft 1\nschedule \"s\" size any\nrank 0 {\n}\nranks 1..size-1 {\n join\n}\n",
                "weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n", 1);
    /* Results, with the ranks that contribute. */
    expect_same("weft 1\nschedule \"s\" size any\nranks all {\n input a f32 size\n output b f32 1\n"
                " result b = sum of a[rank:rank+1] from ranks 0..size-1\n"
                " result b = a[size-1:] from rank (rank+1) % size\n}\n",
                "weft 1\nschedule \"s\" size 2\n"
                "rank 0 {\n input a f32 2\n output b f32 1\n"
                " result b = sum of a[0:1] from ranks 0..1\n result b = a[1:2] from rank 1\n}\n"
                "rank 1 {\n input a f32 2\n output b f32 1\n"
                " result b = sum of a[1:2] from ranks 0..1\n result b = a[1:2] from rank 0\n}\n",
                2);
    /* A variable may be called count. */
    expect_same("weft 1\nschedule \"s\" size 1\nlet count = 3\nranks all {\n scratch a u8 8\n"
                " value v\n send a[1:count] to 0\n send a[1:count count v] to 0 tag 1\n"
                " send a[1: count v] to 0 tag 2\n send a[1:count*2] to 0 tag 3\n}\n",
                "weft 1\nschedule \"s\" size 1\nrank 0 {\n scratch a u8 8\n value v\n"
                " send a[1:3] to 0\n send a[1:3 count v] to 0 tag 1\n"
                " send a[1:8 count v] to 0 tag 2\n send a[1:6] to 0 tag 3\n}\n",
                0);
}

static void expect_bad_document(const char *text, int size, const char *one, const char *two)
{
    struct document document;

    cr_assert_eq(read_sized(&document, text, size, 0), WEFT_ERR_FORMAT, "read:\n%s", text);
    cr_expect(strstr(weft_error_text(), one) && strstr(weft_error_text(), two),
              "\"%s\" does not say \"%s\" and \"%s\" for:\n%s", weft_error_text(), one, two, text);
}

Test(text_blocks, ranks_and_sizes_that_are_wrong)
{
    expect_bad_document("weft 1\nschedule \"s\" size any\nranks all {\n}\n", 0, "`any`",
                        "was not told the size");
    expect_bad_document("weft 1\nschedule \"s\" size 3\nranks 1..3 {\n}\n", 0, "line 3",
                        "ranks below the size");
    expect_bad_document("weft 1\nschedule \"s\" size 3\nranks 4..3 {\n}\n", 0, "`4`", "at most 3");
    expect_bad_document("weft 1\nschedule \"s\" size 3\nranks 3..2 {\n}\n", 0, "end of the text",
                        "`rank`");
    expect_bad_document("weft 1\nschedule \"s\" size 3\nranks all {\n}\nrank 2 {\n}\n", 0, "line 5",
                        "ascending");
    expect_bad_document("weft 1\nschedule \"s\" size 3\nranks all\n{\n}\n", 0, "end of the line",
                        "`{`");
    expect_bad_document("weft 1\nschedule \"s\" size 3\nranks some {\n}\n", 0, "`some`",
                        "a number");
    expect_bad_document("weft 1\nschedule \"s\" size 3\nlet rank = 4\nrank 0 {\n}\n", 0, "`rank`",
                        "not in use");
    expect_bad_document("weft 1\nschedule \"s\" size 3\nlet x = rank\nrank 0 {\n}\n", 0, "`rank`",
                        "a number");
}

/* Short texts that would make more than there is memory for, or never end. */
Test(text_blocks, repetitions_are_limited, .timeout = 140)
{
    static const char *const statements[] = {
        "for i in 0..9223372036854775807 { join }",
        "for i in 0..9223372036854775807 { }",
        "for i in 0..9223372036854775807 { if 0 { } }",
        "for i in 0..99999999 { for j in 0..99999999 { for k in 1..0 { } } }",
        "for i in -9223372036854775807..9223372036854775807 { scratch x u8 1 }",
    };
    struct document document;
    char text[256];

    for (size_t i = 1; i < 4; i++)
        expect_error(statements[i], "repetitions make more than 16777216 bytes", "fewer");
    for (size_t i = 0; i < 5; i++) {
        snprintf(text, sizeof text, "weft 1\nschedule \"s\" size 1\nrank 0 {\n%s\n}",
                 statements[i]);
        cr_expect_eq(read_sized(&document, text, 0, 1 << 16), WEFT_ERR_FORMAT);
    }
    expect_bad_document("weft 1\nschedule \"s\" size 2147483647\nranks all {}\n", 0,
                        "repetitions make more than", "`most_repeated`");
    /* Enough for what is wanted. */
    cr_assert_eq(
        read_sized(&document,
                   "weft 1\nschedule \"s\" size any\nranks all { for i in 0..9 { join } }\n", 100,
                   1 << 17),
        WEFT_OK, "%s", weft_error_text());
    cr_expect_eq(document.count, 100);
    cr_expect_eq(weft_schedule_node_count(document.schedules[99]), 10);
    free_document(&document);
}

/* A megabyte for the schedules. */
static int read_small(const char *text, int size)
{
    struct weft_read_options options;
    struct document document;
    int status;

    weft_read_options_init(&options);
    options.size = size;
    options.most_repeated = SIZE_MAX;
    options.most_memory = 1 << 20;
    status = read_document(&document, text, &options);
    if (!status)
        free_document(&document);
    return status;
}

Test(text_blocks, memory_is_foretold)
{
    static const char *const long_ones[] = {
        "weft 1\nschedule \"s\" size any\nranks all { for i in 0..1000000000 { join } }\n",
        "weft 1\nschedule \"s\" size any\nranks all {\n join\n}\n",
        "weft 1\nschedule \"s\" size any\nranks all {\nfor i in 0..999999 { for j in 0..3 {\n"
        "if i % 2 { n[i, j]: join }\n}\n}\n}\n",
    };
    static const char *const needs[] = {"line 3: ", "line 3: ", "line 4: "};

    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(read_small(long_ones[i], 1000000), WEFT_ERR_FORMAT);
        cr_expect(!strncmp(weft_error_text(), needs[i], strlen(needs[i])), "%s", weft_error_text());
        cr_expect(strstr(weft_error_text(), "expected at most the 0.000977 GiB here"), "%s",
                  weft_error_text());
    }
    cr_assert_eq(read_small(long_ones[0], 1), WEFT_ERR_FORMAT);
    cr_expect(strstr(weft_error_text(), "needs about 119 GiB of memory"), "%s", weft_error_text());
    cr_expect_eq(read_small(long_ones[1], 900), WEFT_OK, "%s", weft_error_text());
    /* One large rank or repetition does not speak for the others. */
    cr_expect_eq(read_small("weft 1\nschedule \"s\" size 400\nranks all {\n"
                            "if rank == 0 {\nfor i in 0..2999 { join }\n}\n}\n",
                            0),
                 WEFT_OK, "%s", weft_error_text());
    cr_expect_eq(read_small("weft 1\nschedule \"s\" size 1\nranks all {\nfor i in 0..9999 {\n"
                            "if i < 2 {\nfor j in 0..999 { join }\n}\n}\n}\n",
                            0),
                 WEFT_OK, "%s", weft_error_text());
}

static void expect_json_needs(int nodes, const char *needs)
{
    struct document document;
    char line[128], *text;

    snprintf(line, sizeof line,
             "weft 1\nschedule \"s\" size 1\nranks all {\nfor i in 1..%d { join }\n}\n", nodes);
    cr_assert_eq(read_sized(&document, line, 0, 0), WEFT_OK, "%s", weft_error_text());
    text = write_document(&document, WEFT_FORMAT_JSON);
    free_document(&document);
    cr_expect_eq(read_small(text, 0), needs ? WEFT_ERR_FORMAT : WEFT_OK, "%d nodes", nodes);
    cr_expect(!needs || strstr(weft_error_text(), needs), "%s", weft_error_text());
    weft_memory_free(text);
}

Test(text_blocks, memory_for_json_is_foretold)
{
    expect_json_needs(1000, NULL);
    expect_json_needs(3000, "ranks[0].nodes[15] belongs to a document that needs about 0.0011 GiB");
    expect_json_needs(30000, "line 1: a JSON document of ");
}

Test(text_blocks, options_that_are_wrong)
{
    const char *text = "weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n";
    struct weft_read_options options;
    struct weft_schedule **schedules;
    size_t count;

    weft_read_options_init(&options);
    options.size = -1;
    cr_expect_eq(weft_schedule_read_with(text, strlen(text), &options, &schedules, &count),
                 WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "`size` is -1"));
    weft_read_options_init(&options);
    options.op_count = 1;
    cr_expect_eq(weft_schedule_read_with(text, strlen(text), &options, &schedules, &count),
                 WEFT_ERR_INVALID);
    options = (struct weft_read_options){0};
    cr_expect_eq(weft_schedule_read_with(text, strlen(text), &options, &schedules, &count),
                 WEFT_ERR_INVALID);
    cr_assert_eq(weft_schedule_read_with(text, strlen(text), NULL, &schedules, &count), WEFT_OK);
    weft_schedule_destroy(schedules[0]);
    weft_memory_free(schedules);
}
