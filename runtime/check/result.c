/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the slots hold in the end what the schedules state. Ranks that hold the same wrong thing
 * where they should hold the same right one are one fault.
 */
#include "runtime/base/alloc.h"
#include "runtime/check/check.h"
#include "runtime/graph/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KNOWN = 8 };

/* What a result states, as a value: byte p of the region is its byte p + at. */
struct expected {
    uint32_t value;
    int64_t at;
    const struct weft_result *result;
    int rank; /* that states it */
    weft_dtype_t dtype;
    uint64_t least; /* elements of the smallest slot that it is made from */
};

/* A value in which all contributions that are expected have been merged. */
struct merged {
    uint32_t expected, value;
    size_t offset, count; /* of the contributions; 0 elements: none */
};

/* Something wrong that some ranks hold. */
struct wrong {
    uint32_t expected, value;
    int64_t at; /* where value begins, against expected */
    uint32_t limit;
    uint64_t bytes; /* of the first rank */
    struct weft__fault fault;
    int last; /* rank that holds it */
    int more; /* ranks beside the first, and a list of them */
    struct weft__out others;
};

struct results {
    struct weft__execution *execution;
    struct weft__check *check;
    struct wrong *wrong;
    size_t count, capacity;
    /* What was expected last: most ranks state what others do, and asking all contributors of each
     * again would take the square of the ranks. */
    struct expected known[MOST_KNOWN];
    size_t known_count;
    struct merged merged; /* what was found to be right last */
};

/* ---- what is expected ---- */

static int bad_result(struct results *r, int rank, const struct weft_result *result, int from,
                      const char *why)
{
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_RESULT);
    weft__fault_rank(&fault, rank);
    weft__fault_rank(&fault, from);
    weft__out_format(&fault.text, "rank %d states a result from slot `%.64s`, which on rank %d %s",
                     rank, weft_result_slot(result, rank, from), from, why);
    return weft__fault_end(r->check, &fault);
}

/* 1: it can be expected, of slots of at least `*least` elements; 0: it cannot, which is reported or
 * the fault of a rank that is missing. */
static int can_expect(struct results *r, int rank, const struct weft_result *result,
                      uint64_t *least)
{
    const struct weft_schedule *own = r->check->schedules[rank];
    weft_dtype_t dtype = own->buffers[result->dst.slot].dtype;

    *least = UINT64_MAX;
    for (int i = 0; i < result->ranks; i++) {
        int from = weft_result_rank(result, i);
        const struct weft_schedule *s = r->check->schedules[from];
        const char *name = weft_result_slot(result, rank, from);
        weft_slot_t slot;

        if (!s)
            return 0;
        slot = weft__schedule_find_slot(s, name, strlen(name));
        const struct weft__buffer *buffer = slot >= 0 ? &s->buffers[slot] : NULL;
        const char *why = NULL;

        if (!buffer)
            why = "there is not";
        else if (buffer->kind == WEFT_SLOT_OUTPUT || buffer->kind == WEFT_SLOT_SCRATCH)
            why = "holds nothing at the start";
        else if (buffer->dtype != dtype)
            why = "has another datatype";
        else if (result->offset > buffer->count ||
                 result->dst.count > buffer->count - result->offset)
            why = "has fewer elements";
        if (why)
            return bad_result(r, rank, result, from, why);
        if (buffer->count < *least)
            *least = buffer->count;
    }
    return 1;
}

static int same_ranks(const struct weft_result *a, const struct weft_result *b)
{
    if (a->ranks != b->ranks || !a->among != !b->among)
        return 0;
    return a->among ? !memcmp(a->among, b->among, (size_t)a->ranks * sizeof *a->among)
                    : a->first == b->first;
}

/* Operations of one name are one, as in values. */
static int same_op(const struct weft_op *a, const struct weft_op *b)
{
    return a == b || (a && b && !strcmp(weft_op_name(a), weft_op_name(b)));
}

static int same_statement(const struct expected *known, const struct weft_result *result,
                          weft_dtype_t dtype)
{
    return !known->result->own && !result->own && known->dtype == dtype &&
           same_ranks(known->result, result) && same_op(known->result->op, result->op) &&
           !strcmp(known->result->from, result->from);
}

/* The same of another part of the slots, or NULL. */
static const struct expected *find_known(const struct results *r, const struct weft_result *result,
                                         weft_dtype_t dtype)
{
    for (size_t i = 0; i < r->known_count && i < MOST_KNOWN; i++) {
        const struct expected *known = &r->known[i];

        if (same_statement(known, result, dtype) && result->offset <= known->least &&
            result->dst.count <= known->least - result->offset)
            return known;
    }
    return NULL;
}

