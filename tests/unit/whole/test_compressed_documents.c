/* SPDX-License-Identifier: BSD-3-Clause */
/* Documents that name operations on compressed vectors with whatever parameters and regions: as
 * text and as JSON each is read, checked and run, or refused with a text that says what is
 * wrong. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "tests/support/bind.h"

enum { REGIONS = 6, TEXT = 4096 };

/* What becomes of a document. */
enum stage {
    FINE,   /* checks and runs */
    NAME,   /* is not read: no operation is called so; the same from weft_compress_op_parse() */
    NODE,   /* is not read: no schedule can have the node */
    FAULT,  /* is read; the checker finds a fault, and a run fails, both by the text */
    UNMADE, /* as before, but too large to be run */
};

/* A slot by its name, and of it [from, to). */
struct piece {
    char slot;
    unsigned long long from, to;
    weft_access_t access;
};

#define IN(slot, from, to)                                                                         \
    {                                                                                              \
        slot, from, to, WEFT_READ                                                                  \
    }
#define OUT(slot, from, to)                                                                        \
    {                                                                                              \
        slot, from, to, WEFT_WRITE                                                                 \
    }
#define BOTH(slot, from, to)                                                                       \
    {                                                                                              \
        slot, from, to, WEFT_UPDATE                                                                \
    }

static const struct {
    char name;
    const char *kind, *dtype;
    unsigned long long count;
} slots[] = {
    {'x', "input", "f32", 16},         {'b', "input", "f32", 16},         {'m', "input", "f32", 16},
    {'y', "inout", "f32", 32},         {'q', "inout", "u8", 64},          {'w', "inout", "f64", 32},
    {'s', "inout", "f64", 3},          {'h', "inout", "i32", 16},         {'e', "inout", "f32", 0},
    {'H', "inout", "f32", 1ULL << 34}, {'G', "input", "f32", 1ULL << 34},
};
enum { SLOTS = sizeof slots / sizeof slots[0], SMALL = SLOTS - 2 };

struct trial {
    const char *op;
    struct piece pieces[REGIONS];
    enum stage stage;
    const char *text;
};

/* ---- documents ---- */

struct document {
    char text[TEXT];
    size_t length;
};

WEFT_PRINTF(2, 3)
static void add(struct document *document, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    int length =
        vsnprintf(document->text + document->length, TEXT - document->length, format, list);
    va_end(list);
    document->length += (size_t)length;
    cr_assert_lt(document->length, (size_t)TEXT);
}

/* Large slots are in no document but of those that use them. */
static size_t slots_of(const struct trial *trial)
{
    for (size_t i = 0; i < REGIONS && trial->pieces[i].slot; i++)
        if (trial->pieces[i].slot == 'H' || trial->pieces[i].slot == 'G')
            return SLOTS;
    return SMALL;
}

static void write_text(const struct trial *trial, struct document *document)
{
    static const char *const words[] = {
        [WEFT_READ] = "in", [WEFT_WRITE] = "out", [WEFT_UPDATE] = "update"};

    document->length = 0;
    add(document, "weft 1\nschedule \"s\" size 1\nrank 0 {\n");
    for (size_t i = 0; i < slots_of(trial); i++)
        add(document, " %s %c %s %llu\n", slots[i].kind, slots[i].name, slots[i].dtype,
            slots[i].count);
    add(document, " compute %s", trial->op);
    for (size_t i = 0; i < REGIONS && trial->pieces[i].slot; i++) {
        const struct piece *piece = &trial->pieces[i];

        add(document, "%s %s %c[%llu:%llu]", i ? "," : "", words[piece->access], piece->slot,
            piece->from, piece->to);
    }
    add(document, "\n}\n");
}

static void write_json(const struct trial *trial, struct document *document)
{
    static const char *const words[] = {[WEFT_READ] = "",
                                        [WEFT_WRITE] = ",\"written\":true",
                                        [WEFT_UPDATE] = ",\"read\":true,\"written\":true"};

    document->length = 0;
    add(document, "{\"weft\":1,\"schedule\":\"s\",\"size\":1,\"ranks\":[{\"rank\":0,\"buffers\":[");
    for (size_t i = 0; i < slots_of(trial); i++)
        add(document, "%s{\"name\":\"%c\",\"kind\":\"%s\",\"dtype\":\"%s\",\"count\":%llu}",
            i ? "," : "", slots[i].name, slots[i].kind, slots[i].dtype, slots[i].count);
    add(document, "],\"nodes\":[{\"kind\":\"compute\",\"op\":\"%s\",\"regions\":[", trial->op);
    for (size_t i = 0; i < REGIONS && trial->pieces[i].slot; i++) {
        const struct piece *piece = &trial->pieces[i];

        add(document, "%s{\"slot\":\"%c\",\"offset\":%llu,\"count\":%llu%s}", i ? "," : "",
            piece->slot, piece->from, piece->to - piece->from, words[piece->access]);
    }
    add(document, "]}]}]}\n");
}

