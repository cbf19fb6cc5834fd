/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that are threads, one of which fails, leaves or runs out of memory. That the others return
 * is all that is asked, and that an error names a rank: when which of them hears of it is up to the
 * machine. Each run is a process of its own; one that hangs is ended by an alarm.
 */
#include "cases.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft/weft.h>

#include "runtime/base/alloc.h"

enum { RANKS = 8, COUNT = 5, MOST_STEPS = 10, WRONG = 9 };

/* ---- ranks ---- */

struct scene {
    int ranks, group, run;
    uint64_t period;
    weft_average_activation_t activation;
    int culprit;        /* the rank that fails; -1: none, or the drawn one */
    int version;        /* before which it does */
    int steps[RANKS];   /* of each rank */
    int leaves_context; /* 1: the culprit destroys its context; 0: it returns an error */
    int object;         /* of the cases of memory */
    long countdown;     /* the allocation that fails */
    long allocations;   /* of a creation */
    pthread_barrier_t barrier;
    struct weft_local *local;
    float model[RANKS][COUNT];
    void *left[RANKS]; /* objects of ranks that have not destroyed them */
    int status[RANKS];
    int (*act)(struct scene *scene, struct weft_context **context, int rank);
};

/* A call of a rank has failed, as it may; not without saying whose fault it is. */
static int failed(const struct scene *scene, int rank, const char *call, int status)
{
    const char *text = weft_error_text();
    if (status == WEFT_OK)
        return 0;
    if (status != WEFT_ERR_MEMORY && rank != scene->culprit && !strstr(text, "rank ")) {
        printf("%s on rank %d: %s: %s\n", call, rank, weft_status_name(status), text);
        fflush(stdout);
        _exit(WRONG);
    }
    return 1;
}

static void expect(int truth, const char *what)
{
    if (truth)
        return;
    printf("%s (%s)\n", what, weft_error_text());
    fflush(stdout);
    _exit(WRONG);
}

struct thread {
    struct scene *scene;
    pthread_t thread;
    int rank;
};

static void *thread_main(void *argument)
{
    struct thread *self = argument;
    struct scene *scene = self->scene;
    struct weft_context_config config;
    struct weft_context *context = NULL;
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    expect(weft_context_create_local(&context, scene->local, self->rank, &config) == WEFT_OK,
           "a context");
    pthread_barrier_wait(&scene->barrier);
    scene->status[self->rank] = scene->act(scene, &context, self->rank);
    weft_context_destroy(context);
    return NULL;
}

static void run_threads(struct scene *scene)
{
    struct thread threads[RANKS];
    expect(weft_local_create(&scene->local, scene->ranks, NULL) == WEFT_OK, "ranks");
    pthread_barrier_init(&scene->barrier, NULL, (unsigned)scene->ranks);
    for (int r = 0; r < scene->ranks; r++) {
        threads[r] = (struct thread){.scene = scene, .rank = r};
        expect(pthread_create(&threads[r].thread, NULL, thread_main, &threads[r]) == 0, "a thread");
    }
    for (int r = 0; r < scene->ranks; r++)
        pthread_join(threads[r].thread, NULL);
    pthread_barrier_destroy(&scene->barrier);
    weft_local_destroy(scene->local);
}

/* ---- group averaging ---- */

static int create(struct scene *scene, struct weft_context *context, int rank,
                  struct weft_group_average **average)
{
    struct weft_group_average_config config;
    struct weft_piece tensor = {scene->model[rank], COUNT};
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.group_size = scene->group;
    config.sync_period = scene->period;
    config.activation = scene->activation;
    config.seed = (uint64_t)scene->run;
    return weft_group_average_create(average, context, &config);
}

static int is_culprit(const struct scene *scene, int rank, int step)
{
    int culprit = scene->culprit;
    if (scene->activation == WEFT_AVERAGE_DRAWN)
        culprit = weft_group_average_activator((uint64_t)scene->run, scene->ranks,
                                               (uint64_t)scene->version);
    return step == scene->version && rank == culprit;
}

/* Steps of a rank, up to the one before which the culprit fails. */
static int average_steps(struct scene *scene, struct weft_context **context, int rank)
{
    struct weft_group_average *average = NULL;
    int status = create(scene, *context, rank, &average);
    failed(scene, rank, "create", status);
    for (int t = 0; t < scene->steps[rank] && status == WEFT_OK; t++) {
        if (is_culprit(scene, rank, t)) {
            scene->left[rank] = average;
            if (scene->leaves_context) {
                weft_context_destroy(*context);
                *context = NULL;
                return WEFT_OK;
            }
            return WEFT_ERR_COMPUTE;
        }
        status = weft_group_average_step(average, NULL);
        failed(scene, rank, "step", status);
    }
    int ended = weft_group_average_destroy(average);
    failed(scene, rank, "destroy", ended);
    return status ? status : ended;
}

