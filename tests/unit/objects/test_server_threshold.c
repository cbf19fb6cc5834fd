/* SPDX-License-Identifier: BSD-3-Clause */
/* DSSP: how many steps more a worker that is ahead may take. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <weft/memory.h>
#include <weft/status.h>

#include "runtime/base/alloc.h"
#include "schedules/objects/server/threshold.h"
#include "tests/support/draw.h"

enum { FAST, SLOW };

static struct weft__threshold threshold(size_t workers, uint64_t least, uint64_t most)
{
    struct weft__threshold made;
    cr_assert_eq(weft__threshold_init(&made, workers, least, most), WEFT_OK);
    return made;
}

/* For a range of r_max, where the fast worker has pushed at f0 and f1, the slow one at s0, s1. */
static uint64_t extra(uint64_t range, uint64_t f0, uint64_t f1, uint64_t s0, uint64_t s1)
{
    struct weft__threshold t = threshold(2, 3, 3 + range);
    weft__threshold_pushed(&t, FAST, f0);
    weft__threshold_pushed(&t, SLOW, s0);
    weft__threshold_pushed(&t, SLOW, s1);
    weft__threshold_pushed(&t, FAST, f1);
    uint64_t r = weft__threshold_extra(&t, FAST, SLOW);
    weft__threshold_free(&t);
    return r;
}

/* Pushes of the fast one at 100, 110, 120, ...; of the slow one, as predicted, at 135, 170, ... */
Test(server_threshold, stops_where_it_waits_least)
{
    cr_expect_eq(extra(0, 90, 100, 65, 100), 0);
    cr_expect_eq(extra(1, 90, 100, 65, 100), 1); /* waits 35, 25 */
    cr_expect_eq(extra(2, 90, 100, 65, 100), 2);
    cr_expect_eq(extra(3, 90, 100, 65, 100), 3); /* 5 */
    cr_expect_eq(extra(4, 90, 100, 65, 100), 3); /* 140: 30 until 170 */
    cr_expect_eq(extra(6, 90, 100, 65, 100), 3);
    cr_expect_eq(extra(7, 90, 100, 65, 100), 7); /* 170: not at all */
    cr_expect_eq(extra(1000000, 90, 100, 65, 100), 7);
}

Test(server_threshold, of_equal_waits_the_fewest_steps)
{
    cr_expect_eq(extra(9, 90, 100, 80, 90), 0);   /* the slow one is to push now */
    cr_expect_eq(extra(9, 90, 100, 85, 95), 0);   /* in step: always 5 */
    cr_expect_eq(extra(9, 80, 100, 90, 100), 1);  /* the other is twice as fast: never again */
    cr_expect_eq(extra(9, 90, 100, 80, 100), 2);  /* at 120 */
    cr_expect_eq(extra(9, 90, 100, 110, 120), 3); /* at 130: a push that came meanwhile is past */
}

/* The slow one should have pushed long ago: its pushes go on by the interval. */
Test(server_threshold, an_overdue_push)
{
    cr_expect_eq(extra(9, 990, 1000, 80, 100), 0); /* 1000 = 100 + 45 * 20 */
    cr_expect_eq(extra(9, 995, 1005, 80, 100), 1); /* 1015: waits 5 */
    cr_expect_eq(extra(9, 990, 1010, 60, 103), 4); /* 1090: waits 2 until 1092 */
}

Test(server_threshold, nothing_is_known)
{
    struct weft__threshold t = threshold(2, 0, 9);
    cr_expect_eq(weft__threshold_extra(&t, FAST, SLOW), 0);
    weft__threshold_pushed(&t, FAST, 0); /* the clock may begin at 0 */
    weft__threshold_pushed(&t, FAST, 10);
    cr_expect_eq(weft__threshold_extra(&t, FAST, SLOW), 0);
    weft__threshold_pushed(&t, SLOW, 0);
    cr_expect_eq(weft__threshold_extra(&t, FAST, SLOW), 0);
    weft__threshold_pushed(&t, SLOW, 0); /* no time has passed */
    cr_expect_eq(weft__threshold_extra(&t, FAST, SLOW), 0);
    weft__threshold_pushed(&t, SLOW, 30);
    cr_expect_eq(weft__threshold_extra(&t, FAST, SLOW), 5);
    cr_expect_eq(weft__threshold_extra(&t, FAST, FAST), 0);
    weft__threshold_pushed(&t, FAST, 9); /* backwards */
    cr_expect_eq(weft__threshold_extra(&t, FAST, SLOW), 0);
    weft__threshold_free(&t);
}

/* Against a list of all pushes, as Algorithm 2 makes one. */
static uint64_t extra_plainly(uint64_t range, uint64_t f0, uint64_t f1, uint64_t s0, uint64_t s1)
{
    uint64_t best = 0, least = UINT64_MAX;
    for (uint64_t r = 0; r <= range; r++) {
        uint64_t mine = f1 + r * (f1 - f0), next = s1 + (s1 - s0);
        while (next < mine)
            next += s1 - s0;
        if (next - mine < least) {
            least = next - mine;
            best = r;
        }
    }
    return best;
}

Test(server_threshold, predicts_as_a_list_of_pushes)
{
    for (uint64_t seed = 0; seed < 50000; seed++) {
        struct draw draw = {seed};
        uint64_t f1 = 100 + draw_below(&draw, 300), f0 = f1 - 1 - draw_below(&draw, 99);
        uint64_t s1 = 100 + draw_below(&draw, 300), s0 = s1 - 1 - draw_below(&draw, 99);
        uint64_t range = draw_below(&draw, 40);
        cr_assert_eq(extra(range, f0, f1, s0, s1), extra_plainly(range, f0, f1, s0, s1), "seed %lu",
                     seed);
    }
}

