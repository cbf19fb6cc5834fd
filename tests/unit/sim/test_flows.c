/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that share links: cases worked out by hand, and what holds of any traffic. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/sim/fabric.h"
#include "runtime/sim/route.h"
#include <weft/weft.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

enum { MOST_BYTES = 1 << 16, MESSAGES = 200, LINKS = 4096 };

struct message {
    int from, to;
    uint32_t bytes;
};

/* Messages that all begin at once, as far as their senders can. */
struct traffic {
    const struct message *messages;
    size_t count;
    int ranks;
    struct weft_net net;
    struct weft_fabric fabric;
    struct weft_sim_config config;
};

static int build_messages(void *user, int rank, struct weft_schedule **schedule)
{
    const struct traffic *traffic = user;
    struct weft_schedule *s = NULL;
    int status = weft_schedule_create(&s, rank, traffic->ranks);

    if (status)
        return status;
    weft_slot_t in = weft_schedule_add_slot(s, "in", WEFT_U8, MOST_BYTES, WEFT_SLOT_INPUT);
    weft_slot_t out = weft_schedule_add_slot(s, "out", WEFT_U8, MOST_BYTES, WEFT_SLOT_SCRATCH);
    for (size_t i = 0; i < traffic->count; i++) {
        const struct message *message = &traffic->messages[i];

        if (message->from == rank)
            weft_schedule_add_send(s, weft_region_at(in, 0, message->bytes), message->to,
                                   (uint32_t)i);
        if (message->to == rank)
            weft_schedule_add_recv(s, weft_region_at(out, 0, message->bytes), message->from,
                                   (uint32_t)i);
    }
    *schedule = s;
    return WEFT_OK;
}

static void traffic_of(struct traffic *traffic, int ranks, const char *net,
                       const struct message *messages, size_t count)
{
    *traffic = (struct traffic){.messages = messages, .count = count, .ranks = ranks};
    weft_net_init(&traffic->net);
    weft_fabric_init(&traffic->fabric);
    cr_assert_eq(weft_fabric_parse(net, &traffic->fabric, &traffic->net), WEFT_OK, "%s",
                 weft_error_text());
    weft_sim_config_init(&traffic->config);
    traffic->config.ranks = ranks;
    traffic->config.build = build_messages;
    traffic->config.user = traffic;
    traffic->config.net = &traffic->net;
    traffic->config.fabric = &traffic->fabric;
    traffic->config.flags = WEFT_SIM_KEEP_NODES;
    traffic->config.links = LINKS;
}

static struct weft_sim_result *simulated(const struct weft_sim_config *config)
{
    struct weft_sim_result *result = NULL;

    cr_assert_eq(weft_simulate(config, &result), WEFT_OK, "%s", weft_error_text());
    return result;
}

/* When the receive of message i ended. Its node stands behind those of the messages before. */
static double end_of(const struct traffic *traffic, const struct weft_sim_result *result, size_t i)
{
    int to = traffic->messages[i].to;
    uint64_t node = result->first_node[to];

    for (size_t j = 0; j < i; j++)
        node += (uint64_t)(traffic->messages[j].to == to) + (traffic->messages[j].from == to);
    node += traffic->messages[i].from == to;
    return result->nodes_at[node].end_us;
}

/* The receives of some messages end at these times. */
static void ends(int ranks, const char *net, const struct message *messages, const double *expected,
                 size_t count)
{
    struct traffic traffic;
    struct weft_sim_result *result;

    traffic_of(&traffic, ranks, net, messages, count);
    result = simulated(&traffic.config);
    cr_expect(result->complete);
    for (size_t i = 0; i < count; i++)
        cr_expect_float_eq(end_of(&traffic, result, i), expected[i], 1e-6,
                           "%s: message %zu ends at %.9g, expected %.9g", net, i,
                           end_of(&traffic, result, i), expected[i]);
    weft_sim_result_destroy(result);
}

