/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Structs that grow from version to version: what a program configures, what the library fills.
 *
 * Such a struct begins with `size_t struct_size`: the size that it had when the program was
 * compiled. New members come behind the old ones, never into the padding at the end.
 *
 * What a program configures is begun with its `_init` macro, which passes that size on:
 *
 *     struct weft_run_config config;
 *     weft_run_config_init(&config);
 *     config.deadline_ns = 1000000;
 *
 * or with `{.struct_size = sizeof config}`. Every other member that is 0 means its default, which
 * stands at the member; "none" and "never" have constants that are not 0.
 * Ranks, seeds, versions and counts of elements are plain numbers. Every function that takes
 * such a struct goes by one policy:
 *
 *     struct_size 0, or no size that a struct can have    WEFT_ERR_INVALID
 *     shorter: of an older version                        what is missing is 0
 *     longer: of a newer version                          WEFT_ERR_INVALID unless all of it is 0
 *     a member out of its range                           WEFT_ERR_INVALID
 *
 * What the library fills has its size set by the caller:
 *
 *     struct weft_context_stats stats = {.struct_size = sizeof stats};
 *     weft_context_get_stats(context, &stats);
 *
 * It writes what it knows within that size, zeroes the rest of it and writes nothing beyond. A size
 * of 0 is WEFT_ERR_INVALID.
 *
 * Every public struct but those in the two lists below goes by this, or is opaque.
 *
 * Frozen structs have no size and stay as they are for ever:
 *
 *     weft_region            handed over by value
 *     weft_piece             an array of them is handed over
 *     weft_input_piece       an array of them is handed over
 *     weft_argument          an array of them in weft_call
 *     weft_compute_argument  an array of them is handed over
 *     weft_compressed_block  an array of them in weft_template_params
 *     weft_part_slot         an array of them in weft_part_config
 *     weft_server_part       an array of them is filled
 *     weft_parameter         an array of them in weft_read_options, and handed out
 *     weft_projection_squares  three sums, added to by each call
 *     weft_sparse            an array of them is handed over; made for each step of a loop
 *     weft_device_term       an array of them in weft_device_sum
 *     weft_device_found      two numbers, added to by each call, by a device
 *     weft_virtual_fault     an array of them in weft_virtual_config
 *     weft_sim_firing        an array of them in weft_sim_config
 *     weft_sim_op_cost       an array of them in weft_sim_config, weft_goal_options
 *     weft_sim_node          an array of them in weft_sim_result
 *     weft_sim_step          an array of them in weft_sim_result
 *     weft_sim_fault         an array of them in weft_sim_result
 *     weft_sim_level         an array of them in weft_sim_result
 *     weft_sim_link          an array of them in weft_sim_result
 *     weft_check_node        an array of them in weft_fault
 *     weft_algorithm         an array of them in weft_template
 *     weft_tensor_shape      an array of them is handed over
 *     weft_merge_layer       an array of them is handed over
 *     weft_merge_point       an array of them in weft_merge_cost
 *     weft_group_average_past  two of them in weft_group_average_state
 *
 * Structs of the library are made by it alone. A program points to them, and they grow behind
 * their last member:
 *
 *     weft_call              for the time of a call
 *     weft_series_arm        for the time of a call
 *     weft_virtual_event     for the time of a call
 *     weft_template          static
 *     weft_transport         static; its struct_size says which members are there
 *     weft_sim_result        until it is destroyed; its struct_size says which members are there
 */
#ifndef WEFT_SIZED_H
#define WEFT_SIZED_H

#include <weft/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A time that never comes, a period that never ends: deadlines, timeouts, stalls, retries, faults,
 *  spinning, yielding. Other times cannot be it. */
#define WEFT_NEVER UINT64_MAX
/** No time at all, where 0 means a default: patience, spinning, yielding, sleeping. Other times
 *  cannot be it. */
#define WEFT_NS_NONE (UINT64_MAX - 1)

/**
 * The functions below are for objects on top of weft, whose structs grow as weft's own do.
 *
 * Zeroes the @p size bytes at @p object and sets its struct_size. Nothing if @p object is NULL or
 * @p size is less than a size_t. Any thread.
 */
WEFT_EXPORT void weft_sized_init(void *object, size_t size);

/**
 * Reads a configuration by the policy above into one of this version.
 * @param who, name the caller's function and its argument, for the error's text.
 * @param given  what the caller gave; NULL: all defaults.
 * @param object receives it: @p size bytes, all written. Its struct_size becomes @p size.
 * @return WEFT_OK; WEFT_ERR_INVALID, and @p object is as weft_sized_init() leaves it.
 */
WEFT_EXPORT int weft_sized_read(const char *who, const char *name, const void *given, void *object,
                                size_t size);

/**
 * Checks the struct_size of what is to be filled: to be called before anything is done that a
 * refusal could not take back.
 * @param out NULL is accepted: nothing is wanted.
 * @return WEFT_OK, WEFT_ERR_INVALID.
 */
WEFT_EXPORT int weft_sized_check(const char *who, const char *name, const void *out);

/**
 * Fills @p out, by its own struct_size, with what is at @p from, @p size bytes of this version.
 * @param out NULL is accepted: nothing is wanted.
 * @return as weft_sized_check().
 */
WEFT_EXPORT int weft_sized_fill(const char *who, const char *name, void *out, const void *from,
                                size_t size);

/**
 * Whether a member is in its range; @p member is "config->progress", say.
 * @return WEFT_OK; WEFT_ERR_INVALID with a text that names it, its value and the range. No NaN is
 *         in one.
 */
WEFT_EXPORT int weft_sized_number(const char *who, const char *member, int64_t value, int64_t least,
                                  int64_t most);
WEFT_EXPORT int weft_sized_real(const char *who, const char *member, double value, double least,
                                double most);
/** Whether @p value has no flags but @p known ones. */
WEFT_EXPORT int weft_sized_flags(const char *who, const char *member, unsigned value,
                                 unsigned known);

/**
 * Whether a time is one that its member, or an argument, may be.
 * @param special WEFT_NEVER or WEFT_NS_NONE, if it may be that; 0: neither of them.
 */
WEFT_EXPORT int weft_sized_time(const char *function, const char *member, uint64_t ns,
                                uint64_t special);

#ifdef __cplusplus
}
#endif

#endif
