/* SPDX-License-Identifier: BSD-3-Clause */
/* The blocking collectives between processes; support/blocking.h has what they are compared with.
 * */
#include <string.h>

#include "support/blocking.h"
#include "world.h"

/* A vector that does not travel in a packet. */
enum { LARGE = 1 << 16 };

static struct weft_context *new_context(weft_progress_t progress)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = progress;
    return world_context(&config);
}

static void still_in_step(struct weft_context *context)
{
    int64_t in = world_rank + 1, out = 0, size = world_size;
    OK(weft_allreduce(context, &in, &out, 1, WEFT_I64, weft_op_builtin(WEFT_SUM)));
    CHECK(out == size * (size + 1) / 2);
}

static void keep(struct weft_context *context, size_t plans)
{
    struct weft_collectives_config config;
    weft_collectives_config_init(&config);
    config.plans = plans;
    OK(weft_collectives_configure(context, &config));
}

/* One rank after the other has an argument that is wrong, in a call of small and large messages. */
static void fail_one(struct weft_context *context, double *in, double *out)
{
    const struct weft_op *sum = weft_op_builtin(WEFT_SUM), *band = weft_op_builtin(WEFT_BAND);
    for (int culprit = 0; culprit < world_size; culprit++)
        for (size_t count = 1; count <= LARGE; count *= LARGE) {
            char who[32];
            snprintf(who, sizeof who, "rank %d failed", culprit);
            int mine = culprit == world_rank;
            int status = weft_allreduce(context, in, out, count, WEFT_F64, mine ? band : sum);
            CHECK(status == (mine ? WEFT_ERR_INVALID : WEFT_ERR_PEER));
            CHECK(mine || strstr(weft_error_text(), who));
            CHECK(strstr(weft_error_text(), "weft_allreduce: argument `op` is band"));
            still_in_step(context);
        }
}

static void large_vectors(struct weft_context *context, double *in, double *out)
{
    for (int i = 0; i < LARGE; i++)
        in[i] = i % 97 + world_rank;
    for (int turn = 0; turn < 3; turn++) {
        OK(weft_allreduce(context, in, out, LARGE, WEFT_F64, weft_op_builtin(WEFT_SUM)));
        for (int i = 0; i < LARGE; i++)
            CHECK(out[i] == (i % 97) * world_size + world_size * (world_size - 1) / 2);
    }
}

/* Halves at once, and the whole after that. */
static void split_in_two(struct weft_context *context, double *in, double *out)
{
    struct weft_context *half = NULL;
    OK(weft_context_split(context, world_rank % 2, 0, &half));
    CHECK(!blocking_sweep(half, 97, (unsigned)world_rank % 2));
    still_in_step(context);
    OK(weft_allreduce(half, in, out, LARGE, WEFT_F64, weft_op_builtin(WEFT_SUM)));
    OK(weft_context_destroy(half));
    still_in_step(context);
}

static void one_context(weft_progress_t progress, const char *how)
{
    struct weft_context *context = new_context(progress);
    double *in = calloc(LARGE, sizeof *in), *out = calloc(LARGE, sizeof *out);
    unsigned stride = world_size > 3 ? 23 : 5;
    CHECK(in && out);
    CHECK(!blocking_sweep(context, stride, (unsigned)world_size));
    world_ok("every function gives what plain loops give, %s", how);
    keep(context, (size_t)world_rank % 2 + 1);
    CHECK(!blocking_sweep(context, 3 * stride, 1));
    world_ok("ranks keep what they like, %s", how);
    large_vectors(context, in, out);
    world_ok("large vectors, %s", how);
    fail_one(context, in, out);
    world_ok("an argument of one rank fails that call, and the next one works, %s", how);
    split_in_two(context, in, out);
    world_ok("in contexts that were split, %s", how);
    for (int i = 0; i < (world_size > 3 ? 200 : 5000); i++)
        still_in_step(context);
    world_ok("many calls, %s", how);
    weft_context_destroy(context); /* with what is kept */
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_THREADS);
    one_context(WEFT_PROGRESS_CALLER, "driven by the caller");
    one_context(WEFT_PROGRESS_HELPER, "driven by a helper");
    return world_end();
}
