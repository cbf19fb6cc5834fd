/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The aggregation of sparse averaging as a graph.
 *
 * The root rotates, and with it the place of a rank in the tree. One plan serves every place,
 * because its peers are slots: a message to or from nobody ends at once, a list that did not come
 * is empty, and merging an empty list does nothing. Places count from the root on.
 *
 *     tree        1 .. n    the children, at distance 1, 2, 4 ... as far as they exist
 *                 n + 1     the parent
 *     butterfly   1 .. n    partners of the rounds
 *                 n + 1     the one beyond the power of two for whom this rank acts
 *                 n + 2     the one who acts for this rank, beyond the power of two
 *
 * Merges are made in place. The order of merges is that of the templates gtopk and topk-allgather,
 * and so are the results, bit by bit.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/sparse_average/sparse_average.h"

enum { UP, DOWN, EXTRA, ROUND }; /* tags; ROUND + j */

/* ---- operations ---- */

static void count_dropped(struct weft__sparse_unit *unit, const struct weft_sparse *dropped)
{
    const float *values = dropped->values;
    double mass = 0;
    for (size_t i = 0; i < dropped->count; i++)
        mass += fabs((double)values[i]);
    unit->dropped += dropped->count;
    unit->dropped_mass += mass;
}

static int drop(struct weft__sparse_unit *unit, const struct weft_sparse *dropped)
{
    const struct weft_sparse_average *average = unit->average;
    count_dropped(unit, dropped);
    if (average->config.residual == WEFT_SPARSE_PAPER)
        return WEFT_OK;
    if (average->device)
        return weft__sparse_pend(unit, dropped);
    return weft_sparse_scatter_add(dropped, 1, average->residual + unit->offset, unit->count);
}

/* The list as memory, the list as it is, a list to be merged into it, which is overwritten. */
static int merge(struct weft_call *call)
{
    const struct weft__sparse_merge *self = call->user;
    struct weft__sparse_unit *unit = self->unit;
    struct weft_sparse_average *average = unit->average;
    struct weft_sparse a = weft__sparse_list(call->arguments[1].data, call->arguments[1].count);
    struct weft_sparse b = weft__sparse_list(call->arguments[2].data, call->arguments[2].count);
    size_t both = a.count + b.count, limit = unit->k;
    *call->value = a.count;
    if (!b.count)
        return WEFT_OK;
    if (average->config.method == WEFT_SPARSE_ALLGATHER)
        limit = unit->capacity; /* nothing is dropped */
    limit = limit < both ? limit : both;
    if (!call->arguments[2].data) { /* virtual ranks without payload: as if no index were in both */
        unit->omitted = 1;
        *call->value = limit;
        return WEFT_OK;
    }
    struct weft_sparse_options options;
    struct weft_sparse_report report = {.struct_size = sizeof report};
    struct weft_sparse out = weft__sparse_list(call->arguments[0].data, limit);
    struct weft_sparse dropped = weft__sparse_list(call->arguments[3].data, both - limit);
    weft_sparse_options_init(&options);
    options.nan = WEFT_NAN_ZERO; /* infinities of both signs */
    options.workspace = average->merge_workspace;
    options.workspace_bytes = average->merge_workspace_bytes;
    int status = weft_sparse_merge(&options, &a, &b, limit, &out, &dropped, &report);
    if (status)
        return status;
    if (self->owns) {
        unit->nans += report.nans;
        status = drop(unit, &dropped);
    }
    if (out.count < limit) /* values follow the indices that there are */
        memmove((uint32_t *)out.indices + out.count, out.values, out.count * sizeof(float));
    *call->value = out.count;
    return status;
}

/* The list as merged here, and as it has come from another rank: which one is the result. (Lists
 * that come for merges, too, to see whether there is payload.) */
static int choose(struct weft_call *call)
{
    struct weft__sparse_unit *unit = call->user;
    unit->omitted |= unit->takes && !call->arguments[2].data;
    *call->value = call->arguments[unit->takes].count;
    return WEFT_OK;
}

static int make_op(struct weft_op **op, const char *name, weft_compute_fn compute, void *user,
                   unsigned flags)
{
    struct weft_op_config config;
    weft_op_config_init(&config);
    config.name = name;
    config.compute = compute;
    config.user = user;
    config.flags = flags;
    return weft_op_create(op, &config);
}

