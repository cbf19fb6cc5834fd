/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench projection: how much of real gradients the projections of GradiVeQ lose (Yu, Lin,
 * Narra et al., NeurIPS 2018).
 *
 *     | warm-up |        samples, L the last of them         |  later steps: what is measured  |
 *     0      WARMUP                                         from                             steps
 *
 * A net is trained with exact sums; of each convolution the principal components of the first slice
 * are found, and everything is projected onto them. A loss is that of equation 7, divided by the
 * square of the gradient's norm. It is that of steps that were no samples, and of slices other than
 * the first, unless a row says so; the mean that is taken off is always each slice's own. The peer
 * are as many random directions.
 */
#include "tools/bench/bench.h"
#include "tools/bench/data.h"
#include "tools/bench/recording.h"

#include <math.h>
#include <string.h>

enum {
    RANKS = 4,
    STEPS = 400,
    SAMPLES = 100,
    WINDOW = 20,
    LOCAL_EVERY = 4,
    LATER = 100,
    MOST_AS_IS = 10000
};

/* Which slices of a layer. */
enum which { FIRST, OTHERS };
static const char *const which_names[] = {"first slice", "other slices"};

/* Whose gradient: of all ranks, or one rank's, of which its part of the mean is taken off. */
enum whose { SUM, LOCAL };

struct study {
    struct bench *bench;
    struct recording recording;
    /* where later steps begin, and how many there are */
    size_t from, later;
    /* the mean loss of the steps that are measured */
    double training_loss;
    /* NULL; or a layer's gradients from a step on in the order of the trainer's memory */
    float *as_is;
    size_t as_is_from;
    float *samples; /* samples x K */
    /* 0; or samples are of sums that have been quantised to so many bits */
    int bits;
    float *quantised; /* a layer */
    unsigned char *bytes;
    float *out;    /* components */
    float *random; /* a basis of random directions */
};

/* The projection of a layer. */
struct fit {
    size_t layer;
    struct weft_projection projection;
    float *basis;
    float *mean; /* of the whole layer */
    size_t samples;
};

/* What a row says beside its numbers. */
struct about {
    const char *study;
    const struct fit *fit;
    const char *remark;
    enum which which;
    enum whose whose;
    const char *when;
    size_t step;
};

/* ---- projections ---- */

static const struct recording_layer *layer_of(const struct study *study, const struct fit *fit)
{
    return &study->recording.layers[fit->layer];
}

static void free_fit(struct fit *fit)
{
    weft_memory_free(fit->basis);
    weft_memory_free(fit->mean);
    *fit = (struct fit){0};
}

/* The sum of a layer's gradients over ranks. */
static const float *sum_of(const struct study *study, size_t layer, size_t step)
{
    return study->as_is
               ? study->as_is + (step - study->as_is_from) * study->recording.layers[layer].count
               : recording_sum(&study->recording, layer, step);
}

/* A sum as it is when it has travelled by QSGD: it is quantised last by whoever has added it up. */
static int quantise(struct study *study, size_t count, uint64_t stream, const float **values)
{
    struct weft_quantiser quantiser;

    weft_quantiser_init(&quantiser);
    quantiser.bits = study->bits;
    int status = weft_quantise(&quantiser, stream, *values, count, study->bytes, NULL);
    if (status == WEFT_OK)
        status = weft_dequantise(&quantiser, study->bytes, count, study->quantised);
    *values = study->quantised;
    return status;
}

static int take_samples(struct study *study, const struct fit *fit)
{
    const struct recording_layer *layer = layer_of(study, fit);
    size_t slice = fit->projection.slice;
    int status = WEFT_OK;

    for (size_t i = 0; i < layer->count; i++)
        fit->mean[i] = 0;
    for (size_t s = 0; s < fit->samples && status == WEFT_OK; s++) {
        const float *values = sum_of(study, fit->layer, study->from - fit->samples + s);
        if (study->bits)
            status = quantise(study, layer->count, s, &values);
        memcpy(study->samples + s * slice, values, slice * sizeof *values);
        for (size_t i = 0; i < layer->count; i++)
            fit->mean[i] += values[i] / (float)fit->samples;
    }
    return status;
}

/* Principal components of the first slice of the last samples: as many as leave `loss` of their
 * variance, at most `most` (0: all). */
