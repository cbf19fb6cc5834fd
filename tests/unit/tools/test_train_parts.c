/* SPDX-License-Identifier: BSD-3-Clause */
/* What the demonstration trainer is made of: perceptron, history, tables and plots. */
#include "tools/cli/table.h"
#include "tools/page/plot.h"
#include "tools/train/history.h"
#include "tools/train/loop.h"
#include "tools/train/model.h"
#include "tools/train/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the perceptron ---- */

enum { INPUTS = 6, OUTPUTS = 4, IMAGES = 5 };

static const size_t small_widths[] = {7, 5};

static struct net_config small_net(void)
{
    return (struct net_config){.architecture = net_architectures()[0],
                               .image = {1, 1, INPUTS},
                               .classes = OUTPUTS,
                               .hidden = small_widths,
                               .hidden_count = 2};
}

static struct model *make_small(uint64_t seed)
{
    const struct net_config net = small_net();
    struct model *model = NULL;

    cr_assert_eq(model_create(&model, &net, IMAGES, seed), WEFT_OK);
    return model;
}

static void draw_images(float *images, uint8_t *labels, uint64_t seed)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_SHUFFLE, 0, 0);

    for (int i = 0; i < IMAGES * INPUTS; i++)
        images[i] = (float)train_random_normal(&random);
    for (int i = 0; i < IMAGES; i++)
        labels[i] = (uint8_t)train_random_below(&random, OUTPUTS);
}

static double loss_of(struct model *model, const float *images, const uint8_t *labels)
{
    double loss = NAN;

    cr_assert_eq(model_gradient(model, images, labels, IMAGES, NULL, &loss), WEFT_OK);
    return loss;
}

/* The loss as a function of one parameter has a kink where a ReLU switches: the slopes to both
 * sides differ there, and the gradient is one of them or lies between. */
static void check_parameter(struct model *model, size_t tensor, size_t index, double gradient,
                            const float *images, const uint8_t *labels)
{
    const float step = 2e-3f;
    float *parameter = (float *)model_parameters(model)[tensor].data + index;
    float value = *parameter;
    double here = loss_of(model, images, labels);

    *parameter = value + step;
    double right = (loss_of(model, images, labels) - here) / step;
    *parameter = value - step;
    double left = (here - loss_of(model, images, labels)) / step;
    *parameter = value;
    double low = fmin(left, right) - 2e-3;
    double high = fmax(left, right) + 2e-3;
    cr_assert(gradient >= low && gradient <= high, "tensor %zu [%zu]: %g is not in %g..%g", tensor,
              index, gradient, low, high);
}

Test(mlp, gradient_agrees_with_finite_differences)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct model *model = make_small(seed);
        float images[IMAGES * INPUTS];
        uint8_t labels[IMAGES];
        double largest = 0.0;

        draw_images(images, labels, seed);
        for (size_t tensor = 0; tensor < model_tensor_count(model); tensor++) {
            for (size_t i = 0; i < model_parameters(model)[tensor].count; i++) {
                loss_of(model, images, labels);
                double gradient = ((float *)model_gradients(model)[tensor].data)[i];
                largest = fmax(largest, fabs(gradient));
                check_parameter(model, tensor, i, gradient, images, labels);
            }
        }
        cr_assert_gt(largest, 0.05, "the gradient is too small for the test to see anything");
        model_destroy(model);
    }
}

Test(mlp, update_follows_the_gradient_with_momentum)
{
    struct model *model = make_small(3);
    float *weights = model_parameters(model)[0].data;
    float *gradients = model_gradients(model)[0].data;
    float before = weights[1];

    gradients[1] = 2.0f;
    model_update(model, 0.5f, 0.25f);
    cr_assert_float_eq(weights[1], before - 1.0f, 1e-6);
    model_update(model, 0.5f, 0.25f);
    cr_assert_float_eq(weights[1], before - 1.0f - 0.5f * (0.25f * 2.0f + 2.0f), 1e-6);
    model_destroy(model);
}

