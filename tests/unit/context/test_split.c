/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts of some ranks: who is in them, how they end, what fails with them. */
#include <criterion/criterion.h>

#include <malloc.h>

#include "runtime/base/alloc.h"
#include "support/ranks.h"

#include "support/splitting.h" /* after CHECK and OK */

static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};
enum { SIZES = SWEPT(sizeof sizes / sizeof *sizes, 6) };

/* ---- at random ---- */

static void random_life(struct ranks *ranks, struct weft_context *context, int rank)
{
    uint64_t seed = *(uint64_t *)ranks->user;
    struct splitting splitting = {.own = mixed(seed, 1000 + (uint64_t)rank), .count = 2000};
    split_at_random(&splitting, context, seed, 3);
    destroy_kept(&splitting);
}

Test(split, splits_of_splits_are_what_they_should_be)
{
    for (size_t i = 0; i < SIZES; i++)
        for (uint64_t seed = 1; seed <= SWEPT(3, 1); seed++)
            ranks_run_each_way(random_life, sizes[i], &seed);
}

/* ---- no colour ---- */

static void no_colour(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *child = context;
    if (rank == 0) {
        OK(weft_context_split(context, WEFT_COLOUR_NONE, 0, &child));
        CHECK(!child); /* nobody else has called */
        ranks_meet(ranks);
    } else {
        ranks_meet(ranks);
        OK(weft_context_split(context, 0, -rank, &child));
        CHECK(weft_context_size(child) == ranks->size - 1);
        CHECK(weft_context_rank(child) == ranks->size - 1 - rank);
        exchange_once(child, 3);
        OK(weft_context_destroy(child));
    }
    exchange_once(context, 3);
}

Test(split, a_rank_of_no_colour_waits_for_nobody)
{
    for (size_t i = 1; i < SIZES; i++)
        ranks_run_each_progress(no_colour, sizes[i], NULL);
}

/* ---- hundreds ---- */

static void hundreds(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks, (void)rank;
    split_hundreds(context, 2);
}

Test(split, hundreds_are_alive_at_once_and_freed_in_any_order)
{
    for (int size = 1; size <= 5; size++)
        ranks_run_each_progress(hundreds, size, NULL);
}

/* ---- memory ---- */

struct measure {
    size_t before, after; /* bytes in use */
};

enum { MANY = SWEPT(10000, 1000) };

static void many(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct measure *measure = ranks->user;
    split_and_free(context, MANY / 5);
    ranks_meet(ranks);
    if (rank == 0)
        measure->before = mallinfo2().uordblks;
    ranks_meet(ranks);
    split_and_free(context, MANY);
    ranks_meet(ranks);
    if (rank == 0)
        measure->after = mallinfo2().uordblks;
    ranks_meet(ranks);
}

Test(split, ten_thousand_leave_nothing_behind)
{
    struct measure measure;
    ranks_run_once(many, 4, &measure);
    /* How many are under way at once comes and goes; a word of each of the 40000 would show. */
    cr_assert(measure.after < measure.before + 300000, "%zu bytes, then %zu", measure.before,
              measure.after);
}

/* ---- subsets ---- */

/* Two at once, in threads, in another order on each rank; nobody else does anything. */
struct side {
    struct weft_context *context;
    const int *ranks;
    int count, tag;
};

static void *make_subset(void *argument)
{
    struct side *side = argument;
    struct weft_context *child = NULL;
    for (int i = 0; i < 20; i++) {
        OK(weft_context_subset(side->context, side->ranks, side->count, side->tag, &child));
        exchange_once(child, 40);
        OK(weft_context_destroy(child));
    }
    return NULL;
}

static void two_subsets(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const int low[] = {2, 0, 1}, high[] = {1, 2, 3};
    struct side sides[] = {{context, low, 3, 1}, {context, high, 3, 1}, {context, low, 3, 2}};
    pthread_t threads[3];
    int wanted[3] = {rank < 3, rank >= 1 && rank < 4, rank < 3};
    for (int i = 0; i < 3; i++) {
        int side = (i + rank) % 3;
        if (wanted[side])
            CHECK(pthread_create(&threads[side], NULL, make_subset, &sides[side]) == 0);
    }
    for (int side = 0; side < 3; side++)
        if (wanted[side])
            CHECK(pthread_join(threads[side], NULL) == 0);
    ranks_meet(ranks);
    exchange_once(context, 1);
}

Test(split, subsets_need_their_ranks_alone)
{
    ranks_run_each_progress(two_subsets, 5, NULL);
}

/* Splits of two parents in two threads of each rank. */
static void *split_often(void *context)
{
    for (int i = 0; i < 50; i++) {
        struct weft_context *child = NULL;
        OK(weft_context_split(context, weft_context_rank(context) % 2, 0, &child));
        exchange_once(child, 2);
        OK(weft_context_destroy(child));
    }
    return NULL;
}

static void two_parents(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *parents[2];
    pthread_t threads[2];
    OK(weft_context_split(context, 0, 0, &parents[0]));
    OK(weft_context_split(context, 0, -rank, &parents[1]));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, split_often, parents[(i + rank) % 2]) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(weft_context_destroy(parents[rank % 2]));
    OK(weft_context_destroy(parents[1 - rank % 2]));
    (void)ranks;
}

Test(split, several_may_be_under_way_in_threads)
{
    for (int size = 1; size <= 6; size++)
        ranks_run_each_progress(two_parents, size, NULL);
}

/* ---- ends ---- */

