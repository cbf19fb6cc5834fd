/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One execution of all ranks: nodes start when their predecessors allow it, a send ends when its
 * receive has started (rendezvous), and values move when both have. Without choices the order in
 * which ready nodes are taken does not matter: what could start can still start later, and where
 * memory could see a difference there is a race, which is a fault of its own. So one execution
 * stands for all, and an ANY node needs no enumeration: that it starts with the first of its
 * predecessors only lets more happen.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/search.h"
#include "runtime/check/check.h"
#include "runtime/graph/settle.h"

#include <string.h>

/* ---- life ---- */

int weft__execution_create(struct weft__execution *execution, struct weft__check *check)
{
    *execution = (struct weft__execution){.check = check, .symbolic = 1};
    execution->state = weft__malloc(check->nodes, sizeof *execution->state);
    execution->left = weft__malloc(check->nodes, sizeof *execution->left);
    execution->next = weft__malloc(check->nodes, sizeof *execution->next);
    execution->queues = weft__malloc((size_t)check->size, sizeof *execution->queues);
    execution->busy = weft__malloc((size_t)check->size, sizeof *execution->busy);
    execution->lines = weft__calloc(check->slot_base[check->size], sizeof *execution->lines);
    execution->numbers = weft__malloc(check->value_base[check->size], sizeof *execution->numbers);
    execution->signalled = weft__malloc(check->listener_count, 1);
    execution->winner = weft__malloc(check->choice_count, sizeof *execution->winner);
    execution->declined = weft__malloc(check->member_count, 1);
    execution->options = weft__malloc(check->member_count, sizeof *execution->options);
    if (weft__values_create(&execution->values, check))
        return -1;
    if (check->synchronised &&
        !(execution->order = weft__malloc(check->nodes, sizeof *execution->order)))
        return -1;
    return execution->state && execution->left && execution->next && execution->queues &&
                   execution->busy && execution->lines && execution->numbers &&
                   execution->signalled && execution->winner && execution->declined &&
                   execution->options
               ? 0
               : -1;
}

void weft__execution_destroy(struct weft__execution *execution)
{
    const struct weft__check *check = execution->check;

    for (size_t i = 0; execution->lines && i < check->slot_base[check->size]; i++)
        weft__free(execution->lines[i].at);
    for (int i = 0; i < 3; i++)
        weft__free(execution->pieces[i].at);
    weft__values_destroy(&execution->values);
    weft__free(execution->order);
    weft__free(execution->decisions.taken);
    weft__free(execution->decisions.of);
    weft__free(execution->parts);
    weft__free(execution->covers);
    weft__free(execution->odd);
    weft__free(execution->options);
    weft__free(execution->declined);
    weft__free(execution->winner);
    weft__free(execution->signalled);
    weft__free(execution->numbers);
    weft__free(execution->lines);
    weft__free(execution->busy);
    weft__free(execution->queues);
    weft__free(execution->next);
    weft__free(execution->left);
    weft__free(execution->state);
}

static int reset_memory(struct weft__execution *execution)
{
    const struct weft__check *check = execution->check;
    const struct weft__values *values = &execution->values;

    for (int r = 0; r < check->size; r++) {
        const struct weft_schedule *s = check->schedules[r];

        for (size_t i = 0; s && i < s->buffer_count; i++)
            if (weft__line_reset(&execution->lines[check->slot_base[r] + i],
                                 s->buffers[i].count * weft_dtype_size(s->buffers[i].dtype),
                                 WEFT__VALUE_UNDEFINED))
                return -1;
        for (size_t i = 0; s && i < s->value_count; i++)
            execution->numbers[check->value_base[r] + i] =
                (struct weft__number){0, 1 + (uint32_t)(check->value_base[r] + i)};
    }
    for (size_t i = 0; i < values->leaf_count; i++) {
        const struct weft__leaf *leaf = &values->leaves[i];
        struct weft__line *line =
            &execution->lines[check->slot_base[leaf->rank] + (size_t)leaf->slot];

        if (line->count)
            line->at[0].value = WEFT__VALUE_FIRST + (uint32_t)i;
    }
    return 0;
}

