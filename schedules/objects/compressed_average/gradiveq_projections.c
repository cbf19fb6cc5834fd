/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ: from samples to projections that all ranks share, and compressed steps.
 *
 *     find     each rank the components of its groups       local, the longest
 *     count    d of each group                              allreduce
 *     share    each rank the bases that it has found        allgatherv
 *     make     the schedule of the phase                    local
 *
 * A rank that fails meanwhile fails the object.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/compressed_average/gradiveq.h"

static int out_of_memory(const struct weft_compressed_average *average, const char *what,
                         size_t count)
{
    return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for %s of %zu", average->who, what,
                          count);
}

/* ---- from samples to bases ---- */

/* Each number is one rank's, and 0 on the others: a sum, whose bits are those of that number. The
 * last one counts the ranks: on virtual ranks without payload it does not, and nobody knows what
 * others have found. */
int weft__gradiveq_prepare(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    struct weft_template_params params;
    if (!own->group_count)
        return WEFT_OK;
    weft_template_params_init(&params);
    params.count = 2 * own->group_count + 1;
    params.dtype = WEFT_F64;
    params.in_place = 1;
    int status = weft__compressed_run_make(average, "allreduce", &params, &own->counting);
    return status
               ? status
               : weft_run_bind_name(own->counting.run, "recv", own->agreed, params.count, WEFT_F64);
}

static size_t basis_floats(const struct weft__gradiveq_group *group)
{
    return weft__gradiveq_compresses(group) ? group->slice * group->components : 0;
}

size_t weft__gradiveq_lay_out(struct weft__gradiveq *own)
{
    size_t floats = 0;
    for (size_t i = 0; i < own->group_count; i++) {
        struct weft__gradiveq_group *group = &own->groups[own->order[i]];
        group->basis = floats;
        floats += basis_floats(group);
    }
    return floats;
}

/* Bases of one owner lie one behind the other, and owners in the order of ranks. */
static int make_sharing(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    struct weft_template_params params;
    size_t *counts = weft_memory_alloc((size_t)average->ranks, sizeof *counts);
    if (!counts)
        return out_of_memory(average, "bases, ranks", (size_t)average->ranks);
    for (size_t g = 0; g < own->group_count; g++)
        counts[own->groups[g].owner] += basis_floats(&own->groups[g]);
    weft_template_params_init(&params);
    params.counts = counts;
    params.in_place = 1;
    int status = weft__compressed_run_make(average, "allgatherv", &params, &own->sharing);
    if (!status)
        status =
            weft_run_bind_name(own->sharing.run, "recv", own->basis, own->basis_count, WEFT_F32);
    weft_memory_free(counts);
    return status;
}

static int start_counting(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    int status = own->group_count ? weft__compressed_run_start(average, &own->counting) : WEFT_OK;
    if (!status)
        own->stage = WEFT__GRADIVEQ_COUNTING;
    return status;
}

static int start_sharing(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    const int rank = weft_context_rank(average->context);
    const int known = own->agreed[2 * own->group_count] == average->ranks;
    for (size_t g = 0; g < own->group_count; g++) {
        own->groups[g].components = known ? (size_t)own->agreed[2 * g] : 0;
        own->groups[g].loss =
            known ? (double)(float)own->agreed[2 * g + 1] : 0; /* as states have it */
    }
    own->basis_count = weft__gradiveq_lay_out(own);
    own->stage = WEFT__GRADIVEQ_SHARING;
    if (!own->basis_count)
        return WEFT_OK;
    own->basis = weft_context_memory_alloc(average->context, own->basis_count, sizeof(float));
    if (!own->basis)
        return out_of_memory(average, "bases", own->basis_count);
    for (size_t g = 0; g < own->group_count; g++) {
        const struct weft__gradiveq_group *group = &own->groups[g];
        if (group->owner == rank)
            memcpy(own->basis + group->basis, own->samples + group->samples,
                   basis_floats(group) * sizeof(float));
    }
    int status = make_sharing(average);
    return status ? status : weft__compressed_run_start(average, &own->sharing);
}

