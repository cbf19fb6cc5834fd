/* SPDX-License-Identifier: BSD-3-Clause */
/* Delays of the demonstration trainer, and the yardsticks that follow from them. */
#include "tools/train/algorithm.h"
#include "tools/train/delays.h"
#include "tools/train/options.h"
#include "tools/train/yardsticks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

/* ---- delays and yardsticks ---- */

Test(delays, two_random_ranks_are_late_in_every_step)
{
    struct train_delays delays;
    int hits[5] = {0};

    cr_assert_eq(train_delays_parse(&delays, "two-random:20"), WEFT_OK);
    for (uint64_t step = 0; step < 500; step++) {
        int late = 0;
        for (int rank = 0; rank < 5; rank++) {
            double seconds = train_delay(&delays, 7, step, rank, 5);
            cr_assert(seconds == 0.0 || seconds == 0.02);
            late += seconds > 0.0;
            hits[rank] += seconds > 0.0;
        }
        cr_assert_eq(late, 2);
    }
    for (int rank = 0; rank < 5; rank++) {
        cr_assert(hits[rank] > 150 && hits[rank] < 250, "rank %d is late %d times of 500", rank,
                  hits[rank]);
    }
    cr_assert_float_eq(train_delay(&delays, 7, 0, 0, 1), 0.02, 1e-12);
}

Test(delays, models_are_drawn_as_asked)
{
    struct train_delays delays;
    int below = 0;

    cr_assert_eq(train_delays_parse(&delays, "fixed:3,250"), WEFT_OK);
    cr_assert_float_eq(train_delay(&delays, 1, 9, 3, 4), 0.25, 1e-12);
    cr_assert_float_eq(train_delay(&delays, 1, 9, 2, 4), 0.0, 0.0);
    cr_assert_eq(train_delays_parse(&delays, "lognormal:10,0.5"), WEFT_OK);
    for (uint64_t step = 0; step < 2000; step++) {
        double seconds = train_delay(&delays, 1, step, 0, 4);
        cr_assert_eq(seconds, train_delay(&delays, 1, step, 0, 4));
        cr_assert_gt(seconds, 0.0);
        below += seconds < 0.01;
    }
    cr_assert(below > 900 && below < 1100, "%d of 2000 are below the median", below);
    cr_assert_eq(train_delays_parse(&delays, "none"), WEFT_OK);
    cr_assert_float_eq(train_delay(&delays, 1, 0, 0, 4), 0.0, 0.0);
}

/* Each of 13 ranks is as often slow as another, over seeds; with one seed it is the same in every
 * step. */
Test(delays, some_ranks_are_late_for_ever)
{
    struct train_delays delays;
    int hits[13] = {0};

    cr_assert_eq(train_delays_parse(&delays, "permanent:3,20"), WEFT_OK);
    for (uint64_t seed = 0; seed < 1300; seed++) {
        int late = 0;
        for (int rank = 0; rank < 13; rank++) {
            double seconds = train_delay(&delays, seed, 0, rank, 13);
            cr_assert(seconds == 0.0 || seconds == 0.02);
            cr_assert_eq(seconds, train_delay(&delays, seed, 77, rank, 13));
            late += seconds > 0.0;
            hits[rank] += seconds > 0.0;
        }
        cr_assert_eq(late, 3, "seed %d: %d", (int)seed, late);
    }
    for (int rank = 0; rank < 13; rank++)
        cr_assert(hits[rank] > 240 && hits[rank] < 360, "rank %d: %d of 300", rank, hits[rank]);
    cr_assert_eq(train_delays_check(&delays, 3), WEFT_OK);
    cr_assert_eq(train_delays_check(&delays, 2), WEFT_ERR_INVALID);
    for (int ranks = 3; ranks < 70; ranks++) {
        int late = 0;
        for (int rank = 0; rank < ranks; rank++)
            late += train_delay(&delays, 1, 5, rank, ranks) > 0.0;
        cr_assert_eq(late, 3, "%d of %d", late, ranks);
    }
}

