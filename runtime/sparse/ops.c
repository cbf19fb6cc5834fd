/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of schedules on lists of (index, value) pairs: c elements of 8 bytes, first c
 * indices of 4 bytes, ascending, then c values of 4 bytes.
 */
#include "runtime/base/error.h"
#include "runtime/graph/op.h"

#include <string.h>
#include <weft/sparse.h>

/* ---- lists in memory ---- */

static struct weft_sparse list_at(void *data, size_t count, size_t capacity)
{
    return (struct weft_sparse){.indices = data,
                                .values = data ? (char *)data + capacity * sizeof(uint32_t) : data,
                                .count = count,
                                .capacity = capacity,
                                .index_dtype = WEFT_U32,
                                .dtype = WEFT_F32};
}

static struct weft_sparse list_of(const struct weft_argument *argument)
{
    return list_at(argument->data, argument->count, argument->count);
}

/* Room for so many pairs in a region that is written, at most as many as it has elements. */
static struct weft_sparse room_in(const struct weft_argument *argument, size_t pairs)
{
    return list_at(argument->data, 0, pairs < argument->count ? pairs : argument->count);
}

/* The end of a function: values follow the indices that there are, and their number is told. */
static int produce(struct weft_call *call, struct weft_sparse *out)
{
    char *values = (char *)out->indices + out->count * sizeof(uint32_t);

    if (out->count > 0 && values != out->values)
        memmove(values, out->values, out->count * sizeof(float));
    if (call->value)
        *call->value = out->count;
    return WEFT_OK;
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What regions are, a letter each. */
static const struct {
    char letter;
    weft_dtype_t dtype;
    const char *name;
} kinds[] = {
    {'l', WEFT_U64, "a list"},      {'w', WEFT_U64, "memory to work in"}, {'b', WEFT_U64, "bounds"},
    {'t', WEFT_F32, "a threshold"}, {'r', WEFT_F32, "a dense vector"},
};

/* The functions below go by the sizes of these datatypes. A limit ('k') is a region of anything. */
static int check_dtype(const char *name, size_t index, const struct weft_argument *argument,
                       char letter)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].letter == letter && kinds[i].dtype != argument->dtype)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: region %zu is %zu elements of %s, expected %s of %s", name,
                                  index, argument->count, weft_dtype_name(argument->dtype),
                                  kinds[i].name, weft_dtype_name(kinds[i].dtype));
    return WEFT_OK;
}

/* `letters` says what regions are, the last of all that follow; `least` of them have to be there.
 * WEFT_IN_PROGRESS: virtual ranks without payload, where nothing but counts is known. */
static int check_arguments(const struct weft_call *call, const char *name, const char *letters,
                           size_t least, size_t most)
{
    size_t last = strlen(letters) - 1;
    int omitted = 0;

    if (call->argument_count < least || call->argument_count > most)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %zu regions, expected %zu to %zu", name,
                              call->argument_count, least, most);
    for (size_t i = 0; i < call->argument_count; i++) {
        int status = check_dtype(name, i, &call->arguments[i], letters[lesser(i, last)]);

        if (status)
            return status;
        if (call->arguments[i].piece_count > 1)
            return weft_error_set(WEFT_ERR_UNSUPPORTED,
                                  "%s: a list, bounds or the residual are bound in pieces, "
                                  "expected memory in one piece",
                                  name);
        omitted |= !call->arguments[i].data && call->arguments[i].count;
    }
    return omitted ? WEFT_IN_PROGRESS : WEFT_OK;
}

/* Without payload: a list of so many pairs, or of as many as there is room for. */
static int omit(struct weft_call *call, size_t pairs)
{
    if (call->value)
        *call->value = pairs < call->arguments[0].count ? pairs : call->arguments[0].count;
    return WEFT_OK;
}

/* A region to work in: `pairs` pairs, and what is left as the workspace of a call. */
static struct weft_sparse work_in(const struct weft_argument *work, size_t pairs,
                                  struct weft_sparse_options *options)
{
    size_t used = pairs < work->count ? pairs : work->count;

    weft_sparse_options_init(options);
    options->workspace = used < work->count ? (uint64_t *)work->data + used : NULL;
    options->workspace_bytes = (work->count - used) * sizeof(uint64_t);
    return list_at(work->data, 0, used);
}

/* ---- a T b ---- */

