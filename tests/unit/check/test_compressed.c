/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the checker knows of compressed values: templates with blocks of all sorts pass, and their
 * schedules with one thing wrong do not.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <weft/weft.h>

#include "runtime/graph/schedule.h"

enum { MOST_RANKS = 33 };

struct team {
    struct weft_schedule *at[MOST_RANKS];
    int size;
};

static const struct weft_compressed_block blocks[] = {
    {300, 60, 7}, {250, 64, 64}, {17, 0, 0}, {0, 8, 3}, {33, 40, 5}, {90, 9, 0}, {200, 10, 1}};
static const struct weft_compressed_block matrices[] = {{300, 60, 7}, {17, 0, 0}, {0, 8, 3},
                                                        {40, 40, 5},  {90, 9, 0}, {200, 10, 1}};

static struct team build(const char *name, const char *algo, int size, int in_place, int sent)
{
    struct team team = {.size = size};
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.algo = algo;
    params.count = 700;
    params.in_place = in_place;
    params.sent = sent;
    params.segment = size % 3 ? WEFT_SEGMENT_NONE : 48;
    if (strcmp(name, "projected-allreduce") == 0) {
        params.blocks = blocks;
        params.block_count = sizeof blocks / sizeof blocks[0];
    } else if (strcmp(name, "powersgd-allreduce") == 0) {
        params.blocks = matrices;
        params.block_count = sizeof matrices / sizeof matrices[0];
    }
    for (int r = 0; r < size; r++)
        cr_assert_eq(weft_template_build(name, r, size, &params, &team.at[r]), WEFT_OK, "%s",
                     weft_error_text());
    return team;
}

static void destroy(struct team *team)
{
    for (int r = 0; r < team->size; r++)
        weft_schedule_destroy(team->at[r]);
}

