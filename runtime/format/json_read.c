/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The JSON format, read. Jansson makes a tree of it; here the tree is walked, and every value taken
 * is checked.
 */
#include "runtime/format/json_get.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* What the tree takes for a byte of text, as measured. */
enum { TREE_BYTES = 12 };

/* ---- regions ---- */

static int read_region(struct weft__json_reader *r, const json_t *object,
                       struct weft_region *region, int *read, int *written)
{
    static const char *const keys[] = {"slot", "offset", "count", "value", "read", "written", NULL};
    const char *name;
    uint64_t offset = 0, count;
    int status;

    *region = (struct weft_region){0};
    if ((status = weft__json_check_object(r, object, keys)) ||
        (status = weft__json_get_text(r, object, "slot", 0, &name)) ||
        (status = weft__json_get_number(r, object, "offset", 1, PTRDIFF_MAX, &offset)) ||
        (status = weft__json_get_number(r, object, "count", 0, PTRDIFF_MAX, &count)) ||
        (status = weft__json_get_value(r, object, "value", &region->value)) ||
        (status = weft__json_get_flag(r, object, "read", read)) ||
        (status = weft__json_get_flag(r, object, "written", written)))
        return status;
    region->slot = weft__schedule_find_slot(r->schedule, name, strlen(name));
    region->offset = (size_t)offset;
    region->count = (size_t)count;
    if (region->slot >= 0)
        return WEFT_OK;
    weft__json_push_key(r, "slot");
    status = weft__json_fail(r, "is \"%.40s\", expected the name of a slot", name);
    weft__json_pop(r);
    return status;
}

/* The regions of a node into r->arguments; `wanted` of them, or any number if that is negative. A
 * region that does not say whether it is written or read is read. */
static int read_regions(struct weft__json_reader *r, const json_t *node, int wanted, size_t *count)
{
    const json_t *array;
    char what[32];
    int status = weft__json_get_array(r, node, "regions", 0, &array);

    *count = json_array_size(array);
    if (status)
        return status;
    weft__json_push_key(r, "regions");
    snprintf(what, sizeof what, "%d regions", wanted);
    if (wanted >= 0 && *count != (size_t)wanted)
        return weft__json_fail(r, "has %zu, expected %s", *count, what);
    if (weft__grow((void **)&r->arguments, &r->argument_capacity, *count, sizeof *r->arguments))
        return weft__error_memory("the regions of a node");
    for (size_t i = 0; i < *count; i++) {
        struct weft_compute_argument *argument = &r->arguments[i];
        int read, written;

        weft__json_push_index(r, i);
        if ((status = read_region(r, json_array_get(array, i), &argument->region, &read, &written)))
            return status;
        if ((read || written) && wanted >= 0)
            return weft__json_fail(r, "has the key \"%s\", expected it in compute nodes only",
                                   written ? "written" : "read");
        argument->access = !written ? WEFT_READ : read ? WEFT_UPDATE : WEFT_WRITE;
        weft__json_pop(r);
    }
    weft__json_pop(r);
    return WEFT_OK;
}

/* ---- nodes ---- */

static weft_node_t read_message(struct weft__json_reader *r, const json_t *node,
                                weft_node_kind_t kind)
{
    static const char *const send_keys[] = {"kind", "label", "regions", "peer",
                                            "tag",  "any",   "after",   NULL};
    static const char *const recv_keys[] = {"kind",  "label",    "regions", "peer",  "tag",
                                            "up_to", "produces", "any",     "after", NULL};
    struct weft_schedule *s = r->schedule;
    uint64_t peer, tag = 0;
    weft_value_t produces;
    size_t count;
    int up_to, status;

    if ((status =
             weft__json_check_object(r, node, kind == WEFT_NODE_SEND ? send_keys : recv_keys)) ||
        (status = read_regions(r, node, 1, &count)) ||
        (status = weft__json_get_number(r, node, "peer", 0, INT_MAX, &peer)) ||
        (status = weft__json_get_number(r, node, "tag", 1, UINT32_MAX, &tag)) ||
        (status = weft__json_get_flag(r, node, "up_to", &up_to)) ||
        (status = weft__json_get_value(r, node, "produces", &produces)))
        return status;
    if (kind == WEFT_NODE_SEND)
        return weft_schedule_add_send(s, r->arguments[0].region, (int)peer, (uint32_t)tag);
    if (up_to)
        return weft_schedule_add_recv_up_to(s, r->arguments[0].region, (int)peer, (uint32_t)tag,
                                            produces);
    if (produces)
        return weft__json_fail(r, "has the key \"produces\", expected \"up_to\": true with it");
    return weft_schedule_add_recv(s, r->arguments[0].region, (int)peer, (uint32_t)tag);
}

