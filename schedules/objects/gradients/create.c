/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: creation and end. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schedules/objects/gradients/gradients.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

enum { MEASURE_STEPS = 5, CHECK_STEPS = 200, MOST_MEASURE_STEPS = 1000 };
#define GAIN    0.05
#define MOST_NS (UINT64_C(1) << 62)

void weft_gradients_config_init_sized(struct weft_gradients_config *config, size_t size)
{
    weft_sized_init(config, size);
}

int weft__gradients_no_memory(const char *what, size_t count)
{
    return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %s (%zu)", what, count);
}

/* ---- exchanges ---- */

void weft__gradients_add_traffic(struct weft__gradients_traffic *to,
                                 const struct weft__gradients_traffic *what)
{
    to->messages += what->messages;
    to->bytes += what->bytes;
    to->copied_bytes += what->copied_bytes;
}

void weft__gradients_count_sends(struct weft__gradients_traffic *traffic,
                                 const struct weft_schedule *schedule)
{
    struct weft_node_info node = {.struct_size = sizeof node};
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++) {
        if (weft_schedule_get_node(schedule, (weft_node_t)n, &node) || node.kind != WEFT_NODE_SEND)
            continue;
        weft_schedule_get_slot(schedule, node.regions[0].slot, &slot);
        traffic->messages++;
        traffic->bytes += node.regions[0].count * weft_dtype_size(slot.dtype);
    }
}

int weft__gradients_exchange(struct weft_gradients *g, const char *template_name,
                             struct weft_template_params *params, const char *slot, void *data,
                             struct weft__gradients_traffic *traffic, struct weft_run **run)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.object = g->object;
    params->cost = &g->surroundings.cost;
    params->hosts = g->surroundings.hosts;
    int status = weft_template_build(template_name, g->rank, g->ranks, params, &schedule);
    if (!status && traffic)
        weft__gradients_count_sends(traffic, schedule);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(run, g->context, plan, &config);
    if (!status)
        status = weft_run_bind_name(*run, slot, data, params->count, params->dtype);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

/* ---- the configuration ---- */

struct given {
    struct weft_gradients_config config;
    struct weft_merge_config merge;
    struct weft_merge_cost cost;
    struct weft_gradients_state state;
    struct weft_sparse_average_config sparse;
    struct weft_compressed_average_config compressed;
};

static int read_structs(const char *who, const struct weft_gradients_config *config,
                        struct given *given)
{
    if (!config)
        return REFUSE("%s: config is NULL", who);
    struct weft_gradients_config *read = &given->config;
    int status = weft_sized_read(who, "config", config, read, sizeof *read);
    if (!status)
        status =
            weft_sized_read(who, "config->merge", read->merge, &given->merge, sizeof given->merge);
    if (!status)
        status = weft_sized_read(who, "config->cost", read->cost, &given->cost, sizeof given->cost);
    if (!status)
        status =
            weft_sized_read(who, "config->state", read->state, &given->state, sizeof given->state);
    if (!status)
        status = weft_sized_read(who, "config->sparse", read->sparse, &given->sparse,
                                 sizeof given->sparse);
    if (!status)
        status = weft_sized_read(who, "config->compressed", read->compressed, &given->compressed,
                                 sizeof given->compressed);
    if (!status)
        status = weft_sized_time(who, "config->check_steps", read->check_steps, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->deadline_ns", read->deadline_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->meet_ns", read->meet_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->leave_ns", read->leave_ns, WEFT_NEVER);
    return status;
}

static void set_defaults(struct weft_gradients_config *config)
{
    if (!config->measure_steps)
        config->measure_steps = MEASURE_STEPS;
    if (!config->check_steps)
        config->check_steps = CHECK_STEPS;
    if (config->gain == 0)
        config->gain = GAIN;
    if (!config->deadline_ns)
        config->deadline_ns = WEFT_NEVER;
    if (!config->leave_ns)
        config->leave_ns = WEFT__LEAVE_NS;
}

static int check_choices(const char *who, const struct weft_gradients_config *config)
{
    if ((unsigned)config->reduction > WEFT_GRADIENTS_SUM)
        return REFUSE("%s: config->reduction is %d, expected one of weft_gradients_reduction_t",
                      who, (int)config->reduction);
    if ((unsigned)config->method > WEFT_GRADIENTS_COMPRESSED)
        return REFUSE("%s: config->method is %d, expected one of weft_gradients_method_t", who,
                      (int)config->method);
    if ((unsigned)config->missing > WEFT_GRADIENTS_MISSING_ZERO)
        return REFUSE("%s: config->missing is %d, expected one of weft_gradients_missing_t", who,
                      (int)config->missing);
    if (!(config->gain >= 0 && config->gain <= 1))
        return REFUSE("%s: config->gain is %g, expected 0 .. 1", who, config->gain);
    if (config->measure_steps > MOST_MEASURE_STEPS)
        return REFUSE("%s: config->measure_steps is %llu, expected at most %d", who,
                      (unsigned long long)config->measure_steps, MOST_MEASURE_STEPS);
    weft_dtype_t wire = config->wire_dtype;
    if (wire != WEFT_F32 && wire != WEFT_F16 && wire != WEFT_BF16)
        return weft_error_set(weft_dtype_name(wire) ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_INVALID,
                              "%s: config->wire_dtype is %s (%d), expected f32, f16 or bf16", who,
                              weft_dtype_name(wire) ? weft_dtype_name(wire) : "no datatype",
                              (int)wire);
    if (config->method != WEFT_GRADIENTS_DENSE && wire != WEFT_F32)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: config->wire_dtype is %s, expected f32 with %s", who,
                              weft_dtype_name(wire),
                              config->method == WEFT_GRADIENTS_SPARSE
                                  ? "WEFT_GRADIENTS_SPARSE, which sends entries of 32 bits"
                                  : "WEFT_GRADIENTS_COMPRESSED, which sends bits of its own");
    return WEFT_OK;
}

