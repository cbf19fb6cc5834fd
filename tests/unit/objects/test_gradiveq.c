/* SPDX-License-Identifier: BSD-3-Clause */
/* GradiVeQ: what is planted is found, phases follow one another, ranks have the same bits. */
#include <criterion/criterion.h>

#include "gradiveq_job.h"

static const int sizes[] = {1, 2, 3, 5, 8};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void run_each(ranks_fn fn)
{
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_progress(fn, sizes[i], NULL);
}

static weft_compressed_phase_t expected_phase(const struct job *job, uint64_t step)
{
    uint64_t warmup = job->gradiveq.warmup_steps, samples = job->gradiveq.sample_steps;
    if (step < warmup)
        return WEFT_COMPRESSED_WARMUP;
    step = (step - warmup) % (samples + job->gradiveq.compressed_steps);
    return step < samples ? WEFT_COMPRESSED_SAMPLING : WEFT_COMPRESSED_COMPRESSED;
}

/* ---- what is planted ---- */

static void planted(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    struct job job;
    (void)rank;
    job_init(&job, context);
    if (ranks->user)
        job.gradiveq.algo = ranks->user;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 22; step++) {
        CHECK(weft_compressed_average_phase(job.average) == expected_phase(&job, step));
        struct weft_compressed_average_result result = job_step(&job, step, 0);
        int compressed = result.phase == WEFT_COMPRESSED_COMPRESSED;
        CHECK(result.phase == expected_phase(&job, step));
        CHECK(job_error(&job, step, 0) < 2e-5 * job.size);
        job_check_same(&job, job.data, sizeof job.data);
        /* 3 + 1 + 3 slices of 2 components, 34 elements as they are, and the vote */
        CHECK(result.bits == (compressed ? 32.0 * (7 * JOB_RANK + 34 + 1) / JOB_ELEMENTS : 32));
        CHECK(result.votes == 0);
        CHECK(result.loss >= 0);
        if (compressed) {
            OK(weft_compressed_average_get_tensor(job.average, 0, &info));
            CHECK(info.slice == 36 && info.slices == 3 && info.reuse == 3);
            CHECK(info.components == JOB_RANK && info.loss <= 0.01);
            OK(weft_compressed_average_get_tensor(job.average, 1, &info));
            CHECK(info.slice == 0 && info.components == 0);
        }
    }
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, what_is_planted_is_reconstructed)
{
    run_each(planted);
}

Test(gradiveq, by_either_way)
{
    char ring[] = "ring", halving[] = "reduce-scatter-allgather";
    ranks_run_once(planted, 5, ring);
    ranks_run_once(planted, 5, halving);
}

/* Of the first tensor a compressed phase has d, the loss, K d numbers of the basis, and means. */
static void means(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    double orthonormal[JOB_RANK][JOB_RANK] = {{0}};
    (void)ranks;
    (void)rank;
    job_init(&job, context);
    OK(job_create(&job));
    for (uint64_t step = 0; step < 7; step++)
        job_step(&job, step, 0);
    struct kept *kept = job_keep(&job);
    const float *basis = kept->numbers + 2, *mean = basis + job_slices[0] * JOB_RANK;
    CHECK(kept->numbers[0] == JOB_RANK);
    for (size_t at = 0; at < job_counts[0]; at++) {
        double sum = 0;
        for (int r = 0; r < job.size; r++)
            for (uint64_t step = 2; step < 6; step++)
                sum += (double)job_value(r, step, 0, at, 0);
        CHECK(fabs((double)mean[at] - sum / 4) < 1e-6 * job.size);
    }
    for (size_t k = 0; k < job_slices[0]; k++)
        for (size_t i = 0; i < JOB_RANK; i++)
            for (size_t j = 0; j < JOB_RANK; j++)
                orthonormal[i][j] += (double)basis[k * JOB_RANK + i] * basis[k * JOB_RANK + j];
    for (size_t i = 0; i < JOB_RANK; i++)
        for (size_t j = 0; j < JOB_RANK; j++)
            CHECK(fabs(orthonormal[i][j] - (i == j)) < 1e-5);
    job_forget(kept);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, means_and_bases_are_in_the_state)
{
    ranks_run_once(means, 1, NULL);
    ranks_run_once(means, 3, NULL);
}

/* ---- lambda ---- */

/* Each sample is lost by a share of at most lambda, all of them together by that of the variance
 * that is told; exact components lose nothing. */
