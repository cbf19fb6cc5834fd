/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Templates with counts a block on local and on virtual ranks, with a plain computation beside
 * them: zero, odd, even and uneven counts, blocks behind each other and anywhere, in place and not.
 */
#include <criterion/criterion.h>

#include "support/ragged.h"
#include "tests/support/opaque.h"
#include "tests/support/sweep.h"
#include "tests/support/virtual_ranks.h"

enum { STARTS = 2 };
enum { STRIDE = SWEPT(1, 11) };

static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};

/* Every pattern and algorithm, in place and apart by turns. */
static int sweep(struct weft_context *context, const char *name, int stride)
{
    const struct weft_template *template = weft_template_find(name);
    const struct weft_op *compose = opaque_op(0);
    int size = weft_context_size(context), number = size, status = 0;
    char text[768];
    for (size_t a = 0; a <= template->algorithm_count && !status; a++)
        for (int pattern = 0; pattern < RAGGED_PATTERNS && !status; pattern++)
            for (int way = 0; way < 8 && !status; way++) {
                struct ragged c = {.name = name, .size = size, .pattern = pattern};
                c.algo = a < template->algorithm_count ? template->algorithms[a].name : NULL;
                c.in_place = way & 1;
                c.apart = (way >> 1 & 1) && !(c.in_place && !strcmp(name, "reduce-scatterv"));
                c.agreed = way >> 2 & 1;
                c.root = strstr(template->parameters, "root") ? number % size : 0;
                c.dtype = WEFT_U32;
                c.op = weft_op_builtin(WEFT_SUM);
                c.segment = number % 3 ? 0 : pattern == 6 ? 4096 : 20;
                c.aggregate = (size_t)number % 4;
                if (!ragged_serves(&c) || number++ % stride)
                    continue;
                if (number % 4 == 0 &&
                    (a == template->algorithm_count || template->algorithms[a].ordered)) {
                    c.dtype = weft_dtype_opaque(12);
                    c.op = compose;
                }
                status = ragged_run(context, &c, STARTS, text, sizeof text);
            }
    weft_op_destroy((struct weft_op *)compose);
    return status ? weft_error_set(WEFT_ERR_COMPUTE, "%s", text) : WEFT_OK;
}

static void sweep_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    OK(sweep(context, ranks->user, STRIDE * (int)swept_again()));
}

static void on_local_ranks(const char *name)
{
    for (size_t i = 0; i < SWEPT(sizeof sizes / sizeof sizes[0], 6); i++) {
        struct ranks ranks;
        ranks_init(&ranks, sizes[i], sweep_locally, (void *)(uintptr_t)name);
        if (i % 3 == 1)
            ranks.local_config.eager_bytes = WEFT_EAGER_NONE;
        ranks.config.progress = i % 3 == 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
        ranks_run(&ranks);
    }
}

Test(ragged_local, allgatherv)
{
    on_local_ranks("allgatherv");
}

Test(ragged_local, gatherv)
{
    on_local_ranks("gatherv");
}

Test(ragged_local, scatterv)
{
    on_local_ranks("scatterv");
}

Test(ragged_local, alltoallv)
{
    on_local_ranks("alltoallv");
}

Test(ragged_local, reduce_scatterv)
{
    on_local_ranks("reduce-scatterv");
}

static int sweep_virtually(struct weft_context *context, void *user)
{
    for (int n = 0; ragged_names[n]; n++) {
        int status = sweep(context, ragged_names[n], *(int *)user);
        if (status)
            return status;
    }
    return WEFT_OK;
}

Test(ragged_local, every_template_on_virtual_ranks)
{
    for (uint64_t i = 0; i < SWEPT(sizeof sizes / sizeof sizes[0], 6); i++) {
        struct weft_virtual_config config = with_seed(17 + i);
        struct weft_net net;
        int stride = 3 * STRIDE * (int)swept_again();
        give_net(&config, &net);
        config.delay_ns = i % 2 ? 20000 : 0;
        if (i % 4 == 1)
            net.S = i % 8 == 1 ? WEFT_NET_NO_EAGER : 100;
        cr_assert_eq(weft_virtual_run(sizes[i], &config, sweep_virtually, &stride), WEFT_OK,
                     "seed %d: %s", (int)config.seed, weft_error_text());
    }
}

/* Where no payload is carried, blocks need no memory. */
static int bind_nothing(struct weft_context *context, void *user)
{
    static const char *const names[] = {"allgatherv", "alltoallv"};
    static const size_t counts[] = {3, 0, 2}, equal[] = {4, 4, 4}, apart[] = {7, 0, 1};
    (void)user;
    for (int i = 0; i < 2; i++) {
        struct weft_template_params params;
        struct weft_run *run = NULL;
        weft_template_params_init(&params);
        params.counts = counts;
        params.count = 4; /* of alltoallv */
        params.in_place = 1;
        OK(weft_template_create_run(&run, context, names[i], &params));
        OK(weft_run_bind_blocks(run, "recv", NULL, i ? equal : counts, apart, 3, WEFT_F32));
        OK(weft_run_execute(run));
        weft_run_destroy(run);
    }
    return WEFT_OK;
}

