/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that are killed: processes over shared memory, of which one or two get signal 9 at a random
 * moment of what they do together. Those that survive must all be told who and how, agree on who is
 * left, go on among themselves, and keep nothing of the dead.
 *
 *     kills [--first SEED] [--count N] [--ranks P] [--verbose]
 *
 * A seed that fails is a line, and exit status 1. Moments are numbers of steps that have been done,
 * and a random while after that; nothing waits for a time. How long it took until survivors knew is
 * printed, and not judged.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/shared.h>
#include <weft/weft.h>

#include "support/forked.h"
#include "support/trainers.h"

enum { MOST_VICTIMS = 2, ROUTINES = 6, LAST_STEPS = 5, MOST_LATE = 4096 };
enum { KILLED_AT, WORST, SUM, REPORTS }; /* of struct forked.words */

struct kills {
    uint64_t seed;
    int ranks, victims;
    int victim[MOST_VICTIMS];
    unsigned long moment[MOST_VICTIMS]; /* steps of all ranks since the last one died */
    uint64_t later_ns[MOST_VICTIMS];
    int job; /* below ROUTINES: a template; else a trainer's object */
    size_t count;
    int arena, helped;
};

/* What a rank does, step by step, on one context. */
struct job {
    const struct kills *kills;
    struct weft_context *context;
    struct weft_object *owner;
    struct weft_run *run;
    void *object; /* a trainer's */
    float *in, *out;
    uint64_t steps;
};

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static uint64_t mixed(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state += 1;
    return mixed(*state) % below;
}

static void draw_kills(struct kills *kills, uint64_t seed, int ranks)
{
    uint64_t state = mixed(seed);
    *kills = (struct kills){.seed = seed, .ranks = ranks};
    kills->victims = ranks > 2 && draw(&state, 3) == 0 ? 2 : 1;
    kills->victim[0] = (int)draw(&state, (uint64_t)ranks);
    kills->victim[1] = (int)(kills->victim[0] + 1 + (int)draw(&state, (uint64_t)ranks - 1)) % ranks;
    for (int v = 0; v < kills->victims; v++) {
        kills->moment[v] = draw(&state, draw(&state, 2) ? 8 : 400);
        kills->later_ns[v] = draw(&state, draw(&state, 2) ? 2000 : 400000);
    }
    kills->job = (int)draw(&state, ROUTINES + TRAINERS);
    kills->count = (size_t)1 << draw(&state, 19);
    kills->count += (size_t)draw(&state, kills->count);
    kills->arena = (int)draw(&state, 2);
    /* Objects that go on without who is late need helpers. */
    kills->helped = kills->job >= ROUTINES || draw(&state, 2);
}

static const char *const routines[ROUTINES] = {"allreduce", "broadcast", "alltoall",
                                               "allgather", "blocking",  "requests"};

static const char *job_name(const struct kills *kills)
{
    return kills->job < ROUTINES ? routines[kills->job] : trainers[kills->job - ROUTINES].name;
}

/* ---- a rank ---- */

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            forked_fail(self, "%s:%d: %s: %s", __FILE__, __LINE__, #condition, weft_error_text()); \
    } while (0)

static void *memory(const struct job *job, size_t count)
{
    return job->kills->arena ? weft_context_memory_alloc(job->context, count, sizeof(float))
                             : weft_memory_alloc(count, sizeof(float));
}

static void give_back(const struct job *job, void *data)
{
    if (job->kills->arena)
        weft_context_memory_free(job->context, data);
    else
        weft_memory_free(data);
}

/* The run belongs to an object, as that hears of a death at once: a rank whose run has failed
 * starts no other, for which others may be waiting already. */