static weft_node_t read_operation(struct weft__json_reader *r, const json_t *node,
                                  weft_node_kind_t kind)
{
    static const char *const copy_keys[] = {"kind", "label", "regions", "any", "after", NULL};
    static const char *const reduce_keys[] = {"kind", "label", "op", "regions",
                                              "any",  "after", NULL};
    static const char *const compute_keys[] = {"kind", "label",    "op",    "regions",
                                               "any",  "produces", "after", NULL};
    const char *const *keys = kind == WEFT_NODE_COPY     ? copy_keys
                              : kind == WEFT_NODE_REDUCE ? reduce_keys
                                                         : compute_keys;
    int wanted = kind == WEFT_NODE_COPY ? 2 : kind == WEFT_NODE_REDUCE ? 3 : -1;
    const struct weft_op *op;
    weft_value_t produces;
    size_t count;
    int status;

    if ((status = weft__json_check_object(r, node, keys)) ||
        (status = weft__json_get_op(r, node, kind == WEFT_NODE_COPY, &op)) ||
        (status = read_regions(r, node, wanted, &count)) ||
        (status = weft__json_get_value(r, node, "produces", &produces)))
        return status;
    if (kind == WEFT_NODE_COPY)
        return weft_schedule_add_copy(r->schedule, r->arguments[0].region, r->arguments[1].region);
    if (kind == WEFT_NODE_REDUCE)
        return weft_schedule_add_reduce(r->schedule, op, r->arguments[0].region,
                                        r->arguments[1].region, r->arguments[2].region);
    return weft_schedule_add_compute(r->schedule, op, r->arguments, count, produces);
}

static weft_node_t read_control(struct weft__json_reader *r, const json_t *node,
                                weft_node_kind_t kind)
{
    static const char *const join_keys[] = {"kind", "label", "any", "after", NULL};
    static const char *const event_keys[] = {"kind", "label", "channel", "choice",
                                             "any",  "after", NULL};
    static const char *const signal_keys[] = {"kind", "label", "peer", "channel",
                                              "any",  "after", NULL};
    uint64_t peer = 0, channel = WEFT_CHANNEL_NONE, choice = UINT64_MAX;
    weft_node_t event;
    int status;

    if (kind == WEFT_NODE_JOIN) {
        status = weft__json_check_object(r, node, join_keys);
        return status ? status : weft_schedule_add_join(r->schedule);
    }
    if (kind == WEFT_NODE_SIGNAL) {
        if ((status = weft__json_check_object(r, node, signal_keys)) ||
            (status = weft__json_get_number(r, node, "peer", 0, INT_MAX, &peer)) ||
            (status = weft__json_get_number(r, node, "channel", 0, UINT32_MAX - 1, &channel)))
            return status;
        return weft_schedule_add_signal(r->schedule, (int)peer, (uint32_t)channel);
    }
    if ((status = weft__json_check_object(r, node, event_keys)) ||
        (status = weft__json_get_number(r, node, "channel", 1, UINT32_MAX - 1, &channel)) ||
        (status = weft__json_get_number(r, node, "choice", 1, UINT32_MAX, &choice)))
        return status;
    event = weft_schedule_add_event(r->schedule, (uint32_t)channel);
    if (event >= 0 && choice != UINT64_MAX &&
        (status = weft__document_choice(r->document, choice, event)))
        return status;
    return event;
}

