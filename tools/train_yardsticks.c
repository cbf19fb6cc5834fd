/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * At the end of its step a rank has arrived at the time it left the step before plus its compute and
 * its delay; it leaves when those whom it waits for have arrived.
 */
#include "train_yardsticks.h"

struct play {
    /** When each rank left its latest step, and when it arrived at the end of the current one. */
    double *left;
    double *arrived;
    double *alone;
    int *peers;
};

static double leave(const struct play *play, const struct train_options *options,
                    const struct train_algorithm *algorithm, int rank, int ranks, uint64_t step,
                    double last)
{
    int count = 0;
    double time = play->arrived[rank];

    if (algorithm->waits_for) {
        count = algorithm->waits_for(options, rank, ranks, step, play->peers);
    }
    if (count == TRAIN_EVERYONE) {
        return last;
    }
    for (int i = 0; i < count; i++) {
        double peer = play->arrived[play->peers[i]];
        time = peer > time ? peer : time;
    }
    return time;
}

static double latest(const double *times, int count)
{
    double last = times[0];

    for (int i = 1; i < count; i++) {
        last = times[i] > last ? times[i] : last;
    }
    return last;
}

int train_yardsticks(struct train_yardsticks *yardsticks, const struct train_options *options,
                     const struct train_algorithm *algorithm, int ranks,
                     const double *compute_seconds)
{
    double *times = weft_memory_alloc((size_t)ranks, 3 * sizeof(*times));
    int *peers = weft_memory_alloc((size_t)ranks, sizeof(*peers));
    struct play play = {times, times + ranks, times + 2 * ranks, peers};

    if (!times || !peers) {
        weft_memory_free(peers);
        weft_memory_free(times);
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the yardsticks of %d ranks", ranks);
    }
    for (uint64_t step = 0; step < options->steps; step++) {
        for (int rank = 0; rank < ranks; rank++) {
            double own = compute_seconds[rank] +
                         train_delay(&options->imbalance, options->seed, step, rank, ranks);
            play.alone[rank] += own;
            play.arrived[rank] = play.left[rank] + own;
        }
        double last = latest(play.arrived, ranks);
        for (int rank = 0; rank < ranks; rank++) {
            play.left[rank] = leave(&play, options, algorithm, rank, ranks, step, last);
        }
    }
    yardsticks->ideal_seconds = latest(play.alone, ranks);
    yardsticks->bound_seconds = latest(play.left, ranks);
    weft_memory_free(peers);
    weft_memory_free(times);
    return WEFT_OK;
}
