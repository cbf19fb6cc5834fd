/* SPDX-License-Identifier: BSD-3-Clause */
/* A user's program on local ranks: a template and a graph of its own. */
#include <stdio.h>
#include <weft/weft.h>

#if WEFT_VERSION_NUMBER < WEFT_VERSION_OF(0, 2, 0) || WEFT_VERSION_MAJOR != 0
#    error "not the headers that this was written for"
#endif

/* A template by its name: they must be there in every kind of library. */
static int by_template(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context);
    int size = weft_context_size(context);
    float mine[2] = {(float)rank, 1};
    float sum[2] = {0, 0};
    struct weft_template_params params;
    struct weft_run *run = NULL;

    (void)user;
    weft_template_params_init(&params);
    params.count = 2;
    int status = weft_template_create_run(&run, context, "allreduce", &params);
    if (!status)
        status = weft_run_bind_input_name(run, "send", mine, 2, WEFT_F32);
    if (!status)
        status = weft_run_bind_name(run, "recv", sum, 2, WEFT_F32);
    if (!status)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    if (!status && (sum[0] != (float)(size * (size - 1) / 2) || sum[1] != (float)size))
        return weft_error_set(WEFT_ERR_STATE, "rank %d: the sum is %g %g", rank, (double)sum[0],
                              (double)sum[1]);
    return status;
}

/* Every rank's number goes to the right. */
static int by_hand(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context);
    int size = weft_context_size(context);
    int32_t sent = rank;
    int32_t received = -1;
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;

    (void)user;
    weft_schedule_create(&schedule, rank, size);
    weft_slot_t in = weft_schedule_add_slot(schedule, "in", WEFT_I32, 1, WEFT_SLOT_INPUT);
    weft_slot_t out = weft_schedule_add_slot(schedule, "out", WEFT_I32, 1, WEFT_SLOT_OUTPUT);
    weft_schedule_add_send(schedule, weft_region_at(in, 0, 1), (rank + 1) % size, 1);
    weft_schedule_add_recv(schedule, weft_region_at(out, 0, 1), (rank + size - 1) % size, 1);
    int status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(&run, context, plan, NULL);
    if (!status)
        status = weft_run_bind_input(run, in, &sent, 1, WEFT_I32);
    if (!status)
        status = weft_run_bind(run, out, &received, 1, WEFT_I32);
    if (!status)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    if (!status && received != (rank + size - 1) % size)
        return weft_error_set(WEFT_ERR_STATE, "rank %d: received %d", rank, (int)received);
    return status;
}

int main(void)
{
    int status = weft_local_run(3, NULL, by_template, NULL);

    if (!status)
        status = weft_local_run(4, NULL, by_hand, NULL);
    if (!status && weft_version_number() != WEFT_VERSION_NUMBER)
        status = weft_error_set(WEFT_ERR_STATE, "compiled with weft %s, runs with %s", WEFT_VERSION,
                                weft_version());
    if (status) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
        return 1;
    }
    printf("weft %s\n", weft_version());
    return 0;
}
