/* SPDX-License-Identifier: BSD-3-Clause */
/* weft_local_run: a function on every rank of a local group, each in a thread of its own. */
#include "runtime/alloc.h"
#include "runtime/context.h"
#include "runtime/error.h"
#include <stdio.h>
#include <string.h>

struct rank {
    pthread_t thread;
    struct weft_context *context;
    weft_rank_fn fn;
    void *user;
    int status;
    char text[512];
};

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    rank->status = rank->fn(rank->context, rank->user);
    if (rank->status < 0)
        snprintf(rank->text, sizeof(rank->text), "%s", weft_error_text());
    return NULL;
}

/* A rank that returns early keeps its context until all have returned: its peers may still use it. */
static int run_all(struct rank *ranks, int size)
{
    int started = 0;
    int error = 0;
    for (; started < size && error == 0; started++)
        error = pthread_create(&ranks[started].thread, NULL, run_rank, &ranks[started]);
    if (error != 0) {
        started--;
        /* Those that run may wait for the ranks that could not be started: end their waits. */
        for (int r = 0; r < size; r++)
            weft__context_abort(ranks[r].context);
    }
    for (int r = 0; r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    if (error != 0)
        return weft__error(WEFT_ERR_SYSTEM,
                           "weft_local_run: thread %d of %d could not be started: %s", started,
                           size, strerror(error));
    for (int r = 0; r < size; r++)
        if (ranks[r].status != WEFT_OK)
            return ranks[r].status < 0
                       ? weft__error(ranks[r].status, "rank %d: %s", r, ranks[r].text)
                       : ranks[r].status;
    return WEFT_OK;
}

int weft_local_run(int size, const struct weft_context_config *config, weft_rank_fn fn, void *user)
{
    if (fn == NULL)
        return WEFT__INVALID("weft_local_run: argument `fn` is NULL");
    struct weft_local *local = NULL;
    int status = weft_local_create(&local, size, NULL);
    if (status != WEFT_OK)
        return status;
    struct rank *ranks = weft__calloc((size_t)size, sizeof(*ranks));
    if (ranks == NULL)
        status = weft__error_memory("weft_local_run");
    for (int r = 0; status == WEFT_OK && r < size; r++) {
        ranks[r].fn = fn;
        ranks[r].user = user;
        status = weft_context_create_local(&ranks[r].context, local, r, config);
    }
    if (status == WEFT_OK)
        status = run_all(ranks, size);
    for (int r = 0; ranks != NULL && r < size; r++)
        weft_context_destroy(ranks[r].context);
    weft__free(ranks);
    weft_local_destroy(local);
    return status;
}
