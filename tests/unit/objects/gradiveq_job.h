/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small model for suites of GradiVeQ: three convolutions, one of every layout, a dense layer and
 * a bias. Gradients are planted: in the order of figure 3 all slices of a tensor have the same two
 * components, besides a mean of their own.
 */
#ifndef WEFT_TESTS_GRADIVEQ_JOB_H
#define WEFT_TESTS_GRADIVEQ_JOB_H

#include <math.h>

#include "support/virtual_ranks.h"

enum { JOB_TENSORS = 5, JOB_ELEMENTS = 290, JOB_PROJECTED = 256, JOB_RANK = 2 };
enum { JOB_STEPS = 24 }; /* of job_check_restarts() */

static const struct weft_tensor_shape job_shapes[JOB_TENSORS] = {
    {WEFT_TENSOR_OIHW, 4, 3, 3, 3}, /* K = 36, of which there are 3 */
    {WEFT_TENSOR_VECTOR, 4, 0, 0, 0},
    {WEFT_TENSOR_OHWI, 5, 4, 1, 2}, /* K = 40 */
    {WEFT_TENSOR_DENSE, 6, 5, 0, 0},
    {WEFT_TENSOR_HWIO, 6, 2, 3, 3}, /* K = 36, of which there are 3 */
};
static const size_t job_counts[JOB_TENSORS] = {108, 4, 40, 30, 108};
static const size_t job_slices[JOB_TENSORS] = {36, 0, 40, 0, 36};

struct job {
    struct weft_context *context;
    int rank, size;
    struct weft_compressed_average *average;
    float data[JOB_ELEMENTS];
    struct weft_piece tensors[JOB_TENSORS];
    struct weft_gradiveq_config gradiveq;
    struct weft_quantiser quantiser;
    struct weft_compressed_average_config config;
};

/* A configuration that can be changed before job_create(): two steps of warm-up, four samples, five
 * compressed steps; sums, and what is not compressed is exact. */
static inline void job_init(struct job *job, struct weft_context *context)
{
    float *at = job->data;
    memset(job, 0, sizeof *job);
    job->context = context;
    job->rank = weft_context_rank(context);
    job->size = weft_context_size(context);
    for (int t = 0; t < JOB_TENSORS; t++) {
        job->tensors[t] = (struct weft_piece){at, job_counts[t]};
        at += job_counts[t];
    }
    weft_gradiveq_config_init(&job->gradiveq);
    weft_quantiser_init(&job->quantiser);
    weft_compressed_average_config_init(&job->config);
    job->gradiveq.loss = 1e-6; /* of what is planted nothing */
    job->gradiveq.warmup_steps = 2;
    job->gradiveq.sample_steps = 4;
    job->gradiveq.compressed_steps = 5;
    job->gradiveq.uncompressed = WEFT_UNCOMPRESSED_DENSE;
    job->config.tensors = job->tensors;
    job->config.tensor_count = JOB_TENSORS;
    job->config.shapes = job_shapes;
    job->config.gradiveq = &job->gradiveq;
    job->config.quantiser = &job->quantiser;
    job->config.sum = 1;
}

static inline int job_create(struct job *job)
{
    return weft_compressed_average_create(&job->average, job->context, &job->config);
}

