/* SPDX-License-Identifier: BSD-3-Clause */
/* Joint operations as operations: made, named, and what their nodes must look like. */
#include "runtime/graph/joint.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/base/out.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "joint-"

static const char *const kinds[] = {
#define KIND(name, text) [name] = (text),
    WEFT_JOINT_MAP(KIND)
#undef KIND
};

static const struct {
    weft_op_kind_t kind;
    const char *name;
} folds[] = {{WEFT_SUM, "sum"}, {WEFT_PROD, "prod"}, {WEFT_MIN, "min"}, {WEFT_MAX, "max"}};

enum { FOLD_COUNT = sizeof folds / sizeof *folds };

static int has_root(const struct weft__joint *joint)
{
    return joint->kind == WEFT_JOINT_FOLD_ONE || joint->kind == WEFT_JOINT_SPREAD;
}

uint64_t weft__joint_signature(const struct weft__joint *joint, weft_dtype_t dtype, size_t given)
{
    const uint64_t words[] = {(uint64_t)joint->kind, (uint64_t)joint->fold, (uint64_t)joint->root,
                              (uint64_t)dtype, given};
    uint64_t hash = weft__ranks_hash(joint->ranks, WEFT__HASH_EMPTY);

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = weft__hash_word(hash, words[i]);
    return hash;
}

/* ---- names ---- */

/* In one piece, which begins with the operation. */
struct joint_op {
    struct weft_op op;
    struct weft__joint joint;
};

static char *name_of(const struct weft__joint *joint)
{
    struct weft__out out = {0};

    weft__out_format(&out, PREFIX "%s", kinds[joint->kind]);
    for (int f = 0; f < FOLD_COUNT; f++)
        if (weft__joint_folds(joint) && folds[f].kind == joint->fold)
            weft__out_format(&out, "-%s", folds[f].name);
    if (has_root(joint))
        weft__out_format(&out, "-%d", weft__ranks_at(joint->ranks, joint->root));
    weft__out_format(&out, "-%u-", joint->tag);
    weft__ranks_write(&out, joint->ranks);
    if (out.failed) {
        weft__free(out.text);
        return NULL;
    }
    return out.text;
}

/* The operation. Takes the ranks, which may be NULL: no memory. */
static int make(const struct weft__joint *joint, struct weft__ranks *ranks, struct weft_op **op)
{
    struct joint_op *made = weft__calloc(1, sizeof *made);

    if (made) {
        made->joint = *joint;
        made->joint.ranks = ranks;
        made->op.name = ranks ? name_of(&made->joint) : NULL;
    }
    if (!made || !made->op.name) {
        weft__free(made);
        weft__free(ranks);
        return weft__error_memory("a joint operation");
    }
    made->op.builtin = -1;
    made->op.joint = &made->joint;
    made->op.owned = ranks;
    atomic_init(&made->op.references, 1);
    *op = &made->op;
    return WEFT_OK;
}

int weft__joint_translate(const struct weft__joint *joint, const int *ranks, uint32_t tag,
                          const struct weft_op **op)
{
    struct weft__joint other = *joint;
    struct weft_op *made;
    int status;

    other.tag = tag;
    status = make(&other,
                  ranks ? weft__ranks_renamed(joint->ranks, ranks) : weft__ranks_copy(joint->ranks),
                  &made);
    if (status == WEFT_OK)
        *op = made;
    return status;
}

/* ---- names, read ---- */

/* A word at *at, and the '-' behind it. */
static int take_word(const char **at, const char *word)
{
    size_t length = strlen(word);

    if (strncmp(*at, word, length) != 0 || (*at)[length] != '-')
        return 0;
    *at += length + 1;
    return 1;
}

/* What stands before the ranks. */
static int take_head(const char **at, struct weft__joint *head)
{
    uint64_t number;
    int kind = 0, fold = 0;

    if (strncmp(*at, PREFIX, strlen(PREFIX)) != 0)
        return 0;
    *at += strlen(PREFIX);
    while (kind < WEFT_JOINT_KIND_COUNT && !take_word(at, kinds[kind]))
        kind++;
    if (kind == WEFT_JOINT_KIND_COUNT)
        return 0;
    head->kind = (weft_joint_kind_t)kind;
    while (weft__joint_folds(head) && fold < FOLD_COUNT && !take_word(at, folds[fold].name))
        fold++;
    if (fold == FOLD_COUNT)
        return 0;
    head->fold = weft__joint_folds(head) ? folds[fold].kind : WEFT_SUM;
    if (has_root(head)) {
        if (!weft__take_number(at, INT_MAX - 1, &number) || *(*at)++ != '-')
            return 0;
        head->root = (int)number;
    }
    if (!weft__take_number(at, UINT32_MAX, &number) || *(*at)++ != '-')
        return 0;
    head->tag = (uint32_t)number;
    return number < UINT32_MAX;
}

