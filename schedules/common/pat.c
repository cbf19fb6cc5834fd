/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PAT, parallel aggregated trees: allgather and reduce-scatter for any number of ranks, with a
 * bound on the memory for what is under way. S. Jeaugey, 2025, arXiv 2506.20252.
 *
 * Each block has a binomial tree over the ranks, counted from its own: rank b + s is node s of
 * block b, and its parent is node s less its lowest bit. All ranks walk their P trees together: a
 * step is a node s, in which rank r sends for one block to the rank that is s's lowest bit away.
 * Reduce-scatter goes from children to parents, allgather the other way.
 *
 * Aggregation: s = h L + low, and a step `low` is done for all h at once, with one message, as
 * these nodes have parents equally far away. Nodes of low > 0 are walked in depth first order,
 * L - 1 steps with up to ceil((P - 1)/L) blocks: so a rank holds one list of blocks for each level
 * of the tree, log2 L of them. Nodes h L follow, in allgather they come first: log2(P/L) steps.
 *
 *     P = 8, L = 2: steps 1; 2, 4 of 4, 2, 1 blocks       P = 8, L = 8: 4 ... 1, a block each:
 *     of blocks  r-1 r-3 r-5 r-7; r-2 r-6; r-4            steps 7 6 5 4 3 2 1 are a walk
 *
 * Short distances have many blocks and long ones few, the reverse of bruck.
 */
#include <math.h>

#include "schedules/common/pat.h"

enum { LEVELS = 33 };

struct pat {
    struct weft__build *build;
    int low_size;           /* L, a power of two */
    size_t capacity;        /* elements of the largest list */
    struct weft_region top; /* the list of nodes h L, of an allgather */
    struct weft_region level[LEVELS], coming[2], packed[2];
    unsigned steps;
};

/* The smallest L with messages of at most so many blocks. */
static int low_size_of(int size, size_t most)
{
    int64_t low = 2;
    while ((uint64_t)((size - 1 + low - 1) / low) > most)
        low *= 2;
    return (int)low;
}

/* Blocks of a message at most: so many as are told, or as fit what a segment is at least. */
static size_t most_blocks(size_t told, const struct weft_cost_model *cost, double largest)
{
    if (told)
        return told;
    double fit = largest > 0 ? (double)cost->segment_bytes / largest : INT32_MAX;
    return fit < 1 ? 1 : fit > INT32_MAX ? INT32_MAX : (size_t)fit;
}

/* The list of step `low`: how many blocks, which one is number h, and the elements of the first n.
 */
static int list_count(const struct pat *pat, int low)
{
    int64_t size = pat->build->size;
    return low < size ? (int)((size - low + pat->low_size - 1) / pat->low_size) : 0;
}

static int block_of(const struct pat *pat, int low, int h)
{
    int size = pat->build->size;
    return (int)((pat->build->rank - ((int64_t)h * pat->low_size + low) + size) % size);
}

static size_t block_count(const struct pat *pat, int low, int h)
{
    int block = block_of(pat, low, h);
    return weft__build_range(pat->build, block, block + 1);
}

static size_t list_size(const struct pat *pat, int low, int n)
{
    size_t size = 0;
    for (int h = 0; h < n; h++)
        size += block_count(pat, low, h);
    return size;
}

static void make(struct pat *pat, struct weft__build *build)
{
    size_t largest = 0;
    for (int r = 0; r < build->size; r++) {
        size_t count = weft__build_range(build, r, r + 1);
        largest = count > largest ? count : largest;
    }
    double bytes = (double)largest * (double)weft_dtype_size(build->dtype);
    *pat = (struct pat){.build = build};
    pat->low_size = low_size_of(build->size, most_blocks(build->aggregate, build->cost, bytes));
    for (int low = 0; low < pat->low_size; low++) {
        size_t size = list_size(pat, low, list_count(pat, low));
        pat->capacity = size > pat->capacity ? size : pat->capacity;
    }
}

