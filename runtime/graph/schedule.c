/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Building schedules. Everything that one call can know is checked in that call, so that the error
 * names the line of the builder that is wrong; what needs the whole graph is left to commit. The
 * first error sticks. Arrays grow by doubling, and names are found by hashing: n calls take O(n).
 */
#include "runtime/graph/schedule.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/search.h"
#include "runtime/graph/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int weft__schedule_enter(const struct weft_schedule *schedule, const char *who)
{
    if (!schedule)
        return WEFT__INVALID("%s: argument `schedule` is NULL, expected a schedule", who);
    if (schedule->status)
        return weft__error(schedule->status, "%s", schedule->error);
    return WEFT_OK;
}

int weft__schedule_fail(struct weft_schedule *schedule, int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    if (vsnprintf(schedule->error, sizeof schedule->error, format, arguments) < 0)
        schedule->error[0] = '\0';
    va_end(arguments);
    schedule->status = status;
    return weft__error(status, "%s", schedule->error);
}

int weft__schedule_fail_memory(struct weft_schedule *schedule, const char *who)
{
    return weft__schedule_fail(schedule, WEFT_ERR_MEMORY, "%s: out of memory", who);
}

/* ---- names ---- */

/* Slot s is number 2 s, value v is number 2 v + 1. */
static const char *name_of(const struct weft_schedule *schedule, uint32_t number)
{
    return number % 2 ? schedule->values[number / 2 - 1].name : schedule->buffers[number / 2].name;
}

static uint64_t hash_name(const char *name, size_t length)
{
    return weft__hash_bytes(WEFT__HASH_EMPTY, name, length);
}

