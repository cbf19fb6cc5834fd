/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gossip with neighbours, together (weft/gossip.h says what it computes).
 *
 * What travels is the model, with the weight of its rank behind the elements. A rank moves towards
 * each model j that comes by a flow over its own weight,
 *
 *     z_i <- z_i + sum_j f_ij / w_i (z_j - z_i)
 *
 * and what it gains in w z, others must lose: then the sum of w z stays, whatever the weights. That
 * holds if flows are the same both ways, as they can be where whoever is heard is also spoken to:
 * f = min(w_i, w_j) / (n + 1), the Metropolis-Hastings weights of a walk that is at i with
 * probability w_i / sum w. And if all flows are the same, since each rank sends as often as it
 * receives: f = the least of all weights / (n + 1). No rank can pass on more than it weighs, and in
 * a directed circle what goes in at one place comes by all others, so there it cannot be more.
 *
 * One plan serves every version, because its peers are slots:
 *
 *     rank 0 of the plan      this rank
 *     1 .. n                  to whom it sends, hop by hop        tag = number of the hop
 *     n + 1 .. 2n             from whom it receives               the same
 *
 * A hop that a version does not have is bound to nobody, and its messages end at once.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <weft/gossip.h>
#include <weft/run.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/initial.h"
#include "schedules/objects/model.h"

struct weft_gossip {
    struct weft_context *context;
    struct weft__model model;
    weft_initial_t initial;
    weft_nan_policy_t nan;
    weft_gossip_graph_t graph;
    int neighbours;
    uint64_t deadline_ns;
    double weight, least; /* this rank's; of all ranks' */
    size_t stride;        /* elements of a message: the model and the weight */
    char *models;         /* own, then one a neighbour; owned */
    int *hops;            /* of the step under way; owned */
    int hop_count;
    double *shares; /* one a hop; owned */
    int *peers;     /* owned */
    struct weft_run *run;
    enum weft__step step;
    struct weft_object *object;
    uint64_t meet_ns, leave_ns;
    int restored; /* from a state */
    struct weft_gossip_stats stats;
};

/* ---- graphs ---- */

static int ring_hops(int ranks, int neighbours, int *hops)
{
    int count = neighbours < ranks - 1 ? neighbours : ranks - 1;
    for (int i = 0; i < count; i++)
        hops[i] = i % 2 ? ranks - (i / 2 + 1) : i / 2 + 1;
    return count;
}

static int exponential_hops(int ranks, int neighbours, uint64_t version, int *hops)
{
    int64_t base = (int64_t)neighbours + 1, power = 1;
    uint64_t powers = 0;
    if (!neighbours || ranks == 1)
        return 0;
    for (int64_t p = 1; p < ranks; p *= base)
        powers++;
    for (uint64_t i = version % powers; i > 0; i--)
        power *= base;
    int count = 0;
    while (count < neighbours && (count + 1) * power < ranks) {
        hops[count] = (int)((count + 1) * power);
        count++;
    }
    return count;
}

int weft_gossip_hops(weft_gossip_graph_t graph, int ranks, int neighbours, uint64_t version,
                     int *hops)
{
    if (graph != WEFT_GOSSIP_RING && graph != WEFT_GOSSIP_EXPONENTIAL)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: graph is %d, expected one of weft_gossip_graph_t", __func__,
                              (int)graph);
    if (ranks < 1 || neighbours < 0)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is %d, expected at least %d", __func__,
                              ranks < 1 ? "ranks" : "neighbours", ranks < 1 ? ranks : neighbours,
                              ranks < 1);
    if (!hops && neighbours)
        return weft_error_set(WEFT_ERR_INVALID, "%s: hops is NULL", __func__);
    return graph == WEFT_GOSSIP_RING ? ring_hops(ranks, neighbours, hops)
                                     : exponential_hops(ranks, neighbours, version, hops);
}

/* Whether the ranks to whom one sends are those from whom it receives. */
static int is_mutual(weft_gossip_graph_t graph, int ranks, const int *hops, int count)
{
    if (!count)
        return 1;
    return graph == WEFT_GOSSIP_RING ? count % 2 == 0 || 2 * hops[count - 1] == ranks
                                     : hops[0] + hops[count - 1] == ranks;
}

