/* SPDX-License-Identifier: BSD-3-Clause */
#include "forked.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Longer than any test takes that is not stuck; below the timeouts of runners. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SECONDS = 900 };
#else
enum { SECONDS = 300 };
#endif
enum { FAILED = 1 };

/* Of the address sanitizer: ends the process if something has leaked. A child that is forked from a
 * runner must not run the runner's handlers of exit(), where this would be done. */
extern void __lsan_do_leak_check(void) __attribute__((weak));

static void die(const char *what)
{
    perror(what);
    abort();
}

/* ---- in a rank ---- */

void forked_come(struct forked_rank *self)
{
    self->meetings++;
    atomic_fetch_add_explicit(&self->forked->arrived, 1, memory_order_acq_rel);
}

int forked_all_came(const struct forked_rank *self)
{
    unsigned arrived = atomic_load_explicit(&self->forked->arrived, memory_order_acquire);
    return arrived >= self->meetings * (unsigned)self->forked->size;
}

void forked_meet(struct forked_rank *self)
{
    forked_come(self);
    while (!forked_all_came(self))
        sched_yield();
}

int forked_gather(void *user, const void *mine, size_t bytes, void *all)
{
    struct forked_rank *self = user;
    struct forked *forked = self->forked;
    for (size_t done = 0; done < bytes; done += FORKED_AREA) {
        size_t part = bytes - done < FORKED_AREA ? bytes - done : FORKED_AREA;
        memcpy(forked->ranks[self->rank].area, (const char *)mine + done, part);
        forked_meet(self);
        for (int r = 0; r < forked->size; r++)
            memcpy((char *)all + (size_t)r * bytes + done, forked->ranks[r].area, part);
        forked_meet(self); /* before the areas are written again */
    }
    return 0;
}

static void leave(int status)
{
    fflush(NULL);
    if (status == 0 && __lsan_do_leak_check)
        __lsan_do_leak_check();
    _exit(status);
}

void forked_fail(const struct forked_rank *self, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(self->forked->ranks[self->rank].text, FORKED_TEXT, format, arguments);
    va_end(arguments);
    leave(FAILED);
}

int forked_count_maps(const char *word)
{
    char line[4096];
    int found = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file))
        found += strstr(line, word) != NULL;
    if (file)
        fclose(file);
    return found;
}

/* ---- in their parent ---- */

static struct forked *make(int size)
{
    struct forked *forked =
        mmap(NULL, sizeof *forked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t number = 0;
    if (forked == MAP_FAILED || size < 1 || size > FORKED_RANKS)
        die("forked: memory");
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        die("forked: getrandom");
    forked->size = size;
    snprintf(forked->name, sizeof forked->name, "test-%ld-%016llx", (long)getpid(),
             (unsigned long long)number);
    return forked;
}

int forked_fork(int size, struct forked **out, struct forked_rank *self)
{
    struct forked *forked = make(size);
    pid_t parent = getpid();
    *out = forked;
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        pid_t pid = fork();
        if (pid < 0)
            die("forked: fork");
        if (pid == 0) {
            *self = (struct forked_rank){.forked = forked, .rank = r};
            /* It ends with its parent, however that ends. */
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
                _exit(FAILED);
            setenv("WEFT_STALL", "60", 0); /* who is stuck says in what */
            return 1;
        }
        forked->pids[r] = pid;
        forked->pidfds[r] = (int)syscall(SYS_pidfd_open, pid, 0);
        if (forked->pidfds[r] < 0)
            die("forked: pidfd_open");
    }
    return 0;
}

struct forked *forked_start(int size, forked_fn fn, void *user)
{
    struct forked *forked = NULL;
    struct forked_rank self;
    if (forked_fork(size, &forked, &self))
        leave(fn(&self, user));
    return forked;
}

void forked_kill(struct forked *forked, int rank, int signal)
{
    forked->killed[rank] = 1;
    kill(forked->pids[rank], signal); /* not reaped before forked_end(): no other process' number */
}

/* How a rank has ended; 0: as it should. */
static int judge(const struct forked *forked, int rank, int status, char *text, size_t bytes)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (forked->killed[rank] && WIFSIGNALED(status))
        return 0;
    if (WIFSIGNALED(status))
        snprintf(text, bytes, "rank %d was ended by signal %d (%s)", rank, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, bytes, "rank %d exited with %d: %s", rank, WEXITSTATUS(status),
                 forked->ranks[rank].text);
    return 1;
}

/* Waits for a rank that ends, those that were killed among them or not; -1: none does. */
static int next_to_end(const struct forked *forked, int killed, int milliseconds)
{
    struct pollfd waits[FORKED_RANKS];
    for (int r = 0; r < forked->size; r++) /* those that have ended are -1, and left out */
        waits[r] = (struct pollfd){.fd = forked->killed[r] && !killed ? -1 : forked->pidfds[r],
                                   .events = POLLIN};
    poll(waits, (nfds_t)forked->size, milliseconds);
    for (int r = 0; r < forked->size; r++)
        if (waits[r].revents)
            return r;
    return -1;
}

int forked_ended(const struct forked *forked)
{
    return next_to_end(forked, 0, 0) >= 0;
}

/* Names those that have not ended. */
static void tell_stuck(const struct forked *forked, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "after %d s these have not ended: rank", SECONDS);
    for (int r = 0; r < forked->size; r++)
        if (forked->pidfds[r] >= 0 && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, " %d", r);
}

static void kill_all(struct forked *forked)
{
    for (int r = 0; r < forked->size; r++)
        if (forked->pidfds[r] >= 0)
            forked_kill(forked, r, SIGKILL);
}

int forked_wait(struct forked *forked, char *text, size_t bytes)
{
    time_t limit = time(NULL) + SECONDS;
    int failed = 0;
    text[0] = '\0';
    for (int left = forked->size; left > 0;) {
        int status = 0, r = next_to_end(forked, 1, 1000);
        if (r < 0) {
            if (time(NULL) >= limit && !failed) {
                tell_stuck(forked, text, bytes);
                failed = 1;
                kill_all(forked);
            }
            continue;
        }
        if (waitpid(forked->pids[r], &status, 0) != forked->pids[r])
            die("forked: waitpid");
        close(forked->pidfds[r]);
        forked->pidfds[r] = -1;
        left--;
        if (judge(forked, r, status, failed ? (char[1]){""} : text, failed ? 1 : bytes) &&
            !failed) {
            failed = 1;
            kill_all(forked); /* they may wait for it for ever */
        }
    }
    return failed;
}

void forked_free(struct forked *forked)
{
    munmap(forked, sizeof *forked);
}

int forked_end(struct forked *forked, char *text, size_t bytes)
{
    int failed = forked_wait(forked, text, bytes);
    forked_free(forked);
    return failed;
}

int forked_run(int size, forked_fn fn, void *user, char *text, size_t bytes)
{
    return forked_end(forked_start(size, fn, user), text, bytes);
}
