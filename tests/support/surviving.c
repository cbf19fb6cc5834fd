/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/surviving.h"
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { MOST_SETS = 4096, MOST_CONTEXTS = 64, MOST_MOMENTS = 256, STEPS = 6 };

/* What one shrink has given to whom it has returned. */
struct given {
    uint64_t key; /* of the context and the call; 0: nobody yet */
    uint32_t members;
};

/* When a rank begins a shrink, or returns from it: a time to die soon after. */
struct moment {
    int rank;
    uint64_t at_ns;
};

struct world {
    uint64_t seed;
    int ranks;
    struct weft_virtual_fault faults[SURVIVING_RANKS];
    size_t fault_count;
    struct given given[MOST_SETS];
    struct moment moments[MOST_MOMENTS];
    int moment_count;
    uint32_t returned;
    struct surviving_counts *counts;
};

/* A rank. */
struct life {
    struct world *world;
    int rank;
    uint64_t random; /* its own */
    struct weft_context *kept[MOST_CONTEXTS];
    int kept_count;
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xbf58476d1ce4e5b9) + 1;
    x = (x ^ (x >> 31)) * UINT64_C(0x94d049bb133111eb);
    x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 32);
}

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random += 1;
    return mix(*random, 77) % below;
}

/* ---- what must be true ---- */

static uint32_t members_of(const struct weft_context *context)
{
    int ranks[SURVIVING_RANKS];
    uint32_t members = 0;
    weft_context_root_ranks(context, ranks);
    for (int r = 0; r < weft_context_size(context); r++)
        members |= UINT32_C(1) << ranks[r];
    return members;
}

/* Whether a rank of the root may be counted out: it has died or returned. */
static int may_be_gone(const struct world *world, int rank, uint64_t now)
{
    for (size_t f = 0; f < world->fault_count; f++)
        if (world->faults[f].rank == rank && world->faults[f].at_ns <= now)
            return 1;
    return (int)(world->returned >> rank & 1);
}

static struct given *given_for(struct world *world, uint64_t key)
{
    struct given *given = &world->given[key % MOST_SETS];
    while (given->key && given->key != key)
        given = given == &world->given[MOST_SETS - 1] ? world->given : given + 1;
    given->key = key;
    return given;
}

/* A context that a shrink of another has given. `all` 0: others may be missing, who did not get the
 * parent. */
static int judge(struct life *life, const struct weft_context *parent,
                 const struct weft_context *context, uint64_t key, int all)
{
    struct world *world = life->world;
    uint32_t before = members_of(parent), members = members_of(context);
    int ranks[SURVIVING_RANKS], dead = 0;
    weft_context_root_ranks(context, ranks);
    for (int r = 0; r < weft_context_size(context); r++) {
        weft_rank_state_t state;
        if (r > 0 && ranks[r] <= ranks[r - 1])
            return weft_error_set(WEFT_ERR_STATE, "ranks are not in their order");
        weft_context_rank_state(context, r, &state, NULL);
        dead |= state == WEFT_RANK_DEAD;
    }
    world->counts->shrinks++;
    world->counts->during += (uint64_t)dead;
    if (ranks[weft_context_rank(context)] != life->rank || (members & ~before))
        return weft_error_set(WEFT_ERR_STATE, "a context of ranks %x was made of %x", members,
                              before);
    for (int r = 0; all && r < world->ranks; r++)
        if ((before & ~members) >> r & 1 && !may_be_gone(world, r, weft_context_now(context)))
            return weft_error_set(WEFT_ERR_STATE, "rank %d is there, and not in %x", r, members);
    struct given *given = given_for(world, key);
    if (given->members && given->members != members)
        return weft_error_set(WEFT_ERR_STATE, "one rank has got the ranks %x, another %x",
                              given->members, members);
    given->members = members;
    return WEFT_OK;
}

