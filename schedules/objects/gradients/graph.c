/* SPDX-License-Identifier: BSD-3-Clause */
/* The graph of a plan (graph.h). Sends go before what only this rank waits for: so stores are added
 * after all allreduces. */
#include <stdio.h>
#include <string.h>

#include <weft/template.h>

#include "schedules/objects/gradients/graph.h"

enum { CHUNK = 1 << 16 }; /* elements of a node: between two of them the engine looks around */

struct builder {
    const struct weft__gradients_shape *shape;
    const struct weft__gradients_nodes *nodes;
    struct weft_schedule *schedule;
    int rank, size;
    const struct weft_op *load, *convert, *store, *divide, *halve; /* owned */
};

/* ---- what nodes compute ---- */

/* One of the pieces of an argument after the other, beside memory without gaps. */
static int each_piece(const struct weft_argument *listed, const struct weft_argument *flat,
                      int (*call)(weft_dtype_t to_dtype, void *to, weft_dtype_t from_dtype,
                                  const void *from, size_t count, int ranks),
                      int loads, int ranks)
{
    char *at = flat->data;
    int status = WEFT_OK;
    for (size_t i = 0; i < listed->piece_count && !status; i++) {
        const struct weft_piece *piece = &listed->pieces[i];
        status = loads ? call(flat->dtype, at, listed->dtype, piece->data, piece->count, ranks)
                       : call(listed->dtype, piece->data, flat->dtype, at, piece->count, ranks);
        at += piece->count * weft_dtype_size(flat->dtype);
    }
    return status;
}

static int convert(weft_dtype_t to_dtype, void *to, weft_dtype_t from_dtype, const void *from,
                   size_t count, int ranks)
{
    (void)ranks;
    return weft_convert(to_dtype, to, from_dtype, from, count);
}

/* The same number as by dividing, and sooner, where ranks are a power of two. */
static void divide(float *to, const float *from, size_t count, int ranks)
{
    const float by = (float)ranks;
    if ((ranks & (ranks - 1)) == 0)
        for (size_t i = 0; i < count; i++)
            to[i] = from[i] * (1 / by);
    else
        for (size_t i = 0; i < count; i++)
            to[i] = from[i] / by;
}

/* Computed in f32 and rounded once. */
static int divide_into(weft_dtype_t to_dtype, void *to, weft_dtype_t from_dtype, const void *from,
                       size_t count, int ranks)
{
    enum { BLOCK = 2048 };
    float wide[BLOCK];
    const size_t to_size = weft_dtype_size(to_dtype), from_size = weft_dtype_size(from_dtype);
    int status = WEFT_OK;
    if (to_dtype == WEFT_F32 && from_dtype == WEFT_F32) {
        divide(to, from, count, ranks);
        return WEFT_OK;
    }
    for (size_t i = 0; i < count && !status; i += BLOCK) {
        size_t n = count - i < BLOCK ? count - i : BLOCK;
        status = weft_convert(WEFT_F32, wide, from_dtype, (const char *)from + i * from_size, n);
        divide(wide, wide, n, ranks);
        if (!status)
            status = weft_convert(to_dtype, (char *)to + i * to_size, WEFT_F32, wide, n);
    }
    return status;
}

/* Arguments: scratch, a layer. */
static int load(struct weft_call *call)
{
    return each_piece(&call->arguments[1], &call->arguments[0], convert, 1, call->size);
}

/* Arguments: a layer, scratch. */
static int store(struct weft_call *call)
{
    return each_piece(&call->arguments[0], &call->arguments[1], convert, 0, call->size);
}

static int store_average(struct weft_call *call)
{
    return each_piece(&call->arguments[0], &call->arguments[1], divide_into, 0, call->size);
}

static int divide_in_place(struct weft_call *call)
{
    const struct weft_argument *data = &call->arguments[0];
    return divide_into(data->dtype, data->data, data->dtype, data->data, data->count, call->size);
}

/* The average of two averages of as many ranks each: the same bits as a sum that is divided by a
 * power of two, but for what would be too large, or subnormal. */
#define HALVE(name, ...)                                                                           \
    __VA_ARGS__ static void name(float *to, const float *a, const float *b, size_t count)          \
    {                                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = (a[i] + b[i]) * 0.5f;                                                          \
    }
HALVE(halve_plain)
#ifdef __x86_64__
HALVE(halve_wide, __attribute__((target("avx2"))))
#else
#    define halve_wide halve_plain
#endif

static int halve(void *user, void *to, const void *a, const void *b, size_t count,
                 weft_dtype_t dtype)
{
    (void)user;
    (void)dtype;
    (weft_simd_level() >= WEFT_SIMD_AVX2 ? halve_wide : halve_plain)(to, a, b, count);
    return WEFT_OK;
}

