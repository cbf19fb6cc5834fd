/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the measurements of `weft bench` share. Each stands beside its peer in the same run: the
 * machine may change its speed without notice, so contenders take turns, and ratios are what
 * counts.
 */
#ifndef WEFT_TOOLS_BENCH_BENCH_H
#define WEFT_TOOLS_BENCH_BENCH_H

#include "tools/cli/cli.h"
#include "tools/mpi/module.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

/** Most rounds of turns. */
enum { BENCH_ROUNDS = 101 };

/** Values of one contender, one a round. */
struct bench_samples {
    size_t count;
    double values[BENCH_ROUNDS];
};

void bench_sample(struct bench_samples *samples, double value);
/** Median, least and largest; NAN if there are none. */
double bench_median(const struct bench_samples *samples);
double bench_least(const struct bench_samples *samples);
double bench_most(const struct bench_samples *samples);

/** One row of the output. */
struct bench_row {
    const char *what; /* its "case" */
    const char *unit;
    const char *transport; /* NULL: has none */
    const char *peer;      /* NULL: has none */
    const struct bench_samples *weft;
    const struct bench_samples *peers;
    double limit; /* NAN: none */
    size_t bytes; /* SIZE_MAX: has no size */
    json_t *more; /* further members of the JSON object, which bench_print() takes; NULL: none */
};

/** Programs that --beside may name. */
enum { GPU_BESIDES = 8 };

/** A measurement under way. */
struct bench {
    const char *name;
    int json;
    int rounds;
    /** Sizes asked for, or none: the measurement's own. */
    size_t sizes[32];
    size_t size_count;
    /** Densities asked for, or none. */
    double densities[8];
    size_t density_count;
    /** -n, or 0. */
    int ranks;
    /** --steps, or 0: the measurement's own. */
    int steps;
    /** --memory: where what is measured lies. */
    enum { BENCH_ARENA, BENCH_PRIVATE } memory;
    /** --link: bits a second, or 0: unknown. */
    double link;
    /** --template, --transport: choice's; bits of its table and of enum bench_over; 0: all. */
    unsigned templates;
    unsigned overs;
    /** --cost: what transports cost; NULL: measured. */
    const char *cost;
    /** --device: gpu's; NULL: any. */
    const char *device;
    /** --beside: gpu's; programs that take turns with its selections. */
    char beside[GPU_BESIDES][1024];
    size_t beside_count;
    /** -o: where to write what was found; NULL: nowhere. */
    const char *output;
    /** --inside: the case that this process executes under valgrind; NULL: none. */
    const char *inside;
    /** Rank and size of the world; 0 and 1 outside mpiexec. */
    int rank;
    int world;
    /** 1: mpiexec started this process for a measurement. */
    int mpi;
    /** 1: another process, under mpiexec, has measured for this one. */
    int respawned;
    /** Words to start this command again under mpiexec. */
    int argc;
    char **argv;
    /** Spinning hand-over between two cores, and yield on one core; nanoseconds. */
    double handover_ns;
    double yield_ns;
    int cores;
    int lines;
};

/** Prints a row; a table's head before the first. On rank 0 only. */
void bench_print(struct bench *bench, const struct bench_row *row);

/** A line of prose in the table; nothing with --json. */
void bench_note(const struct bench *bench, const char *format, ...) WEFT_PRINTF(2, 3);

/** "4 B", "16 KiB", ... */
const char *bench_size_text(size_t bytes, char text[16]);

/** Says what went wrong (rank and error text) and returns CLI_NO; under mpiexec ends all ranks. */
int bench_fail(const struct bench *bench, const char *what);

/**
 * Runs this measurement under `mpiexec -n ranks` as a child, and waits. 0; an exit status; or
 * CLI_NO_MPI if there is no mpiexec (a note has been printed).
 */
int bench_respawn(const struct bench *bench, int ranks);
enum { CLI_NO_MPI = -2 };

/* ---- the machine ---- */

/** Measures hand-over, yield and cores into @p bench. */
void bench_machine(struct bench *bench);

void bench_sleep_ms(int ms);
/** Processor time of this process so far. */
double bench_cpu_seconds(void);

/* ---- local ranks that stay ---- */

struct bench_team;
typedef int (*bench_team_fn)(struct bench_team *team, int rank, void *user);

/** Local ranks: the calling thread is rank 0, the others sleep between commands. */
struct bench_team {
    int size;
    struct weft_local *local;
    struct weft_context **contexts;
    /* private */
    struct bench_member *members;
    bench_team_fn fn;
    void *user;
    int stop;
    atomic_int meeting;
    atomic_int round;
    sem_t done;
    int spins;
};

/** @return WEFT_OK or an error. */
int bench_team_open(struct bench_team *team, int size, const struct weft_context_config *config);
void bench_team_close(struct bench_team *team);
/** Runs @p fn on all ranks; the status of the lowest that failed. */
int bench_team_run(struct bench_team *team, bench_team_fn fn, void *user);
/** Waits until all members are here: spins, then yields. */
void bench_team_meet(struct bench_team *team);

