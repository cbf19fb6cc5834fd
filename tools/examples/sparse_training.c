/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { LAYERS = 3, WIDTH = 400, BATCH = 16, STEPS = 1000 };
#define RATE 0.02

/* y = the sum over layers of inputs . weights; every rank learns it from samples of its own. */
struct model {
    float weights[LAYERS][WIDTH];
    float gradients[LAYERS][WIDTH];
    float inputs[BATCH][LAYERS][WIDTH];
    float errors[BATCH];
    struct weft_piece weight_list[LAYERS], gradient_list[LAYERS];
    uint64_t random;
};

static float draw(struct model *model)
{
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(model->random >> 40) * 0x1p-23F - 1;
}

/* What is to be learnt: a few weights that matter, many that hardly do. */
static float truth(int layer, int i)
{
    return (i + layer) % 50 ? 0.01F : 1;
}

static void load_batch(struct model *model)
{
    for (int b = 0; b < BATCH; b++) {
        model->errors[b] = 0;
        for (int l = 0; l < LAYERS; l++)
            for (int i = 0; i < WIDTH; i++)
                model->inputs[b][l][i] = draw(model);
    }
}

static void forward(struct model *model, int layer)
{
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < WIDTH; i++)
            model->errors[b] +=
                model->inputs[b][layer][i] * (model->weights[layer][i] - truth(layer, i));
}

static void backward(struct model *model, int layer)
{
    for (int i = 0; i < WIDTH; i++) {
        model->gradients[layer][i] = 0;
        for (int b = 0; b < BATCH; b++)
            model->gradients[layer][i] += model->errors[b] * model->inputs[b][layer][i] / BATCH;
    }
}

/* The square of the distance from the truth. */
static double square(const struct model *model)
{
    double sum = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < WIDTH; i++) {
            double wrong = (double)(model->weights[l][i] - truth(l, i));
            sum += wrong * wrong;
        }
    return sum;
}

static void start(struct model *model, int rank)
{
    *model = (struct model){.random = (uint64_t)rank + 1};
    for (int l = 0; l < LAYERS; l++) {
        model->weight_list[l] = (struct weft_piece){model->weights[l], WIDTH};
        model->gradient_list[l] = (struct weft_piece){model->gradients[l], WIDTH};
    }
}

/* [whole] */
/* The k largest entries of the whole gradient. The sum travels while the next samples are read. */
static int train_whole(struct weft_sparse_average *average, struct model *model)
{
    int status = WEFT_OK;
    load_batch(model);
    for (int step = 0; step < STEPS && !status; step++) {
        for (int l = 0; l < LAYERS; l++)
            forward(model, l);
        for (int l = LAYERS - 1; l >= 0; l--)
            backward(model, l);
        status = weft_sparse_average_post(average); /* the gradients are free from here on */
        load_batch(model);
        if (!status)
            status = weft_sparse_average_wait(average, NULL);
        if (!status)
            status =
                weft_sparse_average_apply(average, -RATE, WEFT_F32, model->weight_list, LAYERS);
    }
    return status;
}
/* [whole] */

/* [layers] */
/* The k largest entries of each layer, whose sum travels from its backward pass to its next forward
 * pass. No layer is computed with weights that are not up to date. */
static int train_layers(struct weft_sparse_average *average, struct model *model)
{
    int status = WEFT_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        load_batch(model);
        for (size_t l = 0; l < LAYERS && !status; l++) {
            if (step > 0)
                status = weft_sparse_average_wait_tensor(average, l, NULL);
            if (step > 0 && !status)
                status = weft_sparse_average_apply_tensor(average, l, -RATE, WEFT_F32,
                                                          model->weights[l]);
            forward(model, (int)l);
        }
        for (size_t l = LAYERS; l > 0 && !status; l--) {
            backward(model, (int)l - 1);
            status = weft_sparse_average_post_tensor(average, l - 1);
        }
    }
    if (!status)
        status = weft_sparse_average_wait(average, NULL);
    if (!status)
        status = weft_sparse_average_apply(average, -RATE, WEFT_F32, model->weight_list, LAYERS);
    return status;
}
/* [layers] */

/* [create] */
static int train(struct weft_context *context, struct model *model, weft_sparse_scope_t scope)
{
    struct weft_sparse_average_config config;
    struct weft_sparse_average_stats stats = {.struct_size = sizeof stats};
    struct weft_sparse_average *average = NULL;
    weft_sparse_average_config_init(&config);
    config.tensors = model->gradient_list;
    config.tensor_count = LAYERS;
    config.scope = scope;
    config.density = 0.01;
    config.warmup_steps = 10; /* of 0.25, 0.0725, 0.015 and 0.004 each, then the above */
    int status = weft_sparse_average_create(&average, context, &config); /* collective */
    if (!status)
        status = (scope == WEFT_SPARSE_MODEL ? train_whole : train_layers)(average, model);
    if (!status && !weft_sparse_average_get_stats(average, &stats) &&
        weft_context_rank(context) == 0)
        printf("%s: a squared error of %.3f, %.1f%% of the gradients were sent\n",
               scope == WEFT_SPARSE_MODEL ? "whole model" : "by layers", square(model),
               100 * (double)stats.selected / (double)stats.elements);
    weft_sparse_average_destroy(average);
    return status;
}
/* [create] */

static int train_both(struct weft_context *context, void *user)
{
    static struct model models[64];
    int rank = weft_context_rank(context);
    (void)user;
    start(&models[rank], rank);
    if (rank == 0)
        printf("at the start: a squared error of %.3f\n", square(&models[0]));
    int status = train(context, &models[rank], WEFT_SPARSE_MODEL);
    start(&models[rank], rank);
    return status ? status : train(context, &models[rank], WEFT_SPARSE_TENSOR);
}

/* Local ranks, as many as the first argument says: 1 .. 64. */
int main(int argc, char **argv)
{
    struct weft_context_config config;
    int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;
    if (ranks < 1 || ranks > 64) {
        fputs("usage: sparse_training [RANKS], from 1 to 64\n", stderr);
        return 2;
    }
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER; /* sums travel while ranks compute */
    int status = weft_local_run(ranks, &config, train_both, NULL);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    return status != WEFT_OK;
}
