/* SPDX-License-Identifier: BSD-3-Clause */
/* Dynamic grouping: the paper's butterfly on powers of two, the shuffle itself elsewhere, and how
   fast an update spreads. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include <weft/weft.h>

enum { MOST = 256 };

static struct weft_groups *make(int ranks, int size)
{
    struct weft_groups *groups = NULL;

    cr_assert_eq(weft_groups_create(&groups, ranks, size), WEFT_OK, "P = %d, S = %d: %s", ranks,
                 size, weft_error_text());
    return groups;
}

/* order[start of group g + place]: the whole version. Checks sizes and that it is a partition. */
static void order_of(const struct weft_groups *groups, int ranks, int size, uint64_t version,
                     int *order)
{
    char seen[MOST] = {0};
    int filled = 0;

    cr_assert_eq(weft_groups_count(groups), (ranks + size - 1) / size);
    for (int g = 0; g < weft_groups_count(groups); g++) {
        int count = 0;
        cr_assert_eq(weft_groups_members(groups, version, g, order + filled, &count), WEFT_OK);
        cr_assert_eq(count, weft_groups_size(groups, g));
        int largest = weft_groups_largest(groups);
        cr_assert(count <= size && count <= largest && count >= largest - 1 && count > 0,
                  "P = %d, S = %d: a group of %d", ranks, size, count);
        filled += count;
        cr_assert_leq(filled, ranks);
    }
    cr_assert_eq(filled, ranks);
    for (int i = 0; i < ranks; i++) {
        cr_assert(order[i] >= 0 && order[i] < ranks && !seen[order[i]]++,
                  "P = %d, S = %d, t = %llu: rank %d", ranks, size, (unsigned long long)version,
                  order[i]);
    }
}

/* A rank is where its group's list says, and gets that list. */
static void check_ranks(const struct weft_groups *groups, int ranks, uint64_t version,
                        const int *order)
{
    int members[MOST], position = 0;

    for (int g = 0; g < weft_groups_count(groups); g++) {
        int size = weft_groups_size(groups, g);
        for (int i = 0; i < size; i++) {
            int rank = order[position + i], group = -1, place = -1, count = 0, again = -1;
            cr_assert(rank < ranks);
            cr_assert_eq(weft_groups_find(groups, version, rank, &group, &place), WEFT_OK);
            cr_assert(group == g && place == i, "rank %d: group %d place %d, expected %d and %d",
                      rank, group, place, g, i);
            cr_assert_eq(weft_groups_at(groups, version, rank, members, &count, &again), WEFT_OK);
            cr_assert(count == size && again == i);
            cr_assert_eq(memcmp(members, order + position, (size_t)size * sizeof(int)), 0);
        }
        position += size;
    }
}

/* ---- against the definition, step by step ---- */

static void shuffle(int ranks, int count, int *order)
{
    int next[MOST], filled = 0, start[MOST], length[MOST], position = 0;

    for (int row = 0; row < count; row++) {
        start[row] = position;
        length[row] = ranks / count + (row < ranks % count);
        position += length[row];
    }
    for (int column = 0; filled < ranks; column++) {
        for (int row = 0; row < count; row++)
            if (column < length[row])
                next[filled++] = order[start[row] + column];
    }
    memcpy(order, next, (size_t)ranks * sizeof(int));
}

Test(groups, every_version_is_the_shuffle_of_the_one_before)
{
    for (int ranks = 1; ranks <= 40; ranks++) {
        for (int size = 1; size <= ranks; size++) {
            struct weft_groups *groups = make(ranks, size);
            int expected[MOST], order[MOST];
            for (int i = 0; i < ranks; i++)
                expected[i] = i;
            for (uint64_t t = 0; t <= 200; t++) {
                order_of(groups, ranks, size, t, order);
                cr_assert_eq(memcmp(order, expected, (size_t)ranks * sizeof(int)), 0,
                             "P = %d, S = %d, t = %d", ranks, size, (int)t);
                if (t % 50 == 7)
                    check_ranks(groups, ranks, t, order);
                shuffle(ranks, weft_groups_count(groups), expected);
            }
            weft_groups_destroy(groups);
        }
    }
}

/* ---- against Algorithm 1 of the paper ---- */

static int root_of(const int *parent, int rank)
{
    while (parent[rank] != rank)
        rank = parent[rank];
    return rank;
}

