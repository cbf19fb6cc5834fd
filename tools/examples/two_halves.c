/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vector is summed over all ranks in two halves, one after the other, in one graph made of the
 * template's: the first half is used while the second is still held back.
 *
 *   two_halves [RANKS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { COUNT = 1000, HALF = COUNT / 2 };

/* [build] */
/* In each half of the vector an allreduce; the second one waits for `go` as well. */
static int build_halves(int rank, int size, struct weft_schedule **schedule, weft_node_t ended[2],
                        weft_node_t *go)
{
    struct weft_template_params params = {
        .struct_size = sizeof params, .count = HALF, .in_place = 1};
    struct weft_schedule *sum = NULL;
    int status = weft_template_build("allreduce", rank, size, &params, &sum);
    if (!status)
        status = weft_schedule_create(schedule, rank, size);
    if (status)
        goto destroy;
    weft_schedule_add_slot(*schedule, "vector", WEFT_F32, COUNT, WEFT_SLOT_INOUT);
    weft_node_t after = WEFT_NODE_NONE;
    for (uint32_t half = 0; half < 2; half++) {
        const struct weft_part_slot slots[] = {{"recv", weft_region_at(0, half * HALF, HALF)}};
        const struct weft_part_config config = {.struct_size = sizeof config,
                                                .slots = slots,
                                                .slot_count = 1,
                                                .tag = half << 31,
                                                .tag_count = 1u << 31};
        ended[half] = weft_schedule_add_part(*schedule, sum, after, &config);
        *go = half ? *go : weft_schedule_add_event(*schedule, WEFT_CHANNEL_NONE);
        weft_schedule_add_order(*schedule, ended[0], *go);
        after = *go;
    }
    status = weft_schedule_status(*schedule);
destroy:
    weft_schedule_destroy(sum);
    return status;
}
/* [build] */

/* [wait] */
static int use_halves(struct weft_run *run, const weft_node_t ended[2], weft_node_t go,
                      const float *vector)
{
    int status = weft_run_start(run);
    if (!status)
        status = weft_run_wait_node(run, ended[0], WEFT_NEVER);
    if (!status && weft_run_wait_node(run, ended[1], 0) == WEFT_IN_PROGRESS)
        printf("the first half is there: %g\n", vector[0]);
    if (!status)
        status = weft_run_fire(run, go);
    if (!status)
        status = weft_run_wait(run, WEFT_NEVER);
    if (!status)
        printf("and the second: %g\n", vector[HALF]);
    return status;
}
/* [wait] */

static int halves(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    weft_node_t ended[2], go = WEFT_NODE_NONE;
    float vector[COUNT];
    (void)user;
    for (int i = 0; i < COUNT; i++)
        vector[i] = (float)(i < HALF ? 1 : rank);
    int status = build_halves(rank, size, &schedule, ended, &go);
    if (!status && !(status = weft_schedule_commit(schedule, &plan)) &&
        !(status = weft_run_create(&run, context, plan, NULL)) &&
        !(status = weft_run_bind(run, 0, vector, COUNT, WEFT_F32)))
        status = rank == 0 ? use_halves(run, ended, go, vector) : weft_run_start(run);
    if (!status && rank != 0 && !(status = weft_run_fire(run, go)))
        status = weft_run_wait(run, WEFT_NEVER);
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    if (!status &&
        (vector[HALF - 1] != (float)size || vector[COUNT - 1] != (float)(size * (size - 1) / 2)))
        status = weft_error_set(WEFT_ERR_COMPUTE, "rank %d has %g and %g", rank, vector[HALF - 1],
                                vector[COUNT - 1]);
    return status;
}

int main(int argc, char **argv)
{
    char *end = "";
    long size = argc > 1 ? strtol(argv[1], &end, 10) : 4;
    if (*end || size < 1 || size > 1000) {
        fprintf(stderr, "usage: %s [RANKS]\n", argv[0]);
        return 2;
    }
    int status = weft_local_run((int)size, NULL, halves, NULL);
    if (status)
        fprintf(stderr, "%s\n", weft_error_text());
    return status ? 1 : 0;
}