/* A region for a list of this size, made when it is first used. */
static struct weft_region room(struct pat *pat, struct weft_region *kept, size_t size)
{
    if (!kept->count)
        *kept = weft__build_scratch(pat->build, pat->capacity);
    return weft__part(*kept, 0, size);
}

/* The rank that is so many below or above. */
static int away(const struct pat *pat, int64_t ranks)
{
    int size = pat->build->size;
    return (int)((pat->build->rank + ranks + size) % size);
}

/* The children of node `low` are low + bit for lower bits: the largest there may be, and whether
 * there is one. */
static int top_bit(const struct pat *pat, int low)
{
    return (low ? low & -low : pat->low_size) / 2;
}

static int is_node(const struct pat *pat, int low)
{
    return low < pat->low_size && low < pat->build->size;
}

/* ---- reduce-scatter ---- */

static struct weft_region given(const struct pat *pat, int block)
{
    const struct weft__build *build = pat->build;
    return weft__build_blocks(build, build->in_place ? build->recv : build->send, block, block + 1);
}

/* The own contributions to a list: one is where it is, several are copied together. */
static struct weft_region leaf(struct pat *pat, int low)
{
    int n = list_count(pat, low);
    if (n == 1)
        return given(pat, block_of(pat, low, 0));
    struct weft_region to = room(pat, &pat->packed[pat->steps % 2], list_size(pat, low, n));
    size_t offset = 0;
    for (int h = 0; h < n; h++) {
        size_t count = block_count(pat, low, h);
        weft__build_copy(pat->build, weft__part(to, offset, count),
                         given(pat, block_of(pat, low, h)));
        offset += count;
    }
    return to;
}

/* The first child's blocks are added to the own ones; it may have one less. */
static void combine_first(struct pat *pat, int low, struct weft_region acc,
                          struct weft_region coming, int coming_count)
{
    int n = list_count(pat, low);
    size_t offset = 0;
    for (int h = 0; h < n; h++) {
        size_t count = block_count(pat, low, h);
        struct weft_region to = weft__part(acc, offset, count);
        struct weft_region own = given(pat, block_of(pat, low, h));
        if (h < coming_count)
            weft__build_reduce(pat->build, to, own, weft__part(coming, offset, count));
        else
            weft__build_copy(pat->build, to, own);
        offset += count;
    }
}

/* The list of node `low`, combined with what its children have. */
static struct weft_region collect(struct pat *pat, int low, int level)
{
    struct weft_region acc = {0};
    int children = 0;
    for (int bit = top_bit(pat, low); bit > 0; bit /= 2) {
        int child = low + bit, n = list_count(pat, child);
        if (!is_node(pat, child))
            continue;
        struct weft_region out = collect(pat, child, level + 1);
        size_t size = list_size(pat, low, n);
        struct weft_region in = room(pat, &pat->coming[pat->steps++ % 2], size);
        weft__build_send(pat->build, out, away(pat, -bit), (uint64_t)child);
        weft__build_recv(pat->build, in, away(pat, bit), (uint64_t)child);
        if (!children++) {
            acc = room(pat, &pat->level[level], list_size(pat, low, list_count(pat, low)));
            combine_first(pat, low, acc, in, n);
        } else {
            struct weft_region part = weft__part(acc, 0, size);
            weft__build_reduce(pat->build, part, part, in);
        }
    }
    return children ? acc : leaf(pat, low);
}

/* ---- nodes h L ---- */

/* Whether in the step of distance d L node h L is a child (odd 1), or has one (odd 0). */
static int takes_part(const struct pat *pat, int h, int d, int odd)
{
    return odd ? h % (2 * d) == d : h % (2 * d) == 0 && h + d < list_count(pat, 0);
}

/* Those that do: how many blocks, with the first and all elements. */
struct multiples {
    struct weft_region at;
    int count;
};

