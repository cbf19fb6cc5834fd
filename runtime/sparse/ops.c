/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of schedules on lists of (index, value) pairs: c elements of 8 bytes, first c
 * indices of 4 bytes, ascending, then c values of 4 bytes.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/graph/op.h"
#include "runtime/sparse/arguments.h"
#include "runtime/sparse/operations.h"

#include <math.h>
#include <string.h>

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

/* What regions of each operation are: letters, the last of all that follow; `least` of them have to
 * be there. */
static const struct {
    const char *name;
    const char *letters;
    size_t least, most;
} shapes[] = {
    [WEFT_SPARSE_MERGE] = {"topk-merge", "lllwkr", 5, 6},
    [WEFT_SPARSE_PART] = {"sparse-part", "llbwkr", 3, 6},
    [WEFT_SPARSE_SUM] = {"sparse-sum", "lwl", 2, 2 + WEFT_SPARSE_FAN},
    [WEFT_SPARSE_KEEP] = {"sparse-keep", "lltwkr", 6, 6},
    [WEFT_SPARSE_JOIN] = {"sparse-join", "lll", 3, 3},
    [WEFT_SPARSE_BOUNDS] = {"sparse-bounds", "blr", 3, 3},
    [WEFT_SPARSE_SELECT] = {"topk-select", "lrrwkt", 5, 6},
    [WEFT_SPARSE_ABOVE] = {"sparse-above", "lrrwt", 5, 5},
};

/* WEFT_IN_PROGRESS: virtual ranks without payload, where nothing but counts is known. */
static int check_arguments(const struct weft_call *call, weft_sparse_op_kind_t kind)
{
    const char *name = shapes[kind].name, *letters = shapes[kind].letters;
    size_t last = strlen(letters) - 1;
    int omitted = 0;

    if (call->argument_count < shapes[kind].least || call->argument_count > shapes[kind].most)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %zu regions, expected %zu to %zu", name,
                              call->argument_count, shapes[kind].least, shapes[kind].most);
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

/* What is dropped is added to a residual: not to one of no elements. */
static int has_residual(const struct weft_call *call, size_t index)
{
    return call->argument_count > index && call->arguments[index].count > 0;
}

/* Without payload: a list of so many pairs, or of as many as there is room for. */
static int omit(struct weft_call *call, size_t pairs)
{
    if (call->value)
        *call->value = pairs < call->arguments[0].count ? pairs : call->arguments[0].count;
    return WEFT_OK;
}

static const struct weft__sparse_settings *settings_of(const struct weft_call *call)
{
    return call->user;
}

/* Region `index` to work in: `pairs` pairs, and what is left as the workspace of a call. */
static struct weft_sparse work_in(const struct weft_call *call, size_t index, size_t pairs,
                                  struct weft_sparse_options *options)
{
    const struct weft_argument *work = &call->arguments[index];
    size_t used = pairs < work->count ? pairs : work->count;

    weft_sparse_options_init(options);
    options->nan = settings_of(call)->nan;
    options->workspace = used < work->count ? (uint64_t *)work->data + used : NULL;
    options->workspace_bytes = (work->count - used) * sizeof(uint64_t);
    return list_at(work->data, 0, used);
}

/* ---- a T b ---- */

static int merge(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    struct weft_sparse_options options;
    int status = check_arguments(call, WEFT_SPARSE_MERGE);

    if (status < 0)
        return status;
    size_t both = arguments[1].count + arguments[2].count;
    size_t limit = lesser(arguments[4].count, both);
    if (status)
        return omit(call, limit);
    struct weft_sparse a = list_of(&arguments[1]), b = list_of(&arguments[2]);
    struct weft_sparse out = room_in(&arguments[0], limit);
    struct weft_sparse dropped = work_in(call, 3, both, &options);

    status = weft_sparse_merge(&options, &a, &b, out.capacity, &out, &dropped, NULL);
    if (status == WEFT_OK && has_residual(call, 5))
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
    struct weft_sparse dropped = work_in(call, work, list->count, &options);
    struct weft_sparse out = room_in(&arguments[0], lesser(arguments[work + 1].count, list->count));
    int status = weft_sparse_keep(&options, list, threshold, out.capacity, &out, &dropped, NULL);

    if (status == WEFT_OK && has_residual(call, work + 2))
        status = weft_sparse_scatter_add(&dropped, 1, arguments[work + 2].data,
                                         arguments[work + 2].count);
    return status == WEFT_OK ? produce(call, &out) : status;
}

