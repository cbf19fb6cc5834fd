/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ: samples of which nothing can be made, numbers that are not finite, settings that are
 * wrong or not the same everywhere, and a LAPACK that is missing, fails or is another one on one
 * rank. The linker hands calls of weft_pca() to the functions below.
 */
#include <criterion/criterion.h>
#include <float.h>

#include "gradiveq_job.h"

/* ---- LAPACK ---- */

enum lapack { AS_IT_IS, OTHER_SIGNS, FAILS, MISSING };
static _Atomic int lapack, failing; /* failing: which rank */
static _Thread_local int here;      /* the rank, where it matters */

int __real_weft_pca(const struct weft_pca_config *, const float *, float *, float *, size_t *,
                    double *);
int __real_weft_pca_available(void);
int __wrap_weft_pca(const struct weft_pca_config *, const float *, float *, float *, size_t *,
                    double *);
int __wrap_weft_pca_available(void);

int __wrap_weft_pca(const struct weft_pca_config *config, const float *samples, float *mean,
                    float *basis, size_t *components, double *variances)
{
    if (lapack == FAILS && here == failing)
        return weft_error_set(WEFT_ERR_COMPUTE, "dgesdd: no convergence");
    int status = __real_weft_pca(config, samples, mean, basis, components, variances);
    for (size_t i = 0; !status && lapack == OTHER_SIGNS && i < config->slice * *components; i++) {
        basis[i] = here % 2 ? -basis[i] : basis[i];
        for (int n = 0; n < here; n++)
            basis[i] = nextafterf(basis[i], 2);
    }
    return status;
}

int __wrap_weft_pca_available(void)
{
    if (lapack != MISSING || here != 1)
        return __real_weft_pca_available();
    weft_error_set(WEFT_ERR_UNSUPPORTED, "libweft-lapack is not there");
    return 0;
}

static void run_with(enum lapack which, ranks_fn fn, int size, void *user)
{
    atomic_store(&lapack, which);
    ranks_run_once(fn, size, user);
    atomic_store(&lapack, AS_IT_IS);
}

static void other_signs(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    (void)ranks;
    here = rank;
    job_init(&job, context);
    OK(job_create(&job));
    for (uint64_t step = 0; step < 20; step++) {
        job_step(&job, step, 0);
        CHECK(job_error(&job, step, 0) < 2e-5 * job.size);
        job_check_same(&job, job.data, sizeof job.data);
        struct kept *kept = job_keep(&job);
        job_check_same(&job, kept->words, kept->state.word_count * sizeof *kept->words);
        job_check_same(&job, kept->numbers, kept->state.number_count * sizeof *kept->numbers);
        job_forget(kept);
    }
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, ranks_have_the_same_bases_whatever_their_lapack_gives)
{
    for (int size = 2; size <= 5; size++)
        run_with(OTHER_SIGNS, other_signs, size, NULL);
}

/* They go on when it can: with other samples, of which some have been overwritten. */
static void one_fails(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    uint64_t step = 0;
    int status = WEFT_OK;
    here = rank;
    job_init(&job, context);
    OK(job_create(&job));
    for (; !status && step < 20; step++) {
        job_fill(&job, step, 0);
        status = weft_compressed_average_step(job.average, NULL);
    }
    CHECK_STATUS(status, rank == failing ? WEFT_ERR_COMPUTE : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "no convergence");
    CHECK(step == 6 && weft_compressed_average_next(job.average) == 5);
    CHECK_STATUS(weft_compressed_average_step(job.average, NULL),
                 rank == failing ? WEFT_ERR_COMPUTE : WEFT_ERR_PEER);
    ranks_meet(ranks);
    atomic_store(&lapack, AS_IT_IS);
    struct kept *kept = job_keep(&job);
    weft_compressed_average_destroy(job.average);
    job.config.state = &kept->state;
    OK(job_create(&job));
    job_forget(kept);
    for (step = 5; step < 14; step++) {
        struct weft_compressed_average_result result = job_step(&job, step, 0);
        CHECK((result.phase == WEFT_COMPRESSED_COMPRESSED) == (step >= 9));
        CHECK(job_error(&job, step, 0) < 2e-5 * job.size);
        job_check_same(&job, job.data, sizeof job.data);
    }
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, all_are_told_where_one_finds_no_components)
{
    for (int size = 1; size <= 3; size++)
        for (failing = 0; failing < size; failing++)
            run_with(FAILS, one_fails, size, NULL);
}

static void one_has_none(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct job job;
    (void)ranks;
    here = rank;
    job_init(&job, context);
    CHECK_STATUS(job_create(&job), rank == 1 ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "libweft-lapack is not there");
}

Test(gradiveq_faults, all_are_told_where_one_has_no_lapack)
{
    run_with(MISSING, one_has_none, 3, NULL);
}

