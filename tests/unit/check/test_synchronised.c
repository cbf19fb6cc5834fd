/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends that are stated to come after the start of ranks: what tells of a start, what does not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

static struct weft_check_report *check_document(const char *text, int size)
{
    struct weft_schedule **schedules = NULL;
    struct weft_check_report *report = NULL;
    struct weft_read_options options;
    size_t count = 0;

    weft_read_options_init(&options);
    options.size = size;
    cr_assert_eq(weft_schedule_read_with(text, strlen(text), &options, &schedules, &count), WEFT_OK,
                 "%s\nfor:\n%s", weft_error_text(), text);
    cr_assert_eq(weft_check((const struct weft_schedule *const *)schedules, count, NULL, &report),
                 WEFT_OK, "%s", weft_error_text());
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
    return report;
}

static void expect_sound(const char *text, int size)
{
    struct weft_check_report *report = check_document(text, size);
    struct weft_fault fault = {.struct_size = sizeof fault, .text = ""};

    weft_check_report_get_fault(report, 0, &fault);
    cr_expect(weft_check_report_ok(report), "%s\nfor %d ranks:\n%s", fault.text, size, text);
    weft_check_report_destroy(report);
}

/* `count` faults, all of kind result; the first is of a rank and has a piece of text. */
static void expect_faults(const char *text, int size, size_t count, int rank, const char *piece)
{
    struct weft_check_report *report = check_document(text, size);
    struct weft_fault fault = {.struct_size = sizeof fault, .text = ""};
    int named = 0;

    cr_expect_eq(weft_check_report_fault_count(report), count, "%zu faults for %d ranks:\n%s",
                 weft_check_report_fault_count(report), size, text);
    for (size_t i = weft_check_report_fault_count(report); i-- > 0;) {
        weft_check_report_get_fault(report, i, &fault);
        cr_expect_eq(fault.kind, WEFT_FAULT_RESULT, "%s", fault.text);
    }
    for (size_t i = 0; i < fault.rank_count; i++)
        named |= fault.ranks[i] == rank;
    cr_expect(named, "rank %d is not named: %s", rank, fault.text);
    cr_expect(strstr(fault.text, piece), "expected '%s' in: %s", piece, fault.text);
    weft_check_report_destroy(report);
}

#define HEAD "weft 1\nschedule \"b\" size any\nranks all {\nscratch t u8 0\n"
#define ALL  "result end after start of ranks 0..size-1\n}\n"

/* Every rank tells rank 0, which tells every rank. */
static const char central[] = HEAD "if rank == 0 {\n"
                                   "for i in 1..size-1 { in[i]: recv t from i }\n"
                                   "for i in 1..size-1 {\nout[i]: send t to i tag 1\n"
                                   "for k in 1..size-1 { order out[i] after in[k] }\n}\n"
                                   "} else {\nsend t to 0\nrecv t from 0 tag 1\n}\n" ALL;

Test(synchronised, a_barrier_through_one_rank)
{
    for (int size = 1; size <= 9; size++)
        expect_sound(central, size);
    expect_sound(central, 600); /* more than one batch of ranks */
}

/* Rank 0 hears ranks 1..560, and states it of a range that begins and ends within batches. */
Test(synchronised, ranges_of_ranks_across_batches)
{
#define SOME(last)                                                                                 \
    HEAD "if rank == 0 {\nfor i in 1..560 { recv t from i }\n"                                     \
         "result end after start of ranks 100.." last "\n"                                         \
         "} else if rank <= 560 {\nsend t to 0\n}\n}\n"

    expect_sound(SOME("560"), 1100);
    expect_faults(SOME("561"), 1100, 1, 561, "before rank 561 has started");
    expect_faults(SOME("1099"), 1100, 1, 568, "561, 562, 563, 564, 565, 566, 567, 568, ...");
}

