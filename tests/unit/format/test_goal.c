/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules written in GOAL, above all those with events: which of their executions that is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

/* Reads `document`, writes it in GOAL; the text, or NULL with `status`. */
static char *goal_of(const char *document, const struct weft_goal_options *options, int *status)
{
    struct weft_schedule **schedules;
    size_t count, length = 0;
    char *text = NULL;

    cr_assert_eq(weft_schedule_read(document, strlen(document), NULL, 0, &schedules, &count),
                 WEFT_OK, "%s", weft_error_text());
    *status = weft_schedule_write_goal((const struct weft_schedule *const *)schedules, count,
                                       options, &text, &length);
    cr_assert(*status ? !text : length == strlen(text));
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
    return text;
}

/* Without the comments. */
static void expect_goal(const char *document, const struct weft_goal_options *options,
                        const char *expected)
{
    int status;
    char *text = goal_of(document, options, &status);
    const char *begin;

    cr_assert_eq(status, WEFT_OK, "%s", weft_error_text());
    begin = strstr(text, "num_ranks");
    cr_assert_not_null(begin);
    cr_assert_str_eq(begin, expected);
    weft_memory_free(text);
}

Test(goal, sizes_tags_and_costs)
{
    struct weft_goal_options options;

    weft_goal_options_init(&options);
    options.copy_us_per_byte = 0.0005;
    options.reduce_us_per_byte = 0.002;
    expect_goal(
        "weft 1\nschedule \"s\" size 2\n"
        "rank 0 {\n input a f32 8\n output b f64 8\n scratch a2 f32 4\n"
        " last: join after n2, n3\n"
        " n1: send a[2:5] to 1 tag 4294967294\n"
        " n2: recv b from 1\n"
        " n3: copy b = b after n2\n"
        " reduce sum a2[0:2] = a2[0:2], a2[2:4]\n"
        "}\n"
        "rank 1 {\n scratch c f64 8\n"
        " send c to 0\n recv c[0:0] from 1 tag 7\n send c[1:1] to 1 tag 7\n"
        " recv c[0:2] from 0 tag 4294967294\n}\n",
        &options,
        "num_ranks 2\n\nrank 0 {\nn0: calc 0\nn1: send 12b to 1 tag 4294967294\n"
        "n2: recv 64b from 1 tag 0\nn3: calc 32\nn3 requires n2\nn4: calc 16\nn0 requires n2\n"
        "n0 requires n3\n}\n\n"
        "rank 1 {\nn0: send 64b to 0 tag 0\nn1: recv 1b from 1 tag 7\n"
        "n2: send 1b to 1 tag 7\nn3: recv 12b from 0 tag 4294967294\n}\n");
}

/* 64 values and 64 x 16 of the basis are read, 16 components written: 1024 products. The longest
 * name counts; an operation without costs of its own costs as calls do. */
Test(goal, operations_have_costs_of_their_own)
{
    static const char document[] =
        "weft 1\nschedule \"s\" size 1\n"
        "rank 0 {\n input a f32 64\n input u f32 1024\n output b f32 16\n scratch q u8 36\n"
        " compute project-64 out b, in a, in u\n"
        " compute quantise-4-512-max out q, in a\n"
        "}\n";
    struct weft_goal_options options;
    int status;

    weft_goal_options_init(&options);
    options.compute_us_per_byte = 1;
    options.op_costs = (const struct weft_sim_op_cost[]){
        {.op = "pro", .written_us_per_byte = 7},
        {.op = "project", 0.001, 0.002, 0.003},
    };
    options.op_cost_count = 2;
    expect_goal(document, &options, "num_ranks 1\n\nrank 0 {\nn0: calc 11840\nn1: calc 36000\n}\n");
    options.op_costs = &(const struct weft_sim_op_cost){.op = "project", .read_us_per_byte = -1};
    options.op_cost_count = 1;
    cr_expect_null(goal_of(document, &options, &status));
    cr_expect_eq(status, WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "read_us_per_byte is -1"), "%s", weft_error_text());
    options.op_costs = NULL;
    cr_expect_null(goal_of(document, &options, &status));
    cr_expect(strstr(weft_error_text(), "`op_costs` is NULL"), "%s", weft_error_text());
}

Test(goal, ranks_without_nodes_have_one)
{
    expect_goal("weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n", NULL,
                "num_ranks 1\n\nrank 0 {\nn0: calc 0\n}\n");
}