/* parent[]: a forest, a tree a group; mask is 1 << shift afresh in each phase. */
static void butterfly(int ranks, int phases, int group_phases, uint64_t version, int *parent)
{
    int shift = phases ? (int)(version % (uint64_t)phases * (uint64_t)group_phases) % phases : 0;

    for (int p = 0; p < ranks; p++)
        parent[p] = p;
    for (int r = 0; r < group_phases; r++) {
        int mask = 1 << shift;
        for (int p = 0; p < ranks; p++) {
            int a = root_of(parent, p), b = root_of(parent, p ^ mask);
            if (a != b)
                parent[a > b ? a : b] = a > b ? b : a;
        }
        shift = (shift + 1) % phases;
    }
}

static void check_butterfly(int phases, int group_phases, uint64_t version)
{
    int ranks = 1 << phases, size = 1 << group_phases, parent[MOST], order[MOST];
    struct weft_groups *groups = make(ranks, size);

    butterfly(ranks, phases, group_phases, version, parent);
    order_of(groups, ranks, size, version, order);
    for (int i = 0; i < ranks; i++) {
        cr_assert_eq(root_of(parent, order[i]), root_of(parent, order[i / size * size]),
                     "P = %d, S = %d, t = %llu", ranks, size, (unsigned long long)version);
    }
    weft_groups_destroy(groups);
}

Test(groups, powers_of_two_have_the_groups_of_the_paper)
{
    static const uint64_t far[] = {UINT32_MAX, 1000000007, (uint64_t)1 << 63, UINT64_MAX};

    for (int phases = 0; phases <= 8; phases++) {
        for (int group_phases = 0; group_phases <= phases; group_phases++) {
            for (uint64_t t = 0; t < 30; t++)
                check_butterfly(phases, group_phases, t);
            for (size_t i = 0; i < sizeof far / sizeof far[0]; i++)
                check_butterfly(phases, group_phases, far[i]);
        }
    }
}

Test(groups, powers_of_two_exchange_with_the_partners_of_the_paper)
{
    struct weft_groups *groups = make(64, 8);
    int members[8];

    for (uint64_t t = 0; t < 12; t++) {
        for (int g = 0; g < 8; g++) {
            weft_groups_members(groups, t, g, members, NULL);
            for (int place = 0; place < 8; place++) {
                for (int r = 0; r < 3; r++) {
                    int mask = 1 << ((t * 3 + (uint64_t)r) % 6);
                    cr_assert_eq(members[place ^ 1 << r], members[place] ^ mask);
                }
            }
        }
    }
    weft_groups_destroy(groups);
}

Test(groups, the_example_of_the_paper)
{
    static const int expected[2][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}};
    struct weft_groups *groups = make(8, 4);
    int members[4], count, group, place;

    for (int g = 0; g < 2; g++) {
        for (int i = 0; i < 4; i++) {
            cr_assert_eq(weft_groups_find(groups, 1, expected[g][i], &group, &place), WEFT_OK);
            cr_assert_eq(group, g);
            cr_assert_eq(weft_groups_members(groups, 1, g, members, &count), WEFT_OK);
            cr_assert(count == 4 && members[place] == expected[g][i]);
        }
    }
    weft_groups_destroy(groups);
}

/* ---- far versions ---- */

/* The least n > 0 with version n = version 0, as the least common multiple of the cycles; 0 if it
   exceeds @most. */
static uint64_t period_of(int ranks, int count, uint64_t most)
{
    int position[MOST];
    uint64_t period = 1;

    for (int i = 0; i < ranks; i++)
        position[i] = i;
    shuffle(ranks, count, position);
    for (int first = 0; first < ranks; first++) {
        uint64_t length = 1, a = period, b;
        for (int i = position[first]; i != first; i = position[i])
            length++;
        for (b = length; b;) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (period / a > most / length)
            return 0;
        period = period / a * length;
    }
    return period;
}

Test(groups, far_versions_repeat_with_the_period_of_the_shuffle)
{
    uint64_t longest = 0;

    for (int ranks = 1; ranks <= 250; ranks += 3) {
        for (int size = 1; size <= ranks; size += 1 + ranks / 24) {
            int near[MOST], far[MOST];
            struct weft_groups *groups = make(ranks, size);
            uint64_t period = period_of(ranks, weft_groups_count(groups), UINT64_MAX / 8);
            longest = period > longest ? period : longest;
            for (uint64_t t = 0; period && t < 40; t++) {
                uint64_t times = (UINT64_MAX - t) / period;
                order_of(groups, ranks, size, t, near);
                order_of(groups, ranks, size, t + period * times, far);
                cr_assert_eq(memcmp(near, far, (size_t)ranks * sizeof(int)), 0);
            }
            order_of(groups, ranks, size, UINT64_MAX, far);
            check_ranks(groups, ranks, UINT64_MAX, far);
            weft_groups_destroy(groups);
        }
    }
    cr_assert_gt(longest, 1000000, "no long period among them: %llu", (unsigned long long)longest);
}

