/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums over ranks. Lines are sorted by what makes a row and then by rank, so that those of a row
 * follow each other, and in it those of a rank, of which there are several where communicators of
 * one name or number of ranks count as one.
 */
#include "tools/commands/profile.h"

#include <stdlib.h>
#include <string.h>
#include <weft/template.h>

/* ---- the order of lines ---- */

#define COMPARE(a, b) ((a) < (b) ? -1 : (a) > (b))

static int compare_keys(const struct profile_line *a, const struct profile_line *b,
                        int by_communicator)
{
    int order = strcmp(a->call->name, b->call->name);

    if (!order)
        order = COMPARE(a->form, b->form);
    if (!order)
        order = COMPARE(a->bytes, b->bytes);
    if (!order)
        order = COMPARE(a->ranks, b->ranks);
    return order || !by_communicator ? order : strcmp(a->communicator, b->communicator);
}

static int compare_all(const void *left, const void *right)
{
    const struct profile_line *a = left, *b = right;
    int order = compare_keys(a, b, 0);

    return order ? order : COMPARE(a->rank, b->rank);
}

static int compare_each(const void *left, const void *right)
{
    const struct profile_line *a = left, *b = right;
    int order = compare_keys(a, b, 1);

    return order ? order : COMPARE(a->rank, b->rank);
}

static double seconds_of(const struct profile_row *row)
{
    return row->served_s + row->others_s;
}

static int compare_rows(const void *left, const void *right)
{
    const struct profile_row *a = left, *b = right;

    if (seconds_of(a) != seconds_of(b))
        return seconds_of(a) > seconds_of(b) ? -1 : 1;
    return compare_keys(a->line, b->line, 1);
}

/* ---- rows ---- */

static int add_reasons(json_t *to, const json_t *from)
{
    const char *reason;
    json_t *value;
    int status = 0;

    json_object_foreach((json_t *)(uintptr_t)from, reason, value)
    {
        uint64_t sum = (uint64_t)json_integer_value(json_object_get(to, reason));
        sum += (uint64_t)json_integer_value(value); /* what nobody can count to may wrap */
        status |= json_object_set_new(to, reason, json_integer((json_int_t)sum));
    }
    return status;
}

/* One rank's lines of a row, from @p at to before @p end. */
static int add_rank(struct profile_row *row, const struct profile_line *at,
                    const struct profile_line *end)
{
    double seconds = 0;
    uint64_t calls = 0;
    int rank = at->rank;

    for (; at < end; at++) {
        calls += at->served + at->others;
        seconds += at->served_s + at->others_s;
        row->served += at->served;
        row->served_s += at->served_s;
        row->others_s += at->others_s;
        if (add_reasons(row->reasons, at->reasons))
            return -1;
    }
    row->calls += calls;
    if (!row->reported || calls < row->least_calls)
        row->least_calls = calls;
    if (calls > row->most_calls)
        row->most_calls = calls;
    if (!row->reported || seconds > row->most_s) {
        row->most_s = seconds;
        row->most_rank = rank;
    }
    row->reported++;
    return 0;
}

/* Lines of a row. */
static int add_row(struct profile_row *row, const struct profile_line *at,
                   const struct profile_line *end)
{
    row->line = at;
    row->reasons = json_object();
    while (row->reasons && at < end) {
        const struct profile_line *next = at;
        while (next < end && next->rank == at->rank)
            next++;
        if (add_rank(row, at, next))
            return -1;
        at = next;
    }
    return row->reasons ? 0 : -1;
}

/* ---- what would be chosen ---- */

/* Whether there is something to choose for: a barrier, or a size. Calls that were MPI's may have
 * been counted without theirs. */
static int is_known(const struct profile_line *line)
{
    return line->ranks > 0 && (line->bytes > 0 || strcmp(line->call->template, "barrier") == 0);
}

