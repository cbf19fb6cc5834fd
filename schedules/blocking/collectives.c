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

/* What a list of counts beside a buffer says: nothing is there; how large the blocks of all ranks
 * are; the same, of blocks that may lie anywhere in that buffer. */
enum listed { NO_LIST, COUNTS, PLACES };

struct function {
    const char *template;
    const char *names[2]; /* of its buffers: the arguments, and the slots */
    enum side sides[2];
    int in_place;    /* the argument that WEFT_IN_PLACE may stand for; -1: neither */
    enum side whose; /* who may say so */
    int reduces;
    int rooted;
    int blocks; /* of its buffers, the largest has so many: 0 is P of them */
    enum listed listed[2];
    const char *lists[2]; /* the arguments */
    const char *own;      /* the argument that has the count of the root's block, or NULL */
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

static const struct function functions[] = {
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

/* A call. */
struct call {
    const char *who;
    const struct function *function;
    const void *data[2];
    struct weft__blocking_key key;
    const size_t *displacements[2];
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

/* An error of a function that the caller has not called. */
static int pass_on(const char *who, int status)
{
    char why[400];
    snprintf(why, sizeof why, "%s", weft_error_text());
    return weft_error_set(status, "%s: %s", who, why);
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

/* What is not looked at becomes nothing, WEFT_IN_PLACE no buffer. */
static int settle(const struct blocking *blocking, struct call *call)
{
    const struct function *function = call->function;
    for (int a = 0; a < 2; a++) {
        if (!is_used(blocking, call, function->sides[a])) {
            call->data[a] = NULL;
            call->key.counts[a] = NULL;
        }
        if (!is_in_place(call->data[a]))
            continue;
        if (function->in_place != a || !is_used(blocking, call, function->whose))
            return INVALID("%s: argument `%s` is WEFT_IN_PLACE, expected a buffer%s", call->who,
                           function->names[a],
                           function->in_place == a ? ": it may be that on the root only" : "");
        call->data[a] = NULL;
        call->key.in_place = 1;
        if (function->own)
            call->key.count = 0;
        else if (function->listed[a] == PLACES)
            call->key.counts[a] = NULL;
    }
    return WEFT_OK;
}

/* The lists of counts that this rank is to have given. */
static int check_lists(const struct blocking *blocking, const struct call *call)
{
    const struct function *function = call->function;
    for (int a = 0; a < 2; a++) {
        const size_t *counts = call->key.counts[a];
        int in_place = call->key.in_place && !call->data[a] && function->in_place == a;
        if (function->listed[a] == NO_LIST || !is_used(blocking, call, function->sides[a]))
            continue;
        if (!counts && !in_place)
            return INVALID("%s: argument `%s` is NULL, expected %d numbers", call->who,
                           function->lists[a], blocking->size);
        if (counts && function->own && !call->key.in_place &&
            counts[blocking->rank] != call->key.count)
            return INVALID("%s: argument `%s` is %zu, expected %zu as %s[%d]", call->who,
                           function->own, call->key.count, counts[blocking->rank],
                           function->lists[a], blocking->rank);
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
    return check_lists(blocking, call);
}

/* Whether the blocks of an argument are bound to where they are to be. */
static int is_placed(const struct blocking *blocking, const struct call *call,
                     const struct weft__blocking_slot *slot, int a)
{
    const size_t *displacements = call->displacements[a];
    if (!slot->displacements)
        return 1;
    return !displacements
               ? !slot->displaced
               : slot->displaced && weft__blocking_equal(slot->displacements, displacements,
                                                         (size_t)blocking->size);
}

static int refuse_null(const struct call *call, int a, size_t count)
{
    return INVALID("%s: argument `%s` is NULL, expected %zu elements", call->who,
                   call->function->names[a], count);
}

static int bind_blocks(const struct blocking *blocking, const struct call *call,
                       struct weft__blocking_entry *entry, int a)
{
    struct weft__blocking_slot *slot = &entry->slots[a];
    const char *name = call->function->names[a];
    const size_t *counts = call->key.counts[a], *displacements = call->displacements[a];
    size_t ranks = (size_t)blocking->size;
    weft_dtype_t dtype = call->key.dtype;
    int status = slot->reads
                     ? weft_run_bind_input_blocks(entry->run, name, call->data[a], counts,
                                                  displacements, ranks, dtype)
                     : weft_run_bind_blocks(entry->run, name, (void *)(uintptr_t)call->data[a],
                                            counts, displacements, ranks, dtype);
    if (status && !call->data[a])
        return refuse_null(call, a, slot->count);
    if (status)
        return pass_on(call->who, status);
    slot->data = call->data[a];
    slot->displaced = displacements != NULL;
    if (displacements)
        memcpy(slot->displacements, displacements, ranks * sizeof *displacements);
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
        return refuse_null(call, a, slot->count);
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

static int bind_all(const struct blocking *blocking, const struct call *call,
                    struct weft__blocking_entry *entry)
{
    if (entry->slots[0].count != 0 && entry->slots[1].count != 0 &&
        call->data[0] == call->data[1] && call->data[0] && !call->displacements[0] &&
        !call->displacements[1])
        return refuse_alias(call);
    for (int a = 0; a < 2; a++) {
        struct weft__blocking_slot *slot = &entry->slots[a];
        if (slot->count != 0 &&
            (call->data[a] != slot->data || !slot->data || !is_placed(blocking, call, slot, a))) {
            int status =
                slot->displacements ? bind_blocks(blocking, call, entry, a) : bind(call, entry, a);
            if (status)
                return status;
        }
    }
    return WEFT_OK;
}

/* ---- plans ---- */

/* Both lists are of pairs, one alone is of all ranks. */
static void give_counts(const struct call *call, struct weft_template_params *params)
{
    const struct function *function = call->function;
    const size_t *const *counts = call->key.counts;
    if (function->listed[0] && function->listed[1]) {
        params->send_counts = counts[0];
        params->recv_counts = counts[1];
    } else {
        params->counts = counts[0] ? counts[0] : counts[1];
    }
}

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
    give_counts(call, &params);
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

/* The slot or, if every block has one, the first of them: the name, and then a number. */
static int is_of(const char *slot, const char *name)
{
    size_t length = name ? strlen(name) : 0;
    return name && strncmp(slot, name, length) == 0 &&
           (slot[length] == '\0' || slot[length] == '.');
}

static void find_slots(const struct blocking *blocking, const struct call *call,
                       struct weft__blocking_entry *entry)
{
    const struct function *function = call->function;
    const struct weft_plan *plan = weft_run_plan(entry->run);
    struct weft_slot_info info = {.struct_size = sizeof info};
    for (weft_slot_t s = 0; (size_t)s < weft_plan_slot_count(plan); s++) {
        weft_plan_get_slot(plan, s, &info);
        for (int a = 0; a < 2; a++) {
            struct weft__blocking_slot *slot = &entry->slots[a];
            if (info.kind == WEFT_SLOT_SCRATCH || !is_of(info.name, function->names[a]))
                continue;
            slot->slot = s;
            slot->count += info.count;
            slot->reads = info.kind == WEFT_SLOT_INPUT;
            if (function->listed[a] == PLACES)
                slot->displacements = entry->lists + (2 + (size_t)a) * (size_t)blocking->size;
        }
    }
}

/* Room for the lists of a call, and its counts. */
static int keep_lists(const struct blocking *blocking, const struct call *call,
                      struct weft__blocking_entry *entry)
{
    size_t ranks = (size_t)blocking->size;
    if (!call->key.counts[0] && !call->key.counts[1])
        return WEFT_OK;
    entry->lists = weft_memory_alloc(4 * ranks, sizeof *entry->lists);
    if (!entry->lists)
        return out_of_memory(call->who);
    entry->bytes = 4 * ranks * sizeof *entry->lists;
    for (size_t a = 0; a < 2; a++) {
        if (!call->key.counts[a])
            continue;
        memcpy(entry->lists + a * ranks, call->key.counts[a], ranks * sizeof *entry->lists);
        entry->key.counts[a] = entry->lists + a * ranks;
    }
    return WEFT_OK;
}

static int build(struct blocking *blocking, const struct call *call,
                 struct weft__blocking_entry **out)
{
    struct weft__blocking_entry *entry = weft_memory_alloc(1, sizeof *entry);
    if (!entry)
        return out_of_memory(call->who);
    entry->key = call->key;
    int status = keep_lists(blocking, call, entry);
    if (!status && (status = create_run(blocking, call, &entry->run)))
        pass_on(call->who, status);
    if (status) {
        weft_memory_free(entry->lists);
        weft_memory_free(entry);
        return status;
    }
    const struct weft_plan *plan = weft_run_plan(entry->run);
    entry->bytes += sizeof *entry + weft_plan_bytes(plan) + weft_plan_run_bytes(plan);
    weft_op_retain(entry->key.op);
    find_slots(blocking, call, entry);
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
           a->dtype == b->dtype && a->root == b->root && entry->begun && !entry->lists &&
           !b->counts[0] && !b->counts[1];
}

static int prepare(struct blocking *blocking, struct call *call,
                   struct weft__blocking_entry **entry)
{
    const void *given[2] = {call->data[0], call->data[1]};
    int status = settle(blocking, call);
    if (!status && !weft__blocking_is_newest(&blocking->cache, &call->key))
        status = find(blocking, call, entry);
    if (status)
        return status;
    (*entry)->begun = 0;
    status = bind_all(blocking, call, *entry);
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

/* What functions have in common of a call; and one with lists. */
#define CALL(number, buffer, other, ...)                                                           \
    (&(struct call){.who = __func__,                                                               \
                    .function = &functions[number],                                                \
                    .data = {buffer, other},                                                       \
                    .key = {.template = functions[number].template, __VA_ARGS__}})
#define CALL_PLACED(number, buffer, other, places, other_places, ...)                              \
    (&(struct call){.who = __func__,                                                               \
                    .function = &functions[number],                                                \
                    .data = {buffer, other},                                                       \
                    .displacements = {places, other_places},                                       \
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
