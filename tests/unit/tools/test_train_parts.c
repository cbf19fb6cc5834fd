/* SPDX-License-Identifier: BSD-3-Clause */
/* What the demonstration trainer is made of: perceptron, data, delays, tables and plots. */
#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/page/plot.h"
#include "tools/train/algorithm.h"
#include "tools/train/batches.h"
#include "tools/train/dataset.h"
#include "tools/train/history.h"
#include "tools/train/loop.h"
#include "tools/train/model.h"
#include "tools/train/random.h"
#include "tools/train/yardsticks.h"

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

Test(mlp, save_and_load_bring_back_every_bit)
{
    struct model *model = make_small(4);
    struct model *other = make_small(5);
    float *flat = calloc(model_parameter_count(model), sizeof(float));

    cr_assert_eq(model_parameter_count(model), 6 * 7 + 7 + 7 * 5 + 5 + 5 * 4 + 4);
    cr_assert_neq(model_checksum(model), model_checksum(other));
    model_save(model, flat);
    model_load(other, flat);
    cr_assert_eq(model_checksum(model), model_checksum(other));
    free(flat);
    model_destroy(other);
    model_destroy(model);
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
        parts += model_accuracy(model, images + i * INPUTS, labels + i, 1);
    cr_assert_float_eq(model_accuracy(model, images, labels, 13), parts / 13, 1e-9);
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

/* ---- the data ---- */

static void row_of(char *text, int columns, const char *last)
{
    text[0] = '\0';
    for (int i = 1; i < columns; i++)
        strcat(text, i % 2 ? "0," : "16,");
    strcat(text, last);
}

/* Reads a file with this text; returns the status. */
static int read_text(struct dataset *data, const char *text, size_t length)
{
    char path[] = "/tmp/weft-test-XXXXXX";
    int file = mkstemp(path);

    cr_assert_geq(file, 0);
    cr_assert_eq(write(file, text, length), (ssize_t)length);
    close(file);
    int status = dataset_read(data, path);
    unlink(path);
    return status;
}

Test(dataset, rows_are_read)
{
    char text[1024];
    struct dataset data;

    row_of(text, 65, "7\r\n");
    row_of(text + strlen(text), 65, "9");
    cr_assert_eq(read_text(&data, text, strlen(text)), WEFT_OK);
    cr_assert_eq(data.rows, 2);
    cr_assert_eq(data.labels[0], 7);
    cr_assert_eq(data.labels[1], 9);
    cr_assert_float_eq(data.images[0], 0.0, 0.0);
    cr_assert_float_eq(data.images[65], 1.0, 0.0);
    dataset_free(&data);
    dataset_free(&data);
}

Test(dataset, bad_files_are_refused_with_the_line_at_fault)
{
    static const struct {
        int columns;
        const char *last;
        const char *said;
    } cases[] = {
        {64, "3", ":2: only 64 columns; expected 65"},
        {66, "3", ":2: more than 65 columns; expected 65"},
        {1, "\n", ":2: column 1 is ''"},
        {65, "10", ":2: column 65 is '10'; expected an integer 0..9"},
        {65, "-1", ":2: column 65 is '-1'"},
        {65, "x", ":2: column 65 is 'x'"},
        {65, "", ":2: column 65 is ''"},
        {65, "1.5", ":2: column 65 is '1.5'"},
        {64, "17,3", ":2: column 64 is '17'; expected an integer 0..16"},
        {64, "99999999999999999999,3", ":2: column 64 is '99999999999999999999'"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dataset data = {0};
        char text[1024];

        row_of(text, 65, "1\n");
        row_of(text + strlen(text), cases[i].columns, cases[i].last);
        cr_assert_eq(read_text(&data, text, strlen(text)), WEFT_ERR_FORMAT, "case %zu", i);
        cr_assert(strstr(weft_error_text(), cases[i].said), "case %zu: '%s' lacks '%s'", i,
                  weft_error_text(), cases[i].said);
        cr_assert_eq(data.rows, 0);
    }
}

Test(dataset, what_is_no_text_file_is_refused)
{
    char text[1024];
    struct dataset data = {0};

    row_of(text, 65, "1\n");
    text[9] = '\0';
    cr_assert_eq(read_text(&data, text, 100), WEFT_ERR_FORMAT);
    cr_assert_eq(read_text(&data, "", 0), WEFT_ERR_FORMAT);
    cr_assert_eq(dataset_read(&data, "/nonexistent/optdigits.csv"), WEFT_ERR_IO);
    cr_assert(strstr(weft_error_text(), "/nonexistent/optdigits.csv"));
    cr_assert_eq(dataset_read(&data, "/"), WEFT_ERR_IO);
    cr_assert_null(data.images);
}

/* ---- shards ---- */

static struct dataset read_digits(void)
{
    struct train_options options;
    struct dataset train = {0}, test = {0};
    char storage[4096];

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    const char *folder = train_options_data(&options, storage, sizeof storage);
    cr_assert_eq(dataset_read_folder(&train, &test, folder), WEFT_OK, "%s", weft_error_text());
    dataset_free(&test);
    train_options_free(&options);
    return train;
}

static struct train_shards divide(const struct dataset *data, const char *how, int ranks,
                                  uint64_t seed)
{
    struct train_division division;
    struct train_shards shards;

    cr_assert_eq(train_shards_parse(&division, how), WEFT_OK, "%s: %s", how, weft_error_text());
    cr_assert_eq(train_shards_create(&shards, &division, data, ranks, seed), WEFT_OK);
    return shards;
}

static size_t rows_of_rank(const struct train_shards *shards, int rank)
{
    return shards->starts[rank + 1] - shards->starts[rank];
}

/* How many rows of each class a rank has; returns how many classes. */
static int count_classes(const struct dataset *data, const struct train_shards *shards, int rank,
                         size_t *counts)
{
    int classes = 0;

    memset(counts, 0, DATASET_CLASSES * sizeof *counts);
    for (size_t i = shards->starts[rank]; i < shards->starts[rank + 1]; i++)
        counts[data->labels[shards->rows[i]]]++;
    for (int class = 0; class < DATASET_CLASSES; class ++)
        classes += counts[class] > 0;
    return classes;
}

/* Every row is some rank's, and only one's where `once`; no rank has a row twice, or none. */
static void check_rows(const struct dataset *data, const struct train_shards *shards, int ranks,
                       int once)
{
    int *last = calloc(data->rows, sizeof *last);
    int *times = calloc(data->rows, sizeof *times);

    cr_assert_eq(shards->starts[0], 0);
    for (int rank = 0; rank < ranks; rank++) {
        cr_assert_gt(rows_of_rank(shards, rank), 0, "rank %d of %d", rank, ranks);
        for (size_t i = shards->starts[rank]; i < shards->starts[rank + 1]; i++) {
            uint32_t row = shards->rows[i];
            cr_assert_lt(row, data->rows);
            cr_assert_neq(last[row], rank + 1, "rank %d has row %u twice", rank, row);
            last[row] = rank + 1;
            times[row]++;
        }
    }
    for (size_t row = 0; row < data->rows; row++)
        cr_assert(once ? times[row] == 1 : times[row] >= 1, "row %zu: %d times", row, times[row]);
    free(times);
    free(last);
}

static const int shard_ranks[] = {1, 2, 3, 5, 7, 8, 16, 64, 1000, 1024, 4096};

Test(shards, every_row_is_used_by_any_number_of_ranks)
{
    static const char *const ways[] = {"by-class:1",    "by-class:2",   "by-class:7",
                                       "by-class:10",   "dirichlet:50", "dirichlet:0.3",
                                       "dirichlet:1e-6"};
    struct dataset data = read_digits();

    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        for (size_t i = 0; i < sizeof shard_ranks / sizeof shard_ranks[0]; i++) {
            int ranks = shard_ranks[i];
            struct train_shards shards = divide(&data, ways[way], ranks, 5);
            /* 370 rows of a class, and by class:10 everybody wants one of each. */
            check_rows(&data, &shards, ranks, ranks <= 64);
            train_shards_free(&shards);
        }
    }
    dataset_free(&data);
}

Test(shards, a_rank_has_as_many_classes_as_asked)
{
    struct dataset data = read_digits();

    for (int classes = 1; classes <= DATASET_CLASSES; classes++) {
        for (size_t i = 0; i < sizeof shard_ranks / sizeof shard_ranks[0]; i++) {
            int ranks = shard_ranks[i];
            int holders[DATASET_CLASSES] = {0};
            char how[32];
            snprintf(how, sizeof how, "by-class:%d", classes);
            struct train_shards shards = divide(&data, how, ranks, 7);
            for (int rank = 0; rank < ranks; rank++) {
                size_t counts[DATASET_CLASSES];
                int least = DATASET_CLASSES / ranks + (rank < DATASET_CLASSES % ranks);
                int found = count_classes(&data, &shards, rank, counts);
                cr_assert_eq(found, classes > least ? classes : least, "%s, rank %d of %d: %d", how,
                             rank, ranks, found);
                for (int class = 0; class < DATASET_CLASSES; class ++)
                    holders[class] += counts[class] > 0;
            }
            for (int class = 1; class < DATASET_CLASSES; class ++)
                cr_assert_leq(abs(holders[class] - holders[0]), 1 + (ranks < 10));
            train_shards_free(&shards);
        }
    }
    dataset_free(&data);
}

/* The share of a rank's rows that are of its most frequent class, on average over ranks. */
static double measure_skew(const struct dataset *data, const char *how, int ranks)
{
    struct train_shards shards = divide(data, how, ranks, 3);
    double skew = 0.0;

    for (int rank = 0; rank < ranks; rank++) {
        size_t counts[DATASET_CLASSES];
        size_t most = 0;
        count_classes(data, &shards, rank, counts);
        for (int class = 0; class < DATASET_CLASSES; class ++)
            most = counts[class] > most ? counts[class] : most;
        skew += (double)most / (double)rows_of_rank(&shards, rank) / ranks;
        cr_assert_leq(rows_of_rank(&shards, rank), data->rows / (size_t)ranks + 1);
    }
    train_shards_free(&shards);
    return skew;
}

Test(shards, small_alphas_differ_more)
{
    struct dataset data = read_digits();
    double alike = measure_skew(&data, "dirichlet:1000", 16);
    double some = measure_skew(&data, "dirichlet:1", 16);
    double most = measure_skew(&data, "dirichlet:0.05", 16);

    cr_assert_lt(alike, 0.16, "%g", alike);
    cr_assert(some > alike + 0.1 && some < most - 0.2, "%g, %g, %g", alike, some, most);
    cr_assert_gt(most, 0.5, "%g", most);
    dataset_free(&data);
}

Test(shards, follow_from_the_seed)
{
    struct dataset data = read_digits();

    for (int way = 0; way < 2; way++) {
        const char *how = way ? "dirichlet:0.5" : "by-class:2";
        struct train_shards first = divide(&data, how, 7, 11);
        struct train_shards again = divide(&data, how, 7, 11);
        struct train_shards other = divide(&data, how, 7, 12);
        cr_assert_eq(memcmp(first.rows, again.rows, data.rows * sizeof *first.rows), 0);
        cr_assert_neq(memcmp(first.rows, other.rows, data.rows * sizeof *first.rows), 0);
        train_shards_free(&first);
        train_shards_free(&again);
        train_shards_free(&other);
    }
    dataset_free(&data);
}

/* A class that has no rows is nobody's; all ranks may have the only row. */
Test(shards, few_rows_do)
{
    float images[3 * DATASET_PIXELS] = {0};
    uint8_t labels[] = {4, 7, 4};
    struct dataset data = {3, images, labels};

    for (int ranks = 1; ranks <= 9; ranks++) {
        struct train_shards shards = divide(&data, "by-class:1", ranks, 1);
        check_rows(&data, &shards, ranks, ranks <= 2);
        train_shards_free(&shards);
        shards = divide(&data, "dirichlet:0.1", ranks, 1);
        check_rows(&data, &shards, ranks, ranks <= 3);
        train_shards_free(&shards);
    }
}

/* An epoch of a rank is each of its rows once, in an order that differs from epoch to epoch. */
Test(shards, a_rank_goes_through_its_rows_in_epochs)
{
    struct dataset data = read_digits();
    struct train_shards shards = divide(&data, "by-class:2", 16, 2);
    struct train_batches batches;
    float *before = calloc(data.rows, sizeof *before);

    for (int rank = 0; rank < 16; rank++) {
        size_t counts[DATASET_CLASSES];
        size_t count = rows_of_rank(&shards, rank);
        size_t moved = 0;
        count_classes(&data, &shards, rank, counts);
        cr_assert_eq(train_batches_init(&batches, &data, &shards, 1, 2, rank, 16), WEFT_OK);
        for (int epoch = 0; epoch < 2; epoch++) {
            size_t seen[DATASET_CLASSES] = {0};
            for (size_t i = 0; i < count; i++) {
                float sum = 0.0f;
                train_batches_take(&batches, (size_t)epoch * count + i);
                seen[batches.labels[0]]++;
                for (int pixel = 0; pixel < DATASET_PIXELS; pixel++)
                    sum += batches.images[pixel] * (float)(pixel + 1);
                moved += epoch == 1 && sum != before[i];
                before[i] = sum;
            }
            cr_assert_eq(memcmp(seen, counts, sizeof seen), 0);
        }
        cr_assert_gt(moved, count / 2);
        train_batches_free(&batches);
    }
    free(before);
    train_shards_free(&shards);
    dataset_free(&data);
}

Test(shards, malformed_divisions_are_refused)
{
    static const char *const texts[] = {"",
                                        "id",
                                        "by-class",
                                        "by-class:",
                                        "by-class:0",
                                        "by-class:11",
                                        "by-class:2x",
                                        "by-class:1.5",
                                        "dirichlet",
                                        "dirichlet:",
                                        "dirichlet:0",
                                        "dirichlet:-1",
                                        "dirichlet:nan",
                                        "dirichlet:1,2",
                                        "dirichlet:1e7",
                                        "iid:1",
                                        "dirichlet:1e-7"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct train_division division;
        cr_assert_eq(train_shards_parse(&division, texts[i]), WEFT_ERR_INVALID, "'%s'", texts[i]);
    }
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

/* ---- delays and yardsticks ---- */

Test(delays, two_random_ranks_are_late_in_every_step)
{
    struct train_delays delays;
    int hits[5] = {0};

    cr_assert_eq(train_delays_parse(&delays, "two-random:20"), WEFT_OK);
    for (uint64_t step = 0; step < 500; step++) {
        int late = 0;
        for (int rank = 0; rank < 5; rank++) {
            double seconds = train_delay(&delays, 7, step, rank, 5);
            cr_assert(seconds == 0.0 || seconds == 0.02);
            late += seconds > 0.0;
            hits[rank] += seconds > 0.0;
        }
        cr_assert_eq(late, 2);
    }
    for (int rank = 0; rank < 5; rank++) {
        cr_assert(hits[rank] > 150 && hits[rank] < 250, "rank %d is late %d times of 500", rank,
                  hits[rank]);
    }
    cr_assert_float_eq(train_delay(&delays, 7, 0, 0, 1), 0.02, 1e-12);
}

Test(delays, models_are_drawn_as_asked)
{
    struct train_delays delays;
    int below = 0;

    cr_assert_eq(train_delays_parse(&delays, "fixed:3,250"), WEFT_OK);
    cr_assert_float_eq(train_delay(&delays, 1, 9, 3, 4), 0.25, 1e-12);
    cr_assert_float_eq(train_delay(&delays, 1, 9, 2, 4), 0.0, 0.0);
    cr_assert_eq(train_delays_parse(&delays, "lognormal:10,0.5"), WEFT_OK);
    for (uint64_t step = 0; step < 2000; step++) {
        double seconds = train_delay(&delays, 1, step, 0, 4);
        cr_assert_eq(seconds, train_delay(&delays, 1, step, 0, 4));
        cr_assert_gt(seconds, 0.0);
        below += seconds < 0.01;
    }
    cr_assert(below > 900 && below < 1100, "%d of 2000 are below the median", below);
    cr_assert_eq(train_delays_parse(&delays, "none"), WEFT_OK);
    cr_assert_float_eq(train_delay(&delays, 1, 0, 0, 4), 0.0, 0.0);
}

/* Each of 13 ranks is as often slow as another, over seeds; with one seed it is the same in every
 * step. */
Test(delays, some_ranks_are_late_for_ever)
{
    struct train_delays delays;
    int hits[13] = {0};

    cr_assert_eq(train_delays_parse(&delays, "permanent:3,20"), WEFT_OK);
    for (uint64_t seed = 0; seed < 1300; seed++) {
        int late = 0;
        for (int rank = 0; rank < 13; rank++) {
            double seconds = train_delay(&delays, seed, 0, rank, 13);
            cr_assert(seconds == 0.0 || seconds == 0.02);
            cr_assert_eq(seconds, train_delay(&delays, seed, 77, rank, 13));
            late += seconds > 0.0;
            hits[rank] += seconds > 0.0;
        }
        cr_assert_eq(late, 3, "seed %d: %d", (int)seed, late);
    }
    for (int rank = 0; rank < 13; rank++)
        cr_assert(hits[rank] > 240 && hits[rank] < 360, "rank %d: %d of 300", rank, hits[rank]);
    cr_assert_eq(train_delays_check(&delays, 3), WEFT_OK);
    cr_assert_eq(train_delays_check(&delays, 2), WEFT_ERR_INVALID);
    for (int ranks = 3; ranks < 70; ranks++) {
        int late = 0;
        for (int rank = 0; rank < ranks; rank++)
            late += train_delay(&delays, 1, 5, rank, ranks) > 0.0;
        cr_assert_eq(late, 3, "%d of %d", late, ranks);
    }
}

/* Twice as long is 2^1.5 times rarer. */
Test(delays, pareto_has_its_exponent)
{
    struct train_delays delays;
    int above[8] = {0};

    cr_assert_eq(train_delays_parse(&delays, "pareto:10,1.5"), WEFT_OK);
    for (uint64_t step = 0; step < 40000; step++) {
        double seconds = train_delay(&delays, 3, step, 1, 4);
        cr_assert(seconds >= 0.0062 && seconds <= 3600, "%g", seconds);
        for (int i = 0; i < 8; i++)
            above[i] += seconds > 0.01 * (1 << i);
    }
    for (int i = 0; i < 8; i++) {
        double due = 20000 * pow(2.0, -1.5 * i);
        cr_assert(fabs(above[i] - due) < 5 * sqrt(due), "above %d ms: %d, not %g", 10 << i,
                  above[i], due);
    }
}

Test(delays, models_add_up)
{
    struct train_delays both, alone, twice;
    double differ = 0.0;

    cr_assert_eq(train_delays_parse(&both, "lognormal:5,1+fixed:2,100"), WEFT_OK);
    cr_assert_eq(train_delays_parse(&alone, "lognormal:5,1"), WEFT_OK);
    cr_assert_eq(train_delays_parse(&twice, "lognormal:5,1+lognormal:5,1"), WEFT_OK);
    for (uint64_t step = 0; step < 20; step++) {
        for (int rank = 0; rank < 4; rank++) {
            double one = train_delay(&alone, 1, step, rank, 4);
            cr_assert_float_eq(train_delay(&both, 1, step, rank, 4), one + 0.1 * (rank == 2),
                               1e-12);
            differ += fabs(train_delay(&twice, 1, step, rank, 4) - 2 * one);
        }
    }
    cr_assert_gt(differ, 0.05, "the two are drawn apart");
}

/* Fig. 9 of the paper: 5,000 steps of 1.7 s to 43.5 s, median below 2 s. */
Test(delays, experience_has_a_heavy_tail)
{
    struct train_delays delays;
    double largest = 0.0;
    int below = 0;
    int long_ones = 0;

    cr_assert_eq(train_delays_parse(&delays, "rl:0.01"), WEFT_OK);
    for (uint64_t step = 0; step < 5000; step++) {
        double seconds = train_delay(&delays, 3, step, 2, 4) / 0.01;
        cr_assert_eq(0.01 * seconds, train_delay(&delays, 3, step, 2, 4));
        cr_assert(seconds >= 1.7 && seconds <= 43.5, "%g", seconds);
        largest = fmax(largest, seconds);
        below += seconds < 1.9;
        long_ones += seconds > 10.0;
    }
    cr_assert(below > 2350 && below < 2650, "%d of 5000 are below the median", below);
    cr_assert(largest > 20.0, "the longest is %g", largest);
    cr_assert(long_ones > 5 && long_ones < 100, "%d of 5000 are above 10", long_ones);
}

Test(delays, malformed_models_are_refused)
{
    static const char *const texts[] = {
        "",
        "two",
        "two-random",
        "two-random:",
        "two-random:x",
        "two-random:-1",
        "fixed:1",
        "fixed:1.5,2",
        "fixed:-1,2",
        "lognormal:3",
        "lognormal:1,2,3",
        "none:1",
        "two-random:1,2",
        "lognormal:nan,1",
        "two-random:inf",
        "rl",
        "rl:",
        "rl:-1",
        "rl:1,2",
        "rl:1000",
        "permanent:0,5",
        "permanent:2",
        "permanent:1.5,5",
        "permanent:2,5,1",
        "pareto:5",
        "pareto:5,0.4",
        "pareto:-5,2",
        "two-random:5+",
        "+two-random:5",
        "two-random:5+none",
        "rl:1+rl:1+rl:1+rl:1+rl:1",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct train_delays delays;
        cr_assert_eq(train_delays_parse(&delays, texts[i]), WEFT_ERR_INVALID, "'%s'", texts[i]);
    }
}

Test(yardsticks, follow_from_the_delays)
{
    struct train_options options;
    const double compute[] = {0.01, 0.01, 0.01, 0.01};
    struct train_yardsticks found;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.steps = 10;
    options.sync_period = 5;
    cr_assert_eq(train_delays_parse(&options.imbalance, "fixed:2,30"), WEFT_OK);
    cr_assert_eq(train_yardsticks(&found, &options, &train_allreduce, 4, compute), WEFT_OK);
    cr_assert_float_eq(found.ideal_seconds, 10 * 0.04, 1e-9);
    cr_assert_float_eq(found.bound_seconds, 10 * 0.04, 1e-9);

    cr_assert_eq(train_delays_parse(&options.imbalance, "two-random:30"), WEFT_OK);
    cr_assert_eq(train_yardsticks(&found, &options, &train_allreduce, 4, compute), WEFT_OK);
    cr_assert_float_eq(found.bound_seconds, 10 * 0.04, 1e-9);
    cr_assert_lt(found.ideal_seconds, 10 * 0.04 - 0.02);
    double synchronous = found.bound_seconds;
    cr_assert_eq(train_yardsticks(&found, &options, &train_local, 4, compute), WEFT_OK);
    cr_assert_leq(found.bound_seconds, synchronous + 1e-9);
    cr_assert_geq(found.bound_seconds, found.ideal_seconds - 1e-9);
    train_options_free(&options);
}

/* Who waits for whom, by the definitions. */
Test(yardsticks, ranks_leave_when_whom_they_wait_for_have_arrived)
{
    static const struct {
        const struct train_algorithm *algorithm;
        uint64_t step;
        double left[4];
    } cases[] = {
        {&train_allreduce, 0, {5, 5, 5, 5}},
        {&train_local, 0, {1, 5, 2, 3}},
        {&train_local, 4, {5, 5, 5, 5}},
        {&train_d_psgd, 3, {5, 5, 5, 3}},
        {&train_sgp, 0, {3, 5, 5, 3}},
        {&train_sgp, 1, {2, 5, 2, 5}},
        {&train_wagma, 0, {1, 5, 2, 3}},
        {&train_wagma, 9, {5, 5, 5, 5}},
        {&train_eager_solo, 3, {1, 5, 2, 3}},
        {&train_eager_solo, 4, {5, 5, 5, 5}},
        {&train_eager_majority, 4, {5, 5, 5, 5}},
    };
    static const double arrived[] = {1, 5, 2, 3};
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.sync_period = 5;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double left[] = {1, 5, 2, 3};
        cr_assert_eq(cases[i].algorithm->leave(&options, 4, cases[i].step, arrived, left), WEFT_OK);
        for (int rank = 0; rank < 4; rank++) {
            cr_assert_eq(left[rank], cases[i].left[rank], "%s, step %d, rank %d: %g",
                         cases[i].algorithm->name, (int)cases[i].step, rank, left[rank]);
        }
    }
    cr_assert_null(train_ad_psgd.leave);
    for (uint64_t step = 0; step < 20; step++) {
        double left[] = {1, 5, 2, 3};
        double drawn = arrived[weft_group_average_activator(options.seed, 4, step)];
        cr_assert_eq(train_eager_majority.leave(&options, 4, step, arrived, left), WEFT_OK);
        for (int rank = 0; rank < 4; rank++) {
            double last = train_is_sync(&options, step) ? 5 : fmax(drawn, arrived[rank]);
            cr_assert_eq(left[rank], last);
        }
    }
    options.mode = WEFT_AVERAGE_WAITING; /* groups {0, 1}, {2, 3}, then {0, 2}, {1, 3} */
    options.group_size = 2;
    double paired[] = {1, 5, 2, 3};
    cr_assert_eq(train_wagma.leave(&options, 4, 0, arrived, paired), WEFT_OK);
    cr_assert(paired[0] == 5 && paired[1] == 5 && paired[2] == 3 && paired[3] == 3);
    cr_assert_eq(train_wagma.leave(&options, 4, 1, arrived, paired), WEFT_OK);
    cr_assert(paired[0] == 2 && paired[1] == 5 && paired[2] == 2 && paired[3] == 5);
    options.mode = WEFT_AVERAGE_WAIT_AVOIDING;
    options.group_size = 0;
    double alone[] = {7};
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        if ((*at)->leave)
            cr_assert_eq((*at)->leave(&options, 1, 4, alone, alone), WEFT_OK);
        cr_assert_eq(alone[0], 7);
    }
    train_options_free(&options);
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
