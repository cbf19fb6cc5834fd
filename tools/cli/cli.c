/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options, numbers and lines of output, the same in every subcommand. getopt_long() does the
 * parsing; the tables that it needs are made from the tables that make the help.
 */
#include "tools/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    ID_HELP = 1000,
    ID_JSON,
    ID_RANKS,
    ID_COUNT,
    ID_DTYPE,
    ID_OP,
    ID_ALGO,
    ID_ROOT,
    ID_GROUP_SIZE,
    ID_VERSION,
    ID_K,
    ID_SEGMENT,
    ID_IN_PLACE
};

static const struct cli_option general_options[] = {
    {"json", 0, ID_JSON, NULL, "one JSON object a line instead of a table"},
    {"help", 'h', ID_HELP, NULL, "this text"},
    {0},
};

static const struct cli_option rank_options[] = {
    {"ranks", 'n', ID_RANKS, "P", "number of ranks"},
    {0},
};

static const struct cli_option template_options[] = {
    {"count", 0, ID_COUNT, "N", "elements of one block (default 1024)"},
    {"dtype", 0, ID_DTYPE, "TYPE", "datatype of the elements (default f32)"},
    {"op", 0, ID_OP, "OP", "operation (default sum)"},
    {"algo", 0, ID_ALGO, "NAME", "algorithm (default: chosen by cost)"},
    {"root", 0, ID_ROOT, "RANK", "root (default 0)"},
    {"segment", 0, ID_SEGMENT, "BYTES", "size of a segment, 0: unsegmented (default: by cost)"},
    {"in-place", 0, ID_IN_PLACE, NULL, "contributions are in the receive buffer"},
    {"group-size", 0, ID_GROUP_SIZE, "S", "ranks of a group, 0: the default"},
    {"version", 0, ID_VERSION, "T", "version, for templates on groups"},
    {"k", 0, ID_K, "K", "pairs, for sparse templates"},
    {0},
};

enum { TABLES = 4 };

/* The option tables of a subcommand in the order of the help. */
static void tables_of(const struct cli_spec *spec, const struct cli_option *tables[TABLES])
{
    static const struct cli_option none[] = {{0}};

    tables[0] = spec->options ? spec->options : none;
    tables[1] = spec->common >= CLI_RANKS ? rank_options : none;
    tables[2] = spec->common >= CLI_TEMPLATE ? template_options : none;
    tables[3] = general_options;
}

int cli_is_follower(void)
{
    const char *rank = getenv("PMI_RANK");

    return rank && strcmp(rank, "0") != 0;
}

static void line_out(const char *command, const char *format, va_list list)
{
    char text[2048];

    if (cli_is_follower())
        return;
    fflush(stdout);
    vsnprintf(text, sizeof text, format, list);
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    fprintf(stderr, "weft%s%s: %s\n", command ? " " : "", command ? command : "", text);
}

int cli_usage(const char *command, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    line_out(command, format, list);
    va_end(list);
    return CLI_WRONG;
}

int cli_fail(const char *command, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    line_out(command, format, list);
    va_end(list);
    return CLI_NO;
}

/* ---- numbers and words ---- */

int cli_size(const char *command, const char *option, const char *text, size_t *value)
{
    char *end = NULL;

    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || (*end && !strchr("kKMG", *end)) || (*end && end[1])) {
        return cli_usage(command,
                         "%s: '%s' is not a size; expected a number from 0, with k, M or G after "
                         "it for powers of 1024",
                         option, text);
    }
    int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end ? 10 : 0;
    if (errno == ERANGE || number > (SIZE_MAX >> shift)) {
        return cli_usage(command, "%s: '%s' is too large; expected at most %zu", option, text,
                         SIZE_MAX);
    }
    *value = (size_t)number << shift;
    return 0;
}

int cli_integer(const char *command, const char *option, const char *text, long long least,
                long long most, long long *value)
{
    char *end;

    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)text[0]) || errno == ERANGE ||
        number < least || number > most) {
        return cli_usage(command, "%s: '%s'; expected an integer from %lld to %lld", option, text,
                         least, most);
    }
    *value = number;
    return 0;
}

int cli_real(const char *command, const char *option, const char *text, double least, double most,
             double *value)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || *end || isspace((unsigned char)text[0]) ||
        !(number >= least && number <= most)) {
        return cli_usage(command, "%s: '%s'; expected a number from %g to %g", option, text, least,
                         most);
    }
    *value = number;
    return 0;
}

