/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What every call goes through: whether it is allowed now, whether it is to fail, and what is
 * said of those that were wrong. */
#include "inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNTED_MAX = 256, TEXT_MAX = 16384 };

struct standin_options standin__options;
bool standin__initialised;
pthread_mutex_t standin__lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin__progress = PTHREAD_COND_INITIALIZER;
_Thread_local bool standin__in_host_function;

static struct {
    const char *name;
    unsigned long count;
} counted[COUNTED_MAX];
static unsigned long calls, operations, fail_at, fault_at;
static CUresult fail_code, fault_code;
static unsigned misuses;
static char texts[TEXT_MAX];
static size_t texts_used;
static pid_t process;

/* Of the call that this thread is in. */
static _Thread_local const char *running;
static _Thread_local CUresult afterwards;

uint64_t standin__random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void standin__append(char *text, size_t size, size_t *used, const char *format, ...)
{
    if (!text || *used + 1 >= size)
        return;
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text + *used, size - *used, format, list);
    va_end(list);
    if (length > 0)
        *used = *used + (size_t)length < size ? *used + (size_t)length : size - 1;
}

CUresult standin__misuse(CUresult code, const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    misuses++;
    const char *who = running ? running : "a stream";
    standin__append(texts, sizeof texts, &texts_used, "%s: %s\n", who, line);
    if (!standin__options.quiet || standin__options.abort)
        fprintf(stderr, "stand-in: %s: %s\n", who, line);
    if (standin__options.abort)
        abort();
    return code;
}

/* After these nothing works in a context any more: cuda.h says so of each. */
bool standin__is_sticky(CUresult code)
{
    switch (code) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

static unsigned long number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoul(text, NULL, 0) : otherwise;
}

/* NAME=n[:code] */
static unsigned long moment(const char *name, CUresult otherwise, CUresult *code)
{
    const char *text = getenv(name);
    *code = otherwise;
    if (!text || !*text)
        return 0;
    char *end;
    unsigned long n = strtoul(text, &end, 0);
    if (*end == ':')
        *code = (CUresult)strtoul(end + 1, NULL, 0);
    return n;
}

/* "1,0": the first device of the process is the machine's second. */
static void read_visible(struct standin_options *options)
{
    const char *text = getenv("STANDIN_VISIBLE");
    unsigned count = 0;
    for (unsigned i = 0; i < STANDIN_DEVICES_MAX; i++)
        options->visible[i] = (int)i;
    if (!text || !*text)
        return;
    for (char *end; *text && count < STANDIN_DEVICES_MAX; text = *end == ',' ? end + 1 : end) {
        options->visible[count++] = (int)strtol(text, &end, 10);
        if (end == text)
            break;
    }
    options->devices = count;
}

void standin__read_options(void)
{
    process = getpid();
    struct standin_options *options = &standin__options;
    options->devices = (unsigned)number("STANDIN_DEVICES", 2);
    if (options->devices > STANDIN_DEVICES_MAX)
        options->devices = STANDIN_DEVICES_MAX;
    options->memory = number("STANDIN_MEMORY", 1ul << 30);
    options->seed = number("STANDIN_SEED", 1);
    options->delay_us = (unsigned)number("STANDIN_DELAY_US", 100);
    options->connections = (unsigned)number("STANDIN_CONNECTIONS", 0);
    options->implicit_sync = number("STANDIN_IMPLICIT_SYNC", 0);
    options->stream_mem_ops = number("STANDIN_STREAM_MEM_OPS", 1);
    options->peers = number("STANDIN_PEERS", 1);
    options->pools = number("STANDIN_POOLS", 0);
    options->reuse = number("STANDIN_REUSE", 0);
    options->ipc = number("STANDIN_IPC", 1);
    options->ipc_free = number("STANDIN_IPC_FREE", 0);
    options->quiet = number("STANDIN_QUIET", 0);
    options->abort = number("STANDIN_ABORT", 0);
    read_visible(options);
}

static void before_fork(void)
{
    pthread_mutex_lock(&standin__lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&standin__lock);
}

/* The environment speaks of calls from the first one on, which is before cuInit() has read it. */
__attribute__((constructor)) static void start(void)
{
    fail_at = moment("STANDIN_FAIL", CUDA_ERROR_UNKNOWN, &fail_code);
    fault_at = moment("STANDIN_FAULT", CUDA_ERROR_ILLEGAL_ADDRESS, &fault_code);
    standin__options.quiet = number("STANDIN_QUIET", 0);
    standin__options.abort = number("STANDIN_ABORT", 0);
    pthread_atfork(before_fork, after_fork, after_fork);
}

