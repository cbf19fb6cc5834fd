/* SPDX-License-Identifier: BSD-3-Clause */
/* Alltoall: rank r gets block r of every rank. */
#include "schedules/common/template.h"

static struct weft_region block(const struct weft__build *build, struct weft_region blocks,
                                int index)
{
    return weft__part(blocks, (size_t)index * build->count, build->count);
}

static struct weft_region all(const struct weft__build *build, weft_slot_t slot)
{
    return weft_region_at(slot, 0, (size_t)build->size * build->count);
}

/* Every block straight to its rank, all at once; rank r begins with r + 1, so that no rank is
 * everybody's first. In place, what is sent is copied first: nobody could receive before. */
static void linear(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    struct weft_region recv = all(build, build->recv), given = all(build, build->send);
    if (build->in_place) {
        given = weft__build_scratch(build, recv.count);
        for (int i = 1; i < size; i++) {
            int to = (rank + i) % size;
            weft__build_copy(build, block(build, given, to), block(build, recv, to));
        }
    }
    for (int i = 1; i < size; i++) {
        int to = (rank + i) % size, from = (rank + size - i) % size;
        weft__build_send(build, block(build, given, to), to, 0);
        weft__build_recv(build, block(build, recv, from), from, 0);
    }
    if (!build->in_place)
        weft__build_copy(build, block(build, recv, rank), block(build, given, rank));
}

/*
 * The block for rank + i travels 2^k ranks for every bit k of i. What travels in a step is packed;
 * what arrives is left where it arrived (`where`) until it is packed again or has come home: there
 * is no rotation before and no unpacking between.
 */
static void bruck(struct weft__build *build)
{
    int size = build->size, rank = build->rank;
    struct weft_region *where = weft_memory_alloc((size_t)size, sizeof *where);
    if (!where) {
        build->status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d blocks", size);
        return;
    }
    struct weft_region recv = all(build, build->recv);
    struct weft_region given = build->in_place ? recv : all(build, build->send);
    for (int i = 0; i < size; i++)
        where[i] = block(build, given, (int)(((int64_t)rank + i) % size));
    for (int64_t step = 1; step < size; step *= 2) {
        int moved = 0, to = (int)((rank + step) % size), from = (int)((rank - step + size) % size);
        for (int i = 0; i < size; i++)
            moved += (i & step) != 0;
        struct weft_region out = weft__build_scratch(build, (size_t)moved * build->count);
        struct weft_region in = weft__build_scratch(build, (size_t)moved * build->count);
        moved = 0;
        for (int i = 0; i < size; i++) {
            if (!(i & step))
                continue;
            weft__build_copy(build, block(build, out, moved), where[i]);
            where[i] = block(build, in, moved++);
        }
        weft__build_send(build, out, to, 0);
        weft__build_recv(build, in, from, 0);
    }
    for (int i = 0; i < size; i++)
        weft__build_copy(build, block(build, recv, (rank - i + size) % size), where[i]);
    weft_memory_free(where);
}

static double linear_cost(const struct weft__shape *shape)
{
    return (shape->size - 1) * weft__cost_message(shape, (double)shape->bytes);
}

static double bruck_cost(const struct weft__shape *shape)
{
    const struct weft_cost_model *model = shape->cost;
    double bytes = (double)shape->bytes, half = (double)shape->size / 2;
    double copy = model->node_us + bytes * model->copy_us_per_byte;
    return weft__log2_ceil(shape->size) * (weft__cost_message(shape, half * bytes) + half * copy) +
           shape->size * copy;
}

static void slots(struct weft__build *build)
{
    size_t count = (size_t)build->size * build->count;
    weft__build_pair(build, count, count);
    for (int r = 0; r < build->size; r++)
        weft__build_result(build, block(build, all(build, build->recv), r),
                           build->in_place ? "recv" : "send", (size_t)build->rank * build->count, r,
                           1);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "linear",
     .cost = "(P - 1)(alpha + m/P beta)",
     .notes = "all messages at once, rank r begins with r + 1",
     .ordered = 1},
    {.name = "bruck",
     .cost = "ceil(log2 P)(alpha + m/2 (beta + copy)) + m copy",
     .notes = "few messages for small blocks. Bruck et al., TPDS 1997",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = linear, .cost = linear_cost},
    {.build = bruck, .cost = bruck_cost},
};

const struct weft__template weft__alltoall_template = {
    .public = {.name = "alltoall",
               .summary = "rank r gets block r of every rank",
               .parameters = "count dtype algo segment",
               .result = "recv[s count + i] on rank r: send[r count + i] of rank s",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_DATA | WEFT__BLOCKS,
    .slots = slots,
};
