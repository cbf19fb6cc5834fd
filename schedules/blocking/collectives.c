/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives in one line: a call is a run of the context's sequence, which is waited for, or a
 * request is made of it (queue.c).
 *
 * All calls of a context are one object, and their version is the number of the call, which agrees
 * on all ranks. So a rank may find its plan, build it, or drop it as it likes: the messages of a
 * call find each other whatever run they belong to. A rank that cannot take part in a call says so
 * (weft_sequence_fail()), and is in step with the others for the next one.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <weft/collectives.h>
#include <weft/memory.h>
#include <weft/run.h>

#include "schedules/blocking/call.h"

enum { PLANS = 64, BYTES = 64 << 20 };

/* Its address is the key. */
static const char attached;

/* ---- the functions ---- */

enum {
    BARRIER,
    BROADCAST,
    REDUCE,
    ALLREDUCE,
    REDUCE_SCATTER,
    ALLGATHER,
    GATHER,
    SCATTER,
    ALLTOALL,
    NEIGHBOUR_EXCHANGE,
    SCAN,
    EXSCAN,
    ALLGATHERV,
    GATHERV,
    SCATTERV,
    ALLTOALLV,
    REDUCE_SCATTERV
};

#define BOTH                                                                                       \
    {                                                                                              \
        "send", "recv"                                                                             \
    }

static const struct weft__blocking_function functions[] = {
    [BARRIER] = {.template = "barrier", .in_place = -1, .blocks = 1},
    [BROADCAST] = {.template = "broadcast",
                   .names = {"buffer", NULL},
                   .sides = {ALL, NOBODY},
                   .in_place = -1,
                   .rooted = 1,
                   .blocks = 1},
    [REDUCE] = {.template = "reduce",
                .names = BOTH,
                .sides = {ALL, ROOT},
                .whose = ROOT,
                .reduces = 1,
                .rooted = 1,
                .blocks = 1},
    [ALLREDUCE] = {.template = "allreduce",
                   .names = BOTH,
                   .sides = {ALL, ALL},
                   .whose = ALL,
                   .reduces = 1,
                   .blocks = 1},
    [REDUCE_SCATTER] = {.template = "reduce-scatter",
                        .names = BOTH,
                        .sides = {ALL, ALL},
                        .whose = ALL,
                        .reduces = 1},
    [ALLGATHER] = {.template = "allgather", .names = BOTH, .sides = {ALL, ALL}, .whose = ALL},
    [GATHER] =
        {.template = "gather", .names = BOTH, .sides = {ALL, ROOT}, .whose = ROOT, .rooted = 1},
    [SCATTER] = {.template = "scatter",
                 .names = BOTH,
                 .sides = {ROOT, ALL},
                 .in_place = 1,
                 .whose = ROOT,
                 .rooted = 1},
    [ALLTOALL] = {.template = "alltoall", .names = BOTH, .sides = {ALL, ALL}, .whose = ALL},
    [NEIGHBOUR_EXCHANGE] = {.template = "neighbour-exchange",
                            .names = BOTH,
                            .sides = {ALL, ALL},
                            .in_place = -1,
                            .blocks = 2},
    [SCAN] = {.template = "scan",
              .names = BOTH,
              .sides = {ALL, ALL},
              .whose = ALL,
              .reduces = 1,
              .blocks = 1},
    [EXSCAN] = {.template = "exscan",
                .names = BOTH,
                .sides = {ALL, ALL},
                .whose = ALL,
                .reduces = 1,
                .blocks = 1},
    [ALLGATHERV] = {.template = "allgatherv",
                    .names = BOTH,
                    .sides = {ALL, ALL},
                    .whose = ALL,
                    .listed = {NO_LIST, PLACES},
                    .lists = {NULL, "counts"}},
    [GATHERV] = {.template = "gatherv",
                 .names = BOTH,
                 .sides = {ALL, ROOT},
                 .whose = ROOT,
                 .rooted = 1,
                 .blocks = 1,
                 .listed = {NO_LIST, PLACES},
                 .lists = {NULL, "counts"},
                 .own = "send_count"},
    [SCATTERV] = {.template = "scatterv",
                  .names = BOTH,
                  .sides = {ROOT, ALL},
                  .in_place = 1,
                  .whose = ROOT,
                  .rooted = 1,
                  .blocks = 1,
                  .listed = {PLACES, NO_LIST},
                  .lists = {"counts", NULL},
                  .own = "recv_count"},
    [ALLTOALLV] = {.template = "alltoallv",
                   .names = BOTH,
                   .sides = {ALL, ALL},
                   .whose = ALL,
                   .listed = {PLACES, PLACES},
                   .lists = {"send_counts", "recv_counts"}},
    [REDUCE_SCATTERV] = {.template = "reduce-scatterv",
                         .names = BOTH,
                         .sides = {ALL, ALL},
                         .whose = ALL,
                         .reduces = 1,
                         .listed = {NO_LIST, COUNTS},
                         .lists = {NULL, "counts"}},
};