/* Elements of f32 where elements are combined, unless there is not one of them; else bytes. */
static void size_by(struct weft_template_params *params, const struct profile_line *line)
{
    int words = line->call->reduces && line->bytes >= sizeof(float);

    params->dtype = words ? WEFT_F32 : WEFT_U8;
    params->count = (size_t)(words ? line->bytes / sizeof(float) : line->bytes);
}

static void choose(struct profile_row *row, const struct profile_costs *costs, const int *hosts)
{
    struct weft_template_params params;
    const char *algorithm = NULL;
    double us = 0;

    weft_template_params_init(&params);
    params.cost = &costs->model;
    params.hosts = costs->apart ? hosts : NULL;
    size_by(&params, row->line);
    if (is_known(row->line) && weft_template_choose(row->line->call->template, row->line->ranks,
                                                    &params, &algorithm, &us) == WEFT_OK) {
        row->chosen = algorithm;
        row->predicted_us = us;
    }
}

/* 0, or -1 without memory. */
static int choose_all(struct profile_sum *sum, const struct profile_costs *costs)
{
    int most = 0;
    int *hosts = NULL;

    for (size_t i = 0; costs->apart && i < sum->count; i++)
        if (sum->rows[i].line->ranks > most)
            most = sum->rows[i].line->ranks;
    if (most) {
        hosts = malloc((size_t)most * sizeof *hosts);
        if (!hosts)
            return -1;
        for (int r = 0; r < most; r++)
            hosts[r] = r;
    }
    for (size_t i = 0; i < sum->count; i++)
        choose(&sum->rows[i], costs, hosts);
    free(hosts);
    return 0;
}

/* ---- the whole ---- */

static int by_rank(const void *left, const void *right)
{
    const struct profile_line *const *a = left, *const *b = right;

    return COMPARE((*a)->rank, (*b)->rank);
}

/* The rank that spent the most time in all calls together. 0, or -1 without memory. */
static int find_slowest(struct profile_sum *sum, const struct profile *profile)
{
    const struct profile_line **lines = calloc(profile->count + 1, sizeof *lines);

    if (!lines)
        return -1;
    for (size_t i = 0; i < profile->count; i++)
        lines[i] = &profile->lines[i];
    qsort(lines, profile->count, sizeof *lines, by_rank);
    for (size_t i = 0; i < profile->count;) {
        int rank = lines[i]->rank;
        double seconds = 0;
        for (; i < profile->count && lines[i]->rank == rank; i++)
            seconds += lines[i]->served_s + lines[i]->others_s;
        if (seconds > sum->most_s || !sum->seconds) {
            sum->most_s = seconds;
            sum->most_rank = rank;
        }
        sum->seconds += seconds;
    }
    free(lines);
    return 0;
}

int profile_sum_up(struct profile_sum *sum, struct profile *profile, int by_communicator,
                   const struct profile_costs *costs)
{
    const struct profile_line *lines = profile->lines, *end = lines + profile->count;

    *sum = (struct profile_sum){.by_communicator = by_communicator};
    if (profile->count)
        qsort(profile->lines, profile->count, sizeof *lines,
              by_communicator ? compare_each : compare_all);
    sum->rows = calloc(profile->count + 1, sizeof *sum->rows);
    if (!sum->rows)
        return -1;
    for (const struct profile_line *at = lines, *next; at < end; at = next) {
        struct profile_row *row = &sum->rows[sum->count++];
        for (next = at; next < end && compare_keys(next, at, by_communicator) == 0;)
            next++;
        if (add_row(row, at, next))
            return -1;
        sum->calls += row->calls;
        sum->served += row->served;
    }
    if (sum->count)
        qsort(sum->rows, sum->count, sizeof *sum->rows, compare_rows);
    return find_slowest(sum, profile) || choose_all(sum, costs) ? -1 : 0;
}

void profile_sum_free(struct profile_sum *sum)
{
    for (size_t i = 0; i < sum->count; i++)
        json_decref(sum->rows[i].reasons);
    free(sum->rows);
    *sum = (struct profile_sum){0};
}
