/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of transports: all that is asked about a transport by its name is asked here. Each
 * describes itself in its folder, in about.c; a context has the description of its own.
 */
#include "runtime/base/error.h"
#include "runtime/cost/model.h"
#include <stdio.h>
#include <string.h>
#include <weft/context.h>

/* A line for each, in the order in which they are listed. */
#define TRANSPORTS(X)                                                                              \
    X(local)                                                                                       \
    X(mpi)                                                                                         \
    X(virtual)

#define DECLARE(name) extern const struct weft_transport weft__transport_##name;
TRANSPORTS(DECLARE)
#undef DECLARE

#define ADDRESS(name) &weft__transport_##name,
static const struct weft_transport *const transports[] = {TRANSPORTS(ADDRESS)};
#undef ADDRESS

size_t weft_transport_count(void)
{
    return sizeof transports / sizeof transports[0];
}

const struct weft_transport *weft_transport_at(size_t index)
{
    return index < weft_transport_count() ? transports[index] : NULL;
}

static const struct weft_transport *find(const char *name)
{
    for (size_t i = 0; name && i < weft_transport_count(); i++)
        if (strcmp(transports[i]->name, name) == 0)
            return transports[i];
    return NULL;
}

const struct weft_transport *weft_transport_find(const char *name)
{
    const struct weft_transport *found = find(name);
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; !found && i < weft_transport_count() && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
                                 transports[i]->name);
    if (!found)
        weft__error(WEFT_ERR_NOT_FOUND, "%s: no transport `%s`, expected one of %s", __func__,
                    name ? name : "", names);
    return found;
}

void weft_cost_model_init_sized(struct weft_cost_model *model, size_t size, const char *transport)
{
    const struct weft_transport *found = find(transport);

    weft_sized_init(model, size);
    if (model && size > sizeof model->struct_size)
        weft_sized_fill(__func__, "model", model,
                        found && found->cost ? found->cost : &weft__cost_standard, sizeof *model);
}
