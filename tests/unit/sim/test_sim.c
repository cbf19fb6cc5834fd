/* SPDX-License-Identifier: BSD-3-Clause */
/* The flat simulator: closed formulas, cases worked out by hand, what does not end, wrong input. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include <weft/weft.h>

/* ---- templates ---- */

struct job {
    const char *name;
    int size;
    struct weft_template_params params;
    struct weft_net net;
};

static int build_template(void *user, int rank, struct weft_schedule **schedule)
{
    struct job *job = user;

    return weft_template_build(job->name, rank, job->size, &job->params, schedule);
}

static struct job job_of(const char *name, const char *algo, int size, size_t count)
{
    struct job job = {.name = name, .size = size};

    weft_template_params_init(&job.params);
    job.params.algo = algo;
    job.params.count = count;
    job.params.segment = WEFT_SEGMENT_NONE;
    return job;
}

static struct weft_sim_config config_of(struct job *job, const char *net)
{
    struct weft_sim_config config;

    weft_sim_config_init(&config);
    config.ranks = job->size;
    config.build = build_template;
    config.user = job;
    weft_net_init(&job->net);
    cr_assert_eq(weft_net_parse(net, &job->net), WEFT_OK, "%s", weft_error_text());
    config.net = &job->net;
    return config;
}

static struct weft_sim_result *simulated(const struct weft_sim_config *config)
{
    struct weft_sim_result *result = NULL;

    cr_assert_eq(weft_simulate(config, &result), WEFT_OK, "%s", weft_error_text());
    return result;
}

/* Time of a template with o = g = 0. */
static double time_of(const char *name, const char *algo, int size, size_t count, double alpha,
                      double beta)
{
    struct job job = job_of(name, algo, size, count);
    struct weft_sim_config config = config_of(&job, "L=0");
    struct weft_sim_result *result;
    double time;

    job.net.L = alpha;
    job.net.G = beta;
    result = simulated(&config);
    cr_assert(result->complete, "%s %s on %d", name, algo, size);
    time = result->time_us;
    weft_sim_result_destroy(result);
    return time;
}

static void expect_time(double time, double expected, const char *what, int size, size_t bytes)
{
    cr_expect(fabs(time - expected) <= 1e-6 * fmax(expected, 1),
              "%s, P = %d, m = %zu: %.9g, not %.9g", what, size, bytes, time, expected);
}

static double log2_ceil(int n)
{
    double log = 0;

    for (int power = 1; power < n; power *= 2)
        log++;
    return log;
}

Test(sim, closed_formulas)
{
    static const double alphas[] = {0, 1, 2.5, 100}, betas[] = {0, 0.0004, 0.125};

    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 3; j++)
            for (int size = 2; size <= 64; size *= 2)
                for (size_t count = 64; count <= 64 * 1024; count *= 32) {
                    double a = alphas[i], b = betas[j], m = (double)(4 * count), P = size;

                    expect_time(time_of("allreduce", "ring", size, count, a, b),
                                2 * (P - 1) * a + 2 * (P - 1) / P * m * b, "ring", size, 4 * count);
                    expect_time(time_of("allreduce", "recursive-doubling", size, count, a, b),
                                log2(P) * (a + m * b), "recursive doubling", size, 4 * count);
                    expect_time(time_of("broadcast", "binomial", size, count, a, b),
                                log2(P) * (a + m * b), "binomial broadcast", size, 4 * count);
                    expect_time(time_of("allreduce", "reduce-scatter-allgather", size, count, a, b),
                                2 * log2(P) * a + 2 * (P - 1) / P * m * b,
                                "reduce-scatter-allgather", size, 4 * count);
                    expect_time(time_of("allgather", "ring", size, count, a, b),
                                (P - 1) * (a + m * b), "ring allgather", size, 4 * count);
                }
}

Test(sim, closed_formulas_of_sizes_that_are_no_powers_of_two)
{
    for (int size = 3; size <= 33; size += 2) {
        size_t count = (size_t)size * 100;
        double P = size, m = (double)(4 * count), a = 3, b = 0.01;

        expect_time(time_of("allreduce", "ring", size, count, a, b),
                    2 * (P - 1) * a + 2 * (P - 1) / P * m * b, "ring", size, 4 * count);
        expect_time(time_of("allgather", "ring", size, count, a, b), (P - 1) * (a + m * b),
                    "ring allgather", size, 4 * count);
        expect_time(time_of("barrier", NULL, size, count, a, b), log2_ceil(size) * a, "barrier",
                    size, 0);
    }
}

