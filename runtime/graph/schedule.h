/* SPDX-License-Identifier: BSD-3-Clause */
/* The graph under construction: growing arrays in the order of the calls. */
#ifndef WEFT_RUNTIME_GRAPH_SCHEDULE_H
#define WEFT_RUNTIME_GRAPH_SCHEDULE_H

#include "runtime/base/hash.h"

#include <weft/schedule.h>

struct weft__buffer {
    char *name;
    size_t count;
    weft_dtype_t dtype;
    weft_slot_kind_t kind;
    weft_memory_t memory;
};

struct weft__value {
    char *name;
    uint64_t max;
    weft_node_t producer; /* -1: bound by the user */
};

struct weft__snode {
    uint8_t kind; /* weft_node_kind_t */
    uint8_t any;
    uint8_t up_to;
    int32_t peer;     /* -1: none */
    uint32_t tag;     /* event, signal: channel */
    int32_t choice;   /* -1: none */
    uint32_t regions; /* first in schedule->regions */
    uint32_t region_count;
    weft_value_t produces;
    uint32_t accesses;        /* compute: first in schedule->accesses */
    const struct weft_op *op; /* a reference, or NULL */
};

struct weft__edge {
    uint32_t before;
    uint32_t after;
};

struct weft__label {
    weft_node_t node;
    char *text;
};

/* What an error of the builder is about. */
enum weft__refusal {
    WEFT__REFUSAL_OTHER, /* slots, values, order, memory */
    WEFT__REFUSAL_PEER,  /* a node's peer is no rank */
    WEFT__REFUSAL_REGION /* anything else of a node or a result, mostly regions */
};

struct weft_schedule {
    char *name;
    int rank;
    int size;
    int status;
    char error[256]; /* the text that goes with status */
    enum weft__refusal refusal;
    struct weft__buffer *buffers;
    size_t buffer_count, buffer_capacity;
    struct weft__value *values; /* value v is values[v - 1] */
    size_t value_count, value_capacity;
    struct weft__snode *nodes;
    size_t node_count, node_capacity;
    struct weft_region *regions;
    size_t region_count, region_capacity;
    weft_access_t *accesses; /* of the regions of compute nodes */
    size_t access_count, access_capacity;
    struct weft__edge *edges;
    size_t edge_count, edge_capacity;
    struct weft_result *results; /* from, own: owned copies; op: reference */
    size_t result_count, result_capacity;
    struct weft__label *labels; /* ascending in node */
    size_t label_count, label_capacity;
    /* Where nodes stand in the text that was read: line_count of them, NULL without a text. */
    uint32_t *lines;
    size_t line_count, line_capacity;
    int32_t choice_count;
    size_t part_count;        /* schedules that have been put into it */
    struct weft__table names; /* of slots and values */
};

/* The slot or value with the name of `length` bytes at `name`; -1 and 0 if there is none. */
weft_slot_t weft__schedule_find_slot(const struct weft_schedule *schedule, const char *name,
                                     size_t length);
weft_value_t weft__schedule_find_value(const struct weft_schedule *schedule, const char *name,
                                       size_t length);

/* The label of a node; NULL if it has none. */
const char *weft__schedule_label(const struct weft_schedule *schedule, weft_node_t node);

/* The line of the text that a node was read from; 0: unknown. */
uint32_t weft__schedule_line(const struct weft_schedule *schedule, weft_node_t node);

/* What a node does to its region number `index`. */
static inline weft_access_t weft__snode_access(const struct weft_schedule *schedule,
                                               const struct weft__snode *node, uint32_t index)
{
    if (node->kind == WEFT_NODE_COMPUTE)
        return schedule->accesses[node->accesses + index];
    return index == 0 && node->kind != WEFT_NODE_SEND ? WEFT_WRITE : WEFT_READ;
}

static inline int weft__snode_writes(const struct weft_schedule *schedule,
                                     const struct weft__snode *node, uint32_t index)
{
    return (weft__snode_access(schedule, node, index) & WEFT_WRITE) != 0;
}

/* Where a node works: on the side of what a reduction writes, and of anything else on the device if
 * one of its regions is there. */
weft_memory_t weft__snode_memory(const struct weft_schedule *schedule,
                                 const struct weft__snode *node);

/* Why a node cannot work where it is, in `text`; 0: it can. Of a schedule as the user has it. */
int weft__snode_misplaced(const struct weft_schedule *schedule, const struct weft__snode *node,
                          char *text, size_t size);
/* WEFT_OK if all can, or WEFT_ERR_UNSUPPORTED. */
int weft__schedule_check_sides(const char *who, const struct weft_schedule *schedule);

/* Scratch that is called STEM-NUMBER, as no slot is. As weft_schedule_add_slot(). */
weft_slot_t weft__schedule_add_scratch(struct weft_schedule *schedule, const char *stem,
                                       weft_dtype_t dtype, size_t count, weft_memory_t memory);

/* Whether weft_schedule_place() would add nothing. */
int weft__schedule_is_placed(const struct weft_schedule *schedule);

/* A copy of a schedule that has no error. WEFT_OK or WEFT_ERR_MEMORY. */
int weft__schedule_copy(const struct weft_schedule *schedule, struct weft_schedule **copy);

/* Makes the table of names anew, of a schedule that has none: 0, or -1 without memory. */
int weft__schedule_index_names(struct weft_schedule *schedule);

/* ---- building ---- */

/* For readers of texts: notes the line of the latest node. WEFT_OK or WEFT_ERR_MEMORY. */
int weft__schedule_set_line(struct weft_schedule *schedule, size_t line);

/* weft_schedule_add_order() for readers of documents: a node may be ordered after itself, too. That
 * is a cycle, which commit refuses and weft_check() explains, as any other in a document. */
int weft__schedule_link(struct weft_schedule *schedule, weft_node_t before, weft_node_t after,
                        const char *who);

/* Every builder begins with this: is there a schedule, and is it still sound? */
int weft__schedule_enter(const struct weft_schedule *schedule, const char *who);
#define WEFT__ENTER(schedule)                                                                      \
    do {                                                                                           \
        int entered_ = weft__schedule_enter(schedule, __func__);                                   \
        if (entered_)                                                                              \
            return entered_;                                                                       \
    } while (0)

/* A node of an operation that is called, or is joint, in the name of a public function. */
weft_node_t weft__schedule_add_call(struct weft_schedule *schedule, const char *who,
                                    const struct weft_op *op,
                                    const struct weft_compute_argument *arguments, size_t count,
                                    weft_value_t produces);

/* The first error of a schedule: kept in it, and given to the thread. Returns the status. */
int weft__schedule_fail(struct weft_schedule *schedule, int status, const char *format, ...)
    WEFT_PRINTF(3, 4);
int weft__schedule_fail_memory(struct weft_schedule *schedule, const char *who);

/* "host" or "device". */
const char *weft__memory_word(weft_memory_t memory);

/* Whether slots and values may be called so. */
int weft__schedule_is_name(const char *name);

/* Argument `name`, or `name[index]` if index >= 0, in `text`. */
const char *weft__argument_text(char text[48], const char *name, long index);

/* Whether a region lies in its slot, its value exists and, if `written`, the slot may be. */
int weft__schedule_check_region(struct weft_schedule *schedule, const char *who, const char *name,
                                long index, const struct weft_region *region, int written);

#endif
