/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules of random programs, and their execution one node after the other; see dag.h. */
#include "support/dag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- schedules ---- */

static struct weft_region region_of(const struct dag_region *region)
{
    struct weft_region made = weft_region_at(region->slot, region->offset, region->count);
    made.value = region->value;
    return made;
}

/* It reads what it writes. */
static weft_node_t add_mix(struct weft_schedule *schedule, const struct weft_op *op,
                           const struct weft_region *r, weft_value_t produces)
{
    const struct weft_compute_argument arguments[] = {{r[0], WEFT_UPDATE}, {r[1], WEFT_READ}};
    return weft_schedule_add_compute(schedule, op, arguments, 2, produces);
}

static weft_node_t create(struct weft_schedule *schedule, const struct dag_node *node,
                          const struct dag_ops *ops)
{
    struct weft_region r[DAG_REGIONS];
    for (int i = 0; i < node->region_count; i++)
        r[i] = region_of(&node->regions[i]);
    switch (node->kind) {
    case WEFT_NODE_SEND:
        return weft_schedule_add_send(schedule, r[0], node->peer, node->tag);
    case WEFT_NODE_RECV:
        return node->up_to ? weft_schedule_add_recv_up_to(schedule, r[0], node->peer, node->tag,
                                                          node->produces)
                           : weft_schedule_add_recv(schedule, r[0], node->peer, node->tag);
    case WEFT_NODE_REDUCE:
        return weft_schedule_add_reduce(
            schedule, node->user_op ? ops->reduce : weft_op_builtin((weft_op_kind_t)node->kind_op),
            r[0], r[1], r[2]);
    case WEFT_NODE_COPY:
        return weft_schedule_add_copy(schedule, r[0], r[1]);
    case WEFT_NODE_COMPUTE:
        return add_mix(schedule, ops->mix[node->pend], r, node->produces);
    case WEFT_NODE_EVENT:
        return weft_schedule_add_event(schedule, node->channel);
    case WEFT_NODE_SIGNAL:
        return weft_schedule_add_signal(schedule, node->peer, node->channel);
    default:
        return weft_schedule_add_join(schedule);
    }
}

static void declare(const struct dag *dag, int rank, struct weft_schedule *schedule)
{
    static const char *const names[] = {"in", "out", "acc", "a", "b"};
    static const weft_slot_kind_t kinds[] = {WEFT_SLOT_INPUT, WEFT_SLOT_OUTPUT, WEFT_SLOT_INOUT,
                                             WEFT_SLOT_SCRATCH, WEFT_SLOT_SCRATCH};
    char name[24];
    for (int s = 0; s < DAG_SLOTS; s++)
        weft_schedule_add_slot(schedule, names[s], dag->dtype, dag_slot_count(dag), kinds[s]);
    for (size_t v = 0; v < dag->value_count; v++)
        if (dag->values[v].rank == rank) {
            snprintf(name, sizeof name, "v%d", dag->values[v].number);
            weft_schedule_add_value(schedule, name, dag->values[v].max);
        }
}

/* Nodes of the rank in the order in which they are created: that of the program, or shuffled. */
static size_t order_of(const struct dag *dag, int rank, int *order)
{
    uint64_t random = dag_hash(dag->seed, (uint64_t)rank, 1, 1);
    size_t count = 0;
    for (size_t n = 0; n < dag->node_count; n++)
        if (dag->nodes[n].rank == rank)
            order[count++] = (int)n;
    for (size_t i = count; dag->shuffled && i > 1; i--) {
        size_t other = dag_random(&random) % i;
        int held = order[i - 1];
        order[i - 1] = order[other];
        order[other] = held;
    }
    return count;
}

static void set_choices(const struct dag *dag, int rank, struct weft_schedule *schedule,
                        const weft_node_t *ids)
{
    for (size_t c = 0; c < dag->choice_count; c++) {
        weft_node_t events[4];
        size_t count = 0;
        for (size_t n = 0; n < dag->node_count; n++)
            if (dag->nodes[n].rank == rank && dag->nodes[n].choice == (int)c)
                events[count++] = ids[n];
        if (count)
            weft_schedule_add_choice(schedule, events, count);
    }
}