static int make_fit(struct study *study, struct fit *fit, size_t layer, size_t slice,
                    size_t samples, double loss, size_t most)
{
    size_t count = study->recording.layers[layer].count;
    size_t rank = samples - 1 < slice ? samples - 1 : slice;
    struct weft_pca_config config;

    *fit = (struct fit){.layer = layer, .samples = samples};
    weft_pca_config_init(&config);
    config.slice = slice;
    config.samples = samples;
    config.loss = loss;
    config.most = most;
    fit->projection =
        (struct weft_projection){.struct_size = sizeof fit->projection, .slice = slice};
    fit->mean = weft_memory_alloc(count, sizeof(float));
    fit->basis = weft_memory_alloc(slice * (rank ? rank : 1), sizeof(float));
    if (!fit->mean || !fit->basis) {
        free_fit(fit);
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a projection");
    }
    take_samples(study, fit);
    int status =
        weft_pca(&config, study->samples, fit->mean, fit->basis, &fit->projection.components, NULL);
    fit->projection.basis = fit->basis;
    if (status != WEFT_OK)
        free_fit(fit);
    return status;
}

/* As many random directions as the fit has components. */
static int draw_basis(struct study *study, const struct fit *fit)
{
    uint64_t state = 88172645463325252u;
    size_t count = fit->projection.slice * fit->projection.components;

    for (size_t i = 0; i < count; i++)
        study->random[i] = (float)bench_normal_quantile(bench_uniform(&state));
    return weft_orthonormalise(study->random, fit->projection.slice, fit->projection.components,
                               NULL);
}

/* The relative loss of a layer's gradient; -1 if it is 0 or there are no such slices. Of slices
 * that are not whole nothing is said. */
static int find_loss(const struct study *study, const struct fit *fit, const float *basis,
                     const float *values, enum which which, enum whose whose, double *loss)
{
    struct weft_projection projection = fit->projection;
    struct weft_projection_squares squares = {0};
    size_t slice = projection.slice;
    size_t first = which == FIRST ? 0 : slice;
    size_t count = which == FIRST ? slice : (layer_of(study, fit)->count / slice - 1) * slice;

    *loss = -1;
    if (count == 0)
        return WEFT_OK;
    projection.basis = basis;
    int status =
        weft_project(&projection, values + first, count, fit->mean + first,
                     whose == LOCAL ? 1.0 / study->recording.ranks : 1, study->out, &squares);
    if (status == WEFT_OK && squares.values > 0)
        *loss = fmax(0, squares.centred - squares.kept) / squares.values;
    return status;
}

/* ---- rows ---- */

static json_t *more_of(const struct study *study, const struct about *about)
{
    const struct fit *fit = about->fit;
    const struct recording_layer *layer = layer_of(study, fit);

    return json_pack(
        "{s:s, s:s, s:s, s:f, s:f, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s?, s:I}",
        "study", about->study, "model", study->recording.model, "order",
        study->as_is ? "filter after filter" : "filters fastest", "rate", study->recording.rate,
        "training_loss", study->training_loss, "layer", layer->name, "elements",
        (json_int_t)layer->count, "filters", (json_int_t)layer->filters, "depth",
        (json_int_t)layer->depth, "slice", (json_int_t)fit->projection.slice, "components",
        (json_int_t)fit->projection.components, "samples", (json_int_t)fit->samples, "slices",
        which_names[about->which], "gradient", about->whose == SUM ? "sum" : "rank 0", "steps",
        about->when, "remark", about->remark, "step", (json_int_t)about->step);
}

static void print_row(struct study *study, const struct about *about, const char *unit,
                      const struct bench_samples *weft, const struct bench_samples *random)
{
    const struct fit *fit = about->fit;
    char what[160];
    struct bench_row row = {.what = what,
                            .unit = unit,
                            .peer = random ? "random directions" : NULL,
                            .weft = weft,
                            .peers = random,
                            .limit = NAN,
                            .bytes = SIZE_MAX,
                            .more = more_of(study, about)};

    snprintf(what, sizeof what, "%s lr=%g %s K=%zu d=%zu L=%zu%s%s%s%s%s%s", study->recording.model,
             study->recording.rate, layer_of(study, fit)->name, fit->projection.slice,
             fit->projection.components, fit->samples, study->as_is ? " as it is" : "",
             about->which == FIRST ? " first" : "", about->whose == LOCAL ? " rank 0" : "",
             strcmp(about->when, "samples") == 0 ? " samples" : "", about->remark ? " " : "",
             about->remark ? about->remark : "");
    if (about->step) {
        size_t used = strlen(what);
        snprintf(what + used, sizeof what - used, " +%zu", about->step);
    }
    bench_print(study->bench, &row);
}

