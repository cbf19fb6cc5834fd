/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists taken apart by index and by magnitude, put together, and summed; bounds of regions. */
#include <weft/sparse.h>

#include <stdio.h>
#include <string.h>

#include "ops/sparse.h"
#include "ops/topk.h"
#include "runtime/base/error.h"
#include "runtime/sparse/arguments.h"

enum { FEW_LISTS = 64 };

static struct weft__pairs pairs_of(const struct weft_sparse *list)
{
    return (struct weft__pairs){list->indices, list->values, list->count};
}

static int is_wide(const struct weft_sparse *list)
{
    return list->index_dtype == WEFT_U64;
}

/* ---- parts ---- */

int weft_sparse_range(const struct weft_sparse *list, uint64_t lower, uint64_t upper,
                      struct weft_sparse *part)
{
    if (weft__sparse_check_pairs(__func__, "list", list) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (!part)
        return WEFT__INVALID("%s: `part` is NULL, expected where to store the view", __func__);
    if (lower > upper)
        return WEFT__INVALID("%s: `lower` is %llu, expected at most `upper` %llu", __func__,
                             (unsigned long long)lower, (unsigned long long)upper);
    const struct weft__pairs pairs = pairs_of(list);
    const size_t begin = weft__sparse_lower_bound(&pairs, is_wide(list), lower);
    const size_t end = weft__sparse_lower_bound(&pairs, is_wide(list), upper);

    *part = *list;
    if (list->count > 0) {
        part->indices = (char *)list->indices + begin * weft__sparse_index_size(list);
        part->values = (char *)list->values + begin * weft_dtype_size(list->dtype);
    }
    part->count = end - begin;
    part->capacity = 0;
    return WEFT_OK;
}

/* ---- the largest ---- */

static size_t bytes_of(const struct weft_sparse *like, size_t pairs)
{
    return weft__sparse_round_up(pairs * weft__sparse_index_size(like)) +
           weft__sparse_round_up(pairs * weft_dtype_size(like->dtype));
}

/* A place for `pairs` pairs, in memory that bytes_of() counts. */
static struct weft__pairs place(const struct weft_sparse *like, void *memory, size_t pairs)
{
    return (struct weft__pairs){
        memory, (char *)memory + weft__sparse_round_up(pairs * weft__sparse_index_size(like)), 0};
}

static int check_nans(const char *who, const struct weft_sparse_options *options,
                      const struct weft_sparse *like, struct weft__pairs *pairs,
                      struct weft_sparse_report *report)
{
    report->nans = weft__sparse_clear_nans(pairs->values, like->dtype, pairs->count);
    if (report->nans > 0 && options->nan == WEFT_NAN_ERROR)
        return weft__error(WEFT_ERR_COMPUTE, "%s: %llu of %zu values are NaN", who,
                           (unsigned long long)report->nans, pairs->count);
    return WEFT_OK;
}

/* Splits `all` at the k-th largest key or that of the threshold, whichever is higher. `rest` is as
 * large, and its values serve to look for the k-th in. Returns the key. */
static uint64_t split(struct weft__pairs *all, struct weft__pairs *rest,
                      const struct weft_sparse *like, double threshold, size_t k)
{
    const struct weft__topk_kernels *kernels = weft__topk_kernels_find(like->dtype);
    uint64_t key = weft__topk_key(like->dtype, threshold);
    size_t reach = kernels->count(all->values, all->count, key), ties;

    if (k == 0) {
        key = UINT64_MAX;
        ties = 0;
    } else if (reach > k) {
        memcpy(rest->values, all->values, all->count * weft_dtype_size(like->dtype));
        key = kernels->kth(rest->values, all->count, k);
        ties = k - kernels->count(all->values, all->count, key + 1);
    } else {
        ties = reach - kernels->count(all->values, all->count, key + 1);
    }
    weft__sparse_split(all, is_wide(like), like->dtype, key, ties, rest);
    return key;
}

static double least_of(const struct weft__pairs *pairs, void *scratch, weft_dtype_t dtype)
{
    if (pairs->count == 0)
        return 0;
    memcpy(scratch, pairs->values, pairs->count * weft_dtype_size(dtype));
    return weft__topk_magnitude(
        dtype, weft__topk_kernels_find(dtype)->kth(scratch, pairs->count, pairs->count));
}

static void give(struct weft_sparse *to, const struct weft__pairs *from)
{
    const struct weft__pairs target = {to->indices, to->values, 0};

    weft__sparse_copy(&target, 0, from, 0, from->count, is_wide(to), to->dtype);
    to->count = from->count;
}

static int check_keep(const char *who, const struct weft_sparse *list, double threshold, size_t k,
                      const struct weft_sparse *out, const struct weft_sparse *dropped)
{
    if (weft__sparse_check_pairs(who, "list", list) != WEFT_OK ||
        weft__sparse_check_threshold(who, threshold) != WEFT_OK ||
        weft__sparse_check_room(who, "out", out, "list", list, k < list->count ? k : list->count) !=
            WEFT_OK)
        return WEFT_ERR_INVALID;
    if (dropped &&
        weft__sparse_check_room(who, "dropped", dropped, "list", list, list->count) != WEFT_OK)
        return WEFT_ERR_INVALID;
    return weft__sparse_check_ascending(who, "list", list);
}

int weft_sparse_keep(const struct weft_sparse_options *options, const struct weft_sparse *list,
                     double threshold, size_t k, struct weft_sparse *out,
                     struct weft_sparse *dropped, struct weft_sparse_report *report)
{
    struct weft_sparse_options full;
    struct weft_sparse_report found = {0}, *wanted = report;
    struct weft__sparse_workspace workspace;
    const int told = report != NULL;
    int status = weft__sparse_read(__func__, options, &full, report);