static int end_sharing(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    weft__compressed_run_free(average, &own->sharing);
    own->stage = WEFT__GRADIVEQ_NONE;
    return weft__gradiveq_make_run(average);
}

static int go_on(struct weft_compressed_average *average, uint64_t until)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    const uint64_t samples = own->phase.samples + (own->finite != 0);
    int status = WEFT_OK;
    if (own->stage == WEFT__GRADIVEQ_NONE) {
        weft__gradiveq_settle_means(average, samples);
        memset(own->agreed, 0, 2 * own->group_count * sizeof *own->agreed);
        own->agreed[2 * own->group_count] = 1;
        own->found = 0;
        own->stage = WEFT__GRADIVEQ_FINDING;
    }
    if (own->stage == WEFT__GRADIVEQ_FINDING) {
        status = weft__gradiveq_find(average, samples, until);
        if (!status)
            status = start_counting(average);
    }
    if (!status && own->stage == WEFT__GRADIVEQ_COUNTING) {
        if (own->counting.run)
            status = weft__compressed_run_wait(average, &own->counting, until);
        if (!status)
            status = start_sharing(average);
    }
    if (!status && own->stage == WEFT__GRADIVEQ_SHARING) {
        if (own->sharing.run)
            status = weft__compressed_run_wait(average, &own->sharing, until);
        if (!status)
            status = end_sharing(average);
    }
    return status;
}

int weft__gradiveq_make(struct weft_compressed_average *average, uint64_t until)
{
    int status = go_on(average, until);
    return status && status != WEFT_IN_PROGRESS ? weft__compressed_fail(average, status) : status;
}

/* ---- the run of a phase ---- */

struct blocks {
    struct weft_compressed_block *list;
    size_t count;
    double sent;
};

/* Elements that are sent as they are: one block, as long as no slices come between. */
static void add_raw(struct blocks *blocks, size_t count)
{
    struct weft_compressed_block *last = blocks->count ? &blocks->list[blocks->count - 1] : NULL;
    blocks->sent += (double)count;
    if (last && !last->slice)
        last->count += count;
    else if (count)
        blocks->list[blocks->count++] = (struct weft_compressed_block){.count = count};
}

static void list_blocks(const struct weft_compressed_average *average, struct blocks *blocks)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    size_t at = 0;
    for (size_t g = 0; g < own->group_count; g++) {
        const struct weft__gradiveq_group *group = &own->groups[g];
        size_t slices = group->count / group->slice + (group->count % group->slice != 0);
        if (!weft__gradiveq_compresses(group))
            continue;
        add_raw(blocks, group->offset - at);
        blocks->list[blocks->count++] = (struct weft_compressed_block){
            .count = group->count, .slice = group->slice, .components = group->components};
        blocks->sent += (double)(slices * group->components);
        at = group->offset + group->count;
    }
    add_raw(blocks, average->model.count + 1 - at); /* and the vote */
}

static int bind_slot(struct weft_run *run, const char *kind, size_t block, const float *data,
                     size_t count)
{
    char name[48];
    snprintf(name, sizeof name, "%s.%zu", kind, block);
    return weft_run_bind_input_name(run, name, data, count, WEFT_F32);
}

static int bind(struct weft_compressed_average *average, const struct blocks *blocks)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    struct weft_run *run = own->run.run;
    const size_t count = average->model.count + 1;
    size_t block = 0;
    int status = weft_run_bind_input_name(run, "send", average->values, count, WEFT_F32);
    if (!status)
        status = weft_run_bind_name(run, "recv", average->sum, count, WEFT_F32);
    if (!status && own->basis_count)
        status = weft_run_bind_name(run, "squares", own->squares, own->square_count, WEFT_F64);
    for (size_t g = 0; g < own->group_count && !status; g++) {
        const struct weft__gradiveq_group *group = &own->groups[g];
        if (!weft__gradiveq_compresses(group))
            continue;
        while (!blocks->list[block].slice)
            block++;
        status = bind_slot(run, "basis", block, own->basis + group->basis, basis_floats(group));
        if (!status)
            status = bind_slot(run, "mean", block, own->mean + group->offset, group->count);
        block++;
    }
    return status;
}

