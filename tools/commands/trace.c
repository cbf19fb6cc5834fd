/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft trace: merges traces of ranks, as WEFT_TRACE and `weft run --trace` write them, into one.
 *
 * Merged traces may be merged again: each process in them carries its rank, group and clock.
 */
#include "tools/cli/cli.h"
#include "tools/cli/files.h"

#include <errno.h>
#include <string.h>

/* What one rank's clock was moved by. */
static json_t *json_rank(const struct weft_trace_rank *rank)
{
    return json_pack("{s:i, s:I, s:I, s:I, s:o}", "rank", rank->rank, "spans",
                     (json_int_t)rank->spans, "dropped", (json_int_t)rank->dropped, "offset_ns",
                     (json_int_t)rank->offset_ns, "uncertainty_ns",
                     rank->uncertainty_ns == WEFT_NEVER
                         ? json_null()
                         : json_integer((json_int_t)rank->uncertainty_ns));
}

static int print_json(const struct weft_trace *trace, const char *path)
{
    struct weft_trace_rank rank = {.struct_size = sizeof rank};
    json_t *ranks = json_array();

    for (size_t i = 0; i < weft_trace_rank_count(trace); i++) {
        weft_trace_get_rank(trace, i, &rank);
        json_array_append_new(ranks, json_rank(&rank));
    }
    return cli_print_json("trace",
                          json_pack("{s:s, s:i, s:I, s:o}", "file", path, "ranks",
                                    (int)weft_trace_rank_count(trace), "spans",
                                    (json_int_t)weft_trace_span_count(trace), "clocks", ranks));
}

static int print_text(const struct weft_trace *trace, const char *path)
{
    struct weft_trace_rank rank = {.struct_size = sizeof rank};

    printf("%s: %zu spans of %zu rank%s\n", path, weft_trace_span_count(trace),
           weft_trace_rank_count(trace), weft_trace_rank_count(trace) == 1 ? "" : "s");
    for (size_t i = 0; i < weft_trace_rank_count(trace); i++) {
        weft_trace_get_rank(trace, i, &rank);
        if (rank.uncertainty_ns == WEFT_NEVER) {
            printf("  rank %d: clock moved by %+.3f us, a guess: no messages there and back\n",
                   rank.rank, (double)rank.offset_ns * 1e-3);
        } else if (rank.offset_ns || rank.uncertainty_ns) {
            printf("  rank %d: clock moved by %+.3f us, +- %.3f us\n", rank.rank,
                   (double)rank.offset_ns * 1e-3, (double)rank.uncertainty_ns * 1e-3);
        }
    }
    return cli_finish("trace");
}

/* To standard output: with --json in one line, which no string of JSON breaks. */
static int print_trace(struct weft_trace *trace, int one_line)
{
    char *text = NULL;
    size_t length = 0;

    if (!one_line) {
        return weft_trace_write(trace, NULL) == WEFT_OK
                   ? 0
                   : cli_usage("trace", "%s", weft_error_text());
    }
    if (weft_trace_write_text(trace, &text, &length) != WEFT_OK)
        return cli_fail("trace", "%s", weft_error_text());
    for (size_t i = 0; i + 1 < length; i++)
        if (text[i] == '\n')
            text[i] = ' ';
    fwrite(text, 1, length, stdout);
    weft_memory_free(text);
    return cli_finish("trace");
}

static void warn_dropped(const struct weft_trace *trace)
{
    struct weft_trace_rank rank = {.struct_size = sizeof rank};

    for (size_t i = 0; i < weft_trace_rank_count(trace); i++) {
        weft_trace_get_rank(trace, i, &rank);
        if (rank.dropped) {
            fprintf(stderr,
                    "weft trace: rank %d: its recorder was full, the %llu oldest records are not "
                    "there (see WEFT_TRACE_RECORDS)\n",
                    rank.rank, (unsigned long long)rank.dropped);
        }
    }
}

static int merge(const struct cli *cli, struct weft_trace *trace, const char *output, int align)
{
    int to_file = output && strcmp(output, "-") != 0;

    for (int i = 0; i < cli->operand_count; i++) {
        int status = cli_check_file("trace", NULL, cli->operands[i]);
        if (status)
            return status;
        status = weft_trace_read(trace, cli->operands[i]);
        if (status != WEFT_OK) {
            return (status == WEFT_ERR_MEMORY ? cli_fail : cli_usage)("trace", "%s",
                                                                      weft_error_text());
        }
    }
    if (weft_trace_rank_count(trace) == 0) {
        return cli_usage("trace", "%s: no trace of weft; expected files of WEFT_TRACE or --trace",
                         cli->operands[0]);
    }
    if (align && weft_trace_align(trace) != WEFT_OK)
        return cli_fail("trace", "%s", weft_error_text());
    warn_dropped(trace);
    if (!to_file)
        return print_trace(trace, cli->json);
    if (weft_trace_write(trace, output) != WEFT_OK)
        return cli_usage("trace", "-o %s; expected a file that can be written", weft_error_text());
    return cli->json ? print_json(trace, output) : print_text(trace, output);
}

struct options {
    const char *output;
    int no_align;
};

static int trace(struct cli *cli)
{
    struct options options = {0};
    struct weft_trace *made = NULL;

    if (!cli_parse(cli, &options))
        return cli->status;
    if (weft_trace_create(&made) != WEFT_OK)
        return cli_fail("trace", "%s", weft_error_text());
    int status = merge(cli, made, options.output, !options.no_align);
    weft_trace_destroy(made);
    return status;
}

static const struct cli_option table[] = {
    {"output", 'o', CLI_TEXT, "FILE", "where to write it (default: standard output)",
     CLI_AT(struct options, output)},
    {"no-align", .help = "leave the clocks of different machines as they are",
     CLI_AT(struct options, no_align)},
    {0},
};

const struct cli_spec weft_command_trace = {
    .name = "trace",
    .summary = "merges traces of ranks into one",
    .operands = "FILE...",
    .operands_min = 1,
    .operands_max = INT32_MAX,
    .about = "Merges traces of ranks (WEFT_TRACE=DIR, weft run --trace) into one Chrome trace, for "
             "ui.perfetto.dev. Clocks of different machines are brought together by the messages "
             "between them.",
    .options = table,
    .run = trace,
};
