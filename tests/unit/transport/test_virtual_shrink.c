/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that die in virtual time, and contexts of those that are left. */
#include <criterion/criterion.h>

#include "support/surviving.h"
#include "support/virtual_ranks.h"

Test(virtual_shrink, who_is_left_goes_on_and_all_agree_on_who_that_is)
{
    struct surviving_counts counts = {0};
    char text[SURVIVING_TEXT];
    for (uint64_t seed = 1; seed <= 4000; seed++)
        cr_assert(surviving_play(seed, &counts, text) == 0, "seed %llu: %s",
                  (unsigned long long)seed, text);
    /* The seeds are worth it. */
    cr_assert_gt(counts.deaths, 4000);
    cr_assert_gt(counts.shrinks, 10000);
    cr_assert_gt(counts.during, 100);
}
