/* SPDX-License-Identifier: BSD-3-Clause */
/* What the options of `weft train` must be together. */
#include "tools/train/options.h"

#include "tools/cli/cli.h"
#include "tools/cli/ranks.h"
#include "tools/train/algorithm.h"
#include "tools/train/device.h"
#include "tools/train/options_values.h"

#include <stdio.h>
#include <string.h>

static const char command[] = "train";

enum { MOST_RANKS = 4096 };

/* What an algorithm uses of the options that only some have; bits. */
enum {
    USES_SPARSE = 1,
    /** Merges lists and drops what is too much. */
    USES_GTOPK = 2,
    USES_GRADIVEQ = 4,
    USES_QSGD = 8,
    USES_POWERSGD = 16,
    USES_COMPRESSION = USES_GRADIVEQ | USES_QSGD | USES_POWERSGD,
    USES_SERVERS = 32,
    USES_STALENESS = 64,
    USES_DSSP = 128,
    USES_OSP = 256
};

static unsigned server_uses_of(const struct train_algorithm *algorithm)
{
    static const unsigned syncs[] = {
        [WEFT_SERVER_BSP] = 0,        [WEFT_SERVER_ASP] = 0,
        [WEFT_SERVER_R2SP] = 0,       [WEFT_SERVER_SSP] = USES_STALENESS,
        [WEFT_SERVER_OSP] = USES_OSP, [WEFT_SERVER_DSSP] = USES_STALENESS | USES_DSSP};

    return algorithm->serve ? USES_SERVERS | syncs[algorithm->sync] : 0;
}

static unsigned uses_of(const struct train_options *options,
                        const struct train_algorithm *algorithm)
{
    static const unsigned compressions[] = {[TRAIN_COMPRESS_NONE] = 0,
                                            [TRAIN_COMPRESS_GRADIVEQ] = USES_GRADIVEQ,
                                            [TRAIN_COMPRESS_QSGD] = USES_QSGD,
                                            [TRAIN_COMPRESS_POWERSGD] = USES_POWERSGD};
    enum train_sparse_use sparse = algorithm->sparse;

    if (algorithm->merges && options->merge_sparse != TRAIN_MERGE_DENSE)
        sparse = options->merge_sparse == TRAIN_MERGE_GTOPK ? TRAIN_SPARSE_MERGED : TRAIN_SPARSE;
    return compressions[train_compression_of(options, algorithm)] | server_uses_of(algorithm) |
           (sparse == TRAIN_SPARSE_MERGED ? USES_SPARSE | USES_GTOPK
            : sparse == TRAIN_SPARSE      ? USES_SPARSE
                                          : 0u);
}

/* Options of merged without merged. */
static int check_merge(const struct train_options *options, const struct cli *cli)
{
    static const char *const names[] = {"merge", "merge-wait", "merge-sparse", "merge-compress"};
    int merges = 0;

    for (size_t i = 0; i < options->algorithm_count; i++)
        merges |= options->algorithms[i]->merges;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (cli_typed(cli, names[i]) && !merges) {
            return cli_usage(command,
                             "--%s: no algorithm of --algorithm uses it; expected merged there",
                             names[i]);
        }
    }
    if (options->merge_sparse != TRAIN_MERGE_DENSE &&
        options->merge_compress != TRAIN_COMPRESS_NONE) {
        return cli_usage(command,
                         "--merge-compress: %s beside --merge-sparse %s; expected one of the two",
                         cli_typed(cli, "merge-compress"), cli_typed(cli, "merge-sparse"));
    }
    if (options->merge_compress == TRAIN_COMPRESS_GRADIVEQ && !weft_pca_available())
        return cli_usage(command, "--merge-compress: gradiveq: %s", weft_error_text());
    return CLI_OK;
}

