/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging: states of tensors that come from several objects. */
#include <string.h>

#include "schedules/objects/compressed_average/compressed_average.h"
#include "schedules/objects/compressed_average/member.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

/* What a tensor has in its state; words NULL: nothing. */
struct section {
    const uint64_t *words;
    const float *numbers;
    size_t number_count;
};

/* Finds the section of a part. */
static int find(const char *who, const struct weft__compression *method,
                const struct weft__compressed_part *part, struct section *section)
{
    const size_t words =
        WEFT__STATE_OWN + method->state_common + part->tensor_count * method->state_each;
    size_t before = 0;
    *section = (struct section){NULL};
    if (part->word_count == WEFT__STATE_OWN || !method->state_each)
        return WEFT_OK; /* of an object of no elements, or a method that keeps nothing */
    if (part->word_count != words || part->tensor >= part->tensor_count)
        return REFUSE("%s: a state has %zu words for %zu tensors, expected %zu", who,
                      part->word_count, part->tensor_count, words);
    const uint64_t *first = part->words + WEFT__STATE_OWN + method->state_common;
    for (size_t t = 0; t <= part->tensor; t++) {
        const uint64_t numbers = first[t * method->state_each];
        if (numbers > part->number_count - before)
            return REFUSE("%s: a state has %zu numbers, expected more", who, part->number_count);
        section->number_count = (size_t)numbers;
        before += (size_t)numbers;
    }
    section->words = first + part->tensor * method->state_each;
    section->numbers = part->numbers + before - section->number_count;
    return WEFT_OK;
}

/* The words that all parts have alike, but for those of no elements; NULL: they differ. */
static const uint64_t *find_common(const struct weft__compression *method,
                                   const struct weft__compressed_part *parts, size_t count)
{
    const size_t size = method->state_common * sizeof(uint64_t);
    const uint64_t *found = NULL;
    for (size_t t = 0; t < count; t++) {
        const uint64_t *words = parts[t].words;
        if (!words || parts[t].word_count < WEFT__STATE_OWN)
            return NULL;
        if (parts[t].word_count == WEFT__STATE_OWN)
            continue;
        if (found && (memcmp(found + WEFT__STATE_OWN, words + WEFT__STATE_OWN, size) != 0 ||
                      found[WEFT__STATE_RANKS] != words[WEFT__STATE_RANKS] ||
                      found[WEFT__STATE_METHOD] != words[WEFT__STATE_METHOD]))
            return NULL;
        found = words;
    }
    return found;
}

/* The words that a state of the tensors has. */
static size_t count_words(const struct weft__compression *method,
                          const struct weft_compressed_average_config *config)
{
    const size_t count = config->tensor_count;
    size_t elements = 0;
    for (size_t t = 0; t < count; t++)
        elements |= config->tensors[t].count;
    /* Where there are none, a method has nothing. */
    return WEFT__STATE_OWN + (elements ? method->state_common + count * method->state_each : 0);
}

static int write_shapes(const char *who, const struct weft_compressed_average_config *config,
                        uint64_t *number)
{
    struct weft_tensor_shape *shapes = weft_memory_alloc(config->tensor_count + 1, sizeof *shapes);
    int status = shapes ? WEFT_OK
                        : weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %zu shapes", who,
                                         config->tensor_count);
    for (size_t t = 0; t < config->tensor_count && !status; t++) {
        if (config->shapes)
            shapes[t] = config->shapes[t];
        status = weft__compressed_shape(who, &shapes[t], t, config->tensors[t].count);
    }
    if (!status)
        *number = weft__compressed_shapes_number(shapes, config->tensor_count);
    weft_memory_free(shapes);
    return status;
}

