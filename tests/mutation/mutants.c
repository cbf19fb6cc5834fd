/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mutation testing of weft_check(): schedules of every template and algorithm with one thing
 * changed at random, and how many of them it finds fault with.
 *
 *     mutants [COUNT [SEED [list]]]
 *
 * One that it passes must be as good as the original: an independent interpreter executes it on
 * data, in orders drawn from seeds, with messages buffered and not. If a result is wrong or it does
 * not end, the checker has a hole, and the exit status is 1. The others are explained: the order
 * that was dropped is implied by others; it ordered nodes that have no memory in common
 * (unrelated); operands were swapped of an operation that commutes; two nodes with the same
 * neighbours were renumbered; or it is another schedule that is equivalent: those are listed if
 * there is a third argument.
 *
 * Templates that state no result are left out, and those whose counts are known only while they run
 * (merges of sparse vectors), or whose contributions are compressed: what would be wrong with
 * theirs the interpreter cannot tell.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "runtime/base/alloc.h"
#include "runtime/graph/schedule.h"
#include "support/interpreter.h"

enum { MOST_RANKS = 9, EXECUTIONS = 12 };

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* ---- mutations: each changes one schedule, and returns 0 if there is nothing to change ---- */

struct mutant {
    struct weft_schedule *s; /* that of the rank that is changed */
    char text[160];
    int reordered;          /* an order was dropped or turned around: */
    struct weft__edge edge; /* this one */
    int swapped;            /* operands of an operation that commutes */
    weft_node_t places[2];  /* nodes that have changed places, or -1 */
};

/* A node that satisfies something; -1: none. */
static int pick(const struct weft_schedule *s, int (*fits)(const struct weft__snode *node))
{
    size_t count = 0;
    for (size_t n = 0; n < s->node_count; n++)
        count += fits(&s->nodes[n]) != 0;
    if (!count)
        return -1;
    size_t chosen = draw(count);
    for (size_t n = 0; n < s->node_count; n++)
        if (fits(&s->nodes[n]) && chosen-- == 0)
            return (int)n;
    return -1;
}

static int is_message(const struct weft__snode *n)
{
    return n->kind == WEFT_NODE_SEND || n->kind == WEFT_NODE_RECV;
}

static int has_peer(const struct weft__snode *n)
{
    return is_message(n) || n->kind == WEFT_NODE_SIGNAL;
}

static int is_reduction(const struct weft__snode *n)
{
    return n->kind == WEFT_NODE_REDUCE;
}

static int has_regions(const struct weft__snode *n)
{
    return n->region_count > 0;
}

static int has_tag(const struct weft__snode *n)
{
    return has_peer(n) || (n->kind == WEFT_NODE_EVENT && n->tag != WEFT_CHANNEL_NONE);
}

static int is_anything(const struct weft__snode *n)
{
    return n->kind != WEFT_NODE_JOIN;
}

static int drop_edge(struct mutant *m)
{
    if (!m->s->edge_count)
        return 0;
    size_t e = draw(m->s->edge_count);
    m->reordered = 1;
    m->edge = m->s->edges[e];
    m->s->edges[e] = m->s->edges[--m->s->edge_count];
    snprintf(m->text, sizeof m->text, "drop order %u -> %u", m->edge.before, m->edge.after);
    return 1;
}

static int turn_edge(struct mutant *m)
{
    if (!m->s->edge_count)
        return 0;
    struct weft__edge *e = &m->s->edges[draw(m->s->edge_count)];
    m->reordered = 1;
    m->edge = *e;
    *e = (struct weft__edge){m->edge.after, m->edge.before};
    snprintf(m->text, sizeof m->text, "turn order %u -> %u", m->edge.before, m->edge.after);
    return 1;
}

/* Whether a region fits: in its slot, and beside the others of its node as the builder demands. */
static int fits(const struct weft_schedule *s, const struct weft__snode *n)
{
    const struct weft_region *r = &s->regions[n->regions];
    for (uint32_t i = 0; i < n->region_count; i++) {
        const struct weft__buffer *b = &s->buffers[r[i].slot];
        if (r[i].offset > b->count || r[i].count > b->count - r[i].offset ||
            (b->kind == WEFT_SLOT_INPUT && weft__snode_writes(s, n, i)))
            return 0;
        if (i && r[i].slot == r[0].slot && r[i].offset != r[0].offset &&
            r[i].offset < r[0].offset + r[0].count && r[0].offset < r[i].offset + r[i].count)
            return 0;
    }
    return 1;
}

