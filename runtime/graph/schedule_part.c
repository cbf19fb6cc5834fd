/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Putting a schedule into another one: its nodes are copied behind those that are there, and what
 * they name is translated.
 *
 *     in the part     slot s          value v    node n     tag t      channel c        rank r
 *     afterwards      a region        base + v   base + n   tag + t    channel + c      ranks[r]
 *
 * The part has been built without an error, so its nodes are right by themselves, and stay so: a
 * slot becomes a region of the same datatype, which may be written if the slot is, and no two
 * overlap that did not before. So nodes are copied without being checked again.
 */
#include "runtime/graph/lists.h"
#include "runtime/graph/schedule.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/joint.h"
#include "runtime/graph/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weft_part_config_init_sized(struct weft_part_config *config, size_t size)
{
    weft_sized_init(config, size);
}

/* One call of weft_schedule_add_part(). */
struct putting {
    struct weft_schedule *schedule;
    const struct weft_schedule *part;
    const char *who;
    const char *name;
    struct weft_part_config config;
    struct weft_region *places; /* of the part's slots; slot -1: not yet known */
    size_t *given;              /* of the user's ones: which of config.slots says so */
    uint32_t node;              /* what the part's node 0 becomes */
    weft_value_t value;         /* one less than what its value 1 becomes */
    int32_t choice;
};

#define REFUSE(p, ...) weft__schedule_fail((p)->schedule, WEFT_ERR_INVALID, __VA_ARGS__)

/* ---- arguments ---- */

static int check_ranks(const struct putting *p)
{
    const struct weft_schedule *s = p->schedule, *part = p->part;
    const int *ranks = p->config.ranks;

    if (!ranks) {
        if (part->size > s->size)
            return REFUSE(p,
                          "%s: part `%.64s` is for %d ranks, expected at most the %d of the "
                          "schedule, or config->ranks",
                          p->who, part->name, part->size, s->size);
        if (part->rank != s->rank)
            return REFUSE(p,
                          "%s: part `%.64s` is of rank %d, expected %d as the schedule, or "
                          "config->ranks",
                          p->who, part->name, part->rank, s->rank);
        return WEFT_OK;
    }
    unsigned char *seen = weft__calloc((size_t)s->size, 1);
    if (!seen)
        return weft__schedule_fail_memory(p->schedule, p->who);
    int status = WEFT_OK;
    for (int r = 0; r < part->size && !status; r++)
        if (ranks[r] < 0 || ranks[r] >= s->size)
            status = REFUSE(p, "%s: config->ranks[%d] is %d, expected 0..%d", p->who, r, ranks[r],
                            s->size - 1);
        else if (seen[ranks[r]]++)
            status = REFUSE(p,
                            "%s: config->ranks[%d] is %d, which is in the list already, expected "
                            "another rank",
                            p->who, r, ranks[r]);
    if (!status && ranks[part->rank] != s->rank)
        status = REFUSE(p,
                        "%s: config->ranks[%d] is %d, expected %d, since the part is of rank %d "
                        "and the schedule of that",
                        p->who, part->rank, ranks[part->rank], s->rank, part->rank);
    weft__free(seen);
    return status;
}

static int has_channel(const struct weft__snode *node)
{
    return (node->kind == WEFT_NODE_EVENT || node->kind == WEFT_NODE_SIGNAL) &&
           node->tag != WEFT_CHANNEL_NONE;
}

/* Tags and channels stay numbers when they are moved. */
static int check_numbers(const struct putting *p)
{
    const struct weft_part_config *config = &p->config;

    for (size_t n = 0; n < p->part->node_count; n++) {
        const struct weft__snode *node = &p->part->nodes[n];
        const struct weft__joint *joint = weft__snode_joint(node);
        int message = node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV || joint;
        uint32_t tag = joint ? weft__joint_last_tag(joint) : node->tag;
        int channel = has_channel(node);

        if (message && config->tag_count && tag >= config->tag_count)
            return REFUSE(p,
                          "%s: config->tag_count is %u, but node %zu of part `%.64s` has tag %u, "
                          "expected all tags below it",
                          p->who, config->tag_count, n, p->part->name, tag);
        if (message && tag > UINT32_MAX - config->tag)
            return REFUSE(p,
                          "%s: config->tag is %u, expected at most %u for tag %u of node %zu of "
                          "part `%.64s`",
                          p->who, config->tag, UINT32_MAX - tag, tag, n, p->part->name);
        if (channel && node->tag >= WEFT_CHANNEL_NONE - config->channel)
            return REFUSE(p,
                          "%s: config->channel is %u, expected less than %u for channel %u of "
                          "node %zu of part `%.64s`",
                          p->who, config->channel, WEFT_CHANNEL_NONE - node->tag, node->tag, n,
                          p->part->name);
    }
    return WEFT_OK;
}

