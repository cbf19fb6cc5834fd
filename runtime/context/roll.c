/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/context/roll.h"

#include <stdio.h>
#include <string.h>
#include <weft/object.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

/* ---- the graph ---- */

static weft_slot_t add_slot(struct weft_schedule *schedule, const char *name, int ranks)
{
    return weft_schedule_add_slot(schedule, name, WEFT_U8, (size_t)ranks * WEFT__LINE_BYTES,
                                  WEFT_SLOT_INOUT);
}

static struct weft_region line_at(weft_slot_t slot, int place)
{
    return weft_region_at(slot, (size_t)place * WEFT__LINE_BYTES, WEFT__LINE_BYTES);
}

/* Rank 0 hears all, is ready itself, judges, and answers. */
static void add_first(struct weft__roll *roll, struct weft_schedule *schedule, weft_slot_t lines,
                      weft_slot_t answers)
{
    roll->heard = weft_schedule_add_join(schedule);
    roll->judged = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    weft_schedule_add_order(schedule, roll->ready, roll->heard);
    for (int r = 1; r < roll->size; r++) {
        weft_node_t recv = weft_schedule_add_recv(schedule, line_at(lines, r), r, 0);
        weft_node_t send = weft_schedule_add_send(schedule, line_at(answers, r), r, 1);

        weft_schedule_add_order(schedule, recv, roll->heard);
        weft_schedule_add_order(schedule, roll->judged, send);
    }
}

static void add_other(const struct weft__roll *roll, struct weft_schedule *schedule,
                      weft_slot_t lines, weft_slot_t answers)
{
    weft_node_t send = weft_schedule_add_send(schedule, line_at(lines, 0), 0, 0);

    weft_schedule_add_order(schedule, roll->ready, send);
    weft_schedule_add_recv(schedule, line_at(answers, 0), 0, 1);
}

static int make_plan(struct weft__roll *roll, struct weft_plan **plan)
{
    struct weft_schedule *schedule = NULL;
    int ranks = roll->rank == 0 ? roll->size : 1;
    int status = weft_schedule_create(&schedule, roll->rank, roll->size);

    if (status != WEFT_OK)
        return status;
    weft_schedule_set_name(schedule, "roll");
    weft_slot_t lines = add_slot(schedule, "lines", ranks);
    weft_slot_t answers = add_slot(schedule, "answers", ranks);
    roll->ready = weft_schedule_add_event(schedule, WEFT_CHANNEL_NONE);
    if (roll->rank == 0)
        add_first(roll, schedule, lines, answers);
    else
        add_other(roll, schedule, lines, answers);
    status = weft_schedule_commit(schedule, plan);
    weft_schedule_destroy(schedule);
    return status;
}

/* ---- its life ---- */

static int make(struct weft__roll *roll)
{
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    size_t ranks = roll->rank == 0 ? (size_t)roll->size : 1;
    int status;

    roll->lines = weft__calloc(ranks, sizeof *roll->lines);
    roll->answers = weft__calloc(ranks, sizeof *roll->answers);
    if (!roll->lines || !roll->answers)
        return weft__error_memory("a meeting of ranks");
    roll->mine = roll->lines;
    roll->answer = roll->answers;
    status = make_plan(roll, &plan);
    if (status != WEFT_OK)
        return status;
    weft_run_config_init(&config);
    config.object = roll->object;
    status = weft_run_create(&roll->run, roll->context, plan, &config);
    weft_plan_destroy(plan);
    if (status == WEFT_OK)
        status = weft_run_bind(roll->run, 0, roll->lines, ranks * sizeof *roll->lines, WEFT_U8);
    if (status == WEFT_OK)
        status = weft_run_bind(roll->run, 1, roll->answers, ranks * sizeof *roll->answers, WEFT_U8);
    return status;
}

int weft__roll_open(struct weft__roll *roll, struct weft_context *context,
                    struct weft_object *object, const char *who)
{
    int status = WEFT_OK;

    *roll = (struct weft__roll){.context = context,
                                .object = object,
                                .own = !object,
                                .rank = context->engine.transport->rank,
                                .size = context->engine.transport->size,
                                .who = who};
    if (roll->own)
        status = weft_object_create(&roll->object, context, NULL);
    if (status != WEFT_OK)
        return status;
    status = make(roll);
    if (status != WEFT_OK) {
        weft__roll_fail(roll, status);
        weft__roll_close(roll);
    }
    return status;
}

void weft__roll_fail(struct weft__roll *roll, int status)
{
    struct weft__error_saved saved;

    weft__error_save(&saved);
    weft_object_fail(roll->object, status, weft_error_text());
    weft__error_restore(&saved);
}

void weft__roll_close(struct weft__roll *roll)
{
    struct weft__error_saved saved;

    weft__error_save(&saved);
    weft_run_destroy(roll->run);
    if (roll->own)
        weft_object_destroy(roll->object);
    weft__free(roll->lines);
    weft__free(roll->answers);
    weft__error_restore(&saved);
    *roll = (struct weft__roll){0};
}

/* ---- calls ---- */

int weft__roll_begin(struct weft__roll *roll)
{
    int status = weft_run_start(roll->run);

    roll->begun = status == WEFT_OK;
    return status;
}

int weft__roll_failed(struct weft__roll *roll)
{
    int status = weft_run_test(roll->run);

    return status < 0 ? weft__error(status, "%s: %s", roll->who, weft_run_error(roll->run))
                      : WEFT_OK;
}

/* What has been answered; rank 0 has answered itself. */
static int read_answer(const struct weft__roll *roll)
{
    const struct weft__line_of_roll *answer = roll->answer;

    return answer->status < 0
               ? weft__error(answer->status, "%.*s", (int)sizeof answer->data, answer->data)
               : WEFT_OK;
}

int weft__roll_end(struct weft__roll *roll, void (*judge)(struct weft__roll *roll, void *user),
                   void *user)
{
    int status = weft_run_fire(roll->run, roll->ready);

    if (status >= 0 && roll->rank == 0) {
        status = weft_run_wait_node(roll->run, roll->heard, WEFT_NEVER);
        if (status == WEFT_OK) {
            judge(roll, user);
            status = weft_run_fire(roll->run, roll->judged);
        }
    }
    if (status >= 0)
        status = weft_run_wait(roll->run, WEFT_NEVER);
    roll->begun = 0;
    if (status < 0)
        return weft__error(status, "%s: %s", roll->who, weft_error_text());
    return read_answer(roll);
}

int weft__roll_call(struct weft__roll *roll, void (*judge)(struct weft__roll *roll, void *user),
                    void *user)
{
    int status = weft__roll_begin(roll);

    return status == WEFT_OK ? weft__roll_end(roll, judge, user) : status;
}

void weft__line_fail(struct weft__line_of_roll *line, int status)
{
    line->status = status;
    snprintf(line->data, sizeof line->data, "%s", weft_error_text());
}

void weft__roll_judge(struct weft__roll *roll, void *user)
{
    int failed = -1;

    (void)user;
    for (int r = 0; r < roll->size && failed < 0; r++)
        if (roll->lines[r].status < 0)
            failed = r;
    for (int r = 0; r < roll->size; r++) {
        struct weft__line_of_roll *answer = &roll->answers[r];

        answer->status = failed < 0 ? WEFT_OK : roll->lines[failed].status;
        answer->data[0] = '\0';
        if (failed == r)
            snprintf(answer->data, sizeof answer->data, "%s", roll->lines[failed].data);
        else if (failed >= 0)
            snprintf(answer->data, sizeof answer->data, "rank %d has failed: %.3900s", failed,
                     roll->lines[failed].data);
    }
}
