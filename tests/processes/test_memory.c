/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every allocation of rank 0 fails in turn: while a context is made, all ranks get it or none does;
 * while messages are on their way, all ranks' runs end, and the context can be destroyed.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/alloc.h"
#include "tests/support/bind.h"
#include "world.h"

/* A rank that has no memory to say so is waited for, but over MPI, where it needs none. */
static void creation(void)
{
    int ok = 0;

    for (long n = 1; !ok; n++) {
        struct weft_context *context = NULL;
        int status;

        if (world_rank == 0)
            atomic_store(&weft__alloc_countdown, n);
        status = world_create(&context, NULL);
        ok = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
        world_share(&ok, sizeof ok);
        if (ok)
            CHECK(status == WEFT_OK);
        if (status == WEFT_OK)
            weft_context_destroy(context);
        else
            CHECK(status == WEFT_ERR_MEMORY && !context && weft_error_text()[0] != '\0');
    }
    world_ok("creation with every allocation failing in turn");
}

/* All to all of `bytes`, with all the receives posted late. */
static struct weft_run *make(struct weft_context *context, size_t bytes, unsigned char *out,
                             unsigned char *in)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_schedule *schedule = NULL;
    struct weft_run *run;
    weft_slot_t a, b;

    OK(weft_schedule_create(&schedule, rank, size));
    a = weft_schedule_add_slot(schedule, "a", WEFT_U8, bytes, WEFT_SLOT_INPUT);
    b = weft_schedule_add_slot(schedule, "b", WEFT_U8, bytes * (size_t)size, WEFT_SLOT_OUTPUT);
    for (int peer = 0; peer < size; peer++)
        weft_schedule_add_send(schedule, weft_region_at(a, 0, bytes), peer, 1);
    for (int peer = 0; peer < size; peer++)
        weft_schedule_add_recv(schedule, weft_region_at(b, bytes * (size_t)peer, bytes), peer, 1);
    run = world_run(context, schedule, NULL);
    OK(bind_slot(run, a, out));
    OK(bind_slot(run, b, in));
    return run;
}

static void messages(size_t bytes)
{
    unsigned char *out = calloc(bytes, 1), *in = calloc(bytes * (size_t)world_size, 1);
    int ok = 0;

    CHECK(out && in);
    for (long n = 1; !ok; n++) {
        struct weft_context *context = world_context(NULL);
        struct weft_run *run = make(context, bytes, out, in);
        int status;

        if (world_rank == 0)
            atomic_store(&weft__alloc_countdown, n);
        OK(weft_run_start(run));
        status = weft_run_wait(run, WEFT_NEVER);
        ok = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
        CHECK(status == WEFT_OK || status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER);
        while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        weft_run_destroy(run);
        weft_context_destroy(context);
        world_share(&ok, sizeof ok);
        if (ok)
            CHECK(status == WEFT_OK);
    }
    free(out);
    free(in);
    world_ok("messages of %zu bytes with every allocation failing in turn", bytes);
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_ONE_THREAD);
    if (world_size == 1 || world_hears_all)
        creation();
    messages(100);
    messages(8000);
    messages(50000);
    messages(300000);
    return world_end();
}
