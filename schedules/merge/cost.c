/* SPDX-License-Identifier: BSD-3-Clause */
/* What an allreduce takes: given, measured, fitted, or predicted by weft's own costs. */
#include <stdio.h>
#include <string.h>

#include "schedules/merge/merge.h"

static int is_cost(double us)
{
    return us >= 0 && us <= DBL_MAX;
}

/* ---- costs as they are given ---- */

void weft_merge_cost_init_sized(struct weft_merge_cost *cost, size_t size)
{
    weft_sized_init(cost, size);
}

static int check_point(const char *who, const char *what, const struct weft_merge_point *points,
                       size_t p)
{
    if (!is_cost(points[p].bytes))
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: %s[%zu].bytes is %g, expected a finite number, 0 or more", who,
                              what, p, points[p].bytes);
    if (!is_cost(points[p].us))
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: %s[%zu].us is %g, expected a finite number, 0 or more", who,
                              what, p, points[p].us);
    return WEFT_OK;
}

static int check_points(const char *who, const struct weft_merge_cost *cost)
{
    const struct weft_merge_point *points = cost->points;
    if (cost->point_count && !points)
        return weft_error_set(WEFT_ERR_INVALID, "%s: cost->points is NULL, expected %zu points",
                              who, cost->point_count);
    if (cost->point_count == 1)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: cost->point_count is 1, expected 0, or 2 points or more", who);
    for (size_t p = 0; p < cost->point_count; p++) {
        int status = check_point(who, "cost->points", points, p);
        if (status)
            return status;
        if (p && !(points[p].bytes > points[p - 1].bytes))
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: cost->points[%zu].bytes is %g, expected more than the %g "
                                  "before it",
                                  who, p, points[p].bytes, points[p - 1].bytes);
    }
    return WEFT_OK;
}

/* How the cost rises from a point on; beyond the last as before it, but it does not fall. */
static double slope_from(const struct weft_merge_cost *cost, size_t point)
{
    size_t last = cost->point_count - 1, first = point < last ? point : last - 1;
    const struct weft_merge_point *points = &cost->points[first];
    double slope = (points[1].us - points[0].us) / (points[1].bytes - points[0].bytes);
    return point == last && slope < 0 ? 0 : slope;
}

int weft__merge_price_read(const char *who, const struct weft_merge_cost *cost,
                           struct weft__merge_price *price)
{
    *price = (struct weft__merge_price){.wrong = 0};
    if (!cost)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: argument `cost` is NULL, expected what an allreduce takes", who);
    int status = weft_sized_read(who, "cost", cost, &price->cost, sizeof price->cost);
    if (!status)
        status = weft_sized_real(who, "cost->a_us", price->cost.a_us, 0, DBL_MAX);
    if (!status)
        status = weft_sized_real(who, "cost->b_us_per_byte", price->cost.b_us_per_byte, 0, DBL_MAX);
    if (!status)
        status = check_points(who, &price->cost);
    price->linear = !price->cost.function && !price->cost.point_count;
    if (!status && price->cost.point_count)
        price->slope = slope_from(&price->cost, 0);
    return status;
}

/* Sizes that are asked for one after the other are neighbours, so the search goes on from the last
 * one. */
static double by_points(struct weft__merge_price *price, double bytes)
{
    const struct weft_merge_point *points = price->cost.points;
    size_t last = price->cost.point_count - 1, near = price->near;
    while (near < last && points[near + 1].bytes <= bytes)
        near++;
    while (near && points[near].bytes > bytes)
        near--;
    if (near != price->near) {
        price->near = near;
        price->slope = slope_from(&price->cost, near);
    }
    if (bytes <= points[near].bytes)
        return points[near].us;
    double rise = (bytes - points[near].bytes) * price->slope;
    double us = points[near].us + rise;
    return us < 0 ? 0 : us; /* by rounding, on the way down to a point that is 0 */
}

/* All costs but those that are a + b M and finite. */
double weft__merge_price_other(struct weft__merge_price *price, double bytes)
{
    const struct weft_merge_cost *cost = &price->cost;
    double transfer = cost->b_us_per_byte * bytes, us = cost->a_us + transfer;
    if (cost->function)
        us = cost->function(cost->user, bytes);
    else if (cost->point_count)
        us = by_points(price, bytes);
    if (is_cost(us))
        return us;
    if (!price->wrong) {
        price->wrong = 1;
        price->wrong_bytes = bytes;
        price->wrong_us = us;
    }
    return 0;
}

int weft__merge_price_status(const char *who, const struct weft__merge_price *price)
{
    if (!price->wrong)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID,
                          "%s: an allreduce of %.17g bytes costs %g microseconds, expected a "
                          "finite number, 0 or more",
                          who, price->wrong_bytes, price->wrong_us);
}

int weft_merge_cost_get(const struct weft_merge_cost *cost, double bytes, double *us)
{
    struct weft__merge_price price;
    int status = weft__merge_price_read(__func__, cost, &price);
    if (status)
        return status;
    if (!us)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `us` is NULL", __func__);
    status = weft_sized_real(__func__, "bytes", bytes, 0, DBL_MAX);
    if (status)
        return status;
    double answer = weft__merge_price(&price, bytes);
    status = weft__merge_price_status(__func__, &price);
    if (!status)
        *us = answer;
    return status;
}

