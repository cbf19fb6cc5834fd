/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions on sparse vectors: arguments, workspace and threads here, arithmetic in
 * ops/. */
#include <weft/sparse.h>

#include <pthread.h>
#include <string.h>

#include "ops/sparse.h"
#include "ops/topk.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/sparse/arguments.h"

enum {
    /* A thread costs about what it takes to scan so many bytes. */
    THREAD_BYTES = 1 << 20,
};

void weft_sparse_options_init_sized(struct weft_sparse_options *options, size_t size)
{
    weft_sized_init(options, size);
}

/* ---- selection ---- */

struct scan {
    struct weft__topk *selection;
    size_t part;
    pthread_t thread;
    int runs;
};

static void *scan_part(void *user)
{
    struct scan *scan = user;

    weft__topk_scan(scan->selection, scan->part);
    return NULL;
}

/* All parts, each but the first in a thread of its own if there are any to be had. */
static void scan_parts(struct weft__topk *selection, struct scan *scans)
{
    const size_t parts = selection->task.parts;

    for (size_t i = 1; i < parts; i++) {
        scans[i] = (struct scan){.selection = selection, .part = i};
        scans[i].runs = pthread_create(&scans[i].thread, NULL, scan_part, &scans[i]) == 0;
    }
    weft__topk_scan(selection, 0);
    for (size_t i = 1; i < parts; i++)
        if (scans[i].runs)
            pthread_join(scans[i].thread, NULL);
        else
            weft__topk_scan(selection, i);
}

static size_t parts_of(const struct weft_sparse_options *options, weft_dtype_t dtype, size_t count)
{
    const size_t most = count / (THREAD_BYTES / weft_dtype_size(dtype));
    const size_t threads = options->threads > 1 ? (size_t)options->threads : 1;

    return most < 2 ? 1 : most < threads ? most : threads;
}

/* The workspace: what the selection needs, then the threads. */
static size_t select_bytes(const struct weft__topk_task *task)
{
    const size_t bytes = weft__topk_bytes(task);
    const size_t threads = task->parts * sizeof(struct scan);

    return bytes > SIZE_MAX - threads ? SIZE_MAX : bytes + threads;
}

size_t weft_sparse_select_workspace(const struct weft_sparse_options *options, weft_dtype_t dtype,
                                    size_t count, size_t k)
{
    struct weft_sparse_options full;
    struct weft__topk_task task = {.dtype = dtype, .count = count, .k = k};
    size_t top, above;

    if (weft__sparse_read_options(__func__, options, &full) != WEFT_OK ||
        weft__sparse_check_dtype(__func__, NULL, dtype) != WEFT_OK)
        return 0;
    task.parts = parts_of(&full, dtype, count);
    top = select_bytes(&task);
    task.above = 1;
    above = select_bytes(&task);
    return weft__sparse_with_alignment(top > above ? top : above);
}

