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
    int status = weft__compressed_average_check(who, compressed);
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
    const char *algo = own->gradiveq.algo;
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
        own->gradiveq.algo = own->algo;
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
    int status =
        weft_sized_read("", "", compressed->quantiser, &own->quantiser, sizeof own->quantiser);
    if (!status)
        status =
            weft_sized_read("", "", compressed->gradiveq, &own->gradiveq, sizeof own->gradiveq);
    if (!status)
        status =
            weft_sized_read("", "", compressed->powersgd, &own->powersgd, sizeof own->powersgd);
    own->config.quantiser = &own->quantiser;
    own->config.gradiveq = &own->gradiveq;
    own->config.powersgd = &own->powersgd;
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

size_t weft__gradients_compressed_settings(const struct weft_gradients *g,
                                           const struct weft_gradients_state *state,
                                           struct weft__setting settings[])
{
    const struct weft__gradients_compressed_config *own = g->compressed;
    const struct weft_compressed_average_config *config = &own->config;
    const struct weft_quantiser *quantiser = &own->quantiser;
    const struct weft_gradiveq_config *gradiveq = &own->gradiveq;
    const struct weft_powersgd_config *powersgd = &own->powersgd;
    const double numbers[] = {(double)config->method,
                              (double)config->residual,
                              (double)config->nan,
                              (double)config->qsgd_way,
                              (double)quantiser->bits,
                              (double)quantiser->bucket,
                              (double)quantiser->norm,
                              (double)quantiser->seed,
                              (double)powersgd->rank,
                              (double)powersgd->warmup_steps,
                              (double)powersgd->cold_start,
                              (double)powersgd->seed,
                              powersgd->least_ratio,
                              gradiveq->loss,
                              (double)gradiveq->slice_factor,
                              (double)gradiveq->slice,
                              (double)gradiveq->order,
                              (double)gradiveq->reuse,
                              (double)gradiveq->warmup_steps,
                              (double)gradiveq->sample_steps,
                              (double)gradiveq->sample_bits,
                              (double)gradiveq->compressed_steps,
                              gradiveq->loss_bound,
                              (double)gradiveq->uncompressed,
                              (double)gradiveq->dense_layers,
                              (double)gradiveq->memory_bytes};
    settings[0] = weft__setting_reals("the numbers of config->compressed (method, residual, nan "
                                      "...)",
                                      numbers, sizeof numbers / sizeof *numbers);
    settings[1] = weft__setting_string("config->compressed->gradiveq->algo", own->algo);
    settings[2] = weft__setting_count("config->compressed->shapes", shapes_number(g));
    settings[3] = weft__setting_count("config->state->words and numbers",
                                      weft__gradients_compressed_number(state));
    settings[3].abstains = state->failed != 0;
    return 4;
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
