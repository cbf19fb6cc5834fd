/* SPDX-License-Identifier: BSD-3-Clause */
/* Averaging in pairs: partners, steps, creation and end; pair_average.h tells how it works. */
#include <string.h>

#include <weft/template.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/initial.h"
#include "schedules/objects/pair_average/pair_average.h"

/* ---- partners ---- */

int weft_pair_average_partner(uint64_t seed, int ranks, int rank, uint64_t step)
{
    uint64_t odd = ranks > 0 ? (uint64_t)ranks / 2 : 0;
    if (rank < 0 || rank >= ranks || rank % 2 || !odd)
        return WEFT_PEER_NONE;
    uint64_t drawn = weft__scramble(weft__scramble(seed ^ weft__scramble((uint64_t)rank)) ^ step);
    return 2 * (int)(drawn % odd) + 1;
}

/* ---- steps ---- */

static void copy_out(struct weft_pair_average *average)
{
    weft__model_copy(&average->model, average->published, 0);
}

/* A model that is not finite is not published. */
static int refuse(struct weft_pair_average *average, struct weft__bad bad, const char *who)
{
    average->stats.nans += bad.count;
    return bad.count ? weft__bad_refuse(who, average->stats.steps, &bad) : WEFT_OK;
}

static int look(struct weft_pair_average *average, const char *who)
{
    if (average->nan != WEFT_NAN_ERROR)
        return WEFT_OK;
    struct weft__bad bad;
    int status = weft__model_look(&average->model, NULL, &bad);
    return status ? status : refuse(average, bad, who);
}

static void subtract_float(float *tensor, const float *d, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tensor[i] -= d[i];
}

static void subtract_double(double *tensor, const double *d, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tensor[i] -= d[i];
}

/* Takes what came back off the tensors. */
static void apply(struct weft_pair_average *average)
{
    const struct weft__model *model = &average->model;
    size_t at = 0;
    for (size_t t = 0; t < model->tensor_count; t++) {
        const struct weft_piece *tensor = &model->tensors[t];
        void *d = weft__model_at(model, average->added, at);
        if (model->dtype == WEFT_F64)
            subtract_double(tensor->data, d, tensor->count);
        else
            subtract_float(tensor->data, d, tensor->count);
        at += tensor->count;
    }
}

/* The application's turn at the model of an odd rank. */
static int execute(struct weft_pair_average *average, struct weft_run *run, const char *who)
{
    uint64_t began = weft_context_now(average->context);
    int status = weft_run_execute(run);
    average->stats.waited_ns += weft_context_now(average->context) - began;
    int failed = status ? weft_object_check(average->object, who) : WEFT_OK;
    return failed ? failed : status;
}

static int ask(struct weft_pair_average *average, int partner, const char *who)
{
    struct weft_run *run = average->exchange;
    int peers[] = {average->rank, partner};
    int status = refuse(
        average,
        weft__model_copy(&average->model, average->published, average->nan == WEFT_NAN_ERROR), who);
    if (status)
        return status;
    status = weft_run_bind_peers(run, peers);
    /* Release: who sees that it is over sees what came back. */
    atomic_store_explicit(&average->asking, 1, memory_order_release);
    if (!status)
        status = weft_run_start_version(run, average->stats.steps);
    if (status) {
        atomic_store_explicit(&average->asking, 0, memory_order_release);
        return status;
    }
    average->asked = 1;
    average->stats.begun++;
    return WEFT_OK;
}

static int begin(struct weft_pair_average *average, const char *who, enum weft__step step)
{
    if (!average)
        return weft_error_set(WEFT_ERR_INVALID, "%s: average is NULL", who);
    int status = weft__step_check_none(who, average->step, average->stats.steps);
    if (!status && average->synchronising != PAIR_APART)
        status = weft_error_set(WEFT_ERR_STATE,
                                "%s: a synchronisation has been begun and not been ended", who);
    if (!status)
        status = weft_object_check(average->object, who);
    if (status)
        return status;
    int partner = weft_pair_average_partner(average->seed, average->size, average->rank,
                                            average->stats.steps);
    if (partner >= 0)
        status = ask(average, partner, who);
    else
        status = look(average, who);
    if (!status && average->rank % 2)
        status = execute(average, average->settle, who);
    if (!status)
        average->step = step;
    return status;
}

