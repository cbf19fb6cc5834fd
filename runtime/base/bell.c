/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping and waking: futexes, and the bell made of them. */
#include "runtime/base/bell.h"
#include "runtime/base/clock.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <weft/context.h>

static void wait_on(_Atomic uint32_t *word, uint32_t seen, uint32_t bits, uint64_t timeout_ns,
                    int private)
{
    struct timespec until;
    struct timespec *limit = NULL;
    if (timeout_ns < WEFT_NEVER) {
        uint64_t at = weft__now();
        at = timeout_ns > (uint64_t)INT64_MAX - at ? (uint64_t)INT64_MAX : at + timeout_ns;
        until.tv_sec = (time_t)(at / 1000000000u);
        until.tv_nsec = (long)(at % 1000000000u);
        limit = &until;
    }
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET | private, seen, limit, NULL, bits);
}

void weft__futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t bits, uint64_t timeout_ns)
{
    wait_on(word, seen, bits, timeout_ns, FUTEX_PRIVATE_FLAG);
}

void weft__futex_wake(_Atomic uint32_t *word, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, INT32_MAX, NULL, NULL, bits);
}

void weft__bell_ring(struct weft__bell *bell)
{
    /* Sequentially consistent: pairs with the registration of a sleeper, after which it looks. */
    if (atomic_load_explicit(&bell->sleeper, memory_order_seq_cst) == 0)
        return;
    uint32_t bits = atomic_exchange_explicit(&bell->sleeper, 0, memory_order_seq_cst);
    if (bits != 0)
        weft__bell_wake(bell, bits);
}

void weft__bell_wake(struct weft__bell *bell, uint32_t bits)
{
    atomic_fetch_add_explicit(&bell->count, 1, memory_order_seq_cst);
    syscall(SYS_futex, &bell->count, FUTEX_WAKE_BITSET | (bell->shared ? 0 : FUTEX_PRIVATE_FLAG),
            INT32_MAX, NULL, NULL, bits);
}

void weft__bell_wait(struct weft__bell *bell, uint32_t seen, uint32_t bits, uint64_t timeout_ns)
{
    wait_on(&bell->count, seen, bits, timeout_ns, bell->shared ? 0 : FUTEX_PRIVATE_FLAG);
}
