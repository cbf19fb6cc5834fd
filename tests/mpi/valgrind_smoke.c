/* SPDX-License-Identifier: BSD-3-Clause */
/* A little of everything over MPI, for valgrind: small and large messages, lists, a failed run. */
#include <stdlib.h>
#include <string.h>

#include "tests/processes/world.h"
#include "tests/support/bind.h"

static void reduce(struct weft_context *context, size_t count)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int32_t *data = malloc(count * sizeof *data);
    int size = weft_context_size(context);

    CHECK(data);
    weft_template_params_init(&params);
    params.count = count;
    params.dtype = WEFT_I32;
    params.in_place = 1;
    OK(weft_template_create_run(&run, context, "allreduce", &params));
    OK(bind_name(run, "recv", data));
    for (int start = 0; start < 3; start++) {
        for (size_t i = 0; i < count; i++)
            data[i] = (int32_t)i + start;
        OK(weft_run_execute(run));
        for (size_t i = 0; i < count; i++)
            CHECK(data[i] == ((int32_t)i + start) * size);
    }
    weft_run_destroy(run);
    free(data);
}

/* A list to the next rank; `extra` bytes more than it expects. */
static void list(struct weft_context *context, size_t extra)
{
    enum { BYTES = 40000 };
    int rank = weft_context_rank(context), size = weft_context_size(context);
    unsigned char *out = calloc(BYTES + extra, 1), *in = calloc(BYTES, 1);
    struct weft_piece pieces[2] = {{in, 10}, {in + 10, BYTES - 10}};
    struct weft_schedule *schedule = NULL;
    weft_slot_t a, b;
    struct weft_run *run;

    OK(weft_schedule_create(&schedule, rank, size));
    a = weft_schedule_add_slot(schedule, "a", WEFT_U8, BYTES + extra, WEFT_SLOT_INPUT);
    b = weft_schedule_add_slot(schedule, "b", WEFT_U8, BYTES, WEFT_SLOT_OUTPUT);
    weft_schedule_add_send(schedule, weft_region_at(a, 0, BYTES + extra), (rank + 1) % size, 0);
    weft_schedule_add_recv(schedule, weft_region_at(b, 0, BYTES), (rank + size - 1) % size, 0);
    run = world_run(context, schedule, NULL);
    world_fill(out, BYTES, rank, 0, 0);
    OK(bind_slot(run, a, out));
    OK(bind_list(run, b, pieces, 2));
    if (extra == 0) {
        OK(weft_run_execute(run));
        world_same(in, BYTES, (rank + size - 1) % size, 0, 0);
    } else {
        CHECK(weft_run_execute(run) < 0);
    }
    weft_run_destroy(run);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    struct weft_context *context;

    world_init(&argc, &argv, WORLD_ONE_THREAD);
    context = world_context(NULL);
    reduce(context, 1);
    reduce(context, 1000);
    reduce(context, 50000);
    list(context, 0);
    list(context, 1);
    weft_context_destroy(context);
    world_ok("a little of everything");
    return world_end();
}
