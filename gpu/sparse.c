/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations on lists of pairs (weft/sparse.h), in the order of their kernels (lists.cu, sparse.cu
 * and topk.cu in gpu/kernels/):
 *
 *     topk-merge     check both; add them; NaNs; the k-th largest; what stays, and the rest
 *     sparse-keep    check; the k-th largest, or the threshold; what stays, and the rest
 *     sparse-part    where it is; and if it is too long, as sparse-keep
 *     sparse-sum     check; add them, along a tree; NaNs
 *     sparse-join    check; add them: as many pairs as both have, or an index was in both
 *     sparse-bounds  look at all of it
 *
 * Each kernel reads a list once at most. What has been found goes to the report
 * (runtime/sparse/operations.h) at the end.
 */
#include "gpu/operate.h"

#include "runtime/sparse/operations.h"

/* The report of the kernels is that of the runtime. */
#define SAME(member, word)                                                                         \
    _Static_assert(offsetof(struct weft_gpu_found, member) == (word) * sizeof(uint64_t),           \
                   "a word of the report")
SAME(disorder, WEFT__SPARSE_DISORDER);
SAME(nans, WEFT__SPARSE_NANS);
SAME(outside, WEFT__SPARSE_OUTSIDE);
SAME(count, WEFT__SPARSE_COUNT);
SAME(total, WEFT__SPARSE_TOTAL);
SAME(detail, WEFT__SPARSE_DETAIL);
_Static_assert(sizeof(struct weft_gpu_found) == WEFT__REPORT_WORDS * sizeof(uint64_t), "a report");
_Static_assert((int)WEFT__BOUNDS_ENDS == WEFT_BOUNDS_ENDS &&
                   (int)WEFT__BOUNDS_STEP == WEFT_BOUNDS_STEP &&
                   (int)WEFT__BOUNDS_ORDER == WEFT_BOUNDS_ORDER &&
                   (int)WEFT__BOUNDS_LAST == WEFT_BOUNDS_LAST,
               "what is wrong with bounds");
_Static_assert((int)WEFT_GPU_MOST_LISTS == WEFT_SPARSE_FAN, "lists of a sum");

enum {
    DIGITS = 3, /* of the bits of an f32 without its sign */
    BINS = 2048,
    CHUNK = WEFT__GPU_THREADS * WEFT_SELECT_ITEMS,
    RANGE = 2 * sizeof(uint64_t),
};

/* Pairs in arrays of their own. */
struct buffer {
    char *index, *value;
};

/* What an operation works in. */
struct work {
    struct weft_gpu_chain *chain;
    void *totals;
    uint64_t *splits, *counts; /* of tiles */
    uint64_t *above, *equal;   /* of chunks */
    char *ranges;              /* of sums on the way */
    struct buffer sums[2];
    size_t range; /* the next of them */
};

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t pairs_of(const struct weft_call *call, size_t first, size_t last)
{
    size_t pairs = 0;

    for (size_t i = first; i < last; i++)
        pairs = call->arguments[i].count > SIZE_MAX / 64 - pairs ? SIZE_MAX / 64
                                                                 : pairs + call->arguments[i].count;
    return pairs;
}

/* Pairs of all lists that an operation reads. */
static size_t pairs_read(int kind, const struct weft_call *call)
{
    switch (kind) {
    case WEFT_SPARSE_MERGE:
    case WEFT_SPARSE_JOIN:
        return pairs_of(call, 1, 3);
    case WEFT_SPARSE_SUM:
        return pairs_of(call, 2, call->argument_count);
    default:
        return call->arguments[1].count;
    }
}

static struct work lay_out(struct weft__cuda_room *room, int kind, const struct weft_call *call)
{
    const size_t pairs = pairs_read(kind, call);
    const size_t tiles = pairs / WEFT_MERGE_TILE + 2, chunks = pairs / CHUNK + 2;
    const int merges =
        kind == WEFT_SPARSE_MERGE || kind == WEFT_SPARSE_SUM || kind == WEFT_SPARSE_JOIN;
    const int keeps = kind != WEFT_SPARSE_JOIN && kind != WEFT_SPARSE_BOUNDS;
    const int buffers = kind == WEFT_SPARSE_SUM ? 2 : kind == WEFT_SPARSE_MERGE;
    struct work work = {.chain = weft__cuda_carve(room, 1, sizeof *work.chain)};

