/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients (weft/gradients.h says what they are): steps. */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/gradients/gradients.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)
#define MISUSE(...) weft_error_set(WEFT_ERR_STATE, __VA_ARGS__)

uint64_t weft__gradients_left(const struct weft_gradients *g, uint64_t until)
{
    uint64_t now = weft_context_now(g->context);
    return until == WEFT_NEVER ? WEFT_NEVER : until > now ? until - now : 0;
}

int weft__gradients_failure(const struct weft_gradients *g, const char *who, int status)
{
    int failed = weft_object_check(g->object, who);
    return failed ? failed : status;
}

/* The same, and which step of which layer it was. */
static int fail_layer(struct weft_gradients *g, const char *who, uint64_t step, size_t layer,
                      int status)
{
    char text[128];
    snprintf(text, sizeof text, "%s: step %llu, layer %zu", who, (unsigned long long)step, layer);
    return weft__gradients_failure(g, text, status);
}

static int check_layer(const struct weft_gradients *g, const char *who, size_t layer)
{
    if (!g)
        return REFUSE("%s: gradients is NULL", who);
    if (layer >= g->layer_count)
        return REFUSE("%s: layer is %zu, expected less than %zu", who, layer, g->layer_count);
    return WEFT_OK;
}

/* ---- announcements ---- */

/* A layer that has not got as far as `state`, or layer_count. */
static size_t first_without(const struct weft_gradients *g, unsigned state)
{
    size_t l = 0;
    while (l < g->layer_count && g->states[l] & state)
        l++;
    return l;
}

static int refuse_again(const struct weft_gradients *g, const char *who, size_t layer)
{
    unsigned long long step = g->next;
    size_t left = first_without(g, WEFT__LAYER_WAITED);
    if (g->announced < g->layer_count)
        return MISUSE("%s: layer %zu has been announced in step %llu", who, layer, step);
    if (left == g->layer_count)
        return MISUSE("%s: layer %zu has been announced in step %llu, which is being ended", who,
                      layer, step);
    return MISUSE("%s: layer %zu has been announced in step %llu, which has not ended: layer %zu "
                  "has not been waited for",
                  who, layer, step, left);
}

/* Under the lock: the layer is announced by who gets WEFT_OK. */
static int claim(struct weft_gradients *g, const char *who, size_t layer, int absent)
{
    g->untold = 0; /* nobody asks for the step before any more */
    int status = weft_object_check(g->object, who);
    if (status)
        return status;
    if (g->states[layer])
        return refuse_again(g, who, layer);
    uint64_t now = weft_context_now(g->context);
    if (!g->open) {
        status = g->way->begin(g, g->plan);
        if (status)
            return weft__gradients_failure(g, who, status);
        g->open = 1;
        g->began_ns = now;
    }
    g->states[layer] = WEFT__LAYER_ANNOUNCED;
    g->announced_ns[layer] = now > g->began_ns ? now : g->began_ns;
    g->announced++;
    g->absent += absent != 0;
    return WEFT_OK;
}

/* A layer without a gradient counts as zero. */
static void clear(const struct weft_gradients *g, size_t layer)
{
    const struct weft__gradients_layer *at = &g->layers[layer];
    const size_t size = weft_dtype_size(g->model.dtype);
    for (size_t t = at->first; t < at->first + at->tensor_count; t++)
        if (g->model.tensors[t].count)
            memset(g->model.tensors[t].data, 0, g->model.tensors[t].count * size);
}

/* Of a layer that this thread has claimed. */
static int announce(struct weft_gradients *g, const char *who, uint64_t step, size_t layer,
                    int absent)
{
    if (absent)
        clear(g, layer);
    int status = g->way->ready(g, g->plan, layer);
    return status < 0 ? fail_layer(g, who, step, layer, status) : WEFT_OK;
}

static int announce_next(struct weft_gradients *g, const char *who, size_t layer, int absent)
{
    pthread_mutex_lock(&g->lock);
    int status = claim(g, who, layer, absent);
    uint64_t step = g->next;
    pthread_mutex_unlock(&g->lock);
    return status ? status : announce(g, who, step, layer, absent);
}

int weft_gradients_ready(struct weft_gradients *gradients, size_t layer)
{
    int status = check_layer(gradients, __func__, layer);
    return status ? status : announce_next(gradients, __func__, layer, 0);
}

int weft_gradients_absent(struct weft_gradients *gradients, size_t layer)
{
    int status = check_layer(gradients, __func__, layer);
    return status ? status : announce_next(gradients, __func__, layer, 1);
}

