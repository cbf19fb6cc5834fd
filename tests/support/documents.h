/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedules of a text, as the suites of formats read, write and free them. */
#ifndef WEFT_TESTS_DOCUMENTS_H
#define WEFT_TESTS_DOCUMENTS_H

#include <criterion/criterion.h>
#include <string.h>
#include <weft/format.h>
#include <weft/memory.h>
#include <weft/schedule.h>

struct document {
    struct weft_schedule **schedules;
    size_t count;
};

/* A document that is not read is empty. */
static inline int read_document(struct document *document, const char *text,
                                const struct weft_read_options *options)
{
    *document = (struct document){0};
    return weft_schedule_read_with(text, strlen(text), options, &document->schedules,
                                   &document->count);
}

static inline char *write_document(const struct document *document, weft_format_t format)
{
    char *text;
    size_t length;
    int status = weft_schedule_write((const struct weft_schedule *const *)document->schedules,
                                     document->count, format, &text, &length);

    cr_assert_eq(status, WEFT_OK, "%s", weft_error_text());
    cr_assert_eq(strlen(text), length);
    return text;
}

static inline void free_document(struct document *document)
{
    for (size_t i = 0; i < document->count; i++)
        weft_schedule_destroy(document->schedules[i]);
    weft_memory_free(document->schedules);
}

/* Both texts are the same to the letter; frees them. */
static inline void expect_same_texts(char *one, char *two)
{
    cr_expect_str_eq(one, two);
    weft_memory_free(one);
    weft_memory_free(two);
}

#endif
