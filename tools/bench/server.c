/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench server: pushes and pulls that one server answers in a second, with workers that do
 * nothing but push and pull, one after the other (ASP) or together (BSP). Ranks are the workers and
 * behind them the server, each with caller progress. Contenders take turns:
 *
 *     asp, bsp    every worker takes some steps: pushes its gradient, pulls the parameters
 *     allreduce   of all these ranks, of as many bytes: what each contributes counts as a push
 *     bound       what a server must at least read and write, by all cores at once and without ever
 *                 waiting: it reads gradients where workers have them, and writes parameters where
 *                 they want them
 *
 * Gradients hold zeros while time is taken; a step before has numbers, and is checked. They are not
 * searched for NaNs, which is a worker's time.
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ASP, BSP, ALLREDUCE, PEER, BOUND_ASP, BOUND_BSP, CONTENDERS };
enum {
    TURN_US = 20000,
    SLOW_US = 200000, /* of one call: three rounds will do; ten times that: one */
    MOST_STEPS = 20000,
    LAYER_BYTES = 1 << 20, /* of a large model */
    PIECE = 4096,          /* elements of a sum that stay in the cache */
    MOST_SIZES = 32,
    IDLE_MS = 1000,
    IDLE_ROUNDS = 3,
    IDLE_BYTES = 4096
};

/* A rank: what it has are the elements of its gradient and of its parameters. */
struct side {
    struct weft_context *context;
    float *gradient, *parameters;
    struct weft_server *servers[2]; /* ASP, BSP */
    struct weft_run *allreduce;
    double us, percent;
};

struct measured;
typedef int (*side_fn)(struct measured *m, struct side *side, int rank);

struct measured {
    struct bench *bench;
    int workers;
    enum bench_over over;
    weft_progress_t progress;
    size_t bytes, count;
    struct bench_team team; /* over local ranks */
    struct weft_context *context;
    struct side *sides; /* of this process */
    int peer;           /* MPI is there */
    size_t steps[CONTENDERS];
    int rounds[CONTENDERS];
    struct bench_samples samples[CONTENDERS]; /* microseconds of a step of all workers */
    double bounds[MOST_SIZES][2];             /* likewise; found with local ranks */
    /* of the turn under way */
    side_fn fn;
    int now;
    size_t calls;
};

static int is_server(const struct measured *m, int rank)
{
    return rank == m->workers;
}

/* ---- all ranks of a transport ---- */

static int member(struct bench_team *team, int rank, void *user)
{
    struct measured *m = user;

    m->sides[rank].context = team->contexts[rank];
    return m->fn(m, &m->sides[rank], rank);
}

/* Runs a function on all ranks. Over processes collective. */
static int on_all(struct measured *m, side_fn fn)
{
    m->fn = fn;
    if (m->over == BENCH_LOCAL)
        return bench_team_run(&m->team, member, m);
    m->sides[0].context = m->context;
    return fn(m, &m->sides[0], m->bench->rank);
}

static int open_ranks(struct measured *m)
{
    struct weft_context_config config;

    weft_context_config_init(&config);
    config.progress = m->progress;
    m->sides = calloc(m->over == BENCH_LOCAL ? (size_t)m->workers + 1 : 1, sizeof *m->sides);
    if (!m->sides)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d ranks", m->workers + 1);
    if (m->over == BENCH_LOCAL)
        return bench_team_open(&m->team, m->workers + 1, &config);
    m->context = bench_context(m->bench, m->over, &config);
    return m->context ? WEFT_OK : WEFT_ERR_TRANSPORT;
}

/* Of local ranks all at once, too: a context sees objects off, for which it needs the others. */
static int close_context(struct measured *m, struct side *side, int rank)
{
    weft_context_destroy(side->context);
    if (m->over == BENCH_LOCAL)
        m->team.contexts[rank] = NULL;
    return WEFT_OK;
}

