/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench gpu: allreduce among local ranks whose vectors are on devices, one or several, beside
 * the same ranks' on the host, and NCCL's where each rank has a device of its own. The bound counts
 * what cannot be left out: every rank's vector is read and its sum is written, by all devices at
 * once.
 */
#include "tools/bench/gpu.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEFT, HOST, NCCL, CONTENDERS };
enum { CALLS = 20, WARM = 3 };

/* What a rank has. */
struct part {
    void *send, *recv; /* on its device */
    struct weft_run *run;
    struct bench_side host;
    struct gpu_driver *driver; /* its stream for NCCL; or NULL */
    int device;
    double us;
};

struct contest {
    struct gpu *gpu;
    struct bench_team team;
    struct part *parts;
    struct gpu_nccl *nccl; /* NULL: without */
    int ranks;
    size_t count;
    int now;
    struct bench_samples samples[CONTENDERS];
};

/* ---- one rank ---- */

static int open_part(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;
    struct part *part = &c->parts[rank];
    struct weft_context *context = team->contexts[rank];
    struct weft_template_params params;
    size_t bytes = c->count * sizeof(float);
    int status = bench_side_open(&part->host, context, c->count, 1);

    weft_template_params_init(&params);
    params.count = c->count;
    params.memory = WEFT_MEMORY_DEVICE;
    if (status == WEFT_OK)
        status = weft_context_device_alloc(context, WEFT_MEMORY_DEVICE, bytes, &part->send);
    if (status == WEFT_OK)
        status = weft_context_device_alloc(context, WEFT_MEMORY_DEVICE, bytes, &part->recv);
    if (status == WEFT_OK)
        status = weft_context_device_copy(context, part->send, part->host.send, bytes);
    if (status == WEFT_OK)
        status = weft_template_create_run(&part->run, context, "allreduce", &params);
    if (status == WEFT_OK)
        status = weft_run_bind_input_name(part->run, "send", part->send, c->count, WEFT_F32);
    return status == WEFT_OK ? weft_run_bind_name(part->run, "recv", part->recv, c->count, WEFT_F32)
                             : status;
}

static int join_nccl(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;
    int status = gpu_driver_open(&c->parts[rank].driver, c->parts[rank].device);

    (void)team;
    return status == WEFT_OK ? gpu_nccl_join(c->nccl, rank) : status;
}

static int leave_nccl(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;

    gpu_nccl_leave(c->nccl, rank);
    gpu_driver_close(c->parts[rank].driver);
    c->parts[rank].driver = NULL;
    bench_team_meet(team);
    if (rank == 0) {
        gpu_nccl_close(c->nccl);
        c->nccl = NULL;
    }
    return WEFT_OK;
}

static int close_part(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;
    struct part *part = &c->parts[rank];

    weft_run_destroy(part->run);
    weft_context_device_free(team->contexts[rank], part->send);
    weft_context_device_free(team->contexts[rank], part->recv);
    bench_side_close(&part->host);
    return WEFT_OK;
}

static int find_device(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;
    const char *name = "";
    int status = weft_context_device(team->contexts[rank], &name);

    c->parts[rank].device = (int)strtol(name + strcspn(name, "0123456789"), NULL, 10);
    return status;
}

/* ---- turns ---- */

static int call(const struct contest *c, int rank)
{
    const struct part *part = &c->parts[rank];
    int status;

    if (c->now == WEFT)
        return weft_run_execute(part->run);
    if (c->now == HOST)
        return weft_run_execute(part->host.run);
    status = gpu_nccl_allreduce(c->nccl, rank, part->send, part->recv, c->count,
                                gpu_driver_stream(part->driver));
    return status == WEFT_OK ? gpu_driver_wait(part->driver) : status;
}

/* All have contributed ones. */
static int check(const struct contest *c, struct weft_context *context, int rank)
{
    const struct part *part = &c->parts[rank];
    const float *from = c->now == HOST ? part->host.recv : part->recv;
    float ends[2];
    int status = weft_context_device_copy(context, &ends[0], from, sizeof ends[0]);

    if (status == WEFT_OK)
        status = weft_context_device_copy(context, &ends[1], from + c->count - 1, sizeof ends[1]);
    if (status == WEFT_OK && (ends[0] != (float)c->ranks || ends[1] != (float)c->ranks))
        status = weft_error_set(WEFT_ERR_COMPUTE, "a wrong sum: %g and %g, expected %d",
                                (double)ends[0], (double)ends[1], c->ranks);
    return status;
}

