/* SPDX-License-Identifier: BSD-3-Clause */
/* The graph under construction: growing arrays in the order of the calls. */
#ifndef WEFT_RUNTIME_SCHEDULE_H
#define WEFT_RUNTIME_SCHEDULE_H

#include <weft/schedule.h>

struct weft__buffer {
    char *name;
    size_t count;
    weft_dtype_t dtype;
    weft_buffer_kind_t kind;
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
    uint64_t writes;
    const struct weft_op *op; /* a reference, or NULL */
};

struct weft__edge {
    weft_node_t before;
    weft_node_t after;
};

struct weft__label {
    weft_node_t node;
    char *text;
};

struct weft_schedule {
    char *name;
    int rank;
    int size;
    int status;
    char error[256]; /* the text that goes with status */
    struct weft__buffer *buffers;
    size_t buffer_count, buffer_capacity;
    struct weft__value *values; /* value v is values[v - 1] */
    size_t value_count, value_capacity;
    struct weft__snode *nodes;
    size_t node_count, node_capacity;
    struct weft_region *regions;
    size_t region_count, region_capacity;
    struct weft__edge *edges;
    size_t edge_count, edge_capacity;
    struct weft_result *results; /* from: owned copy; op: reference */
    size_t result_count, result_capacity;
    struct weft__label *labels; /* ascending in node */
    size_t label_count, label_capacity;
    int32_t choice_count;
};

/* Text form of one document; text.c, json.c, dot.c. See weft_schedule_write(). */
int weft__write_text(const struct weft_schedule *const *schedules, size_t count, char **text,
                     size_t *length);
int weft__write_json(const struct weft_schedule *const *schedules, size_t count, char **text,
                     size_t *length);
int weft__write_dot(const struct weft_schedule *const *schedules, size_t count, char **text,
                    size_t *length);

#endif
