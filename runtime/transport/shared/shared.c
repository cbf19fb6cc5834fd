/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport of processes on one machine: they meet, and open a channel. */
#include "runtime/transport/shared/shared.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/transport/shared/inside.h"
#include "runtime/transport/shared/meet.h"

extern WEFT__PRIVATE const struct weft_transport weft__transport_shared; /* about.c */

#define MEET_NS UINT64_C(60000000000)

void weft_shared_config_init_sized(struct weft_shared_config *shared, size_t size)
{
    weft_sized_init(shared, size);
}

static int check(const char *who, int rank, int size, const struct weft_shared_config *shared)
{
    if (size < 1 || size > WEFT__CHANNEL_MOST)
        return WEFT__INVALID("%s: argument `size` is %d, expected 1 to %d", who, size,
                             WEFT__CHANNEL_MOST);
    if (rank < 0 || rank >= size)
        return WEFT__INVALID("%s: argument `rank` is %d, expected 0 to %d", who, rank, size - 1);
    if (!shared->name == !shared->gather)
        return WEFT__INVALID("%s: shared->name and shared->gather are %s, expected one of them",
                             who, shared->name ? "both set" : "both NULL");
    return weft_sized_time(who, "shared->meet_ns", shared->meet_ns, WEFT_NEVER);
}

static int open_channel(const char *who, struct weft__shared *self,
                        const struct weft_shared_config *shared,
                        const struct weft__launch_page *page)
{
    struct weft__channel_config config = {.rank = self->base.rank,
                                          .size = self->base.size,
                                          .eager_bytes = shared->eager_bytes,
                                          .ahead_bytes = shared->ahead_bytes,
                                          .arena_bytes = shared->arena_bytes,
                                          .large = (int)shared->large,
                                          .who = who,
                                          .gather = shared->gather,
                                          .user = shared->user};
    struct weft__meeting *meeting = NULL;
    int status = WEFT_OK;

    if (shared->name) {
        status = weft__meet(&meeting, who, shared->name, self->base.rank, self->base.size,
                            shared->meet_ns ? shared->meet_ns : MEET_NS, page);
        config.gather = weft__meeting_gather;
        config.user = meeting;
    }
    if (status == WEFT_OK)
        status = weft__channel_open(&self->channel, &self->base, &config);
    weft__meeting_end(meeting);
    return status;
}

int weft__shared_open(const char *who, struct weft__transport **transport, int rank, int size,
                      const struct weft_shared_config *given, const struct weft__launch_page *page)
{
    struct weft_shared_config shared;
    int status = weft_sized_read(who, "shared", given, &shared, sizeof shared);

    if (status == WEFT_OK)
        status = check(who, rank, size, &shared);
    if (status != WEFT_OK)
        return status;
    struct weft__shared *self = weft__calloc(1, sizeof *self);
    if (!self)
        return weft__error_memory(who);
    self->base = (struct weft__transport){.ops = &weft__shared_ops,
                                          .about = &weft__transport_shared,
                                          .rank = rank,
                                          .size = size,
                                          .local_ranks = size,
                                          .seat = rank,
                                          .wakes = 1,
                                          .in_order = 1,
                                          .reports_deaths = 1,
                                          .largest_message = SIZE_MAX};
    status = open_channel(who, self, &shared, page);
    if (status != WEFT_OK) {
        weft__free(self);
        return status;
    }
    *transport = &self->base;
    return WEFT_OK;
}
