/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Joint nodes: one operation of several ranks, which the library of a device executes as a whole
 * (weft/nccl.h has them by NCCL's names), beside messages that the schedule has itself.
 *
 *     rank 0   node 4: joint fold-all of x     with ranks 0, 1, 2, 3        one operation
 *     rank 1   node 4: joint fold-all of x     with ranks 0, 1, 2, 3
 *     ...
 *
 * A joint node starts on each of its ranks as any node does, and ends there when the device has
 * executed it: not before all of its ranks have started theirs. It needs a run that is created with
 * WEFT_NCCL_KNOWN or WEFT_NCCL_IN_ORDER (weft/run.h), in which at least one of its regions is
 * memory of the device. Everywhere else weft_schedule_write_out() makes messages and reductions of
 * it, which give the same but for the order in which floating point is added; weft_check() and
 * weft_sim_run() do that to copies of their own.
 */
#ifndef WEFT_JOINT_H
#define WEFT_JOINT_H

#include <weft/schedule.h>
#include <weft/sized.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Every kind of joint node: name, text. With n ranks, and e elements given: */
#define WEFT_JOINT_MAP(X)                                                                          \
    X(WEFT_JOINT_FOLD_ALL, "fold-all")                                                             \
    X(WEFT_JOINT_FOLD_ONE, "fold-one")                                                             \
    X(WEFT_JOINT_FOLD_PARTS, "fold-parts")                                                         \
    X(WEFT_JOINT_SPREAD, "spread")                                                                 \
    X(WEFT_JOINT_COLLECT, "collect")

/** What is given by each rank, and what each gets. */
typedef enum weft_joint_kind {
#define WEFT_JOINT_ENUM(name, text) name,
    WEFT_JOINT_MAP(WEFT_JOINT_ENUM)
#undef WEFT_JOINT_ENUM
        WEFT_JOINT_KIND_COUNT
} weft_joint_kind_t;

/** Which operation, of whom. Members that are 0 mean their defaults. */
struct weft_joint {
    size_t struct_size;
    /** FOLD_ALL: all give e elements, and get their combination.
     *  FOLD_ONE: all give e elements; `root` gets their combination.
     *  FOLD_PARTS: all give n e elements; the i-th of the ranks gets the i-th e elements of their
     *  combination.
     *  SPREAD: `root` gives e elements, and all others get them.
     *  COLLECT: all give e elements, and get n e: those of the i-th of the ranks in i-th place. */
    weft_joint_kind_t kind;
    /** Of what folds: WEFT_SUM, WEFT_PROD, WEFT_MIN or WEFT_MAX, of any datatype but i16, u16 and
     *  opaque ones. */
    weft_op_kind_t op;
    /** FOLD_ONE and SPREAD: a rank of the schedule, among `ranks`. */
    int root;
    /** `rank_count` different ranks of the schedule, among them the one that it is of, in an order
     *  that is the same on all. NULL: all, ascending. Copied. */
    const int *ranks;
    int rank_count;
    /** The same on all of its ranks. Two joint nodes of a rank that are followed there by the same
     *  rank in `ranks` have different ones. Written out as messages it takes `tag` and `tag` + 1,
     *  so that those must not be of messages between its ranks. */
    uint32_t tag;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_joint_init_sized(struct weft_joint *joint, size_t size);
#define weft_joint_init(joint) weft_joint_init_sized((joint), sizeof *(joint))

/**
 * Adds this rank's part in a joint operation: a compute node, whose operation says all that is in
 * @p joint, so that texts have it, too.
 * @param to what this rank gets; NULL, or the same region as @p from, where it gets it in place: of
 *        FOLD_PARTS and COLLECT in the i-th of n equal parts of the larger region. The other parts
 *        of it are then undefined after FOLD_PARTS. Not looked at on ranks that get nothing.
 * @param from what it gives; not looked at on ranks that give nothing. The two do not overlap but
 *        as above. Regions have no values.
 */
WEFT_EXPORT weft_node_t weft_schedule_add_joint(struct weft_schedule *schedule,
                                                const struct weft_joint *joint,
                                                const struct weft_region *to,
                                                const struct weft_region *from);

/**
 * Makes messages and reductions of all joint nodes: each becomes a join behind them. Nodes keep
 * their numbers; what is added comes behind them. Every rank sends to every other, each a part, so
 * that as much goes over a link as has to; parts are combined in the order of `ranks`.
 * @return WEFT_OK, also where there was nothing to do; WEFT_ERR_MEMORY, WEFT_ERR_UNSUPPORTED (too
 *         many nodes), as all errors of a builder.
 */
WEFT_EXPORT int weft_schedule_write_out(struct weft_schedule *schedule);

#ifdef __cplusplus
}
#endif

#endif
