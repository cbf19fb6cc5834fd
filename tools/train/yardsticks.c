/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * At the end of its step a rank has arrived at the time it left the step before plus its compute
 * and its delay; it leaves when those whom it waits for have arrived. Where exchanges are beside
 * the gradient, it leaves when they have left the step before, which is when they posted, and it
 * has arrived itself; and after the last step what was posted is waited for.
 *
 * Whom it waits for is in the arrivals of its step, but of servers: with a bound s on how far a
 * rank may be ahead it is everybody's arrival s steps ago, and where ranks take turns it is the one
 * before it, of rank 0 the last one in the step before.
 */
#include "tools/train/yardsticks.h"

#include <math.h>
#include <string.h>

struct play {
    /** When each rank left its latest step, and when it arrived at the end of the current one. */
    double *left;
    double *arrived;
    double *alone;
    /** When each began the exchange that it waits for. */
    double *began;
    /** When the last has arrived at the end of each of the latest steps, round and round; NULL:
     *  nobody asks. */
    double *met;
    uint64_t met_count;
    /** When the last of a round had its turn. */
    double turn;
};

static double latest(const double *times, int count)
{
    double last = times[0];

    for (int i = 1; i < count; i++)
        last = times[i] > last ? times[i] : last;
    return last;
}

void train_leave_together(int ranks, const double *arrived, double *left)
{
    double last = latest(arrived, ranks);

    for (int rank = 0; rank < ranks; rank++)
        left[rank] = last;
}

static void leave_in_turns(struct play *play, int ranks)
{
    for (int rank = 0; rank < ranks; rank++)
        play->turn = play->left[rank] = fmax(play->left[rank], play->turn);
}

/* A rank that has taken c steps begins the next one when all have taken c - s. */
static void leave_ahead(struct play *play, int ranks, uint64_t step)
{
    uint64_t ahead = play->met_count - 1;

    play->met[step % play->met_count] = latest(play->arrived, ranks);
    for (int rank = 0; rank < ranks && step >= ahead; rank++)
        play->left[rank] = fmax(play->left[rank], play->met[(step - ahead) % play->met_count]);
}

/* The waits of an exchange that the ranks begin when they leave, at `step`. */
static int play_exchange(struct play *play, const struct train_options *options,
                         const struct train_algorithm *algorithm, int ranks, uint64_t step)
{
    if (algorithm->in_turns)
        leave_in_turns(play, ranks);
    if (play->met)
        leave_ahead(play, ranks, step);
    memcpy(play->began, play->left, (size_t)ranks * sizeof *play->left);
    return algorithm->leave ? algorithm->leave(options, ranks, step, play->began, play->left)
                            : WEFT_OK;
}

/* `left` is when a rank begins the step, and then when it leaves it. */
static int play_step(struct play *play, const struct train_options *options,
                     const struct train_algorithm *algorithm, int ranks, uint64_t step,
                     const double *compute_seconds)
{
    int beside = train_is_beside(options, algorithm);
    int status = WEFT_OK;

    for (int rank = 0; rank < ranks; rank++) {
        double own = compute_seconds[rank] +
                     train_delay(&options->imbalance, options->seed, step, rank, ranks);
        play->alone[rank] += own;
        play->arrived[rank] = play->left[rank] + own;
    }
    if (beside && step > 0)
        status = play_exchange(play, options, algorithm, ranks, step - 1);
    for (int rank = 0; rank < ranks; rank++)
        play->left[rank] = fmax(play->left[rank], play->arrived[rank]);
    return beside || status != WEFT_OK ? status
                                       : play_exchange(play, options, algorithm, ranks, step);
}

/* Who may be further ahead than there are steps never waits. */
static int remember(struct play *play, const struct train_options *options,
                    const struct train_algorithm *algorithm)
{
    uint64_t ahead = algorithm->ahead ? algorithm->ahead(options) : UINT64_MAX;

    if (ahead >= options->steps)
        return WEFT_OK;
    play->met_count = ahead + 1;
    play->met = weft_memory_alloc((size_t)play->met_count, sizeof *play->met);
    return play->met ? WEFT_OK
                     : weft_error_set(WEFT_ERR_MEMORY, "no memory for the yardsticks of %llu steps",
                                      (unsigned long long)play->met_count);
}

int train_yardsticks(struct train_yardsticks *yardsticks, const struct train_options *options,
                     const struct train_algorithm *algorithm, int ranks,
                     const double *compute_seconds)
{
    double *times = weft_memory_alloc((size_t)ranks, 4 * sizeof *times);
    struct play play = {.left = times,
                        .arrived = times + ranks,
                        .alone = times + 2 * ranks,
                        .began = times + 3 * ranks};

    if (!times)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the yardsticks of %d ranks", ranks);
    int status = remember(&play, options, algorithm);
    for (uint64_t step = 0; step < options->steps && status == WEFT_OK; step++)
        status = play_step(&play, options, algorithm, ranks, step, compute_seconds);
    if (status == WEFT_OK && options->steps > 0 && train_is_beside(options, algorithm))
        status = play_exchange(&play, options, algorithm, ranks, options->steps - 1);
    if (status == WEFT_OK) {
        yardsticks->ideal_seconds = latest(play.alone, ranks);
        yardsticks->bound_seconds = latest(play.left, ranks);
    }
    weft_memory_free(play.met);
    weft_memory_free(times);
    return status;
}
