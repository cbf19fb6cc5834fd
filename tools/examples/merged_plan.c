/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of three layers' gradients to allreduce together: merged_plan A B, of a cost A + B M. */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

/* [plan] */
/* One byte each, ready after 1, 2 and 4 microseconds. */
static const struct weft_merge_layer layers[] = {{1, 1}, {1, 2}, {1, 4}};

static int show(const char *method, const struct weft_merge_cost *cost)
{
    struct weft_merge_config config;
    struct weft_merge_plan *plan = NULL;
    struct weft_merge_summary summary = {.struct_size = sizeof summary};
    weft_merge_config_init(&config);
    int status = weft_merge_method_parse(method, &config);
    if (!status)
        status = weft_merge_plan_create(&plan, layers, 3, cost, &config);
    if (!status)
        status = weft_merge_plan_get_summary(plan, &summary);
    printf("%-7s", method);
    for (size_t g = 0; !status && g < summary.group_count; g++) {
        struct weft_merge_group group = {.struct_size = sizeof group};
        status = weft_merge_plan_get_group(plan, g, &group);
        printf(" %zu layers %g .. %g,", group.layer_count, group.start_us, group.end_us);
    }
    printf(" end %g, hidden %.2f, optimal: %s\n", summary.end_us, summary.hidden_fraction,
           weft_merge_optimal_name(summary.optimal));
    weft_merge_plan_destroy(plan);
    return status;
}
/* [plan] */

int main(int argc, char **argv)
{
    static const char *const methods[] = {"exact", "greedy", "wfbp", "single"};
    struct weft_merge_cost cost;
    int status = WEFT_OK;
    weft_merge_cost_init(&cost);
    cost.a_us = argc > 1 ? atof(argv[1]) : 2;
    cost.b_us_per_byte = argc > 2 ? atof(argv[2]) : 1;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0] && !status; i++)
        status = show(methods[i], &cost);
    if (status)
        fprintf(stderr, "merged_plan: %s\n", weft_error_text());
    return status ? 1 : 0;
}
