/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules made of others: what a part becomes, what is refused, and that the whole is right. */
#include "fixture.h"

#include <weft/check.h>
#include <weft/template.h>

/* ---- what a part becomes ---- */

/* Rank 0 of 2, with one of each: receives as many as come, doubles them, keeps them, and tells. */
static struct weft_schedule *small_part(void)
{
    struct weft_schedule *part = NULL;
    struct weft_compute_argument arguments[2];
    weft_node_t recv, compute, copy, event, signal;
    weft_slot_t data, tmp;
    weft_value_t pairs;

    cr_assert_eq(weft_schedule_create(&part, 0, 2), WEFT_OK);
    tmp = weft_schedule_add_slot(part, "tmp", WEFT_F32, 8, WEFT_SLOT_SCRATCH);
    data = weft_schedule_add_slot(part, "data", WEFT_F32, 10, WEFT_SLOT_OUTPUT);
    pairs = weft_schedule_add_value(part, "pairs", 8);
    recv = weft_schedule_add_recv_up_to(part, weft_region_at(tmp, 0, 8), 1, 3, pairs);
    arguments[0] = (struct weft_compute_argument){{tmp, pairs, 0, 8}, WEFT_READ};
    arguments[1] = (struct weft_compute_argument){weft_region_at(data, 1, 8), WEFT_WRITE};
    compute = weft_schedule_add_compute(part, user_op, arguments, 2, 0);
    copy = weft_schedule_add_copy(part, weft_region_at(data, 9, 1), weft_region_at(tmp, 7, 1));
    event = weft_schedule_add_event(part, 5);
    signal = weft_schedule_add_signal(part, 1, 6);
    weft_schedule_add_order(part, recv, compute);
    weft_schedule_add_order(part, compute, copy);
    weft_schedule_add_order(part, event, signal);
    weft_schedule_set_any(part, copy);
    weft_schedule_set_label(part, compute, "doubles");
    weft_schedule_add_result(part, &(struct weft_result){.struct_size = sizeof(struct weft_result),
                                                         .dst = weft_region_at(data, 0, 1),
                                                         .from = "data",
                                                         .ranks = 1});
    cr_assert_eq(weft_schedule_status(part), WEFT_OK, "%s", weft_error_text());
    return part;
}

static struct weft_node_info node_of(weft_node_t node)
{
    struct weft_node_info info = {.struct_size = sizeof info};

    cr_assert_eq(weft_schedule_get_node(schedule, node, &info), WEFT_OK);
    return info;
}

static weft_slot_t slot_of(const char *name, size_t count, weft_slot_kind_t kind)
{
    for (weft_slot_t s = 0; (size_t)s < weft_schedule_slot_count(schedule); s++) {
        struct weft_slot_info info = {.struct_size = sizeof info};

        weft_schedule_get_slot(schedule, s, &info);
        if (strcmp(info.name, name))
            continue;
        cr_expect_eq(info.count, count, "%s", name);
        cr_expect_eq(info.kind, kind, "%s", name);
        return s;
    }
    cr_assert_fail("there is no slot %s", name);
    return -1;
}

static int has_order(weft_node_t before, weft_node_t after)
{
    for (size_t e = 0; e < weft_schedule_edge_count(schedule); e++) {
        weft_node_t b, a;

        weft_schedule_get_edge(schedule, e, &b, &a);
        if (b == before && a == after)
            return 1;
    }
    return 0;
}

TestSuite(schedule_part, .init = setup, .fini = teardown);

