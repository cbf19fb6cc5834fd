/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects that are created by several ranks: settings that mean the same agree; where one runs out
 * of memory all return an error, and the others name that rank and say why. On virtual ranks, where
 * the n-th allocation is the same one every time. */
#include <criterion/criterion.h>

#include "runtime/base/alloc.h"
#include "support/ranks.h"

enum { RANKS = 3, COUNT = 10, OBJECTS = 10, STEPS = 2 };

struct job {
    int object;
    long nth;
    uint64_t meet_ns, late_ns; /* how long ranks wait; how late the last one is */
    int status[RANKS];
    int done[RANKS]; /* 0: not created; how many steps + 1 */
    char text[RANKS][512];
};

static int create_compressed(weft_compressed_method_t method, struct weft_context *context,
                             uint64_t meet_ns, const struct weft_piece *tensor, int *done)
{
    const struct weft_tensor_shape shape = {WEFT_TENSOR_DENSE, COUNT / 2, 2, 0, 0};
    const struct weft_powersgd_config powersgd = {
        .struct_size = sizeof powersgd, .least_ratio = 0.1, .warmup_steps = 1};
    struct weft_compressed_average_config config;
    struct weft_compressed_average *average = NULL;
    weft_compressed_average_config_init(&config);
    config.method = method;
    config.tensors = tensor;
    config.tensor_count = 1;
    config.shapes = &shape;
    config.powersgd = &powersgd;
    config.meet_ns = meet_ns;
    int status = weft_compressed_average_create(&average, context, &config);
    CHECK((status == WEFT_OK) == (average != NULL));
    for (*done = !status; !status && *done <= STEPS; *done += !status)
        status = weft_compressed_average_step(average, NULL);
    weft_compressed_average_destroy(average);
    return status;
}

static int create_gradients(weft_gradients_method_t method, struct weft_context *context,
                            uint64_t meet_ns, const struct weft_piece *tensor, int *done)
{
    const struct weft_compressed_average_config compressed = {.struct_size = sizeof compressed,
                                                              .method = WEFT_COMPRESSED_QSGD};
    struct weft_gradients_config config;
    struct weft_gradients *gradients = NULL;
    weft_gradients_config_init(&config);
    config.tensors = tensor;
    config.tensor_count = 1;
    config.method = method;
    config.compressed = method == WEFT_GRADIENTS_COMPRESSED ? &compressed : NULL;
    config.meet_ns = meet_ns;
    int status = weft_gradients_create(&gradients, context, &config);
    CHECK((status == WEFT_OK) == (gradients != NULL));
    for (*done = !status; !status && *done <= STEPS; *done += !status) {
        status = weft_gradients_ready(gradients, 0);
        if (!status)
            status = weft_gradients_wait_all(gradients, NULL);
    }
    weft_gradients_destroy(gradients);
    return status;
}

/* All ranks are workers, two of them servers, and none is ahead of another. */
static int create_server(weft_server_sync_t sync, struct weft_context *context, uint64_t meet_ns,
                         const struct weft_piece *tensor, int *done)
{
    float data[COUNT] = {0};
    struct weft_piece gradient = {data, COUNT};
    struct weft_server_config config;
    struct weft_server *server = NULL;
    weft_server_config_init(&config);
    config.tensors = tensor;
    config.gradients = &gradient;
    config.tensor_count = 1;
    config.sync = sync;
    config.place = WEFT_SERVER_COLOCATED;
    config.servers = 2;
    config.split_bytes = 8;
    config.momentum = 0.5;
    config.osp_average = 0.5;
    config.osp_share = 1;
    config.flow = WEFT_SERVER_PACED;
    config.segment_bytes = 8;
    config.meet_ns = meet_ns;
    int status = weft_server_create(&server, context, &config);
    CHECK((status == WEFT_OK) == (server != NULL));
    for (*done = !status; !status && *done <= STEPS; *done += !status) {
        status = weft_server_step(server, NULL);
        if (!status)
            status = weft_server_correct(server);
    }
    weft_server_destroy(server);
    return status;
}

