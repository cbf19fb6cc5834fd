/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups that are summed in fewer bits: how. */
#include <math.h>
#include <string.h>

#include "schedules/objects/gradients/compressed.h"

int weft__gradients_compressed_check(const char *who, const struct weft_gradients_config *config,
                                     const struct weft_compressed_average_config *compressed)
{
    const struct weft__gradients_repeated repeated = {
        "compressed",
        compressed->dtype,
        compressed->tensors,
        compressed->tensor_count,
        compressed->sum           ? "sum"
        : compressed->deadline_ns ? "deadline_ns"
        : compressed->meet_ns     ? "meet_ns"
        : compressed->leave_ns    ? "leave_ns"
        : compressed->state       ? "state"
                                  : NULL,
    };
    int status = weft__compressed_average_check(who, compressed, NULL);
    if (!status && config->tensors)
        status = weft__compressed_average_check_shapes(who, config->tensors, config->tensor_count,
                                                       compressed->shapes);
    return status ? weft__gradients_retell(status, who, "config", "compressed")
                  : weft__gradients_check_repeated(who, &repeated);
}

static int copy_lists(struct weft_gradients *g,
                      const struct weft_compressed_average_config *compressed)
{
    struct weft__gradients_compressed_config *own = g->compressed;
    const size_t count = g->model.tensor_count;
    const char *algo = own->choices.gradiveq.algo;
    if (compressed->shapes) {
        own->shapes = weft_memory_alloc(count + 1, sizeof *own->shapes);
        if (!own->shapes)
            return weft__gradients_no_memory("shapes", count);
        memcpy(own->shapes, compressed->shapes, count * sizeof *own->shapes);
    }
    if (algo) {
        own->algo = weft_memory_alloc(strlen(algo) + 1, 1);
        if (!own->algo)
            return weft__gradients_no_memory("a name", strlen(algo));
        memcpy(own->algo, algo, strlen(algo));
        own->choices.gradiveq.algo = own->algo;
    }
    return WEFT_OK;
}

int weft__gradients_compressed_copy(struct weft_gradients *g,
                                    const struct weft_compressed_average_config *compressed)
{
    struct weft__gradients_compressed_config *own = weft_memory_alloc(1, sizeof *own);
    if (!own)
        return weft__gradients_no_memory("a configuration", 1);
    g->compressed = own;
    own->config = *compressed;
    own->config.shapes = NULL;
    int status = weft__compressed_average_check("", compressed, &own->choices);
    own->config.quantiser = &own->choices.quantiser;
    own->config.gradiveq = &own->choices.gradiveq;
    own->config.powersgd = &own->choices.powersgd;
    return status ? status : copy_lists(g, compressed);
}

void weft__gradients_compressed_free(struct weft_gradients *g)
{
    if (!g->compressed)
        return;
    weft_memory_free(g->compressed->algo);
    weft_memory_free(g->compressed->shapes);
    weft_memory_free(g->compressed);
}

uint64_t weft__gradients_compressed_number(const struct weft_gradients_state *state)
{
    uint64_t number = weft__scramble(state->word_count) ^ state->number_count;
    for (size_t i = 0; i < state->word_count; i++)
        number = weft__scramble(number ^ state->words[i]) + 1;
    for (size_t i = 0; i < state->number_count; i++) {
        uint32_t bits;
        memcpy(&bits, &state->numbers[i], sizeof bits);
        number = weft__scramble(number ^ bits) + 1;
    }
    return number;
}

static uint64_t shapes_number(const struct weft_gradients *g)
{
    const struct weft_tensor_shape *shapes = g->compressed->shapes;
    uint64_t number = 0;
    for (size_t t = 0; shapes && t < g->model.tensor_count; t++) {
        const uint64_t words[] = {(uint64_t)shapes[t].layout, shapes[t].outputs, shapes[t].inputs,
                                  shapes[t].height, shapes[t].width};
        for (size_t i = 0; i < sizeof words / sizeof *words && words[0]; i++)
            number = weft__scramble(number ^ words[i]) + 1;
        number = weft__scramble(number ^ t);
    }
    return number;
}

