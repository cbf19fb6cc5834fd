/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fragment of activation, as the schedules of all ranks say it: a little model fires events,
 * delivers signals in random order, and sees who has been started.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <weft/activation.h>
#include <weft/weft.h>

enum { MOST_RANKS = 65, MOST_EDGES = 7, CHANNEL = 5 };

/* What a rank does on an event: by the edge that it came by, EDGES for the application. */
struct fragment {
    int edges;
    int peers[MOST_EDGES];
    int sends[MOST_EDGES + 1][MOST_EDGES]; /* 1: on that edge */
    int starts[MOST_EDGES + 1];
};

static int edge_of(const struct weft_node_info *node)
{
    return node->channel == WEFT_CHANNEL_NONE ? MOST_EDGES : (int)(node->channel - CHANNEL);
}

/* Reads the fragment from a rank's schedule. */
static void read_fragment(struct fragment *fragment, int rank, int ranks)
{
    struct weft_schedule *s = NULL;
    weft_node_t started = -1, before, after;
    struct weft_node_info from = {.struct_size = sizeof from}, to = {.struct_size = sizeof to};
    memset(fragment, 0, sizeof *fragment);
    cr_assert_eq(weft_schedule_create(&s, rank, ranks), WEFT_OK);
    weft_node_t application = weft_activation_add(s, CHANNEL, &started);
    cr_assert_geq(application, 0);
    cr_assert_eq(weft_schedule_status(s), WEFT_OK, "%s", weft_error_text());
    fragment->edges = weft_activation_edges(ranks);
    for (size_t e = 0; e < weft_schedule_edge_count(s); e++) {
        weft_schedule_get_edge(s, e, &before, &after);
        weft_schedule_get_node(s, before, &from);
        weft_schedule_get_node(s, after, &to);
        cr_assert_eq(from.kind, WEFT_NODE_EVENT);
        cr_assert_eq((edge_of(&from) == MOST_EDGES), (before == application));
        if (to.kind == WEFT_NODE_SIGNAL) {
            fragment->peers[edge_of(&to)] = to.peer;
            fragment->sends[edge_of(&from)][edge_of(&to)] = 1;
        } else {
            cr_assert_eq(after, started);
            fragment->starts[edge_of(&from)] = 1;
        }
    }
    weft_schedule_destroy(s);
}

struct signal {
    int to, edge;
};

/* Some ranks' applications arrive, at random times; all ranks are started, once. The signals sent.
 */
static int play(const struct fragment *fragments, int ranks, const char *activates, unsigned seed)
{
    static struct signal flying[MOST_RANKS * (MOST_EDGES + 2)];
    char started[MOST_RANKS] = {0};
    int count = 0, sent = 0;
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) + 99;
    for (int r = 0; r < ranks; r++)
        if (activates[r])
            flying[count++] = (struct signal){r, MOST_EDGES};
    while (count > 0) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        int which = (int)((random >> 33) % (uint64_t)count);
        struct signal now = flying[which];
        flying[which] = flying[--count];
        const struct fragment *f = &fragments[now.to];
        if (started[now.to]) /* the choice has retired the other events */
            continue;
        cr_assert(f->starts[now.edge], "rank %d of %d does not start by edge %d", now.to, ranks,
                  now.edge);
        started[now.to] = 1;
        for (int e = 0; e < f->edges; e++)
            if (f->sends[now.edge][e]) {
                flying[count++] = (struct signal){f->peers[e], e};
                sent++;
            }
    }
    for (int r = 0; r < ranks; r++)
        cr_assert(started[r], "rank %d of %d is not started", r, ranks);
    return sent;
}

Test(activation, all_are_started_whoever_activates)
{
    static struct fragment fragments[MOST_RANKS];
    for (int ranks = 1; ranks <= MOST_RANKS; ranks += ranks < 20 ? 1 : 3) {
        for (int r = 0; r < ranks; r++)
            read_fragment(&fragments[r], r, ranks);
        for (int r = 0; r < ranks; r++) { /* each alone */
            char activates[MOST_RANKS] = {0};
            activates[r] = 1;
            int sent = play(fragments, ranks, activates, (unsigned)r);
            if ((ranks & (ranks - 1)) == 0)
                cr_assert_eq(sent, ranks - 1, "%d signals of %d ranks", sent, ranks);
        }
        for (unsigned seed = 1; seed <= 300; seed++) { /* any set */
            char activates[MOST_RANKS] = {0};
            uint64_t random = seed * UINT64_C(0xd1342543de82ef95);
            for (int r = 0; r < ranks; r++, random = random * 25214903917u + 11)
                activates[r] = (random >> 40) % (seed % 7 + 1) == 0;
            activates[seed % (unsigned)ranks] = 1;
            play(fragments, ranks, activates, seed);
        }
        for (unsigned set = 1; ranks <= 5 && set < 1u << ranks; set++) /* every set */
            for (unsigned seed = 0; seed < 20; seed++) {
                char activates[MOST_RANKS];
                for (int r = 0; r < ranks; r++)
                    activates[r] = set >> r & 1;
                play(fragments, ranks, activates, seed);
            }
    }
}

Test(activation, edges_lead_there_and_back)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int r = 0; r < ranks; r++)
            for (int e = -1; e <= 8; e++) {
                int peer = weft_activation_peer(r, ranks, e);
                cr_assert(peer >= -1 && peer < ranks && peer != r);
                cr_assert(peer < 0 || weft_activation_peer(peer, ranks, e) == r);
            }
    cr_assert_eq(weft_activation_edges(1), 0);
    cr_assert_eq(weft_activation_edges(2), 1);
    cr_assert_eq(weft_activation_edges(17), 5);
    cr_assert_eq(weft_activation_edges(INT32_MAX), 31);
    cr_assert_eq(weft_activation_peer(-1, 4, 0), -1);
    cr_assert_eq(weft_activation_peer(4, 4, 0), -1);
}

Test(activation, channels_must_fit)
{
    struct weft_schedule *s = NULL;
    cr_assert_eq(weft_schedule_create(&s, 0, 2), WEFT_OK);
    cr_assert_eq(weft_activation_add(s, WEFT_CHANNEL_NONE - 1, NULL), WEFT_ERR_INVALID);
    cr_assert(strstr(weft_error_text(), "channel"));
    weft_schedule_destroy(s);
}