/* The faults, a line each, or "". */
static const char *fault_of(struct team *team)
{
    static char text[4096];
    struct weft_check_report *report = NULL;
    struct weft_fault fault = {.struct_size = sizeof fault};

    text[0] = '\0';
    cr_assert_eq(weft_check((const struct weft_schedule *const *)team->at, (size_t)team->size, NULL,
                            &report),
                 WEFT_OK);
    for (size_t i = 0, at = 0;
         at < sizeof text && weft_check_report_get_fault(report, i, &fault) == WEFT_OK; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\n", fault.text);
    weft_check_report_destroy(report);
    return text;
}

Test(check_compressed, blocks_of_all_sorts)
{
    static const char *const names[] = {"projected-allreduce", "quantised-allreduce",
                                        "powersgd-allreduce"};

    for (size_t n = 0; n < 3; n++) {
        const struct weft_template *template = weft_template_find(names[n]);

        for (size_t a = 0; a < template->algorithm_count; a++)
            for (int size = 1; size <= MOST_RANKS; size += size < 17 ? 1 : 16) {
                struct team team =
                    build(names[n], template->algorithms[a].name, size, size % 2, size / 2 % 2);
                const char *fault = fault_of(&team);

                cr_assert_str_empty(fault, "%s %s P=%d: %s", names[n], template->algorithms[a].name,
                                    size, fault);
                destroy(&team);
            }
    }
}

/* ---- one thing wrong ---- */

/* Node number `index` of an operation whose name begins so, or of a kind. */
static struct weft__snode *node_of(struct team *team, int rank, const char *op, int index)
{
    struct weft_schedule *s = team->at[rank];

    for (size_t n = 0; n < s->node_count; n++)
        if (s->nodes[n].op && strncmp(weft_op_name(s->nodes[n].op), op, strlen(op)) == 0 &&
            index-- == 0)
            return &s->nodes[n];
    cr_assert_fail("no %s on rank %d", op, rank);
    return NULL;
}

static struct weft_region *region_of(struct team *team, int rank, const char *op, int index,
                                     uint32_t region)
{
    return &team->at[rank]->regions[node_of(team, rank, op, index)->regions + region];
}

static void expect_fault(struct team *team, const char *word)
{
    const char *fault = fault_of(team);

    cr_expect(strstr(fault, word), "\"%s\" does not say \"%s\"", fault, word);
    destroy(team);
}

Test(check_compressed, another_basis)
{
    struct team team = build("projected-allreduce", "ring", 5, 0, 0);
    struct weft_region *basis = region_of(&team, 2, "project-64", 0, 2);

    basis->offset = 64;
    basis->count -= 64;
    expect_fault(&team, "by basis.1 of rank 0 (+256 bytes)");
}

Test(check_compressed, reconstructed_by_another_basis)
{
    struct team team = build("projected-allreduce", "reduce-scatter-allgather", 4, 0, 0);

    *region_of(&team, 1, "reconstruct-60", 0, 2) = *region_of(&team, 1, "reconstruct-40", 0, 2);
    expect_fault(&team, "holds reconstruct-60 of");
}

Test(check_compressed, another_part_of_the_mean)
{
    struct team team = build("projected-allreduce", "ring", 3, 0, 0);

    region_of(&team, 1, "project-10", 0, 3)->offset++;
    region_of(&team, 1, "project-10", 0, 3)->count--;
    expect_fault(&team, "by mean.6 of rank 0 (+4 bytes)");
}

Test(check_compressed, a_segment_added_twice)
{
    struct team team = build("projected-allreduce", "ring", 5, 0, 0);
    struct weft_region *sum = region_of(&team, 3, "sum", 1, 0);

    sum[1] = sum[2]; /* what was compressed here, in place of what has come */
    expect_fault(&team, "send of rank 3 2 times");
}

Test(check_compressed, a_segment_that_was_not_compressed)
{
    struct team team = build("projected-allreduce", "ring", 4, 0, 0);
    struct weft_region *out = region_of(&team, 2, "project-60", 0, 0);

    out->count = 0;
    expect_fault(&team, "which nothing has written");
}

Test(check_compressed, half_of_what_is_quantised)
{
    struct team team = build("quantised-allreduce", "all-to-all", 3, 0, 0);
    struct weft_region *from = region_of(&team, 1, "quantise", 0, 1);

    from->count /= 2;
    expect_fault(&team, "dequantise");
}

Test(check_compressed, a_share_of_a_shard_twice)
{
    struct team team = build("quantised-allreduce", "all-to-all", 5, 0, 0);

    *region_of(&team, 1, "dequantise-add", 2, 1) = *region_of(&team, 1, "dequantise-add", 1, 1);
    expect_fault(&team, "times");
}

Test(check_compressed, factors_that_are_not_orthonormal)
{
    struct team team = build("powersgd-allreduce", "ring", 3, 0, 0);
    struct weft__snode *node = node_of(&team, 2, "orthonormalise", 0);

    node->region_count = 0; /* it does nothing */
    expect_fault(&team, "holds reconstruct-60 of");
}

Test(check_compressed, what_is_compressed_is_not_exact)
{
    struct team team = build("quantised-allreduce", "ring", 4, 0, 0);

    team.at[2]->results[0].lossy = 0;
    expect_fault(&team, "holds about sum of (send of ranks 0..3)");
}

/* ---- schedules that are written by hand ---- */

/* Both of two ranks add up what they have, and then do this. */
static const char *faults_of(const char *nodes)
{
    static char text[4096];
    struct weft_schedule **schedules;
    struct team team = {.size = 2};
    size_t at = 0, count;

    at += (size_t)snprintf(text, sizeof text, "weft 1\nschedule \"x\" size 2\n");
    for (int r = 0; r < 2; r++)
        at += (size_t)snprintf(text + at, sizeof text - at,
                               "rank %d {\n input send f32 16\n output recv f32 16\n"
                               " input basis f32 8\n input mean f32 16\n inout squares f64 3\n"
                               " inout factor f32 8\n scratch few f32 8\n scratch work f64 8\n"
                               " scratch other f32 16\n scratch all f32 16\n"
                               " n0: recv other[0:16] from %d tag 0\n"
                               " n1: send send[0:16] to %d tag 0\n"
                               " n2: reduce sum all[0:16] = other[0:16], send[0:16] after n0\n%s"
                               " result recv[0:16] = sum of send[0:16] from ranks 0..1 lossy\n}\n",
                               r, 1 - r, 1 - r, nodes);
    cr_assert_eq(weft_schedule_read(text, at, NULL, 0, &schedules, &count), WEFT_OK, "%s",
                 weft_error_text());
    cr_assert_eq(count, 2);
    memcpy(team.at, schedules, 2 * sizeof(struct weft_schedule *));
    weft_memory_free(schedules);
    const char *faults = fault_of(&team);

    destroy(&team);
    return faults;
}

/* Every rank takes off its share of the mean: so of a sum only a share is taken off. */
Test(check_compressed, a_sum_that_is_projected_with_a_mean)
{
    const char *faults = faults_of(
        " n3: compute project-4 out few[0:8], in all[0:16], in basis[0:8], in mean[0:16] after n2\n"
        " n4: compute reconstruct-4 out recv[0:16], in few[0:8], in basis[0:8], in mean[0:16]"
        " after n3\n");

    cr_expect(strstr(faults, "holds reconstruct-4 of"), "\"%s\"", faults);
}

Test(check_compressed, squares_without_a_mean)
{
    const char *faults =
        faults_of(" n3: compute project-4 out few[0:8], in all[0:16], in basis[0:8],"
                  " update squares[0:3] after n2\n"
                  " n4: compute reconstruct-4 out recv[0:16], in few[0:8], in basis[0:8]"
                  " after n3\n");

    cr_expect_str_empty(faults, "%s", faults);
}

/* As two rows of 4 columns, what are four rows of 2. */
Test(check_compressed, other_columns_orthonormal)
{
    static const char nodes[] =
        " n3: compute project-4 out few[0:8], in all[0:16], in factor[0:8] after n2\n"
        " n4: compute orthonormalise-%d update few[0:8], out work[0:%d] after n3\n"
        " n5: compute correlate-4 out factor[0:8], in all[0:16], in few[0:8] after n4\n"
        " n6: compute reconstruct-4 out recv[0:16], in few[0:8], in factor[0:8] after n5\n";
    char text[1024];

    snprintf(text, sizeof text, nodes, 2, 8);
    cr_expect_str_empty(faults_of(text));
    snprintf(text, sizeof text, nodes, 1, 6);
    cr_expect(strstr(faults_of(text), "holds reconstruct-4 of"));
}

Test(check_compressed, regions_that_do_not_fit)
{
    static const struct {
        const char *nodes, *word;
    } trials[] = {
        {" n3: compute project-4 out few[0:7], in all[0:16], in basis[0:8] after n2\n",
         "compute project-4 few[0:7]): project-4: region 0 (the components) is 7 elements, "
         "expected 8: 2 for each of 4 slices"},
        {" n3: compute project-4 out few[0:8], in all[0:16], in basis[0:8], in mean[0:12]"
         " after n2\n",
         "region 3 (the mean) is 12 elements, expected 16"},
        {" n3: compute project-4 out few[0:8], in all[0:16], in work[0:8] after n2\n",
         "region 2 (the basis) is 8 elements of f64, expected f32"},
        {" n3: compute project-3 out few[0:8], in all[0:16], in basis[0:8] after n2\n",
         "region 2 (the basis) is 8 elements, expected a multiple of 3"},
        {" n3: compute quantise-4-512-max out few[0:8], in all[0:16] after n2\n",
         "region 0 (the bytes) is 8 elements of f32, expected u8"},
        {" n3: compute orthonormalise-2 update few[0:8]\n", "1 regions, expected 2"},
        {" n3: compute project-4 out all[0:8], in all[0:16], in basis[0:8] after n2\n",
         "project-4: regions 0 and 1 overlap, expected memory of their own"},
    };

    for (size_t t = 0; t < sizeof trials / sizeof trials[0]; t++) {
        const char *faults = faults_of(trials[t].nodes);

        cr_expect(strstr(faults, trials[t].word), "\"%s\" does not say \"%s\"", faults,
                  trials[t].word);
    }
}
