/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * States of hung ranks and what is read from them. Virtual ranks hang at leisure: they sleep until
 * nothing can happen any more, leave their states and cancel.
 */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/ranks.h"
#include "tests/support/bind.h"
#include "tools/commands/post_mortem.h"

/* What the ranks of a test do, and where their states go. */
struct hang {
    char folder[32];
    int size;
    int absent; /* a rank that leaves no state; -1: none */
    void (*start)(struct weft_context *, struct weft_run **runs);
};

enum { RUNS = 2, MOST = 8 };

/* What the runs of a rank belong to, or NULL. */
static struct weft_object *objects[MOST];
/* What a rank does after all have left their states, or NULL. */
static void (*finish)(struct weft_context *context);

static void path_of(const struct hang *hang, int rank, char path[64])
{
    snprintf(path, 64, "%s/%d.json", hang->folder, rank);
}

static int hang_rank(struct weft_context *context, void *user)
{
    const struct hang *hang = user;
    struct weft_run *runs[RUNS] = {NULL};
    char path[64];
    path_of(hang, weft_context_rank(context), path);
    hang->start(context, runs);
    OK(weft_context_sleep(context, 1000000));
    if (weft_context_rank(context) != hang->absent)
        OK(weft_context_dump_state(context, path, "a test"));
    OK(weft_context_sleep(context, 1000000)); /* all have */
    if (finish)
        finish(context);
    for (int r = 0; r < RUNS; r++)
        if (runs[r])
            OK(weft_run_cancel(runs[r]));
    OK(weft_context_sleep(context, 1000000));
    for (int r = 0; r < RUNS; r++)
        weft_run_destroy(runs[r]);
    if (weft_context_rank(context) < MOST) {
        weft_object_destroy(objects[weft_context_rank(context)]);
        objects[weft_context_rank(context)] = NULL;
    }
    return WEFT_OK;
}

static struct pm_program hang(int size, int absent,
                              void (*start)(struct weft_context *, struct weft_run **runs))
{
    static struct hang h; /* paths are borrowed by what is read */
    struct pm_program program = {.size = size};
    h = (struct hang){
        .folder = "/tmp/weft-hang-XXXXXX", .size = size, .absent = absent, .start = start};
    cr_assert_not_null(mkdtemp(h.folder));
    OK(weft_virtual_run(size, NULL, hang_rank, &h));
    program.ranks = calloc((size_t)size, sizeof *program.ranks);
    for (int r = 0; r < size; r++) {
        char path[64];
        path_of(&h, r, path);
        if (r == absent)
            continue;
        cr_assert_eq(pm_load(&program.ranks[program.count], path), 0);
        program.count++;
        unlink(path);
    }
    rmdir(h.folder);
    cr_assert_eq(pm_find_causes(&program), 0);
    return program;
}

static void done(struct pm_program *program)
{
    for (size_t r = 0; r < program->count; r++)
        pm_free(&program->ranks[r]);
    free(program->ranks);
    weft_memory_free(program->causes);
}

static struct weft_run *started(struct weft_context *context, struct weft_schedule *s)
{
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(weft_run_start(run));
    return run;
}

/* ---- a chain of waits ---- */

enum { HOLE = 5 };

/* Each rank passes on what it gets, to the next; rank HOLE forgets to. */
static void start_ring(struct weft_context *context, struct weft_run **runs)
{
    static int64_t x[64];
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    weft_node_t send = WEFT_ERR_NOT_FOUND;
    if (rank == 0)
        weft_schedule_add_send(s, weft_region_at(slot, 0, 1), 1, 0);
    weft_node_t recv =
        weft_schedule_add_recv(s, weft_region_at(slot, 0, 1), (rank + size - 1) % size, 0);
    weft_node_t pause = weft_schedule_add_join(s);
    weft_schedule_add_order(s, recv, pause);
    if (rank != HOLE && rank != 0) {
        send = weft_schedule_add_send(s, weft_region_at(slot, 0, 1), (rank + 1) % size, 0);
        weft_schedule_add_order(s, pause, send);
    }
    runs[0] = make_run(context, commit(s), NULL);
    OK(bind_slot(runs[0], slot, &x[rank]));
    OK(weft_run_start(runs[0]));
}