static int make_ops(struct weft__sparse_unit *unit)
{
    int status = make_op(&unit->choose, "choose", choose, unit, 0);
    for (int i = 0; i < unit->merge_count && !status; i++) {
        unit->merges[i].unit = unit;
        status = make_op(&unit->merges[i].op, "topk-merge", merge, &unit->merges[i],
                         WEFT_OP_COMMUTES | WEFT_OP_FOLDS);
    }
    return status;
}

/* ---- graphs ---- */

struct maker {
    struct weft__sparse_unit *unit;
    struct weft_schedule *schedule;
    weft_slot_t list, in[2];
    weft_value_t value;  /* of the list now */
    weft_node_t last;    /* which has made it so; -1: it was so at the start */
    weft_node_t used[2]; /* the last merge from in[i], or -1 */
    int merges;
};

static weft_value_t new_value(struct maker *m, const char *kind)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, m->merges);
    return weft_schedule_add_value(m->schedule, name, m->unit->capacity);
}

static void after(struct maker *m, weft_node_t before, weft_node_t node)
{
    if (before >= 0)
        weft_schedule_add_order(m->schedule, before, node);
}

static struct weft_region whole(const struct maker *m, weft_slot_t slot)
{
    return weft_region_at(slot, 0, m->unit->capacity);
}

static struct weft_region part(const struct maker *m, weft_slot_t slot, weft_value_t value)
{
    struct weft_region region = whole(m, slot);
    region.value = value;
    return region;
}

static weft_node_t send_list(struct maker *m, int peer, uint32_t tag)
{
    struct weft__sparse_unit *unit = m->unit;
    weft_node_t node = weft_schedule_add_send(m->schedule, part(m, m->list, m->value), peer, tag);
    after(m, m->last, node);
    unit->sends[unit->send_count++] = (struct weft__sparse_send){peer, m->value};
    return node;
}

/* The list T what comes from a peer, when `before`, which reads the list, has ended. */
static void receive_and_merge(struct maker *m, int peer, uint32_t tag, weft_node_t before)
{
    int i = m->merges % 2;
    weft_value_t came = new_value(m, "in");
    weft_value_t merged = new_value(m, "sum");
    weft_node_t received =
        weft_schedule_add_recv_up_to(m->schedule, whole(m, m->in[i]), peer, tag, came);
    after(m, m->used[i], received);
    struct weft_compute_argument arguments[] = {{whole(m, m->list), WEFT_WRITE},
                                                {part(m, m->list, m->value), WEFT_READ},
                                                {part(m, m->in[i], came), WEFT_READ},
                                                {whole(m, m->in[i]), WEFT_WRITE}};
    weft_node_t node =
        weft_schedule_add_compute(m->schedule, m->unit->merges[m->merges].op, arguments, 4, merged);
    after(m, received, node);
    after(m, m->last, node);
    after(m, before, node);
    m->used[i] = m->last = node;
    m->value = merged;
    m->merges++;
}

/* The list becomes the one of a peer, if there is one; `before` reads the list. */
static void take(struct maker *m, int peer, uint32_t tag, weft_node_t before)
{
    weft_value_t came = weft_schedule_add_value(m->schedule, "came", m->unit->capacity);
    weft_value_t result = weft_schedule_add_value(m->schedule, "result", m->unit->capacity);
    weft_node_t received =
        weft_schedule_add_recv_up_to(m->schedule, whole(m, m->list), peer, tag, came);
    after(m, before, received);
    struct weft_compute_argument arguments[] = {{part(m, m->list, m->value), WEFT_READ},
                                                {part(m, m->list, came), WEFT_READ},
                                                {whole(m, m->in[0]), WEFT_READ}};
    m->last = weft_schedule_add_compute(m->schedule, m->unit->choose, arguments, 3, result);
    after(m, received, m->last);
    m->value = result;
}

static void build_tree(struct maker *m, int rounds)
{
    for (int j = 0; j < rounds; j++)
        receive_and_merge(m, 1 + j, UP, -1);
    take(m, 1 + rounds, DOWN, send_list(m, 1 + rounds, UP));
    for (int j = rounds - 1; j >= 0; j--) /* the largest subtree first */
        send_list(m, 1 + j, DOWN);
}

