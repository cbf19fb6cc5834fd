/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft_check(): that every template passes for P = 1 .. 33, that each kind of fault is found and
 * names the ranks and nodes at fault, choices, values, merges, misuse, and no memory.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "support/sweep.h"

enum { MOST_RANKS = 33 };

/* ---- templates ---- */

struct team {
    struct weft_schedule *at[MOST_RANKS];
    int size;
};

static void destroy(struct team *team)
{
    for (int r = 0; r < team->size; r++)
        weft_schedule_destroy(team->at[r]);
}

static struct weft_check_report *check(const struct team *team)
{
    struct weft_check_report *report = NULL;
    struct weft_check_config config;
    weft_check_config_init(&config);
    if (team->size > 6) /* of choices: all of them below, some above */
        config.executions = 24;
    int status = weft_check((const struct weft_schedule *const *)team->at, (size_t)team->size,
                            &config, &report);
    cr_assert_eq(status, WEFT_OK, "%s", weft_error_text());
    return report;
}

static const char *first_fault(const struct weft_check_report *report)
{
    struct weft_fault fault = {.struct_size = sizeof fault};
    return weft_check_report_get_fault(report, 0, &fault) == WEFT_OK ? fault.text : "no fault";
}

/* Builds and checks one template; 0 if it does not serve these parameters. */
static int passes(const struct weft_template *template, const struct weft_template_params *params,
                  int size)
{
    struct team team = {.size = 0};
    for (; team.size < size; team.size++) {
        int status =
            weft_template_build(template->name, team.size, size, params, &team.at[team.size]);
        if (status == WEFT_ERR_UNSUPPORTED || status == WEFT_ERR_INVALID) {
            destroy(&team);
            return 0;
        }
        cr_assert_eq(status, WEFT_OK, "%s: %s", template->name, weft_error_text());
    }
    struct weft_check_report *report = check(&team);
    cr_assert(weft_check_report_ok(report),
              "%s %s P=%d count=%zu root=%d in_place=%d segment=%zd: %s", template->name,
              params->algo, size, params->count, params->root, params->in_place,
              (ssize_t)params->segment, first_fault(report));
    weft_check_report_destroy(report);
    destroy(&team);
    return 1;
}

static int reads(const struct weft_template *template, const char *parameter)
{
    return strstr(template->parameters, parameter) != NULL;
}

/* An algorithm on one number of ranks: counts, roots, places and segments take turns. */
static int sweep(const struct weft_template *template, const char *algo, int size)
{
    const size_t counts[] = {0, 1, (size_t)size - 1, 37, 1000};
    int checked = 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct weft_template_params params;
        weft_template_params_init(&params);
        params.algo = algo;
        params.count = counts[i];
        params.root = reads(template, "root") ? (int)(i * 7) % size : 0;
        params.in_place = (int)(i + (size_t)size) % 2;
        params.segment = i == 3 ? 24 : i == 2 ? 0 : WEFT_SEGMENT_NONE;
        params.dtype = i % 2 ? WEFT_F32 : WEFT_I64;
        checked += passes(template, &params, size);
    }
    return checked;
}

Test(check, every_template_passes)
{
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);
        for (size_t a = 0; a < template->algorithm_count; a++) {
            int checked = 0, most = SWEPT(MOST_RANKS, 9);
            for (int size = 1; size <= most; size++)
                checked += sweep(template, template->algorithms[a].name, size);
            cr_assert_gt(checked, most, "%s %s: hardly anything was checked", template->name,
                         template->algorithms[a].name);
        }
    }
}

/* ---- documents ---- */

static const struct weft_op *const *user_ops;
static size_t user_op_count;

static struct weft_check_report *check_document(const char *text)
{
    struct weft_schedule **schedules = NULL;
    struct weft_check_report *report = NULL;
    size_t count = 0;
    int status =
        weft_schedule_read(text, strlen(text), user_ops, user_op_count, &schedules, &count);
    cr_assert_eq(status, WEFT_OK, "%s", weft_error_text());
    status = weft_check((const struct weft_schedule *const *)schedules, count, NULL, &report);
    cr_assert_eq(status, WEFT_OK, "%s", weft_error_text());
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
    return report;
}

