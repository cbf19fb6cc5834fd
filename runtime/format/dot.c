/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules as a drawing for Graphviz: a cluster a rank, time downwards; orders are solid, messages
 * between the ranks of the document dashed; a node that waits for ANY predecessor has two borders.
 */
#include "runtime/format/format.h"
#include "runtime/graph/pairs.h"

#include <inttypes.h>
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
        if (node->kind == WEFT_NODE_COMPUTE)
            weft__out_format(out, "\\n%s ",
                             weft__access_word(weft__snode_access(schedule, node, i)));
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
    struct weft__lists preds;
    size_t next = 0; /* label */

    if (weft__lists_of(&preds, schedule, WEFT__PREDECESSORS))
        return WEFT_ERR_MEMORY;
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
            weft__out_format(out, "    r%dn%d -> r%dn%zu;\n", schedule->rank, (int)preds.items[p],
                             schedule->rank, i);
    weft__out_text(out, "  }\n");
    weft__lists_free(&preds);
    return WEFT_OK;
}

static int write_messages(struct weft__out *out, const struct weft_schedule *const *schedules,
                          size_t count)
{
    struct weft__pairs pairs;

    if (weft__pairs_build(&pairs, schedules, count))
        return WEFT_ERR_MEMORY;
    for (size_t i = 0; i < pairs.count; i++) {
        const struct weft__pair *pair = &pairs.at[i];

        weft__out_format(
            out, "  r%dn%d -> r%dn%d [style=dashed, constraint=false, color=\"%s\"];\n",
            schedules[pair->from_at]->rank, (int)pair->from, schedules[pair->to_at]->rank,
            (int)pair->to, pair->signal ? "#b34a4a" : "#3b6fb6");
    }
    weft__pairs_free(&pairs);
    return WEFT_OK;
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
            return WEFT_ERR_MEMORY;
    if (write_messages(out, schedules, count))
        return WEFT_ERR_MEMORY;
    weft__out_text(out, "}\n");
    return WEFT_OK;
}
