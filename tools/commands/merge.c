/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft merge: which layers' gradients to merge before their allreduce. Reads a table of layers, has
 * weft_merge_plan_create() make a plan a method, and shows them: as a table, as JSON, as a picture.
 */
#include "tools/cli/cli.h"
#include "tools/cli/layers.h"
#include "tools/cli/table.h"
#include "tools/cli/transports.h"
#include "tools/commands/merge_cost.h"
#include "tools/page/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "merge"
#define METHODS "exact,greedy,wfbp,single,bucket:26214400"

enum { MOST_METHODS = 32, GROUPS_SHOWN = 56 };

struct method {
    struct weft_merge_config config;
    char name[WEFT_MERGE_METHOD_TEXT];
    struct weft_merge_plan *plan;
    struct weft_merge_summary summary;
};

struct merge {
    struct cli *cli;
    const char *cost_file;
    const char *transport;
    const char *plot;
    weft_dtype_t dtype;
    struct method methods[MOST_METHODS];
    size_t method_count;
    struct merge_cost cost;
    struct layers layers;
    /** As the planner wants them, and what they are together. */
    struct weft_merge_layer *wanted;
    size_t elements;
    size_t bytes;
    double best_us;
    /** Of the times that people see: microseconds of it, and its name. */
    double unit_us;
    const char *unit;
};

/* ---- options ---- */

static int take_net(void *target, const char *command, const char *text)
{
    return merge_cost_parse(&((struct merge *)target)->cost, command, text);
}

static int add_method(struct merge *merge, const char *command, const char *word)
{
    struct method *method = &merge->methods[merge->method_count];

    if (merge->method_count == MOST_METHODS)
        return cli_usage(command, "--method: more than %d; expected at most as many", MOST_METHODS);
    weft_merge_config_init(&method->config);
    if (weft_merge_method_parse(word, &method->config) ||
        weft_merge_method_format(&method->config, method->name, sizeof method->name))
        return cli_usage(command, "--method: %s", weft_error_text());
    merge->method_count++;
    return 0;
}

static int add_methods(struct merge *merge, const char *command, const char *text)
{
    char *words = strdup(text), *rest = words, *word;
    int status = words ? 0 : cli_fail(command, "out of memory");

    while (!status && (word = strsep(&rest, ",")))
        status = strcmp(word, "all") == 0 ? add_methods(merge, command, METHODS)
                                          : add_method(merge, command, word);
    free(words);
    return status;
}

static int take_methods(void *target, const char *command, const char *text)
{
    struct merge *merge = target;

    merge->method_count = 0; /* a default that is overridden */
    return add_methods(merge, command, text);
}

/* ---- plans ---- */

static int take_layers(struct merge *merge)
{
    size_t count = merge->layers.count;
    size_t size = weft_dtype_size(merge->dtype);

    merge->wanted = weft_memory_alloc(count, sizeof *merge->wanted);
    if (!merge->wanted)
        return cli_fail(COMMAND, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const struct layer *layer = &merge->layers.at[i];
        if (layer->elements > (SIZE_MAX - merge->bytes) / size) {
            return cli_usage(COMMAND,
                             "layer %zu: %zu elements of %zu bytes are too many; expected "
                             "at most %zu bytes in all",
                             i, layer->elements, size, SIZE_MAX);
        }
        merge->wanted[i] = (struct weft_merge_layer){layer->elements * size, layer->ready_us};
        merge->elements += layer->elements;
        merge->bytes += layer->elements * size;
    }
    return 0;
}

static int settle_cost(struct merge *merge)
{
    struct cli *cli = merge->cli;

    if (cli_typed(cli, "net"))
        return merge->cost_file ? cli_usage(COMMAND, "--net and --cost; expected one of them") : 0;
    return merge_cost_load(&merge->cost, COMMAND, merge->cost_file, merge->transport, merge->dtype,
                           cli->ranks ? cli->ranks : 4, merge->bytes ? merge->bytes : 1);
}

