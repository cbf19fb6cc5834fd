/* SPDX-License-Identifier: BSD-3-Clause */
/* Max-min fair shares; share.h says which. */
#include "runtime/sim/share.h"

#include "runtime/base/alloc.h"

#include <math.h>
#include <string.h>

/* Offers that differ by less are the same: the order of subtractions must not part flows that are
 * alike. */
#define SAME (1 + 1e-12)

int weft__shares_begin(struct weft__shares *shares, uint32_t count, uint32_t stride)
{
    *shares = (struct weft__shares){.resource_count = count, .stride = stride};
    shares->resources = weft__calloc(count + (size_t)1, sizeof *shares->resources);
    shares->dirty = weft__malloc(count + (size_t)1, sizeof *shares->dirty);
    shares->met = weft__malloc(count + (size_t)1, sizeof *shares->met);
    shares->offers = weft__malloc(count + (size_t)1, sizeof *shares->offers);
    return shares->resources && shares->dirty && shares->met && shares->offers ? 0 : -1;
}

void weft__shares_free(struct weft__shares *shares)
{
    weft__free(shares->resources);
    weft__free(shares->uses);
    weft__free(shares->flows);
    weft__free(shares->dirty);
    weft__free(shares->met);
    weft__free(shares->offers);
    weft__free(shares->affected);
}

int weft__shares_reserve(struct weft__shares *shares, uint32_t count)
{
    size_t uses = (size_t)count * shares->stride;

    if (uses >= UINT32_MAX)
        return -1;
    if (weft__grow((void **)&shares->uses, &shares->use_capacity, uses, sizeof *shares->uses) ||
        weft__grow((void **)&shares->affected, &shares->affected_capacity, count,
                   sizeof *shares->affected))
        return -1;
    if (count > shares->flow_capacity) {
        size_t before = shares->flow_capacity;

        if (weft__grow((void **)&shares->flows, &shares->flow_capacity, count,
                       sizeof *shares->flows))
            return -1;
        memset(shares->flows + before, 0, (shares->flow_capacity - before) * sizeof *shares->flows);
    }
    return 0;
}

static void soil(struct weft__shares *shares, uint32_t resource)
{
    if (!shares->resources[resource].dirty)
        shares->dirty[shares->dirty_count++] = resource;
    shares->resources[resource].dirty = 1;
}

void weft__shares_add(struct weft__shares *shares, uint32_t flow, const uint32_t *resources,
                      uint32_t count)
{
    struct weft__use *use = shares->uses + (size_t)flow * shares->stride;

    shares->flows[flow].uses = count;
    shares->flows[flow].share = HUGE_VAL;
    for (uint32_t i = 0; i < count; i++) {
        struct weft__resource *resource = &shares->resources[resources[i]];

        use[i] = (struct weft__use){.resource = resources[i], .next = resource->first};
        if (resource->first)
            shares->uses[resource->first - 1].previous = (uint32_t)(use + i - shares->uses) + 1;
        resource->first = (uint32_t)(use + i - shares->uses) + 1;
        resource->count++;
        soil(shares, resources[i]);
    }
}

void weft__shares_remove(struct weft__shares *shares, uint32_t flow)
{
    const struct weft__use *use = shares->uses + (size_t)flow * shares->stride;

    for (uint32_t i = 0; i < shares->flows[flow].uses; i++) {
        struct weft__resource *resource = &shares->resources[use[i].resource];

        if (use[i].previous)
            shares->uses[use[i].previous - 1].next = use[i].next;
        else
            resource->first = use[i].next;
        if (use[i].next)
            shares->uses[use[i].next - 1].previous = use[i].previous;
        resource->count--;
        soil(shares, use[i].resource);
    }
    shares->flows[flow].uses = 0;
}

/* ---- what is tied together ---- */

static void meet(struct weft__shares *shares, uint32_t number)
{
    struct weft__resource *resource = &shares->resources[number];

    if (resource->seen == shares->turn)
        return;
    resource->seen = shares->turn;
    resource->left = resource->capacity;
    resource->open = resource->count;
    shares->met[shares->met_count++] = number;
}

/* Whether a resource says more of what a flow can have than another one: it has less, or as much,
 * and others use it, too. */
static int is_tighter(const struct weft__resource *a, const struct weft__resource *b)
{
    return a->capacity < b->capacity ||
           (a->capacity <= b->capacity && a->count > 1 && b->count == 1);
}