static int end(struct weft_pair_average *average, const char *who)
{
    if (average->asked) {
        struct weft_run *run = average->exchange;
        int status =
            weft__step_wait(average->context, run, average->deadline_ns, &average->stats.waited_ns);
        if (status == WEFT_IN_PROGRESS)
            return weft_error_set(WEFT_ERR_TIMEOUT,
                                  "%s: step %llu: rank %d has not answered within %llu ns", who,
                                  (unsigned long long)average->stats.steps,
                                  weft_pair_average_partner(average->seed, average->size,
                                                            average->rank, average->stats.steps),
                                  (unsigned long long)average->deadline_ns);
        average->asked = 0;
        if (status) {
            int failed = weft_object_check(average->object, who);
            average->step = WEFT__STEP_NONE;
            return failed ? failed : status;
        }
        apply(average);
    }
    average->step = WEFT__STEP_NONE;
    average->stats.steps++;
    return WEFT_OK;
}

int weft_pair_average_step(struct weft_pair_average *average)
{
    int status = begin(average, __func__, WEFT__STEP_BEGUN);
    return status ? status : end(average, __func__);
}

int weft_pair_average_post(struct weft_pair_average *average)
{
    return begin(average, __func__, WEFT__STEP_POSTED);
}

int weft_pair_average_wait(struct weft_pair_average *average)
{
    if (!average)
        return weft_error_set(WEFT_ERR_INVALID, "%s: average is NULL", __func__);
    int status = weft__step_check_posted(__func__, average->step);
    return status ? status : end(average, __func__);
}

static void divide(struct weft_pair_average *average)
{
    const struct weft__model *model = &average->model;
    for (size_t t = 0; t < model->tensor_count; t++) {
        const struct weft_piece *tensor = &model->tensors[t];
        if (model->dtype == WEFT_F64)
            for (size_t i = 0; i < tensor->count; i++)
                ((double *)tensor->data)[i] /= average->size;
        else
            for (size_t i = 0; i < tensor->count; i++)
                ((float *)tensor->data)[i] /= (float)average->size;
    }
}

/* A run of all ranks, which a deadline does not fail: the next call goes on waiting for it. */
static int meet_all(struct weft_pair_average *average, struct weft_run *run, enum pair_meeting at,
                    uint64_t began, const char *who)
{
    uint64_t deadline = average->deadline_ns, passed = weft_context_now(average->context) - began;
    int status = WEFT_OK;
    if (average->synchronising != at)
        status = weft_run_start(run);
    if (status)
        return status;
    average->synchronising = at;
    if (deadline != WEFT_NEVER)
        deadline = passed < deadline ? deadline - passed : 1; /* what is left of it; 0 is none */
    status = weft__step_wait(average->context, run, deadline, &average->stats.waited_ns);
    if (status == WEFT_IN_PROGRESS)
        return weft__step_timed_out(who, "the synchronisation", run, average->deadline_ns);
    int failed = status ? weft_object_check(average->object, who) : WEFT_OK;
    return failed ? failed : status;
}

int weft_pair_average_synchronise(struct weft_pair_average *average)
{
    if (!average)
        return weft_error_set(WEFT_ERR_INVALID, "%s: average is NULL", __func__);
    int status = weft__step_check_none(__func__, average->step, average->stats.steps);
    int answers = average->rank % 2;
    uint64_t began = weft_context_now(average->context);
    if (!status)
        status = weft_object_check(average->object, __func__);
    if (!status && average->synchronising == PAIR_APART)
        status = look(average, __func__);
    /* After it no exchange is under way, and none begins before the sum has ended. */
    if (!status && average->synchronising != PAIR_SUMS) {
        status = meet_all(average, average->barrier, PAIR_MEETS, began, __func__);
        if (!status && answers)
            status = execute(average, average->settle, __func__);
    }
    if (!status && !answers && average->synchronising != PAIR_SUMS)
        copy_out(average); /* a sum that fails leaves nothing of the tensors */
    if (!status)
        status = meet_all(average, average->sum, PAIR_SUMS, began, __func__);
    if (status)
        return status;
    average->synchronising = PAIR_APART;
    divide(average);
    /* A rank that is ahead may have visited meanwhile: what it added stays for the next step. */
    return answers ? execute(average, average->publish, __func__) : WEFT_OK;
}

