/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --counts: one list from which every rank of a template takes what it must know. It is repeated
 * for as many ranks, or pairs of ranks, as there are.
 */
#include "tools/cli/cli.h"

#include <stdlib.h>
#include <string.h>

int cli_take_counts(void *target, const char *command, const char *text)
{
    struct cli *cli = target;
    size_t most = 1;

    for (const char *c = text; *c; c++)
        most += *c == ',';
    char *words = strdup(text), *rest = words, *word;
    weft_memory_free(cli->counts);
    cli->counts = weft_memory_alloc(most, sizeof *cli->counts);
    cli->count_count = 0;
    if (!words || !cli->counts) {
        free(words);
        return cli_fail(command, "out of memory");
    }
    int status = 0;
    while (!status && (word = strsep(&rest, ",")))
        status = cli_size(command, "--counts", word, &cli->counts[cli->count_count++]);
    free(words);
    return status;
}

static int reads(const char *name, const char *parameter)
{
    const struct weft_template *template = weft_template_find(name);

    return template && strstr(template->parameters, parameter);
}

int cli_check_counts(const struct cli *cli, const char *name, int size)
{
    size_t most = (size_t)size;
    int pairs = reads(name, "send-counts");

    if (!pairs && !reads(name, "counts"))
        return 0;
    most = pairs ? most * most : most;
    if (cli->count_count > most) {
        return cli_usage(cli->spec->name, "--counts: %zu numbers; expected at most %zu, one %s",
                         cli->count_count, most,
                         pairs ? "a pair of ranks" : "a rank, which are repeated");
    }
    return 0;
}

/* Elements from one rank to another: the list fills the table row by row. In place both directions
 * are the same. */
static size_t pair_at(const struct cli *cli, int size, int from, int to)
{
    int swap = cli->params.in_place && from > to;
    size_t row = (size_t)(swap ? to : from), column = (size_t)(swap ? from : to);

    return cli->counts[(row * (size_t)size + column) % cli->count_count];
}

int cli_template_build(const struct cli *cli, const struct weft_template_params *given,
                       const char *name, int rank, int size, struct weft_schedule **schedule)
{
    struct weft_template_params params = *given;

    if (!cli->count_count)
        return weft_template_build(name, rank, size, &params, schedule);
    size_t n = (size_t)size, *counts = weft_memory_alloc(3 * n, sizeof *counts);
    size_t *send = counts + n, *recv = send + n;

    if (!counts)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for the counts of %d ranks", size);
    for (int r = 0; r < size; r++) {
        counts[r] = cli->counts[(size_t)r % cli->count_count];
        send[r] = pair_at(cli, size, rank, r);
        recv[r] = pair_at(cli, size, r, rank);
    }
    params.counts = counts;
    params.send_counts = send;
    params.recv_counts = recv;
    int status = weft_template_build(name, rank, size, &params, schedule);
    weft_memory_free(counts);
    return status;
}
