/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ: the method, whose parts are in the other files of that name.
 *
 * Source: Yu, Lin, Narra et al., "GradiVeQ: Vector Quantization for Bandwidth-Efficient Gradient
 * Aggregation in Distributed CNN Training" (NeurIPS 2018), sections 2 and 3.
 *
 * What the paper leaves open: a group whose samples have no variance (d = 0: they are all alike, or
 * zeros) is sent as it is, and not taken for its mean, as what begins to flow later would be lost;
 * so is one whose components are no fewer than its elements.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/compressed_average/gradiveq.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

#define LOSS 0.01 /* section 4, as the steps */
enum { WARMUP_STEPS = 2500, SAMPLE_STEPS = 100, COMPRESSED_STEPS = 400 };

/* ---- settings ---- */

static int check_algo(const char *who, const char *algo)
{
    const struct weft_template *template = weft_template_find("projected-allreduce");
    char names[128] = "";
    if (!algo)
        return WEFT_OK;
    for (size_t i = 0; template && i < template->algorithm_count; i++) {
        size_t length = strlen(names);
        if (!strcmp(algo, template->algorithms[i].name))
            return WEFT_OK;
        snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "",
                 template->algorithms[i].name);
    }
    return REFUSE("%s: config->gradiveq->algo is \"%s\", expected one of %s", who, algo, names);
}

/* Choices have been looked at. */
static int check_numbers(const char *who, const struct weft_gradiveq_config *config)
{
    if (!(config->loss > 0 && config->loss < 1) && config->loss != WEFT_PCA_EXACT)
        return REFUSE("%s: config->gradiveq->loss is %g, expected more than 0 and less than 1, or "
                      "WEFT_PCA_EXACT",
                      who, config->loss);
    if (config->slice && config->slice_factor)
        return REFUSE("%s: config->gradiveq->slice is %zu, expected 0 with slice_factor %zu", who,
                      config->slice, config->slice_factor);
    if (config->slice == 1)
        return REFUSE("%s: config->gradiveq->slice is 1, expected 0 or at least 2", who);
    if (config->sample_steps < 2)
        return REFUSE("%s: config->gradiveq->sample_steps is 1, expected 0 or at least 2", who);
    const int bits = config->sample_bits;
    if (bits != 0 && bits != 2 && bits != 4 && bits != 8)
        return REFUSE("%s: config->gradiveq->sample_bits is %d, expected 0, 2, 4 or 8", who, bits);
    if (bits && config->uncompressed == WEFT_UNCOMPRESSED_DENSE)
        return REFUSE("%s: config->gradiveq->sample_bits is %d, expected 0 where uncompressed is "
                      "WEFT_UNCOMPRESSED_DENSE",
                      who, bits);
    if (!(config->loss_bound >= 0) || isinf(config->loss_bound))
        return REFUSE("%s: config->gradiveq->loss_bound is %g, expected 0 (none) or more", who,
                      config->loss_bound);
    return WEFT_OK;
}

static int check(struct weft_compressed_average *average)
{
    struct weft_gradiveq_config *config = &average->gradiveq;
    if (config->loss == 0)
        config->loss = LOSS;
    if (!config->warmup_steps)
        config->warmup_steps = WARMUP_STEPS;
    if (!config->sample_steps)
        config->sample_steps = SAMPLE_STEPS;
    if (!config->compressed_steps)
        config->compressed_steps = COMPRESSED_STEPS;
    int status = check_numbers(average->who, config);
    return status ? status : check_algo(average->who, config->algo);
}