/* Options that no algorithm of the list would use. */
static int check_uses(const struct train_options *options, const struct cli *cli)
{
    static const char sparse[] = "topk, gtopk or oktopk";
    static const char served[] = "bsp, asp, ssp, dssp, r2sp or osp";
    static const struct {
        const char *name;
        unsigned by;
        const char *expected;
    } uses[] = {
        {"density", USES_SPARSE, sparse},
        {"k", USES_SPARSE, sparse},
        {"warmup-steps", USES_SPARSE | USES_GRADIVEQ | USES_POWERSGD,
         "topk, gtopk, oktopk, gradiveq or powersgd"},
        {"per-layer", USES_SPARSE, sparse},
        {"momentum-correction", USES_SPARSE, sparse},
        {"residual", USES_GTOPK, "gtopk"},
        {"gtopk-algo", USES_GTOPK, "gtopk"},
        {"bits", USES_GRADIVEQ | USES_QSGD, "qsgd or gradiveq"},
        {"bucket", USES_GRADIVEQ | USES_QSGD, "qsgd or gradiveq"},
        {"norm", USES_GRADIVEQ | USES_QSGD, "qsgd or gradiveq"},
        {"qsgd-way", USES_GRADIVEQ | USES_QSGD, "qsgd or gradiveq"},
        {"power-rank", USES_POWERSGD, "powersgd"},
        {"cold-start", USES_POWERSGD, "powersgd"},
        {"pca-loss", USES_GRADIVEQ, "gradiveq"},
        {"slice-order", USES_GRADIVEQ, "gradiveq"},
        {"slice-factor", USES_GRADIVEQ, "gradiveq"},
        {"slice", USES_GRADIVEQ, "gradiveq"},
        {"reuse", USES_GRADIVEQ, "gradiveq"},
        {"pca-memory", USES_GRADIVEQ, "gradiveq"},
        {"sample-steps", USES_GRADIVEQ, "gradiveq"},
        {"sample-bits", USES_GRADIVEQ, "gradiveq"},
        {"compressed-steps", USES_GRADIVEQ, "gradiveq"},
        {"loss-bound", USES_GRADIVEQ, "gradiveq"},
        {"uncompressed", USES_GRADIVEQ, "gradiveq"},
        {"dense-layers", USES_GRADIVEQ, "gradiveq"},
        {"projected-algo", USES_GRADIVEQ, "gradiveq"},
        {"compress-residual", USES_COMPRESSION, "gradiveq, qsgd or powersgd"},
        {"co-located", USES_SERVERS, served},
        {"pushes", USES_SERVERS, served},
        {"optimiser", USES_SERVERS, served},
        {"weights", USES_SERVERS, served},
        {"staleness", USES_STALENESS, "ssp or dssp"},
        {"staleness-most", USES_DSSP, "dssp"},
        {"osp-share", USES_OSP, "osp"},
        {"osp-most", USES_OSP, "osp"},
        {"osp-average", USES_OSP, "osp"},
        {"osp-correct", USES_OSP, "osp"},
    };
    unsigned used = 0;

    for (size_t i = 0; i < options->algorithm_count; i++)
        used |= uses_of(options, options->algorithms[i]);
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        if (cli_typed(cli, uses[i].name) && !(used & uses[i].by)) {
            return cli_usage(command,
                             "--%s: no algorithm of --algorithm uses it; expected %s there",
                             uses[i].name, uses[i].expected);
        }
    }
    return CLI_OK;
}

/* What of sparse gradients contradicts itself. */
static int check_sparse(const struct train_options *options, const struct cli *cli)
{
    size_t parameters;

    if (cli_typed(cli, "k") && cli_typed(cli, "density")) {
        return cli_usage(command, "--k: %zu beside --density %g; expected one of the two",
                         options->sparse.k, options->sparse.density);
    }
    if (train_options_parameters(options, &parameters) != WEFT_OK)
        return cli_fail(command, "%s", weft_error_text());
    if (options->sparse.k > parameters) {
        return cli_usage(command, "--k: %zu; expected 1..%zu, the parameters of the model",
                         options->sparse.k, parameters);
    }
    return CLI_OK;
}

