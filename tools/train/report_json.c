/* SPDX-License-Identifier: BSD-3-Clause */
/* The output of `weft train` as JSON: an object a training. */
#include "tools/train/report.h"

#include "tools/cli/cli.h"
#include "tools/train/compressed.h"

#include <math.h>

static const char command[] = "train";

/* JSON knows no infinity: a training that has diverged has a loss of null. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *curve_of(const struct train_outcome *outcome)
{
    json_t *curve = json_array();

    for (size_t i = 0; i < outcome->curve_count; i++) {
        json_array_append_new(
            curve, json_pack("[f, f]", outcome->curve[i].seconds, outcome->curve[i].accuracy));
    }
    return curve;
}

/* After how many steps its points are. */
static json_t *curve_steps_of(const struct train_outcome *outcome)
{
    json_t *steps = json_array();

    for (size_t i = 0; i < outcome->curve_count; i++)
        json_array_append_new(steps, json_integer((json_int_t)outcome->curve[i].done));
    return steps;
}

static json_t *consensus_of(const struct train_outcome *outcome)
{
    json_t *curve = json_array();

    for (size_t i = 0; i < outcome->curve_count; i++) {
        json_array_append_new(curve, json_pack("[f, o]", outcome->curve[i].seconds,
                                               number(outcome->curve[i].distance)));
    }
    return curve;
}

/* What was trained, and how. */
static json_t *settings_of(const struct train_options *options, const struct train_outcome *outcome)
{
    return json_pack(
        "{s:s, s:s, s:s?, s:I, s:f, s:f, s:s, s:s, s:f, s:I, s:I}", "model",
        net_architectures()[options->model]->name, "transport", options->transport, "device",
        options->device, "batch", (json_int_t)options->batch, "lr", options->rate, "momentum",
        options->momentum, "shards", options->division_text, "imbalance", options->imbalance_text,
        "compute_ms", options->compute_seconds * 1e3, "sync_period",
        (json_int_t)options->sync_period, "parameters", (json_int_t)outcome->parameters);
}

