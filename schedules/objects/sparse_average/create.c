/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging of gradients: creation. */
#include <math.h>
#include <string.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/sparse_average/member.h"
#include "schedules/objects/sparse_average/sparse_average.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

enum { THRESHOLD_STEPS = 32, BALANCE_STEPS = 64 };
#define DENSITY 0.001

/* Of gTop-k's paper, section IV-B. */
static const double paper_warmup[] = {0.25, 0.0725, 0.015, 0.004};

void weft_sparse_average_config_init_sized(struct weft_sparse_average_config *config, size_t size)
{
    weft_sized_init(config, size);
}

/* ---- the configuration ---- */

static int check_choices(const char *who, const struct weft_sparse_average_config *config)
{
    if ((unsigned)config->method > WEFT_SPARSE_OKTOPK)
        return REFUSE("%s: config->method is %d, expected one of weft_sparse_method_t", who,
                      (int)config->method);
    if ((unsigned)config->scope > WEFT_SPARSE_TENSOR)
        return REFUSE("%s: config->scope is %d, expected one of weft_sparse_scope_t", who,
                      (int)config->scope);
    if ((unsigned)config->residual > WEFT_SPARSE_PAPER)
        return REFUSE("%s: config->residual is %d, expected one of weft_sparse_residual_t", who,
                      (int)config->residual);
    if (config->residual == WEFT_SPARSE_PAPER && config->method == WEFT_SPARSE_OKTOPK)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: config->residual is WEFT_SPARSE_PAPER, expected "
                              "WEFT_SPARSE_CONSERVING with WEFT_SPARSE_OKTOPK",
                              who);
    if ((unsigned)config->nan > WEFT_NAN_ZERO)
        return REFUSE("%s: config->nan is %d, expected WEFT_NAN_ERROR or WEFT_NAN_ZERO", who,
                      (int)config->nan);
    if ((unsigned)config->memory > WEFT_MEMORY_DEVICE)
        return REFUSE("%s: config->memory is %d, expected a weft_memory_t", who,
                      (int)config->memory);
    if (config->threads < 0)
        return REFUSE("%s: config->threads is %d, expected 0 or more", who, config->threads);
    return WEFT_OK;
}

static int check_numbers(const char *who, const struct weft_sparse_average_config *config)
{
    if (!(config->density >= 0 && config->density <= 1))
        return REFUSE("%s: config->density is %g, expected 0 .. 1", who, config->density);
    if (!(config->momentum >= 0 && config->momentum < 1))
        return REFUSE("%s: config->momentum is %g, expected 0 or more and less than 1", who,
                      config->momentum);
    if (!(config->clip_norm >= 0) || isinf(config->clip_norm))
        return REFUSE("%s: config->clip_norm is %g, expected 0 (none) or a norm", who,
                      config->clip_norm);
    if (config->warmup_count && !config->warmup)
        return REFUSE("%s: config->warmup is NULL, expected %zu densities", who,
                      config->warmup_count);
    for (size_t i = 0; i < config->warmup_count; i++)
        if (!(config->warmup[i] >= 0 && config->warmup[i] <= 1))
            return REFUSE("%s: config->warmup[%zu] is %g, expected 0 .. 1", who, i,
                          config->warmup[i]);
    return WEFT_OK;
}

/* Reads what was given, and the state that it points to. */
static int check(const char *who, const struct weft_sparse_average_config *given,
                 struct weft_sparse_average_config *config, struct weft_sparse_average_state *state)
{
    if (!given)
        return REFUSE("%s: config is NULL", who);
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    if (!status)
        status = weft_sized_read(who, "config->state", config->state, state, sizeof *state);
    if (!status)
        status = weft_sized_time(who, "config->deadline_ns", config->deadline_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->meet_ns", config->meet_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->leave_ns", config->leave_ns, WEFT_NEVER);
    if (!config->leave_ns)
        config->leave_ns = WEFT__LEAVE_NS;
    if (status)
        return status;
    if (state->region_count && !state->regions)
        return REFUSE("%s: config->state->regions is NULL, expected %zu thresholds and bounds", who,
                      state->region_count);
    if (config->state)
        config->state = state;
    if (state->velocity && config->momentum == 0)
        return REFUSE("%s: config->state->velocity is given, expected NULL with config->momentum 0",
                      who);
    if (config->density == 0)
        config->density = DENSITY;
    if (!config->threshold_steps)
        config->threshold_steps = THRESHOLD_STEPS;
    if (!config->balance_steps)
        config->balance_steps = BALANCE_STEPS;
    if (state->unsent && !state->failed)
        return REFUSE("%s: config->state->unsent is given, expected NULL but of an object that has "
                      "failed",
                      who);
    status = check_choices(who, config);
    return status ? status : check_numbers(who, config);
}