struct weft_schedule *dag_schedule(const struct dag *dag, int rank, const struct dag_ops *ops,
                                   weft_node_t *ids)
{
    struct weft_schedule *schedule;
    int *order = calloc(dag->node_count + 1, sizeof *order);
    if (!order || weft_schedule_create(&schedule, rank, dag->ranks)) {
        free(order);
        return NULL;
    }
    declare(dag, rank, schedule);
    size_t count = order_of(dag, rank, order);
    for (size_t i = 0; i < count; i++) {
        const struct dag_node *node = &dag->nodes[order[i]];
        ids[order[i]] = create(schedule, node, ops);
        if (node->any)
            weft_schedule_set_any(schedule, ids[order[i]]);
    }
    for (size_t e = 0; e < dag->edge_count; e++)
        if (dag->nodes[dag->edges[e].after].rank == rank)
            weft_schedule_add_order(schedule, ids[dag->edges[e].before], ids[dag->edges[e].after]);
    set_choices(dag, rank, schedule, ids);
    free(order);
    if (weft_schedule_status(schedule) == WEFT_OK)
        return schedule;
    weft_schedule_destroy(schedule);
    return NULL;
}

/* ---- contents ---- */

void dag_fill(const struct dag *dag, int rank, int slot, void *data, uint64_t key)
{
    uint64_t random = dag_hash(dag->seed, (uint64_t)rank, (uint64_t)slot, key);
    size_t bytes = dag_slot_bytes(dag), count = dag_slot_count(dag);
    if (dag->dtype == WEFT_F32 || dag->dtype == WEFT_F64) {
        for (size_t i = 0; i < count; i++) {
            double number = (double)(dag_random(&random) % 31) - 15;
            if (dag->dtype == WEFT_F32)
                ((float *)data)[i] = (float)number;
            else
                ((double *)data)[i] = number;
        }
        return;
    }
    for (size_t i = 0; i < bytes; i += sizeof random) {
        uint64_t word = dag_random(&random);
        memcpy((char *)data + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
    }
}

uint64_t dag_bound(const struct dag *dag, const struct dag_value *value, uint64_t key)
{
    uint64_t number = dag_hash(dag->seed, (uint64_t)value->rank, (uint64_t)value->number, ~key);
    return number % 8 == 0 ? 0 : number / 8 % (value->max + 1);
}

int dag_winner(const struct dag *dag, int choice, uint64_t key)
{
    const struct dag_choice *info = &dag->choices[choice];
    if (info->firing == DAG_BY_SIGNAL)
        return 0;
    return (int)(dag_hash(dag->seed, (uint64_t)choice, key, 3) % (uint64_t)info->branches);
}

/* ---- arithmetic ---- */

void dag_mix(unsigned char *data, const unsigned char *source, size_t bytes, uint64_t version)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(5u * data[i] + source[i] + (unsigned)(version & 0xff));
}

uint64_t dag_produce(const unsigned char *source, size_t bytes, size_t count)
{
    uint64_t sum = bytes;
    for (size_t i = 0; i < bytes; i++)
        sum = sum * 31 + source[i];
    return sum % (count + 1);
}

/* Each byte of an element is made of the one at its place and of its neighbour: what is not called
 * on whole elements gives something else. */
static void opaque_reduce(unsigned char *dst, const unsigned char *a, const unsigned char *b,
                          size_t count, size_t element)
{
    for (size_t i = 0; i < count; i++, dst += element, a += element, b += element) {
        unsigned char first = a[0];
        for (size_t n = 0; n < element; n++)
            dst[n] = (unsigned char)(3u * a[n] + b[n] + (n + 1 < element ? a[n + 1] : first));
    }
}

/* Does not commute; dst may be a or b. */
#define USER_REDUCE(type, expression)                                                              \
    for (size_t i = 0; i < count; i++) {                                                           \
        type x = ((const type *)a)[i], y = ((const type *)b)[i];                                   \
        ((type *)dst)[i] = (type)(expression);                                                     \
    }                                                                                              \
    break

int dag_user_reduce(void *user, void *dst, const void *a, const void *b, size_t count,
                    weft_dtype_t dtype)
{
    (void)user;
    if (weft_dtype_is_opaque(dtype)) {
        opaque_reduce(dst, a, b, count, weft_dtype_size(dtype));
        return WEFT_OK;
    }
    switch (dtype) {
    case WEFT_F32:
        USER_REDUCE(float, x - y);
    case WEFT_F64:
        USER_REDUCE(double, x - y);
    default:
        switch (weft_dtype_size(dtype)) {
        case 1:
            USER_REDUCE(uint8_t, 3u * x + y);
        case 2:
            USER_REDUCE(uint16_t, 3u * x + y);
        case 4:
            USER_REDUCE(uint32_t, 3u * x + y);
        default:
            USER_REDUCE(uint64_t, 3u * x + y);
        }
    }
    return WEFT_OK;
}