/* What they mean: slices say how memory, factors and dense layers went into them. */
static size_t settings(const struct weft_compressed_average *average,
                       struct weft__setting settings[])
{
    const struct weft_gradiveq_config *config = &average->gradiveq;
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    const double losses[] = {config->loss, config->loss_bound};
    const int dense = config->uncompressed == WEFT_UNCOMPRESSED_DENSE;
    const int whole = config->order == WEFT_SLICES_OF_FILTERS;
    size_t count = 0;
    settings[count++] = weft__setting_reals("config->gradiveq->loss and loss_bound", losses, 2);
    settings[count++] = weft__setting_word("config->gradiveq->order", (int)config->order,
                                           whole ? "of filters" : "across filters");
    settings[count++] = weft__setting_counts(
        "GradiVeQ's slices (a tensor: K, how many, how many share a projection, projections)",
        own ? own->slices : NULL, own ? 4 * average->model.tensor_count : 0, sizeof(size_t));
    settings[count++] = weft__setting_count("config->gradiveq->warmup_steps", config->warmup_steps);
    settings[count++] = weft__setting_count("config->gradiveq->sample_steps", config->sample_steps);
    settings[count++] =
        weft__setting_count("config->gradiveq->sample_bits", (uint64_t)config->sample_bits);
    settings[count++] =
        weft__setting_count("config->gradiveq->compressed_steps", config->compressed_steps);
    settings[count++] = weft__setting_word("config->gradiveq->uncompressed",
                                           (int)config->uncompressed, dense ? "dense" : "qsgd");
    settings[count++] =
        weft__setting_string("config->gradiveq->algo", own && own->algo[0] ? own->algo : NULL);
    return count + (dense ? 0 : weft__sum_settings(average, settings + count));
}

/* ---- life ---- */

static int refuse_without_lapack(const struct weft_compressed_average *average)
{
    char text[256];
    if (weft_pca_available())
        return WEFT_OK;
    snprintf(text, sizeof text, "%s", weft_error_text());
    return weft_error_set(WEFT_ERR_UNSUPPORTED,
                          "%s: config->method is WEFT_COMPRESSED_GRADIVEQ: %s", average->who, text);
}

/* Sums of uncompressed steps, and of samples if these have bits of their own. */
static int make_sums(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    const int quantised = average->gradiveq.uncompressed == WEFT_UNCOMPRESSED_QSGD;
    struct weft_quantiser quantiser = average->quantiser;
    const size_t count = average->model.count;
    int status = weft__sum_make(average, &own->sum, quantised ? &quantiser : NULL, count);
    if (average->gradiveq.sample_bits)
        quantiser.bits = average->gradiveq.sample_bits;
    if (!status && quantised && quantiser.bits != average->quantiser.bits)
        status = weft__sum_make(average, &own->sampled, &quantiser, count);
    return status;
}

static int create(struct weft_compressed_average *average)
{
    int status = refuse_without_lapack(average);
    if (status)
        return status;
    struct weft__gradiveq *own = weft_memory_alloc(1, sizeof *own);
    if (!own)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", average->who);
    average->own = own;
    if (average->gradiveq.algo)
        snprintf(own->algo, sizeof own->algo, "%s", average->gradiveq.algo);
    average->gradiveq.algo = NULL;
    own->phase = own->next = weft__gradiveq_begin(&average->gradiveq, average->next);
    status = weft__gradiveq_groups(average);
    if (!status)
        status = weft__gradiveq_give_out(average, average->ranks);
    if (!status)
        status = make_sums(average);
    return status ? status : weft__gradiveq_prepare(average);
}

static void destroy(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    weft__gradiveq_free_run(average);
    weft__compressed_run_free(average, &own->sharing);
    weft__compressed_run_free(average, &own->counting);
    weft__sum_free(average, &own->sampled);
    weft__sum_free(average, &own->sum);
    weft_context_memory_free(average->context, own->mean);
    weft_memory_free(own->samples);
    weft_memory_free(own->agreed);
    weft_memory_free(own->order);
    weft_memory_free(own->groups);
    weft_memory_free(own->slices);
    weft_memory_free(own);
}

/* A checkpoint may be in the middle of a compressed phase. */
static int ready(struct weft_compressed_average *average)
{
    return weft__gradiveq_of(average)->phase.phase == WEFT_COMPRESSED_COMPRESSED
               ? weft__gradiveq_make_run(average)
               : WEFT_OK;
}

static void arrange(const struct weft_compressed_average *average, size_t tensor, float *values,
                    float *scratch)
{
    if (weft__gradiveq_of(average)->slices[tensor].slice)
        weft__gradiveq_permute(average->gradiveq.order, &average->shapes[tensor], values, scratch);
}

