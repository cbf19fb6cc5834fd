/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The order of issue of runtime/graph/issue.h where it is to serve: every rank computes it by
 * itself for every template, and issues its groups on a stream, on which nothing may block for
 * ever, nor come to the wrong end. */
#include "nccl_test.h"

#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "runtime/plan/plan.h"

struct team {
    int size;
    struct weft_plan *plans[16];
    struct weft__issue_node *nodes[16];
    struct weft__issue_list lists[16];
    struct weft__issue_joined joined;
    struct weft__issue_order order;
};

static bool build(struct team *team, const struct weft_template *template, const char *algo)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.algo = algo;
    params.count = 37;
    params.segment = 24;
    for (int r = 0; r < team->size; r++) {
        struct weft_schedule *schedule = NULL;
        int status = weft_template_build(template->name, r, team->size, &params, &schedule);
        if (!status)
            status = weft_schedule_commit(schedule, &team->plans[r]);
        weft_schedule_destroy(schedule);
        if (status || weft__plan_issue(team->plans[r], &team->nodes[r], &team->lists[r]))
            return false;
        for (uint32_t n = 0; n < team->lists[r].count; n++)
            team->nodes[r][n].flags |= WEFT__ISSUE_IN_ORDER;
    }
    if (weft__issue_join(&team->joined, team->lists, team->size))
        return false;
    team->joined.issue.pair_bytes = 48;
    return !weft__issue_order(&team->joined.issue, &team->order);
}

static void destroy(struct team *team)
{
    weft__issue_order_free(&team->order);
    weft__issue_joined_free(&team->joined);
    for (int r = 0; r < team->size; r++) {
        weft__free(team->nodes[r]);
        weft_plan_destroy(team->plans[r]);
    }
}

/* A message is the number of its send, and has a length of its own. */
static void issue(struct nccl_rank_of_test *r, const struct team *team, CUdeviceptr slots)
{
    const struct weft__issue_order *order = &team->order;
    for (uint32_t i = order->start[r->rank], past; i < order->start[r->rank + 1]; i = past) {
        NCCL_OK(ncclGroupStart());
        for (past = i; past < order->start[r->rank + 1] &&
                       order->round[order->sequence[past]] == order->round[order->sequence[i]];
             past++) {
            uint32_t id = order->sequence[past];
            const struct weft__issue_node *node = &team->joined.nodes[id];
            bool send = node->kind == WEFT_NODE_SEND;
            uint32_t number = send ? id : team->joined.partner[id];
            void *at = (void *)(slots + 16ull * (id - team->joined.base[r->rank]));
            size_t bytes = 4 + number % 7;
            NCCL_OK(
                send ? ncclSend(at, bytes, ncclInt8, node->peer, r->comm, (cudaStream_t)r->stream)
                     : ncclRecv(at, bytes, ncclInt8, node->peer, r->comm, (cudaStream_t)r->stream));
        }
        NCCL_OK(ncclGroupEnd());
    }
    OK(cuStreamSynchronize(r->stream));
}

static void run(struct nccl_rank_of_test *r, const struct team *team)
{
    uint32_t base = team->joined.base[r->rank], count = team->joined.base[r->rank + 1] - base;
    uint32_t *slots = calloc(count + 1, 16);
    for (uint32_t n = 0; n < count; n++)
        slots[4 * n] = base + n;
    CUdeviceptr at = nccl_put(slots, 16ull * count);
    issue(r, team, at);
    nccl_get(slots, at, 16ull * count);
    for (uint32_t n = 0; n < count; n++)
        if (team->joined.nodes[base + n].kind == WEFT_NODE_RECV && team->order.round[base + n])
            CHECK(slots[4 * n] == team->joined.partner[base + n]);
    free(slots);
}

static void body_order(struct nccl_rank_of_test *r)
{
    int done = 0;
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);
        for (size_t a = 0; a < template->algorithm_count; a++) {
            struct team team = {.size = r->size};
            if (build(&team, template, template->algorithms[a].name)) {
                CHECK(team.order.cycle_count == 0);
                run(r, &team); /* but for what comes after choices */
                done += team.order.messages > 0;
            }
            destroy(&team);
        }
    }
    CHECK(done > 30 || r->size == 1);
}

void case_order(void)
{
    for (int size = 1; size <= 4; size++)
        nccl_ranks(size, true, body_order, NULL);
    nccl_clean();
}