Test(post_mortem, a_chain_is_followed_to_its_end)
{
    static const int sizes[] = {7, 17, 33};
    for (size_t i = 0; i < 3; i++) {
        struct pm_program program = hang(sizes[i], -1, start_ring);
        cr_assert_eq(program.cause_count, 1);
        cr_expect_str_eq(program.causes[0].kind, "no-send");
        cr_expect_eq(program.causes[0].rank, HOLE);
        cr_expect_eq(program.causes[0].peer, HOLE + 1);
        /* Those behind the hole, and rank 0. */
        cr_expect_eq(program.causes[0].waits, (size_t)(sizes[i] - HOLE));
        done(&program);
    }
}

Test(post_mortem, a_rank_without_a_dump_is_named)
{
    struct pm_program program = hang(9, HOLE, start_ring);
    cr_assert_eq(program.cause_count, 1);
    cr_expect_str_eq(program.causes[0].kind, "no-dump");
    cr_expect_eq(program.causes[0].rank, HOLE);
    done(&program);
}

/* ---- ranks that are elsewhere ---- */

static struct weft_run *barrier(struct weft_context *context)
{
    struct weft_run *run = NULL;
    OK(weft_template_create_run(&run, context, "barrier", NULL));
    return run;
}

static void start_all_but_one(struct weft_context *context, struct weft_run **runs)
{
    runs[0] = barrier(context);
    if (weft_context_rank(context) != 2)
        OK(weft_run_start(runs[0]));
}

Test(post_mortem, a_rank_that_has_not_started_is_to_blame)
{
    struct pm_program program = hang(5, -1, start_all_but_one);
    cr_assert_eq(program.cause_count, 1);
    cr_expect_str_eq(program.causes[0].kind, "not-started");
    cr_expect_eq(program.causes[0].rank, 2);
    done(&program);
}

static void create_all_but_one(struct weft_context *context, struct weft_run **runs)
{
    if (weft_context_rank(context) == 3)
        return;
    runs[0] = barrier(context);
    OK(weft_run_start(runs[0]));
}

Test(post_mortem, a_rank_that_has_not_created_the_object_is_to_blame)
{
    struct pm_program program = hang(4, -1, create_all_but_one);
    cr_assert_eq(program.cause_count, 1);
    cr_expect_str_eq(program.causes[0].kind, "not-created");
    cr_expect_eq(program.causes[0].rank, 3);
    done(&program);
}

/* Two barriers, which rank 1 enters in the other order. */
static void start_in_other_order(struct weft_context *context, struct weft_run **runs)
{
    runs[0] = barrier(context);
    runs[1] = barrier(context);
    OK(weft_run_start(runs[weft_context_rank(context) == 1]));
}

Test(post_mortem, ranks_in_different_objects_wait_in_a_circle)
{
    struct pm_program program = hang(2, -1, start_in_other_order);
    cr_assert_eq(program.cause_count, 1);
    cr_expect_str_eq(program.causes[0].kind, "deadlock");
    cr_expect_not_null(strstr(program.causes[0].text, "0, 1"), "%s", program.causes[0].text);
    cr_expect_eq(program.causes[0].waits, 2);
    done(&program);
}

/* ---- members of objects ---- */

/* What rank 3 does, of that the others wait in a run of their object number 1. */
static enum { NO_OBJECT, NO_MEMBER, NOT_STARTED, MEMBER_GONE, OBJECT_GONE, FAILED } lags;

static struct weft_run *member(struct weft_context *context)
{
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    weft_run_config_init(&config);
    config.object = objects[weft_context_rank(context)];
    OK(weft_template_create_plan(&plan, context, "barrier", NULL));
    OK(weft_run_create(&run, context, plan, &config));
    weft_plan_destroy(plan);
    return run;
}