Test(schedule_part, all_that_a_node_names_is_translated)
{
    struct weft_schedule *part = small_part();
    const struct weft_part_slot slots[] = {{"data", {out, 0, 20, 30}}};
    const int ranks[] = {1, 3};
    struct weft_part_config config;
    struct weft_value_info value_info = {.struct_size = sizeof value_info};
    weft_node_t before, join;

    weft_part_config_init(&config);
    config.name = "sum";
    config.slots = slots;
    config.slot_count = 1;
    config.tag = 100;
    config.tag_count = 4;
    config.channel = 20;
    config.ranks = ranks;
    before = weft_schedule_add_join(schedule);
    join = weft_schedule_add_part(schedule, part, before, &config);
    weft_schedule_destroy(part);
    cr_assert_eq(join, 6, "%s", weft_error_text());
    cr_expect_eq(weft_schedule_node_count(schedule), 7);
    weft_slot_t tmp = slot_of("sum.tmp", 8, WEFT_SLOT_SCRATCH);

    struct weft_node_info recv = node_of(1);
    cr_expect_eq(recv.kind, WEFT_NODE_RECV);
    cr_expect(recv.up_to && recv.peer == 3 && recv.tag == 103);
    cr_expect(recv.regions[0].slot == tmp && recv.regions[0].count == 8);
    cr_expect_eq(recv.produces, value + 1);
    cr_assert_eq(weft_schedule_get_value(schedule, value + 1, &value_info), WEFT_OK);
    cr_expect_str_eq(value_info.name, "sum.pairs");
    cr_expect(value_info.max == 8 && value_info.producer == 1);

    struct weft_node_info compute = node_of(2);
    cr_expect_eq(compute.op, user_op);
    cr_expect_str_eq(compute.label, "sum: doubles");
    cr_expect(compute.regions[0].slot == tmp && compute.regions[0].value == value + 1);
    cr_expect(compute.regions[1].slot == out && compute.regions[1].offset == 21);
    cr_expect(compute.accesses[0] == WEFT_READ && compute.accesses[1] == WEFT_WRITE);

    struct weft_node_info copy = node_of(3);
    cr_expect(copy.any && copy.regions[0].offset == 29 && copy.regions[1].offset == 7);
    cr_expect_eq(node_of(4).channel, 25);
    cr_expect(node_of(5).channel == 26 && node_of(5).peer == 3);
    cr_expect_eq(node_of(join).kind, WEFT_NODE_JOIN);
    cr_expect_str_eq(node_of(join).label, "sum");
    cr_expect(has_order(1, 2) && has_order(2, 3) && has_order(4, 5));
    cr_expect(has_order(before, 1) && has_order(before, 4) && !has_order(before, 2));
    cr_expect(has_order(3, join) && has_order(5, join) && !has_order(2, join));
    cr_expect(has_order(before, join));
    cr_expect_eq(weft_schedule_result_count(schedule), 0);
}

Test(schedule_part, parts_have_names_and_scratch_of_their_own)
{
    struct weft_schedule *part = small_part();
    const struct weft_part_slot first[] = {{"data", {out, 0, 0, 10}}};
    const struct weft_part_slot second[] = {{"data", {out, 0, 10, 10}}};
    struct weft_part_config config = {.struct_size = sizeof config,
                                      .slots = first,
                                      .slot_count = 1,
                                      .ranks = (const int[]){1, 0}};
    weft_node_t join = weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, &config);

    cr_assert_geq(join, 0, "%s", weft_error_text());
    config.slots = second;
    config.tag = 4;
    cr_assert_geq(weft_schedule_add_part(schedule, part, join, &config), 0);
    cr_expect_str_eq(node_of(join).label, "part0");
    cr_expect(node_of(0).regions[0].slot == slot_of("part0.tmp", 8, WEFT_SLOT_SCRATCH));
    cr_expect(node_of(6).regions[0].slot == slot_of("part1.tmp", 8, WEFT_SLOT_SCRATCH));
    weft_schedule_destroy(part);
}

Test(schedule_part, scratch_of_one_name_is_shared_and_as_large_as_the_largest)
{
    const size_t counts[] = {20, 50, 30};
    weft_node_t join = WEFT_NODE_NONE;

    for (int i = 0; i < 3; i++) {
        struct weft_schedule *part = NULL;
        struct weft_part_config config = {.struct_size = sizeof config, .scratch = "shared"};
        struct weft_region all = weft_region_at(0, 0, counts[i]);

        weft_schedule_create(&part, 1, 4);
        weft_schedule_add_slot(part, "tmp", WEFT_F32, counts[i], WEFT_SLOT_SCRATCH);
        weft_schedule_add_recv(part, all, 0, (uint32_t)i);
        join = weft_schedule_add_part(schedule, part, join, &config);
        cr_assert_geq(join, 0, "%s", weft_error_text());
        weft_schedule_destroy(part);
    }
    weft_slot_t slot = slot_of("shared.tmp", 50, WEFT_SLOT_SCRATCH);
    for (weft_node_t n = 0; n < 6; n += 2)
        cr_expect_eq(node_of(n).regions[0].slot, slot);
}

