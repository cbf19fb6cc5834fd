/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reader trusts nothing. Both forms end in add(), which holds what must be true of a layer; a
 * form only says where it is when something is not ("layers[3].elements", "line 4").
 */
#include "tools/cli/layers.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <weft/weft.h>

/* Whole numbers are exact in a double below this; so are sums of them in any table. */
#define MOST_ELEMENTS 9007199254740992.0 /* 2^53 */
/* Thirty years. */
#define MOST_US 1e15

enum { SHOWN = 40 };

/* A table while it is read. */
struct reader {
    const char *path;
    struct layers *layers;
    size_t capacity;
};

static int no_memory(const struct reader *reader)
{
    return weft_error_set(WEFT_ERR_MEMORY, "%s: no memory for %zu layers", reader->path,
                          reader->layers->count + 1);
}

/* Room for one more. */
static int reserve(struct reader *reader)
{
    struct layers *layers = reader->layers;

    if (layers->count < reader->capacity)
        return WEFT_OK;
    size_t wanted = reader->capacity ? 2 * reader->capacity : 64;
    struct layer *larger = weft_memory_alloc(wanted, sizeof *larger);
    if (!larger)
        return no_memory(reader);
    if (layers->count)
        memcpy(larger, layers->at, layers->count * sizeof *larger);
    weft_memory_free(layers->at);
    layers->at = larger;
    reader->capacity = wanted;
    return WEFT_OK;
}

static char *copy_of(const char *text, size_t length)
{
    char *copy = weft_memory_alloc(length + 1, 1);

    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* A layer's name is shown in tables and pictures. */
static int is_printable(const char *name, size_t length)
{
    json_t *string = json_stringn(name, length); /* refuses what is no UTF-8 */

    json_decref(string);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return 0;
    return string != NULL;
}

/* One layer; @name NULL: it has none, and is called by its number. @where: "layers[3]", "line 4".
 */
static int add(struct reader *reader, const char *where, const char *name, size_t length,
               double elements, double ready_us)
{
    char number[32];

    if (name && !is_printable(name, length)) {
        return weft_error_set(WEFT_ERR_FORMAT,
                              "%s: %s: the name has control characters or is no UTF-8; expected "
                              "printable text",
                              reader->path, where);
    }
    if (!(elements >= 0 && elements <= MOST_ELEMENTS && elements == floor(elements))) {
        return weft_error_set(WEFT_ERR_FORMAT,
                              "%s: %s: elements is %.16g; expected a whole number from 0 to 2^53",
                              reader->path, where, elements);
    }
    if (!(ready_us >= 0 && ready_us <= MOST_US)) {
        return weft_error_set(WEFT_ERR_FORMAT,
                              "%s: %s: ready_us is %g; expected microseconds from 0 to 1e15",
                              reader->path, where, ready_us);
    }
    if (reserve(reader))
        return WEFT_ERR_MEMORY;
    if (!name) {
        length = (size_t)snprintf(number, sizeof number, "%zu", reader->layers->count);
        name = number;
    }
    char *copy = copy_of(name, length);
    if (!copy)
        return no_memory(reader);
    reader->layers->at[reader->layers->count++] = (struct layer){copy, (size_t)elements, ready_us};
    return WEFT_OK;
}

/* ---- JSON ---- */

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };

    return value ? names[json_typeof(value)] : "not there";
}

static int expected(const struct reader *reader, const char *where, const char *key,
                    const json_t *found, const char *what)
{
    return weft_error_set(WEFT_ERR_FORMAT, "%s: %s%s%s is %s; expected %s", reader->path, where,
                          where[0] && key[0] ? "." : "", key, type_name(found), what);
}

static int add_json(struct reader *reader, size_t index, const json_t *json)
{
    char where[48];
    const json_t *name = json_object_get(json, "name");
    const json_t *elements = json_object_get(json, "elements");
    const json_t *ready = json_object_get(json, "ready_us");

    snprintf(where, sizeof where, "layers[%zu]", index);
    if (!json_is_object(json))
        return expected(reader, where, "", json, "an object: name, elements, ready_us");
    if (name && !json_is_string(name))
        return expected(reader, where, "name", name, "a string");
    if (!json_is_number(elements))
        return expected(reader, where, "elements", elements, "a number");
    if (!json_is_number(ready))
        return expected(reader, where, "ready_us", ready, "a number");
    return add(reader, where, json_string_value(name), json_string_length(name),
               json_number_value(elements), json_number_value(ready));
}

