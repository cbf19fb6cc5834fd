/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging of gradients: what can be asked, and checkpoints. */
#include <math.h>
#include <string.h>

#include "schedules/objects/compressed_average/compressed_average.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

/* ---- what all ranks have alike ---- */

#define FORMAT_NOW UINT64_C(0x7765667420434131) /* "weft CA1" */

static uint64_t mix(uint64_t sum, uint64_t word)
{
    return weft__scramble(sum ^ word) + 1;
}

uint64_t weft__compressed_tensors_number(const struct weft_piece *tensors, size_t count)
{
    uint64_t sum = count;
    for (size_t t = 0; t < count; t++)
        sum = mix(sum, tensors[t].count);
    return sum;
}

uint64_t weft__compressed_shapes_number(const struct weft_tensor_shape *shapes, size_t count)
{
    uint64_t sum = count;
    for (size_t t = 0; t < count; t++) {
        const struct weft_tensor_shape *shape = &shapes[t];
        sum = mix(mix(sum, (uint64_t)shape->layout), shape->outputs);
        sum = mix(mix(mix(sum, shape->inputs), shape->height), shape->width);
    }
    return sum;
}

static uint64_t state_number(const struct weft_compressed_average_state *state)
{
    uint64_t sum = mix(state->word_count, state->number_count);
    for (size_t i = 0; i < state->word_count; i++)
        sum = mix(sum, state->words[i]);
    for (size_t i = 0; i < state->number_count; i++) {
        uint32_t bits;
        memcpy(&bits, &state->numbers[i], sizeof bits);
        sum = mix(sum, bits);
    }
    return sum;
}

/* ---- going on from a checkpoint ---- */

/* Words and numbers are there for all tensors, and no more. */
static int check_parts(const struct weft_compressed_average *average,
                       const struct weft_compressed_average_state *state)
{
    const struct weft__compression *method = average->method;
    const size_t tensors = average->model.tensor_count;
    const size_t words = average->own ? method->state_common + tensors * method->state_each : 0;
    size_t numbers = state->number_count;
    if (state->word_count != WEFT__STATE_OWN + words)
        return REFUSE("%s: config->state->word_count is %zu, expected %zu", average->who,
                      state->word_count, WEFT__STATE_OWN + words);
    for (size_t t = 0; t < tensors && words && method->state_each; t++) {
        const uint64_t *each =
            state->words + WEFT__STATE_OWN + method->state_common + t * method->state_each;
        if (each[0] > numbers)
            return REFUSE("%s: config->state->number_count is %zu, expected %llu for tensor %zu, "
                          "of which there are %zu",
                          average->who, state->number_count, (unsigned long long)each[0], t,
                          numbers);
        numbers -= (size_t)each[0];
    }
    if (numbers)
        return REFUSE("%s: config->state->number_count is %zu, expected %zu", average->who,
                      state->number_count, state->number_count - numbers);
    return WEFT_OK;
}

static int check_words(const struct weft_compressed_average *average,
                       const struct weft_compressed_average_state *state)
{
    const uint64_t *words = state->words;
    const char *who = average->who;
    if (state->word_count < WEFT__STATE_OWN || words[WEFT__STATE_FORMAT] != FORMAT_NOW)
        return REFUSE("%s: config->state->words are no state of a compressed average", who);
    if (words[WEFT__STATE_METHOD] != (uint64_t)average->config.method)
        return REFUSE("%s: config->state is of method %llu, expected %d (config->method)", who,
                      (unsigned long long)words[WEFT__STATE_METHOD], (int)average->config.method);
    if (words[WEFT__STATE_TENSORS] !=
        weft__compressed_tensors_number(average->model.tensors, average->model.tensor_count))
        return REFUSE("%s: config->state is of other tensors than config->tensors", who);
    if (words[WEFT__STATE_SHAPES] !=
        weft__compressed_shapes_number(average->shapes, average->model.tensor_count))
        return REFUSE("%s: config->state is of other shapes than config->shapes", who);
    if (words[WEFT__STATE_RANKS] < 1 || words[WEFT__STATE_RANKS] > INT32_MAX)
        return REFUSE("%s: config->state->words say %llu ranks", who,
                      (unsigned long long)words[WEFT__STATE_RANKS]);
    return check_parts(average, state);
}

/* Of a vector of the model; NULL: it is not there. */
static int check_finite(const struct weft_compressed_average *average, const char *name,
                        const float *values)
{
    for (size_t i = 0; values && i < average->model.count; i++)
        if (!isfinite(values[i]))
            return REFUSE("%s: config->state->%s[%zu] is %g, expected a finite number",
                          average->who, name, i, (double)values[i]);
    return WEFT_OK;
}

int weft__compressed_load(struct weft_compressed_average *average,
                          const struct weft_compressed_average_state *state)
{
    int status = check_finite(average, "residual", state->residual);
    if (!status)
        status = check_finite(average, "unsent", state->unsent);
    if (status)
        return status;
    average->state_number = state_number(state);
    if (state->residual && !average->keeps)
        return REFUSE("%s: config->state->residual is given, expected NULL where no residuals are "
                      "kept",
                      average->who);
    if (state->residual)
        memcpy(average->residual, state->residual, average->model.count * sizeof(float));
    average->stats = state->stats;
    average->vote = state->vote;
    if (!state->word_count && !state->number_count)
        return WEFT_OK;
    status = check_words(average, state);
    if (!status && average->own && average->method->load)
        status = average->method->load(
            average, (int)state->words[WEFT__STATE_RANKS], state->words + WEFT__STATE_OWN,
            state->word_count - WEFT__STATE_OWN, state->numbers, state->number_count);
    return status;
}

