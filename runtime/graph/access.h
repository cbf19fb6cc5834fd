/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who touched which element last: a slot is a sorted array of disjoint intervals, each with the
 * node that wrote it last and those that have read it since.
 *
 *     elements   0        10            25     40
 *                |--w 3---|--w 7, r 9---|-w 3--|
 *
 * The tracker (weft/tracker.h) orders a node after what it finds here, the checker (check/race.c)
 * asks whether it is ordered. Lists of readers only grow at their heads, so an interval that is
 * split shares its list.
 */
#ifndef WEFT_RUNTIME_GRAPH_ACCESS_H
#define WEFT_RUNTIME_GRAPH_ACCESS_H

#include <weft/schedule.h>

/* No node; no reader. */
#define WEFT__NOBODY UINT32_MAX

struct weft__access {
    size_t begin, end; /* elements */
    uint32_t writer;
    uint32_t readers; /* the newest, in accesses->readers */
};

struct weft__reader {
    uint32_t node;
    uint32_t next; /* an older one */
};

/* All zeroes: nobody has touched anything. */
struct weft__accesses {
    struct weft__access_line {
        struct weft__access *at;
        size_t count, capacity;
    } * lines; /* one a slot */
    size_t line_count, line_capacity;
    struct weft__reader *readers;
    size_t reader_count, reader_capacity;
};

/* Is told each interval that a node touches, as it was before. Other than 0 ends it. */
typedef int (*weft__access_fn)(void *user, const struct weft__access *before, int32_t slot,
                               uint32_t node, int write);

/* A node reads or writes a region of a slot. A node that does both reads first: then it finds
 * itself among the readers. 0; what `tell` has returned; or -1 without memory. */
int weft__accesses_add(struct weft__accesses *accesses, const struct weft_region *region,
                       uint32_t node, int write, weft__access_fn tell, void *user);
/* Forgets everything, and keeps the memory. */
void weft__accesses_clear(struct weft__accesses *accesses);
void weft__accesses_free(struct weft__accesses *accesses);

#endif
