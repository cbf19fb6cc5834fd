/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stacks are cut from one mapping, so that a page of a stack takes memory only once it is used.
 * Each has a page below it that must not be touched; with very many fibers these would use up the
 * kernel's number of mappings, and a word at the end of the stack that must not change stands in
 * for them.
 *
 * A switch saves what the calling convention says that a function keeps: on x86-64 and AArch64 in a
 * few instructions, elsewhere by swapcontext(), whose system call a switch costs ten times as much.
 */
#include "runtime/transport/virtual/fiber.h"
#include "runtime/base/alloc.h"
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define FIBER_ASAN 1
#    endif
#    if __has_feature(thread_sanitizer)
#        define FIBER_TSAN 1
#    endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#    define FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#    define FIBER_TSAN 1
#endif
#if defined(FIBER_ASAN)
#    include <sanitizer/common_interface_defs.h>
#endif
#if defined(FIBER_TSAN)
#    include <sanitizer/tsan_interface.h>
#endif

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__GNUC__) && defined(__ELF__) &&      \
    !defined(WEFT_FIBER_UCONTEXT)
#    define FIBER_ASSEMBLY 1
#else
#    include <ucontext.h>
#endif

/* Two mappings a fiber; Linux allows 65,530 in a process. */
#define MOST_GUARDED 16384
#define CANARY       UINT64_C(0x5AFE57ACC0FFEE11)

struct weft__fibers {
    char *memory;
    size_t bytes;
    size_t stride;
    size_t stack_bytes;
    size_t guard_bytes; /* 0: none */
    void *resumer;      /* top of the resumer's stack while a fiber runs */
#if !defined(FIBER_ASSEMBLY)
    ucontext_t resumer_machine;
#endif
    struct weft__fiber *running;
    void *tsan;
    const void *resumer_stack; /* for the address sanitizer */
    size_t resumer_bytes;
};

/* ---- the switch ---- */

#if defined(FIBER_ASSEMBLY)
/* Saves the registers and the stack pointer at *from, and goes on from `to`. */
void weft__fiber_switch(void **from, void *to) __attribute__((visibility("hidden")));
/* Where a new fiber begins. */
void weft__fiber_first(void) __attribute__((visibility("hidden")));

#    if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl weft__fiber_switch\n"
        ".hidden weft__fiber_switch\n"
        ".type weft__fiber_switch, @function\n"
        "weft__fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size weft__fiber_switch, .-weft__fiber_switch\n"
        ".p2align 4\n"
        ".globl weft__fiber_first\n"
        ".hidden weft__fiber_first\n"
        ".type weft__fiber_first, @function\n"
        "weft__fiber_first:\n"
        "    movq %rbx, %rdi\n"
        "    xorl %ebp, %ebp\n"
        "    call *%r12\n"
        "    ud2\n"
        ".size weft__fiber_first, .-weft__fiber_first\n");

static void *first_frame(char *top, struct weft__fiber *fiber, void (*begin)(struct weft__fiber *))
{
    void **frame = (void **)(void *)top;
    *--frame = NULL;
    *--frame = NULL; /* the stack is aligned to 16 bytes when weft__fiber_first() calls */
    *--frame = (void *)(uintptr_t)weft__fiber_first;
    *--frame = NULL;                     /* rbp */
    *--frame = fiber;                    /* rbx */
    *--frame = (void *)(uintptr_t)begin; /* r12 */
    *--frame = NULL;
    *--frame = NULL;
    *--frame = NULL; /* r15 */
    --frame;
    uint32_t control[2] = {0, 0};
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(control[0]), "=m"(control[1]));
    memcpy(frame, control, sizeof control);
    return frame;
}
#    else
__asm__(".text\n"
        ".p2align 4\n"
        ".globl weft__fiber_switch\n"
        ".hidden weft__fiber_switch\n"
        ".type weft__fiber_switch, %function\n"
        "weft__fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size weft__fiber_switch, .-weft__fiber_switch\n"
        ".p2align 4\n"
        ".globl weft__fiber_first\n"
        ".hidden weft__fiber_first\n"
        ".type weft__fiber_first, %function\n"
        "weft__fiber_first:\n"
        "    mov x0, x19\n"
        "    mov x29, #0\n"
        "    blr x20\n"
        "    brk #1\n"
        ".size weft__fiber_first, .-weft__fiber_first\n");

static void *first_frame(char *top, struct weft__fiber *fiber, void (*begin)(struct weft__fiber *))
{
    void **frame = (void **)(void *)(top - 160);
    memset(frame, 0, 160);
    frame[0] = fiber;                                 /* x19 */
    frame[1] = (void *)(uintptr_t)begin;              /* x20 */
    frame[11] = (void *)(uintptr_t)weft__fiber_first; /* x30 */
    return frame;
}
#    endif
#endif

static void enter(struct weft__fiber *fiber)
{
    struct weft__fibers *all = fiber->all;
    all->running = fiber;
#if defined(FIBER_ASAN)
    void *fake = NULL;
    __sanitizer_start_switch_fiber(&fake, fiber->stack, all->stack_bytes);
#endif
#if defined(FIBER_TSAN)
    __tsan_switch_to_fiber(fiber->tsan, 0);
#endif
#if defined(FIBER_ASSEMBLY)
    weft__fiber_switch(&all->resumer, fiber->top);
#else
    swapcontext(&all->resumer_machine, fiber->machine);
#endif
#if defined(FIBER_ASAN)
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
    all->running = NULL;
}