static void expect_sound(const char *text)
{
    struct weft_check_report *report = check_document(text);
    cr_expect(weft_check_report_ok(report), "%s", first_fault(report));
    weft_check_report_destroy(report);
}

/* The first fault is of a kind, names a rank and node (or none: -1), and has a piece of text. */
static void expect_fault(const char *text, weft_fault_kind_t kind, int rank, weft_node_t node,
                         const char *piece)
{
    struct weft_check_report *report = check_document(text);
    struct weft_fault fault = {.struct_size = sizeof fault};
    int ranks = 0, nodes = node < 0;
    cr_assert_eq(weft_check_report_get_fault(report, 0, &fault), WEFT_OK, "no fault in:\n%s", text);
    cr_expect_eq(fault.kind, kind, "%s: %s", weft_fault_kind_name(fault.kind), fault.text);
    for (size_t i = 0; i < fault.rank_count; i++)
        ranks |= fault.ranks[i] == rank;
    for (size_t i = 0; i < fault.node_count; i++)
        nodes |= fault.nodes[i].rank == rank && fault.nodes[i].node == node;
    cr_expect(ranks, "rank %d is not named: %s", rank, fault.text);
    cr_expect(nodes, "node %d is not named: %s", (int)node, fault.text);
    cr_expect_not_null(strstr(fault.text, piece), "expected '%s' in: %s", piece, fault.text);
    weft_check_report_destroy(report);
}

#define HEAD1 "weft 1\nschedule \"s\" size 1\nrank 0 {\n"
#define HEAD2 "weft 1\nschedule \"s\" size 2\nrank 0 {\n"

Test(check, a_node_after_itself_is_a_cycle)
{
    expect_fault(HEAD1 "n0: join after n0\n}\n", WEFT_FAULT_CYCLE, 0, 0, "node 0 again");
    struct weft_schedule **schedules;
    struct weft_plan *plan;
    const char *text = HEAD1 "n0: join after n0\n}\n";
    size_t count;
    cr_assert_eq(weft_schedule_read(text, strlen(text), NULL, 0, &schedules, &count), WEFT_OK);
    cr_expect_eq(weft_schedule_commit(schedules[0], &plan), WEFT_ERR_CYCLE);
    weft_schedule_destroy(schedules[0]);
    weft_memory_free(schedules);
}

Test(check, the_shortest_cycle_is_told)
{
    expect_fault(HEAD1 "n0: join after n4\nn1: join after n0\nn2: join after n1\n"
                       "n3: join after n2, n4\nn4: join after n3\n}\n",
                 WEFT_FAULT_CYCLE, 0, 4, "node 3 (join) before node 4 (join) before node 3 again");
}

Test(check, a_rank_may_send_to_itself)
{
    expect_sound(HEAD1 "input a i32 4\noutput b i32 4\nn0: send a to 0\nn1: recv b from 0\n"
                       "result b = a from rank 0\n}\n");
    expect_fault(HEAD1 "input a i32 4\noutput b i32 4\nn0: send a to 0\n"
                       "n1: recv b from 0 after n0\n}\n",
                 WEFT_FAULT_DEADLOCK, 0, 1, "buffered");
}

Test(check, a_send_borrows_its_memory_until_its_end)
{
    /* The answer of rank 1 proves that the message has come, not that the send has ended. */
    expect_fault(HEAD2 "inout a i32 1\nn0: send a to 1\nn1: recv a from 1\n}\nrank 1 {\n"
                       "inout a i32 1\nn0: recv a from 0\nn1: send a to 0 after n0\n}\n",
                 WEFT_FAULT_RACE, 0, 0, "a[0:1]");
    expect_sound(HEAD2 "inout a i32 1\nn0: send a to 1\nn1: recv a from 1 after n0\n}\n"
                       "rank 1 {\ninout a i32 1\nn0: recv a from 0\nn1: send a to 0 after n0\n}\n");
}

/* Ranks 2 and 0 of 3 exchange; what rank 2 states is `stated`. */
#define AMONG(stated)                                                                              \
    "weft 1\nschedule \"s\" size 3\nranks all {\ninput a f32 4\noutput b f32 4\nscratch t f32 4\n" \
    "c: copy b = a\nif rank == 0 {\ns: send a to 2\nresult b = a from rank 0\n}\n"                 \
    "if rank == 2 {\nr: recv t from 0\nx: reduce sum b = a, t after r, c\n" stated "\n}\n}\n"

