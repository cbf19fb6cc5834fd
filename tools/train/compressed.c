/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Synchronous SGD with dense gradients in fewer bits (weft/compressed_average.h): every entry of
 * the gradient is sent, each with less than its 32 bits.
 *
 *     gradiveq   slices of convolutions' gradients are projected onto the principal components of
 *                earlier ones, which all ranks share; in phases
 *     qsgd       elements are quantised to few bits
 *     powersgd   matrices are sent as two thin factors
 *
 * Delayed, they are that with each mean applied one step late. The ranks' models are one all the
 * time.
 */
#include "tools/train/compressed.h"

#include "tools/train/yardsticks.h"

#include <string.h>

/* The paper's warm-up, samples and compressed steps (Yu et al., section 4), and the part of a
 * training that the first two may take; one phase of compressed steps is four times the samples,
 * as in the paper. */
enum { WARMUP = 2500, SAMPLES = 100, COMPRESSED_PER_SAMPLE = 4, PART = 10, LEAST_SAMPLES = 2 };

struct compressed {
    struct weft_compressed_average *average;
    enum train_compression compression;
    size_t tensors;
    struct train_compression_tally tally;
};

/* ---- what was asked for ---- */

struct train_phase_lengths train_compressed_lengths(const struct train_options *options)
{
    const struct train_compress_options *asked = &options->compress;
    uint64_t part = options->steps / PART;
    uint64_t samples = part < LEAST_SAMPLES ? LEAST_SAMPLES : part > SAMPLES ? SAMPLES : part;
    struct train_phase_lengths lengths = {.warmup_steps = part > WARMUP ? WARMUP : part,
                                          .sample_steps = samples};

    if (asked->warmup_steps != TRAIN_SCALED)
        lengths.warmup_steps = asked->warmup_steps;
    else
        lengths.scaled |= lengths.warmup_steps != WARMUP;
    if (asked->sample_steps)
        lengths.sample_steps = asked->sample_steps;
    else
        lengths.scaled |= samples != SAMPLES;
    lengths.compressed_steps = COMPRESSED_PER_SAMPLE * lengths.sample_steps;
    if (asked->compressed_steps)
        lengths.compressed_steps = asked->compressed_steps;
    else
        lengths.scaled |= lengths.sample_steps != SAMPLES;
    return lengths;
}

int train_compressed_dense_layers(const struct train_options *options)
{
    return options->compress.dense_layers || net_architectures()[options->model]->has_hidden;
}

int train_compressed_keeps(const struct train_options *options, enum train_compression compression)
{
    const struct train_compress_options *asked = &options->compress;

    if (asked->residual == WEFT_COMPRESSED_RESIDUAL_DEFAULT)
        return compression == TRAIN_COMPRESS_POWERSGD ||
               (compression == TRAIN_COMPRESS_QSGD && asked->bits == WEFT_QUANTISE_SIGN);
    return compression != TRAIN_COMPRESS_NONE && asked->residual == WEFT_COMPRESSED_RESIDUAL_KEPT;
}

static void configure_gradiveq(struct weft_gradiveq_config *config,
                               const struct train_options *options)
{
    const struct train_compress_options *asked = &options->compress;
    struct train_phase_lengths lengths = train_compressed_lengths(options);

    weft_gradiveq_config_init(config);
    config->loss = asked->pca_loss > 0.0 ? asked->pca_loss : WEFT_PCA_EXACT;
    config->order = asked->order;
    config->slice_factor = asked->slice_factor;
    config->slice = asked->slice;
    config->memory_bytes = asked->pca_memory;
    config->reuse = asked->reuse;
    config->warmup_steps = lengths.warmup_steps ? lengths.warmup_steps : WEFT_WARMUP_NONE;
    config->sample_steps = lengths.sample_steps;
    config->sample_bits = asked->sample_bits;
    config->compressed_steps = lengths.compressed_steps;
    config->loss_bound = asked->loss_bound;
    config->uncompressed = asked->uncompressed;
    config->dense_layers = train_compressed_dense_layers(options);
    config->algo = asked->algo;
}

static void configure_powersgd(struct weft_powersgd_config *config,
                               const struct train_options *options)
{
    const struct train_compress_options *asked = &options->compress;

    weft_powersgd_config_init(config);
    config->rank = asked->rank;
    config->warmup_steps = asked->warmup_steps != TRAIN_SCALED ? asked->warmup_steps : 0;
    config->cold_start = asked->cold_start;
    config->seed = options->seed;
}

int train_compressed_config_create(struct train_compressed_config *config,
                                   const struct train_setup *setup,
                                   enum train_compression compression)
{
    static const weft_compressed_method_t methods[] = {
        [TRAIN_COMPRESS_GRADIVEQ] = WEFT_COMPRESSED_GRADIVEQ,
        [TRAIN_COMPRESS_QSGD] = WEFT_COMPRESSED_QSGD,
        [TRAIN_COMPRESS_POWERSGD] = WEFT_COMPRESSED_POWERSGD,
    };
    const struct train_options *options = setup->options;
    const struct train_compress_options *asked = &options->compress;
    size_t count = model_tensor_count(setup->model);