static void create_members(struct weft_context *context, struct weft_run **runs)
{
    int rank = weft_context_rank(context);
    runs[0] = barrier(context); /* number 0 */
    if (rank == 3 && lags == NO_OBJECT)
        return;
    OK(weft_object_create(&objects[rank], context, NULL));
    weft_run_destroy(member(context)); /* number 1.1 */
    if (rank == 3 && lags == NO_MEMBER)
        return;
    if (rank == 3 && lags == FAILED) {
        OK(weft_object_fail(objects[rank], WEFT_ERR_MEMORY, "nothing is left"));
        return;
    }
    runs[1] = member(context);
    if (rank != 3)
        OK(weft_run_start(runs[1]));
    if (rank != 3 || lags == NOT_STARTED)
        return;
    weft_run_destroy(runs[1]);
    runs[1] = NULL;
    if (lags == MEMBER_GONE)
        return;
    weft_object_destroy(objects[rank]);
    objects[rank] = NULL;
}

static void expect_lag(const char *kind, long long object, const char *text)
{
    struct pm_program program = hang(4, -1, create_members);
    cr_assert_eq(program.cause_count, 1, "%zu of %s: %s", program.cause_count, kind,
                 program.causes[program.cause_count - 1].text);
    cr_expect_str_eq(program.causes[0].kind, kind);
    cr_expect_eq(program.causes[0].rank, 3);
    cr_expect_not_null(strstr(program.causes[0].text, text), "%s", program.causes[0].text);
    cr_expect_eq(program.causes[0].object, object);
    done(&program);
}

Test(post_mortem, a_member_of_an_object_is_told_from_one_that_was_never_created)
{
    long long second = 1 + (2LL << 44);
    lags = NO_OBJECT;
    expect_lag("not-created", second,
               "rank 3 has not created `barrier-dissemination`, version 0 of object "
               "1.2, and waits for nothing");
    lags = NO_MEMBER;
    expect_lag("not-created", second,
               "rank 3 has not created `barrier-dissemination`, version 0 of object "
               "1.2, and waits for nothing");
    lags = NOT_STARTED;
    expect_lag("not-started", second,
               "rank 3 has not started `barrier-dissemination`, version 0 of object "
               "1.2 (nor any before)");
    lags = MEMBER_GONE;
    expect_lag("destroyed", second, "rank 3 has destroyed object 1.2");
    lags = OBJECT_GONE;
    expect_lag("destroyed", second, "rank 3 has destroyed object 1.2");
}

/* The runs of the others have failed with it, and rank 3 has none that could tell. */
Test(post_mortem, an_object_that_has_failed_is_to_blame)
{
    lags = FAILED;
    expect_lag("failed", 1, "rank 3: object 1 has failed: nothing is left");
}

static void report_member(struct weft_context *context, struct weft_run **runs)
{
    char *text = NULL;
    lags = NOT_STARTED;
    create_members(context, runs);
    OK(weft_context_sleep(context, 1000000));
    OK(weft_context_report(context, &text));
    if (weft_context_rank(context) != 3)
        CHECK_TEXT(text, "version 0 of object 1.2, rank ");
    weft_memory_free(text);
}

Test(post_mortem, a_report_has_the_number_of_a_member)
{
    struct pm_program program = hang(4, -1, report_member);
    /* The object itself is no run, and tells how many members it has had. */
    const struct pm_object *object = pm_object_of(&program.ranks[0], 1);
    cr_assert_not_null(object);
    cr_expect_eq(object->kind, PM_OBJECT);
    cr_expect_eq(object->members, 2);
    cr_expect_eq(object->node_count, 0);
    done(&program);
}

/* Rank 2 does step 0, of groups, and not step 1, in which all wait for all. */
enum { LATE = 2, AVERAGED = 4 };
static struct weft_group_average *averages[AVERAGED];

static void step_together(struct weft_context *context, struct weft_run **runs)
{
    static float models[AVERAGED][8];
    int rank = weft_context_rank(context);
    struct weft_piece tensor = {models[rank], 8};
    struct weft_group_average_config config;
    (void)runs;
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.sync_period = 2;
    config.deadline_ns = 1000000;
    OK(weft_group_average_create(&averages[rank], context, &config));
    OK(weft_group_average_step(averages[rank], NULL));
    if (rank != LATE)
        CHECK_STATUS(weft_group_average_step(averages[rank], NULL), WEFT_ERR_TIMEOUT);
}

