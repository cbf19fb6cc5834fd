/* SPDX-License-Identifier: BSD-3-Clause */
/* Error texts: one buffer a thread, set by whoever returns the status first. */
#ifndef WEFT_RUNTIME_BASE_ERROR_H
#define WEFT_RUNTIME_BASE_ERROR_H

#include "runtime/base/companion.h"
#include <weft/status.h>

/* Sets the text of the calling thread and returns @status, so that `return weft__error(...)` works.
 */
WEFT__PRIVATE int weft__error(int status, const char *format, ...) WEFT_PRINTF(2, 3);

/* "%s: argument `name` is value, expected ..." for WEFT_ERR_INVALID. */
#define WEFT__INVALID(...) weft__error(WEFT_ERR_INVALID, __VA_ARGS__)
/* Returns that, where a condition is not met. */
#define WEFT__REQUIRE(condition, ...)                                                              \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return WEFT__INVALID(__VA_ARGS__);                                                     \
    } while (0)

/* The text of the calling thread, kept over a call whose failure is no error of the caller's: what
 * succeeds leaves the text as it was. */
enum { WEFT__ERROR_BYTES = 512 };
struct weft__error_saved {
    char text[WEFT__ERROR_BYTES];
};
void weft__error_save(struct weft__error_saved *saved);
void weft__error_restore(const struct weft__error_saved *saved);

/* Whether an error says no more than that another rank has failed, or that all were stopped. */
static inline int weft__error_elsewhere(int status)
{
    return status == WEFT_ERR_PEER || status == WEFT_ERR_CANCELLED;
}

/* How many texts the calling thread has set: more than before a call, and it has set one. */
unsigned weft__error_count(void);

/* Exchanges the text of the calling thread with one kept elsewhere, for functions that take turns
 * in one thread. NULL is an empty text; freed with weft__free(). */
void weft__error_exchange(char **saved);

/* As weft__error() with the texts one after the other, for answers that are no surprise and must be
 * cheap: formatting takes as long as a node. None of them is the thread's text. */
int weft__error_of(int status, const char *before, const char *name, const char *after);

/* Out of memory, naming what for. */
WEFT__PRIVATE int weft__error_memory(const char *what);

#endif
