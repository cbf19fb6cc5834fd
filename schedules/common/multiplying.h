/* SPDX-License-Identifier: BSD-3-Clause */
/* Allreduce by recursive multiplying: multiplying.c. */
#ifndef WEFT_SCHEDULES_COMMON_MULTIPLYING_H
#define WEFT_SCHEDULES_COMMON_MULTIPLYING_H

#include "schedules/common/template.h"

/* The largest factor where none is given: more messages at a time cost more than they save. */
enum { WEFT__MULTIPLYING_RADIX = 3 };

/* The rank that participant v of some is: the first of its contiguous ranks. */
int weft__multiplying_leader(int size, int participants, int v);
/* The part of all ranks comes to recv; *current, where the own one is, becomes that. */
void weft__build_multiplying(struct weft__build *build, struct weft_region *current,
                             struct weft_region recv);
double weft__cost_multiplying(const struct weft__shape *shape);
/* A round for each factor, and two where ranks are folded. */
int weft__multiplying_rounds(const struct weft__shape *shape);

#endif
