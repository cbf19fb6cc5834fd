/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection: what topk.h describes, for all formats by way of keys. The workspace is carved into
 * one area a part: bits of candidates, their places, and as many bits to look for the k-th among
 * (the search rearranges them); then the samples. */
#include "ops/topk.h"

#include <math.h>
#include <string.h>

#include "ops/half.h"

enum {
    ALIGNMENT = 64,
    SAMPLES = 16384, /* at most */
    LEAST_SAMPLES = 256,
    SAMPLE_RUN = 4,     /* neighbours taken together: one cache line gives all of them */
    SAMPLE_SHARE = 240, /* at most one element of so many */
    FEW = 8192,         /* so few elements are all candidates */
    ROOM = 65536,       /* candidates beside those that are kept when there is no more room */
    SUM_CHUNK = 4096,   /* elements added and then scanned while they are in the first cache */
    HINT_SAMPLES = 1024,
};

/* ---- keys ---- */

uint64_t weft__topk_infinity(weft_dtype_t dtype)
{
    switch (dtype) {
    case WEFT_F16:
        return 0x7c00;
    case WEFT_BF16:
        return 0x7f80;
    case WEFT_F32:
        return 0x7f800000;
    default:
        return UINT64_C(0x7ff0000000000000);
    }
}

double weft__topk_magnitude(weft_dtype_t dtype, uint64_t key)
{
    double value;

    if (key >= weft__topk_infinity(dtype))
        return HUGE_VAL;
    switch (dtype) {
    case WEFT_F16:
        return (double)weft__f16_widen((uint16_t)key);
    case WEFT_BF16:
        return (double)weft__bf16_widen((uint16_t)key);
    case WEFT_F32:
        return (double)weft__float_of((uint32_t)key);
    default:
        memcpy(&value, &key, sizeof value);
        return value;
    }
}

