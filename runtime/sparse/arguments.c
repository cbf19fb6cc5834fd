/* SPDX-License-Identifier: BSD-3-Clause */
/* Arguments of the functions on sparse vectors, and the memory that they work in. */
#include "runtime/sparse/arguments.h"

#include <string.h>

#include "ops/sparse.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

static int check_options(const char *who, const struct weft_sparse_options *options)
{
    if (options->nan != WEFT_NAN_ERROR && options->nan != WEFT_NAN_ZERO)
        return WEFT__INVALID("%s: `nan` of the options is %d, expected a weft_nan_policy_t", who,
                             (int)options->nan);
    if (options->threads < 0 || options->threads > WEFT__SPARSE_THREADS)
        return WEFT__INVALID("%s: `threads` of the options is %d, expected 0 to %d", who,
                             options->threads, WEFT__SPARSE_THREADS);
    if (!(options->hint >= 0))
        return WEFT__INVALID("%s: `hint` of the options is %g, expected a magnitude", who,
                             options->hint);
    return WEFT_OK;
}

int weft__sparse_read_options(const char *who, const struct weft_sparse_options *given,
                              struct weft_sparse_options *options)
{
    int status = weft_sized_read(who, "options", given, options, sizeof *options);

    return status ? status : check_options(who, options);
}

int weft__sparse_read(const char *who, const struct weft_sparse_options *given,
                      struct weft_sparse_options *options, const struct weft_sparse_report *report)
{
    int status = weft__sparse_read_options(who, given, options);

    return status ? status : weft_sized_check(who, "report", report);
}

int weft__sparse_check_dtype(const char *who, const char *of, weft_dtype_t dtype)
{
    if (dtype != WEFT_F16 && dtype != WEFT_BF16 && dtype != WEFT_F32 && dtype != WEFT_F64)
        return WEFT__INVALID("%s: `dtype`%s%s is %s, expected f16, bf16, f32 or f64", who,
                             of ? " of " : "", of ? of : "",
                             weft_dtype_name(dtype) ? weft_dtype_name(dtype) : "no datatype");
    return WEFT_OK;
}

int weft__sparse_check_index_dtype(const char *who, const char *of, weft_dtype_t dtype)
{
    if (dtype != WEFT_U32 && dtype != WEFT_U64)
        return WEFT__INVALID("%s: `index_dtype`%s%s is %s, expected u32 or u64", who,
                             of ? " of " : "", of ? of : "",
                             weft_dtype_name(dtype) ? weft_dtype_name(dtype) : "no datatype");
    return WEFT_OK;
}

int weft__sparse_check_memory(const char *who, const char *name, const struct weft_sparse *pairs,
                              size_t count)
{
    if (weft__sparse_check_dtype(who, name, pairs->dtype) != WEFT_OK ||
        weft__sparse_check_index_dtype(who, name, pairs->index_dtype) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if (count > 0 && (!pairs->indices || !pairs->values))
        return WEFT__INVALID("%s: `%s` of %s is NULL, expected memory of %zu pairs", who,
                             !pairs->indices ? "indices" : "values", name, count);
    if (count > SIZE_MAX / 16)
        return WEFT__INVALID("%s: %s has %zu pairs, more than memory can hold", who, name, count);
    return WEFT_OK;
}

int weft__sparse_check_threshold(const char *who, double threshold)
{
    if (!(threshold >= 0))
        return WEFT__INVALID("%s: `threshold` is %g, expected a magnitude", who, threshold);
    return WEFT_OK;
}

/* ---- workspace ---- */

/* The caller's, if it is large enough, or allocated. */
int weft__sparse_open(const struct weft_sparse_options *options, size_t bytes,
                      struct weft__sparse_workspace *workspace)
{
    uintptr_t begin = (uintptr_t)options->workspace;
    const size_t skip =
        (WEFT__SPARSE_ALIGNMENT - begin % WEFT__SPARSE_ALIGNMENT) % WEFT__SPARSE_ALIGNMENT;

    *workspace = (struct weft__sparse_workspace){NULL, NULL};
    if (bytes == SIZE_MAX)
        return weft__error_memory("a workspace of more bytes than can be counted");
    if (options->workspace && options->workspace_bytes >= skip &&
        options->workspace_bytes - skip >= bytes) {
        workspace->memory = (char *)options->workspace + skip;
        return WEFT_OK;
    }
    if (bytes > SIZE_MAX - WEFT__SPARSE_ALIGNMENT)
        return weft__error_memory("a workspace");
    workspace->owned = weft__malloc(bytes + WEFT__SPARSE_ALIGNMENT, 1);
    if (!workspace->owned)
        return weft__error_memory("a workspace");
    begin = (uintptr_t)workspace->owned;
    workspace->memory =
        (char *)workspace->owned +
        (WEFT__SPARSE_ALIGNMENT - begin % WEFT__SPARSE_ALIGNMENT) % WEFT__SPARSE_ALIGNMENT;
    return WEFT_OK;
}

void weft__sparse_close(struct weft__sparse_workspace *workspace)
{
    weft__free(workspace->owned);
}

size_t weft__sparse_with_alignment(size_t bytes)
{
    return bytes > SIZE_MAX - WEFT__SPARSE_ALIGNMENT ? SIZE_MAX : bytes + WEFT__SPARSE_ALIGNMENT;
}

/* ---- lists ---- */

int weft__sparse_check_ascending(const char *who, const char *name, const struct weft_sparse *pairs)
{
    const int wide = pairs->index_dtype == WEFT_U64;
    const size_t at = weft__sparse_disorder(pairs->indices, wide, pairs->count);

    if (at < pairs->count)
        return WEFT__INVALID("%s: index %zu of %s is not above the one before it, expected "
                             "ascending indices",
                             who, at, name);
    return WEFT_OK;
}

int weft__sparse_check_alike(const char *who, const char *name, const struct weft_sparse *pairs,
                             const char *model, const struct weft_sparse *a)
{
    if (pairs->dtype != a->dtype || pairs->index_dtype != a->index_dtype)
        return WEFT__INVALID("%s: `%s` has indices of %s and values of %s, expected %s and %s as "
                             "in %s",
                             who, name, weft_dtype_name(pairs->index_dtype),
                             weft_dtype_name(pairs->dtype), weft_dtype_name(a->index_dtype),
                             weft_dtype_name(a->dtype), model);
    return WEFT_OK;
}

int weft__sparse_check_room(const char *who, const char *name, const struct weft_sparse *pairs,
                            const char *model, const struct weft_sparse *a, size_t need)
{
    int status = weft__sparse_check_target(who, name, pairs, need);

    if (status == WEFT_OK)
        status = weft__sparse_check_alike(who, name, pairs, model, a);
    if (status == WEFT_OK && pairs->capacity < need)
        return WEFT__INVALID("%s: `capacity` of %s is %zu, expected room for %zu pairs", who, name,
                             pairs->capacity, need);
    return status;
}