/* Creates one object of a kind, takes steps in which all ranks meet, and destroys it. *done becomes
 * how much of that has succeeded. */
static int create(int object, struct weft_context *context, uint64_t meet_ns, int *done)
{
    float data[COUNT] = {0};
    struct weft_piece tensor = {data, COUNT};
    int status = WEFT_OK;
    if (object == 0) {
        struct weft_group_average_config config;
        struct weft_group_average *average = NULL;
        weft_group_average_config_init(&config);
        config.tensors = &tensor;
        config.tensor_count = 1;
        config.sync_period = 1;
        config.meet_ns = meet_ns;
        status = weft_group_average_create(&average, context, &config);
        CHECK((status == WEFT_OK) == (average != NULL));
        for (*done = !status; !status && *done <= STEPS; *done += !status)
            status = weft_group_average_step(average, NULL);
        weft_group_average_destroy(average);
    } else if (object == 1) {
        struct weft_pair_average_config config;
        struct weft_pair_average *average = NULL;
        weft_pair_average_config_init(&config);
        config.tensors = &tensor;
        config.tensor_count = 1;
        config.meet_ns = meet_ns;
        status = weft_pair_average_create(&average, context, &config);
        CHECK((status == WEFT_OK) == (average != NULL));
        for (*done = !status; !status && *done <= STEPS; *done += !status)
            status = weft_pair_average_synchronise(average);
        weft_pair_average_destroy(average);
    } else if (object == 2) {
        struct weft_sparse_average_config config;
        struct weft_sparse_average *average = NULL;
        weft_sparse_average_config_init(&config);
        config.tensors = &tensor;
        config.tensor_count = 1;
        config.meet_ns = meet_ns;
        status = weft_sparse_average_create(&average, context, &config);
        CHECK((status == WEFT_OK) == (average != NULL));
        for (*done = !status; !status && *done <= STEPS; *done += !status)
            status = weft_sparse_average_step(average, NULL);
        weft_sparse_average_destroy(average);
    } else if (object == 3 || object == 4) {
        status = create_compressed(object == 3 ? WEFT_COMPRESSED_QSGD : WEFT_COMPRESSED_POWERSGD,
                                   context, meet_ns, &tensor, done);
    } else if (object >= 8) {
        status = create_server(object == 8 ? WEFT_SERVER_SSP : WEFT_SERVER_OSP, context, meet_ns,
                               &tensor, done);
    } else if (object >= 6) {
        status = create_gradients(object == 6 ? WEFT_GRADIENTS_DENSE : WEFT_GRADIENTS_COMPRESSED,
                                  context, meet_ns, &tensor, done);
    } else {
        struct weft_gossip_config config;
        struct weft_gossip *gossip = NULL;
        weft_gossip_config_init(&config);
        config.tensors = &tensor;
        config.tensor_count = 1;
        config.meet_ns = meet_ns;
        status = weft_gossip_create(&gossip, context, &config);
        CHECK((status == WEFT_OK) == (gossip != NULL));
        for (*done = !status; !status && *done <= STEPS; *done += !status)
            status = weft_gossip_step(gossip);
        weft_gossip_destroy(gossip);
    }
    return status;
}

static int enter(struct weft_context *context, void *user)
{
    struct job *job = user;
    int rank = weft_context_rank(context);
    if (rank == 0 && job->nth)
        atomic_store(&weft__alloc_countdown, job->nth);
    if (job->late_ns && rank == RANKS - 1)
        OK(weft_context_sleep(context, job->late_ns));
    job->status[rank] = create(job->object, context, job->meet_ns, &job->done[rank]);
    if (job->status[rank])
        snprintf(job->text[rank], sizeof job->text[rank], "%s", weft_error_text());
    return WEFT_OK;
}

/* 1: one rank has failed, and all hear of it, at the latest in the step after that. 0: what failed
 * came later, or was made good. */
