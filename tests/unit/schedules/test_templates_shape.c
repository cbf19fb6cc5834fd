/* SPDX-License-Identifier: BSD-3-Clause */
/* What the schedules of templates are like, whatever they compute: how much they do and keep, which
 * algorithm is chosen, how large they may be, what is refused. */
#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <weft/template.h>

#include "runtime/base/alloc.h"

static size_t kind_count(const struct weft_schedule *schedule, weft_node_kind_t kind)
{
    size_t count = 0;
    for (size_t i = 0; i < weft_schedule_node_count(schedule); i++) {
        struct weft_node_info info = {.struct_size = sizeof info};
        weft_schedule_get_node(schedule, (weft_node_t)i, &info);
        count += info.kind == kind;
    }
    return count;
}

struct work {
    size_t messages;   /* of all ranks together */
    size_t reductions; /* the same */
    size_t receives;   /* of the rank that has most */
};

static struct work work_of(const char *name, const char *algo, int size, int in_place)
{
    struct work work = {0};
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.count = 64;
    params.algo = algo;
    params.in_place = in_place;
    for (int r = 0; r < size; r++) {
        struct weft_schedule *schedule;
        cr_assert_eq(weft_template_build(name, r, size, &params, &schedule), WEFT_OK);
        size_t receives = kind_count(schedule, WEFT_NODE_RECV);
        work.messages += receives;
        work.reductions += kind_count(schedule, WEFT_NODE_REDUCE);
        work.receives = receives > work.receives ? receives : work.receives;
        weft_schedule_destroy(schedule);
    }
    return work;
}

static size_t log2_of(size_t n)
{
    size_t log = 0;
    while ((size_t)1 << log < n)
        log++;
    return log;
}

/* The rounds, messages and reductions that docs/templates.md promises. */
Test(templates_shape, scans_do_no_more_than_their_cost_says)
{
    for (int size = 2; size <= 70; size++) {
        size_t ranks = (size_t)size, log = log2_of(ranks), steps = 1;
        for (size_t covered = 1; covered < ranks - 1; steps++)
            covered = steps == 1 ? 3 : 2 * covered;
        /* ceil(log2(4/3 (P - 1))) */
        cr_assert_eq(steps, log2_of((4 * (ranks - 1) + 2) / 3), "P=%d", size);
        struct work scan = work_of("scan", "recursive-doubling", size, 0);
        cr_assert_eq(scan.receives, log);
        cr_assert_eq(scan.messages, scan.reductions);
        cr_assert_eq(work_of("scan", "chain", size, 0).reductions, ranks - 1);
        cr_assert_eq(work_of("exscan", "chain", size, 0).reductions, ranks - 2);
        cr_assert_eq(work_of("exscan", "recursive-doubling", size, 0).receives, log);
        struct work fewest = work_of("exscan", "123-doubling", size, 0);
        cr_assert_eq(fewest.receives, steps);
        cr_assert_leq(fewest.reductions, fewest.messages);
        struct work tree = work_of("scan", "binary-tree", size, 0);
        cr_assert_leq(tree.messages, 2 * (ranks - 1));
        cr_assert_leq(tree.reductions, 2 * (ranks - 1));
        tree = work_of("exscan", "binary-tree", size, 0);
        cr_assert_leq(tree.messages, 2 * (ranks - 1));
        cr_assert_leq(tree.reductions, 2 * (ranks - 1));
    }
}

Test(templates_shape, two_ranks_copy_nothing)
{
    struct weft_template_params params;
    struct weft_schedule *schedule;
    weft_template_params_init(&params);
    params.count = 1024;
    params.algo = "recursive-doubling";
    cr_assert_eq(weft_template_build("allreduce", 0, 2, &params, &schedule), WEFT_OK);
    cr_assert_eq(weft_schedule_node_count(schedule), 3);
    cr_assert_eq(weft_schedule_edge_count(schedule), 1);
    weft_schedule_destroy(schedule);

    params.algo = "reduce-scatter-allgather";
    params.segment = WEFT_SEGMENT_NONE;
    cr_assert_eq(weft_template_build("allreduce", 1, 2, &params, &schedule), WEFT_OK);
    cr_assert_eq(kind_count(schedule, WEFT_NODE_SEND), 2);
    cr_assert_eq(kind_count(schedule, WEFT_NODE_RECV), 2);
    cr_assert_eq(kind_count(schedule, WEFT_NODE_REDUCE), 1);
    cr_assert_eq(weft_schedule_node_count(schedule), 5);
    cr_assert_eq(weft_schedule_edge_count(schedule), 2);
    weft_schedule_destroy(schedule);
}

