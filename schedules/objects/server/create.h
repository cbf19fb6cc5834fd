/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers: what their creation is made of. */
#ifndef WEFT_SCHEDULES_OBJECTS_SERVER_CREATE_H
#define WEFT_SCHEDULES_OBJECTS_SERVER_CREATE_H

#include "schedules/objects/agreement.h"
#include "schedules/objects/server/server.h"

/* Steps and staleness are less. */
#define WEFT__SERVER_MOST_STEPS (UINT64_C(1) << 62)

/* Reads a configuration and sets its defaults. */
int weft__server_check(const char *who, const struct weft_context *context,
                       const struct weft_server_config *given, struct weft_server_config *config);
/* Fills in what ranks compare; returns how many, at most WEFT__SETTINGS_MOST. */
size_t weft__server_settings(const struct weft_server *server,
                             const struct weft__creation *creation, struct weft__setting *settings);

/* Layers, their parts, and memory of both roles. */
int weft__server_set_up(const char *who, struct weft_server *server,
                        const struct weft_server_config *config);
/* The share of the model that a server has: from its tensors. */
void weft__server_fill_share(struct weft_server *server);
/* The weights of all workers, as they have given them, become shares of their mean. */
void weft__server_set_weights(struct weft_server *server);
/* Frees all of it, and the runs. */
void weft__server_free(struct weft_server *server);

/* Whether a state fits; then takes it over. */
int weft__server_check_state(const char *who, struct weft_server *server);
void weft__server_restore(struct weft_server *server);
/* Of the steps that a server has in its state; 0: none. */
uint64_t weft__server_hash_clocks(const struct weft_server *server);
/* Whether the steps fit that all workers begin with, and what servers have of these: their hashes,
 * `stride` apart, a rank each. All ranks find the same. Servers go by them. */
int weft__server_agree_steps(const char *who, struct weft_server *server, const uint64_t *clocks,
                             size_t stride);

#endif