Test(check, a_result_may_be_of_ranks_that_are_no_range)
{
    expect_sound(AMONG("result b = sum of a from ranks 2, 0"));
    expect_sound(AMONG("result b = sum of a from ranks 0, 2"));
    expect_fault(AMONG("result b = sum of a from ranks 2, 1"), WEFT_FAULT_RESULT, 2, 2,
                 "should hold sum of a[0:4] of ranks 2, 1, and holds");
    expect_fault(AMONG("result b = sum of a from ranks 2, 1, 0"), WEFT_FAULT_RESULT, 1, -1,
                 "it lacks rank 1;");
}

/* What rank 0 states is looked up for rank 1, which asks for elements that rank 0 does not have. */
Test(check, a_statement_known_from_another_rank_may_ask_for_more)
{
    expect_fault("weft 1\nschedule \"s\" size 2\nranks all {\ninput a f32 4 + rank\n"
                 "output b f32 4 + rank\nscratch t f32 4\ns: send a[0:4] to 1 - rank\n"
                 "r: recv t from 1 - rank\nx: reduce sum b[0:4] = a[0:4], t after r\n"
                 "result b[0:4] = sum of a[0:4] from ranks 0..1\n"
                 "if rank == 1 {\ny: copy b[4:5] = a[4:5]\n"
                 "result b[4:5] = sum of a[4:5] from ranks 0..1\n}\n}\n",
                 WEFT_FAULT_RESULT, 0, -1, "slot `a`, which on rank 0 has fewer elements");
}

Test(check, contributions_that_all_have_another_offset_say_so)
{
    expect_fault("weft 1\nschedule \"s\" size 2\nranks all {\ninput send f32 8\n"
                 "output recv f32 4\nscratch t f32 4\na: send send[4:8] to 1 - rank\n"
                 "g: recv t from 1 - rank\nh: reduce sum recv = t, send[4:8] after g\n"
                 "result recv = sum of send[0:4] from ranks 0..1\n}\n",
                 WEFT_FAULT_RESULT, 0, 2,
                 "holds sum of (send of ranks 0..1 (+16 bytes)); it lacks");
}

Test(check, an_any_node_is_after_what_is_before_all_of_its_predecessors)
{
    const char *both = HEAD1 "inout a i32 1\nscratch b i32 2\nn0: copy b[0:1] = a\n"
                             "n1: join after n0\nn2: join after n0\n"
                             "n3: copy a = b[0:1] after any n1, n2\n}\n";
    const char *one = HEAD1 "inout a i32 1\nscratch b i32 2\nn0: copy b[0:1] = a\n"
                            "n1: join after n0\nn2: join\n"
                            "n3: copy a = b[0:1] after any n1, n2\n}\n";
    expect_sound(both);
    expect_fault(one, WEFT_FAULT_RACE, 0, 3, "nothing orders them");
}

/* ---- choices ---- */

Test(check, branches_of_a_choice_do_not_race)
{
    const char *text = HEAD1 "inout a i32 1\ninput b i32 1\nn0: event choice 0\n"
                             "n1: event choice %d\nn2: copy a = b after n0\n"
                             "n3: copy a = b after n1\n}\n";
    char document[512];
    snprintf(document, sizeof document, text, 0);
    expect_sound(document);
    snprintf(document, sizeof document, text, 1);
    expect_fault(document, WEFT_FAULT_RACE, 0, 3, "a[0:1]");
}

Test(check, every_branch_of_a_choice_is_executed)
{
    const char *text = HEAD1 "output a i32 1\ninput b i32 1\ninput c i32 1\n"
                             "n0: event choice 0\nn1: event choice 0\nn2: event choice 0\n"
                             "n3: copy a = b after n0\nn4: copy a = b after n1\n"
                             "n5: copy a = %s after n2\nresult a = b from rank 0\n}\n";
    char document[512];
    snprintf(document, sizeof document, text, "b");
    struct weft_check_report *report = check_document(document);
    struct weft_check_summary summary = {.struct_size = sizeof summary};
    cr_expect(weft_check_report_ok(report), "%s", first_fault(report));
    cr_assert_eq(weft_check_report_get_summary(report, &summary), WEFT_OK);
    cr_expect_eq(summary.executions, 3);
    cr_expect_eq(summary.bounded, 0);
    weft_check_report_destroy(report);
    snprintf(document, sizeof document, text, "c");
    expect_fault(document, WEFT_FAULT_RESULT, 0, 5, "holds c[0:1] of rank 0");
}

