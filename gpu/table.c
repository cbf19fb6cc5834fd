/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/table.h"

#include <dlfcn.h>
#include <string.h>

#include "runtime/base/error.h"

/* 1: found, and put into its place. */
static int find(const struct weft__table *table, const struct weft__symbol *symbol)
{
    void *found = dlsym(table->library, symbol->name);

    memcpy((char *)table->functions + symbol->member, &found, sizeof found);
    return found != NULL;
}

/* With the lock. */
static int load(struct weft__table *table)
{
    if (!table->library)
        table->library = dlopen(table->file, RTLD_NOW | RTLD_LOCAL);
    if (!table->library) {
        const char *why = dlerror();

        return weft__error(WEFT_ERR_UNSUPPORTED, "%s: %s", table->absent, why ? why : table->file);
    }
    for (const struct weft__symbol *symbol = table->needed; symbol->name; symbol++)
        if (!find(table, symbol))
            return weft__error(WEFT_ERR_UNSUPPORTED,
                               "%s has no %s: it is older than what weft needs (%s %d.%d)",
                               table->file, symbol->name, table->what, table->major, table->minor);
    for (const struct weft__symbol *symbol = table->later; symbol && symbol->name; symbol++)
        find(table, symbol);
    return table->begin();
}

int weft__table_load(struct weft__table *table)
{
    int status = WEFT_OK;

    /* Acquire: pairs with the release of who has filled the table. */
    if (atomic_load_explicit(&table->ready, memory_order_acquire))
        return WEFT_OK;
    pthread_mutex_lock(&table->lock);
    if (!atomic_load_explicit(&table->ready, memory_order_relaxed)) {
        status = load(table);
        if (status == WEFT_OK)
            atomic_store_explicit(&table->ready, 1, memory_order_release);
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}
