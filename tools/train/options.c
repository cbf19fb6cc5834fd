/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of `weft train`: their help and their defaults. */
#include "tools/train/options.h"

#include "tools/cli/cli.h"
#include "tools/cli/files.h"
#include "tools/cli/ranks.h"
#include "tools/cli/transports.h"
#include "tools/train/algorithm.h"
#include "tools/train/dataset.h"
#include "tools/train/loop.h"
#include "tools/train/options_values.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char command[] = "train";

enum { MOST_BATCH = 1 << 20 };

/* Numbered as in the library. */
static const char *const orders[] = {"listing", "after", "beside", NULL};
static const char *const modes[] = {"wait-avoiding", "waiting", "none", NULL};
static const char *const activations[] = {"anyone", "drawn", NULL};
static const char *const contributions[] = {"replace", "accumulate", NULL};
static const char *const stale_mixes[] = {"substitute", "paper", NULL};
static const char *const residuals[] = {"conserving", "paper", NULL};
static const char *const gtopk_merges[] = {"tree", "butterfly", NULL};
static const char *const merge_sparses[] = {"none", "topk", "gtopk", "oktopk", NULL};
static const char *const norms[] = {"max", "l2", NULL};
static const char *const ways[] = {"shards", "ring", NULL};
static const char *const slice_orders[] = {"across-filters", "of-filters", NULL};
static const char *const uncompressed[] = {"qsgd", "dense", NULL};
static const char *const compress_residuals[] = {"default", "none", "kept", NULL};
static const char *const algos[] = {"ring", "reduce-scatter-allgather", NULL};
static const char *const merge_compresses[] = {"none", "gradiveq", "qsgd", "powersgd", NULL};
static const char *const pushes[] = {"all", "turns", "paced", NULL};
static const char *const server_weights[] = {"equal", "rows", NULL};
static const char *const optimisers[] = {"auto", "servers", "ranks", NULL};
static const char *const corrections[] = {"end", "layer", NULL};
static const char *const on_deaths[] = {"go-on", "stop", NULL};
static const char *const merge_waits[] = {"layers", "all", NULL};

#define AT(member) CLI_AT(struct train_options, member)

