/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench idle: the processor time that waiting for an event takes, and the delay from the event
 * to the send that it releases. Two ranks:
 *
 *   rank 0:  event (application, or the signal) -> stamp -> send
 *   rank 1:  event (application) -> signal to rank 0;   receive
 *
 * The stamp is a compute node that reads the clock when the engine comes to it. As the peer of the
 * processor time stands a blocking MPI_Recv, as the peer of the delays a plain semaphore: a
 * sleeping thread that another one wakes.
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <string.h>

enum { CHANNEL = 1, SHORT_MS = 20, LONG_MS = 1000 };

/* Who releases rank 0's send, and what its application does meanwhile. */
enum way { EVENT, SIGNAL_IDLE, SIGNAL_BUSY, WAYS };

struct idle {
    struct bench *bench;
    enum bench_over over;
    int local; /* over local ranks */
    enum weft_progress progress;
    struct bench_team team;
    struct weft_context *context;
    struct side {
        const struct weft_op *stamp;
        struct weft_plan *plan;
        struct weft_run *run;
        weft_node_t event;
        uint64_t stamped;
        uint64_t fired;
    } sides[2];
    /* of the turn under way */
    enum way way;
    int wait_ms;
};

static int stamp(struct weft_call *call)
{
    *(uint64_t *)call->user = ranks_now();
    return WEFT_OK;
}

/* ---- one rank ---- */

static int build(struct side *side, int rank, struct weft_schedule **made)
{
    struct weft_op_config config;
    int status = weft_schedule_create(made, rank, 2);

    if (status != WEFT_OK)
        return status;
    weft_op_config_init(&config);
    config.name = "stamp";
    config.compute = stamp;
    config.user = &side->stamped;
    status = weft_op_create((struct weft_op **)&side->stamp, &config);
    if (status != WEFT_OK)
        return status;
    struct weft_schedule *s = *made;
    weft_slot_t token = weft_schedule_add_slot(s, "token", WEFT_U8, 1, WEFT_SLOT_SCRATCH);
    struct weft_region region = weft_region_at(token, 0, 1);
    struct weft_compute_argument written = {region, WEFT_WRITE};
    weft_schedule_set_name(s, "idle");
    side->event = weft_schedule_add_event(s, rank == 0 ? CHANNEL : WEFT_CHANNEL_NONE);
    if (rank == 0) {
        weft_node_t stamped = weft_schedule_add_compute(s, side->stamp, &written, 1, 0);
        weft_schedule_add_order(s, side->event, stamped);
        weft_schedule_add_order(s, stamped, weft_schedule_add_send(s, region, 1, 0));
    } else {
        weft_schedule_add_order(s, side->event, weft_schedule_add_signal(s, 0, CHANNEL));
        weft_schedule_add_recv(s, region, 0, 0);
    }
    return weft_schedule_status(s);
}

static int open_side(struct side *side, struct weft_context *context)
{
    struct weft_schedule *schedule = NULL;
    int status = build(side, weft_context_rank(context), &schedule);

    if (status == WEFT_OK)
        status = weft_schedule_commit(schedule, &side->plan);
    weft_schedule_destroy(schedule);
    return status == WEFT_OK ? weft_run_create(&side->run, context, side->plan, NULL) : status;
}

static void close_side(struct side *side)
{
    weft_run_destroy(side->run);
    weft_plan_destroy(side->plan);
    weft_op_destroy(side->stamp);
    memset(side, 0, sizeof *side);
}

/* Fires the event of a side after some milliseconds. */
struct trigger {
    struct side *side;
    int ms;
};

static void *trigger_main(void *user)
{
    struct trigger *trigger = user;

    bench_sleep_ms(trigger->ms);
    trigger->side->fired = ranks_now();
    weft_run_fire(trigger->side->run, trigger->side->event);
    return NULL;
}

static void busy_ms(int ms)
{
    uint64_t end = ranks_now() + (uint64_t)ms * 1000000u;

    while (ranks_now() < end) {
    }
}

/* Rank 0: starts, and waits as its progress mode does. */
static int wait_for_event(struct idle *idle, struct side *side)
{
    struct trigger trigger = {side, idle->wait_ms};
    int fires = idle->way == EVENT;
    pthread_t thread;
    int status = weft_run_start(side->run);

    if (status != WEFT_OK)
        return status;
    if (idle->progress == WEFT_PROGRESS_CALLER) {
        if (fires && pthread_create(&thread, NULL, trigger_main, &trigger) != 0)
            return weft_error_set(WEFT_ERR_SYSTEM, "no thread to fire the event");
        status = weft_run_wait(side->run, WEFT_NEVER);
        if (fires)
            pthread_join(thread, NULL);
        return status;
    }
    if (fires) {
        trigger_main(&trigger);
        bench_sleep_ms(5);
    } else if (idle->way == SIGNAL_BUSY) {
        busy_ms(2 * idle->wait_ms);
    } else {
        bench_sleep_ms(idle->wait_ms);
    }
    return weft_run_wait(side->run, WEFT_NEVER);
}

