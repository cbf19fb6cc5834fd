/* SPDX-License-Identifier: BSD-3-Clause */
/* Max-min fair shares: by hand, and by what makes them so on networks drawn at random. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/hash.h"
#include "runtime/sim/share.h"

enum { RESOURCES = 12, FLOWS = 40, MOST_USES = 5 };

static void is(double share, double expected)
{
    cr_expect_float_eq(share, expected, 1e-9, "%.12g, expected %.12g", share, expected);
}

static void begin(struct weft__shares *shares, uint32_t count, const double *capacities)
{
    cr_assert_eq(weft__shares_begin(shares, count, MOST_USES), 0);
    cr_assert_eq(weft__shares_reserve(shares, FLOWS), 0);
    for (uint32_t i = 0; i < count; i++)
        shares->resources[i].capacity = capacities[i];
}

/* Three share a link of 1, one of them another one with a fourth,
 * which has what the three leave. */
Test(share, what_one_cannot_use_the_others_have)
{
    static const double capacities[] = {1, 1, 1};
    static const uint32_t both[] = {0, 1}, first[] = {0}, second[] = {1}, third[] = {2};
    struct weft__shares shares;

    begin(&shares, 3, capacities);
    weft__shares_add(&shares, 0, both, 2);
    weft__shares_add(&shares, 1, first, 1);
    weft__shares_add(&shares, 2, first, 1);
    weft__shares_add(&shares, 3, second, 1);
    weft__shares_add(&shares, 4, third, 1);
    weft__shares_add(&shares, 5, NULL, 0);
    weft__shares_solve(&shares);
    is(shares.flows[0].share, 1.0 / 3);
    is(shares.flows[1].share, 1.0 / 3);
    is(shares.flows[2].share, 1.0 / 3);
    is(shares.flows[3].share, 2.0 / 3);
    is(shares.flows[4].share, 1);
    cr_expect(isinf(shares.flows[5].share));
    /* one goes: what is tied to it is worked out again, the fifth is not looked at */
    weft__shares_remove(&shares, 1);
    weft__shares_solve(&shares);
    cr_expect_eq(shares.affected_count, 3);
    is(shares.flows[0].share, 0.5);
    is(shares.flows[2].share, 0.5);
    is(shares.flows[3].share, 0.5);
    weft__shares_free(&shares);
}

/* ---- drawn at random ---- */

struct drawn {
    uint32_t uses[FLOWS][MOST_USES], count[FLOWS];
    int there[FLOWS];
};

/* Max-min fair is what overloads nothing and gives every flow a resource that is used up and of
 * which nobody has more (Bertsekas, Gallager, section 6.5.2). */
static void check_fair(const struct weft__shares *shares, const struct drawn *drawn, uint64_t seed)
{
    double used[RESOURCES] = {0}, most[RESOURCES] = {0};

    for (uint32_t f = 0; f < FLOWS; f++)
        for (uint32_t i = 0; drawn->there[f] && i < drawn->count[f]; i++) {
            used[drawn->uses[f][i]] += shares->flows[f].share;
            most[drawn->uses[f][i]] = fmax(most[drawn->uses[f][i]], shares->flows[f].share);
        }
    for (uint32_t r = 0; r < RESOURCES; r++)
        cr_assert(used[r] <= shares->resources[r].capacity * (1 + 1e-9),
                  "seed %llu: resource %u gives %.12g of %.12g", (unsigned long long)seed, r,
                  used[r], shares->resources[r].capacity);
    for (uint32_t f = 0; f < FLOWS; f++) {
        int bottleneck = !drawn->there[f] || !drawn->count[f];

        for (uint32_t i = 0; !bottleneck && i < drawn->count[f]; i++) {
            uint32_t r = drawn->uses[f][i];

            bottleneck = used[r] >= shares->resources[r].capacity * (1 - 1e-9) &&
                         shares->flows[f].share >= most[r] * (1 - 1e-9);
        }
        cr_assert(bottleneck, "seed %llu: flow %u could have more", (unsigned long long)seed, f);
    }
}

static void draw_flow(struct drawn *drawn, uint32_t f, uint64_t *state)
{
    uint32_t resources[RESOURCES];

    drawn->count[f] = (uint32_t)(1 + weft__random(state) % MOST_USES);
    for (uint32_t i = 0; i < RESOURCES; i++)
        resources[i] = i;
    for (uint32_t i = 0; i < drawn->count[f]; i++) {
        uint32_t other = i + (uint32_t)(weft__random(state) % (RESOURCES - i));

        drawn->uses[f][i] = resources[other];
        resources[other] = resources[i];
    }
}

Test(share, shares_are_max_min_fair_whatever_comes_and_goes)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct drawn drawn = {.there = {0}};
        double capacities[RESOURCES];
        struct weft__shares shares;
        uint64_t state = seed;

        for (int r = 0; r < RESOURCES; r++)
            capacities[r] = seed % 2 ? 1 : 0.25 + (double)(weft__random(&state) % 16) / 8;
        begin(&shares, RESOURCES, capacities);
        for (int turn = 0; turn < 60; turn++) {
            uint32_t f = (uint32_t)(weft__random(&state) % FLOWS);

            if (drawn.there[f]) {
                weft__shares_remove(&shares, f);
            } else {
                draw_flow(&drawn, f, &state);
                weft__shares_add(&shares, f, drawn.uses[f], drawn.count[f]);
            }
            drawn.there[f] = !drawn.there[f];
            if (weft__random(&state) % 3)
                continue;
            weft__shares_solve(&shares);
            check_fair(&shares, &drawn, seed);
        }
        weft__shares_free(&shares);
    }
}
