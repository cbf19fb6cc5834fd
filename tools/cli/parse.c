/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Command lines by tables of options. getopt_long() finds the words; what they mean is in the
 * tables, a subcommand's own and the common ones.
 */
#include "tools/cli/parse.h"

#include "tools/cli/cli.h"
#include "tools/cli/devices.h"
#include "tools/cli/files.h"
#include "tools/cli/transports.h"

#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- common options; their fields are in struct cli ---- */

#define COMMON(member) CLI_AT(struct cli, member)

/* What stands for the names of opaque datatypes in lists. */
#define ANY_BYTES "bytesN"

static const struct cli_option general_options[] = {
    {"json", .help = "one JSON object a line instead of a table", COMMON(json)},
    {"help", 'h', .help = "this text"},
    {0},
};

static const struct cli_option rank_options[] = {
    {"ranks", 'n', CLI_INTEGER, "P", "number of ranks", COMMON(ranks), .called = "-n", .least = 1,
     .most = INT_MAX},
    {0},
};

/* -D NAME=VALUE */
/* A size as options take it, with k, M or G: expressions of schedule files have none of these. */
static int is_scaled(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    return digits && text[digits] && strchr("kKMG", text[digits]) && !text[digits + 1];
}

static int take_definition(void *target, const char *command, const char *text)
{
    struct cli *cli = target;
    size_t length = strcspn(text, "=");
    size_t i = cli->definition_count;

    if (!length || !text[length] || length >= sizeof cli->defined[0])
        return cli_usage(command, "-D: '%s'; expected NAME=VALUE", text);
    if (i == CLI_DEFINITIONS)
        return cli_usage(command, "-D: '%s' is one too many; expected at most %d", text, (int)i);
    memcpy(cli->defined[i], text, length);
    text += length + 1;
    if (is_scaled(text)) {
        size_t number;
        int status = cli_size(command, "-D", text, &number);
        if (status)
            return status;
        snprintf(cli->scaled[i], sizeof cli->scaled[i], "%zu", number);
        text = cli->scaled[i];
    }
    cli->definitions[i] = (struct weft_parameter){.name = cli->defined[i], .value = text};
    cli->definition_count++;
    return 0;
}

static int take_bits(void *target, const char *command, const char *text)
{
    static const char *const words[] = {"sign", "2", "4", "8", NULL};
    static const int bits[] = {WEFT_QUANTISE_SIGN, 2, 4, 8};
    int choice = cli_choice(command, "--bits", text, words);

    if (choice < 0)
        return CLI_WRONG;
    ((struct cli *)target)->quantiser.bits = bits[choice];
    return 0;
}

/* As weft_quantise_norm_t has them. */
static const char *const norms[] = {"max", "l2", NULL};

const struct cli_option cli_template_options[] = {
    {"count", 0, CLI_SIZE, "N", "elements of one block (default 1024)", COMMON(params.count)},
    {"counts", 0, CLI_TAKE, "N,N,...", "elements of each rank's block, repeated (default: --count)",
     .take = cli_take_counts},
    {"dtype", 0, CLI_DTYPE, "TYPE", "datatype of the elements, bytesN: opaque (default f32)",
     COMMON(params.dtype)},
    {"op", 0, CLI_OP, "OP", "operation (default sum)", COMMON(params.op)},
    {"algo", 0, CLI_TEXT, "NAME", "algorithm (default: chosen by cost)", COMMON(params.algo)},
    {"root", 0, CLI_INTEGER, "RANK", "root (default 0)", COMMON(params.root), .most = INT_MAX},
    {"segment", 0, CLI_SIZE, "BYTES", "size of a segment, 0: unsegmented (default: by cost)",
     COMMON(params.segment)},
    {"in-place", .help = "contributions are in the receive buffer", COMMON(params.in_place)},
    {"group-size", 0, CLI_INTEGER, "S", "ranks of a group, 0: the default",
     COMMON(params.group_size), .most = INT_MAX},
    {"version", 0, CLI_INTEGER, "T", "version, for templates on groups", COMMON(params.version),
     .most = LLONG_MAX},
    {"k", 0, CLI_SIZE, "K", "pairs, for sparse templates", COMMON(params.k)},
    {"slice", 0, CLI_SIZE, "K", "elements of a slice, or of a row of a matrix (default 64)",
     COMMON(params.slice)},
    {"components", 0, CLI_SIZE, "D",
     "of a slice (default: an eighth of it), or the rank of factors (default 2)",
     COMMON(params.components)},
    {"bits", 0, CLI_TAKE, "BITS", "of an element that is quantised: 2, 4, 8, or sign (default 4)",
     .take = take_bits},
    {"bucket", 0, CLI_SIZE, "N", "elements that are quantised by one norm (default 512)",
     COMMON(quantiser.bucket)},
    {"norm", 0, CLI_CHOICE, "NORM", "what they are measured by: max, l2 (default max)",
     COMMON(quantiser.norm), .words = norms},
    {"servers", 0, CLI_INTEGER, "N", "of server-step: ranks that are servers (default 1)",
     COMMON(params.servers), .most = INT_MAX},
    {"co-located", .help = "they are workers, too", COMMON(params.colocated)},
    {"window", 0, CLI_SIZE, "N", "segments that a worker has on the way to a server (default 1)",
     COMMON(params.window)},
    {"aggregate", 0, CLI_SIZE, "N",
     "of algorithm pat: blocks of a message at most (default by cost)", COMMON(params.aggregate)},
    {"radix", 0, CLI_INTEGER, "K", "of algorithms with a radix: 2 to 16 (default 4)",
     COMMON(params.radix), .most = 16},
    {"layers", 0, CLI_TEXT, "TABLE", "of merged-allreduce: a file, or a network (weft merge)",
     COMMON(layers)},
    {"merge", 0, CLI_TEXT, "METHOD", "which of them are merged (default exact)", COMMON(merge)},
    {"define", 'D', CLI_TAKE, "NAME=VALUE", "a parameter that a schedule file declares; repeatable",
     .take = take_definition},
    {0},
};