static int reset(struct weft__execution *execution)
{
    const struct weft__check *check = execution->check;
    int missing = 0;

    memset(execution->state, WEFT__NODE_WAITS, check->nodes);
    if (check->nodes)
        memcpy(execution->left, check->waits, check->nodes * sizeof *execution->left);
    for (int r = 0; r < check->size; r++)
        missing |= !check->schedules[r];
    /* What nobody signals is a fault already, or the business of a rank that is missing. */
    for (size_t i = 0; i < check->listener_count; i++)
        execution->signalled[i] =
            !check->listeners[i].signals &&
            (missing || weft__check_node(check, check->listeners[i].node)->choice < 0);
    for (size_t c = 0; c < check->choice_count; c++)
        execution->winner[c] = WEFT__CHECK_NONE;
    memset(execution->declined, 0, check->member_count);
    for (int r = 0; r < check->size; r++)
        execution->queues[r] = (struct weft__queue){WEFT__CHECK_NONE, WEFT__CHECK_NONE, 0};
    execution->head = execution->busy_count = 0;
    execution->ended = 0;
    execution->order_count = 0;
    execution->happened = 1;
    execution->started = 0;
    return execution->symbolic ? reset_memory(execution) : 0;
}

/* ---- ends ---- */

/* Puts a node into the queue of its rank: ranks take turns, each for as long as it can go on,
 * because what one rank touches is in the cache then. */
static void push(struct weft__execution *execution, uint32_t node, enum weft__state state)
{
    int32_t rank = execution->check->rank_of[node];
    struct weft__queue *queue = &execution->queues[rank];
    int queued =
        execution->state[node] == WEFT__NODE_READY || execution->state[node] == WEFT__NODE_RETIRING;

    execution->state[node] = (uint8_t)state;
    if (queued) /* it is retired before it could start */
        return;
    execution->next[node] = WEFT__CHECK_NONE;
    if (queue->first == WEFT__CHECK_NONE)
        queue->first = node;
    else
        execution->next[queue->last] = node;
    queue->last = node;
    if (queue->busy)
        return;
    queue->busy = 1;
    execution->busy[(execution->head + execution->busy_count++) % (size_t)execution->check->size] =
        rank;
}

static void end_node(struct weft__execution *execution, uint32_t node)
{
    const struct weft__check *check = execution->check;

    execution->state[node] = WEFT__NODE_ENDED;
    execution->ended++;
    if (execution->order)
        execution->order[execution->order_count++] = node;
    for (uint32_t e = check->first[node]; e < check->first[node + 1]; e++) {
        uint32_t next = check->after[e];

        if (weft__settle(&execution->left[next], weft__check_node(check, next)->any, 1) ==
            WEFT__SETTLED_STARTS)
            push(execution, next, WEFT__NODE_READY);
    }
}

static void retire_node(struct weft__execution *execution, uint32_t node)
{
    const struct weft__check *check = execution->check;

    execution->state[node] = WEFT__NODE_RETIRED;
    execution->ended++;
    for (uint32_t e = check->first[node]; e < check->first[node + 1]; e++) {
        uint32_t next = check->after[e];

        if (weft__settle(&execution->left[next], weft__check_node(check, next)->any, 0) ==
            WEFT__SETTLED_RETIRES)
            push(execution, next, WEFT__NODE_RETIRING);
    }
}

/* ---- starts ---- */

static int start_message(struct weft__execution *execution, uint32_t id)
{
    const struct weft__check *check = execution->check;
    uint32_t other = check->partner[id];
    int is_send = weft__check_node(check, id)->kind == WEFT_NODE_SEND;

    execution->state[id] = WEFT__NODE_STARTED;
    if (other == WEFT__CHECK_NONE) { /* a fault already, or its rank is missing */
        if (!is_send && execution->symbolic && weft__execution_forget(execution, id))
            return -1;
        end_node(execution, id);
        return 0;
    }
    if (execution->eager) {
        if (is_send || execution->state[other] == WEFT__NODE_ENDED)
            end_node(execution, id);
        if (is_send && execution->state[other] == WEFT__NODE_STARTED)
            end_node(execution, other);
        return 0;
    }
    if (execution->state[other] != WEFT__NODE_STARTED)
        return 0;
    if (execution->symbolic &&
        weft__execution_transfer(execution, is_send ? id : other, is_send ? other : id))
        return -1;
    end_node(execution, other);
    end_node(execution, id);
    return 0;
}

