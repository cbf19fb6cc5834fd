/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank makes the same model and then, step by step, takes its own part of a batch that all
 * ranks share, so the result does not depend on timing where the algorithm's does not. All add
 * their models to a history as they go; the means are evaluated after the clock has stopped.
 */
#include "tools/train/loop.h"

#include "tools/cli/terminal.h"
#include "tools/train/algorithm.h"
#include "tools/train/batches.h"
#include "tools/train/model.h"
#include "tools/train/yardsticks.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weft/memory.h>
#include <weft/virtual.h>

/* What every rank tells all others at the end; only f64, so that one allgather carries it. */
enum report {
    REPORT_SECONDS,
    /** Processor time of all gradients, and the processors of this rank's machine. */
    REPORT_GRADIENTS,
    REPORT_PROCESSORS,
    REPORT_STALE,
    REPORT_BYTES,
    REPORT_SELECTED,
    REPORT_LOSS,
    REPORT_CHECKSUM,
    REPORTS
};

/* A rank while it trains. */
struct trainee {
    struct train_job *job;
    struct train_setup setup;
    void *state;
    /** Where gradients are exchanged beside the next one, what is exchanged; else NULL. Then its
     *  memory. */
    struct weft_piece *posted;
    float *posted_data;
    struct train_batches batches;
    struct weft_run *barrier;
    struct weft_run *gather;
    double *reports;
    double report[REPORTS];
    double began;
    uint64_t bytes_before;
    struct train_statistics stats;
    double shown;
    /** Steps done. */
    uint64_t steps;
    /** Of the history: the next of its models that this rank adds to. */
    size_t next;
};

