/* SPDX-License-Identifier: BSD-3-Clause */
/* Parallel aggregated trees: pat.c. */
#ifndef WEFT_SCHEDULES_COMMON_PAT_H
#define WEFT_SCHEDULES_COMMON_PAT_H

#include "schedules/common/template.h"

/* Allgather and reduce-scatter of a build with blocks, of build->aggregate of them in a message. */
void weft__build_pat_allgather(struct weft__build *build);
void weft__build_pat_reduce_scatter(struct weft__build *build);
double weft__cost_pat(const struct weft__shape *shape, int reduces);

#endif