Test(groups, the_step_after_a_far_version_is_one_shuffle)
{
    static const uint64_t versions[] = {999999, UINT32_MAX, (uint64_t)INT64_MAX, UINT64_MAX - 1};
    int now[MOST], next[MOST];

    for (int ranks = 2; ranks <= 200; ranks += 11) {
        for (int size = 1; size <= ranks; size += 3) {
            struct weft_groups *groups = make(ranks, size);
            for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
                order_of(groups, ranks, size, versions[i], now);
                order_of(groups, ranks, size, versions[i] + 1, next);
                shuffle(ranks, weft_groups_count(groups), now);
                cr_assert_eq(memcmp(now, next, (size_t)ranks * sizeof(int)), 0);
            }
            weft_groups_destroy(groups);
        }
    }
}

/* Enough ranks for cycles of many marks, and for short ones beside them. */
Test(groups, many_ranks_are_shuffled_step_by_step)
{
    static const int shapes[][2] = {{1000, 32}, {1001, 7}, {4099, 64}, {6000, 17}, {5000, 4999}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        int ranks = shapes[i][0], filled = 0;
        struct weft_groups *groups = make(ranks, shapes[i][1]);
        int count = weft_groups_count(groups), base = ranks / count, longer = ranks % count;
        int *order = malloc(3 * (size_t)ranks * sizeof *order), group, place;
        cr_assert_not_null(order);
        int *next = order + ranks, *expected = next + ranks;
        for (uint64_t t = UINT64_MAX / 2; t < UINT64_MAX / 2 + 5; t++) {
            int *from = order, *to = next;
            for (int g = 0; g < count; g++) {
                int start = g * base + (g < longer ? g : longer);
                weft_groups_members(groups, t, g, from + start, NULL);
                weft_groups_members(groups, t + 1, g, to + start, NULL);
            }
            filled = 0;
            for (int column = 0; filled < ranks; column++)
                for (int row = 0; row < count; row++)
                    if (column < base + (row < longer))
                        expected[filled++] =
                            from[row * base + (row < longer ? row : longer) + column];
            cr_assert_eq(memcmp(to, expected, (size_t)ranks * sizeof *to), 0, "P = %d, S = %d",
                         ranks, shapes[i][1]);
            for (int at = 0; at < ranks; at += 97) {
                cr_assert_eq(weft_groups_find(groups, t, from[at], &group, &place), WEFT_OK);
                cr_assert_eq(group * base + (group < longer ? group : longer) + place, at);
            }
        }
        free(order);
        weft_groups_destroy(groups);
    }
}

Test(groups, the_places_of_a_rank_are_those_it_has_in_some_version)
{
    for (int ranks = 1; ranks <= 30; ranks++) {
        for (int size = 1; size <= ranks; size++) {
            struct weft_groups *groups = make(ranks, size);
            int largest = weft_groups_largest(groups);
            for (int rank = 0; rank < ranks; rank++) {
                unsigned char expected[64] = {0}, places[64];
                int number = 0, group, place;
                for (uint64_t t = 0; t < (uint64_t)ranks; t++) {
                    weft_groups_find(groups, t, rank, &group, &place);
                    int shorter = weft_groups_size(groups, group) < largest;
                    expected[shorter * largest + place] = 1;
                }
                for (int i = 0; i < 2 * largest; i++)
                    number += expected[i];
                cr_assert_eq(weft_groups_places(groups, rank, places), number);
                cr_assert_eq(memcmp(places, expected, 2 * (size_t)largest), 0,
                             "P = %d, S = %d, rank %d", ranks, size, rank);
            }
            weft_groups_destroy(groups);
        }
    }
}

Test(groups, a_rank_of_a_power_of_two_has_few_places)
{
    for (int phases = 1; phases <= 16; phases++) {
        for (int group_phases = 0; group_phases <= phases; group_phases++) {
            struct weft_groups *groups = make(1 << phases, 1 << group_phases);
            unsigned char *places = malloc((size_t)2 << group_phases);
            for (int rank = 0; rank < 1 << phases; rank += 1 + (1 << phases) / 100)
                cr_expect_leq(weft_groups_places(groups, rank, places), phases, "P = %d, S = %d",
                              1 << phases, 1 << group_phases);
            free(places);
            weft_groups_destroy(groups);
        }
    }
}

