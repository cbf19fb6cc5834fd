// SPDX-License-Identifier: BSD-3-Clause
// The grid: some blocks at a time, in a random order, each with a fiber a thread. A fiber runs
// until it waits for others, or yields at an atomic; which one is next is drawn. So whatever relies
// on an order that CUDA does not promise is wrong for some seed. State is of the OS thread.
//
// A fiber that finds an error notes the text and leaves; the grid then abandons all of its fibers.
#include "tests/gpu/grid/grid.h"
#include "tests/gpu/grid/fibers.h"
#include "tests/gpu/grid/grid_launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <ucontext.h>
#include <vector>

thread_local const grid_place *grid_here;

namespace
{

enum : unsigned { WARP = 32, MOST_FIBERS = 2048, MOST_SHARED = 48 * 1024, REDZONE = 64 };
enum : unsigned char { PATTERN = 0xb5 };

struct block;

enum fiber_state { READY, WAITING, GONE };

struct fiber {
    grid_place place;
    block *home;
    grid_stack *stack;
    unsigned number;   // in its block
    unsigned priority; // of its warp
    fiber_state state;
    grid_wait wait;
    uint64_t result;
};

struct shared_piece {
    const char *site;
    unsigned char *memory; // redzones at both ends
    size_t bytes;
};

struct block {
    std::vector<fiber> fibers;
    std::vector<shared_piece> shared;
    size_t shared_bytes;
    unsigned at_barrier;
    unsigned gone;
};

struct running {
    grid_size size;
    grid_size block_size;
    unsigned threads; // in a block
    void (*call)(void *);
    void *closure;
    std::vector<fiber *> ready;
    std::vector<block *> blocks;
    fiber *current;
    unsigned tries; // ready fibers that are drawn, of which the first in priority runs
    bool failed;
};

thread_local running *now;
thread_local uint64_t random_state = 1;
thread_local std::string error;

uint64_t draw(uint64_t below)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (random_state * UINT64_C(0x2545f4914f6cdd1d) >> 32) % below;
}

const char *name_of(grid_meeting meeting)
{
    static const char *const names[] = {
        "__syncthreads",   "__syncthreads_count", "__syncwarp",
        "__shfl_sync",     "__shfl_up_sync",      "__shfl_down_sync",
        "__shfl_xor_sync", "__ballot_sync",       "__match_any_sync"};

    return names[meeting];
}

// No std::string: a fiber that is abandoned frees nothing.
struct words {
    char text[512];
};

thread_local words signal_text;

words text(const char *format, ...)
{
    words line;
    va_list list;

    va_start(list, format);
    vsnprintf(line.text, sizeof line.text, format, list);
    va_end(list);
    return line;
}

words place_of(const fiber &who)
{
    const grid_place &place = who.place;

    return text("block (%u, %u, %u) thread (%u, %u, %u)", place.block.x, place.block.y,
                place.block.z, place.thread.x, place.thread.y, place.thread.z);
}

words site_of(const grid_wait &wait)
{
    return text("%s at %s:%d", name_of(wait.meeting), wait.file, wait.line);
}

// The first error is the one that counts.
void fail(const words &what)
{
    if (!now->failed)
        error = what.text;
    now->failed = true;
}

// Only on a fiber.
[[noreturn]] void fail_and_leave(const words &what)
{
    fail(what);
    for (;;)
        grid_stack_leave(now->current->stack, false);
}

void wake(fiber &who, uint64_t result)
{
    who.result = result;
    who.state = READY;
    now->ready.push_back(&who);
}

// ---- barriers ----

void meet_block(fiber &self)
{
    block &home = *self.home;
    uint64_t count = 0;

    if (home.gone > 0)
        fail_and_leave(text("%s: %s, but %u threads of its block have left", place_of(self).text,
                            site_of(self.wait).text, home.gone));
    if (++home.at_barrier < now->threads)
        return;
    for (const fiber &other : home.fibers) {
        if (other.wait.line != self.wait.line || other.wait.meeting != self.wait.meeting ||
            strcmp(other.wait.file, self.wait.file) != 0)
            fail_and_leave(text("divergent barrier: %s: %s, %s: %s", place_of(self).text,
                                site_of(self.wait).text, place_of(other).text,
                                site_of(other.wait).text));
        count += other.wait.value;
    }
    home.at_barrier = 0;
    for (fiber &other : home.fibers)
        wake(other, count);
}

