/* SPDX-License-Identifier: BSD-3-Clause */
/* Leaving an object: in every order, past delays and duplicates, with ranks that never leave. */
#include <criterion/criterion.h>

#include "parts.h"

enum { RANKS_MOST = 24, OBJECTS_MOST = 2 };

/* How a rank answers its callbacks. */
enum answer { AT_ONCE, LATER };

struct leaving;

/* What a rank has of an object. */
struct place {
    struct leaving *leaving;
    int rank;
    struct weft_context *context;
    struct weft_object *object;
    struct weft_run *run;
    struct weft_series *series;
    uint64_t number; /* its own */
    int64_t x;
    int answer_left, answer_settled;
    int has_left;
    atomic_int left, settled, failed, released;
    int status;
    uint64_t largest, failed_ns, released_ns;
    char text[512];
};

struct leaving {
    int size, objects;
    uint64_t seed;
    enum answer answer;
    uint64_t leave_ns;
    int silent;
    int stays; /* rank that does not leave; -1: none */
    int order; /* of those that leave, a permutation's number; -1: at random times */
    uint64_t due;
    struct place places[OBJECTS_MOST][RANKS_MOST];
};

static void left(void *user, struct weft_object *object)
{
    struct place *place = user;
    CHECK(object == place->object);
    CHECK(atomic_fetch_add(&place->left, 1) == 0);
    /* All have: none is called before. */
    for (int r = 0; r < place->leaving->size; r++)
        CHECK(place->leaving->places[place - place->leaving->places[0] >= RANKS_MOST][r].has_left);
    place->answer_left = place->leaving->answer == LATER;
    if (place->answer_left)
        OK(weft_series_poke(place->series));
    else
        OK(weft_object_settle(object, place->number));
}

static void settled(void *user, struct weft_object *object, uint64_t largest)
{
    struct place *place = user;
    CHECK(atomic_load(&place->left) == 1);
    CHECK(atomic_fetch_add(&place->settled, 1) == 0);
    place->largest = largest;
    place->answer_settled = place->leaving->answer == LATER;
    if (place->answer_settled)
        OK(weft_series_poke(place->series));
    else
        OK(weft_object_done(object));
}

static void poked(void *user, struct weft_series *series)
{
    struct place *place = user;
    CHECK(series == place->series);
    if (place->answer_left)
        OK(weft_object_settle(place->object, place->number));
    if (place->answer_settled)
        OK(weft_object_done(place->object));
    place->answer_left = place->answer_settled = 0;
}

static int hold(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user, (void)series, (void)arm;
    return WEFT_IN_PROGRESS;
}

static void failed(void *user, struct weft_object *object, int status)
{
    struct place *place = user;
    CHECK(atomic_fetch_add(&place->failed, 1) == 0);
    CHECK(weft_object_check(object, "failed") == status);
    place->status = status;
    place->failed_ns = weft_context_now(place->context);
    snprintf(place->text, sizeof place->text, "%s", weft_error_text());
}

static void release(void *user)
{
    struct place *place = user;
    CHECK(atomic_fetch_add(&place->released, 1) == 0);
    place->released_ns = weft_context_now(place->context);
    weft_run_destroy(place->run);
    weft_series_destroy(place->series);
    weft_object_destroy(place->object);
}

static void make_place(struct leaving *leaving, struct weft_context *context, int number)
{
    int rank = weft_context_rank(context);
    struct place *place = &leaving->places[number][rank];
    struct weft_object_config config;
    weft_object_config_init(&config);
    config.leave_ns = leaving->leave_ns;
    config.silent = leaving->silent;
    config.left = left;
    config.settled = settled;
    config.failed = failed;
    config.release = release;
    config.user = place;
    place->leaving = leaving;
    place->rank = rank;
    place->context = context;
    place->number = drawn(leaving->seed, (uint64_t)(100 * number + rank), 1000000);
    OK(weft_object_create(&place->object, context, &config));
    place->run = chain_run(context, place->object, 0, "work", NULL, &place->x);
    if (leaving->answer == LATER) {
        struct weft_series_config series;
        weft_series_config_init(&series);
        series.object = place->object;
        series.arm = hold;
        series.poked = poked;
        series.user = place;
        place->series = wait_series(context, &series);
        int status = weft_series_start(place->series); /* others may have failed it */
        CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
    }
}

/* When rank `rank` leaves: its place in permutation number `order`, in ms. */
static uint64_t place_in_order(int order, int size, int rank)
{
    int taken[RANKS_MOST] = {0};
    for (int place = 0; place < size; place++) {
        int skip = order % (size - place), r = 0;
        order /= size - place;
        for (r = 0; taken[r] || skip-- > 0; r++)
            ;
        taken[r] = 1;
        if (r == rank)
            return (uint64_t)place;
    }
    return 0;
}

