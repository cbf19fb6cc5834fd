/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench osp: a step of training through a parameter server, on virtual ranks: the comparison
 * of OSP's section 5 (Chen et al., ICPP 2023) on models of the sizes that it trained, and its
 * figure 3.
 *
 * Workers compute for as long as a table of layers says, by a factor that makes the table's device
 * a faster one. Pushes come when all is computed, as in the paper; `by layers`, as gradients
 * appear, and a layer is waited for before its forward pass. Models are scaled down and the virtual
 * network scales them up again. Beside servers stands what needs none: gradients that are merged
 * and summed around a ring, behind the backward pass.
 */
#include "tools/bench/bench.h"
#include "tools/cli/layers.h"

#include <math.h>
#include <string.h>

enum { WORKERS = 8, WARM = 8, STEPS = 8, ELEMENTS = 200000 };
#define NET         "L=20,o=2,g=0,G=0.0008,offload=1" /* 10 Gbit/s */
#define PIECE       1048576.0                         /* what servers merge at a time, by default */
#define NS_PER_BYTE 0.1                               /* of what servers compute */

/* One GPU of a K80, of which the tables are, and by how much others are taken to be faster. */
static const struct device {
    const char *name;
    double faster;
} devices[] = {{"K80", 1}, {"x2.7 (T4)", 2.7}, {"x10", 10}};

static const char *const networks[] = {"resnet50", "vgg16", "inception-v3", "resnet101",
                                       "bert-base"};

static const struct way {
    const char *name;
    weft_server_sync_t sync;
    int by_layers, ring;
} ways[] = {{"BSP", WEFT_SERVER_BSP, 0, 0},           {"ASP", WEFT_SERVER_ASP, 0, 0},
            {"R2SP", WEFT_SERVER_R2SP, 0, 0},         {"OSP", WEFT_SERVER_OSP, 0, 0},
            {"BSP by layers", WEFT_SERVER_BSP, 1, 0}, {"OSP by layers", WEFT_SERVER_OSP, 1, 0},
            {"ring, merged", WEFT_SERVER_BSP, 1, 1}};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* What all ranks do. */
struct job {
    const struct layers *layers; /* in the order of the backward pass */
    const struct way *way;
    double faster;
    double scale;
    size_t *counts; /* elements of each layer as simulated, first layer first */
    /* Of rank 0: of a step, in nanoseconds; shares. */
    double step_ns, compute_ns, sync_ns, late;
};

/* A worker's tensors, and what it averages them with. */
struct worker {
    struct job *job;
    struct weft_context *context;
    struct weft_piece *parameters, *gradients;
    struct weft_server *server;
    struct weft_gradients *merged;
};

static size_t layer_count(const struct job *job)
{
    return job->layers->count;
}

/* When the gradient of a layer of the model appears, from the beginning of the backward pass. */
static uint64_t ready_ns(const struct job *job, size_t layer)
{
    const struct layers *layers = job->layers;
    return (uint64_t)(layers->at[layers->count - 1 - layer].ready_us * 1e3 / job->faster);
}

/* The backward pass takes two thirds of a step's computation, as in the tables. */
static uint64_t backward_ns(const struct job *job)
{
    return ready_ns(job, 0);
}

static int announce(struct worker *worker, size_t layer)
{
    return worker->merged ? weft_gradients_ready(worker->merged, layer)
                          : weft_server_ready(worker->server, layer);
}

static int wait_for(struct worker *worker, size_t layer)
{
    return worker->merged ? weft_gradients_wait(worker->merged, layer)
                          : weft_server_wait(worker->server, layer);
}

/* Forward through all layers, then backward: layers one by one. */
static int step_by_layers(struct worker *worker, int first)
{
    const struct job *job = worker->job;
    uint64_t forward = backward_ns(job) / 2 / layer_count(job), now = 0;
    int status = WEFT_OK;

    for (size_t l = 0; l < layer_count(job) && status == WEFT_OK; l++) {
        if (!first)
            status = wait_for(worker, l);
        if (status == WEFT_OK)
            status = weft_context_sleep(worker->context, forward);
    }
    for (size_t l = layer_count(job); l-- > 0 && status == WEFT_OK;) {
        uint64_t at = ready_ns(job, l);
        status = weft_context_sleep(worker->context, at > now ? at - now : 0);
        now = at > now ? at : now;
        if (status == WEFT_OK)
            status = announce(worker, l);
    }
    return status;
}

static int step_at_once(struct worker *worker)
{
    int status = weft_context_sleep(worker->context, backward_ns(worker->job) * 3 / 2);
    return status ? status : weft_server_step(worker->server, NULL);
}

