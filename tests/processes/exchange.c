/* SPDX-License-Identifier: BSD-3-Clause */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/bind.h"

void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

struct exchange exchange_make(struct weft_context *context, size_t bytes, int per_peer)
{
    struct exchange x = {.bytes = bytes * (size_t)per_peer,
                         .rank = weft_context_rank(context),
                         .size = weft_context_size(context)};
    size_t total = x.bytes * (size_t)x.size;
    struct weft_schedule *schedule = NULL;
    weft_slot_t out, in;

    OK(weft_schedule_create(&schedule, x.rank, x.size));
    out = weft_schedule_add_slot(schedule, "out", WEFT_U8, total, WEFT_SLOT_INPUT);
    in = weft_schedule_add_slot(schedule, "in", WEFT_U8, total, WEFT_SLOT_OUTPUT);
    for (int i = 0; i < per_peer; i++)
        for (int peer = 0; peer < x.size; peer++) {
            size_t place = (size_t)peer * x.bytes + (size_t)i * bytes;

            weft_schedule_add_send(schedule, weft_region_at(out, place, bytes), peer, (uint32_t)i);
            weft_schedule_add_recv(schedule, weft_region_at(in, place, bytes), peer, (uint32_t)i);
        }
    x.run = world_run(context, schedule, NULL);
    x.out = calloc(total + 1, 1);
    x.in = calloc(total + 1, 1);
    CHECK(x.out && x.in);
    OK(bind_slot(x.run, out, x.out));
    OK(bind_slot(x.run, in, x.in));
    return x;
}

void exchange_start(struct exchange *x)
{
    for (int peer = 0; peer < x->size; peer++)
        world_fill(x->out + (size_t)peer * x->bytes, x->bytes, x->rank, peer, x->version);
    memset(x->in, 0xee, x->bytes * (size_t)x->size);
    OK(weft_run_start(x->run));
}

void exchange_finish(struct exchange *x)
{
    OK(weft_run_wait(x->run, WEFT_NEVER));
    for (int peer = 0; peer < x->size; peer++)
        world_same(x->in + (size_t)peer * x->bytes, x->bytes, peer, x->rank, x->version);
    x->version++;
}

void exchange_free(struct exchange *x)
{
    weft_run_destroy(x->run);
    free(x->out);
    free(x->in);
}

void exchange_many(struct weft_context *context, size_t bytes, int messages, const char *name)
{
    int per_peer = messages / weft_context_size(context);
    struct exchange x = exchange_make(context, bytes, per_peer);

    for (int start = 0; start < 2; start++) {
        if (x.rank % 2 == 1)
            pause_ms(20);
        exchange_start(&x);
        exchange_finish(&x);
    }
    exchange_free(&x);
    world_ok("%d messages of %zu bytes in flight%s", messages, bytes, name);
}
