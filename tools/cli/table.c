/* SPDX-License-Identifier: BSD-3-Clause */
/* Cells are kept as texts and measured when the table is printed. */
#include "tools/cli/table.h"

#include "tools/cli/terminal.h"

#include <stdarg.h>
#include <stdint.h>
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

/* How many bytes of a text stand in a line of some columns: up to the last blank that has room, at
 * least one word. *next is where the line after it begins. */
static size_t line_of(const char *text, size_t width, const char **next)
{
    size_t fits = 0;
    size_t column = 0;
    size_t at = 0;

    for (;; at++) {
        if (text[at] == ' ' || !text[at]) {
            if (column > width && fits)
                break;
            fits = at;
            if (!text[at] || column >= width)
                break;
        }
        column += ((unsigned char)text[at] & 0xc0) != 0x80;
    }
    *next = text + fits;
    while (**next == ' ')
        (*next)++;
    return fits;
}

/* Columns of the longest word. */
static size_t longest_word(const char *text)
{
    size_t longest = 0;
    size_t width = 0;

    for (; *text; text++) {
        width = *text == ' ' ? 0 : width + (((unsigned char)*text & 0xc0) != 0x80);
        longest = width > longest ? width : longest;
    }
    return longest;
}

/* How a table is printed. */
struct layout {
    size_t *widths; /* of each column */
    size_t *least;  /* what it may shrink to */
    size_t total;   /* of all, with what is between them */
};

enum { BETWEEN = 2 };

static int is_right(const struct table *table, size_t column)
{
    return table->headings[column][0] == '>';
}

static const char *heading_of(const struct table *table, size_t column)
{
    return table->headings[column] + is_right(table, column);
}

static void measure(const struct table *table, size_t column, struct layout *layout)
{
    const char *heading = heading_of(table, column);
    size_t widest = width_of(heading);
    size_t least = longest_word(heading);

    for (size_t i = column; i < table->count; i += table->columns) {
        size_t width = width_of(table->cells[i]);
        size_t word = longest_word(table->cells[i]);
        widest = width > widest ? width : widest;
        least = word > least ? word : least;
    }
    layout->widths[column] = widest;
    layout->least[column] = is_right(table, column) || column == 0 ? widest : least;
    layout->total += widest + (column ? BETWEEN : 0);
}

/* Narrows the widest column that can be broken, until all fit or none can. */
static void shrink(const struct table *table, struct layout *layout, size_t width)
{
    while (layout->total > width) {
        size_t widest = table->columns;
        for (size_t c = 0; c < table->columns; c++)
            if (layout->widths[c] > layout->least[c] &&
                (widest == table->columns || layout->widths[c] > layout->widths[widest]))
                widest = c;
        if (widest == table->columns)
            return;
        layout->widths[widest]--;
        layout->total--;
    }
}

/* One line of a row: what is left of each cell, from *rest on. Returns 1 if there is more. */
static int print_line(const struct table *table, FILE *file, const struct layout *layout,
                      const size_t *shown, size_t count, const char **rest)
{
    int more = 0;

    for (size_t i = 0; i < count; i++) {
        const char *text = rest[i];
        size_t width = layout->widths[shown[i]];
        size_t length = line_of(text, width, &rest[i]);
        size_t used = 0;
        for (size_t at = 0; at < length; at++)
            used += ((unsigned char)text[at] & 0xc0) != 0x80;
        int padding = used < width ? (int)(width - used) : 0;
        int right = is_right(table, shown[i]);
        fprintf(file, "%*s%.*s", right ? padding : 0, "", (int)length, text);
        if (i + 1 < count)
            fprintf(file, "%*s", (right ? 0 : padding) + BETWEEN, "");
        more |= *rest[i] != '\0';
    }
    fputc('\n', file);
    return more;
}

/* Heading and rows of the columns @p shown. @p rest has room for a pointer a column. */
static void print_columns(const struct table *table, FILE *file, const struct layout *layout,
                          const size_t *shown, size_t count, const char **rest)
{
    for (size_t i = 0; i < count; i++)
        rest[i] = heading_of(table, shown[i]);
    while (print_line(table, file, layout, shown, count, rest)) {
    }
    for (size_t row = 0; row + table->columns <= table->count; row += table->columns) {
        for (size_t i = 0; i < count; i++)
            rest[i] = table->cells[row + shown[i]];
        while (print_line(table, file, layout, shown, count, rest)) {
        }
    }
}

/* All columns, in as many turns as the width asks for; the first column stands in each. */
static void print_turns(const struct table *table, FILE *file, const struct layout *layout,
                        size_t width, size_t *shown, const char **rest)
{
    for (size_t next = 0; next < table->columns;) {
        size_t count = 0;
        size_t used = 0;
        if (next) {
            fputc('\n', file);
            shown[count++] = 0;
            used = layout->widths[0];
        }
        do {
            used += layout->widths[next] + (count ? BETWEEN : 0);
            shown[count++] = next++;
        } while (next < table->columns &&
                 (!width || used + BETWEEN + layout->widths[next] <= width));
        print_columns(table, file, layout, shown, count, rest);
    }
}

int table_print_within(const struct table *table, FILE *file, int width)
{
    struct layout layout = {.widths = calloc(table->columns, sizeof *layout.widths),
                            .least = calloc(table->columns, sizeof *layout.least)};
    size_t *shown = calloc(table->columns + 1, sizeof *shown);
    const char **rest = calloc(table->columns + 1, sizeof *rest);
    int made = layout.widths && layout.least && shown && rest && !table->failed;

    for (size_t column = 0; made && column < table->columns; column++)
        measure(table, column, &layout);
    if (made && width > 0)
        shrink(table, &layout, (size_t)width);
    if (made)
        print_turns(table, file, &layout, width > 0 ? (size_t)width : 0, shown, rest);
    free(rest);
    free(shown);
    free(layout.least);
    free(layout.widths);
    return made ? 0 : -1;
}

int table_print(const struct table *table, FILE *file)
{
    return table_print_within(table, file, file == stdout ? cli_width() : 0);
}

void table_paragraph(FILE *file, const char *text, int width, int indent, int hanging)
{
    int blanks = indent;

    do {
        size_t room = width > blanks ? (size_t)(width - blanks) : SIZE_MAX;
        const char *next;
        size_t length = line_of(text, room, &next);
        fprintf(file, "%*s%.*s\n", blanks, "", (int)length, text);
        text = next;
        blanks = indent + hanging;
    } while (*text);
}

void table_say(int indent, int hanging, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *text = malloc((size_t)length + 1);

    va_start(list, format);
    if (text) {
        vsnprintf(text, (size_t)length + 1, format, list);
        table_paragraph(stdout, text, cli_width(), indent, hanging);
    } else {
        printf("%*s", indent, "");
        vprintf(format, list);
        printf("\n");
    }
    va_end(list);
    free(text);
}

void table_term(FILE *file, const char *word, const char *text, int width, int indent, int column)
{
    char line[1024];

    snprintf(line, sizeof line, "%*s%-*s %s", indent, "", column - indent - 1, word, text);
    table_paragraph(file, line, width, 0, column);
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
