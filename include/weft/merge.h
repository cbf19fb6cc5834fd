/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Which gradients to merge before their allreduce: plans made of layers' sizes, of the times at
 * which their gradients are ready, and of what an allreduce costs.
 *
 *     layers ready      0     1      2        3         one after the other, as they are computed
 *     groups            |= 0 =|      |== 1, 2 ==|== 3 ==|    allreduces, one at a time
 *
 * A group starts when all its layers are ready and the group before it has ended. Merging saves the
 * fixed part of an allreduce, and makes the first layers of a group wait for its last one; a plan
 * is the groups with which the last allreduce ends early.
 *
 * Source: Shi, Chu, Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
 * Algorithms" (INFOCOM 2019). docs/merging.md has the proofs and what each method is worth. All of
 * this is arithmetic: no context, no communication, nothing blocks, any thread. For the same
 * arguments a plan is the same bits on every machine.
 */
#ifndef WEFT_MERGE_H
#define WEFT_MERGE_H

#include <weft/sized.h>
#include <weft/status.h>
#include <weft/template.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A layer, in the order of the backward pass: how large its gradient is, and when it is ready. */
struct weft_merge_layer {
    /** 0: a layer without parameters, which may be merged as any other. */
    size_t bytes;
    /** Microseconds, 0 or more, from an origin that all layers of a plan share. Usually each layer
     *  is ready after the one before; none has to be. */
    double ready_us;
};

/** How layers are merged. */
typedef enum weft_merge_method {
    /** The earliest end: exact, by dynamic programming over groups of successive layers; O(L^2)
     *  time for L layers. Of the groups with that end, those of which each ends as early as can be,
     *  and of these the fewest. */
    WEFT_MERGE_EXACT,
    /** The paper's Algorithm 1 with equation 27: a layer is merged with the next if that one is
     *  ready less than the latency a after the layer could be sent. For costs that are not a + b M
     *  the inequality 26 from which equation 27 is derived takes its place. O(L). */
    WEFT_MERGE_GREEDY,
    /** WFBP: every layer by itself. */
    WEFT_MERGE_WFBP,
    /** SyncEASGD: all in one, after the last. */
    WEFT_MERGE_SINGLE,
    /** Buckets: each ends with the layer that fills it, as those of PyTorch's
     *  DistributedDataParallel do. */
    WEFT_MERGE_BUCKETS,
    /** Tensor fusion of Horovod: a thread looks every cycle, first at 0, which layers are ready,
     *  fuses them in the order in which they became so, up to a size, and looks again when the
     *  cycle is over and their allreduces have ended. The times have the waiting in them. Layers
     *  that are ready out of order are sent out of order. */
    WEFT_MERGE_CYCLES,
    /** The caller's groups: weft_merge_config.group_layers. */
    WEFT_MERGE_GIVEN
} weft_merge_method_t;

/** How a plan is to be made. */
struct weft_merge_config {
    size_t struct_size;
    /** Default WEFT_MERGE_EXACT. */
    weft_merge_method_t method;
    /** WEFT_MERGE_BUCKETS: bytes that fill a bucket, default 25 MiB. WEFT_MERGE_CYCLES: the most
     *  bytes that are fused, default 64 MiB; a larger layer goes alone. */
    size_t bucket_bytes;
    /** WEFT_MERGE_BUCKETS: bytes that fill the first one; default bucket_bytes (PyTorch: 1 MiB). */
    size_t first_bucket_bytes;
    /** WEFT_MERGE_CYCLES: microseconds of a cycle, default 5000. */
    double cycle_us;
    /** WEFT_MERGE_GIVEN: how many successive layers each group has, group_count entries that are
     *  larger than 0 and together as many as there are layers. Borrowed for the call. */
    const size_t *group_layers;
    size_t group_count;
};

WEFT_EXPORT void weft_merge_config_init_sized(struct weft_merge_config *config, size_t size);
#define weft_merge_config_init(config) weft_merge_config_init_sized((config), sizeof *(config))

