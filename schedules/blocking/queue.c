/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that nobody waits for yet.
 *
 * All calls of a context are steps of its sequence, of which one is under way at a time: what is
 * called meanwhile stands in a list, and each step is begun when the one before is over.
 *
 *     oldest                                          latest
 *       A ---------> B ---------> C ---------> D ---------> E
 *     over, its    over         its run is   `steps` = 3: C, D, E
 *     entry is out              under way
 *
 * `steps` says who begins: who adds one to none, or ends one that is not the last. So there is
 * never more than one, and no lock. A run that is started in a callback begins when that has
 * returned, so ends do not nest; steps that fail here are over at once, in a loop.
 *
 * The thread that is in a call adds, and takes the requests that are over out of the list, with the
 * entries that their runs are of. So calls find the list empty without a look at anything atomic.
 */
#include <stdio.h>
#include <string.h>

#include <weft/memory.h>
#include <weft/run.h>

#include "schedules/blocking/call.h"

/* So many requests that nobody has any more are kept for the calls to come. */
enum { SPARES = 64 };

struct weft_request {
    struct weft__blocking *blocking;    /* until it has ended */
    struct weft__blocking_entry *entry; /* NULL: a step that fails here */
    struct weft_request *next;
    /* Steps behind it that fail for want of memory, which there was not even for a request. */
    _Atomic uint32_t lost;
    uint32_t lost_over;
    _Atomic uint32_t holders; /* the list, and the user */
    _Atomic uint32_t ended;
    int status; /* WEFT_IN_PROGRESS: it has a run */
    char *text; /* of its failure; NULL: the status' */
};

/* ---- requests ---- */

static int has_ended(void *user)
{
    const struct weft_request *request = user;
    /* Pairs with the store in tell(). */
    return atomic_load_explicit(&request->ended, memory_order_seq_cst) != 0;
}

/* Whether nobody has it any more. */
static int leave(struct weft_request *request)
{
    return atomic_fetch_sub_explicit(&request->holders, 1, memory_order_acq_rel) == 1;
}

static void end(struct weft_request *request)
{
    weft_memory_free(request->text);
    weft_memory_free(request);
}

