/* SPDX-License-Identifier: BSD-3-Clause */
/* Traces: what is recorded, what is written and read back, clocks brought together. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/ranks.h"
#include "runtime/alloc.h"
#include "runtime/trace.h"

static struct weft_run *template_run(struct weft_context *context, const char *name,
                                     const char *algo, size_t count)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    weft_template_params_init(&params);
    params.count = count;
    params.dtype = WEFT_I64;
    params.algo = algo;
    params.in_place = 1;
    OK(weft_template_run(&run, context, name, &params));
    return run;
}

static struct weft_trace_span get(const struct weft_trace *trace, size_t index)
{
    struct weft_trace_span span;
    OK(weft_trace_get(trace, index, &span));
    return span;
}

static struct weft_trace *new_trace(void)
{
    struct weft_trace *trace = NULL;
    OK(weft_trace_create(&trace));
    return trace;
}

/* ---- recording ---- */

enum { STARTS = 5 };

struct recorded {
    struct weft_trace *traces[17];
    size_t nodes[17];
    size_t count;
};

static void record(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct recorded *recorded = ranks->user;
    int64_t *x = calloc(recorded->count + 1, sizeof *x);
    OK(weft_context_trace_start(context, NULL));
    ranks_meet(ranks); /* nothing comes before all record */
    struct weft_run *run = template_run(context, "allreduce", "ring", recorded->count);
    OK(weft_run_bind_name(run, "recv", x));
    for (int i = 0; i < STARTS; i++)
        OK(weft_run_execute(run));
    recorded->nodes[rank] = weft_plan_node_count(weft_run_plan(run));
    recorded->traces[rank] = new_trace();
    OK(weft_context_trace_collect(context, recorded->traces[rank]));
    weft_run_destroy(run);
    OK(weft_context_trace_stop(context));
    CHECK_STATUS(weft_context_trace_collect(context, recorded->traces[rank]), WEFT_ERR_STATE);
    free(x);
}

/* Every node of every version once, within its run, in one piece. */
static void check_recorded(const struct weft_trace *trace, size_t nodes, int rank, int size)
{
    size_t seen[STARTS] = {0};
    struct weft_trace_span runs[STARTS];
    cr_assert_eq(weft_trace_count(trace), STARTS * (nodes + 1));
    for (size_t i = 0; i < weft_trace_count(trace); i++) {
        struct weft_trace_span span = get(trace, i);
        cr_assert_lt(span.version, (uint64_t)STARTS);
        if (span.kind == WEFT_TRACE_RUN)
            runs[span.version] = span;
        else
            seen[span.version]++;
        cr_assert_eq(span.rank, rank);
        cr_assert_eq(span.end, WEFT_TRACE_ENDED);
        cr_assert_leq(span.start_ns, span.end_ns);
        cr_assert_str_eq(span.plan, "allreduce-ring");
        if (span.kind == WEFT_NODE_SEND)
            cr_assert_eq(span.peer, (rank + 1) % size);
        if (span.kind == WEFT_NODE_RECV) {
            cr_assert_eq(span.peer, (rank + size - 1) % size);
            cr_assert_neq(span.arrived_ns, WEFT_TRACE_NEVER);
            cr_assert_leq(span.arrived_ns, span.end_ns);
        }
    }
    for (int v = 0; v < STARTS; v++)
        cr_assert_eq(seen[v], nodes);
    for (size_t i = 0; i < weft_trace_count(trace); i++) {
        struct weft_trace_span span = get(trace, i);
        cr_assert_leq(runs[span.version].start_ns, span.start_ns);
        cr_assert_geq(runs[span.version].end_ns, span.end_ns);
    }
    struct weft_trace_rank of;
    cr_assert_eq(weft_trace_rank_count(trace), 1);
    OK(weft_trace_rank(trace, 0, &of));
    cr_assert(of.rank == rank && of.size == size && of.dropped == 0 &&
              of.spans == weft_trace_count(trace));
}

Test(trace, every_node_of_every_start_is_there_once)
{
    static const int sizes[] = {1, 2, 3, 8, 13};
    static const size_t counts[] = {0, 100, 40000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int helper = 0; helper < 2; helper++) {
            struct recorded recorded = {.count = counts[(i + (size_t)helper) % 3]};
            struct ranks ranks;
            ranks_init(&ranks, sizes[i], record, &recorded);
            ranks.config.progress = helper ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
            ranks_run(&ranks);
            for (int r = 0; r < sizes[i]; r++) {
                check_recorded(recorded.traces[r], recorded.nodes[r], r, sizes[i]);
                weft_trace_destroy(recorded.traces[r]);
            }
        }
}

