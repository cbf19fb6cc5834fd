/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rings of the channel, with ranks as threads over one mapping: what is eager, control
 * messages, rings that are full, ranks that run ahead, leave, and write what cannot be.
 */
#include <criterion/criterion.h>

#include "tests/support/blocking.h"
#include "tests/support/mapped_ranks.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 101, ROUNDS = 1500, AHEAD = 700 };
#else
enum { STRIDE = 11, ROUNDS = 20000, AHEAD = 1000 };
#endif

static void run(ranks_fn fn, int size, void *user, weft_progress_t progress)
{
    struct ranks ranks;
    ranks_init(&ranks, size, fn, user);
    ranks.config.progress = progress;
    mapped_run(&ranks, 0, 0);
}

static void run_each(ranks_fn fn, int size, void *user)
{
    run(fn, size, user, WEFT_PROGRESS_CALLER);
    run(fn, size, user, WEFT_PROGRESS_HELPER);
}

/* ---- what arrives ---- */

static void sum_often(struct ranks *ranks, struct weft_context *context, int rank)
{
    int64_t size = ranks->size;
    int rounds = ROUNDS / ranks->size;
    for (int64_t i = 0; i < rounds; i++) {
        int64_t in = i + rank, out = 0;
        OK(weft_allreduce(context, &in, &out, 1, WEFT_I64, weft_op_builtin(WEFT_SUM)));
        CHECK(out == size * i + size * (size - 1) / 2);
    }
}

/* Counters of rings wrap within the first hundred messages. */
Test(shared_ring, sums_of_many_rounds)
{
    static const int sizes[] = {1, 2, 3, 4, 8, 16, 17, 33};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        run_each(sum_often, sizes[i], NULL);
}