/* ---- life ---- */

void weft_pair_average_config_init_sized(struct weft_pair_average_config *config, size_t size)
{
    weft_sized_init(config, size);
}

#define MOST_NEXT (UINT64_C(1) << 62)

/* Reads what was given, and the state that it points to. */
static int check(const char *who, const struct weft_context *context,
                 const struct weft_pair_average_config *given,
                 struct weft_pair_average_config *config, struct weft_pair_average_state *state)
{
    if (!given)
        return weft_error_set(WEFT_ERR_INVALID, "%s: config is NULL", who);
    int status = weft_sized_read(who, "config", given, config, sizeof *config);
    if (!status)
        status = weft_sized_read(who, "config->state", config->state, state, sizeof *state);
    if (!status && state->next >= MOST_NEXT)
        status = weft_error_set(WEFT_ERR_INVALID,
                                "%s: config->state->next is %llu, expected less than 2^62", who,
                                (unsigned long long)state->next);
    if (!status && config->state)
        config->state = state;
    if (!status)
        status = weft_sized_time(who, "config->deadline_ns", config->deadline_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->meet_ns", config->meet_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->leave_ns", config->leave_ns, WEFT_NEVER);
    if (!status)
        status = weft__initial_check(who, config->initial);
    if (!status)
        status = weft__nan_check(who, config->nan);
    if (status)
        return status;
    if (weft_context_progress_mode(context) != WEFT_PROGRESS_HELPER)
        return weft_error_set(
            WEFT_ERR_STATE,
            "%s: the context has caller progress, expected helper progress "
            "(config.progress = WEFT_PROGRESS_HELPER): a rank that computes would "
            "not answer",
            who);
    return WEFT_OK;
}

static int allocate(struct weft_pair_average *average)
{
    size_t element = weft_dtype_size(average->model.dtype), count = average->model.count;
    int answers = average->rank % 2;
    struct visitors *visitors = &average->visitors;
    average->published =
        weft_context_memory_alloc(average->context, (answers ? 3 : 2) * count, element);
    visitors->first = visitors->last = -1;
    visitors->capacity = 2 * WEFT__PAIR_VISITORS;
    if (answers)
        visitors->table = weft_memory_alloc(visitors->capacity, sizeof *visitors->table);
    if ((count && !average->published) || (answers && !visitors->table))
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d models of %zu elements",
                              answers ? 3 : 2, count);
    if (count) {
        average->added = weft__model_at(&average->model, average->published, count);
        average->room = answers ? weft__model_at(&average->model, average->added, count) : NULL;
        copy_out(average); /* before the meeting: whoever has left that may ask */
    }
    return WEFT_OK;
}

static int set_up(const char *who, struct weft_pair_average *average,
                  const struct weft_pair_average_config *config)
{
    average->rank = weft_context_rank(average->context);
    average->size = weft_context_size(average->context);
    average->seed = config->seed;
    average->meet_ns = config->meet_ns;
    average->initial = config->initial;
    average->nan = config->nan;
    average->deadline_ns = config->deadline_ns ? config->deadline_ns : WEFT_NEVER;
    average->restored = config->state != NULL;
    if (config->state) {
        average->stats = config->state->stats;
        average->stats.steps = config->state->next;
        atomic_store(&average->answered, average->stats.answered);
    }
    int status = weft__model_init(&average->model, who, WEFT__WIDE_DTYPES, config->dtype,
                                  config->tensors, config->tensor_count);
    if (!status)
        status = allocate(average);
    return status ? status : weft__pair_make_ops(average);
}