static int leave(struct weft_context *context, void *user)
{
    struct leaving *leaving = user;
    int rank = weft_context_rank(context);
    for (int i = 0; i < leaving->objects; i++)
        make_place(leaving, context, i);
    for (int i = 0; i < leaving->objects; i++) {
        struct place *place = &leaving->places[i][rank];
        OK(chain_start(place->run, 0, rank));
        OK(weft_run_wait(place->run, WEFT_NEVER));
    }
    if (leaving->order >= 0)
        OK(weft_context_sleep(context,
                              MS * (1 + place_in_order(leaving->order, leaving->size, rank))));
    else
        OK(weft_context_sleep(context, 1 + drawn(leaving->seed, 1000 + (uint64_t)rank, MS)));
    for (int i = 0; i < leaving->objects; i++) {
        /* Half of the ranks the other way round. */
        int which = drawn(leaving->seed, (uint64_t)rank, 2) ? i : leaving->objects - 1 - i;
        struct place *place = &leaving->places[which][rank];
        if (rank == leaving->stays)
            continue;
        place->has_left = 1;
        OK(weft_object_leave(place->object));
    }
    return WEFT_OK;
}

static void leaving_init(struct leaving *leaving, int size, int objects, uint64_t seed)
{
    memset(leaving, 0, sizeof *leaving);
    leaving->size = size;
    leaving->objects = objects;
    leaving->seed = seed;
    leaving->stays = leaving->order = -1;
    leaving->answer = seed % 2 ? LATER : AT_ONCE;
}

/* Everybody has got the largest number, once, and everything has been released, once. */
static void expect_left(struct leaving *leaving)
{
    for (int i = 0; i < leaving->objects; i++) {
        uint64_t largest = 0;
        for (int r = 0; r < leaving->size; r++)
            if (leaving->places[i][r].number > largest)
                largest = leaving->places[i][r].number;
        for (int r = 0; r < leaving->size; r++) {
            struct place *place = &leaving->places[i][r];
            cr_assert_eq(place->failed, 0, "rank %d of %d: %s", r, leaving->size, place->text);
            cr_assert_eq(place->left, 1, "rank %d of %d", r, leaving->size);
            cr_assert_eq(place->settled, 1, "rank %d of %d", r, leaving->size);
            cr_assert_eq(place->largest, largest, "rank %d of %d", r, leaving->size);
            cr_assert_eq(place->released, 1, "rank %d of %d", r, leaving->size);
        }
    }
}

static struct leaving leaving; /* too large for a stack */

static void leave_virtual(int size, int objects, uint64_t seed, int order)
{
    struct weft_virtual_config config = with_seed(seed);
    leaving_init(&leaving, size, objects, seed);
    leaving.order = order;
    config.delay_ns = seed % 3 * 100000;
    config.duplicate_share = (double)(seed % 4) / 4;
    config.heavy_share = 0.1;
    config.heavy_ns = 5 * MS;
    OK(weft_virtual_run(size, &config, leave, &leaving));
    expect_left(&leaving);
}

Test(object_leave, any_order_of_few_ranks)
{
    int orders = 1;
    for (int size = 1; size <= 5; orders *= ++size)
        for (int order = 0; order < orders; order++)
            for (uint64_t seed = 0; seed < 4; seed++)
                leave_virtual(size, 1, seed + (uint64_t)order, order);
}

Test(object_leave, any_number_of_ranks_with_delays_and_duplicates)
{
    for (int size = 1; size <= RANKS_MOST; size++)
        for (uint64_t seed = 0; seed < SWEPT(24, 6); seed++)
            leave_virtual(size, 1, seed, -1);
}

Test(object_leave, two_objects_in_different_orders)
{
    for (int size = 1; size <= 9; size++)
        for (uint64_t seed = 0; seed < 12; seed++)
            leave_virtual(size, 2, seed, -1);
}

Test(object_leave, local_ranks_leave_two_objects_in_different_orders)
{
    for (int size = 1; size <= 8; size++)
        for (uint64_t seed = 0; seed < 6; seed++) {
            leaving_init(&leaving, size, 2, seed);
            OK(local_run(size, WEFT_PROGRESS_HELPER, leave, &leaving));
            expect_left(&leaving);
        }
}

/* Nobody drives once the functions have returned but weft_local_run(). */
Test(object_leave, local_ranks_without_helpers)
{
    for (int size = 1; size <= 8; size++) {
        leaving_init(&leaving, size, 2, (uint64_t)size);
        leaving.answer = AT_ONCE; /* series need helpers */
        OK(local_run(size, WEFT_PROGRESS_CALLER, leave, &leaving));
        expect_left(&leaving);
    }
}

/* Contexts of the user's own, destroyed by their threads. */
static void leave_and_end(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    OK(leave(context, ranks->user));
}