/* ---- what becomes of them ---- */

static void expect_name(const struct trial *trial)
{
    struct weft_op *op = NULL;

    cr_expect_eq(weft_compress_op_parse(trial->op, &op), WEFT_ERR_NOT_FOUND, "%s", trial->op);
    cr_expect(strstr(weft_error_text(), trial->text), "%s: %s", trial->op, weft_error_text());
    cr_expect_null(op);
}

static void expect_check(const struct trial *trial, const struct weft_schedule *schedule)
{
    struct weft_check_report *report;
    struct weft_fault fault = {.struct_size = sizeof fault};

    OK(weft_check(&schedule, 1, NULL, &report));
    if (trial->stage == FINE)
        cr_expect(weft_check_report_ok(report), "%s", trial->op);
    else if (weft_check_report_get_fault(report, 0, &fault) != WEFT_OK)
        cr_expect_fail("%s: no fault, expected %s", trial->op, trial->text);
    else
        cr_expect(strstr(fault.text, trial->text), "%s: %s, expected %s", trial->op, fault.text,
                  trial->text);
    weft_check_report_destroy(report);
}

static void expect_run(const struct trial *trial, struct weft_schedule *schedule)
{
    static double memory[SMALL][32];
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run *run = make_run(alone.context, commit(schedule), NULL);

    for (size_t i = 0; i < SMALL; i++) {
        memset(memory[i], 0, sizeof memory[i]);
        OK(bind_slot(run, (weft_slot_t)i, memory[i]));
    }
    int status = weft_run_execute(run);
    if (trial->stage == FINE)
        cr_expect_eq(status, WEFT_OK, "%s: %s", trial->op, weft_error_text());
    else {
        cr_expect_eq(status, WEFT_ERR_COMPUTE, "%s: %d", trial->op, status);
        cr_expect(strstr(weft_error_text(), trial->text), "%s: %s", trial->op, weft_error_text());
    }
    weft_run_destroy(run);
    alone_destroy(&alone);
}

static void expect(const struct trial *trial, const struct document *document)
{
    struct weft_schedule **schedules = NULL;
    size_t count = 0;
    int status = weft_schedule_read(document->text, document->length, NULL, 0, &schedules, &count);

    if (trial->stage == NAME || trial->stage == NODE) {
        cr_expect_eq(status, WEFT_ERR_FORMAT, "%s", document->text);
        cr_expect(strstr(weft_error_text(), trial->text), "%s: %s, expected %s", trial->op,
                  weft_error_text(), trial->text);
        return;
    }
    cr_assert_eq(status, WEFT_OK, "%s: %s", document->text, weft_error_text());
    expect_check(trial, schedules[0]);
    if (trial->stage == UNMADE)
        weft_schedule_destroy(schedules[0]);
    else
        expect_run(trial, schedules[0]); /* destroys it */
    weft_memory_free(schedules);
}

static void expect_all(const struct trial *trials, size_t count)
{
    struct document document;

    for (size_t i = 0; i < count; i++) {
        if (trials[i].stage == NAME)
            expect_name(&trials[i]);
        write_text(&trials[i], &document);
        expect(&trials[i], &document);
        write_json(&trials[i], &document);
        expect(&trials[i], &document);
    }
}

/* ---- names ---- */

#define BITS(value)   "bits are `" value "`, expected 2, 4, 8 or sign"
#define BUCKET(value) "the bucket is `" value "`, expected a multiple of 8 up to 1073741824"
#define NORM(value)   "the norm is `" value "`, expected max or l2"
#define K(value)      "K is `" value "`, expected a number of 1 to "

