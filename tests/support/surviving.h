/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that die at random moments, in virtual time, and the others, who go on among themselves.
 *
 * Everything is drawn from a seed: how many ranks, the network, who dies and when, what the ranks
 * do with each context. Whenever something fails they shrink it and go on with the result. What
 * weft_context_shrink() has given is compared over all ranks, also those that have died since. Each
 * seed is played twice: the second time one more rank dies, about when it began or ended a shrink.
 */
#ifndef WEFT_TESTS_SURVIVING_H
#define WEFT_TESTS_SURVIVING_H

#include <stdint.h>

enum { SURVIVING_RANKS = 24, SURVIVING_TEXT = 700 };

struct surviving_counts {
    uint64_t events;
    uint64_t deaths;  /* that happened before the end */
    uint64_t shrinks; /* that have returned a context, on any rank */
    uint64_t during;  /* of them with a dead rank in it: it died during the call */
};

/* Plays a seed. 0; or -1 with a text. What happened is added to the counts. */
int surviving_play(uint64_t seed, struct surviving_counts *counts, char text[SURVIVING_TEXT]);

#endif
