/* SPDX-License-Identifier: BSD-3-Clause */
/* A schedule as another one has it: for passes that change what the user has built. */
#include "runtime/graph/schedule.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/op.h"

#include <string.h>

/* An array of @count elements; -1 without memory. */
static int copy_array(void **to, size_t *capacity, const void *from, size_t count, size_t size)
{
    *to = NULL;
    *capacity = 0;
    if (!count)
        return 0;
    if (weft__grow(to, capacity, count, size))
        return -1;
    memcpy(*to, from, count * size);
    return 0;
}

#define COPY(member)                                                                               \
    copy_array((void **)&to->member##s, &to->member##_capacity, from->member##s,                   \
               from->member##_count, sizeof *to->member##s)

static int copy_text(char **text)
{
    *text = *text ? weft__strdup(*text) : NULL;
    return *text ? 0 : -1;
}

/* Counts go up with what has been copied, so that what is half done can be destroyed. */

static int copy_slots(struct weft_schedule *to, const struct weft_schedule *from)
{
    if (COPY(buffer) || COPY(value))
        return -1;
    for (; to->buffer_count < from->buffer_count; to->buffer_count++)
        if (copy_text(&to->buffers[to->buffer_count].name))
            return -1;
    for (; to->value_count < from->value_count; to->value_count++)
        if (copy_text(&to->values[to->value_count].name))
            return -1;
    return weft__schedule_index_names(to);
}

static int copy_nodes(struct weft_schedule *to, const struct weft_schedule *from)
{
    if (COPY(node) || COPY(region) || COPY(edge) || COPY(line) || COPY(label) ||
        copy_array((void **)&to->accesses, &to->access_capacity, from->accesses, from->access_count,
                   sizeof *to->accesses))
        return -1;
    to->region_count = from->region_count;
    to->edge_count = from->edge_count;
    to->line_count = from->line_count;
    to->access_count = from->access_count;
    for (; to->node_count < from->node_count; to->node_count++)
        if (to->nodes[to->node_count].op)
            weft_op_retain(to->nodes[to->node_count].op);
    for (; to->label_count < from->label_count; to->label_count++)
        if (copy_text(&to->labels[to->label_count].text))
            return -1;
    return 0;
}

static int copy_results(struct weft_schedule *to, const struct weft_schedule *from)
{
    for (size_t i = 0; i < from->result_count; i++)
        if (weft_schedule_add_result(to, &from->results[i]))
            return -1;
    return 0;
}

int weft__schedule_copy(const struct weft_schedule *from, struct weft_schedule **copy)
{
    struct weft_schedule *to;

    if (weft_schedule_create(&to, from->rank, from->size))
        return weft__error_memory("a copy of a schedule");
    to->choice_count = from->choice_count;
    to->part_count = from->part_count;
    if (weft_schedule_set_name(to, from->name) || copy_slots(to, from) || copy_nodes(to, from) ||
        copy_results(to, from)) {
        weft_schedule_destroy(to);
        return weft__error_memory("a copy of a schedule");
    }
    *copy = to;
    return WEFT_OK;
}