/* Another function has refused its argument `from`: tells it as the member that it is here. */
static int retell(const char *who, const char *from, const char *member)
{
    char told[400], name[48];
    snprintf(name, sizeof name, " %s->", from);
    snprintf(told, sizeof told, "%s", weft_error_text());
    const char *rest = strstr(told, name);
    return rest ? REFUSE("%s: config->%s->%s", who, member, rest + strlen(name))
                : REFUSE("%s: config->%s: %s", who, member, told);
}

static int check_merge(const char *who, struct given *given)
{
    char text[WEFT_MERGE_METHOD_TEXT];
    double us;
    given->merge.struct_size = sizeof given->merge;
    given->cost.struct_size = sizeof given->cost;
    if (weft_merge_method_format(&given->merge, text, sizeof text))
        return retell(who, "config", "merge");
    if (weft_merge_cost_get(&given->cost, 0, &us))
        return retell(who, "cost", "cost");
    if (given->merge.method == WEFT_MERGE_CYCLES)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: config->merge->method is WEFT_MERGE_CYCLES, which knows nothing "
                              "of layers to come: expected another method",
                              who);
    return WEFT_OK;
}

static int check(const char *who, const struct weft_gradients_config *config, struct given *given)
{
    int status = read_structs(who, config, given);
    if (status)
        return status;
    set_defaults(&given->config);
    status = check_merge(who, given);
    if (!status)
        status = check_choices(who, &given->config);
    if (!status)
        status =
            weft__gradients_sparse_check(who, &given->sparse, given->config.method, &given->state);
    if (!status && (given->config.compressed || given->config.method == WEFT_GRADIENTS_COMPRESSED))
        status = weft__gradients_compressed_check(who, &given->config, &given->compressed);
    return status;
}

/* ---- memory ---- */

static int check_layers(const char *who, const struct weft_gradients_config *config)
{
    size_t all = 0;
    if (!config->layer_tensors)
        return !config->layer_count || config->layer_count == config->tensor_count
                   ? WEFT_OK
                   : REFUSE("%s: config->layer_tensors is NULL, expected a list for "
                            "config->layer_count %zu with %zu tensors",
                            who, config->layer_count, config->tensor_count);
    for (size_t l = 0; l < config->layer_count; l++) {
        if (config->layer_tensors[l] > config->tensor_count - all)
            return REFUSE("%s: config->layer_tensors[%zu] is %zu, expected at most the %zu tensors "
                          "that are left",
                          who, l, config->layer_tensors[l], config->tensor_count - all);
        all += config->layer_tensors[l];
    }
    return all == config->tensor_count
               ? WEFT_OK
               : REFUSE("%s: config->layer_tensors add up to %zu, expected the %zu of "
                        "config->tensor_count",
                        who, all, config->tensor_count);
}

