/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The other end of every message. Each rank's sends and receives are sorted by (peer, tag); the
 * sends of r to p then stand beside the receives of p from r in one merge. What is left over is
 * paired by likeness (another tag, another rank), because a message that went astray is one fault,
 * not two.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/search.h"
#include "runtime/check/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct end {
    int32_t peer;
    uint32_t tag;
    uint32_t node;
};

struct ends {
    struct end *at;
    size_t *first; /* those of rank r: at[first[r] .. first[r + 1]); ascending in peer, tag, node */
};

struct matching {
    struct weft__check *check;
    struct ends sends, recvs;
    uint32_t *lost_sends, *lost_recvs; /* nodes without a counterpart */
    size_t lost_send_count, lost_send_capacity;
    size_t lost_recv_count, lost_recv_capacity;
};

static int compare_ends(const void *left, const void *right)
{
    const struct end *a = left, *b = right;

    if (a->peer != b->peer)
        return a->peer < b->peer ? -1 : 1;
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static int collect(struct weft__check *check, struct ends *ends, weft_node_kind_t kind)
{
    size_t count = 0;

    for (uint32_t n = 0; n < check->nodes; n++)
        count += weft__check_node(check, n)->kind == kind;
    ends->at = weft__malloc(count, sizeof *ends->at);
    ends->first = weft__calloc((size_t)check->size + 1, sizeof *ends->first);
    if (!ends->at || !ends->first)
        return -1;
    count = 0;
    for (int r = 0; r < check->size; r++) {
        struct end *own = ends->at + count;
        int sorted = 1;

        for (uint32_t n = check->base[r]; n < check->base[r + 1]; n++) {
            const struct weft__snode *node = weft__check_node(check, n);

            if (node->kind != kind)
                continue;
            ends->at[count] = (struct end){node->peer, node->tag, n};
            sorted = sorted && (&ends->at[count] == own ||
                                compare_ends(&ends->at[count - 1], &ends->at[count]) < 0);
            count++;
        }
        ends->first[r + 1] = count;
        if (!sorted)
            qsort(own, count - ends->first[r], sizeof *own, compare_ends);
    }
    return 0;
}

/* ---- duplicates ---- */

static int duplicate(struct weft__check *check, uint32_t one, uint32_t two, const char *what)
{
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_MATCH);
    weft__out_format(&fault.text, "rank %d: ", check->rank_of[one]);
    weft__fault_node(check, &fault, one);
    weft__out_text(&fault.text, " and ");
    weft__fault_node(check, &fault, two);
    weft__out_format(&fault.text, " are two %s of one peer and tag; they could not be told apart",
                     what);
    return weft__fault_end(check, &fault);
}

static int find_duplicates(struct weft__check *check, const struct ends *ends, const char *what)
{
    for (int r = 0; r < check->size; r++)
        for (size_t i = ends->first[r] + 1; i < ends->first[r + 1]; i++)
            if (ends->at[i].peer == ends->at[i - 1].peer &&
                ends->at[i].tag == ends->at[i - 1].tag &&
                duplicate(check, ends->at[i - 1].node, ends->at[i].node, what))
                return -1;
    return 0;
}

/* ---- pairs ---- */

static size_t lower(const struct ends *ends, int rank, int32_t peer, uint32_t tag)
{
    struct end key = {peer, tag, 0};
    size_t low = ends->first[rank], high = ends->first[rank + 1];

    WEFT__SEARCH(low, high, middle, compare_ends(&ends->at[middle], &key) < 0)
    return low;
}

static int lose(uint32_t **list, size_t *count, size_t *capacity, uint32_t node)
{
    if (weft__grow((void **)list, capacity, *count + 1, sizeof **list))
        return -1;
    (*list)[(*count)++] = node;
    return 0;
}

/* One of the same peer and tag stands before it: a fault already. */
static int is_repeated(const struct ends *ends, int rank, size_t i)
{
    return i > ends->first[rank] && ends->at[i].peer == ends->at[i - 1].peer &&
           ends->at[i].tag == ends->at[i - 1].tag;
}

/* Both lists are in the order of tags; of nodes with one tag the first is meant. */
static int pair_up(struct matching *m, int rank)
{
    struct weft__check *check = m->check;
    const struct ends *sends = &m->sends, *recvs = &m->recvs;
    size_t i = sends->first[rank], end = sends->first[rank + 1], j = 0;
    int32_t peer = -1;

    for (; i < end; i++) {
        const struct end *send = &sends->at[i];

        if (send->peer != peer) {
            peer = send->peer;
            j = lower(recvs, peer, rank, send->tag);
        }
        while (j < recvs->first[peer + 1] && recvs->at[j].peer == rank &&
               recvs->at[j].tag < send->tag)
            j++;
        if (j < recvs->first[peer + 1] && recvs->at[j].peer == rank &&
            recvs->at[j].tag == send->tag) {
            check->partner[send->node] = recvs->at[j].node;
            check->partner[recvs->at[j].node] = send->node;
            check->report->summary.messages++;
            j++;
        } else if (check->schedules[peer] && !is_repeated(sends, rank, i) &&
                   lose(&m->lost_sends, &m->lost_send_count, &m->lost_send_capacity, send->node)) {
            return -1;
        }
    }
    return 0;
}

