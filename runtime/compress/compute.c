/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of schedules on compressed vectors, computed in parts (in_parts, in
 * runtime/graph/op.h). How a computation is cut depends on sizes alone, so what comes out does not
 * depend on when its parts are computed.
 *
 * A projection of M slices onto d components is cut into pieces of this table; where the basis is
 * small all components are one column of pieces:
 *
 *                 components
 *               | 0 | 2 | 4 |
 *       slices  | 1 | 3 | 5 |     each part reads the basis of its components, and its slices
 *
 * and a reconstruction likewise, of slices and elements.
 */
#include "ops/project.h"
#include "ops/quantise.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/compress/operations.h"
#include "runtime/compress/quantise.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    REGIONS = 5,
    QUANTISED = 32768,  /* elements of a part that quantises */
    PRODUCTS = 1 << 21, /* products of a part that projects */
    PASSED = 1 << 18,   /* elements of a part that makes columns orthonormal */
    SOME_SLICES = 8,    /* that share a piece of the basis, where a part has not all of it */
    STEP = 16,          /* components or elements: a part has a multiple */
    AT_ONCE = 4096,     /* elements or products that are computed without going on later */
};

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t ceiling(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

/* ---- arguments ---- */

/* What regions are: a letter each ('b' bytes, 'f' f32, 'd' f64), those in capitals may be left out;
 * and what errors call them. */
static const struct {
    const char *letters;
    const char *names[REGIONS];
} kinds[] = {
    [WEFT_COMPRESS_QUANTISE] = {"bf", {"the bytes", "the values"}},
    [WEFT_COMPRESS_DEQUANTISE] = {"fb", {"the values", "the bytes"}},
    [WEFT_COMPRESS_DEQUANTISE_ADD] = {"fb", {"the values", "the bytes"}},
    [WEFT_COMPRESS_PROJECT] = {"fffFD",
                               {"the components", "the values", "the basis", "the mean",
                                "the squares"}},
    [WEFT_COMPRESS_RECONSTRUCT] = {"fffF",
                                   {"the values", "the components", "the basis", "the mean"}},
    [WEFT_COMPRESS_CORRELATE] = {"fff", {"the products", "the values", "the components"}},
    [WEFT_COMPRESS_ORTHONORMALISE] = {"fd", {"the matrix", "memory to work in"}},
};

static weft_dtype_t dtype_of(char letter)
{
    return letter == 'b' ? WEFT_U8 : letter == 'f' || letter == 'F' ? WEFT_F32 : WEFT_F64;
}

/* Which of the regions of its kind argument `i` is: those that may be left out are told apart by
 * their datatypes. */
static size_t place_of(const struct weft__compress_task *task, size_t i, size_t last)
{
    const char *letters = kinds[task->settings->kind].letters;
    const weft_dtype_t dtype = task->call->arguments[i].dtype;
    size_t place = i > last ? i : last;

    while (letters[place] >= 'A' && letters[place] <= 'Z' && letters[place + 1] &&
           dtype_of(letters[place]) != dtype)
        place++;
    return place;
}

static int check_region(const struct weft__compress_task *task, size_t i, size_t place)
{
    const struct weft_argument *argument = &task->call->arguments[i];
    const weft_dtype_t expected = dtype_of(kinds[task->settings->kind].letters[place]);
    const char *name = kinds[task->settings->kind].names[place];

    if (argument->dtype != expected)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: region %zu (%s) is %zu elements of %s, expected %s",
                              task->settings->name, i, name, argument->count,
                              weft_dtype_name(argument->dtype), weft_dtype_name(expected));
    if (argument->piece_count > 1)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: region %zu (%s) is bound in %zu pieces, expected memory in one "
                              "piece",
                              task->settings->name, i, name, argument->piece_count);
    return WEFT_OK;
}

/* Finds the regions, and checks what they are made of. WEFT_IN_PROGRESS: virtual ranks without
 * payload, where nothing but counts is known. */