Test(sim, every_template_ends_on_defaults)
{
    for (size_t i = 0; i < weft_template_count(); i++)
        for (int size = 1; size <= 17; size++) {
            struct job job = {.name = weft_template_at(i)->name, .size = size};
            struct weft_sim_config config;
            struct weft_sim_result *result;

            weft_template_params_init(&job.params);
            job.params.count = 1024;
            config = config_of(&job, "L=1,o=0.5,g=2,G=0.001,O=0.0001,S=1024");
            config.reduce_us_per_byte = 0.001;
            result = simulated(&config);
            cr_expect(result->complete, "%s on %d ranks: %s", job.name, size,
                      result->fault_count ? result->faults[0].text : "");
            cr_expect_eq(result->stuck, 0);
            weft_sim_result_destroy(result);
        }
}

static void same(const struct weft_sim_result *a, const struct weft_sim_result *b)
{
    cr_assert_eq(a->path_length, b->path_length);
    cr_expect_eq(memcmp(a->rank_us, b->rank_us, (size_t)a->ranks * sizeof *a->rank_us), 0);
    for (size_t i = 0; i < a->path_length; i++)
        cr_expect(a->path[i].rank == b->path[i].rank && a->path[i].node == b->path[i].node &&
                  a->path[i].start_us == b->path[i].start_us);
}

Test(sim, threads_and_repetition_change_nothing)
{
    struct job job = job_of("allreduce", NULL, 301, 1000);
    struct weft_sim_config config = config_of(&job, "L=1,o=0.3,g=0.7,G=0.001,S=100");
    struct weft_sim_result *one = simulated(&config), *two = simulated(&config), *three;

    config.threads = 3;
    three = simulated(&config);
    same(one, two);
    same(one, three);
    weft_sim_result_destroy(one);
    weft_sim_result_destroy(two);
    weft_sim_result_destroy(three);
}

/* The path leads from 0 to the end without going back, and each reason fits. */
Test(sim, the_critical_path_is_one)
{
    static const char *const nets[] = {"L=1,G=0.01", "L=1,o=2,g=3,G=0.01", "L=0.1,o=1,G=0.1,S=16",
                                       "o=1", "L=0"};

    for (size_t t = 0; t < weft_template_count(); t++)
        for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
            for (int size = 1; size <= 9; size += 2) {
                struct job job = job_of(weft_template_at(t)->name, NULL, size, 100);
                struct weft_sim_config config = config_of(&job, nets[i]);
                struct weft_sim_result *result;
                const struct weft_sim_step *path;

                config.copy_us_per_byte = 0.01;
                result = simulated(&config);
                path = result->path;
                if (result->time_us > 0)
                    cr_assert(result->path_length > 0, "%s", job.name);
                for (size_t k = 0; k < result->path_length; k++) {
                    cr_expect(path[k].start_us <= path[k].end_us);
                    cr_expect_eq(path[k].reason == WEFT_SIM_FIRST, k == 0);
                    if (k)
                        cr_expect(path[k - 1].start_us <= path[k].end_us + 1e-9,
                                  "%s on %d, net %zu: step %zu goes back", job.name, size, i, k);
                    if (k && path[k].reason == WEFT_SIM_MESSAGE && path[k].kind == WEFT_NODE_RECV)
                        cr_expect(path[k - 1].peer == path[k].rank &&
                                  path[k].peer == path[k - 1].rank);
                }
                if (result->path_length) {
                    cr_expect_eq(path[0].start_us, 0);
                    cr_expect(result->signals ||
                              fabs(path[result->path_length - 1].end_us - result->time_us) < 1e-9);
                }
                weft_sim_result_destroy(result);
            }
}

/* ---- schedules written by hand ---- */

struct hand {
    struct weft_schedule *at[3];
    int size;
};

static void hand_free(struct hand *hand)
{
    for (int i = 0; i < hand->size; i++)
        weft_schedule_destroy(hand->at[i]);
}

static struct hand read_hand(const char *text)
{
    struct hand hand = {.size = 0};
    struct weft_schedule **read = NULL;
    size_t count = 0;

    cr_assert_eq(weft_schedule_read(text, strlen(text), NULL, 0, &read, &count), WEFT_OK, "%s",
                 weft_error_text());
    cr_assert(count <= 3);
    for (size_t i = 0; i < count; i++)
        hand.at[i] = read[i];
    hand.size = (int)count;
    weft_memory_free((void *)read);
    return hand;
}

static struct weft_sim_result *run_hand(const struct hand *hand, const char *net)
{
    struct weft_sim_config config;
    struct weft_net parsed;