static void losses(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    size_t before = 0;
    (void)ranks;
    (void)rank;
    for (int i = 0; i < 4; i++) {
        static const double lambdas[] = {0.6, 0.2, 0.01, WEFT_PCA_EXACT};
        struct job job;
        job_init(&job, context);
        job.gradiveq.sample_steps = 12;
        job.gradiveq.loss = lambdas[i];
        OK(job_create(&job));
        for (uint64_t step = 0; step < 14; step++)
            job_step(&job, step, 1);
        OK(weft_compressed_average_get_tensor(job.average, 0, &info));
        CHECK(info.loss <= (lambdas[i] > 0 ? lambdas[i] : 1e-12));
        CHECK(info.components >= 1 && info.components <= 11 && info.components >= before);
        before = info.components;
        weft_compressed_average_destroy(job.average);
    }
    CHECK(before == 11); /* of 12 samples */
}

Test(gradiveq, the_loss_bounds_components)
{
    ranks_run_once(losses, 3, NULL);
}

/* With as many components as there can be, what was a sample comes back. */
static void exact(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    (void)ranks;
    (void)rank;
    job_init(&job, context);
    job.gradiveq.slice_factor = 9; /* a slice a tensor: of the others there are no samples */
    job.gradiveq.loss = WEFT_PCA_EXACT;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 2; step++)
        job_step(&job, step, 1);
    for (uint64_t step = 2; step < 11; step++) {
        job_fill(&job, 2 + step % 4, 1);
        OK(weft_compressed_average_step(job.average, NULL));
        CHECK(job_error(&job, 2 + step % 4, 1) < 2e-5 * job.size);
    }
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, exact_components_give_samples_back)
{
    ranks_run_once(exact, 1, NULL);
    ranks_run_once(exact, 4, NULL);
}

/* ---- the loss of equation 7, and residuals ---- */

static double norm_of(const struct job *job)
{
    double sum = 0;
    for (int t = 0; t < JOB_TENSORS; t++)
        for (size_t i = 0; job_slices[t] && i < job_counts[t]; i++) {
            double x = (double)((const float *)job->tensors[t].data)[i];
            sum += x * x;
        }
    return sum;
}

/* Until the first compressed step residuals are zero; then the residual is what is lost. */
static void residuals(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    struct job job;
    double norm = -1;
    (void)ranks;
    (void)rank;
    job_init(&job, context);
    job.config.residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
    job.gradiveq.loss = 0.3;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 6; step++)
        job_step(&job, step, 0.5F);
    OK(weft_compressed_average_residual_norm(job.average, &norm));
    CHECK(norm == 0);
    job_fill(&job, 6, 0.5F);
    double all = norm_of(&job);
    OK(weft_compressed_average_step(job.average, &result));
    OK(weft_compressed_average_residual_norm(job.average, &norm));
    CHECK(result.loss > 0.001 && result.loss < 1);
    CHECK(fabs(norm * norm / all - result.loss) < 1e-4 * result.loss);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, the_loss_is_what_residuals_keep)
{
    for (int i = 0; i < SIZES; i++)
        ranks_run_once(residuals, sizes[i], NULL);
}

/* Sums and residuals have, in the end, all that gradients had. */
static void conserve(struct ranks *ranks, struct weft_context *context, int rank)
{
    double given[JOB_ELEMENTS] = {0}, worst = 0;
    float residual[JOB_ELEMENTS], all[JOB_ELEMENTS];
    struct job job;
    (void)rank;
    job_init(&job, context);
    job.config.residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
    job.gradiveq.loss = 0.5;
    job.gradiveq.uncompressed = *(const weft_uncompressed_t *)ranks->user;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 25; step++) {
        for (int r = 0; r < job.size; r++)
            for (int t = 0, e = 0; t < JOB_TENSORS; e += (int)job_counts[t++])
                for (size_t at = 0; at < job_counts[t]; at++)
                    given[(size_t)e + job_place(t, at)] += (double)job_value(r, step, t, at, 1);
        job_step(&job, step, 1);
        for (int e = 0; e < JOB_ELEMENTS; e++)
            given[e] -= (double)job.data[e];
    }
    struct kept *kept = job_keep(&job);
    memcpy(residual, kept->state.residual, sizeof residual);
    OK(weft_allreduce(context, residual, all, JOB_ELEMENTS, WEFT_F32, weft_op_builtin(WEFT_SUM)));
    for (int e = 0; e < JOB_ELEMENTS; e++)
        worst = fmax(worst, fabs(given[e] - (double)all[e]));
    CHECK(worst < 1e-4 * job.size);
    job_forget(kept);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, residuals_lose_nothing)
{
    weft_uncompressed_t dense = WEFT_UNCOMPRESSED_DENSE, qsgd = WEFT_UNCOMPRESSED_QSGD;
    ranks_run_once(conserve, 1, &dense);
    ranks_run_once(conserve, 3, &dense);
    ranks_run_once(conserve, 4, &qsgd);
}

