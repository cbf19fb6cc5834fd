/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ: samples, means, and the components that this rank finds.
 *
 * Samples and means are of sums, which are the same on all ranks; what is made of them here in one
 * order, in f32, is the same too. All ranks keep all samples, so that each can give the state.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedules/objects/compressed_average/gradiveq.h"

/* ---- groups ---- */

static int out_of_memory(const struct weft_compressed_average *average, const char *what,
                         size_t count)
{
    return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %s of %zu", average->who, what,
                          count);
}

static size_t list_groups(const struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    size_t g = 0, floats = 0;
    for (size_t t = 0; t < average->model.tensor_count; t++) {
        const struct weft__gradiveq_slices *cut = &own->slices[t];
        for (size_t i = 0; i < cut->groups; i++) {
            struct weft__gradiveq_group *group = &own->groups[g++];
            size_t at = i * cut->reuse * cut->slice, left = average->model.tensors[t].count - at;
            group->tensor = t;
            group->offset = average->offsets[t] + at;
            group->count = left / cut->slice < cut->reuse ? left : cut->reuse * cut->slice;
            group->slice = cut->slice;
            group->first = left < cut->slice ? left : cut->slice;
            group->samples = floats;
            floats += (size_t)average->gradiveq.sample_steps * cut->slice;
        }
    }
    return floats;
}

int weft__gradiveq_groups(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    size_t tensors = average->model.tensor_count, bytes = 0;
    own->slices = weft_memory_alloc(tensors + 1, sizeof *own->slices);
    if (!own->slices)
        return out_of_memory(average, "a list of tensors", tensors);
    weft__gradiveq_slice(&average->gradiveq, average->shapes, average->model.tensors, tensors,
                         own->slices);
    for (size_t t = 0; t < tensors; t++) {
        size_t these = weft__gradiveq_bytes(&average->gradiveq, &own->slices[t]);
        bytes = these > SIZE_MAX - bytes ? SIZE_MAX : bytes + these;
        own->group_count += own->slices[t].groups;
    }
    if (bytes == SIZE_MAX)
        return weft_error_set(WEFT_ERR_MEMORY,
                              "%s: samples and projections would take more than can be: "
                              "config->gradiveq->sample_steps is %llu",
                              average->who, (unsigned long long)average->gradiveq.sample_steps);
    own->groups = weft_memory_alloc(own->group_count + 1, sizeof *own->groups);
    own->order = weft_memory_alloc(own->group_count + 1, sizeof *own->order);
    own->agreed = weft_memory_alloc(2 * own->group_count + 1, sizeof *own->agreed);
    if (!own->groups || !own->order || !own->agreed)
        return out_of_memory(average, "a list of projections", own->group_count);
    size_t floats = list_groups(average);
    own->samples = weft_memory_alloc(floats + 1, sizeof *own->samples);
    if (!own->samples)
        return out_of_memory(average, "samples", floats);
    own->mean =
        weft_context_memory_alloc(average->context, average->model.count + 1, sizeof *own->mean);
    return own->mean ? WEFT_OK : out_of_memory(average, "a mean", average->model.count);
}

/* ---- owners ---- */

/* What finding a group's components takes, about: K L min(K, L). */
static double work_of(const struct weft__gradiveq_group *group, uint64_t samples)
{
    double k = (double)group->slice, l = (double)samples;
    return k * l * (k < l ? k : l);
}

struct ranked {
    double work;
    size_t group;
};

static int compare_work(const void *one, const void *other)
{
    const struct ranked *a = one, *b = other;
    if (a->work != b->work)
        return a->work > b->work ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

static int compare_owners(const void *one, const void *other)
{
    const struct ranked *a = one, *b = other;
    if (a->work != b->work) /* the owner's number */
        return a->work < b->work ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

/* The largest first, each to the rank that has least so far. */
int weft__gradiveq_give_out(struct weft_compressed_average *average, int ranks)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    struct ranked *ranked = weft_memory_alloc(own->group_count + 1, sizeof *ranked);
    double *load = weft_memory_alloc((size_t)ranks, sizeof *load);
    int status = ranked && load
                     ? WEFT_OK
                     : out_of_memory(average, "who finds which projection, ranks", (size_t)ranks);
    for (size_t g = 0; !status && g < own->group_count; g++)
        ranked[g] = (struct ranked){work_of(&own->groups[g], average->gradiveq.sample_steps), g};
    if (!status)
        qsort(ranked, own->group_count, sizeof *ranked, compare_work);
    for (size_t i = 0; !status && i < own->group_count; i++) {
        int least = 0;
        for (int r = 1; r < ranks; r++)
            least = load[r] < load[least] ? r : least;
        load[least] += ranked[i].work;
        own->groups[ranked[i].group].owner = least;
        ranked[i].work = least;
    }
    if (!status)
        qsort(ranked, own->group_count, sizeof *ranked, compare_owners);
    for (size_t i = 0; !status && i < own->group_count; i++)
        own->order[i] = ranked[i].group;
    weft_memory_free(load);
    weft_memory_free(ranked);
    return status;
}

/* ---- samples ---- */

/* Groups of a tensor lie one behind the other, and fill it. */
static int is_projected(const struct weft__gradiveq *own, size_t tensor)
{
    return own->slices[tensor].slice != 0;
}

int weft__gradiveq_is_finite(const struct weft_compressed_average *average)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    for (size_t t = 0; t < average->model.tensor_count; t++)
        if (is_projected(own, t) && weft__count_bad(WEFT_F32, average->sum + average->offsets[t],
                                                    average->model.tensors[t].count))
            return 0;
    return 1;
}