/* ---- the end of a step ---- */

/* What the step was: its times, for who asks, and how much was hidden. */
static void collect(struct weft_gradients *g)
{
    struct weft__gradients_plan *plan = g->plan;
    uint64_t last = g->began_ns;
    struct weft_gradients_result result = {.step = g->next, .absent = g->absent};
    for (size_t i = 0; i < g->layer_count; i++) {
        uint64_t at = g->announced_ns[plan->order[i]];
        plan->ready_us[i] = (double)(at - g->began_ns) * 1e-3;
        last = at > last ? at : last;
    }
    for (size_t k = 0; k < plan->group_count; k++) {
        const struct weft__gradients_span *span = &plan->spans[k];
        uint64_t end = span->end > span->start ? span->end : span->start;
        uint64_t before = end < last ? end : last;
        result.communication_ns += end - span->start;
        result.hidden_ns += before > span->start ? before - span->start : 0;
        plan->start_us[k] = ((double)span->start - (double)g->began_ns) * 1e-3;
        plan->end_us[k] = ((double)end - (double)g->began_ns) * 1e-3;
    }
    const struct weft__gradients_compression *compression = &plan->compression;
    result.compressed_groups = compression->groups;
    result.bits = compression->elements > 0 ? compression->bits / compression->elements : 0;
    result.loss = compression->squares > 0 ? compression->dropped / compression->squares : -1;
    plan->measured = 1;
    g->ending_result = result;
}

void weft__gradients_look_at_phase(struct weft_gradients *g)
{
    g->phase = g->way->phase ? g->way->phase(g->plan) : WEFT_COMPRESSED_WARMUP;
}

/* Under the lock. */
static void close_step(struct weft_gradients *g)
{
    g->result = g->ending_result;
    g->result.waited_ns = g->waited_ns;
    g->untold = !g->asked;
    if (g->asked)
        *g->asked = g->result;
    g->asked = NULL;
    g->stats.steps++;
    g->stats.absent += g->absent;
    g->stats.waited_ns += g->waited_ns;
    g->stats.communication_ns += g->result.communication_ns;
    g->stats.hidden_ns += g->result.hidden_ns;
    const struct weft__gradients_traffic *past = &g->planning.sent, *now = &g->plan->sent;
    g->stats.messages = g->before.messages + past->messages + now->messages;
    g->stats.bytes = g->before.bytes + past->bytes + now->bytes;
    g->stats.copied_bytes = g->before.copied_bytes + past->copied_bytes + now->copied_bytes;
    g->stats.checks = g->before.checks + g->planning.checks;
    g->stats.plans = g->before.plans + g->planning.plans;
    if (g->layer_count)
        memset(g->states, 0, g->layer_count);
    g->announced = g->absent = g->waited = 0;
    g->waited_ns = 0;
    g->ended = g->open = 0;
    g->next++;
    weft__gradients_look_at_phase(g);
}

static int timed_out(struct weft_gradients *g, const char *who, const char *what, char *report)
{
    int status = weft_object_check(g->object, who); /* meanwhile */
    if (!status)
        status = weft_error_set(WEFT_ERR_TIMEOUT, "%s: %s has not ended within %llu ns%s%s", who,
                                what, (unsigned long long)g->config.deadline_ns,
                                report ? ":\n" : "", report ? report : "");
    weft_memory_free(report);
    return status;
}

/* Without the lock, by one thread. */
static int finish(struct weft_gradients *g, const char *who, uint64_t until)
{
    int status = WEFT_OK;
    char what[48];
    if (!g->ended) {
        status = g->way->end(g, g->plan, until);
        if (!status)
            collect(g);
        g->ended = !status;
    }
    /* A step whose sums are there has been taken, whatever has failed the object meanwhile: that is
     * told in the next call. */
    if (!status && !weft_object_check(g->object, who))
        status = weft__gradients_plan_next(g, until);
    if (g->ended && status && weft_object_check(g->object, who))
        status = WEFT_OK;
    snprintf(what, sizeof what, "step %llu", (unsigned long long)g->next);
    if (status == WEFT_IN_PROGRESS)
        return timed_out(g, who, what,
                         g->ended ? weft__gradients_plan_report(g) : g->way->report(g, g->plan));
    return status ? weft__gradients_failure(g, who, status) : WEFT_OK;
}

/* Whether a layer has its result: also where gradients of this rank were not finite, which who
 * waits is told. */