static int shift(struct mutant *m)
{
    int n = pick(m->s, has_regions);
    if (n < 0)
        return 0;
    const struct weft__snode *node = &m->s->nodes[n];
    struct weft_region *r = &m->s->regions[node->regions + draw(node->region_count)];
    size_t by = 1 + draw(r->count ? r->count : 1), old = r->offset;
    if (!r->count)
        return 0;
    r->offset = draw(2) ? old + by : old - by;
    snprintf(m->text, sizeof m->text, "node %d: offset %zu -> %zu", n, old, r->offset);
    return fits(m->s, node);
}

static int resize(struct mutant *m)
{
    int n = pick(m->s, has_regions), by = draw(2) ? 1 : -1;
    if (n < 0)
        return 0;
    const struct weft__snode *node = &m->s->nodes[n];
    struct weft_region *r = &m->s->regions[node->regions];
    if (!r->count)
        return 0;
    for (uint32_t i = 0; i < node->region_count; i++)
        r[i].count += (size_t)by;
    snprintf(m->text, sizeof m->text, "node %d: count %+d", n, by);
    return fits(m->s, node);
}

static int other_slot(struct mutant *m)
{
    int n = pick(m->s, has_regions);
    if (n < 0)
        return 0;
    const struct weft__snode *node = &m->s->nodes[n];
    struct weft_region *r = &m->s->regions[node->regions + draw(node->region_count)];
    weft_slot_t slot = (weft_slot_t)draw(m->s->buffer_count), old = r->slot;
    if (slot == old || !r->count || m->s->buffers[slot].dtype != m->s->buffers[old].dtype)
        return 0;
    r->slot = slot;
    snprintf(m->text, sizeof m->text, "node %d: slot %d -> %d", n, old, slot);
    return fits(m->s, node);
}

static int other_peer(struct mutant *m)
{
    int n = pick(m->s, has_peer), peer = (int)draw((uint64_t)m->s->size);
    if (n < 0 || m->s->nodes[n].peer == peer)
        return 0;
    snprintf(m->text, sizeof m->text, "node %d: peer %d -> %d", n, m->s->nodes[n].peer, peer);
    m->s->nodes[n].peer = peer;
    return 1;
}

static int other_tag(struct mutant *m)
{
    int n = pick(m->s, has_tag);
    if (n < 0)
        return 0;
    uint32_t old = m->s->nodes[n].tag;
    m->s->nodes[n].tag = draw(2) ? old + 1 : old ^ 1;
    snprintf(m->text, sizeof m->text, "node %d: tag %u -> %u", n, old, m->s->nodes[n].tag);
    return 1;
}

static int duplicate(struct mutant *m)
{
    int n = pick(m->s, is_message);
    if (n < 0)
        return 0;
    struct weft__snode node = m->s->nodes[n];
    struct weft_region r = m->s->regions[node.regions];
    weft_node_t made = node.kind == WEFT_NODE_SEND
                           ? weft_schedule_add_send(m->s, r, node.peer, node.tag)
                           : weft_schedule_add_recv(m->s, r, node.peer, node.tag);
    weft_schedule_add_order(m->s, n, made);
    snprintf(m->text, sizeof m->text, "node %d twice", n);
    return made >= 0;
}

static int swap_nodes(struct mutant *m)
{
    int a = pick(m->s, is_anything), b = pick(m->s, is_anything);
    if (a < 0 || a == b || m->s->nodes[a].choice != m->s->nodes[b].choice)
        return 0;
    struct weft__snode node = m->s->nodes[a];
    uint8_t any = node.any;
    m->s->nodes[a] = m->s->nodes[b];
    m->s->nodes[b] = node;
    m->s->nodes[b].any = m->s->nodes[a].any;
    m->s->nodes[a].any = any;
    m->places[0] = a;
    m->places[1] = b;
    snprintf(m->text, sizeof m->text, "nodes %d and %d change places", a, b);
    return 1;
}

static int other_op(struct mutant *m)
{
    int n = pick(m->s, is_reduction);
    if (n < 0)
        return 0;
    weft_op_destroy(m->s->nodes[n].op);
    m->s->nodes[n].op = weft_op_builtin(WEFT_MAX);
    snprintf(m->text, sizeof m->text, "node %d: another operation", n);
    return 1;
}

static int drop_node(struct mutant *m)
{
    int n = pick(m->s, is_anything);
    if (n < 0 || m->s->nodes[n].choice >= 0)
        return 0;
    snprintf(m->text, sizeof m->text, "drop node %d (%s)", n,
             weft_node_kind_name((weft_node_kind_t)m->s->nodes[n].kind));
    m->s->nodes[n].kind = WEFT_NODE_JOIN;
    m->s->nodes[n].region_count = 0;
    m->s->nodes[n].peer = -1;
    return 1;
}

