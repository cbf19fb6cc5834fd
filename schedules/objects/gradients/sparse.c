/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups that are summed sparsely: members.h, with a sparse average a group, whose post accumulates
 * and selects.
 *
 * Velocities are elements' own, as residuals are. Groups of the same layers keep their regions
 * (Ok-Topk) too.
 */
#include <math.h>
#include <string.h>

#include "schedules/objects/gradients/members.h"
#include "schedules/objects/sparse_average/member.h"

#define DENSITY 0.001 /* of sparse averages, by default */

struct own {
    float *velocity; /* of the state that was asked for last; owned, as the next */
    uint64_t *regions;
    size_t region_count;
};

/* ---- the configuration ---- */

int weft__gradients_sparse_check(const char *who, const struct weft_sparse_average_config *config)
{
    const struct weft__gradients_repeated repeated = {
        "sparse",
        config->dtype,
        config->tensors,
        config->tensor_count,
        config->scope         ? "scope"
        : config->deadline_ns ? "deadline_ns"
        : config->meet_ns     ? "meet_ns"
        : config->leave_ns    ? "leave_ns"
        : config->state       ? "state"
        : config->memory      ? "memory"
                              : NULL,
    };
    int status = weft__sparse_average_check(who, config);
    return status ? weft__gradients_retell(status, who, "config", "sparse")
                  : weft__gradients_check_repeated(who, &repeated);
}

size_t weft__gradients_sparse_settings(const struct weft_sparse_average_config *config,
                                       struct weft__setting settings[])
{
    const double numbers[] = {(double)config->k,
                              config->k ? 0 : config->density,
                              config->momentum,
                              config->clip_norm,
                              (double)config->residual,
                              (double)config->nan,
                              (double)config->threshold_steps,
                              (double)config->balance_steps,
                              (double)config->warmup_steps};
    settings[0] = weft__setting_count("config->sparse->method", (uint64_t)config->method);
    settings[1] = weft__setting_reals("the numbers of config->sparse (k, density, momentum ...)",
                                      numbers, sizeof numbers / sizeof *numbers);
    settings[2] = weft__setting_reals("config->sparse->warmup", config->warmup,
                                      config->warmup_steps ? config->warmup_count : 0);
    return 3;
}

/* What is sent of a group is pairs, of 8 bytes: a group of M bytes of f32 costs as an allreduce of
 * 2 density M bytes, or of 8 k. */
int weft__gradients_sparse_cost(const struct weft_gradients *g, struct weft_merge_point *points,
                                size_t *count)
{
    const double density = g->sparse.density > 0 ? g->sparse.density : DENSITY;
    const double all = (double)g->model.count * sizeof(float);
    struct weft_merge_cost cost;
    double us;
    for (size_t i = 0; i < *count && !g->sparse.k; i++)
        points[i].bytes = ceil(points[i].bytes / (2 * density));
    if (!g->sparse.k)
        return WEFT_OK;
    weft_merge_cost_init(&cost);
    cost.points = points;
    cost.point_count = *count;
    int status = weft_merge_cost_get(&cost, 8.0 * (double)g->sparse.k, &us);
    if (status)
        return status;
    points[0] = (struct weft_merge_point){.bytes = 0, .us = us};
    points[1] = (struct weft_merge_point){.bytes = all, .us = us};
    *count = 2;
    return WEFT_OK;
}

/* ---- states ---- */

/* Regions say whose they are: the number of ranks, then of each group its number of layers, the
 * layers, the number of words, the words. */
static size_t region_words(const struct weft_gradients *g, const struct weft__gradients_sums *sums)
{
    size_t words = 1;
    for (size_t i = 0; i < sums->group_count; i++)
        words += sums->groups[i].of->layer_count + (size_t)g->ranks + 4;
    return words;
}

static uint64_t *put_regions(uint64_t *word, const struct weft__gradients_sum *group,
                             const struct weft_sparse_average_state *state)
{
    *word++ = group->of->layer_count;
    for (size_t i = 0; i < group->of->layer_count; i++)
        *word++ = group->of->layers[i];
    *word++ = state->region_count;
    memcpy(word, state->regions, state->region_count * sizeof *word);
    return word + state->region_count;
}

