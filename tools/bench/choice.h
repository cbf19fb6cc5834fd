/* SPDX-License-Identifier: BSD-3-Clause */
/* weft bench choice: a cell, in which all algorithms of a template take turns. */
#ifndef WEFT_TOOLS_BENCH_CHOICE_H
#define WEFT_TOOLS_BENCH_CHOICE_H

#include "tools/bench/bench.h"

/** Most algorithms of a template, and contenders of a cell. */
enum { CHOICE_ALGORITHMS = 24, CHOICE_CONTENDERS = CHOICE_ALGORITHMS + 2 };

/** How calls follow each other. */
enum choice_mode { CHOICE_STREAM, CHOICE_SINGLE, CHOICE_MODES };

/** What a template is given and gives. */
enum {
    CHOICE_BLOCKS_IN = 1,
    CHOICE_BLOCKS_OUT = 2,
    CHOICE_ROOT_IN = 4,
    CHOICE_ROOT_OUT = 8,
    CHOICE_FIRST_OUT_NOT = 16 /* all ranks but 0 get something */
};
enum choice_gives {
    CHOICE_NOTHING,
    CHOICE_FIRST,
    CHOICE_EVERYBODY,
    CHOICE_SUM,
    CHOICE_SUM_UP_TO,
    CHOICE_SUM_BEFORE
};

struct choice_template {
    const char *name;
    const char *in, *out; /* slots, or NULL */
    int shape;
    enum choice_gives gives; /* every rank having given blocks of rank + 1 */
};

/** What one rank holds. */
struct choice_side {
    struct weft_context *arena; /* whose memory it is in, or NULL */
    float *send, *recv;
    struct weft_run *runs[CHOICE_ALGORITHMS];
    double us; /* of its last turn, a call */
};

struct choice_contender {
    const char *name;
    void (*mpi)(const float *send, float *recv, int count); /* NULL: an algorithm of weft's */
    int same; /* an earlier one that does the same here, and takes its turns; -1: none does */
    size_t reps[CHOICE_MODES];
    struct bench_samples samples[CHOICE_MODES];
};

/** Where processes meet: in memory that they share. */
struct choice_meeting {
    _Alignas(128) atomic_int come;
    _Alignas(128) atomic_uint round;
};

struct choice {
    struct bench *bench;
    int ranks;
    struct bench_team team;                     /* on the first process */
    struct weft_context *contexts[BENCH_OVERS]; /* of this process */
    struct choice_meeting *meeting;             /* NULL: by MPI */
    struct choice_side *sides;                  /* of local ranks, or of this process the first */
    struct choice_side peer;                    /* MPI's */
    /* The cell. */
    enum bench_over over;
    const struct choice_template *template;
    size_t count; /* elements of a block */
    int algorithms, contenders, chosen;
    struct choice_contender who[CHOICE_CONTENDERS];
    /* The turn. */
    int now;
    enum choice_mode mode;
    size_t calls;
};

/** Bytes of one rank's vectors in the cell. */
size_t choice_bytes(const struct choice *c);
/** Memory and runs of the cell. WEFT_OK or an error; collective, as all that follow. */
int choice_open(struct choice *c);
/** Takes all turns, in both modes. */
int choice_measure(struct choice *c);
void choice_close(struct choice *c);

#endif
