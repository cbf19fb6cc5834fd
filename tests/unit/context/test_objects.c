/* SPDX-License-Identifier: BSD-3-Clause */
/* The lives of objects: many of them leave nothing behind, and none is taken for another. */
#include <criterion/criterion.h>
#include <malloc.h>

#include "support/ranks.h"
#include "tests/support/bind.h"

/* Two ranks in one thread, which drives both. */
struct pair {
    struct weft_local *local;
    struct weft_context *contexts[2];
};

static struct pair pair_create(void)
{
    struct pair pair;
    OK(weft_local_create(&pair.local, 2, NULL));
    for (int r = 0; r < 2; r++)
        OK(weft_context_create_local(&pair.contexts[r], pair.local, r, NULL));
    return pair;
}

static void pair_destroy(struct pair *pair)
{
    for (int r = 0; r < 2; r++)
        weft_context_destroy(pair->contexts[r]);
    weft_local_destroy(pair->local);
}

static void drive(const struct pair *pair, struct weft_run *run)
{
    while (weft_run_test(run) == WEFT_IN_PROGRESS)
        for (int r = 0; r < 2; r++)
            weft_context_progress(pair->contexts[r]);
    OK(weft_run_test(run));
}

/* Each rank sends x[0] to the other, which receives it as x[1]. */
static struct weft_plan *swap(int rank)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t x = weft_schedule_add_slot(s, "x", WEFT_I64, 2, WEFT_SLOT_INOUT);
    weft_schedule_add_send(s, weft_region_at(x, 0, 1), 1 - rank, 0);
    weft_schedule_add_recv(s, weft_region_at(x, 1, 1), 1 - rank, 0);
    return commit(s);
}

static size_t memory_used(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

enum { MANY = 1000000, SHARE = 50 };

/* Of every SHARE runs one exchanges messages, and one is started by a rank alone: what it has sent
 * comes when the run of the other is gone, or before it is there. */
static void one_of_many(const struct pair *pair, struct weft_plan *const *plans, int64_t i)
{
    struct weft_run *runs[2];
    int64_t x[2][2] = {{i, -1}, {2 * i, -1}};
    int lone = i % (2 * SHARE) == 1 ? 0 : 1;
    for (int r = 0; r < 2; r++) {
        OK(weft_run_create(&runs[r], pair->contexts[r], plans[r], NULL));
        OK(bind_slot(runs[r], 0, x[r]));
        if (i % SHARE != 1)
            continue;
        if (r == lone)
            OK(weft_run_start(runs[r]));
        weft_run_destroy(runs[r]);
    }
    if (i % SHARE == 1)
        return;
    if (i % SHARE == 0) {
        for (int r = 0; r < 2; r++)
            OK(weft_run_start(runs[r]));
        for (int r = 0; r < 2; r++)
            drive(pair, runs[r]);
        CHECK(x[0][1] == 2 * i && x[1][1] == i);
    }
    for (int r = 0; r < 2; r++)
        weft_run_destroy(runs[r]);
}

Test(objects, a_million_of_them_leave_nothing)
{
    struct pair pair = pair_create();
    struct weft_plan *plans[2] = {swap(0), swap(1)};
    size_t before = 0;
    for (int64_t i = 0; i < MANY; i++) {
        if (i == MANY / 10)
            before = memory_used();
        one_of_many(&pair, plans, i);
    }
    size_t after = memory_used();
    CHECK(after < before + 65536);
    for (int r = 0; r < 2; r++)
        weft_plan_destroy(plans[r]);
    pair_destroy(&pair);
}

/* Many live at once, and are destroyed in another order than they were made in. */
Test(objects, those_that_live_are_found_among_those_that_are_gone)
{
    enum { LIVE = 500, ROUNDS = 4 };
    static struct weft_run *runs[LIVE][2];
    static int64_t x[LIVE][2][2];
    struct pair pair = pair_create();
    struct weft_plan *plans[2] = {swap(0), swap(1)};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LIVE; i++) {
            if (round > 0 && i % (round + 1) == 0)
                continue; /* lives on from the round before */
            for (int r = 0; r < 2; r++) {
                weft_run_destroy(runs[i][r]);
                OK(weft_run_create(&runs[i][r], pair.contexts[r], plans[r], NULL));
                OK(bind_slot(runs[i][r], 0, x[i][r]));
            }
        }
        for (int i = 0; i < LIVE; i++)
            for (int r = 0; r < 2; r++) {
                int at = r == 0 ? i : LIVE - 1 - i;
                x[at][r][0] = round * 10000 + 2 * at + r;
                OK(weft_run_start(runs[at][r]));
            }
        for (int i = 0; i < LIVE; i++)
            for (int r = 0; r < 2; r++) {
                drive(&pair, runs[i][r]);
                CHECK(x[i][r][1] == round * 10000 + 2 * i + 1 - r);
            }
    }
    for (int i = 0; i < LIVE; i++)
        for (int r = 0; r < 2; r++)
            weft_run_destroy(runs[i][r]);
    for (int r = 0; r < 2; r++)
        weft_plan_destroy(plans[r]);
    pair_destroy(&pair);
}
