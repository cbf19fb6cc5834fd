/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that wait on one hardware thread keep apart (runtime/context/seat.h). */
#include <criterion/criterion.h>

#include "runtime/base/topology.h"
#include "runtime/context/context.h"
#include "support/ranks.h"
#include "tests/support/bind.h"
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- looks, by hand ---- */

enum { PLACES = 4 };
static _Atomic uint64_t seats[PLACES];

static _Atomic uint64_t *place_seat(struct weft__transport *transport, int place)
{
    (void)transport;
    return place < PLACES ? &seats[place] : NULL;
}

static const struct weft__transport_ops ops = {.seat = place_seat};

static struct weft__transport placed(int place)
{
    return (struct weft__transport){.ops = &ops, .seat = place, .local_ranks = PLACES};
}

static uint64_t heard[PLACES];

/* How many looks a rank on `thread` takes until it is to move; each time rank `other` has waited on
 * `others` once more. At most `most`. */
static int looks_until(struct weft__seating *seating, int own, int thread, int other, int others,
                       int most)
{
    struct weft__transport transport = placed(own);
    for (int look = 1; look <= most; look++) {
        atomic_store(&seats[other], weft__seat_word((uint64_t)look, others));
        if (weft__seating_look(seating, &transport, thread, 1000))
            return look;
    }
    return 0;
}

static struct weft__seating fresh(void)
{
    memset(heard, 0, sizeof heard);
    return (struct weft__seating){.says = 1, .moves = 1, .said = heard, .from = -1};
}

Test(seat, a_seat_says_where_its_rank_waits)
{
    struct weft__seating seating = fresh();
    struct weft__transport transport = placed(2);
    cr_assert_eq(weft__seat_thread(0), -1);
    cr_assert_not(weft__seating_look(&seating, &transport, 77, 1000));
    cr_assert_eq(weft__seat_thread(seats[2]), 77);
    uint64_t before = seats[2];
    cr_assert_not(weft__seating_look(&seating, &transport, 77, 1000));
    cr_assert_neq(seats[2], before);
    cr_assert_eq(weft__seat_thread(seats[2]), 77);
}

Test(seat, the_later_of_two_ranks_moves_first)
{
    struct weft__seating later = fresh(), earlier = fresh();
    int first = looks_until(&later, 3, 5, 1, 5, 1000);
    int second = looks_until(&earlier, 0, 5, 1, 5, 1000);
    cr_assert(first > 4 && first < 40, "%d", first);
    cr_assert(second > 2 * first, "%d, %d", first, second);
}

Test(seat, a_rank_elsewhere_moves_nobody)
{
    struct weft__seating seating = fresh();
    cr_assert_eq(looks_until(&seating, 3, 5, 1, 6, 1000), 0);
}

Test(seat, a_rank_that_has_waited_here_once_moves_nobody)
{
    struct weft__seating seating = fresh();
    struct weft__transport transport = placed(3);
    seats[1] = weft__seat_word(7, 5);
    for (int look = 0; look < 1000; look++)
        cr_assert_not(weft__seating_look(&seating, &transport, 5, 1000));
}

Test(seat, whoever_goes_away_is_forgotten)
{
    struct weft__seating seating = fresh();
    struct weft__transport transport = placed(3);
    int most = looks_until(&seating, 3, 5, 1, 5, 1000);
    seating = fresh();
    for (int round = 0; round < 100; round++) {
        cr_assert_eq(looks_until(&seating, 3, 5, 1, 5, most - 1), 0);
        seats[1] = weft__seat_word(1, 6);
        for (int look = 0; look < 10; look++)
            cr_assert_not(weft__seating_look(&seating, &transport, 5, 1000));
    }
}

/* It may compute, or wait in another context; and others are here. */
Test(seat, a_rank_that_says_nothing_new_hides_nobody)
{
    struct weft__seating seating = fresh();
    int plain = looks_until(&seating, 3, 5, 2, 5, 1000);
    seating = fresh();
    seats[0] = weft__seat_word(7, 5);
    int beside = looks_until(&seating, 3, 5, 2, 5, 1000);
    cr_assert(plain > 4 && beside >= plain && beside < plain + 4, "%d, %d", plain, beside);
}

/* ---- rests and trials, by a clock of the test's ---- */

#define MS UINT64_C(1000000)