static int find_lost_recvs(struct matching *m)
{
    struct weft__check *check = m->check;

    for (int r = 0; r < check->size; r++)
        for (size_t i = m->recvs.first[r]; i < m->recvs.first[r + 1]; i++) {
            const struct end *recv = &m->recvs.at[i];

            if (check->partner[recv->node] == WEFT__CHECK_NONE && check->schedules[recv->peer] &&
                !is_repeated(&m->recvs, r, i) &&
                lose(&m->lost_recvs, &m->lost_recv_count, &m->lost_recv_capacity, recv->node))
                return -1;
        }
    return 0;
}

/* ---- what is left over ---- */

/* How alike a send and a receive are that do not match: 0 is not at all. */
static int likeness(const struct weft__check *check, uint32_t send, uint32_t recv)
{
    const struct weft__snode *s = weft__check_node(check, send);
    const struct weft__snode *r = weft__check_node(check, recv);
    int to = s->peer == check->rank_of[recv], from = r->peer == check->rank_of[send];

    if (to && from)
        return 3; /* the tags differ */
    return (to || from) && s->tag == r->tag ? 2 : 0;
}

static int one_lost(struct weft__check *check, uint32_t node, uint32_t other)
{
    const struct weft__snode *n = weft__check_node(check, node);
    int send = n->kind == WEFT_NODE_SEND;
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_MATCH);
    weft__out_format(&fault.text, "rank %d: ", check->rank_of[node]);
    weft__fault_node(check, &fault, node);
    weft__fault_rank(&fault, n->peer);
    if (other == WEFT__CHECK_NONE) {
        weft__out_format(&fault.text, " has no %s on rank %d", send ? "receive" : "send", n->peer);
        return weft__fault_end(check, &fault);
    }
    const struct weft__snode *o = weft__check_node(check, other);

    weft__out_format(&fault.text, " has no receive on rank %d, and rank %d: ", n->peer,
                     check->rank_of[other]);
    weft__fault_node(check, &fault, other);
    weft__fault_rank(&fault, o->peer);
    weft__out_format(&fault.text, " has no send on rank %d: %s", o->peer,
                     n->tag != o->tag ? "the tags differ" : "the ranks differ");
    return weft__fault_end(check, &fault);
}

/* Pairs that are considered; beyond that every end is a fault of its own. */
#define MOST_LIKENESS 4000000u

static int report_lost(struct matching *m)
{
    struct weft__check *check = m->check;
    uint64_t pairs = 0;

    for (int wanted = 3; wanted >= 0; wanted--) {
        for (size_t i = 0; i < m->lost_send_count; i++) {
            size_t j;

            if (m->lost_sends[i] == WEFT__CHECK_NONE)
                continue;
            for (j = 0; wanted && j < m->lost_recv_count && pairs < MOST_LIKENESS; j++, pairs++)
                if (m->lost_recvs[j] != WEFT__CHECK_NONE &&
                    likeness(check, m->lost_sends[i], m->lost_recvs[j]) == wanted)
                    break;
            if (wanted && (j == m->lost_recv_count || pairs >= MOST_LIKENESS))
                continue;
            if (one_lost(check, m->lost_sends[i], wanted ? m->lost_recvs[j] : WEFT__CHECK_NONE))
                return -1;
            m->lost_sends[i] = WEFT__CHECK_NONE;
            if (wanted)
                m->lost_recvs[j] = WEFT__CHECK_NONE;
        }
    }
    for (size_t j = 0; j < m->lost_recv_count; j++)
        if (m->lost_recvs[j] != WEFT__CHECK_NONE &&
            one_lost(check, m->lost_recvs[j], WEFT__CHECK_NONE))
            return -1;
    return 0;
}

/* ---- sizes ---- */

struct shape {
    const struct weft__buffer *buffer;
    const struct weft__value *value; /* or NULL */
    uint64_t most;                   /* bytes */
};

static struct shape shape_of(const struct weft__check *check, uint32_t node)
{
    const struct weft_schedule *s = weft__check_schedule(check, node);
    const struct weft_region *region = weft__check_region(check, node, 0);
    struct shape shape = {.buffer = &s->buffers[region->slot]};
    uint64_t count = region->count;