/* Whether what has failed may have: some rank of the context has gone, and this one says so. */
static int may_fail(const struct weft_context *context, int status)
{
    int gone = 0;
    for (int r = 0; r < weft_context_size(context); r++) {
        weft_rank_state_t state;
        const char *how;
        weft_context_rank_state(context, r, &state, &how);
        if (state == WEFT_RANK_DEAD && !strstr(how, "stopped at"))
            return weft_error_set(WEFT_ERR_STATE, "rank %d has died: `%s`", r, how);
        gone |= state != WEFT_RANK_PRESENT;
    }
    if (status == WEFT_ERR_CANCELLED)
        return status; /* this rank has been stopped */
    if (status != WEFT_ERR_PEER)
        return weft_error_set(WEFT_ERR_STATE, "status %d: %.200s", status, weft_error_text());
    (void)gone; /* it may not have heard of it yet: another has told it */
    return WEFT_OK;
}

/* ---- what they do ---- */

static void keep(struct life *life, struct weft_context *context)
{
    if (!context)
        return;
    if (life->kept_count < MOST_CONTEXTS)
        life->kept[life->kept_count++] = context;
    else
        weft_context_destroy(context);
}

static int sleep_some(struct life *life, const struct weft_context *context, uint64_t most_ns)
{
    return weft_context_sleep((struct weft_context *)(uintptr_t)context,
                              draw(&life->random, most_ns) + 1);
}

static int add_up(struct weft_context *context)
{
    int ranks[SURVIVING_RANKS];
    int64_t in, out = 0, expected = 0;
    weft_context_root_ranks(context, ranks);
    for (int r = 0; r < weft_context_size(context); r++)
        expected += INT64_C(1) << 2 * ranks[r];
    in = INT64_C(1) << 2 * ranks[weft_context_rank(context)];
    int status = weft_allreduce(context, &in, &out, 1, WEFT_I64, weft_op_builtin(WEFT_SUM));
    if (status == WEFT_OK && out != expected)
        return weft_error_set(WEFT_ERR_STATE, "a sum is %llx, expected %llx",
                              (unsigned long long)out, (unsigned long long)expected);
    return status;
}

static void release(void *object)
{
    weft_object_destroy(*(struct weft_object **)object);
    weft_memory_free(object);
}

static int use_object(struct life *life, struct weft_context *context)
{
    struct weft_object **object = weft_memory_alloc(1, sizeof *object);
    struct weft_object_config config;
    if (!object)
        return WEFT_ERR_MEMORY;
    weft_object_config_init(&config);
    config.release = release;
    config.user = (void *)object;
    int status = weft_object_create(object, context, &config);
    if (status != WEFT_OK) {
        weft_memory_free((void *)object);
        return status;
    }
    status = sleep_some(life, context, 3000);
    if (status == WEFT_OK)
        status = weft_object_check(*object, __func__);
    weft_object_leave(*object);
    return status;
}

static void note_moment(struct life *life, const struct weft_context *context)
{
    struct world *world = life->world;
    if (world->moment_count < MOST_MOMENTS)
        world->moments[world->moment_count++] =
            (struct moment){life->rank, weft_context_now(context)};
}

static int try_shrink(struct life *life, struct weft_context *parent, uint64_t key, int all,
                      struct weft_context **out)
{
    note_moment(life, parent);
    int status = weft_context_shrink(parent, out);
    note_moment(life, parent);
    return status == WEFT_OK ? judge(life, parent, *out, key, all) : status;
}

/* A child, and what is done with it. `key`: of the step. */
static int use_child(struct life *life, struct weft_context *parent, uint64_t key)
{
    struct weft_context *child = NULL, *less = NULL;
    int colours = 1 + (int)(key % 3);
    int status = weft_context_split(parent, life->rank % colours, 0, &child);
    if (status != WEFT_OK)
        return status;
    keep(life, child);
    uint64_t own = mix(key, 1000 + (uint64_t)(life->rank % colours));
    status = key >> 8 & 1 ? add_up(child) : WEFT_OK;
    if (key >> 9 & 1 && (status == WEFT_OK || status == WEFT_ERR_PEER)) {
        /* All of its ranks that are left come here. */
        status = try_shrink(life, child, own, 0, &less);
        keep(life, less);
        if (status == WEFT_OK && own & 1)
            status = add_up(less);
    }
    return status;
}