Test(templates_shape, the_farthest_child_is_served_first)
{
    struct weft_template_params params;
    struct weft_schedule *schedule;
    static const int order[] = {32, 16, 8, 4, 2, 1};
    weft_template_params_init(&params);
    params.count = 1024;
    params.algo = "binomial";
    cr_assert_eq(weft_template_build("broadcast", 0, 64, &params, &schedule), WEFT_OK);
    cr_assert_eq(weft_schedule_node_count(schedule), 6);
    for (int i = 0; i < 6; i++) {
        struct weft_node_info info = {.struct_size = sizeof info};
        weft_schedule_get_node(schedule, i, &info);
        cr_assert_eq(info.peer, order[i]);
    }
    weft_schedule_destroy(schedule);
}

Test(templates_shape, the_choice_follows_the_costs)
{
    struct weft_template_params params;
    struct weft_cost_model model;
    const char *algo;
    double small, large;
    weft_template_params_init(&params);
    params.count = 1;
    cr_assert_eq(weft_template_choose("allreduce", 16, &params, &algo, &small), WEFT_OK);
    cr_assert_str_eq(algo, "recursive-doubling");
    params.count = 16 << 20;
    cr_assert_eq(weft_template_choose("allreduce", 16, &params, &algo, &large), WEFT_OK);
    cr_assert_str_neq(algo, "recursive-doubling");
    cr_assert_gt(large, small);

    /* Messages that cost nothing to start: the fewest bytes win. Bytes for nothing: fewest
     * messages. */
    weft_cost_model_init(&model, "mpi");
    params.cost = &model;
    params.count = 1000;
    model.alpha_us = model.node_us = 0;
    cr_assert_eq(weft_template_choose("allreduce", 12, &params, &algo, NULL), WEFT_OK);
    cr_assert_str_eq(algo, "ring");
    model.alpha_us = 1;
    model.beta_us_per_byte = model.gamma_us_per_byte = 0;
    cr_assert_eq(weft_template_choose("allreduce", 12, &params, &algo, NULL), WEFT_OK);
    cr_assert_str_eq(algo, "recursive-multiplying"); /* 12 = 3 2 2: 2 + 1 + 1; doubling: 3 + 2 */
    cr_assert_eq(weft_template_choose("allreduce", 16, &params, &algo, NULL), WEFT_OK);
    cr_assert_str_eq(algo, "recursive-doubling");
}