    weft_sim_config_init(&config);
    config.ranks = hand->size;
    config.schedules = (const struct weft_schedule *const *)hand->at;
    config.reduce_us_per_byte = 1;
    config.copy_us_per_byte = 1;
    config.flags = WEFT_SIM_KEEP_NODES;
    weft_net_init(&parsed);
    cr_assert_eq(weft_net_parse(net, &parsed), WEFT_OK, "%s", weft_error_text());
    config.net = &parsed;
    return simulated(&config);
}

static struct weft_sim_node node_of(const struct weft_sim_result *result, int rank, int node)
{
    return result->nodes_at[result->first_node[rank] + (uint64_t)node];
}

static void ends(const struct weft_sim_result *result, int rank, int node, double end)
{
    cr_expect_float_eq(node_of(result, rank, node).end_us, end, 1e-9,
                       "rank %d node %d ends at %g, not %g", rank, node,
                       node_of(result, rank, node).end_us, end);
}

static const char two_to_one[] = "weft 1\n"
                                 "schedule \"two to one\" size 3\n"
                                 "rank 0 {\n"
                                 "  input a u8 100\n"
                                 "  n0: send a[0:100] to 2 tag 0\n"
                                 "  n1: send a[0:100] to 2 tag 1\n"
                                 "}\n"
                                 "rank 1 {\n"
                                 "  input a u8 100\n"
                                 "  n0: send a[0:100] to 2 tag 0\n"
                                 "}\n"
                                 "rank 2 {\n"
                                 "  output b u8 300\n"
                                 "  n0: recv b[0:100] from 0 tag 0\n"
                                 "  n1: recv b[100:200] from 1 tag 0\n"
                                 "  n2: recv b[200:300] from 0 tag 1\n"
                                 "}\n";

/* L = 5, o = 1, g = 2, G = 0.1: m G = 10. Rank 0 sends at 0 and, its link being busy until 12, at
 * 12. Both first messages are at rank 2 at 6: rank 0's is taken in until 6 + 1 + 10 = 17, the link
 * is busy until 18, then rank 1's until 29, the link until 30. The third comes at 18 and waits for
 * 30. */
Test(sim, gaps_on_both_sides)
{
    struct hand hand = read_hand(two_to_one);
    struct weft_sim_result *result = run_hand(&hand, "L=5,o=1,g=2,G=0.1");

    ends(result, 0, 0, 1);
    ends(result, 0, 1, 13);
    ends(result, 1, 0, 1);
    ends(result, 2, 0, 17);
    ends(result, 2, 1, 29);
    ends(result, 2, 2, 41);
    cr_expect_float_eq(node_of(result, 2, 1).start_us, 18, 1e-9);
    cr_expect_float_eq(result->time_us, 41, 1e-9);
    cr_expect_float_eq(result->rank_us[0], 13, 1e-9);
    cr_expect(result->messages == 3 && result->bytes == 300 && result->nodes == 6);
    cr_expect_eq(node_of(result, 2, 2).peer, 0);
    cr_expect_eq(node_of(result, 2, 2).peer_node, 1);
    cr_expect_eq(node_of(result, 0, 1).peer_node, 2);
    /* rank 2's third receive, after the link had rank 1's message, after the link had rank 0's */
    cr_assert_eq(result->path_length, 4);
    cr_expect(result->path[3].reason == WEFT_SIM_LINK && result->path[2].reason == WEFT_SIM_LINK);
    cr_expect(result->path[1].reason == WEFT_SIM_MESSAGE && result->path[1].node == 0);
    weft_sim_result_destroy(result);
    hand_free(&hand);
}

static const char two_to_a_busy_one[] = "weft 1\n"
                                        "schedule \"two to a busy one\" size 2\n"
                                        "rank 0 {\n"
                                        "  input a u8 100\n"
                                        "  n0: send a[0:100] to 1 tag 0\n"
                                        "  n1: send a[0:100] to 1 tag 1\n"
                                        "}\n"
                                        "rank 1 {\n"
                                        "  input a u8 200\n"
                                        "  output b u8 500\n"
                                        "  scratch s u8 200\n"
                                        "  n0: recv s[0:100] from 0 tag 0\n"
                                        "  n1: recv s[100:200] from 0 tag 1\n"
                                        "  n2: copy b[0:100] = s[0:100] after n0\n"
                                        "  n3: copy b[100:200] = a[0:100]\n"
                                        "  n4: copy b[200:300] = a[100:200]\n"
                                        "}\n";

/* As above, and a copy takes 10; the messages are there at 6 and at 18. An adapter
 * takes the first in until 17, the second until 29, and has 1 of the processor for each: from 10,
 * behind the first copy, and from 21, behind the second; the copy of what came first ends last.
 * Without it the processor takes the first in from 20 on, behind both copies, copies it from 31,
 * when the link is not free yet, and takes the second in from 41. */