Test(compressed_documents, names_that_nearly_are)
{
    static const struct {
        const char *rest, *text;
    } quantisers[] = {
        {"3-8-max", BITS("3")},
        {"1-8-max", BITS("1")},
        {"0-8-max", BITS("0")},
        {"16-8-max", BITS("16")},
        {"04-8-max", BITS("04")},
        {"-4-8-max", BITS("")},
        {"nan-8-max", BITS("nan")},
        {"18446744073709551620-8-max", BITS("18446744073709551620")},
        {"", BITS("")},
        {"signs-8", BITS("signs")},
        {"4", BUCKET("")},
        {"4-", BUCKET("")},
        {"4-0-max", BUCKET("0")},
        {"4-12-max", BUCKET("12")},
        {"4-08-max", BUCKET("08")},
        {"4-1073741832-max", BUCKET("1073741832")},
        {"4-2147483648-max", BUCKET("2147483648")},
        {"4-9223372036854775808-max", BUCKET("9223372036854775808")},
        {"4--8-max", BUCKET("")},
        {"4-max", BUCKET("max")},
        {"sign", BUCKET("")},
        {"sign-4", BUCKET("4")},
        {"sign-2147483648", BUCKET("2147483648")},
        {"4-8", NORM("")},
        {"4-8-", NORM("")},
        {"4-8-mean", NORM("mean")},
        {"4-8-L2", NORM("L2")},
        {"4-8-maxx", NORM("maxx")},
        {"4-8-max-", NORM("max-")},
        {"sign-8-max", "`-max` is behind the bucket, expected nothing: signs have no norm"},
        {"sign-8-", "`-` is behind the bucket, expected nothing"},
    };
    static const struct {
        const char *rest, *text;
    } slices[] = {
        {"0", K("0")},
        {"-1", K("-1")},
        {"04", K("04")},
        {"4x", K("4x")},
        {"4-4", K("4-4")},
        {"", K("")},
        {"NaN", K("NaN")},
        {"18446744073709551616", K("18446744073709551616")},
        {"1000000000000000000000000000000", K("100000000000000000000000")},
    };
    static const char *const kinds[] = {"quantise-",      "dequantise-",  "dequantise-add-",
                                        "project-",       "reconstruct-", "correlate-",
                                        "orthonormalise-"};
    const size_t quantiser_count = sizeof quantisers / sizeof quantisers[0];
    char name[64];

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t i = 0; i < (k < 3 ? quantiser_count : sizeof slices / sizeof slices[0]); i++) {
            struct trial trial = {.op = name,
                                  .pieces = {OUT('y', 0, 4)},
                                  .stage = NAME,
                                  .text = k < 3 ? quantisers[i].text : slices[i].text};

            snprintf(name, sizeof name, "%s%s", kinds[k],
                     k < 3 ? quantisers[i].rest : slices[i].rest);
            expect_all(&trial, 1);
        }
    expect_all(
        (const struct trial[]){{"orthonormalise-1025", {OUT('y', 0, 4)}, NAME, K("1025") "1024"}},
        1);
}

Test(compressed_documents, other_names_are_told_what_there_is)
{
    static const char *const names[] = {"quantise", "projection-4", "Project-4", "quantize-4-8-max",
                                        "projec-4", "deproject-4",  "K",         "sign-8"};
    struct document document;
    struct weft_schedule **schedules;
    size_t count;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct trial trial = {.op = names[i], .pieces = {OUT('y', 0, 4)}};

        write_text(&trial, &document);
        CHECK_STATUS(
            weft_schedule_read(document.text, document.length, NULL, 0, &schedules, &count),
            WEFT_ERR_FORMAT);
        CHECK_TEXT(weft_error_text(), names[i]);
        CHECK_TEXT(weft_error_text(), "expected one of sum, prod");
        CHECK_TEXT(weft_error_text(), "project-768)");
        write_json(&trial, &document);
        CHECK_STATUS(
            weft_schedule_read(document.text, document.length, NULL, 0, &schedules, &count),
            WEFT_ERR_FORMAT);
        CHECK_TEXT(weft_error_text(), "expected one of sum, prod");
    }
}

/* ---- regions ---- */