static struct multiples multiples_of(const struct pat *pat, struct weft_region list, int d, int odd)
{
    struct multiples found = {.at = weft__part(list, 0, 0)};
    int n = list_count(pat, 0);
    size_t offset = 0;
    for (int h = 0; h < n; h++) {
        size_t count = block_count(pat, 0, h);
        int fits = takes_part(pat, h, d, odd);
        if (fits && !found.count++)
            found.at.offset = list.offset + offset;
        found.at.count += fits ? count : 0;
        offset += count;
    }
    return found;
}

/* Each of their blocks in `list`, with its place among them alone in `together`. */
static void each_multiple(struct pat *pat, struct weft_region list, int d, int odd,
                          struct weft_region together,
                          void (*act)(struct weft__build *build, struct weft_region one,
                                      struct weft_region part))
{
    int n = list_count(pat, 0);
    size_t offset = 0, place = 0;
    for (int h = 0; h < n; h++) {
        size_t count = block_count(pat, 0, h);
        if (takes_part(pat, h, d, odd)) {
            act(pat->build, weft__part(list, offset, count), weft__part(together, place, count));
            place += count;
        }
        offset += count;
    }
}

static void pack(struct weft__build *build, struct weft_region one, struct weft_region part)
{
    weft__build_copy(build, part, one);
}

static void unpack(struct weft__build *build, struct weft_region one, struct weft_region part)
{
    weft__build_copy(build, one, part);
}

static void add(struct weft__build *build, struct weft_region one, struct weft_region part)
{
    weft__build_reduce(build, one, one, part);
}

void weft__build_pat_reduce_scatter(struct weft__build *build)
{
    struct pat pat;
    struct weft_region result = weft_region_at(build->recv, 0, weft__build_own(build));
    if (build->size == 1) {
        weft__build_copy(build, result, given(&(struct pat){.build = build}, 0));
        return;
    }
    make(&pat, build);
    struct weft_region list = collect(&pat, 0, 0);
    for (int64_t d = 1; d < list_count(&pat, 0); d *= 2, pat.steps++) {
        struct multiples out = multiples_of(&pat, list, (int)d, 1);
        struct multiples in = multiples_of(&pat, list, (int)d, 0);
        int64_t ranks = d * pat.low_size;
        struct weft_region coming = room(&pat, &pat.coming[pat.steps % 2], in.at.count);
        if (out.count > 1) {
            struct weft_region packed = room(&pat, &pat.packed[pat.steps % 2], out.at.count);
            each_multiple(&pat, list, (int)d, 1, packed, pack);
            out.at = packed;
        }
        weft__build_send(build, out.at, away(&pat, -ranks), (uint64_t)ranks);
        weft__build_recv(build, coming, away(&pat, ranks), (uint64_t)ranks);
        each_multiple(&pat, list, (int)d, 0, coming, add);
    }
    weft__build_copy(build, result, weft__part(list, 0, result.count));
}

/* ---- allgather ---- */

/* A block in "recv", or where the own one is at the start. */
static struct weft_region place(const struct pat *pat, int block)
{
    const struct weft__build *build = pat->build;
    if (block == build->rank && !build->in_place)
        return weft_region_at(build->send, 0, weft__build_own(build));
    return weft__build_blocks(build, build->recv, block, block + 1);
}

/* A list goes to "recv"; the own block has its copy at the end. */
static void copy_out(struct pat *pat, int low, struct weft_region list)
{
    size_t offset = 0;
    for (int h = 0; h < list_count(pat, low); h++) {
        int block = block_of(pat, low, h);
        struct weft_region one = place(pat, block);
        if (block != pat->build->rank)
            weft__build_copy(pat->build, one, weft__part(list, offset, one.count));
        offset += one.count;
    }
}