Test(schedule_part, a_choice_comes_along_and_the_join_follows_what_lives_whoever_wins)
{
    struct weft_schedule *part = NULL;
    weft_node_t events[2], either, loser, join;

    cr_assert_eq(weft_schedule_create(&part, 1, 4), WEFT_OK);
    events[0] = weft_schedule_add_event(part, WEFT_CHANNEL_NONE);
    events[1] = weft_schedule_add_event(part, 2);
    weft_schedule_add_choice(part, events, 2);
    either = weft_schedule_add_join(part);
    weft_schedule_set_any(part, either);
    loser = weft_schedule_add_join(part);
    weft_schedule_add_order(part, events[0], either);
    weft_schedule_add_order(part, events[1], either);
    weft_schedule_add_order(part, events[0], loser);
    weft_schedule_add_choice(schedule, (weft_node_t[]){weft_schedule_add_event(schedule, 7)}, 1);
    join = weft_schedule_add_part(
        schedule, part, WEFT_NODE_NONE,
        &(struct weft_part_config){.struct_size = sizeof(struct weft_part_config), .channel = 1});
    cr_assert_geq(join, 0, "%s", weft_error_text());
    cr_expect(node_of(1).choice == 1 && node_of(2).choice == 1);
    cr_expect(node_of(1).channel == WEFT_CHANNEL_NONE && node_of(2).channel == 3);
    cr_expect(has_order(1 + either, join) && !has_order(1 + loser, join));
    weft_schedule_destroy(part);
}

/* Puts a part behind one node; its nodes are those from 1 on. */
static weft_node_t put_behind_one(struct weft_schedule *part)
{
    weft_node_t join;

    weft_schedule_add_join(schedule);
    join = weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, NULL);
    cr_assert_geq(join, 0, "%s", weft_error_text());
    weft_schedule_destroy(part);
    return join;
}

Test(schedule_part, the_join_follows_what_lives_though_what_follows_it_may_not)
{
    struct weft_schedule *part = NULL;
    weft_node_t events[2], lives, retired, join;

    cr_assert_eq(weft_schedule_create(&part, 1, 4), WEFT_OK);
    lives = weft_schedule_add_event(part, WEFT_CHANNEL_NONE);
    for (int i = 0; i < 2; i++)
        events[i] = weft_schedule_add_event(part, WEFT_CHANNEL_NONE);
    weft_schedule_add_choice(part, events, 2);
    retired = weft_schedule_add_join(part);
    weft_schedule_add_order(part, lives, retired);
    weft_schedule_add_order(part, events[0], retired);
    join = put_behind_one(part);
    cr_expect(has_order(1 + lives, join) && !has_order(1 + retired, join));
    cr_expect(!has_order(1 + events[0], join) && !has_order(1 + events[1], join));
}

/* Which of several a node with "any" ends after is not known. */
Test(schedule_part, the_join_follows_each_of_what_one_starts_after_any_of)
{
    struct weft_schedule *part = NULL;
    weft_node_t events[3], any, one, join;

    cr_assert_eq(weft_schedule_create(&part, 1, 4), WEFT_OK);
    for (int i = 0; i < 3; i++)
        events[i] = weft_schedule_add_event(part, WEFT_CHANNEL_NONE);
    any = weft_schedule_add_join(part);
    weft_schedule_set_any(part, any);
    weft_schedule_add_order(part, events[0], any);
    weft_schedule_add_order(part, events[1], any);
    one = weft_schedule_add_join(part);
    weft_schedule_set_any(part, one);
    weft_schedule_add_order(part, events[2], one);
    join = put_behind_one(part);
    cr_expect(has_order(1 + events[0], join) && has_order(1 + events[1], join));
    cr_expect(has_order(1 + any, join) && has_order(1 + one, join));
    cr_expect(!has_order(1 + events[2], join), "the node of one predecessor ends after it");
}

Test(schedule_part, the_join_follows_what_starts_after_any_of_several_choices)
{
    struct weft_schedule *part = NULL;
    weft_node_t events[4], whole, halves, join;

    cr_assert_eq(weft_schedule_create(&part, 1, 4), WEFT_OK);
    for (int i = 0; i < 4; i++)
        events[i] = weft_schedule_add_event(part, WEFT_CHANNEL_NONE);
    weft_schedule_add_choice(part, events, 2);
    weft_schedule_add_choice(part, events + 2, 2);
    whole = weft_schedule_add_join(part);
    halves = weft_schedule_add_join(part);
    weft_schedule_set_any(part, whole);
    weft_schedule_set_any(part, halves);
    for (int i = 0; i < 3; i++)
        weft_schedule_add_order(part, events[i], whole);
    for (int i = 0; i < 3; i += 2)
        weft_schedule_add_order(part, events[i], halves);
    join = put_behind_one(part);
    cr_expect(has_order(1 + whole, join) && !has_order(1 + halves, join));
}

