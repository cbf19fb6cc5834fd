/* SPDX-License-Identifier: BSD-3-Clause */
/* What the public functions on sparse vectors share: arguments that are checked, and workspace. */
#ifndef WEFT_RUNTIME_SPARSE_ARGUMENTS_H
#define WEFT_RUNTIME_SPARSE_ARGUMENTS_H

#include <weft/sparse.h>

#include "runtime/base/error.h"

enum {
    WEFT__SPARSE_ALIGNMENT = 64, /* of a workspace */
    WEFT__SPARSE_THREADS = 1024, /* the most that may be asked for */
};

/* WEFT_OK, or WEFT_ERR_INVALID with a text that begins with the function, as all below. @given may
 * be NULL. */
int weft__sparse_read_options(const char *who, const struct weft_sparse_options *given,
                              struct weft_sparse_options *options);
/* The same, and whether @report, NULL or not, has a size to be filled by. */
int weft__sparse_read(const char *who, const struct weft_sparse_options *given,
                      struct weft_sparse_options *options, const struct weft_sparse_report *report);
/* Of the vector `of`, or of an argument (NULL). */
int weft__sparse_check_dtype(const char *who, const char *of, weft_dtype_t dtype);
int weft__sparse_check_index_dtype(const char *who, const char *of, weft_dtype_t dtype);
int weft__sparse_check_threshold(const char *who, double threshold);
/* That there is memory for `count` pairs, of an argument that is not NULL. */
int weft__sparse_check_memory(const char *who, const char *name, const struct weft_sparse *pairs,
                              size_t count);

static inline int weft__sparse_check_given(const char *who, const char *name,
                                           const struct weft_sparse *pairs)
{
    if (!pairs)
        return WEFT__INVALID("%s: `%s` is NULL, expected a sparse vector", who, name);
    return WEFT_OK;
}

/* A vector to write into, with memory for `count` pairs. */
static inline int weft__sparse_check_target(const char *who, const char *name,
                                            const struct weft_sparse *pairs, size_t count)
{
    if (weft__sparse_check_given(who, name, pairs) != WEFT_OK)
        return WEFT_ERR_INVALID;
    return weft__sparse_check_memory(who, name, pairs, count);
}

/* A vector to read, with memory for the pairs that it has. */
static inline int weft__sparse_check_pairs(const char *who, const char *name,
                                           const struct weft_sparse *pairs)
{
    if (weft__sparse_check_given(who, name, pairs) != WEFT_OK)
        return WEFT_ERR_INVALID;
    return weft__sparse_check_memory(who, name, pairs, pairs->count);
}

int weft__sparse_check_ascending(const char *who, const char *name,
                                 const struct weft_sparse *pairs);
/* The same datatypes as `a`, which is called `model`. */
int weft__sparse_check_alike(const char *who, const char *name, const struct weft_sparse *pairs,
                             const char *model, const struct weft_sparse *a);
/* Alike, with memory and capacity for `need` pairs. */
int weft__sparse_check_room(const char *who, const char *name, const struct weft_sparse *pairs,
                            const char *model, const struct weft_sparse *a, size_t need);

/* Memory to work in: the caller's, if it is large enough, or allocated. */
struct weft__sparse_workspace {
    void *memory;
    void *owned;
};

int weft__sparse_open(const struct weft_sparse_options *options, size_t bytes,
                      struct weft__sparse_workspace *workspace);
void weft__sparse_close(struct weft__sparse_workspace *workspace);
/* What a caller has to bring for so many bytes, wherever its memory begins. */
size_t weft__sparse_with_alignment(size_t bytes);

static inline size_t weft__sparse_round_up(size_t bytes)
{
    return (bytes + WEFT__SPARSE_ALIGNMENT - 1) / WEFT__SPARSE_ALIGNMENT * WEFT__SPARSE_ALIGNMENT;
}

static inline size_t weft__sparse_index_size(const struct weft_sparse *pairs)
{
    return pairs->index_dtype == WEFT_U64 ? sizeof(uint64_t) : sizeof(uint32_t);
}

#endif
