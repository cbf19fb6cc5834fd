/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/graph/ranks.h"

#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Up to so many ranks a list is looked at rank by rank; beyond, range by range. */
enum { FEW = 1 << 20 };

static struct weft__ranks *allocate(int ranges)
{
    struct weft__ranks *ranks =
        weft__calloc(1, sizeof *ranks + (size_t)ranges * sizeof *ranks->ranges);

    if (ranks)
        ranks->range_count = ranges;
    return ranks;
}

/* How many of the first ranks of a list are one range: at least three, or one. */
static int length_of(const int *ranks, int count)
{
    int length = 2;

    if (count < 3 || ranks[1] <= ranks[0])
        return 1;
    while (length < count && ranks[length] - ranks[length - 1] == ranks[1] - ranks[0])
        length++;
    return length < 3 ? 1 : length;
}

struct weft__ranks *weft__ranks_of(const int *ranks, int count)
{
    struct weft__ranks *made;
    int ranges = 0;

    for (int i = 0; i < count; i += length_of(ranks + i, count - i))
        ranges++;
    made = allocate(ranges);
    if (!made)
        return NULL;
    made->count = count;
    ranges = 0;
    for (int i = 0, length; i < count; i += length) {
        length = length_of(ranks + i, count - i);
        made->ranges[ranges++] =
            (struct weft__rank_range){ranks[i], length > 1 ? ranks[i + 1] - ranks[i] : 1, length};
    }
    return made;
}

struct weft__ranks *weft__ranks_all(int size)
{
    const int first[] = {0, 1};
    struct weft__ranks *ranks = size < 3 ? weft__ranks_of(first, size) : allocate(1);

    if (ranks && size >= 3) {
        ranks->count = size;
        ranks->ranges[0] = (struct weft__rank_range){0, 1, size};
    }
    return ranks;
}

struct weft__ranks *weft__ranks_copy(const struct weft__ranks *ranks)
{
    struct weft__ranks *copy = allocate(ranks->range_count);

    if (copy)
        memcpy(copy, ranks, sizeof *ranks + (size_t)ranks->range_count * sizeof *ranks->ranges);
    return copy;
}

struct weft__ranks *weft__ranks_renamed(const struct weft__ranks *ranks, const int *names)
{
    int *all = weft__malloc((size_t)ranks->count, sizeof *all);
    struct weft__ranks *made = NULL;

    if (all) {
        weft__ranks_fill(ranks, all);
        for (int i = 0; i < ranks->count; i++)
            all[i] = names[all[i]];
        made = weft__ranks_of(all, ranks->count);
    }
    weft__free(all);
    return made;
}

/* ---- texts ---- */

void weft__ranks_write(struct weft__out *out, const struct weft__ranks *ranks)
{
    for (int r = 0; r < ranks->range_count; r++) {
        const struct weft__rank_range *range = &ranks->ranges[r];

        weft__out_format(out, "%s%d", r ? "_" : "", range->first);
        if (range->count > 1)
            weft__out_format(out, "to%d", range->first + (range->count - 1) * range->step);
        if (range->count > 1 && range->step > 1)
            weft__out_format(out, "by%d", range->step);
    }
}

int weft__take_number(const char **at, uint64_t most, uint64_t *number)
{
    const char *from = *at;

    for (*number = 0; **at >= '0' && **at <= '9' && *number <= most; (*at)++)
        *number = 10 * *number + (uint64_t)(**at - '0');
    return *at > from && *number <= most && (*from != '0' || *at == from + 1);
}

static int read_rank(const char **at, int *rank)
{
    uint64_t number;
    int reads = weft__take_number(at, INT_MAX - 1, &number);

    *rank = reads ? (int)number : 0;
    return reads;
}

static int read_word(const char **at, const char *word)
{
    size_t length = strlen(word);

    if (strncmp(*at, word, length) != 0)
        return 0;
    *at += length;
    return 1;
}

static int read_range(const char **at, struct weft__rank_range *range)
{
    int last;

    *range = (struct weft__rank_range){0, 1, 1};
    if (!read_rank(at, &range->first))
        return 0;
    if (!read_word(at, "to"))
        return 1;
    if (!read_rank(at, &last) || last <= range->first)
        return 0;
    if (read_word(at, "by") && (!read_rank(at, &range->step) || range->step < 2))
        return 0;
    range->count = (last - range->first) / range->step + 1;
    return (last - range->first) % range->step == 0 && range->count > 1;
}

/* Ranges up to the end of the text, into `out` if it is there: how many; 0: it is no list. */
static int read_ranges(const char *text, struct weft__ranks *out)
{
    struct weft__rank_range range;
    int64_t total = 0;
    int ranges = 0;

    do {
        if (!read_range(&text, &range))
            return 0;
        if (out)
            out->ranges[ranges] = range;
        ranges++;
        total += range.count;
    } while (total < INT_MAX && read_word(&text, "_"));
    if (out)
        out->count = (int)total;
    return *text || total >= INT_MAX ? 0 : ranges;
}

