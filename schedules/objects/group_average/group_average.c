/* SPDX-License-Identifier: BSD-3-Clause */
/* Group averaging from the user's side: creation, steps, the end (group_average.h has the idea). */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/group_average/group_average.h"
#include "schedules/objects/initial.h"

#define SYNC_PERIOD       10
#define FIRST_PATIENCE_NS UINT64_C(1000000)
#define PATIENCE_LEAST    100 /* shares of the time between steps */
#define PATIENCE_MOST     10
#define PATIENCE_WEARS    256

/* Versions are numbers that a program may count on with: doubles of reports and traces have them
 * exactly, and no sum of them wraps. Ranks of one training are apart by the steps that the slowest
 * has missed; who goes on from a checkpoint takes a stale step for each of them, which a million of
 * them would not be worth: such states are of different trainings, or broken. */
#define MOST_NEXT      (UINT64_C(1) << 53)
#define MOST_APART     (UINT64_C(1) << 20)
#define NEXT_APART     "config->state->next, of which ranks may be 1048576 apart"
#define MOST_ASKING_NS UINT64_C(1000000000)

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

static int check(const char *who, const struct weft_context *context,
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
        const struct weft__model model = model_of(average);
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
        weft__initial_settings(&settings[12], config->initial,
                               config->contribution == WEFT_AVERAGE_REPLACE && !average->restored,
                               &model);
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

/* All that needs no other rank, after what can be refused; then the ranks meet. */
static int create(const char *who, struct weft__creation *creation,
                  struct weft_group_average *average,
                  const struct weft_group_average_config *config, int failed)
{
    struct weft_object_config object;
    struct weft_group_average_state state = {0};
    weft_object_config_init(&object);
    object.leave_ns = failed ? 0 : config->leave_ns;
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
        status = weft__initial_make(creation, config->initial, &model,
                                    config->contribution == WEFT_AVERAGE_REPLACE &&
                                        config->nan == WEFT_NAN_ERROR);
    }
    status = agree(creation, average, &state, status);
    if (!status)
        weft__average_fill_buffers(average);
    return status;
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
        status = failure(average, status, __func__);
    if (!status)
        *out = average;
    else if (average)
        free_average(average);
    else
        weft_object_destroy(creation.object);
    return status;
}

/* ---- steps ---- */

#define REQUIRE_OBJECT(average)                                                                    \
    do {                                                                                           \
        if (!(average))                                                                            \
            return weft_error_set(WEFT_ERR_INVALID, "%s: argument `average` is NULL", __func__);   \
    } while (0)

/*
 * Patience by default: a share of the time between steps. It grows, up to a larger share, where
 * waiting a little longer would have made a stale step a fresh one, and wears off again where it
 * would not: so ranks that are in step but for some jitter become patient enough for it, and nobody
 * waits for a rank that is really late. late_ns: since the start of this step's version, 0: not
 * late.
 */
static void adapt(struct weft_group_average *average, uint64_t now, uint64_t late_ns)
{
    uint64_t patience = atomic_load_explicit(&average->patience_ns, memory_order_relaxed);
    uint64_t last = average->last_step_ns;
    average->last_step_ns = now;
    if (!last || average->config.patience_ns != 0)
        return;
    uint64_t took = now - last;
    average->step_ns = average->step_ns ? (7 * average->step_ns + took) / 8 : took;
    uint64_t least = average->step_ns / PATIENCE_LEAST, most = average->step_ns / PATIENCE_MOST;
    if (late_ns && late_ns <= most) /* it had been held already */
        patience += 2 * late_ns;
    else if (patience > least)
        patience -= (patience - least) / PATIENCE_WEARS;
    if (patience < least)
        patience = least;
    if (patience > most)
        patience = most;
    atomic_store_explicit(&average->patience_ns, patience, memory_order_release);
}

/* Looks at the clock and the versions as a step begins. */
static void measure(struct weft_group_average *average)
{
    uint64_t now = weft_context_now(average->context), late = 0;
    pthread_mutex_lock(&average->lock);
    if (atomic_load(&average->started) == average->next + 1 && now > average->started_ns)
        late = now - average->started_ns;
    pthread_mutex_unlock(&average->lock);
    adapt(average, now, late);
}

static void count_behind(struct weft_group_average *average, uint64_t step)
{
    uint64_t started = atomic_load_explicit(&average->started, memory_order_acquire);
    uint64_t behind = started > step ? started - step : 0;
    size_t bucket = behind < 4 ? (size_t)behind : 4;
    for (; bucket >= 4 && bucket < WEFT_AVERAGE_BEHIND - 1 && behind >> (bucket - 1) > 0; bucket++)
        continue;
    pthread_mutex_lock(&average->lock);
    average->stats.behind[bucket]++;
    pthread_mutex_unlock(&average->lock);
}

