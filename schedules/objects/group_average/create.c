/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging is created: settings are checked, everything is made, the ranks meet. */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/group_average/group_average.h"
#include "schedules/objects/initial.h"

#define SYNC_PERIOD       10
#define FIRST_PATIENCE_NS UINT64_C(1000000)

/* Versions are numbers that a program may count on with: doubles of reports and traces have them
 * exactly, and no sum of them wraps. Ranks of one training are apart by the steps that the slowest
 * has missed; who goes on from a checkpoint takes a stale step for each of them, which a million of
 * them would not be worth: such states are of different trainings, or broken. */
#define MOST_NEXT  (UINT64_C(1) << 53)
#define MOST_APART (UINT64_C(1) << 20)
#define NEXT_APART "config->state->next, of which ranks may be 1048576 apart"

void weft_group_average_config_init_sized(struct weft_group_average_config *config, size_t size)
{
    weft_sized_init(config, size);
}

/* ---- creation ---- */

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

static const char *const mixes[] = {"substitute", "paper"};

static int check_choices(const char *who, const struct weft_group_average_config *config, int ranks)
{
    if (config->dtype != WEFT_F32 && config->dtype != WEFT_F64 && config->dtype != WEFT_F16 &&
        config->dtype != WEFT_BF16)
        return weft_dtype_name(config->dtype)
                   ? weft_error_set(WEFT_ERR_UNSUPPORTED,
                                    "%s: config->dtype is %s, expected f32, f64, f16 or bf16", who,
                                    weft_dtype_name(config->dtype))
                   : REFUSE("%s: config->dtype is %d, expected f32, f64, f16 or bf16", who,
                            (int)config->dtype);
    if (config->group_size < 0 || config->group_size > ranks)
        return REFUSE("%s: config->group_size is %d, expected 0 .. %d", who, config->group_size,
                      ranks);
    if ((unsigned)config->mode > WEFT_AVERAGE_NONE)
        return REFUSE("%s: config->mode is %d, expected a weft_average_mode_t", who,
                      (int)config->mode);
    if ((unsigned)config->activation > WEFT_AVERAGE_DRAWN)
        return REFUSE("%s: config->activation is %d, expected a weft_average_activation_t", who,
                      (int)config->activation);
    if ((unsigned)config->contribution > WEFT_AVERAGE_ACCUMULATE)
        return REFUSE("%s: config->contribution is %d, expected a weft_average_contribution_t", who,
                      (int)config->contribution);
    if ((unsigned)config->stale_mix > WEFT_STALE_PAPER)
        return REFUSE("%s: config->stale_mix is %d, expected a weft_stale_mix_t", who,
                      (int)config->stale_mix);
    if ((unsigned)config->memory > WEFT_MEMORY_DEVICE)
        return REFUSE("%s: config->memory is %d, expected a weft_memory_t", who,
                      (int)config->memory);
    if (config->stale_mix != 0 && config->contribution == WEFT_AVERAGE_ACCUMULATE)
        return REFUSE("%s: config->stale_mix is %s, expected the default with "
                      "WEFT_AVERAGE_ACCUMULATE: gradients are not mixed",
                      who, mixes[config->stale_mix]);
    if (config->initial == WEFT_INITIAL_BROADCAST &&
        config->contribution == WEFT_AVERAGE_ACCUMULATE)
        return REFUSE("%s: config->initial is WEFT_INITIAL_BROADCAST, expected another with "
                      "WEFT_AVERAGE_ACCUMULATE: gradients are not broadcast",
                      who);
    if ((unsigned)config->nan > WEFT_NAN_SPREAD || config->contribution == WEFT_AVERAGE_REPLACE) {
        int status = weft__nan_check(who, config->nan);
        if (status)
            return status;
    }
    return weft__initial_check(who, config->initial);
}

