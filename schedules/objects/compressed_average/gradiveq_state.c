/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ: what goes into a checkpoint.
 *
 *     words      phase, steps left, samples, L_t, order; then of each tensor its numbers, K, reuse
 *     numbers    of each group of the tensor d and its loss; then of each
 *                sampling, if there are samples: they are, and the sums of which means are made
 *                compressed: the basis, and the means
 *
 * What cannot be gone on from begins with new samples: other ranks, other slices or another order
 * of their elements, another L_t, and what has failed in the middle of a sample.
 */
#include <math.h>
#include <string.h>

#include "schedules/objects/compressed_average/gradiveq.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

enum { PHASE, LEFT, SAMPLES, SAMPLE_STEPS, ORDER, COMMON_WORDS };
enum { NUMBERS, SLICE, REUSE, TENSOR_WORDS };
enum { COMPONENTS, LOSS, GROUP_NUMBERS };

_Static_assert((int)COMMON_WORDS == (int)WEFT__GRADIVEQ_COMMON_WORDS, "words of the phase");
_Static_assert((int)TENSOR_WORDS == (int)WEFT__GRADIVEQ_TENSOR_WORDS, "words of a tensor");

/* ---- sizes ---- */

/* Of a group, besides d, its loss and its mean. */
static size_t own_numbers(const struct weft__gradiveq_group *group,
                          const struct weft__gradiveq_phase *phase)
{
    if (phase->phase == WEFT_COMPRESSED_SAMPLING)
        return (size_t)phase->samples * group->slice;
    return weft__gradiveq_compresses(group) ? group->slice * group->components : 0;
}

/* Whether there are samples or bases, and means. */
static int has_more(const struct weft__gradiveq_phase *phase)
{
    return phase->phase == WEFT_COMPRESSED_COMPRESSED || phase->samples;
}

/* The groups of a tensor: first .. end - 1. */
struct groups {
    size_t first, end;
};

static struct groups next_groups(const struct weft__gradiveq *own, size_t tensor, size_t first)
{
    return (struct groups){first, first + own->slices[tensor].groups};
}

static size_t numbers_of(const struct weft__gradiveq *own, const struct groups *groups,
                         const struct weft__gradiveq_phase *phase)
{
    size_t numbers = 0;
    for (size_t g = groups->first; g < groups->end; g++) {
        numbers += GROUP_NUMBERS;
        if (has_more(phase))
            numbers += own_numbers(&own->groups[g], phase) + own->groups[g].count;
    }
    return numbers;
}

/* The phase that is told: sampling anew if what there was is lost. */
static struct weft__gradiveq_phase told(const struct weft_compressed_average *average)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    return own->lost ? weft__gradiveq_begin(&average->gradiveq, UINT64_MAX) : own->phase;
}

size_t weft__gradiveq_state_size(const struct weft_compressed_average *average)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    const struct weft__gradiveq_phase phase = told(average);
    const struct groups all = {0, own->group_count};
    return numbers_of(own, &all, &phase);
}

/* ---- out ---- */

/* Of a group what the phase has, to memory or from it; returns how many numbers. */
static size_t move(const struct weft__gradiveq *own, const struct weft__gradiveq_group *group,
                   float *out, const float *in)
{
    const size_t count = own_numbers(group, &own->phase);
    float *mine = own->phase.phase == WEFT_COMPRESSED_SAMPLING ? own->samples + group->samples
                                                               : own->basis + group->basis;
    float *mean = own->mean + group->offset;
    if (count)
        memcpy(out ? out : mine, out ? mine : in, count * sizeof *mine);
    memcpy(out ? out + count : mean, out ? mean : in + count, group->count * sizeof *mean);
    return count + group->count;
}

static float *save_group(const struct weft__gradiveq *own, size_t g,
                         const struct weft__gradiveq_phase *phase, float *numbers)
{
    const struct weft__gradiveq_group *group = &own->groups[g];
    numbers[COMPONENTS] = own->lost ? 0 : (float)group->components;
    numbers[LOSS] = own->lost ? 0 : (float)group->loss;
    numbers += GROUP_NUMBERS;
    return has_more(phase) ? numbers + move(own, group, numbers, NULL) : numbers;
}

void weft__gradiveq_save(const struct weft_compressed_average *average, uint64_t *words,
                         float *numbers)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    const struct weft__gradiveq_phase phase = told(average);
    size_t first = 0;
    words[PHASE] = (uint64_t)phase.phase;
    words[LEFT] = phase.left;
    words[SAMPLES] = phase.samples;
    words[SAMPLE_STEPS] = average->gradiveq.sample_steps;
    words[ORDER] = (uint64_t)average->gradiveq.order;
    words += COMMON_WORDS;
    for (size_t t = 0; t < average->model.tensor_count; t++, words += TENSOR_WORDS) {
        const struct groups groups = next_groups(own, t, first);
        words[NUMBERS] = numbers_of(own, &groups, &phase);
        words[SLICE] = own->slices[t].slice;
        words[REUSE] = own->slices[t].reuse;
        for (size_t g = groups.first; g < groups.end; g++)
            numbers = save_group(own, g, &phase, numbers);
        first = groups.end;
    }
}