Test(check, whoever_comes_first_all_must_be_reached)
{
    /* Rank 1 can wake rank 0; rank 0 does not wake rank 1. */
    expect_fault(HEAD2 "n0: event choice 0\nn1: event channel 0 choice 0\n}\nrank 1 {\n"
                       "n0: event choice 0\nn1: event channel 0 choice 0\n"
                       "n2: signal to 0 channel 0 after any n0\n}\n",
                 WEFT_FAULT_MATCH, 1, 1, "no rank signals this channel");
    expect_fault(HEAD2 "n0: event choice 0\nn1: event channel 0 choice 0\n"
                       "n2: signal to 1 channel 0 after n1\n}\nrank 1 {\n"
                       "n0: event choice 0\nn1: event channel 0 choice 0\n"
                       "n2: signal to 0 channel 0 after n0\n}\n",
                 WEFT_FAULT_DEADLOCK, 1, 0, "on ranks 0");
    expect_sound(HEAD2 "n0: event choice 0\nn1: event channel 0 choice 0\n"
                       "n2: signal to 1 channel 0 after n0\n}\nrank 1 {\n"
                       "n0: event choice 0\nn1: event channel 0 choice 0\n"
                       "n2: signal to 0 channel 0 after n0\n}\n");
}

Test(check, too_many_choices_are_bounded_and_say_so)
{
    char text[4096] = "weft 1\nschedule \"s\" size 1\nrank 0 {\n";
    for (int c = 0; c < 40; c++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "event choice %d\nevent choice %d\n", c, c);
    strcat(text, "}\n");
    struct weft_check_report *report = check_document(text);
    struct weft_check_summary summary = {.struct_size = sizeof summary};
    weft_check_report_get_summary(report, &summary);
    cr_expect(weft_check_report_ok(report));
    cr_expect_eq(summary.bounded, 1);
    cr_expect_eq(summary.executions, 2048);
    weft_check_report_destroy(report);
}

/* ---- operations ---- */

static int nothing(struct weft_call *call)
{
    (void)call;
    return WEFT_OK;
}

static int keep(void *user, void *dst, const void *a, const void *b, size_t count,
                weft_dtype_t dtype)
{
    (void)user, (void)dst, (void)a, (void)b, (void)count, (void)dtype;
    return WEFT_OK;
}

static struct weft_op *make_op(const char *name, unsigned flags, weft_reduce_fn reduce)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = name;
    config.flags = flags;
    config.reduce = reduce;
    config.compute = reduce ? NULL : nothing;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK, "%s", weft_error_text());
    return op;
}

/* ---- opaque elements ---- */

Test(check, every_template_passes_on_opaque_elements)
{
    static const size_t bytes[] = {3, 24, 1000};
    struct weft_op *op = make_op("keep", WEFT_OP_COMMUTES, keep);
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);
        for (size_t a = 0; reads(template, "dtype") && a < template->algorithm_count; a++)
            for (int i = 0, checked = 0; i < 12; i++) {
                struct weft_template_params params;
                weft_template_params_init(&params);
                params.algo = template->algorithms[a].name;
                params.count = i % 4 ? 11 : 1;
                params.op = op;
                params.dtype = weft_dtype_opaque(bytes[i % 3]);
                params.segment = i % 2 ? 50 : WEFT_SEGMENT_NONE;
                checked += passes(template, &params, 1 + i);
                cr_assert(i < 11 || checked > 2, "%s %s", template->name, params.algo);
            }
    }
    weft_op_destroy(op);
}