    if (region->value) {
        shape.value = &s->values[region->value - 1];
        count = shape.value->max < count ? shape.value->max : count;
    }
    shape.most = count * weft_dtype_size(shape.buffer->dtype);
    return shape;
}

static int size_fault(struct weft__check *check, uint32_t send, uint32_t recv, uint64_t bytes,
                      const char *why)
{
    struct weft__fault fault;

    check->mismatched[recv] = 1;
    weft__fault_begin(&fault, WEFT_FAULT_SIZE);
    fault.bytes = bytes;
    weft__out_format(&fault.text, "rank %d: ", check->rank_of[send]);
    weft__fault_node(check, &fault, send);
    weft__out_format(&fault.text, " and rank %d: ", check->rank_of[recv]);
    weft__fault_node(check, &fault, recv);
    weft__out_format(&fault.text, ": %s", why);
    return weft__fault_end(check, &fault);
}

static int compare_sizes(struct weft__check *check, uint32_t send, uint32_t recv)
{
    struct shape from = shape_of(check, send), to = shape_of(check, recv);
    uint64_t apart = from.most > to.most ? from.most - to.most : to.most - from.most;
    int up_to = weft__check_node(check, recv)->up_to;
    char why[160];

    if (from.buffer->dtype != to.buffer->dtype)
        snprintf(why, sizeof why, "%s is sent, %s is received", weft_dtype_name(from.buffer->dtype),
                 weft_dtype_name(to.buffer->dtype));
    else if (up_to && from.most > to.most)
        snprintf(why, sizeof why, "up to %" PRIu64 " bytes may be sent, at most %" PRIu64 " fit",
                 from.most, to.most);
    else if (!up_to && apart)
        snprintf(why, sizeof why, "%" PRIu64 " bytes are sent, %" PRIu64 " are expected", from.most,
                 to.most);
    else
        return 0; /* values are compared when they are known, in the execution */
    return size_fault(check, send, recv, apart, why);
}

static int find_sizes(struct weft__check *check)
{
    for (uint32_t n = 0; n < check->nodes; n++)
        if (check->partner[n] != WEFT__CHECK_NONE &&
            weft__check_node(check, n)->kind == WEFT_NODE_SEND &&
            compare_sizes(check, n, check->partner[n]))
            return -1;
    return 0;
}

/* ---- signals ---- */

static int signal_fault(struct weft__check *check, uint32_t node, const char *why, int peer)
{
    struct weft__fault fault;

    weft__fault_begin(&fault, WEFT_FAULT_MATCH);
    weft__out_format(&fault.text, "rank %d: ", check->rank_of[node]);
    weft__fault_node(check, &fault, node);
    if (peer >= 0)
        weft__fault_rank(&fault, peer);
    weft__out_format(&fault.text, "%s", why);
    return weft__fault_end(check, &fault);
}

static int match_signals(struct weft__check *check)
{
    size_t first, last;

    for (uint32_t n = 0; n < check->nodes; n++) {
        const struct weft__snode *node = weft__check_node(check, n);

        if (node->kind != WEFT_NODE_SIGNAL || !check->schedules[node->peer])
            continue;
        weft__check_listeners(check, node->peer, node->tag, &first, &last);
        if (first == last &&
            signal_fault(check, n, ": that rank has no event with this channel", node->peer))
            return -1;
        for (; first < last; first++)
            check->listeners[first].signals++;
    }
    for (int r = 0; r < check->size; r++)
        if (!check->schedules[r])
            return 0; /* whoever is missing may be the one that signals */
    for (size_t i = 0; i < check->listener_count; i++)
        if (!check->listeners[i].signals &&
            signal_fault(check, check->listeners[i].node, ": no rank signals this channel", -1))
            return -1;
    return 0;
}

int weft__check_match(struct weft__check *check)
{
    struct matching m = {.check = check};
    int status = -1;

    if (collect(check, &m.sends, WEFT_NODE_SEND) || collect(check, &m.recvs, WEFT_NODE_RECV) ||
        find_duplicates(check, &m.sends, "sends") || find_duplicates(check, &m.recvs, "receives"))
        goto done;
    for (int r = 0; r < check->size; r++)
        if (pair_up(&m, r))
            goto done;
    if (find_lost_recvs(&m) || report_lost(&m) || match_signals(check) || find_sizes(check))
        goto done;
    status = 0;
done:
    weft__free(m.lost_recvs);
    weft__free(m.lost_sends);
    weft__free(m.recvs.first);
    weft__free(m.recvs.at);
    weft__free(m.sends.first);
    weft__free(m.sends.at);
    return status;
}