/* Twice as long is 2^1.5 times rarer. */
Test(delays, pareto_has_its_exponent)
{
    struct train_delays delays;
    int above[8] = {0};

    cr_assert_eq(train_delays_parse(&delays, "pareto:10,1.5"), WEFT_OK);
    for (uint64_t step = 0; step < 40000; step++) {
        double seconds = train_delay(&delays, 3, step, 1, 4);
        cr_assert(seconds >= 0.0062 && seconds <= 3600, "%g", seconds);
        for (int i = 0; i < 8; i++)
            above[i] += seconds > 0.01 * (1 << i);
    }
    for (int i = 0; i < 8; i++) {
        double due = 20000 * pow(2.0, -1.5 * i);
        cr_assert(fabs(above[i] - due) < 5 * sqrt(due), "above %d ms: %d, not %g", 10 << i,
                  above[i], due);
    }
}

Test(delays, models_add_up)
{
    struct train_delays both, alone, twice;
    double differ = 0.0;

    cr_assert_eq(train_delays_parse(&both, "lognormal:5,1+fixed:2,100"), WEFT_OK);
    cr_assert_eq(train_delays_parse(&alone, "lognormal:5,1"), WEFT_OK);
    cr_assert_eq(train_delays_parse(&twice, "lognormal:5,1+lognormal:5,1"), WEFT_OK);
    for (uint64_t step = 0; step < 20; step++) {
        for (int rank = 0; rank < 4; rank++) {
            double one = train_delay(&alone, 1, step, rank, 4);
            cr_assert_float_eq(train_delay(&both, 1, step, rank, 4), one + 0.1 * (rank == 2),
                               1e-12);
            differ += fabs(train_delay(&twice, 1, step, rank, 4) - 2 * one);
        }
    }
    cr_assert_gt(differ, 0.05, "the two are drawn apart");
}

/* Fig. 9 of the paper: 5,000 steps of 1.7 s to 43.5 s, median below 2 s. */
Test(delays, experience_has_a_heavy_tail)
{
    struct train_delays delays;
    double largest = 0.0;
    int below = 0;
    int long_ones = 0;

    cr_assert_eq(train_delays_parse(&delays, "rl:0.01"), WEFT_OK);
    for (uint64_t step = 0; step < 5000; step++) {
        double seconds = train_delay(&delays, 3, step, 2, 4) / 0.01;
        cr_assert_eq(0.01 * seconds, train_delay(&delays, 3, step, 2, 4));
        cr_assert(seconds >= 1.7 && seconds <= 43.5, "%g", seconds);
        largest = fmax(largest, seconds);
        below += seconds < 1.9;
        long_ones += seconds > 10.0;
    }
    cr_assert(below > 2350 && below < 2650, "%d of 5000 are below the median", below);
    cr_assert(largest > 20.0, "the longest is %g", largest);
    cr_assert(long_ones > 5 && long_ones < 100, "%d of 5000 are above 10", long_ones);
}

Test(delays, malformed_models_are_refused)
{
    static const char *const texts[] = {
        "",
        "two",
        "two-random",
        "two-random:",
        "two-random:x",
        "two-random:-1",
        "fixed:1",
        "fixed:1.5,2",
        "fixed:-1,2",
        "lognormal:3",
        "lognormal:1,2,3",
        "none:1",
        "two-random:1,2",
        "lognormal:nan,1",
        "two-random:inf",
        "rl",
        "rl:",
        "rl:-1",
        "rl:1,2",
        "rl:1000",
        "permanent:0,5",
        "permanent:2",
        "permanent:1.5,5",
        "permanent:2,5,1",
        "pareto:5",
        "pareto:5,0.4",
        "pareto:-5,2",
        "two-random:5+",
        "+two-random:5",
        "two-random:5+none",
        "rl:1+rl:1+rl:1+rl:1+rl:1",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct train_delays delays;
        cr_assert_eq(train_delays_parse(&delays, texts[i]), WEFT_ERR_INVALID, "'%s'", texts[i]);
    }
}