static void build_butterfly(struct maker *m, int rounds, int extras)
{
    int extra = 1 + rounds, helper = 2 + rounds;
    if (extras) {
        receive_and_merge(m, extra, EXTRA, -1);
        m->last = send_list(m, helper, EXTRA);
    }
    for (int j = 0; j < rounds; j++) {
        uint32_t tag = (uint32_t)(ROUND + j);
        receive_and_merge(m, 1 + j, tag, send_list(m, 1 + j, tag));
    }
    if (extras)
        take(m, helper, DOWN, send_list(m, extra, DOWN));
}

/* ---- places ---- */

struct shape {
    int size, power, rounds, tree;
};

static struct shape shape_of(const struct weft_sparse_average *average)
{
    struct shape shape = {.size = weft_context_size(average->context),
                          .power = 1,
                          .tree = average->config.method == WEFT_SPARSE_GTOPK};
    while (shape.power <= shape.size / 2) {
        shape.power *= 2;
        shape.rounds++;
    }
    if (shape.tree && shape.power < shape.size)
        shape.rounds++;
    return shape;
}

static int rank_at(const struct shape *shape, int root, int64_t place)
{
    return place < shape->size ? (int)((place + root) % shape->size) : WEFT_PEER_NONE;
}

static void place_in_tree(struct weft__sparse_unit *unit, const struct shape *shape, int root,
                          int place)
{
    for (int j = 0; j < shape->rounds; j++) {
        int64_t span = INT64_C(1) << j;
        int child = (place & (2 * span - 1)) == 0;
        unit->peers[1 + j] = child ? rank_at(shape, root, place + span) : WEFT_PEER_NONE;
        unit->merges[j].owns = child;
    }
    unit->takes = place != 0;
    unit->peers[1 + shape->rounds] =
        place ? rank_at(shape, root, place & (place - 1)) : WEFT_PEER_NONE;
}

static void place_in_butterfly(struct weft__sparse_unit *unit, const struct shape *shape, int root,
                               int place)
{
    int outside = place >= shape->power, extras = shape->size > shape->power;
    unit->takes = outside;
    for (int j = 0; j < shape->rounds; j++) {
        int span = 1 << j;
        unit->peers[1 + j] = outside ? WEFT_PEER_NONE : rank_at(shape, root, place ^ span);
        unit->merges[extras + j].owns = (place & (2 * span - 1)) == 0;
    }
    unit->peers[1 + shape->rounds] =
        outside ? WEFT_PEER_NONE : rank_at(shape, root, (int64_t)place + shape->power);
    unit->peers[2 + shape->rounds] =
        outside ? rank_at(shape, root, place - shape->power) : WEFT_PEER_NONE;
    if (extras)
        unit->merges[0].owns = 1;
}

/* ---- life ---- */

static void note_end(void *user, struct weft_run *run, int status)
{
    struct weft__sparse_unit *unit = user;
    (void)run;
    (void)status;
    atomic_store_explicit(&unit->ended_ns, weft_context_now(unit->average->context),
                          memory_order_relaxed);
}

int weft__sparse_run(struct weft__sparse_unit *unit, struct weft_plan *plan, struct weft_run **run)
{
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.object = unit->average->object;
    config.ended = unit->average->member ? note_end : NULL;
    config.user = unit;
    return weft_run_create(run, unit->average->context, plan, &config);
}

static int allocate(struct weft__sparse_unit *unit, const struct shape *shape)
{
    int extras = !shape->tree && shape->size > shape->power;
    size_t sends = 2 * (size_t)shape->rounds + 2;
    unit->merge_count = shape->rounds + extras;
    unit->peer_count = shape->rounds + 3;
    unit->merges = weft_memory_alloc((size_t)unit->merge_count + 1, sizeof *unit->merges);
    unit->sends = weft_memory_alloc(sends, sizeof *unit->sends);
    unit->peers = weft_memory_alloc((size_t)unit->peer_count, sizeof *unit->peers);
    if (!unit->merges || !unit->sends || !unit->peers)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d merges", unit->merge_count);
    return make_ops(unit);
}