Test(object_leave, contexts_that_are_destroyed_serve_what_has_been_left)
{
    for (int size = 1; size <= 5; size++) {
        leaving_init(&leaving, size, 2, (uint64_t)size);
        leaving.answer = AT_ONCE;
        ranks_run_once(leave_and_end, size, &leaving);
        expect_left(&leaving);
        leaving_init(&leaving, size, 2, (uint64_t)size);
        ranks_run_helped(leave_and_end, size, &leaving);
        expect_left(&leaving);
    }
}

/* ---- a rank that does not leave ---- */

static int stay(struct weft_context *context, void *user)
{
    struct leaving *waiting = user;
    int rank = weft_context_rank(context);
    struct place *place = &waiting->places[0][rank];
    OK(leave(context, user));
    if (rank == waiting->stays) {
        OK(weft_context_sleep(context, 100 * S)); /* it has long been over by then */
        int status = weft_object_check(place->object, "test");
        if (waiting->silent) {
            OK(status);
        } else {
            CHECK_STATUS(status, WEFT_ERR_PEER);
            CHECK_TEXT(weft_error_text(), "has left, and not all others have");
        }
        place->has_left = 1;
        OK(weft_object_leave(place->object)); /* is released at once if it has failed */
        CHECK(atomic_load(&place->released) == !waiting->silent);
    }
    return WEFT_OK;
}

Test(object_leave, a_rank_that_does_not_leave_is_waited_for_so_long)
{
    for (int size = 2; size <= 12; size++)
        for (int stays = 0; stays < size; stays++) {
            struct weft_virtual_config config = with_seed((uint64_t)stays);
            leaving_init(&leaving, size, 1, (uint64_t)stays);
            leaving.stays = stays;
            leaving.leave_ns = 7 * S;
            OK(weft_virtual_run(size, &config, stay, &leaving));
            for (int r = 0; r < size; r++) {
                struct place *place = &leaving.places[0][r];
                cr_expect_eq(place->failed, 1);
                cr_expect_eq(place->released, 1);
                cr_expect_eq(place->left, 0);
                /* After the time, exactly, since what happened last; which took no second. */
                cr_expect(place->failed_ns >= 7 * S && place->failed_ns < 8 * S, "%f",
                          (double)place->failed_ns * 1e-9);
                cr_expect_not_null(strstr(place->text, "7.000 s"), "%s", place->text);
            }
        }
}

Test(object_leave, a_silent_rank_fails_nobody_after_that_time_and_goes_on)
{
    for (int size = 2; size <= 12; size++)
        for (int stays = 0; stays < size; stays++) {
            struct weft_virtual_config config = with_seed((uint64_t)stays);
            leaving_init(&leaving, size, 1, (uint64_t)stays);
            leaving.stays = stays;
            leaving.silent = 1;
            leaving.leave_ns = 7 * S;
            OK(weft_virtual_run(size, &config, stay, &leaving));
            for (int r = 0; r < size; r++) {
                cr_expect_eq(leaving.places[0][r].failed, 0);
                cr_expect_eq(leaving.places[0][r].released, 1);
                /* They have gone on counting who has left. */
                cr_expect_eq(leaving.places[0][r].left, 1);
            }
        }
}

/* What happens to it puts the end off. */
static int keep_busy(struct weft_context *context, void *user)
{
    struct leaving *busy = user;
    int rank = weft_context_rank(context);
    struct place *place = &busy->places[0][rank];
    int64_t x = 0;
    make_place(busy, context, 0);
    struct weft_run *other = chain_run(context, place->object, 1, "more", NULL, &x);
    if (rank == 0) {
        place->has_left = 1;
        for (int i = 0; i < 20; i++) {
            OK(weft_run_start(other));
            OK(weft_run_wait(other, WEFT_NEVER));
        }
        weft_run_destroy(other);
        OK(weft_object_leave(place->object));
        return WEFT_OK;
    }
    for (int i = 0; i < 20; i++) {
        OK(weft_context_sleep(context, S));
        OK(chain_start(other, 1, rank));
        OK(weft_run_wait(other, WEFT_NEVER));
    }
    weft_run_destroy(other);
    place->has_left = 1;
    OK(weft_object_leave(place->object));
    return WEFT_OK;
}

Test(object_leave, what_happens_puts_the_end_off)
{
    struct weft_virtual_config config = with_seed(1);
    leaving_init(&leaving, 2, 1, 2);
    leaving.leave_ns = 2 * S;
    OK(weft_virtual_run(2, &config, keep_busy, &leaving));
    expect_left(&leaving);
}

/* ---- contexts that end with objects in any state ---- */

