/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduce of f32 sums, everybody's in turns: weft on local ranks, between processes, over MPI,
 * each by a plan of one's own or by blocking calls, MPI's own forms, and the bound. Processes have
 * their vectors in memory of the context, or in memory of their own. The local ranks are threads of
 * the first process; while they run, the other processes sleep. A turn is a batch of calls after
 * some that warm up; its time is the slowest rank's. Every turn has other data at both ends of the
 * vector, and checks them.
 *
 * The bound of two ranks is measured, not assumed: each adds one half of the vectors and copies the
 * other half, as reduce-scatter and allgather must, without ever waiting; one hand-over between
 * cores is added. With more ranks than cores it is the switches: the ranks of a core take turns in
 * every round of a recursive doubling.
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <string.h>

/* Who takes turns: a plan of each transport, the same on private memory, blocking calls, MPI. */
enum {
    PLAN,
    PRIVATE = PLAN + BENCH_OVERS, /* of processes */
    CALLS = PRIVATE + BENCH_OVERS,
    PEER = CALLS + BENCH_OVERS,
    BOUND = PEER + BENCH_PEERS,
    CONTENDERS
};

struct contest {
    struct bench *bench;
    int ranks;
    size_t bytes;
    size_t count;
    double target_us;                           /* of a turn */
    unsigned who;                               /* contenders, a bit each */
    int turns;                                  /* taken so far: the data of a turn */
    struct bench_team team;                     /* on the first process */
    struct bench_side *sides;                   /* of its ranks */
    struct weft_context *contexts[BENCH_OVERS]; /* of this process */
    struct bench_side mine[PEER];               /* its rank's; PEER has memory of its own */
    struct bench_side peer;
    size_t reps[CONTENDERS];
    struct bench_samples samples[CONTENDERS];
    /* of the turn under way */
    int now;
    size_t calls;
};

static int has(const struct contest *c, int who)
{
    return (int)(c->who >> who & 1u);
}

/* The transport of a contender that is weft's. */
static enum bench_over over_of(int who)
{
    return (enum bench_over)(who % BENCH_OVERS);
}

static int is_local(int who)
{
    return who == BOUND || (who < PEER && over_of(who) == BENCH_LOCAL);
}

/* ---- one rank's side ---- */

static void set_data(const struct contest *c, struct bench_side *side, int rank)
{
    side->send[0] = side->send[c->count - 1] = (float)(rank + c->turns % 100);
    side->recv[0] = side->recv[c->count - 1] = -1;
}

static int check_data(const struct contest *c, const struct bench_side *side)
{
    int ranks_sum = c->ranks * (c->ranks - 1) / 2;
    float expected = (float)(ranks_sum + c->ranks * (c->turns % 100));

    if (side->recv[0] == expected && side->recv[c->count - 1] == expected)
        return WEFT_OK;
    return weft_error_set(WEFT_ERR_COMPUTE, "wrong sum of %zu bytes: %g and %g, expected %g",
                          c->bytes, (double)side->recv[0], (double)side->recv[c->count - 1],
                          (double)expected);
}

/* ---- turns ---- */

static size_t warm_up(size_t calls)
{
    return calls / 10 + 1;
}

/* The work of one rank of two: adds its half, copies the other. */
static int bound_call(const struct contest *c, int rank)
{
    size_t half = c->count / 2;
    size_t mine = rank ? half : 0;
    size_t theirs = rank ? 0 : half;
    size_t adds = rank ? c->count - half : half;
    const struct bench_side *a = &c->sides[0];
    const struct bench_side *b = &c->sides[1];

    int status = weft_op_reduce(weft_op_builtin(WEFT_SUM), WEFT_F32, c->sides[rank].recv + mine,
                                a->send + mine, b->send + mine, adds);
    memcpy(c->sides[rank].recv + theirs, c->sides[!rank].recv + theirs,
           (c->count - adds) * sizeof(float));
    return status;
}

/* One allreduce of weft, by whoever's turn it is. */
static int execute(const struct contest *c, const struct bench_side *side,
                   struct weft_context *context)
{
    if (c->now < CALLS)
        return weft_run_execute(side->run);
    return weft_allreduce(context, side->send, side->recv, c->count, WEFT_F32,
                          weft_op_builtin(WEFT_SUM));
}

static int local_turn(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;
    struct bench_side *side = &c->sides[rank];
    int status = WEFT_OK;
    uint64_t start = 0;

    set_data(c, side, rank);
    size_t warm = warm_up(c->calls);
    bench_team_meet(team);
    for (size_t i = 0; i < warm + c->calls && status == WEFT_OK; i++) {
        if (i == warm) {
            bench_team_meet(team);
            start = ranks_now();
        }
        status = c->now == BOUND ? bound_call(c, rank) : execute(c, side, team->contexts[rank]);
    }
    side->us = (double)(ranks_now() - start) * 1e-3 / (double)c->calls;
    bench_team_meet(team);
    return status != WEFT_OK || c->now == BOUND ? status : check_data(c, side);
}