/* The regions of a group of the same layers, or NULL. */
static const uint64_t *find_regions(const uint64_t *word, size_t count,
                                    const struct weft__gradients_sum *group, int ranks,
                                    size_t *found)
{
    const uint64_t *end = word + count;
    if (!count || *word++ != (uint64_t)ranks)
        return NULL;
    while (word < end) {
        uint64_t layers = *word++;
        if (layers >= (uint64_t)(end - word))
            return NULL;
        int same = layers == group->of->layer_count;
        for (uint64_t i = 0; i < layers; i++)
            same = same && word[i] == group->of->layers[i];
        word += layers;
        *found = (size_t)*word++;
        if (*found > (size_t)(end - word))
            return NULL;
        if (same)
            return word;
        word += *found;
    }
    return NULL;
}

/* Brings what all groups keep into the order of the model. Of an object that has failed regions are
 * nothing to go on from. */
static int collect(const struct weft_gradients *g, struct weft__gradients_sums *sums)
{
    const int momentum = g->sparse.momentum != 0, oktopk = g->sparse.method == WEFT_SPARSE_OKTOPK;
    struct own *own = sums->own;
    size_t count = g->model.count + 1;
    if (!sums->residual)
        sums->residual = weft_memory_alloc(count, sizeof *sums->residual);
    if (momentum && !own->velocity)
        own->velocity = weft_memory_alloc(count, sizeof *own->velocity);
    if (oktopk && !own->regions)
        own->regions = weft_memory_alloc(region_words(g, sums), sizeof *own->regions);
    if (!sums->residual || (momentum && !own->velocity) || (oktopk && !own->regions))
        return weft__gradients_no_memory("residuals", g->model.count);
    uint64_t *word = own->regions;
    if (oktopk)
        *word++ = (uint64_t)g->ranks;
    for (size_t i = 0; i < sums->group_count; i++) {
        const struct weft__gradients_sum *group = &sums->groups[i];
        struct weft_sparse_average_state state = {.struct_size = sizeof state};
        int status = weft_sparse_average_get_state(group->member, &state);
        if (status)
            return status;
        weft__gradients_sum_scatter(g, group, state.residual, sums->residual);
        if (momentum)
            weft__gradients_sum_scatter(g, group, state.velocity, own->velocity);
        if (state.regions)
            word = put_regions(word, group, &state);
    }
    own->region_count = oktopk ? (size_t)(word - own->regions) : 0;
    return WEFT_OK;
}

/* ---- making ---- */

/* What groups go on from: a checkpoint, the groups before, or nothing. */
static int find_source(struct weft_gradients *g, struct weft__gradients_plan *before,
                       const struct weft_gradients_state *state,
                       struct weft_gradients_state *source)
{
    *source = (struct weft_gradients_state){.struct_size = sizeof *source};
    if (state)
        *source = *state;
    if (!before)
        return WEFT_OK;
    struct weft__gradients_sums *old = before->sums;
    const struct own *own = old->own;
    int status = collect(g, old);
    source->residual = old->residual;
    source->velocity = own->velocity;
    source->regions = own->regions;
    source->region_count = own->region_count;
    return status;
}

/* packed: room for the residuals and the velocities of the group, where there are any. */
static int make_average(const struct weft_gradients *g, struct weft__gradients_sum *group,
                        uint64_t next, const struct weft_gradients_state *source,
                        float *const packed[2])
{
    struct weft_sparse_average_config config = g->sparse;
    struct weft_sparse_average_state state = {
        .struct_size = sizeof state, .next = next, .residual = packed[0], .velocity = packed[1]};
    size_t count;
    struct weft_piece *tensors = weft__gradients_sum_tensors(g, group, &count);
    if (!tensors)
        return WEFT_ERR_MEMORY;
    if (packed[0])
        weft__gradients_sum_gather(g, group, packed[0], source->residual);
    if (packed[1])
        weft__gradients_sum_gather(g, group, packed[1], source->velocity);
    state.regions = find_regions(source->regions, source->regions ? source->region_count : 0, group,
                                 g->ranks, &state.region_count);
    state.region_count = state.regions ? state.region_count : 0;
    config.struct_size = sizeof config;
    config.dtype = g->model.dtype;
    config.tensors = tensors;
    config.tensor_count = count;
    config.leave_ns = g->config.leave_ns;
    config.state = &state;
    struct weft_sparse_average *average = NULL;
    int status = weft__sparse_average_create_member(&average, "making groups of layers", g->context,
                                                    g->object, &config);
    group->member = average;
    weft_memory_free(tensors);
    return status;
}

