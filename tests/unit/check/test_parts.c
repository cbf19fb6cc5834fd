/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the checker knows of parts of lists: schedules of sparse sums by regions with one thing
 * wrong, a sum by recursive halving as a user would write it, and random changes, of which those
 * that the checker passes are executed on data.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "runtime/graph/schedule.h"
#include "support/ranks.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

enum { MOST_RANKS = 8, MOST_PLANNED = 96, ELEMENTS = 200 };

struct team {
    struct weft_schedule *at[MOST_RANKS];
    int size;
};

static void destroy(struct team *team)
{
    for (int r = 0; r < team->size; r++)
        weft_schedule_destroy(team->at[r]);
}

/* ---- Ok-Topk's ---- */

static struct team regions(int size, size_t k)
{
    struct team team = {.size = size};
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.count = ELEMENTS;
    params.k = k;
    for (int r = 0; r < size; r++)
        cr_assert_eq(weft_template_build("oktopk", r, size, &params, &team.at[r]), WEFT_OK);
    return team;
}

/* ---- a sum by recursive halving, the user's own: parts of parts ---- */

struct halving {
    struct weft_schedule *schedule;
    struct weft_op *ops[WEFT_SPARSE_OP_COUNT];
    weft_slot_t bounds;
    int names;
};

static struct weft_region list(struct halving *h, size_t count, weft_value_t *value)
{
    char name[32];

    snprintf(name, sizeof name, "list%d", h->names);
    struct weft_region region = weft_region_at(
        weft_schedule_add_slot(h->schedule, name, WEFT_U64, count, WEFT_SLOT_SCRATCH), 0, count);
    snprintf(name, sizeof name, "pairs%d", h->names++);
    *value = weft_schedule_add_value(h->schedule, name, count);
    return region;
}

static struct weft_region with(struct weft_region region, weft_value_t value)
{
    region.value = value;
    return region;
}

/* Nodes of one rank follow on each other. */
static weft_node_t follow(struct halving *h, weft_node_t node)
{
    if (node > 0)
        weft_schedule_add_order(h->schedule, node - 1, node);
    return node;
}

static struct weft_region part(struct halving *h, struct weft_region from, int first, int last)
{
    weft_value_t value;
    struct weft_region out = list(h, from.count, &value);
    struct weft_region args[] = {
        out, from, weft_region_at(h->bounds, (size_t)first, (size_t)(last - first) + 1)};

    follow(h, add_compute(h->schedule, h->ops[WEFT_SPARSE_PART], args, 3, 1, value));
    return with(out, value);
}

/* Gives a list to the partner and takes one: no wait for each other, so no order between the two.
 */
static struct weft_region exchange(struct halving *h, struct weft_region give, size_t most,
                                   int peer, uint32_t tag)
{
    weft_value_t value;
    struct weft_region in = list(h, most, &value);
    weft_node_t before = (weft_node_t)weft_schedule_node_count(h->schedule) - 1;
    weft_node_t out = weft_schedule_add_send(h->schedule, give, peer, tag);
    weft_node_t take = weft_schedule_add_recv_up_to(h->schedule, in, peer, tag, value);
    weft_node_t both = weft_schedule_add_join(h->schedule);

    weft_schedule_add_order(h->schedule, before, out);
    weft_schedule_add_order(h->schedule, before, take);
    weft_schedule_add_order(h->schedule, out, both);
    weft_schedule_add_order(h->schedule, take, both);
    return with(in, value);
}

static struct weft_schedule *halving_of(int rank, int size, size_t k)
{
    struct halving h = {.names = 0};
    struct weft_region held, args[4];
    weft_value_t value;
    int first = 0, last = size;
    uint32_t tag = 0;

