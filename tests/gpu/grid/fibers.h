/* SPDX-License-Identifier: BSD-3-Clause */
/* Stacks to run on, and switching between them, with what the sanitizers must be told of it. A
 * fiber stays in the OS thread that made it. To ThreadSanitizer every switch orders what comes
 * before it and after it: it looks at the OS threads, not at the fibers. */
#ifndef WEFT_TESTS_GPU_GRID_FIBERS_H
#define WEFT_TESTS_GPU_GRID_FIBERS_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#    define GRID_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#    define GRID_TSAN 1
#endif
#if defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define GRID_ASAN 1
#    endif
#    if __has_feature(thread_sanitizer)
#        define GRID_TSAN 1
#    endif
#endif

struct grid_stack;

/* So many stacks will be taken, and are given back before they are released; all threads together
 * have some thousands. false: there are not so many now, and `wait` is not set, which it may be
 * where the thread has none. */
bool grid_stacks_reserve(size_t count, bool wait);
void grid_stacks_release(size_t count);

/* A stack that will call function(argument), which must not return: it leaves by
 * grid_stack_leave(). NULL without memory. Stacks are kept and used again. */
grid_stack *grid_stack_take(void (*function)(void *), void *argument);

/* Gives it back; `abandoned`: in the middle of what it ran. */
void grid_stack_give(grid_stack *stack, bool abandoned);

/* From the thread's own stack onto a fiber's; returns when that leaves. */
void grid_stack_enter(grid_stack *stack);

/* Back to the thread's own; returns when the fiber is entered again. With `last` it never is. */
void grid_stack_leave(grid_stack *stack, bool last);

/* AddressSanitizer reports whoever touches these bytes, until they are freed. */
void grid_forbid(void *memory, size_t bytes);

#endif
