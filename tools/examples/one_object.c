/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An object of two runs that fail as one: all ranks add up their losses, and rank 0 tells how fast
 * to learn. A rank whose loss is not a number any more says so, and the runs of all ranks end with
 * its words.
 *
 *   one_object [RANKS [STEPS]]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

/* [object] */
struct loop {
    struct weft_object *object;
    struct weft_run *add, *tell; /* its parts */
    double loss, sum, speed;
};

/* Makes one run of a template a part of the object. */
static int add_part(struct loop *loop, struct weft_context *context, const char *name,
                    struct weft_run **run)
{
    struct weft_template_params params;
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    weft_template_params_init(&params);
    params.count = 1;
    params.dtype = WEFT_F64;
    weft_run_config_init(&config);
    config.object = loop->object; /* it fails with the object, and the object with it */
    int status = weft_template_create_plan(&plan, context, name, &params);
    if (!status)
        status = weft_run_create(run, context, plan, &config);
    weft_plan_destroy(plan);
    return status;
}

static int create(struct loop *loop, struct weft_context *context)
{
    int status = weft_object_create(&loop->object, context, NULL);
    if (!status)
        status = add_part(loop, context, "allreduce", &loop->add);
    if (!status)
        status = add_part(loop, context, "broadcast", &loop->tell);
    if (status && loop->object) /* whoever is further on does not wait for this rank */
        weft_object_fail(loop->object, status, weft_error_text());
    return status;
}

/* The sum of all losses. Any rank may give up: then all end with an error that says which. */
static int step(struct loop *loop)
{
    if (isnan(loop->loss))
        weft_object_fail(loop->object, WEFT_ERR_COMPUTE, "the loss is not a number");
    weft_run_bind_input_name(loop->add, "send", &loop->loss, 1, WEFT_F64);
    weft_run_bind_name(loop->add, "recv", &loop->sum, 1, WEFT_F64);
    weft_run_bind_name(loop->tell, "buffer", &loop->speed, 1, WEFT_F64);
    int status = weft_run_execute(loop->add);
    return status ? status : weft_run_execute(loop->tell);
}

static void destroy(struct loop *loop)
{
    weft_run_destroy(loop->add);
    weft_run_destroy(loop->tell);
    weft_object_destroy(loop->object);
}
/* [object] */

enum { BAD_STEP = 3 };

/* The last rank breaks down in step 3. Returns WEFT_OK where that is what all ranks hear. */
static int rank_main(struct weft_context *context, void *user)
{
    int steps = *(const int *)user, rank = weft_context_rank(context);
    int size = weft_context_size(context), last = rank == size - 1;
    struct loop loop = {.object = NULL};
    int status = create(&loop, context);
    for (int i = 0; !status && i < steps; i++) {
        loop.loss = last && i == BAD_STEP ? NAN : 1.0 / (i + 1);
        loop.speed = rank == 0 ? 0.1 * i : 0;
        status = step(&loop);
        if (!status && (fabs(loop.sum - size / (i + 1.0)) > 1e-9 || loop.speed != 0.1 * i))
            status = weft_error_set(WEFT_ERR_COMPUTE, "a wrong sum in step %d", i);
    }
    if (status && rank == 0)
        printf("rank 0: %s\n", weft_error_text());
    if (steps > BAD_STEP)
        status = status == (last ? WEFT_ERR_COMPUTE : WEFT_ERR_PEER)
                     ? WEFT_OK
                     : weft_error_set(WEFT_ERR_STATE, "rank %d has not heard", rank);
    destroy(&loop);
    return status;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;
    int steps = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 5;
    if (ranks < 1 || steps < 1) {
        fputs("usage: one_object [RANKS [STEPS]], at least 1 each\n", stderr);
        return 2;
    }
    int status = weft_local_run(ranks, NULL, rank_main, &steps);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    return status ? 1 : 0;
}