/* ---- one call at a time ---- */

static void end(void *value)
{
    struct weft__blocking *blocking = value;
    weft__queue_end(blocking);
    weft__blocking_close(&blocking->cache);
    weft_memory_free(blocking);
}

static int make(const char *who, struct weft_context *context, struct weft__blocking **out)
{
    struct weft__blocking *blocking = weft_memory_alloc(1, sizeof *blocking);
    if (!blocking)
        return out_of_memory(who);
    blocking->context = context;
    blocking->rank = weft_context_rank(context);
    blocking->size = weft_context_size(context);
    blocking->deadline_ns = WEFT_NEVER;
    blocking->cache.ranks = (size_t)blocking->size;
    blocking->cache.most_plans = PLANS;
    blocking->cache.most_bytes = BYTES;
    int status = weft_context_attach(context, &attached, blocking, end);
    *out = weft_context_attached(context, &attached);
    if (status)
        weft_memory_free(blocking);
    return *out ? WEFT_OK : out_of_memory(who); /* two threads: one of them has attached it */
}

static uintptr_t self(void)
{
    return (uintptr_t)pthread_self();
}

/* Another thread is in a call: waits for it. The calls of a rank are many and short, or else the
 * program has not ordered its threads: nobody has to be woken in time. */
static int wait_for_it(struct weft__blocking *blocking, const char *who)
{
    const uint64_t longest = 1000000;
    uintptr_t nobody = 0;
    for (uint64_t ns = 10000;; ns = 2 * ns < longest ? 2 * ns : longest) {
        if (atomic_compare_exchange_strong_explicit(&blocking->inside, &nobody, self(),
                                                    memory_order_acquire, memory_order_relaxed))
            return WEFT_OK;
        if (nobody == self())
            return weft_error_set(WEFT_ERR_STATE,
                                  "%s: the thread is in another call of the context", who);
        nobody = 0;
        int status = weft_context_sleep(blocking->context, ns);
        if (status < 0)
            return status;
    }
}

static inline int enter(struct weft__blocking *blocking, const char *who)
{
    uintptr_t nobody = 0;
    /* Acquire pairs with the release in leave(). */
    if (atomic_compare_exchange_strong_explicit(&blocking->inside, &nobody, self(),
                                                memory_order_acquire, memory_order_relaxed))
        return WEFT_OK;
    return wait_for_it(blocking, who);
}

static inline void leave(struct weft__blocking *blocking)
{
    atomic_store_explicit(&blocking->inside, 0, memory_order_release);
}

/* ---- calls ---- */

int weft__blocking_give_up(struct weft_context *context, int status)
{
    char why[512];
    snprintf(why, sizeof why, "%s", weft_error_text());
    weft_sequence_fail(context, status, why);
    return weft_error_set_text(status, why);
}

/* A call has failed. The run serves again unless something of it is still under way. */
static int fail(struct weft__blocking *blocking, struct weft__blocking_entry *entry, int status)
{
    char why[512];
    snprintf(why, sizeof why, "%s", weft_error_text());
    if (weft_run_reclaim(entry->run) != WEFT_OK)
        weft__blocking_drop(&blocking->cache, entry);
    return weft_error_set_text(status, why);
}

/* Whether it is the call before, word by word: it was checked and bound then. What `in_place` is
 * follows from the arguments. */
static inline int is_repeated(const struct weft__blocking_entry *entry,
                              const struct weft__blocking_call *call)
{
    const struct weft__blocking_key *a = &entry->key, *b = &call->key;
    return entry->given[0] == call->data[0] && entry->given[1] == call->data[1] &&
           a->template == b->template && a->op == b->op && a->count == b->count &&
           a->dtype == b->dtype && a->root == b->root && entry->begun && !entry->lists &&
           !b->counts[0] && !b->counts[1];
}

