/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank makes the same model and then, step by step, takes its own part of a batch that all
 * ranks share, so the result does not depend on timing where the algorithm's does not. All add
 * their models to a history as they go; the means are evaluated after the clock has stopped.
 */
#include "tools/train/loop.h"

#include "tools/cli/terminal.h"
#include "tools/cli/transports.h"
#include "tools/train/backend.h"
#include "tools/train/device.h"
#include "tools/train/together.h"
#include "tools/train/trainee.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weft/memory.h>
#include <weft/virtual.h>

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
    struct weft_context *context = trainee->setup.context;
    struct weft_template_params params;
    int status;

    weft_run_destroy(trainee->gather); /* of a context before */
    weft_run_destroy(trainee->barrier);
    weft_object_destroy(trainee->object);
    trainee->gather = trainee->barrier = NULL;
    trainee->object = NULL;
    weft_template_params_init(&params);
    params.count = REPORTS;
    params.dtype = WEFT_F64;
    status = weft_object_create(&trainee->object, context, NULL);
    if (status == WEFT_OK)
        status = train_together(&trainee->barrier, context, trainee->object, "barrier", &params);
    if (status == WEFT_OK)
        status = train_together(&trainee->gather, context, trainee->object, "allgather", &params);
    if (status == WEFT_OK)
        status =
            weft_run_bind_input_name(trainee->gather, "send", trainee->report, REPORTS, WEFT_F64);
    if (status == WEFT_OK)
        status = weft_run_bind_name(trainee->gather, "recv", trainee->reports,
                                    REPORTS * (size_t)weft_context_size(context), WEFT_F64);
    return status;
}

static int make_model(struct trainee *trainee)
{
    const struct train_options *options = trainee->job->options;
    struct net_config net = train_options_net(options);
    /* Rank 0 evaluates, of which larger parts are faster. */
    size_t part = net.architecture->has_hidden ? 256 : 64;
    size_t batch = trainee->setup.rank == 0 && options->batch < part ? part : options->batch;
    struct backend *backend;

    if (!options->device)
        return model_create_in(&trainee->setup.model, trainee->setup.context, &net, batch,
                               options->seed);
    int status = train_device_create(&backend, options->device, trainee->setup.context, batch,
                                     net_size(&net.image), trainee->job->algorithm->streams);
    return status == WEFT_OK
               ? model_create_by(&trainee->setup.model, backend, &net, batch, options->seed)
               : status;
}

/* What a device loads at a first call, it loads before ranks wait for each other. */
static int rehearse(struct trainee *trainee)
{
    struct model *model = trainee->setup.model;
    struct backend *backend = model_backend(model);

    if (!backend->stream)
        return WEFT_OK;
    train_batches_take(&trainee->batches, 0);
    int status = model_gradient(model, trainee->batches.images, trainee->batches.labels,
                                trainee->job->options->batch, NULL, NULL);
    return status == WEFT_OK ? backend->ops->seconds(backend, &trainee->rehearsed) : status;
}

/* What the transport costs, so that templates choose their algorithms for it. */
static int find_cost(struct train_setup *setup)
{
    const struct train_options *options = setup->options;

    setup->cost.struct_size = sizeof setup->cost;
    int status = weft_context_get_cost(setup->context, &setup->cost);
    if (!status && options->is_virtual)
        cli_network_costs(&options->net, &setup->cost);
    return status;
}

/* Copies of the gradients, which stay as they are while they are exchanged: zero at first. */
static int make_posted(struct trainee *trainee)
{
    struct train_setup *setup = &trainee->setup;
    const struct weft_piece *gradients = model_gradients(setup->model);
    struct backend *backend = model_backend(setup->model);
    size_t count = model_tensor_count(setup->model);

    setup->gradients = gradients;
    if (!train_is_delayed(setup->options, trainee->job->algorithm))
        return WEFT_OK;
    trainee->posted = weft_memory_alloc(count, sizeof *trainee->posted);
    if (!trainee->posted)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a copy of the gradients");
    int status =
        backend->ops->alloc(backend, model_parameter_count(setup->model), 1, &trainee->posted_data);
    if (status != WEFT_OK)
        return status;
    float *at = trainee->posted_data;
    for (size_t i = 0; i < count; i++) {
        trainee->posted[i] = (struct weft_piece){at, gradients[i].count};
        at += gradients[i].count;
    }
    setup->gradients = trainee->posted;
    return WEFT_OK;
}