/* What of compressed ones does. */
static int check_compressed(const struct train_options *options, const struct cli *cli)
{
    const struct train_compress_options *compress = &options->compress;

    if (compress->bucket % 8)
        return cli_usage(command, "--bucket: %zu; expected a multiple of 8", compress->bucket);
    if (compress->sample_bits && compress->uncompressed == WEFT_UNCOMPRESSED_DENSE) {
        return cli_usage(command, "--sample-bits: %d beside --uncompressed dense; expected qsgd",
                         compress->sample_bits);
    }
    if (cli_typed(cli, "slice") && cli_typed(cli, "slice-factor")) {
        return cli_usage(command, "--slice: %zu beside --slice-factor %zu; expected one of the two",
                         compress->slice, compress->slice_factor);
    }
    return CLI_OK;
}

/* What of servers does. */
static int check_servers(const struct train_options *options, const struct cli *cli)
{
    const struct train_server_options *servers = &options->servers;
    unsigned used = 0;

    for (size_t i = 0; i < options->algorithm_count; i++)
        used |= server_uses_of(options->algorithms[i]);
    if ((used & USES_DSSP) && servers->staleness_most < servers->staleness) {
        return cli_usage(command, "--staleness-most: %llu%s; expected --staleness, %llu, at least",
                         (unsigned long long)servers->staleness_most,
                         cli_typed(cli, "staleness-most") ? "" : " by default",
                         (unsigned long long)servers->staleness);
    }
    if (cli_typed(cli, "osp-most") && cli_typed(cli, "osp-share") && servers->osp_share != 0.0) {
        return cli_usage(command,
                         "--osp-most: %s beside --osp-share %s, which is not chosen; expected auto "
                         "there",
                         cli_typed(cli, "osp-most"), cli_typed(cli, "osp-share"));
    }
    if ((used & USES_SERVERS) && !(options->rate > 0.0))
        return cli_usage(command, "--lr: %g; servers expect a number above 0", options->rate);
    return CLI_OK;
}

/* Algorithms that take models of a device, of all of them; of those that were named the first that
 * does not is refused. */
static int check_devices(struct train_options *options)
{
    size_t kept = 0;
    char known[512];

    train_list_algorithms(known, sizeof known, 1);
    for (size_t i = 0; i < options->algorithm_count; i++) {
        if (options->algorithms[i]->streams)
            options->algorithms[kept++] = options->algorithms[i];
        else if (!options->all)
            return cli_usage(command,
                             "--algorithm: %s takes no models of a device; expected some of %s "
                             "with --device %s",
                             options->algorithms[i]->name, known, options->device);
    }
    options->algorithm_count = kept;
    if (options->is_virtual)
        return cli_usage(command,
                         "--device: %s beside --transport virtual, whose ranks have no "
                         "devices; expected local, shared or mpi there",
                         options->device);
    return train_device_check(options->device) == WEFT_OK
               ? CLI_OK
               : cli_usage(command, "--device: %s", weft_error_text());
}

/* Sizes of models that are not trained. */
static int check_model(const struct train_options *options, const struct cli *cli)
{
    const struct net_architecture *model = net_architectures()[options->model];
    const char *other = model->has_hidden ? "channels" : "hidden";

    if (cli_typed(cli, other)) {
        return cli_usage(command, "--%s: %s beside --model %s, which has none; expected --%s",
                         other, cli_typed(cli, other), model->name,
                         model->has_hidden ? "hidden" : "channels");
    }
    return CLI_OK;
}

