/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a template is made of, and the tools its algorithms are written with.
 *
 * An algorithm adds nodes in the order in which one rank would do them one after the other; the
 * weft__build_*() functions give each to a tracker (weft/tracker.h), which adds exactly the orders
 * that this needs. So no two nodes race, whatever the algorithm does in place, and everything else
 * may overlap.
 *
 * It is free of deadlock under rendezvous if the two sides of a message can be given the same step
 * number such that the nodes of a step touch, on each rank, no memory that a receive of that step
 * writes: orders then lead from earlier steps to later ones only.
 */
#ifndef WEFT_SCHEDULES_COMMON_TEMPLATE_H
#define WEFT_SCHEDULES_COMMON_TEMPLATE_H

#include <weft/template.h>
#include <weft/tracker.h>

/* Layers and the groups into which they are merged, as weft_template_params has them: checked, and
 * with numbers of both. */
struct weft__layers {
    const size_t *layers; /* elements; NULL: `elements` cut into `layer_count` */
    size_t layer_count;
    const size_t *groups; /* layers; NULL: all cut into `group_count` */
    size_t group_count;
    size_t elements;
};

/* Parts of a vector that are compressed each in its way, as weft_template_params has them: checked.
 */
struct weft__blocks {
    const struct weft_compressed_block *list; /* NULL: `own` */
    size_t count;
    struct weft_compressed_block own[2];
};

/* Workers and servers among the ranks, as weft_template_params has them: checked. */
struct weft__servers {
    int workers; /* ranks 0 .. workers - 1 */
    int count;   /* ranks first .. first + count - 1 */
    int first;   /* 0: they are workers as well */
    size_t window;
};

/* The problem as costs see it. */
struct weft__shape {
    int size;
    int root;
    size_t bytes;         /* of one block (params->count) */
    double largest;       /* bytes of the largest block, where they may differ, ... */
    double total;         /* ... and of the blocks of all ranks */
    const size_t *counts; /* elements of each rank's block, if they are known to differ; or NULL */
    size_t element;       /* bytes of an element */
    size_t segment;       /* bytes of a segment, 0: unsegmented */
    const struct weft_cost_model *cost;
    double load;      /* ranks of a host by its cores, at least 1 */
    const int *hosts; /* or NULL */
    const struct weft_op *op;
    struct weft__layers layers; /* of templates with layers */
    struct weft__blocks blocks; /* of templates that compress parts */
    struct weft_quantiser quantiser;
    struct weft__servers servers; /* of templates with servers */
    size_t aggregate;             /* blocks of a message, 0: by default */
    int radix;
};

/* The schedule of one rank in the making. */
struct weft__build {
    struct weft_schedule *schedule;
    int status; /* the first error that is not the schedule's */
    int rank;
    int size;
    int root;
    size_t count; /* elements of one block, or of this rank's, if it knows no other */
    /* Where the block of each rank begins among all, and their end, where they differ; or NULL:
     * multiples of `count`. Owned. */
    size_t *offsets;
    const size_t *send_counts; /* of each peer, or NULL: `count` */
    const size_t *recv_counts;
    size_t k; /* pairs, for templates on sparse vectors */
    weft_dtype_t dtype;
    const struct weft_op *op;
    int in_place;
    size_t segment; /* elements of a segment, SIZE_MAX: unsegmented */
    const int *hosts;
    /* Ranks of the schedule that 0 .. size - 1 stand for, or NULL: themselves. Tags count them. */
    const int *ranks;
    int *members;   /* owned: what `ranks` points to, if it is a group */
    int group_size; /* parameters of templates on groups */
    uint64_t version;
    const struct weft_cost_model *cost;
    struct weft__layers layers;
    struct weft__blocks blocks;
    struct weft_quantiser quantiser;
    struct weft__servers servers;
    size_t aggregate; /* as in the shape */
    int radix;
    int sent;                 /* 1: the own share of the result is wanted */
    int turn, turns;          /* of several collectives behind each other; 0 of 0: one alone */
    weft_slot_t send;         /* input, never written; -1: this rank has none */
    weft_slot_t recv;         /* or "buffer" */
    int slot_per_block;       /* the blocks of ranks are slots behind each other, from these on */
    int scratch_count;        /* scratch slots so far */
    struct weft_region spare; /* what is left of the latest one */
    struct weft_tracker *tracker;
};

