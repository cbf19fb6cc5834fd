/* SPDX-License-Identifier: BSD-3-Clause */
/* Routes: every pair of small tori and fat trees, and what is known of D-mod-k. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/sim/fabric.h"
#include "runtime/sim/route.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { LONGEST = 32, LINKS = 4096 };

static struct weft__routes routes_of(const char *text)
{
    struct weft_fabric fabric, full;
    struct weft__routes routes;
    struct weft_net net;

    weft_net_init(&net);
    weft_fabric_init(&fabric);
    cr_assert_eq(weft_fabric_parse(text, &fabric, &net), WEFT_OK, "%s", weft_error_text());
    cr_assert_eq(weft__fabric_read("test", "fabric", &fabric, &full), WEFT_OK);
    cr_assert_eq(weft__routes_of("test", "fabric", &full, &routes), WEFT_OK);
    cr_assert(routes.longest <= LONGEST && routes.links <= LINKS);
    return routes;
}

static const char *const tori[] = {"torus=1",     "torus=2",   "torus=3",     "torus=7",
                                   "torus=8",     "torus=4x4", "torus=3x5",   "torus=6x4",
                                   "torus=2x3x4", "torus=2x2", "torus=5x1x3", "torus=2x3x2x3"};
static const char *const trees[] = {"fat-tree=4",
                                    "fat-tree=1x1",
                                    "fat-tree=2x2",
                                    "fat-tree=2x2x2",
                                    "fat-tree=3x4",
                                    "fat-tree=4x2x3",
                                    "fat-tree=4x4x4",
                                    "fat-tree=4x4x3,oversubscription=2",
                                    "fat-tree=6x3x2,oversubscription=6",
                                    "fat-tree=8x6,oversubscription=4"};

/* ---- tori ---- */

static void coordinates(const struct weft__routes *routes, uint32_t host, int *at)
{
    for (int d = (int)routes->levels - 1; d >= 0; d--) {
        at[d] = (int)(host % routes->extents[d]);
        host /= routes->extents[d];
    }
}

static int round_a_ring(int a, int b, int extent)
{
    int ahead = (b - a + extent) % extent;

    return ahead < extent - ahead ? ahead : extent - ahead;
}

/* Walks a route by coordinates, and returns how long it is; dimensions come in their order. */
static int walk_torus(const struct weft__routes *routes, uint32_t from, uint32_t to, uint64_t *used)
{
    int at[WEFT_FABRIC_LEVELS], here[WEFT_FABRIC_LEVELS], goal[WEFT_FABRIC_LEVELS], last = 0;
    uint32_t links[LONGEST], count = weft__route(routes, from, to, links);

    coordinates(routes, from, at);
    coordinates(routes, to, goal);
    for (uint32_t i = 0; i < count; i++) {
        int d = (int)weft__route_level(routes, links[i]), extent = (int)routes->extents[d];

        coordinates(routes, links[i] / routes->ports, here);
        cr_assert_eq(memcmp(here, at, routes->levels * sizeof *at), 0, "%u to %u: it jumps", from,
                     to);
        cr_assert(d >= last, "%u to %u: dimension %d after %d", from, to, d, last);
        last = d;
        at[d] = (at[d] + (links[i] % 2 ? extent - 1 : 1)) % extent;
        used[links[i]]++;
    }
    cr_assert_eq(memcmp(at, goal, routes->levels * sizeof *at), 0, "%u to %u: not there", from, to);
    return (int)count;
}

static int distance(const struct weft__routes *routes, uint32_t from, uint32_t to)
{
    int a[WEFT_FABRIC_LEVELS], b[WEFT_FABRIC_LEVELS], sum = 0;

    coordinates(routes, from, a);
    coordinates(routes, to, b);
    for (uint32_t d = 0; d < routes->levels; d++)
        sum += round_a_ring(a[d], b[d], (int)routes->extents[d]);
    return sum;
}

Test(route, on_a_torus_every_pair_is_joined_by_a_shortest_route_in_the_order_of_dimensions)
{
    for (size_t i = 0; i < COUNT_OF(tori); i++) {
        struct weft__routes routes = routes_of(tori[i]);
        uint64_t used[LINKS] = {0};
        uint32_t longest = 0;

        for (uint32_t from = 0; from < routes.hosts; from++)
            for (uint32_t to = 0; to < routes.hosts; to++) {
                int length = walk_torus(&routes, from, to, used);

                cr_expect_eq(length, distance(&routes, from, to), "%s: %u to %u: %d links", tori[i],
                             from, to, length);
                longest = (uint32_t)length > longest ? (uint32_t)length : longest;
            }
        cr_expect_eq(longest, routes.longest, "%s", tori[i]);
    }
}