Test(synchronised, a_rank_that_is_let_go_too_early)
{
    const char *early = HEAD "if rank == 0 {\nin1: recv t from 1\nin2: recv t from 2\n"
                             "out1: send t to 1 tag 1 after in1, in2\n"
                             "out2: send t to 2 tag 1 after in2\n"
                             "} else {\nsend t to 0\nrecv t from 0 tag 1\n}\n" ALL;

    expect_faults(early, 3, 1, 2, "rank 2 may end before rank 1 has started");
}

Test(synchronised, far_ranks_of_many_are_told)
{
    char text[512];

    snprintf(text, sizeof text,
             HEAD "if rank == 0 { send t to 1 }\nif rank == 1 { recv t from 0 }\n" ALL);
    expect_faults(text, 600, 100, 0,
                  "rank 0 may end before ranks 1, 2, 3, 4, 5, 6, 7, 8, ... have");
    /* Only what is stated counts, in any order. */
    expect_sound(HEAD "if rank == 0 { send t to 598 }\nif rank == 598 {\nrecv t from 0\n"
                      "result end after start of ranks 598, 0\nresult end after start of rank 0\n"
                      "}\n}\n",
                 600);
    expect_faults(HEAD "if rank == 598 { result end after start of ranks 597, 599 }\n}\n", 600, 1,
                  599, "rank 598 may end before ranks 597, 599 have started");
}

Test(synchronised, the_end_of_a_send_tells_nothing_of_its_receiver)
{
    expect_faults(HEAD "if rank == 0 { send t to 1 } else { recv t from 0 }\n" ALL, 2, 1, 0,
                  "rank 0 may end before rank 1 has started");
}

Test(synchronised, of_any_predecessor_only_what_all_have_heard)
{
    /* Rank 0 hears rank 1 or 2, and both only if the last waits for both. */
    const char *text = HEAD "if rank == 0 {\na: recv t from 1\nb: recv t from 2\n"
                            "j: join after %s a, b\nsend t to 3 after j\n} else if rank < 3 {\n"
                            "send t to 0\n} else {\nrecv t from 0\n"
                            "result end after start of ranks 0..%d\n}\n}\n";
    char one[512];

    snprintf(one, sizeof one, text, "", 2);
    expect_sound(one, 4);
    snprintf(one, sizeof one, text, "any", 2);
    expect_faults(one, 4, 1, 3, "rank 3 may end before ranks 1, 2 have started");
    snprintf(one, sizeof one, text, "any", 0);
    expect_sound(one, 4);
    /* What all of them have heard counts: both have heard rank 1. */
    expect_sound(HEAD "if rank == 0 {\na: recv t from 1\nb: recv t from 2\n"
                      "j: join after any a, b\nsend t to 3 after j\n} else if rank == 1 {\n"
                      "send t to 0\nsend t to 2\n} else if rank == 2 {\n"
                      "r: recv t from 1\nsend t to 0 after r\n} else {\nrecv t from 0\n"
                      "result end after start of ranks 0..1\n}\n}\n",
                 4);
}

Test(synchronised, an_any_node_that_its_own_consequence_could_trigger)
{
    /* `b` comes only after j has started, so j is started by `a`, and has heard rank 1. */
    expect_sound(HEAD "if rank == 0 {\na: recv t from 1\nj: join after any a, b\n"
                      "s: send t to 2 after j\nb: recv t from 2\n"
                      "result end after start of rank 1\n} else if rank == 1 {\nsend t to 0\n"
                      "} else {\nr: recv t from 0\nsend t to 0 after r\n"
                      "result end after start of ranks 0..1\n}\n}\n",
                 3);
}