#define ENDS(ranks, net, messages, ...)                                                            \
    ends(ranks, net, messages, (const double[]){__VA_ARGS__}, COUNT_OF(messages))

/* ---- by hand: m = 1000 bytes, m G = 100 ---- */

Test(flows, one_message_alone_takes_what_the_formula_says)
{
    static const char *const fabrics[] = {"torus=16",     "torus=4x4",
                                          "torus=2x4x2",  "fat-tree=16",
                                          "fat-tree=4x4", "fat-tree=2x2x4,oversubscription=2"};
    static const struct {
        const char *net;
        double each; /* of a byte: the slower of adapter and link */
        double hop;
    } nets[] = {{"L=5,o=1,G=0.1", 0.1, 0},
                {"L=5,o=1,G=0.1,hop=0.5", 0.1, 0.5},
                {"L=5,o=1,G=0.1,hop=0.5,link=0.3", 0.3, 0.5},
                {"L=5,o=1,G=0.1,link=0.01", 0.1, 0},
                {"L=5,o=1,link=0.07,S=10", 0.07, 0},
                {"L=5,o=1,G=0.1,offload=1", 0.1, 0},
                {"L=5,o=1,hop=2", 0, 2}};

    for (size_t f = 0; f < COUNT_OF(fabrics); f++)
        for (size_t n = 0; n < COUNT_OF(nets); n++)
            for (int to = 1; to < 16; to++)
                for (uint32_t bytes = 0; bytes <= 1000; bytes += 500) {
                    struct message message = {0, to, bytes};
                    struct traffic traffic;
                    struct weft_fabric full;
                    struct weft__routes routes;
                    uint32_t links[64], hops;
                    char text[128];

                    snprintf(text, sizeof text, "%s,%s", fabrics[f], nets[n].net);
                    traffic_of(&traffic, 16, text, &message, 1);
                    weft__fabric_read("test", "fabric", &traffic.fabric, &full);
                    cr_assert_eq(weft__routes_of("test", "fabric", &full, &routes), WEFT_OK);
                    hops = weft__route(&routes, 0, (uint32_t)to, links);
                    ends(16, text, &message,
                         &(double){1 + 5 + hops * nets[n].hop + bytes * nets[n].each + 1}, 1);
                }
}

/* A ring of 8: 0 to 3 and 1 to 4 share two links; 6 to 5 goes the other way. */
Test(flows, two_over_one_link_take_twice_as_long)
{
    static const struct message both[] = {{0, 3, 1000}, {1, 4, 1000}, {6, 5, 1000}};
    static const struct message unequal[] = {{0, 3, 1000}, {1, 4, 2000}};

    ENDS(8, "torus=8,L=5,o=1,G=0.1,hop=1", both, 1 + 5 + 3 + 200 + 1, 1 + 5 + 3 + 200 + 1,
         1 + 5 + 1 + 100 + 1);
    /* the longer one has the link for itself when the shorter one has left it, at 200 */
    ENDS(8, "torus=8,L=5,G=0.1", unequal, 205, 305);
}

/* Two ranks a host. Three messages share the link from host 1 to host 2, a third each; one of them
 * goes on to host 3, and what it leaves of that link, two thirds, the fourth has. */
Test(flows, what_a_message_cannot_use_another_one_has)
{
    static const struct message messages[] = {
        {0, 4, 1000}, {2, 6, 1000}, {3, 5, 1000}, {5, 7, 1000}};

    ENDS(16, "torus=8,ranks-per-host=2,G=0.1", messages, 300, 300, 300, 150);
}

