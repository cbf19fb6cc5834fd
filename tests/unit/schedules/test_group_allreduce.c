/* SPDX-License-Identifier: BSD-3-Clause */
/* Allreduce in groups, plain and behind an activation: every size of group, in orders drawn from
 * seeds, against what the schedules declare. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/interpreter.h"
#include <weft/weft.h>

enum { MOST = 17, SEEDS = 3 };

static char what[160];

static void build(const char *name, const struct weft_template_params *params, int ranks,
                  struct weft_schedule **schedules)
{
    snprintf(what, sizeof what, "%s %s on %d ranks, groups of %d, version %d, count %zu", name,
             params->algo, ranks, params->group_size, (int)params->version, params->count);
    for (int r = 0; r < ranks; r++)
        cr_assert_eq(weft_template_build(name, r, ranks, params, &schedules[r]), WEFT_OK, "%s: %s",
                     what, weft_error_text());
}

static void fill(struct weft_schedule **schedules, const struct interp_memory *memory, int ranks,
                 size_t count)
{
    for (int r = 0; r < ranks; r++)
        interp_fill(memory->slots[r][0], count, WEFT_I32, (uint64_t)r + 1, 0);
    (void)schedules;
}

/* The results name exactly the members of the group. */
static void check_members(const struct weft_schedule *schedule, const struct weft_groups *groups,
                          uint64_t version)
{
    struct weft_result result = {.struct_size = sizeof result};
    int members[MOST], count, rank = weft_schedule_rank(schedule);
    cr_assert_eq(weft_schedule_result_count(schedule), 1, "%s", what);
    cr_assert_eq(weft_schedule_get_result(schedule, 0, &result), WEFT_OK);
    weft_groups_at(groups, version, rank, members, &count, NULL);
    cr_assert_eq(result.ranks, count, "%s", what);
    for (int i = 0; i < count; i++)
        cr_assert_eq(weft_result_rank(&result, i), members[i], "%s", what);
}

static void check(const char *name, const struct weft_template_params *params, int ranks)
{
    struct weft_schedule *schedules[MOST];
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)schedules;
    struct interp_memory initial, memory;
    struct weft_groups *groups;
    char text[256];
    build(name, params, ranks, schedules);
    cr_assert_eq(weft_groups_create(&groups, ranks, params->group_size), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        check_members(schedules[r], groups, params->version);
        cr_assert_eq(interp_find_race(schedules[r], text, sizeof text), 0, "%s: %s", what, text);
    }
    weft_groups_destroy(groups);
    cr_assert_eq(interp_memory_create(&initial, view, ranks), 0);
    fill(schedules, &initial, ranks, params->count);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct interp_options options = {.seed = 31 * seed + 7, .rendezvous = seed & 1};
        cr_assert_eq(interp_memory_create(&memory, view, ranks), 0);
        fill(schedules, &memory, ranks, params->count);
        int status = interp_run(view, ranks, &memory, &options, text, sizeof text);
        cr_assert_eq(status, 0, "%s, seed %d: %s", what, (int)seed, text);
        status = interp_check_results(view, ranks, &initial, &memory, text, sizeof text);
        cr_assert_eq(status, 0, "%s, seed %d: %s", what, (int)seed, text);
        interp_memory_destroy(&memory);
    }
    interp_memory_destroy(&initial);
    for (int r = 0; r < ranks; r++)
        weft_schedule_destroy(schedules[r]);
}

static void sweep(const char *name)
{
    static const size_t counts[] = {0, 1, 11};
    const struct weft_template *template = weft_template_find(name);
    cr_assert_not_null(template);
    for (int ranks = 1; ranks <= MOST; ranks++)
        for (int size = 0; size <= ranks; size++)
            for (uint64_t version = 0; version < 4; version++) {
                struct weft_template_params params;
                size_t turn = (size_t)ranks + (size_t)size + (size_t)version;
                weft_template_params_init(&params);
                params.dtype = WEFT_I32;
                params.group_size = size;
                params.version = version;
                params.count = counts[turn % 3];
                params.algo = template->algorithms[turn % template->algorithm_count].name;
                check(name, &params, ranks);
            }
}

Test(group_allreduce, every_group_gets_its_sum)
{
    sweep("group-allreduce");
}

Test(group_allreduce, every_group_gets_its_sum_whoever_arrives_first)
{
    sweep("wait-avoiding-allreduce");
}

Test(group_allreduce, bad_parameters_are_named)
{
    struct weft_template_params params;
    struct weft_schedule *schedule;
    weft_template_params_init(&params);
    params.group_size = 5;
    cr_assert_eq(weft_template_build("group-allreduce", 0, 4, &params, &schedule),
                 WEFT_ERR_INVALID);
    cr_assert_not_null(strstr(weft_error_text(), "group_size is 5, expected 0 .. 4"));
    params.group_size = -1;
    cr_assert_eq(weft_template_build("wait-avoiding-allreduce", 0, 4, &params, &schedule),
                 WEFT_ERR_INVALID);
}

/* One activator of a power of two costs P - 1 signals: those that the graph sends on the way. */
Test(group_allreduce, an_activation_costs_one_signal_a_rank)
{
    for (int ranks = 1; ranks <= 64; ranks *= 2)
        for (int activator = 0; activator < ranks; activator++) {
            int came_by[64], queue[64], head = 0, tail = 0, signals = 0;
            for (int r = 0; r < ranks; r++)
                came_by[r] = -2;
            came_by[activator] = -1;
            queue[tail++] = activator;
            while (head < tail) {
                int rank = queue[head++];
                for (int edge = came_by[rank] + 1; edge < weft_activation_edges(ranks); edge++) {
                    int peer = weft_activation_peer(rank, ranks, edge);
                    signals++;
                    cr_assert_eq(came_by[peer], -2);
                    came_by[peer] = edge;
                    queue[tail++] = peer;
                }
            }
            cr_assert_eq(signals, ranks - 1);
            cr_assert_eq(tail, ranks);
        }
    cr_assert_eq(weft_activation_peer(5, 6, 1), -1); /* 7 */
    cr_assert_eq(weft_activation_peer(0, 6, 3), -1);
    cr_assert_eq(weft_activation_peer(-1, 6, 0), -1);
}
