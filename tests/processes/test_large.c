/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A message of 2^31 + 8 bytes from rank 0 to rank 1, and one of as many in pieces. Needs several
 * GB; on a machine with less than 12 GiB free it says so and is skipped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/bind.h"
#include "world.h"

enum { SKIPPED = 77 };
static const size_t bytes = ((size_t)1 << 31) + 8;

static int memory_is_enough(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    unsigned long long kilobytes = 0;
    char line[128];

    if (!file)
        return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu", &kilobytes) == 1)
            break;
    fclose(file);
    return kilobytes >= 12ull << 20;
}

/* A word that tells its place. */
static uint64_t word(size_t i, int start)
{
    return i * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)start;
}

static void send_it(struct weft_context *context, uint64_t *data, int pieces, int start)
{
    struct weft_schedule *schedule = NULL;
    struct weft_run *run;
    weft_slot_t slot;
    int rank = weft_context_rank(context);

    OK(weft_schedule_create(&schedule, rank, 2));
    slot = weft_schedule_add_slot(schedule, "data", WEFT_U8, bytes, WEFT_SLOT_INOUT);
    if (rank == 0)
        weft_schedule_add_send(schedule, weft_region_at(slot, 0, bytes), 1, 0);
    else
        weft_schedule_add_recv(schedule, weft_region_at(slot, 0, bytes), 0, 0);
    run = world_run(context, schedule, NULL);
    if (pieces) { /* cut elsewhere on each side */
        size_t cut = rank == 0 ? 1000 : bytes - 4096;
        struct weft_piece list[2] = {{data, cut}, {(char *)data + cut, bytes - cut}};

        OK(bind_list(run, slot, list, 2));
    } else {
        OK(bind_slot(run, slot, data));
    }
    for (size_t i = 0; i < bytes / 8; i++)
        data[i] = rank == 0 ? word(i, start) : 0;
    OK(weft_run_execute(run));
    for (size_t i = 0; i < bytes / 8; i++)
        if (data[i] != word(i, start)) {
            printf("word %zu differs\n", i);
            CHECK(!"the payload that was sent");
        }
    weft_run_destroy(run);
}

int main(int argc, char **argv)
{
    struct weft_context *context;
    uint64_t *data;
    int enough, all[2];

    world_init(&argc, &argv, WORLD_ONE_THREAD);
    CHECK(world_size == 2);
    enough = memory_is_enough();
    world_gather(&enough, sizeof enough, all);
    if (!all[0] || !all[1]) {
        world_skip("messages over 2 GiB", "less than 12 GiB of memory available");
        world_end();
        return SKIPPED;
    }
    data = malloc(bytes);
    CHECK(data);
    context = world_context(NULL);
    send_it(context, data, 0, 1);
    world_ok("a message of %zu bytes", bytes);
    send_it(context, data, 1, 2);
    world_ok("a message of %zu bytes in pieces", bytes);
    weft_context_destroy(context);
    free(data);
    return world_end();
}
