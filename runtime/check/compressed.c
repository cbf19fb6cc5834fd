/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What compression does to values (weft/compress.h; runtime/graph/op.h says what is known of an
 * operation). Each of these stands for all of what it was made from, its *inner* value:
 *
 *     ENCODED      quantised bytes
 *     PROJECTED    the components by a basis, less a mean
 *     CORRELATED   the transpose times a matrix
 *     ABOUT        the inner value itself, up to what was lost: byte by byte
 *
 *     send of rank 0 --project--> PROJECTED(send of rank 0) \
 *                                                            sum --> PROJECTED(send of ranks 0..1)
 *     send of rank 1 --project--> PROJECTED(send of rank 1) /             |
 *                                                                    reconstruct
 *                                                                         |
 *                                                              ABOUT(send of ranks 0..1)
 *
 * A sum goes through a linear map, if both have the same one: the same operation, by the same bytes
 * of slots of the same name, which are taken to hold the same on all ranks. What an operation is
 * told that does not fit (a part of a segment, another basis) makes its result a call as any other,
 * of which no result is made.
 */
#include "runtime/check/check.h"
#include "runtime/graph/op.h"

#include <stdlib.h>
#include <string.h>

/* The parts of a term: what it was made from, the bytes it takes, what it was made by: the mean of
 * a projection as often as its share was taken off. */
enum { INNER, SIZE, BY, MEAN, PARTS };

/* What an operation of weft/compress.h is of: "4-512-max" of "dequantise-add-4-512-max". */
static const char *suffix_of(const struct weft_op *op)
{
    const char *name = weft_op_name(op);

    return name + strcspn(name, "0123456789");
}

static uint64_t number_of(const struct weft_op *op)
{
    return strtoull(suffix_of(op), NULL, 10);
}

static int same_suffix(const struct weft_op *a, const struct weft_op *b)
{
    return strcmp(suffix_of(a), suffix_of(b)) == 0;
}

static const struct weft__term *term_of(const struct weft__values *values, uint32_t value,
                                        enum weft__value_kind kind)
{
    const struct weft__term *term = weft__term(values, value);

    return term && term->kind == kind ? term : NULL;
}

uint32_t weft__value_inside(const struct weft__values *values, uint32_t value)
{
    const struct weft__term *term = term_of(values, value, WEFT__ABOUT);

    return term ? values->parts[term->part].lo : value;
}

static uint32_t about(struct weft__values *values, uint32_t value)
{
    uint32_t inside = weft__value_inside(values, value);
    struct weft__part part = {inside, inside, 0, 0, 1};

    if (value == WEFT__VALUE_UNKNOWN)
        return value;
    return weft__value_intern(values, WEFT__ABOUT, 0, 0, &part, 1);
}

/* ---- sums ---- */

static int is_linear(const struct weft__term *term)
{
    return term && (term->kind == WEFT__PROJECTED || term->kind == WEFT__CORRELATED);
}

static int same_map(const struct weft__values *values, const struct weft__term *a,
                    const struct weft__term *b)
{
    const struct weft__part *left = &values->parts[a->part], *right = &values->parts[b->part];

    if (a->kind != b->kind || a->op != b->op || a->parts != b->parts ||
        left[INNER].extent != right[INNER].extent)
        return 0;
    for (uint32_t i = SIZE; i < a->parts; i++)
        if (left[i].lo != right[i].lo || left[i].at != right[i].at ||
            left[i].extent != right[i].extent)
            return 0;
    return 1;
}

int weft__value_combine_inside(struct weft__values *values, const struct weft_op *op,
                               weft_dtype_t dtype, uint32_t a, int64_t a_at, uint32_t b,
                               int64_t b_at, uint32_t *value, int64_t *at)
{
    const struct weft__term *left = weft__term(values, a), *right = weft__term(values, b);
    struct weft__part parts[PARTS], other;
    uint32_t made;

    if (op->builtin != WEFT_SUM)
        return 0;
    if ((left && left->kind == WEFT__ABOUT) || (right && right->kind == WEFT__ABOUT)) {
        if (weft__value_combine(values, op, dtype, weft__value_inside(values, a), a_at,
                                weft__value_inside(values, b), b_at, &made, at))
            return -1;
        *value = about(values, made);
        return *value == WEFT__CHECK_NONE ? -1 : 1;
    }
    if (!is_linear(left) || !is_linear(right) || a_at != b_at || !same_map(values, left, right))
        return 0;
    enum weft__value_kind kind = left->kind;
    uint32_t number = left->op, count = left->parts;

    memcpy(parts, &values->parts[left->part], count * sizeof *parts);
    other = values->parts[right->part];
    if (count > MEAN)
        parts[MEAN].times += values->parts[right->part + MEAN].times;
    if (weft__value_combine(values, op, dtype, parts[INNER].lo, parts[INNER].at, other.lo, other.at,
                            &made, &parts[INNER].at))
        return -1;
    parts[INNER].lo = parts[INNER].hi = made;
    *value = weft__value_intern(values, kind, number, 0, parts, count);
    *at = a_at;
    return *value == WEFT__CHECK_NONE ? -1 : 1;
}