/* Of sparse gradients, as far as the algorithm uses it; an empty object of others. */
static json_t *sparse_of(const struct train_options *options,
                         const struct train_algorithm *algorithm,
                         const struct train_outcome *outcome)
{
    const struct train_sparse_options *sparse = &options->sparse;
    json_t *object = json_object();

    if (algorithm->sparse == TRAIN_DENSE)
        return object;
    json_t *common = json_pack("{s:f, s:I, s:f, s:I, s:b, s:f}", "density",
                               (double)outcome->k / (double)outcome->parameters, "k",
                               (json_int_t)outcome->k, "selected_share", outcome->selected_share,
                               "warmup_steps", (json_int_t)sparse->warmup_steps, "per_layer",
                               sparse->per_layer, "momentum_correction", sparse->momentum);
    json_t *merged =
        algorithm->sparse == TRAIN_SPARSE_MERGED
            ? json_pack("{s:s, s:s}", "residual",
                        sparse->residual == WEFT_SPARSE_PAPER ? "paper" : "conserving",
                        "gtopk_algo", sparse->gtopk == WEFT_SPARSE_GTOPK ? "tree" : "butterfly")
            : json_object();
    if (!common || !merged || json_object_update(object, common) ||
        json_object_update(object, merged)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(merged);
    json_decref(common);
    return object;
}

/* Steps, of which WEFT_NEVER is null. */
static json_t *steps_of(uint64_t steps)
{
    return steps == WEFT_NEVER ? json_null() : json_integer((json_int_t)steps);
}

static json_t *quantiser_of(const struct train_compress_options *compress)
{
    return json_pack("{s:i, s:I, s:s, s:s}", "bits", compress->bits, "bucket",
                     (json_int_t)compress->bucket, "norm",
                     compress->norm == WEFT_QUANTISE_MAX ? "max" : "l2", "qsgd_way",
                     compress->way == WEFT_QSGD_SHARDS ? "shards" : "ring");
}

static json_t *powersgd_of(const struct train_compress_options *compress)
{
    uint64_t warmup = compress->warmup_steps == TRAIN_SCALED ? 0 : compress->warmup_steps;

    return json_pack("{s:I, s:b, s:I}", "power_rank", (json_int_t)compress->rank, "cold_start",
                     compress->cold_start, "warmup_steps", (json_int_t)warmup);
}

/* Null of dense sums. */
static json_t *sample_bits_of(const struct train_compress_options *compress)
{
    if (compress->uncompressed == WEFT_UNCOMPRESSED_DENSE)
        return json_null();
    return json_integer(compress->sample_bits ? compress->sample_bits : compress->bits);
}

static json_t *gradiveq_of(const struct train_options *options)
{
    const struct train_compress_options *compress = &options->compress;
    struct train_phase_lengths lengths = train_compressed_lengths(options);

    return json_pack(
        "{s:f, s:s, s:I, s:I, s:o, s:o, s:f, s:s, s:b, s:s?}", "pca_loss", compress->pca_loss,
        "slice_order", compress->order == WEFT_SLICES_OF_FILTERS ? "of-filters" : "across-filters",
        "warmup_steps", (json_int_t)lengths.warmup_steps, "sample_steps",
        (json_int_t)lengths.sample_steps, "sample_bits", sample_bits_of(compress),
        "compressed_steps", steps_of(lengths.compressed_steps), "loss_bound", compress->loss_bound,
        "uncompressed", compress->uncompressed == WEFT_UNCOMPRESSED_DENSE ? "dense" : "qsgd",
        "dense_layers", train_compressed_dense_layers(options), "projected_algo", compress->algo);
}

static json_t *phases_of(const struct train_outcome *outcome)
{
    json_t *phases = json_array();

    for (size_t i = 0; i < outcome->phase_count; i++) {
        const struct train_phase *phase = &outcome->phases[i];
        json_array_append_new(phases,
                              json_pack("{s:s, s:I, s:f}", "phase", phase->name, "step",
                                        (json_int_t)phase->step, "seconds", phase->seconds));
    }
    return phases;
}

static json_t *projections_of(const struct train_compressed *compressed)
{
    json_t *projections = json_array();

    for (size_t i = 0; i < compressed->projection_count; i++) {
        const struct train_projection *each = &compressed->projections[i];
        json_array_append_new(
            projections,
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "tensor", (json_int_t)each->tensor, "slice",
                      (json_int_t)each->slice, "slices", (json_int_t)each->slices, "reuse",
                      (json_int_t)each->reuse, "components", (json_int_t)each->components, "loss",
                      each->loss >= 0.0 ? number(each->loss) : json_null()));
    }
    return projections;
}

/* Moves what is in @p part, unless it is NULL, which is a failure. */
static int move_into(json_t *object, json_t *part)
{
    int failed = !object || !part || json_object_update(object, part);

    json_decref(part);
    return failed;
}

/* What compression came to, of algorithms that count it; phases are an object's own, where merged
 * groups have some each. */
static json_t *counted_of(const struct train_algorithm *algorithm,
                          enum train_compression compression, const struct train_outcome *outcome)
{
    const struct train_compressed *compressed = &outcome->compressed;
    int known = compressed->steps > 0;
    json_t *object = json_object();

