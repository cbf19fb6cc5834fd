/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft train: trains with each algorithm in turn, on local ranks or in processes, and reports.
 */
#include "tools/cli/cli.h"
#include "tools/cli/ranks.h"
#include "tools/cli/terminal.h"
#include "tools/train/device.h"
#include "tools/train/report.h"

#include <cblas.h>
#include <string.h>
#include <unistd.h>

static const char command[] = "train";

struct training {
    struct train_options options;
    struct dataset train;
    struct dataset test;
    /** One for every algorithm of every seed: seed by seed. */
    struct train_outcome *outcomes;
    /** The one that is under way. */
    size_t current;
    /** 1: this process reports. */
    int first;
    const struct cli *cli;
    /** 1: other processes have done it all. */
    int over;
    /** Of processes: the context made on the transport, and what is left of it: those that are left
     *  once ranks have died train in it all that comes after. */
    struct weft_context *world, *left;
};

/* Makes this process a rank. */
static int begin_process(struct training *training)
{
    struct ranks_world world = {.transport = training->options.transport,
                                .wanted = training->options.ranks + training->options.server_ranks,
                                .more = training->options.server_ranks,
                                .keep_going = training->options.on_death == TRAIN_GO_ON};

    for (size_t i = 0; i < training->options.algorithm_count; i++)
        if (train_needs_helper(&training->options, training->options.algorithms[i]))
            world.threads = 1;
    int status = ranks_join(training->cli, &world);
    training->over = world.over;
    if (status || world.over)
        return status;
    training->first = world.rank == 0;
    status = train_options_take_processes(&training->options, world.size);
    if (status)
        return status;
    return train_options_check_ranks(&training->options, training->options.ranks);
}

/* A context for a training. */
static int open_world(struct training *training, const struct train_job *job)
{
    int needs_helper = train_needs_helper(job->options, job->algorithm);
    int servers = train_server_ranks(job->options, job->algorithm);
    struct weft_context_config config;

    if (training->options.server_ranks < servers)
        return weft_error_set(WEFT_ERR_STATE, "needs %d servers, of which %d are left", servers,
                              training->options.server_ranks);
    if (training->left) {
        if (needs_helper && weft_context_progress_mode(training->left) != WEFT_PROGRESS_HELPER)
            return weft_error_set(WEFT_ERR_STATE,
                                  "needs helper progress, which the context of those that are left "
                                  "does not have; train it by itself");
        return WEFT_OK;
    }
    weft_context_config_init(&config);
    config.progress = needs_helper ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
    config.device = train_device_of_contexts(job->options->device);
    int status = weft_context_create_world(&training->world, job->options->transport, &config);
    training->left = training->world;
    return status;
}

static void close_world(struct training *training)
{
    weft_context_destroy(training->world);
    training->world = training->left = NULL;
}

/* How many of those that are left are servers: they come last, before and after. */
static int count_servers(const struct weft_context *before, const struct weft_context *left,
                         int first, int *count)
{
    int size = weft_context_size(left);
    int *ranks = weft_memory_alloc((size_t)weft_context_size(before) + (size_t)size, sizeof *ranks);

    if (!ranks)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the numbers of ranks");
    int *are = ranks + weft_context_size(before);
    int status = weft_context_root_ranks(before, ranks);
    if (status == WEFT_OK)
        status = weft_context_root_ranks(left, are);
    *count = 0;
    for (int rank = 0; rank < size && status == WEFT_OK; rank++)
        *count += are[rank] >= ranks[first];
    weft_memory_free(ranks);
    return status;
}

/* Servers that were idle know of nobody who has died: all processes that are left find out together
 * after each training, also who of them are servers. */
static int meet(struct training *training)
{
    struct train_options *options = &training->options;
    struct weft_context *before = training->left, *left = NULL;
    int status = weft_context_shrink(before, &left);

    if (status != WEFT_OK) /* who is not told of deaths does not go on */
        return status == WEFT_ERR_UNSUPPORTED ? WEFT_OK : status;
    if (weft_context_size(left) == weft_context_size(before))
        return weft_context_destroy(left);
    training->left = left;
    return count_servers(before, left, options->ranks, &options->server_ranks);
}

/* After a training that came to @p status: who is there for the next. */
static int leave_process(struct training *training, const struct train_job *job, int status)
{
    if (training->options.server_ranks > 0 && job->goes_on && status == WEFT_OK)
        status = meet(training);
    else if (training->options.server_ranks == 0 && job->left)
        training->left = job->left;
    training->first = weft_context_rank(training->left) == 0;
    training->options.ranks = weft_context_size(training->left) - training->options.server_ranks;
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    if (training->left == training->world)
        close_world(training);
    return status == WEFT_OK ? WEFT_OK : weft_error_set(status, "%s", text);
}

static int train_process(struct training *training, struct train_job *job)
{
    int status = train_begin_history(job, 1);
    if (status != WEFT_OK)
        return status;
    openblas_set_num_threads(1);
    status = open_world(training, job);
    char text[512] = "";
    if (status == WEFT_OK) {
        int rank = weft_context_rank(training->left);
        job->goes_on = job->options->on_death == TRAIN_GO_ON;
        status = train_rank(training->left, job);
        status = leave_process(training, job, status);
        if (status != WEFT_OK)
            snprintf(text, sizeof text, "rank %d: %s", rank, weft_error_text());
    } else {
        snprintf(text, sizeof text, "%s", weft_error_text());
    }
    train_end_history(job);
    return status == WEFT_OK ? WEFT_OK : weft_error_set(status, "%s", text);
}

