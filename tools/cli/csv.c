/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text is cut in place, from left to right: a field never becomes longer, and the byte behind
 * it (its comma, the end of its line, the final NUL) has been read when it is set to NUL.
 */
#include "tools/cli/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <weft/weft.h>

/* Most fields of a row that are looked at. */
enum { FIELDS = 64, SHOWN = 40 };

/* A row while it is cut. */
struct row {
    char *text[FIELDS];
    size_t lengths[FIELDS];
    size_t count;
};

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* *last: it ends the row. */
static int cut_field(struct csv *csv, struct row *row, int *last)
{
    char *at = csv->at;

    while (at < csv->end && is_blank(*at))
        at++;
    int quoted = at < csv->end && *at == '"';
    char *from = quoted ? ++at : at;
    char *to = from;
    int open = quoted;

    for (; at < csv->end && (open || (*at != ',' && *at != '\n')); at++) {
        csv->lines += *at == '\n';
        if (quoted && *at == '"' && open && at + 1 < csv->end && at[1] == '"')
            *to++ = *at++;
        else if (quoted && *at == '"' && open)
            open = 0;
        else if (open || !quoted)
            *to++ = *at;
        else if (!is_blank(*at) && *at != '\r')
            return weft_error_set(WEFT_ERR_FORMAT,
                                  "%s: line %zu: '%c' after a closing quote; expected a comma",
                                  csv->path, csv->line, *at);
    }
    if (open) {
        return weft_error_set(WEFT_ERR_FORMAT, "%s: line %zu: a quote that is not closed",
                              csv->path, csv->line);
    }
    while (!quoted && to > from && (is_blank(to[-1]) || to[-1] == '\r'))
        to--;
    if (row->count < FIELDS) {
        row->text[row->count] = from;
        row->lengths[row->count] = (size_t)(to - from);
    }
    row->count++;
    *last = at >= csv->end || *at == '\n';
    csv->at = at < csv->end ? at + 1 : at;
    return WEFT_OK;
}

/* The next row that is not blank and no remark; row->count 0: there is none. */
static int cut_row(struct csv *csv, struct row *row)
{
    do {
        int last = 0;
        row->count = 0;
        csv->line += csv->lines;
        csv->lines = 1;
        if (csv->at >= csv->end)
            return WEFT_OK;
        if (*csv->at == '#') {
            char *stop = memchr(csv->at, '\n', (size_t)(csv->end - csv->at));
            csv->at = stop ? stop + 1 : csv->at + (csv->end - csv->at);
            continue;
        }
        while (!last)
            if (cut_field(csv, row, &last))
                return WEFT_ERR_FORMAT;
    } while (row->count == 0 || (row->count == 1 && row->lengths[0] == 0));
    for (size_t i = 0; i < row->count && i < FIELDS; i++)
        row->text[i][row->lengths[i]] = '\0';
    return WEFT_OK;
}

/* 1: the row is a heading; negative: it is a wrong one. */
static int take_heading(struct csv *csv, const struct row *row)
{
    size_t found[CSV_COLUMNS];
    const char *twice = NULL;

    for (size_t c = 0; c < csv->count; c++) {
        found[c] = FIELDS;
        for (size_t i = 0; i < row->count && i < FIELDS; i++) {
            if (strcasecmp(row->text[i], csv->columns[c].name) != 0)
                continue;
            twice = found[c] == FIELDS ? twice : csv->columns[c].name;
            found[c] = i;
        }
        if (found[c] == FIELDS && !csv->columns[c].optional)
            return 0;
    }
    if (twice)
        return weft_error_set(WEFT_ERR_FORMAT,
                              "%s: line %zu: column %s twice in the heading; expected it once",
                              csv->path, csv->line, twice);
    memcpy(csv->where, found, csv->count * sizeof *found);
    csv->width = row->count;
    return 1;
}

/* "name,elements,ready_us" */
static const char *list_columns(const struct csv *csv, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t c = 0; c < csv->count && used < size; c++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", c ? "," : "", csv->columns[c].name);
    return text;
}

int csv_begin(struct csv *csv, const char *path, const struct csv_column *columns, size_t count,
              const char *text, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf"; /* that of byte order, as spreadsheets write it */
    const char *zero = memchr(text, '\0', length);

    *csv = (struct csv){.path = path, .columns = columns, .count = count, .width = count};
    csv->lines = 1;
    for (size_t c = 0; c < count; c++)
        csv->where[c] = c;
    if (zero) {
        return weft_error_set(WEFT_ERR_FORMAT, "%s: a zero byte at %zu; expected text", path,
                              (size_t)(zero - text));
    }
    csv->text = weft_memory_alloc(length + 1, 1);
    if (!csv->text)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: no memory for %zu bytes", path, length);
    memcpy(csv->text, text, length);
    csv->text[length] = '\0';
    csv->at = csv->text;
    csv->end = csv->text + length;
    if (length >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0)
        csv->at += strlen(mark);
    return WEFT_OK;
}

int csv_next(struct csv *csv)
{
    static const char nothing[] = "";
    struct row row;
    char names[128];
    int status = cut_row(csv, &row);

    int heading = !status && row.count && !csv->begun ? take_heading(csv, &row) : 0;
    if (heading > 0) {
        csv->begun = 1;
        status = cut_row(csv, &row);
    } else if (heading < 0) {
        return heading;
    }
    csv->ended = !status && row.count == 0;
    if (status || csv->ended)
        return status;
    if (row.count != csv->width) {
        list_columns(csv, names, sizeof names);
        return weft_error_set(WEFT_ERR_FORMAT, "%s: line %zu: %zu column%s; expected %zu%s%s",
                              csv->path, csv->line, row.count, row.count == 1 ? "" : "s",
                              csv->width, csv->begun == 1 ? " as in the heading: " : ": ", names);
    }
    csv->begun = csv->begun ? csv->begun : 2; /* without a heading */
    for (size_t c = 0; c < csv->count; c++) {
        size_t i = csv->where[c];
        csv->fields[c] = i < FIELDS ? (struct csv_field){row.text[i], row.lengths[i]}
                                    : (struct csv_field){nothing, 0};
    }
    return WEFT_OK;
}

int csv_number(const struct csv *csv, size_t column, double *value)
{
    const struct csv_field *field = &csv->fields[column];
    char names[128], *end;

    *value = strtod(field->text, &end);
    if (end != field->text && end == field->text + field->length && !strpbrk(field->text, "xXpP"))
        return WEFT_OK;
    list_columns(csv, names, sizeof names);
    return weft_error_set(WEFT_ERR_FORMAT, "%s: line %zu: %s is '%.*s'; expected a number%s%s",
                          csv->path, csv->line, csv->columns[column].name, SHOWN, field->text,
                          csv->begun == 2 ? ", or a heading: " : "", csv->begun == 2 ? names : "");
}

void csv_end(struct csv *csv)
{
    weft_memory_free(csv->text);
    csv->text = NULL;
}
