/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which executions there are. Only choices make a difference, and of a choice only which event
 * wins: so an execution runs until nothing more can happen, and then one choice is decided in
 * favour of an event that may have fired by now, or all of those are passed over because another
 * may still come first. Going through these alternatives depth first meets every combination of
 * winners that can happen (and some that cannot: where what was waited for never comes, the branch
 * is dropped).
 *
 * An event of the application in a choice with signals may fire at any time, or never: the
 * application may come late. Any other event of the application fires some time. So where nobody's
 * application comes nothing happens, which is right; but if one has, all ranks must come to their
 * ends.
 *
 * If there are too many, the first ones are taken, and besides: each application alone, all at
 * once, and others drawn at random.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"
#include "runtime/check/check.h"

#include <stdio.h>
#include <string.h>

enum { ALL_COME = -2, NOT_ONE = -1 };

/* Whether a choice has signals in it. */
static int is_mixed(const struct weft__check *check, size_t choice)
{
    for (uint32_t m = check->choice_first[choice]; m < check->choice_first[choice + 1]; m++)
        if (weft__check_node(check, check->members[m].node)->tag != WEFT_CHANNEL_NONE)
            return 1;
    return 0;
}

static int listens(const struct weft__execution *execution, uint32_t event, int *signalled)
{
    const struct weft__check *check = execution->check;
    const struct weft__snode *node = weft__check_node(check, event);
    size_t first, last;

    if (node->tag == WEFT_CHANNEL_NONE)
        return 0;
    weft__check_listeners(check, check->rank_of[event], node->tag, &first, &last);
    *signalled = execution->signalled[first];
    return 1;
}

/* The members of a choice that may have fired: numbers in check->members. */
struct options {
    uint32_t *at;
    size_t count;
    int others; /* there are events that may fire later */
};

static void find_options(struct weft__execution *execution, size_t choice, int passed_over,
                         struct options *options)
{
    const struct weft__check *check = execution->check;

    options->at = execution->options;
    options->count = 0;
    options->others = 0;
    for (uint32_t m = check->choice_first[choice]; m < check->choice_first[choice + 1]; m++) {
        uint32_t event = check->members[m].node;
        int signalled = 1;

        if (execution->state[event] >= WEFT__NODE_ENDED)
            continue;
        if (listens(execution, event, &signalled) && !signalled) {
            options->others = 1;
            continue;
        }
        if (execution->declined[m] == passed_over)
            options->at[options->count++] = m;
    }
}

/* Which of the alternatives is taken, and noted, so that the next execution can take another. */
static int take(struct weft__decisions *d, uint32_t of, uint32_t *taken)
{
    size_t room = d->capacity, same = d->capacity;

    *taken = 0;
    if (of == 1)
        return 0;
    if (d->count < d->given) {
        *taken = d->taken[d->count++];
        return 0;
    }
    if (weft__grow((void **)&d->taken, &room, d->count + 1, sizeof *d->taken) ||
        weft__grow((void **)&d->of, &same, d->count + 1, sizeof *d->of))
        return -1;
    d->capacity = room;
    d->taken[d->count] = 0;
    d->of[d->count++] = of;
    return 0;
}

/* An event of the application in a choice with signals: does it come by itself? */
static int comes(struct weft__decisions *d, const struct weft__check *check, uint32_t event)
{
    if (d->only == ALL_COME)
        return 1;
    if (d->only >= 0)
        return check->rank_of[event] == d->only;
    return (weft__random(&d->random) & 3) == 0;
}

/* By chance: applications come or do not; signals fire, rarely later than they could. */
static uint32_t draw(struct weft__execution *execution, const struct options *options, int mixed)
{
    struct weft__decisions *d = &execution->decisions;
    const struct weft__check *check = execution->check;
    uint32_t first = (uint32_t)(weft__random(&d->random) % options->count);

    for (uint32_t i = 0; i < options->count; i++) {
        uint32_t pick = (first + i) % (uint32_t)options->count;
        uint32_t event = check->members[options->at[pick]].node;

        if (mixed && weft__check_node(check, event)->tag == WEFT_CHANNEL_NONE
                ? comes(d, check, event)
                : !options->others || d->only >= 0 || (weft__random(&d->random) & 3) != 0)
            return pick;
    }
    return (uint32_t)options->count;
}

static int decide(struct weft__execution *execution, size_t choice, const struct options *options)
{
    struct weft__decisions *d = &execution->decisions;
    const struct weft__check *check = execution->check;
    int mixed = is_mixed(check, choice);
    uint32_t pick;

    if (d->random)
        pick = draw(execution, options, mixed);
    else if (take(d, (uint32_t)options->count + (options->others != 0), &pick))
        return -1;
    if (pick >= options->count) {
        for (size_t i = 0; i < options->count; i++)
            execution->declined[options->at[i]] = 1;
        return 1;
    }
    uint32_t event = check->members[options->at[pick]].node;

    if (mixed && weft__check_node(check, event)->tag == WEFT_CHANNEL_NONE)
        execution->started++;
    weft__execution_win(execution, choice, event);
    return 1;
}