static int judge(const struct job *job)
{
    int least = STEPS + 1, most = 0;
    for (int r = 0; r < RANKS; r++) {
        int status = job->status[r];
        least = job->done[r] < least ? job->done[r] : least;
        most = job->done[r] > most ? job->done[r] : most;
        cr_assert(!status || status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER,
                  "object %d, allocation %ld: rank %d: %s", job->object, job->nth, r, job->text[r]);
        if (status)
            CHECK_TEXT(job->text[r], "memory");
        if (status == WEFT_ERR_PEER)
            CHECK_TEXT(job->text[r], " has failed: ");
    }
    cr_assert(most <= least + 1, "object %d, allocation %ld: %d %d %d steps", job->object, job->nth,
              job->done[0], job->done[1], job->done[2]);
    return least <= STEPS;
}

Test(creation, who_runs_out_of_memory_is_named_on_all_ranks, .timeout = 140)
{
    for (int object = 0; object < OBJECTS; object++) {
        int told = 0, harmless = 0, spared = 0;
        for (long nth = 1; !spared; nth += SWEPT(1, 4)) {
            struct weft_virtual_config config;
            struct job job = {.object = object, .nth = nth};
            weft_virtual_config_init(&config);
            weft_virtual_run(RANKS, &config, enter, &job);
            spared = atomic_load(&weft__alloc_countdown) > 0;
            atomic_store(&weft__alloc_countdown, -1);
            if (!spared && judge(&job))
                told++;
            else
                harmless += !spared;
        }
        cr_log_info("object %d: %d told, %d harmless", object, told, harmless);
        cr_assert_gt(told, SWEPT(20, 5));
    }
}

/* ---- late ranks ---- */

/* Who is later than the others wait for finds out; who comes in time is waited for. */
Test(creation, ranks_are_waited_for_as_long_as_was_asked_for)
{
    for (int object = 0; object < OBJECTS; object++)
        for (int late = 0; late < 2; late++) {
            struct weft_virtual_config config;
            struct job job = {
                .object = object, .meet_ns = 1000000, .late_ns = late ? 50000000 : 900000};
            weft_virtual_config_init(&config);
            weft_virtual_run(RANKS, &config, enter, &job);
            for (int r = 0; r < RANKS; r++) {
                const int status = job.status[r];
                cr_assert(late ? status == WEFT_ERR_TIMEOUT || status == WEFT_ERR_PEER : !status,
                          "object %d, rank %d: %s: %s", object, r, weft_status_name(status),
                          job.text[r]);
                cr_assert_eq(job.done[r], late ? 0 : STEPS + 1);
            }
            cr_assert(!late || job.status[0] == WEFT_ERR_TIMEOUT ||
                      job.status[1] == WEFT_ERR_TIMEOUT);
        }
}

/* ---- settings ---- */

static void settle_compressed(struct weft_context *context, const struct weft_piece *tensor,
                              int written)
{
    const weft_quantise_norm_t norm = written ? WEFT_QUANTISE_L2 : WEFT_QUANTISE_MAX;
    for (int m = WEFT_COMPRESSED_QSGD; m <= WEFT_COMPRESSED_POWERSGD; m++)
        for (int signs = 0; signs < 2; signs++) {
            struct weft_compressed_average_config config;
            struct weft_quantiser quantiser;
            struct weft_powersgd_config powersgd;
            struct weft_gradients_config merged;
            struct weft_compressed_average *average = NULL;
            struct weft_gradients *gradients = NULL;
            weft_compressed_average_config_init(&config);
            weft_quantiser_init(&quantiser);
            weft_powersgd_config_init(&powersgd);
            weft_gradients_config_init(&merged);
            quantiser.bits = signs ? WEFT_QUANTISE_SIGN : written ? 4 : 0;
            quantiser.bucket = written ? 512 : 0;
            quantiser.norm = signs ? norm : WEFT_QUANTISE_MAX; /* signs have none */
            powersgd.rank = written ? 2 : 0;
            powersgd.least_ratio = written;
            config.method = (weft_compressed_method_t)m;
            config.residual = !written ? WEFT_COMPRESSED_RESIDUAL_DEFAULT
                              : signs || m == WEFT_COMPRESSED_POWERSGD
                                  ? WEFT_COMPRESSED_RESIDUAL_KEPT
                                  : WEFT_COMPRESSED_RESIDUAL_NONE;
            config.quantiser = &quantiser;
            config.powersgd = &powersgd;
            merged.tensors = tensor;
            merged.tensor_count = 1;
            merged.method = WEFT_GRADIENTS_COMPRESSED;
            merged.compressed = &config;
            OK(weft_gradients_create(&gradients, context, &merged));
            OK(weft_gradients_destroy(gradients));
            config.tensors = tensor;
            config.tensor_count = 1;
            OK(weft_compressed_average_create(&average, context, &config));
            OK(weft_compressed_average_destroy(average));
        }
}

