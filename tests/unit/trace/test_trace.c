/* SPDX-License-Identifier: BSD-3-Clause */
/* Traces: what is recorded. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/trace/trace.h"
#include "support/traces.h"
#include "tests/support/bind.h"

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
    OK(weft_template_create_run(&run, context, name, &params));
    return run;
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
    OK(bind_name(run, "recv", x));
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
    cr_assert_eq(weft_trace_span_count(trace), STARTS * (nodes + 1));
    for (size_t i = 0; i < weft_trace_span_count(trace); i++) {
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
            cr_assert_neq(span.arrived_ns, WEFT_NEVER);
            cr_assert_leq(span.arrived_ns, span.end_ns);
        }
    }
    for (int v = 0; v < STARTS; v++)
        cr_assert_eq(seen[v], nodes);
    for (size_t i = 0; i < weft_trace_span_count(trace); i++) {
        struct weft_trace_span span = get(trace, i);
        cr_assert_leq(runs[span.version].start_ns, span.start_ns);
        cr_assert_geq(runs[span.version].end_ns, span.end_ns);
    }
    struct weft_trace_rank of = {.struct_size = sizeof of};
    cr_assert_eq(weft_trace_rank_count(trace), 1);
    OK(weft_trace_get_rank(trace, 0, &of));
    cr_assert(of.rank == rank && of.size == size && of.dropped == 0 &&
              of.spans == weft_trace_span_count(trace));
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
        weft_schedule_add_join(schedule);
        if (n > 0)
            weft_schedule_add_order(schedule, n - 1, n);
    }
    weft_schedule_set_name(schedule, "joins");
    weft_schedule_set_label(schedule, 1, "second");
    return make_run(context, commit(schedule), NULL);
}

Test(trace, a_full_recorder_keeps_the_end_and_counts_the_rest)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_trace_config config;
    struct weft_trace_rank rank = {.struct_size = sizeof rank};
    weft_trace_config_init(&config);
    config.records = 64;
    OK(weft_context_trace_start(alone.context, &config));
    struct weft_run *run = joins(alone.context, 10); /* 22 records each */
    for (int i = 0; i < 10; i++)
        OK(weft_run_execute(run));
    struct weft_trace *trace = new_trace();
    OK(weft_context_trace_collect(alone.context, trace));
    OK(weft_trace_get_rank(trace, 0, &rank));
    cr_expect_eq(rank.dropped, 220 - 64);
    /* Two whole versions, and of the one before what has both its ends: 64 = 22 + 22 + 20. */
    cr_expect_eq(weft_trace_span_count(trace), 11 + 11 + 9);
    for (size_t i = 0; i < weft_trace_span_count(trace); i++) {
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
    cr_expect_gt(weft_trace_span_count(trace), 0);
    cr_expect_str_eq(get(trace, 0).plan, "joins");
    weft_trace_destroy(trace);
    weft_run_destroy(run);
    alone_destroy(&alone);
}

Test(trace, a_run_that_hangs_leaves_unfinished_spans)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *schedule = new_schedule(0, 1);
    weft_node_t event = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    weft_node_t after = weft_schedule_add_join(schedule);
    weft_schedule_add_order(schedule, event, after);
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.deadline_ns = 1000000;
    OK(weft_context_trace_start(alone.context, NULL));
    struct weft_run *run = make_run(alone.context, commit(schedule), &config);
    CHECK_STATUS(weft_run_execute(run), WEFT_ERR_TIMEOUT);
    struct weft_trace *trace = new_trace();
    OK(weft_context_trace_collect(alone.context, trace));
    cr_assert_eq(weft_trace_span_count(trace), 2);
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

/* Rank 0 signals to all; on the others an event hears it, and retires the other one of its choice.
 */
