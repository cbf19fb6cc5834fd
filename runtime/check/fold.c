/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What functions that fold (WEFT_OP_FOLDS) have folded in. A value of such a function is a set
 * of contributions, each with how often it is in the set. A function takes in the sets of the
 * functions of its family whose results it reads.
 *
 * A function that cuts (WEFT__OP_CUTS) takes in parts. A part is what of a contribution lies
 * between two bounds. The checker knows a bound by its place in its slot; elements of such a slot
 * ascend (op.h says what is assumed). Parts that follow each other become one part:
 *
 *     contribution of rank 0    |--------|--------|--------|     bounds 0 1 2 3
 *     rank 0 has taken          |========|                       part 0..1
 *     rank 1 has taken                   |========|              part 1..2
 *     rank 2 merges both        |=================|              part 0..2: not the whole yet
 *     and the rest              |==========================|     part 0..3: the contribution
 *
 * A part that is missing, or that is there twice, leaves parts that are not the whole: a fault.
 *
 * A function that joins (WEFT__OP_JOINS) is right only if no two of its lists have anything in
 * common. The checker demands that each list has the same parts of all its contributions, and that
 * no part is in two lists.
 */
#include "runtime/base/alloc.h"
#include "runtime/check/check.h"
#include "runtime/graph/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- contributions ---- */

