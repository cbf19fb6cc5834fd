/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers on local ranks, each a thread: with and without helpers, many of them, large
 * layers beside empty ones. All gradients are 1, so a parameter says how many updates it has. */
#include <criterion/criterion.h>

#include "server_job.h"

enum { STEPS = 12 };

struct local {
    struct weft_server_config config;
    struct shape shape;
    int steps;
};

static struct local local_of(weft_server_sync_t sync)
{
    static const size_t counts[] = {300, 0, 5, 40000};
    struct local local = {.shape = shape_of(counts, 4), .steps = STEPS};
    weft_server_config_init(&local.config);
    local.config.sync = sync;
    local.config.rate = 1;
    local.config.split_bytes = 4096;
    local.config.segment_bytes = 20000;
    local.config.staleness = 1;
    local.config.staleness_most = 3;
    local.config.osp_share = 1;
    return local;
}

/* Whole, and of as many updates as it says. */
static void check_model(const struct tensors *tensors, const struct weft_server *server,
                        uint64_t version, double each)
{
    double expected = -(double)version * each;
    (void)server;
    for (size_t t = 0; t < tensors->shape->tensors; t++) {
        const double *x = tensors->x[t].data;
        for (size_t i = 0; i < tensors->x[t].count; i++)
            CHECK(fabs(x[i] - expected) <= 1e-9 * (1 + fabs(expected)));
    }
}

static void work(const struct local *local, struct weft_server *server,
                 const struct tensors *tensors, int rank)
{
    struct weft_server_result result = {.struct_size = sizeof result};
    int together = local->config.sync == WEFT_SERVER_BSP || local->config.sync == WEFT_SERVER_OSP;
    double each = together ? 1 : 1.0 / weft_server_workers(server);
    uint64_t last = 0;
    for (int t = 0; t < local->steps; t++) {
        for (size_t l = local->shape.layers; l-- > 0;)
            if ((t + rank) % 3)
                OK(weft_server_ready(server, l));
        OK(weft_server_step(server, &result));
        CHECK(result.version > last && result.step == (uint64_t)t);
        last = result.version;
        check_model(tensors, server, result.version, each);
    }
    OK(weft_server_correct(server));
}

static void live(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct local *local = ranks->user;
    struct weft_server_config config = local->config;
    struct weft_server *server = NULL;
    struct tensors tensors;
    tensors_make(&tensors, &local->shape, WEFT_F64);
    for (size_t t = 0; t < local->shape.tensors; t++)
        for (size_t i = 0; i < tensors.g[t].count; i++)
            ((double *)tensors.g[t].data)[i] = 1;
    tensors_bind(&tensors, &config);
    OK(weft_server_create(&server, context, &config));
    if (weft_server_is_worker(server)) {
        work(local, server, &tensors, rank);
    } else {
        int status;
        while ((status = weft_server_serve(server, 2000000)) == WEFT_IN_PROGRESS)
            continue;
        OK(status);
    }
    OK(weft_server_destroy(server));
    tensors_free(&tensors);
}

Test(server_local, every_model_apart_with_helpers_and_without, .timeout = 60)
{
    for (int sync = WEFT_SERVER_BSP; sync <= WEFT_SERVER_OSP; sync++)
        for (int flow = WEFT_SERVER_AT_ONCE; flow <= WEFT_SERVER_PACED; flow++)
            for (int servers = 1; servers <= 2; servers++) {
                struct local local = local_of((weft_server_sync_t)sync);
                local.config.flow = (weft_server_flow_t)flow;
                local.config.servers = servers;
                ranks_run_helped(live, 3 + servers, &local);
                if (sync != WEFT_SERVER_OSP)
                    ranks_run_once(live, 2 + servers, &local);
            }
}

Test(server_local, every_model_co_located, .timeout = 60)
{
    for (int sync = WEFT_SERVER_BSP; sync <= WEFT_SERVER_OSP; sync++)
        for (int size = 1; size <= 4; size++) {
            struct local local = local_of((weft_server_sync_t)sync);
            local.config.place = WEFT_SERVER_COLOCATED;
            local.config.flow = (weft_server_flow_t)(size % 3);
            local.config.servers = size > 2 ? size - 1 : size;
            ranks_run_helped(live, size, &local);
        }
}

Test(server_local, one_rank_needs_no_helper)
{
    for (int sync = WEFT_SERVER_BSP; sync <= WEFT_SERVER_OSP; sync++) {
        struct local local = local_of((weft_server_sync_t)sync);
        ranks_run_once(live, 1, &local);
    }
}

Test(server_local, sixty_four_ranks, .timeout = 60)
{
    static const weft_server_sync_t syncs[] = {WEFT_SERVER_BSP, WEFT_SERVER_ASP, WEFT_SERVER_R2SP};
    static const size_t counts[] = {100, 0, 3};
    for (size_t s = 0; s < 3; s++) {
        struct local local = local_of(syncs[s]);
        local.shape = shape_of(counts, 3);
        local.steps = 3;
        local.config.servers = 2;
        ranks_run_once(live, 64, &local);
    }
}

Test(server_local, large_layers_beside_empty_ones, .timeout = 60)
{
    static const size_t counts[] = {0, 1500000, 0, 1, 1};
    for (int sync = WEFT_SERVER_BSP; sync <= WEFT_SERVER_OSP; sync++) {
        struct local local = local_of((weft_server_sync_t)sync);
        local.shape = shape_of(counts, 5);
        local.steps = 3;
        local.config.servers = 2;
        local.config.segment_bytes = 100000;
        local.config.flow = (weft_server_flow_t)(sync % 3);
        ranks_run_helped(live, 4, &local);
    }
}

static void without_helper(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct local *local = ranks->user;
    struct weft_server_config config = local->config;
    struct weft_server *server = NULL;
    struct tensors tensors;
    int colocated = config.place == WEFT_SERVER_COLOCATED;
    int needs = colocated ? rank == 0 : rank < 2;
    tensors_make(&tensors, &local->shape, WEFT_F64);
    tensors_bind(&tensors, &config);
    CHECK_STATUS(weft_server_create(&server, context, &config),
                 needs ? WEFT_ERR_STATE : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "has caller progress, expected helper progress");
    tensors_free(&tensors);
}

Test(server_local, who_needs_a_helper_is_told)
{
    struct local local = local_of(WEFT_SERVER_OSP);
    ranks_run_once(without_helper, 3, &local);
    local = local_of(WEFT_SERVER_BSP);
    local.config.place = WEFT_SERVER_COLOCATED;
    ranks_run_once(without_helper, 3, &local);
}