static int toggle_any(struct mutant *m)
{
    size_t e = m->s->edge_count ? draw(m->s->edge_count) : 0, preds = 0;
    if (!m->s->edge_count)
        return 0;
    uint32_t n = m->s->edges[e].after;
    for (size_t i = 0; i < m->s->edge_count; i++)
        preds += m->s->edges[i].after == n;
    if (preds < 2)
        return 0;
    m->s->nodes[n].any = !m->s->nodes[n].any;
    snprintf(m->text, sizeof m->text, "node %u waits for %s", n,
             m->s->nodes[n].any ? "any" : "all");
    return 1;
}

static int swap_operands(struct mutant *m)
{
    int n = pick(m->s, is_reduction);
    if (n < 0)
        return 0;
    struct weft_region *r = &m->s->regions[m->s->nodes[n].regions], a = r[1];
    r[1] = r[2];
    r[2] = a;
    m->swapped = weft_op_commutes(m->s->nodes[n].op);
    snprintf(m->text, sizeof m->text, "node %d: operands swapped", n);
    return 1;
}

static const struct {
    const char *name;
    int (*change)(struct mutant *m);
} mutations[] = {
    {"order dropped", drop_edge},
    {"order turned around", turn_edge},
    {"offset shifted", shift},
    {"count changed", resize},
    {"another slot", other_slot},
    {"another peer", other_peer},
    {"another tag or channel", other_tag},
    {"message twice", duplicate},
    {"two nodes change places", swap_nodes},
    {"another operation", other_op},
    {"node left out", drop_node},
    {"any for all, all for any", toggle_any},
    {"operands swapped", swap_operands},
};
enum { MUTATIONS = sizeof mutations / sizeof mutations[0] };

/* ---- what is mutated ---- */

struct base {
    const char *name;
    struct weft_template_params params;
    int size;
    struct weft_schedule *at[MOST_RANKS];
};

/* Elements as functions x -> p x + q of 16 bits each, composed: associates, does not commute, and
 * every operand leaves its trace. */
static int compose(void *user, void *dst, const void *a, const void *b, size_t count,
                   weft_dtype_t dtype)
{
    (void)user, (void)dtype;
    for (size_t i = 0; i < count; i++) {
        uint32_t f = ((const uint32_t *)a)[i] | 1, g = ((const uint32_t *)b)[i] | 1;
        uint32_t p = (f & 0xffff) * (g & 0xffff), q = (f & 0xffff) * (g >> 16) + (f >> 16);
        ((uint32_t *)dst)[i] = (p & 0xffff) | q << 16;
    }
    return WEFT_OK;
}

static struct weft_op *ordered;

static int build(struct base *b, int rank, struct weft_schedule **s)
{
    return weft_template_build(b->name, rank, b->size, &b->params, s);
}

static int is_lossy(const struct weft_schedule *schedule)
{
    struct weft_result result = {.struct_size = sizeof result};
    int lossy = 0;
    for (size_t i = 0; weft_schedule_get_result(schedule, i, &result) == WEFT_OK; i++)
        lossy |= result.lossy;
    return lossy;
}

static int draw_base(struct base *b)
{
    const struct weft_template *t = weft_template_at(draw(weft_template_count()));
    size_t results = 0, computes = strstr(t->parameters, "slice") != NULL;
    memset(b, 0, sizeof *b);
    weft_template_params_init(&b->params);
    b->name = t->name;
    b->size = 2 + (int)draw(MOST_RANKS - 1);
    if (t->algorithm_count)
        b->params.algo = t->algorithms[draw(t->algorithm_count)].name;
    b->params.count = 1 + draw(3 * (uint64_t)b->size);
    b->params.dtype = WEFT_I32;
    b->params.in_place = (int)draw(2);
    b->params.segment = draw(3) ? WEFT_SEGMENT_NONE : 12;
    b->params.root = (int)draw((uint64_t)b->size);
    if (draw(2))
        b->params.op = ordered;
    for (int r = 0; r < b->size; r++) {
        if (build(b, r, &b->at[r]))
            return 0;
        results += weft_schedule_result_count(b->at[r]);
        computes += weft_schedule_value_count(b->at[r]) > 0 || is_lossy(b->at[r]);
    }
    return results > 0 && !computes;
}

