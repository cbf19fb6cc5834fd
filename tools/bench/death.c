/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench death: how soon the others notice that a process is gone. Processes of this machine
 * start a barrier; one of them does not, and is killed. The time is from the kill until the slowest
 * of the others has its error, in a call that waits or by its helper while it sleeps; and until
 * they have a context without the dead one.
 *
 *   parent     ranks 0 .. P-2                       rank P-1
 *   fork ----> context, start a barrier             context
 *         <--- ready                           <--- ready
 *   kill ----------------------------------------->
 *              error: stamp; shrink: stamp
 *         <--- stamps
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/shared.h>

/* What a rank tells: first that it is ready, then when it knew. */
struct told {
    int ready;
    uint64_t error, shrunk;
};

struct death {
    struct bench *bench;
    int ranks;
    enum weft_progress progress;
    char name[64]; /* of the meeting */
    pid_t *processes;
    int *from; /* where each is heard */
    /* what came out */
    struct bench_samples error, shrunk;
};

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* ---- one rank ---- */

static void ended(void *user, struct weft_run *run, int status)
{
    _Atomic uint64_t *stamp = user;

    (void)run;
    (void)status;
    atomic_store(stamp, ranks_now());
}

static int tell(int to, const struct told *told)
{
    return write(to, told, sizeof *told) == (ssize_t)sizeof *told;
}

/* Starts a barrier that will not end, and waits for its error. */
static int survive(const struct death *death, struct weft_context *context, int to)
{
    _Atomic uint64_t stamp = 0;
    struct told told = {.ready = 1};
    struct weft_context *left = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    struct weft_template_params params;
    struct weft_run_config config;

    weft_template_params_init(&params);
    weft_run_config_init(&config);
    config.ended = ended;
    config.user = (void *)&stamp;
    int status = weft_template_create_plan(&plan, context, "barrier", &params);
    if (status == WEFT_OK)
        status = weft_run_create(&run, context, plan, &config);
    if (status == WEFT_OK)
        status = weft_run_start(run);
    if (status != WEFT_OK || !tell(to, &told))
        return 0;
    while (death->progress == WEFT_PROGRESS_HELPER && atomic_load(&stamp) == 0)
        pause_ms(1);
    if (weft_run_wait(run, WEFT_NEVER) != WEFT_ERR_PEER)
        return 0;
    told.error = atomic_load(&stamp);
    if (weft_context_shrink(context, &left) != WEFT_OK || weft_barrier(left) != WEFT_OK)
        return 0;
    told.shrunk = ranks_now();
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_context_destroy(left);
    return tell(to, &told) && weft_context_destroy(context) == WEFT_OK;
}

static int rank_main(const struct death *death, int rank, int to)
{
    struct weft_context *context = NULL;
    struct weft_context_config config;
    struct weft_shared_config shared;
    int ok = 0;

    weft_context_config_init(&config);
    config.progress = death->progress;
    weft_shared_config_init(&shared);
    shared.name = death->name;
    if (weft_context_create_shared(&context, rank, death->ranks, &config, &shared) == WEFT_OK) {
        if (rank < death->ranks - 1)
            ok = survive(death, context, to);
        else if (tell(to, &(struct told){.ready = 1}))
            for (;;)
                pause();
    }
    if (!ok)
        fprintf(stderr, "rank %d: %s\n", rank, weft_error_text());
    return ok ? 0 : 1;
}

/* ---- a round ---- */

static int start(struct death *death, int rank)
{
    int ends[2];

    if (pipe(ends) != 0)
        return 0;
    fflush(NULL);
    death->processes[rank] = fork();
    if (death->processes[rank] == 0) {
        close(ends[0]);
        _exit(rank_main(death, rank, ends[1]));
    }
    close(ends[1]);
    death->from[rank] = ends[0];
    return death->processes[rank] > 0;
}

static int hear(const struct death *death, int rank, struct told *told)
{
    ssize_t got;

    do
        got = read(death->from[rank], told, sizeof *told);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof *told;
}

