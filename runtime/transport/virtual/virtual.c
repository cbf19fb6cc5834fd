/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_virtual_run(): what it is asked for, and the ranks, made before the loop plays them
 * and freed after it. */
#include "runtime/transport/virtual/virtual.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include <stdio.h>

#define STACK_BYTES ((size_t)256 << 10)
#define STACK_LEAST ((size_t)16 << 10)
#define STACK_MOST  ((size_t)1 << 40)

void weft_virtual_config_init_sized(struct weft_virtual_config *config, size_t size)
{
    weft_sized_init(config, size);
}

/* ---- arguments ---- */

static int check_numbers(const char *who, const struct weft_virtual_config *config)
{
    const struct {
        const char *name;
        double value, most;
    } reals[] = {
        {"config->heavy_share", config->heavy_share, 1},
        {"config->duplicate_share", config->duplicate_share, 1},
        {"config->pauses_per_second", config->pauses_per_second, 1e9},
        {"config->byte_scale", config->byte_scale, 1e15},
        {"config->reduce_ns_per_byte", config->reduce_ns_per_byte, 1e15},
        {"config->copy_ns_per_byte", config->copy_ns_per_byte, 1e15},
        {"config->node_ns", config->node_ns, 1e15},
    };
    const struct {
        const char *name;
        uint64_t value, special;
    } times[] = {
        {"config->delay_ns", config->delay_ns, 0},
        {"config->heavy_ns", config->heavy_ns, 0},
        {"config->pause_ns", config->pause_ns, 0},
        {"config->death_ns", config->death_ns, 0},
        {"config->limit_ns", config->limit_ns, WEFT_NEVER},
    };
    int status = WEFT_OK;

    for (size_t i = 0; status == WEFT_OK && i < sizeof reals / sizeof *reals; i++)
        status = weft_sized_real(who, reals[i].name, reals[i].value, 0, reals[i].most);
    if (status == WEFT_OK)
        status = weft_sized_number(who, "config->shuffle", config->shuffle, 0, 1);
    if (status == WEFT_OK)
        status = weft_sized_number(who, "config->no_payload", config->no_payload, 0, 1);
    if (status == WEFT_OK)
        status = weft_sized_number(who, "config->deaths", config->deaths, 0, 1);
    if (status == WEFT_OK)
        status =
            weft_sized_number(who, "config->ranks_per_host", config->ranks_per_host, 0, INT32_MAX);
    for (size_t i = 0; status == WEFT_OK && i < sizeof times / sizeof *times; i++)
        status = weft_sized_time(who, times[i].name, times[i].value, times[i].special);
    if (status == WEFT_OK && config->stack_bytes &&
        (config->stack_bytes < STACK_LEAST || config->stack_bytes > STACK_MOST))
        status = WEFT__INVALID("%s: config->stack_bytes is %zu, expected %zu to %zu, or 0", who,
                               config->stack_bytes, STACK_LEAST, STACK_MOST);
    return status != WEFT_OK ? status : weft_sized_check(who, "config->result", config->result);
}

static int check_fault(const char *who, size_t f, const struct weft_virtual_fault *fault, int size)
{
    char member[64];
    if (fault->rank < 0 || fault->rank >= size)
        return WEFT__INVALID("%s: config->faults[%zu].rank is %d, expected 0..%d", who, f,
                             fault->rank, size - 1);
    snprintf(member, sizeof member, "config->faults[%zu].at_ns", f);
    int status = weft_sized_time(who, member, fault->at_ns, 0);
    snprintf(member, sizeof member, "config->faults[%zu].for_ns", f);
    return status != WEFT_OK ? status : weft_sized_time(who, member, fault->for_ns, WEFT_NEVER);
}

static int check(const char *who, int size, const struct weft_virtual_config *config,
                 weft_rank_fn fn)
{
    if (!fn)
        return WEFT__INVALID("%s: argument `fn` is NULL", who);
    if (size < 1)
        return WEFT__INVALID("%s: argument `size` is %d, expected at least 1", who, size);
    int status = check_numbers(who, config);
    if (status != WEFT_OK)
        return status;
    if (config->fault_count > 0 && !config->faults)
        return WEFT__INVALID("%s: config->faults is NULL, expected %zu faults", who,
                             config->fault_count);
    for (size_t f = 0; status == WEFT_OK && f < config->fault_count; f++)
        status = check_fault(who, f, &config->faults[f], size);
    return status;
}

/* ---- the ranks ---- */

/* Whether some rank may stop for ever. */
static int may_stop(const struct weft_virtual_config *config)
{
    size_t f = 0;
    while (f < config->fault_count && config->faults[f].for_ns < WEFT_NEVER)
        f++;
    return f < config->fault_count;
}

