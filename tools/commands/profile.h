/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of weft profile share: what ranks have written, and what is made of it. */
#ifndef WEFT_TOOLS_COMMANDS_PROFILE_H
#define WEFT_TOOLS_COMMANDS_PROFILE_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <weft/cost.h>

/** A collective of MPI, and the template that is it. */
struct profile_call {
    const char *name;
    const char *template;
    /** 1: it combines elements. */
    int reduces;
};

/** How a call is made. */
enum profile_form {
    PROFILE_BLOCKING,
    PROFILE_NONBLOCKING,
    PROFILE_PERSISTENT,
    PROFILE_FORMS /* how many there are */
};

/** A line of what a rank has written: its calls of a kind, form and size on a communicator, or on
 *  several of one name and number of ranks. */
struct profile_line {
    /** Of MPI_COMM_WORLD. */
    int rank;
    /** Of the communicator. */
    int ranks;
    const struct profile_call *call;
    enum profile_form form;
    /** Where the class of sizes begins. */
    uint64_t bytes;
    /** Calls that weft has served, and those that were MPI's. */
    uint64_t served, others;
    double served_s, others_s;
    /** Of those that were MPI's: how many for which reason. In `json`, as the name is. */
    const json_t *reasons;
    const char *communicator;
    json_t *json;
};

/** What all ranks have written. */
struct profile {
    struct profile_line *lines;
    size_t count, capacity;
    /** Ranks that have written something, be it nothing at all. */
    int reported;
    /** Ranks that there were, as far as lines and files tell. */
    int size;
};

/* ---- profile_lines.c ---- */

/** "blocking", as the lines have it. */
const char *profile_form_name(enum profile_form form);

/**
 * Adds what rank @p rank has written, the @p length bytes of @p text; @p path is for errors alone.
 * @return WEFT_OK; WEFT_ERR_FORMAT with a text that says in which line, what was found and what was
 *         expected; WEFT_ERR_MEMORY. After an error @p profile can still be freed.
 */
int profile_add(struct profile *profile, int rank, const char *path, const char *text,
                size_t length);
void profile_free(struct profile *profile);

/* ---- profile_run.c ---- */

/** A program that is run with libweft-pmpi before its MPI. */
struct profile_run {
    /** The subcommand, for lines on standard error. */
    const char *command;
    /** Program and arguments, ended by NULL; the program is looked for in PATH. */
    char **words;
    /** Path of libweft-pmpi. */
    const char *library;
    /** Path to which each rank adds its number. */
    const char *stats;
    /** WEFT_PMPI; NULL: as the environment has it. */
    const char *who;
    /** 1: what it writes to standard output goes to standard error. */
    int to_error;
    /** Filled in: its exit status, 128 + N if signal N has ended it; and how long it ran. */
    int status;
    double seconds;
};

/** From now on signals that end processes reach the program alone; those that come while there is
 *  none are kept. */
void profile_guard_begin(void);
/** As before; what was kept ends the process now. */
void profile_guard_end(void);
/** The signal that is kept, or 0. */
int profile_guard_kept(void);

/** Runs it until it has ended. 0; or the exit status after a line: 127: there is no such program,
 *  126: it cannot be executed; or 128 + N, without a line, if signal N came before it began. */
int profile_execute(struct profile_run *run);

/** Makes a folder of its own in TMPDIR, or /tmp. 0, or the exit status after a line. */
int profile_make_folder(const char *command, char *path, size_t room);
/** Removes it with all files in it. */
void profile_remove_folder(const char *path);

/* ---- profile_sum.c ---- */

/** The calls of a kind, form and size on communicators of as many ranks, on all ranks. */
struct profile_row {
    /** One of its lines, for what they have in common. */
    const struct profile_line *line;
    /** Ranks that made such calls. */
    int reported;
    uint64_t calls, served;
    /** Calls of the rank that made the fewest of them, and of that which made the most. */
    uint64_t least_calls, most_calls;
    double served_s, others_s;
    /** Of the rank that spent the most time in them. */
    double most_s;
    int most_rank;
    /** An object: how many were MPI's, by reason. */
    json_t *reasons;
    /** What weft would choose, and its time; NULL: there is no telling. */
    const char *chosen;
    double predicted_us;
};

/** By what algorithms are chosen. */
struct profile_costs {
    struct weft_cost_model model;
    /** 1: each rank is on a host of its own; 0: all are on one. */
    int apart;
};

struct profile_sum {
    struct profile_row *rows; /* the most time first */
    size_t count;
    /** 1: communicators of different names are told apart. */
    int by_communicator;
    uint64_t calls, served;
    /** Of all ranks, and of the one that spent the most. */
    double seconds, most_s;
    int most_rank;
};

/** Sums up; sorts the lines of @p profile, which has to stay. 0, or -1 without memory. */
int profile_sum_up(struct profile_sum *sum, struct profile *profile, int by_communicator,
                   const struct profile_costs *costs);
void profile_sum_free(struct profile_sum *sum);

/* ---- profile_show.c ---- */

/** What is shown, and of what. */
struct profile_view {
    const struct profile *profile;
    const struct profile_sum *sum;
    const struct profile_costs *costs;
    const char *transport;
    /** The program; NULL: it was run before. */
    const struct profile_run *run;
};

/** Prints a table of at most @p width columns, 0: as wide as it is; or one line of JSON. 0, or -1
 *  without memory; what cannot be written is an error of @p file. */
int profile_print(const struct profile_view *view, FILE *file, int width);
int profile_print_json(const struct profile_view *view, FILE *file);

#endif
