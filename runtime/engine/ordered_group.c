/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: what of the nodes of a run is handed to a communicator together, and what follows once it
 * has been taken. */
#include "runtime/engine/ordered.h"

#include "runtime/base/alloc.h"
#include "runtime/engine/flight.h"
#include "runtime/graph/joint.h"

static const struct weft__region *region_of(const struct weft_run *run, uint32_t n)
{
    return &run->plan->regions[run->plan->nodes[n].regions];
}

static struct weft__xfer *xfer_of(const struct weft_run *run, uint32_t n)
{
    return &run->xfers[run->plan->nodes[n].index];
}

static const struct weft__device_ops *ops_of(const struct weft__ordered *ordered)
{
    return ordered->team->issuer->device->ops;
}

static int receives(const struct weft_run *run, uint32_t n)
{
    return run->plan->nodes[n].kind == WEFT_NODE_RECV;
}

static const struct weft__joint *joint_of(const struct weft_run *run, uint32_t n)
{
    const struct weft__node *node = &run->plan->nodes[n];

    return node->flags & WEFT__JOINT ? run->plan->ops[node->op]->joint : NULL;
}

static struct weft__joint_sides sides_of(const struct weft_run *run, uint32_t n)
{
    const struct weft__joint *joint = joint_of(run, n);

    return weft__joint_sides(joint, weft__ranks_place(joint->ranks, run->plan->rank),
                             run->plan->nodes[n].region_count);
}

int weft__ordered_scatters(const struct weft_run *run, uint32_t n)
{
    const struct weft__end *end = weft__end_of(run->flights->ordered, n);

    if (!(end->gathered & 1))
        return 0;
    return joint_of(run, n) ? sides_of(run, n).gets == 0 : receives(run, n);
}

/* ---- what the communicator gets ---- */

/* Between a region of a node, in pieces, and its place in the staging; on the run's stream. */
static int gather(const struct weft__ordered *ordered, const struct weft__region *region,
                  char *staged, size_t total, int out)
{
    struct weft_run *run = ordered->run;
    struct weft__stream *stream = run->flights->stream;
    int status = WEFT_OK;

    for (size_t at = 0, bytes; at < total && status == WEFT_OK; at += bytes) {
        bytes = total - at;
        char *piece = weft__region_chunk(run, region, at, &bytes);
        if (bytes > total - at)
            bytes = total - at;
        status = stream->device->ops->copy(stream, out ? piece : staged + at,
                                           out ? staged + at : piece, bytes);
    }
    return status;
}

/* A region's place in the staging. */
static char *place_of(const struct weft__ordered *ordered, uint32_t n, uint32_t index)
{
    const struct weft_plan *plan = ordered->run->plan;
    char *at = ordered->staging + ordered->staged[plan->nodes[n].index];

    return index ? at + weft__staged_bytes(region_of(ordered->run, n)) : at;
}

/* The contiguous memory that stands for a region of a node; `reads`: it holds what the region does.
 */
static int make_contiguous(struct weft__ordered *ordered, uint32_t n, uint32_t index, size_t total,
                           int reads, char **data)
{
    struct weft_run *run = ordered->run;
    const struct weft__region *region = region_of(run, n) + index;
    size_t chunk = total;

    *data = weft__region_chunk(run, region, 0, &chunk);
    if (chunk >= total)
        return WEFT_OK;
    weft__end_of(ordered, n)->gathered |= (uint8_t)(1u << index);
    *data = place_of(ordered, n, index);
    return reads ? gather(ordered, region, *data, total, 0) : WEFT_OK;
}

/* What the communicator gets for a message; 0: nothing, as there are no bytes; negative. */
static int make_item(struct weft__ordered *ordered, uint32_t n, struct weft__comm_item *item)
{
    struct weft_run *run = ordered->run;
    struct weft__end *end = weft__end_of(ordered, n);
    char *data;
    int status;

    end->gathered = 0;
    if (end->bytes == 0)
        return 0;
    status = make_contiguous(ordered, n, 0, end->bytes, !receives(run, n), &data);
    *item = (struct weft__comm_item){.data = data,
                                     .bytes = end->bytes,
                                     .peer = weft__peer(run, run->plan->nodes[n].peer),
                                     .receives = receives(run, n)};
    return status < 0 ? status : 1;
}

