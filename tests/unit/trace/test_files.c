/* SPDX-License-Identifier: BSD-3-Clause */
/* Traces: what is written and read back, clocks brought together. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/trace/trace.h"
#include "support/traces.h"

/* ---- writing and reading ---- */

static struct weft_trace_span message(int kind, int rank, int peer, uint32_t tag, uint64_t start,
                                      uint64_t end)
{
    struct weft_trace_span span = {.struct_size = sizeof span};
    weft_trace_span_init(&span);
    span.kind = kind;
    span.rank = rank;
    span.peer = peer;
    span.tag = tag;
    span.node = (int32_t)tag;
    span.start_ns = start;
    span.end_ns = end;
    span.plan = "made up";
    return span;
}

static void add(struct weft_trace *trace, struct weft_trace_span span)
{
    OK(weft_trace_add(trace, &span));
}

Test(trace_files, what_is_written_reads_back)
{
    struct weft_trace *trace = new_trace();
    struct weft_trace *back = new_trace();
    char *text, *again;
    size_t length, length_again;
    struct weft_trace_span span = message(WEFT_NODE_SEND, 2, 0, 9, 1000000007, 1000000019);
    span.bytes = (uint64_t)3 << 40;
    span.version = (uint64_t)1 << 60;
    span.object = 77;
    span.label = "a \"label\"\\ with \x01 and \xc3\xa4";
    span.helper = 1;
    add(trace, span);
    span = message(WEFT_NODE_RECV, 0, 2, 9, 1000000001, 1000000033);
    span.bytes = (uint64_t)3 << 40;
    span.version = (uint64_t)1 << 60;
    span.object = 77;
    span.arrived_ns = 999999990; /* before everything else */
    add(trace, span);
    span = message(WEFT_TRACE_RUN, 0, -1, 0, 1000000001, 1000000040);
    span.status = WEFT_ERR_TIMEOUT;
    span.object = UINT32_MAX;
    span.end = WEFT_TRACE_UNFINISHED;
    add(trace, span);
    OK(weft_trace_write_text(trace, &text, &length));
    OK(weft_trace_read_text(back, text, length));
    OK(weft_trace_write_text(back, &again, &length_again));
    cr_expect_eq(length, length_again);
    cr_expect_str_eq(text, again);
    cr_assert_eq(weft_trace_span_count(back), 3);
    for (size_t i = 0; i < 3; i++) {
        struct weft_trace_span a = get(trace, i);
        struct weft_trace_span b = get(back, i);
        cr_expect(a.rank == b.rank && a.kind == b.kind && a.end == b.end && a.helper == b.helper);
        cr_expect(a.object == b.object && a.version == b.version && a.peer == b.peer);
        cr_expect(a.tag == b.tag && a.bytes == b.bytes && a.start_ns == b.start_ns);
        cr_expect(a.end_ns == b.end_ns && a.arrived_ns == b.arrived_ns && a.status == b.status);
        cr_expect_str_eq(a.plan, b.plan);
        cr_expect((!a.label) == (!b.label));
        if (a.label && b.label)
            cr_expect_str_eq(a.label, b.label);
    }
    weft_memory_free(text);
    weft_memory_free(again);
    weft_trace_destroy(trace);
    weft_trace_destroy(back);
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (; (text = strstr(text, word)); text++)
        count++;
    return count;
}

Test(trace_files, overlapping_spans_go_to_lanes_and_messages_have_arrows)
{
    struct weft_trace *trace = new_trace();
    char *text;
    size_t length;
    for (uint32_t tag = 0; tag < 5; tag++) {
        /* All receives overlap; the sends follow each other and take no time. */
        add(trace, message(WEFT_NODE_SEND, 0, 1, tag, 100 + tag, 100 + tag));
        add(trace, message(WEFT_NODE_RECV, 1, 0, tag, 50 + tag, 200 + tag));
    }
    add(trace, message(WEFT_NODE_RECV, 1, 3, 0, 210, 220)); /* nobody sends that */
    OK(weft_trace_write_text(trace, &text, &length));
    cr_expect_eq(count_of(text, "\"name\":\"recv 5\"}"), 1);
    cr_expect_eq(count_of(text, "\"name\":\"recv 6\"}"), 0);
    cr_expect_eq(count_of(text, "\"name\":\"send\"}"), 1);
    cr_expect_eq(count_of(text, "\"ph\":\"s\""), 5);
    cr_expect_eq(count_of(text, "\"ph\":\"f\""), 5);
    cr_expect_eq(count_of(text, "\"dur\":0.001"), 5);
    weft_memory_free(text);
    weft_trace_destroy(trace);
}

