/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules in GOAL, as LogGOPSim reads it: one statement a line, no blanks before it, labels
 * before their use. GOAL has neither events nor alternatives, so a schedule that has is written as
 * one of its executions (resolve.c): what it retires is left out, a signal is a small message.
 */
#include "runtime/format/format.h"
#include "runtime/graph/joint.h"
#include "runtime/graph/op_price.h"
#include "runtime/graph/resolve.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <inttypes.h>
#include <math.h>

/* A signal carries a version of 8 bytes. */
enum { SIGNAL_BYTES = 8 };

/* GOAL reads this tag as "any". */
#define TAG_ANY UINT32_MAX

struct goal {
    struct weft__out *out;
    const struct weft_schedule *const *schedules; /* of all ranks */
    size_t count;
    const struct weft_goal_options *options;
    struct weft__pairs pairs;
    int resolved; /* 1: the next is filled */
    struct weft__resolution resolution;
    /* of the document */
    uint32_t signal_tag; /* of channel 0 */
    size_t most_nodes, signals;
    int has_empty, has_values; /* messages of no bytes; of a number known only while it runs */
    /* Signals by receiver: those to rank r are signal[first_signal[r]] .. */
    size_t *first_signal;
    struct signal {
        int from;
        weft_node_t node;
    } * signal;
    /* Of the rank that is written: which pair reaches a node, or NO_PAIR. */
    size_t *pair_of;
    size_t next_pair;
};

#define NO_PAIR SIZE_MAX

static size_t region_bytes(const struct weft_schedule *schedule, const struct weft_region *region)
{
    return region->count * weft_dtype_size(schedule->buffers[region->slot].dtype);
}

/* ---- what GOAL cannot say ---- */

static int check_ranks(const struct goal *goal)
{
    int size = goal->schedules[0]->size;

    if (goal->count != (size_t)size)
        return weft__error(
            WEFT_ERR_UNSUPPORTED,
            "GOAL holds all ranks: expected the schedules of ranks 0 to %d, found %zu "
            "of them",
            size - 1, goal->count);
    return WEFT_OK;
}

/* What comments and tags depend on. */
static int survey(struct goal *goal)
{
    uint32_t tag = 0, channel = 0;
    int messages = 0;

    for (size_t r = 0; r < goal->count; r++) {
        const struct weft_schedule *s = goal->schedules[r];

        goal->most_nodes = s->node_count > goal->most_nodes ? s->node_count : goal->most_nodes;
        for (size_t n = 0; n < s->node_count; n++) {
            const struct weft__snode *node = &s->nodes[n];

            if (node->kind == WEFT_NODE_SIGNAL) {
                goal->signals++;
                channel = node->tag > channel ? node->tag : channel;
            }
            if (node->kind != WEFT_NODE_SEND && node->kind != WEFT_NODE_RECV)
                continue;
            if (node->tag == TAG_ANY)
                return weft__error(WEFT_ERR_UNSUPPORTED,
                                   "rank %d, node %zu: tag %" PRIu32
                                   " means any tag in GOAL, expected a smaller one",
                                   s->rank, n, node->tag);
            messages = 1;
            tag = node->tag > tag ? node->tag : tag;
            goal->has_values |= s->regions[node->regions].value != 0;
            goal->has_empty |= !region_bytes(s, &s->regions[node->regions]);
        }
    }
    /* Tags of signals lie above those of messages. */
    goal->signal_tag = messages ? tag + 1 : 0;
    if (goal->signals && channel >= TAG_ANY - goal->signal_tag)
        return weft__error(WEFT_ERR_UNSUPPORTED,
                           "GOAL has 32 bits for tags and channels together, expected less than "
                           "tag %" PRIu32 " and channel %" PRIu32,
                           tag, channel);
    return WEFT_OK;
}

static int sort_signals(struct goal *goal)
{
    size_t *first = weft__calloc(goal->count + 2, sizeof *first);
    struct signal *sorted = weft__malloc(goal->signals, sizeof *sorted);

    goal->first_signal = first;
    goal->signal = sorted;
    if (!first || !sorted)
        return WEFT_ERR_MEMORY;
    /* Counted one place further on, so that filling moves each start to where it belongs. */
    for (size_t r = 0; r < goal->count; r++)
        for (size_t n = 0; n < goal->schedules[r]->node_count; n++)
            if (goal->schedules[r]->nodes[n].kind == WEFT_NODE_SIGNAL)
                first[goal->schedules[r]->nodes[n].peer + 2]++;
    for (size_t r = 0; r < goal->count; r++)
        first[r + 2] += first[r + 1];
    for (size_t r = 0; r < goal->count; r++)
        for (size_t n = 0; n < goal->schedules[r]->node_count; n++)
            if (goal->schedules[r]->nodes[n].kind == WEFT_NODE_SIGNAL)
                sorted[first[goal->schedules[r]->nodes[n].peer + 1]++] =
                    (struct signal){(int)r, (weft_node_t)n};
    return WEFT_OK;
}