static char *copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = weft_memory_alloc(1, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static const char *text_of(const struct weft_request *request)
{
    return request->text ? request->text : weft_status_text(request->status);
}

static int outcome(const struct weft_request *request)
{
    return request->status < 0 ? weft_error_set_text(request->status, text_of(request)) : WEFT_OK;
}

/* The last touch of who ends it: its user may destroy it now, and who is in a call take it out. */
static void tell(struct weft_request *request)
{
    atomic_store_explicit(&request->ended, 1, memory_order_seq_cst);
}

/* ---- steps ---- */

static void fail(struct weft_request *request, int status, const char *text)
{
    weft_memory_free(request->text);
    request->text = copy_text(text);
    request->status = status;
}

/* WEFT_OK: its run is under way, and will tell. Else the step is over, with that status. */
static int begin(struct weft_request *request)
{
    struct weft__blocking *blocking = request->blocking;
    /* Who has set it has had the engine after that: callbacks see it. */
    int closing = (int)atomic_load_explicit(&blocking->closing, memory_order_relaxed);
    if (request->status == WEFT_IN_PROGRESS && !closing) {
        int status = weft_run_start(request->entry->run);
        if (status)
            fail(request, status, weft_error_text());
        return status;
    }
    if (request->status == WEFT_IN_PROGRESS)
        fail(request, WEFT_ERR_CANCELLED, "the context was destroyed before the call began");
    weft_sequence_fail(blocking->context, request->status, text_of(request));
    return request->status;
}

/* The step of a request is over: begins what follows. 0: something of that could not begin. */
static int go_on(struct weft_request *request)
{
    int well = 1;
    struct weft__blocking *blocking = request->blocking;
    /* Release: who adds a step to none sees this one over. Acquire pairs with that in add(): what
     * was added is seen. */
    while (atomic_fetch_sub_explicit(&blocking->steps, 1, memory_order_acq_rel) > 1) {
        if (request->lost_over < atomic_load_explicit(&request->lost, memory_order_relaxed)) {
            request->lost_over++;
            weft_sequence_fail(blocking->context, WEFT_ERR_MEMORY, NULL);
            continue;
        }
        struct weft_request *next = request->next;
        tell(request);
        request = next;
        if (begin(request) == WEFT_OK)
            return well;
        well = 0;
    }
    tell(request);
    return well;
}

/* By the thread that drives, which keeps the text of its own errors. */
static void ended(void *user, struct weft_run *run, int status)
{
    struct weft_request *request = user;
    char before[512];
    const char *text = weft_error_text();
    size_t length = strnlen(text, sizeof before - 1);
    memcpy(before, text, length);
    before[length] = '\0';
    request->status = status;
    if (status < 0)
        fail(request, status, weft_run_error(run));
    if (!go_on(request))
        weft_error_set_text(WEFT_OK, before);
}

/* Whether the step is to be begun by the caller: none was before it. */
static int add(struct weft__blocking *blocking)
{
    return atomic_fetch_add_explicit(&blocking->steps, 1, memory_order_acq_rel) == 0;
}

static int add_request(struct weft__blocking *blocking, struct weft_request *request)
{
    *(blocking->latest ? &blocking->latest->next : &blocking->oldest) = request;
    blocking->latest = request;
    if (!add(blocking))
        return WEFT_OK;
    int status = begin(request);
    if (status)
        go_on(request);
    return status;
}

/* ---- the thread that is in a call ---- */

static int at_once(void *user)
{
    (void)user;
    return 1;
}

int weft__queue_outside(const char *who, struct weft_context *context)
{
    return weft_context_wait(context, at_once, NULL, 0) == WEFT_ERR_STATE
               ? weft_error_set(WEFT_ERR_STATE, "%s: called by a callback of the context", who)
               : WEFT_OK;
}

struct weft_plan *weft__queue_plan(const struct weft__blocking *blocking,
                                   const struct weft__blocking_key *key)
{
    const struct weft_request *latest = blocking->latest;
    if (!latest || !latest->entry ||
        !weft__blocking_same(&blocking->cache, &latest->entry->key, key))
        return NULL;
    return (struct weft_plan *)(uintptr_t)weft_run_plan(latest->entry->run);
}

/* A request of what is there, or new; NULL: there is no memory. */
static struct weft_request *make(struct weft__blocking *blocking,
                                 struct weft__blocking_entry *entry, int status, uint32_t holders)
{
    struct weft_request *request = blocking->spare;
    if (request) {
        blocking->spare = request->next;
        blocking->spares--;
    } else {
        request = weft_memory_alloc(1, sizeof *request);
    }
    if (request)
        *request = (struct weft_request){
            .blocking = blocking, .entry = entry, .holders = holders, .status = status};
    return request;
}

/* The list has it no more: if its user has not either, another call may. */
static void drop(struct weft__blocking *blocking, struct weft_request *request)
{
    if (!leave(request))
        return;
    if (blocking->spares == SPARES) {
        end(request);
        return;
    }
    weft_memory_free(request->text);
    request->next = blocking->spare;
    blocking->spare = request;
    blocking->spares++;
}

/* A run that has failed serves again unless something of it is still under way. */
static void put_back(struct weft__blocking *blocking, struct weft__blocking_entry *entry,
                     int status)
{
    if (!entry->run || (status < 0 && weft_run_reclaim(entry->run) != WEFT_OK)) {
        weft__blocking_end(&blocking->cache, entry);
        return;
    }
    weft_run_set_ended(entry->run, NULL, NULL);
    weft_run_set_deadline(entry->run, blocking->deadline_ns);
    weft__blocking_give_back(&blocking->cache, entry);
}

void weft__queue_take_back(struct weft__blocking *blocking)
{
    struct weft_request *request;
    while ((request = blocking->oldest) && has_ended(request)) {
        blocking->oldest = request->next;
        if (!blocking->oldest)
            blocking->latest = NULL;
        if (request->entry)
            put_back(blocking, request->entry, request->status);
        drop(blocking, request);
    }
}

int weft__queue_fail(struct weft__blocking *blocking, int status)
{
    char why[512];
    snprintf(why, sizeof why, "%s", weft_error_text());
    if (!blocking->oldest)
        return weft__blocking_give_up(blocking->context, status);
    struct weft_request *request = make(blocking, NULL, status, 1);
    if (request) {
        request->text = copy_text(why);
        add_request(blocking, request);
    } else {
        atomic_fetch_add_explicit(&blocking->latest->lost, 1, memory_order_relaxed);
        if (add(blocking)) { /* nobody looks at the latest any more */
            weft_sequence_fail(blocking->context, status, why);
            atomic_fetch_sub_explicit(&blocking->steps, 1, memory_order_acq_rel);
        }
    }
    return weft_error_set_text(status, why);
}

int weft__queue_add(struct weft__blocking *blocking, const char *who,
                    struct weft__blocking_entry *entry, struct weft_request **out)
{
    struct weft_request *request = make(blocking, entry, WEFT_IN_PROGRESS, 2);
    if (!request)
        return weft__queue_fail(blocking, out_of_memory(who));
    weft__blocking_take(&blocking->cache, entry);
    weft_run_set_ended(entry->run, ended, request);
    int status = add_request(blocking, request);
    if (!status) {
        *out = request;
        return WEFT_OK;
    }
    outcome(request);
    leave(request); /* the list has it still */
    weft__queue_take_back(blocking);
    return status;
}

int weft__queue_catch_up(struct weft__blocking *blocking, const struct weft__blocking_call *call)
{
    struct weft__blocking_call checked = *call;
    weft__queue_take_back(blocking);
    if (!blocking->oldest)
        return WEFT_OK;
    int status = weft__queue_outside(call->who, blocking->context);
    if (status)
        return status;
    struct weft__blocking_entry *entry = blocking->cache.newest;
    status = weft__blocking_prepare(blocking, &checked, &entry);
    if (status)
        return weft__queue_fail(blocking, status);
    status = weft_context_wait(blocking->context, has_ended, blocking->latest, WEFT_NEVER);
    weft__queue_take_back(blocking);
    return status;
}

void weft__queue_end(struct weft__blocking *blocking)
{
    /* A callback that has not seen it has ended when the first run has been destroyed: what it has
     * started is in the list, too. The run that is under way tells that it is cancelled. */
    atomic_store_explicit(&blocking->closing, 1, memory_order_relaxed);
    for (struct weft_request *request = blocking->oldest; request; request = request->next)
        if (request->entry) {
            weft_run_destroy(request->entry->run);
            request->entry->run = NULL;
        }
    weft__queue_take_back(blocking);
    while (blocking->spare) {
        struct weft_request *request = blocking->spare;
        blocking->spare = request->next;
        weft_memory_free(request);
    }
}

/* ---- the user ---- */

int weft_request_test(struct weft_request *request)
{
    if (!request)
        return INVALID("%s: argument `request` is NULL", __func__);
    int status = has_ended(request) ? WEFT_OK : weft_context_progress(request->blocking->context);
    if (status < 0)
        return status;
    return has_ended(request) ? outcome(request) : WEFT_IN_PROGRESS;
}

int weft_request_wait(struct weft_request *request, uint64_t timeout_ns)
{
    if (!request)
        return INVALID("%s: argument `request` is NULL", __func__);
    int status = weft_sized_time(__func__, "timeout_ns", timeout_ns, WEFT_NEVER);
    if (!status && !has_ended(request))
        status = weft_context_wait(request->blocking->context, has_ended, request, timeout_ns);
    return status ? status : outcome(request);
}

const char *weft_request_error(const struct weft_request *request)
{
    if (!request || !has_ended((struct weft_request *)(uintptr_t)request) || request->status >= 0)
        return "";
    return text_of(request);
}

void weft_request_destroy(struct weft_request *request)
{
    if (request && leave(request))
        end(request);
}