/* ---- what nodes read ---- */

/* A region that holds one value, as a part. 1; 0: it holds several, or something unknown; -1
 * without memory. One of no bytes is part 0 of nothing. */
static int read_one(struct weft__execution *execution, uint32_t id, uint32_t index,
                    struct weft__part *part)
{
    struct weft__pieces *pieces = &execution->pieces[0];

    *part = (struct weft__part){.times = 1};
    if (weft__execution_read(execution, id, index, pieces))
        return -1;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct weft__piece *piece = &pieces->at[i];

        if (piece->value == WEFT__VALUE_UNKNOWN || piece->limit ||
            (i > 0 &&
             (piece->value != part->lo || piece->from != part->at + (int64_t)part->extent)))
            return 0;
        if (i == 0)
            *part = (struct weft__part){piece->value, piece->value, piece->from, 0, 1};
        part->extent += piece->bytes;
    }
    return 1;
}

/* The same of something that all ranks have alike: whose slot it is in does not matter. */
static int read_shared(struct weft__execution *execution, uint32_t id, uint32_t index,
                       struct weft__part *part)
{
    int status = read_one(execution, id, index, part);

    if (status > 0 && weft__value_is_leaf(&execution->values, part->lo))
        part->lo = part->hi = weft__values_first(&execution->values, part->lo);
    return status;
}

static uint64_t bytes_of(const struct weft__execution *execution, uint32_t id, uint32_t index)
{
    struct weft__span span = weft__execution_span(execution, execution->check->rank_of[id],
                                                  weft__check_region(execution->check, id, index));

    return span.end - span.begin;
}

static int same_part(const struct weft__part *a, const struct weft__part *b)
{
    return a->lo == b->lo && a->at == b->at && a->extent == b->extent;
}

/* What a part stands for, if it is all of a value of a kind that an operation of the same suffix
 * has made; or NULL. */
static const struct weft__part *whole_of(const struct weft__values *values,
                                         const struct weft__part *part, enum weft__value_kind kind,
                                         const struct weft_op *op, uint32_t *count)
{
    const struct weft__term *term = term_of(values, part->lo, kind);

    if (!term || part->at || !same_suffix(values->ops[term->op], op) ||
        values->parts[term->part + SIZE].extent != part->extent)
        return NULL;
    *count = term->parts;
    return &values->parts[term->part];
}

/* ---- what they make: 1, and region 0 to `to`; 0: nothing that is known; -1 without memory ---- */

static int give(struct weft__pieces *to, uint32_t value, int64_t from, uint64_t bytes)
{
    to->count = 0;
    if (value == WEFT__CHECK_NONE)
        return -1;
    return weft__pieces_add(to, (struct weft__piece){.bytes = bytes, .from = from, .value = value})
               ? -1
               : 1;
}

/* Region 1 as a whole by regions 2 and, if they are there, 3. */
static int map(struct weft__execution *execution, uint32_t id, enum weft__value_kind kind,
               uint32_t by, struct weft__pieces *to)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    struct weft__part parts[PARTS] = {[SIZE] = {.extent = bytes_of(execution, id, 0), .times = 1}};
    int status = read_one(execution, id, 1, &parts[INNER]);

    for (uint32_t i = 0; status > 0 && i < by; i++)
        status = read_shared(execution, id, 2 + i, &parts[BY + i]);
    uint32_t op = weft__values_op(&execution->values, node->op);
    if (status <= 0 || op == WEFT__CHECK_NONE)
        return status <= 0 ? status : -1;
    return give(to, weft__value_intern(&execution->values, kind, op, 0, parts, BY + by), 0,
                parts[SIZE].extent);
}

/* What region 1, all of something quantised, stands for. */
static int decode(struct weft__execution *execution, uint32_t id, struct weft__part *inner)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    const struct weft__part *parts;
    struct weft__part coded;
    uint32_t count;
    int status = read_one(execution, id, 1, &coded);

    if (status <= 0)
        return status;
    parts = whole_of(&execution->values, &coded, WEFT__ENCODED, node->op, &count);
    if (!parts || parts[INNER].extent != bytes_of(execution, id, 0))
        return 0;
    *inner = parts[INNER];
    inner->lo = inner->hi = about(&execution->values, inner->lo);
    return inner->lo == WEFT__CHECK_NONE ? -1 : 1;
}

static int add_decoded(struct weft__execution *execution, uint32_t id, struct weft__pieces *to)
{
    struct weft__pieces *pieces = &execution->pieces[0];
    struct weft__part inner;
    int status = decode(execution, id, &inner);
    int64_t at = 0, shift;

    if (status <= 0)
        return status;
    if (weft__execution_read(execution, id, 0, pieces))
        return -1;
    to->count = 0;
    for (size_t i = 0; i < pieces->count; at += (int64_t)pieces->at[i++].bytes) {
        const struct weft__piece *piece = &pieces->at[i];
        struct weft__piece made = {.bytes = piece->bytes};

        if (weft__value_combine(&execution->values, weft_op_builtin(WEFT_SUM), WEFT_F32,
                                piece->value, piece->from - at, inner.lo, inner.at, &made.value,
                                &shift))
            return -1;
        made.from = at + shift;
        if (weft__pieces_add(to, made))
            return -1;
    }
    return 1;
}

