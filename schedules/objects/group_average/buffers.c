/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The buffers of group averaging, and what they are used for (group_average.h has the picture).
 *
 * The lock is held for a few assignments, never while data is copied: a buffer that is copied to or
 * read is marked as held instead.
 */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/group_average/group_average.h"

/* Whether contributions stay with their sums. Only who need not arrive is stale. */
static int keeps_own(const struct weft_group_average *average)
{
    return average->config.stale_mix == WEFT_STALE_SUBSTITUTE &&
           average->config.contribution == WEFT_AVERAGE_REPLACE &&
           average->config.mode == WEFT_AVERAGE_WAIT_AVOIDING;
}

/* ---- memory, and what is done to it when nothing else goes on ---- */

static int make_buffer(struct weft_group_average *average, void **buffer)
{
    size_t bytes = average->bytes ? average->bytes : 1;
    if (average->device)
        return weft_context_device_alloc(average->context, WEFT_MEMORY_DEVICE, bytes, buffer);
    *buffer = weft_context_memory_alloc(average->context, bytes, 1);
    return *buffer ? WEFT_OK
                   : weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d buffers of %zu bytes",
                                    average->buffer_count, average->bytes);
}

static void free_buffer(struct weft_group_average *average, void *buffer)
{
    if (average->device)
        weft_context_device_free(average->context, buffer);
    else
        weft_context_memory_free(average->context, buffer);
}

/* From anywhere. */
static int copy(struct weft_group_average *average, void *buffer, const void *from)
{
    if (average->device)
        return weft_context_device_copy(average->context, buffer, from, average->bytes);
    memcpy(buffer, from, average->bytes);
    return WEFT_OK;
}

/* to = to * scale + from * by */
static int combine(struct weft_group_average *average, void *to, double scale, const void *from,
                   double by)
{
    if (average->device)
        return weft__average_device_combine(average, to, scale, from, by);
    weft__average_combine(average, to, scale, from, by);
    return WEFT_OK;
}

static void publish(struct weft_group_average *average, int buffer)
{
    average->buffers[buffer].uses = WEFT__PUBLISHED;
    average->published = buffer;
}

int weft__average_make_buffers(struct weft_group_average *average,
                               const struct weft_group_average_state *state)
{
    int status = WEFT_OK;
    average->buffer_count = keeps_own(average) ? WEFT__AVERAGE_MOST_BUFFERS : WEFT__AVERAGE_BUFFERS;
    for (int i = 0; i < average->buffer_count && !status; i++)
        status = make_buffer(average, &average->buffers[i].data);
    average->published = -1;
    average->running.buffer = average->newest.buffer = average->synced.buffer = -1;
    if (status || average->config.contribution == WEFT_AVERAGE_REPLACE)
        return status;
    if (state->pending) { /* of no step: published_sequence is 0 */
        status = copy(average, average->buffers[0].data, state->pending);
        publish(average, 0);
    }
    if (!status)
        status = make_buffer(average, &average->zero);
    if (!status && average->device)
        status = weft__average_device_clear(average, average->zero);
    if (!status && state->sum)
        status = make_buffer(average, &average->carried);
    if (!status && state->sum)
        status = copy(average, average->carried, state->sum);
    average->carried_members = state->sum_members;
    return status;
}

int weft__average_fill_buffers(struct weft_group_average *average)
{
    int status = WEFT_OK;
    if (average->config.contribution != WEFT_AVERAGE_REPLACE)
        return WEFT_OK;
    if (average->device)
        status = weft__average_device_load(average, average->buffers[0].data);
    else
        weft__average_load(average, average->buffers[0].data, NULL, NULL);
    publish(average, 0);
    return status;
}

int weft__average_add_failed(struct weft_group_average *average, const void *failed)
{
    if (average->published >= 0)
        return combine(average, average->buffers[average->published].data, 1, failed, 1);
    publish(average, 0);
    return copy(average, average->buffers[0].data, failed);
}

void weft__average_free_buffers(struct weft_group_average *average)
{
    for (int i = 0; i < average->buffer_count; i++)
        free_buffer(average, average->buffers[i].data);
    free_buffer(average, average->zero);
    free_buffer(average, average->carried);
}

/* ---- uses ---- */

/* Under the lock, like all that follow. There is always one (group_average.h): of those that are
 * free the one that was used last, so that few are, and caches hold more of them. */
static int claim(struct weft_group_average *average, unsigned use)
{
    int last = -1;
    for (int i = 0; i < average->buffer_count; i++)
        if (!average->buffers[i].uses &&
            (last < 0 || average->buffers[i].freed > average->buffers[last].freed))
            last = i;
    if (last >= 0)
        average->buffers[last].uses = use;
    return last;
}