static weft_node_t read_kind(struct weft__json_reader *r, const json_t *node)
{
    const char *name;
    int status;

    if (!json_is_object(node))
        return weft__json_expected(r, node, "an object");
    if ((status = weft__json_get_text(r, node, "kind", 0, &name)))
        return status;
    for (int kind = 0; kind < WEFT_NODE_KIND_COUNT; kind++) {
        if (strcmp(name, weft_node_kind_name((weft_node_kind_t)kind)) != 0)
            continue;
        if (kind == WEFT_NODE_SEND || kind == WEFT_NODE_RECV)
            return read_message(r, node, (weft_node_kind_t)kind);
        if (kind == WEFT_NODE_REDUCE || kind == WEFT_NODE_COPY || kind == WEFT_NODE_COMPUTE)
            return read_operation(r, node, (weft_node_kind_t)kind);
        return read_control(r, node, (weft_node_kind_t)kind);
    }
    weft__json_push_key(r, "kind");
    return weft__json_fail(
        r, "is \"%.40s\", expected send, recv, reduce, copy, compute, join, event or signal", name);
}

static int read_node(struct weft__json_reader *r, const json_t *node)
{
    const char *label;
    int any, status;
    weft_node_t added = weft__json_built(r, read_kind(r, node));

    if (added < 0)
        return added;
    if ((status = weft__json_get_text(r, node, "label", 1, &label)) ||
        (status = weft__json_get_flag(r, node, "any", &any)))
        return status;
    if (label && (status = weft__json_built(r, weft_schedule_set_label(r->schedule, added, label))))
        return status;
    return any ? weft__json_built(r, weft_schedule_set_any(r->schedule, added)) : WEFT_OK;
}

/* The orders of node `after`, when all nodes are there. */
static int read_after(struct weft__json_reader *r, const json_t *node, weft_node_t after)
{
    size_t nodes = weft_schedule_node_count(r->schedule);
    const json_t *array;
    char what[64];
    int status = weft__json_get_array(r, node, "after", 1, &array);

    if (status || !array)
        return status;
    weft__json_push_key(r, "after");
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *before = json_array_get(array, i);

        weft__json_push_index(r, i);
        if (!json_is_integer(before) || json_integer_value(before) < 0 ||
            (uint64_t)json_integer_value(before) >= nodes) {
            snprintf(what, sizeof what, "the index of a node, 0 to %zu", nodes - 1);
            return weft__json_expected(r, before, what);
        }
        status = weft__json_built(r, weft__schedule_link(r->schedule,
                                                         (weft_node_t)json_integer_value(before),
                                                         after, __func__));
        if (status)
            return status;
        weft__json_pop(r);
    }
    weft__json_pop(r);
    return WEFT_OK;
}

/* ---- ranks ---- */

/* Calls `read` on every entry of an array; absent is empty. */
static int for_each(struct weft__json_reader *r, const json_t *object, const char *key,
                    int (*read)(struct weft__json_reader *r, const json_t *entry))
{
    const json_t *array;
    struct weft__progress progress;
    char lack[128];
    int status = weft__json_get_array(r, object, key, 1, &array);

    if (status || !array)
        return status;
    weft__json_push_key(r, key);
    weft__progress_begin(&progress, r->document, json_array_size(array));
    for (size_t i = 0; i < json_array_size(array); i++) {
        weft__json_push_index(r, i);
        if ((status = read(r, json_array_get(array, i))))
            return status;
        if (weft__document_lacks(r->document, weft__progress_needs(&progress, r->document), lack,
                                 sizeof lack))
            return weft__json_fail(r, "belongs to a document that needs %s", lack);
        weft__json_pop(r);
    }
    weft__json_pop(r);
    return WEFT_OK;
}

static int read_buffer(struct weft__json_reader *r, const json_t *object)
{
    static const char *const keys[] = {"name", "kind", "dtype", "count", "memory", NULL};
    const char *name, *kind, *dtype, *memory;
    weft_dtype_t known;
    int kind_index = 0, status;
    char list[160];
    uint64_t count;

    if ((status = weft__json_check_object(r, object, keys)) ||
        (status = weft__json_get_text(r, object, "name", 0, &name)) ||
        (status = weft__json_get_text(r, object, "kind", 0, &kind)) ||
        (status = weft__json_get_text(r, object, "dtype", 0, &dtype)) ||
        (status = weft__json_get_number(r, object, "count", 0, PTRDIFF_MAX, &count)) ||
        (status = weft__json_get_text(r, object, "memory", 1, &memory)))
        return status;
    while (kind_index <= WEFT_SLOT_SCRATCH &&
           strcmp(weft__slot_word((weft_slot_kind_t)kind_index), kind) != 0)
        kind_index++;
    if (kind_index > WEFT_SLOT_SCRATCH)
        return weft__json_fail(
            r, "has the kind \"%.40s\", expected input, output, inout or scratch", kind);
    if (!weft__dtype_find(dtype, strlen(dtype), &known)) {
        weft__dtype_names(list, sizeof list);
        return weft__json_fail(r, "has the dtype \"%.40s\", expected one of %s", dtype, list);
    }
    if (memory && strcmp(memory, "host") != 0 && strcmp(memory, "device") != 0)
        return weft__json_fail(r, "has the memory \"%.40s\", expected host or device", memory);
    status = weft__json_built(r, weft_schedule_add_slot(r->schedule, name, known, (size_t)count,
                                                        (weft_slot_kind_t)kind_index));
    if (status < 0 || !memory || memory[0] == 'h')
        return status < 0 ? status : WEFT_OK;
    return weft_schedule_set_memory(r->schedule, status, WEFT_MEMORY_DEVICE);
}