// ---- warps ----

// The lane that a shuffle reads; its own where that is out of its segment.
unsigned source_of(const grid_wait &wait, unsigned lane)
{
    const unsigned width = wait.width;
    const unsigned first = lane / width * width;
    const unsigned own = lane - first;
    const unsigned by = wait.lane;

    switch (wait.meeting) {
    case GRID_FROM:
        return first + by % width;
    case GRID_UP:
        return by <= own ? lane - by : lane;
    case GRID_DOWN:
        return own + by < width ? lane + by : lane;
    default:
        return (lane ^ by) < first + width ? (lane ^ by) % WARP : lane;
    }
}

// What a lane gets, all of its mask being there.
uint64_t result_of(fiber *warp, const fiber &self, unsigned lane)
{
    const grid_wait &wait = self.wait;
    uint64_t result = 0;

    switch (wait.meeting) {
    case GRID_SYNC:
        return 0;
    case GRID_BALLOT:
    case GRID_MATCH:
        for (unsigned i = 0; i < WARP; i++)
            if (wait.mask >> i & 1u &&
                warp[i].wait.value == (wait.meeting == GRID_MATCH ? wait.value : UINT64_C(1)))
                result |= UINT64_C(1) << i;
        return result;
    default:
        break;
    }
    const unsigned from = source_of(wait, lane);

    if (!(wait.mask >> from & 1u))
        fail_and_leave(text("%s: %s reads lane %u, which is not in the mask %08x",
                            place_of(self).text, site_of(wait).text, from, wait.mask));
    return warp[from].wait.value;
}

void check_lane(const fiber &self, unsigned lane)
{
    const grid_wait &wait = self.wait;

    if (!(wait.mask >> lane & 1u))
        fail_and_leave(text("%s: %s by lane %u, which is not in its mask %08x", place_of(self).text,
                            site_of(wait).text, lane, wait.mask));
    if (wait.meeting >= GRID_FROM && wait.meeting <= GRID_XOR &&
        (wait.width == 0 || wait.width > WARP || (wait.width & (wait.width - 1)) != 0))
        fail_and_leave(text("%s: %s with a width of %u, which is no power of two up to 32",
                            place_of(self).text, site_of(wait).text, wait.width));
}

void check_same(const fiber &self, const fiber &other)
{
    if (other.wait.meeting == self.wait.meeting && other.wait.line == self.wait.line &&
        strcmp(other.wait.file, self.wait.file) == 0)
        return;
    fail_and_leave(text("divergent warp: %s: %s, %s: %s", place_of(self).text,
                        site_of(self.wait).text, place_of(other).text, site_of(other.wait).text));
}

void meet_warp(fiber &self)
{
    const unsigned lane = self.number % WARP;
    const unsigned first = self.number - lane;
    const unsigned mask = self.wait.mask;
    fiber *warp = &self.home->fibers[first];

    check_lane(self, lane);
    for (unsigned i = 0; i < WARP; i++) {
        if (!(mask >> i & 1u))
            continue;
        if (first + i >= now->threads || warp[i].state == GONE)
            fail_and_leave(text("%s: %s waits for lane %u, which %s", place_of(self).text,
                                site_of(self.wait).text, i,
                                first + i >= now->threads ? "does not exist" : "has left"));
        if (warp[i].state != WAITING || warp[i].wait.meeting < GRID_SYNC ||
            warp[i].wait.mask != mask)
            return; // not all are there; one that never comes is found when nobody is ready
    }
    uint64_t results[WARP] = {0};

    for (unsigned i = 0; i < WARP; i++) {
        if (!(mask >> i & 1u))
            continue;
        check_same(self, warp[i]);
        results[i] = result_of(warp, warp[i], i);
    }
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1u)
            wake(warp[i], results[i]);
}

// ---- blocks ----

void run_fiber(void *argument)
{
    fiber *self = static_cast<fiber *>(argument);

    now->call(now->closure);
    if (self->home->at_barrier > 0)
        fail(text("%s has left, but %u threads of its block wait at __syncthreads",
                  place_of(*self).text, self->home->at_barrier));
    self->state = GONE;
    self->home->gone++;
    grid_stack_leave(self->stack, true);
}

