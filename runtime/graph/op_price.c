/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Costs of operations by their names: a projection of so many elements onto so many components is
 * not what a copy of as many bytes is.
 */
#include "runtime/graph/op_price.h"

#include "runtime/base/error.h"
#include "runtime/graph/op.h"

#include <stdlib.h>
#include <string.h>

static int check_rate(const char *who, size_t index, const char *member, double rate)
{
    if (rate >= 0 && rate <= 1e9)
        return WEFT_OK;
    return WEFT__INVALID("%s: `op_costs`[%zu].%s is %g, expected 0 to 1e9 microseconds", who, index,
                         member, rate);
}

int weft__op_prices_check(const char *who, const struct weft_sim_op_cost *costs, size_t count)
{
    int status = WEFT_OK;

    if (count && !costs)
        return WEFT__INVALID("%s: `op_costs` is NULL, expected %zu costs", who, count);
    for (size_t i = 0; i < count && !status; i++) {
        const struct weft_sim_op_cost *cost = &costs[i];

        if (!cost->op)
            return WEFT__INVALID("%s: `op_costs`[%zu].op is NULL, expected the beginning of a name",
                                 who, i);
        if ((status = check_rate(who, i, "written_us_per_byte", cost->written_us_per_byte)) ||
            (status = check_rate(who, i, "read_us_per_byte", cost->read_us_per_byte)))
            return status;
        status = check_rate(who, i, "product_us", cost->product_us);
    }
    return status;
}

const struct weft_sim_op_cost *weft__op_price_find(const struct weft_sim_op_cost *costs,
                                                   size_t count, const struct weft__snode *node)
{
    const struct weft_sim_op_cost *found = NULL;
    size_t longest = 0;

    for (size_t i = 0; i < count; i++) {
        const struct weft_sim_op_cost *cost = &costs[i];
        size_t length = strlen(cost->op);

        if (strncmp(weft_op_name(node->op), cost->op, length) != 0 || (found && length < longest))
            continue;
        found = cost;
        longest = length;
    }
    return found;
}

static double count_of(const struct weft_schedule *s, const struct weft__snode *node,
                       uint32_t index)
{
    return index < node->region_count ? (double)s->regions[node->regions + index].count : 0;
}

/* Multiply-adds, as weft_sim_op_cost has them. */
static double products_of(const struct weft_schedule *s, const struct weft__snode *node)
{
    const char *name = weft_op_name(node->op);
    double number = strtod(name + strcspn(name, "0123456789"), NULL);

    if (number < 1)
        return 0;
    switch (node->op->sense) {
    case WEFT__OP_PROJECTS:
        return count_of(s, node, 1) * count_of(s, node, 2) / number;
    case WEFT__OP_RECONSTRUCTS:
        return count_of(s, node, 0) * count_of(s, node, 2) / number;
    case WEFT__OP_CORRELATES:
        return count_of(s, node, 1) * count_of(s, node, 0) / number;
    case WEFT__OP_ORTHONORMALISES:
        return 4 * count_of(s, node, 0) * number;
    default:
        return 0;
    }
}

double weft__op_price_us(const struct weft_sim_op_cost *cost, const struct weft_schedule *s,
                         const struct weft__snode *node)
{
    double us = cost->product_us * products_of(s, node);

    for (uint32_t i = 0; i < node->region_count; i++) {
        const struct weft_region *region = &s->regions[node->regions + i];
        double bytes =
            (double)region->count * (double)weft_dtype_size(s->buffers[region->slot].dtype);
        weft_access_t access = weft__snode_access(s, node, i);

        us += (access & WEFT_WRITE ? bytes * cost->written_us_per_byte : 0) +
              (access & WEFT_READ ? bytes * cost->read_us_per_byte : 0);
    }
    return us;
}