static void set_up_rank(struct weft__virtual *world, int r)
{
    struct weft__virtual_rank *rank = &world->ranks[r];
    int each = world->config.ranks_per_host;
    rank->base = (struct weft__transport){
        .ops = &weft__virtual_ops,
        .about = &weft__transport_virtual,
        .bell = &rank->bell,
        .rank = r,
        .size = world->size,
        .local_ranks = 1,
        .host_count = each > 0 ? (world->size - 1) / each + 1 : 1,
        .wakes = 1,
        .largest_message = SIZE_MAX,
        .timed = world->timed,
        .no_payload = world->config.no_payload,
        .reports_deaths = world->config.deaths || !may_stop(&world->config),
    };
    rank->world = world;
    rank->sends_end = &rank->sends;
    rank->arrivals_end = &rank->arrivals;
    rank->computes_end = &rank->computes;
    rank->inbox_end = &rank->inbox;
    rank->serve_at = WEFT__VIRTUAL_NEVER;
    rank->timer_at = WEFT__VIRTUAL_NEVER;
    rank->engine_until = WEFT__VIRTUAL_NEVER;
}

static int set_up(struct weft__virtual *world, weft_rank_fn fn, void *user)
{
    const struct weft_virtual_config *config = &world->config;
    size_t size = (size_t)world->size;
    world->fn = fn;
    world->user = user;
    world->order_random = config->seed;
    world->fault_random = ~config->seed;
    world->has_faults = config->fault_count > 0 || config->pauses_per_second > 0;
    const struct weft__loggops *net = &world->net;
    world->timed = net->o > 0 || net->G > 0 || net->O > 0 || config->node_ns > 0 ||
                   config->reduce_ns_per_byte > 0 || config->copy_ns_per_byte > 0 ||
                   config->compute_ns || config->no_payload;
    world->ranks = weft__calloc(size, sizeof *world->ranks);
    if (!world->ranks || weft__virtual_queue_reserve(&world->queue, 4 * size + 64) != 0)
        return weft__error_memory("virtual ranks");
    for (int r = 0; r < world->size; r++)
        set_up_rank(world, r);
    world->fibers =
        weft__fibers_create(size, config->stack_bytes != 0 ? config->stack_bytes : STACK_BYTES);
    if (!world->fibers)
        return weft__error_memory("the stacks of virtual ranks");
    int status = weft__virtual_faults_set(world);
    for (int r = 0; status == WEFT_OK && r < world->size; r++) {
        struct weft__virtual_rank *rank = &world->ranks[r];
        status = weft__context_create(&rank->context, &rank->base, &world->settings);
        if (status == WEFT_OK && weft__fiber_create(&rank->fiber, world->fibers, (size_t)r,
                                                    weft__virtual_main, rank) != 0)
            status = weft__error_memory("the function of a virtual rank");
    }
    return status;
}

static void tear_down(struct weft__virtual *world)
{
    for (int r = 0; world->ranks && r < world->size; r++) {
        weft_context_destroy(world->ranks[r].context);
        weft__fiber_destroy(&world->ranks[r].fiber);
        weft__free(world->ranks[r].text);
        weft__free(world->ranks[r].failure);
        weft__free(world->ranks[r].deaths);
    }
    if (world->ranks)
        weft__virtual_forget(world);
    weft__fibers_destroy(world->fibers);
    weft__free(world->queue.entries);
    weft__free(world->faults);
    weft__free(world->ranks);
}

int weft_virtual_run(int size, const struct weft_virtual_config *given, weft_rank_fn fn, void *user)
{
    struct weft__virtual world = {.size = size};
    struct weft_virtual_config *config = &world.config;
    struct weft_net net;
    int status = weft_sized_read(__func__, "config", given, config, sizeof *config);
    if (status != WEFT_OK)
        return status;
    status = weft__net_read(__func__, "config->net", config->net, &net);
    if (status != WEFT_OK)
        return status;
    if (!config->net)
        net.L = 1;
    world.net = weft__loggops_of(&net);
    if (config->byte_scale == 0)
        config->byte_scale = 1;
    if (config->limit_ns == WEFT_NEVER)
        config->limit_ns = 0;
    status = check(__func__, size, config, fn);
    if (status == WEFT_OK)
        status = weft__context_config_read(__func__, "config->context", config->context,
                                           &world.settings);
    if (status != WEFT_OK)
        return status;
    status = set_up(&world, fn, user);
    if (status == WEFT_OK) {
        status = weft__virtual_play(&world);
        weft_sized_fill(__func__, "config->result", config->result, &world.result,
                        sizeof world.result);
    }
    tear_down(&world);
    return status;
}