/* A run of joins, alone. */
static struct weft_run *joins(struct weft_context *context, int count)
{
    struct weft_schedule *schedule = new_schedule(0, 1);
    for (int n = 0; n < count; n++) {
        weft_schedule_join(schedule);
        if (n > 0)
            weft_schedule_order(schedule, n - 1, n);
    }
    weft_schedule_set_name(schedule, "joins");
    weft_schedule_label(schedule, 1, "second");
    return make_run(context, commit(schedule), NULL);
}

Test(trace, a_full_recorder_keeps_the_end_and_counts_the_rest)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_trace_config config;
    struct weft_trace_rank rank;
    weft_trace_config_init(&config);
    config.records = 64;
    OK(weft_context_trace_start(alone.context, &config));
    struct weft_run *run = joins(alone.context, 10); /* 22 records each */
    for (int i = 0; i < 10; i++)
        OK(weft_run_execute(run));
    struct weft_trace *trace = new_trace();
    OK(weft_context_trace_collect(alone.context, trace));
    OK(weft_trace_rank(trace, 0, &rank));
    cr_expect_eq(rank.dropped, 220 - 64);
    /* Two whole versions, and of the one before what has both its ends: 64 = 22 + 22 + 20. */
    cr_expect_eq(weft_trace_count(trace), 11 + 11 + 9);
    for (size_t i = 0; i < weft_trace_count(trace); i++) {
        struct weft_trace_span span = get(trace, i);
        cr_expect_geq(span.version, 7u);
        cr_expect_eq(span.end, WEFT_TRACE_ENDED);
        if (span.node == 1)
            cr_expect_str_eq(span.label, "second");
    }
    weft_trace_destroy(trace);
    weft_run_destroy(run);
    alone_destroy(&alone);
}

Test(trace, nothing_is_allocated_while_a_plan_runs)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run *run = joins(alone.context, 100);
    struct weft_trace_config config;
    weft_trace_config_init(&config);
    config.records = 100;
    OK(weft_context_trace_start(alone.context, &config)); /* a run that is there already */
    long before = atomic_load(&weft__alloc_calls);
    for (int i = 0; i < 10; i++)
        OK(weft_run_execute(run));
    cr_expect_eq(atomic_load(&weft__alloc_calls), before);
    struct weft_trace *trace = new_trace();
    OK(weft_context_trace_collect(alone.context, trace));
    cr_expect_gt(weft_trace_count(trace), 0);
    cr_expect_str_eq(get(trace, 0).plan, "joins");
    weft_trace_destroy(trace);
    weft_run_destroy(run);
    alone_destroy(&alone);
}

Test(trace, a_run_that_hangs_leaves_unfinished_spans)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *schedule = new_schedule(0, 1);
    weft_node_t event = weft_schedule_event(schedule, WEFT_CHANNEL_NONE);
    weft_node_t after = weft_schedule_join(schedule);
    weft_schedule_order(schedule, event, after);
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.deadline_ns = 1000000;
    OK(weft_context_trace_start(alone.context, NULL));
    struct weft_run *run = make_run(alone.context, commit(schedule), &config);
    CHECK_STATUS(weft_run_execute(run), WEFT_ERR_TIMEOUT);
    struct weft_trace *trace = new_trace();
    OK(weft_context_trace_collect(alone.context, trace));
    cr_assert_eq(weft_trace_count(trace), 2);
    struct weft_trace_span whole = get(trace, 0);
    struct weft_trace_span node = get(trace, 1);
    cr_expect_eq(whole.kind, WEFT_TRACE_RUN);
    cr_expect_eq(whole.status, WEFT_ERR_TIMEOUT);
    cr_expect_eq(node.kind, WEFT_NODE_EVENT);
    cr_expect_eq(node.end, WEFT_TRACE_UNFINISHED);
    cr_expect_eq(node.end_ns, whole.end_ns);
    weft_trace_destroy(trace);
    weft_run_destroy(run);
    alone_destroy(&alone);
}