grid_size unflatten(uint64_t number, const grid_size &size)
{
    return {(unsigned)(number % size.x), (unsigned)(number / size.x % size.y),
            (unsigned)(number / size.x / size.y)};
}

void begin_block(uint64_t number)
{
    block *home = new block();

    home->fibers.resize(now->threads);
    now->blocks.push_back(home);
    unsigned priority = 0;

    for (unsigned i = 0; i < now->threads; i++) {
        fiber &self = home->fibers[i];

        if (i % WARP == 0)
            priority = (unsigned)draw(1 << 16);
        self.priority = priority;
        self.place = {unflatten(i, now->block_size), unflatten(number, now->size), now->block_size,
                      now->size};
        self.home = home;
        self.number = i;
        self.stack = grid_stack_take(run_fiber, &self);
        if (!self.stack) {
            fail(text("no memory for a stack"));
            return;
        }
        wake(self, 0);
    }
}

#ifndef GRID_ASAN
// What AddressSanitizer would have told at once.
void check_redzones(const block &home)
{
    for (const shared_piece &piece : home.shared)
        for (size_t i = 0; i < REDZONE; i++)
            if (piece.memory[i] != PATTERN || piece.memory[REDZONE + piece.bytes + i] != PATTERN) {
                fail(text("shared memory was written %s an array of %zu bytes",
                          piece.memory[i] != PATTERN ? "before" : "behind", piece.bytes));
                return;
            }
}
#endif

void end_block(block *home)
{
#ifndef GRID_ASAN
    check_redzones(*home);
#endif
    for (fiber &self : home->fibers)
        if (self.stack)
            grid_stack_give(self.stack, self.state != GONE);
    grid_stacks_release(home->fibers.size());
    for (const shared_piece &piece : home->shared)
        free(piece.memory);
    delete home;
}

void end_finished_blocks()
{
    for (size_t i = 0; i < now->blocks.size();) {
        block *home = now->blocks[i];

        if (home->gone < now->threads) {
            i++;
            continue;
        }
        now->blocks.erase(now->blocks.begin() + (ptrdiff_t)i);
        end_block(home);
    }
}

// Nobody is ready, and not all have left.
void fail_stuck()
{
    for (const block *home : now->blocks)
        for (const fiber &self : home->fibers) {
            if (self.state != WAITING)
                continue;
            fail(text("%s: %s waits for ever, with mask %08x; %u of %u threads of its block wait "
                      "at __syncthreads, %u have left",
                      place_of(self).text, site_of(self.wait).text, self.wait.mask,
                      home->at_barrier, now->threads, home->gone));
            return;
        }
}

// Any order of threads, or whole warps that are far ahead of others: each shows what the other
// hardly ever does.
size_t draw_ready()
{
    size_t best = (size_t)draw(now->ready.size());

    for (unsigned i = 1; i < now->tries; i++) {
        const size_t other = (size_t)draw(now->ready.size());

        if (now->ready[other]->priority > now->ready[best]->priority)
            best = other;
    }
    return best;
}

void step()
{
    const size_t drawn = draw_ready();
    fiber *next = now->ready[drawn];

    now->ready[drawn] = now->ready.back();
    now->ready.pop_back();
    now->current = next;
    grid_here = &next->place;
    grid_stack_enter(next->stack);
    grid_here = nullptr;
    if (next->state == GONE && next->home->gone == now->threads && !now->failed)
        end_finished_blocks();
}

std::vector<uint64_t> shuffled(uint64_t count)
{
    std::vector<uint64_t> order(count);

    for (uint64_t i = 0; i < count; i++)
        order[i] = i;
    for (uint64_t i = count; i > 1; i--)
        std::swap(order[i - 1], order[draw(i)]);
    return order;
}