Test(flows, a_rank_sends_one_message_at_a_time_over_each_of_its_links)
{
    static const struct message one_way[] = {{0, 1, 1000}, {0, 2, 1000}, {0, 1, 0}};
    static const struct message both_ways[] = {{0, 1, 1000}, {0, 7, 1000}};

    ENDS(8, "torus=8,link=0.1", one_way, 100, 200, 200);
    ENDS(8, "torus=8,link=0.1", both_ways, 100, 100);
    /* an adapter that is as fast as one link */
    ENDS(8, "torus=8,G=0.1", both_ways, 100, 200);
    /* and one that is as fast as two: the second follows after m G = 50 */
    ENDS(8, "torus=8,G=0.05,link=0.1", both_ways, 100, 150);
}

Test(flows, what_comes_in_over_two_links_shares_the_adapter)
{
    static const struct message messages[] = {{7, 0, 1000}, {1, 0, 1000}};

    ENDS(8, "torus=8,G=0.1", messages, 200, 200);
    ENDS(8, "torus=8,link=0.1", messages, 100, 100);
    /* the processor takes in one after the other, that of rank 1, which began first, before */
    ENDS(8, "torus=8,G=0.1,o=1", messages, 203, 202);
    ENDS(8, "torus=8,G=0.1,o=1,offload=1", messages, 202, 202);
}

Test(flows, ranks_of_a_host_reach_each_other_over_no_link)
{
    static const struct message messages[] = {{0, 1, 1000}, {2, 3, 1000}, {1, 4, 1000}};

    ENDS(8, "fat-tree=2x2,ranks-per-host=2,L=5,G=0.1,hop=3", messages, 105, 105, 5 + 4 * 3 + 100);
    ENDS(8, "fat-tree=2x2,ranks-per-host=2,L=5,link=0.1,hop=3", messages, 5, 5, 5 + 4 * 3 + 100);
}

/* Hosts 0 to 3 under one leaf switch, with one link up where they are oversubscribed by 4. */
Test(flows, an_oversubscribed_switch_holds_up_what_leaves_it)
{
    static const struct message leave[] = {{0, 4, 1000}, {1, 5, 1000}, {2, 6, 1000}, {3, 7, 1000}};
    static const struct message stay[] = {{0, 1, 1000}, {1, 2, 1000}, {2, 3, 1000}, {3, 0, 1000}};

    ENDS(8, "fat-tree=4x2,G=0.1", leave, 100, 100, 100, 100);
    ENDS(8, "fat-tree=4x2,oversubscription=2,G=0.1", leave, 200, 200, 200, 200);
    ENDS(8, "fat-tree=4x2,oversubscription=4,G=0.1", leave, 400, 400, 400, 400);
    ENDS(8, "fat-tree=4x2,oversubscription=4,G=0.1", stay, 100, 100, 100, 100);
}

/* A rendezvous send ends when its message is there, or when it is posted. */
Test(flows, a_rendezvous_ends_when_the_message_is_there)
{
    static const struct message message = {0, 2, 1000};
    struct traffic traffic;
    struct weft_sim_result *result;

    traffic_of(&traffic, 8, "torus=8,L=5,o=1,G=0.1,hop=2,S=10", &message, 1);
    result = simulated(&traffic.config);
    cr_expect_float_eq(result->nodes_at[result->first_node[0]].end_us, 1 + 5 + 4 + 100, 1e-9);
    cr_expect_float_eq(result->time_us, 1 + 5 + 4 + 100 + 1, 1e-9);
    weft_sim_result_destroy(result);
}

/* ---- templates ---- */

struct job {
    const char *name;
    struct weft_template_params params;
    int size;
};

static int build_template(void *user, int rank, struct weft_schedule **schedule)
{
    const struct job *job = user;

    return weft_template_build(job->name, rank, job->size, &job->params, schedule);
}

static void job_of(struct job *job, struct traffic *traffic, const char *name, const char *algo,
                   int size, size_t count, const char *net)
{
    traffic_of(traffic, size, net, NULL, 0);
    *job = (struct job){.name = name, .size = size};
    weft_template_params_init(&job->params);
    job->params.algo = algo;
    job->params.count = count;
    job->params.segment = WEFT_SEGMENT_NONE;
    traffic->config.build = build_template;
    traffic->config.user = job;
}