/* Few rounds, few reductions, few bytes: each scan is best where its cost says. */
Test(templates_shape, the_choice_of_a_scan_follows_the_costs)
{
    static const struct {
        const char *name;
        int size;
        size_t count;
        double alpha, beta, gamma;
        const char *algo;
    } cases[] = {
        {"scan", 512, 1, 1, 1e-4, 1e-4, "recursive-doubling"},
        {"scan", 512, 1 << 18, 1, 1e-4, 1e-4, "binary-tree"},
        {"scan", 8, 1 << 20, 1, 1e-4, 1e-4, "chain"},
        {"exscan", 16, 1, 1, 1e-4, 1e-4, "recursive-doubling"},
        {"exscan", 16, 1 << 10, 1, 1e-4, 1e-2, "123-doubling"},
        {"exscan", 512, 1 << 18, 1, 1e-4, 1e-4, "binary-tree"},
        {"exscan", 8, 1 << 20, 1, 1e-4, 1e-4, "chain"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weft_template_params params;
        struct weft_cost_model model;
        const char *algo;
        weft_template_params_init(&params);
        weft_cost_model_init(&model, "mpi");
        model.alpha_us = cases[i].alpha;
        model.beta_us_per_byte = cases[i].beta;
        model.gamma_us_per_byte = cases[i].gamma;
        model.segment_bytes = 1024;
        params.cost = &model;
        params.count = cases[i].count;
        params.segment = i == 4 ? WEFT_SEGMENT_NONE : 0;
        cr_assert_eq(weft_template_choose(cases[i].name, cases[i].size, &params, &algo, NULL),
                     WEFT_OK);
        cr_assert_str_eq(algo, cases[i].algo, "case %d: %s", (int)i, algo);
    }
}

/* A model whose numbers are told apart: alpha 1, beta 0.01, gamma 0.001; up to 100 bytes 0.02 a
 * byte more, beyond 10 more. */
static struct weft_cost_model plain_model(void)
{
    struct weft_cost_model model;
    weft_cost_model_init(&model, "local");
    model.alpha_us = 1;
    model.beta_us_per_byte = 0.01;
    model.gamma_us_per_byte = 0.001;
    model.copy_us_per_byte = model.node_us = model.switch_us = 0;
    model.eager_bytes = 100;
    model.eager_us_per_byte = 0.02;
    model.rendezvous_us = 10;
    model.cores = 0;
    return model;
}

static double cost_of(const char *name, const char *algorithm, int size, size_t bytes,
                      const struct weft_cost_model *model)
{
    struct weft_template_params params;
    const char *algo;
    double cost;
    weft_template_params_init(&params);
    params.cost = model;
    params.dtype = WEFT_U8;
    params.count = bytes;
    params.algo = algorithm;
    params.segment = WEFT_SEGMENT_NONE;
    cr_assert_eq(weft_template_choose(name, size, &params, &algo, &cost), WEFT_OK);
    return cost;
}

Test(templates_shape, small_messages_cost_a_copy_and_large_ones_a_wait)
{
    struct weft_cost_model model = plain_model();
    cr_expect_float_eq(cost_of("broadcast", "binomial", 2, 100, &model), 1 + 100 * 0.03, 1e-9);
    cr_expect_float_eq(cost_of("broadcast", "binomial", 2, 101, &model), 11 + 101 * 0.01, 1e-9);
    cr_expect_float_eq(cost_of("reduce", "binomial", 4, 100, &model), 2 * (1 + 100 * 0.031), 1e-9);
    cr_expect_float_eq(cost_of("reduce", "binomial", 4, 200, &model), 2 * (11 + 200 * 0.011), 1e-9);
}

Test(templates_shape, waits_of_one_round_are_together)
{
    struct weft_cost_model model = plain_model();
    cr_expect_float_eq(cost_of("gather", "linear", 9, 100, &model), 8 * (1 + 100 * 0.03), 1e-9);
    cr_expect_float_eq(cost_of("gather", "linear", 9, 200, &model), 10 + 8 * (1 + 2), 1e-9);
    /* Three parts, two levels. */
    cr_expect_float_eq(cost_of("broadcast", "k-nomial", 16, 200, &model), 20 + 6 * (1 + 2), 1e-9);
}

/* Nine ranks on three cores: the payload of eight receivers takes as long as that of three. */
Test(templates_shape, receivers_of_one_host_move_large_messages_at_the_same_time)
{
    struct weft_cost_model model = plain_model();
    model.cores = 3;
    cr_expect_float_eq(cost_of("scatter", "linear", 9, 200, &model), 10 + 8 + 2 * 8.0 / 3, 1e-9);
    cr_expect_float_eq(cost_of("scatter", "linear", 9, 100, &model), 8 * (1 + 100 * 0.03), 1e-9);
    cr_expect_float_eq(cost_of("gather", "linear", 9, 200, &model), 10 + 8 * (1 + 2), 1e-9);
    model.cores = 64;
    cr_expect_float_eq(cost_of("scatter", "linear", 9, 200, &model), 10 + 8 + 2, 1e-9);
}

/* Cores that ranks share: a butterfly keeps all busy, a chain one, unless it is in segments. */
Test(templates_shape, work_adds_up_on_shared_cores)
{
    struct weft_cost_model model = plain_model();
    double one = 1 + 100 * 0.03;
    model.cores = 2;
    cr_expect_float_eq(cost_of("scan", "chain", 8, 100, &model), 7 * (one + 0.1), 1e-9);
    cr_expect_float_eq(cost_of("scan", "recursive-doubling", 8, 100, &model), 3 * 4 * (one + 0.1),
                       1e-9);
    cr_expect_float_eq(cost_of("broadcast", "binomial", 8, 100, &model), 3.5 * one, 1e-9);
    model.switch_us = 5;
    cr_expect_float_eq(cost_of("scan", "chain", 8, 100, &model), 7 * (one + 0.1 + 5 * 4), 1e-9);
}

/* What all do together is work, and no round that is waited for. */
Test(templates_shape, rounds_are_what_is_waited_for)
{
    struct weft_cost_model model = plain_model();
    double one = 1 + 100 * 0.03;
    model.cores = 2;
    model.switch_us = 5;
    cr_expect_float_eq(cost_of("broadcast", "binomial", 64, 100, &model), 63 * one / 2 + 6 * 5 * 32,
                       1e-9);
    cr_expect_float_eq(cost_of("broadcast", "bine", 64, 100, &model), 63 * one / 2 + 6 * 5 * 32,
                       1e-9);
}

/* Hosts of any numbers; those below 0 are refused, whatever would be chosen. */
Test(templates_shape, hosts_have_any_numbers)
{
    int hosts[4] = {0, INT_MAX, 0, INT_MAX};
    struct weft_template_params params;
    struct weft_cost_model model = plain_model();
    double cost;
    weft_template_params_init(&params);
    params.cost = &model;
    params.hosts = hosts;
    for (size_t i = 0; i < weft_template_find("allreduce")->algorithm_count; i++) {
        struct weft_schedule *schedule = NULL;
        params.algo = weft_template_find("allreduce")->algorithms[i].name;
        cr_assert_eq(weft_template_choose("allreduce", 4, &params, NULL, &cost), WEFT_OK);
        cr_expect(cost >= 0 && cost < 1000, "%s: %g", params.algo, cost);
        cr_assert_eq(weft_template_build("allreduce", 1, 4, &params, &schedule), WEFT_OK);
        weft_schedule_destroy(schedule);
    }
    hosts[2] = -1;
    params.algo = "ring";
    cr_assert_eq(weft_template_choose("allreduce", 4, &params, NULL, &cost), WEFT_ERR_INVALID);
    cr_expect_str_eq(weft_error_text(), "allreduce: hosts[2] is -1, expected at least 0");
}

Test(templates_shape, costs_are_numbers_from_0_on)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 1000};
    static const size_t counts[] = {0, 1, 1000, 1 << 20};
    for (size_t t = 0; t < weft_template_count(); t++)
        for (size_t a = 0; a < weft_template_at(t)->algorithm_count; a++)
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
                for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
                    struct weft_template_params params;
                    struct weft_cost_model model = plain_model();
                    double cost = -1;
                    model.cores = 4;
                    weft_template_params_init(&params);
                    params.cost = &model;
                    params.count = counts[c];
                    params.algo = weft_template_at(t)->algorithms[a].name;
                    if (weft_template_choose(weft_template_at(t)->name, sizes[s], &params, NULL,
                                             &cost) == WEFT_OK)
                        cr_expect(cost >= 0 && isfinite(cost), "%s %s P=%d: %g",
                                  weft_template_at(t)->name, params.algo, sizes[s], cost);
                }
}