/* Tells the engine that the application has arrived at a step. */
static void arrive(struct weft_group_average *average, uint64_t step)
{
    int fired = WEFT_RETIRED;
    /* Sequentially consistent: whoever arms the version after this sees it. */
    atomic_store(&average->arrived, step + 1);
    if (average->activation &&
        (weft__average_syncs(average, step) || weft__average_activates(average, step))) {
        fired = weft_series_fire(average->activation, step, average->application);
        if (fired == WEFT_IN_PROGRESS)
            weft_series_poke(average->activation);
    }
    if (fired != WEFT_OK || atomic_load(&average->somebody_left))
        /* else the end of the activation does it */
        weft_series_poke(average->versions);
}

static int begin(struct weft_group_average *average, enum weft__step step, const char *who)
{
    int status = weft__step_check_none(who, average->step, average->next);
    if (!status)
        status = weft_object_check(average->object, who);
    if (status)
        return status;
    if (!weft__average_publish(average, average->next))
        return weft__bad_refuse(who, average->next, &average->bad);
    measure(average);
    count_behind(average, average->next);
    average->step = step;
    arrive(average, average->next);
    return WEFT_OK;
}

/* Who has not arrived, once the deadline is near: they are asked in what is left of it. */
static int late(struct weft_group_average *average, uint64_t step, uint64_t began, const char *who)
{
    char missing[320];
    uint64_t end = began + average->config.deadline_ns, now;
    pthread_mutex_lock(&average->asking);
    int asks = average->ranks <= WEFT__AVERAGE_ASKS;
    now = weft_context_now(average->context); /* who did not run for a while may be too late */
    int status =
        (asks ? weft__average_ask : weft__average_chase)(average, step, now < end ? end - now : 0);
    now = weft_context_now(average->context);
    if (status == WEFT_IN_PROGRESS && now < end)
        status = weft_series_wait(average->versions, step, end - now);
    if (asks)
        weft__average_missing(average, step, missing, sizeof missing);
    else
        weft__average_chased(average, missing, sizeof missing);
    pthread_mutex_unlock(&average->asking);
    if (status != WEFT_IN_PROGRESS)
        return status;
    return weft_error_set(WEFT_ERR_TIMEOUT, "%s: version %llu%s has not ended after %.3f s: %s",
                          who, (unsigned long long)step,
                          weft__average_syncs(average, step) ? ", a synchronisation," : "",
                          (double)(weft_context_now(average->context) - began) * 1e-9, missing);
}

static void log_stall(struct weft_group_average *average)
{
    char *text;
    if (weft_group_average_report(average, UINT64_C(1000000000), &text) != WEFT_OK)
        return;
    for (char *line = text, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        weft_context_log(average->context, WEFT_LOG_WARNING, line);
    }
    weft_memory_free(text);
}

/* Of a deadline so much is for asking who is missing. */
static uint64_t asking_ns(uint64_t deadline)
{
    return deadline / 4 < MOST_ASKING_NS ? deadline / 4 : MOST_ASKING_NS;
}

/* Waits until the version of a step has ended. */
static int await(struct weft_group_average *average, uint64_t step, const char *who)
{
    if (weft_series_version(average->versions) > step)
        return WEFT_OK;
    uint64_t began = weft_context_now(average->context), waited = 0, stall = average->stall_ns;
    uint64_t deadline = average->config.deadline_ns ? average->config.deadline_ns : WEFT_NEVER;
    uint64_t quiet = deadline >= WEFT_NEVER - began ? WEFT_NEVER : deadline - asking_ns(deadline);
    int status = WEFT_IN_PROGRESS;
    while (status == WEFT_IN_PROGRESS && waited < quiet) {
        uint64_t limit = quiet == WEFT_NEVER ? WEFT_NEVER : quiet - waited;
        if (stall && stall > waited && stall - waited < limit)
            limit = stall - waited;
        status = weft_series_wait(average->versions, step, limit);
        waited = weft_context_now(average->context) - began;
        if (status == WEFT_IN_PROGRESS && stall && waited >= stall && waited < quiet) {
            log_stall(average);
            stall = 2 * waited;
        }
    }
    if (status == WEFT_IN_PROGRESS)
        status = late(average, step, began, who);
    waited = weft_context_now(average->context) - began;
    pthread_mutex_lock(&average->lock);
    average->stats.waited_ns += waited;
    if (weft__average_syncs(average, step))
        average->stats.waited_sync_ns += waited;
    pthread_mutex_unlock(&average->lock);
    return status;
}

