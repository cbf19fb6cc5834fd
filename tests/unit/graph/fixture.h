/* SPDX-License-Identifier: BSD-3-Clause */
/* What the suites of schedules begin with: one of rank 1 of 4, with a slot of each kind and a
 * value, and how a call is seen to fail. */
#ifndef WEFT_TESTS_GRAPH_FIXTURE_H
#define WEFT_TESTS_GRAPH_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weft/schedule.h>

#include "support/compute.h"

static struct weft_schedule *schedule;
static weft_slot_t in, out, scratch;
static weft_value_t value;
static struct weft_op *user_op;

/* Rank 1 of 4, with a slot of each kind that matters here and a value. */
static inline void setup(void)
{
    user_op = idle_op("nothing");
    cr_assert_eq(weft_schedule_create(&schedule, 1, 4), WEFT_OK);
    in = weft_schedule_add_slot(schedule, "in", WEFT_F32, 100, WEFT_SLOT_INPUT);
    out = weft_schedule_add_slot(schedule, "out", WEFT_F32, 100, WEFT_SLOT_OUTPUT);
    scratch = weft_schedule_add_slot(schedule, "scratch", WEFT_F64, 50, WEFT_SLOT_SCRATCH);
    value = weft_schedule_add_value(schedule, "value", 100);
    cr_assert_eq(weft_schedule_status(schedule), WEFT_OK);
}

static inline void teardown(void)
{
    weft_schedule_destroy(schedule);
    weft_op_destroy(user_op);
}

static inline const struct weft_op *sum(void)
{
    return weft_op_builtin(WEFT_SUM);
}

/* The call failed with `expected`, the text has every one of up to three words, and it sticks. */
static inline void expect_failure(int status, int expected, const char *first, const char *second,
                                  const char *third)
{
    const char *words[] = {first, second, third};
    char text[512];

    snprintf(text, sizeof text, "%s", weft_error_text());
    cr_expect_eq(status, expected, "%s: %s", weft_status_name(status), text);
    for (size_t i = 0; i < 3; i++)
        if (words[i])
            cr_expect_not_null(strstr(text, words[i]), "\"%s\" does not say \"%s\"", text,
                               words[i]);
    cr_expect_eq(weft_schedule_status(schedule), expected);
    cr_expect_str_eq(weft_error_text(), text);
}

#endif
