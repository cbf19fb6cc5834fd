/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions of quantisation: arguments here, arithmetic in ops/. */
#include <weft/compress.h>

#include <stdint.h>

#include "ops/quantise.h"
#include "runtime/base/error.h"
#include "runtime/compress/quantise.h"

enum {
    BITS = 4,
    BUCKET = 512,
};

void weft_quantiser_init_sized(struct weft_quantiser *quantiser, size_t size)
{
    weft_sized_init(quantiser, size);
}

int weft__quantiser_read(const char *who, const char *name, const struct weft_quantiser *given,
                         struct weft_quantiser *quantiser)
{
    const int status = weft_sized_read(who, name, given, quantiser, sizeof *quantiser);
    const int bits = status == WEFT_OK && quantiser->bits != 0 ? quantiser->bits : BITS;

    if (status != WEFT_OK)
        return status;
    if (bits != WEFT_QUANTISE_SIGN && bits != 2 && bits != 4 && bits != 8)
        return WEFT__INVALID("%s: %s->bits is %d, expected 2, 4, 8 or WEFT_QUANTISE_SIGN", who,
                             name, bits);
    if (quantiser->bucket % WEFT__BUCKET_STEP != 0 || quantiser->bucket > WEFT__BUCKET_MOST)
        return WEFT__INVALID("%s: %s->bucket is %zu, expected a multiple of %d up to %d", who, name,
                             quantiser->bucket, WEFT__BUCKET_STEP, WEFT__BUCKET_MOST);
    if (bits != WEFT_QUANTISE_SIGN && quantiser->norm != WEFT_QUANTISE_MAX &&
        quantiser->norm != WEFT_QUANTISE_L2)
        return WEFT__INVALID("%s: %s->norm is %d, expected a weft_quantise_norm_t", who, name,
                             (int)quantiser->norm);
    if (quantiser->nan != WEFT_NAN_ERROR && quantiser->nan != WEFT_NAN_ZERO)
        return WEFT__INVALID("%s: %s->nan is %d, expected WEFT_NAN_ERROR or WEFT_NAN_ZERO", who,
                             name, (int)quantiser->nan);
    quantiser->bits = bits;
    quantiser->bucket = quantiser->bucket != 0 ? quantiser->bucket : BUCKET;
    return WEFT_OK;
}

static int overlap(const void *values, size_t count, const void *bytes, size_t length)
{
    const uintptr_t a = (uintptr_t)values, b = (uintptr_t)bytes;

    return count > 0 && a < b + length && b < a + count * sizeof(float);
}

/* The quantiser, and that both memories are there, each of its own. */
static int read_call(const char *who, const struct weft_quantiser *given, const void *values,
                     size_t count, const char *bytes_name, const void *bytes,
                     struct weft_quantiser *quantiser)
{
    const int status = weft__quantiser_read(who, "quantiser", given, quantiser);

    if (status != WEFT_OK)
        return status;
    if (count > SIZE_MAX / sizeof(float))
        return WEFT__INVALID("%s: `count` is %zu, expected what memory can hold", who, count);
    if (count > 0 && !values)
        return WEFT__INVALID("%s: `values` is NULL, expected %zu elements", who, count);
    if (count > 0 && !bytes)
        return WEFT__INVALID("%s: `%s` is NULL, expected %zu bytes", who, bytes_name,
                             weft__quantise_bytes(quantiser, count));
    if (overlap(values, count, bytes, weft__quantise_bytes(quantiser, count)))
        return WEFT__INVALID("%s: `values` and `%s` overlap, expected memory of their own", who,
                             bytes_name);
    return WEFT_OK;
}

size_t weft_quantised_bytes(const struct weft_quantiser *quantiser, size_t count)
{
    struct weft_quantiser full;

    if (weft__quantiser_read(__func__, "quantiser", quantiser, &full) != WEFT_OK)
        return 0;
    return weft__quantise_bytes(&full, count);
}

int weft_quantise(const struct weft_quantiser *quantiser, uint64_t stream, const float *values,
                  size_t count, void *out, uint64_t *bad)
{
    struct weft_quantiser full;
    int status = read_call(__func__, quantiser, values, count, "out", out, &full);
    uint64_t found;

    if (status != WEFT_OK)
        return status;
    found = weft__quantise(&full, stream, 0, values, count, out);
    if (bad)
        *bad = found;
    if (found > 0 && full.nan == WEFT_NAN_ERROR)
        return weft__error(WEFT_ERR_COMPUTE, "%s: %llu of %zu values are NaN or infinite", __func__,
                           (unsigned long long)found, count);
    return WEFT_OK;
}

int weft_dequantise(const struct weft_quantiser *quantiser, const void *in, size_t count,
                    float *values)
{
    struct weft_quantiser full;
    const int status = read_call(__func__, quantiser, values, count, "in", in, &full);

    if (status == WEFT_OK)
        weft__dequantise(&full, in, count, values);
    return status;
}

int weft_dequantise_add(const struct weft_quantiser *quantiser, const void *in, size_t count,
                        float *values)
{
    struct weft_quantiser full;
    const int status = read_call(__func__, quantiser, values, count, "in", in, &full);

    if (status == WEFT_OK)
        weft__dequantise_add(&full, in, count, values);
    return status;
}