static int copy_layers(const char *who, struct weft_gradients *g,
                       const struct weft_gradients_config *config)
{
    struct weft__model *model = &g->model;
    int status = weft__model_init(model, who, WEFT__GRADIENT_DTYPES, config->dtype, config->tensors,
                                  config->tensor_count);
    if (!status)
        status = check_layers(who, config);
    for (size_t t = 0; t < model->tensor_count && !status; t++)
        if ((uintptr_t)model->tensors[t].data % weft_dtype_size(model->dtype))
            status = REFUSE("%s: config->tensors[%zu].data is %p, expected memory that is aligned "
                            "for %s",
                            who, t, model->tensors[t].data, weft_dtype_name(model->dtype));
    if (status)
        return status;
    g->layer_count = config->layer_tensors ? config->layer_count : config->tensor_count;
    g->layers = weft_memory_alloc(g->layer_count + 1, sizeof *g->layers);
    g->states = weft_memory_alloc(g->layer_count + 1, 1);
    g->announced_ns = weft_memory_alloc(g->layer_count + 1, sizeof *g->announced_ns);
    g->agreed = weft_memory_alloc(weft__gradients_state_words(g->layer_count), sizeof *g->agreed);
    g->taken = weft_memory_alloc(g->layer_count + 1, sizeof *g->taken);
    g->taken_before = weft_memory_alloc(g->layer_count + 1, sizeof *g->taken_before);
    g->kept = weft_memory_alloc(g->layer_count + 1, 1);
    if (!g->layers || !g->states || !g->announced_ns || !g->agreed || !g->taken ||
        !g->taken_before || !g->kept)
        return weft__gradients_no_memory("a list of layers", g->layer_count);
    for (size_t l = 0, t = 0, at = 0; l < g->layer_count; l++) {
        struct weft__gradients_layer *layer = &g->layers[l];
        layer->first = t;
        layer->tensor_count = config->layer_tensors ? config->layer_tensors[l] : 1;
        layer->offset = at;
        for (; t < layer->first + layer->tensor_count; t++)
            layer->count += model->tensors[t].count;
        at += layer->count;
    }
    return WEFT_OK;
}

/* What is wrong with groups shows in a plan. */
static int copy_merge(const char *who, struct weft_gradients *g, const struct given *given)
{
    struct weft_merge_plan *tried = NULL;
    g->merge = given->merge;
    g->merge.group_layers = NULL;
    g->merge.group_count = 0;
    if (given->merge.method == WEFT_MERGE_GIVEN && given->merge.group_layers) {
        const size_t count = given->merge.group_count;
        g->group_layers = weft_memory_alloc(count + 1, sizeof *g->group_layers);
        if (!g->group_layers)
            return weft__gradients_no_memory("groups", count);
        memcpy(g->group_layers, given->merge.group_layers, count * sizeof *g->group_layers);
        g->merge.group_layers = g->group_layers;
        g->merge.group_count = count;
    }
    weft_merge_cost_init(&g->cost);
    g->given_cost = given->config.cost != NULL;
    int status = g->given_cost ? weft__gradients_copy_cost(g, &given->cost) : WEFT_OK;
    if (status)
        return status == WEFT_ERR_INVALID ? retell(who, "cost", "cost") : status;
    status = weft__gradients_predict(g, NULL, NULL, &g->merge, &tried);
    weft_merge_plan_destroy(tried);
    return status == WEFT_ERR_INVALID ? retell(who, "config", "merge") : status;
}

static int copy_times(const char *who, struct weft_gradients *g,
                      const struct weft_gradients_config *config)
{
    g->given_times = config->ready_ns != NULL;
    for (size_t l = 0; g->given_times && l < g->layer_count; l++) {
        if (config->ready_ns[l] >= MOST_NS)
            return REFUSE("%s: config->ready_ns[%zu] is %llu, expected less than 2^62", who, l,
                          (unsigned long long)config->ready_ns[l]);
        g->planning.agreeing[l] = config->ready_ns[l];
    }
    return WEFT_OK;
}