static int check_limits(const struct putting *p)
{
    const struct weft_schedule *s = p->schedule, *part = p->part;

    if (part->node_count >= INT32_MAX - s->node_count)
        return weft__schedule_fail(p->schedule, WEFT_ERR_UNSUPPORTED, "%s: more than %d nodes",
                                   p->who, INT32_MAX);
    if (part->region_count > UINT32_MAX - s->region_count)
        return weft__schedule_fail(p->schedule, WEFT_ERR_UNSUPPORTED, "%s: more than %u regions",
                                   p->who, UINT32_MAX);
    if (part->buffer_count > INT32_MAX - s->buffer_count ||
        part->value_count > INT32_MAX - s->value_count)
        return weft__schedule_fail(p->schedule, WEFT_ERR_UNSUPPORTED,
                                   "%s: more than %d slots or values", p->who, INT32_MAX);
    return WEFT_OK;
}

/* ---- names ---- */

/* "STEM.NAME"; the caller frees it. NULL: no memory. */
static char *name_within(const char *stem, const char *name)
{
    size_t size = strlen(stem) + strlen(name) + 3;
    char *text = weft__malloc(size, 1);

    if (text)
        snprintf(text, size, "%s.%s", stem, name);
    return text;
}

/* ---- slots ---- */

/* Where a slot of the user's lies, by one entry of the list. */
static int take_place(struct putting *p, size_t index)
{
    const struct weft_part_slot *given = &p->config.slots[index];
    const struct weft__buffer *slot, *outer;
    weft_slot_t number;
    int status;

    number = given->name ? weft__schedule_find_slot(p->part, given->name, strlen(given->name)) : -1;
    if (number < 0 || p->part->buffers[number].kind == WEFT_SLOT_SCRATCH)
        return REFUSE(p,
                      "%s: config->slots[%zu].name is %s%.64s%s, expected a slot of part `%.64s` "
                      "that is not scratch",
                      p->who, index, given->name ? "\"" : "", given->name ? given->name : "NULL",
                      given->name ? "\"" : "", p->part->name);
    slot = &p->part->buffers[number];
    if (p->places[number].slot >= 0)
        return REFUSE(p, "%s: config->slots[%zu] is slot \"%.64s\" again, expected each once",
                      p->who, index, slot->name);
    status = weft__schedule_check_region(p->schedule, p->who, "config->slots", (long)index,
                                         &given->region, slot->kind != WEFT_SLOT_INPUT);
    if (status)
        return status;
    outer = &p->schedule->buffers[given->region.slot];
    if (outer->dtype != slot->dtype)
        return REFUSE(p, "%s: config->slots[%zu] is of %s, expected %s as slot \"%.64s\"", p->who,
                      index, weft_dtype_name(outer->dtype), weft_dtype_name(slot->dtype),
                      slot->name);
    if (given->region.count < slot->count)
        return REFUSE(p,
                      "%s: config->slots[%zu] has %zu elements, expected at least the %zu of slot "
                      "\"%.64s\"",
                      p->who, index, given->region.count, slot->count, slot->name);
    if (given->region.value)
        return REFUSE(p, "%s: config->slots[%zu] has value %d, expected 0", p->who, index,
                      (int)given->region.value);
    p->places[number] = given->region;
    p->given[number] = index;
    return WEFT_OK;
}

/* What of a place the part uses, for finding overlaps. */
struct used {
    struct weft_region region;
    size_t given;
    int written;
};