static int merge(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    struct weft_sparse_options options;
    int status = check_arguments(call, "topk-merge", "lllwkr", 5, 6);

    if (status < 0)
        return status;
    size_t both = arguments[1].count + arguments[2].count;
    size_t limit = lesser(arguments[4].count, both);
    if (status)
        return omit(call, limit);
    struct weft_sparse a = list_of(&arguments[1]), b = list_of(&arguments[2]);
    struct weft_sparse out = room_in(&arguments[0], limit);
    struct weft_sparse dropped = work_in(&arguments[3], both, &options);

    status = weft_sparse_merge(&options, &a, &b, out.capacity, &out, &dropped, NULL);
    if (status == WEFT_OK && call->argument_count > 5)
        status = weft_sparse_scatter_add(&dropped, 1, arguments[5].data, arguments[5].count);
    return status == WEFT_OK ? produce(call, &out) : status;
}

/* ---- the largest of a list ---- */

/* The pairs of `list` that stay go to region 0; the others to the residual. Regions from `work` on:
 * to work in, the limit, the residual. */
static int keep(struct weft_call *call, const struct weft_sparse *list, double threshold,
                size_t work)
{
    const struct weft_argument *arguments = call->arguments;
    struct weft_sparse_options options;
    struct weft_sparse dropped = work_in(&arguments[work], list->count, &options);
    struct weft_sparse out = room_in(&arguments[0], lesser(arguments[work + 1].count, list->count));
    int status = weft_sparse_keep(&options, list, threshold, out.capacity, &out, &dropped, NULL);

    if (status == WEFT_OK)
        status = weft_sparse_scatter_add(&dropped, 1, arguments[work + 2].data,
                                         arguments[work + 2].count);
    return status == WEFT_OK ? produce(call, &out) : status;
}

static int keep_largest(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    float threshold;
    int status = check_arguments(call, "sparse-keep", "lltwkr", 6, 6);

    if (status)
        return status < 0 ? status : omit(call, lesser(arguments[1].count, arguments[4].count));
    if (arguments[2].count != 1)
        return weft_error_set(WEFT_ERR_INVALID,
                              "sparse-keep: the threshold is %zu elements, expected 1",
                              arguments[2].count);
    struct weft_sparse list = list_of(&arguments[1]);

    memcpy(&threshold, arguments[2].data, sizeof threshold);
    return keep(call, &list, (double)threshold, 3);
}

/* ---- parts ---- */

static int check_bounds(const char *name, const struct weft_argument *bounds)
{
    if (bounds->count >= 2)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID, "%s: bounds are %zu elements, expected at least 2",
                          name, bounds->count);
}

static int cut(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    const uint64_t *bounds = arguments[2].data;
    struct weft_sparse part;
    int status = check_arguments(call, "sparse-part", "llbwkr", 3, 6);

    if (status >= 0 && (call->argument_count == 4 || call->argument_count == 5))
        status = weft_error_set(WEFT_ERR_INVALID, "sparse-part: %zu regions, expected 3 or 6",
                                call->argument_count);
    if (status > 0)
        return omit(call, call->argument_count > 3 ? lesser(arguments[1].count, arguments[4].count)
                                                   : arguments[1].count);
    if (!status)
        status = check_bounds("sparse-part", &arguments[2]);
    if (status)
        return status;
    struct weft_sparse list = list_of(&arguments[1]);

    status = weft_sparse_range(&list, bounds[0], bounds[arguments[2].count - 1], &part);
    if (status)
        return status;
    if (call->argument_count > 3 &&
        (part.count > arguments[4].count || part.count > arguments[0].count))
        return keep(call, &part, 0, 3);
    if (part.count > arguments[0].count)
        return weft_error_set(WEFT_ERR_INVALID,
                              "sparse-part: %zu pairs of the list are in [%llu, %llu), expected at "
                              "most %zu",
                              part.count, (unsigned long long)bounds[0],
                              (unsigned long long)bounds[arguments[2].count - 1],
                              arguments[0].count);
    struct weft_sparse out = list_at(arguments[0].data, part.count, part.count);

    if (part.count > 0) {
        memcpy(out.indices, part.indices, part.count * sizeof(uint32_t));
        memcpy(out.values, part.values, part.count * sizeof(float));
    }
    return produce(call, &out);
}

static int validate(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    int status = check_arguments(call, "sparse-bounds", "blr", 3, 3);

    if (!status)
        status = check_bounds("sparse-bounds", &arguments[0]);
    if (status)
        return status < 0 ? status : WEFT_OK;
    const uint64_t *bounds = arguments[0].data;
    size_t last = arguments[0].count - 1, elements = arguments[2].count;
    struct weft_sparse list = list_of(&arguments[1]);
    const uint32_t *index = list.indices;

    if (bounds[0] != 0 || bounds[last] != elements)
        return weft_error_set(
            WEFT_ERR_INVALID, "sparse-bounds: bounds lead from %llu to %llu, expected 0 to %zu",
            (unsigned long long)bounds[0], (unsigned long long)bounds[last], elements);
    for (size_t i = 0; i < last; i++)
        if (bounds[i] > bounds[i + 1])
            return weft_error_set(WEFT_ERR_INVALID,
                                  "sparse-bounds: bound %zu is %llu, expected at least the one "
                                  "before it, %llu",
                                  i + 1, (unsigned long long)bounds[i + 1],
                                  (unsigned long long)bounds[i]);
    for (size_t i = 1; i < list.count; i++)
        if (index[i - 1] >= index[i])
            return weft_error_set(WEFT_ERR_INVALID,
                                  "sparse-bounds: index %zu of the list is %u, expected more than "
                                  "the one before it, %u",
                                  i, index[i], index[i - 1]);
    if (list.count > 0 && index[list.count - 1] >= elements)
        return weft_error_set(WEFT_ERR_INVALID,
                              "sparse-bounds: the last index of the list is %u, expected less than "
                              "%zu",
                              index[list.count - 1], elements);
    return WEFT_OK;
}

