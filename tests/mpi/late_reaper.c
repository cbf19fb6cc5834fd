/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * To be preloaded into hydra: who asks whether a process has ended asks late. A process whose files
 * begin to close is then reaped before the launcher looks at the rest of them, its connection among
 * them; on a busy machine that happens by itself, once in some hundred runs.
 */
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>

pid_t waitpid(pid_t process, int *status, int options)
{
    if (options & WNOHANG)
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    return wait4(process, status, options, NULL);
}