static void free_base(struct base *b)
{
    for (int r = 0; r < b->size; r++)
        weft_schedule_destroy(b->at[r]);
}

/* ---- what becomes of it ---- */

static int passes(const struct base *b, char *text, size_t size)
{
    struct weft_check_report *report;
    struct weft_fault fault = {.struct_size = sizeof fault};
    if (weft_check((const struct weft_schedule *const *)b->at, (size_t)b->size, NULL, &report)) {
        snprintf(text, size, "%s", weft_error_text());
        return -1;
    }
    int ok = weft_check_report_ok(report);
    if (!ok && !weft_check_report_get_fault(report, 0, &fault))
        snprintf(text, size, "%s: %s", weft_fault_kind_name(fault.kind), fault.text);
    weft_check_report_destroy(report);
    return ok;
}

/* Whether ends came after the starts that are stated. */
static int hears_all(const struct weft_schedule *const *view, int size, const uint64_t *heard,
                     char *text, size_t bytes)
{
    for (int r = 0; r < size; r++)
        for (size_t i = 0; i < weft_schedule_result_count(view[r]); i++) {
            struct weft_result result = {.struct_size = sizeof result};
            weft_schedule_get_result(view[r], i, &result);
            for (int k = 0; result.kind == WEFT_RESULT_AFTER_START && k < result.ranks; k++)
                if (!(heard[r] >> weft_result_rank(&result, k) & 1)) {
                    snprintf(text, bytes, "rank %d ended before rank %d had started", r,
                             weft_result_rank(&result, k));
                    return 0;
                }
        }
    return 1;
}

/* Executes on data in several orders; 1: always as stated. */
static int works(const struct base *b, char *text, size_t size)
{
    const struct weft_schedule *const *view = (const struct weft_schedule *const *)b->at;
    int good = 1;
    for (int i = 0; good && i < EXECUTIONS; i++) {
        struct interp_memory initial, final;
        uint64_t heard[MOST_RANKS];
        struct interp_options options = {
            .seed = draw(UINT64_MAX), .rendezvous = i % 2, .heard = heard};
        if (interp_memory_create(&initial, view, b->size) ||
            interp_memory_create(&final, view, b->size))
            exit(2);
        for (int r = 0; r < b->size; r++)
            for (size_t s = 0; s < weft_schedule_slot_count(view[r]); s++) {
                struct weft_slot_info info = {.struct_size = sizeof info};
                weft_schedule_get_slot(view[r], (weft_slot_t)s, &info);
                size_t bytes = info.count * weft_dtype_size(info.dtype);
                if (info.kind != WEFT_SLOT_INPUT && info.kind != WEFT_SLOT_INOUT)
                    continue;
                for (size_t k = 0; k < bytes; k++)
                    ((char *)initial.slots[r][s])[k] = (char)draw(256);
                memcpy(final.slots[r][s], initial.slots[r][s], bytes);
            }
        good = !interp_run(view, b->size, &final, &options, text, size) &&
               !interp_check_results(view, b->size, &initial, &final, text, size) &&
               hears_all(view, b->size, heard, text, size);
        interp_memory_destroy(&initial);
        interp_memory_destroy(&final);
    }
    return good;
}

/* Is there another way from a to b? */
static int is_implied(const struct weft_schedule *s, weft_node_t a, weft_node_t b)
{
    char *seen = calloc(s->node_count, 1);
    if (!seen)
        exit(2);
    seen[a] = 1;
    for (int changed = 1; changed;) {
        changed = 0;
        for (size_t e = 0; e < s->edge_count; e++)
            if (seen[s->edges[e].before] && !seen[s->edges[e].after])
                seen[s->edges[e].after] = (char)(changed = 1);
    }
    int found = seen[b];
    free(seen);
    return found;
}

static int touch(const struct weft_schedule *s, weft_node_t a, weft_node_t b)
{
    const struct weft__snode *x = &s->nodes[a], *y = &s->nodes[b];
    for (uint32_t i = 0; i < x->region_count; i++)
        for (uint32_t j = 0; j < y->region_count; j++) {
            const struct weft_region *p = &s->regions[x->regions + i];
            const struct weft_region *q = &s->regions[y->regions + j];
            if (p->slot == q->slot && p->offset < q->offset + q->count &&
                q->offset < p->offset + p->count &&
                (weft__snode_writes(s, x, i) || weft__snode_writes(s, y, j)))
                return 1;
        }
    return 0;
}