/* A row of the losses of steps first .. last - 1; without one where there are no such slices. */
static int loss_row(struct study *study, const struct about *about, size_t first, size_t last,
                    int with_random)
{
    struct bench_samples own = {0}, random = {0};
    int status = WEFT_OK;

    if (with_random)
        status = draw_basis(study, about->fit);
    for (size_t s = first; s < last && status == WEFT_OK; s++) {
        const float *values = about->whose == SUM
                                  ? sum_of(study, about->fit->layer, s)
                                  : recording_local(&study->recording, about->fit->layer, s);
        double loss = -1;
        if (!values)
            continue;
        status = find_loss(study, about->fit, about->fit->basis, values, about->which, about->whose,
                           &loss);
        if (loss >= 0)
            bench_sample(&own, loss);
        if (with_random && status == WEFT_OK) {
            status = find_loss(study, about->fit, study->random, values, about->which, about->whose,
                               &loss);
            if (loss >= 0)
                bench_sample(&random, loss);
        }
    }
    if (status == WEFT_OK && own.count > 0)
        print_row(study, about, "loss", &own, with_random ? &random : NULL);
    return status;
}

static int later_row(struct study *study, const char *name, const struct fit *fit,
                     const char *remark, enum which which)
{
    struct about about = {name, fit, remark, which, SUM, "later", 0};
    size_t count = study->later < LATER ? study->later : LATER;

    return loss_row(study, &about, study->from, study->from + count, 0);
}

/* ---- what is studied ---- */

static size_t standard_samples(const struct study *study)
{
    return study->later < SAMPLES ? study->later : SAMPLES;
}

/* K of the paper: of windows of 3 x 3 three times F D. */
static size_t standard_slice(const struct recording_layer *layer)
{
    size_t times = layer->window % 3 == 0 ? 3 : 1;

    return times * layer->filters * layer->depth;
}

/* The loss by d, of steps that were samples, and later. */
static int by_components(struct study *study, size_t layer)
{
    static const size_t components[] = {0, 1, 2, 4, 8, 16, 32, 64, 99};
    size_t slice = standard_slice(&study->recording.layers[layer]);
    size_t samples = standard_samples(study);
    int status = WEFT_OK;

    for (size_t i = 0; i < sizeof components / sizeof components[0] && status == WEFT_OK; i++) {
        struct fit fit;
        if (components[i] >= samples || components[i] > slice)
            break;
        status = make_fit(study, &fit, layer, slice, samples, WEFT_PCA_EXACT, components[i]);
        if (status != WEFT_OK)
            break;
        if (components[i] == 0)
            fit.projection.components = 0;
        for (int which = FIRST; which <= OTHERS && status == WEFT_OK; which++) {
            struct about sampled = {"components", &fit, NULL, (enum which)which, SUM, "samples", 0};
            struct about later = {"components", &fit, NULL, (enum which)which, SUM, "later", 0};
            size_t count = study->later < LATER ? study->later : LATER;
            status = loss_row(study, &sampled, study->from - samples, study->from, 0);
            if (status == WEFT_OK)
                status = loss_row(study, &later, study->from, study->from + count,
                                  fit.projection.components > 0);
        }
        free_fit(&fit);
    }
    return status;
}

/* The loss by K, around multiples of F D (the paper's figure 5): with d as equation 6 has it, and
 * with K / d = 8. */
static int by_slice(struct study *study, size_t layer)
{
    const struct recording_layer *is = &study->recording.layers[layer];
    size_t samples = standard_samples(study);
    /* Where slices are alike: the same filters of the same pixels, or whole filters. */
    size_t step = study->as_is ? is->depth * is->window / 2 : is->filters * is->depth / 8;
    int status = WEFT_OK;

    if (is->window == 1 || is->depth == 1)
        return WEFT_OK;
    for (size_t slice = step; slice <= is->count / 2 && status == WEFT_OK; slice += step) {
        struct fit fit;
        status = make_fit(study, &fit, layer, slice, samples, 0.01, 0);
        if (status == WEFT_OK) {
            status = later_row(study, "slice", &fit, "lambda=0.01", OTHERS);
            if (status == WEFT_OK)
                status = later_row(study, "slice", &fit, "lambda=0.01", FIRST);
            free_fit(&fit);
        }
        if (status == WEFT_OK && slice / 8 < samples) {
            status = make_fit(study, &fit, layer, slice, samples, WEFT_PCA_EXACT, slice / 8);
            if (status == WEFT_OK)
                status = later_row(study, "slice", &fit, "K/d=8", OTHERS);
            free_fit(&fit);
        }
    }
    return status;
}

