/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of `weft train`: their help, their defaults, and what they must be together. */
#include "tools/train/options.h"

#include "tools/cli/cli.h"
#include "tools/train/algorithm.h"
#include "tools/train/dataset.h"
#include "tools/train/options_values.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Folders with the data set, separated by colons; the build gives the real ones. */
#ifndef WEFT_DATA_DIR
#    define WEFT_DATA_DIR "/usr/share/weft/optdigits"
#endif

static const char command[] = "train";

enum { MOST_RANKS = 4096 };

static const struct cli_option options_table[] = {
    {"algorithm", 'a', OPT_ALGORITHM, "NAME,...", "one or more of those above, or all (allreduce)"},
    {"transport", 0, OPT_TRANSPORT, "NAME",
     "local; mpi under mpiexec, without -n; virtual: ranks in virtual time (local)"},
    {"net", 0, OPT_NET, "L=..,G=..", "of virtual ranks, as for weft sim: microseconds (L=1)"},
    {"steps", 0, OPT_STEPS, "N", "steps of training (400)"},
    {"batch", 0, OPT_BATCH, "N", "images a rank uses in a step (32)"},
    {"hidden", 0, OPT_HIDDEN, "N,...", "widths of the perceptron's hidden layers (256,128)"},
    {"lr", 0, OPT_LR, "RATE", "learning rate (0.1)"},
    {"momentum", 0, OPT_MOMENTUM, "M", "momentum, below 1 (0.9)"},
    {"imbalance", 0, OPT_IMBALANCE, "MODEL", "which ranks are late, see above (none)"},
    {"compute", 0, OPT_COMPUTE, "MS", "a step lasts so long: a sleep fills it up (0)"},
    {"group-size", 0, OPT_GROUP_SIZE, "S",
     "ranks of a group, for wagma; 0: the power of two nearest to sqrt P"},
    {"sync-period", 0, OPT_SYNC_PERIOD, "T",
     "steps between averages of all, for local, wagma, eager-*; 0: none (10)"},
    {"neighbours", 0, OPT_NEIGHBOURS, "N", "to how many others a rank pushes, for sgp (1)"},
    {"mode", 0, OPT_MODE, "MODE", "of wagma: wait-avoiding, waiting or none (wait-avoiding)"},
    {"activation", 0, OPT_ACTIVATION, "WHO",
     "who starts a step of wagma: anyone or drawn (anyone)"},
    {"contribution", 0, OPT_CONTRIBUTION, "WHAT",
     "of wagma: replace (models) or accumulate (gradients) (replace)"},
    {"patience", 0, OPT_PATIENCE, "MS",
     "how long a rank's start waits for it, for wagma and eager-* (1% of a step)"},
    {"density", 0, OPT_DENSITY, "D",
     "share of a gradient that a rank sends, for topk, gtopk, oktopk (0.01)"},
    {"k", 0, OPT_K, "N", "so many entries instead, with --per-layer of every tensor"},
    {"warmup-steps", 0, OPT_WARMUP_STEPS, "N",
     "before it N steps with each of 0.25, 0.0725, 0.015 and 0.004 that is larger (0)"},
    {"per-layer", 0, OPT_PER_LAYER, NULL,
     "every tensor sends its own largest entries, for topk, gtopk, oktopk (the model does)"},
    {"momentum-correction", 0, OPT_MOMENTUM_CORRECTION, "M",
     "momentum before the selection, in place of --momentum, for topk, gtopk, oktopk (0: none)"},
    {"residual", 0, OPT_RESIDUAL, "WHICH",
     "what becomes of what gtopk drops: conserving or paper (conserving)"},
    {"gtopk-algo", 0, OPT_GTOPK_ALGO, "NAME", "how gtopk merges: tree or butterfly (tree)"},
    {"seed", 0, OPT_SEED, "N", "of weights, batches and delays (1)"},
    {"seeds", 0, OPT_SEEDS, "N", "so many trainings each, seed, seed + 1 ...: medians (1)"},
    {"plot", 0, OPT_PLOT, "FILE.svg", "draws test accuracy over time"},
    {"data", 0, OPT_DATA, "DIR", "folder of the data (WEFT_DATA, or where it was installed)"},
    {0},
};