/* What was trained, after the last training or when a signal has ended them. */
static int report(const struct training *training)
{
    const struct train_options *options = &training->options;
    int status = options->json ? CLI_OK : train_report_table(options, training->outcomes);

    if (status == CLI_OK && options->plot && training->outcomes[0].steps)
        status = train_report_plot(options, training->outcomes);
    if (status == CLI_OK && cli_caught_signal())
        fprintf(stderr, "weft %s: interrupted: what is shown is what was done\n", command);
    return status;
}

/* On rank 0, when the user interrupts: what is done is shown, and of the training that is under way
 * what this rank knows. */
static void abandon(struct train_job *job, void *user)
{
    const struct training *training = user;

    cli_progress_end();
    training->outcomes[training->current] = job->outcome;
    if (training->options.json && job->outcome.steps)
        train_report_json(job->options, job->algorithm, &job->outcome);
    report(training);
    ranks_abort(128 + cli_caught_signal());
}

static int train_on_ranks(struct training *training, struct train_job *job)
{
    int status = train_shards_create(&job->shards, &job->options->division, job->train,
                                     job->options->ranks, job->options->seed);

    if (status != WEFT_OK)
        return status;
    if (training->options.processes)
        return train_process(training, job);
    return training->options.is_virtual ? train_virtual_ranks(job) : train_local_ranks(job);
}

/* When the user interrupts, processes end one by one: who misses one has nothing to tell. */
static int misses_one(const struct training *training, int status)
{
    return training->options.processes && cli_caught_signal() &&
           (status == WEFT_ERR_PEER || status == WEFT_ERR_CANCELLED);
}

/* One algorithm with one seed; reports at once as JSON. */
static int train_one(struct training *training, size_t seed, size_t index)
{
    struct train_options seeded = training->options;
    const struct train_options *options = &seeded;
    const struct train_algorithm *algorithm = options->algorithms[index];
    struct train_job job = {
        .options = options,
        .algorithm = algorithm,
        .train = &training->train,
        .test = &training->test,
        .abandon = training->options.processes ? abandon : NULL,
        .user = training,
    };

    seeded.seed += seed;
    seeded.merge = options->merges[options->merge_of[index]];
    training->current = seed * options->algorithm_count + index;
    int status = train_on_ranks(training, &job);
    const char *error = weft_error_text();
    cli_progress_end();
    training->outcomes[training->current] = job.outcome;
    train_shards_free(&job.shards);
    if (status != WEFT_OK) {
        if (misses_one(training, status))
            return training->first ? CLI_OK : CLI_NO; /* rank 0 shows what was done before */
        fprintf(stderr, "weft %s: %s: %s: %s\n", command, algorithm->name, weft_status_text(status),
                error);
        return CLI_NO;
    }
    if (!training->first)
        return CLI_OK;
    if (job.outcome.steps == 0)
        return CLI_OK; /* interrupted before its first step */
    status = options->json ? train_report_json(options, algorithm, &job.outcome) : CLI_OK;
    if (status == CLI_OK && !job.outcome.identical) {
        return cli_fail(command, "%s: the ranks hold different models after training",
                        algorithm->name);
    }
    return status;
}

static int train_all(struct training *training)
{
    const struct train_options *options = &training->options;

    training->outcomes =
        weft_memory_alloc(options->seeds * options->algorithm_count, sizeof *training->outcomes);
    if (!training->outcomes)
        return cli_fail(command, "out of memory");
    int status = CLI_OK;
    cli_catch_signals();
    /* Processes follow rank 0, or are ended by it. */
    for (size_t seed = 0; seed < options->seeds; seed++) {
        for (size_t i = 0; i < options->algorithm_count && status == CLI_OK; i++)
            if (!cli_caught_signal() || !training->first)
                status = train_one(training, seed, i);
    }
    if (status == CLI_OK && training->first)
        status = report(training);
    return status == CLI_OK && cli_caught_signal() ? 128 + cli_caught_signal() : status;
}

static int read_data(struct training *training)
{
    char storage[4096];
    const char *folder = train_options_data(&training->options, storage, sizeof storage);

    if (dataset_read_folder(&training->train, &training->test, folder) != WEFT_OK) {
        return cli_usage(command, "%s; expected the folder of optdigits in --data or WEFT_DATA",
                         weft_error_text());
    }
    return CLI_OK;
}

static int run(struct training *training)
{
    int status = read_data(training);

    if (status == CLI_OK && training->options.processes)
        status = begin_process(training);
    if (status == CLI_OK && !training->over)
        status = train_all(training);
    if (training->options.processes && !training->over &&
        (status == CLI_NO || (training->first && cli_caught_signal()))) {
        /* The other ranks may wait for this one, or be in another training. */
        ranks_abort(cli_caught_signal() ? 128 + cli_caught_signal() : status);
    }
    close_world(training);
    ranks_stop_mpi();
    size_t count = training->options.seeds * training->options.algorithm_count;
    for (size_t i = 0; training->outcomes && i < count; i++)
        train_outcome_free(&training->outcomes[i]);
    weft_memory_free(training->outcomes);
    dataset_free(&training->test);
    dataset_free(&training->train);
    return status;
}

int train_with(const struct train_options *options, const struct cli *cli)
{
    struct training training = {.options = *options, .first = 1, .cli = cli};

    if (!options->processes && cli_is_follower())
        return CLI_OK; /* local ranks under a launcher: its rank 0 does it */
    int status = run(&training);
    int flushed = status == CLI_OK ? cli_finish(command) : CLI_OK;
    return status != CLI_OK ? status : flushed;
}