/* Of templates and files alike. */
static const struct cli_option schedule_options[] = {
    {"device", 0, CLI_TAKE, "cuda[:N]",
     "all slots are memory of devices: of the ranks' in turn, or of the N-th",
     .take = cli_take_device},
    {0},
};

void cli_tables(const struct cli_spec *spec, const struct cli_option *tables[CLI_TABLES])
{
    static const struct cli_option none[] = {{0}};

    tables[0] = spec->options ? spec->options : none;
    tables[1] = spec->common >= CLI_RANKS ? rank_options : none;
    tables[2] = spec->common >= CLI_TEMPLATE ? cli_template_options : none;
    tables[3] = spec->common >= CLI_TEMPLATE ? schedule_options : none;
    tables[4] = spec->common >= CLI_NO_RANKS ? general_options : none;
}

const char *const *cli_words(const struct cli_option *option)
{
#define DTYPE_TEXT(name, text, bytes) text,
    static const char *const dtypes[] = {WEFT_DTYPE_MAP(DTYPE_TEXT) ANY_BYTES, NULL};
#undef DTYPE_TEXT
#define OP_TEXT(name, text) text,
    static const char *const ops[] = {WEFT_OP_MAP(OP_TEXT) NULL};
#undef OP_TEXT

    switch (option->kind) {
    case CLI_CHOICE:
    case CLI_WORD:
        return option->words;
    case CLI_TRANSPORT:
        return cli_transports(option->uses);
    case CLI_DTYPE:
        return dtypes;
    case CLI_OP:
        return ops;
    default:
        return NULL;
    }
}

/* ---- values ---- */

/* Stores an integer into a field of 4 or 8 bytes. */
static void store(const struct cli_option *option, void *field, long long number)
{
    if (option->width == sizeof(int32_t))
        memcpy(field, &(int32_t){(int32_t)number}, sizeof(int32_t));
    else
        memcpy(field, &(int64_t){(int64_t)number}, sizeof(int64_t));
}

/* A datatype of the table, or bytes24, of which there are too many for a list of words. */
static int take_dtype(const struct cli_option *option, void *field, const char *command,
                      const char *called, const char *text)
{
    weft_dtype_t dtype;

    if (weft_dtype_parse(text, &dtype) == WEFT_OK) {
        store(option, field, dtype);
        return 0;
    }
    if (strncmp(text, ANY_BYTES, sizeof ANY_BYTES - 2) == 0)
        return cli_usage(command, "%s: '%s'; expected bytes1 to bytes%zu for opaque elements",
                         called, text, WEFT_DTYPE_OPAQUE_MAX);
    cli_choice(command, called, text, cli_words(option));
    return CLI_WRONG;
}

