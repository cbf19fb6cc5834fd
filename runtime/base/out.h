/* SPDX-License-Identifier: BSD-3-Clause */
/* Growing text: what formats, reports and traces are written with. */
#ifndef WEFT_RUNTIME_BASE_OUT_H
#define WEFT_RUNTIME_BASE_OUT_H

#include <stddef.h>
#include <stdint.h>
#include <weft/status.h>

/* Growing text. Failures stick in `failed`, so that writers need no check a call. */
struct weft__out {
    char *text;
    size_t length, capacity;
    int failed;
};

void weft__out_bytes(struct weft__out *out, const char *bytes, size_t count);
void weft__out_text(struct weft__out *out, const char *text);
void weft__out_number(struct weft__out *out, uint64_t number);
void weft__out_format(struct weft__out *out, const char *format, ...) WEFT_PRINTF(2, 3);
/* In double quotes, with backslashes before quotes and backslashes. */
void weft__out_quoted(struct weft__out *out, const char *text);
/* A JSON string: quoted, whatever the bytes are. */
void weft__out_json(struct weft__out *out, const char *text);

#endif
