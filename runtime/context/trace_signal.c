/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The traces of a program that a signal ends.
 *
 * With WEFT_TRACE a context writes its trace when it is destroyed. SIGTERM, SIGINT and SIGHUP end a
 * program before that, so they are caught while there is such a context:
 *
 *     signal --> handler   writes its number to a pipe; calls the handler that was there before
 *                  |
 *                  v
 *                thread    takes each context between two steps, writes its trace; if there was no
 *                          handler before: gives the signal its default action
 *
 * Files cannot be written in a handler, nor can it wait for the engine, which the thread that it
 * interrupts may be driving: so there is a thread. A signal that the program ignores stays ignored.
 * A second one of a kind, where there was no handler, ends the program at once. A child that was
 * forked has no such thread: there the signal has its default action.
 */
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a context is waited for whose engine somebody drives on and on, as in an operation of a
 * user that does not return. Nothing is recorded then, so its trace is taken as it is. */
#define PATIENCE_NS UINT64_C(1000000000)
/* One at least has each, if those before it have used that up: files take their time. */
#define MOMENT_NS UINT64_C(100000000)

enum { SIGNALS = 3, STOP = SIGNALS };
static const int numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

static struct sigaction before[SIGNALS]; /* of the application */
static atomic_int caught[SIGNALS];
static int ends[2] = {-1,
                      -1}; /* of the pipe; made once, and never closed: a handler may write to it */
static pid_t owner;

/* Held while the thread is started or stopped, then while the list is changed or gone through; the
 * thread takes the second alone. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static int has_thread;
static struct weft_context *watched;

_Atomic unsigned weft__traces_asked;

/* ---- the handler ---- */

static int has_handler(const struct sigaction *action)
{
    return action->sa_flags & SA_SIGINFO ||
           (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

static void on_signal(int number, siginfo_t *info, void *machine)
{
    int error = errno;
    int i = 0;
    while (i < SIGNALS - 1 && numbers[i] != number)
        i++;
    int theirs = has_handler(&before[i]);
    unsigned char byte = (unsigned char)i;
    int told = getpid() == owner && (theirs || !atomic_exchange(&caught[i], 1)) &&
               write(ends[1], &byte, 1) == 1;
    if (theirs && before[i].sa_flags & SA_SIGINFO) {
        before[i].sa_sigaction(number, info, machine);
    } else if (theirs) {
        before[i].sa_handler(number);
    } else if (!told) {
        signal(number, SIG_DFL);
        raise(number); /* comes when this handler has returned */
    }
    errno = error;
}

static int is_ours(const struct sigaction *action)
{
    return action->sa_flags & SA_SIGINFO && action->sa_sigaction == on_signal;
}

static void install(int i)
{
    struct sigaction action;
    atomic_store(&caught[i], 0);
    if (sigaction(numbers[i], NULL, &action) != 0 || is_ours(&action))
        return; /* a child of the program that was forked has ours already */
    before[i] = action;
    if (!has_handler(&before[i]) && before[i].sa_handler == SIG_IGN)
        return;
    action = (struct sigaction){.sa_sigaction = on_signal};
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    if (has_handler(&before[i])) {
        action.sa_mask = before[i].sa_mask;
        action.sa_flags =
            SA_SIGINFO | (before[i].sa_flags & (SA_RESTART | SA_ONSTACK | SA_NODEFER));
    } else {
        sigemptyset(&action.sa_mask);
    }
    sigaction(numbers[i], &action, NULL);
}

/* If another one has been installed since, it stays. */
static void uninstall(int i)
{
    struct sigaction action;
    if (sigaction(numbers[i], NULL, &action) == 0 && is_ours(&action))
        sigaction(numbers[i], &before[i], NULL);
}

/* ---- the thread ---- */

/* Virtual ranks are driven by one thread, which looks whether it is asked to. */
static void await_virtual(struct weft_context *context, unsigned asked, uint64_t until)
{
    const struct timespec moment = {0, 1000000};
    while (atomic_load(&context->traces_written) != asked && weft__now() < until)
        nanosleep(&moment, NULL);
}

static void write_traces(void)
{
    unsigned asked = atomic_fetch_add(&weft__traces_asked, 1) + 1;
    pthread_mutex_lock(&lock);
    uint64_t until = weft__now() + PATIENCE_NS;
    const struct weft_context *stuck = NULL; /* of a family whose engine somebody does not let go */
    for (struct weft_context *context = watched; context; context = context->watched_next) {
        if (context->engine.transport->ops->block) {
            await_virtual(context, asked, until);
            continue;
        }
        uint64_t moment = context->root == stuck ? 0 : weft__now() + MOMENT_NS;
        int driving = weft__drive_lock_until(context, moment > until ? moment : until);
        weft__recorder_flush(context);
        if (driving)
            weft__drive_unlock(context);
        else
            stuck = context->root;
    }
    pthread_mutex_unlock(&lock);
}

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        unsigned char i = STOP;
        ssize_t got = read(ends[0], &i, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != 1 || i >= STOP)
            return NULL;
        write_traces();
        if (has_handler(&before[i]))
            continue;
        signal(numbers[i], SIG_DFL);
        kill(getpid(), numbers[i]);
    }
}

/* With every signal blocked: handlers are for the application's threads. */
static int start_thread(void)
{
    sigset_t all;
    sigset_t usual;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &usual);
    int error = pthread_create(&thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &usual, NULL);
    return error;
}

/* ---- contexts ---- */

static int begin(void)
{
    if (owner != getpid()) { /* at first, and in a child that was forked */
        if (pipe2(ends, O_CLOEXEC) != 0)
            return errno;
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
    }
    owner = getpid();
    int error = start_thread();
    for (int i = 0; i < SIGNALS && error == 0; i++)
        install(i);
    return error;
}

static void end(void)
{
    unsigned char stop = STOP;
    for (int i = 0; i < SIGNALS; i++)
        uninstall(i);
    while (write(ends[1], &stop, 1) != 1 && (errno == EINTR || errno == EAGAIN))
        continue;
    pthread_join(thread, NULL);
    has_thread = 0;
}

void weft__trace_watch(struct weft_context *context)
{
    int error = 0;
    pthread_mutex_lock(&life);
    int begins = !has_thread || owner != getpid();
    if (begins) /* of a child that was forked: all are its parent's */
        watched = NULL;
    pthread_mutex_lock(&lock);
    context->watched_next = watched;
    watched = context; /* before a signal is caught that would write it */
    pthread_mutex_unlock(&lock);
    if (begins) {
        error = begin();
        has_thread = error == 0;
    }
    if (error != 0)
        watched = NULL;
    pthread_mutex_unlock(&life);
    if (error != 0)
        weft__log(
            context, WEFT_LOG_WARNING,
            "WEFT_TRACE: no thread for signals, so the trace is lost if one ends the program: "
            "%s",
            strerror(error));
}

void weft__trace_unwatch(struct weft_context *context)
{
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&lock);
    struct weft_context **link = &watched;
    while (*link && *link != context)
        link = &(*link)->watched_next;
    int found = *link != NULL;
    if (found)
        *link = context->watched_next;
    int last = found && !watched;
    pthread_mutex_unlock(&lock);
    if (last && has_thread)
        end();
    pthread_mutex_unlock(&life);
}
