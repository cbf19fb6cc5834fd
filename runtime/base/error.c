/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statuses and their texts. A thread has one buffer; the function that first sees an error writes
 * it, and those that only pass the status on leave it alone, so the text names the origin.
 */
#include "runtime/base/error.h"
#include "runtime/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <weft/version.h>

enum { TEXT_BYTES = WEFT__ERROR_BYTES };

static _Thread_local char thread_text[TEXT_BYTES];
static _Thread_local unsigned thread_count;

/* Formats aside first: an argument may point into the buffer that is written. No format gives an
 * empty text. */
static int set_text(int status, const char *format, va_list arguments)
{
    char text[TEXT_BYTES];

    if (!format || vsnprintf(text, sizeof text, format, arguments) < 0)
        text[0] = '\0';
    memcpy(thread_text, text, strlen(text) + 1);
    thread_count++;
    return status;
}

unsigned weft__error_count(void)
{
    return thread_count;
}

int weft__error(int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_text(status, format, arguments);
    va_end(arguments);
    return status;
}

/* Appends to a text of `size` bytes, of which `used` are taken; what does not fit is cut. */
static size_t append(char *text, size_t size, size_t used, const char *word)
{
    size_t length = strlen(word);
    if (length > size - 1 - used)
        length = size - 1 - used;
    memcpy(text + used, word, length); /* NOLINT: ended by weft__error_of() */
    return used + length;
}

int weft__error_of(int status, const char *before, const char *name, const char *after)
{
    size_t used = append(thread_text, TEXT_BYTES, 0, before);
    used = append(thread_text, TEXT_BYTES, used, name);
    used = append(thread_text, TEXT_BYTES, used, after);
    thread_text[used] = '\0';
    return status;
}

void weft__error_exchange(char **saved)
{
    char text[TEXT_BYTES];

    if (thread_text[0] == '\0' && (!*saved || **saved == '\0'))
        return;
    if (!*saved && !(*saved = weft__calloc(1, TEXT_BYTES)))
        return; /* then it is not kept */
    memcpy(text, thread_text, TEXT_BYTES);
    memcpy(thread_text, *saved, TEXT_BYTES);
    memcpy(*saved, text, TEXT_BYTES);
}

int weft__error_memory(const char *what)
{
    return weft__error(WEFT_ERR_MEMORY, "out of memory for %s", what);
}

int weft_error_set_text(int status, const char *text)
{
    return weft__error(status, "%s", text ? text : "");
}

void weft__error_save(struct weft__error_saved *saved)
{
    memcpy(saved->text, thread_text, TEXT_BYTES);
}

void weft__error_restore(const struct weft__error_saved *saved)
{
    memcpy(thread_text, saved->text, TEXT_BYTES);
}

int weft_error_set(int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set_text(status, format, arguments);
    va_end(arguments);
    return status;
}

const char *weft_error_text(void)
{
    return thread_text;
}

const char *weft_status_name(int status)
{
    switch (status) {
#define NAME_CASE(name, code, text)                                                                \
    case code:                                                                                     \
        return #name;
        WEFT_STATUS_MAP(NAME_CASE)
#undef NAME_CASE
    default:
        return "WEFT_UNKNOWN";
    }
}

const char *weft_status_text(int status)
{
    switch (status) {
#define TEXT_CASE(name, code, text)                                                                \
    case code:                                                                                     \
        return text;
        WEFT_STATUS_MAP(TEXT_CASE)
#undef TEXT_CASE
    default:
        return "unknown status";
    }
}

const char *weft_version(void)
{
    return WEFT_VERSION;
}

int weft_version_number(void)
{
    return WEFT_VERSION_NUMBER;
}