Test(sim, an_adapter_takes_messages_in_while_the_processor_computes)
{
    struct hand hand = read_hand(two_to_a_busy_one);
    struct weft_sim_config config;
    struct weft_net net;
    struct weft_sim_result *result;

    weft_sim_config_init(&config);
    config.ranks = 2;
    config.schedules = (const struct weft_schedule *const *)hand.at;
    config.copy_us_per_byte = 0.1;
    config.flags = WEFT_SIM_KEEP_NODES;
    weft_net_init(&net);
    cr_assert_eq(weft_net_parse("L=5,o=1,g=2,G=0.1,offload=1", &net), WEFT_OK);
    config.net = &net;
    result = simulated(&config);
    cr_expect(result->complete);
    ends(result, 1, 3, 10);
    ends(result, 1, 0, 17);
    ends(result, 1, 4, 21);
    ends(result, 1, 1, 29);
    ends(result, 1, 2, 32);
    cr_expect_float_eq(result->time_us, 32, 1e-9);
    cr_assert_eq(result->path_length, 3);
    cr_expect(result->path[0].node == 3 && result->path[1].node == 4 && result->path[2].node == 2);
    cr_expect_eq(result->path[2].reason, WEFT_SIM_PROCESSOR);
    weft_sim_result_destroy(result);
    net.flags = 0;
    result = simulated(&config);
    ends(result, 1, 0, 31);
    ends(result, 1, 2, 41);
    ends(result, 1, 1, 52);
    cr_expect_float_eq(result->time_us, 52, 1e-9);
    weft_sim_result_destroy(result);
    config.copy_us_per_byte = 0;
    net.flags = WEFT_NET_OFFLOAD; /* the last to end is a message, which has no processor then */
    result = simulated(&config);
    cr_expect_float_eq(result->time_us, 29, 1e-9);
    cr_expect_float_eq(result->rank_us[1], 29, 1e-9);
    cr_assert_eq(result->path_length, 3);
    cr_expect_eq(result->path[2].kind, WEFT_NODE_RECV);
    cr_expect_eq(result->path[2].node, 1);
    weft_sim_result_destroy(result);
    hand_free(&hand);
}

/* LogGOPSim's own times: a byte less of each message, m G = 9.9. */
Test(sim, the_first_byte_free)
{
    struct hand hand = read_hand(two_to_one);
    struct weft_sim_config config;
    struct weft_net net;
    struct weft_sim_result *result;

    weft_sim_config_init(&config);
    config.ranks = 3;
    config.schedules = (const struct weft_schedule *const *)hand.at;
    weft_net_init(&net);
    net.L = 5;
    net.o = 1;
    net.G = 0.1;
    net.flags = WEFT_NET_LOGGOPSIM;
    config.net = &net;
    result = simulated(&config);
    cr_expect_float_eq(result->time_us, 6 + 3 * 10.9, 1e-9);
    weft_sim_result_destroy(result);
    hand_free(&hand);
}

static const char late_receive[] = "weft 1\n"
                                   "schedule \"late\" size 2\n"
                                   "rank 0 {\n"
                                   "  input a u8 100\n"
                                   "  scratch t u8 100\n"
                                   "  n0: send a[0:100] to 1 tag 0\n"
                                   "  n1: copy t[0:10] = a[0:10] after n0\n"
                                   "}\n"
                                   "rank 1 {\n"
                                   "  output b u8 100\n"
                                   "  scratch t u8 200\n"
                                   "  n0: copy t[0:50] = t[50:100]\n"
                                   "  n1: recv b[0:100] from 0 tag 0 after n0\n"
                                   "  n2: copy t[0:5] = t[50:55] after n1\n"
                                   "}\n";

/* Rank 1 copies until 50; the message came at 6 and, the processor being busy, is taken in at 50.
 */
Test(sim, rendezvous_waits_for_the_receive_and_adds_no_latency)
{
    struct hand hand = read_hand(late_receive);
    struct weft_sim_result *eager = run_hand(&hand, "L=5,o=1,G=0.1,S=100");
    struct weft_sim_result *met = run_hand(&hand, "L=5,o=1,G=0.1,S=99");

    ends(eager, 0, 0, 1);
    ends(eager, 0, 1, 11);
    ends(eager, 1, 0, 50);
    ends(eager, 1, 1, 61); /* 50 + 1 + 10 */
    ends(eager, 1, 2, 66);
    ends(met, 1, 1, 61);
    ends(met, 0, 0, 50);
    ends(met, 0, 1, 60);
    weft_sim_result_destroy(eager);
    weft_sim_result_destroy(met);
    hand_free(&hand);
}