/* All that may fire has been passed over. By chance: a signal that has come fires after all. In
 * order: such a branch is met elsewhere, so it is dropped. */
static int give_in(struct weft__execution *execution)
{
    const struct weft__check *check = execution->check;
    struct options options;
    int signalled;

    for (size_t c = 0; c < check->choice_count; c++) {
        if (execution->winner[c] != WEFT__CHECK_NONE)
            continue;
        find_options(execution, c, 1, &options);
        for (size_t i = 0; i < options.count; i++) {
            uint32_t event = check->members[options.at[i]].node;

            if (is_mixed(check, c) && !listens(execution, event, &signalled))
                continue;
            if (execution->decisions.random)
                weft__execution_win(execution, c, event);
            else
                execution->happened = 0;
            return execution->decisions.random != 0;
        }
    }
    return 0;
}

int weft__execution_decide(struct weft__execution *execution)
{
    const struct weft__check *check = execution->check;
    struct options options;

    for (size_t c = 0; c < check->choice_count; c++) {
        if (execution->winner[c] != WEFT__CHECK_NONE)
            continue;
        find_options(execution, c, 0, &options);
        if (options.count)
            return decide(execution, c, &options);
    }
    return give_in(execution);
}

/* ---- all of them ---- */

/* "if the applications of ranks 0, 3 come first", for the texts of faults. */
static void describe(struct weft__execution *execution)
{
    struct weft__check *check = execution->check;
    char *text = check->scenario;
    size_t used = 0, size = sizeof check->scenario;
    int listed = 0;

    text[0] = '\0';
    for (size_t c = 0; c < check->choice_count && used + 16 < size; c++) {
        uint32_t event = execution->winner[c];

        if (event == WEFT__CHECK_NONE || weft__check_node(check, event)->tag != WEFT_CHANNEL_NONE)
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%d",
                                 listed ? ", " : " (if events of the application fire on ranks ",
                                 check->rank_of[event]);
        listed++;
    }
    if (listed && used + 6 < size)
        snprintf(text + used, size - used, "%s)", listed < execution->started ? ", ..." : "");
}

/* Nobody has come, so nothing had to happen. */
static int is_idle(const struct weft__execution *execution)
{
    const struct weft__check *check = execution->check;

    if (execution->ended == check->nodes || execution->started)
        return 0;
    for (size_t c = 0; c < check->choice_count; c++)
        if (execution->winner[c] == WEFT__CHECK_NONE && is_mixed(check, c))
            return 1;
    return 0;
}

static int judge(struct weft__execution *execution)
{
    struct weft__check *check = execution->check;
    int status;

    if (!execution->happened || is_idle(execution))
        return 0;
    check->report->summary.executions++;
    describe(execution);
    status = execution->ended < check->nodes ? weft__check_stuck(execution)
                                             : weft__check_results(execution);
    check->scenario[0] = '\0';
    return status;
}

/* The next branch: the last decision that had another alternative takes it. 0: there is none. */
static int advance(struct weft__decisions *d)
{
    while (d->count > 0 && d->taken[d->count - 1] + 1 == d->of[d->count - 1])
        d->count--;
    if (!d->count)
        return 0;
    d->taken[d->count - 1]++;
    d->given = d->count;
    d->count = 0;
    return 1;
}

/* Faults that are reported while executing stand in the text as they are found. */
static int execute_one(struct weft__execution *execution)
{
    return weft__execute(execution) || judge(execution) ? -1 : 0;
}

static int is_full(const struct weft__check *check)
{
    return check->report->count >= check->report->most;
}

static int sample(struct weft__execution *execution, size_t most)
{
    struct weft__check *check = execution->check;
    struct weft__decisions *d = &execution->decisions;
    int status;

    d->random = check->config.seed | 1;
    d->only = ALL_COME;
    status = execute_one(execution);
    for (size_t i = 0; !status && i + 1 < most && !is_full(check); i++) {
        d->only = i < (size_t)check->size && i < most / 2 ? (int)i : NOT_ONE;
        status = execute_one(execution);
    }
    return status;
}

/* Nodes that all executions together may execute. */
#define MOST_WORK 20000000u

int weft__check_executions(struct weft__check *check)
{
    struct weft__execution execution;
    size_t most = check->config.executions, tries = 0;
    int status = weft__execution_create(&execution, check), more = 1;

    if (check->nodes && most > 16 && most > MOST_WORK / check->nodes)
        most = MOST_WORK / check->nodes > 16 ? MOST_WORK / check->nodes : 16;
    while (!status && more && tries < most && !is_full(check)) {
        tries++;
        status = execute_one(&execution);
        more = !status && advance(&execution.decisions);
    }
    if (!status && more && !is_full(check)) {
        check->report->summary.bounded = 1;
        status = sample(&execution, most);
    }
    weft__execution_destroy(&execution);
    return status;
}
