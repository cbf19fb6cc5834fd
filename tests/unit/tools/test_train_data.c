/* SPDX-License-Identifier: BSD-3-Clause */
/* What the demonstration trainer trains on: the digits, and the shards of ranks. */
#include "tools/train/batches.h"
#include "tools/train/dataset.h"
#include "tools/train/options.h"
#include "tools/train/shards.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