static int turn(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;
    struct part *part = &c->parts[rank];
    float none = 0;
    uint64_t start = 0;
    int status = WEFT_OK;

    if (c->now == HOST)
        part->host.recv[0] = none;
    else
        status = weft_context_device_copy(team->contexts[rank], part->recv, &none, sizeof none);
    bench_team_meet(team);
    for (int i = -WARM; i < CALLS && status == WEFT_OK; i++) {
        if (i == 0) {
            bench_team_meet(team);
            start = ranks_now();
        }
        status = call(c, rank);
    }
    part->us = (double)(ranks_now() - start) * 1e-3 / CALLS;
    return status == WEFT_OK ? check(c, team->contexts[rank], rank) : status;
}

static int take_turns(struct contest *c)
{
    int contenders = c->nccl ? CONTENDERS : NCCL;
    int status = WEFT_OK;

    for (int round = 0; round < c->gpu->bench->rounds && status == WEFT_OK; round++)
        for (c->now = 0; c->now < contenders && status == WEFT_OK; c->now++) {
            double slowest = 0;

            status = bench_team_run(&c->team, turn, c);
            for (int r = 0; r < c->ranks; r++)
                slowest = fmax(slowest, c->parts[r].us);
            bench_sample(&c->samples[c->now], slowest);
        }
    return status;
}

/* ---- rows ---- */

static int device_count(const struct contest *c)
{
    int count = 0;

    for (int r = 0; r < c->ranks; r++) {
        int first = 1;

        for (int other = 0; other < r; other++)
            first &= c->parts[other].device != c->parts[r].device;
        count += first;
    }
    return count;
}

static void print(struct contest *c, const char *what, int peer, const char *name)
{
    double bytes = (double)c->count * sizeof(float);
    double bandwidth = c->gpu->bandwidth * device_count(c);
    struct bench_row row = {.what = what,
                            .unit = "us",
                            .peer = name,
                            .weft = &c->samples[WEFT],
                            .peers = &c->samples[peer],
                            .limit = bandwidth > 0 ? 2 * c->ranks * bytes / bandwidth * 1e6 : NAN,
                            .bytes = c->count * sizeof(float)};

    gpu_print(c->gpu, &row, NAN, NAN);
}

static int measure_size(struct contest *c)
{
    int devices = device_count(c);
    char what[64];
    int status = bench_team_run(&c->team, open_part, c);

    if (status == WEFT_OK && c->nccl && bench_team_run(&c->team, join_nccl, c) != WEFT_OK) {
        bench_note(c->gpu->bench, "without NCCL: %s", weft_error_text());
        bench_team_run(&c->team, leave_nccl, c);
    }
    for (int i = 0; i < CONTENDERS; i++)
        c->samples[i].count = 0;
    if (status == WEFT_OK)
        status = take_turns(c);
    snprintf(what, sizeof what, "allreduce, %d ranks on %d device%s", c->ranks, devices,
             devices == 1 ? "" : "s");
    if (status == WEFT_OK)
        print(c, what, HOST, "weft on the host");
    if (status == WEFT_OK && c->nccl)
        print(c, what, NCCL, "ncclAllReduce");
    if (c->nccl)
        bench_team_run(&c->team, leave_nccl, c);
    bench_team_run(&c->team, close_part, c);
    memset(c->parts, 0, (size_t)c->ranks * sizeof *c->parts);
    return status;
}

static int measure(struct gpu *gpu, int ranks)
{
    static const size_t standard[] = {4 << 10, 1 << 20, 64 << 20};
    const struct bench *bench = gpu->bench;
    const size_t *sizes = bench->size_count ? bench->sizes : standard;
    size_t count = bench->size_count ? bench->size_count : sizeof standard / sizeof *standard;
    struct contest c = {.gpu = gpu, .ranks = ranks};
    struct weft_context_config config;

    weft_context_config_init(&config);
    config.device = bench->device;
    c.parts = weft_memory_alloc((size_t)ranks, sizeof *c.parts);
    int status = c.parts ? bench_team_open(&c.team, ranks, &config)
                         : weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d ranks", ranks);
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        c.count = sizes[i] / sizeof(float);
        status = bench_team_run(&c.team, find_device, &c);
        if (status != WEFT_OK)
            break;
        if (device_count(&c) == ranks && !(c.nccl = gpu_nccl_open(ranks)) && i == 0)
            bench_note(bench, "without NCCL: %s", weft_error_text());
        status = measure_size(&c);
    }
    if (c.parts)
        bench_team_close(&c.team);
    weft_memory_free(c.parts);
    return status == WEFT_OK ? 0 : bench_fail(bench, "allreduce");
}

int gpu_allreduce(struct gpu *gpu)
{
    static const int standard[] = {2, 4};
    int status = 0;

    if (gpu->bench->ranks)
        return measure(gpu, gpu->bench->ranks);
    for (size_t i = 0; i < sizeof standard / sizeof *standard && !status; i++)
        status = measure(gpu, standard[i]);
    return status;
}
