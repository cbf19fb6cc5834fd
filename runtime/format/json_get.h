/* SPDX-License-Identifier: BSD-3-Clause */
/* Taking values out of a JSON tree, with errors that say where in the document they are. */
#ifndef WEFT_RUNTIME_FORMAT_JSON_GET_H
#define WEFT_RUNTIME_FORMAT_JSON_GET_H

#include "runtime/format/format.h"
#include "runtime/format/json_locate.h"

#include <jansson.h>

enum { WEFT__JSON_DEEPEST = 8 };

/* Where the walk through a document is. Nothing is popped after an error. */
struct weft__json_reader {
    struct weft__document *document;
    struct weft_schedule *schedule; /* of the rank that is being read */
    struct weft__json_step path[WEFT__JSON_DEEPEST];
    size_t depth;
    struct weft_compute_argument *arguments; /* of the node that is being read */
    size_t argument_capacity;
};

/* Steps into an object or an array, and out again. */
void weft__json_push_key(struct weft__json_reader *r, const char *key);
void weft__json_push_index(struct weft__json_reader *r, size_t index);
void weft__json_pop(struct weft__json_reader *r);

/* "line 12: ranks[0].nodes[3].peer " and then the text. */
int weft__json_fail(const struct weft__json_reader *r, const char *format, ...) WEFT_PRINTF(2, 3);

/* The value at the path is not what it should be. */
int weft__json_expected(const struct weft__json_reader *r, const json_t *found, const char *what);

/* The status of a builder's call, as an error at the path; errors of ours stay as they are. */
int weft__json_built(const struct weft__json_reader *r, int status);

/* Objects take the keys in `known` (NULL-terminated) only: a slip in a key must not go unnoticed.
 */
int weft__json_check_object(struct weft__json_reader *r, const json_t *object,
                            const char *const *known);

/* A number of at most `max`; `*number` stays as it is if an `optional` key is not there. */
int weft__json_get_number(struct weft__json_reader *r, const json_t *object, const char *key,
                          int optional, uint64_t max, uint64_t *number);

/* A string; NULL in *text if an `optional` key is not there. Owned by the tree. */
int weft__json_get_text(struct weft__json_reader *r, const json_t *object, const char *key,
                        int optional, const char **text);

/* true or false; false if the key is not there. */
int weft__json_get_flag(struct weft__json_reader *r, const json_t *object, const char *key,
                        int *flag);

/* An array; NULL in *array if an `optional` key is not there. */
int weft__json_get_array(struct weft__json_reader *r, const json_t *object, const char *key,
                         int optional, const json_t **array);

/* The value with the name under a key; 0 if the key is not there. */
int weft__json_get_value(struct weft__json_reader *r, const json_t *object, const char *key,
                         weft_value_t *value);

/* The operation with the name under "op"; NULL if an `optional` one is not there. */
int weft__json_get_op(struct weft__json_reader *r, const json_t *object, int optional,
                      const struct weft_op **op);

/* The maximum of a value: a number, or a string of digits if it is beyond a signed 64-bit one. */
int weft__json_get_max(struct weft__json_reader *r, const json_t *object, uint64_t *max);

#endif
