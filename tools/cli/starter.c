/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes of a launch. One thread sleeps in poll() on three kinds of things: signals, of
 * which one tells that a process has ended; what the ranks write, if it is to get their numbers;
 * and the time at which those that are still there are ended.
 *
 * Ranks are in the process group of this process, so what a terminal sends (Ctrl-C, Ctrl-Z) reaches
 * them without it; what somebody else sends to it alone is passed on. They are killed by the kernel
 * when it dies. What they have started themselves and left behind becomes its child, and is ended
 * with them if they are ended.
 *
 * Signals come by a handler and a pipe: libraries may have threads of their own, that of BLAS has
 * some, which do not block what this one blocks, so that a signalfd would miss what they get.
 *
 * Between fork and exec a process does only what a signal handler may do: those other threads may
 * have held any lock.
 */
#include "tools/cli/starter.h"

#include "tools/cli/cli.h"
#include "tools/cli/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/shared.h>

enum {
    STREAMS = 2,          /* standard output, standard error */
    LINE_MOST = 64 << 10, /* longer ones are cut into several */
    NOT_FOUND = 127,
    NOT_EXECUTABLE = 126,
    BY_SIGNAL = 128
};

static const int caught[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                             SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};
enum { CAUGHT = sizeof caught / sizeof caught[0] };

/* A signal, as the handler writes it into the pipe. */
struct caught_signal {
    int number;
    int code; /* si_code */
};
static int signal_pipe = -1;

/* What a rank writes on one of its streams, until there is a line of it. */
struct stream {
    int file; /* -1: ended */
    size_t length;
    char *line; /* LINE_MOST bytes */
};

struct process {
    pid_t pid; /* 0: has ended */
    struct stream streams[STREAMS];
};

struct group {
    const struct starter *starter;
    struct weft_launch *launch;
    struct process *processes;
    struct pollfd *polls;
    int running;
    int signals;     /* the reading end of the pipe */
    sigset_t caught; /* the signals of the handler */
    sigset_t old_mask;
    struct sigaction old_actions[CAUGHT];
    int failed; /* the first that has: its exit status; 0: none has */
    int own;    /* the first that has ended by itself, and not well: its exit status */
    int well;   /* one has ended well */
    int interrupted;
    int lost[STREAMS]; /* why what ranks write on it could not be passed on: an errno, or 0 */
    uint64_t term_at, kill_at; /* 0: not */
    int terminated;
};

static uint64_t after(double seconds)
{
    return ranks_now() + (uint64_t)(seconds * 1e9);
}

/* ---- one process, in itself ---- */

static void bind_rank(const struct starter *starter, int rank)
{
    cpu_set_t all;
    cpu_set_t own;
    int cores[CPU_SETSIZE];
    int count = 0;

    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all))
            cores[count++] = i;
    CPU_ZERO(&own);
    if (count < starter->ranks)
        CPU_SET(cores[rank % count], &own);
    else
        for (int i = rank * count / starter->ranks; i < (rank + 1) * count / starter->ranks; i++)
            CPU_SET(cores[i], &own);
    (void)sched_setaffinity(0, sizeof own, &own); /* advice: it runs without, too */
}

/* What the program gets. Ends with why not. */
static void become(struct group *group, int rank, char **variables, int outputs[STREAMS],
                   int report)
{
    const struct starter *starter = group->starter;
    int null = -1;

    if (rank > 0) {
        null = open("/dev/null", O_RDONLY);
        if (null >= 0 && null != STDIN_FILENO) {
            dup2(null, STDIN_FILENO);
            close(null);
        }
    }
    for (int s = 0; starter->prefix && s < STREAMS; s++)
        dup2(outputs[s], STDOUT_FILENO + s);
    if (starter->bind)
        bind_rank(starter, rank);
    signal(SIGPIPE, SIG_DFL);
    for (size_t i = 0; i < CAUGHT; i++)
        sigaction(caught[i], &group->old_actions[i], NULL);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &group->old_mask, NULL);
    execvpe(starter->words[0], starter->words, variables);
    int error = errno;
    ssize_t told = write(report, &error, sizeof error);
    (void)told;
    _exit(error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE);
}

/* ---- all of them ---- */

/* No handlers of libraries run: one of BLAS joins its threads, and they may wait for memory. */
static pid_t fork_alone(void)
{
#ifdef WEFT_HAVE_FORK_ALONE
    return _Fork();
#else
    return fork();
#endif
}

/* 1: both are of the same name. */
static int same_name(const char *variable, const char *other)
{
    size_t length = strcspn(variable, "=");

    return strncmp(variable, other, length) == 0 && other[length] == '=';
}

