/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --layers and --merge, of a template that has layers: a table of them becomes parameters, and a
 * plan by what an allreduce costs says which are merged.
 */
#include "tools/cli/cli.h"
#include "tools/cli/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cli_merged {
    struct layers table;
    size_t *elements;
    size_t *groups;
    size_t group_count;
};

/* What a group costs: an allreduce of so many elements on so many ranks. */
struct price {
    struct weft_template_params params;
    int size;
};

static double price_of(void *user, double bytes)
{
    struct price *price = user;
    double us;

    price->params.count = (size_t)(bytes / (double)weft_dtype_size(price->params.dtype));
    return weft_template_choose("allreduce", price->size, &price->params, NULL, &us) ? NAN : us;
}

static int has_layers(const char *name)
{
    const struct weft_template *template = weft_template_find(name);

    return template && strstr(template->parameters, "layers");
}

static int take_table(struct cli *cli, struct cli_merged *merged, struct weft_merge_layer **layers)
{
    const char *command = cli->spec->name;
    size_t size = weft_dtype_size(cli->params.dtype), bytes = 0;
    int status = cli_layers_load(&merged->table, command, cli->layers);

    if (status)
        return status;
    size_t count = merged->table.count;
    merged->elements = weft_memory_alloc(count, sizeof *merged->elements);
    merged->groups = weft_memory_alloc(count, sizeof *merged->groups);
    *layers = weft_memory_alloc(count, sizeof **layers);
    if (!merged->elements || !merged->groups || !*layers)
        return cli_fail(command, "out of memory for %zu layers", count);
    for (size_t i = 0; i < count; i++) {
        size_t elements = merged->table.at[i].elements;

        if (elements > (PTRDIFF_MAX - bytes) / size)
            return cli_usage(command,
                             "--layers: layer %zu has %zu elements of %zu bytes, which are too "
                             "many; expected at most %zu bytes in all",
                             i, elements, size, (size_t)PTRDIFF_MAX);
        bytes += elements * size;
        merged->elements[i] = elements;
        (*layers)[i] = (struct weft_merge_layer){elements * size, merged->table.at[i].ready_us};
    }
    cli->params.count = bytes / size;
    return 0;
}

/* Groups of successive layers are what a template can have. */
static int take_groups(struct cli_merged *merged, const struct weft_merge_plan *plan)
{
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    int status = weft_merge_plan_get_summary(plan, &summary);

    merged->group_count = summary.group_count;
    for (size_t g = 0; g < summary.group_count && !status; g++) {
        struct weft_merge_group group = {.struct_size = sizeof group};

        status = weft_merge_plan_get_group(plan, g, &group);
        merged->groups[g] = group.layer_count;
    }
    return status;
}

static int plan_groups(struct cli *cli, struct cli_merged *merged,
                       const struct weft_merge_layer *layers, int size)
{
    const char *command = cli->spec->name;
    struct price price = {.params = cli->params, .size = size};
    struct weft_merge_config config;
    struct weft_merge_cost cost;
    struct weft_merge_plan *plan = NULL;

    weft_merge_config_init(&config);
    if (cli->merge && weft_merge_method_parse(cli->merge, &config))
        return cli_usage(command, "--merge: %s", weft_error_text());
    if (config.method == WEFT_MERGE_CYCLES)
        return cli_usage(command,
                         "--merge: '%s' waits for its cycles; expected exact, greedy, "
                         "wfbp, single or bucket",
                         cli->merge);
    if (price.params.algo && !strcmp(price.params.algo, "by-group"))
        price.params.algo = NULL;
    if (!isfinite(price_of(&price, 0)))
        return cli_usage(command, "%s", weft_error_text());
    weft_merge_cost_init(&cost);
    cost.function = price_of;
    cost.user = &price;
    int status = weft_merge_plan_create(&plan, layers, merged->table.count, &cost, &config);
    if (!status)
        status = take_groups(merged, plan);
    weft_merge_plan_destroy(plan);
    return status ? cli_usage(command, "--merge: %s", weft_error_text()) : 0;
}

int cli_settle_layers(struct cli *cli, const char *name, int size)
{
    struct weft_merge_layer *layers = NULL;

    if (cli->merge && !cli->layers)
        return cli_usage(cli->spec->name, "--merge: '%s' without --layers; expected both",
                         cli->merge);
    if (!cli->layers || !has_layers(name))
        return 0;
    struct cli_merged *merged = calloc(1, sizeof *merged);
    if (!merged)
        return cli_fail(cli->spec->name, "out of memory");
    cli->merged = merged;
    int status = take_table(cli, merged, &layers);
    if (!status)
        status = plan_groups(cli, merged, layers, size);
    weft_memory_free(layers);
    cli->params.layers = merged->elements;
    cli->params.layer_count = merged->table.count;
    cli->params.groups = merged->groups;
    cli->params.group_count = merged->group_count;
    return status;
}

void cli_merged_free(struct cli_merged *merged)
{
    if (!merged)
        return;
    layers_free(&merged->table);
    weft_memory_free(merged->elements);
    weft_memory_free(merged->groups);
    free(merged);
}

int cli_layer_firings(const struct cli *cli, struct weft_sim_firing **firings, size_t *count)
{
    const struct cli_merged *merged = cli->merged;
    struct weft_sim_firing *typed = *firings, *all;
    char label[48];

    if (!merged)
        return 0;
    all = calloc(merged->table.count + *count, sizeof *all);
    if (!all)
        return cli_fail(cli->spec->name, "out of memory");
    size_t used = 0;
    for (size_t i = 0; i < merged->table.count; i++, used++) {
        snprintf(label, sizeof label, "ready %zu", i);
        all[used] = (struct weft_sim_firing){.label = strdup(label),
                                             .rank = WEFT_SIM_EVERY_RANK,
                                             .us = merged->table.at[i].ready_us};
    }
    for (size_t i = 0; i < *count; i++)
        all[used++] = typed[i];
    free(typed);
    *firings = all;
    *count = used;
    for (size_t i = 0; i < used; i++)
        if (!all[i].label && i < merged->table.count)
            return cli_fail(cli->spec->name, "out of memory");
    return 0;
}
