/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failures between processes: what fails on one rank fails its peers, with a text that names the
 * rank; what was on its way is thrown away, and the context goes on.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/support/bind.h"
#include "tests/support/compute.h"
#include "world.h"

enum { BYTES = 300000 };

static struct weft_context *context;
static int rank, size, next, previous;

/* A ring exchange of `send` bytes where `receive` bytes are expected, after `fail` if not NULL. */
static struct weft_run *ring(size_t send, size_t receive, const struct weft_op *fail,
                             const struct weft_run_config *config)
{
    static unsigned char out[BYTES], in[BYTES];
    struct weft_schedule *schedule = NULL;
    weft_slot_t a, b;
    weft_node_t sent, computed;
    struct weft_region region;
    struct weft_run *run;

    OK(weft_schedule_create(&schedule, rank, size));
    OK(weft_schedule_set_name(schedule, "ring"));
    a = weft_schedule_add_slot(schedule, "a", WEFT_U8, BYTES, WEFT_SLOT_INPUT);
    b = weft_schedule_add_slot(schedule, "b", WEFT_U8, BYTES, WEFT_SLOT_OUTPUT);
    if (fail) {
        region = weft_region_at(a, 0, 1);
        computed = add_compute(schedule, fail, &region, 1, 0, 0);
    }
    sent = weft_schedule_add_send(schedule, weft_region_at(a, 0, send), next, 9);
    weft_schedule_add_recv(schedule, weft_region_at(b, 0, receive), previous, 9);
    if (fail)
        OK(weft_schedule_add_order(schedule, computed, sent));
    run = world_run(context, schedule, config);
    OK(bind_slot(run, a, out));
    OK(bind_slot(run, b, in));
    return run;
}

static void reclaim(struct weft_run *run)
{
    int status;

    while ((status = weft_run_reclaim(run)) == WEFT_IN_PROGRESS)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    STATUS(WEFT_OK, status);
}

/* A ring that works shows that the context does. */
static void still_works(void)
{
    struct weft_run *run = ring(BYTES, BYTES, NULL, NULL);

    for (int start = 0; start < 3; start++)
        OK(weft_run_execute(run));
    weft_run_destroy(run);
}

/* It failed here, or a peer told. */
static int failed_with(int status, int own)
{
    if (status != own && status != WEFT_ERR_PEER)
        printf("status %s: %s\n", weft_status_name(status), weft_error_text());
    return status == own || status == WEFT_ERR_PEER;
}

static void truncated(size_t bytes)
{
    struct weft_run *run = ring(bytes, bytes - 1, NULL, NULL);

    OK(weft_run_start(run));
    CHECK(failed_with(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_TRUNCATED));
    CHECK(strstr(weft_error_text(), "ring"));
    reclaim(run);
    weft_run_destroy(run);
    still_works();
    world_ok("a message of %zu bytes for a receive of one less fails both", bytes);
}

static int refuse(struct weft_call *call)
{
    (void)call;
    return WEFT_ERR_COMPUTE;
}

static int accept(struct weft_call *call)
{
    (void)call;
    return WEFT_OK;
}

static void compute_fails(void)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    struct weft_run *run;
    int status;

    weft_op_config_init(&config);
    config.name = "refuse";
    config.compute = rank == 0 ? refuse : accept;
    OK(weft_op_create(&op, &config));
    run = ring(BYTES, BYTES, op, NULL);
    weft_op_destroy(op);
    OK(weft_run_start(run));
    status = weft_run_wait(run, WEFT_NEVER);
    if (rank == 0)
        CHECK(status == WEFT_ERR_COMPUTE);
    if (rank == next)
        CHECK(status == WEFT_ERR_COMPUTE);
    else if (rank == 1)
        CHECK(status == WEFT_ERR_PEER);
    reclaim(run);
    weft_run_destroy(run);
    world_meet_driving(context);
    still_works();
    world_ok("a compute that fails on rank 0 fails its peers");
}

static void cancelled(void)
{
    struct weft_run *run = ring(BYTES, BYTES, NULL, NULL);
    int status;

    if (rank != 0)
        OK(weft_run_start(run));
    else {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        OK(weft_run_start(run));
        OK(weft_run_cancel(run));
    }
    status = weft_run_wait(run, WEFT_NEVER);
    CHECK(status == WEFT_OK || failed_with(status, WEFT_ERR_CANCELLED));
    reclaim(run);
    weft_run_destroy(run);
    world_meet_driving(context);
    still_works();
    world_ok("a run that is cancelled on one rank ends on all");
}

static void deadline(void)
{
    struct weft_run_config config;
    struct weft_run *run;
    int status;

    weft_run_config_init(&config);
    config.deadline_ns = size == 1 ? 0 : 20000000; /* alone it ends, however late */
    run = ring(BYTES, BYTES, NULL, &config);
    if (rank != 0) { /* rank 0 does not come */
        OK(weft_run_start(run));
        status = weft_run_wait(run, WEFT_NEVER);
        if (previous == 0)
            CHECK(failed_with(status, WEFT_ERR_TIMEOUT));
    }
    world_meet();
    if (rank == 0) {
        OK(weft_run_start(run));
        CHECK(size == 1 || weft_run_wait(run, WEFT_NEVER) != WEFT_OK);
        OK(size == 1 ? weft_run_wait(run, WEFT_NEVER) : WEFT_OK);
    }
    reclaim(run);
    weft_run_destroy(run);
    still_works();
    world_ok("a deadline ends the wait for a rank that does not come");
}

/* Whoever destroys a run may give its buffers away: rank 0 takes late what it has been sent, or
 * refuses it, and reads no memory that is gone. */
static void given_back(void)
{
    unsigned char *memory =
        mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct weft_run *run = ring(BYTES, BYTES, NULL, NULL);

    CHECK(memory != MAP_FAILED);
    memset(memory, 1, 2 * BYTES);
    OK(bind_slot(run, 0, memory));
    OK(bind_slot(run, 1, memory + BYTES));
    if (rank != 0) {
        OK(weft_run_start(run));
        OK(weft_run_cancel(run));
    }
    world_meet();
    if (rank == 0)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    weft_run_destroy(run);
    CHECK(munmap(memory, 2 * BYTES) == 0);
    world_meet_driving(context);
    still_works();
    world_ok("a run that is destroyed has its buffers back");
}

/* The context is destroyed with messages on their way that nobody will take. */
static void abandoned(void)
{
    struct weft_run *run = ring(BYTES, BYTES, NULL, NULL);

    if (rank % 2 == 0)
        OK(weft_run_start(run));
    weft_context_destroy(context);
    world_ok("a context ends with unwanted messages on their way");
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_ONE_THREAD);
    context = world_context(NULL);
    rank = world_rank;
    size = world_size;
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    still_works();
    truncated(100);
    truncated(70000);
    truncated(BYTES);
    compute_fails();
    cancelled();
    deadline();
    given_back();
    abandoned();
    return world_end();
}
