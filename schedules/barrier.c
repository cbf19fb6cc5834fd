/* SPDX-License-Identifier: BSD-3-Clause */
/* Barrier: nobody ends before everybody has started. */
#include "schedules/common/template.h"

/*
 * Round k: a token to rank + 2^k, one from rank - 2^k. A token tells all that its sender has heard,
 * so a send waits for the receives of all rounds before; it does not wait for earlier sends.
 */
static void dissemination(struct weft__build *build)
{
    struct weft_region nothing = weft_region_at(
        weft_schedule_add_slot(build->schedule, "token", WEFT_U8, 0, WEFT_SLOT_SCRATCH), 0, 0);
    const struct weft_result all = {
        .struct_size = sizeof all, .kind = WEFT_RESULT_AFTER_START, .ranks = build->size};
    weft_node_t heard[32];
    int rounds = weft__log2_ceil(build->size), size = build->size;
    for (int k = 0; k < rounds; k++) {
        int step = 1 << k;
        int to = build->rank < size - step ? build->rank + step : build->rank - (size - step);
        int from = build->rank >= step ? build->rank - step : build->rank + (size - step);
        weft_node_t send = weft_schedule_add_send(build->schedule, nothing, to, (uint32_t)k);
        for (int i = 0; i < k; i++)
            weft_schedule_add_order(build->schedule, heard[i], send);
        heard[k] = weft_schedule_add_recv(build->schedule, nothing, from, (uint32_t)k);
    }
    weft_schedule_add_result(build->schedule, &all);
}

static double dissemination_cost(const struct weft__shape *shape)
{
    return weft__log2_ceil(shape->size) * weft__cost_message(shape, 0);
}

static void slots(struct weft__build *build)
{
    (void)build;
}

static const struct weft_algorithm algorithms[] = {
    {.name = "dissemination",
     .cost = "ceil(log2 P) alpha",
     .notes = "Hensgen, Finkel, Manber, IJPP 1988",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = dissemination, .cost = dissemination_cost},
};

const struct weft__template weft__barrier_template = {
    .public = {.name = "barrier",
               .summary = "nobody ends before everybody has started",
               .parameters = "algo",
               .result = "no data; every rank has heard of every rank's start",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .slots = slots,
};