Test(synchronised, signals_tell_what_all_of_them_have_heard)
{
    expect_sound(HEAD "if rank == 0 {\nevent channel 5\nresult end after start of rank 1\n"
                      "} else { signal to 0 channel 5 }\n}\n",
                 2);
    /* Either of two may have fired it. */
    expect_faults(HEAD "if rank == 0 {\nevent channel 5\nresult end after start of rank 1\n"
                       "} else { signal to 0 channel 5 }\n}\n",
                  3, 1, 1, "rank 0 may end before rank 1 has started");
    /* What only the application fires tells nothing. */
    expect_faults(HEAD "if rank == 0 {\nevent\nresult end after start of rank 1\n}\n}\n", 2, 1, 1,
                  "rank 0 may end before rank 1 has started");
}

Test(synchronised, what_another_fault_hides_is_not_told_twice)
{
    struct weft_check_report *report =
        check_document(HEAD "if rank == 0 { recv t from 1 }\n" ALL, 2);
    struct weft_fault fault = {.struct_size = sizeof fault};

    cr_assert_eq(weft_check_report_get_fault(report, 0, &fault), WEFT_OK);
    cr_expect_eq(fault.kind, WEFT_FAULT_MATCH, "%s", fault.text);
    for (size_t i = 1; weft_check_report_get_fault(report, i, &fault) == WEFT_OK; i++)
        cr_expect(!strstr(fault.text, "rank 0 may end"), "%s", fault.text);
    weft_check_report_destroy(report);
}

/* ---- the statement itself ---- */

Test(synchronised, it_is_stated_by_ranks_only)
{
    enum { SIZE = sizeof(struct weft_result) };
    struct weft_result result = {.struct_size = SIZE,
                                 .kind = WEFT_RESULT_AFTER_START,
                                 .first = 1,
                                 .ranks = 2},
                       read = {.struct_size = sizeof read};
    const struct weft_result wrong[] = {
        {.struct_size = SIZE, .kind = WEFT_RESULT_AFTER_START, .first = 2, .ranks = 2},
        {.struct_size = SIZE, .kind = WEFT_RESULT_AFTER_START, .first = 0, .ranks = 0},
        {.struct_size = SIZE, .kind = WEFT_RESULT_AFTER_START, .from = "a", .ranks = 1},
        {.struct_size = SIZE,
         .kind = WEFT_RESULT_AFTER_START,
         .op = weft_op_builtin(WEFT_SUM),
         .ranks = 1},
        {.struct_size = SIZE, .kind = (weft_result_kind_t)7, .ranks = 1},
    };
    struct weft_schedule *schedule;

    cr_assert_eq(weft_schedule_create(&schedule, 0, 3), WEFT_OK);
    cr_expect_eq(weft_schedule_add_result(schedule, &result), WEFT_OK);
    cr_assert_eq(weft_schedule_get_result(schedule, 0, &read), WEFT_OK);
    cr_expect(read.kind == WEFT_RESULT_AFTER_START && read.first == 1 && read.ranks == 2 &&
              !read.from && !read.op && !read.among);
    weft_schedule_destroy(schedule);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_assert_eq(weft_schedule_create(&schedule, 0, 3), WEFT_OK);
        cr_expect_eq(weft_schedule_add_result(schedule, &wrong[i]), WEFT_ERR_INVALID, "%zu", i);
        weft_schedule_destroy(schedule);
    }
}

static char *write_as(const char *text, weft_format_t format)
{
    struct weft_schedule **schedules = NULL;
    size_t count = 0;
    char *written;

    cr_assert_eq(weft_schedule_read(text, strlen(text), NULL, 0, &schedules, &count), WEFT_OK, "%s",
                 weft_error_text());
    cr_assert_eq(weft_schedule_write((const struct weft_schedule *const *)schedules, count, format,
                                     &written, NULL),
                 WEFT_OK);
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
    return written;
}

