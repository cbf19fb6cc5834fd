/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for a join of a run while the rest of it goes on.
 *
 * Nothing of it is in the way of runs that nobody watches: a watch sets a flag in the word of its
 * join, as retirement does, so that the join is found among those nodes that are rare anyway. Until
 * the version has ended the run is then no plain one. The list and the words belong to whoever
 * drives. So a join that has ended when a watch is added is seen there, and one that has not will
 * find the flag: none can end in between.
 */
#include "runtime/engine/engine.h"
#include "runtime/engine/gate.h"
#include <stdio.h>
#include <string.h>

static void tell(struct weft__watch *watch, int status, const char *text)
{
    snprintf(watch->text, sizeof watch->text, "%s", text);
    /* The last touch: the thread may go on, and its stack with it. Sequentially consistent, since
     * whoever tells looks for sleepers next, and they look at it after they have registered. */
    atomic_store_explicit(&watch->status, status, memory_order_seq_cst);
}

/* Whether a join of the active version has been through the ready set: it has ended, or been
 * retired. One with predecessors to come, or in the set, has not. */
static int is_through(const struct weft_run *run, uint32_t node)
{
    uint32_t word = run->waits[node];
    if (run->ready[node / 64] >> (node % 64) & 1)
        return 0;
    return (word & (WEFT__RETIRE | WEFT__STARTED)) || (word & WEFT__COUNT) == 0;
}

int weft__join_outcome(const struct weft_run *run, uint32_t node)
{
    return run->waits[node] & WEFT__RETIRE ? WEFT_RETIRED : WEFT_OK;
}

void weft__watch_add(struct weft_run *run, struct weft__watch *watch)
{
    int active = atomic_load_explicit(&run->state, memory_order_relaxed) == WEFT__RUN_ACTIVE;
    atomic_init(&watch->status, WEFT_IN_PROGRESS);
    watch->text[0] = '\0';
    if (active && is_through(run, watch->node)) {
        tell(watch, weft__join_outcome(run, watch->node), "");
        return;
    }
    watch->next = run->watches;
    run->watches = watch;
    if (active)
        weft__watches_start(run);
}

void weft__watch_remove(struct weft_run *run, const struct weft__watch *watch)
{
    struct weft__watch **link = &run->watches;
    while (*link && *link != watch)
        link = &(*link)->next;
    if (*link)
        *link = watch->next;
}

void weft__watches_start(struct weft_run *run)
{
    run->plain = 0;
    for (const struct weft__watch *watch = run->watches; watch; watch = watch->next)
        if (!watch->hold)
            run->waits[watch->node] |= WEFT__WATCHED;
}

void weft__watches_tell(struct weft__engine *engine, struct weft_run *run, uint32_t node,
                        int status)
{
    struct weft__watch **link = &run->watches;
    while (*link) {
        struct weft__watch *watch = *link;
        if (watch->node != node) {
            link = &watch->next;
            continue;
        }
        *link = watch->next;
        tell(watch, status, "");
    }
    engine->host->wake_waiters(engine->context);
}

void weft__watches_fail(struct weft_run *run, int status)
{
    struct weft__watch **link = &run->watches;
    while (*link) {
        struct weft__watch *watch = *link;
        if (watch->hold) {
            weft__hold_end(watch->hold, run);
            link = &watch->next;
            continue;
        }
        *link = watch->next;
        tell(watch, status, run->error ? run->error : weft_status_text(status));
    }
}