static int compare_tokens(const void *left, const void *right)
{
    const struct weft__part *a = left, *b = right;

    if (a->lo != b->lo)
        return a->lo < b->lo ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static int compare_parts(const void *left, const void *right)
{
    const struct weft__part *a = left, *b = right;

    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    if (a->extent != b->extent)
        return a->extent < b->extent ? -1 : 1;
    if (a->times != b->times)
        return a->times < b->times ? -1 : 1;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

/* A piece of a whole earlier merge: which merge, and which of its regions. */
static int is_whole(const struct weft__values *values, uint32_t op, const struct weft__piece *piece)
{
    const struct weft__term *term = weft__term(values, piece->value);

    return term && term->kind == WEFT__FOLDED && term->op == op && piece->from == 0 &&
           (piece->limit || values->parts[term->part].extent == piece->bytes);
}

/* Takes in what a merge had taken in. Its regions are two sides of one thing: it counts as often as
 * the region that is read most often. `merges` are (merge, region) pairs. */
static int expand(struct weft__execution *execution, struct weft__part *merges, size_t count)
{
    const struct weft__values *values = &execution->values;

    if (count)
        qsort(merges, count, sizeof *merges, compare_tokens);
    for (size_t i = 0; i < count;) {
        uint32_t merge = merges[i].lo, times = 0;
        const struct weft__term *term = weft__term(values, merge);

        for (size_t run; i < count && merges[i].lo == merge; i += run) {
            for (run = 1; i + run < count && merges[i + run].lo == merge &&
                          merges[i + run].at == merges[i].at;)
                run++;
            times = run > times ? (uint32_t)run : times;
        }
        for (uint32_t p = 0; p < term->parts; p++) {
            struct weft__part part = values->parts[term->part + p];
            uint32_t hi = part.hi;

            part.times *= times;
            for (uint32_t v = part.lo; v <= hi; v++) {
                part.lo = part.hi = v;
                if (weft__execution_add_part(execution, part))
                    return -1;
            }
        }
    }
    return 0;
}

/* ---- parts of contributions ---- */

static int compare_covers(const void *left, const void *right)
{
    const struct weft__cover *a = left, *b = right;

    if (a->list != b->list)
        return a->list < b->list ? -1 : 1;
    if (a->list_at != b->list_at)
        return a->list_at < b->list_at ? -1 : 1;
    if (a->list_extent != b->list_extent)
        return a->list_extent < b->list_extent ? -1 : 1;
    if (a->bounds != b->bounds)
        return a->bounds < b->bounds ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

static int same_list(const struct weft__cover *a, const struct weft__cover *b)
{
    return a->list == b->list && a->list_at == b->list_at && a->list_extent == b->list_extent &&
           a->bounds == b->bounds;
}

static struct weft__cover cover_of(const struct weft__values *values, const struct weft__term *cut,
                                   uint32_t times)
{
    const struct weft__part *list = &values->parts[cut->part], *bounds = list + 1;

    return (struct weft__cover){.list = list->lo,
                                .list_at = list->at,
                                .list_extent = list->extent,
                                .bounds = bounds->lo,
                                .begin = bounds->at,
                                .end = bounds->at + (int64_t)bounds->extent - (int64_t)cut->detail,
                                .times = times};
}

static int is_cut(const struct weft__values *values, uint32_t value)
{
    const struct weft__term *term = weft__term(values, value);

    return term && term->kind == WEFT__CUT;
}

/* Bytes of a bound, and of all of a slot of bounds. */
static uint64_t bound_size(const struct weft__execution *execution, uint32_t bounds, uint64_t *all)
{
    const struct weft__leaf *leaf = &execution->values.leaves[bounds - WEFT__VALUE_FIRST];
    const struct weft__buffer *buffer =
        &execution->check->schedules[leaf->rank]->buffers[leaf->slot];
    uint64_t size = weft_dtype_size(buffer->dtype);

    *all = size * buffer->count;
    return size;
}

/* The token of a part: of the contribution itself, if it is all of it. */
static int add_cover(struct weft__execution *execution, const struct weft__cover *cover)
{
    uint64_t all, size = bound_size(execution, cover->bounds, &all);
    struct weft__part parts[2] = {{cover->list, cover->list, cover->list_at, cover->list_extent, 1},
                                  {cover->bounds, cover->bounds, cover->begin,
                                   (uint64_t)(cover->end - cover->begin) + size, 1}};
    uint32_t cut;

    if (cover->begin == 0 && parts[1].extent == all) {
        parts[0].times = cover->times;
        return weft__execution_add_part(execution, parts[0]);
    }
    cut = weft__value_intern(&execution->values, WEFT__CUT, 0, (uint32_t)size, parts, 2);
    if (cut == WEFT__CHECK_NONE)
        return -1;
    return weft__execution_add_part(execution, (struct weft__part){cut, cut, 0, 0, cover->times});
}

/* Successive parts become one. */
static int unite_parts(struct weft__execution *execution)
{
    struct weft__cover *covers;
    size_t kept = 0, count = 0;

    execution->cover_count = 0;
    for (size_t i = 0; i < execution->part_count; i++) {
        struct weft__part part = execution->parts[i];

        if (!is_cut(&execution->values, part.lo)) {
            execution->parts[kept++] = part;
            continue;
        }
        if (weft__grow((void **)&execution->covers, &execution->cover_capacity,
                       execution->cover_count + 1, sizeof *execution->covers))
            return -1;
        execution->covers[execution->cover_count++] =
            cover_of(&execution->values, weft__term(&execution->values, part.lo), part.times);
    }
    execution->part_count = kept;
    covers = execution->covers;
    if (execution->cover_count)
        qsort(covers, execution->cover_count, sizeof *covers, compare_covers);
    for (size_t i = 0; i < execution->cover_count; i++) {
        struct weft__cover *last = count ? &covers[count - 1] : NULL;

        if (last && same_list(last, &covers[i]) && last->begin == covers[i].begin &&
            last->end == covers[i].end)
            last->times += covers[i].times;
        else
            covers[count++] = covers[i];
    }
    execution->cover_count = count;
    count = 0;
    for (size_t i = 0; i < execution->cover_count; i++) {
        struct weft__cover *last = count ? &covers[count - 1] : NULL;

        if (last && same_list(last, &covers[i]) && last->times == covers[i].times &&
            last->end == covers[i].begin)
            last->end = covers[i].end;
        else
            covers[count++] = covers[i];
    }
    execution->cover_count = count;
    for (size_t i = 0; i < count; i++)
        if (add_cover(execution, &covers[i]))
            return -1;
    return 0;
}

/* Tokens to their normal form: neighbours in one contribution are one, equal ones counted, and
 * successive contributions runs. */
static int normalise(struct weft__execution *execution)
{
    if (unite_parts(execution))
        return -1;
    struct weft__part *parts = execution->parts;
    size_t count = 0;

    if (execution->part_count)
        qsort(parts, execution->part_count, sizeof *parts, compare_tokens);
    for (size_t i = 0; i < execution->part_count; i++) {
        struct weft__part *last = count ? &parts[count - 1] : NULL;

        if (last && last->lo == parts[i].lo && last->at == parts[i].at &&
            last->extent == parts[i].extent)
            last->times += parts[i].times;
        else if (last && last->lo == parts[i].lo && last->times == parts[i].times &&
                 last->at + (int64_t)last->extent == parts[i].at)
            last->extent += parts[i].extent;
        else
            parts[count++] = parts[i];
    }
    execution->part_count = count;
    count = 0;
    if (execution->part_count)
        qsort(parts, execution->part_count, sizeof *parts, compare_parts);
    for (size_t i = 0; i < execution->part_count; i++) {
        struct weft__part *last = count ? &parts[count - 1] : NULL;

        if (last && last->at == parts[i].at && last->extent == parts[i].extent &&
            last->times == parts[i].times && last->hi + 1 == parts[i].lo)
            last->hi = parts[i].hi;
        else
            parts[count++] = parts[i];
    }
    execution->part_count = count;
    return 0;
}

/* What a function does not fold, but is told. */
enum { NOT_A_FOLD = 2 };

/* Cuts every token at the bounds in region `index`. NOT_A_FOLD: nobody can tell what they are. */
static int cut_parts(struct weft__execution *execution, uint32_t id, uint32_t index)
{
    struct weft__values *values = &execution->values;
    struct weft__pieces *pieces = &execution->pieces[0];
    size_t count = execution->part_count, kept = 0;
    uint64_t all, size;

    if (weft__execution_read(execution, id, index, pieces))
        return -1;
    for (size_t i = 0; i < pieces->count; i++)
        if (pieces->at[i].value == WEFT__VALUE_UNKNOWN)
            return 1;
    if (pieces->count != 1 || !weft__value_is_leaf(values, pieces->at[0].value) ||
        pieces->at[0].limit)
        return NOT_A_FOLD;
    struct weft__cover bounds = {.bounds = weft__values_first(values, pieces->at[0].value)};

    size = bound_size(execution, bounds.bounds, &all);
    bounds.begin = pieces->at[0].from;
    bounds.end = bounds.begin + (int64_t)pieces->at[0].bytes - (int64_t)size;
    execution->cover_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct weft__part part = execution->parts[i];
        struct weft__cover cover = bounds;

        cover.list = part.lo;
        cover.list_at = part.at;
        cover.list_extent = part.extent;
        cover.times = part.times;
        if (is_cut(values, part.lo)) {
            cover = cover_of(values, weft__term(values, part.lo), part.times);
            if (cover.bounds != bounds.bounds)
                return NOT_A_FOLD;
            cover.begin = cover.begin > bounds.begin ? cover.begin : bounds.begin;
            cover.end = cover.end < bounds.end ? cover.end : bounds.end;
        }
        if (cover.begin >= cover.end)
            continue;
        if (weft__grow((void **)&execution->covers, &execution->cover_capacity, kept + 1,
                       sizeof *execution->covers))
            return -1;
        execution->covers[kept++] = cover;
    }
    execution->part_count = 0;
    for (size_t i = 0; i < kept; i++)
        if (add_cover(execution, &execution->covers[i]))
            return -1;
    return 0;
}

/* ---- what a function folds in ---- */

/* The first region from `index` on that the function reads, or region_count. */
static uint32_t next_read(const struct weft__execution *execution, uint32_t id, uint32_t index)
{
    uint32_t count = weft__check_node(execution->check, id)->region_count;

    while (index < count && !weft__execution_reads(execution, id, index))
        index++;
    return index;
}

/* The contributions in regions [first, last) that are read. 1: something is unknown. */
static int gather(struct weft__execution *execution, uint32_t id, uint32_t op, uint32_t first,
                  uint32_t last)
{
    const struct weft__values *values = &execution->values;
    struct weft__pieces *pieces = &execution->pieces[0];
    struct weft__part *merges = NULL;
    size_t count = 0, capacity = 0;
    int status = 0;

    execution->part_count = 0;
    for (uint32_t r = first; status >= 0 && r < last; r++) {
        if (!weft__execution_reads(execution, id, r))
            continue;
        if (weft__execution_read(execution, id, r, pieces))
            status = -1;
        for (size_t i = 0; status >= 0 && i < pieces->count; i++) {
            const struct weft__piece *p = &pieces->at[i];
            struct weft__part token = {p->value, p->value, p->from, p->bytes, 1};

            if (p->value == WEFT__VALUE_UNKNOWN) {
                status = 1;
            } else if (!is_whole(values, op, p)) {
                if (weft__execution_add_part(execution, token))
                    status = -1;
            } else if (weft__grow((void **)&merges, &capacity, count + 1, sizeof *merges)) {
                status = -1;
            } else {
                const struct weft__term *term = weft__term(values, p->value);
                uint32_t merge = values->parts[term->part].lo;

                merges[count++] = (struct weft__part){merge, merge, term->detail, 0, 1};
            }
        }
    }
    if (status >= 0 && expand(execution, merges, count))
        status = -1;
    weft__free(merges);
    return status;
}

/* ---- joins ---- */

static int join_fault(struct weft__execution *execution, uint32_t id, uint32_t region,
                      const char *why)
{
    struct weft__check *check = execution->check;
    struct weft__pieces *pieces = &execution->pieces[0];
    struct weft__fault fault;

    if (weft__execution_read(execution, id, region, pieces))
        return -1;
    weft__fault_begin(&fault, WEFT_FAULT_RESULT);
    weft__out_format(&fault.text, "rank %d: ", check->rank_of[id]);
    weft__fault_node(check, &fault, id);
    weft__out_format(&fault.text, " joins lists of which region %" PRIu32 " %s: it holds ", region,
                     why);
    for (size_t i = 0; i < pieces->count; i++) {
        weft__out_text(&fault.text, i ? ", " : "");
        weft__value_text(&execution->values, &fault.text, pieces->at[i].value);
    }
    return weft__fault_end(check, &fault) ? -1 : 1;
}

/* Whether the parts of the first contribution, execution->covers[0 .. *period), are those of every
 * other one, each once. */
static int is_uniform(const struct weft__execution *execution, size_t *period)
{
    const struct weft__cover *covers = execution->covers;
    size_t count = execution->cover_count, n = 0;

    while (n < count && same_list(&covers[n], &covers[0]))
        n++;
    *period = n;
    for (size_t i = 0; i < count; i++) {
        const struct weft__cover *model = &covers[i % n];

        if (covers[i].times != 1 || covers[i].bounds != model->bounds ||
            covers[i].begin != model->begin || covers[i].end != model->end ||
            !same_list(&covers[i], &covers[i - i % n]))
            return 0;
    }
    return n == 0 || count % n == 0;
}

/* Parts that no later region may have. 0: they are new; 1: one of them was there; -1 without
 * memory. */
static int claim(struct weft__cover **claimed, size_t *count, size_t *capacity,
                 const struct weft__cover *covers, size_t more)
{
    for (size_t i = 0; i < more; i++) {
        for (size_t k = 0; k < *count; k++)
            if ((*claimed)[k].bounds != covers[i].bounds ||
                (covers[i].begin < (*claimed)[k].end && (*claimed)[k].begin < covers[i].end))
                return 1;
    }
    if (weft__grow((void **)claimed, capacity, *count + more, sizeof **claimed))
        return -1;
    memcpy(*claimed + *count, covers, more * sizeof **claimed);
    *count += more;
    return 0;
}

/* 1: the lists that a node joins may have something in common, which has been reported, or
 * something is unknown. */
static int check_join(struct weft__execution *execution, uint32_t id, uint32_t op)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    struct weft__cover *claimed = NULL;
    size_t count = 0, capacity = 0, lists = 0, whole = 0, period;
    int status = 0;

    for (uint32_t r = next_read(execution, id, 0); !status && r < node->region_count;
         r = next_read(execution, id, r + 1)) {
        status = gather(execution, id, op, r, r + 1);
        if (status || execution->part_count == 0)
            continue;
        status = unite_parts(execution);
        lists++;
        for (size_t i = 0; !status && i < execution->part_count; i++)
            whole += !is_cut(&execution->values, execution->parts[i].lo);
        if (status || (whole > 0 && lists == 1))
            continue;
        if (whole > 0 || !is_uniform(execution, &period)) {
            status =
                join_fault(execution, id, r, "does not have the same parts of all that is in it");
            continue;
        }
        status = claim(&claimed, &count, &capacity, execution->covers, period);
        if (status == 1)
            status = join_fault(execution, id, r, "has a part that is in another one, too");
    }
    weft__free(claimed);
    return status;
}

int weft__execution_fold(struct weft__execution *execution, uint32_t id)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    uint32_t op = weft__values_family(&execution->values, node->op);
    uint32_t first = next_read(execution, id, 0), last = node->region_count;
    enum weft__op_sense sense = node->op->sense;
    int status = 0;

    if (op == WEFT__CHECK_NONE)
        return -1;
    if (sense == WEFT__OP_CUTS || sense == WEFT__OP_FILTERS)
        last = first < last ? first + 1 : last;
    if (sense == WEFT__OP_JOINS)
        status = check_join(execution, id, op);
    if (status)
        return status;
    status = gather(execution, id, op, first, last);
    if (status)
        return status;
    if (sense == WEFT__OP_CUTS) {
        uint32_t bounds = next_read(execution, id, last);

        status = bounds < node->region_count ? cut_parts(execution, id, bounds) : NOT_A_FOLD;
    }
    return status ? status : normalise(execution);
}