/* The pairs of the largest unit where their number is given; 0: the density tells it. */
static size_t settled_k(const struct weft_sparse_average *average)
{
    size_t most = 1;
    for (size_t u = 0; u < average->unit_count; u++)
        if (average->units[u].count > most)
            most = average->units[u].count;
    return average->config.k < most ? average->config.k : most;
}

/* Where the last step has failed everywhere it is to be done again; where it has ended somewhere,
 * nothing of it is left to be sent. */
static int resume(struct weft_sparse_average *average,
                  const struct weft_sparse_average_state *state, uint64_t first)
{
    int again = average->first == first;
    float *residual = average->resumed ? average->resumed : average->residual;
    average->first = first;
    for (size_t u = 0; u < average->unit_count; u++)
        average->units[u].next = first;
    for (size_t i = 0; again && residual && state->unsent && i < average->model.count; i++)
        residual[i] += state->unsent[i];
    if (!again || !average->resumed)
        return WEFT_OK;
    return weft__sparse_device_replace(average, average->resumed);
}

/* Compares what settings mean: a number of pairs makes the density mean nothing, and so on. */
static int agree(struct weft__creation *creation, struct weft_sparse_average *average,
                 const struct weft_sparse_average_state *state)
{
    static const char *const methods[] = {"gtopk", "gtopk-butterfly", "allgather", "oktopk"};
    static const char *const scopes[] = {"model", "tensor"};
    static const char *const residuals[] = {"conserving", "paper"};
    static const char *const policies[] = {"error", "zero"};
    const struct weft_sparse_average_config *config = &average->config;
    const struct weft__model *model = &average->model;
    const int oktopk = config->method == WEFT_SPARSE_OKTOPK;
    struct weft__setting next = weft__setting_count("the next step", average->first);
    uint64_t first = average->first;
    struct weft__setting near = next;
    next.abstains = state->failed != 0; /* which may be behind by one */
    near.apart = 1;
    const struct weft__setting settings[] = {
        weft__setting_count("the number of elements", model->count),
        weft__setting_count("the number of tensors", model->tensor_count),
        weft__setting_counts("the tensors' counts", &model->tensors->count, model->tensor_count,
                             sizeof *model->tensors),
        weft__setting_word("config->dtype", (int)config->dtype, weft_dtype_name(config->dtype)),
        weft__setting_word("config->method", (int)config->method, methods[config->method]),
        weft__setting_word("config->scope", (int)config->scope, scopes[config->scope]),
        weft__setting_word("config->residual", (int)config->residual, residuals[config->residual]),
        weft__setting_count("config->k", settled_k(average)),
        weft__setting_count("config->warmup_steps",
                            average->density_count ? config->warmup_steps : 0),
        weft__setting_real("config->density", config->k ? 0 : config->density),
        weft__setting_reals("the densities of the warm-up", average->densities,
                            average->density_count),
        weft__setting_real("config->momentum", config->momentum),
        weft__setting_real("config->clip_norm", config->clip_norm),
        weft__setting_word("config->nan", (int)config->nan, policies[config->nan]),
        weft__setting_count("config->threshold_steps", oktopk ? config->threshold_steps : 0),
        weft__setting_count("config->balance_steps", oktopk ? config->balance_steps : 0),
        weft__setting_counts("thresholds and bounds", average->regions,
                             oktopk ? average->region_count : 0, sizeof *average->regions),
        next,
        near,
    };
    int status = weft__creation_end(creation, settings, sizeof settings / sizeof settings[0],
                                    &first, config->meet_ns, WEFT_OK);
    return status ? status : resume(average, state, first);
}

/* ---- memory ---- */

static int out_of_memory(const char *what, size_t count)
{
    return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %s of %zu", what, count);
}

static int copy_config(struct weft_sparse_average *average,
                       const struct weft_sparse_average_config *config)
{
    const double *warmup = config->warmup;
    size_t count = config->warmup_count;
    if (!warmup) {
        warmup = paper_warmup;
        count = sizeof paper_warmup / sizeof paper_warmup[0];
    }
    if (!config->warmup_steps)
        count = 0;
    average->config = *config;
    average->config.tensors = NULL;
    average->config.warmup = NULL;
    average->config.state = NULL;
    average->config.warmup_steps = count ? config->warmup_steps : 1;
    average->density_count = count;
    average->densities = weft_memory_alloc(count + 1, sizeof *average->densities);
    if (!average->densities)
        return out_of_memory("a list of densities", count);
    memcpy(average->densities, warmup, count * sizeof *warmup);
    average->first = config->state ? config->state->next : 0;
    return WEFT_OK;
}

