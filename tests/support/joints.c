/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/joints.h"

#include <stdbool.h>

#include "tests/support/draw.h"
#include "tests/support/ranks.h"

enum { MOST_STEPS = 24 };

struct part {
    size_t offset, count;
};

struct step {
    bool message; /* from the first of the ranks to the second */
    weft_joint_kind_t kind;
    weft_op_kind_t op;
    int ranks[JOINTS_MOST_RANKS];
    int count;
    int root; /* its place */
    struct part to, from;
    bool in_place;
};

struct joints {
    int size;
    int count;
    struct step steps[MOST_STEPS];
    int32_t x[JOINTS_MOST_RANKS][JOINTS_COUNT];    /* at the beginning */
    int32_t end[JOINTS_MOST_RANKS][JOINTS_COUNT];  /* at the end */
    bool unknown[JOINTS_MOST_RANKS][JOINTS_COUNT]; /* undefined by then */
    uint64_t seed;
};

/* ---- drawing ---- */

static void draw_ranks(struct draw *draw, int size, struct step *step)
{
    for (int r = 0; r < size; r++)
        step->ranks[r] = r;
    for (int r = size - 1; r > 0; r--) {
        int other = (int)draw_below(draw, (unsigned)r + 1), kept = step->ranks[r];

        step->ranks[r] = step->ranks[other];
        step->ranks[other] = kept;
    }
    step->count = 1 + (int)draw_below(draw, (unsigned)size);
    if (draw_below(draw, 3) == 0) { /* all, ascending: of the messages' communicator */
        step->count = size;
        for (int r = 0; r < size; r++)
            step->ranks[r] = r;
    }
}

static bool collects(const struct step *step)
{
    return step->kind == WEFT_JOINT_COLLECT || step->kind == WEFT_JOINT_FOLD_PARTS;
}

/* Two parts of the slot that do not overlap: the first of n times as many elements. */
static void draw_parts(struct draw *draw, struct step *step)
{
    size_t n = collects(step) ? (size_t)step->count : 1;
    size_t most = JOINTS_COUNT / (n + 1);
    size_t least = draw_below(draw, 12) ? draw_below(draw, (unsigned)(most < 90 ? most : 90)) : 0;
    struct part large = {draw_below(draw, (unsigned)(JOINTS_COUNT - (n + 1) * least) + 1),
                         n * least};
    struct part small = {large.offset + large.count, least};

    if (step->in_place)
        small = large;
    step->to = step->kind == WEFT_JOINT_FOLD_PARTS ? small : large;
    step->from = step->kind == WEFT_JOINT_FOLD_PARTS ? large : small;
}

static void draw_step(struct draw *draw, int size, struct step *step)
{
    static const weft_op_kind_t ops[] = {WEFT_SUM, WEFT_PROD, WEFT_MIN, WEFT_MAX};

    draw_ranks(draw, size, step);
    step->message = size > 1 && draw_below(draw, 3) == 0;
    if (step->message && step->count < 2)
        step->count = 2;
    step->kind = (weft_joint_kind_t)draw_below(draw, WEFT_JOINT_KIND_COUNT);
    step->op = ops[draw_below(draw, 4)];
    step->root = (int)draw_below(draw, (unsigned)step->count);
    step->in_place = !step->message && draw_below(draw, 2) == 0;
    if (step->message)
        step->kind = WEFT_JOINT_SPREAD;
    draw_parts(draw, step);
}

/* ---- what it computes ---- */

static int32_t fold(weft_op_kind_t op, int32_t a, int32_t b)
{
    return op == WEFT_SUM    ? (int32_t)((uint32_t)a + (uint32_t)b)
           : op == WEFT_PROD ? (int32_t)((uint32_t)a * (uint32_t)b)
           : op == WEFT_MIN  ? (a < b ? a : b)
                             : (a > b ? a : b);
}

static void put(struct joints *j, int rank, size_t at, int32_t value, bool unknown)
{
    j->end[rank][at] = value;
    j->unknown[rank][at] = unknown;
}

/* Of all ranks, element number i of what is given. */
static int32_t fold_all(const struct joints *j, const struct step *step, size_t i, bool *unknown)
{
    int32_t value = 0;

    *unknown = false;
    for (int k = 0; k < step->count; k++) {
        size_t at = step->from.offset + i;
        int32_t more = j->end[step->ranks[k]][at];

        *unknown |= j->unknown[step->ranks[k]][at];
        value = k ? fold(step->op, value, more) : more;
    }
    return value;
}

static void copy(struct joints *j, int to, size_t to_at, int from, size_t from_at)
{
    put(j, to, to_at, j->end[from][from_at], j->unknown[from][from_at]);
}

static void play_fold(struct joints *j, const struct step *step)
{
    size_t n = (size_t)step->count, count = step->from.count;

    for (size_t i = 0; i < count; i++) {
        bool unknown;
        int32_t value = fold_all(j, step, i, &unknown);

        for (size_t k = 0; k < n; k++) {
            size_t part = count / n;
            bool mine = step->kind != WEFT_JOINT_FOLD_PARTS || i / part == k;

            if (step->kind == WEFT_JOINT_FOLD_ONE && (int)k != step->root)
                continue;
            if (step->kind != WEFT_JOINT_FOLD_PARTS || step->in_place)
                put(j, step->ranks[k], step->to.offset + i, value, unknown || !mine);
            else if (mine)
                put(j, step->ranks[k], step->to.offset + i % part, value, unknown);
        }
    }
}

