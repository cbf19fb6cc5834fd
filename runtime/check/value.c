/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What bytes hold, symbolically. A value stands for bytes of any number: byte q of the contribution
 * of a slot is its byte q at the start, byte q of a sum is the sum of the bytes q (+ at) of its
 * parts. So one value serves a region of any size, and every block that the same ranks have been
 * summed in.
 *
 * Values are kept once: what is equal has one number, and comparing is comparing numbers. The parts
 * of a reduction are runs of contributions of successive ranks, each with how many times it is in
 * it: a sum over a thousand ranks is one run. An operation that commutes has its runs sorted, one
 * that does not has them in the order of its operands; all are taken to associate. `at` of the
 * first part is 0: whoever refers to a combination says where it begins.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"
#include "runtime/base/search.h"
#include "runtime/check/check.h"
#include "runtime/graph/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int compare_leaves(const void *left, const void *right)
{
    const struct weft__leaf *a = left, *b = right;
    int order = strcmp(a->name, b->name);

    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

int weft__values_create(struct weft__values *values, const struct weft__check *check)
{
    size_t count = 0;

    *values = (struct weft__values){0};
    values->leaves = weft__malloc(check->slot_base[check->size], sizeof *values->leaves);
    if (!values->leaves)
        return -1;
    for (int r = 0; r < check->size; r++) {
        const struct weft_schedule *s = check->schedules[r];

        for (size_t i = 0; s && i < s->buffer_count; i++)
            if (s->buffers[i].kind == WEFT_SLOT_INPUT || s->buffers[i].kind == WEFT_SLOT_INOUT)
                values->leaves[count++] = (struct weft__leaf){s->buffers[i].name, r, (int32_t)i};
    }
    values->leaf_count = count;
    if (count)
        qsort(values->leaves, count, sizeof *values->leaves, compare_leaves);
    return 0;
}

void weft__values_destroy(struct weft__values *values)
{
    weft__free(values->leaves);
    weft__free(values->at);
    weft__free(values->parts);
    weft__table_free(&values->table);
    weft__free((void *)values->ops);
}

uint32_t weft__values_leaf(const struct weft__values *values, const char *name, int rank)
{
    struct weft__leaf key = {name, rank, 0};
    size_t low = 0, high = values->leaf_count;

    WEFT__SEARCH(low, high, middle, compare_leaves(&values->leaves[middle], &key) < 0)
    if (low == values->leaf_count || compare_leaves(&values->leaves[low], &key) != 0)
        return WEFT__VALUE_UNKNOWN;
    return WEFT__VALUE_FIRST + (uint32_t)low;
}

uint32_t weft__values_first(const struct weft__values *values, uint32_t leaf)
{
    struct weft__leaf key = {values->leaves[leaf - WEFT__VALUE_FIRST].name, -1, 0};
    size_t low = 0, high = leaf - WEFT__VALUE_FIRST;

    WEFT__SEARCH(low, high, middle, compare_leaves(&values->leaves[middle], &key) < 0)
    return WEFT__VALUE_FIRST + (uint32_t)low;
}

uint32_t weft__values_op(struct weft__values *values, const struct weft_op *op)
{
    for (size_t i = 0; i < values->op_count; i++)
        if (values->ops[i] == op)
            return (uint32_t)i;
    for (size_t i = 0; i < values->op_count; i++)
        if (!strcmp(weft_op_name(values->ops[i]), weft_op_name(op)))
            return (uint32_t)i;
    if (weft__grow((void **)&values->ops, &values->op_capacity, values->op_count + 1,
                   sizeof *values->ops))
        return WEFT__CHECK_NONE;
    values->ops[values->op_count] = op;
    return (uint32_t)values->op_count++;
}

uint32_t weft__values_family(struct weft__values *values, const struct weft_op *op)
{
    for (size_t i = 0; i < values->op_count; i++)
        if (!strcmp(weft__op_family(values->ops[i]), weft__op_family(op)))
            return (uint32_t)i;
    return weft__values_op(values, op);
}

/* ---- each value once ---- */

static uint64_t hash_of(enum weft__value_kind kind, uint32_t op, uint32_t detail,
                        const struct weft__part *parts, size_t count)
{
    uint64_t hash = weft__hash_word(kind, (uint64_t)op << 32 | detail);

    for (size_t i = 0; i < count; i++) {
        hash = weft__hash_word(hash, (uint64_t)parts[i].lo << 32 | parts[i].hi);
        hash = weft__hash_word(hash, (uint64_t)parts[i].at);
        hash = weft__hash_word(hash, parts[i].extent ^ (uint64_t)parts[i].times << 48);
    }
    return hash;
}

static int same_parts(const struct weft__part *a, const struct weft__part *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (a[i].lo != b[i].lo || a[i].hi != b[i].hi || a[i].at != b[i].at ||
            a[i].extent != b[i].extent || a[i].times != b[i].times)
            return 0;
    return 1;
}

/* The value with the `count` parts that stand behind the last ones in use. */
static uint32_t intern_tail(struct weft__values *values, enum weft__value_kind kind, uint32_t op,
                            uint32_t detail, size_t count)
{
    const struct weft__part *parts = values->parts + values->part_count;
    uint64_t hash = hash_of(kind, op, detail, parts, count);
    size_t number = WEFT__VALUE_FIRST + values->leaf_count + values->count, at;

    for (uint32_t n = weft__table_first(&values->table, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(&values->table, hash, &at)) {
        const struct weft__term *v = &values->at[n];

        if (v->kind == kind && v->op == op && v->detail == detail && v->parts == count &&
            same_parts(values->parts + v->part, parts, count))
            return WEFT__VALUE_FIRST + (uint32_t)(values->leaf_count + n);
    }
    if (number >= WEFT__CHECK_NONE || values->part_count + count >= WEFT__CHECK_NONE ||
        weft__grow((void **)&values->at, &values->capacity, values->count + 1,
                   sizeof *values->at) ||
        weft__table_add(&values->table, hash, (uint32_t)values->count))
        return WEFT__CHECK_NONE;
    values->at[values->count] = (struct weft__term){
        .part = (uint32_t)values->part_count,
        .parts = (uint32_t)count,
        .op = op,
        .detail = detail,
        .kind = (uint8_t)kind,
    };
    values->count++;
    values->part_count += count;
    return (uint32_t)number;
}

uint32_t weft__value_intern(struct weft__values *values, enum weft__value_kind kind, uint32_t op,
                            uint32_t detail, const struct weft__part *parts, size_t count)
{
    /* One more: of no parts, where they would stand must be a place, too. */
    if (weft__grow((void **)&values->parts, &values->part_capacity, values->part_count + count + 1,
                   sizeof *values->parts))
        return WEFT__CHECK_NONE;
    if (count)
        memcpy(values->parts + values->part_count, parts, count * sizeof *parts);
    return intern_tail(values, kind, op, detail, count);
}

/* ---- combinations ---- */

/* The parts of an operand: those of a combination by the same operation, or itself. */
struct operand {
    struct weft__part self;
    const struct weft__part *parts;
    size_t first, count; /* in values->parts, if parts is NULL */
    int64_t at;
};

static struct operand operand_of(const struct weft__values *values, uint32_t op, weft_dtype_t dtype,
                                 uint32_t value, int64_t at)
{
    const struct weft__term *v = weft__term(values, value);
    struct operand operand = {.self = {value, value, 0, 0, 1}, .count = 1, .at = at};

    if (v && v->kind == WEFT__COMBINED && v->op == op && v->detail == (uint32_t)dtype) {
        operand.first = v->part;
        operand.count = v->parts;
        operand.parts = values->parts;
    }
    return operand;
}

static struct weft__part part_at(const struct weft__values *values, const struct operand *operand,
                                 size_t index)
{
    struct weft__part part = operand->parts ? values->parts[operand->first + index] : operand->self;

    part.at += operand->at;
    return part;
}

static void emit(struct weft__part *to, size_t *count, struct weft__part part, int sorted)
{
    struct weft__part *last = *count ? &to[*count - 1] : NULL;

    if (last && last->at == part.at && last->times == part.times && last->hi + 1 == part.lo &&
        (sorted || part.times == 1))
        last->hi = part.hi;
    else
        to[(*count)++] = part;
}

/* The union of two sorted lists; what is in both counts twice. At most 2 (a + b) parts. */
static size_t unite(const struct weft__values *values, const struct operand *left,
                    const struct operand *right, struct weft__part *to)
{
    size_t i = 0, j = 0, count = 0;
    struct weft__part a = part_at(values, left, 0), b = part_at(values, right, 0);

    while (i < left->count && j < right->count) {
        if (a.at != b.at ? a.at < b.at : a.hi < b.lo) {
            emit(to, &count, a, 1);
            if (++i < left->count)
                a = part_at(values, left, i);
            continue;
        }
        if (a.at != b.at || b.hi < a.lo) {
            emit(to, &count, b, 1);
            if (++j < right->count)
                b = part_at(values, right, j);
            continue;
        }
        struct weft__part piece = a.lo <= b.lo ? a : b;

        if (a.lo != b.lo) { /* the beginning that only one has */
            struct weft__part *longer = a.lo < b.lo ? &a : &b;

            piece.hi = (a.lo < b.lo ? b.lo : a.lo) - 1;
            longer->lo = piece.hi + 1;
        } else {
            piece.hi = a.hi < b.hi ? a.hi : b.hi;
            piece.times = a.times + b.times;
            a.lo = b.lo = piece.hi + 1;
        }
        emit(to, &count, piece, 1);
        if (a.lo > a.hi && ++i < left->count)
            a = part_at(values, left, i);
        if (b.lo > b.hi && ++j < right->count)
            b = part_at(values, right, j);
    }
    for (; i < left->count; a = ++i < left->count ? part_at(values, left, i) : a)
        emit(to, &count, a, 1);
    for (; j < right->count; b = ++j < right->count ? part_at(values, right, j) : b)
        emit(to, &count, b, 1);
    return count;
}

static size_t concatenate(const struct weft__values *values, const struct operand *left,
                          const struct operand *right, struct weft__part *to)
{
    size_t count = 0;

    for (size_t i = 0; i < left->count; i++)
        emit(to, &count, part_at(values, left, i), 0);
    for (size_t i = 0; i < right->count; i++)
        emit(to, &count, part_at(values, right, i), 0);
    return count;
}

int weft__value_combine(struct weft__values *values, const struct weft_op *op, weft_dtype_t dtype,
                        uint32_t a, int64_t a_at, uint32_t b, int64_t b_at, uint32_t *value,
                        int64_t *at)
{
    uint32_t number = weft__values_op(values, op);
    struct operand left, right;
    struct weft__part *to;
    size_t count;
    int inside;

    if (a == WEFT__VALUE_UNKNOWN || b == WEFT__VALUE_UNKNOWN) {
        *value = WEFT__VALUE_UNKNOWN;
        *at = 0;
        return 0;
    }
    if (number == WEFT__CHECK_NONE)
        return -1;
    inside = weft__value_combine_inside(values, op, dtype, a, a_at, b, b_at, value, at);
    if (inside)
        return inside < 0 ? -1 : 0;
    left = operand_of(values, number, dtype, a, a_at);
    right = operand_of(values, number, dtype, b, b_at);
    if (weft__grow((void **)&values->parts, &values->part_capacity,
                   values->part_count + 2 * (left.count + right.count), sizeof *values->parts))
        return -1;
    to = values->parts + values->part_count;
    count = weft_op_commutes(op) ? unite(values, &left, &right, to)
                                 : concatenate(values, &left, &right, to);
    *at = to[0].at;
    for (size_t i = 0; i < count; i++)
        to[i].at -= *at;
    *value = intern_tail(values, WEFT__COMBINED, number, (uint32_t)dtype, count);
    return *value == WEFT__CHECK_NONE ? -1 : 0;
}

/* ---- in words ---- */

static void leaf_range(const struct weft__values *values, struct weft__out *out, uint32_t lo,
                       uint32_t hi)
{
    const struct weft__leaf *first = &values->leaves[lo - WEFT__VALUE_FIRST];
    const struct weft__leaf *last = &values->leaves[hi - WEFT__VALUE_FIRST];

    if (lo == hi)
        weft__out_format(out, "%.64s of rank %d", first->name, first->rank);
    else
        weft__out_format(out, "%.64s of ranks %d..%d", first->name, first->rank, last->rank);
}

/* `from`: the byte of the whole that stands first. */
static void part_text(const struct weft__values *values, struct weft__out *out,
                      const struct weft__part *part, int64_t from)
{
    for (uint32_t v = part->lo; v <= part->hi; v++) {
        uint32_t end = v;

        if (v > part->lo)
            weft__out_text(out, ", ");
        if (!weft__value_is_leaf(values, v)) {
            weft__value_text(values, out, v);
            continue;
        }
        const struct weft__leaf *leaf = &values->leaves[v - WEFT__VALUE_FIRST];

        while (end < part->hi && weft__value_is_leaf(values, end + 1) &&
               leaf[end + 1 - v].rank == leaf[end - v].rank + 1 &&
               !strcmp(leaf[end + 1 - v].name, leaf->name))
            end++;
        leaf_range(values, out, v, end);
        v = end;
    }
    if (part->at + from)
        weft__out_format(out, " (%+" PRId64 " bytes)", part->at + from);
    if (part->times > 1)
        weft__out_format(out, " %" PRIu32 " times", part->times);
}

/* "send of rank 2 between bounds[1] and bounds[3]" */
static void cut_text(const struct weft__values *values, struct weft__out *out,
                     const struct weft__term *cut)
{
    const struct weft__part *list = &values->parts[cut->part], *bounds = list + 1;
    const struct weft__leaf *leaf = &values->leaves[bounds->lo - WEFT__VALUE_FIRST];
    int64_t bound = (int64_t)cut->detail;

    part_text(values, out, list, 0);
    weft__out_format(out, " between %.64s[%" PRId64 "] and %.64s[%" PRId64 "]", leaf->name,
                     bounds->at / bound, leaf->name,
                     (bounds->at + (int64_t)bounds->extent) / bound - 1);
}

/* "project-8 of (sum of send of ranks 0..3, by basis.0 of rank 0)" */
static void compressed_text(const struct weft__values *values, struct weft__out *out,
                            const struct weft__term *term)
{
    weft__out_format(out, "%.64s of (", weft_op_name(values->ops[term->op]));
    for (uint32_t i = 0; i < term->parts; i++) {
        if (!values->parts[term->part + i].lo)
            continue; /* a size, or nothing */
        if (i > 0)
            weft__out_text(out, ", by ");
        part_text(values, out, &values->parts[term->part + i], 0);
    }
    weft__out_text(out, ")");
}

enum { MOST_PARTS = 6, MOST_TEXT = 600 };

void weft__value_text(const struct weft__values *values, struct weft__out *out, uint32_t value)
{
    weft__value_text_from(values, out, value, 0);
}

void weft__value_text_from(const struct weft__values *values, struct weft__out *out, uint32_t value,
                           int64_t from)
{
    const struct weft__term *v = weft__term(values, value);

    if (value == WEFT__VALUE_UNKNOWN) {
        weft__out_text(out, "something unknown");
    } else if (value == WEFT__VALUE_UNDEFINED) {
        weft__out_text(out, "nothing");
    } else if (!v) {
        leaf_range(values, out, value, value);
    } else if (out->length > MOST_TEXT) {
        weft__out_text(out, "...");
    } else if (v->kind == WEFT__CUT) {
        cut_text(values, out, v);
    } else if (v->kind == WEFT__ABOUT) {
        weft__out_text(out, "about ");
        weft__value_text_from(values, out, values->parts[v->part].lo, from);
    } else if (v->kind >= WEFT__ENCODED) {
        compressed_text(values, out, v);
    } else if (v->kind == WEFT__FOLDED) {
        part_text(values, out, &values->parts[v->part], 0);
    } else {
        weft__out_format(out, "%.64s of (",
                         v->kind == WEFT__FOLD ? weft__op_family(values->ops[v->op])
                                               : weft_op_name(values->ops[v->op]));
        for (uint32_t i = 0; i < v->parts && i < MOST_PARTS; i++) {
            if (i)
                weft__out_text(out, ", ");
            part_text(values, out, &values->parts[v->part + i],
                      v->kind == WEFT__COMBINED ? from : 0);
        }
        if (v->parts > MOST_PARTS)
            weft__out_format(out, " and %" PRIu32 " more", v->parts - MOST_PARTS);
        weft__out_text(out, ")");
    }
}