static int train(struct worker *worker)
{
    struct job *job = worker->job;
    struct weft_server_stats stats = {.struct_size = sizeof stats}, before = stats;
    uint64_t began = 0;
    int status = WEFT_OK;

    for (int step = 0; step < WARM + STEPS && status == WEFT_OK; step++) {
        if (step == WARM) {
            began = weft_context_now(worker->context);
            if (worker->server)
                weft_server_get_stats(worker->server, &before);
        }
        /* The loss falls to nothing: the late layers are as many as may be. */
        if (worker->server && job->way->sync == WEFT_SERVER_OSP && step < 2 && status == WEFT_OK)
            status = weft_server_tell_loss(worker->server, step == 0);
        if (status == WEFT_OK)
            status = job->way->by_layers ? step_by_layers(worker, step == 0) : step_at_once(worker);
    }
    uint64_t ended = weft_context_now(worker->context);
    /* Before the last layers are waited for: as many synchronisations as steps. */
    if (worker->server)
        weft_server_get_stats(worker->server, &stats);
    for (size_t l = 0; job->way->by_layers && l < layer_count(job) && status == WEFT_OK; l++)
        status = wait_for(worker, l);
    if (status || weft_context_rank(worker->context))
        return status;
    job->step_ns = (double)(ended - began) / STEPS;
    job->compute_ns = (double)backward_ns(job) * 1.5;
    if (!worker->server)
        return WEFT_OK;
    job->sync_ns = (double)(stats.synchronised_ns - before.synchronised_ns) / STEPS;
    job->late = (double)(stats.late_bytes - before.late_bytes) /
                (double)(stats.pushed_bytes - before.pushed_bytes);
    return WEFT_OK;
}

/* ---- ranks ---- */

static void free_pieces(struct weft_piece *pieces)
{
    if (pieces)
        weft_memory_free(pieces[0].data);
    weft_memory_free(pieces);
}

static struct weft_piece *make_pieces(const struct job *job, float value)
{
    size_t all = 0, layers = layer_count(job);
    struct weft_piece *pieces = weft_memory_alloc(layers, sizeof *pieces);

    for (size_t l = 0; l < layers; l++)
        all += job->counts[l];
    float *data = pieces ? weft_memory_alloc(all, sizeof *data) : NULL;
    if (!data) {
        weft_memory_free(pieces);
        weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu layers", layers);
        return NULL;
    }
    for (size_t i = 0; i < all; i++)
        data[i] = value * (float)(1 + i % 7);
    for (size_t l = 0; l < layers; data += job->counts[l++])
        pieces[l] = (struct weft_piece){data, job->counts[l]};
    return pieces;
}

static int live_merged(struct worker *worker)
{
    struct weft_gradients_config config;

    weft_gradients_config_init(&config);
    config.tensors = worker->gradients;
    config.tensor_count = layer_count(worker->job);
    int status = weft_gradients_create(&worker->merged, worker->context, &config);
    if (status)
        return status;
    status = train(worker);
    int ended = weft_gradients_destroy(worker->merged);
    return status ? status : ended;
}

static int live_served(struct worker *worker)
{
    struct weft_server_config config;

    weft_server_config_init(&config);
    config.tensors = worker->parameters;
    config.gradients = worker->gradients;
    config.tensor_count = layer_count(worker->job);
    config.sync = worker->job->way->sync;
    config.rate = 1e-6;
    config.merge_bytes = (size_t)(PIECE / worker->job->scale);
    int status = weft_server_create(&worker->server, worker->context, &config);
    if (status)
        return status;
    status = weft_server_is_worker(worker->server) ? train(worker)
                                                   : weft_server_serve(worker->server, WEFT_NEVER);
    int ended = weft_server_destroy(worker->server);
    return status ? status : ended;
}

static int live(struct weft_context *context, void *user)
{
    struct job *job = user;
    struct worker worker = {.job = job, .context = context};

    worker.parameters = make_pieces(job, 1);
    worker.gradients = make_pieces(job, 1e-3F);
    int status = !worker.parameters || !worker.gradients ? WEFT_ERR_MEMORY
                 : job->way->ring                        ? live_merged(&worker)
                                                         : live_served(&worker);
    free_pieces(worker.gradients);
    free_pieces(worker.parameters);
    return status;
}

static uint64_t compute_ns(void *user, int rank, const char *op, size_t bytes)
{
    static const char *const passes[] = {"merge", "apply", "weigh", "store", "divide"};

    (void)user;
    (void)rank;
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++)
        if (strcmp(op, passes[i]) == 0)
            return (uint64_t)((double)bytes * NS_PER_BYTE);
    return 0;
}

static int simulate(struct job *job, int workers)
{
    struct weft_virtual_config config;
    struct weft_net net;

    weft_virtual_config_init(&config);
    weft_net_init(&net);
    int status = weft_net_parse(NET, &net);
    if (status)
        return status;
    config.net = &net;
    config.byte_scale = job->scale;
    config.reduce_ns_per_byte = NS_PER_BYTE;
    config.copy_ns_per_byte = NS_PER_BYTE;
    config.compute_ns = compute_ns;
    return weft_virtual_run(workers + !job->way->ring, &config, live, job);
}