int train_options_init(struct train_options *options)
{
    memset(options, 0, sizeof *options);
    options->algorithms = weft_memory_alloc(1, sizeof *options->algorithms);
    options->hidden = weft_memory_alloc(2, sizeof *options->hidden);
    if (!options->algorithms || !options->hidden) {
        train_options_free(options);
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for lists of algorithms and widths");
    }
    options->hidden[0] = 256;
    options->hidden[1] = 128;
    options->hidden_count = 2;
    options->algorithms[0] = train_algorithms()[0];
    options->algorithm_count = 1;
    options->ranks = 8;
    weft_net_init(&options->net);
    options->net.L = 1.0;
    options->steps = 400;
    options->batch = 32;
    options->rate = 0.1;
    options->momentum = 0.9;
    options->imbalance_text = "none";
    options->sync_period = 10;
    options->neighbours = 1;
    options->patience_ns = WEFT_NS_DEFAULT;
    options->sparse.density = 0.01;
    options->seed = 1;
    options->seeds = 1;
    return WEFT_OK;
}

void train_options_free(struct train_options *options)
{
    weft_memory_free(options->hidden);
    weft_memory_free(options->algorithms);
    options->hidden = NULL;
    options->hidden_count = 0;
    options->algorithms = NULL;
    options->algorithm_count = 0;
}

/* The text of --help above the options. */
static void describe(char *text, size_t size)
{
    snprintf(
        text, size,
        "Trains a multi-layer perceptron on optdigits (handwritten digits) on several ranks that\n"
        "communicate through weft, and says how fast and how well. -n: 8 ranks if left "
        "out.\n\nAlgorithms:\n");
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, "  %-14s %s\n", (*at)->name, (*at)->summary);
    }
    size_t used = strlen(text);
    snprintf(
        text + used, size - used,
        "\nImbalance, in milliseconds:\n"
        "  none                    nobody is late\n"
        "  two-random:MS           each step two ranks, drawn anew, are late by MS\n"
        "  fixed:RANK,MS           one rank is late by MS at every step\n"
        "  lognormal:MEDIAN,SIGMA  everyone is, by times drawn from a lognormal distribution\n"
        "  rl:FACTOR               everyone is, by FACTOR times what gathering experience takes "
        "in\n"
        "                          reinforcement learning: 1.7 s to 43.5 s, median 1.9 s\n"
        "\n`ideal` is the throughput without communication if nobody ever waited, `bound` with\n"
        "the waits that the algorithm's definition asks for; both from the delays drawn.");
}

/* Parameters of the perceptron. */
static double count_parameters(const struct train_options *options)
{
    size_t in = DATASET_PIXELS;
    double parameters = 0.0;

    for (size_t i = 0; i <= options->hidden_count; i++) {
        size_t out = i < options->hidden_count ? options->hidden[i] : DATASET_CLASSES;
        parameters += ((double)in + 1.0) * (double)out;
        in = out;
    }
    return parameters;
}

static int is_typed(uint64_t typed, int option)
{
    return (typed >> option & 1) != 0;
}

/* Options of sparse gradients that no algorithm of the list would use, and what contradicts itself.
 * @p typed: a bit for every option that was on the command line. */
static int check_sparse(const struct train_options *options, uint64_t typed)
{
    static const struct {
        int option;
        const char *name;
        enum train_sparse_use needs;
        const char *expected;
    } uses[] = {
        {OPT_DENSITY, "--density", TRAIN_SPARSE, "topk, gtopk or oktopk"},
        {OPT_K, "--k", TRAIN_SPARSE, "topk, gtopk or oktopk"},
        {OPT_WARMUP_STEPS, "--warmup-steps", TRAIN_SPARSE, "topk, gtopk or oktopk"},
        {OPT_PER_LAYER, "--per-layer", TRAIN_SPARSE, "topk, gtopk or oktopk"},
        {OPT_MOMENTUM_CORRECTION, "--momentum-correction", TRAIN_SPARSE, "topk, gtopk or oktopk"},
        {OPT_RESIDUAL, "--residual", TRAIN_SPARSE_MERGED, "gtopk"},
        {OPT_GTOPK_ALGO, "--gtopk-algo", TRAIN_SPARSE_MERGED, "gtopk"},
    };
    enum train_sparse_use most = TRAIN_DENSE;

    for (size_t i = 0; i < options->algorithm_count; i++) {
        enum train_sparse_use use = options->algorithms[i]->sparse;
        most = use > most ? use : most;
    }
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        if (is_typed(typed, uses[i].option) && most < uses[i].needs) {
            return cli_usage(command, "%s: no algorithm of --algorithm uses it; expected %s there",
                             uses[i].name, uses[i].expected);
        }
    }
    if (is_typed(typed, OPT_K) && is_typed(typed, OPT_DENSITY)) {
        return cli_usage(command, "--k: %zu beside --density %g; expected one of the two",
                         options->sparse.k, options->sparse.density);
    }
    if ((double)options->sparse.k > count_parameters(options)) {
        return cli_usage(command, "--k: %zu; expected 1..%.0f, the parameters of the perceptron",
                         options->sparse.k, count_parameters(options));
    }
    return CLI_OK;
}

