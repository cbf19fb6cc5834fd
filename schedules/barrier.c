/* SPDX-License-Identifier: BSD-3-Clause */
/* Barrier: nobody ends before everybody has started. */
#include "schedules/common/template.h"

/*
 * Round j: a token to each of the ranks i k^j further on, i < k, and one from each as far before. A
 * token tells all that its sender has heard, so a send waits for the receives of all rounds before;
 * it does not wait for earlier sends.
 */
static void disseminate(struct weft__build *build, int radix)
{
    struct weft_region nothing = weft_region_at(
        weft_schedule_add_slot(build->schedule, "token", WEFT_U8, 0, WEFT_SLOT_SCRATCH), 0, 0);
    const struct weft_result all = {
        .struct_size = sizeof all, .kind = WEFT_RESULT_AFTER_START, .ranks = build->size};
    weft_node_t heard[128];
    int size = build->size, tokens = 0, before;
    for (int64_t step = 1; step < size; step *= radix) {
        before = tokens; /* heard in earlier rounds */
        for (int i = 1; i < radix && i * step < size; i++) {
            int to = (int)((build->rank + i * step) % size);
            int from = (int)((build->rank - i * step + size) % size);
            weft_node_t send =
                weft_schedule_add_send(build->schedule, nothing, to, (uint32_t)tokens);
            for (int h = 0; h < before; h++)
                weft_schedule_add_order(build->schedule, heard[h], send);
            heard[tokens] =
                weft_schedule_add_recv(build->schedule, nothing, from, (uint32_t)tokens);
            tokens++;
        }
    }
    weft_schedule_add_result(build->schedule, &all);
}

static void dissemination(struct weft__build *build)
{
    disseminate(build, 2);
}

static void k_dissemination(struct weft__build *build)
{
    disseminate(build, weft__radix(build->radix, WEFT__RADIX));
}

static double dissemination_cost(const struct weft__shape *shape)
{
    return weft__log2_ceil(shape->size) * weft__cost_message(shape, 0);
}

static double k_dissemination_cost(const struct weft__shape *shape)
{
    int radix = weft__radix(shape->radix, WEFT__RADIX), tokens = 0;
    for (int64_t step = 1; step < shape->size; step *= radix)
        for (int i = 1; i < radix && i * step < shape->size; i++)
            tokens++;
    return tokens * weft__cost_message(shape, 0);
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
    {.name = "k-dissemination",
     .cost = "(k - 1) ceil(logk P) alpha, k: the radix",
     .notes = "k - 1 tokens a round (3): ceil(logk P) messages in a row. Hoefler, Mehlan, Mietke, "
              "Rehm, IPDPS 2006",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = dissemination, .cost = dissemination_cost},
    {.build = k_dissemination, .cost = k_dissemination_cost, .rounds = weft__radix_rounds},
};

const struct weft__template weft__barrier_template = {
    .public = {.name = "barrier",
               .summary = "nobody ends before everybody has started",
               .parameters = "algo radix",
               .result = "no data; every rank has heard of every rank's start",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .slots = slots,
};
