/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft_simulate(): schedules are built and made compact, rank after rank or on several threads;
 * then the simulation runs on one, and what it leaves behind becomes the result.
 */
#include "runtime/sim/sim.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/op_price.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The result, and what its pointers point at. */
struct result {
    struct weft_sim_result public;
    double *rank_us;
};

void weft_sim_config_init_sized(struct weft_sim_config *config, size_t size)
{
    weft_sized_init(config, size);
}

const char *weft_sim_reason_name(weft_sim_reason_t reason)
{
    static const char *const names[] = {"first", "order",      "message", "processor",
                                        "link",  "rendezvous", "time"};

    return (int)reason >= 0 && reason <= WEFT_SIM_TIME ? names[reason] : NULL;
}

/* ---- finding messages ---- */

enum { SCAN = 64 }; /* so many receives are looked through, more are sorted */

static int compare_keys(const void *left, const void *right)
{
    const struct weft__sim_key *a = left, *b = right;

    if (a->peer != b->peer)
        return a->peer < b->peer ? -1 : 1;
    return a->tag < b->tag ? -1 : a->tag > b->tag;
}

static int make_keys(struct weft__sim_rank *rank)
{
    const struct weft__sim_shape *shape = rank->shape;

    rank->keys = weft__malloc(shape->recvs, sizeof *rank->keys);
    if (!rank->keys)
        return -1;
    for (uint32_t i = 0; i < shape->recvs; i++)
        rank->keys[i] = (struct weft__sim_key){
            rank->recv_peer[i], shape->node[shape->recv_node[i]].tag, shape->recv_node[i]};
    qsort(rank->keys, shape->recvs, sizeof *rank->keys, compare_keys);
    return 0;
}

uint32_t weft__sim_find_recv(struct weft__sim *sim, uint32_t to, uint32_t from, uint32_t tag,
                             uint32_t guess)
{
    struct weft__sim_rank *rank = &sim->ranks[to];
    const struct weft__sim_shape *shape = rank->shape;
    const struct weft__sim_key key = {from, tag, 0}, *found;

    if (guess < shape->recvs && rank->recv_peer[guess] == from &&
        shape->node[shape->recv_node[guess]].tag == tag)
        return shape->recv_node[guess];
    if (shape->recvs <= SCAN || (!rank->keys && make_keys(rank))) {
        for (uint32_t i = 0; i < shape->recvs; i++)
            if (rank->recv_peer[i] == from && shape->node[shape->recv_node[i]].tag == tag)
                return shape->recv_node[i];
        return WEFT__SIM_NONE;
    }
    found = bsearch(&key, rank->keys, shape->recvs, sizeof key, compare_keys);
    return found ? found->node : WEFT__SIM_NONE;
}

uint32_t weft__sim_find_send(const struct weft__sim *sim, uint32_t from, uint32_t to, uint32_t tag,
                             uint32_t guess)
{
    const struct weft__sim_rank *rank = &sim->ranks[from];
    const struct weft__sim_shape *shape = rank->shape;

    if (guess < shape->sends && rank->send_peer[guess] == to &&
        shape->node[shape->send_node[guess]].tag == tag)
        return shape->send_node[guess];
    for (uint32_t i = 0; i < shape->sends; i++)
        if (rank->send_peer[i] == to && shape->node[shape->send_node[i]].tag == tag)
            return shape->send_node[i];
    return WEFT__SIM_NONE;
}

weft__ticks_t weft__sim_cost(const struct weft__sim *sim, const struct weft__sim_node *node)
{
    switch (node->kind) {
    case WEFT_NODE_REDUCE:
        return weft__ticks_bytes(sim->compute[0], node->bytes);
    case WEFT_NODE_COPY:
        return weft__ticks_bytes(sim->compute[1], node->bytes);
    case WEFT_NODE_COMPUTE:
        return node->priced ? node->ticks : weft__ticks_bytes(sim->compute[2], node->bytes);
    default:
        return 0;
    }
}

/* ---- building ---- */

enum { BATCH = 64 };

/* What the threads that build share; ranks are given out in batches, from 0. */
struct building {
    const char *who; /* in errors: the public function */
    const struct weft_sim_config *config;
    struct weft__sim_rank *ranks;
    struct weft__sim_firings *firings;
    atomic_int next;
    atomic_int failed; /* the lowest rank that failed */
};

