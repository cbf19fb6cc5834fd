/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts of some ranks between processes: at random, hundreds at once, thousands one after the
 * other. Nothing of MPI is duplicated for them, and each rank destroys its own when it likes, which
 * communicators forbid.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

#include "tests/support/splitting.h" /* after CHECK and OK */

enum { THOUSANDS = 10000 };

#ifdef __SANITIZE_ADDRESS__
enum { KEEPS_FREED = 1 }; /* so that memory does not stay flat */
#else
enum { KEEPS_FREED = 0 };
#endif

static struct weft_context *context;
static int rank, size;

static void random_life(uint64_t seed)
{
    struct splitting splitting = {.own = mixed(seed, 1000 + (uint64_t)rank), .count = 20000};

    split_at_random(&splitting, context, seed, 2);
    destroy_kept(&splitting);
}

/* KiB of this process that are in memory. */
static long resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file);
    CHECK(fscanf(file, "%*s %ld", &pages) == 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Whether it is so on any rank. */
static int agreed(int so)
{
    int32_t mine = so, all = 0;
    OK(weft_allreduce(context, &mine, &all, 1, WEFT_I32, weft_op_builtin(WEFT_MAX)));
    return all;
}

static void thousands(void)
{
    int times = size <= 3 ? THOUSANDS : THOUSANDS / 5; /* more ranks than cores are slow */
    int grown = 0;
    split_and_free(context, times / 5);
    /* 100 bytes of each of 10000 would be a MiB, every time. MPI's own memory grows in pieces now
     * and then, where a rank that is held up lets messages pile up. */
    for (int i = 0; i < 3 && grown == i; i++) {
        long before = resident();
        split_and_free(context, times / (i == 0 ? 1 : 3));
        long after = resident();
        long limit = before + (i == 0 ? 1000 : 333);
        if (after > limit)
            fprintf(stderr, "rank %d: %ld KiB, then %ld\n", rank, before, after);
        grown += agreed(after > limit);
    }
    CHECK(grown < 3);
}

static void no_colour(void)
{
    struct weft_context *child = NULL;

    if (rank == 0)
        OK(weft_context_split(context, WEFT_COLOUR_NONE, 0, &child));
    world_meet(); /* rank 0 does not drive, and nobody needs it to */
    if (rank != 0) {
        OK(weft_context_split(context, 4, -rank, &child));
        CHECK(weft_context_size(child) == size - 1);
        exchange_once(child, 5);
    }
    CHECK(!child == (rank == 0));
    world_meet();
    exchange_once(context, 1);
    OK(weft_context_destroy(child));
}

static void gone(void)
{
    struct weft_context *child = NULL;
    struct weft_schedule *schedule = NULL;
    int64_t x = 0;

    OK(weft_context_split(context, 0, 0, &child));
    OK(weft_schedule_create(&schedule, rank, size));
    weft_slot_t slot = weft_schedule_add_slot(schedule, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    if (rank != 0)
        weft_schedule_add_recv(schedule, weft_region_at(slot, 0, 1), 0, 0);
    struct weft_run *run = world_run(child, schedule, NULL);
    OK(bind_slot(run, slot, &x));
    if (rank != 0) {
        OK(weft_run_start(run));
        STATUS(WEFT_ERR_PEER, weft_run_wait(run, WEFT_NEVER));
        CHECK(strstr(weft_error_text(), "rank 0 has left"));
        weft_run_destroy(run);
    }
    OK(weft_context_destroy(child)); /* of rank 0 at once */
    exchange_once(context, 1);
}

static void left_to_the_root(void)
{
    struct weft_context *child = NULL, *grandchild = NULL;

    OK(weft_context_split(context, rank % 2, 0, &child));
    OK(weft_context_split(child, 0, -rank, &grandchild));
    exchange_once(grandchild, 5000);
    if (rank % 3 == 0)
        OK(weft_context_destroy(child));
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_THREADS);
    rank = world_rank;
    size = world_size;
    for (int helper = 0; helper <= 1; helper++) {
        const char *mode = helper ? "helper" : "caller";
        struct weft_context_config config;

        weft_context_config_init(&config);
        config.progress = helper ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
        context = world_context(&config);
        for (uint64_t seed = 1; seed <= 10; seed++)
            random_life(seed);
        world_ok("splits of splits (%s)", mode);
        split_hundreds(context, 3000);
        world_ok("%d at once, freed in any order (%s)", HUNDREDS, mode);
        if (!helper && !KEEPS_FREED) {
            thousands();
            world_ok("memory stays flat (%s)", mode);
        }
        no_colour();
        world_ok("a rank of no colour waits for nobody, and nobody for it (%s)", mode);
        gone();
        world_ok("a rank that has destroyed it is not waited for (%s)", mode);
        left_to_the_root();
        OK(weft_context_destroy(context));
        world_ok("what is left ends with the root (%s)", mode);
    }
    return world_end();
}
