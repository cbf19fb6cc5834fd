/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of transports: all that is asked about a transport by its name is asked here. Each
 * describes itself in its folder, in about.c; a context has the description of its own.
 */
#include "runtime/base/error.h"
#include "runtime/cost/model.h"
#include "runtime/transport/mpi/mpi_load.h"
#include "runtime/transport/shared/shared.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <weft/context.h>

/* A line for each, in the order in which they are listed: its name; whether it is there, where that
 * shows at run time alone; how its world is made, where a launcher starts one. */
#define TRANSPORTS(X)                                                                              \
    X(local, NULL, NULL)                                                                           \
    X(shared, NULL, weft__shared_world)                                                            \
    X(mpi, weft__mpi_installed, weft__mpi_world)                                                   \
    X(virtual, NULL, NULL)

#define DECLARE(name, installed, world) extern const struct weft_transport weft__transport_##name;
TRANSPORTS(DECLARE)
#undef DECLARE

#define ENTRY(name, installed, world) {&weft__transport_##name, installed, world},
static const struct {
    const struct weft_transport *about;
    int (*installed)(void);
    int (*world)(const char *who, struct weft_context **context,
                 const struct weft_context_config *config);
} transports[] = {TRANSPORTS(ENTRY)};
#undef ENTRY

enum { COUNT = sizeof transports / sizeof transports[0] };

/* As they are described to users, once it is known what is there. */
static struct weft_transport described[COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void describe(void)
{
    for (size_t i = 0; i < COUNT; i++) {
        described[i] = *transports[i].about;
        if (transports[i].installed)
            described[i].available = transports[i].installed();
    }
}

size_t weft_transport_count(void)
{
    return COUNT;
}

const struct weft_transport *weft_transport_at(size_t index)
{
    pthread_once(&once, describe);
    return index < COUNT ? &described[index] : NULL;
}

/* Its number; COUNT: there is none. */
static size_t number_of(const char *name)
{
    size_t i = 0;

    while (i < COUNT && !(name && strcmp(transports[i].about->name, name) == 0))
        i++;
    return i;
}

static int unknown(const char *who, const char *name)
{
    char names[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < COUNT && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
                                 transports[i].about->name);
    return weft__error(WEFT_ERR_NOT_FOUND, "%s: no transport `%s`, expected one of %s", who,
                       name ? name : "", names);
}

const struct weft_transport *weft_transport_find(const char *name)
{
    size_t found = number_of(name);

    if (found == COUNT)
        unknown(__func__, name);
    return weft_transport_at(found);
}

int weft_context_create_world(struct weft_context **context, const char *transport,
                              const struct weft_context_config *config)
{
    size_t found = number_of(transport);

    if (!context || !transport)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             !context ? "context" : "transport");
    if (found == COUNT)
        return unknown(__func__, transport);
    if (!transports[found].world)
        return weft__error(WEFT_ERR_UNSUPPORTED,
                           "%s: ranks of transport `%s` are %s: no launcher starts a world of them",
                           __func__, transport, transports[found].about->summary);
    return transports[found].world(__func__, context, config);
}

void weft_cost_model_init_sized(struct weft_cost_model *model, size_t size, const char *transport)
{
    size_t found = number_of(transport);
    const struct weft_cost_model *own = found < COUNT ? transports[found].about->cost : NULL;

    weft_sized_init(model, size);
    if (model && size > sizeof model->struct_size)
        weft_sized_fill(__func__, "model", model, own ? own : &weft__cost_standard, sizeof *model);
}
