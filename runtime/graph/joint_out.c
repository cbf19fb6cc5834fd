/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joint nodes as messages and reductions. Of n ranks each has a part of what is combined, and
 * everything is done part by part, by direct messages between all:
 *
 *     fold the parts     each rank sends each other one its part, which that one combines with its
 *                        own, in the order of the ranks                          (tag)
 *     share the parts    each sends its part to all, or to the root              (tag + 1)
 *
 * All but the node itself comes behind the other nodes: what follows the node follows all of it.
 */
#include "runtime/graph/joint.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <stdio.h>
#include <string.h>

/* A node that is being written out. The first error of its schedule sticks, so calls are not looked
 * at one by one. */
struct writing {
    struct weft_schedule *schedule;
    const struct weft__joint *joint;
    weft_node_t node;  /* what it becomes: the end */
    weft_node_t begin; /* what its messages come after, or WEFT_NODE_NONE */
    size_t ranks;
    size_t place; /* of this rank */
    int in_place;
    struct weft_region to, from; /* what is got and given; the same in place */
};

static int peer_of(const struct writing *w, size_t place)
{
    return weft__ranks_at(w->joint->ranks, (int)place);
}

/* Number `place` of n parts of a region, which are as large as each other, or one element larger.
 */
static struct weft_region part_of(const struct writing *w, struct weft_region whole, size_t place)
{
    size_t base = whole.count / w->ranks, more = whole.count % w->ranks;

    return weft_region_at(whole.slot, whole.offset + place * base + (place < more ? place : more),
                          base + (place < more));
}

/* Every node of it. */
static weft_node_t put(const struct writing *w, weft_node_t node, weft_node_t after)
{
    if (node < 0)
        return node;
    if (after == WEFT_NODE_NONE)
        after = w->begin;
    if (after != WEFT_NODE_NONE)
        weft_schedule_add_order(w->schedule, after, node);
    weft_schedule_add_order(w->schedule, node, w->node);
    return node;
}

static weft_node_t send(const struct writing *w, struct weft_region region, size_t to,
                        unsigned phase, weft_node_t after)
{
    if (region.count == 0)
        return WEFT_NODE_NONE;
    return put(w,
               weft_schedule_add_send(w->schedule, region, peer_of(w, to),
                                      w->joint->tag + (uint32_t)phase),
               after);
}

static weft_node_t receive(const struct writing *w, struct weft_region region, size_t from,
                           unsigned phase, weft_node_t after)
{
    if (region.count == 0)
        return WEFT_NODE_NONE;
    return put(w,
               weft_schedule_add_recv(w->schedule, region, peer_of(w, from),
                                      w->joint->tag + (uint32_t)phase),
               after);
}

static struct weft_region scratch_for(const struct writing *w, size_t count)
{
    const struct weft__buffer *like = &w->schedule->buffers[w->from.slot];
    weft_slot_t slot =
        weft__schedule_add_scratch(w->schedule, "joint", like->dtype, count, like->memory);

    return weft_region_at(slot, 0, count);
}

/* ---- folding ---- */

/* Receives this rank's part of all others, and combines it, in the order of the ranks, into `out`;
 * `own` may be the same. The last node of it. */
static weft_node_t fold_own(const struct writing *w, struct weft_region own, struct weft_region out)
{
    const struct weft_op *op = weft_op_builtin(w->joint->fold);
    size_t count = own.count;
    struct weft_region rows, sum = own;
    weft_node_t latest = WEFT_NODE_NONE;

    if (count == 0)
        return WEFT_NODE_NONE;
    rows = scratch_for(w, count * (w->ranks - 1));
    for (size_t i = 0, row = 0; i < w->ranks; i++) {
        struct weft_region next = own, into;
        weft_node_t arrived = WEFT_NODE_NONE, added;

        if (i != w->place) {
            next = weft_region_at(rows.slot, row++ * count, count);
            arrived = receive(w, next, i, 0, WEFT_NODE_NONE);
        }
        if (i == 0) {
            sum = next;
            latest = arrived;
            continue;
        }
        into = i + 1 == w->ranks ? out : sum.slot == rows.slot ? sum : next;
        added = put(w, weft_schedule_add_reduce(w->schedule, op, into, sum, next), arrived);
        if (latest != WEFT_NODE_NONE && added >= 0)
            weft_schedule_add_order(w->schedule, latest, added);
        latest = added;
        sum = into;
    }
    return latest;
}

/* Sends what others fold; sent[i] is the message to the i-th, if the array is there. */
static void send_parts(const struct writing *w, weft_node_t *sent)
{
    for (size_t i = 0; i < w->ranks; i++) {
        weft_node_t node =
            i == w->place ? WEFT_NODE_NONE : send(w, part_of(w, w->from, i), i, 0, WEFT_NODE_NONE);

        if (sent)
            sent[i] = node;
    }
}

