/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Synchronous SGD with sparse gradients (weft/sparse_average.h): of gradients and residuals a rank
 * sends the k entries of largest magnitude, and keeps the others for the steps to come.
 *
 *     topk      all that ranks send is added up: up to k entries a rank (allgather)
 *     gtopk     the k largest of the sums stay, and k pairs travel in each round
 *     oktopk    about the k largest of the sums stay, added up by regions, each of one rank
 *
 * Delayed, they are that with each sum applied one step late. The ranks' models are one all the
 * time. With --momentum-correction the object has the momentum, of what a rank sends, and the
 * optimizer none.
 */
#include "tools/train/sparse.h"

#include "tools/train/backend.h"
#include "tools/train/yardsticks.h"

/* Of an object: of what it looks at, selects, and with Ok-Topk drops. */
enum { STREAMS = 3 };

struct sparse {
    struct weft_sparse_average *average;
    struct backend *backend;
    const struct weft_piece *gradients;
    size_t tensors;
    size_t elements;
    struct weft_sparse_average_result last;
};

/* The warm-up of the gTop-k paper (section IV-B), as far as it is above the density that follows.
 */
static const double warmup[] = {0.25, 0.0725, 0.015, 0.004};

static size_t count_warmup(const struct train_sparse_options *options, struct model *model,
                           int grouped)
{
    size_t lists = options->per_layer && !grouped ? model_tensor_count(model) : 1;
    double density = options->density;
    size_t count = 0;

    if (options->k > 0)
        density = (double)options->k * (double)lists / (double)model_parameter_count(model);
    while (count < sizeof warmup / sizeof warmup[0] && warmup[count] > density)
        count++;
    return count;
}

void train_sparse_config(struct weft_sparse_average_config *config, const struct train_setup *setup,
                         weft_sparse_method_t method, int grouped)
{
    const struct train_sparse_options *options = &setup->options->sparse;

    weft_sparse_average_config_init(config);
    if (!grouped) {
        config->tensors = setup->gradients;
        config->tensor_count = model_tensor_count(setup->model);
        config->scope = options->per_layer ? WEFT_SPARSE_TENSOR : WEFT_SPARSE_MODEL;
        config->memory =
            model_backend(setup->model)->stream ? WEFT_MEMORY_DEVICE : WEFT_MEMORY_HOST;
    }
    config->method = method;
    config->residual = method == WEFT_SPARSE_OKTOPK ? WEFT_SPARSE_CONSERVING : options->residual;
    config->density = options->density;
    config->k = options->k;
    config->warmup = warmup;
    config->warmup_count = count_warmup(options, setup->model, grouped);
    config->warmup_steps = config->warmup_count > 0 ? options->warmup_steps : 0;
    config->momentum = options->momentum;
}

weft_sparse_method_t train_sparse_of_groups(const struct train_options *options)
{
    return options->merge_sparse == TRAIN_MERGE_GTOPK    ? options->sparse.gtopk
           : options->merge_sparse == TRAIN_MERGE_OKTOPK ? WEFT_SPARSE_OKTOPK
                                                         : WEFT_SPARSE_ALLGATHER;
}

static void sparse_destroy(void *state)
{
    struct sparse *sparse = state;

    if (sparse) {
        weft_sparse_average_destroy(sparse->average);
        weft_memory_free(sparse);
    }
}

/* From the state of an object before, if there is one. */
static int sparse_make(void **state, const struct train_setup *setup, weft_sparse_method_t method,
                       struct sparse *before)
{
    struct weft_sparse_average_state saved = {.struct_size = sizeof saved};
    struct sparse *sparse = weft_memory_alloc(1, sizeof *sparse);
    struct weft_sparse_average_config config;

    if (!sparse)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the state of sparse averaging");
    train_sparse_config(&config, setup, method, 0);
    sparse->gradients = config.tensors;
    sparse->tensors = config.tensor_count;
    sparse->elements = model_parameter_count(setup->model);
    sparse->backend = model_backend(setup->model);
    int status = before ? weft_sparse_average_get_state(before->average, &saved) : WEFT_OK;
    saved.regions = NULL; /* they are of more ranks */
    saved.region_count = 0;
    config.state = before ? &saved : NULL;
    if (status == WEFT_OK)
        status = weft_sparse_average_create(&sparse->average, setup->context, &config);
    if (status != WEFT_OK) {
        weft_memory_free(sparse);
        return status;
    }
    if (before)
        sparse->last = before->last;
    sparse_destroy(before);
    *state = sparse;
    return WEFT_OK;
}

/* The object finds the gradients as they were asked to be. */
static int settle(const struct sparse *sparse)
{
    return sparse->backend->ops->settle(sparse->backend);
}

