/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the command asks of MPI itself: to start and end it, and to be measured beside weft. All of
 * it is in a module that is loaded when the command runs over MPI, so that the command works where
 * no MPI is, and threads and signal handlers of one are in no process that does without.
 */
#ifndef WEFT_TOOLS_MPI_MODULE_H
#define WEFT_TOOLS_MPI_MODULE_H

#include <stddef.h>

/** MPI's own ways to reduce. */
enum bench_peer { BENCH_ALLREDUCE, BENCH_IALLREDUCE, BENCH_ALLREDUCE_INIT, BENCH_PEERS };

/** A collective of MPI on floats, blocking or as a request that is waited for at once. Root 0;
 *  count is that of one block, as MPI has it; sums; in and out are apart, but for Bcast, whose
 *  buffer is recv. */
struct mpi_collective {
    const char *template;
    const char *names[2]; /* "MPI_Bcast", "MPI_Ibcast" */
    void (*call[2])(const float *send, float *recv, int count);
};

struct mpi_module {
    /** weft's version, and the size of this struct, of the build that it is from. */
    const char *version;
    size_t size;
    /** "MPICH", "Open MPI". */
    const char *mpi;
    /** Names of its mpiexec, the surest first, and what each is given before -n. NULL ends them. */
    const char *const *launchers;
    const char *const *options;

    /** Starts MPI unless it runs; @p threads 1: with MPI_THREAD_MULTIPLE, else FUNNELED will do.
     *  Rank and size of the world. NULL, or what is wrong. */
    const char *(*start)(int threads, int *rank, int *size);
    /** Ends it if it runs: by MPI_Finalize, or, with MPICH and @p finalize 0, by a barrier and
     *  by telling the launcher. */
    void (*stop)(int finalize);
    void (*abort)(int status);

    /* What measurements need: bench_mpi_ and bench_peer_ in tools/bench/bench.h. */
    double (*agree)(double value, int patient);
    void (*adopt)(void *data, size_t bytes);
    void (*meet)(void);
    /** Of every process its bytes (weft_gather_fn). */
    int (*gather)(void *user, const void *mine, size_t bytes, void *all);
    void (*send)(int peer);
    void (*recv)(int peer);
    int (*peer_open)(enum bench_peer peer, const float *send, float *recv, size_t count);
    void (*peer_run)(enum bench_peer peer);
    void (*peer_close)(enum bench_peer peer);
    void (*peer_post)(void);
    void (*peer_wait)(void);
    /** By the name of weft's template; NULL: MPI has no such collective. */
    const struct mpi_collective *(*collective)(const char *template);
    /** Zeroed memory that all processes share, until stop(); collective. NULL: they cannot. */
    void *(*share)(size_t bytes);
};

/** What it is found by in the module. */
#define MPI_MODULE_SYMBOL "weft_command_mpi"
extern const struct mpi_module weft_command_mpi;

/* collectives.c */
const struct mpi_collective *mpi_collective_find(const char *template);

#endif