/* The environment of a rank; the strings are others'. For free(); NULL: no memory. */
static char **environment_of(const struct group *group, int rank)
{
    size_t own = 0, others = 0, count;

    while (weft_launch_variable(group->launch, rank, (int)own))
        own++;
    while (environ && environ[others])
        others++;
    char **variables = calloc(own + others + 1, sizeof *variables);
    if (!variables)
        return NULL;
    for (count = 0; count < own; count++)
        variables[count] = (char *)weft_launch_variable(group->launch, rank, (int)count);
    for (size_t i = 0; i < others; i++) {
        size_t v = 0;
        while (v < own && !same_name(variables[v], environ[i]))
            v++;
        if (v == own)
            variables[count++] = environ[i];
    }
    return variables;
}

static int start_one(struct group *group, int rank, int report)
{
    struct process *process = &group->processes[rank];
    int ends[STREAMS][2];
    int outputs[STREAMS] = {-1, -1};
    pid_t parent = getpid();

    for (int s = 0; group->starter->prefix && s < STREAMS; s++) {
        if (pipe2(ends[s], O_CLOEXEC) != 0)
            return errno;
        process->streams[s].file = ends[s][0];
        process->streams[s].line = malloc(LINE_MOST);
        if (!process->streams[s].line)
            return ENOMEM;
        fcntl(ends[s][0], F_SETFL, O_NONBLOCK);
        outputs[s] = ends[s][1];
    }
    char **variables = environment_of(group, rank);
    /* What comes before the new process has its own actions again is not for the handler there. */
    sigprocmask(SIG_BLOCK, &group->caught, NULL);
    pid_t pid = variables ? fork_alone() : -1;
    int error = variables ? errno : ENOMEM;
    if (pid == 0) {
        /* The parent may have died before this was said. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(BY_SIGNAL + SIGKILL);
        become(group, rank, variables, outputs, report);
    }
    sigprocmask(SIG_UNBLOCK, &group->caught, NULL);
    free(variables);
    for (int s = 0; s < STREAMS; s++)
        if (outputs[s] >= 0)
            close(outputs[s]);
    if (pid < 0)
        return error;
    process->pid = pid;
    group->running++;
    return 0;
}

/* Rank 0 last: the others are to have heard of it before they see that one has ended. */
static void signal_all(struct group *group, int signal)
{
    for (int r = group->starter->ranks - 1; r >= 0; r--)
        if (group->processes[r].pid > 0)
            kill(group->processes[r].pid, signal);
}

/* What ranks have started and left behind: children of this process that are none of them. */
static void signal_orphans(struct group *group, int signal)
{
    char path[64];
    long child;

    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    FILE *list = fopen(path, "re");
    while (list && fscanf(list, "%ld", &child) == 1) {
        int rank = 0;
        while (rank < group->starter->ranks && group->processes[rank].pid != (pid_t)child)
            rank++;
        if (rank == group->starter->ranks)
            kill((pid_t)child, signal);
    }
    if (list)
        fclose(list);
}

/* Starts all. 0, or an exit status after a line. */
static int start_all(struct group *group)
{
    const struct starter *starter = group->starter;
    int report[2];
    int error = 0;
    int failed = 0;

    if (pipe2(report, O_CLOEXEC) != 0)
        return cli_fail(starter->command, "pipe: %s", strerror(errno));
    fflush(NULL);
    for (int r = 0; r < starter->ranks && !failed; r++)
        failed = start_one(group, r, report[1]);
    close(report[1]);
    /* It ends when the programs have taken the place of all. */
    ssize_t got;
    do
        got = read(report[0], &error, sizeof error);
    while (got < 0 && errno == EINTR);
    close(report[0]);
    if (failed)
        return cli_fail(starter->command, "starting %d processes: %s", starter->ranks,
                        strerror(failed));
    if (got != (ssize_t)sizeof error)
        return 0;
    cli_fail(starter->command, "%s: %s", starter->words[0], strerror(error));
    return error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
}

/* ---- what they write ---- */

/* 0, or an errno. */
static int write_all(int file, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(file, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){.fd = file, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (written <= 0)
            return written < 0 ? errno : EIO;
        text += written;
        length -= (size_t)written;
    }
    return 0;
}

static void write_line(struct group *group, int rank, int s, size_t length)
{
    struct stream *stream = &group->processes[rank].streams[s];
    char prefix[24];
    char whole[24 + LINE_MOST + 1];

    int used = snprintf(prefix, sizeof prefix, "[%d] ", rank);
    memcpy(whole, prefix, (size_t)used);
    memcpy(whole + used, stream->line, length);
    size_t all = (size_t)used + length;
    if (length == 0 || stream->line[length - 1] != '\n')
        whole[all++] = '\n';
    if (!group->lost[s])
        group->lost[s] = write_all(STDOUT_FILENO + s, whole, all);
    stream->length -= length;
    memmove(stream->line, stream->line + length, stream->length);
}

static void close_stream(struct stream *stream)
{
    close(stream->file);
    stream->file = -1;
}

/* Reads what there is. */
static void take_output(struct group *group, int rank, int s)
{
    struct stream *stream = &group->processes[rank].streams[s];

    while (!group->lost[s]) {
        ssize_t got = read(stream->file, stream->line + stream->length, LINE_MOST - stream->length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            if (stream->length)
                write_line(group, rank, s, stream->length);
            close_stream(stream);
            return;
        }
        stream->length += (size_t)got;
        char *end;
        while ((end = memchr(stream->line, '\n', stream->length)))
            write_line(group, rank, s, (size_t)(end - stream->line) + 1);
        if (stream->length == LINE_MOST)
            write_line(group, rank, s, stream->length);
    }
    /* What is written to a stream that nobody reads ends its writer, as it would without us. */
    close_stream(stream);
}

static void take_outputs(struct group *group)
{
    for (int r = 0; r < group->starter->ranks; r++)
        for (int s = 0; s < STREAMS; s++)
            if (group->processes[r].streams[s].file >= 0)
                take_output(group, r, s);
}

/* ---- how they end ---- */

static void end_all(struct group *group, double patience_s)
{
    if (!group->term_at)
        group->term_at = after(patience_s);
}

static void say(const struct group *group, int rank, int status, int ending)
{
    const char *rest = ending ? "; the others are ended" : "";
    const char *command = group->starter->command;

    if (WIFSIGNALED(status))
        cli_fail(command, "rank %d was ended by signal %d (%s)%s", rank, WTERMSIG(status),
                 strsignal(WTERMSIG(status)), rest);
    else if (!group->starter->quiet)
        cli_fail(command, "rank %d has ended with status %d%s", rank, WEXITSTATUS(status), rest);
}

static void has_ended(struct group *group, int rank, int status)
{
    const struct starter *starter = group->starter;
    int code = WIFSIGNALED(status) ? BY_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
    int first = !group->failed;

    group->processes[rank].pid = 0;
    group->running--;
    weft_launch_ended(group->launch, rank, status);
    if (code == 0) {
        group->well = 1;
        return;
    }
    if (first)
        group->failed = code;
    if (!WIFSIGNALED(status) && !group->own)
        group->own = code;
    int ending = !starter->keep_going && group->running > 0;
    if ((first || starter->keep_going) && !group->interrupted && !group->terminated)
        say(group, rank, status, ending && first);
    if (!starter->keep_going)
        end_all(group, starter->patience_s);
}

static void reap(struct group *group)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int r = 0; r < group->starter->ranks; r++)
            if (group->processes[r].pid == pid) {
                has_ended(group, r, status);
                break;
            }
}