/* Many ranks on few nodes that are far apart, and small messages: meet inside first. */
Test(templates_shape, the_choice_sees_nodes)
{
    struct weft_template_params params;
    struct weft_cost_model model;
    int nodes[64];
    const char *algo;
    double cost;
    weft_template_params_init(&params);
    weft_cost_model_init(&model, "mpi");
    model.alpha_us = 20;
    params.cost = &model;
    params.count = 1;
    cr_assert_eq(weft_template_choose("allreduce", 64, &params, &algo, &cost), WEFT_OK);
    cr_assert_str_eq(algo, "recursive-doubling");
    for (int r = 0; r < 64; r++)
        nodes[r] = r / 32;
    params.hosts = nodes;
    cr_assert_eq(weft_template_choose("allreduce", 64, &params, &algo, &cost), WEFT_OK);
    cr_assert_str_eq(algo, "hierarchical");
    cr_assert(cost > 0 && cost < 100);
}

/* Every template works on defaults alone, for every rank. */
Test(templates_shape, defaults_alone)
{
    for (size_t t = 0; t < weft_template_count(); t++)
        for (int size = 1; size <= 5; size++)
            for (int r = 0; r < size; r++) {
                struct weft_schedule *schedule = NULL;
                const char *name = weft_template_at(t)->name;
                cr_assert_eq(weft_template_build(name, r, size, NULL, &schedule), WEFT_OK, "%s: %s",
                             name, weft_error_text());
                weft_schedule_destroy(schedule);
            }
    cr_assert_null(weft_template_at(weft_template_count()));
}