static const struct cli_option options_table[] = {
    {"algorithm", 'a', CLI_TAKE, "NAME,...", "one or more of those above, or all", "allreduce",
     .take = train_take_algorithms, .among = "Algorithms"},
    {"transport", 0, CLI_TRANSPORT, "NAME",
     "local; shared: processes; mpi under mpiexec, without -n; virtual: ranks in virtual time",
     "local", AT(transport), .uses = CLI_RUNS | CLI_VIRTUAL},
    {"device", 0, CLI_TEXT, "cuda[:N]",
     "models are on devices, by CUDA and cuBLAS: cuda:N, or of ranks of a machine on its devices "
     "in "
     "turn (default: the processor computes)",
     AT(device)},
    {"net", 0, CLI_TAKE, "L=..,G=..", "of virtual ranks, as for weft sim: microseconds", "L=1",
     .take = train_take_net},
    {"steps", 0, CLI_INTEGER, "N", "steps of training", "400", AT(steps), .least = 1,
     .most = 1000000000},
    {"batch", 0, CLI_INTEGER, "N", "images a rank uses in a step", "32", AT(batch), .least = 1,
     .most = MOST_BATCH},
    {"model", 0, CLI_TAKE, "NAME", "what is trained, one of those above", "mlp",
     .take = train_take_model, .among = "Models"},
    {"hidden", 0, CLI_TAKE, "N,...", "widths of the hidden layers, for mlp", "256,128",
     .take = train_take_hidden},
    {"channels", 0, CLI_INTEGER, "N",
     "channels of the first convolution, for cnn and resnet; the last has four times as many", "16",
     AT(channels), .least = 1, .most = 1024},
    {"lr", 0, CLI_REAL, "RATE", "learning rate", "0.1", AT(rate), .high = 1e6},
    {"momentum", 0, CLI_REAL, "M", "momentum, below 1", "0.9", AT(momentum), .high = 0.999999},
    {"shards", 0, CLI_TAKE, "HOW", "which rows of the data a rank trains on, see above", "iid",
     .take = train_take_shards},
    {"imbalance", 0, CLI_TAKE, "MODEL", "which ranks are late, see above", "none",
     .take = train_take_imbalance},
    {"compute", 0, CLI_REAL, "MS", "a step lasts so long: a sleep fills it up", "0",
     AT(compute_seconds), .high = 3.6e6, .scale = 1e-3},
    {"order", 0, CLI_CHOICE, "ORDER",
     "when ranks exchange: after the gradient, beside the next one, or as the listing of each "
     "algorithm's paper",
     "listing", AT(order), .words = orders},
    {"merge", 0, CLI_TAKE, "METHOD,...",
     "how merged merges layers: exact, greedy, wfbp, single, bucket[:BYTES[:FIRST]]; several: a "
     "training each",
     "exact", .take = train_take_merge},
    {"merge-wait", 0, CLI_CHOICE, "WHAT",
     "what the next forward pass of merged waits for: layers, each before it is used, or all",
     "layers", AT(merge_wait), .words = merge_waits},
    {"merge-sparse", 0, CLI_CHOICE, "METHOD",
     "how merged makes groups sparse, with --density and what goes with it: none, topk, gtopk or "
     "oktopk",
     "none", AT(merge_sparse), .words = merge_sparses},
    {"merge-compress", 0, CLI_CHOICE, "METHOD",
     "how merged compresses groups, with the options of that: none, gradiveq, qsgd or powersgd",
     "none", AT(merge_compress), .words = merge_compresses},
    {"group-size", 0, CLI_INTEGER, "S",
     "ranks of a group, for wagma; 0: the power of two nearest to sqrt P", "0", AT(group_size),
     .most = INT_MAX},
    {"sync-period", 0, CLI_INTEGER, "T",
     "steps between averages of all, for local, wagma, eager-*; 0: none", "10", AT(sync_period),
     .most = LLONG_MAX},
    {"neighbours", 0, CLI_INTEGER, "N", "to how many others a rank pushes, for sgp", "1",
     AT(neighbours), .least = 1, .most = INT_MAX},
    {"mode", 0, CLI_CHOICE, "MODE", "of wagma: wait-avoiding, waiting or none", "wait-avoiding",
     AT(mode), .words = modes},
    {"activation", 0, CLI_CHOICE, "WHO", "who starts a step of wagma: anyone or drawn", "anyone",
     AT(activation), .words = activations},
    {"contribution", 0, CLI_CHOICE, "WHAT", "of wagma: replace (models) or accumulate (gradients)",
     "replace", AT(contribution), .words = contributions},
    {"stale-mix", 0, CLI_CHOICE, "HOW",
     "how late models of wagma enter a sum: substitute (for older ones) or paper (they are added)",
     "substitute", AT(stale_mix), .words = stale_mixes},
    {"patience", 0, CLI_TAKE, "MS",
     "how long a rank's start waits for it, for wagma and eager-*; 0: not at all; adaptive: 1 to "
     "10% of a step (default: adaptive for wagma, 0 for eager-*)",
     .take = train_take_patience},
    {"density", 0, CLI_TAKE, "D", "share of a gradient that a rank sends, for topk, gtopk, oktopk",
     "0.01", .take = train_take_density},
    {"k", 0, CLI_INTEGER, "N", "so many entries instead, with --per-layer of every tensor",
     AT(sparse.k), .least = 1, .most = LLONG_MAX},
    {"warmup-steps", 0, CLI_INTEGER, "N",
     "for topk, gtopk, oktopk: before it N steps with each of 0.25, 0.0725, 0.015 and 0.004 that "
     "is larger; for powersgd: the first N steps are not compressed, for gradiveq: they "
     "are as --uncompressed says (default 0; of gradiveq a tenth of --steps, 2500 at most)",
     AT(sparse.warmup_steps), .most = 1000000000},
    {"per-layer",
     .help = "every tensor sends its own largest entries, for topk, gtopk, oktopk (default: the "
             "model does)",
     AT(sparse.per_layer)},
    {"momentum-correction", 0, CLI_REAL, "M",
     "momentum before the selection, in place of --momentum, for topk, gtopk, oktopk; 0: none", "0",
     AT(sparse.momentum), .high = 0.999999},
    {"residual", 0, CLI_CHOICE, "WHICH", "what becomes of what gtopk drops: conserving or paper",
     "conserving", AT(sparse.residual), .words = residuals},
    {"gtopk-algo", 0, CLI_CHOICE, "NAME", "how gtopk merges: tree or butterfly", "tree",
     AT(sparse.gtopk), .words = gtopk_merges},
    {"bits", 0, CLI_TAKE, "N",
     "of an element, with its sign: 2, 4, 8, or sign, for qsgd, and for gradiveq's --uncompressed "
     "qsgd",
     "4", .take = train_take_bits},
    {"bucket", 0, CLI_INTEGER, "N", "elements that are measured together, a multiple of 8", "512",
     AT(compress.bucket), .least = 8, .most = 1 << 24},
    {"norm", 0, CLI_CHOICE, "WHICH", "what they are measured by: max or l2", "max",
     AT(compress.norm), .words = norms},
    {"qsgd-way", 0, CLI_CHOICE, "WAY",
     "shards: each rank adds up one, all is quantised twice; ring: at each of P hops", "shards",
     AT(compress.way), .words = ways},
    {"power-rank", 0, CLI_INTEGER, "R", "columns of powersgd's factors", "2", AT(compress.rank),
     .least = 1, .most = 1 << 16},
    {"cold-start", .help = "each step of powersgd begins with random factors, not the last ones",
     AT(compress.cold_start)},
    {"pca-loss", 0, CLI_REAL, "LAMBDA",
     "share of the samples' variance that gradiveq's projections may lose, below 1", "0.01",
     AT(compress.pca_loss), .high = 0.999999},
    {"slice-order", 0, CLI_CHOICE, "WHICH",
     "gradiveq's slices are across-filters, as in the paper, or of-filters: whole ones, which lose "
     "less",
     "across-filters", AT(compress.order), .words = slice_orders},
    {"slice-factor", 0, CLI_INTEGER, "N",
     "they have N F D elements, of filters F and their depth D (default: N is the largest up to 3 "
     "that divides a filter's height times its width), or N filters' (default: 1)",
     AT(compress.slice_factor), .least = 1, .most = 1 << 24},
    {"slice", 0, CLI_INTEGER, "K", "so many instead, of every tensor that has them",
     AT(compress.slice), .least = 2, .most = 1LL << 32},
    {"reuse", 0, CLI_INTEGER, "S", "slices that share a projection; 0: all of a tensor", "0",
     AT(compress.reuse), .most = 1LL << 32},
    {"pca-memory", 0, CLI_SIZE, "BYTES",
     "the most that samples and projections take; slices are made smaller for it; 0: no limit", "0",
     AT(compress.pca_memory)},
    {"sample-steps", 0, CLI_INTEGER, "N",
     "steps of which gradiveq makes projections (default: a tenth of --steps, 100 at most)",
     AT(compress.sample_steps), .least = 2, .most = 1000000},
    {"sample-bits", 0, CLI_TAKE, "N",
     "of an element in those steps, 2, 4 or 8 (default: --bits, the paper's 4; 8 cost few bytes, "
     "and leave no noise for projections to hold)",
     .take = train_take_sample_bits},
    {"compressed-steps", 0, CLI_TAKE, "N",
     "steps that use them, before the next are made; never: all that are left (default: four times "
     "--sample-steps)",
     .take = train_take_compressed_steps},
    {"loss-bound", 0, CLI_REAL, "X",
     "gradiveq makes the next sooner where most ranks lose more than this share of their "
     "gradient's squared norm; 0: never",
     "1", AT(compress.loss_bound), .high = 1e6},
    {"uncompressed", 0, CLI_CHOICE, "HOW", "gradiveq's other steps: qsgd or dense", "qsgd",
     AT(compress.uncompressed), .words = uncompressed},
    {"dense-layers",
     .help =
         "gradiveq projects the weights of dense layers, too (mlp, which has no others: always)",
     AT(compress.dense_layers)},
    {"projected-algo", 0, CLI_WORD, "NAME",
     "how gradiveq's sums travel: ring or reduce-scatter-allgather (default: by cost)",
     AT(compress.algo), .words = algos},
    {"compress-residual", 0, CLI_CHOICE, "WHAT",
     "what becomes of what gradiveq, qsgd and powersgd drop: none, kept for the next step, or "
     "default: kept by powersgd and by qsgd with --bits sign",
     AT(compress.residual), .words = compress_residuals},
    {"servers", 0, CLI_INTEGER, "N",
     "parameter servers, for bsp, asp, ssp, dssp, r2sp, osp: ranks on top of those that train (of "
     "mpiexec's processes the last ones)",
     "1", AT(servers.count), .least = 1, .most = 4096},
    {"co-located", .help = "they are no ranks of their own but the first of those that train",
     AT(servers.colocated)},
    {"staleness", 0, CLI_INTEGER, "S",
     "by how many steps a rank may be ahead of the slowest, for ssp; for dssp at least", "3",
     AT(servers.staleness), .most = 1000000000},
    {"staleness-most", 0, CLI_INTEGER, "S", "for dssp at most", "15", AT(servers.staleness_most),
     .most = 1000000000},
    {"pushes", 0, CLI_CHOICE, "HOW",
     "how pushes come to a server: all at once, in turns, or paced: a segment of each rank at a "
     "time",
     "all", AT(servers.flow), .words = pushes},
    {"optimiser", 0, CLI_CHOICE, "WHERE",
     "who has the momentum where there are servers: the servers, one for all, or the ranks, each "
     "its own; auto: the servers of bsp and osp",
     "auto", AT(servers.optimiser), .words = optimisers},
    {"weights", 0, CLI_CHOICE, "HOW",
     "what a rank's pushes count there: equal, or by the rows that it trains on", "equal",
     AT(servers.weights), .words = server_weights},
    {"osp-share", 0, CLI_TAKE, "SHARE",
     "share of the model's bytes that osp synchronises behind the next step: auto (its Algorithm "
     "1), or 0 to 1",
     "auto", .take = train_take_osp_share},
    {"osp-most", 0, CLI_REAL, "SHARE", "of auto, at most", "0.8", AT(servers.osp_most),
     .high = 1.0},
    {"osp-average", 0, CLI_REAL, "B",
     "late layers are predicted by an average of updates with this decay; 0: by the rank's own "
     "gradient",
     "0", AT(servers.osp_average), .high = 0.999999},
    {"osp-correct", 0, CLI_CHOICE, "WHEN",
     "late layers are corrected at the end of a step, or before each layer is used", "end",
     AT(servers.osp_correction), .words = corrections},
    {"on-death", 0, CLI_CHOICE, "WHAT",
     "where a process dies: go-on, those that are left do, or stop, the training fails", "go-on",
     AT(on_death), .words = on_deaths},
    {"seed", 0, CLI_INTEGER, "N", "of weights, batches and delays", "1", AT(seed),
     .most = LLONG_MAX},
    {"seeds", 0, CLI_INTEGER, "N", "so many trainings each, seed, seed + 1 ...: medians", "1",
     AT(seeds), .least = 1, .most = 1000},
    {"plot", 0, CLI_TEXT, "FILE.svg", "draws test accuracy and consensus distance over time",
     AT(plot)},
    {"data", 0, CLI_TEXT, "DIR",
     "folder of the data (default: WEFT_DATA, or where it was installed)", AT(data)},
    {0},
};

