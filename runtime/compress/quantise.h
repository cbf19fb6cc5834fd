/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantisers as the public functions and the operations of schedules read them. */
#ifndef WEFT_RUNTIME_COMPRESS_QUANTISE_H
#define WEFT_RUNTIME_COMPRESS_QUANTISE_H

#include <weft/compress.h>

enum {
    WEFT__BUCKET_STEP = 8, /* elements: whole bytes, however few the bits */
    WEFT__BUCKET_MOST = 1 << 30,
};

/* Reads what was given as argument `name` (NULL: all defaults): every member is set, as
 * ops/quantise.h wants it. WEFT_OK, or WEFT_ERR_INVALID with a text that begins with the
 * function. */
int weft__quantiser_read(const char *who, const char *name, const struct weft_quantiser *given,
                         struct weft_quantiser *quantiser);

#endif
