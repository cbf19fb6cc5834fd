/* SPDX-License-Identifier: BSD-3-Clause */
/* What came over the links of a fabric. */
#include "runtime/sim/flows.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/sim/sim.h"

#include <stdlib.h>

enum { LINKS_TOLD = 8 };

/* A link that carried something. */
struct carried {
    uint64_t bytes, messages;
    uint32_t link;
};

static int busier_first(const void *left, const void *right)
{
    const struct carried *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->messages != b->messages)
        return a->messages > b->messages ? -1 : 1;
    return a->link < b->link ? -1 : a->link > b->link;
}

/* Of what `links` could carry until `time`. */
static double utilisation(const struct weft__sim *sim, uint64_t bytes, uint64_t links,
                          weft__ticks_t time)
{
    const struct weft__flows *flows = sim->flows;

    if (!time || !links || !flows->links)
        return 0;
    return (double)bytes * flows->per_byte / flows->shares.resources[0].capacity /
           ((double)links * (double)time);
}

static int make_levels(const struct weft__sim *sim, weft__ticks_t time,
                       struct weft_sim_result *result)
{
    const struct weft__flows *flows = sim->flows;
    uint32_t count = flows->routes.levels;
    struct weft_sim_level *levels = weft__calloc(count, sizeof *levels);

    if (!levels)
        return weft__error_memory("the traffic of a simulation");
    for (uint32_t link = 0; link < flows->routes.links; link++)
        levels[weft__route_level(&flows->routes, link)].bytes += flows->loads[link].bytes;
    for (uint32_t level = 0; level < count; level++) {
        levels[level].links = weft__route_links(&flows->routes, level);
        levels[level].crossing_bytes = flows->crossing[level];
        levels[level].utilisation =
            utilisation(sim, levels[level].bytes, levels[level].links, time);
    }
    result->levels = levels;
    result->level_count = count;
    return WEFT_OK;
}

static void make_link(const struct weft__sim *sim, const struct carried *carried,
                      weft__ticks_t time, struct weft_sim_link *link)
{
    const struct weft__routes *routes = &sim->flows->routes;

    *link = (struct weft_sim_link){.level = (int)weft__route_level(routes, carried->link),
                                   .messages = carried->messages,
                                   .bytes = carried->bytes,
                                   .utilisation = utilisation(sim, carried->bytes, 1, time)};
    weft__route_name(routes, carried->link, link->from, link->to);
}

static int make_links(const struct weft__sim *sim, weft__ticks_t time,
                      struct weft_sim_result *result)
{
    const struct weft__flows *flows = sim->flows;
    size_t wanted = sim->config->links ? (size_t)sim->config->links : LINKS_TOLD, count = 0;
    struct carried *carried = weft__malloc(flows->routes.links, sizeof *carried);
    struct weft_sim_link *links = NULL;

    if (carried) {
        for (uint32_t link = 0; link < flows->routes.links; link++)
            if (flows->loads[link].messages)
                carried[count++] =
                    (struct carried){flows->loads[link].bytes, flows->loads[link].messages, link};
        qsort(carried, count, sizeof *carried, busier_first);
        count = count < wanted ? count : wanted;
        links = weft__malloc(count, sizeof *links);
    }
    for (size_t i = 0; links && i < count; i++)
        make_link(sim, &carried[i], time, &links[i]);
    weft__free(carried);
    if (!links)
        return weft__error_memory("the traffic of a simulation");
    result->links = links;
    result->link_count = count;
    return WEFT_OK;
}

int weft__flows_traffic(const struct weft__sim *sim, weft__ticks_t time,
                        struct weft_sim_result *result)
{
    int status;

    if (!sim->flows)
        return WEFT_OK;
    result->sent_bytes = sim->bytes + sim->signals * WEFT__SIM_SIGNAL_BYTES;
    status = make_levels(sim, time, result);
    return status ? status : make_links(sim, time, result);
}
