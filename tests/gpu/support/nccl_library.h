/* SPDX-License-Identifier: BSD-3-Clause */
/* What the stand-in of NCCL tells tests. Where NCCL itself is there it tells nothing. */
#ifndef WEFT_TESTS_GPU_NCCL_LIBRARY_H
#define WEFT_TESTS_GPU_NCCL_LIBRARY_H

#include "tests/support/ranks.h"

/* Whether it is the stand-in. */
int nccl_stands_in(void);
/* Ranks, each with a device; afterwards nothing has been misused, and nothing is left. */
void nccl_play(ranks_fn fn, int size, weft_progress_t progress, void *user);
/* How often a function has been called. */
unsigned long nccl_calls(const char *name);
/* The n-th call from now on fails; 0: none does. Of the stand-in only. */
void nccl_fail_at(unsigned long n);

#endif