/* The message is taken in at 6 .. 17 though nobody asked for it, which holds the copy up until 17;
 * the receive is posted when the copy ends, and ends at once: so does the sender, at 67. */
Test(sim, an_unexpected_message_takes_the_processor)
{
    struct hand hand = read_hand("weft 1\n"
                                 "schedule \"unexpected\" size 2\n"
                                 "rank 0 {\n"
                                 "  input a u8 100\n"
                                 "  scratch t u8 100\n"
                                 "  n0: send a[0:100] to 1 tag 0\n"
                                 "  n1: copy t[0:10] = a[0:10] after n0\n"
                                 "}\n"
                                 "rank 1 {\n"
                                 "  output b u8 100\n"
                                 "  scratch t u8 200\n"
                                 "  n0: copy t[0:8] = t[50:58]\n"
                                 "  n1: copy t[0:50] = t[50:100] after n0\n"
                                 "  n2: recv b[0:100] from 0 tag 0 after n1\n"
                                 "}\n");
    struct weft_sim_result *result = run_hand(&hand, "L=5,o=1,G=0.1,S=99");

    /* n0 until 8, the message was there at 6: it was caused at 0, n1 when n0 started, later: it
     * goes first, at 8, until 19; n1 from 19 to 69. */
    ends(result, 1, 0, 8);
    ends(result, 1, 1, 69);
    ends(result, 1, 2, 69);
    cr_expect_float_eq(node_of(result, 1, 2).start_us, 8, 1e-9);
    ends(result, 0, 0, 69);
    ends(result, 0, 1, 79);
    cr_expect_float_eq(result->time_us, 79, 1e-9);
    cr_assert(result->path_length >= 3);
    cr_expect_eq(result->path[result->path_length - 2].reason, WEFT_SIM_RENDEZVOUS);
    weft_sim_result_destroy(result);
    hand_free(&hand);
}

/* ---- events ---- */

static const char choice_text[] = "weft 1\n"
                                  "schedule \"choice\" size 2\n"
                                  "rank 0 {\n"
                                  "  scratch t u8 100\n"
                                  "  n0: event choice 0\n"
                                  "  n1: event channel 1 choice 0\n"
                                  "  n2: signal to 1 channel 1 after n0\n"
                                  "  n3: copy t[0:7] = t[50:57] after n1\n"
                                  "  n4: join after any n2, n3\n"
                                  "}\n"
                                  "rank 1 {\n"
                                  "  scratch t u8 100\n"
                                  "  n0: event choice 0\n"
                                  "  n1: event channel 1 choice 0\n"
                                  "  n2: signal to 0 channel 1 after n0\n"
                                  "  n3: copy t[0:7] = t[50:57] after n1\n"
                                  "  n4: join after any n2, n3\n"
                                  "}\n";

static struct weft_sim_result *run_choice(const struct hand *hand, const int *activators,
                                          size_t count)
{
    struct weft_sim_config config;
    struct weft_net net;

    weft_sim_config_init(&config);
    config.ranks = hand->size;
    config.schedules = (const struct weft_schedule *const *)hand->at;
    config.copy_us_per_byte = 1;
    config.flags = WEFT_SIM_KEEP_NODES;
    config.activators = activators;
    config.activator_count = count;
    weft_net_init(&net);
    net.L = 10;
    net.o = 1;
    config.net = &net;
    return simulated(&config);
}

Test(sim, one_rank_activates_the_other)
{
    struct hand hand = read_hand(choice_text);
    struct weft_sim_result *result = run_choice(&hand, NULL, 0);

    cr_expect(result->complete && result->signals == 1 && result->messages == 0);
    cr_expect(node_of(result, 0, 1).retired && node_of(result, 0, 3).retired);
    cr_expect(node_of(result, 1, 0).retired && node_of(result, 1, 2).retired);
    ends(result, 1, 3, 19); /* o + L + o, and 7 */
    ends(result, 1, 4, 19);
    ends(result, 0, 4, 1);
    weft_sim_result_destroy(result);
    hand_free(&hand);
}

Test(sim, every_rank_may_activate_or_none)
{
    static const int both[] = {0, 1}, second[] = {1};
    struct hand hand = read_hand(choice_text);
    struct weft_sim_result *result = run_choice(&hand, both, 2);

    cr_expect(result->complete && result->signals == 2);
    cr_expect(!node_of(result, 1, 0).retired && node_of(result, 1, 3).retired);
    weft_sim_result_destroy(result);
    result = run_choice(&hand, second, 1);
    cr_expect(result->complete && node_of(result, 0, 0).retired);
    weft_sim_result_destroy(result);
    result = run_choice(&hand, both, 0);
    cr_expect(!result->complete && result->stuck == 10);
    cr_assert(result->fault_count > 0);
    cr_expect_not_null(strstr(result->faults[0].text, "event"));
    weft_sim_result_destroy(result);
    hand_free(&hand);
}