/* How a process has ended; once more: 0. */
static int reap(pid_t process)
{
    int status = 0;

    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/* Ends what is left of a round, which is nothing when all went well. */
static int end(struct death *death, int started)
{
    int good = 1;

    for (int r = 0; r < started; r++) {
        int status;
        if (!good)
            kill(death->processes[r], SIGKILL);
        close(death->from[r]);
        status = reap(death->processes[r]);
        good = good && (r == death->ranks - 1 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    }
    return good;
}

static int one_round(struct death *death, int round)
{
    uint64_t killed = 0, error = 0, shrunk = 0;
    struct told told;
    int started = 0, good = 1;

    snprintf(death->name, sizeof death->name, "weft bench death %ld %d %d", (long)getpid(),
             (int)death->progress, round);
    while (good && started < death->ranks)
        good = start(death, started++);
    for (int r = 0; good && r < death->ranks; r++)
        good = hear(death, r, &told);
    if (good) {
        pause_ms(20); /* until all sleep */
        killed = ranks_now();
        kill(death->processes[death->ranks - 1], SIGKILL);
        reap(death->processes[death->ranks - 1]); /* as launchers do, so that others hear how */
    }
    for (int r = 0; good && r < death->ranks - 1; r++) {
        good = hear(death, r, &told);
        error = told.error > error ? told.error : error;
        shrunk = told.shrunk > shrunk ? told.shrunk : shrunk;
    }
    for (int r = 0; !good && r < started; r++)
        kill(death->processes[r], SIGKILL);
    if (!end(death, started) || !good)
        return 0;
    bench_sample(&death->error, (double)(error - killed) * 1e-3);
    bench_sample(&death->shrunk, (double)(shrunk - killed) * 1e-3);
    return 1;
}

static void print(const struct death *death, const char *what, const struct bench_samples *samples)
{
    char text[64];

    snprintf(text, sizeof text, "P=%d %s, %s", death->ranks, what,
             death->progress == WEFT_PROGRESS_HELPER ? "helper" : "waits");
    struct bench_row row = {.what = text,
                            .unit = "us",
                            .transport = "shared",
                            .weft = samples,
                            .limit = 100000,
                            .bytes = SIZE_MAX};
    bench_print(death->bench, &row);
}

static int measure(struct bench *bench, int ranks)
{
    for (int helper = 0; helper < 2; helper++) {
        struct death death = {.bench = bench,
                              .ranks = ranks,
                              .progress = helper ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER};
        int good = 1;

        death.processes = calloc((size_t)ranks, sizeof *death.processes);
        death.from = calloc((size_t)ranks, sizeof *death.from);
        for (int round = 0; good && round < bench->rounds; round++)
            good = death.processes && death.from && one_round(&death, round);
        free(death.processes);
        free(death.from);
        if (!good) {
            weft_error_set(WEFT_ERR_SYSTEM, "a round of %d processes did not end as it should",
                           ranks);
            return bench_fail(bench, "death");
        }
        print(&death, "kill to error", &death.error);
        print(&death, "kill to shrunk context", &death.shrunk);
    }
    return 0;
}

int bench_death(struct bench *bench)
{
    static const int all[] = {2, 4, 8};
    int one[] = {bench->ranks};
    const int *ranks = bench->ranks ? one : all;
    size_t count = bench->ranks ? 1 : sizeof all / sizeof all[0];
    int status = 0;

    if (bench->ranks == 1)
        return cli_usage("bench", "death: 1 rank; expected at least 2");
    if (bench->world > 1)
        return cli_usage("bench", "death: it starts its own processes; expected no mpiexec");
    bench_machine(bench);
    bench_note(bench,
               "processes of this machine, one is killed; limit: 100 ms; hand-over between cores "
               "%.0f ns, yield on one %.0f ns",
               bench->handover_ns, bench->yield_ns);
    for (size_t i = 0; i < count && !status; i++)
        status = measure(bench, ranks[i]);
    return status;
}
