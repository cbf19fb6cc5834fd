/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench overlap: a non-blocking allreduce of 4 MiB under 5 ms of computation that makes no
 * calls. The computation is a sleep (an accelerator is busy, the cores are free) or a loop (the
 * core is busy; with a rank on each core nothing can be gained, and nothing should be lost).
 *
 *   hidden = (communication alone + computation alone - both together) / communication alone
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum compute { NONE, SLEEP, BUSY, COMPUTES };

/* What is measured in a turn. */
enum who { COMPUTATION, WEFT, PEER };

struct overlap {
    struct bench *bench;
    size_t bytes;
    size_t count;
    enum bench_over over;
    int local; /* who takes its turn does on local ranks */
    enum weft_progress progress;
    size_t loops; /* of the busy loop in 5 ms */
    struct bench_team team;
    struct weft_context *context;
    struct bench_side sides[2];
    /* of the turn under way */
    enum who who;
    enum compute compute;
};

static volatile double sink;

/* Computation that the compiler can neither foresee nor vectorise. */
static void spin(size_t loops)
{
    double x = sink;

    for (size_t i = 0; i < loops; i++)
        x = x * 0.999999 + 1e-6;
    sink = x;
}

static void compute(const struct overlap *o)
{
    if (o->compute == SLEEP)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    else if (o->compute == BUSY)
        spin(o->loops);
}

/* By processor time, so that others on this machine do not count. */
static size_t loops_in_5ms(void)
{
    size_t loops = 1000000;
    double least = INFINITY;

    for (int i = 0; i < 20; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        spin(loops);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        double ns =
            (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)to.tv_nsec - (double)from.tv_nsec;
        least = fmin(least, ns / (double)loops);
    }
    return (size_t)(5e6 / least);
}

/* ---- one rank ---- */

static int post(const struct overlap *o, const struct bench_side *side)
{
    if (o->who == WEFT)
        return weft_run_start(side->run);
    if (o->who == PEER)
        bench_peer_post();
    return WEFT_OK;
}

static int wait(const struct overlap *o, const struct bench_side *side)
{
    if (o->who == WEFT)
        return weft_run_wait(side->run, WEFT_NEVER);
    if (o->who == PEER)
        bench_peer_wait();
    return WEFT_OK;
}

static void meet(struct overlap *o)
{
    if (o->local)
        bench_team_meet(&o->team);
    else
        bench_mpi_meet();
}

/* One execution that warms up, one that counts. */
static int side_turn(struct overlap *o, struct bench_side *side, int rank)
{
    int status = WEFT_OK;

    for (int i = 0; i < 2 && status == WEFT_OK; i++) {
        side->send[0] = side->send[o->count - 1] = (float)(rank + i);
        meet(o);
        uint64_t start = ranks_now();
        status = post(o, side);
        if (i == 1)
            compute(o);
        status = status == WEFT_OK ? wait(o, side) : status;
        side->us = (double)(ranks_now() - start) * 1e-3;
        if (status == WEFT_OK && o->who != COMPUTATION &&
            (side->recv[0] != (float)(1 + 2 * i) || side->recv[o->count - 1] != side->recv[0])) {
            status = weft_error_set(WEFT_ERR_COMPUTE, "wrong sum: %g, expected %d",
                                    (double)side->recv[0], 1 + 2 * i);
        }
    }
    return status;
}

static int member_turn(struct bench_team *team, int rank, void *user)
{
    struct overlap *o = user;

    (void)team;
    return side_turn(o, &o->sides[rank], rank);
}

static int member_open(struct bench_team *team, int rank, void *user)
{
    struct overlap *o = user;

    return bench_side_open(&o->sides[rank], team->contexts[rank], o->count,
                           o->bench->memory == BENCH_ARENA);
}

/* ---- turns ---- */

static int take_turn(struct overlap *o, enum who who, enum compute what, struct bench_samples *to)
{
    int local = o->local;
    int status = WEFT_OK;
    double us = 0;

    o->local = local && who != PEER; /* the peer takes its turn over MPI */
    o->who = who;
    o->compute = what;
    if (!o->local) {
        status = side_turn(o, &o->sides[0], o->bench->rank);
        us = o->sides[0].us;
    } else if (o->bench->rank == 0) {
        status = bench_team_run(&o->team, member_turn, o);
        us = fmax(o->sides[0].us, o->sides[1].us);
    }
    if (o->bench->world > 1 && status == WEFT_OK)
        us = bench_mpi_agree(us, o->local);
    o->local = local;
    bench_sample(to, us);
    return status;
}

/* What the rounds of one contender gave. */
struct figures {
    struct bench_samples alone;
    struct bench_samples computation[COMPUTES];
    struct bench_samples total[COMPUTES];
    struct bench_samples hidden[COMPUTES];
};

static int round_of(struct overlap *o, enum who who, struct figures *f)
{
    int status = take_turn(o, who, NONE, &f->alone);

    for (int c = SLEEP; c < COMPUTES && status == WEFT_OK; c++) {
        status = take_turn(o, COMPUTATION, (enum compute)c, &f->computation[c]);
        if (status == WEFT_OK)
            status = take_turn(o, who, (enum compute)c, &f->total[c]);
    }
    return status;
}