static int check_threshold(weft_sparse_op_kind_t kind, const struct weft_argument *threshold)
{
    if (threshold->count == 1)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID, "%s: the %s is %zu elements, expected 1",
                          shapes[kind].name, kind == WEFT_SPARSE_SELECT ? "hint" : "threshold",
                          threshold->count);
}

static int keep_largest(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    float threshold;
    int status = check_arguments(call, WEFT_SPARSE_KEEP);

    if (status > 0)
        return omit(call, lesser(arguments[1].count, arguments[4].count));
    if (!status)
        status = check_threshold(WEFT_SPARSE_KEEP, &arguments[2]);
    if (status)
        return status;
    struct weft_sparse list = list_of(&arguments[1]);

    memcpy(&threshold, arguments[2].data, sizeof threshold);
    return keep(call, &list, (double)threshold, 3);
}

/* ---- parts ---- */

static int check_bounds(weft_sparse_op_kind_t kind, const struct weft_argument *bounds)
{
    if (bounds->count >= 2)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_INVALID, "%s: bounds are %zu elements, expected at least 2",
                          shapes[kind].name, bounds->count);
}

/* The regions that are optional come together. */
static int check_part(const struct weft_call *call)
{
    if (call->argument_count == 4 || call->argument_count == 5)
        return weft_error_set(WEFT_ERR_INVALID, "sparse-part: %zu regions, expected 3 or 6",
                              call->argument_count);
    return WEFT_OK;
}

