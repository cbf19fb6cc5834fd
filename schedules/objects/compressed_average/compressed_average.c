/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging of gradients (weft/compressed_average.h says what it computes): steps. */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/compressed_average/compressed_average.h"
#include "schedules/objects/compressed_average/member.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

/* ---- post ---- */

static int check_state(struct weft_compressed_average *average, const char *who)
{
    if (!average)
        return REFUSE("%s: average is NULL", who);
    average->who = who;
    return weft_object_check(average->object, who);
}

void weft__compressed_give_up(struct weft_compressed_average *average)
{
    char text[512];
    int status = weft_object_check(average->object, average->who);
    snprintf(text, sizeof text, "%s", weft_error_text());
    if (!status || average->stage == WEFT__COMPRESSED_IDLE)
        return;
    for (struct weft__compressed_run *run = average->runs; run; run = run->next)
        if (weft_run_version(run->run) == average->next)
            weft_run_wait(run->run, WEFT_NEVER);
    average->dropped = 1;
    average->stage = WEFT__COMPRESSED_IDLE;
    average->stepping = 0;
    if (average->method->drop && average->own)
        average->method->drop(average);
    if (!average->written)
        weft__compressed_unread(average);
    weft_error_set(status, "%s", text);
}

/* A step has failed with `status`, which the object then has. */
static int give_up(struct weft_compressed_average *average, int status)
{
    char text[512];
    status = weft__compressed_fail(average, status);
    snprintf(text, sizeof text, "%s", weft_error_text());
    weft__compressed_give_up(average);
    return weft_error_set(status, "%s", text);
}

static int post(struct weft_compressed_average *average, const char *who)
{
    int status = check_state(average, who);
    if (status)
        return status;
    if (average->stage != WEFT__COMPRESSED_IDLE)
        return weft_error_set(WEFT_ERR_STATE, "%s: step %llu has been %s and not been waited for",
                              who, (unsigned long long)average->next,
                              average->stepping ? "begun" : "posted");
    uint64_t began = weft_context_now(average->context);
    weft__compressed_read(average);
    average->stats.copy_ns += weft_context_now(average->context) - began;
    average->step = (struct weft__compressed_step){.phase = WEFT_COMPRESSED_COMPRESSED};
    average->stage = WEFT__COMPRESSED_POSTED;
    average->written = 0;
    status = average->own ? average->method->post(average) : WEFT_OK;
    return status ? give_up(average, status) : WEFT_OK;
}

/* ---- wait ---- */

/* The sum is there; WEFT_IN_PROGRESS: not by then. */
static int get_sum(struct weft_compressed_average *average, uint64_t until)
{
    if (average->stage != WEFT__COMPRESSED_POSTED)
        return WEFT_OK;
    int status = average->own ? average->method->wait(average, until) : WEFT_OK;
    if (!status)
        average->stage = WEFT__COMPRESSED_SUMMED;
    return status && status != WEFT_IN_PROGRESS ? give_up(average, status) : status;
}

/* And what the next step needs. */
static int advance(struct weft_compressed_average *average, uint64_t until)
{
    int status = WEFT_OK;
    if (average->stage != WEFT__COMPRESSED_SUMMED)
        return WEFT_OK;
    if (average->own && average->method->advance)
        status = average->method->advance(average, until);
    if (!status)
        average->stage = WEFT__COMPRESSED_ADVANCED;
    return status && status != WEFT_IN_PROGRESS ? give_up(average, status) : status;
}

static void write(struct weft_compressed_average *average, int divisor)
{
    uint64_t began = weft_context_now(average->context);
    weft__compressed_write(average, divisor);
    average->stats.copy_ns += weft_context_now(average->context) - began;
}

/* Nothing takes the step back. */
static void keep(struct weft_compressed_average *average)
{
    struct weft_compressed_average_stats *stats = &average->stats;
    const struct weft__compressed_step *step = &average->step;
    if (average->own && average->method->keep)
        average->method->keep(average);
    stats->steps++;
    stats->compressed_steps += step->phase == WEFT_COMPRESSED_COMPRESSED;
    stats->elements += average->model.count;
    stats->messages += step->messages;
    stats->bytes += step->bytes;
    stats->wire_bits += step->bits * (double)average->model.count;
    average->next++;
    average->stage = WEFT__COMPRESSED_IDLE;
    average->stepping = 0;
}

static uint64_t until_of(const struct weft_compressed_average *average, uint64_t limit)
{
    uint64_t now = weft_context_now(average->context);
    return !limit || limit == WEFT_NEVER ? 0 : now < UINT64_MAX - limit ? now + limit : UINT64_MAX;
}

/* Tells once of what was not finite in gradients that had to be; of step number `step`. */
static int tell_bad(struct weft_compressed_average *average, uint64_t step)
{
    const struct weft__bad *bad = &average->bad;
    if (average->told || !bad->count || average->config.nan != WEFT_NAN_ERROR)
        return WEFT_OK;
    average->told = 1;
    return weft_error_set(WEFT_ERR_COMPUTE,
                          "%s: step %llu: %llu NaNs or infinities in gradients of this rank%s, "
                          "the first in tensor %zu; the gradient of the model counts as zero",
                          average->who, (unsigned long long)step, (unsigned long long)bad->count,
                          average->keeps ? " (with what it has kept)" : "", bad->tensor);
}