static int enter(struct weft_context *context, void *user)
{
    struct scene *scene = user;
    int rank = weft_context_rank(context);
    int status = average_steps(scene, &context, rank);
    return is_culprit(scene, rank, scene->version) ? status : WEFT_OK;
}

static struct scene *new_scene(int ranks, int group, int run)
{
    struct scene *scene = calloc(1, sizeof *scene);
    expect(scene != NULL, "memory");
    scene->ranks = ranks;
    scene->group = group;
    scene->run = run;
    scene->period = WEFT_NEVER;
    scene->culprit = -1;
    scene->version = -1;
    scene->act = average_steps;
    for (int r = 0; r < ranks; r++)
        scene->steps[r] = MOST_STEPS;
    return scene;
}

static struct scene *volatile last_scene; /* what is in it is not lost */

static void drawn_returns_an_error(int run)
{
    struct scene *scene = last_scene = new_scene(2 + run % 4, 2, run);
    struct weft_context_config config;
    scene->activation = WEFT_AVERAGE_DRAWN;
    scene->version = run / 4 % (MOST_STEPS - 1);
    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    expect(weft_local_run(scene->ranks, &config, enter, scene) == WEFT_ERR_COMPUTE,
           "the error of the drawn rank is not that of the run");
}

static void drawn_destroys_its_context(int run)
{
    struct scene *scene = last_scene = new_scene(2 + run % 4, 2, run);
    scene->activation = WEFT_AVERAGE_DRAWN;
    scene->version = run / 4 % (MOST_STEPS - 1);
    scene->leaves_context = 1;
    run_threads(scene);
}

static void destroys_its_context(int ranks, int group, int run)
{
    struct scene *scene = last_scene = new_scene(ranks, group, run);
    scene->culprit = 1;
    scene->version = 1 + run % (MOST_STEPS - 2);
    scene->leaves_context = 1;
    run_threads(scene);
}

static void anyone_of_2_in_2(int run)
{
    destroys_its_context(2, 2, run);
}

static void anyone_of_4_in_1(int run)
{
    destroys_its_context(4, 1, run);
}

static void anyone_of_3_in_2(int run)
{
    destroys_its_context(3, 2, run);
}

static void anyone_of_4_in_2(int run)
{
    destroys_its_context(4, 2, run);
}

static void anyone_of_8_in_4(int run)
{
    destroys_its_context(8, 4, run);
}

/* ---- leaving ---- */

static struct scene *leavers(int run)
{
    struct scene *scene = last_scene = new_scene(7, 4, run);
    scene->period = 3;
    for (int r = 0; r < scene->ranks; r++)
        scene->steps[r] = (run * 31 + r * 7 + run / 7 * r) % (MOST_STEPS + 1);
    return scene;
}

static void leaving(int run)
{
    struct scene *scene = leavers(run);
    run_threads(scene);
    for (int r = 0; r < scene->ranks; r++)
        expect(scene->status[r] == WEFT_OK, "leaving is no failure");
}

/* Others have left, or not yet, when one destroys its context. */
static void leaving_and_failing(int run)
{
    struct scene *scene = leavers(run);
    scene->culprit = run % scene->ranks;
    scene->version = run / 7 % MOST_STEPS;
    scene->leaves_context = 1;
    run_threads(scene);
}

/* ---- two objects ---- */

static int cross(struct scene *scene, struct weft_context **context, int rank)
{
    struct weft_group_average *averages[2] = {NULL, NULL};
    int status = WEFT_OK;
    for (int o = 0; o < 2; o++)
        expect(create(scene, *context, rank, &averages[o]) == WEFT_OK, "two objects");
    for (int t = 0; t < scene->steps[rank]; t++)
        for (int o = 0; o < 2; o++)
            expect(weft_group_average_step(averages[o], NULL) == WEFT_OK, "a step");
    for (int o = 0; o < 2 && status == WEFT_OK; o++)
        status = weft_group_average_destroy(averages[(rank + o) % 2]);
    expect(status == WEFT_OK, "an object is destroyed");
    return status;
}

static void crossed(int run)
{
    struct scene *scene = last_scene = new_scene(2 + run % 3, 2, run);
    scene->act = cross;
    scene->period = run % 2 ? 3 : WEFT_NEVER;
    for (int r = 0; r < scene->ranks; r++)
        scene->steps[r] = 3 + (run + r * 5) % 4;
    run_threads(scene);
}

/* ---- memory ---- */

enum { GROUP, PAIR, GOSSIP, GTOPK, OKTOPK };