    OK(weft_schedule_create(&h.schedule, rank, size));
    for (int i = 0; i < WEFT_SPARSE_OP_COUNT; i++)
        OK(weft_sparse_op((weft_sparse_op_kind_t)i, &h.ops[i]));
    weft_slot_t send = weft_schedule_add_slot(h.schedule, "send", WEFT_U64, k, WEFT_SLOT_INPUT);
    weft_slot_t recv =
        weft_schedule_add_slot(h.schedule, "recv", WEFT_U64, k * (size_t)size, WEFT_SLOT_OUTPUT);
    weft_slot_t residual =
        weft_schedule_add_slot(h.schedule, "residual", WEFT_F32, ELEMENTS, WEFT_SLOT_INOUT);
    h.bounds =
        weft_schedule_add_slot(h.schedule, "bounds", WEFT_U64, (size_t)size + 1, WEFT_SLOT_INPUT);
    weft_slot_t work = weft_schedule_add_slot(h.schedule, "work", WEFT_U64,
                                              8 * k * (size_t)size + 64, WEFT_SLOT_SCRATCH);
    held = with(weft_region_at(send, 0, k), weft_schedule_add_value(h.schedule, "pairs", k));
    args[0] = weft_region_at(h.bounds, 0, (size_t)size + 1);
    args[1] = held;
    args[2] = weft_region_at(residual, 0, ELEMENTS);
    add_compute(h.schedule, h.ops[WEFT_SPARSE_BOUNDS], args, 3, 0, 0);
    for (int span = size / 2; span > 0; span /= 2, tag++) {
        int middle = first + span, upper = rank >= middle;
        struct weft_region mine = part(&h, held, upper ? middle : first, upper ? last : middle);
        struct weft_region other = part(&h, held, upper ? first : middle, upper ? middle : last);
        struct weft_region got = exchange(&h, other, held.count, rank ^ span, tag);

        first = upper ? middle : first;
        last = upper ? last : middle;
        args[0] = list(&h, mine.count + got.count, &value);
        args[1] = weft_region_at(work, 0, 8 * k * (size_t)size + 64);
        args[2] = mine;
        args[3] = got;
        follow(&h, add_compute(h.schedule, h.ops[WEFT_SPARSE_SUM], args, 4, 3, value));
        held = with(args[0], value);
    }
    for (int span = 1; span < size; span *= 2, tag++) {
        struct weft_region got = exchange(&h, held, held.count, rank ^ span, tag);

        if (2 * span == size) {
            args[0] = weft_region_at(recv, 0, k * (size_t)size);
            value = weft_schedule_add_value(h.schedule, "kept", k * (size_t)size);
        } else {
            args[0] = list(&h, 2 * held.count, &value);
        }
        args[1] = held;
        args[2] = got;
        follow(&h, add_compute(h.schedule, h.ops[WEFT_SPARSE_JOIN], args, 3, 1, value));
        held = with(args[0], value);
    }
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = with(weft_region_at(recv, 0, k), held.value),
                                 .from = "send",
                                 .ranks = size,
                                 .op = h.ops[WEFT_SPARSE_MERGE]};
    weft_schedule_add_result(h.schedule, &result);
    for (int i = 0; i < WEFT_SPARSE_OP_COUNT; i++)
        weft_op_destroy(h.ops[i]);
    OK(weft_schedule_status(h.schedule));
    return h.schedule;
}

static struct team halving(int size, size_t k)
{
    struct team team = {.size = size};

    for (int r = 0; r < size; r++)
        team.at[r] = halving_of(r, size, k);
    return team;
}

/* ---- the checker's word ---- */

static struct weft_check_report *check(const struct team *team)
{
    struct weft_check_report *report = NULL;

    cr_assert_eq(weft_check((const struct weft_schedule *const *)team->at, (size_t)team->size, NULL,
                            &report),
                 WEFT_OK, "%s", weft_error_text());
    return report;
}

static void expect_sound(const struct team *team)
{
    struct weft_check_report *report = check(team);
    struct weft_fault fault = {.struct_size = sizeof fault, .text = ""};

    weft_check_report_get_fault(report, 0, &fault);
    cr_assert(weft_check_report_ok(report), "P=%d: %s", team->size, fault.text);
    weft_check_report_destroy(report);
}