/* Of every slot, scratch too, as the parameters say. */
static void expect_memory(const char *name, const struct weft_template_params *params, int rank)
{
    enum { RANKS = 5 };
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    struct weft_schedule *schedule;
    cr_assert_eq(weft_template_build(name, rank, RANKS, params, &schedule), WEFT_OK, "%s",
                 weft_error_text());
    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        cr_assert_eq(weft_schedule_get_slot(schedule, (weft_slot_t)s, &slot), WEFT_OK);
        cr_expect_eq(slot.memory, params->memory, "%s %s: %s", name, params->algo, slot.name);
    }
    weft_schedule_destroy(schedule);
}

Test(templates_shape, slots_are_where_the_parameters_say)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    cr_expect_eq(params.memory, WEFT_MEMORY_HOST);
    params.count = 100;
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);
        for (size_t i = 0; i < 2 * template->algorithm_count; i++) {
            params.memory = i % 2 ? WEFT_MEMORY_DEVICE : WEFT_MEMORY_HOST;
            params.algo = template->algorithms[i / 2].name;
            expect_memory(template->name, &params, 0);
            expect_memory(template->name, &params, 3);
        }
    }
}

Test(templates_shape, wrong_parameters_are_named)
{
    struct weft_template_params params;
    struct weft_schedule *schedule = NULL;
    weft_template_params_init(&params);
    cr_assert_eq(weft_template_build("allredcue", 0, 2, &params, &schedule), WEFT_ERR_NOT_FOUND);
    cr_assert_not_null(strstr(weft_error_text(), "allreduce"));
    params.algo = "star";
    cr_assert_eq(weft_template_build("allreduce", 0, 2, &params, &schedule), WEFT_ERR_NOT_FOUND);
    cr_assert_not_null(strstr(weft_error_text(), "recursive-doubling"));
    params.algo = NULL;
    params.root = 2;
    cr_assert_eq(weft_template_build("broadcast", 0, 2, &params, &schedule), WEFT_ERR_INVALID);
    cr_assert_not_null(strstr(weft_error_text(), "root is 2"));
    cr_assert_eq(weft_template_build("allreduce", 0, 2, &params, &schedule), WEFT_OK);
    weft_schedule_destroy(schedule);
    schedule = NULL;
    params.root = 0;
    params.dtype = WEFT_DTYPE_COUNT;
    cr_assert_eq(weft_template_build("gather", 0, 2, &params, &schedule), WEFT_ERR_INVALID);
    params.dtype = WEFT_F64;
    params.count = SIZE_MAX / 16;
    cr_assert_eq(weft_template_build("gather", 0, 9, &params, &schedule), WEFT_ERR_INVALID);
    params.count = 4;
    cr_assert_eq(weft_template_build("gather", 0, 0, &params, &schedule), WEFT_ERR_INVALID);
    cr_assert_eq(weft_template_build("gather", 3, 3, &params, &schedule), WEFT_ERR_INVALID);
    cr_assert_eq(weft_template_build("gather", 0, 3, &params, NULL), WEFT_ERR_INVALID);
    params.struct_size = 0;
    cr_assert_eq(weft_template_build("gather", 0, 3, &params, &schedule), WEFT_ERR_INVALID);
    cr_assert_null(schedule);
}