/* ---- how fast an update spreads ---- */

enum { WORDS = 3 };

/* Versions from @first on until every rank has, directly or not, been in a group with every rank.
 */
static int spread(const struct weft_groups *groups, int ranks, uint64_t first, int most)
{
    uint64_t heard[MOST][WORDS] = {{0}};
    int members[MOST], count;

    for (int r = 0; r < ranks; r++)
        heard[r][r / 64] = (uint64_t)1 << r % 64;
    for (int versions = 0; versions <= most; versions++) {
        int complete = 0;
        for (int r = 0; r < ranks; r++) {
            int bits = 0;
            for (int w = 0; w < WORDS; w++)
                bits += __builtin_popcountll(heard[r][w]);
            complete += bits == ranks;
        }
        if (complete == ranks)
            return versions;
        for (int g = 0; g < weft_groups_count(groups); g++) {
            uint64_t all[WORDS] = {0};
            weft_groups_members(groups, first + (uint64_t)versions, g, members, &count);
            for (int i = 0; i < count * WORDS; i++)
                all[i % WORDS] |= heard[members[i / WORDS]][i % WORDS];
            for (int i = 0; i < count; i++)
                memcpy(heard[members[i]], all, sizeof all);
        }
    }
    return most + 1;
}

static int log_ceil(int size, int ranks)
{
    int phases = 0;

    for (int reached = 1; reached < ranks; reached *= size)
        phases++;
    return phases;
}

Test(groups, an_update_reaches_all_ranks_in_logarithmic_time)
{
    static const uint64_t firsts[] = {0, 1, 5, 1000003, (uint64_t)1 << 40};

    for (int ranks = 1; ranks <= 129; ranks++) {
        for (int size = 2; size <= ranks; size++) {
            struct weft_groups *groups = make(ranks, size);
            int most = log_ceil(size, ranks) + 2;
            for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
                cr_assert_leq(spread(groups, ranks, firsts[i], most), most,
                              "P = %d, S = %d from version %llu: not within %d versions", ranks,
                              size, (unsigned long long)firsts[i], most);
            }
            weft_groups_destroy(groups);
        }
    }
}

Test(groups, seven_ranks_all_hear_an_update)
{
    struct weft_groups *groups = make(7, 2);

    cr_assert_leq(spread(groups, 7, 0, 5), 5);
    weft_groups_destroy(groups);
}

/* ---- the ends of the range ---- */

Test(groups, groups_of_one_and_one_group_of_all_never_change)
{
    for (int ranks = 1; ranks <= 17; ranks++) {
        for (uint64_t t = 0; t < 20; t++) {
            int order[MOST];
            for (int size = 1; size <= ranks; size += ranks > 1 ? ranks - 1 : 1) {
                struct weft_groups *groups = make(ranks, size);
                order_of(groups, ranks, size, t * 0x123456789ab, order);
                for (int i = 0; i < ranks; i++)
                    cr_assert_eq(order[i], i);
                weft_groups_destroy(groups);
            }
        }
    }
}

Test(groups, many_ranks)
{
    enum { RANKS = 100003 };
    struct weft_groups *groups = make(RANKS, 317);
    int *members = malloc((size_t)weft_groups_largest(groups) * sizeof(int)), count, place;

    cr_assert_not_null(members);
    for (int rank = 0; rank < RANKS; rank += 997) {
        cr_assert_eq(weft_groups_at(groups, UINT64_MAX - 12345, rank, members, &count, &place), 0);
        cr_assert_eq(members[place], rank);
    }
    free(members);
    weft_groups_destroy(groups);
}

Test(groups, the_default_size_is_the_power_of_two_nearest_the_root)
{
    static const int expected[][2] = {{1, 1},
                                      {2, 2},
                                      {3, 2},
                                      {4, 2},
                                      {8, 2},
                                      {9, 4},
                                      {16, 4},
                                      {35, 4},
                                      {36, 8},
                                      {64, 8},
                                      {100, 8},
                                      {128, 8},
                                      {143, 8},
                                      {144, 16},
                                      {256, 16},
                                      {1024, 32},
                                      {INT32_MAX, 32768}};

    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        cr_expect_eq(weft_groups_default_size(expected[i][0]), expected[i][1], "P = %d: %d",
                     expected[i][0], weft_groups_default_size(expected[i][0]));
    }
    cr_expect_eq(weft_groups_default_size(0), 0);
    struct weft_groups *groups = make(64, 0);
    cr_expect_eq(weft_groups_count(groups), 8);
    weft_groups_destroy(groups);
}

