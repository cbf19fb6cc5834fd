/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dumps of ranks, read. A rank may have left several (a run failed, then another one): for each
 * object the dump counts in which it was still active in the version that failed first, unless a
 * later one shows that it went on.
 */
#include "tools/commands/post_mortem.h"

#include <stdlib.h>
#include <string.h>

/* ---- JSON ---- */

/* An integer from @p least on; @p standard if it is left out. Anything else is noted in *wrong. */
static long long integer(const json_t *object, const char *key, long long least, long long most,
                         long long standard, const char **wrong)
{
    const json_t *value = json_object_get(object, key);

    if (!value)
        return standard;
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most) {
        *wrong = key;
        return standard;
    }
    return json_integer_value(value);
}

/* The place of a word in a list that ends with NULL. */
static int word(const json_t *object, const char *key, const char *const *words, const char **wrong)
{
    const char *value = json_string_value(json_object_get(object, key));

    for (int i = 0; value && words[i]; i++)
        if (strcmp(value, words[i]) == 0)
            return i;
    *wrong = key;
    return 0;
}

static weft_node_kind_t kind_of(const json_t *object, const char **wrong)
{
    const char *value = json_string_value(json_object_get(object, "kind"));

    for (int k = 0; value && weft_node_kind_name((weft_node_kind_t)k); k++)
        if (strcmp(value, weft_node_kind_name((weft_node_kind_t)k)) == 0)
            return (weft_node_kind_t)k;
    *wrong = "kind";
    return WEFT_NODE_JOIN;
}

static struct pm_message load_message(const json_t *json, const char **wrong)
{
    return (struct pm_message){integer(json, "object", 0, INT64_MAX, -1, wrong),
                               integer(json, "version", 0, INT64_MAX, -1, wrong),
                               integer(json, "from", 0, INT32_MAX, -1, wrong),
                               integer(json, "tag", 0, UINT32_MAX, -1, wrong),
                               integer(json, "bytes", 0, INT64_MAX, 0, wrong)};
}

static int load_node(struct pm_node *node, const json_t *json, const char **wrong)
{
    static const char *const states[] = {"ended",   "retired", "blocked", "ready",
                                         "running", "waiting", NULL};
    const json_t *after = json_object_get(json, "after");
    const json_t *since = json_object_get(json, "since_s");
    const json_t *instead = json_object_get(json, "instead");

    node->number = (int)integer(json, "node", 0, INT32_MAX, -1, wrong);
    node->kind = kind_of(json, wrong);
    node->state = (enum pm_state)word(json, "state", states, wrong);
    node->peer = (int)integer(json, "peer", INT32_MIN, INT32_MAX, -1, wrong);
    int channelled = node->kind == WEFT_NODE_EVENT || node->kind == WEFT_NODE_SIGNAL;
    node->tag = integer(json, channelled ? "channel" : "tag", 0, UINT32_MAX, -1, wrong);
    node->bytes = integer(json, "bytes", 0, INT64_MAX, 0, wrong);
    node->since_s = json_is_number(since) ? json_number_value(since) : -1;
    node->label = json_string_value(json_object_get(json, "label"));
    node->line = (int)integer(json, "line", 1, INT32_MAX, 0, wrong);
    node->has_instead = instead != NULL;
    if (instead)
        node->instead = load_message(instead, wrong);
    if (node->number < 0)
        *wrong = "node";
    node->after = weft_memory_alloc(json_array_size(after) + 1, sizeof *node->after);
    for (size_t i = 0; node->after && i < json_array_size(after); i++) {
        const json_t *number = json_array_get(after, i);
        if (!json_is_integer(number))
            *wrong = "after";
        node->after[node->after_count++] = (int)json_integer_value(number);
    }
    return node->after ? 0 : -1;
}

static int load_object(struct pm_object *object, const json_t *json, const char **wrong)
{
    static const char *const stages[] = {"idle", "queued", "active", "ended", NULL};
    static const char *const kinds[] = {"run", "series", "object", NULL};
    const json_t *nodes = json_object_get(json, "nodes");

    object->number = integer(json, "object", 0, INT64_MAX, -1, wrong);
    pm_name(object->number, object->name);
    object->kind = (enum pm_kind)word(json, "kind", kinds, wrong);
    object->members = integer(json, "members", 0, INT64_MAX, 0, wrong);
    object->plan = json_string_value(json_object_get(json, "plan"));
    object->stage = (enum pm_stage)word(json, "state", stages, wrong);
    object->version = integer(json, "version", 0, INT64_MAX, PM_NO_VERSION, wrong);
    object->floor = integer(json, "floor", 0, INT64_MAX, 0, wrong);
    object->failing = integer(json, "failing", 0, INT64_MAX, PM_NO_VERSION, wrong);
    object->status = (int)integer(json, "status", INT32_MIN, INT32_MAX, 0, wrong);
    object->error = json_string_value(json_object_get(json, "error"));
    if (object->number < 0)
        *wrong = "object";
    if (object->kind == PM_SERIES && object->version == PM_NO_VERSION)
        object->version = object->floor - 1; /* between two versions */
    if (!json_is_array(nodes))
        *wrong = "nodes";
    object->nodes = weft_memory_alloc(json_array_size(nodes) + 1, sizeof *object->nodes);
    for (size_t i = 0; object->nodes && i < json_array_size(nodes); i++) {
        object->node_count++;
        if (load_node(&object->nodes[i], json_array_get(nodes, i), wrong))
            return -1;
        if (i > 0 && object->nodes[i].number <= object->nodes[i - 1].number)
            *wrong = "node";
    }
    return object->nodes ? 0 : -1;
}