static int make_averages(const struct weft_gradients *g, struct weft__gradients_sums *sums,
                         uint64_t next, const struct weft_gradients_state *source)
{
    float *packed[2] = {NULL, NULL};
    size_t most = 0;
    int status = WEFT_OK;
    for (size_t i = 0; i < sums->group_count; i++)
        most = sums->groups[i].of->count > most ? sums->groups[i].of->count : most;
    if (source->residual)
        packed[0] = weft_memory_alloc(most + 1, sizeof *packed[0]);
    if (source->velocity)
        packed[1] = weft_memory_alloc(most + 1, sizeof *packed[1]);
    if ((source->residual && !packed[0]) || (source->velocity && !packed[1]))
        status = weft__gradients_no_memory("residuals", most);
    for (size_t i = 0; i < sums->group_count && !status; i++)
        status = make_average(g, &sums->groups[i], next, source, packed);
    weft_memory_free(packed[1]);
    weft_memory_free(packed[0]);
    return status;
}

/* ---- members ---- */

static int post(void *member, const char *who)
{
    return weft__sparse_average_post(member, who);
}

static int wait_sum(void *member, const char *who, uint64_t until)
{
    return weft__sparse_average_wait(member, who, until);
}

static void write_sum(void *member, int divisor)
{
    weft__sparse_average_write(member, divisor);
}

static uint64_t ended(const void *member)
{
    return weft__sparse_average_ended(member);
}

static char *report(const void *member)
{
    return weft__sparse_average_report(member);
}

static int abandon(void *member, uint64_t step)
{
    return weft__sparse_average_abandon(member, step);
}

static int leave(void *member, const char *who)
{
    return weft__sparse_average_leave(member, who);
}

static void free_member(void *member)
{
    weft__sparse_average_free(member);
}

static int count(const void *member, struct weft__gradients_traffic *traffic)
{
    struct weft_sparse_average_stats stats = {.struct_size = sizeof stats};
    int status = weft_sparse_average_get_stats(member, &stats);
    traffic->messages = stats.messages;
    traffic->bytes = stats.bytes;
    return status;
}

static int unsent(void *member, const float **values)
{
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    int status = weft_sparse_average_get_state(member, &state);
    *values = state.unsent;
    return status;
}

static const struct weft__gradients_member member = {
    .post = post,
    .wait = wait_sum,
    .write = write_sum,
    .ended = ended,
    .report = report,
    .abandon = abandon,
    .leave = leave,
    .free = free_member,
    .count = count,
    .unsent = unsent,
};

/* ---- the way ---- */

static int create(struct weft_gradients *g, struct weft__gradients_plan *plan,
                  struct weft__gradients_plan *before, const struct weft_gradients_state *state)
{
    struct weft_gradients_state source;
    int status = weft__gradients_sums_make(g, plan, &member);
    if (status)
        return status;
    struct weft__gradients_sums *sums = plan->sums;
    sums->own = weft_memory_alloc(1, sizeof(struct own));
    if (!sums->own)
        return weft__gradients_no_memory("groups", plan->group_count);
    status = find_source(g, before, state, &source);
    return status ? status : make_averages(g, sums, plan->since, &source);
}

static void destroy(struct weft_gradients *g, struct weft__gradients_plan *plan)
{
    struct weft__gradients_sums *sums = plan->sums;
    struct own *own = sums ? sums->own : NULL;
    (void)g;
    plan->sums = NULL;
    if (own) {
        weft_memory_free(own->regions);
        weft_memory_free(own->velocity);
        weft_memory_free(own);
    }
    weft__gradients_sums_free(sums);
}

static int save(struct weft_gradients *g, struct weft__gradients_plan *plan,
                struct weft_gradients_state *state)
{
    struct weft__gradients_sums *sums = plan->sums;
    const struct own *own = sums->own;
    int status = state->failed ? weft__gradients_sums_abandon(g, sums) : WEFT_OK;
    if (!status)
        status = collect(g, sums);
    if (status)
        return status;
    state->residual = sums->residual;
    state->velocity = own->velocity;
    state->regions = state->failed ? NULL : own->regions;
    state->region_count = state->failed ? 0 : own->region_count;
    state->kept = state->failed ? g->kept : NULL;
    state->unsent = state->failed ? sums->unsent : NULL;
    return WEFT_OK;
}

const struct weft__gradients_way weft__gradients_sparse = {
    .name = "sparse",
    .create = create,
    .begin = weft__gradients_sums_begin,
    .ready = weft__gradients_sums_ready,
    .wait = weft__gradients_sums_wait,
    .end = weft__gradients_sums_end,
    .report = weft__gradients_sums_report,
    .quit = weft__gradients_sums_quit,
    .destroy = destroy,
    .save = save,
};