/* ---- signals ---- */

/* A terminal has told the ranks itself. SIGTSTP stops nobody in a group that no shell watches, so
 * it is SIGSTOP that they get. */
static void pass_on(struct group *group, const struct caught_signal *info)
{
    int signal = info->number;
    int ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;

    if (info->code != SI_KERNEL)
        signal_all(group, signal == SIGTSTP ? SIGSTOP : signal);
    if (signal == SIGTSTP)
        kill(getpid(), SIGSTOP);
    /* Who asks a second time means it. */
    if (ends && group->interrupted++)
        end_all(group, 0);
}

static void take_signals(struct group *group)
{
    struct caught_signal info;

    while (read(group->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.number != SIGCHLD)
            pass_on(group, &info);
}

/* On any thread. A full pipe wakes its reader as well, who looks at all processes. */
static void catch (int number, siginfo_t *info, void *unused)
{
    const struct caught_signal signal = {number, info->si_code};
    int error = errno;
    ssize_t told = write(signal_pipe, &signal, sizeof signal);

    (void)told;
    (void)unused;
    errno = error;
}

static int catch_signals(struct group *group)
{
    struct sigaction action = {.sa_sigaction = catch,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP};
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    group->signals = ends[0];
    signal_pipe = ends[1];
    sigemptyset(&group->caught);
    for (size_t i = 0; i < CAUGHT; i++)
        sigaddset(&group->caught, caught[i]);
    action.sa_mask = group->caught;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < CAUGHT; i++)
        sigaction(caught[i], &action, &group->old_actions[i]);
    /* Whoever has started this may block some. */
    return sigprocmask(SIG_UNBLOCK, &group->caught, &group->old_mask);
}

/* ---- until all have ended ---- */

