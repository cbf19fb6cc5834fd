/* SPDX-License-Identifier: BSD-3-Clause */
/* One cell of weft bench choice: what each rank holds, turns, and what they must have computed. */
#include "tools/bench/choice.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <sched.h>
#include <string.h>

/* ---- one rank's side ---- */

static size_t in_count(const struct choice *c)
{
    return c->template->shape & CHOICE_BLOCKS_IN ? c->count * (size_t)c->ranks : c->count;
}

static size_t out_count(const struct choice *c)
{
    return c->template->shape & CHOICE_BLOCKS_OUT ? c->count * (size_t)c->ranks : c->count;
}

/* Whether a rank has an input, an output. */
static int has_in(const struct choice *c, int rank)
{
    return c->template->in && (rank == 0 || !(c->template->shape & CHOICE_ROOT_IN));
}

static int has_out(const struct choice *c, int rank)
{
    int not = rank == 0 ? CHOICE_FIRST_OUT_NOT : CHOICE_ROOT_OUT;

    return c->template->out && !(c->template->shape & not );
}

static float *memory_of(struct choice_side *side, size_t count)
{
    float *memory = side->arena ? weft_context_memory_alloc(side->arena, count, sizeof(float))
                                : weft_memory_alloc(count, sizeof(float));

    for (size_t i = 0; memory && i < count; i++)
        memory[i] = 0; /* touched before it is timed */
    return memory;
}

static int open_run(const struct choice *c, struct choice_side *side, struct weft_context *context,
                    int algorithm)
{
    int rank = weft_context_rank(context);
    struct weft_run **run = &side->runs[algorithm];
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.count = c->count;
    params.algo = c->who[algorithm].name;
    int status = weft_template_create_run(run, context, c->template->name, &params);
    if (status == WEFT_OK && has_in(c, rank))
        status = weft_run_bind_input_name(*run, c->template->in, side->send, in_count(c), WEFT_F32);
    if (status == WEFT_OK && has_out(c, rank))
        status = weft_run_bind_name(*run, c->template->out, side->recv, out_count(c), WEFT_F32);
    return status;
}

/* Memory, and a run of each algorithm; without a context the memory alone. */
static int open_side(const struct choice *c, struct choice_side *side, struct weft_context *context)
{
    int status = WEFT_OK;

    side->arena = c->bench->memory == BENCH_ARENA ? context : NULL;
    side->send = memory_of(side, in_count(c));
    side->recv = memory_of(side, out_count(c));
    if (!side->send || !side->recv)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu elements",
                              in_count(c) + out_count(c));
    for (int a = 0; context && a < c->algorithms && status == WEFT_OK; a++)
        status = open_run(c, side, context, a);
    return status;
}

static void close_side(struct choice_side *side)
{
    for (int a = 0; a < CHOICE_ALGORITHMS; a++)
        weft_run_destroy(side->runs[a]);
    if (side->arena) {
        weft_context_memory_free(side->arena, side->send);
        weft_context_memory_free(side->arena, side->recv);
    } else {
        weft_memory_free(side->send);
        weft_memory_free(side->recv);
    }
    memset(side, 0, sizeof *side);
}

static void fill(float *vector, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        vector[i] = value;
}

/* What a rank contributes: its number, all over. */
static void set_input(const struct choice *c, struct choice_side *side, int rank)
{
    float number = (float)(rank + 1);

    if (has_in(c, rank))
        fill(side->send, in_count(c), number);
    else if (c->template->gives == CHOICE_FIRST && rank == 0)
        fill(side->recv, out_count(c), number);
}

static void set_data(const struct choice *c, struct choice_side *side, int rank)
{
    side->recv[0] = side->recv[out_count(c) - 1] = -1;
    set_input(c, side, rank);
}

static float expected(const struct choice *c, int rank, int at_end)
{
    float ranks = (float)c->ranks, number = (float)(rank + 1);

    switch (c->template->gives) {
    case CHOICE_EVERYBODY:
        return at_end ? ranks : 1;
    case CHOICE_SUM:
        return ranks * (ranks + 1) / 2;
    case CHOICE_SUM_UP_TO:
        return number * (number + 1) / 2;
    case CHOICE_SUM_BEFORE:
        return number * (number - 1) / 2;
    default:
        return 1;
    }
}

static int check_data(const struct choice *c, const struct choice_side *side, int rank)
{
    const float *recv = side->recv;
    size_t last = out_count(c) - 1;

    if (c->template->gives == CHOICE_NOTHING || !has_out(c, rank) ||
        (recv[0] == expected(c, rank, 0) && recv[last] == expected(c, rank, 1)))
        return WEFT_OK;
    return weft_error_set(
        WEFT_ERR_COMPUTE, "%s of %zu elements by %s: %g and %g on rank %d, expected %g and %g",
        c->template->name, c->count, c->who[c->now].name, (double)recv[0], (double)recv[last], rank,
        (double)expected(c, rank, 0), (double)expected(c, rank, 1));
}

/* ---- turns ---- */

/* In memory that the processes share: spins, then yields; where there is none, MPI's barrier. */
static void meet_processes(const struct choice *c)
{
    struct choice_meeting *meeting = c->meeting;
    int spins = c->ranks <= c->bench->cores ? 2000 : 0;

    if (!meeting) {
        bench_mpi_meet();
        return;
    }
    unsigned round = atomic_load_explicit(&meeting->round, memory_order_acquire);
    /* the last one opens the next round; its release pairs with the acquire of the others */
    if (atomic_fetch_add_explicit(&meeting->come, 1, memory_order_acq_rel) == c->ranks - 1) {
        atomic_store_explicit(&meeting->come, 0, memory_order_relaxed);
        atomic_store_explicit(&meeting->round, round + 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&meeting->round, memory_order_acquire) == round; i++)
        if (i >= spins)
            sched_yield();
}