Test(check, faults_of_opaque_elements_count_them)
{
    expect_fault(HEAD2 "input a bytes24 4\nn0: send a[1:4] to 1\n}\nrank 1 {\n"
                       "output b bytes24 4\nn0: recv b[0:2] from 0\n}\n",
                 WEFT_FAULT_SIZE, 1, 0, "72 bytes are sent, 48 are expected");
    expect_fault(HEAD2 "input a bytes24 2\nn0: send a to 1\n}\nrank 1 {\n"
                       "output b bytes12 4\nn0: recv b from 0\n}\n",
                 WEFT_FAULT_SIZE, 1, 0, "bytes24 is sent, bytes12 is received");
    expect_fault(HEAD2 "input a bytes24 4\nn0: send a[1:3] to 1\n}\nrank 1 {\n"
                       "output b bytes24 4\nn0: recv b[0:2] from 0\n"
                       "result b[0:2] = a[0:2] from rank 0\n}\n",
                 WEFT_FAULT_RESULT, 1, 0,
                 "b[0:2] should hold a[0:2] of rank 0, and holds a[1:3] of rank 0");
    expect_fault(HEAD1 "inout a bytes24 4\ninout b bytes24 2\nn0: copy a[0:2] = b\n"
                       "n1: copy b = a[1:3]\n}\n",
                 WEFT_FAULT_RACE, 0, 1, "(24 bytes)");
}

Test(check, operations_that_do_not_commute_keep_the_order_of_ranks)
{
    struct weft_op *op = make_op("keep", 0, keep);
    const struct weft_op *const ops[] = {op};
    const char *text = HEAD2 "input a i32 1\noutput b i32 1\nscratch t i32 1\n"
                             "n0: recv t from 1\nn1: reduce keep b = %s after n0\n"
                             "result b = keep of a from ranks 0..1\n}\nrank 1 {\n"
                             "input a i32 1\nn0: send a to 0\n}\n";
    char document[512];
    user_ops = ops;
    user_op_count = 1;
    snprintf(document, sizeof document, text, "a, t");
    expect_sound(document);
    snprintf(document, sizeof document, text, "t, a");
    expect_fault(document, WEFT_FAULT_RESULT, 0, 1, "holds keep of (a of rank 1, a of rank 0)");
    user_op_count = 0;
    weft_op_destroy(op);
}

/* Three ranks' sparse vectors, indices and values in slots of their own, merged on rank 0. */
static const char merging[] =
    "weft 1\nschedule \"s\" size 3\nrank 0 {\n"
    "input i u32 4\ninput v f32 4\noutput oi u32 4\noutput ov f32 4\n"
    "scratch ti u32 8\nscratch tv f32 8\nvalue n1 max 4\nvalue n2 max 4\nvalue m max 4\n"
    "n0: recv up to ti[0:4] from 1 tag 0 gives n1\nn1: recv tv[0:4 count n1] from 1 tag 1 after "
    "n0\n"
    "n2: recv up to ti[4:8] from %d tag 0 gives n2\n"
    "n3: recv tv[4:8 count n2] from %d tag 1 after n2\n"
    "n4: compute top in i, in v, in ti[0:4 count n1], in tv[0:4 count n1], update oi, update ov "
    "after n0, n1\n"
    "n5: compute top in ti[4:8 count n2], in tv[4:8 count n2], update oi, update ov after n3, "
    "n4\n"
    "result ov = top of v from ranks 0..2\nresult oi = top of i from ranks 0..2\n}\n"
    "rank 1 {\ninput i u32 4\ninput v f32 4\nvalue n max 4\n"
    "n0: send i[0:4 count n] to 0 tag 0\nn1: send v[0:4 count n] to 0 tag 1\n%s}\n"
    "rank 2 {\ninput i u32 4\ninput v f32 4\nvalue n max 4\n"
    "%s}\n";