static int sparse_post(void *state, uint64_t step)
{
    struct sparse *sparse = state;
    int status = settle(sparse);

    (void)step;
    return status == WEFT_OK ? weft_sparse_average_post(sparse->average) : status;
}

static int sparse_wait(void *state, uint64_t step)
{
    struct sparse *sparse = state;
    struct backend *backend = sparse->backend;

    (void)step;
    sparse->last.struct_size = sizeof sparse->last;
    int status = weft_sparse_average_wait(sparse->average, &sparse->last);
    int cleared = backend->ops->clear(backend, sparse->gradients[0].data, sparse->elements);
    if (status == WEFT_OK)
        status = cleared;
    if (status == WEFT_OK)
        status = settle(sparse);
    return status == WEFT_OK ? weft_sparse_average_apply(sparse->average, 1.0, WEFT_F32,
                                                         sparse->gradients, sparse->tensors)
                             : status;
}

static int sparse_step(void *state, uint64_t step)
{
    struct sparse *sparse = state;
    int status = settle(sparse);

    (void)step;
    sparse->last.struct_size = sizeof sparse->last;
    return status == WEFT_OK ? weft_sparse_average_step(sparse->average, &sparse->last) : status;
}

static double sparse_momentum(const struct train_options *options)
{
    return options->sparse.momentum > 0.0 ? 0.0 : options->momentum;
}

static void sparse_statistics(void *state, struct train_statistics *stats)
{
    struct sparse *sparse = state;
    struct weft_sparse_average_stats counted = {.struct_size = sizeof counted};

    if (weft_sparse_average_get_stats(sparse->average, &counted) == WEFT_OK) {
        stats->k = sparse->last.k;
        stats->selected_share = (double)counted.selected / (double)counted.elements;
    }
}

static int sparse_keeps(const struct train_options *options)
{
    (void)options;
    return 1;
}

static int sparse_leave(const struct train_options *options, int ranks, uint64_t step,
                        const double *arrived, double *left)
{
    (void)options, (void)step;
    train_leave_together(ranks, arrived, left);
    return WEFT_OK;
}

static int topk_create(void **state, const struct train_setup *setup)
{
    return sparse_make(state, setup, WEFT_SPARSE_ALLGATHER, NULL);
}

static int topk_again(void **state, const struct train_setup *setup)
{
    return sparse_make(state, setup, WEFT_SPARSE_ALLGATHER, *state);
}

static int gtopk_create(void **state, const struct train_setup *setup)
{
    return sparse_make(state, setup, setup->options->sparse.gtopk, NULL);
}

static int gtopk_again(void **state, const struct train_setup *setup)
{
    return sparse_make(state, setup, setup->options->sparse.gtopk, *state);
}

static int oktopk_create(void **state, const struct train_setup *setup)
{
    return sparse_make(state, setup, WEFT_SPARSE_OKTOPK, NULL);
}

static int oktopk_again(void **state, const struct train_setup *setup)
{
    return sparse_make(state, setup, WEFT_SPARSE_OKTOPK, *state);
}

const struct train_algorithm train_topk = {
    .name = "topk",
    .summary = "sparse gradients: the --density largest entries of each rank, added up",
    .sparse = TRAIN_SPARSE,
    .create = topk_create,
    .again = topk_again,
    .one_model = 1,
    .streams = STREAMS,
    .keeps_gradients = sparse_keeps,
    .momentum = sparse_momentum,
    .gradients = {sparse_step, sparse_post, sparse_wait},
    .stats = sparse_statistics,
    .destroy = sparse_destroy,
    .leave = sparse_leave,
};

const struct train_algorithm train_gtopk = {
    .name = "gtopk",
    .summary = "the same, and of their sums the --density largest",
    .sparse = TRAIN_SPARSE_MERGED,
    .create = gtopk_create,
    .again = gtopk_again,
    .one_model = 1,
    .streams = STREAMS,
    .keeps_gradients = sparse_keeps,
    .momentum = sparse_momentum,
    .gradients = {sparse_step, sparse_post, sparse_wait},
    .stats = sparse_statistics,
    .destroy = sparse_destroy,
    .leave = sparse_leave,
};

const struct train_algorithm train_oktopk = {
    .name = "oktopk",
    .summary = "the same, summed by regions of the model, and about --density of the sums kept",
    .sparse = TRAIN_SPARSE,
    .create = oktopk_create,
    .again = oktopk_again,
    .one_model = 1,
    .streams = STREAMS,
    .keeps_gradients = sparse_keeps,
    .momentum = sparse_momentum,
    .gradients = {sparse_step, sparse_post, sparse_wait},
    .stats = sparse_statistics,
    .destroy = sparse_destroy,
    .leave = sparse_leave,
};
