/* SPDX-License-Identifier: BSD-3-Clause */
/* The output of `weft train` for people: the table, what stands below it, the plot. */
#include "tools/train/report.h"

#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/page/plot.h"
#include "tools/train/compressed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    /** Of servers, and only where an algorithm has such. */
    COLUMN_SERVERS,
    COLUMN_STALENESS,
    COLUMN_SYNCHRONISED,
    COLUMN_LATE_SHARE,
    COLUMN_LATE_LAYERS,
    COLUMNS
};

static const struct {
    const char *heading;
    int digits;
    const char *unit;
    /** With several seeds the smallest and the largest are shown too. */
    int spread;
} columns[COLUMNS] = {
    [COLUMN_SECONDS] = {">seconds", 2, "", 0},
    [COLUMN_SAMPLES] = {">samples/s", 0, "", 1},
    [COLUMN_SPEED_UP] = {">speed-up", 2, "x", 0},
    [COLUMN_IDEAL] = {">ideal", 0, "", 0},
    [COLUMN_BOUND] = {">bound", 0, "", 0},
    [COLUMN_SHARE] = {">of bound", 1, " %", 0},
    [COLUMN_ACCURACY] = {">accuracy", 2, " %", 1},
    [COLUMN_STALE] = {">stale", 1, " %", 1},
    [COLUMN_LOSS] = {">loss", 4, "", 0},
    [COLUMN_DISTANCE] = {">distance", 3, "", 0},
    [COLUMN_STEP_BYTES] = {">kB/step", 1, "", 0},
    [COLUMN_BYTES] = {">MB", 1, "", 0},
    [COLUMN_RATIO] = {">ratio", 2, "", 0},
    [COLUMN_SERVERS] = {">servers", 0, "", 0},
    [COLUMN_STALENESS] = {">staleness", 2, "", 0},
    [COLUMN_SYNCHRONISED] = {">sync ms", 3, "", 0},
    [COLUMN_LATE_SHARE] = {">ICS", 1, " %", 0},
    [COLUMN_LATE_LAYERS] = {">late layers", 1, "", 0},
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

/* The phases of GradiVeQ, and who chose them. */
static void print_phases(const struct train_options *options)
{
    struct train_phase_lengths lengths = train_compressed_lengths(options);

    printf("; %llu steps of warm-up, then %llu that are samples",
           (unsigned long long)lengths.warmup_steps, (unsigned long long)lengths.sample_steps);
    if (lengths.compressed_steps == WEFT_NEVER)
        printf(", and all others compressed");
    else
        printf(" and %llu compressed, in turns", (unsigned long long)lengths.compressed_steps);
    if (lengths.scaled)
        printf(" (scaled to --steps: the paper has 2500, 100 and 400)");
}

/* K/d of all that is projected. */
static void print_projections(const struct train_compressed *compressed)
{
    double values = 0.0, components = 0.0;

    for (size_t i = 0; i < compressed->projection_count; i++) {
        const struct train_projection *each = &compressed->projections[i];
        values += (double)each->slices * (double)each->slice;
        components += (double)each->slices * (double)each->components;
    }
    if (components > 0.0)
        printf("; %zu tensors projected at last, K/d = %.1f", compressed->projection_count,
               values / components);
}

/* What compression came to in rows that have it. */
static void print_compressed(const struct train_options *options,
                             const struct train_outcome *outcomes)
{
    for (size_t i = 0; i < options->algorithm_count; i++) {
        const struct train_algorithm *algorithm = options->algorithms[i];
        const struct train_compressed *compressed = &outcomes[i].compressed;
        char name[NAME];

        if (train_compression_of(options, algorithm) == TRAIN_COMPRESS_NONE || !outcomes[i].steps)
            continue;
        printf("%s: %llu of %llu steps compressed",
               train_options_name(options, i, name, sizeof name),
               (unsigned long long)compressed->steps, (unsigned long long)outcomes[i].steps);
        if (compressed->steps > 0)
            printf(", by %.2f", compressed->ratio);
        if (compressed->steps > 0 && compressed->loss >= 0.0)
            printf(", losing %.3g of a gradient's squared norm", compressed->loss);
        if (train_compression_of(options, algorithm) == TRAIN_COMPRESS_GRADIVEQ) {
            print_projections(compressed);
            print_phases(options);
        }
        printf(".\n");
    }
}

static void print_device(const struct train_options *options)
{
    if (options->device)
        printf("Models on %s.\n", options->device);
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
    case COLUMN_SERVERS:
        return outcome->served.servers;
    case COLUMN_STALENESS:
        return outcome->served.staleness;
    case COLUMN_SYNCHRONISED:
        return outcome->served.synchronised_seconds * 1e3;
    case COLUMN_LATE_SHARE:
        return 100.0 * outcome->served.late_share;
    case COLUMN_LATE_LAYERS:
        return outcome->served.late_layers;
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

static int has_column(const struct train_algorithm *algorithm, enum column column)
{
    if (column >= COLUMN_LATE_SHARE)
        return algorithm->serve && algorithm->sync == WEFT_SERVER_OSP;
    return column < COLUMN_SERVERS || algorithm->serve;
}

/* A cell: the median over the seeds, of an even number the mean of the middle two. */
static void write_cell(struct table *table, const struct train_options *options,
                       const struct train_outcome *outcomes, size_t algorithm, enum column column,
                       const size_t *chosen, size_t count, double *values)
{
    int digits = columns[column].digits;

    if (!has_column(options->algorithms[algorithm], column)) {
        table_cell(table, "-");
        return;
    }
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

static int column_count(const struct train_options *options)
{
    return train_options_serve(options) ? COLUMNS : COLUMN_SERVERS;
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
    for (int column = 0; column < column_count(options); column++)
        write_cell(table, options, outcomes, algorithm, (enum column)column, chosen, count, values);
}

int train_report_table(const struct train_options *options, const struct train_outcome *outcomes)
{
    const char *headings[4 + COLUMNS] = {"algorithm", "order", ">ranks", ">steps"};

    const int count = column_count(options);

    for (int column = 0; column < count; column++)
        headings[4 + column] = columns[column].heading;
    struct table *table = table_create(headings, 4 + (size_t)count);
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
    print_device(options);
    print_merged(options, outcomes);
    print_sparse(options, outcomes);
    print_compressed(options, outcomes);
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
    if (train_options_serve(options) && used < (int)size)
        used += snprintf(text + used, size - (size_t)used, ", %d%s server%s",
                         options->servers.count, options->servers.colocated ? " co-located" : "",
                         options->servers.count == 1 ? "" : "s");
    if (options->division.kind != TRAIN_SHARDS_IID && used < (int)size)
        used += snprintf(text + used, size - (size_t)used, ", shards %s", options->division_text);
    if (options->imbalance.count > 0 && used < (int)size)
        snprintf(text + used, size - (size_t)used, ", imbalance %s", options->imbalance_text);
}

struct series_text {
    char name[NAME];
    char remark[64];
};

/* Parts of the time at whose beginning exchanges became others; none if they never did. @p bars has
 * room for all. */
static size_t fill_phases(struct plot_phase *bars, const struct train_outcome *outcome)
{
    static const double shades[] = {[WEFT_COMPRESSED_WARMUP] = 0.2,
                                    [WEFT_COMPRESSED_SAMPLING] = 0.5,
                                    [WEFT_COMPRESSED_COMPRESSED] = 1.0};
    size_t count = outcome->phase_count;

    for (size_t i = 0; i < count; i++) {
        const struct train_phase *phase = &outcome->phases[i];
        bars[i] = (struct plot_phase){
            phase->seconds, i + 1 < count ? phase[1].seconds : outcome->seconds, phase->name, 1.0};
        for (int kind = WEFT_COMPRESSED_WARMUP; kind <= WEFT_COMPRESSED_COMPRESSED; kind++)
            if (strcmp(phase->name, weft_compressed_phase_name((weft_compressed_phase_t)kind)) == 0)
                bars[i].shade = shades[kind];
    }
    return count > 1 ? count : 0;
}

/* `points` has room for the accuracies, and behind them for the distances. */
static void fill_series(struct plot_series *series, struct plot_point *points,
                        struct plot_phase *phases, struct series_text *text,
                        const struct train_options *options, const struct train_outcome *outcomes,
                        size_t index)
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
                                   .phases = phases,
                                   .phase_count = fill_phases(phases, outcome),
                                   .featured = options->algorithms[index]->featured};
}

/* The memory of a plot. */
struct drawing {
    struct plot_series *series;
    struct plot_point *points;
    struct plot_phase *phases;
    struct series_text *texts;
};

static void free_drawing(struct drawing *drawing)
{
    weft_memory_free(drawing->texts);
    weft_memory_free(drawing->phases);
    weft_memory_free(drawing->points);
    weft_memory_free(drawing->series);
}

static int make_drawing(struct drawing *drawing, const struct train_outcome *outcomes, size_t count)
{
    size_t points = 0, phases = 0;

    for (size_t i = 0; i < count; i++) {
        points += outcomes[i].curve_count;
        phases += outcomes[i].phase_count;
    }
    *drawing = (struct drawing){weft_memory_alloc(count, sizeof *drawing->series),
                                weft_memory_alloc(points, 2 * sizeof *drawing->points),
                                weft_memory_alloc(phases, sizeof *drawing->phases),
                                weft_memory_alloc(count, sizeof *drawing->texts)};
    return drawing->series && drawing->points && drawing->phases && drawing->texts;
}

/* A line for each training that has done a step. @return how many there are. */
static size_t draw_trainings(struct drawing *drawing, const struct train_options *options,
                             const struct train_outcome *outcomes)
{
    struct plot_point *point = drawing->points;
    struct plot_phase *phase = drawing->phases;
    size_t drawn = 0;

    for (size_t i = 0; i < options->algorithm_count; i++) {
        if (!outcomes[i].steps)
            continue; /* interrupted before its first step */
        fill_series(&drawing->series[drawn++], point, phase, &drawing->texts[i], options, outcomes,
                    i);
        phase += outcomes[i].phase_count;
        point += 2 * outcomes[i].curve_count;
    }
    return drawn;
}

/* Whether models have differed in any of the trainings. */
static int were_apart(const struct train_outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (outcomes[i].consensus_distance != 0.0)
            return 1;
    return 0;
}

int train_report_plot(const struct train_options *options, const struct train_outcome *outcomes)
{
    size_t count = options->algorithm_count;
    struct drawing drawing;
    int status = WEFT_ERR_MEMORY;
    char subtitle[256];

    if (make_drawing(&drawing, outcomes, count)) {
        describe(options, outcomes[0].ranks, subtitle, sizeof subtitle);
        struct plot plot = {.title = "Test accuracy over training time",
                            .subtitle = subtitle,
                            .x_label = "training time (s)",
                            .y_label = "test accuracy of the mean model (%)",
                            .lower_label =
                                were_apart(outcomes, count) ? "consensus distance (root)" : NULL,
                            .series = drawing.series,
                            .series_count = draw_trainings(&drawing, options, outcomes)};
        status = plot_write_svg(&plot, options->plot);
    }
    free_drawing(&drawing);
    if (status == WEFT_ERR_MEMORY)
        return cli_fail(command, "out of memory");
    return status == WEFT_OK ? CLI_OK : cli_usage(command, "--plot: %s", weft_error_text());
}