static int copy_tensors(const char *who, struct weft_sparse_average *average,
                        const struct weft_sparse_average_config *config)
{
    struct weft__model *model = &average->model;
    int status = weft__model_init_in(model, who, WEFT__GRADIENT_DTYPES, config->dtype,
                                     config->tensors, config->tensor_count, config->memory);
    for (size_t t = 0; t < model->tensor_count && !status; t++)
        status = weft__sparse_check_aligned(who, "config->tensors", t, model->dtype,
                                            model->tensors[t].data);
    if (status)
        return status;
    average->offsets = weft_memory_alloc(model->tensor_count + 1, sizeof *average->offsets);
    if (!average->offsets)
        return out_of_memory("a list of tensors", model->tensor_count);
    for (size_t t = 0; t < model->tensor_count; t++)
        average->offsets[t + 1] = average->offsets[t] + model->tensors[t].count;
    return WEFT_OK;
}

/* ---- units ---- */

static int is_contiguous(const struct weft__model *model, size_t first, size_t count)
{
    const char *end = NULL;
    for (size_t t = first; t < first + count; t++) {
        const struct weft_piece *tensor = &model->tensors[t];
        if (tensor->count && end && end != tensor->data)
            return 0;
        if (tensor->count)
            end = (const char *)tensor->data + tensor->count * weft_dtype_size(model->dtype);
    }
    return 1;
}

static int check_unit(const char *who, const struct weft__sparse_unit *unit)
{
    if ((uint64_t)unit->count <= UINT64_C(1) << 32)
        return WEFT_OK;
    return weft_error_set(
        WEFT_ERR_UNSUPPORTED, "%s: %zu elements to select from, expected at most 2^32%s", who,
        unit->count,
        unit->tensor_count > 1 ? " (WEFT_SPARSE_TENSOR selects from each tensor)" : "");
}

static int divide(const char *who, struct weft_sparse_average *average)
{
    const struct weft__model *model = &average->model;
    int whole = average->config.scope == WEFT_SPARSE_MODEL || !model->tensor_count;
    int status = WEFT_OK;
    average->unit_count = whole ? 1 : model->tensor_count;
    average->units = weft_memory_alloc(average->unit_count, sizeof *average->units);
    if (!average->units)
        return out_of_memory("a list of tensors", average->unit_count);
    for (size_t u = 0; u < average->unit_count && !status; u++) {
        struct weft__sparse_unit *unit = &average->units[u];
        unit->average = average;
        unit->first = whole ? 0 : u;
        unit->tensor_count = whole ? model->tensor_count : 1;
        unit->count = whole ? model->count : model->tensors[u].count;
        unit->offset = average->offsets[unit->first];
        unit->contiguous = is_contiguous(model, unit->first, unit->tensor_count);
        unit->next = average->first;
        status = check_unit(who, unit);
    }
    return status;
}

/* To merge in; for Ok-Topk, to find a threshold in. */
static size_t merge_bytes(const struct weft__sparse_unit *unit)
{
    size_t capacity = unit->capacity;
    if (capacity > SIZE_MAX / 16)
        return SIZE_MAX / 2;
    if (unit->average->config.method == WEFT_SPARSE_OKTOPK)
        return capacity * sizeof(float) + 256;
    return weft_sparse_merge_workspace(WEFT_U32, WEFT_F32, 2 * capacity);
}

