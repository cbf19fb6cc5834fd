/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sorting by counting. Edges mostly come in such an order that one pass leaves each list ascending.
 * Where it does not, the lists are turned twice (who has an item, and back), which sorts them,
 * since turning goes through the keys in their order.
 */
#include "runtime/graph/lists.h"

#include "runtime/base/alloc.h"

#include <string.h>

/* first[k] counts the items of key k: it becomes their end, and filling from the back moves it to
 * their beginning. */
static void ends_of(uint32_t *first, size_t keys)
{
    uint32_t sum = 0;

    for (size_t k = 0; k < keys; k++)
        first[k] = sum += first[k];
    first[keys] = sum;
}

/* Inlined for each way. */
static inline void sort_edges(uint32_t *first, uint32_t *items, const struct weft__edge *edges,
                              size_t count, size_t keys, enum weft__way way)
{
    memset(first, 0, (keys + 1) * sizeof *first);
    for (size_t e = 0; e < count; e++)
        first[way == WEFT__SUCCESSORS ? edges[e].before : edges[e].after]++;
    ends_of(first, keys);
    for (size_t e = count; e-- > 0;)
        if (way == WEFT__SUCCESSORS)
            items[--first[edges[e].before]] = edges[e].after;
        else
            items[--first[edges[e].after]] = edges[e].before;
}

static int is_ascending(const uint32_t *first, const uint32_t *items, size_t keys)
{
    for (size_t k = 0; k < keys; k++)
        for (uint32_t i = first[k] + 1; i < first[k + 1]; i++)
            if (items[i - 1] >= items[i])
                return 0;
    return 1;
}

/* Lists of the keys that each item has, those ascending. */
static void turn(const uint32_t *first, const uint32_t *items, size_t keys, uint32_t *turned_first,
                 uint32_t *turned_items, size_t turned_keys)
{
    memset(turned_first, 0, (turned_keys + 1) * sizeof *turned_first);
    for (uint32_t i = 0; i < first[keys]; i++)
        turned_first[items[i]]++;
    ends_of(turned_first, turned_keys);
    for (size_t k = keys; k-- > 0;)
        for (uint32_t i = first[k + 1]; i-- > first[k];)
            turned_items[--turned_first[items[i]]] = (uint32_t)k;
}

static void drop_repeated(uint32_t *first, uint32_t *items, size_t keys)
{
    uint32_t kept = 0, begin = 0;

    for (size_t k = 0; k < keys; k++) {
        uint32_t end = first[k + 1];

        for (uint32_t i = begin; i < end; i++)
            if (i == begin || items[i] != items[i - 1])
                items[kept++] = items[i];
        begin = end;
        first[k + 1] = kept;
    }
}

static int sort_lists(uint32_t *first, uint32_t *items, size_t keys)
{
    struct weft__lists turned;
    size_t most = 0;

    for (uint32_t i = 0; i < first[keys]; i++)
        most = items[i] >= most ? (size_t)items[i] + 1 : most;
    turned.first = weft__malloc(most + 1, sizeof *turned.first);
    turned.items = weft__malloc(first[keys], sizeof *turned.items);
    if (turned.first && turned.items) {
        turn(first, items, keys, turned.first, turned.items, most);
        turn(turned.first, turned.items, most, first, items, keys);
        drop_repeated(first, items, keys);
        weft__lists_free(&turned);
        return 0;
    }
    weft__lists_free(&turned);
    return -1;
}

int weft__lists_fill(uint32_t *first, uint32_t *items, const struct weft__edge *edges, size_t count,
                     size_t keys, enum weft__way way)
{
    if (count >= UINT32_MAX)
        return -1;
    if (way == WEFT__SUCCESSORS)
        sort_edges(first, items, edges, count, keys, WEFT__SUCCESSORS);
    else
        sort_edges(first, items, edges, count, keys, WEFT__PREDECESSORS);
    return is_ascending(first, items, keys) ? 0 : sort_lists(first, items, keys);
}

int weft__lists_build(struct weft__lists *lists, const struct weft__edge *edges, size_t count,
                      size_t keys, enum weft__way way)
{
    lists->first = weft__malloc(keys + 1, sizeof *lists->first);
    lists->items = weft__malloc(count, sizeof *lists->items);
    if (lists->first && lists->items &&
        !weft__lists_fill(lists->first, lists->items, edges, count, keys, way))
        return 0;
    weft__lists_free(lists);
    return -1;
}

int weft__lists_of(struct weft__lists *lists, const struct weft_schedule *schedule,
                   enum weft__way way)
{
    return weft__lists_build(lists, schedule->edges, schedule->edge_count, schedule->node_count,
                             way);
}

void weft__lists_free(struct weft__lists *lists)
{
    weft__free(lists->first);
    weft__free(lists->items);
    *lists = (struct weft__lists){NULL, NULL};
}

int weft__lists_join(uint32_t *first, uint32_t *items, uint32_t *waits,
                     const struct weft_schedule *const *schedules, size_t count)
{
    uint32_t base = 0, used = 0;

    first[0] = 0;
    for (size_t i = 0; i < count; i++) {
        const struct weft_schedule *s = schedules[i];
        uint32_t nodes = s ? (uint32_t)s->node_count : 0;

        if (!nodes)
            continue;
        if (weft__lists_fill(first + base, items + used, s->edges, s->edge_count, nodes,
                             WEFT__SUCCESSORS))
            return -1;
        for (uint32_t e = 0; e < first[base + nodes]; e++) {
            items[used + e] += base;
            waits[items[used + e]]++;
        }
        for (uint32_t n = 0; n <= nodes; n++)
            first[base + n] += used;
        base += nodes;
        used = first[base];
    }
    return 0;
}

uint32_t weft__lists_way_around(const struct weft__lists *lists, struct weft__search *search,
                                uint32_t start, uint32_t most)
{
    uint32_t head = 0, tail = 0, depth = 0, level_end = 1;

    search->queue[tail++] = start;
    search->seen[start] = start + 1;
    while (head < tail && depth + 1 < most) {
        uint32_t i = search->queue[head++];

        for (uint32_t e = lists->first[i]; e < lists->first[i + 1]; e++) {
            uint32_t next = lists->items[e];

            search->steps++;
            if (next == start) {
                search->from[start] = i;
                return depth + 1;
            }
            if (search->seen[next] == start + 1)
                continue;
            search->seen[next] = start + 1;
            search->from[next] = i;
            search->queue[tail++] = next;
        }
        if (head == level_end) {
            level_end = tail;
            depth++;
        }
    }
    return 0;
}