/* ---- arithmetic ---- */

enum { BLOCK = 1024 }; /* elements that stay in the first cache while all neighbours are added */

/* tensor += share (other - own), element by element: what was done to the tensor since is kept, and
 * models that are equal stay so to the bit. */
#define DEFINE_ARITHMETIC(type)                                                                    \
    static void approach_##type(type *tensor, const type *own, const type *other, size_t count,    \
                                double share)                                                      \
    {                                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            tensor[i] += (type)share * (other[i] - own[i]);                                        \
    }

DEFINE_ARITHMETIC(float)
DEFINE_ARITHMETIC(double)

static void *model_of(const struct weft_gossip *gossip, int number, size_t element)
{
    return weft__model_at(&gossip->model, gossip->models,
                          (size_t)number * gossip->stride + element);
}

static struct weft__bad load(struct weft_gossip *gossip)
{
    memcpy(model_of(gossip, 0, gossip->model.count), &gossip->weight, sizeof gossip->weight);
    return weft__model_copy(&gossip->model, model_of(gossip, 0, 0), gossip->nan == WEFT_NAN_ERROR);
}

/* How far this rank moves towards the model of each hop. */
static void find_shares(struct weft_gossip *gossip)
{
    int mutual = is_mutual(gossip->graph, weft_context_size(gossip->context), gossip->hops,
                           gossip->hop_count);
    for (int hop = 0; hop < gossip->hop_count; hop++) {
        double other;
        memcpy(&other, model_of(gossip, 1 + hop, gossip->model.count), sizeof other);
        double least = !mutual ? gossip->least : other < gossip->weight ? other : gossip->weight;
        gossip->shares[hop] = least / gossip->weight / (gossip->hop_count + 1);
    }
}

/* Moves `count` elements of a tensor towards all neighbours: those from `at` on of a model. */
static void approach(struct weft_gossip *gossip, char *tensor, size_t at, size_t count)
{
    for (int hop = 0; hop < gossip->hop_count; hop++) {
        const void *own = model_of(gossip, 0, at), *other = model_of(gossip, 1 + hop, at);
        if (gossip->model.dtype == WEFT_F64)
            approach_double((void *)tensor, own, other, count, gossip->shares[hop]);
        else
            approach_float((void *)tensor, own, other, count, gossip->shares[hop]);
    }
}

static void mix(struct weft_gossip *gossip)
{
    const struct weft__model *model = &gossip->model;
    size_t at = 0;
    find_shares(gossip);
    for (size_t t = 0; t < model->tensor_count; t++) {
        const struct weft_piece *tensor = &model->tensors[t];
        for (size_t first = 0; first < tensor->count; first += BLOCK) {
            size_t left = tensor->count - first;
            approach(gossip, weft__model_at(model, tensor->data, first), at + first,
                     left < BLOCK ? left : BLOCK);
        }
        at += tensor->count;
    }
}

/* ---- the exchange ---- */

static int build(struct weft_schedule *schedule, const struct weft_gossip *gossip)
{
    int n = gossip->neighbours;
    size_t stride = gossip->stride;
    weft_schedule_set_name(schedule, "gossip");
    weft_slot_t own =
        weft_schedule_add_slot(schedule, "own", gossip->model.dtype, stride, WEFT_SLOT_INPUT);
    weft_slot_t others = weft_schedule_add_slot(schedule, "others", gossip->model.dtype,
                                                stride * (size_t)n, WEFT_SLOT_OUTPUT);
    for (int i = 0; i < n; i++) {
        weft_schedule_add_recv(schedule, weft_region_at(others, (size_t)i * stride, stride),
                               1 + n + i, (uint32_t)i);
        weft_schedule_add_send(schedule, weft_region_at(own, 0, stride), 1 + i, (uint32_t)i);
    }
    return weft_schedule_status(schedule);
}