static int turn(struct idle *idle, struct side *side, int rank)
{
    if (rank == 0)
        return wait_for_event(idle, side);
    int status = weft_run_start(side->run);
    if (status == WEFT_OK) {
        /* if rank 0's own application fires, this signal must come after it */
        struct trigger trigger = {side, idle->wait_ms + (idle->way == EVENT ? 20 : 0)};
        trigger_main(&trigger);
        status = weft_run_wait(side->run, WEFT_NEVER);
    }
    return status;
}

static int member_turn(struct bench_team *team, int rank, void *user)
{
    struct idle *idle = user;

    (void)team;
    return turn(idle, &idle->sides[rank], rank);
}

static int member_open(struct bench_team *team, int rank, void *user)
{
    struct idle *idle = user;

    return open_side(&idle->sides[rank], team->contexts[rank]);
}

/* ---- turns ---- */

/* The delay in microseconds and the share of one processor, as rank 0's process saw it. */
static int take_turn(struct idle *idle, enum way way, int ms, double *delay_us, double *cpu_percent)
{
    const struct bench *bench = idle->bench;
    int status = WEFT_OK;

    idle->way = way;
    idle->wait_ms = ms;
    if (!idle->local)
        bench_mpi_meet();
    double cpu = bench_cpu_seconds();
    uint64_t start = ranks_now();
    if (!idle->local)
        status = turn(idle, &idle->sides[0], bench->rank);
    else if (bench->rank == 0)
        status = bench_team_run(&idle->team, member_turn, idle);
    *cpu_percent = 100 * (bench_cpu_seconds() - cpu) / ((double)(ranks_now() - start) * 1e-9);
    if (status != WEFT_OK)
        return status;
    double stamped = (double)idle->sides[0].stamped;
    double fired = (double)idle->sides[idle->local && way != EVENT ? 1 : 0].fired;
    if (bench->world > 1) {
        int of = way == EVENT || idle->local ? 0 : 1; /* whose process knows when it was fired */
        stamped = bench_mpi_agree(bench->rank == 0 ? stamped : 0, 1);
        fired = bench_mpi_agree(bench->rank == of ? fired : 0, 1);
    }
    *delay_us = (stamped - fired) * 1e-3;
    return WEFT_OK;
}

/* ---- peers ---- */

struct waker {
    sem_t sem;
    int rounds;
    struct bench_samples *samples;
    _Atomic uint64_t posted;
};

static void *sleeper_main(void *user)
{
    struct waker *waker = user;

    for (int i = 0; i < waker->rounds; i++) {
        while (sem_wait(&waker->sem) != 0) {
        }
        bench_sample(waker->samples, (double)(ranks_now() - waker->posted) * 1e-3);
    }
    return NULL;
}

/* How long a plain wake-up takes here. */
static void measure_semaphore(struct bench_samples *samples, int rounds)
{
    struct waker waker = {.rounds = rounds, .samples = samples};
    pthread_t thread;

    sem_init(&waker.sem, 0, 0);
    if (pthread_create(&thread, NULL, sleeper_main, &waker) == 0) {
        for (int i = 0; i < rounds; i++) {
            bench_sleep_ms(SHORT_MS);
            waker.posted = ranks_now();
            sem_post(&waker.sem);
        }
        pthread_join(thread, NULL);
    }
    sem_destroy(&waker.sem);
}

static void measure_mpi_recv(const struct bench *bench, struct bench_samples *samples)
{
    bench_mpi_meet();
    if (bench->rank == 1) {
        bench_sleep_ms(LONG_MS);
        bench_mpi_send(0);
    } else {
        double cpu = bench_cpu_seconds();
        uint64_t start = ranks_now();
        bench_mpi_recv(1);
        bench_sample(samples,
                     100 * (bench_cpu_seconds() - cpu) / ((double)(ranks_now() - start) * 1e-9));
    }
    bench_mpi_agree(0, 1);
}

/* ---- a transport and a way to make progress ---- */

struct peers {
    struct bench_samples semaphore;
    struct bench_samples recv;
};