Test(compressed_documents, regions_of_all_sorts)
{
    static const struct trial trials[] = {
        /* as they are meant */
        {"quantise-4-8-max", {OUT('q', 0, 16), IN('x', 0, 16)}, FINE, NULL},
        {"quantise-2-1073741824-l2", {OUT('q', 0, 8), IN('x', 0, 16)}, FINE, NULL},
        {"quantise-sign-8", {OUT('q', 0, 10), IN('x', 0, 9)}, FINE, NULL},
        {"dequantise-8-8-max", {OUT('y', 0, 8), IN('q', 0, 12)}, FINE, NULL},
        {"dequantise-add-8-8-max", {BOTH('y', 0, 8), IN('q', 0, 12)}, FINE, NULL},
        {"project-4", {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8)}, FINE, NULL},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 13), IN('b', 0, 8), IN('m', 0, 13), BOTH('s', 0, 3)},
         FINE,
         NULL},
        {"project-1", {OUT('y', 0, 16), IN('x', 0, 16), IN('b', 0, 1)}, FINE, NULL},
        {"project-768", {OUT('e', 0, 0), IN('x', 0, 16), IN('e', 0, 0)}, FINE, NULL},
        {"project-18446744073709551615",
         {OUT('e', 0, 0), IN('x', 0, 16), IN('e', 0, 0), BOTH('s', 0, 3)},
         FINE,
         NULL},
        {"reconstruct-4",
         {OUT('y', 0, 13), IN('x', 0, 8), IN('b', 0, 8), IN('m', 0, 13)},
         FINE,
         NULL},
        {"reconstruct-18446744073709551615",
         {OUT('y', 0, 3), IN('e', 0, 0), IN('e', 0, 0)},
         FINE,
         NULL},
        {"correlate-4", {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8)}, FINE, NULL},
        {"correlate-9223372036854775808",
         {OUT('e', 0, 0), IN('e', 0, 0), IN('e', 0, 0)},
         FINE,
         NULL},
        {"orthonormalise-2", {BOTH('y', 0, 8), OUT('w', 0, 8)}, FINE, NULL},
        {"orthonormalise-2", {BOTH('e', 0, 0), OUT('w', 0, 8)}, FINE, NULL},
        /* empty */
        {"quantise-4-8-max", {OUT('q', 0, 0), IN('e', 0, 0)}, FINE, NULL},
        {"dequantise-add-4-8-max", {BOTH('e', 0, 0), IN('q', 5, 5)}, FINE, NULL},
        {"project-4", {OUT('e', 0, 0), IN('e', 0, 0), IN('b', 0, 4)}, FINE, NULL},
        {"reconstruct-4", {OUT('e', 0, 0), IN('e', 0, 0), IN('e', 0, 0)}, FINE, NULL},
        {"correlate-4", {OUT('y', 0, 4), IN('e', 0, 0), IN('e', 0, 0)}, FINE, NULL},
        /* too many, too few */
        {"quantise-4-8-max", {OUT('q', 0, 8)}, FAULT, "1 regions, expected 2"},
        {"quantise-4-8-max",
         {OUT('q', 0, 8), IN('x', 0, 8), IN('b', 0, 8)},
         FAULT,
         "3 regions, expected 2"},
        {"project-4", {OUT('y', 0, 8), IN('x', 0, 16)}, FAULT, "2 regions, expected 3 to 5"},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8), IN('m', 0, 16), BOTH('s', 0, 3),
          BOTH('w', 0, 3)},
         FAULT,
         "6 regions, expected 3 to 5"},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8), BOTH('s', 0, 3), BOTH('w', 0, 3)},
         FAULT,
         "region 4 is the squares again"},
        {"orthonormalise-2", {BOTH('y', 0, 8)}, FAULT, "1 regions, expected 2"},
        /* of other datatypes */
        {"quantise-4-8-max",
         {OUT('q', 0, 8), IN('h', 0, 8)},
         FAULT,
         "region 1 (the values) is 8 elements of i32, expected f32"},
        {"quantise-4-8-max",
         {OUT('y', 0, 8), IN('x', 0, 8)},
         FAULT,
         "region 0 (the bytes) is 8 elements of f32, expected u8"},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8), IN('h', 0, 16)},
         FAULT,
         "is 16 elements of i32, expected f"},
        {"orthonormalise-2",
         {BOTH('y', 0, 8), OUT('q', 0, 64)},
         FAULT,
         "region 1 (memory to work in) is 64 elements of u8, expected f64"},
        /* of other sizes */
        {"quantise-4-8-max",
         {OUT('q', 0, 15), IN('x', 0, 16)},
         FAULT,
         "region 0 (the bytes) is 15 elements, expected 16 for 16 values"},
        {"dequantise-4-8-max",
         {OUT('y', 0, 16), IN('q', 0, 17)},
         FAULT,
         "region 1 (the bytes) is 17 elements, expected 16 for 16 values"},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 7)},
         FAULT,
         "region 2 (the basis) is 7 elements, expected a multiple of 4"},
        {"project-1",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 2)},
         FAULT,
         "region 2 (the basis) is 2 elements, expected a multiple of 1, at most its square"},
        {"project-9223372036854775808",
         {OUT('y', 0, 1), IN('x', 0, 16), IN('b', 0, 16)},
         FAULT,
         "expected a multiple of 9223372036854775808"},
        {"project-4",
         {OUT('y', 0, 7), IN('x', 0, 16), IN('b', 0, 8)},
         FAULT,
         "region 0 (the components) is 7 elements, expected 8: 2 for each of 4 slices"},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8), IN('m', 0, 15)},
         FAULT,
         "region 3 (the mean) is 15 elements, expected 16, as the values"},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8), BOTH('s', 0, 2)},
         FAULT,
         "region 3 (the squares) is 2 elements, expected 3"},
        {"reconstruct-4",
         {OUT('y', 0, 16), IN('x', 0, 9), IN('b', 0, 8)},
         FAULT,
         "region 1 (the components) is 9 elements, expected 8: 2 for each of 4 slices"},
        {"correlate-4",
         {OUT('y', 0, 8), IN('x', 0, 15), IN('b', 0, 8)},
         FAULT,
         "region 1 (the values) is 15 elements, expected rows of 4"},
        {"correlate-4",
         {OUT('y', 0, 9), IN('x', 0, 16), IN('b', 0, 8)},
         FAULT,
         "region 0 (the products) is 9 elements, expected 4 rows"},
        {"correlate-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 9)},
         FAULT,
         "region 2 (the components) is 9 elements, expected 8: 4 rows of 2"},
        {"orthonormalise-3",
         {BOTH('y', 0, 8), OUT('w', 0, 10)},
         FAULT,
         "region 0 (the matrix) is 8 elements, expected rows of 3"},
        {"orthonormalise-1024",
         {BOTH('e', 0, 0), OUT('w', 0, 32)},
         FAULT,
         "region 1 (memory to work in) is 32 elements, expected 2052"},
        /* on top of each other */
        {"project-4",
         {OUT('y', 0, 8), IN('y', 7, 23), IN('b', 0, 8)},
         FAULT,
         "regions 0 and 1 overlap, expected memory of their own"},
        {"correlate-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('y', 7, 15)},
         FAULT,
         "regions 0 and 2 overlap"},
        {"reconstruct-4",
         {OUT('y', 0, 8), IN('x', 0, 4), IN('y', 4, 12)},
         FAULT,
         "regions 0 and 2 overlap"},
        {"reconstruct-4",
         {OUT('y', 0, 8), IN('x', 0, 4), IN('b', 0, 8), IN('y', 1, 9)},
         FAULT,
         "regions 0 and 3 overlap"},
        {"reconstruct-4",
         {OUT('y', 0, 8), IN('x', 0, 4), IN('b', 0, 8), IN('y', 0, 8)},
         FINE,
         NULL},
        {"project-4", {OUT('y', 0, 8), IN('x', 0, 16), IN('x', 0, 8), IN('x', 0, 16)}, FINE, NULL},
        /* counts that overflow: rows of one times as many columns are 2^66 and 2^68 */
        {"correlate-1",
         {OUT('H', 0, 1ULL << 33), IN('G', 0, 1ULL << 33), IN('e', 0, 0)},
         UNMADE,
         "8589934592 rows of 8589934592 components, expected what memory can hold"},
        {"project-1",
         {OUT('H', 0, 1ULL << 34), IN('G', 0, 1ULL << 34), IN('b', 0, 16)},
         UNMADE,
         "region 2 (the basis) is 16 elements"},
        {"quantise-8-8-max",
         {OUT('q', 0, 64), IN('G', 0, 1ULL << 34)},
         UNMADE,
         "region 0 (the bytes) is 64 elements, expected 25769803776 for 17179869184 values"},
        /* what is written is said to be read, or cannot be written */
        {"quantise-4-8-max",
         {IN('q', 0, 16), IN('x', 0, 16)},
         NODE,
         "has access WEFT_READ, expected WEFT_WRITE or WEFT_UPDATE: `quantise-4-8-max` writes it"},
        {"dequantise-add-8-8-max",
         {IN('y', 0, 8), IN('q', 0, 12)},
         NODE,
         "`dequantise-add-8-8-max` writes it"},
        {"project-4", {OUT('x', 0, 8), IN('b', 0, 16), IN('b', 0, 8)}, NODE, "x"},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8), IN('s', 0, 3)},
         NODE,
         "arguments[3]"},
        {"project-4",
         {OUT('y', 0, 8), IN('x', 0, 16), IN('b', 0, 8), IN('m', 0, 16), IN('s', 0, 3)},
         NODE,
         "arguments[4]"},
        {"orthonormalise-2", {BOTH('y', 0, 8), IN('w', 0, 8)}, NODE, "arguments[1]"},
        /* beyond slots */
        {"project-4", {OUT('y', 30, 38), IN('x', 0, 16), IN('b', 0, 8)}, NODE, "32"},
    };

    expect_all(trials, sizeof trials / sizeof trials[0]);
}