static int begin_routine(struct job *job, const char *name, size_t count, size_t all)
{
    struct weft_template_params params;
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    weft_template_params_init(&params);
    params.count = count;
    weft_run_config_init(&config);
    int status = weft_object_create(&job->owner, job->context, NULL);
    config.object = job->owner;
    if (status == WEFT_OK)
        status = weft_template_create_plan(&plan, job->context, name, &params);
    if (status == WEFT_OK)
        status = weft_run_create(&job->run, job->context, plan, &config);
    weft_plan_destroy(plan);
    if (status == WEFT_OK && strcmp(name, "broadcast") == 0)
        return weft_run_bind_name(job->run, "buffer", job->out, count, WEFT_F32);
    if (status == WEFT_OK)
        status = weft_run_bind_input_name(job->run, "send", job->in,
                                          strcmp(name, "alltoall") == 0 ? all : count, WEFT_F32);
    if (status == WEFT_OK)
        status = weft_run_bind_name(job->run, "recv", job->out,
                                    strcmp(name, "allreduce") == 0 ? count : all, WEFT_F32);
    return status;
}

/* Creating an object fails where a rank is dead already. */
static int begin(struct forked_rank *self, struct job *job, const struct kills *kills,
                 struct weft_context *context)
{
    size_t all = kills->count * (size_t)kills->ranks;
    size_t used = kills->count * (size_t)weft_context_size(context);
    *job = (struct job){.kills = kills, .context = context};
    job->in = memory(job, all);
    job->out = memory(job, all);
    NEED(job->in && job->out);
    if (kills->job >= ROUTINES)
        return trainers[kills->job - ROUTINES].create(&job->object, context, job->out, kills->count,
                                                      WEFT_F32);
    return strcmp(job_name(kills), "blocking") == 0 || strcmp(job_name(kills), "requests") == 0
               ? WEFT_OK
               : begin_routine(job, job_name(kills), kills->count, used);
}

/* As many calls at once as there is room for. All end, and with the same error if with any, but for
 * those before the death. */
static int execute_requests(const struct job *job)
{
    struct weft_request *requests[FORKED_RANKS] = {NULL};
    int status = WEFT_OK, size = weft_context_size(job->context);
    for (int r = 0; r < size && status == WEFT_OK; r++)
        status =
            weft_iallreduce(job->context, job->in, job->out + (size_t)r * job->kills->count,
                            job->kills->count, WEFT_F32, weft_op_builtin(WEFT_SUM), &requests[r]);
    for (int r = 0; r < size && requests[r]; r++) {
        int ended = weft_request_wait(requests[r], WEFT_NEVER);
        status = ended ? ended : status;
        weft_request_destroy(requests[r]);
    }
    return status;
}

static int execute(const struct job *job)
{
    if (strcmp(job_name(job->kills), "requests") == 0)
        return execute_requests(job);
    return job->run ? weft_run_execute(job->run)
                    : weft_allreduce(job->context, job->in, job->out, job->kills->count, WEFT_F32,
                                     weft_op_builtin(WEFT_SUM));
}

static int step(struct forked_rank *self, struct job *job)
{
    const struct kills *kills = job->kills;
    int rank = weft_context_rank(job->context), size = weft_context_size(job->context);
    float change = (float)(job->steps++ % 7);
    int status;
    if (kills->job >= ROUTINES) {
        status = trainers[kills->job - ROUTINES].step(job->object);
    } else {
        size_t last = kills->count - 1;
        job->in[0] = job->in[last] = (float)rank + change;
        status = execute(job);
        if (status == WEFT_OK && (kills->job == 0 || kills->job >= 4)) {
            float sum = (float)(size * (size - 1) / 2) + change * (float)size;
            NEED(job->out[0] == sum && job->out[last] == sum);
        }
    }
    if (status == WEFT_OK)
        atomic_fetch_add(&self->forked->progress, 1);
    return status;
}

static void end(struct job *job)
{
    weft_run_destroy(job->run);
    weft_object_destroy(job->owner);
    if (job->object)
        (void)trainers[job->kills->job - ROUTINES].destroy(job->object);
    give_back(job, job->in);
    give_back(job, job->out);
}