static int check_times(const char *who, const struct weft_group_average_config *config)
{
    int status = weft_sized_time(who, "config->deadline_ns", config->deadline_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->meet_ns", config->meet_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->leave_ns", config->leave_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->patience_ns", config->patience_ns, WEFT_NS_NONE);
    if (!status && config->sync_period == WEFT_NS_NONE)
        status = REFUSE("%s: config->sync_period is WEFT_NS_NONE, expected a number of steps, or "
                        "WEFT_NEVER",
                        who);
    return status;
}

static int check(const char *who, struct weft_context *context,
                 const struct weft_group_average_config *given,
                 struct weft_group_average_config *config)
{
    if (!given)
        return REFUSE("%s: argument `config` is NULL", who);
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    if (!status)
        status = check_choices(who, config, weft_context_size(context));
    if (!status)
        status = check_times(who, config);
    if (status)
        return status;
    if (!config->group_size)
        config->group_size = weft_groups_default_size(weft_context_size(context));
    if (!config->sync_period)
        config->sync_period = SYNC_PERIOD;
    if (!config->tensors && config->tensor_count)
        return REFUSE("%s: config->tensors is NULL, expected %zu tensors", who,
                      config->tensor_count);
    size_t most = PTRDIFF_MAX / sizeof(double), elements = 0;
    for (size_t i = 0; i < config->tensor_count; i++) {
        if (!config->tensors[i].data && config->tensors[i].count)
            return REFUSE("%s: config->tensors[%zu].data is NULL with count %zu", who, i,
                          config->tensors[i].count);
        if (config->tensors[i].count > most - elements)
            return REFUSE("%s: config->tensors have more than %zu elements", who, most);
        elements += config->tensors[i].count;
    }
    if (config->memory == WEFT_MEMORY_DEVICE)
        status = weft_context_device(context, NULL); /* from then on its memory is known */
    if (!status)
        status = weft__tensors_locate(who, "config->tensors", config->tensors, config->tensor_count,
                                      config->dtype, config->memory);
    if (status)
        return status;
    if (weft_context_progress_mode(context) != WEFT_PROGRESS_HELPER)
        status = weft_error_set(WEFT_ERR_STATE,
                                "%s: the context has caller progress, but a "
                                "late rank takes part by helper progress "
                                "(config.progress = WEFT_PROGRESS_HELPER)",
                                who);
    return status;
}

static struct weft__model model_of(const struct weft_group_average *average)
{
    return (struct weft__model){.dtype = average->config.dtype,
                                .memory = average->config.memory,
                                .tensors = average->tensors,
                                .tensor_count = average->config.tensor_count,
                                .count = average->count};
}

enum { LAST = 12 + WEFT__INITIAL_SETTINGS }; /* setting: is there anything to be counted? */

/* Compares what must be the same on all ranks, and finds the first version: the largest next step.
 * What a version had consumed that failed is counted once.
 */
static int agree(struct weft__creation *creation, struct weft_group_average *average,
                 const struct weft_group_average_state *state, int failed)
{
    static const char *const modes[] = {"wait-avoiding", "waiting", "none"};
    static const char *const activations[] = {"anyone", "drawn"};
    static const char *const contributions[] = {"replace", "accumulate"};
    struct weft__setting settings[LAST + 1];
    if (!failed) {
        const struct weft_group_average_config *config = &average->config;
        average->first = average->next;
        settings[0] = weft__setting_count("the elements of the tensors", average->count);
        settings[1] =
            weft__setting_word("config->dtype", (int)config->dtype, weft_dtype_name(config->dtype));
        settings[2] = weft__setting_count("config->group_size", (uint64_t)config->group_size);
        settings[3] = weft__setting_count("config->sync_period", config->sync_period);
        settings[4] = weft__setting_word("config->mode", (int)config->mode, modes[config->mode]);
        settings[5] = weft__setting_word("config->activation", (int)config->activation,
                                         activations[config->activation]);
        settings[6] = weft__setting_word("config->contribution", (int)config->contribution,
                                         contributions[config->contribution]);
        settings[7] = weft__setting_count("config->seed", config->seed);
        settings[8] = weft__setting_word("config->stale_mix", (int)config->stale_mix,
                                         mixes[config->stale_mix]);
        settings[9] = weft__setting_string("config->algo", config->algo);
        settings[10] =
            weft__setting_word("config->nan", (int)config->nan, weft__nan_word(config->nan));
        settings[11] = weft__setting_count(NEXT_APART, average->next);
        settings[11].apart = MOST_APART;
        weft__initial_settings(&settings[12], creation, config->initial);
        settings[LAST] = weft__setting_count("config->state->failed", state->failed != NULL);
        settings[LAST].apart = UINT64_MAX;
    }
    int status = weft__creation_end(creation, settings, LAST + 1, failed ? NULL : &average->first,
                                    failed ? 0 : average->config.meet_ns, failed);
    return status || !weft__creation_largest(creation, LAST)
               ? status
               : weft__average_count_failed(average, creation->who, state);
}

static int copy_config(struct weft_group_average *average,
                       const struct weft_group_average_config *config,
                       const struct weft_group_average_state *state)
{
    average->config = *config;
    average->work = config->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    average->tensors = weft_memory_alloc(config->tensor_count ? config->tensor_count : 1,
                                         sizeof *average->tensors);
    if (!average->tensors)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for a list of %zu tensors",
                              config->tensor_count);
    for (size_t i = 0; i < config->tensor_count; i++) {
        average->tensors[i] = config->tensors[i];
        average->count += config->tensors[i].count;
    }
    average->config.tensors = average->tensors;
    average->bytes = average->count * weft_dtype_size(average->work);
    if (config->memory == WEFT_MEMORY_DEVICE) {
        average->device = weft_memory_alloc(1, sizeof *average->device);
        if (!average->device)
            return weft_error_set(WEFT_ERR_MEMORY, "out of memory for a model on a device");
    }
    average->next = state->next;
    average->stats = state->stats;
    average->restored = config->state != NULL;
    memcpy(average->past, state->past, sizeof average->past);
    average->config.state = NULL;
    atomic_store(&average->arrived, average->next);
    atomic_store(&average->patience_ns, config->patience_ns == 0 ? FIRST_PATIENCE_NS
                                        : config->patience_ns == WEFT_NS_NONE
                                            ? 0
                                            : config->patience_ns);
    return WEFT_OK;
}

