/* SPDX-License-Identifier: BSD-3-Clause */
/* What quantisation is on the average: its expectation, its variance, and that what is drawn for
 * one element says nothing of another. Draws come from seeds that stand here, so a bound of six
 * standard deviations is kept for ever or never. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define SIGMAS          6

static const int drawn_bits[] = {2, 4, 8};

static struct weft_quantiser make(int bits, size_t bucket, weft_quantise_norm_t norm, uint64_t seed)
{
    struct weft_quantiser quantiser;

    weft_quantiser_init(&quantiser);
    quantiser.bits = bits;
    quantiser.bucket = bucket;
    quantiser.norm = norm;
    quantiser.seed = seed;
    return quantiser;
}

static float uniform(void)
{
    return (float)rand() / (float)RAND_MAX * 2 - 1;
}

static double norm_of(const float *values, int count, weft_quantise_norm_t norm)
{
    double most = 0, squares = 0;

    for (int i = 0; i < count; i++) {
        most = fmax(most, fabs((double)values[i]));
        squares += (double)values[i] * (double)values[i];
    }
    return norm == WEFT_QUANTISE_MAX ? most : sqrt(squares);
}

static void pass(const struct weft_quantiser *quantiser, uint64_t stream, const float *values,
                 size_t count, float *back)
{
    static uint8_t codes[1 << 18];

    cr_assert_leq(weft_quantised_bytes(quantiser, count), sizeof codes);
    cr_assert_eq(weft_quantise(quantiser, stream, values, count, codes, NULL), WEFT_OK);
    cr_assert_eq(weft_dequantise(quantiser, codes, count, back), WEFT_OK);
}

/* The mean of T draws is off by at most 6 (n / 2 s) / sqrt(T) and what the header allows; that of
 * the squared errors of m elements by at most 6 (n / s)^2 / 4 / sqrt(T m) from its expectation. */
static void average(int bits, weft_quantise_norm_t norm)
{
    enum { M = 96, T = 20000 };
    const double s = (1 << (bits - 1)) - 1;
    float values[M], back[M];
    double sums[M] = {0}, squares = 0, expected = 0, length = 0;

    srand(7);
    for (int i = 0; i < M; i++)
        values[i] = uniform() * uniform() * uniform();
    const double n = norm_of(values, M, norm);
    const struct weft_quantiser quantiser = make(bits, M, norm, 11);

    for (int t = 0; t < T; t++) {
        pass(&quantiser, (uint64_t)t, values, M, back);
        for (int i = 0; i < M; i++) {
            const double error = (double)back[i] - (double)values[i];

            cr_assert_leq(fabs(error), n / s * 1.001, "an error of more than a level");
            sums[i] += error;
            squares += error * error;
        }
    }
    const double allowed = n / s * (bits == 8 ? 0x1p-14 : 0x1p-17) + n * 0x1p-22;

    for (int i = 0; i < M; i++) {
        const double place = s * fabs((double)values[i]) / n;
        const double up = place - floor(place);

        cr_expect_leq(fabs(sums[i] / T), SIGMAS * n / (2 * s) / sqrt(T) + allowed,
                      "%d bits, norm %d, element %d: off by %g on the average", bits, (int)norm, i,
                      sums[i] / T);
        expected += n / s * (n / s) * up * (1 - up);
        length += (double)values[i] * (double)values[i];
    }
    squares /= T;
    cr_expect_leq(fabs(squares - expected),
                  SIGMAS * n / s * (n / s) / 4 * sqrt((double)M / T) + M * n / s * allowed,
                  "%d bits, norm %d: variance %g, expected %g", bits, (int)norm, squares, expected);
    cr_expect_leq(squares, 1.05 * M * n / s * (n / s) / 4);
    if (norm == WEFT_QUANTISE_L2)
        cr_expect_leq(squares, 1.05 * fmin(M / (s * s), sqrt(M) / s) * length);
}

Test(quantise_draws, expectation_and_variance_are_those_of_qsgd)
{
    for (size_t b = 0; b < COUNT_OF(drawn_bits); b++) {
        average(drawn_bits[b], WEFT_QUANTISE_MAX);
        average(drawn_bits[b], WEFT_QUANTISE_L2);
    }
}

/* Where all halves are drawn up or down, two elements agree half of the time. */
enum { HALVES = 1 << 16 };

static void draw_halves(uint64_t seed, uint64_t stream, uint8_t *ups)
{
    static float values[HALVES], back[HALVES];
    const struct weft_quantiser quantiser = make(2, 512, WEFT_QUANTISE_MAX, seed);

    for (int i = 0; i < HALVES; i++)
        values[i] = i % 512 == 0 ? 1.0f : 0.5f;
    pass(&quantiser, stream, values, HALVES, back);
    for (int i = 0; i < HALVES; i++)
        ups[i] = back[i] == 1;
}