/* ---- misuse and memory ---- */

static void expect_error(int status, const char *word)
{
    cr_expect_eq(status, WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), word), "\"%s\" does not name %s",
                       weft_error_text(), word);
}

Test(groups, misuse_is_answered_with_the_argument)
{
    struct weft_groups *groups = make(7, 3), *none = NULL;
    int members[3], count = -5;

    expect_error(weft_groups_create(NULL, 4, 2), "`groups`");
    expect_error(weft_groups_create(&none, 0, 1), "`ranks` is 0");
    expect_error(weft_groups_create(&none, -3, 1), "`ranks` is -3");
    expect_error(weft_groups_create(&none, 4, 5), "`group_size` is 5, expected 1 .. 4");
    expect_error(weft_groups_create(&none, 4, -1), "`group_size` is -1");
    cr_expect_null(none);
    expect_error(weft_groups_count(NULL), "`groups`");
    expect_error(weft_groups_largest(NULL), "`groups`");
    expect_error(weft_groups_size(NULL, 0), "`groups`");
    expect_error(weft_groups_size(groups, 3), "`group` is 3, expected 0 .. 2");
    expect_error(weft_groups_find(groups, 0, 7, &count, NULL), "`rank` is 7, expected 0 .. 6");
    expect_error(weft_groups_find(NULL, 0, 0, NULL, NULL), "`groups`");
    expect_error(weft_groups_members(NULL, 0, 0, members, &count), "`groups`");
    expect_error(weft_groups_members(groups, 0, -1, members, &count), "`group` is -1");
    expect_error(weft_groups_members(groups, 0, 0, NULL, &count), "`members`");
    expect_error(weft_groups_at(NULL, 0, 0, members, &count, NULL), "`groups`");
    expect_error(weft_groups_at(groups, 0, -1, members, &count, NULL), "`rank` is -1");
    expect_error(weft_groups_at(groups, 0, 0, NULL, &count, NULL), "`members`");
    unsigned char places[6];
    expect_error(weft_groups_places(NULL, 0, places), "`groups`");
    expect_error(weft_groups_places(groups, 7, places), "`rank` is 7, expected 0 .. 6");
    expect_error(weft_groups_places(groups, 0, NULL), "`places`");
    cr_expect_eq(count, -5, "an output was written on failure");
    cr_expect_eq(weft_groups_find(groups, 3, 6, NULL, NULL), WEFT_OK);
    cr_expect_eq(weft_groups_at(groups, 3, 6, members, NULL, NULL), WEFT_OK);
    weft_groups_destroy(groups);
    weft_groups_destroy(NULL);
}

Test(groups, without_memory_nothing_is_made_and_nothing_leaks)
{
    for (long n = 1; n <= 3; n++) {
        struct weft_groups *none = NULL;
        atomic_store(&weft__alloc_countdown, n);
        int status = weft_groups_create(&none, 101, 10);
        atomic_store(&weft__alloc_countdown, -1);
        cr_expect_eq(status, WEFT_ERR_MEMORY, "allocation %ld: %s", n, weft_status_name(status));
        cr_expect_null(none);
    }
}

Test(groups, a_query_allocates_nothing)
{
    for (int ranks = 100; ranks <= 101; ranks++) {
        struct weft_groups *groups = make(ranks, 10);
        unsigned char places[20];
        int members[10], count, place;
        long before = atomic_load(&weft__alloc_calls);

        for (int rank = 0; rank < ranks; rank++) {
            weft_groups_at(groups, 77, rank, members, &count, &place);
            weft_groups_places(groups, rank, places);
        }
        cr_expect_eq(atomic_load(&weft__alloc_calls), before);
        weft_groups_destroy(groups);
    }
}

Test(groups, memory_grows_no_faster_than_the_root_of_the_ranks)
{
    static const int ranks[] = {37, 1000, 1024, 4095, 4096, 65535, 65536, 1000003};

    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++) {
        size_t root = 1, before = atomic_load(&weft__alloc_bytes);
        while ((root + 1) * (root + 1) <= (size_t)ranks[i])
            root++;
        struct weft_groups *groups = make(ranks[i], 0);
        /* A bit a rank while it is made. */
        size_t bytes = atomic_load(&weft__alloc_bytes) - before;
        cr_expect_leq(bytes, 256 + 160 * root + (size_t)ranks[i] / 8, "P = %d: %zu bytes", ranks[i],
                      bytes);
        weft_groups_destroy(groups);
    }
}