/* Neighbours talk to neighbours, each over a link of its own. */
Test(flows, a_ring_on_a_ring_shares_nothing)
{
    for (int size = 2; size <= 24; size++) {
        struct job job;
        struct traffic traffic;
        struct weft_sim_result *result;
        double P = size, m = 4.0 * size * 100, expected = 2 * (P - 1) * (3 + 0.5 + m / P * 0.01);
        char net[64];

        snprintf(net, sizeof net, "torus=%d,L=3,hop=0.5,G=0.01", size);
        job_of(&job, &traffic, "allreduce", "ring", size, (size_t)size * 100, net);
        result = simulated(&traffic.config);
        cr_expect_float_eq(result->time_us, expected, 1e-6 * expected, "%d ranks: %.9g, not %.9g",
                           size, result->time_us, expected);
        cr_expect_float_eq(result->levels[0].bytes, (double)result->bytes, 0.5);
        weft_sim_result_destroy(result);
    }
}

/* Recursive doubling on a ring of 8, by hand: neighbours, then at a distance of 2, where two share
 * the link in the middle in each direction, then of 4: even hosts go up and odd ones down, so that
 * four messages of 4 links lie in each of the two directions of 8 links, two on each. */
Test(flows, recursive_doubling_on_a_ring_shares_links)
{
    struct job job;
    struct traffic traffic;
    struct weft_sim_result *result;

    job_of(&job, &traffic, "allreduce", "recursive-doubling", 8, 250, "torus=8,L=3,G=0.1,hop=1");
    result = simulated(&traffic.config);
    cr_expect_float_eq(result->time_us, (3 + 1 + 100) + (3 + 2 + 200) + (3 + 4 + 200), 1e-6);
    cr_expect_eq(result->levels[0].bytes, 8 * 1000 * (1 + 2 + 4));
    cr_expect_eq(result->sent_bytes, 8 * 1000 * 3);
    weft_sim_result_destroy(result);
}

/* Of 4 x 4 hosts the last two of four rounds cross the top: half of all. */
Test(flows, the_share_of_the_top_is_told)
{
    struct job job;
    struct traffic traffic;
    struct weft_sim_result *result;

    job_of(&job, &traffic, "allreduce", "recursive-doubling", 16, 250, "fat-tree=4x4,L=3,G=0.1");
    result = simulated(&traffic.config);
    cr_assert_eq(result->level_count, 2);
    cr_expect_eq(result->sent_bytes, 16 * 4 * 1000);
    cr_expect_eq(result->levels[0].crossing_bytes, 16 * 4 * 1000);
    cr_expect_eq(result->levels[1].crossing_bytes, 16 * 2 * 1000);
    cr_expect(result->levels[0].links == 32 && result->levels[1].links == 32);
    cr_expect_float_eq(result->time_us, 4 * (3 + 100), 1e-6);
    cr_expect_float_eq(result->levels[0].utilisation, 400 / 412.0, 1e-9);
    cr_expect_float_eq(result->levels[1].utilisation, 200 / 412.0, 1e-9);
    weft_sim_result_destroy(result);
}

static const char *const fabrics[] = {"torus=5x4,",
                                      "torus=3x3x3,",
                                      "torus=4x2,ranks-per-host=3,",
                                      "fat-tree=4x5,",
                                      "fat-tree=3x3x3,",
                                      "fat-tree=6x2x2,oversubscription=3,",
                                      "torus=8x8,place=random:7,",
                                      "fat-tree=4x4,oversubscription=4,ranks-per-host=2,"};

