/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's own latencies, printed beside every measurement because they change. */
#include "tools/bench/bench.h"
#include "tools/cli/ranks.h"

#include <math.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 20000, YIELDS = 2000 };

struct pingpong {
    _Alignas(128) atomic_int turn;
    int rounds;
    int yield;
    int cpu; /* both on this processor, or -1 */
    double ns;
};

static void play(struct pingpong *game, int me)
{
    if (game->cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)game->cpu, &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
    for (int i = 0; i < game->rounds; i++) {
        /* pairs with the release of the other side: whose turn it is */
        while (atomic_load_explicit(&game->turn, memory_order_acquire) != me)
            if (game->yield)
                sched_yield();
        atomic_store_explicit(&game->turn, !me, memory_order_release);
    }
}

static void *second(void *user)
{
    play(user, 1);
    return NULL;
}

static void *first(void *user)
{
    struct pingpong *game = user;
    pthread_t other;

    if (pthread_create(&other, NULL, second, game) == 0) {
        uint64_t start = ranks_now();
        play(game, 0);
        pthread_join(other, NULL);
        game->ns = (double)(ranks_now() - start) / (2.0 * game->rounds);
    }
    return NULL;
}

/* Nanoseconds from one thread to the other and back, halved; least of three. */
static double hand_over(int rounds, int yield, int cpu)
{
    double least = NAN;

    for (int i = 0; i < 3; i++) {
        struct pingpong game = {.rounds = rounds, .yield = yield, .cpu = cpu, .ns = NAN};
        pthread_t thread;
        if (pthread_create(&thread, NULL, first, &game) == 0) {
            pthread_join(thread, NULL);
            least = fmin(least, game.ns);
        }
    }
    return least;
}

void bench_machine(struct bench *bench)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    bench->cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    int cpu = 0;
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET((size_t)cpu, &set))
        cpu++;
    bench->handover_ns = bench->cores > 1 ? hand_over(SPINS, 0, -1) : NAN;
    bench->yield_ns = hand_over(YIELDS, 1, cpu);
}

void bench_sleep_ms(int ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&pause, NULL);
}

double bench_cpu_seconds(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}
