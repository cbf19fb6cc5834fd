/* SPDX-License-Identifier: BSD-3-Clause */
/* Joint operations: one of several ranks at once (weft/joint.h). */
#ifndef WEFT_RUNTIME_GRAPH_JOINT_H
#define WEFT_RUNTIME_GRAPH_JOINT_H

#include "runtime/graph/op.h"
#include "runtime/graph/ranks.h"
#include "runtime/graph/schedule.h"

#include <weft/joint.h>

struct weft__joint {
    weft_joint_kind_t kind;
    weft_op_kind_t fold;
    uint32_t tag;
    int root; /* its place among the ranks */
    struct weft__ranks *ranks;
};

/* "joint-fold-all-sum-5-0to7": the operation that a name is of; WEFT_ERR_NOT_FOUND, without a text:
 * it is none of these; WEFT_ERR_MEMORY. */
int weft__joint_parse(const char *name, struct weft_op **op);

/* The same with other ranks (NULL: the same) and another tag. WEFT_OK or WEFT_ERR_MEMORY. */
int weft__joint_translate(const struct weft__joint *joint, const int *ranks, uint32_t tag,
                          const struct weft_op **op);

/* Whether a schedule can have a node of it with these arguments. */
int weft__joint_check(struct weft_schedule *schedule, const char *who,
                      const struct weft__joint *joint,
                      const struct weft_compute_argument *arguments, size_t count);

/* weft_schedule_add_joint() in the name of another function: what was given is read, and a node of
 * it is added. */
int weft__joint_read(struct weft_schedule *schedule, const char *who,
                     const struct weft_joint *given, struct weft_joint *config);
weft_node_t weft__schedule_add_joint(struct weft_schedule *schedule, const char *who,
                                     const struct weft_joint *config, const struct weft_region *to,
                                     const struct weft_region *from);

static inline int weft__joint_folds(const struct weft__joint *joint)
{
    return joint->kind <= WEFT_JOINT_FOLD_PARTS;
}

/* In what two differ that do not belong together, in one number. */
uint64_t weft__joint_signature(const struct weft__joint *joint, weft_dtype_t dtype, size_t given);

/* What a rank gives and gets, by the regions of its node: the number of its region, or -1; 0 and 0
 * are in place. */
struct weft__joint_sides {
    int gets, gives;
};
struct weft__joint_sides weft__joint_sides(const struct weft__joint *joint, int place,
                                           uint32_t region_count);

/* The rank that follows another one in the list, the first after the last. */
static inline int weft__joint_next(const struct weft__joint *joint, int rank)
{
    int place = weft__ranks_place(joint->ranks, rank) + 1;

    return weft__ranks_at(joint->ranks, place < joint->ranks->count ? place : 0);
}

/* Its tags are two. */
static inline uint32_t weft__joint_last_tag(const struct weft__joint *joint)
{
    return joint->tag + 1;
}

/* Whether a schedule has such nodes. */
int weft__schedule_has_joints(const struct weft_schedule *schedule);
static inline const struct weft__joint *weft__snode_joint(const struct weft__snode *node)
{
    return node->op ? node->op->joint : NULL;
}

/* A schedule without such nodes: itself, or a copy that is written out, which is destroyed with
 * `owned`. */
int weft__schedule_written_out(const struct weft_schedule *schedule,
                               const struct weft_schedule **plain, struct weft_schedule **owned);

/* Several, as weft__schedule_written_out(); those that are NULL or faulty stay as they are. Freed
 * in any case. */
struct weft__written_out {
    const struct weft_schedule **plain;
    struct weft_schedule **owned;
    size_t count;
};

int weft__write_out_all(struct weft__written_out *written,
                        const struct weft_schedule *const *schedules, size_t count,
                        const char *what);
void weft__written_out_free(struct weft__written_out *written);

#endif