Test(templates_shape, a_step_of_recursive_doubling_waits_for_no_send)
{
    struct weft_template_params params;
    struct weft_schedule *schedule;
    weft_template_params_init(&params);
    params.count = 1024;
    params.algo = "recursive-doubling";
    cr_assert_eq(weft_template_build("allreduce", 3, 16, &params, &schedule), WEFT_OK);
    for (size_t i = 0; i < weft_schedule_edge_count(schedule); i++) {
        struct weft_node_info info = {.struct_size = sizeof info};
        weft_node_t before, after;
        weft_schedule_get_edge(schedule, i, &before, &after);
        weft_schedule_get_node(schedule, before, &info);
        cr_assert_neq(info.kind, WEFT_NODE_SEND);
    }
    weft_schedule_destroy(schedule);
}

/* Ranks of a million: as large as a schedule of log2 P steps needs to be. */
Test(templates_shape, a_million_ranks)
{
    struct weft_template_params params;
    struct weft_schedule *schedule;
    static const char *const names[] = {"barrier",   "broadcast", "reduce",
                                        "allreduce", "scan",      "exscan"};
    weft_template_params_init(&params);
    params.count = 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int last = 0; last < 2; last++) {
            int rank = last ? 999999 : 0;
            cr_assert_eq(weft_template_build(names[i], rank, 1000000, &params, &schedule), WEFT_OK);
            cr_assert_lt(weft_schedule_node_count(schedule), 100);
            weft_schedule_destroy(schedule);
        }
}

/* Messages of more segments than there may be nodes or tags are refused at once. What is told to be
 * enough is as little as that: an element less is refused, too. */
Test(templates_shape, segments_that_are_too_many)
{
    static const char *const names[] = {"broadcast", "allreduce", "scatter", "allgather"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct weft_template_params params;
        struct weft_schedule *schedule = NULL;
        size_t least = 0;
        weft_template_params_init(&params);
        params.dtype = WEFT_F32;
        params.count = (size_t)1 << 40;
        params.segment = 4;
        cr_assert_eq(weft_template_build(names[i], 1, 4, &params, &schedule), WEFT_ERR_UNSUPPORTED,
                     "%s: %s", names[i], weft_error_text());
        cr_assert_null(schedule);
        const char *told = strstr(weft_error_text(), "segments of at least ");
        cr_assert_not_null(told, "%s: %s", names[i], weft_error_text());
        cr_assert_eq(sscanf(told, "segments of at least %zu bytes on 4 ranks", &least), 1);
        cr_assert(least > 4 && least % 4 == 0, "%s: %s", names[i], weft_error_text());
        /* 2^40 elements at most, in at most 2^31 nodes and 2^32 tags. */
        cr_assert_geq(least, 4 * ((size_t)1 << 40 >> 31), "%s: %s", names[i], weft_error_text());
        params.segment = least - 4;
        cr_assert_eq(weft_template_build(names[i], 1, 4, &params, &schedule), WEFT_ERR_UNSUPPORTED);
    }
}

/* Every allocation fails in turn: the text is there, and nothing leaks (the address sanitizer). */
Test(templates_shape, no_memory)
{
    int nodes[6] = {0, 0, 1, 1, 2, 2};
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);
        for (size_t a = 0; a < template->algorithm_count; a++) {
            struct weft_template_params params;
            struct weft_schedule *schedule = NULL;
            int status = WEFT_ERR_MEMORY;
            weft_template_params_init(&params);
            params.count = 1024;
            params.algo = template->algorithms[a].name;
            params.hosts = nodes;
            for (long n = 1; status == WEFT_ERR_MEMORY && n < 10000; n++) {
                atomic_store(&weft__alloc_countdown, n);
                status = weft_template_build(template->name, 2, 6, &params, &schedule);
                atomic_store(&weft__alloc_countdown, -1);
                if (status == WEFT_ERR_MEMORY)
                    cr_assert_null(schedule);
            }
            cr_assert_eq(status, WEFT_OK, "%s %s: %s", template->name, params.algo,
                         weft_error_text());
            weft_schedule_destroy(schedule);
        }
    }
}
