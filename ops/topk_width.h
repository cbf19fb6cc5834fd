/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of one width of keys; topk_template.h includes this once for each of 16, 32 and 64,
 * as WEFT__WIDTH. What is worth writing by hand for a SIMD level is hits_N (which of a block of
 * elements reach the threshold) and push_N, move_N (take those of a block together). */
#define PASTE_(a, b, c) a##b##c
#define PASTE(a, b, c)  PASTE_(a, b, c)
#define KEY             PASTE(weft__key_, WEFT__WIDTH, )
#define BITS            PASTE(uint, WEFT__WIDTH, _t)
#define NAME(name)      PASTE(name, _, WEFT__WIDTH)
#define NUMBER          PASTE(weft__number_, WEFT__WIDTH, )
#define MAGNITUDE(x)    ((BITS)((x) & (BITS)((BITS) ~(BITS)0 >> 1)))

#ifndef WEFT__TOPK_HITS
static inline int NAME(any)(const KEY *x, BITS least)
{
    BITS most = 0;

    for (int i = 0; i < WEFT__TOPK_BLOCK; i++) {
        const BITS key = MAGNITUDE(x[i]);

        most = key > most ? key : most;
    }
    return most >= least;
}

static inline uint64_t NAME(hits)(const KEY *x, BITS least)
{
    uint64_t hits = 0;

    for (int i = 0; i < WEFT__TOPK_BLOCK; i++)
        hits |= (uint64_t)(MAGNITUDE(x[i]) >= least) << i;
    return hits;
}
#endif

#ifndef WEFT__TOPK_COMPRESS
/* At most as much is written as is read, so that `to` may be what is moved. */
static inline size_t NAME(move)(KEY *to, uint32_t *to_index, const KEY *x, const uint32_t *index,
                                uint64_t hits)
{
    size_t n = 0;

    for (; hits != 0; hits &= hits - 1) {
        const int i = WEFT__LOWEST_BIT(hits);

        to[n] = x[i];
        to_index[n++] = index[i];
    }
    return n;
}
#endif

/* The hits of a block, one after the other: best where there rarely are two. */
static inline size_t NAME(push)(KEY *to, uint32_t *index, const KEY *x, uint64_t hits,
                                uint32_t base)
{
    size_t n = 0;

    for (; hits != 0; hits &= hits - 1) {
        const int i = WEFT__LOWEST_BIT(hits);

        to[n] = x[i];
        index[n++] = base + (uint32_t)i;
    }
    return n;
}

#ifndef WEFT__TOPK_COMPRESS
static inline size_t NAME(push_many)(KEY *to, uint32_t *index, const KEY *x, uint64_t hits,
                                     uint32_t base)
{
    return NAME(push)(to, index, x, hits, base);
}
#endif

/* The same without a guess at how many there are, as long as they are not more than three: room for
 * a whole block is there, so three are written in any case. */
static inline size_t NAME(push_three)(KEY *to, uint32_t *index, const KEY *x, uint64_t hits,
                                      uint32_t base)
{
    const size_t n = (size_t)WEFT__ONES(hits);
    const uint64_t second = hits & (hits - 1);
    const uint64_t third = second & (second - 1);
    const int places[3] = {WEFT__LOWEST_BIT(hits), WEFT__LOWEST_BIT(second | WEFT__TOP_BIT),
                           WEFT__LOWEST_BIT(third | WEFT__TOP_BIT)};

    if (n > 3)
        return NAME(push_many)(to, index, x, hits, base);
    for (int i = 0; i < 3; i++) {
        to[i] = x[places[i]];
        index[i] = base + (uint32_t)places[i];
    }
    return n;
}

/* x[i] += y[i]; floating point of this width, of which there is one but for 16 bits. */
static inline void NAME(add)(KEY *x, const KEY *y, int count)
{
#if WEFT__WIDTH == 16
    (void)x;
    (void)y;
    (void)count;
#else
    NUMBER *to = (NUMBER *)x;
    const NUMBER *from = (const NUMBER *)y;

    WEFT__INDEPENDENT
    for (int i = 0; i < count; i++)
        to[i] += from[i];
#endif
}

/* Which of at most 64 blocks have hits. Most have none, but which do cannot be predicted, so that
 * is no branch. */
static inline uint64_t NAME(blocks_hit)(KEY *x, const KEY *y, size_t blocks, BITS least)
{
    uint64_t hit = 0;

    for (size_t block = 0; block < blocks; block++) {
        KEY *from = x + block * WEFT__TOPK_BLOCK;

        prefetch_block(from, sizeof(KEY));
        if (y) {
            prefetch_block(y + block * WEFT__TOPK_BLOCK, sizeof(KEY));
            NAME(add)(from, y + block * WEFT__TOPK_BLOCK, WEFT__TOPK_BLOCK);
        }
        hit |= (uint64_t)NAME(any)(from, least) << block;
    }
    return hit;
}