static int execute(struct weft__blocking *blocking, struct weft__blocking_call *call)
{
    struct weft__blocking_cache *cache = &blocking->cache;
    int status = WEFT_OK;
    cache->stats.calls++;
    if (blocking->oldest && (status = weft__queue_catch_up(blocking, call)))
        return status;
    struct weft__blocking_entry *entry = cache->newest;
    if (!entry || !is_repeated(entry, call))
        status = weft__blocking_prepare(blocking, call, &entry);
    if (status)
        return weft__blocking_give_up(blocking->context, status);
    status = weft_run_start(entry->run);
    if (status)
        return status;
    status = weft_run_wait(entry->run, WEFT_NEVER);
    if (status)
        status = fail(blocking, entry, status);
    if (cache->most_plans == 0)
        weft__blocking_trim(cache);
    return status;
}

static int run(struct weft_context *context, struct weft__blocking_call *call)
{
    if (!context)
        return INVALID("%s: argument `context` is NULL", call->who);
    struct weft__blocking *blocking = weft_context_attached(context, &attached);
    int status = blocking ? WEFT_OK : make(call->who, context, &blocking);
    if (status)
        return weft__blocking_give_up(context, status);
    status = enter(blocking, call->who);
    if (status)
        return status;
    status = execute(blocking, call);
    leave(blocking);
    return status;
}

/* A request of a call, which is under way when those before it are over. */
static int post(struct weft__blocking *blocking, struct weft__blocking_call *call,
                struct weft_request **request)
{
    int status = WEFT_OK;
    blocking->cache.stats.calls++;
    weft__queue_take_back(blocking);
    struct weft__blocking_entry *entry = blocking->cache.newest;
    if (!request)
        status = INVALID("%s: argument `request` is NULL", call->who);
    else if (!entry || !is_repeated(entry, call))
        status = weft__blocking_prepare(blocking, call, &entry);
    return status ? weft__queue_fail(blocking, status)
                  : weft__queue_add(blocking, call->who, entry, request);
}

static int begin(struct weft_context *context, struct weft__blocking_call *call,
                 struct weft_request **out)
{
    if (!context)
        return INVALID("%s: argument `context` is NULL", call->who);
    int status = weft__queue_outside(call->who, context);
    if (status)
        return status;
    struct weft__blocking *blocking = weft_context_attached(context, &attached);
    status = blocking ? WEFT_OK : make(call->who, context, &blocking);
    if (status)
        return weft__blocking_give_up(context, status);
    status = enter(blocking, call->who);
    if (status)
        return status;
    status = post(blocking, call, out);
    leave(blocking);
    return status;
}

int weft_collectives_fail(struct weft_context *context, int status, const char *text)
{
    if (!context)
        return INVALID("%s: argument `context` is NULL", __func__);
    if (status >= 0)
        return INVALID("%s: argument `status` is %d, expected an error", __func__, status);
    char why[512]; /* the text may be that of the thread's last error */
    snprintf(why, sizeof why, "%s", text ? text : weft_status_text(status));
    int outside = weft__queue_outside(__func__, context);
    if (outside)
        return outside;
    struct weft__blocking *blocking = weft_context_attached(context, &attached);
    if (!blocking) /* so no call has been made, or there is no memory for any */
        return weft_sequence_fail(context, status, why);
    int entered = enter(blocking, __func__);
    if (entered)
        return entered;
    weft__queue_take_back(blocking);
    int failed = WEFT_OK;
    if (blocking->oldest) {
        weft_error_set_text(status, why);
        weft__queue_fail(blocking, status);
    } else {
        failed = weft_sequence_fail(context, status, why);
    }
    leave(blocking);
    return failed;
}

/* What functions have in common of a call; and one with lists. */
#define CALL(number, buffer, other, ...)                                                           \
    (&(struct weft__blocking_call){.who = __func__,                                                \
                                   .function = &functions[number],                                 \
                                   .data = {buffer, other},                                        \
                                   .key = {.template = functions[number].template, __VA_ARGS__}})
