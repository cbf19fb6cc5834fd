/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of text: columns as wide as their widest cell. On a terminal that is narrower, cells of
 * words are broken into lines, and columns that still have no room follow below, behind the first
 * column once more.
 */
#ifndef WEFT_TOOLS_CLI_TABLE_H
#define WEFT_TOOLS_CLI_TABLE_H

#include <stdio.h>
#include <weft/status.h>

struct table;

/**
 * Makes a table with a heading a column: "name", or ">name" for cells that are aligned to the right
 * and never broken.
 * @return NULL if there is no memory.
 */
struct table *table_create(const char *const *headings, size_t columns);

/** Appends a cell, row by row. A failure (no memory) is remembered until table_print(). */
void table_cell(struct table *table, const char *format, ...) WEFT_PRINTF(2, 3);

/** Prints heading and rows in lines of at most @p width columns; 0: as long as they are.
 *  @return 0, or -1 if a cell is missing for want of memory. */
int table_print_within(const struct table *table, FILE *file, int width);

/** The same; to standard output by the width of the terminal that it is. */
int table_print(const struct table *table, FILE *file);

/** Prints a paragraph in lines of at most @p width columns (0: one line), @p indent blanks before
 *  each, and @p hanging more before all but the first. */
void table_paragraph(FILE *file, const char *text, int width, int indent, int hanging);

/** The same of a text that is made here, to standard output by the width of its terminal. */
void table_say(int indent, int hanging, const char *format, ...) WEFT_PRINTF(3, 4);

/** Prints a word and what it means, which begins at @p column and goes on below itself. */
void table_term(FILE *file, const char *word, const char *text, int width, int indent, int column);

/** NULL is accepted. */
void table_destroy(struct table *table);

#endif