static int check(const struct train_options *options, int ranks_typed)
{
    if (options->mpi && ranks_typed) {
        return cli_usage(command, "-n: mpiexec says how many ranks there are; expected no -n with "
                                  "--transport mpi");
    }
    if (options->is_virtual && !(options->compute_seconds > 0.0)) {
        return cli_usage(command, "--transport: virtual needs --compute, since nothing else takes "
                                  "virtual time; expected a number above 0 there");
    }
    if (options->plot) {
        FILE *file = cli_is_follower() ? NULL : fopen(options->plot, "a");
        if (file)
            fclose(file);
        else if (!cli_is_follower())
            return cli_usage(command, "--plot: cannot write '%s': %m", options->plot);
    }
    return options->mpi ? CLI_OK : train_options_check_ranks(options, options->ranks);
}

int train_options_parse(struct train_options *options, int argc, char **argv, int *over)
{
    char about[4096];
    struct cli_spec spec = {command, NULL, 0, 0, about, options_table, CLI_RANKS};
    struct cli cli;
    uint64_t typed = 0;
    int id;

    describe(about, sizeof about);
    *over = 1;
    cli_begin(&cli, &spec, argc, argv);
    while ((id = cli_next(&cli)) > 0) {
        int status = train_options_value(options, id, cli.value);
        if (status)
            return status;
        typed |= UINT64_C(1) << id;
    }
    if (id == CLI_STOP)
        return cli.status;
    options->json = cli.json;
    options->ranks = cli.ranks ? cli.ranks : options->ranks;
    int status = check_sparse(options, typed);
    status = status == CLI_OK ? check(options, cli.ranks != 0) : status;
    *over = status != CLI_OK;
    return status;
}

int train_is_sync(const struct train_options *options, uint64_t step)
{
    return options->sync_period > 0 && (step + 1) % options->sync_period == 0;
}

int train_options_check_ranks(const struct train_options *options, int ranks)
{
    if (ranks > MOST_RANKS && !options->mpi && !options->is_virtual)
        return cli_usage(command, "-n: %d ranks; expected at most %d threads", ranks, MOST_RANKS);
    if (options->imbalance.kind == TRAIN_DELAY_FIXED && options->imbalance.rank >= ranks) {
        return cli_usage(command, "--imbalance: rank %d of %s; expected 0..%d",
                         options->imbalance.rank, options->imbalance_text, ranks - 1);
    }
    if (options->group_size > ranks) {
        return cli_usage(command,
                         "--group-size: %d; expected 0 (the default) to %d, the number of ranks",
                         options->group_size, ranks);
    }
    return CLI_OK;
}

const char *train_options_data(const struct train_options *options, char *storage, size_t size)
{
    const char *folders = WEFT_DATA_DIR;
    const char *environment = getenv("WEFT_DATA");

    if (options->data)
        return options->data;
    if (environment && environment[0])
        return environment;
    for (;;) {
        size_t length = strcspn(folders, ":");
        char file[4096];

        snprintf(storage, size, "%.*s", (int)length, folders);
        snprintf(file, sizeof file, "%.*s/optdigits-train.csv", (int)length, folders);
        if (!folders[length] || access(file, R_OK) == 0)
            return storage;
        folders += length + 1;
    }
}