static void close_ranks(struct measured *m)
{
    on_all(m, close_context);
    if (m->over == BENCH_LOCAL)
        bench_team_close(&m->team);
    m->context = NULL;
    free(m->sides);
}

/* ---- a rank ---- */

static float *memory_of(const struct measured *m, struct weft_context *context)
{
    float *memory = m->bench->memory == BENCH_ARENA
                        ? weft_context_memory_alloc(context, m->count, sizeof *memory)
                        : weft_memory_alloc(m->count, sizeof *memory);

    if (memory)
        memset(memory, 0, m->bytes); /* touched before it is timed */
    return memory;
}

static void free_memory(const struct measured *m, struct weft_context *context, float *memory)
{
    if (m->bench->memory == BENCH_ARENA)
        weft_context_memory_free(context, memory);
    else
        weft_memory_free(memory);
}

static int open_server(struct measured *m, struct side *side, int who)
{
    size_t layers = 1 + (m->bytes - 1) / LAYER_BYTES;
    struct weft_piece *pieces = weft_memory_alloc(2 * layers, sizeof *pieces);
    struct weft_server_config config;

    if (!pieces)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu layers", layers);
    for (size_t l = 0; l < layers; l++) {
        size_t from = m->count * l / layers, to = m->count * (l + 1) / layers;
        pieces[l] = (struct weft_piece){side->parameters + from, to - from};
        pieces[layers + l] = (struct weft_piece){side->gradient + from, to - from};
    }
    weft_server_config_init(&config);
    config.tensors = pieces;
    config.gradients = pieces + layers;
    config.tensor_count = layers;
    config.sync = who == BSP ? WEFT_SERVER_BSP : WEFT_SERVER_ASP;
    config.nan = WEFT_NAN_SPREAD;
    config.rate = 1;
    int status = weft_server_create(&side->servers[who], side->context, &config);
    weft_memory_free(pieces);
    return status;
}

static int open_side(struct measured *m, struct side *side, int rank)
{
    struct weft_template_params params;

    (void)rank;
    side->gradient = memory_of(m, side->context);
    side->parameters = memory_of(m, side->context);
    if (!side->gradient || !side->parameters)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu elements", m->count);
    int status = open_server(m, side, ASP);
    if (status == WEFT_OK)
        status = open_server(m, side, BSP);
    weft_template_params_init(&params);
    params.count = m->count;
    if (status == WEFT_OK)
        status = weft_template_create_run(&side->allreduce, side->context, "allreduce", &params);
    if (status == WEFT_OK)
        status =
            weft_run_bind_input_name(side->allreduce, "send", side->gradient, m->count, WEFT_F32);
    return status == WEFT_OK
               ? weft_run_bind_name(side->allreduce, "recv", side->parameters, m->count, WEFT_F32)
               : status;
}

/* The server is there until the workers have left. */
static int close_side(struct measured *m, struct side *side, int rank)
{
    int status = WEFT_OK;

    for (int who = ASP; who <= BSP; who++) {
        if (is_server(m, rank) && side->servers[who] && status == WEFT_OK)
            status = weft_server_serve(side->servers[who], WEFT_NEVER);
        int ended = weft_server_destroy(side->servers[who]);
        status = status == WEFT_OK ? ended : status;
    }
    weft_run_destroy(side->allreduce);
    free_memory(m, side->context, side->gradient);
    free_memory(m, side->context, side->parameters);
    *side = (struct side){.context = side->context};
    return status;
}

/* ---- turns ---- */

/* A step with numbers, between two without: the parameters are less by the mean of 1, 2 ...
 * workers, up to rounding. While a rank waits for the others it drives its engine, so the server
 * serves. */