int train_options_init(struct train_options *options)
{
    memset(options, 0, sizeof *options);
    options->ranks = 8;
    weft_net_init(&options->net);
    weft_merge_config_init(&options->merge);
    options->compress.warmup_steps = TRAIN_SCALED;
    if (cli_defaults(options_table, command, options)) {
        train_options_free(options);
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for lists of algorithms and widths");
    }
    return WEFT_OK;
}

void train_options_free(struct train_options *options)
{
    weft_memory_free(options->hidden);
    weft_memory_free(options->merges);
    weft_memory_free(options->merge_of);
    weft_memory_free(options->algorithms);
    options->merges = NULL;
    options->merge_count = 0;
    options->merge_of = NULL;
    options->hidden = NULL;
    options->hidden_count = 0;
    options->algorithms = NULL;
    options->algorithm_count = 0;
}

static int describe_algorithm(size_t index, struct cli_term *term)
{
    const struct train_algorithm *const *algorithms = train_algorithms();

    for (size_t i = 0; i <= index; i++)
        if (!algorithms[i])
            return 0;
    *term = (struct cli_term){algorithms[index]->name, algorithms[index]->summary};
    return 1;
}

static int describe_model(size_t index, struct cli_term *term)
{
    const struct net_architecture *const *architectures = net_architectures();

    for (size_t i = 0; i <= index; i++)
        if (!architectures[i])
            return 0;
    *term = (struct cli_term){architectures[index]->name, architectures[index]->summary};
    return 1;
}