static int compare_parts(const void *left, const void *right)
{
    const struct weft__part *a = left, *b = right;

    return (a->lo > b->lo) - (a->lo < b->lo);
}

/* The combination of the contributions, in its normal form: contributions that follow each other
 * are one part. The order of ranks counts only if the operation does not commute. */
static uint32_t combine(struct results *r, int stating, const struct weft_result *result,
                        weft_dtype_t dtype)
{
    struct weft__execution *x = r->execution;
    size_t count = (size_t)result->ranks, kept = 0;
    struct weft__part *parts;
    uint32_t op;

    if (count == 1) {
        int rank = weft_result_rank(result, 0);

        return weft__values_leaf(&x->values, weft_result_slot(result, stating, rank), rank);
    }
    if (weft__grow((void **)&x->parts, &x->part_capacity, count, sizeof *x->parts))
        return WEFT__CHECK_NONE;
    parts = x->parts;
    for (size_t i = 0; i < count; i++) {
        int rank = weft_result_rank(result, (int)i);
        uint32_t leaf =
            weft__values_leaf(&x->values, weft_result_slot(result, stating, rank), rank);

        parts[i] = (struct weft__part){leaf, leaf, 0, 0, 1};
    }
    if ((result->among || result->own) && weft_op_commutes(result->op))
        qsort(parts, count, sizeof *parts, compare_parts);
    for (size_t i = 0; i < count; i++)
        if (kept && parts[kept - 1].hi + 1 == parts[i].lo)
            parts[kept - 1].hi = parts[i].hi;
        else
            parts[kept++] = parts[i];
    x->part_count = kept;
    op = weft__values_op(&x->values, result->op);
    if (op == WEFT__CHECK_NONE)
        return WEFT__CHECK_NONE;
    return weft__value_intern(&x->values, WEFT__COMBINED, op, (uint32_t)dtype, parts, kept);
}

/* What a rank's result states. 1; 0: it cannot be expected; -1 without memory. */
static int expect(struct results *r, int rank, const struct weft_result *result, weft_dtype_t dtype,
                  struct expected *expected)
{
    const struct expected *known = find_known(r, result, dtype);
    int can;

    *expected = (struct expected){.result = result, .rank = rank, .dtype = dtype};
    if (known) {
        expected->value = known->value;
        expected->least = known->least;
    } else {
        if ((can = can_expect(r, rank, result, &expected->least)) <= 0)
            return can;
        expected->value = combine(r, rank, result, dtype);
        if (expected->value == WEFT__CHECK_NONE)
            return -1;
        r->known[r->known_count++ % MOST_KNOWN] = *expected;
    }
    expected->at =
        ((int64_t)result->offset - (int64_t)result->dst.offset) * (int64_t)weft_dtype_size(dtype);
    return 1;
}

/* ---- what is wrong, in words ---- */

/* Whether the contribution of a rank is among a value's parts. */
static int is_part(const struct weft__values *values, const struct weft__term *term,
                   const struct expected *expected, int rank, int64_t at)
{
    const char *name = weft_result_slot(expected->result, expected->rank, rank);
    uint32_t leaf = weft__values_leaf(values, name, rank);

    for (uint32_t p = 0; p < term->parts; p++) {
        const struct weft__part *part = &values->parts[term->part + p];

        if (part->lo <= leaf && leaf <= part->hi && part->at + at == 0)
            return 1;
    }
    return 0;
}

/* The stated ranks whose contributions are not among a value's parts, as runs. */
static void missing_text(const struct results *r, struct weft__fault *fault,
                         const struct expected *expected, const struct weft__term *term, int64_t at)
{
    const struct weft_result *result = expected->result;
    int runs = 0, begin = -1, last = -1;

    for (int i = 0; i <= result->ranks; i++) {
        int rank = i < result->ranks ? weft_result_rank(result, i) : -1;
        int lacks = rank >= 0 && !is_part(&r->execution->values, term, expected, rank, at);

        if (lacks)
            weft__fault_rank(fault, rank);
        if (begin >= 0 && (!lacks || rank != last + 1)) {
            if (runs++ < 8)
                weft__out_format(&fault->text, last > begin ? "%s%d..%d" : "%s%d",
                                 runs > 1 ? ", " : "; it lacks rank ", begin, last);
            begin = -1;
        }
        if (lacks && begin < 0)
            begin = rank;
        last = rank;
    }
}