/* The choice of a rank with a number: there is one. */
static size_t choice_of(const struct weft__check *check, int rank, int choice)
{
    const struct weft__member *members = check->members;
    size_t at = 0;

    WEFT__SEARCH(at, check->choice_count, middle,
                 members[check->choice_first[middle]].rank < rank ||
                     (members[check->choice_first[middle]].rank == rank &&
                      members[check->choice_first[middle]].choice < choice))
    return at;
}

static int is_signalled(const struct weft__execution *execution, uint32_t event)
{
    const struct weft__check *check = execution->check;
    size_t first, last;

    weft__check_listeners(check, check->rank_of[event], weft__check_node(check, event)->tag, &first,
                          &last);
    return first < last && execution->signalled[first];
}

static void start_event(struct weft__execution *execution, uint32_t id)
{
    const struct weft__snode *node = weft__check_node(execution->check, id);
    int fired;

    execution->state[id] = WEFT__NODE_STARTED;
    if (node->choice >= 0)
        fired = execution->winner[choice_of(execution->check, execution->check->rank_of[id],
                                            node->choice)] == id;
    else
        fired = node->tag == WEFT_CHANNEL_NONE || is_signalled(execution, id);
    if (fired)
        end_node(execution, id);
}

void weft__execution_win(struct weft__execution *execution, size_t choice, uint32_t event)
{
    const struct weft__check *check = execution->check;

    execution->winner[choice] = event;
    for (uint32_t m = check->choice_first[choice]; m < check->choice_first[choice + 1]; m++) {
        uint32_t other = check->members[m].node;

        if (other == event || execution->state[other] >= WEFT__NODE_ENDED)
            continue;
        execution->left[other] = 0;
        push(execution, other, WEFT__NODE_RETIRING);
    }
    if (execution->state[event] == WEFT__NODE_STARTED)
        end_node(execution, event);
}

static void start_signal(struct weft__execution *execution, uint32_t id)
{
    const struct weft__check *check = execution->check;
    const struct weft__snode *node = weft__check_node(check, id);
    size_t first, last;

    weft__check_listeners(check, node->peer, node->tag, &first, &last);
    for (; first < last; first++) {
        uint32_t event = check->listeners[first].node;

        execution->signalled[first] = 1;
        if (execution->state[event] == WEFT__NODE_STARTED &&
            weft__check_node(check, event)->choice < 0)
            end_node(execution, event);
    }
    end_node(execution, id);
}

static int start(struct weft__execution *execution, uint32_t id)
{
    switch (weft__check_node(execution->check, id)->kind) {
    case WEFT_NODE_SEND:
    case WEFT_NODE_RECV:
        return start_message(execution, id);
    case WEFT_NODE_EVENT:
        start_event(execution, id);
        return 0;
    case WEFT_NODE_SIGNAL:
        start_signal(execution, id);
        return 0;
    case WEFT_NODE_JOIN:
        break;
    default:
        if (execution->symbolic && weft__execution_compute(execution, id))
            return -1;
    }
    end_node(execution, id);
    return 0;
}

int weft__execute(struct weft__execution *execution)
{
    const struct weft__check *check = execution->check;
    int decided = 1;

    if (reset(execution))
        return -1;
    for (uint32_t n = 0; n < check->nodes; n++)
        if (!check->waits[n])
            push(execution, n, WEFT__NODE_READY);
    while (decided > 0) {
        while (execution->busy_count) {
            struct weft__queue *queue = &execution->queues[execution->busy[execution->head]];

            while (queue->first != WEFT__CHECK_NONE) {
                uint32_t id = queue->first;

                queue->first = execution->next[id];
                if (execution->state[id] == WEFT__NODE_RETIRING)
                    retire_node(execution, id);
                else if (start(execution, id))
                    return -1;
            }
            queue->busy = 0;
            execution->head = (execution->head + 1) % (size_t)check->size;
            execution->busy_count--;
        }
        decided = execution->ended < check->nodes ? weft__execution_decide(execution) : 0;
    }
    return decided;
}