/* Some fault of results names the rank and says the piece. */
static void expect_fault(struct team *team, int rank, const char *piece)
{
    struct weft_check_report *report = check(team);
    struct weft_fault fault = {.struct_size = sizeof fault};
    int found = 0;
    char texts[2000] = "";

    for (size_t i = 0; weft_check_report_get_fault(report, i, &fault) == WEFT_OK; i++) {
        int named = 0;

        for (size_t n = 0; n < fault.rank_count; n++)
            named |= fault.ranks[n] == rank;
        found |= fault.kind == WEFT_FAULT_RESULT && named && strstr(fault.text, piece);
        snprintf(texts + strlen(texts), sizeof texts - strlen(texts), "%s\n", fault.text);
    }
    cr_assert(found, "nothing says that \"%s\" on rank %d: %s", piece, rank, texts);
    weft_check_report_destroy(report);
    destroy(team);
}

/* The n-th node of a kind (of an operation, if it is one) of a rank. */
static struct weft__snode *node_of(const struct team *team, int rank, weft_node_kind_t kind,
                                   const char *op, int n)
{
    struct weft_schedule *s = team->at[rank];

    for (size_t i = 0; i < s->node_count; i++)
        if (s->nodes[i].kind == kind && (!op || !strcmp(weft_op_name(s->nodes[i].op), op)) &&
            n-- == 0)
            return &s->nodes[i];
    cr_assert(0, "rank %d has too few nodes %s", rank, op ? op : weft_node_kind_name(kind));
    return NULL;
}

static struct weft_region *region_of(const struct team *team, int rank,
                                     const struct weft__snode *node, int index)
{
    return &team->at[rank]->regions[node->regions + (uint32_t)index];
}

static struct weft_region *argument(const struct team *team, int rank, const char *op, int n,
                                    int index)
{
    return region_of(team, rank, node_of(team, rank, WEFT_NODE_COMPUTE, op, n), index);
}

static void swap(struct weft_region *a, struct weft_region *b)
{
    struct weft_region c = *a;

    *a = *b;
    *b = c;
}

Test(check_parts, sums_by_regions_are_sound)
{
    for (int size = 1; size <= MOST_RANKS; size++) {
        struct team team = regions(size, 24);
        expect_sound(&team);
        destroy(&team);
    }
    for (int size = 2; size <= MOST_RANKS; size *= 2) {
        struct team team = halving(size, 24);
        expect_sound(&team);
        destroy(&team);
    }
}

/* Rank 1 of 5 sends its parts 2, 3, 4, 0 in this order. */

Test(check_parts, a_part_that_is_not_sent)
{
    struct team team = regions(5, 24);
    struct weft__snode *node = node_of(&team, 1, WEFT_NODE_SEND, NULL, 1);
    *region_of(&team, 1, node, 0) = weft_region_at(region_of(&team, 1, node, 0)->slot, 0, 0);
    expect_fault(&team, 3, "does not have the same parts of all that is in it");
}

Test(check_parts, a_part_twice)
{
    struct team team = regions(5, 24);
    *argument(&team, 1, "sparse-part", 0, 2) = *argument(&team, 1, "sparse-part", 1, 2);
    expect_fault(&team, 2, "does not have the same parts of all that is in it");
}

Test(check_parts, two_parts_to_each_others_owners)
{
    struct team team = regions(5, 24);
    swap(region_of(&team, 1, node_of(&team, 1, WEFT_NODE_SEND, NULL, 0), 0),
         region_of(&team, 1, node_of(&team, 1, WEFT_NODE_SEND, NULL, 1), 0));
    expect_fault(&team, 2, "does not have the same parts of all that is in it");
}