/* The number of a slot (odd 0) or value (odd 1), or WEFT__TABLE_END. */
static uint32_t name_find(const struct weft_schedule *schedule, const char *name, size_t length,
                          uint32_t odd)
{
    uint64_t hash = hash_name(name, length);
    size_t at;

    for (uint32_t n = weft__table_first(&schedule->names, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(&schedule->names, hash, &at)) {
        const char *other = name_of(schedule, n);

        if (n % 2 == odd && !strncmp(other, name, length) && !other[length])
            return n;
    }
    return WEFT__TABLE_END;
}

/* There is room for it. */
static void name_put(struct weft_schedule *schedule, uint32_t number)
{
    const char *name = name_of(schedule, number);

    (void)weft__table_add(&schedule->names, hash_name(name, strlen(name)), number);
}

int weft__schedule_index_names(struct weft_schedule *schedule)
{
    size_t count = schedule->buffer_count + schedule->value_count;

    if (weft__table_reserve(&schedule->names, count))
        return -1;
    for (uint32_t s = 0; s < schedule->buffer_count; s++)
        name_put(schedule, 2 * s);
    for (uint32_t v = 1; v <= schedule->value_count; v++)
        name_put(schedule, 2 * v + 1);
    return 0;
}

weft_slot_t weft__schedule_find_slot(const struct weft_schedule *schedule, const char *name,
                                     size_t length)
{
    uint32_t number = name_find(schedule, name, length, 0);

    return number == WEFT__TABLE_END ? -1 : (weft_slot_t)(number / 2);
}

weft_value_t weft__schedule_find_value(const struct weft_schedule *schedule, const char *name,
                                       size_t length)
{
    uint32_t number = name_find(schedule, name, length, 1);

    return number == WEFT__TABLE_END ? 0 : (weft_value_t)(number / 2);
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

int weft__schedule_is_name(const char *name)
{
    if (!is_letter(*name))
        return 0;
    for (const char *c = name; *c; c++)
        if (!is_letter(*c) && !(*c >= '0' && *c <= '9') && *c != '.' && *c != '-')
            return 0;
    return 1;
}

/* Bytes of the well-formed UTF-8 sequence of a printable character at `text`, or 0. */
static size_t printable(const unsigned char *text)
{
    static const struct {
        unsigned char low, high, first, last; /* of the lead byte, of the byte after it */
        size_t bytes;
    } forms[] = {
        {0x20, 0x7e, 0, 0, 1},       {0xc2, 0xc2, 0xa0, 0xbf, 2}, {0xc3, 0xdf, 0x80, 0xbf, 2},
        {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
        {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
        {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (text[0] < forms[i].low || text[0] > forms[i].high)
            continue;
        for (size_t byte = 1; byte < forms[i].bytes; byte++) {
            unsigned char first = byte == 1 ? forms[i].first : 0x80;
            unsigned char last = byte == 1 ? forms[i].last : 0xbf;

            if (text[byte] < first || text[byte] > last)
                return 0;
        }
        return forms[i].bytes;
    }
    return 0;
}

/* Names of schedules and labels: any line of text that every format can carry. */
static int is_line(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    for (size_t bytes; *at; at += bytes) {
        bytes = printable(at);
        if (!bytes)
            return 0;
    }
    return 1;
}

/* ---- life ---- */

int weft_schedule_create(struct weft_schedule **schedule, int rank, int size)
{
    struct weft_schedule *created;

    if (!schedule)
        return WEFT__INVALID("%s: argument `schedule` is NULL, expected a place for the schedule",
                             __func__);
    if (size < 1)
        return WEFT__INVALID("%s: argument `size` is %d, expected at least 1", __func__, size);
    if (rank < 0 || rank >= size)
        return WEFT__INVALID("%s: argument `rank` is %d, expected 0..%d", __func__, rank, size - 1);
    created = weft__calloc(1, sizeof *created);
    if (!created)
        return weft__error_memory("a schedule");
    created->rank = rank;
    created->size = size;
    created->name = weft__strdup("schedule");
    if (!created->name) {
        weft__free(created);
        return weft__error_memory("a schedule");
    }
    *schedule = created;
    return WEFT_OK;
}

void weft_schedule_destroy(struct weft_schedule *schedule)
{
    if (!schedule)
        return;
    for (size_t i = 0; i < schedule->buffer_count; i++)
        weft__free(schedule->buffers[i].name);
    for (size_t i = 0; i < schedule->value_count; i++)
        weft__free(schedule->values[i].name);
    for (size_t i = 0; i < schedule->node_count; i++)
        if (schedule->nodes[i].op)
            weft_op_destroy(schedule->nodes[i].op);
    for (size_t i = 0; i < schedule->result_count; i++) {
        weft__free((void *)schedule->results[i].from);
        weft__free((void *)schedule->results[i].own);
        weft__free((void *)schedule->results[i].among);
        weft_op_destroy(schedule->results[i].op);
    }
    for (size_t i = 0; i < schedule->label_count; i++)
        weft__free(schedule->labels[i].text);
    weft__free(schedule->buffers);
    weft__free(schedule->values);
    weft__free(schedule->nodes);
    weft__free(schedule->regions);
    weft__free(schedule->accesses);
    weft__free(schedule->edges);
    weft__free(schedule->results);
    weft__free(schedule->labels);
    weft__free(schedule->lines);
    weft__table_free(&schedule->names);
    weft__free(schedule->name);
    weft__free(schedule);
}

/* Checks and copies a line of text. */
static int copy_line(struct weft_schedule *schedule, const char *who, const char *argument,
                     const char *text, char **copy)
{
    if (!text)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `%s` is NULL, expected a text", who, argument);
    if (!is_line(text))
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `%s` has a byte that is not printable UTF-8, expected one line "
            "of text",
            who, argument);
    *copy = weft__strdup(text);
    return *copy ? WEFT_OK : weft__schedule_fail_memory(schedule, who);
}

int weft_schedule_set_name(struct weft_schedule *schedule, const char *name)
{
    char *copy = NULL;
    int status;

    WEFT__ENTER(schedule);
    status = copy_line(schedule, __func__, "name", name, &copy);
    if (status)
        return status;
    weft__free(schedule->name);
    schedule->name = copy;
    return WEFT_OK;
}

/* ---- slots and values ---- */

/* Checks a new name (odd as in name_find) and copies it. */
static int copy_name(struct weft_schedule *schedule, const char *who, const char *name,
                     uint32_t odd, char **copy)
{
    if (!name)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `name` is NULL, expected a name", who);
    if (!weft__schedule_is_name(name))
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `name` is \"%.64s\", expected [A-Za-z_][A-Za-z0-9_.-]*", who,
            is_line(name) ? name : "(not printable)");
    if (name_find(schedule, name, strlen(name), odd) != WEFT__TABLE_END)
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `name` is \"%.64s\", which is in use, expected a new name", who, name);
    if (weft__table_reserve(&schedule->names, schedule->names.count + 1) ||
        !(*copy = weft__strdup(name)))
        return weft__schedule_fail_memory(schedule, who);
    return WEFT_OK;
}

weft_slot_t weft_schedule_add_slot(struct weft_schedule *schedule, const char *name,
                                   weft_dtype_t dtype, size_t count, weft_slot_kind_t kind)
{
    size_t element = weft_dtype_size(dtype);
    char *copy = NULL;
    int status;

    WEFT__ENTER(schedule);
    if (!element)
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `dtype` is %d, expected a datatype (0..%d, or one of "
            "weft_dtype_opaque())",
            __func__, (int)dtype, WEFT_DTYPE_COUNT - 1);
    if (count > PTRDIFF_MAX / element)
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `count` is %zu, expected at most %zu elements of %zu bytes", __func__,
            count, (size_t)PTRDIFF_MAX / element, element);
    if ((int)kind < WEFT_SLOT_INPUT || kind > WEFT_SLOT_SCRATCH)
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `kind` is %d, expected WEFT_SLOT_INPUT, _OUTPUT, _INOUT or "
            "_SCRATCH",
            __func__, (int)kind);
    if (schedule->buffer_count == INT32_MAX)
        return weft__schedule_fail(schedule, WEFT_ERR_UNSUPPORTED, "%s: more than %d slots",
                                   __func__, INT32_MAX);
    status = copy_name(schedule, __func__, name, 0, &copy);
    if (status)
        return status;
    if (weft__grow((void **)&schedule->buffers, &schedule->buffer_capacity,
                   schedule->buffer_count + 1, sizeof *schedule->buffers)) {
        weft__free(copy);
        return weft__schedule_fail_memory(schedule, __func__);
    }
    schedule->buffers[schedule->buffer_count++] =
        (struct weft__buffer){.name = copy, .count = count, .dtype = dtype, .kind = kind};
    name_put(schedule, 2 * ((uint32_t)schedule->buffer_count - 1));
    return (weft_slot_t)(schedule->buffer_count - 1);
}

