/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective of one's own over memory of devices: the sum of all ranks' vectors, around a ring,
 * composed from messages and built-in reductions. No header of CUDA's is needed.
 *
 *   device_ring [RANKS [COUNT]]     on local ranks, whose devices are those of the machine in turn
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/device.h>
#include <weft/weft.h>

struct options {
    int ranks;
    size_t count;
};

/* [build] */
/* Block b of a vector that is cut into as many as there are ranks. */
static struct weft_region block(const struct options *options, weft_slot_t slot, int b)
{
    size_t ranks = (size_t)options->ranks, at = (size_t)((b + options->ranks) % options->ranks);
    size_t first = options->count * at / ranks;

    return weft_region_at(slot, first, options->count * (at + 1) / ranks - first);
}

/* Every rank passes on a block that it has added its own to, until each has one block of the sum;
 * then the sums go round. The tracker adds the orders that shared memory needs. */
static int build_ring(const struct options *options, int rank, struct weft_schedule **schedule)
{
    int size = options->ranks, left = (rank - 1 + size) % size, right = (rank + 1) % size;
    size_t largest = options->count / (size_t)size + 1;
    struct weft_schedule *s;
    struct weft_tracker *tracker = NULL;
    int status = weft_schedule_create(&s, rank, size);

    if (status)
        return status;
    status = weft_tracker_create(&tracker, s);
    weft_slot_t data = weft_schedule_add_slot(s, "data", WEFT_F32, options->count, WEFT_SLOT_INOUT);
    weft_slot_t next = weft_schedule_add_slot(s, "next", WEFT_F32, largest, WEFT_SLOT_SCRATCH);
    weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE);
    for (int step = 0; step < size - 1 && !status; step++) {
        struct weft_region mine = block(options, data, rank - step - 1);
        struct weft_region got = weft_region_at(next, 0, mine.count);

        weft_tracker_add(tracker, weft_schedule_add_send(s, block(options, data, rank - step),
                                                         right, (uint32_t)step));
        weft_tracker_add(tracker, weft_schedule_add_recv(s, got, left, (uint32_t)step));
        weft_tracker_add(tracker,
                         weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), mine, got, mine));
    }
    for (int step = 0; step < size - 1 && !status; step++) {
        uint32_t tag = (uint32_t)(size + step);

        weft_tracker_add(
            tracker, weft_schedule_add_send(s, block(options, data, rank + 1 - step), right, tag));
        weft_tracker_add(tracker,
                         weft_schedule_add_recv(s, block(options, data, rank - step), left, tag));
    }
    weft_tracker_destroy(tracker);
    if (!status)
        status = weft_schedule_status(s); /* the first error of all the calls above */
    if (status)
        weft_schedule_destroy(s);
    else
        *schedule = s;
    return status;
}
/* [build] */

/* [run] */
/* What one rank does: memory of its device, a run bound to it, and a look at what came out. */
static int sum(struct weft_context *context, void *user)
{
    const struct options *options = user;
    int rank = weft_context_rank(context);
    size_t bytes = options->count * sizeof(float);
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    float *here = weft_memory_alloc(options->count, sizeof *here);
    void *there = NULL;
    int status = here ? WEFT_OK : weft_error_set(WEFT_ERR_MEMORY, "no memory for the data");

    if (!status) /* opens the device, if nothing has before */
        status = weft_context_device_alloc(context, WEFT_MEMORY_DEVICE, bytes, &there);
    if (!status)
        status = build_ring(options, rank, &schedule);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(&run, context, plan, NULL);
    if (!status)
        status = weft_run_bind_name(run, "data", there, options->count, WEFT_F32);

    for (int round = 0; !status && round < 3; round++) {
        for (size_t i = 0; i < options->count; i++)
            here[i] = (float)((i + (size_t)(round + rank)) % 100);
        status = weft_context_device_copy(context, there, here, bytes);
        if (!status)
            status = weft_run_execute(run);
        if (!status)
            status = weft_context_device_copy(context, here, there, bytes);
        for (size_t i = 0; !status && i < options->count; i++) {
            float expected = 0;

            for (int r = 0; r < options->ranks; r++)
                expected += (float)((i + (size_t)(round + r)) % 100);
            if (here[i] != expected)
                status = weft_error_set(WEFT_ERR_STATE, "rank %d: element %zu is %g, expected %g",
                                        rank, i, (double)here[i], (double)expected);
        }
    }
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    weft_context_device_free(context, there);
    weft_memory_free(here);
    return status;
}
/* [run] */

int main(int argc, char **argv)
{
    struct options options = {.ranks = 4, .count = 100000};

    if (argc > 1)
        options.ranks = (int)strtol(argv[1], NULL, 10);
    if (argc > 2)
        options.count = strtoul(argv[2], NULL, 10);
    if (options.ranks < 1) {
        fputs("usage: device_ring [RANKS [COUNT]], RANKS from 1\n", stderr);
        return 2;
    }
    int status = weft_local_run(options.ranks, NULL, sum, &options);
    if (status) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
        return 1;
    }
    printf("%d ranks have the sum of %zu elements on their devices\n", options.ranks,
           options.count);
    return 0;
}
