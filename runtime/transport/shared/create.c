/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts over the shared transport. */
#include "runtime/transport/shared/shared.h"

#include "runtime/base/error.h"
#include "runtime/context/context.h"

int weft__shared_create(const char *who, struct weft_context **context, int rank, int size,
                        const struct weft_context_config *config,
                        const struct weft_shared_config *shared,
                        const struct weft__launch_page *page)
{
    struct weft_context_config settings;
    struct weft__transport *transport = NULL;
    int status = weft__context_config_read(who, "config", config, &settings);

    if (status == WEFT_OK)
        status = weft__shared_open(who, &transport, rank, size, shared, page);
    if (status != WEFT_OK)
        return status;
    return weft__context_create(context, transport, &settings);
}

int weft_context_create_shared(struct weft_context **context, int rank, int size,
                               const struct weft_context_config *config,
                               const struct weft_shared_config *shared)
{
    if (!context || !shared)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__,
                             !context ? "context" : "shared");
    return weft__shared_create(__func__, context, rank, size, config, shared, NULL);
}
