/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that die in virtual time, and contexts of those that are left. */
#include <criterion/criterion.h>

#include "support/surviving.h"
#include "support/sweep.h"
#include "support/virtual_ranks.h"

Test(virtual_shrink, who_is_left_goes_on_and_all_agree_on_who_that_is)
{
    struct surviving_counts counts = {0};
    char text[SURVIVING_TEXT];
    const size_t seeds = SWEPT(4000, 400);
    for (uint64_t seed = 1; seed <= seeds; seed++)
        cr_assert(surviving_play(seed, &counts, text) == 0, "seed %llu: %s",
                  (unsigned long long)seed, text);
    /* The seeds are worth it. */
    cr_assert_gt(counts.deaths, seeds);
    cr_assert_gt(counts.shrinks, seeds * 5 / 2);
    cr_assert_gt(counts.during, seeds / 40);
}