/* ---- statements ---- */

/* LogGOPSim counts m - 1 gaps for m bytes, and m is not signed: no bytes are written as one. */
static void write_size(struct goal *goal, size_t bytes)
{
    weft__out_number(goal->out, bytes ? bytes : 1);
    weft__out_text(goal->out, "b");
}

static void write_peer(struct goal *goal, const char *word, int peer, uint32_t tag)
{
    weft__out_text(goal->out, word);
    weft__out_number(goal->out, (uint64_t)peer);
    weft__out_text(goal->out, " tag ");
    weft__out_number(goal->out, tag);
    weft__out_text(goal->out, "\n");
}

static void write_label(struct goal *goal, size_t node)
{
    weft__out_text(goal->out, "n");
    weft__out_number(goal->out, node);
}

/* The receive of a signal is called after its sender. */
static void write_signal_label(struct goal *goal, int rank, weft_node_t node)
{
    weft__out_text(goal->out, "s");
    weft__out_number(goal->out, (uint64_t)rank);
    weft__out_text(goal->out, "_");
    weft__out_number(goal->out, (uint64_t)node);
}

/* Nanoseconds of an operation: of the bytes that it writes, if it has no costs of its own. */
static uint64_t calc_ns(const struct goal *goal, const struct weft_schedule *schedule,
                        const struct weft__snode *node)
{
    const struct weft_goal_options *options = goal->options;
    double us = node->kind == WEFT_NODE_REDUCE ? options->reduce_us_per_byte
                : node->kind == WEFT_NODE_COPY ? options->copy_us_per_byte
                                               : options->compute_us_per_byte;
    const struct weft_sim_op_cost *own = NULL;
    double bytes = 0;

    if (node->kind == WEFT_NODE_COMPUTE)
        own = weft__op_price_find(options->op_costs, options->op_cost_count, node);
    if (own)
        return (uint64_t)fmin(weft__op_price_us(own, schedule, node) * 1000 + 0.5, 9e18);
    for (uint32_t i = 0; i < node->region_count; i++)
        if (weft__snode_writes(schedule, node, i))
            bytes += (double)region_bytes(schedule, &schedule->regions[node->regions + i]);
    return (uint64_t)fmin(us * 1000 * bytes + 0.5, 9e18);
}

static void write_message(struct goal *goal, const struct weft_schedule *schedule, size_t index)
{
    const struct weft__snode *node = &schedule->nodes[index], *source = node;
    int is_send = node->kind == WEFT_NODE_SEND;

    /* A receive may have room for more than is sent to it. */
    if (goal->pair_of[index] != NO_PAIR) {
        const struct weft__pair *pair = &goal->pairs.at[goal->pair_of[index]];

        schedule = goal->schedules[pair->from_at];
        source = &schedule->nodes[pair->from];
    }
    weft__out_text(goal->out, is_send ? ": send " : ": recv ");
    write_size(goal, region_bytes(schedule, &schedule->regions[source->regions]));
    write_peer(goal, is_send ? " to " : " from ", node->peer, node->tag);
}

static void write_node(struct goal *goal, const struct weft_schedule *schedule, size_t index)
{
    const struct weft__snode *node = &schedule->nodes[index];
    uint64_t ns = 0;

    write_label(goal, index);
    switch ((weft_node_kind_t)node->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        write_message(goal, schedule, index);
        return;
    case WEFT_NODE_SIGNAL:
        weft__out_text(goal->out, ": send ");
        write_size(goal, SIGNAL_BYTES);
        write_peer(goal, " to ", node->peer, goal->signal_tag + node->tag);
        return;
    case WEFT_NODE_REDUCE:
    case WEFT_NODE_COPY:
    case WEFT_NODE_COMPUTE:
        ns = calc_ns(goal, schedule, node);
        break;
    case WEFT_NODE_JOIN:
    case WEFT_NODE_EVENT:
    case WEFT_NODE_KIND_COUNT:
        break;
    }
    weft__out_text(goal->out, ": calc ");
    weft__out_number(goal->out, ns);
    weft__out_text(goal->out, "\n");
}