/* Nanoseconds near the end of the counter, and intervals of any length. */
Test(server_threshold, huge_times)
{
    uint64_t end = UINT64_MAX;
    cr_expect_eq(extra(4, end - 10, end, end - 35, end), 3);
    cr_expect_eq(extra(end - 3, 1, end, 0, end), 1);
    cr_expect_eq(extra(9, end - 1, end, 1, end), 9);
    cr_expect_eq(extra(end - 3, end - 1, end, 1, end), WEFT__THRESHOLD_FORESEEN);
}

/* ---- Algorithm 1 ---- */

/* Up to s_L for nothing; then as many as were predicted, without asking; then it waits. */
Test(server_threshold, credits_are_counted_down)
{
    struct weft__threshold t = threshold(2, 2, 6);
    weft__threshold_pushed(&t, SLOW, 65);
    weft__threshold_pushed(&t, SLOW, 100);
    weft__threshold_pushed(&t, FAST, 90);
    weft__threshold_pushed(&t, FAST, 100);
    for (uint64_t ahead = 0; ahead <= 2; ahead++)
        cr_expect(weft__threshold_may_go(&t, FAST, ahead, SLOW));
    cr_expect(weft__threshold_may_go(&t, FAST, 3, SLOW)); /* three more: at 130 it waits least */
    cr_expect_eq(t.workers[FAST].credits, 2);
    weft__threshold_pushed(&t, FAST, 109);
    cr_expect(weft__threshold_may_go(&t, FAST, 4, SLOW));
    weft__threshold_pushed(&t, FAST, 121);
    cr_expect(weft__threshold_may_go(&t, FAST, 5, SLOW));
    cr_expect_eq(t.workers[FAST].credits, 0);
    weft__threshold_pushed(&t, FAST, 131);
    cr_expect_not(weft__threshold_may_go(&t, FAST, 6, SLOW)); /* 4 until 135, then 29 */
    weft__threshold_pushed(&t, SLOW, 136);
    cr_expect(weft__threshold_may_go(&t, FAST, 2, SLOW));
    weft__threshold_free(&t);
}

/* Seven more would be best, but s_U leaves room for two. */
Test(server_threshold, credits_end_at_the_most)
{
    struct weft__threshold t = threshold(2, 1, 8);
    weft__threshold_pushed(&t, SLOW, 65);
    weft__threshold_pushed(&t, SLOW, 100);
    weft__threshold_pushed(&t, FAST, 90);
    weft__threshold_pushed(&t, FAST, 100);
    cr_assert_eq(weft__threshold_extra(&t, FAST, SLOW), 7);
    cr_expect(weft__threshold_may_go(&t, FAST, 7, SLOW));
    cr_expect_eq(t.workers[FAST].credits, 1);
    cr_expect(weft__threshold_may_go(&t, FAST, 8, SLOW));
    cr_expect_eq(t.workers[FAST].credits, 0);
    cr_expect_not(weft__threshold_may_go(&t, FAST, 9, SLOW));
    weft__threshold_free(&t);
}

/* It asks again and again, and always hears that it should go on: s_U holds all the same. */
Test(server_threshold, nobody_gets_away)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct draw draw = {seed};
        uint64_t least = draw_below(&draw, 5), most = least + draw_below(&draw, 9);
        uint64_t steps[4] = {0}, now[4] = {0}, pace[4];
        int waits[4] = {0};
        struct weft__threshold t = threshold(4, least, most);
        for (int i = 0; i < 4; i++)
            pace[i] = 1 + draw_below(&draw, i ? 300 : 30);
        for (int turn = 0; turn < 300; turn++) {
            size_t next = 4, slowest = 0;
            for (size_t i = 0; i < 4; i++)
                if (!waits[i] && (next == 4 || now[i] < now[next]))
                    next = i;
            cr_assert_lt(next, 4, "seed %lu: all wait", seed);
            uint64_t clock = now[next];
            steps[next]++;
            weft__threshold_pushed(&t, next, clock);
            for (size_t i = 1; i < 4; i++)
                if (steps[i] < steps[slowest])
                    slowest = i;
            for (size_t i = 0; i < 4; i++) {
                uint64_t ahead = steps[i] - steps[slowest];
                if (i == next ? !weft__threshold_may_go(&t, i, ahead, slowest)
                              : waits[i] && ahead > least) {
                    waits[i] = 1;
                } else if (i == next || waits[i]) {
                    cr_assert(ahead <= most, "seed %lu: %lu ahead", seed, ahead);
                    waits[i] = 0;
                    now[i] = clock + pace[i] / 2 + draw_below(&draw, (unsigned)pace[i] + 1);
                }
            }
        }
        weft__threshold_free(&t);
    }
}

/* A range of one value is SSP. */
Test(server_threshold, without_a_range_it_is_ssp)
{
    struct weft__threshold t = threshold(2, 4, 4);
    weft__threshold_pushed(&t, SLOW, 0);
    weft__threshold_pushed(&t, SLOW, 1000);
    weft__threshold_pushed(&t, FAST, 1000);
    weft__threshold_pushed(&t, FAST, 1001);
    cr_expect(weft__threshold_may_go(&t, FAST, 4, SLOW));
    cr_expect_not(weft__threshold_may_go(&t, FAST, 5, SLOW));
    weft__threshold_free(&t);
}

Test(server_threshold, without_memory)
{
    struct weft__threshold t;
    memset(&t, 0, sizeof t);
    atomic_store(&weft__alloc_countdown, 1);
    cr_expect_eq(weft__threshold_init(&t, 5, 0, 1), WEFT_ERR_MEMORY);
    atomic_store(&weft__alloc_countdown, 0);
    weft__threshold_free(&t);
    t = threshold(0, 0, 0);
    weft__threshold_free(&t);
}
