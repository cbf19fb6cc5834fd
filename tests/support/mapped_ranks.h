/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks over a channel without sockets: regions are memory of the process that makes them, which
 * threads share, or, if it is mapped so, processes that are forked later.
 */
#ifndef WEFT_TESTS_MAPPED_RANKS_H
#define WEFT_TESTS_MAPPED_RANKS_H

#include "runtime/base/alloc.h"
#include "runtime/context/context.h"
#include "runtime/transport/shared/bulk.h"
#include "runtime/transport/shared/inside.h"
#include "tests/support/ranks.h"
#include <sys/mman.h>
#include <unistd.h>

struct mapped {
    int size;
    struct weft__channel_config config;
    struct weft__layout layout;
    void **regions;
};

/* Payload goes eagerly up to `eager` bytes, 0: the default. */
static inline void mapped_create(struct mapped *mapped, int size, size_t eager, size_t ahead)
{
    *mapped = (struct mapped){.size = size,
                              .config = {.size = size,
                                         .eager_bytes = eager,
                                         .ahead_bytes = ahead,
                                         .arena_bytes = (size_t)1 << 24,
                                         .who = "mapped_create"}};
    OK(weft__layout_make(&mapped->layout, &mapped->config));
    mapped->regions = calloc((size_t)size, sizeof *mapped->regions);
    CHECK(mapped->regions);
    for (int r = 0; r < size; r++) {
        mapped->regions[r] = mmap(NULL, mapped->layout.total_bytes, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(mapped->regions[r] != MAP_FAILED);
        weft__region_init(mapped->regions[r], &mapped->layout, r);
    }
}

static inline void mapped_destroy(struct mapped *mapped)
{
    for (int r = 0; r < mapped->size; r++)
        munmap(mapped->regions[r], mapped->layout.total_bytes);
    free(mapped->regions);
}

/* The transport of a rank, whose channel knows all regions. */
static inline struct weft__shared *mapped_transport(struct mapped *mapped, int rank)
{
    extern const struct weft_transport weft__transport_local;
    struct weft__channel_config config = mapped->config;
    struct weft__shared *shared = weft__calloc(1, sizeof *shared);
    CHECK(shared);
    config.rank = rank;
    shared->base = (struct weft__transport){.ops = &weft__shared_ops,
                                            .about = &weft__transport_local,
                                            .rank = rank,
                                            .size = mapped->size,
                                            .group = (uint64_t)(uintptr_t)mapped->regions | 1,
                                            .local_ranks = mapped->size,
                                            .seat = rank,
                                            .wakes = 1,
                                            .in_order = 1,
                                            .takes_back = 1,
                                            .largest_message = SIZE_MAX};
    OK(weft__channel_create(&shared->channel, &shared->base, &config, &mapped->layout,
                            mapped->regions[rank]));
    for (int peer = 0; peer < mapped->size; peer++) {
        OK(weft__region_check(mapped->regions[peer], mapped->layout.total_bytes, &mapped->layout,
                              peer, config.who));
        if (config.large == WEFT_SHARED_LARGE_READ)
            shared->channel->peers[peer].pid = getpid();
        if (peer != rank)
            weft__channel_attach(shared->channel, peer, mapped->regions[peer]);
    }
    OK(weft__bulk_open(shared->channel, &config));
    return shared;
}

static inline struct weft_context *mapped_context(struct mapped *mapped, int rank,
                                                  const struct weft_context_config *config)
{
    struct weft_context_config settings;
    struct weft_context *context = NULL;
    struct weft__shared *shared = mapped_transport(mapped, rank);
    OK(weft__context_config_read("mapped_context", "config", config, &settings));
    OK(weft__context_create(&context, &shared->base, &settings));
    return context;
}

struct mapped_thread {
    struct mapped *mapped;
    struct ranks *ranks;
    pthread_t thread;
    int rank;
};

static inline void *mapped_main(void *argument)
{
    struct mapped_thread *self = argument;
    struct weft_context *context = mapped_context(self->mapped, self->rank, &self->ranks->config);
    ranks_meet(self->ranks);
    self->ranks->fn(self->ranks, context, self->rank);
    weft_context_destroy(context);
    return NULL;
}

/* As ranks_run(): each rank is a thread. `large`: how large messages go, as in weft/shared.h. */
static inline void mapped_run_large(struct ranks *ranks, size_t eager, size_t ahead, int large)
{
    struct mapped mapped;
    struct mapped_thread *threads = calloc((size_t)ranks->size, sizeof *threads);
    CHECK(threads);
    mapped_create(&mapped, ranks->size, eager, ahead);
    mapped.config.large = large;
    CHECK(pthread_barrier_init(&ranks->barrier, NULL, (unsigned)ranks->size) == 0);
    for (int r = 0; r < ranks->size; r++) {
        threads[r] = (struct mapped_thread){.mapped = &mapped, .ranks = ranks, .rank = r};
        CHECK(pthread_create(&threads[r].thread, NULL, mapped_main, &threads[r]) == 0);
    }
    for (int r = 0; r < ranks->size; r++)
        CHECK(pthread_join(threads[r].thread, NULL) == 0);
    pthread_barrier_destroy(&ranks->barrier);
    mapped_destroy(&mapped);
    free(threads);
}

static inline void mapped_run(struct ranks *ranks, size_t eager, size_t ahead)
{
    mapped_run_large(ranks, eager, ahead, WEFT_SHARED_LARGE_DEFAULT);
}

#endif