static int cut(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    const uint64_t *bounds = arguments[2].data;
    struct weft_sparse part;
    int status = check_arguments(call, WEFT_SPARSE_PART), wrong = 0;

    if (status >= 0)
        wrong = check_part(call);
    if (status > 0 && !wrong)
        return omit(call, call->argument_count > 3 ? lesser(arguments[1].count, arguments[4].count)
                                                   : arguments[1].count);
    if (!status && !wrong)
        wrong = check_bounds(WEFT_SPARSE_PART, &arguments[2]);
    if (status < 0 || wrong)
        return wrong ? wrong : status;
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

static int wrong_bounds(int what, uint64_t a, uint64_t b, uint64_t c, size_t elements)
{
    const uint64_t detail[] = {a, b, c};

    return weft__sparse_bounds_wrong(what, detail, elements);
}

static int validate(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    int status = check_arguments(call, WEFT_SPARSE_BOUNDS);

    if (!status)
        status = check_bounds(WEFT_SPARSE_BOUNDS, &arguments[0]);
    if (status)
        return status < 0 ? status : WEFT_OK;
    const uint64_t *bounds = arguments[0].data;
    size_t last = arguments[0].count - 1, elements = arguments[2].count;
    struct weft_sparse list = list_of(&arguments[1]);
    const uint32_t *index = list.indices;

    if (bounds[0] != 0 || bounds[last] != elements)
        return wrong_bounds(WEFT__BOUNDS_ENDS, bounds[0], bounds[last], 0, elements);
    for (size_t i = 0; i < last; i++)
        if (bounds[i] > bounds[i + 1])
            return wrong_bounds(WEFT__BOUNDS_STEP, i + 1, bounds[i + 1], bounds[i], elements);
    for (size_t i = 1; i < list.count; i++)
        if (index[i - 1] >= index[i])
            return wrong_bounds(WEFT__BOUNDS_ORDER, i, index[i], index[i - 1], elements);
    if (list.count > 0 && index[list.count - 1] >= elements)
        return wrong_bounds(WEFT__BOUNDS_LAST, index[list.count - 1], 0, 0, elements);
    return WEFT_OK;
}

/* ---- together ---- */

/* Of lists from region `first` on. */
static size_t pairs_of_all(const struct weft_call *call, size_t first)
{
    size_t pairs = 0;

    for (size_t i = first; i < call->argument_count; i++)
        pairs += call->arguments[i].count;
    return pairs;
}

static int sum(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    struct weft_sparse lists[WEFT_SPARSE_FAN];
    struct weft_sparse_options options;
    int status = check_arguments(call, WEFT_SPARSE_SUM);
    size_t pairs = status >= 0 ? pairs_of_all(call, 2) : 0;

    if (status)
        return status < 0 ? status : omit(call, pairs);
    for (size_t i = 2; i < call->argument_count; i++)
        lists[i - 2] = list_of(&arguments[i]);
    struct weft_sparse out = room_in(&arguments[0], pairs);

    work_in(call, 1, 0, &options);
    status = weft_sparse_sum(&options, lists, call->argument_count - 2, &out, NULL);
    return status == WEFT_OK ? produce(call, &out) : status;
}

static int join(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    int status = check_arguments(call, WEFT_SPARSE_JOIN);

    if (status)
        return status < 0 ? status : omit(call, arguments[1].count + arguments[2].count);
    struct weft_sparse a = list_of(&arguments[1]), b = list_of(&arguments[2]);
    struct weft_sparse out = room_in(&arguments[0], a.count + b.count);

    status = weft_sparse_join(&a, &b, &out);
    return status == WEFT_OK ? produce(call, &out) : status;
}

/* ---- selection ---- */

/* A dense vector may be left out: the residual, or what is added to it. */
static int check_select(const struct weft_call *call, weft_sparse_op_kind_t kind)
{
    const size_t residual = call->arguments[1].count, values = call->arguments[2].count;
    const size_t count = residual > 0 ? residual : values;

    if (residual > 0 && values > 0 && residual != values)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: %zu values and a residual of %zu elements, expected as many, or "
                              "one of them of none",
                              shapes[kind].name, values, residual);
    if (count > SIZE_MAX / sizeof(float) || (uint64_t)count > UINT64_C(1) << 32)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %zu elements, expected at most 2^32",
                              shapes[kind].name, count);
    if (kind == WEFT_SPARSE_ABOVE)
        return check_threshold(kind, &call->arguments[4]);
    return call->argument_count > 5 ? check_threshold(kind, &call->arguments[5]) : WEFT_OK;
}

/* What is selected from a residual to which nothing is added becomes zero there; and NaNs do. */
static void take_out(const struct weft_sparse *list, float *residual, size_t count, uint64_t nans)
{
    const uint32_t *index = list->indices;

    for (size_t i = 0; i < list->count; i++)
        residual[index[i]] = 0;
    for (size_t i = 0; nans > 0 && i < count; i++)
        residual[i] = isnan(residual[i]) ? 0 : residual[i];
}

/* `threshold`: NULL, the largest. */
static int select_from(const struct weft_call *call, const struct weft_sparse_options *options,
                       const float *threshold, struct weft_sparse *out,
                       struct weft_sparse_report *report)
{
    float *residual = call->arguments[1].data;
    const float *values = call->arguments[2].data;
    const size_t residuals = call->arguments[1].count, count = call->arguments[2].count;
    int status;

    if (residuals > 0 && count > 0)
        return threshold ? weft_sparse_accumulate_above(options, residual, values, count,
                                                        (double)*threshold, out, report)
                         : weft_sparse_accumulate_top(options, residual, values, count,
                                                      out->capacity, out, report);
    values = residuals > 0 ? residual : values;
    status =
        threshold
            ? weft_sparse_above(options, values, residuals + count, (double)*threshold, out, report)
            : weft_sparse_top(options, values, residuals + count, out->capacity, out, report);
    if (status == WEFT_OK && residuals > 0)
        take_out(out, residual, residuals, report->nans);
    return status;
}