/* All pairs together load every link of a dimension alike where rings are odd; where they are even,
 * both directions. Links that do not exist carry nothing, and all others something. */
Test(route, a_torus_is_loaded_evenly_by_all_pairs)
{
    for (size_t i = 0; i < COUNT_OF(tori); i++) {
        struct weft__routes routes = routes_of(tori[i]);
        uint64_t used[LINKS] = {0}, links[WEFT_FABRIC_LEVELS] = {0};
        uint64_t most[WEFT_FABRIC_LEVELS] = {0}, ways[WEFT_FABRIC_LEVELS][2] = {{0}};

        for (uint32_t from = 0; from < routes.hosts; from++)
            for (uint32_t to = 0; to < routes.hosts; to++)
                (void)walk_torus(&routes, from, to, used);
        for (uint32_t link = 0; link < routes.links; link++) {
            uint32_t d = weft__route_level(&routes, link);

            links[d] += used[link] > 0;
            most[d] = used[link] > most[d] ? used[link] : most[d];
            ways[d][link % 2] += used[link];
        }
        for (uint32_t d = 0; d < routes.levels; d++) {
            cr_expect_eq(links[d], weft__route_links(&routes, d), "%s, dimension %u", tori[i], d);
            if (routes.extents[d] > 2)
                cr_expect_eq(ways[d][0], ways[d][1], "%s, dimension %u", tori[i], d);
            if (routes.extents[d] % 2)
                cr_expect_eq(most[d] * links[d], ways[d][0] + ways[d][1], "%s, dimension %u",
                             tori[i], d);
        }
    }
}

Test(route, of_two_ways_as_long_even_coordinates_go_up_and_odd_ones_down)
{
    struct weft__routes routes = routes_of("torus=8");
    uint32_t links[LONGEST];

    cr_assert_eq(weft__route(&routes, 2, 6, links), 4);
    cr_expect(links[0] == 2 * 2 && links[3] == 2 * 5);
    cr_assert_eq(weft__route(&routes, 3, 7, links), 4);
    cr_expect(links[0] == 2 * 3 + 1 && links[3] == 2 * 0 + 1);
}

/* ---- trees ---- */

/* Levels that a message must go up: to the first at which both hosts are under one switch. */
static uint32_t height(const struct weft__routes *routes, uint32_t from, uint32_t to)
{
    uint32_t level = 0;

    for (; from != to; level++) {
        from /= routes->extents[level];
        to /= routes->extents[level];
    }
    return level;
}

/* The names of a route's links are a way from one host to the other. */
static void walk_tree(const struct weft__routes *routes, uint32_t from, uint32_t to, uint64_t *used)
{
    char at[WEFT__ROUTE_NAME], a[WEFT__ROUTE_NAME], b[WEFT__ROUTE_NAME], goal[WEFT__ROUTE_NAME];
    uint32_t links[LONGEST], count = weft__route(routes, from, to, links);
    uint32_t up = height(routes, from, to);

    snprintf(at, sizeof at, "host %u", from);
    snprintf(goal, sizeof goal, "host %u", to);
    cr_assert_eq(count, 2 * up, "%u to %u: %u links, expected %u", from, to, count, 2 * up);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t level = i < up ? i : count - 1 - i;

        weft__route_name(routes, links[i], a, b);
        cr_assert_str_eq(a, at, "%u to %u: it jumps from %s to %s", from, to, at, a);
        cr_assert_eq(weft__route_level(routes, links[i]), level);
        memcpy(at, b, sizeof at);
        used[links[i]]++;
    }
    cr_assert_str_eq(at, goal);
}

Test(route, in_a_fat_tree_every_pair_goes_up_to_the_lowest_common_switch_and_down)
{
    for (size_t i = 0; i < COUNT_OF(trees); i++) {
        struct weft__routes routes = routes_of(trees[i]);
        uint64_t used[LINKS] = {0}, sum = 0;

        for (uint32_t from = 0; from < routes.hosts; from++)
            for (uint32_t to = 0; to < routes.hosts; to++)
                walk_tree(&routes, from, to, used);
        for (uint32_t level = 0; level < routes.levels; level++)
            sum += weft__route_links(&routes, level);
        cr_expect_eq(sum, routes.links, "%s", trees[i]);
        /* by destination, what is a multiple of the links up uses all of them */
        for (uint32_t link = 0; link < routes.links && routes.hosts > routes.extents[0]; link++)
            cr_expect(used[link], "%s: link %u is of no route", trees[i], link);
    }
}