    if (keeps) {
        work.totals = weft__cuda_carve(room, BINS, sizeof(uint64_t));
        work.above = weft__cuda_carve(room, chunks, sizeof *work.above);
        work.equal = weft__cuda_carve(room, chunks, sizeof *work.equal);
    }
    if (merges) {
        work.splits = weft__cuda_carve(room, tiles, sizeof *work.splits);
        work.counts = weft__cuda_carve(room, tiles, sizeof *work.counts);
    }
    for (int i = 0; i < buffers; i++) {
        work.sums[i].index = weft__cuda_carve(room, pairs, sizeof(uint32_t));
        work.sums[i].value = weft__cuda_carve(room, pairs, sizeof(float));
    }
    if (kind == WEFT_SPARSE_SUM)
        work.ranges = weft__cuda_carve(room, WEFT_SPARSE_FAN, RANGE);
    return work;
}

size_t weft__cuda_sparse_room(int kind, const struct weft_call *most)
{
    struct weft__cuda_room room = {0};

    if (kind == WEFT_SPARSE_SELECT || kind == WEFT_SPARSE_ABOVE)
        return weft__cuda_select_room(most);
    lay_out(&room, kind, most);
    return room.used;
}

static int refuses_nans(const struct weft__cuda_task *task)
{
    return ((const struct weft__sparse_settings *)task->call->user)->nan == WEFT_NAN_ERROR;
}

/* ---- lists ---- */

static struct weft_gpu_list list_of(const struct weft_argument *argument)
{
    char *data = weft__cuda_data(argument);

    return (struct weft_gpu_list){.indices = data,
                                  .values = data ? data + argument->count * sizeof(uint32_t) : NULL,
                                  .count = argument->count};
}

/* What the device has written, of so many pairs at most. */
static struct weft_gpu_list list_in(const struct buffer *buffer, const uint64_t *range, size_t most)
{
    return (struct weft_gpu_list){
        .indices = buffer->index, .values = buffer->value, .count = most, .range = range};
}

static uint64_t *range_of(const struct work *work)
{
    return (uint64_t *)(void *)((char *)work->chain + offsetof(struct weft_gpu_chain, range));
}

static void begin(struct weft__cuda_task *task, struct work *work)
{
    WEFT__CUDA_RUN(task, weft_list_begin, 1, WEFT__GPU_THREADS, &work->chain, &work->totals);
}

/* `range`: of a list whose length is the number that is told; NULL: that has been written down. */
static void end(struct weft__cuda_task *task, struct work *work, const uint64_t *range)
{
    WEFT__CUDA_RUN(task, weft_list_end, 1, 1, &work->chain, &range, &task->report);
}

static void check(struct weft__cuda_task *task, struct work *work,
                  const struct weft_gpu_list *lists, size_t count, uint32_t flags)
{
    struct weft_gpu_lists given = {.count = (uint32_t)count};
    size_t most = 0;

    for (size_t i = 0; i < count; i++) {
        given.list[i] = lists[i];
        most = lists[i].count > most ? lists[i].count : most;
    }
    WEFT__CUDA_RUN(task, weft_list_check, weft__cuda_blocks(most), WEFT__GPU_THREADS, &given,
                   &flags, &work->chain);
}

/* The sum of two lists to `index` and `value` (NULL: behind the indices), and its length. */
static void add(struct weft__cuda_task *task, struct work *work, struct weft_gpu_list a,
                struct weft_gpu_list b, void *index, void *value, uint64_t *range)
{
    const size_t tiles = (a.count + b.count) / WEFT_MERGE_TILE + 1;
    const size_t blocks = lesser(tiles, WEFT__GPU_BLOCKS);
    char *chain = (char *)work->chain;
    void *disorder = chain + offsetof(struct weft_gpu_chain, found.disorder);
    void *done = chain + offsetof(struct weft_gpu_chain, blocks);

    WEFT__CUDA_RUN(task, weft_merge_split_u32, weft__cuda_blocks(tiles + 1), WEFT__GPU_THREADS, &a,
                   &b, &disorder, &work->splits);
    WEFT__CUDA_RUN(task, weft_merge_count_u32, blocks, WEFT__GPU_THREADS, &a, &b, &disorder,
                   &work->splits, &work->counts, &range, &done);
    WEFT__CUDA_RUN(task, weft_merge_write_f32_u32, blocks, WEFT__GPU_THREADS, &a, &b, &disorder,
                   &work->splits, &work->counts, &range, &index, &value);
}

/* ---- what stays ---- */

