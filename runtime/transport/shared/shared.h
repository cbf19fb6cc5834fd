/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared transport: how one begins, and the world of those that a launcher has started. */
#ifndef WEFT_RUNTIME_TRANSPORT_SHARED_SHARED_H
#define WEFT_RUNTIME_TRANSPORT_SHARED_SHARED_H

#include <weft/shared.h>

struct weft__transport;

struct weft__launch_page;
/* The transport of one rank, without a context: weft_context_create_shared() but for that. */
int weft__shared_open(const char *who, struct weft__transport **transport, int rank, int size,
                      const struct weft_shared_config *shared,
                      const struct weft__launch_page *page);

/* As weft_context_create_shared(). */
int weft__shared_create(const char *who, struct weft_context **context, int rank, int size,
                        const struct weft_context_config *config,
                        const struct weft_shared_config *shared,
                        const struct weft__launch_page *page);

/* weft_context_create_world(). */
int weft__shared_world(const char *who, struct weft_context **context,
                       const struct weft_context_config *config);

#endif