/* ---- one rank of an allreduce of f32 sums ---- */

/** What it holds: @p us is for who measures. */
struct bench_side {
    struct weft_context *arena; /* whose memory it is in, or NULL */
    float *send;
    float *recv;
    struct weft_run *run;
    double us;
};

/** Contributions of ones, and a run in the context; NULL: memory alone. @p in_arena: in memory of
 *  the context, which processes of one machine read straight from. A side that could not be opened
 *  is closed, too. */
int bench_side_open(struct bench_side *side, struct weft_context *context, size_t count,
                    int in_arena);
void bench_side_close(struct bench_side *side);

/* ---- MPI, outside timed regions without a blocking call ---- */

/** The largest @p value of all processes. @p patient: those that come early sleep. */
double bench_mpi_agree(double value, int patient);
/** What the first process has there, for all. */
void bench_mpi_adopt(void *data, size_t bytes);
/** Waits for all processes, testing and yielding. */
void bench_mpi_meet(void);
void bench_mpi_abort(void);

/* ---- transports ---- */

/** Where weft's ranks are: threads of the first process, or the processes themselves. */
enum bench_over { BENCH_LOCAL, BENCH_SHARED, BENCH_MPI, BENCH_OVERS };

/** The name of the transport. */
const char *bench_over_name(enum bench_over over);
/** The last one that can be measured: local, or mpi if mpiexec started several processes. */
enum bench_over bench_over_last(const struct bench *bench);
/** A context of all processes over `shared` or `mpi`; collective. NULL: the error text says why. */
struct weft_context *bench_context(const struct bench *bench, enum bench_over over,
                                   const struct weft_context_config *config);

/** Whether the processes can share memory, which those of several hosts cannot; collective. If not,
 *  the measurement says so, and is without rows over `shared`. */
int bench_shares(const struct bench *bench);

/* MPI's own ways to reduce (tools/mpi/module.h). */
const char *bench_peer_name(enum bench_peer peer);
/** 0 if this MPI lacks it. */
int bench_peer_open(enum bench_peer peer, const float *send, float *recv, size_t count);
void bench_peer_run(enum bench_peer peer);
void bench_peer_close(enum bench_peer peer);
/** MPI_Iallreduce in its two halves. */
void bench_peer_post(void);
void bench_peer_wait(void);
/** A message of one byte; blocking. */
void bench_mpi_send(int peer);
void bench_mpi_recv(int peer);

/* ---- the measurements ---- */

int bench_nodes(struct bench *bench);
int bench_allreduce(struct bench *bench);
int bench_blocking(struct bench *bench);
int bench_oversubscribed(struct bench *bench);
int bench_overlap(struct bench *bench);
int bench_idle(struct bench *bench);
int bench_model(struct bench *bench);
int bench_choice(struct bench *bench);
int bench_sim(struct bench *bench);
int bench_topk(struct bench *bench);
int bench_merge(struct bench *bench);
int bench_merged(struct bench *bench);
int bench_gtopk(struct bench *bench);
int bench_wait_avoiding(struct bench *bench);
int bench_growth(struct bench *bench);
int bench_death(struct bench *bench);
int bench_compress(struct bench *bench);
int bench_projection(struct bench *bench);
int bench_server(struct bench *bench);
int bench_osp(struct bench *bench);
int bench_gpu(struct bench *bench);

/**
 * Alpha and beta of messages between ranks 0 and 1, fitted as `weft bench model` does; the rest of
 * @p cost are the transport's defaults. Over processes a collective call.
 * @return WEFT_OK or an error.
 */
int bench_model_messages(struct bench *bench, enum bench_over over, struct weft_cost_model *cost);

/** Adds a template of `weft bench choice` to a set. 0, or CLI_WRONG with a text. */
int bench_choice_template(const char *command, const char *word, unsigned *set);

/** Beside the peers of bench_contest(): blocking calls, whose peers are a plan, too. */
#define BENCH_CALLS (1u << BENCH_PEERS)

/**
 * Allreduce of weft (local ranks; shared and MPI if the world has more than one) beside MPI's, for
 * each size; as many rounds as asked for. @p peers: bit set of enum bench_peer, and BENCH_CALLS.
 */
int bench_contest(struct bench *bench, int ranks, const size_t *sizes, size_t size_count,
                  unsigned peers);

/** The same of two ranks, or -n of them, started under mpiexec if there is one; @p sizes unless
 *  others were asked for. */
int bench_contest_sizes(struct bench *bench, const size_t *sizes, size_t count, unsigned peers);

/* Counts of this measurement's own runs under valgrind; valgrind.c. */

/** What valgrind counts. */
enum bench_count { BENCH_INSTRUCTIONS, BENCH_ALLOCATIONS };
/** The count of a run of `weft bench --inside CASE:TURNS`; NAN if there is no valgrind. */
double bench_valgrind(const struct bench *bench, enum bench_count what, const char *inside,
                      size_t turns);
/** The other side: executes a case a number of times and prints nothing. */
int bench_nodes_inside(const char *what);
int bench_blocking_inside(const char *what);
int bench_merged_inside(const char *what);

#endif