/* ---- what does not end ---- */

static void expect_fault(const char *text, const char *net, const char *words)
{
    struct hand hand = read_hand(text);
    struct weft_sim_result *result = run_hand(&hand, net);

    cr_expect_not(result->complete);
    cr_assert(result->fault_count > 0);
    cr_expect_not_null(strstr(result->faults[0].text, words), "\"%s\" does not say \"%s\"",
                       result->faults[0].text, words);
    weft_sim_result_destroy(result);
    hand_free(&hand);
}

#define PAIR(zero, one)                                                                            \
    "weft 1\nschedule \"pair\" size 2\nrank 0 {\n  inout a u8 9\n" zero                            \
    "}\nrank 1 {\n  inout a u8 9\n" one "}\n"

Test(sim, what_does_not_end_is_named)
{
    expect_fault(PAIR("  n0: recv a[0:9] from 1 tag 0\n  n1: send a[0:9] to 1 tag 0 after n0\n",
                      "  n0: recv a[0:9] from 0 tag 0\n  n1: send a[0:9] to 0 tag 0 after n0\n"),
                 "L=1", "deadlock: rank");
    /* with eager sends it ends, with a rendezvous each waits for the other's receive */
    expect_fault(PAIR("  n0: send a[0:9] to 1 tag 0\n  n1: recv a[0:9] from 1 tag 0 after n0\n",
                      "  n0: send a[0:9] to 0 tag 0\n  n1: recv a[0:9] from 0 tag 0 after n0\n"),
                 "L=1,S=8", "which waits for the first of these");
    expect_fault(PAIR("  n0: recv a[0:9] from 1 tag 4\n", "  n0: join\n"), "L=1",
                 "waits for a message that rank 1 never sends");
    expect_fault(PAIR("  n0: send a[0:9] to 1 tag 4\n", "  n0: join\n"), "L=1",
                 "match: rank 0 node 0 (send to rank 1, tag 4): rank 1 has no receive for it");
    expect_fault(PAIR("  n0: send a[0:9] to 1 tag 4\n", "  n0: recv a[0:8] from 0 tag 4\n"), "L=1",
                 "9 bytes, but node 0 of rank 1 receives 8");
    expect_fault(PAIR("  n0: event channel 3\n", "  n0: join\n"), "L=1",
                 "a signal on channel 3, which never comes");
}

Test(sim, a_cycle_of_orders_is_a_deadlock)
{
    struct weft_schedule *schedule = NULL;
    const struct weft_schedule *all[1];
    struct weft_sim_config config;
    struct weft_sim_result *result;

    weft_schedule_create(&schedule, 0, 1);
    weft_schedule_add_join(schedule);
    weft_schedule_add_join(schedule);
    weft_schedule_add_order(schedule, 0, 1);
    weft_schedule_add_order(schedule, 1, 0);
    all[0] = schedule;
    weft_sim_config_init(&config);
    config.ranks = 1;
    config.schedules = all;
    result = simulated(&config);
    cr_expect(!result->complete && result->stuck == 2 && result->path_length == 0);
    cr_assert(result->fault_count > 0);
    cr_expect_not_null(strstr(result->faults[0].text, "deadlock: rank 0 node"));
    weft_sim_result_destroy(result);
    weft_schedule_destroy(schedule);
}

/* ---- wrong input ---- */

static int fail_from_seven(void *user, int rank, struct weft_schedule **schedule)
{
    (void)user;
    return rank < 7 ? weft_schedule_create(schedule, rank, 500)
                    : weft_error_set(WEFT_ERR_COMPUTE, "rank %d fails", rank);
}

static void expect_error(const struct weft_sim_config *config, int expected, const char *words)
{
    struct weft_sim_result *result = NULL;

    cr_expect_eq(weft_simulate(config, &result), expected, "%s", weft_error_text());
    cr_expect_null(result);
    cr_expect_not_null(strstr(weft_error_text(), words), "\"%s\" does not say \"%s\"",
                       weft_error_text(), words);
}

