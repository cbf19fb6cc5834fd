/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device of a context: opened when the first run needs it, shared by its family, and open for
 * as long as anything of it is left.
 */
#include "runtime/context/context.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/device/library.h"
#include "runtime/engine/flight.h"

/* How many ranks of this host come before this one: ranks that say nothing else have the devices in
 * turn. */
static int place_on_host(const struct weft_context *root)
{
    struct weft__transport *transport = root->engine.transport;
    int place = 0;
    int *hosts;

    if (!transport->ops->hosts || transport->host_count < 2)
        return transport->rank;
    hosts = weft__malloc((size_t)transport->size, sizeof *hosts);
    if (!hosts || transport->ops->hosts(transport, hosts) != WEFT_OK) {
        weft__free(hosts);
        return transport->rank;
    }
    for (int rank = 0; rank < transport->rank; rank++)
        place += hosts[rank] == hosts[transport->rank];
    weft__free(hosts);
    return place;
}

int weft__context_device(struct weft_context *context, struct weft__device **device)
{
    struct weft_context *root = context->root;
    const char *name = root->config.device ? root->config.device : weft__env_text("WEFT_DEVICE");
    struct weft__device *opened, *first = NULL;
    int status;

    *device = atomic_load_explicit(&root->device, memory_order_acquire);
    if (*device)
        return WEFT_OK;
    status = weft__device_open(name, place_on_host(root), &opened);
    if (status != WEFT_OK)
        return status;
    *device = opened;
    if (!atomic_compare_exchange_strong_explicit(&root->device, &first, opened,
                                                 memory_order_release, memory_order_acquire)) {
        opened->ops->end(opened); /* another thread was first */
        *device = first;
    }
    return WEFT_OK;
}

int weft__device_needed(struct weft_context *context, struct weft_run *run)
{
    struct weft__device *device;
    int status = weft__context_device(context, &device);

    if (status == WEFT_OK)
        status = weft__flights_open(run, device);
    return status;
}

/* Where memory is that was found elsewhere than expected. */
static const char *place_name(int where)
{
    static const char *const names[] = {"memory of the host", "pinned memory of the host",
                                        "memory of the device", "memory of another device",
                                        "memory of a device out of reach"};

    return names[where];
}

int weft__device_check(const char *who, const struct weft_run *run, weft_slot_t slot,
                       const void *data, size_t bytes, int *pinned)
{
    const struct weft__slot *info = &run->plan->slots[slot];
    struct weft__device *device = run->flights ? run->flights->stream->device : NULL;
    int there = info->memory == WEFT_MEMORY_DEVICE;
    int where, fits;

    *pinned = 0;
    if (!device || bytes == 0)
        return WEFT_OK;
    where = device->ops->where(device, data, bytes);
    if (where < 0)
        return weft__error(where, "%s: slot `%s`: %s", who, info->name, weft_error_text());
    fits = there ? where == WEFT__ON_DEVICE || where == WEFT__ON_PEER
                 : where == WEFT__ON_HOST || where == WEFT__ON_HOST_PINNED;
    if (!fits)
        return WEFT__INVALID("%s: %p is %s, but slot `%s` of plan `%s` is memory of the %s", who,
                             data, place_name(where), info->name, run->plan->name,
                             there ? "device" : "host");
    *pinned = where == WEFT__ON_HOST_PINNED;
    return WEFT_OK;
}
