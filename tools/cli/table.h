/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of text: columns as wide as their widest cell.
 */
#ifndef WEFT_TOOLS_CLI_TABLE_H
#define WEFT_TOOLS_CLI_TABLE_H

#include <stdio.h>
#include <weft/status.h>

struct table;

/**
 * Makes a table with a heading a column: "name", or ">name" for cells that are aligned to the
 * right.
 * @return NULL if there is no memory.
 */
struct table *table_create(const char *const *headings, size_t columns);

/** Appends a cell, row by row. A failure (no memory) is remembered until table_print(). */
void table_cell(struct table *table, const char *format, ...) WEFT_PRINTF(2, 3);

/** Prints heading and rows. @return 0, or -1 if a cell is missing for want of memory. */
int table_print(const struct table *table, FILE *file);

/** NULL is accepted. */
void table_destroy(struct table *table);

#endif
