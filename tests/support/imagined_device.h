/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices that are imagined, for virtual ranks: memory of the host, streams that go on by an
 * operation now and then, as a seed draws it, and communicators that execute what is put on a
 * stream in that order and end nothing before its other end is there, in all strictness: a group
 * that is not at the head of its stream does not exist. It stands in the place of libweft-cuda, and
 * of the functions of tests/gpu/support/device_memory.h. All in one thread.
 *
 * Misuse ends the process: of a communicator or its stream while that is in progress, of memory
 * that is not there, of groups whose ends do not fit.
 */
#ifndef WEFT_TESTS_IMAGINED_DEVICE_H
#define WEFT_TESTS_IMAGINED_DEVICE_H

#include <stddef.h>
#include <stdint.h>

/* Before a play: everything of the play before is gone. */
void imagined_begin(uint64_t seed);
/* Something happens on the devices, perhaps. */
void imagined_step(void);
/* After it: what was misused or is left ends the process. */
void imagined_end(void);

/* Groups that communicators have executed so far, and how many waited at the head of their stream
 * for one that was put there later. */
uint64_t imagined_groups(void);
uint64_t imagined_waits(void);

/* For the deadlocked: each stream's head, and the ends that it waits for, on standard error. */
void imagined_report(void);

#endif