/** What an allreduce of some bytes has taken. */
struct weft_merge_point {
    double bytes;
    double us;
};

/**
 * What an allreduce of M bytes takes, in microseconds: by `function` if there is one, else by
 * `points` if there are any, else a + b M. Plain numbers, of which 0 is free. A group of no bytes
 * costs what M = 0 does.
 */
struct weft_merge_cost {
    size_t struct_size;
    /** Latency: 0 or more. */
    double a_us;
    /** Microseconds a byte: 0 or more. */
    double b_us_per_byte;
    /** At least two, of ascending bytes, borrowed. Between two of them on the line through both;
     *  below the first, what the first says; beyond the last, on the line through the last two, or
     *  what the last says if that line falls. */
    const struct weft_merge_point *points;
    size_t point_count;
    /** Finite, 0 or more, the same for the same bytes; called O(L^2) times by the exact method. */
    double (*function)(void *user, double bytes);
    void *user;
};

WEFT_EXPORT void weft_merge_cost_init_sized(struct weft_merge_cost *cost, size_t size);
#define weft_merge_cost_init(cost) weft_merge_cost_init_sized((cost), sizeof *(cost))

/** In what sense no plan ends earlier. */
typedef enum weft_merge_optimal {
    /** "no": the method promises nothing. */
    WEFT_MERGE_NOT_OPTIMAL,
    /** "contiguous": no groups of successive layers, sent in the order given, end earlier. */
    WEFT_MERGE_OPTIMAL_CONTIGUOUS,
    /** "all": no groups whatsoever, sent in any order, end earlier. That is proved for costs
     *  a + b M and layers of which none is ready before the one before it. */
    WEFT_MERGE_OPTIMAL_ALL
} weft_merge_optimal_t;

/** "no", "contiguous", "all"; "unknown" for anything else. */
WEFT_EXPORT const char *weft_merge_optimal_name(weft_merge_optimal_t optimal);

/** A plan in numbers. Times as those of the layers. */
struct weft_merge_summary {
    size_t struct_size;
    weft_merge_optimal_t optimal;
    size_t layer_count;
    size_t group_count;
    /** When the last layer is ready; 0 if there are none. */
    double ready_us;
    /** When the last allreduce has ended; 0 if there are none. */
    double end_us;
    /** Of all allreduces together. */
    double communication_us;
    /** How much of that is before ready_us. */
    double hidden_us;
    /** hidden_us / communication_us; 1 if there is no communication. */
    double hidden_fraction;
};

/** A group of a plan. */
struct weft_merge_group {
    size_t struct_size;
    /** Indices of its layers, ascending but for WEFT_MERGE_CYCLES; the plan's. */
    const size_t *layers;
    size_t layer_count;
    size_t bytes;
    /** When the last of its layers is ready. */
    double ready_us;
    double start_us;
    double end_us;
    /** How much of its allreduce is before the last layer of all is ready. */
    double hidden_us;
};

/** Groups and their times. Immutable: any threads may ask it at once. */
struct weft_merge_plan;

/**
 * Makes a plan. Destroy it with weft_merge_plan_destroy().
 * Bytes are added as integers, and times in the same order by every method, so that the end of the
 * exact plan is not later by a single bit than that of any other method with contiguous groups: any
 * but WEFT_MERGE_CYCLES, and that too if no layer is ready before the one in front of it.
 * @param layers in the order of the backward pass; may be NULL if there are none, and the plan has
 *        no groups then.
 * @param config NULL: all defaults.
 * @return WEFT_OK; WEFT_ERR_INVALID (a time is negative or not finite, bytes are together too many
 *         for size_t, what the cost says is negative or not finite or makes the end so, points do
 *         not ascend, group_layers do not add up); WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_merge_plan_create(struct weft_merge_plan **plan,
                                       const struct weft_merge_layer *layers, size_t layer_count,
                                       const struct weft_merge_cost *cost,
                                       const struct weft_merge_config *config);

/** The plan in numbers. WEFT_ERR_INVALID on NULL, or a struct_size that is none. */
WEFT_EXPORT int weft_merge_plan_get_summary(const struct weft_merge_plan *plan,
                                            struct weft_merge_summary *summary);

