/* SPDX-License-Identifier: BSD-3-Clause */
/* Butterflies over a power of two of participants, and how other sizes fold into one. */
#include "schedules/common/butterfly.h"

static int reversed(int bits, int log)
{
    int other = 0;
    for (int k = 0; k < log; k++)
        other |= (bits >> k & 1) << (log - 1 - k);
    return other;
}

static int position_of(const struct weft__butterfly *b, int v)
{
    if (b->numbering == WEFT__FARTHEST)
        return v;
    return reversed(b->numbering == WEFT__BINE ? weft__bine_place(v, b->log) : v, b->log);
}

static int peer_of(const struct weft__butterfly *b, int v, int k)
{
    if (b->numbering == WEFT__BINE)
        return weft__bine_peer(v, k, b->log);
    return v ^ (b->numbering == WEFT__NEAREST ? 1 << k : b->power >> (k + 1));
}

void weft__butterfly_make(struct weft__butterfly *b, const struct weft__group *group,
                          enum weft__numbering numbering, int head)
{
    *b = (struct weft__butterfly){
        .group = *group, .numbering = numbering, .head = head, .partner = -1};
    b->power = weft__power_below(group->size, &b->log);
    b->extra = group->size - b->power;
    b->me = weft__butterfly_participant(b, group->me);
    if (group->me < 2 * b->extra) {
        int odd = head == 2 * b->me + 1; /* which of the two takes part */
        b->partner = group->me ^ 1;
        b->me = (group->me & 1) == odd ? b->me : -1;
    }
    b->position = b->me < 0 ? -1 : position_of(b, b->me);
}

int weft__butterfly_rank(const struct weft__butterfly *b, int v)
{
    int index = v < b->extra ? 2 * v + (b->head == 2 * v + 1) : v + b->extra;
    return weft__group_rank(&b->group, index);
}

int weft__butterfly_participant(const struct weft__butterfly *b, int index)
{
    return index < 2 * b->extra ? index / 2 : index - b->extra;
}

int weft__butterfly_at(const struct weft__butterfly *b, int position)
{
    if (b->numbering == WEFT__FARTHEST)
        return position;
    int place = reversed(position, b->log);
    return b->numbering == WEFT__BINE ? weft__bine_at(place, b->log) : place;
}

int weft__butterfly_peer(const struct weft__butterfly *b, int k)
{
    return peer_of(b, b->me, k);
}

int weft__butterfly_upper(const struct weft__butterfly *b, int k)
{
    return b->position >> (b->log - 1 - k) & 1;
}

int weft__butterfly_fold_in(struct weft__build *build, const struct weft__butterfly *b,
                            struct weft_region *current, struct weft_region acc, uint64_t message)
{
    if (b->partner < 0)
        return 1;
    int partner = weft__group_rank(&b->group, b->partner);
    if (b->me < 0) {
        weft__build_send(build, *current, partner, message);
        return 0;
    }
    weft__build_recv_reduce(build, acc, *current, partner, message, b->partner < b->group.me);
    *current = acc;
    return 1;
}

void weft__butterfly_fold_out(struct weft__build *build, const struct weft__butterfly *b,
                              struct weft_region recv, uint64_t message)
{
    if (b->partner < 0)
        return;
    int partner = weft__group_rank(&b->group, b->partner);
    if (b->me < 0)
        weft__build_recv(build, recv, partner, message);
    else
        weft__build_send(build, recv, partner, message);
}

struct weft_region weft__butterfly_part(const struct weft__build *build,
                                        const struct weft__butterfly *b, int blocks,
                                        struct weft_region region, int lo, int hi)
{
    if (blocks)
        return weft__build_within(build, region, 0, weft__butterfly_first(b, lo),
                                  weft__butterfly_first(b, hi));
    size_t begin = weft__block_offset(region.count, b->power, lo);
    size_t end = weft__block_offset(region.count, b->power, hi);
    return weft__part(region, begin, end - begin);
}

/* The half of step k that is kept, or the one that is given. */
static struct weft_region half_of(const struct weft__build *build, const struct weft__butterfly *b,
                                  int blocks, struct weft_region region, int k, int given)
{
    int half = b->power >> (k + 1), lo = b->position & ~(half - 1);
    lo = given ? lo ^ half : lo;
    return weft__butterfly_part(build, b, blocks, region, lo, lo + half);
}

