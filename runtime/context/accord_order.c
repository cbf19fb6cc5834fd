/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the lists of all ranks are put together to: the order of issue, which messages have both
 * ends on devices, or what is wrong with them.
 *
 * Where peers change from version to version nobody knows which end belongs to which. Then ends of
 * one tag are alike, on all ranks: all in memory of devices, or all in the host's.
 */
#include "runtime/context/accord.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/out.h"

/* ---- writing ---- */

static size_t list_bytes(const struct weft__issue_list *list)
{
    uint32_t edges = list->count > 0 ? list->first[list->count] : 0;

    return sizeof(struct weft__accord_list) + list->count * sizeof *list->nodes +
           ((size_t)list->count + 1) * sizeof *list->first + edges * sizeof *list->after;
}

static char *put(char *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
    return to + bytes;
}

static char *put_list(char *to, const struct weft__issue_list *list)
{
    static const uint32_t none;
    const struct weft__accord_list head = {.nodes = list->count,
                                           .edges = list->count > 0 ? list->first[list->count] : 0};

    to = put(to, &head, sizeof head);
    to = put(to, list->nodes, list->count * sizeof *list->nodes);
    to = list->count > 0 ? put(to, list->first, ((size_t)list->count + 1) * sizeof *list->first)
                         : put(to, &none, sizeof none);
    return put(to, list->after, head.edges * sizeof *list->after);
}

int weft__accord_write(const struct weft__candidate *candidate, struct weft__bytes *out)
{
    const struct weft_plan *first = candidate->runs[0]->plan;
    const struct weft__accord_head head = {.plans = (uint32_t)candidate->count,
                                           .nccl = (uint32_t)candidate->nccl,
                                           .dynamic = (uint32_t)candidate->dynamic,
                                           .size = (uint32_t)first->size,
                                           .rank = (uint32_t)first->rank};
    struct weft__issue_list *lists = weft__calloc(candidate->count, sizeof *lists);
    struct weft__issue_node **nodes = weft__calloc(candidate->count, sizeof *nodes);
    int status = lists && nodes ? WEFT_OK : weft__error_memory("a list of messages");

    out->size = sizeof head;
    for (size_t p = 0; p < candidate->count && status == WEFT_OK; p++) {
        status = weft__plan_issue(candidate->runs[p]->plan, &nodes[p], &lists[p]);
        if (status == WEFT_OK)
            out->size += list_bytes(&lists[p]);
    }
    out->data = status == WEFT_OK ? weft__malloc(out->size, 1) : NULL;
    if (status == WEFT_OK && !out->data)
        status = weft__error_memory("a list of messages");
    if (status == WEFT_OK) {
        char *to = put(out->data, &head, sizeof head);

        for (size_t p = 0; p < candidate->count; p++)
            to = put_list(to, &lists[p]);
    }
    for (size_t p = 0; nodes && p < candidate->count; p++)
        weft__free(nodes[p]);
    weft__free((void *)nodes);
    weft__free(lists);
    return status;
}

/* ---- reading ---- */

/* A rank's, as they lie in what it has told; pointers into that, which is aligned to 8 bytes. */
struct told {
    struct weft__accord_head head;
    struct weft__issue_list *lists;
    uint32_t nodes; /* of all of them */
};

struct accord {
    struct told *ranks;
    int size;
};

/* The next list; NULL: it goes beyond the end. */
static const char *read_list(const char *at, const char *end, struct weft__issue_list *list)
{
    struct weft__accord_list head;

    if ((size_t)(end - at) < sizeof head)
        return NULL;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    if ((size_t)(end - at) < head.nodes * sizeof *list->nodes +
                                 ((size_t)head.nodes + 1 + head.edges) * sizeof *list->first)
        return NULL;
    list->count = head.nodes;
    list->nodes = (const void *)at;
    at += head.nodes * sizeof *list->nodes;
    list->first = (const void *)at;
    at += ((size_t)head.nodes + 1) * sizeof *list->first;
    list->after = (const void *)at;
    return at + head.edges * sizeof *list->after;
}