static void leave_average(struct weft_context *context)
{
    OK(weft_group_average_destroy(averages[weft_context_rank(context)]));
}

Test(post_mortem, a_rank_that_does_not_come_to_a_synchronisation_is_to_blame)
{
    finish = leave_average;
    struct pm_program program = hang(AVERAGED, -1, step_together);
    finish = NULL;
    cr_assert_eq(program.cause_count, 1);
    cr_expect_str_eq(program.causes[0].kind, "not-started", "%s", program.causes[0].text);
    cr_expect_eq(program.causes[0].rank, LATE);
    cr_expect_eq(program.causes[0].version, 1);
    cr_expect_not_null(strstr(program.causes[0].text, "rank 2 has not started `"));
    cr_expect_not_null(strstr(program.causes[0].text, "version 1 of object 0."), "%s",
                       program.causes[0].text);
    cr_expect_eq(PM_NUMBER(program.causes[0].object), 0);
    cr_expect_gt(program.causes[0].object, 0);
    done(&program);
}

/* ---- events ---- */

/* Rank 1 waits for a signal that rank 0 sends after an event that nobody fires. */
static void start_event(struct weft_context *context, struct weft_run **runs)
{
    int rank = weft_context_rank(context);
    struct weft_schedule *s = new_schedule(rank, 2);
    if (rank == 0) {
        weft_node_t gate = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
        weft_schedule_set_label(s, gate, "gate");
        weft_node_t signal = weft_schedule_add_signal(s, 1, 4);
        weft_schedule_add_order(s, gate, signal);
    } else {
        weft_schedule_add_event(s, 4);
    }
    runs[0] = started(context, s);
}

Test(post_mortem, a_signal_is_followed_to_the_event_before_it)
{
    struct pm_program program = hang(2, -1, start_event);
    cr_assert_eq(program.cause_count, 1);
    cr_expect_str_eq(program.causes[0].kind, "event");
    cr_expect_eq(program.causes[0].rank, 0);
    cr_expect_eq(program.causes[0].waits, 2);
    cr_expect_not_null(strstr(program.causes[0].text, "`gate`"));
    done(&program);
}

/* ---- messages that match nothing ---- */

/* What rank 0 sends and rank 1 waits for: messages of 4 elements with tag 7 in version 0, but for
 * one thing. A rank has two runs, of objects 0 and 1, of which it starts one. */
struct difference {
    uint32_t tag;
    uint64_t version;
    int sender, object;
    size_t count;
    int also_takes; /* rank 1 has a receive for it, which is not posted yet */
};

static struct difference difference;
static char report[2000];

static struct weft_plan *one_message(int rank, int size)
{
    struct weft_schedule *s = new_schedule(rank, size);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 16, WEFT_SLOT_INOUT);
    if (rank == 1) {
        weft_node_t gate = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
        weft_schedule_add_recv(s, weft_region_at(slot, 0, 4), 0, 7);
        if (difference.also_takes)
            weft_schedule_add_order(
                s, gate,
                weft_schedule_add_recv(s, weft_region_at(slot, 4, difference.count),
                                       difference.sender, difference.tag));
    } else if (rank == difference.sender) {
        weft_schedule_add_send(s, weft_region_at(slot, 0, difference.count), 1, difference.tag);
    }
    weft_schedule_set_name(s, "one");
    return commit(s);
}

static void start_message(struct weft_context *context, struct weft_run **runs)
{
    static int64_t x[8][RUNS][16];
    int rank = weft_context_rank(context);
    int started = rank == 1 ? 0 : difference.object;
    for (int r = 0; r < RUNS; r++) {
        runs[r] = make_run(context, one_message(rank, weft_context_size(context)), NULL);
        OK(bind_name(runs[r], "x", x[rank][r]));
    }
    OK(weft_run_start_version(runs[started], rank == 1 ? 0 : difference.version));
    OK(weft_context_sleep(context, 1000000));
    char *text = NULL;
    OK(weft_context_report(context, &text));
    if (rank == 1)
        snprintf(report, sizeof report, "%s", text);
    weft_memory_free(text);
}