uint64_t weft__topk_key(weft_dtype_t dtype, double magnitude)
{
    uint64_t low = 0;
    uint64_t high = weft__topk_infinity(dtype);

    while (low < high) { /* keys are in the order of numbers */
        const uint64_t middle = low + (high - low) / 2;

        if (weft__topk_magnitude(dtype, middle) >= magnitude)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static size_t size_of(weft_dtype_t dtype)
{
    return dtype == WEFT_F64 ? 8 : dtype == WEFT_F32 ? 4 : 2;
}

static uint64_t key_at(const void *bits, size_t i, size_t size)
{
    const char *from = (const char *)bits + i * size;
    uint16_t narrow;
    uint32_t word;
    uint64_t wide;

    switch (size) {
    case 2:
        memcpy(&narrow, from, sizeof narrow);
        return narrow & 0x7fffu;
    case 4:
        memcpy(&word, from, sizeof word);
        return word & 0x7fffffffu;
    default:
        memcpy(&wide, from, sizeof wide);
        return wide & (UINT64_MAX >> 1);
    }
}

static inline void clear_at(void *numbers, size_t i, size_t size)
{
    char *to = (char *)numbers + i * size;

    switch (size) {
    case 2:
        memset(to, 0, 2);
        break;
    case 4:
        memset(to, 0, 4);
        break;
    default:
        memset(to, 0, 8);
    }
}

/* ---- workspace ---- */

/* a * b + c, SIZE_MAX if that is too much; such a result stays. */
static size_t add_product(size_t a, size_t b, size_t c)
{
    if (c == SIZE_MAX || (b != 0 && a > (SIZE_MAX - 1 - c) / b))
        return SIZE_MAX;
    return a * b + c;
}

static size_t round_up(size_t bytes)
{
    return bytes > SIZE_MAX - 1 - ALIGNMENT ? SIZE_MAX
                                            : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t part_begin(const struct weft__topk_task *task, size_t part)
{
    const size_t share = task->count / task->parts;
    const size_t more = task->count % task->parts;

    return part * share + (part < more ? part : more);
}

/* Candidates that a part has room for: all its elements, or what it keeps and enough more for
 * making room to be rare. */
static size_t capacity_of(const struct weft__topk_task *task, size_t length)
{
    size_t kept = task->k < length ? task->k : length;

    if (!task->above)
        kept = add_product(kept, 4, ROOM);
    return add_product(kept < length ? kept : length, 1, WEFT__TOPK_BLOCK);
}

static size_t segments_of(size_t begin, size_t end)
{
    return ((uint64_t)(end > begin ? end - 1 : begin) >> 32) - ((uint64_t)begin >> 32) + 1;
}

static size_t part_bytes(const struct weft__topk_task *task, size_t begin, size_t end)
{
    const size_t size = size_of(task->dtype);
    const size_t capacity = capacity_of(task, end - begin);
    size_t bytes = round_up(add_product(capacity, size, 0));

    bytes = round_up(add_product(capacity, sizeof(uint32_t), bytes));
    return round_up(add_product(segments_of(begin, end), sizeof(size_t), bytes));
}

static size_t samples_of(const struct weft__topk_task *task)
{
    size_t samples = SAMPLES;

    while (samples > LEAST_SAMPLES && samples > task->count / SAMPLE_SHARE)
        samples /= 2;
    return samples;
}

/* The room to look for the k-th in is one for all parts, so that the end can use it as a whole. */
static size_t scratch_entries(const struct weft__topk_task *task)
{
    size_t entries = 2 * samples_of(task);

    for (size_t part = 0; part < task->parts; part++) {
        const size_t length = part_begin(task, part + 1) - part_begin(task, part);

        entries = add_product(capacity_of(task, length), 1, entries);
    }
    return entries;
}

size_t weft__topk_bytes(const struct weft__topk_task *task)
{
    const size_t size = size_of(task->dtype);
    size_t bytes = round_up(add_product(task->parts, sizeof(struct weft__topk_part), 0));

    bytes = round_up(add_product(samples_of(task), size, bytes));
    bytes = round_up(add_product(scratch_entries(task), size, bytes));
    for (size_t part = 0; part < task->parts; part++) {
        const size_t begin = part_begin(task, part);
        const size_t end = part_begin(task, part + 1);

        bytes = add_product(part_bytes(task, begin, end), 1, bytes);
    }
    return bytes;
}

static void *carve(char **workspace, size_t bytes)
{
    void *memory = *workspace;

    *workspace += round_up(bytes);
    return memory;
}

static void lay_out(struct weft__topk *topk, char *workspace)
{
    const struct weft__topk_task *task = &topk->task;
    size_t used = 0;

    topk->parts = carve(&workspace, task->parts * sizeof *topk->parts);
    topk->samples = carve(&workspace, samples_of(task) * topk->size);
    topk->scratch = carve(&workspace, scratch_entries(task) * topk->size);
    for (size_t i = 0; i < task->parts; i++) {
        struct weft__topk_part *part = &topk->parts[i];

        *part =
            (struct weft__topk_part){.begin = part_begin(task, i), .end = part_begin(task, i + 1)};
        part->capacity = capacity_of(task, part->end - part->begin);
        part->segments = segments_of(part->begin, part->end);
        part->bits = carve(&workspace, part->capacity * topk->size);
        part->index = carve(&workspace, part->capacity * sizeof *part->index);
        part->marks = carve(&workspace, part->segments * sizeof *part->marks);
        part->scratch = topk->scratch + used * topk->size;
        part->summed = part->begin;
        used += part->capacity;
    }
}

/* ---- the threshold to begin with ---- */

/* One run of neighbours from each of equal ranges, at a place that follows no pattern of the data.
 */
static void take_samples(struct weft__topk *topk)
{
    const struct weft__topk_task *task = &topk->task;
    const size_t size = topk->size;
    const size_t run = SAMPLE_RUN * size;
    const size_t runs = topk->sample_count / SAMPLE_RUN;
    const size_t range = task->count / runs; /* more than a run, see sample_threshold */
    char *others = topk->scratch;
    uint64_t state = 0;

    for (size_t i = 0; i < runs; i++) {
        size_t at;

        state += UINT64_C(0x9e3779b97f4a7c15);
        at = i * range + (size_t)((state ^ state >> 29) % (range - SAMPLE_RUN + 1));
        memcpy(topk->samples + i * run, (const char *)task->values + at * size, run);
        if (task->residual)
            memcpy(others + i * run, (const char *)task->residual + at * size, run);
    }
    if (task->residual)
        topk->sum(topk->samples, others, topk->samples, topk->sample_count);
}

/* The key of the sample's rank-th largest. */
static uint64_t threshold_of_rank(struct weft__topk *topk, size_t rank)
{
    uint64_t key;

    topk->sample_rank = rank;
    if (rank > topk->sample_count)
        return 0;
    memcpy(topk->scratch, topk->samples, topk->sample_count * topk->size);
    key = topk->kernels->kth(topk->scratch, topk->sample_count, rank);
    return key < topk->infinity ? key : topk->infinity; /* it may have been a NaN's */
}

/* Of the k largest, a share of the sample is expected; a threshold is safe if it is that of a few
 * standard deviations more, and a few more because that number is not normal if small. */
static uint64_t sample_threshold(struct weft__topk *topk)
{
    const struct weft__topk_task *task = &topk->task;
    const size_t samples = samples_of(task);
    double expected;

    topk->sample_count = samples;
    take_samples(topk);
    expected = (double)samples * ((double)topk->wanted / (double)task->count);
    return threshold_of_rank(topk, (size_t)ceil(expected + 2.5 * sqrt(expected)) + 3);
}

static uint64_t first_threshold(struct weft__topk *topk)
{
    const struct weft__topk_task *task = &topk->task;

    if (task->above)
        return weft__topk_key(task->dtype, task->threshold);
    if (topk->wanted == 0)
        return topk->infinity + 1; /* nothing but NaNs */
    if (task->count <= FEW || topk->wanted > task->count / 2)
        return 0;
    if (task->hint > 0) {
        const uint64_t key = weft__topk_key(task->dtype, task->hint);

        return key < topk->infinity ? key : topk->infinity;
    }
    return sample_threshold(topk);
}

static void start(struct weft__topk *topk, uint64_t least)
{
    topk->start = least;
    topk->scans++;
    for (size_t i = 0; i < topk->task.parts; i++) {
        struct weft__topk_part *part = &topk->parts[i];

        part->scanned = part->begin;
        part->least = least;
        part->floor = least;
        part->found = 0;
        part->matched = 0;
        part->full = 0;
    }
}

void weft__topk_begin(struct weft__topk *topk, const struct weft__topk_task *task, void *workspace)
{
    *topk = (struct weft__topk){.task = *task,
                                .kernels = weft__topk_kernels_find(task->dtype),
                                .sum = weft__reduce_kernel_find(WEFT_SUM, task->dtype),
                                .size = size_of(task->dtype),
                                .infinity = weft__topk_infinity(task->dtype),
                                .wanted = task->k < task->count ? task->k : task->count};
    lay_out(topk, workspace);
    start(topk, first_threshold(topk));
}

/* ---- candidates of a part ---- */

static size_t segment_end(const struct weft__topk_part *part, size_t segment)
{
    return segment + 1 < part->begun ? part->marks[segment + 1] : part->found;
}

/* The place of an entry of a segment in the whole data. */
static uint64_t place_of(const struct weft__topk_part *part, size_t segment, size_t i)
{
    const uint64_t high = ((uint64_t)part->begin >> 32) + segment;

    return high << 32 | part->index[i];
}

/* Where the tie number `ties` ends, in entries [from, to). */
static size_t after_ties(const struct weft__topk *topk, const struct weft__topk_part *part,
                         size_t from, size_t to, uint64_t key, size_t ties)
{
    size_t i = from;

    for (; i < to && ties > 0; i++)
        ties -= key_at(part->bits, i, topk->size) == key;
    return i;
}

static size_t move_entries(const struct weft__topk *topk, struct weft__topk_part *part, size_t kept,
                           size_t from, size_t to, uint64_t least)
{
    return topk->kernels->filter(part->bits + kept * topk->size, part->index + kept,
                                 part->bits + from * topk->size, part->index + from, to - from,
                                 least);
}

/* Keeps the candidates above `key`, and of those equal to it the first *ties, which it counts down.
 */
static void keep(const struct weft__topk *topk, struct weft__topk_part *part, uint64_t key,
                 size_t *ties)
{
    size_t kept = 0;
    size_t from = 0;

    for (size_t s = 0; s < part->begun; s++) {
        const size_t to = segment_end(part, s);
        const char *bits = part->bits + from * topk->size;
        const size_t equal = topk->kernels->count(bits, to - from, key) -
                             topk->kernels->count(bits, to - from, key + 1);
        const size_t cut = equal <= *ties ? to : after_ties(topk, part, from, to, key, *ties);

        part->marks[s] = kept;
        kept += move_entries(topk, part, kept, from, cut, key);
        kept += move_entries(topk, part, kept, cut, to, key + 1);
        *ties -= equal <= *ties ? equal : *ties;
        from = to;
    }
    part->found = kept;
}

/* Drops all but the best k: later entries must be better than the last of them. */
static void compact(const struct weft__topk *topk, struct weft__topk_part *part)
{
    size_t ties;
    uint64_t key;

    memcpy(part->scratch, part->bits, part->found * topk->size);
    key = topk->kernels->kth(part->scratch, part->found, topk->wanted);
    ties = topk->wanted - topk->kernels->count(part->bits, part->found, key + 1);
    keep(topk, part, key, &ties);
    part->floor = key;
    part->least = key + 1;
}

/* NaNs among the candidates become zeros, and leave unless zeros are candidates. */
static void settle(const struct weft__topk *topk, struct weft__topk_part *part)
{
    const size_t nans = topk->kernels->count(part->bits, part->found, topk->infinity + 1);
    size_t all = SIZE_MAX;
    size_t from = 0;

    if (nans == 0)
        return;
    if (topk->scans == 1)
        part->nans += nans;
    for (size_t s = 0; s < part->begun; s++) {
        const size_t to = segment_end(part, s);

        for (size_t i = from; i < to; i++) {
            if (key_at(part->bits, i, topk->size) <= topk->infinity)
                continue;
            clear_at(part->bits, i, topk->size);
            if (topk->task.residual && topk->task.erase_nans)
                clear_at(topk->task.residual, (size_t)place_of(part, s, i), topk->size);
        }
        from = to;
    }
    keep(topk, part, part->floor, &all);
}

static int has_room(const struct weft__topk_part *part)
{
    return part->capacity - part->found >= WEFT__TOPK_BLOCK;
}

static void make_room(const struct weft__topk *topk, struct weft__topk_part *part)
{
    settle(topk, part);
    if (has_room(part))
        return;
    if (topk->task.above)
        part->full = 1;
    else
        compact(topk, part);
}

/* ---- the scan ---- */

/* The rest of `above` when there is no more room: entries are counted only. */
static void count_on(const struct weft__topk *topk, struct weft__topk_part *part, char *from,
                     size_t count)
{
    const size_t nans = topk->kernels->count(from, count, topk->infinity + 1);

    part->matched += topk->kernels->count(from, count, part->least);
    part->nans += nans;
    for (size_t i = 0; nans > 0 && i < count; i++) {
        if (key_at(from, i, topk->size) <= topk->infinity)
            continue;
        part->matched -= part->least > 0; /* a zero reaches the threshold zero only */
        if (topk->task.residual && topk->task.erase_nans)
            clear_at(from, i, topk->size);
    }
}

/* Whether additions are a step of their own: where no kernel does both, and where nothing is looked
 * for any more. */
static int adds_in_chunks(const struct weft__topk *topk, const struct weft__topk_part *part)
{
    return topk->task.residual && part->summed < part->end &&
           (!topk->kernels->add_scan || part->full);
}

/* The end of what is scanned next: of a chunk if it is added first, and of 2^32 indices. */
static size_t next_stop(const struct weft__topk *topk, const struct weft__topk_part *part)
{
    const uint64_t segment = (uint64_t)part->scanned >> 32;
    size_t stop = part->end;

    if (part->summed > part->scanned)
        stop = part->summed; /* what has been added, but was not seen for lack of room */
    else if (adds_in_chunks(topk, part) && stop - part->scanned > SUM_CHUNK)
        stop = part->scanned + SUM_CHUNK;
    if ((uint64_t)(stop - 1) >> 32 != segment)
        stop = (size_t)((segment + 1) << 32);
    return stop;
}

static void add_up_to(const struct weft__topk *topk, struct weft__topk_part *part, size_t stop)
{
    if (part->summed < stop) {
        char *to = (char *)topk->task.residual + part->summed * topk->size;
        const char *values = (const char *)topk->task.values + part->summed * topk->size;

        topk->sum(to, to, values, stop - part->summed);
        part->summed = stop;
    }
}

/* Scans on up to `stop` or until there is no more room. */
static void scan_up_to(const struct weft__topk *topk, struct weft__topk_part *part, size_t stop)
{
    const struct weft__topk_task *task = &topk->task;
    const int adds = task->residual != NULL;
    const size_t at = part->scanned * topk->size;
    char *from = adds ? (char *)task->residual + at : (char *)task->values + at;
    const size_t count = stop - part->scanned;
    size_t added;

    if (adds_in_chunks(topk, part))
        add_up_to(topk, part, stop);
    if (part->full) {
        count_on(topk, part, from, count);
        part->scanned = stop;
    } else if (adds && part->summed < stop) {
        part->scanned += topk->kernels->add_scan(from, (const char *)task->values + at, count,
                                                 part->least, (uint32_t)part->scanned, part->bits,
                                                 part->index, part->capacity, &part->found, &added);
        part->summed += added;
    } else {
        part->scanned += topk->kernels->scan(from, count, part->least, (uint32_t)part->scanned,
                                             part->bits, part->index, part->capacity, &part->found);
    }
}

void weft__topk_scan(struct weft__topk *topk, size_t index)
{
    struct weft__topk_part *part = &topk->parts[index];
    const uint64_t first = (uint64_t)part->begin >> 32;

    part->marks[0] = 0;
    part->begun = 1;
    while (part->scanned < part->end) {
        const size_t stop = next_stop(topk, part);

        scan_up_to(topk, part, stop);
        if (part->scanned < stop)
            make_room(topk, part);
        else if ((uint64_t)stop >> 32 == first + part->begun && part->begun < part->segments)
            part->marks[part->begun++] = part->found;
    }
    settle(topk, part);
}

static size_t total_found(const struct weft__topk *topk)
{
    size_t total = 0;

    for (size_t i = 0; i < topk->task.parts; i++)
        total += topk->parts[i].found;
    return total;
}

int weft__topk_again(struct weft__topk *topk)
{
    const size_t found = total_found(topk);
    uint64_t least = 0;

    if (topk->task.above || found >= topk->wanted)
        return 0;
    if (topk->sample_rank == 0) {
        least = sample_threshold(topk);
    } else if (topk->scans < 4) {
        /* The sample says how many to expect; it was wrong by this factor, and once again as much.
         */
        const double factor = 2.0 * (double)topk->wanted / (double)(found + 1);
        const double rank = (double)topk->sample_rank * factor + 16;

        if (rank < (double)topk->sample_count)
            least = threshold_of_rank(topk, (size_t)rank);
    }
    start(topk, least < topk->start ? least : 0);
    return 1;
}

size_t weft__topk_nans(const struct weft__topk *topk)
{
    size_t nans = 0;

    for (size_t i = 0; i < topk->task.parts; i++)
        nans += topk->parts[i].nans;
    return nans;
}

/* ---- the end ---- */

/* The exact threshold: the k-th among the candidates of all parts, and how many equal to it remain.
 */
static uint64_t last_key(struct weft__topk *topk, size_t *ties)
{
    char *to = topk->scratch;
    uint64_t key;
    size_t total = 0;

    for (size_t i = 0; i < topk->task.parts; i++) {
        const struct weft__topk_part *part = &topk->parts[i];

        memcpy(to + total * topk->size, part->bits, part->found * topk->size);
        total += part->found;
    }
    key = topk->kernels->kth(to, total, topk->wanted);
    *ties = topk->wanted;
    for (size_t i = 0; i < topk->task.parts; i++)
        *ties -= topk->kernels->count(topk->parts[i].bits, topk->parts[i].found, key + 1);
    return key;
}

/* A threshold that, of data like these, some more than k reach: from a sample of the candidates. */
static double next_hint(struct weft__topk *topk, size_t total)
{
    const weft_dtype_t dtype = topk->task.dtype;
    const size_t share = topk->task.count / 50;
    const size_t more = topk->wanted + 64 + (topk->wanted < share ? topk->wanted : share);
    const size_t step = total / HINT_SAMPLES + 1;
    size_t samples = 0;

    if (topk->task.above || topk->wanted == 0)
        return 0;
    if (total < more)
        return 0.97 * weft__topk_magnitude(dtype, topk->start);
    for (size_t i = 0, skip = 0; i < topk->task.parts; i++) {
        const struct weft__topk_part *part = &topk->parts[i];
        size_t at = skip;

        for (; at < part->found; at += step, samples++)
            memcpy(topk->scratch + samples * topk->size, part->bits + at * topk->size, topk->size);
        skip = at - part->found;
    }
    const double rank = (double)more / (double)total * (double)samples;
    const size_t k = rank < 1 ? 1 : rank > (double)samples ? samples : (size_t)rank;
    return weft__topk_magnitude(dtype, topk->kernels->kth(topk->scratch, samples, k));
}

/* The first `limit` entries of a part to the output, and zeros to where they came from. */
static size_t give(const struct weft__topk *topk, const struct weft__topk_part *part, size_t limit,
                   void *indices, int wide, char *values, size_t given)
{
    const size_t count = part->found < limit ? part->found : limit;
    const size_t size = topk->size;
    char *residual = topk->task.residual;
    size_t i = 0;

    if (count == 0) /* there may be no memory then */
        return 0;
    memcpy(values + given * size, part->bits, count * size);
    if (!wide)
        memcpy((char *)indices + given * sizeof(uint32_t), part->index, count * sizeof(uint32_t));
    for (size_t s = 0; s < part->begun && (wide || residual); s++) {
        const size_t to = segment_end(part, s) < count ? segment_end(part, s) : count;

        for (; i < to; i++) {
            const uint64_t place = place_of(part, s, i);

            if (wide)
                memcpy((char *)indices + (given + i) * sizeof place, &place, sizeof place);
            if (residual)
                clear_at(residual, (size_t)place, size);
        }
    }
    return count;
}

static uint64_t least_key(const struct weft__topk *topk, const void *values, size_t count)
{
    uint64_t least = topk->infinity;

    for (size_t i = 0; i < count; i++) {
        const uint64_t key = key_at(values, i, topk->size);

        least = key < least ? key : least;
    }
    return least;
}

void weft__topk_end(struct weft__topk *topk, void *indices, int wide, void *values,
                    struct weft__topk_report *report)
{
    const size_t total = total_found(topk);
    const int too_many = !topk->task.above && total > topk->wanted && topk->wanted > 0;
    uint64_t least = 0;
    size_t ties = 0;
    size_t given = 0;

    *report = (struct weft__topk_report){.candidates = total, .hint = next_hint(topk, total)};
    if (too_many) {
        least = last_key(topk, &ties);
        for (size_t i = 0; i < topk->task.parts; i++)
            keep(topk, &topk->parts[i], least, &ties);
    }
    for (size_t i = 0; i < topk->task.parts; i++) {
        const struct weft__topk_part *part = &topk->parts[i];

        report->found += part->found + part->matched;
        given += give(topk, part, topk->wanted - given, indices, wide, values, given);
    }
    if (!too_many && given > 0)
        least = least_key(topk, values, given);
    report->count = given;
    report->threshold = given > 0 ? weft__topk_magnitude(topk->task.dtype, least) : 0;
}