static struct weft__setting numbers_setting(const char *name, const uint64_t *numbers, size_t count)
{
    return weft__setting_counts(name, numbers, count, sizeof *numbers);
}

static struct weft__setting gradiveq_setting(const struct weft_gradiveq_config *gradiveq)
{
    const uint64_t numbers[] = {gradiveq->slice_factor,
                                gradiveq->slice,
                                (uint64_t)gradiveq->order,
                                gradiveq->reuse,
                                gradiveq->warmup_steps,
                                gradiveq->sample_steps,
                                (uint64_t)gradiveq->sample_bits,
                                gradiveq->compressed_steps,
                                (uint64_t)gradiveq->uncompressed,
                                (uint64_t)gradiveq->dense_layers,
                                gradiveq->memory_bytes};
    return numbers_setting("config->compressed->gradiveq (slices, order, reuse, steps, "
                           "sample_bits, uncompressed, dense_layers, memory_bytes)",
                           numbers, sizeof numbers / sizeof *numbers);
}

static struct weft__setting powersgd_setting(const struct weft_powersgd_config *powersgd)
{
    const uint64_t numbers[] = {powersgd->rank, powersgd->warmup_steps,
                                (uint64_t)powersgd->cold_start, powersgd->seed};
    return numbers_setting("config->compressed->powersgd (rank, warmup_steps, cold_start, seed)",
                           numbers, sizeof numbers / sizeof *numbers);
}

static struct weft__setting quantiser_setting(const struct weft_quantiser *quantiser)
{
    const uint64_t numbers[] = {(uint64_t)quantiser->bits, quantiser->bucket,
                                (uint64_t)quantiser->norm, quantiser->seed};
    return numbers_setting("config->compressed->quantiser (bits, bucket, norm, seed)", numbers,
                           sizeof numbers / sizeof *numbers);
}

size_t weft__gradients_compressed_settings(const struct weft_gradients *g,
                                           const struct weft_gradients_state *state,
                                           struct weft__setting settings[])
{
    static const char *const methods[] = {"gradiveq", "qsgd", "powersgd"};
    const struct weft__gradients_compressed_config *own = g->compressed;
    const struct weft_compressed_average_config *config = &own->config;
    const struct weft__compressed_choices *choices = &own->choices;
    const uint64_t ways[] = {(uint64_t)choices->keeps, (uint64_t)config->nan,
                             (uint64_t)config->qsgd_way};
    const double reals[] = {choices->gradiveq.loss, choices->gradiveq.loss_bound,
                            choices->powersgd.least_ratio};
    size_t count = 0;
    settings[count++] = weft__setting_word("config->compressed->method", (int)config->method,
                                           methods[config->method]);
    settings[count++] =
        numbers_setting("config->compressed (residuals that are kept, nan, qsgd_way)", ways, 3);
    settings[count++] = quantiser_setting(&choices->quantiser);
    settings[count++] = gradiveq_setting(&choices->gradiveq);
    settings[count++] = powersgd_setting(&choices->powersgd);
    settings[count++] = weft__setting_reals("config->compressed (gradiveq->loss and loss_bound, "
                                            "powersgd->least_ratio)",
                                            reals, 3);
    settings[count++] = weft__setting_string("config->compressed->gradiveq->algo", own->algo);
    settings[count++] = weft__setting_count("config->compressed->shapes", shapes_number(g));
    settings[count] = weft__setting_count("config->state->words and numbers",
                                          weft__gradients_compressed_number(state));
    settings[count++].abstains = state->failed != 0;
    return count;
}

void weft__gradients_compressed_cost(const struct weft_gradients *g,
                                     struct weft_merge_point *points, size_t count)
{
    const struct weft__gradients_compressed_config *own = g->compressed;
    const double bits = weft__compressed_average_bits(&own->config, g->model.tensors,
                                                      g->model.tensor_count, own->shapes);
    for (size_t i = 0; i < count && bits < 32; i++)
        points[i].bytes = ceil(points[i].bytes * 32 / bits);
}