void weft__gradiveq_take(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    const uint64_t number = own->phase.samples;
    /* Shares of what the mean will be if no sample is missing: sums of sums might overflow. */
    const float share = 1 / (float)average->gradiveq.sample_steps;
    for (size_t g = 0; g < own->group_count; g++) {
        const struct weft__gradiveq_group *group = &own->groups[g];
        const float *sum = average->sum + group->offset;
        float *sample = own->samples + group->samples + (size_t)number * group->slice;
        float *mean = own->mean + group->offset;
        memcpy(sample, sum, group->first * sizeof *sum);
        memset(sample + group->first, 0, (group->slice - group->first) * sizeof *sample);
        for (size_t i = 0; i < group->count; i++)
            mean[i] = (number ? mean[i] : 0) + sum[i] * share;
    }
}

void weft__gradiveq_settle_means(struct weft_compressed_average *average, uint64_t samples)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    const float scale = (float)average->gradiveq.sample_steps / (float)samples;
    for (size_t g = 0; g < own->group_count; g++) {
        float *mean = own->mean + own->groups[g].offset;
        for (size_t i = 0; i < own->groups[g].count; i++) /* rounding may lead beyond the largest */
            mean[i] = fminf(fmaxf(mean[i] * scale, -FLT_MAX), FLT_MAX);
    }
}

/* ---- components ---- */

struct work {
    float *mean, *basis;
    double *variances;
};

/* The share of the variance that all but the first components have. */
static double loss_of(const double *variances, size_t count, size_t components)
{
    double all = 0, rest = 0;
    for (size_t i = count; i > 0; i--) {
        all += variances[i - 1];
        if (i == components + 1)
            rest = all;
    }
    return all > 0 ? rest / all : 0;
}

static int find_one(struct weft_compressed_average *average, size_t g, uint64_t samples,
                    const struct work *work)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    const struct weft__gradiveq_group *group = &own->groups[g];
    struct weft_pca_config config;
    size_t components = 0;
    size_t most = group->slice < samples ? group->slice : (size_t)samples;
    weft_pca_config_init(&config);
    config.slice = group->slice;
    config.samples = (size_t)samples;
    config.loss = average->gradiveq.loss;
    float *first = own->samples + group->samples;
    int status = weft_pca(&config, first, work->mean, work->basis, &components, work->variances);
    if (status)
        return status;
    own->agreed[2 * g] = (double)components;
    own->agreed[2 * g + 1] = loss_of(work->variances, most, components);
    memcpy(first, work->basis, group->slice * components * sizeof *first); /* d < samples */
    return WEFT_OK;
}

int weft__gradiveq_find(struct weft_compressed_average *average, uint64_t samples, uint64_t until)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    const int rank = weft_context_rank(average->context);
    uint64_t began = weft_context_now(average->context);
    struct work work = {0};
    size_t slice = 0;
    int status = WEFT_OK;
    for (size_t i = own->found; i < own->group_count; i++) {
        const struct weft__gradiveq_group *group = &own->groups[own->order[i]];
        if (group->owner == rank && group->slice > slice)
            slice = group->slice;
    }
    if (slice) {
        size_t most = slice < samples ? slice : (size_t)samples;
        work.mean = weft_memory_alloc(slice, sizeof *work.mean);
        work.basis = weft_memory_alloc(slice * most, sizeof *work.basis);
        work.variances = weft_memory_alloc(most, sizeof *work.variances);
        if (!work.mean || !work.basis || !work.variances)
            status = out_of_memory(average, "components of slices", slice);
    }
    while (!status && own->found < own->group_count) {
        size_t g = own->order[own->found];
        if (own->groups[g].owner == rank)
            status = find_one(average, g, samples, &work);
        own->found += status == WEFT_OK;
        if (!status && own->found < own->group_count && until &&
            weft_context_now(average->context) >= until)
            status = WEFT_IN_PROGRESS;
    }
    weft_memory_free(work.variances);
    weft_memory_free(work.basis);
    weft_memory_free(work.mean);
    average->stats.pca_ns += weft_context_now(average->context) - began;
    return status;
}