static double read_clock(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The context's time: on virtual ranks it is virtual, and passes while a rank sleeps. */
static double now(const struct trainee *trainee)
{
    return (double)weft_context_now(trainee->setup.context) * 1e-9;
}

/* ---- on the way ---- */

static int add_to_history(struct trainee *trainee)
{
    struct model *model = trainee->setup.model;
    double seconds = trainee->steps > 0 ? now(trainee) - trainee->began : 0.0;

    return train_history_add(trainee->job->history, &trainee->next, trainee->steps, seconds,
                             model_parameters(model), model_tensor_count(model));
}

static int add_last_to_history(struct trainee *trainee)
{
    struct model *model = trainee->setup.model;

    return train_history_add_last(trainee->job->history, trainee->report[REPORT_SECONDS],
                                  model_parameters(model), model_tensor_count(model));
}

static void show(struct trainee *trainee, uint64_t done, double loss)
{
    const struct train_job *job = trainee->job;
    double time = now(trainee);

    if (trainee->setup.rank != 0 || time - trainee->shown < 0.2)
        return;
    trainee->shown = time;
    cli_progress("%s: step %llu of %llu, %.1f s, loss %.4f", job->algorithm->name,
                 (unsigned long long)done, (unsigned long long)job->options->steps,
                 time - trainee->began, loss);
}

/* ---- ending early ---- */

/* In train_job.begun: no step is begun that no rank has begun. */
static const uint64_t closed = UINT64_C(1) << 63;

/* Whether a rank begins @p step. Once the user has interrupted, all ranks of the process still do
 * the steps that one of them has begun, and none after: no rank waits for one that has ended. */
static int begins(struct train_job *job, uint64_t step)
{
    /* Nothing else is handed over with the number: relaxed, one after the other by itself. */
    uint64_t begun = atomic_load_explicit(&job->begun, memory_order_relaxed);
    int caught = cli_caught_signal() != 0 && !job->abandon;

    for (;;) {
        if (begun & closed)
            return step < (begun & ~closed);
        uint64_t wanted = caught ? begun | closed : step + 1 > begun ? step + 1 : begun;
        if (wanted == begun)
            return 1;
        if (atomic_compare_exchange_weak_explicit(&job->begun, &begun, wanted, memory_order_relaxed,
                                                  memory_order_relaxed))
            begun = wanted;
    }
}

/* ---- a rank's life ---- */

static int prepare_collectives(struct trainee *trainee)
{
    struct weft_template_params params;
    int status;

    weft_template_params_init(&params);
    params.count = REPORTS;
    params.dtype = WEFT_F64;
    status =
        weft_template_create_run(&trainee->barrier, trainee->setup.context, "barrier", &params);
    if (status == WEFT_OK)
        status = weft_template_create_run(&trainee->gather, trainee->setup.context, "allgather",
                                          &params);
    if (status == WEFT_OK)
        status =
            weft_run_bind_input_name(trainee->gather, "send", trainee->report, REPORTS, WEFT_F64);
    if (status == WEFT_OK)
        status = weft_run_bind_name(trainee->gather, "recv", trainee->reports,
                                    REPORTS * (size_t)weft_context_size(trainee->setup.context),
                                    WEFT_F64);
    return status;
}

static int make_model(struct trainee *trainee)
{
    const struct train_options *options = trainee->job->options;
    struct net_config net = train_options_net(options);
    /* Rank 0 evaluates, of which larger parts are faster. */
    size_t part = net.architecture->has_hidden ? 256 : 64;
    size_t batch = trainee->setup.rank == 0 && options->batch < part ? part : options->batch;

    return model_create(&trainee->setup.model, &net, batch, options->seed);
}

/* What the transport costs, so that templates choose their algorithms for it. */
static int find_cost(struct train_setup *setup)
{
    const struct train_options *options = setup->options;

    setup->cost.struct_size = sizeof setup->cost;
    int status = weft_context_get_cost(setup->context, &setup->cost);
    if (!status && options->is_virtual) {
        setup->cost.alpha_us = options->net.L + 2 * options->net.o;
        setup->cost.beta_us_per_byte = options->net.G;
        setup->cost.gamma_us_per_byte = 0;
        setup->cost.copy_us_per_byte = 0;
        setup->cost.node_us = 0;
    }
    return status;
}

/* Copies of the gradients, which stay as they are while they are exchanged: zero at first. */
static int make_posted(struct trainee *trainee)
{
    struct train_setup *setup = &trainee->setup;
    const struct weft_piece *gradients = model_gradients(setup->model);
    size_t count = model_tensor_count(setup->model);

    setup->gradients = gradients;
    if (!train_is_delayed(setup->options, trainee->job->algorithm))
        return WEFT_OK;
    trainee->posted = weft_memory_alloc(count, sizeof *trainee->posted);
    trainee->posted_data = weft_memory_alloc(model_parameter_count(setup->model), sizeof(float));
    if (!trainee->posted || !trainee->posted_data)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a copy of the gradients");
    float *at = trainee->posted_data;
    for (size_t i = 0; i < count; i++) {
        trainee->posted[i] = (struct weft_piece){at, gradients[i].count};
        at += gradients[i].count;
    }
    setup->gradients = trainee->posted;
    return WEFT_OK;
}

static int prepare(struct trainee *trainee)
{
    const struct train_options *options = trainee->job->options;
    struct train_setup *setup = &trainee->setup;

    trainee->reports = weft_memory_alloc((size_t)setup->size, REPORTS * sizeof(double));
    if (!trainee->reports) {
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the reports of %d ranks",
                              setup->size);
    }
    int status = find_cost(setup);
    if (status == WEFT_OK)
        status = train_batches_init(&trainee->batches, trainee->job->train, &trainee->job->shards,
                                    options->batch, options->seed, setup->rank, setup->size);
    if (status == WEFT_OK)
        status = make_model(trainee);
    if (status == WEFT_OK)
        status = prepare_collectives(trainee);
    if (status == WEFT_OK)
        status = make_posted(trainee);
    if (status == WEFT_OK)
        status = trainee->job->algorithm->create(&trainee->state, setup);
    return status;
}

static void clean_up(struct trainee *trainee)
{
    if (trainee->state)
        trainee->job->algorithm->destroy(trainee->state);
    weft_run_destroy(trainee->gather);
    weft_run_destroy(trainee->barrier);
    weft_memory_free(trainee->posted_data);
    weft_memory_free(trainee->posted);
    model_destroy(trainee->setup.model);
    weft_memory_free(trainee->reports);
    train_batches_free(&trainee->batches);
}