/* ---- a and b of what was measured ---- */

/* Sums over points, bytes and times by the largest of each; a square weighs 1 / time^2. */
struct sums {
    double weight, bytes, us;        /* weights; weighted bytes and times */
    double bytes_bytes, bytes_us;    /* about the means */
    double square_bytes, bytes_each; /* about 0 */
};

static void add_up(struct sums *sums, const struct weft_merge_point *points, size_t count,
                   const struct weft_merge_point *most)
{
    *sums = (struct sums){.weight = 0};
    for (size_t p = 0; p < count; p++) {
        double x = points[p].bytes / most->bytes, y = points[p].us / most->us, w = 1 / (y * y);
        sums->weight += w;
        sums->bytes += w * x;
        sums->us += w * y;
        sums->square_bytes += w * x * x;
        sums->bytes_each += w * x * y;
    }
    double mean_x = sums->bytes / sums->weight, mean_y = sums->us / sums->weight;
    for (size_t p = 0; p < count; p++) {
        double x = points[p].bytes / most->bytes, y = points[p].us / most->us, w = 1 / (y * y);
        sums->bytes_bytes += w * (x - mean_x) * (x - mean_x);
        sums->bytes_us += w * (x - mean_x) * (y - mean_y);
    }
}

/* The errors are convex in a and b: where the best of all has one below 0, the best allowed has
 * that one 0. Both are not, as times are above 0. */
static void fit(const struct sums *sums, double *a, double *b)
{
    *b = sums->bytes_us / sums->bytes_bytes;
    *a = (sums->us - *b * sums->bytes) / sums->weight;
    if (*b < 0) {
        *b = 0;
        *a = sums->us / sums->weight;
    } else if (*a < 0) {
        *a = 0;
        *b = sums->bytes_each / sums->square_bytes;
    }
}

static int check_measured(const char *who, const struct weft_merge_point *points, size_t count,
                          struct weft_merge_point *most)
{
    int sizes = 0;
    *most = (struct weft_merge_point){0, 0};
    for (size_t p = 0; p < count; p++) {
        int status = check_point(who, "points", points, p);
        if (status)
            return status;
        sizes |= points[p].bytes != points[0].bytes;
        most->bytes = weft__merge_later(most->bytes, points[p].bytes);
        most->us = weft__merge_later(most->us, points[p].us);
    }
    if (!sizes)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: %zu points of one size, expected at least two sizes", who,
                              count);
    for (size_t p = 0; p < count && most->us > 0; p++)
        if (!(points[p].us > 0))
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: points[%zu].us is 0, expected more, or 0 of all", who, p);
    return WEFT_OK;
}

int weft_merge_cost_fit(const struct weft_merge_point *points, size_t count, double *a_us,
                        double *b_us_per_byte)
{
    struct weft_merge_point most;
    struct sums sums;
    double a = 0, b = 0;
    if (!points || !a_us || !b_us_per_byte)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `%s` is NULL", __func__,
                              points ? a_us ? "b_us_per_byte" : "a_us" : "points");
    int status = check_measured(__func__, points, count, &most);
    if (status)
        return status;
    if (most.us > 0) {
        add_up(&sums, points, count, &most);
        fit(&sums, &a, &b);
        a *= most.us;
        b *= most.us / most.bytes;
    }
    if (!is_cost(a) || !is_cost(b))
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: the points are too far apart: a is %g, b is %g", __func__, a, b);
    *a_us = a;
    *b_us_per_byte = b;
    return WEFT_OK;
}

/* ---- what weft's own allreduce is predicted to take ---- */

/* 0, 1, 2, 3, 4, 6, 8, 12 ... elements. */
static size_t next_size(size_t elements)
{
    if (elements < 2)
        return elements + 1;
    if (elements > SIZE_MAX / 2)
        return SIZE_MAX;
    return elements & (elements - 1) ? elements / 3 * 4 : elements + elements / 2;
}

int weft_merge_cost_predict(const struct weft_template_params *params, int ranks, size_t most_bytes,
                            struct weft_merge_point *points, size_t *count)
{
    struct weft_merge_point made[WEFT_MERGE_POINTS];
    struct weft_template_params asked;
    size_t found = 0;
    if (!points || !count)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `%s` is NULL", __func__,
                              points ? "count" : "points");
    int status = weft_sized_read(__func__, "params", params, &asked, sizeof asked);
    if (status)
        return status;
    size_t element = weft_dtype_size(asked.dtype);
    if (!element)
        element = 1; /* what the datatype should be, the template says */
    size_t most = most_bytes / element + (most_bytes % element > 0);
    if (!most)
        most = 1;
    for (size_t elements = 0;; elements = next_size(elements)) {
        asked.count = elements < most ? elements : most;
        status = weft_template_choose("allreduce", ranks, &asked, NULL, &made[found].us);
        if (status) {
            char text[512];
            snprintf(text, sizeof text, "%s", weft_error_text());
            return weft_error_set(status, "%s: %s", __func__, text);
        }
        made[found].bytes = (double)asked.count * (double)element;
        /* Above 2^53 bytes two sizes may be one by rounding. */
        found += !found || made[found].bytes > made[found - 1].bytes;
        if (elements >= most)
            break;
    }
    memcpy(points, made, found * sizeof *points);
    *count = found;
    return WEFT_OK;
}
