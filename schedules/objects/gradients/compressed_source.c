/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups that are summed in fewer bits: what new ones go on from, by layers. */
#include "schedules/objects/gradients/compressed.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

size_t weft__gradients_before_layer(const struct weft__gradients_before *before, size_t i)
{
    return before->layers ? before->layers[i] : (size_t)before->words[i];
}

void weft__gradients_source_free(struct weft__gradients_source *source)
{
    weft_memory_free(source->before);
    weft_memory_free(source->of);
}

static int allocate_source(const struct weft_gradients *g, struct weft__gradients_source *source,
                           size_t count)
{
    source->before_count = count;
    source->before = weft_memory_alloc(count + 1, sizeof *source->before);
    source->of = weft_memory_alloc(g->layer_count + 1, sizeof *source->of);
    if (!source->before || !source->of)
        return weft__gradients_no_memory("groups", count);
    for (size_t l = 0; l < g->layer_count; l++)
        source->of[l] = SIZE_MAX;
    return WEFT_OK;
}

static int refuse_words(void)
{
    return REFUSE("making groups of layers: config->state->words are no groups of these layers");
}

/* The layers of number `b`, each of which is in one group alone. */
static int place_layers(const struct weft_gradients *g, struct weft__gradients_source *source,
                        size_t b)
{
    struct weft__gradients_before *before = &source->before[b];
    for (size_t i = 0; i < before->layer_count; i++) {
        const size_t l = weft__gradients_before_layer(before, i);
        if (l >= g->layer_count || source->of[l] != SIZE_MAX)
            return refuse_words();
        source->of[l] = b;
        before->part.tensor_count += g->layers[l].tensor_count;
    }
    return WEFT_OK;
}

/* The words of number `b` are of the tensors, and shapes, of its layers. */
static int check_tensors(const struct weft_gradients *g,
                         const struct weft__gradients_source *source, size_t b)
{
    const struct weft__gradients_before *before = &source->before[b];
    const struct weft_tensor_shape *shapes = g->compressed->shapes;
    const size_t count = before->part.tensor_count;
    struct weft_piece *tensors = weft_memory_alloc(count + 1, sizeof *tensors);
    struct weft_tensor_shape *theirs = weft_memory_alloc(count + 1, sizeof *theirs);
    int status =
        tensors && theirs ? WEFT_OK : weft__gradients_no_memory("a list of tensors", count);
    size_t at = 0;
    for (size_t i = 0; i < before->layer_count && !status; i++) {
        const struct weft__gradients_layer *layer =
            &g->layers[weft__gradients_before_layer(before, i)];
        for (size_t t = layer->first; t < layer->first + layer->tensor_count; t++, at++) {
            tensors[at] = g->model.tensors[t];
            if (shapes)
                theirs[at] = shapes[t];
        }
    }
    if (!status && before->part.words)
        status = weft__compressed_average_check_part("making groups of layers", &before->part,
                                                     tensors, theirs);
    weft_memory_free(theirs);
    weft_memory_free(tensors);
    return status;
}

int weft__gradients_source_read(const struct weft_gradients *g,
                                struct weft__gradients_source *source,
                                const struct weft_gradients_state *state)
{
    const uint64_t *word = state->words, *end = word + state->word_count;
    const float *number = state->numbers;
    size_t numbers = state->number_count;
    if (*word > g->layer_count)
        return refuse_words();
    int status = allocate_source(g, source, (size_t)*word++);
    for (size_t b = 0; b < source->before_count && !status; b++) {
        struct weft__gradients_before *before = &source->before[b];
        if (word == end || *word >= (uint64_t)(end - word))
            return refuse_words();
        before->layer_count = (size_t)*word++;
        before->words = word;
        word += before->layer_count;
        if (end - word < 2)
            return refuse_words();
        before->part.word_count = (size_t)*word++;
        before->part.number_count = (size_t)*word++;
        if (before->part.word_count > (size_t)(end - word) || before->part.number_count > numbers)
            return refuse_words();
        before->part.words = before->part.word_count ? word : NULL;
        before->part.numbers = number;
        word += before->part.word_count;
        number = number ? number + before->part.number_count : NULL;
        numbers -= before->part.number_count;
        status = place_layers(g, source, b);
        if (!status)
            status = check_tensors(g, source, b);
    }
    return status ? status : word != end || numbers ? refuse_words() : WEFT_OK;
}

int weft__gradients_source_groups(const struct weft_gradients *g,
                                  struct weft__gradients_source *source,
                                  const struct weft__gradients_sums *sums)
{
    int status = allocate_source(g, source, sums->group_count);
    for (size_t b = 0; b < sums->group_count && !status; b++) {
        struct weft__gradients_before *before = &source->before[b];
        struct weft_compressed_average_state state = {.struct_size = sizeof state};
        status = weft_compressed_average_get_state(sums->groups[b].member, &state);
        if (status)
            return status;
        before->layers = sums->groups[b].of->layers;
        before->layer_count = sums->groups[b].of->layer_count;
        before->part = (struct weft__compressed_part){.words = state.words,
                                                      .word_count = state.word_count,
                                                      .numbers = state.numbers,
                                                      .number_count = state.number_count};
        status = place_layers(g, source, b);
    }
    return status;
}

void weft__gradients_source_parts(const struct weft_gradients *g,
                                  const struct weft__gradients_sum *group,
                                  const struct weft__gradients_source *source,
                                  struct weft__compressed_part *parts)
{
    for (size_t i = 0; i < group->of->layer_count; i++) {
        const size_t l = group->of->layers[i], count = g->layers[l].tensor_count;
        const size_t b = source->of ? source->of[l] : SIZE_MAX;
        const struct weft__gradients_before *before = b == SIZE_MAX ? NULL : &source->before[b];
        size_t tensor = 0;
        for (size_t j = 0; before && weft__gradients_before_layer(before, j) != l; j++)
            tensor += g->layers[weft__gradients_before_layer(before, j)].tensor_count;
        for (size_t t = 0; t < count; t++, parts++) {
            *parts = before ? before->part : (struct weft__compressed_part){.words = NULL};
            parts->tensor = tensor + t;
        }
    }
}