/* ---- what can be asked ---- */

uint64_t weft_compressed_average_next(const struct weft_compressed_average *average)
{
    return average ? average->next : 0;
}

const char *weft_compressed_phase_name(weft_compressed_phase_t phase)
{
    static const char *const names[] = {"warm-up", "sampling", "compressed"};
    return (unsigned)phase <= WEFT_COMPRESSED_COMPRESSED ? names[phase] : NULL;
}

weft_compressed_phase_t weft_compressed_average_phase(const struct weft_compressed_average *average)
{
    if (!average)
        return WEFT_COMPRESSED_WARMUP;
    return average->own && average->method->phase ? average->method->phase(average)
                                                  : WEFT_COMPRESSED_COMPRESSED;
}

int weft_compressed_average_get_stats(const struct weft_compressed_average *average,
                                      struct weft_compressed_average_stats *stats)
{
    if (!average || !stats)
        return REFUSE("%s: %s is NULL", __func__, average ? "stats" : "average");
    return weft_sized_fill(__func__, "stats", stats, &average->stats, sizeof average->stats);
}

int weft_compressed_average_get_tensor(const struct weft_compressed_average *average, size_t tensor,
                                       struct weft_gradiveq_tensor *info)
{
    struct weft_gradiveq_tensor got = {.struct_size = sizeof got};
    if (!average || !info)
        return REFUSE("%s: %s is NULL", __func__, average ? "info" : "average");
    if (tensor >= average->model.tensor_count)
        return REFUSE("%s: tensor is %zu, expected less than %zu", __func__, tensor,
                      average->model.tensor_count);
    int status = average->own && average->method->tensor
                     ? average->method->tensor(average, tensor, &got)
                     : WEFT_OK;
    return status ? status : weft_sized_fill(__func__, "info", info, &got, sizeof got);
}

static int check_idle(const struct weft_compressed_average *average, const char *who)
{
    return average->stage == WEFT__COMPRESSED_IDLE
               ? WEFT_OK
               : weft_error_set(WEFT_ERR_STATE, "%s: step %llu has not been waited for", who,
                                (unsigned long long)average->next);
}

int weft_compressed_average_residual_norm(const struct weft_compressed_average *average,
                                          double *norm)
{
    if (!average || !norm)
        return REFUSE("%s: %s is NULL", __func__, average ? "norm" : "average");
    int status = check_idle(average, __func__);
    double sum = 0;
    for (size_t i = 0; !status && average->keeps && i < average->model.count; i++)
        sum += (double)average->residual[i] * (double)average->residual[i];
    if (!status)
        *norm = sqrt(sum);
    return status;
}

/* ---- a checkpoint ---- */

static int save(struct weft_compressed_average *average, struct weft_compressed_average_state *now)
{
    const struct weft__compression *method = average->method;
    const size_t words =
        average->own ? method->state_common + average->model.tensor_count * method->state_each : 0;
    const size_t numbers = average->own && method->state_size ? method->state_size(average) : 0;
    /* What an earlier call has given stays where it is until the next step. */
    if (!average->words)
        average->words = weft_memory_alloc(WEFT__STATE_OWN + words, sizeof *average->words);
    if (!average->numbers || numbers != average->number_count) {
        weft_memory_free(average->numbers);
        average->numbers = weft_memory_alloc(numbers + 1, sizeof *average->numbers);
        average->number_count = numbers;
    }
    if (!average->words || !average->numbers)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for a state of %zu numbers",
                              average->who, numbers);
    average->words[WEFT__STATE_FORMAT] = FORMAT_NOW;
    average->words[WEFT__STATE_METHOD] = (uint64_t)average->config.method;
    average->words[WEFT__STATE_RANKS] = (uint64_t)average->ranks;
    average->words[WEFT__STATE_TENSORS] =
        weft__compressed_tensors_number(average->model.tensors, average->model.tensor_count);
    average->words[WEFT__STATE_SHAPES] =
        weft__compressed_shapes_number(average->shapes, average->model.tensor_count);
    if (average->own && method->save)
        method->save(average, average->words + WEFT__STATE_OWN, average->numbers);
    now->words = average->words;
    now->word_count = WEFT__STATE_OWN + words;
    now->numbers = numbers ? average->numbers : NULL;
    now->number_count = numbers;
    return WEFT_OK;
}

int weft_compressed_average_get_state(struct weft_compressed_average *average,
                                      struct weft_compressed_average_state *state)
{
    if (!average || !state)
        return REFUSE("%s: %s is NULL", __func__, average ? "state" : "average");
    average->who = __func__;
    int status = weft_sized_check(__func__, "state", state);
    int failed = weft_object_check(average->object, __func__) != WEFT_OK;
    if (!status && failed)
        weft__compressed_give_up(average);
    if (!status)
        status = check_idle(average, __func__);
    if (status)
        return status;
    struct weft_compressed_average_state now = {.next = average->next,
                                                .residual = average->residual,
                                                .failed = failed,
                                                .vote = average->vote,
                                                .stats = average->stats};
    now.stats.struct_size = sizeof now.stats;
    if (average->dropped && average->keeps) {
        now.residual = average->written ? average->residual : NULL;
        now.unsent = average->written ? average->sent : average->values;
    }
    status = save(average, &now);
    return status ? status : weft_sized_fill(__func__, "state", state, &now, sizeof now);
}