static int make_run(struct weft_gossip *gossip)
{
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.object = gossip->object;
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    int status = weft_schedule_create(&schedule, 0, 1 + 2 * gossip->neighbours);
    if (!status)
        status = build(schedule, gossip);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(&gossip->run, gossip->context, plan, &config);
    if (!status)
        status = weft_run_bind_input_name(gossip->run, "own", gossip->models, gossip->stride,
                                          gossip->model.dtype);
    if (!status && gossip->neighbours)
        status =
            weft_run_bind_name(gossip->run, "others", model_of(gossip, 1, 0),
                               gossip->stride * (size_t)gossip->neighbours, gossip->model.dtype);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

/* Binds the peers of the step to come. */
static int bind_peers(struct weft_gossip *gossip)
{
    int n = gossip->neighbours, rank = weft_context_rank(gossip->context);
    int64_t size = weft_context_size(gossip->context);
    gossip->hop_count =
        weft_gossip_hops(gossip->graph, (int)size, n, gossip->stats.steps, gossip->hops);
    gossip->peers[0] = rank;
    for (int i = 0; i < n; i++) {
        int used = i < gossip->hop_count;
        gossip->peers[1 + i] = used ? (int)((rank + gossip->hops[i]) % size) : WEFT_PEER_NONE;
        gossip->peers[1 + n + i] =
            used ? (int)((rank + size - gossip->hops[i]) % size) : WEFT_PEER_NONE;
    }
    return weft_run_bind_peers(gossip->run, gossip->peers);
}

static int begin(struct weft_gossip *gossip, const char *who, enum weft__step step)
{
    if (!gossip)
        return weft_error_set(WEFT_ERR_INVALID, "%s: gossip is NULL", who);
    int status = weft__step_check_none(who, gossip->step, gossip->stats.steps);
    if (status)
        return status;
    status = weft_object_check(gossip->object, who);
    if (status)
        return status;
    status = bind_peers(gossip);
    if (status)
        return status;
    struct weft__bad bad = load(gossip);
    gossip->stats.nans += bad.count;
    if (bad.count)
        return weft__bad_refuse(who, gossip->stats.steps, &bad);
    status = weft_run_start(gossip->run);
    if (status)
        return status;
    gossip->step = step;
    gossip->stats.messages += (uint64_t)gossip->hop_count;
    gossip->stats.bytes +=
        (uint64_t)gossip->hop_count * gossip->stride * weft_dtype_size(gossip->model.dtype);
    return WEFT_OK;
}

static int end(struct weft_gossip *gossip, const char *who)
{
    int status = weft__step_wait(gossip->context, gossip->run, gossip->deadline_ns,
                                 &gossip->stats.waited_ns);
    if (status == WEFT_IN_PROGRESS) {
        char step[48];
        snprintf(step, sizeof step, "step %llu", (unsigned long long)gossip->stats.steps);
        return weft__step_timed_out(who, step, gossip->run, gossip->deadline_ns);
    }
    if (status) {
        int failed = weft_object_check(gossip->object, who);
        gossip->step = WEFT__STEP_NONE;
        return failed ? failed : status;
    }
    mix(gossip);
    gossip->step = WEFT__STEP_NONE;
    gossip->stats.steps++;
    return WEFT_OK;
}

int weft_gossip_step(struct weft_gossip *gossip)
{
    int status = begin(gossip, __func__, WEFT__STEP_BEGUN);
    return status ? status : end(gossip, __func__);
}

int weft_gossip_post(struct weft_gossip *gossip)
{
    return begin(gossip, __func__, WEFT__STEP_POSTED);
}

int weft_gossip_wait(struct weft_gossip *gossip)
{
    if (!gossip)
        return weft_error_set(WEFT_ERR_INVALID, "%s: gossip is NULL", __func__);
    int status = weft__step_check_posted(__func__, gossip->step);
    return status ? status : end(gossip, __func__);
}

/* ---- life ---- */

void weft_gossip_config_init_sized(struct weft_gossip_config *config, size_t size)
{
    weft_sized_init(config, size);
}

#define MOST_NEXT (UINT64_C(1) << 62)

static int check_state(const char *who, const struct weft_gossip_state *given,
                       struct weft_gossip_state *state)
{
    int status = weft_sized_read(who, "config->state", given, state, sizeof *state);
    if (status || state->next < MOST_NEXT)
        return status;
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: config->state->next is %llu, expected less than "
                          "2^62",
                          who, (unsigned long long)state->next);
}