static int is_retired(const struct goal *goal, size_t rank, weft_node_t node)
{
    return goal->resolved &&
           goal->resolution.fate[goal->resolution.first[rank] + (size_t)node] == WEFT__FATE_RETIRED;
}

/* The predecessor that starts an ANY node; the first that may, if none has; -1: it has none. */
static weft_node_t cause_of(const struct goal *goal, size_t rank, size_t index,
                            const struct weft__lists *preds)
{
    weft_node_t cause = goal->resolution.cause[goal->resolution.first[rank] + index];

    for (size_t p = preds->first[index]; cause < 0 && p < preds->first[index + 1]; p++)
        if (!is_retired(goal, rank, (weft_node_t)preds->items[p]))
            cause = (weft_node_t)preds->items[p];
    return cause;
}

static void write_orders(struct goal *goal, size_t rank, size_t index,
                         const struct weft__lists *preds, int behind)
{
    const struct weft__snode *node = &goal->schedules[rank]->nodes[index];
    weft_node_t cause = node->any ? cause_of(goal, rank, index, preds) : -1;

    for (size_t p = preds->first[index]; p < preds->first[index + 1]; p++) {
        size_t before = preds->items[p];

        if ((cause >= 0 && before != (size_t)cause) || (before > index) != behind)
            continue;
        write_label(goal, index);
        weft__out_text(goal->out, " requires ");
        write_label(goal, before);
        weft__out_text(goal->out, "\n");
    }
}

/* An event that a signal has fired. */
static void write_firing(struct goal *goal, size_t rank, size_t index)
{
    size_t by = goal->resolution.fired_by[goal->resolution.first[rank] + index];

    if (by == WEFT__FIRED_BY_APPLICATION)
        return;
    write_label(goal, index);
    weft__out_text(goal->out, " requires ");
    write_signal_label(goal, (int)goal->pairs.at[by].from_at, goal->pairs.at[by].from);
    weft__out_text(goal->out, "\n");
}

/* Every signal is received, whether or not an event still waits for it. */
static void write_signal_receives(struct goal *goal, size_t rank)
{
    for (size_t i = goal->first_signal[rank]; i < goal->first_signal[rank + 1]; i++) {
        const struct signal *signal = &goal->signal[i];

        if (is_retired(goal, (size_t)signal->from, signal->node))
            continue;
        write_signal_label(goal, signal->from, signal->node);
        weft__out_text(goal->out, ": recv ");
        write_size(goal, SIGNAL_BYTES);
        write_peer(goal, " from ", signal->from,
                   goal->signal_tag + goal->schedules[signal->from]->nodes[signal->node].tag);
    }
}

/* Which messages reach this rank; pairs are sorted by receiver, messages first. */
static void find_messages(struct goal *goal, size_t rank)
{
    for (size_t n = 0; n < goal->schedules[rank]->node_count; n++)
        goal->pair_of[n] = NO_PAIR;
    for (; goal->next_pair < goal->pairs.count; goal->next_pair++) {
        const struct weft__pair *pair = &goal->pairs.at[goal->next_pair];

        if (pair->signal || pair->to_at != rank)
            return;
        if (goal->pair_of[pair->to] == NO_PAIR)
            goal->pair_of[pair->to] = goal->next_pair;
    }
}

static int write_rank(struct goal *goal, size_t rank)
{
    const struct weft_schedule *schedule = goal->schedules[rank];
    struct weft__lists preds;

    if (weft__lists_of(&preds, schedule, WEFT__PREDECESSORS))
        return WEFT_ERR_MEMORY;
    weft__out_format(goal->out, "\nrank %zu {\n", rank);
    find_messages(goal, rank);
    write_signal_receives(goal, rank);
    for (size_t n = 0; n < schedule->node_count; n++) {
        if (is_retired(goal, rank, (weft_node_t)n))
            continue;
        write_node(goal, schedule, n);
        write_orders(goal, rank, n, &preds, 0);
        if (schedule->nodes[n].kind == WEFT_NODE_EVENT)
            write_firing(goal, rank, n);
    }
    for (size_t n = 0; n < schedule->node_count; n++)
        if (!is_retired(goal, rank, (weft_node_t)n))
            write_orders(goal, rank, n, &preds, 1);
    /* LogGOPSim expects that something happens. */
    if (!schedule->node_count)
        weft__out_text(goal->out, "n0: calc 0\n");
    weft__out_text(goal->out, "}\n");
    weft__lists_free(&preds);
    return WEFT_OK;
}

