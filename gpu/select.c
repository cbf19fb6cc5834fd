/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topk-select and sparse-above (weft/sparse.h), by the kernels of topk.cu and select.cu, which say
 * what each step does, and how often the vector is read:
 *
 *     topk-select     1, 2 or 3 times: a guess, if there is a hint; the first digit; if it leaves
 *                     too many, all other digits at once; the entries. A guess that fails costs its
 *                     read. The rest works on a list of the entries that may be selected.
 *     sparse-above    once; or twice, if more reach the threshold than the list has room for
 *
 * Kernels whose work is done already return at once: nobody waits to ask.
 */
#include "gpu/operate.h"

#include "runtime/sparse/operations.h"

enum {
    KEY_BITS = 31,
    DIGITS = 3,
    BINS = 2048,
    CHUNK = WEFT__GPU_THREADS * WEFT_SELECT_ITEMS,
    /* Vectors so short are a list as a whole. */
    FEW = 65536,
    /* Entries that there is room for, for each that is wanted, and more. */
    ROOM_EACH = 6,
    ROOM_MORE = 16384,
};

/* What a selection works in. */
struct work {
    struct weft_gpu_select *select;
    void *totals, *wide; /* NULL: all entries have room */
    size_t capacity;
    void *scratch, *scratch_at, *list, *list_at;
    uint64_t *above, *equal, *starts; /* of chunks */
    void *ties;
};