static int read_value(struct weft__json_reader *r, const json_t *object)
{
    static const char *const keys[] = {"name", "max", NULL};
    const char *name;
    uint64_t max;
    int status;

    if ((status = weft__json_check_object(r, object, keys)) ||
        (status = weft__json_get_text(r, object, "name", 0, &name)) ||
        (status = weft__json_get_max(r, object, &max)))
        return status;
    status = weft__json_built(r, weft_schedule_add_value(r->schedule, name, max));
    return status < 0 ? status : WEFT_OK;
}

/* "among" of a result: a list of ranks, that the caller frees; NULL without the key. */
static int read_among(struct weft__json_reader *r, const json_t *object, int **among, int *ranks)
{
    const json_t *array;
    int status = weft__json_get_array(r, object, "among", 1, &array);

    *among = NULL;
    if (status || !array)
        return status;
    size_t count = json_array_size(array);
    if (count > INT_MAX || !(*among = weft__malloc(count ? count : 1, sizeof **among)))
        return weft__error_memory("a list of ranks");
    *ranks = (int)count;
    for (size_t i = 0; i < count; i++) {
        json_int_t rank = json_integer_value(json_array_get(array, i));
        /* What is no number is no rank either: the schedule refuses it. */
        int valid = json_is_integer(json_array_get(array, i)) && rank >= 0 && rank <= INT_MAX;
        (*among)[i] = valid ? (int)rank : -1;
    }
    return WEFT_OK;
}

/* What a result states beside its ranks. */
static int read_statement(struct weft__json_reader *r, const json_t *object,
                          struct weft_result *result)
{
    static const char *const region_keys[] = {"region", "op",    "from", "offset", "first",
                                              "ranks",  "among", "own",  "lossy",  NULL};
    static const char *const start_keys[] = {"after", "first", "ranks", "among", NULL};
    const char *after;
    uint64_t offset = 0;
    int read, written, status;

    if (json_object_get(object, "after")) {
        result->kind = WEFT_RESULT_AFTER_START;
        if ((status = weft__json_check_object(r, object, start_keys)) ||
            (status = weft__json_get_text(r, object, "after", 0, &after)))
            return status;
        return !strcmp(after, "start")
                   ? WEFT_OK
                   : weft__json_fail(r, "is after \"%.40s\", expected \"start\"", after);
    }
    if ((status = weft__json_check_object(r, object, region_keys)))
        return status;
    weft__json_push_key(r, "region");
    if ((status = read_region(r, json_object_get(object, "region"), &result->dst, &read, &written)))
        return status;
    weft__json_pop(r);
    if ((status = weft__json_get_op(r, object, 1, &result->op)) ||
        (status = weft__json_get_text(r, object, "from", 0, &result->from)) ||
        (status = weft__json_get_text(r, object, "own", 1, &result->own)) ||
        (status = weft__json_get_flag(r, object, "lossy", &result->lossy)) ||
        (status = weft__json_get_number(r, object, "offset", 1, PTRDIFF_MAX, &offset)))
        return status;
    result->offset = (size_t)offset;
    return WEFT_OK;
}