static int return_with_all(struct weft_context *context, void *user)
{
    struct leaving *ending = user;
    int rank = weft_context_rank(context);
    struct weft_object *plain = NULL;
    int64_t x = 0;
    make_place(ending, context, 0); /* alive, with a `release` */
    make_place(ending, context, 1);
    OK(weft_object_create(&plain, context, NULL)); /* alive, without; its run is active */
    struct weft_run *run = chain_run(context, plain, 0, "never", NULL, &x);
    OK(weft_run_start(run));
    if (rank == 0)
        OK(weft_object_fail(ending->places[1][rank].object, WEFT_ERR_IO, "so be it"));
    meet(context);
    return WEFT_OK;
}

static void expect_ended(const struct leaving *ended)
{
    for (int r = 0; r < ended->size; r++) {
        for (int i = 0; i < 2; i++) {
            const struct place *place = &ended->places[i][r];
            cr_expect_eq(place->failed, 1);
            cr_expect_eq(place->released, 1, "object %d on rank %d", i, r);
        }
        cr_expect_not_null(strstr(ended->places[0][r].text, "destroyed its context"), "%s",
                           ended->places[0][r].text);
        cr_expect_not_null(strstr(ended->places[1][r].text, "so be it"), "%s",
                           ended->places[1][r].text);
    }
}

Test(object_leave, functions_that_return_without_leaving_fail_what_they_have)
{
    for (int size = 1; size <= 5; size++)
        for (int helped = 0; helped < 2; helped++) {
            leaving_init(&leaving, size, 2, (uint64_t)size);
            leaving.answer = helped ? LATER : AT_ONCE;
            OK(local_run(size, helped ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER,
                         return_with_all, &leaving));
            expect_ended(&leaving);
            leaving_init(&leaving, size, 2, (uint64_t)size);
            OK(weft_virtual_run(size, NULL, return_with_all, &leaving));
            expect_ended(&leaving);
        }
}

/* Rank 0 ends with its object alive while the others have left theirs. */
static void end_alone(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct leaving *ending = ranks->user;
    make_place(ending, context, 0);
    ranks_meet(ranks);
    if (rank != 0) {
        ending->places[0][rank].has_left = 1;
        OK(weft_object_leave(ending->places[0][rank].object));
    }
}

Test(object_leave, a_context_that_ends_with_an_object_fails_it_for_those_who_have_left)
{
    for (int size = 2; size <= 5; size++) {
        leaving_init(&leaving, size, 1, 1);
        leaving.leave_ns = WEFT_NEVER;
        ranks_run_helped(end_alone, size, &leaving);
        for (int r = 0; r < size; r++) {
            cr_expect_eq(leaving.places[0][r].released, 1);
            cr_expect_eq(leaving.places[0][r].failed, 1);
            cr_expect_not_null(strstr(leaving.places[0][r].text, "rank 0 has destroyed"));
        }
    }
}

/* An object that is over is released without anything else happening. */
static void release_soon(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct leaving *ending = ranks->user;
    make_place(ending, context, 0);
    struct place *place = &ending->places[0][rank];
    place->has_left = 1;
    ranks_meet(ranks);
    OK(weft_object_leave(place->object));
    while (atomic_load(&place->released) == 0) {
        if (weft_context_progress_mode(context) == WEFT_PROGRESS_CALLER)
            weft_context_progress(context);
        sched_yield();
    }
}

Test(object_leave, what_is_over_is_released_by_the_helper_or_who_drives)
{
    for (int round = 0; round < 20; round++)
        for (int helped = 0; helped < 2; helped++) {
            leaving_init(&leaving, 3, 1, 2);
            (helped ? ranks_run_helped : ranks_run_once)(release_soon, 3, &leaving);
            expect_left(&leaving);
        }
}

/* ---- misuse ---- */

Test(object_leave, once_and_answers_only_to_what_has_been_asked)
{
    struct weft_local *local = NULL;
    struct weft_context *contexts[2];
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    leaving_init(&leaving, 2, 1, 2);
    OK(weft_local_create(&local, 2, NULL));
    for (int r = 0; r < 2; r++) {
        struct place *place = &leaving.places[0][r];
        OK(weft_context_create_local(&contexts[r], local, r, &config));
        make_place(&leaving, contexts[r], 0);
        place->has_left = 1;
        cr_expect_eq(weft_object_settle(place->object, 1), WEFT_ERR_STATE);
        cr_expect_eq(weft_object_done(place->object), WEFT_ERR_STATE);
    }
    OK(weft_object_leave(leaving.places[0][0].object));
    cr_expect_eq(weft_object_leave(leaving.places[0][0].object), WEFT_ERR_STATE);
    cr_expect_not_null(strstr(weft_error_text(), "left before"), "%s", weft_error_text());
    OK(weft_object_leave(leaving.places[0][1].object));
    for (int r = 0; r < 2; r++)
        weft_context_destroy(contexts[r]);
    weft_local_destroy(local);
    expect_left(&leaving);
}