static void play_step(struct joints *j, const struct step *step)
{
    int root = step->ranks[step->message ? 0 : step->root];
    size_t n = (size_t)step->count;

    if (step->message) {
        for (size_t i = 0; i < step->to.count; i++)
            copy(j, step->ranks[1], step->to.offset + i, root, step->from.offset + i);
    } else if (step->kind == WEFT_JOINT_SPREAD) {
        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < step->to.count && step->ranks[k] != root; i++)
                copy(j, step->ranks[k], step->to.offset + i, root, step->from.offset + i);
    } else if (step->kind == WEFT_JOINT_COLLECT) {
        size_t part = step->to.count / n;

        for (size_t k = 0; k < n; k++)
            for (size_t i = 0; i < step->to.count; i++)
                if (!step->in_place || i / part != k)
                    copy(j, step->ranks[k], step->to.offset + i, step->ranks[i / part],
                         step->from.offset + (step->in_place ? i : i % part));
    } else {
        play_fold(j, step);
    }
}

struct joints *joints_create(uint64_t seed, int size)
{
    struct draw draw = {seed * 77 + 5};
    struct joints *j = calloc(1, sizeof *j);

    CHECK(j);
    j->seed = seed;
    j->size = size ? size : 1 + (int)draw_below(&draw, JOINTS_MOST_RANKS);
    j->count = 1 + (int)draw_below(&draw, MOST_STEPS);
    for (int r = 0; r < j->size; r++)
        for (int i = 0; i < JOINTS_COUNT; i++)
            j->end[r][i] = j->x[r][i] = (int32_t)draw_below(&draw, 2000) - 1000;
    for (int s = 0; s < j->count; s++) {
        draw_step(&draw, j->size, &j->steps[s]);
        play_step(j, &j->steps[s]);
    }
    return j;
}

void joints_destroy(struct joints *joints)
{
    free(joints);
}

int joints_size(const struct joints *joints)
{
    return joints->size;
}

/* ---- schedules ---- */

static int place_in(const struct step *step, int rank)
{
    for (int k = 0; k < step->count; k++)
        if (step->ranks[k] == rank)
            return k;
    return -1;
}

static bool overlap(struct part a, struct part b)
{
    return a.offset < b.offset + b.count && b.offset < a.offset + a.count;
}

static struct weft_region region_of(struct part part)
{
    return weft_region_at(0, part.offset, part.count);
}

/* Its node, or WEFT_NODE_NONE. Every other rank names what it does in NCCL's way. */
static weft_node_t add_step(struct weft_schedule *s, const struct step *step, int rank,
                            uint32_t tag)
{
    struct weft_region to = region_of(step->to), from = region_of(step->from);
    struct weft_joint joint;
    int place = place_in(step, rank);

    if (place < 0 || (step->message && place > 1))
        return WEFT_NODE_NONE;
    if (step->message)
        return place == 0 ? weft_schedule_add_send(s, from, step->ranks[1], tag)
                          : weft_schedule_add_recv(s, to, step->ranks[0], tag);
    weft_joint_init(&joint);
    joint.kind = step->kind;
    joint.op = step->op;
    joint.root = step->ranks[step->root];
    joint.ranks = step->ranks;
    joint.rank_count = step->count;
    joint.tag = tag;
    if (rank % 2 && step->kind == WEFT_JOINT_FOLD_ALL)
        return weft_schedule_nccl_allreduce(s, step->op, to, from, &joint);
    if (rank % 2 && step->kind == WEFT_JOINT_FOLD_ONE)
        return weft_schedule_nccl_reduce(s, step->op, to, from, joint.root, &joint);
    if (rank % 2 && step->kind == WEFT_JOINT_FOLD_PARTS)
        return weft_schedule_nccl_reduce_scatter(s, step->op, to, from, &joint);
    if (rank % 2 && step->kind == WEFT_JOINT_COLLECT)
        return weft_schedule_nccl_allgather(s, to, from, &joint);
    return weft_schedule_add_joint(s, &joint, &to, &from);
}

struct weft_schedule *joints_build(const struct joints *joints, int rank)
{
    weft_node_t nodes[MOST_STEPS];
    struct weft_schedule *s;

    OK(weft_schedule_create(&s, rank, joints->size));
    OK(weft_schedule_set_name(s, "joints"));
    CHECK(weft_schedule_add_slot(s, "x", WEFT_I32, JOINTS_COUNT, WEFT_SLOT_INOUT) == 0);
    for (int n = 0; n < joints->count; n++) {
        const struct step *step = &joints->steps[n];

        nodes[n] = add_step(s, step, rank, 10 + 2 * (uint32_t)n);
        CHECK(nodes[n] >= WEFT_NODE_NONE);
        for (int b = 0; b < n && nodes[n] >= 0; b++) {
            const struct step *before = &joints->steps[b];

            if (nodes[b] >= 0 &&
                (overlap(before->to, step->to) || overlap(before->from, step->to) ||
                 overlap(before->to, step->from)))
                OK(weft_schedule_add_order(s, nodes[b], nodes[n]));
        }
    }
    return s;
}

void joints_fill(const struct joints *joints, int rank, int32_t x[JOINTS_COUNT])
{
    memcpy(x, joints->x[rank], sizeof joints->x[rank]);
}

void joints_check(const struct joints *joints, int rank, const int32_t x[JOINTS_COUNT])
{
    for (int i = 0; i < JOINTS_COUNT; i++) {
        if (joints->unknown[rank][i] || x[i] == joints->end[rank][i])
            continue;
        fprintf(stderr, "joints of seed %llu, %d ranks: element %d of rank %d is %d, expected %d\n",
                (unsigned long long)joints->seed, joints->size, i, rank, x[i],
                joints->end[rank][i]);
        abort();
    }
}