const char *weft__memory_word(weft_memory_t memory)
{
    return memory == WEFT_MEMORY_DEVICE ? "device" : "host";
}

int weft_schedule_set_memory(struct weft_schedule *schedule, weft_slot_t slot, weft_memory_t memory)
{
    size_t first = slot == WEFT_SLOT_ALL ? 0 : (size_t)slot;

    WEFT__ENTER(schedule);
    if (slot != WEFT_SLOT_ALL && (slot < 0 || first >= schedule->buffer_count))
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `slot` is %d, expected one of %zu slots, from 0, "
                                   "or WEFT_SLOT_ALL",
                                   __func__, slot, schedule->buffer_count);
    if (memory != WEFT_MEMORY_HOST && memory != WEFT_MEMORY_DEVICE)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `memory` is %d, expected WEFT_MEMORY_HOST or "
                                   "_DEVICE",
                                   __func__, (int)memory);
    size_t end = slot == WEFT_SLOT_ALL ? schedule->buffer_count : first + 1;
    for (size_t i = first; i < end; i++)
        schedule->buffers[i].memory = memory;
    return WEFT_OK;
}

weft_value_t weft_schedule_add_value(struct weft_schedule *schedule, const char *name, uint64_t max)
{
    char *copy = NULL;
    int status;

    WEFT__ENTER(schedule);
    if (schedule->value_count == INT32_MAX)
        return weft__schedule_fail(schedule, WEFT_ERR_UNSUPPORTED, "%s: more than %d values",
                                   __func__, INT32_MAX);
    status = copy_name(schedule, __func__, name, 1, &copy);
    if (status)
        return status;
    if (weft__grow((void **)&schedule->values, &schedule->value_capacity, schedule->value_count + 1,
                   sizeof *schedule->values)) {
        weft__free(copy);
        return weft__schedule_fail_memory(schedule, __func__);
    }
    schedule->values[schedule->value_count++] =
        (struct weft__value){.name = copy, .max = max, .producer = -1};
    name_put(schedule, 2 * (uint32_t)schedule->value_count + 1);
    return (weft_value_t)schedule->value_count;
}

/* ---- order, choices, labels, results ---- */

static int check_node(struct weft_schedule *schedule, const char *who, const char *name, long index,
                      weft_node_t node)
{
    char argument[48];

    if (node >= 0 && (size_t)node < schedule->node_count)
        return WEFT_OK;
    return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                               "%s: argument `%s` is %d, expected one of the %zu nodes (from 0)",
                               who, weft__argument_text(argument, name, index), (int)node,
                               schedule->node_count);
}

int weft_schedule_add_order(struct weft_schedule *schedule, weft_node_t before, weft_node_t after)
{
    WEFT__ENTER(schedule);
    if (before == after && before >= 0 && (size_t)before < schedule->node_count)
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: arguments `before` and `after` are both %d, expected two nodes", __func__,
            (int)before);
    return weft__schedule_link(schedule, before, after, __func__);
}

