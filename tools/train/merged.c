/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Synchronous SGD whose gradients are averaged while the backward pass goes on (weft/gradients.h):
 * each layer is announced when its gradient is there, neighbours are sent together as --merge says,
 * and the next forward pass waits for each layer before it uses it, or for all (--merge-wait). Each
 * update is by the mean gradient of its own step, as in allreduce. With --merge-sparse groups
 * are made sparse, with --merge-compress compressed, each for itself.
 *
 * Where ranks die those that are left take over times and residuals. In a step that failed on the
 * way some layers' gradients may be in the residual already: where that step is taken again they
 * are absent.
 */
#include "tools/train/merged.h"

#include "tools/train/algorithm.h"
#include "tools/train/compressed.h"
#include "tools/train/sparse.h"
#include "tools/train/yardsticks.h"

#include <math.h>
#include <string.h>
#include <weft/gradients.h>

struct merged {
    struct weft_gradients *gradients;
    size_t layers;
    /** Of the step under way that have been waited for. */
    size_t waited;
    /** Steps whose layers have all been announced; how many layers of the next one, and whether one
     *  of them was to be. */
    uint64_t steps;
    size_t announced;
    int begun;
    /** By layer, 1: its gradient of the next step is in the residual. Owned. */
    unsigned char *kept;
    /** With the plan in force, which is the number-th. */
    uint64_t plans;
    double communication_ns;
    double hidden_ns;
    enum train_compression compression;
    size_t tensors;
    struct train_compression_tally tally;
};

static int make_object(struct merged *merged, const struct train_setup *setup,
                       const size_t *layer_tensors, const struct weft_gradients_state *state)
{
    const struct train_options *options = setup->options;
    struct train_compressed_config compressed = {.shapes = NULL};
    struct weft_sparse_average_config sparse;
    struct weft_gradients_config config;
    int status = WEFT_OK;

    weft_gradients_config_init(&config);
    config.tensors = setup->gradients;
    config.tensor_count = model_tensor_count(setup->model);
    config.layer_tensors = layer_tensors;
    config.layer_count = merged->layers;
    config.merge = &options->merge;
    config.state = state;
    if (options->merge_sparse != TRAIN_MERGE_DENSE) {
        train_sparse_config(&sparse, setup, train_sparse_of_groups(options), 1);
        config.method = WEFT_GRADIENTS_SPARSE;
        config.sparse = &sparse;
    }
    if (options->merge_compress != TRAIN_COMPRESS_NONE) {
        status = train_compressed_config_create(&compressed, setup, options->merge_compress);
        compressed.average.tensors = NULL;
        compressed.average.tensor_count = 0;
        config.method = WEFT_GRADIENTS_COMPRESSED;
        config.compressed = &compressed.average;
    }
    merged->compression = options->merge_compress;
    merged->tensors = config.tensor_count;
    if (status == WEFT_OK)
        status = weft_gradients_create(&merged->gradients, setup->context, &config);
    train_compressed_config_free(&compressed);
    if (status == WEFT_OK)
        merged->plans = state ? state->stats.plans + 1 : 1;
    return status;
}

static void free_state(struct merged *merged)
{
    if (merged)
        weft_memory_free(merged->kept);
    weft_memory_free(merged);
}

/* From what an object before has left, if there was one. */
static int make(void **state, const struct train_setup *setup,
                const struct weft_gradients_state *saved)
{
    struct merged *merged = weft_memory_alloc(1, sizeof *merged);
    size_t layers = model_layer_count(setup->model);
    size_t *layer_tensors = weft_memory_alloc(layers, sizeof *layer_tensors);
    int status = WEFT_OK;

    if (merged)
        merged->kept = weft_memory_alloc(layers + 1, 1);
    if (!merged || !layer_tensors || !merged->kept)
        status = weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu layers", layers);
    for (size_t l = 0; l < layers && status == WEFT_OK; l++) {
        struct model_layer layer;
        model_get_layer(setup->model, l, &layer);
        layer_tensors[l] = layer.tensor_count;
    }
    if (status == WEFT_OK) {
        merged->layers = layers;
        merged->steps = setup->step;
        status = make_object(merged, setup, layer_tensors, saved);
    }
    weft_memory_free(layer_tensors);
    if (status != WEFT_OK) {
        free_state(merged);
        return status;
    }
    *state = merged;
    return WEFT_OK;
}