/* From node `low` to its children; several blocks are in `list`. */
static void spread(struct pat *pat, int low, int level, struct weft_region list)
{
    for (int bit = top_bit(pat, low); bit > 0; bit /= 2) {
        int child = low + bit, n = list_count(pat, child);
        if (!is_node(pat, child))
            continue;
        struct weft_region in = place(pat, block_of(pat, child, 0));
        if (n > 1)
            in = room(pat, &pat->level[level], list_size(pat, child, n));
        weft__build_send(pat->build,
                         n > 1 ? weft__part(list, 0, list_size(pat, low, n))
                               : place(pat, block_of(pat, low, 0)),
                         away(pat, bit), (uint64_t)child);
        weft__build_recv(pat->build, in, away(pat, -bit), (uint64_t)child);
        if (n > 1)
            copy_out(pat, child, in);
        spread(pat, child, level + 1, in);
    }
}

/* One step of nodes h L, between lists of blocks as they lie in "recv". */
static void step_down(struct pat *pat, int d)
{
    struct weft__build *build = pat->build;
    int64_t ranks = (int64_t)d * pat->low_size;
    struct multiples out = multiples_of(pat, pat->top, d, 0);
    struct multiples in = multiples_of(pat, pat->top, d, 1);
    struct weft_region sent = out.at, coming = in.at;
    if (out.count > 1) {
        sent = room(pat, &pat->packed[pat->steps % 2], out.at.count);
        each_multiple(pat, pat->top, d, 0, sent, pack);
    }
    if (in.count > 1)
        coming = room(pat, &pat->coming[pat->steps % 2], in.at.count);
    pat->steps++;
    weft__build_send(build, sent, away(pat, ranks), (uint64_t)ranks);
    weft__build_recv(build, coming, away(pat, -ranks), (uint64_t)ranks);
    if (in.count > 1)
        each_multiple(pat, pat->top, d, 1, coming, unpack);
}

/* The list of nodes h L is put together where the steps down from it need it so; all others are
 * copied out as they come. */
void weft__build_pat_allgather(struct weft__build *build)
{
    struct pat pat;
    int rank = build->rank, highest = 1;
    if (build->size > 1) {
        make(&pat, build);
        int n = list_count(&pat, 0);
        pat.top = n > 1 ? room(&pat, &pat.level[0], list_size(&pat, 0, n)) : place(&pat, rank);
        if (n > 1)
            weft__build_copy(build, weft__part(pat.top, 0, weft__build_own(build)),
                             place(&pat, rank));
        while (2 * highest < n)
            highest *= 2;
        for (int d = highest; d > 0 && n > 1; d /= 2)
            step_down(&pat, d);
        spread(&pat, 0, 1, pat.top);
        if (n > 1)
            copy_out(&pat, 0, pat.top);
    }
    if (!build->in_place)
        weft__build_copy(build, weft__build_blocks(build, build->recv, rank, rank + 1),
                         weft_region_at(build->send, 0, weft__build_own(build)));
}

/* ---- costs ---- */

/* Packing a list of n blocks, or taking it apart; one block is where it is. */
static double pack_cost(const struct weft__shape *shape, double n, double bytes)
{
    return n > 1 ? n * shape->cost->node_us + bytes * shape->cost->copy_us_per_byte : 0;
}

static double list_bytes(const struct weft__shape *shape, double n)
{
    return fmin(n * shape->largest, shape->total);
}

double weft__cost_pat(const struct weft__shape *shape, int reduces)
{
    if (shape->size == 1)
        return 0;
    int low = low_size_of(shape->size, most_blocks(shape->aggregate, shape->cost, shape->largest));
    double (*message)(const struct weft__shape *, double) =
        reduces ? weft__cost_combine : weft__cost_message;
    double n = ceil((shape->size - 1) / (double)low), bytes = list_bytes(shape, n);
    double packs = reduces ? low / 2 : low; /* leaves, or all that come */
    double cost = (low - 1) * message(shape, bytes) + packs * pack_cost(shape, n, bytes);
    for (double left = ceil(shape->size / (double)low); left > 1; left = ceil(left / 2)) {
        bytes = list_bytes(shape, floor(left / 2));
        cost += message(shape, bytes) + 2 * pack_cost(shape, floor(left / 2), bytes);
    }
    return cost + shape->cost->node_us + shape->largest * shape->cost->copy_us_per_byte;
}
