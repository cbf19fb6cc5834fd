/* SPDX-License-Identifier: BSD-3-Clause */
/* OSP's Algorithm 1, and the choice of layers that it leaves open. */
#include <float.h>
#include <math.h>

#include "schedules/objects/server/tune.h"

/* ---- how much ---- */

/* 0 .. 1; NaN is 0. */
static double clamp(double share)
{
    return share > 0 ? fmin(share, 1) : 0;
}

/* Whole bytes, at most `most`. What misses a whole number by rounding alone is that number: 0.29 of
 * 100 bytes are 29. */
static size_t whole_bytes(double bytes, size_t most)
{
    double near = nearbyint(bytes);
    if (fabs(bytes - near) > 2 * DBL_EPSILON * near)
        near = floor(bytes);
    return near < (double)most ? (size_t)near : most;
}

static double most_bytes(const struct weft__tune *tune)
{
    if (!(tune->goodput > 0) || !tune->compute_ns || !tune->workers)
        return 0;
    double hidden = tune->goodput * ((double)tune->compute_ns * 1e-9) / (double)tune->workers;
    return fmin(hidden, clamp(tune->most) * (double)tune->model_bytes);
}

/* How far the training has come: from 0 to 1 as the loss falls. */
static double done(const struct weft__tune *tune)
{
    if (!(tune->first_loss > 0))
        return 0;
    return clamp(1 - tune->loss / tune->first_loss);
}

struct weft__tuned weft__tune(const struct weft__tune *tune)
{
    struct weft__tuned tuned = {0, 0};
    if (tune->share == 0) {
        double most = most_bytes(tune);
        tuned.most_bytes = whole_bytes(most, tune->model_bytes);
        tuned.late_bytes = whole_bytes(done(tune) * most, tuned.most_bytes);
    } else {
        double bytes = clamp(tune->share) * (double)tune->model_bytes;
        tuned.most_bytes = tuned.late_bytes = whole_bytes(bytes, tune->model_bytes);
    }
    return tuned;
}

/* ---- which ---- */

/* A total order: NaNs are last. */
static int matters_more(const double *importance, uint32_t a, uint32_t b)
{
    double x = importance[a], y = importance[b];
    if (x > y || x < y)
        return x > y;
    if (isnan(x) != isnan(y))
        return isnan(x);
    return a > b;
}

static void sift_down(const double *importance, uint32_t *heap, size_t count, size_t at)
{
    const uint32_t moved = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && matters_more(importance, heap[child + 1], heap[child]))
            child++;
        if (!matters_more(importance, heap[child], moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* By a heap: qsort() has nowhere to put `importance`. */
static void sort(const double *importance, uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count / 2; i-- > 0;)
        sift_down(importance, order, count, i);
    for (size_t end = count; end-- > 1;) {
        uint32_t last = order[0];
        order[0] = order[end];
        order[end] = last;
        sift_down(importance, order, end, 0);
    }
}

size_t weft__tune_choose(const double *importance, const size_t *layer_bytes, size_t layers,
                         size_t budget_bytes, unsigned char *late, uint32_t *order)
{
    size_t left = budget_bytes;
    sort(importance, order, layers);
    for (size_t i = 0; i < layers; i++) {
        size_t bytes = layer_bytes[order[i]];
        late[order[i]] = bytes && bytes <= left;
        if (late[order[i]])
            left -= bytes;
    }
    return budget_bytes - left;
}

/* ---- goodput ---- */

void weft__goodput_add(struct weft__goodput *goodput, uint64_t bytes, uint64_t ns)
{
    if (bytes < WEFT__GOODPUT_LEAST || !ns)
        return;
    goodput->samples[goodput->next] = (double)bytes / (double)ns * 1e9;
    goodput->next = (goodput->next + 1) % WEFT__GOODPUT_SAMPLES;
}

double weft__goodput_get(const struct weft__goodput *goodput)
{
    double most = 0;
    for (int i = 0; i < WEFT__GOODPUT_SAMPLES; i++)
        most = fmax(most, goodput->samples[i]);
    return most;
}