/* Do two nodes wait for the same nodes, and the same nodes for them? */
static int same_neighbours(const struct weft_schedule *s, const weft_node_t places[2])
{
    for (size_t e = 0; e < s->edge_count; e++)
        for (int i = 0; i < 2; i++) {
            uint32_t a = (uint32_t)places[i], b = (uint32_t)places[1 - i];
            int found = s->edges[e].before != a && s->edges[e].after != a;
            for (size_t f = 0; !found && f < s->edge_count; f++)
                found = s->edges[e].before == a
                            ? s->edges[f].before == b && s->edges[f].after == s->edges[e].after
                            : s->edges[f].after == b && s->edges[f].before == s->edges[e].before;
            if (!found)
                return 0;
        }
    return 1;
}

enum { CAUGHT, IMPLIED, APART, COMMUTES, RENUMBERED, SAME_MEANING, HOLE, OUTCOMES };
static const char *const outcomes[] = {"caught",     "implied",    "unrelated", "commutes",
                                       "renumbered", "equivalent", "hole"};

static int judge(const struct base *b, const struct mutant *m, int verbose)
{
    char text[1024] = "", found[256] = "";
    int ok = passes(b, text, sizeof text);
    if (ok < 0) {
        printf("%s P=%d: %s: the checker failed: %s\n", b->name, b->size, m->text, text);
        return HOLE;
    }
    if (!ok)
        return CAUGHT;
    int outcome = SAME_MEANING;
    if (!works(b, found, sizeof found))
        outcome = HOLE;
    else if (m->swapped)
        outcome = COMMUTES;
    else if (m->reordered && is_implied(m->s, m->edge.before, m->edge.after))
        outcome = IMPLIED;
    else if (m->reordered && !touch(m->s, m->edge.before, m->edge.after))
        outcome = APART;
    else if (m->places[0] >= 0 && same_neighbours(m->s, m->places))
        outcome = RENUMBERED;
    if (outcome == HOLE || (verbose && outcome == SAME_MEANING))
        printf("%s: %s %s P=%d count=%zu segment=%zu in_place=%d root=%d rank %d: %s%s%s\n",
               outcomes[outcome], b->name, b->params.algo ? b->params.algo : "", b->size,
               b->params.count, b->params.segment, b->params.in_place, b->params.root,
               weft_schedule_rank(m->s), m->text, outcome == HOLE ? ": " : "",
               outcome == HOLE ? found : "");
    return outcome;
}

static void print_table(size_t counts[MUTATIONS][OUTCOMES])
{
    size_t all[OUTCOMES] = {0}, total = 0;
    printf("%-26s%8s", "mutation", "mutants");
    for (int o = 0; o < OUTCOMES; o++)
        printf("%12s", outcomes[o]);
    printf("\n");
    for (int k = 0; k <= MUTATIONS; k++) {
        size_t *row = k < MUTATIONS ? counts[k] : all, sum = 0;
        for (int o = 0; o < OUTCOMES; o++) {
            sum += row[o];
            if (k < MUTATIONS)
                all[o] += row[o];
        }
        total += k < MUTATIONS ? sum : 0;
        printf("%-26s%8zu", k < MUTATIONS ? mutations[k].name : "all", sum);
        for (int o = 0; o < OUTCOMES; o++)
            printf("%12zu", row[o]);
        printf("\n");
    }
    size_t equal = total - all[CAUGHT] - all[HOLE];
    printf("caught: %zu of the %zu that are not equivalent; %zu are\n", all[CAUGHT], total - equal,
           equal);
}

int main(int argc, char **argv)
{
    size_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 600;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    size_t counts[MUTATIONS][OUTCOMES] = {{0}}, made = 0, holes = 0;
    struct weft_op_config config;
    weft_op_config_init(&config);
    config.name = "compose";
    config.reduce = compose;
    if (weft_op_create(&ordered, &config))
        return 2;
    state = seed;
    for (size_t turn = 0; made < most; turn++) {
        int kind = (int)(turn % MUTATIONS), rank;
        struct base b;
        if (draw_base(&b)) {
            rank = (int)draw((uint64_t)b.size);
            struct mutant m = {.s = b.at[rank], .places = {-1, -1}};
            if (mutations[kind].change(&m)) {
                int outcome = judge(&b, &m, argc > 3);
                counts[kind][outcome]++;
                holes += outcome == HOLE;
                made++;
            }
        }
        free_base(&b);
    }
    print_table(counts);
    weft_op_destroy(ordered);
    printf("%zu mutants, seed %llu, %zu holes\n", made, (unsigned long long)seed, holes);
    return holes != 0;
}