static const struct cli_term divisions[] = {
    {"iid", "all ranks draw from all rows"},
    {"by-class:N", "a rank has rows of N of the ten digits alone"},
    {"dirichlet:ALPHA", "a rank's shares of the digits are drawn from a Dirichlet distribution; "
                        "the smaller ALPHA, the more ranks differ"},
    {0},
};

static const struct cli_term imbalances[] = {
    {"none", "nobody is late"},
    {"two-random:MS", "each step two ranks, drawn anew, are late by MS"},
    {"fixed:RANK,MS", "one rank is late by MS at every step"},
    {"permanent:RANKS,MS", "so many ranks, drawn once, are late by MS at every step"},
    {"lognormal:MEDIAN,SIGMA", "everyone is, by times drawn from a lognormal distribution"},
    {"pareto:MEDIAN,EXPONENT", "everyone is, by times of a heavy tail: the chance of more than "
                               "t falls as t to the power of -EXPONENT"},
    {"rl:FACTOR", "everyone is, by FACTOR times what gathering experience takes in "
                  "reinforcement learning: 1.7 s to 43.5 s, median 1.9 s"},
    {"MODEL+MODEL", "up to four of them add up"},
    {0},
};

static const struct cli_section sections[] = {
    {"Algorithms", .term = describe_algorithm},
    {"Models", .term = describe_model},
    {"Shards", .terms = divisions},
    {"Imbalance, in milliseconds", .terms = imbalances,
     .closing = "`ideal` is the throughput without communication if nobody ever waited, "
                "`bound` with the waits that the algorithm asks for in the order in which it "
                "is run; both from the delays drawn."},
    {0},
};