/* y, if it is not NULL, is added to x first; *added then says how much of that has been done. */
static inline size_t NAME(scan_or_add)(KEY *x, const KEY *y, size_t count, uint64_t least,
                                       uint32_t base, KEY *to, uint32_t *index, size_t capacity,
                                       size_t *found, size_t *added)
{
    size_t n = *found;
    size_t i = 0;

    while (count - i >= WEFT__TOPK_BLOCK) {
        const size_t left = (count - i) / WEFT__TOPK_BLOCK;
        const size_t blocks = left < 64 ? left : 64;
        uint64_t hit = NAME(blocks_hit)(x + i, y ? y + i : NULL, blocks, (BITS)least);

        const int many = WEFT__ONES(hit) > WEFT__TOPK_FEW;
        uintptr_t next = (uintptr_t)(x + i + blocks * WEFT__TOPK_BLOCK) + WEFT__TOPK_AHEAD;

        *added = i + blocks * WEFT__TOPK_BLOCK;
        for (; hit != 0; hit &= hit - 1) {
            const size_t at = i + (size_t)WEFT__LOWEST_BIT(hit) * WEFT__TOPK_BLOCK;

            if (capacity - n < WEFT__TOPK_BLOCK) {
                *found = n;
                return at;
            }
            const uint64_t hits = NAME(hits)(x + at, (BITS)least);

            for (int line = 0; line < (many ? 4 : 2); line++, next += 64)
                WEFT__PREFETCH(next);
            if (many)
                n += NAME(push_three)(to + n, index + n, x + at, hits, base + (uint32_t)at);
            else
                n += NAME(push)(to + n, index + n, x + at, hits, base + (uint32_t)at);
        }
        i += blocks * WEFT__TOPK_BLOCK;
    }
    for (; i < count && n < capacity; i++) {
        if (y)
            NAME(add)(x + i, y + i, 1);
        if (MAGNITUDE(x[i]) >= least) {
            to[n] = x[i];
            index[n++] = base + (uint32_t)i;
        }
        *added = i + 1;
    }
    *found = n;
    return i;
}

static size_t NAME(scan)(const void *x, size_t count, uint64_t least, uint32_t base, void *bits,
                         uint32_t *index, size_t capacity, size_t *found)
{
    size_t added;

    return NAME(scan_or_add)((KEY *)x, NULL, count, least, base, bits, index, capacity, found,
                             &added);
}

#if WEFT__WIDTH != 16
static size_t NAME(add_scan)(void *x, const void *y, size_t count, uint64_t least, uint32_t base,
                             void *bits, uint32_t *index, size_t capacity, size_t *found,
                             size_t *added)
{
    *added = 0;
    return NAME(scan_or_add)(x, y, count, least, base, bits, index, capacity, found, added);
}
#endif

static size_t NAME(filter)(void *to_bits, uint32_t *to_index, const void *bits,
                           const uint32_t *index, size_t count, uint64_t least)
{
    const KEY *x = bits;
    KEY *to = to_bits;
    size_t n = 0;
    size_t i = 0;

    for (; count - i >= WEFT__TOPK_BLOCK; i += WEFT__TOPK_BLOCK) {
        const uint64_t hits = NAME(hits)(x + i, (BITS)least);

        if (hits != 0)
            n += NAME(move)(to + n, to_index + n, x + i, index + i, hits);
    }
    for (; i < count; i++) {
        if (MAGNITUDE(x[i]) >= least) {
            to[n] = x[i];
            to_index[n++] = index[i];
        }
    }
    return n;
}

static size_t NAME(split)(void *bits, uint32_t *index, size_t count, uint64_t least,
                          void *rest_bits, uint32_t *rest_index)
{
    KEY *x = bits;
    KEY *rest = rest_bits;
    size_t kept = 0;
    size_t left = 0;
    size_t i = 0;

    for (; count - i >= 2 * WEFT__TOPK_BLOCK; i += WEFT__TOPK_BLOCK) {
        const uint64_t hits = NAME(hits)(x + i, (BITS)least);

        /* What is not kept goes first: keeping overwrites. */
        left += NAME(move)(rest + left, rest_index + left, x + i, index + i, ~hits);
        kept += NAME(move)(x + kept, index + kept, x + i, index + i, hits);
    }
    for (; i < count; i++) {
        const BITS value = x[i];
        const uint32_t at = index[i];
        const size_t stays = MAGNITUDE(value) >= least;

        x[kept] = rest[left] = value;
        index[kept] = rest_index[left] = at;
        kept += stays;
        left += !stays;
    }
    return kept;
}

static size_t NAME(count)(const void *from, size_t count, uint64_t least)
{
    const KEY *x = from;
    const BITS bound = (BITS)least;
    size_t total = 0;

    for (size_t i = 0; i < count;) {
        const size_t stop = count - i > 4096 ? i + 4096 : count;
        BITS n = 0; /* as narrow as the elements, so that a vector of them counts */

        for (; i < stop; i++)
            n = (BITS)(n + (MAGNITUDE(x[i]) >= bound));
        total += n;
    }
    return total;
}