static void restore(const struct weft_compressed_average *average, size_t tensor, float *values,
                    float *scratch)
{
    if (weft__gradiveq_of(average)->slices[tensor].slice)
        weft__gradiveq_permute_back(average->gradiveq.order, &average->shapes[tensor], values,
                                    scratch);
}

/* ---- steps ---- */

static int is_compressed(const struct weft__gradiveq_phase *phase)
{
    return phase->phase == WEFT_COMPRESSED_COMPRESSED;
}

/* That of an uncompressed step. */
static struct weft__sum *sum_of(struct weft__gradiveq *own)
{
    return own->phase.phase == WEFT_COMPRESSED_SAMPLING && own->sampled.run.run ? &own->sampled
                                                                                : &own->sum;
}

static int post(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    if (!is_compressed(&own->phase))
        return weft__sum_start(average, sum_of(own));
    average->values[average->model.count] = (float)average->vote;
    memset(own->squares, 0, own->square_count * sizeof *own->squares);
    return weft__compressed_run_start(average, &own->run);
}

static int wait(struct weft_compressed_average *average, uint64_t until)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    struct weft__gradiveq_sum sum = {.finite = 1, .ranks = average->ranks};
    int status = is_compressed(&own->phase) ? weft__compressed_run_wait(average, &own->run, until)
                                            : weft__sum_wait(average, sum_of(own), until);
    if (status)
        return status;
    average->step.phase = own->phase.phase;
    own->vote = 0;
    if (is_compressed(&own->phase)) {
        weft__gradiveq_end(average);
        sum.votes = (int)lrintf(average->sum[average->model.count]);
        average->step.votes = sum.votes;
    } else if (own->phase.phase == WEFT_COMPRESSED_SAMPLING) {
        sum.finite = weft__gradiveq_is_finite(average);
        if (sum.finite)
            weft__gradiveq_take(average);
    }
    own->finite = sum.finite;
    own->next = weft__gradiveq_after(&average->gradiveq, &own->phase, &sum, &own->early);
    return WEFT_OK;
}

static int advance(struct weft_compressed_average *average, uint64_t until)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    return is_compressed(&own->next) && !is_compressed(&own->phase)
               ? weft__gradiveq_make(average, until)
               : WEFT_OK;
}

static void keep(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    average->stats.phases += is_compressed(&own->next) && !is_compressed(&own->phase);
    average->stats.ended_early += own->early != 0;
    average->stats.bad_samples += !own->finite;
    if (is_compressed(&own->phase) && !is_compressed(&own->next))
        weft__gradiveq_free_run(average);
    average->vote = is_compressed(&own->next) && own->vote;
    own->phase = own->next;
}

/* Of samples a part has been overwritten, or their sums go on already. */
static void drop(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    own->lost = own->phase.phase == WEFT_COMPRESSED_SAMPLING;
}

static weft_compressed_phase_t phase(const struct weft_compressed_average *average)
{
    return weft__gradiveq_of(average)->phase.phase;
}

static int tensor(const struct weft_compressed_average *average, size_t tensor,
                  struct weft_gradiveq_tensor *info)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    const struct weft__gradiveq_slices *slices = &own->slices[tensor];
    info->slice = slices->slice;
    info->slices = slices->slices;
    info->reuse = slices->reuse;
    for (size_t g = own->group_count; g > 0; g--)
        if (own->groups[g - 1].tensor == tensor) {
            info->components = own->groups[g - 1].components;
            info->loss = info->components ? own->groups[g - 1].loss : -1;
        }
    return WEFT_OK;
}

const struct weft__compression weft__compression_gradiveq = {
    .name = "gradiveq",
    .extra = 1,
    .check = check,
    .settings = settings,
    .create = create,
    .destroy = destroy,
    .ready = ready,
    .arrange = arrange,
    .restore = restore,
    .post = post,
    .wait = wait,
    .advance = advance,
    .keep = keep,
    .drop = drop,
    .phase = phase,
    .state_common = WEFT__GRADIVEQ_COMMON_WORDS,
    .state_each = WEFT__GRADIVEQ_TENSOR_WORDS,
    .state_size = weft__gradiveq_state_size,
    .save = weft__gradiveq_save,
    .load = weft__gradiveq_load,
    .renew = weft__gradiveq_renew,
    .tensor = tensor,
};