static int use_subset(struct life *life, struct weft_context *parent)
{
    int ranks[SURVIVING_RANKS], size = weft_context_size(parent);
    struct weft_context *child = NULL;
    for (int r = 0; r < size; r++)
        ranks[r] = size - 1 - r;
    int status = weft_context_subset(parent, ranks, size, 3, &child);
    keep(life, child);
    return status == WEFT_OK ? add_up(child) : status;
}

static int take_step(struct life *life, struct weft_context *context, uint64_t key)
{
    switch (key >> 20 & 7) {
    case 0:
    case 1:
        return add_up(context);
    case 2:
        return weft_barrier(context);
    case 3:
        return use_child(life, context, key);
    case 4:
        return use_object(life, context);
    case 5:
        return use_subset(life, context);
    case 6:
        return WEFT_ERR_PEER; /* they shrink it though nobody may have died */
    default:
        return sleep_some(life, context, 20000);
    }
}

/* Steps on a context until one fails: its status; WEFT_OK: none has. */
static int live_on(struct life *life, struct weft_context *context, uint64_t key)
{
    int status = WEFT_OK;
    for (uint64_t step = 0; step < STEPS && status == WEFT_OK; step++) {
        status = draw(&life->random, 3) ? WEFT_OK : sleep_some(life, context, 5000);
        if (status == WEFT_OK)
            status = take_step(life, context, mix(key, step));
    }
    return status == WEFT_OK ? weft_barrier(context) : status;
}

static void destroy_some(struct life *life, int all)
{
    while (life->kept_count > 0 && (all || draw(&life->random, 3) == 0)) {
        int i = (int)draw(&life->random, (uint64_t)life->kept_count);
        weft_context_destroy(life->kept[i]);
        life->kept[i] = life->kept[--life->kept_count];
    }
}

static int surviving_rank(struct weft_context *root, void *user)
{
    struct world *world = user;
    struct weft_context *context = root;
    struct life life = {.world = world, .rank = weft_context_rank(root)};
    uint64_t key = world->seed;
    int status;
    life.random = mix(world->seed, 500 + (uint64_t)life.rank);
    while ((status = live_on(&life, context, key)) != WEFT_OK) {
        struct weft_context *next = NULL;
        status = may_fail(context, status);
        if (status == WEFT_OK && draw(&life.random, 4) == 0)
            status = sleep_some(&life, root, 300000); /* long after the others */
        key = mix(key, 4711);
        if (status == WEFT_OK)
            status = try_shrink(&life, context, key, 1, &next);
        if (status != WEFT_OK)
            break;
        if (context != root)
            keep(&life, context);
        context = next;
        destroy_some(&life, 0);
    }
    char text[SURVIVING_TEXT];
    snprintf(text, sizeof text, "%s", status < 0 ? weft_error_text() : "");
    if (context != root)
        keep(&life, context);
    destroy_some(&life, 1);
    world->returned |= UINT32_C(1) << life.rank;
    return status < 0 ? weft_error_set(status, "%s", text) : WEFT_OK;
}

/* ---- the world ---- */

static void draw_deaths(struct world *world, uint64_t *random)
{
    uint32_t chosen = 0;
    int most = world->ranks - (int)draw(random, 2);
    int count = draw(random, 8) == 0 ? 0 : 1 + (int)draw(random, (uint64_t)(most > 0 ? most : 1));
    uint64_t window = draw(random, 3) == 0 ? 100000 : UINT64_C(1) << (8 + draw(random, 10));
    uint64_t begin = draw(random, 150000);
    if (draw(random, 2) == 0 && count > 3)
        count = 3;
    while (count-- > 0) {
        int rank = (int)draw(random, (uint64_t)world->ranks);
        if (draw(random, 3) == 0) /* those who coordinate */
            rank = (int)draw(random, (uint64_t)(world->ranks + 2) / 3);
        if (chosen >> rank & 1)
            continue;
        chosen |= UINT32_C(1) << rank;
        uint64_t at = begin + (draw(random, 4) == 0 ? 0 : draw(random, window));
        world->faults[world->fault_count++] =
            (struct weft_virtual_fault){.rank = rank, .at_ns = at, .for_ns = WEFT_NEVER};
    }
}