/* ---- the k-th largest: a histogram over the range that it is in, which becomes its bin ---- */

static inline int NAME(width_of)(BITS range)
{
    int width = 0;

    for (; range != 0; range >>= 1)
        width++;
    return width;
}

static BITS NAME(kth_of_few)(KEY *x, size_t count, size_t k)
{
    for (size_t i = 1; i < count; i++) {
        const BITS bits = x[i];
        size_t j = i;

        for (; j > 0 && MAGNITUDE(x[j - 1]) < MAGNITUDE(bits); j--)
            x[j] = x[j - 1];
        x[j] = bits;
    }
    return MAGNITUDE(x[k - 1]);
}

#ifndef WEFT__TOPK_COMPRESS
/* Keeps the keys in [least, most]. */
static size_t NAME(between)(KEY *x, size_t count, BITS least, BITS most)
{
    const BITS range = (BITS)(most - least);
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        const BITS bits = x[i];

        x[n] = bits;
        n += (BITS)(MAGNITUDE(bits) - least) <= range;
    }
    return n;
}
#endif

/* The bin of the k-th largest of keys from `least` on, and its rank within that bin. */
static size_t NAME(bin_of)(const KEY *x, size_t count, BITS least, int shift, size_t *k)
{
    /* By turns, so that equal keys need not wait for each other. */
    size_t bins[2][WEFT__TOPK_BINS] = {{0}};
    size_t bin = WEFT__TOPK_BINS - 1;

    for (size_t i = 0; i < count; i++)
        bins[i & 1][(BITS)(MAGNITUDE(x[i]) - least) >> shift]++;
    while (*k > bins[0][bin] + bins[1][bin]) {
        *k -= bins[0][bin] + bins[1][bin];
        bin--;
    }
    return bin;
}

static BITS NAME(kth_by_bins)(KEY *x, size_t count, size_t k)
{
    enum { FEW = 48 };
    BITS least = (BITS) ~(BITS)0;
    BITS most = 0;

    for (size_t i = 0; i < count; i++) {
        const BITS key = MAGNITUDE(x[i]);

        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    while (least != most && count > FEW) {
        const int width = NAME(width_of)((BITS)(most - least));
        const int shift = width > WEFT__TOPK_BINS_LOG2 ? width - WEFT__TOPK_BINS_LOG2 : 0;
        const size_t bin = NAME(bin_of)(x, count, least, shift, &k);

        least = (BITS)(least + (BITS)((BITS)bin << shift));
        most = (BITS)(least + (BITS)(((BITS)1 << shift) - 1));
        if (shift > 0)
            count = NAME(between)(x, count, least, most);
    }
    return least == most ? least : NAME(kth_of_few)(x, count, k);
}

/* A histogram handles each key by itself, comparisons handle a vector: so the range is narrowed
 * first to where a sample says that the k-th most likely is, as Floyd and Rivest do (Expected time
 * bounds for selection, CACM 18, 1975), unless that turns out to be wrong. */
static uint64_t NAME(kth)(void *bits, size_t count, size_t k)
{
    enum { SAMPLES = 512, MANY = 8 * SAMPLES };
    KEY *x = bits;

    while (count > MANY) {
        const size_t step = count / SAMPLES;
        const double rank = (double)k / (double)count * SAMPLES;
        const double margin = 3 * sqrt(rank * (1 - (double)k / (double)count)) + 2;
        const size_t low = rank + margin < SAMPLES ? (size_t)(rank + margin) + 1 : 0;
        const size_t high = rank - margin > 1 ? (size_t)(rank - margin) : 0;
        BITS sample[SAMPLES], copy[SAMPLES];
        BITS least = 0;
        BITS most = (BITS)((BITS) ~(BITS)0 >> 1);
        size_t above = 0;

        for (size_t i = 0; i < SAMPLES; i++)
            sample[i] = copy[i] = x[i * step];
        if (low > 0)
            least = NAME(kth_by_bins)((KEY *)copy, SAMPLES, low);
        if (high > 0)
            most = NAME(kth_by_bins)((KEY *)sample, SAMPLES, high);
        if (high > 0)
            above = NAME(count)(x, count, (uint64_t)most + 1);
        if (above >= k || NAME(count)(x, count, least) < k)
            break;
        if (least == most)
            return least;
        const size_t left = NAME(between)(x, count, least, most);
        k -= above;
        if (left > count / 2) {
            count = left;
            break;
        }
        count = left;
    }
    return NAME(kth_by_bins)(x, count, k);
}

#undef PASTE_
#undef PASTE
#undef KEY
#undef BITS
#undef NAME
#undef NUMBER
#undef MAGNITUDE
