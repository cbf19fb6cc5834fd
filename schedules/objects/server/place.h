/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranges of which layers lie on which server. */
#ifndef WEFT_SCHEDULES_OBJECTS_SERVER_PLACE_H
#define WEFT_SCHEDULES_OBJECTS_SERVER_PLACE_H

#include <stddef.h>

/* A range of elements of a layer on a server. */
struct weft__server_part {
    size_t layer;
    size_t offset; /* in elements of the layer */
    size_t count;
    int server; /* 0 .. servers - 1 */
};

/*
 * Places layers of counts[] elements. A layer of at least split_elements is cut into one range a
 * server, which differ by one element at most; others go whole, the largest first, to the server
 * that has least so far. So no server has more than the mean, rounded up, and one layer that is not
 * split. Pure; takes and frees memory; O(layers (log layers + log servers) + servers + parts).
 *
 * parts: has room for layers * servers; set in the order of the layers, and of the servers in a
 * layer. There are none of layers of no elements, and no ranges of none.
 *
 * WEFT_OK; WEFT_ERR_INVALID (NULL, servers < 1, more elements than SIZE_MAX); WEFT_ERR_MEMORY.
 */
int weft__server_place(const size_t *counts, size_t layers, int servers, size_t split_elements,
                       struct weft__server_part *parts, size_t *part_count);

#endif
