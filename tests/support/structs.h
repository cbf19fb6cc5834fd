/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opaque elements as a program has them: complex numbers, a number with its place, long double.
 * What a rank does is the same on every transport: structs_rank() returns WEFT_OK, or a status with
 * a text that says what is wrong.
 */
#ifndef WEFT_TESTS_STRUCTS_H
#define WEFT_TESTS_STRUCTS_H

#include <weft/weft.h>

/* Reductions of all algorithms, compared with plain loops, and messages between neighbours. Takes
 * `user` as 0 or 1: few counts. */
int structs_rank(struct weft_context *context, void *user);

/* A receive of at most so many elements gets a message that ends within one: the run must fail. */
int structs_broken(struct weft_context *context, void *user);

#endif