void weft__butterfly_reserve(struct weft__build *build, const struct weft__butterfly *b,
                             size_t count, int folds)
{
    size_t folded = folds ? count : 0;
    size_t kept = count - count / (size_t)b->power + (size_t)b->log; /* of equal parts */
    if (b->me >= 0 && b->log)
        weft__build_reserve(build, folded + kept, (size_t)b->log + 1);
}

void weft__butterfly_reduce_scatter(struct weft__build *build, const struct weft__butterfly *b,
                                    int blocks, struct weft_region *current,
                                    struct weft_region work, uint64_t message)
{
    for (int k = 0; k < b->log; k++) {
        int peer = weft__butterfly_rank(b, weft__butterfly_peer(b, k));
        weft__build_send(build, half_of(build, b, blocks, *current, k, 1), peer, message);
        weft__build_recv_reduce(build, half_of(build, b, blocks, work, k, 0),
                                half_of(build, b, blocks, *current, k, 0), peer, message,
                                weft__butterfly_upper(b, k));
        *current = work;
    }
}

/*
 * From which step on participant v is on the way to or from the root: 0: it is the root, k + 1: it
 * meets one that is in step k. Of those that are before step k there is one for each way in which
 * the halves of steps 0 .. k - 1 can be taken: the root goes there by its peers.
 */
static int joins(const struct weft__butterfly *b, int root, int v)
{
    int there = root, position = position_of(b, v);
    for (int k = 0; k < b->log && there != v; k++) {
        int differs = (position_of(b, there) ^ position) >> (b->log - 1 - k) & 1;
        there = differs ? peer_of(b, there, k) : there;
        if (there == v)
            return k + 1;
    }
    return 0;
}

void weft__butterfly_allgather(struct weft__build *build, const struct weft__butterfly *b,
                               int blocks, struct weft_region region, int root, uint64_t message)
{
    for (int k = b->log; k-- > 0;) {
        int v = weft__butterfly_peer(b, k), peer = weft__butterfly_rank(b, v);
        if (root < 0 || joins(b, root, v) > k)
            weft__build_send(build, half_of(build, b, blocks, region, k, 0), peer, message);
        if (root < 0 || joins(b, root, b->me) > k)
            weft__build_recv(build, half_of(build, b, blocks, region, k, 1), peer, message);
    }
}

void weft__butterfly_gather(struct weft__build *build, const struct weft__butterfly *b, int root,
                            struct weft_region region, uint64_t message)
{
    int first = joins(b, root, b->me);
    for (int k = b->log; k-- > first;)
        weft__build_recv(build, half_of(build, b, 0, region, k, 1),
                         weft__butterfly_rank(b, weft__butterfly_peer(b, k)), message);
    if (first)
        weft__build_send(build, half_of(build, b, 0, region, first - 1, 0),
                         weft__butterfly_rank(b, weft__butterfly_peer(b, first - 1)), message);
}

void weft__butterfly_scatter(struct weft__build *build, const struct weft__butterfly *b, int root,
                             struct weft_region region, uint64_t message)
{
    int first = joins(b, root, b->me);
    if (first)
        weft__build_recv(build, half_of(build, b, 0, region, first - 1, 0),
                         weft__butterfly_rank(b, weft__butterfly_peer(b, first - 1)), message);
    for (int k = first; k < b->log; k++)
        weft__build_send(build, half_of(build, b, 0, region, k, 1),
                         weft__butterfly_rank(b, weft__butterfly_peer(b, k)), message);
}

/* ---- costs ---- */

double weft__cost_halving(const struct weft__shape *shape, int size, double bytes, int reduces)
{
    int log;
    double cost = 0;
    weft__power_below(size, &log);
    for (int k = 0; k < log; k++) {
        bytes /= 2;
        cost += reduces ? weft__cost_combine(shape, bytes) : weft__cost_message(shape, bytes);
    }
    return cost;
}

double weft__cost_fold(const struct weft__shape *shape, double in, double out)
{
    if (weft__power_below(shape->size, NULL) == shape->size)
        return 0;
    return (in > 0 ? weft__cost_combine(shape, in) : 0) +
           (out > 0 ? weft__cost_message(shape, out) : 0);
}