/* What a death is told by: a status, the rank in the text. */
static void check_report(struct forked_rank *self, const struct kills *kills, int status)
{
    char text[600];
    int named = 0;
    snprintf(text, sizeof text, "%s", weft_error_text());
    if (status != WEFT_ERR_PEER)
        forked_fail(self, "%s: %s", weft_status_name(status), text);
    named = strstr(text, "rank ") != NULL;
    if (!named)
        forked_fail(self, "no rank is named: %s", text);
    uint64_t killed = atomic_load(&self->forked->words[KILLED_AT]), late = now() - killed;
    (void)kills;
    unsigned long worst = atomic_load(&self->forked->words[WORST]);
    while (late > worst && !atomic_compare_exchange_weak(&self->forked->words[WORST], &worst, late))
        continue;
    atomic_fetch_add(&self->forked->words[SUM], late);
    atomic_fetch_add(&self->forked->words[REPORTS], 1);
}

/* How many are known to have died, and nobody else. */
static int count_dead(struct forked_rank *self, const struct kills *kills,
                      const struct weft_context *context, const int *roots)
{
    int dead = 0;
    for (int r = 0; r < weft_context_size(context); r++) {
        weft_rank_state_t state;
        const char *how = NULL;
        NEED(weft_context_rank_state(context, r, &state, &how) == WEFT_OK);
        if (state != WEFT_RANK_DEAD)
            continue;
        NEED(roots[r] == kills->victim[0] || roots[r] == kills->victim[1]);
        /* The kernel does not say more until its parent has looked at it. */
        if (!strstr(how, "signal 9") && !strstr(how, "process has ended"))
            forked_fail(self, "rank %d: how it ended is \"%s\"", roots[r], how);
        dead++;
    }
    return dead;
}

/* This rank may have heard of a death by others before it has seen it. */
static void see_death(struct forked_rank *self, const struct kills *kills,
                      struct weft_context *context)
{
    int roots[FORKED_RANKS];
    NEED(weft_context_root_ranks(context, roots) == WEFT_OK);
    while (count_dead(self, kills, context, roots) == 0) {
        NEED(weft_context_progress(context) >= 0);
        sched_yield();
    }
}

/* All survivors have the same ranks, and none of the first `dead` victims among them. */
static int check_members(struct forked_rank *self, const struct kills *kills,
                         struct weft_context *context)
{
    int roots[FORKED_RANKS] = {0}, all[FORKED_RANKS * FORKED_RANKS];
    int size = weft_context_size(context);
    NEED(size >= kills->ranks - kills->victims && size < kills->ranks);
    NEED(weft_context_root_ranks(context, roots) == WEFT_OK);
    NEED(roots[weft_context_rank(context)] == self->rank);
    int status = weft_allgather(context, roots, all, (size_t)size, WEFT_I32);
    for (int r = 0; status == WEFT_OK && r < size; r++)
        NEED(memcmp(&all[r * size], roots, (size_t)size * sizeof *roots) == 0);
    return status;
}

/* Of a folder, those whose name has `word`. */
static int count_entries(const char *folder, const char *word)
{
    int count = 0;
    struct dirent *entry;
    DIR *entries = opendir(folder);
    while (entries && (entry = readdir(entries)))
        count += strstr(entry->d_name, word) != NULL;
    if (entries)
        closedir(entries);
    return count;
}

static int rank_main(struct forked_rank *self, void *user)
{
    const struct kills *kills = user;
    struct weft_context *contexts[MOST_VICTIMS + 1] = {NULL};
    struct weft_context_config config;
    struct weft_shared_config shared;
    struct job job;
    int made = 1, files = count_entries("/proc/self/fd", "");
    weft_context_config_init(&config);
    config.progress = kills->helped ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
    weft_shared_config_init(&shared);
    shared.name = self->forked->name;
    NEED(weft_context_create_shared(&contexts[0], self->rank, kills->ranks, &config, &shared) ==
         WEFT_OK);
    atomic_fetch_add(&self->forked->progress, 1);
    for (struct weft_context *context = contexts[0];; context = contexts[made - 1]) {
        int final = weft_context_size(context) == kills->ranks - kills->victims;
        int status = made == 1 ? WEFT_OK : check_members(self, kills, context);
        if (status == WEFT_OK)
            status = begin(self, &job, kills, context);
        else
            job = (struct job){.kills = kills, .context = context};
        for (int steps = 0; status == WEFT_OK && (!final || steps < LAST_STEPS); steps++)
            status = step(self, &job);
        if (status != WEFT_OK)
            check_report(self, kills, status);
        end(&job);
        if (final) {
            NEED(status == WEFT_OK);
            break;
        }
        see_death(self, kills, context);
        NEED(made <= MOST_VICTIMS);
        NEED(weft_context_shrink(context, &contexts[made++]) == WEFT_OK);
    }
    while (made > 0)
        NEED(weft_context_destroy(contexts[--made]) == WEFT_OK);
    NEED(forked_count_maps("memfd:") == 0);
    /* With . and ..; who waits for a thread may see it there for a moment more. */
    while (count_entries("/proc/self/task", "") != 3)
        sched_yield();
    NEED(count_entries("/proc/self/fd", "") == files);
    return 0;
}