static int merged_create(void **state, const struct train_setup *setup)
{
    return make(state, setup, NULL);
}

static void merged_destroy(void *state)
{
    struct merged *merged = state;

    if (merged)
        weft_gradients_destroy(merged->gradients);
    free_state(merged);
}

/* What is in the residual of the step that comes next: all of one that this rank alone had
 * announced, or a part of one that it had not. */
static void keep(struct merged *merged, const struct merged *before, uint64_t next,
                 const unsigned char *kept)
{
    for (size_t l = 0; l < merged->layers && kept; l++)
        merged->kept[l] = before->steps > next || before->kept[l] || (before->begun && kept[l]);
}

static int merged_again(void **state, const struct train_setup *setup)
{
    struct weft_gradients_state saved = {.struct_size = sizeof saved};
    struct merged *before = *state;
    int status = weft_gradients_get_state(before->gradients, &saved);

    if (status == WEFT_OK)
        status = make(state, setup, &saved);
    if (status != WEFT_OK)
        return status;
    struct merged *merged = *state;
    keep(merged, before, setup->step, saved.kept);
    merged->tally = before->tally;
    merged_destroy(before);
    return WEFT_OK;
}

static int merged_keeps(const struct train_options *options)
{
    return options->merge_sparse != TRAIN_MERGE_DENSE ||
           train_compressed_keeps(options, options->merge_compress);
}

static int merged_ready(void *state, size_t layer)
{
    struct merged *merged = state;

    merged->begun = 1;
    int status = merged->kept[layer] ? weft_gradients_absent(merged->gradients, layer)
                                     : weft_gradients_ready(merged->gradients, layer);
    if (status != WEFT_OK || ++merged->announced < merged->layers)
        return status;
    memset(merged->kept, 0, merged->layers);
    merged->announced = 0;
    merged->begun = 0;
    merged->steps++;
    return WEFT_OK;
}

/* A step has ended: what was hidden in those of the plan in force. */
static int count_step(struct merged *merged)
{
    struct weft_gradients_result result = {.struct_size = sizeof result};
    struct weft_gradients_stats stats = {.struct_size = sizeof stats};
    int status = weft_gradients_get_result(merged->gradients, &result);

    if (status == WEFT_OK)
        status = weft_gradients_get_stats(merged->gradients, &stats);
    if (status != WEFT_OK)
        return status;
    merged->communication_ns += (double)result.communication_ns;
    merged->hidden_ns += (double)result.hidden_ns;
    if (result.compressed_groups > 0)
        train_compression_count(&merged->tally, result.bits, result.loss);
    if (stats.plans != merged->plans) {
        /* The next step is the first of a new one. */
        merged->communication_ns = merged->hidden_ns = 0.0;
        merged->plans = stats.plans;
    }
    return WEFT_OK;
}

static int merged_wait(void *state, size_t layer)
{
    struct merged *merged = state;
    int status = weft_gradients_wait(merged->gradients, layer);

    if (status != WEFT_OK || ++merged->waited < merged->layers)
        return status;
    merged->waited = 0;
    return count_step(merged);
}

/* The groups of a plan, and when the sum of each layer is there. */
static int copy_groups(struct train_merged *merged, const struct weft_gradients_plan *plan)
{
    int status = WEFT_OK;

    for (size_t g = 0; g < plan->group_count && status == WEFT_OK; g++) {
        struct weft_merge_group group = {.struct_size = sizeof group};
        status = weft_merge_plan_get_group(plan->merge, g, &group);
        if (status != WEFT_OK)
            break;
        merged->group_layers[merged->group_count++] = group.layer_count;
        for (size_t i = 0; i < group.layer_count; i++) {
            size_t layer = plan->order[group.layers[i]];
            merged->layers[merged->layer_count++] = layer;
            merged->end_us[layer] = group.end_us;
        }
    }
    return status;
}