/* An algorithm, beside its public description. */
struct weft__algorithm {
    void (*build)(struct weft__build *build);
    /* Predicted microseconds. */
    double (*cost)(const struct weft__shape *shape);
    /* What a segment of 0, by cost, means, in bytes; NULL: unsegmented. */
    size_t (*segment)(const struct weft__shape *shape);
    /* 1: ranks pass on blocks of others, so all of them need the counts of all. */
    int passes_on;
    /* WEFT__EXCHANGES, WEFT__FEW_BUSY. */
    unsigned goes;
    /* Messages that wait for each other, one after the other; NULL: as many as cost alpha. */
    int (*rounds)(const struct weft__shape *shape);
};

/* How an algorithm goes. */
enum {
    WEFT__EXCHANGES = 1, /* who receives sends to the same rank at that time */
    WEFT__FEW_BUSY = 2   /* not all ranks have something to do all the time: a tree, a star */
};

enum {
    WEFT__USES_OP = 1,      /* reduces: operation and datatype must fit */
    WEFT__USES_ROOT = 2,    /* the root is checked */
    WEFT__USES_DATA = 4,    /* count and datatype are checked */
    WEFT__BLOCKS = 8,       /* a slot holds a block of every rank */
    WEFT__USES_PAIRS = 32,  /* k pairs of a vector of count elements */
    WEFT__FIXED = 64,       /* the first algorithm unless asked: they differ in more than cost */
    WEFT__USES_GROUP = 16,  /* the group size is checked, and the largest group is what costs see */
    WEFT__USES_HOSTS = 128, /* which ranks share a host matters; elsewhere nobody asks */
    WEFT__USES_COUNTS = 256,      /* the block of each rank has a count of its own */
    WEFT__USES_PAIR_COUNTS = 512, /* the block of each pair of ranks */
    WEFT__USES_LAYERS = 1024,     /* layers that are merged into groups */
    WEFT__SUMS_F32 = 2048,        /* always: datatype and operation are not read */
    WEFT__USES_BLOCKS = 4096,     /* parts of the vector are compressed each in its way ... */
    WEFT__WHOLE_ROWS = 8192,      /* ... as matrices */
    WEFT__USES_SERVERS = 16384    /* ranks are workers, servers or both */
};

/* The radix of k-nomial trees where none is given, and the largest. */
enum { WEFT__RADIX = 4, WEFT__MOST_RADIX = 16 };

struct weft__template {
    struct weft_template public; /* algorithms in the order of `impl` */
    const struct weft__algorithm *impl;
    unsigned flags;
    /* Makes the user's slots and states the results. */
    void (*slots)(struct weft__build *build);
};

/* The flags of a template; 0 if there is none of this name. */
unsigned weft__template_flags(const char *name);
/* weft_template_build(), on behalf of @who. */
int weft__template_build(const char *who, const char *name, int rank, int size,
                         const struct weft_template_params *given, struct weft_schedule **schedule);

/* A file each; registry/registry.c has the table. */
extern const struct weft__template weft__activation_template;
extern const struct weft__template weft__allgather_template;
extern const struct weft__template weft__allgatherv_template;
extern const struct weft__template weft__allreduce_template;
extern const struct weft__template weft__alltoall_template;
extern const struct weft__template weft__alltoallv_template;
extern const struct weft__template weft__barrier_template;
extern const struct weft__template weft__broadcast_template;
extern const struct weft__template weft__exscan_template;
extern const struct weft__template weft__gather_template;
extern const struct weft__template weft__gatherv_template;
extern const struct weft__template weft__group_allreduce_template;
extern const struct weft__template weft__gtopk_template;
extern const struct weft__template weft__merged_allreduce_template;
extern const struct weft__template weft__neighbour_exchange_template;
extern const struct weft__template weft__oktopk_template;
extern const struct weft__template weft__powersgd_allreduce_template;
extern const struct weft__template weft__projected_allreduce_template;
extern const struct weft__template weft__quantised_allreduce_template;
extern const struct weft__template weft__reduce_template;
extern const struct weft__template weft__reduce_scatter_template;
extern const struct weft__template weft__reduce_scatterv_template;
extern const struct weft__template weft__scan_template;
extern const struct weft__template weft__scatter_template;
extern const struct weft__template weft__scatterv_template;
extern const struct weft__template weft__server_step_template;
extern const struct weft__template weft__topk_allgather_template;
extern const struct weft__template weft__wait_avoiding_allreduce_template;

/* ---- schedules/allreduce.c ---- */

/* Algorithm number `index` of the template allreduce, in place on all of a slot of `count`
 * elements. Turn number build->turn of build->turns. */
