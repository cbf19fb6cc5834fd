/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading of the values of the options of `weft train`. */
#include "tools/train/options_values.h"

#include "tools/cli/cli.h"
#include "tools/train/algorithm.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char command[] = "train";

enum { MOST_BATCH = 1 << 20, MOST_WIDTH = 1 << 24 };

/* Appends "NAME, NAME, ..." of all algorithms. */
static void list_algorithms(char *text, size_t size)
{
    text[0] = '\0';
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", used ? ", " : "", (*at)->name);
    }
}

/* Puts the algorithms that a word of the list means at the end of the options'. */
static int add_algorithms(struct train_options *options, const char *word, size_t length)
{
    int all = length == strlen("all") && strncmp(word, "all", length) == 0;
    size_t before = options->algorithm_count;

    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++)
        if (all || *at == train_algorithm_find(word, length))
            options->algorithms[options->algorithm_count++] = *at;
    if (options->algorithm_count == before) {
        char known[512];
        list_algorithms(known, sizeof known);
        return cli_usage(command, "--algorithm: '%.*s' is unknown; expected all, or some of %s",
                         (int)length, word, known);
    }
    return CLI_OK;
}

static int parse_algorithms(struct train_options *options, const char *text)
{
    size_t known = 0;
    size_t words = 1;

    while (train_algorithms()[known])
        known++;
    for (const char *c = text; *c; c++)
        words += *c == ',';
    const struct train_algorithm **list = weft_memory_alloc(words * known, sizeof *list);
    if (!list)
        return cli_fail(command, "out of memory");
    weft_memory_free(options->algorithms);
    options->algorithms = list;
    options->algorithm_count = 0;
    for (const char *word = text;; word++) {
        size_t length = strcspn(word, ",");
        int status = add_algorithms(options, word, length);
        if (status != CLI_OK)
            return status;
        word += length;
        if (!*word)
            return CLI_OK;
    }
}

/* Widths of the hidden layers, separated by commas. */
static int parse_hidden(struct train_options *options, const char *text)
{
    size_t count = 1;

    for (const char *c = text; *c; c++)
        count += *c == ',';
    size_t *widths = weft_memory_alloc(count, sizeof *widths);
    if (!widths)
        return cli_fail(command, "out of memory");
    weft_memory_free(options->hidden);
    options->hidden = widths;
    options->hidden_count = count;
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(text, ",");
        char word[32];
        long long width = 0;

        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word),
                 text);
        int status = cli_integer(command, "--hidden", word, 1, MOST_WIDTH, &width);
        if (status != CLI_OK)
            return status;
        widths[i] = (size_t)width;
        text += length + 1;
    }
    return CLI_OK;
}

static int parse_transport(struct train_options *options, const char *text)
{
    static const char *const names[] = {"local", "mpi", "virtual", NULL};
    int choice = cli_choice(command, "--transport", text, names);

    if (choice < 0)
        return CLI_WRONG;
#ifndef WEFT_HAVE_MPI
    if (choice == 1) {
        return cli_usage(command,
                         "--transport: mpi was not compiled in; expected local or virtual");
    }
#endif
    options->mpi = choice == 1;
    options->is_virtual = choice == 2;
    return CLI_OK;
}

static int parse_imbalance(struct train_options *options, const char *text)
{
    if (train_delays_parse(&options->imbalance, text) != WEFT_OK) {
        return cli_usage(command, "--imbalance: %s; expected " TRAIN_DELAYS_SYNTAX,
                         weft_error_text());
    }
    options->imbalance_text = text;
    return CLI_OK;
}

static int parse_density(struct train_options *options, const char *text)
{
    int status = cli_real(command, "--density", text, 0.0, 1.0, &options->sparse.density);

    if (status == CLI_OK && !(options->sparse.density > 0.0))
        return cli_usage(command, "--density: '%s'; expected a number above 0, up to 1", text);
    return status;
}