static int check(const struct measured *m, struct side *side, int rank)
{
    struct weft_server *server = is_server(m, rank) ? NULL : side->servers[m->now];
    size_t last = m->count - 1;
    float before[2] = {0}, mean = (float)(m->workers + 1) / 2;
    int status = WEFT_OK;

    for (int step = 0; step < 3 && status == WEFT_OK; step++) {
        side->gradient[0] = side->gradient[last] = step == 1 ? (float)(rank + 1) : 0;
        status = server ? weft_server_step(server, NULL) : WEFT_OK;
        if (step == 0) {
            before[0] = side->parameters[0];
            before[1] = side->parameters[last];
        }
        if (status == WEFT_OK)
            status = weft_barrier(side->context);
    }
    for (int i = 0; i < 2 && server && status == WEFT_OK; i++) {
        float after = side->parameters[i ? last : 0];
        if (fabsf(before[i] - after - mean) > 1e-5f * fabsf(before[i]) + 1e-4f * mean)
            status = weft_error_set(WEFT_ERR_COMPUTE,
                                    "wrong update of %zu bytes: from %g to %g, expected %g less",
                                    m->bytes, (double)before[i], (double)after, (double)mean);
    }
    return status;
}

/* The elements of one of those that share the work of the bound. */
static int bound_call(const struct measured *m, int rank, int sharers)
{
    const struct weft_op *add = weft_op_builtin(WEFT_SUM);
    size_t to = m->count * ((size_t)rank + 1) / (size_t)sharers;
    float *x = m->sides[m->workers].parameters, sum[PIECE];
    int status = WEFT_OK;

    for (size_t at = m->count * (size_t)rank / (size_t)sharers; at < to; at += PIECE) {
        size_t n = to - at < PIECE ? to - at : PIECE;
        for (int w = 0; w < m->workers && status == WEFT_OK; w++) {
            const float *gradient = m->sides[w].gradient + at;
            if (m->now == BOUND_ASP) {
                status = weft_op_reduce(add, WEFT_F32, x + at, x + at, gradient, n);
                memcpy(m->sides[w].parameters + at, x + at, n * sizeof *x);
            } else if (w > 0) {
                status = weft_op_reduce(add, WEFT_F32, sum, w > 1 ? sum : m->sides[0].gradient + at,
                                        gradient, n);
            }
        }
        if (m->now == BOUND_ASP || status != WEFT_OK)
            continue;
        status = weft_op_reduce(add, WEFT_F32, x + at, x + at,
                                m->workers > 1 ? sum : m->sides[0].gradient + at, n);
        for (int w = 0; w < m->workers; w++)
            memcpy(m->sides[w].parameters + at, x + at, n * sizeof *x);
    }
    return status;
}

static int sharers_of(const struct measured *m)
{
    return m->workers < m->bench->cores ? m->workers + 1 : m->bench->cores;
}

static int call(const struct measured *m, struct side *side, int rank)
{
    if (m->now == ALLREDUCE)
        return weft_run_execute(side->allreduce);
    if (m->now == PEER) {
        bench_peer_run(BENCH_ALLREDUCE);
        return WEFT_OK;
    }
    if (m->now >= BOUND_ASP)
        return rank < sharers_of(m) ? bound_call(m, rank, sharers_of(m)) : WEFT_OK;
    return is_server(m, rank) ? WEFT_OK : weft_server_step(side->servers[m->now], NULL);
}

/* Who has done its calls waits for the others, and serves them meanwhile. */
static int meet(const struct measured *m, struct side *side)
{
    if (m->now == PEER)
        bench_mpi_meet();
    return m->now == PEER ? WEFT_OK : weft_barrier(side->context);
}

static int side_turn(struct measured *m, struct side *side, int rank)
{
    size_t warm = m->rounds[m->now] < m->bench->rounds ? 0 : m->calls / 10 + 1;
    uint64_t start = 0;

    if (m->over == BENCH_LOCAL) /* spins, which gives each rank a core where there are enough */
        bench_team_meet(&m->team);
    int status = m->now <= BSP ? check(m, side, rank) : WEFT_OK;
    for (size_t i = 0; i < warm + m->calls && status == WEFT_OK; i++) {
        if (i == 0 || i == warm) {
            status = meet(m, side);
            start = ranks_now();
        }
        if (status == WEFT_OK)
            status = call(m, side, rank);
    }
    side->us = (double)(ranks_now() - start) * 1e-3 / (double)m->calls;
    return status == WEFT_OK ? meet(m, side) : status;
}