static int copy_sparse(struct weft_gradients *g, const struct weft_sparse_average_config *given)
{
    const size_t count = given->warmup ? given->warmup_count : 0;
    g->sparse = *given;
    g->sparse.warmup = NULL;
    if (!count)
        return WEFT_OK;
    g->warmup = weft_memory_alloc(count, sizeof *g->warmup);
    if (!g->warmup)
        return weft__gradients_no_memory("a list of densities", count);
    memcpy(g->warmup, given->warmup, count * sizeof *g->warmup);
    g->sparse.warmup = g->warmup;
    return WEFT_OK;
}

/* The residual of an object that has failed, to which more may come. */
static int copy_residual(struct weft_gradients *g, const struct weft_gradients_state *state)
{
    const size_t count = g->model.count;
    if (!state->unsent)
        return WEFT_OK;
    g->residual = weft_memory_alloc(count + 1, sizeof *g->residual);
    if (!g->residual)
        return weft__gradients_no_memory("residuals", count);
    if (state->residual)
        memcpy(g->residual, state->residual, count * sizeof *g->residual);
    return WEFT_OK;
}

static const struct weft__gradients_way *const ways[] = {
    [WEFT_GRADIENTS_DENSE] = &weft__gradients_dense,
    [WEFT_GRADIENTS_SPARSE] = &weft__gradients_sparse,
    [WEFT_GRADIENTS_COMPRESSED] = &weft__gradients_compressed,
};

/* Everything that needs no other rank. */
static int prepare(const char *who, struct weft_gradients *g, const struct given *given)
{
    const struct weft_gradients_config *config = &given->config;
    g->rank = weft_context_rank(g->context);
    g->ranks = weft_context_size(g->context);
    g->config = *config;
    g->config.tensors = NULL;
    g->config.layer_tensors = NULL;
    g->config.merge = NULL;
    g->config.cost = NULL;
    g->config.ready_ns = NULL;
    g->config.state = NULL;
    g->config.sparse = NULL;
    g->config.compressed = NULL;
    g->way = ways[config->method];
    int status = copy_layers(who, g, config);
    if (!status)
        status = copy_sparse(g, &given->sparse);
    if (!status && config->method == WEFT_GRADIENTS_COMPRESSED)
        status = weft__gradients_compressed_copy(g, &given->compressed);
    if (!status)
        status = weft__surroundings_find(&g->surroundings, g->context);
    if (!status)
        status = copy_merge(who, g, given);
    if (!status)
        status = weft__gradients_planning_make(g);
    if (!status)
        status = copy_times(who, g, config);
    if (!status && config->state)
        status = weft__gradients_state_check(g, who, &given->state);
    if (!status && config->state)
        status = weft__gradients_state_read(g, &given->state);
    if (!status && config->state)
        status = copy_residual(g, &given->state);
    g->next = g->first = config->state ? given->state.next : 0;
    return status;
}

static void free_all(struct weft_gradients *g)
{
    weft__gradients_plan_free(g, g->plan);
    weft__gradients_planning_free(g);
    weft_object_destroy(g->object);
    weft__surroundings_free(&g->surroundings);
    weft_memory_free(g->points);
    weft_memory_free(g->group_layers);
    weft_memory_free(g->residual);
    weft_memory_free(g->kept);
    weft_memory_free(g->taken_before);
    weft_memory_free(g->taken);
    weft_memory_free(g->agreed);
    weft_memory_free(g->announced_ns);
    weft_memory_free(g->states);
    weft_memory_free(g->layers);
    weft__gradients_compressed_free(g);
    weft_memory_free(g->warmup);
    weft__model_free(&g->model);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    weft_memory_free(g);
}

/* ---- meeting ---- */

static struct weft__setting cost_setting(const struct weft_gradients *g, const double plain[2])
{
    const struct weft_merge_cost *cost = &g->cost;
    if (!g->given_cost)
        return weft__setting_word("config->cost", 0, "none");
    return cost->points
               ? weft__setting_reals("config->cost", &g->points[0].bytes, 2 * cost->point_count)
               : weft__setting_reals("config->cost", plain, 2);
}

/* Settings by which ranks tell each other whether one of them goes on from an object that has
 * failed, whether one of them knows times, and whether all have the same words and numbers. */
enum { SETTING_FAILED, SETTING_TIMED, SETTING_SAME };

static struct weft__setting told_setting(int value)
{
    struct weft__setting told = weft__setting_count("config->state", value != 0);
    told.apart = 1;
    return told;
}

