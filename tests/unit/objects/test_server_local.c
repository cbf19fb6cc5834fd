/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers on local ranks, each a thread: with and without helpers, many of them, large
 * layers beside empty ones. All gradients are 1, so a parameter says how many updates it has. */
#include <criterion/criterion.h>

#include "runtime/base/alloc.h"
#include "server_job.h"

enum { STEPS = 12, DOOMED = 4 };

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

Test(server_local, every_model_apart_with_helpers_and_without, .timeout = 140)
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

Test(server_local, every_model_co_located, .timeout = 140)
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

Test(server_local, sixty_four_ranks, .timeout = 140)
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

Test(server_local, large_layers_beside_empty_ones, .timeout = 140)
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

/* ---- creations that fail, while they go on on other ranks ---- */

/* A rank gives up what it has just created; gives a setting that is refused; finds, when the ranks
 * have agreed, that the states do not fit; is out of memory. */
enum { GIVES_UP, MISUSES, DISAGREES, RUNS_OUT, HOWS };

static const char *const reasons[HOWS] = {"the loss is not finite", "config->weight is -1",
                                          "config->state->clocks", "memory"};
static const int statuses[HOWS] = {WEFT_ERR_COMPUTE, WEFT_ERR_INVALID, WEFT_ERR_INVALID,
                                   WEFT_ERR_MEMORY};

struct doomed {
    struct local local; /* the first member, for live() */
    int how, who;
    long nth;            /* RUNS_OUT: the allocation that fails, of all ranks */
    int created[DOOMED]; /* with which status */
};

static int make_doomed(const struct doomed *doomed, struct weft_context *context, int rank,
                       const struct tensors *tensors, struct weft_server **server)
{
    static const uint64_t clocks[DOOMED] = {7};
    struct weft_server_config config = doomed->local.config;
    struct state_copy copy = {.state = {.struct_size = sizeof copy.state}};
    int me = rank == doomed->who;
    tensors_bind(tensors, &config);
    if (doomed->how == DISAGREES) {
        state_of_first(&copy, context, &config, &doomed->local.shape);
        config.state = &copy.state;
        if (me && copy.state.clocks)
            copy.state.clocks = clocks;
    }
    config.weight = me && doomed->how == MISUSES ? -1 : 1;
    int status = weft_server_create(server, context, &config);
    CHECK((status == WEFT_OK) == (*server != NULL));
    if (me && !status && doomed->how == GIVES_UP)
        OK(weft_server_fail(*server, WEFT_ERR_COMPUTE, reasons[GIVES_UP]));
    state_free(&copy);
    return status;
}

/* Until an error comes, or a number of steps. */
static int go_on(struct weft_server *server, int steps)
{
    int status = WEFT_OK;
    if (!weft_server_is_worker(server))
        return weft_server_serve(server, WEFT_NEVER);
    for (int t = 0; !status && t < steps; t++)
        status = weft_server_step(server, NULL);
    return status;
}

/* Others are told who it is: of those who have run out of memory any. */
static void check_told(const struct doomed *doomed, int rank, int status)
{
    int ran_out = doomed->how == RUNS_OUT, named = 0;
    char name[32];
    CHECK_TEXT(weft_error_text(), reasons[doomed->how]);
    /* Who disagrees is found by all, or one of them is ahead and tells the others. */
    int found = doomed->how == DISAGREES;
    if ((rank == doomed->who && !found) || (ran_out && status == WEFT_ERR_MEMORY) ||
        (found && status == WEFT_ERR_INVALID)) {
        CHECK(status == statuses[doomed->how]);
        return;
    }
    CHECK_STATUS(status, WEFT_ERR_PEER);
    for (int r = 0; r < DOOMED; r++) {
        snprintf(name, sizeof name, "rank %d", r);
        if (r != rank && (ran_out || found || r == doomed->who))
            named |= strstr(weft_error_text(), name) != NULL;
    }
    CHECK(named);
}

static void live_doomed(struct doomed *doomed, struct ranks *ranks, struct weft_context *context,
                        int rank, const struct tensors *tensors)
{
    struct weft_server *server = NULL;
    ranks_meet(ranks);
    if (rank == 0 && doomed->how == RUNS_OUT)
        atomic_store(&weft__alloc_countdown, doomed->nth);
    int status = make_doomed(doomed, context, rank, tensors, &server);
    if (status)
        check_told(doomed, rank, status);
    doomed->created[rank] = status;
    ranks_meet(ranks);
    if (rank == 0 && doomed->how == RUNS_OUT)
        atomic_store(&weft__alloc_countdown, -1);
    int fails = doomed->how != RUNS_OUT;
    for (int r = 0; r < ranks->size; r++)
        fails |= doomed->created[r] != WEFT_OK;
    ranks_meet(ranks);
    if (!status)
        status = go_on(server, fails ? INT32_MAX : 3);
    if (status)
        check_told(doomed, rank, status);
    CHECK(status || !fails);
    /* What nobody has noticed in the creation may come out behind it. */
    CHECK(!status || fails || doomed->how == RUNS_OUT);
    int ended = weft_server_destroy(server);
    CHECK(ended == (server ? status : WEFT_OK) || !fails);
}

static void doom(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct doomed *doomed = ranks->user;
    struct tensors tensors;
    tensors_make(&tensors, &doomed->local.shape, WEFT_F64);
    live_doomed(doomed, ranks, context, rank, &tensors);
    ranks_meet(ranks);
    if (doomed->how != RUNS_OUT) /* then as if nothing had been */
        live(ranks, context, rank);
    tensors_free(&tensors);
}

static struct doomed doomed_of(int how, int who, int sync, int colocated)
{
    static const size_t counts[] = {30, 0, 5, 400};
    struct doomed doomed = {.local = local_of((weft_server_sync_t)sync), .how = how, .who = who};
    doomed.local.shape = shape_of(counts, 4);
    doomed.local.steps = 2;
    doomed.local.config.place = colocated ? WEFT_SERVER_COLOCATED : WEFT_SERVER_APART;
    return doomed;
}

Test(server_local, a_creation_that_fails_is_everybodys, .timeout = 140)
{
    for (int how = GIVES_UP; how <= DISAGREES; how++)
        for (int sync = WEFT_SERVER_BSP; sync <= WEFT_SERVER_OSP; sync++)
            for (int colocated = 0; colocated < 2; colocated++)
                for (int who = 0; who < DOOMED; who++) {
                    struct doomed doomed = doomed_of(how, who, sync, colocated);
                    if (how == DISAGREES && who != (colocated ? 0 : DOOMED - 1))
                        continue; /* it is no server */
                    ranks_run_helped(doom, DOOMED, &doomed);
                }
}

/* Allocations of all ranks count together, so which of them fails is another one every time. */
Test(server_local, a_creation_that_is_out_of_memory_is_everybodys, .timeout = 140)
{
    int failed = 0;
    for (uint64_t seed = 1; seed <= SWEPT(240, 48); seed++) {
        struct draw draw = {seed};
        struct doomed doomed = doomed_of(RUNS_OUT, -1, (int)(seed % 6), (int)(seed / 6 % 2));
        doomed.nth = 1 + draw_below(&draw, 1500);
        tell_seed(seed);
        ranks_run_helped(doom, DOOMED, &doomed);
        for (int r = 0; r < DOOMED; r++)
            failed += doomed.created[r] == WEFT_ERR_MEMORY;
    }
    cr_assert_gt(failed, SWEPT(20, 4), "%d", failed);
}