/* ---- samples of which nothing can be made ---- */

enum samples { ZEROS, ALIKE };

/* What had no variance is sent as it is, so what begins to flow later is not lost. */
static void no_variance(struct ranks *ranks, struct weft_context *context, int rank)
{
    const enum samples kind = *(const enum samples *)ranks->user;
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    struct job job;
    (void)rank;
    job_init(&job, context);
    OK(job_create(&job));
    OK(weft_compressed_average_get_tensor(job.average, 0, &info));
    CHECK(info.slice == 36 && info.components == 0 && info.loss == -1); /* nobody knows yet */
    for (uint64_t step = 0; step < 11; step++) {
        if (step < 6 && kind == ZEROS)
            memset(job.data, 0, sizeof job.data);
        else
            job_fill(&job, step < 6 ? 0 : step, 1);
        OK(weft_compressed_average_step(job.average, &result));
        CHECK(step < 6 || job_error(&job, step, 1) < 1e-5 * job.size);
        CHECK(result.loss == 0);
    }
    OK(weft_compressed_average_get_tensor(job.average, 0, &info));
    CHECK(info.slice == 36 && info.components == 0 && info.loss == -1);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, samples_without_variance)
{
    enum samples zeros = ZEROS, alike = ALIKE;
    for (int size = 1; size <= 3; size++) {
        ranks_run_once(no_variance, size, &zeros);
        ranks_run_once(no_variance, size, &alike);
    }
}

/* Two samples have one component, and one tensor has a rank less than its samples. */
static void few_samples(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    struct job job;
    (void)ranks;
    (void)rank;
    job_init(&job, context);
    job.gradiveq.sample_steps = 2;
    job.gradiveq.loss = WEFT_PCA_EXACT;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 5; step++)
        job_step(&job, step, 1);
    for (size_t t = 0; t < JOB_TENSORS; t++) {
        OK(weft_compressed_average_get_tensor(job.average, t, &info));
        CHECK(info.components == (job_slices[t] ? 1 : 0));
    }
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, fewer_samples_than_components)
{
    ranks_run_once(few_samples, 1, NULL);
    ranks_run_once(few_samples, 3, NULL);
}

/* Components that are no fewer than elements are not worth it. */
static void tiny(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    struct job job;
    (void)ranks;
    (void)rank;
    job_init(&job, context);
    job.gradiveq.slice = 3;
    job.gradiveq.sample_steps = 12;
    job.gradiveq.loss = WEFT_PCA_EXACT;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 19; step++) {
        result = job_step(&job, step, 1);
        CHECK(job_error(&job, step, 1) < 1e-5 * job.size);
    }
    CHECK(result.bits == 32.0 * (JOB_ELEMENTS + 1) / JOB_ELEMENTS);
    OK(weft_compressed_average_get_tensor(job.average, 0, &info));
    CHECK(info.slice == 3 && info.components == 3);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, as_many_components_as_elements)
{
    ranks_run_once(tiny, 3, NULL);
}

/* ---- what is not finite ---- */

/* Sums overflow in steps 3 to 3 + n: of sums that are infinite no samples are taken. */
static void overflow(struct ranks *ranks, struct weft_context *context, int rank)
{
    const uint64_t bad = *(const uint64_t *)ranks->user;
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    struct job job;
    uint64_t first = 0;
    (void)rank;
    job_init(&job, context);
    OK(job_create(&job));
    for (uint64_t step = 0; step < 40 && !first; step++) {
        job_fill(&job, step, 0);
        if (step >= 3 && step < 3 + bad)
            job.data[5] = FLT_MAX;
        struct weft_compressed_average_result result = {.struct_size = sizeof result};
        OK(weft_compressed_average_step(job.average, &result));
        job_check_same(&job, job.data, sizeof job.data);
        first = result.phase == WEFT_COMPRESSED_COMPRESSED ? step : 0;
        CHECK(!first || bad == 6 || job_error(&job, step, 0) < 1e-4); /* two have one component */
    }
    OK(weft_compressed_average_get_stats(job.average, &stats));
    CHECK(stats.bad_samples == bad);
    /* Four samples, the first in step 2; after eight tries, of two or three; of one, anew. */
    CHECK(first == (bad <= 4 ? 6 + bad : bad <= 6 ? 10 : 10 + (bad - 7) + 4));
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, sums_that_are_not_finite_are_no_samples)
{
    for (uint64_t bad = 1; bad <= 9; bad++)
        ranks_run_once(overflow, 2, &bad);
}

/* Components of finite gradients that are more than a float can be: what they have dropped is not
 * known, the sum is not finite, and what comes after it is. */
