/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum {
    OUTPUTS = 16,
    INPUTS = 8,
    SIDE = 3,
    PIXELS = SIDE * SIDE,
    BATCH = 16,
    STEPS = 900,
    CAUSES = 2
};
#define RATE 0.02F

/* Filters and biases of a convolution, which every rank learns from images of its own. */
struct model {
    float filters[OUTPUTS][INPUTS][SIDE][SIDE], biases[OUTPUTS];
    float filter_gradients[OUTPUTS][INPUTS][SIDE][SIDE], bias_gradients[OUTPUTS];
    uint64_t random;
};

static float draw(struct model *model)
{
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(model->random >> 40) * 0x1p-23F - 1;
}

/* What is to be learnt. */
static float truth(int output, int input, int pixel)
{
    return (float)((output * 7 + input * 3 + pixel * 5) % 11 - 5) / 10;
}

/* Channels and neighbours of an image depend on each other: a few causes make a row of it. That is
 * why gradients of convolutions are correlated, too. */
static void draw_image(struct model *model, float image[INPUTS][SIDE][SIDE])
{
    for (int y = 0; y < SIDE; y++) {
        float causes[CAUSES];
        for (int c = 0; c < CAUSES; c++)
            causes[c] = draw(model);
        for (int i = 0; i < INPUTS; i++)
            for (int x = 0; x < SIDE; x++)
                image[i][y][x] = causes[0] * truth(x, i, 1) + causes[1] * truth(i, 2, x);
    }
}

static void add_gradient(struct model *model, float image[INPUTS][SIDE][SIDE])
{
    const float *pixels = &image[0][0][0];
    for (int o = 0; o < OUTPUTS; o++) {
        float *weights = &model->filters[o][0][0][0];
        float *gradient = &model->filter_gradients[o][0][0][0];
        float wrong = model->biases[o] - 0.5F;
        for (int k = 0; k < INPUTS * PIXELS; k++)
            wrong += pixels[k] * (weights[k] - truth(o, k / PIXELS, k % PIXELS));
        for (int k = 0; k < INPUTS * PIXELS; k++)
            gradient[k] += wrong * pixels[k] / BATCH;
        model->bias_gradients[o] += wrong / BATCH;
    }
}

static void compute_gradients(struct model *model)
{
    memset(model->filter_gradients, 0, sizeof model->filter_gradients);
    memset(model->bias_gradients, 0, sizeof model->bias_gradients);
    for (int b = 0; b < BATCH; b++) {
        float image[INPUTS][SIDE][SIDE];
        draw_image(model, image);
        add_gradient(model, image);
    }
}

static void update(struct model *model)
{
    for (int o = 0; o < OUTPUTS; o++) {
        float *weights = &model->filters[o][0][0][0];
        for (int k = 0; k < INPUTS * PIXELS; k++)
            weights[k] -= RATE * (&model->filter_gradients[o][0][0][0])[k];
        model->biases[o] -= RATE * model->bias_gradients[o];
    }
}

/* What the next batch's outputs are wrong by is what the gradient of the biases is the mean of. */
static double square(struct model *model)
{
    double sum = 0;
    compute_gradients(model);
    for (int o = 0; o < OUTPUTS; o++)
        sum += (double)model->bias_gradients[o] * (double)model->bias_gradients[o];
    return sum;
}

/* [create] */
static int create(struct weft_compressed_average **average, struct weft_context *context,
                  struct model *model, weft_compressed_method_t method)
{
    const struct weft_piece tensors[] = {{model->filter_gradients, OUTPUTS * INPUTS * PIXELS},
                                         {model->bias_gradients, OUTPUTS}};
    const struct weft_tensor_shape shapes[] = {{WEFT_TENSOR_OIHW, OUTPUTS, INPUTS, SIDE, SIDE},
                                               {WEFT_TENSOR_VECTOR, 0, 0, 0, 0}};
    struct weft_compressed_average_config config;
    struct weft_quantiser quantiser;
    struct weft_gradiveq_config gradiveq;
    struct weft_powersgd_config powersgd;
    weft_quantiser_init(&quantiser);
    quantiser.bits = 4;
    weft_gradiveq_config_init(&gradiveq);
    gradiveq.warmup_steps = 50; /* the paper has 2500 of 45000 steps */
    gradiveq.sample_steps = 100;
    gradiveq.sample_bits = 8; /* the noise of 4 bits takes many components to hold */
    weft_powersgd_config_init(&powersgd);
    powersgd.rank = 2;
    weft_compressed_average_config_init(&config);
    config.tensors = tensors;
    config.tensor_count = 2;
    config.shapes = shapes; /* as the trainer holds them: the object rearranges them itself */
    config.method = method;
    config.quantiser = &quantiser;
    config.gradiveq = &gradiveq;
    config.powersgd = &powersgd;
    return weft_compressed_average_create(average, context, &config); /* collective */
}
/* [create] */

/* [train] */
static int train(struct weft_compressed_average *average, struct model *model)
{
    int status = WEFT_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        compute_gradients(model);
        status = weft_compressed_average_step(average, NULL); /* gradients are the mean now */
        if (!status)
            update(model);
    }
    return status;
}
/* [train] */

static const char *const names[] = {"gradiveq", "qsgd", "powersgd"};

static int train_by(struct weft_context *context, weft_compressed_method_t method)
{
    static struct model models[64];
    struct model *model = &models[weft_context_rank(context)];
    struct weft_compressed_average *average = NULL;
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    *model = (struct model){.random = (uint64_t)weft_context_rank(context) + 1};
    int status = create(&average, context, model, method);
    if (status == WEFT_ERR_UNSUPPORTED) {
        if (weft_context_rank(context) == 0)
            printf("%s: %s\n", names[method], weft_error_text());
        return WEFT_OK; /* there is no LAPACK: on no rank, or on all */
    }
    if (!status)
        status = train(average, model);
    if (!status && !weft_compressed_average_get_stats(average, &stats) &&
        weft_context_rank(context) == 0)
        printf("%s: a squared error of %.3f, %.1f bits an element on average\n", names[method],
               square(model), stats.wire_bits / (double)stats.elements);
    weft_compressed_average_destroy(average);
    return status;
}

static int train_all(struct weft_context *context, void *user)
{
    int status = train_by(context, WEFT_COMPRESSED_GRADIVEQ);
    (void)user;
    if (!status)
        status = train_by(context, WEFT_COMPRESSED_QSGD);
    return status ? status : train_by(context, WEFT_COMPRESSED_POWERSGD);
}

/* Local ranks, as many as the first argument says: 1 .. 64. */
int main(int argc, char **argv)
{
    int ranks = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;
    if (ranks < 1 || ranks > 64) {
        fputs("usage: compressed [RANKS], from 1 to 64\n", stderr);
        return 2;
    }
    int status = weft_local_run(ranks, NULL, train_all, NULL);
    if (status)
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
    return status != WEFT_OK;
}