static int build(struct maker *m, const struct shape *shape)
{
    struct weft__sparse_unit *unit = m->unit;
    int status = weft_schedule_create(&m->schedule, 0, unit->peer_count);
    if (status)
        return status;
    weft_schedule_set_name(m->schedule, "sparse-average");
    m->list =
        weft_schedule_add_slot(m->schedule, "list", WEFT_U64, unit->capacity, WEFT_SLOT_INOUT);
    for (int i = 0; i < 2; i++)
        m->in[i] = weft_schedule_add_slot(m->schedule, i ? "in1" : "in0", WEFT_U64, unit->capacity,
                                          WEFT_SLOT_SCRATCH);
    m->value = unit->pairs = weft_schedule_add_value(m->schedule, "pairs", unit->most);
    if (shape->tree)
        build_tree(m, shape->rounds);
    else
        build_butterfly(m, shape->rounds, shape->size > shape->power);
    unit->sum = m->value;
    return weft_schedule_status(m->schedule);
}

int weft__sparse_plan(struct weft__sparse_unit *unit)
{
    struct shape shape = shape_of(unit->average);
    struct maker m = {.unit = unit, .last = -1, .used = {-1, -1}};
    struct weft_plan *plan = NULL;
    int status = allocate(unit, &shape);
    if (!status)
        status = build(&m, &shape);
    if (!status)
        status = weft_schedule_commit(m.schedule, &plan);
    if (!status)
        status = weft__sparse_run(unit, plan, &unit->run);
    if (!status)
        status = weft_run_bind_name(unit->run, "list", unit->list, unit->capacity, WEFT_U64);
    weft_plan_destroy(plan);
    weft_schedule_destroy(m.schedule);
    return status;
}

void weft__sparse_plan_free(struct weft__sparse_unit *unit)
{
    weft_run_destroy(unit->balance_run);
    weft_run_destroy(unit->run);
    for (int i = 0; unit->merges && i < unit->merge_count; i++)
        weft_op_destroy(unit->merges[i].op);
    weft_op_destroy(unit->choose);
    weft_memory_free(unit->balance);
    weft_memory_free(unit->parts);
    weft_memory_free(unit->merges);
    weft_memory_free(unit->sends);
    weft_memory_free(unit->peers);
}

/* ---- steps ---- */

int weft__sparse_bind(struct weft__sparse_unit *unit)
{
    const struct weft_sparse_average *average = unit->average;
    struct shape shape = shape_of(average);
    int rank = weft_context_rank(average->context);
    uint64_t turn = unit->next + (uint64_t)(unit - average->units); /* not all roots are one rank */
    int root =
        average->config.method == WEFT_SPARSE_ALLGATHER ? 0 : (int)(turn % (uint64_t)shape.size);
    int place = (int)(((int64_t)rank - root + shape.size) % shape.size);
    unit->peers[0] = rank;
    for (int i = 1; i < unit->peer_count; i++)
        unit->peers[i] = WEFT_PEER_NONE;
    if (shape.tree)
        place_in_tree(unit, &shape, root, place);
    else
        place_in_butterfly(unit, &shape, root, place);
    return weft_run_bind_peers(unit->run, unit->peers);
}

int weft__sparse_start(struct weft__sparse_unit *unit)
{
    int status = weft__sparse_bind(unit);
    if (!status)
        status = weft_run_bind_value(unit->run, unit->pairs, unit->selected);
    return status ? status : weft_run_start(unit->run);
}

void weft__sparse_count(struct weft__sparse_unit *unit)
{
    struct weft_sparse_average_stats *stats = &unit->average->stats;
    unit->kept = unit->omitted ? 0 : (size_t)weft_run_get_value(unit->run, unit->sum);
    for (int i = 0; i < unit->send_count; i++) {
        if (unit->peers[unit->sends[i].peer] == WEFT_PEER_NONE)
            continue;
        stats->messages++;
        stats->bytes += weft_run_get_value(unit->run, unit->sends[i].pairs) * sizeof(uint64_t);
    }
    stats->dropped += unit->dropped;
    stats->dropped_mass += unit->dropped_mass;
    stats->nans += unit->nans;
    unit->dropped = unit->nans = 0;
    unit->dropped_mass = 0;
}
