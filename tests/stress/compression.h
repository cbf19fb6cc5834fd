/* SPDX-License-Identifier: BSD-3-Clause */
/* How gradients are compressed in a play: settings of all methods, drawn, and what they may do. */
#ifndef WEFT_TESTS_COMPRESSION_H
#define WEFT_TESTS_COMPRESSION_H

#include "play.h"

struct compression {
    struct weft_compressed_average_config config; /* points to the others */
    struct weft_quantiser quantiser;
    struct weft_gradiveq_config gradiveq;
    struct weft_powersgd_config powersgd;
    /* 1: gradients are compression_planted() and projections of them lose nothing, whatever the
     * order of elements, so all sums are right. */
    int planted;
};

/* GradiVeQ is drawn where there is LAPACK; its phases are a few steps long. */
void compression_draw(struct compression *compression, uint64_t *random);
/* 1: residuals are kept. */
int compression_keeps(const struct compression *compression);
/* Numbers that differ in magnitude, up to 128, with zeros among them. */
float compression_gradient(uint64_t seed, int rank, int step, size_t element);
/* A number an element, and one that a tensor has in the step. */
float compression_planted(uint64_t seed, int rank, int step, size_t tensor, size_t element);
/* How far a sum may be from that of gradients of which none is above `most`; -1: nothing is known,
 * as what was not sent before may come with it, or the method loses what it does. */
double compression_bound(const struct compression *compression, weft_compressed_phase_t phase,
                         int step, int ranks, double most);

/* What phases should be, step after step. */
struct compression_phases {
    const struct compression *compression;
    weft_compressed_phase_t phase; /* of the step to come */
    uint64_t left;
};

void compression_phases_begin(struct compression_phases *phases,
                              const struct compression *compression);
/* After a step in which `votes` of the ranks were counted. */
void compression_phases_step(struct compression_phases *phases, int votes, int ranks);

#endif
