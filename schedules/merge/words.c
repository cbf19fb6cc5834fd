/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods as they are written on a command line. */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedules/merge/merge.h"

enum { MOST_PARTS = 3 };

static const struct {
    const char *name;
    weft_merge_method_t method;
    int parts; /* numbers behind the name, at most */
} words[] = {
    {"exact", WEFT_MERGE_EXACT, 0},    {"greedy", WEFT_MERGE_GREEDY, 0},
    {"wfbp", WEFT_MERGE_WFBP, 0},      {"single", WEFT_MERGE_SINGLE, 0},
    {"bucket", WEFT_MERGE_BUCKETS, 2}, {"cycle", WEFT_MERGE_CYCLES, 2},
};
enum { WORDS = sizeof words / sizeof words[0] };

/* ---- reading ---- */

/* A number of bytes, larger than 0, of `length` characters. */
static int read_bytes(const char *text, size_t length, size_t *bytes)
{
    static const char units[] = "kKMG";
    static const int shifts[] = {10, 10, 20, 30};
    const char *unit =
        length ? memchr(units, text[length - 1], sizeof shifts / sizeof *shifts) : NULL;
    size_t number = 0;
    int shift = unit ? shifts[unit - units] : 0;
    if (unit)
        length--;
    for (size_t i = 0; i < length; i++) {
        size_t digit = (size_t)(text[i] - '0');
        if (text[i] < '0' || text[i] > '9' || number > (SIZE_MAX - digit) / 10)
            return -1;
        number = number * 10 + digit;
    }
    if (!number || number > SIZE_MAX >> shift)
        return -1;
    *bytes = number << shift;
    return 0;
}

/* Milliseconds, larger than 0, as microseconds. */
static int read_cycle(const char *text, size_t length, double *us)
{
    char copy[32], *end = NULL, *point;
    if (!length || length >= sizeof copy || strspn(text, "0123456789.eE+-") < length)
        return -1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    point = strchr(copy, '.');
    if (point) /* what strtod() wants is the locale's affair */
        *point = *localeconv()->decimal_point;
    double value = 1000 * strtod(copy, &end);
    if (*end || !(value > 0 && value <= DBL_MAX))
        return -1;
    *us = value;
    return 0;
}

static int read_part(weft_merge_method_t method, int part, const char *text, size_t length,
                     struct weft_merge_config *config)
{
    if (part == 0)
        return read_bytes(text, length, &config->bucket_bytes);
    if (method == WEFT_MERGE_BUCKETS)
        return read_bytes(text, length, &config->first_bucket_bytes);
    return read_cycle(text, length, &config->cycle_us);
}

int weft_merge_method_parse(const char *text, struct weft_merge_config *config)
{
    struct weft_merge_config parsed = {.struct_size = sizeof parsed};
    if (!text || !config)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `%s` is NULL", __func__,
                              text ? "config" : "text");
    size_t length = strcspn(text, ":"), word = 0;
    while (word < WORDS &&
           (strlen(words[word].name) != length || memcmp(words[word].name, text, length) != 0))
        word++;
    int wrong = word == WORDS;
    for (int part = 0; !wrong && text[length]; part++) {
        const char *from = text + length + 1;
        size_t size = strcspn(from, ":");
        parsed.method = words[word].method;
        wrong =
            part == words[word].parts || read_part(words[word].method, part, from, size, &parsed);
        length += 1 + size;
    }
    if (wrong)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: `%.60s` is no method, expected exact, greedy, wfbp, single, "
                              "bucket[:BYTES[:FIRST]] or cycle[:BYTES[:MILLISECONDS]]",
                              __func__, text);
    parsed.method = words[word].method;
    return weft_sized_fill(__func__, "config", config, &parsed, sizeof parsed);
}

/* ---- writing ---- */

/* Microseconds as milliseconds, in as many digits as read_cycle() needs to get the same again; 15
 * show a number as it was typed. */
static void write_cycle(double us, char *text, size_t size)
{
    double again = 0;
    for (int digits = 15; digits <= 17 && again != us; digits++) {
        snprintf(text, size, "%.*g", digits, us / 1000);
        again = 1000 * strtod(text, NULL);
    }
    char *point = strchr(text, *localeconv()->decimal_point);
    if (point)
        *point = '.';
}

int weft_merge_method_format(const struct weft_merge_config *given, char *text, size_t size)
{
    struct weft_merge_config config;
    char made[WEFT_MERGE_METHOD_TEXT], cycle[32];
    const char *name = "given";
    int status = weft__merge_config_read(__func__, given, &config);
    if (status)
        return status;
    if (!text)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `text` is NULL", __func__);
    for (size_t word = 0; word < WORDS; word++)
        if (words[word].method == config.method)
            name = words[word].name;
    if (config.method == WEFT_MERGE_CYCLES) {
        write_cycle(config.cycle_us, cycle, sizeof cycle);
        snprintf(made, sizeof made, "%s:%zu:%s", name, config.bucket_bytes, cycle);
    } else if (config.method != WEFT_MERGE_BUCKETS) {
        snprintf(made, sizeof made, "%s", name);
    } else if (config.first_bucket_bytes == config.bucket_bytes) {
        snprintf(made, sizeof made, "%s:%zu", name, config.bucket_bytes);
    } else {
        snprintf(made, sizeof made, "%s:%zu:%zu", name, config.bucket_bytes,
                 config.first_bucket_bytes);
    }
    if (strlen(made) >= size)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `size` is %zu, expected %zu",
                              __func__, size, strlen(made) + 1);
    memcpy(text, made, strlen(made) + 1);
    return WEFT_OK;
}
