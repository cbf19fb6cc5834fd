/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Principal components. Bounds: u = 2^-24 is what rounding to f32 is off by at most.
 *
 *     orthonormal       |b_i . b_j - [i = j]| <= 2^-22
 *     loss              at most lambda + 2^-20 of the variance is lost on the samples; with one
 *                       component less it is more than lambda - 2^-20
 *     all components    what comes back is off by at most 2^-20 of the largest magnitude
 *
 * Suites run with LAPACK; without it they see that that is said.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"

struct fit {
    size_t K, L, d;
    float *samples, *mean, *basis;
    double *variances;
};

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Of a normal distribution, nearly. */
static float draw(uint64_t *state)
{
    double sum = 0;

    for (int i = 0; i < 12; i++)
        sum += (double)(weft__random(state) >> 11) * 0x1p-53;
    return (float)(sum - 6);
}

static struct fit make(size_t K, size_t L)
{
    struct fit fit = {.K = K, .L = L};

    fit.samples = calloc(K * L, sizeof *fit.samples);
    fit.mean = calloc(K, sizeof *fit.mean);
    fit.basis = calloc(K * lesser(K, L), sizeof *fit.basis);
    fit.variances = calloc(lesser(K, L), sizeof *fit.variances);
    cr_assert(fit.samples && fit.mean && fit.basis && fit.variances);
    return fit;
}

static void destroy(struct fit *fit)
{
    free(fit->variances);
    free(fit->basis);
    free(fit->mean);
    free(fit->samples);
}

static int run(struct fit *fit, double loss, size_t most)
{
    struct weft_pca_config config;

    weft_pca_config_init(&config);
    config.slice = fit->K;
    config.samples = fit->L;
    config.loss = loss;
    config.most = most;
    return weft_pca(&config, fit->samples, fit->mean, fit->basis, &fit->d, fit->variances);
}

#define FITS(fit, loss, most)                                                                      \
    cr_assert_eq(run(fit, loss, most), WEFT_OK, "K %zu L %zu: %s", (fit)->K, (fit)->L,             \
                 weft_error_text())

static void expect_orthonormal(const struct fit *fit)
{
    for (size_t i = 0; i < fit->d; i++)
        for (size_t j = 0; j <= i; j++) {
            double product = 0;

            for (size_t k = 0; k < fit->K; k++)
                product += (double)fit->basis[k * fit->d + i] * (double)fit->basis[k * fit->d + j];
            cr_assert_float_eq(product, i == j, 0x1p-22, "K %zu L %zu columns %zu %zu: %g", fit->K,
                               fit->L, i, j, product);
        }
    for (size_t j = 0; j < fit->d; j++) {
        size_t largest = 0;

        for (size_t k = 1; k < fit->K; k++)
            if (fabsf(fit->basis[k * fit->d + j]) > fabsf(fit->basis[largest * fit->d + j]))
                largest = k;
        cr_assert_gt(fit->basis[largest * fit->d + j], 0);
    }
}

/* The share of the variance that the first d components leave, in f64. */
static double lost(const struct fit *fit, size_t d)
{
    double all = 0, kept = 0;

    for (size_t l = 0; l < fit->L; l++) {
        for (size_t k = 0; k < fit->K; k++) {
            double x = (double)fit->samples[l * fit->K + k] - (double)fit->mean[k];
            all += x * x;
        }
        for (size_t j = 0; j < d; j++) {
            double sum = 0;
            for (size_t k = 0; k < fit->K; k++)
                sum += ((double)fit->samples[l * fit->K + k] - (double)fit->mean[k]) *
                       (double)fit->basis[k * fit->d + j];
            kept += sum * sum;
        }
    }
    return all > 0 ? (all - kept) / all : 0;
}

static void expect_least_components(const struct fit *fit, double loss)
{
    cr_assert_leq(lost(fit, fit->d), loss + 0x1p-20, "K %zu L %zu d %zu: %g lost", fit->K, fit->L,
                  fit->d, lost(fit, fit->d));
    if (fit->d > 0)
        cr_assert_gt(lost(fit, fit->d - 1), loss - 0x1p-20, "K %zu L %zu d %zu is too many", fit->K,
                     fit->L, fit->d);
}

