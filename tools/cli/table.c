/* SPDX-License-Identifier: BSD-3-Clause */
/* Cells are kept as texts and measured when the table is printed. */
#include "tools/cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct table {
    const char *const *headings;
    size_t columns;
    char **cells;
    size_t count;
    size_t capacity;
    int failed;
};

struct table *table_create(const char *const *headings, size_t columns)
{
    struct table *table = calloc(1, sizeof *table);

    if (table) {
        table->headings = headings;
        table->columns = columns;
    }
    return table;
}

void table_cell(struct table *table, const char *format, ...)
{
    va_list arguments;
    char *text;

    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 64;
        char **cells = realloc(table->cells, capacity * sizeof *cells);
        if (!cells) {
            table->failed = 1;
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        table->failed = 1;
        return;
    }
    table->cells[table->count++] = text;
}

/* Columns that a terminal shows: UTF-8 bytes that do not continue a character. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_cell(FILE *file, const char *text, size_t width, int right, int last)
{
    int padding = (int)(width - width_of(text));

    if (right)
        fprintf(file, "%*s%s", padding, "", text);
    else
        fprintf(file, "%s%*s", text, last ? 0 : padding, "");
    fputs(last ? "\n" : "  ", file);
}

static size_t column_width(const struct table *table, size_t column)
{
    const char *heading = table->headings[column];
    size_t widest = width_of(heading + (heading[0] == '>'));

    for (size_t i = column; i < table->count; i += table->columns) {
        size_t width = width_of(table->cells[i]);
        widest = width > widest ? width : widest;
    }
    return widest;
}

int table_print(const struct table *table, FILE *file)
{
    size_t *widths = calloc(table->columns, sizeof *widths);

    if (!widths || table->failed) {
        free(widths);
        return -1;
    }
    for (size_t column = 0; column < table->columns; column++) {
        const char *heading = table->headings[column];
        int right = heading[0] == '>';
        widths[column] = column_width(table, column);
        print_cell(file, heading + right, widths[column], right, column + 1 == table->columns);
    }
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns;
        print_cell(file, table->cells[i], widths[column], table->headings[column][0] == '>',
                   column + 1 == table->columns);
    }
    free(widths);
    return 0;
}

void table_destroy(struct table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}