static int check(const struct train_options *options, const struct cli *cli)
{
    int mpi = strcmp(options->transport, "mpi") == 0;

    if (mpi && cli->ranks) {
        return cli_usage(command, "-n: mpiexec says how many ranks there are; expected no -n with "
                                  "--transport mpi");
    }
    if (!cli->ranks && !cli_typed(cli, "transport") && ranks_refuse_processes(command))
        return CLI_WRONG; /* with -n somebody asked for local ranks */
    if (cli_typed(cli, "on-death") && !options->processes) {
        return cli_usage(command,
                         "--on-death: beside --transport %s, whose ranks are no processes; "
                         "expected shared or mpi there",
                         options->transport);
    }
    if (options->is_virtual && !(options->compute_seconds > 0.0)) {
        return cli_usage(command, "--transport: virtual needs --compute, since nothing else takes "
                                  "virtual time; expected a number above 0 there");
    }
    if (cli_typed(cli, "stale-mix") && options->contribution == WEFT_AVERAGE_ACCUMULATE) {
        return cli_usage(command,
                         "--stale-mix: %s beside --contribution accumulate, which mixes nothing; "
                         "expected replace there",
                         cli_typed(cli, "stale-mix"));
    }
    if (options->plot) {
        FILE *file = cli_is_follower() ? NULL : fopen(options->plot, "a");
        if (file)
            fclose(file);
        else if (!cli_is_follower())
            return cli_usage(command, "--plot: cannot write '%s': %m", options->plot);
    }
    return mpi ? CLI_OK : train_options_check_ranks(options, options->ranks);
}

int train_options_check(struct train_options *options, const struct cli *cli)
{
    int status = check_model(options, cli);

    if (!status && options->device)
        status = check_devices(options);
    if (!status)
        status = check_merge(options, cli);
    if (!status)
        status = check_uses(options, cli);
    if (!status)
        status = check_sparse(options, cli);
    if (!status)
        status = check_compressed(options, cli);
    if (!status)
        status = check_servers(options, cli);
    return status ? status : check(options, cli);
}

/* Algorithms of all that need servers for which there are no processes. */
static void drop_served(struct train_options *options)
{
    size_t kept = 0;

    for (size_t i = 0; i < options->algorithm_count; i++) {
        if (options->algorithms[i]->serve)
            continue;
        if (options->merge_of)
            options->merge_of[kept] = options->merge_of[i];
        options->algorithms[kept++] = options->algorithms[i];
    }
    options->algorithm_count = kept;
    options->server_ranks = 0;
}

int train_options_take_processes(struct train_options *options, int processes)
{
    if (options->all && options->server_ranks > 0 && processes <= options->server_ranks)
        drop_served(options);
    options->ranks = processes - options->server_ranks;
    if (options->ranks >= 1)
        return CLI_OK;
    return cli_usage(command,
                     "--servers: %d of %d process%s; expected more processes than servers, or "
                     "--co-located",
                     options->server_ranks, processes, processes == 1 ? "" : "es");
}

int train_options_check_ranks(const struct train_options *options, int ranks)
{
    const int apart = train_options_serve(options) && !options->servers.colocated;
    const int all = ranks + (apart ? options->servers.count : 0);

    if (all > MOST_RANKS && !options->processes && !options->is_virtual)
        return apart ? cli_usage(command,
                                 "-n: %d ranks and --servers %d; expected at most %d "
                                 "threads in all",
                                 ranks, options->servers.count, MOST_RANKS)
                     : cli_usage(command, "-n: %d ranks; expected at most %d threads", ranks,
                                 MOST_RANKS);
    if (options->servers.colocated && options->servers.count > ranks) {
        return cli_usage(command,
                         "--servers: %d; expected 1..%d, the number of ranks, with --co-located",
                         options->servers.count, ranks);
    }
    if (train_delays_check(&options->imbalance, ranks) != WEFT_OK) {
        return cli_usage(command, "--imbalance: '%s': %s", options->imbalance_text,
                         weft_error_text());
    }
    if (options->group_size > ranks) {
        return cli_usage(command,
                         "--group-size: %d; expected 0 (the default) to %d, the number of ranks",
                         options->group_size, ranks);
    }
    return CLI_OK;
}
