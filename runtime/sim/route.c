/* SPDX-License-Identifier: BSD-3-Clause */
/* Minimal dimension-ordered routes on a torus; up and down a fat tree by D-mod-k. */
#include "runtime/sim/route.h"

#include "runtime/base/error.h"

#include <stdio.h>
#include <string.h>

/* So many links fit: with the adapters of ranks their numbers stay in 32 bits. */
#define LINKS_MAX (UINT64_C(1) << 31)

/* ---- torus ---- */

static void torus_of(struct weft__routes *routes, uint64_t *links)
{
    routes->ports = 2 * routes->levels;
    *links = (uint64_t)routes->hosts * routes->ports;
    for (uint32_t d = routes->levels, stride = 1; d--; stride *= routes->extents[d]) {
        routes->stride[d] = stride;
        routes->longest += routes->extents[d] / 2;
    }
}

/* Whether the way from coordinate a, over `ahead` others in the positive direction, goes there. */
static int goes_up(uint32_t extent, uint32_t a, uint32_t ahead)
{
    uint32_t back = extent - ahead;

    return ahead < back || (ahead == back && (extent == 2 || a % 2 == 0));
}

/* The neighbour of a host in a dimension, up or down. */
static uint32_t neighbour(const struct weft__routes *routes, uint32_t host, uint32_t d, int up)
{
    uint32_t extent = routes->extents[d], stride = routes->stride[d];
    uint32_t at = host / stride % extent;

    if (up)
        return at + 1 == extent ? host - at * stride : host + stride;
    return at ? host - stride : host + (extent - 1) * stride;
}

static uint32_t torus_route(const struct weft__routes *routes, uint32_t from, uint32_t to,
                            uint32_t *links)
{
    uint32_t count = 0;

    for (uint32_t d = 0; d < routes->levels; d++) {
        uint32_t extent = routes->extents[d], stride = routes->stride[d];
        uint32_t a = from / stride % extent, b = to / stride % extent;
        uint32_t ahead = b >= a ? b - a : b + extent - a;
        int up = goes_up(extent, a, ahead);

        for (uint32_t steps = up ? ahead : extent - ahead; steps; steps--) {
            links[count++] = from * routes->ports + 2 * d + !up;
            from = neighbour(routes, from, d, up);
        }
    }
    return count;
}

/* ---- fat tree ---- */

static void tree_of(struct weft__routes *routes, uint32_t oversubscription, uint64_t *links)
{
    uint64_t below = 1, copies = 1;

    routes->ports = 1;
    routes->longest = 2 * routes->levels;
    *links = 0;
    for (uint32_t l = 0; l < routes->levels; l++) {
        uint32_t parents = l == 0   ? 1
                           : l == 1 ? routes->extents[0] / oversubscription
                                    : routes->extents[l - 1];

        routes->parents[l] = parents;
        routes->stride[l] = (uint32_t)below;
        routes->copies[l] = (uint32_t)copies;
        routes->first[l] = (uint32_t)*links;
        *links += 2 * (routes->hosts / below) * copies * parents;
        if (*links > LINKS_MAX)
            return;
        below *= routes->extents[l];
        copies *= parents;
    }
}

/*
 * What is below level l is named by the hosts that it has and by which of its copies it is; the
 * copies of the next level up are as many times more as there are links up, so that a copy's number
 * is made of the links that were gone up: link y of level l adds y copies[l].
 */
static uint32_t tree_link(const struct weft__routes *routes, uint32_t l, uint32_t host,
                          uint32_t copy, uint32_t up)
{
    uint32_t below = host / routes->stride[l] * routes->copies[l] + copy % routes->copies[l];

    return routes->first[l] + 2 * (below * routes->parents[l] + up);
}

