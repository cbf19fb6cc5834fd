/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fragment of activation (weft/activation.h).
 *
 * A signal node starts after ANY of the events that lead to its edge: the choice retires all events
 * but one, so it is sent once, or retired with them.
 */
#include <weft/activation.h>

#include "schedules/common/template.h"

enum { MOST_EDGES = 32 };

int weft_activation_edges(int ranks)
{
    int edges = 0;
    while (edges < 31 && (int64_t)1 << edges < ranks)
        edges++;
    return edges;
}

int weft_activation_peer(int rank, int ranks, int edge)
{
    if (rank < 0 || rank >= ranks || edge < 0 || edge >= weft_activation_edges(ranks))
        return -1;
    int64_t peer = (int64_t)rank ^ (int64_t)1 << edge;
    return peer < ranks ? (int)peer : -1;
}

/* Whether an activation that came by edge `from` is passed on through edge `to`. */
static int leads(int ranks, int from, int to)
{
    return (ranks & (ranks - 1)) == 0 ? to > from : to != from;
}

weft_node_t weft_activation_add(struct weft_schedule *schedule, uint32_t channel,
                                weft_node_t *started)
{
    int rank = weft_schedule_rank(schedule), ranks = weft_schedule_size(schedule);
    int edges = weft_activation_edges(ranks);
    weft_node_t choice[MOST_EDGES + 1];
    int edge[MOST_EDGES + 1];
    size_t count = 1;

    if (!schedule)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `schedule` is NULL", __func__);
    if (channel > WEFT_CHANNEL_NONE - MOST_EDGES)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `channel` is %u, expected at most %u",
                              __func__, channel, WEFT_CHANNEL_NONE - MOST_EDGES);
    choice[0] = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    edge[0] = -1;
    weft_schedule_set_label(schedule, choice[0], "application");
    for (int i = 0; i < edges; i++) {
        if (weft_activation_peer(rank, ranks, i) < 0)
            continue;
        choice[count] = weft_schedule_add_event(schedule, channel + (uint32_t)i);
        edge[count++] = i;
    }
    if (count > 1)
        weft_schedule_add_choice(schedule, choice, count);
    for (size_t to = 1; to < count; to++) {
        weft_node_t signal = weft_schedule_add_signal(
            schedule, weft_activation_peer(rank, ranks, edge[to]), channel + (uint32_t)edge[to]);
        for (size_t from = 0; from < count; from++)
            if (from == 0 || leads(ranks, edge[from], edge[to]))
                weft_schedule_add_order(schedule, choice[from], signal);
        weft_schedule_set_any(schedule, signal);
    }
    if (started) {
        *started = weft_schedule_add_join(schedule);
        for (size_t from = 0; from < count; from++)
            weft_schedule_add_order(schedule, choice[from], *started);
        weft_schedule_set_any(schedule, *started);
        weft_schedule_set_label(schedule, *started, "started");
    }
    int status = weft_schedule_status(schedule);
    return status < 0 ? status : choice[0];
}

/* ---- the template ---- */

static void build_activation(struct weft__build *build)
{
    weft_activation_add(build->schedule, 0, NULL);
}

static double activation_cost(const struct weft__shape *shape)
{
    return weft_activation_edges(shape->size) * weft__cost_message(shape, 0);
}

static void no_slots(struct weft__build *build)
{
    (void)build;
}

static const struct weft_algorithm algorithms[] = {
    {.name = "hypercube",
     .cost = "ceil(log2 P) alpha from the first to arrive to the last to hear of it",
     .notes = "P - 1 signals for one activator at powers of two. Li et al., TPDS 2021, section 3.1",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = build_activation, .cost = activation_cost},
};

const struct weft__template weft__activation_template = {
    .public = {.name = "activation",
               .summary = "whoever arrives first starts all ranks",
               .parameters = "algo",
               .result = "no data; every rank has been started",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .slots = no_slots,
};