#define CALL_PLACED(number, buffer, other, places, other_places, ...)                              \
    (&(struct weft__blocking_call){.who = __func__,                                                \
                                   .function = &functions[number],                                 \
                                   .data = {buffer, other},                                        \
                                   .displacements = {places, other_places},                        \
                                   .key = {.template = functions[number].template, __VA_ARGS__}})

int weft_barrier(struct weft_context *context)
{
    return run(context, CALL(BARRIER, NULL, NULL, .count = 0));
}

int weft_broadcast(struct weft_context *context, void *buffer, size_t count, weft_dtype_t dtype,
                   int root)
{
    return run(context,
               CALL(BROADCAST, buffer, NULL, .count = count, .dtype = dtype, .root = root));
}

int weft_reduce(struct weft_context *context, const void *send, void *recv, size_t count,
                weft_dtype_t dtype, const struct weft_op *op, int root)
{
    return run(context,
               CALL(REDUCE, send, recv, .count = count, .dtype = dtype, .op = op, .root = root));
}

int weft_allreduce(struct weft_context *context, const void *send, void *recv, size_t count,
                   weft_dtype_t dtype, const struct weft_op *op)
{
    return run(context, CALL(ALLREDUCE, send, recv, .count = count, .dtype = dtype, .op = op));
}

int weft_reduce_scatter(struct weft_context *context, const void *send, void *recv, size_t count,
                        weft_dtype_t dtype, const struct weft_op *op)
{
    return run(context, CALL(REDUCE_SCATTER, send, recv, .count = count, .dtype = dtype, .op = op));
}

int weft_allgather(struct weft_context *context, const void *send, void *recv, size_t count,
                   weft_dtype_t dtype)
{
    return run(context, CALL(ALLGATHER, send, recv, .count = count, .dtype = dtype));
}

int weft_gather(struct weft_context *context, const void *send, void *recv, size_t count,
                weft_dtype_t dtype, int root)
{
    return run(context, CALL(GATHER, send, recv, .count = count, .dtype = dtype, .root = root));
}

int weft_scatter(struct weft_context *context, const void *send, void *recv, size_t count,
                 weft_dtype_t dtype, int root)
{
    return run(context, CALL(SCATTER, send, recv, .count = count, .dtype = dtype, .root = root));
}

int weft_alltoall(struct weft_context *context, const void *send, void *recv, size_t count,
                  weft_dtype_t dtype)
{
    return run(context, CALL(ALLTOALL, send, recv, .count = count, .dtype = dtype));
}

int weft_neighbour_exchange(struct weft_context *context, const void *send, void *recv,
                            size_t count, weft_dtype_t dtype)
{
    return run(context, CALL(NEIGHBOUR_EXCHANGE, send, recv, .count = count, .dtype = dtype));
}

int weft_scan(struct weft_context *context, const void *send, void *recv, size_t count,
              weft_dtype_t dtype, const struct weft_op *op)
{
    return run(context, CALL(SCAN, send, recv, .count = count, .dtype = dtype, .op = op));
}

int weft_exscan(struct weft_context *context, const void *send, void *recv, size_t count,
                weft_dtype_t dtype, const struct weft_op *op)
{
    return run(context, CALL(EXSCAN, send, recv, .count = count, .dtype = dtype, .op = op));
}

int weft_allgatherv(struct weft_context *context, const void *send, void *recv,
                    const size_t *counts, const size_t *displacements, weft_dtype_t dtype)
{
    return run(context, CALL_PLACED(ALLGATHERV, send, recv, NULL, displacements,
                                    .counts = {NULL, counts}, .dtype = dtype));
}

int weft_gatherv(struct weft_context *context, const void *send, size_t send_count, void *recv,
                 const size_t *counts, const size_t *displacements, weft_dtype_t dtype, int root)
{
    return run(context, CALL_PLACED(GATHERV, send, recv, NULL, displacements, .count = send_count,
                                    .counts = {NULL, counts}, .dtype = dtype, .root = root));
}

int weft_scatterv(struct weft_context *context, const void *send, const size_t *counts,
                  const size_t *displacements, void *recv, size_t recv_count, weft_dtype_t dtype,
                  int root)
{
    return run(context, CALL_PLACED(SCATTERV, send, recv, displacements, NULL, .count = recv_count,
                                    .counts = {counts, NULL}, .dtype = dtype, .root = root));
}