struct builder {
    struct building *building;
    struct weft__sim_maker *maker;
    pthread_t thread;
    int started;
    int rank; /* that failed here, with its status and text; INT_MAX: none */
    int status;
    char text[512];
};

static int build_rank(struct builder *builder, int at)
{
    const struct weft_sim_config *config = builder->building->config;
    const struct weft_schedule *schedule = NULL;
    struct weft_schedule *built = NULL;
    int status = WEFT_OK;

    if (config->build) {
        status = config->build(config->user, at, &built);
        schedule = built;
    } else {
        schedule = config->schedules[at];
    }
    if (!status && !schedule)
        status = WEFT__INVALID("%s: there is no schedule for rank %d, expected one for each of "
                               "%d ranks",
                               builder->building->who, at, config->ranks);
    if (!status &&
        (weft_schedule_rank(schedule) != at || weft_schedule_size(schedule) != config->ranks))
        status = WEFT__INVALID("%s: the schedule for rank %d is one for rank %d of %d, expected "
                               "rank %d of %d",
                               builder->building->who, at, weft_schedule_rank(schedule),
                               weft_schedule_size(schedule), at, config->ranks);
    if (!status)
        status = weft__sim_make(builder->maker, schedule, &builder->building->ranks[at]);
    if (!status)
        weft__sim_firings_take(builder->building->firings, schedule, &builder->building->ranks[at]);
    weft_schedule_destroy(built);
    return status;
}

static void *build_ranks(void *argument)
{
    struct builder *builder = argument;
    struct building *building = builder->building;
    int size = building->config->ranks;

    for (;;) {
        int at = atomic_fetch_add_explicit(&building->next, BATCH, memory_order_relaxed);
        int end = at < size - BATCH ? at + BATCH : size;

        /* Batches below one that failed are still built: the lowest error is the one returned. */
        if (at < 0 || at >= size || builder->status ||
            at > atomic_load_explicit(&building->failed, memory_order_relaxed))
            return NULL;
        for (; at < end && !builder->status; at++)
            builder->status = build_rank(builder, at);
        if (builder->status) {
            int lowest = atomic_load_explicit(&building->failed, memory_order_relaxed);

            builder->rank = at - 1;
            snprintf(builder->text, sizeof builder->text, "%s", weft_error_text());
            while (builder->rank < lowest && !atomic_compare_exchange_weak_explicit(
                                                 &building->failed, &lowest, builder->rank,
                                                 memory_order_relaxed, memory_order_relaxed))
                ;
        }
    }
}

/* Builds on the caller's thread and `count` - 1 more, of which any may be missing. */
static int build(struct weft__sim *sim, struct builder *builders, int count)
{
    struct building building = {
        .who = sim->who, .config = sim->config, .ranks = sim->ranks, .firings = sim->firings};
    const struct builder *first = builders;

    atomic_init(&building.next, 0);
    atomic_init(&building.failed, INT_MAX);
    for (int i = 0; i < count; i++) {
        builders[i].building = &building;
        builders[i].rank = INT_MAX;
        builders[i].maker = weft__sim_maker_create(sim->who, sim->config);
        if (!builders[i].maker)
            return weft__error_memory("a simulation");
    }
    for (int i = 1; i < count; i++)
        builders[i].started =
            pthread_create(&builders[i].thread, NULL, build_ranks, &builders[i]) == 0;
    build_ranks(&builders[0]);
    for (int i = 1; i < count; i++)
        if (builders[i].started)
            pthread_join(builders[i].thread, NULL);
    for (int i = 1; i < count; i++)
        first = builders[i].rank < first->rank ? &builders[i] : first;
    return first->status ? weft__error(first->status, "%s", first->text) : WEFT_OK;
}

/* ---- the result ---- */

