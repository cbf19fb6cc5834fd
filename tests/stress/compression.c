/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed gradients in plays: compression.h. */
#include "compression.h"

#include <math.h>

enum { BUCKET = 8, LEAST_RANK = 4 };

/* ---- settings ---- */

static void draw_gradiveq(struct compression *compression, uint64_t *random)
{
    static const double losses[] = {0, 1e-4, 0.5, WEFT_PCA_EXACT}, bounds[] = {0, 1e-6, 0.3, 0.9};
    static const char *const algos[] = {NULL, "ring", "reduce-scatter-allgather"};
    static const size_t slices[] = {2, 5, 6, 9, 1000};
    static const int sample_bits[] = {0, 2, 4, 8};
    struct weft_gradiveq_config *gradiveq = &compression->gradiveq;
    gradiveq->warmup_steps =
        play_below(random, 3) ? (uint64_t)play_below(random, 3) : WEFT_WARMUP_NONE;
    gradiveq->warmup_steps = gradiveq->warmup_steps ? gradiveq->warmup_steps : WEFT_WARMUP_NONE;
    gradiveq->sample_steps = 2 + (uint64_t)play_below(random, 2);
    gradiveq->compressed_steps =
        play_below(random, 5) ? 1 + (uint64_t)play_below(random, 4) : WEFT_NEVER;
    gradiveq->reuse = (size_t)play_below(random, 4);
    gradiveq->dense_layers = play_below(random, 2);
    gradiveq->uncompressed =
        play_below(random, 2) ? WEFT_UNCOMPRESSED_QSGD : WEFT_UNCOMPRESSED_DENSE;
    if (gradiveq->uncompressed == WEFT_UNCOMPRESSED_QSGD)
        gradiveq->sample_bits = sample_bits[play_below(random, 4)];
    gradiveq->order = play_below(random, 2) ? WEFT_SLICES_ACROSS_FILTERS : WEFT_SLICES_OF_FILTERS;
    gradiveq->algo = algos[play_below(random, 3)];
    gradiveq->loss = losses[play_below(random, 4)];
    gradiveq->loss_bound = bounds[play_below(random, 4)];
    compression->planted = play_below(random, 3) == 0;
    if (compression->planted) { /* no slice is short, samples are exact */
        gradiveq->uncompressed = WEFT_UNCOMPRESSED_DENSE;
        gradiveq->sample_bits = 0;
        gradiveq->order = WEFT_SLICES_ACROSS_FILTERS;
        gradiveq->loss = 1e-4;
        gradiveq->slice_factor = (size_t)play_below(random, 2);
        return;
    }
    if (play_below(random, 3) == 0)
        gradiveq->slice = slices[play_below(random, 5)];
    else
        gradiveq->slice_factor = (size_t)play_below(random, 5);
    if (play_below(random, 3) == 0)
        gradiveq->memory_bytes = 1 + (size_t)play_below(random, 2000);
}

void compression_draw(struct compression *compression, uint64_t *random)
{
    static const int bits[] = {2, 4, 8, WEFT_QUANTISE_SIGN};
    static const weft_compressed_method_t methods[] = {
        WEFT_COMPRESSED_QSGD, WEFT_COMPRESSED_POWERSGD, WEFT_COMPRESSED_GRADIVEQ,
        WEFT_COMPRESSED_GRADIVEQ};
    struct weft_compressed_average_config *config = &compression->config;
    weft_compressed_average_config_init(config);
    weft_quantiser_init(&compression->quantiser);
    weft_gradiveq_config_init(&compression->gradiveq);
    weft_powersgd_config_init(&compression->powersgd);
    config->method = methods[play_below(random, weft_pca_available() ? 4 : 2)];
    config->qsgd_way = play_below(random, 2) ? WEFT_QSGD_SHARDS : WEFT_QSGD_RING;
    config->residual = (weft_compressed_residual_t)play_below(random, 3);
    config->quantiser = &compression->quantiser;
    config->gradiveq = &compression->gradiveq;
    config->powersgd = &compression->powersgd;
    compression->quantiser.bits = bits[play_below(random, 4)];
    compression->quantiser.bucket = BUCKET;
    compression->powersgd.rank = 1 + (size_t)play_below(random, LEAST_RANK);
    compression->powersgd.warmup_steps = (uint64_t)play_below(random, 3);
    compression->powersgd.cold_start = play_below(random, 2);
    compression->powersgd.least_ratio = 0.1;
    if (config->method == WEFT_COMPRESSED_GRADIVEQ)
        draw_gradiveq(compression, random);
}

int compression_keeps(const struct compression *compression)
{
    const struct weft_compressed_average_config *config = &compression->config;
    if (config->residual != WEFT_COMPRESSED_RESIDUAL_DEFAULT)
        return config->residual == WEFT_COMPRESSED_RESIDUAL_KEPT;
    return config->method == WEFT_COMPRESSED_POWERSGD ||
           (config->method == WEFT_COMPRESSED_QSGD &&
            compression->quantiser.bits == WEFT_QUANTISE_SIGN);
}