/* ---- a seed ---- */

static void kill_one(struct forked *forked, const struct kills *kills, int v, unsigned long since)
{
    uint64_t begun;
    while (atomic_load(&forked->progress) < since + kills->moment[v] && !forked_ended(forked))
        usleep(50);
    for (begun = now(); now() - begun < kills->later_ns[v];)
        continue;
    atomic_store(&forked->words[KILLED_AT], now());
    forked_kill(forked, kills->victim[v], SIGKILL);
}

static void describe(const struct kills *kills, char *text, size_t bytes)
{
    size_t used =
        (size_t)snprintf(text, bytes, "seed %" PRIu64 ": P=%d, %s of %zu, %s%s", kills->seed,
                         kills->ranks, job_name(kills), kills->count,
                         kills->arena ? "arena" : "heap", kills->helped ? ", helped" : "");
    for (int v = 0; v < kills->victims; v++)
        used += (size_t)snprintf(text + used, bytes - used,
                                 ", rank %d after %lu steps and %" PRIu64 " ns", kills->victim[v],
                                 kills->moment[v], kills->later_ns[v]);
}

static uint64_t late[MOST_LATE];
static size_t late_count;

static int play(uint64_t seed, int ranks, int verbose)
{
    struct kills kills;
    char text[FORKED_TEXT + 100] = "", what[300];
    int names = count_entries("/dev/shm", "weft");
    draw_kills(&kills, seed, ranks);
    describe(&kills, what, sizeof what);
    struct forked *forked = forked_start(ranks, rank_main, &kills);
    unsigned long since = (unsigned long)ranks; /* all have created their contexts */
    for (int v = 0; v < kills.victims; v++) {
        kill_one(forked, &kills, v, since);
        since = atomic_load(&forked->progress);
    }
    int failed = forked_wait(forked, text, sizeof text);
    if (late_count < MOST_LATE)
        late[late_count++] = atomic_load(&forked->words[WORST]);
    forked_free(forked);
    if (!failed && (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)) {
        snprintf(text, sizeof text, "a process is left");
        failed = 1;
    }
    if (!failed && count_entries("/dev/shm", "weft") != names) {
        snprintf(text, sizeof text, "something is left in /dev/shm");
        failed = 1;
    }
    if (failed || verbose)
        printf("%s%s%s\n", what, failed ? ": " : "", text);
    fflush(stdout);
    return failed;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    uint64_t first = 0, count = 1, failed = 0;
    int ranks = 4, verbose = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--verbose") == 0)
            verbose = 1;
        else if (i + 1 < argc && strcmp(argv[i], "--first") == 0)
            first = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--count") == 0)
            count = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--ranks") == 0)
            ranks = atoi(argv[++i]);
        else
            ranks = 0;
    if (ranks < 2 || ranks > FORKED_RANKS) {
        fprintf(stderr, "usage: kills [--first SEED] [--count N] [--ranks P] [--verbose]\n");
        return 2;
    }
    for (uint64_t seed = first; seed < first + count; seed++)
        failed += (uint64_t)play(seed, ranks, verbose);
    qsort(late, late_count, sizeof *late, by_size);
    if (late_count > 0)
        printf("# the last survivor knew after %.3f ms (median), %.3f ms (most)\n",
               (double)late[late_count / 2] / 1e6, (double)late[late_count - 1] / 1e6);
    printf("# %" PRIu64 " seeds, %" PRIu64 " failed\n", count, failed);
    return failed > 0;
}