/* Edits (insert, delete, replace) between two words; words over 63 characters count as far. */
static int distance(const char *a, const char *b)
{
    int row[64];
    size_t columns = strlen(b);

    if (columns > 63 || strlen(a) > 63)
        return INT_MAX;
    for (size_t j = 0; j <= columns; j++)
        row[j] = (int)j;
    for (size_t i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= columns; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = best < row[j] + 1 ? best : row[j] + 1;
            row[j] = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
        }
    }
    return row[columns];
}

const char *cli_nearest(const char *word, const char *const *words)
{
    const char *best = NULL;
    int least = (int)(strlen(word) < 64 ? strlen(word) : 64) / 3 + 2;

    for (; *words; words++) {
        int d = distance(word, *words);
        /* of two that are as near, letters were rather exchanged than left out */
        if (d < least || (d == least && best && strlen(best) != strlen(word) &&
                          strlen(*words) == strlen(word))) {
            least = d;
            best = *words;
        }
    }
    return best;
}

int cli_choice(const char *command, const char *option, const char *word, const char *const *words)
{
    char list[1024] = "";
    size_t used = 0;

    for (int i = 0; words[i]; i++) {
        if (strcmp(word, words[i]) == 0)
            return i;
        if (used < sizeof list) {
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
        }
    }
    const char *near = cli_nearest(word, words);
    cli_usage(command, "%s: '%s' is unknown%s%s%s; expected one of %s", option, word,
              near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", list);
    return -1;
}

/* ---- help ---- */

static void help_option(const struct cli_option *option)
{
    char left[64];

    snprintf(left, sizeof left, "%s%c%s--%s%s%s", option->letter ? "-" : " ",
             option->letter ? option->letter : ' ', option->letter ? ", " : "  ", option->name,
             option->value ? " " : "", option->value ? option->value : "");
    printf("  %-26s %s\n", left, option->help);
}

static void help(const struct cli_spec *spec)
{
    const struct cli_option *tables[TABLES];

    printf("usage: weft %s%s%s [options]\n\n%s\n\n", spec->name, spec->operands ? " " : "",
           spec->operands ? spec->operands : "", spec->about);
    tables_of(spec, tables);
    for (int t = 0; t < TABLES; t++) {
        for (const struct cli_option *option = tables[t]; option->name; option++)
            if (option->help)
                help_option(option);
    }
}

/* ---- parsing ---- */

static const struct cli_option *find(const struct cli_spec *spec, int id)
{
    const struct cli_option *tables[TABLES];

    tables_of(spec, tables);
    for (int t = 0; t < TABLES; t++) {
        for (const struct cli_option *option = tables[t]; option->name; option++)
            if (option->id == id || (option->letter && option->letter == id))
                return option;
    }
    return NULL;
}

void cli_begin(struct cli *cli, const struct cli_spec *spec, int argc, char **argv)
{
    const struct cli_option *tables[TABLES];
    size_t used = 0;
    size_t letters = 0;

    memset(cli, 0, sizeof *cli);
    cli->spec = spec;
    cli->argc = argc;
    cli->argv = argv;
    weft_template_params_init(&cli->params);
    optind = 0;
    opterr = 0;
    cli->letters[letters++] = ':';
    tables_of(spec, tables);
    for (int t = 0; t < TABLES; t++) {
        for (const struct cli_option *option = tables[t]; option->name; option++) {
            if (used + 1 == 64 || letters + 3 >= sizeof cli->letters)
                break;
            cli->names[used] = option->name;
            cli->table[used].name = option->name;
            cli->table[used].has_arg = option->value ? required_argument : no_argument;
            cli->table[used++].val = option->id;
            if (option->letter) {
                cli->letters[letters++] = option->letter;
                if (option->value)
                    cli->letters[letters++] = ':';
            }
        }
    }
}

static int stop(struct cli *cli, int status)
{
    cli->status = status;
    return CLI_STOP;
}

static int bad_option(struct cli *cli, int code)
{
    const char *command = cli->spec->name;
    const struct cli_option *option = optopt ? find(cli->spec, optopt) : NULL;
    const char *word = cli->argv[optind - 1];
    char name[128];

    if (code == ':' && option)
        return cli_usage(command, "option --%s needs a value: %s", option->name, option->value);
    if (option)
        return cli_usage(command, "option '%s': --%s takes no value", word, option->name);
    if (optopt)
        return cli_usage(command, "unknown option '-%c'; see weft %s --help", optopt, command);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *near = cli_nearest(name, cli->names);
    if (near) {
        return cli_usage(command, "unknown option '%s', did you mean '--%s'? See weft %s --help",
                         word, near, command);
    }
    return cli_usage(command, "unknown option '%s'; see weft %s --help", word, command);
}

static int parse_dtype(struct cli *cli, const char *text)
{
#define DTYPE_TEXT(name, text, bytes) text,
    static const char *const names[] = {WEFT_DTYPE_MAP(DTYPE_TEXT) NULL};
#undef DTYPE_TEXT
    int dtype = cli_choice(cli->spec->name, "--dtype", text, names);

    if (dtype < 0)
        return CLI_WRONG;
    cli->params.dtype = (weft_dtype_t)dtype;
    return 0;
}

static int parse_op(struct cli *cli, const char *text)
{
#define OP_TEXT(name, text) text,
    static const char *const names[] = {WEFT_OP_MAP(OP_TEXT) NULL};
#undef OP_TEXT
    int op = cli_choice(cli->spec->name, "--op", text, names);

    if (op < 0)
        return CLI_WRONG;
    cli->params.op = weft_op_builtin((weft_op_kind_t)op);
    return 0;
}

static int parse_integer(struct cli *cli, const char *option, const char *text, int least,
                         int *value)
{
    long long number = 0;
    int status = cli_integer(cli->spec->name, option, text, least, INT_MAX, &number);

    if (!status)
        *value = (int)number;
    return status;
}

/* Takes a common option: 0, or the exit status after a line. */
static int common_option(struct cli *cli, int id, const char *value)
{
    const char *command = cli->spec->name;
    long long number = 0;
    int status = 0;

    switch (id) {
    case ID_JSON:
        cli->json = 1;
        return 0;
    case ID_RANKS:
        return parse_integer(cli, "-n", value, 1, &cli->ranks);
    case ID_COUNT:
        return cli_size(command, "--count", value, &cli->params.count);
    case ID_DTYPE:
        return parse_dtype(cli, value);
    case ID_OP:
        return parse_op(cli, value);
    case ID_ALGO:
        cli->params.algo = value;
        return 0;
    case ID_ROOT:
        return parse_integer(cli, "--root", value, 0, &cli->params.root);
    case ID_GROUP_SIZE:
        return parse_integer(cli, "--group-size", value, 0, &cli->params.group_size);
    case ID_VERSION:
        status = cli_integer(command, "--version", value, 0, LLONG_MAX, &number);
        cli->params.version = status ? 0 : (uint64_t)number;
        return status;
    case ID_K:
        return cli_size(command, "--k", value, &cli->params.k);
    case ID_SEGMENT:
        return cli_size(command, "--segment", value, &cli->params.segment);
    default:
        cli->params.in_place = 1;
        return 0;
    }
}

/* After the last option: the operands. */
static int finish(struct cli *cli)
{
    const struct cli_spec *spec = cli->spec;

    cli->operands = cli->argv + optind;
    cli->operand_count = cli->argc - optind;
    if (cli->operand_count < spec->operands_min) {
        return stop(cli, cli_usage(spec->name, "missing %s; usage: weft %s %s [options]",
                                   spec->operands, spec->name, spec->operands));
    }
    int most = spec->operands_max;
    if (spec->common == CLI_TEMPLATE && cli->operand_count > 1 &&
        weft_template_find(cli->operands[0]))
        most = 1; /* what may be several is files */
    if (cli->operand_count > most) {
        return stop(cli, cli_usage(spec->name, "unexpected word '%s'; usage: weft %s%s%s [options]",
                                   cli->operands[most], spec->name, spec->operands ? " " : "",
                                   spec->operands ? spec->operands : ""));
    }
    return CLI_DONE;
}

int cli_next(struct cli *cli)
{
    for (;;) {
        int id = getopt_long(cli->argc, cli->argv, cli->letters, cli->table, NULL);
        if (id < 0)
            return finish(cli);
        if (id == '?' || id == ':')
            return stop(cli, bad_option(cli, id));
        const struct cli_option *option = find(cli->spec, id);
        id = option->id;
        if (id == ID_HELP) {
            help(cli->spec);
            return stop(cli, cli_finish(cli->spec->name));
        }
        if (id < ID_HELP) {
            cli->value = optarg;
            return id;
        }
        int status = common_option(cli, id, optarg);
        if (status)
            return stop(cli, status);
    }
}

/* ---- output ---- */

int cli_print_json(const char *command, json_t *object)
{
    int failed = !object || json_dumpf(object, stdout,
                                       JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));

    json_decref(object);
    if (failed || putchar('\n') == EOF || fflush(stdout))
        return cli_usage(command, "standard output: a line of JSON could not be written");
    return 0;
}

int cli_finish(const char *command)
{
    if (fflush(stdout) || ferror(stdout)) {
        return cli_usage(command, "standard output: %s",
                         errno ? strerror(errno) : "could not be written");
    }
    return 0;
}
