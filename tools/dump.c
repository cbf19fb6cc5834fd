/* SPDX-License-Identifier: BSD-3-Clause */
/* weft dump: writes schedules as text or JSON, which read back, or as DOT for Graphviz. */
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum { OPTION_RANK = 1, OPTION_FORMAT, OPTION_OUTPUT, OPTION_TRANSPORT };

struct dump {
    int rank;
    int format;
    const char *output;
};

static const char *const formats[] = {"text", "json", "dot", NULL};

/* Takes the options of dump; CLI_DONE, or CLI_STOP with cli->status. */
static int parse(struct cli *cli, struct dump *dump, struct weft_cost_model *cost)
{
    static const char *const transports[] = {"local", "mpi", NULL};
    long long number;
    int given = 0;
    int id;
    int choice;

    while ((id = cli_next(cli)) > 0) {
        switch (id) {
        case OPTION_RANK:
            if (cli_integer("dump", "-r", cli->value, 0, INT_MAX, &number)) {
                return CLI_WRONG;
            }
            dump->rank = (int)number;
            break;
        case OPTION_FORMAT:
            dump->format = cli_choice("dump", "--format", cli->value, formats);
            if (dump->format < 0) {
                return CLI_WRONG;
            }
            given = 1;
            break;
        case OPTION_TRANSPORT:
            choice = cli_choice("dump", "--transport", cli->value, transports);
            if (choice < 0) {
                return CLI_WRONG;
            }
            weft_cost_model_init(cost, transports[choice]);
            cli->params.cost = cost;
            break;
        default:
            dump->output = cli->value;
        }
    }
    if (id == CLI_DONE && cli->json) {
        if (given && dump->format != WEFT_FORMAT_JSON) {
            return cli_usage("dump", "--format: '%s' with --json; expected json",
                             formats[dump->format]);
        }
        dump->format = WEFT_FORMAT_JSON;
    }
    return id == CLI_STOP ? CLI_STOP : 0;
}

/* With --json a document is one line: no string of JSON has a line end in it. */
static void join_lines(char *text)
{
    for (; *text; text++) {
        if (*text == '\n' && text[1]) {
            *text = ' ';
        }
    }
}

static int write_out(const struct dump *dump, const char *text, size_t length)
{
    if (!dump->output || strcmp(dump->output, "-") == 0) {
        fwrite(text, 1, length, stdout);
        return cli_finish("dump");
    }
    FILE *file = fopen(dump->output, "wb");
    if (!file) {
        return cli_usage("dump", "-o %s: %s; expected a file that can be written", dump->output,
                         strerror(errno));
    }
    size_t written = fwrite(text, 1, length, file);
    int failed = fflush(file) != 0 || written != length;
    int reason = errno;
    if (fclose(file) != 0 || failed) {
        return cli_usage("dump", "-o %s: %s; expected a file that can be written", dump->output,
                         strerror(failed ? reason : errno));
    }
    return 0;
}

int weft_cmd_dump(int argc, char **argv)
{
    static const struct cli_option options[] = {
        {"rank", 'r', OPTION_RANK, "R", "the schedule of one rank (default: of all)"},
        {"format", 'f', OPTION_FORMAT, "FORMAT", "text (default), json or dot"},
        {"output", 'o', OPTION_OUTPUT, "FILE", "where to write it (default: standard output)"},
        {"transport", 0, OPTION_TRANSPORT, "NAME",
         "local (default) or mpi: whose costs choose the algorithm"},
        {0},
    };
    static const struct cli_spec spec = {
        .name = "dump",
        .operands = "TEMPLATE",
        .operands_min = 1,
        .operands_max = 1,
        .about =
            "Writes the schedule of a template, or of a schedule file, for one rank or for all "
            "(default: 4\nranks). text and json read back into the same schedule; dot is for "
            "Graphviz.",
        .options = options,
        .common = CLI_TEMPLATE,
    };
    struct dump dump = {.rank = -1, .format = WEFT_FORMAT_TEXT};
    struct cli_schedules schedules;
    struct weft_cost_model cost;
    struct cli cli;
    size_t length = 0;
    char *text = NULL;

    cli_begin(&cli, &spec, argc, argv);
    int status = parse(&cli, &dump, &cost);
    if (status) {
        return status == CLI_STOP ? cli.status : status;
    }
    status = cli_schedules_load(&schedules, &cli, cli.operands[0], 4, dump.rank);
    if (status) {
        return status;
    }
    status = weft_schedule_write((const struct weft_schedule *const *)schedules.at,
                                 dump.rank >= 0 ? 1 : schedules.count, (weft_format_t)dump.format,
                                 &text, &length);
    if (status == WEFT_OK && cli.json && dump.format == WEFT_FORMAT_JSON) {
        join_lines(text);
    }
    status = status == WEFT_OK ? write_out(&dump, text, length)
                               : cli_fail(spec.name, "%s: %s", cli.operands[0], weft_error_text());
    weft_text_free(text);
    cli_schedules_free(&schedules);
    return status;
}
