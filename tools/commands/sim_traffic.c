/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/commands/sim_traffic.h"
#include "tools/cli/table.h"

/* 0 of nothing. */
static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

/* Links that a byte has crossed, on average. */
static double hops(const struct weft_sim_result *result)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < result->level_count; i++)
        bytes += result->levels[i].bytes;
    return share(bytes, result->sent_bytes);
}

static long long hosts_of(const struct weft_fabric *fabric)
{
    long long hosts = 1;

    for (int i = 0; i < fabric->levels; i++)
        hosts *= fabric->extents[i];
    return hosts;
}

int sim_fabric_check(const struct weft_fabric *fabric, const char *command, int ranks)
{
    int per_host = fabric->ranks_per_host ? fabric->ranks_per_host : 1;

    if (!fabric->kind || ranks <= hosts_of(fabric) * per_host)
        return 0;
    return cli_usage(command,
                     "--net: a %s of %lld hosts for %d ranks; expected more hosts, or "
                     "ranks-per-host=%lld",
                     weft_fabric_kind_name(fabric->kind), hosts_of(fabric), ranks,
                     (ranks + hosts_of(fabric) - 1) / hosts_of(fabric));
}

/* ---- JSON ---- */

static json_t *json_fabric(const struct weft_fabric *fabric)
{
    json_t *extents = json_array();
    json_t *object =
        json_pack("{s:s, s:o, s:I, s:i, s:f, s:f}", "kind", weft_fabric_kind_name(fabric->kind),
                  "extents", extents, "hosts", (json_int_t)hosts_of(fabric), "ranks_per_host",
                  fabric->ranks_per_host ? fabric->ranks_per_host : 1, "hop_us", fabric->hop_us,
                  "link_us_per_byte", fabric->link_us_per_byte);

    for (int i = 0; i < fabric->levels; i++)
        json_array_append_new(extents, json_integer(fabric->extents[i]));
    if (fabric->kind == WEFT_FABRIC_FAT_TREE)
        json_object_set_new(object, "oversubscription",
                            json_integer(fabric->oversubscription ? fabric->oversubscription : 1));
    if (fabric->flags & WEFT_FABRIC_RANDOM)
        json_object_set_new(object, "seed", json_integer((json_int_t)fabric->seed));
    return object;
}

void sim_traffic_json(const struct weft_fabric *fabric, const struct weft_sim_result *result,
                      json_t *object)
{
    json_t *traffic, *levels = json_array(), *links = json_array();

    for (size_t i = 0; i < result->level_count; i++) {
        const struct weft_sim_level *level = &result->levels[i];

        json_array_append_new(levels,
                              json_pack("{s:I, s:I, s:I, s:f, s:f}", "links",
                                        (json_int_t)level->links, "bytes", (json_int_t)level->bytes,
                                        "crossing_bytes", (json_int_t)level->crossing_bytes,
                                        "share", share(level->crossing_bytes, result->sent_bytes),
                                        "utilisation", level->utilisation));
    }
    for (size_t i = 0; i < result->link_count; i++) {
        const struct weft_sim_link *link = &result->links[i];

        json_array_append_new(
            links, json_pack("{s:s, s:s, s:i, s:I, s:I, s:f}", "from", link->from, "to", link->to,
                             "level", link->level, "messages", (json_int_t)link->messages, "bytes",
                             (json_int_t)link->bytes, "utilisation", link->utilisation));
    }
    traffic = json_pack("{s:I, s:f, s:o, s:o}", "sent_bytes", (json_int_t)result->sent_bytes,
                        "hops_per_byte", hops(result), "levels", levels, "busiest", links);
    if (fabric->kind == WEFT_FABRIC_FAT_TREE)
        json_object_set_new(traffic, "top_share",
                            json_real(share(result->levels[result->level_count - 1].crossing_bytes,
                                            result->sent_bytes)));
    json_object_set_new(object, "fabric", json_fabric(fabric));
    json_object_set_new(object, "traffic", traffic);
}

/* ---- text ---- */

static void print_fabric(const struct weft_fabric *fabric)
{
    char text[192];
    int length = snprintf(text, sizeof text, "%s=", weft_fabric_kind_name(fabric->kind));

    for (int i = 0; i < fabric->levels; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%d", i ? "x" : "",
                           fabric->extents[i]);
    if (fabric->oversubscription > 1)
        length += snprintf(text + length, sizeof text - (size_t)length, ",oversubscription=%d",
                           fabric->oversubscription);
    if (fabric->ranks_per_host > 1)
        length += snprintf(text + length, sizeof text - (size_t)length, ",ranks-per-host=%d",
                           fabric->ranks_per_host);
    if (fabric->flags & WEFT_FABRIC_RANDOM)
        snprintf(text + length, sizeof text - (size_t)length, ",place=random:%llu",
                 (unsigned long long)fabric->seed);
    table_say(2, 11, "fabric     %s,hop=%g,link=%g (%lld hosts)", text, fabric->hop_us,
              fabric->link_us_per_byte, hosts_of(fabric));
}

static void print_levels(const struct weft_fabric *fabric, const struct weft_sim_result *result)
{
    for (size_t i = 0; i < result->level_count; i++) {
        const struct weft_sim_level *level = &result->levels[i];
        const char *top = fabric->kind == WEFT_FABRIC_FAT_TREE && i + 1 == result->level_count
                              ? " (the top)"
                              : "";

        table_say(4, 4, "%s %zu%s: %.4g %% of the bytes cross it, %llu links, utilisation %.4g %%",
                  fabric->kind == WEFT_FABRIC_TORUS ? "dimension" : "level", i, top,
                  100 * share(level->crossing_bytes, result->sent_bytes),
                  (unsigned long long)level->links, 100 * level->utilisation);
    }
}

void sim_traffic_print(const struct weft_fabric *fabric, const struct weft_sim_result *result)
{
    print_fabric(fabric);
    table_say(2, 11, "traffic    a byte crosses %.4g links on average", hops(result));
    print_levels(fabric, result);
    for (size_t i = 0; i < result->link_count; i++) {
        const struct weft_sim_link *link = &result->links[i];

        table_say(4, 4, "%s to %s: %llu bytes in %llu messages, utilisation %.4g %%", link->from,
                  link->to, (unsigned long long)link->bytes, (unsigned long long)link->messages,
                  100 * link->utilisation);
    }
}
