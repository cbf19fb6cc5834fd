/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading schedules: what the builder's calls put in, handed out again. */
#include "runtime/graph/schedule.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/search.h"

#include <string.h>

struct weft_region weft_region_at(weft_slot_t slot, size_t offset, size_t count)
{
    return (struct weft_region){.slot = slot, .offset = offset, .count = count};
}

void weft_result_init_sized(struct weft_result *result, size_t size)
{
    weft_sized_init(result, size);
}

/* The result that was given, or if it is of another version what it says in this one; NULL, with an
 * error text, if it has no size. */
static const struct weft_result *read_result(const char *function, const struct weft_result *given,
                                             struct weft_result *full)
{
    if (!given) {
        WEFT__INVALID("%s: argument `result` is NULL", function);
        return NULL;
    }
    if (given->struct_size == sizeof *given)
        return given;
    return weft_sized_read(function, "result", given, full, sizeof *full) ? NULL : full;
}

int weft_result_rank(const struct weft_result *given, int index)
{
    struct weft_result full;
    const struct weft_result *result = read_result(__func__, given, &full);

    if (!result)
        return WEFT_ERR_INVALID;
    if (result->ranks == 0)
        return WEFT__INVALID("%s: argument `result` has no ranks, expected one of a rank that has "
                             "a result",
                             __func__);
    if (index < 0 || index >= result->ranks)
        return WEFT__INVALID("%s: argument `index` is %d, expected 0..%d", __func__, index,
                             result->ranks - 1);
    return result->among ? result->among[index] : result->first + index;
}

const char *weft_result_slot(const struct weft_result *given, int rank, int contributor)
{
    struct weft_result full;
    const struct weft_result *result = read_result(__func__, given, &full);

    if (!result)
        return NULL;
    return result->own && contributor == rank ? result->own : result->from;
}

const char *weft_node_kind_name(weft_node_kind_t kind)
{
    static const char *const names[] = {
#define KIND_NAME(name, text) [name] = text,
        WEFT_NODE_MAP(KIND_NAME)
#undef KIND_NAME
    };

    return (int)kind >= 0 && kind < WEFT_NODE_KIND_COUNT ? names[kind] : NULL;
}

int weft_schedule_status(const struct weft_schedule *schedule)
{
    return weft__schedule_enter(schedule, __func__);
}

int weft_schedule_rank(const struct weft_schedule *schedule)
{
    return schedule ? schedule->rank : WEFT__INVALID("%s: argument `schedule` is NULL", __func__);
}

int weft_schedule_size(const struct weft_schedule *schedule)
{
    return schedule ? schedule->size : WEFT__INVALID("%s: argument `schedule` is NULL", __func__);
}

const char *weft_schedule_name(const struct weft_schedule *schedule)
{
    return schedule ? schedule->name : "";
}

size_t weft_schedule_node_count(const struct weft_schedule *schedule)
{
    return schedule ? schedule->node_count : 0;
}

size_t weft_schedule_slot_count(const struct weft_schedule *schedule)
{
    return schedule ? schedule->buffer_count : 0;
}

size_t weft_schedule_value_count(const struct weft_schedule *schedule)
{
    return schedule ? schedule->value_count : 0;
}

size_t weft_schedule_result_count(const struct weft_schedule *schedule)
{
    return schedule ? schedule->result_count : 0;
}

size_t weft_schedule_edge_count(const struct weft_schedule *schedule)
{
    return schedule ? schedule->edge_count : 0;
}

/* Checks the arguments that all queries share: a schedule, a place for the answer, an index. */
static int check_query(const struct weft_schedule *schedule, const char *who, const void *out,
                       int inside, const char *what, long long index)
{
    if (schedule && out && inside)
        return WEFT_OK;
    if (!schedule)
        WEFT__INVALID("%s: argument `schedule` is NULL, expected a schedule", who);
    else if (!out)
        WEFT__INVALID("%s: an argument for the answer is NULL, expected a place for it", who);
    else
        WEFT__INVALID("%s: argument `%s` is %lld, which the schedule does not have", who, what,
                      index);
    return WEFT_ERR_INVALID;
}

int weft_schedule_get_slot(const struct weft_schedule *schedule, weft_slot_t slot,
                           struct weft_slot_info *info)
{
    int inside = schedule && slot >= 0 && (size_t)slot < schedule->buffer_count;
    int status = check_query(schedule, __func__, info, inside, "slot", slot);
    const struct weft__buffer *buffer;