/* The parts of all into `to`: that of another rank after this one's message to it has read there.
 */
static void share_parts(const struct writing *w, weft_node_t own, const weft_node_t *sent)
{
    for (size_t i = 0; i < w->ranks; i++) {
        if (i == w->place)
            continue;
        send(w, part_of(w, w->to, w->place), i, 1, own);
        receive(w, part_of(w, w->to, i), i, 1, w->in_place ? sent[i] : WEFT_NODE_NONE);
    }
}

static void fold_all(const struct writing *w)
{
    weft_node_t *sent = weft__malloc(w->ranks, sizeof *sent);
    weft_node_t own;

    if (!sent) {
        weft__schedule_fail_memory(w->schedule, __func__);
        return;
    }
    send_parts(w, sent);
    own = fold_own(w, part_of(w, w->from, w->place), part_of(w, w->to, w->place));
    share_parts(w, own, sent);
    weft__free(sent);
}

static void fold_one(const struct writing *w)
{
    size_t root = (size_t)w->joint->root;
    struct weft_region own = part_of(w, w->from, w->place);

    if (w->place != root) {
        struct weft_region sum = scratch_for(w, own.count);

        send_parts(w, NULL);
        send(w, sum, root, 1, fold_own(w, own, sum));
        return;
    }
    weft_node_t *sent = weft__malloc(w->ranks, sizeof *sent);
    if (!sent) {
        weft__schedule_fail_memory(w->schedule, __func__);
        return;
    }
    send_parts(w, sent);
    fold_own(w, own, part_of(w, w->to, root));
    for (size_t i = 0; i < w->ranks; i++)
        if (i != root)
            receive(w, part_of(w, w->to, i), i, 1, w->in_place ? sent[i] : WEFT_NODE_NONE);
    weft__free(sent);
}

static void fold_parts(const struct writing *w)
{
    struct weft_region own = part_of(w, w->from, w->place);

    send_parts(w, NULL);
    fold_own(w, own, w->in_place ? own : w->to);
}

/* ---- without folding ---- */

static void spread(const struct writing *w)
{
    size_t root = (size_t)w->joint->root;

    for (size_t i = 0; i < w->ranks; i++) {
        if (i == w->place)
            continue;
        if (w->place == root) {
            send(w, part_of(w, w->from, i), i, 0, WEFT_NODE_NONE);
            send(w, part_of(w, w->from, root), i, 1, WEFT_NODE_NONE);
        } else {
            receive(w, part_of(w, w->to, i), i, 1, WEFT_NODE_NONE);
        }
    }
    if (w->place == root)
        return;
    weft_node_t own = receive(w, part_of(w, w->to, w->place), root, 0, WEFT_NODE_NONE);
    for (size_t i = 0; i < w->ranks; i++)
        if (i != w->place && i != root)
            send(w, part_of(w, w->to, w->place), i, 1, own);
}

static void collect(const struct writing *w)
{
    struct weft_region own = part_of(w, w->to, w->place);

    for (size_t i = 0; i < w->ranks; i++) {
        if (i == w->place)
            continue;
        send(w, w->in_place ? own : w->from, i, 0, WEFT_NODE_NONE);
        receive(w, part_of(w, w->to, i), i, 0, WEFT_NODE_NONE);
    }
    if (!w->in_place && own.count > 0)
        put(w, weft_schedule_add_copy(w->schedule, own, w->from), WEFT_NODE_NONE);
}

/* One rank alone. */
static void keep(const struct writing *w)
{
    struct weft__joint_sides sides = weft__joint_sides(w->joint, 0, w->in_place ? 1 : 2);

    if (!w->in_place && sides.gets >= 0 && sides.gives >= 0 && w->to.count > 0)
        put(w, weft_schedule_add_copy(w->schedule, w->to, w->from), WEFT_NODE_NONE);
}

static void write_messages(const struct writing *w)
{
    if (w->ranks == 1) {
        keep(w);
        return;
    }
    switch (w->joint->kind) {
    case WEFT_JOINT_FOLD_ALL:
        fold_all(w);
        break;
    case WEFT_JOINT_FOLD_ONE:
        fold_one(w);
        break;
    case WEFT_JOINT_FOLD_PARTS:
        fold_parts(w);
        break;
    case WEFT_JOINT_SPREAD:
        spread(w);
        break;
    case WEFT_JOINT_COLLECT:
    case WEFT_JOINT_KIND_COUNT:
    default:
        collect(w);
        break;
    }
}