static void twice_text(const struct results *r, struct weft__fault *fault,
                       const struct weft__term *term)
{
    const struct weft__values *values = &r->execution->values;

    for (uint32_t p = 0, listed = 0; p < term->parts && listed < 4; p++) {
        const struct weft__part *part = &values->parts[term->part + p];

        if (part->times < 2 || !weft__value_is_leaf(values, part->lo) ||
            !weft__value_is_leaf(values, part->hi))
            continue;
        for (uint32_t v = part->lo; v <= part->hi; v++)
            weft__fault_rank(fault, values->leaves[v - WEFT__VALUE_FIRST].rank);
        weft__out_format(&fault->text, "; it has rank %d",
                         values->leaves[part->lo - WEFT__VALUE_FIRST].rank);
        if (part->hi > part->lo)
            weft__out_format(&fault->text, "..%d",
                             values->leaves[part->hi - WEFT__VALUE_FIRST].rank);
        weft__out_format(&fault->text, " %u times", part->times);
        listed++;
    }
}

/* Where a contribution was first put in twice, or beside other elements, of those that are in
 * `term`. */
static void origin_text(const struct results *r, struct weft__fault *fault,
                        const struct weft__term *term)
{
    const struct weft__execution *x = r->execution;
    const struct weft__values *values = &x->values;

    for (size_t i = 0; i < x->odd_count; i++) {
        const struct weft__term *odd = weft__term(values, x->odd[i].value);

        for (uint32_t p = 0; p < odd->parts; p++)
            for (uint32_t q = 0; q < term->parts; q++) {
                const struct weft__part *a = &values->parts[odd->part + p];
                const struct weft__part *b = &values->parts[term->part + q];

                if ((a->times < 2 && !a->at) || (b->times < 2 && !b->at) || a->hi < b->lo ||
                    b->hi < a->lo)
                    continue;
                weft__out_format(&fault->text,
                                 "; first on rank %d: ", r->check->rank_of[x->odd[i].node]);
                weft__fault_node(r->check, fault, x->odd[i].node);
                return;
            }
    }
}

static void value_text(const struct results *r, struct weft__fault *fault,
                       const struct expected *expected, const struct weft__piece *piece)
{
    const struct weft__values *values = &r->execution->values;
    const struct weft__term *term = weft__term(values, piece->value);
    struct weft__out *out = &fault->text;
    int64_t from =
        piece->from - (int64_t)(expected->result->offset * weft_dtype_size(expected->dtype));

    if (term || piece->value == WEFT__VALUE_UNDEFINED) {
        weft__value_text_from(values, out, piece->value, from);
    } else {
        const struct weft__leaf *leaf = &values->leaves[piece->value - WEFT__VALUE_FIRST];

        weft__fault_bytes(out, &r->check->schedules[leaf->rank]->buffers[leaf->slot],
                          (uint64_t)piece->from, (uint64_t)piece->from + piece->bytes);
        weft__out_format(out, " of rank %d", leaf->rank);
        weft__fault_rank(fault, leaf->rank);
    }
    if (term && term->kind == WEFT__COMBINED && expected->result->ranks > 1) {
        missing_text(r, fault, expected, term, from);
        twice_text(r, fault, term);
        origin_text(r, fault, term);
    }
}

/* "rank 2", "ranks 0..3", or "ranks 4, 0, 2". */
static void ranks_text(struct weft__out *out, const struct weft_result *result)
{
    if (result->ranks == 1)
        weft__out_format(out, "rank %d", result->first);
    else if (!result->among)
        weft__out_format(out, "ranks %d..%d", result->first, result->first + result->ranks - 1);
    for (int i = 0; result->among && i < result->ranks && i <= 8; i++)
        weft__out_format(out, i == 8 ? ", ..." : "%s%d", i ? ", " : "ranks ", result->among[i]);
}