/* Virtual time is the same on every machine, so there layers take the shares of their work. */
static int make_pace(struct trainee *trainee)
{
    const struct train_options *options = trainee->job->options;
    struct model *model = trainee->setup.model;
    int status = train_pace_create(&trainee->pace, trainee->setup.context, model,
                                   (uint64_t)(options->compute_seconds * 1e9 + 0.5));

    if (status != WEFT_OK || options->is_virtual)
        return status;
    train_batches_take(&trainee->batches, 0);
    return train_pace_measure(trainee->pace, model, trainee->batches.images,
                              trainee->batches.labels, options->batch);
}

int trainee_join(struct trainee *trainee, const struct train_shards *shards)
{
    const struct train_options *options = trainee->job->options;
    struct train_setup *setup = &trainee->setup;
    struct train_batches batches;

    int status = train_batches_init(&batches, trainee->job->train, shards, options->batch,
                                    options->seed, setup->rank, setup->size);
    train_batches_free(&trainee->batches);
    trainee->batches = batches;
    setup->rows = batches.count;
    if (status == WEFT_OK)
        status = find_cost(setup);
    return status == WEFT_OK ? prepare_collectives(trainee) : status;
}

static int prepare(struct trainee *trainee)
{
    struct train_setup *setup = &trainee->setup;

    trainee->reports = weft_memory_alloc((size_t)setup->size, REPORTS * sizeof(double));
    if (!trainee->reports) {
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the reports of %d ranks",
                              setup->size);
    }
    int status = make_model(trainee);
    if (status == WEFT_OK)
        status = trainee_join(trainee, &trainee->job->shards);
    if (status == WEFT_OK)
        status = rehearse(trainee);
    if (status == WEFT_OK && trainee->job->algorithm->layers.ready)
        status = make_pace(trainee);
    if (status == WEFT_OK)
        status = make_posted(trainee);
    if (status == WEFT_OK)
        status = trainee->job->algorithm->create(&trainee->state, setup);
    return status;
}

static void free_posted(struct trainee *trainee)
{
    if (trainee->posted_data) {
        struct backend *backend = model_backend(trainee->setup.model);
        backend->ops->settle(backend);
        backend->ops->free(backend, trainee->posted_data, 1);
    }
    weft_memory_free(trainee->posted);
}

static void clean_up(struct trainee *trainee)
{
    if (trainee->state)
        trainee->job->algorithm->destroy(trainee->state);
    weft_memory_free(trainee->phases);
    train_compressed_free(&trainee->compressed);
    train_merged_free(&trainee->merged);
    train_pace_destroy(trainee->pace);
    weft_run_destroy(trainee->gather);
    weft_run_destroy(trainee->barrier);
    weft_object_destroy(trainee->object);
    free_posted(trainee);
    model_destroy(trainee->setup.model);
    weft_memory_free(trainee->reports);
    train_batches_free(&trainee->batches);
    train_shards_free(&trainee->shards);
}

/* What servers send counts, too: where they are apart it is what those who train receive. */
int trainee_count_bytes(struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    int status = weft_context_get_stats(
        algorithm->serve ? trainee->setup.world : trainee->setup.context, &stats);
    uint64_t bytes = stats.bytes_sent;

    if (train_server_ranks(trainee->job->options, algorithm) > 0)
        bytes += stats.bytes_received;
    if (status == WEFT_OK) {
        trainee->bytes_sent += bytes - trainee->bytes_before;
        trainee->bytes_before = bytes;
        trainee->report[REPORT_BYTES] = (double)trainee->bytes_sent;
    }
    return status;
}

double trainee_dense_bytes(const struct trainee *trainee)
{
    const double ranks = trainee->setup.size;

    return 2.0 * (ranks - 1.0) / ranks *
           (double)(model_parameter_count(trainee->setup.model) * sizeof(float));
}

/* Gradients take a device's time. Ranks that share one wait for each other in that already. */
static int report_device(struct trainee *trainee)
{
    struct backend *backend = model_backend(trainee->setup.model);
    double seconds = 0.0;
    int status = backend->ops->seconds(backend, &seconds);

    trainee->report[REPORT_GRADIENTS] = seconds - trainee->rehearsed;
    trainee->report[REPORT_PROCESSORS] = INFINITY;
    return status;
}