static int agree(struct weft__creation *creation, const struct weft_pair_average *average,
                 int failed)
{
    struct weft__setting settings[4 + WEFT__INITIAL_SETTINGS];
    if (!failed) {
        settings[0] = weft__setting_count("the number of elements", average->model.count);
        settings[1] = weft__setting_word("config->dtype", (int)average->model.dtype,
                                         weft_dtype_name(average->model.dtype));
        settings[2] = weft__setting_count("config->seed", average->seed);
        settings[3] =
            weft__setting_word("config->nan", (int)average->nan, weft__nan_word(average->nan));
        weft__initial_settings(&settings[4], creation, average->initial);
    }
    return weft__creation_end(creation, settings, sizeof settings / sizeof settings[0], NULL,
                              failed ? 0 : average->meet_ns, failed);
}

static void free_all(struct weft_pair_average *average)
{
    weft_run_destroy(average->publish);
    weft_run_destroy(average->settle);
    weft_run_destroy(average->exchange);
    weft_run_destroy(average->sum);
    weft_run_destroy(average->barrier);
    weft_object_destroy(average->object);
    for (int i = 0; i < OPS; i++)
        weft_op_destroy(average->ops[i]);
    weft_memory_free(average->visitors.table);
    weft_context_memory_free(average->context, average->published);
    weft__model_free(&average->model);
    weft_memory_free(average);
}

static void release(void *user)
{
    free_all(user);
}

/* The tensors have been broadcast: nobody asks before all can answer with them. */
static int spread(struct weft_pair_average *average, const char *who)
{
    uint64_t waited = average->stats.waited_ns;
    copy_out(average);
    int status = weft_run_set_deadline(average->barrier, average->meet_ns);
    if (!status)
        status = execute(average, average->barrier, who);
    average->stats.waited_ns = waited;
    return status ? status : weft_run_set_deadline(average->barrier, 0);
}

/* All that needs no other rank, after what can be refused; then the ranks meet. */
static int create(const char *who, struct weft__creation *creation, struct weft_context *context,
                  struct weft_pair_average *average, const struct weft_pair_average_config *config,
                  int failed)
{
    struct weft_object_config object;
    weft_object_config_init(&object);
    object.leave_ns = failed ? 0 : config->leave_ns;
    object.silent = weft_context_rank(context) % 2 == 0; /* who only asks is not needed */
    object.failed = average ? weft__pair_failed : NULL;
    object.left = weft__pair_left;
    object.settled = weft__pair_settled;
    object.release = release;
    object.user = average;
    int status = weft__creation_begin(creation, context, who, &object, failed);
    if (average) {
        average->context = context;
        average->object = creation->object;
    }
    if (!status)
        status = set_up(who, average, config);
    if (!status)
        status = weft__pair_make_runs(average);
    if (!status)
        status = weft__initial_make(creation, average->initial, &average->model, NULL,
                                    average->nan == WEFT_NAN_ERROR, !average->restored);
    status = agree(creation, average, status);
    return status || average->initial != WEFT_INITIAL_BROADCAST ? status : spread(average, who);
}

int weft_pair_average_create(struct weft_pair_average **out, struct weft_context *context,
                             const struct weft_pair_average_config *given)
{
    if (!context)
        return weft_error_set(WEFT_ERR_INVALID, "%s: context is NULL", __func__);
    struct weft_pair_average_config config;
    struct weft_pair_average_state state;
    struct weft__creation creation;
    struct weft_pair_average *average = NULL;
    int status = out ? check(__func__, context, given, &config, &state)
                     : weft_error_set(WEFT_ERR_INVALID, "%s: average is NULL", __func__);
    if (!status && !(average = weft_memory_alloc(1, sizeof *average)))
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", __func__);
    status = create(__func__, &creation, context, average, &config, status);
    if (!status) {
        *out = average;
        return WEFT_OK;
    }
    if (average)
        free_all(average);
    else
        weft_object_destroy(creation.object);
    return status;
}

uint64_t weft_pair_average_next(const struct weft_pair_average *average)
{
    return average ? average->stats.steps : 0;
}

