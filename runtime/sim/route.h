/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Routes through a fabric, worked out from the numbers of the hosts: nothing is kept of any pair.
 *
 * A link has one direction. On a torus that of host h in dimension d is 2 d + 0 (up), 1 (down)
 * behind the first of the host, 2 `levels` h. In a fat tree a level's links go from what is below
 * it, hosts or switches, to its switches: two for each pair, 0 up, 1 down.
 */
#ifndef WEFT_RUNTIME_SIM_ROUTE_H
#define WEFT_RUNTIME_SIM_ROUTE_H

#include <weft/fabric.h>

struct weft__routes {
    weft_fabric_kind_t kind;
    uint32_t levels;
    uint32_t hosts, links;
    uint32_t longest; /* links of the longest route */
    uint32_t ports;   /* links that leave a host */
    uint32_t extents[WEFT_FABRIC_LEVELS];
    uint32_t stride[WEFT_FABRIC_LEVELS]; /* torus: from a host to the next in a dimension; */
    /* tree: the hosts under what is below level l, which, from 0, is that of the links up to
     * switches of level l + 1 */
    uint32_t parents[WEFT_FABRIC_LEVELS]; /* links up of what is below */
    uint32_t copies[WEFT_FABRIC_LEVELS];  /* switches below that have the same hosts */
    uint32_t first[WEFT_FABRIC_LEVELS];   /* the level's first link */
};

/* Of a fabric that weft__fabric_read() has read, of some kind. WEFT_OK; WEFT_ERR_INVALID: it has
 * too many links. @p who, @p name: as there. */
int weft__routes_of(const char *who, const char *name, const struct weft_fabric *fabric,
                    struct weft__routes *routes);

/* The links of a message between two hosts, in their order; room for `longest`. Returns how many:
 * none on one host. */
uint32_t weft__route(const struct weft__routes *routes, uint32_t from, uint32_t to,
                     uint32_t *links);

/* How many links there are of a level: dimension, level of the tree. */
uint64_t weft__route_links(const struct weft__routes *routes, uint32_t level);
/* Which level a link is of. */
uint32_t weft__route_level(const struct weft__routes *routes, uint32_t link);

/* What a link leaves, and where it leads, in words: "(31,0)"; "host 7", "switch 1.3" (number 3 of
 * level 1). */
enum { WEFT__ROUTE_NAME = 48 };
void weft__route_name(const struct weft__routes *routes, uint32_t link, char *from, char *to);

#endif