/* Two ranks; each may be activated by its application or by the other. */
static const char activation[] = "weft 1\nschedule \"activation\" size 2\n"
                                 "rank 0 {\n"
                                 " app: event choice 0\n"
                                 " heard: event channel 3 choice 0\n"
                                 " tell: signal to 1 channel 3 after app\n"
                                 " go: join after any app, heard\n"
                                 "}\n"
                                 "rank 1 {\n"
                                 " app: event choice 0\n"
                                 " heard: event channel 3 choice 0\n"
                                 " tell: signal to 0 channel 3 after app\n"
                                 " go: join after any app, heard\n"
                                 "}\n";

Test(goal, the_first_rank_activates)
{
    expect_goal(activation, NULL,
                "num_ranks 2\n\n"
                "rank 0 {\nn0: calc 0\nn2: send 8b to 1 tag 3\nn2 requires n0\n"
                "n3: calc 0\nn3 requires n0\n}\n\n"
                "rank 1 {\ns0_2: recv 8b from 0 tag 3\nn1: calc 0\nn1 requires s0_2\n"
                "n3: calc 0\nn3 requires n1\n}\n");
}

Test(goal, another_rank_activates)
{
    const int one = 1;
    struct weft_goal_options options;

    weft_goal_options_init(&options);
    options.activators = &one;
    options.activator_count = 1;
    expect_goal(activation, &options,
                "num_ranks 2\n\n"
                "rank 0 {\ns1_2: recv 8b from 1 tag 3\nn1: calc 0\nn1 requires s1_2\n"
                "n3: calc 0\nn3 requires n1\n}\n\n"
                "rank 1 {\nn0: calc 0\nn2: send 8b to 0 tag 3\nn2 requires n0\n"
                "n3: calc 0\nn3 requires n0\n}\n");
}

Test(goal, comments_say_what_was_chosen)
{
    int status;
    char *text = goal_of(activation, NULL, &status);

    cr_assert(strstr(text, "// activation\n"));
    cr_assert(strstr(text, "// One execution of several: the application of rank 0"));
    cr_assert(strstr(text, "// 3 nodes are retired"));
    cr_assert(strstr(text, "// Signals are messages of 8b; channel c has tag 0 + c."));
    weft_memory_free(text);
}

/* Events that compete with no signal are fired on every rank; late signals are received all the
 * same; a signal to nobody too. */
Test(goal, events_of_the_application_and_late_signals)
{
    expect_goal("weft 1\nschedule \"s\" size 2\n"
                "rank 0 {\n scratch b u8 4\n"
                " ready: event\n"
                " send b to 1 tag 9 after ready\n"
                " signal to 1 channel 0\n"
                " signal to 1 channel 5\n"
                "}\n"
                "rank 1 {\n scratch b u8 4\n"
                " ready: event\n"
                " e: event channel 0 after n2\n"
                " n2: recv b from 0 tag 9\n"
                " one: event choice 0\n"
                " two: event choice 0\n"
                " join after one, two\n"
                " join after any two, one\n"
                "}\n",
                NULL,
                "num_ranks 2\n\n"
                "rank 0 {\nn0: calc 0\nn1: send 4b to 1 tag 9\nn1 requires n0\n"
                "n2: send 8b to 1 tag 10\nn3: send 8b to 1 tag 15\n}\n\n"
                "rank 1 {\ns0_2: recv 8b from 0 tag 10\ns0_3: recv 8b from 0 tag 15\n"
                "n0: calc 0\nn1: calc 0\nn1 requires s0_2\nn2: recv 4b from 0 tag 9\n"
                "n3: calc 0\nn6: calc 0\nn6 requires n3\nn1 requires n2\n}\n");
}

/* A rank that nobody tells has to be started by its application; what waits for ever stays. */
Test(goal, what_nothing_else_starts)
{
    expect_goal("weft 1\nschedule \"s\" size 2\n"
                "rank 0 {\n join\n}\n"
                "rank 1 {\n scratch b u8 4\n"
                " heard: event channel 1 choice 0\n"
                " app: event choice 0\n"
                " r: recv b from 0\n"
                " join after any r\n"
                " join after heard\n"
                "}\n",
                NULL,
                "num_ranks 2\n\nrank 0 {\nn0: calc 0\n}\n\n"
                "rank 1 {\nn0: calc 0\nn2: recv 4b from 0 tag 0\nn3: calc 0\nn3 requires n2\n"
                "n4: calc 0\nn4 requires n0\n}\n");
}

/* P ranks, a binomial tree of activations from every rank: whoever activates, everybody hears it,
 * and nobody twice. */
