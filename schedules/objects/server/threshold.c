/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DSSP's server and its controller. A worker that is more than s_L ahead could stop now, or after
 * some more steps; it stops where the slowest worker's next push is near:
 *
 *     worker     | . . 0 . . . 1 . . . 2 . . . 3      pushes, if it goes on
 *     slowest    | . . . . . . . . . . . s . . .      a push, as predicted
 *                      '-----------------'            stopped at 0: waits long
 *                                      '-'            stopped at 2: waits least
 *
 * The worker gets 2 credits then, and does not ask again until they are used up. Who has used all
 * asks again, so credits alone would let a worker get away for good: those that would take it
 * further than s_U are not given.
 */
#include <weft/memory.h>
#include <weft/status.h>

#include "schedules/objects/server/threshold.h"

int weft__threshold_init(struct weft__threshold *threshold, size_t workers, uint64_t least,
                         uint64_t most)
{
    struct weft__threshold_worker *list = weft_memory_alloc(workers ? workers : 1, sizeof *list);
    if (!list)
        return weft_error_set(WEFT_ERR_MEMORY, "DSSP: no memory for %zu workers", workers);
    *threshold = (struct weft__threshold){least, most, list, workers};
    return WEFT_OK;
}

void weft__threshold_free(struct weft__threshold *threshold)
{
    weft_memory_free(threshold->workers);
    threshold->workers = NULL;
    threshold->worker_count = 0;
}

void weft__threshold_pushed(struct weft__threshold *threshold, size_t worker, uint64_t now_ns)
{
    struct weft__threshold_worker *w = &threshold->workers[worker];
    w->interval_ns = w->pushed && now_ns > w->last_ns ? now_ns - w->last_ns : 0;
    w->last_ns = now_ns;
    w->pushed = 1;
}

/* From a moment that is `late` after a push of the slowest until its next one. */
static uint64_t until_next(uint64_t late, uint64_t interval)
{
    uint64_t rest = late % interval;
    return rest ? interval - rest : 0;
}

uint64_t weft__threshold_extra(const struct weft__threshold *threshold, size_t worker,
                               size_t slowest)
{
    const struct weft__threshold_worker *fast = &threshold->workers[worker];
    const struct weft__threshold_worker *slow = &threshold->workers[slowest];
    uint64_t range = threshold->most - threshold->least, best = 0;
    if (!fast->interval_ns || !slow->interval_ns || worker == slowest)
        return 0;
    if (range > WEFT__THRESHOLD_FORESEEN)
        range = WEFT__THRESHOLD_FORESEEN;
    /* From the worker's r-th push from now until the first of the slowest, predicted ones, that is
     * not before it. */
    uint64_t late = fast->last_ns > slow->last_ns ? fast->last_ns - slow->last_ns : 0;
    uint64_t early = slow->last_ns > fast->last_ns ? slow->last_ns - fast->last_ns : 0;
    uint64_t wait = late ? until_next(late, slow->interval_ns) : slow->interval_ns + early;
    uint64_t least = wait;
    for (uint64_t r = 1; r <= range; r++) {
        wait = wait >= fast->interval_ns ? wait - fast->interval_ns
                                         : until_next(fast->interval_ns - wait, slow->interval_ns);
        if (wait < least) {
            least = wait;
            best = r;
        }
    }
    return best;
}

int weft__threshold_may_go(struct weft__threshold *threshold, size_t worker, uint64_t ahead,
                           size_t slowest)
{
    struct weft__threshold_worker *w = &threshold->workers[worker];
    if (ahead > threshold->most)
        return 0;
    if (w->credits) {
        w->credits--;
        return 1;
    }
    if (ahead <= threshold->least)
        return 1;
    uint64_t extra = weft__threshold_extra(threshold, worker, slowest);
    uint64_t room = threshold->most - ahead + 1; /* the step that begins now is one of them */
    if (extra > room)
        extra = room;
    if (!extra)
        return 0;
    w->credits = extra - 1;
    return 1;
}