/* The same as the layer lies in memory, filter after filter: is it the order that makes dips? */
static int by_slice_as_is(struct study *study, size_t layer)
{
    const struct recording_layer *is = &study->recording.layers[layer];
    size_t samples = standard_samples(study);
    size_t steps = samples + (study->later < LATER ? study->later : LATER);
    size_t from = study->from - samples;
    float *as_is;
    int status = WEFT_OK;

    if (is->count > MOST_AS_IS)
        return WEFT_OK;
    as_is = weft_memory_alloc(steps * is->count, sizeof *as_is);
    if (!as_is)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu gradients", steps);
    for (size_t s = 0; s < steps && status == WEFT_OK; s++)
        status = weft_transpose(sum_of(study, layer, from + s), is->depth * is->window, is->filters,
                                as_is + s * is->count);
    study->as_is = as_is;
    study->as_is_from = from;
    if (status == WEFT_OK)
        status = by_slice(study, layer);
    study->as_is = NULL;
    weft_memory_free(as_is);
    return status;
}

/* d for lambda = 0.01, and the loss, by the number of samples. */
static int by_samples(struct study *study, size_t layer)
{
    static const size_t samples[] = {10, 25, 50, 100, 200, 400};
    size_t slice = standard_slice(&study->recording.layers[layer]);
    int status = WEFT_OK;

    for (size_t i = 0; i < sizeof samples / sizeof samples[0] && status == WEFT_OK; i++) {
        struct fit fit;
        if (samples[i] > study->later)
            break;
        status = make_fit(study, &fit, layer, slice, samples[i], 0.01, 0);
        for (int which = FIRST; which <= OTHERS && status == WEFT_OK; which++)
            status = later_row(study, "samples", &fit, "lambda=0.01", (enum which)which);
        free_fit(&fit);
    }
    return status;
}

/* The same of samples that have been quantised, as GradiVeQ takes them. */
static int by_bits(struct study *study, size_t layer)
{
    static const int bits[] = {4, 8};
    size_t slice = standard_slice(&study->recording.layers[layer]);
    int status = WEFT_OK;

    for (size_t i = 0; i < sizeof bits / sizeof bits[0] && status == WEFT_OK; i++) {
        struct fit fit;
        char remark[32];
        snprintf(remark, sizeof remark, "lambda=0.01, %d bits", bits[i]);
        study->bits = bits[i];
        status = make_fit(study, &fit, layer, slice, standard_samples(study), 0.01, 0);
        study->bits = 0;
        for (int which = FIRST; which <= OTHERS && status == WEFT_OK; which++)
            status = later_row(study, "bits", &fit, remark, (enum which)which);
        free_fit(&fit);
    }
    return status;
}

/* The loss by the steps that have gone by since the last sample. */
static int by_steps(struct study *study, size_t layer)
{
    size_t slice = standard_slice(&study->recording.layers[layer]);
    struct fit fit;
    int status = make_fit(study, &fit, layer, slice, standard_samples(study), 0.01, 0);

    for (size_t at = 0; at < study->later && status == WEFT_OK; at += WINDOW) {
        size_t end = at + WINDOW < study->later ? at + WINDOW : study->later;
        for (int which = FIRST; which <= OTHERS && status == WEFT_OK; which++) {
            for (int whose = SUM; whose <= LOCAL && status == WEFT_OK; whose++) {
                struct about about = {
                    "drift", &fit, "lambda=0.01", (enum which)which, (enum whose)whose,
                    "later", end};
                status = loss_row(study, &about, study->from + at, study->from + end, 0);
            }
        }
    }
    free_fit(&fit);
    return status;
}

