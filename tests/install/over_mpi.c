/* SPDX-License-Identifier: BSD-3-Clause */
/* A user's program over MPI: a template on MPI_COMM_WORLD. */
#include <stdio.h>
#include <weft/mpi.h>
#include <weft/weft.h>

static int allreduce(struct weft_context *context)
{
    int rank = weft_context_rank(context);
    int size = weft_context_size(context);
    float mine[3] = {(float)rank, 1, (float)-rank};
    float sum[3] = {0};
    struct weft_template_params params;
    struct weft_run *run = NULL;

    weft_template_params_init(&params);
    params.count = 3;
    int status = weft_template_create_run(&run, context, "allreduce", &params);
    if (!status)
        status = weft_run_bind_input_name(run, "send", mine, 3, WEFT_F32);
    if (!status)
        status = weft_run_bind_name(run, "recv", sum, 3, WEFT_F32);
    if (!status)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    if (status)
        return status;
    float ranks = (float)(size * (size - 1) / 2);
    if (sum[0] != ranks || sum[1] != (float)size || sum[2] != -ranks)
        return weft_error_set(WEFT_ERR_STATE, "rank %d: the sum is %g %g %g", rank, (double)sum[0],
                              (double)sum[1], (double)sum[2]);
    return WEFT_OK;
}

int main(int argc, char **argv)
{
    struct weft_context *context = NULL;

    MPI_Init(&argc, &argv);
    int status = weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, NULL);
    if (!status)
        status = allreduce(context);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    weft_context_destroy(context);
    MPI_Finalize();
    return status != WEFT_OK;
}