    if (status)
        return status;
    buffer = &schedule->buffers[slot];
    struct weft_slot_info seen = {.name = buffer->name,
                                  .dtype = buffer->dtype,
                                  .kind = buffer->kind,
                                  .count = buffer->count,
                                  .memory = buffer->memory};
    return weft_sized_fill(__func__, "info", info, &seen, sizeof seen);
}

int weft_schedule_get_value(const struct weft_schedule *schedule, weft_value_t value,
                            struct weft_value_info *info)
{
    int inside = schedule && value >= 1 && (size_t)value <= schedule->value_count;
    int status = check_query(schedule, __func__, info, inside, "value", value);
    const struct weft__value *entry;

    if (status)
        return status;
    entry = &schedule->values[value - 1];
    struct weft_value_info seen = {
        .name = entry->name, .max = entry->max, .producer = entry->producer};
    return weft_sized_fill(__func__, "info", info, &seen, sizeof seen);
}

const char *weft__schedule_label(const struct weft_schedule *schedule, weft_node_t node)
{
    size_t low = 0, high = schedule->label_count;

    WEFT__SEARCH(low, high, middle, schedule->labels[middle].node < node)
    return low < schedule->label_count && schedule->labels[low].node == node
               ? schedule->labels[low].text
               : NULL;
}

uint32_t weft__schedule_line(const struct weft_schedule *schedule, weft_node_t node)
{
    return (size_t)node < schedule->line_count ? schedule->lines[node] : 0;
}

int weft__schedule_set_line(struct weft_schedule *schedule, size_t line)
{
    if (weft__grow((void **)&schedule->lines, &schedule->line_capacity, schedule->node_count,
                   sizeof *schedule->lines))
        return weft__error_memory("the lines of a document");
    while (schedule->line_count < schedule->node_count)
        schedule->lines[schedule->line_count++] = 0;
    schedule->lines[schedule->node_count - 1] = line < UINT32_MAX ? (uint32_t)line : 0;
    return WEFT_OK;
}

static const weft_access_t *accesses_of(const struct weft_schedule *schedule,
                                        const struct weft__snode *node)
{
    static const weft_access_t reads[] = {WEFT_READ};
    static const weft_access_t writes[] = {WEFT_WRITE, WEFT_READ, WEFT_READ};

    if (!node->region_count)
        return NULL;
    if (node->kind == WEFT_NODE_COMPUTE)
        return &schedule->accesses[node->accesses];
    return node->kind == WEFT_NODE_SEND ? reads : writes;
}

int weft_schedule_get_node(const struct weft_schedule *schedule, weft_node_t node,
                           struct weft_node_info *info)
{
    int inside = schedule && node >= 0 && (size_t)node < schedule->node_count;
    int status = check_query(schedule, __func__, info, inside, "node", node);
    const struct weft__snode *entry;
    int channelled;

    if (status)
        return status;
    entry = &schedule->nodes[node];
    channelled = entry->kind == WEFT_NODE_EVENT || entry->kind == WEFT_NODE_SIGNAL;
    struct weft_node_info seen = {
        .kind = (weft_node_kind_t)entry->kind,
        .any = entry->any,
        .up_to = entry->up_to,
        .peer = entry->peer,
        .tag = channelled ? 0 : entry->tag,
        .channel = channelled ? entry->tag : 0,
        .choice = entry->choice,
        .produces = entry->produces,
        .regions = entry->region_count ? &schedule->regions[entry->regions] : NULL,
        .region_count = entry->region_count,
        .accesses = accesses_of(schedule, entry),
        .op = entry->op,
        .label = weft__schedule_label(schedule, node),
        .line = weft__schedule_line(schedule, node),
    };
    return weft_sized_fill(__func__, "info", info, &seen, sizeof seen);
}

int weft_schedule_get_result(const struct weft_schedule *schedule, size_t index,
                             struct weft_result *result)
{
    int inside = schedule && index < schedule->result_count;
    int status = check_query(schedule, __func__, result, inside, "index", (long long)index);

    if (status)
        return status;
    return weft_sized_fill(__func__, "result", result, &schedule->results[index],
                           sizeof schedule->results[index]);
}

int weft_schedule_get_edge(const struct weft_schedule *schedule, size_t index, weft_node_t *before,
                           weft_node_t *after)
{
    int inside = schedule && index < schedule->edge_count;
    const void *out = before && after ? before : NULL;
    int status = check_query(schedule, __func__, out, inside, "index", (long long)index);

    if (status)
        return status;
    *before = (weft_node_t)schedule->edges[index].before;
    *after = (weft_node_t)schedule->edges[index].after;
    return WEFT_OK;
}
