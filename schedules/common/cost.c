/* SPDX-License-Identifier: BSD-3-Clause */
/* What messages and arithmetic cost, as formulas in the numbers of a cost model. */
#include <math.h>

#include "schedules/common/template.h"

int weft__log2_ceil(int n)
{
    int log = 0;
    while (log < 31 && ((int64_t)1 << log) < n)
        log++;
    return log;
}

/* How many messages bytes become. */
static double segments(const struct weft__shape *shape, double bytes)
{
    if (!shape->segment || bytes <= (double)shape->segment)
        return 1;
    return ceil(bytes / (double)shape->segment);
}

/* Of one message that has so many bytes. */
static double alpha_of(const struct weft__shape *shape, double bytes)
{
    const struct weft_cost_model *cost = shape->cost;
    if (bytes > (double)cost->eager_bytes)
        return cost->alpha_us + (cost->eager_bytes > 0 ? cost->rendezvous_us : 0);
    return cost->alpha_us + bytes * cost->eager_us_per_byte;
}

double weft__cost_message(const struct weft__shape *shape, double bytes)
{
    double per_message = alpha_of(shape, bytes / segments(shape, bytes)) + shape->cost->node_us;
    return segments(shape, bytes) * per_message + bytes * shape->cost->beta_us_per_byte;
}

/* One after the other: moving a message between ranks of a machine is work of the same core. */
double weft__cost_combine(const struct weft__shape *shape, double bytes)
{
    const struct weft_cost_model *cost = shape->cost;
    double alpha = alpha_of(shape, bytes / segments(shape, bytes));
    return segments(shape, bytes) * (alpha + 2 * cost->node_us) +
           bytes * (cost->beta_us_per_byte + cost->gamma_us_per_byte);
}

/* Work that is one rank's after the other's, in no order: cores that ranks share do it together. */
static double together(const struct weft__shape *shape, double us)
{
    return us * shape->load / shape->size;
}

double weft__cost_fan(const struct weft__shape *shape, int n, double bytes)
{
    const struct weft_cost_model *cost = shape->cost;
    double one = weft__cost_message(shape, bytes), payload = bytes * cost->beta_us_per_byte;
    /* On one host it is the receiver that moves what is no copy: several do at the same time. */
    if (cost->cores == 0 || cost->eager_bytes == 0 || bytes <= (double)cost->eager_bytes)
        return n * one;
    return n * (one - payload) + fmax(n > 0 ? payload : 0, together(shape, n * payload));
}

double weft__cost_spread(const struct weft__shape *shape, double bytes)
{
    return together(shape, (shape->size - 1) * weft__cost_message(shape, bytes));
}

double weft__cost_mean(const struct weft__shape *shape)
{
    return shape->total / shape->size;
}

double weft__cost_blocks(const struct weft__shape *shape, double n)
{
    int size = shape->size, blocks = (int)ceil(n);
    if (!shape->counts || blocks >= size)
        return fmin(n * shape->largest, shape->total);
    size_t sum = 0, most = 0;
    for (int r = 0; r < size + blocks; r++) {
        sum += shape->counts[r % size];
        if (r >= blocks)
            sum -= shape->counts[r - blocks];
        most = sum > most ? sum : most;
    }
    return (double)most * (double)shape->element;
}

double weft__cost_block_tree(const struct weft__shape *shape)
{
    double cost = 0, bytes = shape->largest;
    for (int64_t have = 1; have < shape->size; have *= 2) {
        int64_t n = shape->size - have < have ? shape->size - have : have;
        cost += weft__cost_message(shape, weft__cost_blocks(shape, (double)n));
    }
    if (shape->size > 2)
        cost += shape->cost->node_us + bytes * shape->cost->copy_us_per_byte;
    return cost;
}

/* What a rank has to do with the others of a level. */
enum way { SENDS, RECEIVES, COMBINES };

