/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules as a drawing for Graphviz: a cluster a rank, time downwards; orders are solid, messages
 * between the ranks of the document dashed; a node that waits for ANY predecessor has two borders.
 */
#include "runtime/format.h"

#include "runtime/alloc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* How each kind looks. The colours are pale, so that black text reads on them. */
static const struct {
    const char *shape, *style, *margin, *fill, *line;
} looks[] = {
    [WEFT_NODE_SEND] = {"box", "filled", "0.10,0.05", "#cfe2ff", "#3b6fb6"},
    [WEFT_NODE_RECV] = {"box", "filled", "0.10,0.05", "#d3f0d8", "#3d8b52"},
    [WEFT_NODE_REDUCE] = {"box", "filled,rounded", "0.10,0.05", "#ffe3c2", "#b9722d"},
    [WEFT_NODE_COPY] = {"box", "filled,rounded", "0.10,0.05", "#f3eddc", "#8f8259"},
    [WEFT_NODE_COMPUTE] = {"box", "filled,rounded", "0.10,0.05", "#ecd9f7", "#7d4f9e"},
    [WEFT_NODE_JOIN] = {"ellipse", "filled", "0.10,0.05", "#ececec", "#777777"},
    [WEFT_NODE_EVENT] = {"octagon", "filled", "0.02,0.01", "#fff3b0", "#a58a1b"},
    [WEFT_NODE_SIGNAL] = {"cds", "filled", "0.18,0.08", "#ffd6d6", "#b34a4a"},
};

/* One end of a message or signal, to be matched with the other. */
struct end {
    int32_t from, to; /* ranks */
    uint32_t tag;     /* or channel */
    uint8_t signal;
    int32_t rank; /* where the node is */
    weft_node_t node;
};