#define PLAIN_REDUCE(type, wide, bits)                                                             \
    for (size_t i = 0; i < count; i++) {                                                           \
        type x = ((const type *)a)[i], y = ((const type *)b)[i];                                   \
        ((type *)dst)[i] = kind == WEFT_SUM   ? (type)((wide)x + (wide)y)                          \
                           : kind == WEFT_MIN ? (x < y ? x : y)                                    \
                           : kind == WEFT_MAX ? (x > y ? x : y)                                    \
                                              : (bits);                                            \
    }                                                                                              \
    return

static void plain_reduce(weft_op_kind_t kind, weft_dtype_t dtype, void *dst, const void *a,
                         const void *b, size_t count)
{
    switch (dtype) {
    case WEFT_I8:
        PLAIN_REDUCE(int8_t, uint32_t, (int8_t)(x ^ y));
    case WEFT_U8:
        PLAIN_REDUCE(uint8_t, uint32_t, (uint8_t)(x ^ y));
    case WEFT_I16:
        PLAIN_REDUCE(int16_t, uint32_t, (int16_t)(x ^ y));
    case WEFT_I32:
        PLAIN_REDUCE(int32_t, uint32_t, x ^ y);
    case WEFT_U32:
        PLAIN_REDUCE(uint32_t, uint32_t, x ^ y);
    case WEFT_I64:
        PLAIN_REDUCE(int64_t, uint64_t, x ^ y);
    case WEFT_F32:
        PLAIN_REDUCE(float, float, 0);
    case WEFT_F64:
        PLAIN_REDUCE(double, double, 0);
    default:
        abort();
    }
}

/* ---- execution ---- */

struct machine {
    const struct dag *dag;
    void *(*memory)[DAG_SLOTS];
    uint64_t **values;
    size_t element;
    uint64_t version;
};

static unsigned char *data_of(const struct machine *m, const struct dag_node *node, int region)
{
    const struct dag_region *r = &node->regions[region];
    return (unsigned char *)m->memory[node->rank][r->slot] + r->offset * m->element;
}

static size_t count_of(const struct machine *m, const struct dag_node *node, int region)
{
    const struct dag_region *r = &node->regions[region];
    return r->value ? (size_t)m->values[node->rank][r->value - 1] : r->count;
}

/* A message is copied when it is received: its source cannot have changed, since whoever would
 * change it comes later in the program. */
static void execute(struct machine *m, const struct dag_node *node)
{
    const struct dag_node *from;
    switch (node->kind) {
    case WEFT_NODE_RECV:
        from = &m->dag->nodes[node->mate];
        memcpy(data_of(m, node, 0), data_of(m, from, 0), count_of(m, from, 0) * m->element);
        if (node->produces)
            m->values[node->rank][node->produces - 1] = count_of(m, from, 0);
        break;
    case WEFT_NODE_COPY:
        memcpy(data_of(m, node, 0), data_of(m, node, 1), count_of(m, node, 0) * m->element);
        break;
    case WEFT_NODE_REDUCE:
        if (node->user_op)
            dag_user_reduce(NULL, data_of(m, node, 0), data_of(m, node, 1), data_of(m, node, 2),
                            count_of(m, node, 0), m->dag->dtype);
        else
            plain_reduce((weft_op_kind_t)node->kind_op, m->dag->dtype, data_of(m, node, 0),
                         data_of(m, node, 1), data_of(m, node, 2), count_of(m, node, 0));
        break;
    case WEFT_NODE_COMPUTE:
        dag_mix(data_of(m, node, 0), data_of(m, node, 1), count_of(m, node, 1) * m->element,
                m->version);
        if (node->produces)
            m->values[node->rank][node->produces - 1] = dag_produce(
                data_of(m, node, 1), count_of(m, node, 1) * m->element, count_of(m, node, 1));
        break;
    default:
        break;
    }
}

void dag_reference(const struct dag *dag, void *(*memory)[DAG_SLOTS], uint64_t **values,
                   uint64_t key, uint64_t version)
{
    struct machine m = {.dag = dag,
                        .memory = memory,
                        .values = values,
                        .element = weft_dtype_size(dag->dtype),
                        .version = version};
    for (size_t v = 0; v < dag->value_count; v++)
        if (!dag->values[v].produced)
            values[dag->values[v].rank][dag->values[v].number - 1] =
                dag_bound(dag, &dag->values[v], key);
    for (size_t n = 0; n < dag->node_count; n++)
        if (dag->nodes[n].of < 0 || dag->nodes[n].branch == dag_winner(dag, dag->nodes[n].of, key))
            execute(&m, &dag->nodes[n]);
}
