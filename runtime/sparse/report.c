/* SPDX-License-Identifier: BSD-3-Clause */
/* What a device has found in lists: the statuses and texts of the functions that the host computes
 * the same operations by. */
#include "runtime/base/error.h"
#include "runtime/sparse/arguments.h"
#include "runtime/sparse/operations.h"

#include <stdio.h>
#include <string.h>

/* The function that computes an operation on the host, what errors call the lists that it reads,
 * and what its values are when one of them is NaN. */
static const struct {
    const char *function;
    const char *lists[2];
    const char *values;
} names[WEFT_SPARSE_OP_COUNT] = {
    [WEFT_SPARSE_MERGE] = {WEFT__SPARSE_NAME(weft_sparse_merge), {"a", "b"}, "sums"},
    [WEFT_SPARSE_PART] = {WEFT__SPARSE_NAME(weft_sparse_keep), {"list"}, "values"},
    [WEFT_SPARSE_SUM] = {WEFT__SPARSE_NAME(weft_sparse_sum), {NULL}, "values"},
    [WEFT_SPARSE_KEEP] = {WEFT__SPARSE_NAME(weft_sparse_keep), {"list"}, "values"},
    [WEFT_SPARSE_JOIN] = {WEFT__SPARSE_NAME(weft_sparse_join), {"a", "b"}, NULL},
};

static const char drops[] = WEFT__SPARSE_NAME(weft_sparse_scatter_add),
                  cuts[] = WEFT__SPARSE_NAME(weft_sparse_range);

static int tell_disorder(weft_sparse_op_kind_t kind, uint64_t word)
{
    const size_t list = (size_t)(word >> 48), at = (size_t)(word & (UINT64_MAX >> 16));
    char number[24];

    snprintf(number, sizeof number, "lists[%zu]", list);
    return WEFT__INVALID("%s: index %zu of %s is not above the one before it, expected ascending "
                         "indices",
                         names[kind].function, at,
                         names[kind].lists[0] ? names[kind].lists[list] : number);
}

/* What all have in common, in the order in which the host looks for it. */
static int tell_lists(const struct weft_call *call, const uint64_t *report)
{
    const struct weft__sparse_settings *settings = call->user;
    const struct weft_argument *residual = &call->arguments[call->argument_count - 1];
    const weft_sparse_op_kind_t kind = settings->kind;

    if (report[WEFT__SPARSE_DISORDER] != UINT64_MAX)
        return tell_disorder(kind, report[WEFT__SPARSE_DISORDER]);
    if (report[WEFT__SPARSE_NANS] > 0 && names[kind].values && settings->nan == WEFT_NAN_ERROR)
        return weft__error(WEFT_ERR_COMPUTE, "%s: %llu of %llu %s are NaN", names[kind].function,
                           (unsigned long long)report[WEFT__SPARSE_NANS],
                           (unsigned long long)report[WEFT__SPARSE_TOTAL], names[kind].values);
    if (report[WEFT__SPARSE_OUTSIDE] > 0)
        return WEFT__INVALID("%s: an index of pairs is %llu, expected less than `count` %zu", drops,
                             (unsigned long long)report[WEFT__SPARSE_OUTSIDE] - 1, residual->count);
    return WEFT_OK;
}

static int tell_part(const struct weft_call *call, const uint64_t *report)
{
    const uint64_t lower = report[WEFT__SPARSE_DETAIL], upper = report[WEFT__SPARSE_DETAIL + 1];
    const size_t room = call->arguments[0].count;

    if (lower > upper)
        return WEFT__INVALID("%s: `lower` is %llu, expected at most `upper` %llu", cuts,
                             (unsigned long long)lower, (unsigned long long)upper);
    if (call->argument_count == 3 && report[WEFT__SPARSE_TOTAL] > room)
        return weft_error_set(WEFT_ERR_INVALID,
                              "sparse-part: %llu pairs of the list are in [%llu, %llu), expected "
                              "at most %zu",
                              (unsigned long long)report[WEFT__SPARSE_TOTAL],
                              (unsigned long long)lower, (unsigned long long)upper, room);
    return tell_lists(call, report);
}

static int check_threshold(const char *who, const uint64_t *report)
{
    const uint32_t bits = (uint32_t)report[WEFT__SPARSE_DETAIL];
    float threshold;

    memcpy(&threshold, &bits, sizeof threshold);
    return weft__sparse_check_threshold(who, (double)threshold);
}

