/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every template and algorithm on local ranks: numbers of ranks, datatypes, operations, counts,
 * roots, segments, in place and not, each started several times with changed data and compared with
 * what plain loops give. On virtual ranks too, under delays and faults; or, built for devices, with
 * all slots on them.
 */
#include "cells.h"

/* Kernels of devices over fibers take their time. */
enum { SLOWER = PLACED ? 7 : 1 };
enum { STRIDE = WEFT_SANITIZED ? 13 * SLOWER : SLOWER };
static void pick_op(struct cell *c, const struct team *team, int ordered)
{
    unsigned pick = (unsigned)((c->number >> 16) % (WEFT_OP_COUNT + 2));
    c->params.dtype = (weft_dtype_t)(c->number % WEFT_DTYPE_COUNT);
    if ((c->number >> 24) % 4 == 0) {
        size_t which = (c->number >> 40) % OPAQUE_BYTES;
        /* Huge elements only where there are few of them. */
        which = opaque_bytes[which] > 1000 && c->params.count > 1 ? 0 : which;
        c->params.dtype = weft_dtype_opaque(opaque_bytes[which]);
        c->params.op = reads(c, "op") ? team->opaque[!ordered] : weft_op_builtin(WEFT_SUM);
        return;
    }
    if (pick >= WEFT_OP_COUNT) {
        c->params.dtype = ordered ? WEFT_U16 : c->params.dtype;
        c->params.op = ordered ? team->affine : weft_op_builtin(WEFT_SUM);
        return;
    }
    c->params.op = weft_op_builtin((weft_op_kind_t)pick);
    if (!weft_op_supports(c->params.op, c->params.dtype))
        c->params.op = weft_op_builtin(c->number % 2 ? WEFT_MAX : WEFT_SUM);
}

/* Any bits for a number, so that datatype, operation and root do not go together. */
static uint64_t spread(uint64_t number)
{
    number = (number + 1) * 0x9e3779b97f4a7c15u;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
    return (number ^ (number >> 31)) >> 8;
}

/* Servers of any number, apart and co-located. */
static void pick_servers(struct cell *c)
{
    c->params.colocated = (int)(c->number >> 36 & 1);
    int most = c->params.colocated || c->size == 1 ? c->size : c->size - 1;
    c->params.servers = 1 + (int)((c->number >> 40) % (uint64_t)most);
    c->params.window = c->number >> 44 & 3;
}

/* Lists of few blocks, trees of other radices than the default. */
static void pick_shape(struct cell *c)
{
    static const int radices[] = {0, 2, 3, 7};
    c->params.aggregate = c->number >> 46 & 3;
    c->params.radix = radices[c->number >> 48 & 3];
}

static int sweep_algorithm(struct team *team, struct weft_context *context, size_t algorithm)
{
    static const size_t counts[] = {0, 1, 37, BIG}, segments[] = {0, WEFT_SEGMENT_NONE, 24, 4096};
    struct cell c = {.template = team->template, .size = team->size};
    for (unsigned i = 0; i < 4 * 4 * 2; i++) {
        size_t count = counts[i / 8], segment = segments[i / 2 % 4];
        c.number = spread(i + 32 * (algorithm * 17 + (uint64_t)team->size));
        if ((count == BIG && segment == 24) || (count <= 1 && segment == 4096) ||
            (i + (unsigned)team->size + (unsigned)algorithm) % team->stride != 0)
            continue;
        /* P blocks on each of many ranks, all computed by each of them, would take most of the
         * time. */
        if (count == BIG && c.size > 8 && i % 3 != 0)
            continue;
        weft_template_params_init(&c.params);
        c.params.algo = c.template->algorithms[algorithm].name;
        c.params.count = count;
        pick_op(&c, team, c.template->algorithms[algorithm].ordered);
        if (count == BIG)
            c.params.count = BIG / weft_dtype_size(c.params.dtype) + c.number % 5;
        c.params.segment = segment;
        c.params.in_place = (int)(i % 2);
        c.params.root = (int)((c.number >> 32) % (uint64_t)c.size);
        pick_servers(&c);
        pick_shape(&c);
        if (run_cell(team, context, &c) || atomic_load(&team->failed))
            return -1;
    }
    return 0;
}

static int sweep(struct team *team, struct weft_context *context)
{
    for (size_t a = 0; a < team->template->algorithm_count; a++)
        if (sweep_algorithm(team, context, a))
            return -1;
    return 0;
}

/* Where there are many algorithms, a number of ranks has a share of the cells of each. */
static unsigned stride_of(const char *name, unsigned stride)
{
    const struct weft_template *template = weft_template_find(name);
    cr_assert_not_null(template);
    return stride * (1 + (unsigned)template->algorithm_count / 4);
}

static void sweep_template(const char *name)
{
    struct team team = {.template = weft_template_find(name),
                        .work = sweep,
                        .stride = stride_of(name, STRIDE * swept_again())};
    run_team_sizes(&team);
}

/* All of them, a share of the cells for each seed. */
static void sweep_virtually(const char *name)
{
    static const int virtual_sizes[] = {1, 2, 3, 5, 7, 8, 13, 16, 17};
    struct team team = {.template = weft_template_find(name),
                        .work = sweep,
                        .stride = stride_of(name, 3 * STRIDE * swept_again() + 2)};
    uint64_t seed = name[0] + 256u * (unsigned char)name[strlen(name) - 1];
    for (size_t i = 0; i < SWEPT(sizeof virtual_sizes / sizeof virtual_sizes[0], 6); i++, seed++) {
        team.size = virtual_sizes[i];
        make_ops(&team);
        run_virtual_team(&team, seed);
        destroy_ops(&team);
    }
}

/* They have no device. */
Test(templates_local, every_template_on_virtual_ranks, .disabled = PLACED)
{
    static const char *const names[] = {"allgather", "allreduce", "alltoall",   "broadcast",
                                        "exscan",    "gather",    "reduce",     "reduce-scatter",
                                        "scan",      "scatter",   "server-step"};
    for (size_t t = 0; t < sizeof names / sizeof names[0]; t++)
        sweep_virtually(names[t]);
}

Test(templates_local, allgather)
{
    sweep_template("allgather");
}

Test(templates_local, allreduce)
{
    sweep_template("allreduce");
}

Test(templates_local, alltoall)
{
    sweep_template("alltoall");
}

Test(templates_local, broadcast)
{
    sweep_template("broadcast");
}

Test(templates_local, exscan)
{
    sweep_template("exscan");
}

Test(templates_local, gather)
{
    sweep_template("gather");
}

Test(templates_local, reduce)
{
    sweep_template("reduce");
}

Test(templates_local, reduce_scatter)
{
    sweep_template("reduce-scatter");
}

Test(templates_local, scan)
{
    sweep_template("scan");
}

Test(templates_local, scatter)
{
    sweep_template("scatter");
}

Test(templates_local, server_step)
{
    sweep_template("server-step");
}