Test(check, merges_take_every_rank_in_once)
{
    struct weft_op *top = make_op("top", WEFT_OP_COMMUTES | WEFT_OP_FOLDS, NULL);
    const struct weft_op *ops[] = {top};
    const char *sends = "n0: send i[0:4 count n] to 0 tag 0\nn1: send v[0:4 count n] to 0 tag 1\n";
    char document[2048], *update;
    user_ops = ops;
    user_op_count = 1;
    snprintf(document, sizeof document, merging, 2, 2, "", sends);
    /* oi and ov hold nothing when n4, which updates them, begins. */
    expect_fault(document, WEFT_FAULT_RESULT, 0, 4, "nothing has written");
    /* n4 begins anew, n5 takes in what n4 has made. */
    for (int i = 0; i < 2 && (update = strstr(document, "update o")); i++)
        memcpy(update, "out    o", 8);
    expect_sound(document);
    /* n5 begins anew, too: what n4 has folded is lost. */
    while ((update = strstr(document, "update o")))
        memcpy(update, "out    o", 8);
    expect_fault(document, WEFT_FAULT_RESULT, 0, 5, "top of");
    weft_op_destroy(top);
    user_op_count = 0;
}

/* As a tree does it: a third region for every merge. */
static const char tree[] = "weft 1\nschedule \"s\" size 3\nrank 0 {\n"
                           "input v f32 4\noutput o f32 4\nscratch t f32 12\n"
                           "n0: recv t[0:4] from 1\nn1: recv t[4:8] from 2\n"
                           "n2: compute top in v, in t[0:4], out t[8:12] after n0\n"
                           "n3: compute top in t[8:12], in %s, out o after n1, n2\n"
                           "result o = top of v from ranks 0..2\n}\n"
                           "rank 1 {\ninput v f32 4\nn0: send v to 0\n}\n"
                           "rank 2 {\ninput v f32 4\nn0: send v to 0\n}\n";

Test(check, a_tree_of_merges)
{
    struct weft_op *top = make_op("top", WEFT_OP_COMMUTES | WEFT_OP_FOLDS, NULL);
    const struct weft_op *const ops[] = {top};
    char document[1024];
    user_ops = ops;
    user_op_count = 1;
    snprintf(document, sizeof document, tree, "t[4:8]");
    expect_sound(document);
    snprintf(document, sizeof document, tree, "t[0:4]"); /* rank 1 twice, rank 2 never */
    expect_fault(document, WEFT_FAULT_RESULT, 0, 3, "top of");
    snprintf(document, sizeof document, tree, "t[5:8]"); /* not all of rank 2 */
    expect_fault(document, WEFT_FAULT_RESULT, 0, 3, "top of");
    user_op_count = 0;
    weft_op_destroy(top);
}

Test(check, compute_functions_are_functions_of_what_they_read)
{
    struct weft_op *scale = make_op("scale", 0, NULL);
    const struct weft_op *const ops[] = {scale};
    user_ops = ops;
    user_op_count = 1;
    expect_fault(HEAD1 "input a i32 4\noutput b i32 4\nn0: compute scale in a, out b\n"
                       "result b = a from rank 0\n}\n",
                 WEFT_FAULT_RESULT, 0, 0, "holds scale of");
    expect_fault(HEAD1 "scratch a i32 4\noutput b i32 4\nn0: compute scale in a, out b\n}\n",
                 WEFT_FAULT_RESULT, 0, 0, "reads a[0:4], which nothing has written");
    expect_sound(HEAD1 "input a i32 4\noutput b i32 4\nn0: compute scale in a, out b\n}\n");
    user_op_count = 0;
    weft_op_destroy(scale);
}

Test(check, values_say_how_many)
{
    expect_sound(HEAD2 "input a i32 8\nvalue n max 8\nn0: send a[0:8 count n] to 1\n}\nrank 1 {\n"
                       "output b i32 8\nvalue n max 8\nn0: recv b[0:8 count n] from 0\n}\n");
    expect_fault(HEAD2 "input a i32 8\nn0: send a[0:6] to 1\n}\nrank 1 {\noutput b i32 8\n"
                       "scratch t i32 8\nvalue n max 8\nn0: recv up to t from 0 gives n\n"
                       "n1: copy b[0:5 count n] = t[0:5 count n] after n0\n}\n",
                 WEFT_FAULT_SIZE, 1, 1, "`n` is 6");
    expect_fault(HEAD2 "input a i32 8\nn0: send a[0:6] to 1\n}\nrank 1 {\noutput b i32 6\n"
                       "scratch t i32 8\nvalue n max 8\nn0: recv up to t from 0 gives n\n"
                       "n1: copy b = t[2:8] after n0\n}\n",
                 WEFT_FAULT_RESULT, 1, 1, "t[6:8]");
}