/* Each round's total against the medians of both parts alone. */
static void set_hidden(struct figures *f)
{
    double alone = bench_median(&f->alone);

    for (int c = SLEEP; c < COMPUTES; c++) {
        double sum = alone + bench_median(&f->computation[c]);
        f->hidden[c].count = 0;
        for (size_t i = 0; i < f->total[c].count; i++)
            bench_sample(&f->hidden[c], 100 * (sum - f->total[c].values[i]) / alone);
    }
}

static void print(struct overlap *o, const struct figures *weft, const struct figures *peer)
{
    const char *who = o->progress == WEFT_PROGRESS_HELPER ? "helper" : "caller";
    char what[64];

    for (int c = SLEEP; c < COMPUTES; c++) {
        snprintf(what, sizeof what, "%s 5 ms, %s", c == SLEEP ? "sleep" : "busy", who);
        struct bench_row row = {.what = what,
                                .unit = "% hidden",
                                .transport = bench_over_name(o->over),
                                .peer = peer->alone.count ? "MPI_Iallreduce" : NULL,
                                .weft = &weft->hidden[c],
                                .peers = &peer->hidden[c],
                                .limit = c == SLEEP ? 90 : NAN,
                                .bytes = o->bytes};
        bench_print(o->bench, &row);
        row.unit = "us";
        row.weft = &weft->total[c];
        row.peers = &peer->total[c];
        row.limit =
            bench_median(&weft->computation[c]) + (c == BUSY ? bench_median(&weft->alone) : 0);
        bench_print(o->bench, &row);
    }
}

static int open_contender(struct overlap *o)
{
    struct weft_context_config config;
    int status = WEFT_OK;

    weft_context_config_init(&config);
    config.progress = o->progress;
    if (o->local && o->bench->rank == 0) {
        status = bench_team_open(&o->team, 2, &config);
        return status == WEFT_OK ? bench_team_run(&o->team, member_open, o) : status;
    }
    if (!o->local) {
        o->context = bench_context(o->bench, o->over, &config);
        if (!o->context)
            return WEFT_ERR_TRANSPORT;
    }
    return bench_side_open(&o->sides[0], o->context, o->count, o->bench->memory == BENCH_ARENA);
}

static void close_contender(struct overlap *o)
{
    bench_side_close(&o->sides[0]);
    bench_side_close(&o->sides[1]);
    weft_context_destroy(o->context);
    o->context = NULL;
    if (o->local && o->bench->rank == 0)
        bench_team_close(&o->team);
}

/* A helper on MPI polls now and then while it is idle, which would push the peer's collective as
 * well: there the peer's figures are those taken beside the contender before. */
static int contend(struct overlap *o, struct figures *peer)
{
    int polls = o->over == BENCH_MPI && o->progress == WEFT_PROGRESS_HELPER;
    int with_peer = o->bench->world > 1 && !polls;
    struct figures weft;
    int status = open_contender(o);

    memset(&weft, 0, sizeof weft);
    if (with_peer && status == WEFT_OK) {
        memset(peer, 0, sizeof *peer);
        bench_peer_open(BENCH_IALLREDUCE, o->sides[0].send, o->sides[0].recv, o->count);
    }
    for (int round = 0; round < o->bench->rounds && status == WEFT_OK; round++) {
        status = round_of(o, WEFT, &weft);
        if (with_peer && status == WEFT_OK)
            status = round_of(o, PEER, peer);
    }
    if (status != WEFT_OK)
        return bench_fail(o->bench, "allreduce");
    set_hidden(&weft);
    set_hidden(peer);
    print(o, &weft, peer);
    close_contender(o);
    return 0;
}

int bench_overlap(struct bench *bench)
{
    struct overlap o = {.bench = bench,
                        .bytes = bench->size_count ? bench->sizes[0] : (size_t)4 << 20};
    static struct figures peer;
    double loops = 0;

    if (bench->world == 1 && !bench->mpi) {
        int status = bench_respawn(bench, 2);
        if (status != CLI_NO_MPI)
            return status;
        bench_note(bench, "no mpiexec here: local ranks alone, without a peer");
    }
    if (bench->world > 2)
        return cli_usage("bench", "overlap: %d ranks; expected mpiexec -n 2", bench->world);
    if (bench->rank == 0) {
        bench_machine(bench);
        loops = (double)loops_in_5ms();
    }
    o.count = o.bytes / sizeof(float);
    o.loops = (size_t)(bench->world > 1 ? bench_mpi_agree(loops, 1) : loops);
    bench_note(bench, "2 ranks; hand-over between cores %.0f ns; limit of us: %s",
               bench->handover_ns, "sleep: computation alone, busy: both alone");
    for (int over = BENCH_LOCAL; over <= (int)bench_over_last(bench); over++) {
        for (int helper = 0; helper < 2; helper++) {
            o.over = (enum bench_over)over;
            o.local = over == BENCH_LOCAL;
            o.progress = helper ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
            int status = contend(&o, &peer);
            if (status)
                return status;
        }
    }
    return 0;
}