static int is_over(const struct weft_gradients *g, const char *who, int status)
{
    return !status || (status == WEFT_ERR_COMPUTE && !weft_object_check(g->object, who));
}

/* Under the lock. */
static void keep_bad(struct weft_gradients *g, int status)
{
    if (!g->bad)
        snprintf(g->bad_text, sizeof g->bad_text, "%s", weft_error_text());
    g->bad = status;
}

void weft__gradients_keep_bad(struct weft_gradients *g, int status)
{
    pthread_mutex_lock(&g->lock);
    keep_bad(g, status);
    pthread_mutex_unlock(&g->lock);
}

/* Under the lock, once the step has ended. */
static int tell_bad(struct weft_gradients *g)
{
    int status = g->bad;
    g->bad = WEFT_OK;
    return status ? weft_error_set(status, "%s", g->bad_text) : WEFT_OK;
}

/* Ends a step all of whose layers have been waited for, unless somebody has. */
static int end_step(struct weft_gradients *g, const char *who, uint64_t step, uint64_t until)
{
    int status = WEFT_OK;
    pthread_mutex_lock(&g->lock);
    while (g->next == step && (g->ending || (g->waiters && g->waited == g->layer_count)))
        pthread_cond_wait(&g->changed, &g->lock);
    if (g->next == step && g->waited == g->layer_count) {
        uint64_t began = weft_context_now(g->context);
        g->ending = 1;
        pthread_mutex_unlock(&g->lock);
        status = finish(g, who, until);
        pthread_mutex_lock(&g->lock);
        g->waited_ns += weft_context_now(g->context) - began;
        g->ending = 0;
        if (!status) {
            close_step(g);
            status = tell_bad(g);
        }
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* ---- waiting ---- */

static uint64_t deadline_of(const struct weft_gradients *g)
{
    uint64_t now = weft_context_now(g->context), limit = g->config.deadline_ns;
    return limit == WEFT_NEVER || now > WEFT_NEVER - 1 - limit ? WEFT_NEVER : now + limit;
}

/* Under the lock: 1 in *enters: the layer is to be waited for. */
static int enter(struct weft_gradients *g, const char *who, size_t layer, int *enters)
{
    /* What has been announced may be there, also if the object has failed since. */
    int status = g->open && g->states[layer] ? WEFT_OK : weft_object_check(g->object, who);
    if (status)
        return status;
    if (!g->open)
        return WEFT_OK; /* the step before has been waited for */
    if (!g->states[layer])
        return MISUSE("%s: layer %zu has not been announced in step %llu", who, layer,
                      (unsigned long long)g->next);
    *enters = !(g->states[layer] & WEFT__LAYER_WAITED);
    g->waiters += *enters != 0;
    return WEFT_OK;
}

/* A layer that is still under way, and a reason for it that is this rank's own. */
static int layer_timed_out(struct weft_gradients *g, const char *who, uint64_t step, size_t layer)
{
    char what[128], reason[64] = "";
    pthread_mutex_lock(&g->lock);
    size_t missing = first_without(g, WEFT__LAYER_ANNOUNCED);
    pthread_mutex_unlock(&g->lock);
    if (missing < g->layer_count)
        snprintf(reason, sizeof reason, ", in which layer %zu has not been announced,", missing);
    snprintf(what, sizeof what, "layer %zu in step %llu%s", layer, (unsigned long long)step,
             reason);
    return timed_out(g, who, what, g->way->report ? g->way->report(g, g->plan) : NULL);
}

int weft__gradients_wait_layer(struct weft_gradients *g, const char *who, size_t layer,
                               uint64_t until)
{
    int enters = 0, all = 0;
    pthread_mutex_lock(&g->lock);
    int status = enter(g, who, layer, &enters);
    const uint64_t step = g->next;
    all = g->open && g->waited == g->layer_count;
    pthread_mutex_unlock(&g->lock);
    if (status || !enters)
        return !status && all ? end_step(g, who, step, until) : status;
    uint64_t began = weft_context_now(g->context);
    status = g->way->wait(g, g->plan, layer, until);
    if (status == WEFT_IN_PROGRESS)
        status = layer_timed_out(g, who, step, layer);
    else if (status)
        status = fail_layer(g, who, step, layer, status);
    pthread_mutex_lock(&g->lock);
    g->waited_ns += weft_context_now(g->context) - began;
    if (is_over(g, who, status) && !(g->states[layer] & WEFT__LAYER_WAITED)) {
        g->states[layer] |= WEFT__LAYER_WAITED;
        g->waited++;
    }
    all = g->waited == g->layer_count && is_over(g, who, status);
    if (is_over(g, who, status) && !all)
        g->states[layer] |= WEFT__LAYER_GIVEN;
    if (all && status)
        keep_bad(g, status);
    g->waiters--; /* from now on another thread may end the step */
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return all ? end_step(g, who, step, until) : status;
}

int weft_gradients_wait(struct weft_gradients *gradients, size_t layer)
{
    int status = check_layer(gradients, __func__, layer);
    return status ? status
                  : weft__gradients_wait_layer(gradients, __func__, layer, deadline_of(gradients));
}

/* "layers 0, 3, 7 and 12 others" */
static int refuse_missing(struct weft_gradients *g, const char *who)
{
    char text[160] = "";
    size_t left = g->layer_count - g->announced, named = 0;
    for (size_t l = 0; l < g->layer_count && named < 8; l++) {
        size_t used = strlen(text);
        if (!g->states[l])
            snprintf(text + used, sizeof text - used, "%s%zu", named++ ? ", " : "", l);
    }
    char others[32] = "";
    if (left > named)
        snprintf(others, sizeof others, " and %zu more", left - named);
    return MISUSE("%s: in step %llu layer%s %s%s %s not been announced", who,
                  (unsigned long long)g->next, left > 1 ? "s" : "", text, others,
                  left > 1 ? "have" : "has");
}

/* Under the lock: what wait_all does with a layer of the step that is to end. */
static int complete_layer(struct weft_gradients *g, const char *who, size_t layer, int *claimed)
{
    if (g->states[layer])
        return WEFT_OK;
    int status = weft_object_check(g->object, who);
    if (!status && g->config.missing == WEFT_GRADIENTS_MISSING_ERROR)
        status = refuse_missing(g, who);
    if (!status)
        status = claim(g, who, layer, 1);
    *claimed = !status;
    return status;
}

/* Announces what has not been, or refuses to. Other threads may announce layers, too, and end the
 * step: what comes after it is none of this one's business. */
static int complete(struct weft_gradients *g, const char *who, uint64_t step)
{
    int status = g->layer_count ? WEFT_OK : weft_object_check(g->object, who);
    for (size_t l = 0; l < g->layer_count && !status; l++) {
        int claimed = 0;
        pthread_mutex_lock(&g->lock);
        const int goes_on = g->next == step;
        if (goes_on)
            status = complete_layer(g, who, l, &claimed);
        pthread_mutex_unlock(&g->lock);
        if (!goes_on)
            break;
        if (claimed)
            status = announce(g, who, step, l, 1);
    }
    return status;
}

/* Nothing is left to be announced: the end of the step is what is waited for. */
static int end_all(struct weft_gradients *g, const char *who, uint64_t step, uint64_t until)
{
    pthread_mutex_lock(&g->lock);
    const int goes_on = g->next == step;
    for (size_t l = 0; l < g->layer_count && goes_on; l++)
        g->states[l] |= WEFT__LAYER_WAITED;
    g->waited = goes_on ? g->layer_count : g->waited;
    pthread_mutex_unlock(&g->lock);
    return goes_on ? end_step(g, who, step, until) : WEFT_OK;
}

/* The step under way or to come, whose result goes to *result, whoever ends it. 1: the one before,
 * which waits for layers have ended and no wait_all was told of. */
static int ask(struct weft_gradients *g, struct weft_gradients_result *result, uint64_t *step)
{
    pthread_mutex_lock(&g->lock);
    const int over = !g->open && g->untold;
    *step = g->next;
    if (over)
        *result = g->result;
    else
        g->asked = result;
    g->untold = g->untold && !over;
    pthread_mutex_unlock(&g->lock);
    return over;
}

/* ... it does not any more. */
static void ask_no_more(struct weft_gradients *g, struct weft_gradients_result *result)
{
    pthread_mutex_lock(&g->lock);
    if (g->asked == result)
        g->asked = NULL;
    if (result->step == WEFT_NEVER)
        *result = g->result;
    pthread_mutex_unlock(&g->lock);
}

int weft_gradients_wait_all(struct weft_gradients *gradients, struct weft_gradients_result *result)
{
    int status = weft_sized_check(__func__, "result", result);
    if (status)
        return status;
    if (!gradients)
        return REFUSE("%s: gradients is NULL", __func__);
    struct weft_gradients *g = gradients;
    struct weft_gradients_result got = {.step = WEFT_NEVER};
    const uint64_t until = deadline_of(g);
    uint64_t step;
    const int over = ask(g, &got, &step);
    if (!over)
        status = complete(g, __func__, step);
    if (!status && !over)
        status = end_all(g, __func__, step, until);
    ask_no_more(g, &got);
    if (is_over(g, __func__, status) && result)
        weft_sized_fill(__func__, "result", result, &got, sizeof got);
    return status;
}

weft_compressed_phase_t weft_gradients_phase(const struct weft_gradients *gradients)
{
    struct weft_gradients *g = (struct weft_gradients *)(uintptr_t)gradients;
    if (!g)
        return WEFT_COMPRESSED_WARMUP;
    pthread_mutex_lock(&g->lock);
    weft_compressed_phase_t phase = g->phase;
    pthread_mutex_unlock(&g->lock);
    return phase;
}

int weft_gradients_get_tensor(struct weft_gradients *gradients, size_t tensor,
                              struct weft_gradiveq_tensor *info)
{
    struct weft_gradiveq_tensor got = {.struct_size = sizeof got};
    if (!gradients || !info)
        return REFUSE("%s: %s is NULL", __func__, gradients ? "info" : "gradients");
    if (tensor >= gradients->model.tensor_count)
        return REFUSE("%s: tensor is %zu, expected less than %zu", __func__, tensor,
                      gradients->model.tensor_count);
    int status = weft_sized_check(__func__, "info", info);
    if (!status)
        status = weft__gradients_check_idle(gradients, __func__);
    if (!status && gradients->way->tensor)
        status = gradients->way->tensor(gradients, gradients->plan, tensor, &got);
    return status ? status : weft_sized_fill(__func__, "info", info, &got, sizeof got);
}

uint64_t weft_gradients_next(const struct weft_gradients *gradients)
{
    struct weft_gradients *g = (struct weft_gradients *)(uintptr_t)gradients;
    if (!g)
        return 0;
    pthread_mutex_lock(&g->lock);
    uint64_t next = g->next;
    pthread_mutex_unlock(&g->lock);
    return next;
}

/* ---- asking ---- */

int weft_gradients_get_result(struct weft_gradients *gradients,
                              struct weft_gradients_result *result)
{
    if (!gradients || !result)
        return REFUSE("%s: %s is NULL", __func__, gradients ? "result" : "gradients");
    pthread_mutex_lock(&gradients->lock);
    struct weft_gradients_result got = gradients->result;
    pthread_mutex_unlock(&gradients->lock);
    return weft_sized_fill(__func__, "result", result, &got, sizeof got);
}

int weft_gradients_get_stats(struct weft_gradients *gradients, struct weft_gradients_stats *stats)
{
    if (!gradients || !stats)
        return REFUSE("%s: %s is NULL", __func__, gradients ? "stats" : "gradients");
    pthread_mutex_lock(&gradients->lock);
    struct weft_gradients_stats got = gradients->stats;
    pthread_mutex_unlock(&gradients->lock);
    return weft_sized_fill(__func__, "stats", stats, &got, sizeof got);
}

int weft__gradients_check_idle(struct weft_gradients *g, const char *who)
{
    pthread_mutex_lock(&g->lock);
    int open = g->open;
    unsigned long long step = g->next;
    pthread_mutex_unlock(&g->lock);
    return open ? MISUSE("%s: step %llu has not ended", who, step) : WEFT_OK;
}

int weft_gradients_get_plan(struct weft_gradients *gradients, struct weft_gradients_plan *plan)
{
    if (!gradients || !plan)
        return REFUSE("%s: %s is NULL", __func__, gradients ? "plan" : "gradients");
    int status = weft__gradients_check_idle(gradients, __func__);
    if (status)
        return status;
    const struct weft__gradients_plan *in_force = gradients->plan;
    const int measured = in_force->measured;
    const struct weft_gradients_plan got = {
        .since = in_force->since,
        .merge = in_force->merge,
        .order = in_force->order,
        .layer_count = gradients->layer_count,
        .group_count = in_force->group_count,
        .ready_us = measured ? in_force->ready_us : NULL,
        .start_us = measured ? in_force->start_us : NULL,
        .end_us = measured ? in_force->end_us : NULL,
    };
    return weft_sized_fill(__func__, "plan", plan, &got, sizeof got);
}

int weft_gradients_fail(struct weft_gradients *gradients, int status, const char *text)
{
    return gradients ? weft__object_give_up(__func__, gradients->object, status, text)
                     : REFUSE("%s: gradients is NULL", __func__);
}