static int end(struct weft_group_average *average, struct weft_group_average_result *result,
               const char *who)
{
    struct weft_group_average_result got;
    int status = await(average, average->next, who);
    if (status < 0) { /* the text of a deadline stays, if it is no failure */
        int failed = weft_object_check(average->object, who);
        if (failed) { /* what it has published is in a sum or in the state */
            average->step = WEFT__STEP_NONE;
            average->next++;
        }
        return failed ? failed : status;
    }
    weft__average_take(average, average->next, average->step == WEFT__STEP_POSTED, &got);
    average->step = WEFT__STEP_NONE;
    average->next++;
    status = weft_sized_fill(who, "result", result, &got, sizeof got);
    if (status || !average->bad.count || average->config.nan != WEFT_NAN_ERROR)
        return status;
    return weft_error_set(WEFT_ERR_COMPUTE,
                          "%s: step %llu: %llu NaNs or infinities in the gradient of this rank, "
                          "the first in tensor %zu; it counts as zero",
                          who, (unsigned long long)average->next - 1,
                          (unsigned long long)average->bad.count, average->bad.tensor);
}

int weft_group_average_step(struct weft_group_average *average,
                            struct weft_group_average_result *result)
{
    REQUIRE_OBJECT(average);
    int status = weft_sized_check(__func__, "result", result);
    if (!status)
        status = begin(average, WEFT__STEP_BEGUN, __func__);
    return status ? status : end(average, result, __func__);
}

int weft_group_average_post(struct weft_group_average *average)
{
    REQUIRE_OBJECT(average);
    return begin(average, WEFT__STEP_POSTED, __func__);
}

int weft_group_average_wait(struct weft_group_average *average,
                            struct weft_group_average_result *result)
{
    REQUIRE_OBJECT(average);
    int status = weft__step_check_posted(__func__, average->step);
    if (!status)
        status = weft_sized_check(__func__, "result", result);
    return status ? status : end(average, result, __func__);
}

/* ---- queries ---- */

uint64_t weft_group_average_next(const struct weft_group_average *average)
{
    return average ? average->next : 0;
}

int weft_group_average_get_stats(struct weft_group_average *average,
                                 struct weft_group_average_stats *stats)
{
    REQUIRE_OBJECT(average);
    if (!stats)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `stats` is NULL", __func__);
    pthread_mutex_lock(&average->lock);
    struct weft_group_average_stats counted = average->stats;
    pthread_mutex_unlock(&average->lock);
    return weft_sized_fill(__func__, "stats", stats, &counted, sizeof counted);
}

static int save(struct weft_group_average *average, int takes,
                struct weft_group_average_state *state, const char *who)
{
    if (!state)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `state` is NULL", who);
    int status = weft_sized_check(who, "state", state);
    if (!status)
        status = weft__step_check_none(who, average->step, average->next);
    if (status)
        return status;
    struct weft_group_average_state now = {0};
    int failed = weft_object_check(average->object, who) != WEFT_OK;
    if (failed) /* until no version of it ends any more */
        weft_series_wait(average->versions, UINT64_MAX, WEFT_NEVER);
    weft__average_save(average, takes, failed, &now);
    return weft_sized_fill(who, "state", state, &now, sizeof now);
}

int weft_group_average_get_state(struct weft_group_average *average,
                                 struct weft_group_average_state *state)
{
    REQUIRE_OBJECT(average);
    return save(average, 0, state, __func__);
}

int weft_group_average_take_state(struct weft_group_average *average,
                                  struct weft_group_average_state *state)
{
    REQUIRE_OBJECT(average);
    return save(average, 1, state, __func__);
}

/* ---- the end ---- */

int weft_group_average_fail(struct weft_group_average *average, int status, const char *text)
{
    REQUIRE_OBJECT(average);
    return weft__object_give_up(__func__, average->object, status, text);
}

int weft_group_average_destroy(struct weft_group_average *average)
{
    if (!average)
        return WEFT_OK;
    int status = weft_object_check(average->object, __func__);
    struct weft_object *object = average->object;
    atomic_store(&average->leaving, 1);
    if (average->activation)
        weft_series_poke(average->activation);
    weft_series_poke(average->versions);
    weft_object_leave(object); /* the context has it from now on, and may have freed it */
    return status;
}
