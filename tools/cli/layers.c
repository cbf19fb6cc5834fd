/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reader trusts nothing. Both forms end in add(), which holds what must be true of a layer; a
 * form only says where it is when something is not ("layers[3].elements", "line 4").
 */
#include "tools/cli/layers.h"

#include "tools/cli/csv.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

/* Whole numbers are exact in a double below this; so are sums of them in any table. */
#define MOST_ELEMENTS 9007199254740992.0 /* 2^53 */
/* Thirty years. */
#define MOST_US 1e15

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

static const struct csv_column columns[COLUMNS] = {
    {"name", .optional = 1}, {"elements", 0}, {"ready_us", 0}};

static int add_row(struct reader *reader, const struct csv *csv)
{
    char place[32];
    double elements = 0, ready = 0;
    const struct csv_field *name = &csv->fields[NAME];

    if (csv_number(csv, ELEMENTS, &elements) || csv_number(csv, READY, &ready))
        return WEFT_ERR_FORMAT;
    snprintf(place, sizeof place, "line %zu", csv->line);
    return add(reader, place, name->length ? name->text : NULL, name->length, elements, ready);
}

static int read_csv(struct reader *reader, const char *text, size_t length)
{
    struct csv csv;
    int status = csv_begin(&csv, reader->path, columns, COLUMNS, text, length);

    while (!status && !(status = csv_next(&csv)) && !csv.ended)
        status = add_row(reader, &csv);
    csv_end(&csv);
    return status;
}

/* ---- both ---- */

int layers_read(struct layers *layers, const char *path, const char *text, size_t length)
{
    struct layers read = {0};
    struct reader reader = {.path = path, .layers = &read};
    size_t mark = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of byte order */
    size_t blank = mark + strspn(text + mark, " \t\r\n");
    int status;

    if (text[blank] == '{' || text[blank] == '[')
        status = read_json(&reader, text + mark, length - mark);
    else
        status = read_csv(&reader, text, length);
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