Test(check_parts, two_parts_to_each_others_owners_by_all_ranks)
{
    /* Ranks 0 and 1 sum each other's region, which is right; each holds its own for the other's
     * after that, so that what they pass on is twice there, or not at all. */
    struct team team = regions(3, 24);
    for (int r = 0; r < 3; r++)
        for (int n = 0; n < 3; n++) {
            struct weft_region *bounds = argument(&team, r, "sparse-part", n, 2);
            if (bounds->offset < 2)
                bounds->offset = 1 - bounds->offset;
        }
    struct weft_check_report *report = check(&team);
    cr_expect_not(weft_check_report_ok(report));
    weft_check_report_destroy(report);
    destroy(&team);
}

Test(check_parts, a_part_between_bounds_that_are_too_far_apart)
{
    struct team team = regions(5, 24);
    argument(&team, 1, "sparse-part", 0, 2)->count = 3;
    expect_fault(&team, 2, "does not have the same parts of all that is in it");
}

Test(check_parts, a_part_of_less_than_the_list)
{
    struct team team = regions(5, 24);
    argument(&team, 1, "sparse-part", 0, 1)->count--;
    expect_fault(&team, 2, "send of rank 1");
}

Test(check_parts, an_owner_without_its_own_part)
{
    struct team team = regions(5, 24);
    *argument(&team, 3, "sparse-sum", 0, 2 + 3) = *argument(&team, 3, "sparse-sum", 0, 2 + 2);
    expect_fault(&team, 3, "does not have the same parts of all that is in it");
}

Test(check_parts, an_owner_that_passes_on_its_own_part_only)
{
    struct team team = regions(5, 24);
    *argument(&team, 3, "sparse-keep", 0, 1) = *argument(&team, 3, "sparse-part", 4, 0);
    argument(&team, 3, "sparse-keep", 0, 1)->value =
        node_of(&team, 3, WEFT_NODE_COMPUTE, "sparse-part", 4)->produces;
    expect_fault(&team, 2, "does not have the same parts of all that is in it");
}

Test(check_parts, a_list_joined_with_itself)
{
    struct team team = regions(4, 24);
    *argument(&team, 2, "sparse-join", 0, 2) = *argument(&team, 2, "sparse-join", 0, 1);
    expect_fault(&team, 2, "has a part that is in another one, too");
}

Test(check_parts, a_region_passed_on_for_another)
{
    struct team team = regions(5, 24); /* the last step gives one of four regions that are held */
    argument(&team, 1, "sparse-part", 5, 2)->offset++;
    expect_fault(&team, 2, "has a part that is in another one, too");
}

Test(check_parts, bounds_that_go_on_behind_the_last_region)
{
    struct team team = regions(3, 24);
    for (int r = 0; r < 3; r++) {
        weft_slot_t slot = weft__schedule_find_slot(team.at[r], "bounds", 6);
        team.at[r]->buffers[slot].count++;
    }
    expect_fault(&team, 0, "between bounds[0] and bounds[3]");
}

Test(check_parts, bounds_that_were_computed)
{
    struct team team = regions(3, 24);
    struct weft_schedule *s = team.at[1];
    struct weft__snode *node = node_of(&team, 1, WEFT_NODE_COMPUTE, "sparse-part", 0);
    weft_slot_t made = weft_schedule_add_slot(s, "made", WEFT_U64, 4, WEFT_SLOT_SCRATCH);
    struct weft_op *op = NULL;

    OK(weft_sparse_op(WEFT_SPARSE_JOIN, &op)); /* whatever it makes of them */
    struct weft_region args[3] = {
        weft_region_at(made, 0, 4),
        weft_region_at(argument(&team, 1, "sparse-part", 0, 2)->slot, 0, 4),
        weft_region_at(argument(&team, 1, "sparse-part", 0, 2)->slot, 0, 0)};
    weft_node_t maker = add_compute(s, op, args, 3, 1, 0);
    node = node_of(&team, 1, WEFT_NODE_COMPUTE, "sparse-part", 0);
    region_of(&team, 1, node, 2)->slot = made;
    weft_schedule_add_order(s, maker, (weft_node_t)(node - s->nodes));
    weft_op_destroy(op);
    expect_fault(&team, 2, "does not have the same parts of all that is in it");
}

