/* SPDX-License-Identifier: BSD-3-Clause */
/* The output of `weft train` for people: the table, what stands below it, the plot. */
#include "tools/train/report.h"

#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/page/plot.h"

#include <math.h>
#include <stdlib.h>

static const char command[] = "train";

/* Room for the name of a training. */
enum { NAME = 32 + WEFT_MERGE_METHOD_TEXT };

/* The columns of the table, each a number of an outcome; rows are medians over the seeds. */
enum column {
    COLUMN_SECONDS,
    COLUMN_SAMPLES,
    COLUMN_SPEED_UP,
    COLUMN_IDEAL,
    COLUMN_BOUND,
    COLUMN_SHARE,
    COLUMN_ACCURACY,
    COLUMN_STALE,
    COLUMN_LOSS,
    COLUMN_DISTANCE,
    COLUMN_STEP_BYTES,
    COLUMN_BYTES,
    COLUMN_RATIO,
    COLUMNS
};

static const struct {
    const char *heading;
    int digits;
    const char *unit;
    /** With several seeds the smallest and the largest are shown too. */
    int spread;
} columns[COLUMNS] = {
    [COLUMN_SECONDS] = {">seconds", 2, "", 0},     [COLUMN_SAMPLES] = {">samples/s", 0, "", 1},
    [COLUMN_SPEED_UP] = {">speed-up", 2, "x", 0},  [COLUMN_IDEAL] = {">ideal", 0, "", 0},
    [COLUMN_BOUND] = {">bound", 0, "", 0},         [COLUMN_SHARE] = {">of bound", 1, " %", 0},
    [COLUMN_ACCURACY] = {">accuracy", 2, " %", 1}, [COLUMN_STALE] = {">stale", 1, " %", 1},
    [COLUMN_LOSS] = {">loss", 4, "", 0},           [COLUMN_DISTANCE] = {">distance", 3, "", 0},
    [COLUMN_STEP_BYTES] = {">kB/step", 1, "", 0},  [COLUMN_BYTES] = {">MB", 1, "", 0},
    [COLUMN_RATIO] = {">ratio", 2, "", 0},
};

/* What ranks have selected in rows of sparse gradients. */
static void print_sparse(const struct train_options *options, const struct train_outcome *outcomes)
{
    for (size_t i = 0; i < options->algorithm_count; i++) {
        const struct train_outcome *outcome = &outcomes[i];
        if (outcome->k == 0)
            continue;
        printf("%s: k = %zu of %zu entries in the last step%s; %.4g of all in all steps.\n",
               options->algorithms[i]->name, outcome->k, outcome->parameters,
               options->sparse.per_layer ? ", selected by tensor" : "", outcome->selected_share);
    }
}

/* How layers were merged, and what became of the plan, in rows of layers. */
static void print_merged(const struct train_options *options, const struct train_outcome *outcomes)
{
    for (size_t i = 0; i < options->algorithm_count; i++) {
        const struct train_outcome *outcome = &outcomes[i];
        const struct train_merged *merged = &outcome->merged;
        double planned = outcome->planned_step_seconds;
        char name[NAME];

        if (!merged->layers)
            continue;
        printf("%s: %zu layers in %zu group%s; a step of %.3f ms",
               train_options_name(options, i, name, sizeof name), merged->layer_count,
               merged->group_count, merged->group_count == 1 ? "" : "s",
               outcome->step_seconds * 1e3);
        if (planned > 0.0)
            printf(" (planned %.3f)", planned * 1e3);
        printf(", %.1f %% of communication hidden", 100.0 * merged->hidden);
        if (planned > 0.0)
            printf(" (planned %.1f)", 100.0 * merged->planned_hidden);
        printf(".\n");
    }
}

/* Who was not there in the end. */
static void print_lost(const struct train_options *options, const struct train_outcome *outcomes)
{
    for (size_t i = 0; i < options->seeds * options->algorithm_count; i++)
        if (outcomes[i].steps && outcomes[i].ranks_lost > 0)
            printf("%s: %d of %d ranks died; numbers are of those that were left.\n",
                   options->algorithms[i % options->algorithm_count]->name, outcomes[i].ranks_lost,
                   outcomes[i].ranks + outcomes[i].ranks_lost);
}

/* How long a start waited in rows of which some begin without the rank. */
static void print_patience(const struct train_options *options)
{
    for (size_t i = 0; i < options->algorithm_count; i++) {
        const struct train_algorithm *algorithm = options->algorithms[i];
        uint64_t ns = algorithm->patience ? algorithm->patience(options) : WEFT_NS_NONE;
        if (ns == 0)
            printf("%s: --patience adaptive.\n", algorithm->name);
        else if (ns != WEFT_NS_NONE)
            printf("%s: --patience %g.\n", algorithm->name, (double)ns * 1e-6);
    }
}