    options = &full;
    report = &found;
    if (status == WEFT_OK)
        status = check_keep(__func__, list, threshold, k, out, dropped);
    if (status != WEFT_OK)
        return status;
    const size_t bytes = bytes_of(list, list->count);

    status = weft__sparse_open(options, 2 * bytes, &workspace);
    if (status != WEFT_OK)
        return status;
    struct weft__pairs all = place(list, workspace.memory, list->count);
    struct weft__pairs rest = place(list, (char *)workspace.memory + bytes, list->count);
    const struct weft__pairs given = pairs_of(list);

    weft__sparse_copy(&all, 0, &given, 0, given.count, is_wide(list), list->dtype);
    all.count = given.count;
    status = check_nans(__func__, options, list, &all, report);
    if (status == WEFT_OK) {
        if (all.count > 0 && (k < all.count || threshold > 0))
            split(&all, &rest, list, threshold, k);
        give(out, &all);
        if (dropped)
            give(dropped, &rest);
        report->count = report->found = all.count;
        report->threshold = told ? least_of(&all, rest.values, list->dtype) : 0;
    }
    weft__sparse_close(&workspace);
    weft_sized_fill(__func__, "report", wanted, &found, sizeof found);
    return status;
}

int weft_sparse_kth(const struct weft_sparse_options *options, const struct weft_sparse *list,
                    size_t k, double *magnitude)
{
    struct weft_sparse_options full;
    struct weft_sparse_report report = {0};
    struct weft__sparse_workspace workspace;
    int status = weft__sparse_read_options(__func__, options, &full);

    options = &full;
    if (status != WEFT_OK || weft__sparse_check_pairs(__func__, "list", list) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (!magnitude)
        return WEFT__INVALID("%s: `magnitude` is NULL, expected where to store it", __func__);
    const size_t bytes = list->count * weft_dtype_size(list->dtype);

    status = weft__sparse_open(options, bytes, &workspace);
    if (status != WEFT_OK)
        return status;
    struct weft__pairs all = {NULL, workspace.memory, list->count};

    if (bytes > 0)
        memcpy(all.values, list->values, bytes);
    status = check_nans(__func__, options, list, &all, &report);
    if (status == WEFT_OK)
        *magnitude = k > 0 && k <= all.count
                         ? weft__topk_magnitude(
                               list->dtype,
                               weft__topk_kernels_find(list->dtype)->kth(all.values, all.count, k))
                         : 0;
    weft__sparse_close(&workspace);
    return status;
}

/* ---- together ---- */

static int check_sum(const char *who, const struct weft_sparse *lists, size_t count,
                     const struct weft_sparse *out, size_t *pairs)
{
    char name[40];

    *pairs = 0;
    if (weft__sparse_check_target(who, "out", out, 0) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (count > 0 && !lists)
        return WEFT__INVALID("%s: `lists` is NULL with `count` %zu, expected lists", who, count);
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "lists[%zu]", i);
        if (weft__sparse_check_pairs(who, name, &lists[i]) != WEFT_OK ||
            weft__sparse_check_alike(who, name, &lists[i], "out", out) != WEFT_OK ||
            weft__sparse_check_ascending(who, name, &lists[i]) != WEFT_OK)
            return WEFT_ERR_INVALID;
        if (lists[i].count > SIZE_MAX / 16 - *pairs)
            return WEFT__INVALID("%s: the lists have more pairs than memory can hold", who);
        *pairs += lists[i].count;
    }
    return weft__sparse_check_room(who, "out", out, "out", out, *pairs);
}

int weft_sparse_sum(const struct weft_sparse_options *options, const struct weft_sparse *lists,
                    size_t count, struct weft_sparse *out, struct weft_sparse_report *report)
{
    struct weft_sparse_options full;
    struct weft_sparse_report found = {0}, *wanted = report;
    struct weft__sparse_workspace workspace;
    struct weft__pairs few[FEW_LISTS];
    const int told = report != NULL;
    size_t pairs;
    int status = weft__sparse_read(__func__, options, &full, report);

    options = &full;
    report = &found;
    if (status == WEFT_OK)
        status = check_sum(__func__, lists, count, out, &pairs);
    if (status != WEFT_OK)
        return status;
    const size_t views =
        count > FEW_LISTS ? weft__sparse_round_up(count * sizeof(struct weft__pairs)) : 0;

    status = weft__sparse_open(options, views + bytes_of(out, pairs), &workspace);
    if (status != WEFT_OK)
        return status;
    struct weft__pairs *view = views > 0 ? workspace.memory : few;
    struct weft__pairs sum = {out->indices, out->values, 0};
    const struct weft__pairs spare = place(out, (char *)workspace.memory + views, pairs);

    for (size_t i = 0; i < count; i++)
        view[i] = pairs_of(&lists[i]);
    weft__sparse_sum(view, count, is_wide(out), out->dtype, &sum, &spare);
    status = check_nans(__func__, options, out, &sum, report);
    if (status == WEFT_OK) {
        out->count = report->count = report->found = sum.count;
        report->threshold = told ? least_of(&sum, spare.values, out->dtype) : 0;
    }
    weft__sparse_close(&workspace);
    weft_sized_fill(__func__, "report", wanted, &found, sizeof found);
    return status;
}

int weft_sparse_join(const struct weft_sparse *a, const struct weft_sparse *b,
                     struct weft_sparse *out)
{
    if (weft__sparse_check_pairs(__func__, "a", a) != WEFT_OK ||
        weft__sparse_check_pairs(__func__, "b", b) != WEFT_OK ||
        weft__sparse_check_alike(__func__, "b", b, "a", a) != WEFT_OK ||
        weft__sparse_check_room(__func__, "out", out, "a", a, a->count + b->count) != WEFT_OK ||
        weft__sparse_check_ascending(__func__, "a", a) != WEFT_OK ||
        weft__sparse_check_ascending(__func__, "b", b) != WEFT_OK)
        return WEFT_ERR_INVALID;
    const struct weft__pairs left = pairs_of(a), right = pairs_of(b);
    struct weft__pairs both = {out->indices, out->values, 0};