static int read_rank(const struct weft__bytes *bytes, struct told *told)
{
    const char *at = bytes->data, *end = at + bytes->size;

    if (bytes->size < sizeof told->head)
        return weft__error(WEFT_ERR_STATE, "a rank has told no messages");
    memcpy(&told->head, at, sizeof told->head);
    at += sizeof told->head;
    told->lists = weft__calloc(told->head.plans, sizeof *told->lists);
    if (!told->lists)
        return weft__error_memory("the messages of all ranks");
    for (uint32_t p = 0; p < told->head.plans && at; p++) {
        at = read_list(at, end, &told->lists[p]);
        told->nodes += told->lists[p].count;
    }
    return at ? WEFT_OK : weft__error(WEFT_ERR_STATE, "the messages of a rank are cut off");
}

/* ---- what all ranks must say alike ---- */

static const char *nccl_word(uint32_t nccl)
{
    return nccl == WEFT_NCCL_KNOWN      ? "WEFT_NCCL_KNOWN"
           : nccl == WEFT_NCCL_IN_ORDER ? "WEFT_NCCL_IN_ORDER"
                                        : "WEFT_NCCL_AGREED";
}

static int compare_heads(const struct accord *accord)
{
    const struct weft__accord_head *first = &accord->ranks[0].head;

    for (int r = 0; r < accord->size; r++) {
        const struct weft__accord_head *head = &accord->ranks[r].head;

        if (head->nccl != first->nccl || head->dynamic != first->dynamic)
            return weft__error(WEFT_ERR_INVALID,
                               "the ranks do not agree about nccl: rank 0 has %s of a %s, rank %d "
                               "%s of a %s",
                               nccl_word(first->nccl), first->dynamic ? "series" : "run", r,
                               nccl_word(head->nccl), head->dynamic ? "series" : "run");
        if (first->nccl != WEFT_NCCL_AGREED && !first->dynamic &&
            (head->size != (uint32_t)accord->size || head->rank != (uint32_t)r))
            return weft__error(WEFT_ERR_INVALID,
                               "the plan of rank %d is of rank %u of %u, expected of rank %d of "
                               "%d: where other ranks are bound, nccl is WEFT_NCCL_AGREED",
                               r, head->rank, head->size, r, accord->size);
    }
    return WEFT_OK;
}

/* Without an order that is known beforehand joint nodes have none. */
static int refuse_joints(const struct accord *accord, const char *why)
{
    for (int r = 0; r < accord->size; r++)
        for (uint32_t p = 0; p < accord->ranks[r].head.plans; p++)
            for (uint32_t n = 0; n < accord->ranks[r].lists[p].count; n++)
                if (accord->ranks[r].lists[p].nodes[n].flags & WEFT__ISSUE_JOINT)
                    return weft__error(
                        WEFT_ERR_INVALID,
                        "rank %d: node %u is a joint node, which needs an order that "
                        "is known beforehand: %s",
                        r, n, why);
    return WEFT_OK;
}

static int is_message(const struct weft__issue_node *node)
{
    return node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV;
}

static int has_devices(const struct accord *accord)
{
    for (int r = 0; r < accord->size; r++)
        for (uint32_t p = 0; p < accord->ranks[r].head.plans; p++)
            for (uint32_t n = 0; n < accord->ranks[r].lists[p].count; n++)
                if (accord->ranks[r].lists[p].nodes[n].flags & WEFT__ISSUE_IN_ORDER)
                    return 1;
    return 0;
}

/* ---- answers ---- */

static int make_answer(const struct told *told, struct weft__accord_answer head, size_t more,
                       struct weft__bytes *answer)
{
    head.over = told->nodes;
    answer->size = sizeof head + told->nodes + more;
    answer->data = weft__calloc(answer->size, 1);
    if (!answer->data)
        return weft__error_memory("an order of messages");
    memcpy(answer->data, &head, sizeof head);
    return WEFT_OK;
}

/* ---- ends that belong together by their tags ---- */

struct tagged {
    uint32_t tag;
    int32_t rank;
    int device;
};