/* K / d, a layer, and of all: elements by components. */
static int reached(struct study *study)
{
    size_t elements = 0, components = 0;
    struct fit fit = {0};
    int status = WEFT_OK;

    for (size_t l = 0; l < study->recording.layer_count && status == WEFT_OK; l++) {
        const struct recording_layer *layer = &study->recording.layers[l];
        struct bench_samples ratio = {0};
        struct about about = {"reached", &fit, "lambda=0.01", OTHERS, SUM, "later", 0};
        size_t slice = standard_slice(layer);
        status = make_fit(study, &fit, l, slice, standard_samples(study), 0.01, 0);
        if (status != WEFT_OK)
            break;
        elements += layer->count;
        components += (layer->count + slice - 1) / slice * fit.projection.components;
        bench_sample(&ratio, (double)slice / (double)fit.projection.components);
        print_row(study, &about, "K/d", &ratio, NULL);
        free_fit(&fit);
    }
    bench_note(study->bench, "%s: %zu elements of convolutions become %zu components, 1/%.1f",
               study->recording.model, elements, components, (double)elements / (double)components);
    return status;
}

/* ---- a net ---- */

static int open_study(struct study *study, const char *model, double rate)
{
    struct bench *bench = study->bench;
    size_t most = 0;

    study->later = bench->steps > 0 ? (size_t)bench->steps : STEPS;
    study->from = study->later / 4 + study->later;
    int status = recording_make(&study->recording, model, rate, bench->ranks ? bench->ranks : RANKS,
                                study->from + study->later, study->from, LOCAL_EVERY);
    if (status != WEFT_OK)
        return status;
    for (size_t s = study->from; s < study->recording.steps; s++)
        study->training_loss += study->recording.losses[s] / (double)study->later;
    for (size_t l = 0; l < study->recording.layer_count; l++)
        if (study->recording.layers[l].count > most)
            most = study->recording.layers[l].count;
    study->samples = weft_memory_alloc(most * study->later, sizeof(float));
    study->out = weft_memory_alloc(most * 2, sizeof(float));
    study->random = weft_memory_alloc(most * SAMPLES, sizeof(float));
    study->quantised = weft_memory_alloc(most, sizeof(float));
    study->bytes = weft_memory_alloc(most, 2);
    return study->samples && study->out && study->random && study->quantised && study->bytes
               ? WEFT_OK
               : weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu samples", study->later);
}

static void close_study(struct study *study)
{
    weft_memory_free(study->samples);
    weft_memory_free(study->out);
    weft_memory_free(study->random);
    weft_memory_free(study->quantised);
    weft_memory_free(study->bytes);
    recording_free(&study->recording);
}

static int measure(struct bench *bench, const char *model, double rate)
{
    struct study study = {.bench = bench};
    int status = open_study(&study, model, rate);

    if (status == WEFT_OK) {
        bench_note(bench,
                   "%s: %d ranks of 32 images, learning rate %g, %zu steps; mean loss %.3g where "
                   "sampling begins, %.3g on average from its end on",
                   model, study.recording.ranks, rate, study.recording.steps,
                   study.recording.losses[study.from - standard_samples(&study)],
                   study.training_loss);
        status = reached(&study);
    }
    for (size_t l = 0; l < study.recording.layer_count && status == WEFT_OK; l++) {
        status = by_components(&study, l);
        if (status == WEFT_OK)
            status = by_samples(&study, l);
        if (status == WEFT_OK)
            status = by_bits(&study, l);
        if (status == WEFT_OK)
            status = by_steps(&study, l);
        if (status == WEFT_OK)
            status = by_slice(&study, l);
        if (status == WEFT_OK)
            status = by_slice_as_is(&study, l);
    }
    close_study(&study);
    return status == WEFT_OK ? 0 : bench_fail(bench, model);
}

int bench_projection(struct bench *bench)
{
    static const char *const models[] = {"cnn", "resnet"};
    /* With the first the nets are still learning when samples are taken, with the second (the
     * trainer's default) they have learnt their data by heart. */
    static const double rates[] = {0.01, 0.1};
    int status = 0;

    bench_note(bench, "the share of real gradients' squares that projections lose, on steps and "
                      "slices that were no samples; peer: as many random directions");
    for (size_t i = 0; i < sizeof models / sizeof models[0] && !status; i++)
        for (size_t j = 0; j < sizeof rates / sizeof rates[0] && !status; j++)
            status = measure(bench, models[i], rates[j]);
    return status;
}
