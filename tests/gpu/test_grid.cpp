// SPDX-License-Identifier: BSD-3-Clause
// The grid of fibers finds what it is to find: each kernel of wrong.cpp, under many seeds.
#include <atomic>
#include <mutex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/gpu/grid/fibers.h"
#include "tests/gpu/grid/grid_run.h"

extern const grid_kernel grid_wrong[];

namespace
{

int passed;
int failed;

void check(bool holds, const char *what)
{
    if (!holds)
        fprintf(stderr, "failed: %s (%s)\n", what, grid_error());
    holds ? passed++ : failed++;
}

const grid_kernel &find(const char *name)
{
    const grid_kernel *kernel = grid_wrong;

    while (strcmp(kernel->name, name) != 0)
        kernel++;
    return *kernel;
}

template <class type>
int run(const char *name, std::vector<type> &to, unsigned blocks, unsigned x, unsigned y = 1)
{
    const unsigned grid[3] = {blocks, 2, 1};
    const unsigned block[3] = {x, y, 1};
    type *memory = to.data();
    void *arguments[] = {&memory};

    return find(name).run(grid, block, 0, arguments, nullptr);
}

bool reverses(unsigned blocks, unsigned x, unsigned y)
{
    const unsigned threads = x * y;
    std::vector<unsigned> to((size_t)blocks * 2 * threads, 0);

    if (run("grid_reverse", to, blocks, x, y) != 0)
        return false;
    for (size_t i = 0; i < to.size(); i++)
        if (to[i] != threads - 1 - i % threads)
            return false;
    return true;
}

void test_right()
{
    bool sums = true;
    std::vector<unsigned> to(128);

    check(reverses(1, 1, 1) && reverses(3, 32, 1) && reverses(5, 33, 3) && reverses(2, 1024, 1) &&
              reverses(40, 8, 8),
          "barriers of blocks of many sizes");
    check(run("grid_warp_sum", to, 1, 128) == 0, "a sum by shuffles");
    for (unsigned i = 0; i < 128; i++)
        sums = sums && to[i] == 32 * (i / 32 * 32) + 496;
    check(sums, "the sum by shuffles is right");
    to.assign(1, 0);
    check(run("grid_count", to, 7, 96) == 0 && to[0] == 7 * 2 * 96, "atomic additions");
}

void test_lanes()
{
    std::vector<int> to(32 * 6);
    std::vector<unsigned long long> match(64);
    bool holds = run("grid_segments", to, 1, 32) == 0;

    for (int lane = 0; lane < 32; lane++) {
        const int *own = &to[(size_t)lane * 6];

        holds =
            holds && own[0] == (lane % 8 >= 3 ? lane - 3 : lane) &&
            own[1] == (lane % 8 < 5 ? lane + 3 : lane) && own[2] == lane / 8 * 8 + 1 &&
            own[3] == (lane ^ 4) && own[4] == 0x49249249 &&
            own[5] == (lane % 2 ? (lane < 30 ? lane + 2 : lane) : (lane >= 2 ? lane - 2 : lane));
    }
    check(holds, "shuffles within segments and halves");
    holds = run("grid_match", match, 1, 64) == 0;
    for (unsigned i = 0; i < 64; i++) {
        unsigned same = 0;

        for (unsigned lane = 0; lane < 32; lane++)
            same |= (unsigned)((i / 32 * 32 + lane) % 3 == i % 3) << lane;
        holds = holds && match[i] == same;
    }
    check(holds, "lanes of the same value");
}

// How many of so many seeds give an error with `words` in its text.
unsigned refused(const char *name, unsigned x, const char *words)
{
    unsigned count = 0;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        std::vector<unsigned> to(2048, 0);

        grid_seed(seed);
        count += run(name, to, 2, x) != 0 && strstr(grid_error(), words);
    }
    return count;
}

void test_errors()
{
    static const struct {
        const char *name;
        unsigned threads;
        const char *words;
    } cases[] = {
        {"grid_divergent_barrier", 64, "divergent barrier"},
        {"grid_barrier_missed", 64, "__syncthreads"},
        {"grid_left_early", 32, "__syncwarp"},
        {"grid_warp_sum", 48, "lane 16, which does not exist"},
        {"grid_lane_inactive", 32, "reads lane 20, which is not in the mask"},
        {"grid_lane_not_in_mask", 64, "which is not in its mask"},
        {"grid_masks_differ", 32, "waits for"},
        {"grid_divergent_warp", 32, "divergent warp"},
        {"grid_shared_too_much", 32, "shared memory"},
        {"grid_lane_elsewhere", 32, "__syncwarp"},
        {"grid_reverse", 1025, "more than 1024"},
        {"grid_reverse", 0, "no threads"},
    };

    for (const auto &one : cases) {
        char what[128];
        const unsigned count = refused(one.name, one.threads, one.words);

        snprintf(what, sizeof what, "%s: refused under %u of 20 seeds", one.name, count);
        check(count == 20, what);
    }
}