static int agree(struct weft__creation *creation, struct weft_gradients *g,
                 const struct given *given)
{
    static const char *const reductions[] = {"average", "sum"};
    static const char *const methods[] = {"dense", "sparse", "compressed"};
    static const char *const policies[] = {"error", "zero"};
    const struct weft_gradients_config *config = &g->config;
    const double plain[] = {g->cost.a_us, g->cost.b_us_per_byte};
    char merge[WEFT_MERGE_METHOD_TEXT] = "";
    weft_merge_method_format(&g->merge, merge, sizeof merge);
    const int stated = given->config.state != NULL, failed = given->state.failed != 0;
    struct weft__setting agreed = weft__setting_counts(
        "config->state->agreed", given->state.agreed,
        stated && given->state.agreed ? given->state.agreed_count : 0, sizeof *given->state.agreed);
    struct weft__setting next = weft__setting_count("the next step", g->next), near = next;
    struct weft__setting same =
        weft__setting_count("config->state", weft__gradients_compressed_number(&given->state));
    same.apart = UINT64_MAX;
    agreed.abstains = next.abstains = failed; /* which may be behind by one, and its times too */
    near.apart = 1;
    struct weft__setting settings[WEFT__SETTINGS_MOST] = {
        [SETTING_FAILED] = told_setting(failed),
        [SETTING_TIMED] = told_setting(g->planning.timed),
        [SETTING_SAME] = same,
        weft__setting_count("the number of elements", g->model.count),
        weft__setting_count("the number of layers", g->layer_count),
        weft__setting_counts("the layers' elements", &g->layers->count, g->layer_count,
                             sizeof *g->layers),
        weft__setting_word("config->dtype", (int)config->dtype, weft_dtype_name(config->dtype)),
        weft__setting_word("config->wire_dtype", (int)config->wire_dtype,
                           weft_dtype_name(config->wire_dtype)),
        weft__setting_word("config->reduction", (int)config->reduction,
                           reductions[config->reduction]),
        weft__setting_word("config->method", (int)config->method, methods[config->method]),
        weft__setting_word("config->missing", (int)config->missing, policies[config->missing]),
        weft__setting_string("config->merge", merge),
        weft__setting_counts("config->merge->group_layers", g->group_layers,
                             g->group_layers ? g->merge.group_count : 0, sizeof(size_t)),
        cost_setting(g, plain),
        weft__setting_word("config->ready_ns", g->given_times, g->given_times ? "given" : "none"),
        weft__setting_count("config->measure_steps", config->measure_steps),
        weft__setting_count("config->check_steps", config->check_steps),
        weft__setting_real("config->gain", config->gain),
        agreed,
        weft__setting_word("the costs of config->state", g->measured_cost,
                           g->measured_cost ? "taken" : "not taken"),
        next,
        near,
    };
    size_t count = 0;
    while (settings[count].name)
        count++;
    if (config->method == WEFT_GRADIENTS_SPARSE)
        count += weft__gradients_sparse_settings(&g->sparse, settings + count);
    if (config->method == WEFT_GRADIENTS_COMPRESSED)
        count += weft__gradients_compressed_settings(g, &given->state, settings + count);
    int status = weft__creation_end(creation, settings, count, &g->next, config->meet_ns, WEFT_OK);
    g->first = g->next;
    return status;
}

/* A number that plans which are not the same do not share. */
static uint64_t plan_number(const struct weft_gradients *g)
{
    const struct weft__gradients_plan *plan = g->plan;
    uint64_t number = plan->group_count;
    for (size_t k = 0; k < plan->group_count; k++)
        number = weft__scramble(number ^ plan->groups[k].layer_count);
    for (size_t i = 0; i < g->layer_count; i++)
        number = weft__scramble(number ^ plan->order[i]);
    return number;
}

/* What the ranks tell each other once they have met. */
struct words {
    struct weft_run *run; /* NULL: one rank */
    uint64_t largest[2];
};

static int make_words(struct weft_gradients *g, struct words *words)
{
    struct weft_template_params params;
    if (g->ranks == 1)
        return WEFT_OK;
    weft_template_params_init(&params);
    params.dtype = WEFT_U64;
    params.count = 2;
    params.op = weft_op_builtin(WEFT_MAX);
    params.in_place = 1;
    int status = weft__gradients_exchange(g, "allreduce", &params, "recv", words->largest, NULL,
                                          &words->run);
    return status ? status : weft_run_set_deadline(words->run, g->config.meet_ns);
}