/* In what units its communicator counts; of parts, how many there are of what a rank has. */
static void count_joint(const struct weft_run *run, uint32_t n, struct weft__comm_joint *out)
{
    const struct weft__joint *joint = joint_of(run, n);
    const struct weft__slot *slot = &run->plan->slots[region_of(run, n)->slot];
    const struct weft__joint_sides sides = sides_of(run, n);
    size_t ranks = (size_t)joint->ranks->count;

    out->dtype = slot->dtype;
    out->count = region_of(run, n)->bytes / (weft__joint_folds(joint) ? slot->element : 1);
    if (joint->kind == WEFT_JOINT_COLLECT ||
        (joint->kind == WEFT_JOINT_FOLD_PARTS && sides.gives == sides.gets))
        out->count /= ranks;
}

/* What the communicator gets for a joint node; as make_item(). In place a part is what belongs to
 * this rank of its region. */
static int make_joint(struct weft__ordered *ordered, uint32_t n, struct weft__comm_joint *out)
{
    static const enum weft__comm_joint_kind kinds[] = {[WEFT_JOINT_FOLD_ALL] = WEFT__COMM_FOLD_ALL,
                                                       [WEFT_JOINT_FOLD_ONE] = WEFT__COMM_FOLD_ONE,
                                                       [WEFT_JOINT_FOLD_PARTS] =
                                                           WEFT__COMM_FOLD_PARTS,
                                                       [WEFT_JOINT_SPREAD] = WEFT__COMM_SPREAD,
                                                       [WEFT_JOINT_COLLECT] = WEFT__COMM_COLLECT};
    struct weft_run *run = ordered->run;
    const struct weft__joint *joint = joint_of(run, n);
    const struct weft__joint_sides sides = sides_of(run, n);
    uint32_t regions = run->plan->nodes[n].region_count;
    char *data[2] = {NULL, NULL};
    size_t part;
    int status = WEFT_OK;

    weft__end_of(ordered, n)->gathered = 0;
    if (region_of(run, n)->bytes == 0)
        return 0;
    for (uint32_t i = 0; i < regions && status == WEFT_OK; i++)
        status = make_contiguous(ordered, n, i, region_of(run, n)[i].bytes, (int)i == sides.gives,
                                 &data[i]);
    *out = (struct weft__comm_joint){
        .kind = kinds[joint->kind], .fold = joint->fold, .root = joint->root};
    count_joint(run, n, out);
    out->to = data[sides.gets < 0 ? 0 : sides.gets];
    out->from = data[sides.gives < 0 ? 0 : sides.gives];
    part = (size_t)weft__ranks_place(joint->ranks, run->plan->rank) * out->count *
           (weft__joint_folds(joint) ? weft_dtype_size(out->dtype) : 1);
    if (sides.gets < 0 && weft__joint_folds(joint))
        out->to = NULL;
    if (sides.gets == sides.gives && joint->kind == WEFT_JOINT_COLLECT)
        out->from = data[0] + part;
    if (sides.gets == sides.gives && joint->kind == WEFT_JOINT_FOLD_PARTS)
        out->to = data[0] + part;
    return status < 0 ? status : 1;
}

/* ---- groups ---- */

void weft__ordered_taken(struct weft__ordered *ordered)
{
    struct weft_run *run = ordered->run;
    struct weft__engine *engine = run->engine;
    struct weft__issuer *issuer = ordered->team->issuer;
    const struct weft__group group = ordered->groups[ordered->group_tail - 1];
    int follows = 0, status = ops_of(ordered)->mark(issuer->stream);

    ordered->groups[ordered->group_tail - 1].ticket = issuer->stream->issued;
    for (uint32_t i = 0; i < group.count; i++) {
        uint32_t n = ordered->issued[group.first + i];

        follows |= ordered->streamed[n] > 0 || weft__end_of(ordered, n)->gathered != 0;
    }
    if (status == WEFT_OK && follows)
        status = ops_of(ordered)->follow(run->flights->stream, issuer->stream);
    for (uint32_t i = 0; i < group.count && status == WEFT_OK; i++) {
        uint32_t n = ordered->issued[group.first + i];
        size_t bytes =
            joint_of(run, n) ? region_of(run, n)->bytes : weft__end_of(ordered, n)->bytes;

        if (!weft__ordered_scatters(run, n)) {
            weft__engine_issued(engine, run, n);
            continue;
        }
        status = gather(ordered, region_of(run, n), place_of(ordered, n, 0), bytes, 1);
        xfer_of(run, n)->source = NULL;
        if (!receives(run, n))
            xfer_of(run, n)->message.xflags = WEFT__X_IDLE;
        weft__flight_add(engine, run->flights,
                         (struct weft__flight){.node = n,
                                               .kind = receives(run, n) ? WEFT__FLIGHT_RECEIVE
                                                                        : WEFT__FLIGHT_NODE,
                                               .bytes = bytes});
        if (!receives(run, n))
            weft__engine_issued(engine, run, n);
        if (!weft__run_active(run))
            return;
    }
    if (status != WEFT_OK)
        weft__engine_fail(engine, run, status, ordered->issued[group.first],
                          engine->transport->rank, weft_error_text());
}

