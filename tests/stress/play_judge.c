/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a play should have been. Every call has returned in time. Who has got an error is told which
 * rank is the cause, and why; nobody has got one for whom nothing was disturbed. What succeeded is
 * right.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "play.h"

/* Who tells the others does so before its own call has returned. */
enum { TELLING_NS = 1000000 };

/* ---- texts ---- */

/* Whether a text says "rank N", of any N if `rank` is negative. */
static int names(const char *text, int rank)
{
    char word[32];
    snprintf(word, sizeof word, "rank %d", rank);
    for (const char *at = text; (at = strstr(at, rank < 0 ? "rank " : word)); at++) {
        int next = isdigit((unsigned char)at[strlen(rank < 0 ? "rank " : word)]) != 0;
        if (next == (rank < 0))
            return 1;
    }
    return 0;
}

/* Who is missing is told as a list: "have not arrived: 1 (at step 0), 3, 5 (at step 2)". */
static int lists(const char *text)
{
    return strstr(text, "have not arrived: ") != NULL;
}

/* ---- causes ---- */

static int is_late(int status, const char *text)
{
    return status == WEFT_ERR_TIMEOUT || strstr(text, "deadline");
}

static int is_expired(const char *text)
{
    return strstr(text, "nothing has happened for") != NULL;
}

/* Whether an allocation has failed: it may have been that of a text. */
static int is_short(const struct play *play)
{
    for (int e = 0; e < play->event_count; e++)
        if (play->events[e].deed == PLAY_MEMORY && play->events[e].done)
            return 1;
    return 0;
}

/* Whether one of the ranks that were short of memory is named. */
static int names_victim(const struct play_object *object, const struct play_event *event,
                        const char *text)
{
    for (int r = 0; r < object->ranks; r++) {
        const struct play *play = object->play;
        for (int o = 0; o < play->object_count; o++)
            if (play->objects[o].reports[r].status == WEFT_ERR_MEMORY && names(text, r))
                return 1;
    }
    return names(text, event->victim);
}

/* Whether a deed explains the error of a rank. */
static int explains(const struct play_object *object, const struct play_event *event, int rank)
{
    const struct play_report *report = &object->reports[rank];
    const char *text = report->text;
    char words[64];
    play_words(object->play, event->rank, words, sizeof words);
    switch (event->deed) {
    case PLAY_FAIL:
        if (event->object != object->number)
            return 0;
        /* fall through */
    case PLAY_ABORT:
        if (rank == event->rank)
            return report->status == WEFT_ERR_COMPUTE &&
                   (strstr(text, words) || is_short(object->play));
        return report->status == WEFT_ERR_PEER && names(text, event->rank) &&
               (strstr(text, words) || is_short(object->play));
    case PLAY_ERROR: /* its object is the first to go */
        if (object->kind->needs_all && names(text, event->rank) &&
            (strstr(text, "has left") || strstr(text, "has dropped")))
            return 1;
        /* fall through */
    case PLAY_RUN:
        return names(text, event->rank) && (strstr(text, words) || is_short(object->play));
    case PLAY_LEAVE:
        return event->object == object->number && object->kind->needs_all &&
               (names(text, event->rank) || (names(text, -1) && strstr(text, "has left")));
    case PLAY_ABANDON:
    case PLAY_STOP:
        return rank == event->rank || names(text, event->rank) || lists(text) ||
               ((is_late(report->status, text) || is_expired(text)) && names(text, -1));
    case PLAY_PAUSE:
        return object->deadline_ns && is_late(report->status, text) &&
               (names(text, -1) || lists(text));
    case PLAY_MEMORY:
        if (rank == event->victim && (is_late(report->status, text) || !text[0]))
            return 1; /* what could not be allocated is the report, or the text itself */
        return strstr(text, "memory") &&
               (report->status == WEFT_ERR_MEMORY || names_victim(object, event, text) ||
                object->play->status == WEFT_ERR_MEMORY); /* the machine itself */
    case PLAY_NOTHING:
    case PLAY_DEED_KINDS:
    default:
        return 0;
    }
}