static void components_overflow(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    struct job job;
    int finite = 1;
    (void)ranks;
    job_init(&job, context);
    job.gradiveq.loss_bound = 0.5;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 7; step++)
        job_step(&job, step, 0);
    job_fill(&job, 7, 0);
    for (size_t at = 0; at < job_counts[0] && rank == 0; at++) /* along the components */
        job.data[job_place(0, at)] = 0.9F * FLT_MAX * job_number(8, 0, 0, at % job_slices[0]);
    OK(weft_compressed_average_step(job.average, &result));
    CHECK(result.phase == WEFT_COMPRESSED_COMPRESSED);
    CHECK(rank == 0 ? result.loss == -1 : result.loss >= 0);
    for (int i = 0; i < JOB_ELEMENTS; i++)
        finite &= isfinite(job.data[i]);
    CHECK(!finite);
    job_check_same(&job, job.data, sizeof job.data);
    result = job_step(&job, 8, 0);
    CHECK(result.phase == WEFT_COMPRESSED_COMPRESSED && result.votes == 0);
    CHECK(result.loss >= 0 && job_error(&job, 8, 0) < 1e-4);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, components_that_are_not_finite)
{
    for (int size = 1; size <= 3; size++)
        ranks_run_once(components_overflow, size, NULL);
}

/* Sums of signs, which are biased, have no residual unless that is asked for. */
static void signs(struct ranks *ranks, struct weft_context *context, int rank)
{
    for (int kept = 0; kept < 2; kept++) {
        struct weft_compressed_average_state state = {.struct_size = sizeof state};
        struct job job;
        (void)ranks, (void)rank;
        job_init(&job, context);
        job.gradiveq.uncompressed = WEFT_UNCOMPRESSED_QSGD;
        job.gradiveq.sample_bits = 8;
        job.quantiser.bits = WEFT_QUANTISE_SIGN;
        job.config.residual =
            kept ? WEFT_COMPRESSED_RESIDUAL_KEPT : WEFT_COMPRESSED_RESIDUAL_DEFAULT;
        OK(job_create(&job));
        job_step(&job, 0, 0);
        OK(weft_compressed_average_get_state(job.average, &state));
        CHECK((state.residual != NULL) == kept);
        OK(weft_compressed_average_destroy(job.average));
    }
}

Test(gradiveq_faults, signs_have_no_residual_by_default)
{
    ranks_run_once(signs, 2, NULL);
}

/* Gradients with NaNs count as zero, or their NaNs do; the others are not harmed. */
static void nans(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    const weft_nan_policy_t policy = *(const weft_nan_policy_t *)ranks->user;
    struct job job;
    job_init(&job, context);
    job.config.nan = policy;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 16; step++) {
        int bad = rank == 1 && step % 2;
        job_fill(&job, step, 0);
        if (bad) {
            job.data[7] = NAN;
            job.data[120] = INFINITY;
        }
        CHECK_STATUS(weft_compressed_average_step(job.average, NULL),
                     bad && policy == WEFT_NAN_ERROR ? WEFT_ERR_COMPUTE : WEFT_OK);
        for (int i = 0; i < JOB_ELEMENTS; i++)
            CHECK(isfinite(job.data[i]));
        job_check_same(&job, job.data, sizeof job.data);
    }
    OK(weft_compressed_average_get_stats(job.average, &stats));
    CHECK(stats.nans == (rank == 1 ? 16 : 0) && stats.bad_samples == 0);
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, gradients_that_are_not_finite)
{
    weft_nan_policy_t error = WEFT_NAN_ERROR, zero = WEFT_NAN_ZERO;
    ranks_run_once(nans, 3, &error);
    ranks_run_once(nans, 3, &zero);
}

/* A gradient of zeros in a compressed phase: what it loses is not a share of anything. */
static void zero_gradient(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    struct job job;
    const int residual = *(int *)ranks->user;
    (void)rank;
    job_init(&job, context);
    job.gradiveq.loss_bound = 0.5;
    job.config.residual = (weft_compressed_residual_t)residual;
    OK(job_create(&job));
    for (uint64_t step = 0; step < 6; step++)
        job_step(&job, step, 0);
    /* From the second step on a residual would not be zero. */
    for (uint64_t step = 6; step < (residual == WEFT_COMPRESSED_RESIDUAL_KEPT ? 7 : 9); step++) {
        memset(job.data, 0, sizeof job.data);
        OK(weft_compressed_average_step(job.average, &result));
        CHECK(result.phase == WEFT_COMPRESSED_COMPRESSED && result.loss == -1 && !result.votes);
    }
    weft_compressed_average_destroy(job.average);
}

Test(gradiveq_faults, gradients_of_zeros_do_not_vote)
{
    int residual = WEFT_COMPRESSED_RESIDUAL_NONE;
    ranks_run_once(zero_gradient, 3, &residual);
    residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
    ranks_run_once(zero_gradient, 3, &residual);
}

