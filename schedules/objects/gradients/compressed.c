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
#include <string.h>

#include "schedules/objects/gradients/compressed.h"

struct own {
    /* The state that was asked for last; owned. */
    uint64_t *words;
    float *numbers;
    size_t word_count, number_count;
    unsigned char *votes; /* by layer; of this rank */
};

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

static int find_vote(const struct weft__gradients_sum *group,
                     const struct weft__gradients_source *source)
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
    struct weft__gradients_source source = {NULL};
    size_t words = 1, numbers = 0;
    int status = weft__gradients_source_groups(g, &source, sums);
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
        const struct weft__gradients_before *before = &source.before[b];
        const struct weft__compressed_part *part = &before->part;
        *word++ = before->layer_count;
        for (size_t i = 0; i < before->layer_count; i++)
            *word++ = weft__gradients_before_layer(before, i);
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
    weft__gradients_source_free(&source);
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
                        uint64_t next, const struct weft__gradients_source *source, float *packed)
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
        weft__gradients_source_parts(g, group, source, parts);
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
                         uint64_t next, const struct weft__gradients_source *source)
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
                       const struct weft_gradients_state *state,
                       struct weft__gradients_source *source)
{
    if (!before) {
        source->residual = state ? state->residual : NULL;
        source->votes = state ? state->votes : NULL;
        return state && state->word_count ? weft__gradients_source_read(g, source, state) : WEFT_OK;
    }
    struct weft__gradients_sums *old = before->sums;
    struct own *own = old->own;
    int status = collect_residual(g, old);
    if (!status)
        status = collect_votes(g, old);
    source->residual = old->residual;
    source->votes = own->votes;
    return status ? status : weft__gradients_source_groups(g, source, old);
}

static int create(struct weft_gradients *g, struct weft__gradients_plan *plan,
                  struct weft__gradients_plan *before, const struct weft_gradients_state *state)
{
    struct weft__gradients_source source = {NULL};
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
    weft__gradients_source_free(&source);
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