static uint32_t tree_route(const struct weft__routes *routes, uint32_t from, uint32_t to,
                           uint32_t *links)
{
    uint32_t top = 0, copy = 0, count = 0;

    while (top + 1 < routes->levels &&
           from / routes->stride[top + 1] != to / routes->stride[top + 1])
        top++;
    for (uint32_t l = 0; l <= top; l++) {
        uint32_t up = to / routes->copies[l] % routes->parents[l];

        links[count++] = tree_link(routes, l, from, copy, up);
        copy += up * routes->copies[l];
    }
    for (uint32_t l = top + 1; l--;)
        links[count++] =
            tree_link(routes, l, to, copy, copy / routes->copies[l] % routes->parents[l]) + 1;
    return count;
}

/* ---- both ---- */

int weft__routes_of(const char *who, const char *name, const struct weft_fabric *fabric,
                    struct weft__routes *routes)
{
    struct weft__routes made = {
        .kind = fabric->kind, .levels = (uint32_t)fabric->levels, .hosts = 1};
    uint64_t links;

    for (uint32_t i = 0; i < made.levels; i++) {
        made.extents[i] = (uint32_t)fabric->extents[i];
        made.hosts *= made.extents[i];
    }
    if (made.kind == WEFT_FABRIC_TORUS)
        torus_of(&made, &links);
    else
        tree_of(&made, (uint32_t)fabric->oversubscription, &links);
    if (links > LINKS_MAX)
        return WEFT__INVALID("%s: %s->extents are those of more than %llu links, expected fewer",
                             who, name, (unsigned long long)LINKS_MAX);
    made.links = (uint32_t)links;
    *routes = made;
    return WEFT_OK;
}

uint32_t weft__route(const struct weft__routes *routes, uint32_t from, uint32_t to, uint32_t *links)
{
    if (from == to)
        return 0;
    return routes->kind == WEFT_FABRIC_TORUS ? torus_route(routes, from, to, links)
                                             : tree_route(routes, from, to, links);
}

uint64_t weft__route_links(const struct weft__routes *routes, uint32_t level)
{
    uint32_t extent = routes->extents[level];

    if (routes->kind == WEFT_FABRIC_TORUS)
        return (uint64_t)routes->hosts * (extent > 2 ? 2 : extent - 1);
    return (level + 1 < routes->levels ? routes->first[level + 1] : routes->links) -
           routes->first[level];
}

uint32_t weft__route_level(const struct weft__routes *routes, uint32_t link)
{
    uint32_t level = 0;

    if (routes->kind == WEFT_FABRIC_TORUS)
        return link % routes->ports / 2;
    while (level + 1 < routes->levels && link >= routes->first[level + 1])
        level++;
    return level;
}

static void torus_name(const struct weft__routes *routes, uint32_t host, char *text)
{
    int length = 0;

    for (uint32_t d = 0; d < routes->levels; d++)
        length += snprintf(text + length, WEFT__ROUTE_NAME - (size_t)length, "%c%u", d ? ',' : '(',
                           host / routes->stride[d] % routes->extents[d]);
    snprintf(text + length, WEFT__ROUTE_NAME - (size_t)length, ")");
}

void weft__route_name(const struct weft__routes *routes, uint32_t link, char *from, char *to)
{
    uint32_t level = weft__route_level(routes, link), up, below, above;
    char low[WEFT__ROUTE_NAME], high[WEFT__ROUTE_NAME];

    if (routes->kind == WEFT_FABRIC_TORUS) {
        torus_name(routes, link / routes->ports, from);
        torus_name(routes, neighbour(routes, link / routes->ports, level, !(link & 1)), to);
        return;
    }
    below = (link - routes->first[level]) / 2 / routes->parents[level];
    up = (link - routes->first[level]) / 2 % routes->parents[level];
    above = below / routes->copies[level] / routes->extents[level] * routes->copies[level] *
                routes->parents[level] +
            below % routes->copies[level] + up * routes->copies[level];
    if (level)
        snprintf(low, sizeof low, "switch %u.%u", level, below);
    else
        snprintf(low, sizeof low, "host %u", below);
    snprintf(high, sizeof high, "switch %u.%u", level + 1, above);
    snprintf(from, WEFT__ROUTE_NAME, "%s", link & 1 ? high : low);
    snprintf(to, WEFT__ROUTE_NAME, "%s", link & 1 ? low : high);
}