/* A text about the whole; what is no text is for others. */
static int take_text(const struct reader *reader, const json_t *document, const char *key,
                     char **text)
{
    const json_t *value = json_object_get(document, key);

    if (!json_is_string(value) ||
        !is_printable(json_string_value(value), json_string_length(value)))
        return WEFT_OK;
    *text = copy_of(json_string_value(value), json_string_length(value));
    return *text ? WEFT_OK : no_memory(reader);
}

static int read_json(struct reader *reader, const char *text, size_t length)
{
    json_error_t error;
    json_t *document = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    const json_t *list = json_object_get(document, "layers");
    int status = WEFT_OK;

    if (!document) {
        return weft_error_set(WEFT_ERR_FORMAT,
                              "%s: line %d: %s; expected a table of layers in JSON", reader->path,
                              error.line, error.text);
    }
    if (!json_is_object(document))
        status = expected(reader, "the document", "", document, "an object with \"layers\"");
    else if (!json_is_array(list))
        status =
            expected(reader, "", "layers", list, "an array of objects: name, elements, ready_us");
    else
        status = take_text(reader, document, "name", &reader->layers->name);
    if (!status)
        status = take_text(reader, document, "source", &reader->layers->source);
    for (size_t i = 0; !status && i < json_array_size(list); i++)
        status = add_json(reader, i, json_array_get(list, i));
    json_decref(document);
    return status;
}

/* ---- CSV ---- */

enum column { NAME, ELEMENTS, READY, COLUMNS };

static const char *const columns[COLUMNS] = {"name", "elements", "ready_us"};

/* Most fields of a row that are looked at. */
enum { FIELDS = 64 };

struct row {
    /** Where the next row begins. */
    char *at;
    const char *end;
    /** Where it begins, and the lines that it has: a quoted field may hold ends of lines. */
    size_t line;
    size_t lines;
    char *fields[FIELDS];
    size_t lengths[FIELDS];
    size_t count;
};

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Cuts the field at row->at, which is rewritten in place: quotes go, blanks around it too. *last:
 * it ends the row. */
static int cut_field(const struct reader *reader, struct row *row, int *last)
{
    char *at = row->at;

    while (at < row->end && is_blank(*at))
        at++;
    int quoted = at < row->end && *at == '"';
    char *from = quoted ? ++at : at;
    char *to = from;
    int open = quoted;

    for (; at < row->end && (open || (*at != ',' && *at != '\n')); at++) {
        row->lines += *at == '\n';
        if (quoted && *at == '"' && open && at + 1 < row->end && at[1] == '"')
            *to++ = *at++;
        else if (quoted && *at == '"' && open)
            open = 0;
        else if (open || !quoted)
            *to++ = *at;
        else if (!is_blank(*at) && *at != '\r')
            return weft_error_set(WEFT_ERR_FORMAT,
                                  "%s: line %zu: '%c' after a closing quote; expected a comma",
                                  reader->path, row->line, *at);
    }
    if (open) {
        return weft_error_set(WEFT_ERR_FORMAT, "%s: line %zu: a quote that is not closed",
                              reader->path, row->line);
    }
    while (!quoted && to > from && (is_blank(to[-1]) || to[-1] == '\r'))
        to--;
    if (row->count < FIELDS) {
        row->fields[row->count] = from;
        row->lengths[row->count] = (size_t)(to - from);
    }
    row->count++;
    *last = at >= row->end || *at == '\n';
    row->at = at < row->end ? at + 1 : at;
    return WEFT_OK;
}

/* The next row that is not blank and no remark; row->count 0: there is none. */
static int cut_row(const struct reader *reader, struct row *row)
{
    do {
        int last = 0;
        int remark = row->at < row->end && *row->at == '#';
        row->count = 0;
        row->line += row->lines;
        row->lines = 1;
        if (row->at >= row->end)
            return WEFT_OK;
        if (remark) {
            const char *stop = memchr(row->at, '\n', (size_t)(row->end - row->at));
            row->at += stop ? stop - row->at + 1 : row->end - row->at;
            continue;
        }
        while (!last)
            if (cut_field(reader, row, &last))
                return WEFT_ERR_FORMAT;
    } while (row->count == 0 || (row->count == 1 && row->lengths[0] == 0));
    for (size_t i = 0; i < row->count && i < FIELDS; i++)
        row->fields[i][row->lengths[i]] = '\0'; /* a separator was there, or the final NUL */
    return WEFT_OK;
}