Test(check_parts, halves_of_halves_at_the_wrong_bound)
{
    struct team team = halving(8, 24);
    struct weft_region *bounds = argument(&team, 5, "sparse-part", 3, 2);
    bounds->offset = bounds->offset ? bounds->offset - 1 : 1;
    expect_fault(&team, 4, "does not have the same parts of all that is in it");
}

Test(check_parts, a_beginning_of_a_contribution)
{
    /* All of send is in, but one region of it only up to its last pair but one. */
    struct weft_schedule *s = new_schedule(0, 1);
    struct weft_op *op = NULL;
    struct team team = {.at = {s}, .size = 1};

    OK(weft_sparse_merge_op(&op));
    weft_slot_t send = weft_schedule_add_slot(s, "send", WEFT_U64, 4, WEFT_SLOT_INPUT);
    weft_slot_t recv = weft_schedule_add_slot(s, "recv", WEFT_U64, 4, WEFT_SLOT_OUTPUT);
    struct weft_region args[2] = {weft_region_at(recv, 0, 4), weft_region_at(send, 0, 3)};
    struct weft_result result = {.struct_size = sizeof result,
                                 .dst = weft_region_at(recv, 0, 4),
                                 .from = "send",
                                 .ranks = 1,
                                 .op = op};
    add_compute(s, op, args, 2, 1, 0);
    weft_schedule_add_result(s, &result);
    weft_op_destroy(op);
    expect_fault(&team, 0, "and holds");
}

/* ---- at random, and executed ---- */

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

static int is_list(const struct weft_schedule *s, const struct weft__snode *node, uint32_t i)
{
    const struct weft_region *region = &s->regions[node->regions + i];

    return s->buffers[region->slot].dtype == WEFT_U64 && region->value != 0 &&
           !(node->kind == WEFT_NODE_COMPUTE && weft__snode_writes(s, node, i));
}

/* A region of a list that some node of a rank reads; NULL: none was hit upon. */
static struct weft_region *draw_list(struct weft_schedule *s)
{
    for (int tries = 0; tries < 100; tries++) {
        const struct weft__snode *node = &s->nodes[draw(s->node_count)];
        uint32_t i = node->region_count ? (uint32_t)draw(node->region_count) : 0;

        if (node->region_count && node->kind != WEFT_NODE_RECV && is_list(s, node, i))
            return &s->regions[node->regions + i];
    }
    return NULL;
}

static struct weft__snode *draw_node(struct weft_schedule *s, weft_node_kind_t kind, const char *op)
{
    for (int tries = 0; tries < 200; tries++) {
        struct weft__snode *node = &s->nodes[draw(s->node_count)];

        if (node->kind == kind && (!op || !strcmp(weft_op_name(node->op), op)))
            return node;
    }
    return NULL;
}