Test(seat, each_move_makes_the_next_wait_longer_until_one_was_good)
{
    struct weft__seating seating = fresh();
    struct weft__transport transport = placed(3);
    uint64_t now = 1000 * MS, rest = 0;
    for (int move = 0; move < 30; move++) {
        weft__seating_moved(&seating, 5, now);
        uint64_t longer = seating.until - now;
        cr_assert(longer >= rest && longer >= MS && longer < 100 * MS);
        cr_assert(move == 0 || move > 4 || longer > rest);
        rest = longer;
        /* Nobody moves meanwhile, however long they share. */
        cr_assert_eq(looks_until(&seating, 3, 5, 1, 5, 1000), 0);
        now = seating.until;
        seats[1] = weft__seat_word(2000, 5);
        cr_assert(weft__seating_look(&seating, &transport, 5, now));
    }
    weft__seating_moved(&seating, 5, now);
    cr_assert_eq(weft__seating_lost(&seating, now, now + 1000), -1);
    now += 1000 * MS;
    cr_assert_eq(weft__seating_lost(&seating, now, now + 1000), -1);
    cr_assert_eq(seating.from, -1);
    weft__seating_moved(&seating, 5, now);
    cr_assert(seating.until - now < 10 * MS);
}

Test(seat, who_loses_half_of_its_time_goes_back_for_longer)
{
    struct weft__seating seating = fresh();
    uint64_t now = 1000 * MS, rest = 50 * MS;
    for (int move = 0; move < 5; move++) {
        int back = -1, slices = 0;
        weft__seating_moved(&seating, 5, now);
        for (; slices < 100 && back < 0; slices++) {
            now += MS / 100;
            back = weft__seating_lost(&seating, now, now + 3 * MS);
            now += 3 * MS;
        }
        cr_assert_eq(back, 5);
        cr_assert(slices > 1 && slices < 10, "%d", slices);
        cr_assert_eq(seating.from, -1);
        cr_assert(seating.until - now > rest);
        rest = seating.until - now;
        cr_assert_eq(looks_until(&seating, 3, 5, 1, 5, 1000), 0);
        now = seating.until;
    }
}

Test(seat, who_loses_little_stays)
{
    struct weft__seating seating = fresh();
    uint64_t now = 1000 * MS;
    weft__seating_moved(&seating, 5, now);
    for (int i = 0; i < 1000 && seating.from >= 0; i++) {
        /* A slice of work of low priority after 20 ms of yields of a microsecond. */
        cr_assert_eq(weft__seating_lost(&seating, now, now + 1000), -1);
        now += 20 * MS;
        cr_assert_eq(weft__seating_lost(&seating, now, now + 3 * MS), -1);
        now += 3 * MS;
    }
    cr_assert_eq(seating.from, -1);
}

/* ---- threads ---- */

static int is_among(const cpu_set_t *set, int thread)
{
    return thread >= 0 && thread < CPU_SETSIZE && CPU_ISSET((size_t)thread, set);
}

Test(seat, a_thread_moves_to_where_nobody_is_and_keeps_its_mask)
{
    cpu_set_t mask, after, taken;
    cr_assert_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
    CPU_ZERO(&taken);
    for (int moves = 0; moves < CPU_COUNT(&mask); moves++) {
        int thread = weft__topology_move(&taken);
        cr_assert(is_among(&mask, thread) && !is_among(&taken, thread), "%d", thread);
        CPU_SET((size_t)thread, &taken);
        cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
        cr_assert(CPU_EQUAL(&mask, &after));
        cr_assert(weft__topology_move_to(thread));
    }
    cr_assert_eq(weft__topology_move(&taken), -1);
    for (int thread = 0; thread < CPU_SETSIZE; thread++)
        cr_assert(is_among(&mask, thread) || !weft__topology_move_to(thread));
    cr_assert_not(weft__topology_move_to(-1));
    cr_assert_not(weft__topology_move_to(CPU_SETSIZE));
}

/* Somebody else, who sets another mask as soon as the first one is set, or takes away what the
 * thread was allowed before. */
static struct {
    const cpu_set_t *sets, *takes;
    int calls;
} meddler;

/* In the place of the system's, for what is linked into this program. */
int sched_setaffinity(pid_t thread, size_t size, const cpu_set_t *mask)
{
    /* hwloc has masks of fewer bytes. */
    if (meddler.takes && size == sizeof *mask && CPU_EQUAL(mask, meddler.takes)) {
        errno = EINVAL;
        return -1;
    }
    int status = (int)syscall(SYS_sched_setaffinity, thread, size, mask);
    if (meddler.sets && meddler.calls++ == 0)
        syscall(SYS_sched_setaffinity, thread, sizeof *meddler.sets, meddler.sets);
    return status;
}

static cpu_set_t only(int thread)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)thread, &set);
    return set;
}

