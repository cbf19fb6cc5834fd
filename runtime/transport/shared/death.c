/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who has died, and how: a thread for each channel that has members in other processes.
 *
 * It sleeps in poll() on descriptors of their processes, which the kernel makes ready when one
 * ends, whatever ends it; so it costs nothing while all live, and nobody is taken for dead who is
 * slow.
 * How a process ended is in /proc until its parent has waited for it; then a kernel from 6.15 on
 * says it, and a launcher of weft's writes it on a page. Where none of them does, it has "ended".
 *
 *     a process ends -> watcher: how? -> `ended`, alarm, wakes the driver
 *                       driver:  takes all that the peer has written -> weft__channel_lost()
 *
 * The peer may have been killed at any instruction, also when it had just taken the sleeper out of
 * our bell and not woken it yet. So whoever sleeps is woken, registered or not.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/transport/shared/inside.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* So long a launcher has to say how a process ended, from when the first of some is noticed. */
#define HOW_NS UINT64_C(20000000)

enum { HOW_BYTES = 96 };

/* What the kernel tells of a process (linux/pidfd.h from 6.13 on; exit_code from 6.15 on). */
struct info {
    uint64_t mask;
    uint64_t cgroup;
    uint32_t ids[11];
    int32_t exit_code; /* as of wait() */
};
_Static_assert(sizeof(struct info) == 64, "the kernel knows its first version by that");
#define GET_INFO  _IOWR(0xFF, 11, struct info)
#define INFO_EXIT (UINT64_C(1) << 3)

struct end {
    _Atomic int ended; /* Release, after the text: pairs with weft__death_poll() */
    int told;          /* the driver's */
    char how[HOW_BYTES];
};

struct weft__death_watcher {
    struct weft__channel *channel;
    struct weft__launched own;
    struct weft__launch_page *page; /* NULL: none */
    pthread_t thread;
    int stop;             /* an eventfd */
    struct pollfd *polls; /* [channel->size + 1]; the last is `stop` */
    struct end *ends;     /* [channel->size] */
};

/* ---- how it ended: the watcher ---- */

static void describe(int status, char how[HOW_BYTES])
{
    if (WIFSIGNALED(status))
        snprintf(how, HOW_BYTES, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, HOW_BYTES, "exited with status %d", WEXITSTATUS(status));
}

/* Whether its parent has waited for it: its number may be another's then. */
static int is_reaped(int pidfd)
{
    struct pollfd reaped = {.fd = pidfd};
    return poll(&reaped, 1, 0) != 0;
}

/* The last field of /proc/PID/stat, of a process that nobody has waited for. */
static int ask_proc(int pid, int pidfd, int *status)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *name_end = strrchr(text, ')');
    const char *last = strrchr(text, ' ');
    if (!name_end || strncmp(name_end, ") Z ", 4) != 0 || is_reaped(pidfd))
        return 0;
    *status = (int)strtol(last, NULL, 10);
    return 1;
}

/* What the kernel knows of a process that its parent has waited for. */
static int ask_kernel(int pidfd, int *status)
{
    struct info info = {.mask = INFO_EXIT};
    if (ioctl(pidfd, GET_INFO, &info) != 0 || !(info.mask & INFO_EXIT))
        return 0;
    *status = info.exit_code;
    return 1;
}

static void find_out(const struct weft__death_watcher *watcher, const struct weft__peer *peer,
                     uint64_t until, char how[HOW_BYTES])
{
    int status;
    uint64_t now = weft__now();
    if (ask_proc(peer->pid, peer->pidfd, &status) || ask_kernel(peer->pidfd, &status) ||
        (watcher->page && peer->launched.launch == watcher->own.launch &&
         weft__launch_page_ended(watcher->page, peer->launched.rank, now < until ? until - now : 0,
                                 &status)))
        describe(status, how);
    else
        snprintf(how, HOW_BYTES, "its process has ended");
}

static void note(struct weft__death_watcher *watcher, int member, uint64_t until)
{
    struct weft__channel *channel = watcher->channel;
    struct end *end = &watcher->ends[member];
    find_out(watcher, &channel->peers[member], until, end->how);
    watcher->polls[member].fd = -1;
    atomic_store_explicit(&end->ended, 1, memory_order_release);
    /* Sequentially consistent: before the bell, whose sleepers look at it last. */
    atomic_store_explicit(&channel->alarm, 1, memory_order_seq_cst);
    weft__bell_wake(&channel->region->bell, WEFT__BELL_ANY);
}