/* ---- going on ---- */

static int refuse(const struct weft_compressed_average *average, size_t tensor)
{
    return REFUSE("%s: config->state is no state of GradiVeQ: tensor %zu", average->who, tensor);
}

static void begin(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    own->phase = own->next = weft__gradiveq_begin(&average->gradiveq, average->next);
    average->vote = 0;
    for (size_t g = 0; g < own->group_count; g++) {
        own->groups[g].components = 0;
        own->groups[g].loss = 0;
    }
}

/* 1: the slices are those of the object, and the phase can be one of its. */
static int goes_on(const struct weft_compressed_average *average, int ranks, const uint64_t *words,
                   const struct weft__gradiveq_phase *phase)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    int same = ranks == average->ranks && words[SAMPLE_STEPS] == average->gradiveq.sample_steps &&
               words[ORDER] == (uint64_t)average->gradiveq.order &&
               weft__gradiveq_possible(&average->gradiveq, phase);
    words += COMMON_WORDS;
    for (size_t t = 0; same && t < average->model.tensor_count; t++, words += TENSOR_WORDS)
        same = words[SLICE] == own->slices[t].slice && words[REUSE] == own->slices[t].reuse;
    return same;
}

/* d and losses, by which it is known how many numbers each group has. */
static int load_counts(struct weft_compressed_average *average, const uint64_t *words,
                       const float *numbers)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    size_t first = 0;
    words += COMMON_WORDS;
    for (size_t t = 0; t < average->model.tensor_count; t++, words += TENSOR_WORDS) {
        const struct groups groups = next_groups(own, t, first);
        const float *number = numbers, *end = numbers + words[NUMBERS];
        for (size_t g = groups.first; g < groups.end; g++) {
            struct weft__gradiveq_group *group = &own->groups[g];
            if (end - number < GROUP_NUMBERS || !(number[COMPONENTS] >= 0) ||
                number[COMPONENTS] > (float)group->slice || !(number[LOSS] >= 0) ||
                number[LOSS] > 1 || number[COMPONENTS] != floorf(number[COMPONENTS]))
                return refuse(average, t);
            group->components = (size_t)number[COMPONENTS];
            group->loss = (double)number[LOSS];
            number += GROUP_NUMBERS;
            if (has_more(&own->phase) &&
                (size_t)(end - number) < own_numbers(group, &own->phase) + group->count)
                return refuse(average, t);
            if (has_more(&own->phase))
                number += own_numbers(group, &own->phase) + group->count;
        }
        if (number != end || weft__count_bad(WEFT_F32, numbers, words[NUMBERS]))
            return refuse(average, t);
        numbers = end;
        first = groups.end;
    }
    return WEFT_OK;
}

/* The run of a compressed phase is made when all ranks are there. */
static int load_numbers(struct weft_compressed_average *average, const float *numbers)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    if (!has_more(&own->phase))
        return WEFT_OK;
    if (own->phase.phase == WEFT_COMPRESSED_COMPRESSED) {
        own->basis_count = weft__gradiveq_lay_out(own);
        own->basis =
            weft_context_memory_alloc(average->context, own->basis_count + 1, sizeof(float));
        if (!own->basis)
            return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for bases of %zu",
                                  average->who, own->basis_count);
    }
    for (size_t g = 0; g < own->group_count; g++) {
        numbers += GROUP_NUMBERS;
        numbers += move(own, &own->groups[g], NULL, numbers);
    }
    return WEFT_OK;
}

int weft__gradiveq_load(struct weft_compressed_average *average, int ranks, const uint64_t *words,
                        size_t word_count, const float *numbers, size_t number_count)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    (void)word_count; /* they have been checked */
    (void)number_count;
    if (words[PHASE] > WEFT_COMPRESSED_COMPRESSED)
        return REFUSE("%s: config->state->words say phase %llu, expected at most %d", average->who,
                      (unsigned long long)words[PHASE], WEFT_COMPRESSED_COMPRESSED);
    const struct weft__gradiveq_phase phase = {.phase = (weft_compressed_phase_t)words[PHASE],
                                               .left = words[LEFT],
                                               .samples = words[SAMPLES]};
    if (!goes_on(average, ranks, words, &phase)) {
        begin(average);
        return WEFT_OK;
    }
    own->phase = own->next = phase;
    int status = load_counts(average, words, numbers);
    return status ? status : load_numbers(average, numbers);
}

void weft__gradiveq_renew(struct weft_compressed_average *average)
{
    weft__gradiveq_free_run(average);
    begin(average);
}
