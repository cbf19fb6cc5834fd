/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of successors and predecessors against the edges they are made of. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"
#include "runtime/graph/lists.h"

enum { KEYS = 12, ITEMS = 40, MOST_EDGES = 60 };

/* Every list holds exactly the other ends of its key's edges, ascending. */
static void compare(const struct weft__lists *lists, const struct weft__edge *edges, size_t count,
                    size_t keys, enum weft__way way, uint64_t seed)
{
    cr_assert_eq(lists->first[0], 0);
    for (uint32_t k = 0; k < keys; k++) {
        int wanted[ITEMS] = {0};
        uint32_t left = 0;

        for (size_t e = 0; e < count; e++) {
            uint32_t key = way == WEFT__SUCCESSORS ? edges[e].before : edges[e].after;
            uint32_t item = way == WEFT__SUCCESSORS ? edges[e].after : edges[e].before;

            if (key == k && !wanted[item]) {
                wanted[item] = 1;
                left++;
            }
        }
        cr_assert_eq(lists->first[k + 1] - lists->first[k], left, "seed %lu key %u", seed, k);
        for (uint32_t i = lists->first[k]; i < lists->first[k + 1]; i++) {
            cr_assert(wanted[lists->items[i]], "seed %lu key %u", seed, k);
            cr_assert(i == lists->first[k] || lists->items[i - 1] < lists->items[i],
                      "seed %lu key %u", seed, k);
        }
    }
}

Test(lists, hold_each_edge_once_and_ascend_whatever_its_place)
{
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct weft__edge edges[MOST_EDGES];
        struct weft__lists lists;
        uint64_t random = seed;
        size_t count = weft__random(&random) % MOST_EDGES;
        int in_order = seed % 2 == 0;

        for (size_t e = 0; e < count; e++) {
            uint32_t after = in_order ? (uint32_t)(e * KEYS / MOST_EDGES)
                                      : (uint32_t)(weft__random(&random) % KEYS);

            edges[e] = (struct weft__edge){(uint32_t)(weft__random(&random) % KEYS), after};
        }
        cr_assert_eq(weft__lists_build(&lists, edges, count, KEYS, WEFT__SUCCESSORS), 0);
        compare(&lists, edges, count, KEYS, WEFT__SUCCESSORS, seed);
        weft__lists_free(&lists);
        cr_assert_eq(weft__lists_build(&lists, edges, count, KEYS, WEFT__PREDECESSORS), 0);
        compare(&lists, edges, count, KEYS, WEFT__PREDECESSORS, seed);
        weft__lists_free(&lists);
        cr_assert(!lists.first && !lists.items);
    }
}

Test(lists, items_need_not_be_keys)
{
    const struct weft__edge edges[] = {{2, 39}, {0, 7}, {2, 3}, {2, 39}};
    struct weft__lists lists;

    cr_assert_eq(weft__lists_build(&lists, edges, 4, 3, WEFT__SUCCESSORS), 0);
    compare(&lists, edges, 4, 3, WEFT__SUCCESSORS, 0);
    weft__lists_free(&lists);
    cr_assert_eq(weft__lists_build(&lists, NULL, 0, 0, WEFT__SUCCESSORS), 0);
    cr_assert_eq(lists.first[0], 0);
    weft__lists_free(&lists);
}

Test(lists, of_several_schedules_stand_in_one_numbering)
{
    struct weft_schedule *two, *three;
    uint32_t first[6], items[4], waits[5] = {0};

    cr_assert_eq(weft_schedule_create(&two, 0, 3), WEFT_OK);
    cr_assert_eq(weft_schedule_create(&three, 2, 3), WEFT_OK);
    for (int i = 0; i < 2; i++)
        weft_schedule_add_join(two);
    for (int i = 0; i < 3; i++)
        weft_schedule_add_join(three);
    weft_schedule_add_order(two, 1, 0);
    weft_schedule_add_order(three, 0, 2);
    weft_schedule_add_order(three, 0, 1);
    weft_schedule_add_order(three, 0, 2);
    const struct weft_schedule *schedules[] = {two, NULL, three};

    cr_assert_eq(weft__lists_join(first, items, waits, schedules, 3), 0);
    cr_assert(!memcmp(first, (uint32_t[]){0, 0, 1, 3, 3, 3}, sizeof first));
    cr_assert(!memcmp(items, (uint32_t[]){0, 3, 4}, 3 * sizeof *items));
    cr_assert(!memcmp(waits, (uint32_t[]){1, 0, 0, 1, 1}, sizeof waits));
    weft_schedule_destroy(two);
    weft_schedule_destroy(three);
}

Test(lists, no_memory_is_told)
{
    const struct weft__edge edges[] = {{0, 2}, {0, 1}};
    struct weft__lists lists;
    int failures = 0;

    for (long call = 1; call < 6; call++) {
        atomic_store(&weft__alloc_countdown, call);
        if (weft__lists_build(&lists, edges, 2, 3, WEFT__SUCCESSORS))
            failures++;
        else
            weft__lists_free(&lists);
        cr_assert(!lists.first && !lists.items);
        atomic_store(&weft__alloc_countdown, -1);
    }
    cr_assert_eq(failures, 4);
    cr_assert_eq(weft__lists_fill(NULL, NULL, edges, UINT32_MAX, 3, WEFT__SUCCESSORS), -1);
}
