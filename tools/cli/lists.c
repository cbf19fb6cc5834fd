/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of options that are lists, which several subcommands take. */
#include "tools/cli/cli.h"

#include <stdlib.h>
#include <string.h>

/* What --compute names: node kinds, then operations of nodes, which have costs of their own. */
static const char *const costly[] = {"reduce", "copy", "call",
#define NAME(kind, text) text,
                                     WEFT_COMPRESS_OP_MAP(NAME) WEFT_SPARSE_OP_MAP(NAME)
#undef NAME
                                         NULL};
enum { KINDS = 3 };

/* Whether a word is the beginning of what operations of weft are called: project, project-768. */
static int names_operation(const char *word)
{
    for (size_t i = KINDS; costly[i]; i++) {
        size_t length = strlen(costly[i]);
        if (strncmp(word, costly[i], length) == 0 && (!word[length] || word[length] == '-'))
            return 1;
    }
    return 0;
}

/* NAME=WRITTEN[:READ[:PRODUCT]] */
static int add_cost(const char *command, const char *name, char *value, struct cli_op_costs *costs)
{
    double rates[3] = {0};
    char *rest = value, *word;
    for (size_t i = 0; (word = strsep(&rest, ":")); i++) {
        if (i == 3)
            return cli_usage(command,
                             "--compute: '%s=...:%s'; expected at most three numbers: a "
                             "byte written, a byte read, a product",
                             name, word);
        if (cli_real(command, "--compute", word, 0, 1e9, &rates[i]))
            return CLI_WRONG;
    }
    if (costs->count == CLI_OP_COSTS)
        return cli_usage(command, "--compute: '%s' is one too many; expected at most %d operations",
                         name, CLI_OP_COSTS);
    snprintf(costs->names[costs->count], sizeof costs->names[0], "%s", name);
    costs->at[costs->count] = (struct weft_sim_op_cost){.op = costs->names[costs->count],
                                                        .written_us_per_byte = rates[0],
                                                        .read_us_per_byte = rates[1],
                                                        .product_us = rates[2]};
    costs->count++;
    return 0;
}

int cli_compute(const char *command, const char *text, double *reduce, double *copy, double *call,
                struct cli_op_costs *costs)
{
    static const char *const names[] = {"reduce", "copy", "call", NULL};
    double *const rates[] = {reduce, copy, call};
    double rate = 0;

    if (!strchr(text, '=')) {
        if (cli_real(command, "--compute", text, 0, 1e9, &rate))
            return CLI_WRONG;
        *reduce = *call = rate;
        return 0;
    }
    char *words = strdup(text), *rest = words, *word;
    int status = words ? 0 : cli_fail(command, "out of memory");
    while (!status && (word = strsep(&rest, ","))) {
        char *value = strchr(word, '=');
        if (!value) {
            status =
                cli_usage(command, "--compute: '%s'; expected one of reduce=, copy=, call=", word);
            break;
        }
        *value++ = '\0';
        if (costs && names_operation(word)) {
            status = add_cost(command, word, value, costs);
            continue;
        }
        int which = cli_choice(command, "--compute", word, costs ? costly : names);
        status =
            which < 0 ? CLI_WRONG : cli_real(command, "--compute", value, 0, 1e9, rates[which]);
    }
    free(words);
    return status;
}

int cli_activators(const char *command, const char *text, int **ranks, size_t *count)
{
    size_t most = 1;

    for (const char *c = text; *c; c++)
        most += *c == ',';
    char *words = strdup(text), *rest = words, *word;
    weft_memory_free(*ranks);
    *ranks = weft_memory_alloc(most, sizeof **ranks);
    *count = 0;
    if (!words || !*ranks) {
        free(words);
        return cli_fail(command, "out of memory");
    }
    int status = 0;
    while (!status && (word = strsep(&rest, ","))) {
        long long rank = 0;
        status = cli_integer(command, "--activate", word, 0, INT32_MAX, &rank);
        (*ranks)[(*count)++] = (int)rank;
    }
    free(words);
    return status;
}

/* "LABEL", or the number of a node. */
static int take_event(const char *command, char *event, struct weft_sim_firing *firing)
{
    long long node = 0;

    if (!*event)
        return cli_usage(command, "--fire: no event before the '='; expected LABEL=US");
    if (strspn(event, "0123456789") < strlen(event)) {
        firing->label = strdup(event);
        return firing->label ? 0 : cli_fail(command, "out of memory");
    }
    int status = cli_integer(command, "--fire", event, 0, INT32_MAX, &node);
    firing->event = (weft_node_t)node;
    return status;
}

int cli_firing(const char *command, const char *text, struct weft_sim_firing **firings,
               size_t *count)
{
    struct weft_sim_firing firing = {.rank = WEFT_SIM_EVERY_RANK};
    struct weft_sim_firing *larger = realloc(*firings, (*count + 1) * sizeof *larger);
    char *event = strdup(text), *us = event ? strrchr(event, '=') : NULL;

    if (larger)
        *firings = larger;
    int status = larger && event ? 0 : cli_fail(command, "out of memory");
    if (!status && !us)
        status = cli_usage(command, "--fire: '%s'; expected LABEL=US or LABEL=US@RANK", text);
    if (!status) {
        *us++ = '\0';
        char *at = strchr(us, '@');
        long long rank = WEFT_SIM_EVERY_RANK;
        if (at) {
            *at++ = '\0';
            status = cli_integer(command, "--fire", at, 0, INT32_MAX, &rank);
        }
        firing.rank = (int)rank;
    }
    if (!status)
        status = cli_real(command, "--fire", us, 0, 1e12, &firing.us);
    if (!status)
        status = take_event(command, event, &firing);
    if (!status)
        larger[(*count)++] = firing;
    free(event);
    return status;
}

void cli_firings_free(struct weft_sim_firing *firings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free((void *)firings[i].label);
    free(firings);
}