/* The gradient of a step, and the time that the step is to last without communication. */
static int compute(struct trainee *trainee, uint64_t step)
{
    const struct train_options *options = trainee->job->options;
    const struct train_setup *setup = &trainee->setup;
    double began = now(trainee);
    double used = read_clock(CLOCK_THREAD_CPUTIME_ID);

    train_batches_take(&trainee->batches, step);
    int status = model_gradient(setup->model, trainee->batches.images, trainee->batches.labels,
                                options->batch, NULL, &trainee->report[REPORT_LOSS]);
    if (status != WEFT_OK)
        return status;
    double ended = now(trainee);
    trainee->report[REPORT_GRADIENTS] += read_clock(CLOCK_THREAD_CPUTIME_ID) - used;

    double late = train_delay(&options->imbalance, options->seed, step, setup->rank, setup->size);
    double end = began + options->compute_seconds;
    end = (end > ended ? end : ended) + late;
    return end > ended ? weft_context_sleep(setup->context, (uint64_t)((end - ended) * 1e9))
                       : WEFT_OK;
}

/* ---- exchanges: after the gradient or beside it (algorithm.h) ---- */

/* The mean gradient that was waited for becomes the gradient, and the gradient what is posted. */
static void swap_gradients(struct trainee *trainee)
{
    const struct weft_piece *gradients = model_gradients(trainee->setup.model);

    for (size_t tensor = 0; tensor < model_tensor_count(trainee->setup.model); tensor++) {
        float *gradient = gradients[tensor].data;
        float *posted = trainee->posted[tensor].data;

        for (size_t i = 0; i < gradients[tensor].count; i++) {
            float kept = posted[i];
            posted[i] = gradient[i];
            gradient[i] = kept;
        }
    }
}

static void update(struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    const struct train_options *options = trainee->job->options;

    model_update(trainee->setup.model, (float)options->rate,
                 (float)(algorithm->momentum ? algorithm->momentum(options) : options->momentum));
}

/* What was posted at the step before: the mean gradient, if it is of gradients, is where the
 * gradient was posted. */
static int wait_posted(struct trainee *trainee, uint64_t next)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    int status = WEFT_OK;

    if (!trainee->setup.beside || next == 0)
        return WEFT_OK;
    if (algorithm->models.wait)
        status = algorithm->models.wait(trainee->state, next - 1);
    if (status == WEFT_OK && algorithm->gradients.wait)
        status = algorithm->gradients.wait(trainee->state, next - 1);
    return status;
}

/* One of the two exchanges of a step. */
static int exchange(struct trainee *trainee, const struct train_exchange *exchange, uint64_t step)
{
    int (*begin)(void *, uint64_t) = trainee->setup.beside ? exchange->post : exchange->step;

    return begin ? begin(trainee->state, step) : WEFT_OK;
}

static int take_step(struct trainee *trainee, uint64_t step)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    int status = compute(trainee, step);

    if (status == WEFT_OK)
        status = wait_posted(trainee, step);
    if (status != WEFT_OK)
        return status;
    if (trainee->posted)
        swap_gradients(trainee);
    status = exchange(trainee, &algorithm->gradients, step);
    if (status != WEFT_OK)
        return status;
    update(trainee);
    return exchange(trainee, &algorithm->models, step);
}

/* After the last step: what is still under way. */
static int drain(struct trainee *trainee)
{
    int status = wait_posted(trainee, trainee->steps);

    if (status == WEFT_OK && trainee->posted && trainee->steps > 0) {
        swap_gradients(trainee);
        update(trainee);
    }
    return status;
}

/* Counts what this rank has sent since the last call. */
static int count_bytes(struct trainee *trainee)
{
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    int status = weft_context_get_stats(trainee->setup.context, &stats);

    if (status == WEFT_OK) {
        trainee->report[REPORT_BYTES] = (double)(stats.bytes_sent - trainee->bytes_before);
        trainee->bytes_before = stats.bytes_sent;
    }
    return status;
}

/* What this rank reports of itself after its last step. */
static void fill_report(struct trainee *trainee)
{
    if (trainee->job->algorithm->stats)
        trainee->job->algorithm->stats(trainee->state, &trainee->stats);
    trainee->report[REPORT_PROCESSORS] = (double)sysconf(_SC_NPROCESSORS_ONLN);
    trainee->report[REPORT_STALE] = (double)trainee->stats.stale_steps;
    trainee->report[REPORT_SELECTED] = trainee->stats.selected_share;
    /* 52 bits of it: a double holds them. */
    trainee->report[REPORT_CHECKSUM] = (double)(model_checksum(trainee->setup.model) >> 12);
}