    config->shapes = weft_memory_alloc(count, sizeof *config->shapes);
    if (!config->shapes)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the shapes of %zu tensors", count);
    for (size_t i = 0; i < count; i++)
        model_get_shape(setup->model, i, &config->shapes[i]);
    weft_quantiser_init(&config->quantiser);
    config->quantiser.bits = asked->bits;
    config->quantiser.bucket = asked->bucket;
    config->quantiser.norm = asked->norm;
    config->quantiser.seed = options->seed;
    configure_gradiveq(&config->gradiveq, options);
    configure_powersgd(&config->powersgd, options);
    weft_compressed_average_config_init(&config->average);
    config->average.tensors = setup->gradients;
    config->average.tensor_count = count;
    config->average.shapes = config->shapes;
    config->average.method = methods[compression];
    config->average.quantiser = &config->quantiser;
    config->average.qsgd_way = asked->way;
    if (compression == TRAIN_COMPRESS_GRADIVEQ)
        config->average.gradiveq = &config->gradiveq;
    if (compression == TRAIN_COMPRESS_POWERSGD)
        config->average.powersgd = &config->powersgd;
    config->average.residual = asked->residual;
    return WEFT_OK;
}

void train_compressed_config_free(struct train_compressed_config *config)
{
    weft_memory_free(config->shapes);
    config->shapes = NULL;
}

/* ---- a rank's life ---- */

static void compressed_destroy(void *state)
{
    struct compressed *compressed = state;

    if (compressed) {
        weft_compressed_average_destroy(compressed->average);
        weft_memory_free(compressed);
    }
}

/* From the state of an object before, if there is one. */
static int make(void **state, const struct train_setup *setup, enum train_compression compression,
                struct compressed *before)
{
    struct weft_compressed_average_state saved = {.struct_size = sizeof saved};
    struct compressed *compressed = weft_memory_alloc(1, sizeof *compressed);
    struct train_compressed_config config = {.shapes = NULL};

    if (!compressed)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the state of compressed averaging");
    int status = before ? weft_compressed_average_get_state(before->average, &saved) : WEFT_OK;
    if (status == WEFT_OK)
        status = train_compressed_config_create(&config, setup, compression);
    config.average.state = before ? &saved : NULL;
    if (before)
        *compressed = *before; /* what was counted goes on */
    compressed->compression = compression;
    compressed->tensors = model_tensor_count(setup->model);
    if (status == WEFT_OK)
        status =
            weft_compressed_average_create(&compressed->average, setup->context, &config.average);
    train_compressed_config_free(&config);
    if (status != WEFT_OK) {
        weft_memory_free(compressed);
        return status;
    }
    compressed_destroy(before);
    *state = compressed;
    return WEFT_OK;
}

/* A step has ended. */
static int count(struct compressed *compressed, int status,
                 const struct weft_compressed_average_result *result)
{
    if (status == WEFT_OK && result->phase == WEFT_COMPRESSED_COMPRESSED)
        train_compression_count(&compressed->tally, result->bits, result->loss);
    return status;
}

static int compressed_step(void *state, uint64_t step)
{
    struct compressed *compressed = state;
    struct weft_compressed_average_result result = {.struct_size = sizeof result};

    (void)step;
    return count(compressed, weft_compressed_average_step(compressed->average, &result), &result);
}

static int compressed_post(void *state, uint64_t step)
{
    struct compressed *compressed = state;

    (void)step;
    return weft_compressed_average_post(compressed->average);
}

static int compressed_wait(void *state, uint64_t step)
{
    struct compressed *compressed = state;
    struct weft_compressed_average_result result = {.struct_size = sizeof result};

    (void)step;
    return count(compressed, weft_compressed_average_wait(compressed->average, &result), &result);
}

static const char *compressed_phase(void *state)
{
    struct compressed *compressed = state;

    return weft_compressed_phase_name(weft_compressed_average_phase(compressed->average));
}

static int get_tensor(void *object, size_t tensor, struct weft_gradiveq_tensor *info)
{
    return weft_compressed_average_get_tensor(object, tensor, info);
}

static int compressed_describe(void *state, struct train_compressed *result)
{
    const struct compressed *compressed = state;
    const int projects = compressed->compression == TRAIN_COMPRESS_GRADIVEQ;
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    int status = weft_compressed_average_get_stats(compressed->average, &stats);

    if (status == WEFT_OK)
        status =
            train_compression_describe(&compressed->tally, compressed->tensors,
                                       projects ? get_tensor : NULL, compressed->average, result);
    if (status != WEFT_OK)
        return status;
    result->phases = stats.phases;
    result->ended_early = stats.ended_early;
    result->pca_seconds = (double)stats.pca_ns * 1e-9;
    return WEFT_OK;
}

void train_compressed_free(struct train_compressed *compressed)
{
    weft_memory_free(compressed->projections);
    memset(compressed, 0, sizeof *compressed);
}

