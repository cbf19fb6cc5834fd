/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library that is loaded when it is asked for, and whose functions are called through a table of
 * pointers: nothing of weft is linked with it, and a test puts another one in its place.
 */
#ifndef WEFT_GPU_TABLE_H
#define WEFT_GPU_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct weft__symbol {
    const char *name; /* NULL ends a list */
    size_t member;    /* where the table has its pointer */
};

struct weft__table {
    const char *file;
    const char *absent; /* what is said where there is none, and why */
    const char *what;   /* whose version `major`.`minor` has all that is needed */
    int major, minor;
    const struct weft__symbol *needed, *later; /* `later`: those that need not be there */
    void *functions;
    int (*begin)(void); /* once all are there */
    pthread_mutex_t lock;
    void *library; /* with the lock */
    atomic_int ready;
};

/* Loads it, once; a status. What fails is tried again by the next call, for it may be there by
 * then; what was loaded stays, as its threads may be in it. Any thread. */
int weft__table_load(struct weft__table *table);

#endif