static void *watch(void *argument)
{
    struct weft__death_watcher *watcher = argument;
    int size = watcher->channel->size;
    for (;;) {
        if (poll(watcher->polls, (nfds_t)size + 1, -1) < 0)
            continue; /* no memory for a moment: a signal is none of this thread's */
        if (watcher->polls[size].revents)
            return NULL;
        uint64_t until = weft__now() + HOW_NS;
        for (int member = 0; member < size; member++)
            if (watcher->polls[member].fd >= 0 && watcher->polls[member].revents)
                note(watcher, member, until);
    }
}

/* ---- the channel ---- */

static void discard(struct weft__death_watcher *watcher)
{
    if (watcher->stop >= 0)
        close(watcher->stop);
    weft__launch_page_close(watcher->page);
    weft__free(watcher->polls);
    weft__free(watcher->ends);
    weft__free(watcher);
}

/* Signals are for the program's own threads. */
static int start(struct weft__death_watcher *watcher)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&watcher->thread, NULL, watch, watcher);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int prepare(struct weft__death_watcher *watcher)
{
    const struct weft__channel *channel = watcher->channel;
    int size = channel->size;
    watcher->stop = eventfd(0, EFD_CLOEXEC);
    if (watcher->stop < 0)
        return weft__error(WEFT_ERR_SYSTEM, "a descriptor for who watches the other ranks: %s",
                           strerror(errno));
    watcher->polls = weft__calloc((size_t)size + 1, sizeof *watcher->polls);
    watcher->ends = weft__calloc((size_t)size, sizeof *watcher->ends);
    if (!watcher->polls || !watcher->ends)
        return weft__error_memory("who watches the other ranks");
    for (int member = 0; member < size; member++)
        watcher->polls[member] =
            (struct pollfd){.fd = channel->peers[member].pidfd, .events = POLLIN};
    watcher->polls[size] = (struct pollfd){.fd = watcher->stop, .events = POLLIN};
    weft__launched_quietly(&watcher->own);
    if (watcher->own.launch != 0)
        watcher->page = weft__launch_page_open();
    int error = start(watcher);
    return error ? weft__error(WEFT_ERR_SYSTEM, "the thread that watches the other ranks: %s",
                               strerror(error))
                 : WEFT_OK;
}

int weft__death_watch(struct weft__channel *channel)
{
    int others = 0;
    for (int member = 0; member < channel->size; member++)
        others += channel->peers[member].pidfd >= 0;
    if (others == 0)
        return WEFT_OK; /* in one process all die together */
    struct weft__death_watcher *watcher = weft__calloc(1, sizeof *watcher);
    if (!watcher)
        return weft__error_memory("who watches the other ranks");
    watcher->channel = channel;
    watcher->stop = -1;
    int status = prepare(watcher);
    if (status != WEFT_OK)
        discard(watcher);
    else
        channel->death = watcher;
    return status;
}

void weft__death_unwatch(struct weft__channel *channel)
{
    struct weft__death_watcher *watcher = channel->death;
    const uint64_t one = 1;
    if (!watcher)
        return;
    while (write(watcher->stop, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_join(watcher->thread, NULL);
    discard(watcher);
    channel->death = NULL;
}

int weft__death_poll(struct weft__channel *channel)
{
    const struct weft__death_watcher *watcher = channel->death;
    int count = 0;
    for (int member = 0; watcher && member < channel->size; member++) {
        struct weft__peer *peer = &channel->peers[member];
        struct end *end = &watcher->ends[member];
        if (end->told || !atomic_load_explicit(&end->ended, memory_order_acquire))
            continue;
        count += weft__channel_drain(channel, peer);
        if (weft__ring_has(channel, peer)) { /* no memory for the rest now */
            atomic_store_explicit(&channel->alarm, 1, memory_order_relaxed);
            continue;
        }
        end->told = 1;
        weft__channel_lost(channel, peer, end->how);
        count++;
    }
    return count;
}
