/* SPDX-License-Identifier: BSD-3-Clause */
/* OSP: how much is late, and which layers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedules/objects/server/tune.h"
#include "tests/support/draw.h"

enum { MOST_LAYERS = 40, CASES = 5000 };

/* 8 workers, 1000 bytes, b T_c / N = 500 bytes. */
static const struct weft__tune middle = {.first_loss = 4,
                                         .loss = 1,
                                         .goodput = 4e6,
                                         .compute_ns = 1000000,
                                         .workers = 8,
                                         .model_bytes = 1000,
                                         .most = 0.8};

#define EXPECT(tune_, most_, late_)                                                                \
    do {                                                                                           \
        const struct weft__tuned got_ = weft__tune(&(tune_));                                      \
        cr_expect_eq(got_.most_bytes, (size_t)(most_), "U_max is %zu", got_.most_bytes);           \
        cr_expect_eq(got_.late_bytes, (size_t)(late_), "S is %zu", got_.late_bytes);               \
    } while (0)

Test(server_tune, algorithm_1)
{
    struct weft__tune tune = middle;
    EXPECT(tune, 500, 375);
    tune.loss = 4;
    EXPECT(tune, 500, 0);
    tune.loss = 0;
    EXPECT(tune, 500, 500);
    tune.loss = 5; /* above the first */
    EXPECT(tune, 500, 0);
    tune.loss = 1;
    tune.goodput = 4e9; /* 0.8 of the model */
    EXPECT(tune, 800, 600);
    tune.loss = 0;
    tune.most = 0.29;
    tune.model_bytes = 100; /* a little less than 29 in binary */
    EXPECT(tune, 29, 29);
    tune.model_bytes = 99; /* 28.71 */
    EXPECT(tune, 28, 28);
    tune.model_bytes = 1000;
    tune.most = 7;
    EXPECT(tune, 1000, 1000);
    tune.most = 0;
    EXPECT(tune, 0, 0);
}

Test(server_tune, what_is_not_known)
{
    struct weft__tune tune = middle;
    tune.goodput = 0;
    EXPECT(tune, 0, 0);
    tune.goodput = NAN;
    EXPECT(tune, 0, 0);
    tune.goodput = -1;
    EXPECT(tune, 0, 0);
    tune.goodput = INFINITY;
    EXPECT(tune, 800, 600);
    tune = middle;
    tune.compute_ns = 0;
    EXPECT(tune, 0, 0);
    tune = middle;
    tune.workers = 0;
    EXPECT(tune, 0, 0);
    tune = middle;
    tune.model_bytes = 0;
    EXPECT(tune, 0, 0);
    tune = middle;
    tune.first_loss = 0;
    EXPECT(tune, 500, 0);
    tune.loss = 0;
    EXPECT(tune, 500, 0);
    tune.first_loss = NAN;
    EXPECT(tune, 500, 0);
    tune = middle;
    tune.loss = NAN;
    EXPECT(tune, 500, 0);
    tune.loss = INFINITY;
    EXPECT(tune, 500, 0);
    tune.first_loss = INFINITY;
    EXPECT(tune, 500, 0);
    tune = middle;
    tune.most = NAN;
    EXPECT(tune, 0, 0);
}

/* Whatever Algorithm 1 says, and whatever is known. */
Test(server_tune, a_fixed_share)
{
    struct weft__tune tune = {.model_bytes = 1000, .share = 0.25};
    EXPECT(tune, 250, 250);
    tune.share = 1;
    EXPECT(tune, 1000, 1000);
    tune.share = -1;
    EXPECT(tune, 0, 0);
    tune = middle;
    tune.share = 0.9;
    EXPECT(tune, 900, 900);
    tune.share = NAN;
    EXPECT(tune, 0, 0);
    tune.share = 1;
    tune.model_bytes = SIZE_MAX;
    EXPECT(tune, SIZE_MAX, SIZE_MAX);
}

Test(server_tune, grows_as_the_loss_falls)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        struct weft__tune tune = {.first_loss = draw_real(&draw) * 10,
                                  .goodput = draw_real(&draw) * 1e9,
                                  .compute_ns = draw_below(&draw, 1000000000),
                                  .workers = 1 + draw_below(&draw, 64),
                                  .model_bytes = draw_below(&draw, 100000000),
                                  .most = draw_real(&draw)};
        size_t before = 0;
        for (int i = 12; i >= 0; i--) {
            tune.loss = tune.first_loss * i / 10;
            struct weft__tuned tuned = weft__tune(&tune);
            cr_assert(tuned.late_bytes >= before, "seed %lu", seed);
            cr_assert(tuned.late_bytes <= tuned.most_bytes, "seed %lu", seed);
            cr_assert((double)tuned.most_bytes <= tune.most * (double)tune.model_bytes + 1e-6,
                      "seed %lu", seed);
            before = tuned.late_bytes;
        }
    }
}

/* ---- which ---- */