// What no error tells of gives a wrong result for some seeds.
unsigned wrong_results(const char *name, unsigned (*expected)(unsigned), size_t results)
{
    unsigned count = 0;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        std::vector<unsigned> to(2048, 0);
        bool wrong = false;

        grid_seed(seed);
        wrong = run(name, to, 2, 64) != 0;
        for (unsigned i = 0; i < results; i++)
            wrong = wrong || to[i] != expected(i);
        count += wrong;
    }
    return count;
}

void test_races()
{
    check(wrong_results(
              "grid_reverse_no_barrier", [](unsigned i) { return 63 - i; }, 64) == 20,
          "a barrier that is missing shows under every seed");
    check(wrong_results(
              "grid_warp_implicit", [](unsigned i) { return i ^ 1u; }, 64) == 20,
          "a __syncwarp() that is missing shows under every seed");
    check(wrong_results(
              "grid_count_no_atomic", [](unsigned) { return 2u * 2 * 64; }, 1) == 20,
          "an addition that is not atomic shows under every seed");
}

void test_shared(const char *name)
{
    char what[128];
    bool found;

    snprintf(what, sizeof what, "%s is found", name);
#ifdef GRID_ASAN
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        std::vector<unsigned> to(1, 0);

        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        run(name, to, 1, 32);
        _exit(0);
    }
    found = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
            WEXITSTATUS(status) != 0;
#else
    std::vector<unsigned> to(1, 0);

    found = run(name, to, 1, 32) != 0 && strstr(grid_error(), "shared memory was written");
#endif
    check(found, what);
}

// After an error, and in several threads at once, all is as before.
void test_threads()
{
    std::vector<std::thread> threads;
    bool holds[4] = {false};

    for (unsigned i = 0; i < 4; i++)
        threads.emplace_back([&holds, i] {
            bool all = true;

            grid_seed(i + 1);
            for (int round = 0; round < 5; round++)
                all = all && reverses(4, 64 + 32 * i, 1) &&
                      refused("grid_divergent_barrier", 64, "divergent barrier") == 20;
            holds[i] = all;
        });
    for (std::thread &thread : threads)
        thread.join();
    check(holds[0] && holds[1] && holds[2] && holds[3], "four threads with grids of their own");
}

// Mappings of this process.
unsigned mappings()
{
    unsigned lines = 0;
    FILE *file = fopen("/proc/self/maps", "r");

    for (int c; file && (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    if (file)
        fclose(file);
    return lines;
}

// What one has used is there for the next, also while the thread of the first goes on; and where
// all are taken, a grid waits.
void test_stacks()
{
    const unsigned before = mappings(), some = 1024;
    std::vector<std::thread> threads;
    std::mutex mutex;
    bool holds = true;
    size_t taken = 0;

    mutex.lock(); // until all have had a turn
    for (unsigned i = 0; i < 8; i++) {
        std::atomic<bool> ran(false);

        threads.emplace_back([&mutex, &ran, &holds, i] {
            grid_seed(i + 1);
            holds = holds && reverses(2, 1024, 1);
            ran.store(true);
            const std::lock_guard<std::mutex> wait(mutex);
        });
        while (!ran.load())
            std::this_thread::yield();
    }
    const unsigned more = mappings() - before;

    mutex.unlock();
    for (std::thread &thread : threads)
        thread.join();
    check(holds && more < 8 * 1024, "eight threads one after the other have the same stacks");
    while (grid_stacks_reserve(some, false))
        taken += some;
    std::thread waits([&holds] { holds = reverses(4, 1024, 1); });
    grid_stacks_release(taken);
    waits.join();
    check(holds && taken >= 4 * some, "a grid waits for stacks");
}

} // namespace

int main()
{
    // These fork, which takes as much memory as the process may write to: not much as yet.
    test_shared("grid_shared_behind");
    test_shared("grid_shared_before");
    test_right();
    test_lanes();
    test_errors();
    test_races();
    test_threads();
    test_stacks();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
