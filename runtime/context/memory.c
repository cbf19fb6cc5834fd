/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that belongs to a context: of its transport, if that has some that peers read from, else
 * the machine's. What is the machine's stands in a list, so that it can be told apart and nothing
 * is left when the context ends. All of it is the root's of a family.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/search.h"
#include "runtime/context/context.h"
#include <string.h>

enum { ALIGNMENT = 64 };

/* The number of the first piece of the list at or behind an address. Locked. */
static size_t find(const struct weft__memories *own, const void *memory)
{
    size_t low = 0, high = own->count;
    WEFT__SEARCH(low, high, middle, (uintptr_t)own->at[middle] < (uintptr_t)memory)
    return low;
}

int weft__memories_add(struct weft__memories *own, void *memory)
{
    pthread_mutex_lock(&own->lock);
    int status = weft__grow((void **)&own->at, &own->capacity, own->count + 1, sizeof *own->at);
    if (status == 0) {
        size_t i = find(own, memory);
        memmove(&own->at[i + 1], &own->at[i], (own->count - i) * sizeof *own->at);
        own->at[i] = memory;
        own->count++;
    }
    pthread_mutex_unlock(&own->lock);
    return status;
}

int weft__memories_remove(struct weft__memories *own, const void *memory)
{
    int found = 0;
    pthread_mutex_lock(&own->lock);
    size_t i = find(own, memory);
    if (i < own->count && own->at[i] == memory) {
        found = 1;
        own->count--;
        memmove(&own->at[i], &own->at[i + 1], (own->count - i) * sizeof *own->at);
    }
    pthread_mutex_unlock(&own->lock);
    return found;
}

static void *alloc_own(struct weft__memories *own, size_t bytes)
{
    void *memory = weft__aligned(ALIGNMENT, bytes);
    if (!memory || weft__memories_add(own, memory) == 0)
        return memory;
    weft__free(memory);
    return NULL;
}

/* 0: it is not in the list. */
static int free_own(struct weft__memories *own, void *memory)
{
    int found = weft__memories_remove(own, memory);
    if (found)
        weft__free(memory);
    return found;
}

void *weft__context_alloc(const struct weft_context *context, size_t bytes)
{
    struct weft__transport *transport = context->root->engine.transport;
    return transport->ops->alloc ? transport->ops->alloc(transport, bytes) : NULL;
}

int weft__context_give_back(const struct weft_context *context, void *memory)
{
    struct weft__transport *transport = context->root->engine.transport;
    if (context->root->closed)
        return 1; /* gone with the transport */
    return transport->ops->free && transport->ops->free(transport, memory);
}

void *weft_context_memory_alloc(struct weft_context *context, size_t count, size_t size)
{
    if (!context || (size && count > PTRDIFF_MAX / size))
        return NULL;
    void *memory = weft__context_alloc(context, count * size);
    return memory ? memory : alloc_own(&context->root->memories, count * size);
}

void weft_context_memory_free(struct weft_context *context, void *memory)
{
    if (!context || !memory)
        return;
    if (!free_own(&context->root->memories, memory) && !weft__context_give_back(context, memory))
        weft__log(context, WEFT_LOG_ERROR, "%s: %p is not, or no longer, memory of this context",
                  __func__, memory);
}

void weft__memories_open(struct weft__memories *own)
{
    pthread_mutex_init(&own->lock, NULL);
}

void weft__memories_close(struct weft__memories *own, struct weft__device *device,
                          void (*give_back)(struct weft__device *device, void *memory))
{
    for (size_t i = 0; i < own->count; i++)
        if (device)
            give_back(device, own->at[i]);
        else
            weft__free(own->at[i]);
    weft__free(own->at);
    pthread_mutex_destroy(&own->lock);
}