/* ---- votes ---- */

/* `voters` ranks have gradients, in the compressed phase, that no component has. */
static void vote(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    const int voters = *(const int *)ranks->user;
    struct job job;
    job_init(&job, context);
    job.gradiveq.loss_bound = 0.05;
    job.gradiveq.compressed_steps = WEFT_NEVER;
    OK(job_create(&job));
    int most = 2 * voters > job.size;
    for (uint64_t step = 0; step < 12; step++) {
        int compressed = step >= 6 && !(most && step > 8 && step <= 12);
        struct weft_compressed_average_result result =
            job_step(&job, step, step >= 7 && rank < voters ? 3 : 0);
        CHECK((result.phase == WEFT_COMPRESSED_COMPRESSED) == compressed);
        if (compressed)
            CHECK((result.loss > 0.05) == (step >= 7 && rank < voters));
        CHECK(result.votes == (compressed && step >= 8 ? voters : 0));
        job_check_same(&job, job.data, sizeof job.data);
    }
    OK(weft_compressed_average_get_stats(job.average, &stats));
    CHECK(stats.phases == 1 && stats.ended_early == (uint64_t)most);
    CHECK(stats.compressed_steps == (most ? 3 : 6) && stats.bad_samples == 0);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, most_ranks_end_a_phase_and_half_do_not)
{
    for (int i = 0; i < SIZES; i++)
        for (int voters = 0; voters <= sizes[i]; voters++)
            ranks_run_once(vote, sizes[i], &voters);
}

/* ---- other settings ---- */

/* QSGD meanwhile: what it makes of sums goes into the components. */
static void quantised(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    struct job job;
    (void)rank;
    job_init(&job, context);
    job.gradiveq.uncompressed = WEFT_UNCOMPRESSED_QSGD;
    job.quantiser.bits = 8;
    job.quantiser.bucket = 64;
    job.config.qsgd_way = *(const weft_qsgd_way_t *)ranks->user;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 11; step++) {
        struct weft_compressed_average_result result = job_step(&job, step, 0);
        CHECK(result.phase == WEFT_COMPRESSED_COMPRESSED || result.bits < 9);
        CHECK(job_error(&job, step, 0) < 0.5 * job.size);
        job_check_same(&job, job.data, sizeof job.data);
    }
    OK(weft_compressed_average_get_stats(job.average, &stats));
    CHECK(stats.steps == 11 && stats.compressed_steps == 5 && stats.phases == 1);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, uncompressed_steps_by_qsgd)
{
    weft_qsgd_way_t shards = WEFT_QSGD_SHARDS, ring = WEFT_QSGD_RING;
    for (int i = 0; i < SIZES; i++)
        ranks_run_once(quantised, sizes[i], &shards);
    ranks_run_once(quantised, 3, &ring);
}

/* In steps that are samples, and in no others, whatever the others have. */
static void sampled(struct ranks *ranks, struct weft_context *context, int rank)
{
    const int sample_bits = *(const int *)ranks->user;
    struct job job;
    (void)rank;
    job_init(&job, context);
    job.gradiveq.uncompressed = WEFT_UNCOMPRESSED_QSGD;
    job.gradiveq.loss = 0.01;
    job.gradiveq.sample_bits = sample_bits;
    job.quantiser.bits = 4;
    job.quantiser.bucket = 32;
    job.config.residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 16; step++) { /* samples are taken twice */
        struct weft_compressed_average_result result = job_step(&job, step, 0);
        CHECK(result.phase == expected_phase(&job, step));
        job_check_same(&job, job.data, sizeof job.data);
        if (result.phase != WEFT_COMPRESSED_COMPRESSED) {
            const int bits = result.phase == WEFT_COMPRESSED_SAMPLING ? sample_bits : 4;
            CHECK(result.bits > bits && result.bits < bits + 1.3); /* 32 of a bucket of 32 */
        }
    }
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, samples_have_bits_of_their_own)
{
    int two = 2, four = 4, eight = 8;
    for (int i = 0; i < SIZES; i++)
        ranks_run_once(sampled, sizes[i], &eight);
    ranks_run_once(sampled, 3, &four);
    ranks_run_once(sampled, 3, &two);
}