static int compare_ends(const void *left, const void *right)
{
    const struct end *a = left, *b = right;

    if (a->signal != b->signal)
        return a->signal < b->signal ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static void write_range(struct weft__out *out, const struct weft_schedule *schedule,
                        const struct weft_region *region)
{
    weft__out_text(out, schedule->buffers[region->slot].name);
    weft__out_format(out, "[%zu:%zu", region->offset, region->offset + region->count);
    if (region->value) {
        weft__out_text(out, "; ");
        weft__out_text(out, schedule->values[region->value - 1].name);
    }
    weft__out_text(out, "]");
}

/* Inside a quoted label: as weft__out_quoted, without the quotes. */
static void write_escaped(struct weft__out *out, const char *text)
{
    for (size_t plain; *text; text += plain) {
        plain = strcspn(text, "\"\\");
        if (!plain) {
            weft__out_text(out, "\\");
            plain = 1;
        }
        weft__out_bytes(out, text, plain);
    }
}

static void write_operands(struct weft__out *out, const struct weft_schedule *schedule,
                           const struct weft__snode *node)
{
    enum { MOST = 4 };

    for (uint32_t i = 0; i < node->region_count && i < MOST; i++) {
        int written = i >= 64 || (node->writes >> i & 1);

        if (node->kind == WEFT_NODE_COMPUTE)
            weft__out_text(out, written ? "\\nout " : "\\nin ");
        else
            weft__out_text(out, i == 0 ? "\\n" : i == 1 ? " =\\n" : ",\\n");
        write_range(out, schedule, &schedule->regions[node->regions + i]);
    }
    if (node->region_count > MOST)
        weft__out_format(out, "\\nand %" PRIu32 " more", node->region_count - MOST);
}

static void write_what(struct weft__out *out, const struct weft_schedule *schedule,
                       const struct weft__snode *node)
{
    switch ((weft_node_kind_t)node->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        weft__out_text(out, node->kind == WEFT_NODE_SEND ? "send "
                            : node->up_to                ? "recv up to "
                                                         : "recv ");
        write_range(out, schedule, &schedule->regions[node->regions]);
        weft__out_format(out, "\\n%s %" PRId32 ", tag %" PRIu32,
                         node->kind == WEFT_NODE_SEND ? "to" : "from", node->peer, node->tag);
        break;
    case WEFT_NODE_REDUCE:
    case WEFT_NODE_COMPUTE:
        weft__out_text(out, weft_op_name(node->op));
        write_operands(out, schedule, node);
        break;
    case WEFT_NODE_COPY:
        weft__out_text(out, "copy");
        write_operands(out, schedule, node);
        break;
    case WEFT_NODE_EVENT:
        weft__out_text(out, "event");
        if (node->tag != WEFT_CHANNEL_NONE)
            weft__out_format(out, " on channel %" PRIu32, node->tag);
        if (node->choice >= 0)
            weft__out_format(out, "\\nchoice %" PRId32, node->choice);
        break;
    case WEFT_NODE_SIGNAL:
        weft__out_format(out, "signal %" PRId32 "\\nchannel %" PRIu32, node->peer, node->tag);
        break;
    case WEFT_NODE_JOIN:
    case WEFT_NODE_KIND_COUNT:
        weft__out_text(out, "join");
        break;
    }
    if (node->produces) {
        weft__out_text(out, "\\ngives ");
        weft__out_text(out, schedule->values[node->produces - 1].name);
    }
}

static void write_node(struct weft__out *out, const struct weft_schedule *schedule, size_t index,
                       const char *label)
{
    const struct weft__snode *node = &schedule->nodes[index];

    weft__out_format(out,
                     "    r%dn%zu [shape=%s, style=\"%s\", margin=\"%s\", fillcolor=\"%s\", "
                     "color=\"%s\"%s, label=\"",
                     schedule->rank, index, looks[node->kind].shape, looks[node->kind].style,
                     looks[node->kind].margin, looks[node->kind].fill, looks[node->kind].line,
                     node->any ? ", peripheries=2" : "");
    if (label) {
        write_escaped(out, label);
        weft__out_text(out, "\\n");
    }
    write_what(out, schedule, node);
    weft__out_format(out, "\", tooltip=\"n%zu\"];\n", index);
}

/* Attributes of nodes that hold the ranks in place: a root above all, whose successors, one a
 * cluster, Graphviz keeps in order. */
#define UNSEEN "style=invis, shape=point, width=0.01, height=0.01"

static int write_rank(struct weft__out *out, const struct weft_schedule *schedule)
{
    struct weft__preds preds;
    size_t next = 0; /* label */

    if (weft__preds_build(&preds, schedule))
        return -1;
    weft__out_format(out,
                     "  subgraph cluster_%d {\n    label=\"rank %d\";\n"
                     "    style=\"rounded,filled\"; fillcolor=\"#fafafa\"; color=\"#b8b8b8\";\n",
                     schedule->rank, schedule->rank);
    weft__out_format(out, "    r%dtop [" UNSEEN "];\n", schedule->rank);
    if (!schedule->node_count)
        weft__out_format(out, "    r%dempty [shape=plaintext, style=\"\", label=\"no nodes\"];\n",
                         schedule->rank);
    for (size_t i = 0; i < schedule->node_count; i++) {
        const char *label = NULL;

        if (next < schedule->label_count && (size_t)schedule->labels[next].node == i)
            label = schedule->labels[next++].text;
        write_node(out, schedule, i, label);
    }
    for (size_t i = 0; i < schedule->node_count; i++)
        for (size_t p = preds.first[i]; p < preds.first[i + 1]; p++)
            weft__out_format(out, "    r%dn%d -> r%dn%zu;\n", schedule->rank, (int)preds.nodes[p],
                             schedule->rank, i);
    weft__out_text(out, "  }\n");
    weft__preds_free(&preds);
    return 0;
}

/* Sorts the node into one of the lists of ends; 1 if it is the end of something. */
static int find_end(const struct weft_schedule *schedule, size_t index, struct end *end,
                    int *is_source)
{
    const struct weft__snode *node = &schedule->nodes[index];

    *end = (struct end){.from = schedule->rank,
                        .to = node->peer,
                        .tag = node->tag,
                        .rank = schedule->rank,
                        .node = (weft_node_t)index};
    *is_source = node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_SIGNAL;
    end->signal = node->kind == WEFT_NODE_SIGNAL || node->kind == WEFT_NODE_EVENT;
    if (!*is_source) {
        end->from = node->peer;
        end->to = schedule->rank;
    }
    /* A signal reaches a channel, whoever sends it. */
    if (end->signal)
        end->from = -1;
    return *is_source || node->kind == WEFT_NODE_RECV ||
           (node->kind == WEFT_NODE_EVENT && node->tag != WEFT_CHANNEL_NONE);
}

static int same_message(const struct end *a, const struct end *b)
{
    return a->signal == b->signal && a->to == b->to && a->tag == b->tag && a->from == b->from;
}

static void write_message(struct weft__out *out, const struct end *source, const struct end *sink)
{
    weft__out_format(out, "  r%dn%d -> r%dn%d [style=dashed, constraint=false, color=\"%s\"];\n",
                     source->rank, (int)source->node, sink->rank, (int)sink->node,
                     source->signal ? "#b34a4a" : "#3b6fb6");
}

/* Matches sources with sinks, both sorted: every pair with the same message. */
static void write_matches(struct weft__out *out, const struct end *sources, size_t source_count,
                          const struct end *sinks, size_t sink_count)
{
    size_t sink = 0;

    for (size_t i = 0; i < source_count; i++) {
        struct end first = sources[i];

        first.node = 0;
        while (sink < sink_count && compare_ends(&sinks[sink], &first) < 0)
            sink++;
        for (size_t j = sink; j < sink_count && same_message(&sinks[j], &first); j++)
            write_message(out, &sources[i], &sinks[j]);
    }
}

static int write_messages(struct weft__out *out, const struct weft_schedule *const *schedules,
                          size_t count)
{
    size_t source_count = 0, sink_count = 0, total = 0;
    struct end *sources, *sinks;

    for (size_t i = 0; i < count; i++)
        total += schedules[i]->node_count;
    sources = weft__malloc(total, sizeof *sources);
    sinks = weft__malloc(total, sizeof *sinks);
    if (!sources || !sinks) {
        weft__free(sources);
        weft__free(sinks);
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t n = 0; n < schedules[i]->node_count; n++) {
            struct end end;
            int is_source;

            if (find_end(schedules[i], n, &end, &is_source))
                *(is_source ? &sources[source_count++] : &sinks[sink_count++]) = end;
        }
    qsort(sources, source_count, sizeof *sources, compare_ends);
    qsort(sinks, sink_count, sizeof *sinks, compare_ends);
    write_matches(out, sources, source_count, sinks, sink_count);
    weft__free(sources);
    weft__free(sinks);
    return 0;
}

int weft__write_dot(struct weft__out *out, const struct weft_schedule *const *schedules,
                    size_t count)
{
    weft__out_text(out, "digraph ");
    weft__out_quoted(out, schedules[0]->name);
    weft__out_text(out, " {\n  label=\"");
    write_escaped(out, schedules[0]->name);
    weft__out_format(out, ", %d ranks\"; labelloc=t; fontsize=16;\n", schedules[0]->size);
    weft__out_text(out, "  fontname=\"Helvetica\"; nodesep=0.25; ranksep=0.35;\n"
                        "  node [fontname=\"Helvetica\", fontsize=10, "
                        "height=0.3];\n");
    weft__out_text(out, "  top [" UNSEEN ", ordering=out];\n  edge [style=invis];\n");
    for (size_t i = 0; i < count; i++)
        weft__out_format(out, "  top -> r%dtop;\n", schedules[i]->rank);
    weft__out_text(out, "  edge [style=solid, color=\"#555555\", arrowsize=0.6];\n");
    for (size_t i = 0; i < count && !out->failed; i++)
        if (write_rank(out, schedules[i]))
            return -1;
    if (write_messages(out, schedules, count))
        return -1;
    weft__out_text(out, "}\n");
    return 0;
}
