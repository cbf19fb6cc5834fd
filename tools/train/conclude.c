/* SPDX-License-Identifier: BSD-3-Clause */
/* What came of a training: from the reports of all ranks, the history and the yardsticks. */
#include "tools/train/trainee.h"
#include "tools/train/yardsticks.h"

#include <math.h>
#include <string.h>
#include <weft/memory.h>

/* The model that the ranks have made one is in the trainee; @p mean has room for another. */
static int evaluate(struct trainee *trainee, struct train_outcome *outcome, float *mean)
{
    const struct dataset *test = trainee->job->test;
    const struct train_history *history = trainee->job->history;
    struct model *model = trainee->setup.model;
    double area = 0.0;

    int status =
        model_accuracy(model, test->images, test->labels, test->rows, &outcome->test_accuracy);
    for (size_t i = 0; i < outcome->curve_count && status == WEFT_OK; i++) {
        struct train_point *at = &outcome->curve[i];
        struct train_history_point point;
        train_history_get(history, i, &point, mean);
        *at = (struct train_point){point.done < outcome->steps ? point.done : outcome->steps,
                                   point.seconds, outcome->test_accuracy, point.distance};
        if (i + 1 < outcome->curve_count) {
            status = model_load(model, mean);
            if (status == WEFT_OK)
                status =
                    model_accuracy(model, test->images, test->labels, test->rows, &at->accuracy);
        }
        if (i > 0)
            area += (at->seconds - at[-1].seconds) * (at->distance + at[-1].distance) / 2.0;
    }
    struct train_point *last = &outcome->curve[outcome->curve_count - 1];
    outcome->consensus_distance = last->seconds > 0.0 ? area / last->seconds : last->distance;
    /* Until the slowest has ended. */
    last->seconds = fmax(last->seconds, outcome->seconds);
    return status;
}

static int draw_curve(struct trainee *trainee, struct train_outcome *outcome)
{
    float *mean = weft_memory_alloc(outcome->parameters, 2 * sizeof *mean);

    outcome->curve_count = train_history_count(trainee->job->history);
    outcome->curve = weft_memory_alloc(outcome->curve_count, sizeof *outcome->curve);
    int status = mean && outcome->curve
                     ? WEFT_OK
                     : weft_error_set(WEFT_ERR_MEMORY, "no memory for the points of a curve");
    /* It is looked at again if another rank dies before all have ended. */
    if (status == WEFT_OK)
        status = model_save(trainee->setup.model, mean + outcome->parameters);
    if (status == WEFT_OK)
        status = evaluate(trainee, outcome, mean);
    if (status == WEFT_OK)
        status = model_load(trainee->setup.model, mean + outcome->parameters);
    weft_memory_free(mean);
    return status;
}

/* What compression came to, on this rank, and the phases. */
static int copy_compressed(const struct trainee *trainee, struct train_outcome *outcome)
{
    const struct train_compressed *compressed = &trainee->compressed;
    struct train_compressed *copy = &outcome->compressed;
    double loss = copy->loss; /* of all ranks */

    *copy = *compressed;
    copy->loss = loss;
    copy->projections = weft_memory_alloc(compressed->projection_count, sizeof *copy->projections);
    outcome->phases = weft_memory_alloc(trainee->phase_count, sizeof *outcome->phases);
    if (!copy->projections || !outcome->phases)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for phases and projections");
    if (compressed->projection_count > 0)
        memcpy(copy->projections, compressed->projections,
               compressed->projection_count * sizeof *copy->projections);
    if (trainee->phase_count > 0)
        memcpy(outcome->phases, trainee->phases, trainee->phase_count * sizeof *outcome->phases);
    outcome->phase_count = trainee->phase_count;
    return WEFT_OK;
}