static void unmark(struct weft_group_average *average, unsigned use)
{
    for (int i = 0; i < average->buffer_count; i++) {
        struct weft__average_buffer *buffer = &average->buffers[i];
        if (buffer->uses && !(buffer->uses & ~use))
            buffer->freed = ++average->freed;
        buffer->uses &= ~use;
    }
}

/* The use moves to a buffer; -1: to none. */
static void move(struct weft_group_average *average, unsigned use, int buffer)
{
    unmark(average, use);
    if (buffer >= 0)
        average->buffers[buffer].uses |= use;
}

/* ---- publishing ---- */

/* Loads what the tensors have into a buffer, and finds what is not finite. */
static void load(struct weft_group_average *average, int to, int base_buffer)
{
    weft_nan_policy_t nan = average->config.nan;
    void *buffer = average->buffers[to].data;
    const void *base = base_buffer >= 0 ? average->buffers[base_buffer].data : NULL;
    average->bad = (struct weft__bad){0};
    weft__average_load(average, buffer, base, nan == WEFT_NAN_SPREAD ? NULL : &average->bad);
    if (!average->bad.count || average->config.contribution == WEFT_AVERAGE_REPLACE)
        return;
    if (nan == WEFT_NAN_ZERO)
        weft__average_load_finite(average, buffer, base);
    else if (base)
        memcpy(buffer, base, average->bytes);
    else
        memset(buffer, 0, average->bytes);
}

/* Two buffers are held: one that a step's contribution is loaded into, and what it is added to. */
void weft__average_begin_loading(struct weft_group_average *average)
{
    struct weft__average_loading *loading = &average->loading;
    int accumulates = average->config.contribution == WEFT_AVERAGE_ACCUMULATE;
    pthread_mutex_lock(&average->lock);
    move(average, WEFT__SYNCED | WEFT__POSTED | WEFT__SAVED, -1);
    average->synced.buffer = -1;
    loading->base = accumulates ? average->published : -1;
    loading->to = claim(average, WEFT__HELD);
    if (loading->base >= 0)
        average->buffers[loading->base].uses |= WEFT__HELD;
    pthread_mutex_unlock(&average->lock);
}

/* Under the lock: what has been loaded is published, but a model that is not finite. */
static int end_loading(struct weft_group_average *average, uint64_t step)
{
    int accumulates = average->config.contribution == WEFT_AVERAGE_ACCUMULATE;
    int to = average->loading.to, takes = accumulates || !average->bad.count;
    average->stats.nans += average->bad.count;
    if (takes) {
        average->published = to;
        average->published_sequence = step + 1;
        move(average, WEFT__PUBLISHED, to);
        move(average, WEFT__POSTED, accumulates ? -1 : to);
    }
    unmark(average, WEFT__HELD);
    return takes;
}

int weft__average_end_loading(struct weft_group_average *average, uint64_t step)
{
    pthread_mutex_lock(&average->lock);
    int takes = end_loading(average, step);
    pthread_mutex_unlock(&average->lock);
    return takes;
}

void weft__average_drop_loading(struct weft_group_average *average)
{
    pthread_mutex_lock(&average->lock);
    unmark(average, WEFT__HELD);
    pthread_mutex_unlock(&average->lock);
}

int weft__average_publish(struct weft_group_average *average, uint64_t step)
{
    weft__average_begin_loading(average);
    int to = average->loading.to, base = average->loading.base;
    load(average, to, base);
    pthread_mutex_lock(&average->lock);
    if (base >= 0 && average->published != base) {
        /* A version has taken it meanwhile: what remains to be published is this step's alone. No
         * later one can take anything, as nothing is published. */
        pthread_mutex_unlock(&average->lock);
        load(average, to, -1);
        pthread_mutex_lock(&average->lock);
    }
    int takes = end_loading(average, step);
    pthread_mutex_unlock(&average->lock);
    return takes;
}

/* Where nothing has come of this object it was the one before that this rank was in. */
static void tell_past(const struct weft_group_average *average,
                      struct weft_group_average_state *state)
{
    uint64_t ended = weft_series_version(average->versions);
    memcpy(state->past, average->past, sizeof state->past);
    if (ended <= average->first && atomic_load(&average->started) <= average->first)
        return;
    state->past[1] = state->past[0];
    state->past[0] = (struct weft_group_average_past){average->rank, average->ranks,
                                                      average->config.group_size, ended};
}