static int size_unit(struct weft__sparse_unit *unit)
{
    struct weft_sparse_average *average = unit->average;
    size_t ranks = (size_t)weft_context_size(average->context);
    unit->most = weft__sparse_k(average, unit->count);
    for (uint64_t i = unit->next / average->config.warmup_steps; i < average->density_count; i++) {
        size_t k = weft__sparse_pairs(average->densities[i], unit->count);
        unit->most = k > unit->most ? k : unit->most;
    }
    unit->capacity = unit->most;
    if (average->config.method == WEFT_SPARSE_ALLGATHER)
        unit->capacity = unit->most > unit->count / ranks ? unit->count : unit->most * ranks;
    if (average->config.method == WEFT_SPARSE_OKTOPK) {
        size_t share = 0, quota = 0;
        int status = weft_sparse_region_limits(unit->most, (int)ranks, &share, &quota);
        if (status)
            return status;
        unit->capacity = quota > SIZE_MAX / 16 / ranks ? SIZE_MAX / 16 : quota * ranks;
        unit->capacity = unit->capacity > unit->most ? unit->capacity : unit->most;
    }
    size_t bytes = average->config.memory ? 1 : weft__sparse_select_bytes(unit);
    if (!bytes)
        return WEFT_ERR_INVALID;
    if (bytes > average->workspace_bytes)
        average->workspace_bytes = bytes;
    bytes = merge_bytes(unit);
    if (bytes > average->merge_workspace_bytes)
        average->merge_workspace_bytes = bytes;
    return WEFT_OK;
}

static int make_unit(struct weft__sparse_unit *unit)
{
    struct weft_context *context = unit->average->context;
    if (!unit->count)
        return WEFT_OK;
    unit->list = weft_context_memory_alloc(context, unit->capacity, sizeof *unit->list);
    if (!unit->list)
        return out_of_memory("a list of pairs", unit->capacity);
    weft_sparse_method_t method = unit->average->config.method;
    unit->own = weft_context_memory_alloc(context, unit->most, sizeof *unit->own);
    if (!unit->own)
        return out_of_memory("a list of pairs", unit->most);
    int status =
        method == WEFT_SPARSE_OKTOPK ? weft__sparse_regions_plan(unit) : weft__sparse_plan(unit);
    return !status && unit->average->device ? weft__sparse_pending_make(unit) : status;
}

/* The paper's list ends where it comes down to the density that follows. */
static void shorten_warmup(struct weft_sparse_average *average)
{
    size_t count = average->density_count;
    average->density_count = 0;
    double density = weft_sparse_average_density(average, 0);
    while (average->density_count < count && average->densities[average->density_count] > density)
        average->density_count++;
}

static int size_units(struct weft_sparse_average *average)
{
    int status = WEFT_OK;
    for (size_t u = 0; u < average->unit_count && !status; u++)
        status = size_unit(&average->units[u]);
    if (status)
        return status;
    average->workspace = weft_memory_alloc(average->workspace_bytes + 1, 1);
    average->merge_workspace = weft_memory_alloc(average->merge_workspace_bytes + 1, 1);
    if (!average->workspace || !average->merge_workspace)
        return out_of_memory("selections and merges", average->model.count);
    return WEFT_OK;
}

/* What this rank had not sent is put into its residual when ranks have met, if at all. */
static int make_device(struct weft_sparse_average *average,
                       const struct weft_sparse_average_state *state)
{
    size_t count = average->model.count;
    if (!state)
        return weft__sparse_device_make(average, NULL, NULL);
    if (state->unsent && count && !(average->resumed = weft_memory_alloc(count, sizeof(float))))
        return out_of_memory("a residual", count);
    if (average->resumed && state->residual)
        memcpy(average->resumed, state->residual, count * sizeof(float));
    return weft__sparse_device_make(average, state->residual, state->velocity);
}

/* Everything that needs no other rank. */
static int prepare(const char *who, struct weft_sparse_average *average,
                   const struct weft_sparse_average_config *config)
{
    int status = copy_config(average, config);
    if (!status)
        status = copy_tensors(who, average, config);
    if (!status)
        status = divide(who, average);
    if (!status)
        status = weft__sparse_copy_state(who, average, config->state);
    if (!status && !config->warmup)
        shorten_warmup(average);
    if (!status)
        status = size_units(average);
    return !status && config->memory ? make_device(average, config->state) : status;
}

static void free_all(struct weft_sparse_average *average)
{
    for (size_t u = 0; average->units && u < average->unit_count; u++) {
        weft__sparse_plan_free(&average->units[u]);
        weft_context_memory_free(average->context, average->units[u].own);
        weft_context_memory_free(average->context, average->units[u].list);
    }
    weft__sparse_device_free(average);
    if (!average->member)
        weft_object_destroy(average->object);
    weft_memory_free(average->units);
    weft_memory_free(average->merge_workspace);
    weft_memory_free(average->regions);
    weft_memory_free(average->workspace);
    weft_memory_free(average->unsent);
    weft_memory_free(average->resumed);
    weft_memory_free(average->velocity);
    weft_memory_free(average->residual);
    weft_memory_free(average->densities);
    weft_memory_free(average->offsets);
    weft__model_free(&average->model);
    weft_memory_free(average);
}

