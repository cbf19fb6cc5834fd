/* SPDX-License-Identifier: BSD-3-Clause */
/* Exact selection of the entries of largest magnitude, in one pass over the data.
 *
 * The magnitude of a floating-point number, its bits without the sign, is an integer in the same
 * order: a *key*. Keys of NaNs are above that of infinity. So a scan compares integers, needs to
 * know nothing of NaNs (they come out as entries of largest magnitude, and are dealt with then),
 * and is the same for all formats of one width.
 *
 *  1. A threshold from a sample, low enough that most likely at least k entries reach it.
 *  2. One scan collects the entries that do, with their places: the candidates. If they become too
 *     many for the workspace, all but the k best so far are dropped and the threshold rises.
 *  3. If they are too few, the threshold is lowered and the scan repeated.
 *  4. The k-th largest key among the candidates is the exact threshold.
 *
 * The threshold decides how long it takes, never what comes out. Parts of the data may be scanned
 * by several threads, whose candidates are joined in step 4. */
#ifndef WEFT_OPS_TOPK_H
#define WEFT_OPS_TOPK_H

#include "ops/kernels.h"

/* ---- kernels, one set a width of keys ---- */

/* A kernel appends at most so many candidates at once. */
enum { WEFT__TOPK_BLOCK = 64 };

/* Memory is the caller's, of whatever type it declared and wherever it begins. */
#if defined(__GNUC__)
typedef uint16_t __attribute__((__may_alias__, __aligned__(1))) weft__key_16;
typedef uint32_t __attribute__((__may_alias__, __aligned__(1))) weft__key_32;
typedef uint64_t __attribute__((__may_alias__, __aligned__(1))) weft__key_64;
#else
typedef uint16_t weft__key_16;
typedef uint32_t weft__key_32;
typedef uint64_t weft__key_64;
#endif

struct weft__topk_kernels {
    /* Appends those of x[0 .. count) whose key is at least `least` to bits[*found ...], and their
     * places, from `base` on, to index[*found ...]. Stops where fewer than WEFT__TOPK_BLOCK of
     * `capacity` are left and more might come. Returns how many elements it has seen. */
    size_t (*scan)(const void *x, size_t count, uint64_t least, uint32_t base, void *bits,
                   uint32_t *index, size_t capacity, size_t *found);
    /* The same after x[i] += y[i]; of those additions *added have been made, at least as many as
     * elements have been seen. NULL for 16 bits, where two formats share a width. */
    size_t (*add_scan)(void *x, const void *y, size_t count, uint64_t least, uint32_t base,
                       void *bits, uint32_t *index, size_t capacity, size_t *found, size_t *added);
    /* Keeps the entries whose key is at least `least`, in their order; returns how many. `to` may
     * be `from` or lie before it. */
    size_t (*filter)(void *to_bits, uint32_t *to_index, const void *bits, const uint32_t *index,
                     size_t count, uint64_t least);
    /* Keeps them as filter does, in place, and takes the others to `rest`, which has room for all
     * and overlaps nothing. */
    size_t (*split)(void *bits, uint32_t *index, size_t count, uint64_t least, void *rest_bits,
                    uint32_t *rest_index);
    /* How many keys are at least `least`. */
    size_t (*count)(const void *x, size_t count, uint64_t least);
    /* The k-th largest key of `count`, 1 <= k <= count. Overwrites bits. O(count) always. */
    uint64_t (*kth)(void *bits, size_t count, size_t k);
};

/* By the logarithm of the bytes of an element, less 1. */
typedef struct weft__topk_kernels weft__topk_table[3];

extern const weft__topk_table weft__topk_scalar;
extern const weft__topk_table weft__topk_avx2;
extern const weft__topk_table weft__topk_avx512;

/* Those of the SIMD level in use; NULL if the datatype is not floating point. */
const struct weft__topk_kernels *weft__topk_kernels_find(weft_dtype_t dtype);

/* ---- keys ---- */

/* The key of infinity: greater ones are NaNs. */
uint64_t weft__topk_infinity(weft_dtype_t dtype);

/* The number that has a key; infinity's for NaNs. */
double weft__topk_magnitude(weft_dtype_t dtype, uint64_t key);

/* The least key of a number >= magnitude (not negative, no NaN); above infinity's there is none. */
uint64_t weft__topk_key(weft_dtype_t dtype, double magnitude);

/* ---- selection ---- */

struct weft__topk_task {
    weft_dtype_t dtype;
    /* values[0 .. count); if residual is not NULL, values are added to it first (as the reduction
     * WEFT_SUM does), the sums are selected from, and what is selected becomes 0 there. */
    const void *values;
    void *residual;
    size_t count;
    /* The k largest; or with `above`, all >= threshold, of which the first k are given. */
    size_t k;
    int above;
    double threshold;
    /* A guess at the magnitude of the k-th; 0: none. */
    double hint;
    /* 1: NaNs become zeros in the residual; 0: they stay there. They count as zeros anyway. */
    int erase_nans;
    /* Parts that may be scanned at the same time, >= 1. */
    size_t parts;
};

struct weft__topk_report {
    size_t count; /* selected */
    size_t found; /* `above`: all that reach the threshold; else = count */
    size_t candidates;
    double threshold; /* the least magnitude selected; 0 if none is */
    double hint;      /* for the next step */
};

struct weft__topk_part {
    size_t begin;
    size_t end;
    size_t scanned;
    size_t summed;
    /* Entries from `least` on become candidates; all that are have at least `floor`. */
    uint64_t least;
    uint64_t floor;
    char *bits;
    uint32_t *index; /* the lower 32 bits */
    char *scratch;
    size_t capacity;
    size_t found;
    size_t matched; /* `above`, workspace full: what has come since */
    int full;
    size_t nans;
    /* marks[s]: how many candidates came before the s-th range of 2^32 indices of this part; of
     * `segments` ranges, so many have been begun. */
    size_t *marks;
    size_t segments;
    size_t begun;
};

struct weft__topk {
    struct weft__topk_task task;
    const struct weft__topk_kernels *kernels;
    weft__reduce_kernel sum;
    size_t size; /* bytes of an element */
    uint64_t infinity;
    size_t wanted; /* k, but at most count */
    struct weft__topk_part *parts;
    char *samples;
    size_t sample_count;
    size_t sample_rank; /* 0: none was taken */
    char *scratch;
    uint64_t start; /* the threshold that the scan began with */
    int scans;
};

/* Bytes of workspace; SIZE_MAX if they are too many to count. */
size_t weft__topk_bytes(const struct weft__topk_task *task);

/* Readies a selection in `workspace` (aligned to 64 bytes), which it borrows until the end. */
void weft__topk_begin(struct weft__topk *topk, const struct weft__topk_task *task, void *workspace);

/* Scans one part, of task.parts; each once, in any threads. */
void weft__topk_scan(struct weft__topk *topk, size_t part);

/* After all parts: 1 if they have to be scanned once more, with a lower threshold. */
int weft__topk_again(struct weft__topk *topk);

/* After that: how many NaNs there were. */
size_t weft__topk_nans(const struct weft__topk *topk);

/* The end: the selected entries, indices ascending (64 bits wide or 32) and their values; the
 * residual's become 0. */
void weft__topk_end(struct weft__topk *topk, void *indices, int wide, void *values,
                    struct weft__topk_report *report);

#endif
