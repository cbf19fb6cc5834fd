/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text format, written; docs/format.md describes it. One canonical form: what reads back into
 * equal schedules is written as equal bytes (predecessors ascending, every default spelt out).
 */
#include "runtime/format/format.h"

#include <inttypes.h>

static void write_range(struct weft__out *out, const char *name, size_t offset, size_t count)
{
    weft__out_text(out, name);
    weft__out_text(out, "[");
    weft__out_number(out, offset);
    weft__out_text(out, ":");
    weft__out_number(out, offset + count);
}

static void write_region(struct weft__out *out, const struct weft_schedule *schedule,
                         const struct weft_region *region)
{
    write_range(out, schedule->buffers[region->slot].name, region->offset, region->count);
    if (region->value) {
        weft__out_text(out, " count ");
        weft__out_text(out, schedule->values[region->value - 1].name);
    }
    weft__out_text(out, "]");
}

static void write_peer(struct weft__out *out, const char *word, const struct weft__snode *node)
{
    weft__out_text(out, word);
    weft__out_number(out, (uint64_t)node->peer);
    weft__out_text(out, " tag ");
    weft__out_number(out, node->tag);
}

static void write_compute(struct weft__out *out, const struct weft_schedule *schedule,
                          const struct weft__snode *node)
{
    weft__out_text(out, " ");
    weft__out_text(out, weft_op_name(node->op));
    for (uint32_t i = 0; i < node->region_count; i++) {
        weft__out_text(out, i ? ", " : " ");
        weft__out_text(out, weft__access_word(weft__snode_access(schedule, node, i)));
        weft__out_text(out, " ");
        write_region(out, schedule, &schedule->regions[node->regions + i]);
    }
}

/* What follows the kind of a node. */
static void write_body(struct weft__out *out, const struct weft_schedule *schedule,
                       const struct weft__snode *node)
{
    switch ((weft_node_kind_t)node->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        weft__out_text(out, node->up_to ? " up to " : " ");
        write_region(out, schedule, &schedule->regions[node->regions]);
        write_peer(out, node->kind == WEFT_NODE_SEND ? " to " : " from ", node);
        break;
    case WEFT_NODE_REDUCE:
    case WEFT_NODE_COPY:
        weft__out_text(out, " ");
        if (node->op) {
            weft__out_text(out, weft_op_name(node->op));
            weft__out_text(out, " ");
        }
        for (uint32_t i = 0; i < node->region_count; i++) {
            weft__out_text(out, i == 0 ? "" : i == 1 ? " = " : ", ");
            write_region(out, schedule, &schedule->regions[node->regions + i]);
        }
        break;
    case WEFT_NODE_COMPUTE:
        write_compute(out, schedule, node);
        break;
    case WEFT_NODE_EVENT:
        if (node->tag != WEFT_CHANNEL_NONE)
            weft__out_format(out, " channel %" PRIu32, node->tag);
        if (node->choice >= 0)
            weft__out_format(out, " choice %" PRId32, node->choice);
        break;
    case WEFT_NODE_SIGNAL:
        weft__out_format(out, " to %" PRId32 " channel %" PRIu32, node->peer, node->tag);
        break;
    case WEFT_NODE_JOIN:
    case WEFT_NODE_KIND_COUNT:
        break;
    }
    if (node->produces) {
        weft__out_text(out, " gives ");
        weft__out_text(out, schedule->values[node->produces - 1].name);
    }
}

static void write_order(struct weft__out *out, const struct weft__lists *preds, size_t index,
                        int any)
{
    uint32_t begin = preds->first[index], end = preds->first[index + 1];

    if (begin == end && !any)
        return;
    weft__out_text(out, any ? " after any" : " after");
    for (uint32_t i = begin; i < end; i++) {
        weft__out_text(out, i == begin ? " n" : ", n");
        weft__out_number(out, preds->items[i]);
    }
}