/* Nodes of no bytes have happened by being agreed on. */
static void finish_empty(struct weft__ordered *ordered, const uint32_t *nodes, uint32_t count)
{
    struct weft_run *run = ordered->run;

    for (uint32_t i = 0; i < count && weft__run_active(run); i++) {
        if (weft__end_of(ordered, nodes[i])->bytes > 0)
            continue;
        xfer_of(run, nodes[i])->message.xflags = WEFT__X_IDLE;
        weft__engine_finish(run->engine, run, nodes[i]);
    }
}

/* Notes that a node has gone to the communicator, with the group that is being made. */
static void note_issued(struct weft__ordered *ordered, uint32_t n)
{
    xfer_of(ordered->run, n)->message.xflags = WEFT__X_ISSUED;
    ordered->issued[ordered->issued_count++] = n;
}

/* Messages become items of a group: how many; negative. */
static int make_items(struct weft__ordered *ordered, const uint32_t *nodes, uint32_t count)
{
    struct weft_run *run = ordered->run;
    struct weft__engine *engine = run->engine;
    int items = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct weft__node *node = &run->plan->nodes[nodes[i]];
        struct weft__end *end = weft__end_of(ordered, nodes[i]);
        int made = make_item(ordered, nodes[i], &ordered->items[items]);

        if (made < 0)
            return made;
        if (node->kind == WEFT_NODE_SEND) {
            engine->stats.messages_sent++;
            engine->stats.bytes_sent += end->bytes;
        } else if (node->produces != 0) {
            run->values[node->produces - 1] = end->bytes / weft__node_element(run->plan, node);
        }
        if (made > 0)
            note_issued(ordered, nodes[i]);
        items += made;
    }
    return items;
}

/* Hands a group to its communicator: what is on the run's stream comes before it. */
static int hand_over(struct weft__ordered *ordered, const struct weft__comm_joint *joint, int items)
{
    struct weft__issuer *issuer = ordered->team->issuer;
    const struct weft__device_ops *ops = ops_of(ordered);
    int status = ops->follow(issuer->stream, ordered->run->flights->stream);

    if (status == WEFT_OK)
        status = joint ? ops->comm_joint(ordered->takes, issuer->stream, joint)
                       : ops->comm_exchange(ordered->takes, issuer->stream, ordered->items,
                                            (size_t)items);
    return status;
}

int weft__ordered_group(struct weft__ordered *ordered, const uint32_t *nodes, uint32_t count)
{
    struct weft_run *run = ordered->run;
    struct weft__engine *engine = run->engine;
    struct weft__issuer *issuer = ordered->team->issuer;
    struct weft__group *group = &ordered->groups[ordered->group_tail];
    struct weft__comm_joint joint;
    int joins = joint_of(run, nodes[0]) != NULL, items, status;

    group->first = ordered->issued_count;
    items = joins ? make_joint(ordered, nodes[0], &joint) : make_items(ordered, nodes, count);
    if (joins && items > 0)
        note_issued(ordered, nodes[0]);
    ordered->takes =
        ordered->team->circles[joins ? weft__end_of(ordered, nodes[0])->circle : 0].comm;
    group->count = ordered->issued_count - group->first;
    if (group->count > 0) {
        ordered->group_tail++;
        weft__ordered_enter(ordered);
    }
    status = items > 0 ? hand_over(ordered, joins ? &joint : NULL, items) : items;
    engine->did++;
    if (status == WEFT_IN_PROGRESS)
        issuer->taking = ordered;
    else if (status < 0)
        weft__engine_fail(engine, run, status, nodes[0], engine->transport->rank,
                          weft_error_text());
    else if (items > 0)
        weft__ordered_taken(ordered);
    if (items < (int)count && weft__run_active(run))
        finish_empty(ordered, nodes, count);
    return weft__run_active(run);
}