/* What gradients there are in a state must be of this object. */
static int check_gradients(const char *who, const struct weft_group_average *average,
                           const char *name, const void *data, size_t count)
{
    if (!data && count)
        return REFUSE("%s: config->state->%s is NULL, expected %zu elements", who, name, count);
    if (data && average->config.contribution != WEFT_AVERAGE_ACCUMULATE)
        return REFUSE("%s: config->state->%s is %p, expected NULL but with "
                      "WEFT_AVERAGE_ACCUMULATE: models do not add up",
                      who, name, data);
    if (data && count != average->count)
        return REFUSE("%s: config->state->%s_count is %zu, expected %zu, the elements of the "
                      "tensors",
                      who, name, count, average->count);
    return WEFT_OK;
}

static int check_state(const char *who, const struct weft_group_average *average,
                       const struct weft_group_average_state *state)
{
    int status = check_gradients(who, average, "pending", state->pending, state->pending_count);
    if (!status)
        status = check_gradients(who, average, "failed", state->failed, state->failed_count);
    if (!status)
        status = check_gradients(who, average, "sum", state->sum, state->sum_count);
    if (status)
        return status;
    if (state->sum && state->sum_members < 1)
        return REFUSE("%s: config->state->sum_members is %d, expected at least 1", who,
                      state->sum_members);
    const struct weft_group_average_past *past = &state->past[0];
    if (state->failed && (past->ranks < 1 || past->rank < 0 || past->rank >= past->ranks ||
                          past->group_size < 1 || past->group_size > past->ranks))
        return REFUSE("%s: config->state->past[0] is of rank %d of %d with groups of %d, expected "
                      "one of an object",
                      who, past->rank, past->ranks, past->group_size);
    return WEFT_OK;
}

/* Everything that needs no other rank. */
static int prepare(const char *who, struct weft_group_average *average,
                   const struct weft_group_average_config *config,
                   struct weft_group_average_state *state)
{
    struct weft_context_config settings;
    int status = weft_sized_read(who, "config->state", config->state, state, sizeof *state);
    if (!status)
        status = copy_config(average, config, state);
    if (!status && state->next > MOST_NEXT)
        status = REFUSE("%s: config->state->next is %llu, expected at most %llu", who,
                        (unsigned long long)state->next, (unsigned long long)MOST_NEXT);
    if (!status)
        status = check_state(who, average, state);
    weft_context_config_init(&settings);
    if (!status)
        status = weft_context_get_config(average->context, &settings);
    average->stall_ns = settings.stall_ns;
    if (!status && config->mode != WEFT_AVERAGE_NONE)
        status = weft_groups_create(&average->groups, average->ranks, config->group_size);
    if (!status && average->groups) {
        average->largest = weft_groups_largest(average->groups);
        average->members = weft_memory_alloc((size_t)average->largest, sizeof(int));
        if (!average->members)
            status =
                weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d members", average->largest);
    }
    if (!status)
        status = weft__average_make_plans(average);
    if (!status && average->device)
        status = weft__average_make_device(average);
    return status ? status : weft__average_make_buffers(average, state);
}