static int compare_used(const void *left, const void *right)
{
    const struct weft_region *a = &((const struct used *)left)->region;
    const struct weft_region *b = &((const struct used *)right)->region;

    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Slots are apart from each other, so what they become must be, unless both are only read. */
static int check_overlaps(const struct putting *p, struct used *used, size_t count)
{
    const struct used *furthest = NULL, *written = NULL; /* of the slot, the one that ends last */

    qsort(used, count, sizeof *used, compare_used);
    for (size_t i = 0; i < count; i++) {
        const struct weft_region *region = &used[i].region;
        const struct used *other = used[i].written ? furthest : written;

        if (other && other->region.slot == region->slot &&
            other->region.offset + other->region.count > region->offset)
            return REFUSE(p,
                          "%s: config->slots[%zu] and config->slots[%zu] overlap, and the part "
                          "writes one of them: expected regions that are apart",
                          p->who, other->given, used[i].given);
        if (!furthest || furthest->region.slot != region->slot ||
            region->offset + region->count > furthest->region.offset + furthest->region.count)
            furthest = &used[i];
        if (used[i].written &&
            (!written || written->region.slot != region->slot ||
             region->offset + region->count > written->region.offset + written->region.count))
            written = &used[i];
    }
    return WEFT_OK;
}

static int place_user_slots(struct putting *p)
{
    const struct weft_schedule *part = p->part;
    struct used *used;
    size_t count = 0;
    int status = WEFT_OK;

    if (p->config.slot_count && !p->config.slots)
        return REFUSE(p, "%s: config->slots is NULL, expected %zu slots", p->who,
                      p->config.slot_count);
    for (size_t i = 0; i < p->config.slot_count && !status; i++)
        status = take_place(p, i);
    if (status)
        return status;
    used = weft__malloc(part->buffer_count, sizeof *used);
    if (!used)
        return weft__schedule_fail_memory(p->schedule, p->who);
    for (size_t s = 0; s < part->buffer_count && !status; s++) {
        const struct weft__buffer *slot = &part->buffers[s];
        const struct weft_region *place = &p->places[s];

        if (slot->kind == WEFT_SLOT_SCRATCH || !slot->count)
            continue;
        if (place->slot < 0)
            status = REFUSE(p,
                            "%s: slot \"%.64s\" of part `%.64s` is not in config->slots, expected "
                            "where its %zu elements lie",
                            p->who, slot->name, part->name, slot->count);
        else
            used[count++] = (struct used){weft_region_at(place->slot, place->offset, slot->count),
                                          p->given[s], slot->kind != WEFT_SLOT_INPUT};
    }
    if (!status)
        status = check_overlaps(p, used, count);
    weft__free(used);
    return status;
}

/* A scratch slot, new or, of a name that parts share, one that grows to the largest of them. */
static int place_scratch(struct putting *p, size_t s)
{
    struct weft_schedule *outer = p->schedule;
    const struct weft__buffer *slot = &p->part->buffers[s];
    char *name = name_within(p->config.scratch ? p->config.scratch : p->name, slot->name);
    weft_slot_t number;

    if (!name)
        return weft__schedule_fail_memory(outer, p->who);
    number = weft__schedule_find_slot(outer, name, strlen(name));
    if (number < 0) {
        number = weft_schedule_add_slot(outer, name, slot->dtype, slot->count, WEFT_SLOT_SCRATCH);
        if (number >= 0)
            outer->buffers[number].memory = slot->memory;
    } else if (!p->config.scratch || outer->buffers[number].kind != WEFT_SLOT_SCRATCH) {
        number =
            REFUSE(p,
                   "%s: slot \"%.64s\" of part `%.64s` would be \"%.64s\", which is in use, "
                   "expected another config->%s",
                   p->who, slot->name, p->part->name, name, p->config.scratch ? "scratch" : "name");
    } else if (outer->buffers[number].dtype != slot->dtype) {
        number =
            REFUSE(p,
                   "%s: config->scratch is \"%.64s\", but \"%.64s\" is of %s and slot "
                   "\"%.64s\" of part `%.64s` of %s, expected another",
                   p->who, p->config.scratch, name, weft_dtype_name(outer->buffers[number].dtype),
                   slot->name, p->part->name, weft_dtype_name(slot->dtype));
    } else if (outer->buffers[number].memory != slot->memory) {
        number = REFUSE(p,
                        "%s: config->scratch is \"%.64s\", but \"%.64s\" is memory of the %s and "
                        "slot \"%.64s\" of part `%.64s` of the %s, expected another",
                        p->who, p->config.scratch, name,
                        weft__memory_word(outer->buffers[number].memory), slot->name, p->part->name,
                        weft__memory_word(slot->memory));
    } else if (outer->buffers[number].count < slot->count) {
        outer->buffers[number].count = slot->count;
    }
    weft__free(name);
    if (number < 0)
        return number;
    p->places[s] = weft_region_at(number, 0, slot->count);
    return WEFT_OK;
}

/* Slots of no elements that nobody has placed: a region of none is one of any slot. */
static int place_empty(struct putting *p, size_t s)
{
    const struct weft__buffer *slot = &p->part->buffers[s];
    char *name = name_within(p->name, slot->name);
    weft_slot_t number;

    if (!name)
        return weft__schedule_fail_memory(p->schedule, p->who);
    number = weft_schedule_add_slot(p->schedule, name, slot->dtype, 0, WEFT_SLOT_SCRATCH);
    weft__free(name);
    if (number < 0)
        return number;
    p->places[s] = weft_region_at(number, 0, 0);
    return WEFT_OK;
}

static int place_slots(struct putting *p)
{
    int status = place_user_slots(p);

    for (size_t s = 0; s < p->part->buffer_count && !status; s++)
        if (p->part->buffers[s].kind == WEFT_SLOT_SCRATCH)
            status = place_scratch(p, s);
        else if (p->places[s].slot < 0)
            status = place_empty(p, s);
    return status;
}

static int copy_values(struct putting *p)
{
    p->value = (weft_value_t)p->schedule->value_count;
    for (size_t v = 0; v < p->part->value_count; v++) {
        const struct weft__value *value = &p->part->values[v];
        char *name = name_within(p->name, value->name);
        weft_value_t added;

        if (!name)
            return weft__schedule_fail_memory(p->schedule, p->who);
        added = weft_schedule_add_value(p->schedule, name, value->max);
        weft__free(name);
        if (added < 0)
            return added;
        if (value->producer >= 0)
            p->schedule->values[added - 1].producer = (weft_node_t)p->node + value->producer;
    }
    return WEFT_OK;
}

/* ---- nodes ---- */

/* The operation of a node, for the ranks and tags here: a reference. */
static int copy_op(const struct putting *p, const struct weft_op *op, const struct weft_op **copy)
{
    *copy = weft_op_retain(op);
    if (!op || !op->joint || (!p->config.ranks && !p->config.tag))
        return WEFT_OK;
    weft_op_destroy(op);
    *copy = NULL;
    return weft__joint_translate(op->joint, p->config.ranks, op->joint->tag + p->config.tag, copy)
               ? weft__schedule_fail_memory(p->schedule, p->who)
               : WEFT_OK;
}

static int copy_node(const struct putting *p, const struct weft__snode *node)
{
    struct weft_schedule *s = p->schedule;
    struct weft__snode *added = &s->nodes[s->node_count++];

    *added = *node;
    added->regions = (uint32_t)s->region_count;
    for (uint32_t i = 0; i < node->region_count; i++) {
        struct weft_region region = p->part->regions[node->regions + i];
        const struct weft_region *place = &p->places[region.slot];

        region.slot = place->slot;
        region.offset += place->offset;
        if (region.value)
            region.value += p->value;
        s->regions[s->region_count++] = region;
    }
    if (node->kind == WEFT_NODE_COMPUTE) {
        added->accesses = (uint32_t)s->access_count;
        for (uint32_t i = 0; i < node->region_count; i++)
            s->accesses[s->access_count++] = p->part->accesses[node->accesses + i];
    }
    if (node->peer >= 0 && p->config.ranks)
        added->peer = p->config.ranks[node->peer];
    if (node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV)
        added->tag += p->config.tag;
    else if (has_channel(node))
        added->tag += p->config.channel;
    if (node->choice >= 0)
        added->choice += p->choice;
    if (node->produces)
        added->produces += p->value;
    return copy_op(p, node->op, &added->op);
}

static int copy_nodes(struct putting *p)
{
    struct weft_schedule *s = p->schedule;
    const struct weft_schedule *part = p->part;

    if (weft__grow((void **)&s->nodes, &s->node_capacity, s->node_count + part->node_count,
                   sizeof *s->nodes) ||
        weft__grow((void **)&s->regions, &s->region_capacity, s->region_count + part->region_count,
                   sizeof *s->regions) ||
        weft__grow((void **)&s->accesses, &s->access_capacity, s->access_count + part->access_count,
                   sizeof *s->accesses) ||
        weft__grow((void **)&s->edges, &s->edge_capacity, s->edge_count + part->edge_count,
                   sizeof *s->edges))
        return weft__schedule_fail_memory(s, p->who);
    p->choice = s->choice_count;
    for (size_t n = 0; n < part->node_count; n++) {
        int status = copy_node(p, &part->nodes[n]);

        if (status)
            return status;
    }
    s->choice_count += part->choice_count;
    for (size_t e = 0; e < part->edge_count; e++)
        s->edges[s->edge_count++] =
            (struct weft__edge){p->node + part->edges[e].before, p->node + part->edges[e].after};
    return WEFT_OK;
}

static int copy_labels(const struct putting *p)
{
    const struct weft_schedule *part = p->part;

    for (size_t l = 0; l < part->label_count; l++) {
        size_t size = strlen(p->name) + strlen(part->labels[l].text) + 3;
        char *text = weft__malloc(size, 1);
        int status;

        if (!text)
            return weft__schedule_fail_memory(p->schedule, p->who);
        snprintf(text, size, "%s: %s", p->name, part->labels[l].text);
        status =
            weft_schedule_set_label(p->schedule, (weft_node_t)p->node + part->labels[l].node, text);
        weft__free(text);
        if (status)
            return status;
    }
    return WEFT_OK;
}

/* ---- its end ----
 *
 * A choice retires what depends on its losers, and a join that waited for that would be retired
 * with it. So the join waits for the nodes that live whoever wins; directly for those that nothing
 * of them stands for, which is a successor that lives too and starts only after all its
 * predecessors. Under which condition a node lives is known exactly where it is "always" or "if
 * this event wins"; what is more involved than that is not waited for. */

enum { ALWAYS = -1, SOMETIMES = -2 }; /* or the event that has to win */

struct lives {
    const struct weft_schedule *part;
    struct weft__lists before;
    int32_t *if_wins;  /* of each node */
    uint32_t *members; /* of each choice: how many events */
    uint32_t *seen;    /* of each node: the node + 1 that has last counted it */
    uint32_t *found;   /* of each choice: how many of its events the node being looked at has */
};

/* Counts an event of a predecessor's condition. */
static int is_counted(struct lives *l, uint32_t n, int32_t event)
{
    if (l->seen[event] == n + 1)
        return 0;
    l->seen[event] = n + 1;
    l->found[l->part->nodes[event].choice]++;
    return 1;
}

/* Whether the conditions of a node's predecessors are all the events of a choice; counts none
 * afterwards. */
static int take_counted(struct lives *l, uint32_t n)
{
    int whole = 0;

    for (uint32_t i = l->before.first[n]; i < l->before.first[n + 1]; i++) {
        int32_t event = l->if_wins[l->before.items[i]];
        int32_t choice = event >= 0 ? l->part->nodes[event].choice : -1;

        if (choice >= 0 && l->found[choice]) {
            whole |= l->found[choice] == l->members[choice];
            l->found[choice] = 0;
        }
    }
    return whole;
}

static int32_t condition(struct lives *l, uint32_t n)
{
    const struct weft__snode *node = &l->part->nodes[n];
    int32_t first = ALWAYS;
    int always = 0, other = 0, whole;
    uint32_t count = 0;
    uint32_t begin = l->before.first[n], end = l->before.first[n + 1];

    for (uint32_t i = begin; i < end; i++) {
        int32_t event = l->if_wins[l->before.items[i]];

        if (event == SOMETIMES) {
            other = 1;
        } else if (event == ALWAYS) {
            always = 1;
        } else if (is_counted(l, n, event)) {
            first = event;
            count++;
        }
    }
    whole = take_counted(l, n);
    if (node->any && (always || whole))
        other = 0, count = 0;
    if (other || count > 1)
        return SOMETIMES;
    if (node->choice >= 0 && l->members[node->choice] > 1)
        return count ? SOMETIMES : (int32_t)n;
    return count ? first : ALWAYS;
}

/* Goes through the nodes in an order of the graph; those of a cycle stay "sometimes". */
static void find_conditions(struct lives *l, const struct weft__lists *after, uint32_t *order,
                            uint32_t *waits)
{
    size_t count = l->part->node_count, ready = 0;

    for (uint32_t n = 0; n < count; n++) {
        l->if_wins[n] = SOMETIMES;
        waits[n] = l->before.first[n + 1] - l->before.first[n];
        if (!waits[n])
            order[ready++] = n;
    }
    for (size_t i = 0; i < ready; i++) {
        uint32_t n = order[i];

        l->if_wins[n] = condition(l, n);
        for (uint32_t e = after->first[n]; e < after->first[n + 1]; e++)
            if (!--waits[after->items[e]])
                order[ready++] = after->items[e];
    }
}

/* if_wins[n] of each node of a part with choices. */
static int conditions(const struct putting *p, int32_t *if_wins)
{
    const struct weft_schedule *part = p->part;
    struct lives l = {.part = part, .if_wins = if_wins};
    struct weft__lists after = {NULL, NULL};
    uint32_t *order = weft__malloc(part->node_count, sizeof *order);
    uint32_t *waits = weft__malloc(part->node_count, sizeof *waits);
    int status = WEFT_OK;

    l.members = weft__calloc((size_t)part->choice_count, sizeof *l.members);
    l.found = weft__calloc((size_t)part->choice_count, sizeof *l.found);
    l.seen = weft__calloc(part->node_count, sizeof *l.seen);
    if (!order || !waits || !l.members || !l.found || !l.seen ||
        weft__lists_of(&l.before, part, WEFT__PREDECESSORS) ||
        weft__lists_of(&after, part, WEFT__SUCCESSORS)) {
        status = weft__schedule_fail_memory(p->schedule, p->who);
    } else {
        for (size_t n = 0; n < part->node_count; n++)
            if (part->nodes[n].choice >= 0)
                l.members[part->nodes[n].choice]++;
        find_conditions(&l, &after, order, waits);
    }
    weft__lists_free(&after);
    weft__lists_free(&l.before);
    weft__free(l.seen);
    weft__free(l.found);
    weft__free(l.members);
    weft__free(waits);
    weft__free(order);
    return status;
}

/* What the edges say of a node. */
struct end {
    uint32_t predecessors;
    int stood_for; /* a node that lives whoever wins ends only after it */
};

static int lives_always(const int32_t *if_wins, size_t n)
{
    return !if_wins || if_wins[n] == ALWAYS;
}

static void find_ends(const struct weft_schedule *part, const int32_t *if_wins, struct end *ends)
{
    for (size_t e = 0; e < part->edge_count; e++)
        ends[part->edges[e].after].predecessors++;
    for (size_t e = 0; e < part->edge_count; e++) {
        uint32_t after = part->edges[e].after;

        if (lives_always(if_wins, after) &&
            (!part->nodes[after].any || ends[after].predecessors == 1))
            ends[part->edges[e].before].stood_for = 1;
    }
}

/* Orders the part after `after`, and `join` after the part. */
static int link_ends(const struct putting *p, weft_node_t after, weft_node_t join,
                     const struct end *ends, const int32_t *if_wins)
{
    int status = WEFT_OK;

    if (after >= 0)
        status = weft__schedule_link(p->schedule, after, join, p->who);
    for (size_t n = 0; n < p->part->node_count && !status; n++) {
        weft_node_t node = (weft_node_t)(p->node + n);

        if (after >= 0 && !ends[n].predecessors)
            status = weft__schedule_link(p->schedule, after, node, p->who);
        if (!status && lives_always(if_wins, n) && !ends[n].stood_for)
            status = weft__schedule_link(p->schedule, node, join, p->who);
    }
    return status;
}

static int add_end(const struct putting *p, weft_node_t after, weft_node_t join)
{
    const struct weft_schedule *part = p->part;
    struct end *ends = weft__calloc(part->node_count, sizeof *ends);
    int32_t *if_wins = NULL;
    int status = ends ? WEFT_OK : weft__schedule_fail_memory(p->schedule, p->who);

    if (!status && part->choice_count) {
        if_wins = weft__malloc(part->node_count, sizeof *if_wins);
        status = if_wins ? conditions(p, if_wins) : weft__schedule_fail_memory(p->schedule, p->who);
    }
    if (!status) {
        find_ends(part, if_wins, ends);
        status = link_ends(p, after, join, ends, if_wins);
    }
    weft__free(if_wins);
    weft__free(ends);
    return status;
}

/* ---- the call ---- */

static weft_node_t put(struct putting *p, weft_node_t after)
{
    weft_node_t join;
    int status;

    if ((status = check_ranks(p)) || (status = check_numbers(p)) || (status = check_limits(p)) ||
        (status = place_slots(p)) || (status = copy_values(p)) || (status = copy_nodes(p)) ||
        (status = copy_labels(p)))
        return status;
    join = weft_schedule_add_join(p->schedule);
    if (join < 0)
        return join;
    if ((status = add_end(p, after, join)) ||
        (status = weft_schedule_set_label(p->schedule, join, p->name)))
        return status;
    p->schedule->part_count++;
    return join;
}

/* The arguments that can be wrong by themselves. */
static int check_call(const char *who, struct weft_schedule *schedule,
                      const struct weft_schedule *part, weft_node_t after,
                      const struct weft_part_config *given, struct weft_part_config *config)
{
    char text[sizeof schedule->error];

    if (!part)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `part` is NULL, expected a schedule", who);
    if (part == schedule)
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID,
                                   "%s: argument `part` is `schedule`, expected another one", who);
    if (part->status) {
        snprintf(text, sizeof text, "%s: argument `part` has an error: %.160s", who, part->error);
        return weft__schedule_fail(schedule, part->status, "%s", text);
    }
    if (after < WEFT_NODE_NONE || (after >= 0 && (size_t)after >= schedule->node_count))
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: argument `after` is %d, expected WEFT_NODE_NONE or one of the %zu nodes (from 0)",
            who, (int)after, schedule->node_count);
    if (weft_sized_read(who, "config", given, config, sizeof *config)) {
        snprintf(text, sizeof text, "%s", weft_error_text());
        return weft__schedule_fail(schedule, WEFT_ERR_INVALID, "%s", text);
    }
    if ((config->name && !weft__schedule_is_name(config->name)) ||
        (config->scratch && !weft__schedule_is_name(config->scratch)))
        return weft__schedule_fail(
            schedule, WEFT_ERR_INVALID,
            "%s: config->%s is no name of a slot, expected [A-Za-z_][A-Za-z0-9_.-]*", who,
            config->name && !weft__schedule_is_name(config->name) ? "name" : "scratch");
    return WEFT_OK;
}

weft_node_t weft_schedule_add_part(struct weft_schedule *schedule, const struct weft_schedule *part,
                                   weft_node_t after, const struct weft_part_config *config)
{
    struct putting p = {.schedule = schedule, .part = part, .who = __func__};
    char name[32];
    weft_node_t join;
    int status;

    WEFT__ENTER(schedule);
    status = check_call(__func__, schedule, part, after, config, &p.config);
    if (status)
        return status;
    snprintf(name, sizeof name, "part%zu", schedule->part_count);
    p.name = p.config.name ? p.config.name : name;
    p.node = (uint32_t)schedule->node_count;
    p.places = weft__malloc(part->buffer_count, sizeof *p.places);
    p.given = weft__calloc(part->buffer_count, sizeof *p.given);
    for (size_t s = 0; p.places && s < part->buffer_count; s++)
        p.places[s] = weft_region_at(-1, 0, 0);
    join = p.places && p.given ? put(&p, after) : weft__schedule_fail_memory(schedule, __func__);
    weft__free(p.given);
    weft__free(p.places);
    return join;
}