static int is_there(void)
{
    const char *built = getenv("WEFT_TEST_LAPACK");

    if (weft_pca_available())
        return 1;
    cr_assert(!built || strcmp(built, "1") != 0, "built, but not found: %s", weft_error_text());
    cr_assert_neq(strstr(weft_error_text(), "principal components need LAPACK, in libweft-lapack"),
                  NULL, "%s", weft_error_text());
    return 0;
}

#define NEED_LAPACK                                                                                \
    if (!is_there())                                                                               \
    cr_skip("LAPACK is not there")

Test(pca, without_lapack_it_says_what_is_missing)
{
    struct fit fit = make(3, 2);

    if (!is_there()) {
        cr_assert_eq(run(&fit, 0, 0), WEFT_ERR_UNSUPPORTED);
        cr_assert_neq(strstr(weft_error_text(), "libweft-lapack"), NULL);
    }
    destroy(&fit);
}

static const size_t shapes[][2] = {{1, 1},   {1, 5},     {5, 1},    {2, 2},     {3, 7},    {7, 3},
                                   {64, 64}, {576, 100}, {30, 200}, {1000, 13}, {101, 100}};

Test(pca, as_few_orthonormal_components_as_leave_lambda)
{
    static const double losses[] = {1e-4, 0.01, 0.3, 0.9};
    uint64_t seed = 14;

    NEED_LAPACK;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int j = 0; j < 4; j++) {
            struct fit fit = make(shapes[i][0], shapes[i][1]);
            uint64_t first = seed;

            for (size_t k = 0; k < fit.K * fit.L; k++) /* variances that fall */
                fit.samples[k] = draw(&seed) / (float)(1 + k % fit.K);
            FITS(&fit, losses[j], 0);
            cr_assert_leq(fit.d, lesser(fit.K, fit.L - 1), "seed %llu", (unsigned long long)first);
            expect_orthonormal(&fit);
            expect_least_components(&fit, losses[j]);
            for (size_t v = 1; v < lesser(fit.K, fit.L); v++)
                cr_assert_leq(fit.variances[v], fit.variances[v - 1]);
            destroy(&fit);
        }
}

Test(pca, variances_and_the_mean_are_those_of_the_samples)
{
    struct fit fit = make(40, 25);
    uint64_t seed = 3;
    double all = 0, sum = 0;

    NEED_LAPACK;
    for (size_t i = 0; i < fit.K * fit.L; i++)
        fit.samples[i] = draw(&seed);
    FITS(&fit, WEFT_PCA_EXACT, 0);
    for (size_t k = 0; k < fit.K; k++) {
        double mean = 0;

        for (size_t l = 0; l < fit.L; l++)
            mean += (double)fit.samples[l * fit.K + k] / (double)fit.L;
        cr_assert_float_eq(fit.mean[k], mean, 0x1p-23 * (1 + fabs(mean)));
        for (size_t l = 0; l < fit.L; l++)
            all += pow((double)fit.samples[l * fit.K + k] - mean, 2) / (double)fit.L;
    }
    for (size_t v = 0; v < lesser(fit.K, fit.L); v++)
        sum += fit.variances[v];
    cr_assert_float_eq(sum, all, 1e-12 * all);
    cr_assert_eq(fit.d, fit.L - 1);
    destroy(&fit);
}