    if (!algorithm->describe)
        return object;
    int failed = move_into(
        object, json_pack("{s:I, s:o, s:o, s:o}", "steps_compressed", (json_int_t)compressed->steps,
                          "compressed_ratio", known ? json_real(compressed->ratio) : json_null(),
                          "compression_loss",
                          known && compressed->loss >= 0.0 ? number(compressed->loss) : json_null(),
                          "phases", phases_of(outcome)));
    if (compression == TRAIN_COMPRESS_GRADIVEQ)
        failed |= move_into(object, json_pack("{s:o}", "projections", projections_of(compressed)));
    if (algorithm->compression == TRAIN_COMPRESS_GRADIVEQ)
        failed |= move_into(object, json_pack("{s:I, s:I, s:f}", "compressed_phases",
                                              (json_int_t)compressed->phases, "ended_early",
                                              (json_int_t)compressed->ended_early, "pca_seconds",
                                              compressed->pca_seconds));
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

/* What compression was, and what it came to; an empty object of others. */
static json_t *compressed_of(const struct train_options *options,
                             const struct train_algorithm *algorithm,
                             const struct train_outcome *outcome)
{
    const struct train_compress_options *compress = &options->compress;
    enum train_compression compression = train_compression_of(options, algorithm);
    json_t *object = json_object();

    if (compression == TRAIN_COMPRESS_NONE)
        return object;
    int failed = move_into(object, compression == TRAIN_COMPRESS_POWERSGD ? powersgd_of(compress)
                                                                          : quantiser_of(compress));
    if (compression == TRAIN_COMPRESS_GRADIVEQ)
        failed |= move_into(object, gradiveq_of(options));
    failed |= move_into(
        object, json_pack("{s:b}", "residual_kept", train_compressed_keeps(options, compression)));
    failed |= move_into(object, counted_of(algorithm, compression, outcome));
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static json_t *more_of(const struct train_outcome *outcome)
{
    char checksum[32];

    snprintf(checksum, sizeof checksum, "%013llx", (unsigned long long)outcome->checksum);
    return json_pack("{s:i, s:b, s:I, s:f, s:f, s:o, s:f, s:o, s:o, s:s, s:o, s:o, s:o, s:o}",
                     "ranks_lost", outcome->ranks_lost, "interrupted", outcome->interrupted,
                     "bytes_sent", (json_int_t)outcome->bytes_sent, "bytes_per_step",
                     outcome->bytes_per_step, "bytes_per_step_most", outcome->bytes_per_step_most,
                     "compression_ratio", number(outcome->compression_ratio), "gradient_us",
                     outcome->gradient_seconds * 1e6, "loss", number(outcome->loss), "identical",
                     outcome->alone ? json_null() : json_boolean(outcome->identical), "checksum",
                     checksum, "consensus_distance",
                     outcome->alone ? json_null() : number(outcome->consensus_distance), "curve",
                     curve_of(outcome), "curve_steps", curve_steps_of(outcome), "consensus",
                     outcome->alone ? json_null() : consensus_of(outcome));
}

/* "adaptive", or milliseconds. */
static json_t *patience_of(const struct train_options *options,
                           const struct train_algorithm *algorithm)
{
    uint64_t ns = algorithm->patience(options);

    return ns == 0 ? json_string("adaptive")
                   : json_real(ns == WEFT_NS_NONE ? 0.0 : (double)ns * 1e-6);
}

/* The plan of layers, and what was measured of it; an empty object of others. */
static json_t *merged_of(const struct train_options *options,
                         const struct train_algorithm *algorithm,
                         const struct train_outcome *outcome)
{
    static const char *const sparses[] = {"none", "topk", "gtopk", "oktopk"};
    static const char *const compresses[] = {"none", "gradiveq", "qsgd", "powersgd"};
    const struct train_merged *merged = &outcome->merged;
    char method[WEFT_MERGE_METHOD_TEXT] = "";
    json_t *groups = json_array();
    const size_t *layer = merged->layers;
    double planned = outcome->planned_step_seconds;

    if (!algorithm->merges) {
        json_decref(groups);
        return json_object();
    }
    for (size_t g = 0; g < merged->group_count; g++) {
        json_t *group = json_array();
        for (size_t i = 0; i < merged->group_layers[g]; i++)
            json_array_append_new(group, json_integer((json_int_t)*layer++));
        json_array_append_new(groups, group);
    }
    weft_merge_method_format(&options->merge, method, sizeof method);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:f, s:o, s:I, s:o, s:f, s:f}", "merge", method, "merge_wait",
        options->merge_wait ? "all" : "layers", "merge_compress",
        compresses[options->merge_compress], "merge_sparse", sparses[options->merge_sparse],
        "density", options->merge_sparse ? options->sparse.density : 1.0, "groups", groups, "plans",
        (json_int_t)merged->plans, "planned_step_us",
        planned > 0.0 ? json_real(planned * 1e6) : json_null(), "planned_hidden_fraction",
        merged->planned_hidden, "hidden_fraction", merged->hidden);
}