static void count(const char *name)
{
    calls++;
    for (size_t i = 0; i < COUNTED_MAX; i++) {
        if (!counted[i].name)
            counted[i].name = name;
        if (counted[i].name == name) {
            counted[i].count++;
            return;
        }
    }
}

/* An error that a call which ends a life returns once it has done so. */
static CUresult postpone(unsigned needs, CUresult code)
{
    if (!(needs & RELEASES))
        return code;
    afterwards = code;
    return CUDA_SUCCESS;
}

static CUresult usable(unsigned needs, CUcontext *context)
{
    CUcontext current = NULL;
    if (needs & NEEDS_CONTEXT) {
        CUresult result = standin__context_current(&current);
        if (result)
            return result;
        if (context)
            *context = current;
    }
    if (fail_at && --fail_at == 0) {
        if (current && standin__is_sticky(fail_code))
            standin__context_fail(current, fail_code);
        return postpone(needs, fail_code);
    }
    if (current && atomic_load_explicit(&current->error, memory_order_relaxed))
        return postpone(needs,
                        (CUresult)atomic_load_explicit(&current->error, memory_order_relaxed));
    return CUDA_SUCCESS;
}

CUresult standin__enter(const char *name, unsigned needs, CUcontext *context)
{
    pthread_mutex_lock(&standin__lock);
    running = name;
    afterwards = CUDA_SUCCESS;
    count(name);
    if (standin__in_host_function)
        return standin__misuse(CUDA_ERROR_NOT_PERMITTED, "called by a host function");
    if (standin__initialised && process != getpid())
        return standin__misuse(CUDA_ERROR_NOT_INITIALIZED, "called in a child of fork()");
    if ((needs & (NEEDS_INIT | NEEDS_CONTEXT)) && !standin__initialised)
        return standin__misuse(CUDA_ERROR_NOT_INITIALIZED, "called before cuInit()");
    return usable(needs, context);
}

CUresult standin__leave(CUresult result)
{
    if (!result)
        result = afterwards;
    running = NULL;
    pthread_mutex_unlock(&standin__lock);
    return result;
}

void standin__count_operation(void)
{
    operations++;
}

CUresult standin__injected_fault(void)
{
    return fault_at && --fault_at == 0 ? fault_code : CUDA_SUCCESS;
}

/* ---- what tests ask ---- */

STANDIN_EXPORT unsigned standin_report(char *text, size_t size)
{
    pthread_mutex_lock(&standin__lock);
    size_t used = 0;
    if (text && size)
        text[0] = '\0';
    standin__append(text, size, &used, "%s", texts);
    standin__streams_waiting(text, size, &used);
    unsigned found = misuses;
    pthread_mutex_unlock(&standin__lock);
    return found;
}

STANDIN_EXPORT void standin_forget(void)
{
    pthread_mutex_lock(&standin__lock);
    misuses = 0;
    texts_used = 0;
    texts[0] = '\0';
    pthread_mutex_unlock(&standin__lock);
}

STANDIN_EXPORT unsigned long standin_calls(void)
{
    pthread_mutex_lock(&standin__lock);
    unsigned long found = calls;
    pthread_mutex_unlock(&standin__lock);
    return found;
}

STANDIN_EXPORT unsigned long standin_calls_of(const char *name)
{
    pthread_mutex_lock(&standin__lock);
    unsigned long found = 0;
    for (size_t i = 0; i < COUNTED_MAX && counted[i].name; i++)
        if (!strcmp(counted[i].name, name))
            found += counted[i].count;
    pthread_mutex_unlock(&standin__lock);
    return found;
}

STANDIN_EXPORT unsigned long standin_operations(void)
{
    pthread_mutex_lock(&standin__lock);
    unsigned long found = operations;
    pthread_mutex_unlock(&standin__lock);
    return found;
}

STANDIN_EXPORT void standin_fail_at(unsigned long n, int code)
{
    pthread_mutex_lock(&standin__lock);
    fail_at = n;
    fail_code = (CUresult)code;
    pthread_mutex_unlock(&standin__lock);
}

STANDIN_EXPORT void standin_fault_at(unsigned long n, int code)
{
    pthread_mutex_lock(&standin__lock);
    fault_at = n;
    fault_code = (CUresult)code;
    pthread_mutex_unlock(&standin__lock);
}