/* -1 .. 1, of anything. */
static inline float job_number(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9) + c;
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb) + d;
    x = (x ^ (x >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 32;
    return (float)(int32_t)(x >> 8 & 0xffffff) / 8388608.0F - 1;
}

/* Where element `at` of a tensor in the order of figure 3 is in the tensor. */
static inline size_t job_place(int t, size_t at)
{
    const struct weft_tensor_shape *s = &job_shapes[t];
    if (s->layout == WEFT_TENSOR_VECTOR || s->layout == WEFT_TENSOR_DENSE)
        return at;
    size_t f = at % s->outputs, d = at / s->outputs % s->inputs;
    size_t hw = at / s->outputs / s->inputs, places = s->height * s->width;
    if (s->layout == WEFT_TENSOR_OIHW)
        return (f * s->inputs + d) * places + hw;
    return s->layout == WEFT_TENSOR_OHWI ? (f * places + hw) * s->inputs + d : at;
}

/* The gradient of a rank; noise: how much of it is in no component. */
static inline float job_value(int rank, uint64_t step, int t, size_t at, float noise)
{
    uint64_t r = (uint64_t)rank, number = (uint64_t)t, k = at;
    float value = job_number(r, step, number, 1000 + k);
    if (!job_slices[t])
        return value;
    size_t m = at / job_slices[t], i = at % job_slices[t];
    value = noise * value + job_number(7, number, m, i);
    for (uint64_t j = 0; j < JOB_RANK; j++)
        value += job_number(100 + r, step, number * 64 + m, j) * job_number(8, number, j, i);
    return value;
}

static inline void job_fill(struct job *job, uint64_t step, float noise)
{
    for (int t = 0; t < JOB_TENSORS; t++) {
        float *data = job->tensors[t].data;
        for (size_t at = 0; at < job_counts[t]; at++)
            data[job_place(t, at)] = job_value(job->rank, step, t, at, noise);
    }
}

/* The largest difference from the sum over all ranks. */
static inline double job_error(const struct job *job, uint64_t step, float noise)
{
    double most = 0;
    for (int t = 0; t < JOB_TENSORS; t++) {
        const float *data = job->tensors[t].data;
        for (size_t at = 0; at < job_counts[t]; at++) {
            double sum = 0;
            for (int r = 0; r < job->size; r++)
                sum += (double)job_value(r, step, t, at, noise);
            double error = fabs((double)data[job_place(t, at)] - sum);
            most = error > most || isnan(error) ? error : most;
        }
    }
    return most;
}

static inline uint64_t job_hash_more(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static inline uint64_t job_hash(const struct job *job)
{
    return job_hash_more(UINT64_C(0xcbf29ce484222325), job->data, sizeof job->data);
}

/* The same on all ranks, bit for bit. */
static inline void job_check_same(const struct job *job, const void *data, size_t bytes)
{
    uint64_t hash = job_hash_more(1, data, bytes), most[2] = {hash, ~hash}, all[2];
    OK(weft_allreduce(job->context, most, all, 2, WEFT_U64, weft_op_builtin(WEFT_MAX)));
    CHECK(all[0] == hash && all[1] == ~hash);
}

/* A step with planted gradients. */
static inline struct weft_compressed_average_result job_step(struct job *job, uint64_t step,
                                                             float noise)
{
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    job_fill(job, step, noise);
    OK(weft_compressed_average_step(job->average, &result));
    CHECK(result.step == step);
    return result;
}

/* A copy of a state, which outlives its object. */
struct kept {
    struct weft_compressed_average_state state;
    uint64_t *words;
    float *numbers, *residual, *unsent;
};

static inline void *job_copy(const void *from, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    CHECK(copy);
    if (bytes)
        memcpy(copy, from, bytes);
    return copy;
}

static inline struct kept *job_keep(struct job *job)
{
    struct kept *kept = calloc(1, sizeof *kept);
    CHECK(kept);
    kept->state.struct_size = sizeof kept->state;
    OK(weft_compressed_average_get_state(job->average, &kept->state));
    struct weft_compressed_average_state *state = &kept->state;
    state->words = kept->words = job_copy(state->words, state->word_count * sizeof *state->words);
    state->numbers = kept->numbers =
        job_copy(state->numbers, state->number_count * sizeof *state->numbers);
    if (state->residual)
        state->residual = kept->residual = job_copy(state->residual, sizeof job->data);
    if (state->unsent)
        state->unsent = kept->unsent = job_copy(state->unsent, sizeof job->data);
    return kept;
}

static inline void job_forget(struct kept *kept)
{
    if (!kept)
        return;
    free(kept->unsent);
    free(kept->residual);
    free(kept->numbers);
    free(kept->words);
    free(kept);
}

/* ---- checkpoints ---- */

/* Quantised, with residuals, and votes that end the first phase: from step 8 on most have noise. */
static inline void job_init_votes(struct job *job, struct weft_context *context)
{
    job_init(job, context);
    job->gradiveq.uncompressed = WEFT_UNCOMPRESSED_QSGD;
    job->gradiveq.loss_bound = 0.2;
    job->gradiveq.sample_bits = 8;
    job->quantiser.bits = 4;
    job->quantiser.bucket = 64;
    job->config.residual = WEFT_COMPRESSED_RESIDUAL_KEPT;
}

static inline float job_noise(const struct job *job, uint64_t step)
{
    return step == 8 && 2 * job->rank <= job->size ? 9 : 0.01F;
}

static inline struct kept *job_restart(struct job *job)
{
    struct kept *kept = job_keep(job);
    OK(weft_compressed_average_destroy(job->average));
    job->average = NULL;
    job->config.state = &kept->state;
    OK(job_create(job));
    job->config.state = NULL;
    return kept;
}

/* The hash of every step, with new objects before the steps of which `before` has a bit. */
static inline void job_live(struct job *job, uint64_t before, uint64_t hashes[JOB_STEPS])
{
    OK(job_create(job));
    for (uint64_t step = 0; step < JOB_STEPS; step++) {
        if (before >> step & 1)
            job_forget(job_restart(job));
        struct weft_compressed_average_result result = job_step(job, step, job_noise(job, step));
        hashes[step] = job_hash(job) + (uint64_t)result.phase + 8 * (uint64_t)result.votes;
    }
    OK(weft_compressed_average_destroy(job->average));
    job->average = NULL;
}

static inline int job_check_restarts(struct weft_context *context, void *user)
{
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    uint64_t expected[JOB_STEPS], got[JOB_STEPS];
    struct job job;
    (void)user;
    job_init_votes(&job, context);
    job_live(&job, 0, expected);
    for (uint64_t step = 0; step <= JOB_STEPS; step++) {
        job_live(&job, step < JOB_STEPS ? UINT64_C(1) << step : UINT64_MAX, got);
        for (int s = 0; s < JOB_STEPS; s++)
            CHECK(got[s] == expected[s]);
    }
    OK(job_create(&job)); /* it was as it was meant to be */
    for (uint64_t step = 0; step < 12; step++)
        job_step(&job, step, job_noise(&job, step));
    OK(weft_compressed_average_get_stats(job.average, &stats));
    CHECK(stats.phases == 1 && stats.ended_early == 1 && stats.compressed_steps == 4);
    OK(weft_compressed_average_destroy(job.average));
    return WEFT_OK;
}

#endif