/* A share that Algorithm 1 chooses is null. */
static json_t *osp_of(const struct train_server_options *servers)
{
    json_t *share = servers->osp_share == 0.0  ? json_null()
                    : servers->osp_share < 0.0 ? json_real(0.0)
                                               : json_real(servers->osp_share);

    return json_pack("{s:o, s:f, s:f, s:s}", "osp_share", share, "osp_most", servers->osp_most,
                     "osp_average", servers->osp_average, "osp_correct",
                     servers->osp_correction == WEFT_OSP_BEFORE_LAYER ? "layer" : "end");
}

/* What servers were, and what they came to; an empty object of others. */
static json_t *served_of(const struct train_options *options,
                         const struct train_algorithm *algorithm,
                         const struct train_outcome *outcome)
{
    static const char *const pushes[] = {"all", "turns", "paced"};
    const struct train_server_options *servers = &options->servers;
    const struct train_served *served = &outcome->served;
    json_t *object = json_object();

    if (!algorithm->serve)
        return object;
    int failed = move_into(
        object,
        json_pack("{s:i, s:b, s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "servers", servers->count,
                  "co_located", servers->colocated, "pushes",
                  algorithm->sync == WEFT_SERVER_R2SP ? "turns" : pushes[servers->flow],
                  "optimiser", train_servers_update(options, algorithm->sync) ? "servers" : "ranks",
                  "weights", servers->weights == TRAIN_WEIGHTS_ROWS ? "rows" : "equal", "staleness",
                  served->staleness, "batch_sync_ms", served->synchronised_seconds * 1e3,
                  "ics_fraction", served->late_share, "late_layers", served->late_layers));
    if (algorithm->sync == WEFT_SERVER_SSP || algorithm->sync == WEFT_SERVER_DSSP)
        failed |= move_into(object,
                            json_pack("{s:I}", "staleness_bound", (json_int_t)servers->staleness));
    if (algorithm->sync == WEFT_SERVER_DSSP)
        failed |= move_into(
            object, json_pack("{s:I}", "staleness_most", (json_int_t)servers->staleness_most));
    if (algorithm->sync == WEFT_SERVER_OSP)
        failed |= move_into(object, osp_of(servers));
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

int train_report_json(const struct train_options *options, const struct train_algorithm *algorithm,
                      const struct train_outcome *outcome)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f}", "algorithm",
        algorithm->name, "order", train_order_name(options, algorithm), "ranks", outcome->ranks,
        "steps", (json_int_t)outcome->steps, "seconds", outcome->seconds, "samples_per_second",
        outcome->samples_per_second, "ideal_samples_per_second", outcome->ideal_samples_per_second,
        "bound_samples_per_second", outcome->bound_samples_per_second, "test_accuracy",
        outcome->test_accuracy, "stale_fraction", outcome->stale_fraction, "seed",
        (json_int_t)options->seed, "step_us", outcome->step_seconds * 1e6);
    json_t *settings = settings_of(options, outcome);
    const char *mix = algorithm->mix ? algorithm->mix(options) : NULL;
    if (settings && mix)
        json_object_set_new(settings, "stale_mix", json_string(mix));
    if (settings && algorithm->patience)
        json_object_set_new(settings, "patience_ms", patience_of(options, algorithm));
    json_t *parts[] = {settings,
                       sparse_of(options, algorithm, outcome),
                       merged_of(options, algorithm, outcome),
                       served_of(options, algorithm, outcome),
                       compressed_of(options, algorithm, outcome),
                       more_of(outcome)};
    int failed = !object;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        failed |= !parts[i] || (object && json_object_update(object, parts[i]));
        json_decref(parts[i]);
    }
    if (failed) {
        json_decref(object);
        return cli_fail(command, "could not make a JSON object (out of memory?)");
    }
    return cli_print_json(command, object);
}