static int make_plans(struct merge *merge)
{
    merge->best_us = INFINITY;
    for (size_t i = 0; i < merge->method_count; i++) {
        struct method *method = &merge->methods[i];
        int status = weft_merge_plan_create(&method->plan, merge->wanted, merge->layers.count,
                                            &merge->cost.cost, &method->config);
        method->summary = (struct weft_merge_summary){.struct_size = sizeof method->summary};
        if (!status)
            status = weft_merge_plan_get_summary(method->plan, &method->summary);
        if (status == WEFT_ERR_MEMORY)
            return cli_fail(COMMAND, "%s: %s", method->name, weft_error_text());
        if (status)
            return cli_usage(COMMAND, "%s: %s", method->name, weft_error_text());
        merge->best_us = fmin(merge->best_us, method->summary.end_us);
    }
    return 0;
}

static struct weft_merge_group group_of(const struct method *method, size_t index)
{
    struct weft_merge_group group = {.struct_size = sizeof group};

    weft_merge_plan_get_group(method->plan, index, &group);
    return group;
}

/* ---- as JSON ---- */

static int print_json(const struct merge *merge, const struct method *method)
{
    const struct weft_merge_summary *summary = &method->summary;
    json_t *groups = json_array(), *starts = json_array(), *ends = json_array();
    json_t *hidden = json_array();

    for (size_t i = 0; i < summary->group_count; i++) {
        struct weft_merge_group group = group_of(method, i);
        json_t *layers = json_array();
        for (size_t j = 0; j < group.layer_count; j++)
            json_array_append_new(layers, json_integer((json_int_t)group.layers[j]));
        json_array_append_new(groups, layers);
        json_array_append_new(starts, json_real(group.start_us));
        json_array_append_new(ends, json_real(group.end_us));
        json_array_append_new(hidden, json_real(group.hidden_us));
    }
    json_t *object = json_pack(
        "{s:s, s:o, s:f, s:f, s:s, s:f, s:f, s:f, s:I, s:I, s:I, s:o, s:o, s:o}", "method",
        method->name, "groups", groups, "end_us", summary->end_us, "hidden_fraction",
        summary->hidden_fraction, "optimal", weft_merge_optimal_name(summary->optimal), "ready_us",
        summary->ready_us, "communication_us", summary->communication_us, "hidden_us",
        summary->hidden_us, "layers", (json_int_t)summary->layer_count, "elements",
        (json_int_t)merge->elements, "bytes", (json_int_t)merge->bytes, "group_start_us", starts,
        "group_end_us", ends, "group_hidden_us", hidden);
    if (object && merge->cost.cost.point_count == 0) {
        json_object_set_new(object, "a_us", json_real(merge->cost.cost.a_us));
        json_object_set_new(object, "b_us_per_byte", json_real(merge->cost.cost.b_us_per_byte));
    }
    return cli_print_json_exactly(COMMAND, object, 15);
}

/* ---- for people ---- */

/* One unit for all, so that they compare. */
static void choose_unit(struct merge *merge)
{
    double us = fmax(merge->best_us, merge->methods[0].summary.ready_us);

    merge->unit_us = us < 1e4 ? 1 : us < 1e7 ? 1e3 : 1e6;
    merge->unit = us < 1e4 ? "us" : us < 1e7 ? "ms" : "s";
}

/* With four figures. */
static void format_time(const struct merge *merge, double us, char *text, size_t size)
{
    double value = us / merge->unit_us;
    int digits = value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;

    snprintf(text, size, "%.*f %s", value == floor(value) ? 0 : digits, value, merge->unit);
}

static void format_bytes(size_t bytes, char *text, size_t size)
{
    if (bytes < 10240)
        snprintf(text, size, "%zu bytes", bytes);
    else if (bytes < (size_t)10 << 20)
        snprintf(text, size, "%.4g KiB", (double)bytes / 1024);
    else
        snprintf(text, size, "%.4g MiB", (double)bytes / 1048576);
}