/* Components that were added up, by what they were projected by. */
static int unproject(struct weft__execution *execution, uint32_t id,
                     const struct weft__part *components, const struct weft__part *by,
                     uint32_t by_count, struct weft__pieces *to)
{
    struct weft__values *values = &execution->values;
    const struct weft__snode *node = weft__check_node(execution->check, id);
    uint32_t count;
    const struct weft__part *parts =
        whole_of(values, components, WEFT__PROJECTED, node->op, &count);

    if (!parts || count != BY + by_count || parts[INNER].extent != bytes_of(execution, id, 0))
        return 0;
    for (uint32_t i = 0; i < by_count; i++)
        if (!same_part(&parts[BY + i], &by[i]))
            return 0;
    /* Each rank takes its share of the mean off; it is put back once. */
    if (count > MEAN && parts[MEAN].times != (uint32_t)execution->check->size)
        return 0;
    int64_t from = parts[INNER].at;

    return give(to, about(values, parts[INNER].lo), from, bytes_of(execution, id, 0));
}

/* Orthonormal components, with what was correlated by the very same. */
static int expand(struct weft__execution *execution, uint32_t id,
                  const struct weft__part *components, const struct weft__part *basis,
                  struct weft__pieces *to)
{
    struct weft__values *values = &execution->values;
    const struct weft__snode *node = weft__check_node(execution->check, id);
    const struct weft__term *made = term_of(values, components->lo, WEFT__CALL);
    uint32_t count;
    const struct weft__part *parts = whole_of(values, basis, WEFT__CORRELATED, node->op, &count);

    if (!parts || !made || values->ops[made->op]->sense != WEFT__OP_ORTHONORMALISES ||
        number_of(values->ops[made->op]) * number_of(node->op) * sizeof(float) !=
            parts[SIZE].extent ||
        !same_part(&parts[BY], components) || parts[INNER].extent != bytes_of(execution, id, 0))
        return 0;
    int64_t from = parts[INNER].at;

    return give(to, about(values, parts[INNER].lo), from, bytes_of(execution, id, 0));
}

static int reconstruct(struct weft__execution *execution, uint32_t id, struct weft__pieces *to)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    uint32_t by_count = node->region_count - 2;
    struct weft__part components, by[2];
    int status = read_one(execution, id, 1, &components);

    for (uint32_t i = 0; status > 0 && i < by_count; i++)
        status = read_shared(execution, id, 2 + i, &by[i]);
    if (status > 0)
        status = unproject(execution, id, &components, by, by_count, to);
    else
        return status;
    return status || by_count != 1 ? status : expand(execution, id, &components, by, to);
}

static int orthonormalise(struct weft__execution *execution, uint32_t id, struct weft__pieces *to)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    uint32_t op = weft__values_op(&execution->values, node->op);
    struct weft__part part;
    int status = read_one(execution, id, 0, &part);

    if (status <= 0 || op == WEFT__CHECK_NONE)
        return status <= 0 ? status : -1;
    return give(to, weft__value_intern(&execution->values, WEFT__CALL, op, 0, &part, 1), 0,
                part.extent);
}

/* By the basis, and the mean, if there is one: squares may stand behind either. */
static int project(struct weft__execution *execution, uint32_t id, struct weft__pieces *to)
{
    const struct weft_schedule *schedule = weft__check_schedule(execution->check, id);
    uint32_t regions = weft__check_node(execution->check, id)->region_count, by = 1;

    if (regions < 3 || regions > 5)
        return 0;
    if (regions > 3)
        by +=
            schedule->buffers[weft__check_region(execution->check, id, 3)->slot].dtype == WEFT_F32;
    return map(execution, id, WEFT__PROJECTED, by, to);
}

int weft__execution_compress(struct weft__execution *execution, uint32_t id,
                             struct weft__pieces *to)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    uint32_t regions = node->region_count;
    struct weft__part inner;
    int status;

    switch (node->op->sense) {
    case WEFT__OP_ENCODES:
        return regions == 2 ? map(execution, id, WEFT__ENCODED, 0, to) : 0;
    case WEFT__OP_DECODES:
        status = regions == 2 ? decode(execution, id, &inner) : 0;
        return status > 0 ? give(to, inner.lo, inner.at, inner.extent) : status;
    case WEFT__OP_ADDS_DECODED:
        return regions == 2 ? add_decoded(execution, id, to) : 0;
    case WEFT__OP_PROJECTS:
        return project(execution, id, to);
    case WEFT__OP_RECONSTRUCTS:
        return regions == 3 || regions == 4 ? reconstruct(execution, id, to) : 0;
    case WEFT__OP_CORRELATES:
        return regions == 3 ? map(execution, id, WEFT__CORRELATED, 1, to) : 0;
    case WEFT__OP_ORTHONORMALISES:
        return regions >= 1 ? orthonormalise(execution, id, to) : 0;
    default:
        return 0;
    }
}