static int make_halve(const struct weft_op **op)
{
    struct weft_op_config config;
    struct weft_op *made = NULL;
    weft_op_config_init(&config);
    config.name = "average";
    config.flags = WEFT_OP_COMMUTES;
    config.reduce = halve;
    int status = weft_op_create(&made, &config);
    *op = made;
    return status;
}

static int make_op(const struct weft_op **op, const char *name, weft_compute_fn compute)
{
    struct weft_op_config config;
    struct weft_op *made = NULL;
    weft_op_config_init(&config);
    config.name = name;
    config.compute = compute;
    int status = weft_op_create(&made, &config);
    *op = made;
    return status;
}

static int make_ops(struct builder *b)
{
    int sums = b->shape->reduction == WEFT_GRADIENTS_SUM;
    int status = make_op(&b->load, "load", load);
    if (!status)
        status = make_op(&b->convert, "convert", store);
    if (!status)
        status = make_op(&b->store, "store", sums ? store : store_average);
    if (!status)
        status = make_op(&b->divide, "divide", divide_in_place);
    return status ? status : make_halve(&b->halve);
}

/* ---- the graph ---- */

/* Whether anything is to be sent. */
static int is_summed(const struct builder *b, const struct weft__gradients_group *group)
{
    return b->size > 1 && group->count;
}

static int is_in_place(const struct builder *b, size_t k)
{
    const struct weft__gradients_shape *shape = b->shape;
    return shape->dtype == shape->wire && (!shape->in_place || shape->in_place[k]);
}

static int is_copied(const struct builder *b, size_t k)
{
    return is_summed(b, &b->shape->groups[k]) && !is_in_place(b, k);
}

static weft_slot_t add_slot(struct builder *b, const char *kind, size_t number, weft_dtype_t dtype,
                            size_t count, weft_slot_kind_t access)
{
    char name[48];
    snprintf(name, sizeof name, "%s.%zu", kind, number);
    return weft_schedule_add_slot(b->schedule, name, dtype, count, access);
}

static void label(struct builder *b, weft_node_t node, const char *what, size_t number)
{
    char text[64];
    snprintf(text, sizeof text, what, number);
    weft_schedule_set_label(b->schedule, node, text);
}

static weft_node_t add_join(struct builder *b, weft_node_t before)
{
    weft_node_t join = weft_schedule_add_join(b->schedule);
    weft_schedule_add_order(b->schedule, before, join);
    return join;
}

/* The time at which a node has ended. */
static void add_clock(struct builder *b, const char *name, size_t k, weft_node_t before,
                      weft_value_t *value)
{
    char text[48];
    if (!b->shape->clock)
        return;
    snprintf(text, sizeof text, "%s.%zu", name, k);
    *value = weft_schedule_add_value(b->schedule, text, UINT64_MAX);
    weft_node_t node = weft_schedule_add_compute(b->schedule, b->shape->clock, NULL, 0, *value);
    weft_schedule_add_order(b->schedule, before, node);
}

/* Nodes that do something to part of a slot, a chunk each, between two others. other: a second
 * argument, or without a slot. */
static void add_chunks(struct builder *b, const struct weft_op *op, struct weft_region to,
                       weft_access_t access, const struct weft_region *from, weft_node_t before,
                       weft_node_t after)
{
    for (size_t i = 0; i < to.count; i += CHUNK) {
        size_t n = to.count - i < CHUNK ? to.count - i : CHUNK;
        struct weft_compute_argument arguments[2] = {
            {.region = weft_region_at(to.slot, to.offset + i, n), .access = access}};
        if (from)
            arguments[1] = (struct weft_compute_argument){
                .region = weft_region_at(from->slot, from->offset + i, n), .access = WEFT_READ};
        weft_node_t node = weft_schedule_add_compute(b->schedule, op, arguments, from ? 2 : 1, 0);
        weft_schedule_add_order(b->schedule, before, node);
        weft_schedule_add_order(b->schedule, node, after);
    }
}

/* A copy, or a conversion. The engine cuts copies by itself. */
static void add_move(struct builder *b, const struct weft_op *op, struct weft_region to,
                     struct weft_region from, int converts, weft_node_t before, weft_node_t after)
{
    if (converts) {
        add_chunks(b, op, to, WEFT_WRITE, &from, before, after);
        return;
    }
    weft_node_t node = weft_schedule_add_copy(b->schedule, to, from);
    weft_schedule_add_order(b->schedule, before, node);
    weft_schedule_add_order(b->schedule, node, after);
}