static void draw_config(struct weft_virtual_config *config, struct weft_net *net, uint64_t *random)
{
    weft_virtual_config_init(config);
    weft_net_init(net);
    net->L = 1;
    net->o = draw(random, 3) == 0 ? 0 : 0.01 * (double)(1 + draw(random, 50));
    config->net = net;
    config->shuffle = (int)draw(random, 2);
    config->delay_ns = draw(random, 2) ? draw(random, 20000) : 0;
    config->heavy_share = draw(random, 3) ? 0 : 0.05;
    config->heavy_ns = 300000;
    config->duplicate_share = draw(random, 3) ? 0 : 0.2;
    config->pauses_per_second = draw(random, 4) ? 0 : 5000;
    config->pause_ns = 30000;
    config->deaths = 1;
    config->death_ns = draw(random, 3) ? draw(random, 40000) : draw(random, 1000000);
    config->limit_ns = UINT64_C(100000000000);
}

static int play(struct world *world, struct weft_virtual_config *config, char *text)
{
    struct weft_virtual_result result = {.struct_size = sizeof result};
    config->faults = world->faults;
    config->fault_count = world->fault_count;
    config->result = &result;
    int status = weft_virtual_run(world->ranks, config, surviving_rank, world);
    world->counts->events += result.events;
    for (size_t f = 0; f < world->fault_count; f++)
        world->counts->deaths += world->faults[f].at_ns < result.end_ns;
    if (status == WEFT_OK)
        return 0;
    int at = snprintf(text, SURVIVING_TEXT, "%d ranks", world->ranks);
    for (size_t f = 0; f < world->fault_count && at < SURVIVING_TEXT / 2; f++)
        at += snprintf(text + at, (size_t)(SURVIVING_TEXT - at), "%s %d at %llu",
                       f == 0 ? ", of which die" : ",", world->faults[f].rank,
                       (unsigned long long)world->faults[f].at_ns);
    snprintf(text + at, (size_t)(SURVIVING_TEXT - at), ": %s", weft_error_text());
    return -1;
}

/* One more rank dies, shortly after it has begun or ended a shrink. 0: there was none. */
static int add_death(struct world *world, const struct world *rehearsal, uint64_t *random)
{
    if (rehearsal->moment_count == 0)
        return 0;
    const struct moment *moment = &rehearsal->moments[draw(random, rehearsal->moment_count)];
    for (size_t f = 0; f < world->fault_count; f++)
        if (world->faults[f].rank == moment->rank)
            return 0;
    uint64_t at = moment->at_ns + draw(random, UINT64_C(1) << draw(random, 13));
    world->faults[world->fault_count++] =
        (struct weft_virtual_fault){.rank = moment->rank, .at_ns = at, .for_ns = WEFT_NEVER};
    return 1;
}

int surviving_play(uint64_t seed, struct surviving_counts *counts, char text[SURVIVING_TEXT])
{
    struct world first = {.seed = mix(seed, 1) | 1, .counts = counts};
    struct weft_virtual_config config;
    struct weft_net net;
    uint64_t random = mix(seed, 2);
    first.ranks = 1 + (int)draw(&random, draw(&random, 8) == 0 ? SURVIVING_RANKS : 9);
    draw_deaths(&first, &random);
    draw_config(&config, &net, &random);
    config.seed = seed;
    struct world second = first; /* the same until somebody dies at a moment of the first */
    if (play(&first, &config, text) < 0)
        return -1;
    return add_death(&second, &first, &random) ? play(&second, &config, text) : 0;
}