void run_blocks()
{
    const std::vector<uint64_t> order = shuffled((uint64_t)now->size.x * now->size.y * now->size.z);
    const unsigned room = MOST_FIBERS / now->threads;
    const size_t resident = 1 + (size_t)draw(room < 4 ? room : 4);
    size_t begun = 0;

    while (!now->failed) {
        while (begun < order.size() && now->blocks.size() < resident && !now->failed &&
               grid_stacks_reserve(now->threads, now->blocks.empty()))
            begin_block(order[begun++]);
        if (now->blocks.empty() || now->failed)
            break;
        if (now->ready.empty())
            fail_stuck();
        else
            step();
    }
    for (block *home : now->blocks)
        end_block(home);
}

bool check_sizes(const unsigned grid[3], const unsigned block[3], size_t shared_bytes)
{
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];

    error.clear();
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || threads == 0)
        error = "a grid or a block of no threads";
    else if (grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535)
        error = "a grid of too many blocks";
    else if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > 1024)
        error = "a block of more than 1024 threads";
    else if (shared_bytes > 0)
        error = "shared memory asked for at the launch, which no kernel has";
    else if (now)
        error = "a grid within a grid";
    return error.empty();
}

} // namespace

int grid_launch(const unsigned grid[3], const unsigned block[3], size_t shared_bytes,
                void (*call)(void *closure), void *closure)
{
    if (!check_sizes(grid, block, shared_bytes))
        return -1;
    running self = {};

    self.size = {grid[0], grid[1], grid[2]};
    self.block_size = {block[0], block[1], block[2]};
    self.threads = block[0] * block[1] * block[2];
    self.call = call;
    self.closure = closure;
    self.tries = draw(2) ? 1 : 16;
    now = &self;
    run_blocks();
    now = nullptr;
    return self.failed ? -1 : 0;
}

uint64_t grid_meet(const grid_wait &wait)
{
    fiber &self = *now->current;

    self.wait = wait;
    self.state = WAITING;
    if (wait.meeting < GRID_SYNC)
        meet_block(self);
    else
        meet_warp(self);
    grid_stack_leave(self.stack, false);
    return self.result;
}

void grid_yield()
{
    if (draw(4) > 0)
        return;
    now->ready.push_back(now->current);
    grid_stack_leave(now->current->stack, false);
}

int grid_refuse()
{
    error = "a pointer was refused";
    return -1;
}

// Where a thread goes on whose kernel has met a signal.
[[noreturn]] static void end_by_signal()
{
    fail_and_leave(text("%s: %s", place_of(*now->current).text, signal_text.text));
}

// Handlers return, so that sanitizers see nothing but that; the thread is sent elsewhere.
int grid_end_by_signal(void *context, const char *what)
{
    ucontext_t *at = static_cast<ucontext_t *>(context);

    if (!now || !grid_here)
        return 0;
    signal_text = text("%s", what);
#if defined(__x86_64__)
    greg_t *registers = at->uc_mcontext.gregs;

    // Below what the function may use behind its stack pointer, and as after a call.
    registers[REG_RSP] = ((registers[REG_RSP] - 256) & ~(greg_t)15) - 8;
    registers[REG_RIP] = (greg_t)(uintptr_t)end_by_signal;
    return 1;
#elif defined(__aarch64__)
    at->uc_mcontext.sp = (at->uc_mcontext.sp - 256) & ~(unsigned long long)15;
    at->uc_mcontext.pc = (uintptr_t)end_by_signal;
    return 1;
#else
    (void)at;
    return 0;
#endif
}

void *grid_shared(const char *site, size_t bytes)
{
    block &home = *now->current->home;

    for (const shared_piece &piece : home.shared)
        if (piece.site == site)
            return piece.memory + REDZONE;
    home.shared_bytes += bytes;
    if (home.shared_bytes > MOST_SHARED)
        fail_and_leave(
            text("%zu bytes of shared memory: a block has %u", home.shared_bytes, MOST_SHARED));
    unsigned char *memory = static_cast<unsigned char *>(malloc(bytes + 2 * REDZONE));

    if (!memory)
        fail_and_leave(text("no memory for shared memory"));
    memset(memory, PATTERN, bytes + 2 * REDZONE);
    grid_forbid(memory, REDZONE);
    grid_forbid(memory + REDZONE + bytes, REDZONE);
    home.shared.push_back({site, memory, bytes});
    return memory + REDZONE;
}

const char *grid_error(void)
{
    return error.c_str();
}

void grid_seed(uint64_t seed)
{
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
}