static int take_word(const struct cli_option *option, void *field, const char *command,
                     const char *called, const char *text)
{
    const char *const *words = cli_words(option);
    int choice = cli_choice(command, called, text, words);

    if (choice < 0)
        return CLI_WRONG;
    if (option->kind == CLI_TRANSPORT && option->uses & CLI_RUNS &&
        !cli_has_transport(words[choice]))
        return cli_usage(command,
                         "%s: %s is not installed; expected another of those that weft "
                         "info lists",
                         called, words[choice]);
    if (option->kind == CLI_WORD || option->kind == CLI_TRANSPORT)
        memcpy(field, &words[choice], sizeof words[choice]);
    else if (option->kind == CLI_OP)
        *(const struct weft_op **)field = weft_op_builtin((weft_op_kind_t)choice);
    else
        store(option, field, choice);
    return 0;
}

static int take_real(const struct cli_option *option, void *field, const char *command,
                     const char *called, const char *text)
{
    double number = 0;

    if (cli_real(command, called, text, option->low, option->high, &number))
        return CLI_WRONG;
    number *= option->scale != 0 ? option->scale : 1;
    if (option->kind == CLI_DURATION)
        *(uint64_t *)field = (uint64_t)number;
    else
        *(double *)field = number;
    return 0;
}

/* Sets the field of an option by the text of its value. 0, or an exit status after a line. */
static int take(const struct cli_option *option, void *target, const char *command,
                const char *text)
{
    void *field = (char *)target + option->field;
    char name[64];
    long long number = 0;
    int status;

    snprintf(name, sizeof name, "--%s", option->name);
    const char *called = option->called ? option->called : name;
    switch (option->kind) {
    case CLI_FLAG:
        store(option, field, 1);
        return 0;
    case CLI_INTEGER:
        status = cli_integer(command, called, text, option->least, option->most, &number);
        if (!status)
            store(option, field, number);
        return status;
    case CLI_SIZE:
        return cli_size(command, called, text, field);
    case CLI_REAL:
    case CLI_DURATION:
        return take_real(option, field, command, called, text);
    case CLI_FILE:
        status = cli_check_file(command, called, text);
        if (status)
            return status;
        *(const char **)field = text;
        return 0;
    case CLI_TEXT:
        *(const char **)field = text;
        return 0;
    case CLI_DTYPE:
        return take_dtype(option, field, command, called, text);
    case CLI_TAKE:
        return option->take(target, command, text);
    default:
        return take_word(option, field, command, called, text);
    }
}

int cli_defaults(const struct cli_option *table, const char *command, void *target)
{
    int status = 0;

    for (; table->name && !status; table++)
        if (table->fallback)
            status = take(table, target, command, table->fallback);
    return status;
}

/* ---- parsing ---- */

/* What getopt_long() returns for entry number i: beyond any letter. */
enum { FIRST_ID = 1000 };

static int index_of(const struct cli *cli, int id)
{
    for (size_t i = 0; i < cli->option_count; i++)
        if (id == FIRST_ID + (int)i || (cli->options[i]->letter && cli->options[i]->letter == id))
            return (int)i;
    return -1;
}

const char *cli_typed(const struct cli *cli, const char *name)
{
    for (size_t i = 0; i < cli->option_count; i++)
        if (strcmp(cli->options[i]->name, name) == 0)
            return cli->typed[i];
    return NULL;
}

static int bad_option(const struct cli *cli, int code)
{
    const char *command = cli->spec->name;
    const char *names[CLI_OPTIONS + 1] = {NULL};
    int index = optopt ? index_of(cli, optopt) : -1;
    const char *word = cli->words[optind - 1];
    char name[128];

    if (code == ':' && index >= 0) {
        return cli_usage(command, "option --%s needs a value: %s", cli->options[index]->name,
                         cli->options[index]->value);
    }
    if (index >= 0) {
        return cli_usage(command, "option '%s': --%s takes no value", word,
                         cli->options[index]->name);
    }
    if (optopt)
        return cli_usage(command, "unknown option '-%c'; see weft %s --help", optopt, command);
    for (size_t i = 0; i < cli->option_count; i++)
        names[i] = cli->options[i]->name;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *near = cli_nearest(name, names);
    if (near) {
        return cli_usage(command, "unknown option '%s', did you mean '--%s'? See weft %s --help",
                         word, near, command);
    }
    return cli_usage(command, "unknown option '%s'; see weft %s --help", word, command);
}