Test(trace_files, an_empty_trace_is_a_trace)
{
    struct weft_trace *trace = new_trace();
    char *text;
    size_t length;
    OK(weft_trace_align(trace));
    OK(weft_trace_write_text(trace, &text, &length));
    OK(weft_trace_read_text(trace, text, length));
    cr_expect_eq(weft_trace_span_count(trace), 0);
    weft_memory_free(text);
    weft_trace_destroy(trace);
}

/* Two groups in one process have equal ranks and objects: their messages are not mixed up. */
Test(trace_files, groups_are_kept_apart)
{
    struct weft_trace *trace = new_trace();
    char *text;
    size_t length;
    add(trace, message(WEFT_NODE_SEND, 0, 1, 0, 10, 20));
    add(trace, message(WEFT_NODE_RECV, 1, 0, 0, 10, 30));
    OK(weft_trace_write_text(trace, &text, &length));
    char *other = strdup(text);
    for (char *at = other; (at = strstr(at, "\"group\":\"\"")); at++)
        memcpy(at, "\"group\": 1", 10); /* no text: the group without a name */
    OK(weft_trace_read_text(trace, other, length));
    cr_expect_eq(weft_trace_rank_count(trace), 2);
    free(other);
    weft_memory_free(text);

    static const char second[] =
        "{\"traceEvents\":[{\"ph\":\"M\",\"name\":\"weft_rank\",\"pid\":1,\"args\":{\"rank\":1,"
        "\"group\":\"x\"}},{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2,\"args\":{\"kind\":"
        "\"recv\",\"object\":0,\"version\":0,\"peer\":0,\"tag\":0}}]}";
    OK(weft_trace_read_text(trace, second, sizeof second - 1));
    cr_expect_eq(weft_trace_rank_count(trace), 3);
    OK(weft_trace_write_text(trace, &text, &length));
    cr_expect_eq(count_of(text, "\"ph\":\"f\""), 2);
    cr_expect_eq(count_of(text, "\"process_name\""), 3);
    cr_expect_eq(count_of(text, "\"pid\":4,\"tid\":1,\"args\":{\"name\":\"rank 1\"}"), 1);
    weft_memory_free(text);
    weft_trace_destroy(trace);
}

Test(trace_files, a_malformed_document_is_refused_with_its_place)
{
    static const char *const wrong[] = {
        "",
        "x",
        "{",
        "{}",
        "{\"traceEvents\":",
        "{\"traceEvents\":[",
        "{\"traceEvents\":[{]}",
        "{\"traceEvents\":[{}",
        "{\"traceEvents\":[{} {}]}",
        "{\"traceEvents\":[{},]}",
        "{\"traceEvents\":[1]}",
        "{\"traceEvents\":[]",
        "{\"other\":[}",
        "{\"other\":\"",
        "[{\"ph\":\"X\",\"pid\":1,\"ts\":0,\"dur\":0,\"args\":{\"kind\":\"join\"}}]",
        "[{\"ph\":\"M\",\"name\":\"weft_rank\",\"pid\":1,\"args\":{}}]",
        "[{\"ph\":\"M\",\"name\":\"weft_rank\",\"pid\":1,\"args\":{\"rank\":-1}}]",
        "[{\"ph\":\"M\",\"name\":\"weft_rank\",\"pid\":-1,\"args\":{\"rank\":0}}]",
        "[{\"ph\":\"M\",\"name\":\"weft_rank\",\"pid\":1,\"args\":{\"rank\":0,\"base_ns\":-5}}]",
    };
    static const char *const spans[] = {
        "\"ts\":-1,\"dur\":0,\"args\":{\"kind\":\"join\"}",
        "\"ts\":1e300,\"dur\":0,\"args\":{\"kind\":\"join\"}",
        "\"ts\":0,\"dur\":-1,\"args\":{\"kind\":\"join\"}",
        "\"ts\":0,\"dur\":\"1\",\"args\":{\"kind\":\"join\"}",
        "\"dur\":0,\"args\":{\"kind\":\"join\"}",
        "\"ts\":0,\"dur\":0,\"args\":{\"kind\":\"send\",\"tag\":-1}",
        "\"ts\":0,\"dur\":0,\"args\":{\"kind\":\"send\",\"peer\":99999999999}",
        "\"ts\":0,\"dur\":0,\"args\":{\"kind\":\"send\",\"version\":1.5}",
        "\"ts\":0,\"dur\":0,\"args\":{\"kind\":\"send\",\"object\":\"x\"}",
        "\"ts\":0,\"dur\":0,\"args\":{\"kind\":\"recv\",\"arrived\":\"x\"}",
    };
    struct weft_trace *trace = new_trace();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(weft_trace_read_text(trace, wrong[i], strlen(wrong[i])), WEFT_ERR_FORMAT, "%s",
                     wrong[i]);
        cr_expect_gt(strlen(weft_error_text()), 0);
    }
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "[{\"ph\":\"M\",\"name\":\"weft_rank\",\"pid\":1,\"args\":{\"rank\":0}},"
                 "{\"ph\":\"X\",\"pid\":1,%s}]",
                 spans[i]);
        cr_expect_eq(weft_trace_read_text(trace, text, strlen(text)), WEFT_ERR_FORMAT, "%s", text);
        cr_expect_not_null(strstr(weft_error_text(), "event 2"), "%s", weft_error_text());
    }
    cr_expect_eq(weft_trace_span_count(trace), 0);
    cr_expect_eq(weft_trace_read(trace, "/nowhere/at/all"), WEFT_ERR_IO);
    cr_expect_eq(weft_trace_write(trace, "/nowhere/at/all"), WEFT_ERR_IO);
    /* What others put into a trace is left alone. */
    static const char foreign[] = "{\"meta\":{\"a\":[1,{\"]\":\"}\\\"\"}]},\"n\":-1.5e3,"
                                  "\"traceEvents\":[{\"ph\":\"X\",\"pid\":"
                                  "\"zz\",\"args\":{\"kind\":7}},{\"ph\":\"B\"},{}],\"t\":true}";
    OK(weft_trace_read_text(trace, foreign, sizeof foreign - 1));
    cr_expect_eq(weft_trace_span_count(trace), 0);
    weft_trace_destroy(trace);
}