int weft_alltoallv(struct weft_context *context, const void *send, const size_t *send_counts,
                   const size_t *send_displacements, void *recv, const size_t *recv_counts,
                   const size_t *recv_displacements, weft_dtype_t dtype)
{
    return run(context, CALL_PLACED(ALLTOALLV, send, recv, send_displacements, recv_displacements,
                                    .counts = {send_counts, recv_counts}, .dtype = dtype));
}

int weft_reduce_scatterv(struct weft_context *context, const void *send, void *recv,
                         const size_t *counts, weft_dtype_t dtype, const struct weft_op *op)
{
    return run(context, CALL(REDUCE_SCATTERV, send, recv, .counts = {NULL, counts}, .dtype = dtype,
                             .op = op));
}

/* ---- the same, not waited for ---- */

int weft_ibarrier(struct weft_context *context, struct weft_request **request)
{
    return begin(context, CALL(BARRIER, NULL, NULL, .count = 0), request);
}

int weft_ibroadcast(struct weft_context *context, void *buffer, size_t count, weft_dtype_t dtype,
                    int root, struct weft_request **request)
{
    return begin(context,
                 CALL(BROADCAST, buffer, NULL, .count = count, .dtype = dtype, .root = root),
                 request);
}

int weft_ireduce(struct weft_context *context, const void *send, void *recv, size_t count,
                 weft_dtype_t dtype, const struct weft_op *op, int root,
                 struct weft_request **request)
{
    return begin(context,
                 CALL(REDUCE, send, recv, .count = count, .dtype = dtype, .op = op, .root = root),
                 request);
}

int weft_iallreduce(struct weft_context *context, const void *send, void *recv, size_t count,
                    weft_dtype_t dtype, const struct weft_op *op, struct weft_request **request)
{
    return begin(context, CALL(ALLREDUCE, send, recv, .count = count, .dtype = dtype, .op = op),
                 request);
}

int weft_ireduce_scatter(struct weft_context *context, const void *send, void *recv, size_t count,
                         weft_dtype_t dtype, const struct weft_op *op,
                         struct weft_request **request)
{
    return begin(context,
                 CALL(REDUCE_SCATTER, send, recv, .count = count, .dtype = dtype, .op = op),
                 request);
}

int weft_iallgather(struct weft_context *context, const void *send, void *recv, size_t count,
                    weft_dtype_t dtype, struct weft_request **request)
{
    return begin(context, CALL(ALLGATHER, send, recv, .count = count, .dtype = dtype), request);
}

int weft_igather(struct weft_context *context, const void *send, void *recv, size_t count,
                 weft_dtype_t dtype, int root, struct weft_request **request)
{
    return begin(context, CALL(GATHER, send, recv, .count = count, .dtype = dtype, .root = root),
                 request);
}

int weft_iscatter(struct weft_context *context, const void *send, void *recv, size_t count,
                  weft_dtype_t dtype, int root, struct weft_request **request)
{
    return begin(context, CALL(SCATTER, send, recv, .count = count, .dtype = dtype, .root = root),
                 request);
}

int weft_ialltoall(struct weft_context *context, const void *send, void *recv, size_t count,
                   weft_dtype_t dtype, struct weft_request **request)
{
    return begin(context, CALL(ALLTOALL, send, recv, .count = count, .dtype = dtype), request);
}

int weft_ineighbour_exchange(struct weft_context *context, const void *send, void *recv,
                             size_t count, weft_dtype_t dtype, struct weft_request **request)
{
    return begin(context, CALL(NEIGHBOUR_EXCHANGE, send, recv, .count = count, .dtype = dtype),
                 request);
}

int weft_iscan(struct weft_context *context, const void *send, void *recv, size_t count,
               weft_dtype_t dtype, const struct weft_op *op, struct weft_request **request)
{
    return begin(context, CALL(SCAN, send, recv, .count = count, .dtype = dtype, .op = op),
                 request);
}

int weft_iexscan(struct weft_context *context, const void *send, void *recv, size_t count,
                 weft_dtype_t dtype, const struct weft_op *op, struct weft_request **request)
{
    return begin(context, CALL(EXSCAN, send, recv, .count = count, .dtype = dtype, .op = op),
                 request);
}