static const struct difference alike = {.tag = 7, .count = 4};

/* The report of rank 1 and the post-mortem, with and without the dump of the sender, tell of it. */
static void expect_unmatched(struct difference d, const char *words)
{
    char text[200];
    snprintf(text, sizeof text, "a message of rank %d with %s has come and matches nothing",
             d.sender, words);
    difference = d;
    for (int absent = -1; absent <= 0; absent++) {
        struct pm_program program = hang(3, absent, start_message);
        cr_expect_not_null(strstr(report, text), "%s: %s", text, report);
        cr_expect_not_null(strstr(report, "node 1 (recv from rank 0, tag 7, 32 bytes) waits for "
                                          "the message; a message of rank"),
                           "%s", report);
        int told = 0;
        for (size_t c = 0; c < program.cause_count; c++)
            told += strstr(program.causes[c].text, text) != NULL;
        cr_expect_eq(told, 1, "%s: %s", text, program.causes[0].text);
        done(&program);
    }
}

static struct difference with_tag(uint32_t tag, size_t count)
{
    struct difference d = alike;
    d.tag = tag;
    d.count = count;
    return d;
}

Test(post_mortem, a_message_with_another_tag_is_told)
{
    expect_unmatched(with_tag(8, 4), "tag 8, 32 bytes, version 0");
    expect_unmatched(with_tag(5, 1), "tag 5, 8 bytes, version 0");
}

Test(post_mortem, a_message_of_another_version_is_told)
{
    struct difference d = alike;
    d.version = 3;
    expect_unmatched(d, "tag 7, 32 bytes, version 3");
}

Test(post_mortem, a_message_of_another_object_is_told)
{
    struct difference d = alike;
    d.object = 1;
    expect_unmatched(d, "tag 7, 32 bytes, version 0 of object 1");
}

Test(post_mortem, a_message_of_another_rank_is_told)
{
    struct difference d = alike;
    d.sender = 2;
    expect_unmatched(d, "tag 7, 32 bytes, version 0");
}

Test(post_mortem, a_message_that_will_be_taken_is_not_to_blame)
{
    difference = with_tag(8, 4);
    difference.also_takes = 1;
    struct pm_program program = hang(3, -1, start_message);
    cr_expect_null(strstr(report, "matches nothing"), "%s", report);
    for (size_t c = 0; c < program.cause_count; c++)
        cr_expect_null(strstr(program.causes[c].text, "matches nothing"));
    done(&program);
}

/* A run fails by itself: rank 1 leaves its state then, and the others learn why. */
static void fail_rank(struct weft_context *context, struct weft_run **runs)
{
    int rank = weft_context_rank(context);
    int64_t x[16] = {0};
    runs[0] = make_run(context, one_message(rank, 2), NULL);
    OK(bind_name(runs[0], "x", x));
    int status = weft_run_execute(runs[0]);
    CHECK(rank == 0 ? status == WEFT_OK : status == WEFT_ERR_TRUNCATED);
    weft_run_destroy(runs[0]);
    runs[0] = NULL;
}