static void reuse_one(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    struct job job;
    (void)rank;
    job_init(&job, context);
    job.gradiveq.reuse = *(const size_t *)ranks->user;
    job.gradiveq.slice = 50; /* the last slices of both are shorter */
    job.gradiveq.dense_layers = 1;
    OK(job_create(&job));
    OK(weft_compressed_average_get_tensor(job.average, 4, &info));
    CHECK(info.slice == 50 && info.slices == 3);
    CHECK(info.reuse == (job.gradiveq.reuse < 3 ? job.gradiveq.reuse : 3));
    OK(weft_compressed_average_get_tensor(job.average, 2, &info));
    CHECK(info.slice == 0);                      /* 40 elements are no slice */
    for (uint64_t step = 0; step < 22; step++) { /* samples are taken twice */
        struct weft_compressed_average_result result = job_step(&job, step, 0);
        CHECK(result.phase != WEFT_COMPRESSED_COMPRESSED || result.bits < 32);
        job_check_same(&job, job.data, sizeof job.data);
        struct kept *kept = job_keep(&job);
        job_check_same(&job, kept->numbers, kept->state.number_count * sizeof *kept->numbers);
        job_forget(kept);
    }
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, projections_of_several_slices)
{
    for (size_t reuse = 1; reuse <= 4; reuse++)
        ranks_run_once(reuse_one, 3, &reuse);
}

/* Tensors of f16, and averages. */
static void halves(struct ranks *ranks, struct weft_context *context, int rank)
{
    uint16_t data[108], one = 0x3c00; /* 1 */
    struct weft_piece tensor = {data, 108};
    struct job job;
    (void)ranks;
    job_init(&job, context);
    job.config.tensors = &tensor;
    job.config.tensor_count = 1;
    job.config.dtype = WEFT_F16;
    job.config.sum = 0;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 12; step++) {
        for (size_t i = 0; i < 108; i++) /* by filters: all slices are alike */
            data[i] = (uint16_t)(i / 27 % 2 ? one + (step % 3 << 10) : 0);
        OK(weft_compressed_average_step(job.average, NULL));
        for (size_t i = 0; i < 108; i++) /* 0 up to rounding in f32 */
            CHECK(i / 27 % 2 ? data[i] == one + (step % 3 << 10) : (data[i] & 0x7fff) < 32);
    }
    CHECK(rank < job.size);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, halves_and_averages)
{
    ranks_run_once(halves, 1, NULL);
    ranks_run_once(halves, 4, NULL);
}

/* No shapes: nothing is projected, but phases are. */
static void vectors(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    (void)ranks;
    (void)rank;
    job_init(&job, context);
    job.config.shapes = NULL;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 13; step++) {
        struct weft_compressed_average_result result = job_step(&job, step, 1);
        CHECK(result.phase == expected_phase(&job, step) && result.loss == 0);
        CHECK(job_error(&job, step, 1) < 1e-5 * job.size);
    }
    weft_compressed_average_destroy(job.average);
    job.config.tensor_count = 0;
    OK(job_create(&job));
    OK(weft_compressed_average_step(job.average, NULL));
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq, vectors_are_sent_as_they_are)
{
    ranks_run_once(vectors, 1, NULL);
    ranks_run_once(vectors, 3, NULL);
}

/* Tensors there are, and no elements. */
static void nothing(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const struct weft_tensor_shape shapes[] = {{WEFT_TENSOR_OIHW, 0, 3, 3, 3},
                                                      {WEFT_TENSOR_VECTOR, 0, 0, 0, 0}};
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    struct job job;
    (void)ranks;
    (void)rank;
    job_init(&job, context);
    job.tensors[0].count = job.tensors[1].count = 0;
    job.config.tensor_count = 2;
    job.config.shapes = shapes;
    job.config.residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
    OK(job_create(&job));
    for (int step = 0; step < 3; step++)
        OK(weft_compressed_average_step(job.average, NULL));
    OK(weft_compressed_average_get_state(job.average, &state));
    CHECK(state.next == 3);
    OK(weft_compressed_average_destroy(job.average));
}

Test(gradiveq, tensors_may_all_be_empty)
{
    ranks_run_once(nothing, 1, NULL);
    ranks_run_once(nothing, 3, NULL);
}

/* ---- checkpoints; test_gradiveq_again.c has more ---- */

static void restarts(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    job_check_restarts(context, ranks->user);
}

Test(gradiveq, checkpoints_in_every_step)
{
    ranks_run_once(restarts, 3, NULL);
}
