/* SPDX-License-Identifier: BSD-3-Clause */
/* The allocator of memory that other processes read, over a memfd as it is there. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"
#include "runtime/transport/shared/arena.h"
#include "support/ranks.h"

#define BYTES ((size_t)256 << 20)

static int file;
static char *base;
static struct weft__arena *arena;

static void setup(void)
{
    file = memfd_create("test", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, (off_t)BYTES) == 0);
    base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(base != MAP_FAILED);
    arena = weft__arena_open(base, BYTES);
    CHECK(arena);
}

static void teardown(void)
{
    weft__arena_close(arena);
    munmap(base, BYTES);
    close(file);
}

TestSuite(arena, .init = setup, .fini = teardown);

/* Bytes of the file that have pages. */
static size_t resident(void)
{
    struct stat status;
    CHECK(fstat(file, &status) == 0);
    return (size_t)status.st_blocks * 512;
}

static void check_zeroed(const char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        CHECK(memory[i] == 0);
}

Test(arena, gives_zeroed_aligned_memory_and_takes_no_room_for_it)
{
    static const size_t sizes[] = {0, 1, 64, 65, 4095, 4096, 4097, 1 << 20, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *memory = weft__arena_alloc(arena, sizes[i]);
        CHECK(memory >= base && memory + sizes[i] <= base + BYTES);
        CHECK((uintptr_t)memory % (sizes[i] < 4096 ? 64 : 4096) == 0);
    }
    CHECK(resident() == 0);
}

Test(arena, gives_memory_again_and_zeroes_it)
{
    char *first = weft__arena_alloc(arena, 10000);
    char *second = weft__arena_alloc(arena, 10000);
    char *third = weft__arena_alloc(arena, 10000);
    memset(first, 1, 10000);
    memset(second, 1, 10000);
    CHECK(weft__arena_free(arena, first) && weft__arena_free(arena, second));
    char *both = weft__arena_alloc(arena, 20000);
    CHECK(both == first);
    check_zeroed(both, 20000);
    CHECK(weft__arena_free(arena, both) && weft__arena_free(arena, third));
}

/* The last block is free and too small: it grows. */
Test(arena, grows_its_end)
{
    char *first = weft__arena_alloc(arena, 8192);
    memset(first, 1, 8192);
    CHECK(weft__arena_free(arena, first));
    char *larger = weft__arena_alloc(arena, 65536);
    CHECK(larger == first);
    check_zeroed(larger, 65536);
}

Test(arena, knows_what_is_its_own)
{
    char other;
    char *memory = weft__arena_alloc(arena, 10000);
    CHECK(!weft__arena_free(arena, &other));
    CHECK(!weft__arena_free(arena, memory + 64));
    CHECK(!weft__arena_free(arena, base + BYTES));
    CHECK(weft__arena_free(arena, memory));
    CHECK(!weft__arena_free(arena, memory));
}

Test(arena, ends)
{
    CHECK(!weft__arena_alloc(arena, BYTES + 1));
    CHECK(!weft__arena_alloc(arena, SIZE_MAX));
    CHECK(!weft__arena_alloc(arena, SIZE_MAX - 5000));
    char *half = weft__arena_alloc(arena, BYTES / 2);
    CHECK(half);
    CHECK(!weft__arena_alloc(arena, BYTES / 2 + ((size_t)4 << 20)));
    CHECK(weft__arena_free(arena, half));
    CHECK(weft__arena_alloc(arena, BYTES - ((size_t)4 << 20)));
}

Test(arena, gives_pages_of_large_blocks_back)
{
    size_t bytes = (size_t)64 << 20;
    char *small = weft__arena_alloc(arena, 100);
    char *large = weft__arena_alloc(arena, bytes);
    memset(small, 1, 100);
    memset(large, 1, bytes);
    CHECK(resident() >= bytes);
    CHECK(weft__arena_free(arena, large));
    CHECK(resident() < bytes / 8);
    CHECK(small[99] == 1);
    large = weft__arena_alloc(arena, bytes);
    CHECK(resident() < bytes / 8);
    check_zeroed(large, bytes);
}

Test(arena, that_finds_no_memory_for_itself_gives_none)
{
    atomic_store(&weft__alloc_countdown, 1);
    CHECK(!weft__arena_alloc(arena, 100));
    atomic_store(&weft__alloc_countdown, -1);
    CHECK(weft__arena_alloc(arena, 100));
    atomic_store(&weft__alloc_countdown, 1);
    CHECK(!weft__arena_open(base, BYTES));
    atomic_store(&weft__alloc_countdown, -1);
}

/* Blocks of all sizes: none overlaps another, each keeps what is in it, all are zeroed. */
static void churn(uint64_t seed, int rounds)
{
    enum { HELD = 60 };
    struct {
        unsigned char *at;
        size_t bytes;
        unsigned char mark;
    } held[HELD] = {{0}};
    for (int i = 0; i < rounds; i++) {
        uint64_t random = weft__random(&seed);
        size_t h = random % HELD;
        for (size_t at = 0; at < held[h].bytes; at += 61)
            CHECK(held[h].at[at] == held[h].mark);
        if (held[h].at)
            CHECK(weft__arena_free(arena, held[h].at));
        held[h].bytes = (random >> 20) % ((size_t)1 << (random >> 8) % 21);
        held[h].at = weft__arena_alloc(arena, held[h].bytes);
        held[h].mark = (unsigned char)(random >> 50 | 1);
        CHECK(held[h].at);
        check_zeroed((char *)held[h].at, held[h].bytes);
        memset(held[h].at, held[h].mark, held[h].bytes);
    }
    for (int h = 0; h < HELD; h++)
        CHECK(!held[h].at || weft__arena_free(arena, held[h].at));
}

Test(arena, keeps_blocks_apart)
{
    churn(20261122, SWEPT(4000, 1000));
    /* All of it is one free block again. */
    CHECK(weft__arena_alloc(arena, BYTES - ((size_t)4 << 20)));
}

static void *churn_in_thread(void *argument)
{
    churn((uint64_t)(uintptr_t)argument, 600);
    return NULL;
}

Test(arena, is_for_any_thread)
{
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, churn_in_thread, (void *)(i + 1)) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}
