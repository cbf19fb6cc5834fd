/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench growth: what a rank of a trainer's object costs where there are many: processor time
 * of a step, and memory, on virtual ranks with models so small that the object is what remains.
 *
 * Each number of ranks is a process of its own, whose peak memory is what counts; that of one rank
 * is taken off. Beside each stands the smallest number of ranks, and as a goal what that would be
 * with the logarithm of the ranks.
 */
#include "tools/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A step computes for STEP_NS, give or take a twentieth, and one in SLOW_STEPS twice as long. */
enum { FEWEST = 64, FACTOR = 4, RANKS = 4096, STEPS = 10, SYNC_PERIOD = 5, SLOW_STEPS = 50 };
enum { ELEMENTS = 16, MOST_ELEMENTS = 4096 };
#define STEP_NS UINT64_C(300000000)

struct growth {
    struct bench *bench;
    size_t elements;
    const struct object *object;
};

/* One rank's life with an object. */
struct life {
    struct weft_context *context;
    struct weft_piece tensor;
    uint64_t random;
};

static int compute(struct life *life)
{
    uint64_t ns = STEP_NS - STEP_NS / 20;

    life->random = life->random * 6364136223846793005u + 1442695040888963407u;
    ns += (life->random >> 33) % (STEP_NS / 10);
    life->random = life->random * 6364136223846793005u + 1442695040888963407u;
    if ((life->random >> 33) % SLOW_STEPS == 0)
        ns += STEP_NS;
    return weft_context_sleep(life->context, ns);
}

static int live_group(struct life *life)
{
    struct weft_group_average *average = NULL;
    struct weft_group_average_config config;

    weft_group_average_config_init(&config);
    config.tensors = &life->tensor;
    config.tensor_count = 1;
    config.sync_period = SYNC_PERIOD;
    int status = weft_group_average_create(&average, life->context, &config);
    for (int step = 0; step < STEPS && status == WEFT_OK; step++) {
        status = compute(life);
        if (status == WEFT_OK)
            status = weft_group_average_step(average, NULL);
    }
    int ended = weft_group_average_destroy(average);
    return status ? status : ended;
}

static int live_gossip(struct life *life)
{
    struct weft_gossip *gossip = NULL;
    struct weft_gossip_config config;

    weft_gossip_config_init(&config);
    config.tensors = &life->tensor;
    config.tensor_count = 1;
    config.graph = WEFT_GOSSIP_EXPONENTIAL;
    int status = weft_gossip_create(&gossip, life->context, &config);
    for (int step = 0; step < STEPS && status == WEFT_OK; step++) {
        status = compute(life);
        if (status == WEFT_OK)
            status = weft_gossip_step(gossip);
    }
    int ended = weft_gossip_destroy(gossip);
    return status ? status : ended;
}

static int live_pair(struct life *life)
{
    struct weft_pair_average *average = NULL;
    struct weft_pair_average_config config;

    weft_pair_average_config_init(&config);
    config.tensors = &life->tensor;
    config.tensor_count = 1;
    int status = weft_pair_average_create(&average, life->context, &config);
    for (int step = 0; step < STEPS && status == WEFT_OK; step++) {
        status = compute(life);
        if (status == WEFT_OK)
            status = weft_pair_average_step(average);
    }
    int ended = weft_pair_average_destroy(average);
    return status ? status : ended;
}

static int live_sparse(struct life *life)
{
    struct weft_sparse_average *average = NULL;
    struct weft_sparse_average_config config;

    weft_sparse_average_config_init(&config);
    config.tensors = &life->tensor;
    config.tensor_count = 1;
    config.k = 1;
    int status = weft_sparse_average_create(&average, life->context, &config);
    for (int step = 0; step < STEPS && status == WEFT_OK; step++) {
        status = compute(life);
        for (size_t i = 0; i < life->tensor.count; i++)
            ((float *)life->tensor.data)[i] = (float)(i + 1);
        if (status == WEFT_OK)
            status = weft_sparse_average_step(average, NULL);
    }
    int ended = weft_sparse_average_destroy(average);
    return status ? status : ended;
}

static const struct object {
    const char *name;
    int (*live)(struct life *life);
} objects[] = {
    {"group", live_group}, {"gossip", live_gossip}, {"pair", live_pair}, {"sparse", live_sparse}};

static int live(struct weft_context *context, void *user)
{
    const struct growth *growth = user;
    float model[MOST_ELEMENTS];
    struct life life = {context, {model, growth->elements}, 0};

    memset(model, 0, growth->elements * sizeof *model);
    life.random = 1000003 + (uint64_t)weft_context_rank(context);
    return growth->object->live(&life);
}

