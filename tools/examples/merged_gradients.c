/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { LAYERS = 8, WIDTH = 200, BATCH = 8, STEPS = 2000 };
#define RATE 0.01F

/* y = the sum over layers of inputs . weights; every rank learns it from samples of its own. */
struct model {
    float weights[LAYERS][WIDTH];
    float gradients[LAYERS][WIDTH];
    float inputs[BATCH][LAYERS][WIDTH];
    float errors[BATCH];
    uint64_t random;
};

static float draw(struct model *model)
{
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(model->random >> 40) * 0x1p-23F - 1;
}

static float truth(int layer, int i)
{
    return (float)((i + layer) % 7) - 3;
}

static void forward(struct model *model, int layer)
{
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < WIDTH; i++) {
            float wrong = model->weights[layer][i] - truth(layer, i);
            model->inputs[b][layer][i] = draw(model);
            model->errors[b] =
                (layer || i ? model->errors[b] : 0) + model->inputs[b][layer][i] * wrong;
        }
}

static void backward(struct model *model, int layer)
{
    for (int i = 0; i < WIDTH; i++) {
        model->gradients[layer][i] = 0;
        for (int b = 0; b < BATCH; b++)
            model->gradients[layer][i] += model->errors[b] * model->inputs[b][layer][i] / BATCH;
    }
}

static void update(struct model *model, int layer)
{
    for (int i = 0; i < WIDTH; i++)
        model->weights[layer][i] -= RATE * model->gradients[layer][i];
}

static double distance(const struct model *model)
{
    double sum = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < WIDTH; i++) {
            double wrong = (double)(model->weights[l][i] - truth(l, i));
            sum += wrong * wrong / (LAYERS * WIDTH);
        }
    return sum;
}

/* [train] */
/* A layer's average is waited for where the next forward pass needs it: what is still on its way
 * then is of layers that come later. */
static int train(struct weft_gradients *gradients, struct model *model)
{
    int status = WEFT_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        for (int l = 0; l < LAYERS && !status; l++) {
            status = weft_gradients_wait(gradients, (size_t)l); /* at first there is none */
            update(model, l);
            forward(model, l);
        }
        for (int l = LAYERS - 1; l >= 0 && !status; l--) {
            backward(model, l);
            status = weft_gradients_ready(gradients, (size_t)l);
        }
    }
    if (!status)
        status = weft_gradients_wait_all(gradients, NULL);
    for (int l = 0; l < LAYERS; l++)
        update(model, l);
    return status;
}
/* [train] */

/* [create] */
static int create(struct weft_gradients **gradients, struct weft_context *context,
                  struct model *model)
{
    struct weft_gradients_config config;
    struct weft_piece tensors[LAYERS];
    for (int l = 0; l < LAYERS; l++)
        tensors[l] = (struct weft_piece){model->gradients[l], WIDTH};
    weft_gradients_config_init(&config);
    config.tensors = tensors; /* a layer each; the memory is borrowed, the list is copied */
    config.tensor_count = LAYERS;
    return weft_gradients_create(gradients, context, &config);
}
/* [create] */

static int run(struct weft_context *context, void *unused)
{
    struct weft_gradients *gradients = NULL;
    struct model *model = calloc(1, sizeof *model);
    (void)unused;
    if (!model)
        return WEFT_ERR_MEMORY;
    model->random = (uint64_t)weft_context_rank(context) + 1;
    double before = distance(model);
    int status = create(&gradients, context, model);
    if (!status)
        status = train(gradients, model);
    if (status)
        fprintf(stderr, "merged_gradients: %s\n", weft_error_text());
    else if (weft_context_rank(context) == 0)
        printf("%d ranks, %d steps: mean square distance from the truth %.2f, then %.2f\n",
               weft_context_size(context), STEPS, before, distance(model));
    weft_gradients_destroy(gradients);
    free(model);
    return status;
}

/* Local ranks, as many as the first argument says: 1 .. 64. */
int main(int argc, char **argv)
{
    struct weft_context_config config;
    int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;
    if (ranks < 1 || ranks > 64) {
        fputs("usage: merged_gradients [RANKS], from 1 to 64\n", stderr);
        return 2;
    }
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER; /* sums travel while ranks compute */
    return weft_local_run(ranks, &config, run, NULL) != WEFT_OK;
}
