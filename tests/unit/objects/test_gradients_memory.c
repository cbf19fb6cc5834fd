/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Merged gradients with every allocation failing in turn, on virtual ranks: in the creation, in
 * steps, where a plan takes another's place. Every rank ends, with results that are right or an
 * error that says memory; leaks are the address sanitizer's business.
 */
#include <criterion/criterion.h>

#include "layers_job.h"
#include "runtime/base/alloc.h"

enum { RANKS = 3, STEPS = 5, MOST_CALLS = 20000 };

struct life {
    const struct weft_sparse_average_config *sparse;
    const struct weft_compressed_average_config *compressed; /* sums are not right */
    long failing;                                            /* the call that fails */
    int creations;                                           /* ranks that have got as far */
    int ended, failed;
    int plans; /* of rank 0 */
};

static int live(struct weft_context *context, void *user)
{
    struct life *life = user;
    struct weft_gradients_stats stats = {.struct_size = sizeof stats};
    struct weft_gradients_state state = {.struct_size = sizeof state};
    struct job job;
    job_init(&job, context);
    job.config.measure_steps = 1;
    job.config.check_steps = 1;
    job.config.gain = 1e-9;
    if (life->sparse) {
        job.config.method = WEFT_GRADIENTS_SPARSE;
        job.config.sparse = life->sparse;
    }
    if (life->compressed) {
        job.config.method = WEFT_GRADIENTS_COMPRESSED;
        job.config.compressed = life->compressed;
    }
    int status = job_create(&job);
    life->creations += status == WEFT_OK;
    for (uint64_t step = 0; step < STEPS && status == WEFT_OK; step++) {
        for (size_t l = JOB_LAYERS; l > 0 && status == WEFT_OK; l--) {
            weft_context_sleep(context, 1000 + (step % 2 ? l : JOB_LAYERS - l) * 60000);
            status = job_announce(&job, step, l - 1);
        }
        if (status == WEFT_OK)
            status = weft_gradients_wait_all(job.gradients, NULL);
        if (status == WEFT_OK && !life->compressed)
            job_check_all(&job, step);
        if (status == WEFT_OK && step == 2) {
            status = weft_gradients_get_state(job.gradients, &state);
            if (status == WEFT_ERR_MEMORY) /* that leaves it as it was */
                status = weft_gradients_get_state(job.gradients, &state);
        }
    }
    if (status == WEFT_OK && job.rank == 0) {
        OK(weft_gradients_get_stats(job.gradients, &stats));
        life->plans = (int)stats.plans;
    }
    if (status != WEFT_OK) {
        CHECK(status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER);
        CHECK(strlen(weft_error_text()) > 0);
        life->failed++;
        /* What it has failed with does not keep its state. */
        status = job.gradients ? weft_gradients_get_state(job.gradients, &state) : WEFT_OK;
        if (status == WEFT_ERR_MEMORY)
            status = weft_gradients_get_state(job.gradients, &state);
        CHECK(status == WEFT_OK);
    }
    weft_gradients_destroy(job.gradients);
    life->ended++;
    return WEFT_OK;
}

static void live_each(const struct weft_sparse_average_config *sparse,
                      const struct weft_compressed_average_config *compressed)
{
    int changed = 0, broken = 0;
    long call = 1;
    for (; call < MOST_CALLS; call += SWEPT(1, 5)) {
        struct weft_virtual_config config = with_seed(1);
        struct life life = {.sparse = sparse, .compressed = compressed, .failing = call};
        config.limit_ns = UINT64_C(60000000000);
        atomic_store(&weft__alloc_countdown, call);
        int status = weft_virtual_run(RANKS, &config, live, &life);
        int lucky = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
        cr_assert(status == WEFT_OK || status == WEFT_ERR_MEMORY, "call %ld: %s: %s", call,
                  weft_status_name(status), weft_error_text());
        cr_assert(status != WEFT_OK || life.ended == RANKS, "call %ld: %d of %d ranks ended", call,
                  life.ended, RANKS);
        broken += life.failed > 0 && life.creations == RANKS;
        changed = life.plans > changed ? life.plans : changed;
        if (lucky)
            break;
    }
    cr_assert_lt(call, MOST_CALLS);
    cr_assert_gt(changed, 1, "no plan took the place of another");
    cr_assert_gt(broken, 10, "%d failures after the creation", broken);
}

Test(gradients_memory, failing_once_ends_every_rank)
{
    live_each(NULL, NULL);
}

Test(gradients_memory, failing_once_ends_every_rank_with_sparse_groups)
{
    struct weft_sparse_average_config sparse;
    weft_sparse_average_config_init(&sparse);
    sparse.method = WEFT_SPARSE_ALLGATHER;
    sparse.density = 1;
    sparse.momentum = 0; /* so that sums are dense ones */
    live_each(&sparse, NULL);
}

Test(gradients_memory, failing_once_ends_every_rank_with_compressed_groups, .timeout = 140)
{
    static const struct weft_tensor_shape shapes[JOB_TENSORS] = {
        {WEFT_TENSOR_VECTOR, 0, 0, 0, 0}, {WEFT_TENSOR_VECTOR, 0, 0, 0, 0},
        {WEFT_TENSOR_DENSE, 3, 2, 0, 0},  {WEFT_TENSOR_VECTOR, 0, 0, 0, 0},
        {WEFT_TENSOR_OIHW, 5, 1, 2, 2},   {WEFT_TENSOR_VECTOR, 0, 0, 0, 0}};
    struct weft_compressed_average_config compressed;
    struct weft_gradiveq_config gradiveq;
    weft_compressed_average_config_init(&compressed);
    weft_gradiveq_config_init(&gradiveq);
    gradiveq.warmup_steps = WEFT_WARMUP_NONE; /* step 2 is compressed, and the plan changes then */
    gradiveq.sample_steps = 2;
    gradiveq.compressed_steps = 2;
    gradiveq.dense_layers = 1;
    compressed.method = weft_pca_available() ? WEFT_COMPRESSED_GRADIVEQ : WEFT_COMPRESSED_POWERSGD;
    compressed.residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
    compressed.shapes = shapes;
    compressed.gradiveq = &gradiveq;
    live_each(NULL, &compressed);
}