/* "3", "0-12", or "4, 2, 9" of what is sent out of order. @return how long it is. */
static size_t format_group(const struct weft_merge_group *group, char *text, size_t size)
{
    size_t first = group->layers[0], last = group->layers[group->layer_count - 1];

    if (group->layer_count == 1)
        return (size_t)snprintf(text, size, "%zu", first);
    if (last == first + group->layer_count - 1)
        return (size_t)snprintf(text, size, "%zu-%zu", first, last);
    return (size_t)snprintf(text, size, "%zu, %zu%s", first, group->layers[1],
                            group->layer_count > 2 ? ", .." : "");
}

/* "0-12 | 13 | 14-63", cut where it is long. */
static void format_groups(const struct method *method, char *text, size_t size)
{
    size_t used = 0, count = method->summary.group_count;

    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        struct weft_merge_group group = group_of(method, i);
        char word[64];
        size_t length = format_group(&group, word, sizeof word);
        if (used + length > GROUPS_SHOWN && i + 1 < count) {
            snprintf(text + used, size - used, " | ...");
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " | " : "", word);
    }
}

static void print_head(const struct merge *merge)
{
    char ready[32], bytes[32];
    double last = merge->methods[0].summary.ready_us;

    format_time(merge, last, ready, sizeof ready);
    format_bytes(merge->bytes, bytes, sizeof bytes);
    table_say(0, 2, "%s: %zu layer%s, %zu elements, %s as %s; the last gradient is there after %s",
              merge->layers.name ? merge->layers.name : merge->cli->operands[0],
              merge->layers.count, merge->layers.count == 1 ? "" : "s", merge->elements, bytes,
              weft_dtype_name(merge->dtype), ready);
    table_say(0, 2, "an allreduce takes %s", merge->cost.text);
    printf("\n");
}

static int print_table(const struct merge *merge)
{
    static const char *const headings[] = {"method",  ">groups",  ">end",          ">exposed",
                                           ">hidden", ">to best", "layers a group"};
    enum { COLUMNS = sizeof headings / sizeof headings[0] };
    struct table *table = table_create(headings, COLUMNS);
    int all = 0, any = 0;

    print_head(merge);
    for (size_t i = 0; table && i < merge->method_count; i++) {
        const struct weft_merge_summary *summary = &merge->methods[i].summary;
        char end[32], exposed[32], groups[GROUPS_SHOWN + 80];

        format_time(merge, summary->end_us, end, sizeof end);
        format_time(merge, fmax(summary->end_us - summary->ready_us, 0), exposed, sizeof exposed);
        format_groups(&merge->methods[i], groups, sizeof groups);
        table_cell(table, "%s", merge->methods[i].name);
        table_cell(table, "%zu", summary->group_count);
        table_cell(table, "%s", end);
        table_cell(table, "%s", exposed);
        table_cell(table, "%.1f %%", 100 * summary->hidden_fraction);
        table_cell(table, "%.3f", merge->best_us > 0 ? summary->end_us / merge->best_us : 1.0);
        table_cell(table, "%s", groups);
        all |= summary->optimal == WEFT_MERGE_OPTIMAL_ALL;
        any |= summary->optimal == WEFT_MERGE_OPTIMAL_CONTIGUOUS;
    }
    int status = table ? table_print(table, stdout) : -1;
    table_destroy(table);
    if (status)
        return cli_fail(COMMAND, "out of memory");
    if (all)
        table_say(0, 2, "\nNo grouping of these layers, in any order, ends before exact.");
    else if (any)
        table_say(0, 2, "\nNo groups of successive layers, sent in this order, end before exact.");
    return cli_finish(COMMAND);
}

/* ---- as a picture ---- */

struct picture {
    struct timeline timeline;
    struct timeline_method methods[MOST_METHODS];
    char remarks[MOST_METHODS][160];
    char subtitle[320];
    const char **names;
    double *ready_us;
    struct timeline_group *groups;
};

