/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Templates: ready-made schedules of collectives, and the choice of their algorithm by cost.
 *
 * A template is a pure function (rank, size, parameters) -> schedule. It does no I/O, starts no
 * thread, and is deterministic; its result is stated in the schedule (weft_schedule_add_result()).
 */
#ifndef WEFT_TEMPLATE_H
#define WEFT_TEMPLATE_H

#include <weft/compress.h>
#include <weft/cost.h>
#include <weft/run.h>
#include <weft/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/** weft_template_params.segment: messages are not cut. */
#define WEFT_SEGMENT_NONE SIZE_MAX

/** A part of a vector that is compressed alike: projected slice by slice (projected-allreduce), or
 *  factored as a matrix of rows of `slice` elements (powersgd-allreduce). */
struct weft_compressed_block {
    /** Elements. powersgd-allreduce: whole rows. */
    size_t count;
    /** K: elements of a slice, of which the last may have fewer; or of a row. 0: the part is sent
     *  as it is. */
    size_t slice;
    /** d: components of a slice, 0 .. slice; or r, the rank of the factors. */
    size_t components;
};

/** Parameters of templates; each template documents which it reads. */
struct weft_template_params {
    size_t struct_size;
    /** Elements of one block: what each rank contributes to allgather and allreduce, what each pair
     *  exchanges in alltoall, what each rank gets from scatter and reduce-scatter. A plain
     *  number. */
    size_t count;
    /** Default WEFT_F32. */
    weft_dtype_t dtype;
    /** Default sum. Borrowed; the schedule keeps its own reference. */
    const struct weft_op *op;
    /** NULL: chosen by cost. Must be the same on all ranks. */
    const char *algo;
    int root;
    /** 1: slot "recv" (inout) holds the rank's contribution at the start, where MPI_IN_PLACE would
     *  have it; there is no slot "send" then. Only the root's affair in gather and gatherv (its
     *  block is in "recv"), reduce (its contribution is in "recv"), scatter and scatterv (its block
     *  stays in "send"): other ranks ignore it there, so they need not know what the root has. No
     *  effect on broadcast, whose one slot is "buffer" (inout). Elsewhere the same on all ranks.
     *  docs/templates.md lists the slots of every template. */
    int in_place;
    /** Bytes of a segment, or WEFT_SEGMENT_NONE. Default: by cost. */
    size_t segment;
    /** For templates on groups; 0: their default. */
    int group_size;
    uint64_t version;
    /** For sparse templates: the most pairs of a list. 0: a thousandth of count. The vector has k
     *  elements if that is more than count: so many has the slot "residual" then. */
    size_t k;
    /** NULL: weft_cost_model_init(, "local"). Must be the same on all ranks. */
    const struct weft_cost_model *cost;
    /** hosts[r]: the host (machine) of rank r, as weft_context_hosts() gives it, any numbers from 0
     *  on; or NULL: all ranks on one. For hierarchical algorithms. */
    const int *hosts;
    /** counts[r]: elements of the block of rank r, where blocks differ (allgatherv, gatherv,
     *  scatterv, reduce-scatterv): as many entries as ranks. NULL: `count` each. Read while the
     *  schedule is built. The same on all ranks in allgatherv and reduce-scatterv. In gatherv and
     *  scatterv the root needs them all, and of another rank's only its own, counts[rank], is
     *  looked at; it may as well leave `counts` NULL and give its number as `count`. */
    const size_t *counts;
    /** 1: in gatherv and scatterv, too, `counts` is the same on all ranks. Then an algorithm may be
     *  chosen in which ranks pass on blocks of others. Must be the same on all ranks. */
    int counts_agreed;
    /** alltoallv: send_counts[r] elements go to rank r, recv_counts[r] come from it. The other rank
     *  of a pair must say the same of it, and nobody else knows. NULL: `count` each. In place only
     *  recv_counts counts, for both directions. Read while the schedule is built. */
    const size_t *send_counts;
    const size_t *recv_counts;
    /** merged-allreduce: layers[i] elements are of layer i, in the order in which gradients appear;
     *  layer_count of them, and `count` is not looked at. NULL: `count` cut into layer_count layers
     *  (0: 4). Read while the schedule is built. The same on all ranks, as the next. */
    const size_t *layers;
    size_t layer_count;
    /** merged-allreduce: groups[g] successive layers, at least 1, are merged into group g;
     *  group_count of them. NULL: the layers cut into group_count groups (0: of two each, as far as
     *  there are). */
    const size_t *groups;
    size_t group_count;
    /** projected-allreduce, powersgd-allreduce: the vector is these blocks, one behind the other;
     *  block_count of them, and `count`, `slice` and `components` are not looked at. NULL: one
     *  block. Read while the schedule is built. The same on all ranks, as the next ones. */
    const struct weft_compressed_block *blocks;
    size_t block_count;
    /** Of the one block, as in weft_compressed_block. 0: slices of 64 elements; an eighth as many
     *  components (powersgd-allreduce: 2). */
    size_t slice;
    size_t components;
    /** quantised-allreduce; NULL: all defaults. Read while the schedule is built. */
    const struct weft_quantiser *quantiser;
    /** quantised-allreduce, powersgd-allreduce: 1: there is a slot "sent" (output) for this rank's
     *  share of the result. Over all ranks "sent" adds up to "recv", up to rounding: so what "send"
     *  has beyond "sent" is what this rank may keep for the next time. */
    int sent;
    /** server-step: how many of the ranks are servers, 1 (0: default) to all but one: the last
     *  ones. The same on all ranks, as the next. */
    int servers;
    /** server-step: 1: the first `servers` ranks are servers, up to all, and all ranks are
     *  workers. */
    int colocated;
    /** server-step, algorithm paced: segments that a worker has on the way to a server. 0: 1. */
    size_t window;
    /** Where the memory of all slots is, scratch too (weft_schedule_set_memory()). Ranks may differ
     *  in it. The choice of an algorithm and of segments does not look at it, only at `cost`.
     *  Default WEFT_MEMORY_HOST. */
    weft_memory_t memory;
    /** Algorithm pat: blocks of a message at most, which bounds what is kept as well. 0: as many as
     *  the cost model's segment_bytes hold, at least one. The same on all ranks, as the next. */
    size_t aggregate;
    /** Algorithms named k-nomial, and those with a radix: k, 2 to 16. 0: 4. */
    int radix;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_template_params_init_sized(struct weft_template_params *params, size_t size);
#define weft_template_params_init(params)                                                          \
    weft_template_params_init_sized((params), sizeof *(params))

/** Description of an algorithm of a template. Static storage. */
struct weft_algorithm {
    const char *name;
    /** Formula in P, m (bytes of the whole vector), alpha, beta, gamma. */
    const char *cost;
    /** Order of reduction and reproducibility; source (paper, section). */
    const char *notes;
    /** 1: keeps the order of ranks, so it serves operations that do not commute. */
    int ordered;
};

/** Description of a template. Static storage. */
struct weft_template {
    const char *name;
    const char *summary;
    /** Names of the parameters it reads, separated by blanks: "count dtype op algo root segment".
     */
    const char *parameters;
    /** What reaches which element of which slot, in words. */
    const char *result;
    const struct weft_algorithm *algorithms;
    size_t algorithm_count;
};

/** How many templates there are; template number @p index, NULL past the end. */
WEFT_EXPORT size_t weft_template_count(void);
WEFT_EXPORT const struct weft_template *weft_template_at(size_t index);

/** The template with a name; NULL with an error text that lists the names. */
WEFT_EXPORT const struct weft_template *weft_template_find(const char *name);

/**
 * Builds the schedule of a template for one rank. The caller owns the schedule.
 * @return WEFT_OK; WEFT_ERR_NOT_FOUND (no such template or algorithm); WEFT_ERR_INVALID (root out
 *         of range, operation not defined on the datatype, counts too large together for size_t);
 *         WEFT_ERR_UNSUPPORTED (algorithm does not serve the operation); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_template_build(const char *name, int rank, int size,
                                    const struct weft_template_params *params,
                                    struct weft_schedule **schedule);

/** The algorithm that weft_template_build() would choose, and its predicted time. */
WEFT_EXPORT int weft_template_choose(const char *name, int size,
                                     const struct weft_template_params *params, const char **algo,
                                     double *cost_us);

/**
 * Builds and commits the schedule of the calling rank of @p context in one call; with params->cost
 * NULL the costs of the context's transport are used, with params->hosts NULL its hosts. The caller
 * owns the plan. Does not communicate or block; the other ranks need the same parameters, but for
 * what is said to be the root's or a pair's affair alone.
 * @return as weft_template_build(); WEFT_ERR_INVALID (an argument is NULL); what
 *         weft_schedule_commit() returns.
 */
WEFT_EXPORT int weft_template_create_plan(struct weft_plan **plan, struct weft_context *context,
                                          const char *name,
                                          const struct weft_template_params *params);

/**
 * As weft_template_create_plan(), and creates a run of the plan on @p context, which the run keeps.
 * Collective as weft_run_create() is, does not block.
 * @return as weft_template_create_plan() and weft_run_create().
 */
WEFT_EXPORT int weft_template_create_run(struct weft_run **run, struct weft_context *context,
                                         const char *name,
                                         const struct weft_template_params *params);

#ifdef __cplusplus
}
#endif

#endif