Test(sim, wrong_arguments_are_named)
{
    struct job job = job_of("allreduce", NULL, 4, 16);
    struct weft_sim_config good = config_of(&job, "L=1"), bad;
    struct weft_net net;
    const struct weft_schedule *none[4] = {NULL};
    int nine = 9;

    cr_expect_eq(weft_simulate(NULL, NULL), WEFT_ERR_INVALID);
    bad = good, bad.ranks = 0;
    expect_error(&bad, WEFT_ERR_INVALID, "`ranks` is 0");
    bad = good, bad.struct_size = 3;
    expect_error(&bad, WEFT_ERR_INVALID, "struct_size");
    bad = good, bad.build = NULL;
    expect_error(&bad, WEFT_ERR_INVALID, "neither");
    bad = good, bad.build = NULL, bad.schedules = none;
    expect_error(&bad, WEFT_ERR_INVALID, "no schedule for rank 0");
    bad = good, bad.ranks = 3;
    expect_error(&bad, WEFT_ERR_INVALID, "expected rank 0 of 3");
    net = job.net, net.L = -1, bad = good, bad.net = &net;
    expect_error(&bad, WEFT_ERR_INVALID, "config->net->L is -1, expected 0 to 1e+12");
    net = job.net, net.G = NAN;
    expect_error(&bad, WEFT_ERR_INVALID, "config->net->G is nan, expected 0 to 1e+09");
    bad = good, bad.copy_us_per_byte = -2;
    expect_error(&bad, WEFT_ERR_INVALID, "copy_us_per_byte");
    net = job.net, net.L = 1e12, net.o = 1e12, bad = good, bad.net = &net;
    expect_error(&bad, WEFT_ERR_UNSUPPORTED, "simulated time");
    bad = good, bad.activators = &nine, bad.activator_count = 1;
    expect_error(&bad, WEFT_ERR_INVALID, "rank 9");
}

Test(sim, the_lowest_rank_that_fails_is_told)
{
    struct weft_sim_config config;

    weft_sim_config_init(&config);
    config.ranks = 500;
    config.build = fail_from_seven;
    for (config.threads = 1; config.threads <= 4; config.threads++)
        expect_error(&config, WEFT_ERR_COMPUTE, "rank 7 fails");
}

Test(sim, messages_that_could_not_be_told_apart)
{
    struct weft_schedule *schedule = NULL;
    const struct weft_schedule *all[1];
    struct weft_sim_config config;

    weft_schedule_create(&schedule, 0, 1);
    weft_schedule_add_slot(schedule, "a", WEFT_U8, 8, WEFT_SLOT_INOUT);
    weft_schedule_add_send(schedule, weft_region_at(0, 0, 4), 0, 5);
    weft_schedule_add_recv(schedule, weft_region_at(0, 4, 4), 0, 5);
    weft_schedule_add_send(schedule, weft_region_at(0, 0, 4), 0, 5);
    all[0] = schedule;
    weft_sim_config_init(&config);
    config.ranks = 1;
    config.schedules = all;
    expect_error(&config, WEFT_ERR_DUPLICATE, "nodes 0 and 2");
    weft_schedule_destroy(schedule);
}

/* Many receives of one tag from many ranks are found whatever their order. */
Test(sim, many_receives_in_an_order_of_their_own)
{
    enum { SENDERS = 200 };
    struct weft_schedule *schedules[SENDERS + 1] = {NULL};
    struct weft_sim_config config;
    struct weft_net net;
    struct weft_sim_result *result;

    for (int rank = 0; rank <= SENDERS; rank++) {
        weft_schedule_create(&schedules[rank], rank, SENDERS + 1);
        weft_schedule_add_slot(schedules[rank], "a", WEFT_U8, SENDERS, WEFT_SLOT_INOUT);
        for (int i = 0; i < SENDERS && rank == 0; i++)
            weft_schedule_add_recv(schedules[0], weft_region_at(0, (size_t)i, 1),
                                   1 + i * 77 % SENDERS, 3);
        if (rank)
            weft_schedule_add_send(schedules[rank], weft_region_at(0, 0, 1), 0, 3);
    }
    weft_sim_config_init(&config);
    config.ranks = SENDERS + 1;
    config.schedules = (const struct weft_schedule *const *)schedules;
    weft_net_init(&net);
    net.L = 1;
    net.G = 1;
    config.net = &net;
    result = simulated(&config);
    cr_expect(result->complete);
    cr_expect_float_eq(result->time_us, 1 + SENDERS, 1e-9);
    weft_sim_result_destroy(result);
    for (int rank = 0; rank <= SENDERS; rank++)
        weft_schedule_destroy(schedules[rank]);
}