static uint64_t checksum_of(struct model *model)
{
    uint64_t sum = 0;

    cr_assert_eq(model_checksum(model, &sum), WEFT_OK);
    return sum;
}

Test(mlp, save_and_load_bring_back_every_bit)
{
    struct model *model = make_small(4);
    struct model *other = make_small(5);
    float *flat = calloc(model_parameter_count(model), sizeof(float));

    cr_assert_eq(model_parameter_count(model), 6 * 7 + 7 + 7 * 5 + 5 + 5 * 4 + 4);
    cr_assert_neq(checksum_of(model), checksum_of(other));
    model_save(model, flat);
    model_load(other, flat);
    cr_assert_eq(checksum_of(model), checksum_of(other));
    free(flat);
    model_destroy(other);
    model_destroy(model);
}

static double accuracy_of(struct model *model, const float *images, const uint8_t *labels,
                          size_t rows)
{
    double accuracy = NAN;

    cr_assert_eq(model_accuracy(model, images, labels, rows, &accuracy), WEFT_OK);
    return accuracy;
}

Test(mlp, accuracy_counts_in_parts_of_a_batch)
{
    struct model *model = make_small(6);
    float images[3 * IMAGES * INPUTS];
    uint8_t labels[3 * IMAGES];

    for (uint64_t part = 0; part < 3; part++)
        draw_images(images + part * IMAGES * INPUTS, labels + part * IMAGES, part);
    double parts = 0.0;
    for (int i = 0; i < 13; i++)
        parts += accuracy_of(model, images + i * INPUTS, labels + i, 1);
    cr_assert_float_eq(accuracy_of(model, images, labels, 13), parts / 13, 1e-9);
    model_destroy(model);
}

Test(mlp, bad_shapes_are_refused)
{
    const size_t zero[] = {4, 0};
    struct net_config net = small_net();
    struct model *model = NULL;

    cr_assert_eq(model_create(&model, &net, 0, 0), WEFT_ERR_INVALID);
    net.hidden = zero;
    cr_assert_eq(model_create(&model, &net, 1, 0), WEFT_ERR_INVALID);
    net = small_net();
    net.classes = 0;
    cr_assert_eq(model_create(&model, &net, 1, 0), WEFT_ERR_INVALID);
    net = small_net();
    net.architecture = net_architectures()[1];
    cr_assert_eq(model_create(&model, &net, 1, 0), WEFT_ERR_INVALID); /* no channels */
    cr_assert_null(model);
    model_destroy(NULL);
}

/* ---- the history of the models ---- */

enum { HISTORY_RANKS = 5, HISTORY_STEPS = 300, HISTORY_COUNT = 37 };

/* The model of a rank after some steps, in two tensors: around 10, `spread` apart. */
static void make_history_model(float *model, int rank, uint64_t done, double spread)
{
    struct train_random random =
        train_random_make(done, TRAIN_RANDOM_WEIGHTS, spread > 0.0 ? (uint64_t)rank : 0, 0);

    for (int i = 0; i < HISTORY_COUNT; i++)
        model[i] = (float)(10.0 + (spread + 1e-3) * train_random_normal(&random));
}

static double expected_distance(uint64_t done, double spread, double *mean)
{
    float models[HISTORY_RANKS][HISTORY_COUNT];
    double square = 0.0;

    for (int rank = 0; rank < HISTORY_RANKS; rank++)
        make_history_model(models[rank], rank, done, spread);
    for (int i = 0; i < HISTORY_COUNT; i++) {
        mean[i] = 0.0;
        for (int rank = 0; rank < HISTORY_RANKS; rank++)
            mean[i] += models[rank][i] / (double)HISTORY_RANKS;
        for (int rank = 0; rank < HISTORY_RANKS; rank++)
            square += pow(models[rank][i] - mean[i], 2.0) / HISTORY_RANKS;
    }
    return sqrt(square);
}