/* ---- settings ---- */

static void refuse(struct job *job, int status, const char *word)
{
    CHECK_STATUS(job_create(job), status);
    CHECK_TEXT(weft_error_text(), word);
    CHECK(!job->average);
    job_init(job, job->context);
}

#define REFUSE_WITH(field, value, word)                                                            \
    do {                                                                                           \
        job.gradiveq.field = (value);                                                              \
        refuse(&job, WEFT_ERR_INVALID, word);                                                      \
    } while (0)

Test(gradiveq_faults, wrong_settings_are_named)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct job job;
    job_init(&job, alone.context);
    REFUSE_WITH(loss, 1, "loss is 1");
    REFUSE_WITH(loss, -0.5, "loss is -0.5");
    REFUSE_WITH(loss, NAN, "loss is");
    REFUSE_WITH(slice, 1, "slice is 1");
    job.gradiveq.slice_factor = 2;
    REFUSE_WITH(slice, 36, "slice is 36");
    REFUSE_WITH(sample_steps, 1, "sample_steps is 1");
    REFUSE_WITH(sample_bits, 3, "sample_bits is 3");
    job.gradiveq.sample_bits = 0;
    REFUSE_WITH(sample_bits, 8, "sample_bits is 8, expected 0 where uncompressed");
    job.gradiveq.sample_bits = 0;
    REFUSE_WITH(loss_bound, -1, "loss_bound is -1");
    REFUSE_WITH(loss_bound, NAN, "loss_bound");
    REFUSE_WITH(uncompressed, (weft_uncompressed_t)2, "uncompressed is 2");
    REFUSE_WITH(dense_layers, 2, "dense_layers is 2");
    REFUSE_WITH(order, (weft_gradiveq_order_t)2, "order is 2");
    REFUSE_WITH(algo, "round", "algo is \"round\", expected one of ring, ");
    REFUSE_WITH(struct_size, 8, "struct_size is 8");
    job.gradiveq.sample_steps = UINT64_MAX;
    refuse(&job, WEFT_ERR_MEMORY, "sample_steps");
    OK(job_create(&job));
    weft_compressed_average_destroy(job.average);
    alone_destroy(&alone);
}

struct difference {
    size_t offset;
    int real;
    const char *word;
};

static void disagree(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct difference *differ = ranks->user;
    const uint64_t other = 3;
    const double third = 0.3;
    struct job job;
    job_init(&job, context);
    job.gradiveq.uncompressed = WEFT_UNCOMPRESSED_QSGD;
    if (rank == 2 && differ->real)
        memcpy((char *)&job.gradiveq + differ->offset, &third, sizeof third);
    else if (rank == 2)
        memcpy((char *)&job.gradiveq + differ->offset, &other, sizeof other);
    CHECK_STATUS(job_create(&job), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), differ->word);
    CHECK_TEXT(weft_error_text(), "rank 2 has");
}

static void disagree_words(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const char *const words[] = {"uncompressed", "algo", "slices", "gradiveq->order",
                                        "sample_bits"};
    const int which = *(const int *)ranks->user;
    struct job job;
    job_init(&job, context);
    if (rank == 1 && which == 0)
        job.gradiveq.uncompressed = WEFT_UNCOMPRESSED_QSGD;
    if (rank == 1 && which == 1)
        job.gradiveq.algo = "ring";
    if (rank == 1 && which == 2)
        job.gradiveq.dense_layers = 1;
    if (rank == 1 && which == 3)
        job.gradiveq.order = WEFT_SLICES_OF_FILTERS;
    if (which == 4)
        job.gradiveq.uncompressed = WEFT_UNCOMPRESSED_QSGD;
    if (rank == 1 && which == 4)
        job.gradiveq.sample_bits = 8;
    CHECK_STATUS(job_create(&job), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), words[which]);
}

Test(gradiveq_faults, ranks_that_disagree_are_named)
{
    static struct difference each[] = {
        {offsetof(struct weft_gradiveq_config, loss), 1, "loss"},
        {offsetof(struct weft_gradiveq_config, loss_bound), 1, "loss_bound"},
        {offsetof(struct weft_gradiveq_config, slice), 0, "slices"},
        {offsetof(struct weft_gradiveq_config, warmup_steps), 0, "warmup_steps"},
        {offsetof(struct weft_gradiveq_config, sample_steps), 0, "sample_steps"},
        {offsetof(struct weft_gradiveq_config, compressed_steps), 0, "compressed_steps"}};
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
        ranks_run_once(disagree, 3, &each[i]);
    for (int which = 0; which < 5; which++)
        ranks_run_once(disagree_words, 2, &which);
}