/* SIGTERM, and SIGKILL later, to those that are still there. */
static void keep_time(struct group *group)
{
    uint64_t now = ranks_now();

    if (group->term_at && !group->terminated && now >= group->term_at) {
        group->terminated = 1;
        group->kill_at = after(group->starter->grace_s);
        signal_all(group, SIGTERM);
        signal_all(group, SIGCONT); /* who is stopped hears nothing */
        signal_orphans(group, SIGTERM);
    }
    if (group->kill_at && now >= group->kill_at) {
        signal_all(group, SIGKILL);
        signal_orphans(group, SIGKILL);
    }
}

static int time_left(const struct group *group)
{
    uint64_t now = ranks_now();
    uint64_t at = group->terminated ? group->kill_at : group->term_at;

    if (!at)
        return -1;
    /* Once killed, they end; what they leave behind is looked for again. */
    return at <= now ? 20 : (int)((at - now) / 1000000 + 1);
}

static void look(struct group *group)
{
    nfds_t count = 0;

    group->polls[count++] = (struct pollfd){.fd = group->signals, .events = POLLIN};
    for (int r = 0; r < group->starter->ranks; r++)
        for (int s = 0; s < STREAMS; s++)
            if (group->processes[r].streams[s].file >= 0)
                group->polls[count++] =
                    (struct pollfd){.fd = group->processes[r].streams[s].file, .events = POLLIN};
    (void)poll(group->polls, count, time_left(group));
    take_signals(group);
    take_outputs(group);
    reap(group);
    keep_time(group);
}

/* What the ranks of a launch that has failed have left behind, which is this process' child only
 * since they have ended. */
static void end_orphans(struct group *group)
{
    uint64_t until = group->terminated ? group->kill_at : after(group->starter->grace_s);

    while (waitpid(-1, NULL, WNOHANG) >= 0) {
        signal_orphans(group, ranks_now() < until ? SIGTERM : SIGKILL);
        poll(NULL, 0, 10);
    }
}

static int exit_status(const struct group *group)
{
    if (!group->starter->keep_going)
        return group->failed;
    return group->own ? group->own : group->well ? 0 : group->failed;
}

/* Says what could not be passed on. The exit status, which is `status` unless that is 0. */
static int say_lost(const struct group *group, int status)
{
    static const char *const names[STREAMS] = {"standard output", "standard error"};

    for (int s = 0; s < STREAMS; s++) {
        if (!group->lost[s])
            continue;
        /* Of a pipe that nobody reads others only die. */
        int code = BY_SIGNAL + SIGPIPE;
        if (group->lost[s] != EPIPE)
            code = cli_usage(group->starter->command, "%s: %s", names[s], strerror(group->lost[s]));
        status = status ? status : code;
    }
    return status;
}

/* Files that are opened now are none of the standard ones, which somebody writes to. */
static void open_standard_files(void)
{
    int file;

    do
        file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

static int open_group(struct group *group, const struct starter *starter)
{
    size_t ranks = (size_t)starter->ranks;

    group->starter = starter;
    group->signals = -1;
    open_standard_files();
    group->processes = calloc(ranks, sizeof *group->processes);
    group->polls = calloc(1 + STREAMS * ranks, sizeof *group->polls);
    if (!group->processes || !group->polls)
        return cli_fail(starter->command, "no memory for %d processes", starter->ranks);
    for (size_t r = 0; r < ranks; r++)
        for (int s = 0; s < STREAMS; s++)
            group->processes[r].streams[s].file = -1;
    if (weft_launch_create(&group->launch, starter->ranks) != WEFT_OK)
        return cli_fail(starter->command, "%s", weft_error_text());
    if (catch_signals(group) != 0)
        return cli_fail(starter->command, "pipe: %s", strerror(errno));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return 0;
}

static void close_group(struct group *group)
{
    for (int r = 0; group->processes && r < group->starter->ranks; r++)
        for (int s = 0; s < STREAMS; s++) {
            if (group->processes[r].streams[s].file >= 0)
                close(group->processes[r].streams[s].file);
            free(group->processes[r].streams[s].line);
        }
    weft_launch_destroy(group->launch);
    free(group->processes);
    free(group->polls);
}

int starter_run(const struct starter *starter)
{
    struct group group = {0};
    int status = open_group(&group, starter);

    if (!status) {
        status = start_all(&group);
        if (status) {
            signal_all(&group, SIGKILL);
            group.terminated = 1; /* no more lines */
        }
        while (group.running > 0)
            look(&group);
        if (group.terminated || (group.failed && !starter->keep_going))
            end_orphans(&group);
        take_outputs(&group);
        if (!status)
            status = say_lost(&group, exit_status(&group));
    }
    close_group(&group);
    return status;
}