static int find_regions(struct weft__compress_task *task)
{
    const struct weft_call *call = task->call;
    const char *letters = kinds[task->settings->kind].letters;
    const size_t most = strlen(letters), least = strcspn(letters, "DF");
    size_t place = 0;
    int omitted = 0;

    if (call->argument_count < least || call->argument_count > most)
        return weft_error_set(WEFT_ERR_INVALID,
                              most > least ? "%s: %zu regions, expected %zu to %zu"
                                           : "%s: %zu regions, expected %zu",
                              task->settings->name, call->argument_count, least, most);
    for (size_t i = 0; i < call->argument_count; i++, place++) {
        place = place_of(task, i, place);
        if (place >= most)
            return weft_error_set(WEFT_ERR_INVALID, "%s: region %zu is %s again",
                                  task->settings->name, i,
                                  kinds[task->settings->kind].names[most - 1]);
        int status = check_region(task, i, place);

        if (status)
            return status;
        if (letters[place] == 'F')
            task->mean = &call->arguments[i];
        if (letters[place] == 'D')
            task->squares = &call->arguments[i];
        omitted |= !call->arguments[i].data && call->arguments[i].count;
    }
    return omitted ? WEFT_IN_PROGRESS : WEFT_OK;
}

/* What is written: f64 is so, too. */
static int is_written(const struct weft_call *call, size_t i)
{
    return i == 0 || call->arguments[i].dtype == WEFT_F64;
}

static int overlap(const struct weft_argument *a, const struct weft_argument *b)
{
    const uintptr_t from = (uintptr_t)a->data, to = (uintptr_t)b->data;

    return a->count > 0 && b->count > 0 && from < to + b->count * weft_dtype_size(b->dtype) &&
           to < from + a->count * weft_dtype_size(a->dtype);
}

/* What is written lies nowhere else. Only a mean may be where it is added to. */
static int check_overlaps(const struct weft__compress_task *task)
{
    const struct weft_call *call = task->call;

    for (size_t i = 0; i < call->argument_count; i++)
        for (size_t j = i + 1; j < call->argument_count; j++) {
            const struct weft_argument *a = &call->arguments[i], *b = &call->arguments[j];

            if ((is_written(call, i) || is_written(call, j)) && overlap(a, b) &&
                !(task->settings->kind == WEFT_COMPRESS_RECONSTRUCT && b == task->mean &&
                  a->data == b->data))
                return weft_error_set(WEFT_ERR_INVALID,
                                      "%s: regions %zu and %zu overlap, expected memory of their "
                                      "own",
                                      task->settings->name, i, j);
        }
    return WEFT_OK;
}

/* `why` is behind the number that is expected. */
WEFT_PRINTF(5, 6)
static int check_count(const struct weft__compress_task *task, const struct weft_argument *argument,
                       size_t expected, const char *name, const char *why, ...)
{
    char reason[96];
    va_list list;

    if (argument->count == expected)
        return WEFT_OK;
    va_start(list, why);
    vsnprintf(reason, sizeof reason, why, list);
    va_end(list);
    return weft_error_set(WEFT_ERR_INVALID, "%s: region %zu (%s) is %zu elements, expected %zu%s",
                          task->settings->name, (size_t)(argument - task->call->arguments), name,
                          argument->count, expected, reason);
}

/* ---- quantised ---- */

static int plan_quantised(struct weft__compress_task *task)
{
    const struct weft_quantiser *quantiser = &task->settings->quantiser;
    const int quantise = task->settings->kind == WEFT_COMPRESS_QUANTISE;
    const struct weft_argument *bytes = &task->call->arguments[!quantise];

    task->count = task->call->arguments[quantise].count;
    task->wide =
        quantiser->bucket * (quantiser->bucket < QUANTISED ? QUANTISED / quantiser->bucket : 1);
    task->parts = ceiling(task->count, task->wide);
    task->work = task->count;
    return check_count(task, bytes, weft__quantise_bytes(quantiser, task->count), "the bytes",
                       " for %zu values", task->count);
}

static int tell_bad(const struct weft__compress_task *task, uint64_t bad, size_t begin,
                    size_t count)
{
    return weft_error_set(WEFT_ERR_COMPUTE,
                          "%s: %llu of the values %zu .. %zu are NaN or infinite, expected finite "
                          "values",
                          task->settings->name, (unsigned long long)bad, begin, begin + count - 1);
}