/* The k-th largest of a list, digit by digit; with a threshold, whichever is greater. */
static void search(struct weft__cuda_task *task, struct work *work, struct weft_gpu_list list,
                   const void *threshold)
{
    const uint64_t *range = list.range;
    void *select = (char *)work->chain + offsetof(struct weft_gpu_chain, select);
    const void *addend = NULL, *values = list.values;
    uint64_t count = list.count, capacity = 0;
    uint32_t flags = 0;

    for (int digit = 0; digit < DIGITS; digit++)
        WEFT__CUDA_RUN(task, weft_topk_count_f32, weft__cuda_blocks(list.count), WEFT__GPU_THREADS,
                       &values, &addend, &count, &range, &flags, &capacity, &select, &work->totals);
    if (threshold)
        WEFT__CUDA_RUN(task, weft_list_raise, 1, 1, &threshold, &work->chain);
}

/* The k largest of a list to region 0; the others to the residual, region `index`, if there is one.
 * `all`: it is known that k are all. */
static void keep(struct weft__cuda_task *task, struct work *work, struct weft_gpu_list list,
                 uint64_t k, int all, const void *threshold, size_t index)
{
    const struct weft_call *call = task->call;
    const size_t blocks = lesser(list.count / CHUNK + 1, WEFT__GPU_BLOCKS);
    uint32_t flags = (refuses_nans(task) ? WEFT_LIST_NANS : WEFT_LIST_CLEAR) |
                     (threshold ? WEFT_LIST_RAISED : 0);
    void *out = weft__cuda_data(&call->arguments[0]), *residual = NULL;
    uint64_t residual_count = 0;

    if (index < call->argument_count) {
        residual = weft__cuda_data(&call->arguments[index]);
        residual_count = call->arguments[index].count;
    }
    WEFT__CUDA_RUN(task, weft_list_select, 1, 1, &list, &k, &work->chain);
    if (!all || threshold)
        search(task, work, list, threshold);
    WEFT__CUDA_RUN(task, weft_list_count, blocks, WEFT__GPU_THREADS, &list, &work->chain,
                   &work->above, &work->equal);
    WEFT__CUDA_RUN(task, weft_list_write, blocks, WEFT__GPU_THREADS, &list, &work->chain,
                   &work->above, &work->equal, &k, &flags, &out, &residual, &residual_count);
}

static void merge(struct weft__cuda_task *task, struct work *work)
{
    const struct weft_argument *arguments = task->call->arguments;
    const struct weft_gpu_list lists[] = {list_of(&arguments[1]), list_of(&arguments[2])};
    const size_t both = lists[0].count + lists[1].count;
    const size_t k = lesser(lesser(arguments[4].count, both), arguments[0].count);
    const struct weft_gpu_list sum = list_in(&work->sums[0], range_of(work), both);

    begin(task, work);
    check(task, work, lists, 2, WEFT_LIST_ORDER);
    add(task, work, lists[0], lists[1], work->sums[0].index, work->sums[0].value, range_of(work));
    check(task, work, &sum, 1, WEFT_LIST_NANS);
    keep(task, work, sum, k, k == both, NULL, 5);
    end(task, work, NULL);
}

static void keep_largest(struct weft__cuda_task *task, struct work *work)
{
    const struct weft_argument *arguments = task->call->arguments;
    const struct weft_gpu_list list = list_of(&arguments[1]);
    const size_t k = lesser(lesser(arguments[4].count, list.count), arguments[0].count);

    begin(task, work);
    check(task, work, &list, 1, WEFT_LIST_ORDER | WEFT_LIST_NANS);
    keep(task, work, list, k, 0, arguments[2].data, 5);
    end(task, work, NULL);
}

/* ---- parts ---- */

static void cut(struct weft__cuda_task *task, struct work *work)
{
    const struct weft_argument *arguments = task->call->arguments;
    const int limited = task->call->argument_count > 3;
    struct weft_gpu_list list = list_of(&arguments[1]);
    uint64_t k = limited ? lesser(arguments[4].count, arguments[0].count) : arguments[0].count;
    uint64_t most = limited ? k : UINT64_MAX, bound_count = arguments[2].count;
    const void *bounds = arguments[2].data;

    begin(task, work);
    WEFT__CUDA_RUN(task, weft_list_cut, 1, 1, &list, &bounds, &bound_count, &most, &work->chain);
    list.range = range_of(work);
    if (limited)
        check(task, work, &list, 1, WEFT_LIST_ORDER | WEFT_LIST_NANS);
    keep(task, work, list, k, !limited, NULL, 5);
    end(task, work, NULL);
}

static void validate(struct weft__cuda_task *task, struct work *work)
{
    const struct weft_argument *arguments = task->call->arguments;
    struct weft_gpu_list list = list_of(&arguments[1]);
    uint64_t bound_count = arguments[0].count, elements = arguments[2].count;
    const void *bounds = arguments[0].data;

    begin(task, work);
    WEFT__CUDA_RUN(task, weft_list_bounds,
                   weft__cuda_blocks(list.count > bound_count ? list.count : bound_count),
                   WEFT__GPU_THREADS, &bounds, &bound_count, &list, &elements, &work->chain);
    end(task, work, NULL);
}