/* Microseconds of a call of all ranks: the slowest one's, the same number on all processes. */
static int take_turn(struct measured *m, int who, size_t calls, double *us)
{
    m->now = who;
    m->calls = calls;
    int status = on_all(m, side_turn);
    *us = m->sides[0].us;
    for (int r = 1; m->over == BENCH_LOCAL && r <= m->workers; r++)
        *us = fmax(*us, m->sides[r].us);
    if (m->over != BENCH_LOCAL && status == WEFT_OK)
        *us = bench_mpi_agree(*us, 0);
    return status;
}

/* As many calls as fill a turn, and rounds as there is time for. */
static int calibrate(struct measured *m, int who)
{
    double us = 0;
    size_t calls = 1;

    m->rounds[who] = m->bench->rounds;
    for (;;) {
        int status = take_turn(m, who, calls, &us);
        if (status != WEFT_OK)
            return status;
        double fits = us > 0 ? TURN_US / us : 1e9;
        if (calls >= MOST_STEPS || fits < 2 * (double)calls)
            break;
        calls = fits > 8 * (double)calls ? calls * 8 : calls * 2;
    }
    m->steps[who] = calls;
    if (us > SLOW_US)
        m->rounds[who] = us > 10.0 * SLOW_US || m->bench->rounds < 3 ? 1 : 3;
    return WEFT_OK;
}

/* ---- rows ---- */

/* Microseconds that a step of all workers must take at least: memory, and that ranks hear of each
 * other; or what the server's link carries in each direction. */
static double limit_us(const struct measured *m, size_t size, int who)
{
    const struct bench *bench = m->bench;
    double memory = m->bounds[size][who], workers = m->workers;

    if (m->over == BENCH_MPI && bench->link > 0)
        return 8e6 * workers * (double)m->bytes / bench->link;
    if (m->workers + 1 > bench->cores)
        return memory + (workers + 1) / bench->cores * bench->yield_ns * 1e-3;
    double hands = 2 * bench->handover_ns * 1e-3;
    return who == BSP ? memory + hands : fmax(memory, memory / workers + hands);
}

/* Pushes in a second, or gigabytes in and out. */
static void print_row(struct measured *m, size_t size, int who, int beside, int as_bytes)
{
    double unit = 1e6 * (as_bytes ? 2e-9 * (double)m->bytes : 1), workers = m->workers;
    struct bench_samples weft = {0}, peer = {0};
    char what[64], text[16];

    for (size_t i = 0; i < m->samples[who].count; i++)
        bench_sample(&weft, unit * workers / m->samples[who].values[i]);
    for (size_t i = 0; i < m->samples[beside].count; i++)
        bench_sample(&peer, unit * (workers + 1) / m->samples[beside].values[i]);
    snprintf(what, sizeof what, "%d worker%s, %s, %s", m->workers, m->workers > 1 ? "s" : "",
             bench_size_text(m->bytes, text), who == ASP ? "asp" : "bsp");
    struct bench_row row = {.what = what,
                            .unit = as_bytes ? "GB/s" : "pushes/s",
                            .transport = bench_over_name(m->over),
                            .peer = beside == PEER ? "MPI_Allreduce" : "allreduce",
                            .weft = &weft,
                            .peers = &peer,
                            .limit = unit * workers / limit_us(m, size, who),
                            .bytes = m->bytes};
    bench_print(m->bench, &row);
}