static int is_above(const struct weft_call *call)
{
    return ((const struct weft__sparse_settings *)call->user)->kind == WEFT_SPARSE_ABOVE;
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Elements of the vector that is selected from. */
static size_t length_of(const struct weft_call *call)
{
    return call->arguments[1].count > 0 ? call->arguments[1].count : call->arguments[2].count;
}

/* Pairs that are wanted, at most. */
static size_t most_of(const struct weft_call *call)
{
    size_t most = is_above(call) ? SIZE_MAX : call->arguments[4].count;

    return lesser(lesser(most, call->arguments[0].count), length_of(call));
}

static size_t capacity_of(const struct weft_call *call)
{
    const size_t count = length_of(call), most = most_of(call);

    if (is_above(call))
        return most;
    if (count <= FEW || most > count / ROOM_EACH)
        return count;
    return lesser(count, most * ROOM_EACH + ROOM_MORE);
}

/* `wide`: more entries may be equal in their first digit than there is room for. */
static struct work lay_out(struct weft__cuda_room *room, const struct weft_call *call,
                           size_t capacity, int wide)
{
    const size_t chunks = length_of(call) / CHUNK + 2;
    const size_t all = (size_t)1 << WEFT_TOPK_WIDE, half = (size_t)1 << WEFT_TOPK_WIDE / 2;
    struct work work = {.capacity = capacity};

    work.select = weft__cuda_carve(room, 1, sizeof *work.select);
    work.totals = weft__cuda_carve(room, BINS, sizeof(uint64_t));
    work.above = weft__cuda_carve(room, chunks, sizeof *work.above);
    work.equal = weft__cuda_carve(room, chunks, sizeof *work.equal);
    work.starts = weft__cuda_carve(room, chunks, sizeof *work.starts);
    work.scratch = weft__cuda_carve(room, capacity, sizeof(float));
    work.scratch_at = weft__cuda_carve(room, capacity, sizeof(uint32_t));
    if (is_above(call))
        return work;
    work.list = weft__cuda_carve(room, capacity, sizeof(float));
    work.list_at = weft__cuda_carve(room, capacity, sizeof(uint32_t));
    if (wide) {
        work.wide = weft__cuda_carve(room, all + half, sizeof(uint64_t));
        work.ties = weft__cuda_carve(room, chunks, WEFT__GPU_THREADS);
    }
    return work;
}

/* With more elements there may be less room, if they are no longer few. */
size_t weft__cuda_select_room(const struct weft_call *most)
{
    const size_t count = length_of(most), capacity = capacity_of(most);
    const size_t few = is_above(most) ? 0 : lesser(count, FEW);
    struct weft__cuda_room room = {0};

    lay_out(&room, most, capacity > few ? capacity : few, count > FEW);
    return room.used;
}

/* ---- steps ---- */

/* What is selected from, and what happens to it. */
struct vector {
    void *x, *addend, *zero;
    uint64_t count;
    uint32_t first, strict; /* flags of the first look */
};

static struct vector vector_of(const struct weft__cuda_task *task)
{
    const struct weft_argument *arguments = task->call->arguments;
    const struct weft__sparse_settings *settings = task->call->user;
    const int has_residual = arguments[1].count > 0;
    const int clears = settings->nan == WEFT_NAN_ZERO && has_residual;

    return (struct vector){.x = weft__cuda_data(&arguments[has_residual ? 1 : 2]),
                           .addend = has_residual ? weft__cuda_data(&arguments[2]) : NULL,
                           .zero = has_residual ? arguments[1].data : NULL,
                           .count = length_of(task->call),
                           .first = WEFT_GPU_FIRST | (clears ? WEFT_GPU_ERASE : 0),
                           .strict = settings->nan == WEFT_NAN_ERROR};
}

static size_t chunk_blocks(size_t count)
{
    return lesser(count / CHUNK + 1, WEFT__GPU_BLOCKS);
}

static void begin(struct weft__cuda_task *task, struct work *work, const struct vector *vector,
                  uint64_t k, void *hint, void *threshold)
{
    uint32_t key_bits = KEY_BITS;
    uint64_t count = vector->count;

    WEFT__CUDA_RUN(task, weft_select_begin, 1, WEFT__GPU_THREADS, &work->select, &k, &count,
                   &key_bits, &hint, &threshold, &work->totals);
}

/* A digit of the vector (`capacity` is that of the work) or of the list (0). */
static void count_digit(struct weft__cuda_task *task, struct work *work,
                        const struct vector *vector)
{
    void *x = vector ? vector->x : work->list, *addend = vector ? vector->addend : NULL;
    void *range = (char *)work->select + offsetof(struct weft_gpu_select, begin);
    uint64_t count = vector ? vector->count : work->capacity;
    uint64_t capacity = vector ? work->capacity : 0;
    uint32_t flags = vector ? vector->first : 0;

    range = vector ? NULL : range;
    WEFT__CUDA_RUN(task, weft_topk_count_f32, weft__cuda_blocks(count), WEFT__GPU_THREADS, &x,
                   &addend, &count, &range, &flags, &capacity, &work->select, &work->totals);
}

static void gather(struct weft__cuda_task *task, struct work *work, const struct vector *vector,
                   uint32_t flags)
{
    void *x = vector ? vector->x : work->list, *at = vector ? NULL : work->list_at;
    void *addend = vector ? vector->addend : NULL;
    uint64_t count = vector ? vector->count : work->capacity, room = work->capacity;

    WEFT__CUDA_RUN(task, weft_select_gather_f32_u32, chunk_blocks(count), WEFT__GPU_THREADS, &x,
                   &at, &addend, &count, &flags, &work->select, &work->scratch, &work->scratch_at,
                   &work->ties, &room, &work->above, &work->equal, &work->starts);
}

/* To region 0, or (most = 0) to the list. */
static void write(struct weft__cuda_task *task, struct work *work, const struct vector *vector,
                  int from_list, uint64_t most)
{
    void *x = from_list ? work->list : vector->x, *at = from_list ? work->list_at : NULL;
    uint64_t count = from_list ? work->capacity : vector->count, room = work->capacity;
    uint32_t flags = work->ties && !from_list ? WEFT_GPU_TIES : 0;
    uint32_t strict = vector->strict;
    void *values = most ? NULL : work->list, *zero = most ? vector->zero : NULL;
    void *indices = most ? task->call->arguments[0].data : work->list_at;

    most = most ? most : work->capacity;
    WEFT__CUDA_RUN(task, weft_select_write_f32_u32, chunk_blocks(count), WEFT__GPU_THREADS, &x, &at,
                   &count, &flags, &work->select, &work->scratch, &work->scratch_at, &work->ties,
                   &room, &work->above, &work->equal, &work->starts, &most, &values, &indices,
                   &zero, &strict);
}

static void end(struct weft__cuda_task *task, struct work *work, void *hint, void *threshold)
{
    WEFT__CUDA_RUN(task, weft_select_end, 1, 1, &work->select, &hint, &threshold, &task->report);
}

/* ---- operations ---- */

/* All digits that are not known of the k-th largest in 2^20 counters, where the first left many. */
static void count_wide(struct weft__cuda_task *task, struct work *work, const struct vector *vector)
{
    const size_t wide = (size_t)1 << WEFT_TOPK_WIDE, half = (size_t)1 << WEFT_TOPK_WIDE / 2;
    void *x = vector->x;
    uint64_t count = vector->count, capacity = work->capacity;

    if (!work->wide)
        return;
    weft__cuda_run_zero(task, work->wide, (wide + half) * sizeof(uint64_t));
    WEFT__CUDA_RUN(task, weft_topk_wide_f32, weft__cuda_blocks(count), WEFT__GPU_THREADS, &x,
                   &count, &capacity, &work->select, &work->wide);
}

static void select_largest(struct weft__cuda_task *task, struct work *work,
                           const struct vector *vector)
{
    const struct weft_call *call = task->call;
    void *hint = call->argument_count > 5 ? call->arguments[5].data : NULL;
    const uint64_t k = most_of(call);

    begin(task, work, vector, k, k > 0 ? hint : NULL, NULL);
    if (hint && k > 0)
        gather(task, work, vector, vector->first | WEFT_GPU_GUESS);
    if (vector->count > 0)
        count_digit(task, work, vector);
    if (k > 0) {
        count_wide(task, work, vector);
        gather(task, work, vector, work->ties ? WEFT_GPU_TIES : 0);
        write(task, work, vector, 0, 0);
        for (int digit = 0; digit < DIGITS; digit++)
            count_digit(task, work, NULL);
        gather(task, work, NULL, 0);
        write(task, work, vector, 1, k);
    }
    end(task, work, hint, NULL);
}

static void select_above(struct weft__cuda_task *task, struct work *work,
                         const struct vector *vector)
{
    const uint64_t most = most_of(task->call);
    void *threshold = task->call->arguments[4].data;

    begin(task, work, vector, most, NULL, threshold);
    if (vector->count > 0)
        gather(task, work, vector, vector->first);
    if (most > 0)
        write(task, work, vector, 0, most);
    end(task, work, NULL, threshold);
}

void weft__cuda_select(struct weft__cuda_task *task)
{
    const size_t capacity = capacity_of(task->call);
    struct work work = lay_out(&task->room, task->call, capacity, capacity < length_of(task->call));
    const struct vector vector = vector_of(task);

    if (is_above(task->call))
        select_above(task, &work, &vector);
    else
        select_largest(task, &work, &vector);
}
