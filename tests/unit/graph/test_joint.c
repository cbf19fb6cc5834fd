/* SPDX-License-Identifier: BSD-3-Clause */
/* Joint nodes without a device: their names, what is refused, and that what is written out computes
 * what it should, on host memory. */
#include <criterion/criterion.h>

#include "runtime/graph/joint.h"
#include "tests/support/bind.h"
#include "tests/support/joints.h"
#include "tests/support/ranks.h"

enum { SEEDS = 60 };

/* ---- written out ---- */

struct play {
    struct joints *joints;
    struct weft_schedule *schedules[JOINTS_MOST_RANKS];
};

static void play_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct play *play = ranks->user;
    struct weft_schedule *s = play->schedules[rank];
    int32_t x[JOINTS_COUNT];
    struct weft_plan *plan;
    struct weft_run *run;

    /* None of its regions is memory of a device. */
    int joins = weft__schedule_has_joints(s), status = weft_schedule_commit(s, &plan);
    CHECK(joins == (status != WEFT_OK));
    if (status == WEFT_OK)
        weft_plan_destroy(plan);
    OK(weft_schedule_write_out(s));
    CHECK(!weft__schedule_has_joints(s));
    OK(weft_schedule_commit(s, &plan));
    OK(weft_run_create(&run, context, plan, NULL));
    weft_plan_destroy(plan);
    joints_fill(play->joints, rank, x);
    OK(bind_slot(run, 0, x));
    OK(weft_run_execute(run));
    joints_check(play->joints, rank, x);
    weft_run_destroy(run);
}

/* A check has nothing to say, and a simulation comes to its end, with joint nodes as they are. */
static void check_as_they_are(const struct play *play, int size)
{
    const struct weft_schedule *const *schedules =
        (const struct weft_schedule *const *)play->schedules;
    struct weft_check_report *report;
    struct weft_check_config config;
    struct weft_check_summary summary = {.struct_size = sizeof summary};
    struct weft_sim_config sim;
    struct weft_sim_result *result;

    weft_check_config_init(&config);
    config.in_order = 1;
    OK(weft_check(schedules, (size_t)size, &config, &report));
    for (size_t f = 0; f < weft_check_report_fault_count(report); f++) {
        struct weft_fault fault = {.struct_size = sizeof fault};

        OK(weft_check_report_get_fault(report, f, &fault));
        CHECK_TEXT(fault.text, "no such fault");
    }
    OK(weft_check_report_get_summary(report, &summary));
    CHECK(summary.unordered == 0);
    weft_check_report_destroy(report);
    weft_sim_config_init(&sim);
    sim.ranks = size;
    sim.schedules = schedules;
    OK(weft_simulate(&sim, &result));
    weft_sim_result_destroy(result);
}

static void build(struct play *play, uint64_t seed, int size)
{
    play->joints = joints_create(seed, size);
    for (int r = 0; r < joints_size(play->joints); r++)
        play->schedules[r] = joints_build(play->joints, r);
}

static void destroy(struct play *play)
{
    for (int r = 0; r < joints_size(play->joints); r++)
        weft_schedule_destroy(play->schedules[r]);
    joints_destroy(play->joints);
}

Test(joint, what_is_written_out_computes_the_same)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct play play;

        build(&play, seed, 0);
        check_as_they_are(&play, joints_size(play.joints));
        ranks_run_once(play_rank, joints_size(play.joints), &play);
        destroy(&play);
    }
}

/* ---- texts ---- */

static void through(struct play *play, weft_format_t format)
{
    int size = joints_size(play->joints);
    struct weft_schedule **read;
    char *text;
    size_t length, count;

    OK(weft_schedule_write((const struct weft_schedule *const *)play->schedules, (size_t)size,
                           format, &text, &length));
    OK(weft_schedule_read(text, length, NULL, 0, &read, &count));
    CHECK(count == (size_t)size);
    for (int r = 0; r < size; r++) {
        CHECK(weft_schedule_rank(read[r]) == r);
        weft_schedule_destroy(play->schedules[r]);
        play->schedules[r] = read[r];
    }
    weft_memory_free(read);
    weft_memory_free(text);
}