Test(post_mortem, a_message_of_the_wrong_size_is_told)
{
    char folder[] = "/tmp/weft-failed-XXXXXX";
    char command[100];
    struct pm_rank state;
    difference = with_tag(7, 3);
    cr_assert_not_null(mkdtemp(folder));
    setenv("WEFT_STATE", folder, 1);
    struct pm_program unused = hang(2, -1, fail_rank);
    done(&unused);
    unsetenv("WEFT_STATE");
    snprintf(command, sizeof command, "mv %s/weft-state.1-of-2.*.0.json %s/state", folder, folder);
    cr_assert_eq(system(command), 0);
    snprintf(command, sizeof command, "%s/state", folder);
    cr_assert_eq(pm_load(&state, command), 0);
    struct pm_program program = {.ranks = &state, .count = 1, .size = 2};
    cr_assert_eq(pm_find_causes(&program), 0);
    cr_assert_geq(program.cause_count, 1);
    cr_expect_str_eq(program.causes[0].kind, "failed");
    cr_expect_not_null(strstr(program.causes[0].text, "a message of 24 bytes arrived, expected 32"),
                       "%s", program.causes[0].text);
    pm_free(&state);
    weft_memory_free(program.causes);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

/* ---- the state itself ---- */

/* Every state that a node can be in while a run hangs, with predecessors of each kind. */
static void start_mixed(struct weft_context *context, struct weft_run **runs)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t ended = weft_schedule_add_join(s);
    weft_node_t open = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_node_t choice[2] = {weft_schedule_add_event(s, WEFT_CHANNEL_NONE),
                             weft_schedule_add_event(s, WEFT_CHANNEL_NONE)};
    weft_schedule_add_choice(s, choice, 2);
    weft_node_t any = weft_schedule_add_join(s);
    weft_schedule_set_any(s, any);
    weft_schedule_add_order(s, ended, any);
    weft_schedule_add_order(s, open, any);
    weft_node_t blocked = weft_schedule_add_join(s);
    weft_schedule_add_order(s, open, blocked);
    weft_schedule_add_order(s, any, blocked);
    weft_node_t last = weft_schedule_add_join(s);
    weft_schedule_add_order(s, blocked, last);
    weft_schedule_add_order(s, open, last);
    weft_node_t retired = weft_schedule_add_join(s);
    weft_schedule_add_order(s, choice[1], retired);
    runs[0] = started(context, s);
    OK(weft_run_fire(runs[0], choice[0]));
}

Test(post_mortem, unfinished_nodes_are_those_that_the_run_counts)
{
    struct pm_program program = hang(1, -1, start_mixed);
    const json_t *object = json_array_get(json_object_get(program.ranks[0].json, "objects"), 0);
    cr_expect_eq(json_integer_value(json_object_get(object, "unfinished")), 3);
    cr_expect_eq(json_integer_value(json_object_get(object, "count")), 8);
    const struct pm_object *o = pm_object_of(&program.ranks[0], 0);
    cr_assert_eq(o->node_count, 3);
    cr_expect(o->nodes[0].state == PM_WAITING && o->nodes[0].kind == WEFT_NODE_EVENT);
    cr_expect(o->nodes[1].state == PM_BLOCKED && o->nodes[1].after_count == 1);
    cr_expect_eq(o->nodes[1].after[0], o->nodes[0].number);
    cr_expect(o->nodes[2].state == PM_BLOCKED && o->nodes[2].after_count == 2);
    cr_expect_str_eq(program.ranks[0].why, "a test");
    done(&program);
}

Test(post_mortem, wrong_arguments_are_named)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    cr_expect_eq(weft_context_dump_state(NULL, "x", NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_context_dump_state(alone.context, NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_context_dump_state(alone.context, "/nowhere/at/all", NULL), WEFT_ERR_IO);
    cr_expect_not_null(strstr(weft_error_text(), "/nowhere/at/all"));
    alone_destroy(&alone);
}

/* ---- reports ---- */

Test(post_mortem, ranks_that_are_missing_are_named_as_ranges)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    char *text = NULL;
    for (int n = 0; n < 40; n++)
        weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    weft_schedule_set_name(s, "gates");
    struct weft_run *run = started(alone.context, s);
    OK(weft_context_report(alone.context, &text));
    CHECK_TEXT(text, "rank 0 of 1: 1 unfinished run\n");
    CHECK_TEXT(text,
               "`gates`, version 0 of object 0, rank 0 of 1: 40 of 40 nodes have not ended\n");
    CHECK_TEXT(text, "  missing: 40 events\n");
    CHECK_TEXT(text, "  and 24 more\n");
    weft_memory_free(text);
    OK(weft_run_cancel(run));
    weft_run_destroy(run);
    alone_destroy(&alone);
}