static int compare_ints(const void *left, const void *right)
{
    const int *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

/* a s + b t = the greatest common divisor, which it returns. */
static int64_t divisor(int64_t s, int64_t t, int64_t *a)
{
    int64_t x = 1, next = 0;

    while (t) {
        int64_t quotient = s / t, rest = s % t, after = x - quotient * next;

        s = t;
        t = rest;
        x = next;
        next = after;
    }
    *a = x;
    return s;
}

static int64_t last_of(const struct weft__rank_range *range)
{
    return range->first + (int64_t)(range->count - 1) * range->step;
}

/* Whether two ranges have a rank in common. */
static int meet(const struct weft__rank_range *one, const struct weft__rank_range *two)
{
    int64_t inverse, apart = (int64_t)two->first - one->first;
    int64_t common = divisor(one->step, two->step, &inverse), every, steps, at;
    int64_t end = last_of(one) < last_of(two) ? last_of(one) : last_of(two);
    int64_t begin = one->first > two->first ? one->first : two->first;

    if (apart % common)
        return 0;
    every = two->step / common; /* of one's ranks, each so many are two's, if both had no ends */
    steps = apart / common % every * (inverse % every) % every;
    at = one->first + (steps < 0 ? steps + every : steps) * one->step;
    every *= one->step;
    if (at < begin)
        at += (begin - at + every - 1) / every * every;
    return at <= end;
}

/* Of many ranks: whether one is there twice. */
static int have_twice(const struct weft__ranks *ranks)
{
    for (int r = 0; r < ranks->range_count; r++)
        for (int q = 0; q < r; q++)
            if (meet(&ranks->ranges[q], &ranks->ranges[r]))
                return 1;
    return 0;
}

/* Of few ranks: the list in the ranges that weft__ranks_of() makes; NULL: one is there twice, or
 * there is no memory. */
static struct weft__ranks *made_anew(const struct weft__ranks *ranks, int *no_memory)
{
    size_t count = (size_t)ranks->count;
    int *all = weft__malloc(2 * count, sizeof *all), twice = 0;
    struct weft__ranks *made = NULL;

    if (all) {
        weft__ranks_fill(ranks, all);
        memcpy(all + count, all, count * sizeof *all);
        qsort(all + count, count, sizeof *all, compare_ints);
        for (size_t i = count + 1; i < 2 * count && !twice; i++)
            twice = all[i] == all[i - 1];
        made = twice ? NULL : weft__ranks_of(all, ranks->count);
    }
    weft__free(all);
    *no_memory = !made && !twice;
    return made;
}

int weft__ranks_read(const char *text, struct weft__ranks **out)
{
    int ranges = read_ranges(text, NULL), no_memory = 0;
    struct weft__ranks *ranks;

    *out = NULL;
    if (!ranges)
        return 0;
    ranks = allocate(ranges);
    if (!ranks)
        return -1;
    read_ranges(text, ranks);
    if (ranks->count <= FEW)
        *out = made_anew(ranks, &no_memory);
    else if (!have_twice(ranks))
        *out = ranks;
    if (*out != ranks)
        weft__free(ranks);
    return no_memory ? -1 : 0;
}

/* ---- what is in them ---- */

int weft__ranks_at(const struct weft__ranks *ranks, int place)
{
    const struct weft__rank_range *range = ranks->ranges;

    for (; place >= range->count; range++)
        place -= range->count;
    return range->first + place * range->step;
}

int weft__ranks_place(const struct weft__ranks *ranks, int rank)
{
    int before = 0;

    for (int r = 0; r < ranks->range_count; r++) {
        const struct weft__rank_range *range = &ranks->ranges[r];

        if (rank >= range->first && rank <= last_of(range) &&
            (rank - range->first) % range->step == 0)
            return before + (rank - range->first) / range->step;
        before += range->count;
    }
    return -1;
}

int weft__ranks_last(const struct weft__ranks *ranks)
{
    int64_t last = -1;

    for (int r = 0; r < ranks->range_count; r++)
        if (last_of(&ranks->ranges[r]) > last)
            last = last_of(&ranks->ranges[r]);
    return (int)last;
}

void weft__ranks_fill(const struct weft__ranks *ranks, int *out)
{
    for (int r = 0; r < ranks->range_count; r++)
        for (int i = 0; i < ranks->ranges[r].count; i++)
            *out++ = ranks->ranges[r].first + i * ranks->ranges[r].step;
}

uint64_t weft__ranks_hash(const struct weft__ranks *ranks, uint64_t hash)
{
    for (int r = 0; r < ranks->range_count; r++) {
        hash = weft__hash_word(hash, (uint64_t)ranks->ranges[r].first);
        hash = weft__hash_word(hash, (uint64_t)ranks->ranges[r].step);
        hash = weft__hash_word(hash, (uint64_t)ranks->ranges[r].count);
    }
    return hash;
}
