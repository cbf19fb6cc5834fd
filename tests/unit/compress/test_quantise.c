/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantisation: what it gives, and what it refuses. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

static const int all_bits[] = {WEFT_QUANTISE_SIGN, 2, 4, 8};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

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

Test(quantise, bytes_are_a_norm_a_bucket_and_the_codes)
{
    const struct weft_quantiser quantiser = make(2, 16, WEFT_QUANTISE_MAX, 0);

    cr_expect_eq(weft_quantised_bytes(NULL, 0), 0);
    cr_expect_eq(weft_quantised_bytes(NULL, 1), 5);
    cr_expect_eq(weft_quantised_bytes(NULL, 512), 4 + 256);
    cr_expect_eq(weft_quantised_bytes(NULL, 513), 4 + 256 + 4 + 1);
    cr_expect_eq(weft_quantised_bytes(&quantiser, 33), 2 * (4 + 4) + 4 + 1);
    cr_expect_eq(weft_quantised_bytes(&quantiser, 21), 4 + 4 + 4 + 2);
}

Test(quantise, levels_are_packed_as_documented)
{
    static const float values[] = {7, -7, 0, 1, -1, 3, -6, 5, 2};
    static const uint8_t codes[] = {0x97, 0x10, 0x3f, 0x5a, 0x02};
    uint8_t out[4 + sizeof codes];
    float norm;

    for (uint64_t stream = 0; stream < 100; stream++) {
        cr_assert_eq(weft_quantise(NULL, stream, values, COUNT_OF(values), out, NULL), WEFT_OK);
        memcpy(&norm, out, sizeof norm);
        cr_expect_eq(norm, 7);
        cr_expect_eq(memcmp(out + 4, codes, sizeof codes), 0);
    }
}

Test(quantise, what_was_dequantised_is_quantised_to_the_same)
{
    enum { N = 3000 };
    float values[N], back[N], again[N];
    uint8_t *out = malloc(2 * (size_t)N), *twice = malloc(2 * (size_t)N);

    cr_assert(out && twice);
    srand(1);
    for (int i = 0; i < N; i++)
        values[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (size_t b = 0; b < COUNT_OF(all_bits); b++) {
        const struct weft_quantiser quantiser = make(all_bits[b], 24, WEFT_QUANTISE_MAX, 3);
        const size_t bytes = weft_quantised_bytes(&quantiser, N);

        cr_assert_leq(bytes, 2 * (size_t)N);
        cr_assert_eq(weft_quantise(&quantiser, 1, values, N, out, NULL), WEFT_OK);
        cr_assert_eq(weft_dequantise(&quantiser, out, N, back), WEFT_OK);
        cr_assert_eq(weft_quantise(&quantiser, 2, back, N, twice, NULL), WEFT_OK);
        if (all_bits[b] != WEFT_QUANTISE_SIGN)
            cr_expect_eq(memcmp(out, twice, bytes), 0, "%d bits", all_bits[b]);
        memcpy(again, values, sizeof again);
        cr_assert_eq(weft_dequantise_add(&quantiser, out, N, again), WEFT_OK);
        for (int i = 0; i < N; i++)
            cr_expect_eq(again[i], values[i] + back[i]);
    }
    free(twice);
    free(out);
}

Test(quantise, not_finite_is_an_error_or_zero)
{
    const float values[] = {1, NAN, -2, INFINITY, 0.5f, -INFINITY};
    struct weft_quantiser quantiser = make(0, 0, WEFT_QUANTISE_MAX, 0);
    float back[COUNT_OF(values)];
    uint8_t out[16];
    uint64_t bad = 0;

    cr_expect_eq(weft_quantise(&quantiser, 0, values, COUNT_OF(values), out, &bad),
                 WEFT_ERR_COMPUTE);
    cr_expect_eq(bad, 3);
    quantiser.nan = WEFT_NAN_ZERO;
    bad = 0;
    cr_expect_eq(weft_quantise(&quantiser, 0, values, COUNT_OF(values), out, &bad), WEFT_OK);
    cr_expect_eq(bad, 3);
    cr_expect_eq(weft_dequantise(&quantiser, out, COUNT_OF(values), back), WEFT_OK);
    cr_expect_eq(back[1], 0);
    cr_expect_eq(back[2], -2);
    cr_expect_eq(back[3], 0);
    cr_expect_eq(back[5], 0);
}

Test(quantise, refusals_name_what_is_wrong)
{
    struct weft_quantiser quantiser = make(3, 0, WEFT_QUANTISE_MAX, 0);
    float value = 1;
    uint8_t out[8];

    cr_expect_eq(weft_quantised_bytes(&quantiser, 1), 0);
    cr_expect(strstr(weft_error_text(), "quantiser->bits is 3"));
    quantiser = make(4, 12, WEFT_QUANTISE_MAX, 0);
    cr_expect_eq(weft_quantise(&quantiser, 0, &value, 1, out, NULL), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "quantiser->bucket is 12"));
    cr_expect_eq(weft_quantise(NULL, 0, NULL, 1, out, NULL), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "`values` is NULL"));
    cr_expect_eq(weft_dequantise(NULL, NULL, 1, &value), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "`in` is NULL"));
    cr_expect_eq(weft_quantise(NULL, 0, NULL, 0, NULL, NULL), WEFT_OK);
}

Test(quantise, memory_that_overlaps_is_refused)
{
    union {
        float values[64];
        uint8_t bytes[256];
    } memory = {{0}};

    cr_expect_eq(weft_quantise(NULL, 0, memory.values, 64, memory.bytes, NULL), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "`values` and `out` overlap"));
    cr_expect_eq(weft_dequantise(NULL, memory.bytes + 255, 64, memory.values), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "`values` and `in` overlap"));
    /* 32 values take 4 + 16 bytes. */
    cr_expect_eq(weft_dequantise_add(NULL, memory.bytes, 32, memory.values + 4), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "`values` and `in` overlap"));
    cr_expect_eq(weft_dequantise_add(NULL, memory.bytes, 32, memory.values + 5), WEFT_OK);
    cr_expect_eq(weft_quantise(NULL, 0, memory.values + 5, 32, memory.bytes, NULL), WEFT_OK);
    cr_expect_eq(weft_quantise(NULL, 0, memory.values, 0, memory.bytes, NULL), WEFT_OK);
}

Test(quantise, signs_have_no_norm_to_choose)
{
    struct weft_quantiser quantiser = make(WEFT_QUANTISE_SIGN, 0, (weft_quantise_norm_t)7, 0);

    cr_expect_eq(weft_quantised_bytes(&quantiser, 8), 5);
    quantiser.bits = 8;
    cr_expect_eq(weft_quantised_bytes(&quantiser, 8), 0);
    cr_expect(strstr(weft_error_text(), "quantiser->norm is 7"));
}