/* After the last option: the words that are none. */
static int take_operands(struct cli *cli)
{
    const struct cli_spec *spec = cli->spec;

    cli->operands = cli->words + optind;
    cli->operand_count = cli->argc - optind;
    if (cli->operand_count < spec->operands_min) {
        return cli_usage(spec->name, "missing %s; usage: weft %s%s %s%s", spec->operands,
                         spec->name, spec->operands_last ? " [options]" : "", spec->operands,
                         spec->operands_last ? "" : " [options]");
    }
    int most = spec->operands_max;
    if (spec->common == CLI_TEMPLATE && cli->operand_count > 1 &&
        weft_template_find(cli->operands[0]))
        most = 1; /* what may be several is files */
    if (cli->operand_count > most) {
        return cli_usage(spec->name, "unexpected word '%s'; usage: weft %s%s%s [options]",
                         cli->operands[most], spec->name, spec->operands ? " " : "",
                         spec->operands ? spec->operands : "");
    }
    return 0;
}

/* What an entry's fields belong to: the subcommand's own table comes first. */
static void *target_of(struct cli *cli, size_t own, size_t index, void *target)
{
    return index < own ? target : cli;
}

/* getopt's tables, made from ours. */
struct words {
    struct option longs[CLI_OPTIONS + 1];
    char letters[2 * CLI_OPTIONS + 3];
};

/* Returns how many entries are the subcommand's own. */
static size_t collect(struct cli *cli, struct words *words)
{
    const struct cli_option *tables[CLI_TABLES];
    size_t used = 0;
    size_t own = 0;

    if (cli->spec->operands_last)
        words->letters[used++] = '+';
    words->letters[used++] = ':';
    cli_tables(cli->spec, tables);
    for (int t = 0; t < CLI_TABLES; t++) {
        for (const struct cli_option *option = tables[t]; option->name; option++) {
            size_t i = cli->option_count;
            if (i == CLI_OPTIONS)
                break;
            cli->options[cli->option_count++] = option;
            words->longs[i] =
                (struct option){option->name, option->value ? required_argument : no_argument, NULL,
                                FIRST_ID + (int)i};
            if (option->letter && used + 2 < sizeof words->letters) {
                words->letters[used++] = option->letter;
                if (option->value)
                    words->letters[used++] = ':';
            }
            own += t == 0;
        }
    }
    return own;
}

static int parse(struct cli *cli, void *target, int *over)
{
    struct words words = {.letters = ""};
    const char *command = cli->spec->name;
    size_t own = collect(cli, &words);
    int status = 0;

    if (cli->spec->options)
        status = cli_defaults(cli->spec->options, command, target);
    optind = 0;
    opterr = 0;
    while (!status) {
        int id = getopt_long(cli->argc, cli->words, words.letters, words.longs, NULL);
        if (id < 0)
            return take_operands(cli);
        int index = index_of(cli, id);
        if (index < 0)
            return bad_option(cli, id); /* '?' or ':' */
        const struct cli_option *option = cli->options[index];
        if (strcmp(option->name, "help") == 0) {
            *over = 1;
            return cli_help(cli->spec, 0);
        }
        cli->typed[index] = optarg ? optarg : "";
        status =
            take(option, target_of(cli, own, (size_t)index, target), command, cli->typed[index]);
    }
    return status;
}

int cli_parse(struct cli *cli, void *target)
{
    int over = 0;

    weft_template_params_init(&cli->params);
    cli->params.count = 1024;
    weft_quantiser_init(&cli->quantiser);
    cli->params.quantiser = &cli->quantiser;
    cli->params.op = weft_op_builtin(WEFT_SUM);
    cli->params.counts_agreed = 1; /* all ranks have the same command line */
    cli->status = parse(cli, target, &over);
    if (cli_typed(cli, "segment") && !cli->params.segment)
        cli->params.segment = WEFT_SEGMENT_NONE;
    return !over && !cli->status;
}

int cli_run(const struct cli_spec *spec, int argc, char **argv)
{
    struct cli cli = {.spec = spec, .argc = argc, .argv = argv};

    cli.words = calloc((size_t)argc + 1, sizeof *cli.words); /* getopt reorders them */
    if (!cli.words)
        return cli_fail(spec->name, "out of memory");
    memcpy(cli.words, argv, (size_t)argc * sizeof *argv);
    int status = spec->run(&cli);
    free(cli.words);
    weft_memory_free(cli.counts);
    cli_merged_free(cli.merged);
    return status;
}