/* ---- a process for each number of ranks ---- */

struct taken {
    double seconds;   /* of a processor */
    double kibibytes; /* at the peak */
};

static int simulate(struct growth *growth, int ranks)
{
    struct weft_virtual_config config;
    struct weft_net net;

    weft_virtual_config_init(&config);
    weft_net_init(&net);
    config.net = &net;
    int status = weft_net_parse("L=1.5,o=0.5,g=0.2,G=0.0001", &net); /* 10 GB/s */
    if (status == WEFT_OK)
        status = weft_virtual_run(ranks, &config, live, growth);
    if (status != WEFT_OK)
        fprintf(stderr, "weft bench growth: %s on %d ranks: %s\n", growth->object->name, ranks,
                weft_error_text());
    return status == WEFT_OK ? CLI_OK : CLI_NO;
}

static int take(struct growth *growth, int ranks, struct taken *taken)
{
    struct rusage usage;
    int how = 0;

    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(simulate(growth, ranks));
    if (child < 0) {
        weft_error_set(WEFT_ERR_SYSTEM, "fork: %s", strerror(errno));
        return -1;
    }
    while (wait4(child, &how, 0, &usage) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(how) || WEXITSTATUS(how)) {
        weft_error_set(WEFT_ERR_SYSTEM, "%d virtual ranks did not end well", ranks);
        return -1;
    }
    taken->seconds = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                     ((double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_usec) * 1e-6;
    taken->kibibytes = (double)usage.ru_maxrss;
    return 0;
}

static void print(struct growth *growth, int ranks, const char *unit,
                  const struct bench_samples *samples, const struct bench_samples *fewest)
{
    char what[40], peer[24];

    snprintf(what, sizeof what, "%s P=%d", growth->object->name, ranks);
    snprintf(peer, sizeof peer, "P=%d", FEWEST);
    bench_print(growth->bench,
                &(struct bench_row){.what = what,
                                    .unit = unit,
                                    .transport = "virtual",
                                    .peer = peer,
                                    .weft = samples,
                                    .peers = fewest,
                                    .limit = bench_median(fewest) * log2(ranks) / log2(FEWEST),
                                    .bytes = growth->elements * sizeof(float)});
}

static int measure(struct growth *growth, int most)
{
    struct bench_samples fewest[2] = {{0}};
    struct taken one;

    if (take(growth, 1, &one))
        return bench_fail(growth->bench, growth->object->name);
    for (int ranks = FEWEST; ranks <= most; ranks *= FACTOR) {
        struct bench_samples time = {0}, memory = {0};
        for (int round = 0; round < growth->bench->rounds; round++) {
            struct taken taken;
            if (take(growth, ranks, &taken))
                return bench_fail(growth->bench, growth->object->name);
            bench_sample(&time, (taken.seconds - one.seconds) * 1e6 / ranks / STEPS);
            bench_sample(&memory, (taken.kibibytes - one.kibibytes) / ranks);
        }
        if (ranks == FEWEST) {
            fewest[0] = time;
            fewest[1] = memory;
        }
        print(growth, ranks, "us/rank/step", &time, &fewest[0]);
        print(growth, ranks, "KiB/rank", &memory, &fewest[1]);
    }
    return CLI_OK;
}

int bench_growth(struct bench *bench)
{
    struct growth growth = {.bench = bench, .elements = ELEMENTS};
    int most = bench->ranks ? bench->ranks : RANKS, status = CLI_OK;

    if (bench->world > 1)
        return cli_usage("bench", "growth: virtual ranks need no mpiexec");
    if (most < FEWEST)
        return cli_usage("bench", "-n: %d; expected at least %d ranks", most, FEWEST);
    if (bench->size_count)
        growth.elements = bench->sizes[0] / sizeof(float);
    if (growth.elements > MOST_ELEMENTS)
        return cli_usage("bench", "--bytes: %zu; expected at most %zu", bench->sizes[0],
                         MOST_ELEMENTS * sizeof(float));
    bench_note(bench,
               "%d steps of each object on virtual ranks, creation and end included, models of %zu "
               "bytes; limit: what %d ranks take, by the logarithm of the ranks",
               STEPS, growth.elements * sizeof(float), FEWEST);
    for (size_t i = 0; i < sizeof objects / sizeof objects[0] && status == CLI_OK; i++) {
        growth.object = &objects[i];
        status = measure(&growth, most);
    }
    return status;
}