/* ---- input that is wrong or not all there ---- */

static struct weft_schedule *one(const char *template, int rank, int size)
{
    struct weft_schedule *s = NULL;
    cr_assert_eq(weft_template_build(template, rank, size, NULL, &s), WEFT_OK);
    return s;
}

static void expect_kept(const struct weft_schedule *const *list, size_t count, const char *piece)
{
    struct weft_check_report *report = NULL;
    struct weft_fault fault = {.struct_size = sizeof fault};
    cr_assert_eq(weft_check(list, count, NULL, &report), WEFT_OK, "%s", weft_error_text());
    cr_assert_eq(weft_check_report_get_fault(report, 0, &fault), WEFT_OK);
    cr_expect_eq(fault.kind, WEFT_FAULT_MATCH);
    cr_expect_not_null(strstr(fault.text, piece), "%s", fault.text);
    weft_check_report_destroy(report);
}

Test(check, ranks_may_be_missing_twice_there_or_of_another_size)
{
    struct weft_schedule *a[4], *other = one("allreduce", 3, 5), *again = one("allreduce", 2, 4);
    struct weft_check_report *report = NULL;
    for (int r = 0; r < 4; r++)
        a[r] = one("allreduce", r, 4);
    const struct weft_schedule *shuffled[] = {a[2], a[0], a[3], a[1]};
    cr_assert_eq(weft_check(shuffled, 4, NULL, &report), WEFT_OK);
    cr_expect(weft_check_report_ok(report), "%s", first_fault(report));
    weft_check_report_destroy(report);
    expect_kept(shuffled, 3, "rank 1");
    const struct weft_schedule *twice[] = {a[0], a[1], a[2], a[3], again};
    expect_kept(twice, 5, "two schedules of rank 2");
    const struct weft_schedule *sizes[] = {a[0], a[1], a[2], other};
    expect_kept(sizes, 4, "for 5 ranks, expected 4");
    for (int r = 0; r < 4; r++)
        weft_schedule_destroy(a[r]);
    weft_schedule_destroy(other);
    weft_schedule_destroy(again);
}

Test(check, misuse_is_told)
{
    struct weft_schedule *s = one("barrier", 0, 1);
    const struct weft_schedule *list[] = {s, NULL};
    struct weft_check_report *report = NULL;
    struct weft_check_config config;
    struct weft_check_summary summary = {0};
    struct weft_fault fault = {.struct_size = sizeof fault};
    cr_expect_eq(weft_check(NULL, 1, NULL, &report), WEFT_ERR_INVALID);
    cr_expect_eq(weft_check(list, 0, NULL, &report), WEFT_ERR_INVALID);
    cr_expect_eq(weft_check(list, 2, NULL, &report), WEFT_ERR_INVALID);
    cr_expect_eq(weft_check(list, 1, NULL, NULL), WEFT_ERR_INVALID);
    weft_check_config_init(&config);
    config.struct_size = 3;
    cr_expect_eq(weft_check(list, 1, &config, &report), WEFT_ERR_INVALID);
    cr_expect_null(report);
    cr_assert_eq(weft_check(list, 1, NULL, &report), WEFT_OK);
    cr_expect_eq(weft_check_report_get_fault(report, 0, &fault), WEFT_ERR_INVALID);
    cr_expect_eq(weft_check_report_get_summary(report, &summary), WEFT_ERR_INVALID);
    cr_expect_eq(weft_check_report_fault_count(NULL), 0);
    cr_expect_not(weft_check_report_ok(NULL));
    cr_expect_null(weft_fault_kind_name(WEFT_FAULT_COUNT));
    weft_check_report_destroy(report);
    weft_check_report_destroy(NULL);
    weft_schedule_add_order(s, 0, 99);
    cr_expect_eq(weft_check(list, 1, NULL, &report), WEFT_ERR_INVALID);
    weft_schedule_destroy(s);
}