Test(yardsticks, follow_from_the_delays)
{
    struct train_options options;
    const double compute[] = {0.01, 0.01, 0.01, 0.01};
    struct train_yardsticks found;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.steps = 10;
    options.sync_period = 5;
    cr_assert_eq(train_delays_parse(&options.imbalance, "fixed:2,30"), WEFT_OK);
    cr_assert_eq(train_yardsticks(&found, &options, &train_allreduce, 4, compute), WEFT_OK);
    cr_assert_float_eq(found.ideal_seconds, 10 * 0.04, 1e-9);
    cr_assert_float_eq(found.bound_seconds, 10 * 0.04, 1e-9);

    cr_assert_eq(train_delays_parse(&options.imbalance, "two-random:30"), WEFT_OK);
    cr_assert_eq(train_yardsticks(&found, &options, &train_allreduce, 4, compute), WEFT_OK);
    cr_assert_float_eq(found.bound_seconds, 10 * 0.04, 1e-9);
    cr_assert_lt(found.ideal_seconds, 10 * 0.04 - 0.02);
    double synchronous = found.bound_seconds;
    cr_assert_eq(train_yardsticks(&found, &options, &train_local, 4, compute), WEFT_OK);
    cr_assert_leq(found.bound_seconds, synchronous + 1e-9);
    cr_assert_geq(found.bound_seconds, found.ideal_seconds - 1e-9);
    train_options_free(&options);
}

/* Who waits for whom, by the definitions. */
Test(yardsticks, ranks_leave_when_whom_they_wait_for_have_arrived)
{
    static const struct {
        const struct train_algorithm *algorithm;
        uint64_t step;
        double left[4];
    } cases[] = {
        {&train_allreduce, 0, {5, 5, 5, 5}},
        {&train_local, 0, {1, 5, 2, 3}},
        {&train_local, 4, {5, 5, 5, 5}},
        {&train_d_psgd, 3, {5, 5, 5, 3}},
        {&train_sgp, 0, {3, 5, 5, 3}},
        {&train_sgp, 1, {2, 5, 2, 5}},
        {&train_wagma, 0, {1, 5, 2, 3}},
        {&train_wagma, 9, {5, 5, 5, 5}},
        {&train_eager_solo, 3, {1, 5, 2, 3}},
        {&train_eager_solo, 4, {5, 5, 5, 5}},
        {&train_eager_majority, 4, {5, 5, 5, 5}},
    };
    static const double arrived[] = {1, 5, 2, 3};
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.sync_period = 5;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double left[] = {1, 5, 2, 3};
        cr_assert_eq(cases[i].algorithm->leave(&options, 4, cases[i].step, arrived, left), WEFT_OK);
        for (int rank = 0; rank < 4; rank++) {
            cr_assert_eq(left[rank], cases[i].left[rank], "%s, step %d, rank %d: %g",
                         cases[i].algorithm->name, (int)cases[i].step, rank, left[rank]);
        }
    }
    cr_assert_null(train_ad_psgd.leave);
    for (uint64_t step = 0; step < 20; step++) {
        double left[] = {1, 5, 2, 3};
        double drawn = arrived[weft_group_average_activator(options.seed, 4, step)];
        cr_assert_eq(train_eager_majority.leave(&options, 4, step, arrived, left), WEFT_OK);
        for (int rank = 0; rank < 4; rank++) {
            double last = train_is_sync(&options, step) ? 5 : fmax(drawn, arrived[rank]);
            cr_assert_eq(left[rank], last);
        }
    }
    options.mode = WEFT_AVERAGE_WAITING; /* groups {0, 1}, {2, 3}, then {0, 2}, {1, 3} */
    options.group_size = 2;
    double paired[] = {1, 5, 2, 3};
    cr_assert_eq(train_wagma.leave(&options, 4, 0, arrived, paired), WEFT_OK);
    cr_assert(paired[0] == 5 && paired[1] == 5 && paired[2] == 3 && paired[3] == 3);
    cr_assert_eq(train_wagma.leave(&options, 4, 1, arrived, paired), WEFT_OK);
    cr_assert(paired[0] == 2 && paired[1] == 5 && paired[2] == 2 && paired[3] == 5);
    options.mode = WEFT_AVERAGE_WAIT_AVOIDING;
    options.group_size = 0;
    double alone[] = {7};
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        if ((*at)->leave)
            cr_assert_eq((*at)->leave(&options, 1, 4, alone, alone), WEFT_OK);
        cr_assert_eq(alone[0], 7);
    }
    train_options_free(&options);
}