/* What is made of a configuration that has been checked, with runs of an object. */
static int make(const char *who, struct weft_sparse_average *average,
                const struct weft_sparse_average_config *config)
{
    int status = prepare(who, average, config);
    for (size_t u = 0; !status && u < average->unit_count; u++)
        status = make_unit(&average->units[u]);
    return status;
}

int weft_sparse_average_create(struct weft_sparse_average **out, struct weft_context *context,
                               const struct weft_sparse_average_config *given)
{
    if (!context)
        return REFUSE("%s: context is NULL", __func__);
    struct weft_sparse_average_config full, *config = &full;
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    int status =
        out ? check(__func__, given, config, &state) : REFUSE("%s: average is NULL", __func__);
    if (!status && config->memory == WEFT_MEMORY_DEVICE)
        status = weft_context_device(context, NULL); /* from then on its memory is known */
    struct weft_sparse_average *average = status ? NULL : weft_memory_alloc(1, sizeof *average);
    if (!status && !average)
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", __func__);
    struct weft__creation creation;
    status = weft__creation_begin(&creation, context, __func__, NULL, status);
    if (average) {
        average->context = context;
        average->object = creation.object;
    }
    if (!status)
        status = make(__func__, average, config);
    status = status ? weft__creation_end(&creation, NULL, 0, NULL, 0, status)
                    : agree(&creation, average, &state);
    if (average) {
        weft_memory_free(average->resumed);
        average->resumed = NULL;
    }
    if (!status)
        *out = average;
    else if (average)
        free_all(average);
    else
        weft_object_destroy(creation.object);
    return status;
}

int weft__sparse_average_check(const char *who, const struct weft_sparse_average_config *given)
{
    struct weft_sparse_average_config config;
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    return check(who, given, &config, &state);
}

int weft__sparse_average_create_member(struct weft_sparse_average **out, const char *who,
                                       struct weft_context *context, struct weft_object *object,
                                       const struct weft_sparse_average_config *given)
{
    struct weft_sparse_average_config config;
    struct weft_sparse_average_state state = {.struct_size = sizeof state};
    int status = check(who, given, &config, &state);
    if (!status && config.memory != WEFT_MEMORY_HOST)
        status = weft_error_set(WEFT_ERR_UNSUPPORTED,
                                "%s: config->memory is WEFT_MEMORY_DEVICE, expected "
                                "WEFT_MEMORY_HOST of a part of another object",
                                who);
    struct weft_sparse_average *average = status ? NULL : weft_memory_alloc(1, sizeof *average);
    if (status)
        return status;
    if (!average)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", who);
    average->context = context;
    average->object = object;
    average->member = 1;
    status = make(who, average, &config);
    if (status)
        free_all(average);
    else
        *out = average;
    return status;
}

int weft_sparse_average_fail(struct weft_sparse_average *average, int status, const char *text)
{
    return average ? weft__object_give_up(__func__, average->object, status, text)
                   : REFUSE("%s: average is NULL", __func__);
}

/* The last step of a unit, if it has been posted; then the others know that there is none after it.
 */
static int leave(const char *who, struct weft__sparse_unit *unit)
{
    struct weft_sparse_average *average = unit->average;
    struct weft_run *runs[] = {unit->run, unit->balance_run};
    int under_way[] = {unit->posted, unit->posted && unit->balancing}, status = WEFT_OK;
    for (int i = 0; i < 2 && !status; i++)
        if (runs[i] && under_way[i])
            status = weft__object_end_run(who, average->object, runs[i], average->config.leave_ns);
    if (!status && unit->run && average->config.method != WEFT_SPARSE_OKTOPK) {
        unit->next += unit->posted != 0; /* as the peers of the step that will not come */
        weft__sparse_bind(unit);
    }
    for (int i = 0; i < 2 && !status; i++)
        if (runs[i])
            weft_run_quit(runs[i]);
    return status;
}

int weft__sparse_average_leave(struct weft_sparse_average *average, const char *who)
{
    int status = weft_object_check(average->object, who);
    for (size_t u = 0; u < average->unit_count && !status; u++)
        status = leave(who, &average->units[u]);
    return status;
}

void weft__sparse_average_free(struct weft_sparse_average *average)
{
    if (average)
        free_all(average);
}

int weft_sparse_average_destroy(struct weft_sparse_average *average)
{
    if (!average)
        return WEFT_OK;
    int status = weft__sparse_average_leave(average, __func__);
    free_all(average);
    return status;
}