/* Begins the fault of something wrong with the rank that was first found to hold it. */
static void begin_wrong(struct results *r, struct wrong *wrong, int rank,
                        const struct expected *expected, const struct weft__piece *piece,
                        uint64_t begin)
{
    const struct weft_schedule *s = r->check->schedules[rank];
    const struct weft_result *result = expected->result;
    const struct weft__buffer *buffer = &s->buffers[result->dst.slot];
    uint64_t element = weft_dtype_size(buffer->dtype);
    uint64_t from = begin + (uint64_t)(result->offset * element) - result->dst.offset * element;
    struct weft__out *out = &wrong->fault.text;
    struct weft__piece relative = *piece;

    weft__fault_begin(&wrong->fault, WEFT_FAULT_RESULT);
    weft__out_format(out, "rank %d: ", rank);
    weft__fault_bytes(out, buffer, begin, begin + piece->bytes);
    weft__out_text(out, " should hold ");
    if (result->ranks > 1)
        weft__out_format(out, "%.64s of ", weft_op_name(result->op));
    weft__out_format(out, "%.64s[%" PRIu64 ":%" PRIu64 "] of ", result->from, from / element,
                     (from + piece->bytes) / element);
    ranks_text(out, result);
    if (result->own)
        weft__out_format(out, " (its own is %.64s)", result->own);
    if (result->ranks == 1)
        weft__fault_rank(&wrong->fault, result->first);
    weft__out_text(out, ", and holds ");
    if (weft__term(&r->execution->values, piece->value))
        relative.from -= (int64_t)(begin - result->dst.offset * element);
    value_text(r, &wrong->fault, expected, &relative);
    if (piece->limit)
        weft__out_text(out, ", and only as many as a value says");
    if (piece->writer != WEFT__CHECK_NONE) {
        weft__out_text(out, "; written by ");
        weft__fault_node(r->check, &wrong->fault, piece->writer);
    }
}

/* One more rank that holds the same. They come in ascending order. */
static void add_rank(struct wrong *wrong, int rank)
{
    if (rank == wrong->last)
        return;
    if (wrong->more++ < 8)
        weft__out_format(&wrong->others, "%s%d", wrong->more > 1 ? ", " : "", rank);
    wrong->last = rank;
}

/* Adds a rank's wrong piece to what other ranks hold alike. */
static int add_wrong(struct results *r, int rank, const struct expected *expected,
                     const struct weft__piece *piece, uint64_t begin)
{
    int64_t at = piece->from - (int64_t)begin - expected->at;
    struct wrong *wrong = NULL;

    for (size_t i = 0; i < r->count && !wrong; i++)
        if (r->wrong[i].expected == expected->value && r->wrong[i].value == piece->value &&
            r->wrong[i].at == at && r->wrong[i].limit == piece->limit)
            wrong = &r->wrong[i];
    if (!wrong) {
        if (r->count >= r->check->report->most)
            return 0;
        if (weft__grow((void **)&r->wrong, &r->capacity, r->count + 1, sizeof *r->wrong))
            return -1;
        wrong = &r->wrong[r->count++];
        *wrong = (struct wrong){
            .expected = expected->value, .value = piece->value, .at = at, .limit = piece->limit};
        begin_wrong(r, wrong, rank, expected, piece, begin);
        wrong->last = rank;
        wrong->fault.bytes = piece->bytes;
    } else {
        if (piece->writer != WEFT__CHECK_NONE)
            weft__fault_note(r->check, &wrong->fault, piece->writer);
        add_rank(wrong, rank);
    }
    weft__fault_rank(&wrong->fault, rank);
    return 0;
}

/* ---- merges ---- */

static int is_stated(const struct weft_result *result, int rank)
{
    for (int i = 0; result->among && i < result->ranks; i++)
        if (result->among[i] == rank)
            return 1;
    return !result->among && rank >= result->first && rank < result->first + result->ranks;
}

/* Every rank's region must have been taken in once, as a whole. */
static int has_merged(const struct results *r, const struct expected *expected,
                      const struct weft__piece *piece)
{
    const struct weft__values *values = &r->execution->values;
    const struct weft_result *result = expected->result;
    const struct weft__term *term = weft__term(values, piece->value);
    int64_t begin = (int64_t)(result->offset * weft_dtype_size(expected->dtype));
    int seen = 0;

    if (!term || term->kind != WEFT__FOLDED || /* each rank may have made its own */
        strcmp(weft__op_family(values->ops[term->op]), weft__op_family(result->op)) != 0)
        return 0;
    term = weft__term(values, values->parts[term->part].lo);
    for (uint32_t p = 0; p < term->parts; p++) {
        const struct weft__part *part = &values->parts[term->part + p];

        for (uint32_t v = part->lo; v <= part->hi; v++) {
            const struct weft__leaf *leaf = &values->leaves[v - WEFT__VALUE_FIRST];

            if (part->times != 1 || !weft__value_is_leaf(values, v) ||
                !is_stated(result, leaf->rank))
                return 0;
            const char *name = weft_result_slot(result, expected->rank, leaf->rank);
            seen += !strcmp(leaf->name, name) && part->at == begin &&
                    part->extent == result->dst.count * weft_dtype_size(expected->dtype);
        }
    }
    return seen == result->ranks;
}

