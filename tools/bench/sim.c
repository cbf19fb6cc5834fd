/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft bench sim: nodes a second of weft sim, beside LogGOPSim on the same schedules.
 *
 * weft builds, makes compact and simulates (on as many threads as there are cores, which the
 * building uses); LogGOPSim reads the schedule from a file that its txt2bin has made of what `weft
 * dump --format goal` writes, and simulates, timed as a process. The peak memory of both is that of
 * a process. LOGGOPSIM names the folder with both programs; without it there is no peer.
 */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What a child took. */
struct taken {
    double seconds;
    double mebibytes;
};

/* Runs a program with its output thrown away. 0, or -1 if it did not start or end well. */
static int run_child(char *const words[], struct taken *taken)
{
    posix_spawn_file_actions_t actions;
    struct rusage usage;
    pid_t child;
    int how = 0;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    uint64_t start = ranks_now();
    int failed = posix_spawn(&child, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) {
        weft_error_set(WEFT_ERR_SYSTEM, "%s: %s", words[0], strerror(failed));
        return -1;
    }
    while (wait4(child, &how, 0, &usage) < 0 && errno == EINTR) {
    }
    taken->seconds = (double)(ranks_now() - start) * 1e-9;
    taken->mebibytes = (double)usage.ru_maxrss / 1024;
    if (!WIFEXITED(how) || WEXITSTATUS(how)) {
        weft_error_set(WEFT_ERR_SYSTEM, "%s did not end well", words[0]);
        return -1;
    }
    return 0;
}

struct contest {
    struct bench *bench;
    int ranks;
    double nodes;
    struct weft_template_params params;
    char self[PATH_MAX];
    char peer[PATH_MAX]; /* LogGOPSim; "": none */
    char bin[64];        /* its schedule */
    struct bench_samples rate[2], memory[2];
};

/* The schedule for the peer: dumped, and made binary. */
static int prepare_peer(struct contest *c)
{
    const char *folder = getenv("LOGGOPSIM");
    char goal[64], txt2bin[PATH_MAX], count[16];
    struct taken taken;

    if (!folder || !*folder)
        return 0;
    snprintf(c->peer, sizeof c->peer, "%s/LogGOPSim", folder);
    snprintf(txt2bin, sizeof txt2bin, "%s/txt2bin", folder);
    snprintf(goal, sizeof goal, "/tmp/weft-bench-sim-%ld.goal", (long)getpid());
    snprintf(c->bin, sizeof c->bin, "/tmp/weft-bench-sim-%ld.bin", (long)getpid());
    snprintf(count, sizeof count, "%d", c->ranks);
    char *const dump[] = {c->self, "dump", "allreduce", "--algo", "recursive-doubling",
                          "-n",    count,  "--format",  "goal",   "-o",
                          goal,    NULL};
    char *const convert[] = {txt2bin, "-i", goal, "-o", c->bin, NULL};
    int failed = run_child(dump, &taken) || run_child(convert, &taken);
    unlink(goal);
    return failed;
}

static int build(void *user, int rank, struct weft_schedule **schedule)
{
    const struct contest *c = user;

    return weft_template_build("allreduce", rank, c->ranks, &c->params, schedule);
}

/* Seconds of a simulation in this process; negative: it failed. */
static double simulate(struct contest *c)
{
    struct weft_sim_config config;
    struct weft_net net;
    struct weft_sim_result *result = NULL;

    weft_sim_config_init(&config);
    weft_net_init(&net);
    config.net = &net;
    config.ranks = c->ranks;
    config.build = build;
    config.user = c;
    net.L = 1;
    net.G = 0.001;
    config.threads = c->bench->cores;
    uint64_t start = ranks_now();
    int status = weft_simulate(&config, &result);
    double seconds = (double)(ranks_now() - start) * 1e-9;
    if (status == WEFT_OK)
        c->nodes = (double)result->nodes;
    weft_sim_result_destroy(result);
    return status == WEFT_OK ? seconds : -1;
}

static int take_turns(struct contest *c)
{
    char count[16];

    snprintf(count, sizeof count, "%d", c->ranks);
    char *const weft[] = {c->self, "sim", "allreduce", "--algo",      "recursive-doubling",
                          "-n",    count, "--net",     "L=1,G=0.001", "--no-payload",
                          NULL};
    char *const peer[] = {c->peer, "-f", c->bin, "-L", "1000",       "-o", "0", "-g",
                          "0",     "-G", "1",    "-S", "1000000000", "-b", NULL};

    for (int round = 0; round < c->bench->rounds; round++) {
        struct taken taken;
        double seconds = simulate(c);
        if (seconds <= 0 || run_child(weft, &taken))
            return -1;
        bench_sample(&c->rate[0], c->nodes / seconds / 1e6);
        bench_sample(&c->memory[0], taken.mebibytes);
        if (c->peer[0]) {
            if (run_child(peer, &taken))
                return -1;
            bench_sample(&c->rate[1], c->nodes / taken.seconds / 1e6);
            bench_sample(&c->memory[1], taken.mebibytes);
        }
    }
    return 0;
}

static void print_rows(const struct contest *c)
{
    char what[64];
    struct bench_row row = {
        .what = what, .peer = c->peer[0] ? "LogGOPSim" : NULL, .bytes = SIZE_MAX, .limit = NAN};

    snprintf(what, sizeof what, "recursive doubling P=%d rate", c->ranks);
    row.unit = "Mnodes/s";
    row.weft = &c->rate[0];
    row.peers = c->peer[0] ? &c->rate[1] : NULL;
    row.limit = c->peer[0] ? 2 * bench_median(&c->rate[1]) : NAN;
    bench_print(c->bench, &row);
    snprintf(what, sizeof what, "recursive doubling P=%d memory", c->ranks);
    row.unit = "MiB";
    row.weft = &c->memory[0];
    row.peers = c->peer[0] ? &c->memory[1] : NULL;
    row.limit = c->peer[0] ? bench_median(&c->memory[1]) : NAN;
    bench_print(c->bench, &row);
}

static int contest(struct bench *bench, int ranks)
{
    struct contest c = {.bench = bench, .ranks = ranks};
    ssize_t length = readlink("/proc/self/exe", c.self, sizeof c.self - 1);

    weft_template_params_init(&c.params);
    c.params.count = 1024;
    c.params.algo = "recursive-doubling";
    int failed = length <= 0 || prepare_peer(&c) || take_turns(&c);
    if (c.bin[0])
        unlink(c.bin);
    if (failed)
        return bench_fail(bench, "a simulation");
    print_rows(&c);
    return 0;
}

int bench_sim(struct bench *bench)
{
    static const int all[] = {1024, 8192, 65536};
    const int *ranks = bench->ranks ? &bench->ranks : all;
    size_t count = bench->ranks ? 1 : sizeof all / sizeof all[0];
    int status = 0;

    bench_machine(bench);
    bench_note(bench,
               "limits: twice the peer's rate, and its memory (LOGGOPSIM names its folder); "
               "hand-over between cores %.0f ns",
               bench->handover_ns);
    for (size_t i = 0; i < count && !status; i++)
        status = contest(bench, ranks[i]);
    return status;
}