static void signalling(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_trace *trace = ranks->user;
    struct weft_schedule *s = new_schedule(rank, ranks->size);
    if (rank == 0) {
        for (int r = 1; r < ranks->size; r++)
            weft_schedule_add_signal(s, r, 5);
    } else {
        weft_node_t events[2] = {weft_schedule_add_event(s, 5),
                                 weft_schedule_add_event(s, WEFT_CHANNEL_NONE)};
        weft_schedule_add_choice(s, events, 2);
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
    for (size_t i = 0; i < weft_trace_span_count(trace); i++)
        retired += get(trace, i).end == WEFT_TRACE_RETIRED;
    cr_expect_eq(retired, 6);
    weft__free(arrows);
    weft_trace_destroy(trace);
}

/* ---- members of objects ---- */

static struct weft_run *member_run(struct weft_context *context, struct weft_object *object)
{
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    weft_run_config_init(&config);
    config.object = object;
    OK(weft_template_create_plan(&plan, context, "barrier", NULL));
    OK(weft_run_create(&run, context, plan, &config));
    weft_plan_destroy(plan);
    return run;
}

/* Objects 0 .. 299 and a run of the first one's, then a run that is number 300. */
Test(trace, a_member_of_an_object_has_a_number_of_its_own)
{
    enum { OBJECTS = 300 };
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_object *objects[OBJECTS];
    struct weft_trace *trace = new_trace();
    OK(weft_context_trace_start(alone.context, NULL));
    for (int i = 0; i < OBJECTS; i++)
        OK(weft_object_create(&objects[i], alone.context, NULL));
    struct weft_run *runs[] = {
        member_run(alone.context, objects[0]), member_run(alone.context, objects[0]),
        member_run(alone.context, objects[OBJECTS - 1]), member_run(alone.context, NULL)};
    static const uint32_t numbers[] = {1 << 20, 2 << 20, (OBJECTS - 1) + (1 << 20), OBJECTS};
    size_t found = 0;
    for (size_t r = 0; r < 4; r++)
        OK(weft_run_execute(runs[r]));
    OK(weft_context_trace_collect(alone.context, trace));
    for (size_t i = 0; i < weft_trace_span_count(trace); i++) {
        struct weft_trace_span span = get(trace, i);
        if (span.kind != WEFT_TRACE_RUN)
            continue;
        cr_assert_lt(found, 4);
        cr_expect_eq(span.object, numbers[found], "%u, not %u", span.object, numbers[found]);
        found++;
    }
    cr_expect_eq(found, 4);
    weft_trace_destroy(trace);
    for (size_t r = 0; r < 4; r++)
        weft_run_destroy(runs[r]);
    for (int i = 0; i < OBJECTS; i++)
        weft_object_destroy(objects[i]);
    alone_destroy(&alone);
}

enum { AVERAGED = 4, STEPS = 6 };

static int traced_average(struct weft_context *context, void *user)
{
    float model[8] = {0};
    struct weft_piece tensor = {model, 8};
    struct weft_group_average *average = NULL;
    struct weft_group_average_config config;
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.sync_period = 3;
    OK(weft_context_trace_start(context, NULL));
    OK(weft_group_average_create(&average, context, &config));
    for (int step = 0; step < STEPS; step++) {
        /* One after the other, so that some are activated. */
        OK(weft_context_sleep(context, 1000000 * (uint64_t)(weft_context_rank(context) + 1)));
        OK(weft_group_average_step(average, NULL));
    }
    OK(weft_context_sleep(context, 1000000)); /* all have */
    OK(weft_context_trace_collect(context, user));
    return weft_group_average_destroy(average);
}

/* Activations and averages are two series of the same versions and ranks: what one of them sends,
 * the other does not receive. */
Test(trace, members_of_one_object_are_not_mixed)
{
    struct weft_trace *trace = new_trace();
    struct weft__arrow *arrows = NULL;
    size_t count = 0, signals = 0, seen = 0;
    uint32_t numbers[8];
    OK(weft_virtual_run(AVERAGED, NULL, traced_average, trace));
    OK(weft__trace_arrows(trace, &arrows, &count));
    for (size_t a = 0; a < count; a++) {
        struct weft_trace_span from = get(trace, arrows[a].from);
        struct weft_trace_span to = get(trace, arrows[a].to);
        cr_expect_eq(from.object, to.object);
        cr_expect_eq(from.object & ((1 << 20) - 1), 0, "%u", from.object);
        cr_expect_eq(from.kind == WEFT_NODE_SIGNAL, to.kind == WEFT_NODE_EVENT);
        signals += from.kind == WEFT_NODE_SIGNAL;
        size_t n = 0;
        while (n < seen && numbers[n] != from.object)
            n++;
        cr_assert_lt(n, 8);
        if (n == seen)
            numbers[seen++] = from.object;
    }
    cr_expect_gt(signals, 0);
    cr_expect_gt(count, signals);
    cr_expect_geq(seen, 3); /* the meeting at the creation, too */
    weft__free(arrows);
    weft_trace_destroy(trace);
}

/* ---- virtual ranks ---- */

static int virtual_rank(struct weft_context *context, void *user)
{
    int64_t x[100] = {0};
    OK(weft_context_trace_start(context, NULL));
    struct weft_run *run = template_run(context, "allreduce", NULL, 100);
    OK(bind_name(run, "recv", x));
    for (int i = 0; i < 3; i++) {
        OK(weft_context_sleep(context, (uint64_t)weft_context_rank(context) * 700));
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
        weft_memory_free(a);
        weft_memory_free(b);
        weft_memory_free(c);
    }
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
    weft_schedule_add_join(schedule);
    weft_schedule_set_label(schedule, 0, "only");
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
    weft_memory_free(text);
    weft_trace_destroy(trace);
    weft_run_destroy(later);
    weft_run_destroy(run);
    weft_plan_destroy(plan);
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
