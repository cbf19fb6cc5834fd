/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce by recursive multiplying: in a step of factor f, f participants exchange all they have,
 * and each combines the f parts. The factors multiply to the number of participants: the largest
 * number up to P without a prime factor above the radix, so that P = 6 or 12 needs no folding. A
 * rank that is left over gives its part to the one before it, and gets the result.
 *
 * Nearest first: what a participant has stands for contiguous ranks, and parts are combined in the
 * order of ranks, on all ranks alike. A. Ruefenacht, M. Bull, S. Booth: Generalisation of recursive
 * doubling for AllReduce, Parallel Computing 69, 2017.
 */
#include "schedules/common/multiplying.h"

enum { FACTORS = 32 };

struct factors {
    int participants, count;
    int factor[FACTORS];
};

/* The factors of n, the largest first; 1 if that is all of it. */
static int split(struct factors *factors, int n, int radix)
{
    factors->participants = n;
    factors->count = 0;
    for (int f = radix; f > 1; f--)
        for (; n % f == 0; n /= f)
            factors->factor[factors->count++] = f;
    return n == 1;
}

static struct factors factors_of(int size, int given)
{
    struct factors factors;
    int n = size, radix = weft__radix(given, WEFT__MULTIPLYING_RADIX);
    while (!split(&factors, n, radix))
        n--;
    return factors;
}

/* One exchange of all parts: digit d of f has part number d. */
static void exchange(struct weft__build *build, const struct factors *factors, int me, int stride,
                     int factor, struct weft_region *current, struct weft_region to)
{
    struct weft_region part[WEFT__MOST_RADIX];
    int digit = me / stride % factor;
    for (int i = 1; i < factor; i++) {
        int give = (digit + i) % factor, take = (digit + factor - i) % factor;
        int out = weft__multiplying_leader(build->size, factors->participants,
                                           me + (give - digit) * stride);
        int in = weft__multiplying_leader(build->size, factors->participants,
                                          me + (take - digit) * stride);
        part[take] = weft__build_scratch(build, current->count);
        weft__build_send(build, *current, out, 0);
        weft__build_recv(build, part[take], in, 0);
    }
    part[digit] = *current;
    /* In place the own part may be where the sum goes: it is read before that is written. */
    int over = digit > 1 && to.slot == current->slot && to.offset == current->offset;
    struct weft_region sum = over ? part[1] : to;
    for (int i = 1; i < factor; i++)
        weft__build_reduce_segments(build, i < factor - 1 ? sum : to, i > 1 ? sum : part[0],
                                    part[i]);
    *current = to;
}

int weft__multiplying_leader(int size, int participants, int v)
{
    return (int)weft__block_offset((size_t)size, participants, v);
}

/* The participant that a rank is, or gives its part to. */
static int participant_of(int size, int participants, int rank)
{
    int longer = size % participants, each = size / participants;
    int behind = longer * (each + 1); /* where groups become shorter */
    return rank < behind ? rank / (each + 1) : longer + (rank - behind) / each;
}

void weft__build_multiplying(struct weft__build *build, struct weft_region *current,
                             struct weft_region recv)
{
    struct factors factors = factors_of(build->size, build->radix);
    int n = factors.participants, me = participant_of(build->size, n, build->rank);
    int leader = weft__multiplying_leader(build->size, n, me), stride = 1;
    int folded = weft__multiplying_leader(build->size, n, me + 1) - leader - 1; /* 0 or 1 */
    if (build->rank != leader) {
        weft__build_send(build, *current, leader, 0);
        weft__build_recv(build, recv, leader, 0);
        *current = recv;
        return;
    }
    if (folded) {
        struct weft_region acc = n > 1 ? weft__build_scratch(build, recv.count) : recv;
        weft__build_recv_reduce(build, acc, *current, leader + 1, 0, 0);
        *current = acc;
    }
    for (int i = 0; i < factors.count; stride *= factors.factor[i++])
        exchange(build, &factors, me, stride, factors.factor[i], current,
                 i < factors.count - 1 ? weft__build_scratch(build, recv.count) : recv);
    if (folded)
        weft__build_send(build, *current, leader + 1, 0);
}

double weft__cost_multiplying(const struct weft__shape *shape)
{
    struct factors factors = factors_of(shape->size, shape->radix);
    double bytes = (double)shape->bytes, cost = 0;
    for (int i = 0; i < factors.count; i++)
        cost += (factors.factor[i] - 1) * weft__cost_combine(shape, bytes);
    if (factors.participants != shape->size)
        cost += weft__cost_combine(shape, bytes) + weft__cost_message(shape, bytes);
    return cost;
}

int weft__multiplying_rounds(const struct weft__shape *shape)
{
    struct factors factors = factors_of(shape->size, shape->radix);
    return factors.count + 2 * (factors.participants != shape->size);
}