/* However far they come from, messages to one host come down the same way, as far as they share it:
 * what D-mod-k is. */
Test(route, the_way_down_depends_on_the_destination_alone)
{
    for (size_t i = 0; i < COUNT_OF(trees); i++) {
        struct weft__routes routes = routes_of(trees[i]);

        for (uint32_t to = 0; to < routes.hosts; to++) {
            uint32_t down[LONGEST], links[LONGEST];
            uint32_t longest = 0;

            for (uint32_t from = 0; from < routes.hosts; from++) {
                uint32_t up = weft__route(&routes, from, to, links) / 2;

                for (uint32_t j = 0; j < up; j++) {
                    uint32_t link = links[2 * up - 1 - j];

                    if (j >= longest)
                        down[longest++] = link;
                    cr_expect_eq(down[j], link, "%s: %u to %u", trees[i], from, to);
                }
            }
        }
    }
}

/* Zahavi (JPDC 2012): shifts do not contend in a full tree. With twice as many links down as up
 * at the leaves there are two messages on the busiest links. */
Test(route, shifts_of_all_ranks_share_no_link_of_a_full_tree)
{
    static const struct {
        const char *text;
        uint64_t most;
    } cases[] = {{"fat-tree=4x4", 1},
                 {"fat-tree=4x4x4", 1},
                 {"fat-tree=3x3x3", 1},
                 {"fat-tree=2x2x2x2", 1},
                 {"fat-tree=8x8,oversubscription=2", 2},
                 {"fat-tree=8x8,oversubscription=8", 8}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct weft__routes routes = routes_of(cases[i].text);
        uint64_t most = 0;

        for (uint32_t shift = 1; shift < routes.hosts; shift++) {
            uint64_t used[LINKS] = {0};

            for (uint32_t from = 0; from < routes.hosts; from++)
                walk_tree(&routes, from, (from + shift) % routes.hosts, used);
            for (uint32_t link = 0; link < routes.links; link++)
                most = used[link] > most ? used[link] : most;
        }
        cr_expect_eq(most, cases[i].most, "%s: %llu messages on a link", cases[i].text,
                     (unsigned long long)most);
    }
}

Test(route, links_have_the_names_of_what_they_join)
{
    struct weft__routes torus = routes_of("torus=4x3");
    struct weft__routes tree = routes_of("fat-tree=4x4x3,oversubscription=2");
    char from[WEFT__ROUTE_NAME], to[WEFT__ROUTE_NAME];

    weft__route_name(&torus, 11 * 4 + 0, from, to); /* of (3,2): dimension 0, up */
    cr_expect(!strcmp(from, "(3,2)") && !strcmp(to, "(0,2)"), "%s to %s", from, to);
    weft__route_name(&torus, 9 * 4 + 3, from, to); /* of (3,0): dimension 1, down */
    cr_expect(!strcmp(from, "(3,0)") && !strcmp(to, "(3,2)"), "%s to %s", from, to);
    weft__route_name(&tree, 2 * 7 + 1, from, to);
    cr_expect(!strcmp(from, "switch 1.1") && !strcmp(to, "host 7"), "%s to %s", from, to);
}

Test(route, a_fabric_of_too_many_links_is_refused)
{
    struct weft_fabric fabric = {.struct_size = sizeof fabric,
                                 .kind = WEFT_FABRIC_TORUS,
                                 .levels = 8,
                                 .extents = {8, 8, 8, 8, 8, 8, 8, 128}};
    struct weft_fabric full;
    struct weft__routes routes;

    cr_assert_eq(weft__fabric_read("test", "fabric", &fabric, &full), WEFT_OK);
    cr_expect_eq(weft__routes_of("test", "fabric", &full, &routes), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "fabric->extents"), "%s", weft_error_text());
    fabric.extents[7] = 1024;
    cr_expect_eq(weft__fabric_read("test", "fabric", &fabric, &full), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "fabric->extents[7] is 1024"), "%s", weft_error_text());
}