/* Reads what was given, and the state that it points to. */
static int check(const char *who, const struct weft_gossip_config *given,
                 struct weft_gossip_config *config, struct weft_gossip_state *state)
{
    if (!given)
        return weft_error_set(WEFT_ERR_INVALID, "%s: config is NULL", who);
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    if (!status)
        status = check_state(who, config->state, state);
    if (!status && config->state)
        config->state = state;
    if (status)
        return status;
    status = weft_sized_time(who, "config->deadline_ns", config->deadline_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->meet_ns", config->meet_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->leave_ns", config->leave_ns, WEFT_NEVER);
    if (status)
        return status;
    if (!config->leave_ns)
        config->leave_ns = WEFT__LEAVE_NS;
    if (config->weight == 0)
        config->weight = 1;
    if (config->graph != WEFT_GOSSIP_RING && config->graph != WEFT_GOSSIP_EXPONENTIAL)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->graph is %d, expected one of weft_gossip_graph_t", who,
                              (int)config->graph);
    if (config->neighbours < 0)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->neighbours is %d, expected 0 (the default) or more", who,
                              config->neighbours);
    if (!(config->weight > 0) || isinf(config->weight))
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: config->weight is %g, expected a number above 0", who,
                              config->weight);
    status = weft__nan_check(who, config->nan);
    return status ? status : weft__initial_check(who, config->initial);
}

static int allocate(struct weft_gossip *gossip)
{
    size_t element = weft_dtype_size(gossip->model.dtype), n = (size_t)gossip->neighbours;
    gossip->stride = gossip->model.count + sizeof(double) / element;
    if (gossip->stride <= SIZE_MAX / element / (n + 1))
        gossip->models =
            weft_context_memory_alloc(gossip->context, gossip->stride * (n + 1), element);
    gossip->hops = weft_memory_alloc(n + 1, sizeof *gossip->hops);
    gossip->shares = weft_memory_alloc(n + 1, sizeof *gossip->shares);
    gossip->peers = weft_memory_alloc(2 * n + 1, sizeof *gossip->peers);
    if (!gossip->models || !gossip->hops || !gossip->shares || !gossip->peers)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu models of %zu elements",
                              n + 1, gossip->model.count);
    return WEFT_OK;
}

static int set_up(const char *who, struct weft_gossip *gossip,
                  const struct weft_gossip_config *config)
{
    int others = weft_context_size(gossip->context) - 1;
    gossip->initial = config->initial;
    gossip->nan = config->nan;
    gossip->graph = config->graph;
    gossip->neighbours = config->neighbours                  ? config->neighbours
                         : config->graph == WEFT_GOSSIP_RING ? 2
                                                             : 1;
    if (gossip->neighbours > others)
        gossip->neighbours = others;
    gossip->meet_ns = config->meet_ns;
    gossip->leave_ns = config->leave_ns;
    gossip->deadline_ns = config->deadline_ns ? config->deadline_ns : WEFT_NEVER;
    gossip->weight = config->weight;
    gossip->restored = config->state != NULL;
    if (config->state) {
        gossip->stats = config->state->stats;
        gossip->stats.steps = config->state->next;
    }
    int status = weft__model_init(&gossip->model, who, WEFT__WIDE_DTYPES, config->dtype,
                                  config->tensors, config->tensor_count);
    if (status)
        return status;
    return allocate(gossip);
}

/* Who is behind goes on where the others are. */
static int agree(struct weft__creation *creation, struct weft_gossip *gossip, int failed)
{
    enum { NEXT = 5 };
    static const char *const graphs[] = {
        [WEFT_GOSSIP_RING] = "ring", [WEFT_GOSSIP_EXPONENTIAL] = "exponential"};
    struct weft__setting settings[6 + WEFT__INITIAL_SETTINGS];
    uint64_t inverse = 0; /* bits of numbers above 0 are in the numbers' order */
    if (!failed) {
        memcpy(&inverse, &gossip->weight, sizeof inverse);
        inverse = ~inverse;
        settings[0] = weft__setting_count("the number of elements", gossip->model.count);
        settings[1] = weft__setting_word("config->dtype", (int)gossip->model.dtype,
                                         weft_dtype_name(gossip->model.dtype));
        settings[2] =
            weft__setting_word("config->graph", (int)gossip->graph, graphs[gossip->graph]);
        settings[3] = weft__setting_count("config->neighbours", (uint64_t)gossip->neighbours);
        settings[4] =
            weft__setting_word("config->nan", (int)gossip->nan, weft__nan_word(gossip->nan));
        settings[NEXT] = weft__setting_count("the next step", gossip->stats.steps);
        settings[NEXT].apart = UINT64_MAX;
        weft__initial_settings(&settings[NEXT + 1], creation, gossip->initial);
    }
    int status = weft__creation_end(creation, settings, sizeof settings / sizeof settings[0],
                                    &inverse, failed ? 0 : gossip->meet_ns, failed);
    if (!status) {
        inverse = ~inverse;
        memcpy(&gossip->least, &inverse, sizeof inverse);
        gossip->stats.steps = weft__creation_largest(creation, NEXT);
    }
    return status;
}

