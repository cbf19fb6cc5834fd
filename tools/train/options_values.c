/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading of the values of the options of `weft train`. */
#include "tools/train/options_values.h"

#include "tools/cli/cli.h"
#include "tools/train/algorithm.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WIDTH = 1 << 24 };

void train_list_algorithms(char *text, size_t size, int on_devices)
{
    text[0] = '\0';
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        size_t used = strlen(text);
        if (on_devices && !(*at)->streams)
            continue;
        snprintf(text + used, size - used, "%s%s", used ? ", " : "", (*at)->name);
    }
}

/* Puts the algorithms that a word of the list means at the end of the options'. */
static int add_algorithms(struct train_options *options, const char *command, const char *word,
                          size_t length)
{
    int all = length == strlen("all") && strncmp(word, "all", length) == 0;
    size_t before = options->algorithm_count;

    options->all |= all;
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++) {
        if (!all && *at != train_algorithm_find(word, length))
            continue;
        int available = !(*at)->available || (*at)->available();
        if (!available && !all)
            return cli_usage(command, "--algorithm: %s: %s", (*at)->name, weft_error_text());
        if (available)
            options->algorithms[options->algorithm_count++] = *at;
    }
    if (options->algorithm_count == before) {
        char known[512];
        train_list_algorithms(known, sizeof known, 0);
        return cli_usage(command, "--algorithm: '%.*s' is unknown; expected all, or some of %s",
                         (int)length, word, known);
    }
    return CLI_OK;
}

int train_take_algorithms(void *target, const char *command, const char *text)
{
    struct train_options *options = target;
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
    options->all = 0;
    for (const char *word = text;; word++) {
        size_t length = strcspn(word, ",");
        int status = add_algorithms(options, command, word, length);
        if (status != CLI_OK)
            return status;
        word += length;
        if (!*word)
            return CLI_OK;
    }
}

/* Methods, separated by commas. */
int train_take_merge(void *target, const char *command, const char *text)
{
    struct train_options *options = target;
    size_t count = 1;

    for (const char *c = text; *c; c++)
        count += *c == ',';
    struct weft_merge_config *merges = weft_memory_alloc(count, sizeof *merges);
    if (!merges)
        return cli_fail(command, "out of memory");
    weft_memory_free(options->merges);
    options->merges = merges;
    options->merge_count = count;
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(text, ",");
        char word[WEFT_MERGE_METHOD_TEXT];

        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word),
                 text);
        weft_merge_config_init(&merges[i]);
        if (weft_merge_method_parse(word, &merges[i]) != WEFT_OK)
            return cli_usage(command, "--merge: %s", weft_error_text());
        if (merges[i].method == WEFT_MERGE_CYCLES) {
            return cli_usage(command,
                             "--merge: %s: cycles are only simulated; expected exact, greedy, "
                             "wfbp, single or bucket",
                             word);
        }
        text += length + 1;
    }
    return CLI_OK;
}

int train_take_model(void *target, const char *command, const char *text)
{
    const struct net_architecture *const *architectures = net_architectures();
    struct train_options *options = target;
    char known[128] = "";

    for (int i = 0; architectures[i]; i++) {
        size_t used = strlen(known);
        if (strcmp(architectures[i]->name, text) == 0) {
            options->model = i;
            return CLI_OK;
        }
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                 architectures[i]->name);
    }
    return cli_usage(command, "--model: '%s' is unknown; expected one of %s", text, known);
}

/* Widths of the hidden layers, separated by commas. */
int train_take_hidden(void *target, const char *command, const char *text)
{
    struct train_options *options = target;
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

int train_take_net(void *target, const char *command, const char *text)
{
    struct train_options *options = target;

    return weft_net_parse(text, &options->net) == WEFT_OK
               ? CLI_OK
               : cli_usage(command, "--net: %s", weft_error_text());
}

int train_take_imbalance(void *target, const char *command, const char *text)
{
    struct train_options *options = target;
    if (train_delays_parse(&options->imbalance, text) != WEFT_OK) {
        return cli_usage(command, "--imbalance: %s; expected " TRAIN_DELAYS_SYNTAX,
                         weft_error_text());
    }
    options->imbalance_text = text;
    return CLI_OK;
}

int train_take_shards(void *target, const char *command, const char *text)
{
    struct train_options *options = target;

    if (train_shards_parse(&options->division, text) != WEFT_OK)
        return cli_usage(command, "--shards: %s; expected " TRAIN_SHARDS_SYNTAX, weft_error_text());
    options->division_text = text;
    return CLI_OK;
}

int train_take_density(void *target, const char *command, const char *text)
{
    struct train_options *options = target;
    int status = cli_real(command, "--density", text, 0.0, 1.0, &options->sparse.density);

    if (status == CLI_OK && !(options->sparse.density > 0.0))
        return cli_usage(command, "--density: '%s'; expected a number above 0, up to 1", text);
    return status;
}

int train_take_bits(void *target, const char *command, const char *text)
{
    static const struct {
        const char *word;
        int bits;
    } known[] = {{"2", 2}, {"4", 4}, {"8", 8}, {"sign", WEFT_QUANTISE_SIGN}};
    struct train_options *options = target;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, known[i].word) == 0) {
            options->compress.bits = known[i].bits;
            return CLI_OK;
        }
    }
    return cli_usage(command, "--bits: '%s'; expected 2, 4, 8 or sign", text);
}

int train_take_sample_bits(void *target, const char *command, const char *text)
{
    struct train_options *options = target;

    if (strcmp(text, "2") != 0 && strcmp(text, "4") != 0 && strcmp(text, "8") != 0)
        return cli_usage(command, "--sample-bits: '%s'; expected 2, 4 or 8", text);
    options->compress.sample_bits = text[0] - '0';
    return CLI_OK;
}

int train_take_compressed_steps(void *target, const char *command, const char *text)
{
    struct train_options *options = target;
    char *end;
    long long steps = strtoll(text, &end, 10);

    options->compress.compressed_steps = (uint64_t)steps;
    if (strcmp(text, "never") == 0)
        options->compress.compressed_steps = WEFT_NEVER;
    else if (end == text || *end || steps < 1 || steps > 1000000000)
        return cli_usage(command, "--compressed-steps: '%s'; expected never, or 1..1000000000",
                         text);
    return CLI_OK;
}

int train_take_osp_share(void *target, const char *command, const char *text)
{
    struct train_options *options = target;
    double share = 0.0;

    options->servers.osp_share = 0.0;
    if (strcmp(text, "auto") == 0)
        return CLI_OK;
    int status = cli_real(command, "--osp-share", text, 0.0, 1.0, &share);
    if (status == CLI_OK)
        options->servers.osp_share = share > 0.0 ? share : WEFT_OSP_NOTHING;
    return status;
}

int train_take_patience(void *target, const char *command, const char *text)
{
    static const double most_ms = 3.6e6;
    struct train_options *options = target;
    char *end;
    double ms = strtod(text, &end);

    options->patience_typed = 1;
    options->patience_ns = 0;
    if (strcmp(text, "adaptive") == 0)
        return CLI_OK;
    if (end == text || *end || !(ms >= 0.0 && ms <= most_ms))
        return cli_usage(command, "--patience: '%s'; expected adaptive, or a number of 0..%g", text,
                         most_ms);
    uint64_t ns = (uint64_t)(ms * 1e6 + 0.5);
    options->patience_ns = ns ? ns : ms > 0.0 ? 1 : WEFT_NS_NONE;
    return CLI_OK;
}
