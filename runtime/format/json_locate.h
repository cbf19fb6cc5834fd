/* SPDX-License-Identifier: BSD-3-Clause */
/* Where in a JSON text something is, for errors. */
#ifndef WEFT_RUNTIME_FORMAT_JSON_LOCATE_H
#define WEFT_RUNTIME_FORMAT_JSON_LOCATE_H

#include <stddef.h>

/* A step into a JSON value: a key of an object, or, if that is NULL, an index of an array. */
struct weft__json_step {
    const char *key;
    size_t index;
};

/* The line (from 1) on which the value at a path begins, or as much of the path as there is. The
 * text is well-formed JSON. */
size_t weft__json_line(const char *text, size_t length, const struct weft__json_step *path,
                       size_t depth);

#endif
