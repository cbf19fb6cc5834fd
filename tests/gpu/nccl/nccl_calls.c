/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What every call goes through, and what tests ask. */
#include "nccl_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNTED_MAX = 64, TEXT_MAX = 16384 };

pthread_mutex_t nccl__lock = PTHREAD_MUTEX_INITIALIZER;
struct ncclComm *nccl__comms;
int nccl__progress;

static struct {
    const char *name;
    unsigned long count;
} counted[COUNTED_MAX];
static unsigned long calls, launches, fail_at, fault_at, version;
static int fail_code, fault_code;
static bool quiet, aborts;
static uint64_t seed;
static unsigned misuses;
static char texts[TEXT_MAX];
static size_t texts_used;

static _Thread_local const char *running;
static _Thread_local ncclResult_t afterwards;

static unsigned long number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoul(text, NULL, 0) : otherwise;
}

static unsigned long moment(const char *name, int otherwise, int *code)
{
    const char *text = getenv(name);
    char *end;
    *code = otherwise;
    if (!text || !*text)
        return 0;
    unsigned long n = strtoul(text, &end, 0);
    if (*end == ':')
        *code = (int)strtoul(end + 1, NULL, 0);
    return n;
}

__attribute__((constructor)) static void start(void)
{
    fail_at = moment("STANDIN_NCCL_FAIL", ncclInternalError, &fail_code);
    fault_at = moment("STANDIN_NCCL_FAULT", ncclRemoteError, &fault_code);
    nccl__progress = (int)number("STANDIN_NCCL_PROGRESS", 3);
    version = number("STANDIN_NCCL_VERSION", NCCL_VERSION_CODE);
    quiet = number("STANDIN_QUIET", 0);
    aborts = number("STANDIN_ABORT", 0);
    seed = number("STANDIN_SEED", 1);
}

static void append(char *text, size_t size, size_t *used, const char *format, ...)
{
    va_list list;
    if (!text || *used + 1 >= size)
        return;
    va_start(list, format);
    int length = vsnprintf(text + *used, size - *used, format, list);
    va_end(list);
    if (length > 0)
        *used = *used + (size_t)length < size ? *used + (size_t)length : size - 1;
}

ncclResult_t nccl__misuse(ncclComm_t comm, ncclResult_t result, const char *format, ...)
{
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    const char *who = running ? running : "a stream";
    pthread_mutex_lock(&nccl__lock);
    misuses++;
    append(texts, sizeof texts, &texts_used, "%s: %s\n", who, line);
    if (comm)
        snprintf(comm->last_error, sizeof comm->last_error, "%.250s", line);
    pthread_mutex_unlock(&nccl__lock);
    if (!quiet || aborts)
        fprintf(stderr, "stand-in of NCCL: %s: %s\n", who, line);
    if (aborts)
        abort();
    return result;
}

unsigned nccl__draw(unsigned below)
{
    pthread_mutex_lock(&nccl__lock);
    uint64_t x = seed += 0x9e3779b97f4a7c15u;
    pthread_mutex_unlock(&nccl__lock);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return below ? (unsigned)((x ^ (x >> 31)) >> 32) % below : 0;
}

int nccl__fault(void)
{
    pthread_mutex_lock(&nccl__lock);
    launches++;
    int code = fault_at && --fault_at == 0 ? fault_code : 0;
    pthread_mutex_unlock(&nccl__lock);
    return code;
}

void nccl__set_running(const char *name)
{
    running = name;
}

/* ---- calls ---- */

static void count(const char *name)
{
    calls++;
    for (size_t i = 0; i < COUNTED_MAX; i++) {
        if (!counted[i].name)
            counted[i].name = name;
        if (!strcmp(counted[i].name, name)) {
            counted[i].count++;
            return;
        }
    }
}

static bool is_known(ncclComm_t comm)
{
    bool known = false;
    pthread_mutex_lock(&nccl__lock);
    for (ncclComm_t other = nccl__comms; other; other = other->next)
        known |= other == comm;
    pthread_mutex_unlock(&nccl__lock);
    return known;
}

static ncclResult_t usable(ncclComm_t comm, unsigned needs)
{
    CUdevice device;
    if (!comm || !is_known(comm))
        return nccl__misuse(NULL, ncclInvalidArgument, "%p is no communicator", (void *)comm);
    if (!comm->live)
        return nccl__misuse(NULL, ncclInvalidArgument,
                            "the communicator of rank %d of %d was destroyed", comm->rank,
                            comm->size);
    if (atomic_fetch_add(&comm->busy, 1))
        nccl__misuse(comm, ncclInvalidUsage, "rank %d: two threads are in one communicator",
                     comm->rank);
    else if (comm->grouped && !pthread_equal(comm->group_thread, pthread_self()))
        nccl__misuse(comm, ncclInvalidUsage, "rank %d: it is in the group of another thread",
                     comm->rank);
    if (needs & CALL_READY && comm->advance && !comm->grouped)
        return nccl__misuse(comm, ncclInvalidUsage,
                            "rank %d: called while the communicator is in progress", comm->rank);
    if (needs & CALL_READY && comm->finalized && !(needs & CALL_RELEASES))
        return nccl__misuse(comm, ncclInvalidUsage, "rank %d: called after ncclCommFinalize()",
                            comm->rank);
    if (needs & CALL_DEVICE && cuCtxGetDevice(&device))
        return ncclUnhandledCudaError;
    if (needs & CALL_DEVICE && device != comm->device)
        return nccl__misuse(comm, ncclInvalidUsage,
                            "rank %d: the current device is not %d, the communicator's", comm->rank,
                            comm->device);
    return ncclSuccess;
}