static int process_turn(struct contest *c, double *us)
{
    struct bench_side *side = c->now < PEER ? &c->mine[c->now] : &c->peer;
    size_t warm = warm_up(c->calls);
    int status = WEFT_OK;
    uint64_t start = 0;

    set_data(c, side, c->bench->rank);
    bench_mpi_meet();
    for (size_t i = 0; i < warm + c->calls && status == WEFT_OK; i++) {
        if (i == warm) {
            bench_mpi_meet();
            start = ranks_now();
        }
        if (c->now < PEER)
            status = execute(c, side, c->contexts[over_of(c->now)]);
        else
            bench_peer_run((enum bench_peer)(c->now - PEER));
    }
    *us = (double)(ranks_now() - start) * 1e-3 / (double)c->calls;
    return status == WEFT_OK ? check_data(c, side) : status;
}

/* One turn of a contender: microseconds a call, the same number on all processes. */
static int take_turn(struct contest *c, int who, size_t calls, double *us)
{
    int local = is_local(who);
    int status = WEFT_OK;

    c->now = who;
    c->calls = calls;
    c->turns++;
    *us = 0;
    if (!local) {
        status = process_turn(c, us);
    } else if (c->bench->rank == 0) {
        status = bench_team_run(&c->team, local_turn, c);
        for (int r = 0; r < c->ranks; r++)
            *us = fmax(*us, c->sides[r].us);
    }
    if (status == WEFT_OK && c->bench->world > 1)
        *us = bench_mpi_agree(*us, local);
    return status;
}

/* As many calls as fill a turn. */
static int calibrate(struct contest *c, int who)
{
    double us = 0;
    size_t calls = 1;

    for (;;) {
        int status = take_turn(c, who, calls, &us);
        if (status != WEFT_OK)
            return status;
        double fits = us > 0 ? c->target_us / us : 1e9;
        if (calls >= 20000 || fits < 2 * (double)calls)
            break;
        calls = fits > 8 * (double)calls ? calls * 8 : calls * 2;
    }
    c->reps[who] = calls;
    return WEFT_OK;
}

/* ---- one size ---- */

static int open_member(struct bench_team *team, int rank, void *user)
{
    struct contest *c = user;

    return bench_side_open(&c->sides[rank], team->contexts[rank], c->count,
                           c->bench->memory == BENCH_ARENA);
}

static int open_size(struct contest *c, size_t bytes)
{
    int status = WEFT_OK;

    c->bytes = bytes;
    c->count = bytes / sizeof(float);
    memset(c->samples, 0, sizeof c->samples);
    if (c->bench->rank == 0)
        status = bench_team_run(&c->team, open_member, c);
    if (status == WEFT_OK && c->bench->world > 1) {
        for (int who = 0; status == WEFT_OK && who < PEER; who++)
            if (has(c, who) && !is_local(who))
                status = bench_side_open(&c->mine[who], c->contexts[over_of(who)], c->count,
                                         (who < PRIVATE || who >= CALLS) &&
                                             c->bench->memory == BENCH_ARENA);
        if (status == WEFT_OK)
            status = bench_side_open(&c->peer, NULL, c->count, 0);
        for (int p = 0; p < BENCH_PEERS; p++)
            if (status == WEFT_OK && has(c, PEER + p) &&
                !bench_peer_open((enum bench_peer)p, c->peer.send, c->peer.recv, c->count))
                c->who &= ~(1u << (PEER + p));
    }
    return status;
}

static void close_size(struct contest *c)
{
    for (int p = 0; p < BENCH_PEERS; p++)
        if (c->bench->world > 1 && has(c, PEER + p))
            bench_peer_close((enum bench_peer)p);
    for (int r = 0; c->bench->rank == 0 && r < c->ranks; r++)
        bench_side_close(&c->sides[r]);
    for (int who = 0; who < PEER; who++)
        bench_side_close(&c->mine[who]);
    bench_side_close(&c->peer);
}

static double limit_of(const struct contest *c)
{
    const struct bench *bench = c->bench;

    if (c->ranks > bench->cores) {
        int on_a_core = (c->ranks + bench->cores - 1) / bench->cores;
        return on_a_core * ceil(log2(c->ranks)) * bench->yield_ns * 1e-3;
    }
    return has(c, BOUND) ? bench_median(&c->samples[BOUND]) + bench->handover_ns * 1e-3 : NAN;
}