int weft__joint_parse(const char *name, struct weft_op **op)
{
    struct weft__joint joint = {.kind = WEFT_JOINT_FOLD_ALL};
    struct weft__ranks *ranks = NULL;
    const char *at = name;

    if (take_head(&at, &joint) && weft__ranks_read(at, &ranks))
        return weft__error_memory("a joint operation");
    if (ranks && has_root(&joint))
        joint.root = weft__ranks_place(ranks, joint.root);
    if (ranks && joint.root >= 0)
        return make(&joint, ranks, op);
    weft__free(ranks);
    return WEFT_ERR_NOT_FOUND;
}

/* ---- nodes ---- */

#define REFUSE(schedule, ...)                                                                      \
    ((schedule)->refusal = WEFT__REFUSAL_REGION,                                                   \
     weft__schedule_fail(schedule, WEFT_ERR_INVALID, __VA_ARGS__))

struct weft__joint_sides weft__joint_sides(const struct weft__joint *joint, int place,
                                           uint32_t region_count)
{
    struct weft__joint_sides sides = {0, region_count == 2};

    if (joint->kind == WEFT_JOINT_SPREAD)
        sides = place == joint->root ? (struct weft__joint_sides){-1, 0}
                                     : (struct weft__joint_sides){0, -1};
    else if (joint->kind == WEFT_JOINT_FOLD_ONE && place != joint->root)
        sides = (struct weft__joint_sides){-1, 0};
    return sides;
}

/* What a rank does to the first region of its node, of so many. */
static int expected_access(const struct weft__joint *joint, int place, size_t count)
{
    struct weft__joint_sides sides = weft__joint_sides(joint, place, (uint32_t)count);

    if (sides.gets < 0)
        return WEFT_READ;
    return sides.gives == 0 ? WEFT_UPDATE : WEFT_WRITE;
}

static const char *access_word(int access)
{
    return access == WEFT_READ     ? "WEFT_READ"
           : access == WEFT_WRITE  ? "WEFT_WRITE"
           : access == WEFT_UPDATE ? "WEFT_UPDATE"
                                   : "none";
}

static int check_ranks(struct weft_schedule *s, const char *who, const struct weft__joint *joint)
{
    int last = weft__ranks_last(joint->ranks);

    if (last >= s->size)
        return REFUSE(s, "%s: a joint node has rank %d, expected 0..%d", who, last, s->size - 1);
    if (weft__ranks_place(joint->ranks, s->rank) < 0)
        return REFUSE(s,
                      "%s: a joint node of %d rank%s, from rank %d on, is of a schedule of rank "
                      "%d, expected one of them",
                      who, joint->ranks->count, joint->ranks->count == 1 ? "" : "s",
                      weft__ranks_at(joint->ranks, 0), s->rank);
    return WEFT_OK;
}

static int check_dtype(struct weft_schedule *s, const char *who, const struct weft__joint *joint,
                       weft_dtype_t dtype)
{
    if (!weft__joint_folds(joint))
        return WEFT_OK;
    if (dtype == WEFT_I16 || dtype == WEFT_U16 || weft_dtype_is_opaque(dtype))
        return REFUSE(s,
                      "%s: a joint node that folds %s, expected any datatype but i16, u16 and "
                      "opaque ones",
                      who, weft_dtype_name(dtype));
    return WEFT_OK;
}

/* Of two regions: which has how many times the elements of the other. */
static int check_counts(struct weft_schedule *s, const char *who, const struct weft__joint *joint,
                        const struct weft_compute_argument *arguments, size_t count)
{
    const struct weft_region *to = &arguments[0].region, *from = &arguments[count - 1].region;
    size_t n = (size_t)joint->ranks->count;
    int parts = joint->kind == WEFT_JOINT_FOLD_PARTS, collects = joint->kind == WEFT_JOINT_COLLECT;

    if (count == 1) {
        if ((parts || collects) && to->count % n)
            return REFUSE(s,
                          "%s: a joint node has %zu elements in place, expected a multiple of "
                          "its %zu ranks",
                          who, to->count, n);
        return WEFT_OK;
    }
    if (s->buffers[to->slot].dtype != s->buffers[from->slot].dtype)
        return REFUSE(s, "%s: a joint node gets %s and gives %s, expected the same datatype", who,
                      weft_dtype_name(s->buffers[to->slot].dtype),
                      weft_dtype_name(s->buffers[from->slot].dtype));
    if (to->slot == from->slot && to->offset < from->offset + from->count &&
        from->offset < to->offset + to->count)
        return REFUSE(s,
                      "%s: what a joint node gets overlaps what it gives in slot \"%.64s\" "
                      "(offsets %zu and %zu, counts %zu and %zu), expected it apart or in place",
                      who, s->buffers[to->slot].name, to->offset, from->offset, to->count,
                      from->count);
    if (parts      ? from->count / n != to->count || from->count % n
        : collects ? to->count / n != from->count || to->count % n
                   : to->count != from->count)
        return REFUSE(s,
                      "%s: a joint node of %zu ranks gets %zu elements and gives %zu, expected %s",
                      who, n, to->count, from->count,
                      parts      ? "to give so many times as much"
                      : collects ? "to get so many times as much"
                                 : "the same");
    return WEFT_OK;
}