Test(joint, texts_have_all_of_it)
{
    for (uint64_t seed = 100; seed < 100 + SEEDS / 2; seed++) {
        struct play play;

        build(&play, seed, 0);
        through(&play, seed % 2 ? WEFT_FORMAT_TEXT : WEFT_FORMAT_JSON);
        ranks_run_once(play_rank, joints_size(play.joints), &play);
        destroy(&play);
    }
}

/* ---- as parts of others ---- */

/* Rank r of the part is rank size - 1 - r, and tags go up. */
static struct weft_schedule *around(const struct weft_schedule *part, int size)
{
    int ranks[JOINTS_MOST_RANKS];
    struct weft_part_config config;
    struct weft_part_slot slot = {"x", weft_region_at(0, 0, JOINTS_COUNT)};
    struct weft_schedule *s;

    for (int r = 0; r < size; r++)
        ranks[r] = size - 1 - r;
    OK(weft_schedule_create(&s, ranks[weft_schedule_rank(part)], size));
    CHECK(weft_schedule_add_slot(s, "all", WEFT_I32, JOINTS_COUNT, WEFT_SLOT_INOUT) == 0);
    weft_part_config_init(&config);
    config.slots = &slot;
    config.slot_count = 1;
    config.ranks = ranks;
    config.tag = 1000;
    CHECK(weft_schedule_add_part(s, part, WEFT_NODE_NONE, &config) >= 0);
    return s;
}

static void play_mirrored(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct play *play = ranks->user;
    int own = ranks->size - 1 - rank;
    struct weft_schedule *s = around(play->schedules[own], ranks->size);
    int32_t x[JOINTS_COUNT];
    struct weft_plan *plan;
    struct weft_run *run;

    OK(weft_schedule_write_out(s));
    OK(weft_schedule_commit(s, &plan));
    OK(weft_run_create(&run, context, plan, NULL));
    weft_plan_destroy(plan);
    weft_schedule_destroy(s);
    joints_fill(play->joints, own, x);
    OK(bind_slot(run, 0, x));
    OK(weft_run_execute(run));
    joints_check(play->joints, own, x);
    weft_run_destroy(run);
}

Test(joint, parts_are_of_other_ranks_and_tags)
{
    for (uint64_t seed = 200; seed < 200 + SEEDS / 2; seed++) {
        struct play play;

        build(&play, seed, 0);
        ranks_run_once(play_mirrored, joints_size(play.joints), &play);
        destroy(&play);
    }
}

/* ---- names ---- */

static void check_name(const char *name, int count)
{
    struct weft_op *op;
    int status = weft__joint_parse(name, &op);

    if (!count) {
        cr_expect_eq(status, WEFT_ERR_NOT_FOUND, "%s: %d", name, status);
        if (status == WEFT_OK)
            weft_op_destroy(op);
        return;
    }
    cr_assert_eq(status, WEFT_OK, "%s", name);
    cr_expect_str_eq(weft_op_name(op), name);
    cr_expect_eq(op->joint->ranks->count, count, "%s", name);
    weft_op_destroy(op);
}