/* How stale steps were mixed in rows that have such. */
static void print_mix(const struct train_options *options)
{
    for (size_t i = 0; i < options->algorithm_count; i++) {
        const struct train_algorithm *algorithm = options->algorithms[i];
        const char *mix = algorithm->mix ? algorithm->mix(options) : NULL;
        if (mix)
            printf("%s: stale steps mixed by --stale-mix %s.\n", algorithm->name, mix);
    }
}

/* @p first is the first algorithm's outcome with the same seed. */
static double column_of(const struct train_outcome *outcome, const struct train_outcome *first,
                        enum column column)
{
    switch (column) {
    case COLUMN_SECONDS:
        return outcome->seconds;
    case COLUMN_SAMPLES:
        return outcome->samples_per_second;
    case COLUMN_SPEED_UP:
        return outcome->samples_per_second / first->samples_per_second;
    case COLUMN_IDEAL:
        return outcome->ideal_samples_per_second;
    case COLUMN_BOUND:
        return outcome->bound_samples_per_second;
    case COLUMN_SHARE:
        return 100.0 * outcome->samples_per_second / outcome->bound_samples_per_second;
    case COLUMN_ACCURACY:
        return 100.0 * outcome->test_accuracy;
    case COLUMN_STALE:
        return 100.0 * outcome->stale_fraction;
    case COLUMN_DISTANCE:
        return outcome->consensus_distance;
    case COLUMN_STEP_BYTES:
        return outcome->bytes_per_step * 1e-3;
    case COLUMN_BYTES:
        return outcome->bytes_sent * 1e-6;
    case COLUMN_RATIO:
        return outcome->compression_ratio;
    default:
        return outcome->loss;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The outcomes of an algorithm that a row is of, as numbers of seeds: those of whole trainings, or
 * else the one that was interrupted. */
static size_t choose_seeds(const struct train_options *options,
                           const struct train_outcome *outcomes, size_t algorithm, size_t *chosen)
{
    size_t count = 0;
    size_t partial = options->seeds;

    for (size_t seed = 0; seed < options->seeds; seed++) {
        const struct train_outcome *outcome =
            &outcomes[seed * options->algorithm_count + algorithm];
        if (outcome->steps && !outcome->interrupted)
            chosen[count++] = seed;
        else if (outcome->steps)
            partial = seed;
    }
    if (!count && partial < options->seeds)
        chosen[count++] = partial;
    return count;
}

/* A cell: the median over the seeds, of an even number the mean of the middle two. */
static void write_cell(struct table *table, const struct train_options *options,
                       const struct train_outcome *outcomes, size_t algorithm, enum column column,
                       const size_t *chosen, size_t count, double *values)
{
    int digits = columns[column].digits;

    for (size_t i = 0; i < count; i++) {
        const struct train_outcome *row = outcomes + chosen[i] * options->algorithm_count;
        values[i] = column_of(&row[algorithm], &row[0], column);
    }
    qsort(values, count, sizeof *values, compare);
    double median = (values[(count - 1) / 2] + values[count / 2]) / 2.0;
    if (!isfinite(median) && column == COLUMN_RATIO) {
        table_cell(table, "-"); /* nothing was sent */
    } else if (count > 1 && columns[column].spread) {
        table_cell(table, "%.*f%s (%.*f-%.*f)", digits, median, columns[column].unit, digits,
                   values[0], digits, values[count - 1]);
    } else {
        table_cell(table, "%.*f%s", digits, median, columns[column].unit);
    }
}

/* A row; none of an algorithm that has done no step. */
static void write_row(struct table *table, const struct train_options *options,
                      const struct train_outcome *outcomes, size_t algorithm, size_t *chosen,
                      double *values)
{
    size_t count = choose_seeds(options, outcomes, algorithm, chosen);

    if (!count)
        return;
    const struct train_outcome *one = &outcomes[chosen[0] * options->algorithm_count + algorithm];
    char name[NAME];
    table_cell(table, "%s%s", train_options_name(options, algorithm, name, sizeof name),
               one->interrupted ? " (interrupted)" : "");
    table_cell(table, "%s", train_order_name(options, options->algorithms[algorithm]));
    table_cell(table, "%d", one->ranks);
    table_cell(table, "%llu", (unsigned long long)one->steps);
    for (int column = 0; column < COLUMNS; column++)
        write_cell(table, options, outcomes, algorithm, (enum column)column, chosen, count, values);
}

int train_report_table(const struct train_options *options, const struct train_outcome *outcomes)
{
    const char *headings[4 + COLUMNS] = {"algorithm", "order", ">ranks", ">steps"};

    for (int column = 0; column < COLUMNS; column++)
        headings[4 + column] = columns[column].heading;
    struct table *table = table_create(headings, sizeof headings / sizeof headings[0]);
    double *values = weft_memory_alloc(options->seeds, sizeof *values);
    size_t *chosen = weft_memory_alloc(options->seeds, sizeof *chosen);
    if (!table || !values || !chosen) {
        weft_memory_free(chosen);
        weft_memory_free(values);
        table_destroy(table);
        return cli_fail(command, "out of memory");
    }
    for (size_t i = 0; i < options->algorithm_count; i++)
        write_row(table, options, outcomes, i, chosen, values);
    int failed = table_print(table, stdout);
    print_merged(options, outcomes);
    print_sparse(options, outcomes);
    print_mix(options);
    print_patience(options);
    print_lost(options, outcomes);
    if (options->seeds > 1) {
        printf("Medians of %zu seeds, %llu to %llu; in parentheses the smallest and the largest.\n",
               options->seeds, (unsigned long long)options->seed,
               (unsigned long long)(options->seed + options->seeds - 1));
    }
    weft_memory_free(chosen);
    weft_memory_free(values);
    table_destroy(table);
    return failed ? cli_fail(command, "out of memory") : CLI_OK;
}

static void describe(const struct train_options *options, int ranks, char *text, size_t size)
{
    int used = snprintf(text, size, "optdigits, %s, %d %s ranks, %llu steps of %zu images a rank",
                        net_architectures()[options->model]->name, ranks, options->transport,
                        (unsigned long long)options->steps, options->batch);

    if (options->compute_seconds > 0.0 && used < (int)size) {
        used += snprintf(text + used, size - (size_t)used, ", compute %g ms",
                         options->compute_seconds * 1e3);
    }
    if (options->division.kind != TRAIN_SHARDS_IID && used < (int)size)
        used += snprintf(text + used, size - (size_t)used, ", shards %s", options->division_text);
    if (options->imbalance.count > 0 && used < (int)size)
        snprintf(text + used, size - (size_t)used, ", imbalance %s", options->imbalance_text);
}

struct series_text {
    char name[NAME];
    char remark[64];
};

/* `points` has room for the accuracies, and behind them for the distances. */
static void fill_series(struct plot_series *series, struct plot_point *points,
                        struct series_text *text, const struct train_options *options,
                        const struct train_outcome *outcomes, size_t index)
{
    const struct train_outcome *outcome = &outcomes[index];
    struct plot_point *distances = points + outcome->curve_count;

    for (size_t i = 0; i < outcome->curve_count; i++) {
        points[i].x = distances[i].x = outcome->curve[i].seconds;
        points[i].y = 100.0 * outcome->curve[i].accuracy;
        distances[i].y = outcome->curve[i].distance;
    }
    snprintf(text->remark, sizeof text->remark, "%.1f %%, %.0f samples/s",
             100.0 * outcome->test_accuracy, outcome->samples_per_second);
    train_options_name(options, index, text->name, sizeof text->name);
    *series = (struct plot_series){.name = text->name,
                                   .remark = text->remark,
                                   .points = points,
                                   .lower = outcome->alone ? NULL : distances,
                                   .count = outcome->curve_count,
                                   .featured = options->algorithms[index]->featured};
}

int train_report_plot(const struct train_options *options, const struct train_outcome *outcomes)
{
    size_t count = options->algorithm_count;
    size_t points = 0;
    char subtitle[256];

    for (size_t i = 0; i < count; i++)
        points += outcomes[i].curve_count;
    struct plot_series *series = weft_memory_alloc(count, sizeof *series);
    struct plot_point *at = weft_memory_alloc(points, 2 * sizeof *at);
    struct series_text *texts = weft_memory_alloc(count, sizeof *texts);
    int status = WEFT_ERR_MEMORY;
    if (series && at && texts) {
        struct plot_point *next = at;
        size_t drawn = 0;
        for (size_t i = 0; i < count; i++) {
            if (!outcomes[i].steps)
                continue; /* interrupted before its first step */
            fill_series(&series[drawn++], next, &texts[i], options, outcomes, i);
            next += 2 * outcomes[i].curve_count;
        }
        describe(options, outcomes[0].ranks, subtitle, sizeof subtitle);
        struct plot plot = {"Test accuracy over training time",
                            subtitle,
                            "training time (s)",
                            "test accuracy of the mean model (%)",
                            "consensus distance (root)",
                            series,
                            drawn};
        status = plot_write_svg(&plot, options->plot);
    }
    weft_memory_free(texts);
    weft_memory_free(at);
    weft_memory_free(series);
    if (status == WEFT_ERR_MEMORY)
        return cli_fail(command, "out of memory");
    return status == WEFT_OK ? CLI_OK : cli_usage(command, "--plot: %s", weft_error_text());
}