/* Rank 0 signals to all; on the others an event hears it, and retires the other one of its choice. */
static void signalling(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_trace *trace = ranks->user;
    struct weft_schedule *s = new_schedule(rank, ranks->size);
    if (rank == 0) {
        for (int r = 1; r < ranks->size; r++)
            weft_schedule_signal(s, r, 5);
    } else {
        weft_node_t events[2] = {weft_schedule_event(s, 5),
                                 weft_schedule_event(s, WEFT_CHANNEL_NONE)};
        weft_schedule_choice(s, events, 2);
    }
    OK(weft_context_trace_start(context, NULL));
    ranks_meet(ranks);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(weft_run_execute(run));
    OK(weft_run_execute(run));
    ranks_meet(ranks);
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    OK(weft_context_trace_collect(context, trace));
    pthread_mutex_unlock(&lock);
    weft_run_destroy(run);
}

Test(trace, a_signal_has_an_arrow_to_the_event_that_it_fired)
{
    struct weft_trace *trace = new_trace();
    struct weft__arrow *arrows = NULL;
    struct ranks ranks;
    size_t count = 0, retired = 0;
    ranks_init(&ranks, 4, signalling, trace);
    ranks_run(&ranks);
    OK(weft__trace_arrows(trace, &arrows, &count));
    /* The signal of version 1 may have come before version 0 had begun: then it fired that too. */
    cr_expect_leq(count, 6);
    cr_expect_geq(count, 3);
    for (size_t a = 0; a < count; a++) {
        struct weft_trace_span from = get(trace, arrows[a].from);
        struct weft_trace_span to = get(trace, arrows[a].to);
        cr_expect(from.kind == WEFT_NODE_SIGNAL && to.kind == WEFT_NODE_EVENT);
        cr_expect(from.rank == 0 && from.peer == to.rank && from.version == to.version);
        cr_expect(from.tag == 5 && to.tag == 5);
    }
    for (size_t i = 0; i < weft_trace_count(trace); i++)
        retired += get(trace, i).end == WEFT_TRACE_RETIRED;
    cr_expect_eq(retired, 6);
    weft__free(arrows);
    weft_trace_destroy(trace);
}

/* ---- virtual ranks ---- */

static int virtual_rank(struct weft_context *context, void *user)
{
    int64_t x[100] = {0};
    OK(weft_context_trace_start(context, NULL));
    struct weft_run *run = template_run(context, "allreduce", NULL, 100);
    OK(weft_run_bind_name(run, "recv", x));
    for (int i = 0; i < 3; i++) {
        OK(weft_sleep(context, (uint64_t)weft_context_rank(context) * 700));
        OK(weft_run_execute(run));
    }
    OK(weft_context_trace_collect(context, user));
    weft_run_destroy(run);
    return WEFT_OK;
}

static char *virtual_trace(int size, uint64_t seed)
{
    struct weft_virtual_config config;
    struct weft_trace *trace = new_trace();
    char *text = NULL;
    size_t length;
    weft_virtual_config_init(&config);
    config.seed = seed;
    config.shuffle = 1;
    config.delay_ns = 5000;
    OK(weft_virtual_run(size, &config, virtual_rank, trace));
    OK(weft_trace_align(trace));
    OK(weft_trace_write_text(trace, &text, &length));
    cr_expect_eq(strlen(text), length);
    weft_trace_destroy(trace);
    return text;
}

Test(trace, equal_seeds_give_equal_bytes)
{
    static const int sizes[] = {1, 2, 3, 8, 17};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *a = virtual_trace(sizes[i], 7);
        char *b = virtual_trace(sizes[i], 7);
        char *c = virtual_trace(sizes[i], 8);
        cr_expect_str_eq(a, b);
        if (sizes[i] > 1)
            cr_expect_str_neq(a, c);
        weft_text_free(a);
        weft_text_free(b);
        weft_text_free(c);
    }
}

/* ---- writing and reading ---- */

static struct weft_trace_span message(int kind, int rank, int peer, uint32_t tag, uint64_t start,
                                      uint64_t end)
{
    struct weft_trace_span span;
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

Test(trace, what_is_written_reads_back)
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
    cr_assert_eq(weft_trace_count(back), 3);
    for (size_t i = 0; i < 3; i++) {
        struct weft_trace_span a = get(trace, i);
        struct weft_trace_span b = get(back, i);
        cr_expect(a.rank == b.rank && a.kind == b.kind && a.end == b.end && a.helper == b.helper);
        cr_expect(a.object == b.object && a.version == b.version && a.peer == b.peer);
        cr_expect(a.tag == b.tag && a.bytes == b.bytes && a.start_ns == b.start_ns);
        cr_expect(a.end_ns == b.end_ns && a.arrived_ns == b.arrived_ns && a.status == b.status);
        cr_expect_str_eq(a.plan, b.plan);
        cr_expect((a.label == NULL) == (b.label == NULL));
        if (a.label != NULL && b.label != NULL)
            cr_expect_str_eq(a.label, b.label);
    }
    weft_text_free(text);
    weft_text_free(again);
    weft_trace_destroy(trace);
    weft_trace_destroy(back);
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (; (text = strstr(text, word)) != NULL; text++)
        count++;
    return count;
}

