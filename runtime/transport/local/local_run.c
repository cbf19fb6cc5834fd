/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft_local_run: a function on every rank of a local group, each in a thread of its own.
 *
 * A rank that returns keeps its context until all have returned: its peers may still need it. If it
 * returns an error its peers would wait for it in vain, so the runs of all ranks are failed. If it
 * returns otherwise, the objects that it has not left fail; its peers are told that it has, and, if
 * it has no helper, that nothing more will come from it.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/topology.h"
#include "runtime/context/context.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>

struct rank {
    struct group *group;
    pthread_t thread;
    struct weft_context *context;
    weft_rank_fn fn;
    void *user;
    int status;
    int turn; /* of those that failed, from 1 */
    char text[512];
};

struct group {
    struct rank *ranks;
    int size;
    atomic_int failures; /* so far */
};

static void abort_all(const struct group *group, const char *text)
{
    for (int r = 0; r < group->size; r++)
        weft__context_abort(group->ranks[r].context, text);
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    struct group *group = rank->group;
    weft__topology_place((int)(rank - group->ranks), group->size);
    rank->status = rank->fn(rank->context, rank->user);
    if (rank->status < 0) {
        const char *text = weft_error_text();
        snprintf(rank->text, sizeof rank->text, "%s",
                 text[0] ? text : weft_status_text(rank->status));
        rank->turn = atomic_fetch_add(&group->failures, 1) + 1;
        if (rank->turn == 1) {
            char why[WEFT__NEWS_BYTES + 64];
            snprintf(why, sizeof why, "rank %d has failed: %.*s", (int)(rank - group->ranks),
                     WEFT__NEWS_BYTES, rank->text);
            abort_all(group, why);
        }
    } else {
        weft__object_abandon(rank->context);
        weft__context_leave(rank->context);
    }
    return NULL;
}

/* Whose failure began it: of those that say more than that another rank has failed the first; if
 * all say that, the first of all. NULL: no rank has failed. */
static const struct rank *culprit(const struct group *group)
{
    const struct rank *best = NULL;
    for (int r = 0; r < group->size; r++) {
        const struct rank *rank = &group->ranks[r];
        if (rank->turn == 0)
            continue;
        int better =
            !best ? 1 : weft__error_elsewhere(best->status) - weft__error_elsewhere(rank->status);
        if (better > 0 || (better == 0 && rank->turn < best->turn))
            best = rank;
    }
    return best;
}

/* Those that have been left go on until all ranks have: where no helper does it, the ranks whose
 * functions have returned are driven here. */
static void end_objects(const struct group *group)
{
    int open = 1;
    for (int r = 0; r < group->size; r++)
        weft__object_abandon(group->ranks[r].context);
    while (open) {
        open = 0;
        for (int r = 0; r < group->size; r++) {
            struct weft_context *context = group->ranks[r].context;
            if (context->has_helper || weft__object_all_over(context))
                continue;
            open = 1;
            weft_context_progress(context);
        }
        if (open)
            sched_yield();
    }
}

static int run_all(const char *who, struct group *group)
{
    struct rank *ranks = group->ranks;
    int size = group->size;
    int started = 0;
    int error = 0;
    for (; started < size && error == 0; started++)
        error = pthread_create(&ranks[started].thread, NULL, run_rank, &ranks[started]);
    if (error != 0) {
        started--;
        /* Those that run may wait for the ranks that could not be started. */
        abort_all(group, "not all ranks could be started");
    }
    for (int r = 0; r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    end_objects(group);
    if (error != 0)
        return weft__error(WEFT_ERR_SYSTEM, "%s: thread %d of %d could not be started: %s", who,
                           started, size, strerror(error));
    const struct rank *failed = culprit(group);
    if (failed)
        return weft__error(failed->status, "rank %d: %s", (int)(failed - ranks), failed->text);
    for (int r = 0; r < size; r++)
        if (ranks[r].status != WEFT_OK)
            return ranks[r].status;
    return WEFT_OK;
}

int weft_local_run(int size, const struct weft_context_config *config, weft_rank_fn fn, void *user)
{
    if (!fn)
        return WEFT__INVALID("%s: argument `fn` is NULL", __func__);
    if (size < 1)
        return WEFT__INVALID("%s: argument `size` is %d, expected at least 1", __func__, size);
    struct weft_context_config settings;
    struct weft_local *local = NULL;
    int status = weft__context_config_read(__func__, "config", config, &settings);
    if (status == WEFT_OK)
        status = weft_local_create(&local, size, NULL);
    if (status != WEFT_OK)
        return status;
    struct rank *ranks = weft__calloc((size_t)size, sizeof *ranks);
    struct group group = {.ranks = ranks, .size = size};
    if (!ranks)
        status = weft__error_memory(__func__);
    for (int r = 0; status == WEFT_OK && r < size; r++) {
        ranks[r].group = &group;
        ranks[r].fn = fn;
        ranks[r].user = user;
        status = weft_context_create_local(&ranks[r].context, local, r, &settings);
    }
    if (status == WEFT_OK)
        status = run_all(__func__, &group);
    for (int r = 0; ranks && r < size; r++)
        weft_context_destroy(ranks[r].context);
    weft__free(ranks);
    weft_local_destroy(local);
    return status;
}
