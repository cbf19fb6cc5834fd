/* SPDX-License-Identifier: BSD-3-Clause */
/* weft groups: which ranks average together in a version. */
#include "tools/cli/cli.h"
#include "tools/cli/table.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    int left = *(const int *)a;
    int right = *(const int *)b;

    return (left > right) - (left < right);
}

/* A version's groups by their lowest rank; the ranks of each ascending. */
struct group {
    int *members;
    int count;
};

static int lowest_first(const void *a, const void *b)
{
    return ascending(((const struct group *)a)->members, ((const struct group *)b)->members);
}

/* Fills @list and the ranks that it points to, @order. */
static void sorted_groups(const struct weft_groups *groups, uint64_t version, int *order,
                          struct group *list)
{
    int count = weft_groups_count(groups);

    for (int i = 0; i < count; i++) {
        list[i].members = order;
        weft_groups_members(groups, version, i, order, &list[i].count);
        qsort(order, (size_t)list[i].count, sizeof *order, ascending);
        order += list[i].count;
    }
    qsort(list, (size_t)count, sizeof *list, lowest_first);
}

static json_t *json_groups(const struct group *list, int count)
{
    json_t *groups = json_array();

    for (int i = 0; i < count; i++) {
        json_t *ranks = json_array();
        for (int j = 0; j < list[i].count; j++)
            json_array_append_new(ranks, json_integer(list[i].members[j]));
        json_array_append_new(groups, ranks);
    }
    return groups;
}

static void print_groups(const struct group *list, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < list[i].count; j++)
            printf("%s%d", j ? " " : "  ", list[i].members[j]);
        printf("\n");
    }
}

static int print(const struct cli *cli, const struct weft_groups *groups, int size,
                 long long version)
{
    const char *command = cli->spec->name;
    int count = weft_groups_count(groups);
    int *order = weft_memory_alloc((size_t)cli->ranks, sizeof *order);
    struct group *list = weft_memory_alloc((size_t)count, sizeof *list);
    int status;

    if (!order || !list) {
        status = cli_fail(command, "no memory for the groups of %d ranks", cli->ranks);
        goto free_both;
    }
    sorted_groups(groups, (uint64_t)version, order, list);
    if (cli->json) {
        status = cli_print_json(
            command, json_pack("{s:i, s:i, s:I, s:o}", "ranks", cli->ranks, "group_size", size,
                               "version", (json_int_t)version, "groups", json_groups(list, count)));
    } else {
        table_say(0, 2, "version %lld: %d rank%s in %d group%s of at most %d", version, cli->ranks,
                  cli->ranks == 1 ? "" : "s", count, count == 1 ? "" : "s", size);
        print_groups(list, count);
        status = cli_finish(command);
    }

free_both:
    weft_memory_free(list);
    weft_memory_free(order);
    return status;
}

struct options {
    long long size;
    long long version;
};

static int groups(struct cli *cli)
{
    struct options options = {0};
    const char *command = cli->spec->name;

    if (!cli_parse(cli, &options))
        return cli->status;
    cli->ranks = cli->ranks ? cli->ranks : 4;
    if (options.size > cli->ranks) {
        return cli_usage(command,
                         "--group-size: '%lld'; expected an integer from 0 to %d, the "
                         "number of ranks",
                         options.size, cli->ranks);
    }
    int size = options.size ? (int)options.size : weft_groups_default_size(cli->ranks);
    struct weft_groups *made;
    if (weft_groups_create(&made, cli->ranks, size))
        return cli_fail(command, "%s", weft_error_text());
    int status = print(cli, made, size, options.version);
    weft_groups_destroy(made);
    return status;
}

static const struct cli_option table[] = {
    {"group-size", 0, CLI_INTEGER, "S",
     "most ranks of a group (default, and 0: the power of two nearest the root of P)",
     CLI_AT(struct options, size), .most = INT32_MAX},
    {"version", 0, CLI_INTEGER, "T", "which version's groups", "0", CLI_AT(struct options, version),
     .most = INT64_MAX},
    {0},
};

const struct cli_spec weft_command_groups = {
    .name = "groups",
    .summary = "the groups that average together in a version",
    .about = "The groups whose members average together in version T: sizes differ by at most "
             "one, and from version to version the ranks are shuffled, so that an update spreads "
             "to all.",
    .options = table,
    .common = CLI_RANKS,
    .run = groups,
};