static void choose(size_t layers, const double *importance, const size_t *bytes, size_t budget,
                   const char *expected)
{
    unsigned char late[MOST_LAYERS];
    uint32_t order[MOST_LAYERS];
    size_t sum = 0;
    memset(late, 9, sizeof late);
    size_t chosen = weft__tune_choose(importance, bytes, layers, budget, late, order);
    for (size_t i = 0; i < layers; i++) {
        cr_expect_eq(late[i], expected[i] - '0', "of %s: layer %zu", expected, i);
        sum += late[i] ? bytes[i] : 0;
    }
    cr_expect_eq(late[layers], 9);
    cr_expect_eq(chosen, sum);
}

Test(server_tune, chooses_the_least_important)
{
    static const double rising[] = {1, 2, 3, 4}, falling[] = {4, 3, 2, 1}, equal[] = {5, 5, 5, 5};
    static const size_t bytes[] = {10, 20, 30, 40}, gaps[] = {10, 0, 30, 0};
    choose(4, rising, bytes, 100, "1111");
    choose(4, rising, bytes, 99, "1110");
    choose(4, rising, bytes, 59, "1100"); /* neither 30 nor 40 fit any more */
    choose(4, rising, bytes, 9, "0000");
    choose(4, rising, bytes, 0, "0000");
    choose(4, falling, bytes, 70, "0011");
    choose(4, falling, bytes, 65, "0101"); /* 40, not 30, 20 */
    choose(4, equal, bytes, 40, "1100");
    choose(4, rising, gaps, 1000, "1010");
    choose(0, rising, bytes, 7, "");
}

Test(server_tune, odd_importance)
{
    static const double odd[] = {NAN, 1, INFINITY, 0, NAN, -0.0};
    static const size_t bytes[] = {1, 1, 1, 1, 1, 1};
    choose(6, odd, bytes, 1, "000100"); /* 0 and -0 are equal: the first */
    choose(6, odd, bytes, 2, "000101");
    choose(6, odd, bytes, 3, "010101");
    choose(6, odd, bytes, 4, "011101");
    choose(6, odd, bytes, 5, "111101");
    choose(6, odd, bytes, 6, "111111");
}

/* Against the plain rule: again and again the least important of those that are left. */
Test(server_tune, chooses_as_the_plain_rule)
{
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct draw draw = {seed};
        double importance[MOST_LAYERS];
        size_t bytes[MOST_LAYERS], layers = draw_below(&draw, MOST_LAYERS + 1), sum = 0;
        unsigned char late[MOST_LAYERS], plain[MOST_LAYERS], seen[MOST_LAYERS] = {0};
        uint32_t order[MOST_LAYERS];
        unsigned kinds = 1 + draw_below(&draw, 30);
        for (size_t i = 0; i < layers; i++) {
            importance[i] = draw_below(&draw, 12) ? (double)draw_below(&draw, kinds) : NAN;
            bytes[i] = draw_below(&draw, 6) ? draw_below(&draw, 1000) : 0;
        }
        size_t budget = draw_below(&draw, 12000), left = budget;
        for (size_t n = 0; n < layers; n++) {
            size_t least = layers;
            for (size_t i = 0; i < layers; i++)
                if (!seen[i] && (least == layers || importance[i] < importance[least] ||
                                 (isnan(importance[least]) && !isnan(importance[i]))))
                    least = i;
            seen[least] = 1;
            plain[least] = bytes[least] && bytes[least] <= left;
            left -= plain[least] ? bytes[least] : 0;
        }
        sum = weft__tune_choose(importance, bytes, layers, budget, late, order);
        cr_assert_eq(sum, budget - left, "seed %lu", seed);
        cr_assert_eq(memcmp(late, plain, layers), 0, "seed %lu", seed);
    }
}

/* ---- goodput ---- */

Test(server_tune, goodput_is_the_best_of_the_last)
{
    struct weft__goodput goodput = {0};
    cr_expect_eq(weft__goodput_get(&goodput), 0);
    weft__goodput_add(&goodput, 16383, 1);
    weft__goodput_add(&goodput, 1 << 20, 0);
    cr_expect_eq(weft__goodput_get(&goodput), 0);
    weft__goodput_add(&goodput, 16384, 16384);
    cr_expect_float_eq(weft__goodput_get(&goodput), 1e9, 1);
    weft__goodput_add(&goodput, 1000000, 500000);
    cr_expect_float_eq(weft__goodput_get(&goodput), 2e9, 1);
    for (int i = 0; i < 15; i++) {
        weft__goodput_add(&goodput, 1000000, 4000000 - (uint64_t)i);
        weft__goodput_add(&goodput, 100, 1); /* takes no sample's place */
        cr_expect_float_eq(weft__goodput_get(&goodput), 2e9, 1);
    }
    weft__goodput_add(&goodput, 1000000, 8000000);
    cr_expect_float_eq(weft__goodput_get(&goodput), 250000875, 2);
}