/* Where a group is summed. */
struct place {
    weft_slot_t sum;    /* its elements, or scratch */
    weft_slot_t *slots; /* by layer: of those that are copied */
    weft_node_t over;   /* the allreduce */
    int averaged;       /* by it */
};

static weft_node_t add_loads(struct builder *b, size_t k, struct place *place)
{
    const struct weft__gradients_shape *shape = b->shape;
    const struct weft__gradients_group *group = &shape->groups[k];
    weft_node_t start = weft_schedule_add_join(b->schedule);
    int copies = is_copied(b, k);
    label(b, start, "group %zu is there", k);
    for (size_t i = 0, at = 0; i < group->layer_count; i++) {
        size_t l = group->layers[i], count = shape->layers[l].count;
        weft_node_t ready = b->nodes->ready[l];
        weft_schedule_add_order(b->schedule, ready, start);
        if (copies && count) {
            place->slots[l] = add_slot(b, "layer", l, shape->dtype, count, WEFT_SLOT_INOUT);
            add_move(b, b->load, weft_region_at(place->sum, at, count),
                     weft_region_at(place->slots[l], 0, count), shape->dtype != shape->wire, ready,
                     start);
        }
        at += count;
    }
    return start;
}

/* Whether averages can be made on the way: all reductions are of two parts that are of as many
 * ranks. Then no pass over the memory is needed after it. */
static int averages_on_the_way(const struct builder *b, struct weft_template_params *params)
{
    const char *algorithm = NULL;
    double us;
    if (b->shape->reduction != WEFT_GRADIENTS_AVERAGE || b->shape->wire != WEFT_F32 ||
        (b->size & (b->size - 1)) ||
        weft_template_choose("allreduce", b->size, params, &algorithm, &us) ||
        (strcmp(algorithm, "recursive-doubling") != 0 &&
         strcmp(algorithm, "reduce-scatter-allgather") != 0))
        return 0;
    params->algo = algorithm;
    params->op = b->halve;
    return 1;
}

static weft_node_t add_allreduce(struct builder *b, size_t k, struct weft_region region,
                                 weft_node_t start, int *averaged)
{
    struct weft_template_params params;
    struct weft_part_config config;
    struct weft_schedule *part = NULL;
    char name[48];
    snprintf(name, sizeof name, "allreduce.%zu", k);
    weft_template_params_init(&params);
    params.count = region.count;
    params.dtype = b->shape->wire;
    params.in_place = 1;
    params.cost = b->shape->cost;
    params.hosts = b->shape->hosts;
    *averaged = averages_on_the_way(b, &params);
    int status = weft_template_build("allreduce", b->rank, b->size, &params, &part);
    if (status)
        return status;
    const struct weft_part_slot slot = {.name = "recv", .region = region};
    const uint32_t tags = UINT32_MAX / (uint32_t)b->shape->group_count;
    weft_part_config_init(&config);
    config.name = name;
    config.slots = &slot;
    config.slot_count = 1;
    config.tag = (uint32_t)k * tags;
    config.tag_count = tags;
    weft_node_t join = weft_schedule_add_part(b->schedule, part, start, &config);
    weft_schedule_destroy(part);
    return join;
}

/* A group's sum. previous: the one of the group before, or WEFT_NODE_NONE. */
static int add_group(struct builder *b, size_t k, weft_node_t previous, struct place *place)
{
    const struct weft__gradients_shape *shape = b->shape;
    const struct weft__gradients_group *group = &shape->groups[k];
    int summed = is_summed(b, group);
    if (summed)
        place->sum = is_in_place(b, k)
                         ? add_slot(b, "group", k, shape->dtype, group->count, WEFT_SLOT_INOUT)
                         : add_slot(b, "sum", k, shape->wire, group->count, WEFT_SLOT_SCRATCH);
    weft_node_t start = add_loads(b, k, place);
    if (previous != WEFT_NODE_NONE)
        weft_schedule_add_order(b->schedule, previous, start);
    add_clock(b, "started", k, start, &b->nodes->started[k]);
    place->over = summed ? add_allreduce(b, k, weft_region_at(place->sum, 0, group->count), start,
                                         &place->averaged)
                         : start;
    if (place->over < 0)
        return place->over;
    add_clock(b, "ended", k, place->over, &b->nodes->ended[k]);
    return WEFT_OK;
}