/* All have a plan, and the same. */
static int compare_plans(const char *who, struct weft_gradients *g, struct words *words)
{
    uint64_t number = plan_number(g);
    if (!words->run)
        return WEFT_OK;
    words->largest[0] = number;
    words->largest[1] = ~number;
    int status = weft_run_execute(words->run);
    if (status || (words->largest[0] == number && words->largest[1] == ~number))
        return status;
    return REFUSE("%s: the ranks have made different plans of the same times and costs: expected "
                  "the same arithmetic on all",
                  who);
}

/* The largest numbers of layers of all ranks, as times of steps are agreed on later, without a
 * deadline. */
static int agree_largest(struct weft_gradients *g)
{
    struct weft_run *run = g->planning.agree;
    if (!run)
        return WEFT_OK;
    int status = weft_run_set_deadline(run, g->config.meet_ns);
    if (!status)
        status = weft_run_execute(run);
    return status ? status : weft_run_set_deadline(run, 0);
}

/* Of `agreeing`, the latest of all ranks. */
static int agree_times(struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    int status = agree_largest(g);
    if (status)
        return status;
    memcpy(planning->times, planning->agreeing, g->layer_count * sizeof *planning->times);
    planning->timed = 1;
    return WEFT_OK;
}

/* An object has failed in a step: a layer whose sum has been given to a rank that goes on has had
 * that step; of others what was selected goes back. */
static int resume(struct weft_gradients *g, const struct weft_gradients_state *state)
{
    uint64_t *largest = g->planning.agreeing;
    const size_t size = g->layer_count * sizeof *largest;
    memcpy(largest, g->taken_before, size);
    int status = agree_largest(g);
    if (status)
        return status;
    for (size_t l = 0; l < g->layer_count; l++) {
        const struct weft__gradients_layer *layer = &g->layers[l];
        if (g->residual && largest[l] == g->taken_before[l])
            for (size_t i = layer->offset; i < layer->offset + layer->count; i++)
                g->residual[i] += state->unsent[i];
    }
    memcpy(g->taken_before, largest, size);
    return WEFT_OK;
}

/* The first plan, with what there is to go on from. */
static int plan_first(const struct weft__creation *creation, struct weft_gradients *g,
                      const struct given *given)
{
    struct weft_gradients_state state = given->state;
    if (g->residual)
        state.residual = g->residual;
    if (weft__creation_largest(creation, SETTING_SAME) !=
        weft__creation_smallest(creation, SETTING_SAME)) { /* of a failure: begins anew */
        state.words = NULL;
        state.numbers = NULL;
        state.word_count = state.number_count = 0;
        state.votes = NULL;
    }
    int status = weft__gradients_plan_first(g, given->config.state ? &state : NULL);
    weft_memory_free(g->residual);
    g->residual = NULL;
    return status;
}

/* What ranks know of times, and of layers, where it is not the same on all. */
static int agree_rest(const struct weft__creation *creation, struct weft_gradients *g,
                      const struct given *given)
{
    struct weft__gradients_planning *planning = &g->planning;
    int status = g->given_times ? agree_times(g) : WEFT_OK;
    if (status || !weft__creation_largest(creation, SETTING_FAILED))
        return status;
    status = resume(g, &given->state);
    if (status || g->given_times || !weft__creation_largest(creation, SETTING_TIMED))
        return status;
    memcpy(planning->agreeing, planning->times, g->layer_count * sizeof *planning->times);
    return agree_times(g);
}

/* After the meeting: costs, times, the first plan. What fails here fails the object, as the others
 * wait. */
static int settle(const struct weft__creation *creation, struct weft_gradients *g,
                  const struct given *given, struct weft__gradients_calibration *calibration,
                  struct words *words)
{
    const char *who = creation->who;
    int status = weft__gradients_calibrate(g, calibration);
    if (!status)
        status = agree_rest(creation, g, given);
    if (!status)
        status = plan_first(creation, g, given);
    if (!status)
        status = compare_plans(who, g, words);
    if (!status) {
        weft__gradients_look_at_phase(g);
        return WEFT_OK;
    }
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    int failed = weft_object_check(g->object, who);
    if (failed)
        return failed;
    weft_object_fail(g->object, status, text);
    return weft_error_set(status, "%s", text);
}

