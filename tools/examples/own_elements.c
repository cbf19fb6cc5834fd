/* SPDX-License-Identifier: BSD-3-Clause */
/* An allreduce of structs: where is the greatest number of all ranks? */
#include <stdint.h>
#include <stdio.h>
#include <weft/weft.h>

enum { COUNT = 3, RANKS = 4 };

/* [place] */
struct place {
    double value;
    int32_t rank;
};

/* The greater value; of equal ones that of the lower rank, which stands in a. */
static int greatest(void *user, void *dst, const void *a, const void *b, size_t count,
                    weft_dtype_t dtype)
{
    const struct place *x = a, *y = b;
    struct place *to = dst; /* may be a or b */
    (void)user, (void)dtype;
    for (size_t i = 0; i < count; i++)
        to[i] = y[i].value > x[i].value ? y[i] : x[i];
    return WEFT_OK;
}

static int find(struct weft_context *context, struct place *places, const struct weft_op *op)
{
    struct weft_run *run = NULL;
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.count = COUNT;
    params.dtype = weft_dtype_opaque(sizeof(struct place));
    params.op = op;
    params.in_place = 1;
    int status = weft_template_create_run(&run, context, "allreduce", &params);
    if (!status && !(status = weft_run_bind_name(run, "recv", places, COUNT, params.dtype)))
        status = weft_run_execute(run);
    weft_run_destroy(run);
    return status;
}
/* [place] */

static int one_rank(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context);
    struct place places[COUNT];
    for (int i = 0; i < COUNT; i++)
        places[i] = (struct place){.value = (rank + i) % RANKS * 10, .rank = rank};
    int status = find(context, places, user);
    for (int i = 0; !status && rank == 0 && i < COUNT; i++)
        printf("number %d is greatest on rank %d: %g\n", i, (int)places[i].rank, places[i].value);
    return status;
}

int main(void)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    weft_op_config_init(&config);
    config.name = "greatest";
    config.reduce = greatest;
    int status = weft_op_create(&op, &config);
    if (!status)
        status = weft_local_run(RANKS, NULL, one_rank, op);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    weft_op_destroy(op);
    return status != WEFT_OK;
}