/* What there is of an object that has failed and accumulates. */
static int save_failed(struct weft_group_average *average, struct weft_group_average_state *state)
{
    const struct weft__average_sum *newest = &average->newest;
    uint64_t version = average->failed_version;
    unsigned use = WEFT__FAILED;
    if (average->running.members > 0) { /* it failed before it could begin, and nobody was told */
        use = WEFT__CONTRIBUTED;
        version = average->running.version;
    }
    for (int i = 0; i < average->buffer_count; i++)
        if (average->buffers[i].uses & use) {
            state->failed = average->buffers[i].data;
            state->failed_count = average->count;
            state->failed_version = version;
        }
    if (newest->buffer < 0 || newest->version < average->taken)
        return WEFT_OK;
    const void *sum = average->buffers[newest->buffer].data;
    int members = newest->divided ? 1 : newest->members;
    if (average->carried) {
        int status =
            combine(average, average->carried, 1.0 / average->carried_members, sum, 1.0 / members);
        if (status)
            return status;
        average->carried_members = 1;
        average->taken = newest->version + 1;
        return WEFT_OK;
    }
    state->sum = sum;
    state->sum_count = average->count;
    state->sum_members = members;
    return WEFT_OK;
}

int weft__average_save(struct weft_group_average *average, int takes, int failed,
                       struct weft_group_average_state *state)
{
    /* Without the lock: its series are over, and a device may have to be waited for. */
    if (failed && average->config.contribution == WEFT_AVERAGE_ACCUMULATE) {
        int status = save_failed(average, state);
        if (status)
            return status;
    }
    pthread_mutex_lock(&average->lock);
    int pending = average->config.contribution == WEFT_AVERAGE_ACCUMULATE ? average->published : -1;
    tell_past(average, state);
    if (average->carried) {
        state->sum = average->carried;
        state->sum_count = average->count;
        state->sum_members = average->carried_members;
    }
    state->next = average->next;
    state->stats = average->stats;
    state->stats.struct_size = sizeof state->stats;
    if (pending >= 0) { /* between two steps there is no second one */
        move(average, WEFT__SAVED, pending);
        state->pending = average->buffers[pending].data;
        state->pending_count = average->count;
    }
    if (pending >= 0 && takes) {
        average->published = -1;
        move(average, WEFT__PUBLISHED, -1);
    }
    pthread_mutex_unlock(&average->lock);
    return WEFT_OK;
}

/* ---- versions ---- */

void weft__average_begin(struct weft_group_average *average, uint64_t version, int members,
                         const void **send, void **recv)
{
    pthread_mutex_lock(&average->lock);
    struct weft__average_sum *running = &average->running;
    int published = average->published;
    average->started_ns = weft_context_now(average->context);
    atomic_store_explicit(&average->started, version + 1, memory_order_release);
    running->version = version;
    running->members = members;
    running->own = -1;
    running->divided = weft__average_syncs(average, version);
    running->sequence = published >= 0 ? average->published_sequence : 0;
    if (members > 0) {
        running->buffer = claim(average, WEFT__SUMMED);
        move(average, WEFT__CONTRIBUTED, published);
        /* Everybody has arrived at a synchronisation. */
        if (keeps_own(average) && !weft__average_syncs(average, version))
            running->own = published;
        *send = published >= 0 ? average->buffers[published].data : average->zero;
        *recv = average->buffers[running->buffer].data;
        if (average->config.contribution == WEFT_AVERAGE_ACCUMULATE) {
            average->published = -1;
            move(average, WEFT__PUBLISHED, -1);
        }
        if (running->sequence == version + 1)
            average->stats.active_versions++;
        else
            average->stats.passive_versions++;
        const struct weft__average_plan *plan = &average->plans[average->running_plan];
        average->stats.messages += plan->messages;
        average->stats.bytes += plan->bytes;
    }
    pthread_mutex_unlock(&average->lock);
}

void weft__average_end(struct weft_group_average *average, int synchronised, int status)
{
    pthread_mutex_lock(&average->lock);
    struct weft__average_sum *running = &average->running;
    if (running->members > 0) {
        for (int i = 0; i < average->buffer_count && status < 0; i++)
            if (average->buffers[i].uses & WEFT__CONTRIBUTED)
                move(average, WEFT__FAILED, i);
        average->failed_version = running->version;
        move(average, WEFT__SUMMED | WEFT__CONTRIBUTED, -1);
        if (status == WEFT_OK) {
            average->newest = *running;
            move(average, WEFT__NEWEST, running->buffer);
            move(average, WEFT__OWN, running->own);
        }
        if (status == WEFT_OK && synchronised) {
            average->synced = *running;
            move(average, WEFT__SYNCED, running->buffer);
            /* Nothing from before it is used after it. */
            if (average->config.contribution == WEFT_AVERAGE_REPLACE) {
                average->published = running->buffer;
                move(average, WEFT__PUBLISHED, running->buffer);
            }
        }
    }
    running->buffer = -1;
    running->members = 0;
    pthread_mutex_unlock(&average->lock);
}

/* ---- results ---- */