static int merged_describe(void *state, struct train_merged *result)
{
    struct merged *merged = state;
    struct weft_gradients_plan plan = {.struct_size = sizeof plan};
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    int status = weft_gradients_get_plan(merged->gradients, &plan);

    if (status == WEFT_OK)
        status = weft_merge_plan_get_summary(plan.merge, &summary);
    if (status != WEFT_OK)
        return status;
    *result = (struct train_merged){
        .layers = weft_memory_alloc(plan.layer_count, sizeof *result->layers),
        .group_layers = weft_memory_alloc(plan.group_count, sizeof *result->group_layers),
        .end_us = weft_memory_alloc(plan.layer_count, sizeof *result->end_us),
        .since = plan.since,
        .plans = merged->plans,
        .ready_us = summary.ready_us,
        .planned_hidden = summary.hidden_fraction,
        .hidden =
            merged->communication_ns > 0.0 ? merged->hidden_ns / merged->communication_ns : 1.0,
    };
    status = result->layers && result->group_layers && result->end_us
                 ? copy_groups(result, &plan)
                 : weft_error_set(WEFT_ERR_MEMORY, "no memory for a plan of %zu layers",
                                  plan.layer_count);
    if (status != WEFT_OK)
        train_merged_free(result);
    return status;
}

/* Of the groups that are furthest. */
static const char *merged_phase(void *state)
{
    struct merged *merged = state;

    return merged->compression == TRAIN_COMPRESS_NONE
               ? NULL
               : weft_compressed_phase_name(weft_gradients_phase(merged->gradients));
}

/* Who waits for nobody any more is told nothing of tensors. */
static int get_tensor(void *gradients, size_t tensor, struct weft_gradiveq_tensor *info)
{
    int status = weft_gradients_get_tensor(gradients, tensor, info);

    if (status == WEFT_ERR_STATE)
        *info = (struct weft_gradiveq_tensor){.struct_size = sizeof *info};
    return status == WEFT_ERR_STATE ? WEFT_OK : status;
}

/* What compression of groups came to, with the tensors that GradiVeQ projects. */
static int merged_compressed(void *state, struct train_compressed *result)
{
    struct merged *merged = state;
    const int projects = merged->compression == TRAIN_COMPRESS_GRADIVEQ;

    return train_compression_describe(&merged->tally, merged->tensors, projects ? get_tensor : NULL,
                                      merged->gradients, result);
}

static double merged_momentum(const struct train_options *options)
{
    return options->merge_sparse != TRAIN_MERGE_DENSE && options->sparse.momentum > 0.0
               ? 0.0
               : options->momentum;
}

static int merged_leave(const struct train_options *options, int ranks, uint64_t step,
                        const double *arrived, double *left)
{
    (void)options, (void)step;
    train_leave_together(ranks, arrived, left);
    return WEFT_OK;
}

void train_merged_free(struct train_merged *merged)
{
    weft_memory_free(merged->end_us);
    weft_memory_free(merged->group_layers);
    weft_memory_free(merged->layers);
    memset(merged, 0, sizeof *merged);
}

double train_merged_step_us(const struct train_merged *merged, const struct train_pace *pace,
                            double lead_us, int by_layers)
{
    double first = train_pace_backward_share(pace, merged->layer_count - 1);
    double shares = first;
    double at = merged->ready_us;

    for (size_t l = 0; l < merged->layer_count; l++) {
        shares += train_pace_forward_share(pace, l);
        if (!by_layers)
            at = fmax(at, merged->end_us[l]);
    }
    if (!by_layers || !(shares > 0.0))
        return at + lead_us;
    for (size_t l = 0; l < merged->layer_count; l++)
        at = fmax(at, merged->end_us[l]) + lead_us * train_pace_forward_share(pace, l) / shares;
    return at + lead_us * first / shares;
}

const struct train_algorithm train_merged = {
    .name = "merged",
    .summary = "the same, layer by layer while the gradient is computed, merged as --merge says",
    .merges = 1,
    .needs_helper = 1,
    .create = merged_create,
    .again = merged_again,
    .one_model = 1,
    .keeps_gradients = merged_keeps,
    .layers = {merged_ready, merged_wait, merged_describe},
    .phase = merged_phase,
    .describe = merged_compressed,
    .momentum = merged_momentum,
    .destroy = merged_destroy,
    .leave = merged_leave,
};
