/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The JSON format, written. It is put out as it is made, a node a line, so that a million nodes
 * need no tree in memory, and two dumps can be compared line by line.
 */
#include "runtime/format/format.h"

#include <inttypes.h>

static void write_text(struct weft__out *out, const char *key, const char *text)
{
    weft__out_text(out, key);
    weft__out_quoted(out, text);
}

static void write_number(struct weft__out *out, const char *key, uint64_t number)
{
    weft__out_text(out, key);
    weft__out_number(out, number);
}

static void write_region(struct weft__out *out, const struct weft_schedule *schedule,
                         const struct weft_region *region, weft_access_t access)
{
    write_text(out, "{\"slot\": ", schedule->buffers[region->slot].name);
    write_number(out, ", \"offset\": ", region->offset);
    write_number(out, ", \"count\": ", region->count);
    if (region->value)
        write_text(out, ", \"value\": ", schedule->values[region->value - 1].name);
    if (access == WEFT_UPDATE)
        weft__out_text(out, ", \"read\": true");
    weft__out_text(out, access & WEFT_WRITE ? ", \"written\": true}" : "}");
}

static void write_regions(struct weft__out *out, const struct weft_schedule *schedule,
                          const struct weft__snode *node)
{
    weft__out_text(out, ", \"regions\": [");
    for (uint32_t i = 0; i < node->region_count; i++) {
        weft_access_t access =
            node->kind == WEFT_NODE_COMPUTE ? weft__snode_access(schedule, node, i) : WEFT_READ;

        if (i)
            weft__out_text(out, ", ");
        write_region(out, schedule, &schedule->regions[node->regions + i], access);
    }
    weft__out_text(out, "]");
}

static void write_order(struct weft__out *out, const struct weft__lists *preds, size_t index,
                        int any)
{
    uint32_t begin = preds->first[index], end = preds->first[index + 1];

    if (any)
        weft__out_text(out, ", \"any\": true");
    if (begin == end)
        return;
    weft__out_text(out, ", \"after\": [");
    for (uint32_t i = begin; i < end; i++)
        write_number(out, i == begin ? "" : ", ", preds->items[i]);
    weft__out_text(out, "]");
}

static void write_node(struct weft__out *out, const struct weft_schedule *schedule,
                       const struct weft__lists *preds, size_t index, const char *label)
{
    const struct weft__snode *node = &schedule->nodes[index];
    int channelled = node->kind == WEFT_NODE_EVENT || node->kind == WEFT_NODE_SIGNAL;

    write_text(out, "{\"kind\": ", weft_node_kind_name((weft_node_kind_t)node->kind));
    if (label)
        write_text(out, ", \"label\": ", label);
    if (node->op)
        write_text(out, ", \"op\": ", weft_op_name(node->op));
    if (node->region_count || node->kind == WEFT_NODE_COMPUTE)
        write_regions(out, schedule, node);
    if (node->up_to)
        weft__out_text(out, ", \"up_to\": true");
    if (node->peer >= 0)
        write_number(out, ", \"peer\": ", (uint64_t)node->peer);
    if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV)
        write_number(out, ", \"tag\": ", node->tag);
    if (channelled && node->tag != WEFT_CHANNEL_NONE)
        write_number(out, ", \"channel\": ", node->tag);
    if (node->choice >= 0)
        write_number(out, ", \"choice\": ", (uint64_t)node->choice);
    if (node->produces)
        write_text(out, ", \"produces\": ", schedule->values[node->produces - 1].name);
    write_order(out, preds, index, node->any);
    weft__out_text(out, "}");
}

static void write_nodes(struct weft__out *out, const struct weft_schedule *schedule,
                        const struct weft__lists *preds)
{
    size_t next = 0; /* label */

    weft__out_text(out, ",\n   \"nodes\": [");
    for (size_t i = 0; i < schedule->node_count; i++) {
        const char *label = NULL;

        if (next < schedule->label_count && (size_t)schedule->labels[next].node == i)
            label = schedule->labels[next++].text;
        weft__out_text(out, i ? ",\n    " : "\n    ");
        write_node(out, schedule, preds, i, label);
    }
    weft__out_text(out, "]");
}