/* Whether it is that a rank, which had left, was not waited for any longer. */
static int is_gone(const struct play_object *object, const char *text)
{
    return object->leave_ns < PLAY_LEAVE_NS && names(text, -1) &&
           (is_expired(text) || strstr(text, "is being destroyed"));
}

/* Whether another rank, which has returned its error or left because of it, has told of it. */
static int is_told(const struct play_object *object, int rank)
{
    const struct play *play = object->play;
    for (int r = 0;
         (play->tells || object->kind->needs_all || object->kind->gives_up) && r < play->ranks; r++)
        for (int o = 0; r != rank && o < play->object_count; o++)
            if (play->objects[o].reports[r].status != WEFT_OK &&
                play->objects[o].reports[r].at_ns <= object->reports[rank].at_ns + TELLING_NS &&
                names(object->reports[rank].text, r))
                return 1;
    return 0;
}

static int wrong(char *text, const struct play_object *object, int rank, const char *what)
{
    const struct play_report *report = &object->reports[rank];
    snprintf(text, PLAY_TEXT, "%s (object %d) of rank %d, step %d: %s: %s: %.400s",
             object->kind->name, object->number, rank, report->step, what,
             weft_status_name(report->status), report->text);
    return 0;
}

static int judge_rank(const struct play_object *object, int rank, char *text)
{
    const struct play *play = object->play;
    const struct play_report *report = &object->reports[rank];
    for (int e = 0; e < play->event_count; e++)
        if (play->events[e].deed == PLAY_STOP && play->events[e].rank == rank)
            return 1; /* of the dead nothing is asked */
    if (!report->returned)
        return wrong(text, object, rank, "it has not ended");
    if (report->overdue) {
        char what[96];
        snprintf(what, sizeof what, "a call took %llu ns, at most %llu may pass",
                 (unsigned long long)report->took_ns, (unsigned long long)report->may_take_ns);
        return wrong(text, object, rank, what);
    }
    if (report->status == WEFT_OK || is_told(object, rank) || is_gone(object, report->text))
        return 1;
    int deeds = 0;
    for (int e = 0; e < play->event_count; e++) {
        deeds += play->events[e].done;
        if (play->events[e].done && explains(object, &play->events[e], rank))
            return 1;
    }
    return wrong(text, object, rank, deeds ? "the cause is not named" : "failed without a cause");
}

/* ---- the run ---- */

static int judge_run(const struct play *play, char *text)
{
    int may_fail = play->tells;
    if (play->back_ns) {
        snprintf(text, PLAY_TEXT, "time has gone back by %llu ns",
                 (unsigned long long)play->back_ns);
        return 0;
    }
    for (int e = 0; e < play->event_count; e++) {
        enum play_deed deed = play->events[e].deed;
        may_fail |=
            play->events[e].done && (deed == PLAY_ERROR || deed == PLAY_RUN ||
                                     (deed == PLAY_MEMORY && play->status == WEFT_ERR_MEMORY));
    }
    int endless = strstr(play->text, "nothing is left that could happen") ||
                  strstr(play->text, "the limit of");
    if (play->status == WEFT_OK || (may_fail && !endless))
        return 1;
    snprintf(text, PLAY_TEXT, "%s: %.600s", weft_status_name(play->status), play->text);
    return 0;
}

int play_judge(struct play *play, char text[PLAY_TEXT])
{
    if (!judge_run(play, text))
        return 0;
    for (int o = 0; o < play->object_count; o++) {
        struct play_object *object = &play->objects[o];
        char what[PLAY_TEXT];
        for (int r = 0; r < play->ranks; r++)
            if (!judge_rank(object, r, text))
                return 0;
        if (!object->kind->judge(object, what)) {
            snprintf(text, PLAY_TEXT, "%s (object %d): %.700s", object->kind->name, o, what);
            return 0;
        }
    }
    return 1;
}