void train_compression_count(struct train_compression_tally *tally, double bits, double loss)
{
    tally->steps++;
    tally->bits += bits;
    if (loss >= 0.0) {
        tally->losses++;
        tally->loss += loss;
    }
}

int train_compression_describe(const struct train_compression_tally *tally, size_t tensors,
                               train_get_tensor_fn get, void *object,
                               struct train_compressed *result)
{
    struct weft_gradiveq_tensor tensor = {.struct_size = sizeof tensor};
    int status = WEFT_OK;

    memset(result, 0, sizeof *result);
    result->steps = tally->steps;
    result->ratio = tally->bits > 0.0 ? 32.0 * (double)tally->steps / tally->bits : 0.0;
    result->loss = tally->losses ? tally->loss / (double)tally->losses : -1.0;
    if (!get)
        return WEFT_OK;
    result->projections = weft_memory_alloc(tensors + 1, sizeof *result->projections);
    if (!result->projections)
        status = weft_error_set(WEFT_ERR_MEMORY, "no memory for a list of projections");
    for (size_t i = 0; i < tensors && status == WEFT_OK; i++) {
        status = get(object, i, &tensor);
        if (status != WEFT_OK || tensor.slice == 0)
            continue;
        result->projections[result->projection_count++] =
            (struct train_projection){.tensor = i,
                                      .slice = tensor.slice,
                                      .slices = tensor.slices,
                                      .reuse = tensor.reuse,
                                      .components = tensor.components,
                                      .loss = tensor.loss};
    }
    if (status != WEFT_OK)
        train_compressed_free(result);
    return status;
}

static int compressed_leave(const struct train_options *options, int ranks, uint64_t step,
                            const double *arrived, double *left)
{
    (void)options, (void)step;
    train_leave_together(ranks, arrived, left);
    return WEFT_OK;
}

/* ---- the algorithms ---- */

static int gradiveq_keeps(const struct train_options *options)
{
    return train_compressed_keeps(options, TRAIN_COMPRESS_GRADIVEQ);
}

static int qsgd_keeps(const struct train_options *options)
{
    return train_compressed_keeps(options, TRAIN_COMPRESS_QSGD);
}

static int powersgd_keeps(const struct train_options *options)
{
    return train_compressed_keeps(options, TRAIN_COMPRESS_POWERSGD);
}

static int gradiveq_create(void **state, const struct train_setup *setup)
{
    return make(state, setup, TRAIN_COMPRESS_GRADIVEQ, NULL);
}

static int gradiveq_again(void **state, const struct train_setup *setup)
{
    return make(state, setup, TRAIN_COMPRESS_GRADIVEQ, *state);
}

static int qsgd_create(void **state, const struct train_setup *setup)
{
    return make(state, setup, TRAIN_COMPRESS_QSGD, NULL);
}

static int qsgd_again(void **state, const struct train_setup *setup)
{
    return make(state, setup, TRAIN_COMPRESS_QSGD, *state);
}

static int powersgd_create(void **state, const struct train_setup *setup)
{
    return make(state, setup, TRAIN_COMPRESS_POWERSGD, NULL);
}

static int powersgd_again(void **state, const struct train_setup *setup)
{
    return make(state, setup, TRAIN_COMPRESS_POWERSGD, *state);
}

const struct train_algorithm train_gradiveq = {
    .name = "gradiveq",
    .summary = "dense gradients, convolutions' projected onto principal components, in phases",
    .compression = TRAIN_COMPRESS_GRADIVEQ,
    .available = weft_pca_available,
    .create = gradiveq_create,
    .again = gradiveq_again,
    .one_model = 1,
    .keeps_gradients = gradiveq_keeps,
    .gradients = {compressed_step, compressed_post, compressed_wait},
    .phase = compressed_phase,
    .describe = compressed_describe,
    .destroy = compressed_destroy,
    .leave = compressed_leave,
};

const struct train_algorithm train_qsgd = {
    .name = "qsgd",
    .summary = "dense gradients, each element quantised to --bits",
    .compression = TRAIN_COMPRESS_QSGD,
    .create = qsgd_create,
    .again = qsgd_again,
    .one_model = 1,
    .keeps_gradients = qsgd_keeps,
    .gradients = {compressed_step, compressed_post, compressed_wait},
    .phase = compressed_phase,
    .describe = compressed_describe,
    .destroy = compressed_destroy,
    .leave = compressed_leave,
};

const struct train_algorithm train_powersgd = {
    .name = "powersgd",
    .summary = "dense gradients, matrices as products of two of --power-rank",
    .compression = TRAIN_COMPRESS_POWERSGD,
    .create = powersgd_create,
    .again = powersgd_again,
    .one_model = 1,
    .keeps_gradients = powersgd_keeps,
    .gradients = {compressed_step, compressed_post, compressed_wait},
    .phase = compressed_phase,
    .describe = compressed_describe,
    .destroy = compressed_destroy,
    .leave = compressed_leave,
};