/* The ranks meet, if this one has got as far. */
static int meet(struct weft__creation *creation, struct weft_gradients *g,
                const struct given *given, int status)
{
    struct weft__gradients_calibration *calibration = NULL;
    struct words words = {0};
    if (!status)
        status = weft__gradients_calibration_make(g, &calibration);
    if (!status)
        status = make_words(g, &words);
    status =
        status ? weft__creation_end(creation, NULL, 0, NULL, 0, status) : agree(creation, g, given);
    if (!status)
        status = settle(creation, g, given, calibration, &words);
    weft__gradients_calibration_free(calibration);
    weft_run_destroy(words.run);
    return status;
}

int weft_gradients_create(struct weft_gradients **gradients, struct weft_context *context,
                          const struct weft_gradients_config *config)
{
    if (!context)
        return REFUSE("%s: context is NULL", __func__);
    struct given given = {.state.struct_size = sizeof given.state};
    int status =
        gradients ? check(__func__, config, &given) : REFUSE("%s: gradients is NULL", __func__);
    struct weft_gradients *g = status ? NULL : weft_memory_alloc(1, sizeof *g);
    if (!status && !g)
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", __func__);
    struct weft__creation creation;
    status = weft__creation_begin(&creation, context, __func__, NULL, status);
    if (g) {
        g->context = context;
        g->object = creation.object;
        pthread_mutex_init(&g->lock, NULL);
        pthread_cond_init(&g->changed, NULL);
    }
    if (!g) { /* the others meet */
        status = weft__creation_end(&creation, NULL, 0, NULL, 0, status);
        weft_object_destroy(creation.object);
        return status;
    }
    if (!status)
        status = prepare(__func__, g, &given);
    status = meet(&creation, g, &given, status);
    if (!status)
        *gradients = g;
    else
        free_all(g);
    return status;
}

/* ---- the end ---- */

/* The step under way, and what has been posted beside it; then the others know that there is none
 * after it. */
static int leave(const char *who, struct weft_gradients *g)
{
    struct weft__gradients_planning *planning = &g->planning;
    uint64_t now = weft_context_now(g->context), limit = g->config.leave_ns;
    uint64_t until = limit == WEFT_NEVER || now > WEFT_NEVER - 1 - limit ? WEFT_NEVER : now + limit;
    int status = WEFT_OK;
    g->config.deadline_ns = limit; /* of what texts tell */
    for (size_t l = 0; l < g->layer_count && !status && g->open; l++)
        status = weft__gradients_wait_layer(g, who, l, until);
    struct weft_run *posted = planning->phase == WEFT__PLAN_AGREEING   ? planning->agree
                              : planning->phase == WEFT__PLAN_DECIDING ? planning->decide
                                                                       : NULL;
    if (!status && posted)
        status = weft__object_end_run(who, g->object, posted, limit);
    if (status)
        return status;
    g->way->quit(g, g->plan);
    if (planning->agree)
        weft_run_quit(planning->agree);
    if (planning->decide)
        weft_run_quit(planning->decide);
    return WEFT_OK;
}

/* What ends this rank's part for good. */
static int give_up(const char *who, struct weft_gradients *g, int status)
{
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_object_fail(g->object, status, text);
    (void)who;
    return weft_error_set(status, "%s", text);
}

static int refuse_open(const char *who, struct weft_gradients *g)
{
    size_t l = 0;
    while (g->states[l])
        l++;
    weft_error_set(WEFT_ERR_STATE,
                   "%s: step %llu is under way, in which layer %zu has not been announced", who,
                   (unsigned long long)g->next, l);
    return give_up(who, g, WEFT_ERR_STATE);
}

int weft_gradients_destroy(struct weft_gradients *gradients)
{
    if (!gradients)
        return WEFT_OK;
    int status = weft_object_check(gradients->object, __func__);
    if (!status && gradients->open && gradients->announced < gradients->layer_count)
        status = refuse_open(__func__, gradients);
    else if (!status)
        status = leave(__func__, gradients);
    if (status == WEFT_ERR_TIMEOUT)
        status = give_up(__func__, gradients, status);
    free_all(gradients);
    return status;
}
