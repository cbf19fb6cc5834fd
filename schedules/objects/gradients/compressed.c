/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups that are summed in fewer bits: members.h, with a compressed average a group.
 *
 * What all ranks have alike of a group, factors and projections, belongs to tensors: where other
 * groups take the place of these, a new group's state is joined of those of its tensors. In the
 * state of the object it stands group after group:
 *
 *     words      groups | layers, their numbers, words, numbers, the words | ... of group 1 | ...
 *     numbers           |                            of group 0            |     of group 1 | ...
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/compressed_average/member.h"
#include "schedules/objects/gradients/members.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

/* The configuration, with all that it points to. */
struct weft__gradients_compressed_config {
    struct weft_compressed_average_config config;
    struct weft_quantiser quantiser;
    struct weft_gradiveq_config gradiveq;
    struct weft_powersgd_config powersgd;
    struct weft_tensor_shape *shapes; /* of the model's tensors; owned, or NULL */
    char *algo;                       /* owned, or NULL */
};

struct own {
    /* The state that was asked for last; owned. */
    uint64_t *words;
    float *numbers;
    size_t word_count, number_count;
    unsigned char *votes; /* by layer; of this rank */
};

/* ---- the configuration ---- */

/* What is wrong with a member of config->compressed. */
static int retell(const char *who, int status)
{
    char text[320];
    snprintf(text, sizeof text, "%s", weft_error_text());
    const char *member = strstr(text, "config->");
    return member ? weft_error_set(status, "%.*sconfig->compressed->%s", (int)(member - text), text,
                                   member + strlen("config->"))
                  : weft_error_set(status, "%s: %s", who, text);
}

static int check_repeated(const char *who, const struct weft_compressed_average_config *config)
{
    if (config->dtype)
        return REFUSE("%s: config->compressed->dtype is %d, expected 0: config->dtype says it", who,
                      (int)config->dtype);
    if (config->tensors || config->tensor_count)
        return REFUSE("%s: config->compressed->tensors is %s, of %zu, expected NULL, of 0: "
                      "config->tensors says it",
                      who, config->tensors ? "given" : "NULL", config->tensor_count);
    const char *set = config->sum           ? "sum"
                      : config->deadline_ns ? "deadline_ns"
                      : config->meet_ns     ? "meet_ns"
                      : config->leave_ns    ? "leave_ns"
                      : config->state       ? "state"
                                            : NULL;
    return set ? REFUSE("%s: config->compressed->%s is given, expected 0", who, set) : WEFT_OK;
}