/* A run that receives a message from a rank. */
static struct weft_run *receives(struct weft_context *context, int from, int64_t *x)
{
    struct weft_schedule *schedule =
        new_schedule(weft_context_rank(context), weft_context_size(context));
    weft_slot_t slot = weft_schedule_add_slot(schedule, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    if (weft_context_rank(context) == from)
        weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    else
        weft_schedule_add_recv(schedule, weft_region_at(slot, 0, 1), from, 1);
    struct weft_run *run = make_run(context, commit(schedule), NULL);
    OK(bind_name(run, "x", x));
    return run;
}

static void one_destroys(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *child = NULL;
    int64_t x = 0;
    OK(weft_context_split(context, 0, -rank, &child));
    int last = ranks->size - 1; /* rank 0 */
    struct weft_run *run = receives(child, last, &x);
    struct weft_run *later = receives(child, last, &x);
    exchange_once(child, 1);
    if (rank == 0) {
        OK(weft_context_destroy(child));
        ranks_meet(ranks);
    } else {
        OK(weft_run_start(run));
        CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_PEER);
        char text[32];
        snprintf(text, sizeof text, "rank %d has left", last);
        CHECK_TEXT(weft_error_text(), text);
        ranks_meet(ranks);
        OK(weft_run_start(later)); /* it knows at once */
        CHECK_STATUS(weft_run_wait(later, WEFT_NEVER), WEFT_ERR_PEER);
        weft_run_destroy(run);
        weft_run_destroy(later);
        OK(weft_context_destroy(child));
    }
    exchange_once(context, 3); /* nobody else is touched */
}

Test(split, who_waits_for_a_rank_that_has_destroyed_it_hears_so)
{
    for (int size = 2; size <= 8; size++)
        ranks_run_each_way(one_destroys, size, NULL);
}

/* The root goes while children, children of these, and runs on them are left. */
static void left_over(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *child = NULL, *grandchild = NULL, *other = NULL;
    static int64_t x[64];
    OK(weft_context_split(context, rank % 2, 0, &child));
    OK(weft_context_split(child, 0, -rank, &grandchild));
    OK(weft_context_split(context, 0, 0, &other));
    OK(weft_run_start(receives(grandchild, weft_context_size(grandchild) - 1, &x[rank])));
    OK(weft_run_start(receives(other, 0, &x[rank])));
    if (rank % 3 == 0)
        OK(weft_context_destroy(child)); /* before its own child */
    ranks_meet(ranks);
}

Test(split, what_is_left_ends_with_the_root)
{
    for (int size = 1; size <= 8; size++)
        ranks_run_each_way(left_over, size, NULL);
}

/* ---- failures ---- */

static void one_aborts(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *child = NULL, *other = NULL;
    int64_t x = 0, y = 0;
    int of_root = *(int *)ranks->user;
    OK(weft_context_split(context, 0, -rank, &child));
    OK(weft_context_split(context, 0, 0, &other));
    struct weft_run *run = receives(child, 0, &x), *bystander = receives(other, 0, &y);
    OK(weft_run_start(run));
    OK(weft_run_start(bystander));
    ranks_meet(ranks);
    if (rank == 1)
        OK(weft_context_abort(of_root ? context : child, WEFT_ERR_IO, "the roof is gone"));
    CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), rank == 1 ? WEFT_ERR_IO : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "the roof is gone");
    if (of_root) {
        CHECK(weft_run_wait(bystander, WEFT_NEVER) < 0);
        CHECK(weft_context_split(context, 0, 0, &other) < 0);
        CHECK_TEXT(weft_error_text(), "the roof is gone");
    } else {
        CHECK(weft_context_split(child, 0, 0, &other) < 0);
        CHECK_TEXT(weft_error_text(), "the roof is gone");
        CHECK(weft_run_test(bystander) == WEFT_IN_PROGRESS);
        exchange_once(other, 3);
    }
}

Test(split, an_abort_ends_what_it_is_of)
{
    for (int of_root = 0; of_root <= 1; of_root++)
        for (int size = 2; size <= 8; size++)
            ranks_run_each_progress(one_aborts, size, &of_root);
}

static void bad_arguments(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *child = context;
    const int all[] = {0, 1, 2}, twice[] = {0, 1, 1}, far[] = {0, 1, 3};
    (void)ranks;
    CHECK_STATUS(weft_context_split(NULL, 0, 0, &child), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`parent` is NULL");
    CHECK_STATUS(weft_context_split(context, rank == 1 ? -2 : 0, 0, &child), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`colour` is -2");
    if (rank != 1)
        CHECK_TEXT(weft_error_text(), "rank 1");
    CHECK_STATUS(weft_context_split(context, 0, 0, rank == 2 ? NULL : &child), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`context` is NULL");
    for (int i = 0; i < 3; i++) /* it fails alike each time, and the next one works */
        CHECK_STATUS(weft_context_subset(context, all, 3, 9, rank == 2 ? NULL : &child),
                     WEFT_ERR_INVALID);
    CHECK_STATUS(weft_context_subset(context, NULL, 3, 9, &child), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_context_subset(context, all, 0, 9, &child), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`count` is 0, expected 1..3");
    CHECK_STATUS(weft_context_subset(context, twice, 3, 9, &child), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_context_subset(context, far, 3, 9, &child), WEFT_ERR_INVALID);
    const int *others = rank == 0 ? all + 1 : rank == 1 ? twice + 1 : all;
    CHECK_STATUS(weft_context_subset(context, others, 2, 9, &child), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_context_root_ranks(context, NULL), WEFT_ERR_INVALID);
    CHECK(child == context);
    OK(weft_context_subset(context, all, 3, 9, &child));
    exchange_once(child, 3);
    OK(weft_context_destroy(child));
}

Test(split, a_bad_argument_is_named_on_all_ranks)
{
    ranks_run_each_progress(bad_arguments, 3, NULL);
}
