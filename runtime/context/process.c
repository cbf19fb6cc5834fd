/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contexts of this process, for a thread that drives all of them.
 *
 * The list is the one thing that contexts share. It is locked while somebody walks it, but not
 * while a context is driven: a context that is visited stays in the list, and who destroys it waits
 * until its visitors have gone on.
 */
#include "runtime/base/error.h"
#include "runtime/context/context.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t left; /* the last visitor of a context that is to be destroyed */
    struct weft_context *first;
} process = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL};

void weft__process_add(struct weft_context *context)
{
    pthread_mutex_lock(&process.lock);
    context->process_next = process.first;
    if (process.first)
        process.first->process_previous = context;
    process.first = context;
    pthread_mutex_unlock(&process.lock);
}

void weft__process_remove(struct weft_context *context)
{
    pthread_mutex_lock(&process.lock);
    context->leaving = 1;
    while (context->visitors > 0)
        pthread_cond_wait(&process.left, &process.lock);
    if (context->process_previous)
        context->process_previous->process_next = context->process_next;
    else
        process.first = context->process_next;
    if (context->process_next)
        context->process_next->process_previous = context->process_previous;
    pthread_mutex_unlock(&process.lock);
}

/* The first from here on that may be driven. Virtual ranks are driven by their simulation. */
static struct weft_context *visit(struct weft_context *context)
{
    while (context && (context->leaving || context->engine.transport->ops->block))
        context = context->process_next;
    if (context)
        context->visitors++;
    return context;
}

int weft_process_progress(void)
{
    int status = WEFT_OK;
    pthread_mutex_lock(&process.lock);
    struct weft_context *context = visit(process.first);
    while (context) {
        pthread_mutex_unlock(&process.lock);
        if (weft__progress(context, 1) == WEFT_IN_PROGRESS)
            status = WEFT_IN_PROGRESS;
        pthread_mutex_lock(&process.lock);
        struct weft_context *next = visit(context->process_next);
        if (--context->visitors == 0 && context->leaving)
            pthread_cond_broadcast(&process.left);
        context = next;
    }
    pthread_mutex_unlock(&process.lock);
    return status;
}