static int select_any(struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    const weft_sparse_op_kind_t kind = settings_of(call)->kind;
    const int above = kind == WEFT_SPARSE_ABOVE;
    float *hint = !above && call->argument_count > 5 ? arguments[5].data : NULL;
    struct weft_sparse_report report = {.struct_size = sizeof report};
    struct weft_sparse_options options;
    int status = check_arguments(call, kind),
        wrong = status < 0 ? status : check_select(call, kind);

    if (wrong)
        return wrong;
    size_t count = arguments[1].count > 0 ? arguments[1].count : arguments[2].count;
    size_t most = above ? count : lesser(arguments[4].count, count);
    if (status)
        return omit(call, most);
    struct weft_sparse out = room_in(&arguments[0], most);

    work_in(call, 3, 0, &options);
    options.hint = hint && *hint > 0 && isfinite(*hint) ? (double)*hint : 0;
    status = select_from(call, &options, above ? arguments[4].data : NULL, &out, &report);
    if (status == WEFT_OK && hint)
        *hint = (float)report.hint;
    if (status == WEFT_OK && settings_of(call)->nans)
        *settings_of(call)->nans += report.nans;
    return status == WEFT_OK ? produce(call, &out) : status;
}

/* ---- on devices ---- */

/* That a list that is written has room, as the functions of the host say it. */
static int check_room(const char *function, const struct weft_call *call, size_t pairs)
{
    struct weft_sparse out = room_in(&call->arguments[0], pairs);

    return weft__sparse_check_room(function, "out", &out, "out", &out, pairs);
}

static int check_call(const struct weft_call *call)
{
    const struct weft_argument *arguments = call->arguments;
    const weft_sparse_op_kind_t kind = settings_of(call)->kind;
    int status = check_arguments(call, kind);

    if (status != WEFT_OK)
        return status;
    switch (kind) {
    case WEFT_SPARSE_SELECT:
    case WEFT_SPARSE_ABOVE:
        return check_select(call, kind);
    case WEFT_SPARSE_PART:
        status = check_part(call);
        return status ? status : check_bounds(kind, &arguments[2]);
    case WEFT_SPARSE_SUM:
        return check_room(WEFT__SPARSE_NAME(weft_sparse_sum), call, pairs_of_all(call, 2));
    case WEFT_SPARSE_KEEP:
        return check_threshold(kind, &arguments[2]);
    case WEFT_SPARSE_JOIN:
        return check_room(WEFT__SPARSE_NAME(weft_sparse_join), call,
                          arguments[1].count + arguments[2].count);
    case WEFT_SPARSE_BOUNDS:
        return check_bounds(kind, &arguments[0]);
    case WEFT_SPARSE_MERGE:
    case WEFT_SPARSE_OP_COUNT:
    default:
        return WEFT_OK;
    }
}

/* ---- the table ---- */

#define FORM(sparse_kind)                                                                          \
    {                                                                                              \
        .family = WEFT__FORM_SPARSE, .kind = (sparse_kind), .check = check_call,                   \
        .end = weft__sparse_end                                                                    \
    }

static const struct {
    weft_compute_fn compute;
    unsigned flags;
    enum weft__op_sense sense;
    unsigned writes, keeps, spares;
    struct weft__form form;
} table[] = {
    [WEFT_SPARSE_MERGE] = {merge, WEFT_OP_FOLDS | WEFT_OP_COMMUTES, WEFT__OP_PLAIN,
                           1 | 1 << 3 | 1 << 5, 1 << 5, 1 << 3 | 1 << 4, FORM(WEFT_SPARSE_MERGE)},
    [WEFT_SPARSE_PART] = {cut, WEFT_OP_FOLDS, WEFT__OP_CUTS, 1 | 1 << 3 | 1 << 5, 1 << 5,
                          1 << 3 | 1 << 4, FORM(WEFT_SPARSE_PART)},
    [WEFT_SPARSE_SUM] = {sum, WEFT_OP_FOLDS | WEFT_OP_COMMUTES, WEFT__OP_PLAIN, 1 | 1 << 1, 0,
                         1 << 1, FORM(WEFT_SPARSE_SUM)},
    [WEFT_SPARSE_KEEP] = {keep_largest, WEFT_OP_FOLDS, WEFT__OP_FILTERS, 1 | 1 << 3 | 1 << 5,
                          1 << 5, 1 << 3 | 1 << 4, FORM(WEFT_SPARSE_KEEP)},
    [WEFT_SPARSE_JOIN] = {join, WEFT_OP_FOLDS, WEFT__OP_JOINS, 1, 0, 0, FORM(WEFT_SPARSE_JOIN)},
    [WEFT_SPARSE_BOUNDS] = {validate, 0, WEFT__OP_PLAIN, 0, 0, 0, FORM(WEFT_SPARSE_BOUNDS)},
    [WEFT_SPARSE_SELECT] = {select_any, 0, WEFT__OP_PLAIN, 1 | 1 << 1 | 1 << 3 | 1 << 5, 0,
                            1 << 3 | 1 << 4, FORM(WEFT_SPARSE_SELECT)},
    [WEFT_SPARSE_ABOVE] = {select_any, 0, WEFT__OP_PLAIN, 1 | 1 << 1 | 1 << 3, 0, 1 << 3,
                           FORM(WEFT_SPARSE_ABOVE)},
};