/* ---- what came of it ---- */

/* The model that the ranks have made one is in the trainee; @p mean has room for another. */
static void evaluate(struct trainee *trainee, struct train_outcome *outcome, float *mean)
{
    const struct dataset *test = trainee->job->test;
    const struct train_history *history = trainee->job->history;
    struct model *model = trainee->setup.model;
    double area = 0.0;

    outcome->test_accuracy = model_accuracy(model, test->images, test->labels, test->rows);
    for (size_t i = 0; i < outcome->curve_count; i++) {
        struct train_point *at = &outcome->curve[i];
        struct train_history_point point;
        train_history_get(history, i, &point, mean);
        *at = (struct train_point){point.seconds, outcome->test_accuracy, point.distance};
        if (i + 1 < outcome->curve_count) {
            model_load(model, mean);
            at->accuracy = model_accuracy(model, test->images, test->labels, test->rows);
        }
        if (i > 0)
            area += (at->seconds - at[-1].seconds) * (at->distance + at[-1].distance) / 2.0;
    }
    struct train_point *last = &outcome->curve[outcome->curve_count - 1];
    outcome->consensus_distance = last->seconds > 0.0 ? area / last->seconds : last->distance;
    /* Until the slowest has ended. */
    last->seconds = fmax(last->seconds, outcome->seconds);
}

static int draw_curve(struct trainee *trainee, struct train_outcome *outcome)
{
    float *mean = weft_memory_alloc(outcome->parameters, sizeof *mean);

    outcome->curve_count = train_history_count(trainee->job->history);
    outcome->curve = weft_memory_alloc(outcome->curve_count, sizeof *outcome->curve);
    int status = mean && outcome->curve
                     ? WEFT_OK
                     : weft_error_set(WEFT_ERR_MEMORY, "no memory for the points of a curve");
    if (status == WEFT_OK)
        evaluate(trainee, outcome, mean);
    weft_memory_free(mean);
    return status;
}

static void sum_up(const struct trainee *trainee, struct train_outcome *outcome)
{
    int ranks = trainee->setup.size;
    double stale = 0.0;
    double steps = (double)trainee->steps;

    outcome->ranks = ranks;
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
        outcome->bytes_per_step_most =
            fmax(outcome->bytes_per_step_most, report[REPORT_BYTES] / steps);
        outcome->identical &= (uint64_t)report[REPORT_CHECKSUM] == outcome->checksum;
    }
    outcome->stale_fraction = stale / (steps * ranks);
    outcome->bytes_per_step = outcome->bytes_sent / (steps * ranks);
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

/* What came of it, in the job's outcome. */
static int conclude(struct trainee *trainee)
{
    struct train_outcome *outcome = &trainee->job->outcome;

    memset(outcome, 0, sizeof *outcome);
    if (trainee->steps == 0)
        return WEFT_OK;
    sum_up(trainee, outcome);
    int status = add_throughput(trainee, outcome);
    return status == WEFT_OK ? draw_curve(trainee, outcome) : status;
}

/* Rank 0 between two steps: it waits for nobody, and takes what it has done for what all have. */
static void abandon(struct trainee *trainee)
{
    struct train_job *job = trainee->job;
    int status = WEFT_OK;

    trainee->report[REPORT_SECONDS] = now(trainee) - trainee->began;
    if (trainee->steps > 0) {
        status = count_bytes(trainee);
        fill_report(trainee);
        for (int rank = 0; rank < trainee->setup.size; rank++)
            memcpy(trainee->reports + (size_t)rank * REPORTS, trainee->report,
                   sizeof trainee->report);
        if (status == WEFT_OK)
            status = add_last_to_history(trainee);
    }
    if (status == WEFT_OK)
        status = conclude(trainee);
    job->outcome.alone = 1;
    if (status != WEFT_OK)
        job->outcome.steps = 0; /* there is nothing to show */
    job->abandon(job, job->user);
}