int weft__schedule_link(struct weft_schedule *schedule, weft_node_t before, weft_node_t after,
                        const char *who)
{
    int status;

    WEFT__ENTER(schedule);
    if ((status = check_node(schedule, who, "before", -1, before)) ||
        (status = check_node(schedule, who, "after", -1, after)))
        return status;
    if (weft__grow((void **)&schedule->edges, &schedule->edge_capacity, schedule->edge_count + 1,
                   sizeof *schedule->edges))
        return weft__schedule_fail_memory(schedule, who);
    schedule->edges[schedule->edge_count++] =
        (struct weft__edge){(uint32_t)before, (uint32_t)after};
    return WEFT_OK;
}

int weft_schedule_set_any(struct weft_schedule *schedule, weft_node_t node)
{
    int status;

    WEFT__ENTER(schedule);
    if ((status = check_node(schedule, __func__, "node", -1, node)))
        return status;
    schedule->nodes[node].any = 1;
    return WEFT_OK;
}

int weft_schedule_add_choice(struct weft_schedule *schedule, const weft_node_t *events,
                             size_t count)
{
    int status;

    WEFT__ENTER(schedule);
    if (!events || !count)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `%s`, expected at least one event", __func__,
                                   count ? "events` is NULL" : "count` is 0");
    for (size_t i = 0; i < count; i++) {
        struct weft__snode *node;

        if ((status = check_node(schedule, __func__, "events", (long)i, events[i])))
            return status;
        node = &schedule->nodes[events[i]];
        if (node->kind != WEFT_NODE_EVENT)
            return weft__schedule_fail(
                schedule, WEFT_ERR_INVALID,
                "%s: argument `events[%zu]` is node %d, a %s, expected an event", __func__, i,
                (int)events[i], weft_node_kind_name((weft_node_kind_t)node->kind));
        if (node->choice >= 0)
            return weft__schedule_fail(
                schedule, WEFT_ERR_INVALID,
                "%s: argument `events[%zu]` is node %d, which is in choice %d, expected "
                "an event in none",
                __func__, i, (int)events[i], (int)node->choice);
        node->choice = schedule->choice_count;
    }
    schedule->choice_count++;
    return WEFT_OK;
}

int weft_schedule_set_label(struct weft_schedule *schedule, weft_node_t node, const char *label)
{
    size_t low = 0, high;
    char *copy = NULL;
    int status;

    WEFT__ENTER(schedule);
    if ((status = check_node(schedule, __func__, "node", -1, node)) ||
        (status = copy_line(schedule, __func__, "label", label, &copy)))
        return status;
    if (weft__grow((void **)&schedule->labels, &schedule->label_capacity, schedule->label_count + 1,
                   sizeof *schedule->labels)) {
        weft__free(copy);
        return weft__schedule_fail_memory(schedule, __func__);
    }
    /* Nearly always the last node is labelled, so look there first. */
    high = schedule->label_count;
    if (high && schedule->labels[high - 1].node < node)
        low = high;
    WEFT__SEARCH(low, high, middle, schedule->labels[middle].node < node)
    if (low < schedule->label_count && schedule->labels[low].node == node) {
        weft__free(schedule->labels[low].text);
        schedule->labels[low].text = copy;
        return WEFT_OK;
    }
    memmove(&schedule->labels[low + 1], &schedule->labels[low],
            (schedule->label_count - low) * sizeof *schedule->labels);
    schedule->labels[low] = (struct weft__label){node, copy};
    schedule->label_count++;
    return WEFT_OK;
}

static int check_result_op(struct weft_schedule *schedule, const char *who,
                           const struct weft_result *result)
{
    if (!result->op && result->ranks > 1 && result->kind == WEFT_RESULT_REGION)
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `result->op` is NULL, expected an operation for %d ranks", who,
            result->ranks);
    return WEFT_OK;
}

static int check_among(struct weft_schedule *schedule, const char *who,
                       const struct weft_result *result)
{
    if (result->ranks < 1 || result->ranks > schedule->size)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `result->ranks` is %d, expected 1..%d", who,
                                   result->ranks, schedule->size);
    unsigned char *seen = weft__calloc((size_t)schedule->size / 8 + 1, 1);
    if (!seen)
        return weft__schedule_fail_memory(schedule, who);
    int status = WEFT_OK;
    for (int i = 0; i < result->ranks && !status; i++) {
        int rank = result->among[i];
        if (rank < 0 || rank >= schedule->size)
            status = weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                         "%s: argument `result->among[%d]` is %d, expected 0..%d",
                                         who, i, rank, schedule->size - 1);
        else if (seen[rank / 8] >> (rank % 8) & 1)
            status = weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                         "%s: argument `result->among[%d]` is %d, which is in the "
                                         "list already, expected another rank",
                                         who, i, rank);
        else
            seen[rank / 8] |= (unsigned char)(1u << (rank % 8));
    }
    weft__free(seen);
    return status ? status : check_result_op(schedule, who, result);
}