static int load_rest(struct pm_rank *rank, const char **wrong)
{
    const json_t *unmatched = json_object_get(rank->json, "unmatched");
    const json_t *left = json_object_get(rank->json, "left");

    rank->unmatched = weft_memory_alloc(json_array_size(unmatched) + 1, sizeof *rank->unmatched);
    rank->left = weft_memory_alloc(json_array_size(left) + 1, sizeof *rank->left);
    if (!rank->unmatched || !rank->left)
        return -1;
    for (size_t i = 0; i < json_array_size(unmatched); i++) {
        const json_t *json = json_array_get(unmatched, i);
        rank->unmatched[rank->unmatched_count++] = load_message(json, wrong);
    }
    for (size_t i = 0; i < json_array_size(left); i++)
        rank->left[rank->left_count++] = (int)json_integer_value(json_array_get(left, i));
    return 0;
}

static int load_all(struct pm_rank *rank, const char **wrong)
{
    const json_t *json = rank->json;
    const json_t *objects = json_object_get(json, "objects");

    if (integer(json, "weft_state", 1, 1, 0, wrong) != 1) {
        *wrong = "weft_state";
        return 0;
    }
    rank->rank = (int)integer(json, "rank", 0, INT32_MAX - 1, -1, wrong);
    rank->size = (int)integer(json, "size", 1, INT32_MAX, 0, wrong);
    rank->sequence = integer(json, "sequence", 0, INT64_MAX, 0, wrong);
    rank->object_count = integer(json, "object_count", 0, INT64_MAX, 0, wrong);
    rank->group = json_string_value(json_object_get(json, "group"));
    rank->why = json_string_value(json_object_get(json, "why"));
    if (rank->rank < 0 || rank->rank >= rank->size)
        *wrong = "rank";
    if (!json_is_array(objects))
        *wrong = "objects";
    rank->objects = weft_memory_alloc(json_array_size(objects) + 1, sizeof *rank->objects);
    for (size_t i = 0; rank->objects && i < json_array_size(objects); i++) {
        rank->count++;
        if (load_object(&rank->objects[i], json_array_get(objects, i), wrong))
            return -1;
        if (rank->objects[i].stage == PM_ACTIVE && rank->objects[i].status < 0)
            rank->objects[i].error = rank->why; /* that is why the state was taken */
        if (i > 0 && rank->objects[i].number <= rank->objects[i - 1].number)
            *wrong = "object";
    }
    return rank->objects ? load_rest(rank, wrong) : -1;
}

int pm_load(struct pm_rank *rank, const char *path)
{
    const char *wrong = NULL;
    json_error_t error;

    *rank = (struct pm_rank){.path = path};
    rank->json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!rank->json && error.line < 0) { /* it could not be opened: the text has the name */
        return cli_usage("post-mortem", "%s; expected a file that WEFT_STATE has written",
                         error.text);
    }
    if (!rank->json)
        return cli_usage("post-mortem", "%s, line %d: %s", path, error.line, error.text);
    if (load_all(rank, &wrong))
        return cli_fail("post-mortem", "%s: out of memory", path);
    if (wrong) {
        return cli_usage("post-mortem",
                         "%s: no state of a rank (see `%s`); expected a file that WEFT_STATE or "
                         "weft_context_dump_state() has written",
                         path, wrong);
    }
    return 0;
}

static void free_object(struct pm_object *object)
{
    for (size_t n = 0; object->nodes && n < object->node_count; n++)
        weft_memory_free(object->nodes[n].after);
    weft_memory_free(object->nodes);
}

void pm_free(struct pm_rank *rank)
{
    for (size_t o = 0; rank->objects && o < rank->count; o++)
        free_object(&rank->objects[o]);
    weft_memory_free(rank->objects);
    weft_memory_free(rank->unmatched);
    weft_memory_free(rank->left);
    json_decref(rank->json);
}

/* ---- several dumps of one rank ---- */

/* Whether an object, active in an earlier dump, has gone on in a later one: that version has not
 * failed, or it is the same one a little later. */
static int went_on(const struct pm_object *before, const struct pm_object *later)
{
    int failed = later->failing != PM_NO_VERSION && later->failing <= before->version;

    return !failed && (later->stage == PM_ACTIVE || later->version > before->version ||
                       later->floor > before->version);
}

/* The messages that matched nothing in @p object, as they were in the dump that it is taken from: a
 * failure drops them. 0, or -1 without memory. */