static const char *const names[] = {
#define NAME(kind, text) [kind] = (text),
    WEFT_SPARSE_OP_MAP(NAME)
#undef NAME
};

void weft_sparse_op_config_init_sized(struct weft_sparse_op_config *config, size_t size)
{
    weft_sized_init(config, size);
}

/* All fold lists of pairs, so they are one family. */
static int make(const struct weft__sparse_settings *settings, struct weft_op **op)
{
    const weft_sparse_op_kind_t kind = settings->kind;
    struct weft__sparse_settings *kept = weft__malloc(1, sizeof *kept);
    struct weft_op_config config;
    struct weft_op *made;
    int status;

    if (!kept)
        return weft__error_memory("an operation");
    *kept = *settings;
    weft_op_config_init(&config);
    config.name = names[kind];
    config.flags = table[kind].flags;
    config.compute = table[kind].compute;
    config.user = kept;
    status = weft_op_create(&made, &config);
    if (status) {
        weft__free(kept);
        return status;
    }
    made->owned = kept;
    made->sense = table[kind].sense;
    made->writes = table[kind].writes;
    made->keeps = table[kind].keeps;
    made->spares = table[kind].spares;
    made->form = &table[kind].form;
    made->family = names[WEFT_SPARSE_MERGE];
    *op = made;
    return WEFT_OK;
}

static int check_kind(const char *who, weft_sparse_op_kind_t kind, struct weft_op **op)
{
    if (!op)
        return WEFT__INVALID("%s: `op` is NULL, expected where to store the operation", who);
    if ((unsigned)kind >= WEFT_SPARSE_OP_COUNT)
        return WEFT__INVALID("%s: `kind` is %d, expected a weft_sparse_op_kind_t", who, (int)kind);
    return WEFT_OK;
}

int weft_sparse_op(weft_sparse_op_kind_t kind, struct weft_op **op)
{
    const struct weft__sparse_settings settings = {.kind = kind};
    int status = check_kind(__func__, kind, op);

    return status ? status : make(&settings, op);
}

int weft_sparse_op_create(struct weft_op **op, const struct weft_sparse_op_config *config)
{
    struct weft_sparse_op_config full;
    int status;

    if (!config)
        return WEFT__INVALID("%s: `config` is NULL, expected a configuration", __func__);
    status = weft_sized_read(__func__, "config", config, &full, sizeof full);
    if (!status)
        status = check_kind(__func__, full.kind, op);
    if (!status && full.nan != WEFT_NAN_ERROR && full.nan != WEFT_NAN_ZERO)
        status = WEFT__INVALID("%s: `nan` is %d, expected WEFT_NAN_ERROR or WEFT_NAN_ZERO",
                               __func__, (int)full.nan);
    const struct weft__sparse_settings settings = {
        .kind = full.kind, .nan = full.nan, .nans = full.nans};

    return status ? status : make(&settings, op);
}

int weft_sparse_merge_op(struct weft_op **op)
{
    const struct weft__sparse_settings settings = {.kind = WEFT_SPARSE_MERGE};
    int status = check_kind(__func__, WEFT_SPARSE_MERGE, op);

    return status ? status : make(&settings, op);
}
