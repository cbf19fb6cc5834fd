/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the ranks' models went: their mean after some of the steps, and how far they were from it.
 * All ranks of a process add to one history, so it takes as much memory for 1,024 ranks as for two.
 */
#ifndef WEFT_TOOLS_TRAIN_HISTORY_H
#define WEFT_TOOLS_TRAIN_HISTORY_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct train_history;

/** The models of all ranks after as many steps each. */
struct train_history_point {
    /** Steps; UINT64_MAX of the last models. */
    uint64_t done;
    /** When the ranks had done these steps: the mean over ranks, from their common start. */
    double seconds;
    /** The consensus distance: the root of the mean over ranks of the squared Euclidean distance to
     *  the mean model. 0 below a millionth of the models' norm. */
    double distance;
};

/**
 * Prepares for models of @p parameters elements, of @p ranks ranks of this process, and @p steps
 * steps. Kept are the initial model, the first steps, one step of each sixtieth (of larger parts
 * for large models), drawn from @p seed so that no period of an algorithm hides between them, and
 * the last models.
 * @return WEFT_OK or WEFT_ERR_MEMORY.
 */
int train_history_create(struct train_history **history, size_t parameters, int ranks,
                         uint64_t steps, uint64_t seed);

/** 1: the models after @p done steps are kept; @p next as in train_history_add(), for all calls of
 *  a rank are in the order of steps. */
int train_history_wants(const struct train_history *history, size_t *next, uint64_t done);

/**
 * Adds a rank's model, a list of @p count f32 tensors, if the models after @p done steps are kept.
 * From any thread.
 * @param next in and out: of the rank; 0 before its first model.
 * @return WEFT_OK or WEFT_ERR_MEMORY.
 */
int train_history_add(struct train_history *history, size_t *next, uint64_t done, double seconds,
                      const struct weft_piece *tensors, size_t count);

/** The same for the last model, whatever the number of steps. */
int train_history_add_last(struct train_history *history, double seconds,
                           const struct weft_piece *tensors, size_t count);

/** Adds up the histories of all processes, each of one rank of @p context. Collective, blocking. */
int train_history_merge(struct train_history *history, struct weft_context *context);

/** How many points there are: those to which every rank has added. */
size_t train_history_count(const struct train_history *history);

/** Fills point @p number, and the mean model into @p mean. Once no rank adds any more. */
void train_history_get(const struct train_history *history, size_t number,
                       struct train_history_point *point, float *mean);

/** NULL is accepted. */
void train_history_destroy(struct train_history *history);

#endif