int weft__joint_check(struct weft_schedule *s, const char *who, const struct weft__joint *joint,
                      const struct weft_compute_argument *arguments, size_t count)
{
    int status = check_ranks(s, who, joint), place, expected;

    if (status)
        return status;
    place = weft__ranks_place(joint->ranks, s->rank);
    if (count < 1 || count > 2)
        return REFUSE(s, "%s: a joint node has %zu regions, expected 1 or 2", who, count);
    expected = expected_access(joint, place, count);
    if ((int)arguments[0].access != expected || (count == 2 && arguments[1].access != WEFT_READ) ||
        (count == 2 && expected == WEFT_READ) || (count == 2 && joint->kind == WEFT_JOINT_SPREAD))
        return REFUSE(s, "%s: the regions of a joint node have access %s, %s, expected %s here, %s",
                      who, access_word((int)arguments[0].access),
                      access_word(count == 2 ? (int)arguments[1].access : 0),
                      access_word(expected_access(joint, place, 1)), "or WEFT_WRITE, WEFT_READ");
    for (size_t i = 0; i < count; i++)
        if (arguments[i].region.value)
            return REFUSE(s, "%s: a region of a joint node has value \"%.64s\", expected none", who,
                          s->values[arguments[i].region.value - 1].name);
    status = check_dtype(s, who, joint, s->buffers[arguments[0].region.slot].dtype);
    return status ? status : check_counts(s, who, joint, arguments, count);
}

/* ---- building ---- */

void weft_joint_init_sized(struct weft_joint *joint, size_t size)
{
    weft_sized_init(joint, size);
}

static int check_config(struct weft_schedule *s, const char *who, const struct weft_joint *config)
{
    int folds_any = config->kind >= 0 && config->kind <= WEFT_JOINT_FOLD_PARTS, known = 0;

    if (config->kind < 0 || config->kind >= WEFT_JOINT_KIND_COUNT)
        return REFUSE(s, "%s: joint->kind is %d, expected 0..%d", who, (int)config->kind,
                      WEFT_JOINT_KIND_COUNT - 1);
    for (int f = 0; f < FOLD_COUNT; f++)
        known |= folds[f].kind == config->op;
    if (folds_any && !known)
        return REFUSE(s, "%s: joint->op is %d, expected WEFT_SUM, WEFT_PROD, WEFT_MIN or WEFT_MAX",
                      who, (int)config->op);
    if (config->tag == UINT32_MAX)
        return REFUSE(s, "%s: joint->tag is %u, expected less: it takes the next one, too", who,
                      config->tag);
    if (config->ranks && config->rank_count < 1)
        return REFUSE(s, "%s: joint->rank_count is %d, expected at least 1", who,
                      config->rank_count);
    if (!config->ranks && config->rank_count)
        return REFUSE(s, "%s: joint->ranks is NULL, expected joint->rank_count (%d) ranks", who,
                      config->rank_count);
    return WEFT_OK;
}

