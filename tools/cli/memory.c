/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the schedules of a template will take, from smaller ones of it: before they are built, since
 * this system promises memory that it does not have, and then kills.
 */
#include "tools/cli/cli.h"

#include <limits.h>

/* Ranks up to which schedules are built to see what they take; parts of a message likewise. */
enum { FEW_RANKS = 1 << 16, FEW_PARTS = 1 << 12 };

struct need {
    double nodes; /* of a rank */
    double bytes;
};

static void add(struct need *need, const struct weft_schedule *schedule, double factor)
{
    enum { RANK_BYTES = 1024, NODE_BYTES = 128, EDGE_BYTES = 8 };
    double nodes = (double)weft_schedule_node_count(schedule);
    double edges = (double)weft_schedule_edge_count(schedule);

    need->nodes = nodes * factor;
    need->bytes = RANK_BYTES + (nodes * NODE_BYTES + edges * EDGE_BYTES) * factor;
}

/* What a rank takes on @p size ranks: the lesser of the first and the last, since one of them may
 * be a root. 0 if the template cannot be built: its error is for later. */
static struct need measure(const struct cli *cli, const char *name, int size,
                           const struct weft_template_params *params, double factor)
{
    struct need least = {0};

    for (int i = 0; i < 2; i++) {
        struct weft_schedule *schedule = NULL;
        struct need need;
        if (cli_template_build(cli, params, name, i ? size - 1 : 0, size, &schedule) != WEFT_OK)
            return (struct need){0};
        add(&need, schedule, factor);
        weft_schedule_destroy(schedule);
        least = i == 0 || need.bytes < least.bytes ? need : least;
    }
    return least;
}

/* Some templates grow with the number of ranks, others with its logarithm. */
static struct need guess(const struct cli *cli, const char *name, int size,
                         const struct weft_template_params *params, double factor)
{
    if (size <= FEW_RANKS)
        return measure(cli, name, size, params, factor);
    struct need half = measure(cli, name, FEW_RANKS / 2, params, factor);
    struct need need = measure(cli, name, FEW_RANKS, params, factor);
    if (need.bytes > 1.5 * half.bytes) {
        need.bytes *= size / (double)FEW_RANKS;
        need.nodes *= size / (double)FEW_RANKS;
    }
    return need;
}

/* The simulator has one schedule at a time, and keeps a state of each node of every rank. */
static double simulated(struct need need, int size)
{
    enum { RANK_BYTES = 96, STATE_BYTES = 16 };

    return need.bytes + size * (RANK_BYTES + need.nodes * STATE_BYTES);
}

int cli_check_memory(const struct cli *cli, const char *name, int size, size_t count)
{
    struct weft_template_params params = cli->params;
    struct weft_topology topology = {.struct_size = sizeof topology};
    size_t element = weft_dtype_size(params.dtype);
    size_t segment = params.segment;
    double factor = 1;

    if (cli_typed(cli, "segment") && segment > 0) {
        const size_t whole = segment / element;
        double elements = whole ? (double)whole : 1;
        double parts = (double)params.count / elements;
        if (parts > FEW_PARTS) { /* nodes are as many as parts: larger ones tell how many */
            params.segment = (size_t)((double)params.count / FEW_PARTS) * element;
            factor = parts / FEW_PARTS;
        }
    }
    if (count > 0 && count < 1024 && size <= FEW_RANKS && factor == 1)
        return 0; /* none of the templates takes so much */
    struct need need = guess(cli, name, size, &params, factor);
    double bytes = count ? need.bytes * (double)count : simulated(need, size);
    double memory = weft_topology_get(&topology) == WEFT_OK && topology.memory_bytes
                        ? (double)topology.memory_bytes
                        : (double)SIZE_MAX;
    double gib = 1 << 30;
    size_t ranks = count ? count : (size_t)size;
    if (factor > 1 && (need.nodes > INT_MAX || bytes > memory)) {
        return cli_usage(cli->spec->name,
                         "--segment: %zu bytes make schedules of about %.3g nodes a rank, %.3g GiB "
                         "of %zu rank%s; expected at most %d nodes, and the %.3g GiB of memory "
                         "here",
                         segment, need.nodes, bytes / gib, ranks, ranks == 1 ? "" : "s", INT_MAX,
                         memory / gib);
    }
    if (bytes > memory && !count) {
        return cli_usage(cli->spec->name,
                         "-n: a simulation of %d ranks needs about %.3g GiB; expected at most the "
                         "%.3g GiB of memory here",
                         size, bytes / gib, memory / gib);
    }
    if (bytes > memory) {
        return cli_usage(cli->spec->name,
                         "-n: the schedules of %zu of %d ranks need about %.3g GiB; expected at "
                         "most the %.3g GiB of memory here",
                         count, size, bytes / gib, memory / gib);
    }
    return 0;
}