    if (weft__sparse_join(&left, &right, is_wide(a), a->dtype, &both) < a->count + b->count)
        return WEFT__INVALID("%s: %zu indices are in both lists, expected none", __func__,
                             a->count + b->count - both.count);
    out->count = both.count;
    return WEFT_OK;
}

/* ---- regions ---- */

static uint64_t index_at(const struct weft_sparse *list, size_t i)
{
    return is_wide(list) ? ((const weft__key_64 *)list->indices)[i]
                         : ((const weft__key_32 *)list->indices)[i];
}

/* floor(a * j / n), j <= n, without overflow. */
static uint64_t share_of(uint64_t a, uint64_t j, uint64_t n)
{
    return a / n * j + a % n * j / n;
}

int weft_sparse_bounds(const struct weft_sparse *list, uint64_t elements, int regions,
                       uint64_t *bounds)
{
    if (weft__sparse_check_pairs(__func__, "list", list) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (regions < 1)
        return WEFT__INVALID("%s: `regions` is %d, expected at least 1", __func__, regions);
    if (!bounds)
        return WEFT__INVALID("%s: `bounds` is NULL, expected room for %d", __func__, regions + 1);
    if (list->count > 0 && index_at(list, list->count - 1) >= elements)
        return WEFT__INVALID("%s: the last index of list is %llu, expected less than `elements` "
                             "%llu",
                             __func__, (unsigned long long)index_at(list, list->count - 1),
                             (unsigned long long)elements);
    for (int j = 1; j < regions; j++)
        bounds[j] = list->count > 0
                        ? index_at(list, share_of(list->count, (uint64_t)j, (uint64_t)regions))
                        : share_of(elements, (uint64_t)j, (uint64_t)regions);
    bounds[0] = 0;
    bounds[regions] = elements;
    return WEFT_OK;
}

int weft_sparse_region_limits(size_t k, int ranks, size_t *share, size_t *quota)
{
    if (ranks < 1)
        return WEFT__INVALID("%s: `ranks` is %d, expected at least 1", __func__, ranks);
    if (k > SIZE_MAX / 16)
        return WEFT__INVALID("%s: `k` is %zu, expected at most %zu", __func__, k, SIZE_MAX / 16);
    if (!share || !quota)
        return WEFT__INVALID("%s: `%s` is NULL, expected where to store it", __func__,
                             !share ? "share" : "quota");
    const size_t p = (size_t)ranks, both = 3 * k / p;
    const size_t given = p == 1 ? k : both / 2 > 0 ? both / 2 : k > 0;
    const size_t passed = both > given ? both - given : k > 0;
    const size_t most = k + (p - 1) * given; /* a list, and the shares of the other ranks */

    *share = given;
    *quota = passed < most ? passed : most;
    return WEFT_OK;
}
