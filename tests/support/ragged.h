/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives whose blocks have counts of their own: which counts, what the ranks have, what they
 * should hold in the end by plain loops, and a run of it on a context of any transport. No test
 * framework.
 */
#ifndef WEFT_TESTS_RAGGED_H
#define WEFT_TESTS_RAGGED_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RAGGED_MOST = 40, RAGGED_PATTERNS = 7 };

/* One choice of everything, the same on all ranks. */
struct ragged {
    const char *name;
    const char *algo; /* or NULL */
    int size;
    int root;
    int in_place;
    weft_dtype_t dtype;
    const struct weft_op *op;
    int pattern; /* of the counts: 0 .. RAGGED_PATTERNS - 1 */
    int apart;   /* 1: blocks lie in descending order, with gaps */
    int agreed;  /* 1: all counts on all ranks; 0: only what a rank must know */
    size_t segment;
    size_t aggregate; /* of algorithm pat */
};

/* The templates; NULL behind the last. */
extern const char *const ragged_names[];

/* Elements of the block of a rank; of what goes from one to another, in alltoallv. */
size_t ragged_count(const struct ragged *c, int rank);
size_t ragged_pair(const struct ragged *c, int from, int to);

/* The parameters of a rank; the lists that they point to are in `room`. */
struct ragged_room {
    size_t counts[RAGGED_MOST], send[RAGGED_MOST], recv[RAGGED_MOST];
};
struct weft_template_params ragged_params(const struct ragged *c, int rank,
                                          struct ragged_room *room);

/* Whether an algorithm can be had with what the ranks know. */
int ragged_serves(const struct ragged *c);

/* In words. */
const char *ragged_text(const struct ragged *c, char *text, size_t size);

/* Runs it on the calling rank `starts` times with other data and compares all memory, gaps
 * included. 0, or -1 with a line in text. */
int ragged_run(struct weft_context *context, const struct ragged *c, int starts, char *text,
               size_t size);

#ifdef __cplusplus
}
#endif

#endif