/* The sum that a step takes, held with its contribution; its buffer is -1 if there is none. */
static struct weft__average_sum find_sum(struct weft_group_average *average, uint64_t step,
                                         const void **posted)
{
    struct weft__average_sum sum = {.buffer = -1, .own = -1, .version = step};
    pthread_mutex_lock(&average->lock);
    if (weft__average_syncs(average, step) && average->synced.buffer >= 0)
        sum = average->synced;
    else if (average->newest.buffer >= 0 && average->newest.version >= average->taken)
        sum = average->newest;
    if (sum.buffer >= 0)
        average->buffers[sum.buffer].uses |= WEFT__HELD;
    if (sum.own >= 0)
        average->buffers[sum.own].uses |= WEFT__HELD;
    *posted = NULL;
    for (int i = 0; i < average->buffer_count; i++)
        if (average->buffers[i].uses & WEFT__POSTED)
            *posted = average->buffers[i].data;
    pthread_mutex_unlock(&average->lock);
    return sum;
}

/* What the object before has left comes on top of what this step gets, or is that. */
static void take_carried(struct weft_group_average *average, struct weft__average_taking *taking)
{
    struct weft__average_mix *mix = &taking->mix;
    if (taking->sum.buffer < 0)
        *mix = (struct weft__average_mix){.sum = average->carried,
                                          .divisor = average->carried_members};
    else
        taking->carries = (double)mix->divisor / average->carried_members;
}

void weft__average_choose(struct weft_group_average *average, uint64_t step, int difference)
{
    struct weft__average_taking *taking = &average->taking;
    const void *posted;
    struct weft__average_sum sum = find_sum(average, step, &posted);
    int accumulates = average->config.contribution == WEFT_AVERAGE_ACCUMULATE;
    /* A rank that goes on from an older checkpoint than others has steps without their version. */
    int synchronised = sum.buffer >= 0 && weft__average_syncs(average, step) && sum.version == step;
    int included = synchronised || (sum.buffer >= 0 && sum.sequence == step + 1);
    int idle = average->config.mode == WEFT_AVERAGE_NONE && !weft__average_syncs(average, step);
    int stale = !included && !accumulates, substitutes = stale && sum.own >= 0;
    *taking = (struct weft__average_taking){
        .sum = sum, .synchronised = synchronised, .idle = idle, .late = !included && !idle};
    if (sum.buffer >= 0)
        taking->mix = (struct weft__average_mix){
            .sum = average->buffers[sum.buffer].data,
            .own = substitutes ? average->buffers[sum.own].data : NULL,
            .posted = difference && !accumulates ? posted : NULL,
            .stale = stale,
            /* That of a synchronisation has been divided already; its own step takes it. */
            .divisor = sum.divided ? 1 : sum.members + (stale && !substitutes)};
    if (average->carried)
        take_carried(average, taking);
    /* The sum of a lone member is its contribution: nothing of it is left. */
    taking->mixes = taking->mix.sum && (!substitutes || sum.members > 1);
    taking->clears = !taking->mix.sum && accumulates;
}

static void apply(struct weft_group_average *average)
{
    const struct weft__average_taking *taking = &average->taking;
    if (taking->carries != 0) /* nobody else reads the sum */
        weft__average_combine(average, average->buffers[taking->sum.buffer].data, 1,
                              average->carried, taking->carries);
    if (taking->mixes)
        weft__average_mix(average, &taking->mix);
    else if (taking->clears)
        weft__average_clear(average);
}

void weft__average_taken(struct weft_group_average *average,
                         struct weft_group_average_result *result)
{
    const struct weft__average_taking *taking = &average->taking;
    const struct weft__average_sum *sum = &taking->sum;
    free_buffer(average, average->carried);
    average->carried = NULL;
    pthread_mutex_lock(&average->lock);
    unmark(average, WEFT__HELD | WEFT__POSTED);
    if (sum->buffer >= 0)
        average->taken = sum->version + 1;
    if (average->newest.buffer >= 0 && average->newest.version < average->taken) {
        average->newest.buffer = average->newest.own = -1; /* nobody takes it again */
        move(average, WEFT__NEWEST | WEFT__OWN, -1);
    }
    if (taking->synchronised) {
        average->synced.buffer = -1;
        move(average, WEFT__SYNCED, -1);
        average->stats.syncs++;
    }
    average->stats.steps++;
    average->stats.stale_steps += taking->late;
    average->stats.empty_steps += sum->buffer < 0 && !taking->idle;
    pthread_mutex_unlock(&average->lock);
    *result = (struct weft_group_average_result){.version = sum->version,
                                                 .members = sum->buffer >= 0 ? sum->members : 0,
                                                 .stale = taking->late,
                                                 .synchronised = taking->synchronised};
}

void weft__average_take(struct weft_group_average *average, uint64_t step, int difference,
                        struct weft_group_average_result *result)
{
    weft__average_choose(average, step, difference);
    apply(average);
    weft__average_taken(average, result);
}