Test(flows, every_template_ends_and_its_path_does_not_go_back)
{
    static const char *const nets[] = {"L=1,G=0.01,hop=0.1", "L=1,o=2,g=3,G=0.01,O=0.001",
                                       "L=0.1,o=1,G=0.1,S=16", "link=0.1,o=0.1,offload=1", "hop=1"};

    for (size_t t = 0; t < weft_template_count(); t++)
        for (size_t i = 0; i < COUNT_OF(nets) * COUNT_OF(fabrics); i++) {
            struct job job;
            struct traffic traffic;
            struct weft_sim_result *result;
            char net[128];

            snprintf(net, sizeof net, "%s%s", fabrics[i / COUNT_OF(nets)],
                     nets[i % COUNT_OF(nets)]);
            job_of(&job, &traffic, weft_template_at(t)->name, NULL, 1 + (int)(3 * i + t) % 20, 100,
                   net);
            traffic.config.copy_us_per_byte = 0.01;
            result = simulated(&traffic.config);
            cr_expect(result->complete, "%s on %d ranks, %s: %s", job.name, job.size, net,
                      result->fault_count ? result->faults[0].text : "");
            for (size_t k = 1; k < result->path_length; k++)
                cr_expect(result->path[k - 1].start_us <= result->path[k].end_us + 1e-9,
                          "%s on %d, %s: step %zu goes back", job.name, job.size, net, k);
            weft_sim_result_destroy(result);
        }
}

/* ---- traffic drawn at random ---- */

static void check_conservation(const struct traffic *traffic, const struct weft_sim_result *result,
                               const char *net)
{
    struct weft_fabric full;
    struct weft__routes routes;
    uint64_t bytes[WEFT_FABRIC_LEVELS] = {0}, crossing[WEFT_FABRIC_LEVELS] = {0}, sent = 0;
    uint64_t listed[WEFT_FABRIC_LEVELS] = {0};
    uint32_t links[64];

    weft__fabric_read("test", "fabric", &traffic->fabric, &full);
    cr_assert_eq(weft__routes_of("test", "fabric", &full, &routes), WEFT_OK);
    for (size_t i = 0; i < traffic->count; i++) {
        const struct message *message = &traffic->messages[i];
        uint32_t per_host = (uint32_t)full.ranks_per_host, levels = 0;
        uint32_t hops = weft__route(&routes, (uint32_t)message->from / per_host,
                                    (uint32_t)message->to / per_host, links);

        for (uint32_t h = 0; h < hops; h++) {
            bytes[weft__route_level(&routes, links[h])] += message->bytes;
            levels |= 1u << weft__route_level(&routes, links[h]);
        }
        for (uint32_t l = 0; l < routes.levels; l++)
            crossing[l] += levels >> l & 1 ? message->bytes : 0;
        sent += message->bytes;
    }
    for (size_t i = 0; i < result->link_count; i++) {
        const struct weft_sim_link *link = &result->links[i];

        listed[link->level] += link->bytes;
        cr_expect(link->utilisation >= 0 && link->utilisation <= 1 + 1e-9, "%s: %s to %s: %.12g",
                  net, link->from, link->to, link->utilisation);
        cr_expect(!i || link->bytes <= link[-1].bytes);
    }
    cr_expect_eq(result->sent_bytes, sent);
    for (uint32_t l = 0; l < routes.levels; l++) {
        cr_expect_eq(result->levels[l].bytes, bytes[l], "%s: level %u", net, l);
        cr_expect_eq(result->levels[l].crossing_bytes, crossing[l], "%s: level %u", net, l);
        cr_expect_eq(listed[l], bytes[l], "%s: level %u", net, l);
    }
}

static void same_nodes(const struct weft_sim_result *a, const struct weft_sim_result *b)
{
    cr_assert_eq(a->nodes, b->nodes);
    for (uint64_t i = 0; i < a->nodes; i++)
        cr_assert(a->nodes_at[i].ready_us == b->nodes_at[i].ready_us &&
                  a->nodes_at[i].start_us == b->nodes_at[i].start_us &&
                  a->nodes_at[i].end_us == b->nodes_at[i].end_us);
}