static int keep_nodes(struct weft__sim *sim)
{
    sim->first_node = weft__malloc(sim->size + (size_t)1, sizeof *sim->first_node);
    sim->kept = weft__malloc(sim->nodes, sizeof *sim->kept);
    if (!sim->first_node || !sim->kept)
        return weft__error_memory("what a simulation keeps");
    sim->first_node[0] = 0;
    for (uint32_t at = 0; at < sim->size; at++) {
        const struct weft__sim_rank *rank = &sim->ranks[at];

        sim->first_node[at + 1] = sim->first_node[at] + rank->shape->nodes;
        for (uint32_t n = 0; n < rank->shape->nodes; n++) {
            const struct weft__sim_node *node = &rank->shape->node[n];
            int peer = node->kind == WEFT_NODE_SEND     ? (int)rank->send_peer[node->index]
                       : node->kind == WEFT_NODE_RECV   ? (int)rank->recv_peer[node->index]
                       : node->kind == WEFT_NODE_SIGNAL ? (int)rank->signal_peer[node->index]
                                                        : -1;

            sim->kept[sim->first_node[at] + n] = (struct weft_sim_node){-1, -1, -1, peer, -1, 0};
        }
    }
    return WEFT_OK;
}

static int make_result(struct weft__sim *sim, struct result *result)
{
    struct weft_sim_result *public = &result->public;
    struct weft_sim_step *path = NULL;
    struct weft_sim_fault *faults = NULL;
    weft__ticks_t latest = 0;
    int status;

    for (uint32_t at = 0; at < sim->size; at++) {
        weft__ticks_t done = weft__port_done(&sim->ranks[at].port);

        result->rank_us[at] = weft__ticks_us(done);
        latest = weft__ticks_later(latest, done);
    }
    if ((status = weft__sim_path(sim, &path, &public->path_length)))
        return status;
    public->path = path;
    public->complete = sim->ended == sim->nodes && !sim->lost_count;
    if (!public->complete && (status = weft__sim_faults(sim, &faults, &public->fault_count)))
        return status;
    public->faults = faults;
    public->struct_size = sizeof *public;
    public->ranks = (int)sim->size;
    public->time_us = weft__ticks_us(latest);
    public->rank_us = result->rank_us;
    public->nodes = sim->nodes;
    public->stuck = sim->nodes - sim->ended;
    if ((status = weft__flows_traffic(sim, latest, public)))
        return status;
    public->messages = sim->messages;
    public->bytes = sim->bytes;
    public->signals = sim->signals;
    public->first_node = sim->first_node;
    public->nodes_at = sim->kept;
    sim->first_node = NULL;
    sim->kept = NULL;
    return WEFT_OK;
}

void weft_sim_result_destroy(struct weft_sim_result *result)
{
    if (!result)
        return;
    for (size_t i = 0; i < result->fault_count; i++)
        weft__free((void *)result->faults[i].text);
    weft__free((void *)result->faults);
    weft__free((void *)result->path);
    weft__free((void *)result->rank_us);
    weft__free((void *)result->first_node);
    weft__free((void *)result->nodes_at);
    weft__free((void *)result->levels);
    weft__free((void *)result->links);
    weft__free(result);
}

/* ---- arguments ---- */

static int check_rate(const char *who, const char *name, double rate)
{
    return rate >= 0 && rate <= 1e9
               ? WEFT_OK
               : WEFT__INVALID("%s: `%s` is %g, expected 0 to 1e9 microseconds a byte", who, name,
                               rate);
}

/* Reads what is given into a config of this version, and its network into @p net. */
static int check(const char *who, const struct weft_sim_config *given,
                 struct weft_sim_config *config, struct weft_net *net,
                 struct weft_sim_result **result)
{
    int status;

    if (!given || !result)
        return WEFT__INVALID("%s: argument `%s` is NULL", who, given ? "result" : "config");
    if ((status = weft_sized_read(who, "config", given, config, sizeof *config)) ||
        (status = weft_sized_flags(who, "config->flags", config->flags, WEFT_SIM_KEEP_NODES)) ||
        (status = weft_sized_number(who, "config->threads", config->threads, 0, INT32_MAX)) ||
        (status = weft_sized_number(who, "config->links", config->links, 0, INT32_MAX)))
        return status;
    if (config->ranks < 1)
        return WEFT__INVALID("%s: `ranks` is %d, expected at least 1", who, config->ranks);
    if (!config->build && !config->schedules)
        return WEFT__INVALID("%s: neither `build` nor `schedules` is there, expected one", who);
    if (config->activator_count && !config->activators)
        return WEFT__INVALID("%s: `activators` is NULL, expected %zu ranks", who,
                             config->activator_count);
    for (size_t i = 0; i < config->activator_count; i++)
        if (config->activators[i] < 0 || config->activators[i] >= config->ranks)
            return WEFT__INVALID("%s: activator %zu is rank %d, expected 0..%d", who, i,
                                 config->activators[i], config->ranks - 1);
    if ((status = check_rate(who, "reduce_us_per_byte", config->reduce_us_per_byte)) ||
        (status = check_rate(who, "copy_us_per_byte", config->copy_us_per_byte)))
        return status;
    status = check_rate(who, "compute_us_per_byte", config->compute_us_per_byte);
    if (!status)
        status = weft__op_prices_check(who, config->op_costs, config->op_cost_count);
    return status ? status : weft__net_read(who, "config->net", config->net, net);
}