Test(check, races_that_are_not_counted_are_told_of)
{
    static const char text[] =
        HEAD1 "input a f32 4\noutput b f32 4\nfor i in 1..%d { copy b = a }\n}\n";

    for (int copies = 8; copies <= 31; copies += 23) {
        struct weft_check_report *report;
        struct weft_check_summary summary = {.struct_size = sizeof summary};
        char document[256];

        snprintf(document, sizeof document, text, copies);
        report = check_document(document);
        weft_check_report_get_summary(report, &summary);
        cr_expect_eq(summary.more, copies > 8, "%d copies", copies);
        cr_expect_eq(summary.faults, copies > 8 ? 8 : 7, "%d copies", copies);
        weft_check_report_destroy(report);
    }
}

Test(check, more_faults_than_are_kept_are_counted)
{
    struct weft_schedule *a[16];
    struct weft_check_config config;
    struct weft_check_report *report;
    struct weft_check_summary summary = {.struct_size = sizeof summary};
    for (int r = 0; r < 16; r++) {
        a[r] = one("barrier", r, 16);
        weft_schedule_add_recv(a[r], weft_region_at(0, 0, 0), (r + 1) % 16, 77);
    }
    weft_check_config_init(&config);
    config.faults = 3;
    cr_assert_eq(weft_check((const struct weft_schedule *const *)a, 16, &config, &report), WEFT_OK);
    weft_check_report_get_summary(report, &summary);
    cr_expect_eq(weft_check_report_fault_count(report), 3);
    cr_expect_eq(summary.faults, 16);
    weft_check_report_destroy(report);
    for (int r = 0; r < 16; r++)
        weft_schedule_destroy(a[r]);
}

/* ---- memory ---- */

static void fail_in_turn(const char *text)
{
    struct weft_schedule **schedules = NULL;
    struct weft_check_report *report = NULL;
    size_t count = 0;
    long failing = 1;
    cr_assert_eq(
        weft_schedule_read(text, strlen(text), user_ops, user_op_count, &schedules, &count),
        WEFT_OK);
    for (;; failing++) {
        atomic_store(&weft__alloc_countdown, failing);
        int status =
            weft_check((const struct weft_schedule *const *)schedules, count, NULL, &report);
        int failed = atomic_load(&weft__alloc_countdown) <= 0;
        atomic_store(&weft__alloc_countdown, -1);
        cr_assert_eq(status, failed ? WEFT_ERR_MEMORY : WEFT_OK, "call %ld: %s", failing,
                     weft_status_name(status));
        if (!failed)
            break;
    }
    cr_expect_gt(failing, 20);
    weft_check_report_destroy(report);
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free(schedules);
}

Test(check, without_memory_it_says_so)
{
    struct weft_op *top = make_op("top", WEFT_OP_COMMUTES | WEFT_OP_FOLDS, NULL);
    const struct weft_op *const ops[] = {top};
    char document[1024];
    user_ops = ops;
    user_op_count = 1;
    snprintf(document, sizeof document, tree, "t[0:4]");
    fail_in_turn(document);
    user_op_count = 0;
    weft_op_destroy(top);
    fail_in_turn(HEAD2 "inout a i32 4\nscratch t i32 4\nn0: event choice 0\n"
                       "n1: event channel 0 choice 0\nn2: signal to 1 channel 0 after any n0\n"
                       "n3: recv t from 1 after any n0, n1\nn4: reduce sum a = a, t after n3\n"
                       "n5: send a[0:2] to 1\nn6: join after n6\n}\nrank 1 {\n"
                       "input a i32 4\nn0: event channel 0\nn1: send a to 0 after n0\n}\n");
    fail_in_turn(HEAD2
                 "inout a i32 4\nscratch t i32 4\nn0: send a to 1\n"
                 "n1: recv t from 1 after n0\nn2: reduce sum a = t, t after n1\n}\nrank 1 {\n"
                 "inout a i32 4\nscratch t i32 4\nn0: send a to 0\nn1: recv t from 0 after n0\n"
                 "}\n");
    fail_in_turn(HEAD2 "inout a i32 4\nscratch t i32 4\nn0: send a to 1\n"
                       "n1: recv t from 1\nn2: reduce sum a = t, t after n0, n1\n"
                       "result a = sum of a from ranks 0..1\n}\nrank 1 {\n"
                       "inout a i32 4\nscratch t i32 4\nn0: send a to 0\nn1: recv t from 0\n}\n");
}