static void expect_unlike(const uint8_t *a, const uint8_t *b, int count, const char *what, int lag)
{
    int same = 0, tried = 0;

    for (int i = 0; i < count; i++) {
        if (i % 512 == 0 || (i + lag) % 512 == 0)
            continue;
        same += a[i] == b[i];
        tried++;
    }
    cr_expect_leq(fabs(same - tried / 2.0), SIGMAS * sqrt(tried) / 2, "%s, lag %d: %d of %d alike",
                  what, lag, same, tried);
}

Test(quantise_draws, no_draw_tells_of_another)
{
    static uint8_t ups[HALVES], others[HALVES];
    static const uint64_t far[] = {1, 2, 3, 16, 512, UINT64_C(1) << 32, UINT64_C(1) << 63};

    draw_halves(1, 1, ups);
    memset(others, 1, sizeof others);
    expect_unlike(ups, others, HALVES, "ones", 0);
    for (int lag = 1; lag <= 2048; lag++)
        expect_unlike(ups, ups + lag, HALVES - lag, "one stream", lag);
    for (size_t i = 0; i < COUNT_OF(far); i++) {
        draw_halves(1, 1 + far[i], others);
        expect_unlike(ups, others, HALVES, "streams", 0);
        draw_halves(1 + far[i], 1, others);
        expect_unlike(ups, others, HALVES, "seeds", 0);
    }
    draw_halves(1, 1, others);
    cr_expect_eq(memcmp(ups, others, sizeof ups), 0, "the same seed and stream");
}

/* How often a level is drawn is as fine as the header says: each of 64 shares, over all draws. */
Test(quantise_draws, shares_of_all_sizes_are_kept)
{
    enum { N = 1 << 16 };
    static float values[N], back[N];
    const struct weft_quantiser quantiser = make(2, 512, WEFT_QUANTISE_MAX, 5);

    for (int share = 1; share < 64; share++) {
        const double p = share / 64.0;
        int ups = 0, tried = 0;

        for (int i = 0; i < N; i++)
            values[i] = i % 512 == 0 ? -1.0f : (float)p;
        pass(&quantiser, (uint64_t)share, values, N, back);
        for (int i = 0; i < N; i++) {
            ups += i % 512 != 0 && back[i] == 1;
            tried += i % 512 != 0;
        }
        cr_expect_leq(fabs(ups - tried * p), SIGMAS * sqrt(tried * p * (1 - p)),
                      "share %g: %d of %d", p, ups, tried);
    }
}

Test(quantise_draws, values_on_a_level_stay)
{
    enum { N = 255 };
    float values[N], back[N];

    for (size_t b = 0; b < COUNT_OF(drawn_bits); b++) {
        const int s = (1 << (drawn_bits[b] - 1)) - 1;
        const struct weft_quantiser quantiser = make(drawn_bits[b], 256, WEFT_QUANTISE_MAX, 2);

        for (int scale = -100; scale <= 100; scale += 50) {
            for (int i = 0; i < N; i++)
                values[i] = ldexpf((float)(i % (2 * s + 1) - s), scale);
            for (uint64_t stream = 0; stream < 200; stream++) {
                pass(&quantiser, stream, values, N, back);
                for (int i = 0; i < N; i++)
                    cr_assert_float_eq(back[i], values[i], ldexpf((float)s, scale - 23));
            }
        }
    }
}

Test(quantise_draws, signs_have_the_mean_magnitude)
{
    static const float values[] = {1, -2, 3, -4, 0, 5, -6, 7, -8};
    const struct weft_quantiser quantiser = make(WEFT_QUANTISE_SIGN, 8, WEFT_QUANTISE_L2, 0);
    float back[9];

    for (uint64_t stream = 0; stream < 10; stream++) {
        pass(&quantiser, stream, values, 9, back);
        for (int i = 0; i < 8; i++)
            cr_expect_eq(back[i], values[i] < 0 ? -3.5f : 3.5f);
        cr_expect_eq(back[8], -8);
    }
}

Test(quantise_draws, norms_are_never_infinite)
{
    enum { N = 512 };
    float values[N], back[N];

    for (size_t b = 0; b < COUNT_OF(drawn_bits); b++) {
        for (int i = 0; i < N; i++)
            values[i] = i % 2 ? FLT_MAX : -FLT_MAX;
        const struct weft_quantiser quantiser = make(drawn_bits[b], N, WEFT_QUANTISE_L2, 2);

        pass(&quantiser, 1, values, N, back);
        cr_expect_eq(memcmp(values, back, sizeof back), 0);
        for (int i = 0; i < N; i++)
            values[i] = ldexpf((float)i - 200, -149);
        pass(&quantiser, 1, values, N, back);
        for (int i = 0; i < N; i++)
            cr_expect_leq(fabs((double)back[i] - (double)values[i]),
                          norm_of(values, N, WEFT_QUANTISE_L2) / ((1 << (drawn_bits[b] - 1)) - 1) +
                              0x1p-149);
    }
}