Test(trace_files, wrong_arguments_are_named)
{
    struct weft_trace *trace = new_trace();
    struct weft_trace_span span = {.struct_size = sizeof span};
    struct weft_trace_rank rank = {.struct_size = sizeof rank};
    char *text;
    size_t length;
    weft_trace_span_init(NULL);
    weft_trace_config_init(NULL);
    weft_trace_destroy(NULL);
    cr_expect_eq(weft_trace_create(NULL), WEFT_ERR_INVALID);
    weft_trace_span_init(&span);
    OK(weft_trace_add(trace, &span));
    span.rank = -1;
    cr_expect_eq(weft_trace_add(trace, &span), WEFT_ERR_INVALID);
    weft_trace_span_init(&span);
    span.kind = 99;
    cr_expect_eq(weft_trace_add(trace, &span), WEFT_ERR_INVALID);
    weft_trace_span_init(&span);
    span.start_ns = 2;
    span.end_ns = 1;
    cr_expect_eq(weft_trace_add(trace, &span), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "end_ns"));
    weft_trace_span_init(&span);
    span.struct_size = 3;
    cr_expect_eq(weft_trace_add(trace, &span), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_add(NULL, &span), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_get_span(trace, 1, &span), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_get_rank(trace, 1, &rank), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_align(NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_write(NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_write_text(trace, NULL, &length), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_write_text(NULL, &text, &length), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_read(trace, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_read_text(trace, NULL, 1), WEFT_ERR_INVALID);
    cr_expect_eq(weft_context_trace_start(NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_context_trace_stop(NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_context_trace_collect(NULL, trace), WEFT_ERR_INVALID);
    cr_expect_eq(weft_context_report(NULL, &text), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_span_count(NULL), 0);
    weft_trace_destroy(trace);
}

/* ---- clocks ---- */

/* Ranks with clocks of their own: clock r shows true time + skew[r]. */
static void set_clocks(struct weft_trace *trace, int ranks)
{
    char name[16];
    for (int r = 0; r < ranks; r++) {
        snprintf(name, sizeof name, "clock %d", r);
        int64_t source = weft__trace_source(trace, 0, r);
        trace->sources[source].clock = (uint32_t)weft__trace_text(trace, name, strlen(name));
    }
}

static void exchange(struct weft_trace *trace, const int64_t *skew, int from, int to, uint32_t tag,
                     int64_t at, int64_t takes)
{
    add(trace, message(WEFT_NODE_SEND, from, to, tag, (uint64_t)(at + skew[from]),
                       (uint64_t)(at + skew[from] + 5)));
    struct weft_trace_span span =
        message(WEFT_NODE_RECV, to, from, tag, (uint64_t)(at - 100 + skew[to]),
                (uint64_t)(at + takes + skew[to] + 50));
    span.arrived_ns = (uint64_t)(at + takes + skew[to]);
    add(trace, span);
}

Test(trace_files, skewed_clocks_are_brought_together)
{
    static const int64_t skew[] = {1000000, 6000000000, 0, 77777};
    struct weft_trace *trace = new_trace();
    struct weft_trace_rank rank = {.struct_size = sizeof rank};
    uint32_t tag = 0;
    /* A chain of ranks: each way's fastest message takes 400 ns, others longer. */
    for (int r = 0; r < 3; r++)
        for (int64_t i = 0; i < 10; i++) {
            exchange(trace, skew, r, r + 1, tag++, 10000 * (i + 1), 400 + 97 * ((i + r) % 5));
            exchange(trace, skew, r + 1, r, tag++, 10000 * (i + 1) + 500, 400 + 53 * ((i + 3) % 7));
        }
    set_clocks(trace, 4);
    OK(weft_trace_align(trace));
    for (size_t r = 0; r < 4; r++) {
        OK(weft_trace_get_rank(trace, r, &rank));
        cr_expect_eq(rank.offset_ns - (skew[0] - skew[r]), 0, "rank %zu: %lld", r,
                     (long long)rank.offset_ns);
        cr_expect_eq(rank.uncertainty_ns, 400 * r);
    }
    OK(weft_trace_align(trace)); /* once more changes nothing */
    OK(weft_trace_get_rank(trace, 3, &rank));
    cr_expect_eq(rank.offset_ns, skew[0] - skew[3]);
    weft_trace_destroy(trace);
}

Test(trace_files, unequal_ways_are_within_the_uncertainty)
{
    static const int64_t skew[] = {50000, 20000};
    struct weft_trace *trace = new_trace();
    struct weft_trace_rank rank = {.struct_size = sizeof rank};
    exchange(trace, skew, 0, 1, 0, 1000, 300);
    exchange(trace, skew, 1, 0, 1, 2000, 900);
    set_clocks(trace, 2);
    OK(weft_trace_align(trace));
    OK(weft_trace_get_rank(trace, 1, &rank));
    cr_expect_eq(rank.uncertainty_ns, 600);
    cr_expect_eq(rank.offset_ns, 30000 + 300); /* off by half of the difference of the ways */
    weft_trace_destroy(trace);
}

Test(trace_files, one_clock_is_left_as_it_is)
{
    static const int64_t skew[] = {0, 0};
    struct weft_trace *trace = new_trace();
    struct weft_trace_rank rank = {.struct_size = sizeof rank};
    exchange(trace, skew, 0, 1, 0, 1000, 300);
    exchange(trace, skew, 1, 0, 1, 2000, 900);
    OK(weft_trace_align(trace));
    OK(weft_trace_get_rank(trace, 1, &rank));
    cr_expect(rank.offset_ns == 0 && rank.uncertainty_ns == 0);
    weft_trace_destroy(trace);
}

Test(trace_files, without_messages_both_ways_the_offset_is_a_guess)
{
    static const int64_t skew[] = {5000000, 1000, 900000};
    struct weft_trace *trace = new_trace();
    struct weft_trace_rank rank = {.struct_size = sizeof rank};
    exchange(trace, skew, 0, 1, 0, 1000, 300);
    add(trace,
        message(WEFT_NODE_JOIN, 2, -1, 0, (uint64_t)(skew[2] + 500), (uint64_t)(skew[2] + 600)));
    set_clocks(trace, 3);
    OK(weft_trace_align(trace));
    OK(weft_trace_get_rank(trace, 1, &rank));
    cr_expect_eq(rank.uncertainty_ns, WEFT_NEVER);
    cr_expect_eq(rank.offset_ns, skew[0] - skew[1] - 300); /* as if it took no time */
    OK(weft_trace_get_rank(trace, 2, &rank));
    cr_expect_eq(rank.uncertainty_ns, WEFT_NEVER);
    char *text, *again;
    size_t length;
    OK(weft_trace_write_text(trace, &text, &length));
    struct weft_trace *back = new_trace();
    OK(weft_trace_read_text(back, text, length));
    OK(weft_trace_write_text(back, &again, &length));
    cr_expect_str_eq(text, again);
    weft_memory_free(text);
    weft_memory_free(again);
    weft_trace_destroy(back);
    weft_trace_destroy(trace);
}
