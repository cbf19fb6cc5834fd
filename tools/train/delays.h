/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Imbalance of the trainer: which rank is how late in which step. Drawn from the seed alone, so any
 * rank knows every rank's delays.
 */
#ifndef WEFT_TOOLS_TRAIN_DELAYS_H
#define WEFT_TOOLS_TRAIN_DELAYS_H

#include <stdint.h>

enum train_delay_kind {
    /** Each step two ranks, drawn anew, are late by `seconds` (one rank if there is only one). */
    TRAIN_DELAY_TWO_RANDOM,
    /** One rank is late by `seconds` at every step. */
    TRAIN_DELAY_FIXED,
    /** `count` ranks, drawn once, are late by `seconds` at every step. */
    TRAIN_DELAY_PERMANENT,
    /** Every rank is late at every step, by a lognormal time of median `seconds` and shape sigma.
     */
    TRAIN_DELAY_LOGNORMAL,
    /** The same, by a Pareto time of median `seconds` and exponent `shape`: the chance that a delay
     *  is longer than t falls as t^-shape. */
    TRAIN_DELAY_PARETO,
    /** Every rank is late at every step, by `seconds` times a number of 1.7 .. 43.5 of median 1.9
     *  with a heavy tail: Fig. 9 of Li et al. (TPDS 2021), experience for reinforcement learning.
     */
    TRAIN_DELAY_RL
};

struct train_delay_model {
    enum train_delay_kind kind;
    double seconds;
    /** Sigma or the exponent. */
    double shape;
    int rank;
    int count;
};

enum { TRAIN_DELAYS_MOST = 4 };

/** They add up; none: nobody is late. */
struct train_delays {
    struct train_delay_model models[TRAIN_DELAYS_MOST];
    int count;
};

/** What train_delays_parse() reads. */
#define TRAIN_DELAYS_SYNTAX                                                                        \
    "none, two-random:MS, fixed:RANK,MS, permanent:RANKS,MS, lognormal:MEDIAN,SIGMA, "             \
    "pareto:MEDIAN,EXPONENT or rl:FACTOR, or several joined by +"

/** Reads TRAIN_DELAYS_SYNTAX (times in milliseconds). @return WEFT_OK or WEFT_ERR_INVALID, with a
 *  text that names the part at fault. */
int train_delays_parse(struct train_delays *delays, const char *text);

/** Whether @p ranks ranks can be late so. @return WEFT_OK or WEFT_ERR_INVALID, with a text. */
int train_delays_check(const struct train_delays *delays, int ranks);

/** By how many seconds @p rank of @p ranks is late in @p step. */
double train_delay(const struct train_delays *delays, uint64_t seed, uint64_t step, int rank,
                   int ranks);

#endif
