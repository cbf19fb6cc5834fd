/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The blocking collectives: a call is a run of the context's sequence.
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
#include <weft/template.h>

#include "schedules/blocking/cache.h"

enum { PLANS = 64, BYTES = 64 << 20 };

/* What a rank has for the calls on a context; attached to it. */
struct blocking {
    struct weft_context *context;
    /* The thread that is in a call, as a number; 0: none. */
    _Atomic uintptr_t inside;
    int rank, size;
    uint64_t deadline_ns;
    struct weft__blocking_cache cache;
};

/* Its address is the key. */
static const char attached;

/* ---- the functions ---- */

enum side { NOBODY, ROOT, ALL }; /* whose argument it is */

struct function {
    const char *template;
    const char *names[2]; /* of its buffers: the arguments, and the slots */
    enum side sides[2];
    int in_place;    /* the argument that WEFT_IN_PLACE may stand for; -1: neither */
    enum side whose; /* who may say so */
    int reduces;
    int rooted;
    int blocks; /* of its buffers, the largest has so many: 0 is P of them */
};

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
    EXSCAN
};

static const struct function functions[] = {
    [BARRIER] = {"barrier", {NULL, NULL}, {NOBODY, NOBODY}, -1, NOBODY, 0, 0, 1},
    [BROADCAST] = {"broadcast", {"buffer", NULL}, {ALL, NOBODY}, -1, NOBODY, 0, 1, 1},
    [REDUCE] = {"reduce", {"send", "recv"}, {ALL, ROOT}, 0, ROOT, 1, 1, 1},
    [ALLREDUCE] = {"allreduce", {"send", "recv"}, {ALL, ALL}, 0, ALL, 1, 0, 1},
    [REDUCE_SCATTER] = {"reduce-scatter", {"send", "recv"}, {ALL, ALL}, 0, ALL, 1, 0, 0},
    [ALLGATHER] = {"allgather", {"send", "recv"}, {ALL, ALL}, 0, ALL, 0, 0, 0},
    [GATHER] = {"gather", {"send", "recv"}, {ALL, ROOT}, 0, ROOT, 0, 1, 0},
    [SCATTER] = {"scatter", {"send", "recv"}, {ROOT, ALL}, 1, ROOT, 0, 1, 0},
    [ALLTOALL] = {"alltoall", {"send", "recv"}, {ALL, ALL}, 0, ALL, 0, 0, 0},
    [NEIGHBOUR_EXCHANGE] =
        {"neighbour-exchange", {"send", "recv"}, {ALL, ALL}, -1, NOBODY, 0, 0, 2},
    [SCAN] = {"scan", {"send", "recv"}, {ALL, ALL}, 0, ALL, 1, 0, 1},
    [EXSCAN] = {"exscan", {"send", "recv"}, {ALL, ALL}, 0, ALL, 1, 0, 1},
};

/* A call. */
struct call {
    const char *who;
    const struct function *function;
    const void *data[2];
    struct weft__blocking_key key;
};

#define INVALID(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

/* ---- one call at a time ---- */

static void end(void *value)
{
    struct blocking *blocking = value;
    weft__blocking_drop_all(&blocking->cache);
    weft_memory_free(blocking);
}

static int out_of_memory(const char *who)
{
    return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", who);
}