Test(synchronised, it_comes_back_as_text_and_json)
{
    const char *text = "weft 1\nschedule \"b\" size 4\nrank 1 {\ninout end f32 2\n"
                       "result end after start of ranks 0..3\nresult end after start of rank 2\n"
                       "result end = end from rank 0\nresult end after start of ranks 3, 1\n}\n";
    char *first = write_as(text, WEFT_FORMAT_TEXT), *json = write_as(text, WEFT_FORMAT_JSON);
    char *again = write_as(json, WEFT_FORMAT_TEXT);

    cr_expect_str_eq(first, again);
    cr_expect(strstr(first, "  result end after start of ranks 3, 1\n"), "%s", first);
    cr_expect(strstr(json, "{\"after\": \"start\", \"first\": 0, \"ranks\": 4}"), "%s", json);
    weft_memory_free(first);
    weft_memory_free(again);
    weft_memory_free(json);
}

static void expect_malformed(const char *text, const char *one, const char *two)
{
    struct weft_schedule **schedules = NULL;
    size_t count = 0;

    cr_assert_eq(weft_schedule_read(text, strlen(text), NULL, 0, &schedules, &count),
                 WEFT_ERR_FORMAT, "read:\n%s", text);
    cr_expect(strstr(weft_error_text(), one) && strstr(weft_error_text(), two), "%s",
              weft_error_text());
}

Test(synchronised, statements_that_are_wrong)
{
#define RANK "weft 1\nschedule \"b\" size 2\nrank 0 {\n"
    expect_malformed(RANK "result end after ranks 0..1\n}", "`ranks`", "`start`");
    expect_malformed(RANK "result end after start ranks 0..1\n}", "`ranks`", "`of`");
    expect_malformed(RANK "result end after start of 1\n}", "`1`", "`rank` or `ranks`");
    expect_malformed(RANK "result end after start of ranks 0..2\n}", "`2`", "at most 1");
    expect_malformed(RANK "result end = end from rank 0\n}", "`end`", "the name of a slot");
#define JSON                                                                                       \
    "{\"weft\": 1, \"schedule\": \"b\", \"size\": 2, \"ranks\": [{\"rank\": 0, \"results\": ["
    expect_malformed(JSON "{\"after\": \"end\", \"first\": 0}]}]}", "results[0]", "\"start\"");
    expect_malformed(JSON "{\"after\": \"start\", \"from\": \"a\"}]}]}", "\"from\"",
                     "after, first");
    expect_malformed(JSON "{\"after\": \"start\", \"first\": 2}]}]}", "results[0]", "0..1");
}

/* ---- the template ---- */

/* The barrier of an algorithm as text; the caller frees it. */
static char *barrier_text(const char *algo, int size)
{
    struct weft_schedule *at[17];
    struct weft_template_params params;
    char *text;

    weft_template_params_init(&params);
    params.algo = algo;
    for (int r = 0; r < size; r++)
        cr_assert_eq(weft_template_build("barrier", r, size, &params, &at[r]), WEFT_OK);
    cr_assert_eq(weft_schedule_write((const struct weft_schedule *const *)at, (size_t)size,
                                     WEFT_FORMAT_TEXT, &text, NULL),
                 WEFT_OK);
    for (int r = 0; r < size; r++)
        weft_schedule_destroy(at[r]);
    return text;
}

Test(synchronised, every_barrier_states_it_and_is_none_without_its_orders)
{
    const struct weft_template *barrier = weft_template_find("barrier");

    for (size_t a = 0; a < barrier->algorithm_count; a++)
        for (int size = 6; size <= 17; size++) { /* of up to 5 ranks radix 4 asks each */
            char *text = barrier_text(barrier->algorithms[a].name, size), *at = text;
            struct weft_check_report *report;
            struct weft_fault fault = {.struct_size = sizeof fault};

            expect_sound(text, 0);
            while ((at = strstr(at, " after n"))) /* the rest of the line is left out */
                memset(at, ' ', strcspn(at, "\n"));
            report = check_document(text, 0);
            cr_assert_eq(weft_check_report_get_fault(report, 0, &fault), WEFT_OK, "P=%d", size);
            cr_expect_eq(fault.kind, WEFT_FAULT_RESULT);
            weft_check_report_destroy(report);
            weft_memory_free(text);
        }
}