static void sum_up(const struct trainee *trainee, struct train_outcome *outcome)
{
    int ranks = trainee->setup.size;
    double stale = 0.0;
    double steps = (double)trainee->steps;
    double dense = 0.0;
    double pushed = 0.0, late = 0.0;

    outcome->ranks = ranks;
    outcome->ranks_lost = trainee->began_with - ranks;
    outcome->steps = trainee->steps;
    outcome->interrupted = trainee->steps < trainee->job->options->steps;
    outcome->identical = 1;
    outcome->checksum = (uint64_t)trainee->reports[REPORT_CHECKSUM];
    outcome->k = trainee->stats.k;
    outcome->parameters = model_parameter_count(trainee->setup.model);
    for (int rank = 0; rank < ranks; rank++) {
        const double *report = trainee->reports + (size_t)rank * REPORTS;
        outcome->seconds = fmax(outcome->seconds, report[REPORT_SECONDS]);
        outcome->gradient_seconds += report[REPORT_GRADIENTS] / (steps * ranks);
        outcome->loss += report[REPORT_LOSS] / ranks;
        stale += report[REPORT_STALE];
        outcome->selected_share += report[REPORT_SELECTED] / ranks;
        outcome->bytes_sent += report[REPORT_BYTES];
        dense += report[REPORT_DENSE];
        outcome->bytes_per_step_most =
            fmax(outcome->bytes_per_step_most, report[REPORT_BYTES] / steps);
        outcome->step_seconds += report[REPORT_STEP] / ranks;
        outcome->merged.hidden += report[REPORT_HIDDEN] / ranks;
        outcome->compressed.loss += report[REPORT_DROPPED] / ranks;
        outcome->served.staleness += report[REPORT_STALENESS] / ranks;
        outcome->served.synchronised_seconds += report[REPORT_SYNCHRONISED] / ranks;
        outcome->served.late_layers += report[REPORT_LATE_LAYERS] / ranks;
        pushed += report[REPORT_PUSHED];
        late += report[REPORT_LATE];
        outcome->identical &= (uint64_t)report[REPORT_CHECKSUM] == outcome->checksum;
    }
    if (trainee->job->algorithm->serve)
        outcome->served.servers = trainee->job->options->servers.count;
    outcome->served.late_share = pushed > 0.0 ? late / pushed : 0.0;
    outcome->stale_fraction = stale / (steps * ranks);
    outcome->bytes_per_step = outcome->bytes_sent / (steps * ranks);
    outcome->compression_ratio = dense / outcome->bytes_sent;
}

/* The plan becomes the outcome's. */
static void tell_merged(struct trainee *trainee, struct train_outcome *outcome)
{
    struct train_merged *merged = &trainee->merged;
    double lead = trainee_median(trainee->leads, trainee->lead_count, (trainee->steps + 1) / 2);
    double hidden = outcome->merged.hidden;

    if (!merged->layers)
        return;
    if (merged->ready_us > 0.0)
        outcome->planned_step_seconds =
            1e-6 * train_merged_step_us(merged, trainee->pace, lead * 1e6,
                                        trainee_goes_by_layers(trainee));
    outcome->merged = *merged;
    outcome->merged.hidden = hidden;
    memset(merged, 0, sizeof *merged);
}

/* The yardsticks of the delays; and no machine is faster than its processors are at the gradients
 * of the ranks that share it. `own` and `machine` have room for a number a rank, `nodes` too. */
static int measure_yardsticks(const struct trainee *trainee, struct train_yardsticks *yardsticks,
                              double *own, double *machine, int *nodes)
{
    const struct train_options *options = trainee->job->options;
    struct train_options done = *options;
    int ranks = trainee->setup.size;
    int status = weft_context_hosts(trainee->setup.context, nodes);

    if (status != WEFT_OK)
        return status;
    for (int rank = 0; rank < ranks; rank++) {
        const double *report = trainee->reports + (size_t)rank * REPORTS;
        own[rank] = options->compute_seconds > 0.0
                        ? options->compute_seconds
                        : report[REPORT_GRADIENTS] / (double)trainee->steps;
        machine[nodes[rank]] += report[REPORT_GRADIENTS] / report[REPORT_PROCESSORS];
    }
    done.steps = trainee->steps;
    status = train_yardsticks(yardsticks, &done, trainee->job->algorithm, ranks, own);
    for (int node = 0; node < ranks && status == WEFT_OK && !options->is_virtual; node++) {
        yardsticks->ideal_seconds = fmax(yardsticks->ideal_seconds, machine[node]);
        yardsticks->bound_seconds = fmax(yardsticks->bound_seconds, machine[node]);
    }
    return status;
}

static int add_throughput(const struct trainee *trainee, struct train_outcome *outcome)
{
    const struct train_options *options = trainee->job->options;
    size_t ranks = (size_t)trainee->setup.size;
    double samples = (double)ranks * (double)options->batch * (double)trainee->steps;
    double *times = weft_memory_alloc(ranks, 2 * sizeof *times);
    int *nodes = weft_memory_alloc(ranks, sizeof *nodes);
    struct train_yardsticks yardsticks;
    int status = WEFT_ERR_MEMORY;

    if (times && nodes)
        status = measure_yardsticks(trainee, &yardsticks, times, times + ranks, nodes);
    else
        weft_error_set(status, "no memory for the times of %zu ranks", ranks);
    weft_memory_free(nodes);
    weft_memory_free(times);
    if (status != WEFT_OK)
        return status;
    outcome->samples_per_second = samples / outcome->seconds;
    outcome->ideal_samples_per_second = samples / yardsticks.ideal_seconds;
    outcome->bound_samples_per_second = samples / yardsticks.bound_seconds;
    return WEFT_OK;
}

int trainee_conclude(struct trainee *trainee)
{
    struct train_outcome *outcome = &trainee->job->outcome;

    train_outcome_free(outcome);
    if (trainee->steps == 0)
        return WEFT_OK;
    sum_up(trainee, outcome);
    tell_merged(trainee, outcome);
    int status = copy_compressed(trainee, outcome);
    if (status == WEFT_OK)
        status = add_throughput(trainee, outcome);
    return status == WEFT_OK ? draw_curve(trainee, outcome) : status;
}
