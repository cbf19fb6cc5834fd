/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a program with libweft-pmpi before its MPI, and a folder for what its ranks write.
 *
 * The program is in the process group of this process, so what a terminal sends (Ctrl-C) reaches it
 * without us; what somebody else sends to us alone is passed on. Nothing but the end of the program
 * ends this process meanwhile, so that the folder is removed whatever happens; a signal that comes
 * when there is no program is kept until that has been done.
 *
 * posix_spawn() calls no handlers of libraries, of which BLAS has some that wait for its threads.
 * These may get signals, too, so blocking them in one thread is no way to hold them back.
 */
#include "tools/cli/cli.h"
#include "tools/cli/ranks.h"
#include "tools/commands/profile.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_FOUND = 127, NOT_EXECUTABLE = 126, BY_SIGNAL = 128 };

static const int guarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
enum { GUARDED = sizeof guarded / sizeof guarded[0] };

static atomic_int child; /* the program; 0: there is none */
static atomic_int kept;  /* a signal that came without one; 0: none did */
static struct sigaction before[GUARDED];

/* ---- signals ---- */

/* On any thread. The program begins between our two looks, or the starter sees what is kept. */
static void on_signal(int number, siginfo_t *info, void *unused)
{
    int error = errno;
    int pid = atomic_load(&child);

    (void)unused;
    if (!pid) {
        atomic_store(&kept, number);
        pid = atomic_load(&child);
        number = pid ? atomic_exchange(&kept, 0) : 0;
    } else if (info->si_code == SI_KERNEL) {
        number = 0; /* a terminal has told it */
    }
    if (pid && number)
        kill(pid, number);
    errno = error;
}

/* What is ignored, by nohup or by a shell for what is in the background, stays so. */
void profile_guard_begin(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < GUARDED; i++)
        sigaddset(&action.sa_mask, guarded[i]);
    for (size_t i = 0; i < GUARDED; i++)
        if (sigaction(guarded[i], NULL, &before[i]) == 0 && before[i].sa_handler != SIG_IGN)
            sigaction(guarded[i], &action, NULL);
}

void profile_guard_end(void)
{
    for (size_t i = 0; i < GUARDED; i++)
        sigaction(guarded[i], &before[i], NULL);
    int number = atomic_exchange(&kept, 0);
    if (number)
        raise(number);
}

int profile_guard_kept(void)
{
    return atomic_load(&kept);
}

/* ---- the environment ---- */

/* A variable of the program. */
enum variable { PRELOAD, STATS, WHO, OPEN_MPI, VARIABLES };

static const char *const names[VARIABLES] = {
    [PRELOAD] = "LD_PRELOAD",
    [STATS] = "WEFT_PMPI_STATS",
    [WHO] = "WEFT_PMPI",
    [OPEN_MPI] = "OMPI_MCA_mca_base_env_list",
};

/* What is in an environment, or NULL; an empty text is nothing. */
static const char *there(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static int has_word(char **words, const char *word)
{
    for (; *words; words++)
        if (strcmp(*words, word) == 0)
            return 1;
    return 0;
}

/* "NAME=first" with what follows after a separator; NULL: no memory. */
static char *joined(const char *name, const char *first, const char *separator, const char *more)
{
    char *text;

    return asprintf(&text, "%s=%s%s%s", name, first, more ? separator : "", more ? more : "") < 0
               ? NULL
               : text;
}

/* Our own variables. What is not set stays NULL. 0, or -1 without memory.
 *
 * Open MPI's mpiexec hands on to other hosts what this list names, or what -x names; it refuses
 * both at once. MPICH's hands on everything. */
static int make_own(const struct profile_run *run, char *own[VARIABLES])
{
    const char *list = run->who || there(names[WHO]) ? "LD_PRELOAD;WEFT_PMPI_STATS;WEFT_PMPI"
                                                     : "LD_PRELOAD;WEFT_PMPI_STATS";
    int lists = !has_word(run->words, "-x");

    own[PRELOAD] = joined(names[PRELOAD], run->library, ":", there(names[PRELOAD]));
    own[STATS] = joined(names[STATS], run->stats, "", NULL);
    own[WHO] = run->who ? joined(names[WHO], run->who, "", NULL) : NULL;
    own[OPEN_MPI] = lists ? joined(names[OPEN_MPI], list, ";", there(names[OPEN_MPI])) : NULL;
    return own[PRELOAD] && own[STATS] && (own[WHO] || !run->who) && (own[OPEN_MPI] || !lists) ? 0
                                                                                              : -1;
}

/* 1: `variable` is NAME=VALUE. */
static int is_named(const char *variable, const char *name)
{
    size_t length = strlen(name);

    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

/* The environment with our own in place of what is of their names. For free(); the texts are
 * others'. NULL: no memory. */
static char **merge_environment(char *const own[VARIABLES])
{
    size_t others = 0, count = 0;

    while (environ && environ[others])
        others++;
    char **all = calloc(others + VARIABLES + 1, sizeof *all);
    for (int v = 0; all && v < VARIABLES; v++)
        if (own[v])
            all[count++] = own[v];
    for (size_t i = 0; all && i < others; i++) {
        int v = 0;
        while (v < VARIABLES && !(own[v] && is_named(environ[i], names[v])))
            v++;
        if (v == VARIABLES)
            all[count++] = environ[i];
    }
    return all;
}

/* ---- the program ---- */

static int spawn(const struct profile_run *run, char **environment, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);

    if (error)
        return error;
    if (run->to_error)
        error = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    if (!error)
        error = posix_spawnp(pid, run->words[0], &actions, NULL, run->words, environment);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Once it has ended it gets no signals, and then its number is free for others. */
static int wait_for(pid_t pid)
{
    siginfo_t info;
    int status = 0;

    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    atomic_store(&child, 0);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? BY_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run_in(struct profile_run *run, char **environment)
{
    pid_t pid;
    int number = profile_guard_kept();

    if (number)
        return BY_SIGNAL + number;
    fflush(stdout);
    uint64_t began = ranks_now();
    int error = spawn(run, environment, &pid);
    if (error) {
        cli_usage(run->command, "%s: %s; expected a program", run->words[0], strerror(error));
        return error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
    }
    atomic_store(&child, pid);
    number = atomic_exchange(&kept, 0);
    if (number)
        kill(pid, number);
    run->status = wait_for(pid);
    run->seconds = (double)(ranks_now() - began) * 1e-9;
    return 0;
}

int profile_execute(struct profile_run *run)
{
    char *own[VARIABLES] = {NULL};
    char **environment = make_own(run, own) == 0 ? merge_environment(own) : NULL;
    int status = environment ? run_in(run, environment)
                             : cli_fail(run->command, "no memory for an environment");

    free(environment);
    for (int v = 0; v < VARIABLES; v++)
        free(own[v]);
    return status;
}

/* ---- the folder ---- */

int profile_make_folder(const char *command, char *path, size_t room)
{
    const char *above = there("TMPDIR") ? there("TMPDIR") : "/tmp";

    if ((size_t)snprintf(path, room, "%s/weft-profile.XXXXXX", above) >= room)
        return cli_usage(command, "TMPDIR: a name of %zu characters; expected at most %zu",
                         strlen(above), room);
    if (!mkdtemp(path))
        return cli_usage(command, "TMPDIR: %s: %s; expected a folder that can be written to", above,
                         strerror(errno));
    return 0;
}

void profile_remove_folder(const char *path)
{
    DIR *folder = opendir(path);

    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        (void)unlinkat(dirfd(folder), entry->d_name, 0); /* "." and ".." stay */
    if (folder)
        closedir(folder);
    (void)rmdir(path);
}