/* Rank 1 writes out what the defaults of the others mean. */
static int settle(struct weft_context *context, void *user)
{
    static const double warmup[] = {0.25, 0.0725, 0.015, 0.004};
    float data[COUNT] = {0};
    struct weft_piece tensor = {data, COUNT};
    int written = weft_context_rank(context) == 1;
    (void)user;

    struct weft_group_average_config group;
    struct weft_group_average *average = NULL;
    weft_group_average_config_init(&group);
    group.tensors = &tensor;
    group.tensor_count = 1;
    if (written) {
        group.group_size = weft_groups_default_size(weft_context_size(context));
        group.sync_period = 10;
        group.deadline_ns = WEFT_NEVER;
    }
    OK(weft_group_average_create(&average, context, &group));
    OK(weft_group_average_destroy(average));

    struct weft_gossip_config gossip;
    struct weft_gossip *neighbours = NULL;
    weft_gossip_config_init(&gossip);
    gossip.tensors = &tensor;
    gossip.tensor_count = 1;
    gossip.neighbours = written ? RANKS + 5 : 0; /* two, and two are all there are */
    OK(weft_gossip_create(&neighbours, context, &gossip));
    OK(weft_gossip_destroy(neighbours));

    struct weft_pair_average_config pair;
    struct weft_pair_average *pairs = NULL;
    weft_pair_average_config_init(&pair);
    pair.tensors = &tensor;
    pair.tensor_count = 1;
    pair.deadline_ns = written ? WEFT_NEVER : 0;
    OK(weft_pair_average_create(&pairs, context, &pair));
    OK(weft_pair_average_destroy(pairs));

    struct weft_sparse_average_config sparse;
    struct weft_sparse_average *gradients = NULL;
    weft_sparse_average_config_init(&sparse);
    sparse.tensors = &tensor;
    sparse.tensor_count = 1;
    sparse.method = WEFT_SPARSE_OKTOPK;
    sparse.warmup_steps = 3;
    if (written) {
        sparse.density = 0.001;
        sparse.warmup = warmup;
        sparse.warmup_count = sizeof warmup / sizeof warmup[0];
        sparse.threshold_steps = 32;
        sparse.balance_steps = 64;
    }
    OK(weft_sparse_average_create(&gradients, context, &sparse));
    OK(weft_sparse_average_destroy(gradients));
    sparse.warmup_steps = 0;
    sparse.k = written ? COUNT : 10 * COUNT; /* all there are; then no density means anything */
    sparse.density = written ? 0.5 : 0;
    OK(weft_sparse_average_create(&gradients, context, &sparse));
    OK(weft_sparse_average_destroy(gradients));
    settle_compressed(context, &tensor, written);
    return WEFT_OK;
}

Test(creation, defaults_that_are_written_out_agree_with_defaults)
{
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    cr_assert_eq(weft_virtual_run(RANKS, &config, settle, NULL), WEFT_OK, "%s", weft_error_text());
}