Test(goal, everybody_is_activated_once)
{
    enum { RANKS = 8 };
    static char document[1 << 15];
    size_t used = 0;

    used += (size_t)snprintf(document, sizeof document, "weft 1\nschedule \"s\" size %d\n", RANKS);
    for (int r = 0; r < RANKS; r++) {
        used += (size_t)snprintf(document + used, sizeof document - used,
                                 "rank %d {\n app: event choice 0\n", r);
        for (int e = 0; e < 3; e++)
            used += (size_t)snprintf(document + used, sizeof document - used,
                                     " e%d: event channel %d choice 0\n", e, e);
        for (int e = 0; e < 3; e++) {
            used += (size_t)snprintf(document + used, sizeof document - used,
                                     " signal to %d channel %d after any app", r ^ (1 << e), e);
            for (int below = 0; below < e; below++)
                used += (size_t)snprintf(document + used, sizeof document - used, ", e%d", below);
            used += (size_t)snprintf(document + used, sizeof document - used, "\n");
        }
        used += (size_t)snprintf(document + used, sizeof document - used, "}\n");
    }
    for (int activator = 0; activator < RANKS; activator++) {
        struct weft_goal_options options;
        int status, receives = 0, fired = 0;
        char *text;

        weft_goal_options_init(&options);
        options.activators = &activator;
        options.activator_count = 1;
        text = goal_of(document, &options, &status);
        cr_assert_eq(status, WEFT_OK);
        for (const char *at = text; (at = strstr(at, ": recv 8b")); at++)
            receives++;
        for (const char *at = text; (at = strstr(at, " requires s")); at++)
            fired++;
        cr_assert_eq(receives, RANKS - 1, "activator %d", activator);
        cr_assert_eq(fired, RANKS - 1, "activator %d", activator);
        weft_memory_free(text);
    }
}

static void expect_refusal(const char *document, const struct weft_goal_options *options,
                           int expected, const char *words)
{
    int status;
    char *text = goal_of(document, options, &status);

    cr_assert_null(text);
    cr_assert_eq(status, expected);
    cr_assert(strstr(weft_error_text(), words), "%s", weft_error_text());
}

/* Two who arrive at once: both start it, and each other's signals come too late. */
Test(goal, two_ranks_activate)
{
    static const int both[] = {0, 1};
    struct weft_goal_options options;

    weft_goal_options_init(&options);
    options.activators = both;
    options.activator_count = 2;
    expect_goal(activation, &options,
                "num_ranks 2\n\n"
                "rank 0 {\ns1_2: recv 8b from 1 tag 3\nn0: calc 0\nn2: send 8b to 1 tag 3\n"
                "n2 requires n0\nn3: calc 0\nn3 requires n0\n}\n\n"
                "rank 1 {\ns0_2: recv 8b from 0 tag 3\nn0: calc 0\nn2: send 8b to 0 tag 3\n"
                "n2 requires n0\nn3: calc 0\nn3 requires n0\n}\n");
}

Test(goal, what_cannot_be_said_is_refused)
{
    const int one = 1;
    struct weft_goal_options options;

    expect_refusal("weft 1\nschedule \"s\" size 2\nrank 1 {\n}\n", NULL, WEFT_ERR_UNSUPPORTED,
                   "ranks 0 to 1");
    expect_refusal("weft 1\nschedule \"s\" size 1\nrank 0 {\n scratch b u8 1\n"
                   " recv b from 0 tag 4294967295\n}\n",
                   NULL, WEFT_ERR_UNSUPPORTED, "4294967295");
    expect_refusal("weft 1\nschedule \"s\" size 1\nrank 0 {\n scratch b u8 1\n"
                   " recv b from 0 tag 4294967290\n signal to 0 channel 4\n}\n",
                   NULL, WEFT_ERR_UNSUPPORTED, "channel 4");
    weft_goal_options_init(&options);
    options.activators = &one;
    options.activator_count = 1;
    expect_refusal("weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n", &options, WEFT_ERR_INVALID,
                   "`activators[0]` is 1");
    options.activator_count = 0;
    expect_refusal("weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n", &options, WEFT_ERR_INVALID,
                   "`activator_count` is 0");
    weft_goal_options_init(&options);
    options.copy_us_per_byte = -1;
    expect_refusal("weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n", &options, WEFT_ERR_INVALID,
                   "`copy_us_per_byte`");
    weft_goal_options_init(&options);
    options.compute_us_per_byte = 1.0 / 0.0;
    expect_refusal("weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n", &options, WEFT_ERR_INVALID,
                   "`compute_us_per_byte`");
    options = (struct weft_goal_options){0};
    expect_refusal("weft 1\nschedule \"s\" size 1\nrank 0 {\n}\n", &options, WEFT_ERR_INVALID,
                   "struct_size");
}