int weft__gradients_compressed_check(const char *who, const struct weft_gradients_config *config,
                                     const struct weft_compressed_average_config *compressed)
{
    int status = weft__compressed_average_check(who, compressed);
    if (!status && config->tensors)
        status = weft__compressed_average_check_shapes(who, config->tensors, config->tensor_count,
                                                       compressed->shapes);
    return status ? retell(who, status) : check_repeated(who, compressed);
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

/* ---- what groups go on from ---- */

/* What there was of some layers. */
struct before {
    const size_t *layers; /* of a plan; NULL: `words` has them */
    const uint64_t *words;
    size_t layer_count;
    struct weft__compressed_part part; /* of which tensor: none yet */
};

static size_t layer_of(const struct before *before, size_t i)
{
    return before->layers ? before->layers[i] : (size_t)before->words[i];
}

/* Where each layer was. */
struct source {
    const float *residual;
    const unsigned char *votes; /* by layer; NULL: none */
    struct before *before;      /* owned */
    size_t before_count;
    size_t *of; /* by layer: of `before`; owned */
};

static void free_source(struct source *source)
{
    weft_memory_free(source->before);
    weft_memory_free(source->of);
}

static int allocate_source(const struct weft_gradients *g, struct source *source, size_t count)
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
static int place_layers(const struct weft_gradients *g, struct source *source, size_t b)
{
    struct before *before = &source->before[b];
    for (size_t i = 0; i < before->layer_count; i++) {
        const size_t l = layer_of(before, i);
        if (l >= g->layer_count || source->of[l] != SIZE_MAX)
            return refuse_words();
        source->of[l] = b;
        before->part.tensor_count += g->layers[l].tensor_count;
    }
    return WEFT_OK;
}

/* The words of number `b` are of the tensors, and shapes, of its layers. */
static int check_tensors(const struct weft_gradients *g, const struct source *source, size_t b)
{
    const struct before *before = &source->before[b];
    const struct weft_tensor_shape *shapes = g->compressed->shapes;
    const size_t count = before->part.tensor_count;
    struct weft_piece *tensors = weft_memory_alloc(count + 1, sizeof *tensors);
    struct weft_tensor_shape *theirs = weft_memory_alloc(count + 1, sizeof *theirs);
    int status =
        tensors && theirs ? WEFT_OK : weft__gradients_no_memory("a list of tensors", count);
    size_t at = 0;
    for (size_t i = 0; i < before->layer_count && !status; i++) {
        const struct weft__gradients_layer *layer = &g->layers[layer_of(before, i)];
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

/* Of the words of a state. */
static int read_words(const struct weft_gradients *g, struct source *source,
                      const struct weft_gradients_state *state)
{
    const uint64_t *word = state->words, *end = word + state->word_count;
    const float *number = state->numbers;
    size_t numbers = state->number_count;
    if (*word > g->layer_count)
        return refuse_words();
    int status = allocate_source(g, source, (size_t)*word++);
    for (size_t b = 0; b < source->before_count && !status; b++) {
        struct before *before = &source->before[b];
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

/* Of the groups of a plan. */
static int read_groups(const struct weft_gradients *g, struct source *source,
                       const struct weft__gradients_sums *sums)
{
    int status = allocate_source(g, source, sums->group_count);
    for (size_t b = 0; b < sums->group_count && !status; b++) {
        struct before *before = &source->before[b];
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

/* A part for each tensor of a group. Layers that were nowhere have none. */
static void list_parts(const struct weft_gradients *g, const struct weft__gradients_sum *group,
                       const struct source *source, struct weft__compressed_part *parts)
{
    for (size_t i = 0; i < group->of->layer_count; i++) {
        const size_t l = group->of->layers[i], count = g->layers[l].tensor_count;
        const size_t b = source->of ? source->of[l] : SIZE_MAX;
        const struct before *before = b == SIZE_MAX ? NULL : &source->before[b];
        size_t tensor = 0;
        for (size_t j = 0; before && layer_of(before, j) != l; j++)
            tensor += g->layers[layer_of(before, j)].tensor_count;
        for (size_t t = 0; t < count; t++, parts++) {
            *parts = before ? before->part : (struct weft__compressed_part){.words = NULL};
            parts->tensor = tensor + t;
        }
    }
}

/* ---- states ---- */

/* 1: a tensor of a layer, whose first is number `tensor` of the member, is projected. */
static int is_projected(const struct weft__gradients_layer *layer, const void *member,
                        size_t tensor)
{
    struct weft_gradiveq_tensor info = {.struct_size = sizeof info};
    int projected = 0;
    for (size_t t = 0; t < layer->tensor_count && !projected; t++)
        projected = !weft_compressed_average_get_tensor(member, tensor + t, &info) && info.slice;
    return projected;
}

/* A vote goes with the layers for which it was given. */
static int collect_votes(const struct weft_gradients *g, const struct weft__gradients_sums *sums)
{
    struct own *own = sums->own;
    if (!own->votes)
        own->votes = weft_memory_alloc(g->layer_count + 1, sizeof *own->votes);
    if (!own->votes)
        return weft__gradients_no_memory("votes", g->layer_count);
    for (size_t i = 0; i < sums->group_count; i++) {
        const struct weft__gradients_group *of = sums->groups[i].of;
        const void *member = sums->groups[i].member;
        const int vote = weft__compressed_average_votes(member);
        size_t tensor = 0;
        for (size_t j = 0; j < of->layer_count; j++) {
            const struct weft__gradients_layer *layer = &g->layers[of->layers[j]];
            own->votes[of->layers[j]] = vote && is_projected(layer, member, tensor);
            tensor += layer->tensor_count;
        }
    }
    return WEFT_OK;
}

static int find_vote(const struct weft__gradients_sum *group, const struct source *source)
{
    int vote = 0;
    for (size_t i = 0; i < group->of->layer_count && source->votes; i++)
        vote |= source->votes[group->of->layers[i]];
    return vote;
}

/* Brings what all groups keep into the order of the model. */
static int collect_residual(const struct weft_gradients *g, struct weft__gradients_sums *sums)
{
    if (!sums->residual)
        sums->residual = weft_memory_alloc(g->model.count + 1, sizeof *sums->residual);
    if (!sums->residual)
        return weft__gradients_no_memory("residuals", g->model.count);
    memset(sums->residual, 0, g->model.count * sizeof *sums->residual);
    int keeps = 0;
    for (size_t i = 0; i < sums->group_count; i++) {
        const struct weft__gradients_sum *group = &sums->groups[i];
        struct weft_compressed_average_state state = {.struct_size = sizeof state};
        int status = weft_compressed_average_get_state(group->member, &state);
        if (status)
            return status;
        keeps |= state.residual || state.unsent;
        if (state.residual)
            weft__gradients_sum_scatter(g, group, state.residual, sums->residual);
    }
    if (!keeps) { /* there is none */
        weft_memory_free(sums->residual);
        sums->residual = NULL;
    }
    return WEFT_OK;
}

static int collect_words(const struct weft_gradients *g, const struct weft__gradients_sums *sums,
                         struct own *own)
{
    struct source source = {NULL};
    size_t words = 1, numbers = 0;
    int status = read_groups(g, &source, sums);
    for (size_t b = 0; b < source.before_count && !status; b++) {
        words += 3 + source.before[b].layer_count + source.before[b].part.word_count;
        numbers += source.before[b].part.number_count;
    }
    weft_memory_free(own->words);
    weft_memory_free(own->numbers);
    own->words = NULL;
    own->numbers = NULL;
    if (!status) {
        own->words = weft_memory_alloc(words, sizeof *own->words);
        own->numbers = weft_memory_alloc(numbers + 1, sizeof *own->numbers);
        if (!own->words || !own->numbers)
            status = weft__gradients_no_memory("the state of groups", numbers);
    }
    uint64_t *word = own->words;
    float *number = own->numbers;
    if (!status)
        *word++ = source.before_count;
    for (size_t b = 0; b < source.before_count && !status; b++) {
        const struct before *before = &source.before[b];
        const struct weft__compressed_part *part = &before->part;
        *word++ = before->layer_count;
        for (size_t i = 0; i < before->layer_count; i++)
            *word++ = layer_of(before, i);
        *word++ = part->word_count;
        *word++ = part->number_count;
        memcpy(word, part->words, part->word_count * sizeof *word);
        if (part->number_count)
            memcpy(number, part->numbers, part->number_count * sizeof *number);
        word += part->word_count;
        number += part->number_count;
    }
    own->word_count = words;
    own->number_count = numbers;
    free_source(&source);
    return status;
}

/* ---- making ---- */

/* The shapes of a group's tensors; owned by the caller. NULL: vectors, or no memory. */
static struct weft_tensor_shape *list_shapes(const struct weft_gradients *g,
                                             const struct weft__gradients_sum *group, size_t count,
                                             int *status)
{
    const struct weft_tensor_shape *all = g->compressed->shapes;
    struct weft_tensor_shape *shapes = NULL, *to;
    if (!all)
        return NULL;
    to = shapes = weft_memory_alloc(count + 1, sizeof *shapes);
    if (!shapes)
        *status = weft__gradients_no_memory("shapes", count);
    for (size_t i = 0; shapes && i < group->of->layer_count; i++) {
        const struct weft__gradients_layer *layer = &g->layers[group->of->layers[i]];
        memcpy(to, all + layer->first, layer->tensor_count * sizeof *to);
        to += layer->tensor_count;
    }
    return shapes;
}

/* packed: room for the residual of the group, where there is one. */
static int make_average(const struct weft_gradients *g, struct weft__gradients_sum *group,
                        uint64_t next, const struct source *source, float *packed)
{
    static const char who[] = "making groups of layers";
    struct weft_compressed_average_config config = g->compressed->config;
    struct weft_compressed_average_state state = {
        .struct_size = sizeof state, .next = next, .residual = packed};
    struct weft_compressed_average *average = NULL;
    size_t count;
    int status = WEFT_OK;
    struct weft_piece *tensors = weft__gradients_sum_tensors(g, group, &count);
    struct weft_tensor_shape *shapes = list_shapes(g, group, count, &status);
    struct weft__compressed_part *parts = weft_memory_alloc(count + 1, sizeof *parts);
    if (!tensors || !parts)
        status = weft__gradients_no_memory("a list of tensors", count);
    config.struct_size = sizeof config;
    config.dtype = g->model.dtype;
    config.tensors = tensors;
    config.tensor_count = count;
    config.shapes = shapes;
    config.leave_ns = g->config.leave_ns;
    config.state = &state;
    if (!status) {
        if (packed)
            weft__gradients_sum_gather(g, group, packed, source->residual);
        list_parts(g, group, source, parts);
        status = weft__compressed_average_join(who, &config, parts, &state);
        state.vote = state.words && find_vote(group, source); /* else its phase is over */
    }
    if (!status)
        status =
            weft__compressed_average_create_member(&average, who, g->context, g->object, &config);
    group->member = average;
    weft__compressed_average_unjoin(&state);
    weft_memory_free(parts);
    weft_memory_free(shapes);
    weft_memory_free(tensors);
    return status;
}

static int make_averages(const struct weft_gradients *g, struct weft__gradients_sums *sums,
                         uint64_t next, const struct source *source)
{
    float *packed = NULL;
    size_t most = 0;
    int status = WEFT_OK;
    for (size_t i = 0; i < sums->group_count; i++)
        most = sums->groups[i].of->count > most ? sums->groups[i].of->count : most;
    if (source->residual) {
        packed = weft_memory_alloc(most + 1, sizeof *packed);
        if (!packed)
            status = weft__gradients_no_memory("residuals", most);
    }
    for (size_t i = 0; i < sums->group_count && !status; i++)
        status = make_average(g, &sums->groups[i], next, source, packed);
    weft_memory_free(packed);
    return status;
}

/* ---- members ---- */

static int post(void *member, const char *who)
{
    return weft__compressed_average_post(member, who);
}

static int wait_sum(void *member, const char *who, uint64_t until)
{
    return weft__compressed_average_wait(member, who, until);
}

static void write_sum(void *member, int divisor)
{
    weft__compressed_average_write(member, divisor);
}

static int finish(void *member, const char *who, uint64_t until)
{
    return weft__compressed_average_finish(member, who, until);
}

static uint64_t ended(const void *member)
{
    return weft__compressed_average_ended(member);
}

static char *report(const void *member)
{
    return weft__compressed_average_report(member);
}

static int abandon(void *member, uint64_t step)
{
    return weft__compressed_average_abandon(member, step);
}

static int leave(void *member, const char *who)
{
    return weft__compressed_average_leave(member, who);
}

static void free_member(void *member)
{
    weft__compressed_average_free(member);
}

static int count(const void *member, struct weft__gradients_traffic *traffic)
{
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    int status = weft_compressed_average_get_stats(member, &stats);
    traffic->messages = stats.messages;
    traffic->bytes = stats.bytes;
    return status;
}

static void compression(const void *member, struct weft__gradients_compression *compression)
{
    struct weft__compressed_part_step step;
    weft__compressed_average_last(member, &step);
    compression->groups += step.phase == WEFT_COMPRESSED_COMPRESSED && step.elements > 0;
    compression->elements += step.elements;
    compression->bits += step.bits * step.elements;
    compression->squares += step.squares;
    compression->dropped += step.dropped;
}

static int unsent(void *member, const float **values)
{
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    int status = weft_compressed_average_get_state(member, &state);
    *values = state.unsent;
    return status;
}

static const struct weft__gradients_member member = {
    .post = post,
    .wait = wait_sum,
    .write = write_sum,
    .finish = finish,
    .ended = ended,
    .report = report,
    .abandon = abandon,
    .leave = leave,
    .free = free_member,
    .count = count,
    .compression = compression,
    .unsent = unsent,
};

/* ---- the way ---- */

/* What groups go on from: a checkpoint, the groups before, or nothing. */
static int find_source(struct weft_gradients *g, struct weft__gradients_plan *before,
                       const struct weft_gradients_state *state, struct source *source)
{
    if (!before) {
        source->residual = state ? state->residual : NULL;
        source->votes = state ? state->votes : NULL;
        return state && state->word_count ? read_words(g, source, state) : WEFT_OK;
    }
    struct weft__gradients_sums *old = before->sums;
    struct own *own = old->own;
    int status = collect_residual(g, old);
    if (!status)
        status = collect_votes(g, old);
    source->residual = old->residual;
    source->votes = own->votes;
    return status ? status : read_groups(g, source, old);
}

static int create(struct weft_gradients *g, struct weft__gradients_plan *plan,
                  struct weft__gradients_plan *before, const struct weft_gradients_state *state)
{
    struct source source = {NULL};
    int status = weft__gradients_sums_make(g, plan, &member);
    if (status)
        return status;
    struct weft__gradients_sums *sums = plan->sums;
    sums->own = weft_memory_alloc(1, sizeof(struct own));
    if (!sums->own)
        return weft__gradients_no_memory("groups", plan->group_count);
    status = find_source(g, before, state, &source);
    if (!status)
        status = make_averages(g, sums, plan->since, &source);
    free_source(&source);
    return status;
}

static void destroy(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct weft__gradients_sums *sums = plan->sums;
    struct own *own = sums ? sums->own : NULL;
    (void)g;
    plan->sums = NULL;
    if (own) {
        weft_memory_free(own->votes);
        weft_memory_free(own->numbers);
        weft_memory_free(own->words);
        weft_memory_free(own);
    }
    weft__gradients_sums_free(sums);
}

static weft_compressed_phase_t find_phase(const struct weft__gradients_plan *plan)
{
    const struct weft__gradients_sums *sums = plan->sums;
    weft_compressed_phase_t latest = WEFT_COMPRESSED_WARMUP;
    for (size_t i = 0; i < sums->group_count; i++) {
        const weft_compressed_phase_t phase = weft_compressed_average_phase(sums->groups[i].member);
        if (sums->groups[i].of->count && phase > latest)
            latest = phase;
    }
    return latest;
}

static int tell_tensor(const struct weft_gradients *g, const struct weft__gradients_plan *plan,
                       size_t tensor, struct weft_gradiveq_tensor *info)
{
    const struct weft__gradients_sums *sums = plan->sums;
    size_t l = 0, before = 0;
    while (tensor - g->layers[l].first >= g->layers[l].tensor_count)
        l++;
    const struct weft__gradients_sum *group = &sums->groups[plan->group_of[l]];
    for (size_t i = 0; group->of->layers[i] != l; i++)
        before += g->layers[group->of->layers[i]].tensor_count;
    return weft_compressed_average_get_tensor(group->member, before + tensor - g->layers[l].first,
                                              info);
}

static int save(struct weft_gradients *g, struct weft__gradients_plan *plan,
                struct weft_gradients_state *state)
{
    struct weft__gradients_sums *sums = plan->sums;
    struct own *own = sums->own;
    int status = state->failed ? weft__gradients_sums_abandon(g, sums) : WEFT_OK;
    if (!status)
        status = collect_residual(g, sums);
    if (!status)
        status = collect_words(g, sums, own);
    if (!status)
        status = collect_votes(g, sums);
    if (status)
        return status;
    state->residual = sums->residual;
    state->words = own->words;
    state->word_count = own->word_count;
    state->numbers = own->number_count ? own->numbers : NULL;
    state->number_count = own->number_count;
    state->votes = g->compressed->config.method == WEFT_COMPRESSED_GRADIVEQ ? own->votes : NULL;
    state->kept = state->failed ? g->kept : NULL;
    state->unsent = state->failed ? sums->unsent : NULL;
    return WEFT_OK;
}

const struct weft__gradients_way weft__gradients_compressed = {
    .name = "compressed",
    .create = create,
    .begin = weft__gradients_sums_begin,
    .ready = weft__gradients_sums_ready,
    .wait = weft__gradients_sums_wait,
    .end = weft__gradients_sums_end,
    .report = weft__gradients_sums_report,
    .quit = weft__gradients_sums_quit,
    .destroy = destroy,
    .phase = find_phase,
    .tensor = tell_tensor,
    .save = save,
};
