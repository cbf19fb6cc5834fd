// SPDX-License-Identifier: BSD-3-Clause
// A switch saves what a call must preserve and changes the stack pointer: a few instructions where
// they are written below, ucontext elsewhere (which asks the kernel for the signal mask each time).
#include "tests/gpu/grid/fibers.h"

#include <condition_variable>
#include <mutex>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#if defined(__x86_64__) && !defined(GRID_UCONTEXT)
#    define GRID_ASSEMBLY 1
#else
#    include <ucontext.h>
#endif
#ifdef GRID_ASAN
#    include <sanitizer/asan_interface.h>
#    include <sanitizer/common_interface_defs.h>
#endif
#ifdef GRID_TSAN
#    include <sanitizer/tsan_interface.h>
#endif

namespace
{

enum : size_t { STACK = 256 * 1024, MOST_STACKS = 8192, FIRST_FRAMES = 8192 };

} // namespace

struct grid_stack {
    char *memory; // a guard page below
    void (*function)(void *);
    void *argument;
    bool dirty;
#ifdef GRID_ASSEMBLY
    void *pointer;
#else
    ucontext_t context;
#endif
    void *fake;  // AddressSanitizer's
    void *fiber; // ThreadSanitizer's
};

namespace
{

// The stack that a thread began with, while one of its fibers runs.
struct home {
    std::vector<grid_stack *> spare; // reserved, and not in use
#ifdef GRID_ASSEMBLY
    void *pointer = nullptr;
#else
    ucontext_t context;
#endif
    const void *bottom = nullptr;
    size_t size = 0;
    void *fiber = nullptr;
};

thread_local home own;
thread_local grid_stack *begun; // the one that is entered for the first time

// Stacks that nobody uses: a stack takes a while to make. And how many there may be: each is two
// mappings of the kernel, which gives a process 65530 of them; one grid on every stream, all of
// them interrupted in the middle of a launch, came near that. It outlives all threads.
struct common {
    std::mutex mutex;
    std::condition_variable given_back;
    std::vector<grid_stack *> stacks;
    size_t reserved = 0;
};

common &all()
{
    static common *shared = new common();

    return *shared;
}

#ifdef GRID_ASSEMBLY

// Saves the registers that a call preserves below the stack pointer, which goes to *from.
extern "C" void grid_switch(void **from, void *to);

asm(".text\n"
    ".type grid_switch, @function\n"
    "grid_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size grid_switch, . - grid_switch\n");

#endif

// Called with the first switch to a stack.
void enter()
{
    grid_stack *stack = begun;

#ifdef GRID_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &own.bottom, &own.size);
#endif
    stack->function(stack->argument);
    __builtin_trap();
}

void prepare(grid_stack *stack)
{
#ifdef GRID_ASSEMBLY
    // What grid_switch() takes from the stack: six registers and where to return to; above that is
    // the address to which enter() would return, so that the stack is aligned as after a call.
    void **top = reinterpret_cast<void **>(stack->memory + STACK);

    memset(top - 8, 0, 8 * sizeof *top);
    top[-2] = reinterpret_cast<void *>(enter);
    stack->pointer = top - 8;
#else
    getcontext(&stack->context);
    stack->context.uc_stack.ss_sp = stack->memory;
    stack->context.uc_stack.ss_size = STACK;
    stack->context.uc_link = nullptr;
    makecontext(&stack->context, enter, 0);
#endif
}

grid_stack *create()
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return nullptr;
    mprotect(memory, page, PROT_NONE);
    grid_stack *stack = new grid_stack();
    stack->memory = static_cast<char *>(memory);
    return stack;
}

} // namespace

bool grid_stacks_reserve(size_t count, bool wait)
{
    std::unique_lock<std::mutex> lock(all().mutex);
    std::vector<grid_stack *> &stacks = all().stacks;

    while (all().reserved + count > MOST_STACKS) {
        if (!wait)
            return false;
        all().given_back.wait(lock);
    }
    all().reserved += count;
    for (; count > 0 && !stacks.empty(); count--) { // the others are made when they are taken
        own.spare.push_back(stacks.back());
        stacks.pop_back();
    }
    return true;
}

void grid_stacks_release(size_t count)
{
    const std::lock_guard<std::mutex> lock(all().mutex);

    all().stacks.insert(all().stacks.end(), own.spare.begin(), own.spare.end());
    own.spare.clear();
    all().reserved -= count;
    all().given_back.notify_all();
}

grid_stack *grid_stack_take(void (*function)(void *), void *argument)
{
    grid_stack *stack = own.spare.empty() ? create() : own.spare.back();

    if (!stack)
        return nullptr;
    if (!own.spare.empty())
        own.spare.pop_back();
#ifdef GRID_ASAN
    // What has ended never returned from the functions that it began with: their marks are there.
    const size_t marked = stack->dirty ? STACK : FIRST_FRAMES;

    __asan_unpoison_memory_region(stack->memory + STACK - marked, marked);
#endif
#ifdef GRID_TSAN
    stack->fiber = __tsan_create_fiber(0);
#endif
    stack->dirty = false;
    stack->fake = nullptr;
    stack->function = function;
    stack->argument = argument;
    prepare(stack);
    return stack;
}

void grid_stack_give(grid_stack *stack, bool abandoned)
{
#ifdef GRID_TSAN
    __tsan_destroy_fiber(stack->fiber);
#endif
    stack->dirty = abandoned;
    own.spare.push_back(stack);
}

void grid_stack_enter(grid_stack *stack)
{
    begun = stack;
#ifdef GRID_ASAN
    void *fake = nullptr;

    __sanitizer_start_switch_fiber(&fake, stack->memory, STACK);
#endif
#ifdef GRID_TSAN
    own.fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(stack->fiber, 0);
#endif
#ifdef GRID_ASSEMBLY
    grid_switch(&own.pointer, stack->pointer);
#else
    swapcontext(&own.context, &stack->context);
#endif
#ifdef GRID_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void grid_stack_leave(grid_stack *stack, bool last)
{
#ifdef GRID_ASAN
    __sanitizer_start_switch_fiber(last ? nullptr : &stack->fake, own.bottom, own.size);
#endif
#ifdef GRID_TSAN
    __tsan_switch_to_fiber(own.fiber, 0);
#endif
#ifdef GRID_ASSEMBLY
    grid_switch(&stack->pointer, own.pointer);
#else
    swapcontext(&stack->context, &own.context);
#endif
#ifdef GRID_ASAN
    __sanitizer_finish_switch_fiber(stack->fake, &own.bottom, &own.size);
#endif
    (void)last;
}

void grid_forbid(void *memory, size_t bytes)
{
#ifdef GRID_ASAN
    __asan_poison_memory_region(memory, bytes);
#endif
    (void)memory;
    (void)bytes;
}