static void write_buffers(struct weft__out *out, const struct weft_schedule *schedule)
{
    weft__out_text(out, ",\n   \"buffers\": [");
    for (size_t i = 0; i < schedule->buffer_count; i++) {
        const struct weft__buffer *buffer = &schedule->buffers[i];

        weft__out_text(out, i ? ",\n    " : "\n    ");
        write_text(out, "{\"name\": ", buffer->name);
        write_text(out, ", \"kind\": ", weft__slot_word(buffer->kind));
        write_text(out, ", \"dtype\": ", weft_dtype_name(buffer->dtype));
        write_number(out, ", \"count\": ", buffer->count);
        if (buffer->memory == WEFT_MEMORY_DEVICE)
            write_text(out, ", \"memory\": ", weft__memory_word(buffer->memory));
        weft__out_text(out, "}");
    }
    weft__out_text(out, "]");
}

/* A maximum beyond what JSON readers take for an integer is written as a string of digits. */
static void write_values(struct weft__out *out, const struct weft_schedule *schedule)
{
    weft__out_text(out, ",\n   \"values\": [");
    for (size_t i = 0; i < schedule->value_count; i++) {
        const struct weft__value *value = &schedule->values[i];

        weft__out_text(out, i ? ",\n    " : "\n    ");
        write_text(out, "{\"name\": ", value->name);
        if (value->max > INT64_MAX && value->max < UINT64_MAX)
            weft__out_format(out, ", \"max\": \"%" PRIu64 "\"", value->max);
        else if (value->max != UINT64_MAX)
            write_number(out, ", \"max\": ", value->max);
        weft__out_text(out, "}");
    }
    weft__out_text(out, "]");
}

static void write_region_result(struct weft__out *out, const struct weft_schedule *schedule,
                                const struct weft_result *result)
{
    weft__out_text(out, "\"region\": ");
    write_region(out, schedule, &result->dst, WEFT_READ);
    if (result->op)
        write_text(out, ", \"op\": ", weft_op_name(result->op));
    write_text(out, ", \"from\": ", result->from);
    if (result->own)
        write_text(out, ", \"own\": ", result->own);
    if (result->lossy)
        weft__out_text(out, ", \"lossy\": true");
    write_number(out, ", \"offset\": ", result->offset);
}

static void write_results(struct weft__out *out, const struct weft_schedule *schedule)
{
    weft__out_text(out, ",\n   \"results\": [");
    for (size_t i = 0; i < schedule->result_count; i++) {
        const struct weft_result *result = &schedule->results[i];

        weft__out_text(out, i ? ",\n    {" : "\n    {");
        if (result->kind == WEFT_RESULT_AFTER_START)
            weft__out_text(out, "\"after\": \"start\"");
        else
            write_region_result(out, schedule, result);
        if (!result->among)
            weft__out_format(out, ", \"first\": %d, \"ranks\": %d}", result->first, result->ranks);
        for (int k = 0; result->among && k < result->ranks; k++)
            weft__out_format(out, "%s%d%s", k ? ", " : ", \"among\": [", result->among[k],
                             k == result->ranks - 1 ? "]}" : "");
    }
    weft__out_text(out, "]");
}

static int write_rank(struct weft__out *out, const struct weft_schedule *schedule)
{
    struct weft__lists preds;

    if (weft__lists_of(&preds, schedule, WEFT__PREDECESSORS))
        return WEFT_ERR_MEMORY;
    weft__out_format(out, "  {\n   \"rank\": %d", schedule->rank);
    write_buffers(out, schedule);
    if (schedule->value_count)
        write_values(out, schedule);
    write_nodes(out, schedule, &preds);
    if (schedule->result_count)
        write_results(out, schedule);
    weft__out_text(out, "\n  }");
    weft__lists_free(&preds);
    return WEFT_OK;
}

int weft__write_json(struct weft__out *out, const struct weft_schedule *const *schedules,
                     size_t count)
{
    write_text(out, "{\n \"weft\": 1,\n \"schedule\": ", schedules[0]->name);
    weft__out_format(out, ",\n \"size\": %d,\n \"ranks\": [\n", schedules[0]->size);
    for (size_t i = 0; i < count && !out->failed; i++) {
        if (i)
            weft__out_text(out, ",\n");
        if (write_rank(out, schedules[i]))
            return WEFT_ERR_MEMORY;
    }
    weft__out_text(out, "\n ]\n}\n");
    return WEFT_OK;
}