static int wait_all(struct weft_compressed_average *average,
                    struct weft_compressed_average_result *result)
{
    const uint64_t until = until_of(average, average->config.deadline_ns);
    const struct weft__compressed_step *step = &average->step;
    int status = get_sum(average, until);
    if (!status)
        status = advance(average, until);
    if (status == WEFT_IN_PROGRESS) {
        char text[48];
        snprintf(text, sizeof text, "step %llu", (unsigned long long)average->next);
        return weft__step_timed_out(average->who, text, average->late, average->config.deadline_ns);
    }
    if (status)
        return status;
    write(average, average->config.sum ? 1 : average->ranks);
    keep(average);
    const struct weft_compressed_average_result got = {.step = average->next - 1,
                                                       .phase = step->phase,
                                                       .bytes = step->bytes,
                                                       .bits = step->bits,
                                                       .loss = step->loss,
                                                       .votes = step->votes};
    if (result)
        weft_sized_fill(average->who, "result", result, &got, sizeof got);
    return tell_bad(average, got.step);
}

int weft_compressed_average_step(struct weft_compressed_average *average,
                                 struct weft_compressed_average_result *result)
{
    int status = weft_sized_check(__func__, "result", result);
    if (!status)
        status = post(average, __func__);
    if (status)
        return status;
    average->stepping = 1;
    return wait_all(average, result);
}

int weft_compressed_average_post(struct weft_compressed_average *average)
{
    return post(average, __func__);
}

int weft_compressed_average_wait(struct weft_compressed_average *average,
                                 struct weft_compressed_average_result *result)
{
    if (weft_sized_check(__func__, "result", result))
        return WEFT_ERR_INVALID;
    int status = check_state(average, __func__);
    if (status && average)
        weft__compressed_give_up(average);
    if (status)
        return status;
    if (average->stage == WEFT__COMPRESSED_IDLE)
        return weft_error_set(WEFT_ERR_STATE, "%s: no step has been posted", __func__);
    return wait_all(average, result);
}

/* ---- the end ---- */

int weft__compressed_end(struct weft_compressed_average *average, const char *who)
{
    const uint64_t leave_ns = average->config.leave_ns, until = until_of(average, leave_ns);
    char text[384], *report = NULL;
    average->who = who;
    int status = get_sum(average, until);
    if (!status)
        status = advance(average, until);
    if (status != WEFT_IN_PROGRESS)
        return status;
    int told = average->late ? weft_run_report(average->late, &report) : WEFT_ERR_STATE;
    snprintf(text, sizeof text,
             "the object is being destroyed; its last step has not ended in %.3f s:\n%s",
             (double)leave_ns * 1e-9, told ? "" : report);
    weft_memory_free(report);
    weft_object_fail(average->object, WEFT_ERR_TIMEOUT, text);
    return weft_error_set(WEFT_ERR_TIMEOUT, "%s: %s", who, text);
}

/* ---- for another object ---- */

int weft__compressed_average_post(struct weft_compressed_average *average, const char *who)
{
    return post(average, who);
}

int weft__compressed_average_wait(struct weft_compressed_average *average, const char *who,
                                  uint64_t until)
{
    average->who = who;
    /* What has been posted may have ended before the object failed. */
    int status = average->stage == WEFT__COMPRESSED_IDLE ? check_state(average, who)
                                                         : get_sum(average, until);
    return status ? status : tell_bad(average, average->next);
}

void weft__compressed_average_write(struct weft_compressed_average *average, int divisor)
{
    write(average, divisor);
}

int weft__compressed_average_finish(struct weft_compressed_average *average, const char *who,
                                    uint64_t until)
{
    average->who = who;
    int status = advance(average, until);
    if (!status && average->stage == WEFT__COMPRESSED_ADVANCED)
        keep(average);
    return status;
}

int weft__compressed_average_abandon(struct weft_compressed_average *average, uint64_t step)
{
    if (average->stage != WEFT__COMPRESSED_IDLE) {
        weft__compressed_give_up(average);
    } else if (average->next > step) { /* it had been finished, and given to nobody */
        average->next = step;
        average->dropped = 1;
        if (average->own && average->method->drop)
            average->method->drop(average);
    }
    return average->dropped && average->keeps;
}

char *weft__compressed_average_report(const struct weft_compressed_average *average)
{
    struct weft_run *under_way = average->late;
    char *report = NULL;
    if (average->stage == WEFT__COMPRESSED_IDLE)
        return NULL;
    for (struct weft__compressed_run *run = average->runs; run && !under_way; run = run->next)
        under_way = weft_run_version(run->run) == average->next ? run->run : NULL;
    return under_way && !weft_run_report(under_way, &report) ? report : NULL;
}

void weft__compressed_average_last(const struct weft_compressed_average *average,
                                   struct weft__compressed_part_step *last)
{
    const struct weft__compressed_step *step = &average->step;
    *last = (struct weft__compressed_part_step){.phase = step->phase,
                                                .elements = (double)average->model.count,
                                                .bits = step->bits,
                                                .squares = step->squares,
                                                .dropped = step->dropped};
}

int weft__compressed_average_votes(const struct weft_compressed_average *average)
{
    return average->vote;
}

uint64_t weft__compressed_average_ended(const struct weft_compressed_average *average)
{
    return atomic_load_explicit(&average->ended_ns, memory_order_relaxed);
}
