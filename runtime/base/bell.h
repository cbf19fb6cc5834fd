/* SPDX-License-Identifier: BSD-3-Clause */
/* How threads sleep and are woken. */
#ifndef WEFT_RUNTIME_BASE_BELL_H
#define WEFT_RUNTIME_BASE_BELL_H

#include <stdatomic.h>
#include <stdint.h>

/* Bits that mean any sleeper. */
#define WEFT__BELL_ANY UINT32_MAX

/* Sleeps while *word is `seen`, until one of `bits` is woken or the time is up. Among the threads
 * of this process. */
void weft__futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t bits, uint64_t timeout_ns);
/* Wakes all that sleep on the word with one of `bits`. */
void weft__futex_wake(_Atomic uint32_t *word, uint32_t bits);

/*
 * A bell wakes the thread that sleeps for a context. At most one caller and one helper sleep on it,
 * told apart by bit. Ring pairs with the sleeper's last look at its queues: both are sequentially
 * consistent, so either the ringer sees the sleeper, or the sleeper sees what was queued.
 */
enum { WEFT__BELL_CALLER = 1, WEFT__BELL_HELPER = 2 };
struct weft__bell {
    _Atomic uint32_t sleeper; /* 0, or whom to wake */
    _Atomic uint32_t count;   /* the futex */
    uint32_t shared;          /* it lies in memory that other processes ring it in */
};
void weft__bell_ring(struct weft__bell *bell);
/* Sleeps until the bell's count differs from `seen` and one of `bits` is woken, or time is up. */
void weft__bell_wait(struct weft__bell *bell, uint32_t seen, uint32_t bits, uint64_t timeout_ns);
/* Wakes sleepers on `bits` whether or not they are registered. */
void weft__bell_wake(struct weft__bell *bell, uint32_t bits);

#endif