ncclResult_t nccl__enter(const char *name, ncclComm_t comm, unsigned needs)
{
    bool fails;
    running = name;
    afterwards = ncclSuccess;
    pthread_mutex_lock(&nccl__lock);
    count(name);
    fails = fail_at && --fail_at == 0;
    pthread_mutex_unlock(&nccl__lock);
    ncclResult_t result = needs & CALL_COMM ? usable(comm, needs) : ncclSuccess;
    if (result || !fails)
        return result;
    if (!(needs & CALL_RELEASES))
        return (ncclResult_t)fail_code;
    afterwards = (ncclResult_t)fail_code;
    return ncclSuccess;
}

ncclResult_t nccl__leave(ncclComm_t comm, ncclResult_t result)
{
    if (comm && is_known(comm) && comm->live && atomic_load(&comm->busy) > 0)
        atomic_fetch_sub(&comm->busy, 1);
    if (!result)
        result = afterwards;
    running = NULL;
    return result;
}

/* ---- what tests ask ---- */

/* Communicators stay, so that the list of a moment can be read without the lock of the list. */
static ncclComm_t all_comms(void)
{
    pthread_mutex_lock(&nccl__lock);
    ncclComm_t comms = nccl__comms;
    pthread_mutex_unlock(&nccl__lock);
    return comms;
}

static void waiting(ncclComm_t comm, char *text, size_t size, size_t *used)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->live && comm->world) {
        nccl__world_lock(comm->world);
        const struct nccl_rank *rank = &comm->world->ranks[comm->rank];
        if (rank->executing)
            append(text, size, used, "rank %d of %d is in %s, launch %llu of %llu\n", comm->rank,
                   comm->size, rank->what, (unsigned long long)comm->done + 1,
                   (unsigned long long)comm->issued);
        nccl__world_unlock(comm->world);
    }
    pthread_mutex_unlock(&comm->lock);
}

NCCL_EXPORT unsigned standin_nccl_report(char *text, size_t size)
{
    size_t used = 0;
    pthread_mutex_lock(&nccl__lock);
    unsigned found = misuses;
    if (text && size)
        text[0] = '\0';
    append(text, size, &used, "%s", texts);
    pthread_mutex_unlock(&nccl__lock);
    for (ncclComm_t comm = all_comms(); comm; comm = comm->next)
        waiting(comm, text, size, &used);
    return found;
}

NCCL_EXPORT void standin_nccl_forget(void)
{
    pthread_mutex_lock(&nccl__lock);
    misuses = 0;
    texts_used = 0;
    texts[0] = '\0';
    pthread_mutex_unlock(&nccl__lock);
}

NCCL_EXPORT unsigned standin_nccl_leaks(char *text, size_t size)
{
    size_t used = 0;
    unsigned found = 0;
    if (text && size)
        text[0] = '\0';
    for (ncclComm_t comm = all_comms(); comm; comm = comm->next) {
        unsigned buffers = 0;
        pthread_mutex_lock(&comm->lock);
        for (struct nccl_buffer *buffer = comm->buffers; buffer; buffer = buffer->next)
            buffers += buffer->live;
        if (comm->live || buffers)
            append(text, size, &used, "rank %d of %d: %s, %u buffers\n", comm->rank, comm->size,
                   comm->live ? "not destroyed" : "destroyed", buffers);
        found += comm->live + buffers;
        pthread_mutex_unlock(&comm->lock);
    }
    return found;
}

static unsigned long read_count(const unsigned long *from)
{
    pthread_mutex_lock(&nccl__lock);
    unsigned long found = *from;
    pthread_mutex_unlock(&nccl__lock);
    return found;
}

NCCL_EXPORT unsigned long standin_nccl_calls(void)
{
    return read_count(&calls);
}

NCCL_EXPORT unsigned long standin_nccl_launches(void)
{
    return read_count(&launches);
}

NCCL_EXPORT unsigned long standin_nccl_calls_of(const char *name)
{
    unsigned long found = 0;
    pthread_mutex_lock(&nccl__lock);
    for (size_t i = 0; i < COUNTED_MAX && counted[i].name; i++)
        if (!strcmp(counted[i].name, name))
            found += counted[i].count;
    pthread_mutex_unlock(&nccl__lock);
    return found;
}

NCCL_EXPORT void standin_nccl_fail_at(unsigned long n, int code)
{
    pthread_mutex_lock(&nccl__lock);
    fail_at = n;
    fail_code = code;
    pthread_mutex_unlock(&nccl__lock);
}

NCCL_EXPORT void standin_nccl_fault_at(unsigned long n, int code)
{
    pthread_mutex_lock(&nccl__lock);
    fault_at = n;
    fault_code = code;
    pthread_mutex_unlock(&nccl__lock);
}

/* ---- functions of no communicator ---- */

NCCL_EXPORT ncclResult_t ncclGetVersion(int *to)
{
    ncclResult_t result = nccl__enter(__func__, NULL, CALL_ANY);
    if (!result && !to)
        result = nccl__misuse(NULL, ncclInvalidArgument, "NULL");
    if (!result)
        *to = (int)version;
    return nccl__leave(NULL, result);
}

NCCL_EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < ncclNumResults ? names[result] : "unknown result code";
}