static void write_head(struct goal *goal)
{
    weft__out_text(goal->out, "// ");
    weft__out_text(goal->out, goal->schedules[0]->name);
    weft__out_text(goal->out, "\n");
    if (goal->has_empty)
        weft__out_text(goal->out,
                       "// A message of no bytes is written as 1b, which costs no gap.\n");
    if (goal->has_values)
        weft__out_text(goal->out,
                       "// Counts that are known only while it runs are at their most.\n");
    if (goal->resolved) {
        weft__out_format(goal->out,
                         "// One execution of several: the application of rank %d%s arrives first, "
                         "others only where nothing else happens.\n"
                         "// %zu nodes are retired by it and left out.\n",
                         goal->options->activators ? goal->options->activators[0] : 0,
                         goal->options->activator_count > 1 ? " and of others" : "",
                         goal->resolution.retired);
    }
    if (goal->signals)
        weft__out_format(goal->out,
                         "// Signals are messages of %db; channel c has tag %" PRIu32 " + c.\n",
                         SIGNAL_BYTES, goal->signal_tag);
    weft__out_format(goal->out, "num_ranks %zu\n", goal->count);
}

static int check_rate(const char *who, const char *name, double us)
{
    if (us >= 0 && isfinite(us))
        return WEFT_OK;
    return WEFT__INVALID("%s: argument `%s` is %g, expected a time from 0", who, name, us);
}

static int check_options(const char *who, const struct weft_goal_options *options, int size)
{
    int status;

    if (options->activators && !options->activator_count)
        return WEFT__INVALID("%s: argument `activator_count` is 0, expected at least 1", who);
    if (!options->activators && options->activator_count)
        return WEFT__INVALID("%s: argument `activators` is NULL, expected %zu ranks", who,
                             options->activator_count);
    for (size_t i = 0; i < options->activator_count; i++)
        if (options->activators[i] < 0 || options->activators[i] >= size)
            return WEFT__INVALID("%s: argument `activators[%zu]` is %d, expected a rank from 0 to "
                                 "%d",
                                 who, i, options->activators[i], size - 1);
    if ((status = check_rate(who, "reduce_us_per_byte", options->reduce_us_per_byte)) ||
        (status = check_rate(who, "copy_us_per_byte", options->copy_us_per_byte)))
        return status;
    status = check_rate(who, "compute_us_per_byte", options->compute_us_per_byte);
    return status ? status : weft__op_prices_check(who, options->op_costs, options->op_cost_count);
}

void weft_goal_options_init_sized(struct weft_goal_options *options, size_t size)
{
    weft_sized_init(options, size);
}

static int write_all(struct goal *goal)
{
    int status;

    if ((status = weft__pairs_build(&goal->pairs, goal->schedules, goal->count)) ||
        (status = sort_signals(goal)))
        return status;
    goal->pair_of = weft__malloc(goal->most_nodes, sizeof *goal->pair_of);
    if (!goal->pair_of)
        return WEFT_ERR_MEMORY;
    goal->resolved = weft__resolution_needed(goal->schedules, goal->count);
    if (goal->resolved && (status = weft__resolution_build(
                               &goal->resolution, goal->schedules, goal->count, &goal->pairs,
                               goal->options->activators, goal->options->activator_count)))
        return status;
    write_head(goal);
    for (size_t r = 0; r < goal->count && !goal->out->failed && !status; r++)
        status = write_rank(goal, r);
    return status;
}

int weft__write_goal(const char *who, struct weft__out *out,
                     const struct weft_schedule *const *schedules, size_t count,
                     const struct weft_goal_options *given)
{
    struct weft_goal_options options;
    struct weft__written_out written = {0};
    struct goal goal = {.out = out, .count = count, .options = &options};
    int status;

    status = weft_sized_read(who, "options", given, &options, sizeof options);
    if (!status && !(status = check_options(who, goal.options, schedules[0]->size)))
        status = weft__write_out_all(&written, schedules, count, "a document");
    goal.schedules = written.plain;
    if (!status && !(status = check_ranks(&goal)) && !(status = survey(&goal)))
        status = write_all(&goal);
    weft__pairs_free(&goal.pairs);
    weft__resolution_free(&goal.resolution);
    weft__written_out_free(&written);
    weft__free(goal.first_signal);
    weft__free(goal.signal);
    weft__free(goal.pair_of);
    return status;
}
