/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes that mpiexec starts, by way of the module that knows MPI (tools/mpi/module.h). */
#include "tools/cli/cli.h"
#include "tools/cli/module.h"
#include "tools/cli/ranks.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct cli_module needed = {.file = "command-mpi.so",
                                         .symbol = MPI_MODULE_SYMBOL,
                                         .size = sizeof(struct mpi_module),
                                         .does = "runs the command over MPI",
                                         .needs = "MPI"};
static const struct mpi_module *module;
static char why[PATH_MAX + 256];

const struct mpi_module *ranks_mpi(void)
{
    if (!module && !*why)
        module = cli_load_module(&needed, why, sizeof why);
    return module;
}

const char *ranks_mpi_missing(void)
{
    return ranks_mpi() ? NULL : why;
}

const char *ranks_mpiexec(void)
{
    static char found[PATH_MAX];

    for (const char *const *name = ranks_mpi() ? module->launchers : NULL; name && *name; name++) {
        for (const char *path = getenv("PATH"); path && *path;) {
            int length = (int)strcspn(path, ":");
            snprintf(found, sizeof found, "%.*s/%s", length, path, *name);
            if (length && access(found, X_OK) == 0)
                return found;
            path += length + (path[length] == ':');
        }
    }
    return NULL;
}

char **ranks_words(int ranks, int argc, char **argv)
{
    static char self[PATH_MAX];
    static char count[16];
    const char *mpiexec = ranks_mpiexec();
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    size_t used = 0;
    size_t extra = 0;

    while (mpiexec && module->options[extra])
        extra++;
    char **words = calloc((size_t)argc + extra + 6, sizeof *words);
    if (!mpiexec || length < 0 || !words) {
        free(words);
        return NULL;
    }
    self[length] = '\0';
    snprintf(count, sizeof count, "%d", ranks);
    words[used++] = (char *)mpiexec;
    for (size_t i = 0; i < extra; i++)
        words[used++] = (char *)module->options[i];
    words[used++] = "-n";
    words[used++] = count;
    words[used++] = self;
    memcpy(words + used, argv, (size_t)argc * sizeof *argv);
    return words;
}

int ranks_exec(const char *command, int ranks, int argc, char **argv)
{
    if (!ranks_mpi())
        return cli_usage(command, "-n %d over mpi: %s", ranks, why);
    if (!ranks_mpiexec())
        return cli_usage(command, "-n %d over mpi: no mpiexec in PATH; expected that of %s", ranks,
                         module->mpi);
    char **words = ranks_words(ranks, argc, argv);
    int error = words ? 0 : ENOMEM;
    fflush(stdout);
    if (words) {
        execv(words[0], words);
        error = errno;
    }
    free(words);
    return cli_fail(command, "mpiexec: %s", strerror(error));
}

int ranks_start_mpi(const char *command, int threads, int *rank, int *size)
{
    const char *fault = ranks_mpi_missing();

    if (fault)
        return cli_usage(command, "--transport mpi: %s", fault);
    fault = module->start(threads, rank, size);
    if (fault)
        return cli_fail(command, "%s", fault);
    if (*size == 1 && ranks_processes() > 1) {
        module->stop(1);
        return cli_fail(command,
                        "mpiexec started %d processes, but %s, which weft was built with, knows of "
                        "one: expected the mpiexec of %s",
                        ranks_processes(), module->mpi, module->mpi);
    }
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
    if (module)
        module->stop(!leaves_unfinalized());
}

/* Waits until the pipe to the launcher is empty, as many ms as are left. */
static void drain(int file, int *patience)
{
    struct stat kind;
    int left = 0;

    if (fstat(file, &kind) != 0 || !S_ISFIFO(kind.st_mode))
        return;
    for (; *patience > 0 && ioctl(file, FIONREAD, &left) == 0 && left > 0; --*patience)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void ranks_abort(int status)
{
    int patience = 20000;

    fflush(stdout);
    drain(STDOUT_FILENO, &patience);
    drain(STDERR_FILENO, &patience);
    if (module)
        module->abort(status);
    if (ranks_launched())
        _exit(status); /* what started it ends the others */
}