static int make(const char *who, struct weft_context *context, struct blocking **out)
{
    struct blocking *blocking = weft_memory_alloc(1, sizeof *blocking);
    if (!blocking)
        return out_of_memory(who);
    blocking->context = context;
    blocking->rank = weft_context_rank(context);
    blocking->size = weft_context_size(context);
    blocking->deadline_ns = WEFT_NEVER;
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
static int wait_for_it(struct blocking *blocking, const char *who)
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

static inline int enter(struct blocking *blocking, const char *who)
{
    uintptr_t nobody = 0;
    /* Acquire pairs with the release in leave(). */
    if (atomic_compare_exchange_strong_explicit(&blocking->inside, &nobody, self(),
                                                memory_order_acquire, memory_order_relaxed))
        return WEFT_OK;
    return wait_for_it(blocking, who);
}

static inline void leave(struct blocking *blocking)
{
    atomic_store_explicit(&blocking->inside, 0, memory_order_release);
}

/* ---- arguments ---- */

static int is_in_place(const void *data)
{
    return data == WEFT_IN_PLACE;
}

/* Whether an argument is looked at on this rank. */
static int is_used(const struct blocking *blocking, const struct call *call, enum side side)
{
    return side == ALL || (side == ROOT && blocking->rank == call->key.root);
}

/* WEFT_IN_PLACE becomes no buffer. */
static int settle(const struct blocking *blocking, struct call *call)
{
    const struct function *function = call->function;
    for (int a = 0; a < 2; a++) {
        if (!is_used(blocking, call, function->sides[a]))
            call->data[a] = NULL;
        if (!is_in_place(call->data[a]))
            continue;
        if (function->in_place != a || !is_used(blocking, call, function->whose))
            return INVALID("%s: argument `%s` is WEFT_IN_PLACE, expected a buffer%s", call->who,
                           function->names[a],
                           function->in_place == a ? ": it may be that on the root only" : "");
        call->data[a] = NULL;
        call->key.in_place = 1;
    }
    return WEFT_OK;
}

/* What a plan depends on. */
static int check(const struct blocking *blocking, const struct call *call)
{
    const struct function *function = call->function;
    const struct weft__blocking_key *key = &call->key;
    size_t element = weft_dtype_size(key->dtype);
    size_t blocks = function->blocks == 0 ? (size_t)blocking->size : (size_t)function->blocks;
    if (function->names[0] && element == 0)
        return INVALID("%s: argument `dtype` is %d, expected a datatype", call->who,
                       (int)key->dtype);
    if (function->reduces && !key->op)
        return INVALID("%s: argument `op` is NULL, expected an operation", call->who);
    if (function->reduces && !weft_op_supports(key->op, key->dtype))
        return INVALID("%s: argument `op` is %s, expected an operation that reduces %s", call->who,
                       weft_op_name(key->op), weft_dtype_name(key->dtype));
    if (function->rooted && (key->root < 0 || key->root >= blocking->size))
        return INVALID("%s: argument `root` is %d, expected 0..%d", call->who, key->root,
                       blocking->size - 1);
    if (element != 0 && key->count > SIZE_MAX / element / blocks)
        return INVALID("%s: argument `count` is %zu, expected at most %zu", call->who, key->count,
                       SIZE_MAX / element / blocks);
    return WEFT_OK;
}

/* Binds an argument that has another address than in the call before. */
static int bind(const struct call *call, struct weft__blocking_entry *entry, int a)
{
    struct weft__blocking_slot *slot = &entry->slots[a];
    const void *data = call->data[a];
    int status = slot->reads ? weft_run_bind_input(entry->run, slot->slot, data, slot->count,
                                                   call->key.dtype)
                             : weft_run_bind(entry->run, slot->slot, (void *)(uintptr_t)data,
                                             slot->count, call->key.dtype);
    if (status)
        return INVALID("%s: argument `%s` is NULL, expected %zu elements", call->who,
                       call->function->names[a], slot->count);
    slot->data = data;
    return WEFT_OK;
}

static int refuse_alias(const struct call *call)
{
    int place = call->function->in_place;
    return INVALID("%s: arguments `send` and `recv` are both %p, expected buffers that do not "
                   "overlap%s%s%s",
                   call->who, call->data[0], place < 0 ? "" : ", or WEFT_IN_PLACE for `",
                   place < 0 ? "" : call->function->names[place], place < 0 ? "" : "`");
}

static int bind_all(const struct call *call, struct weft__blocking_entry *entry)
{
    if (entry->slots[0].count != 0 && entry->slots[1].count != 0 &&
        call->data[0] == call->data[1] && call->data[0])
        return refuse_alias(call);
    for (int a = 0; a < 2; a++) {
        struct weft__blocking_slot *slot = &entry->slots[a];
        if (slot->count != 0 && (call->data[a] != slot->data || !slot->data)) {
            int status = bind(call, entry, a);
            if (status)
                return status;
        }
    }
    return WEFT_OK;
}

/* ---- plans ---- */

static int create_run(const struct blocking *blocking, const struct call *call,
                      struct weft_run **run)
{
    struct weft_plan *plan = NULL;
    struct weft_template_params params;
    struct weft_run_config config;
    weft_template_params_init(&params);
    params.count = call->key.count;
    params.dtype = call->key.dtype;
    params.op = call->key.op;
    params.root = call->key.root;
    params.in_place = call->key.in_place;
    weft_run_config_init(&config);
    config.sequence = 1;
    config.deadline_ns = blocking->deadline_ns;
    int status =
        weft_template_create_plan(&plan, blocking->context, call->function->template, &params);
    if (!status)
        status = weft_run_create(run, blocking->context, plan, &config);
    weft_plan_destroy(plan);
    return status;
}

static void find_slots(const struct call *call, struct weft__blocking_entry *entry)
{
    const struct weft_plan *plan = weft_run_plan(entry->run);
    struct weft_slot_info info = {.struct_size = sizeof info};
    for (weft_slot_t s = 0; (size_t)s < weft_plan_slot_count(plan); s++) {
        weft_plan_get_slot(plan, s, &info);
        for (int a = 0; a < 2; a++)
            if (info.kind != WEFT_SLOT_SCRATCH && call->function->names[a] &&
                strcmp(info.name, call->function->names[a]) == 0)
                entry->slots[a] = (struct weft__blocking_slot){
                    .slot = s, .count = info.count, .reads = info.kind == WEFT_SLOT_INPUT};
    }
}

static int build(struct blocking *blocking, const struct call *call,
                 struct weft__blocking_entry **out)
{
    struct weft__blocking_entry *entry = weft_memory_alloc(1, sizeof *entry);
    if (!entry)
        return out_of_memory(call->who);
    int status = create_run(blocking, call, &entry->run);
    if (status) {
        char why[400];
        snprintf(why, sizeof why, "%s", weft_error_text());
        weft_memory_free(entry);
        return weft_error_set(status, "%s: %s", call->who, why);
    }
    const struct weft_plan *plan = weft_run_plan(entry->run);
    entry->key = call->key;
    weft_op_retain(entry->key.op);
    entry->bytes = sizeof *entry + weft_plan_bytes(plan) + weft_plan_run_bytes(plan);
    find_slots(call, entry);
    weft__blocking_add(&blocking->cache, entry);
    *out = entry;
    return WEFT_OK;
}

/* Finds or builds what a call needs. Once more without all that is kept, if memory is short. */
static int find(struct blocking *blocking, const struct call *call,
                struct weft__blocking_entry **entry)
{
    *entry = weft__blocking_find(&blocking->cache, &call->key);
    if (*entry)
        return WEFT_OK;
    int status = check(blocking, call);
    if (!status)
        status = build(blocking, call, entry);
    if (status == WEFT_ERR_MEMORY && blocking->cache.newest) {
        weft__blocking_drop_all(&blocking->cache);
        status = build(blocking, call, entry);
    }
    return status;
}

/* ---- calls ---- */

/* The call fails before it has begun: it has been one, and the others hear why it is none here. */
static int give_up(struct weft_context *context, int status)
{
    char why[512];
    snprintf(why, sizeof why, "%s", weft_error_text());
    weft_sequence_fail(context, status, why);
    return weft_error_set_text(status, why);
}

/* A call has failed. The run serves again unless something of it is still under way. */
static int fail(struct blocking *blocking, struct weft__blocking_entry *entry, int status)
{
    char why[512];
    snprintf(why, sizeof why, "%s", weft_error_text());
    if (weft_run_reclaim(entry->run) != WEFT_OK)
        weft__blocking_drop(&blocking->cache, entry);
    return weft_error_set_text(status, why);
}

/* Whether it is the call before, word by word: it was checked and bound then. What `in_place` is
 * follows from the arguments. */
static inline int is_repeated(const struct weft__blocking_entry *entry, const struct call *call)
{
    const struct weft__blocking_key *a = &entry->key, *b = &call->key;
    return entry->given[0] == call->data[0] && entry->given[1] == call->data[1] &&
           a->template == b->template && a->op == b->op && a->count == b->count &&
           a->dtype == b->dtype && a->root == b->root && entry->begun;
}

static int prepare(struct blocking *blocking, struct call *call,
                   struct weft__blocking_entry **entry)
{
    const void *given[2] = {call->data[0], call->data[1]};
    int status = settle(blocking, call);
    if (!status && !(*entry && weft__blocking_same(&(*entry)->key, &call->key)))
        status = find(blocking, call, entry);
    if (status)
        return status;
    (*entry)->begun = 0;
    status = bind_all(call, *entry);
    if (status)
        return status;
    memcpy((*entry)->given, given, sizeof given);
    (*entry)->begun = 1;
    return WEFT_OK;
}

static int execute(struct blocking *blocking, struct call *call)
{
    struct weft__blocking_cache *cache = &blocking->cache;
    struct weft__blocking_entry *entry = cache->newest;
    int status = WEFT_OK;
    cache->stats.calls++;
    if (!entry || !is_repeated(entry, call))
        status = prepare(blocking, call, &entry);
    if (status)
        return give_up(blocking->context, status);
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

static int run(struct weft_context *context, struct call *call)
{
    if (!context)
        return INVALID("%s: argument `context` is NULL", call->who);
    struct blocking *blocking = weft_context_attached(context, &attached);
    int status = blocking ? WEFT_OK : make(call->who, context, &blocking);
    if (status)
        return give_up(context, status);
    status = enter(blocking, call->who);
    if (status)
        return status;
    status = execute(blocking, call);
    leave(blocking);
    return status;
}

/* An argument by its name, or what stands for it where a function has none. */
#define CALL(number, buffer, other, ...)                                                           \
    (&(struct call){.who = __func__,                                                               \
                    .function = &functions[number],                                                \
                    .data = {buffer, other},                                                       \
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
    struct blocking *blocking = weft_context_attached(context, &attached);
    if (!status && !blocking)
        status = make(__func__, context, &blocking);
    if (!status)
        status = enter(blocking, __func__);
    if (status)
        return status;
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
    struct blocking *blocking = weft_context_attached(context, &attached);
    if (!status && blocking) {
        status = enter(blocking, __func__);
        if (status)
            return status;
        counted = blocking->cache.stats;
        leave(blocking);
    }
    return status ? status : weft_sized_fill(__func__, "stats", stats, &counted, sizeof counted);
}
