/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <weft/weft.h>

/* Every rank's number travels once around a ring, and each rank adds what comes by. */
static int ring_sum(struct weft_context *context, void *user)
{
    (void)user;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_schedule *s = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    weft_schedule_create(&s, rank, size);
    weft_slot_t sum = weft_schedule_add_slot(s, "sum", WEFT_F64, 1, WEFT_SLOT_INOUT);
    weft_slot_t seen = weft_schedule_add_slot(s, "seen", WEFT_F64, size, WEFT_SLOT_SCRATCH);
    weft_node_t here =
        weft_schedule_add_copy(s, weft_region_at(seen, 0, 1), weft_region_at(sum, 0, 1));
    weft_node_t added = here;
    for (int i = 1; i < size; i++) {
        weft_node_t pass =
            weft_schedule_add_send(s, weft_region_at(seen, i - 1, 1), (rank + 1) % size, i);
        weft_schedule_add_order(s, here, pass);
        here = weft_schedule_add_recv(s, weft_region_at(seen, i, 1), (rank + size - 1) % size, i);
        weft_node_t add =
            weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), weft_region_at(sum, 0, 1),
                                     weft_region_at(sum, 0, 1), weft_region_at(seen, i, 1));
        weft_schedule_add_order(s, here, add);
        weft_schedule_add_order(s, added, add);
        added = add;
    }
    double number = rank + 1;
    int status = weft_schedule_commit(s, &plan); /* the first error sticks: one check will do */
    if (!status && !(status = weft_run_create(&run, context, plan, NULL)) &&
        !(status = weft_run_bind(run, sum, &number, 1, WEFT_F64)) &&
        !(status = weft_run_execute(run)))
        printf("rank %d of %d: the sum is %g\n", rank, size, number);
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(s);
    return status;
}

int main(void)
{
    int status = weft_local_run(4, NULL, ring_sum, NULL);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    return status != WEFT_OK;
}