static void print_size(struct measured *m, size_t size)
{
    for (int who = ASP; who <= BSP; who++) {
        print_row(m, size, who, ALLREDUCE, 0);
        if (m->peer)
            print_row(m, size, who, PEER, 0);
        print_row(m, size, who, ALLREDUCE, 1);
    }
}

/* ---- a size ---- */

/* Bounds are of one process, and hold for several. */
static int takes_part(const struct measured *m, int who)
{
    return who < PEER || (who == PEER ? m->peer : m->over == BENCH_LOCAL);
}

static int measure_size(struct measured *m, size_t size, size_t bytes)
{
    double us;

    m->bytes = bytes;
    m->count = bytes / sizeof(float);
    memset(m->samples, 0, sizeof m->samples);
    int status = on_all(m, open_side);
    m->peer =
        status == WEFT_OK && m->over != BENCH_LOCAL &&
        bench_peer_open(BENCH_ALLREDUCE, m->sides[0].gradient, m->sides[0].parameters, m->count);
    for (int who = 0; who < CONTENDERS && status == WEFT_OK; who++)
        status = takes_part(m, who) ? calibrate(m, who) : WEFT_OK;
    for (int round = 0; round < m->bench->rounds && status == WEFT_OK; round++)
        for (int i = 0; i < CONTENDERS && status == WEFT_OK; i++) {
            int who = (round + i) % CONTENDERS;
            if (!takes_part(m, who) || round >= m->rounds[who])
                continue;
            status = take_turn(m, who, m->steps[who], &us);
            bench_sample(&m->samples[who], us);
        }
    if (m->over == BENCH_LOCAL && status == WEFT_OK) {
        m->bounds[size][ASP] = bench_median(&m->samples[BOUND_ASP]);
        m->bounds[size][BSP] = bench_median(&m->samples[BOUND_BSP]);
    }
    if (status == WEFT_OK)
        print_size(m, size);
    if (m->peer)
        bench_peer_close(BENCH_ALLREDUCE);
    m->peer = 0;
    return status == WEFT_OK ? on_all(m, close_side) : status;
}

/* ---- waiting ---- */

/* Nobody pushes. The processor time is that of the server's process. */
static int wait_turn(struct measured *m, struct side *side, int rank)
{
    int status = weft_barrier(side->context);
    double cpu = bench_cpu_seconds();
    uint64_t start = ranks_now();

    side->percent = 0;
    if (status != WEFT_OK)
        return status;
    if (!is_server(m, rank)) {
        bench_sleep_ms(IDLE_MS + IDLE_MS / 20);
    } else {
        if (m->progress == WEFT_PROGRESS_HELPER)
            bench_sleep_ms(IDLE_MS);
        else
            status = weft_server_serve(side->servers[BSP], UINT64_C(1000000) * IDLE_MS);
        side->percent = 100 * (bench_cpu_seconds() - cpu) / ((double)(ranks_now() - start) * 1e-9);
    }
    return status < 0 ? status : weft_barrier(side->context);
}

/* Beside a process that waits for a message of MPI. */
static void wait_for_mpi(const struct measured *m, struct bench_samples *samples)
{
    int rank = m->bench->rank;

    bench_mpi_meet();
    double cpu = bench_cpu_seconds();
    uint64_t start = ranks_now();
    if (rank == 0) {
        bench_sleep_ms(IDLE_MS);
        bench_mpi_send(m->workers);
    } else if (is_server(m, rank)) {
        bench_mpi_recv(0);
    }
    double percent = 100 * (bench_cpu_seconds() - cpu) / ((double)(ranks_now() - start) * 1e-9);
    bench_sample(samples, bench_mpi_agree(is_server(m, rank) ? percent : 0, 1));
}

