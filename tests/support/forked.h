/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks as processes: children that are forked, for plain programs and for suites of Criterion,
 * also under the runner of sanitizer builds. A child tells by its exit status and a text how it
 * went; whoever started them hears which rank failed, crashed or did not end, and leaves none
 * behind.
 *
 * The process that forks has no threads of its own.
 */
#ifndef WEFT_TESTS_FORKED_H
#define WEFT_TESTS_FORKED_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>
#include <weft/status.h>

/* One rank, in its process. */
struct forked_rank {
    struct forked *forked;
    int rank;
    unsigned meetings; /* that it has come to */
};

/* What a rank does; 0: good. */
typedef int (*forked_fn)(struct forked_rank *self, void *user);

enum { FORKED_TEXT = 1000, FORKED_RANKS = 64, FORKED_AREA = 1 << 14 };

/* Shared by the children and their parent. */
struct forked {
    int size;
    char name[64];          /* for a rendezvous; no other group has it */
    atomic_uint arrived;    /* at meetings, all together */
    atomic_ulong progress;  /* counted by ranks, for whom it matters */
    atomic_ulong words[16]; /* the test's own */
    pid_t pids[FORKED_RANKS];
    int pidfds[FORKED_RANKS]; /* the parent's; -1: has ended */
    int killed[FORKED_RANKS]; /* by the parent, or allowed to die: no failure */
    struct {
        char text[FORKED_TEXT];
        unsigned char area[FORKED_AREA]; /* what it gives to a gather */
    } ranks[FORKED_RANKS];
};

/* Forks `size` ranks, and comes back in each of them (1, with *self filled) and in the parent (0);
 * ends the process if it cannot. */
int forked_fork(int size, struct forked **forked, struct forked_rank *self);
/* Forks ranks that run a function and end. */
struct forked *forked_start(int size, forked_fn fn, void *user);
/* Kills a rank with a signal, which is no failure then. */
void forked_kill(struct forked *forked, int rank, int signal);
/* 1: a rank has ended that was not killed. */
int forked_ended(const struct forked *forked);
/* Waits for all. 0: all that were not killed returned 0; else 1, and `text` says who failed first,
 * or who has not ended, and how; the others have been killed. */
int forked_wait(struct forked *forked, char *text, size_t bytes);
void forked_free(struct forked *forked);
/* Both. */
int forked_end(struct forked *forked, char *text, size_t bytes);
/* All of it. */
int forked_run(int size, forked_fn fn, void *user, char *text, size_t bytes);

/* ---- in a rank ---- */

/* A meeting of all ranks, in two halves, so that engines can be driven between them; and as one. */
void forked_come(struct forked_rank *self);
int forked_all_came(const struct forked_rank *self);
void forked_meet(struct forked_rank *self);
/* A weft_gather_fn: of any number of bytes. `self`: struct forked_rank. */
int forked_gather(void *self, const void *mine, size_t bytes, void *all);
/* Ends the process; its text is what the parent is told. */
void forked_fail(const struct forked_rank *self, const char *format, ...) WEFT_PRINTF(2, 3);

/* Lines of this process' memory map that have `word`: what of a transport's is still mapped. */
int forked_count_maps(const char *word);

#endif