Test(seat, a_mask_that_another_sets_during_a_move_stays)
{
    cpu_set_t mask, after;
    cr_assert_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
    for (int other = 0; other < CPU_SETSIZE; other++) {
        cpu_set_t taken = only(other);
        if (!is_among(&mask, other) || CPU_COUNT(&mask) < 2)
            continue;
        weft__topology_move(&taken); /* hwloc looks around at first, from everywhere */
        meddler.sets = &taken;
        meddler.calls = 0;
        cr_assert_geq(weft__topology_move(&taken), 0);
        meddler.sets = NULL;
        cr_assert_eq(meddler.calls, 1);
        cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
        cr_assert(CPU_EQUAL(&after, &taken));
        cr_assert_eq(sched_setaffinity(0, sizeof mask, &mask), 0);
    }
}

Test(seat, whoever_is_moved_and_may_not_go_back_gets_all_there_is)
{
    cpu_set_t mask, after, none;
    CPU_ZERO(&none);
    cr_assert_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
    meddler.takes = CPU_COUNT(&mask) < 2 ? NULL : &mask;
    cr_assert_geq(weft__topology_move(&none), 0);
    meddler.takes = NULL;
    cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
    for (int thread = 0; thread < CPU_SETSIZE; thread++)
        cr_assert(!is_among(&mask, thread) || is_among(&after, thread), "%d", thread);
}

/* Both begin each round on the first hardware thread, and are free to be moved. */
static void together(int stays)
{
    cpu_set_t mask, first;
    CPU_ZERO(&first);
    CHECK(sched_getaffinity(0, sizeof mask, &mask) == 0);
    for (int thread = 0; thread < CPU_SETSIZE; thread++)
        if (is_among(&mask, thread)) {
            CPU_SET((size_t)thread, &first);
            break;
        }
    CHECK(sched_setaffinity(0, sizeof first, &first) == 0);
    CHECK(stays || sched_setaffinity(0, sizeof mask, &mask) == 0);
}

struct play {
    int rounds;
    int bound; /* the rank that may use the first hardware thread alone; -1: none */
    _Atomic uint64_t moves;
};

static void meet(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct play *play = ranks->user;
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    for (int round = 0; round < play->rounds; round++) {
        together(rank == play->bound);
        for (int i = 0; i < 500; i++)
            OK(weft_barrier(context));
    }
    OK(weft_context_get_stats(context, &stats));
    atomic_fetch_add(&play->moves, stats.moves);
}

static uint64_t moves_of(int size, weft_bind_t keep_apart, int rounds, int bound)
{
    struct play play = {.rounds = rounds, .bound = bound};
    struct ranks ranks;
    ranks_init(&ranks, size, meet, &play);
    ranks.config.keep_apart = keep_apart;
    ranks_run(&ranks);
    return atomic_load(&play.moves);
}

static uint64_t moves(int size, weft_bind_t keep_apart, int rounds)
{
    return moves_of(size, keep_apart, rounds, -1);
}

/* By default, too. The system may be quicker at times, but not at all. */
Test(seat, ranks_that_are_put_on_one_hardware_thread_move_apart)
{
    uint64_t all = 0;
    for (int tries = 0; tries < 50 && all == 0; tries++)
        all = moves(2, tries % 2 ? WEFT_BIND_ON : WEFT_BIND_DEFAULT, 20);
    cr_assert_eq(all != 0, weft__topology_threads() >= 2);
}

/* Also the earlier one from the later, which cannot. */
Test(seat, a_rank_that_is_bound_is_left)
{
    for (int bound = 0; bound < 2; bound++) {
        uint64_t all = 0;
        for (int tries = 0; tries < 50 && all == 0; tries++)
            all = moves_of(2, WEFT_BIND_ON, 20, bound);
        cr_assert_eq(all != 0, weft__topology_threads() >= 2, "rank %d", bound);
    }
}

Test(seat, ranks_stay_where_they_are_if_that_is_wanted)
{
    cr_assert_eq(moves(2, WEFT_BIND_OFF, 20), 0);
}

Test(seat, ranks_that_do_not_fit_stay_where_they_are)
{
    cr_assert_eq(moves(weft__topology_cores() + 1, WEFT_BIND_ON, 2), 0);
}

Test(seat, the_environment_is_a_default)
{
    cr_assert_eq(setenv("WEFT_APART", "off", 1), 0);
    cr_assert_eq(moves(2, WEFT_BIND_DEFAULT, 20), 0);
    cr_assert_eq(unsetenv("WEFT_APART"), 0);
}
