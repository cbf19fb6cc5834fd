/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/ranks.h"

#include "tools/cli/cli.h"
#include "tools/cli/transports.h"

#ifdef WEFT_HAVE_MPI
#    include <weft/mpi.h>
#endif

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What a launcher says of a process: hydra (MPICH), Open MPI, PMIx. */
static const char *const ranks_said[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", NULL};
static const char *const sizes_said[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", NULL};

/* The number in the first of some variables that is set; -1: none is. */
static int number_in(const char *const *names)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text)
            return (int)strtol(text, NULL, 10);
    }
    return -1;
}

int ranks_under_mpiexec(void)
{
    return number_in(ranks_said) >= 0 || getenv("PMI_FD");
}

int ranks_processes(void)
{
    int size = number_in(sizes_said);

    if (size >= 0)
        return size;
    return number_in(ranks_said) > 0 ? 0 : 1;
}

int cli_is_follower(void)
{
    return number_in(ranks_said) > 0;
}

int ranks_refuse_mpiexec(const char *command)
{
    int processes = ranks_processes();
    char count[16] = "several";

    if (processes == 1)
        return 0;
    if (processes > 1)
        snprintf(count, sizeof count, "%d", processes);
    return cli_usage(command,
                     "--transport: local, by default, but mpiexec started %s processes; expected "
                     "--transport mpi (or --transport local: ranks of the first process alone)",
                     count);
}

uint64_t ranks_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#ifdef WEFT_HAVE_MPI

const char *ranks_mpiexec(void)
{
    static char found[PATH_MAX];
    static const char *const names[] = {"mpiexec.mpich", "mpiexec.hydra", "mpiexec"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (const char *path = getenv("PATH"); path && *path;) {
            int length = (int)strcspn(path, ":");
            snprintf(found, sizeof found, "%.*s/%s", length, path, names[i]);
            if (length && access(found, X_OK) == 0)
                return found;
            path += length + (path[length] == ':');
        }
    }
    return NULL;
}

int ranks_exec(int ranks, int argc, char **argv)
{
    char self[PATH_MAX];
    char count[16];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char **words = calloc((size_t)argc + 5, sizeof *words);

    if (length < 0 || !words || !ranks_mpiexec()) {
        free(words);
        errno = errno ? errno : ENOENT;
        return CLI_NO;
    }
    self[length] = '\0';
    snprintf(count, sizeof count, "%d", ranks);
    words[0] = (char *)ranks_mpiexec();
    words[1] = "-n";
    words[2] = count;
    words[3] = self;
    memcpy(words + 4, argv, (size_t)argc * sizeof *argv);
    fflush(stdout);
    execv(words[0], words);
    free(words);
    return CLI_NO;
}

int ranks_start_mpi(const char *command, int *rank, int *size)
{
    int started = 0;
    int level = MPI_THREAD_SINGLE;

    MPI_Initialized(&started);
    if (!started) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
            return cli_fail(command, "MPI_Init_thread failed");
        if (level < MPI_THREAD_MULTIPLE) {
            MPI_Finalize();
            return cli_fail(command, "MPI gives thread level %d, less than MPI_THREAD_MULTIPLE",
                            level);
        }
    }
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return 0;
}

/* MPICH before 4.2 over UCX and TCP: a rank that has closed its connections waits for the others
 * where nothing progresses, while they wait for it to confirm their closing (mpich pull request
 * 6596). With fewer cores than ranks every second run hangs there; tools/scripts/limited_link.sh
 * sets the variable. */
static int leaves_unfinalized(void)
{
    const char *wish = getenv("WEFT_FINALIZE");

    return wish && strcmp(wish, "0") == 0;
}

void ranks_stop_mpi(void)
{
    int started = 0;
    int stopped = 0;

    MPI_Initialized(&started);
    MPI_Finalized(&stopped);
    if (!started || stopped)
        return;
    if (leaves_unfinalized())
        MPI_Barrier(MPI_COMM_WORLD);
    else
        MPI_Finalize();
}

/* Waits until the pipe to the launcher is empty, 2 s at most. */
static void drain(int file)
{
    struct stat kind;
    int left = 0;

    if (fstat(file, &kind) != 0 || !S_ISFIFO(kind.st_mode))
        return;
    for (int i = 0; i < 2000 && ioctl(file, FIONREAD, &left) == 0 && left > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void ranks_abort_mpi(int status)
{
    fflush(stdout);
    drain(STDOUT_FILENO);
    drain(STDERR_FILENO);
    MPI_Abort(MPI_COMM_WORLD, status);
}

static int run_mpi(const struct weft_context_config *config, weft_rank_fn fn, void *user)
{
    struct weft_context *context;
    int status = weft_context_create_mpi(&context, MPI_COMM_WORLD, config, NULL);

    if (status == WEFT_OK) {
        char text[512] = "";
        status = fn(context, user);
        if (status < 0)
            snprintf(text, sizeof text, "%s", weft_error_text());
        weft_context_destroy(context);
        if (status < 0)
            weft_error_set(status, "%s", text);
    }
    return status;
}

#else

const char *ranks_mpiexec(void)
{
    return NULL;
}

int ranks_exec(int ranks, int argc, char **argv)
{
    (void)ranks, (void)argc, (void)argv;
    errno = ENOENT;
    return CLI_NO;
}

int ranks_start_mpi(const char *command, int *rank, int *size)
{
    (void)rank, (void)size;
    return cli_usage(command, "--transport: mpi was not built in; expected local");
}

void ranks_stop_mpi(void)
{
}

void ranks_abort_mpi(int status)
{
    (void)status;
}

static int run_mpi(const struct weft_context_config *config, weft_rank_fn fn, void *user)
{
    (void)config, (void)fn, (void)user;
    return weft_error_set(WEFT_ERR_UNSUPPORTED, "the MPI transport was not built in");
}

#endif

int ranks_run(const char *transport, int ranks, const struct weft_context_config *config,
              weft_rank_fn fn, void *user)
{
    if (cli_uses_processes(transport))
        return run_mpi(config, fn, user);
    return weft_local_run(ranks, config, fn, user);
}