Test(joint, names_say_all)
{
    check_name("joint-fold-all-sum-0-0", 1);
    check_name("joint-fold-all-max-17-0to7", 8);
    check_name("joint-fold-one-min-3-4294967294-1_3", 2);
    check_name("joint-fold-parts-prod-5-6to0", 0); /* ranges ascend */
    check_name("joint-fold-parts-prod-5-0to14by2_1to15by2", 16);
    check_name("joint-spread-2-0-5_2_0", 3);
    check_name("joint-collect-0-3to2147483646", 2147483644);
    check_name("joint-collect-0-0to2147483646by2_1to2147483645by2", 0); /* more than an int */
    check_name("joint-collect-0-0to2000000000by2_1to1999999999by2", 2000000001);
    check_name("joint-collect-0-0to2000000000by2_3to1999999998by3", 0); /* 6 is in both */
    check_name("joint-collect-0-0to2000000000by4_2to1999999998by4_1000000001", 1000000002);
    check_name("joint-collect-0-0to2000000000by4_2to1999999998by4_1000000000", 0);
    check_name("joint-fold-all-land-0-0", 0);
    check_name("joint-fold-all-sum-0-", 0);
    check_name("joint-fold-all-sum-0-00", 0);
    check_name("joint-fold-all-sum-0-0_0", 0);
    check_name("joint-fold-all-sum-0-0to8by3", 0);
    check_name("joint-fold-all-sum-0-0to4by1", 0);
    check_name("joint-fold-all-sum-4294967295-0", 0);
    check_name("joint-fold-all-sum-4294967296-0", 0);
    check_name("joint-spread-1-0-0_2", 0); /* its root is none of them */
    check_name("joint-spread-0-0", 0);
    check_name("joint-", 0);
    check_name("joint-none-0-0", 0);
}

/* ---- what is refused ---- */

static void refused(struct weft_joint joint, int size, struct weft_region to,
                    struct weft_region from, const char *text)
{
    struct weft_schedule *s;

    OK(weft_schedule_create(&s, 1, size));
    CHECK(weft_schedule_add_slot(s, "x", WEFT_F32, 100, WEFT_SLOT_INOUT) == 0);
    CHECK(weft_schedule_add_slot(s, "i", WEFT_I16, 100, WEFT_SLOT_INOUT) == 1);
    CHECK(weft_schedule_add_slot(s, "in", WEFT_F32, 100, WEFT_SLOT_INPUT) == 2);
    CHECK(weft_schedule_add_value(s, "n", 10) == 1);
    joint.struct_size = sizeof joint;
    cr_expect_eq(weft_schedule_add_joint(s, &joint, &to, &from), WEFT_ERR_INVALID, "%s", text);
    CHECK_TEXT(weft_error_text(), text);
    cr_expect_eq(weft_schedule_status(s), WEFT_ERR_INVALID);
    weft_schedule_destroy(s);
}

#define AT(slot, offset, count) weft_region_at((slot), (offset), (count))

