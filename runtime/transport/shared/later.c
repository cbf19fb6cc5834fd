/* SPDX-License-Identifier: BSD-3-Clause */
/* What the channel calls and nothing has yet: goes as it comes. */
#include "runtime/transport/shared/inside.h"

int weft__death_watch(struct weft__channel *channel)
{
    (void)channel;
    return WEFT_OK;
}

void weft__death_unwatch(struct weft__channel *channel)
{
    (void)channel;
}

int weft__death_poll(struct weft__channel *channel)
{
    (void)channel;
    return 0;
}
