/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows of CSV: columns in a given order, or in any with a heading that names them, among others.
 * Quotes, CRLF, blank lines and lines that begin with # are understood.
 */
#ifndef WEFT_TOOLS_CLI_CSV_H
#define WEFT_TOOLS_CLI_CSV_H

#include <stddef.h>

/** Most columns that are asked for. */
enum { CSV_COLUMNS = 4 };

struct csv_column {
    const char *name;
    /** 1: a heading may do without it. */
    int optional;
};

/** NUL-terminated, without its quotes and the blanks around it. */
struct csv_field {
    const char *text;
    size_t length;
};

struct csv {
    /** Of the row: where it begins, from 1; its fields, in the order of the columns, "" if there is
     *  no such column. */
    size_t line;
    struct csv_field fields[CSV_COLUMNS];
    /** 1: there are no more rows. */
    int ended;
    /* private */
    const char *path;
    const struct csv_column *columns;
    size_t count;
    size_t width;
    size_t where[CSV_COLUMNS];
    char *text;
    char *at;
    const char *end;
    size_t lines;
    int begun;
};

/** Begins to read; @p columns are borrowed, the text is copied. @return WEFT_OK; WEFT_ERR_FORMAT (a
 *  zero byte); WEFT_ERR_MEMORY. */
int csv_begin(struct csv *csv, const char *path, const struct csv_column *columns, size_t count,
              const char *text, size_t length);

/** The next row. @return WEFT_OK; WEFT_ERR_FORMAT with a text that names the line. */
int csv_next(struct csv *csv);

/** The number in a column of the row. @return WEFT_OK; WEFT_ERR_FORMAT. */
int csv_number(const struct csv *csv, size_t column, double *value);

/** Also after an error. */
void csv_end(struct csv *csv);

#endif