static int compare_ints(const void *left, const void *right)
{
    const int *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

/* What is wrong with ranks: there, different, of the schedule. */
static int check_given(struct weft_schedule *s, const char *who, const int *ranks, int count)
{
    int *sorted = weft__malloc((size_t)count, sizeof *sorted);
    int status = sorted ? WEFT_OK : weft__schedule_fail_memory(s, who);

    for (int i = 0; i < count && !status; i++) {
        sorted[i] = ranks[i];
        if (ranks[i] < 0 || ranks[i] >= s->size)
            status = REFUSE(s, "%s: joint->ranks[%d] is %d, expected 0..%d", who, i, ranks[i],
                            s->size - 1);
    }
    if (!status)
        qsort(sorted, (size_t)count, sizeof *sorted, compare_ints);
    for (int i = 1; i < count && !status; i++)
        if (sorted[i] == sorted[i - 1])
            status = REFUSE(s, "%s: joint->ranks has %d twice, expected different ranks", who,
                            sorted[i]);
    weft__free(sorted);
    return status;
}

/* The operation that is asked for. */
static int make_of(struct weft_schedule *s, const char *who, const struct weft_joint *config,
                   struct weft_op **op)
{
    const int folds_any = config->kind <= WEFT_JOINT_FOLD_PARTS;
    struct weft__joint joint = {
        .kind = config->kind, .tag = config->tag, .fold = folds_any ? config->op : WEFT_SUM};
    int status = config->ranks ? check_given(s, who, config->ranks, config->rank_count) : WEFT_OK;
    struct weft__ranks *ranks;

    if (status)
        return status;
    ranks = config->ranks ? weft__ranks_of(config->ranks, config->rank_count)
                          : weft__ranks_all(s->size);
    if (ranks && has_root(&joint))
        joint.root = weft__ranks_place(ranks, config->root);
    if (joint.root < 0) {
        weft__free(ranks);
        return REFUSE(s, "%s: joint->root is %d, expected one of joint->ranks", who, config->root);
    }
    return make(&joint, ranks, op) ? weft__schedule_fail_memory(s, who) : WEFT_OK;
}

static int same(const struct weft_region *a, const struct weft_region *b)
{
    return a->slot == b->slot && a->offset == b->offset && a->count == b->count;
}

/* Part number `place` of a region. */
static struct weft_region part_of(const struct weft_region *whole, size_t count, int place)
{
    struct weft_region part = *whole;

    part.offset += (size_t)place * count;
    part.count = count;
    return part;
}

/* The larger region, if what this rank gets, or gives, lies in it where it belongs; or NULL. */
static const struct weft_region *in_place(const struct weft__joint *joint, int place,
                                          const struct weft_region *to,
                                          const struct weft_region *from)
{
    const struct weft_region *whole = joint->kind == WEFT_JOINT_COLLECT ? to : from;
    const struct weft_region *part = whole == to ? from : to;
    size_t count = whole->count / (size_t)joint->ranks->count;
    struct weft_region own = part_of(whole, count, place);

    if (joint->kind != WEFT_JOINT_COLLECT && joint->kind != WEFT_JOINT_FOLD_PARTS)
        return same(to, from) ? to : NULL;
    return same(part, whole) || same(part, &own) ? whole : NULL;
}

weft_node_t weft__schedule_add_joint(struct weft_schedule *schedule, const char *who,
                                     const struct weft_joint *config, const struct weft_region *to,
                                     const struct weft_region *from)
{
    struct weft_compute_argument arguments[2];
    struct weft_op *op;
    weft_node_t node;
    size_t count = 1;
    int status, place;

    if ((status = check_config(schedule, who, config)) ||
        (status = make_of(schedule, who, config, &op)))
        return status;
    place = weft__ranks_place(op->joint->ranks, schedule->rank);
    struct weft__joint_sides sides = weft__joint_sides(op->joint, place < 0 ? 0 : place, 1);
    const struct weft_region *only = sides.gets < 0 ? from : sides.gives < 0 ? to : NULL;
    if (sides.gets == 0 && sides.gives == 0)
        only = !to ? from : from ? in_place(op->joint, place, to, from) : to;
    if (!only && !(to && from)) {
        weft_op_destroy(op);
        return REFUSE(schedule, "%s: argument `%s` is NULL, expected a region", who,
                      sides.gets < 0 ? "from" : "to");
    }
    arguments[0].region = only ? *only : *to;
    arguments[0].access = only ? (weft_access_t)expected_access(op->joint, place, 1) : WEFT_WRITE;
    if (!only)
        arguments[count++] = (struct weft_compute_argument){*from, WEFT_READ};
    node = weft__schedule_add_call(schedule, who, op, arguments, count, 0);
    weft_op_destroy(op);
    return node;
}

int weft__joint_read(struct weft_schedule *schedule, const char *who,
                     const struct weft_joint *given, struct weft_joint *config)
{
    if (!weft_sized_read(who, "joint", given, config, sizeof *config))
        return WEFT_OK;
    return weft__schedule_fail(schedule, WEFT_ERR_INVALID, "%s", weft_error_text());
}

weft_node_t weft_schedule_add_joint(struct weft_schedule *schedule, const struct weft_joint *joint,
                                    const struct weft_region *to, const struct weft_region *from)
{
    struct weft_joint config;
    int status;

    WEFT__ENTER(schedule);
    status = weft__joint_read(schedule, __func__, joint, &config);
    return status ? status : weft__schedule_add_joint(schedule, __func__, &config, to, from);
}