/* Levels of the tree from the root on, of the largest range. bytes < 0: blocks. */
static double knomial(const struct weft__shape *shape, double bytes, enum way way)
{
    int radix = weft__radix(shape->radix, WEFT__RADIX);
    double cost = 0;
    for (int n = shape->size, parts; n > 1; n = (n + parts - 1) / parts) {
        parts = n < radix ? n : radix;
        double of_one = bytes < 0 ? weft__cost_blocks(shape, (n + parts - 1) / parts) : bytes;
        cost += way == SENDS      ? weft__cost_fan(shape, parts - 1, of_one)
                : way == RECEIVES ? (parts - 1) * weft__cost_message(shape, of_one)
                                  : (parts - 1) * weft__cost_combine(shape, of_one);
    }
    return cost;
}

double weft__cost_knomial(const struct weft__shape *shape, double bytes, int reduces)
{
    return knomial(shape, bytes, reduces ? COMBINES : SENDS);
}

double weft__cost_block_knomial(const struct weft__shape *shape, int gathers)
{
    int inner = shape->size > weft__radix(shape->radix, WEFT__RADIX); /* ranks that pass on */
    return knomial(shape, -1, gathers ? RECEIVES : SENDS) +
           inner * (shape->cost->node_us + shape->largest * shape->cost->copy_us_per_byte);
}

int weft__radix_rounds(const struct weft__shape *shape)
{
    int rounds = 0;
    for (int64_t have = 1; have < shape->size; have *= weft__radix(shape->radix, WEFT__RADIX))
        rounds++;
    return rounds;
}

int weft__star_rounds(const struct weft__shape *shape)
{
    return shape->size > 1;
}

double weft__cost_block_star(const struct weft__shape *shape)
{
    return (shape->size - 1) * weft__cost_message(shape, weft__cost_mean(shape));
}

double weft__cost_block_fan(const struct weft__shape *shape)
{
    return weft__cost_fan(shape, shape->size - 1, weft__cost_mean(shape));
}

double weft__cost_chain(const struct weft__shape *shape, double bytes, int hops, int reduces)
{
    const struct weft_cost_model *cost = shape->cost;
    double count = segments(shape, bytes), part = bytes / count;
    double per_byte = cost->beta_us_per_byte + (reduces ? cost->gamma_us_per_byte : 0);
    double per_part = alpha_of(shape, part) + (reduces ? 3 : 2) * cost->node_us + part * per_byte;
    return hops > 0 ? fmax((hops - 1 + count) * per_part, together(shape, hops * count * per_part))
                    : 0;
}

size_t weft__segment_chain(const struct weft__shape *shape, double bytes, int hops, int reduces)
{
    const struct weft_cost_model *cost = shape->cost;
    double per_byte = cost->beta_us_per_byte + (reduces ? cost->gamma_us_per_byte : 0);
    double each = alpha_of(shape, bytes) + (reduces ? 3 : 2) * cost->node_us;
    if (hops < 2)
        return 0;
    double best = each > 0 ? sqrt((hops - 1) * bytes * per_byte / each) : bytes;
    double part = fmax(bytes / fmax(best, 1), (double)cost->segment_bytes);
    return part < bytes && part >= 1 ? (size_t)part : 0;
}

/* The largest block goes as many ranks far as the others, a segment a hop; what is beyond the
 * average in that adds up. */
double weft__cost_ring_wait(const struct weft__shape *shape, int reduces)
{
    const struct weft_cost_model *cost = shape->cost;
    double per_byte = cost->beta_us_per_byte + (reduces ? cost->gamma_us_per_byte : 0);
    double part = shape->largest;
    if (shape->segment && part > (double)shape->segment)
        part = (double)shape->segment;
    double beyond = part - weft__cost_mean(shape);
    return shape->size > 2 && beyond > 0 ? (shape->size - 2) * beyond * per_byte : 0;
}

size_t weft__segment_ring(const struct weft__shape *shape, int reduces)
{
    if (shape->largest <= 2 * weft__cost_mean(shape))
        return 0;
    return weft__segment_chain(shape, shape->largest, shape->size - 1, reduces);
}