void weft__build_allreduce(struct weft__build *build, size_t index, weft_slot_t slot, size_t count);

/* ---- params.c ---- */

/* The parameters with defaults for what the caller's struct does not have; params may be NULL. */
int weft__params_read(const char *who, struct weft_template_params *full,
                      const struct weft_template_params *params);
/* The costs that are given, or the defaults where there are none. */
int weft__params_cost(const char *who, const struct weft_cost_model *given,
                      struct weft_cost_model *model);
/* Checks what the template uses, and completes what depends on other parameters. */
int weft__params_check(const struct weft__template *template, int size,
                       struct weft_template_params *params);
/* The largest of counts first .. end - 1 and their sum, in elements, where they are wanted; refused
 * if the sum is too large. */
int weft__params_sum(const char *name, const char *member, const size_t *counts, int first, int end,
                     weft_dtype_t dtype, size_t *largest, size_t *total);

/* The quantiser that is given, or all defaults: checked, with its bucket. */
int weft__params_quantiser(const char *who, const struct weft_quantiser *given,
                           struct weft_quantiser *quantiser);
/* Layers and groups as parameters that have been checked say it. */
struct weft__layers weft__params_layers(const struct weft_template_params *params);

/* Workers and servers as parameters that have been checked say it. */
struct weft__servers weft__params_servers(const struct weft_template_params *params, int size);

/* ---- blocks.c ---- */

/* The checks and defaults of parameters of templates with blocks; the count becomes theirs. */
int weft__blocks_check(const struct weft__template *template, struct weft_template_params *params);
/* The blocks as parameters that have been checked say it. */
struct weft__blocks weft__blocks_of(const struct weft__template *template,
                                    const struct weft_template_params *params);
/* Elements that are sent of all of them. */
size_t weft__blocks_sent(const struct weft__blocks *blocks);
/* Microseconds of projecting all of them, or of reconstructing them. */
double weft__blocks_cost(const struct weft__shape *shape);

static inline const struct weft_compressed_block *weft__blocks_at(const struct weft__blocks *blocks,
                                                                  size_t index)
{
    return blocks->list ? &blocks->list[index] : &blocks->own[index];
}

/* Slices of a block that has them. */
static inline size_t weft__block_slices(const struct weft_compressed_block *block)
{
    return block->count / block->slice + (block->count % block->slice != 0);
}

/* Elements that are sent of one block. */
static inline size_t weft__block_sent(const struct weft_compressed_block *block)
{
    return block->slice ? weft__block_slices(block) * block->components : block->count;
}

/* ---- build.c ---- */

/* ranks: of the schedule; those of the shape, but for templates on groups. */
int weft__build_init(struct weft__build *build, int rank, int ranks,
                     const struct weft__shape *shape, const struct weft_template_params *params);
/* Takes the counts of all ranks' blocks. */
void weft__build_set_counts(struct weft__build *build, const size_t *counts);
/* Ends it: gives the schedule to the caller, or frees it and returns the first error. */
int weft__build_finish(struct weft__build *build, struct weft_schedule **schedule);

/* A slot of the user. */
weft_slot_t weft__build_slot(struct weft__build *build, const char *name, size_t count,
                             weft_slot_kind_t kind);
/* "send" of send_count elements and "recv" of recv_count; in place only "recv", of the larger. */
void weft__build_pair(struct weft__build *build, size_t send_count, size_t recv_count);
/* A slot for the block of each rank, "stem.0" and so on; counts NULL: of the sizes of the build's
 * blocks. Returns the first. */
weft_slot_t weft__build_block_slots(struct weft__build *build, const char *stem,
                                    const size_t *counts, weft_slot_kind_t kind);
/* States that dst is the combination of from[offset ...] of ranks first .. first + ranks - 1. */
void weft__build_result(struct weft__build *build, struct weft_region dst, const char *from,
                        size_t offset, int first, int ranks);
/* Makes a slot for the next `parts` regions of scratch, `count` elements together: few slots make a
 * run small. The regions begin on cache lines. */
void weft__build_reserve(struct weft__build *build, size_t count, size_t parts);
/* A region of scratch that nobody else uses, from what was reserved or in a slot of its own. */
struct weft_region weft__build_scratch(struct weft__build *build, size_t count);

/* count elements from element offset of a region. */
static inline struct weft_region weft__part(struct weft_region region, size_t offset, size_t count)
{
    return weft_region_at(region.slot, region.offset + offset, count);
}