/* A synchronisation has failed that has begun to add up the tensors. */
static void take_back(struct weft_pair_average *average)
{
    const struct weft__model *model = &average->model;
    size_t at = 0;
    weft_run_wait(average->sum, WEFT_NEVER);
    for (size_t t = 0; t < model->tensor_count; at += model->tensors[t++].count)
        memcpy(model->tensors[t].data, weft__model_at(model, average->published, at),
               model->tensors[t].count * weft_dtype_size(model->dtype));
    average->synchronising = PAIR_APART;
}

/* An object that has failed has no turns any more, nor does anybody visit it. */
static void settle_failed(struct weft_pair_average *average)
{
    const struct weft__model *model = &average->model;
    size_t at = 0;
    weft_run_wait(average->exchange, WEFT_NEVER);
    weft_run_wait(average->settle, WEFT_NEVER);
    for (size_t t = 0; t < model->tensor_count; at += model->tensors[t++].count) {
        const struct weft_piece *tensor = &model->tensors[t];
        const void *added = weft__model_at(model, average->added, at);
        for (size_t i = 0; i < tensor->count; i++)
            if (model->dtype == WEFT_F64)
                ((double *)tensor->data)[i] += ((const double *)added)[i];
            else
                ((float *)tensor->data)[i] += ((const float *)added)[i];
    }
    memset(average->added, 0, model->count * weft_dtype_size(model->dtype));
    copy_out(average);
}

int weft_pair_average_get_state(struct weft_pair_average *average,
                                struct weft_pair_average_state *state)
{
    struct weft_pair_average_state now = {.stats = {.struct_size = sizeof now.stats}};
    if (!average || !state)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL", __func__,
                              average ? "state" : "average");
    int failed = weft_object_check(average->object, __func__) != WEFT_OK;
    int status = weft_sized_check(__func__, "state", state);
    if (!status)
        status = weft__step_check_none(__func__, average->step, average->stats.steps);
    if (!status && !failed && average->synchronising != PAIR_APART)
        status = weft_error_set(
            WEFT_ERR_STATE, "%s: a synchronisation has been begun and not been ended", __func__);
    if (!status && average->rank % 2 && !failed) {
        status = execute(average, average->settle, __func__);
        failed = status != WEFT_OK;
        status = WEFT_OK;
    }
    if (status)
        return status;
    if (failed && average->synchronising == PAIR_SUMS && average->model.count)
        take_back(average);
    if (average->rank % 2 && failed && average->model.count)
        settle_failed(average);
    now.next = average->stats.steps;
    weft_pair_average_get_stats(average, &now.stats);
    return weft_sized_fill(__func__, "state", state, &now, sizeof now);
}

int weft_pair_average_get_stats(const struct weft_pair_average *average,
                                struct weft_pair_average_stats *stats)
{
    if (!average || !stats)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL", __func__,
                              average ? "stats" : "average");
    struct weft_pair_average_stats counted = average->stats;
    counted.answered = atomic_load_explicit(&average->answered, memory_order_relaxed);
    counted.messages = counted.begun + counted.answered;
    counted.bytes = counted.messages * average->model.count * weft_dtype_size(average->model.dtype);
    return weft_sized_fill(__func__, "stats", stats, &counted, sizeof counted);
}

int weft_pair_average_fail(struct weft_pair_average *average, int status, const char *text)
{
    return average ? weft__object_give_up(__func__, average->object, status, text)
                   : weft_error_set(WEFT_ERR_INVALID, "%s: average is NULL", __func__);
}

int weft_pair_average_destroy(struct weft_pair_average *average)
{
    if (!average)
        return WEFT_OK;
    int status = weft_object_check(average->object, __func__);
    if (!status && average->synchronising != PAIR_APART) {
        weft_object_fail(average->object, WEFT_ERR_CANCELLED,
                         "it has left in the middle of a synchronisation");
    } else if (!status) { /* nobody synchronises without this rank */
        weft_run_quit(average->barrier);
        weft_run_quit(average->sum);
    }
    weft_object_leave(average->object); /* the context has it from now on, and may have freed it */
    return status;
}