/* All models of one rank, then those of the next: the order of adding does not matter. */
static void fill_history(struct train_history *history, double spread)
{
    for (int rank = 0; rank < HISTORY_RANKS; rank++) {
        float model[HISTORY_COUNT];
        const struct weft_piece tensors[] = {{model, 30}, {model + 30, HISTORY_COUNT - 30}};
        size_t next = 0;
        for (uint64_t done = 0; done <= HISTORY_STEPS; done++) {
            make_history_model(model, rank, done, spread);
            cr_assert_eq(
                train_history_add(history, &next, done, (double)done * (1 + rank), tensors, 2),
                WEFT_OK);
        }
        make_history_model(model, rank, HISTORY_STEPS, spread);
        cr_assert_eq(train_history_add_last(history, HISTORY_STEPS * (1.0 + rank), tensors, 2),
                     WEFT_OK);
    }
}

/* The mean over ranks of the times gives the number of steps away: 3 times it. */
Test(history, distances_are_those_of_the_definition)
{
    static const double spreads[] = {0.0, 1e-3, 0.1, 3.0};

    for (size_t s = 0; s < sizeof spreads / sizeof spreads[0]; s++) {
        struct train_history *history;
        uint64_t before = 0;
        cr_assert_eq(train_history_create(&history, HISTORY_COUNT, HISTORY_RANKS, HISTORY_STEPS, s),
                     WEFT_OK);
        fill_history(history, spreads[s]);
        size_t count = train_history_count(history);
        cr_assert(count > 60 && count <= 72, "%zu points", count);
        for (size_t i = 0; i < count; i++) {
            struct train_history_point point;
            float mean[HISTORY_COUNT];
            double expected[HISTORY_COUNT];
            train_history_get(history, i, &point, mean);
            uint64_t done = (uint64_t)(point.seconds / 3 + 0.5);
            double distance = expected_distance(done, spreads[s], expected);
            cr_assert_eq(point.done, i + 1 < count ? done : UINT64_MAX);
            cr_assert(i < 11 ? done == i : done > before, "point %zu: step %d", i, (int)done);
            cr_assert_float_eq(point.distance, distance, 1e-5 * distance + 1e-9, "%g, not %g",
                               point.distance, distance);
            for (int j = 0; j < HISTORY_COUNT; j++)
                cr_assert_float_eq(mean[j], expected[j], 1e-5);
            before = done;
        }
        cr_assert_eq(before, HISTORY_STEPS);
        train_history_destroy(history);
    }
    train_history_destroy(NULL);
}

/* A period of the algorithm does not hide between the steps that are kept. */
Test(history, all_phases_of_a_period_are_seen)
{
    struct train_history *history;
    const struct weft_piece none = {NULL, 0};
    int phases[5] = {0};
    size_t next = 0;

    cr_assert_eq(train_history_create(&history, 1, 1, 3000, 1), WEFT_OK);
    for (uint64_t done = 0; done < 3000; done++) {
        size_t before = next;
        cr_assert_eq(train_history_add(history, &next, done, 0.0, &none, 1), WEFT_OK);
        phases[done % 5] += next > before;
    }
    for (int i = 0; i < 5; i++)
        cr_assert(phases[i] >= 5, "phase %d: %d", i, phases[i]);
    train_history_destroy(history);
}

/* What some ranks have not added to is no point. */
Test(history, points_are_of_all_ranks)
{
    struct train_history *history;
    float model[] = {1.0f};
    const struct weft_piece tensor = {model, 1};
    size_t next[2] = {0};

    cr_assert_eq(train_history_create(&history, 1, 2, 100, 1), WEFT_OK);
    for (uint64_t done = 0; done < 4; done++)
        for (int rank = 0; rank < (done < 3 ? 2 : 1); rank++)
            cr_assert_eq(train_history_add(history, &next[rank], done, 1.0, &tensor, 1), WEFT_OK);
    cr_assert_eq(train_history_count(history), 3);
    for (int rank = 0; rank < 2; rank++)
        cr_assert_eq(train_history_add_last(history, 2.0, &tensor, 1), WEFT_OK);
    cr_assert_eq(train_history_count(history), 4);
    train_history_destroy(history);
}