/* ---- together ---- */

static struct buffer behind(const struct buffer *buffer, size_t pairs)
{
    return (struct buffer){buffer->index + pairs * sizeof(uint32_t),
                           buffer->value + pairs * sizeof(float)};
}

static size_t pairs_in(const struct weft_gpu_list *lists, size_t count)
{
    size_t pairs = 0;

    for (size_t i = 0; i < count; i++)
        pairs += lists[i].count;
    return pairs;
}

static struct weft_gpu_list sum_of(struct weft__cuda_task *task, struct work *work,
                                   const struct weft_gpu_list *lists, size_t count,
                                   struct buffer sum, struct buffer spare);

/* Both halves of two lists or more, to `spare`, with `sum` to work in: as weft__sparse_sum(). */
static void sum_halves(struct weft__cuda_task *task, struct work *work,
                       const struct weft_gpu_list *lists, size_t count, struct buffer sum,
                       struct buffer spare, struct weft_gpu_list halves[2])
{
    const size_t half = count - count / 2, middle = pairs_in(lists, half);

    halves[0] = sum_of(task, work, lists, half, spare, sum);
    halves[1] = sum_of(task, work, lists + half, count - half, behind(&spare, middle),
                       behind(&sum, middle));
}

static struct weft_gpu_list sum_of(struct weft__cuda_task *task, struct work *work,
                                   const struct weft_gpu_list *lists, size_t count,
                                   struct buffer sum, struct buffer spare)
{
    struct weft_gpu_list halves[2];
    uint64_t *range;

    if (count == 1)
        return lists[0];
    sum_halves(task, work, lists, count, sum, spare, halves);
    range = (uint64_t *)(void *)(work->ranges + RANGE * work->range++);
    add(task, work, halves[0], halves[1], sum.index, sum.value, range);
    return list_in(&sum, range, pairs_in(lists, count));
}

static void sum(struct weft__cuda_task *task, struct work *work)
{
    const struct weft_call *call = task->call;
    const size_t count = call->argument_count - 2;
    struct weft_gpu_list lists[WEFT_SPARSE_FAN], halves[2];
    void *to = weft__cuda_data(&call->arguments[0]);
    struct weft_gpu_list out = {.indices = to, .range = range_of(work)};

    for (size_t i = 0; i < count; i++)
        lists[i] = list_of(&call->arguments[2 + i]);
    out.count = pairs_in(lists, count);
    begin(task, work);
    check(task, work, lists, count, WEFT_LIST_ORDER | (count == 1 ? WEFT_LIST_NANS : 0));
    if (count == 1)
        keep(task, work, lists[0], lists[0].count, 1, NULL, call->argument_count);
    if (count > 1) {
        sum_halves(task, work, lists, count, work->sums[0], work->sums[1], halves);
        add(task, work, halves[0], halves[1], to, NULL, range_of(work));
        check(task, work, &out, 1, WEFT_LIST_NANS | (refuses_nans(task) ? 0 : WEFT_LIST_CLEAR));
    }
    end(task, work, count > 1 ? range_of(work) : NULL);
}

static void join(struct weft__cuda_task *task, struct work *work)
{
    const struct weft_argument *arguments = task->call->arguments;
    const struct weft_gpu_list lists[] = {list_of(&arguments[1]), list_of(&arguments[2])};

    begin(task, work);
    check(task, work, lists, 2, WEFT_LIST_ORDER);
    add(task, work, lists[0], lists[1], weft__cuda_data(&arguments[0]), NULL, range_of(work));
    end(task, work, range_of(work));
}

void weft__cuda_sparse(struct weft__cuda_task *task, int kind)
{
    static void (*const functions[WEFT_SPARSE_OP_COUNT])(struct weft__cuda_task * task,
                                                         struct work * work) = {
        [WEFT_SPARSE_MERGE] = merge, [WEFT_SPARSE_PART] = cut,
        [WEFT_SPARSE_SUM] = sum,     [WEFT_SPARSE_KEEP] = keep_largest,
        [WEFT_SPARSE_JOIN] = join,   [WEFT_SPARSE_BOUNDS] = validate,
    };
    struct work work;

    if (kind == WEFT_SPARSE_SELECT || kind == WEFT_SPARSE_ABOVE) {
        weft__cuda_select(task);
        return;
    }
    work = lay_out(&task->room, kind, task->call);
    functions[kind](task, &work);
}