static void free_average(struct weft_group_average *average)
{
    if (!average)
        return;
    /* `activation` pokes `versions`, so it goes first. */
    weft_series_destroy(average->activation);
    weft_series_destroy(average->versions);
    weft_object_destroy(average->object);
    weft__average_free_plans(average);
    weft__average_free_buffers(average);
    weft__average_free_device(average);
    weft_groups_destroy(average->groups);
    weft_memory_free(average->members);
    weft_memory_free(average->tensors);
    weft_memory_free((void *)average->answers);
    weft_memory_free(average->owes);
    pthread_mutex_destroy(&average->lock);
    pthread_mutex_destroy(&average->asking);
    weft_memory_free(average);
}

static struct weft_group_average *allocate(struct weft_context *context)
{
    struct weft_group_average *average = weft_memory_alloc(1, sizeof *average);
    if (!average)
        return NULL;
    average->context = context;
    average->rank = weft_context_rank(context);
    average->ranks = weft_context_size(context);
    average->held_version = UINT64_MAX;
    average->config.sync_period = WEFT_NEVER; /* until it is known */
    pthread_mutex_init(&average->lock, NULL);
    pthread_mutex_init(&average->asking, NULL);
    return average;
}

static void release(void *user)
{
    free_average(user);
}

/* After the meeting: what fails it fails the object. */
static int fill(struct weft_group_average *average)
{
    int status = weft__average_fill_buffers(average);
    if (status)
        weft_object_fail(average->object, status, weft_error_text());
    return status;
}

/* All that needs no other rank, after what can be refused; then the ranks meet. */
static int create(const char *who, struct weft__creation *creation,
                  struct weft_group_average *average,
                  const struct weft_group_average_config *config, int failed)
{
    struct weft_object_config object;
    struct weft_group_average_state state = {0};
    weft_object_config_init(&object);
    object.leave_ns = failed ? 0 : config->leave_ns;
    object.failed = average ? weft__average_failed : NULL;
    object.left = weft__average_all_left;
    object.settled = weft__average_settled;
    object.release = release;
    object.user = average;
    int status = weft__creation_begin(creation, creation->context, who, &object, failed);
    if (average)
        average->object = creation->object;
    if (!status)
        status = prepare(who, average, config, &state);
    if (!status)
        status = weft__average_make_series(average);
    if (!status) {
        const struct weft__model model = model_of(average);
        int replaces = config->contribution == WEFT_AVERAGE_REPLACE;
        status = weft__initial_make(
            creation, config->initial, &model, average->device ? &average->device->work : NULL,
            replaces && config->nan == WEFT_NAN_ERROR, replaces && !average->restored);
    }
    status = agree(creation, average, &state, status);
    return status ? status : fill(average);
}

/* What has failed the object, or else how a version has ended. */
static int failure(const struct weft_group_average *average, int status, const char *who)
{
    int failed = weft_object_check(average->object, who);
    return failed ? failed : status;
}

int weft_group_average_create(struct weft_group_average **out, struct weft_context *context,
                              const struct weft_group_average_config *given)
{
    if (!context)
        return REFUSE("%s: argument `context` is NULL", __func__);
    struct weft_group_average_config config;
    struct weft__creation creation = {.context = context};
    struct weft_group_average *average = NULL;
    /* Whatever is wrong, the others are told, or they would wait. */
    int status = out ? check(__func__, context, given, &config)
                     : REFUSE("%s: argument `average` is NULL", __func__);
    if (!status && !(average = allocate(context)))
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for a group average", __func__);
    status = create(__func__, &creation, average, &config, status);
    int agreed = !status;
    if (!status)
        status = weft_series_start_version(average->versions, average->first);
    if (!status && average->activation)
        status = weft_series_start_version(average->activation, average->first);
    if (status && agreed) /* the object has failed meanwhile */
        status = average->decided ? WEFT_OK : failure(average, status, __func__);
    if (!status)
        *out = average;
    else if (average)
        free_average(average);
    else
        weft_object_destroy(creation.object);
    return status;
}