/* Options whose value is one of a few words, numbered as in the library. */
static int parse_word(struct train_options *options, int id, const char *text)
{
    static const char *const modes[] = {"wait-avoiding", "waiting", "none", NULL};
    static const char *const activations[] = {"anyone", "drawn", NULL};
    static const char *const contributions[] = {"replace", "accumulate", NULL};
    static const char *const residuals[] = {"conserving", "paper", NULL};
    static const char *const merges[] = {"tree", "butterfly", NULL};
    int choice;

    if (id == OPT_MODE) {
        choice = cli_choice(command, "--mode", text, modes);
        options->mode = (weft_average_mode_t)choice;
    } else if (id == OPT_ACTIVATION) {
        choice = cli_choice(command, "--activation", text, activations);
        options->activation = (weft_average_activation_t)choice;
    } else if (id == OPT_RESIDUAL) {
        choice = cli_choice(command, "--residual", text, residuals);
        options->sparse.residual = (weft_sparse_residual_t)choice;
    } else if (id == OPT_GTOPK_ALGO) {
        choice = cli_choice(command, "--gtopk-algo", text, merges);
        options->sparse.gtopk = (weft_sparse_method_t)choice;
    } else {
        choice = cli_choice(command, "--contribution", text, contributions);
        options->contribution = (weft_average_contribution_t)choice;
    }
    return choice < 0 ? CLI_WRONG : CLI_OK;
}

/* Options whose value is an integer. */
static int parse_integer(struct train_options *options, int id, const char *text)
{
    long long value = 0;
    int status;

    switch (id) {
    case OPT_STEPS:
        status = cli_integer(command, "--steps", text, 1, 1000000000, &value);
        options->steps = (uint64_t)value;
        return status;
    case OPT_BATCH:
        status = cli_integer(command, "--batch", text, 1, MOST_BATCH, &value);
        options->batch = (size_t)value;
        return status;
    case OPT_GROUP_SIZE:
        status = cli_integer(command, "--group-size", text, 0, INT_MAX, &value);
        options->group_size = (int)value;
        return status;
    case OPT_SYNC_PERIOD:
        status = cli_integer(command, "--sync-period", text, 0, LLONG_MAX, &value);
        options->sync_period = (uint64_t)value;
        return status;
    case OPT_NEIGHBOURS:
        status = cli_integer(command, "--neighbours", text, 1, INT_MAX, &value);
        options->neighbours = (int)value;
        return status;
    case OPT_K:
        status = cli_integer(command, "--k", text, 1, LLONG_MAX, &value);
        options->sparse.k = (size_t)value;
        return status;
    case OPT_WARMUP_STEPS:
        status = cli_integer(command, "--warmup-steps", text, 0, 1000000000, &value);
        options->sparse.warmup_steps = (uint64_t)value;
        return status;
    case OPT_SEEDS:
        status = cli_integer(command, "--seeds", text, 1, 1000, &value);
        options->seeds = (size_t)value;
        return status;
    default:
        status = cli_integer(command, "--seed", text, 0, LLONG_MAX, &value);
        options->seed = (uint64_t)value;
        return status;
    }
}

int train_options_value(struct train_options *options, int id, const char *text)
{
    double milliseconds = 0.0;
    int status;

    switch (id) {
    case OPT_ALGORITHM:
        return parse_algorithms(options, text);
    case OPT_TRANSPORT:
        return parse_transport(options, text);
    case OPT_NET:
        return weft_net_parse(text, &options->net) == WEFT_OK
                   ? CLI_OK
                   : cli_usage(command, "--net: %s", weft_error_text());
    case OPT_HIDDEN:
        return parse_hidden(options, text);
    case OPT_LR:
        return cli_real(command, "--lr", text, 0.0, 1e6, &options->rate);
    case OPT_MOMENTUM:
        return cli_real(command, "--momentum", text, 0.0, 0.999999, &options->momentum);
    case OPT_IMBALANCE:
        return parse_imbalance(options, text);
    case OPT_COMPUTE:
        status = cli_real(command, "--compute", text, 0.0, 3.6e6, &milliseconds);
        options->compute_seconds = milliseconds * 1e-3;
        return status;
    case OPT_PATIENCE:
        status = cli_real(command, "--patience", text, 0.0, 3.6e6, &milliseconds);
        options->patience_ns = (uint64_t)(milliseconds * 1e6);
        return status;
    case OPT_DENSITY:
        return parse_density(options, text);
    case OPT_PER_LAYER:
        options->sparse.per_layer = 1;
        return CLI_OK;
    case OPT_MOMENTUM_CORRECTION:
        return cli_real(command, "--momentum-correction", text, 0.0, 0.999999,
                        &options->sparse.momentum);
    case OPT_MODE:
    case OPT_ACTIVATION:
    case OPT_CONTRIBUTION:
    case OPT_RESIDUAL:
    case OPT_GTOPK_ALGO:
        return parse_word(options, id, text);
    case OPT_PLOT:
        options->plot = text;
        return CLI_OK;
    case OPT_DATA:
        options->data = text;
        return CLI_OK;
    default:
        return parse_integer(options, id, text);
    }
}