static int is_local(const struct choice *c, int who)
{
    return c->over == BENCH_LOCAL && !c->who[who].mpi;
}

static void meet(struct choice *c)
{
    if (is_local(c, c->now))
        bench_team_meet(&c->team);
    else
        meet_processes(c);
}

static int call(const struct choice *c, struct choice_side *side)
{
    const struct choice_contender *who = &c->who[c->now];

    if (!who->mpi)
        return weft_run_execute(side->runs[c->now]);
    who->mpi(side->send, side->recv, (int)c->count);
    return WEFT_OK;
}

/* Calls that nobody counts: whoever came before has left other data in the caches. */
static size_t warm_up(const struct choice *c)
{
    return c->calls / 10 + 2;
}

/* Calls in a row. */
static int stream(struct choice *c, struct choice_side *side)
{
    size_t warm = warm_up(c);
    uint64_t start = 0;
    int status = WEFT_OK;

    for (size_t i = 0; i < warm + c->calls && status == WEFT_OK; i++) {
        if (i == warm) {
            meet(c);
            start = ranks_now();
        }
        status = call(c, side);
    }
    side->us = (double)(ranks_now() - start) * 1e-3 / (double)c->calls;
    return status;
}

/* Calls that each begin together, with contributions just written. */
static int singles(struct choice *c, struct choice_side *side, int rank)
{
    size_t warm = warm_up(c);
    uint64_t spent = 0;
    int status = WEFT_OK;

    for (size_t i = 0; i < warm + c->calls && status == WEFT_OK; i++) {
        set_input(c, side, rank);
        meet(c);
        uint64_t start = ranks_now();
        status = call(c, side);
        spent += i >= warm ? ranks_now() - start : 0;
    }
    side->us = (double)spent * 1e-3 / (double)c->calls;
    return status;
}

static int turn(struct choice *c, struct choice_side *side, int rank)
{
    set_data(c, side, rank);
    meet(c);
    int status = c->mode == CHOICE_STREAM ? stream(c, side) : singles(c, side, rank);
    meet(c);
    return status == WEFT_OK ? check_data(c, side, rank) : status;
}

static int local_turn(struct bench_team *team, int rank, void *user)
{
    struct choice *c = user;

    (void)team;
    return turn(c, &c->sides[rank], rank);
}

/* Microseconds a call, the same number on all processes. */
static int take_turn(struct choice *c, int who, size_t calls, double *us)
{
    int status = WEFT_OK;

    c->now = who;
    c->calls = calls;
    *us = 0;
    if (!is_local(c, who)) {
        struct choice_side *side = c->who[who].mpi ? &c->peer : &c->sides[0];
        status = turn(c, side, c->bench->rank);
        *us = side->us;
    } else if (c->bench->rank == 0) {
        status = bench_team_run(&c->team, local_turn, c);
        for (int r = 0; r < c->ranks; r++)
            *us = fmax(*us, c->sides[r].us);
    }
    if (status == WEFT_OK && c->bench->world > 1)
        *us = bench_mpi_agree(*us, is_local(c, who));
    return status;
}

/* As many calls as fill a turn. */
static int calibrate(struct choice *c, int who)
{
    const double target_us = 3000;
    double us = 0;
    size_t calls = 1;

    for (;;) {
        int status = take_turn(c, who, calls, &us);
        if (status != WEFT_OK)
            return status;
        double fits = us > 0 ? target_us / us : 1e9;
        if (calls >= 8192 || fits < 2 * (double)calls)
            break;
        calls = fits > 8 * (double)calls ? calls * 8 : calls * 2;
    }
    c->who[who].reps[c->mode] = calls;
    return WEFT_OK;
}

/* Each is the first of as many rounds as the others. */
static int take_round(struct choice *c, int round)
{
    double us;

    for (int i = 0; i < c->contenders; i++) {
        int who = (i + round) % c->contenders;
        if (c->who[who].same >= 0)
            continue;
        int status = take_turn(c, who, c->who[who].reps[c->mode], &us);
        if (status != WEFT_OK)
            return status;
        bench_sample(&c->who[who].samples[c->mode], us);
    }
    return WEFT_OK;
}

int choice_measure(struct choice *c)
{
    int status = WEFT_OK;

    for (c->mode = 0; c->mode < CHOICE_MODES && status == WEFT_OK; c->mode++) {
        for (int who = 0; status == WEFT_OK && who < c->contenders; who++)
            status = c->who[who].same < 0 ? calibrate(c, who) : WEFT_OK;
        for (int round = 0; status == WEFT_OK && round < c->bench->rounds; round++)
            status = take_round(c, round);
        for (int who = 0; who < c->contenders; who++)
            if (c->who[who].same >= 0)
                c->who[who].samples[c->mode] = c->who[c->who[who].same].samples[c->mode];
    }
    return status;
}

/* ---- opening ---- */

static int open_member(struct bench_team *team, int rank, void *user)
{
    struct choice *c = user;

    return open_side(c, &c->sides[rank], team->contexts[rank]);
}

size_t choice_bytes(const struct choice *c)
{
    return (in_count(c) + out_count(c)) * sizeof(float);
}

int choice_open(struct choice *c)
{
    int status = WEFT_OK;

    if (c->over != BENCH_LOCAL)
        status = open_side(c, &c->sides[0], c->contexts[c->over]);
    else if (c->bench->rank == 0)
        status = bench_team_run(&c->team, open_member, c);
    return status == WEFT_OK && c->bench->world > 1 ? open_side(c, &c->peer, NULL) : status;
}

void choice_close(struct choice *c)
{
    for (int r = 0; r < c->ranks; r++)
        close_side(&c->sides[r]);
    close_side(&c->peer);
}
