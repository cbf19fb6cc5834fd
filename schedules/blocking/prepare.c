/* SPDX-License-Identifier: BSD-3-Clause */
/* What a call needs: its arguments looked at, a plan found or built, and bound to them. */
#include <stdio.h>
#include <string.h>

#include <weft/memory.h>
#include <weft/run.h>
#include <weft/template.h>

#include "schedules/blocking/call.h"

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
static int is_used(const struct weft__blocking *blocking, const struct weft__blocking_call *call,
                   enum weft__blocking_side side)
{
    return side == ALL || (side == ROOT && blocking->rank == call->key.root);
}

/* What is not looked at becomes nothing, WEFT_IN_PLACE no buffer. */
static int settle(const struct weft__blocking *blocking, struct weft__blocking_call *call)
{
    const struct weft__blocking_function *function = call->function;
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
static int check_lists(const struct weft__blocking *blocking,
                       const struct weft__blocking_call *call)
{
    const struct weft__blocking_function *function = call->function;
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
static int check(const struct weft__blocking *blocking, const struct weft__blocking_call *call)
{
    const struct weft__blocking_function *function = call->function;
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
static int is_placed(const struct weft__blocking *blocking, const struct weft__blocking_call *call,
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

static int refuse_null(const struct weft__blocking_call *call, int a, size_t count)
{
    return INVALID("%s: argument `%s` is NULL, expected %zu elements", call->who,
                   call->function->names[a], count);
}

static int bind_blocks(const struct weft__blocking *blocking,
                       const struct weft__blocking_call *call, struct weft__blocking_entry *entry,
                       int a)
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
static int bind(const struct weft__blocking_call *call, struct weft__blocking_entry *entry, int a)
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

static int refuse_alias(const struct weft__blocking_call *call)
{
    int place = call->function->in_place;
    return INVALID("%s: arguments `send` and `recv` are both %p, expected buffers that do not "
                   "overlap%s%s%s",
                   call->who, call->data[0], place < 0 ? "" : ", or WEFT_IN_PLACE for `",
                   place < 0 ? "" : call->function->names[place], place < 0 ? "" : "`");
}

static int bind_all(const struct weft__blocking *blocking, const struct weft__blocking_call *call,
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
static void give_counts(const struct weft__blocking_call *call, struct weft_template_params *params)
{
    const struct weft__blocking_function *function = call->function;
    const size_t *const *counts = call->key.counts;
    if (function->listed[0] && function->listed[1]) {
        params->send_counts = counts[0];
        params->recv_counts = counts[1];
    } else {
        params->counts = counts[0] ? counts[0] : counts[1];
    }
}

static int create_run(const struct weft__blocking *blocking, const struct weft__blocking_call *call,
                      struct weft_run **run)
{
    struct weft_plan *built = NULL, *plan = weft__queue_plan(blocking, &call->key);
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
    int status = plan ? WEFT_OK
                      : weft_template_create_plan(&built, blocking->context,
                                                  call->function->template, &params);
    if (!status)
        status = weft_run_create(run, blocking->context, plan ? plan : built, &config);
    weft_plan_destroy(built);
    return status;
}

/* The slot or, if every block has one, the first of them: the name, and then a number. */
static int is_of(const char *slot, const char *name)
{
    size_t length = name ? strlen(name) : 0;
    return name && strncmp(slot, name, length) == 0 &&
           (slot[length] == '\0' || slot[length] == '.');
}

static void find_slots(const struct weft__blocking *blocking,
                       const struct weft__blocking_call *call, struct weft__blocking_entry *entry)
{
    const struct weft__blocking_function *function = call->function;
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
static int keep_lists(const struct weft__blocking *blocking, const struct weft__blocking_call *call,
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

static int build(struct weft__blocking *blocking, const struct weft__blocking_call *call,
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
static int find(struct weft__blocking *blocking, const struct weft__blocking_call *call,
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

/* ---- all of it ---- */

int weft__blocking_prepare(struct weft__blocking *blocking, struct weft__blocking_call *call,
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
