/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes of one machine add their numbers: weft launch -n 4 processes. */
#include <stdio.h>
#include <weft/weft.h>

static int add(struct weft_context *context)
{
    double mine = weft_context_rank(context) + 1;
    double sum = 0;
    int status = weft_allreduce(context, &mine, &sum, 1, WEFT_F64, weft_op_builtin(WEFT_SUM));

    if (status == WEFT_OK)
        printf("rank %d of %d: the sum is %g\n", weft_context_rank(context),
               weft_context_size(context), sum);
    return status;
}

int main(void)
{
    struct weft_context *context = NULL;
    int status = weft_context_create_world(&context, "shared", NULL);

    if (status == WEFT_OK)
        status = add(context);
    if (status != WEFT_OK)
        fprintf(stderr, "processes: %s\n", weft_error_text());
    weft_context_destroy(context);
    return status != WEFT_OK;
}