/* ---- what is shown ---- */

Test(table, columns_are_as_wide_as_their_widest_cell)
{
    static const char *const headings[] = {"name", ">value"};
    struct table *table = table_create(headings, 2);
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);

    table_cell(table, "%s", "a long name");
    table_cell(table, "%d", 7);
    table_cell(table, "%s", "\xc3\xa4");
    table_cell(table, "%d", 1234567);
    cr_assert_eq(table_print(table, file), 0);
    fclose(file);
    cr_assert_str_eq(text, "name           value\n"
                           "a long name        7\n"
                           "\xc3\xa4            1234567\n");
    free(text);
    table_destroy(table);
    table_destroy(NULL);
}

Test(plot, what_cannot_be_drawn_is_refused)
{
    const struct plot_point points[] = {{0.0, 10.0}, {1.0, 90.0}};
    const struct plot_series line = {"line", "", points, points, 2, NULL, 0, 0};
    const struct plot full = {"title", "", "x", "y", "z", &line, 1};
    const struct plot empty = {"title", "", "x", "y", NULL, NULL, 0};

    cr_assert_eq(plot_write_svg(&empty, "/dev/null/p.svg"), WEFT_ERR_INVALID);
    cr_assert_eq(plot_write_svg(&full, "/dev/null/p.svg"), WEFT_ERR_IO);
    cr_assert(strstr(weft_error_text(), "/dev/null/p.svg"));
}

/* The SVG of a plot; for free(). */
static char *draw(const struct plot *plot, double *height)
{
    char path[] = "/tmp/weft_plot_XXXXXX";
    int file = mkstemp(path);
    char *text = calloc(1, 1 << 20);

    cr_assert_geq(file, 0);
    cr_assert_eq(plot_write_svg(plot, path), WEFT_OK, "%s", weft_error_text());
    cr_assert_gt(read(file, text, (1 << 20) - 1), 0);
    close(file);
    unlink(path);
    const char *at = strstr(text, "height=\"");
    cr_assert_not_null(at);
    *height = strtod(at + strlen("height=\""), NULL);
    return text;
}

Test(plot, phases_are_a_bar_a_line_in_its_colour)
{
    const struct plot_point points[] = {{0.0, 10.0}, {2.0, 90.0}};
    const struct plot_phase phases[] = {{0.0, 0.5, "first", 0.5}, {0.5, 9.0, "then", 0.75}};
    struct plot_series lines[] = {{"grey", "", points, points, 2, NULL, 0, 0},
                                  {"orange", "", points, NULL, 2, NULL, 0, 0}};
    struct plot plot = {"title", "", "x", "y", "z", lines, 2};
    double height[3];

    for (int bars = 0; bars <= 2; bars++) {
        if (bars > 0) {
            lines[bars - 1].phases = phases;
            lines[bars - 1].phase_count = 2;
        }
        for (int lower = 0; lower <= 1; lower++) {
            plot.lower_label = lower ? "z" : NULL;
            char *text = draw(&plot, &height[bars]);
            /* The greys of the first, half and three quarters towards 30 %: 65 % and 47.5 %. */
            cr_assert_eq(strstr(text, "(65%") != NULL, bars > 0);
            cr_assert_eq(strstr(text, "(47.5%") != NULL, bars > 0);
            /* Of the second 90.2 %, 62.4 % and 0. */
            cr_assert_eq(strstr(text, "(95.1%") != NULL, bars > 1);
            free(text);
        }
    }
    cr_assert_float_eq(height[1] - height[0], 17.0, 1e-6);
    cr_assert_float_eq(height[2] - height[1], 17.0, 1e-6);
}