/* A row beside something of weft's own, which may take so much less. */
static void print_beside(struct contest *c, const struct bench_row *row, const char *peer, int who,
                         double allowed)
{
    struct bench_row beside = *row;

    if (!has(c, who))
        return;
    beside.peer = peer;
    beside.peers = &c->samples[who];
    beside.limit = allowed * bench_median(beside.peers);
    bench_print(c->bench, &beside);
}

static void print_contender(struct contest *c, int who, const char *size)
{
    char what[64];
    int calls = who >= CALLS, private = who >= PRIVATE && !calls;
    struct bench_row row = {.what = what,
                            .unit = "us",
                            .transport = bench_over_name(over_of(who)),
                            .weft = &c->samples[who],
                            .limit = limit_of(c),
                            .bytes = c->bytes};
    int peers = calls;

    snprintf(what, sizeof what, "P=%d %s%s", c->ranks, size, private ? ", private memory" : "");
    /* A call does what a plan does, and finds it: a tenth more is allowed for that. */
    if (calls)
        print_beside(c, &row, "plan", who - CALLS + PLAN, 1.1);
    if (!is_local(who))
        print_beside(c, &row, "weft, local ranks", calls ? CALLS : PLAN, private ? 2 : 1.3);
    for (int p = 0; p < BENCH_PEERS; p++) {
        if (has(c, PEER + p)) {
            row.peer = bench_peer_name((enum bench_peer)p);
            row.peers = &c->samples[PEER + p];
            bench_print(c->bench, &row);
            peers++;
        }
    }
    if (!peers)
        bench_print(c->bench, &row);
}

static void print_size(struct contest *c)
{
    char size[16];

    if (c->bench->rank != 0)
        return;
    bench_size_text(c->bytes, size);
    for (int who = has(c, CALLS) ? CALLS : PLAN; who < PEER; who++)
        if (has(c, who))
            print_contender(c, who, size);
}

static int contest_size(struct contest *c, size_t bytes)
{
    double us;
    int status = open_size(c, bytes);

    for (int who = 0; status == WEFT_OK && who < CONTENDERS; who++)
        status = has(c, who) ? calibrate(c, who) : WEFT_OK;
    for (int round = 0; status == WEFT_OK && round < c->bench->rounds; round++) {
        for (int who = 0; status == WEFT_OK && who < CONTENDERS; who++) {
            if (has(c, who)) {
                status = take_turn(c, who, c->reps[who], &us);
                bench_sample(&c->samples[who], us);
            }
        }
    }
    if (status == WEFT_OK)
        print_size(c);
    return status;
}

int bench_contest(struct bench *bench, int ranks, const size_t *sizes, size_t size_count,
                  unsigned peers)
{
    struct contest c = {.bench = bench, .ranks = ranks, .target_us = 4000, .who = 1u << PLAN};
    struct weft_context_config config;
    int status = WEFT_OK;

    weft_context_config_init(&config);
    int calls = (peers & BENCH_CALLS) != 0;
    peers &= ~BENCH_CALLS;
    c.who |= calls ? 1u << CALLS : ranks == 2 ? 1u << BOUND : 0;
    c.who |= bench->world > 1 ? peers << PEER : 0;
    for (int over = BENCH_SHARED; over <= (int)bench_over_last(bench); over++)
        c.who |= 1u << (PLAN + over) | (calls                          ? 1u << (CALLS + over)
                                        : bench->memory == BENCH_ARENA ? 1u << (PRIVATE + over)
                                                                       : 0);
    c.sides = weft_memory_alloc((size_t)ranks, sizeof *c.sides);
    if (!c.sides)
        return bench_fail(bench, "sides");
    if (bench->rank == 0)
        status = bench_team_open(&c.team, ranks, &config);
    for (int over = BENCH_SHARED; status == WEFT_OK && over <= (int)bench_over_last(bench);
         over++) {
        c.contexts[over] = bench_context(bench, (enum bench_over)over, &config);
        status = c.contexts[over] ? WEFT_OK : WEFT_ERR_TRANSPORT;
    }
    for (size_t i = 0; status == WEFT_OK && i < size_count; i++) {
        status = contest_size(&c, sizes[i]);
        if (status == WEFT_OK)
            close_size(&c);
    }
    int failed = status != WEFT_OK ? bench_fail(bench, "allreduce") : 0;
    if (!failed) {
        for (int over = BENCH_SHARED; over < BENCH_OVERS; over++)
            weft_context_destroy(c.contexts[over]);
        if (bench->rank == 0)
            bench_team_close(&c.team);
        weft_memory_free(c.sides);
    }
    return failed;
}