Test(joint, what_cannot_be_is_refused)
{
    const struct weft_joint all = {.kind = WEFT_JOINT_FOLD_ALL};
    struct weft_joint joint = all;
    struct weft_region counted = AT(0, 0, 10);

    counted.value = 1;
    refused((struct weft_joint){.kind = (weft_joint_kind_t)5}, 3, AT(0, 0, 1), AT(0, 0, 1),
            "joint->kind is 5, expected 0..4");
    refused((struct weft_joint){.op = WEFT_BAND}, 3, AT(0, 0, 1), AT(0, 0, 1),
            "expected WEFT_SUM, WEFT_PROD, WEFT_MIN or WEFT_MAX");
    refused(all, 3, AT(0, 0, 10), AT(0, 5, 10), "overlaps what it gives in slot \"x\"");
    refused(all, 3, AT(0, 0, 10), AT(0, 50, 11),
            "gets 10 elements and gives 11, expected the same");
    refused(all, 3, AT(1, 0, 10), AT(1, 0, 10), "folds i16");
    refused(all, 3, AT(0, 0, 10), AT(1, 0, 10), "gets f32 and gives i16");
    refused(all, 3, AT(2, 0, 10), AT(0, 0, 10), "is in input slot \"in\"");
    refused(all, 3, counted, counted, "has value \"n\", expected none");
    refused(all, 3, AT(0, 95, 10), AT(0, 0, 10), "expected it within its 100 elements");
    joint.kind = WEFT_JOINT_COLLECT;
    refused(joint, 3, AT(0, 0, 10), AT(0, 50, 5), "expected to get so many times as much");
    refused(joint, 3, AT(0, 0, 10), AT(0, 0, 10), "expected a multiple of its 3 ranks");
    joint.kind = WEFT_JOINT_FOLD_PARTS;
    refused(joint, 3, AT(0, 0, 10), AT(0, 50, 5), "expected to give so many times as much");
    joint.kind = WEFT_JOINT_SPREAD;
    joint.root = 3;
    refused(joint, 3, AT(0, 0, 10), AT(0, 0, 10), "joint->root is 3, expected one of joint->ranks");
    joint = all;
    joint.ranks = (const int[]){0, 2};
    joint.rank_count = 2;
    refused(joint, 3, AT(0, 0, 10), AT(0, 0, 10),
            "is of a schedule of rank 1, expected one of them");
    joint.ranks = (const int[]){1, 2, 1};
    joint.rank_count = 3;
    refused(joint, 3, AT(0, 0, 10), AT(0, 0, 10), "joint->ranks has 1 twice");
    joint.ranks = (const int[]){1, 3};
    joint.rank_count = 2;
    refused(joint, 3, AT(0, 0, 10), AT(0, 0, 10), "joint->ranks[1] is 3, expected 0..2");
    joint.rank_count = 0;
    refused(joint, 3, AT(0, 0, 10), AT(0, 0, 10), "joint->rank_count is 0, expected at least 1");
    joint = all;
    joint.tag = UINT32_MAX;
    refused(joint, 3, AT(0, 0, 10), AT(0, 0, 10), "it takes the next one, too");
}

/* A document may say what no builder does. */
static void document_is_refused(const char *node, const char *why)
{
    char text[300];
    struct weft_schedule **read = NULL;
    size_t count;
    int length = snprintf(text, sizeof text,
                          "weft 1\nschedule \"j\" size 2\nrank 0 {\ninout x f32 8\ninput y f32 8\n"
                          "compute %s\n}\n",
                          node);

    cr_expect_lt(weft_schedule_read(text, (size_t)length, NULL, 0, &read, &count), 0, "%s", node);
    CHECK_TEXT(weft_error_text(), why);
}

Test(joint, documents_are_looked_at)
{
    document_is_refused("joint-fold-all-sum-0-0to2 update x", "has rank 2, expected 0..1");
    document_is_refused("joint-fold-all-sum-0-1 update x", "is of a schedule of rank 0");
    document_is_refused("joint-fold-all-sum-0-0_1 out x, in y, in y", "has 3 regions");
    document_is_refused("joint-fold-all-sum-0-0_1 out x", "expected WEFT_UPDATE here");
    document_is_refused("joint-fold-one-sum-1-0-0_1 out x, in y", "expected WEFT_READ here");
    document_is_refused("joint-spread-0-0-0_1 out x", "expected WEFT_READ here");
    document_is_refused("joint-collect-0-0_1_5 update x", "has rank 5");
    document_is_refused("joint-nothing-0-0_1 update x", "joint-nothing-0-0_1");
}

Test(joint, two_that_cannot_be_told_apart)
{
    struct weft_region x = weft_region_at(0, 0, 8);
    struct weft_schedule *s;
    struct weft_plan *plan;

    OK(weft_schedule_create(&s, 0, 2));
    CHECK(weft_schedule_add_slot(s, "x", WEFT_F32, 8, WEFT_SLOT_INOUT) == 0);
    OK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE));
    CHECK(weft_schedule_nccl_allreduce(s, WEFT_SUM, x, x, NULL) == 0);
    CHECK(weft_schedule_nccl_broadcast(s, x, 0, NULL) == 1);
    CHECK_STATUS(weft_schedule_commit(s, &plan), WEFT_ERR_DUPLICATE);
    weft_schedule_destroy(s);
}