/* The same, asked once of what many ranks hold. */
static int is_merged(struct results *r, const struct expected *expected,
                     const struct weft__piece *piece)
{
    const struct weft_result *result = expected->result;
    struct merged *last = &r->merged;

    if (last->expected == expected->value && last->value == piece->value &&
        last->offset == result->offset && last->count == result->dst.count)
        return 1;
    if (!has_merged(r, expected, piece))
        return 0;
    *last = (struct merged){expected->value, piece->value, result->offset, result->dst.count};
    return 1;
}

/* ---- the checks ---- */

static int check_result(struct results *r, int rank, const struct weft_result *result)
{
    struct weft__execution *x = r->execution;
    const struct weft__buffer *buffer = &r->check->schedules[rank]->buffers[result->dst.slot];
    struct weft__span span = weft__execution_span(x, rank, &result->dst);
    struct expected expected;
    struct weft__pieces *pieces = &x->pieces[0];
    int merges = result->op && (result->op->flags & WEFT_OP_FOLDS) != 0, can;

    if (!result->dst.count)
        return 0;
    if ((can = expect(r, rank, result, buffer->dtype, &expected)) <= 0)
        return can;
    if (weft__line_read(&x->lines[span.line], span.begin, span.end, pieces))
        return -1;
    uint64_t begin = span.begin;

    for (size_t i = 0; i < pieces->count; begin += pieces->at[i++].bytes) {
        struct weft__piece *piece = &pieces->at[i];

        if (piece->value == WEFT__VALUE_UNKNOWN ||
            (piece->value == WEFT__VALUE_UNDEFINED && buffer->kind == WEFT_SLOT_OUTPUT))
            continue; /* reported already, or below */
        if (piece->limit == span.limit)
            piece->limit = 0;
        if (result->lossy)
            piece->value = weft__value_inside(&x->values, piece->value);
        if (piece->value == expected.value && piece->from - (int64_t)begin == expected.at &&
            !piece->limit)
            continue;
        if (merges && is_merged(r, &expected, piece))
            continue;
        if (add_wrong(r, rank, &expected, piece, begin))
            return -1;
    }
    return 0;
}

/* Outputs that nothing has written. */
static int check_outputs(struct results *r, int rank)
{
    struct weft__check *check = r->check;
    const struct weft_schedule *s = check->schedules[rank];

    for (size_t i = 0; i < s->buffer_count; i++) {
        const struct weft__line *line = &r->execution->lines[check->slot_base[rank] + i];

        if (s->buffers[i].kind != WEFT_SLOT_OUTPUT)
            continue;
        for (size_t k = 0; k < line->count; k++) {
            uint64_t begin = line->at[k].begin;
            uint64_t end = k + 1 < line->count ? line->at[k + 1].begin : line->bytes;
            struct weft__fault fault;

            if (line->at[k].value != WEFT__VALUE_UNDEFINED)
                continue;
            weft__fault_begin(&fault, WEFT_FAULT_RESULT);
            weft__fault_rank(&fault, rank);
            fault.bytes = end - begin;
            weft__out_format(&fault.text, "rank %d: output ", rank);
            weft__fault_bytes(&fault.text, &s->buffers[i], begin, end);
            weft__out_text(&fault.text, " is never written");
            if (weft__fault_end(check, &fault))
                return -1;
        }
    }
    return 0;
}

static int finish_wrong(struct results *r)
{
    int status = 0;

    for (size_t i = 0; i < r->count; i++) {
        struct wrong *wrong = &r->wrong[i];

        if (wrong->more)
            weft__out_format(
                &wrong->fault.text, "; likewise on rank%s %s%s", wrong->more > 1 ? "s" : "",
                wrong->others.failed ? "" : wrong->others.text, wrong->more > 8 ? ", ..." : "");
        wrong->fault.text.failed |= wrong->others.failed;
        weft__free(wrong->others.text);
        if (weft__fault_end(r->check, &wrong->fault))
            status = -1;
    }
    return status;
}

int weft__check_results(struct weft__execution *execution)
{
    struct results r = {.execution = execution, .check = execution->check};
    int status = 0;

    for (int rank = 0; !status && rank < r.check->size; rank++) {
        const struct weft_schedule *s = r.check->schedules[rank];

        for (size_t i = 0; s && !status && i < s->result_count; i++)
            if (s->results[i].kind == WEFT_RESULT_REGION)
                status = check_result(&r, rank, &s->results[i]);
    }
    if (finish_wrong(&r))
        status = -1;
    weft__free(r.wrong);
    for (int rank = 0; !status && rank < r.check->size; rank++)
        if (r.check->schedules[rank])
            status = check_outputs(&r, rank);
    return status ? status : weft__check_synchronised(execution);
}
