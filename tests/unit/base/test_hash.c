/* SPDX-License-Identifier: BSD-3-Clause */
/* The table that finds numbers by hashes, binary search. */
#include <criterion/criterion.h>

#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"
#include "runtime/base/search.h"

enum { COUNT = 1000 };

static uint32_t find(const struct weft__table *table, const uint64_t *things, uint64_t thing,
                     uint64_t hash)
{
    size_t at;

    for (uint32_t n = weft__table_first(table, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(table, hash, &at))
        if (things[n] == thing)
            return n;
    return WEFT__TABLE_END;
}

/* With `buckets` hashes for all: so many things share each. */
static void fill_and_find(uint64_t buckets)
{
    struct weft__table table = {0};
    uint64_t things[COUNT] = {0};

    cr_assert_eq(find(&table, things, 0, 0), WEFT__TABLE_END);
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t n = 0; n < COUNT; n++) {
            uint64_t hash = weft__hash_word(0, n % buckets);

            things[n] = 3 * (uint64_t)n;
            cr_assert_eq(find(&table, things, things[n], hash), WEFT__TABLE_END);
            cr_assert_eq(weft__table_add(&table, hash, n), 0);
        }
        for (uint32_t n = 0; n < COUNT; n++)
            cr_assert_eq(find(&table, things, things[n], weft__hash_word(0, n % buckets)), n);
        cr_assert_eq(find(&table, things, 1, weft__hash_word(0, 0)), WEFT__TABLE_END);
        cr_assert_eq(table.count, COUNT);
        cr_assert_geq(table.size, 2 * COUNT);
        weft__table_clear(&table);
    }
    weft__table_free(&table);
}

Test(hash, table_finds_what_was_put_in)
{
    fill_and_find(COUNT);
    fill_and_find(7);
    fill_and_find(1);
}

Test(hash, table_without_memory_stays_as_it_was)
{
    struct weft__table table = {0};
    size_t at;

    atomic_store(&weft__alloc_countdown, 1);
    cr_assert_eq(weft__table_add(&table, 5, 0), -1);
    cr_assert_eq(weft__table_add(&table, 5, 0), 0);
    atomic_store(&weft__alloc_countdown, 1);
    cr_assert_eq(weft__table_reserve(&table, 100), -1);
    cr_assert_eq(weft__table_first(&table, 5, &at), 0);
    cr_assert_eq(weft__table_next(&table, 5, &at), WEFT__TABLE_END);
    weft__table_free(&table);
}

Test(hash, of_bytes_is_fnv_1a)
{
    cr_assert_eq(weft__hash_bytes(WEFT__HASH_EMPTY, "", 0), UINT64_C(0xcbf29ce484222325));
    cr_assert_eq(weft__hash_bytes(WEFT__HASH_EMPTY, "a", 1), UINT64_C(0xaf63dc4c8601ec8c));
    cr_assert_eq(weft__hash_bytes(WEFT__HASH_EMPTY, "foobar", 6), UINT64_C(0x85944171f73967e8));
}

Test(hash, random_numbers_are_splitmix64s)
{
    uint64_t state = 1234567;

    cr_assert_eq(weft__random(&state), UINT64_C(6457827717110365317));
    cr_assert_eq(weft__random(&state), UINT64_C(3203168211198807973));
}

Test(search, finds_the_first_that_is_not_before)
{
    const int numbers[] = {1, 3, 3, 3, 8, 9};

    for (int wanted = 0; wanted < 11; wanted++)
        for (size_t count = 0; count <= 6; count++) {
            size_t at = 0, expected = 0;

            WEFT__SEARCH(at, count, middle, numbers[middle] < wanted)
            while (expected < count && numbers[expected] < wanted)
                expected++;
            cr_assert_eq(at, expected, "%d among %zu", wanted, count);
        }
}
