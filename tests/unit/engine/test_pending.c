/* SPDX-License-Identifier: BSD-3-Clause */
/* Many calls pend at once, and several threads complete them, the latest ones first. Calls that
 * more than one would end do so once. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "tests/support/compute.h"

enum { CALLS = 100, THREADS = 4, ROUNDS = 300 };

struct crowd {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct weft_call *calls[CALLS];
    size_t count;
    int over;
};

static int begin(struct weft_call *call)
{
    struct crowd *crowd = call->user;
    pthread_mutex_lock(&crowd->lock);
    crowd->calls[crowd->count++] = call;
    pthread_cond_signal(&crowd->changed);
    pthread_mutex_unlock(&crowd->lock);
    return WEFT_IN_PROGRESS;
}

static void *complete(void *argument)
{
    struct crowd *crowd = argument;
    pthread_mutex_lock(&crowd->lock);
    while (!crowd->over) {
        if (!crowd->count) {
            pthread_cond_wait(&crowd->changed, &crowd->lock);
            continue;
        }
        struct weft_call *call = crowd->calls[--crowd->count];
        pthread_mutex_unlock(&crowd->lock);
        weft_call_complete(call, WEFT_OK);
        pthread_mutex_lock(&crowd->lock);
    }
    pthread_mutex_unlock(&crowd->lock);
    return NULL;
}

/* Who waits sleeps at once: a completion that is not seen would leave it asleep. */
static void make_context(struct weft_local **local, struct weft_context **context,
                         weft_progress_t progress)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.spin_ns = config.yield_ns = config.helper_yield_ns = WEFT_NS_NONE;
    config.progress = progress;
    OK(weft_local_create(local, 1, NULL));
    OK(weft_context_create_local(context, *local, 0, &config));
}

static void complete_all(weft_progress_t progress, weft_compute_fn poll)
{
    struct crowd crowd = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct weft_op_config config;
    struct weft_op *op = NULL;
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    pthread_t threads[THREADS];
    make_context(&local, &context, progress);
    weft_op_config_init(&config);
    config.name = "one-of-many";
    config.flags = WEFT_OP_MAY_PEND;
    config.compute = begin;
    config.poll = poll;
    config.user = &crowd;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    for (int i = 0; i < CALLS; i++)
        add_compute(s, op, NULL, 0, 0, 0);
    struct weft_run *run = make_run(context, commit(s), NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, complete, &crowd) == 0);
    for (int i = 0; i < ROUNDS; i++)
        OK(weft_run_execute(run));
    pthread_mutex_lock(&crowd.lock);
    crowd.over = 1;
    pthread_cond_broadcast(&crowd.changed);
    pthread_mutex_unlock(&crowd.lock);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    weft_run_destroy(run);
    weft_op_destroy(op);
    weft_context_destroy(context);
    weft_local_destroy(local);
}

Test(pending, many_are_completed_by_several_threads)
{
    complete_all(WEFT_PROGRESS_CALLER, NULL);
}

Test(pending, many_are_completed_under_a_helper)
{
    complete_all(WEFT_PROGRESS_HELPER, NULL);
}

/* ---- ended by more than one ---- */

/* What threads would have completed has been, perhaps: then they do not get it. */
static int ends_some(struct weft_call *call)
{
    struct crowd *crowd = call->user;
    size_t at = 0;
    pthread_mutex_lock(&crowd->lock);
    while (at < crowd->count && crowd->calls[at] != call)
        at++;
    if (at < crowd->count && call->node % 2)
        crowd->calls[at] = crowd->calls[--crowd->count];
    else
        at = CALLS;
    pthread_mutex_unlock(&crowd->lock);
    return at < CALLS ? WEFT_OK : WEFT_IN_PROGRESS;
}

Test(pending, calls_are_asked_while_others_are_completed)
{
    complete_all(WEFT_PROGRESS_CALLER, ends_some);
    complete_all(WEFT_PROGRESS_HELPER, ends_some);
}

static int ends_itself(struct weft_call *call)
{
    int *returns = call->user;
    weft_call_complete(call, WEFT_OK);
    weft_call_complete(call, WEFT_ERR_COMPUTE); /* too late */
    return *returns;
}

static void end_themselves(unsigned flags, int returns)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    make_context(&local, &context, WEFT_PROGRESS_CALLER);
    weft_op_config_init(&config);
    config.name = "ends-itself";
    config.flags = flags;
    config.compute = ends_itself;
    config.user = &returns;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 1);
    for (int i = 0; i < 5; i++)
        add_compute(s, op, NULL, 0, 0, 0);
    struct weft_run *run = make_run(context, commit(s), NULL);
    for (int i = 0; i < 20; i++)
        OK(weft_run_execute(run));
    weft_run_destroy(run);
    weft_op_destroy(op);
    weft_context_destroy(context);
    weft_local_destroy(local);
}

Test(pending, a_call_that_is_completed_before_it_returns_ends_once)
{
    end_themselves(WEFT_OP_MAY_PEND, WEFT_IN_PROGRESS);
    end_themselves(WEFT_OP_MAY_PEND, WEFT_OK);
    end_themselves(0, WEFT_OK);
}
