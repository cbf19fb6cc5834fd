/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Principal components of samples, by the singular values of the matrix of centred samples:
 *
 *     X = U S V^T      X: a column a sample, K x L;  U: the components, S^2 / L: their variances
 *
 * The covariances, K x K, are never made. Work is done in f64.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/compress/load.h"

#include <float.h>
#include <math.h>
#include <weft/compress.h>

/* Of the share of variance that may be lost. */
static const double LOSS = 0.01;

struct pca {
    size_t slice, samples, most, least; /* K, L; least: min(K, L) */
    double loss;
    double *matrix, *values, *mean; /* K x L, min(K, L), K */
    void *work;
    double norm; /* of the samples, before they are centred */
};

void weft_pca_config_init_sized(struct weft_pca_config *config, size_t size)
{
    weft_sized_init(config, size);
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- arguments ---- */

static int read_config(const char *who, const struct weft_pca_config *given, struct pca *pca)
{
    struct weft_pca_config config;
    int status = weft_sized_read(who, "config", given, &config, sizeof config);

    if (status)
        return status;
    if (config.slice == 0)
        return WEFT__INVALID("%s: config->slice is 0, expected at least 1", who);
    if (config.samples == 0)
        return WEFT__INVALID("%s: config->samples is 0, expected at least 1", who);
    if (config.slice > SIZE_MAX / sizeof(double) / config.samples)
        return WEFT__INVALID("%s: config->slice is %zu and config->samples is %zu, expected what "
                             "memory can hold",
                             who, config.slice, config.samples);
    if (config.loss != WEFT_PCA_EXACT && !(config.loss >= 0 && config.loss <= 1))
        return WEFT__INVALID("%s: config->loss is %g, expected 0 to 1, or WEFT_PCA_EXACT", who,
                             config.loss);
    *pca = (struct pca){.slice = config.slice,
                        .samples = config.samples,
                        .least = lesser(config.slice, config.samples),
                        .loss = config.loss == 0 ? LOSS : config.loss};
    pca->most = lesser(config.slice, config.samples - 1);
    if (config.most)
        pca->most = lesser(pca->most, config.most);
    return WEFT_OK;
}

static int check_samples(const char *who, const struct pca *pca, const float *samples)
{
    size_t bad = 0, first = 0;

    for (size_t i = pca->slice * pca->samples; i-- > 0;)
        if (!isfinite(samples[i])) {
            first = i;
            bad++;
        }
    if (!bad)
        return WEFT_OK;
    return weft__error(WEFT_ERR_COMPUTE,
                       "%s: %zu elements of the samples are NaN or infinite, the first of them "
                       "element %zu of sample %zu; expected finite numbers",
                       who, bad, first % pca->slice, first / pca->slice);
}

/* ---- what is computed ---- */

static int allocate(struct pca *pca, size_t work)
{
    const size_t cells = pca->slice * pca->samples;

    pca->matrix = weft__malloc(cells, sizeof *pca->matrix);
    pca->values = weft__malloc(pca->least, sizeof *pca->values);
    pca->mean = weft__calloc(pca->slice, sizeof *pca->mean);
    pca->work = weft__malloc(work, 1);
    if (!pca->matrix || !pca->values || !pca->mean || !pca->work)
        return weft__error_memory("principal components");
    return WEFT_OK;
}

static void release(struct pca *pca)
{
    weft__free(pca->work);
    weft__free(pca->mean);
    weft__free(pca->values);
    weft__free(pca->matrix);
}

static void centre(struct pca *pca, const float *samples)
{
    const size_t K = pca->slice;
    double squares = 0;

    for (size_t l = 0; l < pca->samples; l++)
        for (size_t k = 0; k < K; k++) {
            pca->mean[k] += (double)samples[l * K + k];
            squares += (double)samples[l * K + k] * (double)samples[l * K + k];
        }
    pca->norm = sqrt(squares);
    for (size_t k = 0; k < K; k++)
        pca->mean[k] /= (double)pca->samples;
    for (size_t l = 0; l < pca->samples; l++)
        for (size_t k = 0; k < K; k++)
            pca->matrix[l * K + k] = (double)samples[l * K + k] - pca->mean[k];
}

/* How many components are kept: as few as leave `loss` of the sum of squares, and none of those
 * that are nothing but rounding. */
static size_t choose(const struct pca *pca)
{
    const double rounding =
        DBL_EPSILON * (double)(pca->slice > pca->samples ? pca->slice : pca->samples) * pca->norm;
    double all = 0, left = 0;
    size_t rank = 0, d;

    while (rank < pca->least && pca->values[rank] > rounding)
        rank++;
    for (size_t i = pca->least; i-- > 0;)
        all += pca->values[i] * pca->values[i];
    for (size_t i = pca->least; i-- > rank;)
        left += pca->values[i] * pca->values[i];
    for (d = rank; d > 0; d--) {
        left += pca->values[d - 1] * pca->values[d - 1];
        if (pca->loss == WEFT_PCA_EXACT || left > pca->loss * all)
            break;
    }
    return lesser(d, pca->most);
}

/* A column of the basis, of the sign that makes its entry of largest magnitude positive. */
static void write_column(const struct pca *pca, size_t j, size_t d, float *basis)
{
    const double *column = pca->matrix + j * pca->slice;
    float largest = 0, sign = 1;

    for (size_t k = 0; k < pca->slice; k++)
        if (fabsf((float)column[k]) > largest) {
            largest = fabsf((float)column[k]);
            sign = column[k] < 0 ? -1.0F : 1.0F;
        }
    for (size_t k = 0; k < pca->slice; k++)
        basis[k * d + j] = sign * (float)column[k];
}

static void write_results(const struct pca *pca, float *mean, float *basis, size_t *components,
                          double *variances)
{
    const size_t d = choose(pca);

    for (size_t k = 0; k < pca->slice; k++)
        mean[k] = (float)pca->mean[k];
    for (size_t j = 0; j < d; j++)
        write_column(pca, j, d, basis);
    *components = d;
    for (size_t i = 0; variances && i < pca->least; i++)
        variances[i] = pca->values[i] * pca->values[i] / (double)pca->samples;
}

int weft_pca(const struct weft_pca_config *config, const float *samples, float *mean, float *basis,
             size_t *components, double *variances)
{
    const struct weft__lapack *lapack;
    struct pca pca = {0};
    size_t work;
    int status;

    if (!config)
        return WEFT__INVALID("%s: `config` is NULL, expected a configuration", __func__);
    status = read_config(__func__, config, &pca);
    if (status)
        return status;
    if (!samples || !mean || (!basis && pca.most > 0) || !components)
        return WEFT__INVALID("%s: `%s` is NULL, expected memory", __func__,
                             !samples ? "samples"
                             : !mean  ? "mean"
                             : !basis ? "basis"
                                      : "components");
    lapack = weft__lapack_load();
    if (!lapack)
        return WEFT_ERR_UNSUPPORTED;
    work = lapack->svd_bytes(pca.slice, pca.samples);
    if (!work)
        return weft__error(WEFT_ERR_UNSUPPORTED,
                           "%s: %zu samples of %zu elements are more than LAPACK takes", __func__,
                           pca.samples, pca.slice);
    status = check_samples(__func__, &pca, samples);
    if (!status)
        status = allocate(&pca, work);
    if (!status) {
        centre(&pca, samples);
        if (lapack->svd(pca.matrix, pca.slice, pca.samples, pca.values, pca.work))
            status = weft__error(WEFT_ERR_COMPUTE, "%s: dgesdd did not converge", __func__);
        else
            write_results(&pca, mean, basis, components, variances);
    }
    release(&pca);
    return status;
}

int weft_pca_available(void)
{
    return weft__lapack_load() != NULL;
}