static int tell_keep(const struct weft_call *call, const uint64_t *report)
{
    int status = check_threshold(names[WEFT_SPARSE_KEEP].function, report);

    return status == WEFT_OK ? tell_lists(call, report) : status;
}

static int tell_join(const struct weft_call *call, const uint64_t *report)
{
    const uint64_t both = call->arguments[1].count + call->arguments[2].count;
    int status = tell_lists(call, report);

    if (status == WEFT_OK && report[WEFT__SPARSE_TOTAL] < both)
        return WEFT__INVALID("%s: %llu indices are in both lists, expected none",
                             names[WEFT_SPARSE_JOIN].function,
                             (unsigned long long)(both - report[WEFT__SPARSE_TOTAL]));
    return status;
}

int weft__sparse_bounds_wrong(int what, const uint64_t detail[3], size_t elements)
{
    const unsigned long long a = detail[0], b = detail[1], c = detail[2];

    switch (what) {
    case WEFT__BOUNDS_ENDS:
        return weft_error_set(WEFT_ERR_INVALID,
                              "sparse-bounds: bounds lead from %llu to %llu, expected 0 to %zu", a,
                              b, elements);
    case WEFT__BOUNDS_STEP:
        return weft_error_set(WEFT_ERR_INVALID,
                              "sparse-bounds: bound %llu is %llu, expected at least the one before "
                              "it, %llu",
                              a, b, c);
    case WEFT__BOUNDS_ORDER:
        return weft_error_set(WEFT_ERR_INVALID,
                              "sparse-bounds: index %llu of the list is %llu, expected more than "
                              "the one before it, %llu",
                              a, b, c);
    case WEFT__BOUNDS_LAST:
        return weft_error_set(WEFT_ERR_INVALID,
                              "sparse-bounds: the last index of the list is %llu, expected less "
                              "than %zu",
                              a, elements);
    default:
        return WEFT_OK;
    }
}

/* NaNs of a vector; or the threshold is none. */
static int tell_selection(const struct weft_call *call, const uint64_t *report)
{
    const struct weft__sparse_settings *settings = call->user;
    const size_t added = call->arguments[1].count, values = call->arguments[2].count;
    const int adds = added > 0 && values > 0, above = settings->kind == WEFT_SPARSE_ABOVE;
    const char *who = above ? (adds ? WEFT__SPARSE_NAME(weft_sparse_accumulate_above)
                                    : WEFT__SPARSE_NAME(weft_sparse_above))
                            : (adds ? WEFT__SPARSE_NAME(weft_sparse_accumulate_top)
                                    : WEFT__SPARSE_NAME(weft_sparse_top));

    if (above && check_threshold(who, report) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (report[WEFT__SPARSE_NANS] > 0 && settings->nan == WEFT_NAN_ERROR)
        return weft__error(WEFT_ERR_COMPUTE, "%s: %llu of %zu values are NaN%s", who,
                           (unsigned long long)report[WEFT__SPARSE_NANS],
                           added > 0 ? added : values, adds ? " after adding the residual" : "");
    if (settings->nans)
        *settings->nans += report[WEFT__SPARSE_NANS];
    return WEFT_OK;
}

int weft__sparse_end(const struct weft_call *call, const uint64_t *report, uint64_t *value)
{
    *value = report[WEFT__SPARSE_COUNT];
    switch (((const struct weft__sparse_settings *)call->user)->kind) {
    case WEFT_SPARSE_PART:
        return tell_part(call, report);
    case WEFT_SPARSE_KEEP:
        return tell_keep(call, report);
    case WEFT_SPARSE_JOIN:
        return tell_join(call, report);
    case WEFT_SPARSE_BOUNDS:
        return weft__sparse_bounds_wrong((int)report[WEFT__SPARSE_TOTAL],
                                         report + WEFT__SPARSE_DETAIL, call->arguments[2].count);
    case WEFT_SPARSE_SELECT:
    case WEFT_SPARSE_ABOVE:
        return tell_selection(call, report);
    case WEFT_SPARSE_MERGE:
    case WEFT_SPARSE_SUM:
    case WEFT_SPARSE_OP_COUNT:
    default:
        return tell_lists(call, report);
    }
}