static void print(struct idle *idle, const char *what, const char *unit,
                  const struct bench_samples *weft, const char *peer,
                  const struct bench_samples *peers, double limit)
{
    char text[64];

    snprintf(text, sizeof text, "%s, %s", what,
             idle->progress == WEFT_PROGRESS_HELPER ? "helper" : "caller");
    struct bench_row row = {.what = text,
                            .unit = unit,
                            .transport = bench_over_name(idle->over),
                            .peer = peers->count ? peer : NULL,
                            .weft = weft,
                            .peers = peers,
                            .limit = limit,
                            .bytes = SIZE_MAX};
    bench_print(idle->bench, &row);
}

static int measure(struct idle *idle, struct peers *peers)
{
    static const char *const names[WAYS] = {"event to send", "signal to send",
                                            "signal to send, busy"};
    struct bench_samples cpu = {0};
    struct bench_samples delay[WAYS];
    int rounds = idle->bench->rounds;
    int ways = idle->progress == WEFT_PROGRESS_HELPER ? WAYS : SIGNAL_BUSY;
    double us, percent;
    int status = WEFT_OK;

    memset(delay, 0, sizeof delay);
    for (int i = 0; i < rounds && i < 3 && status == WEFT_OK; i++) {
        status = take_turn(idle, EVENT, LONG_MS, &us, &percent);
        bench_sample(&cpu, percent);
        if (idle->bench->world > 1 && idle->local && idle->progress == WEFT_PROGRESS_CALLER)
            measure_mpi_recv(idle->bench, &peers->recv);
    }
    for (int i = 0; i < rounds && status == WEFT_OK; i++) {
        for (int way = 0; way < ways && status == WEFT_OK; way++) {
            status = take_turn(idle, (enum way)way, SHORT_MS, &us, &percent);
            bench_sample(&delay[way], us);
        }
    }
    if (status != WEFT_OK)
        return bench_fail(idle->bench, "event");
    print(idle, "waiting 1 s", "% CPU", &cpu, "MPI_Recv", &peers->recv, 1);
    for (int way = 0; way < ways; way++) {
        print(idle, names[way], "us", &delay[way], "sem_post", &peers->semaphore,
              bench_median(&peers->semaphore));
    }
    return 0;
}

static int contend(struct idle *idle, struct peers *peers)
{
    struct weft_context_config config;
    int status = WEFT_OK;

    weft_context_config_init(&config);
    config.progress = idle->progress;
    if (!idle->local) {
        idle->context = bench_context(idle->bench, idle->over, &config);
        status = idle->context ? open_side(&idle->sides[0], idle->context) : WEFT_ERR_TRANSPORT;
    } else if (idle->bench->rank == 0) {
        status = bench_team_open(&idle->team, 2, &config);
        status = status == WEFT_OK ? bench_team_run(&idle->team, member_open, idle) : status;
    }
    if (status != WEFT_OK)
        return bench_fail(idle->bench, "contexts");
    status = measure(idle, peers);
    close_side(&idle->sides[0]);
    close_side(&idle->sides[1]);
    weft_context_destroy(idle->context);
    idle->context = NULL;
    if (idle->local && idle->bench->rank == 0)
        bench_team_close(&idle->team);
    return status;
}

int bench_idle(struct bench *bench)
{
    struct idle idle = {.bench = bench};
    struct peers peers;

    if (bench->world == 1 && !bench->mpi) {
        int status = bench_respawn(bench, 2);
        if (status != CLI_NO_MPI)
            return status;
        bench_note(bench, "no mpiexec here: local ranks alone");
    }
    if (bench->world > 2)
        return cli_usage("bench", "idle: %d ranks; expected mpiexec -n 2", bench->world);
    memset(&peers, 0, sizeof peers);
    if (bench->rank == 0) {
        bench_machine(bench);
        measure_semaphore(&peers.semaphore, bench->rounds);
    }
    if (bench->world > 1)
        bench_mpi_agree(0, 1);
    bench_note(bench, "2 ranks; hand-over between cores %.0f ns, yield on one %.0f ns",
               bench->handover_ns, bench->yield_ns);
    for (int over = BENCH_LOCAL; over <= (int)bench_over_last(bench); over++) {
        for (int helper = 0; helper < 2; helper++) {
            idle.over = (enum bench_over)over;
            idle.local = over == BENCH_LOCAL;
            idle.progress = helper ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
            int status = contend(&idle, &peers);
            if (status)
                return status;
        }
    }
    return 0;
}
