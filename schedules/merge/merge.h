/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the planner share (weft/merge.h says what it does). */
#ifndef WEFT_SCHEDULES_MERGE_H
#define WEFT_SCHEDULES_MERGE_H

#include <float.h>

#include <weft/merge.h>

/* What an allreduce takes. */
struct weft__merge_price {
    struct weft_merge_cost cost; /* checked */
    int linear;
    size_t near;  /* point at or before the bytes asked for last */
    double slope; /* from there on */
    int wrong;    /* an answer was no cost: the first of them */
    double wrong_bytes, wrong_us;
};

int weft__merge_price_read(const char *who, const struct weft_merge_cost *cost,
                           struct weft__merge_price *price);
double weft__merge_price_other(struct weft__merge_price *price, double bytes);

/* What is no cost is counted as free and noted. A product stands by itself: within an expression a
 * machine may round it together with the sum, and plans would not be the same bits everywhere. */
static inline double weft__merge_price(struct weft__merge_price *price, double bytes)
{
    double transfer = price->cost.b_us_per_byte * bytes;
    double us = price->cost.a_us + transfer;
    if (price->linear && us <= DBL_MAX)
        return us;
    return weft__merge_price_other(price, bytes);
}

/* WEFT_OK; WEFT_ERR_INVALID if an answer was wrong. */
int weft__merge_price_status(const char *who, const struct weft__merge_price *price);

/* A plan under way: the layers, and the groups that a method makes of them. */
struct weft__merge_work {
    const char *who;
    const struct weft_merge_layer *layers;
    size_t layer_count;
    const struct weft_merge_config *config; /* checked, defaults filled in */
    struct weft__merge_price price;
    size_t *order;    /* layers as they are sent; NULL: in the order given */
    size_t *sizes;    /* of each group; owned, room for layer_count */
    double *earliest; /* groups do not start before; NULL: no such times */
    size_t group_count;
};

/* The configuration with its defaults. */
int weft__merge_config_read(const char *who, const struct weft_merge_config *given,
                            struct weft_merge_config *config);
/* Fills in the groups, by config->method. */
int weft__merge_group(struct weft__merge_work *work);

static inline const struct weft_merge_layer *weft__merge_layer(const struct weft__merge_work *work,
                                                               size_t place)
{
    return &work->layers[work->order ? work->order[place] : place];
}

/* The time of every method: an allreduce starts at the latest of all that it waits for. */
static inline double weft__merge_later(double a, double b)
{
    return a > b ? a : b;
}

#endif