static int compare_tagged(const void *left, const void *right)
{
    const struct tagged *a = left, *b = right;

    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    if (a->device != b->device)
        return a->device - b->device;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int compare_tags(const struct accord *accord)
{
    size_t count = 0, most = 1;
    struct tagged *all;
    int status = WEFT_OK;

    for (int r = 0; r < accord->size; r++)
        most += accord->ranks[r].nodes;
    all = weft__malloc(most, sizeof *all);
    if (!all)
        return weft__error_memory("the messages of all ranks");
    for (int r = 0; r < accord->size; r++)
        for (uint32_t p = 0; p < accord->ranks[r].head.plans; p++)
            for (uint32_t n = 0; n < accord->ranks[r].lists[p].count; n++) {
                const struct weft__issue_node *node = &accord->ranks[r].lists[p].nodes[n];

                if (is_message(node))
                    all[count++] =
                        (struct tagged){node->tag, r, (node->flags & WEFT__ISSUE_DEVICE) != 0};
            }
    qsort(all, count, sizeof *all, compare_tagged);
    for (size_t i = 1; i < count && status == WEFT_OK; i++)
        if (all[i].tag == all[i - 1].tag && all[i].device != all[i - 1].device)
            status = weft__error(WEFT_ERR_INVALID,
                                 "messages of tag %u have an end in memory of the host on rank %d, "
                                 "and of a device on rank %d: ends that meet by their tags alone "
                                 "must be alike",
                                 all[i].tag, all[i - 1].rank, all[i].rank);
    weft__free(all);
    return status;
}

/* Each message is agreed on; which ends are over the communicator is what their memory says. */
static int answer_by_tags(const struct accord *accord, struct weft__bytes *answers)
{
    int status = refuse_joints(accord, accord->ranks[0].head.dynamic
                                           ? "a series has none"
                                           : "expected WEFT_NCCL_KNOWN or WEFT_NCCL_IN_ORDER");

    if (status == WEFT_OK)
        status = compare_tags(accord);

    for (int r = 0; r < accord->size && status == WEFT_OK; r++) {
        const struct told *told = &accord->ranks[r];
        char *over;

        status = make_answer(told, (struct weft__accord_answer){.joins = 1}, 0, &answers[r]);
        if (status != WEFT_OK)
            break;
        over = answers[r].data + sizeof(struct weft__accord_answer);
        for (uint32_t p = 0; p < told->head.plans; p++)
            for (uint32_t n = 0; n < told->lists[p].count; n++)
                *over++ = is_message(&told->lists[p].nodes[n]) &&
                          (told->lists[p].nodes[n].flags & WEFT__ISSUE_DEVICE);
    }
    return status;
}

/* ---- ends that are known ---- */

static void name_node(struct weft__out *text, const struct weft__issue *issue, uint32_t node)
{
    const struct weft__issue_node *at = &issue->nodes[node];
    int rank = 0;

    while (issue->base[rank + 1] <= node)
        rank++;
    weft__out_format(text, "rank %d: node %u", rank, node - issue->base[rank]);
    if (is_message(at))
        weft__out_format(text, " (%s rank %d tag %u)",
                         at->kind == WEFT_NODE_SEND ? "send to" : "recv from", at->peer, at->tag);
    else if (at->flags & WEFT__ISSUE_JOINT)
        weft__out_format(text, " (joint, tag %u)", at->tag);
}

/* Whether a rank has what follows a joint node in its ring. */
static int has_next(const struct weft__issue *issue, const struct weft__issue_node *node)
{
    for (uint32_t n = issue->base[node->peer]; n < issue->base[node->peer + 1]; n++)
        if (weft__issue_is_joint(issue, n) && issue->nodes[n].tag == node->tag &&
            issue->nodes[n].bytes == node->bytes)
            return 1;
    return 0;
}

/* A joint node of which a rank has none. */
static int check_rings(const struct weft__issue *issue)
{
    for (int r = 0; r < issue->size; r++)
        for (uint32_t n = issue->base[r]; n < issue->base[r + 1]; n++) {
            const struct weft__issue_node *node = &issue->nodes[n];

            if (!weft__issue_is_joint(issue, n) || issue->partner[n] != WEFT__ISSUE_NONE ||
                (node->peer < issue->size && has_next(issue, node)))
                continue;
            return weft__error(WEFT_ERR_INVALID,
                               "rank %d: node %u is a joint node with tag %u that rank %d has no "
                               "equal of: expected the same kind, ranks, datatype and counts there",
                               r, n - issue->base[r], node->tag, node->peer);
        }
    return WEFT_OK;
}

static int refuse_cycle(const struct weft__issue *issue, const struct weft__issue_order *order)
{
    enum { MOST_NAMED = 12 };
    struct weft__out text = {0};
    int status;

    for (uint32_t i = 0; i < order->cycle_count && i < MOST_NAMED; i++) {
        name_node(&text, issue, order->cycle[i]);
        weft__out_text(&text, " waits for ");
    }
    if (order->cycle_count > MOST_NAMED)
        weft__out_format(&text, "%u more, the last of them for ", order->cycle_count - MOST_NAMED);
    weft__out_text(&text, "the first");
    status = text.failed
                 ? weft__error_memory("a circle of messages")
                 : weft__error(WEFT_ERR_INVALID,
                               "messages over NCCL wait for each other in a circle: %s", text.text);
    weft__free(text.text);
    return status;
}

/* Whether the application fires events in it: then other runs may wait, while this one has its
 * turn, for what the application does first. */
static int has_events(const struct weft__issue *issue)
{
    uint32_t count = issue->base[issue->size];

    for (uint32_t n = 0; n < count; n++)
        if (issue->nodes[n].kind == WEFT_NODE_EVENT)
            return 1;
    return 0;
}

static int varies(const struct weft__issue *issue)
{
    for (uint32_t n = 0; n < issue->base[issue->size]; n++)
        if ((issue->nodes[n].flags & WEFT__ISSUE_VARIES) && weft__issue_in_order(issue, n))
            return 1;
    return 0;
}

/* Whether a node of a rank begins a group: of another round, or a joint one, or the first after
 * one. */
static int begins(const struct weft__issue *issue, const struct weft__issue_order *order,
                  uint32_t first, uint32_t at)
{
    uint32_t node = order->sequence[at], before = at > first ? order->sequence[at - 1] : node;

    return at == first || order->round[node] != order->round[before] ||
           weft__issue_is_joint(issue, node) || weft__issue_is_joint(issue, before);
}

/* Sequence, first, members and circles of a rank. */
static void put_known(const struct weft__issue_joined *joined,
                      const struct weft__issue_order *order, int rank, const int32_t *members,
                      uint32_t member_count, const struct weft__circle_sets *sets, char *to)
{
    uint32_t begin = order->start[rank], end = order->start[rank + 1];
    uint32_t place = 0;
    char *first = to + (size_t)(end - begin) * sizeof(uint32_t);

    for (uint32_t i = begin; i < end; i++, place++) {
        uint32_t node = order->sequence[i] - joined->base[rank];

        if (begins(&joined->issue, order, begin, i))
            first = put(first, &place, sizeof place);
        to = put(to, &node, sizeof node);
    }
    first = put(first, &place, sizeof place);
    first = put(first, members, member_count * sizeof *members);
    weft__circle_sets_put(sets, rank, first);
}

static uint32_t count_groups(const struct weft__issue *issue, const struct weft__issue_order *order,
                             int rank)
{
    uint32_t groups = 0, first = order->start[rank];

    for (uint32_t i = first; i < order->start[rank + 1]; i++)
        groups += (uint32_t)begins(issue, order, first, i);
    return groups;
}

static int answer_known(const struct accord *accord, const struct weft__issue_joined *joined,
                        const struct weft__issue_order *order, int known,
                        const struct weft__circle_sets *sets, struct weft__bytes *answers)
{
    int32_t *members = weft__malloc((size_t)accord->size, sizeof *members);
    uint32_t member_count = 0;
    int status = members ? WEFT_OK : weft__error_memory("an order of messages");

    for (int r = 0; r < accord->size && members; r++)
        if (order->start[r + 1] > order->start[r])
            members[member_count++] = r;
    for (int r = 0; r < accord->size && status == WEFT_OK; r++) {
        uint32_t sequence = order->start[r + 1] - order->start[r];
        uint32_t rounds = known ? count_groups(&joined->issue, order, r) : 0;
        const struct weft__accord_answer head = {.joins = 1,
                                                 .known = (uint32_t)known,
                                                 .sequence = known ? sequence : 0,
                                                 .rounds = rounds,
                                                 .members = known ? member_count : 0,
                                                 .layers = sets->layers};
        size_t more = known ? ((size_t)sequence + rounds + 1 + member_count) * 4 : 0;

        more += weft__circle_sets_bytes(sets, r);

        status = make_answer(&accord->ranks[r], head, more, &answers[r]);
        if (status != WEFT_OK)
            break;
        char *over = answers[r].data + sizeof head;
        for (uint32_t n = joined->base[r]; n < joined->base[r + 1]; n++)
            *over++ = (char)weft__issue_in_order(&joined->issue, n);
        if (known)
            put_known(joined, order, r, members, member_count, sets, over);
    }
    weft__free(members);
    return status;
}

static const char *why_unknown(const struct weft__issue *issue,
                               const struct weft__issue_order *order)
{
    if (varies(issue))
        return "the size of a message is known only when it is sent";
    if (order->unknown)
        return "a message comes after a choice, or would wait for an event";
    return "events need WEFT_NCCL_IN_ORDER";
}

static int answer_by_graphs(const struct accord *accord, struct weft__bytes *answers)
{
    struct weft__issue_list *lists = weft__malloc((size_t)accord->size, sizeof *lists);
    struct weft__issue_joined joined = {0};
    struct weft__issue_order order = {0};
    struct weft__circle_sets sets = {0};
    int status = lists ? WEFT_OK : weft__error_memory("the messages of all ranks");

    for (int r = 0; r < accord->size && lists; r++)
        lists[r] = accord->ranks[r].lists[0];
    if (status == WEFT_OK && weft__issue_join(&joined, lists, accord->size))
        status = weft__error_memory("the messages of all ranks");
    joined.issue.pair_bytes = WEFT__ISSUE_PAIR_BYTES;
    if (status == WEFT_OK)
        status = check_rings(&joined.issue);
    if (status == WEFT_OK && weft__circle_sets_find(&joined.issue, &sets))
        status = weft__error_memory("communicators");
    if (status == WEFT_OK && weft__issue_order(&joined.issue, &order))
        status = weft__error_memory("an order of messages");
    if (status == WEFT_OK && order.cycle_count > 0)
        status = refuse_cycle(&joined.issue, &order);
    if (status == WEFT_OK) {
        uint32_t nccl = accord->ranks[0].head.nccl;
        int known = nccl != WEFT_NCCL_AGREED && order.unknown == 0 && !varies(&joined.issue) &&
                    (nccl == WEFT_NCCL_IN_ORDER || !has_events(&joined.issue));

        if (!known)
            status = refuse_joints(accord, why_unknown(&joined.issue, &order));
        if (status == WEFT_OK)
            status = answer_known(accord, &joined, &order, known, &sets, answers);
    }
    weft__circle_sets_free(&sets);
    weft__issue_order_free(&order);
    weft__issue_joined_free(&joined);
    weft__free(lists);
    return status;
}

/* Nothing goes over a communicator: there is none. */
static int answer_nothing(const struct accord *accord, struct weft__bytes *answers)
{
    int status = WEFT_OK;

    for (int r = 0; r < accord->size && status == WEFT_OK; r++) {
        const struct told none = {.nodes = 0};

        status = make_answer(&none, (struct weft__accord_answer){0}, 0, &answers[r]);
    }
    return status;
}

int weft__accord_compute(const struct weft__bytes *lists, int size, struct weft__bytes *answers)
{
    struct accord accord = {.ranks = weft__calloc((size_t)size, sizeof *accord.ranks),
                            .size = size};
    int status = accord.ranks ? WEFT_OK : weft__error_memory("the messages of all ranks");

    for (int r = 0; r < size && status == WEFT_OK; r++)
        status = read_rank(&lists[r], &accord.ranks[r]);
    if (status == WEFT_OK)
        status = compare_heads(&accord);
    if (status == WEFT_OK && !has_devices(&accord))
        status = answer_nothing(&accord, answers);
    else if (status == WEFT_OK && accord.ranks[0].head.dynamic)
        status = answer_by_tags(&accord, answers);
    else if (status == WEFT_OK && accord.ranks[0].head.nccl == WEFT_NCCL_AGREED)
        status = answer_by_tags(&accord, answers);
    else if (status == WEFT_OK)
        status = answer_by_graphs(&accord, answers);
    for (int r = 0; r < size && accord.ranks; r++)
        weft__free(accord.ranks[r].lists);
    weft__free(accord.ranks);
    return status;
}