Test(sim, no_memory_is_an_error_and_nothing_leaks)
{
    struct job job = job_of("allreduce", "ring", 3, 16);
    struct weft_sim_config config = config_of(&job, "L=1,o=1,S=4");
    struct hand hand = read_hand(choice_text);
    int failures = 0;

    config.flags = WEFT_SIM_KEEP_NODES;
    for (int turn = 0; turn < 2; turn++) {
        int status = WEFT_ERR_MEMORY;

        for (long n = 1; status; n++) {
            struct weft_sim_result *result = NULL;

            cr_assert(n < 10000);
            weft__alloc_countdown = n;
            status = weft_simulate(&config, &result);
            weft__alloc_countdown = -1;
            cr_assert(status == WEFT_OK || status == WEFT_ERR_MEMORY, "%s", weft_error_text());
            failures += status != WEFT_OK;
            weft_sim_result_destroy(result);
        }
        config.build = NULL;
        config.ranks = 2;
        config.schedules = (const struct weft_schedule *const *)hand.at;
        config.activators = &hand.size;
        config.activator_count = 0;
    }
    cr_expect(failures > 10, "%d", failures);
    hand_free(&hand);
}

/* ---- costs of operations ---- */

/* 128 elements in slices of 64 onto 8 components on one rank: 2 x 8 components are written, 128
 * values, 512 elements of the basis, the mean and three squares are read, 1024 products made. */
Test(sim, operations_have_costs_of_their_own)
{
    const struct weft_sim_op_cost costs[] = {
        {.op = "pro", .written_us_per_byte = 100},
        {.op = "project", .written_us_per_byte = 1, .read_us_per_byte = 0.5, .product_us = 0.25},
        {.op = "reconstruct", .product_us = 2}};
    struct weft_template_params params;
    struct weft_schedule *schedule = NULL;
    struct weft_sim_config config;
    struct weft_sim_result *result = NULL;

    weft_template_params_init(&params);
    params.count = 128;
    cr_assert_eq(weft_template_build("projected-allreduce", 0, 1, &params, &schedule), WEFT_OK);
    weft_sim_config_init(&config);
    config.ranks = 1;
    config.schedules = (const struct weft_schedule *const *)&schedule;
    config.op_costs = costs;
    config.op_cost_count = 3;
    cr_assert_eq(weft_simulate(&config, &result), WEFT_OK, "%s", weft_error_text());
    cr_expect_float_eq(result->time_us,
                       (16 * 4 + 24) * 1.0 + (128 * 4 + 512 * 4 + 128 * 4 + 24) * 0.5 +
                           1024 * 0.25 + 1024 * 2.0,
                       1e-6, "%g", result->time_us);
    weft_sim_result_destroy(result);
    config.op_cost_count = 1;
    config.op_costs = &(const struct weft_sim_op_cost){.op = "project", .product_us = -1};
    cr_expect_eq(weft_simulate(&config, &result), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "product_us is -1"), "%s", weft_error_text());
    config.op_costs = &(const struct weft_sim_op_cost){.op = NULL};
    cr_expect_eq(weft_simulate(&config, &result), WEFT_ERR_INVALID);
    weft_schedule_destroy(schedule);
}

static double projected_takes(int size, double product_us, const char *net)
{
    const struct weft_sim_op_cost costs[] = {{.op = "project", .product_us = product_us},
                                             {.op = "reconstruct", .product_us = product_us}};
    struct job job = job_of("projected-allreduce", "ring", size, 65536);
    struct weft_sim_config config;
    struct weft_sim_result *result;
    double time;

    config = config_of(&job, net);
    config.op_costs = costs;
    config.op_cost_count = 2;
    result = simulated(&config);
    cr_expect(result->complete);
    time = result->time_us;
    weft_sim_result_destroy(result);
    return time;
}

/* What has to be computed and what has to be sent are done at once where an adapter takes messages
 * in: no less than the longer, which on two ranks it is, and less than without. */
Test(sim, an_adapter_hides_the_compression_of_a_ring)
{
    for (int size = 2; size <= 8; size++) {
        double sent = projected_takes(size, 0, "L=1,G=0.005,offload=1");
        double computed = projected_takes(size, 0.0005, "L=0");
        double apart = projected_takes(size, 0.0005, "L=1,G=0.005");
        double together = projected_takes(size, 0.0005, "L=1,G=0.005,offload=1");

        cr_expect_geq(together, fmax(sent, computed) * (1 - 1e-9), "P = %d: %g of %g and %g", size,
                      together, sent, computed);
        cr_expect_lt(together, size == 2 ? computed * (1 + 1e-9) : 0.95 * (sent + computed),
                     "P = %d: %g of %g and %g", size, together, sent, computed);
        cr_expect_lt(together, apart, "P = %d: %g, %g by the processor", size, together, apart);
    }
}