static int measure_waiting(struct measured *m)
{
    struct bench_samples weft = {0}, peer = {0};
    char what[64];

    m->bytes = IDLE_BYTES;
    m->count = m->bytes / sizeof(float);
    int status = on_all(m, open_side);
    for (int i = 0; i < m->bench->rounds && i < IDLE_ROUNDS && status == WEFT_OK; i++) {
        status = on_all(m, wait_turn);
        double percent = m->sides[m->over == BENCH_LOCAL ? m->workers : 0].percent;
        if (m->over != BENCH_LOCAL && status == WEFT_OK)
            percent = bench_mpi_agree(percent, 0);
        bench_sample(&weft, percent);
        if (m->over == BENCH_MPI && status == WEFT_OK)
            wait_for_mpi(m, &peer);
    }
    if (status != WEFT_OK)
        return status;
    snprintf(what, sizeof what, "server waits 1 s, %s",
             m->progress == WEFT_PROGRESS_HELPER ? "helper" : "caller");
    struct bench_row row = {.what = what,
                            .unit = "% CPU",
                            .transport = bench_over_name(m->over),
                            .peer = peer.count ? "MPI_Recv" : NULL,
                            .weft = &weft,
                            .peers = &peer,
                            .limit = 1,
                            .bytes = SIZE_MAX};
    bench_print(m->bench, &row);
    return on_all(m, close_side);
}

/* ---- the measurement ---- */

static int measure_over(struct measured *m, enum bench_over over)
{
    static const size_t usual[] = {1u << 12, 1u << 18, 1u << 24};
    const struct bench *bench = m->bench;
    const size_t *sizes = bench->size_count ? bench->sizes : usual;
    size_t count = bench->size_count ? bench->size_count : sizeof usual / sizeof usual[0];

    m->over = over;
    m->progress = WEFT_PROGRESS_CALLER;
    int status = open_ranks(m);
    for (size_t i = 0; i < count && status == WEFT_OK; i++)
        status = measure_size(m, i, sizes[i]);
    /* It does not depend on how many they are: once will do. */
    int waits = m->workers == 1 || bench->ranks;
    if (waits && status == WEFT_OK)
        status = measure_waiting(m);
    if (status == WEFT_OK)
        close_ranks(m);
    m->progress = WEFT_PROGRESS_HELPER;
    if (waits && status == WEFT_OK) {
        status = open_ranks(m);
        if (status == WEFT_OK)
            status = measure_waiting(m);
        if (status == WEFT_OK)
            close_ranks(m);
    }
    return status == WEFT_OK ? 0 : bench_fail(bench, "server");
}

/* The other processes sleep while the first one has the local ranks. */
static int measure(struct bench *bench, int workers)
{
    struct measured m = {.bench = bench, .workers = workers};
    int failed = 0;

    if (bench->rank == 0) {
        bench_machine(bench);
        bench_note(bench, "%d workers and a server; hand-over between cores %.0f ns, yield %.0f ns",
                   workers, bench->handover_ns, bench->yield_ns);
        if (!bench->link)
            failed = measure_over(&m, BENCH_LOCAL);
    }
    if (bench->world > 1) {
        bench_mpi_agree(0, 1);
        if (!failed && !bench->link && bench_shares(bench))
            failed = measure_over(&m, BENCH_SHARED);
        if (!failed)
            failed = measure_over(&m, BENCH_MPI);
    }
    return failed;
}

int bench_server(struct bench *bench)
{
    static const int all[] = {1, 2, 4, 8, 16};
    int one[] = {bench->ranks};
    const int *workers = bench->ranks ? one : all;
    size_t count = bench->ranks ? 1 : sizeof all / sizeof all[0];
    int status = 0, with_mpi = !bench->mpi;

    if (bench->world > 1)
        return measure(bench, bench->world - 1);
    for (size_t i = 0; i < count && !status; i++) {
        status = with_mpi ? bench_respawn(bench, workers[i] + 1) : CLI_NO_MPI;
        if (status != CLI_NO_MPI)
            continue;
        if (with_mpi)
            bench_note(bench, "no mpiexec here: local ranks alone");
        with_mpi = 0;
        status = measure(bench, workers[i]);
    }
    return status;
}