static int take_unmatched(struct pm_rank *later, const struct pm_rank *before, long long object)
{
    size_t count = 0;
    struct pm_message *messages =
        weft_memory_alloc(later->unmatched_count + before->unmatched_count + 1, sizeof *messages);

    if (!messages)
        return -1;
    for (size_t i = 0; i < later->unmatched_count; i++)
        if (later->unmatched[i].object != object)
            messages[count++] = later->unmatched[i];
    for (size_t i = 0; i < before->unmatched_count; i++)
        if (before->unmatched[i].object == object)
            messages[count++] = before->unmatched[i];
    weft_memory_free(later->unmatched);
    later->unmatched = messages;
    later->unmatched_count = count;
    return 0;
}

/* Takes into @p later what @p before knows better. 0, or -1 without memory. */
static int take_over(struct pm_rank *later, struct pm_rank *before)
{
    for (size_t o = 0; o < before->count; o++) {
        struct pm_object *old = &before->objects[o];
        struct pm_object *now = pm_object_of(later, old->number);
        if (!now || old->stage != PM_ACTIVE || went_on(old, now))
            continue;
        struct pm_object swap = *now;
        *now = *old;
        *old = swap;
        if (take_unmatched(later, before, now->number))
            return -1;
    }
    return 0;
}

static int same_rank(const struct pm_rank *a, const struct pm_rank *b)
{
    return a->rank == b->rank && strcmp(a->group ? a->group : "", b->group ? b->group : "") == 0;
}

/* The JSON of the dumps that are merged away is still pointed to: they stay behind the others. */
int pm_merge(struct pm_rank *ranks, size_t count, size_t *merged)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (i + 1 < count && same_rank(&ranks[i], &ranks[i + 1])) {
            if (take_over(&ranks[i + 1], &ranks[i]))
                return -1;
            continue;
        }
        struct pm_rank swap = ranks[kept];
        ranks[kept++] = ranks[i];
        if (kept - 1 != i)
            ranks[i] = swap;
    }
    *merged = kept;
    return 0;
}

/* ---- finding ---- */

/* `list` ascends by `member`, and has no two of the same. */
#define FIND(list, count, member, wanted)                                                          \
    do {                                                                                           \
        size_t low = 0;                                                                            \
        size_t high = (count);                                                                     \
        while (low < high) {                                                                       \
            size_t middle = low + (high - low) / 2;                                                \
            if ((list)[middle].member < (wanted))                                                  \
                low = middle + 1;                                                                  \
            else                                                                                   \
                high = middle;                                                                     \
        }                                                                                          \
        return low < (count) && (list)[low].member == (wanted) ? &(list)[low] : NULL;              \
    } while (0)

struct pm_rank *pm_rank_of(const struct pm_program *program, int rank)
{
    FIND(program->ranks, program->count, rank, rank);
}

struct pm_object *pm_object_of(const struct pm_rank *rank, long long number)
{
    FIND(rank->objects, rank->count, number, number);
}

struct pm_node *pm_node_of(const struct pm_object *object, int number)
{
    FIND(object->nodes, object->node_count, number, number);
}

int pm_destroyed(const struct pm_rank *rank, long long number)
{
    long long whole = PM_NUMBER(number), member = number >> PM_NUMBER_BITS;

    if (whole >= rank->object_count || pm_object_of(rank, number))
        return 0;
    const struct pm_object *of = member ? pm_object_of(rank, whole) : NULL;
    return !of || member <= of->members;
}

const char *pm_name(long long number, char text[PM_NAME_BYTES])
{
    long long member = number >> PM_NUMBER_BITS;

    if (number == PM_SEQUENCE)
        snprintf(text, PM_NAME_BYTES, "sequence");
    else if (member)
        snprintf(text, PM_NAME_BYTES, "%lld.%lld", PM_NUMBER(number), member);
    else
        snprintf(text, PM_NAME_BYTES, "%lld", number);
    return text;
}

int pm_failed(const struct pm_object *object)
{
    return (object->stage == PM_ACTIVE || object->stage == PM_OVER) && object->status < 0 &&
           object->status != WEFT_ERR_TIMEOUT && object->status != WEFT_ERR_PEER &&
           object->status != WEFT_ERR_CANCELLED;
}

void pm_describe(const struct pm_node *node, char *text, size_t size)
{
    char name[140];
    char line[24] = "";
    const char *kind = weft_node_kind_name(node->kind);

    if (node->line)
        snprintf(line, sizeof line, ", line %d", node->line);
    if (node->label)
        snprintf(name, sizeof name, "node %d `%.80s`%s", node->number, node->label, line);
    else
        snprintf(name, sizeof name, "node %d%s", node->number, line);
    if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV) {
        snprintf(text, size, "%s (%s %s rank %d, tag %lld, %lld bytes)", name, kind,
                 node->kind == WEFT_NODE_SEND ? "to" : "from", node->peer, node->tag, node->bytes);
    } else if (node->kind == WEFT_NODE_SIGNAL) {
        snprintf(text, size, "%s (signal to rank %d, channel %lld)", name, node->peer, node->tag);
    } else if (node->kind == WEFT_NODE_EVENT && node->tag >= 0) {
        snprintf(text, size, "%s (event, channel %lld)", name, node->tag);
    } else {
        snprintf(text, size, "%s (%s)", name, kind);
    }
}