Test(schedule_part, a_part_of_no_nodes_is_a_join)
{
    struct weft_schedule *part = NULL;
    weft_node_t before = weft_schedule_add_join(schedule), join;

    cr_assert_eq(weft_schedule_create(&part, 1, 2), WEFT_OK);
    weft_schedule_add_slot(part, "none", WEFT_I8, 0, WEFT_SLOT_INPUT);
    join = weft_schedule_add_part(schedule, part, before, NULL);
    cr_expect(join == 1 && has_order(before, join));
    weft_schedule_destroy(part);
}

/* ---- misuse ---- */

static void refused(const struct weft_part_config *config, const char *first, const char *second,
                    const char *third)
{
    struct weft_schedule *part = small_part();

    expect_failure(weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, config), WEFT_ERR_INVALID,
                   first, second, third);
    weft_schedule_destroy(part);
    teardown();
    setup();
}

#define TO_1                                                                                       \
    .struct_size = sizeof(struct weft_part_config), .ranks = (const int[])                         \
    {                                                                                              \
        1, 0                                                                                       \
    }
#define SLOTS(...)                                                                                 \
    .slots = (const struct weft_part_slot[]){__VA_ARGS__},                                         \
    .slot_count =                                                                                  \
        sizeof((const struct weft_part_slot[]){__VA_ARGS__}) / sizeof(struct weft_part_slot)
#define CONFIG(...) (&(const struct weft_part_config){__VA_ARGS__})

Test(schedule_part, what_is_wrong_with_slots_is_named)
{
    weft_slot_t wide = scratch;

    refused(CONFIG(TO_1), "slot \"data\" of part `schedule`", "not in config->slots",
            "its 10 elements");
    refused(CONFIG(TO_1, .slot_count = 2), "config->slots is NULL", "2", NULL);
    refused(CONFIG(TO_1, SLOTS({"tmp", {out, 0, 0, 10}})), "config->slots[0].name is \"tmp\"",
            "not scratch", NULL);
    refused(CONFIG(TO_1, SLOTS({NULL, {out, 0, 0, 10}})), "config->slots[0].name is NULL", NULL,
            NULL);
    refused(CONFIG(TO_1, SLOTS({"data", {out, 0, 0, 10}}, {"data", {out, 0, 10, 10}})),
            "config->slots[1]", "again", NULL);
    refused(CONFIG(TO_1, SLOTS({"data", {out, 0, 0, 9}})), "config->slots[0] has 9 elements",
            "at least the 10", "\"data\"");
    refused(CONFIG(TO_1, SLOTS({"data", {out, 0, 91, 10}})), "`config->slots[0]` is offset 91",
            "\"out\"", NULL);
    refused(CONFIG(TO_1, SLOTS({"data", {in, 0, 0, 10}})), "`config->slots[0]` is in input slot",
            NULL, NULL);
    refused(CONFIG(TO_1, SLOTS({"data", {wide, 0, 0, 10}})), "config->slots[0] is of f64",
            "expected f32", NULL);
    refused(CONFIG(TO_1, SLOTS({"data", {out, 1, 0, 10}})), "config->slots[0] has value 1", NULL,
            NULL);
}

#define RIGHT TO_1, SLOTS({"data", {out, 0, 0, 10}})

Test(schedule_part, what_is_wrong_with_names_and_numbers_is_named)
{
    refused(CONFIG(RIGHT, .name = "two words"), "config->name", "[A-Za-z_]", NULL);
    refused(CONFIG(RIGHT, .scratch = ""), "config->scratch", "[A-Za-z_]", NULL);
    refused(CONFIG(RIGHT, .tag_count = 3), "config->tag_count is 3", "tag 3", "below");
    refused(CONFIG(RIGHT, .tag = UINT32_MAX - 2), "config->tag is 4294967293", "at most 4294967292",
            "tag 3");
    refused(CONFIG(RIGHT, .channel = UINT32_MAX - 5), "config->channel is 4294967290",
            "less than 4294967290", "channel 5");
    refused(CONFIG(.struct_size = sizeof(struct weft_part_config)), "part `schedule` is of rank 0",
            "expected 1", "config->ranks");
    refused(CONFIG(.struct_size = sizeof(struct weft_part_config), .ranks = (const int[]){1, 4}),
            "config->ranks[1] is 4", "0..3", NULL);
    refused(CONFIG(.struct_size = sizeof(struct weft_part_config), .ranks = (const int[]){1, 1}),
            "config->ranks[1] is 1", "already", NULL);
    refused(CONFIG(.struct_size = sizeof(struct weft_part_config), .ranks = (const int[]){2, 1}),
            "config->ranks[0] is 2", "expected 1", NULL);
}