/* `last`: it will not come back. */
static void leave(struct weft__fiber *fiber, int last)
{
    struct weft__fibers *all = fiber->all;
#if defined(FIBER_ASAN)
    __sanitizer_start_switch_fiber(last ? NULL : &fiber->fake_stack, all->resumer_stack,
                                   all->resumer_bytes);
#endif
#if defined(FIBER_TSAN)
    __tsan_switch_to_fiber(all->tsan, 0);
#endif
    (void)last;
#if defined(FIBER_ASSEMBLY)
    weft__fiber_switch(&fiber->top, all->resumer);
#else
    swapcontext(fiber->machine, &all->resumer_machine);
#endif
#if defined(FIBER_ASAN)
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &all->resumer_stack, &all->resumer_bytes);
#endif
}

static void begin(struct weft__fiber *fiber)
{
#if defined(FIBER_ASAN)
    __sanitizer_finish_switch_fiber(NULL, &fiber->all->resumer_stack, &fiber->all->resumer_bytes);
#endif
    fiber->run(fiber->argument);
    fiber->ended = 1;
    leave(fiber, 1);
}

#if !defined(FIBER_ASSEMBLY)
static void begin_machine(unsigned high, unsigned low)
{
    uintptr_t address = (uintptr_t)((uint64_t)high << 32 | low);
    begin((struct weft__fiber *)address);
}
#endif

/* ---- stacks ---- */

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

struct weft__fibers *weft__fibers_create(size_t count, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX / 4 / (count + 1))
        return NULL;
    struct weft__fibers *fibers = weft__calloc(1, sizeof *fibers);
    if (!fibers)
        return NULL;
    fibers->guard_bytes = count <= MOST_GUARDED ? page : 0;
    fibers->stack_bytes = round_up(bytes, page);
    fibers->stride = fibers->stack_bytes + fibers->guard_bytes;
    fibers->bytes = fibers->stride * count;
    fibers->memory = mmap(NULL, fibers->bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fibers->memory == MAP_FAILED) {
        weft__free(fibers);
        return NULL;
    }
    /* A huge page would hold the stacks of many fibers that use a page or two each. */
    madvise(fibers->memory, fibers->bytes, MADV_NOHUGEPAGE);
#if defined(FIBER_TSAN)
    fibers->tsan = __tsan_get_current_fiber();
#endif
    return fibers;
}

void weft__fibers_destroy(struct weft__fibers *fibers)
{
    if (!fibers)
        return;
    munmap(fibers->memory, fibers->bytes);
    weft__free(fibers);
}

int weft__fiber_create(struct weft__fiber *fiber, struct weft__fibers *fibers, size_t index,
                       void (*run)(void *), void *argument)
{
    char *base = fibers->memory + index * fibers->stride;
    *fiber = (struct weft__fiber){.all = fibers, .run = run, .argument = argument};
    if (fibers->guard_bytes != 0 && mprotect(base, fibers->guard_bytes, PROT_NONE) != 0)
        return -1;
    fiber->stack = base + fibers->guard_bytes;
    char *top = fiber->stack + fibers->stack_bytes;
    if (fibers->guard_bytes == 0)
        memcpy(fiber->stack, &(uint64_t){CANARY}, sizeof(uint64_t));
#if defined(FIBER_ASSEMBLY)
    fiber->top = first_frame(top, fiber, begin);
#else
    (void)top;
    ucontext_t *machine = weft__calloc(1, sizeof *machine);
    if (!machine || getcontext(machine) != 0) {
        weft__free(machine);
        return -1;
    }
    machine->uc_stack.ss_sp = fiber->stack;
    machine->uc_stack.ss_size = fibers->stack_bytes;
    uint64_t address = (uintptr_t)fiber;
    makecontext(machine, (void (*)(void))(uintptr_t)begin_machine, 2, (unsigned)(address >> 32),
                (unsigned)address);
    fiber->machine = machine;
#endif
#if defined(FIBER_TSAN)
    fiber->tsan = __tsan_create_fiber(0);
#endif
    return 0;
}

void weft__fiber_destroy(struct weft__fiber *fiber)
{
#if defined(FIBER_TSAN)
    if (fiber->tsan)
        __tsan_destroy_fiber(fiber->tsan);
#endif
    weft__free(fiber->machine);
    fiber->machine = NULL;
    fiber->tsan = NULL;
}

void weft__fiber_resume(struct weft__fiber *fiber)
{
    fiber->started = 1;
    enter(fiber);
}

void weft__fiber_pause(struct weft__fiber *fiber)
{
    leave(fiber, 0);
}

int weft__fiber_overrun(const struct weft__fiber *fiber)
{
    uint64_t word;
    if (fiber->all->guard_bytes != 0)
        return 0;
    memcpy(&word, fiber->stack, sizeof word);
    return word != CANARY;
}
