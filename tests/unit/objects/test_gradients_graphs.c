/* SPDX-License-Identifier: BSD-3-Clause */
/* The graphs of merged gradients, checked as those of templates are: for all numbers of ranks, for
 * groups of any layers, that each rank keeps where it likes. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "schedules/objects/gradients/graph.h"
#include "support/ranks.h"

enum { RANKS = 33, LAYERS = 12 };

/* Layers in groups. */
struct drawn {
    struct weft__gradients_layer layers[LAYERS];
    size_t order[LAYERS];
    struct weft__gradients_group groups[LAYERS];
    size_t layer_count, group_count;
};

static uint64_t draw(uint64_t *random, uint64_t bound)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 33) % bound;
}

static int by_number(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void draw_groups(struct drawn *drawn, uint64_t *random)
{
    size_t offset = 0, count = 1 + (size_t)draw(random, LAYERS);
    *drawn = (struct drawn){.layer_count = count};
    for (size_t l = 0; l < count; l++) {
        drawn->layers[l].first = l;
        drawn->layers[l].tensor_count = 1;
        drawn->layers[l].offset = offset;
        drawn->layers[l].count = (size_t)draw(random, 4) * (size_t)draw(random, 40);
        offset += drawn->layers[l].count;
        size_t at = (size_t)draw(random, l + 1); /* any order */
        drawn->order[l] = drawn->order[at];
        drawn->order[at] = l;
    }
    for (size_t at = 0; at < count;) {
        struct weft__gradients_group *group = &drawn->groups[drawn->group_count++];
        size_t members = 1 + (size_t)draw(random, count - at);
        group->layers = drawn->order + at;
        group->layer_count = members;
        qsort(drawn->order + at, members, sizeof *drawn->order, by_number);
        for (size_t i = at; i < at + members; i++)
            group->count += drawn->layers[drawn->order[i]].count;
        at += members;
    }
}

static void expect_sound(const struct drawn *drawn, weft_gradients_reduction_t reduction,
                         weft_dtype_t dtype, weft_dtype_t wire, int size, uint64_t *random)
{
    struct weft_schedule *schedules[RANKS] = {NULL};
    struct weft_check_report *report = NULL;
    weft_node_t ready[LAYERS], done[LAYERS];
    weft_value_t started[LAYERS], ended[LAYERS];
    const struct weft__gradients_nodes nodes = {ready, done, started, ended};
    unsigned char in_place[LAYERS];
    int stated = reduction == WEFT_GRADIENTS_SUM && dtype == wire; /* of slots of all ranks */
    for (int r = 0; r < size; r++) {
        for (size_t k = 0; k < drawn->group_count && (r == 0 || !stated); k++)
            in_place[k] = (unsigned char)draw(random, 2); /* each rank's own affair */
        const struct weft__gradients_shape shape = {.dtype = dtype,
                                                    .wire = wire,
                                                    .reduction = reduction,
                                                    .layers = drawn->layers,
                                                    .layer_count = drawn->layer_count,
                                                    .groups = drawn->groups,
                                                    .group_count = drawn->group_count,
                                                    .in_place = in_place};
        OK(weft__gradients_schedule(&shape, r, size, &nodes, &schedules[r]));
    }
    OK(weft_check((const struct weft_schedule *const *)schedules, (size_t)size, NULL, &report));
    if (!weft_check_report_ok(report)) {
        struct weft_fault fault = {.struct_size = sizeof fault};
        OK(weft_check_report_get_fault(report, 0, &fault));
        cr_assert_fail("%d ranks, %zu layers in %zu groups: %s", size, drawn->layer_count,
                       drawn->group_count, fault.text);
    }
    weft_check_report_destroy(report);
    for (int r = 0; r < size; r++)
        weft_schedule_destroy(schedules[r]);
}

static void expect_all_sound(weft_gradients_reduction_t reduction, weft_dtype_t dtype,
                             weft_dtype_t wire)
{
    uint64_t random = 12;
    struct drawn drawn;
    for (int size = 1; size <= RANKS; size++)
        for (int trial = 0; trial < (size < 9 ? 8 : 2); trial++) {
            draw_groups(&drawn, &random);
            expect_sound(&drawn, reduction, dtype, wire, size, &random);
        }
}

Test(gradients_graphs, sums_are_what_they_state)
{
    expect_all_sound(WEFT_GRADIENTS_SUM, WEFT_F32, WEFT_F32);
}

Test(gradients_graphs, averages_are_sound)
{
    expect_all_sound(WEFT_GRADIENTS_AVERAGE, WEFT_F32, WEFT_F32);
}

Test(gradients_graphs, conversions_are_sound)
{
    expect_all_sound(WEFT_GRADIENTS_SUM, WEFT_BF16, WEFT_F32);
    expect_all_sound(WEFT_GRADIENTS_AVERAGE, WEFT_F32, WEFT_F16);
}