/* The sum becomes the result, of each layer for itself. */
static void add_stores(struct builder *b, size_t k, const struct place *place)
{
    const struct weft__gradients_shape *shape = b->shape;
    const struct weft__gradients_group *group = &shape->groups[k];
    const int averages = shape->reduction == WEFT_GRADIENTS_AVERAGE && !place->averaged;
    const int summed = is_summed(b, group), in_place = is_in_place(b, k);
    const int stores = summed && (!in_place || averages);
    weft_node_t done = 0;
    for (size_t i = 0, at = 0; i < group->layer_count; i++) {
        size_t l = group->layers[i], count = shape->layers[l].count;
        struct weft_region sum = weft_region_at(place->sum, at, count);
        if (stores || !i) {
            done = add_join(b, place->over);
            label(b, done, stores ? "layer %zu is done" : "layer %zu is done, and its group", l);
        }
        b->nodes->done[l] = done;
        at += count;
        if (!stores || !count)
            continue;
        if (in_place)
            add_chunks(b, b->divide, sum, WEFT_UPDATE, NULL, place->over, done);
        else
            add_move(b, averages ? b->store : b->convert, weft_region_at(place->slots[l], 0, count),
                     sum, averages || shape->dtype != shape->wire, place->over, done);
    }
}

/* What a checker can follow: sums of what is not converted. */
static void add_results(struct builder *b, size_t k, const struct place *place)
{
    const struct weft__gradients_shape *shape = b->shape;
    const struct weft__gradients_group *group = &shape->groups[k];
    struct weft_result result;
    char name[48];
    if (!is_summed(b, group) || shape->reduction != WEFT_GRADIENTS_SUM ||
        shape->dtype != shape->wire)
        return;
    weft_result_init(&result);
    result.ranks = b->size;
    result.op = weft_op_builtin(WEFT_SUM);
    result.from = name;
    if (is_in_place(b, k)) {
        snprintf(name, sizeof name, "group.%zu", k);
        result.dst = weft_region_at(place->sum, 0, group->count);
        weft_schedule_add_result(b->schedule, &result);
        return;
    }
    for (size_t i = 0; i < group->layer_count; i++) {
        size_t l = group->layers[i];
        if (!shape->layers[l].count)
            continue;
        snprintf(name, sizeof name, "layer.%zu", l);
        result.dst = weft_region_at(place->slots[l], 0, shape->layers[l].count);
        weft_schedule_add_result(b->schedule, &result);
    }
}

/* Of a group that is copied each layer has an event, of another one all have the same: nothing
 * happens before the last of them is there. */
static void add_events(struct builder *b, const struct weft__gradients_group *group, int copied)
{
    weft_node_t event = 0;
    for (size_t i = 0; i < group->layer_count; i++) {
        size_t l = group->layers[i];
        if (copied || !i) {
            event = weft_schedule_add_event(b->schedule, WEFT_CHANNEL_NONE);
            label(b, event,
                  copied || group->layer_count == 1 ? "layer %zu" : "layer %zu and others", l);
        }
        b->nodes->ready[l] = event;
    }
}

static int add_all(struct builder *b, struct place *places)
{
    const struct weft__gradients_shape *shape = b->shape;
    weft_node_t previous = WEFT_NODE_NONE;
    int status = WEFT_OK;
    weft_schedule_set_name(b->schedule, "gradients");
    for (size_t k = 0; k < shape->group_count && !status; k++) {
        add_events(b, &shape->groups[k], is_copied(b, k));
        status = add_group(b, k, previous, &places[k]);
        previous = places[k].over;
    }
    for (size_t k = 0; k < shape->group_count && !status; k++) {
        add_stores(b, k, &places[k]);
        add_results(b, k, &places[k]);
    }
    return status ? status : weft_schedule_status(b->schedule);
}

static int build(struct builder *b, struct place *places, weft_slot_t *slots)
{
    for (size_t k = 0; k < b->shape->group_count; k++)
        places[k].slots = slots;
    int status = make_ops(b);
    if (!status)
        status = weft_schedule_create(&b->schedule, b->rank, b->size);
    return status ? status : add_all(b, places);
}

int weft__gradients_schedule(const struct weft__gradients_shape *shape, int rank, int size,
                             const struct weft__gradients_nodes *nodes,
                             struct weft_schedule **schedule)
{
    struct builder b = {.shape = shape, .nodes = nodes, .rank = rank, .size = size};
    struct place *places = weft_memory_alloc(shape->group_count + 1, sizeof *places);
    weft_slot_t *slots = weft_memory_alloc(shape->layer_count + 1, sizeof *slots);
    int status = WEFT_ERR_MEMORY;
    if (places && slots)
        status = build(&b, places, slots);
    else
        weft__gradients_no_memory("a graph of layers", shape->layer_count);
    weft_op_destroy(b.load);
    weft_op_destroy(b.convert);
    weft_op_destroy(b.store);
    weft_op_destroy(b.divide);
    weft_op_destroy(b.halve);
    weft_memory_free(slots);
    weft_memory_free(places);
    if (status)
        weft_schedule_destroy(b.schedule);
    else
        *schedule = b.schedule;
    return status;
}