static void same(const struct weft_sim_result *a, const struct weft_sim_result *b)
{
    same_nodes(a, b);
    cr_assert_eq(a->link_count, b->link_count);
    for (size_t i = 0; i < a->link_count; i++)
        cr_expect(!strcmp(a->links[i].from, b->links[i].from) &&
                  !strcmp(a->links[i].to, b->links[i].to) &&
                  a->links[i].bytes == b->links[i].bytes &&
                  a->links[i].messages == b->links[i].messages &&
                  a->links[i].utilisation == b->links[i].utilisation);
}

Test(flows, bytes_on_links_are_those_of_the_messages_times_their_links)
{
    for (uint64_t seed = 0; seed < 64; seed++) {
        const char *fabric = fabrics[seed % COUNT_OF(fabrics)];
        struct message messages[MESSAGES];
        struct weft_sim_result *result, *again;
        struct traffic traffic;
        uint64_t state = seed;
        char net[128];

        if (strstr(fabric, "random"))
            continue;
        snprintf(net, sizeof net, "%sL=1,o=0.1,G=0.01,hop=0.2%s", fabric,
                 seed % 3 ? "" : ",link=0.015");
        for (size_t i = 0; i < MESSAGES; i++) {
            messages[i].from = (int)(weft__random(&state) % 20);
            messages[i].to = (int)((uint64_t)messages[i].from + 1 + weft__random(&state) % 19) % 20;
            messages[i].bytes = (uint32_t)(weft__random(&state) % MOST_BYTES);
        }
        traffic_of(&traffic, 20, net, messages, MESSAGES);
        result = simulated(&traffic.config);
        cr_expect(result->complete);
        check_conservation(&traffic, result, net);
        traffic.config.threads = 3;
        again = simulated(&traffic.config);
        same(result, again);
        weft_sim_result_destroy(result);
        weft_sim_result_destroy(again);
    }
}

/* ---- places, sizes, wrong input ---- */

/* 0 to 1 is one link in the order of numbers; as `hosts` says it is two. */
Test(flows, ranks_are_where_hosts_says)
{
    static const struct message message = {0, 1, 1000};
    int hosts[] = {2, 4, 0};
    struct traffic traffic;
    struct weft_sim_result *result;

    traffic_of(&traffic, 3, "torus=8,hop=1,ranks-per-host=5", &message, 1);
    traffic.fabric.hosts = hosts;
    result = simulated(&traffic.config);
    cr_expect_eq(result->time_us, 2);
    cr_assert_eq(result->link_count, 2);
    cr_expect_str_eq(result->links[0].from, "(2)");
    cr_expect_str_eq(result->links[1].to, "(4)");
    weft_sim_result_destroy(result);
    hosts[2] = 8;
    cr_expect_eq(weft_simulate(&traffic.config, &result), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "hosts[2] is 8, expected 0..7"), "%s", weft_error_text());
}

/* Every rank has a place of its own: as many of all pairs as of a full fabric stay on a host. */
Test(flows, random_places_are_a_permutation_by_their_seed)
{
    enum { RANKS = 24 };
    struct message messages[RANKS * (RANKS - 1)];
    size_t count = 0;
    double first = 0;
    int differ = 0;

    for (int from = 0; from < RANKS; from++)
        for (int to = 0; to < RANKS; to++)
            if (from != to)
                messages[count++] = (struct message){from, to, 1 + (uint32_t)(from * to)};
    for (int seed = 0; seed < 8; seed++) {
        struct traffic traffic;
        struct weft_sim_result *result, *again;
        char net[96];

        snprintf(net, sizeof net, "torus=4x3,G=0.1,ranks-per-host=2,place=random:%d", seed);
        traffic_of(&traffic, RANKS, net, messages, count);
        result = simulated(&traffic.config);
        again = simulated(&traffic.config);
        same(result, again);
        cr_expect_eq(result->levels[0].links, 24);
        uint64_t carried = 0;
        for (size_t i = 0; i < result->link_count; i++)
            carried += result->links[i].messages;
        /* 4 ranks to each pair of the 12 hosts; distances of a ring of 4 and one of 3 */
        cr_expect_eq(carried, 4 * 12 * (3 * (1 + 1 + 2) + 4 * (1 + 1)));
        differ += seed && result->time_us != first;
        first = seed ? first : result->time_us;
        weft_sim_result_destroy(result);
        weft_sim_result_destroy(again);
    }
    cr_expect(differ > 0, "seeds change nothing");
}

