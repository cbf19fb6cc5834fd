/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the application fires its events. The list is sorted by what it names, so that the events of
 * a rank, of which there may be hundreds on each of many ranks, are looked up in it.
 */
#include "runtime/sim/sim.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/search.h"
#include "runtime/graph/schedule.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* An entry of the list. */
struct entry {
    const struct weft_sim_firing *given;
    atomic_int met; /* some event is the one that it names */
};

struct weft__sim_firings {
    const char *who;
    const struct weft_sim_firing *given;
    size_t count;
    struct entry *sorted; /* by label, or by node if it has none; those of one in their order */
};

/* Labels before nodes. */
static int compare_named(const struct weft_sim_firing *a, const char *label, weft_node_t node)
{
    if (a->label && label)
        return strcmp(a->label, label);
    if (a->label || label)
        return a->label ? -1 : 1;
    return a->event < node ? -1 : a->event > node;
}

static int compare_entries(const void *left, const void *right)
{
    const struct weft_sim_firing *a = ((const struct entry *)left)->given;
    const struct weft_sim_firing *b = ((const struct entry *)right)->given;
    int order = compare_named(a, b->label, b->event);

    return order ? order : (a > b) - (a < b);
}

static int check_firing(const char *who, const struct weft_sim_config *config, size_t i)
{
    const struct weft_sim_firing *firing = &config->firings[i];

    if (firing->rank < WEFT_SIM_EVERY_RANK || firing->rank >= config->ranks)
        return WEFT__INVALID("%s: config->firings[%zu].rank is %d, expected WEFT_SIM_EVERY_RANK or "
                             "0..%d",
                             who, i, firing->rank, config->ranks - 1);
    if (!(firing->us >= 0 && firing->us <= weft__ticks_us(WEFT__TICKS_MAX)))
        return WEFT__INVALID("%s: config->firings[%zu].us is %g, expected 0 to %.3g microseconds",
                             who, i, firing->us, weft__ticks_us(WEFT__TICKS_MAX));
    return WEFT_OK;
}

int weft__sim_firings_create(struct weft__sim_firings **firings, const char *who,
                             const struct weft_sim_config *config)
{
    struct weft__sim_firings *created;

    *firings = NULL;
    if (!config->firing_count)
        return WEFT_OK;
    if (!config->firings)
        return WEFT__INVALID("%s: config->firings is NULL, expected %zu firings", who,
                             config->firing_count);
    for (size_t i = 0; i < config->firing_count; i++) {
        int status = check_firing(who, config, i);

        if (status)
            return status;
    }
    created = weft__calloc(1, sizeof *created);
    if (created)
        created->sorted = weft__malloc(config->firing_count, sizeof *created->sorted);
    if (!created || !created->sorted) {
        weft__free(created);
        return weft__error_memory("a simulation");
    }
    created->who = who;
    created->given = config->firings;
    created->count = config->firing_count;
    for (size_t i = 0; i < created->count; i++) {
        created->sorted[i].given = &config->firings[i];
        atomic_init(&created->sorted[i].met, 0);
    }
    qsort(created->sorted, created->count, sizeof *created->sorted, compare_entries);
    *firings = created;
    return WEFT_OK;
}

void weft__sim_firings_destroy(struct weft__sim_firings *firings)
{
    if (!firings)
        return;
    weft__free(firings->sorted);
    weft__free(firings);
}

/* The last entry of the list that names an event of a rank; NULL: none does. */
static const struct weft_sim_firing *find(struct weft__sim_firings *firings, int rank,
                                          const char *label, weft_node_t node)
{
    const struct weft_sim_firing *found = NULL;
    size_t low = 0, high = firings->count;

    WEFT__SEARCH(low, high, middle, compare_named(firings->sorted[middle].given, label, node) < 0)
    for (; low < firings->count && !compare_named(firings->sorted[low].given, label, node); low++) {
        struct entry *entry = &firings->sorted[low];

        if (entry->given->rank != WEFT_SIM_EVERY_RANK && entry->given->rank != rank)
            continue;
        atomic_store_explicit(&entry->met, 1, memory_order_relaxed);
        found = entry->given;
    }
    return found;
}

void weft__sim_firings_take(struct weft__sim_firings *firings, const struct weft_schedule *schedule,
                            struct weft__sim_rank *rank)
{
    if (!firings || !rank->shape->events)
        return;
    for (uint32_t n = 0; n < rank->shape->nodes; n++) {
        const char *label;
        const struct weft_sim_firing *by_label, *by_node, *last;

        if (rank->shape->node[n].kind != WEFT_NODE_EVENT)
            continue;
        label = weft__schedule_label(schedule, (weft_node_t)n);
        by_label = label ? find(firings, schedule->rank, label, -1) : NULL;
        by_node = find(firings, schedule->rank, NULL, (weft_node_t)n);
        last = by_label > by_node || !by_node ? by_label : by_node;
        if (!last)
            continue;
        rank->state[n].left |= WEFT__SIM_TIMED;
        rank->state[n].start = weft__ticks(last->us);
    }
}

int weft__sim_firings_check(const struct weft__sim_firings *firings)
{
    for (size_t i = 0; firings && i < firings->count; i++) {
        const struct entry *entry = &firings->sorted[i];
        size_t index = (size_t)(entry->given - firings->given);

        if (atomic_load_explicit(&entry->met, memory_order_relaxed))
            continue;
        if (entry->given->label)
            return WEFT__INVALID("%s: config->firings[%zu].label is \"%.64s\", expected that of an "
                                 "event of %s",
                                 firings->who, index, entry->given->label,
                                 entry->given->rank == WEFT_SIM_EVERY_RANK ? "some rank"
                                                                           : "the rank");
        return WEFT__INVALID("%s: config->firings[%zu].event is %d, expected the node of an event",
                             firings->who, index, (int)entry->given->event);
    }
    return WEFT_OK;
}