static int check_select(const char *who, const struct weft__topk_task *task,
                        const struct weft_sparse *out)
{
    const size_t wanted = task->k < task->count ? task->k : task->count;

    if (weft__sparse_check_target(who, "out", out, wanted) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (task->count > SIZE_MAX / weft_dtype_size(out->dtype))
        return WEFT__INVALID("%s: `count` is %zu, more %s than memory can hold", who, task->count,
                             weft_dtype_name(out->dtype));
    if (task->count > 0 && !task->values)
        return WEFT__INVALID("%s: `values` is NULL with `count` %zu, expected memory", who,
                             task->count);
    if (out->index_dtype == WEFT_U32 && (uint64_t)task->count > UINT64_C(1) << 32)
        return WEFT__INVALID("%s: `index_dtype` of out is u32 with `count` %zu, expected u64 for "
                             "more than 2^32 elements",
                             who, task->count);
    if (out->capacity < wanted)
        return WEFT__INVALID("%s: `capacity` of out is %zu, expected room for %zu pairs", who,
                             out->capacity, wanted);
    return WEFT_OK;
}

static int check_residual(const char *who, const void *residual, const void *values, size_t count,
                          const struct weft_sparse *out)
{
    const uintptr_t p = (uintptr_t)residual;
    const uintptr_t q = (uintptr_t)values;
    const size_t bytes = out ? count * weft_dtype_size(out->dtype) : 0;

    if (count > 0 && !residual)
        return WEFT__INVALID("%s: `residual` is NULL with `count` %zu, expected memory", who,
                             count);
    if (bytes > 0 && (p < q ? q - p : p - q) < bytes)
        return WEFT__INVALID("%s: `residual` overlaps `values`, expected memory of its own", who);
    return WEFT_OK;
}

static int finish_select(const char *who, struct weft__topk *selection,
                         const struct weft_sparse_options *options, struct weft_sparse *out,
                         struct weft_sparse_report *report)
{
    struct weft__topk_report found;

    report->nans = weft__topk_nans(selection);
    report->scans = selection->scans;
    if (report->nans > 0 && options->nan == WEFT_NAN_ERROR)
        return weft__error(WEFT_ERR_COMPUTE, "%s: %llu of %zu values are NaN%s", who,
                           (unsigned long long)report->nans, selection->task.count,
                           selection->task.residual ? " after adding the residual" : "");
    weft__topk_end(selection, out->indices, out->index_dtype == WEFT_U64, out->values, &found);
    out->count = found.count;
    report->count = found.count;
    report->found = found.found;
    report->threshold = found.threshold;
    report->hint = found.hint;
    report->candidates = found.candidates;
    return WEFT_OK;
}

static int select_pairs(const char *who, const struct weft_sparse_options *options,
                        struct weft__topk_task *task, struct weft_sparse *out,
                        struct weft_sparse_report *report)
{
    struct weft_sparse_options full;
    struct weft_sparse_report found = {0}, *wanted = report;
    struct weft__sparse_workspace workspace;
    struct weft__topk selection;
    int status = weft__sparse_read(who, options, &full, report);

    options = &full;
    report = &found;
    if (status == WEFT_OK)
        status = check_select(who, task, out);
    if (status != WEFT_OK)
        return status;
    task->dtype = out->dtype;
    task->hint = options->hint;
    task->erase_nans = options->nan == WEFT_NAN_ZERO;
    task->parts = parts_of(options, task->dtype, task->count);
    status = weft__sparse_open(options, select_bytes(task), &workspace);
    if (status != WEFT_OK)
        return status;
    weft__topk_begin(&selection, task, workspace.memory);
    do
        scan_parts(&selection, (struct scan *)((char *)workspace.memory + weft__topk_bytes(task)));
    while (weft__topk_again(&selection));
    status = finish_select(who, &selection, options, out, report);
    weft__sparse_close(&workspace);
    weft_sized_fill(who, "report", wanted, &found, sizeof found);
    return status;
}

int weft_sparse_top(const struct weft_sparse_options *options, const void *values, size_t count,
                    size_t k, struct weft_sparse *out, struct weft_sparse_report *report)
{
    struct weft__topk_task task = {.values = values, .count = count, .k = k};

    return select_pairs(__func__, options, &task, out, report);
}

int weft_sparse_accumulate_top(const struct weft_sparse_options *options, void *residual,
                               const void *values, size_t count, size_t k, struct weft_sparse *out,
                               struct weft_sparse_report *report)
{
    struct weft__topk_task task = {.values = values, .residual = residual, .count = count, .k = k};
    const int status = check_residual(__func__, residual, values, count, out);

    return status != WEFT_OK ? status : select_pairs(__func__, options, &task, out, report);
}

int weft_sparse_above(const struct weft_sparse_options *options, const void *values, size_t count,
                      double threshold, struct weft_sparse *out, struct weft_sparse_report *report)
{
    struct weft__topk_task task = {.values = values,
                                   .count = count,
                                   .k = out ? out->capacity : 0,
                                   .above = 1,
                                   .threshold = threshold};
    const int status = weft__sparse_check_threshold(__func__, threshold);

    return status != WEFT_OK ? status : select_pairs(__func__, options, &task, out, report);
}

int weft_sparse_accumulate_above(const struct weft_sparse_options *options, void *residual,
                                 const void *values, size_t count, double threshold,
                                 struct weft_sparse *out, struct weft_sparse_report *report)
{
    struct weft__topk_task task = {.values = values,
                                   .residual = residual,
                                   .count = count,
                                   .k = out ? out->capacity : 0,
                                   .above = 1,
                                   .threshold = threshold};
    int status = weft__sparse_check_threshold(__func__, threshold);

    if (status == WEFT_OK)
        status = check_residual(__func__, residual, values, count, out);
    return status != WEFT_OK ? status : select_pairs(__func__, options, &task, out, report);
}

/* ---- merging ---- */

static int check_merge(const char *who, const struct weft_sparse *a, const struct weft_sparse *b,
                       size_t k, const struct weft_sparse *out, const struct weft_sparse *dropped)
{
    size_t all;

    if (weft__sparse_check_pairs(who, "a", a) != WEFT_OK ||
        weft__sparse_check_pairs(who, "b", b) != WEFT_OK ||
        weft__sparse_check_alike(who, "b", b, "a", a) != WEFT_OK)
        return WEFT_ERR_INVALID;
    all = a->count + b->count;
    if (weft__sparse_check_room(who, "out", out, "a", a, k < all ? k : all) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (dropped &&
        weft__sparse_check_room(who, "dropped", dropped, "a", a, k < all ? all - k : 0) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (weft__sparse_check_ascending(who, "a", a) != WEFT_OK ||
        weft__sparse_check_ascending(who, "b", b) != WEFT_OK)
        return WEFT_ERR_INVALID;
    return WEFT_OK;
}

/* The sum, and as much again for what is dropped; values twice first to look for the k-th in. */
static size_t merge_bytes(size_t index_bytes, size_t value_bytes, size_t pairs)
{
    if (pairs > (SIZE_MAX - 8 * WEFT__SPARSE_ALIGNMENT) / (2 * (index_bytes + value_bytes)))
        return SIZE_MAX;
    return 2 * (weft__sparse_round_up(pairs * index_bytes) +
                weft__sparse_round_up(pairs * value_bytes));
}

size_t weft_sparse_merge_workspace(weft_dtype_t index_dtype, weft_dtype_t dtype, size_t pairs)
{
    if (weft__sparse_check_dtype(__func__, NULL, dtype) != WEFT_OK ||
        weft__sparse_check_index_dtype(__func__, NULL, index_dtype) != WEFT_OK)
        return 0;
    return weft__sparse_with_alignment(
        merge_bytes(weft_dtype_size(index_dtype), weft_dtype_size(dtype), pairs));
}

static void give_pairs(struct weft_sparse *to, const struct weft__pairs *from)
{
    if (from->count > 0) {
        memcpy(to->indices, from->indices, from->count * weft__sparse_index_size(to));
        memcpy(to->values, from->values, from->count * weft_dtype_size(to->dtype));
    }
    to->count = from->count;
}

/* Splits the sum at its k-th largest; what is left over goes to `rest`. Returns that key. */
static uint64_t split_at(struct weft__pairs *sum, struct weft__pairs *rest,
                         const struct weft_sparse *like, size_t k)
{
    const struct weft__topk_kernels *kernels = weft__topk_kernels_find(like->dtype);
    uint64_t key = UINT64_MAX;
    size_t ties = 0;

    if (k > 0) {
        memcpy(rest->values, sum->values, sum->count * weft_dtype_size(like->dtype));
        key = kernels->kth(rest->values, sum->count, k);
        ties = k - kernels->count(sum->values, sum->count, key + 1);
    }
    weft__sparse_split(sum, like->index_dtype == WEFT_U64, like->dtype, key, ties, rest);
    return key;
}

static uint64_t least_of(const struct weft__pairs *pairs, void *scratch, weft_dtype_t dtype)
{
    if (pairs->count == 0)
        return 0;
    memcpy(scratch, pairs->values, pairs->count * weft_dtype_size(dtype));
    return weft__topk_kernels_find(dtype)->kth(scratch, pairs->count, pairs->count);
}

static int merge_in(const char *who, const struct weft_sparse_options *options,
                    const struct weft_sparse *a, const struct weft_sparse *b, size_t k,
                    struct weft_sparse *out, struct weft_sparse *dropped,
                    struct weft_sparse_report *report, char *memory)
{
    const size_t all = a->count + b->count;
    const size_t indices = weft__sparse_round_up(all * weft__sparse_index_size(a));
    const size_t values = weft__sparse_round_up(all * weft_dtype_size(a->dtype));
    const struct weft__pairs left = {a->indices, a->values, a->count};
    const struct weft__pairs right = {b->indices, b->values, b->count};
    struct weft__pairs sum = {memory, memory + indices, 0};
    struct weft__pairs rest = {memory + indices + values, memory + 2 * indices + values, 0};
    uint64_t key;

    weft__sparse_add(&left, &right, a->index_dtype == WEFT_U64, a->dtype, &sum);
    report->nans = weft__sparse_clear_nans(sum.values, a->dtype, sum.count);
    if (report->nans > 0 && options->nan == WEFT_NAN_ERROR)
        return weft__error(WEFT_ERR_COMPUTE, "%s: %llu of %zu sums are NaN", who,
                           (unsigned long long)report->nans, sum.count);
    key = sum.count > k ? split_at(&sum, &rest, a, k) : least_of(&sum, rest.values, a->dtype);
    give_pairs(out, &sum);
    if (dropped)
        give_pairs(dropped, &rest);
    report->count = report->found = sum.count;
    report->threshold = sum.count > 0 ? weft__topk_magnitude(a->dtype, key) : 0;
    return WEFT_OK;
}

int weft_sparse_merge(const struct weft_sparse_options *options, const struct weft_sparse *a,
                      const struct weft_sparse *b, size_t k, struct weft_sparse *out,
                      struct weft_sparse *dropped, struct weft_sparse_report *report)
{
    struct weft_sparse_options full;
    struct weft_sparse_report found = {0}, *wanted = report;
    struct weft__sparse_workspace workspace;
    int status = weft__sparse_read(__func__, options, &full, report);

    options = &full;
    report = &found;
    if (status == WEFT_OK)
        status = check_merge(__func__, a, b, k, out, dropped);
    if (status != WEFT_OK)
        return status;
    status = weft__sparse_open(
        options,
        merge_bytes(weft__sparse_index_size(a), weft_dtype_size(a->dtype), a->count + b->count),
        &workspace);
    if (status != WEFT_OK)
        return status;
    status = merge_in(__func__, options, a, b, k, out, dropped, report, workspace.memory);
    weft__sparse_close(&workspace);
    weft_sized_fill(__func__, "report", wanted, &found, sizeof found);
    return status;
}

/* ---- adding to a dense vector ---- */

static int check_scatter(const char *who, const char *name, const struct weft_sparse *pairs,
                         const char *to, const void *dense, size_t count)
{
    uint64_t largest;

    if (weft__sparse_check_pairs(who, name, pairs) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (pairs->count == 0)
        return WEFT_OK;
    if (!dense)
        return WEFT__INVALID("%s: `%s` is NULL, expected %zu elements", who, to, count);
    largest = weft__sparse_largest(pairs->indices, pairs->index_dtype == WEFT_U64, pairs->count);
    if (largest >= count)
        return WEFT__INVALID("%s: an index of %s is %llu, expected less than `count` %zu", who,
                             name, (unsigned long long)largest, count);
    return WEFT_OK;
}

int weft_sparse_scatter_add(const struct weft_sparse *pairs, double scale, void *dense,
                            size_t count)
{
    const int status = check_scatter(__func__, "pairs", pairs, "dense", dense, count);

    if (status != WEFT_OK)
        return status;
    const struct weft__pairs list = {pairs->indices, pairs->values, pairs->count};
    weft__sparse_scatter(&list, pairs->index_dtype == WEFT_U64, pairs->dtype, scale, dense);
    return WEFT_OK;
}

int weft_sparse_put_back(const struct weft_sparse *own, const struct weft_sparse *kept,
                         void *residual, size_t count)
{
    if (check_scatter(__func__, "own", own, "residual", residual, count) != WEFT_OK ||
        weft__sparse_check_pairs(__func__, "kept", kept) != WEFT_OK ||
        weft__sparse_check_alike(__func__, "kept", kept, "own", own) != WEFT_OK ||
        weft__sparse_check_ascending(__func__, "own", own) != WEFT_OK ||
        weft__sparse_check_ascending(__func__, "kept", kept) != WEFT_OK)
        return WEFT_ERR_INVALID;
    const struct weft__pairs mine = {own->indices, own->values, own->count};
    const struct weft__pairs theirs = {kept->indices, kept->values, kept->count};
    weft__sparse_put_back(&mine, &theirs, own->index_dtype == WEFT_U64, own->dtype, residual);
    return WEFT_OK;
}