static int check_result_ranks(struct weft_schedule *schedule, const char *who,
                              const struct weft_result *result)
{
    if (result->among)
        return check_among(schedule, who, result);
    if (result->first < 0 || result->first >= schedule->size)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `result->first` is %d, expected 0..%d", who,
                                   result->first, schedule->size - 1);
    if (result->ranks < 1 || result->ranks > schedule->size - result->first)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `result->ranks` is %d, expected 1..%d", who,
                                   result->ranks, schedule->size - result->first);
    return check_result_op(schedule, who, result);
}

static int check_result(struct weft_schedule *schedule, const char *who,
                        const struct weft_result *result)
{
    size_t most;
    int status;

    if (result->kind == WEFT_RESULT_AFTER_START) {
        if (result->from || result->own || result->op || result->dst.count || result->lossy)
            return weft__schedule_fail(
                schedule, WEFT_ERR_INVALID,
                "%s: argument `result` is WEFT_RESULT_AFTER_START and has a slot, an operation or "
                "a region, expected ranks only",
                who);
        return check_result_ranks(schedule, who, result);
    }
    if (result->kind != WEFT_RESULT_REGION)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `result->kind` is %d, expected "
                                   "WEFT_RESULT_REGION or _AFTER_START",
                                   who, (int)result->kind);
    status = weft__schedule_check_region(schedule, who, "result->dst", -1, &result->dst, 1);
    if (status)
        return status;
    if (!result->from || !weft__schedule_is_name(result->from))
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `result->from` is %s%.64s%s, expected the name of a slot", who,
            result->from ? "\"" : "", result->from && is_line(result->from) ? result->from : "NULL",
            result->from ? "\"" : "");
    if (result->lossy != 0 && result->lossy != 1)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `result->lossy` is %d, expected 0 or 1", who,
                                   result->lossy);
    if (result->own && !weft__schedule_is_name(result->own))
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `result->own` is \"%.64s\", expected the name of a slot or NULL", who,
            is_line(result->own) ? result->own : "");
    most = PTRDIFF_MAX / weft_dtype_size(schedule->buffers[result->dst.slot].dtype);
    if (result->offset > most - result->dst.count)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `result->offset` is %zu, expected offset + %zu to "
                                   "be at most %zu elements",
                                   who, result->offset, result->dst.count, most);
    return check_result_ranks(schedule, who, result);
}

/* Ranges are kept as such, so that a list and a range that say the same are the same. */
static int is_range(const struct weft_result *result)
{
    for (int i = 1; result->among && i < result->ranks; i++)
        if (result->among[i] != result->among[i - 1] + 1)
            return 0;
    return 1;
}

int weft_schedule_add_result(struct weft_schedule *schedule, const struct weft_result *given)
{
    struct weft_result full;
    const struct weft_result *result = &full;
    char *from = NULL, *own = NULL;
    int *among = NULL;
    int status;

    WEFT__ENTER(schedule);
    if (!given)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `result` is NULL, expected a result", __func__);
    if (weft_sized_read(__func__, "result", given, &full, sizeof full)) {
        char text[512];

        snprintf(text, sizeof text, "%s", weft_error_text());
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID, "%s", text);
    }
    status = check_result(schedule, __func__, result);
    if (status) {
        if (status == WEFT_ERR_INVALID)
            schedule->refusal = WEFT__REFUSAL_REGION;
        return status;
    }
    if (result->from)
        from = weft__strdup(result->from);
    if (result->own)
        own = weft__strdup(result->own);
    if (!is_range(result)) {
        among = weft__malloc((size_t)result->ranks, sizeof *among);
        if (among)
            memcpy(among, result->among, (size_t)result->ranks * sizeof *among);
    }
    if ((result->from && !from) || (result->own && !own) || (!among && !is_range(result)) ||
        weft__grow((void **)&schedule->results, &schedule->result_capacity,
                   schedule->result_count + 1, sizeof *schedule->results)) {
        weft__free(from);
        weft__free(own);
        weft__free(among);
        return weft__schedule_fail_memory(schedule, __func__);
    }
    schedule->results[schedule->result_count] = *result;
    schedule->results[schedule->result_count].from = from;
    schedule->results[schedule->result_count].own = own;
    schedule->results[schedule->result_count].among = among;
    if (result->among)
        schedule->results[schedule->result_count].first = result->among[0];
    schedule->result_count++;
    if (result->op)
        weft_op_retain(result->op);
    return WEFT_OK;
}