/* ---- together ---- */

static int sum(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    struct weft_sparse lists[WEFT_SPARSE_FAN];
    struct weft_sparse_options options;
    size_t pairs = 0;
    int status = check_arguments(call, "sparse-sum", "lwl", 2, 2 + WEFT_SPARSE_FAN);

    for (size_t i = 2; status >= 0 && i < call->argument_count; i++)
        pairs += arguments[i].count;
    if (status)
        return status < 0 ? status : omit(call, pairs);
    for (size_t i = 2; i < call->argument_count; i++)
        lists[i - 2] = list_of(&arguments[i]);
    struct weft_sparse out = room_in(&arguments[0], pairs);

    work_in(&arguments[1], 0, &options);
    status = weft_sparse_sum(&options, lists, call->argument_count - 2, &out, NULL);
    return status == WEFT_OK ? produce(call, &out) : status;
}

static int join(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    int status = check_arguments(call, "sparse-join", "lll", 3, 3);

    if (status)
        return status < 0 ? status : omit(call, arguments[1].count + arguments[2].count);
    struct weft_sparse a = list_of(&arguments[1]), b = list_of(&arguments[2]);
    struct weft_sparse out = room_in(&arguments[0], a.count + b.count);

    status = weft_sparse_join(&a, &b, &out);
    return status == WEFT_OK ? produce(call, &out) : status;
}

/* ---- the table ---- */

static const struct {
    weft_compute_fn compute;
    unsigned flags;
    enum weft__op_sense sense;
    unsigned writes;
} table[] = {
    [WEFT_SPARSE_MERGE] = {merge, WEFT_OP_FOLDS | WEFT_OP_COMMUTES, WEFT__OP_PLAIN,
                           1 | 1 << 3 | 1 << 5},
    [WEFT_SPARSE_PART] = {cut, WEFT_OP_FOLDS, WEFT__OP_CUTS, 1 | 1 << 3 | 1 << 5},
    [WEFT_SPARSE_SUM] = {sum, WEFT_OP_FOLDS | WEFT_OP_COMMUTES, WEFT__OP_PLAIN, 1 | 1 << 1},
    [WEFT_SPARSE_KEEP] = {keep_largest, WEFT_OP_FOLDS, WEFT__OP_FILTERS, 1 | 1 << 3 | 1 << 5},
    [WEFT_SPARSE_JOIN] = {join, WEFT_OP_FOLDS, WEFT__OP_JOINS, 1},
    [WEFT_SPARSE_BOUNDS] = {validate, 0, WEFT__OP_PLAIN, 0},
};

static const char *const names[] = {
#define NAME(kind, text) [kind] = (text),
    WEFT_SPARSE_OP_MAP(NAME)
#undef NAME
};

/* All fold lists of pairs, so they are one family. */
int weft_sparse_op(weft_sparse_op_kind_t kind, struct weft_op **op)
{
    struct weft_op_config config;
    int status;

    if (!op)
        return WEFT__INVALID("%s: `op` is NULL, expected where to store the operation", __func__);
    if ((unsigned)kind >= WEFT_SPARSE_OP_COUNT)
        return WEFT__INVALID("%s: `kind` is %d, expected a weft_sparse_op_kind_t", __func__,
                             (int)kind);
    weft_op_config_init(&config);
    config.name = names[kind];
    config.flags = table[kind].flags;
    config.compute = table[kind].compute;
    status = weft_op_create(op, &config);
    if (status)
        return status;
    (*op)->sense = table[kind].sense;
    (*op)->writes = table[kind].writes;
    (*op)->family = names[WEFT_SPARSE_MERGE];
    return WEFT_OK;
}

int weft_sparse_merge_op(struct weft_op **op)
{
    if (!op)
        return WEFT__INVALID("%s: `op` is NULL, expected where to store the operation", __func__);
    return weft_sparse_op(WEFT_SPARSE_MERGE, op);
}
