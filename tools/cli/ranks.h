/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks for the tools: threads of this process, or processes that mpiexec, `weft launch` or the
 * command itself started. */
#ifndef WEFT_TOOLS_CLI_RANKS_H
#define WEFT_TOOLS_CLI_RANKS_H

#include "tools/mpi/module.h"
#include <weft/weft.h>

/** 1 if mpiexec started this process. */
int ranks_under_mpiexec(void);

/** 1 if `weft launch`, or this command in its place, started this process. */
int ranks_launched(void);

/** How many processes mpiexec or `weft launch` started; 1 without one. 0: more than one, but it
 *  does not say how many. */
int ranks_processes(void);

/** Refuses local ranks, if nobody asked for them, where several processes were started: each would
 *  have its own. 0, or CLI_WRONG after a line. */
int ranks_refuse_processes(const char *command);

struct cli;

/** How a command is to be several processes. */
struct ranks_world {
    /** One whose ranks are processes. */
    const char *transport;
    /** MPI: 1: with MPI_THREAD_MULTIPLE; 0: this thread alone will use it. */
    int threads;
    /** `shared`: so many processes are started if nobody has started any. */
    int wanted;
    /** Of these, those on top of what -n says. */
    int more;
    /** Of these: one that is killed does not end the others. */
    int keep_going;
    /** This process, once it is one of them. */
    int rank, size;
    /** 1: other processes have done it all: what ranks_join() has returned is the exit status. */
    int over;
};

/** Makes this process a rank: over MPI as ranks_start_mpi(); `shared`: one of those that were
 *  launched, or starts the command again, once for each, and waits for them. 0, or the exit status,
 *  after a line for @p cli unless the world is over. */
int ranks_join(const struct cli *cli, struct ranks_world *world);

/** The module that knows MPI, loaded with the first call of this or of what is below; NULL: it is
 *  not installed, or does not load. */
const struct mpi_module *ranks_mpi(void);
/** Why ranks_mpi() is NULL, or NULL. */
const char *ranks_mpi_missing(void);

/** Path of the module's mpiexec, or NULL if there is none. Static storage. */
const char *ranks_mpiexec(void);

/** The words `mpiexec -n ranks weft argv...`, ended by NULL and with room for one more; for free().
 *  NULL: no mpiexec, or no memory. */
char **ranks_words(int ranks, int argc, char **argv);

/** Replaces this process by these words. Returns only if that failed: the exit status, after a line
 *  for @p command. */
int ranks_exec(const char *command, int ranks, int argc, char **argv);

/**
 * Starts MPI and gives rank and size of the world. @p threads 1: with MPI_THREAD_MULTIPLE; 0: this
 * thread alone will use it. 0, or the exit status after a line for @p command. Does nothing if MPI
 * runs already.
 */
int ranks_start_mpi(const char *command, int threads, int *rank, int *size);

/** Ends MPI if ranks_start_mpi() started it. */
void ranks_stop_mpi(void);

/** Ends all processes of the world once the launcher has read what this one has written, which it
 *  drops otherwise. Returns only if this process is none of several. */
void ranks_abort(int status);

/**
 * Runs @p fn on local ranks (transport "local") or once in this process, as its rank of the world
 * (after ranks_join()). Returns as weft_local_run() does.
 */
int ranks_run(const char *transport, int ranks, const struct weft_context_config *config,
              weft_rank_fn fn, void *user);

/** Nanoseconds of a clock that all processes of a machine share. */
uint64_t ranks_now(void);

#endif