static void free_all(struct weft_gossip *gossip)
{
    weft_run_destroy(gossip->run);
    weft_object_destroy(gossip->object);
    weft_memory_free(gossip->peers);
    weft_memory_free(gossip->shares);
    weft_memory_free(gossip->hops);
    weft_context_memory_free(gossip->context, gossip->models);
    weft__model_free(&gossip->model);
    weft_memory_free(gossip);
}

int weft_gossip_create(struct weft_gossip **out, struct weft_context *context,
                       const struct weft_gossip_config *given)
{
    if (!context)
        return weft_error_set(WEFT_ERR_INVALID, "%s: context is NULL", __func__);
    struct weft_gossip_config full, *config = &full;
    struct weft_gossip_state state;
    int status = out ? check(__func__, given, config, &state)
                     : weft_error_set(WEFT_ERR_INVALID, "%s: gossip is NULL", __func__);
    struct weft_gossip *gossip = status ? NULL : weft_memory_alloc(1, sizeof *gossip);
    if (!status && !gossip)
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", __func__);
    struct weft__creation creation;
    status = weft__creation_begin(&creation, context, __func__, NULL, status);
    if (gossip) {
        gossip->context = context;
        gossip->object = creation.object;
    }
    if (!status)
        status = set_up(__func__, gossip, config);
    if (!status)
        status = make_run(gossip);
    if (!status)
        status = weft__initial_make(&creation, gossip->initial, &gossip->model, NULL,
                                    gossip->nan == WEFT_NAN_ERROR, !gossip->restored);
    status = agree(&creation, gossip, status);
    if (!status)
        *out = gossip;
    else if (gossip)
        free_all(gossip);
    else
        weft_object_destroy(creation.object);
    return status;
}

uint64_t weft_gossip_next(const struct weft_gossip *gossip)
{
    return gossip ? gossip->stats.steps : 0;
}

int weft_gossip_get_state(const struct weft_gossip *gossip, struct weft_gossip_state *state)
{
    if (!gossip || !state)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL", __func__,
                              gossip ? "state" : "gossip");
    int status = weft__step_check_none(__func__, gossip->step, gossip->stats.steps);
    struct weft_gossip_state now = {.next = gossip->stats.steps, .stats = gossip->stats};
    now.stats.struct_size = sizeof now.stats;
    return status ? status : weft_sized_fill(__func__, "state", state, &now, sizeof now);
}

int weft_gossip_get_stats(const struct weft_gossip *gossip, struct weft_gossip_stats *stats)
{
    if (!gossip || !stats)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL", __func__,
                              gossip ? "stats" : "gossip");
    return weft_sized_fill(__func__, "stats", stats, &gossip->stats, sizeof gossip->stats);
}

int weft_gossip_fail(struct weft_gossip *gossip, int status, const char *text)
{
    return gossip ? weft__object_give_up(__func__, gossip->object, status, text)
                  : weft_error_set(WEFT_ERR_INVALID, "%s: gossip is NULL", __func__);
}

int weft_gossip_destroy(struct weft_gossip *gossip)
{
    if (!gossip)
        return WEFT_OK;
    int status = weft_object_check(gossip->object, __func__);
    if (!status && gossip->step != WEFT__STEP_NONE)
        status = weft__object_end_run(__func__, gossip->object, gossip->run, gossip->leave_ns);
    if (!status && bind_peers(gossip) == WEFT_OK)
        weft_run_quit(gossip->run);
    free_all(gossip);
    return status;
}