static void write_nodes(struct weft__out *out, const struct weft_schedule *schedule,
                        const struct weft__lists *preds)
{
    size_t label = 0;

    for (size_t i = 0; i < schedule->node_count; i++) {
        const struct weft__snode *node = &schedule->nodes[i];

        weft__out_text(out, "  n");
        weft__out_number(out, i);
        if (label < schedule->label_count && (size_t)schedule->labels[label].node == i) {
            weft__out_text(out, " ");
            weft__out_quoted(out, schedule->labels[label++].text);
        }
        weft__out_text(out, ": ");
        weft__out_text(out, weft_node_kind_name((weft_node_kind_t)node->kind));
        write_body(out, schedule, node);
        write_order(out, preds, i, node->any);
        weft__out_text(out, "\n");
    }
}

static void write_ranks(struct weft__out *out, const struct weft_result *result)
{
    if (result->ranks == 1)
        weft__out_format(out, "rank %d", result->first);
    else if (!result->among)
        weft__out_format(out, "ranks %d..%d", result->first, result->first + result->ranks - 1);
    for (int i = 0; result->among && i < result->ranks; i++)
        weft__out_format(out, "%s%d", i ? ", " : "ranks ", result->among[i]);
    if (result->own) {
        weft__out_text(out, " own ");
        weft__out_text(out, result->own);
    }
    weft__out_text(out, result->lossy ? " lossy\n" : "\n");
}

static void write_result(struct weft__out *out, const struct weft_schedule *schedule,
                         const struct weft_result *result)
{
    weft__out_text(out, "  result ");
    if (result->kind == WEFT_RESULT_AFTER_START) {
        weft__out_text(out, "end after start of ");
        write_ranks(out, result);
        return;
    }
    write_region(out, schedule, &result->dst);
    weft__out_text(out, " = ");
    if (result->op) {
        weft__out_text(out, weft_op_name(result->op));
        weft__out_text(out, " of ");
    }
    write_range(out, result->from, result->offset, result->dst.count);
    weft__out_text(out, "] from ");
    write_ranks(out, result);
}

static int write_rank(struct weft__out *out, const struct weft_schedule *schedule)
{
    struct weft__lists preds;

    if (weft__lists_of(&preds, schedule, WEFT__PREDECESSORS))
        return WEFT_ERR_MEMORY;
    weft__out_format(out, "\nrank %d {\n", schedule->rank);
    for (size_t i = 0; i < schedule->buffer_count; i++) {
        const struct weft__buffer *buffer = &schedule->buffers[i];

        weft__out_text(out, "  ");
        weft__out_text(out, weft__slot_word(buffer->kind));
        weft__out_text(out, " ");
        weft__out_text(out, buffer->name);
        weft__out_format(out, " %s %zu", weft_dtype_name(buffer->dtype), buffer->count);
        weft__out_text(out, buffer->memory == WEFT_MEMORY_DEVICE ? " on device\n" : "\n");
    }
    for (size_t i = 0; i < schedule->value_count; i++) {
        const struct weft__value *value = &schedule->values[i];

        weft__out_text(out, "  value ");
        weft__out_text(out, value->name);
        if (value->max != UINT64_MAX)
            weft__out_format(out, " max %" PRIu64, value->max);
        weft__out_text(out, "\n");
    }
    write_nodes(out, schedule, &preds);
    for (size_t i = 0; i < schedule->result_count; i++)
        write_result(out, schedule, &schedule->results[i]);
    weft__out_text(out, "}\n");
    weft__lists_free(&preds);
    return WEFT_OK;
}

int weft__write_text(struct weft__out *out, const struct weft_schedule *const *schedules,
                     size_t count)
{
    weft__out_text(out, "weft 1\nschedule ");
    weft__out_quoted(out, schedules[0]->name);
    weft__out_format(out, " size %d\n", schedules[0]->size);
    for (size_t i = 0; i < count && !out->failed; i++)
        if (write_rank(out, schedules[i]))
            return WEFT_ERR_MEMORY;
    return WEFT_OK;
}