static inline int weft__build_is_root(const struct weft__build *build)
{
    return build->rank == build->root;
}

/* Where block number `index` begins among the blocks of all ranks; index = size: their end. */
static inline size_t weft__build_offset(const struct weft__build *build, int index)
{
    return build->offsets ? build->offsets[index] : (size_t)index * build->count;
}

/* Elements of this rank's block. */
static inline size_t weft__build_own(const struct weft__build *build)
{
    return build->offsets ? build->offsets[build->rank + 1] - build->offsets[build->rank]
                          : build->count;
}

/* Elements of blocks lo .. hi - 1. */
static inline size_t weft__build_range(const struct weft__build *build, int lo, int hi)
{
    return weft__build_offset(build, hi) - weft__build_offset(build, lo);
}

/* Blocks lo .. hi - 1 of a slot that holds one of every rank. */
static inline struct weft_region weft__build_blocks(const struct weft__build *build,
                                                    weft_slot_t slot, int lo, int hi)
{
    return weft_region_at(slot, weft__build_offset(build, lo), weft__build_range(build, lo, hi));
}

/* The same in a region that begins with block `first`. */
static inline struct weft_region weft__build_within(const struct weft__build *build,
                                                    struct weft_region region, int first, int lo,
                                                    int hi)
{
    return weft__part(region, weft__build_range(build, first, lo),
                      weft__build_range(build, lo, hi));
}

/* One logical message each, cut into segments; those of no elements are left out, on both sides.
 * `message` tells messages from one rank to one other apart. */
void weft__build_send(struct weft__build *build, struct weft_region region, int peer,
                      uint64_t message);
void weft__build_recv(struct weft__build *build, struct weft_region region, int peer,
                      uint64_t message);
/* Receives the other's part and combines: dst = own op other, or other op own if other_first. */
void weft__build_recv_reduce(struct weft__build *build, struct weft_region dst,
                             struct weft_region own, int peer, uint64_t message, int other_first);
/* As above in two steps, so that receives can be posted before something else. */
void weft__build_reduce(struct weft__build *build, struct weft_region dst, struct weft_region a,
                        struct weft_region b);
/* Copies unless they are the same region, or empty. */
void weft__build_copy(struct weft__build *build, struct weft_region dst, struct weft_region src);
/* The same segment by segment, so that one may be on its way while another has not come. */
void weft__build_reduce_segments(struct weft__build *build, struct weft_region dst,
                                 struct weft_region a, struct weft_region b);
void weft__build_copy_segments(struct weft__build *build, struct weft_region dst,
                               struct weft_region src);

/* Segment number i of a region; segment_count() of them. */
size_t weft__segment_count(struct weft__build *build, size_t count);
struct weft_region weft__segment_at(const struct weft__build *build, struct weft_region region,
                                    size_t index);
/* A single segment as a message of its own. */
void weft__build_send_segment(struct weft__build *build, struct weft_region region, size_t index,
                              int peer, uint64_t message);
void weft__build_recv_segment(struct weft__build *build, struct weft_region region, size_t index,
                              int peer, uint64_t message);
/* The same of a region that is the segment, wherever it lies: also of no elements, to tell that
 * something is so. Returns the node. */
weft_node_t weft__build_send_part(struct weft__build *build, struct weft_region part, size_t index,
                                  int peer, uint64_t message);
weft_node_t weft__build_recv_part(struct weft__build *build, struct weft_region part, size_t index,
                                  int peer, uint64_t message);

/* ---- layout.c: who talks to whom ---- */

/* Offset of block i if count elements are cut into n blocks whose sizes differ by at most one. */
size_t weft__block_offset(size_t count, int n, int i);

/* Some of the ranks, in a line; ranks NULL: all, by number. */
struct weft__group {
    const int *ranks;
    int size;
    int me;
};
static inline int weft__group_rank(const struct weft__group *group, int index)
{
    return group->ranks ? group->ranks[index] : index;
}

/*
 * A binomial tree over ranges: a range is halved, and the leader of the half without the range's
 * leader is that half's lowest. Every subtree is a contiguous range [lo, hi), for any size and
 * root: so blocks need no rotation, and operations that do not commute need no detour over rank 0.
 */