Test(trace, overlapping_spans_go_to_lanes_and_messages_have_arrows)
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
    weft_text_free(text);
    weft_trace_destroy(trace);
}

Test(trace, an_empty_trace_is_a_trace)
{
    struct weft_trace *trace = new_trace();
    char *text;
    size_t length;
    OK(weft_trace_align(trace));
    OK(weft_trace_write_text(trace, &text, &length));
    OK(weft_trace_read_text(trace, text, length));
    cr_expect_eq(weft_trace_count(trace), 0);
    weft_text_free(text);
    weft_trace_destroy(trace);
}

/* Two groups in one process have equal ranks and objects: their messages are not mixed up. */
Test(trace, groups_are_kept_apart)
{
    struct weft_trace *trace = new_trace();
    char *text;
    size_t length;
    add(trace, message(WEFT_NODE_SEND, 0, 1, 0, 10, 20));
    add(trace, message(WEFT_NODE_RECV, 1, 0, 0, 10, 30));
    OK(weft_trace_write_text(trace, &text, &length));
    char *other = strdup(text);
    for (char *at = other; (at = strstr(at, "\"group\":\"\"")) != NULL; at++)
        memcpy(at, "\"group\": 1", 10); /* no text: the group without a name */
    OK(weft_trace_read_text(trace, other, length));
    cr_expect_eq(weft_trace_rank_count(trace), 2);
    free(other);
    weft_text_free(text);

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
    weft_text_free(text);
    weft_trace_destroy(trace);
}

Test(trace, a_malformed_document_is_refused_with_its_place)
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
    cr_expect_eq(weft_trace_count(trace), 0);
    cr_expect_eq(weft_trace_read(trace, "/nowhere/at/all"), WEFT_ERR_IO);
    cr_expect_eq(weft_trace_write(trace, "/nowhere/at/all"), WEFT_ERR_IO);
    /* What others put into a trace is left alone. */
    static const char foreign[] = "{\"meta\":{\"a\":[1,{\"]\":\"}\\\"\"}]},\"n\":-1.5e3,"
                                  "\"traceEvents\":[{\"ph\":\"X\",\"pid\":"
                                  "\"zz\",\"args\":{\"kind\":7}},{\"ph\":\"B\"},{}],\"t\":true}";
    OK(weft_trace_read_text(trace, foreign, sizeof foreign - 1));
    cr_expect_eq(weft_trace_count(trace), 0);
    weft_trace_destroy(trace);
}

Test(trace, wrong_arguments_are_named)
{
    struct weft_trace *trace = new_trace();
    struct weft_trace_span span;
    struct weft_trace_rank rank;
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
    cr_expect_eq(weft_trace_get(trace, 1, &span), WEFT_ERR_INVALID);
    cr_expect_eq(weft_trace_rank(trace, 1, &rank), WEFT_ERR_INVALID);
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
    cr_expect_eq(weft_trace_count(NULL), 0);
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

Test(trace, skewed_clocks_are_brought_together)
{
    static const int64_t skew[] = {1000000, 6000000000, 0, 77777};
    struct weft_trace *trace = new_trace();
    struct weft_trace_rank rank;
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
        OK(weft_trace_rank(trace, r, &rank));
        cr_expect_eq(rank.offset_ns - (skew[0] - skew[r]), 0, "rank %zu: %lld", r,
                     (long long)rank.offset_ns);
        cr_expect_eq(rank.uncertainty_ns, 400 * r);
    }
    OK(weft_trace_align(trace)); /* once more changes nothing */
    OK(weft_trace_rank(trace, 3, &rank));
    cr_expect_eq(rank.offset_ns, skew[0] - skew[3]);
    weft_trace_destroy(trace);
}