int weft__compressed_average_check_part(const char *who, const struct weft__compressed_part *part,
                                        const struct weft_piece *tensors,
                                        struct weft_tensor_shape *shapes)
{
    int status = WEFT_OK;
    for (size_t t = 0; t < part->tensor_count && !status; t++)
        status = weft__compressed_shape(who, &shapes[t], t, tensors[t].count);
    if (status)
        return status;
    if (part->word_count < WEFT__STATE_OWN ||
        part->words[WEFT__STATE_TENSORS] !=
            weft__compressed_tensors_number(tensors, part->tensor_count))
        return REFUSE("%s: config->state->words are of other tensors than config->tensors", who);
    return part->words[WEFT__STATE_SHAPES] ==
                   weft__compressed_shapes_number(shapes, part->tensor_count)
               ? WEFT_OK
               : REFUSE("%s: config->state->words are of other shapes than config->shapes", who);
}

int weft__compressed_average_join(const char *who,
                                  const struct weft_compressed_average_config *config,
                                  const struct weft__compressed_part *parts,
                                  struct weft_compressed_average_state *joined)
{
    const struct weft__compression *method = weft__compressions[config->method];
    const size_t count = config->tensor_count;
    const uint64_t *common = find_common(method, parts, count);
    const size_t words = count_words(method, config);
    struct section section;
    size_t numbers = 0;
    int status = WEFT_OK;
    for (size_t t = 0; t < count && common && !status; t++) {
        status = find(who, method, &parts[t], &section);
        numbers += section.number_count;
    }
    if (status || !common)
        return status;
    uint64_t *word = weft_memory_alloc(words, sizeof *word);
    float *number = weft_memory_alloc(numbers + 1, sizeof *number);
    joined->words = word;
    joined->numbers = number;
    if (!word || !number)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for a state of %zu numbers", who,
                              numbers);
    joined->word_count = words;
    joined->number_count = numbers;
    memcpy(word, common, WEFT__STATE_OWN * sizeof *word);
    word[WEFT__STATE_TENSORS] = weft__compressed_tensors_number(config->tensors, count);
    status = write_shapes(who, config, &word[WEFT__STATE_SHAPES]);
    if (words == WEFT__STATE_OWN)
        return status;
    memcpy(word + WEFT__STATE_OWN, common + WEFT__STATE_OWN, method->state_common * sizeof *word);
    word += WEFT__STATE_OWN + method->state_common;
    for (size_t t = 0; t < count && !status; t++) {
        status = find(who, method, &parts[t], &section);
        if (section.words)
            memcpy(word, section.words, method->state_each * sizeof *word);
        if (section.number_count)
            memcpy(number, section.numbers, section.number_count * sizeof *number);
        word += method->state_each;
        number += section.number_count;
    }
    return status;
}

void weft__compressed_average_unjoin(struct weft_compressed_average_state *joined)
{
    weft_memory_free((uint64_t *)(uintptr_t)joined->words);
    weft_memory_free((float *)(uintptr_t)joined->numbers);
    joined->words = NULL;
    joined->numbers = NULL;
    joined->word_count = joined->number_count = 0;
}

double weft__compressed_average_bits(const struct weft_compressed_average_config *config,
                                     const struct weft_piece *tensors, size_t count,
                                     const struct weft_tensor_shape *shapes)
{
    const struct weft_quantiser *quantiser = config->quantiser;
    const struct weft_powersgd_config *powersgd = config->powersgd;
    const double bits = quantiser && quantiser->bits ? quantiser->bits : 4;
    const double bucket = quantiser && quantiser->bucket ? (double)quantiser->bucket : 512;
    const size_t rank = powersgd && powersgd->rank ? powersgd->rank : 2;
    double all = 0, sent = 0;
    if (config->method != WEFT_COMPRESSED_POWERSGD)
        return bits + 32 / bucket;
    for (size_t t = 0; t < count; t++) {
        struct weft_tensor_shape shape = {WEFT_TENSOR_VECTOR, 0, 0, 0, 0};
        size_t rows, columns;
        weft__compressed_matrix(shapes ? &shapes[t] : &shape, &rows, &columns);
        const double factored = (double)rank * ((double)rows + (double)columns);
        const double elements = (double)tensors[t].count;
        all += elements;
        sent += factored > 0 && factored < elements ? factored : elements;
    }
    return all > 0 ? 32 * sent / all : 32;
}