/* One change; 0 if there was nothing to change. */
static int mutate(struct team *team, char *text, size_t size)
{
    int rank = (int)draw((uint64_t)team->size), kind = (int)draw(7), up = (int)draw(2);
    struct weft_schedule *s = team->at[rank];
    struct weft__snode *a, *b;
    struct weft_region *one, *other;

    snprintf(text, size, "P=%d, %s, rank %d, kind %d", team->size, s->name, rank, kind);
    switch (kind) {
    case 0: /* other bounds */
    case 1:
        if (!(a = draw_node(s, WEFT_NODE_COMPUTE, "sparse-part")))
            return 0;
        one = &s->regions[a->regions + 2];
        if (kind == 0)
            one->offset += up ? 1 : (size_t)-1;
        else
            one->count += up ? 1 : (size_t)-1;
        return one->count >= 2 && one->offset <= (size_t)team->size &&
               one->offset + one->count <= (size_t)team->size + 1;
    case 2: /* another list is read */
        one = draw_list(s);
        other = draw_list(s);
        if (!one || !other || !memcmp(one, other, sizeof *one))
            return 0;
        *one = *other;
        return 1;
    case 3: /* two lists change places */
        one = draw_list(s);
        other = draw_list(s);
        if (!one || !other || !memcmp(one, other, sizeof *one))
            return 0;
        swap(one, other);
        return 1;
    case 4: /* two messages change places */
        a = draw_node(s, up ? WEFT_NODE_SEND : WEFT_NODE_RECV, NULL);
        b = draw_node(s, up ? WEFT_NODE_SEND : WEFT_NODE_RECV, NULL);
        if (!a || !b || a == b)
            return 0;
        int32_t peer = a->peer;
        uint32_t tag = a->tag;
        a->peer = b->peer;
        a->tag = b->tag;
        b->peer = peer;
        b->tag = tag;
        return 1;
    case 5: /* a message of nothing */
        if (!(a = draw_node(s, WEFT_NODE_SEND, NULL)))
            return 0;
        s->regions[a->regions] = weft_region_at(s->regions[a->regions].slot, 0, 0);
        return 1;
    default: /* less of a list */
        one = draw_list(s);
        if (!one || one->count < 2)
            return 0;
        one->count--;
        return 1;
    }
}

/* The pairs of a rank: few enough that nothing is dropped. */
static size_t contribution(int rank, int size, size_t pairs, uint64_t round, void *memory)
{
    uint32_t *index = memory;
    float *value = (float *)memory + pairs;

    for (size_t i = 0; i < pairs; i++) { /* every other index is the same on all ranks */
        size_t room = ELEMENTS / pairs;
        size_t at = i % 2 ? (size_t)rank * (room - 1) / (size_t)size : (i + round) % room;
        index[i] = (uint32_t)(i * room + at);
        value[i] = (float)((rank + 1) * 8 + (int)i + (int)round);
    }
    return pairs;
}

struct trial {
    const struct team *team;
    size_t pairs;
    int wrong; /* of any rank */
    char text[300];
};

