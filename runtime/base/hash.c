/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of hash.h, where it changes. */
#include "runtime/base/hash.h"

#include "runtime/base/alloc.h"

#include <string.h>

enum { FIRST_SIZE = 16 };

static void put(struct weft__table *table, struct weft__table_entry entry)
{
    size_t at = entry.hash;

    while (table->at[at & (table->size - 1)].number)
        at++;
    table->at[at & (table->size - 1)] = entry;
    table->count++;
}

int weft__table_reserve(struct weft__table *table, size_t count)
{
    struct weft__table grown = {.size = table->size ? table->size : FIRST_SIZE};

    if (2 * count <= table->size)
        return 0;
    while (grown.size < 2 * count)
        grown.size *= 2;
    grown.at = weft__calloc(grown.size, sizeof *grown.at);
    if (!grown.at)
        return -1;
    for (size_t i = 0; i < table->size; i++)
        if (table->at[i].number)
            put(&grown, table->at[i]);
    weft__free(table->at);
    *table = grown;
    return 0;
}

int weft__table_add(struct weft__table *table, uint64_t hash, uint32_t number)
{
    if (weft__table_reserve(table, table->count + 1))
        return -1;
    put(table, (struct weft__table_entry){weft__table_short(hash), number + 1});
    return 0;
}

void weft__table_clear(struct weft__table *table)
{
    if (table->size)
        memset(table->at, 0, table->size * sizeof *table->at);
    table->count = 0;
}

void weft__table_free(struct weft__table *table)
{
    weft__free(table->at);
    *table = (struct weft__table){0};
}