struct weft__tree {
    int parent; /* -1: the root */
    int lo, hi; /* own subtree, itself included */
    int child_count;
    struct weft__tree_child {
        int index;
        int lo, hi;
    } child[128]; /* the largest subtree first */
};
void weft__tree_make(struct weft__tree *tree, int index, int size, int root);
/* The same with ranges cut into `radix` parts rather than halves, as equal as can be. */
void weft__knomial_make(struct weft__tree *tree, int index, int size, int root, int radix);
/* The radix of a build or a shape, `otherwise` if none is given. */
static inline int weft__radix(int given, int otherwise)
{
    return given ? given : otherwise;
}

/*
 * A binary tree in the order of ranks: a range is led by its middle, between its two halves. A
 * rank stands between the ranks of its left subtree and those of its right one, so what passes it
 * keeps their order; it has at most three neighbours, so segments follow each other at once.
 */
struct weft__inorder {
    int parent, left, right; /* -1: there is none */
    int lo, hi;              /* own subtree, itself included: [lo, hi) */
};
void weft__inorder_make(struct weft__inorder *tree, int index, int size);
/* The same with the root on top, between the ranks below and above it; how many hops it is high. */
void weft__inorder_make_rooted(struct weft__inorder *tree, int index, int size, int root);
int weft__inorder_height(int size, int root);

/* The largest power of two that is not above size, and its exponent. */
int weft__power_below(int size, int *exponent);

/* Broadcast of region from index root of a group, reduction of *current (which becomes `acc`) to
 * it; both along weft__tree. */
void weft__tree_broadcast(struct weft__build *build, const struct weft__group *group, int root,
                          struct weft_region region, uint64_t message);
void weft__tree_reduce(struct weft__build *build, const struct weft__group *group, int root,
                       struct weft_region *current, struct weft_region acc, uint64_t message);

/* The same along any tree, of which only the indices of parent and children are looked at. */
void weft__tree_send_down(struct weft__build *build, const struct weft__group *group,
                          const struct weft__tree *tree, struct weft_region region,
                          uint64_t message);
void weft__tree_combine_up(struct weft__build *build, const struct weft__group *group,
                           const struct weft__tree *tree, struct weft_region *current,
                           struct weft_region acc, uint64_t message);

/* The members of the largest group (weft/groups.h); group_size 0: the default. */
int weft__group_largest(int ranks, int group_size);

/* ---- cost.c ---- */

/* ceil(log2(n)), n >= 1. */
int weft__log2_ceil(int n);
/* A message of bytes in segments; the same and its reduction. */
double weft__cost_message(const struct weft__shape *shape, double bytes);
double weft__cost_combine(const struct weft__shape *shape, double bytes);
/* The bytes of the average block, and the most that n blocks of successive ranks have together. */
double weft__cost_mean(const struct weft__shape *shape);
double weft__cost_blocks(const struct weft__shape *shape, double n);
/* Blocks of all ranks that come to one, or from one: along weft__tree, straight. */
double weft__cost_block_tree(const struct weft__shape *shape);
double weft__cost_block_knomial(const struct weft__shape *shape, int gathers);
double weft__cost_block_star(const struct weft__shape *shape);
/* The same from the root. */
double weft__cost_block_fan(const struct weft__shape *shape);
/* The same message of one rank to n others. */
double weft__cost_fan(const struct weft__shape *shape, int n, double bytes);
/* P - 1 messages, at least: where ranks share cores, these do the work of all. */
double weft__cost_spread(const struct weft__shape *shape, double bytes);
/* Rounds of those of radix k: ceil(logk P); where everybody sends to everybody, or to one: 1. */
int weft__radix_rounds(const struct weft__shape *shape);
int weft__star_rounds(const struct weft__shape *shape);
/* A message, or a combination, from the root of a k-nomial tree to its leaves: those of a level one
 * after the other. */
double weft__cost_knomial(const struct weft__shape *shape, double bytes, int reduces);
/* A segmented pipeline over hops ranks in a line, with (reduces 1) or without reduction; where
 * ranks share cores, at least the work of all on these. */
double weft__cost_chain(const struct weft__shape *shape, double bytes, int hops, int reduces);
/* The segment that is best for it, in bytes; 0: unsegmented. */
size_t weft__segment_chain(const struct weft__shape *shape, double bytes, int hops, int reduces);
/* Blocks of all ranks, of which each goes around a ring: what the largest makes wait beyond what
 * blocks of the average would, and the segment that is best for it (blocks that hardly differ: 0).
 */
double weft__cost_ring_wait(const struct weft__shape *shape, int reduces);
size_t weft__segment_ring(const struct weft__shape *shape, int reduces);

#endif