Test(pca, with_all_components_samples_come_back)
{
    uint64_t seed = 5;

    NEED_LAPACK;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct fit fit = make(shapes[i][0], shapes[i][1]);
        float *components, *means, *back;

        for (size_t k = 0; k < fit.K * fit.L; k++)
            fit.samples[k] = draw(&seed);
        FITS(&fit, WEFT_PCA_EXACT, 0);
        cr_assert_eq(fit.d, lesser(fit.K, fit.L - 1));
        components = calloc(fit.L * fit.d + 1, sizeof *components);
        means = calloc(fit.L * fit.K, sizeof *means);
        back = calloc(fit.L * fit.K, sizeof *back);
        for (size_t l = 0; l < fit.L; l++)
            memcpy(means + l * fit.K, fit.mean, fit.K * sizeof *means);
        struct weft_projection projection = {sizeof projection, fit.K, fit.d, fit.basis};
        cr_assert_eq(
            weft_project(&projection, fit.samples, fit.K * fit.L, means, 1, components, NULL),
            WEFT_OK);
        cr_assert_eq(weft_reconstruct(&projection, components, fit.K * fit.L, means, back),
                     WEFT_OK);
        for (size_t k = 0; k < fit.K * fit.L; k++)
            cr_assert_float_eq(back[k], fit.samples[k], 6 * 0x1p-20, "K %zu L %zu", fit.K, fit.L);
        free(back);
        free(means);
        free(components);
        destroy(&fit);
    }
}

Test(pca, planted_components_are_found)
{
    enum { RANK = 4 };
    struct fit fit = make(300, 60);
    uint64_t seed = 77;

    NEED_LAPACK;
    /* Samples of steps of their own along coordinates 10, 20, 30, 40; and noise of 1e-5. */
    for (size_t l = 0; l < fit.L; l++) {
        for (size_t k = 0; k < fit.K; k++)
            fit.samples[l * fit.K + k] = 3 + 1e-5F * draw(&seed);
        for (size_t r = 1; r <= RANK; r++)
            fit.samples[l * fit.K + 10 * r] += draw(&seed) * (float)(RANK + 1 - r);
    }
    FITS(&fit, 1e-4, 0);
    cr_assert_eq(fit.d, RANK);
    for (size_t j = 0; j < fit.d; j++) { /* in the plane of the four */
        double within = 0;

        for (size_t r = 1; r <= RANK; r++)
            within += pow((double)fit.basis[10 * r * fit.d + j], 2);
        cr_assert_gt(within, 1 - 1e-6);
    }
    FITS(&fit, 1e-4, 2);
    cr_assert_eq(fit.d, 2);
    expect_orthonormal(&fit);
    FITS(&fit, 1, 0);
    cr_assert_eq(fit.d, 0);
    destroy(&fit);
}

Test(pca, dependent_and_equal_samples_have_fewer_components)
{
    NEED_LAPACK;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct fit fit = make(shapes[i][0], shapes[i][1]);
        uint64_t seed = i;

        FITS(&fit, WEFT_PCA_EXACT, 0); /* zeros */
        cr_assert_eq(fit.d, 0);
        for (size_t k = 0; k < fit.K * fit.L; k++)
            fit.samples[k] = 0.1F * (float)(1 + k % fit.K);
        FITS(&fit, WEFT_PCA_EXACT, 0); /* all alike */
        cr_assert_eq(fit.d, 0, "K %zu L %zu: %zu", fit.K, fit.L, fit.d);
        cr_assert_eq(fit.mean[0], 0.1F);
        float *along = calloc(fit.K, sizeof *along);
        for (size_t k = 0; k < fit.K; k++)
            along[k] = draw(&seed);
        for (size_t k = 0; k < fit.K * fit.L; k++) /* on a line, exactly */
            fit.samples[k] = (float)((int)(k / fit.K) - 2) * (float)(int)(along[k % fit.K] * 64);
        FITS(&fit, WEFT_PCA_EXACT, 0);
        cr_assert_leq(fit.d, 1, "K %zu L %zu: %zu", fit.K, fit.L, fit.d);
        expect_orthonormal(&fit);
        free(along);
        destroy(&fit);
    }
}