int weft_iallgatherv(struct weft_context *context, const void *send, void *recv,
                     const size_t *counts, const size_t *displacements, weft_dtype_t dtype,
                     struct weft_request **request)
{
    return begin(context,
                 CALL_PLACED(ALLGATHERV, send, recv, NULL, displacements, .counts = {NULL, counts},
                             .dtype = dtype),
                 request);
}

int weft_igatherv(struct weft_context *context, const void *send, size_t send_count, void *recv,
                  const size_t *counts, const size_t *displacements, weft_dtype_t dtype, int root,
                  struct weft_request **request)
{
    return begin(context,
                 CALL_PLACED(GATHERV, send, recv, NULL, displacements, .count = send_count,
                             .counts = {NULL, counts}, .dtype = dtype, .root = root),
                 request);
}

int weft_iscatterv(struct weft_context *context, const void *send, const size_t *counts,
                   const size_t *displacements, void *recv, size_t recv_count, weft_dtype_t dtype,
                   int root, struct weft_request **request)
{
    return begin(context,
                 CALL_PLACED(SCATTERV, send, recv, displacements, NULL, .count = recv_count,
                             .counts = {counts, NULL}, .dtype = dtype, .root = root),
                 request);
}

int weft_ialltoallv(struct weft_context *context, const void *send, const size_t *send_counts,
                    const size_t *send_displacements, void *recv, const size_t *recv_counts,
                    const size_t *recv_displacements, weft_dtype_t dtype,
                    struct weft_request **request)
{
    return begin(context,
                 CALL_PLACED(ALLTOALLV, send, recv, send_displacements, recv_displacements,
                             .counts = {send_counts, recv_counts}, .dtype = dtype),
                 request);
}

int weft_ireduce_scatterv(struct weft_context *context, const void *send, void *recv,
                          const size_t *counts, weft_dtype_t dtype, const struct weft_op *op,
                          struct weft_request **request)
{
    return begin(
        context,
        CALL(REDUCE_SCATTERV, send, recv, .counts = {NULL, counts}, .dtype = dtype, .op = op),
        request);
}

/* ---- settings ---- */

void weft_collectives_config_init_sized(struct weft_collectives_config *config, size_t size)
{
    weft_sized_init(config, size);
}

int weft_collectives_configure(struct weft_context *context,
                               const struct weft_collectives_config *given)
{
    struct weft_collectives_config config;
    if (!context)
        return INVALID("%s: argument `context` is NULL", __func__);
    int status = weft_sized_read(__func__, "config", given, &config, sizeof config);
    if (!status)
        status = weft_sized_time(__func__, "config->deadline_ns", config.deadline_ns, WEFT_NEVER);
    struct weft__blocking *blocking = weft_context_attached(context, &attached);
    if (!status && !blocking)
        status = make(__func__, context, &blocking);
    if (!status)
        status = enter(blocking, __func__);
    if (status)
        return status;
    weft__queue_take_back(blocking);
    struct weft__blocking_cache *cache = &blocking->cache;
    blocking->deadline_ns = config.deadline_ns == 0 ? WEFT_NEVER : config.deadline_ns;
    cache->most_plans = config.plans == 0                 ? PLANS
                        : config.plans == WEFT_PLANS_NONE ? 0
                                                          : config.plans;
    cache->most_bytes = config.bytes == 0 ? BYTES : config.bytes;
    for (struct weft__blocking_entry *entry = cache->newest; entry; entry = entry->older)
        weft_run_set_deadline(entry->run, blocking->deadline_ns);
    weft__blocking_trim(cache);
    leave(blocking);
    return WEFT_OK;
}

int weft_collectives_get_stats(struct weft_context *context, struct weft_collectives_stats *stats)
{
    struct weft_collectives_stats counted = {.struct_size = sizeof counted};
    if (!context || !stats)
        return INVALID("%s: argument `%s` is NULL", __func__, context ? "stats" : "context");
    int status = weft_sized_check(__func__, "stats", stats);
    struct weft__blocking *blocking = weft_context_attached(context, &attached);
    if (!status && blocking) {
        status = enter(blocking, __func__);
        if (status)
            return status;
        weft__queue_take_back(blocking);
        counted = blocking->cache.stats;
        leave(blocking);
    }
    return status ? status : weft_sized_fill(__func__, "stats", stats, &counted, sizeof counted);
}
