/* SPDX-License-Identifier: BSD-3-Clause */
/* Large messages: what both sides share. */
#include "runtime/transport/shared/bulk.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/engine/engine.h"
#include <string.h>
#include <sys/prctl.h>

#define TRIES 100 /* to find memory for a line */

/* ---- memory ---- */

void *weft__channel_alloc(struct weft__channel *channel, size_t bytes)
{
    return weft__arena_alloc(channel->arena, bytes);
}

int weft__channel_free(struct weft__channel *channel, void *memory)
{
    return weft__arena_free(channel->arena, memory);
}

/* ---- opening and closing ---- */

/* Where only descendants may be read, this says that others may, too; the same user's, as ever. */
static void allow_reads(void)
{
#ifdef PR_SET_PTRACER
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
}

int weft__bulk_open(struct weft__channel *channel, const struct weft__channel_config *config)
{
    const struct weft__layout *layout = &channel->layout;
    struct weft__bulk *bulk = weft__calloc(1, sizeof *bulk);
    channel->bulk = bulk;
    channel->arena =
        weft__arena_open(weft__region_arena(layout, channel->region), layout->arena_bytes);
    int status = bulk && channel->arena ? WEFT_OK : weft__error_memory(config->who);
    if (status == WEFT_OK) {
        bulk->channel = channel;
        status = weft__bulk_receive_open(bulk);
    }
    if (status == WEFT_OK)
        status = weft__bulk_send_open(bulk);
    if (status != WEFT_OK) {
        weft__bulk_close(channel);
        return status;
    }
    if (config->large != WEFT_SHARED_LARGE_COPY)
        allow_reads();
    bulk->read_from = config->large == WEFT_SHARED_LARGE_READ ? 0
                      : config->large == WEFT_SHARED_LARGE_COPY
                          ? SIZE_MAX
                          : weft__bulk_read_threshold(bulk, &bulk->reduce_from);
    return WEFT_OK;
}

void weft__bulk_close(struct weft__channel *channel)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    if (bulk) {
        weft__bulk_send_close(bulk);
        weft__bulk_receive_close(bulk);
    }
    weft__free(bulk);
    weft__arena_close(channel->arena);
    channel->bulk = NULL;
    channel->arena = NULL;
}

/* ---- lines ---- */

void weft__bulk_tell(struct weft__channel *channel, struct weft__peer *peer, int kind,
                     const struct weft__bulk_words *words)
{
    struct weft__line line = {.bytes = sizeof *words, .kind = (uint8_t)kind};
    memcpy(line.payload, words, sizeof *words);
    for (int i = 0; i < TRIES; i++)
        if (weft__channel_line(channel, peer, &line) == WEFT_OK)
            return;
    weft__channel_lost(channel, peer, "there is no memory for an answer to it");
}

int weft__bulk_line(struct weft__channel *channel, struct weft__peer *peer,
                    const struct weft__line *line)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    struct weft__bulk_words words;
    if (line->kind == WEFT__LINE_ANNOUNCE)
        return weft__bulk_announced(bulk, peer, line);
    if (line->bytes != sizeof words || line->kind > WEFT__LINE_NEXT) {
        weft__channel_lost(channel, peer, "it has sent what is no message");
        return WEFT_OK;
    }
    memcpy(&words, line->payload, sizeof words);
    if (line->kind == WEFT__LINE_CHUNK)
        weft__bulk_chunk(bulk, peer, &words);
    else
        weft__bulk_send_line(bulk, peer, line->kind, &words);
    weft__bulk_settle(bulk);
    return WEFT_OK;
}

/* ---- polling ---- */

void weft__bulk_settle(struct weft__bulk *bulk)
{
    int busy = bulk->fill_first || bulk->fetches || bulk->cancelling > 0;
    bulk->channel->bulk_busy = busy || bulk->under_way > 0;
    atomic_store_explicit(&bulk->busy, busy, memory_order_relaxed);
}

int weft__bulk_poll(struct weft__channel *channel)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    int count = weft__bulk_send_poll(bulk) + weft__bulk_receive_poll(bulk);
    weft__bulk_settle(bulk);
    /* Nobody sleeps while there is something to do: also what is read by others is looked after. */
    if (count > 0 || atomic_load_explicit(&bulk->busy, memory_order_relaxed))
        channel->transport->engine->did++;
    return count;
}

int weft__bulk_pending(struct weft__channel *channel)
{
    const struct weft__bulk *bulk = weft__bulk_of(channel);
    /* Sequentially consistent: the last look of a thread that has registered on the bell. */
    return bulk && (atomic_load_explicit(&bulk->busy, memory_order_relaxed) ||
                    atomic_load_explicit(&channel->region->returns, memory_order_seq_cst) != 0);
}

void weft__bulk_gone(struct weft__channel *channel, struct weft__peer *peer)
{
    struct weft__bulk *bulk = weft__bulk_of(channel);
    if (!bulk)
        return;
    weft__bulk_receive_gone(bulk, peer);
    weft__bulk_device_gone(peer);
    weft__bulk_send_gone(bulk, peer);
    weft__bulk_settle(bulk);
}
