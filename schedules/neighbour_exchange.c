/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighbour exchange: every rank gets the buffers of the ranks before and after it, on a ring. What
 * a halo exchange and D-PSGD begin with. */
#include "schedules/common/template.h"

enum { TO_RIGHT, TO_LEFT }; /* messages: with two ranks both go to the same one */

static int left_of(const struct weft__build *build)
{
    return (build->rank + build->size - 1) % build->size;
}

static int right_of(const struct weft__build *build)
{
    return (build->rank + 1) % build->size;
}

static struct weft_region half(const struct weft__build *build, int right)
{
    return weft_region_at(build->recv, right ? build->count : 0, build->count);
}

static void direct(struct weft__build *build)
{
    struct weft_region own = weft_region_at(build->send, 0, build->count);
    if (build->size == 1) {
        weft__build_copy(build, half(build, 0), own);
        weft__build_copy(build, half(build, 1), own);
        return;
    }
    weft__build_recv(build, half(build, 0), left_of(build), TO_RIGHT);
    weft__build_recv(build, half(build, 1), right_of(build), TO_LEFT);
    weft__build_send(build, own, right_of(build), TO_RIGHT);
    weft__build_send(build, own, left_of(build), TO_LEFT);
}

static double direct_cost(const struct weft__shape *shape)
{
    double bytes = (double)shape->bytes;
    return shape->size == 1 ? 2 * bytes * shape->cost->copy_us_per_byte
                            : 2 * weft__cost_message(shape, bytes);
}

static void slots(struct weft__build *build)
{
    build->send = weft__build_slot(build, "send", build->count, WEFT_SLOT_INPUT);
    build->recv = weft__build_slot(build, "recv", 2 * build->count, WEFT_SLOT_OUTPUT);
    weft__build_result(build, half(build, 0), "send", 0, left_of(build), 1);
    weft__build_result(build, half(build, 1), "send", 0, right_of(build), 1);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "direct",
     .cost = "2 alpha + 2 m beta",
     .notes = "both messages at once; with two ranks both go to the other one",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = direct, .cost = direct_cost},
};

const struct weft__template weft__neighbour_exchange_template = {
    .public = {.name = "neighbour-exchange",
               .summary = "every rank gets the buffers of both its neighbours on a ring",
               .parameters = "count dtype segment",
               .result = "recv[i]: send[i] of rank r - 1; recv[count + i]: send[i] of rank r + 1 "
                         "(modulo P)",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};