static unsigned char *activators(const struct weft_sim_config *config)
{
    unsigned char *active = weft__calloc((size_t)config->ranks, 1);

    if (!active)
        return NULL;
    active[0] = !config->activators;
    for (size_t i = 0; i < config->activator_count; i++)
        active[config->activators[i]] = 1;
    return active;
}

/* Everything but the memory, which the caller frees. */
static int simulate(struct weft__sim *sim, struct builder *builders, int threads,
                    struct result *result)
{
    int status = build(sim, builders, threads);

    if (!status)
        status = weft__sim_firings_check(sim->firings);
    for (uint32_t at = 0; at < sim->size && !status; at++)
        sim->nodes += sim->ranks[at].shape->nodes;
    if (!status && sim->config->flags & WEFT_SIM_KEEP_NODES)
        status = keep_nodes(sim);
    if (!status)
        status = weft__sim_run(sim);
    return status ? status : make_result(sim, result);
}

int weft_simulate(const struct weft_sim_config *given, struct weft_sim_result **out)
{
    struct weft_sim_config full, *config = &full;
    struct weft_net net;
    int status = check(__func__, given, config, &net, out);
    struct weft__sim sim = {.who = __func__, .config = config};
    struct result *result;
    struct builder *builders;
    unsigned char *active;
    int threads;

    if (status)
        return status;
    threads = config->threads < 1 ? 1 : config->threads;
    threads = threads < (config->ranks + BATCH - 1) / BATCH ? threads
                                                            : (config->ranks + BATCH - 1) / BATCH;
    sim.size = (uint32_t)config->ranks;
    sim.model = weft__loggops_of(&net);
    sim.compute[0] = config->reduce_us_per_byte * WEFT__TICKS_PER_US;
    sim.compute[1] = config->copy_us_per_byte * WEFT__TICKS_PER_US;
    sim.compute[2] = config->compute_us_per_byte * WEFT__TICKS_PER_US;
    sim.ranks = weft__calloc(sim.size, sizeof *sim.ranks);
    builders = weft__calloc((size_t)threads, sizeof *builders);
    result = weft__calloc(1, sizeof *result);
    active = activators(config);
    sim.activate = active;
    if (result)
        result->rank_us = weft__malloc(sim.size, sizeof *result->rank_us);
    if (!sim.ranks || !builders || !result || !result->rank_us || !active)
        status = weft__error_memory("a simulation");
    else
        status = weft__sim_firings_create(&sim.firings, __func__, config);
    if (!status)
        status = weft__flows_create(&sim, &net);
    if (!status)
        status = simulate(&sim, builders, threads, result);

    for (uint32_t at = 0; sim.ranks && at < sim.size; at++)
        weft__free(sim.ranks[at].keys);
    for (int i = 0; builders && i < threads; i++)
        weft__sim_maker_destroy(builders[i].maker);
    weft__free(builders);
    weft__free(sim.ranks);
    weft__free(active);
    weft__sim_firings_destroy(sim.firings);
    weft__flows_destroy(sim.flows);
    weft__free(sim.cells);
    weft__free(sim.stack);
    weft__free(sim.first_node);
    weft__free(sim.kept);
    weft__sim_queue_free(&sim.queue);
    if (!status) {
        *out = &result->public;
    } else if (result) {
        result->public.rank_us = result->rank_us;
        weft_sim_result_destroy(&result->public);
    }
    return status;
}