/* ---- gradients ---- */

static double number(uint64_t seed, uint64_t what)
{
    uint64_t state = seed + what * 977;
    return (double)(int64_t)play_random(&state) * 0x1p-63;
}

float compression_gradient(uint64_t seed, int rank, int step, size_t element)
{
    uint64_t state = seed + ((uint64_t)(rank * PLAY_STEPS + step) * 4096 + element) * 977;
    uint64_t bits = play_random(&state);
    if (bits % 11 == 0)
        return 0;
    return (float)((double)(int64_t)play_random(&state) * 0x1p-63 * (double)(1 << bits % 8));
}

float compression_planted(uint64_t seed, int rank, int step, size_t tensor, size_t element)
{
    const uint64_t r = (uint64_t)rank, all = (uint64_t)step * 64 + (uint64_t)tensor;
    return (float)(number(seed, r * 4096 + element) + number(~seed, r * 4096 + all));
}

/* ---- bounds ---- */

static double bound_of_bits(const struct compression *compression, int bits, int ranks, double most)
{
    const double rounding = 0x1p-15 * ranks * most;
    if (bits == WEFT_QUANTISE_SIGN)
        return -1;
    /* Each is quantised to a level of one rank's, then sums to one of at most all ranks'; around a
     * ring sums are quantised P times, and grow by it. */
    const double levels = (1 << (bits - 1)) - 1;
    if (compression->config.qsgd_way == WEFT_QSGD_SHARDS)
        return most * ranks / levels * (2 + 1 / levels) + rounding;
    return most * ranks * ranks / levels * pow(1 + 1 / levels, ranks) + rounding;
}

double compression_bound(const struct compression *compression, weft_compressed_phase_t phase,
                         int step, int ranks, double most)
{
    const double rounding = 0x1p-15 * ranks * most;
    const int keeps = compression_keeps(compression);
    int bits = compression->quantiser.bits;
    switch (compression->config.method) {
    case WEFT_COMPRESSED_QSGD:
        return keeps ? -1 : bound_of_bits(compression, bits, ranks, most);
    case WEFT_COMPRESSED_POWERSGD:
        return (uint64_t)step < compression->powersgd.warmup_steps        ? rounding
               : keeps || compression->powersgd.rank < LEAST_RANK || step ? -1
                                                                          : rounding;
    case WEFT_COMPRESSED_GRADIVEQ:
        if (compression->planted)
            return 0x1p-9 * ranks;
        if (keeps || phase == WEFT_COMPRESSED_COMPRESSED)
            return -1;
        if (phase == WEFT_COMPRESSED_SAMPLING && compression->gradiveq.sample_bits)
            bits = compression->gradiveq.sample_bits;
        return compression->gradiveq.uncompressed == WEFT_UNCOMPRESSED_DENSE
                   ? rounding
                   : bound_of_bits(compression, bits, ranks, most);
    }
    return -1;
}

/* ---- phases ---- */

void compression_phases_begin(struct compression_phases *phases,
                              const struct compression *compression)
{
    const struct weft_gradiveq_config *gradiveq = &compression->gradiveq;
    const int method = compression->config.method;
    *phases = (struct compression_phases){
        .compression = compression, .phase = WEFT_COMPRESSED_COMPRESSED, .left = WEFT_NEVER};
    if (method == WEFT_COMPRESSED_POWERSGD && compression->powersgd.warmup_steps) {
        phases->phase = WEFT_COMPRESSED_WARMUP;
        phases->left = compression->powersgd.warmup_steps;
    }
    if (method != WEFT_COMPRESSED_GRADIVEQ)
        return;
    const int warm = gradiveq->warmup_steps != WEFT_WARMUP_NONE;
    phases->phase = warm ? WEFT_COMPRESSED_WARMUP : WEFT_COMPRESSED_SAMPLING;
    phases->left = warm ? gradiveq->warmup_steps : gradiveq->sample_steps;
}

void compression_phases_step(struct compression_phases *phases, int votes, int ranks)
{
    const struct compression *compression = phases->compression;
    const struct weft_gradiveq_config *gradiveq = &compression->gradiveq;
    const int compressed = phases->phase == WEFT_COMPRESSED_COMPRESSED;
    if (phases->left != WEFT_NEVER)
        phases->left--;
    if (compressed && 2 * votes > ranks)
        phases->left = 0;
    if (phases->left)
        return;
    phases->left = WEFT_NEVER;
    if (compression->config.method != WEFT_COMPRESSED_GRADIVEQ) {
        phases->phase = WEFT_COMPRESSED_COMPRESSED;
    } else if (phases->phase == WEFT_COMPRESSED_SAMPLING) {
        phases->phase = WEFT_COMPRESSED_COMPRESSED;
        phases->left = gradiveq->compressed_steps;
    } else {
        phases->phase = WEFT_COMPRESSED_SAMPLING;
        phases->left = gradiveq->sample_steps;
    }
}