/* Which field holds which column. 1: the row is a heading. */
static int take_heading(const struct row *row, size_t where[COLUMNS])
{
    size_t found[COLUMNS] = {FIELDS, FIELDS, FIELDS};

    for (size_t i = 0; i < row->count && i < FIELDS; i++)
        for (int c = 0; c < COLUMNS; c++)
            if (found[c] == FIELDS && strcasecmp(row->fields[i], columns[c]) == 0)
                found[c] = i;
    if (found[ELEMENTS] == FIELDS || found[READY] == FIELDS)
        return 0;
    memcpy(where, found, sizeof found);
    return 1;
}

static int take_number(const struct reader *reader, const struct row *row, size_t field,
                       enum column column, double *value)
{
    const char *text = row->fields[field];
    char *end;

    *value = strtod(text, &end);
    if (end != text && end == text + row->lengths[field] && !strpbrk(text, "xXpP"))
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_FORMAT, "%s: line %zu: %s is '%.*s'; expected a number%s",
                          reader->path, row->line, columns[column], SHOWN, text,
                          reader->layers->count ? "" : ", or a heading: name,elements,ready_us");
}

static int add_row(struct reader *reader, const struct row *row, const size_t where[COLUMNS],
                   size_t width)
{
    char place[32];
    double elements = 0, ready = 0;

    if (row->count != width) {
        return weft_error_set(WEFT_ERR_FORMAT, "%s: line %zu: %zu column%s; expected %zu%s",
                              reader->path, row->line, row->count, row->count == 1 ? "" : "s",
                              width,
                              width == COLUMNS ? ": name,elements,ready_us" : " as in the heading");
    }
    if (take_number(reader, row, where[ELEMENTS], ELEMENTS, &elements) ||
        take_number(reader, row, where[READY], READY, &ready))
        return WEFT_ERR_FORMAT;
    snprintf(place, sizeof place, "line %zu", row->line);
    int named = where[NAME] < FIELDS && row->lengths[where[NAME]];
    return add(reader, place, named ? row->fields[where[NAME]] : NULL,
               named ? row->lengths[where[NAME]] : 0, elements, ready);
}

static int read_csv(struct reader *reader, char *text, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf"; /* that of byte order, as spreadsheets write it */
    size_t where[COLUMNS] = {NAME, ELEMENTS, READY};
    size_t width = COLUMNS;
    struct row row = {.at = text, .end = text + length, .lines = 1};
    const char *zero = memchr(text, '\0', length);
    int status = WEFT_OK;

    if (zero) {
        return weft_error_set(WEFT_ERR_FORMAT, "%s: a zero byte at %zu; expected text",
                              reader->path, (size_t)(zero - text));
    }
    if (length >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0)
        row.at += strlen(mark);
    for (int first = 1; !status; first = 0) {
        status = cut_row(reader, &row);
        if (status || row.count == 0)
            break;
        if (first && take_heading(&row, where)) {
            width = row.count;
            continue;
        }
        status = add_row(reader, &row, where, width);
    }
    return status;
}

/* ---- both ---- */

int layers_read(struct layers *layers, const char *path, const char *text, size_t length)
{
    struct layers read = {0};
    struct reader reader = {.path = path, .layers = &read};
    size_t blank = strspn(text, " \t\r\n");
    int status;

    if (text[blank] == '{' || text[blank] == '[') {
        status = read_json(&reader, text, length);
    } else {
        char *copy = copy_of(text, length);
        status = copy ? read_csv(&reader, copy, length) : no_memory(&reader);
        weft_memory_free(copy);
    }
    if (!status && read.count == 0)
        status = weft_error_set(WEFT_ERR_FORMAT, "%s: no layers; expected at least one", path);
    if (status)
        layers_free(&read);
    else
        *layers = read;
    return status;
}

void layers_free(struct layers *layers)
{
    for (size_t i = 0; i < layers->count; i++)
        weft_memory_free(layers->at[i].name);
    weft_memory_free(layers->at);
    weft_memory_free(layers->name);
    weft_memory_free(layers->source);
    memset(layers, 0, sizeof *layers);
}
