/* SPDX-License-Identifier: BSD-3-Clause */
/* Growing text. */
#include "runtime/base/out.h"
#include "runtime/base/alloc.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void weft__out_bytes(struct weft__out *out, const char *bytes, size_t count)
{
    if (out->failed ||
        weft__grow((void **)&out->text, &out->capacity, out->length + count + 1, 1)) {
        out->failed = 1;
        return;
    }
    memcpy(out->text + out->length, bytes, count);
    out->length += count;
    out->text[out->length] = '\0';
}

void weft__out_text(struct weft__out *out, const char *text)
{
    weft__out_bytes(out, text, strlen(text));
}

void weft__out_number(struct weft__out *out, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    weft__out_bytes(out, digits + at, sizeof digits - at);
}

void weft__out_format(struct weft__out *out, const char *format, ...)
{
    char text[512];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0)
        out->failed = 1;
    else
        weft__out_bytes(out, text, strlen(text));
}

void weft__out_quoted(struct weft__out *out, const char *text)
{
    weft__out_bytes(out, "\"", 1);
    for (size_t plain; *text; text += plain) {
        plain = strcspn(text, "\"\\");
        if (!plain) {
            weft__out_bytes(out, "\\", 1);
            plain = 1;
        }
        weft__out_bytes(out, text, plain);
    }
    weft__out_bytes(out, "\"", 1);
}

/* Bytes of the UTF-8 sequence at `text`, 0 if it is none. */
static size_t sequence(const unsigned char *text)
{
    size_t length = text[0] < 0x80                       ? 1
                    : text[0] >= 0xc2 && text[0] <= 0xdf ? 2
                    : (text[0] & 0xf0) == 0xe0           ? 3
                    : text[0] >= 0xf0 && text[0] <= 0xf4 ? 4
                                                         : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

void weft__out_json(struct weft__out *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    weft__out_text(out, "\"");
    while (*at != '\0') {
        size_t length = sequence(at);
        if (length == 0)
            weft__out_text(out, "\\ufffd");
        else if (*at < 0x20 || *at == 0x7f)
            weft__out_format(out, "\\u%04x", *at);
        else if (*at == '"' || *at == '\\')
            weft__out_format(out, "\\%c", *at);
        else
            weft__out_bytes(out, (const char *)at, length);
        at += length != 0 ? length : 1;
    }
    weft__out_text(out, "\"");
}