Test(ragged_local, blocks_without_payload)
{
    struct weft_virtual_config config = with_seed(5);
    struct weft_net net;
    give_net(&config, &net);
    config.no_payload = 1;
    cr_assert_eq(weft_virtual_run(3, &config, bind_nothing, NULL), WEFT_OK, "%s",
                 weft_error_text());
}

/* ---- what is wrong ---- */

/* A pair that does not agree: the run of the receiver says from whom too much or too little came,
 * and where. */
static void disagree(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    size_t send[3] = {2, 2, 2}, recv[3] = {2, 2, 2};
    float in[8] = {0}, out[8] = {0};
    if (rank == 0)
        send[1] = *(const size_t *)ranks->user;
    weft_template_params_init(&params);
    params.send_counts = send;
    params.recv_counts = recv;
    OK(weft_template_create_plan(&plan, context, "alltoallv", &params));
    weft_run_config_init(&config);
    config.deadline_ns = UINT64_C(5000000000);
    OK(weft_run_create(&run, context, plan, &config));
    OK(weft_run_bind_input_blocks(run, "send", in, send, NULL, 3, WEFT_F32));
    OK(weft_run_bind_blocks(run, "recv", out, recv, NULL, 3, WEFT_F32));
    int status = weft_run_execute(run);
    if (rank == 1) {
        CHECK(status == WEFT_ERR_TRUNCATED);
        CHECK_TEXT(weft_error_text(), "from rank 0");
        CHECK_TEXT(weft_error_text(), "recv");
        CHECK_TEXT(weft_error_text(), "alltoallv-linear");
    }
    weft_run_destroy(run);
    weft_plan_destroy(plan);
}

Test(ragged_local, a_pair_that_does_not_agree_is_told_at_run_time)
{
    static size_t sent[] = {1, 3};
    for (int i = 0; i < 2; i++) {
        struct ranks ranks;
        ranks_init(&ranks, 3, disagree, &sent[i]);
        ranks_run(&ranks);
    }
}

static void misbind(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks, (void)rank;
    static const size_t counts[] = {2, 0, 3}, close[] = {1, 0, 2}, apart[] = {5, 9, 1};
    static const size_t four[] = {2, 0, 3, 1}, others[] = {2, 1, 3},
                        far[] = {0, 0, PTRDIFF_MAX / 4};
    struct weft_template_params params;
    struct weft_run *run = NULL;
    float data[16] = {0};
    weft_template_params_init(&params);
    params.counts = counts;
    params.in_place = 1;
    OK(weft_template_create_run(&run, context, "allgatherv", &params));
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", data, counts, close, 3, WEFT_F32),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(),
               "displacements[2] is 2, within block 0, which has 2 elements from 1 on");
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", data, others, NULL, 3, WEFT_F32),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", data, counts, far, 3, WEFT_F32),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "displacements[2] is 2305843009213693951, expected at most");
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", NULL, counts, NULL, 3, WEFT_F32),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", data, NULL, NULL, 3, WEFT_F32),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_run_bind_blocks(run, "send", data, counts, NULL, 3, WEFT_F32),
                 WEFT_ERR_NOT_FOUND);
    CHECK_STATUS(weft_run_bind_input_blocks(run, "recv", data, counts, NULL, 3, WEFT_F32),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", data, counts, NULL, 3, WEFT_F64),
                 WEFT_ERR_INVALID);
    OK(weft_run_bind_blocks(run, "recv", data, counts, apart, 3, WEFT_F32));
    weft_run_destroy(run);

    /* A slot a block: what is read may overlap. */
    params.in_place = 0;
    params.send_counts = params.recv_counts = counts;
    OK(weft_template_create_run(&run, context, "alltoallv", &params));
    OK(weft_run_bind_input_blocks(run, "send", data, counts, close, 3, WEFT_F32));
    OK(weft_run_bind_blocks(run, "send", data, counts, close, 3, WEFT_F32));
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", data, counts, close, 3, WEFT_F32),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", data, others, NULL, 3, WEFT_F32),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "recv.1");
    CHECK_STATUS(weft_run_bind_blocks(run, "recv", data, four, NULL, 4, WEFT_F32),
                 WEFT_ERR_NOT_FOUND);
    CHECK_TEXT(weft_error_text(), "`block_count` is 4");
    weft_run_destroy(run);
}

Test(ragged_local, blocks_that_cannot_be_bound_are_named)
{
    struct ranks ranks;
    ranks_init(&ranks, 3, misbind, NULL);
    ranks_run(&ranks);
}