/* ---- nodes ---- */

/* Gives what came before the node to a join before its messages: of `edges` that there were. */
static void put_begin(struct writing *w, size_t edges)
{
    struct weft_schedule *s = w->schedule;
    struct weft__snode *node = &s->nodes[w->node];
    int any = node->any, waits = 0;

    node->any = 0;
    w->begin = WEFT_NODE_NONE;
    for (size_t e = 0; e < edges && !waits; e++)
        waits = s->edges[e].after == (uint32_t)w->node;
    if (!waits)
        return;
    w->begin = weft_schedule_add_join(s);
    if (w->begin < 0)
        return;
    if (any)
        weft_schedule_set_any(s, w->begin);
    for (size_t e = 0; e < edges; e++)
        if (s->edges[e].after == (uint32_t)w->node)
            s->edges[e].after = (uint32_t)w->begin;
    weft_schedule_add_order(s, w->begin, w->node);
}

/* Labels of what was added, so that reports say where it comes from. */
static void put_labels(const struct writing *w, size_t nodes)
{
    struct weft_schedule *s = w->schedule;
    char text[48];

    snprintf(text, sizeof text, "node %d, written out", w->node);
    for (size_t n = nodes; n < s->node_count && !s->status; n++)
        weft_schedule_set_label(s, (weft_node_t)n, text);
}

static void write_node(struct weft_schedule *s, weft_node_t n, size_t edges)
{
    struct weft__snode node = s->nodes[n];
    struct weft__joint_sides sides;
    struct writing w = {.schedule = s, .joint = weft__snode_joint(&node), .node = n};
    size_t nodes = s->node_count;

    w.ranks = (size_t)w.joint->ranks->count;
    w.place = (size_t)weft__ranks_place(w.joint->ranks, s->rank);
    sides = weft__joint_sides(w.joint, (int)w.place, node.region_count);
    w.in_place = sides.gets == sides.gives;
    w.to = s->regions[node.regions + (uint32_t)(sides.gets < 0 ? sides.gives : sides.gets)];
    w.from = s->regions[node.regions + (uint32_t)(sides.gives < 0 ? sides.gets : sides.gives)];
    s->nodes[n].kind = WEFT_NODE_JOIN;
    s->nodes[n].op = NULL;
    s->nodes[n].region_count = 0;
    put_begin(&w, edges);
    if (!s->status)
        write_messages(&w);
    put_labels(&w, nodes);
    weft_op_destroy(node.op);
}

int weft__schedule_has_joints(const struct weft_schedule *schedule)
{
    for (size_t n = 0; n < schedule->node_count; n++)
        if (weft__snode_joint(&schedule->nodes[n]))
            return 1;
    return 0;
}

int weft_schedule_write_out(struct weft_schedule *schedule)
{
    WEFT__ENTER(schedule);
    const size_t nodes = schedule->node_count, edges = schedule->edge_count;

    for (size_t n = 0; n < nodes && !schedule->status; n++)
        if (weft__snode_joint(&schedule->nodes[n]))
            write_node(schedule, (weft_node_t)n, edges);
    return schedule->status ? weft__error(schedule->status, "%s", schedule->error) : WEFT_OK;
}

int weft__schedule_written_out(const struct weft_schedule *schedule,
                               const struct weft_schedule **plain, struct weft_schedule **owned)
{
    int status;

    *owned = NULL;
    *plain = schedule;
    if (!weft__schedule_has_joints(schedule))
        return WEFT_OK;
    status = weft__schedule_copy(schedule, owned);
    if (status == WEFT_OK)
        status = weft_schedule_write_out(*owned);
    *plain = *owned;
    if (status != WEFT_OK) {
        weft_schedule_destroy(*owned);
        *owned = NULL;
    }
    return status;
}

int weft__write_out_all(struct weft__written_out *written,
                        const struct weft_schedule *const *schedules, size_t count,
                        const char *what)
{
    int status = WEFT_OK;

    *written = (struct weft__written_out){.plain = weft__malloc(count, sizeof *written->plain),
                                          .owned = weft__calloc(count, sizeof *written->owned)};
    if (!written->plain || !written->owned)
        return weft__error_memory(what);
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        written->plain[i] = schedules[i];
        written->count++;
        if (schedules[i] && !schedules[i]->status)
            status =
                weft__schedule_written_out(schedules[i], &written->plain[i], &written->owned[i]);
    }
    return status;
}

void weft__written_out_free(struct weft__written_out *written)
{
    for (size_t i = 0; i < written->count; i++)
        weft_schedule_destroy(written->owned[i]);
    weft__free((void *)written->owned);
    weft__free((void *)written->plain);
}