Test(trace, unequal_ways_are_within_the_uncertainty)
{
    static const int64_t skew[] = {50000, 20000};
    struct weft_trace *trace = new_trace();
    struct weft_trace_rank rank;
    exchange(trace, skew, 0, 1, 0, 1000, 300);
    exchange(trace, skew, 1, 0, 1, 2000, 900);
    set_clocks(trace, 2);
    OK(weft_trace_align(trace));
    OK(weft_trace_rank(trace, 1, &rank));
    cr_expect_eq(rank.uncertainty_ns, 600);
    cr_expect_eq(rank.offset_ns, 30000 + 300); /* off by half of the difference of the ways */
    weft_trace_destroy(trace);
}

Test(trace, one_clock_is_left_as_it_is)
{
    static const int64_t skew[] = {0, 0};
    struct weft_trace *trace = new_trace();
    struct weft_trace_rank rank;
    exchange(trace, skew, 0, 1, 0, 1000, 300);
    exchange(trace, skew, 1, 0, 1, 2000, 900);
    OK(weft_trace_align(trace));
    OK(weft_trace_rank(trace, 1, &rank));
    cr_expect(rank.offset_ns == 0 && rank.uncertainty_ns == 0);
    weft_trace_destroy(trace);
}

Test(trace, without_messages_both_ways_the_offset_is_a_guess)
{
    static const int64_t skew[] = {5000000, 1000, 900000};
    struct weft_trace *trace = new_trace();
    struct weft_trace_rank rank;
    exchange(trace, skew, 0, 1, 0, 1000, 300);
    add(trace,
        message(WEFT_NODE_JOIN, 2, -1, 0, (uint64_t)(skew[2] + 500), (uint64_t)(skew[2] + 600)));
    set_clocks(trace, 3);
    OK(weft_trace_align(trace));
    OK(weft_trace_rank(trace, 1, &rank));
    cr_expect_eq(rank.uncertainty_ns, WEFT_TRACE_NEVER);
    cr_expect_eq(rank.offset_ns, skew[0] - skew[1] - 300); /* as if it took no time */
    OK(weft_trace_rank(trace, 2, &rank));
    cr_expect_eq(rank.uncertainty_ns, WEFT_TRACE_NEVER);
    char *text, *again;
    size_t length;
    OK(weft_trace_write_text(trace, &text, &length));
    struct weft_trace *back = new_trace();
    OK(weft_trace_read_text(back, text, length));
    OK(weft_trace_write_text(back, &again, &length));
    cr_expect_str_eq(text, again);
    weft_text_free(text);
    weft_text_free(again);
    weft_trace_destroy(back);
    weft_trace_destroy(trace);
}

/* ---- memory ---- */

/* Records, collects, writes and reads, with allocation number `failing` of that failing. */
static int live(long failing)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run *run = joins(alone.context, 4);
    struct weft_run *later = NULL;
    struct weft_plan *plan = NULL;
    struct weft_schedule *schedule = new_schedule(0, 1);
    struct weft_trace *trace = NULL;
    struct weft_trace_config config;
    char *text = NULL;
    size_t length;
    weft_schedule_set_name(schedule, "later");
    weft_schedule_join(schedule);
    weft_schedule_label(schedule, 0, "only");
    plan = commit(schedule);
    weft_trace_config_init(&config);
    config.records = 40;
    atomic_store(&weft__alloc_countdown, failing);
    int status = weft_context_trace_start(alone.context, &config);
    if (status == WEFT_OK)
        status = weft_run_create(&later, alone.context, plan, NULL);
    if (status == WEFT_OK)
        status = weft_run_execute(later);
    if (status == WEFT_OK)
        status = weft_run_execute(run);
    if (status == WEFT_OK)
        status = weft_trace_create(&trace);
    if (status == WEFT_OK)
        status = weft_context_trace_collect(alone.context, trace);
    if (status == WEFT_OK)
        status = weft_trace_align(trace);
    if (status == WEFT_OK)
        status = weft_trace_write_text(trace, &text, &length);
    if (status == WEFT_OK)
        status = weft_trace_read_text(trace, text, length);
    atomic_store(&weft__alloc_countdown, -1);
    weft_text_free(text);
    weft_trace_destroy(trace);
    weft_run_destroy(later);
    weft_run_destroy(run);
    weft_plan_release(plan);
    alone_destroy(&alone);
    return status;
}

Test(trace, an_allocation_that_fails_fails_the_call_alone)
{
    long failing = 1;
    int status;
    while ((status = live(failing)) == WEFT_ERR_MEMORY && failing < 10000)
        failing++;
    cr_expect_eq(status, WEFT_OK, "allocation %ld: %s", failing, weft_error_text());
    cr_expect_gt(failing, 20);
}