struct net_config train_options_net(const struct train_options *options)
{
    return (struct net_config){.architecture = net_architectures()[options->model],
                               .image = {DATASET_SIDE, DATASET_SIDE, 1},
                               .classes = DATASET_CLASSES,
                               .hidden = options->hidden,
                               .hidden_count = options->hidden_count,
                               .channels = options->channels};
}

int train_options_parameters(const struct train_options *options, size_t *parameters)
{
    struct net_config config = train_options_net(options);
    struct net *net;
    int status = net_create(&net, &config);

    if (status != WEFT_OK)
        return status;
    *parameters = net->parameter_count;
    net_destroy(net);
    return WEFT_OK;
}

/* An algorithm that merges layers once for each of the merges. */
static int spread_merges(struct train_options *options)
{
    size_t most = options->algorithm_count * options->merge_count;
    const struct train_algorithm **algorithms = weft_memory_alloc(most, sizeof *algorithms);
    size_t *merge_of = weft_memory_alloc(most, sizeof *merge_of);
    size_t count = 0;

    if (!algorithms || !merge_of) {
        weft_memory_free(merge_of);
        weft_memory_free(algorithms);
        return cli_fail(command, "out of memory");
    }
    for (size_t i = 0; i < options->algorithm_count; i++) {
        size_t times = options->algorithms[i]->merges ? options->merge_count : 1;
        for (size_t merge = 0; merge < times; merge++) {
            merge_of[count] = merge;
            algorithms[count++] = options->algorithms[i];
        }
    }
    weft_memory_free(options->algorithms);
    options->algorithms = algorithms;
    options->merge_of = merge_of;
    options->algorithm_count = count;
    return CLI_OK;
}