static int read_result(struct weft__json_reader *r, const json_t *object)
{
    struct weft_result result = {.struct_size = sizeof result};
    uint64_t first = 0, ranks = 1;
    int *among = NULL, listed = json_object_get(object, "among") != NULL, status;

    if ((status = read_statement(r, object, &result)) ||
        (status = weft__json_get_number(r, object, "first", listed, INT_MAX, &first)) ||
        (status = weft__json_get_number(r, object, "ranks", 1, INT_MAX, &ranks)))
        return status;
    result.first = (int)first;
    result.ranks = (int)ranks;
    status = read_among(r, object, &among, &result.ranks);
    result.among = among;
    if (!status)
        status = weft__json_built(r, weft_schedule_add_result(r->schedule, &result));
    weft__free(among);
    return status;
}

static int read_rank(struct weft__json_reader *r, const json_t *object)
{
    static const char *const keys[] = {"rank", "buffers", "values", "nodes", "results", NULL};
    struct weft__document *document = r->document;
    const json_t *nodes;
    uint64_t rank;
    int status;

    if ((status = weft__json_check_object(r, object, keys)) ||
        (status = weft__json_get_number(r, object, "rank", 0, (uint64_t)document->size - 1, &rank)))
        return status;
    if (document->count &&
        (int)rank <= weft_schedule_rank(document->schedules[document->count - 1]))
        return weft__json_fail(r, "is of rank %d, expected ranks in ascending order", (int)rank);
    if ((status = weft__json_built(r, weft__document_rank(document, (int)rank))))
        return status;
    r->schedule = document->schedules[document->count - 1];
    if ((status = for_each(r, object, "buffers", read_buffer)) ||
        (status = for_each(r, object, "values", read_value)) ||
        (status = for_each(r, object, "nodes", read_node)))
        return status;
    nodes = json_object_get(object, "nodes");
    weft__json_push_key(r, "nodes");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        weft__json_push_index(r, i);
        if ((status = read_after(r, json_array_get(nodes, i), (weft_node_t)i)))
            return status;
        weft__json_pop(r);
    }
    weft__json_pop(r);
    if ((status = weft__json_built(r, weft__document_choose(document))))
        return status;
    return for_each(r, object, "results", read_result);
}

static int read_document(struct weft__json_reader *r, const json_t *root)
{
    static const char *const keys[] = {"weft", "schedule", "size", "ranks", NULL};
    struct weft__document *document = r->document;
    const json_t *ranks;
    uint64_t version, size;
    const char *name;
    int status;

    if ((status = weft__json_check_object(r, root, keys)) ||
        (status = weft__json_get_number(r, root, "weft", 0, 1, &version)) ||
        (status = weft__json_get_text(r, root, "schedule", 0, &name)) ||
        (status = weft__json_get_number(r, root, "size", 0, INT_MAX, &size)) ||
        (status = weft__json_get_array(r, root, "ranks", 0, &ranks)))
        return status;
    if (version != 1)
        return weft__json_fail(r, "has version %d of the format, expected 1", (int)version);
    if (size < 1)
        return weft__json_fail(r, "has size 0, expected at least 1");
    if (!json_array_size(ranks))
        return weft__json_fail(r, "has no ranks, expected at least one");
    document->size = (int)size;
    document->name = weft__strdup(name);
    if (!document->name)
        return weft__error_memory("the name of a schedule");
    return for_each(r, root, "ranks", read_rank);
}

int weft__read_json(struct weft__document *document)
{
    struct weft__json_reader r = {.document = document};
    json_error_t error;
    json_t *root;
    char lack[128];
    int status;

    document->reader_bytes = (double)document->length * TREE_BYTES;
    if (weft__document_lacks(document, 0, lack, sizeof lack))
        return weft__error(WEFT_ERR_FORMAT, "line 1: a JSON document of %zu bytes needs %s",
                           document->length, lack);
    root = json_loadb(document->text, document->length, JSON_REJECT_DUPLICATES, &error);
    if (document->parameter_count) {
        json_decref(root);
        return weft__error(WEFT_ERR_FORMAT,
                           "line 1: the document has no parameter `%.64s`, expected none: JSON "
                           "declares no parameters",
                           document->parameters[0].name);
    }
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        return weft__error_memory("a JSON document");
    if (!root)
        return weft__error(WEFT_ERR_FORMAT,
                           "line %d, column %d: found what is not JSON: %s, "
                           "expected a JSON document",
                           error.line, error.column, error.text);
    status = read_document(&r, root);
    json_decref(root);
    weft__free(r.arguments);
    return status;
}