/* Creates an object, takes a few steps and destroys it. */
#define LIVE(object, noun, settings)                                                               \
    do {                                                                                           \
        struct weft_##noun##_config config;                                                        \
        weft_##noun##_config_init(&config);                                                        \
        config.tensors = &tensor;                                                                  \
        config.tensor_count = 1;                                                                   \
        settings;                                                                                  \
        struct weft_##noun *object = NULL;                                                         \
        status = weft_##noun##_create(&object, context, &config);                                  \
        failed(scene, rank, "create", status);                                                     \
        for (int t = 0; t < 3 && status == WEFT_OK; t++)                                           \
            failed(scene, rank, "step", status = STEP_##noun(object));                             \
        int ended = weft_##noun##_destroy(object);                                                 \
        failed(scene, rank, "destroy", ended);                                                     \
        return status ? status : ended;                                                            \
    } while (0)
#define STEP_group_average(object)  weft_group_average_step(object, NULL)
#define STEP_pair_average(object)   weft_pair_average_step(object)
#define STEP_gossip(object)         weft_gossip_step(object)
#define STEP_sparse_average(object) weft_sparse_average_step(object, NULL)

static int live(struct scene *scene, struct weft_context *context, int rank)
{
    struct weft_piece tensor = {scene->model[rank], COUNT};
    int status;
    switch (scene->object) {
    case GROUP:
        LIVE(average, group_average, config.sync_period = 2);
    case PAIR:
        LIVE(average, pair_average, (void)0);
    case GOSSIP:
        LIVE(gossip, gossip, (void)0);
    case GTOPK:
        LIVE(average, sparse_average, config.method = WEFT_SPARSE_GTOPK);
    default:
        LIVE(average, sparse_average, config.method = WEFT_SPARSE_OKTOPK);
    }
}

static int create_short_of_memory(struct scene *scene, struct weft_context **context, int rank)
{
    if (rank == 0)
        atomic_store(&weft__alloc_countdown, scene->countdown);
    return live(scene, *context, rank);
}

/* The first life counts the allocations, in the second one of them fails. */
static void short_of_memory(int object, int run)
{
    struct scene *scene = last_scene = new_scene(2, 1, run);
    long before = atomic_load(&weft__alloc_calls);
    scene->object = object;
    scene->act = create_short_of_memory;
    scene->countdown = -1;
    run_threads(scene);
    long all = atomic_load(&weft__alloc_calls) - before;
    for (int r = 0; r < scene->ranks; r++)
        expect(scene->status[r] == WEFT_OK, "a life with memory enough");
    scene->countdown = 1 + (run + run / all) % all;
    run_threads(scene);
    atomic_store(&weft__alloc_countdown, -1);
}

static void memory_group(int run)
{
    short_of_memory(GROUP, run);
}

static void memory_pair(int run)
{
    short_of_memory(PAIR, run);
}

static void memory_gossip(int run)
{
    short_of_memory(GOSSIP, run);
}

static void memory_gtopk(int run)
{
    short_of_memory(GTOPK, run);
}

static void memory_oktopk(int run)
{
    short_of_memory(OKTOPK, run);
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    void (*live)(int run);
} CASES[] = {
    {"drawn-error", drawn_returns_an_error},  {"drawn-context", drawn_destroys_its_context},
    {"anyone-2-2", anyone_of_2_in_2},         {"anyone-4-1", anyone_of_4_in_1},
    {"anyone-3-2", anyone_of_3_in_2},         {"anyone-4-2", anyone_of_4_in_2},
    {"anyone-8-4", anyone_of_8_in_4},         {"leaving", leaving},
    {"leaving-context", leaving_and_failing}, {"crossed", crossed},
    {"memory-group", memory_group},           {"memory-pair", memory_pair},
    {"memory-gossip", memory_gossip},         {"memory-gtopk", memory_gtopk},
    {"memory-oktopk", memory_oktopk},
};

/* 0: it went well; 1: it hung; 2: it went wrong. */
static int run_once(void (*live_case)(int run), const char *name, int run, int patience)
{
    int status = 0;
    fflush(stdout);
    pid_t process = fork();
    if (process < 0) {
        perror("campaign: fork");
        exit(2);
    }
    if (process == 0) {
        alarm((unsigned)patience);
        live_case(run);
        exit(0); /* where the sanitizer looks for leaks */
    }
    waitpid(process, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return 1;
    printf("%s, run %d: %s %d\n", name, run, WIFEXITED(status) ? "exit status" : "signal",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return 2;
}

int cases_run(const char *name, int runs, int patience)
{
    int wrong = 0, found = 0;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        int counts[3] = {0};
        if (name && strcmp(name, CASES[c].name) != 0)
            continue;
        for (int run = 0; run < runs; run++)
            counts[run_once(CASES[c].live, CASES[c].name, run, patience)]++;
        printf("%-16s %d runs, %d hung, %d wrong\n", CASES[c].name, runs, counts[1], counts[2]);
        fflush(stdout);
        wrong |= counts[1] || counts[2];
        found = 1;
    }
    if (!found)
        printf("no case is called %s\n", name);
    return wrong || !found;
}