Test(pca, magnitudes_do_not_matter)
{
    static const float scales[] = {1, 0x1p126F, 0x1p-120F, 0x1p-140F};
    size_t first = 0;

    NEED_LAPACK;
    for (int i = 0; i < 4; i++) {
        struct fit fit = make(50, 20);
        uint64_t seed = 1;

        for (size_t k = 0; k < fit.K * fit.L; k++)
            fit.samples[k] =
                (float)(int)(draw(&seed) * 64) / 512 / (float)(1U << k % 5) * scales[i];
        FITS(&fit, 0, 0);
        if (i == 0)
            first = fit.d;
        if (i < 3)
            cr_assert_eq(fit.d, first, "%zu at %g, and %zu", fit.d, (double)scales[i], first);
        cr_assert_gt(fit.d, 0);
        expect_orthonormal(&fit);
        destroy(&fit);
    }
}

Test(pca, what_is_not_finite_is_an_error_and_nothing_is_written)
{
    struct fit fit = make(5, 4);

    NEED_LAPACK;
    fit.samples[7] = NAN;
    fit.samples[13] = -INFINITY;
    fit.d = 99;
    fit.mean[0] = 5;
    cr_assert_eq(run(&fit, 0, 0), WEFT_ERR_COMPUTE);
    cr_assert_neq(strstr(weft_error_text(), "weft_pca: 2 elements of the samples are NaN or "
                                            "infinite, the first of them element 2 of sample 1"),
                  NULL, "%s", weft_error_text());
    cr_assert_eq(fit.d, 99);
    cr_assert_eq(fit.mean[0], 5);
    destroy(&fit);
}

/* Samples are not looked at: there are fewer. */
Test(pca, more_than_lapack_takes_is_refused)
{
    struct fit fit = make(2, 2);

    NEED_LAPACK;
    fit.K = (size_t)INT_MAX + 1;
    cr_assert_eq(run(&fit, 0, 0), WEFT_ERR_UNSUPPORTED);
    cr_assert(strstr(weft_error_text(), "weft_pca: 2 samples of 2147483648 elements are more"),
              "%s", weft_error_text());
    destroy(&fit);
}

Test(pca, arguments_are_checked)
{
    struct fit fit = make(2, 2);
    struct weft_pca_config config;
    size_t d;

    weft_pca_config_init(&config);
    config.samples = 2;
    cr_assert_eq(weft_pca(&config, fit.samples, fit.mean, fit.basis, &d, NULL), WEFT_ERR_INVALID);
    cr_assert_neq(strstr(weft_error_text(), "config->slice is 0, expected at least 1"), NULL);
    config.slice = 2;
    config.samples = 0;
    cr_assert_eq(weft_pca(&config, fit.samples, fit.mean, fit.basis, &d, NULL), WEFT_ERR_INVALID);
    config.samples = SIZE_MAX / 8;
    cr_assert_eq(weft_pca(&config, fit.samples, fit.mean, fit.basis, &d, NULL), WEFT_ERR_INVALID);
    cr_assert_neq(strstr(weft_error_text(), "expected what memory can hold"), NULL);
    config.samples = 2;
    config.loss = 1.5;
    cr_assert_eq(weft_pca(&config, fit.samples, fit.mean, fit.basis, &d, NULL), WEFT_ERR_INVALID);
    cr_assert_neq(strstr(weft_error_text(), "config->loss is 1.5, expected 0 to 1, or"), NULL);
    config.loss = 0;
    cr_assert_eq(weft_pca(&config, fit.samples, fit.mean, NULL, &d, NULL), WEFT_ERR_INVALID);
    cr_assert_neq(strstr(weft_error_text(), "`basis` is NULL"), NULL);
    destroy(&fit);
}

Test(pca, every_allocation_failing_is_told)
{
    struct fit fit = make(6, 4);

    NEED_LAPACK;
    fit.samples[3] = 1;
    fit.d = 99;
    for (long n = 1;; n++) {
        atomic_store(&weft__alloc_countdown, n);
        int status = run(&fit, 0, 0);
        int lucky = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
        if (lucky) {
            cr_assert_eq(status, WEFT_OK);
            cr_assert_eq(fit.d, 1);
            cr_assert_eq(n, 5);
            break;
        }
        cr_assert_eq(status, WEFT_ERR_MEMORY);
        cr_assert_eq(fit.d, 99);
    }
    destroy(&fit);
}