Test(flows, one_rank_and_hosts_without_ranks)
{
    static const char *const nets[] = {"torus=1", "torus=1x1,G=1", "torus=4x4,G=1", "fat-tree=1",
                                       "fat-tree=4x4,oversubscription=2,G=1"};

    for (size_t i = 0; i < COUNT_OF(nets); i++) {
        struct job job;
        struct traffic traffic;
        struct weft_sim_result *result;

        job_of(&job, &traffic, "allreduce", NULL, 1, 100, nets[i]);
        result = simulated(&traffic.config);
        cr_expect(result->complete && result->time_us == 0 && result->link_count == 0);
        weft_sim_result_destroy(result);
    }
}

Test(flows, more_ranks_than_there_is_room_for_are_refused)
{
    struct job job;
    struct traffic traffic;
    struct weft_sim_result *result = NULL;

    job_of(&job, &traffic, "allreduce", NULL, 9, 100, "torus=4,ranks-per-host=2");
    cr_expect_eq(weft_simulate(&traffic.config, &result), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "config->ranks is 9, expected at most 8"), "%s",
              weft_error_text());
    traffic.fabric.levels = 0;
    cr_expect_eq(weft_simulate(&traffic.config, &result), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "config->fabric->levels is 0"), "%s", weft_error_text());
}

Test(flows, without_a_fabric_nothing_is_told_of_links)
{
    struct job job;
    struct traffic traffic;
    struct weft_sim_result *with, *without;

    job_of(&job, &traffic, "allreduce", NULL, 9, 100, "L=1,G=0.1");
    with = simulated(&traffic.config);
    traffic.config.fabric = NULL;
    without = simulated(&traffic.config);
    same_nodes(with, without);
    cr_expect(!with->levels && !with->links && !with->level_count && !with->link_count);
    weft_sim_result_destroy(with);
    weft_sim_result_destroy(without);
}

Test(flows, the_eight_busiest_links_are_told_of_by_default)
{
    struct job job;
    struct traffic traffic;
    struct weft_sim_result *result;

    job_of(&job, &traffic, "allreduce", "ring", 12, 120, "torus=12,G=0.1");
    traffic.config.links = 0;
    result = simulated(&traffic.config);
    cr_expect_eq(result->link_count, 8);
    weft_sim_result_destroy(result);
    traffic.config.links = -1;
    cr_expect_eq(weft_simulate(&traffic.config, &result), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "config->links is -1"), "%s", weft_error_text());
}

Test(flows, every_allocation_may_fail)
{
    long failing;

    for (failing = 1; failing < 10000; failing++) {
        struct job job;
        struct traffic traffic;
        struct weft_sim_result *result = NULL;
        int status;

        job_of(&job, &traffic, "allreduce", NULL, 9, 100,
               "torus=4x3,place=random:1,L=1,hop=1,G=0.1");
        atomic_store(&weft__alloc_countdown, failing);
        status = weft_simulate(&traffic.config, &result);
        cr_expect(status == WEFT_ERR_MEMORY || status == WEFT_OK, "call %ld: %s", failing,
                  weft_error_text());
        cr_expect_eq(status == WEFT_OK, result != NULL);
        weft_sim_result_destroy(result);
        if (atomic_load(&weft__alloc_countdown) > 0)
            break;
    }
    atomic_store(&weft__alloc_countdown, -1);
    cr_expect(failing > 20 && failing < 10000);
}
