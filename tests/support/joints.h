/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random schedules of joint nodes and messages, and what they compute: a seed says how many ranks
 * there are, which steps, of whom, on which elements of one slot of i32. A step comes after all
 * that share elements with it, so the result is that of the steps one after the other.
 */
#ifndef WEFT_TESTS_SUPPORT_JOINTS_H
#define WEFT_TESTS_SUPPORT_JOINTS_H

#include <stdint.h>

struct weft_schedule;

enum { JOINTS_COUNT = 400, JOINTS_MOST_RANKS = 8 };

struct joints;

/* Of a seed; size 0: drawn, too. */
struct joints *joints_create(uint64_t seed, int size);
void joints_destroy(struct joints *joints);
int joints_size(const struct joints *joints);
/* The schedule of a rank; it has slot "x" alone. */
struct weft_schedule *joints_build(const struct joints *joints, int rank);
/* What a rank begins with. */
void joints_fill(const struct joints *joints, int rank, int32_t x[JOINTS_COUNT]);
/* Ends the process if what it ends with is wrong. */
void joints_check(const struct joints *joints, int rank, const int32_t x[JOINTS_COUNT]);

#endif