static int take_memory(struct picture *picture, const struct merge *merge)
{
    size_t groups = 1;

    for (size_t i = 0; i < merge->method_count; i++)
        groups += merge->methods[i].summary.group_count;
    picture->names = weft_memory_alloc(merge->layers.count, sizeof *picture->names);
    picture->ready_us = weft_memory_alloc(merge->layers.count, sizeof *picture->ready_us);
    picture->groups = weft_memory_alloc(groups, sizeof *picture->groups);
    return picture->names && picture->ready_us && picture->groups ? 0 : -1;
}

static void fill_method(struct picture *picture, const struct merge *merge, size_t number,
                        struct timeline_group *groups)
{
    const struct method *method = &merge->methods[number];
    const struct weft_merge_summary *summary = &method->summary;
    struct timeline_method *shown = &picture->methods[number];
    char exposed[32];
    int used;

    for (size_t i = 0; i < summary->group_count; i++) {
        struct weft_merge_group group = group_of(method, i);
        groups[i] = (struct timeline_group){.layers = group.layers,
                                            .layer_count = group.layer_count,
                                            .start_us = group.start_us,
                                            .end_us = group.end_us};
        format_group(&group, groups[i].name, sizeof groups[i].name);
    }
    format_time(merge, fmax(summary->end_us - summary->ready_us, 0), exposed, sizeof exposed);
    *shown = (struct timeline_method){method->name,    picture->remarks[number],
                                      groups,          summary->group_count,
                                      summary->end_us, summary->end_us <= merge->best_us};
    used = snprintf(picture->remarks[number], sizeof picture->remarks[number],
                    "%zu allreduce%s, %.1f %% hidden, %s exposed", summary->group_count,
                    summary->group_count == 1 ? "" : "s", 100 * summary->hidden_fraction, exposed);
    if (merge->best_us > 0 && summary->end_us >= 1.0005 * merge->best_us) {
        snprintf(picture->remarks[number] + used, sizeof picture->remarks[number] - (size_t)used,
                 ", ends %.1f %% later", 100 * (summary->end_us / merge->best_us - 1));
    }
}

static void fill_picture(struct picture *picture, const struct merge *merge)
{
    struct timeline_group *groups = picture->groups;
    char bytes[32];

    for (size_t i = 0; i < merge->layers.count; i++) {
        picture->names[i] = merge->layers.at[i].name;
        picture->ready_us[i] = merge->layers.at[i].ready_us;
    }
    for (size_t i = 0; i < merge->method_count; i++) {
        fill_method(picture, merge, i, groups);
        groups += merge->methods[i].summary.group_count;
    }
    format_bytes(merge->bytes, bytes, sizeof bytes);
    snprintf(picture->subtitle, sizeof picture->subtitle,
             "%zu layer%s, %s as %s; an allreduce takes %s", merge->layers.count,
             merge->layers.count == 1 ? "" : "s", bytes, weft_dtype_name(merge->dtype),
             merge->cost.text);
    picture->timeline = (struct timeline){.title = merge->layers.name ? merge->layers.name
                                                                      : merge->cli->operands[0],
                                          .subtitle = picture->subtitle,
                                          .layer_names = picture->names,
                                          .ready_us = picture->ready_us,
                                          .layer_count = merge->layers.count,
                                          .methods = picture->methods,
                                          .method_count = merge->method_count};
    const char *slash = strrchr(picture->timeline.title, '/');
    if (slash && slash[1])
        picture->timeline.title = slash + 1;
    weft_merge_cost_get(&merge->cost.cost, 0, &picture->timeline.latency_us);
}

static int draw(const struct merge *merge)
{
    struct picture *picture = weft_memory_alloc(1, sizeof *picture);
    int status;

    if (picture)
        memset(picture, 0, sizeof *picture);
    if (picture && !take_memory(picture, merge)) {
        fill_picture(picture, merge);
        status = timeline_write_svg(&picture->timeline, merge->plot);
        status = status ? cli_usage(COMMAND, "--plot: %s", weft_error_text()) : 0;
    } else {
        status = cli_fail(COMMAND, "out of memory");
    }
    if (picture) {
        weft_memory_free(picture->groups);
        weft_memory_free(picture->ready_us);
        weft_memory_free(picture->names);
    }
    weft_memory_free(picture);
    return status;
}