/* Where residuals are kept: what a rank's share of a block is as components. */
static int make_scratch(struct weft_compressed_average *average, const struct blocks *blocks)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    size_t most = 0;
    for (size_t b = 0; b < blocks->count; b++) {
        const struct weft_compressed_block *block = &blocks->list[b];
        size_t slices = block->slice ? (block->count - 1) / block->slice + 1 : 0;
        most = slices * block->components > most ? slices * block->components : most;
    }
    own->scratch = average->keeps && most ? weft_memory_alloc(most, sizeof *own->scratch) : NULL;
    return own->scratch || !average->keeps || !most ? WEFT_OK
                                                    : out_of_memory(average, "components", most);
}

int weft__gradiveq_make_run(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    struct weft_template_params params;
    struct blocks blocks = {.list =
                                weft_memory_alloc(2 * own->group_count + 1, sizeof *blocks.list)};
    if (!blocks.list)
        return out_of_memory(average, "blocks", own->group_count);
    list_blocks(average, &blocks);
    weft_template_params_init(&params);
    params.blocks = blocks.list;
    params.block_count = blocks.count;
    params.algo = own->algo[0] ? own->algo : NULL;
    own->bits = 32 * blocks.sent / (double)average->model.count;
    own->square_count = 3 * blocks.count;
    own->squares = weft_memory_alloc(own->square_count, sizeof *own->squares);
    int status = own->squares ? make_scratch(average, &blocks)
                              : out_of_memory(average, "squares", own->square_count);
    if (!status)
        status = weft__compressed_run_make(average, "projected-allreduce", &params, &own->run);
    if (!status)
        status = bind(average, &blocks);
    weft_memory_free(blocks.list);
    return status;
}

void weft__gradiveq_free_run(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    weft__compressed_run_free(average, &own->run);
    weft_memory_free(own->scratch);
    weft_memory_free(own->squares);
    weft_context_memory_free(average->context, own->basis);
    own->scratch = NULL;
    own->squares = NULL;
    own->basis = NULL;
    own->basis_count = own->square_count = 0;
}

/* ---- compressed steps ---- */

/* Over all ranks this adds up to the sum: U U^T (x - mean / N) + mean / N. */
static void find_sent(struct weft_compressed_average *average)
{
    const struct weft__gradiveq *own = weft__gradiveq_of(average);
    const double share = 1.0 / average->ranks;
    memcpy(average->sent, average->values, average->model.count * sizeof *average->sent);
    for (size_t g = 0; g < own->group_count; g++) {
        const struct weft__gradiveq_group *group = &own->groups[g];
        const struct weft_projection projection = {.struct_size = sizeof projection,
                                                   .slice = group->slice,
                                                   .components = group->components,
                                                   .basis = own->basis + group->basis};
        const float *mean = own->mean + group->offset;
        float *sent = average->sent + group->offset;
        if (!weft__gradiveq_compresses(group))
            continue;
        weft_project(&projection, average->values + group->offset, group->count, mean, share,
                     own->scratch, NULL);
        for (size_t i = 0; i < group->count; i++)
            sent[i] = (float)(share * mean[i]);
        weft_reconstruct(&projection, own->scratch, group->count, sent, sent);
    }
}

/* Equation 7: with columns that are orthonormal the loss is what components do not have. */
void weft__gradiveq_end(struct weft_compressed_average *average)
{
    struct weft__gradiveq *own = weft__gradiveq_of(average);
    const double bound = average->gradiveq.loss_bound;
    double values = 0, dropped = 0;
    for (size_t i = 0; i < own->square_count; i += 3) {
        values += own->squares[i];
        dropped += own->squares[i + 1] - own->squares[i + 2];
    }
    /* Components of finite gradients may be more than a float can be. */
    const int known = isfinite(values) && isfinite(dropped);
    average->step.bits = own->bits;
    average->step.squares = known ? values : 0;
    average->step.dropped = known && dropped > 0 ? dropped : 0;
    if (!known || dropped > 0) /* what rounding leaves may be less */
        average->step.loss = known && values > 0 ? dropped / values : -1;
    own->vote = bound > 0 && average->step.loss > bound;
    if (average->keeps)
        find_sent(average);
}