static int compute_quantised(const struct weft__compress_task *task, size_t part)
{
    const struct weft_quantiser *quantiser = &task->settings->quantiser;
    const struct weft_call *call = task->call;
    const int quantise = task->settings->kind == WEFT_COMPRESS_QUANTISE;
    const size_t begin = part * task->wide, count = lesser(task->wide, task->count - begin);
    float *values = (float *)call->arguments[quantise].data + begin;
    uint8_t *bytes =
        (uint8_t *)call->arguments[!quantise].data + weft__quantise_bytes(quantiser, begin);
    uint64_t stream, bad;

    if (task->settings->kind == WEFT_COMPRESS_DEQUANTISE)
        weft__dequantise(quantiser, bytes, count, values);
    if (task->settings->kind == WEFT_COMPRESS_DEQUANTISE_ADD)
        weft__dequantise_add(quantiser, bytes, count, values);
    if (!quantise)
        return WEFT_OK;
    stream = weft__hash_three(call->version, (uint64_t)call->rank, (uint64_t)call->node);
    bad = weft__quantise(quantiser, stream, begin, values, count, bytes);
    return bad && quantiser->nan == WEFT_NAN_ERROR ? tell_bad(task, bad, begin, count) : WEFT_OK;
}

/* ---- projected ---- */

/* How many slices and columns a part of a table of slices and columns has, where an element of it
 * takes `each` products. */
static void cut(struct weft__compress_task *task, size_t slices, size_t columns, size_t each)
{
    const size_t cells = PRODUCTS / (each ? each : 1), some = lesser(slices, SOME_SLICES);

    if (columns * some <= cells || columns <= STEP) {
        task->wide = columns ? columns : 1;
        task->tall = cells / task->wide;
    } else {
        task->tall = some;
        task->wide = cells / some / STEP * STEP;
        task->wide = task->wide ? task->wide : STEP;
    }
    task->tall = task->tall ? task->tall : 1;
    task->down = ceiling(slices, task->tall);
    task->parts = task->down * (columns ? ceiling(columns, task->wide) : 1);
    task->work = slices * columns * each;
}

/* The basis is K rows, so it tells d; the other regions have as many elements as that makes. */
static int plan_basis(struct weft__compress_task *task, const struct weft_argument *values,
                      const struct weft_argument *components)
{
    const struct weft_argument *basis = &task->call->arguments[2];
    const size_t slice = task->settings->slice;
    int status = WEFT_OK;

    task->count = values->count;
    task->slices = ceiling(task->count, slice);
    task->components = basis->count / slice;
    if (basis->count % slice != 0 || task->components > slice)
        return weft_error_set(
            WEFT_ERR_INVALID,
            "%s: region 2 (the basis) is %zu elements, expected a multiple of %zu, "
            "at most its square",
            task->settings->name, basis->count, slice);
    status = check_count(task, components, task->slices * task->components, "the components",
                         ": %zu for each of %zu slices", task->components, task->slices);
    if (!status && task->mean)
        status = check_count(task, task->mean, task->count, "the mean", ", as the values");
    if (!status && task->squares)
        status = check_count(task, task->squares, 3, "the squares", "%s", "");
    return status;
}

static int plan_project(struct weft__compress_task *task)
{
    int status = plan_basis(task, &task->call->arguments[1], &task->call->arguments[0]);

    if (!status)
        cut(task, task->slices, task->components, task->settings->slice);
    return status;
}

/* The region of squares in memory is three numbers. */
static void add_squares(const struct weft_argument *region, int first,
                        const struct weft_projection_squares *found)
{
    double sums[3];

    memcpy(sums, region->data, sizeof sums);
    if (first) {
        sums[0] += found->values;
        sums[1] += found->centred;
    }
    sums[2] += found->kept;
    memcpy(region->data, sums, sizeof sums);
}

static int compute_project(const struct weft__compress_task *task, size_t part)
{
    const struct weft_argument *arguments = task->call->arguments;
    const size_t d = task->components, slice = task->settings->slice;
    const size_t m = part % task->down * task->tall, j = part / task->down * task->wide;
    const size_t begin = m * slice, slices = lesser(task->tall, task->slices - m);
    struct weft_projection_squares squares = {0};
    struct weft__projecting piece = {
        .basis = (const float *)arguments[2].data + j,
        .slice = slice,
        .components = lesser(task->wide, d - j),
        .stride = d,
        .values = (const float *)arguments[1].data + begin,
        .count = lesser(slices * slice, task->count - begin),
        .mean = task->mean ? (const float *)task->mean->data + begin : NULL,
        .share = (float)(1.0 / task->call->size),
        .out = (float *)arguments[0].data + m * d + j,
        .squares = task->squares ? &squares : NULL,
    };

    weft__project(&piece);
    if (task->squares)
        add_squares(task->squares, j == 0, &squares);
    return WEFT_OK;
}