/* ---- the command ---- */

static int plan_and_show(struct merge *merge)
{
    int status = cli_layers_load(&merge->layers, COMMAND, merge->cli->operands[0]);

    if (!status)
        status = take_layers(merge);
    if (!status)
        status = settle_cost(merge);
    if (!status)
        status = make_plans(merge);
    if (!status)
        choose_unit(merge);
    if (!status && merge->plot)
        status = draw(merge);
    if (!status && !merge->cli->json)
        return print_table(merge);
    for (size_t i = 0; !status && i < merge->method_count; i++)
        status = print_json(merge, &merge->methods[i]);
    return status;
}

static int run(struct cli *cli)
{
    struct merge merge = {.cli = cli};
    int status = cli_parse(cli, &merge) ? plan_and_show(&merge) : cli->status;

    for (size_t i = 0; i < merge.method_count; i++)
        weft_merge_plan_destroy(merge.methods[i].plan);
    weft_memory_free(merge.wanted);
    merge_cost_free(&merge.cost);
    layers_free(&merge.layers);
    return status;
}

static const struct cli_option table[] = {
    {"net", 0, CLI_TAKE, "a=US,b=US",
     "what an allreduce takes: a microseconds, and b for each byte", .take = take_net},
    {"cost", 0, CLI_FILE, "FILE",
     "the same from costs as weft bench model wrote them, or from measured times (bytes,us)",
     CLI_AT(struct merge, cost_file)},
    {"transport", 0, CLI_TRANSPORT, "NAME", "whose costs, if --net does not give them", "local",
     CLI_AT(struct merge, transport), .uses = CLI_COSTS},
    {"dtype", 0, CLI_DTYPE, "TYPE", "of the gradients as they are sent", "f32",
     CLI_AT(struct merge, dtype)},
    {"method", 0, CLI_TAKE, "LIST", "methods, separated by commas, or all, which are these",
     METHODS, .take = take_methods, .among = "Methods"},
    {"plot", 0, CLI_TEXT, "FILE", "draws the timelines to FILE, an SVG",
     CLI_AT(struct merge, plot)},
    {0},
};

static const struct cli_term methods[] = {
    {"exact", "the earliest end of all, by dynamic programming"},
    {"greedy", "MG-WFBP's Algorithm 1"},
    {"wfbp", "every layer by itself"},
    {"single", "all layers in one allreduce, after the last (SyncEASGD)"},
    {"bucket:BYTES",
     "a bucket ends with the layer that fills it (PyTorch's DDP); bucket:BYTES:FIRST "
     "has another size for the first one"},
    {"cycle:BYTES:MS", "every MS milliseconds what is ready, up to BYTES (Horovod); not among all"},
    {0},
};

static const struct cli_section sections[] = {
    {"Methods", .terms = methods},
    {"Networks", .terms = cli_networks},
    {0},
};

const struct cli_spec weft_command_merge = {
    .name = COMMAND,
    .summary = "which layers' gradients to merge before their allreduce",
    .operands = "NETWORK|FILE",
    .operands_among = "Networks",
    .operands_min = 1,
    .operands_max = 1,
    .about =
        "Plans merged gradients of a NETWORK (below), or of the layers in a FILE: a table in the "
        "order of the backward pass, as JSON "
        "({\"layers\": [{\"name\": .., \"elements\": .., \"ready_us\": ..}]}) or CSV "
        "(name,elements,ready_us). Groups of layers are allreduced one after the other, each "
        "when its last layer is ready. Without --net, an allreduce takes what weft's own is "
        "predicted to take on -n ranks (4).",
    .sections = sections,
    .options = table,
    .common = CLI_RANKS,
    .run = run,
};