const char *train_options_name(const struct train_options *options, size_t index, char *text,
                               size_t size)
{
    const struct train_algorithm *algorithm = options->algorithms[index];
    char method[WEFT_MERGE_METHOD_TEXT] = "";

    if (algorithm->merges && options->merge_of)
        weft_merge_method_format(&options->merges[options->merge_of[index]], method, sizeof method);
    snprintf(text, size, "%s%s%s", algorithm->name, method[0] ? " " : "", method);
    return text;
}

int train_options_parse(struct train_options *options, struct cli *cli)
{
    if (!cli_parse(cli, options))
        return 0;
    options->processes = cli_uses_processes(options->transport);
    options->is_virtual = strcmp(options->transport, "virtual") == 0;
    options->json = cli->json;
    if (options->processes && !options->servers.colocated &&
        (train_options_serve(options) || cli_typed(cli, "servers")))
        options->server_ranks = options->servers.count;
    if (cli->ranks)
        options->ranks = cli->ranks;
    else if (options->processes && ranks_launched())
        cli->status = train_options_take_processes(options, ranks_processes());
    if (cli_typed(cli, "warmup-steps"))
        options->compress.warmup_steps = options->sparse.warmup_steps;
    if (!cli->status)
        cli->status = train_options_check(options, cli);
    if (!cli->status)
        cli->status = spread_merges(options);
    return !cli->status;
}

int train_is_sync(const struct train_options *options, uint64_t step)
{
    return options->sync_period > 0 && (step + 1) % options->sync_period == 0;
}

enum train_compression train_compression_of(const struct train_options *options,
                                            const struct train_algorithm *algorithm)
{
    return algorithm->merges ? options->merge_compress : algorithm->compression;
}

int train_server_ranks(const struct train_options *options, const struct train_algorithm *algorithm)
{
    return algorithm->serve && !options->servers.colocated ? options->servers.count : 0;
}

int train_options_serve(const struct train_options *options)
{
    int serve = 0;

    for (size_t i = 0; i < options->algorithm_count; i++)
        serve |= options->algorithms[i]->serve != NULL;
    return serve;
}

const char *train_options_mix(const struct train_options *options)
{
    return options->mode == WEFT_AVERAGE_WAIT_AVOIDING &&
                   options->contribution == WEFT_AVERAGE_REPLACE
               ? stale_mixes[options->stale_mix]
               : NULL;
}

const char *train_options_data(const struct train_options *options, char *storage, size_t size)
{
    const char *environment = getenv("WEFT_DATA");

    if (options->data)
        return options->data;
    if (environment && environment[0])
        return environment;
    return cli_data_path("optdigits", storage, size);
}

static int train(struct cli *cli)
{
    struct train_options options;

    if (train_options_init(&options) != WEFT_OK)
        return cli_fail(command, "out of memory");
    int status = train_options_parse(&options, cli) ? train_with(&options, cli) : cli->status;
    train_options_free(&options);
    return status;
}

const struct cli_spec weft_command_train = {
    .name = command,
    .summary = "the demonstration trainer",
    .about = "Trains a model on optdigits (handwritten digits) on several ranks "
             "that communicate through weft, and says how fast and how well. -n: 8 ranks if left "
             "out; servers come on top.",
    .sections = sections,
    .options = options_table,
    .common = CLI_RANKS,
    .mpi = 1,
    .run = train,
};