static int plan_reconstruct(struct weft__compress_task *task)
{
    int status = plan_basis(task, &task->call->arguments[0], &task->call->arguments[1]);

    if (!status)
        cut(task, task->slices, lesser(task->settings->slice, task->count), task->components);
    return status;
}

static int compute_reconstruct(const struct weft__compress_task *task, size_t part)
{
    const struct weft_argument *arguments = task->call->arguments;
    const size_t d = task->components, slice = task->settings->slice;
    const size_t m = part % task->down * task->tall, k = part / task->down * task->wide;
    const size_t slices = lesser(task->tall, task->slices - m), begin = m * slice + k;
    const size_t width = lesser(task->wide, slice - k);
    const size_t last = (m + slices - 1) * slice + k; /* where the last slice's piece begins */
    const size_t tail = last < task->count ? lesser(width, task->count - last) : 0;
    struct weft__reconstructing piece = {
        .basis = (const float *)arguments[2].data + k * d,
        .slice = width,
        .components = d,
        .stride = slice,
        .in = (const float *)arguments[1].data + m * d,
        .count = (slices - 1) * width + tail,
        .mean = task->mean ? (const float *)task->mean->data + begin : NULL,
        .values = (float *)arguments[0].data + begin,
    };

    weft__reconstruct(&piece);
    return WEFT_OK;
}

/* ---- correlated ---- */

static int plan_correlate(struct weft__compress_task *task)
{
    const struct weft_argument *arguments = task->call->arguments;
    const size_t slice = task->settings->slice;

    task->slices = arguments[1].count / slice;
    if (arguments[1].count % slice != 0)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: region 1 (the values) is %zu elements, expected rows of %zu",
                              task->settings->name, arguments[1].count, slice);
    task->components = arguments[0].count / slice;
    if (arguments[0].count % slice != 0)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: region 0 (the products) is %zu elements, expected %zu rows",
                              task->settings->name, arguments[0].count, slice);
    if (task->components > 0 && task->slices > SIZE_MAX / sizeof(float) / task->components)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: %zu rows of %zu components, expected what memory can hold",
                              task->settings->name, task->slices, task->components);
    cut(task, 1, task->components ? slice : 0, task->slices * task->components);
    task->work = slice * task->components * (task->slices ? task->slices : 1);
    return check_count(task, &arguments[2], task->slices * task->components, "the components",
                       ": %zu rows of %zu", task->slices, task->components);
}

static int compute_correlate(const struct weft__compress_task *task, size_t part)
{
    const struct weft_argument *arguments = task->call->arguments;
    const size_t d = task->components, slice = task->settings->slice, k = part * task->wide;
    struct weft__correlating piece = {
        .values = (const float *)arguments[1].data + k,
        .rows = task->slices,
        .slice = lesser(task->wide, slice - k),
        .stride = slice,
        .in = arguments[2].data,
        .components = d,
        .out = (float *)arguments[0].data + k * d,
    };

    weft__correlate(&piece);
    return WEFT_OK;
}

/* ---- orthonormal ---- */

/* First one looks for what is not finite, then each column takes its passes; all that is cut into
 * rows. A part of a small matrix takes all passes of a column. */
static int plan_orthonormalise(struct weft__compress_task *task)
{
    const size_t columns = task->settings->slice;
    const struct weft_argument *matrix = &task->call->arguments[0];

    task->components = columns;
    task->count = matrix->count / columns;
    task->tall = PASSED / columns;
    task->down = ceiling(task->count, task->tall);
    task->wide =
        task->count <= task->tall / WEFT__ORTHONORMAL_PASSES ? WEFT__ORTHONORMAL_PASSES : 1;
    task->parts = task->down * (1 + columns * WEFT__ORTHONORMAL_PASSES / task->wide);
    task->work = matrix->count * columns * 4;
    if (matrix->count % columns != 0)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: region 0 (the matrix) is %zu elements, expected rows of %zu",
                              task->settings->name, matrix->count, columns);
    return check_count(task, &task->call->arguments[1], WEFT_ORTHONORMALISE_WORK(columns),
                       "memory to work in", "%s", "");
}

