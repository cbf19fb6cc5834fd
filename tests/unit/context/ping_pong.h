/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ranks that wait for each other, and fall asleep over it. */
#ifndef WEFT_TESTS_PING_PONG_H
#define WEFT_TESTS_PING_PONG_H

#include "support/ranks.h"
#include "tests/support/bind.h"

/* Falls asleep at once when there is nothing to do. */
static inline void sleepy(struct weft_context_config *config)
{
    config->spin_ns = WEFT_NS_NONE;
    config->yield_ns = WEFT_NS_NONE;
    config->helper_yield_ns = WEFT_NS_NONE;
}

/* rank 0: send to 1, receive from 1; rank 1: receive, then send. */
static inline struct weft_plan *ping_pong(int rank)
{
    struct weft_schedule *s = new_schedule(rank, 2);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 1, WEFT_SLOT_INOUT);
    weft_node_t send, recv;
    if (rank == 0) {
        send = weft_schedule_add_send(s, weft_region_at(slot, 0, 1), 1, 0);
        recv = weft_schedule_add_recv(s, weft_region_at(slot, 0, 1), 1, 0);
        weft_schedule_add_order(s, send, recv);
    } else {
        recv = weft_schedule_add_recv(s, weft_region_at(slot, 0, 1), 0, 0);
        send = weft_schedule_add_send(s, weft_region_at(slot, 0, 1), 0, 0);
        weft_schedule_add_order(s, recv, send);
    }
    return commit(s);
}

#endif
