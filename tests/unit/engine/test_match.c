/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of messages: that what differs lies apart. */
#include <criterion/criterion.h>

#include "runtime/engine/engine.h"

enum { MESSAGES = 64 };

static size_t longest_chain(const struct weft__match *match)
{
    size_t longest = 0;
    for (size_t b = 0; b <= match->mask; b++) {
        size_t length = 0;
        for (const struct weft__message *m = match->buckets[b]; m; m = m->next)
            length++;
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* Runs of one object exchange the same tags with the same ranks in the same versions. */
Test(match, members_of_one_object_are_spread_as_objects_are)
{
    for (int members = 0; members <= 1; members++) {
        struct weft__match match = {0};
        struct weft__message messages[MESSAGES];
        cr_assert_eq(weft__match_reserve(&match, MESSAGES), WEFT_OK);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            messages[i] = (struct weft__message){.object = members ? 5 | i << WEFT__NUMBER_BITS : i,
                                                 .version = 9,
                                                 .tag = 3,
                                                 .from = 2,
                                                 .kind = WEFT__DATA};
            cr_assert_null(weft__match_arrived(&match, &messages[i]));
        }
        cr_expect_leq(longest_chain(&match), 8, "%s: %zu of %d in one chain",
                      members ? "members" : "objects", longest_chain(&match), MESSAGES);
        /* Each is found as itself. */
        for (size_t i = 0; i < MESSAGES; i++) {
            struct weft__message receive = messages[i];
            receive.kind = WEFT__RECEIVE;
            cr_expect_eq(weft__match_post(&match, &receive), &messages[i]);
        }
        weft__match_close(&match);
    }
}
