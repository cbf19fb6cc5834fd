/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Taking values out of a JSON tree. The path to where the walk is stands in the reader, so that an
 * error can name it, and its line.
 */
#include "runtime/format/json_get.h"

#include "runtime/base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weft__json_push_key(struct weft__json_reader *r, const char *key)
{
    r->path[r->depth++] = (struct weft__json_step){key, 0};
}

void weft__json_push_index(struct weft__json_reader *r, size_t index)
{
    r->path[r->depth++] = (struct weft__json_step){NULL, index};
}

void weft__json_pop(struct weft__json_reader *r)
{
    r->depth--;
}

int weft__json_fail(const struct weft__json_reader *r, const char *format, ...)
{
    char where[160] = "", text[400];
    size_t used = 0;
    va_list arguments;

    for (size_t i = 0; i < r->depth && used < sizeof where; i++)
        if (r->path[i].key)
            used += (size_t)snprintf(where + used, sizeof where - used, "%s%.40s", i ? "." : "",
                                     r->path[i].key);
        else
            used += (size_t)snprintf(where + used, sizeof where - used, "[%zu]", r->path[i].index);
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) < 0)
        text[0] = '\0';
    va_end(arguments);
    return weft__error(WEFT_ERR_FORMAT, "line %zu: %s %s",
                       weft__json_line(r->document->text, r->document->length, r->path, r->depth),
                       *where ? where : "the document", text);
}

/* A short text of a value that was found. */
static const char *shown(const json_t *value, char text[48])
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        snprintf(text, 48, "\"%.40s\"", json_string_value(value));
        break;
    case JSON_INTEGER:
        snprintf(text, 48, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(text, 48, "%g", json_real_value(value));
        break;
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    }
    return text;
}

int weft__json_expected(const struct weft__json_reader *r, const json_t *found, const char *what)
{
    char text[48];

    return found ? weft__json_fail(r, "is %s, expected %s", shown(found, text), what)
                 : weft__json_fail(r, "is missing, expected %s", what);
}

int weft__json_built(const struct weft__json_reader *r, int status)
{
    char text[400];

    if (status >= 0 || status == WEFT_ERR_MEMORY || status == WEFT_ERR_FORMAT)
        return status;
    snprintf(text, sizeof text, "%s", weft__builder_text());
    return weft__json_fail(r, "is wrong: %s", text);
}

/* ---- values of keys ---- */

int weft__json_check_object(struct weft__json_reader *r, const json_t *object,
                            const char *const *known)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return weft__json_expected(r, object, "an object");
    json_object_foreach((json_t *)object, key, value)
    {
        char list[160] = "";
        size_t i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (known[i])
            continue;
        for (i = 0; known[i]; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
                     known[i]);
        return weft__json_fail(r, "has the key \"%.40s\", expected one of %s", key, list);
    }
    return WEFT_OK;
}

int weft__json_get_number(struct weft__json_reader *r, const json_t *object, const char *key,
                          int optional, uint64_t max, uint64_t *number)
{
    const json_t *value = json_object_get(object, key);
    char what[48];
    int status = WEFT_OK;

    if (!value && optional)
        return WEFT_OK;
    weft__json_push_key(r, key);
    snprintf(what, sizeof what, "a number from 0 to %" PRIu64, max);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max)
        status = weft__json_expected(r, value, what);
    else
        *number = (uint64_t)json_integer_value(value);
    weft__json_pop(r);
    return status;
}

int weft__json_get_text(struct weft__json_reader *r, const json_t *object, const char *key,
                        int optional, const char **text)
{
    const json_t *value = json_object_get(object, key);
    int status = WEFT_OK;

    *text = NULL;
    if (!value && optional)
        return WEFT_OK;
    weft__json_push_key(r, key);
    if (json_is_string(value))
        *text = json_string_value(value);
    else
        status = weft__json_expected(r, value, "a string");
    weft__json_pop(r);
    return status;
}

int weft__json_get_flag(struct weft__json_reader *r, const json_t *object, const char *key,
                        int *flag)
{
    const json_t *value = json_object_get(object, key);
    int status = WEFT_OK;

    *flag = json_is_true(value);
    if (!value || json_is_boolean(value))
        return WEFT_OK;
    weft__json_push_key(r, key);
    status = weft__json_expected(r, value, "true or false");
    weft__json_pop(r);
    return status;
}

int weft__json_get_array(struct weft__json_reader *r, const json_t *object, const char *key,
                         int optional, const json_t **array)
{
    const json_t *value = json_object_get(object, key);
    int status = WEFT_OK;

    *array = NULL;
    if (!value && optional)
        return WEFT_OK;
    weft__json_push_key(r, key);
    if (json_is_array(value))
        *array = value;
    else
        status = weft__json_expected(r, value, "an array");
    weft__json_pop(r);
    return status;
}

int weft__json_get_value(struct weft__json_reader *r, const json_t *object, const char *key,
                         weft_value_t *value)
{
    const char *name;
    int status = weft__json_get_text(r, object, key, 1, &name);

    *value = 0;
    if (status || !name)
        return status;
    *value = weft__schedule_find_value(r->schedule, name, strlen(name));
    if (*value)
        return WEFT_OK;
    weft__json_push_key(r, key);
    status = weft__json_fail(r, "is \"%.40s\", expected the name of a value", name);
    weft__json_pop(r);
    return status;
}

int weft__json_get_op(struct weft__json_reader *r, const json_t *object, int optional,
                      const struct weft_op **op)
{
    const char *name;
    char list[320];
    int status = weft__json_get_text(r, object, "op", optional, &name);

    *op = NULL;
    if (status || !name)
        return status;
    *op = weft__document_op(r->document, name, strlen(name));
    if (*op)
        return WEFT_OK;
    weft__document_op_names(r->document, list, sizeof list);
    weft__json_push_key(r, "op");
    status = weft__json_fail(r, "is \"%.40s\", expected one of %s", name, list);
    weft__json_pop(r);
    return status;
}

int weft__json_get_max(struct weft__json_reader *r, const json_t *object, uint64_t *max)
{
    const char *digits = json_string_value(json_object_get(object, "max"));
    char *end;

    *max = UINT64_MAX;
    if (!digits)
        return weft__json_get_number(r, object, "max", 1, INT64_MAX, max);
    errno = 0;
    *max = strtoull(digits, &end, 10);
    if (*digits >= '0' && *digits <= '9' && !*end && !errno)
        return WEFT_OK;
    weft__json_push_key(r, "max");
    return weft__json_fail(r, "is \"%.40s\", expected a number of 64 bits", digits);
}