Test(schedule_part, what_is_wrong_with_the_part_is_named)
{
    struct weft_schedule *part = NULL;

    weft_schedule_create(&part, 1, 5);
    expect_failure(weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, NULL), WEFT_ERR_INVALID,
                   "is for 5 ranks", "at most the 4", "config->ranks");
    teardown(), setup();
    expect_failure(weft_schedule_add_part(schedule, schedule, WEFT_NODE_NONE, NULL),
                   WEFT_ERR_INVALID, "`part` is `schedule`", NULL, NULL);
    teardown(), setup();
    expect_failure(weft_schedule_add_part(schedule, NULL, WEFT_NODE_NONE, NULL), WEFT_ERR_INVALID,
                   "`part` is NULL", NULL, NULL);
    teardown(), setup();
    expect_failure(weft_schedule_add_part(schedule, part, 0, NULL), WEFT_ERR_INVALID,
                   "`after` is 0", "WEFT_NODE_NONE", "0 nodes");
    teardown(), setup();
    weft_schedule_add_send(part, weft_region_at(0, 0, 0), 0, 0);
    expect_failure(weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, NULL), WEFT_ERR_INVALID,
                   "`part` has an error", "weft_schedule_add_send", NULL);
    weft_schedule_destroy(part);
}

/* A part that reads one slot and writes another, of ten elements each. */
static struct weft_schedule *copying_part(void)
{
    struct weft_schedule *part = NULL;

    weft_schedule_create(&part, 1, 4);
    weft_schedule_add_slot(part, "from", WEFT_F32, 10, WEFT_SLOT_INPUT);
    weft_schedule_add_slot(part, "more", WEFT_F32, 10, WEFT_SLOT_INPUT);
    weft_schedule_add_slot(part, "to", WEFT_F32, 10, WEFT_SLOT_OUTPUT);
    weft_schedule_add_copy(part, weft_region_at(2, 0, 10), weft_region_at(0, 0, 10));
    return part;
}

Test(schedule_part, slots_may_overlap_only_where_nothing_is_written)
{
    for (size_t from = 0; from <= 30; from += 5)
        for (size_t more = 0; more <= 30; more += 5) {
            struct weft_schedule *part = copying_part();
            const struct weft_part_slot slots[] = {{"to", {out, 0, 10, 15}},
                                                   {"from", {out, 0, from, 10}},
                                                   {"more", {out, 0, more, 10}}};
            struct weft_part_config config = {
                .struct_size = sizeof config, .slots = slots, .slot_count = 3};
            int apart = (from == 0 || from >= 20) && (more == 0 || more >= 20);
            weft_node_t join = weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, &config);

            if (apart)
                cr_expect_geq(join, 0, "from %zu, more %zu: %s", from, more, weft_error_text());
            else
                expect_failure(join, WEFT_ERR_INVALID, "config->slots[0]", "overlap", NULL);
            weft_schedule_destroy(part);
            teardown();
            setup();
        }
}

Test(schedule_part, scratch_that_is_shared_has_one_datatype_and_is_scratch)
{
    struct weft_schedule *part = small_part();
    struct weft_part_config config = {RIGHT, .scratch = "sum"};

    weft_schedule_add_slot(schedule, "sum.tmp", WEFT_F64, 8, WEFT_SLOT_SCRATCH);
    expect_failure(weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, &config),
                   WEFT_ERR_INVALID, "config->scratch is \"sum\"", "f64", "f32");
    teardown(), setup();
    weft_schedule_add_slot(schedule, "sum.tmp", WEFT_F32, 8, WEFT_SLOT_OUTPUT);
    config.slots = (const struct weft_part_slot[]){{"data", {out, 0, 0, 10}}};
    expect_failure(weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, &config),
                   WEFT_ERR_INVALID, "\"sum.tmp\"", "in use", "config->scratch");
    weft_schedule_destroy(part);
}