/* ---- the training ---- */

/* From the common start to one common model and everyone's report. */
static int train(struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    const struct train_options *options = trainee->job->options;
    int status = add_to_history(trainee);

    /* Before the barrier, whose messages are empty: behind it others may have begun, and made this
     * rank's helper send. */
    if (status == WEFT_OK)
        status = count_bytes(trainee);
    if (status == WEFT_OK)
        status = weft_run_execute(trainee->barrier);
    trainee->began = now(trainee);
    for (uint64_t step = 0; step < options->steps && status == WEFT_OK; step++) {
        if (trainee->setup.rank == 0 && trainee->job->abandon && cli_caught_signal())
            abandon(trainee);
        if (!begins(trainee->job, step))
            break;
        status = take_step(trainee, step);
        trainee->steps = step + 1;
        if (status == WEFT_OK)
            status = add_to_history(trainee);
        show(trainee, step + 1, trainee->report[REPORT_LOSS]);
    }
    if (status == WEFT_OK)
        status = drain(trainee);
    trainee->report[REPORT_SECONDS] = now(trainee) - trainee->began;
    if (status == WEFT_OK)
        status = count_bytes(trainee);
    if (status == WEFT_OK)
        status = add_last_to_history(trainee);
    if (status == WEFT_OK && algorithm->finish)
        status = algorithm->finish(trainee->state);
    if (status != WEFT_OK)
        return status;
    fill_report(trainee);
    status = weft_run_execute(trainee->gather);
    if (status == WEFT_OK && options->mpi && trainee->steps > 0)
        status = train_history_merge(trainee->job->history, trainee->setup.context);
    return status;
}

int train_rank(struct weft_context *context, void *user)
{
    struct train_job *job = user;
    struct trainee trainee = {
        .job = job,
        .setup = {.context = context,
                  .rank = weft_context_rank(context),
                  .size = weft_context_size(context),
                  .options = job->options,
                  .beside = train_is_beside(job->options, job->algorithm)},
    };
    int status = prepare(&trainee);

    if (status == WEFT_OK)
        status = train(&trainee);
    if (status == WEFT_OK && trainee.setup.rank == 0)
        status = conclude(&trainee);
    char text[512] = "";
    if (status != WEFT_OK)
        snprintf(text, sizeof text, "%s", weft_error_text());
    clean_up(&trainee);
    /* The text of the failure, not of what it made fail afterwards. */
    return status == WEFT_OK ? WEFT_OK : weft_error_set(status, "%s", text);
}

int train_begin_history(struct train_job *job, int ranks)
{
    const struct train_options *options = job->options;
    size_t parameters;
    int status = train_options_parameters(options, &parameters);

    return status == WEFT_OK ? train_history_create(&job->history, parameters, ranks,
                                                    options->steps, options->seed)
                             : status;
}

void train_end_history(struct train_job *job)
{
    train_history_destroy(job->history);
    job->history = NULL;
}

int train_local_ranks(struct train_job *job)
{
    struct weft_context_config config;
    int status = train_begin_history(job, job->options->ranks);

    if (status != WEFT_OK)
        return status;
    /* Ranks are threads already: BLAS is to start none, and equal bits need a fixed order. */
    openblas_set_num_threads(1);
    weft_context_config_init(&config);
    config.progress = train_needs_helper(job->options, job->algorithm) ? WEFT_PROGRESS_HELPER
                                                                       : WEFT_PROGRESS_DEFAULT;
    status = weft_local_run(job->options->ranks, &config, train_rank, job);
    train_end_history(job);
    return status;
}

int train_virtual_ranks(struct train_job *job)
{
    struct weft_virtual_config config;
    int status = train_begin_history(job, job->options->ranks);

    if (status != WEFT_OK)
        return status;
    openblas_set_num_threads(1);
    weft_virtual_config_init(&config);
    config.net = &job->options->net;
    config.seed = job->options->seed;
    status = weft_virtual_run(job->options->ranks, &config, train_rank, job);
    train_end_history(job);
    return status;
}

void train_outcome_free(struct train_outcome *outcome)
{
    weft_memory_free(outcome->curve);
    memset(outcome, 0, sizeof *outcome);
}