/* A flow that is met for the first time. A resource that it has for itself holds it up no more than
 * its tightest one, and need not be looked at again; a flow that shares nothing has its share. */
static void meet_flow(struct weft__shares *shares, uint32_t flow)
{
    const struct weft__use *use = shares->uses + (size_t)flow * shares->stride;
    struct weft__sharer *sharer = &shares->flows[flow];
    const struct weft__resource *tightest = &shares->resources[use[0].resource];
    int alone = 1;

    sharer->seen = shares->turn;
    shares->affected[shares->affected_count++] = flow;
    for (uint32_t i = 0; i < sharer->uses; i++) {
        const struct weft__resource *resource = &shares->resources[use[i].resource];

        alone &= resource->count == 1;
        tightest = is_tighter(resource, tightest) ? resource : tightest;
    }
    for (uint32_t i = 0; i < sharer->uses; i++) {
        struct weft__resource *resource = &shares->resources[use[i].resource];

        meet(shares, use[i].resource);
        if (resource->count == 1 && (alone || resource != tightest))
            resource->open = 0;
    }
    sharer->share = alone ? tightest->capacity : 0;
}

static void meet_all(struct weft__shares *shares)
{
    shares->turn++;
    shares->affected_count = shares->met_count = 0;
    for (uint32_t i = 0; i < shares->dirty_count; i++) {
        shares->resources[shares->dirty[i]].dirty = 0;
        meet(shares, shares->dirty[i]);
    }
    shares->dirty_count = 0;
    for (uint32_t i = 0; i < shares->met_count; i++)
        for (uint32_t use = shares->resources[shares->met[i]].first; use;
             use = shares->uses[use - 1].next) {
            uint32_t flow = (use - 1) / shares->stride;

            if (shares->flows[flow].seen != shares->turn)
                meet_flow(shares, flow);
        }
}

/* ---- filling ---- */

static int offer_before(const struct weft__offer *a, const struct weft__offer *b)
{
    return a->share < b->share || (a->share <= b->share && a->resource < b->resource);
}

/* Puts an offer where it belongs in the binary heap of `count`, from place `at` downwards. */
static void sink(struct weft__offer *offers, uint32_t count, uint32_t at, struct weft__offer offer)
{
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && offer_before(&offers[child + 1], &offers[child]);
        if (!offer_before(&offers[child], &offer))
            break;
        offers[at] = offers[child];
    }
    offers[at] = offer;
}

/* All flows of a resource that have no share yet get this one. */
static void give(struct weft__shares *shares, uint32_t resource, double share)
{
    for (uint32_t use = shares->resources[resource].first; use; use = shares->uses[use - 1].next) {
        uint32_t flow = (use - 1) / shares->stride;
        const struct weft__use *uses = shares->uses + (size_t)flow * shares->stride;

        if (shares->flows[flow].share > 0)
            continue;
        shares->flows[flow].share = share;
        for (uint32_t i = 0; i < shares->flows[flow].uses; i++) {
            struct weft__resource *other = &shares->resources[uses[i].resource];

            other->left = other->left > share ? other->left - share : 0;
            other->open -= other->open > 0;
        }
    }
}

/* What a resource has for each flow that has no share yet grows as others get theirs, so that an
 * offer that is out of date stands too far in front, never too far behind. */
void weft__shares_solve(struct weft__shares *shares)
{
    struct weft__offer *offers = shares->offers;
    uint32_t count = 0;
    double level = 0;

    meet_all(shares);
    for (uint32_t i = 0; i < shares->met_count; i++) {
        const struct weft__resource *resource = &shares->resources[shares->met[i]];

        if (resource->open)
            offers[count++] = (struct weft__offer){resource->left / resource->open, shares->met[i]};
    }
    for (uint32_t at = count / 2; at--;)
        sink(offers, count, at, offers[at]);
    while (count) {
        struct weft__resource *resource = &shares->resources[offers[0].resource];
        double share = resource->open ? resource->left / resource->open : 0;
        struct weft__offer last = offers[count - 1];

        if (resource->open && share > offers[0].share * SAME) {
            sink(offers, count, 0, (struct weft__offer){share, offers[0].resource});
            continue;
        }
        if (resource->open) {
            level = share > level * SAME ? share : level;
            give(shares, offers[0].resource, level);
        }
        if (--count)
            sink(offers, count, 0, last);
    }
}
