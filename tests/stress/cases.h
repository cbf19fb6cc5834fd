/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases on local ranks, each of which once hung. */
#ifndef WEFT_TESTS_CASES_H
#define WEFT_TESTS_CASES_H

/* Lives each case (or the one with that name) so many times, every time in a process of its own
 * that may take so many seconds. Prints how often it hung and failed. 0 if it never did. */
int cases_run(const char *name, int runs, int patience);

#endif