static int wrong(struct trial *trial, int rank, const char *why)
{
    if (!trial->wrong++)
        snprintf(trial->text, sizeof trial->text, "rank %d: %s", rank, why);
    return WEFT_OK;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void compare(struct trial *trial, int rank, uint64_t round, const uint64_t *recv,
                    size_t kept)
{
    float expected[ELEMENTS] = {0}, got[ELEMENTS] = {0};
    uint64_t memory[MOST_PLANNED];
    size_t n = 0;

    for (int r = 0; r < trial->team->size; r++) {
        contribution(r, trial->team->size, trial->pairs, round, memory);
        for (size_t i = 0; i < trial->pairs; i++)
            expected[((uint32_t *)memory)[i]] += ((float *)memory)[trial->pairs + i];
    }
    for (int i = 0; i < ELEMENTS; i++)
        n += expected[i] != 0;
    for (size_t i = 0; i < kept && n == kept; i++)
        got[((const uint32_t *)recv)[i] % ELEMENTS] += ((const float *)recv)[kept + i];
    pthread_mutex_lock(&lock);
    if (n != kept || memcmp(got, expected, sizeof got) != 0)
        wrong(trial, rank, n != kept ? "too many or too few pairs" : "a wrong sum");
    pthread_mutex_unlock(&lock);
}

static int one_rank(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    int rank = weft_context_rank(context), size = trial->team->size;
    uint64_t *recv = calloc((size_t)MOST_PLANNED * MOST_RANKS, sizeof *recv);
    uint64_t send[MOST_PLANNED], bounds[MOST_RANKS + 1];
    float residual[ELEMENTS] = {0}, threshold = 0;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    struct weft_run_config config;
    struct weft_value_info value = {.struct_size = sizeof value};
    int status = recv ? weft_schedule_commit(trial->team->at[rank], &plan) : WEFT_ERR_MEMORY;

    weft_run_config_init(&config);
    config.deadline_ns = UINT64_C(20000000000); /* a deadlock is an error, not a wait for ever */
    status = status ? status : weft_run_create(&run, context, plan, &config);
    for (uint64_t round = 0; !status && round < 2; round++) {
        for (int j = 0; j <= size; j++)
            bounds[j] = (uint64_t)(j * ELEMENTS / size);
        contribution(rank, size, trial->pairs, round, send);
        bind_name(run, "send", send);
        bind_name(run, "recv", recv);
        bind_name(run, "residual", residual);
        bind_name(run, "bounds", bounds);
        if (weft_plan_find_slot(plan, "threshold") >= 0)
            bind_name(run, "threshold", &threshold);
        for (size_t v = 1; v <= weft_schedule_value_count(trial->team->at[rank]); v++) {
            weft_schedule_get_value(trial->team->at[rank], (weft_value_t)v, &value);
            if (value.producer < 0)
                weft_run_bind_value(run, (weft_value_t)v,
                                    strcmp(value.name, "pairs") ? value.max : trial->pairs);
        }
        status = weft_run_execute(run);
        if (!status)
            compare(trial, rank, round, recv,
                    weft_run_get_value(run, weft_plan_find_value(plan, "kept")));
    }
    if (status) {
        pthread_mutex_lock(&lock);
        wrong(trial, rank, weft_error_text());
        pthread_mutex_unlock(&lock);
    }
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    free(recv);
    return WEFT_OK;
}

static struct trial execute(const struct team *team, int regions_quota)
{
    struct trial trial = {.team = team};

    trial.pairs = (size_t)(regions_quota ? regions_quota : MOST_PLANNED) / (size_t)team->size;
    cr_assert_gt(trial.pairs, 1);
    cr_assert_eq(weft_local_run(team->size, NULL, one_rank, &trial), WEFT_OK);
    return trial;
}

static struct team draw_team(int *quota)
{
    size_t share, pairs;
    int size = draw(3) ? 2 + (int)draw(5) : 1 << (1 + draw(2));

    *quota = 0;
    if (size == 1 << (size > 1) << (size > 3) && draw(2))
        return halving(size, MOST_PLANNED / 4);
    cr_assert_eq(weft_sparse_region_limits(MOST_PLANNED, size, &share, &pairs), WEFT_OK);
    *quota = (int)(share < pairs ? share : pairs);
    return regions(size, MOST_PLANNED);
}

Test(check_parts, what_passes_works)
{
    enum { MUTANTS = SWEPT(2000, 400) };
    int passed = 0, caught = 0;
    char text[120];

    state = 20221;
    for (int i = 0; i < MUTANTS; i++) {
        int quota;
        uint64_t seed = state;
        struct team team = draw_team(&quota);

        if (i % 50 == 0) { /* unchanged, it works */
            struct trial trial = execute(&team, quota ? quota : MOST_PLANNED / 4);
            cr_assert_eq(trial.wrong, 0, "P=%d, %s", team.size, trial.text);
        }
        if (mutate(&team, text, sizeof text)) {
            struct weft_check_report *report = check(&team);
            int ok = weft_check_report_ok(report);

            weft_check_report_destroy(report);
            caught += !ok;
            passed += ok;
            if (ok) {
                struct trial trial = execute(&team, quota ? quota : MOST_PLANNED / 4);
                cr_assert_eq(trial.wrong, 0, "seed %llu, mutant %d (%s) passes: %s",
                             (unsigned long long)seed, i, text, trial.text);
            }
        }
        destroy(&team);
    }
    cr_expect_gt(caught, MUTANTS / 2, "%d caught, %d passed", caught, passed);
    printf("# %d mutants caught, %d equivalent\n", caught, passed);
}