/* ---- rows ---- */

static int scale_down(struct job *job)
{
    const struct layers *layers = job->layers;
    size_t all = 0;

    for (size_t l = 0; l < layers->count; l++)
        all += layers->at[l].elements;
    job->scale = all > ELEMENTS ? (double)all / ELEMENTS : 1;
    job->counts = weft_memory_alloc(layers->count, sizeof *job->counts);
    if (!job->counts)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu layers", layers->count);
    for (size_t l = 0; l < layers->count; l++) {
        double elements = (double)layers->at[layers->count - 1 - l].elements / job->scale;
        job->counts[l] = elements > 1 ? (size_t)(elements + 0.5) : 1;
    }
    return WEFT_OK;
}

static void print(struct bench *bench, const struct job *job, const char *network, int workers,
                  const char *device, const struct bench_samples *bsp)
{
    struct bench_samples step = {0};
    char what[64];

    bench_sample(&step, job->step_ns * 1e-6);
    snprintf(what, sizeof what, "%s %s %s", network, device, job->way->name);
    bench_print(bench, &(struct bench_row){
                           .what = what,
                           .unit = "ms/step",
                           .transport = "virtual",
                           .peer = "BSP",
                           .weft = &step,
                           .peers = bsp,
                           .limit = job->compute_ns * 1e-6,
                           .bytes = SIZE_MAX,
                           .more = json_pack("{s:i, s:f, s:f, s:f, s:f}", "workers", workers,
                                             "sync_ms", job->sync_ns * 1e-6, "ics_fraction",
                                             job->late, "communication_fraction",
                                             1 - job->compute_ns / job->step_ns, "throughput_ratio",
                                             bench_median(bsp) / (job->step_ns * 1e-6))});
}

static int run_one(struct bench *bench, struct job *job, int workers, size_t way)
{
    job->way = &ways[way];
    job->sync_ns = job->late = 0;
    return simulate(job, workers) ? bench_fail(bench, ways[way].name) : CLI_OK;
}

static int measure(struct bench *bench, const char *network, int workers,
                   const struct device *device)
{
    struct layers layers = {0};
    struct job job = {.layers = &layers, .faster = device->faster};
    struct bench_samples bsp = {0};
    int status = cli_layers_load(&layers, "bench", network);

    if (status)
        return status;
    status = scale_down(&job) ? bench_fail(bench, network) : CLI_OK;
    for (size_t way = 0; way < WAYS && status == CLI_OK; way++) {
        status = run_one(bench, &job, workers, way);
        if (way == 0)
            bench_sample(&bsp, job.step_ns * 1e-6);
        if (status == CLI_OK)
            print(bench, &job, network, workers, device->name, &bsp);
    }
    weft_memory_free(job.counts);
    layers_free(&layers);
    return status;
}

/* Figure 3: how much of a step is communication, as workers become more. */
static int measure_growth(struct bench *bench)
{
    int status = CLI_OK;

    for (int workers = 1; workers <= WORKERS && status == CLI_OK; workers *= 2) {
        struct layers layers = {0};
        struct job job = {.layers = &layers, .faster = devices[1].faster};
        struct bench_samples bsp = {0};
        char device[32];

        status = cli_layers_load(&layers, "bench", networks[0]);
        if (status)
            return status;
        status =
            scale_down(&job) ? bench_fail(bench, networks[0]) : run_one(bench, &job, workers, 0);
        bench_sample(&bsp, job.step_ns * 1e-6);
        snprintf(device, sizeof device, "%d workers", workers);
        if (status == CLI_OK)
            print(bench, &job, networks[0], workers, device, &bsp);
        weft_memory_free(job.counts);
        layers_free(&layers);
    }
    return status;
}

int bench_osp(struct bench *bench)
{
    int workers = bench->ranks ? bench->ranks : WORKERS, status = CLI_OK;

    if (bench->world > 1)
        return cli_usage("bench", "osp: virtual ranks need no mpiexec");
    bench_note(bench,
               "%d workers and a server in virtual time, %s (10 Gbit/s); limit: computing alone. "
               "Devices are the tables' K80 and faster ones; those are estimates",
               workers, NET);
    for (size_t d = 0; d < sizeof devices / sizeof devices[0] && status == CLI_OK; d++)
        for (size_t n = 0; n < sizeof networks / sizeof networks[0] && status == CLI_OK; n++)
            status = measure(bench, networks[n], workers, &devices[d]);
    return status == CLI_OK && !bench->ranks ? measure_growth(bench) : status;
}