static int tell_infinite(const struct weft__compress_task *task)
{
    return weft_error_set(WEFT_ERR_COMPUTE,
                          "%s: the matrix has NaNs or infinities, expected finite elements",
                          task->settings->name);
}

static int compute_orthonormalise(const struct weft__compress_task *task, size_t part)
{
    const size_t turn = part / task->down, columns = task->components;
    const size_t begin = part % task->down * task->tall;
    const size_t rows = lesser(task->tall, task->count - begin);
    float *matrix = task->call->arguments[0].data;

    if (turn == 0 && !weft__all_finite(matrix + begin * columns, rows * columns))
        return tell_infinite(task);
    for (size_t pass = (turn - 1) * task->wide; turn > 0 && pass < turn * task->wide; pass++)
        weft__orthonormalise(
            &(struct weft__orthonormalising){.matrix = matrix,
                                             .columns = columns,
                                             .column = pass / WEFT__ORTHONORMAL_PASSES,
                                             .pass = pass % WEFT__ORTHONORMAL_PASSES,
                                             .begin = begin,
                                             .end = begin + rows,
                                             .work = task->call->arguments[1].data});
    return WEFT_OK;
}

/* ---- calls ---- */

static const struct {
    int (*plan)(struct weft__compress_task *task);
    int (*compute)(const struct weft__compress_task *task, size_t part);
} table[] = {
    [WEFT_COMPRESS_QUANTISE] = {plan_quantised, compute_quantised},
    [WEFT_COMPRESS_DEQUANTISE] = {plan_quantised, compute_quantised},
    [WEFT_COMPRESS_DEQUANTISE_ADD] = {plan_quantised, compute_quantised},
    [WEFT_COMPRESS_PROJECT] = {plan_project, compute_project},
    [WEFT_COMPRESS_RECONSTRUCT] = {plan_reconstruct, compute_reconstruct},
    [WEFT_COMPRESS_CORRELATE] = {plan_correlate, compute_correlate},
    [WEFT_COMPRESS_ORTHONORMALISE] = {plan_orthonormalise, compute_orthonormalise},
};

int weft__compress_plan(const struct weft_call *call, struct weft__compress_task *task)
{
    int status, omitted;

    *task = (struct weft__compress_task){.settings = call->user, .call = call};
    omitted = find_regions(task);
    status = omitted < 0 ? omitted : table[task->settings->kind].plan(task);
    if (!status && !omitted)
        status = check_overlaps(task);
    return status ? status : omitted;
}

int weft__compress_begin(struct weft_call *call)
{
    struct weft__compress_task task;
    int status = weft__compress_plan(call, &task);

    if (status < 0)
        return status;
    if (call->value)
        *call->value = call->arguments[0].count;
    if (status == WEFT_IN_PROGRESS || task.parts == 0)
        return WEFT_OK;
    if (task.work > AT_ONCE)
        return WEFT_IN_PROGRESS;
    for (size_t part = 0; part < task.parts && !status; part++)
        status = table[task.settings->kind].compute(&task, part);
    return status;
}

int weft__compress_go_on(struct weft_call *call)
{
    struct weft__compress_task task;
    int status = weft__compress_plan(call, &task);

    if (!status)
        status = table[task.settings->kind].compute(&task, call->state++);
    return !status && call->state < task.parts ? WEFT_IN_PROGRESS : status;
}

int weft__compress_fits(const struct weft_call *call)
{
    struct weft__compress_task task;
    int status = weft__compress_plan(call, &task);

    return status < 0 ? status : WEFT_OK;
}

int weft__compress_end(const struct weft_call *call, const uint64_t *report, uint64_t *value)
{
    struct weft__compress_task task;
    int status = weft__compress_plan(call, &task);

    *value = call->arguments[0].count;
    if (status != WEFT_OK || report[WEFT__COMPRESS_BAD] == 0)
        return status;
    if (task.settings->kind == WEFT_COMPRESS_ORTHONORMALISE)
        return tell_infinite(&task);
    return task.settings->quantiser.nan == WEFT_NAN_ERROR
               ? tell_bad(&task, report[WEFT__COMPRESS_BAD], 0, task.count)
               : WEFT_OK;
}