/**
 * Group number @p group, in the order in which they are sent.
 * @return WEFT_OK; WEFT_ERR_INVALID (an argument is NULL, no such group).
 */
WEFT_EXPORT int weft_merge_plan_get_group(const struct weft_merge_plan *plan, size_t group,
                                          struct weft_merge_group *result);

/** Frees it. NULL is accepted. */
WEFT_EXPORT void weft_merge_plan_destroy(struct weft_merge_plan *plan);

/* ---- costs ---- */

/**
 * What an allreduce of @p bytes takes.
 * @param bytes finite, 0 or more.
 * @return WEFT_OK; WEFT_ERR_INVALID (an argument is NULL or out of its range, the cost is negative
 *         or not finite).
 */
WEFT_EXPORT int weft_merge_cost_get(const struct weft_merge_cost *cost, double bytes, double *us);

/**
 * The a and b, 0 or more, with which a + b M is nearest to what was measured: the least sum of
 * squares of relative errors, so that small messages count as much as large ones. O(count).
 * @param points in any order, of at least two sizes; with times larger than 0, or all 0.
 * @return WEFT_OK; WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_merge_cost_fit(const struct weft_merge_point *points, size_t count,
                                    double *a_us, double *b_us_per_byte);

/** Room for what weft_merge_cost_predict() may write. */
#define WEFT_MERGE_POINTS 136

/**
 * What weft's own allreduce is predicted to take on @p ranks ranks: the template "allreduce" by the
 * costs of its algorithms (weft_template_choose()), at no bytes and at two sizes an octave up to
 * @p most_bytes. The points are as weft_merge_cost.points wants them.
 * @param params datatype, operation, costs and hosts as for the template, and its algorithm;
 *        `count` is not looked at. NULL: all defaults.
 * @param points room for WEFT_MERGE_POINTS.
 * @param count receives how many there are, 2 or more.
 * @return WEFT_OK; WEFT_ERR_INVALID (points or count NULL); what weft_template_choose() returns.
 */
WEFT_EXPORT int weft_merge_cost_predict(const struct weft_template_params *params, int ranks,
                                        size_t most_bytes, struct weft_merge_point *points,
                                        size_t *count);

/* ---- methods as words ---- */

/** Room for what weft_merge_method_format() may write, with the end of the text. */
#define WEFT_MERGE_METHOD_TEXT 80

/**
 * Reads a method: "exact", "greedy", "wfbp", "single", "bucket[:BYTES[:FIRST]]",
 * "cycle[:BYTES[:MILLISECONDS]]". Bytes are larger than 0, with k, M or G behind them for powers of
 * 1024. What is not said is left to its default.
 * @param config its struct_size set by the caller, as weft_merge_config_init() does; all else of it
 *        is written.
 * @return WEFT_OK; WEFT_ERR_INVALID with a text that says what was expected; then nothing is
 *         written.
 */
WEFT_EXPORT int weft_merge_method_parse(const char *text, struct weft_merge_config *config);

/**
 * Writes a method as weft_merge_method_parse() reads it, with all of its numbers:
 * "bucket:26214400", "bucket:26214400:1048576", "cycle:67108864:5"; and "given", which is not read.
 * @param config NULL: all defaults.
 * @param text room for @p size bytes; WEFT_MERGE_METHOD_TEXT are enough.
 * @return WEFT_OK; WEFT_ERR_INVALID (text NULL or too short; then nothing is written).
 */
WEFT_EXPORT int weft_merge_method_format(const struct weft_merge_config *config, char *text,
                                         size_t size);

#ifdef __cplusplus
}
#endif

#endif