/* What this rank reports of itself after its last step. */
static int fill_report(struct trainee *trainee)
{
    struct model *model = trainee->setup.model;
    uint64_t checksum = 0;
    int status = model_checksum(model, &checksum);

    if (status == WEFT_OK && trainee->steps > 0)
        status = model_loss(model, &trainee->report[REPORT_LOSS]);
    if (trainee->job->algorithm->stats)
        trainee->job->algorithm->stats(trainee->state, &trainee->stats);
    trainee->report[REPORT_PROCESSORS] = (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (status == WEFT_OK && model_backend(model)->stream)
        status = report_device(trainee);
    trainee->report[REPORT_STALE] = (double)trainee->stats.stale_steps;
    trainee->report[REPORT_SELECTED] = trainee->stats.selected_share;
    trainee->report[REPORT_STEP] =
        trainee_median(trainee->durations, trainee->duration_count, (trainee->steps + 1) / 2);
    if (trainee->duration_count == 0)
        trainee->report[REPORT_STEP] = trainee->report[REPORT_SECONDS]; /* of one step */
    trainee->report[REPORT_HIDDEN] = trainee->merged.hidden;
    trainee->report[REPORT_DROPPED] = trainee->compressed.loss;
    trainee->report[REPORT_STALENESS] = trainee->stats.staleness;
    trainee->report[REPORT_SYNCHRONISED] = trainee->stats.synchronised_seconds;
    trainee->report[REPORT_LATE_LAYERS] = trainee->stats.late_layers;
    trainee->report[REPORT_PUSHED] = trainee->stats.pushed_bytes;
    trainee->report[REPORT_LATE] = trainee->stats.late_bytes;
    /* 52 bits of it: a double holds them. */
    trainee->report[REPORT_CHECKSUM] = (double)(checksum >> 12);
    return status;
}

/* What compression came to. */
static int describe_compressed(struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;

    train_compressed_free(&trainee->compressed);
    return algorithm->describe ? algorithm->describe(trainee->state, &trainee->compressed)
                               : WEFT_OK;
}

/* Rank 0 between two steps: it waits for nobody, and takes what it has done for what all have. */
static void abandon(struct trainee *trainee)
{
    struct train_job *job = trainee->job;
    int status = WEFT_OK;

    trainee->report[REPORT_SECONDS] = trainee_now(trainee) - trainee->began;
    if (trainee->steps > 0) {
        status = trainee_count_bytes(trainee);
        if (status == WEFT_OK)
            status = describe_compressed(trainee);
        if (status == WEFT_OK)
            status = fill_report(trainee);
        for (int rank = 0; rank < trainee->setup.size; rank++)
            memcpy(trainee->reports + (size_t)rank * REPORTS, trainee->report,
                   sizeof trainee->report);
        if (status == WEFT_OK)
            status = trainee_add_last_to_history(trainee);
    }
    if (status == WEFT_OK)
        status = trainee_conclude(trainee);
    job->outcome.alone = 1;
    if (status != WEFT_OK)
        job->outcome.steps = 0; /* there is nothing to show */
    job->abandon(job, job->user);
}

/* ---- the training ---- */

/* To the common start. */
static int begin(struct trainee *trainee)
{
    struct backend *backend = model_backend(trainee->setup.model);
    int status = trainee_add_to_history(trainee, 0);

    if (status == WEFT_OK)
        status = backend->ops->settle(backend);
    /* Before the barrier, whose messages are empty: behind it others may have begun, and made this
     * rank's helper send. */
    if (status == WEFT_OK)
        status = trainee_count_bytes(trainee);
    trainee->bytes_sent = 0;
    if (status == WEFT_OK)
        status = weft_run_execute(trainee->barrier);
    trainee->began = trainee_now(trainee);
    return status;
}

/* The steps that are left to be done. */
static int take_steps(struct trainee *trainee)
{
    const struct train_options *options = trainee->job->options;
    struct backend *backend = model_backend(trainee->setup.model);
    int status = WEFT_OK;

    while (trainee->steps < options->steps && status == WEFT_OK) {
        uint64_t step = trainee->steps;
        if (trainee->setup.rank == 0 && trainee->job->abandon && cli_caught_signal())
            abandon(trainee);
        if (!begins(trainee->job, step))
            break;
        status = trainee_step(trainee, step);
        if (status == WEFT_OK)
            trainee->report[REPORT_DENSE] += trainee_dense_bytes(trainee);
        /* Updated layer by layer, it is that model only in the next step. */
        if (status == WEFT_OK && !trainee_goes_by_layers(trainee))
            status = trainee_add_to_history(trainee, trainee->steps);
        if (status == WEFT_OK)
            status = trainee_show(trainee, step + 1);
    }
    if (status == WEFT_OK)
        status = trainee_drain(trainee);
    return status == WEFT_OK ? backend->ops->settle(backend) : status;
}

/* After the last: what they came to. */
static int end_steps(struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    int status = WEFT_OK;

    trainee->ended = 1;
    trainee->report[REPORT_SECONDS] = trainee_now(trainee) - trainee->began;
    if (trainee->steps > 0 && trainee_goes_by_layers(trainee))
        status = trainee_add_to_history(trainee, trainee->steps);
    if (status == WEFT_OK && trainee->steps > trainee->fresh && algorithm->layers.describe)
        status = algorithm->layers.describe(trainee->state, &trainee->merged);
    if (status == WEFT_OK)
        status = describe_compressed(trainee);
    if (status == WEFT_OK)
        status = trainee_add_last_to_history(trainee);
    if (status == WEFT_OK && algorithm->settle)
        status = algorithm->settle(trainee->state);
    /* A server among the ranks sends to those that are behind it. */
    if (status == WEFT_OK && algorithm->serve && trainee->job->options->servers.colocated)
        status = weft_run_execute(trainee->barrier);
    return status == WEFT_OK ? trainee_count_bytes(trainee) : status;
}

/* To one common model and everyone's report. */
static int train(struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    int status = WEFT_OK;

    if (!trainee->ended) {
        status = take_steps(trainee);
        if (status == WEFT_OK)
            status = end_steps(trainee);
    }
    if (status == WEFT_OK && algorithm->finish)
        status = algorithm->finish(trainee->state);
    if (status == WEFT_OK)
        status = fill_report(trainee);
    if (status == WEFT_OK)
        status = weft_run_execute(trainee->gather);
    if (status == WEFT_OK && trainee->job->options->processes && trainee->steps > 0)
        status = train_history_merge(trainee->job->history, trainee->setup.context);
    if (status == WEFT_OK && trainee->setup.rank == 0)
        status = trainee_conclude(trainee);
    /* Until rank 0 has done that: if it dies, another does. */
    return status == WEFT_OK && trainee->job->goes_on ? weft_run_execute(trainee->barrier) : status;
}

/* A rank that trains. */
static int train_in(struct train_job *job, struct weft_context *world, struct weft_context *context)
{
    struct trainee trainee = {
        .job = job,
        .world = world,
        .began_with = weft_context_size(context),
        .setup = {.algorithm = job->algorithm,
                  .context = context,
                  .world = world,
                  .rank = weft_context_rank(context),
                  .size = weft_context_size(context),
                  .options = job->options,
                  .beside = train_is_beside(job->options, job->algorithm)},
    };
    int status = prepare(&trainee);

    if (status == WEFT_OK)
        status = begin(&trainee);
    if (status == WEFT_OK)
        status = train(&trainee);
    while (status != WEFT_OK && (status = trainee_go_on(&trainee, status)) == WEFT_OK)
        status = train(&trainee);
    char text[512] = "";
    if (status != WEFT_OK)
        snprintf(text, sizeof text, "%s", weft_error_text());
    if (job->goes_on)
        job->left = trainee.setup.context;
    clean_up(&trainee);
    /* The text of the failure, not of what it made fail afterwards. */
    return status == WEFT_OK ? WEFT_OK : weft_error_set(status, "%s", text);
}

/* A rank that is a server alone: where nobody asks for servers it has nothing to do. */
static int serve(struct train_job *job, struct weft_context *world)
{
    const struct train_options *options = job->options;
    struct net_config net = train_options_net(options);
    struct train_setup setup = {.algorithm = job->algorithm, .world = world, .options = options};

    if (!job->algorithm->serve)
        return WEFT_OK;
    int status = model_create_in(&setup.model, world, &net, 1, options->seed);
    if (status == WEFT_OK)
        status = job->algorithm->serve(&setup);
    model_destroy(setup.model);
    return status;
}

int train_rank(struct weft_context *world, void *user)
{
    struct train_job *job = user;
    struct weft_context *context = NULL;
    const int rank = weft_context_rank(world);
    const int trains = rank < job->options->ranks;

    if (weft_context_size(world) == job->options->ranks)
        return train_in(job, world, world);
    int status = weft_context_split(world, trains ? 0 : WEFT_COLOUR_NONE, rank, &context);
    if (status != WEFT_OK)
        return status;
    if (!trains)
        return serve(job, world);
    status = train_in(job, world, context);
    char text[512] = "";
    if (status != WEFT_OK)
        snprintf(text, sizeof text, "%s", weft_error_text());
    job->left = NULL;
    weft_context_destroy(context);
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
    config.device = train_device_of_contexts(job->options->device);
    status = weft_local_run(job->options->ranks + train_server_ranks(job->options, job->algorithm),
                            &config, train_rank, job);
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
    status =
        weft_virtual_run(job->options->ranks + train_server_ranks(job->options, job->algorithm),
                         &config, train_rank, job);
    train_end_history(job);
    return status;
}

void train_outcome_free(struct train_outcome *outcome)
{
    weft_memory_free(outcome->phases);
    train_compressed_free(&outcome->compressed);
    train_merged_free(&outcome->merged);
    weft_memory_free(outcome->curve);
    memset(outcome, 0, sizeof *outcome);
}