static weft_memory_t memory_of(const char *name)
{
    struct weft_slot_info info = {.struct_size = sizeof info};

    for (weft_slot_t s = 0; weft_schedule_get_slot(schedule, s, &info) == WEFT_OK; s++)
        if (strcmp(info.name, name) == 0)
            return info.memory;
    cr_assert_fail("no slot %s", name);
    return WEFT_MEMORY_HOST;
}

Test(schedule_part, scratch_is_where_the_part_has_it)
{
    struct weft_schedule *part = small_part();
    struct weft_part_config config = {RIGHT, .scratch = "sum"};

    weft_schedule_set_memory(part, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE);
    cr_assert_geq(weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, &config), 0, "%s",
                  weft_error_text());
    cr_expect_eq(memory_of("sum.tmp"), WEFT_MEMORY_DEVICE);
    cr_expect_eq(memory_of("out"), WEFT_MEMORY_HOST, "bound slots are as the whole has them");
    weft_schedule_set_memory(part, WEFT_SLOT_ALL, WEFT_MEMORY_HOST);
    config.name = "second";
    expect_failure(weft_schedule_add_part(schedule, part, WEFT_NODE_NONE, &config),
                   WEFT_ERR_INVALID, "config->scratch is \"sum\"", "of the device", "of the host");
    weft_schedule_destroy(part);
}

/* ---- the whole ---- */

enum { MOST_RANKS = 9, COUNT = 13 };

/* Two allreduces of the same vector's halves, one after the other or not. */
static struct weft_schedule *two_sums(int rank, int size, int ordered, const char *shared)
{
    struct weft_schedule *whole = NULL, *part = NULL;
    struct weft_template_params params;
    weft_slot_t vector;
    weft_node_t join = WEFT_NODE_NONE;

    cr_assert_eq(weft_schedule_create(&whole, rank, size), WEFT_OK);
    vector = weft_schedule_add_slot(whole, "vector", WEFT_F32, 2 * COUNT, WEFT_SLOT_INOUT);
    weft_template_params_init(&params);
    params.count = COUNT;
    params.in_place = 1;
    params.algo = "recursive-doubling";
    cr_assert_eq(weft_template_build("allreduce", rank, size, &params, &part), WEFT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        struct weft_region half = weft_region_at(vector, i * COUNT, COUNT);
        const struct weft_part_slot slots[] = {{"recv", half}};
        struct weft_part_config config = {.struct_size = sizeof config,
                                          .slots = slots,
                                          .slot_count = 1,
                                          .scratch = shared,
                                          .tag = i << 31,
                                          .tag_count = 1u << 31};
        struct weft_result result = {.struct_size = sizeof result,
                                     .dst = half,
                                     .from = "vector",
                                     .offset = i * COUNT,
                                     .ranks = size,
                                     .op = weft_op_builtin(WEFT_SUM)};

        join = weft_schedule_add_part(whole, part, ordered ? join : WEFT_NODE_NONE, &config);
        weft_schedule_add_result(whole, &result);
    }
    weft_schedule_destroy(part);
    cr_assert_eq(weft_schedule_status(whole), WEFT_OK, "%s", weft_error_text());
    return whole;
}

static int is_right(int size, int ordered, const char *shared)
{
    struct weft_schedule *schedules[MOST_RANKS];
    struct weft_check_report *report = NULL;
    int ok;

    for (int r = 0; r < size; r++)
        schedules[r] = two_sums(r, size, ordered, shared);
    cr_assert_eq(
        weft_check((const struct weft_schedule *const *)schedules, (size_t)size, NULL, &report),
        WEFT_OK);
    ok = weft_check_report_ok(report);
    weft_check_report_destroy(report);
    for (int r = 0; r < size; r++)
        weft_schedule_destroy(schedules[r]);
    return ok;
}

Test(schedule_part, templates_put_together_are_right)
{
    for (int size = 1; size <= MOST_RANKS; size++) {
        cr_expect(is_right(size, 1, NULL), "%d ranks", size);
        cr_expect(is_right(size, 0, NULL), "%d ranks", size);
        cr_expect(is_right(size, 1, "shared"), "%d ranks", size);
    }
}

Test(schedule_part, checking_sees_that_parts_share_scratch_and_are_not_ordered)
{
    cr_expect_not(is_right(4, 0, "shared"));
}
